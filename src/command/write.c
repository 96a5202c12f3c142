#include "command/write.h"
#include "command/named.h"
#include "command/say.h"
#include "formats/text_report.h"
#include <string.h>

static mlr_result write_text(const mlr_written *what, mlr_out *out) {
    mlr_write_text(what->answers, NULL, out);
    return MLR_OK;
}
static mlr_result write_json(const mlr_written *what, mlr_out *out) {
    return mlr_named_write(what->profile, what->text, what->size, out);
}

/* The formats whose writers need more than a profile. */
static const struct {
    mlr_format format;
    mlr_result (*write)(const mlr_written *what, mlr_out *out);
} own[] = {{MLR_FORMAT_TEXT, write_text}, {MLR_FORMAT_JSON, write_json}};
enum { OWN = sizeof own / sizeof *own };

int mlr_write_can(mlr_format format) {
    for (int i = 0; i < OWN; i++)
        if (own[i].format == format) return 1;
    return format < MLR_FORMAT_COUNT && mlr_format_of(format)->write;
}

mlr_format mlr_write_format_of(const char *path, const mlr_profile *p) {
    const mlr_format format = strcmp(path, "-") ? mlr_format_of_path(path) : MLR_FORMAT_TEXT;
    if (format == MLR_FORMAT_FOLDED && p && p->ended && p->total.allocated < p->total.peak / 4)
        return MLR_FORMAT_FOLDED_PEAK;
    return format;
}

mlr_result mlr_write_to(mlr_format format, const mlr_written *what, mlr_out *out) {
    for (int i = 0; i < OWN; i++)
        if (own[i].format == format) return own[i].write(what, out);
    return mlr_format_of(format)->write(what->profile, out);
}

void mlr_write_tell(mlr_format format, const mlr_profile *p, const char *path) {
    const int needs = mlr_format_of(format)->needs;
    const char *name = mlr_clean(path);
    if (needs & MLR_NEEDS_BLOCKS && p->blocks_of > p->block_count)
        mlr_tell("%s: has the %lu largest of %llu blocks, as the profile does", name,
                 (unsigned long)p->block_count, (unsigned long long)p->blocks_of);
    if (needs & MLR_NEEDS_EVENTS && !p->event_count)
        mlr_tell("%s: has no single allocations; --events N of memlord run records the last N",
                 name);
    if (needs & MLR_NEEDS_SNAPSHOTS && !p->snapshot_count)
        mlr_tell("%s: has no rows, because no snapshots were taken", name);
    if (format == MLR_FORMAT_JSON && p->schema < 3)
        mlr_tell("%s: is as it was: places of the schema memlord/%d get no names in JSON", name,
                 p->schema);
}
