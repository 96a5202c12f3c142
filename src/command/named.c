#include "command/named.h"
#include <string.h>

/* Returns the end of a string that begins with the quote at `at`. */
static const char *after_string(const char *at, const char *end) {
    for (at++; at < end && *at != '"'; at++)
        if (*at == '\\') at++;
    return at < end ? at + 1 : end;
}

static const char *after_space(const char *at, const char *end) {
    while (at < end && strchr(" \t\r\n", *at) && *at) at++;
    return at;
}

/* Returns the end of an array or object that begins at `at`. */
static const char *after_list(const char *at, const char *end) {
    int depth = 0;
    while (at < end) {
        if (*at == '"') {
            at = after_string(at, end);
            continue;
        }
        depth += (*at == '[' || *at == '{') - (*at == ']' || *at == '}');
        at++;
        if (!depth) break;
    }
    return at;
}

/* Finds the list "frames" among the members of a profile. Returns NULL if there is none. Requires:
   the text is JSON. */
static const char *find_frames(const char *text, const char *end) {
    static const char key[] = "\"frames\"";
    const char *at = after_space(text, end);
    if (at < end) at++; /* the brace of the profile */
    while (at < end) {
        if (*at == '[' || *at == '{') {
            at = after_list(at, end);
        } else if (*at == '"') {
            const char *next = after_string(at, end);
            const char *colon = after_space(next, end);
            if ((size_t)(next - at) == sizeof key - 1 && !memcmp(at, key, sizeof key - 1) &&
                colon < end && *colon == ':') {
                at = after_space(colon + 1, end);
                return at < end && *at == '[' ? at : NULL;
            }
            at = next;
        } else {
            at++;
        }
    }
    return NULL;
}

static void put_function(mlr_out *out, const mlr_function *f) {
    mlr_puts(out, "{");
    if (f->name[0]) mlr_puts(out, "\"function\":"), mlr_put_json(out, f->name);
    if (f->file[0]) {
        mlr_puts(out, f->name[0] ? ",\"file\":" : "\"file\":");
        mlr_put_json(out, f->file);
    }
    if (f->line)
        mlr_putf(out, "%s\"line\":%lu", f->name[0] || f->file[0] ? "," : "",
                 (unsigned long)f->line);
    if (f->library)
        mlr_putf(out, "%s\"library\":true", f->name[0] || f->file[0] || f->line ? "," : "");
}

static void put_frame(mlr_out *out, const mlr_frame *frame) {
    const mlr_function *shown = &frame->function[frame->shown];
    const int bare = !shown->name[0] && !shown->file[0] && !shown->line && !shown->library;
    put_function(out, shown);
    if (frame->module)
        mlr_putf(out, "%s\"module\":%lu", bare ? "" : ",", (unsigned long)frame->module);
    if (frame->offset || frame->module)
        mlr_putf(out, "%s\"offset\":%llu", bare && !frame->module ? "" : ",",
                 (unsigned long long)frame->offset);
    if (frame->functions > 1) {
        mlr_puts(out, ",\"inlined\":[");
        for (uint32_t i = 0; i < frame->functions; i++) {
            if (i) mlr_puts(out, ",");
            put_function(out, &frame->function[i]);
            mlr_puts(out, "}");
        }
        mlr_puts(out, "]");
    }
    mlr_puts(out, "}");
}

mlr_result mlr_named_write(const mlr_profile *p, const char *text, size_t size, mlr_out *out) {
    const char *end = text + size;
    const char *frames = p->schema == 3 ? find_frames(text, end) : NULL;
    if (!frames) {
        mlr_put(out, text, size);
        return MLR_OK;
    }
    mlr_put(out, text, (size_t)(frames - text));
    mlr_puts(out, "[");
    for (uint32_t i = 0; i < p->frame_count; i++) {
        mlr_puts(out, i ? ",\n" : "\n");
        put_frame(out, &p->frame[i]);
    }
    mlr_puts(out, "]");
    frames = after_list(frames, end);
    mlr_put(out, frames, (size_t)(end - frames));
    return MLR_OK;
}
