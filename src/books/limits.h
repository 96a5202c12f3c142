/* Owns the physical devices (phys) and the reservations: which devices share a phys, and the bytes
   live on it. services/room samples a phys, and opens reservations, because it explains a refusal.
   May use books/devices and books/counters.
   Invariant: a device changes its phys only under the locks of both. Lock: phys (MLI_RANK_PHYS);
   two only under cold. */
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
/* Locks the phys of a device and returns it. memlord_device_share may assign another one while
   this waits, so it compares again under the lock. */
MLI_PRIVATE mli_phys *mli_phys_lock(memlord *lord, uint32_t dev);

/* Finds the phys of a device. A device not yet seen is added if `make`; else E_UNKNOWN and
   *out is NULL. */
MLI_PRIVATE MLI_COLD memlord_result mli_phys_find(memlord *lord, memlord_device d, int make,
                                                  mli_phys **out);

/* Returns the first device after `dev` that is at a phys (NULL: at any); 0: there is none. A walk
   starts with 0. */
MLI_PRIVATE MLI_NOINLINE uint32_t mli_phys_next_dev(memlord *lord, const mli_phys *phys,
                                                    uint32_t dev);

/* Returns the live bytes of all devices at a phys. */
MLI_PRIVATE uint64_t mli_phys_live(memlord *lord, const mli_phys *phys);

/* Returns 1 if the bytes of a device count against its physical device. Bytes of mapped files do
   not, as they are page cache. */
MLI_PRIVATE int mli_dev_uses_capacity(const memlord *lord, uint32_t dev);

/* Returns the bytes that a device holds: the larger of its live bytes and those of its pool. */
MLI_PRIVATE uint64_t mli_dev_held(memlord *lord, uint32_t dev, uint64_t live);

/* Returns the bytes in use at a phys now, and at least *held, the bytes that the ledger's devices
   hold there. Without a known sample it returns *held. Requires: the caller holds the phys lock. */
MLI_PRIVATE uint64_t mli_phys_used(memlord *lord, const mli_phys *phys, uint64_t *held);

/* Adds to statistics the limit of a phys, the bytes that tickets keep there, and the bytes that
   neighbours hold there. */
MLI_PRIVATE void mli_phys_stats_add(mli_phys *phys, memlord_stats *sum);
/* Assigns a device to another phys, under the locks of both. The two locks have no order, so the
   cold lock makes this the only thread that holds two of them. A fork, which takes the locks of all
   phys, takes the cold lock first. E_STATE: the old phys has bytes of tickets, perhaps for this
   device, or other devices are at the device's own phys. */
MLI_PRIVATE MLI_COLD memlord_result mli_phys_assign(memlord *lord, uint32_t dev, mli_phys *to);
/* Copies a device's last failed request, under the lock of its phys. */
MLI_PRIVATE mli_oom mli_oom_of(memlord *lord, uint32_t dev);

/* Returns phys i, 0 to the number of devices; NULL: device i is at another phys. */
MLI_PRIVATE mli_phys *mli_phys_in_use(memlord *lord, uint32_t i);

MLI_PRIVATE double mli_nan(void);
/* Returns the used part of a capacity in percent; NaN: the capacity is unknown. */
MLI_PRIVATE MLI_COLD double mli_used_percent(const memlord_capacity *c);

typedef struct mli_reservation { /* a ticket; under the lock of its phys */
    mli_handle handle;
    mli_phys *phys;     /* of its list; never changes */
    mli_ptr owner;      /* mli_context *: the context that reserved or adopted it */
    uint64_t remaining; /* bytes no alloc has drawn yet */
    memlord_account account; /* the bytes are reserved in it, too, against its limit; 0: none */
} mli_reservation;

/* Returns a number of bytes, at most 2^62: differences of two cannot overflow. */
MLI_PRIVATE int64_t mli_bytes_signed(uint64_t bytes);

/* Computes the bytes left at a phys. Returns 0 if neither limit nor capacity is known. Requires:
   the caller holds the phys lock. */
MLI_PRIVATE int mli_phys_available(memlord *lord, const mli_phys *phys, int64_t *left);

/* Sums the allocated or the freed bytes of all cells of a device. A call writes a cell's out before
   its level: loaded after the level it gives an upper bound (`high`), loaded before it a lower
   one. */
MLI_PRIVATE uint64_t mli_dev_sum(memlord *lord, uint32_t dev, int allocated, int high);

#if !defined(MEMLORD_NO_VERIFY)
/* The first returns the number of ticket records. The second returns one of them; record 1 is the
   first. */
MLI_PRIVATE MLI_COLD uint32_t mli_ticket_count(const memlord *lord);
MLI_PRIVATE MLI_COLD const mli_reservation *mli_ticket_at(const memlord *lord, uint32_t number);
#endif
/* Returns 1 if a ticket is open, and belongs to the physical device of a device. */
MLI_PRIVATE MLI_COLD int mli_ticket_is_at(memlord *lord, memlord_ticket ticket,
                                          memlord_device device);

/* The bytes of a request that a named ticket or those of its thread cover. They move to the
   request's own ticket when it opens, so that nothing else can draw on them while it tries. Bytes
   that it has not used at its end move back. */
typedef struct mli_cover {
    uint64_t bytes; /* the sum of the parts */
    uint64_t held;  /* the part of these bytes that the account of the request holds */
    uint32_t count;
    memlord_ticket ticket[MLI_TICKETS_MAX];
    uint64_t part[MLI_TICKETS_MAX];
} mli_cover;
/* Moves the part of its cover that a request has not used back to the tickets that are still open.
   Sets cover->bytes to the bytes that it moved. */
MLI_PRIVATE MLI_COLD void mli_cover_return(memlord *lord, mli_phys *phys, mli_cover *cover,
                                           memlord_ticket request);

/* What a reservation asks for. */
typedef struct mli_reserve {
    uint64_t bytes;
    memlord_account account; /* 0: none */
    memlord_ticket named;
    mli_cover *cover;        /* NULL: no request */
} mli_reserve;
/* Opens a ticket for bytes at a phys, in the context of this thread. With `cover` opens the ticket
   of a request, which belongs to no thread. The named ticket covers as much of the request as it
   can; if none is named, the tickets of this thread do. E_LIMIT: the bytes that no ticket covers do
   not fit at the phys, or the bytes that the account does not hold yet do not fit in its limit. */
MLI_PRIVATE MLI_COLD memlord_result mli_reservation_open(memlord *lord, mli_phys *phys,
                                                         mli_thread *t, const mli_reserve *ask,
                                                         memlord_ticket *out);

/* Attaches a ticket to this thread: its later allocs draw on it. The earliest of more than
   MLI_TICKETS_MAX is detached. The orphan record takes none: its calls come from many threads. */
MLI_PRIVATE void mli_ticket_attach(memlord *lord, mli_thread *t, memlord_ticket ticket);

/* The part of an alloc that may come off tickets. It is in flight while the alloc is recorded. */
typedef struct mli_ticket_draw {
    mli_phys *phys; /* NULL: nothing comes off tickets */
    uint64_t bytes;
    memlord_ticket named; /* the only ticket that the bytes come off; 0: the tickets of the
                             thread */
} mli_ticket_draw;
MLI_TABLE(const mli_ticket_draw mli_draw_none)

/* Sets the bytes of an alloc in flight before it is recorded, if it has a ticket to come off. */
MLI_PRIVATE MLI_COLD void mli_ticket_draw_begin(memlord *lord, mli_thread *t, uint32_t dev,
                                                uint64_t bytes, mli_ticket_draw *draw);

/* Takes the bytes of a recorded alloc off the ticket that it names, or off the thread's tickets at
   its phys. It draws on several of these if one is not enough. An alloc that was smaller than its
   ticket leaves a rest, on which the next alloc draws first; with one ticket an alloc, bytes of
   that alloc's own ticket would stay reserved although they are live. */
MLI_PRIVATE MLI_COLD void mli_ticket_draw_end(memlord *lord, mli_thread *t,
                                              const mli_ticket_draw *draw, int recorded);

MLI_PRIVATE MLI_COLD void mli_limits_life(mli_life *life);

#endif
