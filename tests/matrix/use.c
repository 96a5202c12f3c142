/* One translation unit that uses the whole surface; compiled as every standard of C and C++
   and in every mode of the header. USE names its function, which returns how many things
   went wrong. */
#include "memlord.h"
#include "memlord.h" /* a second time changes nothing */

#ifdef __cplusplus
extern "C" {
#endif
int USE(void);
#ifdef __cplusplus
}
#endif

/* Live bytes are asked for only where MemLord is not compiled out. */
#ifdef MEMLORD_DISABLE
#define LIVE(lord, expected) (memlord_allocated(lord, memlord_device_all()) != 0)
#else
#define LIVE(lord, expected) (memlord_allocated(lord, memlord_device_all()) != (expected))
#endif

#define FAILS(call) ((call) != MEMLORD_OK)

/* As a host writes it that is compiled with -Wold-style-cast. */
#ifdef __cplusplus
#define AS(type, value) static_cast<type>(value)
#else
#define AS(type, value) ((type)(value))
#endif

static int sink(void *user, const void *data, size_t size) {
    *AS(size_t *, user) += size;
    return data == NULL;
}

static int count(void *user, const memlord_block_info *info) {
    *AS(size_t *, user) += info->refs != 0;
    return 0;
}

/* The macros are statements everywhere and expressions under GNU C and C++. */
static int use_macros(memlord *lord) {
    char block[16];
    int bad = 0;
    memlord_device device = memlord_device_cpu();
    MEMLORD_TAG(lord, "outer") {
        MEMLORD_TAG(lord, "inner") {
            MEMLORD_ALLOC(lord, device, block, sizeof block);
            bad += LIVE(lord, sizeof block);
            MEMLORD_TRACK(lord, device, block, sizeof block);
            MEMLORD_RETAIN(lord, device, block);
            MEMLORD_RELEASE(lord, device, block);
        }
    }
    MEMLORD_REALLOC(lord, device, block, block + 8, 8);
    bad += LIVE(lord, 8u);
    if (lord)
        MEMLORD_FREE(lord, device, block + 8);
    else
        MEMLORD_FREE(lord, device, block);
    bad += MEMLORD_FREE(NULL, device, block) != MEMLORD_OK;
    return bad + LIVE(lord, 0u);
}

/* To the end of the block: where a compiler can end them. */
static int use_guards(memlord *lord) {
    int bad = FAILS(memlord_tag_default_set(lord, "default")), rounds = 0;
    memlord_guard guard = memlord_guard_scope(lord, "guard", NULL);
#if defined(MEMLORD_TAGGED)
    for (;;) {
        MEMLORD_TAGGED(lord, "tagged");
        MEMLORD_SCOPED(lord, "scoped");
        if (rounds++) break;
    }
    bad += rounds != 2;
#endif
#if defined(MEMLORD_SITE_OF_CALLER)
    bad += memlord_site_address(lord, MEMLORD_SITE_OF_CALLER(NULL)) != NULL;
    (void)MEMLORD_SITE_OF_CALLER();
#endif
    for (; rounds < 9; rounds++) {
        MEMLORD_TAG(lord, "tagged") MEMLORD_SCOPE(lord, "scoped") continue;
    }
    memlord_guard_end(&guard);
#if !defined(MEMLORD_DISABLE)
    bad += !memlord_tag_current(lord) || strcmp(memlord_tag_current(lord), "default") != 0;
#endif
    bad += memlord_scope_current(lord) != 0 || rounds != 9;
    return bad + FAILS(memlord_tag_default_set(lord, NULL)) + (memlord_tag_current(lord) != NULL);
}

/* Addresses and handles, without a warning. */
static int use_keys(void) {
    char array[8];
    const char *text = array;
    uint64_t handle = 0x123456789abcdef0u;
    int64_t offset = 64;
    int number = 7, bad = MEMLORD_KEY(array) != MEMLORD_KEY(text);
    bad += MEMLORD_KEY(handle) != handle || MEMLORD_KEY(offset) != 64 || MEMLORD_KEY(number) != 7;
    return bad + (MEMLORD_KEY(NULL) != 0) + (MEMLORD_KEY(&use_keys) == 0);
}

static int use_records(memlord *lord) {
    const memlord_block blocks[2] = {{{MEMLORD_DEVICE_CUDA, 0}, 64, 1},
                                     {{MEMLORD_DEVICE_CUDA, 1}, 128, 2}};
    memlord_device cuda = memlord_device_cuda(0);
    memlord_device other = memlord_device_make(MEMLORD_DEVICE_NPU, 1);
    memlord_realloc_token token;
    memlord_meta meta;
    int bad = 0;
    memset(&meta, 0, sizeof meta);
    meta.name = "name";
    bad += FAILS(memlord_alloc_n(lord, blocks, 2, NULL));
    bad += FAILS(memlord_track_n(lord, blocks, 2, NULL));
    bad += FAILS(memlord_release_n(lord, blocks, 2, NULL));
    bad += FAILS(memlord_retain(lord, cuda, 64, NULL));
    bad += FAILS(memlord_release(lord, cuda, 64, NULL));
    bad += FAILS(memlord_realloc_begin(lord, cuda, 64, &token));
    bad += FAILS(memlord_realloc_end(lord, &token, 192, 3, MEMLORD_SITE()));
    bad += FAILS(memlord_move(lord, cuda, 192, other, 192, 4, NULL, NULL)) + LIVE(lord, 6u);
    bad += FAILS(memlord_block_describe(lord, other, 192, &meta));
    bad += FAILS(memlord_block_retag(lord, other, 192, "tag"));
    bad += FAILS(memlord_expect(lord, other, "tag", 9));
    bad += FAILS(memlord_arena_add(lord, cuda, 7, NULL));
    bad += FAILS(memlord_arena_sub(lord, cuda, 7, NULL));
    bad += FAILS(memlord_free_begin(lord, other, 192, &token, NULL));
    bad += FAILS(memlord_free_end(lord, &token, 1, NULL)) + LIVE(lord, 6u);
    bad += FAILS(memlord_free(lord, other, 192, NULL));
    bad += FAILS(memlord_free_n(lord, blocks + 1, 1, NULL));
    return bad + LIVE(lord, 0u);
}

static int use_readers(memlord *lord) {
    memlord_device sel = memlord_device_all(), seen[4];
    memlord_stats stats;
    memlord_site_stat site;
    memlord_stack_stat stack;
    memlord_tag_stat tag;
    memlord_block_info info;
    memlord_allocator os;
    uint64_t bytes = 1;
    size_t n = 0;
    char text[64] = "";
    int bad = FAILS(memlord_stats_get(lord, sel, &stats));
    bad += FAILS(memlord_parse_bytes("1 KiB", &bytes));
    bad += FAILS(memlord_write(lord, MEMLORD_FORMAT_JSON, sink, &n));
    bad += FAILS(memlord_blocks_each(lord, sel, 0, count, &n));
    bad += FAILS(memlord_sites_enable(lord, 1));
    bad += FAILS(memlord_device_parse("cuda:1", &seen[0]));
    bad += FAILS(memlord_device_label_set(lord, seen[0], NULL));
    (void)memlord_tag_get(lord, sel, "tag", &tag);
    (void)memlord_block_find(lord, sel, 1, &info);
    (void)memlord_block_containing(lord, sel, 1, &info);
    (void)memlord_device_name(sel, text, sizeof text);
    (void)memlord_summary(lord, text, sizeof text);
    (void)memlord_devices(lord, seen, 4);
    (void)memlord_site_address(lord, memlord_site_at(lord, text));
    (void)memlord_site_place(lord, NULL, NULL);
    (void)memlord_site_of(lord, __FILE__, NULL, __LINE__);
    (void)memlord_hooks_install(lord, NULL, 0);
    (void)memlord_hooks_uninstall(NULL);
    bad += memlord_find(memlord_generation(lord)) != lord;
    (void)memlord_site_rename(lord, NULL, NULL, NULL, 0);
    (void)memlord_site_functions_set(lord, NULL, NULL, 0);
    memlord_os_allocator(&os);
    memlord_reset(lord);
    memlord_peak_reset(lord, sel);
    bad += memlord_format_bytes(1, text, sizeof text) != text;
    bad += memlord_sites_top(lord, sel, MEMLORD_SITE_ORDER_LIVE_BYTES, &site, 1) != 0;
    bad += memlord_stacks_top(lord, sel, MEMLORD_SITE_ORDER_LIVE_BYTES, &stack, 1) != 0;
    bad += memlord_unwind_frame_pointers(NULL, NULL, 0) != 0;
    bad += memlord_site_top_alloc(lord, sel, &site) + memlord_site_top_free(lord, sel, &site);
    bad += memlord_blocks_top(lord, sel, &info, 1) != 0;
    bad += memlord_leaks(lord, memlord_mark(lord), NULL, NULL) != 0;
    bad += memlord_freed(lord, sel) || memlord_pending(lord, sel) || memlord_peak(lord, sel);
    bad += FAILS(memlord_save(NULL, MEMLORD_FORMAT_TEXT, "")) + !memlord_result_text(MEMLORD_E_IO);
    return bad;
}

static int part(void *user, const memlord_part_info *info) {
    (void)user;
    return info->bytes == 0;
}
static int event(void *user, const memlord_event *info) {
    (void)user;
    return info->kind == MEMLORD_EVENT_CHECKPOINT;
}
static int use_phases(memlord *lord) {
    memlord_device cuda = memlord_device_cuda(0);
    memlord_scope_token token;
    memlord_scope_stat scope;
    int bad = FAILS(memlord_events_start(lord, 100)), inside = 0;
    MEMLORD_SCOPE(lord, "outer") {
        MEMLORD_SCOPE(lord, "inner") { inside++; }
        MEMLORD_TAG(lord, "tag") MEMLORD_SCOPE(lord, "tagged") { inside++; }
        bad += FAILS(memlord_scope_shapes_set(lord, "[1,2]"));
        bad += FAILS(memlord_scope_export(lord, &token));
        (void)memlord_scope_adopt(lord, &token);
        (void)memlord_scope_return(lord, &token);
    }
    bad += FAILS(memlord_scope_begin(lord, "named")) + FAILS(memlord_scope_end(lord));
    bad += FAILS(memlord_scope_get(lord, "outer/inner", &scope)) + (inside != 2);
    (void)memlord_scope_device_time(lord, memlord_scope_current(lord), 1);
    bad += FAILS(memlord_alloc(lord, cuda, 64, 10, NULL));
    bad += FAILS(memlord_part_add(lord, cuda, 64, 2, 3, NULL));
    (void)memlord_parts_each(lord, cuda, 64, part, NULL);
    bad += FAILS(memlord_part_remove(lord, cuda, 64, 2));
    bad += FAILS(memlord_free(lord, cuda, 64, NULL));
    bad += FAILS(memlord_checkpoint(lord, "checkpoint"));
    bad += FAILS(memlord_snapshots_start(lord, 0));
    memlord_snapshots_stop(lord);
    bad += FAILS(memlord_events_each(lord, event, NULL));
    memlord_events_stop(lord);
    bad += FAILS(memlord_save_at_exit(NULL, MEMLORD_FORMAT_JSON, "."));
    memlord_request_save(NULL);
    return bad;
}

/* Compiled out too, an allocation is not made where its address would be lost, and a failure is
   not called "ok". */
static int tries;
static int try_to_make(void *user, uint64_t bytes, uint64_t *storage) {
    (void)user;
    tries++;
    *storage = 64;
    return bytes == 1 ? 0 : -1;
}
static int use_retry(memlord *lord) {
    memlord_device cuda = memlord_device_cuda(0);
    uint64_t storage = 1;
    int bad = 0;
    tries = 0;
    bad += memlord_alloc_retry(lord, cuda, 1, try_to_make, NULL, NULL, NULL, NULL) !=
           MEMLORD_E_INVALID;
    bad += memlord_alloc_retry(lord, cuda, 1, NULL, NULL, NULL, &storage, NULL) !=
           MEMLORD_E_INVALID;
    bad += tries != 0 || storage != 0;
    bad += memlord_alloc_retry(lord, cuda, 2, try_to_make, NULL, NULL, &storage, NULL) !=
           MEMLORD_E_OOM;
    bad += !strcmp(memlord_result_text(MEMLORD_E_OOM), "ok") || storage != 0;
    bad += FAILS(memlord_alloc_retry(lord, cuda, 1, try_to_make, NULL, NULL, &storage, NULL));
    return bad + (storage != 64) + FAILS(memlord_free(lord, cuda, storage, NULL));
}

static int anomaly(void *user, const memlord_anomaly *info) {
    *AS(size_t *, user) += info->count;
    return 0;
}

/* What says whose a block is, and who made a mistake. */
static int use_owners(memlord *lord) {
    memlord_device cuda = memlord_device_cuda(0);
    memlord_alloc_opts opts;
    memlord_account_stat charged;
    memlord_context context, none;
    memlord_stats stats;
    uint64_t reclaimed = 1;
    size_t mistakes = 0;
    int bad = 0;
    memset(&opts, 0, sizeof opts);
    memset(&context, 0, sizeof context);
    memset(&none, 0, sizeof none);
    opts.tag = "owner";
    bad += FAILS(memlord_account_open(lord, cuda, "request", 0, &opts.account));
    bad += FAILS(memlord_reserve(lord, cuda, 16, &opts.ticket));
    bad += FAILS(memlord_alloc_with(lord, cuda, 64, 10, &opts)) + LIVE(lord, 10u);
    bad += FAILS(memlord_account_get(lord, opts.account, &charged));
#if defined(MEMLORD_DISABLE)
    bad += opts.account != 0 || opts.ticket != 0 || charged.bytes != 0;
#else
    bad += opts.account == 0 || opts.ticket == 0 || charged.bytes != 10;
#endif
    bad += FAILS(memlord_alloc_reserved(lord, opts.ticket, cuda, 128, 6, NULL));
    bad += FAILS(memlord_reserve_commit(lord, opts.ticket));
    bad += FAILS(memlord_account_close(lord, opts.account));
    bad += FAILS(memlord_context_swap(lord, &context)) + FAILS(memlord_tag_begin(lord, "fibre"));
    bad += FAILS(memlord_context_swap(lord, &context)) + (memlord_tag_current(lord) != NULL);
    bad += FAILS(memlord_context_drop(lord, &context));
    bad += memcmp(&context, &none, sizeof none) != 0 || memlord_stream_set(lord, 7) != 0;
    (void)memlord_stream_set(lord, 0);
    bad += FAILS(memlord_stacks_set(lord, 4, 1)) + FAILS(memlord_stacks_set(lord, 0, 0));
    (void)memlord_gc_run(lord, cuda, MEMLORD_REASON_HOST, 4096, &reclaimed);
    bad += FAILS(memlord_stats_get(lord, cuda, &stats)) + (reclaimed != 0);
    bad += memlord_rate(&stats, "success_rate") < 0 || memlord_rate(&stats, "mean_bytes") < 0;
    bad += FAILS(memlord_free(lord, cuda, 64, NULL)) + FAILS(memlord_free(lord, cuda, 128, NULL));
    (void)memlord_free(lord, cuda, 128, NULL);
    bad += memlord_anomalies_each(lord, anomaly, &mistakes) != mistakes;
#if defined(MEMLORD_DISABLE)
    bad += mistakes != 0;
#else
    bad += mistakes != 1;
#endif
    return bad + LIVE(lord, 0u);
}

static int use_lifecycle(memlord *lord) {
    memlord_logger logger;
    memlord_desc desc;
    memset(&desc, 0, sizeof desc);
    logger.fn = memlord_log_stderr;
    logger.user = NULL;
    memlord_log_stderr(NULL, MEMLORD_LOG_INFO, "not shown");
    (void)memlord_global_setup(&desc); /* another file may have made one */
    return FAILS(memlord_logger_set(lord, &logger)) + FAILS(memlord_logger_set(lord, NULL));
}

int USE(void) {
    memlord *lord = NULL;
    int bad = FAILS(memlord_create(NULL, &lord));
    bad += use_owners(lord) + use_macros(lord) + use_guards(lord) + use_keys();
    bad += use_records(lord) + use_phases(lord) + use_retry(lord);
    bad += use_readers(lord) + use_lifecycle(lord);
    memlord_destroy(lord);
    (void)memlord_global();
    return bad;
}
