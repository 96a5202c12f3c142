/* Owns the physical devices (phys) and the reservations; services/room takes the samples, and opens
   reservations, because it can explain a refusal. Invariant: a device changes from one phys to
   another only under the locks of both. Lock: each phys has one (MLI_RANK_PHYS); a thread takes two
   of them only under the cold lock. */
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

/* Returns the phys of a device. The acquire load pairs with mli_phys_assign. */
MLI_PRIVATE mli_phys *mli_phys_at(memlord *lord, uint32_t dev);
/* Locks the phys of a device, and returns it. While it waits, memlord_device_share may assign
   another, so it looks again under the lock. */
MLI_PRIVATE mli_phys *mli_phys_lock(memlord *lord, uint32_t dev);

/* Finds the phys of a device; of a new one only if `make` is 1, else MEMLORD_E_UNKNOWN and NULL. */
MLI_PRIVATE MLI_COLD memlord_result mli_phys_find(memlord *lord, memlord_device d, int make,
                                                  mli_phys **out);

/* Returns the first device after `dev` that is at a phys, or at any if `phys` is NULL; or 0. */
MLI_PRIVATE MLI_NOINLINE uint32_t mli_phys_next_dev(memlord *lord, const mli_phys *phys,
                                                    uint32_t dev);

MLI_PRIVATE uint64_t mli_phys_live(memlord *lord, const mli_phys *phys);

/* Returns 1 if the bytes of a device use the capacity of its phys. Mapped files are page cache. */
MLI_PRIVATE int mli_dev_uses_capacity(const memlord *lord, uint32_t dev);

/* Returns the bytes that a device holds: the larger of its live bytes and the bytes of its pool. */
MLI_PRIVATE uint64_t mli_dev_held(memlord *lord, uint32_t dev, uint64_t live);

/* Sets *held to the bytes that the ledger's devices hold at a phys. Returns `used` of the latest
   sample plus what these have gained since. Sets *part to the bytes by which `dev` counts in this
   sum, unless it does not count or is 0. Requires: the caller holds the phys lock. */
MLI_PRIVATE MLI_COLD uint64_t mli_phys_grown(memlord *lord, const mli_phys *phys, uint32_t dev,
                                             uint64_t *held, uint64_t *part);
/* Does the same. The result is at least *held. */
MLI_PRIVATE uint64_t mli_phys_used(memlord *lord, const mli_phys *phys, uint64_t *held);

/* Adds to statistics a phys's limit, the bytes that tickets hold there, and those of neighbours. */
MLI_PRIVATE void mli_phys_stats_add(mli_phys *phys, memlord_stats *sum);
/* Assigns a device to another phys, under the locks of both. These have no order, so a thread may
   hold both only under the cold lock, which a fork takes first, too. Returns MEMLORD_E_STATE if
   tickets have bytes of the old phys, because these may be for this device, or if other devices are
   at this device's own phys, unless `to` is that phys. */
MLI_PRIVATE MLI_COLD memlord_result mli_phys_assign(memlord *lord, uint32_t dev, mli_phys *to);
/* Copies a device's last failed request, under the lock of its phys. */
MLI_PRIVATE mli_oom mli_oom_of(memlord *lord, uint32_t dev);

/* Returns main memory (i is 0) or the own phys of dev i; NULL if this device is at another phys. */
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

/* Returns bytes as a signed number, at most 2^62, so that no difference of two overflows. */
MLI_PRIVATE int64_t mli_bytes_signed(uint64_t bytes);

/* Sets *left to the bytes that the limit and the capacity of a phys leave for new requests. Returns
   0 if neither is known. Requires: the caller holds the phys lock. */
MLI_PRIVATE int mli_phys_available(memlord *lord, const mli_phys *phys, int64_t *left);

/* Returns the bytes that all threads have allocated on a device (the sums of `level` and `out`) or,
   if `allocated` is 0, have freed there. A free writes `out` before `level`. If `high` is 1, loads
   `level` first, so that the sum is an upper bound; else `out`, for a lower bound. */
MLI_PRIVATE uint64_t mli_dev_sum(memlord *lord, uint32_t dev, int allocated, int high);

#if !defined(MEMLORD_NO_VERIFY)
MLI_PRIVATE MLI_COLD uint32_t mli_ticket_count(const memlord *lord);
/* Returns ticket record `number`; numbers begin at 1. */
MLI_PRIVATE MLI_COLD const mli_reservation *mli_ticket_at(const memlord *lord, uint32_t number);
#endif
/* Returns 1 if a ticket is open and is for the phys of `device`. */
MLI_PRIVATE MLI_COLD int mli_ticket_is_at(memlord *lord, memlord_ticket ticket,
                                          memlord_device device);

/* The bytes of a request (memlord_alloc_retry) that tickets cover, which means that the tickets
   have reserved them: the ticket that it names, else the tickets of its thread. The request opens a
   ticket of its own; the covered bytes move there, so that no other alloc draws them while it
   tries, and those that it has not used move back at its end. */
typedef struct mli_cover {
    uint64_t bytes; /* the bytes that all tickets cover: the sum of `part` */
    uint64_t held;  /* the part of `bytes` that is from tickets with the account of the request */
    uint32_t count; /* the number of tickets in the arrays */
    memlord_ticket ticket[MLI_TICKETS_MAX];
    uint64_t part[MLI_TICKETS_MAX]; /* the bytes that each ticket covers */
} mli_cover;
/* Moves the covered bytes that a request has not used back to the tickets that they came from and
   that are open. `request` is its own ticket. Sets cover->bytes to the bytes that it moved. */
MLI_PRIVATE MLI_COLD void mli_cover_return(memlord *lord, mli_phys *phys, mli_cover *cover,
                                           memlord_ticket request);

typedef struct mli_reserve {
    uint64_t bytes;
    memlord_account account; /* the account where the bytes count as held; 0: none */
    memlord_ticket named;    /* the only ticket that may cover it; 0: those of its thread */
    mli_cover *cover;        /* receives the covered bytes of a request, or NULL */
} mli_reserve;
/* Opens a ticket for bytes at a phys. If ask->cover is NULL, it belongs to the context of this
   thread. Else it is the ticket of a request, belongs to no context, and other tickets (mli_cover)
   cover what they can. Returns MEMLORD_E_LIMIT if the bytes that no ticket covers do not fit at the
   phys, or if those that the account does not hold yet are over its limit. */
MLI_PRIVATE MLI_COLD memlord_result mli_reservation_open(memlord *lord, mli_phys *phys,
                                                         mli_thread *t, const mli_reserve *ask,
                                                         memlord_ticket *out);

/* Attaches a ticket to this thread, so that its later allocs draw on it, and detaches the earliest
   beyond MLI_TICKETS_MAX. The orphan record gets none, because many threads share it. */
MLI_PRIVATE void mli_ticket_attach(memlord *lord, mli_thread *t, memlord_ticket ticket);

/* Begins an alloc of `bytes`: if the call names a ticket, or its thread has tickets, marks the
   bytes as in flight until the alloc is recorded. */
MLI_PRIVATE void mli_ticket_draw_begin(memlord *lord, mli_call *call, uint64_t bytes);

/* Charges the bytes of a block to an account, as mli_account_charge_block does. If the call draws
   on tickets of the account, the drawn bytes are no longer held from the same moment on. */
MLI_PRIVATE MLI_COLD int mli_ticket_charge(memlord *lord, mli_call *call, memlord_account account,
                                           uint64_t bytes);

/* Ends what mli_ticket_draw_begin began. If the alloc was recorded (`recorded` is 1), subtracts its
   bytes from the ticket that it names or else from those that the thread has at the phys, the
   earliest first, so that the bytes left on an earlier ticket serve a later alloc. */
MLI_PRIVATE MLI_COLD void mli_ticket_draw_end(memlord *lord, mli_call *call, int recorded);

MLI_TABLE(const mli_life mli_limits_life)

#endif
