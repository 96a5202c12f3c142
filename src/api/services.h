/* -- capacity --
   The size of a device and its used bytes, from a source per device type. The cpu's is built
   in: the machine, or the container's memory limit with the page cache left out. The sources of
   other types are the host's. On Linux, from 3.14 on, the built-in source reads /proc/meminfo and
   the limits of this process's cgroup and those above it, below /sys/fs/cgroup (v2) or
   /sys/fs/cgroup/memory (v1). Where cgroups are mounted elsewhere, it sees the machine. After a
   sample that failed, or makes no sense (a total of 0, used over total), the capacity is not known.

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

/* The capacity of a device. `context` is what the driver itself holds for this process: its
   context, modules, stacks. These bytes are a part of `process`, if that is known, and are not
   live: reports show them, and take them off what is unaccounted. `others` are the largest other
   processes, the largest first; a pid of 0 ends the list. memlord_explain and reports show them,
   with their names where Linux tells those. */
typedef struct memlord_capacity {
    uint64_t total, used; /* bytes, of everybody */
    uint64_t process;     /* this process's own share of used; 0: the source cannot tell */
    uint64_t age_ns;      /* how old the sample is; a source leaves it alone */
    int known;            /* 0: the other fields mean nothing; a source leaves it alone */
    uint64_t context;     /* bytes; 0: the source cannot tell */
    memlord_other others[MEMLORD_OTHERS];
} memlord_capacity;

/* Fills total and used, and process, context and others if it can: they are 0 before. Returns 0, or
   not 0 if the capacity is not known. Runs on the poller, or on a thread that asks for a sample or
   reads a capacity, one call at a time for a device. It may block. */
typedef int (*memlord_capacity_fn)(void *user, memlord_device device, memlord_capacity *out);

/* Sets the source of a device type; NULL goes back to the built-in one. Forgets the old source's
   samples, and waits for a call of it in progress on another thread.
   Errors: E_DEVICE. */
MEMLORD_API memlord_result memlord_capacity_source_set(memlord *lord, int type,
                                                       memlord_capacity_fn fn, void *user)
    MLI_OFF(MEMLORD_OK)

/* Reads the latest sample, as the source gave it. Queries no source. If there is no sample, `known`
   is 0, and the result MEMLORD_OK.
   Errors: E_INVALID `out` NULL; E_DEVICE. Cost: a lock of one device and the clock. */
MEMLORD_API memlord_result memlord_capacity_get(memlord *lord, memlord_device device,
                                                memlord_capacity *out)
    MLI_OFF_SET(if (out) memset(out, 0, sizeof *out), MEMLORD_OK)

/* Queries the source of a device now.
   Errors: E_UNSUPPORTED the type has none; E_UNKNOWN it failed, or made no sense; E_STATE a sample
           of the device is being taken; E_DEVICE; E_NOMEM. Cost: the source's. */
MEMLORD_API memlord_result memlord_capacity_sample(memlord *lord, memlord_device device)
    MLI_OFF(MEMLORD_OK)

/* Starts the pollers: a thread for each physical device that has a source, which samples the device
   each `interval_ms` (0: 200, at least 10). MEMLORD_POLL_INTERVAL_MS overrides the interval. A
   poller also starts by itself when a device is used that has all three: a capacity source, a
   callback that serves MEMLORD_REASON_BAND, and a strategy. Without a poller memlord_gc_poll
   samples what has grown old, and so do the readers of a capacity.
   Errors: E_INVALID an interval of 1 to 9; E_UNSUPPORTED no threads in this build or with
           MEMLORD_FLAG_NO_THREADS; E_NOMEM the system gives no thread now: a later start tries
           again. */
MEMLORD_API memlord_result memlord_poller_start(memlord *lord, uint32_t interval_ms)
    MLI_OFF(MEMLORD_OK)
/* Stops the pollers and joins their threads. None starts by itself until the next start.
   Errors: E_STATE on a thread of MemLord's own. */
MEMLORD_API memlord_result memlord_poller_stop(memlord *lord) MLI_OFF(MEMLORD_OK)

/* -- limits --
   A limit refuses memlord_reserve and memlord_alloc_retry, never memlord_alloc, which records an
   alloc that has happened. The limit of an account refuses the same two calls. They keep live bytes
   plus tickets at or below both limits. Bytes that a pool has reserved and not allocated do not
   count. A request that a limit refuses is logged, and counts in no statistic: oom_failures counts
   the requests for which the device had no memory. */

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

/* Tells whether so many bytes fit: 1 if they do, 0 if not, -1 if neither limit nor capacity is
   known. */
MEMLORD_API int memlord_would_fit(memlord *lord, memlord_device device, uint64_t bytes)
    MLI_OFF(-1)

/* Returns the same for a whole plan, each block on its device (`storage` is ignored); -1 also if
   the plan names something that is no device. *short_by, if not NULL, is how many bytes the worst
   device lacks; negative: every device has that many to spare or more; 0 if -1 is returned. */
MEMLORD_API int memlord_plan_fit(memlord *lord, const memlord_block *blocks, size_t n,
                                 int64_t *short_by)
    MLI_OFF_SET(if (short_by) *short_by = 0, -1)

/* Writes in one line how many bytes short a request of `wanted` is, and who holds the memory of the
   physical device: limit, capacity, tickets, other processes, and the largest tags and sites, with
   untagged bytes and arenas among them. Each has its device where several share the memory. The
   line also has the bytes of what is not listed, how many requests failed on this device before,
   and how many neighbours rest there: see memlord_pressure_raise. Follows snprintf; allocates
   nothing. MemLord logs this line itself when an allocation fails for good and, as a warning at
   most once a second, when a reservation is refused. Cost: walks tags and sites; nothing is walked
   for a log without a logger. */
MEMLORD_API size_t memlord_explain(memlord *lord, memlord_device device, uint64_t wanted,
                                   char *buf, size_t cap)
    MLI_OFF_SET(if (buf && cap) buf[0] = 0, 0)

/* -- reservations: admission -- */

typedef uint64_t memlord_ticket; /* 0 is none */

/* Reserves bytes of a device's limit for allocs to come: reserve, allocate, memlord_alloc,
   memlord_reserve_commit. A ticket belongs to the thread that reserved or adopted it: what that
   thread records on the device comes off the ticket, so that nothing counts twice. So does what
   memlord_alloc_retry records there: it needs room only for what the ticket lacks. On other
   threads name the ticket: memlord_alloc_with. A free does not refill a ticket. The allocs of a
   thread come off its 8 latest tickets; allocs beyond these count in full, unless they name a
   ticket. A thread may hold any number of tickets for others that name them.
   Without a limit everything is granted. memlord_reserve runs no collection and waits for nothing.
   On E_LIMIT call memlord_gc_run with MEMLORD_REASON_LIMIT and the bytes as `needed`, and try again
   if it gave back something; or use memlord_alloc_retry; or wait until the host has freed
   something.
   Errors: E_LIMIT over the limit of the device, or of the account that this thread uses there (a
           warning, with memlord_explain or the account, at most once a second), also over 2^62 in
           all; E_INVALID over 2^48 or `out` NULL; E_DEVICE; E_NOMEM; E_STATE called by the ledger's
           own allocator. *out is 0 then. */
MEMLORD_API memlord_result memlord_reserve(memlord *lord, memlord_device device,
                                           uint64_t bytes, memlord_ticket *out)
    MLI_OFF_SET(if (out) *out = 0, MEMLORD_OK)
/* Ends a ticket, and gives back what no alloc has drawn. Any thread may call it. Call it for a
   request that failed, too. Errors: E_UNKNOWN not an open ticket of this ledger. */
MEMLORD_API memlord_result memlord_reserve_commit(memlord *lord, memlord_ticket ticket)
    MLI_OFF(MEMLORD_OK)

/* Moves a ticket to this thread: an acceptor reserves, a worker adopts. A thread may adopt a ticket
   that it has. Errors: E_UNKNOWN not an open ticket of this ledger. */
MEMLORD_API memlord_result memlord_reserve_adopt(memlord *lord, memlord_ticket ticket)
    MLI_OFF(MEMLORD_OK)

/* -- accounts: bytes charged to a request or a user -- */

typedef uint64_t memlord_account; /* 0 is none */

typedef struct memlord_account_stat {
    char name[48]; /* cut to fit */
    memlord_device device;
    uint64_t bytes, peak; /* charged now; the most that was charged at once */
    uint64_t limit;       /* 0: none */
    uint64_t refused;     /* charges, blocks and requests over the limit */
} memlord_account_stat;

/* Opens an account. What is charged to it adds nothing to the device's bytes. `limit` 0 is no
   limit. `name` may be NULL. Reports list the open accounts. The id of a closed account is never
   that of a later one. Errors: E_INVALID `out` NULL; E_DEVICE; E_NOMEM. */
MEMLORD_API memlord_result memlord_account_open(memlord *lord, memlord_device device,
                                                const char *name, uint64_t limit,
                                                memlord_account *out)
    MLI_OFF_SET(if (out) *out = 0, MEMLORD_OK)

/* Adds bytes to an account or, if `bytes` is negative, takes them off. Any thread may call it. What
   tickets hold of the account counts against its limit.
   Errors: E_LIMIT over its limit (or 2^48); E_INVALID below 0; E_UNKNOWN closed. Nothing has
           changed then. Cost: a few atomics. */
MEMLORD_API memlord_result memlord_account_charge(memlord *lord, memlord_account account,
                                                  int64_t bytes) MLI_OFF(MEMLORD_OK)

/* Uses an account for this thread: what the thread allocates on the account's device from now on,
   also by memlord_alloc_with, is charged to it, and credited when the block ends, on whichever
   thread. Do not charge the same bytes by memlord_account_charge. Such allocs are recorded whatever
   the account's limit; those over it count in `refused`. memlord_reserve and memlord_alloc_retry
   keep to the limit: a request for more than is left returns E_LIMIT, as over the device's. A
   ticket holds bytes of the account, too, until an alloc comes off it or it is committed. A thread
   uses one account at a time, until the next call; 0 ends that, and so does the end of the thread.
   A resized block is charged its new bytes. A move to another device ends the charge; what arrives
   there is charged as an alloc. Arenas are not charged.
   Cost: these blocks take the general path, and 250 bytes more.
   Errors: E_UNKNOWN closed; E_NOMEM. The account used before stays. */
MEMLORD_API memlord_result memlord_account_use(memlord *lord, memlord_account account)
    MLI_OFF(MEMLORD_OK)
/* Reads an account. Errors: E_INVALID `out` NULL; E_UNKNOWN closed, and *out is zero. */
MEMLORD_API memlord_result memlord_account_get(memlord *lord, memlord_account account,
                                               memlord_account_stat *out)
    MLI_OFF_SET(if (out) memset(out, 0, sizeof *out), MEMLORD_OK)
/* Closes an account, whatever is charged to it. Its blocks live on, and are charged to no account.
   Errors: E_UNKNOWN it is closed already. */
MEMLORD_API memlord_result memlord_account_close(memlord *lord, memlord_account account)
    MLI_OFF(MEMLORD_OK)

/* -- one alloc, with all that can be said of it -- */

/* The options of memlord_alloc_with and memlord_alloc_retry. For a field that is 0 or NULL they
   take what the thread has. */
typedef struct memlord_alloc_opts {
    const memlord_site *site; /* NULL: no site */
    const char *tag;          /* copied; "": no tag; NULL: the thread's tag */
    memlord_ticket ticket;    /* the only ticket that the bytes come off; 0: the thread's tickets */
    memlord_account account;  /* MEMLORD_NONE: no account, and no account's limit; 0: the
                                 thread's */
    uint64_t stream;          /* MEMLORD_NONE: the default stream; 0: the thread's stream */
} memlord_alloc_opts;

/* Records an alloc as memlord_alloc does, with its own tag, ticket, account and stream. `opts` NULL
   is memlord_alloc without a site. Any thread may name a ticket: one scheduler serves any number of
   requests. Bytes beyond the ticket count in full. A ticket says nothing of an account: name the
   account that is to be charged, too. A ticket that is closed or of another physical device, and an
   account that is closed or of another device, are taken as 0: the alloc is recorded with what the
   thread has in its place, counts in `refused`, and returns MEMLORD_OK.
   Errors: as memlord_alloc. Without memory for the tag the alloc has none, as after
           memlord_tag_begin. Cost: the general path, some tens of ns. */
MEMLORD_API memlord_result memlord_alloc_with(memlord *lord, memlord_device device,
                                              uint64_t storage, uint64_t bytes,
                                              const memlord_alloc_opts *opts) MLI_OFF(MEMLORD_OK)

/* -- bands: when a collection pays --
   A strategy is a list of bands over the used % of a device. The first band with lo <= used% <
   hi decides: a collection is due when its metric is at or above its threshold, the larger (or,
   with COMBINE_MIN, the smaller) of `bytes` and `percent`. Percent is of the capacity, or of the
   limit where one is set and smaller; for CACHED of what the pool has reserved. Of the two, one
   that is 0 is not used.
   used % is of the capacity, or of the limit where only that is known. While neither is known, only
   a band that covers 0 to 100 is looked at, and its `percent` is not used.
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
    double lo, hi; /* the band is for used % from lo on and below hi; 101 is above everything */
    memlord_metric metric;
    uint64_t bytes;          /* a threshold; 0: not used */
    double percent;          /* a threshold; 0: not used */
    memlord_combine combine; /* of the two thresholds the larger one decides, or the smaller one */
} memlord_band;

/* Sets the strategy of a device, of a type, or of all; n = 0 switches bands off there. The bands
   are copied. They also serve devices that the ledger does not know yet. Overlaps, gaps and an
   uncovered 100 % are logged as warnings.
   Errors: E_INVALID a band is bad: the log names it; E_DEVICE; E_NOMEM. The old strategy stays. */
MEMLORD_API memlord_result memlord_strategy_set(memlord *lord, memlord_device sel,
                                                const memlord_band *bands, size_t n)
    MLI_OFF(MEMLORD_OK)
/* Takes off the strategy of exactly this selector, so that a less specific one decides again. For
   the selector of all devices the default strategy does.
   Errors: E_DEVICE; E_UNKNOWN none was set. */
MEMLORD_API memlord_result memlord_strategy_unset(memlord *lord, memlord_device sel)
    MLI_OFF(MEMLORD_OK)
/* Checks bands. A band is bad if lo >= hi, if a number is NaN or negative, if it has no threshold
   or an unknown metric.
   Errors: E_INVALID a band is bad; *bad, if not NULL, is the index of the first. */
MEMLORD_API memlord_result memlord_strategy_check(const memlord_band *bands, size_t n,
                                                  size_t *bad)
    MLI_OFF_SET(if (bad) *bad = 0, MEMLORD_OK)
/* Returns the default strategy, which is that of all devices until the host sets one, except with
   MEMLORD_FLAG_NO_STRATEGY: {0,50: max, 50 %}, {50,75: max, 33 %}, {75,101: freed, 10 %}. */
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
    size_t band;             /* the band's index in the strategy; SIZE_MAX: no band has fired */
    memlord_metric metric;
    uint64_t value, threshold; /* of the metric; without a band: the live bytes, and 0 */
    uint64_t needed;         /* bytes wanted; 0: no number is known, as of a band */
    uint64_t device_runs, total_runs; /* collections so far, with this one and failed ones */
} memlord_gc_event;

typedef struct memlord_gc_result {
    int ran;            /* 1: it ran; 0: it could not: nothing is reset, and gc_failed counts it */
    int family;         /* 1: freed starts over for every device of the type, as this run gave
                           memory of all of them back; 0: for this device alone */
    uint64_t reclaimed; /* bytes given back, as far as known */
} memlord_gc_result;

/* Gives memory back: drops a cache, trims a pool. Runs on the thread whose call crossed the
   threshold, inside that call, under whatever locks the host holds there, but none of MemLord (see
   MEMLORD_FLAG_DEFER). May call anything but memlord_destroy. If that call is a free, your
   allocator has not taken the block back yet. There is at most one run at a time for a device, and
   no other call waits for it. One callback may run for two devices at once. */
typedef memlord_gc_result (*memlord_gc_fn)(void *user, memlord *lord,
                                           const memlord_gc_event *event);

enum {
    MEMLORD_GC_QUIET = 1 << 30 /* in `reasons`: bands call it only if the program has set a
                                  strategy. For a library that adds a callback on its behalf */
};

/* Adds a callback for a device, a type, or all. `reasons` is a sum of 1 << MEMLORD_REASON_...;
   0 is all of them, bands included: the default strategy calls the callback until the host sets a
   strategy, once the capacity or a limit is known (memlord_strategy_default). Callbacks that match
   a device add up: the device's own run first, then its type's, then those of all, each in the
   order they came; their results are added.
   Errors: E_INVALID fn NULL, or an unknown reason; E_DEVICE; E_NOMEM. */
MEMLORD_API memlord_result memlord_gc_callback_add(memlord *lord, memlord_device sel,
                                                   uint32_t reasons, memlord_gc_fn fn,
                                                   void *user) MLI_OFF(MEMLORD_OK)
/* Removes the first callback with this selector, fn and user, and waits for runs of it on other
   threads. A callback may remove itself.
   Errors: E_INVALID fn NULL; E_DEVICE; E_UNKNOWN there is none. */
MEMLORD_API memlord_result memlord_gc_callback_remove(memlord *lord, memlord_device sel,
                                                      memlord_gc_fn fn, void *user)
    MLI_OFF(MEMLORD_OK)

/* Collects now, whatever the bands say. The callbacks that serve `reason` get `needed`: the bytes
   wanted, or 0 for no number. *reclaimed, if not NULL, is what they gave back, 0 after an error.
   MEMLORD_OK says that a callback ran, not that it gave back enough.
   Errors: E_INVALID the reason; E_DEVICE; E_UNKNOWN no callback serves the reason there; E_STATE a
           collection of the device is running, or no callback could run. */
MEMLORD_API memlord_result memlord_gc_run(memlord *lord, memlord_device device, int reason,
                                          uint64_t needed, uint64_t *reclaimed)
    MLI_OFF_SET(if (reclaimed) *reclaimed = 0, MEMLORD_OK)

/* Retires deferred frees and runs due collections: the safe point under MEMLORD_FLAG_DEFER.
   Without pollers it first samples what is older than their interval. Errors: E_DEVICE. */
MEMLORD_API memlord_result memlord_gc_poll(memlord *lord, memlord_device sel)
    MLI_OFF(MEMLORD_OK)

/* -- out of memory -- */

/* How memlord_alloc_retry tries again. */
typedef struct memlord_retry {
    uint32_t max_retries;         /* after the first attempt */
    uint32_t initial_ms, max_ms;  /* the first pause; the longest one, not less than the first */
    double multiplier;            /* of each further pause; at least 1: all zeros are refused */
    void (*sleep_ms)(void *user, uint32_t ms); /* pauses; NULL: MemLord pauses, and wakes when
                                                  enough is freed */
    void *user;
} memlord_retry;

/* Returns the pause after attempt 0, 1, ...: initial_ms x multiplier^attempt in whole ms, at most
   max_ms. A NULL policy is the default: 5 retries, from 50 ms, x 1.5, to 2000 ms. */
MEMLORD_API uint32_t memlord_retry_backoff(const memlord_retry *policy, uint32_t attempt)
    MLI_OFF(0)

/* Makes the real allocation. Returns 0 if it has one, with *storage set; > 0: no memory, try again;
   < 0: give up. */
typedef int (*memlord_try_fn)(void *user, uint64_t bytes, uint64_t *storage);

/* Allocates, through out of memory: calls fn; if that finds no memory, retires, collects
   (MEMLORD_REASON_OOM, `needed` set), pauses, and calls fn again. Records the storage itself, as
   memlord_alloc_with does; fn must not. If the request would pass the limit, it first retires and
   collects once (MEMLORD_REASON_LIMIT); if it still does not fit, it returns E_LIMIT without a call
   of fn. The bytes come off the ticket of `opts` or, if that is 0, off this thread's tickets on the
   device. Only what exceeds the tickets must fit; that is the `needed` of MEMLORD_REASON_LIMIT.
   While fn tries, no other alloc can draw on these bytes. A request that fails gives them back. A
   NULL policy is that of the environment variable MEMLORD_RETRY, or the default. The last failure
   is logged with memlord_explain, after a new sample.
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

/* Counts an allocation that found no memory and is not tried again: one of oom_attempts, one of
   oom_failures. Logs memlord_explain, at most once a second. Inside a memlord_try_fn it does
   nothing, as memlord_alloc_retry counts there.
   Errors: E_INVALID over 2^48; E_DEVICE. */
MEMLORD_API memlord_result memlord_alloc_failed(memlord *lord, memlord_device device,
                                                uint64_t bytes, const memlord_site *site)
    MLI_OFF(MEMLORD_OK)

/* -- pools: memory that the host's own allocator holds -- */

/* Sets how much a pool holds of a device, and its largest free piece (UINT64_MAX: not known). Looks
   at the bands of the device, so a collection may run inside this call; inside the device's
   capacity source none runs, but a later call runs it.
   Errors: E_DEVICE; E_NOMEM; E_INVALID over 2^62. */
MEMLORD_API memlord_result memlord_pool_set(memlord *lord, memlord_device device,
                                            uint64_t reserved, uint64_t largest_free)
    MLI_OFF(MEMLORD_OK)
/* Adds to what a pool holds or, if `delta` is negative, takes from it, and leaves the largest free
   piece as it was set. Looks at the bands as memlord_pool_set does.
   Errors: E_DEVICE; E_NOMEM; E_INVALID over 2^62, or below 0. */
MEMLORD_API memlord_result memlord_pool_add(memlord *lord, memlord_device device,
                                            int64_t delta) MLI_OFF(MEMLORD_OK)

/* Counts requests that the pool served from what it held, and those it passed on.
   Errors: E_DEVICE. Cost: two atomics. */
MEMLORD_API memlord_result memlord_pool_served(memlord *lord, memlord_device device,
                                               uint64_t hits, uint64_t misses)
    MLI_OFF(MEMLORD_OK)

/* Computes the part of a pool that is cached: (reserved - allocated) / reserved, at least 0; 0 when
   nothing is reserved. */
MEMLORD_API double memlord_cached_ratio(const memlord_stats *stats) MLI_OFF(0)
/* Computes how much of a pool's free memory is not in one piece: 1 - largest_free / (reserved -
   allocated), 0 to 1; 0 when nothing is free; NaN when the largest free piece is not known.
   0 with MEMLORD_DISABLE. */
MEMLORD_API double memlord_fragmentation(const memlord_stats *stats) MLI_OFF(0)

enum {
    MEMLORD_PRESSURE_UNKNOWN,  /* neither capacity nor limit is known */
    MEMLORD_PRESSURE_NORMAL,
    MEMLORD_PRESSURE_WARNING,  /* from 80 % of the capacity or the limit */
    MEMLORD_PRESSURE_CRITICAL, /* from 95 % */
    MEMLORD_PRESSURE_EMERGENCY /* the last memlord_alloc_retry found no memory, or
                                  memlord_alloc_failed was called since */
};
/* Returns the pressure on a physical device, MEMLORD_PRESSURE_...: by the bytes in use
   (memlord_capacity_source_set), or by what this ledger holds there and keeps for tickets, if that
   is more. With a page (memlord_pressure_open) it is the pressure of all processes: the used bytes
   are at least the sum of what they hold, and an emergency of one of them is one of all. The limit
   is of this process alone. Where the capacity is not known, the limit stands for it. */
MEMLORD_API int memlord_pressure_level(memlord *lord, memlord_device device)
    MLI_OFF(MEMLORD_PRESSURE_UNKNOWN)

/* -- neighbours: processes that share a device --
   Ledgers of one user, of one process or of several, join a page: a file that each of them maps.
   Each publishes there what it holds of its physical devices, and raises pressure when it finds no
   memory: then the others run their collection callbacks (MEMLORD_REASON_NEIGHBOUR). 64 ledgers
   fit, with the host's memory and 16 other physical devices each. */

/* Sets the identity of the physical device that a device's bytes are in: a text that is the same in
   every process, like the UUID of a GPU or its PCI bus id. Neighbours on a device are the ledgers
   with the same text (a hash of 64 bits is compared). A device without an identity is not on the
   page. memlord_cuda.h sets the identities of its GPUs. The cpu has one of its own: the cgroup with
   the lowest memory limit, or the machine, as memlord_pressure_open finds it. NULL or "" takes off
   what the host has set.
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
   bytes, until each of them has answered, or for 2 s. With `needed` 0 it asks, and does not wait. A
   ledger whose callbacks gave nothing back rests for 1 s, then for twice as long each time, up to
   60 s. While it rests it answers at once, and runs no callbacks for that device. The rest ends
   early when the device's live bytes have changed by more than an eighth. memlord_explain then says
   how many neighbours rest. memlord_alloc_retry asks
   the neighbours by itself before each pause.
   Errors: E_OOM they gave back less, or there are none; E_STATE no page is open, or it is closed
           meanwhile; E_UNKNOWN the device has no identity, or was never seen; E_DEVICE;
           E_UNSUPPORTED in a build with MEMLORD_NO_NEIGHBOURS. */
MEMLORD_API memlord_result memlord_pressure_raise(memlord *lord, memlord_device device,
                                                  uint64_t needed) MLI_OFF(MEMLORD_OK)

/* -- scopes: the cost of a phase of the program --
   A scope is a stretch of a thread's work with a name: a step, a layer, a request. Scopes nest,
   and are told apart by their path, "decode/attention". Each run of a scope is an invocation. The
   delta of an invocation is what its thread allocated meanwhile less what it freed, inner scopes
   included; it may be negative. Blocks remember the scope they were allocated in. */

/* Begins a scope on this thread. Scopes nest up to 64 deep. Names are cut to 200 bytes.
   Errors: E_INVALID NULL or ""; E_STATE too deep; E_NOMEM also over MEMLORD_MAX_SCOPES paths,
           counted. Cost: tens of ns, and one or two a device and thread. */
MEMLORD_API memlord_result memlord_scope_begin(memlord *lord, const char *name)
    MLI_OFF(MEMLORD_OK)
/* Ends the innermost scope of this thread. A thread that exits ends all of its own.
   Errors: E_STATE none was begun, which memlord_anomalies_each lists, or it was adopted (see
           memlord_scope_return). */
MEMLORD_API memlord_result memlord_scope_end(memlord *lord) MLI_OFF(MEMLORD_OK)

/* Sets the text that reports show with this invocation of the innermost scope: the shapes it works
   on, "q[1,32,128] k[1,8,128]". NULL removes it. Each text is kept once, until destroy. These texts
   and the names of checkpoints get half of MEMLORD_MAX_STRINGS. Errors: E_STATE no scope;
   E_NOMEM. */
MEMLORD_API memlord_result memlord_scope_shapes_set(memlord *lord, const char *shapes)
    MLI_OFF(MEMLORD_OK)

/* The token of a scope, by which other threads work in it: each adopts the token, and returns it
   when it is done. Between the two the thread is in the scope: its blocks remember the scope, and
   scopes that it begins are inside. The work of all threads is one invocation, which is over when
   the last of them has left it. Its delta is what all of them did, and its time runs from the begin
   to the last end. Its peak is the highest sum over them, low by at most a counter_batch for each
   thread, never high, and exact with MEMLORD_FLAG_EXACT. The scopes around the exported one do not
   include what other threads did. Any number of threads may have a copy of the token, and adopt it
   until the exporting thread ends the scope. A thread that has adopted the token may export the
   scope, too, and gets the same token. It stays in the scope until it returns the token, even after
   the exporting thread has ended the scope. */
typedef struct memlord_scope_token {
    uint64_t word[2]; /* the library's */
} memlord_scope_token;
/* Makes a token of this thread's innermost scope.
   Errors: E_STATE no scope; E_INVALID `out` NULL; E_NOMEM. */
MEMLORD_API memlord_result memlord_scope_export(memlord *lord, memlord_scope_token *out)
    MLI_OFF_SET(if (out) memset(out, 0, sizeof *out), MEMLORD_OK)
/* Enters the scope of a token on this thread.
   Errors: E_STATE this thread exported the token or has adopted it, or is 64 scopes deep; E_UNKNOWN
           the exporting thread has ended the scope, or the token is of another ledger; E_INVALID
           `token` NULL; E_NOMEM. */
MEMLORD_API memlord_result memlord_scope_adopt(memlord *lord, const memlord_scope_token *token)
    MLI_OFF(MEMLORD_OK)
/* Leaves the scope that this thread adopted.
   Errors: E_STATE the innermost scope is not this one; E_UNKNOWN the token is of another ledger;
           E_INVALID `token` NULL. */
MEMLORD_API memlord_result memlord_scope_return(memlord *lord, const memlord_scope_token *token)
    MLI_OFF(MEMLORD_OK)

/* The totals of all finished invocations of a path. Strings live until destroy. */
typedef struct memlord_scope_stat {
    const char *name, *path;
    const memlord_site *site; /* where MEMLORD_SCOPED stands; NULL: memlord_scope_begin began it */
    uint64_t id, parent;      /* of the scope; of the scope around it, 0: none */
    uint64_t count, running;  /* invocations that are over; that are not */
    struct {
        int64_t total, min, max;
    } bytes, blocks;          /* deltas */
    uint64_t peak;            /* the most that one invocation rose above its start: on each device
                                 by itself, then added, so an upper bound if there are several */
    struct {
        uint64_t total, min, max;
    } ns;                     /* the time that invocations took on the host */
    uint64_t device_ns;       /* what memlord_scope_device_time added */
} memlord_scope_stat;

/* Reads a scope by its path.
   Errors: E_UNKNOWN never begun, and *out is zero; E_INVALID `path` or `out` NULL. */
MEMLORD_API memlord_result memlord_scope_get(memlord *lord, const char *path,
                                             memlord_scope_stat *out)
    MLI_OFF_SET(if (out) memset(out, 0, sizeof *out), MEMLORD_OK)
/* Returns the id of this thread's innermost scope; 0: none. */
MEMLORD_API uint64_t memlord_scope_current(memlord *lord) MLI_OFF(0)
/* Adds to the time that a device took for a scope, once its events have measured it.
   Errors: E_UNKNOWN no such id. */
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
   Errors: as for memlord_context_swap; E_STATE also a context whose fibre is suspended inside
           another one. */
MEMLORD_API memlord_result memlord_context_drop(memlord *lord, memlord_context *context)
    MLI_OFF(MEMLORD_OK)

/* -- snapshots: how memory moved -- */

/* Keeps the totals of every device at this moment, under a name, with the ten largest blocks. Up
   to 255 snapshots are kept, spread over the whole run. Beyond that the snapshot goes whose
   neighbours are closest in time, and is counted. The first, the last, and those in which a device,
   or all devices together, held most stay. A checkpoint goes only when there is nothing else.
   Errors: E_INVALID NULL or ""; E_NOMEM, counted.
   Cost:   a tenth of a us a device and thread, and a walk of the map: about 10 ns a block. */
MEMLORD_API memlord_result memlord_checkpoint(memlord *lord, const char *name)
    MLI_OFF(MEMLORD_OK)

/* Takes a snapshot now, one every interval_ms (0: 5000, at least 10) on a thread of its own, and a
   last one at the stop. Until then a report that shows snapshots (TEXT, JSON, HTML, TRACE) ends
   with one of its own, which is not kept. Without threads memlord_gc_poll takes those that are due.
   The ledger's clock decides: while a clock of the host's stands still none is taken; when it runs
   ahead, or the interval changes, the thread learns that within a second.
   Errors: E_INVALID an interval of 1 to 9; E_NOMEM the first snapshot failed; the others will
           come. */
MEMLORD_API memlord_result memlord_snapshots_start(memlord *lord, uint32_t interval_ms)
    MLI_OFF(MEMLORD_OK)
/* Takes a last snapshot and joins the thread of memlord_snapshots_start.
   Errors: E_STATE on a thread of MemLord's own. */
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
    memlord_device device;    /* memlord_device_all(): the event concerns no device */
    uint64_t storage, bytes;
    const memlord_site *site; /* of the call, where sites are counted; NULL: not known */
    const char *tag;          /* of the block; NULL: none */
    uint64_t scope;           /* the thread's innermost; 0: none */
    uint64_t stream;          /* of the block; 0: none, or the default one */
} memlord_event;
typedef int (*memlord_event_fn)(void *user, const memlord_event *event); /* != 0 stops */

/* Writes what happens from now on into a ring of at most `capacity` events (0: 65536; 40 bytes
   each). New events overwrite the oldest, which count in dropped_events. A ledger has one ring: a
   later start goes on in it.
   Errors: E_INVALID over 2^26; E_STATE the ledger has a ring of another capacity; E_NOMEM.
   Cost:   one branch a call when off. */
MEMLORD_API memlord_result memlord_events_start(memlord *lord, size_t capacity)
    MLI_OFF(MEMLORD_OK)
/* Stops the writing of events; the ring can still be read.
   Errors: E_STATE on a thread of MemLord's own. */
MEMLORD_API memlord_result memlord_events_stop(memlord *lord) MLI_OFF(MEMLORD_OK)
/* Calls fn for the events in the ring, in the order of their time, until fn returns non-zero.
   Events that are overwritten meanwhile are left out. Errors: E_INVALID `fn` NULL; E_NOMEM. */
MEMLORD_API memlord_result memlord_events_each(memlord *lord, memlord_event_fn fn, void *user)
    MLI_OFF(MEMLORD_OK)
