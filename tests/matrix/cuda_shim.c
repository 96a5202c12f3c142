/* A host that knows only the runtime's names, and its C++ forms: counted by the shim. */
#ifdef __cplusplus
#include <utility> /* pair */
#endif
#include "memlord.h"
#define MEMLORD_CUDA_SHIM
#include "memlord_cuda.h"

#ifndef USE
#define USE shim
#endif
#ifdef __cplusplus
extern "C"
#endif
int USE(void);

static int wrong(uint64_t expected) {
    return memlord_allocated(memlord_global(), memlord_device_all()) != expected;
}

/* A preprocessor has no idea of what is inside < > or { }. */
static int with_commas(void) {
    int bad = 0, line;
    memlord_site_stat top;
#ifdef __cplusplus
    const double *p = nullptr;
    line = __LINE__ + 1;
    bad |= cudaMalloc(&p, 4 * sizeof(std::pair<int, int>)) != cudaSuccess;
    bad |= wrong(4 * sizeof(std::pair<int, int>));
    bad |= cudaFree(const_cast<double *>(p)) != cudaSuccess;
#else
    struct cudaPitchedPtr p;
    line = __LINE__ + 1;
    bad |= cudaMalloc3D(&p, (struct cudaExtent){64, 2, 2}) != cudaSuccess;
    bad |= wrong(p.pitch * 4);
    bad |= cudaFree(p.ptr) != cudaSuccess;
#endif
    bad |= !memlord_site_top_alloc(memlord_global(), memlord_device_all(), &top);
    return bad || top.site->line != line || strcmp(top.site->function, __func__);
}

#ifdef __cplusplus
template <class T> struct buffer {
    T *p = nullptr;
    explicit buffer(size_t n) { MEMLORD_TAG(memlord_global(), "t") (void)cudaMalloc(&p, n * sizeof(T)); }
    ~buffer() { MEMLORD_SCOPED(memlord_global(), "end"); (void)cudaFree(p); }
};
static int in_a_template() {
    buffer<double> numbers(100);
    memlord_site_stat top;
    int bad = wrong(800) || !memlord_site_top_alloc(memlord_global(), memlord_device_all(), &top);
    return bad || strcmp(top.site->function, "buffer");
}
#endif

int USE(void) {
    float *a = NULL;
    void *b = NULL, *c = NULL, *d = NULL, *e = NULL, *f = NULL;
    char mine[64];
    size_t pitch = 0;
    struct cudaPitchedPtr box = {NULL, 0, 0, 0};
    struct cudaExtent extent = {64, 2, 2};
    struct cudaMemPoolProps props;
    cudaStream_t stream = NULL;
    cudaGraph_t graph = NULL;
    cudaMemPool_t pool = NULL;
    int bad = memlord_sites_enable(memlord_global(), 1) != MEMLORD_OK || with_commas();
#ifdef __cplusplus
    bad |= in_a_template();
    bad |= cudaMalloc(&a, 100) != cudaSuccess;
    bad |= cudaMallocManaged(&b, 20) != cudaSuccess;
    bad |= cudaMallocHost(&c, 3, 0) != cudaSuccess;
    bad |= cudaDeviceGetDefaultMemPool(&pool, 0) != cudaSuccess;
    bad |= cudaMallocAsync(&d, 1000, pool, NULL) != cudaSuccess || cudaFreeAsync(d, NULL);
#else
    bad |= cudaMalloc((void **)&a, 100) != cudaSuccess;
    bad |= cudaMallocManaged(&b, 20, cudaMemAttachGlobal) != cudaSuccess;
    bad |= cudaMallocHost(&c, 3) != cudaSuccess;
    bad |= cudaDeviceGetDefaultMemPool(&pool, 0) != cudaSuccess;
    bad |= cudaMallocFromPoolAsync(&d, 1000, pool, NULL) != cudaSuccess || cudaFreeAsync(d, NULL);
#endif
    bad |= wrong(123);
    bad |= cudaMallocAsync(&d, 1000, NULL) != cudaSuccess;
    bad |= cudaHostAlloc(&e, 5000, cudaHostAllocDefault) != cudaSuccess;
    bad |= cudaMallocPitch(&f, &pitch, 512, 2) != cudaSuccess;
    bad |= cudaMalloc3D(&box, extent) != cudaSuccess;
    bad |= cudaHostRegister(mine, sizeof mine, cudaHostRegisterDefault) != cudaSuccess;
    bad |= wrong(6123 + 1024 + 2048 + 64);
    bad |= cudaHostUnregister(mine) != cudaSuccess;
    bad |= cudaFree(a) != cudaSuccess || cudaFree(b) != cudaSuccess;
    bad |= cudaFree(f) != cudaSuccess || cudaFree(box.ptr) != cudaSuccess;
    bad |= cudaFreeHost(c) != cudaSuccess || cudaFreeHost(e) != cudaSuccess;
    bad |= cudaFreeAsync(d, NULL) != cudaSuccess;
    bad |= cudaStreamSynchronize(NULL) != cudaSuccess || cudaDeviceSynchronize() != cudaSuccess;
    bad |= wrong(0);
    bad |= cudaMalloc3D(&box, extent) != cudaSuccess;
    memset(&props, 0, sizeof props);
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    bad |= cudaMemPoolCreate(&pool, &props) != cudaSuccess;
    bad |= cudaDeviceSetMemPool(0, pool) != cudaSuccess || cudaMemPoolDestroy(pool) != cudaSuccess;
    bad |= cudaDeviceReset() != cudaSuccess; /* and with it the box */
    bad |= cudaStreamEndCapture(stream, &graph) == cudaSuccess;
    bad |= cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess;
    bad |= cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed) != cudaSuccess;
    bad |= cudaStreamEndCapture(stream, &graph) != cudaSuccess;
    bad |= cudaStreamDestroy(stream) != cudaSuccess;
    return bad | wrong(0);
}

#if defined(USE_MAIN)
int main(void) { return USE(); }
#endif
