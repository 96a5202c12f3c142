/* Writes text: numbers, sizes, durations, times, names of the program's. Owns mlr_out, an output
   with a buffer. Invariant: after a write that failed or memory that lacked nothing more is
   written, and `failed` says so. Locks: none. */
#ifndef MLR_PROFILE_TEXT_H
#define MLR_PROFILE_TEXT_H
#include "profile/profile.h"

/* Takes `size` bytes; returns 0, or another number if they could not be written. */
typedef int (*mlr_write_fn)(void *user, const void *data, size_t size);

typedef struct mlr_out {
    mlr_write_fn write;
    void *user;
    int failed;
    uint64_t written; /* bytes so far */
    size_t used;
    char buffer[4096];
} mlr_out;

MLR_PRIVATE void mlr_out_open(mlr_out *o, mlr_write_fn write, void *user);
/* Writes what is in the buffer. Returns 0, or another number if a write failed. */
MLR_PRIVATE int mlr_out_close(mlr_out *o);

MLR_PRIVATE void mlr_put(mlr_out *o, const void *data, size_t size);
MLR_PRIVATE void mlr_puts(mlr_out *o, const char *text);
/* Writes by a format of printf, at most 1,023 bytes. For numbers and constant texts; names go
   through the functions below. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
MLR_PRIVATE void
mlr_putf(mlr_out *o, const char *form, ...);

/* Writes a name for a terminal or a page: U+FFFD and two digits replace each byte of a control
   character or of a sequence that is not UTF-8. `most`: the most characters, then "..."; 0: all. */
MLR_PRIVATE void mlr_put_name(mlr_out *o, const char *name, size_t most);
/* Writes a JSON string with its quotes. */
MLR_PRIVATE void mlr_put_json(mlr_out *o, const char *text);
/* Writes a name with the characters that HTML reserves as entities. */
MLR_PRIVATE void mlr_put_html(mlr_out *o, const char *text);
/* Writes a field of CSV, in quotes if it needs them. A field that a spreadsheet would take for a
   formula, or that begins with an apostrophe, gets an apostrophe before it. */
MLR_PRIVATE void mlr_put_csv(mlr_out *o, const char *text);

/* These write to a buffer, for which 32 bytes are enough, and return it. */
MLR_PRIVATE char *mlr_text_bytes(char *buffer, uint64_t bytes); /* "1.5 GiB", "100 B" */
MLR_PRIVATE char *mlr_text_change(char *buffer, int64_t bytes); /* "+1.5 GiB" */
MLR_PRIVATE char *mlr_text_percent(char *buffer, uint64_t part, uint64_t whole); /* "44.4 %" */
MLR_PRIVATE char *mlr_text_count(char *buffer, uint64_t n);                      /* "2,000,000" */
MLR_PRIVATE char *mlr_text_duration(char *buffer, uint64_t ns);  /* "1.6 s", "40 min" */
MLR_PRIVATE char *mlr_text_time(char *buffer, uint64_t unix_ns); /* "2026-11-29T12:00:00Z" */

#endif
