#include "profile/scale.h"
#include "profile/arena.h"
#include <stdlib.h>
#include <string.h>

/* The numbers of a stack, or of a whole that is divided among stacks: blocks, and bytes. */
typedef struct share {
    uint64_t value[2]; /* exact at first; then what it got */
    double rest[2];    /* what it stands for beyond `value`: its weight in the rest of the whole */
} share;

typedef struct scaling {
    mlr_profile *p;
    uint32_t *own;    /* by site: its stack of one frame; 0: none yet */
    uint32_t *stacks; /* the stacks in the order of their sites */
    share *picked;    /* by stack: its live picked blocks */
    share *live;      /* by site: all live blocks; behind the sites by device: those of no site */
    share *allocs;    /* the stacks of the whole that is divided now */
    mlr_group *group; /* the result */
    uint32_t groups, room;
} scaling;

/* -- dividing -- */

static double minus(double a, double b) { return a > b ? a - b : 0; }
/* Returns part / whole of a number, rounded down. */
static uint64_t part_of(uint64_t number, double part, double whole) {
    const double x = (double)number * (part / whole);
    return part >= whole || x >= (double)number ? number : (uint64_t)x;
}

/* Divides a number of blocks (m is 0) or bytes (m is 1) among shares by their weights: `rest` or,
   if `all`, `value`, which the result then replaces. A share that gets no blocks here also gets no
   bytes later. */
static void divide(share *s, uint32_t count, int m, uint64_t number, int all) {
    double whole = 0, part = 0;
    uint64_t upto, given = 0;
    uint32_t i;
    for (i = 0; i < count; i++) whole += all ? (double)s[i].value[m] : s[i].rest[m];
    if (!(whole > 0)) return;
    for (i = 0; i < count; i++, given = upto) {
        part += all ? (double)s[i].value[m] : s[i].rest[m];
        upto = part_of(number, part, whole);
        if (!m && upto == given) s[i].rest[1] = 0;
        s[i].value[m] = (all ? 0 : s[i].value[m]) + upto - given;
    }
}
/* Divides blocks or bytes of a whole. `number` of what no share has is given by weights. Returns
   what the whole keeps. */
static uint64_t give(share *s, uint32_t count, int m, uint64_t whole, uint64_t number) {
    uint64_t own = 0, has = 0;
    uint32_t i;
    for (i = 0; i < count; i++) own += s[i].value[m];
    if (own > whole)
        divide(s, count, m, whole, 1);
    else if (number)
        divide(s, count, m, number < whole - own ? number : whole - own, 0);
    for (i = 0; i < count; i++) has += s[i].value[m];
    return whole - has;
}
static uint64_t left_of(const share *s, uint32_t count, int m, uint64_t whole) {
    uint32_t i;
    for (i = 0; i < count; i++) whole -= s[i].value[m] < whole ? s[i].value[m] : whole;
    return whole;
}
/* Divides a whole among its shares. Returns in `kept` what no share takes. */
static void divide_whole(share *s, uint32_t count, const uint64_t *whole, uint64_t *kept) {
    const uint64_t blocks = left_of(s, count, 0, whole[0]), bytes = left_of(s, count, 1, whole[1]);
    uint64_t number = blocks;
    double rest = 0, grown = 0;
    uint32_t i;
    for (i = 0; i < count; i++) {
        rest += s[i].rest[0];
        grown += s[i].rest[1];
    }
    if (rest * MLR_SCALE_MOST < (double)blocks) number = (uint64_t)(rest * MLR_SCALE_MOST);
    kept[0] = give(s, count, 0, whole[0], number);
    if (blocks)
        number = part_of(bytes, (double)(blocks - kept[0]), (double)blocks);
    else /* bytes alone are of reallocs, which allocate no block */
        number = grown < (double)bytes ? (uint64_t)grown : bytes;
    kept[1] = give(s, count, 1, whole[1], kept[0] < blocks || !blocks ? number : 0);
}

/* -- the stack of one frame of a site -- */

/* Makes room for one more node and stack for each site. */
static int own_room(scaling *s) {
    mlr_profile *p = s->p;
    mlr_node *node = (mlr_node *)mlr_arena_alloc(
        p->arena, (size_t)p->node_count + p->site_count + 1, sizeof *node);
    mlr_stack *stack = (mlr_stack *)mlr_arena_alloc(
        p->arena, (size_t)p->stack_count + p->site_count + 1, sizeof *stack);
    if (!node || !stack) return 0;
    if (p->node_count) memcpy(node, p->node, p->node_count * sizeof *node);
    if (p->stack_count) memcpy(stack, p->stack, p->stack_count * sizeof *stack);
    p->node = node;
    p->stack = stack;
    return 1;
}
/* Finds the stacks that have the frame of their site alone. */
static void own_find(scaling *s) {
    const mlr_profile *p = s->p;
    uint32_t i;
    for (i = 0; i < p->stack_count; i++) {
        const mlr_stack *stack = &p->stack[i];
        const mlr_node *node = stack->node ? &p->node[stack->node - 1] : NULL;
        if (stack->site && node && !node->caller && !s->own[stack->site] &&
            node->frame == p->site[stack->site - 1].frame)
            s->own[stack->site] = i + 1;
    }
}
/* Returns the stack of one frame of a site, which is added if it is new; 0 for no site. */
static uint32_t own_of(scaling *s, uint32_t site) {
    mlr_profile *p = s->p;
    mlr_stack *stack;
    if (!site || s->own[site]) return site ? s->own[site] : 0;
    p->node[p->node_count++].frame = p->site[site - 1].frame;
    stack = &p->stack[p->stack_count++];
    stack->node = p->node_count;
    stack->device = p->site[site - 1].device;
    stack->site = site;
    return s->own[site] = p->stack_count;
}

/* -- live blocks: the groups -- */

static int compare(uint64_t a, uint64_t b) { return a < b ? -1 : a > b; }
static int rows_whole(const mlr_group *a, const mlr_group *b) {
    int by = compare(a->device, b->device);
    if (!by) by = compare(a->site, b->site);
    if (!by) by = compare(a->tag, b->tag);
    if (!by) by = compare(a->scope, b->scope);
    return by ? by : compare((uint64_t)a->arena, (uint64_t)b->arena);
}
static int rows_compare(const void *a, const void *b) {
    const mlr_group *x = &((const mlr_sampled *)a)->of, *y = &((const mlr_sampled *)b)->of;
    const int by = rows_whole(x, y);
    return by ? by : compare(x->stack, y->stack);
}

static void group_put(scaling *s, const mlr_group *g) {
    if (!(g->blocks | g->bytes) || s->groups == s->room) return;
    s->group[s->groups++] = *g;
}
/* Returns what a part of the way from `before` to `after` takes of a number. */
static uint64_t step_of(uint64_t number, uint64_t before, uint64_t after, uint64_t whole) {
    if (!whole || after == before) return 0;
    return part_of(number, (double)after, (double)whole) -
           part_of(number, (double)before, (double)whole);
}
/* Adds to a row the pending and marked bytes that go with what it got of `rest`: its blocks and
   bytes from before[0] and before[1] to after[0] and after[1]. */
static void marks_add(mlr_group *g, const mlr_group *rest, const uint64_t *before,
                      const uint64_t *after) {
    if (after[0] == before[0] && after[1] == before[1]) return;
    g->pending += step_of(rest->pending, before[1], after[1], rest->bytes);
    g->marked_bytes += step_of(rest->marked_bytes, before[1], after[1], rest->bytes);
    g->marked_blocks += step_of(rest->marked_blocks, before[0], after[0], rest->blocks);
    /* the blocks it got may be any of the rest's */
    if (g->oldest_ns > rest->oldest_ns) g->oldest_ns = rest->oldest_ns;
    if (g->youngest_ns < rest->youngest_ns && rest->youngest_ns != MLR_UNKNOWN)
        g->youngest_ns = rest->youngest_ns;
}
/* Adds a row to a sum. */
static void group_add(mlr_group *sum, const mlr_group *g) {
    sum->blocks += g->blocks;
    sum->bytes += g->bytes;
    sum->pending += g->pending;
    sum->marked_blocks += g->marked_blocks;
    sum->marked_bytes += g->marked_bytes;
    if (g->oldest_ns < sum->oldest_ns) sum->oldest_ns = g->oldest_ns;
    if (g->youngest_ns != MLR_UNKNOWN &&
        (sum->youngest_ns == MLR_UNKNOWN || g->youngest_ns > sum->youngest_ns))
        sum->youngest_ns = g->youngest_ns;
}
/* Divides the blocks without a stack in `count` rows, which have one device, tag, scope and site,
   among the stacks there. */
static void group_divide(scaling *s, const mlr_sampled *rows, uint32_t count) {
    mlr_group rest = rows[0].of, g;
    uint64_t kept[2], whole[2], before[2] = {0, 0}, after[2];
    uint32_t i, first = 0;
    share *part = s->allocs;
    while (first < count && !rows[first].of.stack) {
        if (first) group_add(&rest, &rows[first].of);
        first++;
    }
    if (!first)
        rest.blocks = rest.bytes = rest.pending = rest.marked_blocks = rest.marked_bytes = 0;
    whole[0] = rest.blocks;
    whole[1] = rest.bytes;
    for (i = first; i < count; i++) {
        const mlr_sampled *row = &rows[i];
        part[i].value[0] = part[i].value[1] = 0;
        part[i].rest[0] = minus((double)row->blocks, (double)row->of.blocks);
        part[i].rest[1] = minus((double)row->bytes, (double)row->of.bytes);
    }
    divide_whole(part + first, count - first, whole, kept);
    for (i = first; i < count; i++) {
        g = rows[i].of;
        after[0] = before[0] + part[i].value[0];
        after[1] = before[1] + part[i].value[1];
        g.blocks += part[i].value[0];
        g.bytes += part[i].value[1];
        marks_add(&g, &rest, before, after);
        memcpy(before, after, sizeof before);
        group_put(s, &g);
    }
    g = rest;
    g.blocks = kept[0];
    g.bytes = kept[1];
    g.pending = g.marked_blocks = g.marked_bytes = 0;
    after[0] = rest.blocks;
    after[1] = rest.bytes;
    marks_add(&g, &rest, before, after);
    g.stack = rest.arena ? 0 : own_of(s, rest.site);
    group_put(s, &g);
}
/* Counts the live blocks of each site and stack before they are divided. */
static void live_count(scaling *s, const mlr_sampled *rows, uint32_t count) {
    uint32_t i, m;
    for (i = 0; i < count; i++) {
        const mlr_group *g = &rows[i].of;
        const uint64_t own[2] = {g->blocks, g->bytes}, all[2] = {rows[i].blocks, rows[i].bytes};
        share *whole = &s->live[g->site ? g->site : s->p->site_count + g->device];
        if (g->arena) continue;
        for (m = 0; m < 2; m++) {
            whole->value[m] += own[m];
            if (!g->stack) continue;
            s->picked[g->stack].value[m] += own[m];
            s->picked[g->stack].rest[m] += minus((double)all[m], (double)own[m]);
        }
    }
}
static void live_divide(scaling *s, mlr_sampled *rows, uint32_t count) {
    uint32_t from, to;
    for (from = 0; from < count; from = to) {
        for (to = from + 1; to < count && !rows_whole(&rows[from].of, &rows[to].of);) to++;
        group_divide(s, rows + from, to - from);
    }
}
/* Sets the live blocks and bytes of each stack to the sum of its groups. */
static void live_sum(mlr_profile *p, int bytes) {
    uint32_t i;
    for (i = 0; i < p->stack_count; i++) {
        p->stack[i].live_blocks = 0;
        if (bytes) p->stack[i].live = 0;
    }
    for (i = 0; i < p->group_count; i++) {
        const mlr_group *g = &p->group[i];
        if (!g->stack || g->arena) continue;
        p->stack[g->stack - 1].live_blocks += g->blocks;
        if (bytes) p->stack[g->stack - 1].live += g->bytes;
    }
}

/* -- allocs: the stacks of each site -- */

/* Returns the share of a stack in the allocs of its site. With `live` without its live blocks,
   which are scaled already. */
static share alloc_share(const scaling *s, uint32_t row, int live) {
    const mlr_stack *stack = &s->p->stack[row - 1];
    const share *picked = &s->picked[row];
    const uint64_t all[2] = {stack->allocs, stack->alloc_bytes};
    share part;
    int m;
    memset(&part, 0, sizeof part);
    part.value[0] = stack->samples < all[0] ? stack->samples : all[0];
    if (all[0]) part.value[1] = part_of(all[1], (double)part.value[0], (double)all[0]);
    for (m = 0; m < 2; m++) {
        part.rest[m] = minus((double)all[m], (double)part.value[m]);
        if (!live) continue;
        part.value[m] -= picked->value[m] < part.value[m] ? picked->value[m] : part.value[m];
        part.rest[m] = minus(part.rest[m], picked->rest[m]);
    }
    if (!part.value[0]) part.rest[0] = part.rest[1] = 0;
    return part;
}
/* Sets the allocs of a stack. */
static void allocs_set(mlr_stack *stack, uint64_t allocs, uint64_t bytes) {
    if (stack->allocs)
        stack->temporaries = part_of(allocs, (double)stack->temporaries, (double)stack->allocs);
    stack->allocs = allocs;
    stack->alloc_bytes = bytes;
}
/* Divides the allocs of a site, or of a device without a site, among `count` stacks. */
static void allocs_divide(scaling *s, const uint32_t *stacks, uint32_t count, uint32_t site,
                          uint64_t allocs, uint64_t bytes, const share *live) {
    mlr_profile *p = s->p;
    uint64_t whole[2], kept[2];
    /* not if some live blocks are older than a reset, or came by a realloc */
    const int has_live = allocs >= live->value[0] && bytes >= live->value[1];
    uint32_t i, own;
    whole[0] = allocs - (has_live ? live->value[0] : 0);
    whole[1] = bytes - (has_live ? live->value[1] : 0);
    for (i = 0; i < count; i++) s->allocs[i] = alloc_share(s, stacks[i], has_live);
    divide_whole(s->allocs, count, whole, kept);
    own = kept[0] | kept[1] ? own_of(s, site) : s->own[site];
    for (i = 0; i < count; i++) {
        mlr_stack *stack = &p->stack[stacks[i] - 1];
        if (stacks[i] == own) continue; /* below */
        allocs_set(stack, s->allocs[i].value[0] + (has_live ? stack->live_blocks : 0),
                   s->allocs[i].value[1] + (has_live ? stack->live : 0));
    }
    if (!own) return;
    for (i = 0; i < count; i++) {
        if (stacks[i] != own) continue;
        kept[0] += s->allocs[i].value[0];
        kept[1] += s->allocs[i].value[1];
    }
    allocs_set(&p->stack[own - 1], kept[0] + (has_live ? p->stack[own - 1].live_blocks : 0),
               kept[1] + (has_live ? p->stack[own - 1].live : 0));
}

/* Returns where the whole of a stack is in a list of the sites and, behind them, the devices. */
static uint32_t whole_of(const mlr_profile *p, const mlr_stack *stack) {
    return stack->site ? stack->site : p->site_count + stack->device;
}
/* Puts the numbers of the stacks in the order of their wholes, and where each whole begins into
   first[0] to first[wholes + 1]. */
static void stacks_order(scaling *s, uint32_t *first, uint32_t wholes) {
    const mlr_profile *p = s->p;
    uint32_t i;
    for (i = 0; i < p->stack_count; i++) first[whole_of(p, &p->stack[i]) + 1]++;
    for (i = 1; i <= wholes + 1; i++) first[i] += first[i - 1];
    for (i = 0; i < p->stack_count; i++) s->stacks[first[whole_of(p, &p->stack[i])]++] = i + 1;
    for (i = wholes + 1; i; i--) first[i] = first[i - 1];
    first[0] = 0;
}
/* Returns what the sites of a device leave of its allocs or bytes. */
static uint64_t rest_of_sites(const mlr_profile *p, uint32_t device, int bytes) {
    const mlr_stats *stats = &p->device[device - 1].stats;
    uint64_t rest = bytes ? stats->total_allocated : stats->allocs;
    uint32_t i;
    for (i = 0; i < p->site_count; i++) {
        const uint64_t n = bytes ? p->site[i].alloc_bytes : p->site[i].allocs;
        if (p->site[i].device == device) rest -= n < rest ? n : rest;
    }
    return rest;
}
static void allocs_scale(scaling *s, const uint32_t *first) {
    const mlr_profile *p = s->p;
    uint32_t i;
    for (i = 1; i <= p->site_count; i++) {
        const mlr_site *site = &p->site[i - 1];
        allocs_divide(s, s->stacks + first[i], first[i + 1] - first[i], i, site->allocs,
                      site->alloc_bytes, &s->live[i]);
    }
    for (i = 1; i <= p->device_count; i++) {
        const uint32_t at = p->site_count + i;
        if (first[at + 1] == first[at]) continue;
        allocs_divide(s, s->stacks + first[at], first[at + 1] - first[at], 0,
                      rest_of_sites(p, i, 0), rest_of_sites(p, i, 1), &s->live[at]);
    }
}

/* -- peaks -- */

/* No stack has a peak above that of its site, nor below its live bytes. */
static void peaks_clamp(mlr_profile *p) {
    uint32_t i;
    for (i = 0; i < p->stack_count; i++) {
        mlr_stack *s = &p->stack[i];
        const uint64_t most =
            s->site ? p->site[s->site - 1].peak : p->device[s->device - 1].stats.peak;
        if (s->peak > most) s->peak = most;
        if (s->peak < s->live) s->peak = s->live;
    }
}
/* What the stacks of a site, or of all sites that are not listed, held at the peak of a device. */
typedef struct peak_part {
    uint64_t bytes, given;
    double held, upto, scale;
} peak_part;

/* Gives the stacks of each device its bytes at the peak, site by site, as far as the device has
   noted who held them. part[0] is for the sites that are not listed. `at`: by site, its part. */
static void peak_divide(mlr_profile *p, uint32_t device, peak_part *part, uint32_t *at) {
    const mlr_device *d = &p->device[device - 1];
    uint32_t i;
    memset(part, 0, (d->peak_sites + 1) * sizeof *part);
    part[0].bytes = d->peak_bytes - (d->peak_arena < d->peak_bytes ? d->peak_arena : d->peak_bytes);
    for (i = 0; i < d->peak_sites; i++) {
        part[i + 1].bytes = d->peak_site[i].bytes;
        part[0].bytes -=
            d->peak_site[i].bytes < part[0].bytes ? d->peak_site[i].bytes : part[0].bytes;
        at[d->peak_site[i].row] = d->peak_site[i].row ? i + 1 : 0;
    }
    for (i = 0; i < p->stack_count; i++)
        if (p->stack[i].device == device)
            part[at[p->stack[i].site]].held += (double)p->stack[i].at_peak;
    for (i = 0; i <= d->peak_sites; i++) {
        part[i].scale =
            p->sample_bytes && part[i].held > 0 ? (double)part[i].bytes / part[i].held : 1;
        if (part[i].scale > MLR_SCALE_MOST) part[i].scale = MLR_SCALE_MOST;
    }
    for (i = 0; i < p->stack_count; i++) {
        peak_part *of = &part[at[p->stack[i].site]];
        uint64_t upto;
        if (p->stack[i].device != device) continue;
        of->upto += (double)p->stack[i].at_peak;
        upto = of->upto * of->scale + 0.5 < (double)of->bytes
                   ? (uint64_t)(of->upto * of->scale + 0.5)
                   : of->bytes;
        p->stack[i].at_peak = upto - of->given;
        of->given = upto;
    }
    for (i = 0; i < d->peak_sites; i++) at[d->peak_site[i].row] = 0;
}
static int peaks_divide(mlr_profile *p) {
    peak_part *part;
    uint32_t *at = (uint32_t *)calloc((size_t)p->site_count + 1, sizeof *at), i, most = 0;
    for (i = 0; i < p->device_count; i++)
        if (p->device[i].peak_sites > most) most = p->device[i].peak_sites;
    part = (peak_part *)calloc((size_t)most + 1, sizeof *part);
    for (i = 1; at && part && i <= p->device_count; i++)
        if (p->device[i - 1].peak_bytes) peak_divide(p, i, part, at);
    i = !at || !part;
    free(at);
    free(part);
    return (int)i;
}

/* -- the whole -- */

static int scale_sampled(scaling *s, mlr_sampled *rows, uint32_t count) {
    mlr_profile *p = s->p;
    const size_t wholes = (size_t)p->site_count + p->device_count, most = count + p->stack_count;
    const size_t stacks = (size_t)p->stack_count + p->site_count + 1;
    uint32_t *first = (uint32_t *)calloc(wholes + 2, sizeof *first);
    int failed;
    s->own = (uint32_t *)calloc((size_t)p->site_count + 1, sizeof *s->own);
    s->stacks = (uint32_t *)calloc(stacks, sizeof *s->stacks);
    s->picked = (share *)calloc(stacks, sizeof *s->picked);
    s->live = (share *)calloc(wholes + 1, sizeof *s->live);
    s->allocs = (share *)calloc(most + 1, sizeof *s->allocs);
    failed = !first || !s->own || !s->stacks || !s->picked || !s->live || !s->allocs;
    if (!failed && own_room(s)) {
        own_find(s);
        stacks_order(s, first, (uint32_t)wholes);
        qsort(rows, count, sizeof *rows, rows_compare);
        live_count(s, rows, count);
        live_divide(s, rows, count);
        p->group_count = s->groups;
        live_sum(p, 1);
        allocs_scale(s, first);
    } else {
        failed = 1;
    }
    free(first);
    free(s->own);
    free(s->stacks);
    free(s->picked);
    free(s->live);
    free(s->allocs);
    return failed;
}
MLR_PRIVATE int mlr_scale(mlr_profile *p, mlr_sampled *rows, uint32_t count) {
    scaling s;
    uint32_t i;
    memset(&s, 0, sizeof s);
    s.p = p;
    s.room = 2 * count; /* each row may leave one for the stack of one frame */
    s.group = (mlr_group *)mlr_arena_alloc(p->arena, (size_t)s.room + 1, sizeof *s.group);
    if (!s.group) return 1;
    p->group = s.group;
    if (p->sample_bytes && p->stack_count) {
        if (scale_sampled(&s, rows, count)) return 1;
    } else {
        for (i = 0; i < count; i++) group_put(&s, &rows[i].of);
        p->group_count = s.groups;
        live_sum(p, 0);
    }
    peaks_clamp(p);
    return peaks_divide(p);
}
