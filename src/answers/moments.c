#include "answers/moments.h"

/* -- the curve: live bytes of the devices that are asked for -- */

static uint64_t level_of(const mlr_build *b, const mlr_snapshot *s) {
    uint64_t sum = 0;
    uint32_t i;
    for (i = 0; i < s->levels && i < b->profile->device_count; i++)
        if (b->device_in[i + 1]) sum = mlr_more(sum, s->level[i].live);
    return s->levels ? sum : s->live;
}
static const mlr_column curve_columns[] = {{"time", "time", MLR_SINCE, 0},
                                           {"live", "live", MLR_BYTES, 0}};
static void curve_add(mlr_build *b, mlr_table *t, uint64_t time, uint64_t live) {
    mlr_cell *row = mlr_row_add(b, t, 0);
    row[0].number = time;
    row[1].number = live;
}
/* Returns the one device that is asked for, if it is one and the time of its peak is known. */
static uint32_t only_device(const mlr_build *b) {
    uint32_t i, one = 0, n = 0;
    for (i = 1; i <= b->profile->device_count; i++) {
        if (!b->device_in[i]) continue;
        n++;
        one = i;
    }
    return n == 1 && b->profile->device[one - 1].peak_time_ns ? one : 0;
}
/* Adds the points of some snapshots: of each stretch the lowest and the highest, in their order. */
static void curve_stretch(mlr_build *b, mlr_table *t, uint32_t from, uint32_t to) {
    const mlr_snapshot *s = b->profile->snapshot;
    uint32_t i, low = from, high = from;
    for (i = from; i < to; i++) {
        if (level_of(b, &s[i]) < level_of(b, &s[low])) low = i;
        if (level_of(b, &s[i]) > level_of(b, &s[high])) high = i;
    }
    for (i = from; i < to; i++)
        if (i == low || i == high) curve_add(b, t, s[i].time_ns, level_of(b, &s[i]));
}
static void curve_table(mlr_build *b) {
    const mlr_profile *p = b->profile;
    mlr_table *t = mlr_table_begin(b, MLR_TABLE_curve, curve_columns, 2);
    const uint32_t n = p->snapshot_count, one = only_device(b);
    const uint32_t step = n > MLR_CURVE ? n / (MLR_CURVE / 2) + 1 : 1;
    const uint64_t peak_ns = one ? p->device[one - 1].peak_time_ns : MLR_UNKNOWN;
    uint64_t live = 0, most = 0, peak = 0;
    uint32_t i;
    int told = one == 0;
    if (!n || b->narrow) return;
    for (i = 0; i < n; i += step) {
        if (!told && p->snapshot[i].time_ns > peak_ns) {
            curve_add(b, t, peak_ns, p->device[one - 1].stats.peak);
            told = 1;
        }
        curve_stretch(b, t, i, i + step < n ? i + step : n);
    }
    if (!told) curve_add(b, t, peak_ns, p->device[one - 1].stats.peak);
    for (i = 1; i <= p->device_count; i++) {
        if (!b->device_in[i]) continue;
        live = mlr_more(live, p->device[i - 1].stats.allocated);
        peak = mlr_more(peak, p->device[i - 1].stats.peak);
    }
    if (p->uptime_ns > t->cell[2 * t->rows - 2].number) curve_add(b, t, p->uptime_ns, live);
    for (i = 0; i < t->rows; i++)
        if (t->cell[2 * i + 1].number > most) most = t->cell[2 * i + 1].number;
    t->note = most >= peak ? mlr_text_make(b, "up to %b, the peak", most)
                           : mlr_text_make(b, "up to %b at the points drawn; peak%s %b", most,
                                           one ? "" : "s, added up,", peak);
}

/* -- a moment -- */

static const mlr_column moment_columns[] = {
    {"share", "share", MLR_SHARE, 0}, {"bytes", "live", MLR_BYTES, 0},
    {"time", "time", MLR_SINCE, 1},   {"of", "of", MLR_TEXT, 0},
    {"name", "name", MLR_TEXT, 0},    {"device", "device", MLR_TEXT, 0}};
static void moment_row(mlr_build *b, mlr_table *t, const mlr_snapshot *s, uint32_t device,
                       uint64_t bytes, uint32_t frame, const char *of, const char *name) {
    const uint64_t whole = device && device <= s->levels ? s->level[device - 1].live : s->live;
    mlr_cell *row = mlr_row_add(b, t, frame);
    row[0].number = mlr_share(bytes, whole);
    row[1].number = bytes;
    row[2].number = s->time_ns;
    row[3].text = of;
    row[4].text = name;
    if (device && b->profile->device_count > 1) row[5].text = mlr_device_name(b->profile, device);
}
static void moment_held(mlr_build *b, mlr_table *t, const mlr_snapshot *s, int tags) {
    const mlr_profile *p = b->profile;
    const mlr_held *list = tags ? s->tag : s->site;
    const uint32_t n = tags ? s->tags : s->sites;
    uint32_t i;
    for (i = 0; i < n; i++) {
        const uint32_t row = list[i].row;
        const uint32_t device = !row ? 0 : tags ? p->tag[row - 1].device : p->site[row - 1].device;
        const uint32_t place = !tags && row ? b->site_place[row] : 0;
        const uint32_t frame = tags || !row ? 0
                               : place      ? b->place[place - 1].frame
                                            : p->site[row - 1].frame;
        if (device && !b->device_in[device]) continue;
        if (tags ? !b->tag_in[row] : place && !b->place[place - 1].in) continue;
        moment_row(b, t, s, device, list[i].bytes, frame, tags ? "tag" : "place",
                   tags    ? mlr_tag_name(p, row)
                   : frame ? mlr_place_name(b, frame)
                           : "(no place known)");
    }
}
static void moment_table(mlr_build *b) {
    const mlr_profile *p = b->profile;
    const mlr_snapshot *s = NULL;
    mlr_table *t;
    uint32_t i;
    for (i = 0; i < p->snapshot_count; i++)
        if (!s || p->snapshot[i].time_ns <= b->options.at_ns) s = &p->snapshot[i];
    if (!s) return;
    t = mlr_table_begin(b, MLR_TABLE_moment, moment_columns,
                        (uint32_t)(sizeof moment_columns / sizeof *moment_columns));
    t->title = mlr_text_make(b, "who held what at %t", s->time_ns);
    t->note = "of the last snapshot up to the moment, which has the largest tags and places";
    for (i = 1; i <= s->levels && i <= p->device_count; i++)
        if (b->device_in[i] && s->level[i - 1].live)
            moment_row(b, t, s, i, s->level[i - 1].live, 0, "device", p->device[i - 1].name);
    moment_held(b, t, s, 1);
    if (!b->by_tag) moment_held(b, t, s, 0);
}

static const mlr_column checkpoint_columns[] = {{"time", "time", MLR_SINCE, 0},
                                                {"live", "live", MLR_BYTES, 0},
                                                {"blocks", "blocks", MLR_COUNT, 0},
                                                {"name", "checkpoint", MLR_TEXT, 0}};
static void checkpoints_table(mlr_build *b) {
    const mlr_profile *p = b->profile;
    mlr_table *t = mlr_table_begin(b, MLR_TABLE_checkpoints, checkpoint_columns, 4);
    uint32_t i;
    t->more_bytes = MLR_UNKNOWN;
    for (i = 0; i < p->snapshot_count; i++) {
        const mlr_snapshot *s = &p->snapshot[i];
        mlr_cell *row;
        if (!*s->name) continue;
        if (t->rows >= b->top) {
            t->more++;
            continue;
        }
        row = mlr_row_add(b, t, 0);
        row[0].number = s->time_ns;
        row[1].number = level_of(b, s);
        row[2].number = s->blocks;
        row[3].text = s->name;
    }
}
MLR_PRIVATE void mlr_moments_answer(mlr_build *b) {
    curve_table(b);
    if (b->options.has_at) moment_table(b);
    checkpoints_table(b);
}
