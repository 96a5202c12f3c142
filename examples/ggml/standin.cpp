/* A stand-in for ggml and an engine on it: the functions that hooks.patch, ggml.patch and llama.patch
   change, in the same shapes and with the same lines, on devices that only count. It compares every
   device with what its driver holds, and exits with 1 if anything differs. MEMLORD_APP_REPORT=x.html
   saves a report before the buffers are freed.

       make build/release/memlord.o
       c++ -std=c++11 -I. examples/ggml/standin.cpp build/release/memlord.o -pthread */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

/* -- drivers: the bytes that each memory holds, counted without MemLord -- */

enum memory { HOST, PINNED, MAPPED, CUDA0, CUDA1, VULKAN0, HTP0, MEMORIES };
static size_t held[MEMORIES];
static size_t pinned_most = 1 << 20; /* what the system lets a process lock */

/* -- ggml: the public types -- */

enum ggml_type { GGML_TYPE_F32, GGML_TYPE_F16 };
enum ggml_backend_buffer_usage {
    GGML_BACKEND_BUFFER_USAGE_ANY,
    GGML_BACKEND_BUFFER_USAGE_WEIGHTS,
    GGML_BACKEND_BUFFER_USAGE_COMPUTE
};
enum ggml_device_type { GGML_BACKEND_DEVICE_TYPE_CPU, GGML_BACKEND_DEVICE_TYPE_GPU };

typedef struct ggml_backend_buffer *ggml_backend_buffer_t;
typedef struct ggml_backend_buffer_type *ggml_backend_buffer_type_t;
typedef struct ggml_backend_device *ggml_backend_dev_t;

struct ggml_tensor {
    ggml_type type;
    int64_t ne[4];
    ggml_backend_buffer_t buffer;
    void *data;
    char name[64];
};
struct ggml_backend_buffer_type {
    const char *name;
    ggml_backend_buffer_t (*alloc_buffer)(ggml_backend_buffer_type_t buft, size_t size);
    bool host;
    ggml_backend_dev_t device; /* ggml leaves it NULL for CPU */
    memory where;
    size_t max_size; /* 0: no limit */
};
struct ggml_backend_device {
    const char *name;
    ggml_device_type type;
    ggml_backend_buffer_t (*buffer_from_host_ptr)(void *ptr, size_t size);
};
struct ggml_backend_buffer {
    void (*free_buffer)(ggml_backend_buffer_t buffer);
    ggml_backend_buffer_type_t buft;
    void *context; /* its address, or its children */
    size_t size;
    ggml_backend_buffer_usage usage;
};
typedef std::vector<ggml_backend_buffer_t> buffers;

static const char *ggml_type_name(ggml_type type) { return type == GGML_TYPE_F32 ? "f32" : "f16"; }
static int ggml_n_dims(const ggml_tensor *t) { return t->ne[1] > 1 ? 2 : 1; }
static const char *ggml_backend_buft_name(ggml_backend_buffer_type_t buft) { return buft->name; }
static bool ggml_backend_buft_is_host(ggml_backend_buffer_type_t buft) { return buft->host; }
static const char *ggml_backend_dev_name(ggml_backend_dev_t dev) { return dev->name; }
static ggml_device_type ggml_backend_dev_type(ggml_backend_dev_t dev) { return dev->type; }
static void *ggml_backend_buffer_get_base(ggml_backend_buffer_t buffer) { return buffer->context; }
static size_t ggml_backend_buffer_get_alloc_size(ggml_backend_buffer_t, const ggml_tensor *t) {
    return static_cast<size_t>(t->ne[0] * t->ne[1]) * (t->type == GGML_TYPE_F32 ? 4 : 2);
}
static bool ggml_backend_buffer_is_meta(ggml_backend_buffer_t buffer);

struct ggml_backend_buffer_hooks {
    void (*alloc)(ggml_backend_buffer_t buffer);
    void (*free)(ggml_backend_buffer_t buffer);
    void (*usage)(ggml_backend_buffer_t buffer);
    void (*tensor)(ggml_backend_buffer_t buffer, const struct ggml_tensor *tensor);
};
struct ggml_backend_buffer_hooks ggml_backend_hooks = {};

#include "ggml-memlord.h"

/* -- ggml-backend.cpp -- */

static ggml_backend_buffer_t ggml_backend_buffer_init(ggml_backend_buffer_type_t buft,
                                                      void (*free_buffer)(ggml_backend_buffer_t),
                                                      void *context, size_t size) {
    return new ggml_backend_buffer{free_buffer, buft, context, size, GGML_BACKEND_BUFFER_USAGE_ANY};
}

static ggml_backend_buffer_t ggml_backend_hook_alloc(ggml_backend_buffer_t buffer) {
    if (buffer && ggml_backend_hooks.alloc) ggml_backend_hooks.alloc(buffer);
    return buffer;
}

static ggml_backend_buffer_t ggml_backend_buft_alloc_buffer(ggml_backend_buffer_type_t buft,
                                                            size_t size) {
    if (size == 0) return ggml_backend_buffer_init(buft, NULL, NULL, 0);
    return ggml_backend_hook_alloc(buft->alloc_buffer(buft, size));
}

static void ggml_backend_buffer_free(ggml_backend_buffer_t buffer) {
    if (buffer == NULL) return;
    if (ggml_backend_hooks.free) ggml_backend_hooks.free(buffer);
    if (buffer->free_buffer != NULL) buffer->free_buffer(buffer);
    delete buffer;
}

static void free_children(ggml_backend_buffer_t buffer) {
    buffers *children = static_cast<buffers *>(buffer->context);
    for (ggml_backend_buffer_t child : *children) ggml_backend_buffer_free(child);
    delete children;
}
static void free_multi(ggml_backend_buffer_t buffer) { free_children(buffer); }
static void free_meta(ggml_backend_buffer_t buffer) { free_children(buffer); }
static bool ggml_backend_buffer_is_multi_buffer(ggml_backend_buffer_t buffer) {
    return buffer->free_buffer == free_multi;
}
static bool ggml_backend_buffer_is_meta(ggml_backend_buffer_t buffer) {
    return buffer->free_buffer == free_meta;
}

static void ggml_backend_buffer_set_usage(ggml_backend_buffer_t buffer,
                                          ggml_backend_buffer_usage usage) {
    buffer->usage = usage;
    if (ggml_backend_hooks.usage) ggml_backend_hooks.usage(buffer);
    if (ggml_backend_buffer_is_multi_buffer(buffer))
        for (ggml_backend_buffer_t child : *static_cast<buffers *>(buffer->context))
            ggml_backend_buffer_set_usage(child, usage);
}

static ggml_backend_buffer_t
ggml_backend_dev_buffer_from_host_ptr(ggml_backend_dev_t device, void *ptr, size_t size) {
    return ggml_backend_hook_alloc(device->buffer_from_host_ptr(ptr, size));
}

static void ggml_backend_tensor_alloc(ggml_backend_buffer_t buffer, ggml_tensor *tensor,
                                      void *addr) {
    tensor->buffer = buffer;
    tensor->data = addr;
    if (ggml_backend_hooks.tensor) ggml_backend_hooks.tensor(buffer, tensor);
}

/* -- ggml-alloc.c -- */

/* As many buffers as max_size demands, and a multi-buffer around them if there are several. */
static ggml_backend_buffer_t
ggml_backend_alloc_ctx_tensors_from_buft(std::vector<ggml_tensor> &tensors,
                                         ggml_backend_buffer_type_t buft) {
    buffers *all = new buffers;
    size_t first = 0, total = 0;
    while (first < tensors.size()) {
        size_t end = first, size = 0;
        for (; end < tensors.size(); end++) {
            const size_t more = ggml_backend_buffer_get_alloc_size(NULL, &tensors[end]);
            if (size && buft->max_size && size + more > buft->max_size) break;
            size += more;
        }
        all->push_back(ggml_backend_buft_alloc_buffer(buft, size));
        char *at = static_cast<char *>(ggml_backend_buffer_get_base(all->back()));
        for (; first < end; first++) {
            ggml_backend_tensor_alloc(all->back(), &tensors[first], at);
            at += ggml_backend_buffer_get_alloc_size(NULL, &tensors[first]);
        }
        total += size;
    }
    ggml_backend_buffer_t buffer = all->front();
    if (all->size() > 1) return ggml_backend_buffer_init(buft, free_multi, all, total);
    delete all;
    return buffer;
}

/* The compute buffer of a graph: replaced when a graph needs more; its usage is set afterwards. */
struct graph_allocator {
    ggml_backend_buffer_type_t buft;
    ggml_backend_buffer_t buffer;

    void reserve(size_t size) {
        if (buffer && size <= buffer->size) return;
        ggml_backend_buffer_free(buffer);
        buffer = ggml_backend_buft_alloc_buffer(buft, size);
        ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_COMPUTE);
        ggml_tensor node = {GGML_TYPE_F32, {16, 1, 1, 1}, NULL, NULL, "node"};
        ggml_backend_tensor_alloc(buffer, &node, ggml_backend_buffer_get_base(buffer));
    }
};

/* -- backends -- */

static void cpu_free(ggml_backend_buffer_t buffer) {
    held[HOST] -= buffer->size;
    free(buffer->context);
}
static ggml_backend_buffer_t cpu_alloc(ggml_backend_buffer_type_t buft, size_t size) {
    void *data = malloc(size);
    if (!data) return NULL;
    held[HOST] += size;
    return ggml_backend_buffer_init(buft, cpu_free, data, size);
}
static ggml_backend_buffer_type cpu_buft = {"CPU", cpu_alloc, true, NULL, HOST, 0};
static ggml_backend_buffer_type mapped_buft = {"CPU_Mapped", cpu_alloc, true, NULL, MAPPED, 0};

static ggml_backend_buffer_t ggml_backend_cpu_buffer_from_ptr(void *ptr, size_t size) {
    return ggml_backend_buffer_init(&mapped_buft, NULL, ptr, size);
}

static ggml_backend_device cpu_device = {"CPU", GGML_BACKEND_DEVICE_TYPE_CPU,
                                         ggml_backend_cpu_buffer_from_ptr};
static ggml_backend_device cuda0 = {"CUDA0", GGML_BACKEND_DEVICE_TYPE_GPU, NULL};
static ggml_backend_device cuda1 = {"CUDA1", GGML_BACKEND_DEVICE_TYPE_GPU, NULL};
static ggml_backend_device vulkan0 = {"Vulkan0", GGML_BACKEND_DEVICE_TYPE_GPU, NULL};
static ggml_backend_device htp0 = {"HTP0", GGML_BACKEND_DEVICE_TYPE_GPU, NULL};

/* CPU_REPACK: a buffer of CPU under its own type. */
static ggml_backend_buffer_t repack_alloc(ggml_backend_buffer_type_t buft, size_t size) {
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(&cpu_buft, size);
    if (buffer) buffer->buft = buft;
    return buffer;
}
static ggml_backend_buffer_type repack_buft = {
    "CPU_REPACK", repack_alloc, false, &cpu_device, HOST, 0};

/* Memory of a GPU: every one of them begins at the same address. */
static void device_free(ggml_backend_buffer_t buffer) { held[buffer->buft->where] -= buffer->size; }
static ggml_backend_buffer_t device_alloc(ggml_backend_buffer_type_t buft, size_t size) {
    held[buft->where] += size;
    return ggml_backend_buffer_init(buft, device_free, reinterpret_cast<void *>(4096), size);
}
static ggml_backend_buffer_type cuda0_buft = {"CUDA0", device_alloc, false, &cuda0, CUDA0, 0};
static ggml_backend_buffer_type cuda1_buft = {"CUDA1", device_alloc, false, &cuda1, CUDA1, 1 << 20};
static ggml_backend_buffer_type split_buft = {"CUDA_Split", device_alloc, false, &cuda0, CUDA0, 0};
static ggml_backend_buffer_type vulkan_buft = {
    "Vulkan0", device_alloc, false, &vulkan0, VULKAN0, 0};
static ggml_backend_buffer_type htp_buft = {"HTP0", device_alloc, false, &htp0, HTP0, 0};

/* Page-locked memory of the host: CPU memory where there is no more of it to lock. */
static void pinned_free(ggml_backend_buffer_t buffer) {
    held[PINNED] -= buffer->size;
    free(buffer->context);
}
static ggml_backend_buffer_t pinned_alloc(ggml_backend_buffer_type_t buft, size_t size) {
    if (held[PINNED] + size > pinned_most) return ggml_backend_buft_alloc_buffer(&cpu_buft, size);
    ggml_backend_buffer_t buffer = ggml_backend_cpu_buffer_from_ptr(malloc(size), size);
    held[PINNED] += size;
    buffer->buft = buft;
    buffer->free_buffer = pinned_free;
    return buffer;
}
static ggml_backend_buffer_type cuda_host = {"CUDA_Host", pinned_alloc, true, &cuda0, PINNED, 0};
static ggml_backend_buffer_type vulkan_host = {
    "Vulkan_Host", pinned_alloc, true, &vulkan0, PINNED, 0};

/* A meta buffer: the same tensors on two GPUs, of which each has a buffer of its own. */
static ggml_backend_buffer_t meta_alloc(ggml_backend_buffer_type_t buft, size_t size) {
    buffers *children = new buffers;
    children->push_back(ggml_backend_buft_alloc_buffer(&cuda0_buft, size));
    children->push_back(ggml_backend_buft_alloc_buffer(&cuda1_buft, size));
    return ggml_backend_buffer_init(buft, free_meta, children, size);
}
static ggml_backend_buffer_type meta_buft = {
    "Meta(CUDA0,CUDA1)", meta_alloc, false, &cuda0, CUDA0, 0};

/* -- ggml-cpu.cpp: the buffer that the threads of the CPU work in -- */

struct ggml_cplan {
    size_t work_size;
    uint8_t *work_data;
};
struct ggml_backend_plan_cpu {
    ggml_cplan cplan;
};
struct ggml_backend_cpu_context {
    uint8_t *work_data;
    size_t work_size;
};

static void ggml_backend_cpu_graph_compute(ggml_backend_cpu_context *cpu_ctx, size_t work_size) {
    if (cpu_ctx->work_size >= work_size) return;
    held[HOST] += work_size - cpu_ctx->work_size;
    MEMLORD_FREE(memlord_global(), memlord_device_cpu(), cpu_ctx->work_data);
    delete[] cpu_ctx->work_data;
    cpu_ctx->work_data = new uint8_t[work_size];
    cpu_ctx->work_size = work_size;
    MEMLORD_TAG(memlord_global(), "compute_work")
    MEMLORD_ALLOC(memlord_global(), memlord_device_cpu(), cpu_ctx->work_data, cpu_ctx->work_size);
}

static ggml_backend_plan_cpu *ggml_backend_cpu_graph_plan_create(size_t work_size) {
    ggml_backend_plan_cpu *cpu_plan = new ggml_backend_plan_cpu;
    cpu_plan->cplan.work_size = work_size;
    cpu_plan->cplan.work_data = new uint8_t[work_size];
    held[HOST] += work_size;
    MEMLORD_TAG(memlord_global(), "compute_work")
    MEMLORD_ALLOC(memlord_global(), memlord_device_cpu(), cpu_plan->cplan.work_data,
                  cpu_plan->cplan.work_size);
    return cpu_plan;
}

static void ggml_backend_cpu_graph_plan_free(ggml_backend_plan_cpu *cpu_plan) {
    held[HOST] -= cpu_plan->cplan.work_size;
    MEMLORD_FREE(memlord_global(), memlord_device_cpu(), cpu_plan->cplan.work_data);
    delete[] cpu_plan->cplan.work_data;
    delete cpu_plan;
}

static void ggml_backend_cpu_free(ggml_backend_cpu_context *cpu_ctx) {
    held[HOST] -= cpu_ctx->work_size;
    MEMLORD_FREE(memlord_global(), memlord_device_cpu(), cpu_ctx->work_data);
    delete[] cpu_ctx->work_data;
    *cpu_ctx = ggml_backend_cpu_context();
}

/* -- checks -- */

static int checks, wrong;

static void check(const char *step, const char *of, uint64_t is, uint64_t should) {
    checks++;
    if (is == should) return;
    wrong++;
    fprintf(stderr, "%s: %s is %llu, not %llu\n", step, of, static_cast<unsigned long long>(is),
            static_cast<unsigned long long>(should));
}

/* MemLord has of each device what its driver has, and no mistake was counted. */
static void check_devices(const char *step) {
    static const struct {
        const char *name;
        memory where;
    } devices[] = {{"cpu", HOST},     {"pinned", PINNED},     {"mapped", MAPPED}, {"cuda:0", CUDA0},
                   {"cuda:1", CUDA1}, {"vulkan:0", VULKAN0}, {"other:0", HTP0}};
    memlord *lord = memlord_global();
    memlord_stats all;
    uint64_t sum = 0;
    for (const auto &d : devices) {
        memlord_device device;
        check(step, "parse", memlord_device_parse(d.name, &device), MEMLORD_OK);
        check(step, d.name, memlord_allocated(lord, device), held[d.where]);
        sum += held[d.where];
    }
    memlord_stats_get(lord, memlord_device_all(), &all);
    check(step, "the sum", all.allocated, sum);
    check(step, "mistakes", all.implicit_frees + all.unknown_frees + all.freed_while_shared +
                                all.refused + all.dropped_allocs + all.dropped_sites, 0);
    check(step, "verify", memlord_verify(lord), MEMLORD_OK);
}

static void check_tag(const char *step, const char *tag, uint64_t bytes, uint64_t blocks) {
    memlord_tag_stat stat;
    memlord_tag_get(memlord_global(), memlord_device_all(), tag, &stat);
    check(step, tag ? tag : "untagged", stat.allocated, bytes);
    check(step, tag ? tag : "untagged", stat.blocks, blocks);
}

static void check_parts(const char *step, ggml_backend_buffer_t buffer, uint64_t parts,
                        uint64_t bytes) {
    uint64_t sum = 0;
    const memlord_part_fn add = [](void *user, const memlord_part_info *part) {
        *static_cast<uint64_t *>(user) += part->bytes;
        return 0;
    };
    check(step, "parts", memlord_parts_each(memlord_global(), ggml_memlord_device(buffer->buft),
                                            MEMLORD_KEY(buffer), add, &sum), parts);
    check(step, "bytes of parts", sum, bytes);
}

/* How often a scope ran, and what it left. */
static void check_scope(const char *path, uint64_t count, int64_t bytes) {
    memlord_scope_stat stat;
    memlord_scope_get(memlord_global(), path, &stat);
    check(path, "count", stat.count, count);
    check(path, "bytes", static_cast<uint64_t>(stat.bytes.total), static_cast<uint64_t>(bytes));
}

/* -- the engine -- */

static const size_t KiB = 1024, WEIGHTS = 512 * KiB;

/* `n` tensors of 256 KiB. */
static std::vector<ggml_tensor> layers(const char *name, size_t n) {
    std::vector<ggml_tensor> tensors(n);
    for (size_t i = 0; i < n; i++) {
        tensors[i] = {GGML_TYPE_F16, {512, 256, 1, 1}, NULL, NULL, ""};
        snprintf(tensors[i].name, sizeof tensors[i].name, "%s_l%zu", name, i);
    }
    return tensors;
}

struct engine {
    FILE *file;
    void *mapping;
    buffers weights;
    ggml_backend_buffer_t kv, output;
    graph_allocator compute;
    ggml_backend_cpu_context cpu;
};

/* The file of weights, mapped; on one GPU, on another in pieces, on both, and in other layouts. */
static void load_model(engine *e) {
    MEMLORD_SCOPED(memlord_global(), "load");
    std::vector<ggml_tensor> in_file = layers("mapped", 2), main = layers("main", 3);
    std::vector<ggml_tensor> pieces = layers("pieces", 10), packed = layers("packed", 1);
    e->file = tmpfile();
    if (!e->file || ftruncate(fileno(e->file), WEIGHTS)) abort();
    e->mapping = mmap(NULL, WEIGHTS, PROT_READ, MAP_PRIVATE, fileno(e->file), 0);
    held[MAPPED] += WEIGHTS;
    e->weights.push_back(ggml_backend_dev_buffer_from_host_ptr(&cpu_device, e->mapping, WEIGHTS));
    for (size_t i = 0; i < in_file.size(); i++)
        ggml_backend_tensor_alloc(e->weights[0], &in_file[i],
                                  static_cast<char *>(e->mapping) + i * 256 * KiB);
    e->weights.push_back(ggml_backend_alloc_ctx_tensors_from_buft(main, &cuda0_buft));
    e->weights.push_back(ggml_backend_alloc_ctx_tensors_from_buft(pieces, &cuda1_buft));
    e->weights.push_back(ggml_backend_alloc_ctx_tensors_from_buft(packed, &repack_buft));
    MEMLORD_TAG(memlord_global(), "weights") /* children of a meta buffer are told no usage */
    e->weights.push_back(ggml_backend_buft_alloc_buffer(&meta_buft, 128 * KiB));
    e->weights.push_back(ggml_backend_buft_alloc_buffer(&split_buft, 96 * KiB));
    e->weights.push_back(ggml_backend_buft_alloc_buffer(&vulkan_buft, 64 * KiB));
    e->weights.push_back(ggml_backend_buft_alloc_buffer(&htp_buft, 32 * KiB));
    e->weights.push_back(ggml_backend_buft_alloc_buffer(&cuda0_buft, 0));
    check("load", "children", static_cast<buffers *>(e->weights[2]->context)->size(), 3);
    check_tag("load", NULL, 4288 * KiB, 9);
    check_devices("load");
    for (ggml_backend_buffer_t buffer : e->weights)
        ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    check_parts("load", e->weights[0], 2, WEIGHTS);
    check_parts("load", e->weights[1], 3, 768 * KiB);
    check_parts("load", (*static_cast<buffers *>(e->weights[2]->context))[0], 4, 1024 * KiB);
}

/* The cache, the output and the compute buffers of a context. */
static void init_context(engine *e) {
    MEMLORD_SCOPED(memlord_global(), "load");
    std::vector<ggml_tensor> cache = layers("cache", 2);
    MEMLORD_TAG(memlord_global(), "kv")
    e->kv = ggml_backend_alloc_ctx_tensors_from_buft(cache, &cuda0_buft);
    {
        MEMLORD_TAGGED(memlord_global(), "output");
        e->output = ggml_backend_buft_alloc_buffer(&cuda_host, 200 * KiB);
    }
    {
        MEMLORD_TAGGED(memlord_global(), "compute_decode"); /* finer than its usage: it stays */
        e->compute.buft = &cuda0_buft;
        e->compute.reserve(300 * KiB);
    }
    check("init", "pinned", held[PINNED], 200 * KiB);
    check_parts("init", e->kv, 2, 512 * KiB);
    check_parts("compute buffers have no parts", e->compute.buffer, 0, 0);
}

/* Later growth has the default tag, but what has a usage. */
static void decode(engine *e, int n_tokens) {
    mlord::scope phase(memlord_global(), n_tokens > 1 ? "prompt" : "decode");
    memlord_tag_default_set(memlord_global(), "kv");
    ggml_backend_cpu_graph_compute(&e->cpu, static_cast<size_t>(n_tokens) * KiB);
    if (n_tokens == 1) return;
    std::vector<ggml_tensor> cache = layers("cache", 4);
    ggml_backend_buffer_free(e->kv);
    e->kv = ggml_backend_alloc_ctx_tensors_from_buft(cache, &cuda0_buft);
    e->compute.reserve(400 * KiB);
}

/* Pinned buffers, of which the second no longer fits: it is one of the cpu. */
static void check_pinned() {
    ggml_backend_buffer_t first = ggml_backend_buft_alloc_buffer(&vulkan_host, 700 * KiB);
    ggml_backend_buffer_t second = ggml_backend_buft_alloc_buffer(&cuda_host, 300 * KiB);
    check("pinned", "fallback", second->buft == &cpu_buft, 1);
    check("pinned", "held", held[PINNED], 900 * KiB);
    check_devices("pinned");
    ggml_backend_buffer_free(second);
    ggml_backend_buffer_free(first);
}

/* A plan of a graph has a work buffer of its own. */
static void check_plan() {
    ggml_backend_plan_cpu *plan = ggml_backend_cpu_graph_plan_create(48 * KiB);
    check_tag("plan", "compute_work", 48 * KiB, 1);
    check_devices("plan");
    ggml_backend_cpu_graph_plan_free(plan);
}

static void free_all(engine *e) {
    for (ggml_backend_buffer_t buffer : e->weights) ggml_backend_buffer_free(buffer);
    ggml_backend_buffer_free(e->kv);
    ggml_backend_buffer_free(e->output);
    ggml_backend_buffer_free(e->compute.buffer);
    ggml_backend_cpu_free(&e->cpu);
    munmap(e->mapping, WEIGHTS);
    held[MAPPED] -= WEIGHTS;
    fclose(e->file);
}

int main() {
    engine e = engine();
    load_model(&e);
    check_tag("load", "weights", 4544 * KiB, 11); /* without multi-buffer and meta buffer */
    init_context(&e);
    check_devices("init");
    check_tag("init", "kv", 512 * KiB, 1);
    check_tag("init", "compute_decode", 300 * KiB, 1);
    check_pinned();
    check_plan();

    decode(&e, 32);
    for (int i = 0; i < 5; i++) decode(&e, 1);
    check_devices("decode");
    check_tag("decode", "kv", 1024 * KiB, 1);
    check_tag("decode", "compute_decode", 0, 0);
    check_tag("decode", "compute", 400 * KiB, 1);
    check_tag("decode", "compute_work", 32 * KiB, 1);
    check_tag("decode", "output", 200 * KiB, 1);
    check_tag("decode", "weights", 4544 * KiB, 11);
    check_tag("decode", NULL, 0, 0);
    check_scope("load", 2, static_cast<int64_t>(5556 * KiB));
    check_scope("prompt", 1, static_cast<int64_t>((512 + 100 + 32) * KiB));
    check_scope("decode", 5, 0);

    const char *path = getenv("MEMLORD_APP_REPORT");
    if (path) memlord_save(memlord_global(), memlord_format_for(path), path);

    free_all(&e);
    check_devices("end");
    check("end", "bytes", memlord_allocated(memlord_global(), memlord_device_all()), 0);
    printf("%d checks, %d wrong\n", checks, wrong);
    return wrong != 0;
}
