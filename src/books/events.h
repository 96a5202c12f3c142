/* Owns the stamps and the ring of events. An event names its site, tag or stack by the number of a
   row. Invariant: a ledger has one ring, from the first memlord_events_start until the ledger ends.
   Lock: the registry lock, to install the ring. Events are written and read without a lock. */
#ifndef MLI_BOOKS_EVENTS_H
#define MLI_BOOKS_EVENTS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "os/system.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "books/threads.h"

/* The ring is cut into sub-buffers. A thread gets the next one that has no writer, and fills it
   alone, so threads write to the same words only while they get sub-buffers. A reader copies an
   event, and then checks that its sub-buffer was not given out again meanwhile. */

/* An event in the ring. It has the row of its site, or that of its stack; a row of a stack names
   the site.
     what    bytes:49 | kind:4 | dev:8 | has a stack:1
     where   site row or stack row:20 | tag row:16 | scope:28
     stream  the stream of the block; 0 means none */
typedef struct mli_ring_event {
    mli_u64 stamp, storage, what, where, stream;
} mli_ring_event;
typedef struct mli_event_copy { /* an event as it was read; `where` has the row of its site */
    uint64_t stamp, storage, what, where, stream;
    uint32_t thread, stack; /* the number of the thread that wrote it; the row of its stack, or 0 */
} mli_event_copy;
/* Returns the kind of an event, MEMLORD_EVENT_..., from its word `what`. */
MLI_PRIVATE uint32_t mli_event_kind(uint64_t what);
/* Returns the dev of an event from its word `what`. */
MLI_PRIVATE uint32_t mli_event_dev(uint64_t what);

/* Consecutive events of one thread. */
typedef struct mli_subbuf {
    mli_u64 generation; /* differs each time the sub-buffer is given out; 0 before, and meanwhile */
    mli_u32 has_writer; /* 1: a thread writes events to it */
    mli_u32 count;      /* how many events it has */
    mli_u32 thread;     /* the number of the thread that wrote them */
    mli_ring_event at[1]; /* room for mli_ring.subbuf_events events */
} mli_subbuf;
typedef struct mli_ring {
    /* Writes an event: mli_event_write. Calls reach it by this pointer, so that a program that
       records no events need not link it. */
    void (*write)(memlord *lord, mli_thread *t, int kind, uint32_t dev, uint64_t storage,
                  uint64_t bytes, uint64_t rows);
    size_t size, stride, capacity;
    uint64_t subbufs;
    uint32_t subbuf_events; /* events in a sub-buffer */
    mli_u64 next_subbuf;    /* how many were given out or skipped; they lie behind this struct */
} mli_ring;

/* Returns the ring, or NULL if there is none yet. */
MLI_PRIVATE MLI_COLD mli_ring *mli_ring_of(const memlord *lord);

/* Converts stamps to nanoseconds. The rate is the mean since the ledger was created. */
typedef struct mli_stamp_scale {
    uint64_t from; /* the stamp when the ledger was created */
    double rate;   /* nanoseconds per stamp */
} mli_stamp_scale;
MLI_PRIVATE MLI_COLD mli_stamp_scale mli_stamp_scale_now(memlord *lord);
MLI_PRIVATE MLI_COLD uint64_t mli_stamps_ns(const mli_stamp_scale *scale, uint64_t stamps);
/* Returns the nanoseconds from the creation of the ledger to a stamp, or 0 for an earlier stamp. */
MLI_PRIVATE uint64_t mli_since_ns(const mli_stamp_scale *scale, uint64_t stamp);

/* Ends a thread's writing to its sub-buffer. The release store pairs with the exchange in
   mli_subbuf_next, so that the next writer of the sub-buffer sees all that this thread wrote. */
MLI_PRIVATE void mli_subbuf_leave(mli_thread *t);

/* Writes an event, or counts it as lost if every sub-buffer has a writer. `rows` has the layout of
   a word2 (books/map.h), and some fields may be 0. If `bytes` has MLI_EVENT_STACK, `rows` has the
   row of a stack instead of a site. Stores each word by a release, so that a reader that sees one
   also sees the generation of the sub-buffer, which was stored earlier. */
MLI_PRIVATE MLI_NOINLINE void mli_event_write(memlord *lord, mli_thread *t, int kind, uint32_t dev,
                                              uint64_t storage, uint64_t bytes, uint64_t rows);
/* Writes an event if the ledger records events. */
static MLI_HOT void mli_event_record(memlord *lord, mli_thread *t, int kind, uint32_t dev,
                                     uint64_t storage, uint64_t bytes, uint64_t rows) {
    if (MLI_UNLIKELY(mli_alert_on(lord, MLI_ALERT_EVENTS)))
        mli_event_write(lord, t, kind, dev, storage, bytes, rows);
}
/* Records that a block begins. `stack` is the row of its stack, or 0 if it was not picked. */
MLI_PRIVATE void mli_event_record_begin(memlord *lord, mli_thread *t, int kind, uint32_t dev,
                                        uint64_t storage, uint64_t bytes, uint64_t rows,
                                        uint32_t stack);
/* Records the end of a block. `site` is the site of the call that ends it, or NULL, and the event
   has this one. `rows` is the block's word2 without a side record. */
MLI_PRIVATE MLI_NOINLINE void mli_event_record_end(memlord *lord, mli_thread *t, int kind,
                                                   uint64_t storage, uint64_t word1, uint64_t rows,
                                                   const memlord_site *site);

/* Records an event that belongs to no block. Requires: no lock is held; not inside a shard. */
MLI_PRIVATE MLI_COLD void mli_event_record_other(memlord *lord, int kind, uint32_t dev,
                                                 uint64_t storage, uint64_t bytes);

/* A reader of one sub-buffer: the index of the next event, and its stamp. */
typedef struct mli_subbuf_reader {
    mli_subbuf *subbuf;
    uint64_t generation, stamp;
    uint32_t at, count;
} mli_subbuf_reader;
/* A reader of the ring: a heap of readers of sub-buffers, with the earliest event at the root. */
typedef struct mli_ring_reader {
    memlord *lord;
    mli_subbuf_reader *heap;
    size_t n;    /* how many readers are in the heap */
    size_t size; /* the bytes that were allocated for the heap */
    mli_stamp_scale scale;
} mli_ring_reader;

/* Begins to read the events that are in the ring now. Returns 0 if there is no memory. */
MLI_PRIVATE MLI_COLD int mli_ring_reader_begin(memlord *lord, mli_ring_reader *r);
MLI_PRIVATE void mli_ring_reader_end(mli_ring_reader *r);
/* Copies the next event to *out. Returns 0 if there is none. If a thread has begun to write new
   events to a sub-buffer meanwhile, skips the rest of it. */
MLI_PRIVATE MLI_COLD int mli_ring_reader_next(mli_ring_reader *r, mli_event_copy *out);

/* Returns what is wrong with the event settings of a memlord_desc, or NULL if nothing is. */
MLI_PRIVATE MLI_COLD const char *mli_events_check(const memlord_desc *desc);
MLI_TABLE(const mli_life mli_events_life)

#endif
