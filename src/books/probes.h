/* Probes the map for a key whose home bucket does not decide whether the map has it. The window of
   a key is the home and up to 15 buckets after it. The overflow counts of a bucket say how many
   entries have passed it because it was full. Owns no state. Invariant: a thread waits only for the
   lock of a home, so waiting threads form no cycle. Locks: those of buckets, in a shared shard. */
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
    mli_entry *room;     /* the first vacant slot for the key; NULL: none, or not wanted */
    unsigned bucket;     /* the number of the bucket of `entry` or else `room`; the home is 0 */
    uint64_t header;     /* the new header of that bucket, without `entry` or with `room` */
    unsigned held;       /* how many buckets were probed; locked in a shared shard */
    int shared;          /* 1: the shard is shared */
    int inside;          /* 1: the thread is inside the shard */
} mli_probe;

/* Starts a probe at the home of a key, which the caller then locks in a shared shard. */
MLI_PRIVATE void mli_probe_begin(mli_probe *probe, mli_shard *s, uint64_t key, int shared);
/* Starts a probe in the shard that the thread is inside, after mli_home_enter. */
MLI_PRIVATE void mli_home_probe(const mli_thread *t, uint64_t key, mli_probe *probe);
/* Probes the window of a key of a device type, from the home on, until it finds the key or a bucket
   behind which the key cannot be; with `want_room` until it has found a vacant slot, too. A slot
   behind a bucket whose overflow count is at its maximum cannot be used. Returns 0, or -1 if
   another thread holds the lock of a later bucket, and the caller must leave the shard: a thread
   waits only for the lock of a home, so that no cycle forms. */
MLI_PRIVATE MLI_NOINLINE int mli_probe_scan(const memlord *lord, mli_probe *probe, uint32_t type,
                                            int want_room);
/* Inserts the key of a probe in the slot probe->room, and unlocks the probe's buckets. */
MLI_PRIVATE void mli_probe_insert(mli_probe *probe, uint64_t word1, uint64_t word2);
/* Erases the entry of a probe, and unlocks the probe's buckets. From then on another thread may
   overwrite the words of the entry. Requires: probe->entry is not NULL. */
MLI_PRIVATE void mli_probe_erase(mli_probe *probe);

MLI_PRIVATE void mli_probe_unlock(mli_probe *probe);
/* Ends a probe: unlocks its buckets and leaves the shard. May be called again. */
MLI_PRIVATE MLI_NOINLINE void mli_probe_leave(mli_thread *t, mli_probe *probe);

/* Finds a key. Until mli_probe_leave no other thread changes its slot. probe->entry is NULL if the
   map does not have the key; with `want_room` the table then has a slot for mli_probe_insert, and
   grows if necessary. If another thread owns the shard, makes it shared. Returns 0; the thread is
   then inside the shard, unless that has no table. Returns -1, outside the shard, if there is no
   memory. Requires: the caller is not inside a shard. */
MLI_PRIVATE MLI_NOINLINE int mli_probe_find(memlord *lord, mli_thread *t, uint32_t type,
                                            uint64_t key, int want_room, mli_probe *probe);

#endif
