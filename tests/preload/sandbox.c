/* sandbox kill|trap|strict|errno|allow [thread]: allocates under a seccomp filter that allows what
   malloc and exit need, and `thread` what threads need, too. Says "ok". */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ALLOW(call)                                                                           \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 1),                                    \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static void *kept[1000];
static void *churn(void *times) {
    long i;
    for (i = 0; i < 1000 * (long)times; i++) {
        free(__atomic_exchange_n(&kept[i % 1000], NULL, __ATOMIC_ACQ_REL));
        free(__atomic_exchange_n(&kept[i % 1000], malloc((size_t)(i % 1000 * 10 + i / 10 + 1)),
                                 __ATOMIC_ACQ_REL));
    }
    return NULL;
}

int main(int argc, char **argv) {
    const unsigned refusal = argv[1][0] == 'k'   ? SECCOMP_RET_KILL_PROCESS
                             : argv[1][0] == 't' ? SECCOMP_RET_TRAP
                             : argv[1][0] == 'a' ? SECCOMP_RET_ALLOW
                                                 : SECCOMP_RET_ERRNO | 1;
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(read), ALLOW(write), ALLOW(exit), ALLOW(exit_group), ALLOW(brk), ALLOW(mmap),
        ALLOW(munmap), ALLOW(mremap), ALLOW(mprotect), ALLOW(futex), ALLOW(newfstatat),
        BPF_JUMP(BPF_JMP | BPF_JA, argc > 2 ? 0 : 16, 0, 0), /* passes over the rest */
        ALLOW(clone3), ALLOW(rt_sigaction), ALLOW(rseq), ALLOW(set_robust_list), ALLOW(rt_sigprocmask),
        ALLOW(madvise), ALLOW(openat), ALLOW(close), BPF_STMT(BPF_RET | BPF_K, refusal)};
    struct sock_fprog program = {sizeof steps / sizeof steps[0], steps};
    pthread_t thread[2];
    int i;
    (void)churn((void *)1);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 3;
    if (argv[1][0] == 's' ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)
        : argc > 2        ? syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)
                          : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        return 3;
    for (i = 0; i < 2 && argc > 2; i++)
        if (pthread_create(&thread[i], NULL, churn, (void *)100)) return 1;
    if (argv[1][0] != 's') (void)churn((void *)100);
    while (i--) (void)pthread_join(thread[i], NULL);
    if (write(1, "ok\n", 3) != 3) return 1;
    if (argv[1][0] == 's') (void)syscall(SYS_exit, 0);
    if (argc > 2) _exit(0);
    return 0;
}
