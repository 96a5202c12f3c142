#include "answers/holders.h"
#include <stdlib.h>
#include <string.h>
#include "answers/ages.h"
#include "answers/callers.h"
#include "answers/places.h"
#include "profile/read.h"

/* -- the sentence -- */

typedef struct holder { /* the largest holder of a device by tag or by place */
    const char *name;   /* "tag weights", "untagged", "arenas"; NULL: none, or a place */
    const char *tag;
    uint32_t place;
    uint64_t bytes;
} holder;

/* Finds the largest tag; what has no tag counts as one, and so do arenas without one. */
static holder largest_tag(mlr_build *b, uint32_t device) {
    const mlr_profile *p = b->profile;
    const uint64_t arenas = b->narrow ? 0 : p->device[device - 1].arena_untagged;
    holder most = {NULL, NULL, 0, 0};
    uint32_t i, tags = 0;
    for (i = 1; i <= p->tag_count; i++) {
        if (p->tag[i - 1].device != device || !b->tag_in[i]) continue;
        tags++;
        if (b->tag_live[i] <= most.bytes) continue;
        most.bytes = b->tag_live[i];
        most.tag = p->tag[i - 1].name;
    }
    if (most.tag) most.name = mlr_text_make(b, "tag %n", most.tag);
    if (tags && mlr_less(b->bare_live[device], arenas) > most.bytes) {
        most.bytes = mlr_less(b->bare_live[device], arenas);
        most.name = "untagged";
        most.tag = NULL;
    }
    if (arenas > most.bytes) {
        most.bytes = arenas;
        most.name = "arenas";
        most.tag = NULL;
    }
    return most;
}
static holder largest_place(const mlr_build *b, uint32_t device) {
    holder most = {NULL, NULL, 0, 0};
    uint32_t i;
    for (i = 1; i <= b->places; i++) {
        if (b->place[i - 1].device != device || b->place_live[i] <= most.bytes) continue;
        most.bytes = b->place_live[i];
        most.place = i;
    }
    return most;
}

MLR_PRIVATE uint32_t mlr_tag_place(const mlr_build *b, uint32_t tag, uint32_t device,
                                   uint64_t *bytes) {
    const mlr_profile *p = b->profile;
    uint64_t *sum = (uint64_t *)calloc(b->places + 1u, sizeof *sum);
    uint32_t i, most = 0;
    for (i = 0; sum && i < p->group_count; i++) {
        const mlr_group *g = &p->group[i];
        if (g->tag == tag && g->device == device) sum[mlr_place_of_group(b, g)] += g->bytes;
    }
    for (i = 1; sum && i <= b->places; i++)
        if (sum[i] > (most ? sum[most] : 0)) most = i;
    *bytes = most ? sum[most] : 0;
    free(sum);
    return most;
}
/* Adds "of tag weights 95 % is load loader.c:10" to a sentence, from the groups alone. */
static void say_within(mlr_build *b, mlr_sentence *s, const holder *tag, uint32_t device) {
    const mlr_profile *p = b->profile;
    uint32_t i, place;
    uint64_t bytes;
    if (!tag->tag || (p->lacks & MLR_LACKS_GROUPS)) return;
    for (i = 1; i <= p->tag_count; i++)
        if (p->tag[i - 1].device == device && !strcmp(p->tag[i - 1].name, tag->tag)) break;
    if (i > p->tag_count || !(place = mlr_tag_place(b, i, device, &bytes))) return;
    mlr_say_more(b, s,
                 mlr_text_make(b, "of tag %n %g is from %p", tag->tag, bytes, p->tag[i - 1].live,
                               b->place[place - 1].frame));
}
static void device_holder(mlr_build *b, uint32_t device) {
    const mlr_profile *p = b->profile;
    const uint64_t live = b->device_live[device];
    holder tag = largest_tag(b, device), place = largest_place(b, device);
    mlr_words w = {NULL, NULL, 0, 0};
    mlr_sentence *s;
    w.b = b;
    if (tag.bytes < live / 100) tag.name = NULL;
    if (place.bytes < live / 100) place.place = 0;
    if (!live || !(tag.name || place.place)) return;
    mlr_words_add(&w, p->ended ? "of %b still live at the end:" : "of %b:", live);
    if (tag.name) mlr_words_add(&w, " %s %g", tag.name, tag.bytes, live);
    if (place.place) {
        mlr_words_add(&w, tag.name ? "; %p %g" : " %p %g", b->place[place.place - 1].frame,
                      place.bytes, live);
        mlr_callers_say(&w, place.place, MLR_BY_LIVE);
    }
    if (p->inherited_bytes && p->device[device - 1].capacity == p->device[0].capacity &&
        !strncmp(p->device[device - 1].name, "cpu", 3))
        mlr_words_add(&w, "; %b in %u blocks were inherited at fork", p->inherited_bytes,
                      p->inherited_blocks);
    s = mlr_say(b, MLR_SAYS_holders, device, live, &w);
    s->frame = place.place ? b->place[place.place - 1].frame : 0;
    s->tag = tag.name ? tag.tag : NULL;
    if (tag.name) say_within(b, s, &tag, device);
    if (place.place) mlr_ages_say(b, s, place.place);
}

/* -- the tables -- */

static const mlr_column tag_columns[] = {
    {"share", "share", MLR_SHARE, 0},      {"live", "live", MLR_BYTES, 0},
    {"at_peak", "at peak", MLR_BYTES, 0},  {"peak", "own peak", MLR_BYTES, 0},
    {"blocks", "blocks", MLR_COUNT, 0},    {"expected", "expected", MLR_BYTES, 1},
    {"variance", "off by", MLR_CHANGE, 1}, {"peak_error", "peak low by", MLR_BYTES, 1},
    {"tag", "tag", MLR_TEXT, 0},           {"device", "device", MLR_TEXT, 0}};

static const char *device_cell(const mlr_build *b, uint32_t device) {
    return b->profile->device_count > 1 ? mlr_device_name(b->profile, device) : "";
}
static void tag_row(mlr_build *b, mlr_table *t, uint32_t i) {
    const mlr_tag *tag = &b->profile->tag[i - 1];
    mlr_cell *row = mlr_row_add(b, t, 0);
    row[0].number = mlr_share(b->tag_live[i], b->device_live[tag->device]);
    row[1].number = b->tag_live[i];
    row[2].number = mlr_tag_at_peak(b, i);
    row[3].number = tag->peak;
    row[4].number = tag->blocks;
    if (tag->expected) row[5].number = tag->expected;
    if (tag->expected) row[6].number = (uint64_t)tag->variance;
    row[7].number = tag->peak_error;
    row[8].text = tag->name;
    row[9].text = device_cell(b, tag->device);
}
/* Adds what has no tag: of each device one row, and one for arenas without a tag. */
static void bare_row(mlr_build *b, mlr_table *t, uint32_t device, int arenas) {
    const uint64_t arena = b->narrow ? 0 : b->profile->device[device - 1].arena_untagged;
    const uint64_t bytes = arenas ? arena : mlr_less(b->bare_live[device], arena);
    mlr_cell *row;
    if (!bytes) return;
    row = mlr_row_add(b, t, 0);
    row[0].number = mlr_share(bytes, b->device_live[device]);
    row[1].number = bytes;
    row[8].text = arenas ? "(arenas without a tag)" : "(untagged)";
    row[9].text = device_cell(b, device);
}
/* The order of rows: tags by number from 1, then for each device its untagged and its arenas. */
static void tags_table(mlr_build *b) {
    const mlr_profile *p = b->profile;
    mlr_table *t = mlr_table_begin(b, MLR_TABLE_tags, tag_columns,
                                   (uint32_t)(sizeof tag_columns / sizeof *tag_columns));
    mlr_ranked *list =
        (mlr_ranked *)mlr_build_alloc(b, p->tag_count + 2u * p->device_count + 1u, sizeof *list);
    uint32_t i, n = 0, devices = 0;
    if (!list || !p->tag_count) return;
    for (i = 1; i <= p->tag_count; i++) {
        const uint64_t at_peak = mlr_tag_at_peak(b, i);
        if (!b->tag_in[i] || (b->narrow && !b->tag_live[i])) continue;
        list[n].key = b->tag_live[i];
        if (b->options.by == MLR_BY_PEAK || (b->options.by == MLR_BY_HELD && at_peak > list[n].key))
            list[n].key = at_peak == MLR_UNKNOWN ? b->tag_live[i] : at_peak;
        list[n++].number = i;
    }
    for (i = 1; i <= p->device_count; i++, devices++) {
        if (!b->device_in[i] || !b->tag_in[0]) continue;
        list[n].key = b->bare_live[i];
        list[n++].number = p->tag_count + i;
    }
    mlr_rank(list, n);
    for (i = 0; i < n; i++) {
        if (t->rows >= b->top) {
            t->more++;
            t->more_bytes +=
                list[i].number <= p->tag_count ? b->tag_live[list[i].number] : list[i].key;
        } else if (list[i].number <= p->tag_count) {
            tag_row(b, t, list[i].number);
        } else {
            bare_row(b, t, list[i].number - p->tag_count, 0);
            bare_row(b, t, list[i].number - p->tag_count, 1);
        }
    }
}

static const mlr_column site_columns[] = {{"share", "share", MLR_SHARE, 0},
                                          {"live", "live", MLR_BYTES, 0},
                                          {"at_peak", "at peak", MLR_BYTES, 0},
                                          {"peak", "own peak", MLR_BYTES, 1},
                                          {"blocks", "blocks", MLR_COUNT, 0},
                                          {"allocs", "allocs", MLR_COUNT, 0},
                                          {"frees", "frees", MLR_COUNT, 1},
                                          {"allocated", "allocated", MLR_BYTES, 1},
                                          {"temporaries", "temporary", MLR_COUNT, 1},
                                          {"peak_error", "peak low by", MLR_BYTES, 1},
                                          {"place", "place", MLR_TEXT, 0},
                                          {"from", "called from", MLR_TEXT, 0},
                                          {"sizes", "sizes", MLR_TEXT, 1},
                                          {"device", "device", MLR_TEXT, 0}};

MLR_PRIVATE uint64_t mlr_place_key(const mlr_build *b, uint32_t number) {
    const mlr_place *place = &b->place[number - 1];
    const uint64_t live = b->place_live[number];
    switch (b->options.by) {
    case MLR_BY_PEAK: return place->at_peak;
    case MLR_BY_ALLOCS: return place->allocs;
    case MLR_BY_ALLOCATED: return place->alloc_bytes;
    case MLR_BY_TEMPORARY: return place->temporaries;
    case MLR_BY_HELD: return b->by_tag || live > place->at_peak ? live : place->at_peak;
    default: return live;
    }
}
/* Returns "1020 of 64 KiB to 128 KiB, 3 of 1 MiB to 2 MiB", the largest classes by bytes. */
static const char *sizes_text(mlr_build *b, const mlr_sizes *sizes) {
    mlr_words w = {NULL, NULL, 0, 0};
    uint32_t k, shown = 0;
    w.b = b;
    for (k = MLR_SIZES; sizes && k-- && shown < 4;) {
        if (!sizes->blocks[k]) continue;
        mlr_words_add(&w, shown++ ? ", %u of" : "%u of", sizes->blocks[k]);
        if (!k)
            mlr_words_add(&w, " 0 B");
        else
            mlr_words_add(&w, " %b to %b", (uint64_t)1 << (k - 1), (uint64_t)1 << k);
    }
    return mlr_words_end(&w);
}
static void site_row(mlr_build *b, mlr_table *t, uint32_t number, uint64_t whole) {
    const mlr_place *place = &b->place[number - 1];
    const mlr_by by = b->options.by;
    mlr_cell *row = mlr_row_add(b, t, place->frame);
    row[0].number = mlr_share(by == MLR_BY_HELD ? b->place_live[number] : mlr_place_key(b, number),
                              by == MLR_BY_HELD ? b->device_live[place->device] : whole);
    row[1].number = b->place_live[number];
    row[4].number = b->place_blocks[number];
    if (!b->by_tag) {
        row[2].number = place->at_peak;
        row[3].number = place->peak;
        row[5].number = place->allocs;
        row[6].number = place->frees;
        row[7].number = place->alloc_bytes;
        row[8].number = place->temporaries;
        if (place->whole) row[9].number = place->peak_error;
    }
    row[10].text = mlr_place_name(b, place->frame);
    row[11].text = mlr_callers_text(b, number, by);
    if (place->whole) row[12].text = sizes_text(b, b->profile->site[place->site - 1].sizes);
    row[13].text = device_cell(b, place->device);
}
/* Adds what no place has: bytes of arenas, and of blocks without a site. */
static void sites_rest(mlr_build *b, mlr_table *t) {
    const mlr_profile *p = b->profile;
    uint32_t device, i, k;
    for (device = 1; !b->narrow && device <= p->device_count; device++) {
        uint64_t rest[2];
        rest[0] = p->device[device - 1].arena;
        rest[1] = mlr_less(b->device_live[device], rest[0]);
        for (i = 1; i <= b->places; i++)
            if (b->place[i - 1].device == device) rest[1] = mlr_less(rest[1], b->place_live[i]);
        for (k = 0; k < 2; k++) {
            mlr_cell *row;
            if (!rest[k] || !b->device_in[device]) continue;
            row = mlr_row_add(b, t, 0);
            row[0].number = mlr_share(rest[k], b->device_live[device]);
            row[1].number = rest[k];
            row[10].text = k ? "(no place known)" : "(arenas)";
            row[13].text = device_cell(b, device);
        }
    }
}
static void sites_table(mlr_build *b) {
    mlr_table *t = mlr_table_begin(b, MLR_TABLE_sites, site_columns,
                                   (uint32_t)(sizeof site_columns / sizeof *site_columns));
    mlr_ranked *list = (mlr_ranked *)mlr_build_alloc(b, b->places, sizeof *list);
    uint32_t *shown = (uint32_t *)mlr_build_alloc(b, b->top, sizeof *shown);
    uint64_t whole = 0;
    uint32_t i, n = 0;
    if (!list || !shown) return;
    for (i = 1; i <= b->places; i++) {
        list[n].key = b->place[i - 1].in ? mlr_place_key(b, i) : 0;
        list[n].number = i;
        whole += list[n].key;
        n += list[n].key || (b->place[i - 1].in && !b->by_tag && b->place[i - 1].allocs);
    }
    mlr_rank(list, n);
    for (i = 0; i < n && i < b->top; i++) {
        site_row(b, t, list[i].number, whole);
        shown[i] = list[i].number;
    }
    for (; i < n; i++, t->more++) t->more_bytes += b->place_live[list[i].number];
    sites_rest(b, t);
    mlr_callers_table(b, shown, n < b->top ? n : b->top);
}

/* -- by tag, place and scope together -- */

static const mlr_column where_columns[] = {{"live", "live", MLR_BYTES, 0},
                                           {"blocks", "blocks", MLR_COUNT, 0},
                                           {"pending", "pending", MLR_BYTES, 1},
                                           {"oldest", "oldest", MLR_DURATION, 0},
                                           {"youngest", "youngest", MLR_DURATION, 1},
                                           {"tag", "tag", MLR_TEXT, 0},
                                           {"place", "place", MLR_TEXT, 0},
                                           {"scope", "scope", MLR_TEXT, 0},
                                           {"device", "device", MLR_TEXT, 0}};

typedef struct where_row {
    uint32_t device, tag, place, scope, site;
    int arena;
    uint64_t bytes, blocks, pending, oldest, youngest;
} where_row;
static int where_order(const void *a, const void *b) {
    const where_row *x = (const where_row *)a, *y = (const where_row *)b;
    const uint32_t i[5] = {x->device, x->tag, x->place, x->scope, x->place ? 0 : x->site};
    const uint32_t k[5] = {y->device, y->tag, y->place, y->scope, y->place ? 0 : y->site};
    return x->arena != y->arena ? x->arena - y->arena : memcmp(i, k, sizeof i);
}
/* Joins the groups that differ in their stacks alone. Returns how many rows there are. */
static uint32_t where_join(mlr_build *b, where_row *row) {
    const mlr_profile *p = b->profile;
    uint32_t i, n = 0, joined = 0;
    for (i = 0; i < p->group_count; i++) {
        const mlr_group *g = &p->group[i];
        const where_row r = {g->device,    g->tag,        mlr_place_of_group(b, g),
                             g->scope,     g->site,       g->arena,
                             g->bytes,     g->blocks,     g->pending,
                             g->oldest_ns, g->youngest_ns};
        if (mlr_group_in(b, g) && (g->bytes | g->blocks)) row[n++] = r;
    }
    if (n) qsort(row, n, sizeof *row, where_order);
    for (i = 0; i < n; i++) {
        where_row *last = joined ? &row[joined - 1] : NULL;
        if (!last || where_order(last, &row[i])) {
            row[joined++] = row[i];
            continue;
        }
        last->bytes += row[i].bytes;
        last->blocks += row[i].blocks;
        last->pending += row[i].pending;
        if (row[i].oldest < last->oldest) last->oldest = row[i].oldest;
        if (row[i].youngest != MLR_UNKNOWN &&
            (last->youngest == MLR_UNKNOWN || row[i].youngest > last->youngest))
            last->youngest = row[i].youngest;
    }
    return joined;
}
static uint64_t age_of(const mlr_build *b, uint64_t born) {
    return born == MLR_UNKNOWN ? MLR_UNKNOWN : mlr_less(b->profile->uptime_ns, born);
}
static void where_table(mlr_build *b) {
    const mlr_profile *p = b->profile;
    mlr_table *t = mlr_table_begin(b, MLR_TABLE_where, where_columns,
                                   (uint32_t)(sizeof where_columns / sizeof *where_columns));
    where_row *row = (where_row *)mlr_build_alloc(b, p->group_count, sizeof *row);
    mlr_ranked *list = (mlr_ranked *)mlr_build_alloc(b, p->group_count, sizeof *list);
    uint32_t i, n;
    if (!row || !list) return;
    n = where_join(b, row);
    for (i = 0; i < n; i++) {
        list[i].key = row[i].bytes;
        list[i].number = i;
    }
    mlr_rank(list, n);
    for (i = 0; i < n; i++) {
        const where_row *r = &row[list[i].number];
        const uint32_t frame = r->place  ? b->place[r->place - 1].frame
                               : r->site ? p->site[r->site - 1].frame
                                         : 0;
        mlr_cell *cell;
        if (i >= b->top) {
            t->more++;
            t->more_bytes += r->bytes;
            continue;
        }
        cell = mlr_row_add(b, t, frame);
        cell[0].number = r->bytes;
        cell[1].number = r->blocks;
        cell[2].number = r->pending;
        cell[3].number = age_of(b, r->oldest);
        cell[4].number = age_of(b, r->youngest);
        cell[5].text = r->tag ? mlr_tag_name(p, r->tag) : p->tag_count ? "(untagged)" : "";
        cell[6].text = r->arena ? "(arena)" : frame ? mlr_place_name(b, frame) : "";
        cell[7].text = r->scope ? p->scope[r->scope - 1].path : "";
        cell[8].text = device_cell(b, r->device);
    }
}

MLR_PRIVATE void mlr_holders_answer(mlr_build *b) {
    uint32_t device;
    for (device = 1; device <= b->profile->device_count; device++)
        if (b->device_in[device]) device_holder(b, device);
    tags_table(b);
    sites_table(b);
    where_table(b);
}
