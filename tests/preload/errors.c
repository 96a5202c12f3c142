/* Errors of calls under the library, and what they leave in errno. Prints what is wrong. With a
   library, built with -DBEHIND, whose realloc and lstat fail. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef BEHIND
void *realloc(void *old, size_t size) { /* sets no errno */
    (void)old;
    return size == 100 ? NULL : malloc(size);
}
int lstat(const char *path, struct stat *out) {
    (void)path, (void)out;
    errno = EIO;
    return -1;
}
#else
#define CHECK(holds) (void)((holds) || printf("line %d: errno %d\n", __LINE__, errno))
static void *(*volatile array)(void *old, size_t n, size_t size) = reallocarray;
static void *(*volatile resize)(void *old, size_t size) = realloc;

int main(void) {
    const size_t half = SIZE_MAX / 2 + 1;
    char *text = strdup("whole"), name[40];
    errno = 0;
    CHECK(!array(text, half + 8, 2) && errno == ENOMEM); /* 16 bytes, if it overflows */
    errno = 0;
    CHECK(!resize(text, 100) && errno == ENOMEM && !strcmp(text, "whole"));
    (void)snprintf(name, sizeof name, ".memlord-%ld-1", (long)getpid());
    CHECK(!fclose(fopen(name, "w")));
    errno = EDOM;
    CHECK(!rename(name, "renamed") && errno == EDOM);
    return 0;
}
#endif
