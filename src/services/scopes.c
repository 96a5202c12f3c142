#include "services/scopes.h"
#include "services/joint.h"
#include "os/unwind.h"
#include "base/ledger.h"
#include "base/log.h"
#include "base/memory.h"
#include "books/counters.h"
#include "books/spans.h"
#include "books/names.h"
#include "books/anomalies.h"
#include "books/tags.h"

struct mli_scopes_state {
    mli_u32 warned; /* 1: the first dropped scope was logged */
};

/* Returns the first thread scope of a scope. Its `next` leads to the others. */
static mli_thread_scope *mli_thread_scope_first(const mli_scope_record *scope) {
    return (mli_thread_scope *)mli_ptr_load_acquire(&scope->threads);
}

static void mli_min_max_reset(mli_min_max *e) {
    mli_u64_store(&e->total, 0);
    mli_u64_store(&e->min, INT64_MAX);
    mli_u64_store(&e->max, (uint64_t)INT64_MIN);
}

/* Adds a value to a total, minimum and maximum of the caller's own thread scope. */
static void mli_min_max_add(mli_min_max *e, uint64_t v) {
    mli_u64_add_own(&e->total, v);
    if ((int64_t)v < (int64_t)mli_u64_load_own(&e->min)) mli_u64_store(&e->min, v);
    if ((int64_t)v > (int64_t)mli_u64_load_own(&e->max)) mli_u64_store(&e->max, v);
}

/* Resets a thread scope for the current epoch. The release store of `epoch` pairs with
   mli_thread_scope_count. Requires: the caller is the thread that the thread scope belongs to. */
static MLI_COLD void mli_thread_scope_reset(memlord *lord, mli_thread_scope *s) {
    uint32_t i;
    mli_u64_store(&s->count, 0);
    mli_u64_store(&s->peak, 0);
    mli_min_max_reset(&s->bytes);
    mli_min_max_reset(&s->blocks);
    mli_min_max_reset(&s->stamps);
    for (i = 0; i <= MEMLORD_MAX_DEVICES; i++) mli_u64_store(&s->devices[i], 0);
    mli_u64_store_release(&s->epoch, mli_epoch(lord));
}

/* Adds an invocation that has ended to the caller's own thread scope. */
static void mli_thread_scope_add(mli_thread_scope *s, const mli_scope_run *v) {
    uint64_t n = mli_u64_load_own(&s->count);
    mli_words_store(s->runs[n % (MLI_RUNS_KEPT + 1)], v, MLI_RUN_WORDS);
    mli_min_max_add(&s->bytes, v->bytes);
    mli_min_max_add(&s->blocks, v->blocks);
    mli_min_max_add(&s->stamps, v->stamps);
    if (v->peak > mli_u64_load_own(&s->peak)) mli_u64_store(&s->peak, v->peak);
    mli_u64_store_release(&s->count, n + 1); /* pairs with mli_thread_scope_count */
}

static uint64_t mli_live_total(memlord *lord) {
    uint32_t i, n = mli_row_count(lord, MLI_BOOK_DEVICE);
    uint64_t sum = 0;
    for (i = 1; i < n; i++) sum += mli_row_live(lord, MLI_BOOK_DEVICE, i);
    return sum;
}

/* Computes the totals of a span, adds the bytes by which it changed each device to `s`, if not
   NULL, and raises the peaks of the next outer span to its own. `t` is the thread of its context,
   or NULL: all levels are 0. */
static void mli_span_totals(memlord *lord, const mli_thread *t, mli_span *f, mli_thread_scope *s,
                            mli_scope_run *v) {
    uint32_t i, n = mli_row_count(lord, MLI_BOOK_DEVICE);
    memset(v, 0, sizeof *v);
    v->start = f->start;
    v->stamps = mli_stamp_now(lord) - f->start;
    v->before = f->before;
    v->after = mli_live_total(lord);
    v->shapes = (uint64_t)(uintptr_t)f->shapes;
    v->blocks = 0 - f->blocks;
    for (i = 1; i < n; i++) {
        const mli_cell *cell = t ? mli_cell_own_device(t, i) : NULL;
        const mli_span_peak *at = mli_span_peak_at(f, i);
        uint64_t delta;
        if (cell) mli_span_raise(f, i, mli_u64_load_own(&cell->high));
        delta = (cell ? mli_u64_load_own(&cell->level) : 0) - at->from;
        if (delta && s) mli_u64_add_own(&s->devices[i], delta);
        v->bytes += delta;
        v->peak += at->high - at->from;
        if (cell) v->blocks += mli_u64_load_own(&cell->allocs) - mli_u64_load_own(&cell->frees);
        if (f->around) mli_span_raise(f->around, i, at->high);
    }
}

/* -- making a scope -- */

MLI_PRIVATE size_t mli_utf8_cut(const char *name) {
    size_t n = 0;
    while (n < MLI_SCOPE_NAME && name[n]) n++;
    if (!name[n]) return n;
    while (n && ((unsigned char)name[n] & 0xc0) == 0x80) n--;
    return n;
}

/* Returns the scope with a path, or NULL if there is none. */
static MLI_COLD mli_scope_record *mli_scope_of_path_locked(memlord *lord, const char *path) {
    MLI_REQUIRE(mli_lock_held(&mli_process.cold_lock));
    const mli_stb_string *string = mli_string_locked(lord, path);
    return string ? string->scope : NULL;
}

/* Makes a scope, with copies of its path and its name, or returns MLI_AGAIN. */
static MLI_COLD memlord_result mli_scope_new_locked(memlord *lord, mli_scope_record *parent,
                                                    const char *name, const char *path,
                                                    const mli_site_origin *from,
                                                    mli_scope_record **out) {
    MLI_REQUIRE(mli_lock_held(&mli_process.cold_lock));
    mli_scope_record *scope;
    mli_site_record *site = NULL;
    memlord_result r;
    if (mli_scope_count(lord) > MEMLORD_MAX_SCOPES) return MEMLORD_E_NOMEM;
    r = mli_name_locked(lord, name, &name);
    if (r == MEMLORD_OK) r = mli_name_locked(lord, path, &path);
    if (r == MEMLORD_OK && from->planted) r = mli_site_find_locked(lord, from, &site);
    if (r) return r;
    scope = mli_scope_record_new(lord);
    if (!scope) return MLI_AGAIN;
    scope->parent = parent;
    scope->name = name;
    scope->path = path;
    scope->site = site;
    mli_string_locked(lord, path)->scope = scope;
    mli_scope_publish(lord);
    *out = scope;
    return MEMLORD_OK;
}

/* Finds or makes the scope of a name under a parent. A scope is identified by its path, so the
   scope "a/b" and the scope "b" in "a" are the same scope. */
static MLI_COLD memlord_result mli_scope_make(memlord *lord, mli_scope_record *parent,
                                              const char *name, const memlord_site *origin,
                                              mli_scope_record **out) {
    const mli_site_origin from = mli_site_origin_of(lord, origin);
    size_t n = mli_utf8_cut(name), at = parent ? strlen(parent->path) + 1 : 0;
    char *path = (char *)mli_own_alloc(lord, at + n + 1);
    mli_cold cold = {MEMLORD_OK, NULL, 0, 0};
    if (!path) return MEMLORD_E_NOMEM;
    if (parent) {
        memcpy(path, parent->path, at - 1);
        path[at - 1] = '/';
    }
    memcpy(path + at, name, n);
    do {
        mli_cold_enter(&cold);
        *out = mli_scope_of_path_locked(lord, path);
        cold.r = *out ? MEMLORD_OK
                      : mli_scope_new_locked(lord, parent, path + at, path, &from, out);
    } while (mli_cold_leave(lord, &cold));
    mli_own_free(lord, path, at + n + 1);
    return cold.r;
}

/* Returns the thread scope of a thread in a scope, and makes it on first use. Returns NULL if there
   is no memory. Only the first look-up of a thread walks the list of the scope. */
static MLI_COLD mli_thread_scope *mli_thread_scope_get(memlord *lord, mli_scope_record *scope,
                                                       mli_thread *t) {
    const uint32_t salt = mli_cache_salt(MLI_CACHE_SCOPE_RECORD, 0);
    const mli_cache_entry *memo = mli_cache_find(t, scope, salt);
    mli_thread_scope *s = memo ? (mli_thread_scope *)memo->value : mli_thread_scope_first(scope);
    while (s && s->thread != t->id) s = s->next; /* only the thread itself adds its thread scopes */
    if (s && !memo) mli_cache_set(lord, t, scope, salt, s, 0);
    if (s) return s;
    s = (mli_thread_scope *)mli_own_alloc(lord, sizeof *s);
    if (!s) return NULL;
    s->scope = scope;
    s->thread = t->id;
    mli_thread_scope_reset(lord, s);
    mli_lock_take(&mli_process.cold_lock);
    s->next = (mli_thread_scope *)mli_ptr_load(&scope->threads);
    mli_ptr_store_release(&scope->threads, s); /* pairs with mli_thread_scope_first */
    mli_lock_drop(&mli_process.cold_lock);
    return s;
}

/* -- spans -- */

/* Gets the span for a scope inside the innermost open one, made on first use. Returns E_STATE if
   MLI_SCOPE_DEPTH_MAX are open, and E_NOMEM if there is no memory, and for the orphan record, which
   many threads share. */
static memlord_result mli_span_reserve(memlord *lord, mli_thread *t, mli_span **out) {
    mli_span **next = t->now.span ? &t->now.span->inner : &t->now.context->spans;
    uint32_t depth = mli_scope_depth(t);
    if (mli_is_orphan(lord, t)) return MEMLORD_E_NOMEM;
    if (depth == MLI_SCOPE_DEPTH_MAX) return MEMLORD_E_STATE;
    if (!*next) {
        *next = (mli_span *)mli_own_alloc(lord, sizeof **next);
        if (!*next) return MEMLORD_E_NOMEM;
        (*next)->around = t->now.span;
        (*next)->depth = depth + 1;
    }
    *out = *next;
    return MEMLORD_OK;
}

/* Sets a cell's high to the cell's level. Before that, the old high raises the device's peak and
   the peaks of the shared scopes that thread `t` is in. `t` is NULL if the peaks of these scopes
   must not change, because the thread entered the scopes after the cell reached the old high. */
static MLI_NOINLINE void mli_cell_high_restart(memlord *lord, const mli_thread *t, uint32_t dev,
                                               mli_cell *cell) {
    mli_row *row = mli_row_at(lord, MLI_BOOK_DEVICE, dev);
    mli_lock_take(&row->lock);
    mli_row_raise_peak(row, cell);
    mli_spans_share(t, dev, 0, mli_cell_above(row, cell));
    mli_lock_drop(&row->lock);
    mli_u64_store(&cell->high, mli_u64_load(&cell->level));
}

/* Enters the scope of the thread scope `stats`: begins the span `f` inside the thread's innermost
   span. `adopted` is the invocation that the context has joined, or NULL if the span begins a new
   invocation. The high of each cell is set to the cell's level, so that from now on it measures the
   peak of this span. The old high goes into the peaks of the next outer span. */
static void mli_span_open(memlord *lord, mli_thread *t, mli_span *f, mli_thread_scope *stats,
                          mli_joint *adopted) {
    uint32_t i, n = mli_row_count(lord, MLI_BOOK_DEVICE);
    f->scope = stats->scope;
    f->stats = stats;
    f->shared = adopted;
    f->adopted = adopted != NULL;
    f->shapes = NULL;
    f->blocks = 0;
    for (i = 1; i < n; i++) {
        mli_cell *cell = mli_cell_own_device(t, i);
        f->peaks[i].from = f->peaks[i].high = 0;
        if (!cell) continue;
        if (f->around) mli_span_raise(f->around, i, mli_u64_load_own(&cell->high));
        if (mli_u64_load_own(&cell->high) != mli_u64_load_own(&cell->level))
            mli_cell_high_restart(lord, t, i, cell);
        f->peaks[i].from = f->peaks[i].high = mli_u64_load_own(&cell->level);
        f->blocks += mli_u64_load_own(&cell->allocs) - mli_u64_load_own(&cell->frees);
        if (adopted) mli_joint_settle(lord, adopted, i, cell, 1);
    }
    f->devices = n - 1;
    f->before = mli_live_total(lord);
    f->start = mli_stamp_now(lord);
    if (!(mli_u32_load(&t->special) & MLI_SPECIAL_SCOPE)) mli_special_set(t, MLI_SPECIAL_SCOPE, 1);
    t->now.span = f;
    t->now.birth_bits = 0;
    if (!adopted) mli_u64_add_own(&stats->running, 1);
    mli_event_record(lord, t, MEMLORD_EVENT_SCOPE_BEGIN, 0, 0, 0, 0);
}

static void mli_span_pop(mli_current *now) {
    now->span = now->span->around;
    now->birth_bits = 0;
}

/* Ends the innermost span of a context. If that ends the invocation, too, adds the invocation to
   the thread scope of the calling thread `t`. `at` is `t` if the context is in this thread, and
   NULL if it is in none. A scope that began on another thread may need a new thread scope of `t`.
   If there is no memory for that, the invocation counts as lost. */
static void mli_span_end(memlord *lord, mli_thread *t, const mli_thread *at, mli_current *now) {
    mli_span *f = now->span;
    mli_thread_scope *s = f->stats, *began = f->shared ? f->shared->began : s;
    mli_scope_run v;
    if (MLI_UNLIKELY(s->thread != t->id)) s = mli_thread_scope_get(lord, f->scope, t);
    if (MLI_UNLIKELY(s && mli_u64_load_own(&s->epoch) != mli_epoch(lord)))
        mli_thread_scope_reset(lord, s);
    mli_span_totals(lord, at, f, f->shared ? NULL : s, &v);
    if (!f->shared || mli_joint_leave(lord, at, f, &v, s ? s->devices : NULL)) {
        if (s)
            mli_thread_scope_add(s, &v);
        else
            mli_loss_add(lord, MLI_LOST_scopes);
        if (MLI_LIKELY(s == began))
            mli_u64_add_own(&s->running, (uint64_t)0 - 1);
        else
            (void)mli_u64_add(&f->scope->ended_elsewhere, 1);
    }
    mli_span_pop(now);
}

static void mli_span_close(memlord *lord, mli_thread *t) {
    mli_event_record(lord, t, MEMLORD_EVENT_SCOPE_END, 0, 0, 0, 0);
    mli_span_end(lord, t, t, &t->now);
}

MLI_PRIVATE MLI_COLD void mli_spans_close(mli_thread *t) {
    while (t->now.span) mli_span_close(t->lord, t);
}
MLI_PRIVATE MLI_COLD void mli_spans_close_left(memlord *lord, mli_thread *t, mli_current *left) {
    while (left->span) mli_span_end(lord, t, NULL, left);
}

/* -- contexts -- */

/* Records an event for each scope of the context that a thread enters (`begins` is 1), the
   outermost first, or leaves, the innermost first. */
static MLI_COLD void mli_spans_events(memlord *lord, mli_thread *t, int begins) {
    mli_span *const innermost = t->now.span;
    mli_span *f = begins ? t->now.context->spans : innermost;
    for (; f; f = begins ? f->inner : f->around) {
        t->now.span = f; /* mli_event_record takes the scope of the event from here */
        mli_event_record(lord, t, begins ? MEMLORD_EVENT_SCOPE_BEGIN : MEMLORD_EVENT_SCOPE_END, 0,
                         0, 0, 0);
        if (begins && f == innermost) break;
    }
    t->now.span = innermost;
}

/* Changes the levels of all spans of the context that a thread is in. With `enter` 0 it subtracts
   the thread's levels from them. The results do not depend on the thread, so any thread can then
   enter the context. With `enter` 1 it adds the thread's levels. */
static MLI_COLD void mli_spans_shift(memlord *lord, mli_thread *t, int enter) {
    const uint32_t n = mli_row_count(lord, MLI_BOOK_DEVICE);
    mli_span *f;
    uint32_t i;
    for (i = 1; i < n; i++) {
        mli_cell *cell = mli_cell_own_device(t, i);
        uint64_t level = cell ? mli_u64_load_own(&cell->level) : 0, blocks = 0;
        if (cell) blocks = mli_u64_load_own(&cell->allocs) - mli_u64_load_own(&cell->frees);
        if (cell && !enter) mli_span_raise(t->now.span, i, mli_u64_load_own(&cell->high));
        if (cell && enter && mli_u64_load_own(&cell->high) != level)
            mli_cell_high_restart(lord, NULL, i, cell);
        for (f = t->now.span; f; f = f->around) {
            mli_span_peak *at = mli_span_peak_at(f, i);
            at->from += enter ? level : 0 - level;
            at->high += enter ? level : 0 - level;
            f->blocks += enter ? blocks : 0 - blocks;
            if (MLI_UNLIKELY(f->shared != NULL)) mli_joint_settle(lord, f->shared, i, cell, enter);
        }
    }
}
MLI_PRIVATE void mli_spans_leave(memlord *lord, mli_thread *t) {
    if (MLI_UNLIKELY(mli_alert_on(lord, MLI_ALERT_EVENTS))) mli_spans_events(lord, t, 0);
    mli_spans_shift(lord, t, 0);
}
MLI_PRIVATE void mli_spans_enter(memlord *lord, mli_thread *t) {
    mli_spans_shift(lord, t, 1);
    if (MLI_UNLIKELY(mli_alert_on(lord, MLI_ALERT_EVENTS))) mli_spans_events(lord, t, 1);
}

/* -- beginning a scope -- */

/* Finds or makes a scope under the thread's innermost one, and the thread's thread scope in it. The
   thread's cache keeps the thread scope for the next look-up by `given` and `salt`. */
static MLI_COLD memlord_result mli_scope_lookup(memlord *lord, mli_thread *t, const char *name,
                                                const void *given, uint32_t salt,
                                                const memlord_site *origin,
                                                mli_thread_scope **out) {
    mli_scope_record *scope, *parent = t->now.span ? t->now.span->scope : NULL;
    memlord_result r = mli_scope_make(lord, parent, name, origin, &scope);
    if (r) return r;
    *out = mli_thread_scope_get(lord, scope, t);
    if (!*out) return MEMLORD_E_NOMEM;
    /* The scope may have been made with other names that give the same path. Then its name differs
       from the text here, so a look-up in the cache would never match. */
    if (origin || !strncmp(scope->name, name, MLI_SCOPE_NAME))
        mli_cache_set(lord, t, given, salt, *out, 0);
    return MEMLORD_OK;
}

static MLI_COLD void mli_scope_dropped(memlord *lord) {
    mli_loss_add(lord, MLI_LOST_scopes);
    mli_drop_warn(lord, &lord->scopes->warned,
                  mli_scope_count(lord) > MEMLORD_MAX_SCOPES
                      ? "[drop] no room for a scope: raise MEMLORD_MAX_SCOPES; dropped_scopes has "
                        "how many"
                      : "[drop] no room for a scope: raise MEMLORD_MAX_STRINGS, or give the "
                        "ledger's allocator more; dropped_scopes has how many");
}

/* Begins a scope. If `guard` is not NULL, it gets the number of scopes that were open before. The
   end of the guard later ends all scopes above that number. The thread has a cache of the scopes
   that it found last. The cache finds a scope by the address `planted` of the host's static record
   or, if `planted` is NULL, by the address `name`. The text at `name` may change, so the function
   compares the text with the name of the scope that the cache finds. */
static memlord_result mli_scope_begin(memlord *lord, const char *name,
                                      const memlord_scope_site *planted, memlord_guard *guard) {
    const void *given = planted ? (const void *)planted : (const void *)name;
    mli_thread *t = mli_thread_get(lord);
    const mli_cache_entry *memo;
    mli_thread_scope *stats;
    mli_span *span;
    uint32_t salt;
    memlord_result r;
    if (!t) return MEMLORD_OK;
    salt = mli_cache_salt(planted ? MLI_CACHE_SCOPE_SITE : MLI_CACHE_SCOPE, mli_scope_id(t));
    memo = mli_cache_find(t, given, salt);
    stats = memo ? (mli_thread_scope *)memo->value : NULL;
    if (stats && !planted && strncmp(stats->scope->name, name, MLI_SCOPE_NAME)) stats = NULL;
    r = mli_span_reserve(lord, t, &span);
    if (r == MEMLORD_OK && MLI_UNLIKELY(!stats))
        r = mli_scope_lookup(lord, t, name, given, salt, planted ? &planted->site : NULL, &stats);
    if (r == MEMLORD_OK && guard) mli_guard_note(guard, lord, t, 1);
    if (r == MEMLORD_OK) mli_span_open(lord, t, span, stats, NULL);
    mli_thread_put(lord, t);
    if (r == MEMLORD_E_NOMEM) mli_scope_dropped(lord);
    if (r == MEMLORD_OK) mli_interposer_begin(lord, 1, name);
    return mli_call_end_uncounted(lord, r);
}

/* -- handing a scope to other threads -- */

/* Returns the first word of a token, which has the ledger's generation and the number of the scope.
   The second word names the invocation: see mli_joint_find. */
static uint64_t mli_scope_word(const memlord *lord, const mli_scope_record *scope) {
    return lord->generation << 32 | scope->id;
}

/* Enters the scope of a token. Returns E_UNKNOWN if the exporter has ended it, or if it is another
   ledger's, and E_STATE if the context is in the invocation already. */
static MLI_COLD memlord_result mli_scope_adopt(memlord *lord, mli_thread *t,
                                               const memlord_scope_token *token) {
    mli_scope_record *scope = mli_scope_find(lord, (uint32_t)token->word[0]);
    mli_joint *shared = mli_joint_find(lord, token->word[1]);
    mli_thread_scope *s;
    mli_span *span, *f;
    memlord_result r = mli_span_reserve(lord, t, &span);
    if (r) return r;
    if (!shared || !scope || token->word[0] != mli_scope_word(lord, scope))
        return MEMLORD_E_UNKNOWN;
    for (f = t->now.span; f; f = f->around)
        if (f->shared == shared) return MEMLORD_E_STATE;
    s = mli_thread_scope_get(lord, scope, t);
    if (!s) return MEMLORD_E_NOMEM;
    if (!mli_joint_join(shared, token->word[1])) return MEMLORD_E_UNKNOWN;
    mli_span_open(lord, t, span, s, shared);
    return MEMLORD_OK;
}

/* Leaves the innermost scope. Returns E_STATE if the context has not adopted it by this token. */
static MLI_COLD memlord_result mli_scope_return(memlord *lord, mli_thread *t,
                                                const memlord_scope_token *token) {
    const mli_span *f = t->now.span;
    if (!f || !f->adopted || f->shared->token != token->word[1] ||
        token->word[0] != mli_scope_word(lord, f->scope))
        return MEMLORD_E_STATE;
    mli_span_close(lord, t);
    return MEMLORD_OK;
}

/* Adopts the scope of a token, or leaves that scope if `adopt` is 0. */
static MLI_COLD memlord_result mli_scope_token_apply(memlord *lord, int adopt,
                                                     const memlord_scope_token *token) {
    mli_thread *t;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    if (!token) return MEMLORD_E_INVALID;
    t = mli_thread_get(lord);
    if (!t) return MEMLORD_OK;
    r = adopt ? mli_scope_adopt(lord, t, token) : mli_scope_return(lord, t, token);
    mli_thread_put(lord, t);
    return mli_call_end_uncounted(lord, r);
}

/* -- reading -- */

/* Merges the total, minimum and maximum of one thread scope into those of several thread scopes.
   `first` is 1 if no thread scope was merged before. */
static void mli_min_max_merge(const mli_min_max *e, int first, int64_t *total,
                              int64_t *min, int64_t *max) {
    int64_t low = (int64_t)mli_u64_load(&e->min), high = (int64_t)mli_u64_load(&e->max);
    *total += (int64_t)mli_u64_load(&e->total);
    if (first || low < *min) *min = low;
    if (first || high > *max) *max = high;
}

/* Returns how many invocations a thread scope has had in this epoch. The acquire loads pair with
   mli_thread_scope_add and mli_thread_scope_reset. */
static uint64_t mli_thread_scope_count(memlord *lord, const mli_thread_scope *s) {
    uint64_t n = mli_u64_load_acquire(&s->count);
    return mli_u64_load_acquire(&s->epoch) == mli_epoch(lord) ? n : 0;
}

MLI_PRIVATE MLI_COLD void mli_scope_sum(memlord *lord, const mli_scope_record *scope,
                                        const mli_stamp_scale *scale, memlord_scope_stat *out,
                                        uint64_t *devices) {
    const mli_thread_scope *s = mli_thread_scope_first(scope);
    int64_t total = 0, min = 0, max = 0;
    uint32_t i;
    memset(out, 0, sizeof *out);
    out->name = scope->name;
    out->path = scope->path;
    out->id = scope->id;
    out->parent = scope->parent ? scope->parent->id : 0;
    out->device_ns = mli_u64_load(&scope->device_ns);
    if (scope->site) out->site = mli_site_display(lord, scope->site);
    for (; s; s = s->next) {
        uint64_t n = mli_thread_scope_count(lord, s);
        int first = !out->count;
        out->running += mli_u64_load(&s->running);
        if (!n) continue;
        out->count += n;
        mli_min_max_merge(&s->bytes, first, &out->bytes.total, &out->bytes.min, &out->bytes.max);
        mli_min_max_merge(&s->blocks, first, &out->blocks.total, &out->blocks.min,
                          &out->blocks.max);
        mli_min_max_merge(&s->stamps, first, &total, &min, &max);
        if (mli_u64_load(&s->peak) > out->peak) out->peak = mli_u64_load(&s->peak);
        for (i = 1; devices && i <= MEMLORD_MAX_DEVICES; i++)
            devices[i] += mli_u64_load(&s->devices[i]);
    }
    out->running -= mli_u64_load(&scope->ended_elsewhere);
    /* The other threads go on counting, so the sum may count the end of an invocation but not its
       beginning. */
    if ((int64_t)out->running < 0) out->running = 0;
    out->ns.total = mli_stamps_ns(scale, (uint64_t)total);
    out->ns.min = mli_stamps_ns(scale, (uint64_t)min);
    out->ns.max = mli_stamps_ns(scale, (uint64_t)max);
}

MLI_PRIVATE MLI_COLD size_t mli_thread_scope_read(memlord *lord, const mli_thread_scope *s,
                                                  mli_scope_run out[MLI_RUNS_KEPT]) {
    uint64_t n = mli_thread_scope_count(lord, s), i, after;
    uint64_t from = n > MLI_RUNS_KEPT ? n - MLI_RUNS_KEPT : 0, good;
    for (i = from; i < n; i++)
        mli_words_load(&out[i - from], s->runs[i % (MLI_RUNS_KEPT + 1)], MLI_RUN_WORDS);
    after = mli_u64_load(&s->count); /* stays after the copies, which are acquires */
    if (after < n) return 0;         /* the thread has begun a new epoch */
    good = after > from + MLI_RUNS_KEPT ? after - MLI_RUNS_KEPT : from;
    if (good >= n) return 0;
    memmove(out, out + (good - from), (size_t)(n - good) * sizeof *out);
    return (size_t)(n - good);
}

MLI_PRIVATE MLI_COLD uint64_t mli_invocations_lost(memlord *lord) {
    uint64_t gone = 0;
    uint32_t i;
    for (i = 1; i < mli_scope_count(lord); i++) {
        const mli_thread_scope *s = mli_thread_scope_first(mli_scope_record_at(lord, i));
        for (; s; s = s->next) {
            uint64_t n = mli_thread_scope_count(lord, s);
            gone += n > MLI_RUNS_KEPT ? n - MLI_RUNS_KEPT : 0;
        }
    }
    return gone;
}

#if !MLI_WINDOWS /* Windows has no fork */
MLI_PRIVATE MLI_COLD void mli_spans_forget(mli_current *now) {
    while (now->span) mli_span_pop(now);
}
MLI_PRIVATE MLI_COLD void mli_running_count(const mli_current *now) {
    const mli_span *f = now->span;
    for (; f; f = f->around)
        if (!f->shared || mli_joint_recount(f))
            mli_u64_add_own(f->shared ? &f->shared->began->running : &f->stats->running, 1);
}
#endif

/* -- life -- */

/* In a forked child: sets `running` to 0, before mli_running_count counts what goes on. */
static MLI_COLD void mli_scopes_forked(memlord *lord) {
    mli_scope_record *scope;
    uint32_t i;
    for (i = 1; (scope = mli_scope_find(lord, i)) != NULL; i++) {
        mli_thread_scope *s = mli_thread_scope_first(scope);
        mli_u64_store(&scope->ended_elsewhere, 0);
        for (; s; s = s->next) mli_u64_store(&s->running, 0);
    }
}
MLI_PRIVATE MLI_COLD void mli_scopes_reset(memlord *lord) {
    uint32_t i;
    for (i = 1; i < mli_scope_count(lord); i++)
        mli_u64_store(&mli_scope_record_at(lord, i)->device_ns, 0);
}
MLI_PRIVATE MLI_COLD void mli_spans_free(memlord *lord, mli_context *context) {
    mli_span *f = context->spans, *inner;
    for (; f; f = inner) {
        inner = f->inner;
        mli_own_free(lord, f, sizeof *f);
    }
}
static MLI_COLD void mli_scopes_free(memlord *lord) {
    mli_thread *t;
    uint32_t i;
    for (t = mli_thread_first(lord); t; t = mli_thread_next(t)) mli_spans_free(lord, &t->own);
    for (i = 1; i < mli_scope_count(lord); i++) {
        mli_scope_record *scope = mli_scope_record_at(lord, i);
        mli_thread_scope *s = mli_thread_scope_first(scope), *next;
        for (; s; s = next) {
            next = s->next;
            mli_own_free(lord, s, sizeof *s);
        }
        mli_own_free(lord, scope, sizeof *scope);
    }
}
MLI_PRIVATE const mli_life mli_scopes_life = {MLI_LIFE_STATE(scopes), NULL, NULL, NULL, NULL,
                                              mli_scopes_forked, mli_scopes_free};

/* -- public -- */

MEMLORD_API memlord_result memlord_scope_begin(memlord *lord, const char *name) {
    if (!lord) return MEMLORD_OK;
    if (!name || !*name) return MEMLORD_E_INVALID;
    return mli_scope_begin(lord, name, NULL, NULL);
}
MEMLORD_API memlord_result memlord_scope_enter(memlord *lord, const memlord_scope_site *planted) {
    if (!lord) return MEMLORD_OK;
    if (!planted || !planted->name || !*planted->name) return MEMLORD_E_INVALID;
    return mli_scope_begin(lord, planted->name, planted, NULL);
}
MEMLORD_API memlord_guard memlord_guard_scope(memlord *lord, const char *name,
                                              const memlord_scope_site *planted) {
    memlord_guard guard = {NULL, 0, 0, 0};
    if (planted) name = planted->name;
    if (lord && name && *name) (void)mli_scope_begin(lord, name, planted, &guard);
    return guard;
}
MEMLORD_API MLI_NOINLINE memlord_result memlord_scope_end(memlord *lord) {
    mli_thread *t;
    memlord_result r = MEMLORD_OK;
    if (!lord) return MEMLORD_OK;
    t = mli_thread_get(lord);
    if (!t) return MEMLORD_OK;
    if (t->now.span && !t->now.span->adopted) /* an adopted scope ends by memlord_scope_return */
        mli_span_close(lord, t);
    else
        r = MEMLORD_E_STATE;
    mli_thread_put(lord, t);
    if (r == MEMLORD_OK)
        mli_interposer_end(lord, 1, 1);
    else
        mli_end_misplaced(lord, MLI_RETURN_ADDRESS());
    return mli_call_end_uncounted(lord, r);
}

MEMLORD_API void memlord_guard_end(memlord_guard *guard) {
    memlord *lord = guard ? guard->lord : NULL;
    mli_thread *t = lord ? mli_thread_get(lord) : NULL;
    uint32_t ended = 0;
    int elsewhere;
    if (!t) return;
    guard->lord = NULL;
    elsewhere = t->now.context->id != guard->context;
    if (!elsewhere && guard->scope) {
        for (; mli_scope_depth(t) > guard->depth; mli_span_close(lord, t))
            ended += !t->now.span->adopted; /* the interposer is not told of adoptions */
    } else if (!elsewhere && t->now.tag_depth > guard->depth) {
        ended = t->now.tag_depth - guard->depth;
        mli_tags_cut(t, guard->depth);
    }
    mli_thread_put(lord, t);
    if (ended) mli_interposer_end(lord, guard->scope, ended);
    if (elsewhere)
        mli_guard_lost(lord);
    else if (guard->scope)
        (void)mli_call_end_uncounted(lord, MEMLORD_OK);
}

MLI_API memlord_result memlord_scope_shapes_set(memlord *lord, const char *shapes) {
    mli_thread *t;
    memlord_result r = MEMLORD_E_STATE;
    const char *kept;
    if (!lord) return MEMLORD_OK;
    t = mli_thread_get(lord);
    if (!t) return MEMLORD_OK;
    if (t->now.span) r = mli_name_limited(lord, shapes, &kept);
    if (r == MEMLORD_OK) t->now.span->shapes = kept;
    mli_thread_put(lord, t);
    return r;
}

MLI_API memlord_result memlord_scope_export(memlord *lord, memlord_scope_token *out) {
    mli_thread *t;
    mli_span *f;
    memlord_result r = MEMLORD_OK;
    if (!out) return lord ? MEMLORD_E_INVALID : MEMLORD_OK;
    memset(out, 0, sizeof *out);
    if (!lord) return MEMLORD_OK;
    t = mli_thread_get(lord);
    if (!t) return MEMLORD_OK;
    f = t->now.span;
    if (!f)
        r = MEMLORD_E_STATE;
    else if (!f->shared)
        r = mli_joint_open(lord, t);
    if (r == MEMLORD_OK) {
        out->word[0] = mli_scope_word(lord, f->scope);
        out->word[1] = f->shared->token;
    }
    mli_thread_put(lord, t);
    return r;
}
MLI_API memlord_result memlord_scope_adopt(memlord *lord, const memlord_scope_token *token) {
    return mli_scope_token_apply(lord, 1, token);
}
MLI_API memlord_result memlord_scope_return(memlord *lord, const memlord_scope_token *token) {
    return mli_scope_token_apply(lord, 0, token);
}

MLI_API memlord_result memlord_scope_get(memlord *lord, const char *path, memlord_scope_stat *out) {
    const mli_scope_record *scope;
    mli_stamp_scale scale;
    if (!out) return lord ? MEMLORD_E_INVALID : MEMLORD_OK;
    memset(out, 0, sizeof *out);
    if (!lord) return MEMLORD_OK;
    if (!path) return MEMLORD_E_INVALID;
    mli_lock_take(&mli_process.cold_lock);
    scope = mli_scope_of_path_locked(lord, path);
    mli_lock_drop(&mli_process.cold_lock);
    if (!scope) return MEMLORD_E_UNKNOWN;
    scale = mli_stamp_scale_now(lord);
    mli_scope_sum(lord, scope, &scale, out, NULL);
    return MEMLORD_OK;
}
MLI_API uint64_t memlord_scope_current(memlord *lord) {
    mli_thread *t = lord ? mli_thread_get(lord) : NULL;
    uint64_t id = t ? mli_scope_id(t) : 0;
    if (t) mli_thread_put(lord, t);
    return id;
}
MLI_API memlord_result memlord_scope_device_time(memlord *lord, uint64_t scope, uint64_t ns) {
    mli_scope_record *record;
    if (!lord) return MEMLORD_OK;
    record = mli_scope_find(lord, scope);
    if (!record) return MEMLORD_E_UNKNOWN;
    (void)mli_u64_add(&record->device_ns, ns);
    return MEMLORD_OK;
}
