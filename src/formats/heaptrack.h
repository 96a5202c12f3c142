/* Writes HEAPTRACK, its text format version 2 (https://github.com/KDE/heaptrack, as heaptrack_print
   1.4 reads it). Owns no state. Locks: none. */
#ifndef MLR_FORMATS_HEAPTRACK_H
#define MLR_FORMATS_HEAPTRACK_H
#include "profile/read.h"
#include "profile/text.h"

/* The format wants every allocation in order. The books have sums, so the writer makes a sequence
   from them, whose calls, bytes at the peak and leaks, which are the live blocks, are those of the
   books. First come the freed allocations of each stack or site, each freed at once. All of them
   have their average size, except that the last one has what remains. Then comes the peak: the live
   blocks that were there, and for what else a stack held the last of its freed allocations. Then
   come the other live blocks. If the devices have their peaks at different moments, the bytes at
   the peak of all are between what each device had at its own and what it has now. Times are not
   known, and no call is temporary. If there are more than 1,048,576 freed allocations, the number
   of each stack is divided by the same factor, to 1 at least, and a comment says so.

   Bytes that no call allocated are written as frees of a negative number of bytes. These are the
   bytes of arenas, of blocks that were live at the last reset or that a realloc made, and bytes at
   the peak of a stack without a freed allocation that fits. The module of a site is its device;
   that of a return address is its real module. Without stacks the scopes that a live block was
   allocated in are its callers. Parts are left out, because each would be another allocation.
   Anomalies and drops are comments. */
MLR_PRIVATE mlr_result mlr_heaptrack(const mlr_profile *p, mlr_out *o);

#endif
