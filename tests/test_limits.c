/* Limits and reservations: admission that is exact to the byte, and refuses nothing that fits. */
#include "support.h"

#define SCALE test_env("MEMLORD_TEST_SCALE", 4)
#define THREADS 16

static memlord_ticket reserve(memlord *lord, memlord_device device, uint64_t bytes) {
    memlord_ticket ticket = 0;
    assert_ok(memlord_reserve(lord, device, bytes, &ticket));
    assert_true(ticket != 0);
    return ticket;
}

static void assert_refused(memlord *lord, memlord_device device, uint64_t bytes) {
    memlord_ticket ticket = 77;
    assert_int_equal(memlord_reserve(lord, device, bytes, &ticket), MEMLORD_E_LIMIT);
    assert_int_equal(ticket, 0);
}

static void limit(memlord *lord, uint64_t bytes) {
    assert_ok(memlord_limit_set(lord, cuda(0), bytes));
}

/* -- one thread -- */

static void a_limit_is_shown_before_anything_is_recorded(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_limit_set(lord, cpu(), 1000));
    limit(lord, 2000);
    assert_int_equal(stats_of(lord, cpu()).limit, 1000);
    assert_int_equal(stats_of(lord, memlord_device_make(MEMLORD_DEVICE_PINNED, 0)).limit, 1000);
    assert_int_equal(stats_of(lord, cuda(0)).limit, 2000);
    assert_int_equal(stats_of(lord, cuda(1)).limit, 0);
}

static void a_limit_never_refuses_an_alloc(void **state) {
    test_case *t = (test_case *)*state;
    memlord_block block;
    limit(t->lord, 1000);
    grow(t, cuda(0), 900);
    grow(t, cuda(0), 900);
    assert_ok(memlord_track(t->lord, cuda(0), 0x900000, 900, NULL));
    assert_ok(memlord_realloc(t->lord, cuda(0), 0x900000, 0x900000, 5000, NULL));
    assert_ok(memlord_arena_add(t->lord, cuda(0), 900, NULL));
    block.device = cuda(0);
    block.storage = 0xa00000;
    block.bytes = 900;
    assert_ok(memlord_alloc_n(t->lord, &block, 1, NULL));
    assert_int_equal(memlord_allocated(t->lord, cuda(0)), 8600);
    assert_int_equal(stats_of(t->lord, cuda(0)).limit, 1000);
}

static void it_refuses_a_reservation_to_the_byte(void **state) {
    test_case *t = (test_case *)*state;
    limit(t->lord, 1000);
    grow(t, cuda(0), 400);
    assert_refused(t->lord, cuda(0), 601);
    reserve(t->lord, cuda(0), 600);
    assert_refused(t->lord, cuda(0), 1);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 0);
}

static void a_refusal_holds_nothing(void **state) {
    test_case *t = (test_case *)*state;
    int i;
    limit(t->lord, 1000);
    for (i = 0; i < 1000; i++) assert_refused(t->lord, cuda(0), 1001);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 1000);
    reserve(t->lord, cuda(0), 1000);
}

static void without_a_limit_everything_is_granted(void **state) {
    test_case *t = (test_case *)*state;
    memlord_ticket ticket;
    test_capacity(t, 1000, 999);
    ticket = reserve(t->lord, cuda(0), 1 << 30);
    assert_ok(memlord_reserve_commit(t->lord, ticket));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 1);
}

static void other_devices_have_their_own_limits(void **state) {
    test_case *t = (test_case *)*state;
    limit(t->lord, 1000);
    reserve(t->lord, cuda(0), 1000);
    reserve(t->lord, cuda(1), 5000);
    assert_ok(memlord_limit_set(t->lord, cuda(1), 5500));
    assert_refused(t->lord, cuda(1), 501);
    reserve(t->lord, cuda(1), 500);
}

static void one_physical_device_has_one_limit(void **state) {
    test_case *t = (test_case *)*state;
    memlord_device pinned = memlord_device_make(MEMLORD_DEVICE_PINNED, 0);
    memlord_device mapped = memlord_device_make(MEMLORD_DEVICE_MAPPED, 0);
    assert_ok(memlord_limit_set(t->lord, cpu(), 1000));
    grow(t, cpu(), 400);
    grow(t, pinned, 300);
    reserve(t->lord, pinned, 100);
    assert_refused(t->lord, mapped, 201);
    reserve(t->lord, mapped, 200);
    assert_refused(t->lord, cpu(), 1);
}

/* -- reserve, allocate, commit -- */

static void what_is_reserved_is_not_counted_twice(void **state) {
    test_case *t = (test_case *)*state;
    memlord_ticket ticket;
    limit(t->lord, 1000);
    ticket = reserve(t->lord, cuda(0), 600);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 400);
    grow(t, cuda(0), 600);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 400);
    assert_int_equal(memlord_allocated(t->lord, cuda(0)), 600);
    assert_refused(t->lord, cuda(0), 401);
    assert_ok(memlord_reserve_commit(t->lord, ticket));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 400);
    reserve(t->lord, cuda(0), 400);
}

static void a_commit_gives_back_what_was_not_used(void **state) {
    test_case *t = (test_case *)*state;
    memlord_ticket ticket;
    limit(t->lord, 1000);
    ticket = reserve(t->lord, cuda(0), 600);
    grow(t, cuda(0), 200);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 400);
    assert_ok(memlord_reserve_commit(t->lord, ticket));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 800);
}

static void a_cancel_gives_it_back(void **state) {
    test_case *t = (test_case *)*state;
    memlord_ticket ticket;
    limit(t->lord, 1000);
    ticket = reserve(t->lord, cuda(0), 1000);
    assert_ok(memlord_reserve_commit(t->lord, ticket));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 1000);
    reserve(t->lord, cuda(0), 1000);
}

static void more_than_was_reserved_is_counted_once(void **state) {
    test_case *t = (test_case *)*state;
    memlord_ticket ticket;
    limit(t->lord, 1000);
    ticket = reserve(t->lord, cuda(0), 100);
    grow(t, cuda(0), 300);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 700);
    assert_ok(memlord_reserve_commit(t->lord, ticket));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 700);
}

static void several_blocks_come_off_one_reservation(void **state) {
    test_case *t = (test_case *)*state;
    memlord_ticket ticket;
    int i;
    limit(t->lord, 1000);
    ticket = reserve(t->lord, cuda(0), 600);
    for (i = 0; i < 6; i++) {
        grow(t, cuda(0), 100);
        assert_int_equal(memlord_headroom(t->lord, cuda(0)), 400);
    }
    grow(t, cuda(0), 100);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 300);
    assert_ok(memlord_reserve_commit(t->lord, ticket));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 300);
}

static void every_call_that_adds_bytes_comes_off_it(void **state) {
    test_case *t = (test_case *)*state;
    memlord_block block;
    memlord_ticket ticket;
    uint64_t key = grow(t, cuda(0), 100);
    limit(t->lord, 1000);
    ticket = reserve(t->lord, cuda(0), 900);
    block.device = cuda(0);
    block.storage = 0xa00000;
    block.bytes = 100;
    assert_ok(memlord_realloc(t->lord, cuda(0), key, key, 250, NULL));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 0);
    assert_ok(memlord_track(t->lord, cuda(0), 0x900000, 100, NULL));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 0);
    assert_ok(memlord_alloc_n(t->lord, &block, 1, NULL));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 0);
    assert_ok(memlord_arena_add(t->lord, cuda(0), 100, NULL));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 0);
    assert_ok(memlord_alloc(t->lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_move(t->lord, cpu(), 0x1000, cuda(0), 0xb00000, 100, NULL, NULL));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 0);
    assert_ok(memlord_reserve_commit(t->lord, ticket));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 350);
}

static void what_goes_elsewhere_does_not_come_off_it(void **state) {
    test_case *t = (test_case *)*state;
    memlord_ticket ticket;
    limit(t->lord, 1000);
    ticket = reserve(t->lord, cuda(0), 600);
    grow(t, cuda(1), 600);
    grow(t, cpu(), 600);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 400);
    assert_ok(memlord_reserve_commit(t->lord, ticket));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 1000);
}

static void a_free_before_the_commit_leaves_nothing_behind(void **state) {
    test_case *t = (test_case *)*state;
    memlord_ticket ticket;
    limit(t->lord, 1000);
    ticket = reserve(t->lord, cuda(0), 600);
    assert_ok(memlord_free(t->lord, cuda(0), grow(t, cuda(0), 600), NULL));
    assert_ok(memlord_reserve_commit(t->lord, ticket));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 1000);
    reserve(t->lord, cuda(0), 1000);
}

static void what_one_reservation_has_left_keeps_nothing_of_the_next(void **state) {
    test_case *t = (test_case *)*state;
    memlord_ticket first, second;
    limit(t->lord, 1000);
    first = reserve(t->lord, cuda(0), 100);
    second = reserve(t->lord, cuda(0), 900);
    grow(t, cuda(0), 90);
    grow(t, cuda(0), 900);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 0);
    assert_ok(memlord_reserve_commit(t->lord, first));
    assert_ok(memlord_reserve_commit(t->lord, second));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 10);
}
static void eight_reservations_of_a_thread_count_once(void **state) {
    test_case *t = (test_case *)*state;
    memlord_ticket tickets[8];
    int i;
    limit(t->lord, 800);
    for (i = 0; i < 8; i++) tickets[i] = reserve(t->lord, cuda(0), 100);
    assert_refused(t->lord, cuda(0), 1);
    for (i = 0; i < 8; i++) {
        grow(t, cuda(0), 100);
        assert_int_equal(memlord_headroom(t->lord, cuda(0)), 0);
    }
    for (i = 0; i < 8; i++) {
        assert_ok(memlord_reserve_commit(t->lord, tickets[i]));
        assert_int_equal(memlord_headroom(t->lord, cuda(0)), 0);
    }
}

static void the_eight_latest_reservations_of_a_thread_count_once(void **state) {
    test_case *t = (test_case *)*state;
    memlord_ticket tickets[9];
    int i;
    limit(t->lord, 1000);
    for (i = 0; i < 9; i++) tickets[i] = reserve(t->lord, cuda(0), 100);
    for (i = 0; i < 8; i++) grow(t, cuda(0), 100);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 100);
    grow(t, cuda(0), 100); /* the first one is not drawn on */
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 0);
    assert_ok(memlord_reserve_commit(t->lord, tickets[0]));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 100);
    for (i = 1; i < 9; i++) assert_ok(memlord_reserve_commit(t->lord, tickets[i]));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 100);
}

static void more_reservations_than_that_are_settled_by_their_commit(void **state) {
    test_case *t = (test_case *)*state;
    memlord_ticket tickets[100];
    int i;
    limit(t->lord, 100000);
    for (i = 0; i < 100; i++) tickets[i] = reserve(t->lord, cuda(0), 100);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 90000);
    for (i = 0; i < 100; i++) grow(t, cuda(0), 100);
    for (i = 0; i < 100; i++) {
        if (i % 2)
            assert_ok(memlord_reserve_commit(t->lord, tickets[i]));
        else
            assert_ok(memlord_reserve_commit(t->lord, tickets[i]));
    }
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 90000);
}

static void a_reservation_of_0_bytes_is_good(void **state) {
    test_case *t = (test_case *)*state;
    memlord_ticket ticket;
    limit(t->lord, 1000);
    grow(t, cuda(0), 1000);
    ticket = reserve(t->lord, cuda(0), 0);
    assert_ok(memlord_reserve_commit(t->lord, ticket));
}

static int try_at_once(void *user, uint64_t bytes, uint64_t *storage) {
    (void)bytes;
    *storage = *(uint64_t *)user;
    return 0;
}

static void alloc_retry_draws_on_an_open_reservation(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t storage, key = 0x900000;
    memlord_ticket ticket;
    limit(t->lord, 110);
    ticket = reserve(t->lord, cuda(0), 50);
    assert_ok(memlord_alloc_retry(t->lord, cuda(0), 60, try_at_once, &key, NULL, &storage, NULL));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 50);
    assert_refused(t->lord, cuda(0), 51);
    grow(t, cuda(0), 50); /* the ticket has nothing left for it */
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 0);
    assert_ok(memlord_reserve_commit(t->lord, ticket));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 0);
}

/* Allocates by alloc_retry itself, then for the first. */
static int try_nested(void *user, uint64_t bytes, uint64_t *storage) {
    test_case *t = (test_case *)user;
    uint64_t inner, key = 0x900000;
    (void)bytes;
    if (memlord_alloc_retry(t->lord, memlord_device_cuda(0), 60, try_at_once, &key, NULL, &inner,
                            NULL))
        return -1;
    *storage = 0xa00000;
    return 0;
}

static void an_alloc_retry_inside_another_keeps_them_apart(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t storage;
    limit(t->lord, 110);
    assert_ok(memlord_alloc_retry(t->lord, cuda(0), 50, try_nested, t, NULL, &storage, NULL));
    assert_int_equal(memlord_allocated(t->lord, cuda(0)), 110);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 0);
    assert_refused(t->lord, cuda(0), 1);
}

static void an_alloc_retry_of_0_bytes_leaves_the_next_reservation_alone(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t storage, key = 0x900000;
    memlord_ticket ticket;
    limit(t->lord, 1000);
    ticket = reserve(t->lord, cuda(0), 600);
    assert_ok(memlord_alloc_retry(t->lord, cuda(0), 0, try_at_once, &key, NULL, &storage, NULL));
    grow(t, cuda(0), 600);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 400);
    assert_ok(memlord_reserve_commit(t->lord, ticket));
}

/* -- tickets -- */

static void a_ticket_is_good_once(void **state) {
    test_case *t = (test_case *)*state;
    memlord_ticket a, b;
    limit(t->lord, 1000);
    a = reserve(t->lord, cuda(0), 100);
    b = reserve(t->lord, cuda(0), 100);
    assert_true(a != b);
    assert_ok(memlord_reserve_commit(t->lord, a));
    assert_int_equal(memlord_reserve_commit(t->lord, a), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_reserve_commit(t->lord, a), MEMLORD_E_UNKNOWN);
    assert_ok(memlord_reserve_commit(t->lord, b));
    assert_int_equal(memlord_reserve_commit(t->lord, b), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 1000);
}

static void a_stale_ticket_is_unknown_when_its_place_is_used_again(void **state) {
    test_case *t = (test_case *)*state;
    memlord_ticket old[64];
    int i, j;
    limit(t->lord, 1000);
    for (i = 0; i < 64; i++) {
        old[i] = reserve(t->lord, cuda(0), 100);
        for (j = 0; j < i; j++) assert_true(old[j] != old[i]);
        for (j = 0; j < i; j++)
            assert_int_equal(memlord_reserve_commit(t->lord, old[j]), MEMLORD_E_UNKNOWN);
        assert_int_equal(memlord_headroom(t->lord, cuda(0)), 900);
        assert_ok(memlord_reserve_commit(t->lord, old[i]));
    }
}

static void what_is_no_ticket_is_unknown(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t seed = 5;
    int i;
    limit(t->lord, 1000);
    reserve(t->lord, cuda(0), 100);
    assert_int_equal(memlord_reserve_commit(t->lord, 0), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_reserve_commit(t->lord, 0), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_reserve_commit(t->lord, UINT64_MAX), MEMLORD_E_UNKNOWN);
    for (i = 0; i < 1000; i++)
        assert_int_equal(memlord_reserve_commit(t->lord, test_random(&seed)), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 900);
}

typedef struct handed {
    memlord *lord;
    memlord_ticket ticket;
    memlord_result result;
} handed;

static void *commit_handed(void *user) {
    handed *h = (handed *)user;
    h->result = memlord_reserve_commit(h->lord, h->ticket);
    return NULL;
}

static void a_ticket_may_be_committed_by_another_thread(void **state) {
    test_case *t = (test_case *)*state;
    pthread_t thread;
    handed h;
    limit(t->lord, 1000);
    h.lord = t->lord;
    h.ticket = reserve(t->lord, cuda(0), 600);
    grow(t, cuda(0), 500);
    assert_int_equal(pthread_create(&thread, NULL, commit_handed, &h), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_ok(h.result);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 500);
    grow(t, cuda(0), 500); /* comes off nothing any more */
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 0);
}

static void *leave_a_ticket(void *user) {
    handed *h = (handed *)user;
    h->result = memlord_reserve(h->lord, memlord_device_cuda(0), 600, &h->ticket);
    memlord_alloc(h->lord, memlord_device_cuda(0), (uint64_t)1 << 40, 200, NULL);
    return NULL;
}

static void a_ticket_outlives_its_thread(void **state) {
    test_case *t = (test_case *)*state;
    pthread_t thread;
    handed h;
    limit(t->lord, 1000);
    h.lord = t->lord;
    assert_int_equal(pthread_create(&thread, NULL, leave_a_ticket, &h), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_ok(h.result);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 400);
    assert_ok(memlord_reserve_commit(t->lord, h.ticket));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 800);
}

/* -- adoption -- */

static void on_another_thread(void *(*fn)(void *), void *user) {
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, fn, user), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* Adopts the ticket, and allocates 500 bytes. */
static void *adopt_handed(void *user) {
    handed *h = (handed *)user;
    h->result = memlord_reserve_adopt(h->lord, h->ticket);
    if (memlord_alloc(h->lord, memlord_device_cuda(0), (uint64_t)1 << 40, 500, NULL))
        h->result = MEMLORD_E_STATE;
    return NULL;
}

static void what_the_adopter_records_comes_off_its_ticket(void **state) {
    test_case *t = (test_case *)*state;
    handed h;
    limit(t->lord, 1000);
    h.lord = t->lord;
    h.ticket = reserve(t->lord, cuda(0), 600);
    on_another_thread(adopt_handed, &h);
    assert_ok(h.result);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 400);
    assert_ok(memlord_reserve_commit(t->lord, h.ticket));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 500);
}

static void what_the_earlier_owner_records_does_not(void **state) {
    test_case *t = (test_case *)*state;
    handed h;
    limit(t->lord, 2000);
    h.lord = t->lord;
    h.ticket = reserve(t->lord, cuda(0), 600);
    on_another_thread(adopt_handed, &h);
    assert_ok(h.result);
    grow(t, cuda(0), 100);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 1300); /* 600 live, and 100 held */
    assert_ok(memlord_reserve_commit(t->lord, h.ticket));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 1400);
}

static void a_ticket_comes_back_to_the_thread_that_adopts_it_again(void **state) {
    test_case *t = (test_case *)*state;
    handed h;
    limit(t->lord, 1000);
    h.lord = t->lord;
    h.ticket = reserve(t->lord, cuda(0), 600);
    on_another_thread(adopt_handed, &h);
    assert_ok(h.result);
    assert_ok(memlord_reserve_adopt(t->lord, h.ticket));
    grow(t, cuda(0), 100);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 400);
    assert_ok(memlord_reserve_commit(t->lord, h.ticket));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 400);
}

static void ones_own_ticket_may_be_adopted_any_number_of_times(void **state) {
    test_case *t = (test_case *)*state;
    memlord_ticket ticket;
    int i;
    limit(t->lord, 1000);
    ticket = reserve(t->lord, cuda(0), 600);
    for (i = 0; i < 20; i++) assert_ok(memlord_reserve_adopt(t->lord, ticket));
    grow(t, cuda(0), 600);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 400);
    assert_ok(memlord_reserve_commit(t->lord, ticket));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 400);
}

static void an_adopted_ticket_may_be_committed_by_the_thread_that_reserved_it(void **state) {
    test_case *t = (test_case *)*state;
    handed h;
    limit(t->lord, 1000);
    h.lord = t->lord;
    h.ticket = reserve(t->lord, cuda(0), 600);
    on_another_thread(adopt_handed, &h);
    assert_ok(memlord_reserve_commit(t->lord, h.ticket));
    assert_int_equal(memlord_reserve_commit(t->lord, h.ticket), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 500);
}

static void what_is_recorded_after_the_commit_counts_in_full(void **state) {
    test_case *t = (test_case *)*state;
    memlord_ticket ticket;
    limit(t->lord, 1000);
    ticket = reserve(t->lord, cuda(0), 600);
    assert_ok(memlord_reserve_adopt(t->lord, ticket));
    assert_ok(memlord_reserve_commit(t->lord, ticket));
    reserve(t->lord, cuda(1), 600);
    grow(t, cuda(0), 600);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 400);
}

static void a_ticket_of_a_thread_that_ended_may_be_adopted(void **state) {
    test_case *t = (test_case *)*state;
    handed h;
    limit(t->lord, 1000);
    h.lord = t->lord;
    on_another_thread(leave_a_ticket, &h); /* 600, of which 200 are live */
    assert_ok(memlord_reserve_adopt(t->lord, h.ticket));
    grow(t, cuda(0), 400);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 400);
    assert_ok(memlord_reserve_commit(t->lord, h.ticket));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 400);
}

static void what_is_no_open_ticket_is_not_adopted(void **state) {
    test_case *t = (test_case *)*state;
    memlord_ticket committed, cancelled;
    limit(t->lord, 1000);
    committed = reserve(t->lord, cuda(0), 100);
    assert_ok(memlord_reserve_commit(t->lord, committed));
    cancelled = reserve(t->lord, cuda(0), 100);
    assert_ok(memlord_reserve_commit(t->lord, cancelled));
    assert_int_equal(memlord_reserve_adopt(t->lord, committed), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_reserve_adopt(t->lord, cancelled), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_reserve_adopt(t->lord, 0), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_reserve_adopt(t->lord, UINT64_MAX), MEMLORD_E_UNKNOWN);
    grow(t, cuda(0), 100);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 900);
}

static void a_ticket_of_another_ledger_is_unknown(void **state) {
    test_case *t = (test_case *)*state;
    memlord_ticket mine, others;
    memlord *other = NULL;
    limit(t->lord, 1000);
    mine = reserve(t->lord, cuda(0), 100);
    assert_ok(memlord_create(NULL, &other));
    others = reserve(other, cuda(0), 100);
    assert_true(mine != others);
    assert_int_equal(memlord_reserve_adopt(t->lord, others), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_reserve_commit(t->lord, others), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_reserve_commit(other, mine), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 900);
    memlord_destroy(other);
}

/* -- allocs that name their ticket -- */

static memlord_result alloc_off(memlord *lord, memlord_ticket ticket, memlord_device device,
                                uint64_t storage, uint64_t bytes) {
    memlord_alloc_opts opts;
    memset(&opts, 0, sizeof opts);
    opts.ticket = ticket;
    return memlord_alloc_with(lord, device, storage, bytes, &opts);
}

static void an_alloc_comes_off_the_ticket_that_it_names(void **state) {
    test_case *t = (test_case *)*state;
    memlord_ticket a, b;
    limit(t->lord, 1000);
    a = reserve(t->lord, cuda(0), 100);
    b = reserve(t->lord, cuda(0), 100);
    assert_ok(alloc_off(t->lord, b, cuda(0), 0x900000, 60));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 800);
    assert_ok(memlord_reserve_commit(t->lord, b));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 840);
    assert_ok(memlord_reserve_commit(t->lord, a));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 940);
    assert_int_equal(memlord_allocated(t->lord, cuda(0)), 60);
}

static void one_thread_serves_any_number_of_tickets(void **state) {
    test_case *t = (test_case *)*state;
    memlord_ticket tickets[300];
    uint64_t i;
    limit(t->lord, 30000);
    for (i = 0; i < 300; i++) tickets[i] = reserve(t->lord, cuda(0), 100);
    for (i = 0; i < 300; i++) {
        assert_ok(alloc_off(t->lord, tickets[i], cuda(0), i * 64 + 0x900000, 100));
        assert_int_equal(memlord_headroom(t->lord, cuda(0)), 0);
    }
    for (i = 0; i < 300; i++) assert_ok(memlord_reserve_commit(t->lord, tickets[i]));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 0);
    assert_int_equal(stats_of(t->lord, cuda(0)).held, 0);
}

/* Allocates 500 bytes off the ticket. */
static void *alloc_handed(void *user) {
    handed *h = (handed *)user;
    h->result = alloc_off(h->lord, h->ticket, memlord_device_cuda(0), (uint64_t)1 << 40, 500);
    return NULL;
}

static void any_thread_may_name_a_ticket(void **state) {
    test_case *t = (test_case *)*state;
    handed h;
    limit(t->lord, 1000);
    h.lord = t->lord;
    h.ticket = reserve(t->lord, cuda(0), 600);
    on_another_thread(alloc_handed, &h);
    assert_ok(h.result);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 400);
    grow(t, cuda(0), 100); /* its owner still draws on it */
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 400);
}

static void bytes_beyond_the_ticket_count_in_full(void **state) {
    test_case *t = (test_case *)*state;
    memlord_ticket a, b;
    limit(t->lord, 1000);
    a = reserve(t->lord, cuda(0), 100);
    b = reserve(t->lord, cuda(0), 100);
    assert_ok(alloc_off(t->lord, a, cuda(0), 0x900000, 250));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 650); /* 250 live, and 100 of b */
    assert_ok(alloc_off(t->lord, a, cuda(0), 0xa00000, 50));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 600);
    assert_ok(memlord_reserve_commit(t->lord, b));
}

static void an_alloc_with_a_closed_ticket_is_recorded_and_refused(void **state) {
    test_case *t = (test_case *)*state;
    memlord_ticket ticket;
    limit(t->lord, 1000);
    ticket = reserve(t->lord, cuda(0), 100);
    assert_ok(memlord_reserve_commit(t->lord, ticket));
    assert_ok(alloc_off(t->lord, ticket, cuda(0), 0x900000, 10));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 990);
    assert_int_equal(stats_of(t->lord, cuda(0)).refused, 1);
}

static void an_alloc_with_a_ticket_on_a_selector_is_refused(void **state) {
    test_case *t = (test_case *)*state;
    memlord_ticket ticket;
    limit(t->lord, 1000);
    ticket = reserve(t->lord, cuda(0), 100);
    assert_int_equal(alloc_off(t->lord, ticket, all(), 0x900000, 10), MEMLORD_E_DEVICE);
    assert_int_equal(memlord_allocated(t->lord, all()), 0);
    assert_int_equal(stats_of(t->lord, all()).refused, 1);
}

static void devices_that_share_a_memory_share_its_tickets(void **state) {
    test_case *t = (test_case *)*state;
    memlord_device pinned = memlord_device_make(MEMLORD_DEVICE_PINNED, 0);
    memlord_ticket ticket;
    assert_ok(memlord_limit_set(t->lord, cpu(), 1000));
    ticket = reserve(t->lord, cpu(), 100);
    assert_ok(alloc_off(t->lord, ticket, pinned, 0x900000, 60));
    assert_int_equal(memlord_headroom(t->lord, cpu()), 900);
    assert_int_equal(memlord_allocated(t->lord, pinned), 60);
}

static void bad_arguments_of_an_alloc_draw_nothing(void **state) {
    test_case *t = (test_case *)*state;
    memlord_ticket ticket;
    limit(t->lord, 1000);
    ticket = reserve(t->lord, cuda(0), 100);
    assert_int_equal(alloc_off(t->lord, ticket, cuda(0), 0, 10),
                     MEMLORD_E_INVALID);
    assert_int_equal(alloc_off(t->lord, ticket, cuda(0), 0x900000, TEST_MAX_BYTES + 1),
                     MEMLORD_E_INVALID);
    assert_int_equal(stats_of(t->lord, cuda(0)).held, 100);
    assert_int_equal(memlord_allocated(t->lord, all()), 0);
}

/* -- what tickets hold is a statistic -- */

static void held_is_what_tickets_have_left(void **state) {
    test_case *t = (test_case *)*state;
    memlord_ticket ticket;
    limit(t->lord, 1000);
    assert_int_equal(stats_of(t->lord, cuda(0)).held, 0);
    ticket = reserve(t->lord, cuda(0), 600);
    assert_int_equal(stats_of(t->lord, cuda(0)).held, 600);
    grow(t, cuda(0), 200);
    assert_int_equal(stats_of(t->lord, cuda(0)).held, 400);
    assert_ok(memlord_reserve_commit(t->lord, ticket));
    assert_int_equal(stats_of(t->lord, cuda(0)).held, 0);
}

static void held_counts_once_in_a_sum(void **state) {
    test_case *t = (test_case *)*state;
    memlord_device pinned = memlord_device_make(MEMLORD_DEVICE_PINNED, 0);
    reserve(t->lord, cpu(), 600);
    assert_int_equal(stats_of(t->lord, cpu()).held, 600); /* before anything is recorded */
    grow(t, cpu(), 100);
    grow(t, pinned, 100);
    reserve(t->lord, cuda(0), 30);
    assert_int_equal(stats_of(t->lord, cpu()).held, 400);
    assert_int_equal(stats_of(t->lord, pinned).held, 400);
    assert_int_equal(stats_of(t->lord, all()).held, 430);
    memlord_reset(t->lord);
    assert_int_equal(stats_of(t->lord, all()).held, 430);
}

static void held_is_in_the_reports(void **state) {
    test_case *t = (test_case *)*state;
    char *text;
    limit(t->lord, 100000);
    reserve(t->lord, cuda(0), 12345);
    text = report_of(t->lord, MEMLORD_FORMAT_JSON);
    assert_non_null(strstr(text, "\"held\":12345"));
    free(text);
    text = report_of(t->lord, MEMLORD_FORMAT_PROMETHEUS);
    assert_non_null(strstr(text, "\nmemlord_held_bytes{device=\"cuda:0\"} 12345\n"));
    free(text);
    text = report_of(t->lord, MEMLORD_FORMAT_TEXT);
    assert_non_null(strstr(text, "12.06 KiB\n"));
    free(text);
}

/* -- arguments -- */

static void bad_arguments_are_refused(void **state) {
    test_case *t = (test_case *)*state;
    memlord_ticket ticket = 77;
    memlord_device bad = memlord_device_make(MEMLORD_DEVICE_TYPE_COUNT, 0);
    assert_int_equal(memlord_reserve(t->lord, cuda(0), 10, NULL), MEMLORD_E_INVALID);
    assert_int_equal(memlord_reserve(t->lord, cuda(0), TEST_MAX_BYTES + 1, &ticket),
                     MEMLORD_E_INVALID);
    assert_int_equal(memlord_reserve(t->lord, cuda(0), UINT64_MAX, &ticket), MEMLORD_E_INVALID);
    assert_int_equal(memlord_reserve(t->lord, bad, 10, &ticket), MEMLORD_E_DEVICE);
    assert_int_equal(memlord_reserve(t->lord, all(), 10, &ticket), MEMLORD_E_DEVICE);
    limit(t->lord, 1000);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 1000);
}

static void a_null_ledger_grants_everything(void **state) {
    memlord_ticket ticket = 77;
    (void)state;
    assert_ok(memlord_reserve(NULL, cpu(), 10, &ticket));
    assert_int_equal(ticket, 0);
    assert_ok(memlord_reserve_commit(NULL, ticket));
    assert_ok(memlord_reserve_commit(NULL, ticket));
    assert_ok(memlord_reserve_adopt(NULL, ticket));
    assert_ok(alloc_off(NULL, ticket, cpu(), 0x1000, 10));
}

/* -- limits that move -- */

static void a_limit_below_what_lives_refuses_until_enough_is_freed(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t a = grow(t, cuda(0), 600), b = grow(t, cuda(0), 400);
    limit(t->lord, 500);
    assert_true(memlord_headroom(t->lord, cuda(0)) == -500);
    assert_refused(t->lord, cuda(0), 1);
    assert_ok(memlord_free(t->lord, cuda(0), b, NULL));
    assert_true(memlord_headroom(t->lord, cuda(0)) == -100);
    assert_refused(t->lord, cuda(0), 1);
    assert_ok(memlord_free(t->lord, cuda(0), a, NULL));
    reserve(t->lord, cuda(0), 500);
}

static void a_limit_counts_what_was_there_before_it(void **state) {
    test_case *t = (test_case *)*state;
    memlord_ticket ticket = reserve(t->lord, cuda(0), 300);
    grow(t, cuda(0), 100);
    grow(t, cuda(0), 400);
    limit(t->lord, 1000);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 500);
    assert_ok(memlord_reserve_commit(t->lord, ticket));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 500);
    assert_refused(t->lord, cuda(0), 501);
    reserve(t->lord, cuda(0), 500);
}

static void a_limit_taken_off_and_set_again_is_exact(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t key;
    limit(t->lord, 1000);
    key = grow(t, cuda(0), 600);
    limit(t->lord, 0);
    assert_int_equal(stats_of(t->lord, cuda(0)).limit, 0);
    assert_true(memlord_headroom(t->lord, cuda(0)) == INT64_MAX);
    grow(t, cuda(0), 700);
    assert_ok(memlord_free(t->lord, cuda(0), key, NULL));
    limit(t->lord, 1000);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 300);
    assert_refused(t->lord, cuda(0), 301);
    reserve(t->lord, cuda(0), 300);
}

static void a_lower_limit_does_not_touch_open_reservations(void **state) {
    test_case *t = (test_case *)*state;
    memlord_ticket ticket;
    limit(t->lord, 1000);
    ticket = reserve(t->lord, cuda(0), 600);
    limit(t->lord, 500);
    assert_true(memlord_headroom(t->lord, cuda(0)) == -100);
    grow(t, cuda(0), 600);
    assert_ok(memlord_reserve_commit(t->lord, ticket));
    assert_true(memlord_headroom(t->lord, cuda(0)) == -100);
}

static void a_reset_keeps_limit_and_reservations(void **state) {
    test_case *t = (test_case *)*state;
    memlord_ticket ticket;
    limit(t->lord, 1000);
    grow(t, cuda(0), 100);
    ticket = reserve(t->lord, cuda(0), 300);
    memlord_reset(t->lord);
    assert_int_equal(stats_of(t->lord, cuda(0)).limit, 1000);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 600);
    assert_ok(memlord_reserve_commit(t->lord, ticket));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 900);
}

static void a_limit_beyond_everything_overflows_nothing(void **state) {
    test_case *t = (test_case *)*state;
    grow(t, cuda(0), 1000);
    limit(t->lord, UINT64_MAX);
    assert_true(memlord_headroom(t->lord, cuda(0)) > 0);
    assert_int_equal(memlord_would_fit(t->lord, cuda(0), TEST_MAX_BYTES), 1);
    reserve(t->lord, cuda(0), TEST_MAX_BYTES);
    reserve(t->lord, cuda(0), TEST_MAX_BYTES);
    assert_true(memlord_headroom(t->lord, cuda(0)) > 0);
}

/* Half of what other threads did may be unpublished when the limit comes. */
typedef struct hoard {
    memlord *lord;
    test_gate gate;
} hoard;

static void *hoard_run(void *user) {
    hoard *h = (hoard *)user;
    uint64_t i;
    for (i = 1; i <= 60; i++)
        memlord_alloc(h->lord, memlord_device_cuda(0), (i << 32), 1000, NULL);
    test_gate_pass(&h->gate);
    return NULL;
}

static void a_new_limit_counts_what_threads_hold_back(void **state) {
    test_case *t = (test_case *)*state;
    hoard h = {NULL, TEST_GATE};
    pthread_t thread;
    h.lord = t->lord;
    assert_int_equal(pthread_create(&thread, NULL, hoard_run, &h), 0);
    assert_true(test_gate_came(&h.gate, 1));
    limit(t->lord, 100000);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 40000);
    assert_refused(t->lord, cuda(0), 40001);
    reserve(t->lord, cuda(0), 40000);
    test_gate_open(&h.gate);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 0);
}

static void a_band_and_a_limit_go_together(void **state) {
    test_case *t = (test_case *)*state;
    memlord_ticket ticket;
    limit(t->lord, 1000);
    test_threshold(t->lord, MEMLORD_METRIC_ALLOCATED, 900);
    ticket = reserve(t->lord, cuda(0), 900);
    assert_int_equal(t->gc.runs, 0); /* what is only reserved does not live */
    grow(t, cuda(0), 900);
    assert_int_equal(t->gc.runs, 1);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 100);
    assert_ok(memlord_reserve_commit(t->lord, ticket));
}

/* -- the log -- */

static void a_refusal_is_logged_with_an_explanation(void **state) {
    test_case *t = (test_case *)*state;
    char line[1024];
    size_t n;
    limit(t->lord, 10000);
    assert_ok(memlord_tag_begin(t->lord, "kv_cache"));
    grow(t, cuda(0), 9000);
    assert_ok(memlord_tag_end(t->lord));
    test_log_clear(&t->log);
    assert_refused(t->lord, cuda(0), 1500);
    assert_true(t->log.lines[MEMLORD_LOG_ERROR] + t->log.lines[MEMLORD_LOG_WARNING] >= 1);
    n = memlord_explain(t->lord, cuda(0), 1500, line, sizeof line);
    assert_int_equal(n, strlen(line));
    assert_null(strchr(line, '\n'));
    assert_non_null(strstr(t->log.text, line));
    assert_non_null(strstr(line, "cuda:0"));
    assert_non_null(strstr(line, "kv_cache"));
    assert_non_null(strstr(line, "500 B")); /* short by */
}

static void refusals_are_logged_once_a_second(void **state) {
    test_case *t = (test_case *)*state;
    int i;
    t->now = 0; /* a clock may begin there */
    limit(t->lord, 1000);
    for (i = 0; i < 100; i++) assert_refused(t->lord, cuda(0), 1001);
    assert_int_equal(t->log.lines[MEMLORD_LOG_WARNING], 1);
    t->now += 999999999u;
    assert_refused(t->lord, cuda(0), 1001);
    assert_int_equal(t->log.lines[MEMLORD_LOG_WARNING], 1);
    t->now += 1;
    for (i = 0; i < 100; i++) assert_refused(t->lord, cuda(0), 1001);
    assert_int_equal(t->log.lines[MEMLORD_LOG_WARNING], 2);
    assert_int_equal(t->log.lines[MEMLORD_LOG_ERROR], 0);
}

static uint64_t count_and_read(void *user) {
    return ++*(uint64_t *)user;
}

/* The explanation walks tags and sites, and comes after the clock. */
static void a_refusal_that_nobody_hears_reads_no_clock(void **state) {
    memlord_desc desc;
    memlord_ticket ticket;
    memlord *lord = NULL;
    uint64_t reads = 0, before;
    int i;
    (void)state;
    memset(&desc, 0, sizeof desc);
    desc.flags = MEMLORD_FLAG_NO_ENV | MEMLORD_FLAG_NO_THREADS;
    desc.clock.fn = count_and_read;
    desc.clock.user = &reads;
    assert_ok(memlord_create(&desc, &lord));
    limit(lord, 1000);
    assert_int_equal(memlord_reserve(lord, cuda(0), 1001, &ticket), MEMLORD_E_LIMIT);
    before = reads;
    for (i = 0; i < 100; i++)
        assert_int_equal(memlord_reserve(lord, cuda(0), 1001, &ticket), MEMLORD_E_LIMIT);
    assert_int_equal(reads, before);
    memlord_destroy(lord);
}

static void what_is_granted_is_not_logged(void **state) {
    test_case *t = (test_case *)*state;
    memlord_ticket ticket;
    limit(t->lord, 10000);
    test_log_clear(&t->log);
    ticket = reserve(t->lord, cuda(0), 10000);
    grow(t, cuda(0), 10000);
    assert_ok(memlord_reserve_commit(t->lord, ticket));
    assert_string_equal(t->log.text, "");
}

static void a_reservation_without_room_for_itself_holds_nothing(void **state) {
    test_case *t = (test_case *)*state;
    memlord_ticket ticket;
    memlord_result r = MEMLORD_OK;
    uint64_t granted = 0;
    limit(t->lord, 100000000);
    t->heap.fail_at = t->heap.calls + 1;
    t->heap.fail_from = 1;
    while (r == MEMLORD_OK && granted < 100000) {
        r = memlord_reserve(t->lord, cuda(0), 10, &ticket);
        granted += r == MEMLORD_OK;
    }
    t->heap.fail_at = 0;
    if (r) assert_int_equal(r, MEMLORD_E_NOMEM);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 100000000 - 10 * granted);
}

static void what_could_not_be_recorded_stays_reserved(void **state) {
    test_case *t = (test_case *)*state;
    memlord_ticket ticket;
    memlord_result r = MEMLORD_OK;
    uint64_t i, recorded = 0;
    limit(t->lord, 10000000);
    ticket = reserve(t->lord, cuda(0), 9000000);
    t->heap.fail_at = t->heap.calls + 1;
    t->heap.fail_from = 1;
    for (i = 1; r == MEMLORD_OK && i < 100000; i++) {
        r = memlord_alloc(t->lord, cuda(0), i << 32, 10, NULL);
        recorded += r == MEMLORD_OK ? 10 : 0;
    }
    t->heap.fail_at = 0;
    assert_int_equal(r, MEMLORD_E_NOMEM);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 1000000);
    assert_ok(memlord_reserve_commit(t->lord, ticket));
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 10000000 - recorded);
}

/* -- 16 threads -- */

typedef struct hammer {
    memlord *lord;
    pthread_barrier_t start;
    uint64_t limit, rounds, most; /* bytes of one request, at most */
    int exact;                    /* every request is of `most` bytes */
    int host;                     /* on cpu, pinned and mapped in turn */
    int64_t held; /* by all threads: never over what the ledger counts */
    uint64_t next, bad, refused, granted, passed;
} hammer;

static void hammer_round(hammer *h, uint64_t key, uint64_t bytes, int cancel) {
    memlord_device device = h->host ? memlord_device_make((int)(key / 64 % 3), 0)
                                    : memlord_device_cuda(0);
    memlord_ticket ticket = 0;
    memlord_result r = memlord_reserve(h->lord, device, bytes, &ticket);
    if (r) {
        __atomic_add_fetch(r == MEMLORD_E_LIMIT ? &h->refused : &h->bad, 1, __ATOMIC_RELAXED);
        return;
    }
    __atomic_add_fetch(&h->granted, 1, __ATOMIC_RELAXED);
    if (__atomic_add_fetch(&h->held, (int64_t)bytes, __ATOMIC_SEQ_CST) > (int64_t)h->limit)
        __atomic_add_fetch(&h->passed, 1, __ATOMIC_RELAXED);
    if (cancel) {
        __atomic_sub_fetch(&h->held, (int64_t)bytes, __ATOMIC_SEQ_CST);
        r = memlord_reserve_commit(h->lord, ticket);
    } else {
        r = memlord_alloc(h->lord, device, key, bytes, NULL);
        r |= memlord_reserve_commit(h->lord, ticket);
        __atomic_sub_fetch(&h->held, (int64_t)bytes, __ATOMIC_SEQ_CST);
        r |= memlord_free(h->lord, device, key, NULL);
    }
    if (r) __atomic_add_fetch(&h->bad, 1, __ATOMIC_RELAXED);
}

static void *hammer_run(void *user) {
    hammer *h = (hammer *)user;
    uint64_t id = __atomic_add_fetch(&h->next, 1, __ATOMIC_RELAXED), seed = id, i;
    pthread_barrier_wait(&h->start);
    for (i = 0; i < h->rounds; i++) {
        uint64_t bytes = h->exact ? h->most : test_random(&seed) % (h->most + 1);
        hammer_round(h, (id << 40) + i % 16 * 64, bytes, test_random(&seed) % 8 == 0);
    }
    return NULL;
}

static hammer hammer_on(test_case *t, memlord_device device, uint64_t bytes, uint64_t most,
                        int exact) {
    static hammer h;
    pthread_t threads[THREADS];
    int i;
    memset(&h, 0, sizeof h);
    h.lord = t->lord;
    h.limit = bytes;
    h.rounds = 1000 * SCALE;
    h.most = most;
    h.exact = exact;
    h.host = device.type == MEMLORD_DEVICE_CPU;
    assert_ok(memlord_limit_set(t->lord, device, bytes));
    assert_int_equal(pthread_barrier_init(&h.start, NULL, THREADS), 0);
    for (i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, hammer_run, &h), 0);
    for (i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    pthread_barrier_destroy(&h.start);
    assert_int_equal(h.bad, 0);
    assert_int_equal(h.passed, 0);
    assert_int_equal(h.granted + h.refused, THREADS * h.rounds);
    assert_int_equal(memlord_allocated(t->lord, all()), 0);
    assert_int_equal(memlord_headroom(t->lord, device), bytes);
    assert_refused(t->lord, device, bytes + 1);
    assert_ok(memlord_reserve_commit(t->lord, reserve(t->lord, device, bytes)));
    return h;
}
static hammer hammer_all(test_case *t, uint64_t bytes, uint64_t most, int exact) {
    return hammer_on(t, cuda(0), bytes, most, exact);
}

static void with_room_for_all_nothing_is_refused(void **state) {
    test_case *t = (test_case *)*state;
    assert_int_equal(hammer_all(t, THREADS * 1000, 1000, 1).refused, 0);
}

static void nor_with_requests_of_a_byte(void **state) {
    test_case *t = (test_case *)*state;
    assert_int_equal(hammer_all(t, THREADS, 1, 1).refused, 0);
}

static void nor_with_large_ones(void **state) {
    test_case *t = (test_case *)*state;
    assert_int_equal(hammer_all(t, (uint64_t)THREADS << 30, 1 << 30, 1).refused, 0);
}

static void with_room_for_half_the_limit_is_never_passed(void **state) {
    test_case *t = (test_case *)*state;
    hammer h = hammer_all(t, THREADS * 1000 / 4, 1000, 0);
    assert_true(h.granted > 0);
}

static void with_room_for_one_the_limit_is_never_passed(void **state) {
    test_case *t = (test_case *)*state;
    hammer h = hammer_all(t, 1000, 1000, 1);
    assert_true(h.granted > 0);
}

static void nor_when_devices_share_a_memory(void **state) {
    test_case *t = (test_case *)*state;
    assert_int_equal(MEMLORD_DEVICE_CPU + MEMLORD_DEVICE_PINNED + MEMLORD_DEVICE_MAPPED, 3);
    assert_int_equal(hammer_on(t, cpu(), THREADS * 1000, 1000, 1).refused, 0);
    assert_true(hammer_on(t, cpu(), THREADS * 1000 / 4, 1000, 0).granted > 0);
}

/* All need records that are not there yet. */
typedef struct rush {
    memlord *lord;
    pthread_barrier_t start;
    uint64_t next, bad;
} rush;

static void *rush_run(void *user) {
    rush *r = (rush *)user;
    uint64_t id = __atomic_add_fetch(&r->next, 1, __ATOMIC_RELAXED), bad = 0, i;
    memlord_ticket tickets[6];
    pthread_barrier_wait(&r->start);
    for (i = 0; i < 6; i++) {
        bad += memlord_reserve(r->lord, memlord_device_cuda(0), 10, &tickets[i]) != MEMLORD_OK;
        bad += memlord_alloc(r->lord, memlord_device_cuda(0), (id << 40) + i * 64, 10, NULL) !=
               MEMLORD_OK;
    }
    for (i = 0; i < 6; i++) bad += memlord_reserve_commit(r->lord, tickets[i]) != MEMLORD_OK;
    __atomic_add_fetch(&r->bad, bad, __ATOMIC_RELAXED);
    return NULL;
}

static void first_reservations_of_many_threads_are_good(void **state) {
    uint64_t round;
    (void)state;
    for (round = 0; round < 100 * SCALE; round++) {
        pthread_t threads[THREADS];
        rush r;
        int i;
        memset(&r, 0, sizeof r);
        assert_ok(memlord_create(NULL, &r.lord));
        assert_ok(memlord_limit_set(r.lord, cuda(0), THREADS * 60));
        assert_int_equal(pthread_barrier_init(&r.start, NULL, THREADS), 0);
        for (i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, rush_run, &r), 0);
        for (i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
        pthread_barrier_destroy(&r.start);
        assert_int_equal(r.bad, 0);
        assert_int_equal(memlord_headroom(r.lord, cuda(0)), 0);
        memlord_destroy(r.lord);
    }
}

/* The same beside threads that ask nobody: what they add is the truth, and refuses others. */
typedef struct crowd {
    memlord *lord;
    int stop;
} crowd;

static void *crowd_run(void *user) {
    crowd *c = (crowd *)user;
    uint64_t i = 0;
    while (!__atomic_load_n(&c->stop, __ATOMIC_RELAXED)) {
        uint64_t key = ((uint64_t)99 << 40) + (i++ % 100) * 64;
        memlord_alloc(c->lord, memlord_device_cuda(0), key, 10, NULL);
        memlord_free(c->lord, memlord_device_cuda(0), key, NULL);
    }
    return NULL;
}

static void beside_allocs_that_ask_nobody_it_stays_exact(void **state) {
    test_case *t = (test_case *)*state;
    crowd c;
    pthread_t thread;
    hammer h;
    c.lord = t->lord;
    c.stop = 0;
    /* the other holds 10 bytes at most: with 10 more there is room for all */
    assert_int_equal(pthread_create(&thread, NULL, crowd_run, &c), 0);
    memset(&h, 0, sizeof h);
    h.lord = t->lord;
    h.limit = 500;
    limit(t->lord, 510);
    for (h.rounds = 0; h.rounds < 20000 * SCALE; h.rounds++)
        hammer_round(&h, ((uint64_t)7 << 40) + h.rounds % 64 * 64, 500, h.rounds % 3 == 0);
    __atomic_store_n(&c.stop, 1, __ATOMIC_RELAXED);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(h.bad, 0);
    assert_int_equal(h.refused, 0);
    assert_int_equal(memlord_headroom(t->lord, cuda(0)), 510);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_FAKES(a_limit_is_shown_before_anything_is_recorded),
        TEST_FAKES(a_limit_never_refuses_an_alloc),
        TEST_FAKES(it_refuses_a_reservation_to_the_byte),
        TEST_FAKES(a_refusal_holds_nothing),
        TEST_FAKES(without_a_limit_everything_is_granted),
        TEST_FAKES(other_devices_have_their_own_limits),
        TEST_FAKES(one_physical_device_has_one_limit),
        TEST_FAKES(what_is_reserved_is_not_counted_twice),
        TEST_FAKES(a_commit_gives_back_what_was_not_used),
        TEST_FAKES(a_cancel_gives_it_back),
        TEST_FAKES(more_than_was_reserved_is_counted_once),
        TEST_FAKES(several_blocks_come_off_one_reservation),
        TEST_FAKES(every_call_that_adds_bytes_comes_off_it),
        TEST_FAKES(what_goes_elsewhere_does_not_come_off_it),
        TEST_FAKES(a_free_before_the_commit_leaves_nothing_behind),
        TEST_FAKES(eight_reservations_of_a_thread_count_once),
        TEST_FAKES(the_eight_latest_reservations_of_a_thread_count_once),
        TEST_FAKES(what_one_reservation_has_left_keeps_nothing_of_the_next),
        TEST_FAKES(more_reservations_than_that_are_settled_by_their_commit),
        TEST_FAKES(a_reservation_of_0_bytes_is_good),
        TEST_FAKES(alloc_retry_draws_on_an_open_reservation),
        TEST_FAKES(an_alloc_retry_inside_another_keeps_them_apart),
        TEST_FAKES(an_alloc_retry_of_0_bytes_leaves_the_next_reservation_alone),
        TEST_FAKES(a_ticket_is_good_once),
        TEST_FAKES(a_stale_ticket_is_unknown_when_its_place_is_used_again),
        TEST_FAKES(what_is_no_ticket_is_unknown),
        TEST_FAKES(a_ticket_may_be_committed_by_another_thread),
        TEST_FAKES(a_ticket_outlives_its_thread),
        TEST_FAKES(what_the_adopter_records_comes_off_its_ticket),
        TEST_FAKES(what_the_earlier_owner_records_does_not),
        TEST_FAKES(a_ticket_comes_back_to_the_thread_that_adopts_it_again),
        TEST_FAKES(ones_own_ticket_may_be_adopted_any_number_of_times),
        TEST_FAKES(an_adopted_ticket_may_be_committed_by_the_thread_that_reserved_it),
        TEST_FAKES(what_is_recorded_after_the_commit_counts_in_full),
        TEST_FAKES(a_ticket_of_a_thread_that_ended_may_be_adopted),
        TEST_FAKES(what_is_no_open_ticket_is_not_adopted),
        TEST_FAKES(a_ticket_of_another_ledger_is_unknown),
        TEST_FAKES(an_alloc_comes_off_the_ticket_that_it_names),
        TEST_FAKES(one_thread_serves_any_number_of_tickets),
        TEST_FAKES(any_thread_may_name_a_ticket),
        TEST_FAKES(bytes_beyond_the_ticket_count_in_full),
        TEST_FAKES(an_alloc_with_a_closed_ticket_is_recorded_and_refused),
        TEST_FAKES(an_alloc_with_a_ticket_on_a_selector_is_refused),
        TEST_FAKES(devices_that_share_a_memory_share_its_tickets),
        TEST_FAKES(bad_arguments_of_an_alloc_draw_nothing),
        TEST_FAKES(held_is_what_tickets_have_left),
        TEST_FAKES(held_counts_once_in_a_sum),
        TEST_FAKES(held_is_in_the_reports),
        TEST_FAKES(bad_arguments_are_refused),
        cmocka_unit_test(a_null_ledger_grants_everything),
        TEST_FAKES(a_limit_below_what_lives_refuses_until_enough_is_freed),
        TEST_FAKES(a_limit_counts_what_was_there_before_it),
        TEST_FAKES(a_limit_taken_off_and_set_again_is_exact),
        TEST_FAKES(a_lower_limit_does_not_touch_open_reservations),
        TEST_FAKES(a_reset_keeps_limit_and_reservations),
        TEST_FAKES(a_limit_beyond_everything_overflows_nothing),
        TEST_FAKES(a_new_limit_counts_what_threads_hold_back),
        TEST_FAKES(a_band_and_a_limit_go_together),
        TEST_FAKES(a_refusal_is_logged_with_an_explanation),
        TEST_FAKES(refusals_are_logged_once_a_second),
        cmocka_unit_test(a_refusal_that_nobody_hears_reads_no_clock),
        TEST_FAKES(what_is_granted_is_not_logged),
        TEST_FAKES(a_reservation_without_room_for_itself_holds_nothing),
        TEST_FAKES(what_could_not_be_recorded_stays_reserved),
        TEST_FAKES(with_room_for_all_nothing_is_refused),
        TEST_FAKES(nor_with_requests_of_a_byte),
        TEST_FAKES(nor_with_large_ones),
        TEST_FAKES(with_room_for_half_the_limit_is_never_passed),
        TEST_FAKES(with_room_for_one_the_limit_is_never_passed),
        TEST_FAKES(nor_when_devices_share_a_memory),
        cmocka_unit_test(first_reservations_of_many_threads_are_good),
        TEST_FAKES(beside_allocs_that_ask_nobody_it_stays_exact),
    };
    return cmocka_run_group_tests_name("limits", tests, NULL, NULL);
}
