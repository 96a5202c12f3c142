/* Writes PPROF, an uncompressed profile.proto
   (https://github.com/google/pprof/blob/main/proto/profile.proto). Owns no state. Locks: none. */
#ifndef MLR_FORMATS_PPROF_H
#define MLR_FORMATS_PPROF_H
#include "profile/read.h"
#include "profile/text.h"

/* A sample has the allocations of a stack or site since the last reset (alloc_objects and
   alloc_space), its live blocks (inuse_...), or the bytes that it held at the peak of its device
   (peak_space). Labels give the device and, if there is one, the tag and the part. The bytes of a
   part are a sample of their own, in which no object counts. The scopes that a block was allocated
   in are the callers of its site. Locations have the numbers of frames. The comments are the
   process, the anomalies and drops, and whether stacks are samples; `go tool pprof -comments` shows
   them. The location of a return address has the module as its mapping, and the address in the
   module's file, as if the module were loaded at 0. A mapping says that it has no functions, so
   that pprof looks for better names and lines in the file. */
MLR_PRIVATE mlr_result mlr_pprof(const mlr_profile *p, mlr_out *o);

#endif
