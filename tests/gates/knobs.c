/* A host with both headers and their implementations in one file, for tests/gates/knobs.sh: the knobs
   are defined on the command line. */
#define MEMLORD_IMPLEMENTATION
#define MEMLORD_CUDA_IMPLEMENTATION
#define USE use
#include "../matrix/use.c"
#undef USE
#define USE use_cuda
#include "../matrix/cuda_use.c"
