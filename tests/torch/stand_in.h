/* stand_in.h - what the tests do to the stand-in for PyTorch's allocator. Addresses are numbers. */
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>

extern "C" {
void stand_in_init(int ready, int refuses); /* refuses: it has no trace to attach to */
void stand_in_history(int on);              /* _record_memory_history is used by somebody else */
uint64_t stand_in_alloc(int device, uint64_t size, uint64_t stream, int expandable); /* 0: full */
void stand_in_record_stream(int device, uint64_t at); /* another stream uses it */
void stand_in_free(int device, uint64_t at);
void stand_in_streams_done(int device);
void stand_in_empty_cache(int device);
/* Shows the trackers an entry, whatever it says. */
void stand_in_entry(int action, int device, uint64_t address, uint64_t size);
/* Its own sums: "allocated", "active", "requested" or "reserved". */
int64_t stand_in_bytes(int device, const char *what);
/* Is called as a tracker was attached (0), and as a snapshot is complete (1). */
void stand_in_meanwhile(void (*hook)(int step));
int stand_in_memory_asked(void); /* calls of cudaMemGetInfo */
}
