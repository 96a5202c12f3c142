#include "reports/lists.h"
#include "reports/capture.h"
#include "reports/growth.h"
#include "reports/leaks.h"

#include <stddef.h> /* offsetof */

/* The kinds of columns: how TEXT writes a number. JSON writes an integer. */
enum {
    MLI_CELL_BYTES,
    MLI_CELL_ERROR, /* bytes; only in a list with standard errors */
    MLI_CELL_COUNT,
    MLI_CELL_TIME,
    MLI_CELL_CHANGE /* bytes with a sign */
};

/* The columns of each list in their order: the list, the member of a line, which is a uint64_t or
   an int64_t, the key in JSON, the heading in TEXT, and the kind. If the key is empty, JSON leaves
   out the column. If the heading is empty, TEXT does. */
#define MLI_LIST_COLUMNS(X)                                                                        \
    X(CAPACITY, total, "total", "total", BYTES)                                                    \
    X(CAPACITY, used, "used", "", BYTES)                                                           \
    X(CAPACITY, free, "free", "free", BYTES)                                                       \
    X(CAPACITY, self, "self", "self", BYTES)                                                       \
    X(CAPACITY, untagged, "untagged", "", BYTES)                                                   \
    X(CAPACITY, context, "context", "", BYTES)                                                     \
    X(CAPACITY, neighbours, "neighbours", "", BYTES)                                               \
    X(CAPACITY, unaccounted, "unaccounted", "", CHANGE)                                            \
    X(CAPACITY, process, "process", "", BYTES)                                                     \
    X(CAPACITY, rest, "", "unrecorded", BYTES)                                                     \
    X(CAPACITY, others, "others", "others", BYTES)                                                 \
    X(CAPACITY, age, "age_ns", "", TIME)                                                           \
    X(CAPACITY, limit, "limit", "limit", BYTES)                                                    \
    X(CAPACITY, held, "held", "held", BYTES)                                                       \
    X(TAGS, stat.allocated, "allocated", "live", BYTES)                                            \
    X(TAGS, stat.peak, "peak", "peak", BYTES)                                                      \
    X(TAGS, peak_error, "peak_error", "", BYTES)                                                   \
    X(TAGS, stat.blocks, "blocks", "blocks", COUNT)                                                \
    X(TAGS, stat.expected, "expected", "expected", BYTES)                                          \
    X(TAGS, stat.variance, "variance", "variance", CHANGE)                                         \
    X(SITES, live_bytes, "live_bytes", "live", BYTES)                                              \
    X(SITES, peak_bytes, "peak_bytes", "peak", BYTES)                                              \
    X(SITES, allocs, "allocs", "allocs", COUNT)                                                    \
    X(SITES, alloc_bytes, "alloc_bytes", "allocated", BYTES)                                       \
    X(SITES, frees, "frees", "", COUNT)                                                            \
    X(SITES, free_bytes, "free_bytes", "", BYTES)                                                  \
    X(STACKS, stat.live_bytes, "live_bytes", "live", BYTES)                                        \
    X(STACKS, stat.error_bytes, "error_bytes", "error", ERROR)                                     \
    X(STACKS, stat.peak_bytes, "peak_bytes", "peak", BYTES)                                        \
    X(STACKS, held, "at_peak_bytes", "at peak", BYTES)                                             \
    X(STACKS, stat.allocs, "allocs", "allocs", COUNT)                                              \
    X(STACKS, stat.alloc_bytes, "alloc_bytes", "allocated", BYTES)                                 \
    X(STACKS, stat.samples, "samples", "", COUNT)                                                  \
    X(BLOCKS, bytes, "bytes", "bytes", BYTES)                                                      \
    X(BLOCKS, refs, "refs", "refs", COUNT)                                                         \
    X(BLOCKS, born, "born", "", COUNT)                                                             \
    X(ACCOUNTS, bytes, "bytes", "bytes", BYTES)                                                    \
    X(ACCOUNTS, peak, "peak", "peak", BYTES)                                                       \
    X(ACCOUNTS, limit, "limit", "limit", BYTES)                                                    \
    X(ACCOUNTS, refused, "refused", "refused", COUNT)                                              \
    X(STREAMS, bytes, "bytes", "bytes", BYTES)                                                     \
    X(STREAMS, blocks, "blocks", "blocks", COUNT)                                                  \
    X(GROWTH, rate, "bytes_per_minute", "a minute", BYTES)                                         \
    X(GROWTH, points, "snapshots", "snapshots", COUNT)                                             \
    X(LEAKS, bytes, "bytes", "bytes", BYTES)                                                       \
    X(LEAKS, blocks, "count", "blocks", COUNT)                                                     \
    X(MISTAKES, count, "count", "count", COUNT)                                                    \
    X(MISTAKES, bytes, "bytes", "bytes", BYTES)                                                    \
    X(MISTAKES, first_ns, "first_ns", "first", TIME)                                               \
    X(MISTAKES, last_ns, "last_ns", "last", TIME)                                                  \
    X(ROUTES, moves, "count", "moves", COUNT)                                                      \
    X(ROUTES, moved_bytes, "bytes", "bytes", BYTES)                                                \
    X(ROUTES, copies, "copies", "copies", COUNT)                                                   \
    X(ROUTES, copied_bytes, "copied_bytes", "bytes", BYTES)

#define MLI_X(list, type) typedef type mli_line_of_##list;
MLI_LISTS(MLI_X)
#undef MLI_X

static const struct {
    unsigned short at; /* the member's offset */
    unsigned char list, kind;
    char key[17], heading[11]; /* arrays, because a pointer would have to be relocated */
} mli_list_columns[] = {
#define MLI_X(list, member, key, heading, kind) \
    {offsetof(mli_line_of_##list, member), MLI_LIST_##list, MLI_CELL_##kind, key, heading},
    MLI_LIST_COLUMNS(MLI_X)
#undef MLI_X
};
#define MLI_LIST_COLUMN_COUNT (sizeof mli_list_columns / sizeof *mli_list_columns)

typedef struct mli_column {
    size_t next; /* the index of the column after this one */
    const char *key, *heading;
    int kind;
    uint64_t value; /* the number that the line has in this column */
} mli_column;
/* Goes to the next column of a list, with the line's number, if any. Returns 0 after the last. */
static int mli_column_next(mli_column *c, mli_list list, const void *line) {
    while (c->next < MLI_LIST_COLUMN_COUNT) {
        const size_t i = c->next++;
        if (mli_list_columns[i].list != list) continue;
        c->key = mli_list_columns[i].key;
        c->heading = mli_list_columns[i].heading;
        c->kind = mli_list_columns[i].kind;
        if (line) memcpy(&c->value, (const char *)line + mli_list_columns[i].at, sizeof c->value);
        return 1;
    }
    return 0;
}
/* Returns 1 if TEXT has the column. */
static int mli_column_in_text(const mli_column *c, int errors) {
    return *c->heading && (errors || c->kind != MLI_CELL_ERROR);
}

MLI_PRIVATE MLI_COLD void mli_list_headings(mli_out *o, mli_list list, int errors) {
    static const char blanks[] = "            "; /* as wide as a number */
    mli_column c = {0, NULL, NULL, 0, 0}; /* before the first column */
    while (mli_column_next(&c, list, NULL))
        if (mli_column_in_text(&c, errors)) {
            mli_put_str(o, blanks + strlen(c.heading));
            mli_put_str(o, c.heading);
        }
}
MLI_PRIVATE MLI_COLD void mli_list_text(mli_out *o, mli_list list, const void *line, int errors) {
    mli_column c = {0, NULL, NULL, 0, 0}; /* before the first column */
    while (mli_column_next(&c, list, line)) {
        if (!mli_column_in_text(&c, errors)) continue;
        switch (c.kind) {
        case MLI_CELL_COUNT: mli_putf(o, "%12ju", c.value); break;
        case MLI_CELL_TIME: mli_putf(o, "%12jX", c.value); break;
        case MLI_CELL_CHANGE: mli_putf(o, "%+12jd", (int64_t)c.value); break;
        default: mli_putf(o, "%12jo", c.value);
        }
    }
}
MLI_PRIVATE MLI_COLD void mli_list_json(mli_out *o, mli_list list, const void *line) {
    mli_column c = {0, NULL, NULL, 0, 0}; /* before the first column */
    while (mli_column_next(&c, list, line)) {
        if (!*c.key) continue;
        if (c.kind == MLI_CELL_CHANGE)
            mli_jsonf(o, ",%s:%jd", c.key, (int64_t)c.value);
        else
            mli_jsonf(o, ",%s:%ju", c.key, c.value);
    }
}
