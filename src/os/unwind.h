/* Has the unwinders, and knows MemLord's own frames. Locks: none. */
#ifndef MLI_OS_UNWIND_H
#define MLI_OS_UNWIND_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"

#define MLI_STACK_DEPTH_MAX 128
#if defined(__GNUC__)
#define MLI_RETURN_ADDRESS() __builtin_extract_return_addr(__builtin_return_address(0))
#else
#define MLI_RETURN_ADDRESS() _ReturnAddress()
#endif
#if defined(__linux__) && defined(__GNUC__) && UINTPTR_MAX > 0xffffffffu && \
    (defined(__x86_64__) || defined(__aarch64__))
#define MLI_FRAME_POINTERS 1 /* 1: a frame begins with the caller's frame pointer, and then has the
                                return address, so stacks can be walked */
#define MLI_FRAME_ADDRESS() __builtin_frame_address(0)
#else
#define MLI_FRAME_POINTERS 0
#define MLI_FRAME_ADDRESS() NULL
#endif

/* Returns 1 if a return address is in a function with MLI_OWN_FRAME. Such functions of MemLord run
   between the host's call and mli_call_get, which notes the return address in the host. */
#if defined(__GNUC__) && defined(__ELF__)
#define MLI_OWN_FRAME __attribute__((section("mli_own_frames")))
MLI_PRIVATE int mli_is_own(const void *address);
#else
#define MLI_OWN_FRAME
MLI_PRIVATE int mli_is_own(const void *address);
#endif

/* Writes the return addresses of the thread, the innermost first, at most `cap`. Returns how many
   it wrote, or 0 if the system has no unwinder. `user` is not used. */
#if MLI_WINDOWS
MLI_PRIVATE MLI_NOINLINE size_t mli_unwind(void *user, void **frames, size_t cap);
#elif defined(__GNUC__) && !defined(__arm__) && !defined(__APPLE__)
MLI_PRIVATE MLI_NOINLINE size_t mli_unwind(void *user, void **frames, size_t cap);
#elif defined(__APPLE__)
MLI_PRIVATE MLI_NOINLINE size_t mli_unwind(void *user, void **frames, size_t cap);
#else
MLI_PRIVATE size_t mli_unwind(void *user, void **frames, size_t cap);
#endif

#endif
