#include "answers/growth.h"
#include <stdlib.h>
#include <string.h>
#include "answers/ages.h"
#include "answers/callers.h"
#include "answers/holders.h"
#include "answers/line.h"
#include "answers/places.h"

typedef enum series_of { OF_TAG, OF_SITE, OF_DEVICE } series_of;
typedef struct series { /* the live bytes of a tag, a site or a device, that rise */
    series_of of;
    uint32_t row, device; /* row 0: what has no tag */
    mlr_line line;
    uint64_t since_ns, until_ns, last; /* last: bytes now */
    int over;                          /* 1: it is level since until_ns */
} series;
typedef struct growth {
    mlr_build *b;
    mlr_point *point; /* of the series that is looked at */
    double *room;
    uint32_t *next, *first; /* lists of where each row stands in the snapshots, oldest first */
    struct entry *entry;
    series *found;
    uint32_t count, space;
} growth;
typedef struct entry {
    uint32_t snapshot;
    uint64_t bytes;
} entry;

static double minutes(uint64_t ns) { return (double)ns / 6e10; }

/* Returns how many bytes of a device a snapshot does not list by tag, or by site. */
static uint64_t not_listed(const mlr_profile *p, const mlr_snapshot *s, uint32_t device,
                           series_of of) {
    const mlr_held *list = of == OF_TAG ? s->tag : s->site;
    const uint32_t n = of == OF_TAG ? s->tags : s->sites;
    uint64_t left = device <= s->levels ? s->level[device - 1].live : 0;
    uint32_t i;
    for (i = 0; i < n; i++) {
        const uint32_t row = list[i].row;
        const uint32_t on = !row           ? 0
                            : of == OF_TAG ? p->tag[row - 1].device
                                           : p->site[row - 1].device;
        if (on == device || (!row && p->device_count == 1)) left = mlr_less(left, list[i].bytes);
    }
    return left;
}
/* Adds a point now, if the run went on after the last snapshot. */
static uint32_t end_point(const growth *g, uint32_t n, uint64_t now) {
    const double t = minutes(g->b->profile->uptime_ns);
    if (n && t <= g->point[n - 1].t) return n;
    g->point[n].t = t;
    g->point[n].y = (double)now;
    return n + 1;
}

/* Returns 1 if a rise is large enough to be told. */
static int matters(const growth *g, const series *s) {
    const mlr_profile *p = g->b->profile;
    const mlr_device *d = &p->device[s->device - 1];
    const uint64_t total = d->capacity ? p->capacity[d->capacity - 1].total : MLR_UNKNOWN;
    const double least = 65536, mib = 1048576;
    if (s->line.rise < least) return 0;
    if (p->uptime_ns >= UINT64_C(60000000000) && s->line.slope >= mib && s->line.rise >= mib)
        return 1;
    if (total != MLR_UNKNOWN && total && s->line.rise >= (double)total / 100) return 1;
    return s->line.rise >= (double)d->stats.allocated / 10;
}
static void series_keep(growth *g, const series *s) {
    if (g->count == g->space) {
        const uint32_t space = 2 * g->space + 16;
        series *found = (series *)mlr_build_alloc(g->b, space, sizeof *found);
        if (!found) return;
        if (g->count) memcpy(found, g->found, g->count * sizeof *found);
        g->found = found;
        g->space = space;
    }
    g->found[g->count++] = *s;
}
/* Looks for a line in the n points of a series. If it is level at its end, looks before that. */
static void series_look(growth *g, series_of of, uint32_t row, uint32_t device, uint32_t n) {
    series s;
    uint32_t end = n;
    memset(&s, 0, sizeof s);
    if (n < 2) return;
    s.of = of;
    s.row = row;
    s.device = device;
    s.last = (uint64_t)g->point[n - 1].y;
    s.line = mlr_line_find(g->point, n, g->room);
    if (!(s.line.slope > 0)) {
        end = mlr_line_end(g->point, n);
        if (end == n || !s.last) return;
        s.line = mlr_line_find(g->point, end, g->room);
        s.over = 1;
    }
    if (!(s.line.slope > 0) || !matters(g, &s)) return;
    s.since_ns = (uint64_t)(g->point[s.line.since].t * 6e10 + 0.5);
    s.until_ns = (uint64_t)(g->point[end - 1].t * 6e10 + 0.5);
    series_keep(g, &s);
}

/* -- the rows of snapshots -- */

/* Lists for each row of tags, or of sites, where it stands in the snapshots. Row 0 of a device
   counts as the row `rows` + device. */
static void rows_list(growth *g, series_of of, uint32_t rows) {
    const mlr_profile *p = g->b->profile;
    uint32_t i, k, n = 0;
    memset(g->first, 0, (rows + p->device_count + 1u) * sizeof *g->first);
    for (i = p->snapshot_count; i--;) {
        const mlr_snapshot *s = &p->snapshot[i];
        const mlr_held *list = of == OF_TAG ? s->tag : s->site;
        for (k = of == OF_TAG ? s->tags : s->sites; k--;) {
            const uint32_t row = list[k].row ? list[k].row : rows + 1;
            if (!list[k].row && p->device_count > 1) continue; /* of which device is not known */
            g->entry[n].snapshot = i;
            g->entry[n].bytes = list[k].bytes;
            g->next[n] = g->first[row];
            g->first[row] = ++n;
        }
    }
}
/* Fills in the points of a row. Where a snapshot does not list the row, it had 0 bytes if the
   snapshot lists all, and else it is not known. */
static uint32_t row_points(growth *g, uint32_t row, uint32_t device, const uint64_t *left,
                           uint64_t now) {
    const mlr_profile *p = g->b->profile;
    uint32_t i, n = 0, at = g->first[row];
    for (i = 0; i < p->snapshot_count; i++) {
        const uint64_t missing = left[(size_t)i * p->device_count + device - 1];
        uint64_t bytes = 0;
        if (at && g->entry[at - 1].snapshot == i) {
            bytes = g->entry[at - 1].bytes;
            at = g->next[at - 1];
        } else if (missing > p->device[device - 1].stats.peak / 1000) {
            continue;
        }
        g->point[n].t = minutes(p->snapshot[i].time_ns);
        g->point[n++].y = (double)bytes;
    }
    return end_point(g, n, now);
}
static uint32_t listed_times(const growth *g, uint32_t row) {
    uint32_t n = 0, at;
    for (at = g->first[row]; at; at = g->next[at - 1]) n++;
    return n;
}
static void rows_look(growth *g, series_of of) {
    const mlr_build *b = g->b;
    const mlr_profile *p = b->profile;
    const uint32_t rows = of == OF_TAG ? p->tag_count : p->site_count;
    uint64_t *left = (uint64_t *)mlr_build_alloc(g->b, (size_t)p->snapshot_count * p->device_count,
                                                 sizeof *left);
    uint32_t i, k;
    if (!left) return;
    for (i = 0; i < p->snapshot_count; i++)
        for (k = 1; k <= p->device_count; k++)
            left[(size_t)i * p->device_count + k - 1] = not_listed(p, &p->snapshot[i], k, of);
    rows_list(g, of, rows);
    for (i = 1; i <= rows; i++) {
        const uint32_t device = of == OF_TAG ? p->tag[i - 1].device : p->site[i - 1].device;
        const uint64_t now = of == OF_TAG ? p->tag[i - 1].live : p->site[i - 1].live;
        const uint32_t place = of == OF_SITE ? b->site_place[i] : 0;
        if (!now || listed_times(g, i) < 4 || !b->device_in[device]) continue;
        if (of == OF_TAG ? !b->tag_in[i] : place && !b->place[place - 1].in) continue;
        series_look(g, of, i, device, row_points(g, i, device, left, now));
    }
    if (of != OF_TAG || p->device_count != 1 || !rows || !b->tag_in[0] || b->narrow) return;
    if (listed_times(g, rows + 1) >= 4)
        series_look(g, of, 0, 1, row_points(g, rows + 1, 1, left, b->bare_live[1]));
}
static void devices_look(growth *g) {
    const mlr_profile *p = g->b->profile;
    uint32_t device, i, n;
    for (device = 1; device <= p->device_count && !g->b->narrow; device++) {
        if (!g->b->device_in[device]) continue;
        for (i = n = 0; i < p->snapshot_count; i++) {
            const mlr_snapshot *s = &p->snapshot[i];
            g->point[n].t = minutes(s->time_ns);
            g->point[n++].y = device <= s->levels ? (double)s->level[device - 1].live : 0;
        }
        n = end_point(g, n, p->device[device - 1].stats.allocated);
        series_look(g, OF_DEVICE, 0, device, n);
    }
}

/* -- sentences -- */

static int grows_now(const growth *g, const series *s) {
    const mlr_profile *p = g->b->profile;
    return !s->over && p->uptime_ns >= UINT64_C(60000000000);
}
static uint32_t series_frame(const growth *g, const series *s, uint32_t *place) {
    const mlr_build *b = g->b;
    const mlr_site *site;
    uint32_t i;
    *place = 0;
    if (s->of != OF_SITE) return 0;
    site = &b->profile->site[s->row - 1];
    *place = b->site_place[s->row];
    for (i = 1; !*place && i <= b->places; i++) /* the largest of the places that call it */
        if (b->place[i - 1].site == s->row) *place = i;
    return *place ? b->place[*place - 1].frame : site->frame;
}
static void words_subject(mlr_words *w, const growth *g, const series *s) {
    uint32_t place;
    if (s->of == OF_TAG)
        mlr_words_add(w, s->row ? "tag %n" : "untagged", mlr_tag_name(w->b->profile, s->row));
    else if (s->of == OF_SITE)
        mlr_words_add(w, "%p", series_frame(g, s, &place));
    else
        mlr_words_add(w, "it");
}
/* Adds " grows by 9 MiB a minute since 14:02:07 UTC, 90 MiB so far", or " grew by 9.8 MiB in 1.6 s,
   until 08:39:00 UTC". */
static void words_growth(mlr_words *w, const growth *g, const series *s) {
    const mlr_profile *p = w->b->profile;
    const uint64_t rise = (uint64_t)(s->line.rise + 0.5);
    if (grows_now(g, s) && !p->ended) {
        mlr_words_add(w, " grows by %b a minute since %t, %b so far",
                      (uint64_t)(s->line.slope + 0.5), s->since_ns, rise);
        return;
    }
    mlr_words_add(w, " grew by %b in %d", rise, mlr_less(s->until_ns, s->since_ns));
    if (s->over)
        mlr_words_add(w, ", until %t", s->until_ns);
    else if (p->ended)
        mlr_words_add(w, ", to the end");
}
/* Returns 1 if a site that grows holds at least half of a tag that grows, so that one sentence
   tells both. */
static int told_by_tag(const growth *g, const series *site) {
    const mlr_build *b = g->b;
    uint64_t bytes;
    uint32_t i;
    for (i = 0; i < g->count; i++) {
        const series *s = &g->found[i];
        if (s->of != OF_TAG || s->device != site->device || s->over != site->over) continue;
        if (b->site_place[site->row] &&
            mlr_tag_place(b, s->row, s->device, &bytes) == b->site_place[site->row] &&
            bytes >= s->last / 2)
            return 1;
    }
    return 0;
}
static int has_named(const growth *g, const series *device) {
    uint32_t i;
    for (i = 0; i < g->count; i++)
        if (g->found[i].of != OF_DEVICE && g->found[i].device == device->device &&
            g->found[i].over <= device->over)
            return 1;
    return 0;
}
static void say_series(growth *g, const series *s) {
    mlr_build *b = g->b;
    const mlr_profile *p = b->profile;
    mlr_words w = {NULL, NULL, 0, 0};
    uint64_t within = 0;
    uint32_t place = 0, frame = series_frame(g, s, &place);
    mlr_sentence *said;
    w.b = b;
    words_subject(&w, g, s);
    words_growth(&w, g, s);
    if (s->of == OF_TAG && !(p->lacks & MLR_LACKS_GROUPS))
        place = mlr_tag_place(b, s->row, s->device, &within);
    if (s->of == OF_TAG && place && within >= s->last / 10)
        mlr_words_add(&w, "; %g of what it holds is from %p", within, s->last,
                      frame = b->place[place - 1].frame);
    if (place) mlr_callers_say(&w, place, MLR_BY_LIVE);
    if (s->of == OF_DEVICE) mlr_words_add(&w, "; no tag and no place that is known grows like it");
    said = mlr_say(b, grows_now(g, s) ? MLR_SAYS_growth : MLR_SAYS_grew, s->device,
                   (uint64_t)(s->line.rise + 0.5), &w);
    said->frame = frame;
    if (s->of == OF_TAG && s->row) said->tag = mlr_tag_name(p, s->row);
    if (place) mlr_ages_say(b, said, place);
}

static const mlr_column columns[] = {
    {"rate", "a minute", MLR_RATE, 0},  {"rise", "grew by", MLR_BYTES, 0},
    {"live", "live", MLR_BYTES, 0},     {"since", "since", MLR_SINCE, 0},
    {"until", "until", MLR_SINCE, 0},   {"fit", "fit", MLR_SHARE, 0},
    {"points", "points", MLR_COUNT, 1}, {"of", "of", MLR_TEXT, 0},
    {"name", "name", MLR_TEXT, 0},      {"over", "ended", MLR_TEXT, 0},
    {"device", "device", MLR_TEXT, 1}};
static void growth_row(growth *g, mlr_table *t, const series *s) {
    static const char *const of[] = {"tag", "place", "device"};
    uint32_t place, frame = series_frame(g, s, &place);
    mlr_cell *row = mlr_row_add(g->b, t, frame);
    if (g->b->profile->uptime_ns >= UINT64_C(60000000000))
        row[0].number = (uint64_t)(s->line.slope + 0.5);
    row[1].number = (uint64_t)(s->line.rise + 0.5);
    row[2].number = s->last;
    row[3].number = s->since_ns;
    row[4].number = s->until_ns;
    row[5].number = (uint64_t)(s->line.fit * 1000 + 0.5);
    row[6].number = s->line.points;
    row[7].text = of[s->of];
    row[8].text = s->of == OF_TAG    ? mlr_tag_name(g->b->profile, s->row)
                  : s->of == OF_SITE ? mlr_place_name(g->b, frame)
                                     : mlr_device_name(g->b->profile, s->device);
    row[9].text = s->over ? "yes" : "";
    row[10].text = mlr_device_name(g->b->profile, s->device);
}
static void growth_tell(growth *g) {
    mlr_build *b = g->b;
    mlr_table *t =
        mlr_table_begin(b, MLR_TABLE_growth, columns, (uint32_t)(sizeof columns / sizeof *columns));
    mlr_ranked *list = (mlr_ranked *)mlr_build_alloc(b, g->count, sizeof *list);
    uint32_t i;
    t->more_bytes = MLR_UNKNOWN;
    for (i = 0; list && i < g->count; i++) {
        list[i].key = (g->found[i].over ? 0 : UINT64_C(1) << 62) + (uint64_t)g->found[i].line.rise;
        list[i].number = i;
    }
    if (list) mlr_rank(list, g->count);
    for (i = 0; list && i < g->count; i++) {
        const series *s = &g->found[list[i].number];
        uint32_t place;
        if (!s->over && s->of == OF_SITE && series_frame(g, s, &place) && place)
            b->place_grows[place] = 1;
        if (i < b->top)
            growth_row(g, t, s);
        else
            t->more++;
        if (s->of == OF_DEVICE ? has_named(g, s) : s->of == OF_SITE && told_by_tag(g, s)) continue;
        say_series(g, s);
    }
}

MLR_PRIVATE void mlr_growth_answer(mlr_build *b) {
    const mlr_profile *p = b->profile;
    const uint32_t rows = p->tag_count > p->site_count ? p->tag_count : p->site_count;
    size_t entries = 1;
    growth g;
    uint32_t i;
    if (p->snapshot_count < 2) return;
    memset(&g, 0, sizeof g);
    g.b = b;
    for (i = 0; i < p->snapshot_count; i++) {
        const mlr_snapshot *s = &p->snapshot[i];
        entries += s->tags > s->sites ? s->tags : s->sites;
    }
    g.point = (mlr_point *)mlr_build_alloc(b, p->snapshot_count + 1u, sizeof *g.point);
    g.room = (double *)mlr_build_alloc(b, p->snapshot_count + 1u, sizeof *g.room);
    g.entry = (entry *)mlr_build_alloc(b, entries, sizeof *g.entry);
    g.next = (uint32_t *)mlr_build_alloc(b, entries, sizeof *g.next);
    g.first = (uint32_t *)mlr_build_alloc(b, rows + p->device_count + 2u, sizeof *g.first);
    b->place_grows = (unsigned char *)mlr_build_alloc(b, b->places + 1u, 1);
    if (b->failed) return;
    rows_look(&g, OF_TAG);
    if (!b->by_tag) rows_look(&g, OF_SITE);
    devices_look(&g);
    growth_tell(&g);
}
