/* Owns which ledgers are attached, and how. Seats are never freed, so callbacks may hold one.
   Locks: seats_lock, never while the ledger is called. */
#ifndef MLI_CUDA_SEATS_H
#define MLI_CUDA_SEATS_H
#include "cuda/api/api.h"
#include "cuda/knobs.h"
#include "cuda/system.h"
#include "cuda/driver.h"

enum { MLI_CUDA_EMPTY, MLI_CUDA_CHANGING, MLI_CUDA_TAKEN };

typedef struct mli_cuda_attachment {
    int state;
    memlord *lord;
    mli_cuda_u64 key;    /* the ledger's address, for those that look without the lock; the
                            flags are stored before it, released by it */
    mli_cuda_u64 flags;  /* MEMLORD_CUDA_FLAG_... */
    mli_cuda_u64 keep_bytes;
    memlord_retry retry; /* and whether there is one: under the lock */
    int has_retry;
    int has_nvml; /* is one of its users; for the thread that changes the seat alone */
    unsigned char shared[MEMLORD_CUDA_MAX_DEVICES]; /* devices we put into the cpu's memory */
    mli_cuda_u64 pooled[MEMLORD_CUDA_MAX_DEVICES];  /* 1: the layer sets `reserved` */
    mli_cuda_u64 before[MEMLORD_CUDA_MAX_DEVICES];  /* used when there was no context yet, */
    mli_cuda_u64 context[MEMLORD_CUDA_MAX_DEVICES]; /* and by that; 0: not known */
    mli_cuda_u64 identified[MEMLORD_CUDA_MAX_DEVICES]; /* 1: the ledger has its identity */
    mli_cuda_u64 calls; /* stream-ordered ones, where those have to look at the pool */
} mli_cuda_attachment;

MLI_CUDA_TABLE(mli_cuda_lock mli_cuda_process_lock)
typedef struct mli_cuda_process_state {
    mli_cuda_attachment seats[MEMLORD_CUDA_MAX_LEDGERS];
    mli_cuda_u64 taken; /* so many; changed under the lock */
} mli_cuda_process_state;
MLI_CUDA_VARIABLE(mli_cuda_process_state mli_cuda_process)

/* The seat of a ledger that is attached, without the lock; NULL: it is not. */
MLI_CUDA_PRIVATE mli_cuda_attachment *mli_cuda_attachment_of(memlord *lord);

/* Takes a ledger's seat, or else an empty one, to change it; *seen is its state before. NULL: there
   is none, or another thread changes it. */
MLI_CUDA_PRIVATE mli_cuda_attachment *mli_cuda_attachment_claim(memlord *lord, int *seen);

MLI_CUDA_PRIVATE void mli_cuda_attachment_set_state(mli_cuda_attachment *probe, int state);

/* Gives a claimed seat, of which nothing is hooked, its description; NULL takes it off. NVML loads
   outside the lock: it takes its time. 1: no seat is taken any more. */
MLI_CUDA_PRIVATE int mli_cuda_attachment_fill(mli_cuda_attachment *probe, int seen,
                                              const mli_cuda_driver *d,
                                              const memlord_cuda_desc *desc);

#endif
