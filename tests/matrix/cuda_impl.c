/* The one file of a host that holds the CUDA layer's implementation. */
#include "memlord.h"
#define MEMLORD_CUDA_IMPLEMENTATION
#include "memlord_cuda.h"
