/* Owns mlr_frames: what stands in a stack that a format writes, with a name for each. These are the
   frames of the profile, then words such as "(arena)", then the scopes. Invariants: no name is "";
   a stack has at most `deepest` frames. Locks: none. */
#ifndef MLR_FORMATS_FRAMES_H
#define MLR_FORMATS_FRAMES_H
#include "profile/profile.h"

/* Frames that are no place of code: of blocks without a site, of an arena, and of what a list of
   the largest leaves out. */
enum { MLR_KIND_UNKNOWN, MLR_KIND_ARENA, MLR_KIND_OTHERS, MLR_KINDS };

typedef struct mlr_frames {
    const mlr_profile *profile;
    uint32_t count, deepest;
    mlr_function *function; /* of all frames; those of frame i are first[i] to first[i + 1] - 1, the
                               innermost first */
    uint32_t *first;
    char *texts; /* the names of addresses, such as "libx.so+0x1234" */
} mlr_frames;

/* Returns 1, or 0 if there is no memory. mlr_frames_close frees what either result has left. */
MLR_PRIVATE int mlr_frames_open(mlr_frames *frames, const mlr_profile *profile);
MLR_PRIVATE void mlr_frames_close(mlr_frames *frames);

MLR_PRIVATE uint32_t mlr_frame_of_kind(const mlr_profile *profile, uint32_t kind);
MLR_PRIVATE uint32_t mlr_frame_of_scope(const mlr_profile *profile, uint32_t scope);

/* Returns the scope around a scope, or 0. It has a lower number. */
MLR_PRIVATE uint32_t mlr_scope_caller(const mlr_profile *profile, uint32_t scope);

/* Returns the frame that stands for the innermost frame of a stack: the site, if the program has
   named it and the address has no line of its own. Else returns the frame of the address. Requires:
   the stack has a node. */
MLR_PRIVATE uint32_t mlr_frame_innermost(const mlr_profile *profile, uint32_t stack);

/* A place as tables have it: each text "" and the line 0 if it is not known. An address without a
   name has one like "libx.so+0x1234" as its function. */
typedef struct mlr_place {
    const char *function, *file;
    uint32_t line;
} mlr_place;
/* Returns the place that answers show for a site, or one of "" for site 0. */
MLR_PRIVATE mlr_place mlr_place_of(const mlr_frames *frames, uint32_t site);

/* Where something was allocated. `kind` is used if there is neither a stack nor a site. */
typedef struct mlr_where {
    uint32_t site, stack, scope, kind;
} mlr_where;

/* Writes the frames of a place, the innermost first, to a buffer for `deepest` frames: the stack or
   else the site or the kind, then the scopes. Returns how many there are. */
MLR_PRIVATE uint32_t mlr_frames_of(const mlr_frames *frames, const mlr_where *where, uint32_t *to);

#endif
