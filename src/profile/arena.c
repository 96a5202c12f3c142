#include "profile/arena.h"
#include <stdlib.h>

enum { CHUNK_BYTES = 64 * 1024, ALIGNMENT = 16 };

typedef struct chunk {
    struct chunk *next;
    size_t size, used; /* of the bytes behind this head */
} chunk;
#define CHUNK_HEAD ((sizeof(chunk) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT)

struct mlr_arena {
    chunk *chunks; /* the one in use first */
    uint64_t left; /* how many bytes it may still return */
};

MLR_PRIVATE mlr_arena *mlr_arena_make(uint64_t most) {
    mlr_arena *arena = (mlr_arena *)calloc(1, sizeof *arena);
    if (arena) arena->left = most;
    return arena;
}

MLR_PRIVATE void mlr_arena_free(mlr_arena *arena) {
    chunk *c, *next;
    for (c = arena ? arena->chunks : NULL; c; c = next) {
        next = c->next;
        free(c);
    }
    free(arena);
}

/* Adds a chunk. One for a large piece alone goes behind the chunk in use, whose room stays. */
static chunk *chunk_add(mlr_arena *arena, size_t size) {
    const size_t room = size < CHUNK_BYTES / 4 ? CHUNK_BYTES : size;
    chunk *c = (chunk *)calloc(1, CHUNK_HEAD + room);
    if (!c) return NULL;
    c->size = room;
    if (room == size && arena->chunks) {
        c->next = arena->chunks->next;
        arena->chunks->next = c;
    } else {
        c->next = arena->chunks;
        arena->chunks = c;
    }
    return c;
}

MLR_PRIVATE void *mlr_arena_alloc(mlr_arena *arena, size_t count, size_t size) {
    chunk *c = arena->chunks;
    size_t bytes;
    if (size && count > (SIZE_MAX / 2 - CHUNK_HEAD) / size) return NULL;
    bytes = (count * size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (bytes > arena->left) return NULL;
    if (!c || c->size - c->used < bytes) c = chunk_add(arena, bytes);
    if (!c) return NULL;
    arena->left -= bytes;
    c->used += bytes;
    return (char *)c + CHUNK_HEAD + c->used - bytes;
}
