/* What places memlord_site_at gives, told in lines: tests/places.sh. */
#define _GNU_SOURCE
#include "memlord.h"

#if !defined(NO_PLUGINS)
#include <dlfcn.h>
#endif
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>

static memlord *lord;
static uint64_t next_storage = 0x1000;
static void *last;

__attribute__((noinline)) static void record_at(void *address) {
    last = address;
    (void)memlord_alloc(lord, memlord_device_cpu(), next_storage += 16, 10,
                        memlord_site_at(lord, address));
}
__attribute__((noinline)) static void record(void) { record_at(__builtin_return_address(0)); }

/* The exported function before the hidden one is the nearest symbol of a stripped program. */
__attribute__((visibility("default"))) void exported(void);
__attribute__((noinline)) void exported(void) {
    record(); /* exported */
    __asm__ volatile("");
}
__attribute__((noinline)) static void hidden(void) {
    record(); /* hidden */
    __asm__ volatile("");
}

/* Code in no module: it calls a function and returns. */
static void jit(void) {
#if defined(__x86_64__)
    unsigned char code[] = {0x50, 0xff, 0xd7, 0x58, 0xc3}; /* push rax; call rdi; pop rax; ret */
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void (*run)(void (*)(void));
    if (page == MAP_FAILED) return;
    memcpy(page, code, sizeof code);
    (void)mprotect(page, 4096, PROT_READ | PROT_EXEC);
    memcpy(&run, &page, sizeof run);
    run(record);
    printf("jit %p\n", last);
#endif
}

static void vdso(void) {
    char *at = (char *)getauxval(AT_SYSINFO_EHDR);
    if (at) record_at(at + 0x100);
}

/* Opens a library, calls it and closes it. */
static void plug(const char *path) {
#if !defined(NO_PLUGINS)
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL), *found;
    void (*run)(void (*)(void));
    found = module ? dlsym(module, "plug_run") : NULL;
    if (!found) {
        printf("no %s\n", path);
        return;
    }
    memcpy(&run, &found, sizeof run);
    run(record);
    run(record);
    printf("called %s %p\n", path, last);
    (void)dlclose(module);
#else
    (void)path;
#endif
}

static void tell(void) {
    memlord_site_stat top[16];
    size_t i, n = memlord_sites_top(lord, memlord_device_all(), MEMLORD_SITE_ORDER_ALLOCS, top, 16);
    for (i = 0; i < n && i < 16; i++) {
        memlord_place place = {"?", "?", 0};
        (void)memlord_site_place(lord, top[i].site, &place);
        printf("site %u module=%s offset=0x%llx id=%s function=%s file=%s\n",
               (unsigned)top[i].allocs, place.module, (unsigned long long)place.offset,
               place.build_id, top[i].site->function, top[i].site->file);
    }
}

int main(int argc, char **argv) {
    int i;
    memlord_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.flags = MEMLORD_FLAG_SITES;
    if (argc > 1 && !strcmp(argv[1], "stacks")) {
        desc.stack_depth = 8;
        desc.stack_bytes = 1;
    }
    if (memlord_create(&desc, &lord)) return 1;
    for (i = 1; i < argc; i++) {
        const char *what = argv[i];
        if (!strcmp(what, "stacks")) continue; /* the first one: with stacks */
        if (!strcmp(what, "exported")) exported();
        else if (!strcmp(what, "hidden")) hidden();
        else if (!strcmp(what, "jit")) jit();
        else if (!strcmp(what, "vdso")) vdso();
        else if (!strncmp(what, "rename:", 7)) { /* rename:OLD:NEW replaces a file */
            char from[512], *to;
            (void)snprintf(from, sizeof from, "%s", what + 7);
            to = strchr(from, ':');
            *to++ = 0;
            if (rename(from, to)) printf("no rename\n");
        } else if (!strncmp(what, "save:", 5)) {
            if (memlord_save(lord, memlord_format_for(what + 5), what + 5)) printf("no save\n");
        } else plug(what);
    }
    tell();
    memlord_destroy(lord);
    return 0;
}
