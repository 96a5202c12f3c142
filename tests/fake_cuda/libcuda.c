/* libcuda.so.1 for tests: every function is the program's own fake_ one. */
#include "fake_cuda.h"

#define FAKE_X(name, params, args)                                                            \
    int name params;                                                                          \
    int name params { return fake_##name args; }
FAKE_DRIVER(FAKE_X)
