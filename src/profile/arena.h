/* Owns memory that is freed all at once. Invariants: memory is zeroed when it is returned and does
   not move; an arena holds at most the bytes it was made for. Locks: none; one thread uses an arena
   at a time. */
#ifndef MLR_PROFILE_ARENA_H
#define MLR_PROFILE_ARENA_H
#include "profile/profile.h"

typedef struct mlr_arena mlr_arena;

/* Makes an arena that returns at most `most` bytes. Returns NULL if there is no memory. */
MLR_PRIVATE mlr_arena *mlr_arena_make(uint64_t most);
MLR_PRIVATE void mlr_arena_free(mlr_arena *arena);

/* Returns room for `count` items of `size` bytes, zeroed. Returns NULL if there is no memory, or if
   the arena has reached its limit. */
MLR_PRIVATE void *mlr_arena_alloc(mlr_arena *arena, size_t count, size_t size);

#endif
