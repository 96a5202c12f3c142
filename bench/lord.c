/* MemLord as a host carries it: one C file with the implementation, called from others. */
#define MEMLORD_IMPLEMENTATION
#include "../memlord.h"
