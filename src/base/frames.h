/* Has the unwinder that follows frame pointers. Owns no state. Locks: none. */
#ifndef MLI_BASE_FRAMES_H
#define MLI_BASE_FRAMES_H
#include "api/api.h"

#endif
