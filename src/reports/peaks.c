#include "reports/peaks.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "books/counters.h"
#include "books/sites.h"
#include "books/stacks.h"
#include "services/snapshots.h"
#include "services/stats.h"
#include "reports/capture.h"
#include "reports/shares.h"

#if !defined(MEMLORD_NO_PROFILES)

/* A part of a device's peak: one of its largest sites, or all others together. */
typedef struct mli_peak_part {
    uint32_t site;  /* the number of the site on the device; 0 for the bytes of other sites */
    uint64_t bytes; /* all bytes of the part */
    uint64_t given; /* the bytes that are already written for stacks */
    double stacks;  /* the sum of the bytes that the part's stacks held at the peak */
    double upto;    /* how many of the bytes in `stacks` are of stacks that are already written */
    double scale;   /* how many bytes a stack gets for each byte that it held */
} mli_peak_part;
typedef struct mli_peak {
    mli_export *x;
    mli_block_fn put;
    void *writer;
    uint32_t dev;
    uint32_t rest; /* the frame that stands for bytes that have neither a listed site nor a stack */
    mli_peak_part part[MLI_HOLDERS + 1]; /* the largest sites, and the last for all others */
} mli_peak;

/* Returns the part of a device's peak that the bytes of a site belong to. */
static mli_peak_part *mli_peak_part_of(mli_peak *p, uint32_t site) {
    uint32_t i = 0;
    while (i < MLI_HOLDERS && !(site && p->part[i].site == site)) i++;
    return &p->part[i];
}
/* Fills in the parts of the sites that held the most bytes of the device at its peak. */
static MLI_COLD void mli_peak_sites(mli_peak *p, const mli_holders *h) {
    memlord *lord = p->x->lord;
    uint32_t row;
    size_t i;
    for (i = 0; i < h->sites; i++) {
        const mli_site_record *record = mli_site_record_of(lord, h->site[i].site);
        for (row = 1; row <= p->x->sites; row++)
            if (mli_row_at(lord, MLI_BOOK_SITE, row)->dev == p->dev &&
                mli_row_at(lord, MLI_BOOK_SITE, row)->subject == (const void *)record)
                break;
        if (row > p->x->sites) continue; /* leaves out a site that was added after the capture */
        p->part[i].site = row;
        p->part[i].bytes = h->site[i].live_bytes;
        mli_take_off(&p->part[MLI_HOLDERS].bytes, h->site[i].live_bytes);
    }
}

static MLI_COLD void mli_peak_put(const mli_peak *p, mli_live_block b, uint64_t bytes) {
    b.bytes = bytes;
    if (bytes) p->put(p->writer, &b);
}
/* Adds the bytes that a stack held at the peak to the sum of its part. */
static void mli_peak_count(mli_peak *p, const mli_stack_row *row) {
    mli_peak_part_of(p, row->site)->stacks += (double)mli_u64_load(&row->held);
}
/* Gives a stack its share of its part's bytes. Rounds the sum of all stacks so far, and not each
   share, so that rounding leaves no bytes over. */
static void mli_peak_give(mli_peak *p, const mli_stack_row *row) {
    mli_peak_part *part = mli_peak_part_of(p, row->site);
    mli_live_block b = mli_live_block_make(p->x, p->dev, 0, 0, row->site);
    uint64_t upto;
    part->upto += (double)mli_u64_load(&row->held);
    upto = (uint64_t)(part->upto * part->scale + 0.5);
    if (upto > part->bytes) upto = part->bytes; /* may be too high if a new peak came meanwhile */
    b.node = row->node;
    mli_peak_put(p, b, upto - part->given);
    part->given = upto;
}
static MLI_COLD void mli_peak_stacks(mli_peak *p,
                                     void (*fn)(mli_peak *p, const mli_stack_row *row)) {
    uint32_t i;
    for (i = 1; i <= p->x->stacks && !p->x->o->failed; i++) {
        const mli_stack_row *row = mli_stack_row_at(p->x->lord, i);
        if (row->dev == p->dev) fn(p, row);
    }
}
/* Computes how many bytes the stacks of each part get for each byte that they held. */
static MLI_COLD void mli_peak_scale(mli_peak *p) {
    const int sampled = mli_stacks_sampled(p->x->lord);
    uint32_t i;
    for (i = 0; i <= MLI_HOLDERS; i++) {
        mli_peak_part *part = &p->part[i];
        part->scale = sampled && part->stacks > 0 ? (double)part->bytes / part->stacks : 1;
        if (part->scale > MLI_PORTION_MOST) part->scale = MLI_PORTION_MOST;
    }
}

static MLI_COLD void mli_peak_of(mli_peak *p, const mli_holders *h) {
    mli_live_block b = mli_live_block_make(p->x, p->dev, 0, 0, 0);
    uint32_t i;
    memset(p->part, 0, sizeof p->part);
    p->rest = mli_frame_of_kind(p->x, p->dev,
                                h->sites < MLI_HOLDERS ? MLI_FRAME_UNKNOWN : MLI_FRAME_OTHERS);
    p->part[MLI_HOLDERS].bytes = h->bytes;
    mli_take_off(&p->part[MLI_HOLDERS].bytes, h->arena);
    mli_peak_sites(p, h);
    mli_peak_stacks(p, mli_peak_count);
    mli_peak_scale(p);
    mli_peak_stacks(p, mli_peak_give);
    for (i = 0; i <= MLI_HOLDERS; i++) {
        b.frame = i < MLI_HOLDERS ? p->part[i].site : p->rest;
        mli_peak_put(p, b, p->part[i].bytes - p->part[i].given);
    }
    b.frame = mli_frame_of_kind(p->x, p->dev, MLI_FRAME_ARENA);
    mli_peak_put(p, b, h->arena);
}
MLI_PRIVATE MLI_COLD void mli_peak_blocks_each(mli_export *x, mli_block_fn put, void *writer) {
    mli_peak p;
    p.x = x;
    p.put = put;
    p.writer = writer;
    for (p.dev = 1; p.dev <= x->devices; p.dev++)
        if (mli_holders_get(x->lord, p.dev, &x->r->holders)) mli_peak_of(&p, &x->r->holders);
}
#endif
