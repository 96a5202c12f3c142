/* Owns the stamps of time and the ring of events. May use books/threads, books/sites, books/stacks
   and books/counters. Invariant: a ledger has one ring, from the first start until it ends. Locks:
   none to write or to read; registry to install the ring. */
#ifndef MLI_BOOKS_EVENTS_H
#define MLI_BOOKS_EVENTS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "os/system.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "books/threads.h"

/* The ring is cut into sub-buffers. A thread gets the next one without a writer and fills it alone,
   so that threads share a word only once a sub-buffer. A reader copies an event and then checks
   that its sub-buffer was not given out again meanwhile. */

/* An event in the ring. In place of the row of its site it may have one of the stacks, which tells
   the site.
     what    bytes:49 | kind:4 | dev:8 | has a stack:1
     where   site row or stack row:20 | tag row:16 | scope:28
     stream  of the block; 0: none */
typedef struct mli_ring_event {
    mli_u64 stamp, storage, what, where, stream;
} mli_ring_event;
typedef struct mli_event_copy { /* an event as it was read from the ring, with its site */
    uint64_t stamp, storage, what, where, stream;
    uint32_t thread, stack; /* stack: its row of the stacks; 0: none */
} mli_event_copy;
MLI_PRIVATE uint32_t mli_event_kind(uint64_t what);
MLI_PRIVATE uint32_t mli_event_dev(uint64_t what);

/* A sub-buffer: consecutive events of one thread. */
typedef struct mli_subbuf {
    mli_u64 generation; /* differs each time the sub-buffer is given out; 0: it never was, or is
                           being given out now */
    mli_u32 has_writer; /* 1: a thread writes it */
    mli_u32 count, thread;
    mli_ring_event at[1]; /* mli_ring.subbuf_events of them */
} mli_subbuf;
typedef struct mli_ring {
    size_t size, stride, capacity;
    uint64_t subbufs;
    uint32_t subbuf_events; /* events in a sub-buffer */
    mli_u64 next_subbuf;    /* how many sub-buffers were given out or skipped so far; the
                               sub-buffers lie behind the ring */
} mli_ring;

/* Returns the ring; NULL: events are not recorded. */
MLI_PRIVATE MLI_COLD mli_ring *mli_ring_of(const memlord *lord);

/* Converts stamps to nanoseconds. The rate is the mean since create, so it becomes more precise as
   the ledger grows older. */
typedef struct mli_stamp_scale {
    uint64_t from; /* the stamp at create */
    double rate;   /* ns a stamp */
} mli_stamp_scale;
MLI_PRIVATE MLI_COLD mli_stamp_scale mli_stamp_scale_now(memlord *lord);
/* Converts a difference of stamps to ns. */
MLI_PRIVATE MLI_COLD uint64_t mli_stamps_ns(const mli_stamp_scale *scale, uint64_t stamps);
/* Returns the ns from create to a stamp; 0 for a stamp before it. */
MLI_PRIVATE uint64_t mli_since_ns(const mli_stamp_scale *scale, uint64_t stamp);

/* Leaves a thread's sub-buffer without a writer. The release pairs with the exchange in
   mli_subbuf_next: the next writer sees all that this one wrote. */
MLI_PRIVATE void mli_subbuf_leave(mli_thread *t);

/* Writes an event. Every word is a release store: a reader that sees one of them also sees the
   generation that was stored before it. `rows` is a word2, or bits of one; `bytes` may have
   MLI_EVENT_STACK. An event without a free sub-buffer is lost, and counted. */
MLI_PRIVATE MLI_NOINLINE void mli_event_write(memlord *lord, mli_thread *t, int kind, uint32_t dev,
                                              uint64_t storage, uint64_t bytes, uint64_t rows);
static MLI_HOT void mli_event_record(memlord *lord, mli_thread *t, int kind, uint32_t dev,
                                     uint64_t storage, uint64_t bytes, uint64_t rows) {
    if (MLI_UNLIKELY(mli_alert_on(lord, MLI_ALERT_EVENTS)))
        mli_event_write(lord, t, kind, dev, storage, bytes, rows);
}
/* Records the beginning of a block. `stack` is its row of the stacks; 0: it was not picked. */
MLI_PRIVATE void mli_event_record_begin(memlord *lord, mli_thread *t, int kind, uint32_t dev,
                                        uint64_t storage, uint64_t bytes, uint64_t rows,
                                        uint32_t stack);
/* Records the end of a block at a site. `rows` is the block's word2 without a side record: its
   tag and its stream are recorded, and the row of `site` in place of its own. */
MLI_PRIVATE MLI_NOINLINE void mli_event_record_end(memlord *lord, mli_thread *t, int kind,
                                                   uint64_t storage, uint64_t word1, uint64_t rows,
                                                   const memlord_site *site);

/* Records an event that belongs to no block. Requires: no lock is held, and the caller is not
   inside. */
MLI_PRIVATE MLI_COLD void mli_event_record_other(memlord *lord, int kind, uint32_t dev,
                                                 uint64_t storage, uint64_t bytes);

/* A reader of one sub-buffer: `at` is its next event, and `stamp` is that of the event. */
typedef struct mli_subbuf_reader {
    mli_subbuf *subbuf;
    uint64_t generation, stamp;
    uint32_t at, count;
} mli_subbuf_reader;
/* A reader of the ring: a heap of readers of its sub-buffers, with the earliest event at the
   root. */
typedef struct mli_ring_reader {
    memlord *lord;
    mli_subbuf_reader *heap;
    size_t n, size; /* readers in the heap; bytes allocated for it */
    mli_stamp_scale scale;
} mli_ring_reader;

/* Begins to read the events that are in the ring now; 0: no memory. */
MLI_PRIVATE MLI_COLD int mli_ring_reader_begin(memlord *lord, mli_ring_reader *r);
MLI_PRIVATE void mli_ring_reader_end(mli_ring_reader *r);
/* Copies out the next event; 0: there is none. Skips a sub-buffer that was given out again
   meanwhile. */
MLI_PRIVATE MLI_COLD int mli_ring_reader_next(mli_ring_reader *r, mli_event_copy *out);

MLI_PRIVATE MLI_COLD void mli_events_life(mli_life *life);

#endif
