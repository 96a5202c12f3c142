#include "formats/words.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

MLR_PRIVATE void mlr_put_u64(mlr_out *o, uint64_t v) { mlr_putf(o, "%" PRIu64, v); }
MLR_PRIVATE void mlr_put_i64(mlr_out *o, int64_t v) { mlr_putf(o, "%" PRId64, v); }
MLR_PRIVATE void mlr_put_hex(mlr_out *o, uint64_t v) { mlr_putf(o, "%" PRIx64, v); }
MLR_PRIVATE void mlr_put_fixed(mlr_out *o, uint64_t v, unsigned digits) {
    uint64_t unit = 1;
    unsigned i;
    for (i = 0; i < digits; i++) unit *= 10;
    mlr_putf(o, "%" PRIu64 ".%0*" PRIu64, v / unit, (int)digits, v % unit);
}
MLR_PRIVATE void mlr_put_le(mlr_out *o, uint64_t v, unsigned n) {
    for (; n--; v >>= 8) {
        const unsigned char byte = (unsigned char)(v & 255);
        mlr_put(o, &byte, 1);
    }
}

MLR_PRIVATE int mlr_buffer_write(void *user, const void *data, size_t size) {
    mlr_buffer *b = (mlr_buffer *)user;
    if (b->room - b->used < size) {
        size_t room = b->room ? b->room : 4096;
        char *at;
        while (room - b->used < size) room *= 2;
        at = (char *)realloc(b->at, room);
        if (!at) return 1;
        b->at = at;
        b->room = room;
    }
    memcpy(b->at + b->used, data, size);
    b->used += size;
    return 0;
}

MLR_PRIVATE void mlr_put_process(mlr_out *o, const mlr_profile *p) {
    mlr_put_name(o, p->program, 0);
    mlr_putf(o, p->program[0] ? ", pid %" PRIu64 : "pid %" PRIu64, p->pid);
    if (p->host[0]) mlr_puts(o, " on ");
    mlr_put_name(o, p->host, 0);
    mlr_puts(o, ", since ");
    mlr_put_name(o, p->started_at, 0);
    mlr_puts(o, " for ");
    mlr_put_fixed(o, p->uptime_ns / 100000000u, 1);
    mlr_puts(o, " s");
}

/* The anomalies and drops, from the heaviest to the lightest: those that make totals too low, then
   mistakes of the program, then detail that was lost. Those of ALL belong to no device. */
#define ANOMALIES(DEVICE, ALL)                                                                     \
    DEVICE(dropped_allocs)                                                                         \
    DEVICE(dropped_bytes)                                                                          \
    DEVICE(unknown_frees)                                                                          \
    DEVICE(implicit_frees)                                                                         \
    DEVICE(freed_while_shared)                                                                     \
    DEVICE(underflows)                                                                             \
    DEVICE(fence_failures)                                                                         \
    DEVICE(refused)                                                                                \
    DEVICE(dropped_sites)                                                                          \
    ALL(dropped_scopes, lost_scopes)                                                               \
    ALL(dropped_exports, lost_exports)                                                             \
    ALL(dropped_scope_invocations, lost_runs)                                                      \
    ALL(dropped_snapshots, lost_snapshots)                                                         \
    DEVICE(dropped_events)

MLR_PRIVATE const char *mlr_anomaly_next(const mlr_profile *p, uint32_t device, size_t *i,
                                         uint64_t *v) {
    static const char *const names[] = {
#define DEVICE(name)      #name,
#define ALL(name, member) #name,
        ANOMALIES(DEVICE, ALL)
#undef DEVICE
#undef ALL
    };
    const mlr_stats *s = device ? &p->device[device - 1].stats : &p->total;
    const uint64_t values[] = {
#define DEVICE(name)      s->name,
#define ALL(name, member) device ? 0 : p->member,
        ANOMALIES(DEVICE, ALL)
#undef DEVICE
#undef ALL
    };
    while (*i < sizeof names / sizeof *names) {
        *v = values[(*i)++];
        if (*v) return names[*i - 1];
    }
    return NULL;
}
MLR_PRIVATE const char *mlr_anomaly_device(const mlr_profile *p, uint32_t device) {
    return device ? p->device[device - 1].name : "all";
}
MLR_PRIVATE int mlr_put_anomalies(mlr_out *o, const mlr_profile *p, uint32_t device) {
    const char *name;
    size_t i = 0;
    uint64_t v, n = 0;
    char text[32];
    while ((name = mlr_anomaly_next(p, device, &i, &v)) != NULL) {
        if (!n) mlr_putf(o, "anomalies and drops, %s", mlr_anomaly_device(p, device));
        mlr_putf(o, n++ ? ", %s " : " %s ", name);
        if (!strcmp(name, "dropped_bytes"))
            mlr_puts(o, mlr_text_bytes(text, v));
        else
            mlr_put_u64(o, v);
    }
    return n != 0;
}
MLR_PRIVATE int mlr_put_estimates(mlr_out *o, const mlr_profile *p) {
    char text[32];
    if (!p->sample_bytes) return 0;
    mlr_putf(o, "estimates: a sample each %s", mlr_text_bytes(text, p->sample_bytes));
    return 1;
}
