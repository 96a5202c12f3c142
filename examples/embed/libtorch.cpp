/*
    libtorch.cpp - an allocator for LibTorch that records the memory of every tensor on the cpu

    Debian's libtorch-dev, or PyTorch 1.13 and later. The allocator takes the memory from the one
    that was there, so nothing else changes. A tensor's bytes are those of its storage: views and
    tied weights have the same one, and count once. Tags say what tensors are for.

        c++ -std=c++17 -O2 -I. -isystem /usr/include/torch/csrc/api/include \
            examples/embed/libtorch.cpp -o libtorch -ltorch -ltorch_cpu -lc10 -pthread
        ./libtorch

    In your program: the class and account_tensors, called at the start of main. Not recorded:
    tensors from before, from_blob's (their memory is yours), the scratch memory of BLAS and oneDNN,
    and other devices: for CUDA see ../torch.
*/
#define MEMLORD_IMPLEMENTATION
#include "memlord.h"

#include <c10/core/CPUAllocator.h>
#include <torch/torch.h>

#include <cstdio>
#include <cstring>
#include <set>
#include <thread>

/* Records what another allocator hands out. The context of a tensor's memory is its address alone,
   as raw_allocate requires, so there is one ledger for all. It is kept by its generation: a tensor
   that outlives it is freed, and recorded nowhere. */
class accounted final : public c10::Allocator {
public:
    accounted(memlord *lord, c10::Allocator *real) {
        generation = memlord_generation(lord);
        release = real->raw_deleter(); /* the cpu's has one */
        real_ = real;
    }
    c10::DataPtr allocate(size_t n) const { /* until 2.2 */
        c10::DataPtr p = real_->allocate(n);
        if (!p.get()) return p; /* no bytes */
        TORCH_CHECK(p.compare_exchange_deleter(release, end), "not the allocator's own deleter");
        (void)memlord_alloc(memlord_find(generation), memlord_device_cpu(), MEMLORD_KEY(p.get()), n,
                            NULL);
        return p;
    }
    c10::DataPtr allocate(size_t n) { /* since 2.3 */
        return static_cast<const accounted *>(this)->allocate(n);
    }
    c10::DeleterFnPtr raw_deleter() const override { return end; }
    void copy_data(void *to, const void *from, size_t n) const { /* since 2.1 */
        std::memcpy(to, from, n);
    }

private:
    static void end(void *p) { /* on any thread */
        (void)memlord_free(memlord_find(generation), memlord_device_cpu(), MEMLORD_KEY(p), NULL);
        release(p);
    }
    static uint64_t generation;
    static c10::DeleterFnPtr release;
    c10::Allocator *real_;
};
uint64_t accounted::generation;
c10::DeleterFnPtr accounted::release;

/* Requires: no other thread uses LibTorch yet. Once in a program: LibTorch keeps it for good. */
static void account_tensors(memlord *lord) {
    c10::SetCPUAllocator(new accounted(lord, c10::GetCPUAllocator()));
}

/* -- a program that uses it, and compares the ledger with the tensors' own bytes -- */

struct block : torch::nn::Module { /* of a transformer */
    block(int64_t dim, int64_t n)
        : heads(n), qkv(register_module("qkv", torch::nn::Linear(dim, 3 * dim))),
          out(register_module("out", torch::nn::Linear(dim, dim))),
          up(register_module("up", torch::nn::Linear(dim, 4 * dim))),
          down(register_module("down", torch::nn::Linear(4 * dim, dim))),
          norm1(register_module("norm1", torch::nn::LayerNorm(std::vector<int64_t>{dim}))),
          norm2(register_module("norm2", torch::nn::LayerNorm(std::vector<int64_t>{dim}))) {}
    torch::Tensor forward(torch::Tensor x) {
        const int64_t n = x.size(0), length = x.size(1), dim = x.size(2);
        std::vector<torch::Tensor> part;
        for (const torch::Tensor &t : qkv->forward(norm1->forward(x)).chunk(3, 2)) /* views */
            part.push_back(t.view({n, length, heads, dim / heads}).transpose(1, 2));
        torch::Tensor scores = torch::softmax(part[0].matmul(part[1].transpose(2, 3)), -1);
        x = x + out->forward(scores.matmul(part[2]).transpose(1, 2).reshape({n, length, dim}));
        return x + down->forward(torch::gelu(up->forward(norm2->forward(x))));
    }
    int64_t heads;
    torch::nn::Linear qkv, out, up, down;
    torch::nn::LayerNorm norm1, norm2;
};

struct model : torch::nn::Module {
    model(int64_t words, int64_t dim)
        : embedding(register_module("embedding", torch::nn::Embedding(words, dim))),
          first(register_module("first", std::make_shared<block>(dim, 4))),
          second(register_module("second", std::make_shared<block>(dim, 4))),
          head(register_module("head", torch::nn::Linear(
              torch::nn::LinearOptions(dim, words).bias(false)))) {
        head->weight.set_data(embedding->weight); /* tied: one storage */
    }
    torch::Tensor forward(const torch::Tensor &tokens) {
        return head->forward(second->forward(first->forward(embedding->forward(tokens))));
    }
    torch::nn::Embedding embedding;
    std::shared_ptr<block> first, second;
    torch::nn::Linear head;
};

/* The bytes of the distinct storages of some tensors: what they take, by their own account. */
struct storages {
    std::set<c10::StorageImpl *> seen;
    uint64_t bytes = 0;
    void add(const torch::Tensor &t) {
        if (!t.defined()) return;
        c10::StorageImpl *storage = t.storage().unsafeGetStorageImpl();
        if (seen.insert(storage).second) bytes += storage->nbytes();
    }
    void add(const torch::nn::Module &m) {
        for (const torch::Tensor &t : m.parameters()) add(t), add(t.grad());
        for (const torch::Tensor &t : m.buffers()) add(t);
    }
    template <typename... Ts> static uint64_t of(const Ts &...all) {
        storages sum;
        int each[] = {0, (sum.add(all), 0)...};
        (void)each;
        return sum.bytes;
    }
};

static bool wrong;
static void check(memlord *lord, uint64_t bytes, const char *when) {
    const uint64_t books = memlord_allocated(lord, memlord_device_all());
    std::printf("%-48s %10llu bytes%s\n", when, static_cast<unsigned long long>(bytes),
                books == bytes ? "" : ": the ledger has others");
    wrong = wrong || books != bytes;
}
static memlord_stats books(memlord *lord) {
    memlord_stats s;
    (void)memlord_stats_get(lord, memlord_device_cpu(), &s);
    return s;
}

static void inference(memlord *lord, model &m, const torch::Tensor &tokens) {
    torch::NoGradGuard no_grad;
    mlord::tag activations(lord, "activations");
    MEMLORD_SCOPED(lord, "forward");
    torch::Tensor logits = m.forward(tokens);
    check(lord, storages::of(m, tokens, logits), "after a forward");
    torch::Tensor last = logits.select(1, -1), flat = logits.view({-1}), same = logits.detach();
    check(lord, storages::of(m, tokens, logits, last, flat, same), "views count once");
    logits = flat = same = torch::Tensor();
    check(lord, storages::of(m, tokens, last), "and the last view keeps all of them");
    last = last.clone();
    check(lord, storages::of(m, tokens, last), "a copy does not");
    last.resize_({4, 4096});
    check(lord, storages::of(m, tokens, last), "after a resize");
    torch::Tensor none = torch::empty({0});
    check(lord, storages::of(m, tokens, last, none), "a tensor of no bytes");
}

/* Its gradients are made and freed by autograd. */
static void training(memlord *lord, model &m, const torch::Tensor &tokens) {
    {
        mlord::tag gradients(lord, "gradients");
        MEMLORD_SCOPED(lord, "backward");
        m.forward(tokens).log_softmax(-1).mean().backward();
    }
    check(lord, storages::of(m, tokens), "after a backward: weights and gradients");
    m.zero_grad();
    for (torch::Tensor t : m.parameters()) t.mutable_grad() = torch::Tensor();
    check(lord, storages::of(m, tokens), "without gradients");
}

static void threads(memlord *lord, model &m, const torch::Tensor &tokens) {
    std::vector<torch::Tensor> made(64);
    at::parallel_for(0, 64, 1, [&made](int64_t from, int64_t to) {
        for (int64_t i = from; i < to; i++) made[size_t(i)] = torch::ones({i + 1, 10});
    });
    storages sum;
    sum.add(m), sum.add(tokens);
    for (const torch::Tensor &t : made) sum.add(t);
    check(lord, sum.bytes, "tensors of a parallel_for");
    std::vector<std::thread> helpers;
    for (int k = 0; k < 4; k++)
        helpers.emplace_back([&made, k] {
            for (size_t i = size_t(k); i < 64; i += 4) made[i] = torch::Tensor();
        });
    for (std::thread &helper : helpers) helper.join();
    check(lord, storages::of(m, tokens), "freed by other threads");
}

/* A block of the allocator from before, freed with ours: freed it is, and an unknown free. */
static void mistakes(memlord *lord, c10::Allocator *before) {
    const uint64_t live = memlord_allocated(lord, memlord_device_all());
    c10::GetCPUAllocator()->raw_deallocate(before->raw_allocate(100));
    check(lord, live, "a foreign block");
    c10::GetCPUAllocator()->raw_deallocate(c10::GetCPUAllocator()->raw_allocate(100));
    check(lord, live, "a raw block");
    try {
        (void)torch::empty({int64_t(1) << 55});
        wrong = true;
    } catch (const std::exception &) { /* there is no such memory */
    }
    check(lord, live, "a tensor there is no memory for");
    wrong = wrong || books(lord).unknown_frees != 1 || memlord_verify(lord) != MEMLORD_OK;
}

int main() {
    memlord *lord;
    c10::Allocator *before = c10::GetCPUAllocator();
    if (memlord_create(NULL, &lord)) return 1;
    account_tensors(lord);
    torch::Tensor survivor;
    {
        auto m = mlord::tagged(lord, "weights", [] { return std::make_shared<model>(500, 64); });
        torch::Tensor tokens = torch::randint(500, {2, 16});
        check(lord, storages::of(*m, tokens), "a model, its tied weights once");
        wrong = wrong || !m->head->weight.is_alias_of(m->embedding->weight);
        inference(lord, *m, tokens);
        check(lord, storages::of(*m, tokens), "after it");
        training(lord, *m, tokens);
        threads(lord, *m, tokens);
        mistakes(lord, before);
        survivor = m->embedding->weight;
        std::fflush(stdout);
        (void)memlord_save(lord, MEMLORD_FORMAT_TEXT, "-");
    }
    check(lord, storages::of(survivor), "without the model, but for one of its weights");
    memlord_destroy(lord);
    survivor = torch::ones({1000}) + survivor.sum(); /* freed, and made, past the ledger's end */
    std::printf("%s\n", wrong ? "the ledger and the tensors differ" : "all to the byte");
    return wrong;
}
