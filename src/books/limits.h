/* Owns the physical devices (phys) and the reservations. For each phys it has the number of live
   bytes and the devices that share it. A ticket is the handle of a reservation. services/room takes
   the samples of a phys, and opens reservations, because services/room can explain why one is
   refused. May use books/devices, books/counters and books/accounts. Invariant:
   a device changes from one phys to another only under the locks of both. Lock: each phys has one
   (MLI_RANK_PHYS); a thread takes two of them only under the cold lock. */
#ifndef MLI_BOOKS_LIMITS_H
#define MLI_BOOKS_LIMITS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "books/threads.h"
#include "books/counters.h"
#include "books/accounts.h"

/* Returns the phys of a device. The acquire pairs with the release in mli_phys_assign. */
MLI_PRIVATE mli_phys *mli_phys_at(memlord *lord, uint32_t dev);
/* Locks the phys of a device and returns it. While the function waits for the lock,
   memlord_device_share may assign another phys, so it compares again under the lock. */
MLI_PRIVATE mli_phys *mli_phys_lock(memlord *lord, uint32_t dev);

/* Finds the phys of a device. If the device was not seen yet, adds the device with `make`; without
   `make` returns E_UNKNOWN, and *out is NULL. */
MLI_PRIVATE MLI_COLD memlord_result mli_phys_find(memlord *lord, memlord_device d, int make,
                                                  mli_phys **out);

/* Returns the first device after `dev` that is at a phys, or at any phys if `phys` is NULL; 0:
   there is no further device. A walk starts with a `dev` of 0. */
MLI_PRIVATE MLI_NOINLINE uint32_t mli_phys_next_dev(memlord *lord, const mli_phys *phys,
                                                    uint32_t dev);

/* Returns the live bytes of all devices at a phys. */
MLI_PRIVATE uint64_t mli_phys_live(memlord *lord, const mli_phys *phys);

/* Returns 1 if the bytes of a device count against its physical device. Those of mapped files do
   not, because they are page cache. */
MLI_PRIVATE int mli_dev_uses_capacity(const memlord *lord, uint32_t dev);

/* Returns the bytes that a device holds: the larger of its live bytes and those of its pool. */
MLI_PRIVATE uint64_t mli_dev_held(memlord *lord, uint32_t dev, uint64_t live);

/* Returns the bytes in use at a phys now, and at least *held, the bytes that the ledger's devices
   hold there. Without a known sample it returns *held. Requires: the caller holds the phys lock. */
MLI_PRIVATE uint64_t mli_phys_used(memlord *lord, const mli_phys *phys, uint64_t *held);

/* Adds figures of a phys to statistics: its limit, the bytes that tickets keep there, and the bytes
   that neighbours hold there. */
MLI_PRIVATE void mli_phys_stats_add(mli_phys *phys, memlord_stats *sum);
/* Assigns a device to another phys, under the locks of both. The two locks have no order, so the
   function holds the cold lock: then no other thread holds two such locks. A fork, which takes the
   locks of all phys, takes the cold lock first. E_STATE: the old phys has bytes of tickets, which
   may be for this device; or other devices are at the device's own phys. */
MLI_PRIVATE MLI_COLD memlord_result mli_phys_assign(memlord *lord, uint32_t dev, mli_phys *to);
/* Copies a device's last failed request, under the lock of its phys. */
MLI_PRIVATE mli_oom mli_oom_of(memlord *lord, uint32_t dev);

/* Returns phys i, 0 to the number of devices; NULL: device i is at another phys. */
MLI_PRIVATE mli_phys *mli_phys_in_use(memlord *lord, uint32_t i);

/* Returns a NaN. */
MLI_PRIVATE double mli_nan(void);
/* Returns the used part of a capacity in percent; NaN: the capacity is unknown. */
MLI_PRIVATE MLI_COLD double mli_used_percent(const memlord_capacity *c);

typedef struct mli_reservation { /* a ticket; under the lock of its phys */
    mli_handle handle;
    mli_phys *phys;     /* the phys whose list has the record; never changes */
    mli_ptr owner;      /* mli_context *: the context that reserved or adopted the ticket */
    uint64_t remaining; /* the bytes that no alloc has drawn yet */
    memlord_account account; /* an account that holds the bytes, too; 0: none */
} mli_reservation;

/* Returns a number of bytes as a signed one, at most 2^62: the difference of two such numbers
   cannot overflow. */
MLI_PRIVATE int64_t mli_bytes_signed(uint64_t bytes);

/* Computes the bytes left at a phys. Returns 0 if neither limit nor capacity is known. Requires:
   the caller holds the phys lock. */
MLI_PRIVATE int mli_phys_available(memlord *lord, const mli_phys *phys, int64_t *left);

/* Sums the allocated or the freed bytes of all cells of a device. With `high` returns an upper
   bound, else a lower one. A call writes a cell's out before its level. So a reader gets an upper
   bound if it loads out after the level, and a lower bound if it loads out before the level. */
MLI_PRIVATE uint64_t mli_dev_sum(memlord *lord, uint32_t dev, int allocated, int high);

#if !defined(MEMLORD_NO_VERIFY)
/* Returns the number of ticket records. */
MLI_PRIVATE MLI_COLD uint32_t mli_ticket_count(const memlord *lord);
/* Returns the ticket record with a number, from 1. */
MLI_PRIVATE MLI_COLD const mli_reservation *mli_ticket_at(const memlord *lord, uint32_t number);
#endif
/* Returns 1 if a ticket is open, and belongs to the physical device of a device. */
MLI_PRIVATE MLI_COLD int mli_ticket_is_at(memlord *lord, memlord_ticket ticket,
                                          memlord_device device);

/* The bytes of a request that a named ticket covers, or the tickets of its thread. When the request
   opens its own ticket, these bytes move to that ticket, so that no alloc can draw them while the
   request tries. At the end of the request the bytes that it has not used move back. */
typedef struct mli_cover {
    uint64_t bytes; /* the bytes that all tickets cover: the sum of `part` */
    uint64_t held;  /* the part of these bytes that the account of the request holds */
    uint32_t count; /* the number of tickets */
    memlord_ticket ticket[MLI_TICKETS_MAX];
    uint64_t part[MLI_TICKETS_MAX]; /* the bytes that each ticket covers */
} mli_cover;
/* Moves the bytes of its cover that a request has not used back to the tickets that are still open.
   Sets cover->bytes to the bytes that it moved. */
MLI_PRIVATE MLI_COLD void mli_cover_return(memlord *lord, mli_phys *phys, mli_cover *cover,
                                           memlord_ticket request);

/* What a reservation asks for. */
typedef struct mli_reserve {
    uint64_t bytes;
    memlord_account account; /* the account that holds the bytes, too; 0: none */
    memlord_ticket named;    /* the ticket that covers a request; 0: those of the thread do */
    mli_cover *cover;        /* gets the cover of a request; NULL: it is no request */
} mli_reserve;
/* Opens a ticket for bytes at a phys. Without `cover` the ticket belongs to the context of this
   thread. With `cover` it is the ticket of a request and belongs to no thread; the named ticket, or
   else the tickets of this thread, cover as many of its bytes as they can. E_LIMIT: the bytes that
   no ticket covers do not fit at the phys, or the bytes that the account does not hold yet are over
   its limit. */
MLI_PRIVATE MLI_COLD memlord_result mli_reservation_open(memlord *lord, mli_phys *phys,
                                                         mli_thread *t, const mli_reserve *ask,
                                                         memlord_ticket *out);

/* Attaches a ticket to this thread: later allocs of the thread draw on it. If the thread then has
   more than MLI_TICKETS_MAX, detaches the earliest. Attaches none to the orphan record, whose calls
   come from many threads. */
MLI_PRIVATE void mli_ticket_attach(memlord *lord, mli_thread *t, memlord_ticket ticket);

/* The part of an alloc that may come off tickets. It is in flight while the alloc is recorded. */
typedef struct mli_ticket_draw {
    mli_phys *phys; /* NULL: nothing comes off tickets */
    uint64_t bytes;
    memlord_ticket named; /* the only ticket that the bytes come off; 0: the tickets of the
                             thread */
} mli_ticket_draw;
MLI_TABLE(const mli_ticket_draw mli_draw_none)

/* Marks the bytes of an alloc as in flight before the alloc is recorded, if they can come off a
   ticket. */
MLI_PRIVATE MLI_COLD void mli_ticket_draw_begin(memlord *lord, mli_thread *t, uint32_t dev,
                                                uint64_t bytes, mli_ticket_draw *draw);

/* Takes the bytes of a recorded alloc off the ticket that it names, or off the tickets that the
   thread has at the phys. It draws on several of these if one is not enough, the earliest first. So
   the rest that an alloc leaves on its ticket is drawn first. Otherwise a thread with a ticket for
   each alloc would have bytes that are both live and reserved. */
MLI_PRIVATE MLI_COLD void mli_ticket_draw_end(memlord *lord, mli_thread *t,
                                              const mli_ticket_draw *draw, int recorded);

MLI_PRIVATE MLI_COLD void mli_limits_life(mli_life *life);

#endif
