/* Owns the cold tables (stb_ds maps), the kept strings, and the index from addresses to rows and
   records. A kept string is the ledger's copy of a string: there is one copy of each text, and it
   lives until the ledger ends. May use base/memory and books/counters. Invariant: a function whose
   name ends in _locked runs under the cold lock, and takes no memory from the host. Lock: cold. */
#ifndef MLI_BOOKS_NAMES_H
#define MLI_BOOKS_NAMES_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/ledger.h"

/* A _locked function that lacks memory returns MLI_AGAIN or NULL. mli_cold_leave then drops the
   lock, allocates, and lets the caller try again. stb_ds does not check its allocations and passes
   no context to them. So before each put a table gets all the memory that the put can need, and it
   frees its memory when it ends. Arrays that a table has outgrown stay until the table ends;
   together they are smaller than its present arrays. */

/* A block of the memory of a cold table (mli_dict), which is an stb_ds map with strings as keys. An
   item begins with its key, a char *. Items move when the table grows; none is removed. */
typedef struct mli_dict_block {
    struct mli_dict_block *next;
    size_t size;
} mli_dict_block;

typedef struct mli_stb_string { /* an item of memlord.names.strings */
    char *key;
    struct mli_scope_record *scope; /* the scope whose path the string is; NULL: none */
} mli_stb_string;

typedef struct mli_dict {
    size_t item; /* bytes of an item */
    void *items; /* a map of stb_ds; NULL: empty */
    struct mli_dict_block *blocks;
    size_t left; /* how many bytes at the end of the first block are unused */
} mli_dict;

/* A result of _locked functions: the caller lacks memory, and tries again after mli_cold_leave. */
#define MLI_AGAIN MEMLORD_RESULT_COUNT

/* Allocates under the cold lock, and never calls the host's allocator. Takes a free piece of the
   ledger, or the block that mli_cold_leave has allocated for this size. NULL: there is neither; the
   size is then noted for mli_cold_leave. */
MLI_PRIVATE MLI_COLD void *mli_cold_alloc(memlord *lord, size_t size);

/* Begins a cold call: takes the cold lock. */
MLI_PRIVATE MLI_COLD void mli_cold_enter(void);

/* Ends a cold call: drops the lock. If *result is MLI_AGAIN, allocates the memory that was noted,
   and returns 1: the caller must try again. Else returns 0, and *result is final. If the allocator
   failed, *result is MEMLORD_E_NOMEM. */
MLI_PRIVATE MLI_COLD int mli_cold_leave(memlord *lord, memlord_result *result);

/* Returns the item of a kept string; NULL: the string is not kept. The pointer is valid until the
   next put. */
MLI_PRIVATE MLI_COLD mli_stb_string *mli_string_locked(memlord *lord, const char *text);

/* Gets the kept copy of a string, and makes it on first use. The same text always gives the same
   pointer, and NULL gives NULL. MEMLORD_E_NOMEM: there would be more bytes of strings than
   MEMLORD_MAX_STRINGS. */
MLI_PRIVATE MLI_COLD memlord_result mli_name_locked(memlord *lord, const char *text,
                                                    const char **kept);

/* Does what mli_name_locked does, takes the cold lock itself, and allocates if it must. */
MLI_PRIVATE MLI_COLD memlord_result mli_name(memlord *lord, const char *text, const char **kept);

/* Gets the kept copy of a string that may differ in every call. Such strings may use only half of
   MEMLORD_MAX_STRINGS, so that the other half is left for tags and sites. */
MLI_PRIVATE MLI_COLD memlord_result mli_name_limited(memlord *lord, const char *text,
                                                     const char **kept);

/* Returns the labels of the ledger; NULL: there are none. */
MLI_PRIVATE const char *mli_labels(const memlord *lord);

#define MLI_INDEX_SUBJECT 255u /* in place of a dev, in the key of the record of the address
                                  itself */
#define MLI_INDEX_BIRTH 252u   /* over a hash of the content: the number of a birth */
#define MLI_INDEX_MODULE 253u  /* a module, by the address where it starts */
#define MLI_INDEX_CONTENT 254u /* over a hash of the content: the key of a site */

/* Returns the index key of an address on a device: the dev is in the top 8 bits. */
static MLI_HOT uint64_t mli_index_key(const void *address, uint32_t dev) {
    return (uint64_t)(uintptr_t)address ^ ((uint64_t)dev << 56);
}
/* Returns the value of a key; 0: there is none. Needs no lock. The acquires pair with the releases
   in mli_index_add_locked and mli_index_reserve_locked. */
MLI_PRIVATE MLI_NOINLINE uint64_t mli_index_get(memlord *lord, uint64_t key);

/* Reserves room in the index for `more` entries. MLI_AGAIN: it needs memory first. */
MLI_PRIVATE MLI_COLD memlord_result mli_index_reserve_locked(memlord *lord, uint64_t more);
/* Adds a key. Requires: mli_index_reserve_locked has reserved its room, and the key is not in the
   index. The release makes the value visible with the key. */
MLI_PRIVATE void mli_index_add_locked(memlord *lord, uint64_t key, uint64_t value);

/* Adds a row under an index key, and the orphan's cell for the row. Numbers start at 1: row 0 means
   none. The row is published last, by the release of the row count. */
MLI_PRIVATE MLI_COLD memlord_result mli_row_add_locked(memlord *lord, int book, uint32_t dev,
                                                       void *subject, uint64_t key,
                                                       uint32_t *number);

MLI_PRIVATE MLI_COLD void mli_names_life(mli_life *life);

#endif
