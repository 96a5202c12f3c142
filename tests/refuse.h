/* A sandbox that refuses membarrier(2), which the process enters for good. */
#ifndef MEMLORD_TESTS_REFUSE_H
#define MEMLORD_TESTS_REFUSE_H

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* 0: the calling thread, and those it starts from now on, get `error`; -1: there is no sandbox. */
static inline int refuse_membarrier(int error) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {4, code};
    code[2].k |= (unsigned)error;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return -1;
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return -1;
    return syscall(__NR_membarrier, 0, 0, 0) == -1 && errno == error ? 0 : -1;
}

#endif /* MEMLORD_TESTS_REFUSE_H */
