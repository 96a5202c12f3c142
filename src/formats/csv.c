#include "formats/csv.h"
#include "formats/frames.h"
#include "formats/holdings.h"
#include "formats/words.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void put_text(mlr_out *o, const char *text) {
    mlr_puts(o, ",");
    mlr_put_csv(o, text);
}
static void put_u64(mlr_out *o, uint64_t v) {
    mlr_puts(o, ",");
    mlr_put_u64(o, v);
}

/* -- CSV -- */

typedef struct writer {
    const mlr_profile *p;
    mlr_out *o;
    mlr_frames frames;
    mlr_holdings left;
} writer;

/* A line, up to the columns of parts. What is not known is "", 0 or MLR_UNKNOWN. */
typedef struct line {
    uint32_t device, scope, site;
    const char *tag, *name, *dtype, *shape;
    uint64_t storage, bytes, refs, born_ns, flags, stream, blocks;
    int pending, requires_grad;
} line;

static void put_line(writer *w, const line *l) {
    const mlr_place place = mlr_place_of(&w->frames, l->site);
    mlr_out *o = w->o;
    mlr_puts(o, w->p->device[l->device - 1].name);
    mlr_putf(o, l->storage ? ",0x%" PRIx64 : ",", l->storage);
    put_u64(o, l->bytes);
    put_u64(o, l->blocks);
    put_u64(o, l->refs);
    mlr_puts(o, ",");
    if (l->born_ns != MLR_UNKNOWN) mlr_put_u64(o, l->born_ns);
    mlr_puts(o, l->pending ? ",1" : ",0");
    put_text(o, l->tag);
    put_text(o, l->scope ? w->p->scope[l->scope - 1].path : "");
    put_text(o, l->name);
    put_text(o, l->dtype);
    put_text(o, l->shape);
    put_u64(o, l->flags);
    mlr_puts(o, l->requires_grad ? ",1" : ",0");
    put_text(o, place.file);
    put_u64(o, place.line);
    put_text(o, place.function);
}
/* Writes the last column, the stream of the block, and ends the line. */
static void end_line(writer *w, const line *l) {
    mlr_putf(w->o, l->stream ? ",0x%" PRIx64 "\r\n" : ",\r\n", l->stream);
}
static line line_of(const mlr_profile *p, const mlr_block *b) {
    line l;
    memset(&l, 0, sizeof l);
    l.device = b->device;
    l.scope = b->scope;
    l.site = b->site;
    l.tag = b->tag ? p->tag[b->tag - 1].name : "";
    l.name = b->name;
    l.dtype = b->dtype;
    l.shape = b->shape;
    l.storage = b->storage;
    l.bytes = b->bytes;
    l.blocks = 1;
    l.refs = b->refs;
    l.born_ns = b->born_ns;
    l.flags = b->flags;
    l.stream = b->stream;
    l.pending = b->pending;
    l.requires_grad = b->requires_grad;
    return l;
}
static void put_part(writer *w, const line *l, uint64_t offset, uint64_t bytes) {
    put_line(w, l);
    put_u64(w->o, offset);
    put_u64(w->o, bytes);
    end_line(w, l);
}
/* Gives a line a name that says how many blocks or parts it stands for. */
static void name_unlisted(line *l, char *name, uint64_t n, const char *what) {
    char count[32];
    strcpy(name, "(not listed: ");
    strcat(name, mlr_text_count(count, n));
    strcat(name, what);
    l->name = name;
}
static void put_parts(writer *w, const mlr_block *b, line *l) {
    uint64_t left = b->part_bytes;
    char name[64];
    uint32_t i;
    l->bytes = l->blocks = l->refs = l->flags = 0;
    l->requires_grad = 0;
    for (i = 0; i < b->parts; i++) {
        const mlr_part *part = &b->part[i];
        l->tag = part->tag;
        l->name = part->name;
        l->dtype = part->dtype;
        l->shape = part->shape;
        put_part(w, l, part->offset, part->bytes);
        (void)mlr_take(&left, part->bytes);
    }
    if (b->all_parts <= b->parts) return;
    l->tag = l->dtype = l->shape = "";
    name_unlisted(l, name, b->all_parts - b->parts, " parts)");
    put_part(w, l, 0, left);
}
static void put_block(writer *w, const mlr_block *b) {
    line l = line_of(w->p, b);
    put_line(w, &l);
    mlr_puts(w->o, ",,");
    end_line(w, &l);
    put_parts(w, b, &l);
}
/* Writes a line for what is not listed. */
static void put_left(writer *w, const mlr_holding *row) {
    char name[64];
    line l;
    memset(&l, 0, sizeof l);
    l.device = row->device;
    l.scope = row->where.scope;
    l.site = row->where.site;
    l.tag = row->tag ? w->p->tag[row->tag - 1].name : "";
    l.dtype = l.shape = "";
    l.name = "(arena)";
    l.bytes = row->bytes;
    l.blocks = row->blocks;
    l.born_ns = MLR_UNKNOWN;
    if (row->where.kind != MLR_KIND_ARENA) name_unlisted(&l, name, row->blocks, " blocks)");
    put_line(w, &l);
    mlr_puts(w->o, ",,");
    end_line(w, &l);
}

/* Orders rows by device, tag, scope and site. */
static int row_order(const void *x, const void *y) {
    const mlr_holding *a = (const mlr_holding *)x, *b = (const mlr_holding *)y;
    if (a->device != b->device) return a->device < b->device ? -1 : 1;
    if (a->where.kind != b->where.kind) return a->where.kind < b->where.kind ? -1 : 1;
    if (a->tag != b->tag) return a->tag < b->tag ? -1 : 1;
    if (a->where.scope != b->where.scope) return a->where.scope < b->where.scope ? -1 : 1;
    return (a->where.site > b->where.site) - (a->where.site < b->where.site);
}
/* Writes what is not listed. Rows that differ only in their stack become one line. */
static void put_rest(writer *w) {
    mlr_holdings *rows = &w->left;
    size_t i;
    mlr_holdings_unlisted(w->p, NULL, rows);
    if (rows->count) qsort(rows->at, rows->count, sizeof *rows->at, row_order);
    for (i = 0; i < rows->count && !w->o->failed; i++) {
        mlr_holding *row = &rows->at[i];
        if (i + 1 < rows->count && !row_order(row, row + 1)) {
            row[1].blocks += row->blocks;
            row[1].bytes += row->bytes;
        } else {
            put_left(w, row);
        }
    }
}
MLR_PRIVATE mlr_result mlr_csv(const mlr_profile *p, mlr_out *o) {
    writer w;
    uint32_t i;
    int done;
    memset(&w, 0, sizeof w);
    w.p = p;
    w.o = o;
    done = mlr_frames_open(&w.frames, p);
    if (done) {
        mlr_puts(o, "device,storage,bytes,blocks,refs,born_ns,pending,tag,scope,name,dtype,shape,"
                    "flags,requires_grad,file,line,function,part_offset,part_bytes,stream\r\n");
        for (i = 0; i < p->block_count && !o->failed; i++) put_block(&w, &p->block[i]);
        put_rest(&w);
        done = !w.left.failed;
    }
    mlr_frames_close(&w.frames);
    mlr_holdings_free(&w.left);
    return done ? MLR_OK : MLR_E_NOMEM;
}

/* -- TIMELINE -- */

static void put_moment(const mlr_profile *p, mlr_out *o, const mlr_snapshot *s, uint32_t device,
                       const char *tag, uint64_t bytes) {
    mlr_put_fixed(o, s->time_ns, 9);
    mlr_putf(o, ",%s", p->device[device - 1].name);
    put_text(o, tag);
    put_u64(o, bytes);
    put_u64(o, s->level[device - 1].peak);
    mlr_puts(o, "\r\n");
}
static void put_device(const mlr_profile *p, mlr_out *o, const mlr_snapshot *s, uint32_t device) {
    uint64_t rest = s->level[device - 1].live;
    uint32_t i;
    for (i = 0; i < s->tags; i++) {
        const mlr_held *held = &s->tag[i];
        if (!held->row || p->tag[held->row - 1].device != device) continue;
        put_moment(p, o, s, device, p->tag[held->row - 1].name, held->bytes);
        (void)mlr_take(&rest, held->bytes);
    }
    put_moment(p, o, s, device, "", rest);
}
MLR_PRIVATE mlr_result mlr_timeline(const mlr_profile *p, mlr_out *o) {
    uint32_t i, dev;
    mlr_puts(o, "seconds,device,tag,live,device_peak\r\n");
    for (i = 0; i < p->snapshot_count && !o->failed; i++)
        for (dev = 1; dev <= p->snapshot[i].levels && dev <= p->device_count; dev++)
            put_device(p, o, &p->snapshot[i], dev);
    return MLR_OK;
}
