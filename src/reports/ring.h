/* Reads the ring up to the moment of a report, for TRACE and MEMORY_VIZ. Owns the table of the last
   event of each storage. Locks: none. */
#ifndef MLI_REPORTS_RING_H
#define MLI_REPORTS_RING_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "reports/export.h"

#if !defined(MEMLORD_NO_REPORTS)

/* An event of the ring of events, with the block that it concerns. */
typedef struct mli_export_event {
    mli_live_block of;
    uint64_t ns;
    uint32_t kind, thread;
} mli_export_event;

/* Calls fn for the ring's events up to the report, the oldest first, without those of devices that
   the report does not have. If there is no memory, the report fails. */
typedef void (*mli_ring_event_fn)(void *writer, const mli_export_event *e);
MLI_PRIVATE MLI_COLD void mli_ring_each(mli_export *x, mli_ring_event_fn fn, void *writer);

/* Returns what an event adds to the live bytes of its device. */
MLI_PRIVATE int64_t mli_event_delta(const mli_export_event *e);
/* Returns 1 if an event is about a block: an alloc, a free, a move, or a deferred free. */
MLI_PRIVATE int mli_event_is_of_block(const mli_export_event *e);

/* The results of one reading of the ring. */
typedef struct mli_last_events {
    const mli_export *x;
    mli_live_block *at;  /* the last event of each storage; NULL if there is no ring or no memory */
    uint64_t size, used; /* the slots, a power of two; those in use */
    uint64_t first;      /* the ns of the first event, or of the report if there is no event */
    int scoped;          /* 1: the ring has events of scopes */
    /* By dev: the bytes that the device's events add, and the number of these events. */
    uint64_t sum[MEMLORD_MAX_DEVICES + 1], events[MEMLORD_MAX_DEVICES + 1];
    int64_t *tag_sum; /* by the tag's row: the bytes that its events add; NULL: not wanted */
} mli_last_events;

/* Fills in the results by one reading of the ring. If there is no memory for the table, the report
   fails. Requires: `last` is zeroed except for tag_sum. */
MLI_PRIVATE MLI_COLD void mli_last_events_read(mli_export *x, mli_last_events *last);
MLI_PRIVATE MLI_COLD void mli_last_events_free(mli_last_events *last);
/* Returns the last event of a block's storage, else the vacant slot for it, with a dev of 0.
   Returns NULL if there is no table. It has open addressing by device type and address. */
MLI_PRIVATE mli_live_block *mli_last_event_at(const mli_last_events *last,
                                              const mli_live_block *of);
#endif

#endif
