/* Owns the bounds that a host may set by macros, and the macros of private declarations. Uses no
   other module. Locks: none. */
#ifndef MLI_CUDA_KNOBS_H
#define MLI_CUDA_KNOBS_H
#include "cuda/api/api.h"

#ifndef MEMLORD_CUDA_MAX_LEDGERS
#define MEMLORD_CUDA_MAX_LEDGERS 16
#endif
#ifndef MEMLORD_CUDA_MAX_DEVICES
#define MEMLORD_CUDA_MAX_DEVICES 64
#endif
#ifndef MEMLORD_CUDA_MAX_EVENTS
#define MEMLORD_CUDA_MAX_EVENTS 256
#endif
#if MEMLORD_CUDA_MAX_LEDGERS < 1 || MEMLORD_CUDA_MAX_DEVICES < 1 || MEMLORD_CUDA_MAX_EVENTS < 0
#error "MEMLORD_CUDA_MAX_LEDGERS and _DEVICES are at least 1, _EVENTS at least 0"
#endif
#ifndef MEMLORD_CUDA_SHIM_LORD
#define MEMLORD_CUDA_SHIM_LORD memlord_global()
#endif
#if defined(MEMLORD_CUDA_WRAP) && !defined(__GNUC__)
#error "MEMLORD_CUDA_WRAP is for linkers that know --wrap, and their compilers"
#endif

#if defined(MEMLORD_CUDA_NVTX)
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic" /* the header casts object pointers to function
                                               pointers */
#endif
#include <nvtx3/nvToolsExt.h>
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
#endif

#include <stdio.h> /* snprintf */

/* The linkage of private functions, tables and variables that several modules use: static in the
   product, extern where each module is an object of its own. */
#if defined(MLI_MODULES)
#define MLI_CUDA_PRIVATE
#define MLI_CUDA_TABLE(...) extern __VA_ARGS__;
#define MLI_CUDA_VARIABLE(...) extern __VA_ARGS__;
#define MLI_CUDA_VARIABLE_HERE(...) __VA_ARGS__;
#else
#define MLI_CUDA_PRIVATE static
#define MLI_CUDA_TABLE(...)
#define MLI_CUDA_VARIABLE(...) static __VA_ARGS__;
#define MLI_CUDA_VARIABLE_HERE(...)
#endif

#endif
