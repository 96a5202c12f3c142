#include "answers/places.h"
#include <string.h>
#include "profile/read.h"

/* -- names -- */

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }
/* Returns 1 if a text has another in it, in upper or lower case. */
static int has_text(const char *text, const char *part) {
    size_t n;
    for (; *text; text++) {
        for (n = 0; part[n] && lower(text[n]) == lower(part[n]);) n++;
        if (!part[n]) return 1;
    }
    return !*part;
}
static int device_fits(const char *name, const char *asked) {
    const size_t n = strlen(asked);
    return !asked[0] || (!strncmp(name, asked, n) && (!name[n] || name[n] == ':'));
}
static int frame_fits(mlr_build *b, uint32_t number, const char *asked) {
    const mlr_frame *frame = number ? &b->profile->frame[number - 1] : NULL;
    uint32_t i;
    if (has_text(mlr_place_name(b, number), asked)) return 1;
    for (i = 0; frame && i < frame->functions; i++)
        if (has_text(frame->function[i].name, asked) || has_text(frame->function[i].file, asked))
            return 1;
    return 0;
}
static int module_fits(const mlr_profile *p, uint32_t frame, const char *asked) {
    const uint32_t module = frame ? p->frame[frame - 1].module : 0;
    return module && has_text(p->module[module - 1].path, asked);
}

/* -- places -- */

typedef struct place_index { /* a table of hashes: numbers of places, from 1 */
    uint32_t *at;
    uint32_t mask;
} place_index;

static uint64_t hash_text(uint64_t hash, const char *text) {
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return (hash ^ 0xff) * UINT64_C(0x100000001b3);
}
static uint64_t place_hash(const mlr_profile *p, uint32_t device, uint32_t frame) {
    const mlr_function *f = mlr_frame_shown(p, frame);
    uint64_t hash = UINT64_C(0xcbf29ce484222325) + device + ((uint64_t)f->line << 20);
    hash = hash_text(hash_text(hash, f->name), f->file);
    if (!*f->name && !*f->file && frame)
        hash += p->frame[frame - 1].offset * 31 + p->frame[frame - 1].module;
    return hash ^ hash >> 29;
}
static int same_place(const mlr_profile *p, uint32_t frame, uint32_t other) {
    const mlr_function *f = mlr_frame_shown(p, frame), *g = mlr_frame_shown(p, other);
    if (frame == other) return 1;
    if (!frame || !other || f->line != g->line || strcmp(f->name, g->name)) return 0;
    if (strcmp(f->file, g->file)) return 0;
    return *f->name || *f->file ||
           (p->frame[frame - 1].module == p->frame[other - 1].module &&
            p->frame[frame - 1].offset == p->frame[other - 1].offset);
}
/* Returns the number of a place, which is added if it is new; 0: there was no memory. */
static uint32_t place_get(mlr_build *b, place_index *index, uint32_t device, uint32_t frame) {
    uint32_t at = (uint32_t)place_hash(b->profile, device, frame) & index->mask;
    mlr_place *place;
    for (; index->at[at]; at = (at + 1) & index->mask) {
        place = &b->place[index->at[at] - 1];
        if (place->device == device && same_place(b->profile, place->frame, frame))
            return index->at[at];
    }
    place = &b->place[b->places++];
    place->device = device;
    place->frame = frame;
    place->peak = MLR_UNKNOWN;
    return index->at[at] = b->places;
}

static int frame_is_wrapper(const mlr_profile *p, uint32_t frame) {
    return frame && mlr_frame_shown(p, frame)->library;
}
MLR_PRIVATE uint32_t mlr_walk_next(mlr_walk *walk) {
    const mlr_profile *p = walk->profile;
    while (walk->node) {
        const mlr_node *node = &p->node[walk->node - 1];
        walk->node = node->caller;
        if (node->frame && !frame_is_wrapper(p, node->frame)) return node->frame;
    }
    return 0;
}
/* Returns the frame that answers name for a stack. */
static uint32_t stack_frame(const mlr_profile *p, const mlr_stack *s) {
    const uint32_t own = s->site ? p->site[s->site - 1].frame : 0;
    mlr_walk walk = {NULL, 0, 0};
    uint32_t frame;
    if (own && !frame_is_wrapper(p, own)) return own;
    walk.profile = p;
    walk.node = s->node;
    frame = mlr_walk_next(&walk);
    return frame ? frame : own ? own : s->node ? p->node[s->node - 1].frame : 0;
}

MLR_PRIVATE int mlr_is_at_peak(const mlr_profile *p, uint32_t device) {
    const mlr_device *d = &p->device[device - 1];
    return d->stats.allocated && (d->stats.allocated >= d->stats.peak ||
                                  (d->peak_bytes && d->stats.allocated > d->peak_bytes));
}
static uint64_t held_of(const mlr_held *list, uint32_t n, uint32_t row) {
    uint32_t i;
    for (i = 0; i < n; i++)
        if (list[i].row == row) return list[i].bytes;
    return MLR_UNKNOWN;
}
MLR_PRIVATE uint64_t mlr_tag_at_peak(const mlr_build *b, uint32_t tag) {
    const mlr_profile *p = b->profile;
    const mlr_tag *t = &p->tag[tag - 1];
    const mlr_device *d = &p->device[t->device - 1];
    return mlr_is_at_peak(p, t->device) ? t->live : held_of(d->peak_tag, d->peak_tags, tag);
}
MLR_PRIVATE uint64_t mlr_site_at_peak(const mlr_build *b, uint32_t site) {
    const mlr_profile *p = b->profile;
    const mlr_site *s = &p->site[site - 1];
    const mlr_device *d = &p->device[s->device - 1];
    return mlr_is_at_peak(p, s->device) ? s->live : held_of(d->peak_site, d->peak_sites, site);
}

/* Adds the numbers of a stack to its place, and takes them off what is left of its site. */
static void place_add_stack(mlr_place *place, const mlr_stack *s, mlr_place *left) {
    place->live += s->live;
    place->blocks += s->live_blocks;
    place->at_peak += s->at_peak;
    place->allocs += s->allocs;
    place->alloc_bytes += s->alloc_bytes;
    place->frees += mlr_less(s->allocs, s->live_blocks);
    place->temporaries += s->temporaries;
    left->live = mlr_less(left->live, s->live);
    left->blocks = mlr_less(left->blocks, s->live_blocks);
    left->at_peak = mlr_less(left->at_peak, s->at_peak);
    left->allocs = mlr_less(left->allocs, s->allocs);
    left->alloc_bytes = mlr_less(left->alloc_bytes, s->alloc_bytes);
    left->frees = mlr_less(left->frees, mlr_less(s->allocs, s->live_blocks));
}
static void place_add(mlr_place *place, const mlr_place *other) {
    place->live += other->live;
    place->blocks += other->blocks;
    place->at_peak += other->at_peak;
    place->allocs += other->allocs;
    place->alloc_bytes += other->alloc_bytes;
    place->frees += other->frees;
}
/* What a site has, as a place. */
static mlr_place site_numbers(const mlr_build *b, uint32_t number) {
    const mlr_site *s = &b->profile->site[number - 1];
    mlr_place all;
    memset(&all, 0, sizeof all);
    all.live = s->live;
    all.allocs = s->allocs;
    all.frees = s->frees;
    all.blocks = mlr_less(s->allocs, s->frees);
    all.alloc_bytes = s->alloc_bytes;
    all.at_peak = mlr_site_at_peak(b, number);
    return all;
}
static void place_note_site(mlr_place *place, uint32_t site) {
    if (place->site != site || !place->sites) place->sites++;
    place->site = site;
}
/* Gives a site that is no wrapper to its place as a whole. */
static void site_whole(mlr_build *b, uint32_t number, uint32_t at, uint64_t stacks_at_peak) {
    mlr_place all = site_numbers(b, number), *place = &b->place[at - 1];
    if (all.at_peak == MLR_UNKNOWN) all.at_peak = stacks_at_peak;
    place_add(place, &all);
    place_note_site(place, number);
    b->site_place[number] = at;
}
/* Divides the sites that are wrappers among the places that call them; what no stack has stays at
   the wrapper. */
static void sites_place(mlr_build *b, place_index *index, const uint32_t *first,
                        const uint32_t *next) {
    const mlr_profile *p = b->profile;
    mlr_place none;
    uint32_t i, k;
    memset(&none, 0, sizeof none);
    for (k = first[0]; k; k = next[k])
        place_add_stack(&b->place[b->stack_place[k] - 1], &p->stack[k - 1], &none);
    for (i = 1; i <= p->site_count; i++) {
        const mlr_site *site = &p->site[i - 1];
        const int wrapper = frame_is_wrapper(p, site->frame) && first[i];
        mlr_place left = site_numbers(b, i);
        uint64_t at_peak = 0;
        for (k = first[i]; k; k = next[k]) {
            const mlr_stack *s = &p->stack[k - 1];
            at_peak += s->at_peak;
            if (!wrapper) b->place[b->stack_place[k] - 1].temporaries += s->temporaries;
            if (!wrapper) continue;
            place_note_site(&b->place[b->stack_place[k] - 1], i);
            place_add_stack(&b->place[b->stack_place[k] - 1], s, &left);
        }
        if (!wrapper) {
            site_whole(b, i, place_get(b, index, site->device, site->frame), at_peak);
            continue;
        }
        if (left.at_peak >= MLR_UNKNOWN - at_peak) left.at_peak = 0;
        if (left.live | left.allocs) {
            mlr_place *own = &b->place[place_get(b, index, site->device, site->frame) - 1];
            place_note_site(own, i);
            own->sites++; /* a part of a site is no whole place */
            place_add(own, &left);
        }
        b->site_place[i] = 0;
    }
}
/* Sets the peaks of places that are one site. */
static void places_peaks(mlr_build *b) {
    const mlr_profile *p = b->profile;
    uint32_t i;
    for (i = 1; i <= p->site_count; i++) {
        mlr_place *place = b->site_place[i] ? &b->place[b->site_place[i] - 1] : NULL;
        if (!place || place->sites != 1) continue;
        place->whole = 1;
        place->peak = p->site[i - 1].peak;
        place->peak_error = p->site[i - 1].peak_error;
        if (place->at_peak > place->peak) place->at_peak = place->peak;
    }
}
static int places_alloc(mlr_build *b, place_index *index, uint32_t **first, uint32_t **next) {
    const mlr_profile *p = b->profile;
    const size_t most = (size_t)p->site_count + p->stack_count + 1;
    uint32_t size = 64;
    while (size < 2 * most) size *= 2;
    index->mask = size - 1;
    index->at = (uint32_t *)mlr_build_alloc(b, size, sizeof *index->at);
    b->place = (mlr_place *)mlr_build_alloc(b, most, sizeof *b->place);
    b->site_place = (uint32_t *)mlr_build_alloc(b, p->site_count + 1u, sizeof *b->site_place);
    b->stack_place = (uint32_t *)mlr_build_alloc(b, p->stack_count + 1u, sizeof *b->stack_place);
    b->place_stack = (uint32_t *)mlr_build_alloc(b, most + 1, sizeof *b->place_stack);
    b->stack_next = (uint32_t *)mlr_build_alloc(b, p->stack_count + 1u, sizeof *b->stack_next);
    *first = (uint32_t *)mlr_build_alloc(b, p->site_count + 1u, sizeof **first);
    *next = (uint32_t *)mlr_build_alloc(b, p->stack_count + 1u, sizeof **next);
    return !b->failed;
}

/* -- what is asked for -- */

static void choose(mlr_build *b) {
    const mlr_profile *p = b->profile;
    const mlr_options *o = &b->options;
    uint32_t i;
    b->device_in = (unsigned char *)mlr_build_alloc(b, p->device_count + 1u, 1);
    b->tag_in = (unsigned char *)mlr_build_alloc(b, p->tag_count + 1u, 1);
    if (b->failed) return;
    for (i = 1; i <= p->device_count; i++)
        b->device_in[i] = !o->device || device_fits(p->device[i - 1].name, o->device);
    b->tag_in[0] = !o->tag || !strcmp(o->tag, mlr_tag_name(p, 0));
    for (i = 1; i <= p->tag_count; i++)
        b->tag_in[i] =
            b->device_in[p->tag[i - 1].device] && (!o->tag || has_text(p->tag[i - 1].name, o->tag));
    for (i = 0; i < b->places; i++) {
        mlr_place *place = &b->place[i];
        place->in = b->device_in[place->device] &&
                    (!o->site || frame_fits(b, place->frame, o->site)) &&
                    (!o->module || module_fits(p, place->frame, o->module));
    }
    b->by_tag = o->tag != NULL;
    b->narrow = o->tag || o->site || o->module;
}

MLR_PRIVATE uint32_t mlr_place_of_group(const mlr_build *b, const mlr_group *group) {
    if (group->stack && b->stack_place[group->stack]) return b->stack_place[group->stack];
    return group->site ? b->site_place[group->site] : 0;
}
MLR_PRIVATE int mlr_group_in(const mlr_build *b, const mlr_group *group) {
    const uint32_t place = mlr_place_of_group(b, group);
    if (!b->device_in[group->device] || !b->tag_in[group->tag]) return 0;
    return place ? b->place[place - 1].in : !b->options.site && !b->options.module;
}

/* Sums what is asked for over the live blocks. */
static void sum_groups(mlr_build *b) {
    const mlr_profile *p = b->profile;
    uint32_t i;
    for (i = 0; i < p->group_count; i++) {
        const mlr_group *g = &p->group[i];
        const uint32_t place = mlr_place_of_group(b, g);
        if (!mlr_group_in(b, g)) continue;
        b->device_live[g->device] += g->bytes;
        b->device_blocks[g->device] += g->blocks;
        b->tag_live[g->tag] += g->bytes;
        if (!g->tag) b->bare_live[g->device] += g->bytes;
        if (place) b->place_live[place] += g->bytes;
        if (place) b->place_blocks[place] += g->blocks;
    }
}
/* Takes the sums from the rows of devices, tags and sites, where all is asked for or the profile
   has no groups. */
static void sum_rows(mlr_build *b) {
    const mlr_profile *p = b->profile;
    uint32_t i;
    for (i = 1; i <= p->device_count; i++) {
        if (!b->device_in[i]) continue;
        b->device_live[i] = b->bare_live[i] = p->device[i - 1].stats.allocated;
        b->device_blocks[i] = p->device[i - 1].stats.live_blocks;
    }
    for (i = 1; i <= p->tag_count; i++) {
        if (!b->tag_in[i]) continue;
        b->tag_live[i] = p->tag[i - 1].live;
        b->bare_live[p->tag[i - 1].device] =
            mlr_less(b->bare_live[p->tag[i - 1].device], p->tag[i - 1].live);
    }
    for (i = 1; i <= b->places; i++) {
        if (!b->place[i - 1].in) continue;
        b->place_live[i] = b->place[i - 1].live;
        b->place_blocks[i] = b->place[i - 1].blocks;
    }
}
/* Without groups only one kind of filter can be answered: the sum of its rows. */
static void sum_filtered_rows(mlr_build *b) {
    const mlr_profile *p = b->profile;
    uint32_t i;
    sum_rows(b);
    for (i = 1; i <= p->device_count; i++) b->device_live[i] = b->device_blocks[i] = 0;
    for (i = 1; b->by_tag && i <= p->tag_count; i++)
        if (b->tag_in[i]) b->device_live[p->tag[i - 1].device] += p->tag[i - 1].live;
    for (i = 1; !b->by_tag && i <= b->places; i++) {
        b->device_live[b->place[i - 1].device] += b->place_live[i];
        b->device_blocks[b->place[i - 1].device] += b->place_blocks[i];
    }
}

MLR_PRIVATE void mlr_places_find(mlr_build *b) {
    const mlr_profile *p = b->profile;
    uint32_t *first, *next, i;
    place_index index;
    if (!places_alloc(b, &index, &first, &next)) return;
    for (i = p->stack_count; i; i--) {
        const mlr_stack *s = &p->stack[i - 1];
        b->stack_place[i] = place_get(b, &index, s->device, stack_frame(p, s));
        next[i] = first[s->site];
        first[s->site] = i;
        b->stack_next[i] = b->place_stack[b->stack_place[i]];
        b->place_stack[b->stack_place[i]] = i;
    }
    sites_place(b, &index, first, next);
    places_peaks(b);
    choose(b);
    b->tag_live = (uint64_t *)mlr_build_alloc(b, p->tag_count + 1u, sizeof(uint64_t));
    b->bare_live = (uint64_t *)mlr_build_alloc(b, p->device_count + 1u, sizeof(uint64_t));
    b->device_live = (uint64_t *)mlr_build_alloc(b, p->device_count + 1u, sizeof(uint64_t));
    b->device_blocks = (uint64_t *)mlr_build_alloc(b, p->device_count + 1u, sizeof(uint64_t));
    b->place_live = (uint64_t *)mlr_build_alloc(b, b->places + 1u, sizeof(uint64_t));
    b->place_blocks = (uint64_t *)mlr_build_alloc(b, b->places + 1u, sizeof(uint64_t));
    if (b->failed) return;
    if (!b->narrow)
        sum_rows(b);
    else if (p->lacks & MLR_LACKS_GROUPS)
        sum_filtered_rows(b);
    else
        sum_groups(b);
}
