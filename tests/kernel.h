/* Calls of the kernel that the C libraries of some processors change before they make them. */
#ifndef TEST_KERNEL_H
#define TEST_KERNEL_H

#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* mmap(2), for a suite that has an mmap of its own. */
static inline void *kernel_mmap(void *at, size_t size, int prot, int flags, int fd, off_t offset) {
#if defined(SYS_mmap2) /* 32 bits: the offset counts units of 4 KiB */
    return (void *)syscall(SYS_mmap2, at, size, prot, flags, fd, (long)(offset / 4096));
#elif defined(__s390x__) /* the kernel reads the arguments from memory */
    const unsigned long args[6] = {(unsigned long)at,    size,          (unsigned long)prot,
                                   (unsigned long)flags, (unsigned long)fd, (unsigned long)offset};
    return (void *)syscall(SYS_mmap, args);
#else
    return (void *)syscall(SYS_mmap, at, size, prot, flags, fd, offset);
#endif
}

#endif /* TEST_KERNEL_H */
