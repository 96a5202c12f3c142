/* Compares the parts of a ledger with each other, for memlord_verify. The map has an entry for each
   live block. The map consists of shards, and each shard is a hash table of buckets. A row has the
   counters of a device, site or tag; a book has all rows of one kind. A pending block was freed and
   waits for its fences. A detached block is off the map while its realloc is open, and still
   counts. Arena bytes are counted without blocks. A ticket holds reserved bytes. Owns no state. May
   use books/. Invariants: no thread changes the map meanwhile; the first check that fails ends the
   comparison, and its line is logged when no lock is held. Locks: cold, all shards and fences, from
   begin to end; phys, one at a time. */
#ifndef MLI_SERVICES_VERIFY_H
#define MLI_SERVICES_VERIFY_H
#include "api/api.h"

#endif
