/* libnvidia-ml.so.1 for tests: with FAKE_NVML_V2 as of driver 510, without as before: it lists no
   processes. */
#include "fake_cuda.h"

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **device);
int nvmlDeviceGetMemoryInfo(void *device, void *info);

int nvmlInit_v2(void) { return fake_nvml_init(); }
int nvmlShutdown(void) { return fake_nvml_shutdown(); }
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **device) {
    return fake_nvml_by_pci(id, device);
}
int nvmlDeviceGetMemoryInfo(void *device, void *info) { return fake_nvml_memory(device, info); }

#if defined(FAKE_NVML_V2)
int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending);
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *n, void *info);

int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) {
    return fake_nvml_mig(device, current, pending);
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *n, void *info) {
    return fake_nvml_processes(device, n, info);
}
#endif
