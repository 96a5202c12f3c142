#include "answers/capacity.h"
#include "answers/peaks.h"
#include "answers/places.h"

static int known(uint64_t v) { return v != MLR_UNKNOWN; }
static int is_limit(uint64_t v) { return v && v < UINT64_MAX - 1; }

/* -- sums over the devices that use a physical device -- */

static uint64_t live_on(const mlr_profile *p, uint32_t row) {
    uint64_t sum = 0;
    uint32_t i;
    for (i = 0; i < p->device_count; i++)
        if (p->device[i].capacity == row) sum = mlr_more(sum, p->device[i].stats.allocated);
    return sum;
}
static uint64_t pools_keep(const mlr_profile *p, uint32_t row) {
    uint64_t sum = 0;
    uint32_t i;
    for (i = 0; i < p->device_count; i++)
        if (p->device[i].capacity == row) sum = mlr_more(sum, p->device[i].stats.cached);
    return sum;
}
static uint32_t device_on(const mlr_build *b, uint32_t row) {
    uint32_t i;
    for (i = 1; i <= b->profile->device_count; i++)
        if (b->profile->device[i - 1].capacity == row && b->device_in[i]) return i;
    return 0;
}
/* Bytes of this process that neither the books nor the host's pools explain. */
static uint64_t not_recorded(const mlr_profile *p, uint32_t row) {
    const mlr_capacity *c = &p->capacity[row - 1];
    if (!known(c->process) || !known(c->self)) return MLR_UNKNOWN;
    return mlr_less(c->process, c->self + pools_keep(p, row));
}
/* Bytes of other processes. Where the source does not know this process, pools count as others. */
static uint64_t others(const mlr_profile *p, uint32_t row) {
    const mlr_capacity *c = &p->capacity[row - 1];
    if (!known(c->others) || known(c->process)) return c->others;
    return mlr_less(c->others, pools_keep(p, row));
}

/* -- sentences -- */

static void say_out_of_memory(mlr_build *b, uint32_t device) {
    const mlr_device *d = &b->profile->device[device - 1];
    const mlr_capacity *c = d->capacity ? &b->profile->capacity[d->capacity - 1] : NULL;
    const mlr_oom *o = &d->oom;
    const mlr_peak_holders h = mlr_peak_holders_of(b, device);
    mlr_words w = {NULL, NULL, 0, 0};
    mlr_sentence *s;
    w.b = b;
    mlr_words_add(&w, "%b wanted with %b live", o->bytes, o->live);
    if (o->frame) mlr_words_add(&w, " at %p", o->frame);
    if (c && known(c->total) && known(o->used) && mlr_more(o->used, o->bytes) > c->total)
        mlr_words_add(&w, ", %b short", mlr_more(o->used, o->bytes) - c->total);
    if (d->stats.oom_failures > 1) mlr_words_add(&w, ", %u times", d->stats.oom_failures);
    if (h.noted >= o->live / 2) mlr_peak_holders_say(&w, &h);
    s = mlr_say(b, MLR_SAYS_out_of_memory, device, mlr_more(o->live, o->bytes), &w);
    s->frame = o->frame;
    if (h.tag) s->tag = mlr_tag_name(b->profile, h.tag);
}
static void say_recovered(mlr_build *b, uint32_t device) {
    const mlr_stats *s = &b->profile->device[device - 1].stats;
    mlr_words w = {NULL, NULL, 0, 0};
    w.b = b;
    mlr_words_add(&w, "%u attempts found no memory; %u requests were saved", s->oom_attempts,
                  s->recoveries);
    if (s->gc_reclaimed) mlr_words_add(&w, ", collections reclaimed %b", s->gc_reclaimed);
    (void)mlr_say(b, MLR_SAYS_recovered, device, s->gc_reclaimed, &w);
}
static void say_over(mlr_build *b, uint32_t device, const char *account, uint64_t bytes,
                     uint64_t limit) {
    mlr_words w = {NULL, NULL, 0, 0};
    w.b = b;
    if (account) mlr_words_add(&w, "account %n has ", account);
    mlr_words_add(&w, "%b of %b", bytes, limit);
    (void)mlr_say(b, MLR_SAYS_over_limit, device, bytes, &w);
}
static void say_limits(mlr_build *b) {
    const mlr_profile *p = b->profile;
    uint32_t i, device;
    for (i = 1; i <= p->capacity_count; i++) {
        const uint64_t live = live_on(p, i), limit = p->capacity[i - 1].limit;
        device = device_on(b, i);
        if (device && is_limit(limit) && live > limit) say_over(b, device, NULL, live, limit);
    }
    for (i = 1; i <= p->device_count; i++) {
        const mlr_device *d = &p->device[i - 1];
        if (b->device_in[i] && !d->capacity && is_limit(d->stats.limit) &&
            d->stats.allocated > d->stats.limit)
            say_over(b, i, NULL, d->stats.allocated, d->stats.limit);
    }
    for (i = 0; i < p->account_count; i++)
        if (is_limit(p->account[i].limit) && p->account[i].bytes > p->account[i].limit &&
            !b->options.device)
            say_over(b, 0, p->account[i].name, p->account[i].bytes, p->account[i].limit);
}
/* Adds who holds most: the largest other process, or all others, if they hold more than this one;
   then the largest tag; then what pools keep free. */
static void words_holders(mlr_words *w, uint32_t row) {
    const mlr_build *b = w->b;
    const mlr_profile *p = b->profile;
    const mlr_capacity *c = &p->capacity[row - 1];
    const uint64_t other = others(p, row), keep = pools_keep(p, row);
    uint32_t i, most = 0;
    if (known(other) && other > live_on(p, row)) {
        if (c->processes)
            mlr_words_add(w, "; process %u %n holds %b", c->process_list[0].pid,
                          c->process_list[0].name, c->process_list[0].bytes);
        else
            mlr_words_add(w, "; other processes hold %b", other);
    }
    for (i = 1; i <= p->tag_count; i++)
        if (p->device[p->tag[i - 1].device - 1].capacity == row &&
            p->tag[i - 1].live > (most ? p->tag[most - 1].live : 0))
            most = i;
    if (most) mlr_words_add(w, "; tag %n holds %b", mlr_tag_name(p, most), p->tag[most - 1].live);
    if (keep) mlr_words_add(w, "; the host's pool keeps %b free", keep);
}
static void say_full(mlr_build *b, uint32_t row) {
    const mlr_capacity *c = &b->profile->capacity[row - 1];
    const uint32_t device = device_on(b, row);
    mlr_words w = {NULL, NULL, 0, 0};
    w.b = b;
    if (!known(c->total) || !known(c->free) || c->free > c->total / 20 || !c->total) return;
    if (!device && b->options.device) return;
    mlr_words_add(&w, "%b of %b free", c->free, c->total);
    words_holders(&w, row);
    (void)mlr_say(b, MLR_SAYS_full, device, c->total - c->free, &w);
}

/* -- tables -- */

static const mlr_column columns[] = {{"total", "total", MLR_BYTES, 0},
                                     {"used", "used", MLR_BYTES, 0},
                                     {"free", "free", MLR_BYTES, 0},
                                     {"ours", "ours", MLR_BYTES, 0},
                                     {"pools", "pools keep", MLR_BYTES, 0},
                                     {"not_recorded", "not recorded", MLR_BYTES, 0},
                                     {"others", "others", MLR_BYTES, 0},
                                     {"not_resident", "not resident", MLR_BYTES, 1},
                                     {"context", "context", MLR_BYTES, 1},
                                     {"neighbours", "neighbours", MLR_BYTES, 1},
                                     {"reserved", "reserved", MLR_BYTES, 1},
                                     {"unaccounted", "unaccounted", MLR_CHANGE, 1},
                                     {"limit", "limit", MLR_BYTES, 1},
                                     {"untagged", "untagged", MLR_BYTES, 1},
                                     {"age", "sampled ago", MLR_DURATION, 1},
                                     {"device", "device", MLR_TEXT, 0},
                                     {"processes", "other processes", MLR_TEXT, 0}};
static const char *processes_text(mlr_build *b, const mlr_capacity *c) {
    mlr_words w = {NULL, NULL, 0, 0};
    uint32_t i;
    w.b = b;
    for (i = 0; i < c->processes && i < 4; i++)
        mlr_words_add(&w, i ? ", %u %n %b" : "%u %n %b", c->process_list[i].pid,
                      c->process_list[i].name, c->process_list[i].bytes);
    return mlr_words_end(&w);
}
static void capacity_row(mlr_build *b, mlr_table *t, uint32_t row) {
    const mlr_capacity *c = &b->profile->capacity[row - 1];
    mlr_cell *cell = mlr_row_add(b, t, 0);
    cell[0].number = c->total;
    cell[1].number = c->used;
    cell[2].number = c->free;
    cell[3].number = c->self;
    if (pools_keep(b->profile, row)) cell[4].number = pools_keep(b->profile, row);
    cell[5].number = not_recorded(b->profile, row);
    cell[6].number = others(b->profile, row);
    cell[7].number = c->not_resident;
    cell[8].number = c->context;
    cell[9].number = c->neighbours;
    cell[10].number = c->held;
    if (c->unaccounted != INT64_MIN) cell[11].number = (uint64_t)c->unaccounted;
    if (is_limit(c->limit)) cell[12].number = c->limit;
    cell[13].number = c->untagged;
    cell[14].number = c->age_ns;
    cell[15].text = c->device;
    cell[16].text = processes_text(b, c);
}
MLR_PRIVATE void mlr_capacity_answer(mlr_build *b) {
    const mlr_profile *p = b->profile;
    mlr_table *t = mlr_table_begin(b, MLR_TABLE_capacity, columns,
                                   (uint32_t)(sizeof columns / sizeof *columns));
    uint32_t i;
    if (b->narrow) return;
    t->note = "ours: live in the books; not recorded: ours, and in neither the books nor a pool; "
              "others: other processes";
    for (i = 1; i <= p->device_count; i++) {
        const mlr_device *d = &p->device[i - 1];
        if (!b->device_in[i]) continue;
        if (d->oom.time_ns && d->stats.oom_failures)
            say_out_of_memory(b, i);
        else if (d->stats.oom_attempts)
            say_recovered(b, i);
    }
    say_limits(b);
    t->more_bytes = MLR_UNKNOWN;
    for (i = 1; i <= p->capacity_count; i++) {
        say_full(b, i);
        if (b->options.device && !device_on(b, i)) continue;
        if (t->rows < b->top)
            capacity_row(b, t, i);
        else
            t->more++;
    }
}
