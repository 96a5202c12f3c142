/* Owns the physical devices (phys) and the reservations. A phys is memory that several devices may
   share; a device is at the phys that has its bytes. A reservation keeps bytes of a phys for later
   allocs, and a ticket is its id. An alloc draws on a ticket: once the alloc is recorded, its bytes
   are subtracted from those of the ticket. Until then the bytes are in flight. A dev is the number
   of a device. A row has the counters of a device. Each thread counts in a cell of its own. To
   publish a cell is to add its bytes to the row; up to a batch of them may be unpublished.
   services/room takes the samples of a phys, and opens reservations, because services/room can
   explain why a reservation is refused. May use books/devices, books/counters and books/accounts.
   Invariant: a device changes from one phys to another only under the locks of both. Lock: each
   phys has one (MLI_RANK_PHYS); a thread takes two of them only under the cold lock. */
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

/* Returns the phys of a device. The acquire load pairs with the release store in
   mli_phys_assign. */
MLI_PRIVATE mli_phys *mli_phys_at(memlord *lord, uint32_t dev);
/* Locks the phys of a device, and returns the phys. While the function waits for the lock,
   memlord_device_share may assign another phys, so the function looks again under the lock. */
MLI_PRIVATE mli_phys *mli_phys_lock(memlord *lord, uint32_t dev);

/* Finds the phys of a device. If the device is new and `make` is 1, adds the device. If the device
   is new and `make` is 0, sets *out to NULL and returns MEMLORD_E_UNKNOWN. */
MLI_PRIVATE MLI_COLD memlord_result mli_phys_find(memlord *lord, memlord_device d, int make,
                                                  mli_phys **out);

/* Returns the first device after `dev` that is at a phys, or at any phys if `phys` is NULL. Returns
   0 if there is no further device. A walk starts with a `dev` of 0. */
MLI_PRIVATE MLI_NOINLINE uint32_t mli_phys_next_dev(memlord *lord, const mli_phys *phys,
                                                    uint32_t dev);

/* Returns the live bytes of all devices at a phys. */
MLI_PRIVATE uint64_t mli_phys_live(memlord *lord, const mli_phys *phys);

/* Returns 1 if the bytes of a device use the capacity of its physical device. The bytes of mapped
   files do not, because they are page cache. */
MLI_PRIVATE int mli_dev_uses_capacity(const memlord *lord, uint32_t dev);

/* Returns the bytes that a device holds: the larger of its live bytes and the bytes of its pool. */
MLI_PRIVATE uint64_t mli_dev_held(memlord *lord, uint32_t dev, uint64_t live);

/* Sets *held to the bytes that the ledger's devices hold at a phys. Returns `used` of the latest
   sample, plus what these devices have gained since. Sets *part to the bytes by which `dev` counts
   in this sum, unless `dev` does not count or is 0. Requires: the caller holds the phys lock. */
MLI_PRIVATE MLI_COLD uint64_t mli_phys_grown(memlord *lord, const mli_phys *phys, uint32_t dev,
                                             uint64_t *held, uint64_t *part);
/* Does the same. The result is at least *held. */
MLI_PRIVATE uint64_t mli_phys_used(memlord *lord, const mli_phys *phys, uint64_t *held);

/* Adds figures of a phys to statistics: its limit, the bytes that tickets hold there, and the bytes
   that neighbours (ledgers of other processes) hold there. */
MLI_PRIVATE void mli_phys_stats_add(mli_phys *phys, memlord_stats *sum);
/* Assigns a device to another phys, under the locks of both. The locks of two phys have no order,
   so a thread may hold both only while it holds the cold lock, as this function does. A fork, which
   takes the locks of all phys, takes the cold lock first. Returns MEMLORD_E_STATE if tickets have
   bytes of the old phys, because these may be for this device. Returns the same if other devices
   are at this device's own phys, unless `to` is that phys. */
MLI_PRIVATE MLI_COLD memlord_result mli_phys_assign(memlord *lord, uint32_t dev, mli_phys *to);
/* Copies a device's last failed request, under the lock of its phys. */
MLI_PRIVATE mli_oom mli_oom_of(memlord *lord, uint32_t dev);

/* Returns phys i, which is main memory (i is 0) or the own phys of the device with dev i. Returns
   NULL if this device is at another phys. */
MLI_PRIVATE mli_phys *mli_phys_in_use(memlord *lord, uint32_t i);

/* Returns the used part of a capacity in percent, or -1 if the capacity is unknown. */
MLI_PRIVATE MLI_COLD double mli_used_percent(const memlord_capacity *c);

typedef struct mli_reservation { /* the record of a ticket, which the lock of its phys guards */
    mli_handle handle;
    mli_phys *phys;     /* the phys to which the record belongs; never changes */
    mli_ptr owner;      /* mli_context *: the context that reserved or adopted the ticket */
    uint64_t remaining; /* the bytes that no alloc has drawn yet */
    memlord_account account; /* the account where the bytes count as held; 0: none */
} mli_reservation;

/* Returns a number of bytes as a signed number, at most 2^62, so that the difference of two such
   numbers cannot overflow. */
MLI_PRIVATE int64_t mli_bytes_signed(uint64_t bytes);

/* Sets *left to the bytes that the limit and the capacity of a phys leave for new requests, and
   returns 1. If neither limit nor capacity is known, returns 0. Requires: the caller holds the phys
   lock. */
MLI_PRIVATE int mli_phys_available(memlord *lord, const mli_phys *phys, int64_t *left);

/* Returns the bytes that all threads have allocated on a device. If `allocated` is 0, returns the
   bytes that they have freed there. A cell's `out` is the bytes freed, and the sum of its `level`
   and `out` is the bytes allocated. A free writes `out` before `level`. If `high` is 1, the
   function loads `level` before `out`, so that the sum is an upper bound. If `high` is 0, it loads
   `out` first, and the sum is a lower bound. */
MLI_PRIVATE uint64_t mli_dev_sum(memlord *lord, uint32_t dev, int allocated, int high);

#if !defined(MEMLORD_NO_VERIFY)
/* Returns the number of ticket records. */
MLI_PRIVATE MLI_COLD uint32_t mli_ticket_count(const memlord *lord);
/* Returns ticket record `number`; numbers begin at 1. */
MLI_PRIVATE MLI_COLD const mli_reservation *mli_ticket_at(const memlord *lord, uint32_t number);
#endif
/* Returns 1 if a ticket is open and is for the phys of `device`. */
MLI_PRIVATE MLI_COLD int mli_ticket_is_at(memlord *lord, memlord_ticket ticket,
                                          memlord_device device);

/* The bytes of a request (memlord_alloc_retry) that tickets cover, which means that the tickets
   have reserved them. If the request names a ticket, only that ticket covers bytes; otherwise the
   tickets of its thread do. The request opens a ticket of its own, and the covered bytes move to
   that ticket, so that no other alloc draws them while the request tries. At the end of the request
   the bytes that it has not used move back. */
typedef struct mli_cover {
    uint64_t bytes; /* the bytes that all tickets cover: the sum of `part` */
    uint64_t held;  /* the part of `bytes` that is from tickets with the account of the request */
    uint32_t count; /* the number of tickets in the arrays */
    memlord_ticket ticket[MLI_TICKETS_MAX];
    uint64_t part[MLI_TICKETS_MAX]; /* the bytes that each ticket covers */
} mli_cover;
/* Moves the covered bytes that a request has not used back to the tickets that they came from. A
   ticket that was closed meanwhile gets none. `request` is the request's own ticket. Sets
   cover->bytes to the number of bytes that it moved. */
MLI_PRIVATE MLI_COLD void mli_cover_return(memlord *lord, mli_phys *phys, mli_cover *cover,
                                           memlord_ticket request);

/* What a reservation asks for. */
typedef struct mli_reserve {
    uint64_t bytes;
    memlord_account account; /* the account where the bytes count as held; 0: none */
    memlord_ticket named;    /* the only ticket that may cover a request; 0 means that the tickets
                                of its thread may */
    mli_cover *cover;        /* receives the covered bytes of a request; NULL for
                                memlord_reserve */
} mli_reserve;
/* Opens a ticket for bytes at a phys. If ask->cover is NULL, the ticket belongs to the context of
   this thread. Otherwise it is the ticket of a request, and belongs to no context. Then other
   tickets (see mli_cover) cover as many bytes of the request as they can. Returns MEMLORD_E_LIMIT
   if the bytes that no ticket covers do not fit at the phys, or if the bytes that the account does
   not hold yet are over its limit. */
MLI_PRIVATE MLI_COLD memlord_result mli_reservation_open(memlord *lord, mli_phys *phys,
                                                         mli_thread *t, const mli_reserve *ask,
                                                         memlord_ticket *out);

/* Attaches a ticket to this thread, so that later allocs of the thread draw on it. If the thread
   then has more than MLI_TICKETS_MAX tickets, detaches the earliest. Attaches no ticket to the
   orphan record, which many threads share. */
MLI_PRIVATE void mli_ticket_attach(memlord *lord, mli_thread *t, memlord_ticket ticket);

/* Begins an alloc of `bytes`: if the call names a ticket, or its thread has tickets, marks the
   bytes as in flight until the alloc is recorded. */
MLI_PRIVATE void mli_ticket_draw_begin(memlord *lord, mli_call *call, uint64_t bytes);

/* Charges the bytes of a block to an account, as mli_account_charge_block does. If the call draws
   on tickets of the account, the drawn bytes are no longer held from the same moment on. */
MLI_PRIVATE MLI_COLD int mli_ticket_charge(memlord *lord, mli_call *call, memlord_account account,
                                           uint64_t bytes);

/* Ends what mli_ticket_draw_begin began: the bytes of the alloc are no longer in flight. If the
   alloc was recorded (`recorded` is 1), subtracts its bytes from the ticket that it names or, if it
   names none, from the tickets that the thread has at the phys, the earliest first. So the bytes
   that an alloc has left on an earlier ticket serve a later alloc, and do not stay reserved. */
MLI_PRIVATE MLI_COLD void mli_ticket_draw_end(memlord *lord, mli_call *call, int recorded);

MLI_PRIVATE MLI_COLD void mli_limits_life(mli_life *life);

#endif
