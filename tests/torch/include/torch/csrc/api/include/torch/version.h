/* The version of the shapes in c10/cuda, in the words of PyTorch's header of this name. */
#pragma once

#if STAND_IN == 22
#define TORCH_VERSION "2.2.0"
#elif STAND_IN == 26
#define TORCH_VERSION "2.6.0"
#elif STAND_IN == 28
#define TORCH_VERSION "2.8.0"
#else
#define TORCH_VERSION "2.14.0"
#endif
