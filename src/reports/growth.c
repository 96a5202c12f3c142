#include "reports/growth.h"
#include "base/numbers.h"
#include "services/stats.h"

/* Records the bytes of a tag or a site in one snapshot: adds its series, or raises `most`. Keeps
   the list in order. */
static MLI_COLD void mli_series_note(mli_series_list *list, int book, uint32_t dev,
                                     const mli_holding *h) {
    mli_series *at = list->at[book], s;
    uint32_t i, n = list->count[book];
    memset(&s, 0, sizeof s);
    s.most = h->bytes;
    s.book = book;
    s.dev = dev;
    s.row = h->row;
    for (i = 0; i < n && (at[i].dev != dev || at[i].row != h->row); i++) {}
    if (i < n) {
        if (at[i].most >= h->bytes) return;
        memmove(at + i, at + i + 1, (--n - i) * sizeof *at);
    }
    list->count[book] = (uint32_t)mli_top_insert(at, n, MLI_SERIES, &s, sizeof s,
                                                 offsetof(mli_series, most));
}
MLI_PRIVATE MLI_COLD void mli_series_collect(mli_series_list *list,
                                             const mli_snapshot *const *snapshot, uint32_t n) {
    uint32_t i, k, dev, count;
    int book;
    list->snapshot = snapshot;
    list->snapshots = n;
    for (i = 0; i < n; i++)
        for (dev = 1; dev <= snapshot[i]->devices; dev++)
            for (book = MLI_BOOK_SITE; book < MLI_BOOKS; book++) {
                const mli_holding *h = mli_snapshot_holdings(snapshot[i], dev, book, &count);
                for (k = 0; k < count; k++) mli_series_note(list, book, dev, &h[k]);
            }
}
MLI_PRIVATE MLI_COLD uint64_t mli_series_level(const mli_series_list *list, const mli_series *s,
                                               uint32_t snapshot) {
    const mli_snapshot *of = list->snapshot[snapshot];
    const mli_holding *h;
    uint32_t i, n;
    if (s->dev > of->devices) return 0;
    if (s->book == MLI_BOOK_DEVICE) return mli_snapshot_devices(of)[s->dev - 1].live;
    h = mli_snapshot_holdings(of, s->dev, s->book, &n);
    for (i = 0; i < n; i++)
        if (h[i].row == s->row) return h[i].bytes;
    return n < MLI_HOLDERS ? 0 : UINT64_MAX;
}

/* The sums that a line of least squares needs, over the last n snapshots. Times (t), in minutes,
   and bytes (y) are differences from the last snapshot, so that the sums lose little precision. */
typedef struct mli_line_sums {
    double n, t, y, tt, ty, yy;
} mli_line_sums;

/* Adds a snapshot at time t with y bytes to the sums. Returns the slope of the line that fits them,
   in bytes a minute, and sets *fit to its R2. */
static MLI_COLD double mli_line_add(mli_line_sums *s, double t, double y, double *fit) {
    double over, within, across;
    s->n += 1;
    s->t += t;
    s->y += y;
    s->tt += t * t;
    s->ty += t * y;
    s->yy += y * y;
    over = s->n * s->tt - s->t * s->t;
    within = s->n * s->yy - s->y * s->y;
    across = s->n * s->ty - s->t * s->y;
    *fit = over > 0 && within > 0 ? across * across / over / within : 0;
    return over > 0 ? across / over : 0;
}
/* Returns the minutes from a snapshot to the last one. */
static double mli_series_minutes(const mli_series_list *list, uint32_t i) {
    return (double)(list->snapshot[list->snapshots - 1]->time - list->snapshot[i]->time) / 6e10;
}
/* Returns 1 if a series had at most `bytes` in all snapshots before number `end`. */
static MLI_COLD int mli_series_below(const mli_series_list *list, const mli_series *s,
                                     uint32_t end, double bytes) {
    uint32_t i;
    for (i = 0; i < end; i++) {
        const uint64_t level = mli_series_level(list, s, i);
        if (level != UINT64_MAX && (double)level > bytes) return 0;
    }
    return 1;
}
/* Returns 1 if a line rises enough to count as growth. `age` is how many minutes ago it began,
   `late` the slope of its second half. */
static MLI_COLD int mli_line_grows(double age, double slope, double late, uint64_t capacity) {
    if (slope <= 0 || late < slope / 2) return 0;
    return slope >= 1048576 || (capacity && slope * age >= (double)capacity / 100);
}
/* Looks for the line by which a series grows, and stores it in the series. */
static MLI_COLD void mli_series_line(const mli_series_list *list, mli_series *s,
                                     uint64_t capacity) {
    const uint32_t last = list->snapshots - 1;
    const uint64_t end = mli_series_level(list, s, last);
    double slope[MLI_SNAPSHOTS], fit[MLI_SNAPSHOTS], best = 0;
    uint32_t points[MLI_SNAPSHOTS];
    uint32_t i, middle = last;
    mli_line_sums sums;
    if (end == UINT64_MAX) return;
    memset(&sums, 0, sizeof sums);
    for (i = last + 1; i--;) {
        const uint64_t level = mli_series_level(list, s, i);
        const double age = mli_series_minutes(list, i);
        slope[i] = i < last ? slope[i + 1] : 0;
        fit[i] = 0;
        if (level == UINT64_MAX) continue;
        slope[i] = mli_line_add(&sums, -age, (double)level - (double)end, &fit[i]);
        points[i] = (uint32_t)sums.n;
        while (middle > i && mli_series_minutes(list, middle - 1) <= age / 2) middle--;
        if (points[i] < MLI_GROWTH_POINTS || age * 6e10 < MLI_GROWTH_NS ||
            age < mli_series_minutes(list, 0) / 2 ||
            fit[i] < 0.8 || sums.y > 0 || !mli_line_grows(age, slope[i], slope[middle], capacity) ||
            !mli_series_below(list, s, i, (double)end - slope[i] * age / 2))
            fit[i] = 0;
        if (fit[i] > best) best = fit[i];
    }
    for (i = 0; i <= last && fit[i] < best - 0.02; i++) {}
    if (best <= 0) return;
    s->rate = mli_whole(slope[i] + 0.5);
    s->fit = fit[i];
    s->since = i;
    s->points = points[i];
}
static MLI_COLD void mli_series_try(mli_series_list *list, mli_series *s, uint64_t capacity) {
    mli_series_line(list, s, capacity);
    if (!s->rate) return;
    list->growing_all++;
    list->growing = mli_top_insert(list->grows, list->growing, MLI_GROWING, s, sizeof *s,
                                   offsetof(mli_series, rate));
}
MLI_PRIVATE MLI_COLD void mli_series_fit(mli_series_list *list, uint32_t dev, uint64_t capacity) {
    mli_series device;
    uint32_t i;
    int book;
    if (list->snapshots < MLI_GROWTH_POINTS) return;
    memset(&device, 0, sizeof device);
    device.dev = dev;
    mli_series_try(list, &device, capacity);
    for (book = MLI_BOOK_SITE; book < MLI_BOOKS; book++)
        for (i = 0; i < list->count[book]; i++)
            if (list->at[book][i].dev == dev) mli_series_try(list, &list->at[book][i], capacity);
}
