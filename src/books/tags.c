#include "books/tags.h"
#include "os/modules.h"
#include "os/system.h"
#include "os/unwind.h"
#include "base/atomics.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/vectors.h"
#include "books/map.h"
#include "books/counters.h"
#include "books/spans.h"
#include "books/names.h"
#include "books/devices.h"
#include "books/anomalies.h"

static void mli_cache_free(memlord *lord, mli_thread *t) {
    if (t->cache && t->cache != t->cache_inline)
        mli_own_free(lord, t->cache, (t->cache_mask + 1 + MLI_CACHE_PATH) * sizeof *t->cache);
}
/* Makes room for one more entry in a thread's cache. Empties the cache, and doubles it if there is
   memory. Later calls look up again what they need. */
static MLI_COLD void mli_cache_grow(memlord *lord, mli_thread *t) {
    const size_t homes = t->cache_mask + 1;
    mli_cache_entry *more = NULL;
    if (homes < MLI_CACHE_MAX)
        more = (mli_cache_entry *)mli_own_alloc(lord, (2 * homes + MLI_CACHE_PATH) * sizeof *more);
    t->cache_count = 0;
    if (!more) {
        memset(t->cache, 0, (homes + MLI_CACHE_PATH) * sizeof *t->cache);
        return;
    }
    mli_cache_free(lord, t);
    t->cache = more;
    t->cache_mask = (uint32_t)(2 * homes - 1);
}
MLI_PRIVATE MLI_COLD void mli_cache_set(memlord *lord, mli_thread *t, const void *key,
                                        uint32_t salt, void *value, uint64_t bits) {
    MLI_REQUIRE(!mli_is_inside());
    mli_cache_entry *memo;
    uint32_t k = 0;
    if (mli_is_orphan(lord, t)) return;
    if (t->cache_count >= (t->cache_mask + 1) * 3 / 8) mli_cache_grow(lord, t);
    memo = mli_cache_home(t, key, salt);
    while (k < MLI_CACHE_PATH && memo[k].key && (memo[k].key != key || memo[k].salt != salt)) k++;
    if (k < MLI_CACHE_PATH) memo += k;
    t->cache_count += !memo->key;
    memo->key = key;
    memo->salt = salt;
    memo->value = value;
    memo->bits = bits;
}

MLI_PRIVATE MLI_NOINLINE uint64_t mli_cached_row(memlord *lord, mli_thread *t, int book,
                                                 const void *identity, uint32_t dev) {
    MLI_REQUIRE(!mli_is_inside());
    const uint32_t salt = mli_cache_salt(book, dev);
    const mli_cache_entry *memo = mli_cache_find(t, identity, salt);
    mli_cell *cell;
    uint64_t bits;
    uint32_t row;
    if (MLI_LIKELY(memo != NULL)) return memo->bits;
    row = mli_row_of(lord, book, identity, dev);
    if (!row) return 0;
    bits = book == MLI_BOOK_SITE ? mli_word2_of(row, 0, 0) : mli_word2_of(0, row, 0);
    cell = mli_cell_make(lord, t, book, row, mli_own_alloc);
    if (cell) mli_cache_set(lord, t, identity, salt, cell, bits);
    return bits;
}

MLI_PRIVATE uint32_t mli_scope_id(const mli_thread *t) {
    return t->now.span ? t->now.span->scope->id : 0;
}
MLI_PRIVATE uint32_t mli_scope_depth(const mli_thread *t) {
    return t->now.span ? t->now.span->depth : 0;
}

/* -- births: the mark, the scope and the stream of a block -- */

/* Returns the number of a birth. If the birth has no number yet, returns 0, and sets *key to the
   key under which the caller can add the birth to the index. */
static uint32_t mli_birth_number(memlord *lord, const mli_birth *birth, uint64_t *key) {
    uint64_t hash = birth->stream * 0x9e3779b97f4a7c15u;
    hash = ((hash ^ hash >> 32) + birth->mark) * 0x9e3779b97f4a7c15u;
    hash = ((hash ^ hash >> 32) + birth->scope) * 0x9e3779b97f4a7c15u;
    for (;; hash += 256) {
        const mli_birth *seen;
        uint32_t number;
        *key = hash >> 8 ^ (uint64_t)MLI_INDEX_BIRTH << 56;
        number = (uint32_t)mli_index_get(lord, *key);
        if (!number) return 0;
        seen = (const mli_birth *)mli_vector_at(&lord->tags.births, number, sizeof *seen);
        if (seen->stream == birth->stream && seen->mark == birth->mark &&
            seen->scope == birth->scope)
            return number;
    }
}

/* Finds or adds a birth. Returns MLI_AGAIN if the caller has to get memory and then call again. */
static MLI_COLD memlord_result mli_birth_find_locked(memlord *lord, const mli_birth *birth,
                                                     uint32_t *number) {
    MLI_REQUIRE(mli_lock_held(&mli_process.cold_lock));
    mli_birth *added;
    uint64_t key;
    memlord_result r = mli_index_reserve_locked(lord, 1);
    *number = mli_birth_number(lord, birth, &key);
    if (*number) return MEMLORD_OK;
    if (r) return r;
    if (lord->tags.birth_count == MLI_BIRTHS_MAX) return MEMLORD_E_NOMEM;
    added = (mli_birth *)mli_vector_add(lord, &lord->tags.births, lord->tags.birth_count + 1,
                                        sizeof *added, mli_cold_alloc);
    if (!added) return MLI_AGAIN;
    *added = *birth;
    *number = ++lord->tags.birth_count;
    mli_index_add_locked(lord, key, *number);
    return MEMLORD_OK;
}

/* Finds or adds a birth, and returns its number. If there is no room for the birth, returns 0 and
   counts its scope as lost (MLI_LOST_scopes). */
static MLI_COLD uint32_t mli_birth_find(memlord *lord, uint64_t stream, uint32_t mark,
                                        uint32_t scope) {
    mli_cold cold = {MEMLORD_OK, NULL, 0, 0};
    mli_birth birth;
    uint64_t key;
    uint32_t number;
    birth.stream = stream;
    birth.mark = mark;
    birth.scope = scope;
    number = mli_birth_number(lord, &birth, &key);
    if (number) return number;
    do {
        mli_cold_enter(&cold);
        cold.r = mli_birth_find_locked(lord, &birth, &number);
    } while (mli_cold_leave(lord, &cold));
    if (cold.r) mli_loss_add(lord, MLI_LOST_scopes);
    return number;
}

/* Returns the bits of word2 for the birth of a block in the thread's scope, on a stream, and caches
   them: in the scope if the stream is 0, in the thread if it is the thread's. Without room for a
   birth, returns the mark alone. */
static MLI_COLD uint64_t mli_birth_bits_new(memlord *lord, mli_thread *t, uint64_t born,
                                            uint64_t stream) {
    MLI_REQUIRE(!mli_is_inside());
    mli_scope_record *scope = t->now.span && !stream ? t->now.span->scope : NULL;
    const uint64_t mark = MLI_BIRTH(born);
    const uint64_t last = scope ? mli_u64_load_acquire(&scope->birth) : 0;
    uint32_t number = (uint32_t)(last & MLI_MARK_MAX);
    uint64_t bits;
    if (!number || last >> (MLI_BIRTH_BITS - 1) != mark) {
        number = mli_birth_find(lord, stream, (uint32_t)mark, mli_scope_id(t));
        if (scope && number) /* pairs with the acquire load above */
            mli_u64_store_release(&scope->birth, mark << (MLI_BIRTH_BITS - 1) | number);
    }
    bits = number ? mli_word2_of(0, 0, MLI_BIRTH_NUMBERED | number) : born;
    if (stream != t->now.stream) return bits;
    t->now.birth_mark = born;
    t->now.birth_bits = bits;
    return bits;
}
static MLI_HOT uint64_t mli_birth_bits(memlord *lord, mli_thread *t, uint64_t stream) {
    uint64_t born = mli_mark_bits(lord);
    if (MLI_LIKELY(!t->now.span && !stream)) return born;
    if (t->now.birth_bits && t->now.birth_mark == born && stream == t->now.stream)
        return t->now.birth_bits;
    return mli_birth_bits_new(lord, t, born, stream);
}

/* Returns the birth of a block. If the block began in no scope, the scope in the birth is 0. If it
   began on no stream, the stream is 0. If there was no room for the birth, both are 0. */
static mli_birth mli_birth_of(memlord *lord, uint64_t word2) {
    const uint64_t bits = MLI_BIRTH(word2);
    mli_birth birth = {0, 0, 0};
    if (bits & MLI_BIRTH_NUMBERED)
        return *(const mli_birth *)mli_vector_at(&lord->tags.births,
                                                 (uint32_t)(bits & MLI_MARK_MAX), sizeof birth);
    birth.mark = (uint32_t)bits;
    return birth;
}
MLI_PRIVATE uint64_t mli_mark_of(memlord *lord, uint64_t word2) {
    return mli_birth_of(lord, word2).mark;
}
MLI_PRIVATE uint32_t mli_scope_of(memlord *lord, uint64_t word2) {
    return mli_birth_of(lord, word2).scope;
}
MLI_PRIVATE uint64_t mli_stream_of(memlord *lord, uint64_t word2) {
    return mli_birth_of(lord, word2).stream;
}

MLI_PRIVATE mli_scope_record *mli_scope_record_at(memlord *lord, uint32_t id) {
    mli_ptr *at = (mli_ptr *)mli_vector_at(&lord->tags.scopes, id, sizeof *at);
    return (mli_scope_record *)mli_ptr_load(at);
}

MLI_PRIVATE uint32_t mli_scope_count(memlord *lord) {
    return mli_u32_load_acquire(&lord->tags.scope_count);
}
MLI_PRIVATE mli_scope_record *mli_scope_find(memlord *lord, uint64_t id) {
    return id && id < mli_scope_count(lord) ? mli_scope_record_at(lord, (uint32_t)id) : NULL;
}
MLI_PRIVATE MLI_COLD mli_scope_record *mli_scope_record_new(memlord *lord) {
    MLI_REQUIRE(mli_lock_held(&mli_process.cold_lock));
    const uint32_t id = mli_u32_load(&lord->tags.scope_count);
    mli_ptr *at = (mli_ptr *)mli_vector_add(lord, &lord->tags.scopes, id, sizeof *at,
                                            mli_cold_alloc);
    mli_scope_record *scope = at ? (mli_scope_record *)mli_cold_alloc(lord, sizeof *scope) : NULL;
    if (!scope) return NULL;
    scope->id = id;
    mli_ptr_store(at, scope);
    return scope;
}
MLI_PRIVATE MLI_COLD void mli_scope_publish(memlord *lord) {
    MLI_REQUIRE(mli_lock_held(&mli_process.cold_lock));
    const uint32_t id = mli_u32_load(&lord->tags.scope_count);
    mli_u32_store_release(&lord->tags.scope_count, id + 1); /* pairs with mli_scope_count */
}

MLI_PRIVATE uint64_t mli_alloc_word2(memlord *lord, mli_thread *t, uint32_t dev,
                                     const mli_origin *origin) {
    MLI_REQUIRE(!mli_is_inside());
    uint64_t rows = 0;
    if (!t->now.span && !t->now.stream && (mli_u32_load(&t->special) & MLI_SPECIAL_SCOPE))
        mli_special_set(t, MLI_SPECIAL_SCOPE, 0); /* the thread's last scope has ended */
    if (origin->site && mli_hook_on(lord, MLI_HOOK_SITES))
        rows = mli_cached_row(lord, t, MLI_BOOK_SITE, origin->site, dev);
    if (origin->tag) rows |= mli_cached_row(lord, t, MLI_BOOK_TAG, origin->tag, dev);
    return mli_birth_bits(lord, t, origin->stream) | rows;
}

/* Counts a tag for which there was no room, and logs a warning for the first such tag. */
static MLI_COLD void mli_tag_drop(memlord *lord) {
    mli_stat_add(lord, 0, MLI_STAT_dropped_sites, 1);
    mli_drop_warn(lord, &lord->tags.warned_tag,
                  "[drop] no room for a tag: raise MEMLORD_MAX_STRINGS, or give the ledger's "
                  "allocator more; dropped_sites has how many");
}

MLI_PRIVATE MLI_COLD void mli_guard_lost(memlord *lord) {
    mli_stat_add(lord, 0, MLI_STAT_dropped_sites, 1);
    mli_end_misplaced(lord, NULL);
}

/* Gets the kept copy of a tag. */
static memlord_result mli_tag_kept(memlord *lord, mli_thread *t, const char *tag,
                                   const char **kept) {
    memlord_result r;
    *kept = mli_tag_cached(t, tag);
    if (*kept) return MEMLORD_OK;
    r = mli_name(lord, tag, kept);
    if (r == MEMLORD_OK)
        mli_cache_set(lord, t, tag, mli_cache_salt(MLI_CACHE_NAME, 0), (void *)(uintptr_t)*kept,
                      0);
    return r;
}

MLI_PRIVATE MLI_COLD const char *mli_tag_of_host(memlord *lord, const char *tag) {
    MLI_REQUIRE(mli_none_held());
    mli_thread *t = mli_thread_get(lord);
    const char *kept = "";
    memlord_result r;
    if (!t) return kept; /* the ledger's own allocator makes the call, so no tag is needed */
    r = mli_tag_kept(lord, t, tag, &kept);
    mli_thread_put(lord, t);
    if (r == MEMLORD_OK) return kept;
    mli_tag_drop(lord);
    return "";
}

/* Finds or makes the site of a place that the host gives by value. Returns NULL if there is no
   memory. The thread's cache has the site under the host's pointer to the file name. The host may
   change the text there, so the function also compares the texts. */
static const mli_site_record *mli_site_by_value(memlord *lord, mli_thread *t,
                                                const memlord_site *place) {
    const uint32_t salt = mli_cache_salt(MLI_CACHE_PLACE, (uint32_t)place->line & 0xfffffff);
    const mli_cache_entry *memo = mli_cache_find(t, place->file, salt);
    mli_site_record *site = memo ? (mli_site_record *)memo->value : NULL;
    mli_site_origin from;
    mli_cold cold = {MEMLORD_OK, NULL, 0, 0};
    if (site && site->original.line == place->line && !strcmp(site->original.file, place->file) &&
        !strcmp(site->original.function, place->function))
        return site;
    from.planted = place;
    from.module = mli_module_of(place->file);
    do {
        mli_cold_enter(&cold);
        cold.r = mli_site_content_locked(lord, &from, &site);
    } while (mli_cold_leave(lord, &cold));
    if (cold.r) return NULL;
    mli_cache_set(lord, t, place->file, salt, site, 0);
    return site;
}

/* Sets the tag that the thread's allocs get. */
static void mli_tag_set(mli_thread *t, const char *kept) {
    if (!kept != !t->now.tag) mli_special_set(t, MLI_SPECIAL_TAG, kept != NULL);
    t->now.tag = kept;
}

MLI_PRIVATE void mli_tags_cut(mli_thread *t, uint32_t depth) {
    MLI_REQUIRE(depth < t->now.tag_depth);
    t->now.tag_depth = depth;
    mli_tag_set(t, t->now.context->tags[depth]);
}

MLI_PRIVATE void mli_guard_note(memlord_guard *guard, memlord *lord, const mli_thread *t,
                                int scope) {
    guard->lord = lord;
    guard->context = t->now.context->id;
    guard->scope = scope;
    guard->depth = scope ? mli_scope_depth(t) : t->now.tag_depth;
}

MLI_PRIVATE MLI_COLD void mli_interposer_find(void) {
#if defined(__linux__)
    const memlord_interposer *found;
    char any[2];
    if (!mli_env_read("LD_PRELOAD", any, sizeof any)) return;
    found = (const memlord_interposer *)mli_symbol("memlord_interposer");
    if (found && found->size >= sizeof *found && found->version == 1 && found->tag_begin &&
        found->tag_end && found->scope_begin && found->scope_end)
        mli_ptr_store_release(&mli_process.interposer, (void *)(uintptr_t)found);
#endif
}

/* Returns the interposer, or NULL if there is none or the ledger belongs to the interposer. */
static const memlord_interposer *mli_interposer_of(const memlord *lord) {
    const memlord_interposer *to =
        (const memlord_interposer *)mli_ptr_load_acquire(&mli_process.interposer);
    return MLI_LIKELY(!to) || to->lord == lord ? NULL : to;
}
MLI_PRIVATE int mli_interposer_hears(const memlord *lord) {
    return mli_interposer_of(lord) != NULL;
}
MLI_PRIVATE void mli_interposer_begin(const memlord *lord, int scope, const char *name) {
    MLI_REQUIRE(mli_none_held());
    const memlord_interposer *to = mli_interposer_of(lord);
    if (to) (scope ? to->scope_begin : to->tag_begin)(name);
}
MLI_PRIVATE void mli_interposer_end(const memlord *lord, int scope, uint32_t count) {
    MLI_REQUIRE(mli_none_held());
    const memlord_interposer *to = mli_interposer_of(lord);
    while (to && count--) (scope ? to->scope_end : to->tag_end)();
}

/* Begins a tag. If `guard` is not NULL, it gets the number of open tags, which the end of the guard
   restores. The default tag is at the bottom of the stack of tags. */
static memlord_result mli_tag_begin(memlord *lord, const char *tag, memlord_guard *guard) {
    mli_thread *t;
    const char *kept;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    if (!tag || !*tag)
        return mli_refuse(lord, MLI_REFUSER_tag_begin, MEMLORD_E_INVALID, memlord_device_all(),
                          "a tag has a name", NULL);
    t = mli_thread_get(lord);
    if (!t) return MEMLORD_OK;
    if (mli_is_orphan(lord, t)) /* several threads share the record, so it has no tag stack */
        r = MEMLORD_E_NOMEM;
    else if (t->now.tag_depth == MLI_TAG_DEPTH_MAX)
        r = MEMLORD_E_STATE;
    else
        r = mli_tag_kept(lord, t, tag, &kept);
    if (r == MEMLORD_OK) {
        if (guard) mli_guard_note(guard, lord, t, 0);
        t->now.context->tags[t->now.tag_depth++] = t->now.tag;
        mli_tag_set(t, kept);
    }
    mli_thread_put(lord, t);
    if (r == MEMLORD_E_NOMEM) mli_tag_drop(lord);
    if (r == MEMLORD_OK) mli_interposer_begin(lord, 0, tag);
    return r;
}

/* -- life -- */

static MLI_COLD void mli_tags_init(memlord *lord, const memlord_desc *desc) {
    (void)desc;
    lord->tags.scope_count.v = 1;
}
static MLI_COLD void mli_tags_free(memlord *lord) {
    mli_thread *t;
    for (t = mli_thread_first(lord); t; t = mli_thread_next(t)) mli_cache_free(lord, t);
    mli_vector_free(lord, &lord->tags.births, sizeof(mli_birth));
    mli_vector_free(lord, &lord->tags.scopes, sizeof(mli_ptr));
}
MLI_PRIVATE const mli_life mli_tags_life = {0, 0, mli_tags_init, NULL, NULL, NULL, NULL,
                                            mli_tags_free};

/* -- public -- */

MLI_API const memlord_site *memlord_site_of(memlord *lord, const char *file, const char *function,
                                            int line) {
    const mli_site_record *site;
    memlord_site place;
    mli_thread *t;
    if (!lord) return &mli_no_site;
    t = mli_thread_get(lord);
    if (!t) return &mli_no_site;
    mli_thread_put(lord, t); /* may come before the use of the record's cache: only the orphan
                                record is locked, and its cache stays empty */
    place.file = file ? file : "";
    place.function = function ? function : "";
    place.line = line;
    site = mli_site_by_value(lord, t, &place);
    return site ? (const memlord_site *)mli_ptr_load_acquire(&site->display) : &mli_no_site;
}

MLI_API uint64_t memlord_mark(memlord *lord) {
    if (!lord) return 0;
    (void)mli_call_end_uncounted(lord, MEMLORD_OK); /* first, so that earlier requests report the
                                                       old mark */
    return mli_mark_next(lord);
}

MEMLORD_API memlord_result memlord_tag_begin(memlord *lord, const char *tag) {
    return mli_tag_begin(lord, tag, NULL);
}
MEMLORD_API memlord_guard memlord_guard_tag(memlord *lord, const char *tag) {
    memlord_guard guard = {NULL, 0, 0, 0};
    (void)mli_tag_begin(lord, tag, &guard);
    return guard;
}

MEMLORD_API MLI_NOINLINE memlord_result memlord_tag_end(memlord *lord) {
    mli_thread *t;
    memlord_result r = MEMLORD_E_STATE;
    if (!lord) return MEMLORD_OK;
    t = mli_thread_get(lord);
    if (!t) return MEMLORD_OK;
    if (t->now.tag_depth) {
        mli_tags_cut(t, t->now.tag_depth - 1);
        r = MEMLORD_OK;
    }
    mli_thread_put(lord, t);
    if (r == MEMLORD_OK)
        mli_interposer_end(lord, 0, 1);
    else
        mli_end_misplaced(lord, MLI_RETURN_ADDRESS());
    return r;
}

MLI_API uint64_t memlord_stream_set(memlord *lord, uint64_t stream) {
    mli_thread *t = lord ? mli_thread_get(lord) : NULL;
    uint64_t before = t ? t->now.stream : 0;
    if (!t || before == stream) {
        if (t) mli_thread_put(lord, t);
        return before;
    }
    if (mli_is_orphan(lord, t)) { /* several threads share the record, so it has no stream */
        mli_stat_add(lord, 0, MLI_STAT_dropped_sites, 1);
    } else {
        t->now.stream = stream;
        t->now.birth_bits = 0;
        if (stream) mli_special_set(t, MLI_SPECIAL_SCOPE, 1);
    }
    mli_thread_put(lord, t);
    return before;
}

MLI_API const char *memlord_tag_current(memlord *lord) {
    mli_thread *t = lord ? mli_thread_get(lord) : NULL;
    const char *tag = t ? t->now.tag : NULL;
    if (t) mli_thread_put(lord, t);
    return tag;
}

MLI_API memlord_result memlord_tag_default_set(memlord *lord, const char *tag) {
    mli_thread *t;
    const char *kept = NULL;
    memlord_result r = MEMLORD_OK;
    if (!lord) return MEMLORD_OK;
    if (tag && !*tag)
        return mli_refuse(lord, MLI_REFUSER_tag_default_set, MEMLORD_E_INVALID,
                          memlord_device_all(), "a tag has a name", NULL);
    t = mli_thread_get(lord);
    if (!t) return MEMLORD_OK;
    if (mli_is_orphan(lord, t))
        r = MEMLORD_E_NOMEM; /* several threads share the record, so it has no tag stack */
    else if (tag)
        r = mli_tag_kept(lord, t, tag, &kept);
    if (r == MEMLORD_OK && t->now.tag_depth)
        t->now.context->tags[0] = kept;
    else if (r == MEMLORD_OK)
        mli_tag_set(t, kept);
    mli_thread_put(lord, t);
    if (r == MEMLORD_E_NOMEM) mli_tag_drop(lord);
    return r;
}

MLI_API memlord_result memlord_expect(memlord *lord, memlord_device device, const char *tag,
                                      uint64_t bytes) {
    uint32_t dev, number;
    const char *kept;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    r = !tag || !*tag || bytes > MLI_BYTES_MAX ? MEMLORD_E_INVALID : mli_dev(lord, device, &dev);
    if (r)
        return mli_refuse(lord, MLI_REFUSER_expect, r, device,
                          tag && *tag ? mli_block_fault(1, bytes) : "a tag has a name", NULL);
    r = mli_name(lord, tag, &kept);
    if (r) return r;
    r = mli_row_find(lord, MLI_BOOK_TAG, kept, dev, &number);
    if (r) return r;
    mli_u64_store(&mli_row_at(lord, MLI_BOOK_TAG, number)->expected, bytes);
    return mli_call_end_uncounted(lord, MEMLORD_OK);
}
