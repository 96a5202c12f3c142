#include "formats/holdings.h"
#include <stdlib.h>
#include <string.h>

#define HOLDERS 16 /* the most sites that the ledger notes at a peak */

MLR_PRIVATE uint64_t mlr_device_peak(const mlr_device *device) {
    return device->stats.peak > device->stats.allocated ? device->stats.peak
                                                        : device->stats.allocated;
}
MLR_PRIVATE uint64_t mlr_take(uint64_t *number, uint64_t bytes) {
    if (bytes > *number) bytes = *number;
    *number -= bytes;
    return bytes;
}

/* -- the list -- */

MLR_PRIVATE void mlr_holding_add(mlr_holdings *rows, const mlr_holding *row) {
    if (!(row->blocks | row->bytes) || rows->failed) return;
    if (rows->count == rows->room) {
        const size_t room = rows->room ? rows->room * 2 : 256;
        mlr_holding *at = (mlr_holding *)realloc(rows->at, room * sizeof *at);
        if (!at) {
            rows->failed = 1;
            return;
        }
        rows->at = at;
        rows->room = room;
    }
    rows->at[rows->count++] = *row;
}
MLR_PRIVATE void mlr_holdings_free(mlr_holdings *rows) {
    free(rows->at);
    memset(rows, 0, sizeof *rows);
}
static mlr_holding row_of(uint32_t device, uint32_t site, uint32_t stack, uint64_t blocks,
                          uint64_t bytes) {
    mlr_holding row;
    memset(&row, 0, sizeof row);
    row.device = device;
    row.where.site = site;
    row.where.stack = stack;
    row.blocks = blocks;
    row.bytes = bytes;
    return row;
}
/* Adds bytes of a device that have no site, but are of a kind. */
static void row_add_kind(mlr_holdings *rows, uint32_t device, uint32_t kind, uint64_t blocks,
                         uint64_t bytes) {
    mlr_holding row = row_of(device, 0, 0, blocks, bytes);
    row.where.kind = kind;
    mlr_holding_add(rows, &row);
}

/* -- what stacks leave to their sites, and sites to their device -- */

typedef struct amount {
    uint64_t blocks, bytes;
} amount;
enum { ALLOCATED, LIVE };

static amount of_device(const mlr_device *d, int what) {
    amount a = {d->stats.allocs, d->stats.total_allocated};
    if (what == LIVE) {
        a.blocks = d->stats.live_blocks;
        a.bytes = d->stats.allocated;
        (void)mlr_take(&a.bytes, d->arena);
    }
    return a;
}
static amount of_site(const mlr_site *s, int what) {
    amount a = {s->allocs, s->alloc_bytes};
    if (what == LIVE) {
        a.blocks = s->allocs - s->frees;
        if (s->frees > s->allocs) a.blocks = 0;
        a.bytes = s->live;
    }
    return a;
}
static amount of_stack(const mlr_stack *s, int what) {
    amount a = {s->allocs, s->alloc_bytes};
    if (what == LIVE) {
        a.blocks = s->live_blocks;
        a.bytes = s->live;
    }
    return a;
}
static void take_off(amount *left, amount a) {
    (void)mlr_take(&left->blocks, a.blocks);
    (void)mlr_take(&left->bytes, a.bytes);
}

/* Adds a row for each stack, then for what each site has in no stack, then for what each device has
   at no site. Where every alloc has its stack, a site has allocated nothing in none, and what it
   has more than its stacks is of reallocs, which the device does not count. `left` has room for the
   sites and the devices. */
static void spread_over(const mlr_profile *p, mlr_holdings *rows, int what, amount *left) {
    amount *device = left + p->site_count;
    uint32_t i;
    for (i = 0; i < p->site_count; i++) left[i] = of_site(&p->site[i], what);
    for (i = 0; i < p->device_count; i++) device[i] = of_device(&p->device[i], what);
    for (i = 0; i < p->stack_count; i++) {
        const mlr_stack *s = &p->stack[i];
        const amount a = of_stack(s, what);
        const mlr_holding row = row_of(s->device, s->site, i + 1, a.blocks, a.bytes);
        mlr_holding_add(rows, &row);
        take_off(&device[s->device - 1], a);
        if (s->site) take_off(&left[s->site - 1], a);
    }
    for (i = 0; i < p->site_count && !(what == ALLOCATED && p->stack_count && !p->sample_bytes);
         i++) {
        const mlr_holding row = row_of(p->site[i].device, i + 1, 0, left[i].blocks, left[i].bytes);
        mlr_holding_add(rows, &row);
        take_off(&device[row.device - 1], left[i]);
    }
    for (i = 0; i < p->device_count; i++)
        row_add_kind(rows, i + 1, MLR_KIND_UNKNOWN, device[i].blocks, device[i].bytes);
}
static void spread(const mlr_profile *p, mlr_holdings *rows, int what) {
    amount *left = (amount *)calloc((size_t)p->site_count + p->device_count + 1, sizeof *left);
    if (left)
        spread_over(p, rows, what, left);
    else
        rows->failed = 1;
    free(left);
}

/* -- live -- */

static void add_group(mlr_holdings *rows, const mlr_group *g) {
    mlr_holding row = row_of(g->device, g->site, g->stack, g->blocks, g->bytes);
    row.tag = g->tag;
    row.where.scope = g->scope;
    if (g->arena) {
        row.where.site = row.where.stack = row.where.scope = 0;
        row.where.kind = MLR_KIND_ARENA;
        row.blocks = 0;
    }
    mlr_holding_add(rows, &row);
}
static int has_groups(const mlr_profile *p) { return !(p->lacks & MLR_LACKS_GROUPS); }

/* Adds what is live by groups; in an older file by stacks and sites. */
static void add_live(const mlr_profile *p, mlr_holdings *rows) {
    uint32_t i;
    for (i = 0; i < p->group_count && has_groups(p); i++) add_group(rows, &p->group[i]);
    if (has_groups(p)) return;
    spread(p, rows, LIVE);
    for (i = 0; i < p->device_count; i++)
        row_add_kind(rows, i + 1, MLR_KIND_ARENA, 0, p->device[i].arena);
}

/* A table that finds the rows of a block: lists of those of a device, tag, scope and site. */
typedef struct finder {
    const mlr_profile *p;
    mlr_holdings *rows;
    size_t *head, *next, mask; /* head: the first of a list; next: the one after a row; from 1 */
} finder;

static size_t *finder_list(const finder *f, const mlr_holding *key) {
    uint64_t hash = ((uint64_t)key->device << 32 | key->where.site) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
    if (has_groups(f->p)) hash += (uint64_t)key->tag << 32 | key->where.scope;
    hash *= 0x9e3779b97f4a7c15u;
    return &f->head[(size_t)(hash >> 32) & f->mask];
}
static int is_of(const finder *f, const mlr_holding *row, const mlr_holding *key) {
    return row->device == key->device && row->where.site == key->where.site && !row->part &&
           row->where.kind != MLR_KIND_ARENA &&
           (!has_groups(f->p) || (row->tag == key->tag && row->where.scope == key->where.scope));
}
static int finder_open(finder *f, const mlr_profile *p, mlr_holdings *rows) {
    size_t i;
    f->p = p;
    f->rows = rows;
    for (f->mask = 63; f->mask < rows->count; f->mask = f->mask * 2 + 1) {
    }
    f->head = (size_t *)calloc(f->mask + 1, sizeof *f->head);
    f->next = (size_t *)calloc(rows->count + 1, sizeof *f->next);
    if (!f->head || !f->next) return 0;
    for (i = rows->count; i; i--) {
        size_t *list = finder_list(f, &rows->at[i - 1]);
        f->next[i] = *list;
        *list = i;
    }
    return 1;
}
static void finder_close(finder *f) {
    free(f->head);
    free(f->next);
}
static void take_from(mlr_holding *row, amount *left) {
    left->blocks -= mlr_take(&row->blocks, left->blocks);
    left->bytes -= mlr_take(&row->bytes, left->bytes);
}
/* Takes blocks and bytes off the row with the stack of the key, then off others of its list.
   Returns what these rows did not have. */
static amount finder_take(finder *f, const mlr_holding *key) {
    amount left = {key->blocks, key->bytes};
    int others;
    for (others = 0; others < 2; others++) {
        size_t i = *finder_list(f, key);
        for (; i && (left.blocks | left.bytes); i = f->next[i]) {
            mlr_holding *row = &f->rows->at[i - 1];
            if (!is_of(f, row, key) || (row->where.stack != key->where.stack) != others) continue;
            take_from(row, &left);
        }
    }
    return left;
}
/* Takes blocks and bytes off rows of the device, where it has no row like the key: a block got
   another tag since its event. */
static void finder_take_any(finder *f, const mlr_holding *key) {
    amount left = finder_take(f, key);
    size_t i;
    for (i = 0; i < f->rows->count && (left.blocks | left.bytes); i++) {
        mlr_holding *row = &f->rows->at[i];
        if (row->device == key->device && row->where.kind != MLR_KIND_ARENA) take_from(row, &left);
    }
}

MLR_PRIVATE mlr_holding mlr_holding_of_block(const mlr_block *b) {
    mlr_holding row = row_of(b->device, b->site, b->stack, 1, b->bytes);
    row.tag = b->tag;
    row.where.scope = b->scope;
    return row;
}
/* Gives the parts of a block rows of their own. */
static void split_block(finder *f, const mlr_block *b) {
    mlr_holding row = mlr_holding_of_block(b);
    uint32_t i;
    for (i = 0; i < b->parts; i++) {
        mlr_holding part = row;
        part.blocks = 0;
        part.bytes = b->part[i].bytes;
        (void)finder_take(f, &part);
        part.part = b->part[i].name[0] ? b->part[i].name : "(part)";
        mlr_holding_add(f->rows, &part);
    }
}
static void drop_empty(mlr_holdings *rows) {
    size_t i, kept = 0;
    for (i = 0; i < rows->count; i++)
        if (rows->at[i].blocks | rows->at[i].bytes) rows->at[kept++] = rows->at[i];
    rows->count = kept;
}
MLR_PRIVATE void mlr_holdings_live(const mlr_profile *p, mlr_holdings *rows) {
    finder f;
    uint32_t i;
    add_live(p, rows);
    if (p->sample_bytes || rows->failed) return; /* blocks of one share have no parts */
    rows->failed = !finder_open(&f, p, rows);
    for (i = 0; i < p->block_count && !rows->failed; i++) split_block(&f, &p->block[i]);
    finder_close(&f);
    drop_empty(rows);
}
MLR_PRIVATE void mlr_holdings_unlisted(const mlr_profile *p, const mlr_holdings *others,
                                       mlr_holdings *rows) {
    finder f;
    uint32_t i;
    size_t k;
    add_live(p, rows);
    if (rows->failed) return;
    rows->failed = !finder_open(&f, p, rows);
    for (i = 0; i < p->block_count && !rows->failed; i++) {
        const mlr_holding key = mlr_holding_of_block(&p->block[i]);
        finder_take_any(&f, &key);
    }
    for (k = 0; others && k < others->count && !rows->failed; k++)
        finder_take_any(&f, &others->at[k]);
    finder_close(&f);
    drop_empty(rows);
}

MLR_PRIVATE void mlr_holdings_allocated(const mlr_profile *p, mlr_holdings *rows) {
    spread(p, rows, ALLOCATED);
}

/* -- the peak -- */

/* A part of a device's peak: what one of the listed sites held, or all others together. */
typedef struct peak_part {
    int listed;
    uint64_t bytes, given; /* all of the part; those that are written for stacks */
    uint64_t stacks, upto; /* what its stacks held; those of them that are written */
} peak_part;

/* Returns 1 if more is live on a device than the ledger has noted at its peak. */
static int is_now(const mlr_device *d) { return d->stats.allocated > d->peak_bytes; }

static peak_part *part_of(const mlr_profile *p, peak_part *parts, const mlr_stack *s) {
    if (s->site && parts[s->site - 1].listed) return &parts[s->site - 1];
    return &parts[p->site_count + s->device - 1];
}
static void fill_parts(const mlr_profile *p, peak_part *parts) {
    uint32_t dev, i;
    for (dev = 0; dev < p->device_count; dev++) {
        const mlr_device *d = &p->device[dev];
        peak_part *rest = &parts[p->site_count + dev];
        rest->bytes = mlr_device_peak(d);
        (void)mlr_take(&rest->bytes, is_now(d) ? d->stats.allocated : d->peak_arena);
        for (i = 0; i < d->peak_sites && !is_now(d); i++) {
            const uint32_t site = d->peak_site[i].row;
            if (!site) continue;
            parts[site - 1].listed = 1;
            parts[site - 1].bytes = mlr_take(&rest->bytes, d->peak_site[i].bytes);
        }
    }
    for (i = 0; i < p->stack_count; i++)
        part_of(p, parts, &p->stack[i])->stacks += p->stack[i].at_peak;
}
/* Gives a stack what it held or, if the stacks of its part held more than the part, a share. */
static void give_stack(const mlr_profile *p, mlr_holdings *rows, peak_part *parts, uint32_t stack) {
    const mlr_stack *s = &p->stack[stack - 1];
    peak_part *part = part_of(p, parts, s);
    mlr_holding row = row_of(s->device, s->site, stack, 0, s->at_peak);
    part->upto += s->at_peak;
    if (part->stacks > part->bytes) {
        uint64_t upto =
            (uint64_t)((double)part->upto * ((double)part->bytes / (double)part->stacks));
        if (upto > part->bytes || part->upto == part->stacks) upto = part->bytes;
        row.bytes = upto - part->given;
    }
    part->given += row.bytes;
    mlr_holding_add(rows, &row);
}
/* Adds who has the live bytes of a device, for one whose peak is now. */
static void add_now(const mlr_profile *p, mlr_holdings *rows) {
    mlr_holdings live;
    size_t i;
    memset(&live, 0, sizeof live);
    add_live(p, &live);
    rows->failed |= live.failed;
    for (i = 0; i < live.count; i++) {
        mlr_holding row = live.at[i];
        row.tag = row.where.scope = 0;
        row.blocks = 0;
        if (is_now(&p->device[row.device - 1])) mlr_holding_add(rows, &row);
    }
    mlr_holdings_free(&live);
}
static void add_peak(const mlr_profile *p, mlr_holdings *rows, peak_part *parts) {
    uint32_t i;
    fill_parts(p, parts);
    for (i = 1; i <= p->stack_count; i++)
        if (!is_now(&p->device[p->stack[i - 1].device - 1])) give_stack(p, rows, parts, i);
    for (i = 0; i < p->site_count; i++) {
        const mlr_holding row =
            row_of(p->site[i].device, i + 1, 0, 0, parts[i].bytes - parts[i].given);
        mlr_holding_add(rows, &row);
    }
    for (i = 0; i < p->device_count; i++) {
        const mlr_device *d = &p->device[i];
        const peak_part *rest = &parts[p->site_count + i];
        const uint32_t kind = d->peak_sites < HOLDERS ? MLR_KIND_UNKNOWN : MLR_KIND_OTHERS;
        row_add_kind(rows, i + 1, kind, 0, rest->bytes - rest->given);
        if (!is_now(d)) row_add_kind(rows, i + 1, MLR_KIND_ARENA, 0, d->peak_arena);
    }
}
MLR_PRIVATE void mlr_holdings_peak(const mlr_profile *p, mlr_holdings *rows) {
    const size_t count = (size_t)p->site_count + p->device_count + 1;
    peak_part *parts = (peak_part *)calloc(count, sizeof *parts);
    if (parts) {
        add_peak(p, rows, parts);
        add_now(p, rows);
    } else {
        rows->failed = 1;
    }
    free(parts);
}
