#include "services/contexts.h"
#include "base/memory.h"
#include "base/vectors.h"
#include "books/accounts.h"
#include "books/counters.h"
#include "books/spans.h"
#include "books/fences.h"
#include "books/tags.h"
#include "services/scopes.h"

/* The record of a fibre's context. Each swap exchanges the context that the thread is in for the
   one in `kept`: that of the fibre or, while a thread is in it, the one that this thread was in
   before. The host's memlord_context has three words: the generation of the ledger, the handle of
   the record, and the serial, which rises with each swap, so that an older copy of the words no
   longer matches. */
typedef struct mli_context_record {
    mli_handle handle;
    mli_lock lock;   /* guards all members below but own.thread */
    uint64_t serial; /* never falls, not even when the record is opened again */
    mli_current kept;
    mli_context own;
} mli_context_record;
struct mli_contexts_state {
    mli_vector all;
    mli_u32 count;             /* one more than the number of records; grows under the cold lock */
    struct mli_handle *closed; /* records that can be opened again; under the cold lock */
};
enum { MLI_WORD_LEDGER, MLI_WORD_HANDLE, MLI_WORD_SERIAL };

static mli_context_record *mli_context_at(const memlord *lord, uint32_t number) {
    return (mli_context_record *)mli_vector_at(&lord->contexts->all, number,
                                               sizeof(mli_context_record));
}

/* Returns the record of a fibre's context. */
static mli_context_record *mli_record_of(mli_context *context) {
    MLI_REQUIRE(!context->home);
    return (mli_context_record *)(void *)((char *)context - offsetof(mli_context_record, own));
}

MLI_PRIVATE MLI_COLD void mli_current_clear(mli_current *now) {
    MLI_REQUIRE(!now->span);
    mli_context *context = now->context;
    memset(now, 0, sizeof *now);
    now->context = context;
}

/* Exchanges the context that a thread is in for the one in `kept`. */
static void mli_context_exchange(memlord *lord, mli_thread *t, mli_current *kept) {
    const mli_current leaves = t->now;
    const uint32_t had = mli_u32_load(&t->special) & MLI_SPECIAL_CONTEXT;
    uint32_t has;
    if (MLI_UNLIKELY(leaves.span != NULL)) mli_spans_leave(lord, t);
    t->now = *kept;
    *kept = leaves;
    mli_ptr_store(&kept->context->thread, NULL);
    mli_ptr_store(&t->now.context->thread, t);
    has = (t->now.tag ? (uint32_t)MLI_SPECIAL_TAG : 0) |
          (t->now.open_tickets ? (uint32_t)MLI_SPECIAL_TICKET : 0) |
          (t->now.span || t->now.stream ? (uint32_t)MLI_SPECIAL_SCOPE : 0) |
          (t->now.account ? (uint32_t)MLI_SPECIAL_ACCOUNT : 0);
    if (had & ~has) mli_special_set(t, had & ~has, 0);
    if (has & ~had) mli_special_set(t, has & ~had, 1);
    if (MLI_UNLIKELY(t->now.span != NULL)) mli_spans_enter(lord, t);
}

MLI_PRIVATE MLI_COLD void mli_context_home(mli_thread *t, int locks) {
    while (!t->now.context->home) {
        mli_context_record *record = mli_record_of(t->now.context);
        if (locks) mli_lock_take(&record->lock);
        mli_context_exchange(t->lord, t, &record->kept);
        if (locks) mli_lock_drop(&record->lock);
    }
}

#if !MLI_WINDOWS /* Windows has no fork */
MLI_PRIVATE MLI_COLD void mli_contexts_recount(memlord *lord) {
    uint32_t i, n = mli_u32_load(&lord->contexts->count);
    for (i = 1; i < n; i++) mli_running_count(&mli_context_at(lord, i)->kept);
}
#endif

/* -- the context of a fibre -- */

/* Returns 1 if another thread is in the fibre's context, or has its own context in the record. */
static MLI_HOT int mli_context_elsewhere(const mli_context_record *record, const mli_thread *t) {
    MLI_REQUIRE(mli_lock_held(&record->lock));
    const mli_thread *in = (const mli_thread *)mli_ptr_load(&record->own.thread);
    const mli_thread *home = record->kept.context->home;
    return (in && in != t) || (home && home != t);
}

/* Opens a record for a memlord_context that is all zeros, and stores in context->word how to find
   the record. Returns E_NOMEM if there is no memory for the record. */
static MLI_COLD memlord_result mli_context_open(memlord *lord, memlord_context *context) {
    memlord_result r;
    mli_context_record *record =
        (mli_context_record *)(void *)mli_handle_get_lock(lord, &lord->contexts->all,
                                                          &lord->contexts->count, sizeof *record,
                                                          &lord->contexts->closed, &r);
    if (!record) return r;
    mli_lock_rank(&record->lock, MLI_RANK_CONTEXT);
    record->kept.context = &record->own;
    /* The highest bit marks the id of a context, because the ids of threads do not have it. */
    record->own.id = (uint32_t)mli_serial_next(lord) | (uint32_t)1 << 31;
    context->word[MLI_WORD_LEDGER] = lord->generation;
    context->word[MLI_WORD_HANDLE] = mli_handle_open(&lord->contexts->closed);
    context->word[MLI_WORD_SERIAL] = record->serial;
    mli_lock_drop(&mli_process.cold_lock);
    return MEMLORD_OK;
}

/* Finds the record of a context and locks the record. Returns NULL if the words are a stale copy,
   or if another thread is in the context. */
static MLI_HOT mli_context_record *mli_context_lock(memlord *lord, const mli_thread *t,
                                            const memlord_context *context) {
    mli_context_record *record =
        (mli_context_record *)mli_handle_find(&lord->contexts->all, sizeof *record,
                                              context->word[MLI_WORD_HANDLE]);
    if (!record) return NULL;
    mli_lock_take(&record->lock);
    if (record->serial == context->word[MLI_WORD_SERIAL] && !mli_context_elsewhere(record, t))
        return record;
    mli_lock_drop(&record->lock);
    return NULL;
}

static memlord_result mli_context_swap(memlord *lord, mli_thread *t, memlord_context *context) {
    mli_context_record *record;
    memlord_result r = MEMLORD_OK;
    if (mli_is_orphan(lord, t)) return MEMLORD_E_NOMEM; /* the orphan record serves many threads, so
                                                           it has no context */
    if (MLI_UNLIKELY(!context->word[MLI_WORD_LEDGER])) r = mli_context_open(lord, context);
    if (r) return r;
    record = mli_context_lock(lord, t, context);
    if (!record) return MEMLORD_E_STATE;
    mli_context_exchange(lord, t, &record->kept);
    context->word[MLI_WORD_SERIAL] = ++record->serial;
    mli_lock_drop(&record->lock);
    return MEMLORD_OK;
}

/* Ends what is open in the context of a fibre, which its thread leaves first, and closes its
   record. Returns E_STATE if mli_context_lock finds no record, or if the record does not have its
   fibre's context then, which cannot happen to a thread that leaves its fibres in the reverse of
   the order in which it entered them. */
static MLI_COLD memlord_result mli_context_drop(memlord *lord, mli_thread *t,
                                                memlord_context *context) {
    mli_context_record *record = mli_context_lock(lord, t, context);
    if (!record) return MEMLORD_E_STATE;
    if (mli_ptr_load(&record->own.thread)) mli_context_exchange(lord, t, &record->kept);
    if (record->kept.context != &record->own) {
        mli_lock_drop(&record->lock);
        return MEMLORD_E_STATE;
    }
    record->serial++; /* from here on no call finds the record by a copy of the words */
    mli_lock_drop(&record->lock);
    mli_spans_close_left(lord, t, &record->kept);
    mli_current_clear(&record->kept);
    mli_lock_take(&mli_process.cold_lock);
    mli_handle_close(&lord->contexts->closed, &record->handle);
    mli_lock_drop(&mli_process.cold_lock);
    memset(context, 0, sizeof *context);
    return MEMLORD_OK;
}

/* -- the interposer, which has its tags and scopes by thread and not by context -- */

/* How many of a context's open tags and scopes the interposer has, without adopted scopes. */
typedef struct mli_context_told {
    uint32_t tags, scopes;
} mli_context_told;
static MLI_COLD mli_context_told mli_context_told_of(const mli_current *now) {
    mli_context_told told = {0, 0};
    const mli_span *f = now->span;
    told.tags = now->tag_depth;
    for (; f; f = f->around) told.scopes += !f->adopted;
    return told;
}
/* Tells the interposer of a swap. The interposer's ledger first ends the tags and scopes of the
   context that the thread has left. It then begins those of the context that the thread is in. */
static MLI_COLD void mli_context_tell(memlord *lord, const mli_current *now,
                                      mli_context_told left) {
    const mli_span *f = now->span ? now->context->spans : NULL;
    uint32_t i;
    mli_interposer_end(lord, 1, left.scopes);
    mli_interposer_end(lord, 0, left.tags);
    for (i = 1; i <= now->tag_depth; i++) /* tags[0], the default tag, is not for the interposer */
        mli_interposer_begin(lord, 0, i < now->tag_depth ? now->context->tags[i] : now->tag);
    for (; f; f = f == now->span ? NULL : f->inner)
        if (!f->adopted) mli_interposer_begin(lord, 1, f->scope->name);
}

/* -- life -- */

static MLI_COLD void mli_contexts_init(memlord *lord, const memlord_desc *desc) {
    (void)desc;
    lord->contexts->count.v = 1;
}
/* Takes or drops the locks of all records, so that no swap is half done in a forked child. */
static MLI_COLD void mli_contexts_locks(memlord *lord, int take) {
    uint32_t i, n = mli_u32_load(&lord->contexts->count);
    for (i = 1; i < n; i++) {
        mli_context_record *record = mli_context_at(lord, i);
        mli_lock_rank(&record->lock, MLI_RANK_CONTEXT); /* it may never have been opened */
        mli_lock_set(&record->lock, take);
    }
}
static MLI_COLD void mli_contexts_free(memlord *lord) {
    uint32_t i, n = mli_u32_load(&lord->contexts->count);
    for (i = 1; i < n; i++) mli_spans_free(lord, &mli_context_at(lord, i)->own);
    mli_vector_free(lord, &lord->contexts->all, sizeof(mli_context_record));
}
MLI_PRIVATE const mli_life mli_contexts_life = {MLI_LIFE_STATE(contexts), mli_contexts_init, NULL,
                                                NULL, mli_contexts_locks, NULL, mli_contexts_free};

/* -- public -- */

/* Begins a call on a context. Returns the thread's record, or NULL if the call ends here with the
   result *r. Zeroes the context of a ledger that has ended. */
static MLI_HOT mli_thread *mli_context_begin(memlord *lord, memlord_context *context,
                                             memlord_result *r) {
    const uint64_t generation = context ? context->word[MLI_WORD_LEDGER] : 0;
    mli_thread *t = NULL;
    *r = MEMLORD_OK;
    if (!context) {
        *r = MEMLORD_E_INVALID;
    } else if (MLI_LIKELY(!generation || generation == lord->generation)) {
        t = mli_thread_get(lord);
        if (!t) *r = MEMLORD_E_STATE;
    } else if (mli_self.in_host_alloc || memlord_find(generation)) {
        *r = MEMLORD_E_STATE; /* another ledger's, or called inside an allocator */
    } else {
        memset(context, 0, sizeof *context);
    }
    return t;
}

MEMLORD_API memlord_result memlord_context_swap(memlord *lord, memlord_context *context) {
    mli_thread *t;
    mli_context_told left = {0, 0};
    memlord_result r;
    int tells;
    if (!lord) return MEMLORD_OK;
    t = mli_context_begin(lord, context, &r);
    if (!t) return r;
    tells = mli_interposer_hears(lord);
    if (MLI_UNLIKELY(tells)) left = mli_context_told_of(&t->now);
    r = mli_context_swap(lord, t, context);
    mli_thread_put(lord, t);
    if (MLI_UNLIKELY(tells) && r == MEMLORD_OK) mli_context_tell(lord, &t->now, left);
    return r;
}

MLI_API memlord_result memlord_context_drop(memlord *lord, memlord_context *context) {
    mli_thread *t;
    const mli_context *in;
    mli_context_told left;
    memlord_result r;
    int moved;
    if (!lord) return MEMLORD_OK;
    t = mli_context_begin(lord, context, &r);
    if (!t) return r;
    in = t->now.context;
    left = mli_context_told_of(&t->now);
    if (context->word[MLI_WORD_LEDGER]) r = mli_context_drop(lord, t, context);
    moved = t->now.context != in;
    mli_thread_put(lord, t);
    if (moved) mli_context_tell(lord, &t->now, left);
    return mli_call_end_uncounted(lord, r);
}
