/* A host in C++17, as its author wants it: a ledger that closes itself, tags and scopes that end
   with their block also by an exception, and a memory resource that counts at its callers. */
#include "memlord.h"

#include <cstdio>
#include <memory>
#include <memory_resource>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

struct ledger_closer {
    void operator()(memlord *lord) const noexcept { memlord_destroy(lord); }
};
using ledger = std::unique_ptr<memlord, ledger_closer>;

static ledger open_ledger(std::uint32_t flags) {
    memlord_desc desc{};
    desc.flags = flags;
    memlord *lord = nullptr;
    if (memlord_result r = memlord_create(&desc, &lord))
        throw std::runtime_error(memlord_result_text(r));
    return ledger(lord);
}

class counted_resource : public std::pmr::memory_resource {
public:
    counted_resource(memlord *lord, memlord_device device)
        : lord_(lord), device_(device), upstream_(std::pmr::new_delete_resource()) {}

private:
    void *do_allocate(std::size_t bytes, std::size_t alignment) override {
        void *p = upstream_->allocate(bytes, alignment);
        memlord_alloc(lord_, device_, MEMLORD_KEY(p), bytes, MEMLORD_SITE_OF_CALLER(lord_));
        return p;
    }
    void do_deallocate(void *p, std::size_t bytes, std::size_t alignment) override {
        memlord_free(lord_, device_, MEMLORD_KEY(p), MEMLORD_SITE_OF_CALLER(lord_));
        upstream_->deallocate(p, bytes, alignment);
    }
    bool do_is_equal(const memory_resource &other) const noexcept override {
        return this == &other;
    }
    memlord *lord_;
    memlord_device device_;
    std::pmr::memory_resource *upstream_;
};

struct tracked { /* a block that ends itself */
    tracked(memlord *lord, std::size_t bytes) : lord_(lord), p_(::operator new(bytes)) {
        MEMLORD_ALLOC(lord_, memlord_device_cpu(), p_, bytes);
    }
    ~tracked() {
        MEMLORD_FREE(lord_, memlord_device_cpu(), p_);
        ::operator delete(p_);
    }
    tracked(const tracked &) = delete;
    tracked &operator=(const tracked &) = delete;
    memlord *lord_;
    void *p_;
};

static int bad;
static void expect(bool right, const char *what) {
    if (!right) std::printf("not so: %s\n", what);
    bad += !right;
}

static std::uint64_t tagged(memlord *lord, const char *tag) {
    memlord_tag_stat stat{};
    (void)memlord_tag_get(lord, memlord_device_all(), tag, &stat);
    return stat.allocated;
}

static int load(memlord *lord, std::pmr::vector<std::pmr::string> &names, const std::string &tag) {
    int rounds = 0;
    MEMLORD_SCOPED(lord, "load");
    for (;;) {
        MEMLORD_TAGGED(lord, tag.c_str());
        names.emplace_back("a string that is too long for the small buffer");
        if (++rounds == 1000) break; /* this loop, not a loop of the macro */
        if (rounds % 2) continue;
    }
    return rounds;
}

static void fail(memlord *lord) {
    MEMLORD_SCOPED(lord, "fail");
    MEMLORD_TAGGED(lord, "lost");
    MEMLORD_TAG(lord, "this too") throw std::runtime_error("out of a block");
}

static void check_guards(memlord *lord, std::pmr::memory_resource &resource) {
    std::pmr::vector<std::pmr::string> names(&resource);
    memlord_scope_stat scope{};
    expect(load(lord, names, std::string("na") + "mes") == 1000, "the loop ends where it says");
    expect(memlord_scope_get(lord, "load", &scope) == MEMLORD_OK && scope.count == 1, "one load");
    expect(scope.bytes.total > 40000, "the scope has what it allocated");
    expect(tagged(lord, "names") == std::uint64_t(scope.bytes.total), "so has the tag");
    try {
        fail(lord);
        expect(false, "it throws");
    } catch (const std::runtime_error &) {
    }
    expect(!memlord_tag_current(lord) && !memlord_scope_current(lord), "a throw ends guards");
    expect(memlord_scope_get(lord, "fail", &scope) == MEMLORD_OK && scope.count == 1, "one fail");
}

/* Two calls in the host's own code. */
static void check_sites(memlord *lord, std::pmr::memory_resource &resource) {
    memlord_site_stat rows[16];
    void *a = resource.allocate(3000), *b = resource.allocate(500);
    std::size_t n = memlord_sites_top(lord, memlord_device_cpu(), MEMLORD_SITE_ORDER_LIVE_BYTES,
                                      rows, 16);
    expect(n == 2 && rows[0].live_bytes == 3000 && rows[1].live_bytes == 500, "two sites");
    expect(n == 2 && memlord_site_address(lord, rows[0].site) !=
                         memlord_site_address(lord, rows[1].site), "at two addresses");
    resource.deallocate(a, 3000);
    resource.deallocate(b, 500);
}

int main() {
    ledger lord = open_ledger(MEMLORD_FLAG_SITES | MEMLORD_FLAG_NO_ENV);
    counted_resource resource(lord.get(), memlord_device_cpu());
    check_sites(lord.get(), resource);
    check_guards(lord.get(), resource);
    {
        tracked block(lord.get(), 1 << 20);
        std::string text;
        memlord_write(lord.get(), MEMLORD_FORMAT_TEXT,
                      [](void *to, const void *data, std::size_t size) {
                          static_cast<std::string *>(to)->append(static_cast<const char *>(data),
                                                                 size);
                          return 0;
                      },
                      &text);
        expect(text.find("names") != text.npos && text.find("load") != text.npos, "a report");
        expect(memlord_allocated(lord.get(), memlord_device_cpu()) == 1 << 20, "one block lives");
    }
    expect(memlord_leaks(lord.get(), 0, nullptr, nullptr) == 0, "nothing leaks");
    return bad != 0;
}
