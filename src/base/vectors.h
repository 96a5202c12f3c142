/* Has the vector, a growable array of records. Owns no state: the vector is in the state of the
   module that owns the records. Invariants: a record never moves, and a thread can find it by its
   number even while another thread grows the vector. Locks: none; the owner lets one thread at a
   time grow it. */
#ifndef MLI_BASE_VECTORS_H
#define MLI_BASE_VECTORS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/atomics.h"
#include "base/ledger.h"

/* A vector (mli_vector) stores its records in chunks of 16. A growing vector gets a new array of
   pointers to its chunks. Older arrays stay readable until the ledger ends. */
#define MLI_CHUNK_BITS 4
#define MLI_CHUNK_ROWS (1u << MLI_CHUNK_BITS)
typedef struct mli_chunk_array {
    struct mli_chunk_array *older; /* the array before this one; NULL: this is the first one */
    uint64_t cap; /* how many pointers follow, each to a chunk of 16 records, or NULL */
} mli_chunk_array;
/* Returns the address of the pointer to chunk i. */
static MLI_HOT mli_ptr *mli_chunk_array_at(const mli_chunk_array *chunks, uint64_t i) {
    return (mli_ptr *)(uintptr_t)(chunks + 1) + i;
}

typedef void *(*mli_alloc_fn)(memlord *, size_t); /* mli_own_alloc or mli_cold_alloc */

/* Returns the record with this number, or NULL if the record's chunk is not made yet. A record that
   was not added yet reads as zeros. Any thread may call this function. */
MLI_PRIVATE MLI_NOINLINE void *mli_vector_at(const mli_vector *vector, uint32_t number,
                                             size_t size);
/* Returns the record with this number, and makes its chunk in memory from `grab` if it is missing,
   or returns NULL. Stores the pointer to the chunk with a release, which pairs with the acquire
   load in mli_vector_at. Requires: the caller is the only one that adds to the vector. */
MLI_PRIVATE MLI_COLD void *mli_vector_add(memlord *lord, mli_vector *vector, uint32_t number,
                                          size_t size, mli_alloc_fn grab);
/* Frees the chunks and all arrays of a vector. Requires: no thread uses the vector any more. */
MLI_PRIVATE MLI_COLD void mli_vector_free(memlord *lord, mli_vector *vector, size_t size);

#endif
