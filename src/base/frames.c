#include "base/frames.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "os/system.h"
#include "os/unwind.h"
#include "base/ledger.h"

#if MLI_FRAME_POINTERS
#ifdef __cplusplus
extern "C" {
#endif
int mli_attr_of_thread(pthread_t thread, pthread_attr_t *attr)
    __asm__("pthread_getattr_np") __attribute__((weak));
int mli_attr_stack(const pthread_attr_t *attr, void **stack, size_t *size)
    __asm__("pthread_attr_getstack") __attribute__((weak));
#ifdef __cplusplus
}
#endif
static MLI_COLD void mli_stack_bounds_find(void) {
    pthread_attr_t attr;
    void *from;
    size_t size;
    mli_self.stack_to = 1; /* 1 means that the bounds are not known; no frame lies below 1 */
    if (!mli_attr_of_thread || !mli_attr_stack || mli_attr_of_thread(pthread_self(), &attr)) return;
    if (!mli_attr_stack(&attr, &from, &size)) {
        mli_self.stack_from = (uintptr_t)from;
        mli_self.stack_to = (uintptr_t)from + size;
    }
    (void)pthread_attr_destroy(&attr);
}
/* Removes the signature that aarch64 may have put into a return address. */
static void *mli_return_address_plain(uintptr_t address) {
#if defined(__aarch64__)
    __asm__("mov x30, %0\n\thint #7\n\tmov %0, x30" : "+r"(address) : : "x30"); /* xpaclri */
#endif
    return (void *)address;
}
/* While MemLord samples a stack, the walk begins with the frame of the public function that the
   host called, because MemLord's other functions need not keep frame pointers. A caller's frame
   lies above the frame of the function that it called. The walk ends at a frame that does not lie
   above the one before. So a cycle of frames ends the walk, too. */
MLI_API MLI_NOINLINE __attribute__((no_sanitize("address"))) size_t
memlord_unwind_frame_pointers(void *user, void **frames, size_t cap) {
    void *own = MLI_FRAME_ADDRESS();
    uintptr_t at = (uintptr_t)(mli_self.unwinding ? mli_self.unwound : own), from = (uintptr_t)own;
    const size_t size = 2 * sizeof at;
    size_t n = 0;
    (void)user;
    if (!mli_self.stack_to) mli_stack_bounds_find();
    if (from < mli_self.stack_from || from >= mli_self.stack_to) return 0;
    while (n < cap && at >= from && at <= mli_self.stack_to - size && at % sizeof at == 0) {
        const uintptr_t *frame = (const uintptr_t *)at;
        if (!frame[1]) break;
        frames[n++] = mli_return_address_plain(frame[1]);
        from = at + size;
        at = frame[0];
    }
    return n;
}
#else
MLI_API size_t memlord_unwind_frame_pointers(void *user, void **frames, size_t cap) {
    (void)user, (void)frames, (void)cap;
    return 0;
}
#endif
