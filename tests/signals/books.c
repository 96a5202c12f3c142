/* A program for tests/signals.sh that keeps books of its own: it records each block it allocates,
   under tags and scopes, and prints what its ledger has at the end. */
#define MEMLORD_IMPLEMENTATION
#include "memlord.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

static memlord *lord, *other;
static void *volatile unrecorded; /* what only the interposer sees */

static void *take(size_t size) {
    void *block = malloc(size);
    MEMLORD_ALLOC(lord, memlord_device_cpu(), block, size);
    return block;
}
static void give(void *block) {
    MEMLORD_FREE(lord, memlord_device_cpu(), block);
    free(block);
}

static void *work(void *token) {
    void *blocks[100];
    int i, round;
    memlord_scope_adopt(lord, (const memlord_scope_token *)token);
    memlord_tag_begin(lord, "worker");
    for (round = 0; round < 50; round++) {
        MEMLORD_SCOPE(lord, "round") {
            for (i = 0; i < 100; i++) blocks[i] = take((size_t)(16 + i));
            for (i = 0; i < 100; i++) give(blocks[i]);
        }
    }
    blocks[0] = malloc(70000);
    memlord_tag_end(lord);
    memlord_scope_begin(lord, "left open");
    return blocks[0];
}
static void threads(void) {
    pthread_t thread[4];
    memlord_scope_token token;
    void *block;
    int i;
    memlord_scope_begin(lord, "step");
    memlord_scope_export(lord, &token);
    for (i = 0; i < 4; i++)
        if (pthread_create(&thread[i], NULL, work, &token)) exit(1);
    for (i = 0; i < 4; i++)
        if (pthread_join(thread[i], &block) || !block) exit(1);
    memlord_scope_end(lord);
}

/* Tags within tags, to the bound and over it, in two ledgers: each end ends its own. */
static void depths(void) {
    int i, begun = 0, ended = 0;
    memlord_tag_begin(lord, "outer");
    for (i = 0; i < 70; i++) {
        begun += memlord_tag_begin(lord, i % 2 ? "odd" : "even") == MEMLORD_OK;
        begun += memlord_tag_begin(other, "other") == MEMLORD_OK;
    }
    for (i = 0; i < 63; i++) ended += memlord_tag_end(lord) == MEMLORD_OK;
    while (memlord_tag_end(other) == MEMLORD_OK) ended++;
    unrecorded = malloc(60000);
    memlord_tag_end(lord);
    printf("%d begun, %d ended\n", begun, ended);
    unrecorded = malloc(50000); /* without a tag */
    if (memlord_tag_end(lord) != MEMLORD_E_STATE) exit(1);
}

static void guards(void) {
    jmp_buf back;
    memlord_guard tag = memlord_guard_tag(lord, "guarded");
    memlord_guard scope = memlord_guard_scope(lord, "guarded", NULL);
    if (!setjmp(back)) {
        memlord_tag_begin(lord, "left by longjmp");
        memlord_scope_begin(lord, "left by longjmp");
        longjmp(back, 1);
    }
    memlord_guard_end(&scope);
    memlord_guard_end(&tag);
    memlord_guard_end(&tag);
    MEMLORD_TAG(lord, "kept") { unrecorded = malloc(40000); }
    unrecorded = malloc(30000);
}

/* A fibre begins on this thread, and ends on another one. */
static memlord_context fibre;
static void *go_on(void *user) {
    memlord_context_swap(lord, &fibre);
    unrecorded = malloc(7000);
    memlord_tag_end(lord);
    memlord_scope_end(lord);
    memlord_context_swap(lord, &fibre);
    unrecorded = malloc(500); /* without a tag */
    return user;
}
static void fibres(void) {
    pthread_t thread;
    memlord_tag_begin(lord, "around");
    memlord_scope_begin(lord, "around");
    memlord_context_swap(lord, &fibre);
    memlord_scope_begin(lord, "fibre");
    memlord_scope_begin(lord, "inner");
    memlord_scope_end(lord);
    memlord_tag_begin(lord, "outside");
    memlord_tag_begin(lord, "fibre");
    memlord_tag_begin(lord, "inside");
    memlord_tag_end(lord);
    unrecorded = malloc(20000);
    memlord_context_swap(lord, &fibre);
    unrecorded = malloc(10000);
    memlord_scope_end(lord);
    memlord_tag_end(lord);
    if (pthread_create(&thread, NULL, go_on, NULL) || pthread_join(thread, NULL)) exit(1);
    memlord_context_swap(lord, &fibre);
    unrecorded = malloc(3000);
    memlord_context_drop(lord, &fibre);
    unrecorded = malloc(200); /* without a tag */
}

int main(void) {
    memlord_stats s;
    if (memlord_create(NULL, &lord) || memlord_create(NULL, &other)) return 1;
    threads();
    depths();
    guards();
    fibres();
    memlord_stats_get(lord, memlord_device_all(), &s);
    printf("live %u unknown %u implicit %u shared %u dropped %u\n", (unsigned)s.live_blocks,
           (unsigned)s.unknown_frees, (unsigned)s.implicit_frees, (unsigned)s.freed_while_shared,
           (unsigned)s.dropped_allocs);
    memlord_destroy(other);
    memlord_destroy(lord);
    return 0;
}
