#include "reports/json.h"
#include "os/system.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "base/memory.h"
#include "books/threads.h"
#include "books/map.h"
#include "books/counters.h"
#include "books/names.h"
#include "books/sites.h"
#include "books/anomalies.h"
#include "books/tags.h"
#include "books/stacks.h"
#include "books/events.h"
#include "books/parts.h"
#include "books/blocks.h"
#include "books/limits.h"
#include "services/joint.h"
#include "services/scopes.h"
#include "services/stats.h"
#include "services/room.h"
#include "services/snapshots.h"
#include "reports/answers.h"
#include "reports/callers.h"
#include "reports/growth.h"
#include "reports/leaks.h"
#include "reports/lists.h"

typedef struct mli_json_writer {
    mli_report *r;
    int brief;        /* 1: the members that the HTML page does not read are left out */
    uint64_t last[2]; /* in a brief report: the ns and the storage of the last event */
    uint32_t *frame;  /* by the ledger's number of a frame: the frame's number in the list "frames",
                         from 1; NULL if no stacks are listed */
    uint32_t frames;  /* how many frames the ledger has */
} mli_json_writer;

MLI_PRIVATE void mli_json_u64(mli_out *o, const char *name, uint64_t v) {
    mli_jsonf(o, ",%s:%ju", name, v);
}
/* Writes a rate that is given in billionths. UINT64_MAX means a rate that is not known. */
static MLI_COLD void mli_json_rate(mli_out *o, const char *name, uint64_t rate) {
    mli_jsonf(o, rate == UINT64_MAX ? ",%s:null" : ",%s:", name);
    if (rate != UINT64_MAX) mli_put_fixed(o, rate, 9);
}
static MLI_COLD void mli_json_stats(mli_out *o, memlord_stats *s) {
    size_t i;
    mli_put_str(o, "{");
    for (i = 0; i < MLI_STAT_COUNT; i++)
        mli_json_u64(o, mli_column_names[i], *mli_stat_of(s, i));
    for (i = 0; i < MLI_RATE_COUNT; i++) mli_json_rate(o, mli_rates[i].name, mli_rate_read(s, i));
    mli_json_u64(o, "mean_bytes", mli_mean_read(s));
    mli_put_str(o, "}");
}
static void mli_json_flag(mli_out *o, const char *name, int on) {
    mli_jsonf(o, on ? ",%s:true" : ",%s:false", name);
}
/* Writes a moment as date and time. `wall` is the moment in ns of the wall clock. */
static MLI_COLD void mli_json_time(mli_out *o, const char *name, uint64_t wall) {
    mli_jsonf(o, ",%s:'", name);
    mli_put_time(o, wall, 0);
    mli_put_str(o, "\"");
}

static void mli_json_metadata(mli_report *r) {
    memlord *lord = r->lord;
    size_t i;
    mli_jsonf(r->o, "{'schema':'memlord/2','version':'" MEMLORD_VERSION "','metadata':{");
    mli_json_time(r->o, "generated_at", mli_wall_now());
    mli_json_process(r);
    mli_jsonf(r->o, ",'labels':%s,'own_bytes':%ju,'mark':%ju,'num_snapshots':%ju",
              mli_labels(lord), mli_own_bytes(lord), r->mark, (uint64_t)r->snapshots);
    mli_json_flag(r->o, "operation_tracking_enabled", r->scopes != 0);
    mli_json_flag(r->o, "sites_enabled",
                  mli_hook_on(lord, MLI_HOOK_SITES) != 0);
    mli_json_flag(r->o, "events_enabled",
                  mli_alert_on(lord, MLI_ALERT_EVENTS) != 0);
    mli_jsonf(r->o, ",'dropped':{");
    for (i = 0; i < MLI_LOSS_COUNT; i++)
        mli_json_u64(r->o, mli_column_names[MLI_STAT_COUNT + i] + sizeof "dropped",
                     mli_loss_value(lord, i));
    mli_jsonf(r->o, ",'events':%ju}}", r->total.dropped_events);
}

static void mli_json_lifetimes(mli_report *r, uint32_t i) {
    const uint64_t *n = r->lifetime[i];
    if (r->lifetimes)
        mli_jsonf(r->o, "{'under_100ms':%ju,'under_1s':%ju,'under_10s':%ju,'longer':%ju}",
                  n[0], n[1], n[2], n[3]);
    else
        mli_put_str(r->o, "null");
}

static void mli_json_oom(mli_report *r, uint32_t dev) {
    mli_oom oom = mli_oom_of(r->lord, dev);
    if (oom.time)
        mli_jsonf(r->o, "{'bytes':%ju,'live':%ju,'used':%ju,'site':%p}", oom.bytes, oom.live,
                  oom.used, (const void *)oom.site);
    else
        mli_put_str(r->o, "null");
}

static void mli_json_devices(mli_report *r) {
    uint32_t i, size;
    mli_jsonf(r->o, ",\n'total':");
    mli_json_stats(r->o, &r->total);
    mli_jsonf(r->o, ",\n'devices':[");
    for (i = 0; i < r->devices; i++) {
        mli_device_record *device = mli_device_record_at(r->lord, i + 1);
        mli_jsonf(r->o, ",\n{'device':'%i','label':%s,'arena':%ju,'arena_untagged':%ju,'stats':",
                  mli_device_code(device->device),
                  (const char *)mli_ptr_load_acquire(&device->label), mli_report_arena(r, i + 1),
                  mli_report_arena_untagged(r, i + 1));
        mli_json_stats(r->o, &r->stat[i]);
        mli_jsonf(r->o, ",'cached_ratio':%g,'fragmentation':%g,'sizes':[",
                  memlord_cached_ratio(&r->stat[i]), memlord_fragmentation(&r->stat[i]));
        for (size = 0; size < MLI_SIZES; size++)
            if (r->sizes[i][size])
                mli_jsonf(r->o, ",{'from':%ju,'blocks':%ju}",
                          size ? (uint64_t)1 << (size - 1) : 0, r->sizes[i][size]);
        mli_jsonf(r->o, "],'lifetimes':");
        mli_json_lifetimes(r, i);
        mli_jsonf(r->o, ",'last_oom':");
        mli_json_oom(r, i + 1);
        mli_put_str(r->o, "}");
    }
    mli_put_str(r->o, "]");
}

/* Ends a physical device's list of devices, and begins its list of other processes. */
static void mli_json_others(mli_report *r, mli_phys *phys) {
    const memlord_capacity sample = mli_phys_sample_of(phys);
    size_t i;
    mli_jsonf(r->o, "],'other_processes':[");
    for (i = 0; i < MEMLORD_OTHERS && sample.others[i].pid; i++) {
        char name[32];
        mli_process_name(r->lord, sample.others[i].pid, name, sizeof name);
        mli_jsonf(r->o, ",{'pid':%ju,'bytes':%ju,'name':%s}", sample.others[i].pid,
                  sample.others[i].bytes, *name ? name : NULL);
    }
}

static void mli_json_phys_all(mli_report *r) {
    uint32_t dev;
    size_t i;
    mli_jsonf(r->o, ",\n'capacity':[");
    for (i = 0; i < r->phys_count; i++) {
        const mli_phys_line *line = &r->phys[i];
        mli_jsonf(r->o, ",\n{'device':'%i'", mli_device_code(line->of.device));
        mli_list_json(r->o, MLI_LIST_CAPACITY, line);
        mli_jsonf(r->o, ",'devices':[");
        for (dev = 1; dev <= r->devices; dev++) /* lists the devices whose bytes use the
                                                   capacity */
            if (mli_report_phys(r, dev) == line && mli_dev_uses_capacity(r->lord, dev))
                mli_jsonf(r->o, ",'%i'", mli_report_device(r, dev));
        mli_json_others(r, line->phys);
        mli_put_str(r->o, "]}");
    }
    mli_put_str(r->o, "]");
}

static void mli_json_accounts(mli_report *r) {
    size_t i;
    mli_jsonf(r->o, ",\n'accounts':{'open':%ju,'largest':[", (uint64_t)r->accounts);
    for (i = 0; i < r->account_lines; i++) {
        const memlord_account_stat *s = &r->account[i];
        mli_jsonf(r->o, ",\n{'name':%s,'device':'%i'", s->name, mli_device_code(s->device));
        mli_list_json(r->o, MLI_LIST_ACCOUNTS, s);
        mli_put_str(r->o, "}");
    }
    mli_put_str(r->o, "]}");
}

static void mli_json_streams(mli_report *r) {
    size_t i;
    mli_jsonf(r->o, ",\n'streams':{'count':%ju,'more':%ju,'largest':[", (uint64_t)r->streams,
              (uint64_t)r->streams_lost);
    for (i = 0; i < r->stream_lines; i++) {
        mli_jsonf(r->o, ",\n{'stream':'%jx','device':'%i'", r->stream[i].stream,
                  mli_report_device(r, r->stream[i].dev));
        mli_list_json(r->o, MLI_LIST_STREAMS, &r->stream[i]);
        mli_put_str(r->o, "}");
    }
    mli_jsonf(r->o, "],'rest':{");
    mli_list_json(r->o, MLI_LIST_STREAMS, &r->stream_rest);
    mli_put_str(r->o, "}}");
}

static void mli_json_tags(mli_report *r) {
    uint32_t i;
    mli_jsonf(r->o, ",\n'tags':[");
    for (i = 1; i <= r->tags; i++) {
        mli_jsonf(r->o, ",\n{'tag':%s,'device':'%i'", r->tag[i].stat.tag,
                  mli_device_code(r->tag[i].of.device));
        mli_list_json(r->o, MLI_LIST_TAGS, &r->tag[i]);
        mli_put_str(r->o, "}");
    }
    mli_put_str(r->o, "]");
}

/* -- JSON: stacks -- A frame of a stack is an index into "frames", and the module of a frame is an
   index into "modules". "frames" has only the frames of stacks that are listed. */

/* Writes the functions that are inlined at a return address, if there are several. Also writes
   "library" if the function that the site shows is in a standard library. */
static MLI_COLD void mli_json_functions(const mli_report *r, const memlord_site *site) {
    const mli_functions *all = mli_site_functions(r->lord, site);
    uint32_t i;
    if (!all) return;
    if (all->at[all->shown].library) mli_json_flag(r->o, "library", 1);
    if (all->count < 2) return;
    mli_jsonf(r->o, ",'inlined':[");
    for (i = 0; i < all->count; i++) {
        const memlord_function *f = &all->at[i];
        mli_jsonf(r->o, ",{'function':%s,'file':%s,'line':%ju", f->at.function, f->at.file,
                  (uint64_t)mli_site_line(&f->at));
        if (f->library) mli_json_flag(r->o, "library", 1);
        mli_put_str(r->o, "}");
    }
    mli_put_str(r->o, "]");
}

static uint32_t mli_stack_leak_node(const mli_report *r, size_t i) {
    return mli_stack_row_at(r->lord, r->stack_leak[i].row)->node;
}
/* Marks each frame of a stack, so that mli_json_frames lists it. */
static void mli_json_frames_mark(mli_json_writer *w, uint32_t node) {
    for (; node && w->frame; node = mli_stack_node_at(w->r->lord, node)->parent)
        w->frame[mli_stack_node_at(w->r->lord, node)->site->frame] = 1;
}
static MLI_COLD void mli_json_frames(mli_json_writer *w) {
    const mli_report *r = w->r;
    const mli_module *last = mli_module_newest(r->lord), *m;
    uint32_t i, n = 0;
    mli_jsonf(r->o, ",'modules':[");
    for (m = last; m; m = m->next)
        mli_jsonf(r->o, ",\n{'module':%s,'build_id':%s}", m->image.path, m->build_id);
    mli_jsonf(r->o, "],'frames':[");
    for (i = 1; i <= w->frames && w->frame && !r->o->failed; i++) {
        mli_site_record *site = mli_stack_frame_at(r->lord, i);
        const memlord_site *shown;
        if (!w->frame[i]) continue;
        w->frame[i] = ++n;
        shown = mli_site_display(r->lord, site);
        mli_jsonf(r->o, ",\n{'site':%p,'module':%ju,'offset':%ju", (const void *)shown,
                  site->where ? (uint64_t)(last->number - site->where->number) : UINT64_MAX,
                  site->offset);
        mli_json_functions(r, shown);
        mli_put_str(r->o, "}");
    }
    mli_put_str(r->o, "]");
}
static MLI_COLD void mli_json_stack(const mli_json_writer *w, uint32_t node) {
    mli_jsonf(w->r->o, ",\n{'frames':[");
    for (; node && w->frame; node = mli_stack_node_at(w->r->lord, node)->parent)
        mli_jsonf(w->r->o, ",%ju",
                  (uint64_t)w->frame[mli_stack_node_at(w->r->lord, node)->site->frame] - 1);
    mli_put_str(w->r->o, "]");
}
static MLI_COLD void mli_json_stacks(mli_json_writer *w) {
    const mli_report *r = w->r;
    size_t i;
    mli_jsonf(r->o, ",\n'stacks':{'depth':%ju,'bytes':%ju,'cut':%ju",
              (uint64_t)mli_stacks_depth(r->lord), mli_stacks_bytes(r->lord),
              mli_stacks_cut(r->lord));
    for (i = 0; i < r->stacks; i++) mli_json_frames_mark(w, r->stack[i].node);
    for (i = 0; i < r->stack_leaks; i++) mli_json_frames_mark(w, mli_stack_leak_node(r, i));
    mli_json_frames(w);
    mli_jsonf(r->o, ",'list':[");
    for (i = 0; i < r->stacks && !r->o->failed; i++) {
        const mli_stack_line *line = &r->stack[i];
        mli_json_stack(w, line->node);
        mli_jsonf(r->o, ",'device':'%i'", mli_device_code(line->stat.device));
        mli_list_json(r->o, MLI_LIST_STACKS, line);
        if (!w->brief) mli_json_u64(r->o, "temporaries", line->stat.temporaries);
        mli_put_str(r->o, "}");
    }
    mli_jsonf(r->o,
              "],'more':{'stacks':%ju,'alloc_bytes':%ju,'allocs':%ju,'live_bytes':%ju,"
              "'at_peak_bytes':%ju}}",
              (uint64_t)(r->stack_rows - r->stacks), r->stack_rest.alloc_bytes,
              r->stack_rest.allocs, r->stack_rest.live_bytes, r->stack_rest_held);
}

/* Writes the callers of a site, and what was allocated for each of them, if they are known. */
static MLI_COLD void mli_json_callers(mli_report *r, uint32_t row) {
    const mli_callers *callers = mli_callers_of(r, row);
    size_t i;
    if (!callers) return;
    mli_jsonf(r->o, ",'callers':[");
    for (i = 0; i < callers->count; i++) {
        const mli_caller *c = &callers->at[i];
        mli_jsonf(r->o,
                  ",{'site':%p,'alloc_bytes':%ju,'allocs':%ju,'live_bytes':%ju,"
                  "'at_peak_bytes':%ju}",
                  (const void *)c->at, c->alloc_bytes, c->allocs, c->live_bytes, c->at_peak_bytes);
    }
    mli_put_str(r->o, "]");
}
static void mli_json_sites(mli_report *r) {
    uint32_t i, rows = mli_row_count(r->lord, MLI_BOOK_SITE);
    mli_jsonf(r->o, ",\n'sites':[");
    for (i = 1; i < rows; i++) {
        memlord_site_stat s;
        memlord_place place;
        const uint64_t error = mli_site_stat_fill(r->lord, i, &s);
        if (!(s.alloc_bytes | s.free_bytes | s.allocs | s.frees | s.live_bytes)) continue;
        s.site = mli_site_display_of(r->lord, s.site);
        mli_jsonf(r->o, ",\n{'site':%p,'device':'%i'", (const void *)s.site,
                  mli_device_code(s.device));
        mli_list_json(r->o, MLI_LIST_SITES, &s);
        mli_json_u64(r->o, "peak_error", error);
        if (memlord_site_place(r->lord, s.site, &place) == MEMLORD_OK)
            mli_jsonf(r->o, ",'module':%s,'offset':%ju,'build_id':%s", place.module, place.offset,
                      place.build_id);
        mli_json_functions(r, s.site);
        mli_json_callers(r, i);
        mli_put_str(r->o, "}");
    }
    mli_put_str(r->o, "]");
}

/* -- JSON: scopes -- */

/* Writes "name_mb":1.00,"name_bytes":1048576 for 1 MiB. The number in MiB is for people, and for
   programs written for older profiles. */
static MLI_COLD void mli_json_mb(mli_out *o, const char *name, int64_t bytes) {
    uint64_t size = bytes < 0 ? (uint64_t)0 - (uint64_t)bytes : (uint64_t)bytes;
    mli_jsonf(o, ",'");
    mli_put_str(o, name);
    mli_jsonf(o, bytes < 0 ? "_mb':-" : "_mb':");
    mli_put_fixed(o, (size >> 20) * 100 + (((size & 0xfffffu) * 100 + 0x80000u) >> 20), 2);
    mli_jsonf(o, ",'");
    mli_put_str(o, name);
    mli_jsonf(o, "_bytes':%jd", bytes);
}
static void mli_json_four(mli_out *o, const char *name, uint64_t count, int64_t total,
                          int64_t min, int64_t max) {
    mli_jsonf(o, ",%s:{'total':%jd,'avg':%jd,'min':%jd,'max':%jd}", name, total,
              mli_average(total, count), min, max);
}

/* Calls fn for each invocation that the ledger keeps of a scope, thread by thread. The oldest
   invocation of a thread comes first. */
typedef void (*mli_scope_run_fn)(mli_report *r, const mli_scope_run *v, uint32_t thread);
static void mli_report_scope_runs(mli_report *r, const mli_scope_record *scope,
                                  mli_scope_run_fn fn) {
    const mli_thread_scope *s = (const mli_thread_scope *)mli_ptr_load_acquire(&scope->threads);
    for (; s; s = s->next) {
        size_t i, n = mli_thread_scope_read(r->lord, s, r->run);
        for (i = 0; i < n; i++) fn(r, &r->run[i], mli_record_number(s->thread));
    }
}

/* Writes an invocation as [start_ns,duration_ns,thread,delta_bytes,delta_blocks,pre_bytes,
   post_bytes,peak_bytes,shapes]. */
static MLI_COLD void mli_json_invocation(mli_report *r, const mli_scope_run *v, uint32_t thread) {
    mli_jsonf(
        r->o, ",\n[%jd,%jd,%ju,%jd,%jd,%jd,%jd,%jd,%s]", (int64_t)mli_since_ns(&r->scale, v->start),
        (int64_t)mli_stamps_ns(&r->scale, v->stamps), (uint64_t)thread, (int64_t)v->bytes,
        (int64_t)v->blocks, (int64_t)v->before, (int64_t)v->after, (int64_t)v->peak,
        (const char *)(uintptr_t)v->shapes);
}
static MLI_COLD void mli_json_operation(mli_report *r, const mli_scope_run *v, uint32_t thread) {
    (void)thread;
    mli_jsonf(r->o, ",\n{");
    mli_json_mb(r->o, "memory_delta", (int64_t)v->bytes);
    mli_jsonf(r->o, ",'tensor_delta':%jd", (int64_t)v->blocks);
    mli_json_mb(r->o, "pre_total", (int64_t)v->before);
    mli_json_mb(r->o, "post_total", (int64_t)v->after);
    mli_json_time(r->o, "timestamp",
                  r->lord->started_wall + mli_since_ns(&r->scale, v->start));
    mli_put_str(r->o, "}");
}

static void mli_json_scope(mli_report *r, uint32_t id) {
    const mli_scope_record *scope = mli_scope_record_at(r->lord, id);
    const mli_scope_line *line = &r->scope[id];
    memlord_scope_stat s;
    uint64_t deltas[MEMLORD_MAX_DEVICES + 1];
    uint32_t dev;
    memset(deltas, 0, sizeof deltas);
    mli_scope_sum(r->lord, scope, &r->scale, &s, deltas);
    mli_jsonf(r->o, ",\n{'id':%ju,'parent':%ju,'name':%s,'path':%s,'site':%p,'count':%ju",
              (uint64_t)id, s.parent, s.name, s.path, (const void *)s.site, s.count);
    mli_json_four(r->o, "delta_bytes", s.count, s.bytes.total, s.bytes.min, s.bytes.max);
    mli_json_four(r->o, "delta_blocks", s.count, s.blocks.total, s.blocks.min, s.blocks.max);
    mli_json_u64(r->o, "peak_bytes", s.peak);
    mli_json_four(r->o, "time_ns", s.count, (int64_t)s.ns.total, (int64_t)s.ns.min,
                  (int64_t)s.ns.max);
    mli_jsonf(r->o,
              ",'device_time_ns':%ju,'live_bytes':%ju,'live_blocks':%ju,'running':%ju,"
              "'devices':{",
              s.device_ns, line->live_bytes, line->live_blocks, s.running);
    for (dev = 1; dev <= r->devices; dev++)
        if (deltas[dev])
            mli_jsonf(r->o, ",'%i':%jd", mli_report_device(r, dev), (int64_t)deltas[dev]);
    mli_jsonf(r->o, "},'invocations':[");
    mli_report_scope_runs(r, scope, mli_json_invocation);
    mli_put_str(r->o, "]}");
}

/* Writes the scopes, twice: also under the keys that readers of older profiles expect. */
static void mli_json_scopes(const mli_json_writer *w) {
    mli_report *r = w->r;
    uint32_t id;
    mli_jsonf(r->o, ",\n'scopes':[");
    for (id = 1; id <= r->scopes; id++) mli_json_scope(r, id);
    mli_put_str(r->o, "]");
    if (w->brief) return;
    mli_jsonf(r->o, ",\n'operation_allocations':{");
    for (id = 1; id <= r->scopes; id++) {
        const mli_scope_record *scope = mli_scope_record_at(r->lord, id);
        mli_jsonf(r->o, ",\n%s:[", scope->path);
        mli_report_scope_runs(r, scope, mli_json_operation);
        mli_put_str(r->o, "]");
    }
    mli_jsonf(r->o, "},\n'operation_summary':{");
    for (id = 1; id <= r->scopes; id++) {
        const memlord_scope_stat s = r->scope[id].stat;
        mli_jsonf(r->o, ",\n%s:{'invocation_count':%ju", s.path, s.count);
        mli_json_mb(r->o, "total_memory_delta", s.bytes.total);
        mli_json_mb(r->o, "avg_memory_delta", mli_average(s.bytes.total, s.count));
        mli_json_mb(r->o, "max_memory_delta", s.bytes.max);
        mli_put_str(r->o, "}");
    }
    mli_put_str(r->o, "}");
}

/* -- JSON: snapshots -- */

static MLI_COLD void mli_json_shape(mli_out *o, const memlord_meta *meta) {
    mli_jsonf(o, ",'shape':");
    mli_put_shape(o, meta, ",");
    if (!meta->rank) mli_put_str(o, "[]");
}

static void mli_json_tensors(mli_report *r, const mli_snapshot *s, memlord_device d) {
    size_t i;
    for (i = 0; i < s->top_blocks; i++) {
        const memlord_block_info *b = &mli_snapshot_top(s)[i];
        if (b->device.type != d.type || b->device.index != d.index) continue;
        mli_jsonf(r->o, ",{");
        mli_json_mb(r->o, "size", (int64_t)b->bytes);
        mli_json_shape(r->o, &b->meta);
        mli_jsonf(r->o,
                  ",'dtype':%s,'device':'%i','name':%s,'tag':%s,'operation':%s,"
                  "'requires_grad':null}",
                  b->meta.dtype, mli_device_code(d), b->meta.name, b->tag, b->scope);
    }
}

static void mli_json_snapshot(mli_report *r, const mli_snapshot *s) {
    uint32_t i;
    mli_jsonf(r->o, ",\n{");
    mli_json_time(r->o, "timestamp", r->lord->started_wall + s->time);
    mli_jsonf(r->o, ",'time_ns':%ju,'checkpoint_name':%s", s->time, s->name);
    mli_json_mb(r->o, "total", (int64_t)s->live);
    mli_jsonf(r->o, ",'tensor_count':%ju,'device_breakdown':{", s->blocks);
    for (i = 0; i < s->devices; i++) {
        const mli_device_usage *held = &mli_snapshot_devices(s)[i];
        memlord_device d = mli_device_record_at(r->lord, i + 1)->device;
        mli_jsonf(r->o, ",\n'%i':{", mli_device_code(d));
        mli_json_mb(r->o, "total", (int64_t)held->live);
        mli_jsonf(r->o,
                  ",'pending_bytes':%ju,'reserved_bytes':%ju,'peak_bytes':%ju,'count':%ju,"
                  "'tensors':[",
                  held->pending, held->reserved, held->peak, held->blocks);
        mli_json_tensors(r, s, d);
        mli_put_str(r->o, "]}");
    }
    mli_put_str(r->o, "}}");
}

static void mli_json_snapshots(mli_report *r) {
    uint32_t i;
    mli_jsonf(r->o, ",\n'snapshots':[");
    for (i = 0; i < r->snapshots; i++) mli_json_snapshot(r, r->snapshot[i]);
    mli_put_str(r->o, "]");
}

/* Writes "device":..., and the tag or the site, if any, whose bytes a series has. */
static MLI_COLD void mli_json_series_of(mli_report *r, const mli_series *s) {
    mli_jsonf(r->o, ",\n{'device':'%i'", mli_report_device(r, s->dev));
    if (s->book == MLI_BOOK_TAG)
        mli_jsonf(r->o, ",'tag':%s", mli_series_tag(r->lord, s));
    if (s->book == MLI_BOOK_SITE)
        mli_jsonf(r->o, ",'site':%p", (const void *)mli_series_site(r->lord, s));
}
/* Writes the bytes of the largest tags and sites in each snapshot, and what grows. */
static MLI_COLD void mli_json_series(mli_report *r) {
    static const char *const names[MLI_BOOKS] = {NULL, "sites", "tags"};
    const mli_series_list *list = &r->series;
    uint32_t i, k;
    size_t n;
    int book;
    mli_jsonf(r->o, ",\n'series':{");
    for (book = MLI_BOOK_SITE; book < MLI_BOOKS; book++) {
        mli_jsonf(r->o, ",%s:[", names[book]);
        for (i = 0; i < list->count[book]; i++) {
            mli_json_series_of(r, &list->at[book][i]);
            mli_jsonf(r->o, ",'bytes':[");
            for (k = 0; k < list->snapshots; k++)
                mli_jsonf(r->o, ",%ju", mli_series_level(list, &list->at[book][i], k));
            mli_put_str(r->o, "]}");
        }
        mli_put_str(r->o, "]");
    }
    mli_jsonf(r->o, "},\n'growth':{'count':%ju,'fastest':[", (uint64_t)list->growing_all);
    for (n = 0; n < list->growing; n++) {
        const mli_series *s = &list->grows[n];
        mli_json_series_of(r, s);
        mli_list_json(r->o, MLI_LIST_GROWTH, s);
        mli_jsonf(r->o, ",'since_ns':%ju,'r2':%g}", list->snapshot[s->since]->time, s->fit);
    }
    mli_put_str(r->o, "]}");
}

/* Writes the summary: checkpoints, the peak, the highest checkpoint, the live bytes at the end. */
static void mli_json_summary(mli_report *r) {
    uint32_t i;
    mli_jsonf(r->o, ",\n'summary':{'num_snapshots':%ju,'checkpoints':[", (uint64_t)r->snapshots);
    for (i = 0; i < r->snapshots; i++)
        if (r->snapshot[i]->name) mli_jsonf(r->o, ",%s", r->snapshot[i]->name);
    mli_put_str(r->o, "]");
    mli_json_mb(r->o, "peak_memory", (int64_t)r->total.peak);
    mli_jsonf(r->o, ",'peak_memory_checkpoint':%s", mli_report_peak_name(r));
    mli_json_mb(r->o, "final_memory", (int64_t)r->total.allocated);
    mli_put_str(r->o, "}");
}

/* -- JSON: peak holders, leaks, moves, threads -- */

static void mli_json_holders(mli_report *r) {
    uint32_t i;
    size_t k;
    mli_holders *h = &r->holders;
    mli_jsonf(r->o, ",\n'peak_holders':[");
    for (i = 1; i <= r->devices; i++) {
        if (!mli_holders_get(r->lord, i, h)) continue;
        mli_jsonf(r->o, ",\n{'device':'%i','bytes':%ju,'time_ns':%ju,'tags':[",
                  mli_report_device(r, i), h->bytes, h->time);
        for (k = 0; k < h->tags; k++)
            mli_jsonf(r->o, ",{'tag':%s,'bytes':%ju}", h->tag[k].tag, h->tag[k].allocated);
        mli_jsonf(r->o, "],'sites':[");
        for (k = 0; k < h->sites; k++)
            mli_jsonf(r->o, ",{'site':%p,'bytes':%ju}", (const void *)h->site[k].site,
                      h->site[k].live_bytes);
        mli_put_str(r->o, "]}");
    }
    mli_put_str(r->o, "]");
}

/* Writes the bytes and the number of leaked blocks. */
static void mli_json_amount(mli_report *r, uint64_t bytes, uint64_t blocks) {
    const mli_leak_sum sum = {bytes, blocks, 0};
    mli_list_json(r->o, MLI_LIST_LEAKS, &sum);
}
static MLI_COLD void mli_json_leak_site(mli_report *r, const mli_leak_site *s) {
    const uint64_t unknown = s->devices ? 0 : UINT64_MAX;
    mli_jsonf(r->o, "{'site':%p", (const void *)mli_leak_site_of(&r->leak_sites, s));
    mli_json_amount(r, s->bytes, s->blocks);
    mli_jsonf(r->o, ",'devices':%ju,'tags':%ju,'scopes':%ju", s->devices | unknown,
              s->tags | unknown, s->scopes | unknown);
    mli_jsonf(r->o, s->devices == 1 ? ",'device':'%i'" : ",'device':null",
              s->devices == 1 ? mli_report_device(r, s->dev) : 0);
    mli_jsonf(r->o, ",'tag':%s,'scope':%s}", s->tags == 1 && !s->untagged ? s->tag : NULL,
              s->scopes == 1 && !s->unscoped ? s->scope : NULL);
}
/* Writes the leaks by site. Writes the largest site a second time, under the key "largest",
   which programs that read the reports of release 0.4.1 expect. */
static MLI_COLD void mli_json_leak_sites(mli_report *r) {
    const mli_leak_sites *s = &r->leak_sites;
    size_t i;
    mli_jsonf(r->o, ",'largest':");
    if (s->line[0].bytes)
        mli_json_leak_site(r, &s->line[0]);
    else
        mli_put_str(r->o, "null");
    mli_jsonf(r->o, ",'sites':[");
    for (i = 0; i < s->lines; i++) {
        mli_jsonf(r->o, ",\n");
        mli_json_leak_site(r, &s->line[i]);
    }
    mli_put_str(r->o, "]");
}
/* Writes the sums of the leaks that the lists of groups, sites and stacks leave out. */
static MLI_COLD void mli_json_leaks_more(mli_report *r) {
    const mli_leak_sites *s = &r->leak_sites;
    const mli_leak_sum rest = mli_leak_sites_rest(s, &r->leaks, s->lines);
    uint64_t left = r->stack_leak_bytes, bytes = r->leaks.bytes, blocks = r->leaks.blocks;
    size_t i;
    for (i = 0; i < r->stack_leaks; i++) left -= r->stack_leak[i].bytes;
    for (i = 0; i < r->leaks.count; i++) {
        bytes -= r->leaks.at[i].bytes;
        blocks -= r->leaks.at[i].blocks;
    }
    mli_jsonf(r->o,
              ",'more':{'groups':%ju,'count':%ju,'bytes':%ju,'stacks':%ju,'stack_bytes':%ju,"
              "'sites':%ju,'site_count':%ju,'site_bytes':%ju}",
              r->leaks.lost ? UINT64_MAX : (uint64_t)(r->leaks.groups - r->leaks.count), blocks,
              bytes, (uint64_t)(r->stack_leak_rows - r->stack_leaks), left,
              (uint64_t)(s->total - s->lines), rest.blocks, rest.bytes);
}
static void mli_json_leaks(const mli_json_writer *w) {
    mli_report *r = w->r;
    size_t i;
    mli_jsonf(r->o, ",\n'leaks':{'since_mark':%ju,'count':%ju,'bytes':%ju,'by_site':[",
              r->mark, r->leaks.blocks, r->leaks.bytes);
    for (i = 0; i < r->leaks.count; i++) {
        const mli_leak_group *leak = &r->leaks.at[i];
        const memlord_block_info of = mli_leak_info(r->lord, leak);
        mli_jsonf(r->o, ",\n{'site':%p,'tag':%s,'scope':%s,'device':'%i'", (const void *)of.site,
                  of.tag, of.scope, mli_device_code(of.device));
        mli_json_amount(r, leak->bytes, leak->blocks);
        mli_put_str(r->o, "}");
    }
    mli_jsonf(r->o, "],'by_stack':[");
    for (i = 0; i < r->stack_leaks; i++) {
        const mli_stack_leak *leak = &r->stack_leak[i];
        const uint32_t dev = mli_stack_row_at(r->lord, leak->row)->dev;
        mli_json_stack(w, mli_stack_leak_node(r, i));
        mli_jsonf(r->o, ",'device':'%i'", mli_report_device(r, dev));
        mli_json_amount(r, leak->bytes, (uint64_t)(leak->blocks + 0.5));
        mli_jsonf(r->o, ",'samples':%ju}", leak->samples);
    }
    mli_put_str(r->o, "]");
    mli_json_leak_sites(r);
    mli_json_leaks_more(r);
    mli_put_str(r->o, "}");
}

static MLI_COLD void mli_json_mistakes(mli_report *r) {
    size_t i;
    mli_jsonf(r->o, ",\n'mistakes':{'more':%ju,'list':[", r->mistakes_more);
    for (i = 0; i < r->mistakes; i++) {
        const memlord_anomaly *a = &r->mistake[i].is;
        mli_jsonf(r->o, ",\n{'kind':%s,'device':'%i','storage':", mli_anomaly_name(a->kind),
                  mli_device_code(a->device));
        mli_jsonf(r->o, a->storage ? "'%jx'" : "null", a->storage);
        mli_list_json(r->o, MLI_LIST_MISTAKES, a);
        mli_jsonf(r->o, ",'site':%p,'born':%p,'tag':%s}",
                  (const void *)(a->site.file[0] ? &a->site : NULL),
                  (const void *)(a->born.file[0] ? &a->born : NULL), a->tag);
    }
    mli_put_str(r->o, "]}");
}

static void mli_json_moves(mli_report *r) {
    const mli_route *route = NULL;
    mli_jsonf(r->o, ",\n'moves':[");
    while ((route = mli_route_next(r->lord, route)) != NULL) {
        const mli_route_line line = mli_route_line_of(route);
        mli_jsonf(r->o, ",{'from':'%i','to':'%i'", mli_report_device(r, route->from),
                  mli_report_device(r, route->to));
        mli_list_json(r->o, MLI_LIST_ROUTES, &line);
        mli_put_str(r->o, "}");
    }
    mli_put_str(r->o, "]");
}

static void mli_json_threads(mli_report *r) {
    const mli_thread *t = mli_thread_first(r->lord);
    mli_jsonf(r->o, ",\n'threads':[");
    for (; t; t = mli_thread_next(t)) {
        uint64_t allocs = 0, frees = 0, in = 0, out = 0;
        uint32_t i;
        for (i = 1; i <= r->devices; i++) {
            const mli_cell *cell = mli_cell_at(t, MLI_BOOK_DEVICE, i);
            if (!cell) continue;
            allocs += mli_u64_load(&cell->allocs);
            frees += mli_u64_load(&cell->frees);
            out += mli_u64_load(&cell->out);
            in += mli_u64_load(&cell->level) + mli_u64_load(&cell->out);
        }
        if (allocs | frees | in | out)
            mli_jsonf(r->o,
                      ",{'id':%ju,'allocs':%ju,'frees':%ju,'bytes_allocated':%ju,"
                      "'bytes_freed':%ju}",
                      (uint64_t)mli_record_number(t->id), allocs, frees, in, out);
    }
    mli_put_str(r->o, "]");
}

/* -- JSON: events -- Sites and tags are indices into "strings". Index 0 is "". Then come the rows
   of sites, and then the rows of tags. */

/* Writes the strings of the events. `used` is 0 if there are none, but for the string "". */
static void mli_json_strings(mli_report *r, int used) {
    uint32_t i;
    mli_jsonf(r->o, ",\n'strings':[''");
    for (i = 1; used && i <= r->site_rows; i++) {
        mli_jsonf(r->o, ",\n'");
        mli_put_site_by(r->o, mli_row_site(r->lord, i), mli_put_json_part);
        mli_put_str(r->o, "\"");
    }
    for (i = 1; used && i <= r->tags; i++)
        mli_jsonf(r->o, ",\n%s", (const char *)mli_row_at(r->lord, MLI_BOOK_TAG, i)->subject);
    mli_put_str(r->o, "]");
}

static void mli_json_event_storage(mli_json_writer *w, uint64_t storage) {
    const uint64_t low = storage & UINT64_MAX >> 12;
    if (!storage) {
        mli_put_str(w->r->o, "0,");
    } else if (w->brief) {
        mli_jsonf(w->r->o, "%jd,", (int64_t)(low - w->last[1]));
        w->last[1] = low;
    } else {
        mli_jsonf(w->r->o, "'%jx',", storage);
    }
}
/* Writes an event. A brief report has the differences of the time and the storage from the time
   and the storage written last. It has only the low 52 bits of the storage, because readers of JSON
   round larger numbers. It has only the time, kind, thread and scope of a scope's event. */
static void mli_json_event(mli_json_writer *w, const mli_event_copy *e) {
    const mli_report *r = w->r;
    const uint64_t time = mli_since_ns(&r->scale, e->stamp);
    uint64_t site = e->where & MLI_SITE_ROWS_MAX;
    uint64_t tag = e->where >> 20 & MLI_TAG_ROWS_MAX;
    uint32_t kind = mli_event_kind(e->what);
    int named = kind == MEMLORD_EVENT_CHECKPOINT;
    mli_jsonf(r->o, w->brief ? ",[%jd,%ju,%ju" : ",\n[%jd,%ju,%ju", (int64_t)(time - w->last[0]),
              (uint64_t)kind, (uint64_t)e->thread);
    if (w->brief) w->last[0] = time;
    if (w->brief && (kind == MEMLORD_EVENT_SCOPE_BEGIN || kind == MEMLORD_EVENT_SCOPE_END)) {
        mli_jsonf(r->o, ",%ju]", e->where >> 36);
        return;
    }
    mli_jsonf(r->o, ",%jd,", (int64_t)mli_event_dev(e->what) - 1);
    mli_json_event_storage(w, named ? 0 : e->storage);
    mli_jsonf(r->o, "%ju,%ju,", MLI_BYTES(e->what), site <= r->site_rows ? site : 0);
    if (named)
        mli_put_json(r->o, (const char *)(uintptr_t)e->storage);
    else
        mli_put_u64(r->o, tag && tag <= r->tags ? r->site_rows + tag : 0);
    mli_jsonf(r->o, ",%ju", e->where >> 36);
    if (e->stream && !w->brief) mli_jsonf(r->o, ",'%jx'", e->stream);
    mli_put_str(r->o, "]");
}

static void mli_json_events(mli_json_writer *w) {
    static const char kinds[] = ""
#define MLI_X(name, text) ",\"" text "\""
        MLI_EVENTS(MLI_X)
#undef MLI_X
        ;
    mli_report *r = w->r;
    const mli_ring *ring = mli_ring_of(r->lord);
    mli_ring_reader reading;
    mli_event_copy e;
    uint64_t n = 0;
    mli_json_strings(r, ring != NULL);
    mli_jsonf(r->o, ",\n'events':{'capacity':%ju,'lost':%ju",
              ring ? (uint64_t)ring->capacity : 0, r->total.dropped_events);
    if (w->brief) mli_json_flag(r->o, "brief", 1);
    mli_jsonf(r->o, ",'kinds':[");
    mli_put_str(r->o, kinds + 1);
    mli_jsonf(r->o, "],'list':[");
    if (ring && mli_ring_reader_begin(r->lord, &reading)) {
        reading.scale = r->scale;
        for (; !r->o->failed && mli_ring_reader_next(&reading, &e); n++)
            mli_json_event(w, &e);
        mli_ring_reader_end(&reading);
    }
    mli_jsonf(r->o, "],'recorded':%ju}", n);
}

/* -- JSON: blocks, and the whole report -- */

MLI_PRIVATE MLI_COLD void mli_json_parts(mli_report *r, uint32_t type, uint64_t storage) {
    uint64_t count, bytes, offset = 0;
    size_t i, n, seen = 0;
    mli_jsonf(r->o, ",'parts':");
    n = mli_parts_copy(r->lord, type, storage, 0, r->part, 16, &count, &bytes);
    if (!n) {
        mli_put_str(r->o, "null");
        return;
    }
    mli_jsonf(r->o, "{'count':%ju,'bytes':%ju,'listed':[", count, bytes);
    while (n && seen < MLI_PARTS_SHOWN) {
        for (i = 0; i < n; i++, seen++) {
            const memlord_part_info *part = &r->part[i];
            mli_jsonf(r->o, ",\n{'offset':%ju,'bytes':%ju,'name':%s,'dtype':%s", part->offset,
                      part->bytes, part->meta.name, part->meta.dtype);
            mli_json_shape(r->o, &part->meta);
            mli_jsonf(r->o, ",'tag':%s}", part->meta.tag);
            offset = part->offset + 1;
        }
        n = mli_parts_copy(r->lord, type, storage, offset, r->part, 16, &count, &bytes);
    }
    mli_put_str(r->o, "]}");
}

static void mli_json_block(mli_report *r, const memlord_block_info *b) {
    mli_jsonf(r->o, /* as text, because readers of JSON round integers beyond 2^53 */
              ",\n{'device':'%i','storage':'%jx'",
              mli_device_code(b->device), b->storage);
    mli_list_json(r->o, MLI_LIST_BLOCKS, b);
    mli_jsonf(r->o, ",'tag':%s,'scope':%s,'site':%p,'name':%s,'dtype':%s", b->tag, b->scope,
              (const void *)b->site, b->meta.name, b->meta.dtype);
    mli_json_shape(r->o, &b->meta);
    mli_jsonf(r->o, ",'flags':%ju,'pending':%ju", (uint64_t)b->meta.flags,
              (uint64_t)(b->pending != 0));
    if (b->stream) mli_jsonf(r->o, ",'stream':'%jx'", b->stream);
    mli_json_parts(r, (uint32_t)b->device.type, b->storage);
    mli_put_str(r->o, "}");
}

#define MLI_PLAIN_BLOCKS 10

/* Returns 1 if a report lists a block: one of the ten largest, or one with a tag, a scope or a
   description. Other blocks are left out, because a program may have thousands of them. */
static int mli_json_block_shown(const mli_report *r, size_t i) {
    const memlord_block_info *b = &r->block[i];
    return i < MLI_PLAIN_BLOCKS || b->tag || b->scope || b->meta.name || b->meta.dtype ||
           b->meta.rank || b->meta.flags;
}
static MLI_COLD void mli_json_blocks(mli_report *r) {
    uint64_t count = 0, bytes = 0;
    size_t i;
    for (i = 0; i < r->blocks; i++) {
        if (!mli_json_block_shown(r, i)) continue;
        count++;
        bytes += r->block[i].bytes;
    }
    mli_jsonf(r->o, ",\n'largest_blocks':{'count':%ju,'of':%ju,'bytes':%ju,'blocks':[", count,
              r->total.live_blocks, bytes);
    for (i = 0; i < r->blocks; i++)
        if (mli_json_block_shown(r, i)) mli_json_block(r, &r->block[i]);
    mli_put_str(r->o, "]}");
}

static MLI_COLD void mli_json_write(mli_json_writer *w) {
    mli_report *r = w->r;
    mli_json_metadata(r);
    mli_json_verdicts(r);
    mli_json_devices(r);
    mli_json_phys_all(r);
    mli_json_accounts(r);
    mli_json_streams(r);
    mli_json_tags(r);
    mli_json_sites(r);
    mli_json_stacks(w);
    mli_json_summary(r);
    mli_json_holders(r);
    mli_json_leaks(w);
    mli_json_mistakes(r);
    mli_json_moves(r);
    mli_json_threads(r);
    mli_json_snapshots(r);
    mli_json_series(r);
    mli_json_scopes(w);
    mli_json_events(w);
    mli_json_blocks(r);
    mli_put_str(r->o, "}\n");
}
MLI_PRIVATE MLI_COLD void mli_json_run(mli_report *r, int brief) {
    mli_json_writer w;
    size_t size = 0;
    memset(&w, 0, sizeof w);
    w.r = r;
    w.brief = brief;
    if (r->stacks + r->stack_leaks) {
        w.frames = mli_stack_frame_count(r->lord);
        size = ((size_t)w.frames + 1) * sizeof *w.frame;
        w.frame = (uint32_t *)mli_own_alloc(r->lord, size);
        if (!w.frame) r->result = MEMLORD_E_NOMEM;
    }
    mli_json_write(&w);
    mli_own_free(r->lord, w.frame, size);
}
MLI_PRIVATE MLI_COLD void mli_json(mli_report *r) { mli_json_run(r, 0); }
