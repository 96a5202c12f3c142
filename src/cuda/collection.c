#include "cuda/collection.h"
#include "cuda/system.h"
#include "cuda/driver.h"
#include "cuda/seats.h"
#include "cuda/pools.h"
#include "cuda/capacity.h"
#include "cuda/streams.h"

#if defined(MEMLORD_CUDA_NVTX)
static void mli_cuda_nvtx_begin(const char *what, memlord_device device) {
    char text[96], name[32];
    (void)memlord_device_name(device, name, sizeof name);
    (void)snprintf(text, sizeof text, "%s %s", what, name);
    (void)nvtxRangePushA(text);
}
MLI_CUDA_PRIVATE void mli_cuda_nvtx_mark(const char *what, uint64_t bytes) {
    nvtxEventAttributes_t event;
    memset(&event, 0, sizeof event);
    event.version = NVTX_VERSION;
    event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    event.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
    event.payload.ullValue = bytes;
    event.messageType = NVTX_MESSAGE_TYPE_ASCII;
    event.message.ascii = what;
    nvtxMarkEx(&event);
}
MLI_CUDA_PRIVATE void mli_cuda_nvtx_push(const char *what) { (void)nvtxRangePushA(what); }
MLI_CUDA_PRIVATE void mli_cuda_nvtx_end(void) { (void)nvtxRangePop(); }
#else
static void mli_cuda_nvtx_begin(const char *what, memlord_device device) {
    (void)what, (void)device;
}
MLI_CUDA_PRIVATE void mli_cuda_nvtx_mark(const char *what, uint64_t bytes) {
    (void)what, (void)bytes;
}
MLI_CUDA_PRIVATE void mli_cuda_nvtx_push(const char *what) { (void)what; }
MLI_CUDA_PRIVATE void mli_cuda_nvtx_end(void) {}
#endif

/* Trims the pools and graphs of a device: lets them give back unused memory. A trim leaves
   keep_bytes in the pools. A trim for a band (a threshold of the host) leaves more, if the pools
   may soon need more: the bytes used now, the freed bytes that the device may still use, and the
   bytes freed since the last collection. This sum is limited to the used_high of the pools. The
   reclaimed bytes include those that the pools give back by themselves during a wait for pending
   frees. Requires: this thread has entered the device. */
static void mli_cuda_trim(const mli_cuda_driver *d, mli_cuda_attachment *probe, memlord *lord,
                          const memlord_gc_event *event, memlord_gc_result *result) {
    const memlord_device device = event->device;
    memlord_cuda_pool before, after;
    uint64_t lately = memlord_freed(lord, device) + memlord_pending(lord, device), had, has;
    uint64_t keep = mli_cuda_load(&probe->keep_bytes);
    int waits = mli_cuda_waits;
    if (!mli_cuda_pools_ask(d, device.index, NULL, &before)) return;
    lately += before.used;
    if (lately > before.used_high) lately = before.used_high;
    if (event->reason == MEMLORD_REASON_BAND && keep < lately) keep = lately;
    if (mli_cuda_load(&probe->flags) & MEMLORD_CUDA_FLAG_SYNC) {
        mli_cuda_waits = 1;
        (void)memlord_retire(lord, device);
        mli_cuda_waits = waits;
    }
    result->ran = mli_cuda_pools_ask(d, device.index, &keep, &after);
    had = before.reserved + before.graph_reserved;
    has = after.reserved + after.graph_reserved;
    if (result->ran && had > has) result->reclaimed = had - has;
}

MLI_CUDA_PRIVATE memlord_gc_result mli_cuda_collect(void *user, memlord *lord,
                                                    const memlord_gc_event *event) {
    mli_cuda_attachment *probe = (mli_cuda_attachment *)user;
    const mli_cuda_driver *d = mli_cuda_driver_get();
    memlord_gc_result result = {0, 0, 0};
    int i = event->device.index, mode;
    if (!d || i < 0 || i >= d->known || !d->pools[i]) return result;
    mli_cuda_nvtx_begin("memlord collection", event->device);
    if (mli_cuda_enter_device(d, i, &mode)) {
        mli_cuda_trim(d, probe, lord, event, &result);
        mli_cuda_pool_report(d, probe, lord, i);
        mli_cuda_leave_device(d, i, &mode);
    }
    mli_cuda_nvtx_mark("memlord reclaimed", result.reclaimed);
    mli_cuda_nvtx_end();
    return result;
}
