/*
    libtorch.cpp - every CPU tensor of a LibTorch program on the books

    c10 asks one allocator for the memory of CPU tensors. This one asks the allocator that was there
    before, and records what it hands out, to the byte. Views, tied weights and modules share
    storages, and a storage is one block however many tensors look at it. Debian: libtorch-dev.

        c++ -O2 -c -x c++ -DMEMLORD_IMPLEMENTATION memlord.h -o memlord.o
        c++ -std=c++17 -O2 -I. -isystem /usr/include/torch/csrc/api/include \
            examples/embed/libtorch.cpp memlord.o -o libtorch -ltorch -ltorch_cpu -lc10 -pthread
        ./libtorch

    Copy the class `counted` and the line that installs it. It stays for the life of the process: a
    tensor may die later than anything else, and then finds no ledger, which does nothing.
*/
#include <c10/core/CPUAllocator.h>
#include <torch/torch.h>

#include "memlord.h"

#include <cstdio>
#include <unordered_set>

/* -- the allocator -- */

class counted : public c10::Allocator {
public:
    /* Takes the place of c10's allocator for CPU tensors, for good. */
    static void install(memlord *lord) {
        static counted self;
        generation_ = memlord_generation(lord);
        c10::SetCPUAllocator(&self, 1); /* above the priority of c10's own */
    }
    c10::DataPtr allocate(size_t bytes) const override {
        void *p = base_->raw_allocate(bytes);
        /* The stack is c10's own here: count by tag and scope, or set stack_depth. */
        if (p) memlord_alloc(memlord_find(generation_), memlord_device_cpu(), MEMLORD_KEY(p), bytes,
                             MEMLORD_SITE());
        return {p, p, &give, c10::Device(c10::DeviceType::CPU)};
    }
    c10::DeleterFnPtr raw_deleter() const override { return &give; }

private:
    counted() : base_(c10::GetDefaultCPUAllocator()) { deleter_ = base_->raw_deleter(); }
    static void give(void *p) {
        if (!p) return;
        memlord_free(memlord_find(generation_), memlord_device_cpu(), MEMLORD_KEY(p), NULL);
        deleter_(p);
    }
    c10::Allocator *base_;
    static c10::DeleterFnPtr deleter_;
    static uint64_t generation_; /* not the ledger: it may die before the last tensor */
};
c10::DeleterFnPtr counted::deleter_;
uint64_t counted::generation_;

/* -- a small model: an embedding whose weights are the classifier's, too -- */

struct model : torch::nn::Module {
    torch::nn::Embedding embedding;
    torch::nn::Linear first, second, out;
    model() : embedding(1000, 64), first(64, 256), second(256, 64),
              out(torch::nn::LinearOptions(64, 1000).bias(false)) {
        register_module("embedding", embedding);
        register_module("first", first);
        register_module("second", second);
        register_module("out", out);
        out->weight = embedding->weight; /* tied: the old storage dies */
    }
    torch::Tensor forward(torch::Tensor tokens) {
        return out(second(torch::relu(first(embedding(tokens)))));
    }
};

/* -- the check: the ledger has what the tensors' own storages add up to -- */

static int failed;

/* Returns the bytes of the distinct storages behind these tensors. */
static uint64_t storages(const std::vector<torch::Tensor> &tensors) {
    std::unordered_set<const void *> seen;
    uint64_t bytes = 0;
    for (const auto &t : tensors)
        if (seen.insert(t.storage().unsafeGetStorageImpl()).second) bytes += t.storage().nbytes();
    return bytes;
}

static void check(memlord *lord, const char *when, const std::vector<torch::Tensor> &tensors) {
    const uint64_t live = memlord_allocated(lord, memlord_device_cpu()), own = storages(tensors);
    std::printf("%-34s %8llu bytes live, %8llu in storages\n", when, (unsigned long long)live,
                (unsigned long long)own);
    failed |= live != own;
}

int main() {
    memlord_desc desc = {};
    memlord *lord;
    torch::Tensor survivor;
    desc.logger.fn = memlord_log_stderr;
    if (memlord_create(&desc, &lord)) return 1;
    torch::set_num_threads(2);
    (void)torch::rand({2, 2}); /* c10's own first use: a generator and its state */
    counted::install(lord);
    {
        torch::NoGradGuard no_grad;
        std::vector<torch::Tensor> held;
        memlord_tag_begin(lord, "weights");
        model net;
        memlord_tag_end(lord);
        held = net.parameters();
        check(lord, "the model, with tied weights", held);

        held.push_back(held[0].view({-1}));
        held.push_back(held[0].slice(0, 10, 20));
        held.push_back(held[1].t());
        check(lord, "views of them add nothing", held);

        memlord_scope_begin(lord, "forward");
        memlord_tag_begin(lord, "activations");
        auto tokens = torch::arange(0, 128, torch::kLong);
        auto logits = net.forward(tokens);
        memlord_tag_end(lord);
        memlord_scope_end(lord);
        held.push_back(tokens);
        held.push_back(logits);
        check(lord, "a forward: its result is left", held);

        held.push_back(torch::zeros({0}));
        held.back().resize_({4096});
        check(lord, "a tensor that was resized", held);
        survivor = logits.clone();
        held.push_back(survivor);
        check(lord, "a clone", held);
    }
    {
        model net; /* with gradients: threads of autograd free what this one took */
        std::vector<torch::Tensor> held = net.parameters();
        net.forward(torch::arange(0, 64, torch::kLong)).sum().backward();
        for (const auto &p : net.parameters())
            if (p.grad().defined()) held.push_back(p.grad());
        held.push_back(survivor);
        check(lord, "gradients after a backward", held);
    }
    check(lord, "all gone but one", {survivor});
    memlord_stats s;
    memlord_stats_get(lord, memlord_device_all(), &s);
    failed |= s.unknown_frees != 0 || s.implicit_frees != 0;
    memlord_save(lord, MEMLORD_FORMAT_TEXT, "-");
    memlord_destroy(lord);
    survivor = torch::Tensor(); /* later than its ledger: harmless */
    std::printf(failed ? "the sums differ\n" : "the sums are equal\n");
    return failed;
}
