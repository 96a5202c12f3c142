// ggml-memlord.h: records the buffers of ggml in the global ledger, as hooks.patch tells of them.
// Goes into ggml/src; to be included after ggml-backend-impl.h.
#ifndef GGML_MEMLORD_H
#define GGML_MEMLORD_H
#include "memlord.h"

// CPU, CPU_Mapped, CUDA0 and CUDA_Host are names that MemLord reads. Of the others, memory of the
// host that belongs to a GPU (Vulkan_Host) is pinned, and CPU_REPACK, CUDA_Split, ... are on the
// device of their type.
static memlord_device ggml_memlord_device(ggml_backend_buffer_type_t buft) {
    memlord_device device = memlord_device_make(MEMLORD_DEVICE_OTHER, 0);
    if (memlord_device_parse(ggml_backend_buft_name(buft), &device) != MEMLORD_OK && buft->device) {
        const bool gpu = ggml_backend_dev_type(buft->device) != GGML_BACKEND_DEVICE_TYPE_CPU;
        if (gpu && ggml_backend_buft_is_host(buft)) device.type = MEMLORD_DEVICE_PINNED;
        else memlord_device_parse(ggml_backend_dev_name(buft->device), &device);
    }
    if (device.index < 0) device.index = 0;
    return device;
}

// A storage is the buffer object: two GPUs may have the same address. A multi-buffer is never live
// here, for its children are.
static bool ggml_memlord_live(ggml_backend_buffer_t buffer, memlord_block_info * block) {
    return memlord_block_find(memlord_global(), ggml_memlord_device(buffer->buft),
                              MEMLORD_KEY(buffer), block) == MEMLORD_OK;
}

// A buffer type may return the buffer of another one (CUDA_Host that fell back to CPU, CPU_REPACK):
// then it is live already. The buffers in a meta buffer are, too.
static void ggml_memlord_alloc(ggml_backend_buffer_t buffer) {
    memlord_block_info block;
    if (!buffer->size || ggml_backend_buffer_is_meta(buffer)) return;
    if (ggml_memlord_live(buffer, &block)) return;
    memlord_alloc(memlord_global(), ggml_memlord_device(buffer->buft), MEMLORD_KEY(buffer),
                  buffer->size, NULL); // its stack says more than the site of this call
}

static void ggml_memlord_free(ggml_backend_buffer_t buffer) {
    memlord_block_info block;
    if (ggml_memlord_live(buffer, &block)) MEMLORD_FREE(memlord_global(), block.device, buffer);
}

// The usage is set after the allocation. A finer tag of the host's, such as compute_encode, stays.
static void ggml_memlord_usage(ggml_backend_buffer_t buffer) {
    const char * tag = buffer->usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS ? "weights" :
                       buffer->usage == GGML_BACKEND_BUFFER_USAGE_COMPUTE ? "compute" : NULL;
    memlord_block_info block;
    if (!tag || !ggml_memlord_live(buffer, &block)) return;
    if (block.tag && !strncmp(block.tag, tag, strlen(tag))) return;
    memlord_block_retag(memlord_global(), block.device, block.storage, tag);
}

// Tensors of compute buffers come and go with every graph: they are no parts.
static void ggml_memlord_tensor(ggml_backend_buffer_t buffer, const ggml_tensor * tensor) {
    memlord_block_info block;
    if (buffer->usage == GGML_BACKEND_BUFFER_USAGE_COMPUTE) return;
    if (!ggml_memlord_live(buffer, &block)) return;
    memlord_meta meta = {};
    meta.name = tensor->name;
    meta.dtype = ggml_type_name(tensor->type);
    meta.rank = (uint32_t) ggml_n_dims(tensor);
    for (uint32_t i = 0; i < meta.rank; i++) meta.shape[i] = tensor->ne[i];
    memlord_part_add(memlord_global(), block.device, block.storage,
                     MEMLORD_KEY(tensor->data) - MEMLORD_KEY(ggml_backend_buffer_get_base(buffer)),
                     ggml_backend_buffer_get_alloc_size(buffer, tensor), &meta);
}

// Sets the ledger up, and then the hooks: before main, and so before the first buffer.
static memlord_result ggml_memlord_start() {
    memlord_desc desc = {};
    desc.logger.fn = memlord_log_stderr;
    desc.stack_depth = 16; // buffers are few: each may have its stack
    desc.stack_bytes = 1;
    ggml_backend_hooks = {ggml_memlord_alloc, ggml_memlord_free, ggml_memlord_usage,
                          ggml_memlord_tensor};
    return memlord_global_setup(&desc);
}
static const memlord_result ggml_memlord_started = ggml_memlord_start();
#endif
