/* Linked to a suite: all of it runs without membarrier(2), where a sandbox is to be had. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "refuse.h"

#include <stdio.h>

__attribute__((constructor(101))) static void before_all(void) {
    if (refuse_membarrier(ENOSYS)) fputs("no sandbox: the suite runs with membarrier\n", stderr);
}
