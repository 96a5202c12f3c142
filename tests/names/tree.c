/* Calls of malloc from all kinds of places: inlined functions, recursion, a tail call, a function
   pointer, a signal handler, a callback of the C library, a constructor. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>

#define ALONE __attribute__((noinline, noclone))
#define INTO  static inline __attribute__((always_inline))
#define STAY  __asm__ volatile("") /* the call before is no tail call */

void *volatile kept[4096];
static int count;

INTO void *keep(size_t size) { return kept[count++] = malloc(size); }
INTO void keep_two(size_t size) {
    keep(size);
    keep(size + 1);
}
ALONE void few(void) {
    keep_two(32);
    STAY;
}
ALONE void recurse(int depth) {
    if (depth)
        recurse(depth - 1);
    else
        keep(20000);
    STAY;
}
ALONE void *leaf(size_t size) { return malloc(size); }
ALONE void tail(void) {
    kept[count++] = leaf(30000);
    STAY;
}
ALONE void callback(size_t size) {
    keep(size);
    STAY;
}
ALONE void by_pointer(void (*fn)(size_t)) {
    fn(40000);
    STAY;
}
ALONE void on_signal(int number) {
    keep((size_t)number + 70000);
    STAY;
}
ALONE void signals(void) {
    raise(SIGUSR1);
    STAY;
}
static int compare(const void *a, const void *b) {
    free(keep(64));
    count--;
    return *(const int *)a - *(const int *)b;
}
ALONE void sort(void) {
    int numbers[] = {5, 3, 8, 1, 9, 2, 7};
    qsort(numbers, 7, sizeof *numbers, compare);
    STAY;
}
__attribute__((constructor)) static void begin(void) { keep(123456); }

int main(void) {
    (void)signal(SIGUSR1, on_signal);
    few();
    recurse(7);
    tail();
    by_pointer(callback);
    signals();
    sort();
    return 0;
}
