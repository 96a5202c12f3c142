#include "profile/json.h"
#include <stdlib.h>
#include <string.h>

/* -- the parser: one pass, a stack of the open arrays and objects -- */

typedef struct parser {
    const unsigned char *at, *end;
    mlr_json *next;     /* where the next value goes */
    const char *failed; /* what is wrong; NULL: nothing yet */
    mlr_json *open[MLR_JSON_DEPTH];
    int depth;
} parser;

static void skip_blanks(parser *p) {
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\n' || *p->at == '\r' || *p->at == '\t'))
        p->at++;
}

/* How many values a text may have: each but the first stands behind one of these characters. */
static size_t values_most(const unsigned char *s, size_t size) {
    size_t i, most = 1;
    for (i = 0; i < size; i++)
        most += (size_t)((s[i] == ',') | (s[i] == ':') | (s[i] == '[') | (s[i] == '{'));
    return most;
}

/* For each byte: 1 if it stands for itself in a string and is ASCII. */
#define PLAIN_2(c)  (c) != '"' && (c) != '\\', (c) + 1 != '"' && (c) + 1 != '\\'
#define PLAIN_8(c)  PLAIN_2(c), PLAIN_2((c) + 2), PLAIN_2((c) + 4), PLAIN_2((c) + 6)
#define PLAIN_32(c) PLAIN_8(c), PLAIN_8((c) + 8), PLAIN_8((c) + 16), PLAIN_8((c) + 24)
static const unsigned char plain[256] = {[32] = PLAIN_32(32), PLAIN_32(64), PLAIN_32(96)};

static int hex_of(unsigned c) {
    if (c >= '0' && c <= '9') return (int)c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? (int)c - 'a' + 10 : -1;
}

/* Reads the four digits behind \u. Returns -1 if they are not there. */
static int32_t four_digits(const unsigned char *s, const unsigned char *end) {
    int32_t code = 0;
    int i;
    if (end - s < 4) return -1;
    for (i = 0; i < 4; i++) {
        const int digit = hex_of(s[i]);
        if (digit < 0) return -1;
        code = code << 4 | digit;
    }
    return code;
}

static const char *read_text(parser *p, mlr_json *v) {
    const unsigned char *s = p->at + 1;
    v->kind = MLR_JSON_TEXT;
    v->raw = 1;
    v->of.text = (const char *)s;
    for (;; s++) {
        while (s < p->end && plain[*s]) s++;
        if (s == p->end) return "a string has no end";
        if (*s == '"') break;
        if (*s < 0x20) return "a string has a control character";
        v->raw = 0;
        if (*s != '\\') continue;
        if (++s == p->end) return "a string has no end";
        if (*s == 'u' ? four_digits(s + 1, p->end) < 0 : !*s || !strchr("\"\\/bfnrt", *s))
            return "a string has an unknown escape";
    }
    v->size = (uint32_t)(s - p->at - 1);
    p->at = s + 1;
    return NULL;
}

/* Returns x * 10^exponent. */
static double scaled(double x, int exponent) {
    double power = 10;
    unsigned left = (unsigned)(exponent < 0 ? -exponent : exponent);
    for (; left; left >>= 1, power *= power) {
        if (!(left & 1)) continue;
        x = exponent < 0 ? x / power : x * power;
    }
    return x;
}

/* Reads digits into *value, as long as it has room, and adds to *dropped how many it had no room
   for. Returns how many digits there are. */
static size_t read_digits(parser *p, uint64_t *value, int *dropped) {
    const unsigned char *from = p->at;
    for (; p->at < p->end && *p->at >= '0' && *p->at <= '9'; p->at++) {
        const unsigned digit = (unsigned)(*p->at - '0');
        if (*dropped || *value > (UINT64_MAX - digit) / 10)
            *dropped += *dropped < 9999;
        else
            *value = *value * 10 + digit;
    }
    return (size_t)(p->at - from);
}

/* Reads what follows the whole part of a number, and makes it a REAL. */
static const char *read_real(parser *p, mlr_json *v, int minus, uint64_t value, int dropped) {
    int exponent = dropped, lost = dropped;
    uint64_t power = 0;
    if (p->at < p->end && *p->at == '.') {
        size_t digits;
        p->at++;
        digits = read_digits(p, &value, &lost);
        if (!digits) return "a number has no digit behind its point";
        exponent -= (int)(digits < 9999 ? digits : 9999) - (lost - dropped);
    }
    if (p->at < p->end && (*p->at | 0x20) == 'e') {
        int less, none = 0;
        p->at++;
        less = p->at < p->end && *p->at == '-';
        if (p->at < p->end && (*p->at == '-' || *p->at == '+')) p->at++;
        if (!read_digits(p, &power, &none)) return "a number has no digit in its exponent";
        if (none || power > 9999) power = 9999;
        exponent += less ? -(int)power : (int)power;
    }
    v->kind = MLR_JSON_REAL;
    v->of.real = value ? scaled((double)value, exponent) : 0;
    if (minus) v->of.real = -v->of.real;
    return NULL;
}

static const char *read_number(parser *p, mlr_json *v) {
    const int minus = *p->at == '-';
    uint64_t value = 0;
    int dropped = 0, zero;
    size_t digits;
    p->at += minus;
    zero = p->at < p->end && *p->at == '0';
    digits = read_digits(p, &value, &dropped);
    if (!digits) return "a value is missing";
    if (zero && digits > 1) return "a number begins with 0";
    if (dropped || (p->at < p->end && (*p->at == '.' || (*p->at | 0x20) == 'e')) ||
        (minus && value > (uint64_t)INT64_MAX + 1))
        return read_real(p, v, minus, value, dropped);
    v->kind = minus && value ? MLR_JSON_I64 : MLR_JSON_U64;
    v->of.u = minus ? (uint64_t)0 - value : value; /* of.i has the same bits */
    return NULL;
}

static const char *read_word(parser *p, mlr_json *v) {
    static const char *const words[] = {"null", "false", "true"};
    unsigned char i;
    for (i = 0; i < 3; i++) {
        const size_t size = strlen(words[i]);
        if ((size_t)(p->end - p->at) < size || memcmp(p->at, words[i], size) != 0) continue;
        v->kind = i;
        p->at += size;
        return NULL;
    }
    return "a value is missing";
}

/* Reads a value or, of an array or object, what opens it. */
static const char *read_value(parser *p) {
    mlr_json *v = p->next++;
    if (p->at == p->end) return "the text is cut off";
    switch (*p->at) {
    case '"': return read_text(p, v);
    case '[':
    case '{':
        if (p->depth == MLR_JSON_DEPTH) return "values are nested too deep";
        v->kind = *p->at == '[' ? MLR_JSON_ARRAY : MLR_JSON_OBJECT;
        p->open[p->depth++] = v;
        p->at++;
        return NULL;
    case 'n':
    case 'f':
    case 't': return read_word(p, v);
    default: return read_number(p, v);
    }
}

/* Reads the key of a member, and its colon. */
static const char *read_key(parser *p) {
    const char *failed;
    if (p->at == p->end) return "the text is cut off";
    if (*p->at != '"') return "a key is missing";
    failed = read_text(p, p->next++);
    if (failed) return failed;
    skip_blanks(p);
    if (p->at == p->end) return "the text is cut off";
    if (*p->at != ':') return "a colon is missing";
    p->at++;
    skip_blanks(p);
    return NULL;
}

/* Closes arrays and objects behind a value. Returns 1 if an item or member follows. */
static int close_all(parser *p) {
    while (p->depth) {
        mlr_json *list = p->open[p->depth - 1];
        const char closes = list->kind == MLR_JSON_ARRAY ? ']' : '}';
        skip_blanks(p);
        if (p->at == p->end) {
            p->failed = "the text is cut off";
            return 0;
        }
        if (*p->at == closes) {
            list->of.values = (uint64_t)(p->next - list - 1);
            p->depth--;
            p->at++;
            continue;
        }
        if (p->next == list + 1) return 1; /* the first item */
        if (*p->at == ',') {
            p->at++;
            skip_blanks(p);
            return 1;
        }
        p->failed = closes == ']' ? "a comma or ] is missing" : "a comma or } is missing";
        return 0;
    }
    return 0;
}

static void read_all(parser *p) {
    skip_blanks(p);
    do {
        mlr_json *list = p->depth ? p->open[p->depth - 1] : NULL;
        if (list) list->size++;
        if (list && list->kind == MLR_JSON_OBJECT) p->failed = read_key(p);
        if (!p->failed) p->failed = read_value(p);
    } while (!p->failed && close_all(p));
    skip_blanks(p);
    if (!p->failed && p->at < p->end) p->failed = "something follows the end";
}

MLR_PRIVATE mlr_json *mlr_json_read(const char *text, size_t size, mlr_json_error *error) {
    parser p;
    mlr_json *root = NULL;
    const char *at;
    memset(&p, 0, sizeof p);
    p.at = (const unsigned char *)text;
    p.end = p.at + size;
    error->what = NULL;
    error->line = 1;
    if (size >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) p.at += 3; /* Windows writes this mark */
    if (size > MLR_JSON_MOST) p.failed = "the text is larger than 1 GiB";
    if (!p.failed) {
        root = (mlr_json *)calloc(values_most(p.at, (size_t)(p.end - p.at)), sizeof *root);
        if (!root) return NULL;
        p.next = root;
        read_all(&p);
    }
    if (!p.failed) return root;
    for (at = text; at < (const char *)p.at; at++) error->line += *at == '\n';
    error->what = p.failed;
    free(root);
    return NULL;
}

/* -- the values -- */

MLR_PRIVATE const mlr_json *mlr_json_next(const mlr_json *value) {
    return value + 1 + (value->kind >= MLR_JSON_ARRAY ? value->of.values : 0);
}
MLR_PRIVATE const mlr_json *mlr_json_first(const mlr_json *list) {
    if (!list || list->kind < MLR_JSON_ARRAY || !list->size) return NULL;
    return list + (list->kind == MLR_JSON_OBJECT ? 2 : 1);
}
MLR_PRIVATE const mlr_json *mlr_json_after(const mlr_json *list, const mlr_json *item) {
    const mlr_json *next = mlr_json_next(item);
    return next == mlr_json_next(list) ? NULL : next + (list->kind == MLR_JSON_OBJECT ? 1 : 0);
}

/* Returns 1 if a text with escapes reads as `key`. */
static int reads_as(const mlr_json *text, const char *key, size_t size) {
    char name[256];
    if (text->size >= sizeof name / 5) return 0; /* no key that anyone looks for */
    return mlr_json_text(text, name) == size && !memcmp(name, key, size);
}
MLR_PRIVATE const mlr_json *mlr_json_get(const mlr_json *object, const char *key) {
    const size_t size = strlen(key);
    const mlr_json *member;
    if (!object || object->kind != MLR_JSON_OBJECT) return NULL;
    MLR_JSON_EACH(member, object) {
        const mlr_json *name = member - 1;
        if (name->raw ? name->size == size && !memcmp(name->of.text, key, size)
                      : reads_as(name, key, size))
            return member;
    }
    return NULL;
}

MLR_PRIVATE int mlr_json_u64(const mlr_json *value, uint64_t *out) {
    if (value->kind == MLR_JSON_REAL) {
        const double x = value->of.real;
        if (!(x >= 0 && x < 18446744073709551616.0) || x > (double)(uint64_t)x) return 0;
        *out = (uint64_t)x;
        return 1;
    }
    if (value->kind != MLR_JSON_U64) return 0;
    *out = value->of.u;
    return 1;
}
MLR_PRIVATE int mlr_json_i64(const mlr_json *value, int64_t *out) {
    mlr_json positive = *value;
    uint64_t u;
    if (value->kind == MLR_JSON_I64) {
        *out = value->of.i;
        return 1;
    }
    if (value->kind == MLR_JSON_REAL && value->of.real < 0) positive.of.real = -value->of.real;
    if (!mlr_json_u64(&positive, &u) || u > (uint64_t)INT64_MAX) return 0;
    *out = value->kind == MLR_JSON_REAL && value->of.real < 0 ? -(int64_t)u : (int64_t)u;
    return 1;
}

/* -- texts -- */

typedef struct text_out {
    char *to; /* NULL: only counts */
    size_t size;
} text_out;

static void text_add(text_out *o, const void *from, size_t size) {
    if (o->to) memcpy(o->to + o->size, from, size);
    o->size += size;
}
static void text_add_invalid(text_out *o, unsigned char byte) {
    const char digits[] = {"0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15]};
    text_add(o, "\xef\xbf\xbd", 3);
    text_add(o, digits, 2);
}
static void text_add_code(text_out *o, uint32_t code) {
    static const unsigned char first[] = {0, 0, 0xc0, 0xe0, 0xf0};
    unsigned char s[4];
    const size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    size_t i;
    for (i = n; i-- > 1; code >>= 6) s[i] = (unsigned char)(0x80 | (code & 0x3f));
    s[0] = (unsigned char)(first[n] | code);
    text_add(o, s, n);
}

/* Adds what an escape stands for. `s` points behind its backslash. Returns the rest. */
static const unsigned char *text_escape(text_out *o, const unsigned char *s,
                                        const unsigned char *end) {
    static const char letters[] = "bfnrt", controls[] = "\b\f\n\r\t";
    const char *letter = strchr(letters, *s);
    uint32_t code, low;
    if (*s != 'u') {
        text_add(o, letter ? (const void *)&controls[letter - letters] : (const void *)s, 1);
        return s + 1;
    }
    code = (uint32_t)four_digits(s + 1, end);
    s += 5;
    if (code >> 10 == 0x36 && end - s >= 6 && s[0] == '\\' && s[1] == 'u') {
        low = (uint32_t)four_digits(s + 2, end);
        if (low >> 10 == 0x37) {
            code = 0x10000 + ((code & 0x3ff) << 10 | (low & 0x3ff));
            s += 6;
        }
    }
    if (!code)
        text_add_invalid(o, 0);
    else
        text_add_code(o, code >> 11 == 0x1b ? 0xfffd : code);
    return s;
}

/* Returns the length of the UTF-8 sequence at s, or 0 if there is none. */
static size_t sequence_length(const unsigned char *s, const unsigned char *end) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000}; /* by length: the least code */
    uint32_t code;
    size_t i, n = 0;
    while (s[0] << n & 0x80) n++;
    if (!n) return 1;
    if (n == 1 || n > 4 || (size_t)(end - s) < n) return 0;
    code = s[0] & (0x7fu >> n);
    for (i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80) return 0;
        code = code << 6 | (s[i] & 0x3fu);
    }
    return code < least[n] || code > 0x10ffff || code >> 11 == 0x1b ? 0 : n;
}

MLR_PRIVATE size_t mlr_json_text(const mlr_json *text, char *to) {
    const unsigned char *s = (const unsigned char *)text->of.text, *end = s + text->size;
    text_out o;
    o.to = to;
    o.size = 0;
    if (text->raw) {
        text_add(&o, s, text->size);
        s = end;
    }
    while (s < end) {
        const size_t n = *s == '\\' ? 1 : sequence_length(s, end);
        if (*s == '\\') {
            s = text_escape(&o, s + 1, end);
        } else if (n) {
            text_add(&o, s, n);
            s += n;
        } else {
            text_add_invalid(&o, *s++);
        }
    }
    if (to) to[o.size] = 0;
    return o.size;
}
