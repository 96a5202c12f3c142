/* Knows the functions that allocate for others: malloc and its kind, wrappers that everybody has,
   the standard libraries. Answers pass over them to who calls them. Owns the list of their names.
   Locks: none. */
#ifndef MLR_ANSWERS_WRAPPERS_H
#define MLR_ANSWERS_WRAPPERS_H
#include "profile/profile.h"

/* Returns 1 if a function, by its name as symbols or demanglers write it, only allocates for its
   caller, or is in a standard library. */
MLR_PRIVATE int mlr_is_wrapper(const char *function);

/* Sets `library` of such functions, and `shown` of each frame to its innermost function that is
   not one, or to its outermost. May be called again. */
MLR_PRIVATE void mlr_wrappers_mark(mlr_profile *profile);

#endif
