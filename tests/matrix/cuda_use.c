/* Calls a bit of everything, in every mode a host may choose; run, it says nothing and answers 0
   whether there is a device or not. */
#include "memlord.h"
#include "memlord_cuda.h"

#ifndef USE
#define USE use
#endif
#ifdef __cplusplus
extern "C"
#endif
int USE(void);

int USE(void) {
    memlord *lord = NULL;
    memlord_cuda_pool pool;
    void *ptr = NULL;
    const char *first = NULL;
    int bad = memlord_create(NULL, &lord) != MEMLORD_OK;
    memlord_result r = memlord_cuda_attach(lord, NULL);
    cudaError_t made = memlord_cuda_malloc(lord, &ptr, 4096, MEMLORD_SITE());
    if (made == cudaSuccess) {
        (void)memlord_cuda_pool_get(lord, 0, &pool);
        (void)memlord_cuda_record_use(lord, ptr, NULL);
        bad |= memlord_cuda_free(lord, ptr, MEMLORD_SITE()) != cudaSuccess;
        bad |= memlord_cuda_device_synchronize(lord, MEMLORD_SITE()) != cudaSuccess;
    }
    (void)memlord_cuda_record_free(lord, NULL, NULL, NULL);
#if !defined(MEMLORD_DISABLE)
    (void)memlord_cuda_mem_release(lord, 1, MEMLORD_SITE());
#endif
    (void)memlord_cuda_wrap_check(&first);
    memlord_cuda_events_release();
    MEMLORD_CUDA_ATTACHED(lord, NULL) { bad |= 0; }
    if (r == MEMLORD_OK) (void)memlord_cuda_detach(lord);
    memlord_destroy(lord);
    return bad;
}

#if defined(USE_MAIN)
int main(void) { return USE(); }
#endif
