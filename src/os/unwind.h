/* Owns the return addresses and frames of the current stack: unwinders, MemLord's own frames, marks
   of callbacks left by longjmp. May use os/system. Locks: none. */
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
#define MLI_FRAME_POINTERS 1 /* a frame begins with that of the caller, and the return address */
#define MLI_FRAME_ADDRESS() __builtin_frame_address(0)
#else
#define MLI_FRAME_POINTERS 0
#define MLI_FRAME_ADDRESS() NULL
#endif
#if defined(__GNUC__)
#define MLI_STACK_ADDRESS() ((uintptr_t)__builtin_frame_address(0))
#else
#define MLI_STACK_ADDRESS() ((uintptr_t)_AddressOfReturnAddress())
#endif
/* Returns 1 while a function of the host runs that was called from the frame at *mark; 0: none was.
   Clears the mark of a function that left by longjmp: a call at `here` can only be inside it if it
   is further down the stack. A thread may change between stacks, as fibres do. Then a mark may be
   cleared early, or stay until a later call. */
MLI_PRIVATE int mli_frame_runs(uintptr_t *mark, uintptr_t here);
#if defined(__GNUC__) && defined(__ELF__)
#define MLI_OWN_FRAME __attribute__((section("mli_own_frames")))
MLI_PRIVATE int mli_is_own(const void *address);
#else
#define MLI_OWN_FRAME
MLI_PRIVATE int mli_is_own(const void *address);
#endif
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
