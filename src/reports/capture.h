/* Owns mli_report, the capture that a report is written from. A line is an item of a list in a
   report. Invariant: a capture changes nothing in the ledger. Locks: those of the reading
   functions; none during a call of the host's memlord_write_fn. */
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
#include "reports/growth.h"
#include "reports/leaks.h"

/* A report captures devices, tags, accounts and the largest sites and blocks once. It reads the
   whole lists of sites, scopes and events only while it writes them, so their sum may differ from
   the capture. */

/* The maximum number of lines of each list in a report. */
#define MLI_TOP_SITES 50
#define MLI_TOP_BLOCKS 100
#define MLI_TOP_TAGS 64
#define MLI_TOP_ACCOUNTS 20
#define MLI_TOP_STREAMS 20
#define MLI_TOP_STACKS 2048
#define MLI_PARTS_SHOWN 1024 /* the most parts of one block that a report lists */

#define MLI_STREAMS 256 /* slots of the hash table of streams; at most half of them are used */
#define MLI_SIZES 50    /* size classes: 0 has blocks of 0 bytes, k those of 2^(k-1) to 2^k - 1, and
                           the last those of 2^48 bytes, the most that a block can have */

/* UINT64_MAX stands for a value that is not known, and INT64_MIN for such a difference: TEXT writes
   a hyphen, JSON writes null, and PROMETHEUS writes no sample. */
typedef struct mli_line { /* the first member of every struct that is a line */
    memlord_device device;
    uint32_t dev;     /* in the line of a tag: the ledger's number of the tag's device */
    const char *name; /* what the line is about; NULL: the whole device */
} mli_line;
typedef struct mli_phys_line { /* the memory of a physical device, in bytes */
    mli_line of;
    mli_phys *phys;
    uint64_t total, used, free; /* from the last sample, with the ledger's change since */
    uint64_t age;               /* the age of the capacity's last sample, in ns */
    uint64_t limit, held;       /* the limit; the bytes that are reserved for later allocs */
    uint64_t process, others;   /* the used bytes of this process, and of other processes */
    uint64_t self, rest;        /* self: what the ledger knows; rest: the others here */
    uint64_t untagged;          /* the part of `self` that has no tag */
    uint64_t context;           /* the part of `rest` that the driver holds for this process */
    uint64_t neighbours;        /* what other ledgers on the pressure page hold; UINT64_MAX: none */
    int64_t unaccounted;        /* used (at most total) - self - context - neighbours */
    uint64_t fullness;          /* the sort key: used / total in 10^-8, plus 1; 0: not known */
} mli_phys_line;
typedef struct mli_tag_line { /* a tag on a device */
    mli_line of;
    memlord_tag_stat stat;
    uint64_t peak_error; /* by how many bytes the peak may be too low */
    mli_phys_line *phys; /* the line of the tag's physical device, or NULL if the report has none */
} mli_tag_line;
typedef struct mli_scope_line { /* a scope on all devices */
    mli_line of;
    memlord_scope_stat stat;
    uint64_t live_bytes, live_blocks; /* without the blocks of inner scopes */
} mli_scope_line;
typedef struct mli_stack_line {
    uint64_t key; /* the sort key: those with live bytes come first, by these, then the others, by
                     their allocated bytes; with `by_peak` those at the peak replace live ones */
    uint64_t held; /* the bytes that the stack held at the peak of its device */
    uint32_t node; /* the number of the innermost frame's node in the tree of stacks */
    memlord_stack_stat stat; /* the numbers of the stack; its frames are not filled in */
} mli_stack_line;
typedef struct mli_stack_leak { /* the leaked blocks of a stack */
    uint64_t bytes;   /* exact, or an estimate if stacks are samples */
    uint64_t samples; /* how many of the leaked blocks were picked as samples */
    double blocks;    /* how many leaked blocks the samples stand for */
    uint32_t row;     /* the number of the stack */
} mli_stack_leak;
typedef struct mli_anomaly_line { /* the mistakes of one kind that the host made at one site */
    uint64_t weight; /* the sort key, which mli_report_mistakes computes */
    memlord_anomaly is;
} mli_anomaly_line;
typedef struct mli_stream_line { /* the live blocks of a stream, which is a queue of a device */
    uint64_t bytes, blocks, stream;
    uint32_t dev; /* the device; 0 if the slot is vacant */
} mli_stream_line;
typedef struct mli_callers mli_callers; /* see reports/callers.h */
typedef struct mli_report {
    memlord *lord;
    mli_out *o, out;  /* where the report goes; `o` points to `out` */
    char buf[2048];   /* the buffer of `out` */
    uint32_t devices; /* how many there were at the capture, as for the numbers below */
    size_t tags;      /* the number of tags, each counted once for each device */
    size_t tag_rows;  /* `tags`, plus the number of devices with bytes that have no tag */
    size_t tag_lines, sites, blocks, phys_count, account_lines; /* the lengths of the lists below */
    size_t accounts;       /* the number of open accounts */
    uint64_t tag_bytes;    /* the sum of the live bytes of all `tag_rows` lines */
    uint64_t site_total;   /* the sites, by device, and arenas; `site` has the largest */
    int by_peak;           /* 1: less than a quarter of the peak is live, as at the end of a
                              program: sites and stacks are ordered by their bytes at a peak */
    memlord_result result; /* the first error other than a failed write */
    int exports;           /* 1: the ledger saves exports, or did so before */
    int whole;             /* 1: the capture has the lists of blocks, sites, leaks and lifetimes */
    uint64_t uptime;       /* the age of the ledger (mli_ledger_age) at the capture, in ns */
    int ended;             /* 1: the program has ended, so what is live is never freed */
    mli_identity who;      /* the process that the report is about */
    size_t device_size;    /* at `stat`, with `phys`, `sizes`, `lifetime` and `top_device` */
    uint64_t (*top_device)[2]; /* each device's peak and dev, the highest peak first */
    mli_tag_line *tag; /* the tags, by row; behind them, by device, the bytes without a tag */
    mli_tag_line top_tag[MLI_TOP_TAGS]; /* the largest of the `tag_rows` lines */
    memlord_stats total, *stat; /* the sums over all devices; the statistics of each, by dev - 1 */
    mli_phys_line *phys;        /* one element more than there are devices */
    memlord_account_stat account[MLI_TOP_ACCOUNTS];
    memlord_site_stat site[MLI_TOP_SITES];
    memlord_block_info block[MLI_TOP_BLOCKS];
    mli_largest top; /* a binary heap of the largest blocks, in `block`, for the walk over all */
    mli_stack_line *stack; /* the largest stacks; NULL: there are none, or no memory */
    size_t stacks, stack_rows;     /* the number of stacks in the list; the number of all stacks */
    size_t stack_room;             /* the number of stacks that the list has room for */
    memlord_stack_stat stack_rest; /* the sums of the stacks that are not in the list */
    uint64_t stack_rest_held;      /* what the others held at the peaks of their devices */
    uint32_t row_count;            /* above the rows of all stacks; the size of `stack_leak` */
    mli_stack_leak *stack_leak;    /* the leaks of each stack, by row; later sorted */
    mli_callers *callers; /* of the site that is being written; NULL: no stacks by site */
    uint32_t *site_stack; /* for each site a linked list of its stacks; NULL: there are none. [row
                             of a site] is the row of its first stack, [site_rows + 1 + row of a
                             stack] that of the next one; 0 ends a list */
    size_t stack_leaks, stack_leak_rows; /* how many are in `stack_leak`; how many there are */
    uint64_t stack_leak_bytes;           /* the leaked bytes of all stacks */
    mli_stamp_scale scale;               /* turns the stamps of events into ns */
    uint32_t scopes, site_rows, snapshots;
    mli_snapshot_reader reader; /* keeps the snapshots in `snapshot` from being freed */
    const mli_snapshot *snapshot[MLI_SNAPSHOTS];
    mli_series_list series; /* their bytes of devices, tags and sites, and which of them grow */
    mli_snapshot *present; /* the last snapshot, if this report took it, or NULL */
    mli_scope_line *scope; /* the scopes, by the scope's id */
    mli_leak_table leaks;  /* groups of leaked blocks, allocated since `mark` and not pending */
    mli_leak_sites leak_sites;           /* the sums of the leaked blocks, by site */
    mli_stream_line stream[MLI_STREAMS]; /* a hash table of streams; later sorted */
    size_t streams, stream_lines;        /* how many are in the table; in the sorted list */
    mli_stream_line stream_rest;         /* the sum of the streams that are not in the list */
    int streams_lost;                    /* 1: stream_rest has some that found no slot */
    mli_anomaly_line mistake[MLI_ANOMALIES]; /* in the order that mli_report_mistakes explains */
    size_t mistakes;
    uint64_t mistakes_more; /* how many mistakes are not in the list */
    uint64_t mark; /* the number of the last mark (see memlord_mark); 0 if none was set */
    int has_parts; /* 1: at least one block has parts */
    int lifetimes; /* 1: `lifetime` is filled in */
    uint64_t (*lifetime)[4]; /* by dev - 1: how many blocks lived less than 0.1 s, to 1 s, to 10 s,
                                and longer, if the ring has both alloc and free */
    uint64_t top_scope[MLI_TOP_SITES][2]; /* live bytes and id of the largest scopes */
    uint32_t scope_lines;                 /* the length of `top_scope` */
    mli_cpu cpu;         /* the memory into which mli_cpu_resident reads files */
    uint64_t resident;   /* the bytes of the process in memory; 0 if they are not known */
    mli_holders holders; /* what held most at the peak of the device that is being written */
    mli_scope_run run[MLI_RUNS_KEPT]; /* the invocations of the scope that is being written */
    memlord_part_info part[16];       /* some parts of the block that is being written */
    char part_text[2048];             /* the text of a verdict on a device */
    uint64_t (*sizes)[MLI_SIZES]; /* the number of live blocks, by dev - 1 and size class */
} mli_report;

/* Returns the device with a dev as an int (mli_device_code), for %i in a format string. */
MLI_PRIVATE int mli_report_device(const mli_report *r, uint32_t dev);
/* Returns the site with the number `row`, with the function and the file as reports show them. */
MLI_PRIVATE const memlord_site *mli_row_site(memlord *lord, uint32_t row);
/* Returns the tag whose bytes a series has; NULL: those without a tag, of a site or of a device. */
MLI_PRIVATE MLI_COLD const char *mli_series_tag(memlord *lord, const mli_series *s);
/* Returns the site whose bytes a series has, or NULL if it is not that of a site. */
MLI_PRIVATE MLI_COLD const memlord_site *mli_series_site(memlord *lord, const mli_series *s);
/* Writes a shape such as "[4096,128]", with `between` for the comma; nothing for rank 0. */
MLI_PRIVATE void mli_put_shape(mli_out *o, const memlord_meta *meta, const char *between);

/* Walks the pairs of devices between which a block was moved or copied since the last reset:
   returns the one after `route`, the newest if that is NULL, or NULL at the end. */
MLI_PRIVATE const mli_route *mli_route_next(const memlord *lord, const mli_route *route);
typedef struct mli_route_line { /* what was moved and copied from one device to another */
    uint64_t moves, moved_bytes;
    uint64_t copies, copied_bytes;
} mli_route_line;
/* Returns how much was moved and copied between a pair of devices. */
MLI_PRIVATE mli_route_line mli_route_line_of(const mli_route *route);

/* Returns the name of the checkpoint that has the most live bytes, or NULL if there is none. */
MLI_PRIVATE const char *mli_report_peak_name(const mli_report *r);

/* Returns the latest sample of a physical device's capacity. */
MLI_PRIVATE memlord_capacity mli_phys_sample_of(mli_phys *phys);
/* Returns the line of a device's phys, or NULL if neither its capacity nor a limit is known. */
MLI_PRIVATE mli_phys_line *mli_report_phys(mli_report *r, uint32_t dev);
/* Returns total / count, or 0 if the count is 0. */
MLI_PRIVATE int64_t mli_average(int64_t total, uint64_t count);

MLI_PRIVATE uint64_t mli_report_arena(const mli_report *r, uint32_t dev);
/* Returns the bytes of a device's arena that have no tag. */
MLI_PRIVATE uint64_t mli_report_arena_untagged(const mli_report *r, uint32_t dev);

/* Captures a report: no device, tag, site or scope that is new afterwards is in it. Requires: r is
   zeroed except for `whole`, `exports`, the output, and the snapshots with their reader. */
MLI_PRIVATE void mli_report_capture(memlord *lord, mli_report *r);
MLI_PRIVATE MLI_COLD void mli_report_free(mli_report *r);

#endif
