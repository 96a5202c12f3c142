#include "books/limits.h"
#include "base/vectors.h"
#include "books/devices.h"
#include "books/sites.h"
#include "books/map.h"

struct mli_limits_state {
    mli_vector reservations;
    mli_u32 reservation_count; /* one more than the records; changes under the cold lock */
};

/* -- physical devices -- */

MLI_PRIVATE mli_phys *mli_phys_at(memlord *lord, uint32_t dev) {
    return (mli_phys *)mli_ptr_load_acquire(&mli_device_record_at(lord, dev)->phys);
}
MLI_PRIVATE mli_phys *mli_phys_lock(memlord *lord, uint32_t dev) {
    for (;;) {
        mli_phys *phys = mli_phys_at(lord, dev);
        mli_lock_take(&phys->lock);
        if (MLI_LIKELY(phys == mli_phys_at(lord, dev))) return phys;
        mli_lock_drop(&phys->lock);
    }
}

MLI_PRIVATE MLI_COLD memlord_result mli_phys_find(memlord *lord, memlord_device d, int make,
                                                  mli_phys **out) {
    uint32_t dev = mli_dev_known(lord, d);
    memlord_result r;
    *out = NULL;
    if (!mli_device_valid(d)) return MEMLORD_E_DEVICE;
    if (mli_type_host[d.type]) {
        *out = mli_phys_storage(lord, 0);
        return MEMLORD_OK;
    }
    r = make ? mli_dev(lord, d, &dev) : dev ? MEMLORD_OK : MEMLORD_E_UNKNOWN;
    if (r == MEMLORD_OK) *out = mli_phys_at(lord, dev);
    return r;
}

MLI_PRIVATE MLI_NOINLINE uint32_t mli_phys_next_dev(memlord *lord, const mli_phys *phys,
                                                    uint32_t dev) {
    uint32_t n = mli_row_count(lord, MLI_BOOK_DEVICE);
    while (++dev < n)
        if (!phys || mli_phys_at(lord, dev) == phys) return dev;
    return 0;
}

MLI_PRIVATE uint64_t mli_phys_live(memlord *lord, const mli_phys *phys) {
    uint32_t i = 0;
    uint64_t live = 0;
    while ((i = mli_phys_next_dev(lord, phys, i)) != 0)
        live = mli_add_saturated(live, mli_row_live(lord, MLI_BOOK_DEVICE, i));
    return live;
}

/* -- the bytes in use: one figure for all functions that read a capacity --
   The figure is `used` of the latest sample, plus the bytes that the ledger's devices have gained
   since. So a thread that asks before each alloc gets no more than was free at the sample. */

MLI_PRIVATE int mli_dev_uses_capacity(const memlord *lord, uint32_t dev) {
    return mli_type_of(lord, dev) != MEMLORD_DEVICE_MAPPED;
}

MLI_PRIVATE uint64_t mli_dev_held(memlord *lord, uint32_t dev, uint64_t live) {
    uint64_t pool = mli_u64_load(&mli_device_record_at(lord, dev)->count[MLI_STAT_reserved]);
    return pool > live ? pool : live;
}

/* Sets *held to the bytes that a device holds now. Returns the bytes of the device that count as
   used at its physical device. On a device other than the cpu the two numbers are equal. On the cpu
   a free does not lower the result, because the host's allocator may keep the freed bytes and serve
   later allocs from them. There the result is the most bytes that the device can have held since
   the latest sample. The function computes two upper bounds of this number, and returns the smaller
   one, but no less than the bytes held at the sample. The first bound is the bytes held at the
   sample, plus the bytes allocated since. The second is the highest published bytes since the
   sample, plus a batch for each thread. If the device's pool holds more than the live bytes, the
   function uses the bytes of the pool instead of these bounds. */
static MLI_COLD uint64_t mli_dev_held_since(memlord *lord, uint32_t dev, uint64_t *held) {
    const mli_row *row = mli_row_at(lord, MLI_BOOK_DEVICE, dev);
    const mli_sample_mark *mark = &mli_device_record_at(lord, dev)->mark;
    const mli_thread *t = mli_thread_first(lord);
    uint64_t live = 0, in = 0, bound;
    int64_t most = (int64_t)mli_u64_load(&row->sampled_peak);
    for (; t; t = mli_thread_next(t)) {
        const mli_cell *cell = mli_cell_at(t, MLI_BOOK_DEVICE, dev);
        uint64_t level;
        if (!cell) continue;
        level = mli_u64_load_acquire(&cell->level); /* pairs with mli_cell_count_free */
        live += level;
        in += level + mli_u64_load(&cell->out);
        most += (int64_t)lord->counters.batch;
    }
    if ((int64_t)live < 0) live = 0;
    *held = mli_dev_held(lord, dev, live);
    if (mli_type_of(lord, dev) != MEMLORD_DEVICE_CPU) return *held;
    if (*held > live) return *held > mark->held ? *held : mark->held;
    bound = mli_add_saturated(mark->held, mli_since(in, mark->in));
    if (most < (int64_t)bound) bound = most > 0 ? (uint64_t)most : 0;
    if (bound < live) bound = live;
    return bound > mark->held ? bound : mark->held;
}

MLI_PRIVATE MLI_COLD uint64_t mli_phys_grown(memlord *lord, const mli_phys *phys, uint32_t dev,
                                             uint64_t *held, uint64_t *part) {
    MLI_REQUIRE(mli_lock_held(&phys->lock));
    uint64_t used = phys->sample.known ? phys->sample.used : 0, shrunk = 0, own;
    uint32_t i = 0;
    *held = 0;
    while ((i = mli_phys_next_dev(lord, phys, i)) != 0) {
        uint64_t was = mli_device_record_at(lord, i)->mark.held, is;
        if (!mli_dev_uses_capacity(lord, i)) continue;
        is = mli_dev_held_since(lord, i, &own);
        if (i == dev) *part = is;
        *held = mli_add_saturated(*held, own);
        if (is > was) used = mli_add_saturated(used, is - was);
        if (is < was) shrunk = mli_add_saturated(shrunk, was - is);
    }
    return used - (shrunk < used ? shrunk : used);
}
MLI_PRIVATE uint64_t mli_phys_used(memlord *lord, const mli_phys *phys, uint64_t *held) {
    const uint64_t used = mli_phys_grown(lord, phys, 0, held, NULL);
    return used > *held ? used : *held;
}

MLI_PRIVATE void mli_phys_stats_add(mli_phys *phys, memlord_stats *sum) {
    mli_lock_take(&phys->lock);
    sum->limit = mli_add_saturated(sum->limit, phys->limit);
    sum->held = mli_add_saturated(sum->held, phys->ticket_bytes);
    sum->neighbours = mli_add_saturated(sum->neighbours, phys->neighbours);
    mli_lock_drop(&phys->lock);
}
MLI_PRIVATE MLI_COLD memlord_result mli_phys_assign(memlord *lord, uint32_t dev, mli_phys *to) {
    mli_device_record *d = mli_device_record_at(lord, dev);
    mli_phys *from;
    uint32_t guest = 0;
    int busy;
    mli_lock_take(&mli_process.cold_lock);
    do guest = mli_phys_next_dev(lord, &d->own_phys, guest);
    while (guest == dev);
    busy = guest && to != &d->own_phys;
    from = mli_phys_at(lord, dev);
    if (from != to && !busy) {
        mli_lock_take(&from->lock);
        mli_lock_take(&to->lock);
        busy = from->ticket_bytes != 0;
        if (!busy) {
            mli_ptr_store_release(&d->phys, to); /* pairs with the load in mli_phys_at */
            memset(&d->mark, 0, sizeof d->mark); /* the sample may lack the bytes of the device */
            memset(&d->before, 0, sizeof d->before);
        }
        mli_lock_drop(&from->lock);
        mli_lock_drop(&to->lock);
    }
    mli_lock_drop(&mli_process.cold_lock);
    return busy ? MEMLORD_E_STATE : MEMLORD_OK;
}
MLI_PRIVATE mli_oom mli_oom_of(memlord *lord, uint32_t dev) {
    mli_phys *phys = mli_phys_lock(lord, dev);
    mli_oom oom = mli_device_record_at(lord, dev)->oom;
    mli_lock_drop(&phys->lock);
    oom.site = mli_site_display_of(lord, oom.site);
    return oom;
}

MLI_PRIVATE mli_phys *mli_phys_in_use(memlord *lord, uint32_t i) {
    mli_phys *phys = mli_phys_storage(lord, i);
    return i && mli_phys_at(lord, i) != phys ? NULL : phys;
}

MLI_PRIVATE MLI_COLD double mli_used_percent(const memlord_capacity *c) {
    return c->known ? mli_percent(c->used, c->total) : -1;
}

/* -- limits and tickets -- A request compares the live bytes of a phys and the bytes of its tickets
   with the limit, and raises `ticket_bytes`, all while it holds the lock of the phys. So the bytes
   admitted never exceed the limit. The bytes of an alloc are subtracted from its tickets after the
   alloc was recorded. Until then they are in flight and count twice. A request that is refused only
   because of bytes in flight tries again. */


MLI_PRIVATE int64_t mli_bytes_signed(uint64_t bytes) {
    const uint64_t most = (uint64_t)1 << 62;
    return (int64_t)(bytes < most ? bytes : most);
}

MLI_PRIVATE int mli_phys_available(memlord *lord, const mli_phys *phys, int64_t *left) {
    MLI_REQUIRE(mli_lock_held(&phys->lock));
    int64_t tickets = mli_bytes_signed(phys->ticket_bytes), unused;
    uint64_t held;
    *left = INT64_MAX;
    if (phys->limit)
        *left = mli_bytes_signed(phys->limit) - mli_bytes_signed(mli_phys_live(lord, phys)) -
                tickets;
    if (phys->sample.known) {
        unused = mli_bytes_signed(phys->sample.total) -
                 mli_bytes_signed(mli_phys_used(lord, phys, &held)) - tickets;
        if (unused < *left) *left = unused;
    }
    return phys->limit || phys->sample.known;
}

MLI_PRIVATE uint64_t mli_dev_sum(memlord *lord, uint32_t dev, int allocated, int high) {
    const mli_thread *t = mli_thread_first(lord);
    uint64_t sum = 0;
    for (; t; t = mli_thread_next(t)) {
        const mli_cell *cell = mli_cell_at(t, MLI_BOOK_DEVICE, dev);
        uint64_t level = 0, out;
        if (!cell) continue;
        if (allocated && high) level = mli_u64_load_acquire(&cell->level);
        out = mli_u64_load_acquire(&cell->out);
        if (allocated && !high) level = mli_u64_load_acquire(&cell->level);
        sum += level + out;
    }
    return sum;
}
/* Sums mli_dev_sum over all devices at a phys. */
static uint64_t mli_phys_sum(memlord *lord, const mli_phys *phys, int allocated, int high) {
    uint32_t i = 0;
    uint64_t sum = 0;
    while ((i = mli_phys_next_dev(lord, phys, i)) != 0)
        sum += mli_dev_sum(lord, i, allocated, high);
    return sum;
}
/* Returns an upper bound of the live bytes of a phys or, without `high`, a lower bound. The bound
   holds at every moment while the function sums. For the upper bound the function reads the freed
   bytes before the allocated ones, for the lower bound after them. */
static uint64_t mli_phys_live_bound(memlord *lord, const mli_phys *phys, int high) {
    uint64_t first = mli_phys_sum(lord, phys, !high, high);
    uint64_t last = mli_phys_sum(lord, phys, high, high);
    int64_t live = (int64_t)(high ? last - first : first - last);
    return live > 0 ? (uint64_t)live : 0;
}

#define MLI_RESERVE_RETRIES (60 * MLI_SPIN_LOOKS) /* how many times a reservation is tried again;
                                                     the tries take about 50 ms together, and the
                                                     thread sleeps for most of that time */
/* Reserves bytes at a physical device. Returns 1 if it has reserved them, and 0 if they do not fit.
   Returns -1 if they do not fit now but may fit at the next try: bytes in flight count twice, and
   the upper bound of the live bytes may be too high while other threads change their cells. If
   `again` is 0, returns 0 instead of -1. */
static int mli_phys_try_reserve(memlord *lord, mli_phys *phys, uint64_t bytes, int again) {
    MLI_REQUIRE(mli_lock_held(&phys->lock));
    uint64_t want = phys->ticket_bytes + bytes;
    if (want > (uint64_t)1 << 62) return 0; /* no sum below overflows: live bytes are below 2^63 */
    if (!phys->limit || mli_phys_live_bound(lord, phys, 1) + want <= phys->limit) {
        phys->ticket_bytes += bytes;
        return 1;
    }
    want -= want < phys->in_flight ? want : phys->in_flight;
    return again && mli_phys_live_bound(lord, phys, 0) + want <= phys->limit ? -1 : 0;
}

/* -- tickets -- */

#if !defined(MEMLORD_NO_VERIFY)
MLI_PRIVATE MLI_COLD uint32_t mli_ticket_count(const memlord *lord) {
    return mli_u32_load(&lord->limits->reservation_count) - 1;
}
MLI_PRIVATE MLI_COLD const mli_reservation *mli_ticket_at(const memlord *lord, uint32_t number) {
    return (const mli_reservation *)mli_vector_at(&lord->limits->reservations, number,
                                                sizeof(mli_reservation));
}
#endif
static mli_reservation *mli_ticket_find(memlord *lord, memlord_ticket ticket) {
    return (mli_reservation *)mli_handle_find(&lord->limits->reservations, sizeof(mli_reservation),
                                              ticket);
}

MLI_PRIVATE MLI_COLD int mli_ticket_is_at(memlord *lord, memlord_ticket ticket,
                                          memlord_device device) {
    const mli_reservation *v = mli_ticket_find(lord, ticket);
    mli_phys *phys;
    return v && !mli_phys_find(lord, device, 0, &phys) && phys == v->phys;
}

/* Returns the record of an open ticket that belongs to the context of a thread. Returns NULL if the
   ticket was closed, or if another context adopted it. */
static mli_reservation *mli_ticket_own(memlord *lord, const mli_thread *t, memlord_ticket ticket) {
    mli_reservation *v = mli_ticket_find(lord, ticket);
    return v && mli_ptr_load(&v->owner) == (const void *)t->now.context ? v : NULL;
}

/* Return how many tickets an alloc of this thread may draw on, and the record of ticket i of these,
   or NULL if it is closed or for another phys. */
static uint32_t mli_draw_count(const mli_thread *t, memlord_ticket named) {
    return named ? 1 : t->now.open_tickets;
}
static mli_reservation *mli_draw_ticket(memlord *lord, const mli_thread *t, const mli_phys *phys,
                                        memlord_ticket named, uint32_t i, memlord_ticket *ticket) {
    mli_reservation *v;
    *ticket = named ? named : t->now.context->tickets[i];
    v = named ? mli_ticket_find(lord, named) : mli_ticket_own(lord, t, *ticket);
    return v && v->phys == phys ? v : NULL;
}

/* Computes which tickets cover a request at a phys. */
static MLI_COLD void mli_cover_plan(memlord *lord, const mli_thread *t, const mli_phys *phys,
                                    const mli_reserve *ask) {
    MLI_REQUIRE(mli_lock_held(&phys->lock));
    mli_cover *cover = ask->cover;
    uint32_t i, n = mli_draw_count(t, ask->named);
    memset(cover, 0, sizeof *cover);
    for (i = 0; i < n && ask->bytes > cover->bytes; i++) {
        memlord_ticket ticket;
        const mli_reservation *v = mli_draw_ticket(lord, t, phys, ask->named, i, &ticket);
        uint64_t left = ask->bytes - cover->bytes, part;
        if (!v) continue;
        part = v->remaining < left ? v->remaining : left;
        cover->ticket[cover->count] = ticket;
        cover->part[cover->count++] = part;
        cover->bytes += part;
        if (v->account && v->account == ask->account) cover->held += part;
    }
}
/* Moves bytes from one ticket to another, and from the account of `from` to the account of `to`. */
static MLI_COLD void mli_ticket_move(memlord *lord, mli_reservation *from, mli_reservation *to,
                                     uint64_t bytes) {
    MLI_REQUIRE(mli_rank_held(MLI_RANK_PHYS));
    from->remaining -= bytes;
    to->remaining += bytes;
    if (from->account == to->account) return;
    mli_account_shift(lord, from->account, -(int64_t)bytes);
    mli_account_shift(lord, to->account, (int64_t)bytes);
}
/* Takes the bytes that mli_cover_plan has chosen: subtracts them from the tickets. If a ticket's
   account is not the account of the request, also subtracts the ticket's part from the bytes that
   its account holds. The request's account already holds all bytes of the request. Requires: the
   caller has held the phys lock since mli_cover_plan. */
static MLI_COLD void mli_cover_take(memlord *lord, const mli_reserve *ask) {
    MLI_REQUIRE(mli_rank_held(MLI_RANK_PHYS));
    const mli_cover *cover = ask->cover;
    uint32_t i;
    for (i = 0; i < cover->count; i++) {
        mli_reservation *v = mli_ticket_find(lord, cover->ticket[i]);
        v->remaining -= cover->part[i];
        if (v->account != ask->account)
            mli_account_shift(lord, v->account, -(int64_t)cover->part[i]);
    }
}
MLI_PRIVATE MLI_COLD void mli_cover_return(memlord *lord, mli_phys *phys, mli_cover *cover,
                                           memlord_ticket request) {
    mli_reservation *from;
    uint32_t i;
    cover->bytes = 0;
    mli_lock_take(&phys->lock);
    from = mli_ticket_find(lord, request);
    for (i = 0; from && i < cover->count; i++) {
        mli_reservation *to = mli_ticket_find(lord, cover->ticket[i]);
        uint64_t part = from->remaining < cover->part[i] ? from->remaining : cover->part[i];
        if (!to) continue;
        mli_ticket_move(lord, from, to, part);
        cover->bytes += part;
    }
    mli_lock_drop(&phys->lock);
}

/* Reserves the bytes of a request that are not reserved yet: at the phys those that no ticket
   covers, in the account those that no ticket of the same account covers. Returns 1 if it has
   reserved them, 0 if they do not fit, and -1 if the caller should try again. */
static MLI_COLD int mli_rest_reserve(memlord *lord, mli_phys *phys, const mli_reserve *ask,
                                     int patient) {
    const uint64_t rest = ask->bytes - (ask->cover ? ask->cover->bytes : 0);
    const uint64_t hold = ask->bytes - (ask->cover ? ask->cover->held : 0);
    const int fits =
        !rest && ask->bytes ? 1 : mli_phys_try_reserve(lord, phys, rest, patient);
    if (fits <= 0 || mli_account_hold(lord, ask->account, hold)) return fits;
    phys->ticket_bytes -= rest;
    return 0;
}

MLI_PRIVATE MLI_COLD memlord_result mli_reservation_open(memlord *lord, mli_phys *phys,
                                                         mli_thread *t, const mli_reserve *ask,
                                                         memlord_ticket *out) {
    mli_reservation *v;
    uint32_t tries = 0;
    unsigned spins = 0;
    for (;;) {
        int fits = -1;
        mli_lock_take(&phys->lock);
        v = (mli_reservation *)(void *)phys->closed_tickets;
        if (ask->cover) mli_cover_plan(lord, t, phys, ask);
        if (v) fits = mli_rest_reserve(lord, phys, ask, tries++ < MLI_RESERVE_RETRIES);
        if (fits > 0) break;
        mli_lock_drop(&phys->lock);
        if (!fits) return MEMLORD_E_LIMIT;
        if (v)
            mli_spin_wait(&spins);
        else if (mli_handle_new(lord, &lord->limits->reservations, &lord->limits->reservation_count,
                                sizeof *v, &phys->closed_tickets, &phys->lock))
            return MEMLORD_E_NOMEM;
    }
    if (!v->phys) v->phys = phys; /* once, because an old ticket may be read at the same time */
    if (ask->cover) mli_cover_take(lord, ask);
    mli_ptr_store(&v->owner, ask->cover ? NULL : t->now.context);
    v->remaining = ask->bytes;
    v->account = ask->account;
    *out = mli_handle_open(&phys->closed_tickets);
    mli_lock_drop(&phys->lock);
    return MEMLORD_OK;
}

/* Detaches the tickets of a thread's context that another has closed or adopted. */
static void mli_tickets_prune(memlord *lord, mli_thread *t) {
    memlord_ticket *tickets = t->now.context->tickets;
    uint32_t i, kept = 0;
    for (i = 0; i < t->now.open_tickets; i++)
        if (mli_ticket_own(lord, t, tickets[i])) tickets[kept++] = tickets[i];
    t->now.open_tickets = kept;
}

MLI_PRIVATE void mli_ticket_attach(memlord *lord, mli_thread *t, memlord_ticket ticket) {
    memlord_ticket *tickets = t->now.context->tickets;
    uint32_t i;
    if (mli_is_orphan(lord, t)) return;
    mli_tickets_prune(lord, t);
    for (i = 0; i < t->now.open_tickets; i++)
        if (tickets[i] == ticket) return;
    if (i == MLI_TICKETS_MAX) memmove(tickets, tickets + 1, --i * sizeof *tickets);
    tickets[i] = ticket;
    t->now.open_tickets = i + 1;
    mli_special_set(t, MLI_SPECIAL_TICKET, 1); /* cleared when no ticket is open */
}
MLI_PRIVATE void mli_ticket_draw_begin(memlord *lord, mli_call *call, uint64_t bytes) {
    mli_ticket_draw *draw = &call->draw;
    if (!draw->named && !(mli_u32_load(&call->t->special) & MLI_SPECIAL_TICKET)) return;
    if (!draw->named) {
        mli_tickets_prune(lord, call->t);
        if (!call->t->now.open_tickets) {
            mli_special_set(call->t, MLI_SPECIAL_TICKET, 0);
            return;
        }
    }
    draw->phys = mli_phys_lock(lord, call->dev);
    draw->bytes = bytes < draw->phys->ticket_bytes ? bytes : draw->phys->ticket_bytes;
    draw->phys->in_flight += draw->bytes;
    draw->drawn = 0;
    mli_lock_drop(&draw->phys->lock);
}

/* Takes the bytes of a draw that are not drawn yet off its tickets, the earliest first. Unless
   `account` is 0, takes only those of tickets with that account, and leaves it to the caller to
   take them off what the account holds. Returns how many bytes it took. */
static MLI_COLD uint64_t mli_draw_take(memlord *lord, const mli_call *call,
                                       memlord_account account) {
    MLI_REQUIRE(mli_rank_held(MLI_RANK_PHYS));
    const mli_ticket_draw *draw = &call->draw;
    uint32_t i, n = mli_draw_count(call->t, draw->named);
    uint64_t left = draw->bytes - draw->drawn, taken = 0;
    for (i = 0; i < n && left; i++) {
        memlord_ticket ticket;
        mli_reservation *v = mli_draw_ticket(lord, call->t, draw->phys, draw->named, i, &ticket);
        uint64_t part;
        if (!v) continue;
        part = v->remaining < left ? v->remaining : left;
        left -= part;
        if (account && v->account != account) continue;
        v->remaining -= part;
        if (!account) mli_account_shift(lord, v->account, -(int64_t)part);
        taken += part;
    }
    return taken;
}
MLI_PRIVATE MLI_COLD int mli_ticket_charge(memlord *lord, mli_call *call, memlord_account account,
                                           uint64_t bytes) {
    mli_phys *phys = account && bytes ? call->draw.phys : NULL;
    uint64_t held = 0;
    int charged;
    if (phys) {
        mli_lock_take(&phys->lock);
        held = mli_draw_take(lord, call, account);
        call->draw.drawn += held;
        phys->drawn += held;
    }
    charged = mli_account_charge_block(lord, account, bytes, held);
    if (phys) mli_lock_drop(&phys->lock);
    return charged;
}
MLI_PRIVATE MLI_COLD void mli_ticket_draw_end(memlord *lord, mli_call *call, int recorded) {
    mli_ticket_draw *draw = &call->draw;
    mli_phys *phys = draw->phys;
    mli_lock_take(&phys->lock);
    phys->in_flight -= draw->bytes;
    phys->drawn -= draw->drawn;
    phys->ticket_bytes -= draw->drawn + (recorded ? mli_draw_take(lord, call, 0) : 0);
    mli_lock_drop(&phys->lock);
    draw->phys = NULL;
}

/* -- life -- */

static MLI_COLD void mli_limits_init(memlord *lord, const memlord_desc *desc) {
    (void)desc;
    lord->limits->reservation_count.v = 1;
}
static MLI_COLD void mli_limits_lock(memlord *lord, int take) {
    uint32_t i, n = mli_row_count(lord, MLI_BOOK_DEVICE);
    for (i = 0; i < n; i++) mli_lock_set(&mli_phys_storage(lord, i)->lock, take);
}
/* Forgets the draws of the parent's other threads. */
static MLI_COLD void mli_limits_forked(memlord *lord) {
    uint32_t i, n = mli_row_count(lord, MLI_BOOK_DEVICE);
    for (i = 0; i < n; i++) {
        mli_phys *phys = mli_phys_storage(lord, i);
        phys->ticket_bytes -= phys->drawn;
        phys->in_flight = phys->drawn = 0;
    }
}
static MLI_COLD void mli_limits_free(memlord *lord) {
    mli_vector_free(lord, &lord->limits->reservations, sizeof(mli_reservation));
}
MLI_PRIVATE const mli_life mli_limits_life = {MLI_LIFE_STATE(limits), mli_limits_init, NULL, NULL,
                                              mli_limits_lock, mli_limits_forked, mli_limits_free};

/* -- public -- */

MLI_API memlord_result memlord_reserve_commit(memlord *lord, memlord_ticket ticket) {
    mli_reservation *v;
    int open;
    if (!lord) return MEMLORD_OK;
    v = mli_ticket_find(lord, ticket);
    if (!v) return MEMLORD_E_UNKNOWN;
    mli_lock_take(&v->phys->lock);
    open = mli_ticket_find(lord, ticket) != NULL; /* another thread may have closed the ticket */
    if (open) {
        v->phys->ticket_bytes -= v->remaining;
        mli_account_shift(lord, v->account, -(int64_t)v->remaining);
        mli_handle_close(&v->phys->closed_tickets, &v->handle);
    }
    mli_lock_drop(&v->phys->lock);
    return open ? MEMLORD_OK : MEMLORD_E_UNKNOWN;
}

MLI_API memlord_result memlord_reserve_adopt(memlord *lord, memlord_ticket ticket) {
    mli_thread *t;
    mli_reservation *v;
    int open;
    if (!lord) return MEMLORD_OK;
    v = mli_ticket_find(lord, ticket);
    if (!v) return MEMLORD_E_UNKNOWN;
    t = mli_thread_get(lord);
    if (!t) return MEMLORD_E_STATE;
    mli_lock_take(&v->phys->lock);
    open = mli_ticket_find(lord, ticket) != NULL; /* another thread may have closed the ticket */
    if (open) mli_ptr_store(&v->owner, t->now.context);
    mli_lock_drop(&v->phys->lock);
    if (open) mli_ticket_attach(lord, t, ticket);
    mli_thread_put(lord, t);
    return open ? MEMLORD_OK : MEMLORD_E_UNKNOWN;
}
