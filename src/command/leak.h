/* Finds what --fail-on-leak fails on: blocks that a program left at its end, or since its last
   mark, and that it could have freed. Owns no state. Locks: none. */
#ifndef MLR_COMMAND_LEAK_H
#define MLR_COMMAND_LEAK_H
#include "command/say.h"

typedef struct mlr_leak {
    uint64_t blocks, bytes; /* blocks: 0 if the profile does not have it */
    uint32_t frame;         /* where most of the bytes were allocated; 0: not known */
    uint64_t most;          /* how many bytes */
} mlr_leak;

/* Does not count what the C library, the C++ library and the loader keep for themselves, as the
   buffer of stdout. Counts what they hand to their caller, as strdup does. */
MLR_PRIVATE mlr_leak mlr_leak_of(const mlr_profile *profile);

#endif
