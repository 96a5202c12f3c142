/* The memory of the process (RSS) against the books. Owns no state. Locks: none.

   "Not in the books" is said if the process has in memory at least 32 MiB, and at least as much,
   more than what is live on the host and MemLord's own memory. Where the peak had as much, the
   allocator most likely keeps it free. "Not resident" is said if at least 64 MiB and half of
   what is live cannot be in memory. */
#ifndef MLR_ANSWERS_RESIDENT_H
#define MLR_ANSWERS_RESIDENT_H
#include "answers/build.h"

MLR_PRIVATE void mlr_resident_answer(mlr_build *b);

/* Returns 1 if a device is in the memory of the host. */
MLR_PRIVATE int mlr_is_host(const mlr_profile *p, uint32_t device);
/* Returns what the process has in memory and the books do not have. */
MLR_PRIVATE uint64_t mlr_outside_books(const mlr_profile *p);

#endif
