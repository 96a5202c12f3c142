/* Says in one line which GPU there is, or, with status 77, why there is none to run on. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* Of the driver, as the struct that the runtime says it in changes with every version. */
static void device_name(char *text, int size) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    void *found = driver ? dlsym(driver, "cuDeviceGetName") : NULL;
    int (*name)(char *, int, int) = NULL;
    memcpy(&name, &found, sizeof name);
    if (!name || name(text, size, 0)) snprintf(text, (size_t)size, "a device without a name");
}

static int none(const char *why) {
    printf("%s\n", why);
    return 77;
}

int main(void) {
    int driver = 0, runtime = 0, n = 0;
    char text[128];
    cudaError_t r;
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    if (!driver) return none("no NVIDIA driver");
    r = cudaGetDeviceCount(&n);
    if (r == cudaErrorInsufficientDriver) {
        snprintf(text, sizeof text, "the driver is one for CUDA %d.%d, the toolkit is %d.%d",
                 driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
        return none(text);
    }
    if (r == cudaErrorNoDevice || (r == cudaSuccess && n < 1)) return none("no device");
    if (r == cudaSuccess) r = cudaFree(NULL); /* begins it */
    if (r != cudaSuccess) {
        printf("the GPU cannot be used: %s\n", cudaGetErrorString(r));
        return 1;
    }
    device_name(text, (int)sizeof text);
    printf("%s, driver for CUDA %d.%d, runtime %d.%d\n", text, driver / 1000, driver % 1000 / 10,
           runtime / 1000, runtime % 1000 / 10);
    return 0;
}
