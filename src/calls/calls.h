/* Has the public calls that record, except those of calls/fast. Has what only these calls need:
   realloc tokens, n blocks in one call, moves, copies, deferred frees. Owns no state. May use the
   books, calls/record and calls/deferred. Invariant: a call checks everything before it changes
   anything. Locks: none is held at the return. */
#ifndef MLI_CALLS_CALLS_H
#define MLI_CALLS_CALLS_H
#include "api/api.h"

#endif
