/* Has the public functions that record allocs, frees, moves and copies, except those of calls/fast,
   and what only they need: realloc tokens, n blocks in one call, deferred frees. Owns no state.
   Invariant: a call checks everything before it changes anything. Locks: none is held at the
   return. */
#ifndef MLI_CALLS_CALLS_H
#define MLI_CALLS_CALLS_H
#include "api/api.h"

#endif
