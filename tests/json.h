/* A strict reader of JSON (RFC 8259, valid UTF-8, no doubled keys wanted by us are looked
   for): says whether a text is JSON at all and what stands at a path like
   "devices[0].allocated". */
#ifndef MEMLORD_TESTS_JSON_H
#define MEMLORD_TESTS_JSON_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct json_reader {
    const unsigned char *at;
    const unsigned char *found, *found_end; /* what stands at the path that is wanted */
    int depth;
} json_reader;

/* Reads a value. `rest` is what is left of the wanted path behind it; NULL: it leads elsewhere. */
static inline int json_value(json_reader *r, const char *rest);

static inline void json_space(json_reader *r) {
    while (*r->at == ' ' || *r->at == '\n' || *r->at == '\r' || *r->at == '\t') r->at++;
}

/* Length of the UTF-8 sequence here; 0: none that is valid. */
static inline int json_utf8(const unsigned char *s) {
    unsigned long c;
    int n = *s < 0x80 ? 1 : *s >= 0xc2 && *s < 0xe0 ? 2 : (*s & 0xf0) == 0xe0 ? 3
                      : *s >= 0xf0 && *s < 0xf5 ? 4 : 0;
    int i;
    c = n > 1 ? (unsigned long)(*s & (0x7f >> n)) : *s;
    for (i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80) return 0;
        c = c << 6 | (s[i] & 0x3f);
    }
    if (n == 3 && (c < 0x800 || (c >= 0xd800 && c < 0xe000))) return 0;
    if (n == 4 && (c < 0x10000 || c > 0x10ffff)) return 0;
    return n;
}

static inline int json_string(json_reader *r) {
    if (*r->at++ != '"') return 0;
    while (*r->at != '"') {
        int n = json_utf8(r->at);
        if (*r->at < 0x20 || !n) return 0;
        if (*r->at != '\\') {
            r->at += n;
            continue;
        }
        r->at++;
        if (*r->at == 'u') {
            for (n = 1; n <= 4; n++)
                if (!strchr("0123456789abcdefABCDEF", r->at[n]) || !r->at[n]) return 0;
            r->at += 5;
        } else {
            if (!*r->at || !strchr("\"\\/bfnrt", *r->at)) return 0;
            r->at++;
        }
    }
    r->at++;
    return 1;
}

static inline int json_digits(json_reader *r) {
    const unsigned char *start = r->at;
    while (*r->at >= '0' && *r->at <= '9') r->at++;
    return r->at > start;
}

static inline int json_number(json_reader *r) {
    if (*r->at == '-') r->at++;
    if (*r->at == '0')
        r->at++;
    else if (!json_digits(r))
        return 0;
    if (*r->at == '.' && (r->at++, !json_digits(r))) return 0;
    if (*r->at == 'e' || *r->at == 'E') {
        r->at++;
        if (*r->at == '+' || *r->at == '-') r->at++;
        if (!json_digits(r)) return 0;
    }
    return 1;
}

/* The rest of a path behind a key. Only that of the whole text has no dot before it. */
static inline const char *json_behind(const json_reader *r, const char *rest,
                                      const unsigned char *key, size_t size) {
    if (!rest || (r->depth > 1 && *rest++ != '.')) return NULL;
    return strncmp(rest, (const char *)key, size) ? NULL : rest + size;
}

static inline int json_object(json_reader *r, const char *rest) {
    r->at++;
    json_space(r);
    if (*r->at == '}') return r->at++, 1;
    for (;;) {
        const unsigned char *key = r->at + 1;
        const char *behind;
        if (!json_string(r)) return 0;
        behind = json_behind(r, rest, key, (size_t)(r->at - key - 1));
        json_space(r);
        if (*r->at++ != ':' || !json_value(r, behind)) return 0;
        if (*r->at == '}') return r->at++, 1;
        if (*r->at++ != ',') return 0;
        json_space(r);
    }
}

static inline int json_array(json_reader *r, const char *rest) {
    unsigned long index = 0, wanted = 0;
    char *behind = NULL;
    if (rest && *rest == '[') wanted = strtoul(rest + 1, &behind, 10); /* at its ] */
    r->at++;
    json_space(r);
    if (*r->at == ']') return r->at++, 1;
    for (;;) {
        if (!json_value(r, behind && index++ == wanted ? behind + 1 : NULL)) return 0;
        if (*r->at == ']') return r->at++, 1;
        if (*r->at++ != ',') return 0;
    }
}

static inline int json_word(json_reader *r, const char *word) {
    size_t n = strlen(word);
    if (strncmp((const char *)r->at, word, n)) return 0;
    r->at += n;
    return 1;
}

static inline int json_value(json_reader *r, const char *rest) {
    const unsigned char *start;
    int ok;
    json_space(r);
    start = r->at;
    if (++r->depth > 64) return 0;
    switch (*r->at) {
    case '{': ok = json_object(r, rest); break;
    case '[': ok = json_array(r, rest); break;
    case '"': ok = json_string(r); break;
    case 't': ok = json_word(r, "true"); break;
    case 'f': ok = json_word(r, "false"); break;
    case 'n': ok = json_word(r, "null"); break;
    default: ok = json_number(r);
    }
    r->depth--;
    if (ok && rest && !*rest) r->found = start, r->found_end = r->at;
    json_space(r);
    return ok;
}

static inline int json_read(json_reader *r, const char *text, const char *wanted) {
    memset(r, 0, sizeof *r);
    r->at = (const unsigned char *)text;
    return json_value(r, wanted) && !*r->at;
}

static inline int json_valid(const char *text) {
    json_reader r;
    return json_read(&r, text, NULL);
}

/* The unsigned number at a path; UINT64_MAX: there is none. */
static inline uint64_t json_u64(const char *text, const char *path) {
    json_reader r;
    if (!json_read(&r, text, path) || !r.found || *r.found < '0' || *r.found > '9')
        return UINT64_MAX;
    return strtoull((const char *)r.found, NULL, 10);
}

/* Does the string at the path, as it is written, equal this? */
static inline int json_is(const char *text, const char *path, const char *string) {
    json_reader r;
    size_t n = strlen(string);
    return json_read(&r, text, path) && r.found && *r.found == '"' &&
           (size_t)(r.found_end - r.found) == n + 2 && !memcmp(r.found + 1, string, n);
}

#endif /* MEMLORD_TESTS_JSON_H */
