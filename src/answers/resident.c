#include "answers/resident.h"
#include <string.h>

MLR_PRIVATE int mlr_is_host(const mlr_profile *p, uint32_t device) {
    const mlr_device *d = &p->device[device - 1];
    if (d->capacity) return !strncmp(p->capacity[d->capacity - 1].device, "cpu", 3);
    return !strncmp(d->name, "cpu", 3);
}
static void host_sums(const mlr_profile *p, uint64_t *live, uint64_t *peak, uint64_t *kept) {
    uint32_t i;
    *live = *peak = *kept = 0;
    for (i = 1; i <= p->device_count; i++) {
        if (!mlr_is_host(p, i)) continue;
        *live += p->device[i - 1].stats.allocated;
        *peak += p->device[i - 1].stats.peak;
        *kept += p->device[i - 1].stats.cached;
    }
}
MLR_PRIVATE uint64_t mlr_outside_books(const mlr_profile *p) {
    uint64_t live, peak, kept;
    host_sums(p, &live, &peak, &kept);
    if (p->resident == MLR_UNKNOWN || !p->resident) return 0;
    return mlr_less(p->resident, live + kept + p->own_bytes);
}

static void say_outside(mlr_build *b, uint64_t outside, uint64_t live, uint64_t peak) {
    const mlr_profile *p = b->profile;
    mlr_words w = {NULL, NULL, 0, 0};
    mlr_sentence *s;
    w.b = b;
    mlr_words_add(&w, "%b are in memory (RSS), %b of it live in the books", p->resident, live);
    if (peak >= p->resident / 4 * 3)
        mlr_words_add(&w, "; the peak was %b, so the allocator most likely keeps %b free", peak,
                      outside);
    else
        mlr_words_add(&w, "; %b are of mmap, other allocators or code", outside);
    s = mlr_say(b, MLR_SAYS_resident, 0, outside, &w);
    if (p->own_bytes)
        mlr_say_more(b, s, mlr_text_make(b, "MemLord's own memory is %b", p->own_bytes));
}
static void say_untouched(mlr_build *b, uint64_t live) {
    mlr_words w = {NULL, NULL, 0, 0};
    w.b = b;
    mlr_words_add(&w,
                  "of %b live on the host at least %b are not in memory: never touched, or "
                  "swapped out",
                  live, live - b->profile->resident);
    (void)mlr_say(b, MLR_SAYS_untouched, 0, live - b->profile->resident, &w);
}

static const mlr_column columns[] = {{"bytes", "bytes", MLR_BYTES, 0},
                                     {"what", "what", MLR_TEXT, 0}};
static void row_add(mlr_build *b, mlr_table *t, uint64_t bytes, const char *what) {
    mlr_cell *row;
    if (!bytes) return;
    row = mlr_row_add(b, t, 0);
    row[0].number = bytes;
    row[1].text = what;
}
MLR_PRIVATE void mlr_resident_answer(mlr_build *b) {
    const mlr_profile *p = b->profile;
    const uint64_t outside = mlr_outside_books(p), far = UINT64_C(32) << 20;
    uint64_t live, peak, kept;
    mlr_table *t = mlr_table_begin(b, MLR_TABLE_resident, columns, 2);
    host_sums(p, &live, &peak, &kept);
    if (p->resident == MLR_UNKNOWN || !p->resident || b->narrow || b->options.device) return;
    if (outside >= far && outside >= live) say_outside(b, outside, live, peak);
    if (live >= 2 * p->resident && live - p->resident >= 2 * far) say_untouched(b, live);
    row_add(b, t, p->resident, "in memory (RSS)");
    row_add(b, t, live, "live in the books, on the host");
    row_add(b, t, kept, "kept free by pools");
    row_add(b, t, p->own_bytes, "MemLord's own");
    row_add(b, t, outside, "not in the books");
    row_add(b, t, mlr_less(live, p->resident), "live, and not in memory");
}
