/* Writes a profile as the JSON it was read from, with the names of its places. Owns no state.
   Locks: none. */
#ifndef MLR_COMMAND_NAMED_H
#define MLR_COMMAND_NAMED_H
#include "profile/read.h"
#include "profile/text.h"

/* `text` is what the profile was read from. Its "frames" are written anew; all else stays as it is,
   because it refers to them by number. A text of an older schema stays as a whole. */
MLR_PRIVATE mlr_result mlr_named_write(const mlr_profile *profile, const char *text, size_t size,
                                       mlr_out *out);

#endif
