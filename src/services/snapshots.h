/* Owns the snapshots, the recorders, and the holders of each device. A recorder is a thread that
   saves something at an interval: one takes snapshots, one exports. The holders of a device are the
   tags and sites that had its bytes at its peak. A kept string is the ledger's copy of a string. A
   safe point is a moment at which host code may run, such as memlord_gc_poll. May use books/ and
   services/stats. Invariants: a snapshot does not change once it is in the list; the list is in
   order of time; a snapshot that is evicted (taken off a full list) while a report reads the list
   is freed after the last reader. Lock: snapshots, not held while blocks, tags or sites are
   visited. It is held while mli_stacks_hold notes the bytes of each stack at the peak, so that
   holders and stacks are of one moment. */
#ifndef MLI_SERVICES_SNAPSHOTS_H
#define MLI_SERVICES_SNAPSHOTS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/ledger.h"
#include "books/threads.h"

#define MLI_SNAPSHOTS 256 /* the most snapshots of a list; the ledger keeps one less, so that a
                             report can add its own */

enum { MLI_RECORDER_SNAPSHOTS, MLI_RECORDER_EXPORT, MLI_RECORDERS };

#define MLI_HOLDERS 16 /* the most tags, and the most sites, that are kept of a device */

typedef struct mli_holding { /* the live bytes of a tag or a site on a device */
    uint64_t bytes;
    uint32_t row; /* the number of the tag or site in the ledger; 0: the bytes that have no tag or
                     no site */
} mli_holding;
typedef struct mli_device_usage { /* the bytes of a device at one moment */
    uint64_t live, pending, reserved, peak, blocks; /* `blocks` counts blocks; the others are
                                                       bytes */
    uint32_t first[MLI_BOOKS]; /* by MLI_BOOK_TAG and MLI_BOOK_SITE: the index of the device's first
                                  holding among all holdings of the snapshot */
    uint32_t count[MLI_BOOKS]; /* by MLI_BOOK_TAG and MLI_BOOK_SITE: how many holdings the device
                                  has */
} mli_device_usage;

/* A snapshot. Three arrays follow it in memory: the usage of each device (mli_device_usage), by
   device number; the largest blocks (memlord_block_info); and the holdings of all devices. */
typedef struct mli_snapshot {
    struct mli_snapshot *next; /* link in the list of evicted snapshots that readers may still
                                  read */
    size_t size, top_blocks;   /* bytes of the allocation; number of blocks in the second array */
    uint64_t time;             /* when the snapshot was taken, in ns since the ledger was made */
    const char *name;          /* name of the checkpoint, a kept string; NULL: the snapshot is
                                  periodic */
    uint64_t live, blocks;     /* live bytes and blocks of all devices */
    uint32_t devices;
    uint32_t room;             /* how many blocks the second array has room for */
} mli_snapshot;

/* A reader of the list of snapshots. It is a part of a report. The snapshots lock guards the list
   of readers. */
typedef struct mli_snapshot_reader {
    struct mli_snapshot_reader *next;
    const void *thread; /* address of mli_self of the thread that reads */
} mli_snapshot_reader;

typedef struct mli_holders {
    uint64_t time, bytes; /* when the holders were noted, in ns since the ledger was made; the live
                             bytes then */
    uint64_t arena;       /* the part of `bytes` that the host counts without blocks
                             (memlord_arena_add) */
    size_t tags, sites;   /* how many elements of `tag` and `site` are filled */
    memlord_tag_stat tag[MLI_HOLDERS];
    memlord_site_stat site[MLI_HOLDERS];
} mli_holders;
#define MLI_SNAPSHOT_TOP 10 /* how many of the largest blocks a snapshot keeps */
#define MLI_RECORDER_MS_MIN 10 /* the shortest interval of a recorder, in ms */

/* Return the first two arrays behind a snapshot. */
MLI_PRIVATE mli_device_usage *mli_snapshot_devices(const mli_snapshot *s);
MLI_PRIVATE memlord_block_info *mli_snapshot_top(const mli_snapshot *s);
/* Returns the holdings of a device in a snapshot, the largest first, and sets *n to their number,
   which is at most MLI_HOLDERS. `book` is MLI_BOOK_TAG or MLI_BOOK_SITE. If the number is less than
   MLI_HOLDERS, these holdings together have all live bytes of the device. There are no holdings by
   tag if the ledger had no tag at that time, and none by site if it had no site. */
MLI_PRIVATE const mli_holding *mli_snapshot_holdings(const mli_snapshot *s, uint32_t dev, int book,
                                                     uint32_t *n);
/* Frees a list of snapshots that are linked by `next`. */
MLI_PRIVATE void mli_snapshot_list_free(memlord *lord, mli_snapshot *s);

/* Makes a snapshot of the usage of every device, with its largest tags and sites and, if `blocks`
   is 1, the largest blocks. `kept` is the name of a checkpoint, or NULL. Returns NULL if there is
   no memory. */
MLI_PRIVATE MLI_COLD mli_snapshot *mli_snapshot_new(memlord *lord, const char *kept, int blocks);

/* Copies the list of snapshots for a report and returns its length. The snapshots in it are not
   freed before mli_snapshots_unpin of the same reader. */
MLI_PRIVATE uint32_t mli_snapshots_pin(memlord *lord, mli_snapshot_reader *reader,
                                       const mli_snapshot *list[MLI_SNAPSHOTS]);
MLI_PRIVATE void mli_snapshots_unpin(memlord *lord, const mli_snapshot_reader *reader);

/* Removes all snapshots from the list. They do not count as lost. */
MLI_PRIVATE MLI_COLD void mli_snapshots_clear(memlord *lord);

/* Starts a recorder, or changes its interval. `which` is MLI_RECORDER_... here and below. If the
   system starts no thread, safe points do the saving. */
MLI_PRIVATE MLI_COLD void mli_recorder_start(memlord *lord, int which, const mli_saver *saver,
                                             uint32_t ms);
/* Stops a recorder and its thread. Saves a last time if the recorder was started. */
MLI_PRIVATE MLI_COLD void mli_recorder_stop(memlord *lord, int which);
/* Returns 1 if a recorder was started and not stopped since. */
MLI_PRIVATE MLI_COLD int mli_recorder_is_on(const memlord *lord, int which);
/* Takes a snapshot if one is due, and if calls of the host take the snapshots
   (MEMLORD_FLAG_NO_SNAPSHOT_THREAD). Requires: the thread holds no lock. */
MLI_PRIVATE MLI_COLD void mli_snapshots_look(memlord *lord);
/* At a safe point: for each recorder that was started but has no running thread, saves what is
   due. */
MLI_PRIVATE MLI_COLD void mli_recorders_poll(memlord *lord);
/* In a forked child: starts a thread that takes snapshots, if snapshots were started in the
   parent. */
MLI_PRIVATE MLI_COLD void mli_snapshots_go_on(memlord *lord);

/* Notes the holders of a device again if mli_holders_due returns 1 for its present live bytes. */
MLI_PRIVATE void mli_holders_check(memlord *lord, uint32_t dev);
/* Forgets the holders of a device and notes new ones, after the device's peak was reset to the live
   bytes. Requires: the thread is not inside a shard, a part of the map of blocks. */
MLI_PRIVATE MLI_COLD void mli_holders_restart(memlord *lord, uint32_t dev);
/* Copies the holders of a device and returns 1. Returns 0 if the device has none. Each site in the
   copy is replaced by the memlord_site that reports now display for it. */
MLI_PRIVATE int mli_holders_get(memlord *lord, uint32_t dev, mli_holders *out);

/* Returns why a description of a ledger (memlord_desc) is refused, or NULL if it is not. */
MLI_PRIVATE MLI_COLD const char *mli_snapshots_check(const memlord_desc *desc);
MLI_TABLE(const mli_life mli_snapshots_life)

#endif
