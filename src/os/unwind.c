#include "os/unwind.h"

/* Below -O2, MemLord's functions between the host's call and MLI_NOTE_CALLER keep their frames,
   which recorded stacks leave out. They lie in one section, with whose bounds mli_is_own compares
   an address. A copy that was inlined into the host's function counts as the host's. */
#if defined(__GNUC__) && defined(__ELF__)
#ifdef __cplusplus
extern "C" {
#endif
extern const char __start_mli_own_frames[] __attribute__((weak, visibility("hidden")));
extern const char __stop_mli_own_frames[] __attribute__((weak, visibility("hidden")));
#ifdef __cplusplus
}
#endif
MLI_PRIVATE int mli_is_own(const void *address) {
    const uintptr_t from = (uintptr_t)__start_mli_own_frames;
    return (uintptr_t)address - 1 - from < (uintptr_t)__stop_mli_own_frames - from;
}
#else
MLI_PRIVATE int mli_is_own(const void *address) {
    (void)address;
    return 0;
}
#endif

#if MLI_WINDOWS
MLI_PRIVATE MLI_NOINLINE size_t mli_unwind(void *user, void **frames, size_t cap) {
    (void)user;
    return CaptureStackBackTrace(0, (DWORD)cap, frames, NULL);
}
#elif defined(__GNUC__) && !defined(__arm__) && !defined(__APPLE__)
/* Calls the unwinder of libgcc_s or libunwind, if the program has one, else backtrace of the C
   library, which loads libgcc_s. All are weak, so that a program need not link them. */
typedef struct mli_unwinding {
    void **frames;
    size_t count, cap;
} mli_unwinding;
#ifdef __cplusplus
extern "C" {
#endif
int mli_unwind_backtrace(int (*fn)(void *, void *), void *user)
    __asm__("_Unwind_Backtrace") __attribute__((weak));
uintptr_t mli_unwind_ip(void *context) __asm__("_Unwind_GetIP") __attribute__((weak));
int mli_backtrace(void **frames, int cap) __asm__("backtrace") __attribute__((weak));
#ifdef __cplusplus
}
#endif
static int mli_unwind_frame(void *context, void *user) {
    mli_unwinding *u = (mli_unwinding *)user;
    void *address = (void *)mli_unwind_ip(context);
    if (u->count == u->cap || !address) return 5; /* _URC_END_OF_STACK */
    u->frames[u->count++] = address;
    return 0;
}
MLI_PRIVATE MLI_NOINLINE size_t mli_unwind(void *user, void **frames, size_t cap) {
    mli_unwinding u;
    int n;
    (void)user;
    u.frames = frames;
    u.count = 0;
    u.cap = cap;
    if (mli_unwind_backtrace && mli_unwind_ip)
        (void)mli_unwind_backtrace(mli_unwind_frame, &u);
    else if (mli_backtrace && (n = mli_backtrace(frames, (int)cap)) > 0)
        u.count = (size_t)n;
    return u.count;
}
#elif defined(__APPLE__)
#ifdef __cplusplus
extern "C"
#endif
    int backtrace(void **frames, int cap); /* execinfo.h */
MLI_PRIVATE MLI_NOINLINE size_t mli_unwind(void *user, void **frames, size_t cap) {
    int n = backtrace(frames, (int)cap);
    (void)user;
    return n > 0 ? (size_t)n : 0;
}
#else
MLI_PRIVATE size_t mli_unwind(void *user, void **frames, size_t cap) {
    (void)user, (void)frames, (void)cap;
    return 0;
}
#endif
