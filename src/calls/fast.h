/* Has memlord_alloc, memlord_free and memlord_release. They serve most calls here, and send the
   others to the general path, which is calls/record. A dev is the number of a device. A row has the
   counters of a device, a site or a tag. A cell has one thread's part of a row; to publish a cell
   is to add this part to the row. The map has a part, the shard, for each range of addresses. An
   entry is a block in the map, and lies in its home bucket or in a bucket after it. A side record
   has the facts of a block for which its entry has no room. Owns no state. May use the books,
   calls/record and calls/deferred. Invariants: a call changes nothing before it is sure to succeed.
   A call enters the shard of its block, and counts the block before it leaves the shard. Only the
   count at the site that calls free may come later. Locks: no lock is held when a call returns. */
#ifndef MLI_CALLS_FAST_H
#define MLI_CALLS_FAST_H
#include "api/api.h"

#endif
