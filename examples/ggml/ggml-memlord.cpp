// ggml-memlord.cpp: MemLord itself, and its hooks in ggml. Goes into ggml/src.
#define MEMLORD_IMPLEMENTATION
#include "memlord.h"
#include "ggml-backend-impl.h"
#include "ggml-memlord.h"
