/* Has memlord_reset and memlord_peak_reset. Owns no state. Invariant: a reset never changes the
   live bytes, only totals and peaks. Locks: the cold lock while totals start over, then the locks
   of the modules in their order. */
#ifndef MLI_EMBED_RESET_H
#define MLI_EMBED_RESET_H
#include "api/api.h"



#endif
