/*
    diff.c - what grew and shrank between two profiles, and whether a peak exceeds its budget

    A profile is what MEMLORD_FORMAT_JSON writes; - is standard input. Build and run:

        cc -std=c99 -O2 -I. src/tools/diff.c -o diff -lcjson -lm -pthread
        ./diff base.json now.json              # by device, tag, scope, site, stack and leak
        ./diff --accept budget.json base.json  # writes a budget, or raises its exceeded entries
        ./diff --budget budget.json now.json   # status 1: something is over its budget

    With --markdown the output is tables for the summary of a GitHub job. With --github the output
    has messages that GitHub shows at a file and line: an error for what is over its budget or,
    without a budget, a warning for a site that grew.

    budget.h describes budgets.

    The rows that changed most come first. The column with the arrow decides the order. It is the
    first of live bytes, peak and allocated bytes whose total has changed. The status is 2 for bad
    input.

    A place of code that both profiles have (the same module, build id and offset) is shown by the
    better of its two names. So a profile that symbolize.c named can be compared with one without
    names. Places of a module without a build id are paired only in two files of the same run. In
    another build the same offset is another place. So if the builds of a module differ, its places
    that have no name are one row, which is not compared.

    A stack shows five frames, the innermost first, and passes over those of standard libraries;
    --json has all frames. Stacks that show the same frames are one row, unless the arrow is at the
    peak, because peaks do not add up. If stacks are samples, the standard error of a change follows
    the name of the row. Two runs have different samples, so stacks change even if the program does
    not. The changes of sites are exact. So if stacks are samples, the sentence about the largest
    change names a site.
*/
#define MEMLORD_STATIC /* functions that are not called are not compiled */
#define MEMLORD_IMPLEMENTATION
#include "memlord.h"
#define PROGRAM "diff"
#include "profile.h"
#include <math.h>

enum { LIVE, PEAK, ALLOCATED, COLUMNS };
enum { TOTAL, DEVICE, TAG, SCOPE, SITE, STACK, LEAK, KINDS }; /* --accept writes DEVICE to SCOPE
                                                                 into a new budget */

static const char *const columns[COLUMNS] = {"live", "peak", "allocated"};

static const struct kind {
    const char *name, *list;   /* the name that this program prints; the key of the list in JSON */
    const char *keys[COLUMNS]; /* the keys of the kind's numbers in JSON; NULL if it has no such
                                  number */
    const char *rest;          /* the name of the row for those bytes of the total that no row of
                                  the list has */
} kinds[KINDS] = {
    {"total", "total", {"allocated", "peak", "total_allocated"}, NULL},
    {"device", "devices", {"allocated", "peak", "total_allocated"}, NULL},
    {"tag", "tags", {"allocated", "peak", NULL}, "(untagged)"},
    {"scope", "scopes", {"live_bytes", "peak_bytes", NULL}, "(no scope)"},
    {"site", "sites", {"live_bytes", "peak_bytes", "alloc_bytes"}, "(no site)"},
    {"stack", "stacks", {"live_bytes", "peak_bytes", "alloc_bytes"}, "(not listed)"},
    {"leak", "leaks", {"bytes", NULL, NULL}, "(not listed)"},
};

/* The names of a place of code, which is a return address in a module. */
typedef struct words {
    const char *name, *stem;     /* the stem is the name without its line or offset */
    int library;                 /* 1: the place is in a standard library */
    int strange;                 /* 1: the name stands for all places of a module that cannot be
                                    compared */
    const struct words *inlined; /* the functions that are inlined at the place, the innermost
                                    first; one without a name ends the array; NULL if nothing is
                                    inlined */
} words;

typedef struct row {
    int kind, sides;            /* bit 0 of sides: the profile `base` has the row; bit 1: the
                                   profile `now` has it */
    int strange;                /* 1: the row stands for places that cannot be compared */
    const char *name, *stem;    /* the stem is the name without its line or offset */
    const cJSON *site;          /* the site in the profile; NULL for a row of another kind */
    int budgeted;               /* 1: a budget has an entry for the row */
    const words *const *frames; /* the functions of a stack, the innermost first */
    size_t depth;               /* the number of functions in `frames` */
    double variance;            /* the variance of the change in live bytes, if stacks are
                                   samples */
    double bytes[2][COLUMNS];   /* the values in base and in now; 0 if that profile does not have
                                   the row; NaN if a value is not known */
    double low[2];              /* by how much the row's peak may be too low in base and in now; NaN
                                   if not known */
    int varied;                 /* 1: the row has stacks of different depths, of which `frames` is
                                   the shortest */
} row;

static struct profile {
    const char *path, *when, *labels, *run; /* run: a text that is the same in two profiles of one
                                               run of a program */
    const char *program;                    /* the name of the program's file */
    cJSON *root;
    words *frames; /* the frames of all stacks */
    size_t frame_count;
    double depth, sample; /* depth: the most frames that a stack may have; sample: how many
                             allocated bytes there are for each sampled stack */
    int absent[KINDS];    /* 1: the profile has no list of this kind */
} base, now;

/* A return address, and its name in one of the profiles. */
typedef struct place {
    int side, rank;          /* side: 0 for a place of base, 1 for now; rank: of two names of a
                                place, the name with the higher rank is better */
    const char *module, *id; /* id: the id of the module's build or, if there is none, of the run of
                                the program */
    double offset;           /* the same module, id and offset in both profiles are the same
                                place */
    int build;               /* 1: the module has a build id */
    const char *was;         /* the name that the profile has for the place */
    words is;                /* the better of the place's names in the two profiles */
} place;

static place *places; /* sorted by profile, then by the name that the profile has for the place */
static size_t place_count, place_room;

static row *rows; /* sorted by name, and after the comparison by their changes */
static size_t row_count, row_room;
static int measure; /* the column by whose changes the rows are ordered */

static struct options {
    const char *paths[2], *budget, *accept;
    size_t count;
    double top, tolerance; /* the tolerance is in percent; below 0 means that none was given */
    int only;              /* the kind that --by names, or 0 */
    enum { TABLE, JSON, MARKDOWN, GITHUB } form; /* what is printed */
} o = {{NULL, NULL}, NULL, NULL, 0, 0, -1, 0, TABLE};

/* -- reading -- */

/* Returns the bytes that a number, or a text such as "1.5 GiB", means. Returns NaN for anything
   else. */
static double bytes_of(const cJSON *item) {
    uint64_t parsed;
    double v = cJSON_IsNumber(item) ? item->valuedouble : NAN;
    if (cJSON_IsString(item) && memlord_parse_bytes(item->valuestring, &parsed) == MEMLORD_OK)
        v = (double)parsed;
    return v >= 0 && v <= 9007199254740992.0 && floor(v) == v ? v : NAN; /* up to 2^53 a double is
                                                                            exact */
}

static struct profile *profile_at(int side) { return side ? &now : &base; }

/* Returns the items of a list as an array, which ends with NULL. */
static const cJSON **items_of(const cJSON *list, size_t *count) {
    size_t room = cJSON_IsArray(list) ? (size_t)cJSON_GetArraySize(list) : 0;
    const cJSON **items = (const cJSON **)must_alloc((room + 1) * sizeof *items), *item;
    *count = 0;
    if (room) cJSON_ArrayForEach(item, list) items[(*count)++] = item;
    items[*count] = NULL;
    return items;
}

/* Returns a number as an index into `count` items, or `count` if it is no index. */
static size_t index_of(const cJSON *number, size_t count) {
    double n = cJSON_IsNumber(number) ? number->valuedouble : -1;
    return n >= 0 && n < (double)count ? (size_t)n : count;
}

/* -- the names of places -- */

/* Returns the last part of a path. */
static const char *file_name(const char *path) {
    const char *at = path + strlen(path);
    while (at > path && !strchr("/\\", at[-1])) at--;
    return at;
}

/* Returns the name of a place without its line or, if no line is known, without its offset in the
   module. Another build may change both. If no function is known, the offset stays in the name. */
static const char *stem_text(const cJSON *site) {
    const char *stem = site_text(site, 0), *function = text_of(site, "function");
    const char *offset = function && *function ? strstr(stem, "+0x") : NULL;
    return offset ? joined("%.*s", (int)(offset - stem), stem) : stem;
}

/* Returns the functions that are inlined at a place, the innermost first. One without a name ends
   the array. Returns NULL if nothing is inlined. */
static const words *inlined_of(const cJSON *at) {
    size_t count;
    const cJSON **items = items_of(get(at, "inlined"), &count);
    words *functions = count ? (words *)must_alloc((count + 1) * sizeof *functions) : NULL;
    for (size_t i = 0; i < count; i++)
        functions[i] = (words){site_text(items[i], 1), stem_text(items[i]),
                               cJSON_IsTrue(get(items[i], "library")), 0, NULL};
    if (count) functions[count] = (words){NULL, NULL, 0, 0, NULL};
    free(items);
    return functions;
}

/* Adds a place of code. `at` has its site and offset, `of` its module and build id. */
static void place_add(int side, const cJSON *at, const cJSON *of) {
    const char *id = text_of(of, "build_id"), *module = text_of(of, "module");
    const cJSON *site = get(at, "site"), *library = get(at, "library");
    double offset = bytes_of(get(at, "offset"));
    words own = {site_text(site, 1), stem_text(site), cJSON_IsTrue(library), 0, inlined_of(at)};
    int line = cJSON_GetNumberValue(get(site, "line")) > 0;
    const char *function = text_of(site, "function");
    place *p;
    if (isnan(offset) || !strcmp(own.name, unknown)) return;
    places = (place *)grown(places, place_count, &place_room, sizeof *places);
    p = &places[place_count++];
    p->side = side;
    p->rank = 8 * !!own.inlined + 4 * line + 2 * (function && *function) + own.library;
    p->build = id && *id;
    p->id = p->build ? id : profile_at(side)->run;
    p->module = file_name(module ? module : "");
    p->offset = offset;
    p->was = own.name;
    p->is = own;
}

static void collect_places(int side) {
    const struct profile *p = profile_at(side);
    const cJSON *stacks = get(p->root, "stacks"), *item;
    size_t count;
    const cJSON **modules = items_of(get(stacks, "modules"), &count);
    cJSON_ArrayForEach(item, get(p->root, "sites")) place_add(side, item, item);
    cJSON_ArrayForEach(item, get(stacks, "frames"))
        place_add(side, item, modules[index_of(get(item, "module"), count)]);
    free(modules);
}

static int by_build(const place *x, const place *y) {
    int order = strcmp(x->module, y->module);
    return order ? order : strcmp(x->id, y->id);
}

static int by_key(const void *a, const void *b) {
    const place *x = (const place *)a, *y = (const place *)b;
    int order = by_build(x, y);
    if (!order) order = (x->offset > y->offset) - (x->offset < y->offset);
    if (!order) order = y->rank - x->rank;
    return order ? order : strcmp(x->was, y->was);
}

static int by_was(const void *a, const void *b) {
    const place *x = (const place *)a, *y = (const place *)b;
    return x->side != y->side ? x->side - y->side : strcmp(x->was, y->was);
}

/* Takes the places from `first` to before `end`, which are of one build. Gives one common name to
   all of them that have no name. */
static void estrange(place *first, const place *end) {
    const char *all =
        joined(first->build ? "(unnamed places of another build of %s: not compared)"
                            : "(unnamed places of %s, without a build id: not compared)",
               first->module);
    for (; first < end; first++)
        if (first->rank < 2 && strstr(first->is.name, "+0x"))
            first->is.name = first->is.stem = all, first->is.strange = 1;
}

/* Finds modules that are of different builds in the two profiles. Their places without a name
   cannot be compared, so they get a common name for each build. Requires: places are sorted by
   module, id and offset. */
static void estrange_builds(void) {
    for (size_t i = 0, k, next; i < place_count; i = next) {
        int of_module = 0, sides;
        for (next = i; next < place_count && !strcmp(places[next].module, places[i].module);)
            of_module |= 1 << places[next++].side;
        for (; i < next; i = k) {
            for (k = i, sides = 0; k < next && !by_build(&places[k], &places[i]); k++)
                sides |= 1 << places[k].side;
            if (sides != of_module) estrange(&places[i], &places[k]);
        }
    }
}

/* Gives every place the better of the names that it has in the two profiles. If places of one
   profile have the same name, but would get different better names, all of them keep their name.
   But if one of them cannot be compared, all get the name that stands for such places. */
static void settle_places(void) {
    size_t n = 0;
    if (!place_count) return;
    qsort(places, place_count, sizeof *places, by_key);
    for (size_t i = 1; i < place_count; i++) {
        place *p = &places[i];
        if (by_build(p - 1, p) || p[-1].offset < p->offset) continue;
        p->is = p[-1].is;
        p->rank = p[-1].rank;
    }
    estrange_builds();
    qsort(places, place_count, sizeof *places, by_was);
    for (size_t i = 0, k; i < place_count; i = k) {
        int same = 1;
        const place *kept = &places[i];
        for (k = i + 1; k < place_count && !by_was(&places[i], &places[k]); k++) {
            same &= !strcmp(places[i].is.name, places[k].is.name);
            if (places[k].is.strange) kept = &places[k];
        }
        if (same || kept->is.strange) places[n++] = *kept;
    }
    place_count = n;
}

static words words_of(int side, const cJSON *site) {
    const place key = {side, 0, NULL, NULL, 0, 0, site_text(site, 1), {NULL, NULL, 0, 0, NULL}};
    const place *p =
        place_count ? (const place *)bsearch(&key, places, place_count, sizeof key, by_was) : NULL;
    return p ? p->is : (words){key.was, stem_text(site), 0, 0, NULL};
}

/* Returns the names of a frame. Frames of the same name may have different inlined functions, so a
   frame keeps its own. If the frame has none, and its name is from the other profile, the inlined
   functions are from there, too. */
static words words_of_frame(int side, const cJSON *frame) {
    const cJSON *site = get(frame, "site");
    words is = words_of(side, site);
    if (is.strange) return is;
    if (get(frame, "inlined") || !strcmp(is.name, site_text(site, 1)))
        is.inlined = inlined_of(frame);
    return is;
}

static void name_frames(int side) {
    struct profile *p = profile_at(side);
    const cJSON **frames = items_of(get(get(p->root, "stacks"), "frames"), &p->frame_count);
    p->frames = (words *)must_alloc((p->frame_count + 1) * sizeof *p->frames);
    for (size_t i = 0; i < p->frame_count; i++) p->frames[i] = words_of_frame(side, frames[i]);
    p->frames[p->frame_count] = (words){unknown, unknown, 0, 0, NULL};
    free(frames);
}

/* -- the file of the program -- */

/* Returns the path that a list has for the program's file, or NULL if the list has none. */
static const char *program_path(const cJSON *list, const char *program) {
    const cJSON *item;
    cJSON_ArrayForEach(item, list) {
        const char *path = text_of(item, "module");
        if (path && !strcmp(file_name(path), program)) return path;
    }
    return NULL;
}

/* Replaces the path of the program in base by `path`, the path of the program in now. So places are
   paired even if the program's file was renamed or moved. */
static void rename_program(cJSON *in, const char *path) {
    const size_t length = strlen(base.program);
    cJSON *item;
    cJSON_ArrayForEach(item, in) {
        const char *text = cJSON_GetStringValue(item), *key = item->string;
        if (!text || !key)
            rename_program(item, path);
        else if (!strcmp(key, "module") && !strcmp(file_name(text), base.program))
            cJSON_SetValuestring(item, path);
        else if (!strcmp(key, "file") && !strncmp(text, base.program, length) &&
                 !strncmp(text + length, "+0x", 3))
            cJSON_SetValuestring(item, joined("%s%s", now.program, text + length));
    }
}

static void match_programs(void) {
    static const char *const lists[] = {"sites", "stacks", "leaks"};
    const char *path;
    if (!base.program || !now.program) return;
    path = program_path(get(get(now.root, "stacks"), "modules"), now.program);
    if (!path) path = program_path(get(now.root, "sites"), now.program);
    if (!path) path = now.program;
    for (int i = 0; i < 3; i++) rename_program(get(base.root, lists[i]), path);
}

/* -- a profile's rows -- */

static row *row_add(int side, int kind, const char *name, const char *stem) {
    row *r;
    rows = (row *)grown(rows, row_count, &row_room, sizeof *rows);
    r = &rows[row_count++];
    *r = (row){kind, 1 << side, 0, name, stem, NULL, 0, NULL, 0, 0, {{0}}, {0}, 0};
    for (int c = 0; c < COLUMNS; c++)
        if (!kinds[kind].keys[c]) r->bytes[0][c] = r->bytes[1][c] = NAN;
    return r;
}

/* Returns the name of a row. Returns NULL if the row has no name, so that it is left out. */
static const char *row_name(const cJSON *item, int kind, const char *site) {
    const char *device = text_of(item, "device"), *tag = text_of(item, "tag");
    if (kind == TOTAL) return "all devices";
    if (kind == SCOPE) return text_of(item, "path");
    if (kind == LEAK && !cJSON_IsNumber(get(item, "count"))) return NULL;
    if (kind == LEAK) return tag && !strcmp(site, unknown) ? joined("%s [%s]", site, tag) : site;
    if (!device || kind == DEVICE) return device;
    if (kind == TAG) return tag ? joined("%s on %s", tag, device) : NULL;
    return joined("%s on %s", site, device);
}

/* Returns the list of leaks by site. In a profile that MemLord 0.4 wrote, the list has a leak for
   each combination of site, tag, scope and device. The leaks of one site are added up later,
   because their rows have the same name. */
static const cJSON *leaks_of(const struct profile *p) {
    const cJSON *leaks = get(p->root, "leaks"), *sites = get(leaks, "sites");
    return cJSON_IsArray(sites) ? sites : get(leaks, "by_site");
}

/* Returns the functions of a stack. A function with an unknown name, which *depth does not count,
   ends the array. Consecutive frames of one module that cannot be compared become one frame. */
static const words *const *frames_of(int side, const cJSON *item, size_t *depth) {
    const struct profile *p = profile_at(side);
    size_t count, n = 0, room = 0;
    const cJSON **numbers = items_of(get(item, "frames"), &count);
    const words **frames = NULL;
    for (size_t i = 0; i <= count; i++) {
        const words *frame = &p->frames[index_of(numbers[i], p->frame_count)];
        if (n && frame->strange && !strcmp(frame->name, frames[n - 1]->name)) continue;
        for (const words *f = frame->inlined ? frame->inlined : frame; f->name; f++) {
            frames = (const words **)grown(frames, n, &room, sizeof *frames);
            frames[n++] = f;
            if (f == frame) break; /* nothing is inlined */
        }
    }
    *depth = n - 1;
    free(numbers);
    return frames;
}

/* Returns the index of the first frame from `at` on that is in no standard library, or `depth` if
   there is none. */
static size_t shown_from(const words *const *frames, size_t at, size_t depth) {
    while (at < depth && frames[at]->library) at++;
    return at;
}

static void load_row(const cJSON *item, int side, int kind, double *sum, size_t *unusable) {
    const cJSON *numbers = kind == DEVICE ? get(item, "stats") : item;
    size_t depth = 0;
    const words *const *frames = kind == STACK ? frames_of(side, item, &depth) : NULL;
    size_t first = frames ? shown_from(frames, 0, depth) : 0;
    words at = frames ? *frames[first < depth ? first : 0] : words_of(side, get(item, "site"));
    const char *name = row_name(item, kind, at.name);
    double error = bytes_of(get(item, "error_bytes"));
    int sums = at.strange; /* 1: the row has several stacks or places, whose peaks do not add up */
    row *r = name ? row_add(side, kind, name, row_name(item, kind, at.stem)) : NULL;
    if (r) r->frames = frames, r->depth = depth, r->strange = at.strange;
    if (r && kind == SITE) r->site = get(item, "site");
    if (r) r->variance = error > 0 ? error * error : 0;
    for (size_t i = 0; i < depth; i++) sums |= frames[i]->strange;
    for (int c = 0; r && c < COLUMNS; c++) {
        const char *key = kinds[kind].keys[c];
        const cJSON *number = key ? get(numbers, key) : NULL;
        double bytes = cJSON_IsNumber(number) ? bytes_of(number) : NAN;
        sum[c] += bytes;
        r->bytes[side][c] = c == PEAK && sums ? NAN : bytes;
        unusable[c] += key && isnan(bytes) && !cJSON_IsNull(number);
    }
    if (r) r->low[side] = kind == SCOPE ? 0 : bytes_of(get(numbers, "peak_error"));
    unusable[COLUMNS] += !r;
}

/* Reads the sum of the stacks that a profile leaves out. The sum cannot be computed from
   the total, because stacks that are samples do not add up to the total. */
static void lacking_stacks(const struct profile *p, double *lacks) {
    const cJSON *more = get(get(p->root, "stacks"), "more");
    lacks[LIVE] = bytes_of(get(more, kinds[STACK].keys[LIVE]));
    lacks[ALLOCATED] = bytes_of(get(more, kinds[STACK].keys[ALLOCATED]));
}

/* Reads a list, and adds a row for those bytes of the total that no row of the list has. */
static void load_list(struct profile *p, int kind, const cJSON *list, double *total) {
    const struct kind *k = &kinds[kind];
    const cJSON *item = kind == TOTAL ? list : list->child;
    size_t unusable[COLUMNS + 1] = {0}; /* at index c: how many rows lack the number of column c;
                                           at index COLUMNS: how many rows have no name */
    double sum[COLUMNS] = {0}, lacks[COLUMNS];
    row *r;
    for (; item; item = kind == TOTAL ? NULL : item->next)
        load_row(item, p == &now, kind, sum, unusable);
    for (int c = 0; c <= COLUMNS; c++)
        if (unusable[c])
            note("%s: %s: %zu without a usable '%s'", p->path, k->list, unusable[c],
                 c < COLUMNS ? k->keys[c] : "name");
    if (kind == TOTAL) memcpy(total, sum, sizeof sum);
    if (kind == DEVICE && fabs(sum[LIVE] - total[LIVE]) > 0)
        note("%s: the devices do not add up to the total", p->path);
    for (int c = 0; c < COLUMNS; c++) lacks[c] = total[c] - sum[c];
    if (kind == STACK) lacking_stacks(p, lacks);
    if (!k->rest || !(lacks[LIVE] > 0 || lacks[ALLOCATED] > 0)) return;
    r = row_add(p == &now, kind, k->rest, k->rest);
    for (int c = 0; c < COLUMNS; c++)
        r->bytes[p == &now][c] = c == PEAK || !k->keys[c] ? NAN : lacks[c];
}

static void read_profile(struct profile *p, const char *path) {
    cJSON *root = p->root = read_json(path), *metadata = get(root, "metadata");
    p->path = clean(path);
    expect_schema(root, p->path, "memlord/2");
    if (!cJSON_IsArray(get(root, "devices"))) DIE("%s: no list 'devices': no profile", p->path);
    if (!cJSON_IsArray(get(root, "verdicts")))
        note("%s: written by MemLord %s: it has no verdicts and no places of mistakes", p->path,
             text_of(root, "version") ? text_of(root, "version") : "(unknown)");
    p->when = text_of(metadata, "generated_at");
    p->labels = text_of(metadata, "labels");
    p->program = text_of(metadata, "program");
    p->run =
        joined("%s %.0f", p->when ? p->when : p->path, cJSON_GetNumberValue(get(metadata, "pid")));
    p->depth = cJSON_GetNumberValue(get(get(root, "stacks"), "depth")); /* NaN if it is no number */
    p->sample = cJSON_GetNumberValue(get(get(root, "stacks"), "bytes"));
    cJSON_DeleteItemFromObjectCaseSensitive(root, "events"); /* deleted here, because the events
                                                                take most of the memory */
}

static void load(struct profile *p) {
    double total[COLUMNS] = {NAN, NAN, NAN};
    name_frames(p == &now);
    for (int kind = 0; kind < KINDS; kind++) {
        const cJSON *list = get(p->root, kinds[kind].list);
        if (kind == STACK) list = get(list, "list");
        if (kind == LEAK) total[LIVE] = bytes_of(get(list, "bytes")), list = leaks_of(p);
        p->absent[kind] = kind == TOTAL ? !cJSON_IsObject(list) : !cJSON_IsArray(list);
        if (p->absent[kind])
            note("%s: no key '%s': not compared", p->path, kinds[kind].list);
        else
            load_list(p, kind, list, total);
    }
    if (!(p->depth > 0)) p->absent[STACK] = 1; /* no stacks were taken */
}

/* -- comparing -- */

static int by_frames(const row *x, const row *y, int stem) {
    for (size_t i = 0; i < x->depth && i < y->depth; i++) {
        const words *a = x->frames[i], *b = y->frames[i];
        int order = stem ? strcmp(a->stem, b->stem) : strcmp(a->name, b->name);
        if (order) return order;
    }
    return (x->depth > y->depth) - (x->depth < y->depth);
}

static int by_stem(const row *x, const row *y) {
    int order = x->kind == y->kind ? strcmp(x->stem, y->stem) : x->kind - y->kind;
    return order ? order : by_frames(x, y, 1);
}

static int by_name(const void *a, const void *b) {
    const row *x = (const row *)a, *y = (const row *)b;
    int order = by_stem(x, y);
    if (!order) order = strcmp(x->name, y->name);
    return order ? order : by_frames(x, y, 0);
}

static void row_join(row *to, const row *from) {
    to->sides |= from->sides;
    to->variance += from->variance;
    for (int i = 0; i < 2 * COLUMNS; i++)
        to->bytes[i / COLUMNS][i % COLUMNS] += from->bytes[i / COLUMNS][i % COLUMNS];
    for (int i = 0; i < 2; i++) to->low[i] += from->low[i];
}

/* Adds up the rows of the same kind and name. */
static void merge_names(void) {
    size_t n = 0, twice = 0;
    if (row_count) qsort(rows, row_count, sizeof *rows, by_name);
    for (size_t i = 0; i < row_count; i++) {
        row *last = n ? &rows[n - 1] : NULL;
        int same = last && !by_name(last, &rows[i]);
        if (same && last->sides & rows[i].sides && last->kind <= SCOPE && !twice++)
            note("a name stands twice and is added up: %s '%s'", kinds[last->kind].name,
                 last->name);
        if (same)
            row_join(last, &rows[i]);
        else
            rows[n++] = rows[i];
    }
    row_count = n;
}

/* Joins a row that is gone with a new one if they differ only in the line or offset, and no third
   row has their function and file. An edit above a site changes the line of the site, which makes
   two such rows. */
static void merge_moved(void) {
    size_t n = 0, end = row_count;
    for (size_t i = 0; i < end; i++) {
        row *r = &rows[i];
        int third = (n && !by_stem(&rows[n - 1], r)) || (i + 2 < end && !by_stem(r, r + 2));
        if (!third && i + 1 < end && !by_stem(r, r + 1) && (r->sides ^ r[1].sides) == 3) {
            const row gone = r->sides == 1 ? r[0] : r[1];
            if (r->sides == 1) *r = r[1];
            row_join(r, &gone);
            i++;
        }
        rows[n++] = *r;
    }
    row_count = n;
}

/* Returns by how much a number grew. Returns a negative number if it shrank, and 0 if one of the
   two values is not known. */
static double growth(const row *r, int column) {
    double by = r->bytes[1][column] - r->bytes[0][column];
    return isnan(by) ? 0 : by;
}

static double change(const row *r, int column) { return fabs(growth(r, column)); }

static int changed(const row *r) {
    return r->sides != 3 || r->strange || change(r, LIVE) > 0 || change(r, PEAK) > 0 ||
           change(r, ALLOCATED) > 0;
}

/* Finds the column to sort by, which is the first one whose total has changed. */
static void find_measure(void) {
    for (size_t i = 0; i < row_count && rows[i].kind == TOTAL; i++)
        while (measure < COLUMNS && !(change(&rows[i], measure) > 0)) measure++;
    if (measure == COLUMNS) measure = LIVE;
}

static int by_change(const void *a, const void *b) {
    const row *x = (const row *)a, *y = (const row *)b;
    double more = x->kind == y->kind ? changed(y) - changed(x) : x->kind - y->kind;
    if (!(fabs(more) > 0)) more = change(y, measure) - change(x, measure);
    for (int c = 0; c < COLUMNS && !(fabs(more) > 0); c++) more = change(y, c) - change(x, c);
    return more > 0 ? 1 : more < 0 ? -1 : by_name(a, b);
}

/* Prints which modules are of different builds in the two profiles. In another build the same place
   of code has another offset. */
static void doubt_modules(void) {
    const cJSON *was, *is;
    cJSON_ArrayForEach(is, get(get(now.root, "stacks"), "modules")) {
        const cJSON *path = get(is, "module"), *id = get(is, "build_id");
        cJSON_ArrayForEach(was, get(get(base.root, "stacks"), "modules"))
            if (cJSON_IsString(path) && cJSON_Compare(path, get(was, "module"), 1) &&
                !cJSON_Compare(id, get(was, "build_id"), 1))
                note("%s is of another build: places in it without a name are not compared",
                     clean(path->valuestring));
    }
}

static void doubt_leaks(void) {
    const struct profile *const both[] = {&base, &now};
    for (int i = 0; i < 2; i++) {
        const cJSON *item;
        double more = bytes_of(get(get(both[i]->root, "leaks"), "count"));
        cJSON_ArrayForEach(item, leaks_of(both[i])) more -= bytes_of(get(item, "count"));
        if (more > 0)
            note("%s: leaks of %.0f blocks are not listed, and count as new or gone", both[i]->path,
                 more);
    }
}

static void doubt_stacks(void) {
    const struct profile *const both[] = {&base, &now};
    char each[32];
    if (base.absent[STACK] && now.absent[STACK]) return;
    for (int i = 0; i < 2; i++) {
        const struct profile *p = both[i];
        double more = bytes_of(get(get(get(p->root, "stacks"), "more"), "stacks"));
        if (p->depth <= 0) note("%s: no stacks were taken: not compared", p->path);
        if (more > 0)
            note("%s: %.0f stacks are not listed, and count as new or gone", p->path, more);
        if (p->absent[STACK] || !(p->sample > 1)) continue;
        (void)memlord_format_bytes((uint64_t)fmin(p->sample, 1e18), each, sizeof each);
        note("%s: stacks are samples, one each %s: their bytes are estimates", p->path, each);
    }
    if (base.depth > 0 && now.depth > 0 && fabs(base.depth - now.depth) > 0)
        note("stacks have at most %.0f frames, now %.0f", base.depth, now.depth);
    doubt_modules();
}

static void doubt_peaks(void) {
    const struct profile *const both[] = {&base, &now};
    char most[32];
    for (int i = 0; i < 2; i++) {
        double low = bytes_of(get(get(both[i]->root, "total"), "peak_error"));
        if (!(low > 0)) continue;
        (void)memlord_format_bytes((uint64_t)low, most, sizeof most);
        note("%s: peaks are low by at most %s", both[i]->path, most);
    }
}

/* Prints warnings about what makes the comparison doubtful. */
static void doubt(void) {
    int named[4] = {0};
    const char *was = base.labels ? base.labels : "", *is = now.labels ? now.labels : "";
    for (size_t i = 0; i < row_count; i++)
        if (rows[i].kind > DEVICE && rows[i].kind < STACK &&
            rows[i].name != kinds[rows[i].kind].rest)
            named[rows[i].sides] = 1;
    if (strcmp(was, is))
        note("the labels differ: '%s', now '%s': another machine or program?", was, is);
    if (base.program && now.program && strcmp(base.program, now.program))
        note("the name of the program differs: '%s', now '%s': its places have the second name",
             base.program, now.program);
    if (named[1] && named[2] && !named[3])
        note("no tag, scope or site is in both: another program?");
    if (base.when && now.when && strcmp(base.when, now.when) > 0)
        note("%s is newer than %s: the wrong way round?", base.path, now.path);
    doubt_peaks();
    doubt_leaks();
    doubt_stacks();
}

#include "output.h"
#include "budget.h"

/* -- the command line -- */

/* Reads a number from `least` to `most`. Returns 0 if the text is no such number. A NULL text
   changes nothing. */
static int number(const char *text, double least, double most, double *out) {
    char *end;
    if (!text) return 1;
    *out = strtod(text, &end);
    return end > text && (!*end || !strcmp(end, "%")) && *out >= least && *out <= most;
}

/* Returns the form of output that an option asks for, or TABLE if the option is another one. */
static int form_of(const char *option) {
    static const char *const names[] = {"", "--json", "--markdown", "--github"};
    int form = GITHUB;
    while (form > TABLE && strcmp(option, names[form])) form--;
    return form;
}

/* Reads the arguments. Returns 0 if they are wrong. */
static int parse(int argc, char **argv) {
    static const char *const names[] = {"--budget", "--accept", "--by", "--top", "--tolerance"};
    const char *values[5] = {NULL};
    for (int i = 1, k; i < argc; i++) {
        for (k = 0; k < 5 && strcmp(argv[i], names[k]);) k++;
        if (k < 5 && i + 1 < argc)
            values[k] = argv[++i];
        else if (form_of(argv[i]) && !o.form)
            o.form = form_of(argv[i]);
        else if (strncmp(argv[i], "--", 2) && o.count < 2)
            o.paths[o.count++] = argv[i];
        else
            return 0;
    }
    o.budget = values[0], o.accept = values[1], o.top = o.form == JSON ? 1e9 : 10;
    for (int kind = DEVICE; kind < KINDS; kind++)
        if (values[2] && !strcmp(values[2], kinds[kind].name)) o.only = kind;
    if ((values[2] && !o.only) || !number(values[3], 1, 1e9, &o.top)) return 0;
    if (!number(values[4], 0, TOLERANCE_MOST, &o.tolerance) || !o.count) return 0;
    if (!o.budget + !o.accept + (o.form != JSON) < 2 || (o.accept && o.form)) return 0;
    if (o.count == 1 && !o.budget && !o.accept) return 0;
    return o.count == 1 || strcmp(o.paths[0], "-") || strcmp(o.paths[1], "-");
}

int main(int argc, char **argv) {
    cJSON_Hooks hooks = {must_alloc, free};
    int status = 0;
    if (!parse(argc, argv)) {
        fputs("usage: diff [--top N] [--by device|tag|scope|site|stack|leak] "
              "[--json|--markdown|--github] base.json now.json\n"
              "       diff [--tolerance 5%] [--markdown|--github] --budget FILE [base.json] "
              "now.json\n"
              "       diff [--tolerance 5%] --accept FILE [base.json] now.json\n",
              stderr);
        return 2;
    }
    cJSON_InitHooks(&hooks);
    if (o.form == MARKDOWN) note_also = messages_add, atexit(messages_print);
    if (o.count == 2) read_profile(&base, o.paths[0]);
    read_profile(&now, o.paths[o.count - 1]);
    if (o.count == 2) {
        match_programs();
        collect_places(0);
    }
    collect_places(1);
    settle_places();
    if (o.count == 2) load(&base);
    load(&now);
    merge_names();
    if (o.budget || o.accept) budget_doubt();
    if (o.budget) status = budget_check(o.budget);
    if (o.accept) budget_accept(o.accept);
    if (o.count == 2) {
        merge_moved();
        find_measure();
        doubt();
        show_all();
    }
    cJSON_Delete(base.root);
    cJSON_Delete(now.root);
    free(rows);
    free(places);
    return status;
}
