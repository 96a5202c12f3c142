/* Tells the memory that the machine and the cgroups of this process allow, and how much of it is in
   use; and the names of process and machine, and the program's arguments. Invariant: a doubtful
   number counts as unknown, because a wrong number is worse than none. Locks: none. */
#ifndef MLI_OS_MACHINE_H
#define MLI_OS_MACHINE_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"

/* mli_cpu_sample is the capacity source of the cpu device: the function that tells how much memory
   there is and how much is in use. It returns 0 if the numbers are known. It calls no malloc and no
   stdio, uses little stack, and keeps errno. Requires: one caller at a time. An mli_cpu of zeros is
   valid. The caller may set `root`, and nothing else. */

/* The process that a report is about. A text that is not known is "". */
typedef struct mli_identity {
    char program[256]; /* the name of the executable's file, without its directory */
    char host[256];    /* the name of the machine */
    char arguments[1024]; /* the program's arguments, without its name, separated by spaces; "..."
                             ends a cut text; "" if not asked for */
} mli_identity;

/* Reads the names of this process and of the machine and, if `arguments` is 1, the program's
   arguments (on Linux only). `root` is a prefix of the paths in /proc, for tests. Keeps errno. */
MLI_PRIVATE MLI_COLD void mli_identity_read(const char *root, int arguments, mli_identity *out);

#if defined(__linux__)

typedef struct mli_cpu {
    const char *root; /* for tests: a prefix of every path; NULL: none */
    int v1;           /* 1: cgroup version 1; 0: version 2 */
    uint64_t home;    /* the cgroup that had the lowest limit in the last sample; 0: none */
    char home_path[1024]; /* the directory of the cgroup that had the lowest limit */
    char path[1024];  /* the path of the file that is being read */
    char text[8192];  /* of the file that is read; too large for the 16 KiB stacks of some hosts */
} mli_cpu;

MLI_PRIVATE MLI_COLD int mli_cpu_sample(mli_cpu *cpu, uint64_t *total, uint64_t *used,
                                        uint64_t *process);
static MLI_HOT uint64_t mli_cpu_home(const mli_cpu *cpu) { return cpu->home; }
static MLI_HOT const char *mli_cpu_home_path(const mli_cpu *cpu) { return cpu->home_path; }
/* Reads the first line of a file, cut to fit, or "" if it cannot be read. Keeps errno. */
MLI_PRIVATE MLI_COLD void mli_line_read(const char *path, char *line, size_t cap);
/* Returns 1 if a file is a symbolic link with this text. Keeps errno. */
MLI_PRIVATE MLI_COLD int mli_link_is(const char *path, const char *text);
/* Returns how many bytes of this process are in memory, or 0 if that is not known. Unlike
   mli_cpu_sample, it reads only this number. */
MLI_PRIVATE MLI_COLD uint64_t mli_cpu_resident(mli_cpu *cpu);
#else

typedef struct mli_cpu {
    const char *root; /* has no effect on this system */
} mli_cpu;

/* Samples the memory of the machine. On macOS anonymous, wired and compressed pages count as used,
   because they cannot be dropped, and the others as free, as in Activity Monitor. Returns -1 on
   systems that do not tell the free memory, where the host can set a capacity source. */
MLI_PRIVATE int mli_cpu_sample(mli_cpu *cpu, uint64_t *total, uint64_t *used, uint64_t *process);
static MLI_HOT uint64_t mli_cpu_home(const mli_cpu *cpu) {
    (void)cpu;
    return 0;
}
static MLI_HOT const char *mli_cpu_home_path(const mli_cpu *cpu) {
    (void)cpu;
    return "";
}
MLI_PRIVATE void mli_line_read(const char *path, char *line, size_t cap);
MLI_PRIVATE int mli_link_is(const char *path, const char *text);
MLI_PRIVATE MLI_COLD uint64_t mli_cpu_resident(mli_cpu *cpu);
#endif

#endif
