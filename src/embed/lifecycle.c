#include "embed/lifecycle.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "os/system.h"
#include "os/modules.h"
#include "os/unwind.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "base/text.h"
#include "base/log.h"
#include "base/memory.h"
#include "books/threads.h"
#include "books/map.h"
#include "books/counters.h"
#include "books/names.h"
#include "books/devices.h"
#include "books/sites.h"
#include "books/tags.h"
#include "books/stacks.h"
#include "books/events.h"
#include "books/fences.h"
#include "books/accounts.h"
#include "books/parts.h"
#include "books/listing.h"
#include "books/limits.h"
#include "services/bands.h"
#include "services/scopes.h"
#include "services/stats.h"
#include "services/room.h"
#include "services/snapshots.h"
#include "services/neighbours.h"
#include "services/pollers.h"
#include "services/retry.h"
#include "reports/capture.h"
#include "embed/exit.h"

/* Sets the logger. With MEMLORD_DEBUG both loggers that write to stderr write lines of every level,
   in colours. */
static MLI_COLD void mli_logger_use(memlord *lord, const memlord_logger *logger) {
    MLI_REQUIRE(mli_rank_held(MLI_RANK_LOG) || !lord->back);
    const uint32_t debug = mli_hook_on(lord, MLI_HOOK_TRACE);
    lord->log.logger = *logger;
    if (debug && (!logger->fn || logger->fn == memlord_log_stderr))
        lord->log.logger.fn = mli_log_coloured;
    mli_u32_store(&lord->log.level, !lord->log.logger.fn ? 0
                                    : debug              ? MEMLORD_LOG_TRACE
                                                         : MEMLORD_LOG_INFO);
}

/* Applies MEMLORD_DEBUG, MEMLORD_RETRY and MEMLORD_POLL_INTERVAL_MS; the last overrides the
   description and memlord_poller_start, too. Logs and ignores a value that is too long, malformed
   or out of range. */
static MLI_COLD void mli_configure_env(memlord *lord) {
    memlord_retry policy = lord->retry.policy;
    char value[128];
    double ms;
    int set;
    if (mli_env_read("MEMLORD_DEBUG", value, sizeof value) > 0 && strcmp(value, "0")) {
        mli_hook_set(lord, MLI_HOOK_TRACE, 1);
        mli_logger_use(lord, &lord->log.logger);
        lord->verifies = !strcmp(value, "2");
    }
    set = mli_env_read("MEMLORD_RETRY", value, sizeof value);
    if (set > 0 && !mli_retry_parse(value, &policy) && !memlord_retry_check(&policy))
        lord->retry.policy = policy;
    else if (set)
        mli_log(lord, MEMLORD_LOG_WARNING,
                "[retry] MEMLORD_RETRY is ignored: it is like max=5,initial_ms=50,multiplier=1.5,"
                "max_ms=2000, with initial_ms at most max_ms and multiplier at least 1");
    set = mli_env_read("MEMLORD_POLL_INTERVAL_MS", value, sizeof value);
    if (set > 0 && mli_read_number(value, 0, &ms) && !strchr(value, ',') && ms >= MLI_POLL_MS_MIN) {
        mli_u32_store(&lord->room.poll_ms, (uint32_t)ms);
        lord->pollers.poll_ms_by_env = 1;
    } else if (set) {
        mli_log(lord, MEMLORD_LOG_WARNING,
                "[poller] MEMLORD_POLL_INTERVAL_MS is not a number of at least 10: ignored");
    }
}

/* Sets the fields of a new ledger from its description, the environment and the defaults. Plain
   stores do (`.v`): no other thread knows the ledger yet. */
static MLI_COLD void mli_ledger_configure(memlord *lord, const memlord_desc *desc) {
    const uint64_t batch = desc->counter_batch ? desc->counter_batch : 65536;
    const uint32_t ms = desc->poll_ms ? desc->poll_ms : 200;
    int book;
    mli_logger_use(lord, &desc->logger);
    if (!(desc->flags & MEMLORD_FLAG_EXACT))
        lord->counters.batch = batch < MLI_BYTES_MAX ? batch : MLI_BYTES_MAX;
    lord->events.clock = desc->clock;
    lord->events.stamps_are_ticks = !lord->events.clock.fn && mli_ticks_steady();
    lord->started = mli_ledger_now(lord);
    lord->started_stamp = mli_stamp_now(lord);
    lord->started_wall = mli_wall_now();
    for (book = 0; book < MLI_BOOKS; book++) lord->counters.row_count[book].v = 1;
    lord->limits.reservation_count.v = lord->accounts.count.v = lord->tags.scope_count.v = 1;
    lord->threads.allowance.v = 4;
    lord->limits.host_phys.lord = lord;
    lord->neighbours.slot = MLI_SLOT_NONE;
    lord->neighbours.fd = lord->neighbours.stall_fd = -1;
    lord->limits.host_phys.device = memlord_device_cpu();
    lord->room.capacity_readers[MEMLORD_DEVICE_CPU].fn = mli_cpu_capacity;
    lord->room.capacity_readers[MEMLORD_DEVICE_CPU].user = lord;
    lord->retry.policy = mli_default_retry;
    lord->room.poll_ms.v = ms < MLI_POLL_MS_MIN ? MLI_POLL_MS_MIN : ms;
    if (desc->flags & MEMLORD_FLAG_SITES) mli_hook_set(lord, MLI_HOOK_SITES, 1);
    if (!(desc->flags & MEMLORD_FLAG_NO_ENV)) mli_configure_env(lord);
    lord->snapshots.recorders[0].lord = lord->snapshots.recorders[1].lord = lord;
    lord->flags = desc->flags;
    lord->threads.next_id.v = MLI_THREAD_ID_FIRST;
    lord->threads.sweep_at = MLI_SWEEP_MIN;
    lord->end_slow = mli_call_end_slow;
}

/* Gives the locks of the process and of a new ledger their ranks, which are the lock order. */
static void mli_locks_rank(memlord *lord) {
    uint32_t i;
    mli_lock_rank(&mli_process.registry_lock, MLI_RANK_REGISTRY);
    mli_lock_rank(&mli_process.cold_lock, MLI_RANK_COLD);
    mli_lock_rank(&mli_process.pages_lock, MLI_RANK_PAGES);
    mli_lock_rank(&lord->threads.orphan_lock, MLI_RANK_ORPHAN);
    mli_lock_rank(&lord->fences.lock, MLI_RANK_FENCES);
    mli_lock_rank(&lord->neighbours.lock, MLI_RANK_NEIGHBOURS);
    mli_lock_rank(&lord->bands.callbacks_lock, MLI_RANK_CALLBACKS);
    mli_lock_rank(&lord->limits.host_phys.lock, MLI_RANK_PHYS);
    mli_lock_rank(&lord->snapshots.lock, MLI_RANK_SNAPSHOTS);
    mli_lock_rank(&lord->log.lock, MLI_RANK_LOG);
    mli_lock_rank(&lord->stacks.lock, MLI_RANK_STACKS);
    mli_lock_rank(&lord->memory.lock, MLI_RANK_MEMORY);
    mli_lock_rank(&lord->counters.count_lock, MLI_RANK_COUNT);
    for (i = 0; i < MLI_SHARDS; i++)
        mli_lock_rank(&mli_shard_at(lord, i)->lock, MLI_RANK_SHARD);
}

/* Allocates and configures a ledger that is not yet registered; NULL without memory. */
static MLI_COLD memlord *mli_ledger_alloc(const memlord_desc *desc,
                                          const memlord_allocator *allocator) {
    const uint64_t generation = mli_busy_begin();
    memlord *lord = (memlord *)allocator->alloc(allocator->user, sizeof *lord);
    mli_busy_end(generation);
    if (!lord) return NULL;
    memset(lord, 0, sizeof *lord);
    mli_locks_rank(lord);
    lord->memory.allocator = *allocator;
    lord->memory.own_bytes.v = sizeof *lord;
    lord->names.strings.item = sizeof(mli_stb_string);
    mli_ledger_configure(lord, desc);
    lord->threads.orphan = (mli_thread *)mli_own_alloc(lord, sizeof *lord->threads.orphan);
    if (lord->threads.orphan) {
        mli_stacks_start(lord, desc);
        return lord;
    }
    mli_regions_free(lord);
    allocator->free(allocator->user, lord, sizeof *lord);
    return NULL;
}

/* Registers a ledger, so that fork, the exit hook and memlord_destroy find it. Gives it a
   generation of its own. */
static MLI_COLD void mli_ledger_register(memlord *lord) {
    mli_lock_take(&mli_process.registry_lock);
    lord->generation = mli_u64_add(&mli_process.generation, 1) + 1;
    mli_thread_start(lord, lord->threads.orphan, 0);
    mli_special_set(lord->threads.orphan, MLI_SPECIAL_ORPHAN, 1);
    lord->next = mli_process.ledgers;
    lord->back = &mli_process.ledgers;
    if (lord->next) lord->next->back = &lord->next;
    mli_process.ledgers = lord;
    mli_lock_drop(&mli_process.registry_lock);
}

/* Applies the parts of a description that need a registered ledger: names, events, snapshots. */
static MLI_COLD memlord_result mli_ledger_apply_desc(memlord *lord, const memlord_desc *desc) {
    memlord_result r = mli_name(lord, desc->proc_root, &lord->room.cpu.root);
    if (r == MEMLORD_OK) r = mli_name(lord, desc->output_dir, &lord->saving.output_dir);
    if (r == MEMLORD_OK) r = memlord_labels_set(lord, desc->labels);
    if (r == MEMLORD_OK && desc->event_capacity)
        r = memlord_events_start(lord, desc->event_capacity);
    if (r == MEMLORD_OK && desc->snapshot_ms) r = memlord_snapshots_start(lord, desc->snapshot_ms);
    return r;
}

/* Adds a block to a leak table (`user`), by its rows and device. */
static MLI_COLD int mli_visit_leak(memlord *lord, const mli_entry *e, void *user) {
    mli_leak_add(lord, (mli_leak_table *)user, mli_word2_rows(e->word2) & MLI_ROWS_MASK,
                 MLI_DEV(e->word1), MLI_BYTES(e->word1));
    return 0;
}
/* Logs a line such as "[destroy]   1.5 KiB in 2 blocks: cuda:0 [weights]  main file.c:12". `leak`
   NULL: the line sums up the blocks that the lines before it leave out. */
static MLI_COLD void mli_log_leak(memlord *lord, uint64_t bytes, uint64_t blocks,
                                  const mli_leak_group *leak) {
    char line[512];
    mli_out o;
    mli_out_buffer(&o, line, sizeof line);
    mli_put_str(&o, leak ? "[destroy]   " : "[destroy]   and ");
    mli_put_amount(&o, bytes, blocks);
    mli_put_str(&o, leak ? ": " : " more");
    if (leak) mli_put_leak(&o, lord, leak);
    (void)mli_out_end(&o, sizeof line);
    mli_log(lord, MEMLORD_LOG_INFO, line);
}
/* Logs the ten groups with the most bytes, by the site and tag their blocks come from. Does nothing
   if the ledger has neither sites nor tags: both row counts start at 1. */
static MLI_COLD void mli_log_leaks_by(memlord *lord) {
    mli_walk_query all = mli_walk_query_of(memlord_device_all());
    mli_leak_table *leaks;
    size_t i;
    if (mli_row_count(lord, MLI_BOOK_SITE) + mli_row_count(lord, MLI_BOOK_TAG) == 2) return;
    leaks = (mli_leak_table *)mli_own_alloc(lord, sizeof *leaks);
    if (!leaks) return;
    mli_map_visit(lord, &all, mli_visit_leak, leaks);
    mli_leaks_sort(leaks, 10);
    for (i = 0; i < leaks->count; i++) {
        const mli_leak_group *leak = &leaks->at[i];
        leaks->bytes -= leak->bytes;
        leaks->blocks -= leak->blocks;
        mli_log_leak(lord, leak->bytes, leak->blocks, leak);
    }
    if (leaks->blocks) mli_log_leak(lord, leaks->bytes, leaks->blocks, NULL);
    mli_own_free(lord, leaks, sizeof *leaks);
}

/* Logs the live bytes and blocks of each device. */
static MLI_COLD void mli_log_leaks(memlord *lord) {
    char line[128];
    mli_out o;
    uint32_t i, n = mli_row_count(lord, MLI_BOOK_DEVICE);
    uint64_t blocks = 0;
    if (!mli_log_hears(lord, MEMLORD_LOG_INFO)) return;
    for (i = 1; i < n; i++) {
        memlord_stats s;
        mli_stats_fill(lord, i, &s);
        if (!s.live_blocks && !s.allocated) continue;
        blocks += s.live_blocks;
        mli_out_buffer(&o, line, sizeof line);
        mli_putf(&o, "[destroy] %i: live ",
                 mli_device_code(mli_device_record_at(lord, i)->device));
        mli_put_amount(&o, s.allocated, s.live_blocks);
        if (s.pending) mli_putf(&o, ", pending %jo", s.pending);
        (void)mli_out_end(&o, sizeof line);
        mli_log(lord, MEMLORD_LOG_INFO, line);
    }
    if (blocks) mli_log_leaks_by(lord);
}

/* Drops every fence that was accepted and not yet dropped. A drop is host code and may defer
   further frees: repeats until a round drops none, at most 1000 times. */
static MLI_COLD void mli_fences_end(memlord *lord) {
    mli_fence_record *f;
    int round, dropped = 1;
    if (mli_self.fence_lord == lord->generation)
        mli_self.fence_lord = mli_self.fence_frame = 0; /* this thread left one by longjmp */
    for (round = 0; round < 1000 && dropped; round++) {
        dropped = 0;
        f = (mli_fence_record *)mli_ptr_load(&lord->fences.all);
        for (; f; f = f->older) dropped |= mli_fence_drop(lord, f);
    }
}

/* Takes a ledger off the registry. Waits first while another thread saves it at the end of the
   program. */
static MLI_COLD void mli_ledger_unregister(memlord *lord) {
    unsigned spins = 0;
    mli_lock_take(&mli_process.registry_lock);
    while (mli_process.saving == lord) {
        mli_lock_drop(&mli_process.registry_lock);
        mli_spin_wait(&spins);
        mli_lock_take(&mli_process.registry_lock);
    }
    *lord->back = lord->next;
    if (lord->next) lord->next->back = lord->back;
    lord->back = NULL;
    (void)mli_u64_add(&mli_process.ended, 1);
    mli_lock_drop(&mli_process.registry_lock);
    if (mli_self.generation == lord->generation) mli_self.generation = 0;
    if (mli_self.log_calls.generation == lord->generation) /* left one by longjmp */
        memset(&mli_self.log_calls, 0, sizeof mli_self.log_calls);
}

/* Frees all memory of a ledger, the ledger itself last. */
static MLI_COLD void mli_ledger_free(memlord *lord) {
    MLI_REQUIRE(!lord->back);
    memlord_allocator allocator = lord->memory.allocator;
    mli_thread *t = (mli_thread *)mli_ptr_load(&lord->threads.all);
    uint64_t generation;
    mli_strategy *s, *next;
    uint32_t i;
    mli_parts_end(lord);
    for (i = 0; i < MLI_SHARDS; i++)
        mli_own_free(lord, lord->map.shards[i].table,
                     (size_t)lord->map.shards[i].size * MLI_BUCKET_BYTES);
    for (; t; t = (mli_thread *)mli_ptr_load(&t->next)) {
        mli_vector_free(lord, &t->cells[MLI_BOOK_SITE], sizeof(mli_cell));
        mli_vector_free(lord, &t->cells[MLI_BOOK_TAG], sizeof(mli_cell));
        mli_cache_free(lord, t);
        mli_spans_free(lord, t);
    }
    mli_scopes_free(lord);
    mli_stacks_free(lord);
    mli_vector_free(lord, &lord->tags.births, sizeof(mli_birth));
    for (i = 0; i < MLI_BOOKS; i++)
        mli_vector_free(lord, &lord->counters.rows[i], sizeof(mli_row));
    mli_vector_free(lord, &lord->limits.reservations, sizeof(mli_reservation));
    mli_vector_free(lord, &lord->accounts.all, sizeof(mli_account_record));
    mli_ring_end(lord);
    mli_snapshots_destroy(lord);
    for (s = lord->bands.strategies; s; s = next) {
        next = s->next;
        mli_strategy_free(lord, s);
    }
    mli_index_free(lord);
    mli_dict_end(lord, &lord->names.strings);
    mli_regions_free(lord); /* has all memory not freed above */
    generation = mli_busy_begin();
    allocator.free(allocator.user, lord, sizeof *lord);
    mli_busy_end(generation);
}

/* Looks up the interposer: memlord_interposer. */
static MLI_COLD void mli_interposer_find(void) {
#if defined(__linux__)
    const memlord_interposer *found;
    char any[2];
    if (!mli_env_read("LD_PRELOAD", any, sizeof any)) return;
    found = (const memlord_interposer *)mli_symbol("memlord_interposer");
    if (found && found->size >= sizeof *found && found->version == 1 && found->tag_begin &&
        found->tag_end && found->scope_begin && found->scope_end)
        mli_ptr_store_release(&mli_process.interposer, (void *)(uintptr_t)found);
#endif
}

/* Does once what the first ledger of a process needs. The thread for which mli_process_claim
   returns 1 calls mli_process_start. Other threads wait in mli_process_started. No lock is held:
   pthread_atfork, and the search for a symbol that is not there, may call a malloc that calls
   MemLord. Such a call finds the process claimed, and passes through. */
static MLI_COLD int mli_process_claim(void) {
    MLI_REQUIRE(mli_none_held());
    uint32_t seen = MLI_START_NONE;
    if (mli_u32_load(&mli_process.started)) return 0;
    mli_u64_store(&mli_process.pid, mli_pid()); /* before BUSY: see mli_thread_ready */
    return mli_u32_cas(&mli_process.started, &seen, MLI_START_BUSY);
}
static MLI_COLD void mli_process_start(void) {
    const uint64_t generation = mli_busy_begin();
    mli_interposer_find();
    mli_hooks_install();
    mli_busy_end(generation);
    mli_u32_store_release(&mli_process.started, MLI_START_DONE); /* see mli_process_started */
}

/* Tells the logger of a description why it is refused: there is no ledger to log. */
static MLI_COLD memlord_result mli_desc_refuse(const memlord_desc *desc, const char *why) {
    if (desc->logger.fn) desc->logger.fn(desc->logger.user, MEMLORD_LOG_ERROR, why);
    return MEMLORD_E_INVALID;
}
static MLI_COLD memlord_result mli_desc_check(const memlord_desc *desc) {
    if (!desc->allocator.alloc != !desc->allocator.free)
        return mli_desc_refuse(desc, "[create] allocator: one of alloc and free is missing");
    if (desc->stack_depth > MLI_STACK_DEPTH_MAX)
        return mli_desc_refuse(desc, "[create] stack_depth is over 128");
    if (desc->snapshot_ms && desc->snapshot_ms < MLI_RECORDER_MS_MIN)
        return mli_desc_refuse(desc, "[create] snapshot_ms is neither 0 nor 10 or more");
    if (desc->event_capacity > MLI_EVENTS_MAX)
        return mli_desc_refuse(desc, "[create] event_capacity is over 67108864");
    return MEMLORD_OK;
}

/* Makes a ledger, as memlord_create does. The caller starts the process. */
static MLI_COLD memlord_result mli_ledger_make(const memlord_desc *desc, memlord **out) {
    memlord_desc zeros;
    memlord_allocator allocator;
    memlord_result r;
    if (!out) return MEMLORD_E_INVALID;
    *out = NULL;
    memset(&zeros, 0, sizeof zeros);
    if (!desc) desc = &zeros;
    r = mli_desc_check(desc);
    if (r) return r;
    allocator = desc->allocator;
    if (!allocator.alloc) memlord_os_allocator(&allocator);
    if (MLI_WINDOWS) mli_stay_loaded(); /* it cannot take back the hooks of threads */
    *out = mli_ledger_alloc(desc, &allocator);
    if (!*out) return MEMLORD_E_NOMEM;
    mli_ledger_register(*out);
    r = mli_ledger_apply_desc(*out, desc);
    if (r == MEMLORD_OK) return r;
    memlord_destroy(*out);
    *out = NULL;
    return r;
}

/* -- public -- */

MLI_API memlord_result memlord_create(const memlord_desc *desc, memlord **out) {
    memlord_result r = mli_ledger_make(desc, out);
    if (r == MEMLORD_OK && mli_process_claim()) mli_process_start();
    return r;
}

MLI_API uint64_t memlord_generation(memlord *lord) { return lord ? lord->generation : 0; }

/* The acquire pairs with the add in mli_ledger_unregister, which is seq_cst. A ledger that ends
   after it makes the next call look again. */
MLI_API memlord *memlord_find(uint64_t generation) {
    const uint64_t ended = mli_u64_load_acquire(&mli_process.ended);
    memlord *lord;
    if (!generation) return NULL;
    if (MLI_LIKELY(mli_self.found_generation == generation && mli_self.found_ended == ended))
        return mli_self.found;
    if (mli_self.in_host_alloc) return NULL; /* the registry lock may be held */
    mli_lock_take(&mli_process.registry_lock);
    lord = mli_process.ledgers;
    while (lord && lord->generation != generation) lord = lord->next;
    mli_lock_drop(&mli_process.registry_lock);
    mli_self.found_generation = generation;
    mli_self.found_ended = ended;
    return mli_self.found = lord;
}

/* The order matters: stops the helpers, writes the last report, verifies, logs leaks, drops fences,
   and then takes the ledger off the registry. */
MLI_API void memlord_destroy(memlord *lord) {
    const mli_neighbours *neighbours;
    if (!lord || lord == mli_ptr_load(&mli_process.global)) return;
    neighbours = mli_neighbours_of(lord);
    mli_pollers_stop(lord);
    if (neighbours) neighbours->end(lord);
    mli_recorder_stop(lord, MLI_RECORDER_SNAPSHOTS);
    mli_recorder_stop(lord, MLI_RECORDER_EXPORT);
    mli_saver_end(lord);
    if (lord->verifies) (void)memlord_verify(lord);
    mli_log_leaks(lord);
    mli_fences_end(lord);
    mli_ledger_unregister(lord);
    mli_ledger_free(lord);
}

/* Makes the global ledger unless there is one: *made is 1, or 0. Returns it; NULL: r says why. One
   is made in full before it is claimed, as its own calls may come back here from within malloc. It
   is claimed before the process starts, so that calls from within that find it, and after the
   process is claimed, so that other threads wait for that. */
static MLI_COLD memlord *mli_global_make(const memlord_desc *desc, int *made, memlord_result *r) {
    mli_ptr *global = &mli_process.global;
    memlord *fresh, *lord;
    int starts;
    *made = 0;
    *r = mli_ledger_make(desc, &fresh);
    if (*r) return NULL;
    starts = mli_process_claim();
    mli_lock_take(&mli_process.registry_lock);
    lord = (memlord *)mli_ptr_load(global);
    *made = !lord;
    if (!lord) mli_ptr_store_release(global, lord = fresh); /* pairs with the acquire loads */
    mli_lock_drop(&mli_process.registry_lock);
    if (starts) mli_process_start();
    if (*made)
        mli_stay_loaded();
    else
        memlord_destroy(fresh);
    return lord;
}

MEMLORD_API memlord *memlord_global(void) {
    memlord *lord = (memlord *)mli_ptr_load_acquire(&mli_process.global);
    memlord_result r;
    int made;
    return MLI_LIKELY(lord) ? lord : mli_global_make(NULL, &made, &r);
}

/* The snapshots start when the ledger is claimed: a new thread may call memlord_global, and a
   ledger that is not claimed starts none. */
MLI_API memlord_result memlord_global_setup(const memlord_desc *desc) {
    static const char late[] = "[setup] memlord_global_setup came too late: the global ledger is "
                               "in use, and stays as it is";
    memlord *lord = (memlord *)mli_ptr_load_acquire(&mli_process.global);
    memlord_desc own;
    memlord_result r = MEMLORD_OK;
    int made = 0;
    memset(&own, 0, sizeof own);
    if (desc) own = *desc;
    if (own.allocator.alloc || own.allocator.free)
        return mli_desc_refuse(&own, "[setup] allocator: the global ledger has one of its own");
    r = mli_desc_check(&own);
    if (r) return r;
    own.snapshot_ms = 0;
    if (!lord) lord = mli_global_make(&own, &made, &r);
    if (!lord) return r;
    if (!made) {
        if (mli_log_hears(lord, MEMLORD_LOG_ERROR))
            mli_log(lord, MEMLORD_LOG_ERROR, late);
        else if (own.logger.fn) /* the ledger in use is silent: or nothing would tell the host */
            own.logger.fn(own.logger.user, MEMLORD_LOG_ERROR, late);
        return MEMLORD_E_STATE;
    }
    if (desc && desc->snapshot_ms) (void)memlord_snapshots_start(lord, desc->snapshot_ms);
    return MEMLORD_OK;
}

MLI_API memlord_result memlord_logger_set(memlord *lord, const memlord_logger *logger) {
    const memlord_logger none = {NULL, NULL};
    const mli_log_calls *mine = &mli_self.log_calls;
    uint32_t turn, own;
    unsigned spins = 0;
    int calls;
    if (!lord) return MEMLORD_OK;
    mli_log_calls_left(lord, MLI_STACK_ADDRESS());
    calls = (mine->inside[0] | mine->inside[1]) != 0;
    if (calls && mine->generation != lord->generation) return MEMLORD_E_STATE;
    while (mli_u32_exchange(&lord->log.setting, 1)) { /* that thread may wait for this one */
        if (calls) return MEMLORD_E_STATE;
        mli_spin_wait(&spins);
    }
    mli_lock_take(&lord->log.lock);
    mli_logger_use(lord, logger ? logger : &none);
    turn = lord->log.turn;
    lord->log.turn = !turn;
    own = calls ? mine->inside[turn] : 0;
    while (lord->log.inside[turn] != own) { /* new calls count in the other turn */
        mli_lock_drop(&lord->log.lock);
        mli_spin_wait(&spins);
        mli_lock_take(&lord->log.lock);
    }
    mli_lock_drop(&lord->log.lock);
    mli_u32_store_release(&lord->log.setting, 0); /* pairs with the exchange */
    return MEMLORD_OK;
}
