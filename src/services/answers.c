#include "services/answers.h"
#include "base/atomics.h"
#include "books/counters.h"
#include "books/devices.h"
#include "books/names.h"
#include "books/limits.h"
#include "books/sites.h"
#include "services/stats.h"

/* The strings of the arena's site. They are arrays and not string literals, because a linker keeps
   or drops all literals of an object together: see mli_no_site. */
static const char mli_arena_file[] = "", mli_arena_function[] = "(arena)";
MLI_PRIVATE const memlord_site mli_arena_site = {mli_arena_file, mli_arena_function, 0};

static MLI_COLD void mli_holder_add(mli_holder_list *list, uint32_t dev, int kind,
                                    const void *subject, uint64_t bytes) {
    mli_holder h;
    size_t n = list->count < MLI_HOLDERS_LISTED ? (size_t)list->count : MLI_HOLDERS_LISTED;
    if (!bytes) return;
    h.bytes = bytes;
    h.subject = subject;
    h.dev = dev;
    h.kind = kind;
    (void)mli_top_insert(list->at, n, MLI_HOLDERS_LISTED, &h, sizeof h,
                         offsetof(mli_holder, bytes));
    list->count++;
    list->named += kind == MLI_HOLDER_NAMED;
    list->bytes = mli_add_saturated(list->bytes, bytes);
    if (dev != list->dev) list->elsewhere = 1;
}
/* Adds the holders of a device's bytes, which add up to its live bytes, to a list. */
static MLI_COLD void mli_holder_add_dev(memlord *lord, mli_holder_list *list, uint32_t dev) {
    mli_device_record *device = mli_device_record_at(lord, dev);
    uint64_t arena = mli_u64_load(&device->arena);
    uint64_t left = mli_row_live(lord, MLI_BOOK_DEVICE, dev);
    uint32_t i = 0;
    if (list->book == MLI_BOOK_TAG) mli_take_off(&arena, mli_u64_load(&device->arena_tagged));
    mli_take_off(&left, arena);
    while ((i = mli_row_next(lord, list->book, dev, i)) != 0) {
        const uint64_t live = mli_row_live(lord, list->book, i);
        mli_take_off(&left, live);
        mli_holder_add(list, dev, MLI_HOLDER_NAMED, mli_row_at(lord, list->book, i)->subject, live);
    }
    mli_holder_add(list, dev, MLI_HOLDER_UNNAMED, NULL, left);
    mli_holder_add(list, dev, MLI_HOLDER_ARENA, NULL, arena);
}
MLI_PRIVATE MLI_COLD void mli_holders_list(memlord *lord, const mli_phys *phys, uint32_t dev,
                                           int book, mli_holder_list *list) {
    uint32_t i = 0;
    memset(list, 0, sizeof *list);
    list->book = book;
    list->dev = dev;
    if (!phys)
        mli_holder_add_dev(lord, list, dev);
    else
        while ((i = mli_phys_next_dev(lord, phys, i)) != 0) mli_holder_add_dev(lord, list, i);
}

MLI_PRIVATE MLI_COLD const memlord_site *mli_holder_place(const mli_holder *h) {
    if (h->kind == MLI_HOLDER_ARENA) return &mli_arena_site;
    return (const memlord_site *)mli_ptr_load_acquire(
        &((const mli_site_record *)h->subject)->display); /* pairs with the store in books/sites */
}
MLI_PRIVATE MLI_COLD void mli_put_holder(memlord *lord, mli_out *o, int book, const mli_holder *h) {
    if (h->kind == MLI_HOLDER_ARENA) {
        mli_put_str(o, "arenas");
    } else if (h->kind == MLI_HOLDER_UNNAMED) {
        mli_put_str(o, book == MLI_BOOK_TAG ? "untagged" : "no site");
    } else if (book == MLI_BOOK_TAG) {
        mli_putf(o, "%s", (const char *)h->subject);
    } else {
        memlord_site named;
        mli_putf(o, "%p", (const void *)mli_site_named(lord, mli_holder_place(h), &named));
    }
}
MLI_PRIVATE MLI_COLD void mli_put_holders(memlord *lord, mli_out *o, const mli_holder_list *list) {
    uint64_t i, left = list->bytes;
    if (!list->named && (list->book != MLI_BOOK_TAG || list->count < 2)) return;
    mli_put_str(o, list->book == MLI_BOOK_TAG ? "; by tag: " : "; by site: ");
    for (i = 0; i < list->count && i < MLI_HOLDERS_LISTED; i++) {
        const mli_holder *h = &list->at[i];
        if (i) mli_put_str(o, ", ");
        if (list->elsewhere)
            mli_putf(o, "%i ", mli_device_code(mli_device_record_at(lord, h->dev)->device));
        mli_put_holder(lord, o, list->book, h);
        mli_putf(o, " %jo", h->bytes);
        mli_take_off(&left, h->bytes);
    }
    if (i < list->count) mli_putf(o, ", and %ju more with %jo", list->count - i, left);
}

MLI_PRIVATE MLI_COLD double mli_share_of_live(uint64_t part, uint64_t live) {
    return part < live ? mli_percent(part, live) : 100;
}

/* -- public -- */

/* Writes " cpu 3 MiB in 2 (peak 5 MiB, kv 80 %)": a device's live bytes, live blocks, peak, and
   largest holder by tag with its share. For a device without tags it writes no holder. */
static MLI_COLD void mli_put_summary(memlord *lord, mli_out *o, uint32_t dev) {
    mli_holder_list tags;
    memlord_stats s;
    mli_stats_fill(lord, dev, &s);
    mli_holders_list(lord, NULL, dev, MLI_BOOK_TAG, &tags);
    mli_putf(o, " %i %jo in %ju (peak %jo",
             mli_device_code(mli_device_record_at(lord, dev)->device), s.allocated, s.live_blocks,
             s.peak);
    if (tags.named) {
        mli_put_str(o, ", ");
        mli_put_holder(lord, o, MLI_BOOK_TAG, &tags.at[0]);
        mli_putf(o, " %g", mli_share_of_live(tags.at[0].bytes, s.allocated));
    }
    mli_put_str(o, ")");
}
MLI_API size_t memlord_summary(memlord *lord, char *buf, size_t cap) {
    mli_out o;
    uint32_t dev;
    mli_out_buffer(&o, buf, cap);
    if (lord) mli_put_str(&o, "memlord");
    for (dev = 1; lord && dev < mli_row_count(lord, MLI_BOOK_DEVICE); dev++) {
        if (dev > 1) mli_put_str(&o, ",");
        mli_put_summary(lord, &o, dev);
    }
    return mli_out_end(&o, cap);
}
