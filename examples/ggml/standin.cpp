// standin.cpp: ggml's functions in small, around the very lines of ggml-memlord.h, to try them without
// a checkout: two GPUs and the host, pinned memory that falls back to the CPU, a buffer of buffers,
// mapped weights, a usage that is set after the allocation, a cache that grows, a work buffer.
//
//     c++ -std=c++17 -O2 -I. examples/ggml/standin.cpp -o standin -pthread && ./standin
//
// It checks the books after each phase and exits with 1 if a number differs.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

// -- the shapes of ggml-backend-impl.h, as far as ggml-memlord.h uses them --

enum ggml_backend_buffer_usage { GGML_BACKEND_BUFFER_USAGE_ANY, GGML_BACKEND_BUFFER_USAGE_WEIGHTS,
                                 GGML_BACKEND_BUFFER_USAGE_COMPUTE };
enum ggml_backend_dev_type { GGML_BACKEND_DEVICE_TYPE_CPU, GGML_BACKEND_DEVICE_TYPE_GPU };
struct backend_device {
    const char * name;
    ggml_backend_dev_type type;
};
struct ggml_backend_buffer;
struct buffer_type {
    const char * name;
    backend_device * device;
    bool is_host;
    ggml_backend_buffer * (*alloc_buffer)(buffer_type * buft, size_t size);
};
typedef buffer_type * ggml_backend_buffer_type_t;
struct ggml_backend_buffer {
    ggml_backend_buffer_type_t buft;
    size_t size;
    ggml_backend_buffer_usage usage;
    void * base;
    std::vector<ggml_backend_buffer *> children; // of a multi-buffer
    bool owns;
};
typedef ggml_backend_buffer * ggml_backend_buffer_t;
struct ggml_tensor {
    char name[64];
    int type;
    int64_t ne[4];
    void * data;
};

static const char * ggml_backend_buft_name(ggml_backend_buffer_type_t buft) { return buft->name; }
static ggml_backend_dev_type (ggml_backend_dev_type)(backend_device * d) { return d->type; }
static const char * ggml_backend_dev_name(backend_device * d) { return d->name; }
static bool ggml_backend_buft_is_host(ggml_backend_buffer_type_t buft) { return buft->is_host; }
static bool ggml_backend_buffer_is_meta(ggml_backend_buffer_t) { return false; }
static void * ggml_backend_buffer_get_base(ggml_backend_buffer_t buffer) { return buffer->base; }
static size_t ggml_backend_buffer_get_alloc_size(ggml_backend_buffer_t, const ggml_tensor * t) {
    return sizeof(float) * (size_t) (t->ne[0] * t->ne[1]);
}
static const char * ggml_type_name(int) { return "f32"; }
static int ggml_n_dims(const ggml_tensor *) { return 2; }

#include "ggml-memlord.cpp"
#include "ggml-memlord.h"

// -- the functions of ggml-backend.cpp, with the lines of ggml.patch --

static ggml_backend_buffer_t buffer_init(ggml_backend_buffer_type_t buft, void * base, size_t size, bool owns) {
    return new ggml_backend_buffer{buft, size, GGML_BACKEND_BUFFER_USAGE_ANY, base, {}, owns};
}
static ggml_backend_buffer_t plain_alloc(ggml_backend_buffer_type_t buft, size_t size) {
    return buffer_init(buft, malloc(size), size, true);
}
static ggml_backend_buffer_t ggml_backend_buft_alloc_buffer(ggml_backend_buffer_type_t buft, size_t size) {
    ggml_backend_buffer_t buffer = buft->alloc_buffer(buft, size);
    ggml_memlord_alloc(buffer, MEMLORD_SITE_OF_CALLER(memlord_global()));
    return buffer;
}
static void ggml_backend_buffer_free(ggml_backend_buffer_t buffer) {
    if (!buffer) return;
    ggml_memlord_free(buffer);
    for (auto * child : buffer->children) ggml_backend_buffer_free(child);
    if (buffer->owns) free(buffer->base);
    delete buffer;
}
static void ggml_backend_buffer_set_usage(ggml_backend_buffer_t buffer, ggml_backend_buffer_usage usage) {
    buffer->usage = usage;
    ggml_memlord_usage(buffer);
    for (auto * child : buffer->children) ggml_backend_buffer_set_usage(child, usage);
}
static ggml_backend_buffer_t ggml_backend_multi_buffer_alloc_buffer(const std::vector<ggml_backend_buffer_t> & children) {
    ggml_backend_buffer_t buffer = buffer_init(children[0]->buft, nullptr, 0, false);
    for (auto * child : children) buffer->size += child->size;
    buffer->children = children;
    return buffer;
}
static ggml_backend_buffer_t ggml_backend_dev_buffer_from_host_ptr(ggml_backend_buffer_type_t buft, void * ptr, size_t size) {
    ggml_backend_buffer_t buffer = buffer_init(buft, ptr, size, false);
    ggml_memlord_alloc(buffer, MEMLORD_SITE_OF_CALLER(memlord_global()));
    return buffer;
}
static void ggml_backend_tensor_alloc(ggml_backend_buffer_t buffer, ggml_tensor * tensor, void * addr) {
    tensor->data = addr;
    ggml_memlord_part(buffer, tensor);
}

// -- a machine --

static backend_device dev_cpu = {"CPU", GGML_BACKEND_DEVICE_TYPE_CPU};
static backend_device dev_gpu[2] = {{"CUDA0", GGML_BACKEND_DEVICE_TYPE_GPU}, {"CUDA1", GGML_BACKEND_DEVICE_TYPE_GPU}};
static buffer_type buft_cpu = {"CPU", &dev_cpu, true, plain_alloc};
static buffer_type buft_mapped = {"CPU_Mapped", &dev_cpu, true, nullptr};
static buffer_type buft_repack = {"CPU_REPACK", &dev_cpu, true, plain_alloc};
static buffer_type buft_gpu[2] = {{"CUDA0", &dev_gpu[0], false, plain_alloc}, {"CUDA1", &dev_gpu[1], false, plain_alloc}};
static size_t pinned_left = 1 << 20;
static ggml_backend_buffer_t pinned_alloc(ggml_backend_buffer_type_t buft, size_t size) {
    if (size > pinned_left) return ggml_backend_buft_alloc_buffer(&buft_cpu, size); // as CUDA_Host falls back
    pinned_left -= size;
    return plain_alloc(buft, size);
}
static buffer_type buft_pinned = {"CUDA_Host", &dev_gpu[0], true, pinned_alloc};
static buffer_type buft_vulkan_host = {"Vulkan_Host", &dev_gpu[1], true, plain_alloc};

// -- the check --

static int failed;
static void expect(const char * what, uint64_t is, uint64_t should) {
    if (is == should) return;
    printf("not so: %s is %llu and not %llu\n", what, (unsigned long long) is, (unsigned long long) should);
    failed = 1;
}
static uint64_t on(const char * name) {
    memlord_device device;
    if (memlord_device_parse(name, &device)) return UINT64_MAX;
    return memlord_allocated(memlord_global(), device);
}
static uint64_t tagged(const char * tag) {
    memlord_tag_stat stat;
    memlord_tag_get(memlord_global(), memlord_device_all(), tag, &stat);
    return stat.allocated;
}
static int count_parts(void * user, const memlord_part_info *) { return ++*(int *) user, 0; }

struct model {
    ggml_backend_buffer_t mapped, weights, repacked;
    std::vector<ggml_tensor> tensors;
    void * file;
};

static void load(model & m) {
    MEMLORD_SCOPED(memlord_global(), "load");
    const size_t half = 3 << 20;
    m.file = malloc(5 << 20);
    m.mapped = ggml_backend_dev_buffer_from_host_ptr(&buft_mapped, m.file, 5 << 20);
    m.weights = ggml_backend_multi_buffer_alloc_buffer({ggml_backend_buft_alloc_buffer(&buft_gpu[0], half),
                                                        ggml_backend_buft_alloc_buffer(&buft_gpu[1], half)});
    m.repacked = ggml_backend_buft_alloc_buffer(&buft_repack, 1000);
    m.tensors.resize(4);
    for (int i = 0; i < 4; i++) {
        ggml_backend_buffer_t buffer = m.weights->children[i / 2];
        m.tensors[i] = {{}, 0, {256, 100, 1, 1}, nullptr};
        snprintf(m.tensors[i].name, sizeof m.tensors[i].name, "blk.%d.ffn_up.weight", i);
        ggml_backend_tensor_alloc(buffer, &m.tensors[i], (char *) buffer->base + i % 2 * (1 << 20));
    }
    ggml_backend_buffer_set_usage(m.mapped, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    ggml_backend_buffer_set_usage(m.weights, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    ggml_backend_buffer_set_usage(m.repacked, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
}

int main() {
    model m;
    int parts = 0;
    uint8_t * work;
    load(m);
    expect("cuda:0 after the load", on("cuda:0"), 3 << 20); // the children, and not their sum as well
    expect("cuda:1 after the load", on("cuda:1"), 3 << 20);
    expect("mapped after the load", on("mapped"), 5 << 20);
    expect("cpu after the load", on("cpu"), 1000);
    expect("weights", tagged("weights"), (11 << 20) + 1000);
    memlord_parts_each(memlord_global(), memlord_device_cuda(0), MEMLORD_KEY(m.weights->children[0]), count_parts, &parts);
    expect("tensors in the buffer of cuda:0", (uint64_t) parts, 2);

    ggml_backend_buffer_t staging, fallen, host, kv, larger, compute;
    staging = ggml_backend_buft_alloc_buffer(&buft_pinned, 1 << 20);
    fallen = ggml_backend_buft_alloc_buffer(&buft_pinned, 2 << 20);
    host = ggml_backend_buft_alloc_buffer(&buft_vulkan_host, 500);
    expect("pinned, what did not fall back", on("pinned"), (1 << 20) + 500);
    expect("cpu, what fell back, once", on("cpu"), (2 << 20) + 1000);

    MEMLORD_TAG(memlord_global(), "kv")
        kv = ggml_backend_buft_alloc_buffer(&buft_gpu[0], 4 << 20);
    compute = ggml_backend_buft_alloc_buffer(&buft_gpu[0], 1 << 20);
    ggml_backend_buffer_set_usage(compute, GGML_BACKEND_BUFFER_USAGE_COMPUTE);
    expect("compute, by the usage that was set later", tagged("compute"), 1 << 20);
    work = new uint8_t[7777];
    MEMLORD_TAG(memlord_global(), "compute_work")
        MEMLORD_ALLOC(memlord_global(), memlord_device_cpu(), work, 7777);
    {
        MEMLORD_SCOPED(memlord_global(), "prompt");
        memlord_tag_default_set(memlord_global(), "kv"); // what grows later without a tag
        larger = ggml_backend_buft_alloc_buffer(&buft_gpu[0], 8 << 20);
        ggml_backend_buffer_free(kv);
    }
    expect("kv after it grew", tagged("kv"), 8 << 20);
    expect("cuda:0 at the end of the prompt", on("cuda:0"), 12 << 20);
    memlord_save(memlord_global(), MEMLORD_FORMAT_TEXT, "-");

    MEMLORD_FREE(memlord_global(), memlord_device_cpu(), work);
    delete[] work;
    for (auto * buffer : {staging, fallen, host, larger, compute, m.mapped, m.weights, m.repacked})
        ggml_backend_buffer_free(buffer);
    free(m.file);
    memlord_stats s;
    memlord_stats_get(memlord_global(), memlord_device_all(), &s);
    expect("bytes at the end", s.allocated, 0);
    expect("frees of what is not on the books", s.unknown_frees, 0);
    expect("allocs over live blocks", s.implicit_frees, 0);
    printf(failed ? "the books differ\n" : "the books are right\n");
    return failed;
}
