/* Owns the formats of other tools: one writer a format, each from a captured report. Uses reports/
   and the reading functions. Invariants: a writer keeps no table beyond that of the shares of
   stacks and the ids of its format, which are numbered as the rows of the ledger; a row added while
   it writes has no number, and blocks of such a row are written without that site, tag or scope.
   Locks: those of reading; none while the host's function writes. */
#ifndef MLI_REPORTS_EXPORT_H
#define MLI_REPORTS_EXPORT_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "os/unwind.h"
#include "base/text.h"
#include "books/map.h"
#include "books/counters.h"
#include "books/sites.h"
#include "reports/capture.h"

#if !defined(MEMLORD_NO_REPORTS)

/* A block at the moment that its shard was read, or as of an event of the ring. The balance of an
   arena is a block too, at an address that no other has. */
typedef struct mli_live_block {
    uint64_t storage, bytes;
    uint64_t stream;          /* MEMORY_VIZ; 0: none */
    uint32_t frame;           /* the innermost frame of its stack: its site */
    uint32_t tag, scope;      /* 0: none, or one without a number */
    uint32_t node;            /* of its stack, in place of the frame; 0: none */
    uint32_t blocks;          /* that it is: of samples, all those of a stack are one */
    unsigned char dev, state; /* MLI_BLOCK_... */
} mli_live_block;
enum {
    MLI_BLOCK_PENDING = 1,
    MLI_BLOCK_PARTS = 2,
    MLI_BLOCK_ARENA = 4,
    MLI_BLOCK_FREED = 8, /* in the table of last events, as are the next two */
    MLI_BLOCK_OPEN = 16, /* TRACE: its slice is not ended. MEMORY_VIZ: its free is requested */
    MLI_BLOCK_DONE = 32  /* MEMORY_VIZ: its segment is written */
};

/* Live blocks of one stack, tag and device. */
typedef struct mli_group {
    mli_live_block of; /* dev 0: a free group */
    uint64_t blocks, bytes;
} mli_group;
#define MLI_GROUPS 256
#define MLI_VIZ_WORDS 128

/* An event of the ring, with the block that it is of. */
typedef struct mli_export_event {
    mli_live_block of;
    uint64_t ns;
    uint32_t kind, thread;
} mli_export_event;

/* A whole, whose numbers are exact, or the share of one stack in it. The wholes of live blocks are
   those of one site, tag and scope; the wholes of allocs are sites, and those of their device. */
typedef struct mli_portion {
    uint32_t frame, tag, scope; /* frame 0: the allocs of a device */
    uint32_t node;              /* 0: a whole */
    uint32_t next;              /* the next share of the same whole, from 1; 0: the last */
    unsigned char dev;          /* 0: a vacant entry */
    unsigned char allocs;       /* 1: of allocs since the last reset; 0: of live blocks */
    unsigned char has_live;     /* 1: the allocs of a site, and its live blocks are among them */
    int64_t value[2];           /* of the samples themselves, then the share; blocks and bytes */
    double rest[2];             /* of the blocks that samples stand for, beside themselves */
} mli_portion;

/* The state of a writer, beside the report. */
typedef struct mli_export {
    mli_report *r;
    memlord *lord;
    mli_out *o;
    uint32_t devices, sites, tags, scopes; /* the last rows that have a number; from 1 */
    uint32_t nodes, places; /* likewise: of stacks, and of their frames; 0: there are none */
    void (*put_block)(struct mli_export *x, const mli_live_block *block);
    void (*put_group)(struct mli_export *x, const mli_group *group);
    void (*put_part)(struct mli_export *x, const memlord_part_info *part);
    const mli_live_block *whole; /* the block of the parts being written */
    uint64_t beside, parts;      /* its bytes that no part has yet; parts written so far */
    mli_group group[MLI_GROUPS];
    mli_portion *portion;             /* where stacks are samples: the table of shares */
    size_t portion_cap, portion_used; /* its entries, a power of two; entries in use */
    mli_portion portion_none;         /* in place of one that there is no memory for */
    /* By dev: the bytes and the number of events that the ring adds; TRACE: then sum is the level.
       PPROF, HEAPTRACK: allocs of sites and their bytes; live bytes. PROMETHEUS: see
       mli_prom_known. */
    uint64_t sum[MEMLORD_MAX_DEVICES + 1], events[MEMLORD_MAX_DEVICES + 1];
    uint64_t written;            /* items so far, in a format that numbers them */
    void *table;                 /* scratch of the writer at hand */
    mli_live_block *last_events; /* TRACE, MEMORY_VIZ: the last event of each storage */
    uint64_t last_events_size, last_events_used; /* slots, a power of two; slots in use */
    uint64_t first;                              /* ns of the first event */
    int scoped;                                  /* 1: the ring has events of scopes */
    int64_t *level; /* TRACE: live bytes by tag row; behind them by dev: those without a tag */
    uint64_t due[MEMLORD_MAX_DEVICES + 1];   /* TRACE, by dev: ns of the next sample */
    uint64_t shown[MEMLORD_MAX_DEVICES + 1]; /* TRACE, by dev: the level of the last sample */
    unsigned char *depth;                    /* TRACE, by thread number: open scopes */
    uint32_t threads;          /* TRACE: entries of `depth` */
    uint32_t only;             /* MEMORY_VIZ: the dev of the events being written */
    size_t lines, lines_most;  /* FOLDED: lines in `table`, and those it has room for */
    uint64_t traces;           /* HEAPTRACK: traces so far */
    uint64_t calls, held;      /* HEAPTRACK: allocations still to write; bytes now allocated */
    uint64_t gone, gone_end;   /* HEAPTRACK: infos of the bytes no longer live: see mli_heap_gone */
    struct {
        const char *text;
        size_t size;
    } word[MLI_VIZ_WORDS]; /* MEMORY_VIZ: the words in the memo, by number; size 0: a free one */
    int32_t number[MEMLORD_MAX_DEVICES + 1]; /* MEMORY_VIZ, by dev: the device's number there */
    char label[1024]; /* PROMETHEUS: labels of every sample, "name=value" and a 0 each; a 0 */
} mli_export;

MLI_PRIVATE memlord_device mli_export_device(const mli_export *x, uint32_t dev);
/* Returns the tag of a row; NULL for row 0. */
MLI_PRIVATE const char *mli_export_tag(const mli_export *x, uint32_t row);

enum { MLI_FRAME_UNKNOWN, MLI_FRAME_ARENA, MLI_FRAME_GONE, MLI_FRAME_KINDS };

MLI_PRIVATE uint32_t mli_frame_of_kind(const mli_export *x, uint32_t dev, uint32_t kind);
/* Returns the frame of a scope. With id 0: the last frame before those of scopes. */
MLI_PRIVATE uint32_t mli_frame_of_scope(const mli_export *x, uint32_t id);
MLI_PRIVATE uint32_t mli_frame_of_place(const mli_export *x, uint32_t place);
MLI_PRIVATE uint32_t mli_frame_count(const mli_export *x);
/* Gives the format whole stacks. A node that is known has a frame that is known. */
MLI_PRIVATE void mli_export_stacks(mli_export *x);

/* Returns the site of a frame; NULL if it is none. That of a return address is named here. */
MLI_PRIVATE const memlord_site *mli_frame_site(const mli_export *x, uint32_t frame);

typedef struct mli_frame_name {
    const char *name, *file;  /* not empty; "": none */
    const mli_module *module; /* of a return address; NULL: none */
    uint64_t line, offset;    /* of the frame in its file; of the address in the module's */
    uint32_t dev, caller;     /* 0: of no device; 0: without a caller of its own */
} mli_frame_name;

MLI_PRIVATE MLI_COLD mli_frame_name mli_frame_name_of(const mli_export *x, uint32_t frame);

/* The frames of a block, the innermost first: its stack, else its site; then its scopes. */
typedef struct mli_stack {
    uint32_t n, frame[MLI_SCOPE_DEPTH_MAX + MLI_STACK_DEPTH_MAX];
} mli_stack;

MLI_PRIVATE MLI_COLD mli_stack mli_stack_of(const mli_export *x, const mli_live_block *b);

/* Returns a block; `where` has its rows and its scope as an event has them. Leaves out what has no
   number. */
MLI_PRIVATE MLI_COLD mli_live_block mli_live_block_make(const mli_export *x, uint32_t dev,
                                                        uint64_t storage, uint64_t bytes,
                                                        uint64_t where);

/* A live block as the map has it. */
typedef struct mli_alive {
    mli_live_block of;
    double scale; /* how many blocks it stands for; 0: it has no stack */
} mli_alive;

MLI_PRIVATE MLI_COLD void mli_alive_fill(void *user, const mli_entry *e, void *item);
MLI_PRIVATE MLI_COLD int mli_alive_put(void *user, void *item);
#endif

#endif
