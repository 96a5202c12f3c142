/* Allocations on stacks of all kinds; argv[1] says which. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define KEEP __attribute__((noinline, noclone))

KEEP void *my_alloc(size_t n) {
    char *ptr = malloc(n);
    if (ptr) ptr[0] = 1;
    return ptr;
}
KEEP static void *inner_alloc(size_t n) {
    char *ptr = my_alloc(n);
    ptr[0]++;
    return ptr;
}
#define LEVEL(name, next)                                                                     \
    KEEP void *name(size_t n) {                                                               \
        char *ptr = next(n);                                                                  \
        ptr[0]++;                                                                             \
        return ptr;                                                                           \
    }
LEVEL(level01, inner_alloc)
LEVEL(level02, level01)
LEVEL(level03, level02)
LEVEL(level04, level03)
LEVEL(level05, level04)
LEVEL(level06, level05)
LEVEL(level07, level06)
LEVEL(level08, level07)
LEVEL(level09, level08)
LEVEL(level10, level09)
LEVEL(level11, level10)
LEVEL(level12, level11)
LEVEL(level13, level12)
LEVEL(level14, level13)

KEEP static void *recurse(int depth) {
    char *ptr = depth ? recurse(depth - 1) : my_alloc(100);
    ptr[0]++;
    return ptr;
}
static void *alloc_in_thread(void *unused) {
    (void)unused;
    free(level14(100));
    return level14(100);
}

static int chain(void) {
    int i;
    for (i = 0; i < 100000; i++) {
        void *ptr = level14(1000);
        if (i % 2) free(ptr);
    }
    return 0;
}
/* Three phases, one after the other: each frees what it has allocated. */
#define PHASE(name, size)                                                                     \
    KEEP int name(void) {                                                                     \
        char *blocks[100];                                                                    \
        int i;                                                                                \
        for (i = 0; i < 100; i++) blocks[i] = my_alloc(size);                                 \
        for (i = 0; i < 100; i++) free(blocks[i]);                                            \
        return !blocks[0];                                                                    \
    }
PHASE(phase_a, 1000000)
PHASE(phase_b, 1000000)
PHASE(phase_c, 1200000)
static int phases(void) { return phase_a() | phase_b() | phase_c(); }

static int deep(void) { return !recurse(100000); }

static int small_thread(void) {
    pthread_attr_t attributes;
    pthread_t thread;
    void *ptr = NULL;
    return pthread_attr_init(&attributes) || pthread_attr_setstacksize(&attributes, 16384) ||
           pthread_create(&thread, &attributes, alloc_in_thread, NULL) ||
           pthread_join(thread, &ptr) || !ptr;
}

static ucontext_t outside, fibre_context;
static void *from_fibre;
static void fibre_main(void) { from_fibre = alloc_in_thread(NULL); }
static int fibre(void) {
    size_t size = 65536;
    if (getcontext(&fibre_context)) return 1;
    fibre_context.uc_stack.ss_sp = malloc(size);
    fibre_context.uc_stack.ss_size = size;
    fibre_context.uc_link = &outside;
    makecontext(&fibre_context, fibre_main, 0);
    return swapcontext(&outside, &fibre_context) || !from_fibre;
}

static void *from_handler;
static void handler(int number) {
    (void)number;
    from_handler = level14(100);
}
static int signal_stack(void) {
    stack_t stack;
    struct sigaction action;
    memset(&stack, 0, sizeof stack);
    memset(&action, 0, sizeof action);
    stack.ss_sp = malloc(65536);
    stack.ss_size = 65536;
    action.sa_handler = handler;
    action.sa_flags = SA_ONSTACK;
    return sigaltstack(&stack, NULL) || sigaction(SIGUSR1, &action, NULL) || raise(SIGUSR1) ||
           !from_handler;
}

/* A frame pointer that points nowhere, in code that says how its frame lies, and in code that says
   nothing. */
#if defined(__x86_64__)
void *said(void), *unsaid(void);
__asm__(".text\n"
        "said: .cfi_startproc\n push %rbp\n .cfi_adjust_cfa_offset 8\n .cfi_offset %rbp, -16\n"
        "mov $8, %ebp\n mov $100, %edi\n call level14\n"
        "pop %rbp\n .cfi_adjust_cfa_offset -8\n ret\n .cfi_endproc\n"
        "unsaid: push %rbp\n mov $8, %ebp\n mov $100, %edi\n call level14\n pop %rbp\n ret\n");
#else
static void *said(void) { return level14(100); }
static void *unsaid(void) { return level14(100); }
#endif
static int no_frame_pointer(void) { return !said() || !unsaid(); }

/* Descriptors of its own where those of a library may have been. */
static int files(void) {
    char name[] = "build/preload/file.XXXXXX", text[8];
    int fd, i, first = mkstemp(name);
    if (first < 0 || write(first, "untouched", 9) != 9) return 1;
    for (fd = 3; fd < 2048; fd++) {
        if (fd != first) (void)close(fd);
    }
    for (i = 0; i < 16; i++) {
        if (open(name, O_RDWR) < 0) return 1;
    }
    if (deep() || chain() || fibre()) return 1;
    for (fd = 3; fd < 19; fd++) {
        if (fd != first && (lseek(fd, 0, SEEK_CUR) || read(fd, text, 8) != 8)) return 1;
        if (fd != first && memcmp(text, "untouched", 8)) return 1;
    }
    return unlink(name);
}

/* A thread that holds a lock of the loader allocates, at a place that is new, and so does another
   thread meanwhile. */
static void *alloc_soon(void *unused) {
    (void)unused;
    (void)usleep(200000);
    return level13(10);
}
static int alloc_late(struct dl_phdr_info *info, size_t size, void *failed) {
    (void)info;
    (void)size;
    (void)usleep(500000);
    *(int *)failed = !level12(10);
    return 1;
}
static int loader(void) {
    pthread_t thread;
    void *ptr = NULL;
    int failed = 1;
    free(my_alloc(10)); /* its site is known from here on, its callers are not */
    return pthread_create(&thread, NULL, alloc_soon, NULL) ||
           !dl_iterate_phdr(alloc_late, &failed) || failed || pthread_join(thread, &ptr) || !ptr;
}

/* A thread waits in a callback of dl_iterate_phdr for a lock that is held around malloc here. */
static pthread_mutex_t around = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both;
static int wait_for_around(struct dl_phdr_info *info, size_t size, void *unused) {
    (void)info, (void)size, (void)unused;
    (void)pthread_barrier_wait(&both);
    return pthread_mutex_lock(&around) || pthread_mutex_unlock(&around) || 1;
}
static void *iterate(void *unused) {
    (void)dl_iterate_phdr(wait_for_around, unused);
    return NULL;
}
static int phdrs(void) {
    pthread_t thread;
    int i;
    if (pthread_barrier_init(&both, NULL, 2) || pthread_mutex_lock(&around) ||
        pthread_create(&thread, NULL, iterate, NULL))
        return 1;
    (void)pthread_barrier_wait(&both);
    for (i = 0; i < 40; i++) free(level13(1 << 20));
    return pthread_mutex_unlock(&around) || pthread_join(thread, NULL);
}

/* A thread that is new to an unwinder takes its slow path, where it has locks. */
static volatile int going = 1;
static void *alloc_once(void *unused) {
    (void)unused;
    free(recurse(60));
    return NULL;
}
static void *alloc_always(void *failed) {
    pthread_t thread;
    while (going) {
        *(int *)failed |= pthread_create(&thread, NULL, alloc_once, NULL) ||
                          pthread_join(thread, NULL);
    }
    return NULL;
}
/* As many forks as fit into 20 seconds: under load a fork takes a tenth of a second, and the script
   kills what runs for a minute. */
static int forks(void) {
    const time_t end = time(NULL) + 20;
    pthread_t thread[2];
    int i, status, broken[2] = {0, 0}, failed = 0, most = getenv("MEMLORD_TEST_ALL") ? 3000 : 300;
    for (i = 0; i < 2; i++)
        failed |= pthread_create(&thread[i], NULL, alloc_always, &broken[i]);
    for (i = 0; i < most && !failed && time(NULL) < end; i++) {
        pid_t pid = fork();
        if (!pid) {
            pthread_t late;
            alarm(20);
            _exit(deep() || pthread_create(&late, NULL, alloc_in_thread, NULL) ||
                  pthread_join(late, NULL));
        }
        failed |= waitpid(pid, &status, 0) != pid || status;
    }
    going = 0;
    for (i = 0; i < 2; i++) failed |= pthread_join(thread[i], NULL) || broken[i];
    return failed;
}

/* A child of vfork has the memory of its parent, and allocates in it. */
KEEP static int vfork_once(void) {
    int status;
    pid_t pid = vfork();
    if (!pid) {
        free(level14(100));
        _exit(0);
    }
    return pid < 0 || waitpid(pid, &status, 0) != pid || status;
}
static int vforks(void) {
    int i, failed = 0;
    for (i = 0; i < 200 && !failed; i++) failed = vfork_once();
    return failed || !level13(10);
}

/* Calls `chain` from code that was made at run time, which has no unwind table. */
static int from_made_code(const unsigned char *code, size_t size) {
#if defined(__x86_64__)
    int (*run)(int (*called)(void));
    void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return 1;
    memcpy(at, code, size);
    memcpy(&run, &at, sizeof run);
    return mprotect(at, 4096, PROT_READ | PROT_EXEC) || run(chain) || munmap(at, 4096);
#else
    (void)code;
    (void)size;
    return chain();
#endif
}
/* This code has a frame pointer, as that of node and LuaJIT. */
static int made(void) {
    static const unsigned char code[] = {0x55,             /* push %rbp */
                                         0x48, 0x89, 0xe5, /* mov %rsp, %rbp */
                                         0xff, 0xd7,       /* call *%rdi */
                                         0x5d, 0xc3};      /* pop %rbp; ret */
    return from_made_code(code, sizeof code);
}
/* This code has another value in the frame pointer, as that of Java has. */
static int made_without_pointer(void) {
    static const unsigned char code[] = {0x55,                         /* push %rbp */
                                         0xbd, 0x08, 0x00, 0x00, 0x00, /* mov $8, %ebp */
                                         0xff, 0xd7,                   /* call *%rdi */
                                         0x5d, 0xc3};                  /* pop %rbp; ret */
    return from_made_code(code, sizeof code);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int (*run)(void);
    } kinds[] = {{"chain", chain},         {"deep", deep},
                 {"thread", small_thread}, {"fibre", fibre},
                 {"signal", signal_stack}, {"rbp", no_frame_pointer},
                 {"files", files},         {"loader", loader},
                 {"phdrs", phdrs},
                 {"forks", forks},       {"vforks", vforks},
                 {"phases", phases},      {"made", made},
                 {"made-without-pointer", made_without_pointer}};
    size_t i;
    for (i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (argc > 1 && !strcmp(argv[1], kinds[i].name)) return kinds[i].run();
    }
    return 2;
}
