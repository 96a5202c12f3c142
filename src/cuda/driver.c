#include "cuda/driver.h"
#include "cuda/atfork.h"

#include <stdlib.h> /* atexit */

static mli_cuda_lock mli_cuda_loaded_lock = MLI_CUDA_LOCK;
MLI_CUDA_VARIABLE_HERE(mli_cuda_loaded_state mli_cuda_loaded)

/* Stores why there is no driver, as a text that printf formats. The value of the expression is
   0. */
#define MLI_CUDA_WHY(...)                                                                     \
    (snprintf(mli_cuda_loaded.why, sizeof mli_cuda_loaded.why, __VA_ARGS__), 0)

static const mli_cuda_symbol mli_cuda_driver_symbols[] = {
#define MLI_CUDA_X(field, symbol, needed, params)                                             \
    {symbol, (uint16_t)offsetof(mli_cuda_driver, field), needed},
    MLI_CUDA_FUNCTIONS(MLI_CUDA_X)
#undef MLI_CUDA_X
};

/* Reads the handles and properties of the devices. */
static void mli_cuda_devices_read(mli_cuda_driver *d) {
    const int has_pools = d->pool_current && d->pool_attribute && d->pool_trim;
    int i;
    for (i = 0; i < d->devices && i < MEMLORD_CUDA_MAX_DEVICES; i++) {
        if (d->device_get(&d->handle[i], i)) break;
        if (d->device_attribute(&d->integrated[i], MLI_CUDA_ATTRIBUTE_INTEGRATED, d->handle[i]))
            d->integrated[i] = 0;
        d->any_integrated |= d->integrated[i];
        if (!has_pools ||
            d->device_attribute(&d->pools[i], MLI_CUDA_ATTRIBUTE_POOLS, d->handle[i]))
            d->pools[i] = 0;
    }
    d->known = i;
}

static int mli_cuda_driver_load(mli_cuda_driver *d) {
    void *library = mli_cuda_library_open(MEMLORD_CUDA_DRIVER);
    const char *missing;
    int i;
    if (!library) return MLI_CUDA_WHY("%s was not found", MEMLORD_CUDA_DRIVER);
    missing = mli_cuda_library_fill(library, mli_cuda_driver_symbols,
                                    sizeof mli_cuda_driver_symbols / sizeof(mli_cuda_symbol), d);
    if (missing) {
        mli_cuda_library_close(library);
        return MLI_CUDA_WHY("%s has no %s", MEMLORD_CUDA_DRIVER, missing);
    }
    /* the library stays loaded after cuInit, even if cuInit fails, because the library may have
       started threads */
    if ((i = d->init(0)) != 0) return MLI_CUDA_WHY("cuInit answered %d", i);
    if ((i = d->device_count(&d->devices)) != 0)
        return MLI_CUDA_WHY("cuDeviceGetCount answered %d", i);
    if (d->devices < 1) return MLI_CUDA_WHY("there is no device");
    mli_cuda_devices_read(d);
    return 1;
}

MLI_CUDA_PRIVATE const mli_cuda_driver *mli_cuda_driver_get(void) {
    uint64_t state = mli_cuda_load_acquire(&mli_cuda_loaded.state);
    if (state == MLI_CUDA_UNTRIED) {
        mli_cuda_lock_take(&mli_cuda_loaded_lock);
        state = mli_cuda_load(&mli_cuda_loaded.state);
        if (state == MLI_CUDA_UNTRIED) {
            mli_cuda_fork_first();
            state = mli_cuda_driver_load(&mli_cuda_loaded.table) ? MLI_CUDA_READY : MLI_CUDA_ABSENT;
            mli_cuda_fork_locks();
            if (state == MLI_CUDA_READY) (void)atexit(mli_cuda_driver_leave);
            mli_cuda_store_release(&mli_cuda_loaded.state, state);
        }
        mli_cuda_lock_drop(&mli_cuda_loaded_lock);
    }
    return state == MLI_CUDA_READY ? &mli_cuda_loaded.table : NULL;
}

MLI_CUDA_PRIVATE int mli_cuda_ordinal(const mli_cuda_driver *d, int handle) {
    int i = 0;
    while (i < d->known && d->handle[i] != handle) i++;
    return i < d->known ? i : handle;
}

MLI_CUDA_PRIVATE int mli_cuda_active(const mli_cuda_driver *d, int device) {
    unsigned flags;
    int active = 0;
    return device >= 0 && device < d->known &&
           d->primary_state(d->handle[device], &flags, &active) == 0 && active;
}

MLI_CUDA_PRIVATE int mli_cuda_is_not_yet(int error) {
    return error == MLI_CUDA_NOT_READY || error == MLI_CUDA_NOT_PERMITTED ||
           (error >= MLI_CUDA_CAPTURE_FIRST && error <= MLI_CUDA_CAPTURE_LAST);
}

MLI_CUDA_PRIVATE int mli_cuda_relax(const mli_cuda_driver *d, int *mode) {
    *mode = MLI_CUDA_MODE_RELAXED;
    return d->capture_mode(mode);
}

MLI_CUDA_PRIVATE int mli_cuda_enter_context(const mli_cuda_driver *d, void *context, int *mode) {
    int r = d->context_push(context);
    if (!r && (r = mli_cuda_relax(d, mode)) != 0) (void)d->context_pop(&context);
    return r;
}

MLI_CUDA_PRIVATE void mli_cuda_leave_context(const mli_cuda_driver *d, int *mode) {
    void *context;
    (void)d->capture_mode(mode);
    (void)d->context_pop(&context);
}
MLI_CUDA_VARIABLE_HERE(mli_cuda_u64 mli_cuda_inside[MEMLORD_CUDA_MAX_DEVICES])

/* Makes a device's primary context current. Relaxes the capture mode first, because a capture may
   forbid retaining a context. Returns 1, or 0 if the device is not active or the driver refuses. */
static int mli_cuda_enter_primary(const mli_cuda_driver *d, int device, int *mode) {
    void *context = NULL;
    if (mli_cuda_relax(d, mode)) return 0;
    if (mli_cuda_active(d, device) && d->primary_retain(&context, d->handle[device]) == 0) {
        if (d->context_push(context) == 0) return 1;
        (void)d->primary_release(d->handle[device]);
    }
    (void)d->capture_mode(mode);
    return 0;
}
/* Counts a thread as no longer inside a device. The release pairs with the acquire load of a thread
   that waits, in mli_cuda_driver_leave or in memlord_cuda_device_reset. */
static void mli_cuda_exit_device(int device) {
    (void)mli_cuda_add_release(&mli_cuda_inside[device], UINT64_MAX);
}
MLI_CUDA_PRIVATE int mli_cuda_enter_device(const mli_cuda_driver *d, int device, int *mode) {
    if (device < 0 || device >= d->known) return 0;
    /* relaxed: a reset adds to the same counter, and one of the two additions comes first; so
       either this thread sees the reset, or the reset sees this thread */
    if (mli_cuda_add(&mli_cuda_inside[device], 1) < MLI_CUDA_RESETTING &&
        mli_cuda_enter_primary(d, device, mode))
        return 1;
    mli_cuda_exit_device(device);
    return 0;
}

MLI_CUDA_PRIVATE void mli_cuda_leave_device(const mli_cuda_driver *d, int device, int *mode) {
    mli_cuda_leave_context(d, mode);
    (void)d->primary_release(d->handle[device]);
    mli_cuda_exit_device(device);
}

MLI_CUDA_PRIVATE void mli_cuda_driver_leave(void) {
    static const char over[] = "the process ends";
    int i;
    if (mli_cuda_load(&mli_cuda_loaded.state) != MLI_CUDA_READY) return;
    memcpy(mli_cuda_loaded.why, over, sizeof over);
    mli_cuda_store_release(&mli_cuda_loaded.state, MLI_CUDA_ABSENT);
    for (i = 0; i < MEMLORD_CUDA_MAX_DEVICES; i++) {
        /* relaxed, as in mli_cuda_enter_device; nothing subtracts MLI_CUDA_RESETTING again, so no
           thread enters the device any more */
        (void)mli_cuda_add(&mli_cuda_inside[i], MLI_CUDA_RESETTING);
        /* the acquire load pairs with the release in mli_cuda_exit_device */
        while (mli_cuda_load_acquire(&mli_cuda_inside[i]) % MLI_CUDA_RESETTING) mli_cuda_yield();
    }
}
