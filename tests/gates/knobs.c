/* A host with both headers and their implementations in one file, for tests/gates/knobs.sh: the knobs
   are defined on the command line. With ONLY_CUDA the implementation of memlord.h is left out. */
#if !defined(ONLY_CUDA)
#define MEMLORD_IMPLEMENTATION
#endif
#define MEMLORD_CUDA_IMPLEMENTATION
#define USE use
#include "../matrix/use.c"
#undef USE
#define USE use_cuda
#include "../matrix/cuda_use.c"
