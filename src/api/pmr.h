/* This part stands outside the include guard, because another header may have included memlord.h
   without MEMLORD_PMR. */
#if defined(MEMLORD_PMR) && defined(__cplusplus) && !defined(MLI_PMR) && !defined(MLI_READ_PREFIX)
#if __cplusplus >= 201703L || (defined(_MSVC_LANG) && _MSVC_LANG >= 201703L)
#define MLI_PMR
extern "C++" {
#include <memory_resource>

namespace mlord {
MLI_WAY {

/* Passes every request on to another memory resource, and records the memory that it gets, on a
   device. A block's site is the code that called allocate. If the program is compiled without
   optimisation, that code is a function of the C++ library. Frees have no site. Requires: the
   ledger and `upstream` outlive the resource. */
class resource : public std::pmr::memory_resource {
public:
    explicit resource(memlord *lord, memlord_device device = memlord_device_cpu(),
                      memory_resource *upstream = std::pmr::new_delete_resource()) noexcept
        : lord_(lord), upstream_(upstream), device_(device) {}
    memory_resource *upstream() const noexcept { return upstream_; }

private:
#if defined(__GNUC__)
    __attribute__((noinline))
#endif
    void *do_allocate(std::size_t bytes, std::size_t alignment) override {
        void *p = upstream_->allocate(bytes, alignment);
#if defined(__GNUC__)
        /* This is the last call before memlord_alloc, so that the site need not be saved
           across another call. */
        const memlord_site *site = MEMLORD_SITE_OF_CALLER(lord_);
#else
        const memlord_site *site = NULL;
#endif
        (void)memlord_alloc(lord_, device_, MEMLORD_KEY(p), bytes, site);
        return p;
    }
    void do_deallocate(void *p, std::size_t bytes, std::size_t alignment) override {
        (void)memlord_free(lord_, device_, MEMLORD_KEY(p), NULL);
        upstream_->deallocate(p, bytes, alignment);
    }
    bool do_is_equal(const memory_resource &other) const noexcept override {
        return this == &other;
    }
    memlord *lord_;
    memory_resource *upstream_;
    memlord_device device_;
};

} // MLI_WAY
} // namespace mlord
}
#endif
#endif
