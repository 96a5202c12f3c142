/* Owns the snapshots, the recorders, and the holders of each device. May use books/ and
   services/stats. Invariants: a snapshot does not change once it is in the list; the list is in
   order of time; a snapshot that is evicted while a report reads the list is freed after the last
   reader. Lock: snapshots, not held while blocks, tags or sites are visited. While it is held, the
   stacks note what they hold, so that the holders and the stacks are of one moment. */
#ifndef MLI_SERVICES_SNAPSHOTS_H
#define MLI_SERVICES_SNAPSHOTS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/ledger.h"
#include "books/threads.h"

#define MLI_SNAPSHOTS 256 /* the ledger keeps one less, so that a report can add its own */

enum { MLI_RECORDER_SNAPSHOTS, MLI_RECORDER_EXPORT, MLI_RECORDERS };

/* A recorder saves something at an interval: one takes snapshots, one exports. The holders of a
   device are the tags and sites that had its bytes at its peak. Each stack keeps what it held then
   itself: see mli_stacks_hold. */

typedef struct mli_device_usage { /* the bytes of a device at one moment */
    uint64_t live, pending, reserved, peak, blocks; /* bytes; blocks: their number */
} mli_device_usage;

/* A snapshot, followed in memory by an array of `devices` mli_device_usage, by device number, and
   one of `top_blocks` memlord_block_info. */
typedef struct mli_snapshot {
    struct mli_snapshot *next; /* in the list of evicted snapshots that readers may still read */
    size_t size, top_blocks;   /* the bytes of the allocation; the number of blocks in the second
                                  array */
    uint64_t time;             /* ns since create */
    const char *name;          /* kept; NULL: periodic */
    uint64_t live, blocks;     /* over all devices */
    uint32_t devices;
} mli_snapshot;

/* A reader of the list, which is a part of a report. The snapshots lock guards the list of readers.
   If the report is left by longjmp, the reader stays in it as long as the ledger lives. */
typedef struct mli_snapshot_reader {
    struct mli_snapshot_reader *next;
    const void *thread; /* the address of its mli_self */
} mli_snapshot_reader;

#define MLI_HOLDERS 16 /* how many tags, and how many sites, are kept of a device */
typedef struct mli_holders {
    uint64_t time, bytes; /* when they were taken, ns since create; the bytes live then */
    uint64_t arena;       /* the bytes of them that were the arena's */
    size_t tags, sites;   /* how many elements of `tag` and `site` are filled */
    memlord_tag_stat tag[MLI_HOLDERS];
    memlord_site_stat site[MLI_HOLDERS];
} mli_holders;
#define MLI_RECORDER_MS_MIN 10 /* ms: the shortest interval of a recorder */

/* Return the two arrays behind a snapshot. */
MLI_PRIVATE mli_device_usage *mli_snapshot_devices(const mli_snapshot *s);
MLI_PRIVATE memlord_block_info *mli_snapshot_top(const mli_snapshot *s);
/* Frees a list of snapshots that are linked by `next`. */
MLI_PRIVATE void mli_snapshot_list_free(memlord *lord, mli_snapshot *s);

/* Makes a snapshot of the usage of every device, with the largest blocks; NULL without memory. */
MLI_PRIVATE MLI_COLD mli_snapshot *mli_snapshot_new(memlord *lord, const char *kept);

/* Returns the live bytes of a device in a snapshot; dev 0: of all devices. */
MLI_PRIVATE uint64_t mli_snapshot_level(const mli_snapshot *s, uint32_t dev);

/* Copies the list for a report and returns its length. The snapshots in it are not freed before
   mli_snapshots_unpin of the same reader. */
MLI_PRIVATE uint32_t mli_snapshots_pin(memlord *lord, mli_snapshot_reader *reader,
                                       const mli_snapshot *list[MLI_SNAPSHOTS]);
MLI_PRIVATE void mli_snapshots_unpin(memlord *lord, const mli_snapshot_reader *reader);

/* In the functions below `which` is MLI_RECORDER_... */
/* Starts a recorder, or changes its interval. If the system gives no thread, safe points save. */
MLI_PRIVATE MLI_COLD void mli_recorder_start(memlord *lord, int which, const mli_saver *saver,
                                             uint32_t ms);
/* Stops a recorder and its thread. Saves a last time if the recorder was started. */
MLI_PRIVATE MLI_COLD void mli_recorder_stop(memlord *lord, int which);
/* Returns 1 if a recorder was started and not stopped since. */
MLI_PRIVATE MLI_COLD int mli_recorder_is_on(const memlord *lord, int which);
/* Saves at a safe point what is due of recorders that were started and whose threads do not run. */
MLI_PRIVATE MLI_COLD void mli_recorders_poll(memlord *lord);
/* Starts in a forked child the thread of the snapshots' recorder, if that was started. */
MLI_PRIVATE MLI_COLD void mli_snapshots_go_on(memlord *lord);

/* Takes the holders of a device if mli_holders_due says so. */
MLI_PRIVATE void mli_holders_check(memlord *lord, uint32_t dev);
/* Forgets the holders of a device and takes new ones: its peak is now its live bytes. Requires:
   not inside. */
MLI_PRIVATE MLI_COLD void mli_holders_restart(memlord *lord, uint32_t dev);
/* Copies the holders of a device, with the places of the sites as they are shown by now, and
   returns 1; 0: the device has none. */
MLI_PRIVATE int mli_holders_get(memlord *lord, uint32_t dev, mli_holders *out);

/* Returns the live bytes of a device when its holders were taken; 0: it has none. */
MLI_PRIVATE uint64_t mli_holders_bytes(memlord *lord, uint32_t dev);

MLI_PRIVATE MLI_COLD void mli_snapshots_life(mli_life *life);

#endif
