/* Writes numbers and strings to an mli_out, which fills a buffer. A full buffer goes to the
   function of the mli_out; without one the text is cut there, and the rest is counted, as in
   snprintf. Uses no stdio, no locale and no allocation. Owns no state. Locks: none. */
#ifndef MLI_BASE_TEXT_H
#define MLI_BASE_TEXT_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"

#include <stdarg.h> /* va_list, for mli_putf and mli_jsonf */

/* The name of each device type, such as "cpu". */
MLI_TABLE(const char mli_type_names[][8])

typedef struct mli_out {
    memlord_write_fn fn; /* takes a full buffer; NULL: text past the buffer is cut */
    void *user;
    char *buf;
    size_t cap, used;
    size_t total;    /* bytes that were written so far, including those that were cut */
    size_t name_max; /* how many characters of a name mli_put_escaped writes at most; 0: all */
    int html;        /* 1: mli_put_escaped writes &lt; for < and &amp; for & */
    int failed;      /* 1: `fn` has failed and is not called again */
} mli_out;

MLI_PRIVATE MLI_COLD void mli_flush(mli_out *o);
MLI_PRIVATE void mli_put(mli_out *o, const char *text, size_t n);
MLI_PRIVATE void mli_put_str(mli_out *o, const char *text);
/* Returns text `number`, from 0, of a sequence in which each text ends with a 0. */
MLI_PRIVATE MLI_COLD const char *mli_text_at(const char *texts, unsigned number);

/* Starts an mli_out that has a buffer and no function. */
MLI_PRIVATE MLI_COLD void mli_out_buffer(mli_out *o, char *buf, size_t cap);
/* Terminates the text in a buffer. Returns its full length, including what was cut. */
MLI_PRIVATE MLI_COLD size_t mli_out_end(mli_out *o, size_t cap);

/* Reads decimal digits, perhaps none. Returns the rest of the text, or NULL above UINT64_MAX. */
MLI_PRIVATE const char *mli_read_u64(const char *text, uint64_t *value);

/* Writes the lowest n digits of v, in base 10 or 16. */
MLI_PRIVATE MLI_COLD void mli_put_digits(mli_out *o, uint64_t v, unsigned base, unsigned n);
MLI_PRIVATE void mli_put_u64(mli_out *o, uint64_t v);
MLI_PRIVATE void mli_put_i64(mli_out *o, int64_t v);

/* Writes v in hexadecimal without leading zeros. */
MLI_PRIVATE void mli_put_hex_short(mli_out *o, uint64_t v);

/* Writes v / 10^digits with `digits` decimals. */
MLI_PRIVATE MLI_COLD void mli_put_fixed(mli_out *o, uint64_t v, unsigned digits);

/* Writes nanoseconds since 1970 as 2026-11-21T08:05:00.250Z or, with `name`, as 20261121_080500 for
   a file's name, by civil_from_days of Howard Hinnant's chrono-compatible algorithms. */
MLI_PRIVATE MLI_COLD void mli_put_time(mli_out *o, uint64_t ns, int name);

/* Writes the time of day, as 08:05:00. The moment is given in seconds since 1970. */
MLI_PRIVATE MLI_COLD void mli_put_clock(mli_out *o, uint64_t seconds);

MLI_PRIVATE MLI_COLD void mli_put_device(mli_out *o, memlord_device d);

/* Decodes the UTF-8 sequence at s. Returns its length, or 0 if a report may not write it as it is:
   if it is not well-formed by RFC 3629 (such as a surrogate), a control character, or U+FFFD, which
   mli_put_invalid_byte writes. */
MLI_PRIVATE size_t mli_utf8_decode(const unsigned char *s, uint32_t *code);

/* Writes a byte of a sequence that mli_utf8_decode refuses, as U+FFFD and two hexadecimal digits.
   Every report format does so. Thus two different names stay different in a report. */
MLI_PRIVATE MLI_COLD void mli_put_invalid_byte(mli_out *o, unsigned char byte);

/* Writes text as a part of a JSON string. It also escapes characters that could end a script
   element, so that an HTML page can contain the text. */
MLI_PRIVATE MLI_COLD void mli_put_json_part(mli_out *o, const char *text);
/* Writes a JSON string, or null if the text is NULL. */
MLI_PRIVATE MLI_COLD void mli_put_json(mli_out *o, const char *text);

/* Writes a string into a line of text, cut after o->name_max characters. Writes `instead` in place
   of the character `other`, unless `other` is 0. */
MLI_PRIVATE MLI_COLD void mli_put_escaped(mli_out *o, const char *text, char other,
                                          const char *instead);
/* Writes a site as "read_tensors loader.c:12". mli_put_escaped writes the function and the file. */
MLI_PRIVATE MLI_COLD void mli_put_site_escaped(mli_out *o, const memlord_site *site, char other,
                                               const char *instead);
/* Writes a site as "read_tensors loader.c:12". Calls `put` to write the function and the file. */
MLI_PRIVATE MLI_COLD void mli_put_site_by(mli_out *o, const memlord_site *site,
                                          void (*put)(mli_out *o, const char *text));
MLI_PRIVATE MLI_COLD void mli_put_file_name(mli_out *o, const char *path);
/* Returns the line of a site, or 0 if it is not known. */
MLI_PRIVATE uint64_t mli_site_line(const memlord_site *site);

#if defined(__linux__)
#define MLI_PRINTF_LIKE(at) __attribute__((format(printf, at, at + 1)))
#else
#define MLI_PRINTF_LIKE(at) /* no check, because uintmax_t may be another type than uint64_t */
#endif

/* Packs a device into an int, as the argument of %i in a format string. */
MLI_PRIVATE int mli_device_code(memlord_device d);
/* Writes a format string with its values: see "format strings" in text.c. */
MLI_PRIVATE MLI_COLD void mli_put_format(mli_out *o, int json, const char *form, va_list *args);
MLI_PRIVATE MLI_COLD MLI_PRINTF_LIKE(2) void mli_putf(mli_out *o, const char *form, ...);
/* Writes JSON by a format string. Leaves out a comma at its start if the last byte written is a [
   or {. That byte is still in the buffer, because a full buffer is flushed only when more text
   comes. Requires: before a comma, something was written. */
MLI_PRIVATE MLI_COLD MLI_PRINTF_LIKE(2) void mli_jsonf(mli_out *o, const char *form, ...);

MLI_PRIVATE int mli_ascii_lower(int c);

/* Reads a number up to a comma or the end. With `places` 1 the number may have a fraction. Returns
   the rest of the text, or NULL if there is no number, or if the number is above UINT32_MAX. */
MLI_PRIVATE MLI_COLD const char *mli_read_number(const char *text, int places, double *out);

#endif
