#include "reports/callers.h"
#include "base/memory.h"
#include "books/sites.h"
#include "books/stacks.h"
#include "books/stack_totals.h"
#include "reports/capture.h"

static size_t mli_callers_size(const mli_report *r) {
    return ((size_t)r->site_rows + 1 + r->row_count) * sizeof *r->site_stack;
}
MLI_PRIVATE MLI_COLD void mli_callers_begin(mli_report *r) {
    uint32_t i, site;
    if (r->row_count < 2) return;
    r->site_stack = (uint32_t *)mli_own_alloc(r->lord, mli_callers_size(r));
    if (!r->site_stack) {
        r->result = MEMLORD_E_NOMEM;
        return;
    }
    for (i = r->row_count; i-- > 1;) { /* goes backwards, so that the oldest stack comes first in
                                          its site's list */
        site = mli_stack_row_at(r->lord, i)->site;
        if (!site || site > r->site_rows) continue; /* leaves out a stack without a site, or with
                                                       one that is newer than the capture */
        r->site_stack[r->site_rows + 1 + i] = r->site_stack[site];
        r->site_stack[site] = i;
    }
}
MLI_PRIVATE MLI_COLD void mli_callers_end(mli_report *r) {
    mli_own_free(r->lord, r->site_stack, mli_callers_size(r));
}

static int mli_site_is_library(memlord *lord, const memlord_site *site) {
    const mli_functions *all = mli_site_functions(lord, site);
    return all && all->at[all->shown].library;
}
/* Returns the innermost function of a stack that is in no standard library, or NULL if there is
   none. */
static MLI_COLD const memlord_site *mli_own_function(memlord *lord, uint32_t node) {
    while (node) {
        const mli_stack_node *at = mli_stack_node_at(lord, node);
        const memlord_site *site = mli_site_display(lord, at->site);
        if (!mli_site_is_library(lord, site)) return site;
        node = at->parent;
    }
    return NULL;
}
/* Adds the numbers of a stack to those of `site`, the function of the program that called the
   library. */
static MLI_COLD void mli_caller_add(mli_callers *callers, const memlord_site *site,
                                    const memlord_stack_stat *s) {
    mli_caller *c = callers->at, *last = callers->at + MLI_CALLERS;
    for (; c < callers->at + callers->count && c < last; c++)
        if (c->at->file == site->file && c->at->function == site->function &&
            c->at->line == site->line)
            break;
    if (c == callers->at + callers->count) {
        c->at = c < last ? site : NULL;
        callers->count++;
    }
    c->live_bytes += s->live_bytes;
    c->alloc_bytes += s->alloc_bytes;
    c->allocs += s->allocs;
}
static int mli_caller_after(const mli_caller *a, const mli_caller *b) {
    return a->live_bytes != b->live_bytes ? a->live_bytes < b->live_bytes
                                          : a->alloc_bytes < b->alloc_bytes;
}
static MLI_COLD void mli_callers_sort(mli_callers *callers) {
    size_t i, k;
    for (i = 1; i < callers->count; i++) {
        const mli_caller moving = callers->at[i];
        for (k = i; k && mli_caller_after(&callers->at[k - 1], &moving); k--)
            callers->at[k] = callers->at[k - 1];
        callers->at[k] = moving;
    }
}
MLI_PRIVATE MLI_COLD void mli_callers_of(mli_report *r, uint32_t row, mli_callers *out) {
    uint32_t i;
    memset(out, 0, sizeof *out);
    if (!r->site_stack || row > r->site_rows) return;
    if (!mli_site_is_library(r->lord, mli_row_site(r->lord, row))) return;
    for (i = r->site_stack[row]; i; i = r->site_stack[r->site_rows + 1 + i]) {
        memlord_stack_stat s;
        const memlord_site *own =
            mli_own_function(r->lord, mli_stack_row_at(r->lord, i)->node);
        mli_stack_stat_fill(r->lord, i, &s);
        if (own && (s.live_bytes | s.alloc_bytes | s.allocs)) mli_caller_add(out, own, &s);
    }
    mli_callers_sort(out);
}
