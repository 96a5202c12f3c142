#include "cuda/nvml.h"

#define MLI_CUDA_NVML_FUNCTIONS(X)                                                            \
    X(init, "nvmlInit_v2", 1, (void))                                                         \
    X(shutdown, "nvmlShutdown", 1, (void))                                                    \
    X(by_pci, "nvmlDeviceGetHandleByPciBusId_v2", 1, (const char *id, void **device))         \
    X(memory, "nvmlDeviceGetMemoryInfo", 1, (void *device, void *info))                       \
    X(mig, "nvmlDeviceGetMigMode", 0, (void *device, unsigned *current, unsigned *pending))   \
    X(processes, "nvmlDeviceGetComputeRunningProcesses_v3", 0,                                \
      (void *device, unsigned *n, void *info))

static mli_cuda_lock mli_cuda_nvml_lock = MLI_CUDA_LOCK;
static int mli_cuda_nvml_users;
typedef struct mli_cuda_nvml_state {
#define MLI_CUDA_X(field, symbol, needed, params) int (*field) params;
    MLI_CUDA_NVML_FUNCTIONS(MLI_CUDA_X)
#undef MLI_CUDA_X
    void *library;                          /* NULL if NVML is not loaded */
    void *device[MEMLORD_CUDA_MAX_DEVICES]; /* NULL if NVML lacks the device, or if the device is in
                                               MIG mode (cut into instances) */
} mli_cuda_nvml_state;
static mli_cuda_nvml_state mli_cuda_nvml;

/* Returns NVML's handle of device i, or NULL if there is none. Returns NULL also for a device in
   MIG mode (cut into instances). All its instances have the same PCI id, and NVML's figures are
   those of the whole device. */
static void *mli_cuda_nvml_find(const mli_cuda_driver *d, int i) {
    char id[32] = "";
    unsigned cut = 0, pending;
    void *device = NULL;
    if (!d->device_pci || d->device_pci(id, (int)sizeof id, d->handle[i])) return NULL;
    if (mli_cuda_nvml.by_pci(id, &device)) return NULL;
    if (mli_cuda_nvml.mig && mli_cuda_nvml.mig(device, &cut, &pending) == 0 && cut) return NULL;
    return device;
}

enum { MLI_CUDA_HOLDERS_EVERY = 16, MLI_CUDA_HOLDERS_MISSES = 8 };
MLI_CUDA_PRIVATE mli_cuda_lock mli_cuda_holders_lock = MLI_CUDA_LOCK;
static mli_cuda_holders mli_cuda_holders_of[MEMLORD_CUDA_MAX_DEVICES];

static const mli_cuda_symbol mli_cuda_nvml_symbols[] = {
#define MLI_CUDA_X(field, symbol, needed, params)                                             \
    {symbol, (uint16_t)offsetof(mli_cuda_nvml_state, field), needed},
    MLI_CUDA_NVML_FUNCTIONS(MLI_CUDA_X)
#undef MLI_CUDA_X
};

static void mli_cuda_nvml_load(const mli_cuda_driver *d, const char *name) {
    void *library = mli_cuda_library_open(name);
    int i;
    if (!library) return;
    if (mli_cuda_library_fill(library, mli_cuda_nvml_symbols,
                              sizeof mli_cuda_nvml_symbols / sizeof(mli_cuda_symbol),
                              &mli_cuda_nvml) ||
        mli_cuda_nvml.init()) {
        mli_cuda_library_close(library);
        return;
    }
    mli_cuda_nvml.library = library;
    for (i = 0; i < d->known; i++) mli_cuda_nvml.device[i] = mli_cuda_nvml_find(d, i);
}

MLI_CUDA_PRIVATE void mli_cuda_nvml_acquire(const mli_cuda_driver *d, const char *name) {
    mli_cuda_lock_take(&mli_cuda_nvml_lock);
    if (!mli_cuda_nvml_users++) mli_cuda_nvml_load(d, name ? name : MLI_CUDA_NVML);
    mli_cuda_lock_drop(&mli_cuda_nvml_lock);
}
MLI_CUDA_PRIVATE void mli_cuda_nvml_release(void) {
    mli_cuda_lock_take(&mli_cuda_nvml_lock);
    if (!--mli_cuda_nvml_users) {
        if (mli_cuda_nvml.library) {
            (void)mli_cuda_nvml.shutdown();
            mli_cuda_library_close(mli_cuda_nvml.library);
        }
        memset(&mli_cuda_nvml, 0, sizeof mli_cuda_nvml);
        memset(mli_cuda_holders_of, 0, sizeof mli_cuda_holders_of);
    }
    mli_cuda_lock_drop(&mli_cuda_nvml_lock);
}

MLI_CUDA_PRIVATE int mli_cuda_nvml_query(int i, uint64_t *total, uint64_t *used) {
    unsigned long long info[3] = {0, 0, 0}; /* total, free, used */
    void *device = mli_cuda_nvml.device[i];
    if (!device || mli_cuda_nvml.memory(device, info) || !info[0]) return 0;
    *total = info[0];
    *used = info[0] - info[1];
    return 1;
}

/* Adds a process to `others` if it is among the largest. `others` is sorted by bytes,
   the largest first. */
static void mli_cuda_holder_add(mli_cuda_holders *h, uint64_t pid, uint64_t bytes) {
    int k = MEMLORD_OTHERS;
    while (k && h->others[k - 1].bytes < bytes) k--;
    if (k == MEMLORD_OTHERS || !pid) return; /* pid 0 means the end of `others` */
    memmove(&h->others[k + 1], &h->others[k], sizeof *h->others * (size_t)(MEMLORD_OTHERS - 1 - k));
    h->others[k].pid = pid;
    h->others[k].bytes = bytes;
}

/* Makes NVML list the processes. The list has room for 1024 processes, because NVML fills in none
   if the list is too short. The list is static, because a thread's stack may be small. Requires:
   the caller holds mli_cuda_holders_lock. */
static void mli_cuda_holders_ask(int i, int active, mli_cuda_holders *h) {
    static struct {
        unsigned pid;
        unsigned long long used;
        unsigned gpu_instance, compute_instance;
    } list[1024];
    unsigned count = sizeof list / sizeof *list, k;
    void *device = mli_cuda_nvml.device[i];
    int found = 0;
    h->ours = 0;
    memset(h->others, 0, sizeof h->others);
    if (!device || !mli_cuda_nvml.processes || mli_cuda_nvml.processes(device, &count, list))
        return;
    for (k = 0; k < count && k < sizeof list / sizeof *list; k++) {
        const int us = list[k].pid == mli_cuda_process_id();
        found |= us;
        if (list[k].used == UINT64_MAX) continue; /* NVML does not know the bytes */
        if (us)
            h->ours += list[k].used;
        else
            mli_cuda_holder_add(h, list[k].pid, list[k].used);
    }
    h->misses = found || !active ? 0 : h->misses + 1;
    if (h->misses) memset(h->others, 0, sizeof h->others);
}

MLI_CUDA_PRIVATE mli_cuda_holders mli_cuda_holders_get(int i, int active) {
    mli_cuda_holders *h = &mli_cuda_holders_of[i], copy;
    mli_cuda_lock_take(&mli_cuda_holders_lock);
    if (h->misses < MLI_CUDA_HOLDERS_MISSES && h->samples++ % MLI_CUDA_HOLDERS_EVERY == 0)
        mli_cuda_holders_ask(i, active, h);
    copy = *h;
    mli_cuda_lock_drop(&mli_cuda_holders_lock);
    return copy;
}
