#include "profile/text.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* -- the output -- */

MLR_PRIVATE void mlr_out_open(mlr_out *o, mlr_write_fn write, void *user) {
    o->write = write;
    o->user = user;
    o->failed = 0;
    o->written = 0;
    o->used = 0;
}

static void out_flush(mlr_out *o) {
    if (o->used && !o->failed && o->write(o->user, o->buffer, o->used)) o->failed = 1;
    o->used = 0;
}
MLR_PRIVATE int mlr_out_close(mlr_out *o) {
    out_flush(o);
    return o->failed;
}

MLR_PRIVATE void mlr_put(mlr_out *o, const void *data, size_t size) {
    const char *from = (const char *)data;
    if (o->failed) return;
    o->written += size;
    while (size) {
        const size_t room = sizeof o->buffer - o->used, piece = size < room ? size : room;
        memcpy(o->buffer + o->used, from, piece);
        o->used += piece;
        from += piece;
        size -= piece;
        if (o->used == sizeof o->buffer) out_flush(o);
    }
}
MLR_PRIVATE void mlr_puts(mlr_out *o, const char *text) { mlr_put(o, text, strlen(text)); }

MLR_PRIVATE void mlr_putf(mlr_out *o, const char *form, ...) {
    char text[1024];
    va_list args;
    int n;
    va_start(args, form);
    n = vsnprintf(text, sizeof text, form, args);
    va_end(args);
    if (n > 0) mlr_put(o, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

/* -- names -- */

/* Returns the length of the UTF-8 sequence at s, and its character; 0: there is none. */
static size_t utf8_length(const unsigned char *s, uint32_t *code) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000}; /* by length: the least code */
    size_t i, n = 0;
    while (s[0] << n & 0x80) n++;
    *code = s[0] & (0x7fu >> n);
    if (!n) return 1;
    if (n == 1 || n > 4) return 0;
    for (i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80) return 0;
        *code = *code << 6 | (s[i] & 0x3fu);
    }
    return *code < least[n] || *code > 0x10ffff || *code >> 11 == 0x1b ? 0 : n;
}

/* Returns 1 if a character could end a line, control a terminal or change the direction of text. */
static int is_control(uint32_t code) {
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x61c || code == 0x200e ||
           code == 0x200f || (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2066 && code <= 0x2069);
}

/* How each form of text writes its characters. `special` are characters of ASCII, and `instead`
   are their replacements in the same order. `wide`: controls are written as \u and digits. */
typedef struct text_form {
    const char *special, *instead[5];
    int wide;
} text_form;
static const text_form form_name = {"", {NULL}, 0};
static const text_form form_html = {"&<>\"'", {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"}, 0};
static const text_form form_csv = {"\"", {"\"\""}, 0};
static const text_form form_json = {
    "\"\\<>&", {"\\\"", "\\\\", "\\u003c", "\\u003e", "\\u0026"}, 1};

static void put_invalid(mlr_out *o, const unsigned char *s, size_t n) {
    for (; n; n--, s++) mlr_putf(o, "\xef\xbf\xbd%02x", *s);
}
static void put_character(mlr_out *o, const text_form *form, const unsigned char *s, size_t n,
                          uint32_t code) {
    const char *special = code < 0x80 && code ? strchr(form->special, (int)code) : NULL;
    if (special)
        mlr_puts(o, form->instead[special - form->special]);
    else if (!is_control(code))
        mlr_put(o, s, n);
    else if (form->wide)
        mlr_putf(o, "\\u%04x", (unsigned)code);
    else
        put_invalid(o, s, n);
}
static void put_text(mlr_out *o, const text_form *form, const char *text, size_t most) {
    const unsigned char *s = (const unsigned char *)text;
    size_t n, count = 0;
    for (; *s && !o->failed; s += n) {
        const unsigned char *from = s;
        uint32_t code;
        while (!most && *s >= 0x20 && *s < 0x7f && !strchr(form->special, *s)) s++;
        mlr_put(o, from, (size_t)(s - from));
        if (!*s) return;
        if (most && count++ == most) {
            mlr_puts(o, "...");
            return;
        }
        n = utf8_length(s, &code);
        if (n) {
            put_character(o, form, s, n, code);
        } else {
            n = 1;
            put_invalid(o, s, n);
        }
    }
}

MLR_PRIVATE void mlr_put_name(mlr_out *o, const char *name, size_t most) {
    put_text(o, &form_name, name, most);
}
MLR_PRIVATE void mlr_put_json(mlr_out *o, const char *text) {
    mlr_put(o, "\"", 1);
    put_text(o, &form_json, text, 0);
    mlr_put(o, "\"", 1);
}
MLR_PRIVATE void mlr_put_html(mlr_out *o, const char *text) { put_text(o, &form_html, text, 0); }
MLR_PRIVATE void mlr_put_csv(mlr_out *o, const char *text) {
    const int formula = *text && strchr("=+-@'", *text) != NULL;
    const int quoted = strpbrk(text, ",\";") != NULL || *text == ' ';
    if (quoted) mlr_put(o, "\"", 1);
    if (formula) mlr_put(o, "'", 1);
    put_text(o, &form_csv, text, 0);
    if (quoted) mlr_put(o, "\"", 1);
}

/* -- numbers: without printf's %f, whose decimal point depends on the locale -- */

/* Writes v / 10^digits, and leaves out zeros at its end. Returns the end. */
static char *number_text(char *to, uint64_t v, unsigned digits) {
    uint64_t unit = 1;
    unsigned i;
    for (; digits && v % 10 == 0; digits--) v /= 10;
    for (i = 0; i < digits; i++) unit *= 10;
    to += sprintf(to, "%llu", (unsigned long long)(v / unit));
    if (digits) to += sprintf(to, ".%0*llu", (int)digits, (unsigned long long)(v % unit));
    return to;
}
/* Returns x as a number, at most UINT64_MAX. x is not below 0. */
static uint64_t whole_of(double x) { return x < 18446744073709549568.0 ? (uint64_t)x : UINT64_MAX; }

MLR_PRIVATE char *mlr_text_bytes(char *buffer, uint64_t bytes) {
    static const char units[][5] = {" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"};
    unsigned unit = 0;
    double scaled = (double)bytes;
    for (; unit < 6 && scaled >= 1023.995; unit++) scaled /= 1024; /* 1023.995 rounds to 1024 */
    strcpy(number_text(buffer, whole_of(scaled * 100 + 0.5), 2), units[unit]);
    return buffer;
}
MLR_PRIVATE char *mlr_text_change(char *buffer, int64_t bytes) {
    buffer[0] = bytes < 0 ? '-' : '+';
    (void)mlr_text_bytes(buffer + 1, bytes < 0 ? (uint64_t)0 - (uint64_t)bytes : (uint64_t)bytes);
    return buffer;
}
MLR_PRIVATE char *mlr_text_percent(char *buffer, uint64_t part, uint64_t whole) {
    const double tenths = whole ? (double)part / (double)whole * 1000 + 0.5 : 0;
    strcpy(whole ? number_text(buffer, whole_of(tenths), 1) : strcpy(buffer, "-") + 1,
           whole ? " %" : "");
    return buffer;
}
MLR_PRIVATE char *mlr_text_count(char *buffer, uint64_t n) {
    char digits[24], *to = buffer;
    const int count = sprintf(digits, "%llu", (unsigned long long)n);
    int i;
    for (i = 0; i < count; i++) {
        if (i && (count - i) % 3 == 0) *to++ = ',';
        *to++ = digits[i];
    }
    *to = 0;
    return buffer;
}
MLR_PRIVATE char *mlr_text_duration(char *buffer, uint64_t ns) {
    static const struct {
        const char *name;
        uint64_t ns;
    } units[] = {{" ns", 1},
                 {" us", 1000},
                 {" ms", 1000000},
                 {" s", 1000000000},
                 {" min", 60000000000u},
                 {" h", 3600000000000u},
                 {" days", 86400000000000u}};
    uint64_t tenths = ns;
    size_t i = 0;
    /* the next unit, if the rounded number is 1 or more there; hours go up to 48 */
    while (i < 6 && ns >= units[i + 1].ns * (i == 5 ? 2 : 1) - units[i].ns / 20) i++;
    if (i) tenths = ns / (units[i].ns / 10) + (ns % (units[i].ns / 10) >= units[i].ns / 20);
    strcpy(number_text(buffer, tenths, i ? 1 : 0), units[i].name);
    return buffer;
}
MLR_PRIVATE char *mlr_text_time(char *buffer, uint64_t unix_ns) {
    const uint64_t seconds = unix_ns / 1000000000u, rest = seconds % 86400;
    const uint64_t z = seconds / 86400 + 719468, era = z / 146097, doe = z % 146097;
    const uint64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    const uint64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100), mp = (5 * doy + 2) / 153;
    const uint64_t month = mp < 10 ? mp + 3 : mp - 9;
    sprintf(buffer, "%04u-%02u-%02uT%02u:%02u:%02uZ", (unsigned)(yoe + era * 400 + (month <= 2)),
            (unsigned)month, (unsigned)(doy - (153 * mp + 2) / 5 + 1), (unsigned)(rest / 3600),
            (unsigned)(rest / 60 % 60), (unsigned)(rest % 60));
    return buffer;
}
