/* -- capacity --
   The size of a device and its used bytes, from a source per device type. The cpu's is built
   in: the machine, or the container's memory limit with the page cache left out. Others are
   the host's. On Linux, from 3.14 on, it reads /proc/meminfo and the limits of this process's
   cgroup and those above it, below /sys/fs/cgroup (v2) or /sys/fs/cgroup/memory (v1); cgroups
   mounted elsewhere read as the machine. A sample that failed, or makes no sense (a total of
   0, used over total), is unknown, never 0.

   memlord_headroom, _would_fit, _plan_fit, _explain, _pressure_level and reports share one figure
   for the bytes in use: `used` of the latest sample, plus what the ledger recorded since, less
   what was freed since, on all devices of the physical device. So one thread that asks before each
   alloc never gets more than was free at the sample. Mapped files do not count: they are page
   cache. A device with a pool counts by its live bytes or by what the pool holds, whichever is
   more. Frees on the cpu take nothing off until the next sample, as the allocator below may keep
   the memory. Bytes that are allocated and freed there again and again count once, within a
   counter_batch a thread. The figure is never below what the ledger's own devices hold.

   These readers take a sample themselves if none is known, or if the latest one is older than
   three poll intervals and no poller runs. They ask a source that fails at most once in an
   interval. They ask no source with MEMLORD_FLAG_DEFER, nor inside a collection callback, a
   source, a try function, a fence, a logger or the ledger's allocator. Such a sample runs no
   collection; the next recorded call looks at the bands. memlord_write, memlord_save and exports
   first do the same for every device. The reports of memlord_request_save, and those at exit and
   at destroy, ask the built-in source alone. */

/* Another process that holds memory of a device. */
typedef struct memlord_other {
    uint64_t pid;
    uint64_t bytes;
} memlord_other;

#define MEMLORD_OTHERS 8

/* `context` is what the driver holds on its own for this process: its context, modules, stacks. It
   is a part of `process`, if that is known, and is not live: reports show it, and take it off what
   is unaccounted. `others` are the largest other processes, the largest first; a pid of 0 ends
   them. memlord_explain and reports show them, with their names where Linux tells those. */
typedef struct memlord_capacity {
    uint64_t total, used; /* bytes, of everybody */
    uint64_t process;     /* this process's own share of used; 0: the source cannot tell */
    uint64_t age_ns;      /* how old the sample is; a source leaves it alone */
    int known;            /* 0: the other fields mean nothing; a source leaves it alone */
    uint64_t context;     /* bytes; 0: the source cannot tell */
    memlord_other others[MEMLORD_OTHERS];
} memlord_capacity;

/* Fills total and used, and process, context and others if it can: they are 0 before. Returns 0;
   non-zero: the capacity is not known. Runs on the poller, or on a thread that asks for a sample or
   reads a capacity; one at a time for a device; may block. */
typedef int (*memlord_capacity_fn)(void *user, memlord_device device, memlord_capacity *out);

/* Sets the source of a device type; NULL goes back to the built-in one. Forgets the old source's
   samples, and waits for a call of it in progress on another thread.
   Errors: E_DEVICE. */
MEMLORD_API memlord_result memlord_capacity_source_set(memlord *lord, int type,
                                                       memlord_capacity_fn fn, void *user)
    MLI_OFF(MEMLORD_OK)

/* Reads the latest sample, as the source gave it; queries no source. Never sampled is known = 0,
   MEMLORD_OK.
   Errors: E_INVALID `out` NULL; E_DEVICE. Cost: a lock of one device and the clock. */
MEMLORD_API memlord_result memlord_capacity_get(memlord *lord, memlord_device device,
                                                memlord_capacity *out)
    MLI_OFF_SET(if (out) memset(out, 0, sizeof *out), MEMLORD_OK)

/* Queries the source now. Errors: E_UNSUPPORTED the type has none; E_UNKNOWN it failed, or made
   no sense; E_STATE one is being taken; E_DEVICE; E_NOMEM. Cost: the source's. */
MEMLORD_API memlord_result memlord_capacity_sample(memlord *lord, memlord_device device)
    MLI_OFF(MEMLORD_OK)

/* Samples every device that has a source each `interval_ms` (0: 200, at least 10), on a thread
   for each. Starts by itself when a device is used that has all three: a capacity source, a
   callback that serves MEMLORD_REASON_BAND, and a strategy. MEMLORD_POLL_INTERVAL_MS overrides the
   interval. Stop joins the threads; then none starts by itself until the next start. Without a
   poller memlord_gc_poll samples what has grown old, and so do the readers of a capacity.
   Errors: E_INVALID an interval of 1 to 9; E_UNSUPPORTED no threads in this build or with
           MEMLORD_FLAG_NO_THREADS; E_NOMEM the system gives no thread now: a later start tries
           again; stop: E_STATE on a thread of MemLord's own. */
MEMLORD_API memlord_result memlord_poller_start(memlord *lord, uint32_t interval_ms)
    MLI_OFF(MEMLORD_OK)
/* Stops the threads of memlord_poller_start and joins them.
   Errors: E_STATE on a thread of MemLord's own. */
MEMLORD_API memlord_result memlord_poller_stop(memlord *lord) MLI_OFF(MEMLORD_OK)

/* -- limits --
   A limit refuses memlord_reserve and memlord_alloc_retry, never memlord_alloc, which records an
   alloc that has happened. The limit of an account refuses the same calls. They keep live bytes
   plus tickets at or below both limits. Bytes that a pool has reserved and not allocated do not
   count. A refusal is logged, and counts in no statistic: oom_failures counts those of the
   device. */

/* Sets the limit of a physical device; 0 is none. It may be below the live bytes: then requests
   are refused until enough is freed. Errors: E_DEVICE; E_NOMEM. */
MEMLORD_API memlord_result memlord_limit_set(memlord *lord, memlord_device device,
                                             uint64_t bytes) MLI_OFF(MEMLORD_OK)

/* Sets the limit to a fraction of the capacity, and changes it with the capacity. Takes a sample if
   none is known.
   Errors: E_INVALID not 0 < fraction <= 1; E_UNKNOWN the capacity is not known. */
MEMLORD_API memlord_result memlord_limit_set_fraction(memlord *lord, memlord_device device,
                                                      double fraction) MLI_OFF(MEMLORD_OK)

/* Returns the smaller of limit - live bytes and capacity - bytes in use, minus what open tickets
   keep. Negative: so many bytes too many. INT64_MAX: neither limit nor capacity is known. A device
   that is new to the ledger is added if its type has a source.
   Cost: some tens of ns, and a few ns a thread; when it takes a sample, that of the source, too. */
MEMLORD_API int64_t memlord_headroom(memlord *lord, memlord_device device)
    MLI_OFF(INT64_MAX)

/* 1: so many bytes fit; 0: they do not; -1: neither limit nor capacity is known. */
MEMLORD_API int memlord_would_fit(memlord *lord, memlord_device device, uint64_t bytes)
    MLI_OFF(-1)

/* The same for a whole plan, each block on its device (`storage` is ignored). *short_by, if
   not NULL, is how many bytes the worst device lacks; negative: every device has that many to
   spare or more; 0 where -1 is returned, as for a plan with something that is no device. */
MEMLORD_API int memlord_plan_fit(memlord *lord, const memlord_block *blocks, size_t n,
                                 int64_t *short_by)
    MLI_OFF_SET(if (short_by) *short_by = 0, -1)

/* Writes in one line how many bytes short a request of `wanted` is, and the holders of the physical
   device: limit, capacity, tickets, other processes, and the largest tags and sites, with untagged
   bytes and arenas among them. Each has its device where several share the memory. The line also
   has the bytes of what is not listed, how many requests failed on this device before, and how many
   neighbours rest there: see memlord_pressure_raise. Follows snprintf; allocates nothing. Logged by
   itself when an allocation fails for good and, as a warning at most once a second, when a
   reservation is refused; without a logger nothing is walked.
   Cost: walks tags and sites. */
MEMLORD_API size_t memlord_explain(memlord *lord, memlord_device device, uint64_t wanted,
                                   char *buf, size_t cap)
    MLI_OFF_SET(if (buf && cap) buf[0] = 0, 0)

/* -- reservations: admission -- */

typedef uint64_t memlord_ticket; /* 0 is none */

/* Reserves bytes of a device's limit and headroom for allocs to come: reserve, allocate,
   memlord_alloc, commit. A ticket belongs to the thread that reserved or adopted it: what that
   thread records on the device comes off the ticket, so that nothing counts twice. So does what
   memlord_alloc_retry records there: it needs room only for what the ticket lacks. On other
   threads name the ticket: memlord_alloc_with. memlord_reserve_commit gives back what is left of
   the ticket. Any thread may call it. Call it for a request that failed, too. Without a limit
   everything is granted. memlord_reserve runs no collection and waits for nothing. On E_LIMIT call
   memlord_gc_run with MEMLORD_REASON_LIMIT and the bytes as `needed`, and try again if it gave back
   something; or use memlord_alloc_retry; or wait until the host has freed something. A free does
   not refill a ticket. The allocs of a thread come off its 8 latest tickets; allocs beyond them
   count in full, unless they name a ticket. A thread may hold any number of tickets for others
   that name them.
   Errors: E_LIMIT over the limit of the device, or of the account that this thread uses there (a
           warning, with memlord_explain or the account, at most once a second), also over 2^62 in
           all: *out is 0; E_INVALID over 2^48 or `out` NULL; E_DEVICE; E_NOMEM; E_STATE called by
           the ledger's own allocator. Commit and adopt: E_UNKNOWN not an open ticket of this
           ledger. */
MEMLORD_API memlord_result memlord_reserve(memlord *lord, memlord_device device,
                                           uint64_t bytes, memlord_ticket *out)
    MLI_OFF_SET(if (out) *out = 0, MEMLORD_OK)
/* Ends a ticket, and returns what no alloc has drawn, on any thread. */
MEMLORD_API memlord_result memlord_reserve_commit(memlord *lord, memlord_ticket ticket)
    MLI_OFF(MEMLORD_OK)

/* Moves a ticket to this thread: an acceptor reserves, a worker adopts. One's own is OK. */
MEMLORD_API memlord_result memlord_reserve_adopt(memlord *lord, memlord_ticket ticket)
    MLI_OFF(MEMLORD_OK)

/* -- accounts: bytes charged to a request or a user -- */

typedef uint64_t memlord_account; /* 0 is none */

typedef struct memlord_account_stat {
    char name[48]; /* cut to fit */
    memlord_device device;
    uint64_t bytes, peak;
    uint64_t limit;   /* 0: none */
    uint64_t refused; /* charges, blocks and requests over the limit */
} memlord_account_stat;

/* Opens an account. It adds nothing to the device. Reports list the open ones. The id of a closed
   account is never that of a later one. `name` may be NULL. Errors: E_INVALID; E_DEVICE;
   E_NOMEM. */
MEMLORD_API memlord_result memlord_account_open(memlord *lord, memlord_device device,
                                                const char *name, uint64_t limit,
                                                memlord_account *out)
    MLI_OFF_SET(if (out) *out = 0, MEMLORD_OK)

/* Adds to it, or takes from it, from any thread. What tickets hold of it counts against the limit.
   Errors: E_LIMIT over its limit (or 2^48); E_INVALID below 0; E_UNKNOWN closed. Nothing has
           changed then. Cost: a few atomics. */
MEMLORD_API memlord_result memlord_account_charge(memlord *lord, memlord_account account,
                                                  int64_t bytes) MLI_OFF(MEMLORD_OK)

/* Charges what this thread allocates on the account's device from now on, also by
   memlord_alloc_with, and credits it when the block ends, on whichever thread. Do not charge
   the same bytes by memlord_account_charge. Such allocs are recorded whatever the account's limit;
   those over it count in `refused`. memlord_reserve and memlord_alloc_retry keep to the limit: a
   request for more than is left returns E_LIMIT, as over the device's. Their tickets hold bytes of
   the account, too, until an alloc comes off them or they are committed. A thread uses one account
   at a time, until the next call; 0 ends it, and so does the end of the thread. A resized block is
   charged its new bytes. A move to another device ends the charge; what arrives there is charged as
   an alloc. Arenas are not charged.
   Cost: these blocks take the general path, and 250 bytes more.
   Errors: E_UNKNOWN closed; E_NOMEM. The account used before stays. */
MEMLORD_API memlord_result memlord_account_use(memlord *lord, memlord_account account)
    MLI_OFF(MEMLORD_OK)
/* Reads an account. Errors: E_INVALID; E_UNKNOWN closed. *out is zero then. */
MEMLORD_API memlord_result memlord_account_get(memlord *lord, memlord_account account,
                                               memlord_account_stat *out)
    MLI_OFF_SET(if (out) memset(out, 0, sizeof *out), MEMLORD_OK)
/* Closes it, whatever it holds. Blocks charged to it live on, charged to none. */
MEMLORD_API memlord_result memlord_account_close(memlord *lord, memlord_account account)
    MLI_OFF(MEMLORD_OK)

/* -- one alloc, with all that can be said of it -- */

/* The options of memlord_alloc_with and memlord_alloc_retry. A field that is 0 or NULL takes what
   the thread has; a NULL site is no site. MEMLORD_NONE stands for UINT64_MAX, which is no stream
   here, and no ticket. */
typedef struct memlord_alloc_opts {
    const memlord_site *site; /* NULL: none */
    const char *tag;          /* copied; "": no tag */
    memlord_ticket ticket;    /* the only one that the bytes come off */
    memlord_account account;  /* MEMLORD_NONE: no account, and no account's limit applies */
    uint64_t stream;          /* MEMLORD_NONE: the default stream */
} memlord_alloc_opts;

/* Records an alloc as memlord_alloc does, with its own tag, ticket, account and stream. `opts` NULL
   is memlord_alloc without a site. A named ticket serves any thread: one scheduler, any number of
   requests. Bytes beyond it count in full. A ticket that is closed or of another physical device,
   and an account that is closed or of another device, are taken as 0: the alloc is recorded with
   what the thread has in its place, counts in `refused`, and returns MEMLORD_OK.
   Errors: as memlord_alloc. Without memory for the tag the alloc has none, as after
           memlord_tag_begin. Cost: the general path, some tens of ns. */
MEMLORD_API memlord_result memlord_alloc_with(memlord *lord, memlord_device device,
                                              uint64_t storage, uint64_t bytes,
                                              const memlord_alloc_opts *opts) MLI_OFF(MEMLORD_OK)

/* The name of 0.4 for memlord_alloc_with with a ticket. The next release leaves it out. */
MLI_INLINE memlord_result memlord_alloc_reserved(memlord *lord, memlord_ticket ticket,
                                                 memlord_device device, uint64_t storage,
                                                 uint64_t bytes, const memlord_site *site) {
    memlord_alloc_opts opts;
    memset(&opts, 0, sizeof opts);
    opts.site = site;
    opts.ticket = ticket;
    return memlord_alloc_with(lord, device, storage, bytes, &opts);
}

/* -- bands: when a collection pays --
   A strategy is a list of bands over the used % of a device. The first band with lo <= used% <
   hi decides: a collection is due when its metric is at or above its threshold, the larger (or,
   with COMBINE_MIN, the smaller) of `bytes` and `percent`. Percent is of the capacity, or of the
   limit where one is set and smaller; for CACHED of what the pool has reserved. Of the two, one
   that is 0 is not used.
   used % is of the capacity, or of the limit where only that is known. While neither is known
   only a band that covers 0 to 100 counts, and percent not at all.
   A band fires again after its metric has been below 7/8 of the threshold. It also fires again
   when its metric has grown by 1/8 of the threshold since the last run, a failed run included. A
   new strategy and memlord_reset let it fire at once; a change of band alone does not. So a band
   is no upper bound: a run that could not give enough back is not tried again at once.
   The most specific strategy decides for a device: its own, its type's, that of all. It is in
   force once a callback that serves MEMLORD_REASON_BAND matches the device. */

typedef enum memlord_metric {
    MEMLORD_METRIC_ALLOCATED, /* live bytes of the device */
    MEMLORD_METRIC_FREED,     /* bytes freed there since the last collection */
    MEMLORD_METRIC_MAX,       /* the larger of the two */
    MEMLORD_METRIC_RESERVED,  /* what the pool holds: memlord_pool_set */
    MEMLORD_METRIC_CACHED     /* what the pool holds and has not allocated: rises on frees */
} memlord_metric;
typedef enum memlord_combine { MEMLORD_COMBINE_MAX, MEMLORD_COMBINE_MIN } memlord_combine;

typedef struct memlord_band {
    double lo, hi; /* used %, half open; 101 is above everything */
    memlord_metric metric;
    uint64_t bytes;
    double percent;
    memlord_combine combine;
} memlord_band;

/* Sets the strategy of a device, of a type, or of all; n = 0 switches bands off there. Copied. A
   selector that matches no device yet is kept for when it does. Overlaps, gaps and an uncovered
   100 % are logged as warnings.
   Errors: E_INVALID a band is bad (logged, naming it); E_DEVICE; E_NOMEM. The old one stays. */
MEMLORD_API memlord_result memlord_strategy_set(memlord *lord, memlord_device sel,
                                                const memlord_band *bands, size_t n)
    MLI_OFF(MEMLORD_OK)
/* Takes off the strategy of exactly this selector: a less specific one decides again. That of
   all goes back to the default one.
   Errors: E_DEVICE; E_UNKNOWN none was set. */
MEMLORD_API memlord_result memlord_strategy_unset(memlord *lord, memlord_device sel)
    MLI_OFF(MEMLORD_OK)
/* Looks for bands with lo >= hi, NaN, negative numbers, no threshold or an unknown metric.
   Errors: E_INVALID, and *bad, if not NULL, is the index of the first. */
MEMLORD_API memlord_result memlord_strategy_check(const memlord_band *bands, size_t n,
                                                  size_t *bad)
    MLI_OFF_SET(if (bad) *bad = 0, MEMLORD_OK)
/* Returns the strategy of all devices while the host sets none and MEMLORD_FLAG_NO_STRATEGY is
   not given: {0,50: max, 50 %}, {50,75: max, 33 %}, {75,101: freed, 10 %}. */
MEMLORD_API const memlord_band *memlord_strategy_default(size_t *n)
    MLI_OFF_SET(if (n) *n = 0, NULL)

/* -- collection -- */

/* Why a collection runs. name, text */
#define MLI_REASONS(X)                                                                        \
    X(BAND, "band") /* a threshold of the strategy is crossed */                              \
    X(OOM, "out of memory") /* memlord_alloc_retry found no memory */                         \
    X(LIMIT, "limit") /* a request does not fit under the limit */                            \
    X(NEIGHBOUR, "neighbour") /* another process asks for memory: memlord_pressure_open */    \
    X(FRAGMENTATION, "fragmentation") /* for memlord_gc_run: the pool is in pieces */         \
    X(HOST, "host") /* for memlord_gc_run: the host wants it */
enum {
#define MLI_X(name, text) MEMLORD_REASON_##name,
    MLI_REASONS(MLI_X)
#undef MLI_X
    MEMLORD_REASON_COUNT
};

typedef struct memlord_gc_event {
    memlord_device device;
    int reason;              /* MEMLORD_REASON_... */
    double used_percent;     /* NaN: unknown */
    size_t band;             /* its index in the strategy; SIZE_MAX: none has fired */
    memlord_metric metric;
    uint64_t value, threshold; /* of the metric; without a band: the live bytes, and 0 */
    uint64_t needed;         /* bytes wanted; 0, as of a band: no number */
    uint64_t device_runs, total_runs; /* this one included, failed ones too */
} memlord_gc_event;

typedef struct memlord_gc_result {
    int ran;            /* 0: could not; nothing is reset, counted in gc_failed */
    int family;         /* 1: freed starts over for every device of the type, as this run gave
                           memory of all of them back; 0: for this device alone */
    uint64_t reclaimed; /* bytes given back, as far as known */
} memlord_gc_result;

/* Gives memory back: drops a cache, trims a pool. Runs on the thread whose call crossed the
   threshold, inside that call, under whatever locks the host holds there, but none of ours (see
   MEMLORD_FLAG_DEFER). May call anything but memlord_destroy. If that call is a free, your
   allocator has not taken the block back yet. At most one run at a time for a device; others do
   not wait. One callback may run for two devices at once. */
typedef memlord_gc_result (*memlord_gc_fn)(void *user, memlord *lord,
                                           const memlord_gc_event *event);

enum {
    MEMLORD_GC_QUIET = 1 << 30 /* in `reasons`: bands call it only if the program has set a
                                  strategy. For a library that adds a callback on its behalf */
};

/* Adds a callback for a device, a type, or all. `reasons` is a sum of 1 << MEMLORD_REASON_...;
   0 is all. Bands are among them: until the host sets a strategy, the default one calls it
   (memlord_strategy_default), once the capacity or a limit is known. Callbacks that match a device
   add up: the device's own run first, then its type's, then those of all, each in the order they
   came; their results are added.
   Errors: E_INVALID fn NULL, or an unknown reason; E_DEVICE; E_NOMEM. */
MEMLORD_API memlord_result memlord_gc_callback_add(memlord *lord, memlord_device sel,
                                                   uint32_t reasons, memlord_gc_fn fn,
                                                   void *user) MLI_OFF(MEMLORD_OK)
/* Removes the first callback that is the same, and waits for runs of it on other threads. A
   callback may remove itself. Errors: E_INVALID; E_DEVICE; E_UNKNOWN. */
MEMLORD_API memlord_result memlord_gc_callback_remove(memlord *lord, memlord_device sel,
                                                      memlord_gc_fn fn, void *user)
    MLI_OFF(MEMLORD_OK)

/* Collects now, whatever the bands say. The callbacks get `needed`: the bytes wanted, or 0 for no
   number. *reclaimed, if not NULL, is what they gave back, 0 after an error. MEMLORD_OK says that a
   callback ran, not that it gave back enough.
   Errors: E_INVALID the reason; E_DEVICE; E_UNKNOWN no callback; E_STATE one is running, or
           none of them could. */
MEMLORD_API memlord_result memlord_gc_run(memlord *lord, memlord_device device, int reason,
                                          uint64_t needed, uint64_t *reclaimed)
    MLI_OFF_SET(if (reclaimed) *reclaimed = 0, MEMLORD_OK)

/* Retires deferred frees and runs due collections: the safe point under MEMLORD_FLAG_DEFER.
   Without pollers it first samples what is older than their interval. Errors: E_DEVICE. */
MEMLORD_API memlord_result memlord_gc_poll(memlord *lord, memlord_device sel)
    MLI_OFF(MEMLORD_OK)

/* -- out of memory -- */

typedef struct memlord_retry {
    uint32_t max_retries;         /* after the first attempt */
    uint32_t initial_ms, max_ms;  /* the first pause; the longest, not less than the first */
    double multiplier;            /* at least 1: a policy of zeros is refused */
    void (*sleep_ms)(void *user, uint32_t ms); /* NULL: waits, and wakes when enough is freed */
    void *user;
} memlord_retry;

/* Returns the pause after attempt 0, 1, ...: initial x multiplier^attempt in whole ms, at most
   max_ms. NULL is the default policy: 5, 50 ms, x 1.5, 2000 ms. */
MEMLORD_API uint32_t memlord_retry_backoff(const memlord_retry *policy, uint32_t attempt)
    MLI_OFF(0)

/* Makes the real allocation. 0: done, *storage set; > 0: no memory, try again; < 0: give up. */
typedef int (*memlord_try_fn)(void *user, uint64_t bytes, uint64_t *storage);

/* Allocates, through out of memory: attempt, retire, collect (REASON_OOM, `needed` set), back
   off, again. Records the storage itself, as memlord_alloc_with does; fn must not. If the
   request would pass the limit, it retires and collects once (REASON_LIMIT); if it still does not
   fit, it returns E_LIMIT without a call of fn. The bytes come off the ticket of `opts` first or,
   if that is 0, off this thread's tickets on the device. Only what exceeds the tickets must fit;
   that is the `needed` of REASON_LIMIT. While fn tries, no other alloc can draw on these bytes. A
   request that fails gives them back. A NULL policy is MEMLORD_RETRY's or the default. The last
   failure is logged with memlord_explain, after a new sample.
   Errors: E_INVALID fn or storage NULL, over 2^48, or a policy with max_ms < initial_ms or a
           multiplier that is not finite or below 1; E_DEVICE; E_LIMIT over the limit of the device
           or of the account; E_OOM, also where fn gave up; E_NOMEM the ledger has no room for the
           request's reservation. *storage is 0 then. */
MEMLORD_API memlord_result memlord_alloc_retry(memlord *lord, memlord_device device,
                                               uint64_t bytes, memlord_try_fn fn, void *user,
                                               const memlord_retry *policy,
                                               uint64_t *storage,
                                               const memlord_alloc_opts *opts)
#if defined(MEMLORD_DISABLE)
{
    uint64_t made = 0;
    int failed;
    if (storage) *storage = 0;
    if (!storage || !fn) return MEMLORD_E_INVALID;
    failed = fn(user, bytes, &made);
    if (!failed) *storage = made;
    return failed ? MEMLORD_E_OOM : MEMLORD_OK;
}
#else
;
#endif

/* Counts an allocation that found no memory and is not tried again: one attempt, one failure.
   Logs memlord_explain, at most once a second. Inside a memlord_try_fn it does nothing:
   memlord_alloc_retry counts there.
   Errors: E_INVALID over 2^48; E_DEVICE. */
MEMLORD_API memlord_result memlord_alloc_failed(memlord *lord, memlord_device device,
                                                uint64_t bytes, const memlord_site *site)
    MLI_OFF(MEMLORD_OK)

/* -- pools: memory that the host's own allocator holds -- */

/* Sets how much a pool holds of a device, and its largest free piece (UINT64_MAX: not known).
   memlord_pool_add adds to what it holds, and leaves the largest free piece as it was set. Both
   look at the bands of the device, so a collection may run inside them; but none inside the
   device's capacity source, where a later call runs it.
   Errors: E_DEVICE; E_NOMEM; E_INVALID over 2^62, pool_add also below 0. */
MEMLORD_API memlord_result memlord_pool_set(memlord *lord, memlord_device device,
                                            uint64_t reserved, uint64_t largest_free)
    MLI_OFF(MEMLORD_OK)
/* Adds to what a pool holds, or takes from it, as memlord_pool_set says. */
MEMLORD_API memlord_result memlord_pool_add(memlord *lord, memlord_device device,
                                            int64_t delta) MLI_OFF(MEMLORD_OK)

/* Counts requests that the pool served from what it held, and those it passed on.
   Errors: E_DEVICE. Cost: two atomics. */
MEMLORD_API memlord_result memlord_pool_served(memlord *lord, memlord_device device,
                                               uint64_t hits, uint64_t misses)
    MLI_OFF(MEMLORD_OK)

/* (reserved - allocated) / reserved, at least 0; 0 when nothing is reserved. */
MEMLORD_API double memlord_cached_ratio(const memlord_stats *stats) MLI_OFF(0)
/* 1 - largest_free / (reserved - allocated), 0 to 1; 0 when nothing is free; NaN when the
   largest free piece is not known. 0 with MEMLORD_DISABLE. */
MEMLORD_API double memlord_fragmentation(const memlord_stats *stats) MLI_OFF(0)

enum {
    MEMLORD_PRESSURE_UNKNOWN,  /* neither capacity nor limit is known */
    MEMLORD_PRESSURE_NORMAL,
    MEMLORD_PRESSURE_WARNING,  /* from 80 % of the capacity or the limit */
    MEMLORD_PRESSURE_CRITICAL, /* from 95 % */
    MEMLORD_PRESSURE_EMERGENCY /* the last memlord_alloc_retry found no memory, or
                                  memlord_alloc_failed was called since */
};
/* Returns the pressure on a physical device: by the bytes in use (memlord_capacity_source_set), or
   by what this ledger holds there and keeps for tickets, if that is more. With a page
   (memlord_pressure_open) it is that of all processes: used bytes are at least the sum of all, and
   it is an emergency where it is one for any of them. The limit is of this process alone, but where
   the capacity is not known it stands for it. */
MEMLORD_API int memlord_pressure_level(memlord *lord, memlord_device device)
    MLI_OFF(MEMLORD_PRESSURE_UNKNOWN)

/* -- neighbours: processes that share a device --
   Ledgers of one user, of one process or of several, join a page: a file that each of them maps.
   Each publishes there what it holds of its physical devices, and raises pressure when it finds no
   memory: then the others run their collection callbacks (MEMLORD_REASON_NEIGHBOUR). 64 ledgers
   fit, with the host's memory and 16 other physical devices each. */

/* Sets the identity of the physical device that a device's bytes are in: a text that is the same in
   every process, like the UUID of a GPU or its PCI bus id. Neighbours are those with the same text
   (a hash of 64 bits is compared). Without an identity a device is not on the page. memlord_cuda.h
   sets those of its GPUs. The cpu has one: the cgroup with the lowest memory limit, or the machine,
   as found by memlord_pressure_open. NULL or "" goes back to that, or to none.
   Errors: E_DEVICE; E_NOMEM; E_UNSUPPORTED in a build with MEMLORD_NO_NEIGHBOURS. */
MEMLORD_API memlord_result memlord_device_id_set(memlord *lord, memlord_device device,
                                                 const char *text) MLI_OFF(MEMLORD_OK)

/* Joins a page, and makes it if it is not there. A name without '/' is a page of the user's own in
   /dev/shm, NULL or "" the default one. Any other name is the path of a file that containers may
   share. The file belongs to the effective user, with mode 0600. A file that is no such page
   (another owner, a symbolic link, a wrong mode, size, version or content) is refused and logged.
   After an error the ledger works alone, as before.
   Joining starts one thread, the listener. It sleeps until a neighbour raises pressure, at most the
   interval of pollers, then publishes what the ledger holds and frees the places of processes that
   are gone. Without threads memlord_gc_poll does its work. Where the Linux kernel tells of stalls
   for memory (PSI), a stall runs the cpu's callbacks with MEMLORD_REASON_NEIGHBOUR and `needed` 0.
   A forked child joins again by the name at its first call; if it cannot, it works alone.
   A page whose file was removed is joined again by its name, within the interval of pollers, with a
   warning.
   Requires: nothing makes the file shorter while it is in use: that raises SIGBUS.
   Errors: E_INVALID a name too long; E_STATE a page is open already, or the file is refused;
           E_LIMIT 64 ledgers are in it; E_IO it cannot be opened or made, as with a full disk;
           E_UNSUPPORTED on this system (no F_OFD_SETLK, no atomic words of 64 bits), in a build
           with MEMLORD_NO_NEIGHBOURS, or a sandbox refuses; E_NOMEM. */
MEMLORD_API memlord_result memlord_pressure_open(memlord *lord, const char *name)
    MLI_OFF(MEMLORD_OK)

/* Leaves the page, and joins the listener. The file stays. A raise in progress on another thread
   ends. memlord_destroy does it, too. Without a page it does nothing.
   Errors: E_STATE a collection that the listener runs calls it, or another thread does;
           E_UNSUPPORTED in a build with MEMLORD_NO_NEIGHBOURS. */
MEMLORD_API memlord_result memlord_pressure_close(memlord *lord) MLI_OFF(MEMLORD_OK)

/* Asks the neighbours for memory of a physical device: each runs its collection callbacks with
   MEMLORD_REASON_NEIGHBOUR and this `needed`. Waits until they say that they gave back as many
   bytes, until each of them has answered, or for 2 s. 0: asks, and does not wait. A ledger
   whose callbacks gave nothing back rests for 1 s, then for twice as long each time, up to 60 s.
   While it rests it answers at once, and runs no callbacks for that device. The rest ends early
   when the device's live bytes have changed by more than an eighth. memlord_explain tells who asked
   how many neighbours rest.
   memlord_alloc_retry does this by itself before each pause.
   Errors: E_OOM they gave back less, or there are none; E_STATE no page is open, or it is closed
           meanwhile; E_UNKNOWN the device has no identity, or was never seen; E_DEVICE;
           E_UNSUPPORTED in a build with MEMLORD_NO_NEIGHBOURS. */
MEMLORD_API memlord_result memlord_pressure_raise(memlord *lord, memlord_device device,
                                                  uint64_t needed) MLI_OFF(MEMLORD_OK)

/* -- scopes: the cost of a phase of the program --
   A scope is a stretch of a thread's work with a name: a step, a layer, a request. Scopes nest,
   and are told apart by their path, "decode/attention". A scope's delta is what its thread
   allocated meanwhile less what it freed, inner scopes included; it may be negative. Blocks
   remember the scope they were allocated in. */

/* A scope's name and place; MEMLORD_SCOPED plants one. Its address is its identity; its strings
   are copied when first seen. */
typedef struct memlord_scope_site {
    const char *name;
    memlord_site site;
} memlord_scope_site;

/* Begins a scope on this thread; they nest up to 64 deep. Names are cut to 200 bytes.
   Errors: E_INVALID NULL or ""; E_STATE too deep; E_NOMEM also over MEMLORD_MAX_SCOPES paths,
           counted. Cost: tens of ns, and one or two a device and thread. */
MEMLORD_API memlord_result memlord_scope_begin(memlord *lord, const char *name)
    MLI_OFF(MEMLORD_OK)
/* The same by a static record, which is found by its address, without comparing names.
   Errors: also E_INVALID `place` NULL. */
MEMLORD_API memlord_result memlord_scope_enter(memlord *lord, const memlord_scope_site *place)
    MLI_OFF(MEMLORD_OK)
/* Ends the innermost scope of this thread. A thread that exits ends all of its own.
   Errors: E_STATE none was begun, which memlord_anomalies_each lists, or it was adopted (see
           memlord_scope_return). */
MEMLORD_API memlord_result memlord_scope_end(memlord *lord) MLI_OFF(MEMLORD_OK)

/* Sets the text that is shown with this invocation of the innermost scope: the shapes it works on,
   "q[1,32,128] k[1,8,128]". NULL removes it. Kept until destroy, each text once, and with the
   names of checkpoints in half of MEMLORD_MAX_STRINGS. Errors: E_STATE no scope; E_NOMEM. */
MEMLORD_API memlord_result memlord_scope_shapes_set(memlord *lord, const char *shapes)
    MLI_OFF(MEMLORD_OK)

/* Lets other threads work in this thread's innermost scope: each adopts the token, and returns
   it when it is done. Between the two the thread is in the scope: its blocks remember it, and
   scopes it begins are inside it. All of it is one invocation, which is over when its last thread
   has left it: its delta is what all of them did, its time runs from the begin to the last end. Its
   peak is the highest sum over them, low by at most a counter_batch for each thread, never high,
   and exact with MEMLORD_FLAG_EXACT. The scopes around the exported one do not include what others
   did. A token may be copied to any number of threads, and adopted until the exporting thread ends
   the scope. A thread that has adopted it may export it, too, and gets the same token. It stays in
   the scope until it returns it, even after the exporting thread has ended the scope. */
typedef struct memlord_scope_token {
    uint64_t word[2]; /* the library's */
} memlord_scope_token;
/* Makes a token of the innermost scope. Errors: E_STATE no scope; E_INVALID; E_NOMEM. */
MEMLORD_API memlord_result memlord_scope_export(memlord *lord, memlord_scope_token *out)
    MLI_OFF_SET(if (out) memset(out, 0, sizeof *out), MEMLORD_OK)
/* Enters the scope of a token on this thread.
   Errors: E_STATE on the scope's own thread, twice, or too deep; E_UNKNOWN the exporting thread
           has ended the scope, or the token is of another ledger; E_INVALID; E_NOMEM. */
MEMLORD_API memlord_result memlord_scope_adopt(memlord *lord, const memlord_scope_token *token)
    MLI_OFF(MEMLORD_OK)
/* Leaves the scope that this thread adopted.
   Errors: E_STATE the innermost scope is not this one; E_UNKNOWN another ledger's; E_INVALID. */
MEMLORD_API memlord_result memlord_scope_return(memlord *lord, const memlord_scope_token *token)
    MLI_OFF(MEMLORD_OK)

/* The totals of all finished invocations of a path. Strings live until destroy. */
typedef struct memlord_scope_stat {
    const char *name, *path;
    const memlord_site *site; /* NULL: begun by name */
    uint64_t id, parent;      /* 0: none */
    uint64_t count, running;  /* invocations: over; not yet */
    struct {
        int64_t total, min, max;
    } bytes, blocks;          /* deltas */
    uint64_t peak;            /* the most that one invocation rose above its start; each device by
                                 itself, then added: an upper bound if there are several */
    struct {
        uint64_t total, min, max;
    } ns;                     /* of the host's time */
    uint64_t device_ns;       /* memlord_scope_device_time */
} memlord_scope_stat;

/* Reads a scope by its path. Errors: E_UNKNOWN never begun, *out zero; E_INVALID. */
MEMLORD_API memlord_result memlord_scope_get(memlord *lord, const char *path,
                                             memlord_scope_stat *out)
    MLI_OFF_SET(if (out) memset(out, 0, sizeof *out), MEMLORD_OK)
/* Returns the id of this thread's innermost scope; 0: none. */
MEMLORD_API uint64_t memlord_scope_current(memlord *lord) MLI_OFF(0)
/* Adds the time a device took for a scope, when its events know it. Errors: E_UNKNOWN no such
   id. */
MEMLORD_API memlord_result memlord_scope_device_time(memlord *lord, uint64_t scope, uint64_t ns)
    MLI_OFF(MEMLORD_OK)

/* -- contexts: fibres, coroutines and jobs that move between threads --
   Open tags and scopes, the default tag, account, stream and tickets belong to a context. A thread
   has one of its own. Work that is suspended, and goes on later on any thread, has one, too: a
   zeroed memlord_context, in which nothing is open. Swap it in before the work runs, and again when
   it is suspended:

       memlord_context_swap(lord, &job->context);    this thread is in the job's context
       run(job);                                     begins tags and scopes, allocates, suspends
       memlord_context_swap(lord, &job->context);    this thread is in its own context again

   From one fibre to another it is two swaps: the old fibre's, then the new one's. Between the two
   swaps the context holds what the thread was in before, so a fibre may run inside another.
   memlord_tag_end, memlord_scope_end, memlord_scope_return and the end of a guard end only what
   their own context began, on whichever thread it runs. Scopes measure what their context did. The
   timeline shows them where and while they ran. examples/embed/jobs.c is a job system that does
   so. */
typedef struct memlord_context {
    uint64_t word[8]; /* the library's; all 0: nothing is open */
} memlord_context;

/* Exchanges the context of this thread with the one in `context`. A copy of a context is stale
   after the next swap of either. Past its ledger's end a context is zeroed, and the call is
   MEMLORD_OK.
   Threads: the host orders the calls on one context, as it orders the fibre itself.
   Errors: E_INVALID `context` NULL; E_STATE a stale copy, another live ledger's, one that another
           thread is in, or a call of the ledger's own allocator; E_NOMEM the first swap, which
           allocates its record, or a thread that has none. Nothing is swapped then.
   Owns:   the ledger keeps some 700 bytes a context until memlord_context_drop.
   Cost:   tens of ns, and one or two for each open scope and device. */
MEMLORD_API memlord_result memlord_context_swap(memlord *lord, memlord_context *context)
    MLI_OFF(MEMLORD_OK)

/* Ends the scopes and tags that are open in a context, and zeroes it. Its tickets stay open. If
   this thread is in the context, the thread is then in the one it was in before. A thread that
   exits inside a context leaves it as it is, for another thread to swap in or to drop.
   Errors: as for swap; E_STATE also a context whose fibre is suspended inside another one. */
MEMLORD_API memlord_result memlord_context_drop(memlord *lord, memlord_context *context)
    MLI_OFF(MEMLORD_OK)

/* -- snapshots: how memory moved -- */

/* Keeps the totals of every device at this moment, under a name, with the ten largest blocks. Up
   to 255 snapshots are kept, spread over the whole run. Beyond that the one whose neighbours are
   closest in time goes, and is counted, but for the first, the last, and those in which a device,
   or all together, held most; a checkpoint goes only when there is nothing else.
   Errors: E_INVALID NULL or ""; E_NOMEM, counted.
   Cost:   a tenth of a us a device and thread, and a walk of the map: about 10 ns a block. */
MEMLORD_API memlord_result memlord_checkpoint(memlord *lord, const char *name)
    MLI_OFF(MEMLORD_OK)

/* Takes a snapshot now, one every interval_ms (0: 5000, at least 10) on a thread of its own, and a
   last one at the stop. Until then a report that shows snapshots (TEXT, JSON, HTML, TRACE) ends
   with one of its own, which is not kept. Without threads memlord_gc_poll takes those that are due.
   The ledger's clock decides: while a clock of the host's stands still none is taken; when it runs
   ahead, or the interval changes, the thread learns that within a second.
   Errors: E_INVALID an interval of 1 to 9; E_NOMEM the first; the others will come; stop: E_STATE
           on a thread of MemLord's own. */
MEMLORD_API memlord_result memlord_snapshots_start(memlord *lord, uint32_t interval_ms)
    MLI_OFF(MEMLORD_OK)
/* Takes a last snapshot and joins the thread. Errors: E_STATE on a thread of MemLord's own. */
MEMLORD_API memlord_result memlord_snapshots_stop(memlord *lord) MLI_OFF(MEMLORD_OK)

/* -- events: every change, in a ring -- */

/* name, text */
#define MLI_EVENTS(X)                                                                         \
    X(ALLOC, "alloc")             /* a block begins */                                        \
    X(FREE, "free")               /* a block is credited */                                   \
    X(PEND, "pend")               /* a block is freed, and waits for its device */            \
    X(MOVE, "move")               /* a block begins that was moved there */                   \
    X(ARENA_ADD, "arena_add")     /* memlord_arena_add */                                     \
    X(ARENA_SUB, "arena_sub")     /* memlord_arena_sub */                                     \
    X(GC, "gc")                   /* a collection ran; bytes: reclaimed */                    \
    X(OOM, "oom")                 /* an attempt found no memory; bytes: wanted */             \
    X(SCOPE_BEGIN, "scope_begin") /* a scope begins on the thread */                          \
    X(SCOPE_END, "scope_end")     /* a scope ends there */                                    \
    X(CHECKPOINT, "checkpoint")   /* memlord_checkpoint; tag: its name */
enum {
#define MLI_X(name, text) MEMLORD_EVENT_##name,
    MLI_EVENTS(MLI_X)
#undef MLI_X
    MEMLORD_EVENT_COUNT
};

typedef struct memlord_event {
    uint64_t time_ns;         /* since the ledger was created */
    uint32_t thread;          /* a number of the ledger's own */
    int kind;                 /* MEMLORD_EVENT_... */
    memlord_device device;    /* {MEMLORD_ANY, MEMLORD_ANY}: of none */
    uint64_t storage, bytes;
    const memlord_site *site; /* of the call, where sites are counted; NULL: not known */
    const char *tag;          /* of the block; NULL: none */
    uint64_t scope;           /* the thread's innermost; 0: none */
    uint64_t stream;          /* of the block; 0: none, or the default one */
} memlord_event;
typedef int (*memlord_event_fn)(void *user, const memlord_event *event); /* != 0 stops */

/* Writes what happens into a ring of at most `capacity` events (0: 65536; 40 bytes each), over
   the oldest; those are counted in dropped_events. A ledger has one ring: a later start goes on
   in it.
   Errors: E_INVALID over 2^26; E_STATE the ledger has a ring of another capacity; E_NOMEM.
   Cost:   one branch a call when off. */
MEMLORD_API memlord_result memlord_events_start(memlord *lord, size_t capacity)
    MLI_OFF(MEMLORD_OK)
/* Stops writing; the ring can still be read. Errors: E_STATE on a thread of MemLord's own. */
MEMLORD_API memlord_result memlord_events_stop(memlord *lord) MLI_OFF(MEMLORD_OK)
/* Calls fn for the events in the ring, in the order of their time; those that are overwritten
   meanwhile are left out. Errors: E_INVALID `fn` NULL; E_NOMEM. */
MEMLORD_API memlord_result memlord_events_each(memlord *lord, memlord_event_fn fn, void *user)
    MLI_OFF(MEMLORD_OK)

/* -- reports -- */

/* name, suffix of its files, what it is */
#define MLI_FORMATS(X)                                                                        \
    X(TEXT, "txt", "a table for people; the first 25 lines tell most of it")                  \
    X(JSON, "json", "for programs: everything; schema memlord/2")                             \
    X(HTML, "html", "a page for people, of one file, that needs no network")                  \
    X(TRACE, "trace.json", "a timeline, for ui.perfetto.dev and chrome://tracing")            \
    X(PROMETHEUS, "prom", "metrics, for a server to scrape or a textfile collector")          \
    X(PPROF, "pb", "live and allocated bytes by stack or site, for go tool pprof")            \
    X(HEAPTRACK, "heaptrack", "calls, peak and what is live by site, for heaptrack_print")    \
    X(FOLDED, "folded", "live bytes by device, tag, scope and stack, for flamegraph.pl")      \
    X(MEMORY_VIZ, "pickle", "a snapshot as PyTorch's, for pytorch.org/memory_viz")            \
    X(CSV, "csv", "every live block, and its parts, for a spreadsheet or a script")

typedef enum memlord_format {
#define MLI_X(name, suffix, text) MEMLORD_FORMAT_##name,
    MLI_FORMATS(MLI_X)
#undef MLI_X
    MEMLORD_FORMAT_COUNT
} memlord_format;

/* Returns the format a file's suffix names ("x.html", "y.trace.json"); TEXT if it names none. */
MEMLORD_API memlord_format memlord_format_for(const char *path)
    MLI_OFF(MEMLORD_FORMAT_TEXT)

typedef int (*memlord_write_fn)(void *user, const void *data, size_t size); /* 0: written */

/* Writes a report through fn, in pieces of up to a few KiB.
   Errors: E_IO fn returned non-zero; E_UNSUPPORTED no such format, or not in this build: see
           >>knobs; E_INVALID fn NULL; E_NOMEM.
   The statistics of devices and tags are captured once, and no other call waits. Other lists are
   read as they are written: they may have what was recorded since. Cost: walks blocks and sites. */
MEMLORD_API memlord_result memlord_write(memlord *lord, memlord_format format,
                                         memlord_write_fn fn, void *user)
    MLI_OFF(MEMLORD_OK)

/* Writes a report to a file: the whole file or none (a temporary beside it, renamed; the disk is
   not waited for). %p in the path is the process id, %% a percent sign. An existing regular file is
   replaced; a symbolic link, FIFO, device or directory is refused. The path "-" is descriptor 1,
   written with write(2): what stdio still buffers comes later, and SIGPIPE is held back.
   Errors: E_INVALID the path, logged; E_IO, also descriptor 1 closed, or not all written, or on
           Windows while another thread or program has the file open;
           E_UNSUPPORTED, also a binary format to a terminal, logged; E_NOMEM. */
MEMLORD_API memlord_result memlord_save(memlord *lord, memlord_format format,
                                        const char *path) MLI_OFF(MEMLORD_OK)

/* Sets the labels of the ledger, like "host=a1,model=x", in place of those it had: TEXT, JSON and
   HTML reports show them, and every sample of PROMETHEUS has them. PROMETHEUS leaves out a label
   that is no name=value with a name of letters, digits and _, that has the name of an earlier one
   or of one of MemLord's own (device, tag, scope, site, from, to, version), and what is beyond
   1000 bytes. NULL: none.
   Errors: E_NOMEM, also from more than MEMLORD_MAX_STRINGS bytes of names.
   Owns:   the text is copied. */
MEMLORD_API memlord_result memlord_labels_set(memlord *lord, const char *labels)
    MLI_OFF(MEMLORD_OK)

/* Saves a report when the ledger is destroyed or the process exits, whichever is first, as
   memory_profile_YYYYMMDD_HHMMSS and the format's suffix (UTC), in `directory` (NULL: the
   ledger's output_dir, else the current one). Replaces no file: the process id and a number
   follow the time where one is there. The last call counts. A forked child that exits writes one
   of its own.
   Errors: E_INVALID the path is too long; E_UNSUPPORTED; E_NOMEM. */
MEMLORD_API memlord_result memlord_save_at_exit(memlord *lord, memlord_format format,
                                                const char *directory) MLI_OFF(MEMLORD_OK)

/* Keeps a file fresh for the textfile collector of Prometheus's node_exporter. Saves PROMETHEUS to
   `path` now, every interval_ms (0: 15000, as often as Prometheus's own configuration scrapes; at
   least 10) on a thread of its own, and a last time at the stop or in memlord_destroy. The path is
   as for memlord_save, with %p; the collector reads names that end in .prom. Without threads
   memlord_gc_poll saves what is due. The ledger's clock decides, as for snapshots. A later start
   replaces the first. A failure is counted in dropped_exports; the first in a row is logged.
   Every sample has the labels of the ledger: memlord_labels_set. A ledger without labels has the
   label pid. The files of one directory need labels that differ: node_exporter refuses a series
   that another file has, too.
   The file stays, and node_exporter goes on to show it: remove it when it is scraped, and let
   queries take fresh samples only. memlord_written_timestamp_seconds is their time. The end of the
   process saves nothing: stop first.
   A forked child does not export. It may start its own export, with a path and labels of its own.
   Errors: E_INVALID the path, "-", or an interval of 1 to 9; E_IO it cannot be written now;
           E_NOMEM; E_UNSUPPORTED in a build with MEMLORD_NO_REPORTS; stop: E_STATE on a thread of
           MemLord's own. */
MEMLORD_API memlord_result memlord_export_start(memlord *lord, const char *path,
                                                uint32_t interval_ms) MLI_OFF(MEMLORD_OK)
/* Saves a last time and joins the thread. Errors: E_STATE on a thread of MemLord's own. */
MEMLORD_API memlord_result memlord_export_stop(memlord *lord) MLI_OFF(MEMLORD_OK)

/* Asks for such a report now. Async-signal-safe: a handler of SIGUSR1 may call it. It is JSON
   unless memlord_save_at_exit says otherwise; one report, however many calls asked. Served by
   whichever comes first:
   - the next call that begins, ends, moves or resizes a block or an arena, describes, retags, adds
     or removes a part, marks, resets, charges, reserves, sets a plan or a pool, begins or ends a
     scope, takes a checkpoint, polls or retires; not one that retains, or releases a view. With
     MEMLORD_FLAG_DEFER only memlord_gc_poll, memlord_retire and memlord_alloc_retry;
   - a poller, within its interval, or the thread that takes snapshots or exports, within a second;
   - memlord_destroy, or the exit of the process if memlord_save_at_exit was called for a ledger. */
MEMLORD_API void memlord_request_save(memlord *lord) MLI_OFF_VOID

/* -- guards: what MEMLORD_TAGGED, MEMLORD_SCOPED and their loop forms stand on -- */

/* A tag or a scope that has begun, and what its end restores. */
typedef struct memlord_guard {
    memlord *lord;    /* NULL: there is nothing to end */
    uint32_t context; /* the ledger's number of the context that it began in */
    uint32_t depth;   /* how many tags, or scopes, were open there before */
    int scope;        /* 1: a scope; 0: a tag */
} memlord_guard;

/* Begins a tag. The guard has nothing to end where memlord_tag_begin would return an error. */
MEMLORD_API memlord_guard memlord_guard_tag(memlord *lord, const char *tag)
    MLI_OFF_SET(memlord_guard none; memset(&none, 0, sizeof none), none)
/* Begins a scope: by its static record `place` or, if that is NULL, by its name. The guard has
   nothing to end where memlord_scope_enter or memlord_scope_begin would return an error. */
MEMLORD_API memlord_guard memlord_guard_scope(memlord *lord, const char *name,
                                              const memlord_scope_site *place)
    MLI_OFF_SET(memlord_guard none; memset(&none, 0, sizeof none), none)
/* Ends it: this context is as deep in tags, or in scopes, as before. So it also ends those that
   were begun since and not ended, and adopted scopes that were not returned: after a longjmp the
   next guard around puts things right. A second end does nothing. In another context than it began
   in (that of another thread, or of another fibre) it does nothing but count in dropped_sites of
   the sum of all devices; the first such end is logged. */
MEMLORD_API void memlord_guard_end(memlord_guard *guard) MLI_OFF_VOID

/* -- interposers: a preloaded library that keeps books of its own --
   A library that LD_PRELOAD loads, such as src/tools/preload.c, may export a memlord_interposer
   under the name "memlord_interposer". Then each tag and scope that begins or ends in a ledger of
   the program does so there, too, on the same thread: they cover every malloc. The two books stay
   apart. A swap of contexts ends there what is open in the context that the thread leaves, and
   begins what is open in the one that it enters. So a scope is an invocation there for each time
   that its context runs. Default tags and adopted scopes stay in the program's ledger. A tag or a
   scope that is open when its ledger is destroyed stays open there. Looked up once, by the first
   ledger, on Linux; without LD_PRELOAD in the environment, and in static programs, there is none.
   An interposer of another size or version, or with a NULL function, is ignored. */
typedef struct memlord_interposer {
    uint32_t size;    /* sizeof(memlord_interposer) where the library was compiled */
    uint32_t version; /* 1 */
    memlord *lord;    /* its own ledger: what begins there is not told */
    void (*tag_begin)(const char *tag);
    void (*tag_end)(void); /* of the innermost */
    void (*scope_begin)(const char *name);
    void (*scope_end)(void);
} memlord_interposer;

/* -- shim: what MEMLORD_SHIM puts in place of the C library's functions --
   Each does the real call, on the cpu device (mapped for a file's mmap), and keeps errno. */

#if !defined(MEMLORD_DISABLE)
/* Calls malloc, and records the block. */
MEMLORD_API void *memlord_shim_malloc(memlord *lord, size_t size, const memlord_site *site);
/* Calls calloc, and records the block. */
MEMLORD_API void *memlord_shim_calloc(memlord *lord, size_t n, size_t size,
                                      const memlord_site *site);
/* Calls realloc, and records what it did. Size 0 frees and returns NULL, as glibc does. */
MEMLORD_API void *memlord_shim_realloc(memlord *lord, void *ptr, size_t size,
                                       const memlord_site *site);
/* Records the free, and calls free. */
MEMLORD_API void memlord_shim_free(memlord *lord, void *ptr, const memlord_site *site);
#if !defined(_WIN32)
/* Records the pages as one block. MAP_FIXED over the start of a live block closes that block, an
   implicit free; over a later part of it, those pages count twice. An offset that does not fit
   the off_t of the file with the implementation fails with EOVERFLOW: define _FILE_OFFSET_BITS
   there, too. */
MEMLORD_API void *memlord_shim_mmap(memlord *lord, void *at, size_t size, int prot, int flags,
                                    int fd, int64_t offset, const memlord_site *site);
/* Ends the block with exactly this address and size. Other ranges (a part of a block, several
   blocks) end nothing and count in unknown_frees. Not counted if the real call fails. */
MEMLORD_API int memlord_shim_munmap(memlord *lord, void *at, size_t size,
                                    const memlord_site *site);
#endif
#endif

/* -- hooks: a host whose allocator is a table of function pointers -- */

/* The functions of the host's allocator; NULL: it has no such function. free_fn frees what any of
   them returned. */
typedef struct memlord_hooks {
    void *(*malloc_fn)(size_t size);
    void *(*calloc_fn)(size_t n, size_t size);
    void *(*realloc_fn)(void *ptr, size_t size);
    void *(*aligned_fn)(size_t alignment, size_t size);
    void (*free_fn)(void *ptr);
} memlord_hooks;

enum {
    MEMLORD_HOOK_MALLOC = 1,
    MEMLORD_HOOK_CALLOC = 2,
    MEMLORD_HOOK_REALLOC = 4,
    MEMLORD_HOOK_ALIGNED = 8,
    MEMLORD_HOOK_ALL = 15
};

/* Puts functions in place of the host's: they call those, and record on the cpu. A block's site is
   the caller of its function. `which` selects the functions whose blocks are recorded, as in
   MEMLORD_HOOK_MALLOC | MEMLORD_HOOK_CALLOC. free and realloc always end a block that is recorded.
   A host that takes its functions by a call passes it those of the table, here and after the
   uninstall. MemLord's functions call those of their own host as long as MemLord is loaded. So
   each different set of five functions takes one of four places for good; after an uninstall the
   same set takes its place again. Four tables may be hooked at once, each with a ledger and a
   `which` of its own. Two hooked tables with the same functions take two places. To share a ledger
   and a place, copy a table that is hooked. An install of a table that is hooked changes its
   ledger and `which`. After the ledger's end the functions record nothing.
   Requires: no thread is in the functions of the table.
   Errors: E_INVALID no table, malloc_fn or free_fn, or an unknown bit in `which`; E_STATE the table
           is not hooked but has functions of MemLord, no place is left, or the table was changed
           since it was hooked. The ledger's logger gets the cause.
   Owns:   the table is yours, and stays where it is until the uninstall. */
MEMLORD_API memlord_result memlord_hooks_install(memlord *lord, memlord_hooks *table,
                                                 uint32_t which) MLI_OFF(MEMLORD_OK)

/* Puts the host's own pointers back, exactly, whatever other tables are hooked. Blocks that are
   live stay on the books. MemLord's functions may still be called through copies: they call the
   host's, and record nothing until a table with the same functions is hooked in that place again.
   Requires: as install.
   Errors: E_STATE the table is not hooked, or has neither MemLord's functions nor the host's
           own. */
MEMLORD_API memlord_result memlord_hooks_uninstall(memlord_hooks *table) MLI_OFF(MEMLORD_OK)

#ifdef __cplusplus
} /* extern "C" */
#endif
