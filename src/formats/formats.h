/* Has the table of the formats: their names, the suffixes of their files, their writers, and what
   each needs. Owns no state. Locks: none. */
#ifndef MLR_FORMATS_FORMATS_H
#define MLR_FORMATS_FORMATS_H
#include "profile/read.h"
#include "profile/text.h"

/* What a format needs of a profile to be complete. */
enum {
    MLR_NEEDS_ANSWERS = 1, /* the answers, which its writer prints */
    MLR_NEEDS_BLOCKS = 2,  /* single blocks: it says how many the profile does not list */
    MLR_NEEDS_EVENTS = 4,  /* events, without which it has no single allocations */
    MLR_NEEDS_SNAPSHOTS = 8
};

/* Each line has a format: its name, its suffix, its writer, and what it needs. TEXT, JSON and HTML
   have no writer here: the first and the last print answers, and JSON is the profile's file. */
#define MLR_FORMATS(X)                                                                             \
    X(TEXT, "txt", NULL, MLR_NEEDS_ANSWERS)                                                        \
    X(JSON, "json", NULL, 0)                                                                       \
    X(HTML, "html", NULL, MLR_NEEDS_ANSWERS)                                                       \
    X(PPROF, "pb", mlr_pprof, 0)                                                                   \
    X(HEAPTRACK, "heaptrack", mlr_heaptrack, 0)                                                    \
    X(FOLDED, "folded", mlr_folded_live, 0)                                                        \
    X(FOLDED_LIVE, "live.folded", mlr_folded_live, 0)                                              \
    X(FOLDED_PEAK, "peak.folded", mlr_folded_peak, 0)                                              \
    X(FOLDED_ALLOCATED, "allocated.folded", mlr_folded_allocated, 0)                               \
    X(TRACE, "trace.json", mlr_trace, MLR_NEEDS_EVENTS)                                            \
    X(MEMORY_VIZ, "pickle", mlr_memory_viz, MLR_NEEDS_BLOCKS | MLR_NEEDS_EVENTS)                   \
    X(CSV, "csv", mlr_csv, MLR_NEEDS_BLOCKS)                                                       \
    X(TIMELINE, "timeline.csv", mlr_timeline, MLR_NEEDS_SNAPSHOTS)                                 \
    X(PROMETHEUS, "prom", mlr_prometheus, 0)

typedef enum mlr_format {
#define MLR_X(name, suffix, writer, needs) MLR_FORMAT_##name,
    MLR_FORMATS(MLR_X)
#undef MLR_X
        MLR_FORMAT_COUNT
} mlr_format;

typedef struct mlr_format_info {
    const char *name, *suffix;                             /* "PPROF", "pb" */
    mlr_result (*write)(const mlr_profile *p, mlr_out *o); /* NULL: there is none here */
    int needs;                                             /* a sum of MLR_NEEDS_... */
} mlr_format_info;

MLR_PRIVATE const mlr_format_info *mlr_format_of(mlr_format format);

/* Returns the format that the suffix of a file's name stands for ("x.html", "y.trace.json"), or
   MLR_FORMAT_COUNT if it stands for none. */
MLR_PRIVATE mlr_format mlr_format_of_path(const char *path);

#endif
