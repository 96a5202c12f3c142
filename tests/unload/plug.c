/* A plug-in that carries a MemLord of its own: with PREFIXED under other names, else as a private
   one. CONSTRUCTOR in the environment is what it does while it is loaded; with DESTRUCTOR it ends
   its ledger when it is closed. */
#ifdef PREFIXED
#define MEMLORD_PREFIX plug_
#else
#define MEMLORD_STATIC
#endif
#define MEMLORD_IMPLEMENTATION
#include "memlord.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static memlord *lord;

/* Records a block and its end. 1: the ledger was wrong about either. */
static int record(memlord *l) {
    const memlord_device cpu = memlord_device_cpu();
    const uint64_t before = memlord_allocated(l, cpu);
    char block[16];
    int wrong = memlord_alloc(l, cpu, MEMLORD_KEY(block), 100, MEMLORD_SITE()) != MEMLORD_OK;
    wrong |= memlord_allocated(l, cpu) != before + 100;
    wrong |= memlord_free(l, cpu, MEMLORD_KEY(block), NULL) != MEMLORD_OK;
    return wrong || memlord_allocated(l, cpu) != before;
}

int plug_ledger(void) {
    if (!lord && memlord_create(NULL, &lord)) return 1;
    return record(lord);
}
int plug_end(void) {
    memlord_destroy(lord);
    lord = NULL;
    return 0;
}
int plug_global(void) { return record(memlord_global()); }
int plug_snapshots(void) {
    return plug_ledger() || memlord_snapshots_start(lord, 10) != MEMLORD_OK;
}

static void *global_on_a_thread(void *user) { return plug_global() ? user : NULL; }
__attribute__((constructor)) static void loaded(void) {
    const char *what = getenv("CONSTRUCTOR");
    pthread_t t;
    void *failed;
    if (!what) return;
    if (!strcmp(what, "global") && plug_global()) abort();
    if (!strcmp(what, "ledger") && (plug_snapshots() || plug_end())) abort();
    if (strcmp(what, "thread")) return;
    if (pthread_create(&t, NULL, global_on_a_thread, &lord)) abort();
    if (pthread_join(t, &failed) || failed) abort();
}
__attribute__((destructor)) static void closed(void) {
    if (getenv("DESTRUCTOR") && (record(lord) || plug_end())) abort();
}
