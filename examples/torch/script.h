/* script.h - the functions that a Python script calls, in both libraries for PyTorch

   Part of the file that includes it, which defines before:
       memlord *lord()                  its ledger; NULL: MemLord is off
       void settle(int device)          brings the books up to date; -1: of every device
       void sample(int device)          asks the device how much of it is used
   `device` -1 is all of them. An int is a memlord_result: 0 is done. */
#ifndef MEMLORD_TORCH_SCRIPT_H
#define MEMLORD_TORCH_SCRIPT_H

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT uint64_t memlord_torch_allocated(int device);
EXPORT uint64_t memlord_torch_pending(int device); /* the part of it that is freed and still used */
EXPORT uint64_t memlord_torch_peak(int device);
EXPORT uint64_t memlord_torch_reserved(int device);
EXPORT uint64_t memlord_torch_recoveries(int device); /* allocations that a retry saved */
EXPORT void memlord_torch_peak_reset(int device);
EXPORT int memlord_torch_limit_fraction(int device, double fraction);
EXPORT int memlord_torch_tag_begin(const char *tag);
EXPORT int memlord_torch_tag_end(void);
EXPORT int memlord_torch_scope_begin(const char *name);
EXPORT int memlord_torch_scope_end(void);
EXPORT int memlord_torch_checkpoint(const char *name);
EXPORT uint64_t memlord_torch_mark(void);
EXPORT uint64_t memlord_torch_live_since(uint64_t mark); /* bytes allocated since and not freed */
/* Returns the site of a place, which lives until the process ends; NULL: no file. */
EXPORT const void *memlord_torch_site(const char *file, const char *function, int line);
/* Sets the site of this thread's allocations, NULL for none; returns the last one. */
EXPORT const void *memlord_torch_site_use(const void *site);
EXPORT size_t memlord_torch_explain(int device, uint64_t wanted, char *text, size_t size);
EXPORT const char *memlord_torch_error(int result);
EXPORT int memlord_torch_save(const char *path);

namespace {

memlord_device gpu(int device) {
    return memlord_device_make(MEMLORD_DEVICE_CUDA, device < 0 ? MEMLORD_ANY : device);
}

enum { MAX_DEVICES = 64 };

/* Calls a function for the GPUs of the books; `only` -1: for all. */
template <class F> void gpus_each(int only, F call) {
    memlord_device devices[MAX_DEVICES];
    size_t i, n = memlord_devices(lord(), devices, MAX_DEVICES);
    for (i = 0; i < n && i < MAX_DEVICES; i++)
        if (devices[i].type == MEMLORD_DEVICE_CUDA && (only < 0 || devices[i].index == only))
            call(devices[i]);
}

thread_local const memlord_site *site_now; /* memlord_torch_site_use */

/* -- the tag of a backward pass: PyTorch runs it on threads of its own, while the thread that asked
   for it waits. They get the tag that was begun last. -- */

std::atomic<const char *> tag_last{nullptr}; /* the ledger's; relaxed: the waiting orders */

void tag_for_backward() {
    static thread_local int backward = -1; /* 1: a thread of the backward pass */
    static thread_local const char *had = nullptr;
    if (backward < 0) {
        char name[16] = "";
        (void)pthread_getname_np(pthread_self(), name, sizeof name);
        backward = !strncmp(name, "pt_autograd", 11);
    }
    const char *tag = backward ? tag_last.load(std::memory_order_relaxed) : nullptr;
    if (tag != had && memlord_tag_default_set(lord(), tag) == MEMLORD_OK) had = tag;
}

int add_bytes(void *user, const memlord_block_info *info) {
    *static_cast<uint64_t *>(user) += info->pending ? 0 : info->bytes;
    return 0;
}

/* Writes the report that MEMLORD_TORCH_REPORT asks for. */
void save_at_exit() {
    const char *path = getenv("MEMLORD_TORCH_REPORT");
    if (path && *path && memlord_torch_save(path))
        fprintf(stderr, "memlord_torch: could not write %s\n", path);
}

} // namespace

uint64_t memlord_torch_allocated(int device) {
    settle(device);
    return memlord_allocated(lord(), gpu(device));
}
uint64_t memlord_torch_pending(int device) {
    settle(device);
    return memlord_pending(lord(), gpu(device));
}
uint64_t memlord_torch_peak(int device) {
    settle(device);
    return memlord_peak(lord(), gpu(device));
}
uint64_t memlord_torch_reserved(int device) {
    memlord_stats s;
    settle(device);
    return memlord_stats_get(lord(), gpu(device), &s) == MEMLORD_OK ? s.reserved : 0;
}
uint64_t memlord_torch_recoveries(int device) {
    memlord_stats s;
    return memlord_stats_get(lord(), gpu(device), &s) == MEMLORD_OK ? s.recoveries : 0;
}
void memlord_torch_peak_reset(int device) {
    settle(device);
    memlord_peak_reset(lord(), gpu(device));
}

int memlord_torch_limit_fraction(int device, double fraction) {
    return memlord_limit_set_fraction(lord(), gpu(device), fraction);
}

int memlord_torch_tag_begin(const char *tag) {
    int r = memlord_tag_begin(lord(), tag);
    tag_last.store(memlord_tag_current(lord()), std::memory_order_relaxed);
    return r;
}
int memlord_torch_tag_end(void) {
    int r = memlord_tag_end(lord());
    tag_last.store(memlord_tag_current(lord()), std::memory_order_relaxed);
    return r;
}
int memlord_torch_scope_begin(const char *name) { return memlord_scope_begin(lord(), name); }
int memlord_torch_scope_end(void) { return memlord_scope_end(lord()); }

int memlord_torch_checkpoint(const char *name) {
    settle(-1);
    sample(-1);
    return memlord_checkpoint(lord(), name);
}
uint64_t memlord_torch_mark(void) { return memlord_mark(lord()); }
uint64_t memlord_torch_live_since(uint64_t mark) {
    uint64_t bytes = 0;
    settle(-1);
    (void)memlord_leaks(lord(), mark, add_bytes, &bytes);
    return bytes;
}

const void *memlord_torch_site(const char *file, const char *function, int line) {
    return file ? memlord_site_of(lord(), file, function, line) : nullptr;
}
const void *memlord_torch_site_use(const void *site) {
    const void *before = site_now;
    site_now = static_cast<const memlord_site *>(site);
    return before;
}

size_t memlord_torch_explain(int device, uint64_t wanted, char *text, size_t size) {
    settle(device);
    sample(device);
    return memlord_explain(lord(), gpu(device), wanted, text, size);
}
const char *memlord_torch_error(int result) {
    return memlord_result_text(static_cast<memlord_result>(result));
}
int memlord_torch_save(const char *path) {
    settle(-1);
    sample(-1);
    return memlord_save(lord(), memlord_format_for(path), path);
}

#endif
