/* Scales the stacks of a sample, once, when a profile is read, so that the stacks of each site add
   up to the exact numbers of the site, and the groups to the exact live blocks and bytes. Picked
   blocks keep their own bytes; the rest of a site is divided among its stacks in proportion to what
   their picked blocks stand for, up to MLR_SCALE_MOST times as much; what no stack takes stays with
   the site, as a stack of one frame. Owns no state. Locks: none. */
#ifndef MLR_PROFILE_SCALE_H
#define MLR_PROFILE_SCALE_H
#include "profile/profile.h"

#define MLR_SCALE_MOST 4

/* A group as it is in the file. In a sample only picked blocks have a stack. */
typedef struct mlr_sampled {
    mlr_group of;
    uint64_t blocks, bytes; /* what its picked blocks stand for, with themselves; 0 in others */
} mlr_sampled;

/* Fills the groups of a profile, and corrects its stacks. Their node, device, site and numbers are
   as in the file, but live_blocks, which this fills. Changes the order of `rows`. Returns 0, or
   another number if there is no memory. */
MLR_PRIVATE int mlr_scale(mlr_profile *p, mlr_sampled *rows, uint32_t count);

#endif
