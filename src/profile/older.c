#include "profile/older.h"
#include "profile/places.h"
#include "profile/scale.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- places -- */

static const mlr_field site_fields[] = {MLR_FIELD(mlr_site, DEVICE, device, "device"),
                                        MLR_FIELD(mlr_site, U64, live, "live_bytes"),
                                        MLR_FIELD(mlr_site, U64, peak, "peak_bytes"),
                                        MLR_FIELD(mlr_site, U64, peak_error, "peak_error"),
                                        MLR_FIELD(mlr_site, U64, allocs, "allocs"),
                                        MLR_FIELD(mlr_site, U64, alloc_bytes, "alloc_bytes"),
                                        MLR_FIELD(mlr_site, U64, frees, "frees"),
                                        MLR_FIELD(mlr_site, U64, free_bytes, "free_bytes")};
static const mlr_field stack_fields[] = {MLR_FIELD(mlr_stack, DEVICE, device, "device"),
                                         MLR_FIELD(mlr_stack, U64, allocs, "allocs"),
                                         MLR_FIELD(mlr_stack, U64, alloc_bytes, "alloc_bytes"),
                                         MLR_FIELD(mlr_stack, U64, live, "live_bytes"),
                                         MLR_FIELD(mlr_stack, U64, peak, "peak_bytes"),
                                         MLR_FIELD(mlr_stack, U64, at_peak, "at_peak_bytes"),
                                         MLR_FIELD(mlr_stack, U64, samples, "samples"),
                                         MLR_FIELD(mlr_stack, U64, error, "error_bytes"),
                                         MLR_FIELD(mlr_stack, U64, temporaries, "temporaries")};

static void sites_read(mlr_reader *r) {
    mlr_profile *p = r->profile;
    const mlr_json *list = mlr_json_get(r->root, "sites"), *item;
    const mlr_rows rows =
        mlr_rows_read(r, "sites", list, site_fields, MLR_COUNT(site_fields), sizeof(mlr_site));
    uint32_t number = 0;
    p->site = (mlr_site *)rows.list;
    p->site_count = rows.count;
    MLR_JSON_EACH(item, list) {
        const uint32_t module =
            mlr_places_module(r, mlr_json_get(item, "module"), mlr_json_get(item, "build_id"));
        const uint64_t offset = mlr_reader_u64(r, mlr_json_get(item, "offset"));
        mlr_site *site = &p->site[number++];
        mlr_key key;
        if (r->result != MLR_OK) return;
        site->frame =
            mlr_places_frame_at(r, mlr_json_get(item, "site"), module, module ? offset : 0, item);
        key = mlr_key_of(MLR_MAP_SITE, site->frame, site->device, 0);
        mlr_reader_name(r, &key, number);
    }
}
/* Returns the site of a frame on a device, or 0. */
static uint32_t site_at(const mlr_reader *r, uint32_t frame, uint32_t device) {
    const mlr_key key = mlr_key_of(MLR_MAP_SITE, frame, device, 0);
    return frame ? mlr_reader_find(r, &key) : 0;
}
/* Returns the site of {"function","file","line"} on a device, or 0. */
static uint32_t site_of(mlr_reader *r, const mlr_json *names, uint32_t device) {
    return site_at(r, mlr_places_frame(r, names), device);
}

/* Reads the frames of the stacks. Returns their numbers, by their indices from 0. */
static uint32_t *frames_read(mlr_reader *r, const mlr_json *list) {
    const uint32_t size = list && list->kind == MLR_JSON_ARRAY ? list->size : 0;
    uint32_t *frame = (uint32_t *)mlr_reader_alloc(r, size, sizeof *frame), n = 0;
    const mlr_json *item = size ? mlr_json_first(list) : NULL;
    for (; item && frame; item = mlr_json_after(list, item)) {
        const mlr_json *index = mlr_json_get(item, "module");
        uint32_t module = 0;
        if (index && index->kind != MLR_JSON_NULL && r->profile->module_count)
            module = mlr_reader_row(r, index, r->profile->module_count - 1, "module") + 1;
        frame[n++] =
            mlr_places_frame_at(r, mlr_json_get(item, "site"), module,
                                module ? mlr_reader_u64(r, mlr_json_get(item, "offset")) : 0, item);
    }
    return frame;
}
/* Returns the node of a frame under a caller, which is added if it is new. */
static uint32_t node_of(mlr_reader *r, uint32_t *room, uint32_t caller, uint32_t frame) {
    mlr_profile *p = r->profile;
    const mlr_key key = mlr_key_of(MLR_MAP_NODE, caller, frame, 0);
    const uint32_t row = mlr_reader_find(r, &key);
    mlr_node *list;
    if (row) return row;
    list = (mlr_node *)mlr_reader_grow(r, p->node, p->node_count, room, sizeof *list);
    if (!list) return 0;
    p->node = list;
    list[p->node_count].caller = caller;
    list[p->node_count].frame = frame;
    mlr_reader_name(r, &key, ++p->node_count);
    return p->node_count;
}

enum { DEPTH_MOST = 512 };

/* Fills the node and the site of a stack, from the numbers of its frames, the innermost first. */
static void stack_read(mlr_reader *r, const mlr_json *list, const uint32_t *frame, uint32_t frames,
                       uint32_t *room, mlr_stack *stack) {
    uint32_t chain[DEPTH_MOST], depth = 0;
    const mlr_json *item;
    MLR_JSON_EACH(item, list) {
        const uint32_t index = frames ? mlr_reader_row(r, item, frames - 1, "frame") : 0;
        if (!frames || depth == DEPTH_MOST || r->result != MLR_OK) break;
        chain[depth++] = frame[index];
        if (!stack->site) stack->site = site_at(r, frame[index], stack->device);
    }
    while (depth) stack->node = node_of(r, room, stack->node, chain[--depth]);
}
static void stacks_read(mlr_reader *r, const mlr_json *stacks, const uint32_t *frame) {
    mlr_profile *p = r->profile;
    const mlr_json *list = mlr_json_get(stacks, "list"), *item;
    const mlr_rows rows =
        mlr_rows_read(r, "stacks", list, stack_fields, MLR_COUNT(stack_fields), sizeof(mlr_stack));
    const mlr_json *frames = mlr_json_get(stacks, "frames");
    mlr_stack *stack = (mlr_stack *)rows.list;
    uint32_t room = 0;
    p->stack = stack;
    p->stack_count = rows.count;
    if (r->result != MLR_OK) return;
    MLR_JSON_EACH(item, list) {
        stack_read(r, mlr_json_get(item, "frames"), frame, frames ? frames->size : 0, &room,
                   stack++);
        if (r->result != MLR_OK) return;
    }
}

/* Gives the tags their names, for what names a tag. */
static void tags_name(mlr_reader *r) {
    const mlr_profile *p = r->profile;
    uint32_t i;
    for (i = 0; i < p->tag_count; i++) {
        const mlr_key key =
            mlr_key_of(MLR_MAP_TAG, mlr_key_text(p->tag[i].name), p->tag[i].device, 0);
        mlr_reader_name(r, &key, i + 1);
    }
}
static uint32_t tag_of(mlr_reader *r, const mlr_json *name, uint32_t device) {
    const char *text = mlr_reader_text(r, name);
    const mlr_key key = mlr_key_of(MLR_MAP_TAG, mlr_key_text(text), device, 0);
    return *text ? mlr_reader_find(r, &key) : 0;
}
static uint32_t scope_of(mlr_reader *r, const mlr_json *path) {
    const char *text = mlr_reader_text(r, path);
    const mlr_key key = mlr_key_of(MLR_MAP_SCOPE, mlr_key_text(text), 0, 0);
    return *text ? mlr_reader_find(r, &key) : 0;
}

MLR_PRIVATE void mlr_older_places(mlr_reader *r) {
    mlr_profile *p = r->profile;
    const mlr_json *stacks = mlr_json_get(r->root, "stacks");
    const mlr_json *modules = mlr_json_get(stacks, "modules");
    const uint32_t *frame;
    const uint64_t bytes = mlr_reader_u64(r, mlr_json_get(stacks, "bytes"));
    p->sample_bytes = bytes > 1 ? bytes : 0;
    p->stack_depth = mlr_reader_row(r, mlr_json_get(stacks, "depth"), UINT32_MAX, "depth");
    p->stacks_cut = mlr_reader_u64(r, mlr_json_get(stacks, "cut"));
    mlr_places_modules(r, modules);
    frame = frames_read(r, mlr_json_get(stacks, "frames"));
    if (r->result != MLR_OK) return;
    sites_read(r);
    if (r->result == MLR_OK) stacks_read(r, stacks, frame);
    if (mlr_reader_u64(r, mlr_json_get(mlr_json_get(stacks, "more"), "stacks")))
        p->lacks |= MLR_LACKS_STACKS;
    p->lacks |= MLR_LACKS_BIRTHS | MLR_LACKS_SITE_SIZES;
    tags_name(r);
}

MLR_PRIVATE void mlr_older_scopes(mlr_reader *r) {
    mlr_profile *p = r->profile;
    const mlr_json *list = mlr_json_get(r->root, "scopes"), *item;
    uint32_t number = 0;
    MLR_JSON_EACH(item, list) {
        mlr_key key;
        if (r->result != MLR_OK) return;
        p->scope[number].frame = mlr_places_frame(r, mlr_json_get(item, "site"));
        key = mlr_key_of(MLR_MAP_SCOPE, mlr_key_text(p->scope[number].path), 0, 0);
        mlr_reader_name(r, &key, ++number);
    }
}

/* -- blocks and events -- */

MLR_PRIVATE void mlr_older_block(mlr_reader *r, const mlr_json *item, mlr_block *block) {
    block->device = mlr_reader_device(r, mlr_json_get(item, "device"));
    block->tag = tag_of(r, mlr_json_get(item, "tag"), block->device);
    block->scope = scope_of(r, mlr_json_get(item, "scope"));
    block->site = site_of(r, mlr_json_get(item, "site"), block->device);
    block->born_ns = MLR_UNKNOWN;
}

/* Gives the sites the texts that events have for them: "function file:line". */
static void sites_name(mlr_reader *r) {
    const mlr_profile *p = r->profile;
    const mlr_json *list = mlr_json_get(r->root, "sites"), *item;
    char text[2048];
    uint32_t number = 0;
    MLR_JSON_EACH(item, list) {
        const mlr_json *site = mlr_json_get(item, "site");
        const char *function = mlr_reader_text(r, mlr_json_get(site, "function"));
        const char *file = mlr_reader_text(r, mlr_json_get(site, "file"));
        const uint64_t line = mlr_reader_u64(r, mlr_json_get(site, "line"));
        int n =
            snprintf(text, sizeof text, "%s%s%s", function, *function && *file ? " " : "", file);
        mlr_key key;
        if (n >= 0 && (size_t)n < sizeof text && line)
            n += snprintf(text + n, sizeof text - (size_t)n, ":%llu", (unsigned long long)line);
        if (n < 0 || (size_t)n >= sizeof text || r->result != MLR_OK) n = 0;
        key = mlr_key_of(MLR_MAP_EVENT, mlr_key_text(mlr_reader_text_of(r, text, (size_t)n)),
                         p->site[number++].device, 0);
        if (n) mlr_reader_name(r, &key, number);
    }
}
/* Returns the item of the list "strings" that an event names, as one of the reader's texts. */
static const char *string_at(mlr_reader *r, const mlr_json *index) {
    const mlr_json *list = mlr_json_get(r->root, "strings"), *item;
    uint32_t row;
    if (!r->string && list && list->kind == MLR_JSON_ARRAY) {
        r->string = (const char **)mlr_reader_alloc(r, list->size, sizeof *r->string);
        MLR_JSON_EACH(item, list) {
            if (r->string) r->string[r->strings++] = mlr_reader_text(r, item);
        }
        sites_name(r);
    }
    row = mlr_reader_row(r, index, r->strings ? r->strings - 1 : 0, "string");
    return row ? r->string[row] : "";
}
MLR_PRIVATE void mlr_older_event(mlr_reader *r, const mlr_json *site, const mlr_json *tag,
                                 mlr_event *event) {
    const char *names[2];
    mlr_key key;
    names[0] = string_at(r, site);
    names[1] = string_at(r, tag);
    key = mlr_key_of(MLR_MAP_EVENT, mlr_key_text(names[0]), event->device, 0);
    event->site = *names[0] ? mlr_reader_find(r, &key) : 0;
    key = mlr_key_of(MLR_MAP_TAG, mlr_key_text(names[1]), event->device, 0);
    event->tag = *names[1] ? mlr_reader_find(r, &key) : 0;
}

/* -- who held how much -- */

/* Returns the tag or the site that a row of a list names. */
static uint32_t holder_of(mlr_reader *r, const mlr_json *item, uint32_t device, int tags) {
    return tags ? tag_of(r, mlr_json_get(item, "tag"), device)
                : site_of(r, mlr_json_get(item, "site"), device);
}
static uint32_t held_read(mlr_reader *r, const mlr_json *list, uint32_t device, int tags,
                          mlr_held **out) {
    const mlr_json *item;
    mlr_held *held = *out = NULL;
    uint32_t n = 0;
    if (!mlr_json_first(list) || r->result != MLR_OK) return 0;
    held = *out = (mlr_held *)mlr_reader_alloc(r, list->size, sizeof *held);
    MLR_JSON_EACH(item, list) {
        if (!held || r->result != MLR_OK) return n;
        held[n].row = holder_of(r, item, device, tags);
        held[n++].bytes = mlr_reader_u64(r, mlr_json_get(item, "bytes"));
    }
    return n;
}
static void peaks_read(mlr_reader *r) {
    const mlr_json *list = mlr_json_get(r->root, "peak_holders"), *item;
    MLR_JSON_EACH(item, list) {
        const uint32_t row = mlr_reader_device(r, mlr_json_get(item, "device"));
        mlr_device *d;
        if (r->result != MLR_OK) return;
        d = &r->profile->device[row - 1];
        d->peak_bytes = mlr_reader_u64(r, mlr_json_get(item, "bytes"));
        d->peak_time_ns = mlr_reader_u64(r, mlr_json_get(item, "time_ns"));
        d->peak_tags = held_read(r, mlr_json_get(item, "tags"), row, 1, &d->peak_tag);
        d->peak_sites = held_read(r, mlr_json_get(item, "sites"), row, 0, &d->peak_site);
    }
}
/* Reads a list of series, [{"device","tag" or "site","bytes":[n,...]},...], in which each has a
   number for each snapshot. */
static void series_read(mlr_reader *r, const mlr_json *list, int tags) {
    mlr_profile *p = r->profile;
    const mlr_json *item;
    MLR_JSON_EACH(item, list) {
        const uint32_t device = mlr_reader_device(r, mlr_json_get(item, "device"));
        const uint32_t row = holder_of(r, item, device, tags);
        const mlr_json *levels = mlr_json_get(item, "bytes");
        const mlr_json *level = mlr_json_first(levels);
        uint32_t i;
        for (i = 0; level && i < p->snapshot_count && r->result == MLR_OK; i++) {
            mlr_snapshot *s = &p->snapshot[i];
            mlr_held **held = tags ? &s->tag : &s->site;
            uint32_t *count = tags ? &s->tags : &s->sites;
            if (!*held) *held = (mlr_held *)mlr_reader_alloc(r, list->size, sizeof **held);
            if (!*held) return;
            (*held)[*count].row = row;
            (*held)[*count].bytes = mlr_reader_u64(r, level);
            if (row && (*held)[*count].bytes) ++*count;
            level = mlr_json_after(levels, level);
        }
    }
}

/* -- groups: the leaks by site, tag and scope, as far as they go -- */

typedef struct grouping {
    mlr_reader *r;
    mlr_sampled *row;
    uint32_t count, room;
    uint64_t *site;   /* by site: its live bytes that no row has */
    uint64_t *device; /* by device: likewise, and blocks */
    uint64_t *blocks;
} grouping;

static mlr_group *group_add(grouping *g, uint32_t device, uint64_t blocks, uint64_t bytes) {
    mlr_sampled *list =
        (mlr_sampled *)mlr_reader_grow(g->r, g->row, g->count, &g->room, sizeof *list);
    mlr_group *group;
    if (!list) return NULL;
    g->row = list;
    memset(&list[g->count], 0, sizeof *list);
    group = &list[g->count++].of;
    group->device = device;
    group->blocks = blocks;
    group->bytes = bytes;
    group->oldest_ns = group->youngest_ns = MLR_UNKNOWN;
    return group;
}
static uint64_t taken(uint64_t *from, uint64_t n) {
    const uint64_t most = n < *from ? n : *from;
    *from -= most;
    return most;
}
/* Adds the listed leaks. No row gets more than what its site and its device have. */
static void groups_leaks(grouping *g, const mlr_json *leaks) {
    mlr_reader *r = g->r;
    const int marked = mlr_reader_u64(r, mlr_json_get(leaks, "since_mark")) != 0;
    const mlr_json *list = mlr_json_get(leaks, "by_site"), *item;
    MLR_JSON_EACH(item, list) {
        const uint32_t device = mlr_reader_device(r, mlr_json_get(item, "device"));
        const uint32_t site = site_of(r, mlr_json_get(item, "site"), device);
        uint64_t bytes = mlr_reader_u64(r, mlr_json_get(item, "bytes"));
        uint64_t blocks = mlr_reader_u64(r, mlr_json_get(item, "count"));
        mlr_group *group;
        if (r->result != MLR_OK) return;
        if (site) bytes = taken(&g->site[site - 1], bytes);
        bytes = taken(&g->device[device - 1], bytes);
        blocks = taken(&g->blocks[device - 1], blocks);
        group = group_add(g, device, blocks, bytes);
        if (!group) return;
        group->site = site;
        group->tag = tag_of(r, mlr_json_get(item, "tag"), device);
        group->scope = scope_of(r, mlr_json_get(item, "scope"));
        group->marked_blocks = marked ? blocks : 0;
        group->marked_bytes = marked ? bytes : 0;
    }
}
/* Adds the live bytes that no listed leak has: of each site, and then of each device. Their tags
   and scopes are not known. */
static void groups_rest(grouping *g) {
    mlr_profile *p = g->r->profile;
    uint32_t i;
    for (i = 0; i < p->site_count; i++) {
        mlr_site *site = &p->site[i];
        uint64_t bytes = taken(&g->device[site->device - 1], g->site[i]), blocks;
        mlr_group *group;
        if (!bytes) continue;
        blocks = site->allocs > site->frees ? site->allocs - site->frees : 0;
        blocks = taken(&g->blocks[site->device - 1], blocks);
        group = group_add(g, site->device, blocks, bytes);
        if (!group) return;
        group->site = i + 1;
        p->lacks |= MLR_LACKS_GROUPS;
    }
    for (i = 0; i < p->device_count; i++) {
        if (g->device[i] | g->blocks[i]) {
            p->lacks |= MLR_LACKS_GROUPS;
            if (!group_add(g, i + 1, g->blocks[i], g->device[i])) return;
        }
        if (p->device[i].arena) {
            mlr_group *group = group_add(g, i + 1, 0, p->device[i].arena);
            if (!group) return;
            group->arena = 1;
            p->lacks |= MLR_LACKS_GROUPS;
        }
    }
}

/* Returns the live bytes of each site's stacks, scaled so that they are not more than the site's
   and, in a sample, as near to it as MLR_SCALE_MOST allows. */
static double *stacks_factor(grouping *g) {
    mlr_profile *p = g->r->profile;
    double *factor = (double *)mlr_reader_alloc(g->r, (size_t)p->site_count + 1, sizeof *factor);
    uint32_t i;
    if (!factor) return NULL;
    for (i = 0; i < p->stack_count; i++) factor[p->stack[i].site] += (double)p->stack[i].live;
    for (i = 0; i <= p->site_count; i++) {
        const double live = i ? (double)p->site[i - 1].live : 0;
        if (!(factor[i] > 0)) continue;
        factor[i] = live / factor[i];
        if (factor[i] > 1 && !p->sample_bytes) factor[i] = 1;
        if (factor[i] > MLR_SCALE_MOST) factor[i] = MLR_SCALE_MOST;
    }
    return factor;
}
static int by_site(const void *a, const void *b) {
    const mlr_group *x = &((const mlr_sampled *)a)->of, *y = &((const mlr_sampled *)b)->of;
    return x->site < y->site ? -1 : x->site > y->site;
}
/* Moves `bytes` of a row to a new one with a stack, and the blocks that go with them. */
static void group_split(grouping *g, uint32_t row, uint32_t stack, uint64_t bytes) {
    const mlr_group whole = g->row[row].of;
    const double part = whole.bytes ? (double)bytes / (double)whole.bytes : 0;
    const uint64_t marked = (uint64_t)((double)whole.marked_bytes * part);
    uint64_t blocks = bytes == whole.bytes ? whole.blocks : (uint64_t)((double)whole.blocks * part);
    uint64_t marked_blocks = whole.marked_blocks ? blocks : 0;
    mlr_group *piece;
    if (bytes == whole.bytes) {
        g->row[row].of.stack = stack;
        return;
    }
    piece = group_add(g, whole.device, blocks, bytes);
    if (!piece) return;
    piece->tag = whole.tag;
    piece->scope = whole.scope;
    piece->site = whole.site;
    piece->stack = stack;
    piece->marked_blocks = marked_blocks;
    piece->marked_bytes = marked;
    g->row[row].of.bytes -= bytes;
    g->row[row].of.blocks -= blocks;
    g->row[row].of.marked_bytes -= marked;
    g->row[row].of.marked_blocks -= marked_blocks;
}
/* Gives the rows of each site its stacks, in their order: the sums of both are right, and which
   stack has which tag is known only where a site has one tag. */
static void groups_stacks(grouping *g) {
    mlr_profile *p = g->r->profile;
    const double *factor = stacks_factor(g);
    const uint32_t rows = g->count;
    uint32_t *next = (uint32_t *)mlr_reader_alloc(g->r, (size_t)p->site_count + 2, sizeof *next), i;
    if (!factor || !next || !p->stack_count) return;
    qsort(g->row, rows, sizeof *g->row, by_site);
    for (i = 0; i < rows; i++) next[g->row[i].of.site + 1]++;
    for (i = 1; i <= p->site_count + 1; i++) next[i] += next[i - 1];
    for (i = 0; i < p->stack_count && g->r->result == MLR_OK; i++) {
        const uint32_t site = p->stack[i].site;
        uint64_t left = (uint64_t)((double)p->stack[i].live * factor[site]);
        while (site && left && next[site] < rows && g->row[next[site]].of.site == site) {
            const uint32_t row = next[site];
            const uint64_t has = g->row[row].of.bytes, bytes = left < has ? left : has;
            next[site] += bytes == has;
            left -= bytes;
            if (bytes) group_split(g, row, i + 1, bytes);
        }
    }
}
static void groups_make(mlr_reader *r) {
    mlr_profile *p = r->profile;
    grouping g;
    uint32_t i;
    memset(&g, 0, sizeof g);
    g.r = r;
    g.site = (uint64_t *)mlr_reader_alloc(r, p->site_count, sizeof *g.site);
    g.device = (uint64_t *)mlr_reader_alloc(r, p->device_count, sizeof *g.device);
    g.blocks = (uint64_t *)mlr_reader_alloc(r, p->device_count, sizeof *g.blocks);
    if (r->result != MLR_OK) return;
    for (i = 0; i < p->site_count; i++) g.site[i] = p->site[i].live;
    for (i = 0; i < p->device_count; i++) {
        const mlr_device *d = &p->device[i];
        g.device[i] =
            d->stats.allocated - (d->arena < d->stats.allocated ? d->arena : d->stats.allocated);
        g.blocks[i] = d->stats.live_blocks;
    }
    groups_leaks(&g, mlr_json_get(r->root, "leaks"));
    if (r->result == MLR_OK) groups_rest(&g);
    if (r->result == MLR_OK) groups_stacks(&g);
    if (r->result == MLR_OK && mlr_scale(p, g.row, g.count))
        mlr_reader_fail(r, MLR_E_NOMEM, "out of memory");
}

MLR_PRIVATE void mlr_older_rest(mlr_reader *r) {
    mlr_profile *p = r->profile;
    const mlr_json *series = mlr_json_get(r->root, "series");
    uint32_t i;
    peaks_read(r);
    series_read(r, mlr_json_get(series, "tags"), 1);
    series_read(r, mlr_json_get(series, "sites"), 0);
    for (i = 0; i < p->device_count; i++)
        if (p->device[i].oom.time_ns == 0 && p->device[i].oom.bytes)
            p->device[i].oom.time_ns = MLR_UNKNOWN;
    for (i = 0; i < p->capacity_count; i++)
        if (p->resident == MLR_UNKNOWN && !strcmp(p->capacity[i].device, "cpu"))
            p->resident = p->capacity[i].process;
    if (r->result == MLR_OK) groups_make(r);
}
