#include "formats/report.h"
#include "formats/formats.h"
#include "profile/read.h"
#include "profile/text.h"

static const mlr_format report_formats[MEMLORD_REPORT_COUNT] = {MLR_FORMAT_TEXT,
                                                                MLR_FORMAT_HTML,
                                                                MLR_FORMAT_PPROF,
                                                                MLR_FORMAT_HEAPTRACK,
                                                                MLR_FORMAT_FOLDED,
                                                                MLR_FORMAT_FOLDED_PEAK,
                                                                MLR_FORMAT_FOLDED_ALLOCATED,
                                                                MLR_FORMAT_TRACE,
                                                                MLR_FORMAT_MEMORY_VIZ,
                                                                MLR_FORMAT_CSV,
                                                                MLR_FORMAT_TIMELINE,
                                                                MLR_FORMAT_PROMETHEUS};

static memlord_result result_of(mlr_result result) {
    switch (result) {
    case MLR_OK: return MEMLORD_OK;
    case MLR_E_NOMEM: return MEMLORD_E_NOMEM;
    case MLR_E_UNSUPPORTED: return MEMLORD_E_UNSUPPORTED;
    default: return MEMLORD_E_INVALID;
    }
}
memlord_result memlord_report_convert(const void *json, size_t size, memlord_report_format format,
                                      memlord_write_fn write, void *user) {
    const mlr_format_info *info;
    mlr_profile *profile;
    mlr_result result;
    mlr_out out;
    char message[256];
    if (!json || !write) return MEMLORD_E_INVALID;
    if ((unsigned)format >= MEMLORD_REPORT_COUNT) return MEMLORD_E_UNSUPPORTED;
    info = mlr_format_of(report_formats[format]);
    if (!info->write) return MEMLORD_E_UNSUPPORTED;
    result = mlr_profile_read("-", (const char *)json, size, &profile, message, sizeof message);
    if (result != MLR_OK) return result_of(result);
    mlr_out_open(&out, write, user);
    result = info->write(profile, &out);
    mlr_profile_free(profile);
    if (mlr_out_close(&out) && result == MLR_OK) return MEMLORD_E_IO;
    return result_of(result);
}
