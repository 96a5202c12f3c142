/* Has the public calls that record, except those of calls/fast, and what only they need: realloc
   tokens, n blocks in one call, moves, copies, deferred frees. Owns no state. May use the
   books, calls/record and calls/deferred. Invariant: a call checks everything before it changes
   anything. Locks: none held at the return. */
#ifndef MLI_CALLS_CALLS_H
#define MLI_CALLS_CALLS_H
#include "api/api.h"

#endif
