/* Reads the events up to the moment of the report, for TRACE and MEMORY_VIZ. Owns mlr_ring, the
   table of the last event of each storage. Locks: none. */
#ifndef MLR_FORMATS_RING_H
#define MLR_FORMATS_RING_H
#include "profile/profile.h"

enum { MLR_SLOT_OPEN = 1, MLR_SLOT_DONE = 2 }; /* the writer of a format decides what they mean */
typedef struct mlr_slot {
    const mlr_event *event; /* the last of the storage; NULL: the slot is vacant */
    int flags;
} mlr_slot;
typedef struct mlr_ring {
    const mlr_profile *p;
    mlr_slot *at;   /* has open addressing by device type and storage */
    size_t size;    /* a power of two, or 0 if there are no events */
    uint64_t first; /* the time of the first event, or of the report if there is none */
    int scoped;     /* 1: there are events of scopes */
    uint32_t *type; /* by device, from 1: the first device of the same type */
    int64_t *device_sum, *tag_sum; /* by row, from 1: the bytes that its events add */
    uint64_t *device_events;
} mlr_ring;

/* Returns 1, or 0 if there is no memory. mlr_ring_close frees what either result has left. */
MLR_PRIVATE int mlr_ring_open(mlr_ring *ring, const mlr_profile *p);
MLR_PRIVATE void mlr_ring_close(mlr_ring *ring);

/* Returns the slot of a storage of a device, or the vacant one for it; NULL if there are no events
   of blocks. */
MLR_PRIVATE mlr_slot *mlr_ring_slot(const mlr_ring *ring, uint32_t device, uint64_t storage);

/* Returns 1 if an event was before the report, so that its sums have it. */
MLR_PRIVATE int mlr_event_is_past(const mlr_profile *p, const mlr_event *e);
/* Returns what an event adds to the live bytes of its device. */
MLR_PRIVATE int64_t mlr_event_delta(const mlr_event *e);
/* Returns 1 if an event is about a block: an alloc, a free, a move, or a deferred free. */
MLR_PRIVATE int mlr_event_is_of_block(const mlr_event *e);

#endif
