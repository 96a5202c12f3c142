#ifndef MEMLORD_CUDA_H
#define MEMLORD_CUDA_H

#include "cuda/api/setup.h"
#include "cuda/api/functions.h"

#endif /* MEMLORD_CUDA_H */
