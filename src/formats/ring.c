#include "formats/ring.h"
#include <stdlib.h>
#include <string.h>

MLR_PRIVATE int mlr_event_is_past(const mlr_profile *p, const mlr_event *e) {
    return e->time_ns <= p->uptime_ns;
}
MLR_PRIVATE int64_t mlr_event_delta(const mlr_event *e) {
    const int adds =
        e->kind == MLR_EVENT_ALLOC || e->kind == MLR_EVENT_MOVE || e->kind == MLR_EVENT_ARENA_ADD;
    const int takes = e->kind == MLR_EVENT_FREE || e->kind == MLR_EVENT_ARENA_SUB;
    return (adds - takes) * (int64_t)e->bytes;
}
MLR_PRIVATE int mlr_event_is_of_block(const mlr_event *e) {
    return e->device && (e->kind == MLR_EVENT_ALLOC || e->kind == MLR_EVENT_FREE ||
                         e->kind == MLR_EVENT_PEND || e->kind == MLR_EVENT_MOVE);
}

MLR_PRIVATE mlr_slot *mlr_ring_slot(const mlr_ring *ring, uint32_t device, uint64_t storage) {
    const uint32_t type = ring->type[device];
    uint64_t at = (storage ^ (uint64_t)type << 48) * 0x9e3779b97f4a7c15u >> 20;
    for (; ring->size; at++) {
        mlr_slot *slot = &ring->at[at & (ring->size - 1)];
        if (!slot->event ||
            (slot->event->storage == storage && ring->type[slot->event->device] == type))
            return slot;
    }
    return NULL;
}

/* Returns the first device whose name is equal up to the colon. */
static uint32_t type_of(const mlr_profile *p, uint32_t device) {
    const char *name = p->device[device - 1].name;
    const size_t n = strcspn(name, ":");
    uint32_t i = 1;
    while (i < device && (strncmp(p->device[i - 1].name, name, n) ||
                          (p->device[i - 1].name[n] && p->device[i - 1].name[n] != ':')))
        i++;
    return i;
}
static void ring_add(mlr_ring *ring, const mlr_event *e) {
    if (e->time_ns < ring->first) ring->first = e->time_ns;
    ring->scoped |= e->kind == MLR_EVENT_SCOPE_BEGIN;
    ring->device_sum[e->device] += mlr_event_delta(e);
    ring->device_events[e->device]++;
    ring->tag_sum[e->tag] += mlr_event_delta(e);
    if (mlr_event_is_of_block(e)) mlr_ring_slot(ring, e->device, e->storage)->event = e;
}

MLR_PRIVATE int mlr_ring_open(mlr_ring *ring, const mlr_profile *p) {
    const size_t devices = (size_t)p->device_count + 1;
    uint32_t i;
    memset(ring, 0, sizeof *ring);
    ring->p = p;
    ring->first = p->uptime_ns;
    if (p->event_count)
        for (ring->size = 64; ring->size < (size_t)p->event_count + p->event_count / 4;)
            ring->size *= 2;
    ring->at = (mlr_slot *)calloc(ring->size + 1, sizeof *ring->at);
    ring->type = (uint32_t *)calloc(devices, sizeof *ring->type);
    ring->device_sum = (int64_t *)calloc(devices, sizeof *ring->device_sum);
    ring->device_events = (uint64_t *)calloc(devices, sizeof *ring->device_events);
    ring->tag_sum = (int64_t *)calloc((size_t)p->tag_count + 1, sizeof *ring->tag_sum);
    if (!ring->at || !ring->type || !ring->device_sum || !ring->device_events || !ring->tag_sum)
        return 0;
    for (i = 1; i <= p->device_count; i++) ring->type[i] = type_of(p, i);
    for (i = 0; i < p->event_count; i++)
        if (mlr_event_is_past(p, &p->event[i])) ring_add(ring, &p->event[i]);
    return 1;
}
MLR_PRIVATE void mlr_ring_close(mlr_ring *ring) {
    free(ring->at);
    free(ring->type);
    free(ring->device_sum);
    free(ring->device_events);
    free(ring->tag_sum);
}
