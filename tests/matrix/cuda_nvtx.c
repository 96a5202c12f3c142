/* With PROGRAM a host with a scope, a checkpoint and a collection; else what a profiler injects
   into it (NVTX_INJECTION64_PATH): says what it sees. */
#include "memlord.h"
#include "memlord_cuda.h"
#include <stdio.h>

#if defined(PROGRAM)
int main(void) {
    memlord *lord = NULL;
    memlord_cuda_scope scope;
    void *ptr = NULL, *pooled = NULL;
    uint64_t keep = UINT64_MAX;
    cudaMemPool_t pool;
    int bad = memlord_create(NULL, &lord) || memlord_cuda_attach(lord, NULL);
    bad |= cudaDeviceGetDefaultMemPool(&pool, 0) != cudaSuccess;
    bad |= cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep) != cudaSuccess;
    bad |= memlord_cuda_malloc(lord, &ptr, 64, NULL) != cudaSuccess;
    bad |= memlord_cuda_malloc_async(lord, &pooled, 1 << 20, NULL, NULL) != cudaSuccess;
    bad |= memlord_cuda_free_async(lord, pooled, NULL, NULL) != cudaSuccess;
    bad |= memlord_cuda_scope_begin(lord, &scope, "forward", NULL) != MEMLORD_OK;
    bad |= memlord_gc_run(lord, memlord_device_cuda(0), MEMLORD_REASON_HOST, 0, NULL) != MEMLORD_OK;
    bad |= memlord_cuda_checkpoint(lord, "loaded") != MEMLORD_OK;
    bad |= memlord_cuda_scope_end(lord, &scope) != MEMLORD_OK;
    (void)memlord_cuda_detach(lord);
    memlord_destroy(lord);
    return bad;
}
#else
#include <nvtx3/nvToolsExt.h>

static int push(const char *text) { return printf("push %s\n", text); }
static int pop(void) { return printf("pop\n"); }
static void mark(const nvtxEventAttributes_t *event) {
    printf("mark %s %llu\n", event->message.ascii, (unsigned long long)event->payload.ullValue);
}

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get);
int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get) {
    const NvtxExportTableCallbacks *callbacks =
        (const NvtxExportTableCallbacks *)get(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table;
    unsigned size = 0;
    if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size))
        return 0;
    *table[NVTX_CBID_CORE_RangePushA] = (NvtxFunctionPointer)push;
    *table[NVTX_CBID_CORE_RangePop] = (NvtxFunctionPointer)pop;
    *table[NVTX_CBID_CORE_MarkEx] = (NvtxFunctionPointer)mark;
    return 1;
}
#endif
