#include "base/vectors.h"
#include "base/memory.h"

/* Returns the array of a vector, grown until it has room for the chunk with the number `chunk`.
   Returns NULL if there is no memory. Requires: the caller is the only writer of the vector. */
static MLI_COLD mli_chunk_array *mli_vector_reserve(memlord *lord, mli_vector *vector,
                                                    uint32_t chunk, mli_alloc_fn grab) {
    mli_chunk_array *have = (mli_chunk_array *)mli_ptr_load(vector), *more;
    uint64_t cap = have ? have->cap * 2 : 6, i;
    if (have && chunk < have->cap) return have;
    while (cap <= chunk) cap *= 2;
    more = (mli_chunk_array *)grab(lord, sizeof *more + (size_t)cap * sizeof(mli_ptr));
    if (!more) return NULL;
    more->cap = cap;
    more->older = have;
    for (i = 0; have && i < have->cap; i++)
        mli_ptr_store(mli_chunk_array_at(more, i), mli_ptr_load(mli_chunk_array_at(have, i)));
    mli_ptr_store_release(vector, more); /* pairs with the load_acquire in mli_vector_at */
    return more;
}

MLI_PRIVATE MLI_NOINLINE void *mli_vector_at(const mli_vector *vector, uint32_t number,
                                             size_t size) {
    mli_chunk_array *chunks = (mli_chunk_array *)mli_ptr_load_acquire(vector);
    char *chunk;
    if (!chunks || number >> MLI_CHUNK_BITS >= chunks->cap) return NULL;
    chunk = (char *)mli_ptr_load_acquire(mli_chunk_array_at(chunks, number >> MLI_CHUNK_BITS));
    return chunk ? chunk + (number & (MLI_CHUNK_ROWS - 1)) * size : NULL;
}

MLI_PRIVATE MLI_COLD void *mli_vector_add(memlord *lord, mli_vector *vector, uint32_t number,
                                          size_t size, mli_alloc_fn grab) {
    uint32_t i = number >> MLI_CHUNK_BITS;
    mli_chunk_array *chunks = mli_vector_reserve(lord, vector, i, grab);
    void *chunk;
    if (!chunks) return NULL;
    if (!mli_ptr_load(mli_chunk_array_at(chunks, i))) {
        chunk = grab(lord, MLI_CHUNK_ROWS * size);
        if (!chunk) return NULL;
        mli_ptr_store_release(mli_chunk_array_at(chunks, i), chunk);
    }
    return mli_vector_at(vector, number, size);
}

MLI_PRIVATE MLI_COLD void mli_vector_free(memlord *lord, mli_vector *vector, size_t size) {
    mli_chunk_array *chunks = (mli_chunk_array *)mli_ptr_load(vector), *older;
    uint64_t i;
    for (i = 0; chunks && i < chunks->cap; i++)
        mli_own_free(lord, mli_ptr_load(mli_chunk_array_at(chunks, i)), MLI_CHUNK_ROWS * size);
    for (; chunks; chunks = older) {
        older = chunks->older;
        mli_own_free(lord, chunks, sizeof *chunks + (size_t)chunks->cap * sizeof(mli_ptr));
    }
}
