/* The C++ section as a host without exceptions and RTTI uses it, in every standard of C++ and every
   mode of the header. USE names its function, which returns how many things went wrong. All of them
   are linked into one program, where each has to use a MemLord of its own mode. */
#define MEMLORD_PMR
#include "memlord.h"
#include "memlord.h" /* a second time changes nothing */

#include <utility>
#include <vector>

extern "C" int USE(void);

#ifdef MEMLORD_DISABLE
#define LIVE(lord, expected) (memlord_allocated(lord, memlord_device_all()) != 0)
#else
#define LIVE(lord, expected) (memlord_allocated(lord, memlord_device_all()) != (expected))
#endif

namespace { /* in each file another class */
struct buffer { /* a host's class: its books end before its memory */
    buffer(memlord *lord, std::size_t bytes, mlord::here from = mlord::here())
        : memory(bytes),
          books(lord, memlord_device_cpu(), MEMLORD_KEY(memory.data()), bytes, from) {}
    std::vector<char> memory;
    mlord::handle books;
};
} // namespace

static int use_guards(memlord *lord) {
    mlord::scope scope(lord, "scope");
    int rounds = 0;
    for (;;) {
        mlord::tag tag(lord, "tag");
        MEMLORD_TAGGED(lord, "tagged");
        if (rounds++) break;
    }
    return mlord::tagged(lord, "call", [rounds] { return rounds - 2; });
}

static int use_contexts(memlord *lord) {
    mlord::context job(lord), taken;
    int bad = job.run([lord] { return memlord_tag_begin(lord, "job") != MEMLORD_OK; });
    taken = std::move(job);
    bad += memlord_tag_current(lord) != nullptr || job.swap() != MEMLORD_OK;
#if !defined(MEMLORD_DISABLE)
    bad += taken.run([lord] { return memlord_tag_current(lord) == nullptr; });
#endif
    return bad + (taken.drop() != MEMLORD_OK) + (mlord::context(nullptr).swap() != MEMLORD_OK);
}

static int use_handles(memlord *lord) {
    int bad = 0;
    {
        std::vector<buffer> buffers;
        for (std::size_t i = 1; i <= 10; i++) buffers.push_back(buffer(lord, i * 10));
        bad += LIVE(lord, 550u);
        buffers[0].books.swap(buffers[1].books);
        mlord::handle none, moved(std::move(buffers[2].books));
        none = std::move(moved);
        bad += LIVE(lord, 550u);
    }
    return bad + LIVE(lord, 0u);
}

static int use_containers(memlord *lord) {
    int bad = 0;
    {
        mlord::allocator<char> plain(lord);
        std::vector<int, mlord::allocator<int>> v(100, 1, mlord::allocator<int>(plain));
        bad += (plain != v.get_allocator()) + LIVE(lord, 100 * sizeof(int));
    }
#if __cplusplus >= 201703L
    {
        mlord::resource resource(lord, memlord_device_make(MEMLORD_DEVICE_OTHER, 1));
        std::pmr::vector<int> v(100, 1, &resource);
        bad += LIVE(lord, 100 * sizeof(int));
    }
#endif
    return bad + LIVE(lord, 0u);
}

int USE(void) {
    memlord *lord = nullptr;
    int bad = memlord_create(nullptr, &lord) != MEMLORD_OK;
    mlord::handle late(lord, memlord_device_cpu(), 64, 1);
    bad += late.reset() != MEMLORD_OK;
    bad += use_guards(lord) + use_contexts(lord) + use_handles(lord) + use_containers(lord);
    late = mlord::handle(lord, memlord_device_cpu(), 64, 1);
    memlord_destroy(lord);
    return bad;
}
