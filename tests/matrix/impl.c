/* The one file of a host that holds the implementation. */
#define MEMLORD_IMPLEMENTATION
#include "memlord.h"
