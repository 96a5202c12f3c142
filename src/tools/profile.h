/*
    profile.h - what the programs that read saved profiles share: messages, names without control
                characters, and the reading of JSON

    Define PROGRAM, which every message begins with, before you include this file. Link with
    -lcjson. The texts that `clean` and `joined` return are never freed.
*/
#ifndef PROFILE_H
#define PROFILE_H

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define get      cJSON_GetObjectItemCaseSensitive
#define DIE(...) (note(__VA_ARGS__), exit(2))

/* -- messages and names -- */

/* If not NULL, this function also gets each message that the function `note` prints on stderr. */
static void (*note_also)(const char *form, va_list args);

static void note(const char *form, ...) {
    va_list args;
    if (note_also) {
        va_start(args, form);
        note_also(form, args);
        va_end(args);
    }
    va_start(args, form);
    fputs(PROGRAM ": ", stderr);
    vfprintf(stderr, form, args);
    fputc('\n', stderr);
    va_end(args);
}

static void *need(void *memory) {
    if (!memory) DIE("out of memory");
    return memory;
}

static void *must_alloc(size_t bytes) { return need(malloc(bytes)); }

/* Returns the list, perhaps at another address, with room for one more item. `bytes` is the size of
   an item. */
static void *grown(void *list, size_t count, size_t *room, size_t bytes) {
    if (count < *room) return list;
    *room = *room ? 2 * *room : 256;
    return need(realloc(list, *room * bytes));
}

static char *joined_of(const char *form, va_list args) {
    va_list again;
    char *text;
    va_copy(again, args);
    text = (char *)must_alloc((size_t)vsnprintf(NULL, 0, form, args) + 1);
    vsprintf(text, form, again);
    va_end(again);
    return text;
}

static char *joined(const char *form, ...) {
    va_list args;
    char *text;
    va_start(args, form);
    text = joined_of(form, args);
    va_end(args);
    return text;
}

/* Returns the length of the UTF-8 sequence at s if the sequence controls a terminal or the
   direction of text, else 0. */
static int control(const unsigned char *s) {
    if (s[0] < 0x20 || s[0] == 0x7f) return 1;
    if (s[0] == 0xc2 && s[1] >= 0x80 && s[1] < 0xa0) return 2;
    if (s[0] != 0xe2 || !s[1]) return 0;
    if (s[1] == 0x80 && (s[2] == 0x8e || s[2] == 0x8f)) return 3;
    if (s[1] == 0x80 && s[2] >= 0xa8 && s[2] <= 0xae) return 3;
    return s[1] == 0x81 && s[2] >= 0xa6 && s[2] <= 0xa9 ? 3 : 0;
}

/* Returns a copy of a text, in which U+FFFD and two digits replace each byte of a control
   character, as in the reports. So no name breaks a line. */
static const char *clean(const char *text) {
    const unsigned char *s = (const unsigned char *)text;
    char *out = (char *)must_alloc(5 * strlen(text) + 1), *to = out;
    while (*s) {
        int n = control(s);
        if (!n) *to++ = (char)*s++;
        for (; n > 0; n--) to += sprintf(to, "\xef\xbf\xbd%02x", *s++);
    }
    *to = 0;
    return out;
}

/* -- reading -- */

/* Returns the text of a file, or of standard input for "-", with a NUL at the end. */
static char *read_text(const char *path, size_t *bytes) {
    FILE *file = strcmp(path, "-") ? fopen(path, "rb") : stdin;
    size_t room = 1 << 16, size = 0, got = file != NULL;
    char *text = (char *)must_alloc(room + 1);
    const char *name = clean(path);
    while (got && size < (size_t)1 << 30) { /* the limit of 1 GiB is for a file without an end, such
                                               as /dev/zero */
        if (size == room) text = (char *)need(realloc(text, (room *= 2) + 1));
        got = fread(text + size, 1, room - size, file);
        size += got;
    }
    if (got) DIE("%s: larger than 1 GiB", name);
    if (!file || ferror(file)) DIE("%s: %s", name, strerror(errno));
    if (!size) DIE("%s: is empty", name);
    if (file != stdin) fclose(file);
    text[size] = 0;
    *bytes = size;
    return text;
}

static cJSON *read_json(const char *path) {
    size_t size, line = 1;
    char *text = read_text(path, &size);
    const char *end = NULL;
    cJSON *root = cJSON_ParseWithLengthOpts(text, size + 1, &end, 1);
    for (const char *at = text; !root && at < end; at++) line += *at == '\n';
    if (!root) DIE("%s: not JSON, or cut off, at line %zu", clean(path), line);
    free(text);
    return root;
}

/* Returns the string at a key, or NULL if there is none. */
static const char *text_of(const cJSON *object, const char *key) {
    const cJSON *item = get(object, key);
    return cJSON_IsString(item) ? clean(item->valuestring) : NULL;
}

static const char unknown[] = "(unknown)";

/* Returns "function file:line" without the parts that are not known. */
static const char *site_text(const cJSON *site, int with_line) {
    const char *file = text_of(site, "file"), *function = text_of(site, "function");
    double line = cJSON_GetNumberValue(get(site, "line")); /* NaN if it is no number */
    if (!file || !*file) return function && *function ? function : unknown;
    if (function && *function) file = joined("%s %s", function, file);
    return with_line && line > 0 ? joined("%s:%.0f", file, line) : file;
}

static void expect_schema(const cJSON *root, const char *path, const char *schema) {
    const char *found = text_of(root, "schema");
    size_t stem = strlen(schema) - 1;
    if (!found) DIE("%s: no key 'schema': not of %s", path, schema);
    if (!strncmp(found, schema, stem) && atoi(found + stem) != atoi(schema + stem))
        DIE("%s: schema %s is %s than %s, which this program reads", path, found,
            atoi(found + stem) > atoi(schema + stem) ? "newer" : "older", schema);
    if (strcmp(found, schema)) DIE("%s: schema %s is not %s", path, found, schema);
}

#endif
