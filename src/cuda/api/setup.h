#if !defined(MEMLORD_H)
#error "include memlord.h before memlord_cuda.h"
#endif

/* The runtime's header has anonymous unions, which C99 does not know. */
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#endif
#include <cuda_runtime_api.h>
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
#if CUDART_VERSION < 11020
#error "memlord_cuda.h needs CUDA 11.2 or later: memory pools came with it"
#endif

#if defined(MEMLORD_DISABLE) && defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#endif

#if defined(MEMLORD_PREFIX)
#define MLI_CUDA_NAMED(name) MLI_PREFIXED(memlord_cuda_##name)
#define memlord_cuda_attach MLI_CUDA_NAMED(attach)
#define memlord_cuda_detach MLI_CUDA_NAMED(detach)
#define memlord_cuda_attached MLI_CUDA_NAMED(attached)
#define memlord_cuda_why MLI_CUDA_NAMED(why)
#define memlord_cuda_pool_get MLI_CUDA_NAMED(pool_get)
#define memlord_cuda_pool_refresh MLI_CUDA_NAMED(pool_refresh)
#define memlord_cuda_malloc MLI_CUDA_NAMED(malloc)
#define memlord_cuda_malloc_pitch MLI_CUDA_NAMED(malloc_pitch)
#define memlord_cuda_malloc_3d MLI_CUDA_NAMED(malloc_3d)
#define memlord_cuda_malloc_managed MLI_CUDA_NAMED(malloc_managed)
#define memlord_cuda_malloc_async MLI_CUDA_NAMED(malloc_async)
#define memlord_cuda_malloc_from_pool_async MLI_CUDA_NAMED(malloc_from_pool_async)
#define memlord_cuda_malloc_retry MLI_CUDA_NAMED(malloc_retry)
#define memlord_cuda_free MLI_CUDA_NAMED(free)
#define memlord_cuda_free_async MLI_CUDA_NAMED(free_async)
#define memlord_cuda_malloc_host MLI_CUDA_NAMED(malloc_host)
#define memlord_cuda_host_alloc MLI_CUDA_NAMED(host_alloc)
#define memlord_cuda_free_host MLI_CUDA_NAMED(free_host)
#define memlord_cuda_host_register MLI_CUDA_NAMED(host_register)
#define memlord_cuda_host_unregister MLI_CUDA_NAMED(host_unregister)
#define memlord_cuda_stream_end_capture MLI_CUDA_NAMED(stream_end_capture)
#define memlord_cuda_stream_destroy MLI_CUDA_NAMED(stream_destroy)
#define memlord_cuda_stream_synchronize MLI_CUDA_NAMED(stream_synchronize)
#define memlord_cuda_event_synchronize MLI_CUDA_NAMED(event_synchronize)
#define memlord_cuda_device_synchronize MLI_CUDA_NAMED(device_synchronize)
#define memlord_cuda_mem_create MLI_CUDA_NAMED(mem_create)
#define memlord_cuda_mem_release MLI_CUDA_NAMED(mem_release)
#define memlord_cuda_mem_map MLI_CUDA_NAMED(mem_map)
#define memlord_cuda_mem_unmap MLI_CUDA_NAMED(mem_unmap)
#define memlord_cuda_mem_retain_handle MLI_CUDA_NAMED(mem_retain_handle)
#define memlord_cuda_device_reset MLI_CUDA_NAMED(device_reset)
#define memlord_cuda_pool_create MLI_CUDA_NAMED(pool_create)
#define memlord_cuda_pool_destroy MLI_CUDA_NAMED(pool_destroy)
#define memlord_cuda_device_set_pool MLI_CUDA_NAMED(device_set_pool)
#define memlord_cuda_free_async_after MLI_CUDA_NAMED(free_async_after)
#define memlord_cuda_record_free MLI_CUDA_NAMED(record_free)
#define memlord_cuda_record_use MLI_CUDA_NAMED(record_use)
#define memlord_cuda_events_release MLI_CUDA_NAMED(events_release)
#define memlord_cuda_scope_begin MLI_CUDA_NAMED(scope_begin)
#define memlord_cuda_scope_end MLI_CUDA_NAMED(scope_end)
#define memlord_cuda_checkpoint MLI_CUDA_NAMED(checkpoint)
#define memlord_cuda_wrap_check MLI_CUDA_NAMED(wrap_check)
#endif

#ifdef __cplusplus
extern "C" {
#endif
