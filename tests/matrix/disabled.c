/* Compiled out, a function full of calls is the function that has none. */
#define MEMLORD_DISABLE
#include "memlord.h"

#ifdef __cplusplus
extern "C" {
#endif
int without(memlord *lord, char *block, uint64_t bytes);
int with(memlord *lord, char *block, uint64_t bytes);
#ifdef __cplusplus
}
#endif

int without(memlord *lord, char *block, uint64_t bytes) {
    (void)lord;
    (void)bytes;
    return block[0] + 1;
}

int with(memlord *lord, char *block, uint64_t bytes) {
    memlord_device device = memlord_device_cuda(1);
    memlord_realloc_token token;
    memlord_stats stats;
    memlord_alloc_opts opts = {NULL, "tag", 1, 1, 1};
    memlord_context context;
#ifdef __cplusplus
    mlord::handle handle(lord, device, 1, bytes), moved(static_cast<mlord::handle &&>(handle));
    mlord::scope scope(lord, "scope");
    mlord::tag tag(lord, "tag");
    mlord::context job(lord), taken(static_cast<mlord::context &&>(job));
    taken.run([&] { memlord_tag_end(lord); });
    moved.reset();
#endif
    memlord_site_of(memlord_find(memlord_generation(lord)), __FILE__, NULL, 1);
    memlord_sites_enable(lord, 1);
    memlord_tag_default_set(lord, "default");
    MEMLORD_TAGGED(lord, "tagged");
    MEMLORD_SCOPED(lord, "scoped");
    memlord_alloc(lord, device, 1, bytes, MEMLORD_SITE_OF_CALLER(lord));
    memlord_alloc(lord, device, 1, bytes, MEMLORD_SITE_OF_CALLER());
    MEMLORD_ALLOC(lord, device, block, bytes);
    memlord_alloc_with(lord, device, 1, bytes, &opts);
    memlord_alloc_reserved(lord, 1, device, 1, bytes, NULL);
    memset(&context, 0, sizeof context);
    memlord_context_swap(lord, &context);
    memlord_context_drop(lord, &context);
    memlord_anomalies_each(lord, NULL, NULL);
    memlord_stacks_set(lord, 8, 1);
    memlord_gc_run(lord, device, MEMLORD_REASON_HOST, bytes, NULL);
    memlord_stream_set(lord, bytes);
    MEMLORD_TAG(lord, "weights") { MEMLORD_TRACK(lord, device, block, bytes * 2); }
    MEMLORD_SCOPE(lord, "forward") { memlord_scope_shapes_set(lord, "[1,2]"); }
    memlord_part_add(lord, device, MEMLORD_KEY(block), 0, 1, NULL);
    memlord_checkpoint(lord, "loaded");
    memlord_request_save(lord);
    MEMLORD_RETAIN(lord, device, block);
    MEMLORD_RELEASE(lord, device, block);
    MEMLORD_REALLOC(lord, device, block, block + 1, bytes);
    memlord_realloc_begin(lord, device, MEMLORD_KEY(block), &token);
    memlord_realloc_end(lord, &token, MEMLORD_KEY(block), bytes, MEMLORD_SITE());
    memlord_arena_add(lord, device, bytes, NULL);
    memlord_stats_get(lord, memlord_device_all(), &stats);
    MEMLORD_FREE(lord, device, block);
    return block[0] + 1 + (int)memlord_allocated(lord, device);
}
