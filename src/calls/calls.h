/* Has the public functions that record allocs, frees, moves and copies, except those of calls/fast.
   Has what only these functions need: realloc tokens, n blocks in one call, deferred frees. A block
   is an entry of the map. A call finds it by its device type and its storage, which is the key.
   From the beginning of a realloc or a free to its end, a token holds the entry of the block, and
   the block is off the map. A fence is a function of the host that tells when a device has finished
   with a block. A freed block with fences is pending: it ends when its fences are done. Owns no
   state. May use the books, calls/record and calls/deferred. Invariant: a call checks everything
   before it changes anything. Locks: none is held at the return. */
#ifndef MLI_CALLS_CALLS_H
#define MLI_CALLS_CALLS_H
#include "api/api.h"

#endif
