/* Must not compile: an stb_ds with its own names is here already. */
#include <stb/stb_ds.h>
#define MEMLORD_IMPLEMENTATION
#include "memlord.h"
