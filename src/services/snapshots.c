#include "services/snapshots.h"
#include "os/system.h"
#include "base/atomics.h"
#include "base/log.h"
#include "base/memory.h"
#include "books/counters.h"
#include "books/watches.h"
#include "books/names.h"
#include "books/sites.h"
#include "books/stack_totals.h"
#include "books/events.h"
#include "services/stats.h"

typedef struct mli_recorder { /* a recorder, which saves a snapshot or an export at an interval */
    mli_u32 interval; /* ms between two saves; 0: the recorder was not started, or was stopped */
    mli_u64 due;      /* when the next save is due, by the ledger's clock */
    mli_ptr saver;    /* const mli_saver *; set before the interval */
    mli_helper helper;
    struct memlord *lord;
} mli_recorder;

struct mli_snapshots_state {
    mli_lock lock;
    struct mli_snapshot *at[MLI_SNAPSHOTS]; /* the snapshots, in order of time */
    struct mli_snapshot *out; /* a list of snapshots that were evicted while there were readers */
    uint32_t count;           /* how many snapshots are in `at` */
    struct mli_snapshot_reader *readers;
    mli_recorder recorders[MLI_RECORDERS];
};

#define MLI_SNAPSHOT_MS_DEFAULT 5000
#define MLI_RECORDER_MS_MAX 1000 /* the most ms of a recorder's wait before it looks at the clock */

MLI_PRIVATE mli_device_usage *mli_snapshot_devices(const mli_snapshot *s) {
    return (mli_device_usage *)(uintptr_t)(s + 1);
}
MLI_PRIVATE memlord_block_info *mli_snapshot_top(const mli_snapshot *s) {
    return (memlord_block_info *)(void *)(mli_snapshot_devices(s) + s->devices);
}
MLI_PRIVATE const mli_holding *mli_snapshot_holdings(const mli_snapshot *s, uint32_t dev, int book,
                                                     uint32_t *n) {
    const mli_device_usage *usage = &mli_snapshot_devices(s)[dev - 1];
    *n = usage->count[book];
    return (const mli_holding *)(void *)(mli_snapshot_top(s) + s->room) +
           usage->first[book];
}
MLI_PRIVATE void mli_snapshot_list_free(memlord *lord, mli_snapshot *s) {
    mli_snapshot *next;
    for (; s; s = next) {
        next = s->next;
        mli_own_free(lord, s, s->size);
    }
}

/* The holdings of a device by tag or by site, while a snapshot is made. */
typedef struct mli_holding_list {
    uint64_t left; /* the device's bytes that have no tag or, by site, no site */
    size_t count;
    mli_holding at[MLI_HOLDERS];
} mli_holding_list;

static MLI_COLD void mli_holding_add(mli_holding_list *list, uint32_t row, uint64_t bytes) {
    mli_holding h;
    if (!bytes) return;
    memset(&h, 0, sizeof h);
    h.bytes = bytes;
    h.row = row;
    list->count = mli_top_insert(list->at, list->count, MLI_HOLDERS, &h, sizeof h,
                                 offsetof(mli_holding, bytes));
}
/* Lists the holdings of n devices by tag or by site. Returns how many there are in all. Requires:
   each list is empty, and its `left` is all live bytes of the device. */
static MLI_COLD size_t mli_holdings_list(memlord *lord, int book, uint32_t n,
                                         mli_holding_list *list) {
    const uint32_t rows = mli_row_count(lord, book);
    size_t sum = 0;
    uint32_t i;
    for (i = 1; i < rows; i++) {
        const uint32_t dev = mli_row_at(lord, book, i)->dev;
        uint64_t live;
        if (dev > n) continue; /* the device is newer than the snapshot */
        live = mli_row_live(lord, book, i);
        mli_take_off(&list[dev - 1].left, live);
        mli_holding_add(&list[dev - 1], i, live);
    }
    for (i = 0; i < n && rows > 1; i++) {
        mli_holding_add(&list[i], 0, list[i].left);
        sum += list[i].count;
    }
    return sum;
}
/* Stores the bytes of n devices in `usage`, and their holdings in `list`: by site in the first n
   elements, by tag in the next n. Returns how many holdings there are in all. */
static MLI_COLD size_t mli_usage_read(memlord *lord, uint32_t n, mli_device_usage *usage,
                                      mli_holding_list *list) {
    uint32_t i;
    for (i = 0; i < n; i++, usage++) {
        const mli_u64 *count = mli_device_record_at(lord, i + 1)->count;
        mli_row_totals sum;
        mli_row_sum(lord, MLI_BOOK_DEVICE, i + 1, 1, &sum);
        usage->live = list[i].left = list[n + i].left = sum.live;
        usage->blocks = sum.blocks;
        usage->peak = sum.peak;
        usage->pending = mli_u64_load(&count[MLI_STAT_pending]);
        usage->reserved = mli_u64_load(&count[MLI_STAT_reserved]);
    }
    return mli_holdings_list(lord, MLI_BOOK_SITE, n, list) +
           mli_holdings_list(lord, MLI_BOOK_TAG, n, list + n);
}
/* Copies the lists of holdings into the memory behind a snapshot. Also adds up the live bytes and
   blocks of all devices in the snapshot. */
static MLI_COLD void mli_holdings_copy(mli_snapshot *s, const mli_holding_list *list) {
    mli_holding *to = (mli_holding *)(void *)(mli_snapshot_top(s) + s->room), *at = to;
    uint32_t i;
    for (i = 0; i < 2 * s->devices; i++, list++) {
        mli_device_usage *usage = &mli_snapshot_devices(s)[i % s->devices];
        const int book = i < s->devices ? MLI_BOOK_SITE : MLI_BOOK_TAG;
        usage->first[book] = (uint32_t)(at - to);
        usage->count[book] = (uint32_t)list->count;
        memcpy(at, list->at, list->count * sizeof *at);
        at += list->count;
        if (book == MLI_BOOK_TAG) continue;
        s->live += usage->live;
        s->blocks += usage->blocks;
    }
}
/* Makes a snapshot. The lists of holdings decide its size. So the function first reads the lists
   and the usage of the devices into other memory, and then copies them. */
MLI_PRIVATE MLI_COLD mli_snapshot *mli_snapshot_new(memlord *lord, const char *kept, int blocks) {
    const uint32_t n = mli_row_count(lord, MLI_BOOK_DEVICE) - 1;
    const uint32_t room = blocks ? MLI_SNAPSHOT_TOP : 0;
    const size_t fixed = sizeof(mli_snapshot) + n * sizeof(mli_device_usage) +
                         room * sizeof(memlord_block_info);
    const size_t lists = n * (2 * sizeof(mli_holding_list) + sizeof(mli_device_usage));
    mli_holding_list *list = (mli_holding_list *)mli_own_alloc(lord, lists + !lists);
    mli_snapshot *s = NULL;
    if (list) {
        mli_device_usage *usage = (mli_device_usage *)(void *)(list + 2 * n);
        const uint64_t time = mli_ledger_age(lord);
        const size_t size = fixed + mli_usage_read(lord, n, usage, list) * sizeof(mli_holding);
        s = (mli_snapshot *)mli_own_alloc(lord, size);
        if (s) {
            s->size = size;
            s->name = kept;
            s->devices = n;
            s->room = room;
            s->time = time;
            memcpy(mli_snapshot_devices(s), usage, n * sizeof *usage);
            mli_holdings_copy(s, list);
            if (room)
                s->top_blocks = memlord_blocks_top(lord, memlord_device_all(),
                                                   mli_snapshot_top(s), room);
        }
    }
    mli_own_free(lord, list, lists + !lists);
    return s;
}

/* Returns the live bytes of a device in a snapshot, or of all devices if `dev` is 0. */
static uint64_t mli_snapshot_level(const mli_snapshot *s, uint32_t dev) {
    if (!dev) return s->live;
    return dev <= s->devices ? mli_snapshot_devices(s)[dev - 1].live : 0;
}
/* Returns 1 if a device, or all together, held more in a snapshot than in any other listed one. */
static MLI_COLD int mli_snapshot_is_peak(const memlord *lord, const mli_snapshot *s) {
    struct mli_snapshots_state *state = lord->snapshots;
    uint32_t dev, i;
    for (dev = 0; dev <= s->devices; dev++) {
        uint64_t level = mli_snapshot_level(s, dev);
        for (i = state->count; i; i--) {
            const mli_snapshot *other = state->at[i - 1];
            if (other != s && mli_snapshot_level(other, dev) >= level) break;
        }
        if (!i) return 1;
    }
    return 0;
}

/* Takes one snapshot off the list and returns it. It takes the one whose neighbours in the list are
   closest to each other in time, or the oldest of several such. So the snapshots that stay are
   spread over the whole run, however long it becomes. Some snapshots always stay: the first, the
   last, and those in which some device, or all devices together, held most. These are at most
   MEMLORD_MAX_DEVICES + 3 of MLI_SNAPSHOTS. A named snapshot goes only if no other can go. */
static MLI_COLD mli_snapshot *mli_snapshots_evict(memlord *lord) {
    struct mli_snapshots_state *state = lord->snapshots;
    MLI_REQUIRE(mli_lock_held(&state->lock));
    MLI_REQUIRE(state->count == MLI_SNAPSHOTS);
    mli_snapshot **list = state->at, *out;
    uint64_t least = UINT64_MAX;
    uint32_t i, at = 0;
    int named;
    for (named = 0; named < 2 && !at; named++)
        for (i = 1; i + 1 < state->count; i++) {
            uint64_t gap = list[i + 1]->time - list[i - 1]->time;
            if ((list[i]->name != NULL) != named || gap >= least ||
                mli_snapshot_is_peak(lord, list[i]))
                continue;
            least = gap;
            at = i;
        }
    out = list[at];
    memmove(list + at, list + at + 1, (--state->count - at) * sizeof *list);
    mli_loss_add(lord, MLI_LOST_snapshots);
    return out;
}

/* Adds a snapshot that is no longer in `at` to `out`, where readers may still read it. */
static void mli_snapshot_put_out(struct mli_snapshots_state *state, mli_snapshot *s) {
    s->next = state->out;
    state->out = s;
}
/* Empties the list of evicted snapshots for the caller to free; NULL while there are readers. */
static mli_snapshot *mli_snapshots_unread(struct mli_snapshots_state *state) {
    mli_snapshot *out = state->readers ? NULL : state->out;
    if (out) state->out = NULL;
    return out;
}
MLI_PRIVATE MLI_COLD void mli_snapshots_clear(memlord *lord) {
    struct mli_snapshots_state *state = lord->snapshots;
    mli_snapshot *out;
    mli_lock_take(&state->lock);
    while (state->count) mli_snapshot_put_out(state, state->at[--state->count]);
    out = mli_snapshots_unread(state);
    mli_lock_drop(&state->lock);
    mli_snapshot_list_free(lord, out);
}

/* Returns 1 if the host's calls take the snapshots, and no thread of the ledger does. */
static int mli_snapshots_in_calls(const memlord *lord) {
    return (lord->flags & MEMLORD_FLAG_NO_SNAPSHOT_THREAD) != 0;
}
/* Takes a snapshot and adds it to the list. If a call of the host takes a periodic snapshot, the
   snapshot has no list of blocks, because the call would have to visit all blocks for the list. If
   there is no memory, the snapshot counts as lost. */
static MLI_COLD memlord_result mli_snapshot_take(memlord *lord, const char *kept) {
    struct mli_snapshots_state *state = lord->snapshots;
    mli_snapshot *s = mli_snapshot_new(lord, kept, kept || !mli_snapshots_in_calls(lord));
    mli_snapshot *out, **at;
    if (!s) {
        mli_loss_add(lord, MLI_LOST_snapshots);
        return MEMLORD_E_NOMEM;
    }
    mli_lock_take(&state->lock);
    at = &state->at[state->count++];
    /* The list is in order of time, and another thread may have added a later snapshot since this
       thread read the clock. */
    for (; at > state->at && at[-1]->time > s->time; at--) *at = at[-1];
    *at = s;
    if (state->count == MLI_SNAPSHOTS) mli_snapshot_put_out(state, mli_snapshots_evict(lord));
    out = mli_snapshots_unread(state);
    mli_lock_drop(&state->lock);
    mli_snapshot_list_free(lord, out);
    return MEMLORD_OK;
}

MLI_PRIVATE uint32_t mli_snapshots_pin(memlord *lord, mli_snapshot_reader *reader,
                                       const mli_snapshot *list[MLI_SNAPSHOTS]) {
    struct mli_snapshots_state *state = lord->snapshots;
    uint32_t i, n;
    reader->thread = &mli_self;
    mli_lock_take(&state->lock);
    n = state->count;
    for (i = 0; i < n; i++) list[i] = state->at[i];
    reader->next = state->readers;
    state->readers = reader;
    mli_lock_drop(&state->lock);
    return n;
}
MLI_PRIVATE void mli_snapshots_unpin(memlord *lord, const mli_snapshot_reader *reader) {
    struct mli_snapshots_state *state = lord->snapshots;
    mli_snapshot *out;
    mli_snapshot_reader **at = &state->readers;
    mli_lock_take(&state->lock);
    while (*at != reader) at = &(*at)->next;
    *at = reader->next;
    out = mli_snapshots_unread(state);
    mli_lock_drop(&state->lock);
    mli_snapshot_list_free(lord, out);
}

/* -- recorders, which save at an interval -- */

/* Saves if a save is due by the ledger's clock. Returns the ms to wait until the next check. The
   acquire load of the interval pairs with the exchange that sets it. `saver` is set before the
   interval, so this thread then sees the saver, too. */
static MLI_COLD uint32_t mli_recorder_check(mli_recorder *r) {
    const uint64_t interval = (uint64_t)mli_u32_load_acquire(&r->interval) * 1000000u;
    const mli_saver *saver = (const mli_saver *)mli_ptr_load(&r->saver);
    uint64_t now = mli_ledger_now(r->lord), due = mli_u64_load(&r->due), left;
    /* The next save is due an interval from now. So a process that was stopped does not make up for
       the saves that it missed. */
    if (now >= due && mli_u64_cas(&r->due, &due, now + interval)) {
        saver->save(r->lord, 0);
        due = now + interval;
    }
    left = due > now ? (due - now) / 1000000u + 1 : 1;
    return left < MLI_RECORDER_MS_MAX ? (uint32_t)left : MLI_RECORDER_MS_MAX;
}
MLI_PRIVATE MLI_COLD void mli_recorders_poll(memlord *lord) {
    mli_recorder *r = lord->snapshots->recorders, *end = r + MLI_RECORDERS;
    for (; r < end; r++)
        if (mli_u32_load_acquire(&r->interval) &&
            mli_u32_load_acquire(&r->helper.state) != MLI_HELPER_RUNS)
            (void)mli_recorder_check(r);
}
MLI_PRIVATE MLI_COLD int mli_recorder_is_on(const memlord *lord, int which) {
    return mli_u32_load(&lord->snapshots->recorders[which].interval) != 0;
}

/* Takes a periodic snapshot inside a call, if one is due. The next one is due after the longest of
   three times: the interval; a 256th of the ledger's life, because the ledger keeps fewer than 256
   snapshots; and 64 times as long as this snapshot took. The third time does not count if the
   snapshot itself took longer than the other two. */
MLI_PRIVATE MLI_COLD void mli_snapshots_look(memlord *lord) {
    mli_recorder *r = &lord->snapshots->recorders[MLI_RECORDER_SNAPSHOTS];
    const mli_saver *saver = (const mli_saver *)mli_ptr_load(&r->saver);
    uint64_t step = (uint64_t)mli_u32_load_acquire(&r->interval) * 1000000u;
    uint64_t due = mli_u64_load(&r->due), began, took;
    if (!step || !mli_snapshots_in_calls(lord) || mli_self.in_host_alloc) return;
    began = mli_ledger_now(lord);
    if (began < due || !mli_u64_cas(&r->due, &due, UINT64_MAX)) return;
    if ((began - lord->started) / 256 > step) step = (began - lord->started) / 256;
    saver->save(lord, 0);
    took = mli_ledger_now(lord) - began;
    if (took < step && took * 64 > step) step = took * 64;
    mli_u64_store(&r->due, began + step);
    mli_look_set(lord, mli_now() + step);
}

/* The thread of a recorder: saves at its interval, and serves requests for reports. */
static MLI_COLD void mli_recorder_run(void *user) {
    mli_recorder *r = (mli_recorder *)user;
    uint32_t ms;
    mli_self.is_helper = 1;
    do {
        ms = mli_recorder_check(r);
        mli_save_serve(r->lord);
    } while (mli_helper_wait(&r->helper, ms));
}

/* Starts the thread of a recorder, unless calls of the host take its snapshots. If the system
   starts no thread, safe points do the saving. */
static MLI_COLD void mli_recorder_thread(mli_recorder *r) {
    const int snapshots = r == &r->lord->snapshots->recorders[MLI_RECORDER_SNAPSHOTS];
    if (snapshots && mli_snapshots_in_calls(r->lord))
        mli_look_set(r->lord, 1);
    else if (mli_polling_enabled(r->lord) &&
             mli_helper_start(&r->helper, &r->interval, 0, MLI_HELPER_NONE, mli_recorder_run, r))
        mli_logf(r->lord, MEMLORD_LOG_WARNING, "[%s] no thread for them: memlord_gc_poll takes %s",
                 snapshots ? "snapshots" : "export", "them instead");
}
MLI_PRIVATE MLI_COLD void mli_snapshots_go_on(memlord *lord) {
    if (mli_recorder_is_on(lord, MLI_RECORDER_SNAPSHOTS))
        mli_recorder_thread(&lord->snapshots->recorders[MLI_RECORDER_SNAPSHOTS]);
}
MLI_PRIVATE MLI_COLD void mli_recorder_start(memlord *lord, int which, const mli_saver *saver,
                                             uint32_t ms) {
    mli_recorder *r = &lord->snapshots->recorders[which];
    mli_ptr_store(&r->saver, (void *)(uintptr_t)saver);
    mli_u64_store(&r->due, mli_ledger_now(r->lord) + (uint64_t)ms * 1000000u);
    (void)mli_u32_exchange(&r->interval, ms);
    mli_recorder_thread(r);
}
MLI_PRIVATE MLI_COLD void mli_recorder_stop(memlord *lord, int which) {
    mli_recorder *r = &lord->snapshots->recorders[which];
    const mli_saver *saver = (const mli_saver *)mli_ptr_load(&r->saver);
    uint32_t seen = mli_u32_exchange(&r->interval, 0);
    mli_helper_stop(&r->helper);
    if (which == MLI_RECORDER_SNAPSHOTS) mli_look_set(lord, 0);
    if (seen) saver->save(r->lord, 1);
}

/* -- the holders of a device at its peak -- */

/* Stores the holders of a device with `live` bytes: its largest tags, with the untagged blocks as
   one more, and its largest sites. Of two threads at once, the one that saw more decides. */
static MLI_COLD void mli_holders_take(memlord *lord, uint32_t dev, uint64_t live) {
    struct mli_snapshots_state *state = lord->snapshots;
    mli_device_record *device = mli_device_record_at(lord, dev);
    mli_holders *h = (mli_holders *)mli_own_alloc(lord, sizeof *h), *old;
    memlord_tag_stat rest;
    if (!h) return; /* the next check tries again */
    h->time = mli_ledger_age(lord);
    h->bytes = live;
    h->arena = mli_u64_load(&device->arena);
    h->tags = mli_tags_top(lord, device->device, h->tag, MLI_HOLDERS - 1);
    (void)memlord_tag_get(lord, device->device, NULL, &rest);
    if (rest.allocated) h->tag[h->tags++] = rest;
    h->sites = mli_sites_top(lord, device->device, MEMLORD_SITE_ORDER_LIVE_BYTES, h->site,
                             MLI_HOLDERS, 0);
    mli_lock_take(&state->lock);
    old = device->holders;
    if (old && old->bytes > live) {
        old = h; /* another thread saw more bytes */
    } else {
        device->holders = h;
        mli_u64_store(&device->watch.holders_bytes, live);
        mli_stacks_hold(lord, dev);
    }
    mli_lock_drop(&state->lock);
    mli_own_free(lord, old, sizeof *old);
}
MLI_PRIVATE void mli_holders_check(memlord *lord, uint32_t dev) {
    mli_row_totals sum;
    mli_row_sum(lord, MLI_BOOK_DEVICE, dev, 1, &sum); /* with the peak, which is not below `live` */
    if (mli_holders_due(&mli_device_record_at(lord, dev)->watch, sum.live, sum.peak))
        mli_holders_take(lord, dev, sum.live);
}
MLI_PRIVATE MLI_COLD void mli_holders_restart(memlord *lord, uint32_t dev) {
    struct mli_snapshots_state *state = lord->snapshots;
    MLI_REQUIRE(!mli_is_inside());
    mli_device_record *device = mli_device_record_at(lord, dev);
    mli_holders *old;
    mli_lock_take(&state->lock);
    old = device->holders;
    device->holders = NULL;
    mli_u64_store(&device->watch.holders_bytes, 0);
    mli_stacks_hold(lord, dev);
    mli_lock_drop(&state->lock);
    mli_own_free(lord, old, sizeof *old);
    mli_holders_check(lord, dev);
}
MLI_PRIVATE int mli_holders_get(memlord *lord, uint32_t dev, mli_holders *out) {
    struct mli_snapshots_state *state = lord->snapshots;
    const mli_holders *h;
    size_t i;
    mli_lock_take(&state->lock);
    h = mli_device_record_at(lord, dev)->holders;
    if (h) *out = *h;
    mli_lock_drop(&state->lock);
    for (i = 0; h && i < out->sites; i++)
        out->site[i].site = mli_site_display_of(lord, out->site[i].site);
    return h != NULL;
}

/* -- life -- */

static MLI_COLD void mli_snapshots_init(memlord *lord, const memlord_desc *desc) {
    struct mli_snapshots_state *state = lord->snapshots;
    int i;
    (void)desc;
    mli_lock_rank(&state->lock, MLI_RANK_SNAPSHOTS);
    for (i = 0; i < MLI_RECORDERS; i++) state->recorders[i].lord = lord;
}
MLI_PRIVATE MLI_COLD const char *mli_snapshots_check(const memlord_desc *desc) {
    return desc->snapshot_ms && desc->snapshot_ms < MLI_RECORDER_MS_MIN
               ? "[create] snapshot_ms is neither 0 nor 10 or more"
               : NULL;
}
static MLI_COLD void mli_snapshots_stop(memlord *lord) {
    int i;
    for (i = 0; i < MLI_RECORDERS; i++) mli_recorder_stop(lord, i);
}
static MLI_COLD void mli_snapshots_lock(memlord *lord, int take) {
    mli_lock_set(&lord->snapshots->lock, take);
}
/* Mends a forked child. The readers of this thread stay, because their reports go on. The threads
   of recorders are gone; the one that takes snapshots starts again later, and the export stops,
   because its file is the parent's. */
static MLI_COLD void mli_snapshots_forked(memlord *lord) {
    mli_snapshot_reader **reader = &lord->snapshots->readers;
    int i;
    while (*reader)
        if ((*reader)->thread == (void *)&mli_self)
            reader = &(*reader)->next;
        else
            *reader = (*reader)->next;
    for (i = 0; i < MLI_RECORDERS; i++)
        mli_u32_store(&lord->snapshots->recorders[i].helper.state, MLI_HELPER_NONE);
    mli_u32_store(&lord->snapshots->recorders[MLI_RECORDER_EXPORT].interval, 0);
    if (mli_recorder_is_on(lord, MLI_RECORDER_SNAPSHOTS))
        mli_alert_set(lord, MLI_ALERT_POLLER, 1);
    if (mli_snapshots_in_calls(lord)) /* it was never, if a thread took a snapshot at the fork */
        mli_u64_store(&lord->snapshots->recorders[MLI_RECORDER_SNAPSHOTS].due, 0);
}
static MLI_COLD void mli_snapshots_free(memlord *lord) {
    MLI_REQUIRE(!mli_recorder_is_on(lord, MLI_RECORDER_SNAPSHOTS));
    uint32_t i;
    mli_snapshots_clear(lord);
    for (i = 1; i < mli_row_count(lord, MLI_BOOK_DEVICE); i++)
        mli_own_free(lord, mli_device_record_at(lord, i)->holders, sizeof(mli_holders));
}
MLI_PRIVATE const mli_life mli_snapshots_life = {MLI_LIFE_STATE(snapshots), mli_snapshots_init,
                                                 NULL, mli_snapshots_stop, mli_snapshots_lock,
                                                 mli_snapshots_forked, mli_snapshots_free};

/* -- public -- */

static MLI_COLD void mli_snapshot_save(memlord *lord, int end) {
    (void)end;
    (void)mli_snapshot_take(lord, NULL);
}
static const mli_saver mli_snapshot_saver = {mli_snapshot_save};

MLI_API memlord_result memlord_checkpoint(memlord *lord, const char *name) {
    const char *kept;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    if (!name || !*name) return MEMLORD_E_INVALID;
    if (mli_self.in_host_alloc) return MEMLORD_OK;
    r = mli_name_limited(lord, name, &kept);
    if (r == MEMLORD_E_NOMEM) mli_loss_add(lord, MLI_LOST_snapshots);
    if (r == MEMLORD_OK) r = mli_snapshot_take(lord, kept);
    if (r == MEMLORD_OK)
        mli_event_record_other(lord, MEMLORD_EVENT_CHECKPOINT, 0, (uint64_t)(uintptr_t)kept, 0);
    return mli_call_end_uncounted(lord, r);
}

MLI_API memlord_result memlord_snapshots_start(memlord *lord, uint32_t interval_ms) {
    if (!lord) return MEMLORD_OK;
    if (interval_ms && interval_ms < MLI_RECORDER_MS_MIN) return MEMLORD_E_INVALID;
    if (mli_self.in_host_alloc) return MEMLORD_E_STATE;
    mli_recorder_start(lord, MLI_RECORDER_SNAPSHOTS, &mli_snapshot_saver,
                       interval_ms ? interval_ms : MLI_SNAPSHOT_MS_DEFAULT);
    return mli_snapshot_take(lord, NULL);
}
MLI_API memlord_result memlord_snapshots_stop(memlord *lord) {
    if (!lord) return MEMLORD_OK;
    if (mli_self.is_helper) return MEMLORD_E_STATE;
    mli_recorder_stop(lord, MLI_RECORDER_SNAPSHOTS);
    return MEMLORD_OK;
}
