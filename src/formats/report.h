/* memlord_report.h: converts the JSON of a ledger in the host's own process, for a program that
   serves pprof, metrics or a page itself. Owns no state. Locks: none; any number of threads may
   convert at the same time. */
#ifndef MEMLORD_REPORT_H
#define MEMLORD_REPORT_H
#include "memlord.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum memlord_report_format {
    MEMLORD_REPORT_TEXT,
    MEMLORD_REPORT_HTML,
    MEMLORD_REPORT_PPROF,
    MEMLORD_REPORT_HEAPTRACK,
    MEMLORD_REPORT_FOLDED,
    MEMLORD_REPORT_FOLDED_PEAK,
    MEMLORD_REPORT_FOLDED_ALLOCATED,
    MEMLORD_REPORT_TRACE,
    MEMLORD_REPORT_MEMORY_VIZ,
    MEMLORD_REPORT_CSV,
    MEMLORD_REPORT_TIMELINE,
    MEMLORD_REPORT_PROMETHEUS,
    MEMLORD_REPORT_COUNT
} memlord_report_format;

/* Converts the JSON that memlord_write or memlord_save has written, and writes the result through
   fn, in pieces of up to 4 KiB. Functions and lines of addresses are not looked up: they are as in
   the JSON.
   Errors: E_INVALID if the text is not JSON, is cut off or has a number that no ledger has, or if
           fn is NULL; E_UNSUPPORTED if it is JSON of another kind or of a newer schema, or if there
           is no such format; E_IO if fn returned non-zero; E_NOMEM. After E_IO or E_NOMEM a part of
           the result may be written.
   Cost:   about four times the size of the text in memory. */
memlord_result memlord_report_convert(const void *json, size_t size, memlord_report_format format,
                                      memlord_write_fn write, void *user);

#ifdef __cplusplus
}
#endif

#endif
