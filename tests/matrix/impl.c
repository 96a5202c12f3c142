/* The one file of a host that holds the implementation. */
#if defined(MEMLORD_CHECK_LOCKS)
#define MEMLORD_ASSERT(expression) ((expression) ? (void)0 : abort())
#endif
#define MEMLORD_IMPLEMENTATION
#include "memlord.h"
