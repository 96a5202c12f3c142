#include "formats/formats.h"
#include "formats/csv.h"
#include "formats/folded.h"
#include "formats/heaptrack.h"
#include "formats/memory_viz.h"
#include "formats/pprof.h"
#include "formats/prometheus.h"
#include "formats/trace.h"
#include <string.h>

static const mlr_format_info formats[MLR_FORMAT_COUNT] = {
#define MLR_X(name, suffix, writer, needs) {#name, suffix, writer, needs},
    MLR_FORMATS(MLR_X)
#undef MLR_X
};

MLR_PRIVATE const mlr_format_info *mlr_format_of(mlr_format format) { return &formats[format]; }

MLR_PRIVATE mlr_format mlr_format_of_path(const char *path) {
    const size_t n = strlen(path);
    size_t best = 0;
    int i, found = MLR_FORMAT_COUNT;
    for (i = 0; i < MLR_FORMAT_COUNT; i++) { /* the longest decides: .trace.json is not .json */
        const size_t length = strlen(formats[i].suffix);
        if (length <= best || n <= length || path[n - length - 1] != '.') continue;
        if (strcmp(path + n - length, formats[i].suffix)) continue;
        best = length;
        found = i;
    }
    return (mlr_format)found;
}
