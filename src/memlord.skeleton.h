#include "api/manual.h"
#include "api/api.h"
#include "api/pmr.h"
#include "api/prefix.h"

/* --------------------------------------------------------------- >>implementation -- */
#if defined(MEMLORD_IMPLEMENTATION) && !defined(MEMLORD_DISABLE) && !defined(MLI_EMITTED) && \
    !defined(MLI_READ_PREFIX)
#define MLI_EMITTED

/* join: os base books calls services reports embed */

#endif /* MEMLORD_IMPLEMENTATION */

#include "api/shim.h"
