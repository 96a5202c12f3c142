/* Owns each thread's cache of look-ups and its open tags, and the births of all blocks. Invariant:
   only the thread itself reads and writes its cache and its tags. Lock: the cold lock, for new
   names and births. */
#ifndef MLI_BOOKS_TAGS_H
#define MLI_BOOKS_TAGS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "books/threads.h"
#include "books/sites.h"

enum { /* the kinds of mli_cache_entry: what a look-up finds, and by which key and salt. The kinds
          MLI_BOOK_SITE and MLI_BOOK_TAG find the cell of a row, by the site or tag and the dev. */
    MLI_CACHE_NAME = MLI_BOOKS, /* the kept copy of a host's tag, by the host's pointer */
    MLI_CACHE_PLACE,            /* the site of a place, by the file and the line */
    MLI_CACHE_SCOPE,            /* an mli_thread_scope, by the name and the parent scope */
    MLI_CACHE_SCOPE_SITE,       /* the same, by the memlord_scope_site and the parent scope */
    MLI_CACHE_SCOPE_RECORD      /* the same totals, by the mli_scope_record */
};
/* Returns the salt of a cache entry. An entry is found by its key, a pointer, and by its salt. The
   salt consists of the kind of entry and of `rest`, such as the dev or the line. */
static MLI_HOT uint32_t mli_cache_salt(int kind, uint32_t rest) {
    return (uint32_t)kind << 28 | rest;
}
/* Returns the entry at which the look-up of a key begins. */
static MLI_HOT mli_cache_entry *mli_cache_home(const mli_thread *t,
                                               const void *key, uint32_t salt) {
    uintptr_t hash = ((uintptr_t)key + salt) * 0x61c88647u; /* 2^32 / the golden ratio, negated */
    return &t->cache[hash >> 20 & t->cache_mask];
}
/* Returns the entry of a key, or NULL if the cache does not have it. The last entry of the cache is
   always vacant, and ends the look-up. */
static MLI_HOT const mli_cache_entry *mli_cache_find(const mli_thread *t,
                                                     const void *key, uint32_t salt) {
    const mli_cache_entry *memo = mli_cache_home(t, key, salt);
    for (; memo->key; memo++)
        if (MLI_LIKELY(memo->key == key && memo->salt == salt)) return memo;
    return NULL;
}
/* Caches the result of a look-up: in the entry that has its key, or else in the first vacant entry
   from the key's home on. If the first MLI_CACHE_PATH entries from there all have other keys,
   replaces the entry at the home. The orphan record caches nothing, because its cells are used
   under a lock. Requires: the caller is not inside a shard, because the cache may grow. */
MLI_PRIVATE MLI_COLD void mli_cache_set(memlord *lord, mli_thread *t, const void *key,
                                        uint32_t salt, void *value, uint64_t bits);

/* Returns the bits of a map entry's word2 that name the row of a site or a tag on a device. Returns
   0 if there is no room for the row. On first use makes the row and the thread's cell for it.
   Requires: the caller is not inside a shard. */
MLI_PRIVATE MLI_NOINLINE uint64_t mli_cached_row(memlord *lord, mli_thread *t, int book,
                                                 const void *identity, uint32_t dev);

/* Returns the id of the innermost scope of a thread, or 0 if the thread is in none. */
MLI_PRIVATE uint32_t mli_scope_id(const mli_thread *t);
MLI_PRIVATE uint32_t mli_scope_depth(const mli_thread *t);
/* Returns the mark that a block was born under, from its word2. */
MLI_PRIVATE uint64_t mli_mark_of(memlord *lord, uint64_t word2);
/* Returns the id of the scope that a block was born in, from its word2, or 0 if there is none. */
MLI_PRIVATE uint32_t mli_scope_of(memlord *lord, uint64_t word2);
/* Returns the stream that a block was born on, from its word2, or 0 if there is none. */
MLI_PRIVATE uint64_t mli_stream_of(memlord *lord, uint64_t word2);

MLI_PRIVATE mli_scope_record *mli_scope_record_at(memlord *lord, uint32_t id);
/* Returns one more than the number of scopes, and pairs with mli_scope_publish. */
MLI_PRIVATE uint32_t mli_scope_count(memlord *lord);
/* Returns the scope whose id the host gave, or NULL if no scope has that id. */
MLI_PRIVATE mli_scope_record *mli_scope_find(memlord *lord, uint64_t id);
/* Makes the record of the next scope, or returns NULL. Requires: the caller holds the cold lock. */
MLI_PRIVATE MLI_COLD mli_scope_record *mli_scope_record_new(memlord *lord);
/* Shows other threads the scope that was made last. Requires: the caller holds the cold lock. */
MLI_PRIVATE MLI_COLD void mli_scope_publish(memlord *lord);
/* Returns the number of the last birth. Requires: the caller holds the cold lock. */
static MLI_HOT uint32_t mli_birth_count(const memlord *lord) { return lord->tags.birth_count; }

/* The site, the tag and the stream with which the block of an alloc begins. */
typedef struct mli_origin {
    const memlord_site *site;
    const char *tag; /* a kept name, or NULL */
    uint64_t stream; /* 0 means no stream */
} mli_origin;
/* Returns the site, the tag and the stream of a block that this thread allocates at a site. */
static MLI_HOT mli_origin mli_origin_of(const mli_thread *t, const memlord_site *site) {
    const mli_origin origin = {site, t->now.tag, t->now.stream};
    return origin;
}
/* Returns the word2 of a block that this thread allocates. Makes the thread's cells for the rows of
   the block's site and tag. Requires: the caller is not inside a shard. */
MLI_PRIVATE uint64_t mli_alloc_word2(memlord *lord, mli_thread *t, uint32_t dev,
                                     const mli_origin *origin);

/* Returns the kept copy of a host's tag, if the thread's cache has it under the host's pointer. The
   host may change the text there, so compares the texts. */
static MLI_HOT const char *mli_tag_cached(const mli_thread *t, const char *tag) {
    const mli_cache_entry *memo = mli_cache_find(t, tag, mli_cache_salt(MLI_CACHE_NAME, 0));
    return memo && !strcmp((const char *)memo->value, tag) ? (const char *)memo->value : NULL;
}
/* Returns the kept copy of a host's tag. If there is no memory for the copy, counts a dropped tag
   and returns "". Requires: the caller holds no lock. */
MLI_PRIVATE MLI_COLD const char *mli_tag_of_host(memlord *lord, const char *tag);

/* Counts a guard (memlord_guard) that ended in another context than the one in which it began. */
MLI_PRIVATE MLI_COLD void mli_guard_lost(memlord *lord);

/* Ends the innermost tags of a thread, until `depth` tags are open. Requires: there are more. */
MLI_PRIVATE void mli_tags_cut(mli_thread *t, uint32_t depth);

/* Fills in a guard: its depth is the number of tags (or scopes, if `scope` is 1) that are open in
   the thread's context. The end of the guard restores this number. */
MLI_PRIVATE void mli_guard_note(memlord_guard *guard, memlord *lord, const mli_thread *t,
                                int scope);

/* Looks up the symbol memlord_interposer, by which a preloaded MemLord hears of tags and scopes.
   Requires: the caller holds no lock. */
MLI_PRIVATE MLI_COLD void mli_interposer_find(void);
/* Returns 1 if there is an interposer and the ledger is not the interposer's own. The acquire load
   pairs with the release store in mli_interposer_find. */
MLI_PRIVATE int mli_interposer_hears(const memlord *lord);
/* If there is an interposer, begins a tag (or a scope, if `scope` is 1) in its ledger, too.
   Requires: the caller holds no lock. */
MLI_PRIVATE void mli_interposer_begin(const memlord *lord, int scope, const char *name);
/* If there is an interposer, ends the innermost `count` tags (or scopes, if `scope` is 1) in its
   ledger, too. Requires: the caller holds no lock. */
MLI_PRIVATE void mli_interposer_end(const memlord *lord, int scope, uint32_t count);

MLI_TABLE(const mli_life mli_tags_life)

#endif
