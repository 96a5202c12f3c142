/* Has the unwinder that follows frame pointers. It owns no state. It may use os/ and mli_self, the
   state of the current thread. Locks: none. */
#ifndef MLI_BASE_FRAMES_H
#define MLI_BASE_FRAMES_H
#include "api/api.h"

#endif
