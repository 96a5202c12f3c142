/* Finds the line by which a series of bytes rises up to its end. Owns the rule of what rises. It
   knows nothing of profiles. Locks: none.

   A series rises from a point on if a straight line, each point weighted by the time it stands for,
   fits with an R2 of at least 0.8, and
   - it has at least 8 points over at least an eighth of the time;
   - its last eighth is not below the line through the rest by more than a quarter of what the line
     rises there, nor by more than noise explains;
   - its last point is not below its mean;
   - no earlier point is above its middle, so that the last tooth of a sawtooth does not rise.
   It is looked for from the kink of two lines, and in all, the last half, the last quarter and the
   last eighth of the time. Where noise hides it, the same is asked of the lowest points of 16
   parts of the time, which must rise by at least half of the noise. */
#ifndef MLR_ANSWERS_LINE_H
#define MLR_ANSWERS_LINE_H
#include "profile/profile.h"

typedef struct mlr_point {
    double t, y; /* minutes; bytes */
} mlr_point;
typedef struct mlr_line {
    double slope;    /* bytes a minute; 0: the series does not rise */
    double fit;      /* R2 */
    double rise;     /* bytes from where it begins to its last point */
    uint32_t since;  /* the point where it begins */
    uint32_t points; /* how many it goes through */
} mlr_line;

/* Looks for a line up to the last of n points. Their times rise. `room` has memory for n points. */
MLR_PRIVATE mlr_line mlr_line_find(const mlr_point *point, uint32_t n, double *room);
/* Returns how many points a series has before it is level up to its end, so that a line is looked
   for in these; n if it is not level. */
MLR_PRIVATE uint32_t mlr_line_end(const mlr_point *point, uint32_t n);

#endif
