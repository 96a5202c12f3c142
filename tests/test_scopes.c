/* Scopes: what a phase of the program cost. Deltas of a thread and of those it was handed to,
   peaks inside, paths, tokens, and blocks that remember where they were born. */
#include "support.h"

#include <sys/wait.h>
#include <unistd.h>

#include "json.h"

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)

static memlord_scope_stat scope_of(memlord *lord, const char *path) {
    memlord_scope_stat s;
    memset(&s, 0xee, sizeof s);
    assert_ok(memlord_scope_get(lord, path, &s));
    assert_string_equal(s.path, path);
    return s;
}

static void open_block(memlord *lord, uint64_t key, uint64_t bytes) {
    assert_ok(memlord_alloc(lord, cuda(0), key, bytes, NULL));
}
static void close_block(memlord *lord, uint64_t key) {
    assert_ok(memlord_free(lord, cuda(0), key, NULL));
}
/* Up by so many bytes and down again. */
static void bump(memlord *lord, uint64_t bytes) {
    open_block(lord, 0xb000000, bytes);
    close_block(lord, 0xb000000);
}

static const char *scope_name(memlord *lord, memlord_device device, uint64_t key) {
    memlord_block_info info;
    assert_ok(memlord_block_find(lord, device, key, &info));
    return info.scope;
}
#define assert_born_in(lord, device, key, path)                                               \
    do {                                                                                      \
        const char *born_in = scope_name(lord, device, key);                                  \
        assert_non_null(born_in);                                                             \
        assert_string_equal(born_in, path);                                                   \
    } while (0)

/* -- names, paths, nesting -- */

static void a_scope_says_what_it_cost(void **state) {
    memlord *lord = test_lord(state);
    memlord_scope_stat s;
    MEMLORD_SCOPE(lord, "load") {
        open_block(lord, 0x1000, 1000);
        open_block(lord, 0x2000, 500);
        close_block(lord, 0x1000);
    }
    s = scope_of(lord, "load");
    assert_string_equal(s.name, "load");
    assert_int_equal(s.id, 1);
    assert_int_equal(s.parent, 0);
    assert_int_equal(s.count, 1);
    assert_int_equal(s.running, 0);
    assert_int_equal(s.bytes.total, 500);
    assert_int_equal(s.bytes.min, 500);
    assert_int_equal(s.bytes.max, 500);
    assert_int_equal(s.blocks.total, 1);
    assert_int_equal(s.peak, 1500);
    assert_non_null(s.site);
    assert_non_null(strstr(s.site->file, "test_scopes.c"));
    assert_string_equal(s.site->function, "a_scope_says_what_it_cost");
}

static void a_scope_begun_by_name_has_no_site(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_scope_begin(lord, "by_name"));
    assert_ok(memlord_scope_end(lord));
    assert_null(scope_of(lord, "by_name").site);
}

static void invocations_add_up_and_keep_their_extremes(void **state) {
    memlord *lord = test_lord(state);
    memlord_scope_stat s;
    int64_t i;
    for (i = 1; i <= 5; i++)
        MEMLORD_SCOPE(lord, "step") { open_block(lord, (uint64_t)i * 64, (uint64_t)i * 100); }
    for (i = 5; i >= 4; i--)
        MEMLORD_SCOPE(lord, "step") { close_block(lord, (uint64_t)i * 64); }
    s = scope_of(lord, "step");
    assert_int_equal(s.count, 7);
    assert_int_equal(s.bytes.total, 1500 - 900);
    assert_int_equal(s.bytes.min, -500);
    assert_int_equal(s.bytes.max, 500);
    assert_int_equal(s.blocks.total, 3);
    assert_int_equal(s.blocks.min, -1);
    assert_int_equal(s.blocks.max, 1);
    assert_int_equal(s.peak, 500);
}

static void scopes_nest_by_path(void **state) {
    memlord *lord = test_lord(state);
    memlord_scope_stat a, b, c;
    MEMLORD_SCOPE(lord, "decode") {
        open_block(lord, 0x1000, 10);
        MEMLORD_SCOPE(lord, "layer") {
            open_block(lord, 0x2000, 200);
            MEMLORD_SCOPE(lord, "attention") { open_block(lord, 0x3000, 3000); }
        }
    }
    a = scope_of(lord, "decode");
    b = scope_of(lord, "decode/layer");
    c = scope_of(lord, "decode/layer/attention");
    assert_int_equal(a.bytes.total, 3210);
    assert_int_equal(b.bytes.total, 3200);
    assert_int_equal(c.bytes.total, 3000);
    assert_int_equal(b.parent, a.id);
    assert_int_equal(c.parent, b.id);
    assert_string_equal(c.name, "attention");
}

/* Readers of reports know nothing but the path. */
static void a_name_with_a_slash_is_the_path_it_reads_as(void **state) {
    memlord *lord = test_lord(state);
    memlord_scope_stat s;
    int i;
    for (i = 0; i < 2; i++) {
        MEMLORD_SCOPE(lord, "decode") {
            MEMLORD_SCOPE(lord, "layer") { open_block(lord, 0x1000 + (uint64_t)i * 64, 10); }
        }
        MEMLORD_SCOPE(lord, "decode/layer") { open_block(lord, 0x9000 + (uint64_t)i * 64, 700); }
    }
    s = scope_of(lord, "decode/layer");
    assert_int_equal(s.count, 4);
    assert_int_equal(s.bytes.total, 1420);
    assert_int_equal(scope_of(lord, "decode").bytes.total, 20);
}

static void a_string_kept_for_something_else_is_no_scope(void **state) {
    memlord *lord = test_lord(state);
    memlord_scope_stat s;
    assert_ok(memlord_tag_begin(lord, "outer/inner"));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 8, NULL));
    assert_ok(memlord_tag_end(lord));
    MEMLORD_SCOPE(lord, "outer") {}
    assert_int_equal(memlord_scope_get(lord, "outer/inner", &s), MEMLORD_E_UNKNOWN);
    MEMLORD_SCOPE(lord, "outer") {
        MEMLORD_SCOPE(lord, "inner") {}
    }
    assert_string_equal(scope_of(lord, "outer/inner").name, "inner");
    assert_int_equal(memlord_scope_get(lord, "inner", &s), MEMLORD_E_UNKNOWN);
}

static void one_name_under_two_parents_is_two_scopes(void **state) {
    memlord *lord = test_lord(state);
    int i;
    for (i = 0; i < 3; i++) {
        assert_ok(memlord_scope_begin(lord, i == 1 ? "b" : "a"));
        assert_ok(memlord_scope_begin(lord, "work"));
        open_block(lord, 0x1000 + (uint64_t)i * 64, 100);
        assert_ok(memlord_scope_end(lord));
        assert_ok(memlord_scope_end(lord));
    }
    assert_int_equal(scope_of(lord, "a/work").bytes.total, 200);
    assert_int_equal(scope_of(lord, "b/work").bytes.total, 100);
    assert_int_equal(memlord_scope_get(lord, "work", &(memlord_scope_stat){0}),
                     MEMLORD_E_UNKNOWN);
}

static void a_scope_may_recur_under_itself(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_scope_begin(lord, "f"));
    assert_ok(memlord_scope_begin(lord, "f"));
    open_block(lord, 0x1000, 7);
    assert_ok(memlord_scope_end(lord));
    assert_ok(memlord_scope_end(lord));
    assert_int_equal(scope_of(lord, "f").bytes.total, 7);
    assert_int_equal(scope_of(lord, "f/f").bytes.total, 7);
    assert_int_equal(scope_of(lord, "f").count, 1);
}

static void one_place_and_one_name_are_one_scope(void **state) {
    memlord *lord = test_lord(state);
    int i;
    for (i = 0; i < 2; i++)
        MEMLORD_SCOPE(lord, "same") { open_block(lord, 0x1000 + (uint64_t)i * 64, 1); }
    assert_ok(memlord_scope_begin(lord, "same"));
    assert_ok(memlord_scope_end(lord));
    assert_int_equal(scope_of(lord, "same").count, 3);
}

static int leave_by(memlord *lord, int how) {
    int i;
    for (i = 0; i < 3; i++) {
        MEMLORD_SCOPE(lord, "left") {
            open_block(lord, 0x1000 + (uint64_t)(how * 3 + i) * 64, 10);
            if (how == 0) break;
            if (how == 1) return 1;
            if (how == 2) goto out;
            if (how == 3) continue;
        }
    }
out:
    return 0;
}

static void a_scope_ends_however_it_is_left(void **state) {
    memlord *lord = test_lord(state);
    int how;
    for (how = 0; how < 4; how++) {
        (void)leave_by(lord, how);
        assert_int_equal(memlord_scope_current(lord), 0);
        assert_int_equal(memlord_scope_end(lord), MEMLORD_E_STATE);
    }
    assert_int_equal(scope_of(lord, "left").count, 3 + 1 + 1 + 3);
    assert_int_equal(scope_of(lord, "left").running, 0);
}

static int scoped_in_a_loop(memlord *lord, int how) {
    int i, rounds = 0;
    for (i = 0; i < 10; i++) {
        MEMLORD_SCOPED(lord, "scoped");
        rounds++;
        if (how == 1 && i == 3) break;
        if (how == 2) continue;
        if (how == 3) return rounds;
        rounds += 100;
    }
    return rounds;
}

static void a_declared_scope_ends_however_its_block_is_left(void **state) {
    memlord *lord = test_lord(state);
    static const int rounds[] = {1010, 304, 10, 1};
    int how, count = 0;
    for (how = 0; how < 4; how++) {
        assert_int_equal(scoped_in_a_loop(lord, how), rounds[how]); /* break, continue are ours */
        assert_int_equal(memlord_scope_current(lord), 0);
        count += rounds[how] % 100;
    }
    assert_int_equal(scope_of(lord, "scoped").count, count);
    assert_int_equal(scope_of(lord, "scoped").running, 0);
    assert_string_equal(scope_of(lord, "scoped").site->function, "scoped_in_a_loop");
}

static void declared_scopes_nest(void **state) {
    memlord *lord = test_lord(state);
    {
        MEMLORD_SCOPED(lord, "outer");
        MEMLORD_SCOPED(lord, "inner");
        open_block(lord, 0x1000, 100);
    }
    assert_int_equal(scope_of(lord, "outer").bytes.total, 100);
    assert_int_equal(scope_of(lord, "outer/inner").bytes.total, 100);
    assert_int_equal(memlord_scope_current(lord), 0);
}

static jmp_buf away;
static void scopes_left_by_longjmp(memlord *lord) {
    MEMLORD_SCOPED(lord, "jumped over");
    open_block(lord, 0x1000, 100);
    MEMLORD_SCOPE(lord, "this too") longjmp(away, 1);
}

static void a_longjmp_is_healed_by_the_scope_around(void **state) {
    memlord *lord = test_lord(state);
    {
        MEMLORD_SCOPED(lord, "around");
        if (!setjmp(away)) scopes_left_by_longjmp(lord);
        assert_int_equal(scope_of(lord, "around/jumped over/this too").running, 1);
    }
    assert_int_equal(memlord_scope_current(lord), 0);
    assert_int_equal(scope_of(lord, "around/jumped over/this too").count, 1);
    assert_int_equal(scope_of(lord, "around/jumped over").bytes.total, 100);
    assert_int_equal(scope_of(lord, "around").count, 1);
    assert_int_equal(scope_of(lord, "around").bytes.total, 100);
}

static void a_declared_scope_that_could_not_begin_does_not_end(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_scope_begin(lord, "outer"));
    {
        MEMLORD_SCOPED(lord, "");
        MEMLORD_SCOPED(NULL, "of no ledger");
    }
    assert_int_equal(scope_of(lord, "outer").running, 1);
    assert_ok(memlord_scope_end(lord));
}

static void a_reused_buffer_is_read_anew(void **state) {
    memlord *lord = test_lord(state);
    char name[32];
    int i, round;
    for (round = 0; round < 3; round++)
        for (i = 0; i < 50; i++) {
            snprintf(name, sizeof name, "layer %d", i);
            assert_ok(memlord_scope_begin(lord, name));
            open_block(lord, 0x1000 + (uint64_t)(round * 50 + i) * 64, (uint64_t)i);
            assert_ok(memlord_scope_end(lord));
        }
    for (i = 0; i < 50; i++) {
        snprintf(name, sizeof name, "layer %d", i);
        assert_int_equal(scope_of(lord, name).count, 3);
        assert_int_equal(scope_of(lord, name).bytes.total, 3 * i);
    }
}

static void a_buffer_that_becomes_a_place_is_another_scope(void **state) {
    memlord *lord = test_lord(state);
    union {
        char name[sizeof(memlord_scope_site)];
        memlord_scope_site place;
    } u;
    memset(&u, 0, sizeof u);
    strcpy(u.name, "text");
    assert_ok(memlord_scope_begin(lord, u.name));
    assert_ok(memlord_scope_end(lord));
    memset(&u, 0, sizeof u);
    u.place.name = "place";
    assert_ok(memlord_scope_enter(lord, &u.place));
    assert_ok(memlord_scope_end(lord));
    assert_int_equal(scope_of(lord, "text").count, 1);
    assert_int_equal(scope_of(lord, "place").count, 1);
}

static void scopes_nest_64_deep_and_no_deeper(void **state) {
    memlord *lord = test_lord(state);
    char path[64 * 4] = "";
    int i;
    for (i = 0; i < 64; i++) {
        assert_ok(memlord_scope_begin(lord, "d"));
        strcat(path, i ? "/d" : "d");
    }
    for (i = 0; i < 3; i++) assert_int_equal(memlord_scope_begin(lord, "d"), MEMLORD_E_STATE);
    MEMLORD_SCOPE(lord, "too deep") { open_block(lord, 0x1000, 5); }
    for (i = 0; i < 64; i++) assert_ok(memlord_scope_end(lord));
    assert_int_equal(memlord_scope_end(lord), MEMLORD_E_STATE);
    assert_int_equal(scope_of(lord, path).bytes.total, 5);
    assert_int_equal(scope_of(lord, "d").bytes.total, 5);
}

static void an_end_without_a_begin_is_an_error(void **state) {
    memlord *lord = test_lord(state);
    assert_int_equal(memlord_scope_end(lord), MEMLORD_E_STATE);
    assert_ok(memlord_scope_begin(lord, "x"));
    assert_ok(memlord_scope_end(lord));
    assert_int_equal(memlord_scope_end(lord), MEMLORD_E_STATE);
    assert_int_equal(scope_of(lord, "x").count, 1);
}

static void names_that_are_none_are_refused(void **state) {
    memlord *lord = test_lord(state);
    memlord_scope_site place;
    memlord_scope_stat s;
    memset(&place, 0, sizeof place);
    assert_int_equal(memlord_scope_begin(lord, NULL), MEMLORD_E_INVALID);
    assert_int_equal(memlord_scope_begin(lord, ""), MEMLORD_E_INVALID);
    assert_int_equal(memlord_scope_enter(lord, NULL), MEMLORD_E_INVALID);
    assert_int_equal(memlord_scope_enter(lord, &place), MEMLORD_E_INVALID);
    place.name = "";
    assert_int_equal(memlord_scope_enter(lord, &place), MEMLORD_E_INVALID);
    assert_int_equal(memlord_scope_get(lord, NULL, &s), MEMLORD_E_INVALID);
    assert_int_equal(memlord_scope_get(lord, "x", NULL), MEMLORD_E_INVALID);
    assert_int_equal(memlord_scope_get(lord, "x", &s), MEMLORD_E_UNKNOWN);
    assert_null(s.name);
    assert_int_equal(memlord_scope_current(lord), 0);
    assert_null(memlord_guard_scope(lord, NULL, NULL).lord);
    assert_null(memlord_guard_scope(lord, "", NULL).lord);
    assert_int_equal(memlord_scope_current(lord), 0);
    place.name = "no file";
    assert_ok(memlord_scope_enter(lord, &place));
    assert_ok(memlord_scope_end(lord));
}

static void a_huge_name_is_cut_where_a_character_begins(void **state) {
    memlord *lord = test_lord(state);
    size_t size = 10 * 1000 * 1000, i;
    char *name = (char *)malloc(size + 1), path[256];
    int round;
    assert_non_null(name);
    name[0] = 'x';
    for (i = 1; i + 1 < size; i += 2) memcpy(name + i, "\xc3\xa9", 2);
    name[i] = 0;
    for (round = 0; round < 3; round++) {
        assert_ok(memlord_scope_begin(lord, name));
        open_block(lord, 0x1000 + (uint64_t)round * 64, 3);
        assert_ok(memlord_scope_end(lord));
    }
    memcpy(path, name, 199);
    path[199] = 0;
    assert_int_equal(scope_of(lord, path).count, 3);
    memset(name, 0x80, 300); /* no character begins there: nothing is left */
    assert_ok(memlord_scope_begin(lord, name));
    assert_ok(memlord_scope_end(lord));
    assert_int_equal(scope_of(lord, "").count, 1);
    free(name);
}

static void names_of_two_hundred_bytes_are_whole(void **state) {
    memlord *lord = test_lord(state);
    char a[202], b[202];
    memset(a, 'n', sizeof a);
    a[200] = 0;
    memcpy(b, a, sizeof b);
    b[199] = 'm';
    assert_ok(memlord_scope_begin(lord, a));
    assert_ok(memlord_scope_end(lord));
    assert_ok(memlord_scope_begin(lord, b));
    assert_ok(memlord_scope_end(lord));
    assert_int_equal(scope_of(lord, a).count, 1);
    assert_int_equal(scope_of(lord, b).count, 1);
}

static void assert_written(memlord *lord, memlord_format format) {
    test_text text;
    memlord_result r;
    memset(&text, 0, sizeof text);
    r = memlord_write(lord, format, test_text_write, &text);
    assert_true(r == MEMLORD_OK || r == MEMLORD_E_UNSUPPORTED);
    if (format == MEMLORD_FORMAT_JSON) assert_true(json_valid(text.data));
    free(text.data);
}

static void hostile_names_are_harmless(void **state) {
    static const char *const names[] = {
        "\" \\ \b\f\n\r\t\x01\x1f\x7f", "\xff\xfe\xc0\x80\xed\xa0\x80\xe2\x82", "\xe2\x80\xa8",
        "</script><img src=x onerror=alert(1)>", "%n%s%n%s%99999999d", "a/b/../c", "/", " ",
        "\xf0\x9f\x90\x98"};
    memlord *lord = test_lord(state);
    size_t i;
    int f;
    for (i = 0; i < sizeof names / sizeof *names; i++) {
        assert_ok(memlord_scope_begin(lord, names[i]));
        assert_ok(memlord_scope_shapes_set(lord, names[i]));
        open_block(lord, 0x1000 + i * 64, 100);
        assert_ok(memlord_scope_end(lord));
    }
    for (f = 0; f < MEMLORD_FORMAT_COUNT; f++) assert_written(lord, (memlord_format)f);
}

static void a_thousand_names_under_one_parent(void **state) {
    memlord *lord = test_lord(state);
    char name[48];
    int i, round;
    assert_ok(memlord_scope_begin(lord, "p"));
    for (round = 0; round < 2; round++)
        for (i = 0; i < 1000; i++) {
            snprintf(name, sizeof name, "n%d", i);
            assert_ok(memlord_scope_begin(lord, name));
            if (!round) open_block(lord, 0x1000 + (uint64_t)i * 64, (uint64_t)i);
            assert_ok(memlord_scope_end(lord));
        }
    assert_ok(memlord_scope_end(lord));
    for (i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "p/n%d", i);
        assert_int_equal(scope_of(lord, name).count, 2);
        assert_int_equal(scope_of(lord, name).bytes.total, i);
    }
    assert_int_equal(scope_of(lord, "p").bytes.total, 499500);
}

static void more_scopes_than_fit_are_counted(void **state) {
    TEST_ONE_THREAD();
    memlord *lord = test_lord(state);
    char name[48], *json;
    uint64_t refused = 0;
    int i;
    for (i = 0; i < 4200; i++) {
        memlord_result r;
        snprintf(name, sizeof name, "scope %d", i);
        r = memlord_scope_begin(lord, name);
        if (r == MEMLORD_OK) {
            assert_ok(memlord_scope_end(lord));
        } else {
            assert_int_equal(r, MEMLORD_E_NOMEM);
            assert_int_equal(memlord_scope_current(lord), 0);
            refused++;
        }
    }
    assert_int_equal(refused, 4200 - 4096);
    assert_ok(memlord_scope_begin(lord, "scope 17"));
    open_block(lord, 0x1000, 1);
    assert_int_equal(memlord_scope_begin(lord, "one more"), MEMLORD_E_NOMEM);
    assert_ok(memlord_scope_end(lord));
    assert_int_equal(scope_of(lord, "scope 17").bytes.total, 1);
    json = report_of(lord, MEMLORD_FORMAT_JSON);
    assert_true(json_valid(json));
    assert_int_equal(json_u64(json, "metadata.dropped.scopes"), refused + 1);
    free(json);
}

/* -- deltas and peaks -- */

static void every_way_to_change_bytes_counts(void **state) {
    memlord *lord = test_lord(state);
    memlord_block two[2] = {{{0, 0}, 0x8000, 10}, {{0, 0}, 0x9000, 20}};
    memlord_realloc_token token;
    two[0].device = two[1].device = cuda(0);
    open_block(lord, 0x1000, 100);
    assert_ok(memlord_scope_begin(lord, "s"));
    assert_ok(memlord_realloc(lord, cuda(0), 0x1000, 0x2000, 300, NULL)); /* +200 */
    assert_ok(memlord_track(lord, cuda(0), 0x3000, 50, NULL));            /* +50 */
    assert_ok(memlord_track(lord, cuda(0), 0x3000, 50, NULL));
    assert_ok(memlord_arena_add(lord, cuda(0), 1000, NULL));              /* +1000 */
    assert_ok(memlord_arena_sub(lord, cuda(0), 400, NULL));               /* -400 */
    assert_ok(memlord_alloc_n(lord, two, 2, NULL));                       /* +30 */
    assert_ok(memlord_free_n(lord, two, 1, NULL));                        /* -10 */
    assert_ok(memlord_realloc_begin(lord, cuda(0), 0x2000, &token));
    assert_ok(memlord_realloc_end(lord, &token, 0x2000, 250, NULL));      /* -50 */
    assert_ok(memlord_move(lord, cuda(0), 0x2000, cpu(), 0x2000, 240, NULL, NULL)); /* -10 */
    assert_ok(memlord_scope_end(lord));
    assert_int_equal(scope_of(lord, "s").bytes.total, 810);
    assert_int_equal(scope_of(lord, "s").blocks.total, 2);
}

static void a_delta_may_be_negative(void **state) {
    memlord *lord = test_lord(state);
    memlord_scope_stat s;
    open_block(lord, 0x1000, 10 * MIB);
    open_block(lord, 0x2000, 1);
    MEMLORD_SCOPE(lord, "unload") {
        close_block(lord, 0x1000);
        open_block(lord, 0x3000, 1 * MIB);
    }
    s = scope_of(lord, "unload");
    assert_int_equal(s.bytes.total, -9 * (int64_t)MIB);
    assert_int_equal(s.blocks.total, 0);
    assert_int_equal(s.peak, 0);
}

/* The peak of nested scopes, by a script of ups and downs. */
static void peaks_of(memlord *lord, uint64_t unit) {
    open_block(lord, 0x10, 7 * unit);
    assert_ok(memlord_scope_begin(lord, "a"));
    bump(lord, 3 * unit); /* a: 3 */
    assert_ok(memlord_scope_begin(lord, "b"));
    open_block(lord, 0x20, 2 * unit);
    bump(lord, 9 * unit); /* b: 11, a: 11 */
    close_block(lord, 0x10); /* -7 */
    assert_ok(memlord_scope_begin(lord, "c"));
    bump(lord, 10 * unit); /* c: 10; b: 5 */
    assert_ok(memlord_scope_end(lord));
    assert_ok(memlord_scope_begin(lord, "d"));
    open_block(lord, 0x30, 6 * unit);
    close_block(lord, 0x30); /* d: 6 */
    assert_ok(memlord_scope_end(lord));
    assert_ok(memlord_scope_end(lord));
    bump(lord, 17 * unit); /* a: 12 */
    assert_ok(memlord_scope_begin(lord, "e"));
    assert_ok(memlord_scope_end(lord));
    assert_ok(memlord_scope_end(lord));
    close_block(lord, 0x20);
    assert_int_equal(scope_of(lord, "a").peak, 12 * unit);
    assert_int_equal(scope_of(lord, "a/b").peak, 11 * unit);
    assert_int_equal(scope_of(lord, "a/b/c").peak, 10 * unit);
    assert_int_equal(scope_of(lord, "a/b/d").peak, 6 * unit);
    assert_int_equal(scope_of(lord, "a/e").peak, 0);
    assert_int_equal(scope_of(lord, "a").bytes.total, -5 * (int64_t)unit);
    assert_int_equal(memlord_peak(lord, cuda(0)), 19 * unit - 0);
}

static void the_peak_inside_is_exact(void **state) { peaks_of(test_lord(state), 1); }
static void the_peak_inside_is_exact_near_a_publication(void **state) {
    peaks_of(test_lord(state), 7000);
}
static void the_peak_inside_is_exact_across_publications(void **state) {
    peaks_of(test_lord(state), 100 * KIB);
}
static void the_peak_inside_is_exact_with_flag_exact(void **state) {
    peaks_of(test_lord(state), 777);
}

/* Against a model: one thread, one device, random ups, downs, begins, ends. */
static void peaks_and_deltas_against_a_model(void **state) {
    memlord *lord = test_lord(state);
    struct {
        int64_t from, high;
        char path[80];
        int id;
    } stack[8];
    static struct {
        int64_t total, min, max;
        uint64_t peak, count;
        char path[80];
    } seen[3 + 9 + 27 + 81 + 1];
    uint64_t seed = test_env("MEMLORD_TEST_SEED", 20261121), i, next = 1, tail = 1;
    uint64_t steps = TEST_SANITIZED ? 20000 : 60000;
    static uint64_t bytes[60001];
    int depth = 0, n = 0, k;
    int64_t level = 0;
    print_message("# seed %llu\n", (unsigned long long)seed);
    memset(seen, 0, sizeof seen);
    for (i = 0; i < steps; i++) {
        uint64_t dice = test_random(&seed) % 16;
        if (dice < 6) {
            uint64_t b = test_random(&seed) % (dice == 0 ? 200 * KIB : 3000);
            bytes[next] = b;
            open_block(lord, next++ * 64, b);
            level += (int64_t)b;
            for (k = 0; k < depth; k++)
                if (level > stack[k].high) stack[k].high = level;
        } else if (dice < 12) {
            if (tail == next) continue;
            close_block(lord, tail * 64);
            level -= (int64_t)bytes[tail++];
        } else if (dice < 14 && depth < 4) {
            char name[2] = "a";
            name[0] = (char)('a' + test_random(&seed) % 3);
            assert_ok(memlord_scope_begin(lord, name));
            assert_true(snprintf(stack[depth].path, sizeof stack[depth].path, "%s%s%s",
                                 depth ? stack[depth - 1].path : "", depth ? "/" : "", name) > 0);
            stack[depth].from = stack[depth].high = level;
            depth++;
        } else if (dice >= 14 && depth) {
            int64_t delta, peak;
            depth--;
            assert_ok(memlord_scope_end(lord));
            delta = level - stack[depth].from;
            peak = stack[depth].high - stack[depth].from;
            for (k = 0; k < n && strcmp(seen[k].path, stack[depth].path); k++) {}
            if (k == n) strcpy(seen[n++].path, stack[depth].path);
            if (!seen[k].count || delta < seen[k].min) seen[k].min = delta;
            if (!seen[k].count || delta > seen[k].max) seen[k].max = delta;
            seen[k].count++;
            seen[k].total += delta;
            if ((uint64_t)peak > seen[k].peak) seen[k].peak = (uint64_t)peak;
        }
    }
    while (depth--) assert_ok(memlord_scope_end(lord));
    for (k = 0; k < n; k++) {
        memlord_scope_stat s = scope_of(lord, seen[k].path);
        if (s.count != seen[k].count) continue; /* was open at the end */
        assert_int_equal(s.bytes.total, seen[k].total);
        assert_int_equal(s.bytes.min, seen[k].min);
        assert_int_equal(s.bytes.max, seen[k].max);
        assert_int_equal(s.peak, seen[k].peak);
    }
    assert_true(n > 20);
}

static void with_many_devices_the_peak_is_the_sum_of_theirs(void **state) {
    memlord *lord = test_lord(state);
    MEMLORD_SCOPE(lord, "s") {
        assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
        assert_ok(memlord_free(lord, cuda(0), 0x1000, NULL));
        assert_ok(memlord_alloc(lord, cuda(1), 0x1000, 50, NULL));
        assert_ok(memlord_alloc(lord, cpu(), 0x1000, 7, NULL));
        assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    }
    assert_int_equal(scope_of(lord, "s").peak, 157);
    assert_int_equal(scope_of(lord, "s").bytes.total, 50);
}

static void a_name_in_a_buffer_is_no_path_that_was_there_before(void **state) {
    memlord *lord = test_lord(state);
    memlord_block_info info;
    char name[8];
    assert_ok(memlord_scope_begin(lord, "a"));
    assert_ok(memlord_scope_begin(lord, "b"));
    assert_ok(memlord_scope_end(lord));
    assert_ok(memlord_scope_end(lord));
    strcpy(name, "a/b");
    assert_ok(memlord_scope_begin(lord, name));
    assert_ok(memlord_scope_end(lord));
    strcpy(name, "b");
    assert_ok(memlord_scope_begin(lord, name));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 8, NULL));
    assert_ok(memlord_block_find(lord, cpu(), 0x1000, &info));
    assert_string_equal(info.scope, "b");
    assert_ok(memlord_scope_end(lord));
}

static void a_peak_reset_inside_leaves_the_peak_inside(void **state) {
    memlord *lord = test_lord(state);
    open_block(lord, 0x1000, 100 * MIB); /* far from its next publication */
    assert_ok(memlord_scope_begin(lord, "s"));
    bump(lord, 100);
    memlord_peak_reset(lord, all());
    bump(lord, 10);
    assert_ok(memlord_scope_end(lord));
    assert_int_equal(scope_of(lord, "s").peak, 100);
    assert_int_equal(memlord_peak(lord, cuda(0)), 100 * MIB + 10);
}

static void a_scope_leaves_the_peak_of_the_device_exact(void **state) {
    memlord *lord = test_lord(state);
    int i;
    for (i = 0; i < 200; i++) {
        bump(lord, 1000 + (uint64_t)i);
        assert_ok(memlord_scope_begin(lord, "s"));
        bump(lord, 10);
        assert_ok(memlord_scope_end(lord));
        assert_int_equal(memlord_peak(lord, cuda(0)), 1000 + i);
    }
    assert_int_equal(stats_of(lord, cuda(0)).peak_error, 0);
}

static void deltas_and_peaks_are_right_when_lifetime_totals_wrap(void **state) {
    memlord *lord = test_lord(state);
    int i, n = TEST_SANITIZED ? 70000 : 140000; /* 2^48 each: twice 2^63 */
    open_block(lord, 0x40, TEST_MAX_BYTES / 2);
    assert_ok(memlord_scope_begin(lord, "outer"));
    for (i = 0; i < n; i++) {
        assert_ok(memlord_scope_begin(lord, "up"));
        open_block(lord, 0x1000, TEST_MAX_BYTES);
        assert_ok(memlord_scope_end(lord));
        assert_ok(memlord_scope_begin(lord, "down"));
        close_block(lord, 0x1000);
        assert_ok(memlord_scope_end(lord));
    }
    assert_ok(memlord_scope_end(lord));
    assert_true(scope_of(lord, "outer/up").bytes.min == (int64_t)TEST_MAX_BYTES);
    assert_true(scope_of(lord, "outer/up").bytes.max == (int64_t)TEST_MAX_BYTES);
    assert_true(scope_of(lord, "outer/down").bytes.min == -(int64_t)TEST_MAX_BYTES);
    assert_true(scope_of(lord, "outer/down").bytes.max == -(int64_t)TEST_MAX_BYTES);
    assert_int_equal(scope_of(lord, "outer/up").peak, TEST_MAX_BYTES);
    assert_int_equal(scope_of(lord, "outer/down").peak, 0);
    assert_int_equal(scope_of(lord, "outer").bytes.total, 0);
    assert_int_equal(scope_of(lord, "outer").peak, TEST_MAX_BYTES);
}

/* -- blocks remember -- */

static void blocks_remember_their_scope(void **state) {
    memlord *lord = test_lord(state);
    memlord_meta meta;
    memset(&meta, 0, sizeof meta);
    meta.name = "w";
    open_block(lord, 0x1000, 1);
    assert_ok(memlord_scope_begin(lord, "a"));
    open_block(lord, 0x2000, 1);
    assert_ok(memlord_track(lord, cuda(0), 0x2100, 1, NULL));
    assert_ok(memlord_scope_begin(lord, "b"));
    open_block(lord, 0x3000, 1);
    assert_ok(memlord_scope_end(lord));
    open_block(lord, 0x4000, 1);
    assert_ok(memlord_block_describe(lord, cuda(0), 0x4000, &meta));
    assert_ok(memlord_scope_end(lord));
    open_block(lord, 0x5000, 1);
    assert_ok(memlord_block_describe(lord, cuda(0), 0x3000, &meta));
    assert_null(scope_name(lord, cuda(0), 0x1000));
    assert_born_in(lord, cuda(0), 0x2000, "a");
    assert_born_in(lord, cuda(0), 0x2100, "a");
    assert_born_in(lord, cuda(0), 0x3000, "a/b");
    assert_born_in(lord, cuda(0), 0x4000, "a");
    assert_null(scope_name(lord, cuda(0), 0x5000));
}

static void blocks_with_tag_and_site_remember_their_scope(void **state) {
    memlord *lord = test_lord(state);
    memlord_block_info info;
    int i;
    assert_ok(memlord_tag_begin(lord, "kv"));
    for (i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "s%d", i);
        assert_ok(memlord_scope_begin(lord, name));
        assert_ok(memlord_alloc(lord, cuda(0), 0x1000 + (uint64_t)i * 64, 10, MEMLORD_SITE()));
        assert_ok(memlord_scope_end(lord));
        assert_ok(memlord_block_find(lord, cuda(0), 0x1000 + (uint64_t)i * 64, &info));
        assert_string_equal(info.scope, name);
        assert_string_equal(info.tag, "kv");
        assert_non_null(info.site);
        assert_string_equal(info.site->function,
                            "blocks_with_tag_and_site_remember_their_scope");
    }
    assert_ok(memlord_tag_end(lord));
}

static void realloc_and_move_keep_the_scope_of_birth(void **state) {
    memlord *lord = test_lord(state);
    memlord_realloc_token token;
    assert_ok(memlord_scope_begin(lord, "birth"));
    open_block(lord, 0x1000, 10);
    assert_ok(memlord_scope_end(lord));
    assert_ok(memlord_scope_begin(lord, "later"));
    assert_ok(memlord_realloc(lord, cuda(0), 0x1000, 0x2000, 20, NULL));
    assert_born_in(lord, cuda(0), 0x2000, "birth");
    assert_ok(memlord_move(lord, cuda(0), 0x2000, cpu(), 0x3000, 20, NULL, NULL));
    assert_born_in(lord, cpu(), 0x3000, "birth");
    assert_ok(memlord_realloc_begin(lord, cpu(), 0x3000, &token));
    assert_ok(memlord_realloc_end(lord, &token, 0, 0, NULL));
    assert_born_in(lord, cpu(), 0x3000, "birth");
    assert_ok(memlord_scope_end(lord));
    assert_int_equal(scope_of(lord, "later").bytes.total, 10);
}

static void marks_and_leaks_inside_scopes(void **state) {
    memlord *lord = test_lord(state);
    memlord_block_info info;
    uint64_t one, two;
    open_block(lord, 0x1000, 1);
    assert_ok(memlord_scope_begin(lord, "s"));
    open_block(lord, 0x2000, 1);
    one = memlord_mark(lord);
    open_block(lord, 0x3000, 1);
    two = memlord_mark(lord);
    open_block(lord, 0x4000, 1);
    assert_ok(memlord_scope_end(lord));
    open_block(lord, 0x5000, 1);
    assert_int_equal(memlord_leaks(lord, 0, NULL, NULL), 5);
    assert_int_equal(memlord_leaks(lord, one, NULL, NULL), 3);
    assert_int_equal(memlord_leaks(lord, two, NULL, NULL), 2);
    assert_ok(memlord_block_find(lord, cuda(0), 0x2000, &info));
    assert_int_equal(info.born, one - 1);
    assert_string_equal(info.scope, "s");
    assert_ok(memlord_block_find(lord, cuda(0), 0x3000, &info));
    assert_int_equal(info.born, one);
    assert_string_equal(info.scope, "s");
    assert_ok(memlord_block_find(lord, cuda(0), 0x4000, &info));
    assert_int_equal(info.born, two);
    assert_ok(memlord_block_find(lord, cuda(0), 0x5000, &info));
    assert_int_equal(info.born, two);
    assert_null(info.scope);
}

static void a_mark_in_every_round_of_many_scopes(void **state) {
    memlord *lord = test_lord(state);
    memlord_block_info info;
    uint64_t i, mark = 0;
    char name[16];
    for (i = 0; i < 3000; i++) {
        mark = memlord_mark(lord);
        snprintf(name, sizeof name, "s%d", (int)(i % 7));
        assert_ok(memlord_scope_begin(lord, name));
        open_block(lord, 0x1000 + i * 64, 1);
        assert_ok(memlord_scope_end(lord));
    }
    for (i = 0; i < 3000; i++) {
        snprintf(name, sizeof name, "s%d", (int)(i % 7));
        assert_ok(memlord_block_find(lord, cuda(0), 0x1000 + i * 64, &info));
        assert_string_equal(info.scope, name);
        assert_int_equal(info.born, mark - 2999 + i);
    }
}

/* -- shapes, time, current, running -- */

static void shapes_are_shown_with_their_invocation(void **state) {
    memlord *lord = test_lord(state);
    char shapes[64] = "q[1,32,128] k[1,8,128]", *json;
    assert_int_equal(memlord_scope_shapes_set(lord, "x"), MEMLORD_E_STATE);
    assert_ok(memlord_scope_begin(lord, "matmul"));
    assert_ok(memlord_scope_shapes_set(lord, shapes));
    memset(shapes, 'x', sizeof shapes);
    assert_ok(memlord_scope_end(lord));
    assert_ok(memlord_scope_begin(lord, "matmul"));
    assert_ok(memlord_scope_shapes_set(lord, "wrong"));
    assert_ok(memlord_scope_shapes_set(lord, NULL));
    assert_ok(memlord_scope_end(lord));
    json = report_of(lord, MEMLORD_FORMAT_JSON);
    assert_true(json_is(json, "scopes[0].invocations[0][8]", "q[1,32,128] k[1,8,128]"));
    assert_null(strstr(json, "wrong"));
    free(json);
}

static void the_time_inside_is_the_clocks(void **state) {
    test_case *t = (test_case *)*state;
    memlord_scope_stat s;
    int i;
    for (i = 1; i <= 3; i++) {
        assert_ok(memlord_scope_begin(t->lord, "s"));
        t->now += (uint64_t)i * 1000;
        assert_ok(memlord_scope_end(t->lord));
        t->now += 77;
    }
    s = scope_of(t->lord, "s");
    assert_int_equal(s.ns.total, 6000);
    assert_int_equal(s.ns.min, 1000);
    assert_int_equal(s.ns.max, 3000);
}

static void device_time_is_added_by_id(void **state) {
    memlord *lord = test_lord(state);
    uint64_t id;
    assert_ok(memlord_scope_begin(lord, "kernel"));
    id = memlord_scope_current(lord);
    assert_true(id != 0);
    assert_ok(memlord_scope_end(lord));
    assert_ok(memlord_scope_device_time(lord, id, 100));
    assert_ok(memlord_scope_device_time(lord, id, 23));
    assert_int_equal(scope_of(lord, "kernel").device_ns, 123);
    assert_int_equal(memlord_scope_device_time(lord, 0, 1), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_scope_device_time(lord, id + 1, 1), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_scope_device_time(lord, UINT64_MAX, 1), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_scope_device_time(lord, ((uint64_t)1 << 32) + id, 1),
                     MEMLORD_E_UNKNOWN);
}

static void current_and_running_follow(void **state) {
    memlord *lord = test_lord(state);
    uint64_t a, b;
    assert_int_equal(memlord_scope_current(lord), 0);
    assert_ok(memlord_scope_begin(lord, "a"));
    a = memlord_scope_current(lord);
    assert_int_equal(scope_of(lord, "a").id, a);
    assert_int_equal(scope_of(lord, "a").running, 1);
    assert_int_equal(scope_of(lord, "a").count, 0);
    assert_int_equal(scope_of(lord, "a").bytes.min, 0);
    assert_int_equal(scope_of(lord, "a").bytes.max, 0);
    assert_ok(memlord_scope_begin(lord, "b"));
    b = memlord_scope_current(lord);
    assert_true(a != b);
    assert_ok(memlord_scope_end(lord));
    assert_int_equal(memlord_scope_current(lord), a);
    assert_ok(memlord_scope_end(lord));
    assert_int_equal(memlord_scope_current(lord), 0);
    assert_int_equal(scope_of(lord, "a").running, 0);
}

static void scopes_of_two_ledgers_do_not_mix(void **state) {
    memlord *lord = test_lord(state), *other;
    assert_ok(memlord_create(NULL, &other));
    assert_ok(memlord_scope_begin(lord, "a"));
    assert_int_equal(memlord_scope_current(other), 0);
    assert_ok(memlord_scope_begin(other, "b"));
    open_block(lord, 0x1000, 10);
    open_block(other, 0x1000, 1);
    assert_ok(memlord_scope_end(lord));
    assert_int_equal(memlord_scope_end(lord), MEMLORD_E_STATE);
    assert_ok(memlord_scope_end(other));
    assert_int_equal(scope_of(lord, "a").bytes.total, 10);
    assert_int_equal(scope_of(other, "b").bytes.total, 1);
    memlord_destroy(other);
}

/* -- reset -- */

static void a_reset_starts_scopes_over(void **state) {
    memlord *lord = test_lord(state);
    memlord_scope_stat s;
    uint64_t id;
    MEMLORD_SCOPE(lord, "s") { open_block(lord, 0x1000, 100); }
    id = scope_of(lord, "s").id;
    assert_ok(memlord_scope_device_time(lord, id, 5));
    memlord_reset(lord);
    s = scope_of(lord, "s");
    assert_int_equal(s.id, id);
    assert_int_equal(s.count, 0);
    assert_int_equal(s.bytes.total, 0);
    assert_int_equal(s.peak, 0);
    assert_int_equal(s.ns.total, 0);
    assert_int_equal(s.device_ns, 0);
    assert_born_in(lord, cuda(0), 0x1000, "s");
    assert_ok(memlord_scope_begin(lord, "s"));
    open_block(lord, 0x2000, 7);
    assert_ok(memlord_scope_end(lord));
    assert_int_equal(scope_of(lord, "s").count, 1);
    assert_int_equal(scope_of(lord, "s").bytes.total, 7);
}

static void a_scope_survives_a_reset_inside(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_scope_begin(lord, "s"));
    open_block(lord, 0x1000, 100);
    bump(lord, 50);
    memlord_reset(lord);
    assert_int_equal(scope_of(lord, "s").running, 1);
    open_block(lord, 0x2000, 7);
    assert_ok(memlord_scope_end(lord));
    assert_int_equal(scope_of(lord, "s").count, 1);
    assert_int_equal(scope_of(lord, "s").running, 0);
    assert_int_equal(scope_of(lord, "s").bytes.total, 107);
    assert_int_equal(scope_of(lord, "s").peak, 150);
}

/* -- threads and tokens -- */

typedef struct helper {
    memlord *lord;
    memlord_scope_token token;
    uint64_t key;
    int64_t bytes;        /* what it leaves behind */
    int how;
    memlord_result adopted, returned;
    test_gate *gate;
    int stop;
} helper;

enum { RETURN, EXIT_INSIDE, WAIT, NESTED, NO_TOKEN };

static void *help(void *user) {
    helper *h = (helper *)user;
    memlord *lord = h->lord;
    h->adopted = h->how == NO_TOKEN ? MEMLORD_OK : memlord_scope_adopt(lord, &h->token);
    if (h->adopted != MEMLORD_OK) return NULL;
    if (h->how == NESTED) assert_ok(memlord_scope_begin(lord, "inner"));
    if (h->bytes > 0)
        assert_ok(memlord_alloc(lord, cuda(0), h->key, (uint64_t)h->bytes, NULL));
    if (h->bytes < 0) assert_ok(memlord_free(lord, cuda(0), h->key, NULL));
    if (h->how == NESTED) assert_ok(memlord_scope_end(lord));
    if (h->how == WAIT) test_gate_pass(h->gate);
    if (h->how == EXIT_INSIDE || h->how == NO_TOKEN) return NULL;
    h->returned = memlord_scope_return(lord, &h->token);
    return NULL;
}

static pthread_t start(helper *h, memlord *lord, uint64_t key, int64_t bytes, int how) {
    pthread_t thread;
    test_gate *gate = h->gate;
    memlord_scope_token token = h->token;
    memset(h, 0, sizeof *h);
    h->token = token;
    h->gate = gate;
    h->lord = lord;
    h->key = key;
    h->bytes = bytes;
    h->how = how;
    assert_int_equal(pthread_create(&thread, NULL, help, h), 0);
    return thread;
}
static void run_helper(helper *h, memlord *lord, uint64_t key, int64_t bytes, int how) {
    pthread_join(start(h, lord, key, bytes, how), NULL);
}

static void only_what_its_own_thread_did_counts(void **state) {
    memlord *lord = test_lord(state);
    helper h;
    memset(&h, 0, sizeof h);
    assert_ok(memlord_scope_begin(lord, "s"));
    open_block(lord, 0x1000, 10);
    run_helper(&h, lord, 0x2000, 1000, NO_TOKEN);
    assert_ok(memlord_scope_end(lord));
    assert_int_equal(scope_of(lord, "s").bytes.total, 10);
    assert_null(scope_name(lord, cuda(0), 0x2000));
}

typedef struct crowd {
    memlord *lord;
    memlord_scope_token token;
    test_gate first, others;
    uint64_t few, many;
} crowd;
static uint64_t adoptions(crowd *c, int n) {
    uint64_t least = 0;
    int i, run;
    for (run = 0; run < 5; run++) {
        const uint64_t from = test_cpu_ns();
        for (i = 0; i < n; i++) {
            assert_ok(memlord_scope_adopt(c->lord, &c->token));
            assert_ok(memlord_scope_return(c->lord, &c->token));
        }
        test_cpu_least(&least, from);
    }
    return least;
}
static void *adopt_first(void *user) {
    crowd *c = (crowd *)user;
    c->few = adoptions(c, 1000);
    test_gate_pass(&c->first);
    c->many = adoptions(c, 1000);
    return NULL;
}
static void *adopt_too(void *user) {
    crowd *c = (crowd *)user;
    (void)adoptions(c, 1);
    test_gate_pass(&c->others);
    return NULL;
}
static void an_adoption_costs_no_more_for_more_threads(void **state) {
    enum { THREADS = 200 };
    static crowd c = {NULL, {{0, 0}}, TEST_GATE, TEST_GATE, 0, 0};
    pthread_t thread[THREADS + 1];
    int i;
    TEST_POSIX();
    c.lord = test_lord(state);
    assert_ok(memlord_scope_begin(c.lord, "phase"));
    assert_ok(memlord_scope_export(c.lord, &c.token));
    assert_int_equal(pthread_create(&thread[0], NULL, adopt_first, &c), 0);
    assert_true(test_gate_came(&c.first, 1));
    for (i = 1; i <= THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, adopt_too, &c), 0);
    assert_true(test_gate_came(&c.others, THREADS));
    test_gate_open(&c.first);
    pthread_join(thread[0], NULL);
    test_gate_open(&c.others);
    for (i = 1; i <= THREADS; i++) pthread_join(thread[i], NULL);
    assert_in_range(c.many, 1, 5 * c.few);
}
static void a_token_hands_a_scope_to_other_threads(void **state) {
    memlord *lord = test_lord(state);
    helper h[8];
    pthread_t thread[8];
    memlord_scope_token token;
    memlord_scope_stat s;
    uint64_t i;
    memset(h, 0, sizeof h);
    open_block(lord, 0x9000, 500);
    assert_ok(memlord_scope_begin(lord, "s"));
    assert_ok(memlord_scope_export(lord, &token));
    open_block(lord, 0x10000, 1);
    for (i = 0; i < 8; i++) {
        h[i].token = token;
        thread[i] = start(&h[i], lord, i == 7 ? 0x9000 : 0x1000 + i * 64,
                          i == 7 ? -500 : (int64_t)(1000 * (i + 1)), RETURN);
    }
    for (i = 0; i < 8; i++) pthread_join(thread[i], NULL);
    for (i = 0; i < 8; i++) {
        assert_ok(h[i].adopted);
        assert_ok(h[i].returned);
    }
    assert_int_equal(scope_of(lord, "s").count, 0);
    assert_int_equal(scope_of(lord, "s").running, 1);
    assert_ok(memlord_scope_end(lord));
    s = scope_of(lord, "s");
    assert_int_equal(s.count, 1);
    assert_int_equal(s.running, 0);
    assert_int_equal(s.bytes.total, 28000 - 500 + 1);
    assert_int_equal(s.bytes.min, 28000 - 500 + 1);
    assert_int_equal(s.bytes.max, 28000 - 500 + 1);
    assert_int_equal(s.blocks.total, 7);
    assert_in_range(s.peak, 28000 - 500 + 1, 28000 + 1);
    assert_born_in(lord, cuda(0), 0x1000, "s");
}

static void what_others_did_is_of_the_same_invocation(void **state) {
    memlord *lord = test_lord(state);
    helper h;
    memset(&h, 0, sizeof h);
    assert_ok(memlord_scope_begin(lord, "a"));
    assert_ok(memlord_scope_begin(lord, "b"));
    assert_ok(memlord_scope_export(lord, &h.token));
    run_helper(&h, lord, 0x1000, 1000, RETURN);
    open_block(lord, 0x2000, 10);
    assert_ok(memlord_scope_end(lord));
    assert_ok(memlord_scope_end(lord));
    assert_int_equal(scope_of(lord, "a/b").count, 1);
    assert_int_equal(scope_of(lord, "a/b").bytes.total, 1010);
    assert_int_equal(scope_of(lord, "a/b").bytes.min, 1010);
    assert_int_equal(scope_of(lord, "a/b").blocks.total, 2);
    assert_int_equal(scope_of(lord, "a/b").peak, 1010);
    assert_int_equal(scope_of(lord, "a").bytes.total, 10);
    assert_int_equal(scope_of(lord, "a").blocks.total, 1);
    assert_int_equal(scope_of(lord, "a").peak, 10);
}

/* Four workers with so many bytes each, of which some blocks were there before. */
enum { WORKERS = 4 };
typedef struct worker {
    memlord *lord;
    const memlord_scope_token *token;
    uint64_t key, bytes;
    unsigned blocks;
    test_gate *gate;
    pthread_t thread;
} worker;
static void *work(void *user) {
    worker *w = (worker *)user;
    unsigned i;
    assert_ok(memlord_scope_adopt(w->lord, w->token));
    for (i = 0; i < w->blocks; i++) open_block(w->lord, w->key + i * 64, w->bytes / w->blocks);
    test_gate_pass(w->gate);
    for (i = 0; i < w->blocks; i++) close_block(w->lord, w->key + i * 64);
    assert_ok(memlord_scope_return(w->lord, w->token));
    return NULL;
}
static memlord_scope_stat work_together(memlord *lord, uint64_t before, uint64_t bytes,
                                        unsigned blocks) {
    static const test_gate closed = TEST_GATE;
    test_gate gate = closed;
    memlord_scope_token token;
    worker w[WORKERS];
    unsigned i;
    assert_ok(memlord_scope_begin(lord, "phase"));
    bump(lord, before);
    assert_ok(memlord_scope_export(lord, &token));
    for (i = 0; i < WORKERS; i++) {
        w[i].lord = lord;
        w[i].token = &token;
        w[i].key = (uint64_t)(i + 1) << 32;
        w[i].bytes = bytes;
        w[i].blocks = blocks;
        w[i].gate = &gate;
        assert_int_equal(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
    }
    assert_true(test_gate_came(&gate, WORKERS));
    test_gate_open(&gate);
    for (i = 0; i < WORKERS; i++) pthread_join(w[i].thread, NULL);
    assert_ok(memlord_scope_end(lord));
    return scope_of(lord, "phase");
}
static void the_peak_of_a_shared_scope_is_that_of_all_threads(void **state) {
    memlord *lord = test_lord(state);
    const uint64_t error = (WORKERS + 1) * 65536;
    memlord_scope_stat s = work_together(lord, 10, 10 * MIB, 1);
    assert_int_equal(s.count, 1);
    assert_int_equal(s.bytes.total, 0);
    assert_in_range(s.peak, 40 * MIB - error, 40 * MIB);
    s = work_together(lord, 10, 10 * MIB, 1000); /* again: from the levels of before */
    assert_int_equal(s.count, 2);
    assert_in_range(s.peak, 40 * MIB - error, 40 * MIB);
}
static void the_peak_of_a_shared_scope_is_exact_with_flag_exact(void **state) {
    memlord_scope_stat s = work_together(test_lord(state), 10, 10 * MIB, 1);
    assert_int_equal(s.count, 1);
    assert_int_equal(s.peak, 40 * MIB);
    s = work_together(test_lord(state), 10, 10 * MIB, 1024);
    assert_int_equal(s.peak, 40 * MIB);
    s = work_together(test_lord(state), 50 * MIB, 10 * MIB, 1);
    assert_int_equal(s.peak, 50 * MIB);
}

/* A helper whose last bytes are few, so that its thread does not publish them. */
typedef struct late_helper {
    memlord *lord;
    memlord_scope_token token;
    test_gate first, last;
} late_helper;
static void *help_late(void *user) {
    late_helper *h = (late_helper *)user;
    assert_ok(memlord_scope_adopt(h->lord, &h->token));
    open_block(h->lord, 0x10000, MIB);
    test_gate_pass(&h->first);
    open_block(h->lord, 0x20000, 15000);
    test_gate_pass(&h->last);
    assert_ok(memlord_scope_return(h->lord, &h->token));
    return NULL;
}
/* The owner's 20,000 bytes are gone when the helper's 15,000 come: at no time were both there. */
static void bytes_of_a_helper_that_left_are_not_added_to_an_older_peak(void **state) {
    static const test_gate closed = TEST_GATE;
    memlord *lord = test_lord(state);
    const uint64_t highest = MIB + 100000 + 20000;
    pthread_t thread;
    late_helper h;
    memset(&h, 0, sizeof h);
    h.lord = lord;
    h.first = h.last = closed;
    open_block(lord, 0x1000, 10 * MIB);
    assert_ok(memlord_scope_begin(lord, "s"));
    assert_ok(memlord_scope_export(lord, &h.token));
    assert_int_equal(pthread_create(&thread, NULL, help_late, &h), 0);
    assert_true(test_gate_came(&h.first, 1));
    open_block(lord, 0x2000, 100000);
    open_block(lord, 0x3000, 20000);
    close_block(lord, 0x3000);
    test_gate_open(&h.first);
    assert_true(test_gate_came(&h.last, 1));
    test_gate_open(&h.last);
    pthread_join(thread, NULL);
    assert_ok(memlord_scope_end(lord));
    assert_in_range(scope_of(lord, "s").peak, highest - 2 * 65536, highest);
}

static void an_exported_scope_that_nobody_adopts_has_an_exact_peak(void **state) {
    memlord *lord = test_lord(state);
    memlord_scope_token token;
    assert_ok(memlord_scope_begin(lord, "s"));
    bump(lord, 100);
    assert_ok(memlord_scope_export(lord, &token));
    bump(lord, 12345);
    open_block(lord, 0x1000, 5);
    assert_ok(memlord_scope_end(lord));
    assert_int_equal(scope_of(lord, "s").peak, 12345);
    assert_int_equal(scope_of(lord, "s").bytes.total, 5);
}

static void *only_free(void *user) {
    helper *h = (helper *)user;
    uint64_t i;
    assert_ok(memlord_scope_begin(h->lord, "a"));
    assert_ok(memlord_scope_begin(h->lord, "b"));
    for (i = 0; i < 4; i++) close_block(h->lord, 0x1000 + i * 64);
    assert_ok(memlord_free(h->lord, cpu(), 0x1000, NULL));
    assert_ok(memlord_scope_end(h->lord));
    bump(h->lord, 50);
    assert_ok(memlord_scope_end(h->lord));
    return NULL;
}
static void a_thread_that_only_frees_has_a_delta_too(void **state) {
    memlord *lord = test_lord(state);
    pthread_t thread;
    helper h;
    uint64_t i;
    memset(&h, 0, sizeof h);
    h.lord = lord;
    for (i = 0; i < 4; i++) open_block(lord, 0x1000 + i * 64, 100);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 7, NULL));
    assert_int_equal(pthread_create(&thread, NULL, only_free, &h), 0);
    pthread_join(thread, NULL);
    assert_int_equal(scope_of(lord, "a/b").bytes.total, -407);
    assert_int_equal(scope_of(lord, "a/b").blocks.total, -5);
    assert_int_equal(scope_of(lord, "a/b").peak, 0);
    assert_int_equal(scope_of(lord, "a").bytes.total, -407);
    assert_int_equal(scope_of(lord, "a").blocks.total, -5);
    assert_int_equal(scope_of(lord, "a").peak, 0);
    assert_int_equal(memlord_allocated(lord, all()), 0);
}

static void a_helper_may_be_in_the_scope_after_its_owner(void **state) {
    test_case *t = (test_case *)*state;
    test_gate gate = TEST_GATE;
    helper h, late;
    pthread_t thread;
    memset(&h, 0, sizeof h);
    assert_ok(memlord_scope_begin(t->lord, "s"));
    assert_ok(memlord_scope_export(t->lord, &h.token));
    late = h;
    h.gate = &gate;
    t->now += 2;
    thread = start(&h, t->lord, 0x1000, 1000, WAIT);
    assert_true(test_gate_came(&gate, 1));
    assert_int_equal(scope_of(t->lord, "s").running, 1);
    t->now += 3;
    open_block(t->lord, 0x2000, 10);
    assert_ok(memlord_scope_end(t->lord));
    assert_int_equal(scope_of(t->lord, "s").running, 1);
    assert_int_equal(scope_of(t->lord, "s").count, 0);
    run_helper(&late, t->lord, 0x3000, 200, RETURN);
    assert_int_equal(late.adopted, MEMLORD_E_UNKNOWN);
    t->now += 7;
    test_gate_open(&gate);
    pthread_join(thread, NULL);
    assert_ok(h.returned);
    assert_int_equal(scope_of(t->lord, "s").running, 0);
    assert_int_equal(scope_of(t->lord, "s").count, 1);
    assert_int_equal(scope_of(t->lord, "s").bytes.total, 1010);
    assert_int_equal(scope_of(t->lord, "s").ns.total, 2 + 3 + 7);
}

/* Lets a helper into a scope "s" of this thread, and ends it. */
static void share_a_scope(memlord *lord) {
    helper h;
    memset(&h, 0, sizeof h);
    assert_ok(memlord_scope_begin(lord, "s"));
    assert_ok(memlord_scope_export(lord, &h.token));
    run_helper(&h, lord, 0x1000, 1000, RETURN);
    assert_ok(memlord_scope_end(lord));
}
/* The ledger numbers its threads in the order of their first calls; 1 is no thread's. */
static void an_invocation_has_the_number_of_its_thread(void **state) {
    memlord *lord = test_lord(state);
    char *json;
    assert_ok(memlord_events_start(lord, 64));
    share_a_scope(lord);
    json = report_of(lord, MEMLORD_FORMAT_JSON);
    assert_int_equal(json_u64(json, "scopes[0].invocations[0][2]"), 2); /* which left it last */
    assert_int_equal(json_u64(json, "events.list[0][2]"), 2);
    assert_int_equal(json_u64(json, "events.list[1][2]"), 3);
    assert_int_equal(json_u64(json, "threads[0].id"), 3);
    free(json);
}
/* Does a scope begin on this track of a timeline? */
static int slice_is_on(const char *trace, int track) {
    char start[64];
    snprintf(start, sizeof start, "{\"ph\":\"B\",\"pid\":%ld,\"tid\":%d,", (long)getpid(), track);
    return strstr(trace, start) != NULL;
}
static void a_timeline_has_the_scopes_of_each_thread_on_its_track(void **state) {
    memlord *lord = test_lord(state);
    char *trace;
    assert_ok(memlord_events_start(lord, 64));
    share_a_scope(lord);
    trace = report_of(lord, MEMLORD_FORMAT_TRACE);
    assert_true(slice_is_on(trace, 2));
    assert_true(slice_is_on(trace, 3));
    free(trace);
}

static void *hand_on(void *user) {
    helper *h = (helper *)user, next = *h;
    assert_ok(memlord_scope_adopt(h->lord, &h->token));
    assert_ok(memlord_scope_export(h->lord, &next.token));
    assert_memory_equal(&next.token, &h->token, sizeof next.token);
    run_helper(&next, h->lord, 0x1000, 1000, RETURN);
    assert_ok(next.returned);
    assert_ok(memlord_scope_return(h->lord, &h->token));
    run_helper(&next, h->lord, 0x2000, 1000, RETURN); /* its owner is in it still */
    assert_ok(next.adopted);
    return NULL;
}
static void a_helper_may_hand_the_scope_on(void **state) {
    memlord *lord = test_lord(state);
    helper h;
    pthread_t thread;
    memset(&h, 0, sizeof h);
    h.lord = lord;
    assert_ok(memlord_scope_begin(lord, "s"));
    assert_ok(memlord_scope_export(lord, &h.token));
    assert_int_equal(pthread_create(&thread, NULL, hand_on, &h), 0);
    pthread_join(thread, NULL);
    assert_ok(memlord_scope_end(lord));
    assert_int_equal(scope_of(lord, "s").count, 1);
    assert_int_equal(scope_of(lord, "s").bytes.total, 2000);
    assert_int_equal(scope_of(lord, "s").running, 0);
}

static void a_token_of_a_scope_that_is_over_is_unknown(void **state) {
    memlord *lord = test_lord(state);
    memlord_scope_token token, again, none;
    helper h;
    int i;
    memset(&none, 0, sizeof none);
    assert_int_equal(memlord_scope_export(lord, &token), MEMLORD_E_STATE);
    assert_int_equal(memlord_scope_adopt(lord, &none), MEMLORD_E_UNKNOWN);
    assert_ok(memlord_scope_begin(lord, "s"));
    assert_ok(memlord_scope_export(lord, &token));
    assert_ok(memlord_scope_export(lord, &again));
    assert_memory_equal(&token, &again, sizeof token);
    assert_ok(memlord_scope_end(lord));
    assert_int_equal(memlord_scope_adopt(lord, &token), MEMLORD_E_UNKNOWN);
    for (i = 0; i < 4; i++) { /* the same scope, exported again, and another */
        assert_ok(memlord_scope_begin(lord, i & 1 ? "other" : "s"));
        assert_ok(memlord_scope_export(lord, &again));
        memset(&h, 0, sizeof h);
        h.token = token;
        run_helper(&h, lord, 0x1000, 1000, RETURN);
        assert_int_equal(h.adopted, MEMLORD_E_UNKNOWN);
        assert_ok(memlord_scope_end(lord));
    }
    assert_int_equal(scope_of(lord, "other").bytes.total, 0);
    for (i = 0; i < 64; i++) {
        none.word[0] = (uint64_t)1 << i;
        none.word[1] = token.word[1];
        assert_int_equal(memlord_scope_adopt(lord, &none), MEMLORD_E_UNKNOWN);
    }
    none.word[0] = none.word[1] = UINT64_MAX;
    assert_int_equal(memlord_scope_adopt(lord, &none), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_scope_adopt(lord, NULL), MEMLORD_E_INVALID);
    assert_int_equal(memlord_scope_return(lord, NULL), MEMLORD_E_INVALID);
    assert_int_equal(memlord_scope_export(lord, NULL), MEMLORD_E_INVALID);
}

static void a_token_of_another_ledger_is_unknown(void **state) {
    memlord *lord = test_lord(state), *other;
    memlord_scope_token mine, foreign;
    assert_ok(memlord_create(NULL, &other));
    assert_ok(memlord_scope_begin(lord, "s"));
    assert_ok(memlord_scope_begin(other, "s"));
    assert_ok(memlord_scope_export(lord, &mine));
    assert_ok(memlord_scope_export(other, &foreign));
    assert_int_equal(memlord_scope_adopt(lord, &foreign), MEMLORD_E_UNKNOWN);
    assert_int_equal(memlord_scope_adopt(lord, &mine), MEMLORD_E_STATE);
    memlord_destroy(other);
}

static void ones_own_scope_cannot_be_adopted(void **state) {
    memlord *lord = test_lord(state);
    memlord_scope_token token;
    assert_ok(memlord_scope_begin(lord, "s"));
    assert_ok(memlord_scope_export(lord, &token));
    assert_int_equal(memlord_scope_adopt(lord, &token), MEMLORD_E_STATE);
    assert_ok(memlord_scope_begin(lord, "t"));
    assert_int_equal(memlord_scope_adopt(lord, &token), MEMLORD_E_STATE);
    assert_int_equal(memlord_scope_return(lord, &token), MEMLORD_E_STATE);
    assert_ok(memlord_scope_end(lord));
    assert_int_equal(memlord_scope_return(lord, &token), MEMLORD_E_STATE);
    assert_ok(memlord_scope_end(lord));
    assert_int_equal(scope_of(lord, "s").count, 1);
}

static void *misuse(void *user) {
    helper *h = (helper *)user;
    memlord_scope_token other;
    assert_ok(memlord_scope_adopt(h->lord, &h->token));
    assert_int_equal(memlord_scope_adopt(h->lord, &h->token), MEMLORD_E_STATE);
    assert_int_equal(memlord_scope_end(h->lord), MEMLORD_E_STATE);
    assert_ok(memlord_scope_begin(h->lord, "inner"));
    assert_ok(memlord_scope_export(h->lord, &other));
    assert_int_equal(memlord_scope_return(h->lord, &h->token), MEMLORD_E_STATE);
    assert_int_equal(memlord_scope_return(h->lord, &other), MEMLORD_E_STATE);
    assert_ok(memlord_scope_end(h->lord));
    other = h->token;
    other.word[0] ^= 1; /* of another scope */
    assert_int_equal(memlord_scope_return(h->lord, &other), MEMLORD_E_STATE);
    assert_ok(memlord_scope_begin(h->lord, "inner"));
    assert_int_equal(memlord_scope_adopt(h->lord, &h->token), MEMLORD_E_STATE);
    assert_ok(memlord_scope_end(h->lord));
    assert_ok(memlord_scope_return(h->lord, &h->token));
    assert_int_equal(memlord_scope_return(h->lord, &h->token), MEMLORD_E_STATE);
    assert_int_equal(memlord_scope_current(h->lord), 0);
    assert_ok(memlord_scope_adopt(h->lord, &h->token)); /* the scope is not over: once more */
    assert_ok(memlord_scope_return(h->lord, &h->token));
    return NULL;
}

static void tokens_used_the_wrong_way_are_refused(void **state) {
    memlord *lord = test_lord(state);
    pthread_t thread;
    helper h;
    memset(&h, 0, sizeof h);
    h.lord = lord;
    assert_ok(memlord_scope_begin(lord, "s"));
    assert_ok(memlord_scope_export(lord, &h.token));
    assert_int_equal(pthread_create(&thread, NULL, misuse, &h), 0);
    pthread_join(thread, NULL);
    assert_ok(memlord_scope_end(lord));
    assert_int_equal(scope_of(lord, "s").count, 1);
    assert_int_equal(scope_of(lord, "s/inner").count, 2);
}

static void *two_at_once(void *user) {
    helper *h = (helper *)user; /* two of them */
    memlord *lord = h->lord;
    assert_ok(memlord_scope_adopt(lord, &h[0].token));
    assert_ok(memlord_scope_adopt(lord, &h[1].token));
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 100, NULL));
    assert_int_equal(memlord_scope_return(lord, &h[0].token), MEMLORD_E_STATE);
    assert_ok(memlord_scope_return(lord, &h[1].token));
    assert_ok(memlord_scope_return(lord, &h[0].token));
    return NULL;
}

static void two_adopted_scopes_are_returned_in_order(void **state) {
    memlord *lord = test_lord(state);
    pthread_t thread;
    helper h[2];
    memset(h, 0, sizeof h);
    h[0].lord = lord;
    assert_ok(memlord_scope_begin(lord, "a"));
    assert_ok(memlord_scope_export(lord, &h[0].token));
    assert_ok(memlord_scope_begin(lord, "b"));
    assert_ok(memlord_scope_export(lord, &h[1].token));
    assert_int_equal(pthread_create(&thread, NULL, two_at_once, h), 0);
    pthread_join(thread, NULL);
    assert_ok(memlord_scope_end(lord));
    assert_ok(memlord_scope_end(lord));
    assert_int_equal(scope_of(lord, "a/b").bytes.total, 100);
}

static void a_nested_scope_of_a_helper_is_under_the_adopted_one(void **state) {
    memlord *lord = test_lord(state);
    helper h;
    memset(&h, 0, sizeof h);
    assert_ok(memlord_scope_begin(lord, "s"));
    assert_ok(memlord_scope_export(lord, &h.token));
    run_helper(&h, lord, 0x1000, 1000, NESTED);
    assert_ok(memlord_scope_end(lord));
    assert_int_equal(scope_of(lord, "s").bytes.total, 1000);
    assert_int_equal(scope_of(lord, "s/inner").bytes.total, 1000);
    assert_born_in(lord, cuda(0), 0x1000, "s/inner");
}

static void a_thread_that_exits_ends_its_scopes(void **state) {
    memlord *lord = test_lord(state);
    helper h;
    memset(&h, 0, sizeof h);
    assert_ok(memlord_scope_begin(lord, "s"));
    assert_ok(memlord_scope_export(lord, &h.token));
    run_helper(&h, lord, 0x1000, 1000, EXIT_INSIDE);
    assert_ok(memlord_scope_end(lord));
    assert_int_equal(scope_of(lord, "s").count, 1);
    assert_int_equal(scope_of(lord, "s").bytes.total, 1000);
}

static void *exit_in_three(void *user) {
    memlord *lord = (memlord *)user;
    assert_ok(memlord_scope_begin(lord, "a"));
    assert_ok(memlord_scope_begin(lord, "b"));
    assert_ok(memlord_alloc(lord, cuda(0), 0x1000, 1000, NULL));
    assert_ok(memlord_scope_begin(lord, "c"));
    return NULL;
}
static void *a_fresh_thread(void *user) {
    memlord *lord = (memlord *)user;
    assert_int_equal(memlord_scope_current(lord), 0);
    assert_int_equal(memlord_scope_end(lord), MEMLORD_E_STATE);
    assert_ok(memlord_alloc(lord, cuda(0), 0x2000, 1000, NULL));
    return NULL;
}

static void the_next_thread_does_not_inherit_scopes(void **state) {
    memlord *lord = test_lord(state);
    pthread_t thread;
    int round;
    for (round = 0; round < 2; round++) {
        assert_int_equal(pthread_create(&thread, NULL, exit_in_three, lord), 0);
        pthread_join(thread, NULL);
        assert_int_equal(scope_of(lord, "a").count, round + 1);
        assert_int_equal(scope_of(lord, "a/b").bytes.total, (round + 1) * 1000 - round * 0);
        assert_int_equal(scope_of(lord, "a/b/c").count, round + 1);
        assert_int_equal(scope_of(lord, "a").running, 0);
        assert_int_equal(pthread_create(&thread, NULL, a_fresh_thread, lord), 0);
        pthread_join(thread, NULL);
        assert_null(scope_name(lord, cuda(0), 0x2000));
        close_block(lord, 0x1000);
        close_block(lord, 0x2000);
    }
}

typedef struct owner {
    memlord *lord;
    memlord_scope_token token;
    helper *h;
} owner;
static void *own_and_exit(void *user) {
    owner *o = (owner *)user;
    assert_ok(memlord_scope_begin(o->lord, "owned"));
    assert_ok(memlord_scope_export(o->lord, &o->token));
    assert_ok(memlord_alloc(o->lord, cuda(0), 0x100, 3, NULL));
    test_gate_pass(o->h->gate);
    return NULL;
}

static void an_owner_that_exits_leaves_its_helpers_in_the_scope(void **state) {
    memlord *lord = test_lord(state);
    test_gate began = TEST_GATE;
    owner o;
    helper h;
    pthread_t thread;
    memset(&o, 0, sizeof o);
    memset(&h, 0, sizeof h);
    o.lord = lord;
    o.h = &h;
    h.gate = &began;
    assert_int_equal(pthread_create(&thread, NULL, own_and_exit, &o), 0);
    assert_true(test_gate_came(&began, 1));
    assert_ok(memlord_scope_adopt(lord, &o.token));
    test_gate_open(&began);
    pthread_join(thread, NULL);
    open_block(lord, 0x2000, 40);
    assert_int_equal(scope_of(lord, "owned").count, 0);
    assert_int_equal(scope_of(lord, "owned").running, 1);
    assert_ok(memlord_scope_return(lord, &o.token));
    assert_int_equal(scope_of(lord, "owned").count, 1);
    assert_int_equal(scope_of(lord, "owned").bytes.total, 43);
}

/* Many owners, many helpers, at once. */
typedef struct storm {
    memlord *lord;
    unsigned number, rounds;
    memlord_scope_token *board; /* of all owners */
    pthread_mutex_t *lock;
    uint64_t begun, adopted, next;
} storm;

enum { STORM = 6 };
static void *storm_run(void *user) {
    storm *s = (storm *)user;
    uint64_t seed = s->next, next = s->next;
    unsigned i;
    for (i = 0; i < s->rounds; i++) {
        memlord_scope_token token;
        assert_ok(memlord_scope_begin(s->lord, "storm"));
        s->begun++;
        assert_ok(memlord_scope_export(s->lord, &token));
        pthread_mutex_lock(s->lock);
        s->board[s->number] = token;
        token = s->board[test_random(&seed) % STORM];
        pthread_mutex_unlock(s->lock);
        assert_ok(memlord_alloc(s->lord, cuda((int)(i % 3)), next += 64, 100, NULL));
        if (memlord_scope_adopt(s->lord, &token) == MEMLORD_OK) {
            s->adopted++;
            assert_ok(memlord_alloc(s->lord, cuda(0), next += 64, 1000, NULL));
            if (test_random(&seed) % 64 == 0) return NULL; /* exits inside two */
            assert_ok(memlord_scope_return(s->lord, &token));
        }
        assert_ok(memlord_scope_end(s->lord));
    }
    return NULL;
}

static void owners_and_helpers_at_once(void **state) {
    memlord *lord = test_lord(state);
    memlord_scope_token board[STORM];
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_t thread[STORM];
    storm s[STORM];
    unsigned i, round;
    uint64_t begun = 0, adopted = 0;
    memlord_scope_stat stat;
    memset(board, 0, sizeof board);
    for (round = 0; round < 5; round++) {
        for (i = 0; i < STORM; i++) {
            memset(&s[i], 0, sizeof s[i]);
            s[i].lord = lord;
            s[i].number = i;
            s[i].next = (uint64_t)(round * STORM + i + 1) << 32;
            s[i].rounds = TEST_SANITIZED ? 200 : 1000;
            s[i].board = board;
            s[i].lock = &lock;
            assert_int_equal(pthread_create(&thread[i], NULL, storm_run, &s[i]), 0);
        }
        for (i = 0; i < 20; i++) {
            memlord_scope_stat at;
            char *json = report_of(lord, MEMLORD_FORMAT_JSON);
            assert_true(json_valid(json));
            free(json);
            (void)memlord_scope_get(lord, "storm", &at);
        }
        for (i = 0; i < STORM; i++) {
            pthread_join(thread[i], NULL);
            begun += s[i].begun;
            adopted += s[i].adopted;
        }
        stat = scope_of(lord, "storm");
        assert_int_equal(stat.running, 0);
        assert_int_equal(stat.count, begun);
        assert_int_equal(memlord_allocated(lord, all()), begun * 100 + adopted * 1000);
        /* what a helper does is in the scope it adopted and in its own around that */
        assert_int_equal(stat.bytes.total, begun * 100 + adopted * 2000);
        assert_int_equal(stat.blocks.total, begun + adopted * 2);
    }
}

/* -- fork -- */

static int in_child(pid_t child) {
    int status = 0;
    assert_true(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000;
}

static void a_child_goes_on_in_the_scope_it_was_born_in(void **state) {
    memlord *lord = test_lord(state);
    test_gate gate = TEST_GATE;
    memlord_scope_stat s;
    helper h;
    pthread_t thread;
    pid_t child;
    memset(&h, 0, sizeof h);
    assert_ok(memlord_scope_begin(lord, "outer"));
    assert_ok(memlord_scope_begin(lord, "s"));
    open_block(lord, 0x1000, 100);
    assert_ok(memlord_scope_export(lord, &h.token));
    h.gate = &gate;
    thread = start(&h, lord, 0x2000, 1000, WAIT);
    assert_true(test_gate_came(&gate, 1));
    child = fork();
    if (!child) { /* the helper is not here: what it did is lost */
        int bad = 0;
        open_block(lord, 0x3000, 7);
        bad |= memlord_scope_end(lord) != MEMLORD_OK;
        bad |= 2 * (memlord_scope_get(lord, "outer/s", &s) != MEMLORD_OK || s.count != 1 ||
                    s.running != 0);
        bad |= 4 * (s.bytes.total != 107);
        bad |= 8 * (memlord_scope_end(lord) != MEMLORD_OK);
        bad |= 16 * (memlord_scope_end(lord) != MEMLORD_E_STATE);
        _exit(bad);
    }
    assert_int_equal(in_child(child), 0);
    test_gate_open(&gate);
    pthread_join(thread, NULL);
    assert_ok(memlord_scope_end(lord));
    assert_ok(memlord_scope_end(lord));
    assert_int_equal(scope_of(lord, "outer/s").bytes.total, 1100);
}

static void *begin_and_wait(void *user) {
    helper *h = (helper *)user;
    assert_ok(memlord_scope_begin(h->lord, "elsewhere"));
    test_gate_pass(h->gate);
    assert_ok(memlord_scope_end(h->lord));
    return NULL;
}

static void scopes_of_threads_that_a_fork_left_behind_do_not_run(void **state) {
    memlord *lord = test_lord(state);
    test_gate gate = TEST_GATE;
    helper h;
    pthread_t thread;
    pid_t child;
    TEST_POSIX();
    memset(&h, 0, sizeof h);
    h.lord = lord;
    h.gate = &gate;
    assert_int_equal(pthread_create(&thread, NULL, begin_and_wait, &h), 0);
    assert_true(test_gate_came(&gate, 1));
    child = fork();
    if (!child) {
        memlord_scope_stat s;
        int bad = memlord_scope_get(lord, "elsewhere", &s) != MEMLORD_OK;
        _exit(bad | 2 * (s.running != 0) | 4 * (s.count != 0));
    }
    assert_int_equal(in_child(child), 0);
    assert_int_equal(scope_of(lord, "elsewhere").running, 1);
    test_gate_open(&gate);
    pthread_join(thread, NULL);
    assert_int_equal(scope_of(lord, "elsewhere").count, 1);
}

/* Every other scope is handed out. */
static void *begin_and_end(void *user) {
    helper *h = (helper *)user;
    memlord_scope_token token;
    int i;
    for (i = 0; !__atomic_load_n(&h->stop, __ATOMIC_RELAXED); i++) {
        if (memlord_scope_begin(h->lord, "busy") != MEMLORD_OK) break;
        if (i & 1) (void)memlord_scope_export(h->lord, &token);
        (void)memlord_scope_end(h->lord);
    }
    return NULL;
}

static int hands_apart(memlord *lord) {
    memlord_scope_token a, b;
    int bad = memlord_scope_begin(lord, "a") || memlord_scope_export(lord, &a) ||
              memlord_scope_begin(lord, "b") || memlord_scope_export(lord, &b);
    bad |= a.word[0] == b.word[0] || a.word[1] == b.word[1];
    return bad | (memlord_scope_end(lord) || memlord_scope_end(lord));
}

static void a_fork_may_find_a_thread_in_the_middle_of_a_begin_or_end(void **state) {
    memlord *lord = test_lord(state);
    helper h;
    pthread_t thread;
    int i;
    TEST_POSIX();
    memset(&h, 0, sizeof h);
    h.lord = lord;
    assert_int_equal(pthread_create(&thread, NULL, begin_and_end, &h), 0);
    for (i = 0; i < 300; i++) {
        pid_t child = fork();
        if (!child) {
            memlord_scope_stat s;
            (void)memlord_scope_get(lord, "busy", &s);
            _exit((s.running != 0) | 2 * hands_apart(lord));
        }
        assert_int_equal(in_child(child), 0);
    }
    __atomic_store_n(&h.stop, 1, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    assert_int_equal(scope_of(lord, "busy").running, 0);
}

static void *export_and_wait(void *user) {
    helper *h = (helper *)user;
    assert_ok(memlord_scope_begin(h->lord, "shared"));
    assert_ok(memlord_scope_export(h->lord, &h->token));
    test_gate_pass(h->gate);
    assert_ok(memlord_scope_end(h->lord));
    return NULL;
}
static void *export_inside_and_wait(void *user) {
    helper *h = (helper *)user;
    assert_ok(memlord_scope_begin(h->lord, "outer"));
    assert_ok(memlord_scope_begin(h->lord, "inner"));
    assert_ok(memlord_scope_export(h->lord, &h->token));
    test_gate_pass(h->gate);
    assert_ok(memlord_scope_end(h->lord));
    assert_ok(memlord_scope_end(h->lord));
    return NULL;
}
/* The token has the number 1, as nothing before it took one. */
static void a_child_has_no_token_of_a_thread_that_is_gone(void **state) {
    memlord *lord = test_lord(state);
    test_gate gate = TEST_GATE;
    helper h;
    pthread_t thread;
    pid_t child;
    TEST_POSIX();
    memset(&h, 0, sizeof h);
    h.lord = lord;
    h.gate = &gate;
    assert_int_equal(pthread_create(&thread, NULL, export_inside_and_wait, &h), 0);
    assert_true(test_gate_came(&gate, 1));
    child = fork();
    if (!child) {
        memlord_scope_stat s;
        int bad = memlord_scope_adopt(lord, &h.token) != MEMLORD_E_UNKNOWN;
        (void)memlord_scope_get(lord, "outer/inner", &s);
        bad |= 2 * (s.running != 0);
        (void)memlord_scope_get(lord, "outer", &s);
        _exit(bad | 4 * (s.running != 0));
    }
    assert_int_equal(in_child(child), 0);
    test_gate_open(&gate);
    pthread_join(thread, NULL);
}
static void a_declared_scope_ends_an_adopted_one_inside(void **state) {
    memlord *lord = test_lord(state);
    test_gate gate = TEST_GATE;
    helper h;
    pthread_t thread;
    memset(&h, 0, sizeof h);
    h.lord = lord;
    h.gate = &gate;
    assert_int_equal(pthread_create(&thread, NULL, export_and_wait, &h), 0);
    assert_true(test_gate_came(&gate, 1));
    {
        MEMLORD_SCOPED(lord, "around");
        assert_ok(memlord_scope_adopt(lord, &h.token));
    }
    assert_int_equal(memlord_scope_current(lord), 0);
    assert_int_equal(memlord_scope_return(lord, &h.token), MEMLORD_E_STATE);
    assert_int_equal(scope_of(lord, "around").running, 0);
    test_gate_open(&gate);
    pthread_join(thread, NULL);
}

static void a_child_goes_on_in_what_it_adopted(void **state) {
    test_case *t = (test_case *)*state;
    test_gate gate = TEST_GATE;
    helper h;
    pthread_t thread;
    pid_t child;
    memset(&h, 0, sizeof h);
    h.lord = t->lord;
    h.gate = &gate;
    t->now += 100;
    assert_int_equal(pthread_create(&thread, NULL, export_and_wait, &h), 0);
    assert_true(test_gate_came(&gate, 1));
    assert_ok(memlord_scope_adopt(t->lord, &h.token));
    t->now += 7;
    child = fork();
    if (!child) {
        memlord_scope_stat s;
        int bad = memlord_scope_get(t->lord, "shared", &s) || s.running != 1;
        memlord_context fibre = {{0, 0}};
        (void)memlord_context_swap(t->lord, &fibre);
        bad |= 32 * (memlord_scope_adopt(t->lord, &h.token) != MEMLORD_E_UNKNOWN); /* no owner */
        (void)memlord_context_swap(t->lord, &fibre);
        bad |= 2 * (memlord_scope_return(t->lord, &h.token) != MEMLORD_OK);
        (void)memlord_scope_get(t->lord, "shared", &s);
        _exit(bad | 4 * (s.running != 0) | 8 * (s.count != 1) | 16 * (s.ns.total != 7));
    }
    assert_int_equal(in_child(child), 0);
    test_gate_open(&gate);
    pthread_join(thread, NULL);
    assert_int_equal(scope_of(t->lord, "shared").running, 1);
    assert_ok(memlord_scope_return(t->lord, &h.token));
    assert_int_equal(scope_of(t->lord, "shared").running, 0);
    assert_int_equal(scope_of(t->lord, "shared").ns.total, 7);
}

/* -- failing allocators -- */

typedef struct frail {
    test_heap heap;
    memlord *lord;
    memlord_scope_token token;
    int from;
    int begun; /* by the helper */
} frail;

static int went(const frail *f, memlord_result r) {
    if (r == MEMLORD_OK) return 1;
    assert_int_equal(r, MEMLORD_E_NOMEM);
    assert_true(f->heap.failed > 0);
    return 0;
}

static void *frail_help(void *user) {
    frail *f = (frail *)user;
    if (!went(f, memlord_scope_adopt(f->lord, &f->token))) {
        assert_int_equal(memlord_scope_return(f->lord, &f->token), MEMLORD_E_STATE);
        return NULL;
    }
    (void)memlord_alloc(f->lord, cuda(0), 0x777000, 64, NULL);
    (void)memlord_free(f->lord, cuda(0), 0x777000, NULL);
    assert_ok(memlord_scope_return(f->lord, &f->token));
    return NULL;
}

static void frail_script(frail *f) {
    uint64_t i, live = 0;
    for (i = 0; i < 40; i++) {
        char name[32];
        int depth = 0, k;
        pthread_t thread;
        uint64_t current = memlord_scope_current(f->lord);
        for (k = 0; k < 3; k++) {
            snprintf(name, sizeof name, "scope %d %d", (int)(i % 9), k);
            if (went(f, memlord_scope_begin(f->lord, name)))
                depth++;
            else
                assert_int_equal(memlord_scope_current(f->lord), current);
            current = memlord_scope_current(f->lord);
        }
        if (depth) (void)went(f, memlord_scope_shapes_set(f->lord, name));
        if (went(f, memlord_alloc(f->lord, cuda((int)(i % 2)), 0x1000 + i * 64, i, NULL)))
            live += i;
        if (depth && i % 8 == 0 && went(f, memlord_scope_export(f->lord, &f->token))) {
            if (pthread_create(&thread, NULL, frail_help, f) == 0) pthread_join(thread, NULL);
        }
        while (depth--) assert_ok(memlord_scope_end(f->lord));
        assert_int_equal(memlord_scope_end(f->lord), MEMLORD_E_STATE);
        if (i % 10 == 0) (void)memlord_mark(f->lord);
    }
    assert_int_equal(memlord_allocated(f->lord, all()), live);
}

/* Whatever a scope lacks memory for: its frame, its path, its record or the thread's totals. */
static void every_scope_that_lacks_memory_is_counted(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t n, lost = 0;
    char name[32];
    for (n = 1; n < 200; n++) {
        char *json;
        t->heap.fail_at = t->heap.calls + 1;
        t->heap.fail_from = 1;
        snprintf(name, sizeof name, "scope %d", (int)n);
        if (memlord_scope_begin(t->lord, name) == MEMLORD_E_NOMEM)
            lost++;
        else if (n % 8)
            assert_ok(memlord_scope_end(t->lord));
        t->heap.fail_at = 0;
        json = report_of(t->lord, MEMLORD_FORMAT_JSON);
        assert_int_equal(json_u64(json, "metadata.dropped.scopes"), lost);
        free(json);
    }
    assert_true(lost > 20 && lost < n);
}

/* Without memory for a cell a thread's bytes are counted for the thread in no record. What the scope
   before rose is not taken for a rise of the next, which has the same record. */
static void open_in(memlord *lord, const char *name, uint64_t key, uint64_t bytes) {
    assert_ok(memlord_scope_begin(lord, name));
    if (bytes) assert_ok(memlord_alloc(lord, cuda(1), key, bytes, NULL));
    assert_ok(memlord_scope_end(lord));
}
static void *open_there(void *user) { /* what is not of a thread alone is there from here on */
    memlord *lord = (memlord *)user;
    open_in(lord, "a", 0x2000, 1);
    open_in(lord, "b", 0x3000, 1);
    assert_ok(memlord_free(lord, cuda(1), 0x2000, NULL));
    assert_ok(memlord_free(lord, cuda(1), 0x3000, NULL));
    return NULL;
}
static void a_scope_without_memory_for_a_cell_has_its_own_peak(void **state) {
    test_case *t = (test_case *)*state;
    const memlord_band band = band_of(0, 101, MEMLORD_METRIC_ALLOCATED, 1u << 30, 0);
    pthread_t thread;
    int i = 2;
    open_in(t->lord, "a", 0, 0); /* now it does not take the record of the thread */
    assert_int_equal(pthread_create(&thread, NULL, open_there, t->lord), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    open_in(t->lord, "a", 0, 0);
    open_in(t->lord, "b", 0, 0);
    t->heap.fail_at = t->heap.calls + 1;
    t->heap.fail_from = 1;
    while (memlord_strategy_set(t->lord, cuda(i), &band, 1) == MEMLORD_OK) i++; /* takes the rest */
    open_in(t->lord, "a", 0x2000, 1000);
    open_in(t->lord, "b", 0x3000, 10);
    t->heap.fail_at = 0;
    assert_int_equal(scope_of(t->lord, "a").peak, 1000);
    assert_int_equal(scope_of(t->lord, "b").peak, 10);
    assert_int_equal(scope_of(t->lord, "b").bytes.total, 1 + 10);
}

static void an_allocator_that_fails_at_any_call(void **state) {
    uint64_t n;
    int from, done;
    (void)state;
    for (from = 0; from < 2; from++)
        for (n = 1, done = 0; !done; n += TEST_SANITIZED ? 3 : 1) {
            frail f;
            memlord_desc desc;
            memset(&f, 0, sizeof f);
            f.from = from;
            desc = test_desc(&f.heap, 0);
            assert_ok(memlord_create(&desc, &f.lord));
            f.heap.fail_at = f.heap.calls + n;
            f.heap.fail_from = from;
            frail_script(&f);
            done = f.heap.failed == 0;
            f.heap.fail_at = 0;
            assert_ok(memlord_scope_begin(f.lord, "after"));
            assert_ok(memlord_alloc(f.lord, cuda(0), 0x9000000, 5, NULL));
            assert_ok(memlord_scope_end(f.lord));
            assert_int_equal(scope_of(f.lord, "after").bytes.total, 5);
            assert_born_in(f.lord, cuda(0), 0x9000000, "after");
            memlord_destroy(f.lord);
            assert_int_equal(f.heap.blocks, 0);
            assert_int_equal(f.heap.bad_frees, 0);
        }
}

/* -- the rest -- */

static void the_ring_of_invocations_keeps_the_last(void **state) {
    memlord *lord = test_lord(state);
    char *json;
    uint64_t i;
    for (i = 0; i < 1000; i++) {
        assert_ok(memlord_scope_begin(lord, "s"));
        open_block(lord, 0x1000 + i * 64, i);
        assert_ok(memlord_scope_end(lord));
    }
    json = report_of(lord, MEMLORD_FORMAT_JSON);
    assert_true(json_valid(json));
    assert_int_equal(json_u64(json, "scopes[0].count"), 1000);
    assert_int_equal(json_u64(json, "scopes[0].invocations[63][3]"), 999);
    assert_int_equal(json_u64(json, "scopes[0].invocations[0][3]"), 1000 - 64);
    assert_int_equal(json_u64(json, "scopes[0].invocations[63][5]"), 999 * 998 / 2);
    assert_int_equal(json_u64(json, "scopes[0].invocations[63][6]"), 999 * 1000 / 2);
    assert_int_equal(json_u64(json, "scopes[0].invocations[64][0]"), UINT64_MAX);
    free(json);
}

static void invocations_that_are_forgotten_are_counted(void **state) {
    memlord *lord = test_lord(state);
    char *json;
    int i;
    for (i = 0; i < 100; i++) MEMLORD_SCOPE(lord, "s") {}
    json = report_of(lord, MEMLORD_FORMAT_JSON);
    assert_int_equal(json_u64(json, "metadata.dropped.scope_invocations"), 100 - 64);
    free(json);
}

static void a_null_ledger_has_no_scopes(void **state) {
    memlord_scope_token token;
    memlord_scope_stat s;
    int ran = 0;
    (void)state;
    MEMLORD_SCOPE(NULL, "s") { ran++; }
    assert_int_equal(ran, 1);
    assert_ok(memlord_scope_begin(NULL, NULL));
    assert_ok(memlord_scope_enter(NULL, NULL));
    assert_ok(memlord_scope_end(NULL));
    assert_ok(memlord_scope_shapes_set(NULL, "x"));
    memset(&token, 0xee, sizeof token);
    assert_ok(memlord_scope_export(NULL, &token));
    assert_int_equal(token.word[0], 0);
    assert_ok(memlord_scope_adopt(NULL, &token));
    assert_ok(memlord_scope_return(NULL, &token));
    assert_ok(memlord_scope_get(NULL, "s", &s));
    assert_null(s.path);
    assert_int_equal(memlord_scope_current(NULL), 0);
    assert_ok(memlord_scope_device_time(NULL, 1, 1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_scope_says_what_it_cost),
        TEST(a_scope_begun_by_name_has_no_site),
        TEST(invocations_add_up_and_keep_their_extremes),
        TEST(scopes_nest_by_path),
        TEST(a_name_with_a_slash_is_the_path_it_reads_as),
        TEST(a_string_kept_for_something_else_is_no_scope),
        TEST(one_name_under_two_parents_is_two_scopes),
        TEST(a_scope_may_recur_under_itself),
        TEST(one_place_and_one_name_are_one_scope),
        TEST(a_scope_ends_however_it_is_left),
        TEST(a_declared_scope_ends_however_its_block_is_left),
        TEST(declared_scopes_nest),
        TEST(a_longjmp_is_healed_by_the_scope_around),
        TEST(a_declared_scope_ends_an_adopted_one_inside),
        TEST(a_declared_scope_that_could_not_begin_does_not_end),
        TEST(a_reused_buffer_is_read_anew),
        TEST(a_buffer_that_becomes_a_place_is_another_scope),
        TEST(scopes_nest_64_deep_and_no_deeper),
        TEST(an_end_without_a_begin_is_an_error),
        TEST(names_that_are_none_are_refused),
        TEST(a_huge_name_is_cut_where_a_character_begins),
        TEST(names_of_two_hundred_bytes_are_whole),
        TEST(hostile_names_are_harmless),
        TEST(a_thousand_names_under_one_parent),
        TEST(more_scopes_than_fit_are_counted),
        TEST(only_what_its_own_thread_did_counts),
        TEST(every_way_to_change_bytes_counts),
        TEST(a_delta_may_be_negative),
        TEST(the_peak_inside_is_exact),
        TEST(the_peak_inside_is_exact_near_a_publication),
        TEST(the_peak_inside_is_exact_across_publications),
        TEST_EXACT(the_peak_inside_is_exact_with_flag_exact),
        TEST(peaks_and_deltas_against_a_model),
        TEST_EXACT(peaks_and_deltas_against_a_model),
        TEST(with_many_devices_the_peak_is_the_sum_of_theirs),
        TEST(a_name_in_a_buffer_is_no_path_that_was_there_before),
        TEST(a_peak_reset_inside_leaves_the_peak_inside),
        TEST(a_scope_leaves_the_peak_of_the_device_exact),
        TEST(deltas_and_peaks_are_right_when_lifetime_totals_wrap),
        TEST(blocks_remember_their_scope),
        TEST_SITES(blocks_with_tag_and_site_remember_their_scope),
        TEST(realloc_and_move_keep_the_scope_of_birth),
        TEST(marks_and_leaks_inside_scopes),
        TEST(a_mark_in_every_round_of_many_scopes),
        TEST(shapes_are_shown_with_their_invocation),
        TEST_FAKES(the_time_inside_is_the_clocks),
        TEST(device_time_is_added_by_id),
        TEST(current_and_running_follow),
        TEST(scopes_of_two_ledgers_do_not_mix),
        TEST(a_reset_starts_scopes_over),
        TEST(a_scope_survives_a_reset_inside),
        TEST(a_token_hands_a_scope_to_other_threads),
        TEST(an_adoption_costs_no_more_for_more_threads),
        TEST(what_others_did_is_of_the_same_invocation),
        TEST(the_peak_of_a_shared_scope_is_that_of_all_threads),
        TEST_EXACT(the_peak_of_a_shared_scope_is_exact_with_flag_exact),
        TEST(bytes_of_a_helper_that_left_are_not_added_to_an_older_peak),
        TEST(an_exported_scope_that_nobody_adopts_has_an_exact_peak),
        TEST(a_thread_that_only_frees_has_a_delta_too),
        TEST_FAKES(a_helper_may_be_in_the_scope_after_its_owner),
        TEST(an_invocation_has_the_number_of_its_thread),
        TEST(a_timeline_has_the_scopes_of_each_thread_on_its_track),
        TEST(a_helper_may_hand_the_scope_on),
        TEST(a_token_of_a_scope_that_is_over_is_unknown),
        TEST(a_token_of_another_ledger_is_unknown),
        TEST(ones_own_scope_cannot_be_adopted),
        TEST(tokens_used_the_wrong_way_are_refused),
        TEST(two_adopted_scopes_are_returned_in_order),
        TEST(a_nested_scope_of_a_helper_is_under_the_adopted_one),
        TEST(a_thread_that_exits_ends_its_scopes),
        TEST(the_next_thread_does_not_inherit_scopes),
        TEST(an_owner_that_exits_leaves_its_helpers_in_the_scope),
        TEST(owners_and_helpers_at_once),
        TEST(a_child_goes_on_in_the_scope_it_was_born_in),
        TEST(scopes_of_threads_that_a_fork_left_behind_do_not_run),
        TEST(a_child_has_no_token_of_a_thread_that_is_gone),
        TEST(a_fork_may_find_a_thread_in_the_middle_of_a_begin_or_end),
        TEST_FAKES(a_child_goes_on_in_what_it_adopted),
        TEST(every_scope_that_lacks_memory_is_counted),
        TEST(a_scope_without_memory_for_a_cell_has_its_own_peak),
        cmocka_unit_test(an_allocator_that_fails_at_any_call),
        TEST(the_ring_of_invocations_keeps_the_last),
        TEST(invocations_that_are_forgotten_are_counted),
        cmocka_unit_test(a_null_ledger_has_no_scopes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
