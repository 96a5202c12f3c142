/* Reads live blocks, and the numbers and names of their frames, for the writers of other tools'
   formats. A frame is a site, a scope, a return address, or words such as "(arena)". Frames, sites,
   tags and scopes have numbers from 1. The arena of a device is its bytes that are in no block.
   Owns no state. May use reports/capture and the reading functions of books/. Invariant: the number
   of a site or tag is that of its row, which is the ledger's record of a site or tag on one device.
   What the ledger adds while a writer runs has no number here, and is left out. Locks: those of the
   reading functions; none during a call of the host's memlord_write_fn. */
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

/* A live block that the walk over the ledger has read, or the block of an event in the ring, which
   has the latest events of the ledger. The bytes of an arena also count as a block, at an address
   that no other block has. */
typedef struct mli_live_block {
    uint64_t storage, bytes;
    uint64_t stream;          /* 0 means no stream */
    uint32_t frame;           /* the number of the frame that is the block's site */
    uint32_t tag, scope;      /* the numbers of the block's tag and scope; 0 if the block has no tag
                                 or scope, or if the tag or scope has no number */
    uint32_t node;            /* the node of the block's stack in the tree of stacks; 0 if the block
                                 has no stack. A writer uses `frame` only if this is 0 */
    uint32_t blocks;          /* how many blocks this one stands for, because several blocks of one
                                 stack may be written as one */
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

/* What each writer reads besides the report. It is the first member of every writer's state. The
   members below `o` are the highest numbers of their kind; numbers begin at 1. */
typedef struct mli_export {
    mli_report *r;
    memlord *lord;
    mli_out *o;
    uint32_t devices, sites, tags, scopes; /* a site or a tag has a number for each of its
                                              devices */
    uint32_t nodes, places; /* the nodes in the tree of stacks, and the return addresses in them; 0
                               if the format has no stacks */
    uint32_t stacks; /* the number of the last stack; 0 if the format has no stacks */
} mli_export;

/* Calls `write` with a state of `size` bytes, which begins with an mli_export and is zero after it.
   If there is no memory for the state, the report fails. */
MLI_PRIVATE MLI_COLD void mli_export_run(mli_report *r, size_t size, void (*write)(void *writer));

/* Returns the device with the ledger's number `dev`. */
MLI_PRIVATE memlord_device mli_export_device(const mli_export *x, uint32_t dev);
/* Returns the name of the tag with the number `row`, or NULL if row is 0. */
MLI_PRIVATE const char *mli_export_tag(const mli_export *x, uint32_t row);

/* Kinds of frames that stand for something other than a place of code: blocks without a site, the
   arena, blocks that are freed, and what a list of the largest sites leaves out. */
enum { MLI_FRAME_UNKNOWN, MLI_FRAME_ARENA, MLI_FRAME_GONE, MLI_FRAME_OTHERS, MLI_FRAME_KINDS };

/* Returns the number of the frame that stands for a kind (MLI_FRAME_...) on a device. */
MLI_PRIVATE uint32_t mli_frame_of_kind(const mli_export *x, uint32_t dev, uint32_t kind);
/* Returns the number of a scope's frame. If id is 0, returns the last number before the frames of
   scopes. */
MLI_PRIVATE uint32_t mli_frame_of_scope(const mli_export *x, uint32_t id);
/* Returns the number of the frame of a return address. `place` is the number of the address in the
   tree of stacks. */
MLI_PRIVATE uint32_t mli_frame_of_place(const mli_export *x, uint32_t place);
/* Returns the number of frames. */
MLI_PRIVATE uint32_t mli_frame_count(const mli_export *x);
/* Makes the writer use whole stacks in place of sites, if the ledger takes stacks. The return
   addresses of the numbered nodes in the tree of stacks then have frame numbers, too. */
MLI_PRIVATE void mli_export_stacks(mli_export *x);

/* Returns the site of a frame, or NULL if the frame is no place of code. Looks up the name of a
   return address. */
MLI_PRIVATE const memlord_site *mli_frame_site(const mli_export *x, uint32_t frame);

/* The name of a function at a frame, and where it is. */
typedef struct mli_frame_name {
    const char *name, *file;  /* the name is not empty; the file is "" if it is not known */
    const mli_module *module; /* the module of a return address; NULL if the address is in none */
    uint64_t line, offset;    /* the line of the frame in its file; the offset of the address in the
                                 file of the module */
    uint32_t dev, caller;     /* dev: the device of the frame, or 0 if it has none; caller: in the
                                 frame of a scope, the number of the outer scope's frame; 0 if there
                                 is no outer scope */
    uint32_t count;           /* how many functions are at the frame, at least 1 */
    const mli_functions *functions; /* the functions that are inlined at the frame; NULL if there is
                                       one function */
} mli_frame_name;

/* Returns a frame with the name of its innermost function. */
MLI_PRIVATE MLI_COLD mli_frame_name mli_frame_name_of(const mli_export *x, uint32_t frame);
/* Gives a frame the name of function i. Function 0 is the innermost; each is inlined in the next
   one. Requires: i is below the count. */
MLI_PRIVATE MLI_COLD void mli_frame_function(mli_frame_name *f, uint32_t i);

/* The frames of a block, the innermost first. The frames of its stack come first, or the frame of
   its site if it has no stack. Then come those of its scopes. */
typedef struct mli_stack {
    uint32_t n, frame[MLI_SCOPE_DEPTH_MAX + MLI_STACK_DEPTH_MAX];
} mli_stack;

MLI_PRIVATE MLI_COLD mli_stack mli_stack_of(const mli_export *x, const mli_live_block *b);

/* Makes a block. `where` has the numbers of its site, tag and scope, packed as in an event. Leaves
   out a number that the ledger gave after the capture. */
MLI_PRIVATE MLI_COLD mli_live_block mli_live_block_make(const mli_export *x, uint32_t dev,
                                                        uint64_t storage, uint64_t bytes,
                                                        uint64_t where);

/* A live block of the ledger. */
typedef struct mli_alive {
    mli_live_block of;
    double scale; /* how many blocks this one stands for, because only some blocks are picked to
                     have a stack; 0 if it was not picked */
} mli_alive;

/* Calls fn for each live block of the ledger, until fn returns other than 0. Leaves out blocks of
   devices without a number. If there is no memory, the report fails. */
typedef int (*mli_alive_fn)(void *writer, const mli_alive *alive);
MLI_PRIVATE MLI_COLD void mli_alive_each(mli_export *x, mli_alive_fn fn, void *writer);

/* For each device whose arena has bytes, calls `put` once for the bytes without a tag, and then
   once for the bytes of each tag. */
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
