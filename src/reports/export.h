/* Reads live blocks, and the numbers and names of their frames, for the writers of other tools'
   formats. A frame here is a site, a scope, a return address, or words such as "(arena)". Owns no
   state. Invariant: the number of a site or tag is that of its row; what the ledger adds while a
   writer runs is left out. Locks: those of the reading functions; none during a call of the host's
   memlord_write_fn. */
#ifndef MLI_REPORTS_EXPORT_H
#define MLI_REPORTS_EXPORT_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "os/unwind.h"
#include "base/text.h"
#include "books/counters.h"
#include "books/spans.h"
#include "books/sites.h"
#include "reports/capture.h"

#if !defined(MEMLORD_NO_REPORTS)

/* A live block that the walk over the ledger has read, or that of an event in the ring. The bytes
   of an arena also count as a block, at an address that no other block has. */
typedef struct mli_live_block {
    uint64_t storage, bytes;
    uint64_t stream;          /* 0 means no stream */
    uint32_t frame;           /* the number of the frame that is the block's site */
    uint32_t tag, scope;      /* the numbers of its tag and scope; 0: none, or no number */
    uint32_t node;            /* the node of its stack; if it is 0, a writer uses `frame` */
    uint32_t blocks;          /* how many blocks of one stack are written as this one */
    unsigned char dev, state; /* dev: the number of the device; state: MLI_BLOCK_... */
} mli_live_block;
enum {
    MLI_BLOCK_PENDING = 1,
    MLI_BLOCK_PARTS = 2,
    MLI_BLOCK_ARENA = 4,
    MLI_BLOCK_FREED = 8, /* in mli_last_events: the last event of the storage is a free */
    MLI_BLOCK_OPEN = 16, /* the writer of a format decides what this flag and the next one mean */
    MLI_BLOCK_DONE = 32
};

/* What each writer reads besides the report: the first member of its state. The members below `o`
   are the highest numbers of their kind; numbers begin at 1. */
typedef struct mli_export {
    mli_report *r;
    memlord *lord;
    mli_out *o;
    uint32_t devices, sites, tags, scopes; /* sites and tags have one for each device */
    uint32_t nodes, places; /* nodes, and return addresses in them; 0: no stacks */
    uint32_t stacks; /* the number of the last stack; 0 if the format has no stacks */
} mli_export;

/* Calls `write` with a state of `size` bytes, zero behind its mli_export, if there is memory. */
MLI_PRIVATE MLI_COLD void mli_export_run(mli_report *r, size_t size, void (*write)(void *writer));

MLI_PRIVATE memlord_device mli_export_device(const mli_export *x, uint32_t dev);
/* Returns the name of the tag with the number `row`, or NULL if row is 0. */
MLI_PRIVATE const char *mli_export_tag(const mli_export *x, uint32_t row);

/* Frames that are no place of code: blocks without a site, the arena, blocks that are freed, and
   what a list of the largest sites leaves out. */
enum { MLI_FRAME_UNKNOWN, MLI_FRAME_ARENA, MLI_FRAME_GONE, MLI_FRAME_OTHERS, MLI_FRAME_KINDS };

/* Returns the number of the frame that stands for a kind (MLI_FRAME_...) on a device. */
MLI_PRIVATE uint32_t mli_frame_of_kind(const mli_export *x, uint32_t dev, uint32_t kind);
/* Returns the number of a scope's frame; for id 0 the last number before the frames of scopes. */
MLI_PRIVATE uint32_t mli_frame_of_scope(const mli_export *x, uint32_t id);
/* Returns the number of the frame of a return address, which has the number `place`. */
MLI_PRIVATE uint32_t mli_frame_of_place(const mli_export *x, uint32_t place);
MLI_PRIVATE uint32_t mli_frame_count(const mli_export *x);
/* Makes the writer use whole stacks in place of sites, if the ledger takes stacks. The return
   addresses of the nodes then have frame numbers, too. */
MLI_PRIVATE void mli_export_stacks(mli_export *x);

/* Returns the site of a frame with the name of its address, or NULL if it is no place of code. */
MLI_PRIVATE const memlord_site *mli_frame_site(const mli_export *x, uint32_t frame);

/* The name of a function at a frame, and where it is. */
typedef struct mli_frame_name {
    const char *name, *file;  /* the name is not empty; the file is "" if it is not known */
    const mli_module *module; /* the module of a return address; NULL if the address is in none */
    uint64_t line, offset;    /* its line in the file; the address's offset in the module's file */
    uint32_t dev, caller;     /* its device, or 0; of a scope: the frame of the outer scope, or 0 */
    uint32_t count;           /* how many functions are at the frame, at least 1 */
    const mli_functions *functions; /* those that are inlined at the frame; NULL: there is one */
} mli_frame_name;

/* Returns a frame with the name of its innermost function. */
MLI_PRIVATE MLI_COLD mli_frame_name mli_frame_name_of(const mli_export *x, uint32_t frame);
/* Gives a frame the name of function i, from 0, the innermost. Requires: i is below the count. */
MLI_PRIVATE MLI_COLD void mli_frame_function(mli_frame_name *f, uint32_t i);

/* The frames of a block, the innermost first: its stack or its site, then its scopes. */
typedef struct mli_stack {
    uint32_t n, frame[MLI_SCOPE_DEPTH_MAX + MLI_STACK_DEPTH_MAX];
} mli_stack;

MLI_PRIVATE MLI_COLD mli_stack mli_stack_of(const mli_export *x, const mli_live_block *b);

/* Makes a block. `where` has its site, tag and scope, packed as in an event; a number that the
   ledger gave after the capture is left out. */
MLI_PRIVATE MLI_COLD mli_live_block mli_live_block_make(const mli_export *x, uint32_t dev,
                                                        uint64_t storage, uint64_t bytes,
                                                        uint64_t where);

/* A live block of the ledger. */
typedef struct mli_alive {
    mli_live_block of;
    double scale; /* how many blocks this one stands for as a sample; 0: it was not picked */
} mli_alive;

/* Calls fn for each live block, until fn returns other than 0, without those of devices that have
   no number. If there is no memory, the report fails. */
typedef int (*mli_alive_fn)(void *writer, const mli_alive *alive);
MLI_PRIVATE MLI_COLD void mli_alive_each(mli_export *x, mli_alive_fn fn, void *writer);

/* For each arena with bytes, calls `put` for those without a tag, then for those of each tag. */
typedef void (*mli_block_fn)(void *writer, const mli_live_block *b);
MLI_PRIVATE MLI_COLD void mli_arena_blocks_each(mli_export *x, mli_block_fn put, void *writer);
/* Calls `put` for each live block, then for the arenas. */
MLI_PRIVATE MLI_COLD void mli_live_blocks_each(mli_export *x, mli_block_fn put, void *writer);

/* Calls `put` for the parts of a block. Returns how many of the block's bytes are in no part. */
typedef void (*mli_part_fn)(void *writer, const mli_live_block *whole,
                            const memlord_part_info *part);
MLI_PRIVATE MLI_COLD uint64_t mli_export_parts(mli_export *x, const mli_live_block *b,
                                               mli_part_fn put, void *writer);

/* Writes text as UTF-8. Puts a backslash before each character of `escaped`. */
MLI_PRIVATE MLI_COLD void mli_put_utf8(mli_out *o, const char *text, const char *escaped);
MLI_PRIVATE size_t mli_utf8_size(const char *text);

/* Writes the low n bytes of v, little-endian. */
MLI_PRIVATE void mli_put_le(mli_out *o, uint64_t v, unsigned n);
#endif

#endif
