#include "answers/peaks.h"
#include "answers/callers.h"
#include "answers/places.h"

/* The bytes of which the holders at the peak are: those of the moment when they were noted, which
   is now if the device is at its peak. 0: they were not noted. */
static uint64_t noted(const mlr_profile *p, uint32_t device) {
    const mlr_device *d = &p->device[device - 1];
    return mlr_is_at_peak(p, device) ? d->stats.allocated : d->peak_bytes;
}
static uint32_t largest_tag(const mlr_build *b, uint32_t device, uint64_t *bytes) {
    const mlr_profile *p = b->profile;
    uint32_t i, most = 0;
    *bytes = 0;
    for (i = 1; i <= p->tag_count; i++) {
        const uint64_t held = mlr_tag_at_peak(b, i);
        if (p->tag[i - 1].device != device || held == MLR_UNKNOWN || held <= *bytes) continue;
        *bytes = held;
        most = i;
    }
    return most;
}
static uint32_t largest_place(const mlr_build *b, uint32_t device) {
    uint32_t i, most = 0;
    for (i = 1; i <= b->places; i++)
        if (b->place[i - 1].device == device &&
            b->place[i - 1].at_peak > (most ? b->place[most - 1].at_peak : 0))
            most = i;
    return most;
}
MLR_PRIVATE mlr_peak_holders mlr_peak_holders_of(const mlr_build *b, uint32_t device) {
    mlr_peak_holders h;
    h.noted = noted(b->profile, device);
    h.tag = largest_tag(b, device, &h.tag_bytes);
    h.place = largest_place(b, device);
    h.place_bytes = h.place ? b->place[h.place - 1].at_peak : 0;
    if (!h.noted || h.tag_bytes < h.noted / 100) h.tag = 0;
    if (!h.noted || h.place_bytes < h.noted / 100) h.place = 0;
    return h;
}
MLR_PRIVATE void mlr_peak_holders_say(mlr_words *w, const mlr_peak_holders *h) {
    const mlr_build *b = w->b;
    if (h->tag)
        mlr_words_add(w, ": tag %n %g", mlr_tag_name(b->profile, h->tag), h->tag_bytes, h->noted);
    if (!h->place) return;
    mlr_words_add(w, h->tag ? "; %p %g" : ": %p %g", b->place[h->place - 1].frame, h->place_bytes,
                  h->noted);
    mlr_callers_say(w, h->place, MLR_BY_PEAK);
}
static void say_peak(mlr_build *b, uint32_t device) {
    const mlr_device *d = &b->profile->device[device - 1];
    const mlr_peak_holders h = mlr_peak_holders_of(b, device);
    mlr_words w = {NULL, NULL, 0, 0};
    mlr_sentence *s;
    w.b = b;
    mlr_words_add(&w, "%b", d->stats.peak);
    if (d->peak_time_ns) mlr_words_add(&w, " at %t", d->peak_time_ns);
    mlr_peak_holders_say(&w, &h);
    if ((h.tag || h.place) && h.noted < d->stats.peak - d->stats.peak / 64)
        mlr_words_add(&w, " of %b, when that was noted", h.noted);
    mlr_words_add(&w, b->profile->ended ? "; %b left at the end" : "; %b left", d->stats.allocated);
    s = mlr_say(b, MLR_SAYS_peak, device, d->stats.peak, &w);
    if (h.place) s->frame = b->place[h.place - 1].frame;
    if (h.tag) s->tag = mlr_tag_name(b->profile, h.tag);
}

static const mlr_column columns[] = {
    {"share", "share", MLR_SHARE, 0},   {"bytes", "at peak", MLR_BYTES, 0},
    {"live", "live now", MLR_BYTES, 0}, {"noted", "noted at", MLR_BYTES, 1},
    {"time", "time", MLR_SINCE, 1},     {"of", "of", MLR_TEXT, 0},
    {"name", "name", MLR_TEXT, 0},      {"device", "device", MLR_TEXT, 0}};
static void peak_row(mlr_build *b, mlr_table *t, uint32_t device, uint32_t frame, uint64_t bytes,
                     uint64_t live, const char *of, const char *name) {
    const mlr_device *d = &b->profile->device[device - 1];
    mlr_cell *row = mlr_row_add(b, t, frame);
    row[0].number = mlr_share(bytes, noted(b->profile, device));
    row[1].number = bytes;
    row[2].number = live;
    row[3].number = noted(b->profile, device);
    if (d->peak_time_ns) row[4].number = d->peak_time_ns;
    row[5].text = of;
    row[6].text = name;
    row[7].text = b->profile->device_count > 1 ? d->name : "";
}
/* Adds the largest tags, then the largest places, of a device. */
static void peak_rows(mlr_build *b, mlr_table *t, uint32_t device) {
    const mlr_profile *p = b->profile;
    mlr_ranked *list =
        (mlr_ranked *)mlr_build_alloc(b, p->tag_count + b->places + 1u, sizeof *list);
    uint32_t i, n = 0, tags;
    if (!list || !noted(p, device)) return;
    for (i = 1; i <= p->tag_count; i++) {
        const uint64_t held = mlr_tag_at_peak(b, i);
        if (p->tag[i - 1].device != device || !held || held == MLR_UNKNOWN || !b->tag_in[i])
            continue;
        list[n].key = held;
        list[n++].number = i;
    }
    mlr_rank(list, tags = n);
    for (i = 1; i <= b->places; i++) {
        if (b->place[i - 1].device != device || !b->place[i - 1].at_peak || !b->place[i - 1].in)
            continue;
        list[n].key = b->place[i - 1].at_peak;
        list[n++].number = i;
    }
    mlr_rank(list + tags, n - tags);
    for (i = 0; i < n; i++) {
        const uint32_t number = list[i].number;
        if ((i < tags ? i : i - tags) >= b->top)
            t->more++;
        else if (i < tags)
            peak_row(b, t, device, 0, list[i].key, p->tag[number - 1].live, "tag",
                     mlr_tag_name(p, number));
        else
            peak_row(b, t, device, b->place[number - 1].frame, list[i].key,
                     b->place[number - 1].live, "place",
                     mlr_place_name(b, b->place[number - 1].frame));
    }
}
MLR_PRIVATE void mlr_peaks_answer(mlr_build *b) {
    mlr_table *t =
        mlr_table_begin(b, MLR_TABLE_peaks, columns, (uint32_t)(sizeof columns / sizeof *columns));
    uint32_t device;
    t->more_bytes = MLR_UNKNOWN;
    for (device = 1; device <= b->profile->device_count; device++) {
        const mlr_stats *s = &b->profile->device[device - 1].stats;
        if (!b->device_in[device]) continue;
        if (!b->narrow && s->peak > s->allocated && s->peak - s->allocated > s->allocated / 4)
            say_peak(b, device);
        peak_rows(b, t, device);
    }
}
