/* Makes the answers to a profile: sentences in the order of their weight, and tables. Whoever
   prints them prints what is here, and computes nothing. Owns mlr_answers. Invariants: a text is
   never NULL unless its comment says so; a row has as many cells as its table has columns. Locks:
   none. */
#ifndef MLR_ANSWERS_ANSWERS_H
#define MLR_ANSWERS_ANSWERS_H
#include "profile/profile.h"

/* -- what is asked -- */

/* What holders, stacks and the tree are ordered by: live bytes, or those at the peak where these
   are more; live bytes; bytes that were live at the peak of the device; the number of allocs; bytes
   allocated since the start; allocs that were freed before the next alloc. */
typedef enum mlr_by {
    MLR_BY_HELD,
    MLR_BY_LIVE,
    MLR_BY_PEAK,
    MLR_BY_ALLOCS,
    MLR_BY_ALLOCATED,
    MLR_BY_TEMPORARY
} mlr_by;

/* What `memlord report` is asked. All 0: everything, by what is held. */
typedef struct mlr_options {
    /* Only what has these; NULL: all. A device by its name or its type, as in "cuda"; the others
       by a part of their name, in upper or lower case. "(untagged)" is what has no tag. */
    const char *device, *tag, *site, *module;
    mlr_by by;
    int has_at;        /* 1: the table "moment" has who held what at at_ns */
    uint64_t at_ns;    /* since the start */
    int tree;          /* 1: there is a table "tree" */
    int keep_wrappers; /* 1: well-known wrappers are places like others */
    uint32_t top;      /* the most rows of a table; 0: MLR_TOP */
} mlr_options;
#define MLR_TOP 20

/* -- sentences -- */

typedef enum mlr_tone { MLR_PLAIN, MLR_ODD, MLR_BAD } mlr_tone; /* how bad what it says is */

/* The kinds of sentences in their order: name in JSON, head, tone. A kind of lower weight comes
   first only if the other concerns less than 1 % of the bytes. */
#define MLR_SAYS(X)                                                                                \
    X(totals, "totals are too low", BAD)                                                           \
    X(out_of_memory, "out of memory", BAD)                                                         \
    X(over_limit, "over a limit", BAD)                                                             \
    X(full, "nearly full", BAD)                                                                    \
    X(growth, "growth", ODD)                                                                       \
    X(still_live, "still live since mark", ODD)                                                    \
    X(resident, "not in the books", ODD)                                                           \
    X(peak, "peak", PLAIN)                                                                         \
    X(holders, "biggest holder", PLAIN)                                                            \
    X(temporaries, "short-lived", PLAIN)                                                           \
    X(grew, "growth that ended", PLAIN)                                                            \
    X(inherited, "inherited at fork", PLAIN)                                                       \
    X(recovered, "ran out and recovered", ODD)                                                     \
    X(mistakes, "mistakes", ODD)                                                                   \
    X(collections, "collections that did not run", ODD)                                            \
    X(fragments, "fragmented pool", ODD)                                                           \
    X(untouched, "not resident", ODD)                                                              \
    X(detail, "detail that was lost", ODD)                                                         \
    X(more, "and more", PLAIN)                                                                     \
    X(nothing, "nothing recorded", PLAIN)                                                          \
    X(compared, "change", PLAIN)                                                                   \
    X(budget, "budget", BAD)
typedef enum mlr_says {
#define MLR_X(name, head, tone) MLR_SAYS_##name,
    MLR_SAYS(MLR_X)
#undef MLR_X
        MLR_SAYS_COUNT
} mlr_says;

typedef struct mlr_sentence {
    mlr_says kind;
    mlr_tone tone;
    uint32_t device;     /* its number in the profile; 0: none, or several */
    uint64_t bytes;      /* how many bytes it concerns */
    const char *head;    /* "growth, cpu" */
    const char *text;    /* "tag kv grows by 9 MiB a minute": the sentence is head: text */
    uint32_t frame;      /* the place that it names; 0: none */
    const char *tag;     /* the tag that it names, or NULL */
    const char **detail; /* lines that say more, each a sentence */
    uint32_t details;
} mlr_sentence;

/* -- tables -- */

/* What the cells of a column have. MLR_CHANGE is an int64_t; MLR_SHARE tenths of a percent;
   MLR_DURATION nanoseconds; MLR_SINCE nanoseconds since the start of the program; MLR_RATE bytes a
   minute; MLR_TEXT text of the program's, with any character. */
typedef enum mlr_type {
    MLR_BYTES,
    MLR_CHANGE,
    MLR_COUNT,
    MLR_SHARE,
    MLR_DURATION,
    MLR_SINCE,
    MLR_RATE,
    MLR_ADDRESS,
    MLR_TEXT
} mlr_type;
typedef struct mlr_column {
    const char *key, *title; /* in JSON; in a heading */
    mlr_type type;
    int wide; /* 1: TEXT leaves it out */
} mlr_column;
typedef struct mlr_cell {
    uint64_t number;  /* MLR_UNKNOWN: not known. Not used for MLR_TEXT */
    const char *text; /* only for MLR_TEXT; "": none */
} mlr_cell;

/* The tables, in their order: name in JSON, title. Those that would be empty are left out. */
#define MLR_TABLES(X)                                                                              \
    X(run, "the run")                                                                              \
    X(devices, "devices")                                                                          \
    X(curve, "live bytes over time")                                                               \
    X(capacity, "capacity")                                                                        \
    X(moment, "who held what at that moment")                                                      \
    X(tags, "tags")                                                                                \
    X(sites, "places that allocate")                                                               \
    X(stacks, "stacks")                                                                            \
    X(tree, "tree of callers")                                                                     \
    X(callers, "callers of places")                                                                \
    X(scopes, "scopes; live: without inner scopes")                                                \
    X(where, "live blocks by tag, place and scope")                                                \
    X(peaks, "who held what at the peak")                                                          \
    X(growth, "growth")                                                                            \
    X(still_live, "still live")                                                                    \
    X(ages, "age of what is live")                                                                 \
    X(temporaries, "blocks freed before the next alloc")                                           \
    X(resident, "the books and the process")                                                       \
    X(pools, "pools")                                                                              \
    X(sizes, "sizes of live blocks")                                                               \
    X(lifetimes, "lifetimes of blocks")                                                            \
    X(mistakes, "mistakes, the heaviest first")                                                    \
    X(losses, "what was not recorded")                                                             \
    X(accounts, "accounts")                                                                        \
    X(streams, "streams")                                                                          \
    X(transfers, "moves and copies")                                                               \
    X(threads, "threads")                                                                          \
    X(checkpoints, "checkpoints")                                                                  \
    X(blocks, "largest blocks")                                                                    \
    X(modules, "modules of return addresses")                                                      \
    X(comparison, "what changed")
typedef enum mlr_table_id {
#define MLR_X(name, title) MLR_TABLE_##name,
    MLR_TABLES(MLR_X)
#undef MLR_X
        MLR_TABLE_COUNT
} mlr_table_id;

typedef struct mlr_table {
    mlr_table_id id;
    const char *key, *title; /* "sites"; "places that allocate, by what they hold" */
    const mlr_column *column;
    uint32_t columns, rows, room;
    mlr_cell *cell;      /* row by row */
    uint32_t *frame;     /* by row: the place that the row names, or 0 */
    uint64_t more;       /* how many rows were left out */
    uint64_t more_bytes; /* and what they hold; MLR_UNKNOWN */
    const char *note;    /* what a reader must know of the numbers, or "" */
} mlr_table;

typedef struct mlr_answers {
    mlr_profile *profile;
    mlr_options options;
    const char *program; /* "app, pid 7 on host, since 2026-11-29T12:00:00Z for 1.6 s" */
    const char *filter;  /* "only tag kv, device cuda:0"; "": all is asked */
    mlr_sentence *sentence;
    uint32_t sentences;
    mlr_table *table;
    uint32_t tables;
    const char **note; /* what the answers are not: estimates, what the file does not have */
    uint32_t notes;
} mlr_answers;

/* Makes the answers. They live as long as the profile. `options` may be NULL, or has texts that
   live as long. Marks well-known wrappers in the profile as such (answers/wrappers.h). Returns
   NULL if there is no memory. */
MLR_PRIVATE mlr_answers *mlr_answers_make(mlr_profile *profile, const mlr_options *options);

/* Returns a table, or NULL if it would be empty. */
MLR_PRIVATE mlr_table *mlr_answers_table(const mlr_answers *answers, mlr_table_id id);
/* Returns the cell of a row, from 0, in a column by its key. Requires: both exist. */
MLR_PRIVATE mlr_cell *mlr_table_cell(const mlr_table *table, uint32_t row, const char *key);
/* The name of a kind in JSON, as in "out_of_memory". */
MLR_PRIVATE const char *mlr_says_name(mlr_says kind);

#endif
