/* jemalloc by its own names, which a program may test for. Prints what it found. */
#include <stdio.h>
#include <stdlib.h>

extern void *mallocx(size_t size, int flags) __attribute__((weak));
extern void *rallocx(void *ptr, size_t size, int flags) __attribute__((weak));
extern size_t xallocx(void *ptr, size_t size, size_t extra, int flags) __attribute__((weak));
extern void dallocx(void *ptr, int flags) __attribute__((weak));
extern void sdallocx(void *ptr, size_t size, int flags) __attribute__((weak));

#define ALIGN_64 6 /* MALLOCX_ALIGN(64) */

int main(void) {
    void *ptr;
    int i;
    if (!mallocx || !rallocx || !xallocx || !dallocx || !sdallocx) {
        printf("without jemalloc\n");
        return mallocx || rallocx || xallocx || dallocx || sdallocx;
    }
    for (i = 0; i < 1000; i++) {
        ptr = rallocx(mallocx(1000, ALIGN_64), 2000, 0);
        if (xallocx(ptr, 1 << 20, 0, 0) >= 1 << 20) return 1; /* it has no such room */
        (void)xallocx(ptr, 2001, 0, 0);
        if (i % 2) dallocx(ptr, 0);
        else sdallocx(ptr, 2001, 0);
    }
    ptr = mallocx(5000, 0);
    printf("with jemalloc\n");
    return !ptr;
}
