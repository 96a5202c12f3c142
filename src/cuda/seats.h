/* Owns the seats. A seat is the record of an attached ledger, with the description that the host
   gave. Seats are never freed, so a callback may keep a pointer to its seat. Locks:
   mli_cuda_process_lock. No thread holds it while it calls the ledger. */
#ifndef MLI_CUDA_SEATS_H
#define MLI_CUDA_SEATS_H
#include "cuda/api/api.h"
#include "cuda/knobs.h"
#include "cuda/system.h"
#include "cuda/driver.h"

/* The states of a seat. While it is CHANGING, one thread attaches or detaches its ledger, and no
   other thread may claim it. */
enum { MLI_CUDA_EMPTY, MLI_CUDA_CHANGING, MLI_CUDA_TAKEN };

typedef struct mli_cuda_attachment {
    int state;           /* MLI_CUDA_EMPTY, _CHANGING or _TAKEN */
    memlord *lord;       /* the ledger, or the last ledger of an empty seat */
    mli_cuda_u64 key;    /* the ledger's address, for threads that look without the lock; 0 if the
                            ledger is not attached; stored with release after `flags` */
    mli_cuda_u64 flags;  /* MEMLORD_CUDA_FLAG_... */
    mli_cuda_u64 keep_bytes; /* the bytes that a trim leaves in a device's pools */
    memlord_retry retry; /* the host's retry policy, if has_retry is 1; used under
                            mli_cuda_process_lock */
    int has_retry;       /* 1: `retry` is set; used under mli_cuda_process_lock */
    int has_nvml; /* 1: the seat is a user of NVML; used only by the thread that changes the seat */
    /* 1: the layer has told the ledger that the device shares the memory of the cpu */
    unsigned char shared[MEMLORD_CUDA_MAX_DEVICES];
    /* 1: the layer keeps the ledger's reserved bytes of the device up to date */
    mli_cuda_u64 pooled[MEMLORD_CUDA_MAX_DEVICES];
    /* the bytes that were in use on the device before this process made a context there; 0 if not
       known */
    mli_cuda_u64 before[MEMLORD_CUDA_MAX_DEVICES];
    /* the bytes that the driver needs for this process's context on the device; 0 if not known */
    mli_cuda_u64 context[MEMLORD_CUDA_MAX_DEVICES];
    /* 1: the ledger was told the UUID of the device */
    mli_cuda_u64 identified[MEMLORD_CUDA_MAX_DEVICES];
    /* the number of stream-ordered calls (such as cudaMallocAsync), counted only where there is an
       integrated GPU */
    mli_cuda_u64 calls;
} mli_cuda_attachment;

MLI_CUDA_TABLE(mli_cuda_lock mli_cuda_process_lock)
typedef struct mli_cuda_process_state {
    mli_cuda_attachment seats[MEMLORD_CUDA_MAX_LEDGERS];
    mli_cuda_u64 taken; /* the number of attached ledgers; changed under mli_cuda_process_lock */
} mli_cuda_process_state;
MLI_CUDA_VARIABLE(mli_cuda_process_state mli_cuda_process)

/* Returns the seat of a ledger, or NULL if the ledger is not attached. Takes no lock. */
MLI_CUDA_PRIVATE mli_cuda_attachment *mli_cuda_attachment_of(memlord *lord);

/* Claims the seat of a ledger, or else an empty one, for this thread to change. *seen gets the
   state that the seat had. Returns NULL if there is no empty seat, or if another thread changes the
   seat of this ledger. */
MLI_CUDA_PRIVATE mli_cuda_attachment *mli_cuda_attachment_claim(memlord *lord, int *seen);

/* Ends the change of a claimed seat, and sets its state. */
MLI_CUDA_PRIVATE void mli_cuda_attachment_set_state(mli_cuda_attachment *probe, int state);

/* Gives a claimed seat its description, or detaches its ledger if `desc` is NULL. Returns 1 if no
   ledger is attached any more. Loads NVML before it takes the lock, because loading may take long.
   Requires: the ledger does not call the seat's callbacks. */
MLI_CUDA_PRIVATE int mli_cuda_attachment_fill(mli_cuda_attachment *probe, int seen,
                                              const mli_cuda_driver *d,
                                              const memlord_cuda_desc *desc);

#endif
