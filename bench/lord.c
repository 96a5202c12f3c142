/* MemLord as a host carries it: one C file with the implementation, called from others. */
#define MEMLORD_IMPLEMENTATION
#ifdef BENCH_MEMLORD_H
#include BENCH_MEMLORD_H
#else
#include "../memlord.h"
#endif
