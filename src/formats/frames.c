#include "formats/frames.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ADDRESS_TEXT 24 /* room for "+0x" and 16 digits */

MLR_PRIVATE uint32_t mlr_frame_of_kind(const mlr_profile *profile, uint32_t kind) {
    return profile->frame_count + kind + 1;
}
MLR_PRIVATE uint32_t mlr_frame_of_scope(const mlr_profile *profile, uint32_t scope) {
    return profile->frame_count + MLR_KINDS + scope;
}

static const char *file_of_path(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}
static const char *module_name(const mlr_profile *p, const mlr_frame *frame) {
    return frame->module ? file_of_path(p->module[frame->module - 1].path) : "";
}
/* Returns 1 if a frame has neither a function nor a file. */
static int is_address(const mlr_frame *frame) {
    return !frame->function[0].name[0] && !frame->function[0].file[0];
}

/* Gives an address its name, and returns the end of the name. */
static char *name_address(const mlr_profile *p, const mlr_frame *frame, mlr_function *f, char *to) {
    const char *module = module_name(p, frame);
    if (!frame->module && !frame->offset) {
        f->name = "(unknown)";
        return to;
    }
    f->name = to;
    to +=
        sprintf(to, *module ? "%s+0x%llx" : "%s0x%llx", module, (unsigned long long)frame->offset);
    return to + 1;
}
static char *fill_frame(const mlr_profile *p, const mlr_frame *frame, mlr_function *to,
                        char *text) {
    uint32_t i;
    for (i = 0; i < frame->functions; i++) {
        to[i] = frame->function[i];
        if (!to[i].name[0]) to[i].name = to[i].file[0] ? to[i].file : "(unknown)";
    }
    return is_address(frame) ? name_address(p, frame, to, text) : text;
}
static void fill_word(mlr_function *to, const char *name) {
    memset(to, 0, sizeof *to);
    to->name = *name ? name : "(unknown)";
    to->file = "";
}

MLR_PRIVATE uint32_t mlr_scope_caller(const mlr_profile *profile, uint32_t scope) {
    const uint32_t parent = profile->scope[scope - 1].parent;
    return parent < scope ? parent : 0;
}

/* Returns the most frames that a stack with its scopes has; 0: there is no memory. */
static uint32_t deepest_of(const mlr_profile *p) {
    const size_t rows = (p->node_count > p->scope_count ? p->node_count : p->scope_count) + 1u;
    uint32_t *depth = (uint32_t *)calloc(rows, sizeof *depth), i, node = 1, scope = 0;
    if (!depth) return 0;
    for (i = 1; i <= p->node_count; i++) {
        depth[i] = depth[p->node[i - 1].caller] + 1;
        if (depth[i] > node) node = depth[i];
    }
    for (i = 1; i <= p->scope_count; i++) {
        const uint32_t parent = mlr_scope_caller(p, i);
        depth[i] = parent ? depth[parent] + 1 : 1;
        if (depth[i] > scope) scope = depth[i];
    }
    free(depth);
    return node + scope;
}

static void fill(mlr_frames *f) {
    static const char *const kinds[MLR_KINDS] = {"(unknown)", "(arena)", "(others)"};
    const mlr_profile *p = f->profile;
    uint32_t i, at = 0;
    char *text = f->texts;
    for (i = 1; i <= f->count; i++) {
        f->first[i] = at;
        if (i <= p->frame_count) {
            text = fill_frame(p, &p->frame[i - 1], f->function + at, text);
            at += p->frame[i - 1].functions;
        } else {
            const uint32_t word = i - p->frame_count - 1;
            fill_word(f->function + at++,
                      word < MLR_KINDS ? kinds[word] : p->scope[word - MLR_KINDS].name);
        }
    }
    f->first[i] = at;
}

MLR_PRIVATE int mlr_frames_open(mlr_frames *frames, const mlr_profile *profile) {
    size_t functions = MLR_KINDS + (size_t)profile->scope_count, texts = 1;
    uint32_t i;
    memset(frames, 0, sizeof *frames);
    frames->profile = profile;
    frames->count = mlr_frame_of_scope(profile, profile->scope_count);
    for (i = 0; i < profile->frame_count; i++) {
        const mlr_frame *frame = &profile->frame[i];
        functions += frame->functions;
        if (is_address(frame)) texts += strlen(module_name(profile, frame)) + ADDRESS_TEXT;
    }
    frames->function = (mlr_function *)malloc(functions * sizeof *frames->function);
    frames->first = (uint32_t *)calloc((size_t)frames->count + 2, sizeof *frames->first);
    frames->texts = (char *)malloc(texts);
    frames->deepest = deepest_of(profile);
    if (!frames->function || !frames->first || !frames->texts || !frames->deepest) return 0;
    fill(frames);
    return 1;
}
MLR_PRIVATE void mlr_frames_close(mlr_frames *frames) {
    free(frames->function);
    free(frames->first);
    free(frames->texts);
}

MLR_PRIVATE uint32_t mlr_frame_innermost(const mlr_profile *profile, uint32_t stack) {
    const mlr_stack *s = &profile->stack[stack - 1];
    const uint32_t frame = profile->node[s->node - 1].frame;
    const uint32_t site = s->site ? profile->site[s->site - 1].frame : 0;
    const int named = frame && profile->frame[frame - 1].function[0].line;
    const int is_own = site && !profile->frame[site - 1].module && !profile->frame[site - 1].offset;
    return is_own && !named ? site : frame;
}

MLR_PRIVATE mlr_place mlr_place_of(const mlr_frames *frames, uint32_t site) {
    const mlr_profile *p = frames->profile;
    const uint32_t frame = site ? p->site[site - 1].frame : 0;
    mlr_place place = {"", "", 0};
    if (frame) {
        const mlr_frame *at = &p->frame[frame - 1];
        const mlr_function *f = &frames->function[frames->first[frame] + at->shown];
        place.function = at->function[at->shown].name;
        place.file = f->file;
        place.line = f->line;
        if (is_address(at)) place.function = f->name;
    }
    return place;
}

static uint32_t known(const mlr_profile *p, uint32_t frame) {
    return frame ? frame : mlr_frame_of_kind(p, MLR_KIND_UNKNOWN);
}

MLR_PRIVATE uint32_t mlr_frames_of(const mlr_frames *frames, const mlr_where *where, uint32_t *to) {
    const mlr_profile *p = frames->profile;
    uint32_t n = 0, node = where->stack ? p->stack[where->stack - 1].node : 0, scope = where->scope;
    if (node) {
        to[n++] = known(p, mlr_frame_innermost(p, where->stack));
        while ((node = p->node[node - 1].caller) != 0) to[n++] = known(p, p->node[node - 1].frame);
    } else if (where->site) {
        to[n++] = known(p, p->site[where->site - 1].frame);
    } else {
        to[n++] = mlr_frame_of_kind(p, where->kind);
    }
    for (; scope; scope = mlr_scope_caller(p, scope)) to[n++] = mlr_frame_of_scope(p, scope);
    return n;
}
