/* plugins runtime|memlord FILE: opens a plug-in, plugin.c, that has a runtime of its own, or one
   that carries MemLord. 0: passed; 77: the plug-in has no runtime of its own. */
#include "memlord.h"
#include "memlord_cuda.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MIB = 1 << 20 };

#define EXPECT(condition)                                                                     \
    do {                                                                                      \
        if (!(condition)) {                                                                   \
            printf("%s:%d: %s; last error: %s\n", __FILE__, __LINE__, #condition,             \
                   cudaGetErrorString(cudaPeekAtLastError()));                                \
            return 1;                                                                         \
        }                                                                                     \
    } while (0)

static int function(void *plug, const char *name, void *fn, size_t size) {
    void *found = dlsym(plug, name);
    memcpy(fn, &found, size);
    return found != NULL;
}
#define FUNCTION(fn) EXPECT(function(plug, "plug_" #fn, (void *)&fn, sizeof fn))

/* Both runtimes have the driver's primary context: memory and streams of one are the other's, too.
   What the plug-in allocates is on no books; what it frees of ours stays on them. */
static int a_runtime_of_its_own(void *plug) {
    const memlord_device device = memlord_device_cuda(0);
    int (*alloc)(void **, size_t), (*free)(void *);
    int (*stream)(cudaStream_t *), (*wait)(cudaStream_t);
    void (*where)(void *);
    cudaError_t (*malloc_there)(void **, size_t);
    void *ours = NULL, *theirs = NULL;
    cudaStream_t side;
    memlord_stats stats;
    memlord *lord;
    FUNCTION(alloc);
    FUNCTION(free);
    FUNCTION(stream);
    FUNCTION(wait);
    FUNCTION(where);
    where((void *)&malloc_there);
    if (malloc_there == cudaMalloc) return puts("the plug-in has the program's runtime"), 77;
    EXPECT(!memlord_create(NULL, &lord) && !memlord_cuda_attach(lord, NULL));
    EXPECT(!alloc(&theirs, MIB) && !stream(&side));
    EXPECT(!memlord_cuda_malloc(lord, &ours, 2 * MIB, NULL));
    EXPECT(memlord_allocated(lord, device) == 2 * MIB);
    EXPECT(!memlord_cuda_free(lord, theirs, NULL));
    memlord_stats_get(lord, device, &stats);
    EXPECT(stats.unknown_frees == 1 && stats.allocated == 2 * MIB);
    EXPECT(!memlord_cuda_record_use(lord, ours, side));
    EXPECT(!memlord_cuda_record_free(lord, ours, side, NULL));
    EXPECT(!wait(side)); /* the books are not told of it */
    (void)memlord_retire(lord, device);
    EXPECT(memlord_pending(lord, device) == 0 && memlord_allocated(lord, device) == 0);
    EXPECT(!free(ours));
    EXPECT(!memlord_cuda_detach(lord) && !cudaPeekAtLastError());
    memlord_destroy(lord);
    return 0;
}

int main(int argc, char **argv) {
    void *plug = NULL;
    int (*run)(void), round, bad;
    alarm(100);
    if (argc != 3) return 2;
    if (!strcmp(argv[1], "runtime")) {
        if (!(plug = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL))) return puts(dlerror()), 1;
        return a_runtime_of_its_own(plug);
    }
    for (round = 0; round < 3; round++) {
        if (!(plug = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL))) return puts(dlerror()), 1;
        FUNCTION(run);
        if ((bad = run()) != 0) return printf("plug_run: %d\n", bad), 1;
        EXPECT(!dlclose(plug));
    }
    return 0;
}
