#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "command/library.h"
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define LIBRARY_NAME "libmemlord_preload.so"

char *mlr_library_path(const char *directory) {
    static const char *const places[] = {"", "../lib/", "../lib64/", "../lib/memlord/"};
    char here[PATH_MAX], *path = NULL, *link;
    const ssize_t n = readlink("/proc/self/exe", here, sizeof here - 1);
    here[n > 0 ? n : 0] = 0;
    if (strrchr(here, '/')) strrchr(here, '/')[1] = 0;
    for (size_t i = 0; i < sizeof places / sizeof *places && !path; i++) {
        char *at = mlr_joined("%s%s" LIBRARY_NAME, here, places[i]);
        path = realpath(at, NULL);
        free(at);
    }
    if (!path)
        mlr_tell("no " LIBRARY_NAME " in %s or in its ../lib; make " LIBRARY_NAME
                 " there, or make install",
                 mlr_clean(here));
    if (!path || !strpbrk(path, " :")) return path;
    link = mlr_joined("%s/" LIBRARY_NAME, directory);
    if (!strpbrk(link, " :") && !symlink(path, link)) {
        free(path);
        return link;
    }
    mlr_tell("%s: LD_PRELOAD takes no path with a space or colon; install MemLord elsewhere",
             mlr_clean(path));
    free(link);
    free(path);
    return NULL;
}

char *mlr_program_path(const char *name) {
    const char *list = getenv("PATH"), *end;
    if (strchr(name, '/')) return access(name, F_OK) ? NULL : mlr_joined("%s", name);
    for (; list && *list; list = *end ? end + 1 : end) {
        char *path;
        struct stat is;
        end = strchrnul(list, ':');
        path = mlr_joined("%.*s%s%s", (int)(end - list), list, end > list ? "/" : "", name);
        if (!stat(path, &is) && S_ISREG(is.st_mode) && !access(path, X_OK)) return path;
        free(path);
    }
    return NULL;
}

/* -- why nothing is recorded -- */

/* What the head of a file says. */
typedef struct head {
    unsigned char bytes[4096];
    size_t size;
} head;

static int read_head(const char *path, head *out) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const ssize_t n = fd < 0 ? -1 : read(fd, out->bytes, sizeof out->bytes - 1);
    if (fd >= 0) (void)close(fd);
    out->size = n > 0 ? (size_t)n : 0;
    out->bytes[out->size] = 0;
    return out->size > EI_NIDENT;
}

static int is_elf(const head *h) { return !memcmp(h->bytes, ELFMAG, SELFMAG); }

int mlr_program_is_binary(const char *path) {
    head h;
    (void)read_head(path, &h);
    return h.size >= SELFMAG && is_elf(&h);
}

/* Returns the loader that a program of this process's word size asks for, or NULL. *dynamic is 1 if
   it asks for one. */
static const char *loader_of(const head *h, int *dynamic) {
    Elf64_Ehdr file;
    *dynamic = 1;
    if (h->size < sizeof file || h->bytes[EI_CLASS] != ELFCLASS64) return NULL;
    memcpy(&file, h->bytes, sizeof file);
    for (unsigned i = 0; i < file.e_phnum; i++) {
        Elf64_Phdr part;
        const uint64_t at = file.e_phoff + (uint64_t)i * sizeof part;
        if (at > h->size || h->size - at < sizeof part) return NULL;
        memcpy(&part, h->bytes + at, sizeof part);
        if (part.p_type != PT_INTERP) continue;
        return part.p_offset < h->size ? (const char *)h->bytes + part.p_offset : NULL;
    }
    *dynamic = 0;
    return NULL;
}

/* Returns the interpreter that a script names, or NULL. */
static char *interpreter_of(head *h) {
    char *at = (char *)h->bytes + 2, *end;
    if (h->bytes[0] != '#' || h->bytes[1] != '!') return NULL;
    at += strspn(at, " \t");
    end = at + strcspn(at, " \t\n");
    if (end - at >= 4 && !strncmp(end - 4, "/env", 4) && *end == ' ') {
        at = end + strspn(end, " ");
        *(at + strcspn(at, " \t\n")) = 0;
        return *at == '-' ? NULL : mlr_program_path(at);
    }
    *end = 0;
    return mlr_joined("%s", at);
}

/* Returns why the loader ignores LD_PRELOAD for this file, or NULL. */
static const char *privilege_of(const char *path) {
    struct stat is;
    if (!stat(path, &is) && is.st_mode & S_ISUID && is.st_uid != geteuid()) return "set-uid";
    if (!stat(path, &is) && is.st_mode & S_ISGID && is.st_gid != getegid()) return "set-gid";
    if (getxattr(path, "security.capability", NULL, 0) > 0 && geteuid())
        return "given capabilities";
    return NULL;
}

static char *elf_doubt(const char *path, const head *h, const char *library) {
    const char *privilege = privilege_of(path), *loader, *other;
    head own;
    int dynamic, has;
    if (!read_head(library, &own)) return NULL;
    if (h->bytes[EI_CLASS] != own.bytes[EI_CLASS] || memcmp(h->bytes + 18, own.bytes + 18, 2))
        return mlr_joined("%s is built for another word size or processor; a MemLord built for it "
                          "records it",
                          mlr_clean(path));
    loader = loader_of(h, &dynamic);
    if (!dynamic)
        return mlr_joined("%s is a static program, which loads no library; link it dynamically, or "
                          "build memlord.h into it",
                          mlr_clean(path));
    if (privilege)
        return mlr_joined("%s is %s, so its loader heeds no LD_PRELOAD; run a copy without that",
                          mlr_clean(path), privilege);
    if (!read_head("/proc/self/exe", &own)) return NULL;
    other = loader_of(&own, &has);
    if (loader && other && (strstr(loader, "musl") != NULL) != (strstr(other, "musl") != NULL))
        return mlr_joined("%s uses another C library than MemLord was built for; a MemLord built "
                          "for it records it",
                          mlr_clean(path));
    return NULL;
}

char *mlr_program_doubt(const char *path, const char *library) {
    char *at = mlr_joined("%s", path), *next, *doubt = NULL;
    head h;
    for (int depth = 0; at && depth < 4 && read_head(at, &h); depth++) {
        if (is_elf(&h)) {
            doubt = elf_doubt(at, &h, library);
            break;
        }
        next = interpreter_of(&h);
        free(at);
        at = next;
    }
    free(at);
    return doubt;
}
