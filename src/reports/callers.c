#include "reports/callers.h"
#include "base/text.h"
#include "base/memory.h"
#include "books/sites.h"
#include "books/stacks.h"
#include "books/stack_totals.h"
#include "reports/capture.h"

static size_t mli_callers_size(const mli_report *r) {
    return sizeof *r->callers + ((size_t)r->site_rows + 1 + r->row_count) * sizeof *r->site_stack;
}
MLI_PRIVATE MLI_COLD void mli_callers_begin(mli_report *r) {
    uint32_t i, site;
    if (r->row_count < 2) return;
    r->callers = (mli_callers *)mli_own_alloc(r->lord, mli_callers_size(r));
    if (!r->callers) {
        r->result = MEMLORD_E_NOMEM;
        return;
    }
    r->site_stack = (uint32_t *)(void *)(r->callers + 1);
    for (i = r->row_count; i-- > 1;) { /* backwards, so that the oldest comes first in a list */
        site = mli_stack_row_at(r->lord, i)->site;
        if (!site || site > r->site_rows) continue; /* leaves out a stack without a site, or with
                                                       one that is newer than the capture */
        r->site_stack[r->site_rows + 1 + i] = r->site_stack[site];
        r->site_stack[site] = i;
    }
}
MLI_PRIVATE MLI_COLD void mli_callers_end(mli_report *r) {
    mli_own_free(r->lord, r->callers, mli_callers_size(r));
}

static int mli_site_is_library(memlord *lord, const memlord_site *site) {
    const mli_functions *all = mli_site_functions(lord, site);
    return all && all->at[all->shown].library;
}
MLI_PRIVATE MLI_COLD const memlord_site *mli_own_next(mli_own_walk *walk) {
    while (walk->node) {
        const mli_stack_node *node = mli_stack_node_at(walk->lord, walk->node);
        const memlord_site *site = mli_site_display(walk->lord, node->site);
        const mli_functions *all = mli_site_functions(walk->lord, site);
        const uint32_t i = walk->function++;
        if (i >= (all ? all->count : 1)) {
            walk->node = node->parent;
            walk->function = 0;
        } else if (!all) {
            return site;
        } else if (!all->at[i].library) {
            return &all->at[i].at;
        }
    }
    return NULL;
}
/* Returns 1 if a function seems to allocate for others: "xmalloc", "PoolAlloc", "xstrdup". */
static MLI_COLD int mli_allocates_by_name(const char *function) {
    static const char words[] = "alloc\0strdup\0strndup\0memdup\0operator new\0";
    const char *word, *at;
    for (at = function; *at; at++)
        for (word = words; *word; word += strlen(word) + 1) {
            size_t n = 0;
            while (word[n] && mli_ascii_lower(at[n]) == word[n]) n++;
            if (!word[n]) return 1;
        }
    return 0;
}
/* Returns the function that a site was called from in a stack, or NULL if it is not known. A
   function that calls itself is not its own caller. If the site's own function is in a standard
   library, or has the name of an allocating function, passes over callers with the name of an
   allocating function, unless all callers have one. A cut stack has a text such as "[cut: deeper]"
   in place of some frames. The text has no file, and is no caller. */
static MLI_COLD const memlord_site *mli_caller_at(memlord *lord, const memlord_site *site,
                                                  uint32_t node) {
    const int library = mli_site_is_library(lord, site);
    mli_own_walk walk = {NULL, 0, 0};
    const memlord_site *own, *first, *caller;
    walk.lord = lord;
    walk.node = node;
    own = first = mli_own_next(&walk);
    if (!own || (!own->function[0] && !library)) return NULL;
    while (first && !library &&
           (!strcmp(first->function, own->function) || !strcmp(first->function, site->function)))
        first = mli_own_next(&walk);
    caller = first;
    if (library || mli_allocates_by_name(own->function))
        while (caller && mli_allocates_by_name(caller->function)) caller = mli_own_next(&walk);
    if (!caller || !caller->function[0] || !caller->file[0]) caller = first;
    return library || (caller && caller->function[0] && caller->file[0]) ? caller : NULL;
}
/* Adds the bytes and allocs of a stack to those of its caller, `site`. */
static MLI_COLD void mli_caller_add(mli_callers *callers, const memlord_site *site,
                                    const memlord_stack_stat *s, uint64_t held) {
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
    c->at_peak_bytes += held;
    c->alloc_bytes += s->alloc_bytes;
    c->allocs += s->allocs;
}
/* Sets the share of each caller, and the sum of the shares. */
static MLI_COLD void mli_callers_share(mli_callers *callers, int by_peak) {
    uint64_t peak = 0, live = 0;
    size_t i;
    for (i = 0; i < callers->count; i++) {
        peak += callers->at[i].at_peak_bytes;
        live += callers->at[i].live_bytes;
    }
    for (i = 0; i < callers->count; i++) {
        mli_caller *c = &callers->at[i];
        c->share = by_peak && peak ? c->at_peak_bytes : live ? c->live_bytes : c->alloc_bytes;
        callers->sum += c->share;
    }
}
static MLI_COLD void mli_callers_sort(mli_callers *callers) {
    size_t i, k;
    for (i = 1; i < callers->count; i++) {
        const mli_caller moving = callers->at[i];
        for (k = i; k && moving.share > callers->at[k - 1].share; k--)
            callers->at[k] = callers->at[k - 1];
        callers->at[k] = moving;
    }
}
MLI_PRIVATE MLI_COLD const mli_callers *mli_callers_of(mli_report *r, uint32_t row) {
    mli_callers *out = r->callers;
    const memlord_site *site;
    uint32_t i;
    if (!out || row > r->site_rows) return NULL;
    memset(out, 0, sizeof *out);
    site = mli_row_site(r->lord, row);
    for (i = r->site_stack[row]; i; i = r->site_stack[r->site_rows + 1 + i]) {
        memlord_stack_stat s;
        const memlord_site *caller =
            mli_caller_at(r->lord, site, mli_stack_row_at(r->lord, i)->node);
        const uint64_t held = mli_stack_stat_fill(r->lord, i, &s);
        if (caller && (s.live_bytes | s.alloc_bytes | s.allocs))
            mli_caller_add(out, caller, &s, held);
    }
    mli_callers_share(out, r->by_peak);
    mli_callers_sort(out);
    return out->count ? out : NULL;
}
