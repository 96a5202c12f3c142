#include "base/text.h"
#include "base/ledger.h"
#include "base/numbers.h"

MLI_PRIVATE const char mli_type_names[][8] = {
#define MLI_X(name, text, host) text,
    MLI_DEVICE_TYPES(MLI_X)
#undef MLI_X
};

MLI_PRIVATE MLI_COLD void mli_flush(mli_out *o) {
    if (o->used && !o->failed && o->fn(o->user, o->buf, o->used)) o->failed = 1;
    o->used = 0;
}
MLI_PRIVATE void mli_put(mli_out *o, const char *text, size_t n) {
    o->total += n;
    while (n) {
        size_t room = o->cap - o->used, piece = n < room ? n : room;
        if (!piece && !o->fn) return;
        if (!piece) {
            mli_flush(o);
            continue;
        }
        memcpy(o->buf + o->used, text, piece);
        o->used += piece;
        text += piece;
        n -= piece;
    }
}
MLI_PRIVATE MLI_COLD const char *mli_text_at(const char *texts, unsigned number) {
    for (; number; number--) texts += strlen(texts) + 1;
    return texts;
}
MLI_PRIVATE void mli_put_str(mli_out *o, const char *text) {
    mli_put(o, text, strlen(text));
}

MLI_PRIVATE MLI_COLD void mli_out_buffer(mli_out *o, char *buf, size_t cap) {
    memset(o, 0, sizeof *o);
    o->buf = buf;
    o->cap = buf && cap ? cap - 1 : 0;
}
MLI_PRIVATE MLI_COLD size_t mli_out_end(mli_out *o, size_t cap) {
    if (o->buf && cap) o->buf[o->used] = 0;
    return o->total;
}

MLI_PRIVATE const char *mli_read_u64(const char *text, uint64_t *value) {
    for (*value = 0; *text >= '0' && *text <= '9'; text++) {
        unsigned digit = (unsigned)(*text - '0');
        if (*value > (UINT64_MAX - digit) / 10) return NULL;
        *value = *value * 10 + digit;
    }
    return text;
}

MLI_PRIVATE MLI_COLD void mli_put_digits(mli_out *o, uint64_t v, unsigned base, unsigned n) {
    char digits[20];
    unsigned i;
    for (i = n; i--; v /= base) digits[i] = "0123456789abcdef"[v % base];
    mli_put(o, digits, n);
}
MLI_PRIVATE void mli_put_u64(mli_out *o, uint64_t v) {
    uint64_t rest = v;
    unsigned n = 1;
    while (rest /= 10) n++;
    mli_put_digits(o, v, 10, n);
}
MLI_PRIVATE void mli_put_i64(mli_out *o, int64_t v) {
    if (v < 0) mli_put_str(o, "-");
    mli_put_u64(o, v < 0 ? (uint64_t)0 - (uint64_t)v : (uint64_t)v);
}
/* Writes the address of a storage in full, with 8, 12 or 16 digits. Because there are only three
   widths, columns of addresses stay straight. */
static MLI_COLD void mli_put_address(mli_out *o, uint64_t v) {
    mli_put_str(o, "0x");
    mli_put_digits(o, v, 16, v >> 48 ? 16 : v >> 32 ? 12 : 8);
}

MLI_PRIVATE void mli_put_hex_short(mli_out *o, uint64_t v) {
    unsigned digits = 1;
    while (digits < 16 && v >> (4 * digits)) digits++;
    mli_put_digits(o, v, 16, digits);
}

MLI_PRIVATE MLI_COLD void mli_put_fixed(mli_out *o, uint64_t v, unsigned digits) {
    uint64_t unit = 1;
    unsigned i;
    for (i = 0; i < digits; i++) unit *= 10;
    mli_put_u64(o, v / unit);
    mli_put_str(o, ".");
    mli_put_digits(o, v, 10, digits);
}
/* Writes tenths / 10. Writes the decimal only if it is not 0. */
static MLI_COLD void mli_put_tenths(mli_out *o, uint64_t tenths) {
    if (tenths % 10)
        mli_put_fixed(o, tenths, 1);
    else
        mli_put_u64(o, tenths / 10);
}

/* Writes bytes in the largest IEC unit that gives at least 1, with up to two decimals. */
static MLI_COLD void mli_put_bytes(mli_out *o, uint64_t bytes) {
    static const char units[][5] = {" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"};
    unsigned unit = 0;
    double scaled = (double)bytes;
    uint64_t hundredths;
    for (; unit < 6 && scaled >= 1023.995; unit++) scaled /= 1024; /* 1023.995 rounds to 1024 */
    hundredths = (uint64_t)(scaled * 100 + 0.5);
    if (hundredths % 10)
        mli_put_fixed(o, hundredths, 2);
    else
        mli_put_tenths(o, hundredths / 10);
    mli_put_str(o, units[unit]);
}

MLI_PRIVATE MLI_COLD void mli_put_time(mli_out *o, uint64_t ns, int name) {
    uint64_t seconds = ns / 1000000000u, ms = ns / 1000000u % 1000;
    uint64_t z = seconds / 86400 + 719468, rest = seconds % 86400;
    uint64_t era = z / 146097, doe = z % 146097;
    uint64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    uint64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100), mp = (5 * doy + 2) / 153;
    uint64_t month = mp < 10 ? mp + 3 : mp - 9;
    const uint64_t parts[] = {yoe + era * 400 + (month <= 2), month, doy - (153 * mp + 2) / 5 + 1,
                              rest / 3600, rest / 60 % 60, rest % 60};
    const char *between = name ? "  _   " : "--T::.";
    unsigned i;
    for (i = 0; i < 6; i++) {
        mli_put_digits(o, parts[i], 10, i ? 2 : 4);
        if (between[i] != ' ') mli_put(o, &between[i], 1);
    }
    if (name) return;
    mli_put_digits(o, ms, 10, 3);
    mli_put_str(o, "Z");
}

MLI_PRIVATE MLI_COLD void mli_put_clock(mli_out *o, uint64_t seconds) {
    mli_put_digits(o, seconds / 3600 % 24, 10, 2);
    mli_put_str(o, ":");
    mli_put_digits(o, seconds / 60 % 60, 10, 2);
    mli_put_str(o, ":");
    mli_put_digits(o, seconds % 60, 10, 2);
}

MLI_PRIVATE MLI_COLD void mli_put_device(mli_out *o, memlord_device d) {
    if ((unsigned)d.type >= (unsigned)MLI_TYPE_COUNT) {
        mli_put_str(o, d.type == MEMLORD_ANY ? "all" : "?");
        return;
    }
    mli_put_str(o, mli_type_names[d.type]);
    if (d.index < 0 || (d.index == 0 && d.type <= MEMLORD_DEVICE_MAPPED)) return;
    mli_put_str(o, ":");
    mli_put_u64(o, (uint64_t)d.index);
}

/* Returns 1 if a character could end a line, control a terminal or change the direction of text:
   controls, separators, and Unicode's Bidi_Control. */
static int mli_code_is_control(uint32_t code) {
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x61c || code == 0x200e ||
           code == 0x200f || (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2066 && code <= 0x2069);
}

MLI_PRIVATE size_t mli_utf8_decode(const unsigned char *s, uint32_t *code) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000}; /* by length: the least code */
    size_t i, n = 0;
    while (s[0] << n & 0x80) n++;
    *code = s[0] & (0x7fu >> n);
    if (!n) return !mli_code_is_control(*code);
    if (n == 1 || n > 4) return 0;
    for (i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80) return 0;
        *code = *code << 6 | (s[i] & 0x3fu);
    }
    if (*code < least[n] || *code > 0x10ffff || *code >> 11 == 0x1b || *code == 0xfffd) return 0;
    return mli_code_is_control(*code) ? 0 : n;
}

MLI_PRIVATE MLI_COLD void mli_put_invalid_byte(mli_out *o, unsigned char byte) {
    mli_put_str(o, "\xef\xbf\xbd");
    mli_put_digits(o, byte, 16, 2);
}

/* Returns 1 if a byte is an ASCII character that needs no escape in JSON, even within HTML. */
static int mli_is_plain_json(unsigned char c) {
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\' && c != '<' && c != '>' && c != '&';
}
MLI_PRIVATE MLI_COLD void mli_put_json_part(mli_out *o, const char *text) {
    const unsigned char *s = (const unsigned char *)text;
    while (*s) {
        const unsigned char *from = s;
        uint32_t code;
        size_t n;
        while (mli_is_plain_json(*s)) s++;
        mli_put(o, (const char *)from, (size_t)(s - from));
        if (!*s) return;
        n = mli_utf8_decode(s, &code);
        if (!n) {
            mli_put_invalid_byte(o, *s);
            n = 1;
        } else if (code < 0x80) {
            mli_put_str(o, "\\u");
            mli_put_digits(o, code, 16, 4);
        } else {
            mli_put(o, (const char *)s, n);
        }
        s += n;
    }
}
MLI_PRIVATE MLI_COLD void mli_put_json(mli_out *o, const char *text) {
    if (!text) {
        mli_put_str(o, "null");
        return;
    }
    mli_put_str(o, "\"");
    mli_put_json_part(o, text);
    mli_put_str(o, "\"");
}

MLI_PRIVATE MLI_COLD void mli_put_escaped(mli_out *o, const char *text, char other,
                                          const char *instead) {
    const unsigned char *s = (const unsigned char *)text;
    size_t put = 0;
    while (*s) {
        uint32_t code;
        size_t n = mli_utf8_decode(s, &code);
        if (o->name_max && put++ == o->name_max) {
            mli_put_str(o, "...");
            return;
        }
        if (!n) {
            mli_put_invalid_byte(o, *s);
            n = 1;
        } else if (code == (unsigned char)other) {
            mli_put_str(o, instead);
        } else if (o->html && (code == '<' || code == '&')) {
            mli_put_str(o, code == '<' ? "&lt;" : "&amp;");
        } else {
            mli_put(o, (const char *)s, n);
        }
        s += n;
    }
}

/* If a path has more than o->name_max bytes, writes "..." in place of its beginning, and returns
   its end, because the end says the most. Otherwise returns the whole path. */
static MLI_COLD const char *mli_file_end(mli_out *o, const char *path) {
    size_t n = strlen(path);
    if (!o->name_max || n <= o->name_max) return path;
    for (path += n - o->name_max; ((unsigned char)*path & 0xc0) == 0x80;) path++;
    mli_put_str(o, "...");
    return path;
}
MLI_PRIVATE MLI_COLD void mli_put_site_escaped(mli_out *o, const memlord_site *site, char other,
                                               const char *instead) {
    if (!site || (!site->function[0] && !site->file[0])) {
        mli_put_str(o, "(unknown)");
        return;
    }
    mli_put_escaped(o, site->function, other, instead);
    if (site->function[0] && site->file[0]) mli_put_str(o, " ");
    mli_put_escaped(o, mli_file_end(o, site->file), other, instead);
    if (site->line <= 0) return;
    mli_put_str(o, ":");
    mli_put_u64(o, (uint64_t)site->line);
}
MLI_PRIVATE MLI_COLD void mli_put_site_by(mli_out *o, const memlord_site *site,
                                          void (*put)(mli_out *o, const char *text)) {
    if (!site || (!site->function[0] && !site->file[0])) {
        mli_put_str(o, "(unknown)");
        return;
    }
    put(o, site->function);
    if (site->function[0] && site->file[0]) mli_put_str(o, " ");
    put(o, site->file);
    if (site->line <= 0) return;
    mli_put_str(o, ":");
    mli_put_u64(o, (uint64_t)site->line);
}
MLI_PRIVATE MLI_COLD void mli_put_file_name(mli_out *o, const char *path) {
    const char *name = path, other = MLI_WINDOWS ? '\\' : '/'; /* the second path separator */
    for (; *path; path++)
        if (*path == '/' || *path == other) name = path + 1;
    mli_put_str(o, name);
}
MLI_PRIVATE uint64_t mli_site_line(const memlord_site *site) {
    return site && site->line > 0 ? (uint64_t)site->line : 0;
}
static MLI_COLD void mli_put_site(mli_out *o, int json, const memlord_site *site) {
    if (!json) {
        mli_put_site_escaped(o, site, 0, "");
        return;
    }
    mli_put_str(o, site ? "{\"file\":" : "null");
    if (!site) return;
    mli_put_json(o, site->file);
    mli_put_str(o, ",\"function\":");
    mli_put_json(o, site->function);
    mli_put_str(o, ",\"line\":");
    mli_put_u64(o, mli_site_line(site));
    mli_put_str(o, "}");
}

/* -- format strings: like those of printf, so that compilers check them --
       %s   text          %ju  a number            %jX  nanoseconds, for people
       %g   a percentage  %jo  bytes, for people   %jd  a difference of bytes, with its sign
       %jx  a storage     %i   a device: mli_device_code
       %p   a site
   A width aligns values to the right and text to the left; a site has no width. A - aligns values
   to the left, too. A + writes the sign of a difference of 0. UINT64_MAX stands for a number that
   is not known, and INT64_MIN for a difference that is not known. With a width such a number is
   written as -.
   In JSON a ' stands for a ", mli_jsonf leaves out a leading comma after a [ or {, and %jd writes
   any signed number. In JSON null is written for a NULL text, for UINT64_MAX with %ju, for
   INT64_MIN with %jd, and for a number below 0 with %g. */

MLI_PRIVATE int mli_device_code(memlord_device d) { return d.type * 65536 + (uint16_t)d.index; }

static void mli_pad(mli_out *o, size_t used, size_t width) {
    for (; used < width; used++) mli_put(o, " ", 1);
}
/* Writes a string of JSON or, if `json` is 0, text that is padded to a width. */
static MLI_COLD void mli_put_string(mli_out *o, int json, const char *text, size_t width) {
    const size_t start = o->total;
    if (json) {
        mli_put_json(o, text);
        return;
    }
    mli_put_escaped(o, text, 0, "");
    mli_pad(o, o->total - start, width);
}
static MLI_COLD void mli_put_difference(mli_out *o, int json, int64_t v, int sign) {
    if (v == INT64_MIN) {
        mli_put_str(o, json ? "null" : "-");
        return;
    }
    if (json) {
        mli_put_i64(o, v);
        return;
    }
    if (v || sign) mli_put_str(o, v < 0 ? "-" : "+");
    mli_put_bytes(o, v < 0 ? (uint64_t)0 - (uint64_t)v : (uint64_t)v);
}
static MLI_COLD void mli_put_ns(mli_out *o, uint64_t ns) {
    static const char units[][4] = {" ns", " us", " ms", " s"};
    size_t unit = 0;
    uint64_t tenths = ns * 10;
    for (; tenths >= 10000 && unit < 3; unit++) tenths = tenths / 1000 + (tenths % 1000 >= 500);
    mli_put_tenths(o, tenths);
    mli_put_str(o, units[unit]);
}
/* Writes a percentage: "63.2 %", "50 %". In JSON, writes a number with three decimals. For a number
   below 0, writes "unknown" or, in JSON, null. */
static MLI_COLD void mli_put_percent(mli_out *o, int json, double percent) {
    if (percent < 0) {
        mli_put_str(o, json ? "null" : "unknown");
    } else if (json) {
        mli_put_fixed(o, mli_whole(percent * 1000 + 0.5), 3);
    } else {
        mli_put_tenths(o, mli_whole(percent * 10 + 0.5));
        mli_put_str(o, " %");
    }
}
static MLI_COLD void mli_put_number(mli_out *o, int json, int column, char kind, uint64_t v) {
    if (v == UINT64_MAX && (column || (json && kind == 'u'))) {
        mli_put_str(o, json ? "null" : "-");
        return;
    }
    switch (kind) {
    case 'o': mli_put_bytes(o, v); break;
    case 'x': mli_put_address(o, v); break;
    case 'X': mli_put_ns(o, v); break;
    default: mli_put_u64(o, v);
    }
}

/* Writes the value of a conversion. `form` points behind the %. Returns the rest of the format. */
static MLI_COLD const char *mli_put_value(mli_out *o, int json, const char *form, va_list *args) {
    char buf[32]; /* the text of a value that is aligned to the right */
    mli_out b, *to = o;
    size_t start = o->total;
    uint64_t width = 0;
    int left = *form == '-', sign = *form == '+', code;
    form = mli_read_u64(form + left + sign, &width);
    form += *form == 'j';
    if (width && !left && *form != 's') mli_out_buffer(to = &b, buf, sizeof buf);
    switch (*form) {
    case 's': mli_put_string(o, json, va_arg(*args, const char *), (size_t)width); break;
    case 'p': mli_put_site(o, json, (const memlord_site *)va_arg(*args, const void *)); break;
    case 'i':
        code = va_arg(*args, int);
        mli_put_device(to, memlord_device_make(code >> 16, (int16_t)code));
        break;
    case 'd': mli_put_difference(to, json, va_arg(*args, int64_t), sign); break;
    case 'g': mli_put_percent(to, json, va_arg(*args, double)); break;
    default: mli_put_number(to, json, width != 0, *form, va_arg(*args, uint64_t));
    }
    if (to == &b) {
        mli_pad(o, b.used, (size_t)width);
        mli_put(o, buf, b.used);
    } else {
        mli_pad(o, o->total - start, (size_t)width);
    }
    return form + 1;
}
MLI_PRIVATE MLI_COLD void mli_put_format(mli_out *o, int json, const char *form, va_list *args) {
    while (*form) {
        size_t n = strcspn(form, json ? "%'" : "%");
        mli_put(o, form, n);
        form += n;
        if (*form == '%') {
            form = mli_put_value(o, json, form + 1, args);
        } else if (*form) {
            mli_put_str(o, "\"");
            form++;
        }
    }
}
MLI_PRIVATE MLI_COLD MLI_PRINTF_LIKE(2) void mli_putf(mli_out *o, const char *form, ...) {
    va_list args;
    va_start(args, form);
    mli_put_format(o, 0, form, &args);
    va_end(args);
}
MLI_PRIVATE MLI_COLD MLI_PRINTF_LIKE(2) void mli_jsonf(mli_out *o, const char *form, ...) {
    MLI_REQUIRE(*form != ',' || o->used);
    va_list args;
    va_start(args, form);
    if (*form == ',' && strchr("[{", o->buf[o->used - 1])) form++;
    mli_put_format(o, 1, form, &args);
    va_end(args);
}

MLI_PRIVATE int mli_ascii_lower(int c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; }

/* Returns the factor of a unit, such as "", "kB" or "EiB", in any case, or 0 if it is none. */
static MLI_COLD uint64_t mli_unit_factor(const char *text) {
    static const char letters[] = "bkmgtpe";
    uint64_t factor = 1, step = 1000;
    const char *power = *text ? strchr(letters, mli_ascii_lower(*text)) : letters;
    if (!power) return 0;
    if (power > letters && mli_ascii_lower(*++text) == 'i') {
        step = 1024;
        text++;
    }
    if (mli_ascii_lower(*text) == 'b') text++;
    while (*text == ' ') text++;
    for (; power > letters; power--) factor *= step;
    return *text ? 0 : factor;
}

/* -- public -- */

MLI_API const char *memlord_result_text(memlord_result result) {
    static const char texts[] =
#define MLI_X(name, text) text "\0"
        MLI_RESULTS(MLI_X);
#undef MLI_X
    return (unsigned)result < MEMLORD_RESULT_COUNT ? mli_text_at(texts, (unsigned)result)
                                                   : "not a result";
}

MLI_API char *memlord_format_bytes(uint64_t bytes, char *buf, size_t cap) {
    mli_out o;
    mli_out_buffer(&o, buf, cap);
    mli_put_bytes(&o, bytes);
    (void)mli_out_end(&o, cap);
    return buf;
}

/* Reads the decimals of a number as *part / *scale, and returns the rest of the text. It skips
   decimals after the ninth, because in most units the tenth is less than a byte. */
static MLI_COLD const char *mli_read_decimals(const char *text, uint64_t *part, uint64_t *scale) {
    for (*part = 0, *scale = 1; *text >= '0' && *text <= '9'; text++) {
        if (*scale == 1000000000u) continue;
        *part = *part * 10 + (unsigned)(*text - '0');
        *scale *= 10;
    }
    return text;
}

MLI_API memlord_result memlord_parse_bytes(const char *text, uint64_t *out) {
    uint64_t whole, part = 0, scale = 1, unit, rest;
    const char *digit;
    if (!text || !out) return MEMLORD_E_INVALID;
    while (*text == ' ') text++;
    digit = text + (*text == '.');
    if (*digit < '0' || *digit > '9') return MEMLORD_E_INVALID;
    text = mli_read_u64(text, &whole);
    if (!text) return MEMLORD_E_INVALID;
    if (*text == '.') text = mli_read_decimals(text + 1, &part, &scale);
    while (*text == ' ') text++;
    unit = mli_unit_factor(text);
    if (!unit || (unit == 1 && scale > 1)) return MEMLORD_E_INVALID;
    if (whole > UINT64_MAX / unit) return MEMLORD_E_INVALID;
    rest = unit / scale * part + unit % scale * part / scale;
    if (whole * unit > UINT64_MAX - rest) return MEMLORD_E_INVALID;
    *out = whole * unit + rest;
    return MEMLORD_OK;
}

MLI_PRIVATE MLI_COLD const char *mli_read_number(const char *text, int places, double *out) {
    double value = 0, scale = 1;
    int digits = 0;
    for (; *text >= '0' && *text <= '9' && digits < 10; text++, digits++)
        value = value * 10 + (*text - '0');
    if (places && *text == '.')
        for (text++; *text >= '0' && *text <= '9' && digits < 15; text++, digits++)
            value += (*text - '0') * (scale /= 10);
    *out = value;
    return digits && value <= UINT32_MAX && (!*text || *text == ',') ? text : NULL;
}
