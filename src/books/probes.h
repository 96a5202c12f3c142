/* Probes the map for a key. If the key's home bucket does not decide whether the map has the key,
   looks into the buckets after the home. Owns no state. The map has parts, the shards, and a shard
   has a table of buckets. A bucket has slots for entries, and a header that tells which slots are
   in use. The home of a key is the bucket where its search begins. The window of a key has the
   buckets that may have it: the home and up to 15 after it. The overflow counts of a bucket say how
   many entries have passed it because it was full. May use books/map. Invariant: a thread waits
   only for the lock of a home, so waiting threads form no cycle. Locks: those of buckets, in a
   shared shard. */
#ifndef MLI_BOOKS_PROBES_H
#define MLI_BOOKS_PROBES_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "books/threads.h"
#include "books/map.h"

/* A thread probes while it is inside the shard, or while it holds the shard's lock and has stopped
   the shard, so that no thread is inside. Probing changes no entry. The probe notes the slot and
   the header to store, and mli_probe_insert or mli_probe_erase stores that header. In a shared
   shard the thread locks each bucket that it probes. */

typedef struct mli_probe {
    mli_shard *shard;
    uint64_t key, hash;
    mli_bucket *home;
    mli_entry *entry;    /* the entry of the key; NULL if the map does not have the key */
    mli_entry *room;     /* the first vacant slot for the key; NULL if there is none, or if the
                            caller did not want one */
    unsigned bucket;     /* the number of the bucket of `entry` or, if that is NULL, of `room`; the
                            home is bucket 0 */
    uint64_t header;     /* the new header of that bucket: without `entry`, or with the new entry in
                            `room` */
    unsigned held;       /* how many buckets were probed, from the home on; in a shared shard the
                            thread has locked them */
    int shared;          /* 1: the shard is shared */
    int inside;          /* 1: the thread is inside the shard */
} mli_probe;

/* Starts a probe at the home of a key. In a shared shard the caller must lock the home before
   it calls mli_probe_scan. */
MLI_PRIVATE void mli_probe_begin(mli_probe *probe, mli_shard *s, uint64_t key, int shared);
/* Starts a probe in the shard that the thread is inside, after mli_home_enter, which has locked the
   home if the shard is shared. */
MLI_PRIVATE void mli_home_probe(const mli_thread *t, uint64_t key, mli_probe *probe);
/* Probes the window of a key of a device type, bucket by bucket, from the home on. Stops where it
   finds the key. Otherwise stops where no later bucket can have the key; with `want_room` it goes
   on until it has found a vacant slot. A slot behind a bucket whose overflow count is at its
   maximum cannot be used. Returns 0, or -1 if another thread holds the lock of a later bucket.
   After a -1 the caller must leave the shard. A thread waits only for the lock of a home, so
   waiting threads form no cycle. */
MLI_PRIVATE MLI_NOINLINE int mli_probe_scan(const memlord *lord, mli_probe *probe, uint32_t type,
                                            int want_room);
/* Inserts the key of a probe in the slot probe->room, and unlocks the probe's buckets. */
MLI_PRIVATE void mli_probe_insert(mli_probe *probe, uint64_t word1, uint64_t word2);
/* Erases the entry of a probe, and unlocks the probe's buckets. From then on another thread may
   overwrite the words of the entry. Requires: probe->entry is not NULL. */
MLI_PRIVATE void mli_probe_erase(mli_probe *probe);

/* Drops the bucket locks of a probe. */
MLI_PRIVATE void mli_probe_unlock(mli_probe *probe);
/* Ends a probe: unlocks its buckets and leaves the shard. May be called again. */
MLI_PRIVATE MLI_NOINLINE void mli_probe_leave(mli_thread *t, mli_probe *probe);

/* Finds a key. Until mli_probe_leave no other thread changes the slot of the key. probe->entry is
   NULL if the map does not have the key; with `want_room` mli_probe_insert can then insert the key.
   If another thread owns the shard, makes the shard shared. If `want_room` is set and the table has
   no slot for the key, grows the table. Returns 0; the thread is then inside the shard, unless the
   shard has no table. Returns -1, outside the shard, if there is no memory. Requires: the caller is
   not inside a shard. */
MLI_PRIVATE MLI_NOINLINE int mli_probe_find(memlord *lord, mli_thread *t, uint32_t type,
                                            uint64_t key, int want_room, mli_probe *probe);

#endif
