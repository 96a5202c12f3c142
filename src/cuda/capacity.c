#include "cuda/capacity.h"
#include "cuda/system.h"
#include "cuda/nvml.h"
#include "cuda/pools.h"

MLI_CUDA_PRIVATE uint64_t mli_cuda_pool_reserved(memlord *lord, int device,
                                                 const memlord_cuda_pool *pool) {
    uint64_t live = memlord_allocated(lord, memlord_device_cuda(device));
    uint64_t inside = memlord_pending(lord, memlord_device_cuda(device));
    inside += pool->used + pool->graph_used;
    return pool->reserved + pool->graph_reserved + (live > inside ? live - inside : 0);
}

MLI_CUDA_PRIVATE void mli_cuda_pool_report(const mli_cuda_driver *d, mli_cuda_attachment *probe,
                                           memlord *lord, int device) {
    memlord_cuda_pool pool;
    if (mli_cuda_load(&probe->flags) & MEMLORD_CUDA_FLAG_NO_RESERVED) return;
    if (!d->pools[device] || !mli_cuda_pools_ask(d, device, NULL, &pool)) return;
    if (!mli_cuda_load(&probe->pooled[device])) {
        if (!pool.reserved_high && !pool.graph_reserved_high) return;
        mli_cuda_store(&probe->pooled[device], 1); /* the store is relaxed, because only detaching
                                                      clears the flag */
    }
    (void)memlord_pool_set(lord, memlord_device_cuda(device),
                           mli_cuda_pool_reserved(lord, device, &pool), UINT64_MAX);
}

MLI_CUDA_PRIVATE void mli_cuda_pool_beside(memlord *lord, memlord_device device, int64_t delta) {
    mli_cuda_attachment *probe = mli_cuda_attachment_of(lord);
    memlord_stats s;
    if (!probe || !delta || device.type != MEMLORD_DEVICE_CUDA ||
        device.index >= MEMLORD_CUDA_MAX_DEVICES ||
        !mli_cuda_load(&probe->pooled[device.index]))
        return;
    if (delta < 0) (void)memlord_stats_get(lord, device, &s);
    if (delta > 0 || s.reserved + (uint64_t)delta <= s.reserved) /* never takes the reserved bytes
                                                                    below 0 */
        (void)memlord_pool_add(lord, device, delta);
}

MLI_CUDA_PRIVATE void mli_cuda_pool_check(memlord *lord, int now) {
    const mli_cuda_driver *d;
    mli_cuda_attachment *probe = mli_cuda_attachment_of(lord);
    int i, mode;
    if (!probe) return; /* a ledger that is not attached must not load the driver */
    d = mli_cuda_driver_get();
    if (!d || !d->any_integrated) return;
    if (!now && mli_cuda_add(&probe->calls, 1) % 64) return;
    for (i = 0; i < d->known; i++) {
        if (!d->integrated[i] || !mli_cuda_enter_device(d, i, &mode)) continue;
        mli_cuda_pool_report(d, probe, lord, i);
        mli_cuda_leave_device(d, i, &mode);
    }
}

/* Reads the cpu's capacity for an integrated GPU. The ledger asks for this only if it has refused
   to let the GPU share the cpu's memory. The driver's free bytes would not do, because they do
   not include the page cache. */
static int mli_cuda_capacity_cpu(memlord *lord, memlord_capacity *out) {
    memlord_capacity cpu;
    (void)memlord_capacity_sample(lord, memlord_device_cpu());
    if (memlord_capacity_get(lord, memlord_device_cpu(), &cpu) || !cpu.known) return -1;
    out->total = cpu.total;
    out->used = cpu.used;
    out->process = cpu.process;
    return 0;
}

/* Returns the bytes of this process's context on device i, which is what the driver itself needs
   there. The function computes them once, when a sample first finds the context: the bytes that the
   process holds then, less those in the ledger. If NVML does not name the process, the function
   takes the growth of the device's used bytes instead, since the layer last saw the device without
   the context. */
static uint64_t mli_cuda_context_size(mli_cuda_attachment *probe, int i, uint64_t process) {
    memlord_stats s;
    uint64_t held, total, used, more = process, before = mli_cuda_load(&probe->before[i]);
    uint64_t size = mli_cuda_load(&probe->context[i]);
    if (size || memlord_stats_get(probe->lord, memlord_device_cuda(i), &s)) return size;
    held = s.reserved > s.allocated ? s.reserved : s.allocated;
    if (!process && before && mli_cuda_nvml_query(i, &total, &used))
        more = used > before ? used - before : 0;
    size = more > held ? more - held : 0;
    mli_cuda_store(&probe->context[i], size);
    return size;
}

/* Sets the identity by which other processes know a device: its UUID as nvidia-smi -L prints it.
   (The index of a device depends on CUDA_VISIBLE_DEVICES.) A MIG device is one of several instances
   that a GPU is cut into, and each has a UUID of its own. */
static void mli_cuda_identify(mli_cuda_attachment *probe, const mli_cuda_driver *d, int i) {
    unsigned char uuid[16];
    char text[48], name[256] = "";
    int k, n;
    if (mli_cuda_load(&probe->identified[i]) || !d->device_uuid) return;
    if (d->device_uuid(uuid, d->handle[i])) return;
    if (d->device_name) (void)d->device_name(name, (int)sizeof name, d->handle[i]);
    n = snprintf(text, sizeof text, "%s", strstr(name, " MIG ") ? "MIG" : "GPU");
    for (k = 0; k < 16; k++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%02x",
                      k % 2 == 0 && (k == 0 || (k >= 4 && k <= 10)) ? "-" : "", uuid[k]);
    if (memlord_device_id_set(probe->lord, memlord_device_cuda(i), text) == MEMLORD_OK)
        mli_cuda_store(&probe->identified[i], 1);
}

MLI_CUDA_PRIVATE int mli_cuda_capacity(void *user, memlord_device device, memlord_capacity *out) {
    mli_cuda_attachment *probe = (mli_cuda_attachment *)user;
    const mli_cuda_driver *d = mli_cuda_driver_get();
    int no_nvml = (mli_cuda_load(&probe->flags) & MEMLORD_CUDA_FLAG_NO_NVML) != 0;
    int i = device.index, mode, known = 0;
    size_t unused = 0, total = 0;
    mli_cuda_holders holders;
    if (!d || i < 0 || i >= d->known) return -1;
    if (d->integrated[i]) {
        mli_cuda_pool_check(probe->lord, 1);
        return mli_cuda_capacity_cpu(probe->lord, out);
    }
    mli_cuda_identify(probe, d, i);
    if (mli_cuda_enter_device(d, i, &mode)) {
        known = d->memory_info(&unused, &total) == 0 && total > 0;
        mli_cuda_pool_report(d, probe, probe->lord, i);
        mli_cuda_leave_device(d, i, &mode);
    }
    if (known) {
        out->total = total;
        out->used = total - unused;
    } else if (!no_nvml && mli_cuda_nvml_query(i, &out->total, &out->used)) {
        /* `total` and `used` both come from NVML here, because NVML's total is not the driver's */
        if (!mli_cuda_active(d, i)) mli_cuda_store(&probe->before[i], out->used);
    } else {
        return -1;
    }
    if (no_nvml) return 0;
    holders = mli_cuda_holders_get(i, known);
    out->process = holders.ours;
    memcpy(out->others, holders.others, sizeof out->others);
    if (known) out->context = mli_cuda_context_size(probe, i, holders.ours);
    return 0;
}
