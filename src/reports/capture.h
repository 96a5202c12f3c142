/* Owns mli_report, the capture that a report is written from. May use the reading functions of
   books/ and services/. Invariant: it changes nothing in the ledger. Locks: those of the reading
   functions; none while the host's function writes. */
#ifndef MLI_REPORTS_CAPTURE_H
#define MLI_REPORTS_CAPTURE_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "os/machine.h"
#include "base/ledger.h"
#include "base/text.h"
#include "books/anomalies.h"
#include "books/map.h"
#include "books/events.h"
#include "books/listing.h"
#include "books/blocks.h"
#include "services/joint.h"
#include "services/scopes.h"
#include "services/snapshots.h"
#include "reports/leaks.h"

/* A report captures devices, tags, accounts and the largest sites and blocks once, and is written
   from these. Whole lists (sites, scopes, events) are read while they are written, so each list
   gives its own sum. */

#define MLI_TOP_SITES 50
#define MLI_TOP_BLOCKS 100
#define MLI_TOP_TAGS 64
#define MLI_TOP_ACCOUNTS 20
#define MLI_TOP_STREAMS 20
#define MLI_STREAMS 256 /* slots for streams of devices; half of them are used */
#define MLI_SIZES 50 /* class 0: 0 bytes; class k: from 2^(k-1) bytes to twice that; last 2^48 */
#define MLI_TOP_STACKS 2048 /* bounds the size of a report with many stacks */
#define MLI_PARTS_SHOWN 1024
/* The lines of lists that more than one format writes. A value of UINT64_MAX, or INT64_MIN for a
   difference, is not known: TEXT has a -, JSON null, PROMETHEUS no sample. */
typedef struct mli_line { /* the first member of each of these lines */
    memlord_device device;
    const char *name; /* NULL: the device is enough */
} mli_line;
typedef struct mli_phys_line {
    mli_line of;
    mli_phys *phys;
    uint64_t total, used, free, age, limit, held;
    uint64_t process, self, rest, others; /* used bytes: those of this process; of these the
                                             ledger's, and the rest; those of other processes */
    uint64_t untagged;                    /* the part of self that has no tag */
    uint64_t context;                     /* the bytes that the driver holds for this process; a
                                             part of `rest` */
    uint64_t neighbours;                  /* the bytes that other ledgers of the pressure page
                                             hold; UINT64_MAX: there is no other ledger */
    int64_t unaccounted; /* used - self - context - neighbours, where `used` counts as at most
                            `total` */
    uint64_t fullness;                    /* used / total; 0: not known */
} mli_phys_line;
typedef struct mli_tag_line {
    mli_line of;
    memlord_tag_stat stat;
    uint64_t peak_error;
    uint32_t dev;
    mli_phys_line *phys; /* NULL: the report has no line of its physical device */
} mli_tag_line;
typedef struct mli_scope_line {
    mli_line of; /* of all devices */
    memlord_scope_stat stat;
    uint64_t live_bytes, live_blocks;
} mli_scope_line;
typedef struct mli_stack_line {
    uint64_t key; /* the live bytes; for a stack without any, the bytes allocated. Such stacks come
                     last */
    uint32_t node;
    memlord_stack_stat stat; /* without its frames */
} mli_stack_line;
typedef struct mli_stack_leak { /* the leaks of a stack: the blocks that its picked blocks stand
                                   for */
    uint64_t bytes, samples;
    double blocks;
    uint32_t row;
} mli_stack_leak;
typedef struct mli_anomaly_line { /* mistakes of one kind at one site */
    uint64_t weight;
    memlord_anomaly is;
} mli_anomaly_line;
typedef struct mli_stream_line { /* the live blocks of a stream on a device */
    uint64_t bytes, blocks, stream;
    uint32_t dev; /* 0: the slot is vacant */
} mli_stream_line;
typedef struct mli_report {
    memlord *lord;
    mli_out *o, out;
    char buf[2048];
    uint32_t devices;
    size_t sites, blocks, tags, tag_lines, tag_rows, phys_count, accounts, account_lines;
    uint64_t tag_bytes;  /* of all tag_rows */
    uint64_t site_total; /* how many rows and arenas there are; `site` has the largest */
    int by_peak;           /* 1: sites in the order of their peak; 0: of their live bytes */
    memlord_result result; /* an error other than a failed write: no memory for a part of it */
    int exports;           /* 1: the ledger exports, or has exported */
    int whole;             /* 1: captures the lists too: blocks, sites, leaks, lifetimes */
    uint64_t uptime;
    uint64_t top_device[MEMLORD_MAX_DEVICES][2]; /* peak and dev, the highest peak first */
    mli_tag_line *tag; /* by row; behind the rows, by dev, for blocks without a tag */
    mli_tag_line top_tag[MLI_TOP_TAGS]; /* the largest of the `tag_rows` lines; bytes without a tag
                                           have lines, too */
    memlord_stats total, stat[MEMLORD_MAX_DEVICES];
    mli_phys_line phys[MEMLORD_MAX_DEVICES + 1];
    memlord_account_stat account[MLI_TOP_ACCOUNTS];
    memlord_site_stat site[MLI_TOP_SITES];
    memlord_block_info block[MLI_TOP_BLOCKS];
    mli_largest top; /* the heap in `block` while the walk fills it */
    mli_stack_line *stack; /* MLI_TOP_STACKS; NULL: the ledger has no stacks, or no memory */
    size_t stacks, stack_rows;
    memlord_stack_stat stack_rest; /* the sums of the stacks that are not in the list */
    uint32_t row_count;
    mli_stack_leak *stack_leak; /* by row; then the largest, from the start */
    size_t stack_leaks, stack_leak_rows; /* in the list; all */
    uint64_t stack_leak_bytes;           /* of all */
    mli_stamp_scale scale;
    uint32_t scopes, site_rows, snapshots;
    mli_snapshot_reader reader; /* keeps what `snapshot` points to */
    const mli_snapshot *snapshot[MLI_SNAPSHOTS];
    mli_snapshot *present; /* the last snapshot, if this report took it; else NULL */
    mli_scope_line *scope; /* by id */
    mli_leak_table leaks;  /* live blocks that were born since `mark` and are not pending */
    mli_leak_sites leak_sites;
    mli_stream_line stream[MLI_STREAMS]; /* by a hash; later the largest, from the start */
    size_t streams, stream_lines;        /* told apart; in the list */
    mli_stream_line stream_rest;         /* the sum of what is not in the list */
    int streams_lost;                    /* 1: there are more streams, and the sum has them */
    mli_anomaly_line mistake[MLI_ANOMALIES]; /* the heaviest first: see mli_report_mistakes */
    size_t mistakes;
    uint64_t mistakes_more; /* mistakes at sites that are not in the list */
    uint64_t mark;
    int has_parts; /* 1: at least one block has parts */
    int lifetimes; /* 1: `lifetime` is known */
    uint64_t lifetime[MEMLORD_MAX_DEVICES][4];
    uint64_t top_scope[MLI_TOP_SITES][2]; /* live bytes and id, the most bytes first */
    uint32_t scope_lines;
    mli_cpu cpu;         /* scratch: reads the resident bytes */
    uint64_t resident;   /* bytes of the process in memory; 0: not known */
    mli_holders holders; /* scratch, for the device that is being written */
    mli_scope_run run[MLI_RUNS_KEPT];
    memlord_part_info part[16];
    char part_text[2048]; /* scratch: of a verdict */
    uint64_t sizes[MEMLORD_MAX_DEVICES][MLI_SIZES]; /* live blocks, by device and size class */
} mli_report;

MLI_PRIVATE int mli_report_device(const mli_report *r, uint32_t dev);

MLI_PRIVATE const memlord_site *mli_row_site(memlord *lord, uint32_t row);
/* Writes a shape as "[4096,128]"; nothing for rank 0. */
MLI_PRIVATE void mli_put_shape(mli_out *o, const memlord_meta *meta, const char *between);

/* Returns the next pair of devices with a move or a copy between them since the last reset. With
   `route` NULL returns the newest pair. NULL: there is no other. */
MLI_PRIVATE const mli_route *mli_route_next(const memlord *lord, const mli_route *route);

/* Returns the name of the checkpoint with the most live bytes; NULL: no snapshot has a name. */
MLI_PRIVATE const char *mli_report_peak_name(const mli_report *r);

/* Returns the latest sample of a physical device. */
MLI_PRIVATE memlord_capacity mli_phys_sample_of(mli_phys *phys);
/* Returns the line of a device's physical device; NULL: neither its capacity nor a limit is
   known. */
MLI_PRIVATE mli_phys_line *mli_report_phys(mli_report *r, uint32_t dev);
MLI_PRIVATE int64_t mli_average(int64_t total, uint64_t count);

MLI_PRIVATE uint64_t mli_report_arena(const mli_report *r, uint32_t dev);
/* Returns the part of a device's arena that no tag has. */
MLI_PRIVATE uint64_t mli_report_arena_untagged(const mli_report *r, uint32_t dev);

/* Captures a report. Requires: r is zeroed except for `whole`, the output and the pinned snapshots.
   A row that is added later is not in this report. */
MLI_PRIVATE void mli_report_capture(memlord *lord, mli_report *r);

#endif
