#include "services/neighbours.h"
#include "services/pages.h"
#include "os/system.h"
#include "base/atomics.h"
#include "base/text.h"
#include "base/log.h"
#include "books/threads.h"
#include "books/counters.h"
#include "books/devices.h"
#include "books/limits.h"
#include "services/bands.h"
#include "services/room.h"
#include "calls/deferred.h"

#if !defined(MEMLORD_NO_NEIGHBOURS)

/* A device rests for a while after its collection callbacks ran and gave nothing back. While it
   rests, requests of neighbours run no callbacks for the device. Without such a rest, a neighbour
   that asks without end would keep this ledger collecting. */
typedef struct mli_rest {
    uint64_t until; /* when the rest ends, in ns; 0: the device does not rest */
    uint64_t ms;    /* of the rest, in ms; doubles with each run that gave nothing back */
    uint64_t live;  /* the device's live bytes when the rest began */
} mli_rest;
enum { MLI_REST_MS = 1000, MLI_REST_MS_MAX = 60000 };

struct mli_neighbours_state {
    mli_lock lock;         /* guards all members below but service, open and listener */
    struct mli_page *page; /* the mapped page; NULL: none is mapped */
    int slot;              /* number of the ledger's slot, or MLI_SLOT_... */
    int fd;                /* descriptor that holds the lock of the slot */
    uint64_t host_id;      /* identity of the memory that the process may use */
    int stall_fd;          /* by which the kernel tells of tasks that wait for memory; or -1 */
    mli_ptr service;       /* const mli_neighbours *; set by the first open */
    mli_page_slot mine;    /* the words that the ledger writes to its slot */
    const mli_phys *phys[MLI_SLOT_DEVICES]; /* the physical devices in the slot */
    mli_rest rests[MLI_SLOT_DEVICES];       /* the rests of the devices in the slot */
    struct mli_raise *raises;               /* the requests of this ledger that are not over */
    uint32_t at_bells; /* number of threads that ring a bell of the page or wait at one; the page
                          stays mapped until this number is 0 */
    int answers;       /* 1: a thread is answering requests */
    char path[MLI_PAGE_PATH];
    int removed;  /* 1: it was logged that the page was removed and cannot be joined again */
    int unfit;    /* 1: a device has no room in the slot; 2: the lack of room was also logged */
    mli_u32 open; /* 1: the host has opened a page */
    mli_helper listener;
};

/* Returns the identity of a physical device, or 0 if it has none. */
static uint64_t mli_phys_id(memlord *lord, const mli_phys *phys) {
    const uint64_t id = mli_u64_load(&phys->id);
    return id || phys != mli_phys_storage(lord, 0) ? id : lord->neighbours->host_id;
}

/* Returns the owner of another ledger's slot, or 0 if the slot is free or is this ledger's. */
static uint64_t mli_slot_owner(memlord *lord, uint32_t slot) {
    if ((int)slot == lord->neighbours->slot) return 0;
    return mli_slot_read(lord->neighbours->page, slot, MLI_SLOT_WORD(owner));
}

/* Adds up in *sum the figures of those devices of a slot whose identity is `id`. Returns the slot's
   owner, or 0 if the slot is free, has no such device, or changed its owner meanwhile. */
static MLI_COLD uint64_t mli_slot_sum(memlord *lord, uint32_t slot, uint64_t id,
                                      mli_page_device *sum) {
    const mli_page *page = lord->neighbours->page;
    const uint64_t owner = mli_slot_owner(lord, slot);
    size_t i;
    memset(sum, 0, sizeof *sum);
    for (i = 0; i < MLI_SLOT_DEVICES && owner; i++) {
        if (mli_slot_device(page, slot, i, MLI_DEVICE_WORD(id)) != id) continue;
        sum->id = id;
        sum->held = mli_add_saturated(
            sum->held, mli_slot_device(page, slot, i, MLI_DEVICE_WORD(held)));
        sum->failing |= mli_slot_device(page, slot, i, MLI_DEVICE_WORD(failing));
        sum->released += mli_slot_device(page, slot, i, MLI_DEVICE_WORD(released));
    }
    return sum->id && owner == mli_slot_owner(lord, slot) ? owner : 0;
}

/* Claims a free slot of the page for this ledger. Returns E_LIMIT if there is none, and
   E_UNSUPPORTED if the system refuses locks. *why gets the reason of a failure. */
static MLI_COLD memlord_result mli_slot_claim(memlord *lord, const char **why) {
    mli_page_slot *mine = &lord->neighbours->mine;
    mli_u64 *words;
    uint32_t i, s;
    int locked = -1;
    for (i = 0; i < MLI_PAGE_SLOTS; i++) {
        locked = mli_slot_lock(lord->neighbours->fd, i, 0);
        if (locked >= 0) break;
    }
    *why = locked > 0 ? "its file system or a sandbox refuses locks" : "all its slots are taken";
    if (locked) return locked > 0 ? MEMLORD_E_UNSUPPORTED : MEMLORD_E_LIMIT;
    words = lord->neighbours->page->slots[i];
    mli_u64_store_release(&words[MLI_SLOT_WORD(owner)], 0); /* pairs with mli_slot_read */
    memset(mine, 0, sizeof *mine);
    memset(lord->neighbours->phys, 0, sizeof lord->neighbours->phys);
    memset(lord->neighbours->rests, 0, sizeof lord->neighbours->rests);
    mine->pid = mli_pid();
    mine->started = lord->started_wall;
    mine->owner = mli_now() << 10 | (i + 1); /* no earlier claim had this number */
    for (s = 0; s < MLI_PAGE_SLOTS; s++) /* earlier requests do not concern this ledger */
        mine->answered[s] = mli_slot_read(lord->neighbours->page, s, MLI_SLOT_WORD(request));
    mli_words_store(words, mine, MLI_SLOT_WORDS);
    lord->neighbours->slot = (int)i;
    return MEMLORD_OK;
}

/* Fills in the bytes that the ledger holds on a physical device, and whether allocs fail. */
static MLI_COLD void mli_slot_device_fill(memlord *lord, mli_phys *phys, mli_page_device *out) {
    uint32_t i = 0;
    out->held = out->spare = 0;
    while ((i = mli_phys_next_dev(lord, phys, i)) != 0) {
        mli_device_record *device = mli_device_record_at(lord, i);
        const uint64_t live = mli_row_live(lord, MLI_BOOK_DEVICE, i);
        const uint64_t pool = mli_u64_load(&device->count[MLI_STAT_reserved]);
        /* Mapped files are page cache, which the figure `used` of a sample leaves out, too. */
        if (device->device.type == MEMLORD_DEVICE_MAPPED) continue;
        out->held = mli_add_saturated(out->held, pool > live ? pool : live);
        out->spare = mli_add_saturated(out->spare, pool > live ? pool - live : 0);
        out->spare = mli_add_saturated(out->spare,
                                       mli_u64_load(&device->count[MLI_STAT_pending]));
    }
    mli_lock_take(&phys->lock);
    out->failing = (uint64_t)phys->failing;
    mli_lock_drop(&phys->lock);
}

/* Returns the number of a physical device in the ledger's slot. A device without a number gets an
   unused one. Returns MLI_SLOT_DEVICES if no number is left. */
static MLI_COLD size_t mli_slot_device_of(memlord *lord, const mli_phys *phys) {
    size_t i, unused = MLI_SLOT_DEVICES;
    for (i = MLI_SLOT_DEVICES; i-- > 0;) {
        if (lord->neighbours->phys[i] == phys) return i;
        if (!lord->neighbours->phys[i]) unused = i;
    }
    if (unused < MLI_SLOT_DEVICES) lord->neighbours->phys[unused] = phys;
    return unused;
}

/* Returns 1 if a device rests (see mli_rest). A rest ends when its time is over, or when the
   device's live bytes have changed by more than an eighth. */
static MLI_COLD int mli_rests(const mli_rest *rest, uint64_t live) {
    const uint64_t moved = live > rest->live ? live - rest->live : rest->live - live;
    return rest->until && mli_ms_left(rest->until) && moved <= rest->live / 8;
}
/* Returns a mask in which bit k is 1 if device k of the ledger's slot rests. */
static MLI_COLD uint32_t mli_resting(memlord *lord) {
    uint32_t bits = 0, k;
    for (k = 0; k < MLI_SLOT_DEVICES; k++) {
        const mli_phys *phys = lord->neighbours->phys[k];
        if (phys && mli_rests(&lord->neighbours->rests[k], mli_phys_live(lord, phys)))
            bits |= (uint32_t)1 << k;
    }
    return bits;
}

/* Brings the ledger's slot up to date. Writes the whole slot and the head of the page, because
   another process may have overwritten them. */
static MLI_COLD void mli_slot_publish(memlord *lord) {
    mli_page_slot *mine = &lord->neighbours->mine;
    mli_page *page = lord->neighbours->page;
    uint32_t i;
    size_t k;
    for (i = 0; i < mli_row_count(lord, MLI_BOOK_DEVICE); i++) {
        mli_phys *phys = mli_phys_in_use(lord, i);
        uint64_t id = phys ? mli_phys_id(lord, phys) : 0;
        if (!id) continue;
        k = mli_slot_device_of(lord, phys);
        if (k < MLI_SLOT_DEVICES) {
            mine->devices[k].id = id;
            mli_slot_device_fill(lord, phys, &mine->devices[k]);
        } else if (!lord->neighbours->unfit) {
            lord->neighbours->unfit = 1;
        }
    }
    for (k = 0; k < MLI_SLOT_DEVICES; k++) { /* drops devices that have lost their identity */
        const mli_phys *phys = lord->neighbours->phys[k];
        if (phys && mli_phys_id(lord, phys) != mine->devices[k].id) mine->devices[k].id = 0;
    }
    mli_u32_store(&page->bells[lord->neighbours->slot].resting, mli_resting(lord));
    mli_u64_store(&page->magic, MLI_PAGE_MAGIC);
    mli_u64_store(&page->version, MLI_PAGE_VERSION);
    mli_words_store(page->slots[lord->neighbours->slot], mine, MLI_SLOT_WORDS);
}

/* Frees the slots of processes that have ended. */
static MLI_COLD void mli_slots_reap(memlord *lord) {
    uint32_t i;
    const int fd = lord->neighbours->fd;
    for (i = 0; i < MLI_PAGE_SLOTS; i++) {
        if (!mli_slot_owner(lord, i) || !mli_slot_is_free(fd, i) || mli_slot_lock(fd, i, 0))
            continue;
        /* Pairs with mli_slot_read. */
        mli_u64_store_release(&lord->neighbours->page->slots[i][MLI_SLOT_WORD(owner)], 0);
        (void)mli_slot_lock(fd, i, 1);
    }
}

/* Stores at each physical device the bytes that other ledgers hold there, for statistics, pressure
   levels and reports. Also stores for how many of these ledgers the device rests: see mli_rest. */
static MLI_COLD void mli_slots_note(memlord *lord) {
    uint32_t i, s;
    for (i = 0; i < mli_row_count(lord, MLI_BOOK_DEVICE); i++) {
        mli_phys *phys = mli_phys_in_use(lord, i);
        uint64_t id = phys ? mli_phys_id(lord, phys) : 0, held = 0, failing = 0;
        uint32_t resting = 0;
        mli_page_device sum;
        if (!phys) continue;
        for (s = 0; s < MLI_PAGE_SLOTS && id && lord->neighbours->page; s++) {
            if (!mli_slot_sum(lord, s, id, &sum)) continue;
            held = mli_add_saturated(held, sum.held);
            failing |= sum.failing;
            resting += (uint32_t)mli_slot_rests(lord->neighbours->page, s, id);
        }
        mli_lock_take(&phys->lock);
        phys->neighbours = held;
        phys->neighbour_failing = failing != 0;
        phys->neighbours_resting = resting;
        mli_lock_drop(&phys->lock);
    }
}

/* Maps the page at the ledger's path, and joins it. A forked child calls this function again. *why
   gets the reason if the page cannot be joined, else NULL. */
static MLI_COLD memlord_result mli_page_join(memlord *lord, const char **why) {
    memlord_result r;
    int fd = -1;
    mli_page *page = NULL;
    if (lord->neighbours->page) mli_page_unmap(lord->neighbours->page); /* in a forked child: its
                                                                           parent's page */
    lord->neighbours->page = NULL;
    r = mli_page_map(lord->neighbours->path, &page, &fd, why);
    if (r) return r;
    lord->neighbours->page = page;
    lord->neighbours->fd = fd;
    r = mli_slot_claim(lord, why);
    if (r == MEMLORD_OK) *why = NULL;
    if (r == MEMLORD_OK) return r;
    mli_page_unmap(page);
    mli_page_fd_close(fd);
    lord->neighbours->page = NULL;
    return r;
}

/* -- answers and requests -- */

/* Notes that a neighbour wants `wanted` bytes of the device with the identity `id`. For each device
   k of this ledger's slot, needed[k] is the bytes of the largest request plus 1, or 0 if no
   neighbour asks. Returns 1 if the neighbour waits for the answer. */
static MLI_COLD int mli_request_note(const mli_page_slot *mine, uint64_t id, uint64_t wanted,
                                     uint64_t *needed) {
    const uint64_t entry = wanted + (wanted != UINT64_MAX);
    int known = 0;
    size_t k;
    for (k = 0; k < MLI_SLOT_DEVICES; k++) {
        if (mine->devices[k].id != id) continue;
        known = 1;
        if (needed[k] < entry) needed[k] = entry;
    }
    return known && wanted;
}

/* Notes the requests that another ledger has made in slot `s` since this ledger last answered.
   `seen` is the number of the slot's last request. Compares numbers by their distance to `seen`,
   because the page may hold any number. Returns 1 if the other ledger waits for the answer. */
static MLI_COLD int mli_slot_requests(const mli_page *page, const mli_page_slot *mine, uint32_t s,
                                      uint64_t seen, uint64_t *needed) {
    size_t i;
    int waits = 0;
    for (i = 0; i < MLI_SLOT_DEVICES; i++) {
        const uint64_t id = mli_slot_device(page, s, i, MLI_DEVICE_WORD(id));
        const uint64_t asked = mli_slot_device(page, s, i, MLI_DEVICE_WORD(asked));
        const uint64_t wanted = mli_slot_device(page, s, i, MLI_DEVICE_WORD(wanted));
        if (!id || !asked) continue; /* `asked` is 0 until the ledger requests memory */
        if (seen - asked >= seen - mine->answered[s]) continue;
        waits |= mli_request_note(mine, id, wanted, needed);
    }
    return waits;
}

/* Reads the requests that other ledgers have made since this ledger last answered. `needed` gets
   the largest request for each device: see mli_request_note. seen[s] gets the number of the last
   request in slot s, which mli_answers_publish stores in answered[s]. Returns a mask with a bit for
   each slot: 1 if the ledger of the slot waits for the answer. */
static MLI_COLD uint64_t mli_requests_read(memlord *lord, uint64_t *needed, uint64_t *seen) {
    const mli_page *page = lord->neighbours->page;
    const mli_page_slot *mine = &lord->neighbours->mine;
    uint32_t s;
    uint64_t waiting = 0;
    for (s = 0; s < MLI_PAGE_SLOTS; s++) {
        seen[s] = mine->answered[s];
        if (!mli_slot_owner(lord, s)) continue;
        seen[s] = mli_slot_read(page, s, MLI_SLOT_WORD(request));
        if (seen[s] != mine->answered[s] && mli_slot_requests(page, mine, s, seen[s], needed))
            waiting |= (uint64_t)1 << s;
    }
    return waiting;
}

/* For each device of a phys, ends blocks (mli_fences_retire) and runs the collection callbacks,
   until these have reclaimed `needed` bytes, or for all if it is 0. Returns the reclaimed bytes.
   Sets *ran to 1 if a callback ran. */
static MLI_COLD uint64_t mli_neighbour_collect(memlord *lord, const mli_phys *phys,
                                               uint64_t needed, int *ran) {
    uint32_t i = 0;
    uint64_t all = 0, one;
    while ((i = mli_phys_next_dev(lord, phys, i)) != 0) {
        if (needed && all >= needed) break;
        (void)mli_fences_retire(lord, mli_device_record_at(lord, i)->device);
        if (mli_collect(lord, i, MEMLORD_REASON_NEIGHBOUR, needed ? needed - all : 0, &one) ==
            MEMLORD_OK) {
            all = mli_add_saturated(all, one);
            *ran = 1;
        }
    }
    return all;
}

/* Answers a request for a device. Returns the bytes that the device's callbacks reclaimed. Runs
   no callbacks and returns 0 while the device rests. */
static MLI_COLD uint64_t mli_request_answer(memlord *lord, const mli_phys *phys, uint64_t needed,
                                            mli_rest *rest) {
    uint64_t released;
    int ran = 0;
    if (mli_rests(rest, mli_phys_live(lord, phys))) return 0;
    released = mli_neighbour_collect(lord, phys, needed, &ran);
    if (ran) rest->ms = released ? 0 : rest->ms ? 2 * rest->ms : (uint64_t)MLI_REST_MS;
    if (rest->ms > MLI_REST_MS_MAX) rest->ms = MLI_REST_MS_MAX;
    rest->until = ran && rest->ms ? mli_now() + rest->ms * 1000000u : 0;
    rest->live = mli_phys_live(lord, phys);
    return released;
}

/* Publishes how many bytes were released of each device. Then publishes that the requests with the
   numbers in `seen` are answered, and rings the bells of the ledgers that wait. `waiting` has a bit
   for the slot of each of these ledgers. */
static MLI_COLD void mli_answers_publish(memlord *lord, const uint64_t *released,
                                         const uint64_t *seen, uint64_t waiting) {
    mli_page_slot *mine = &lord->neighbours->mine;
    mli_page *page = lord->neighbours->page;
    mli_u64 *answered = &page->slots[lord->neighbours->slot][MLI_SLOT_WORD(answered)];
    uint32_t s;
    size_t k;
    for (k = 0; k < MLI_SLOT_DEVICES; k++) mine->devices[k].released += released[k];
    mli_slot_publish(lord);
    for (s = 0; s < MLI_PAGE_SLOTS; s++) {
        if (seen[s] == mine->answered[s]) continue;
        mine->answered[s] = seen[s];
        mli_u64_store_release(&answered[s], seen[s]); /* pairs with mli_slot_read */
        if (waiting >> s & 1) mli_bell_ring(&page->bells[s].rings);
    }
}

/* Wakes this ledger's threads that wait for an answer. Then answers the requests of other ledgers,
   unless another thread is already answering them. No lock is held while host code runs. */
static MLI_COLD void mli_requests_answer(memlord *lord) {
    struct mli_neighbours_state *state = lord->neighbours;
    uint64_t needed[MLI_SLOT_DEVICES], released[MLI_SLOT_DEVICES], seen[MLI_PAGE_SLOTS];
    const mli_phys *phys[MLI_SLOT_DEVICES];
    mli_rest rests[MLI_SLOT_DEVICES];
    mli_raise *raise;
    uint64_t waiting = 0, owner = 0;
    size_t k;
    int answers;
    memset(needed, 0, sizeof needed);
    memset(released, 0, sizeof released);
    mli_lock_take(&state->lock);
    for (raise = state->raises; raise; raise = raise->next)
        if (raise->event) mli_os_event_set(raise->event);
    answers = state->slot >= 0 && !state->answers;
    if (answers) {
        state->answers = 1;
        owner = state->mine.owner;
        waiting = mli_requests_read(lord, needed, seen);
        memcpy(phys, state->phys, sizeof phys);
        memcpy(rests, state->rests, sizeof rests);
    }
    mli_lock_drop(&state->lock);
    if (!answers) return;
    for (k = 0; k < MLI_SLOT_DEVICES; k++)
        if (needed[k])
            released[k] = mli_request_answer(lord, phys[k], needed[k] - 1, &rests[k]);
    mli_lock_take(&state->lock);
    state->answers = 0;
    if (state->slot >= 0 && state->mine.owner == owner) { /* the ledger kept its slot */
        memcpy(state->rests, rests, sizeof rests);
        if (memcmp(seen, state->mine.answered, sizeof seen) != 0)
            mli_answers_publish(lord, released, seen, waiting);
    }
    mli_lock_drop(&state->lock);
}

/* If tasks have waited for main memory, runs the callbacks of the devices that use it. */
static MLI_COLD void mli_stall_poll(memlord *lord) {
    mli_phys *host = mli_phys_storage(lord, 0);
    int seen = 0, ran;
    mli_lock_take(&lord->neighbours->lock);
    if (lord->neighbours->stall_fd >= 0) seen = mli_stall_seen(lord->neighbours->stall_fd);
    if (seen < 0) {
        mli_page_fd_close(lord->neighbours->stall_fd);
        lord->neighbours->stall_fd = -1;
    }
    mli_lock_drop(&lord->neighbours->lock);
    mli_lock_take(&host->lock);
    if (seen > 0) host->stalled = mli_now();
    mli_lock_drop(&host->lock);
    if (seen > 0) (void)mli_neighbour_collect(lord, host, 0, &ran);
}

/* Does the work that is due once in each poll interval. It joins the page again after a fork,
   publishes the ledger's slot, frees the slots of ended processes, and reads the other slots. */
static MLI_COLD void mli_neighbours_round(memlord *lord) {
    const char *why = NULL;
    int unfit;
    uint32_t i;
    /* A capacity source may set the identity of its physical device when it is asked. */
    for (i = 1; i < mli_row_count(lord, MLI_BOOK_DEVICE); i++) {
        mli_phys *phys = mli_phys_in_use(lord, i);
        uint64_t sampled;
        if (!phys || mli_u64_load(&phys->id)) continue;
        mli_lock_take(&phys->lock);
        sampled = phys->sampled;
        mli_lock_drop(&phys->lock);
        if (!sampled) (void)mli_phys_sample(lord, phys); /* once: a source may block */
    }
    mli_lock_take(&lord->neighbours->lock);
    if (lord->neighbours->slot == MLI_SLOT_FORKED) {
        lord->neighbours->slot = MLI_SLOT_NONE;
        (void)mli_page_join(lord, &why);
    }
    if (lord->neighbours->slot >= 0) {
        mli_slot_publish(lord);
        mli_slots_reap(lord);
    }
    mli_slots_note(lord);
    unfit = lord->neighbours->unfit == 1;
    if (unfit) lord->neighbours->unfit = 2;
    mli_lock_drop(&lord->neighbours->lock);
    if (unfit)
        mli_log(lord, MEMLORD_LOG_WARNING, "[neighbours] more than 16 devices: the page has no "
                                           "room for the rest");
    if (why) mli_logf(lord, MEMLORD_LOG_WARNING, "[neighbours] the child works alone: %s", why);
}
/* Joins the page at the ledger's path in place of the present page, whose file was removed. If that
   fails, the ledger keeps its page, and *why gets the reason. */
static MLI_COLD void mli_page_exchange(memlord *lord, const char **why) {
    MLI_REQUIRE(mli_lock_held(&lord->neighbours->lock));
    struct mli_neighbours_state *n = lord->neighbours;
    mli_page *page = n->page;
    const int slot = n->slot, fd = n->fd;
    mli_raise *raise;
    n->page = NULL;
    n->slot = MLI_SLOT_NONE;
    if (mli_page_join(lord, why)) {
        n->page = page;
        n->slot = slot;
        n->fd = fd;
        return;
    }
    mli_slot_leave(page, slot, fd);
    for (raise = n->raises; raise; raise = raise->next)
        memset(raise->before, 0, sizeof raise->before); /* nobody answers these requests now */
}
/* Replaces the page if its file was removed, because ledgers that open the path later are on
   another page; but not while a thread uses a bell or answers requests. */
static MLI_COLD void mli_page_replace(memlord *lord) {
    struct mli_neighbours_state *n = lord->neighbours;
    const char *why = NULL;
    int tells = 0;
    mli_lock_take(&n->lock);
    if (n->slot >= 0 && !n->at_bells && !n->answers && mli_page_is_gone(n->fd)) {
        mli_page_exchange(lord, &why);
        tells = !why || !n->removed;
        n->removed = why != NULL;
    }
    mli_lock_drop(&n->lock);
    if (tells)
        mli_logf(lord, MEMLORD_LOG_WARNING, "[neighbours] %s was removed, and %s%s", n->path,
                 why ? "cannot be joined again: " : "is joined again", why ? why : "");
}
static MLI_COLD void mli_neighbours_serve(memlord *lord) {
    if (!mli_u32_load(&lord->neighbours->open)) return;
    mli_page_replace(lord);
    mli_neighbours_round(lord);
    mli_stall_poll(lord);
    mli_requests_answer(lord);
}

static MLI_COLD void mli_listener_run(void *user) {
    memlord *lord = (memlord *)user;
    struct mli_neighbours_state *n = lord->neighbours;
    mli_u32 none = {0}, *bell;
    uint64_t due = 0;
    uint32_t rung, open;
    mli_self.is_helper = 1;
    do {
        if (!mli_ms_left(due)) mli_page_replace(lord); /* this thread uses no bell here */
        mli_lock_take(&n->lock);
        n->at_bells += mli_self.is_helper; /* is_helper is 0 in a child that a callback forked */
        bell = n->slot < 0 ? &none : &n->page->bells[n->slot].rings;
        mli_lock_drop(&n->lock);
        rung = mli_u32_load(bell); /* before the work, so that a ring from here on ends the wait */
        open = mli_u32_load_acquire(&n->open); /* pairs with the exchange in mli_neighbours_end */
        if (open) mli_requests_answer(lord); /* first, because a neighbour waits */
        if (open && !mli_ms_left(due)) {
            mli_neighbours_round(lord);
            mli_stall_poll(lord);
            due = mli_now() + mli_poll_ns(lord);
        }
        if (open) mli_bell_wait(&n->listener, bell, rung, mli_ms_left(due));
        mli_lock_take(&n->lock);
        n->at_bells -= mli_self.is_helper;
        mli_lock_drop(&n->lock);
    } while (open);
}

static MLI_COLD memlord_result mli_listener_start(memlord *lord) {
    int bad;
    if (!mli_u32_load(&lord->neighbours->open) || !mli_polling_enabled(lord)) return MEMLORD_OK;
    bad = mli_helper_start(&lord->neighbours->listener, &lord->neighbours->open, 0,
                           MLI_HELPER_FAILED, mli_listener_run, lord);
    if (bad > 0)
        mli_logf(lord, MEMLORD_LOG_WARNING,
                 "[neighbours] no thread: memlord_gc_poll answers instead");
    return bad ? MEMLORD_E_NOMEM : MEMLORD_OK;
}

/* Joins the page again in a forked child, unless the child's listener has done so. */
static MLI_COLD void mli_forked_rejoin(memlord *lord) {
    int forked;
    mli_lock_take(&lord->neighbours->lock);
    forked = lord->neighbours->slot == MLI_SLOT_FORKED;
    mli_lock_drop(&lord->neighbours->lock);
    if (!forked) return;
    mli_neighbours_round(lord);
    (void)mli_listener_start(lord);
}

/* Returns the number of a physical device in the ledger's slot, or MLI_SLOT_DEVICES if it is not
   there. Requires: the neighbours lock, and a slot. */
static MLI_COLD size_t mli_published_device_of(memlord *lord, const mli_phys *phys) {
    const mli_page_slot *mine = &lord->neighbours->mine;
    size_t k = mli_slot_device_of(lord, phys);
    if (k == MLI_SLOT_DEVICES || !mine->devices[k].id) mli_slot_publish(lord); /* it may be new */
    for (k = 0; k < MLI_SLOT_DEVICES && lord->neighbours->phys[k] != phys;) k++;
    return k < MLI_SLOT_DEVICES && mine->devices[k].id ? k : MLI_SLOT_DEVICES;
}

/* Publishes a request for device k of the slot, and lists it. Requires: the neighbours lock. */
static MLI_COLD void mli_raise_publish(memlord *lord, size_t k, uint64_t needed, mli_raise *raise) {
    mli_page_slot *mine = &lord->neighbours->mine;
    const uint64_t now = mli_now(); /* the time, so that the numbers of a slot only grow */
    mli_page_device sum;
    uint32_t s;
    raise->id = mine->devices[k].id;
    raise->needed = needed;
    raise->number = mine->request < now ? now : mine->request + 1;
    for (s = 0; s < MLI_PAGE_SLOTS; s++) {
        raise->before[s].owner = mli_slot_sum(lord, s, raise->id, &sum);
        raise->before[s].held = sum.held;
        raise->before[s].released = sum.released;
    }
    mine->devices[k].wanted = needed;
    mine->devices[k].asked = mine->request = raise->number;
    mli_slot_publish(lord);
    raise->next = lord->neighbours->raises;
    lord->neighbours->raises = raise;
}
static MLI_COLD memlord_result mli_raise_begin(memlord *lord, const mli_phys *phys,
                                               uint64_t needed, mli_raise *raise) {
    mli_page *page = NULL;
    memlord_result r = MEMLORD_E_STATE;
    size_t k = MLI_SLOT_DEVICES;
    uint32_t s;
    if (!mli_u32_load(&lord->neighbours->open)) return r;
    mli_forked_rejoin(lord);
    mli_lock_take(&lord->neighbours->lock);
    if (lord->neighbours->slot >= 0) {
        k = mli_published_device_of(lord, phys);
        r = k < MLI_SLOT_DEVICES ? MEMLORD_OK : MEMLORD_E_UNKNOWN;
    }
    if (r == MEMLORD_OK) {
        mli_raise_publish(lord, k, needed, raise);
        page = lord->neighbours->page;
        lord->neighbours->at_bells++;
    }
    mli_lock_drop(&lord->neighbours->lock);
    if (r) return r;
    for (s = 0; s < MLI_PAGE_SLOTS; s++) /* not under the lock, which the answers need */
        if (raise->before[s].owner) mli_bell_ring(&page->bells[s].rings);
    mli_lock_take(&lord->neighbours->lock);
    lord->neighbours->at_bells--;
    mli_lock_drop(&lord->neighbours->lock);
    return r;
}
static MLI_COLD void mli_raise_end(memlord *lord, mli_raise *raise) {
    mli_raise **at;
    mli_lock_take(&lord->neighbours->lock);
    for (at = &lord->neighbours->raises; *at && *at != raise;) at = &(*at)->next;
    if (*at) *at = raise->next;
    mli_slots_note(lord); /* after an answer the neighbour's device may rest */
    mli_lock_drop(&lord->neighbours->lock);
}

static MLI_COLD int mli_raise_check(memlord *lord, const mli_raise *raise) {
    uint64_t released = 0;
    uint32_t s;
    int asked = 0;
    mli_page_device sum;
    mli_lock_take(&lord->neighbours->lock);
    for (s = 0; s < MLI_PAGE_SLOTS && lord->neighbours->slot >= 0; s++) {
        const uint64_t owner = raise->before[s].owner;
        uint64_t answered;
        if (!owner) continue;
        answered = mli_slot_read(lord->neighbours->page, s,
                                 MLI_SLOT_WORD(answered) + (size_t)lord->neighbours->slot);
        if (mli_slot_sum(lord, s, raise->id, &sum) != owner) {
            released = mli_add_saturated(released, raise->before[s].held);
            continue;
        }
        asked += (int64_t)(answered - raise->number) < 0;
        released = mli_add_saturated(released, sum.released - raise->before[s].released);
    }
    mli_lock_drop(&lord->neighbours->lock);
    return released >= raise->needed ? 1 : asked ? 0 : -1;
}

/* Gives up the slot in a forked child, because the slot and its lock are the parent's. */
static MLI_COLD void mli_neighbours_forked(memlord *lord) {
    if (lord->neighbours->slot >= 0) {
        mli_page_fd_close(lord->neighbours->fd);
        lord->neighbours->slot = MLI_SLOT_FORKED;
    }
    lord->neighbours->raises = NULL;
    lord->neighbours->at_bells = 0;
    lord->neighbours->answers = 0;
    mli_u32_store(&lord->neighbours->listener.state, MLI_HELPER_NONE);
    if (mli_u32_load(&lord->neighbours->open)) mli_alert_set(lord, MLI_ALERT_POLLER, 1);
}

static MLI_COLD void mli_neighbours_end(memlord *lord) {
    struct mli_neighbours_state *state = lord->neighbours;
    mli_raise *raise;
    unsigned spins = 0;
    if (!mli_u32_load(&state->open)) return;
    (void)mli_u32_exchange(&state->open, 0); /* pairs with mli_helper_start */
    mli_lock_take(&state->lock);
    if (state->slot >= 0)
        mli_bell_ring(&state->page->bells[state->slot].rings);
    mli_lock_drop(&state->lock);
    mli_helper_stop(&state->listener);
    mli_lock_take(&state->lock);
    while (state->at_bells) {
        mli_lock_drop(&state->lock);
        mli_spin_wait(&spins);
        mli_lock_take(&state->lock);
    }
    if (state->slot >= 0)
        mli_slot_leave(state->page, state->slot, state->fd);
    else if (state->page) /* in a forked child: the page that its parent mapped */
        mli_page_unmap(state->page);
    if (state->stall_fd >= 0) mli_page_fd_close(state->stall_fd);
    state->stall_fd = -1;
    state->page = NULL;
    state->slot = MLI_SLOT_NONE;
    mli_slots_note(lord);
    for (raise = state->raises; raise; raise = raise->next)
        if (raise->event) mli_os_event_set(raise->event);
    mli_lock_drop(&state->lock);
}

static const mli_neighbours mli_neighbours_service = {
    mli_neighbours_serve, mli_listener_start, mli_raise_begin,           mli_raise_end,
    mli_raise_check,      mli_neighbours_end, mli_neighbours_forked,
};

MLI_PRIVATE MLI_COLD const mli_neighbours *mli_neighbours_of(memlord *lord) {
    return (const mli_neighbours *)mli_ptr_load_acquire(&lord->neighbours->service);
}

/* -- life; the functions that need a page are called through `service`: see mli_neighbours -- */

static MLI_COLD void mli_neighbours_init(memlord *lord, const memlord_desc *desc) {
    (void)desc;
    mli_lock_rank(&lord->neighbours->lock, MLI_RANK_NEIGHBOURS);
    lord->neighbours->slot = MLI_SLOT_NONE;
    lord->neighbours->fd = lord->neighbours->stall_fd = -1;
}
static MLI_COLD void mli_neighbours_stop(memlord *lord) {
    const mli_neighbours *service = mli_neighbours_of(lord);
    if (service) service->end(lord);
}
static MLI_COLD void mli_neighbours_lock(memlord *lord, int take) {
    mli_lock_set(&lord->neighbours->lock, take);
}
static MLI_COLD void mli_neighbours_mend(memlord *lord) {
    const mli_neighbours *service = mli_neighbours_of(lord);
    if (service) service->forked(lord);
}
MLI_PRIVATE const mli_life mli_neighbours_life = {MLI_LIFE_STATE(neighbours), mli_neighbours_init,
                                                  NULL, mli_neighbours_stop, mli_neighbours_lock,
                                                  mli_neighbours_mend, NULL};

/* -- public -- */

MLI_API memlord_result memlord_device_id_set(memlord *lord, memlord_device device,
                                             const char *text) {
    mli_phys *phys;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    r = mli_phys_find(lord, device, 1, &phys);
    if (r) return r;
    mli_u64_store(&phys->id, text && *text ? mli_text_hash(text) : 0);
    return MEMLORD_OK;
}

MLI_API memlord_result memlord_pressure_open(memlord *lord, const char *name) {
    const char *why = "a page is open already";
    char path[MLI_PAGE_PATH], stall[1100];
    uint64_t host;
    memlord_result r = MEMLORD_E_STATE;
    mli_out o;
    if (!lord) return MEMLORD_OK;
    if (mli_self.in_host_alloc) return MEMLORD_E_STATE;
    stall[0] = 0;
    mli_out_buffer(&o, path, sizeof path);
    if (!name || !strchr(name, '/')) mli_put_page_path(&o);
    mli_put_str(&o, name && *name ? name : "default");
    if (mli_out_end(&o, sizeof path) >= sizeof path) {
        mli_logf(lord, MEMLORD_LOG_ERROR, "[neighbours] the name has over %ju bytes",
                 (uint64_t)sizeof path - 1);
        return MEMLORD_E_INVALID;
    }
    host = mli_host_id(lord, mli_proc_root(lord), stall, sizeof stall);
    mli_lock_take(&lord->neighbours->lock);
    if (!lord->neighbours->page && !mli_u32_load(&lord->neighbours->open)) {
        memcpy(lord->neighbours->path, path, sizeof path);
        lord->neighbours->host_id = host;
        lord->neighbours->slot = MLI_SLOT_NONE;
        r = mli_page_join(lord, &why);
        lord->neighbours->stall_fd = r ? -1 : mli_stall_open(stall);
        if (r == MEMLORD_OK) {
            mli_ptr_store_release(&lord->neighbours->service,
                                  (void *)(uintptr_t)&mli_neighbours_service);
            mli_u32_store(&lord->neighbours->open, 1);
        }
    }
    mli_lock_drop(&lord->neighbours->lock);
    if (r) {
        mli_logf(lord, MEMLORD_LOG_ERROR, "[neighbours] %s: %s", path, why);
        return r;
    }
    mli_neighbours_serve(lord);
    (void)mli_listener_start(lord); /* if none starts, memlord_gc_poll answers requests */
    return MEMLORD_OK;
}

MLI_API memlord_result memlord_pressure_close(memlord *lord) {
    if (!lord || !mli_u32_load(&lord->neighbours->open)) return MEMLORD_OK;
    if (mli_self.is_helper || mli_self.in_host_alloc) return MEMLORD_E_STATE;
    mli_neighbours_end(lord);
    return MEMLORD_OK;
}

MLI_API memlord_result memlord_pressure_raise(memlord *lord, memlord_device device,
                                              uint64_t needed) {
    mli_raise raise;
    mli_os_event event;
    mli_phys *phys;
    memlord_result r;
    uint64_t deadline;
    uint32_t left;
    int done = 0;
    if (!lord) return MEMLORD_OK;
    r = mli_phys_find(lord, device, 0, &phys);
    if (r) return r;
    if (mli_self.in_host_alloc || !mli_u32_load(&lord->neighbours->open)) return MEMLORD_E_STATE;
    if (mli_os_event_open(&event)) return MEMLORD_E_NOMEM;
    raise.event = &event;
    r = mli_raise_begin(lord, phys, needed, &raise);
    deadline = mli_now() + (uint64_t)MLI_PAGE_ANSWER_MS * 1000000u;
    while (r == MEMLORD_OK && !(done = mli_raise_check(lord, &raise)) &&
           (left = mli_ms_left(deadline)) != 0) {
        const uint32_t step = mli_poll_ms(lord);
        mli_os_event_wait(&event, left < step ? left : step);
    }
    if (r == MEMLORD_OK) {
        mli_raise_end(lord, &raise);
        if (done <= 0) r = mli_u32_load(&lord->neighbours->open) ? MEMLORD_E_OOM : MEMLORD_E_STATE;
    }
    mli_os_event_close(&event);
    return r;
}

#else

MLI_PRIVATE MLI_COLD const mli_neighbours *mli_neighbours_of(memlord *lord) {
    (void)lord;
    return NULL;
}
MLI_PRIVATE const mli_life mli_neighbours_life = {0, 0, NULL, NULL, NULL, NULL, NULL, NULL};

MLI_API memlord_result memlord_device_id_set(memlord *lord, memlord_device device,
                                             const char *text) {
    (void)device, (void)text;
    return lord ? MEMLORD_E_UNSUPPORTED : MEMLORD_OK;
}
MLI_API memlord_result memlord_pressure_open(memlord *lord, const char *name) {
    (void)name;
    return lord ? MEMLORD_E_UNSUPPORTED : MEMLORD_OK;
}
MLI_API memlord_result memlord_pressure_close(memlord *lord) {
    return lord ? MEMLORD_E_UNSUPPORTED : MEMLORD_OK;
}
MLI_API memlord_result memlord_pressure_raise(memlord *lord, memlord_device device,
                                              uint64_t needed) {
    (void)device, (void)needed;
    return lord ? MEMLORD_E_UNSUPPORTED : MEMLORD_OK;
}
#endif
