/* ------------------------------------------------------------------------- >>shim --
   The shim is the last part, so that nothing above is redirected. It is outside of the include
   guard, because another header may have included memlord_cuda.h before without MEMLORD_CUDA_SHIM.
   The macros are variadic, because the preprocessor takes the comma of sizeof(std::pair<int, int>)
   for one between arguments. They call functions, so that the compiler checks the types. In C++
   there are overloads as in cuda_runtime.h, for pointers of any type and for other numbers of
   arguments. The shim is off while nvcc compiles for the device, because device code may call the
   device's own cudaMalloc. */
#if defined(MEMLORD_CUDA_SHIM) && !defined(MEMLORD_DISABLE) && !defined(__CUDA_ARCH__) &&     \
    !defined(MLI_CUDA_SHIMMED)
#define MLI_CUDA_SHIMMED
#ifndef MEMLORD_CUDA_SHIM_LORD
#define MEMLORD_CUDA_SHIM_LORD memlord_global()
#endif

#ifdef __cplusplus
extern "C++" {
#define MLI_CUDA_FORM(name, params, call)                                                     \
    template <class T>                                                                        \
    inline cudaError_t memlord_cuda_##name(memlord *lord, T **ptr, MLI_CUDA_ITEMS params,       \
                                           const memlord_site *site) {                        \
        void **made = static_cast<void **>(static_cast<void *>(ptr)); /* T may be const */    \
        (void)made;                                                                           \
        return call;                                                                          \
    }
MLI_CUDA_FORM(malloc, (size_t bytes), memlord_cuda_malloc(lord, made, bytes, site))
MLI_CUDA_FORM(malloc_pitch, (size_t *pitch, size_t width, size_t height),
              memlord_cuda_malloc_pitch(lord, made, pitch, width, height, site))
MLI_CUDA_FORM(malloc_managed, (size_t bytes, unsigned int flags),
              memlord_cuda_malloc_managed(lord, made, bytes, flags, site))
MLI_CUDA_FORM(malloc_managed, (size_t bytes),
              memlord_cuda_malloc_managed(lord, made, bytes, cudaMemAttachGlobal, site))
MLI_CUDA_FORM(malloc_async, (size_t bytes, cudaStream_t stream),
              memlord_cuda_malloc_async(lord, made, bytes, stream, site))
MLI_CUDA_FORM(malloc_async, (size_t bytes, cudaMemPool_t pool, cudaStream_t stream),
              memlord_cuda_malloc_from_pool_async(lord, made, bytes, pool, stream, site))
MLI_CUDA_FORM(malloc_from_pool_async,
              (size_t bytes, cudaMemPool_t pool, cudaStream_t stream),
              memlord_cuda_malloc_from_pool_async(lord, made, bytes, pool, stream, site))
MLI_CUDA_FORM(malloc_host, (size_t bytes), memlord_cuda_malloc_host(lord, made, bytes, site))
MLI_CUDA_FORM(malloc_host, (size_t bytes, unsigned int flags),
              memlord_cuda_host_alloc(lord, made, bytes, flags, site))
MLI_CUDA_FORM(host_alloc, (size_t bytes, unsigned int flags),
              memlord_cuda_host_alloc(lord, made, bytes, flags, site))
#undef MLI_CUDA_FORM
}
#endif

#define MLI_CUDA_SHIM(name, ...)                                                              \
    memlord_cuda_##name(MEMLORD_CUDA_SHIM_LORD, __VA_ARGS__, MEMLORD_SITE())
#undef cudaMallocAsync /* with the per-thread default stream these are macros */
#undef cudaMallocFromPoolAsync
#undef cudaFreeAsync
#undef cudaStreamEndCapture
#undef cudaStreamSynchronize
#define cudaMalloc(...) MLI_CUDA_SHIM(malloc, __VA_ARGS__)
#define cudaMallocPitch(...) MLI_CUDA_SHIM(malloc_pitch, __VA_ARGS__)
#define cudaMalloc3D(...) MLI_CUDA_SHIM(malloc_3d, __VA_ARGS__)
#define cudaMallocManaged(...) MLI_CUDA_SHIM(malloc_managed, __VA_ARGS__)
#define cudaMallocAsync(...) MLI_CUDA_SHIM(malloc_async, __VA_ARGS__)
#define cudaMallocFromPoolAsync(...) MLI_CUDA_SHIM(malloc_from_pool_async, __VA_ARGS__)
#define cudaFree(...) MLI_CUDA_SHIM(free, __VA_ARGS__)
#define cudaFreeAsync(...) MLI_CUDA_SHIM(free_async, __VA_ARGS__)
#define cudaMallocHost(...) MLI_CUDA_SHIM(malloc_host, __VA_ARGS__)
#define cudaHostAlloc(...) MLI_CUDA_SHIM(host_alloc, __VA_ARGS__)
#define cudaFreeHost(...) MLI_CUDA_SHIM(free_host, __VA_ARGS__)
#define cudaHostRegister(...) MLI_CUDA_SHIM(host_register, __VA_ARGS__)
#define cudaHostUnregister(...) MLI_CUDA_SHIM(host_unregister, __VA_ARGS__)
#define cudaStreamEndCapture(...) MLI_CUDA_SHIM(stream_end_capture, __VA_ARGS__)
#define cudaStreamDestroy(...) MLI_CUDA_SHIM(stream_destroy, __VA_ARGS__)
#define cudaStreamSynchronize(...) MLI_CUDA_SHIM(stream_synchronize, __VA_ARGS__)
#define cudaEventSynchronize(...) MLI_CUDA_SHIM(event_synchronize, __VA_ARGS__)
#define cudaDeviceSynchronize()                                                               \
    memlord_cuda_device_synchronize(MEMLORD_CUDA_SHIM_LORD, MEMLORD_SITE())
#if defined(CUDA_VERSION)
#define cuMemCreate(...) MLI_CUDA_SHIM(mem_create, __VA_ARGS__)
#define cuMemRelease(...) MLI_CUDA_SHIM(mem_release, __VA_ARGS__)
#define cuMemMap(...) MLI_CUDA_SHIM(mem_map, __VA_ARGS__)
#define cuMemUnmap(...) MLI_CUDA_SHIM(mem_unmap, __VA_ARGS__)
#define cuMemRetainAllocationHandle(...) MLI_CUDA_SHIM(mem_retain_handle, __VA_ARGS__)
#endif
#define cudaDeviceReset() memlord_cuda_device_reset(MEMLORD_CUDA_SHIM_LORD, MEMLORD_SITE())
#define cudaMemPoolCreate(...) MLI_CUDA_SHIM(pool_create, __VA_ARGS__)
#define cudaMemPoolDestroy(...) MLI_CUDA_SHIM(pool_destroy, __VA_ARGS__)
#define cudaDeviceSetMemPool(...) MLI_CUDA_SHIM(device_set_pool, __VA_ARGS__)
#endif

/* MIT license: its text is at the end of memlord.h. */
