/* Owns the ledger's slot on the pressure page, with which it asks its neighbours for memory and
   answers them; to wake another ledger, it rings the bell of that slot. Also owns the listener, the
   thread that waits for requests. Invariant: only the owner of a slot writes it.
   MEMLORD_NO_NEIGHBOURS leaves the module out. Lock: neighbours. */
#ifndef MLI_SERVICES_NEIGHBOURS_H
#define MLI_SERVICES_NEIGHBOURS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "os/system.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "services/pages.h"

/* A request to the neighbours. The record lies on the stack of the thread that asks. */
typedef struct mli_raise {
    struct mli_raise *next;
    mli_os_event *event; /* set when this ledger's bell was rung; NULL: no thread waits */
    uint64_t id;         /* identity of the device that needs memory */
    uint64_t number;     /* number of the request in the ledger's slot */
    uint64_t needed;     /* bytes that the request asks for */
    struct { /* each slot when the request began */
        uint64_t owner; /* owner of the slot; 0: the slot is not asked */
        uint64_t held, released;
    } before[MLI_PAGE_SLOTS];
} mli_raise;

/* The functions that other modules call once a page has been opened, by a pointer, so that a
   program that opens no page does not link them. */
typedef struct mli_neighbours {
    void (*serve)(memlord *lord); /* does the listener's work on this thread */
    /* Starts the listener unless it runs, when a page is opened, and in a forked child. */
    memlord_result (*listen)(memlord *lord);
    /* Asks the neighbours for bytes of a physical device. Returns E_STATE if no page is open, and
       E_UNKNOWN if the device is not on the page. After OK *raise stays in the list of requests
       until raise_end. */
    memlord_result (*raise_begin)(memlord *lord, const mli_phys *phys, uint64_t needed,
                                  mli_raise *raise);
    void (*raise_end)(memlord *lord, mli_raise *raise);
    /* Returns 1 if the neighbours have released enough, 0 while some have not answered yet, and -1
       once all have, or if the page is closed. A process that ended has released all that it
       held. */
    int (*raise_check)(memlord *lord, const mli_raise *raise);
    /* Leaves the page when it is closed or the ledger ends. Requires: the caller is not the
       listener. */
    void (*end)(memlord *lord);
    void (*forked)(memlord *lord); /* gives up the parent's slot in a forked child */
} mli_neighbours;

/* Returns the functions, or NULL before a page is opened. Pairs with memlord_pressure_open. */
MLI_PRIVATE MLI_COLD const mli_neighbours *mli_neighbours_of(memlord *lord);

MLI_TABLE(const mli_life mli_neighbours_life)

#endif
