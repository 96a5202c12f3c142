/* The next groups are about the memory of devices and the phases of a program. A physical device is
   memory that one or several devices share. A poller is a thread of MemLord that samples a physical
   device at intervals. A ticket holds bytes of a limit for later allocs. An account is charged the
   bytes of a request or a user. A pool is device memory that the host's own allocator holds. A
   collection is a run of the host's callbacks that give memory back. A strategy is a list of bands;
   a band is a range of used % (the used part of the capacity) with a threshold at which a
   collection is due. A page is a file by which the ledgers of several processes tell each other
   what they hold. A scope is a phase of the program with a name. A context is the open tags and
   scopes that the calls of a thread use. A selector (`sel`) is one device, all devices of a type,
   or all devices. >>concepts has all such words. */

/* -- capacity --
   The size of a device and its used bytes. Each device type has a source that tells them. The
   source of the cpu is built in. It tells the memory of the machine or, if that is less, the memory
   limit of the container, with the page cache left out. The host gives the sources of other types.
   On Linux, from 3.14 on, the built-in source reads /proc/meminfo and the limits of this process's
   cgroup and those above it, below /sys/fs/cgroup (v2) or /sys/fs/cgroup/memory (v1). Where cgroups
   are mounted elsewhere, it sees the machine. After a sample that failed, or makes no sense (a
   total of 0, used over total), the capacity is not known.

   memlord_headroom, _would_fit, _plan_fit, _explain, _pressure_level, bands and reports share one
   figure for the bytes in use: `used` of the latest sample, plus what the ledger recorded since,
   less what was freed since, on all devices of the physical device. So one thread that asks before
   each alloc never gets more than was free at the sample. Mapped files do not count, because they
   are page cache. A device with a pool counts by its live bytes or by what the pool holds,
   whichever is more. A free on the cpu takes nothing off until the next sample, because the allocator below may
   keep the memory. Memory of the cpu that is allocated and freed again and again counts once, give
   or take a counter_batch for each thread. The figure is never below what the ledger's own devices
   hold. (For the bands of the cpu it may be: memory that was never touched is not in use.)

   These readers take a sample themselves if none is known, or if the latest one is older than three
   poll intervals and no poller runs. If a source fails, they ask it again after an interval at the
   earliest. They ask no source with MEMLORD_FLAG_DEFER, nor inside a collection callback, a source,
   a try function, a fence, a logger or the ledger's allocator. A sample by a reader runs no
   collection; the next recorded call looks at the bands. memlord_write, memlord_save and exports
   first sample every device in the same way. The reports of memlord_request_save, and those at exit
   and at destroy, ask only the built-in source. */

/* Another process that holds memory of a device. */
typedef struct memlord_other {
    uint64_t pid;
    uint64_t bytes;
} memlord_other;

#define MEMLORD_OTHERS 8

/* The capacity of a device. `context` is what the driver itself holds for this process, such as
   modules and stacks. The bytes of `context` are a part of `process`, if that is known, and
   are not among the live bytes. Reports show them, and subtract them from the unaccounted bytes.
   `others` are the processes besides this one that hold most, the largest first; a pid of 0 ends
   the list. memlord_explain and reports show these processes, with their names if Linux gives the
   names. */
typedef struct memlord_capacity {
    uint64_t total, used; /* bytes of the device; bytes that all processes use */
    uint64_t process;     /* bytes of `used` that this process holds; 0: the source cannot tell */
    uint64_t age_ns;      /* age of the sample in ns; a source does not set it */
    int known;            /* 0: the other fields mean nothing; a source does not set it */
    uint64_t context;     /* bytes that the driver holds for this process; 0: the source cannot
                             tell */
    memlord_other others[MEMLORD_OTHERS];
} memlord_capacity;

/* Fills total and used, and process, context and others if it can. All fields are 0 before the
   call. It returns 0, or another number if the capacity is not known. It runs on the poller, or on
   a thread that asks for a sample or reads a capacity, one call at a time for a device. It may
   block. */
typedef int (*memlord_capacity_fn)(void *user, memlord_device device, memlord_capacity *out);

/* Sets the source of a device type. NULL restores the built-in one, if the type has one. If another
   thread is in the old source, the call waits until the old source has returned. The samples of the
   old source are forgotten.
   Errors: E_DEVICE if `type` is no device type. */
MEMLORD_API memlord_result memlord_capacity_source_set(memlord *lord, int type,
                                                       memlord_capacity_fn fn, void *user)
    MLI_OFF(MEMLORD_OK)

/* Reads the latest sample, as the source gave it. It queries no source. If there is no sample,
   `known` is 0, and the result is MEMLORD_OK.
   Errors: E_INVALID if `out` is NULL; E_DEVICE if `device` is not one device.
   Cost:   a lock of one device and the clock. */
MEMLORD_API memlord_result memlord_capacity_get(memlord *lord, memlord_device device,
                                                memlord_capacity *out)
    MLI_OFF_SET(if (out) memset(out, 0, sizeof *out), MEMLORD_OK)

/* Queries the source of a device now.
   Errors: E_UNSUPPORTED if the type has no source; E_UNKNOWN if the source failed, or its answer
           makes no sense; E_STATE if another thread is taking a sample of the device; E_DEVICE if
           `device` is not one device; E_NOMEM.
   Cost:   what the source costs. */
MEMLORD_API memlord_result memlord_capacity_sample(memlord *lord, memlord_device device)
    MLI_OFF(MEMLORD_OK)

/* Starts the pollers. A poller is a thread that samples a physical device each `interval_ms` (0:
   200, at least 10). Each physical device with a source gets one. MEMLORD_POLL_INTERVAL_MS
   overrides the interval.
   A poller also starts by itself when a device is used that has all three: a capacity source, a
   callback that serves MEMLORD_REASON_BAND, and a strategy. Without a poller memlord_gc_poll
   samples the devices whose latest sample is too old, and so do the functions that read a capacity.
   Errors: E_INVALID for an interval of 1 to 9; E_UNSUPPORTED in a build without threads or with
           MEMLORD_FLAG_NO_THREADS; E_NOMEM if the system gives no thread now. A later start tries
           again. */
MEMLORD_API memlord_result memlord_poller_start(memlord *lord, uint32_t interval_ms)
    MLI_OFF(MEMLORD_OK)
/* Stops the pollers and joins their threads. No poller starts by itself until the next start.
   Errors: E_STATE on a thread of MemLord's own. */
MEMLORD_API memlord_result memlord_poller_stop(memlord *lord) MLI_OFF(MEMLORD_OK)

/* -- limits --
   A limit makes memlord_reserve and memlord_alloc_retry refuse a request. It never makes
   memlord_alloc refuse one, because that records an alloc that has happened. The limit of an
   account makes the same two functions refuse a request. They keep live bytes plus tickets at or
   below both limits. Bytes that a pool has reserved and not allocated do not count. A request that
   a limit refuses is logged, and counts in no statistic: oom_failures counts the requests for which
   the device had no memory. */

/* Sets the limit of a physical device. 0 means no limit. The limit may be below the live bytes;
   then requests are refused until enough is freed.
   Errors: E_DEVICE if `device` is not one device; E_NOMEM. */
MEMLORD_API memlord_result memlord_limit_set(memlord *lord, memlord_device device,
                                             uint64_t bytes) MLI_OFF(MEMLORD_OK)

/* Sets the limit to a fraction of the capacity. When the capacity changes, the limit changes,
   too. The call takes a sample if no capacity is known.
   Errors: E_INVALID unless 2^-64 <= fraction <= 1; E_UNKNOWN if the capacity is not known. */
MEMLORD_API memlord_result memlord_limit_set_fraction(memlord *lord, memlord_device device,
                                                      double fraction) MLI_OFF(MEMLORD_OK)

/* Returns how many bytes still fit: the smaller of limit - live bytes and capacity - bytes in use,
   minus the bytes that open tickets keep. A negative result says how many bytes are too many. The
   result is INT64_MAX if neither limit nor capacity is known. A device that is new to the ledger is
   added if its type has a source.
   Cost:   some tens of ns, and a few ns a thread; when it takes a sample, also the cost of the
           source. */
MEMLORD_API int64_t memlord_headroom(memlord *lord, memlord_device device)
    MLI_OFF(INT64_MAX)

/* Tells whether so many bytes fit. Returns 1 if they do, 0 if not, and -1 if neither limit nor
   capacity is known. */
MEMLORD_API int memlord_would_fit(memlord *lord, memlord_device device, uint64_t bytes)
    MLI_OFF(-1)

/* Tells whether a whole plan fits, each block on its device. `storage` of the blocks is ignored. It
   returns as memlord_would_fit does, and -1 also if the plan names something that is no device.
   *short_by, if not NULL, gets the largest number of bytes that a device lacks. If no device lacks
   bytes, it gets the smallest number of bytes that a device would have left, as a negative number.
   If the result is -1, it gets 0. */
MEMLORD_API int memlord_plan_fit(memlord *lord, const memlord_block *blocks, size_t n,
                                 int64_t *short_by)
    MLI_OFF_SET(if (short_by) *short_by = 0, -1)

/* Writes in one line how many bytes a request of `wanted` lacks, and who holds the memory of the
   physical device.
   The line has the limit, the capacity, the tickets, other processes, and the largest tags and
   sites, with untagged bytes and arenas among them. If several devices share the memory, each tag
   and site comes with its device. The line also has the bytes of the tags and sites that it does
   not list, how many requests failed on this device before, how many bytes the neighbours on the
   page hold there, and how many neighbours rest (run no callbacks for a while): see
   memlord_pressure_open and memlord_pressure_raise.
   The function returns a length as snprintf does, and allocates nothing. MemLord logs this line
   itself when an allocation fails for good. When a reservation is refused, it logs the line as a
   warning, at most once a second.
   Cost:   walks tags and sites. MemLord's own lines cost no walk if the ledger has no logger. */
MEMLORD_API size_t memlord_explain(memlord *lord, memlord_device device, uint64_t wanted,
                                   char *buf, size_t cap)
    MLI_OFF_SET(if (buf && cap) buf[0] = 0, 0)

/* -- reservations: memory for work that has not begun -- */

typedef uint64_t memlord_ticket; /* the number of a ticket; 0: none */

/* Reserves bytes of a device's limit for later allocs. The order is: memlord_reserve, the real
   allocation, memlord_alloc, memlord_reserve_commit. A ticket belongs to the thread that reserved
   or adopted it. The bytes that this thread records on the device come off the ticket, so that
   nothing counts twice. Those of memlord_alloc_retry do, too: that call needs room only for the
   bytes that the ticket lacks. An alloc of another thread comes off the ticket if it names the
   ticket: memlord_alloc_with. A free does not refill a ticket. The allocs of a thread come off its
   8 latest tickets. Bytes beyond these tickets count in full, unless the alloc names one. A thread
   may hold any number of tickets for other threads to name.
   Without a limit every request is granted. memlord_reserve runs no collection and waits for
   nothing. After E_LIMIT call memlord_gc_run with MEMLORD_REASON_LIMIT and the bytes as `needed`.
   If that call gave back something, reserve again. Or use memlord_alloc_retry, or wait until the
   host has freed something.
   Errors: E_LIMIT if the bytes would exceed the limit of the device, the limit of the account that
           this thread uses there, or 2^62 in all. At most once a second this is logged as a
           warning, with the line of memlord_explain or the name of the account. E_INVALID if bytes
           is over 2^48 or `out` is NULL; E_DEVICE if `device` is not one device; E_NOMEM; E_STATE
           if the ledger's own allocator calls it. After an error *out is 0. */
MEMLORD_API memlord_result memlord_reserve(memlord *lord, memlord_device device,
                                           uint64_t bytes, memlord_ticket *out)
    MLI_OFF_SET(if (out) *out = 0, MEMLORD_OK)
/* Ends a ticket, and gives back the bytes that no alloc has taken. Any thread may call it. Call it
   for a request that failed, too.
   Errors: E_UNKNOWN if `ticket` is no open ticket of this ledger. */
MEMLORD_API memlord_result memlord_reserve_commit(memlord *lord, memlord_ticket ticket)
    MLI_OFF(MEMLORD_OK)

/* Moves a ticket to this thread, for example from a thread that accepts requests to one that serves
   them. A thread may adopt a ticket that it has.
   Errors: E_UNKNOWN if `ticket` is no open ticket of this ledger. */
MEMLORD_API memlord_result memlord_reserve_adopt(memlord *lord, memlord_ticket ticket)
    MLI_OFF(MEMLORD_OK)

/* -- accounts: bytes charged to a request or a user -- */

typedef uint64_t memlord_account; /* the number of an account; 0: none */

typedef struct memlord_account_stat {
    char name[48]; /* name of the account, cut to fit */
    memlord_device device;
    uint64_t bytes, peak; /* bytes charged now; most bytes that were charged at once */
    uint64_t limit;       /* limit of the account in bytes; 0: none */
    uint64_t refused;     /* number of charges, blocks and requests over the limit */
} memlord_account_stat;

/* Opens an account. What is charged to it adds nothing to the device's bytes. A `limit` of 0 means
   no limit. `name` may be NULL. Reports list the open accounts. The number of a closed account is
   never used again.
   Errors: E_INVALID if `out` is NULL; E_DEVICE if `device` is not one device; E_NOMEM. */
MEMLORD_API memlord_result memlord_account_open(memlord *lord, memlord_device device,
                                                const char *name, uint64_t limit,
                                                memlord_account *out)
    MLI_OFF_SET(if (out) *out = 0, MEMLORD_OK)

/* Adds bytes to an account or, if `bytes` is negative, takes them off. Any thread may call it. The
   bytes that tickets hold of an account count against the account's limit.
   Errors: E_LIMIT over the account's limit or 2^48; E_INVALID if the account would fall below 0;
           E_UNKNOWN if the account is closed. After an error nothing has changed.
   Cost:   a few atomics. */
MEMLORD_API memlord_result memlord_account_charge(memlord *lord, memlord_account account,
                                                  int64_t bytes) MLI_OFF(MEMLORD_OK)

/* Uses an account for this thread. What the thread allocates on the account's device from now on,
   also by memlord_alloc_with, is charged to the account. The charge ends with the block,
   whichever thread frees it. Do not charge the same bytes by memlord_account_charge.
   These allocs are recorded even if they exceed the account's limit; `refused` then counts them.
   memlord_reserve and memlord_alloc_retry obey the limit: a request for more than is left returns
   E_LIMIT, as a request over the device's limit does. A ticket also holds bytes of the account,
   until an alloc uses these up or the ticket is committed. A thread uses one account at a time,
   until the next call of this function or the end of the thread. The account 0 means no account.
   A resized block is charged its new bytes. A move to another device ends the charge. On the
   new device the block is charged like an alloc of this thread. Arenas are not charged.
   Errors: E_UNKNOWN if the account is closed; E_NOMEM. After an error the thread uses the same
           account as before.
   Cost:   an alloc that is charged takes some tens of ns more, and its block 250 bytes more. */
MEMLORD_API memlord_result memlord_account_use(memlord *lord, memlord_account account)
    MLI_OFF(MEMLORD_OK)
/* Reads an account.
   Errors: E_INVALID if `out` is NULL; E_UNKNOWN if the account is closed, and *out is zero. */
MEMLORD_API memlord_result memlord_account_get(memlord *lord, memlord_account account,
                                               memlord_account_stat *out)
    MLI_OFF_SET(if (out) memset(out, 0, sizeof *out), MEMLORD_OK)
/* Closes an account, whatever is charged to it. Its blocks live on, and are charged to no account.
   Errors: E_UNKNOWN if the account is closed already. */
MEMLORD_API memlord_result memlord_account_close(memlord *lord, memlord_account account)
    MLI_OFF(MEMLORD_OK)

/* -- one alloc: site, tag, ticket, account and stream in one call -- */

/* The options of memlord_alloc_with and memlord_alloc_retry. For a field that is 0 or NULL the
   alloc takes what its thread has set, except for the site. */
typedef struct memlord_alloc_opts {
    const memlord_site *site; /* site of the alloc; NULL: none */
    const char *tag;          /* tag of the alloc, which is copied; "": no tag; NULL: the thread's
                                 tag */
    memlord_ticket ticket;    /* the only ticket that the bytes come off; 0: the thread's tickets */
    memlord_account account;  /* account that is charged; MEMLORD_NONE: no account, and no account's
                                 limit; 0: the thread's */
    uint64_t stream;          /* stream of the alloc; MEMLORD_NONE: the default stream; 0: the
                                 thread's stream */
} memlord_alloc_opts;

/* Records an alloc as memlord_alloc does, with its own tag, ticket, account and stream. With `opts`
   NULL it is memlord_alloc without a site. Any thread may name a ticket, so one scheduler can serve
   any number of requests. Bytes beyond the ticket count in full. A ticket does not tell which
   account the alloc is charged to: name that account, too.
   A ticket that is closed, or of another physical device, is taken as 0. So is an account that is
   closed, or of another device. The alloc is then recorded with the thread's own tickets or
   account, `refused` counts it, and the result is MEMLORD_OK.
   Errors: as memlord_alloc. If there is no memory for the tag, the alloc has no tag, and
           dropped_sites counts that.
   Cost:   a few ns more than memlord_alloc; with a ticket, an account or a stream other than the
           thread's, some tens of ns more. */
MEMLORD_API memlord_result memlord_alloc_with(memlord *lord, memlord_device device,
                                              uint64_t storage, uint64_t bytes,
                                              const memlord_alloc_opts *opts) MLI_OFF(MEMLORD_OK)

/* -- bands: when a collection pays --
   A strategy is a list of bands over the used % of a device. The first band with lo <= used% < hi
   decides. A collection is due when the band's metric is at or above its threshold. The threshold
   is the larger of `bytes` and `percent` or, with COMBINE_MIN, the smaller. If one of the two is 0,
   the other is the threshold. For CACHED the percentage is of what the pool has reserved. For the
   other metrics it is of the capacity, or of the limit if that is set and smaller.
   used % is the share of the capacity that is in use now, not only at the latest sample, so a band
   fires in the call that enters it. Where only the limit is known, it is the live bytes' share of
   that. Above 100 it counts as 100. While neither is known, only a band that covers 0 to 100 is
   looked at, and its `percent` is not used.
   A band fires again after its metric has been below 7/8 of the threshold. It also fires again when
   its metric has grown by 1/8 of the threshold since the last run, a failed run included. After a
   new strategy and after memlord_reset it can fire at once. When only the band changes, it cannot.
   A band is no upper bound: if a run could not give enough back, no other run follows at once.
   The most specific strategy decides for a device: that of the device, else that of its type, else
   that of all. A strategy is in force once a callback that serves MEMLORD_REASON_BAND matches the
   device. */

typedef enum memlord_metric {
    MEMLORD_METRIC_ALLOCATED, /* live bytes of the device */
    MEMLORD_METRIC_FREED,     /* bytes freed on the device since the last collection */
    MEMLORD_METRIC_MAX,       /* the larger of ALLOCATED and FREED */
    MEMLORD_METRIC_RESERVED,  /* bytes that the pool holds: memlord_pool_set */
    MEMLORD_METRIC_CACHED     /* bytes that the pool holds and has not allocated; each free raises
                                 their number */
} memlord_metric;
typedef enum memlord_combine { MEMLORD_COMBINE_MAX, MEMLORD_COMBINE_MIN } memlord_combine;

typedef struct memlord_band {
    double lo, hi; /* the band is for used % from lo on and below hi; a hi of 101 means no
                      upper end */
    memlord_metric metric;
    uint64_t bytes;          /* a threshold in bytes; 0: not used */
    double percent;          /* a threshold in percent; 0: not used */
    memlord_combine combine; /* says if the larger or the smaller of the two thresholds decides */
} memlord_band;

/* Sets the strategy of a device, of a type, or of all. n = 0 switches bands off there. The bands
   are copied. They also serve devices that the ledger does not know yet. Overlaps, gaps between
   bands and an uncovered 100 % are logged as warnings.
   Errors: E_INVALID if a band is bad; the log names the band. E_DEVICE if `sel` is not a selector;
           E_NOMEM. After an error the old strategy stays. */
MEMLORD_API memlord_result memlord_strategy_set(memlord *lord, memlord_device sel,
                                                const memlord_band *bands, size_t n)
    MLI_OFF(MEMLORD_OK)
/* Takes off the strategy of exactly this selector, so that a less specific strategy decides again.
   Below the strategy of all devices there is only the default strategy.
   Errors: E_DEVICE if `sel` is not a selector; E_UNKNOWN if no strategy was set. */
MEMLORD_API memlord_result memlord_strategy_unset(memlord *lord, memlord_device sel)
    MLI_OFF(MEMLORD_OK)
/* Checks bands. A band is bad if lo >= hi, if a number is NaN, over 1e9, negative, or above 0 but
   below 2^-64, if it has no threshold, or if its metric is unknown.
   Errors: E_INVALID if a band is bad; *bad, if not NULL, gets the index of the first bad band. */
MEMLORD_API memlord_result memlord_strategy_check(const memlord_band *bands, size_t n,
                                                  size_t *bad)
    MLI_OFF_SET(if (bad) *bad = 0, MEMLORD_OK)
/* Returns the default strategy: {75,90: freed, 10 %}, {90,101: freed, 5 %}. It is in force for all
   devices until the host sets a strategy, except with MEMLORD_FLAG_NO_STRATEGY. While it is in
   force, a run that gave back less than a quarter of (value - 7/8 of the threshold) doubles the
   distance to the next run, until a run gives a quarter or the metric falls below 7/8. */
MEMLORD_API const memlord_band *memlord_strategy_default(size_t *n)
    MLI_OFF_SET(if (n) *n = 0, NULL)

/* -- collection -- */

/* Each line has the name and the text of a reason why a collection runs. */
#define MLI_REASONS(X)                                                                        \
    X(BAND, "band") /* a threshold of the strategy is crossed */                              \
    X(OOM, "out of memory") /* memlord_alloc_retry found no memory */                         \
    X(LIMIT, "limit") /* a request does not fit under the limit */                            \
    X(NEIGHBOUR, "neighbour") /* another process asks for memory: memlord_pressure_open */    \
    X(FRAGMENTATION, "fragmentation") /* for memlord_gc_run: the pool is in pieces */         \
    X(HOST, "host") /* for memlord_gc_run: the host asks for it */
enum {
#define MLI_X(name, text) MEMLORD_REASON_##name,
    MLI_REASONS(MLI_X)
#undef MLI_X
    MEMLORD_REASON_COUNT
};

typedef struct memlord_gc_event {
    memlord_device device;
    int reason;              /* MEMLORD_REASON_... */
    double used_percent;     /* used % of the device; -1: not known */
    size_t band;             /* the band's index in the strategy; SIZE_MAX: no band has fired */
    memlord_metric metric;
    uint64_t value, threshold; /* the metric's value and threshold; without a band: the live bytes,
                                  and 0 */
    uint64_t needed;         /* bytes wanted; 0: not known, as when a band fires */
    uint64_t device_runs, total_runs; /* number of collections so far, on the device and in the
                                         ledger; includes this one and the failed ones */
} memlord_gc_event;

typedef struct memlord_gc_result {
    int ran;            /* 1: the callback ran; 0: it could not run. If no callback of a
                           collection could run, gc_failed counts the collection, and
                           MEMLORD_METRIC_FREED does not start again from 0 */
    int family;         /* 1: this run gave back memory of all devices of the type, so
                           MEMLORD_METRIC_FREED starts again from 0 on each of them; 0: it does so
                           on this device only */
    uint64_t reclaimed; /* bytes given back, as far as known */
} memlord_gc_result;

/* Gives memory back: drops a cache, trims a pool. It runs on the thread whose call crossed the
   threshold, inside that call, under whatever locks the host holds there, but none of MemLord (see
   MEMLORD_FLAG_DEFER). If that call is a free, your allocator has not taken the block back yet. The
   callback may call anything but memlord_destroy. A callback that is added during a run is first
   called in the next. A device has at most one run at a time, and no other call waits for it. One
   callback may run for two devices at once. */
typedef memlord_gc_result (*memlord_gc_fn)(void *user, memlord *lord,
                                           const memlord_gc_event *event);

enum {
    MEMLORD_GC_QUIET = 1 << 30 /* in `reasons`: bands call the callback only if the program has set
                                  a strategy. It is for a library that adds a callback on the
                                  program's behalf */
};

/* Adds a callback for a device, a type, or all. `reasons` is a sum of 1 << MEMLORD_REASON_..., and
   0 means all of them. If BAND is among them, the default strategy (memlord_strategy_default) calls
   the callback once the capacity or a limit is known. It does so until the host sets a strategy.
   All callbacks that match a device run: first the device's own, then its type's, then those of
   all, each in the order in which they were added. Their results are added up.
   Errors: E_INVALID if fn is NULL, or a reason is unknown; E_DEVICE if `sel` is not a selector;
           E_NOMEM. */
MEMLORD_API memlord_result memlord_gc_callback_add(memlord *lord, memlord_device sel,
                                                   uint32_t reasons, memlord_gc_fn fn,
                                                   void *user) MLI_OFF(MEMLORD_OK)
/* Removes the first callback with this selector, fn and user, and waits for runs of it on other
   threads. A callback may remove itself.
   Errors: E_INVALID if fn is NULL; E_DEVICE if `sel` is not a selector; E_UNKNOWN if there is no
           such callback. */
MEMLORD_API memlord_result memlord_gc_callback_remove(memlord *lord, memlord_device sel,
                                                      memlord_gc_fn fn, void *user)
    MLI_OFF(MEMLORD_OK)

/* Collects now, whatever the bands say. The callbacks that serve `reason` get `needed`: how many
   bytes are wanted, or 0 if that is not known. *reclaimed, if not NULL, gets the bytes that they
   gave back, or 0 after an error. MEMLORD_OK says that a callback ran, not that it gave back
   enough.
   Errors: E_INVALID if the reason is unknown; E_DEVICE if `device` is not one device; E_UNKNOWN if
           no callback serves the reason there; E_STATE if a collection of the device is running, or
           no callback could run. */
MEMLORD_API memlord_result memlord_gc_run(memlord *lord, memlord_device device, int reason,
                                          uint64_t needed, uint64_t *reclaimed)
    MLI_OFF_SET(if (reclaimed) *reclaimed = 0, MEMLORD_OK)

/* Retires deferred frees and runs due collections. Under MEMLORD_FLAG_DEFER the host makes this
   call where callbacks may run. Without pollers the call first samples the devices whose latest
   sample is older than the pollers' interval.
   Errors: E_DEVICE if `sel` is not a selector. */
MEMLORD_API memlord_result memlord_gc_poll(memlord *lord, memlord_device sel)
    MLI_OFF(MEMLORD_OK)

/* -- out of memory -- */

/* The policy by which memlord_alloc_retry tries again. */
typedef struct memlord_retry {
    uint32_t max_retries;         /* most attempts after the first */
    uint32_t initial_ms, max_ms;  /* the first pause and the longest one, in ms; max_ms is not less
                                     than initial_ms */
    double multiplier;            /* each pause is this many times as long as the one before; at
                                     least 1 */
    void (*sleep_ms)(void *user, uint32_t ms); /* the function that pauses; NULL: MemLord pauses,
                                                  and wakes when enough is freed */
    void *user;
} memlord_retry;

/* Returns the pause after attempt 0, 1, ... in ms: initial_ms x multiplier^attempt in whole ms, at
   most max_ms. A NULL policy is the default: 5 retries, from 50 ms, x 1.5, to 2000 ms. */
MEMLORD_API uint32_t memlord_retry_backoff(const memlord_retry *policy, uint32_t attempt)
    MLI_OFF(0)

/* Makes the real allocation. It returns 0 if it has made one, with *storage set. A positive number
   says that there was no memory, and asks to try again. A negative number asks to give up. */
typedef int (*memlord_try_fn)(void *user, uint64_t bytes, uint64_t *storage);

/* Allocates, and tries again when there is no memory. It first calls fn. If fn finds no memory,
   memlord_alloc_retry retires deferred frees, collects (MEMLORD_REASON_OOM, `needed` set), pauses,
   and calls fn again. It records the storage itself, as memlord_alloc_with does; fn must not.
   If the request would exceed the limit, memlord_alloc_retry first retires and collects once
   (MEMLORD_REASON_LIMIT). If the request still does not fit, the result is E_LIMIT, and fn is not
   called. The bytes come off the ticket of `opts` or, if that is 0, off this thread's tickets on
   the device. Only the bytes beyond the tickets must fit. A collection for MEMLORD_REASON_LIMIT
   gets these bytes as `needed`. While fn tries, all bytes of the request are reserved, so no other
   alloc can use them. A request that fails gives all of them back. A NULL policy is that of the
   environment variable MEMLORD_RETRY, or the default. If fn found no memory, or the limit of the
   device refuses the request, the text of memlord_explain is logged. If fn found no memory, the
   device is sampled before that.
   Errors: E_INVALID if fn or storage is NULL, bytes is over 2^48, or the policy has max_ms <
           initial_ms or a multiplier that is not finite or below 1; E_DEVICE if `device` is not one
           device; E_LIMIT over the limit of the device or of the account; E_OOM if fn found no
           memory or gave up; E_NOMEM if the ledger has no room for the request's reservation. After
           an error *storage is 0. */
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

/* Counts an allocation that found no memory and is not tried again: once in oom_attempts, and once
   in oom_failures. It logs the text of memlord_explain, at most once a second. Inside a
   memlord_try_fn it does nothing, because memlord_alloc_retry counts there.
   Errors: E_INVALID if bytes is over 2^48; E_DEVICE if `device` is not one device. */
MEMLORD_API memlord_result memlord_alloc_failed(memlord *lord, memlord_device device,
                                                uint64_t bytes, const memlord_site *site)
    MLI_OFF(MEMLORD_OK)

/* -- pools: memory that the host's own allocator holds -- */

/* Sets how many bytes a pool holds of a device, and its largest free piece (UINT64_MAX: not known).
   It looks at the bands of the device, so a collection may run inside this call. If the device's
   capacity source makes the call, the collection runs in a later call instead.
   Errors: E_DEVICE if `device` is not one device; E_NOMEM; E_INVALID if reserved is over 2^62. */
MEMLORD_API memlord_result memlord_pool_set(memlord *lord, memlord_device device,
                                            uint64_t reserved, uint64_t largest_free)
    MLI_OFF(MEMLORD_OK)
/* Adds to what a pool holds or, if `delta` is negative, takes from it. The largest free piece stays
   as it was set. It looks at the bands as memlord_pool_set does.
   Errors: E_DEVICE if `device` is not one device; E_NOMEM; E_INVALID if the sum is over 2^62 or
           below 0. */
MEMLORD_API memlord_result memlord_pool_add(memlord *lord, memlord_device device,
                                            int64_t delta) MLI_OFF(MEMLORD_OK)

/* Counts requests that the pool served from what it held, and requests that it passed on.
   Errors: E_DEVICE if `device` is not one device.
   Cost:   two atomics. */
MEMLORD_API memlord_result memlord_pool_served(memlord *lord, memlord_device device,
                                               uint64_t hits, uint64_t misses)
    MLI_OFF(MEMLORD_OK)

/* Computes the part of a pool that is cached: (reserved - allocated) / reserved, at least 0. The
   result is 0 when nothing is reserved. */
MEMLORD_API double memlord_cached_ratio(const memlord_stats *stats) MLI_OFF(0)
/* Computes how much of a pool's free memory is not in one piece: 1 - largest_free / (reserved -
   allocated), 0 to 1. The result is 0 when nothing is free, and -1 when the largest free piece is
   not known. With MEMLORD_DISABLE it is 0. */
MEMLORD_API double memlord_fragmentation(const memlord_stats *stats) MLI_OFF(0)

/* -- pressure: how full a device is, in one word -- */

enum {
    MEMLORD_PRESSURE_UNKNOWN,  /* neither capacity nor limit is known */
    MEMLORD_PRESSURE_NORMAL,
    MEMLORD_PRESSURE_WARNING,  /* from 80 % of the capacity or the limit */
    MEMLORD_PRESSURE_CRITICAL, /* from 95 % */
    MEMLORD_PRESSURE_EMERGENCY /* the latest memlord_alloc_retry found no memory, or
                                  memlord_alloc_failed was called after it */
};
/* Returns the pressure on a physical device as MEMLORD_PRESSURE_.... It goes by the bytes in use
   (see "capacity" above), or by the bytes that this ledger holds there plus those of its tickets,
   if that is more.
   With a page (memlord_pressure_open) it is the pressure of all processes on the page: the bytes in
   use are at least the sum of what these processes hold, and an emergency of one of them is an
   emergency of all. The limit is that of this process alone. Where the capacity is not known, the
   limit takes its place. For 2 s after a stall for memory (see memlord_pressure_open), the level of
   the host's memory is at least WARNING. */
MEMLORD_API int memlord_pressure_level(memlord *lord, memlord_device device)
    MLI_OFF(MEMLORD_PRESSURE_UNKNOWN)

/* -- neighbours: processes that share a device --
   Ledgers of one user, of one process or of several, join a page: a file that each of them maps.
   Each ledger publishes there what it holds of its physical devices. A ledger that finds no memory
   raises pressure: then the others run their collection callbacks (MEMLORD_REASON_NEIGHBOUR). A
   page has room for 64 ledgers, each with the host's memory and 16 other physical devices. */

/* Sets the identity of the physical device that a device's bytes are in. The identity is a text
   that is the same in every process, such as the UUID of a GPU or its PCI bus id. Neighbours on a
   device are the ledgers with the same text (a hash of 64 bits is compared). A device without an
   identity is not on the page. memlord_cuda.h sets the identities of its GPUs. The cpu has a
   built-in identity, which memlord_pressure_open finds: that of the cgroup with the lowest memory
   limit or, if no limit is set, that of the machine. NULL or "" removes what the host has set.
   Errors: E_DEVICE if `device` is not one device; E_NOMEM; E_UNSUPPORTED in a build with
           MEMLORD_NO_NEIGHBOURS. */
MEMLORD_API memlord_result memlord_device_id_set(memlord *lord, memlord_device device,
                                                 const char *text) MLI_OFF(MEMLORD_OK)

/* Joins a page, and makes it if it is not there. A name without '/' is a page of the user's own in
   /dev/shm; NULL or "" is the default one. Any other name is the path of a file that containers may
   share. The file belongs to the effective user, with mode 0600. A file that is no such page
   (another owner, a symbolic link, a wrong mode, size, version or content) is refused and logged.
   After an error the ledger works alone, as before.
   The call starts a thread, the listener. The listener sleeps until a neighbour raises pressure, at
   most the interval of pollers. Then it publishes what the ledger holds, and frees the slots of
   processes that are gone. Without threads memlord_gc_poll does the work of the listener. Where the
   Linux kernel tells of stalls for memory (PSI), a stall runs the cpu's callbacks with
   MEMLORD_REASON_NEIGHBOUR and `needed` 0.
   A forked child joins again by the name at its first call; if it cannot, it works alone. If the
   file of a page is removed, the ledger joins again by its name, within the interval of pollers,
   and logs a warning.
   Requires: nothing makes the file shorter while it is in use, because that raises SIGBUS.
   Errors: E_INVALID if the name is too long; E_STATE if a page is open already, or the file is
           refused; E_LIMIT if 64 ledgers are on the page; E_IO if the file cannot be opened or
           made, as when the disk is full; E_UNSUPPORTED on this system (no F_OFD_SETLK, no atomic
           words of 64 bits), in a build with MEMLORD_NO_NEIGHBOURS, or if a sandbox refuses;
           E_NOMEM. */
MEMLORD_API memlord_result memlord_pressure_open(memlord *lord, const char *name)
    MLI_OFF(MEMLORD_OK)

/* Leaves the page, and waits until the thread of the listener has ended. The file stays. If another
   thread is in memlord_pressure_raise, that call ends. memlord_destroy leaves the page, too.
   Without a page the call does nothing.
   Errors: E_STATE on a thread of MemLord's own, as in a collection that the listener runs;
           E_UNSUPPORTED in a build with MEMLORD_NO_NEIGHBOURS. */
MEMLORD_API memlord_result memlord_pressure_close(memlord *lord) MLI_OFF(MEMLORD_OK)

/* Asks the neighbours for memory of a physical device. Each of them runs its collection callbacks
   with MEMLORD_REASON_NEIGHBOUR and this `needed`. The call waits until the neighbours say that
   they gave back as many bytes, or until all of them have answered, but at most for 2 s. With
   `needed` 0 it asks, and does not wait.
   A ledger whose callbacks gave nothing back rests for 1 s, then for twice as long each time, up to
   60 s. While it rests it answers at once, and runs no callbacks for that device. The rest ends
   early when the device's live bytes have changed by more than an eighth. memlord_explain says how
   many neighbours rest. memlord_alloc_retry asks the neighbours by itself before each pause.
   Errors: E_OOM if the neighbours gave back less than `needed`, or there are none; E_STATE if no
           page is open, or the page is closed meanwhile; E_UNKNOWN if the device has no identity,
           or was never seen; E_DEVICE if `device` is not one device; E_UNSUPPORTED in a build with
           MEMLORD_NO_NEIGHBOURS. */
MEMLORD_API memlord_result memlord_pressure_raise(memlord *lord, memlord_device device,
                                                  uint64_t needed) MLI_OFF(MEMLORD_OK)

/* -- scopes: the cost of a phase of the program --
   A scope is a stretch of a thread's work with a name: a step, a layer, a request. Scopes nest, and
   a scope is identified by its path, such as "decode/attention". Each run of a scope is an
   invocation. The delta of an invocation is what its thread allocated meanwhile less what it freed,
   inner scopes included. It may be negative. Blocks remember the scope they were allocated in. */

/* Begins a scope on this thread. Scopes nest up to 64 deep. Names are cut to 200 bytes.
   Errors: E_INVALID if the name is NULL or ""; E_STATE if 64 scopes are open; E_NOMEM, also over
           MEMLORD_MAX_SCOPES paths. Reports count the scopes that were dropped with E_NOMEM.
   Cost:   tens of ns, and one or two ns more for each pair of a device and a thread. */
MEMLORD_API memlord_result memlord_scope_begin(memlord *lord, const char *name)
    MLI_OFF(MEMLORD_OK)
/* Ends the innermost scope of this thread. When a thread exits, its open scopes end, too.
   Errors: E_STATE if no scope is open, or if the innermost scope was adopted (see
           memlord_scope_return). memlord_anomalies_each lists such a call. */
MEMLORD_API memlord_result memlord_scope_end(memlord *lord) MLI_OFF(MEMLORD_OK)

/* Sets the text that reports show with this invocation of the innermost scope: the shapes that the
   invocation works on, such as "q[1,32,128] k[1,8,128]". NULL removes the text. The ledger keeps
   one copy of each text, until destroy. This call and memlord_checkpoint refuse a text
   with which the ledger's strings would take more than half of MEMLORD_MAX_STRINGS (E_NOMEM).
   Errors: E_STATE if no scope is open; E_NOMEM. */
MEMLORD_API memlord_result memlord_scope_shapes_set(memlord *lord, const char *shapes)
    MLI_OFF(MEMLORD_OK)

/* The token of a scope, by which other threads work in that scope. A thread adopts the token when
   it begins such work, and returns the token when it is done. In between the thread is in the
   scope: its blocks remember the scope, and scopes that it begins are inside.
   The work of all threads is one invocation. The invocation ends when the last thread has left the
   scope. Its delta is the sum over all threads. Its time runs from the begin of the scope to the
   end of the invocation. Its peak is the highest sum over all threads. The peak is never too high.
   It may be too low by a counter_batch for each thread, but is exact with MEMLORD_FLAG_EXACT. The
   scopes around the exported one do not include what other threads did.
   Any number of threads may have a copy of the token, and adopt it until the exporting thread ends
   the scope. If a thread that has adopted the token exports the scope, too, it gets the same token.
   A thread that has adopted the token stays in the scope until it returns the token, even after the
   exporting thread has ended the scope. */
typedef struct memlord_scope_token {
    uint64_t word[2]; /* only the library uses them */
} memlord_scope_token;
/* Makes a token of this thread's innermost scope.
   Errors: E_STATE if no scope is open; E_INVALID if `out` is NULL; E_NOMEM. */
MEMLORD_API memlord_result memlord_scope_export(memlord *lord, memlord_scope_token *out)
    MLI_OFF_SET(if (out) memset(out, 0, sizeof *out), MEMLORD_OK)
/* Enters the scope of a token on this thread.
   Errors: E_STATE if this thread exported the token or has adopted it, or is 64 scopes deep;
           E_UNKNOWN if the exporting thread has ended the scope, or the token is of another ledger;
           E_INVALID if `token` is NULL; E_NOMEM. */
MEMLORD_API memlord_result memlord_scope_adopt(memlord *lord, const memlord_scope_token *token)
    MLI_OFF(MEMLORD_OK)
/* Leaves the scope that this thread adopted.
   Errors: E_STATE if the innermost scope is not that of the token; E_UNKNOWN if the token is of
           another ledger; E_INVALID if `token` is NULL. */
MEMLORD_API memlord_result memlord_scope_return(memlord *lord, const memlord_scope_token *token)
    MLI_OFF(MEMLORD_OK)

/* The totals of a scope. An invocation is one run of the scope. The strings live until destroy. */
typedef struct memlord_scope_stat {
    const char *name, *path;
    const memlord_site *site; /* place of the MEMLORD_SCOPED; NULL: memlord_scope_begin began the
                                 scope */
    uint64_t id, parent;      /* number of the scope; number of the scope around it, 0: there is
                                 none */
    uint64_t count, running;  /* invocations that are over; invocations that are not */
    struct {
        int64_t total, min, max;
    } bytes, blocks;          /* bytes and blocks allocated less those freed, in the invocations
                                 that are over */
    uint64_t peak;            /* the most that one invocation rose above its start, in bytes. It is
                                 the sum of the peaks of the devices, so with several devices it is
                                 an upper bound */
    struct {
        uint64_t total, min, max;
    } ns;                     /* time that invocations took on the host, in ns */
    uint64_t device_ns;       /* ns that memlord_scope_device_time added */
} memlord_scope_stat;

/* Reads a scope by its path.
   Errors: E_UNKNOWN if it was never begun, and *out is zero; E_INVALID if `path` or `out` is
           NULL. */
MEMLORD_API memlord_result memlord_scope_get(memlord *lord, const char *path,
                                             memlord_scope_stat *out)
    MLI_OFF_SET(if (out) memset(out, 0, sizeof *out), MEMLORD_OK)
/* Returns the number of this thread's innermost scope, or 0 if no scope is open. */
MEMLORD_API uint64_t memlord_scope_current(memlord *lord) MLI_OFF(0)
/* Adds ns to the time that a device took for a scope. The host measures that time with events of
   the device.
   Errors: E_UNKNOWN if no scope has this number. */
MEMLORD_API memlord_result memlord_scope_device_time(memlord *lord, uint64_t scope, uint64_t ns)
    MLI_OFF(MEMLORD_OK)

/* -- contexts: fibres, coroutines and jobs that move between threads --
   Open tags and scopes, the default tag, account, stream and tickets belong to a context. A thread
   has a context of its own. Work that is suspended, and goes on later on any thread, has a context,
   too: a zeroed memlord_context, in which nothing is open. Swap it in before the work runs, and
   swap it out when the work is suspended, by the same call:

       memlord_context_swap(lord, &job->context);    this thread is in the job's context
       run(job);                                     begins tags and scopes, allocates, suspends
       memlord_context_swap(lord, &job->context);    this thread is in its own context again

   To go from one fibre to another takes two swaps: the old fibre's, then the new one's. Between the
   two swaps of a fibre the memlord_context of the fibre holds the context that the thread was in
   before, so a fibre may run inside another. memlord_tag_end, memlord_scope_end,
   memlord_scope_return and the end of a guard end only what the same context began, on whichever
   thread the context runs. Scopes measure what their context did. The timeline (TRACE) shows a
   scope on each thread that its context ran on, for the time that it ran there.
   examples/embed/jobs.c is a job system that swaps contexts in this way. */
typedef struct memlord_context {
    uint64_t word[8]; /* only the library uses them; all 0: nothing is open */
} memlord_context;

/* Exchanges the context of this thread with the one in `context`. Of a context and its copy only
   one may be used: after a swap of the one, the other is stale. If the ledger of a context has
   ended, the swap zeroes the context, and the result is MEMLORD_OK.
   Threads: the host orders the calls on one context, as it orders the fibre itself.
   Errors: E_INVALID if `context` is NULL; E_STATE if `context` is a stale copy, if it is of another
           live ledger, if another thread is in it, or if the ledger's own allocator makes the call;
           E_NOMEM if there is no memory for the ledger's record of the context or of the thread.
           After an error nothing is swapped.
   Owns:   the ledger keeps some 700 bytes a context until memlord_context_drop.
   Cost:   tens of ns, and one or two for each open scope and device. */
MEMLORD_API memlord_result memlord_context_swap(memlord *lord, memlord_context *context)
    MLI_OFF(MEMLORD_OK)

/* Ends the scopes and tags that are open in a context, and zeroes the context. The tickets of the
   context stay open. If this thread is in the context, the thread returns to the context that it
   was in before. If a thread exits inside a context, the context stays as it is, and another thread
   may swap it in or drop it.
   Errors: as memlord_context_swap; E_STATE also if the fibre of the context has swapped in another
           context, and is suspended there. */
MEMLORD_API memlord_result memlord_context_drop(memlord *lord, memlord_context *context)
    MLI_OFF(MEMLORD_OK)

/* -- snapshots: how memory moved -- */

/* Keeps a snapshot, under a name: the totals of every device at this moment, the 16 largest tags
   and sites of each device, and the ten largest blocks of all. It stops no thread, so beside calls
   of other threads the tags or sites of a device may add up to more than the device.
   The ledger keeps up to 255 snapshots, spread over the whole run. For a further snapshot it drops
   the one whose neighbours are closest in time, and counts that drop. It keeps the first and the
   last snapshot, and those in which a device, or all devices together, held most. It drops a
   checkpoint only when it can drop nothing else.
   Errors: E_INVALID if the name is NULL or ""; E_NOMEM if there is no memory for the snapshot.
           After E_NOMEM reports count one more dropped snapshot.
   Cost:   a tenth of a us for each pair of a thread and a device, tag or site, and a walk of the
           map: about 10 ns a block. */
MEMLORD_API memlord_result memlord_checkpoint(memlord *lord, const char *name)
    MLI_OFF(MEMLORD_OK)

/* Takes a snapshot now, one every interval_ms (0: 5000, at least 10) on a thread of its own, and a
   last one at the stop. Until the stop a report that shows snapshots (TEXT, JSON, HTML, TRACE) ends
   with a snapshot of its own, which is not kept.
   Without threads memlord_gc_poll takes the snapshots that are due. With
   MEMLORD_FLAG_NO_SNAPSHOT_THREAD allocs and frees also take snapshots that are due, if much has
   changed. With this flag only checkpoints have blocks, and the interval grows with the ledger's
   life, so that all snapshots fit. The time is that of the ledger's clock. While a clock that the
   host has set stands still, no snapshot is taken. If the clock runs ahead, or the interval
   changes, the thread notices within a second.
   Errors: E_INVALID for an interval of 1 to 9; E_NOMEM if the first snapshot failed; the later ones
           come all the same. */
MEMLORD_API memlord_result memlord_snapshots_start(memlord *lord, uint32_t interval_ms)
    MLI_OFF(MEMLORD_OK)
/* Takes a last snapshot and joins the thread of memlord_snapshots_start.
   Errors: E_STATE on a thread of MemLord's own. */
MEMLORD_API memlord_result memlord_snapshots_stop(memlord *lord) MLI_OFF(MEMLORD_OK)

/* -- events: every change, in a ring -- */

/* Each line has the name and the text of a kind of event. */
#define MLI_EVENTS(X)                                                                         \
    X(ALLOC, "alloc")             /* a block begins */                                        \
    X(FREE, "free")               /* a block ends */                                          \
    X(PEND, "pend")               /* a block is freed, and waits for its device */            \
    X(MOVE, "move")               /* a move begins a block at its destination */              \
    X(ARENA_ADD, "arena_add")     /* memlord_arena_add */                                     \
    X(ARENA_SUB, "arena_sub")     /* memlord_arena_sub */                                     \
    X(GC, "gc")                   /* a collection ran; bytes: reclaimed */                    \
    X(OOM, "oom")                 /* an attempt found no memory; bytes: wanted */             \
    X(SCOPE_BEGIN, "scope_begin") /* a scope begins on the thread */                          \
    X(SCOPE_END, "scope_end")     /* a scope ends on the thread */                            \
    X(CHECKPOINT, "checkpoint")   /* memlord_checkpoint; tag: its name */
enum {
#define MLI_X(name, text) MEMLORD_EVENT_##name,
    MLI_EVENTS(MLI_X)
#undef MLI_X
    MEMLORD_EVENT_COUNT
};

typedef struct memlord_event {
    uint64_t time_ns;         /* time of the event in ns since the ledger was created */
    uint32_t thread;          /* the ledger's own number of the thread */
    int kind;                 /* MEMLORD_EVENT_... */
    memlord_device device;    /* device of the event; memlord_device_all(): the event concerns
                                 none */
    uint64_t storage, bytes;
    const memlord_site *site; /* site of the call, if sites are counted; NULL: not known */
    const char *tag;          /* tag of the block; NULL: none */
    uint64_t scope;           /* number of the thread's innermost scope; 0: none */
    uint64_t stream;          /* stream of the block; 0: none, or the default one */
} memlord_event;
/* Gets an event. A result other than 0 ends memlord_events_each. */
typedef int (*memlord_event_fn)(void *user, const memlord_event *event);

/* Writes what happens from now on into a ring of at most `capacity` events (0: 65536). An event
   takes 40 bytes. New events overwrite the oldest ones, which count in dropped_events. A ledger has
   one ring, and a later start goes on in it.
   Errors: E_INVALID if capacity is over 2^26; E_STATE if the ledger has a ring of another capacity;
           E_NOMEM.
   Cost:   one branch a call while events are off. */
MEMLORD_API memlord_result memlord_events_start(memlord *lord, size_t capacity)
    MLI_OFF(MEMLORD_OK)
/* Stops the writing of events. The ring can still be read.
   Errors: E_STATE on a thread of MemLord's own. */
MEMLORD_API memlord_result memlord_events_stop(memlord *lord) MLI_OFF(MEMLORD_OK)
/* Calls fn for the events in the ring, in the order of their time, until fn returns non-zero.
   Events that are overwritten meanwhile are left out.
   Errors: E_INVALID if `fn` is NULL; E_NOMEM. */
MEMLORD_API memlord_result memlord_events_each(memlord *lord, memlord_event_fn fn, void *user)
    MLI_OFF(MEMLORD_OK)
