/* Owns the snapshots, the recorders, and the holders of each device at its peak. Invariants: a
   snapshot does not change once it is in the list, which is in order of time; one that is evicted
   while a report reads is freed after the last reader. Lock: snapshots, not held while blocks, tags
   or sites are visited, but held while mli_stacks_hold notes the peak, so that holders and stacks
   are of one moment. */
#ifndef MLI_SERVICES_SNAPSHOTS_H
#define MLI_SERVICES_SNAPSHOTS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/ledger.h"
#include "books/threads.h"

#define MLI_SNAPSHOTS 256 /* the ledger keeps one less, so that a report can add its own */

enum { MLI_RECORDER_SNAPSHOTS, MLI_RECORDER_EXPORT, MLI_RECORDERS };

#define MLI_HOLDERS 16 /* the most tags, and the most sites, that are kept of a device */

typedef struct mli_holding { /* the live bytes of a tag or a site on a device */
    uint64_t bytes;
    uint32_t row; /* the number of the tag or site; 0: the bytes that have none */
} mli_holding;
typedef struct mli_device_usage { /* the bytes of a device at one moment */
    uint64_t live, pending, reserved, peak, blocks; /* in bytes, but for `blocks` */
    uint32_t first[MLI_BOOKS]; /* by MLI_BOOK_...: the index of its first holding in the snapshot */
    uint32_t count[MLI_BOOKS]; /* by MLI_BOOK_...: how many holdings the device has */
} mli_device_usage;

/* A snapshot. Three arrays follow it in memory: the usage of each device, by dev; the largest
   blocks (memlord_block_info); and the holdings of all devices. */
typedef struct mli_snapshot {
    struct mli_snapshot *next; /* in the list of evicted ones that readers may still read */
    size_t size, top_blocks;   /* bytes of the allocation; number of blocks in the second array */
    uint64_t time;             /* when the snapshot was taken, in ns since the ledger was made */
    const char *name;          /* of a checkpoint, a kept string; NULL: the snapshot is periodic */
    uint64_t live, blocks;     /* live bytes and blocks of all devices */
    uint32_t devices;
    uint32_t room;             /* how many blocks the second array has room for */
} mli_snapshot;

/* A reader of the list of snapshots, a part of a report; the snapshots lock guards their list. */
typedef struct mli_snapshot_reader {
    struct mli_snapshot_reader *next;
    const void *thread; /* address of mli_self of the thread that reads */
} mli_snapshot_reader;

typedef struct mli_holders {
    uint64_t time, bytes; /* when they were noted, by the ledger's age; the live bytes then */
    uint64_t arena;       /* the part of `bytes` in arenas */
    size_t tags, sites;   /* how many elements of `tag` and `site` are filled */
    memlord_tag_stat tag[MLI_HOLDERS];
    memlord_site_stat site[MLI_HOLDERS];
} mli_holders;
#define MLI_SNAPSHOT_TOP 10 /* how many of the largest blocks a snapshot keeps */
#define MLI_RECORDER_MS_MIN 10 /* the shortest interval of a recorder, in ms */

/* Return the first two arrays behind a snapshot. */
MLI_PRIVATE mli_device_usage *mli_snapshot_devices(const mli_snapshot *s);
MLI_PRIVATE memlord_block_info *mli_snapshot_top(const mli_snapshot *s);
/* Returns the holdings of a device in a snapshot by MLI_BOOK_TAG or MLI_BOOK_SITE, the largest
   first, and sets *n to their number. If that is less than MLI_HOLDERS, they have all live bytes of
   the device. There are none if the ledger had no tag, or no site, at that time. */
MLI_PRIVATE const mli_holding *mli_snapshot_holdings(const mli_snapshot *s, uint32_t dev, int book,
                                                     uint32_t *n);
MLI_PRIVATE void mli_snapshot_list_free(memlord *lord, mli_snapshot *s);

/* Makes a snapshot of the usage of every device, with its largest tags and sites and, if `blocks`
   is 1, blocks. `kept` is the name of a checkpoint, or NULL. Returns NULL if there is no memory. */
MLI_PRIVATE MLI_COLD mli_snapshot *mli_snapshot_new(memlord *lord, const char *kept, int blocks);

/* Copies the list of snapshots for a report and returns its length. Those in it are not freed
   before mli_snapshots_unpin of the same reader. */
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
/* Takes a snapshot if one is due and calls of the host take them (MEMLORD_FLAG_NO_SNAPSHOT_THREAD).
   Requires: the thread holds no lock. */
MLI_PRIVATE MLI_COLD void mli_snapshots_look(memlord *lord);
/* At a safe point: saves what is due for each started recorder that has no running thread. */
MLI_PRIVATE MLI_COLD void mli_recorders_poll(memlord *lord);
/* In a forked child: starts the thread that takes snapshots, if the parent had started it. */
MLI_PRIVATE MLI_COLD void mli_snapshots_go_on(memlord *lord);

/* Notes the holders of a device again if mli_holders_due returns 1 for its present live bytes. */
MLI_PRIVATE void mli_holders_check(memlord *lord, uint32_t dev);
/* Notes a device's holders anew after its peak was reset. Requires: not inside a shard. */
MLI_PRIVATE MLI_COLD void mli_holders_restart(memlord *lord, uint32_t dev);
/* Copies the holders of a device, each site as reports display it now. Returns 0 if it has none. */
MLI_PRIVATE int mli_holders_get(memlord *lord, uint32_t dev, mli_holders *out);

/* Returns why a description of a ledger (memlord_desc) is refused, or NULL if it is not. */
MLI_PRIVATE MLI_COLD const char *mli_snapshots_check(const memlord_desc *desc);
MLI_TABLE(const mli_life mli_snapshots_life)

#endif
