/* Owns the cold tables (stb_ds maps that the cold lock guards), the kept strings, and the index,
   which finds a row, or the record of a site or a module, by an address. Invariant: a function
   whose name ends in _locked runs under the cold lock, and takes no memory from the host. Lock: the
   cold lock. */
#ifndef MLI_BOOKS_NAMES_H
#define MLI_BOOKS_NAMES_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/ledger.h"

/* A _locked function that lacks memory returns MLI_AGAIN or NULL. Its caller then calls
   mli_cold_leave, which drops the lock and allocates the memory. After that the caller tries again.
   stb_ds does not check its allocations and passes no context to them. So before a key is put in a
   table, the table gets all the memory that the put can need. A table frees its memory only when it
   ends. The arrays that it has outgrown stay until then; together they are smaller than its present
   arrays. */

/* A block of memory of a cold table (mli_dict), an stb_ds map whose items begin with the key, a
   string. Items move when the table grows, and are never removed. */
typedef struct mli_dict_block {
    struct mli_dict_block *next;
    size_t size;
} mli_dict_block;

typedef struct mli_stb_string { /* an item of the table of kept strings */
    char *key;
    struct mli_scope_record *scope; /* the scope that has the string as its path, or NULL */
} mli_stb_string;

typedef struct mli_dict {
    size_t item; /* bytes of an item */
    void *items; /* the stb_ds map; NULL if it is empty */
    struct mli_dict_block *blocks;
    size_t left; /* the unused bytes at the end of the first block */
} mli_dict;

/* What a _locked function returns if it lacks memory, to be tried again: see mli_cold_leave. */
#define MLI_AGAIN MEMLORD_RESULT_COUNT

/* Allocates under the cold lock, and never calls the host's allocator. Takes a free piece of the
   ledger's own memory, or the block that mli_cold_leave has allocated for this size. If there is
   neither, notes the size for mli_cold_leave and returns NULL. */
MLI_PRIVATE MLI_COLD void *mli_cold_alloc(memlord *lord, size_t size);

/* The tries of a function that takes the cold lock. */
typedef struct mli_cold {
    memlord_result r; /* the result of the latest try */
    void *block;      /* memory for the next try, or NULL */
    size_t size;      /* the bytes of `block` */
    size_t wanted;    /* the bytes of the allocation that failed last */
} mli_cold;

/* Takes the cold lock, for functions whose names end in _locked. */
MLI_PRIVATE MLI_COLD void mli_cold_enter(mli_cold *cold);

/* Drops the cold lock. If cold->r is MLI_AGAIN, allocates the memory that mli_cold_alloc has noted,
   and returns 1; the caller must then try again. Else returns 0, and cold->r is final. If the
   allocator fails, returns 0, and cold->r is MEMLORD_E_NOMEM. */
MLI_PRIVATE MLI_COLD int mli_cold_leave(memlord *lord, mli_cold *cold);

/* Returns the item of a kept string, or NULL if the string is not kept. The pointer is valid until
   the next string is put in the table. */
MLI_PRIVATE MLI_COLD mli_stb_string *mli_string_locked(memlord *lord, const char *text);

/* Gets the kept copy of a string, and makes it on first use. The same text always gives the same
   pointer, and NULL gives NULL. Returns MEMLORD_E_NOMEM if there would be more than
   MEMLORD_MAX_STRINGS bytes of strings. */
MLI_PRIVATE MLI_COLD memlord_result mli_name_locked(memlord *lord, const char *text,
                                                    const char **kept);

/* Does the same outside the cold lock, and allocates if memory is needed. */
MLI_PRIVATE MLI_COLD memlord_result mli_name(memlord *lord, const char *text, const char **kept);

/* Gets the kept copy of a string that may differ in every call. Such strings may use only half of
   MEMLORD_MAX_STRINGS, so that the other half is left for tags and sites. */
MLI_PRIVATE MLI_COLD memlord_result mli_name_limited(memlord *lord, const char *text,
                                                     const char **kept);

/* Returns the labels that memlord_labels_set has set, or NULL if there are none. */
MLI_PRIVATE const char *mli_labels(const memlord *lord);

/* The top 8 bits of an index key are the number of a device (dev), or one of these numbers. */
#define MLI_INDEX_SUBJECT 255u /* the other bits are the address of a site, or the type and index of
                                  a device; the value is the site's record, or the dev */
#define MLI_INDEX_BIRTH 252u   /* the other bits are a hash of a birth (mark, scope and stream of a
                                  block); the value is the number of the birth */
#define MLI_INDEX_MODULE 253u  /* the other bits are a module's start; the value is its record */
#define MLI_INDEX_CONTENT 254u /* the other bits are a hash of a site; the value is its record */

/* Returns the index key of an address on a device. The dev is in the top 8 bits. */
static MLI_HOT uint64_t mli_index_key(const void *address, uint32_t dev) {
    return (uint64_t)(uintptr_t)address ^ ((uint64_t)dev << 56);
}
/* Returns the value of a key, or 0 if the index does not have the key. Needs no lock. The acquire
   loads pair with the release stores in mli_index_add_locked and mli_index_reserve_locked. */
MLI_PRIVATE MLI_NOINLINE uint64_t mli_index_get(memlord *lord, uint64_t key);

/* Reserves room in the index for `more` entries. Returns MLI_AGAIN if it needs memory first. */
MLI_PRIVATE MLI_COLD memlord_result mli_index_reserve_locked(memlord *lord, uint64_t more);
/* Adds a key. The release store makes the value visible with the key. Requires:
   mli_index_reserve_locked has reserved room for the key, and the key is not in the index. */
MLI_PRIVATE void mli_index_add_locked(memlord *lord, uint64_t key, uint64_t value);

/* Adds a row, the orphan record's cell for the row, and the row's number in the index under `key`.
   Numbers start at 1; number 0 means no row. The release store of the row count publishes the row,
   after all its members are set. Only then does the index get the row's number. */
MLI_PRIVATE MLI_COLD memlord_result mli_row_add_locked(memlord *lord, int book, uint32_t dev,
                                                       void *subject, uint64_t key,
                                                       uint32_t *number);
/* Returns the row after row `number` of a book, or the first row if `number` is 0. Returns 0 if
   there is none. Unless `dev` is 0, leaves out the rows of other devices. The acquire loads pair
   with the release stores in mli_row_add_locked. */
MLI_PRIVATE uint32_t mli_row_next(memlord *lord, int book, uint32_t dev, uint32_t number);

MLI_TABLE(const mli_life mli_names_life)

#endif
