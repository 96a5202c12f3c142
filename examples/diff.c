/*
    diff.c - what grew and shrank between two profiles, and whether a peak passed its budget

    A profile is what MEMLORD_FORMAT_JSON writes; - is standard input. Build and run:

        cc -std=c99 -O2 -I. examples/diff.c -o diff -lcjson -lm -pthread
        ./diff base.json now.json              # by device, tag, scope, site and leak
        ./diff --accept budget.json base.json  # writes the peaks as a budget
        ./diff --budget budget.json now.json   # status 1: a peak is over its budget

    What changed most comes first: in live bytes or in peak, whichever is more. The status is 2 for
    bad input.
*/
#define MEMLORD_IMPLEMENTATION
#include "memlord.h"
#define PROGRAM "diff"
#include "profile.h"
#include <math.h>

enum { LIVE, PEAK, ALLOCATED, COLUMNS };
enum { TOTAL, DEVICE, TAG, SCOPE, SITE, LEAK, KINDS }; /* a budget has DEVICE to SCOPE */

static const char *const columns[COLUMNS] = {"live", "peak", "allocated"};

static const struct kind {
    const char *name, *list;   /* here; in a profile */
    const char *keys[COLUMNS]; /* in a profile; NULL: it has no such number */
    const char *rest;          /* names what the list lacks of the total */
} kinds[KINDS] = {
    {"total", "total", {"allocated", "peak", "total_allocated"}, NULL},
    {"device", "devices", {"allocated", "peak", "total_allocated"}, NULL},
    {"tag", "tags", {"allocated", "peak", NULL}, "(untagged)"},
    {"scope", "scopes", {"live_bytes", "peak_bytes", NULL}, "(no scope)"},
    {"site", "sites", {"live_bytes", "peak_bytes", "alloc_bytes"}, "(no site)"},
    {"leak", "leaks", {"bytes", NULL, NULL}, "(not listed)"},
};

typedef struct row {
    int kind, sides;          /* sides: bit 0 in base, bit 1 in now */
    const char *name, *stem;  /* stem: the name without its line number */
    double bytes[2][COLUMNS]; /* 0: not in that profile; NaN: not known */
} row;

static struct profile {
    const char *path, *when, *labels;
    int absent[KINDS]; /* the list is missing */
} base, now;

static row *rows; /* first in order of name, shown in order of change */
static size_t row_count, row_room;

static struct options {
    const char *paths[2], *budget, *accept;
    size_t count;
    double top, tolerance; /* tolerance: percent; below 0: none given */
    int only, json;        /* only: the kind of --by; 0: none given */
} o = {{NULL, NULL}, NULL, NULL, 0, 0, -1, 0, 0};

/* -- reading -- */

/* Of a number, or of a text as "1.5 GiB". NaN: it is none. */
static double bytes_of(const cJSON *item) {
    uint64_t parsed;
    double v = cJSON_IsNumber(item) ? item->valuedouble : NAN;
    if (cJSON_IsString(item) && memlord_parse_bytes(item->valuestring, &parsed) == MEMLORD_OK)
        v = (double)parsed;
    return v >= 0 && v <= 9007199254740992.0 && floor(v) == v ? v : NAN; /* 2^53: still exact */
}

/* -- a profile's rows -- */

static row *row_add(int side, int kind, const char *name, const char *stem) {
    row *r;
    if (row_count == row_room) {
        row_room = row_room ? 2 * row_room : 256;
        rows = (row *)need(realloc(rows, row_room * sizeof *rows));
    }
    r = &rows[row_count++];
    *r = (row){kind, 1 << side, name, stem, {{0}}};
    for (int c = 0; c < COLUMNS; c++)
        if (!kinds[kind].keys[c]) r->bytes[0][c] = r->bytes[1][c] = NAN;
    return r;
}

/* NULL: it has none. */
static const char *row_name(const cJSON *item, int kind, int with_line) {
    const char *device = text_of(item, "device"), *tag = text_of(item, "tag"), *scope, *site;
    if (kind == TOTAL) return "all devices";
    if (kind == SCOPE) return text_of(item, "path");
    if (!device || kind == DEVICE) return device;
    if (kind == TAG) return tag ? joined("%s on %s", tag, device) : NULL;
    site = site_text(get(item, "site"), with_line);
    if (kind == SITE) return joined("%s on %s", site, device);
    scope = text_of(item, "scope");
    return joined("%s%s%s%s%s%s on %s", site, tag ? " [" : "", tag ? tag : "", tag ? "]" : "",
                  scope ? " in " : "", scope ? scope : "", device);
}

static void load_row(const cJSON *item, int side, int kind, double *sum, size_t *unknown) {
    const cJSON *numbers = kind == DEVICE ? get(item, "stats") : item;
    const char *name = row_name(item, kind, 1);
    row *r = name ? row_add(side, kind, name, row_name(item, kind, 0)) : NULL;
    for (int c = 0; r && c < COLUMNS; c++) {
        const char *key = kinds[kind].keys[c];
        const cJSON *number = key ? get(numbers, key) : NULL;
        double bytes = cJSON_IsNumber(number) ? bytes_of(number) : NAN;
        sum[c] += bytes;
        r->bytes[side][c] = bytes;
        unknown[c] += key && isnan(bytes) && !cJSON_IsNull(number);
    }
    unknown[COLUMNS] += !r;
}

/* Reads a list, and adds a row of what it lacks of the total. */
static void load_list(struct profile *p, int kind, const cJSON *list, double *total) {
    const struct kind *k = &kinds[kind];
    const cJSON *item = kind == TOTAL ? list : list->child;
    size_t unknown[COLUMNS + 1] = {0}; /* the last: the name */
    double sum[COLUMNS] = {0};
    row *r;
    for (; item; item = kind == TOTAL ? NULL : item->next)
        load_row(item, p == &now, kind, sum, unknown);
    for (int c = 0; c <= COLUMNS; c++)
        if (unknown[c])
            note("%s: %s: %zu without a usable '%s'", p->path, k->list, unknown[c],
                 c < COLUMNS ? k->keys[c] : "name");
    if (kind == TOTAL) memcpy(total, sum, sizeof sum);
    if (kind == DEVICE && fabs(sum[LIVE] - total[LIVE]) > 0)
        note("%s: the devices do not add up to the total", p->path);
    if (!k->rest || !(total[LIVE] > sum[LIVE] || total[ALLOCATED] > sum[ALLOCATED])) return;
    r = row_add(p == &now, kind, k->rest, k->rest);
    for (int c = 0; c < COLUMNS; c++)
        r->bytes[p == &now][c] = c == PEAK || !k->keys[c] ? NAN : total[c] - sum[c];
}

static void load(struct profile *p, const char *path) {
    cJSON *root = read_json(path);
    double total[COLUMNS] = {NAN, NAN, NAN};
    p->path = clean(path);
    expect_schema(root, p->path, "memlord/2");
    p->when = text_of(get(root, "metadata"), "generated_at");
    p->labels = text_of(get(root, "metadata"), "labels");
    for (int kind = 0; kind < KINDS; kind++) {
        const cJSON *list = get(root, kinds[kind].list);
        if (kind == LEAK) total[LIVE] = bytes_of(get(list, "bytes")), list = get(list, "by_site");
        p->absent[kind] = kind == TOTAL ? !cJSON_IsObject(list) : !cJSON_IsArray(list);
        if (p->absent[kind])
            note("%s: no key '%s': not compared", p->path, kinds[kind].list);
        else
            load_list(p, kind, list, total);
    }
    cJSON_Delete(root);
}

/* -- comparing -- */

static int by_stem(const row *x, const row *y) {
    return x->kind == y->kind ? strcmp(x->stem, y->stem) : x->kind - y->kind;
}

static int by_name(const void *a, const void *b) {
    int order = by_stem((const row *)a, (const row *)b);
    return order ? order : strcmp(((const row *)a)->name, ((const row *)b)->name);
}

static void row_join(row *to, const row *from) {
    to->sides |= from->sides;
    for (int i = 0; i < 2 * COLUMNS; i++)
        to->bytes[i / COLUMNS][i % COLUMNS] += from->bytes[i / COLUMNS][i % COLUMNS];
}

/* Makes one row of those with one name. */
static void merge_names(void) {
    size_t n = 0, twice = 0;
    if (row_count) qsort(rows, row_count, sizeof *rows, by_name);
    for (size_t i = 0; i < row_count; i++) {
        row *last = n ? &rows[n - 1] : NULL;
        int same = last && !by_name(last, &rows[i]);
        if (same && last->sides & rows[i].sides && last->kind <= SCOPE && !twice++)
            note("a name stands twice and is added up: %s '%s'", kinds[last->kind].name, last->name);
        if (same)
            row_join(last, &rows[i]);
        else
            rows[n++] = rows[i];
    }
    row_count = n;
}

/* An edit above a site changes its line. Makes one row of two that differ in the line alone, where
   one is gone, one is new, and no third could be meant. */
static void merge_moved(void) {
    size_t n = 0, end = row_count;
    for (size_t i = 0; i < end; i++) {
        row *r = &rows[i];
        int third = (n && !by_stem(&rows[n - 1], r)) || (i + 2 < end && !by_stem(r, r + 2));
        if (!third && i + 1 < end && !by_stem(r, r + 1) && (r->sides ^ r[1].sides) == 3) {
            const row gone = r->sides == 1 ? r[0] : r[1];
            if (gone.name == r->name) *r = r[1];
            row_join(r, &gone);
            i++;
        }
        rows[n++] = *r;
    }
    row_count = n;
}

static double change(const row *r, int column) {
    double by = r->bytes[1][column] - r->bytes[0][column];
    return isnan(by) ? 0 : fabs(by);
}

static double growth(const row *r) { return fmax(change(r, LIVE), change(r, PEAK)); }

static int changed(const row *r) {
    return r->sides != 3 || growth(r) > 0 || change(r, ALLOCATED) > 0;
}

static int by_change(const void *a, const void *b) {
    const row *x = (const row *)a, *y = (const row *)b;
    double more = changed(y) - changed(x);
    if (!(fabs(more) > 0)) more = growth(y) - growth(x);
    if (!(fabs(more) > 0)) more = change(y, ALLOCATED) - change(x, ALLOCATED);
    return more > 0 ? 1 : more < 0 ? -1 : by_name(a, b);
}

/* Says what makes a comparison doubtful. */
static void doubt(void) {
    int named[4] = {0};
    const char *was = base.labels ? base.labels : "", *is = now.labels ? now.labels : "";
    for (size_t i = 0; i < row_count; i++)
        if (rows[i].kind > DEVICE && rows[i].name != kinds[rows[i].kind].rest)
            named[rows[i].sides] = 1;
    if (strcmp(was, is))
        note("the labels differ: '%s', now '%s': another machine or program?", was, is);
    if (named[1] && named[2] && !named[3])
        note("no tag, scope or site is in both: another program?");
    if (base.when && now.when && strcmp(base.when, now.when) > 0)
        note("%s is newer than %s: the wrong way round?", base.path, now.path);
}

/* -- the table, for people and for machines -- */

static const char *const states[] = {"", "gone", "new", ""};

/* Writes "1.5 GiB", with a sign if it is a change; "-" is not known, "=" is no change. */
static const char *amount(double v, int sign, char *text) {
    char bytes[32];
    if (isnan(v)) return "-";
    if (sign && !(fabs(v) > 0)) return "=";
    (void)memlord_format_bytes(fabs(v) < 1.8e19 ? (uint64_t)fabs(v) : UINT64_MAX, bytes, 32);
    sprintf(text, "%s%s", v < 0 ? "-" : sign ? "+" : "", bytes);
    return text;
}

static void row_json(const row *r) {
    cJSON *out = cJSON_CreateObject();
    cJSON_AddStringToObject(out, "kind", kinds[r->kind].name);
    cJSON_AddStringToObject(out, "name", r->name);
    cJSON_AddStringToObject(out, "state", states[r->sides]);
    for (int c = 0; c < COLUMNS; c++) {
        const double pair[] = {r->bytes[0][c], r->bytes[1][c]}; /* NaN becomes null */
        cJSON_AddItemToObject(out, columns[c], cJSON_CreateDoubleArray(pair, 2));
    }
    puts(cJSON_PrintUnformatted(out));
    cJSON_Delete(out);
}

static void row_print(const row *r) {
    char text[40];
    for (int c = 0; c < COLUMNS; c++) {
        printf("%11s", amount(r->bytes[1][c], 0, text));
        printf("%13s", amount(r->bytes[1][c] - r->bytes[0][c], 1, text));
    }
    printf("  %-4s %s\n", states[r->sides], r->name);
}

/* Shows what changed most of one kind, and in text the others as one row. */
static void show(int kind) {
    row rest = {kind, 3, "", "", {{0}}};
    size_t first = 0, end, shown = 0;
    while (first < row_count && rows[first].kind < kind) first++;
    for (end = first; end < row_count && rows[end].kind == kind; end++)
        if ((double)shown < o.top && (kind == TOTAL || changed(&rows[end]))) shown++;
    if (!shown || base.absent[kind] || now.absent[kind]) return;
    qsort(rows + first, end - first, sizeof *rows, by_change);
    if (!o.json && kind != TOTAL) printf("%s\n", kinds[kind].name);
    for (size_t i = first; i < first + shown; i++) (o.json ? row_json : row_print)(&rows[i]);
    for (size_t i = first + shown; i < end; i++) row_join(&rest, &rows[i]);
    if (o.json || first + shown == end) return;
    rest.name = joined("(%zu more)", end - first - shown);
    rest.bytes[1][PEAK] = NAN; /* peaks of different times do not add up */
    row_print(&rest);
}

static void show_all(void) {
    if (!o.json)
        printf("%s -> %s\n       live       change       peak       change  allocated       change\n",
               base.path, now.path);
    for (int kind = 0; kind < KINDS; kind++)
        if (kind == TOTAL || !o.only || o.only == kind) show(kind);
}

/* -- the budget -- */

static void budget_write(const char *path) {
    cJSON *root = cJSON_CreateObject();
    FILE *file;
    cJSON_AddStringToObject(root, "schema", "memlord-budget/1");
    cJSON_AddNumberToObject(root, "tolerance", o.tolerance < 0 ? 10 : o.tolerance);
    for (int kind = DEVICE; kind <= SCOPE; kind++) {
        cJSON *list = cJSON_AddObjectToObject(root, kinds[kind].list);
        for (size_t i = 0; i < row_count; i++)
            if (rows[i].kind == kind && rows[i].sides & 2 && !isnan(rows[i].bytes[1][PEAK]))
                cJSON_AddNumberToObject(list, rows[i].name, rows[i].bytes[1][PEAK]);
    }
    file = fopen(path, "w");
    if (!file || fprintf(file, "%s\n", cJSON_Print(root)) < 0 || fclose(file))
        DIE("%s: %s", clean(path), strerror(errno));
    cJSON_Delete(root);
}

/* Returns 1: the peak is over its budget; 2: it is not known. */
static int budget_check(int kind, const char *name, double budget, double tolerance) {
    const row key = {kind, 0, name, name, {{0}}};
    const row *r = row_count ? bsearch(&key, rows, row_count, sizeof *rows, by_name) : NULL;
    double found = r && r->sides & 2 ? r->bytes[1][PEAK] : 0;
    char a[40], b[40], c[40];
    if (!r || !(r->sides & 2)) note("%s '%s' is in the budget alone", kinds[kind].name, name);
    if (isnan(found)) return note("%s '%s' has a budget and no peak", kinds[kind].name, name), 2;
    if (found <= budget * (1 + tolerance / 100)) return 0;
    printf("over budget: %s %s: budget %s, found %s, over by %s\n", kinds[kind].name, name,
           amount(budget, 0, a), amount(found, 0, b), amount(found - budget, 0, c));
    return 1;
}

/* Checks all of a budget. Returns the exit status. */
static int budget_read(const char *path) {
    cJSON *root = read_json(path), *list, *entry;
    const cJSON *percent = get(root, "tolerance");
    double tolerance = cJSON_IsNumber(percent) ? percent->valuedouble : -1;
    const char *name = clean(path);
    size_t count[3] = {0}, all;
    expect_schema(root, name, "memlord-budget/1");
    if (o.tolerance >= 0) tolerance = o.tolerance;
    if (!(tolerance >= 0 && tolerance <= 1000)) DIE("%s: no tolerance from 0 to 1000", name);
    cJSON_ArrayForEach(list, root) {
        int kind = DEVICE;
        if (!strcmp(list->string, "schema") || !strcmp(list->string, "tolerance")) continue;
        while (kind < SITE && strcmp(list->string, kinds[kind].list)) kind++;
        if (kind == SITE || !cJSON_IsObject(list))
            DIE("%s: '%s' is no list of budgets", name, clean(list->string));
        if (list->child && now.absent[kind]) DIE("%s: no '%s' to check", now.path, list->string);
        cJSON_ArrayForEach(entry, list) {
            double bytes = bytes_of(entry);
            if (isnan(bytes)) DIE("%s: '%s' has no bytes", name, clean(entry->string));
            count[budget_check(kind, clean(entry->string), bytes, tolerance)]++;
        }
    }
    all = count[0] + count[1] + count[2];
    if (!all) DIE("%s: no budget in it", name);
    printf("%zu of %zu peaks over budget, tolerance %g %%\n", count[1], all, tolerance);
    cJSON_Delete(root);
    return count[1] ? 1 : count[2] ? 2 : 0;
}

/* -- the command line -- */

/* Returns 0: it is not in the range. NULL leaves what there is. */
static int number(const char *text, double least, double most, double *out) {
    char *end;
    if (!text) return 1;
    *out = strtod(text, &end);
    return end > text && (!*end || !strcmp(end, "%")) && *out >= least && *out <= most;
}

/* Returns 0: they are wrong. */
static int parse(int argc, char **argv) {
    static const char *const names[] = {"--budget", "--accept", "--by", "--top", "--tolerance"};
    const char *values[5] = {NULL};
    for (int i = 1, k; i < argc; i++) {
        for (k = 0; k < 5 && strcmp(argv[i], names[k]);) k++;
        if (k < 5 && i + 1 < argc)
            values[k] = argv[++i];
        else if (!strcmp(argv[i], "--json"))
            o.json = 1;
        else if (strncmp(argv[i], "--", 2) && o.count < 2)
            o.paths[o.count++] = argv[i];
        else
            return 0;
    }
    o.budget = values[0], o.accept = values[1], o.top = o.json ? 1e9 : 10;
    for (int kind = DEVICE; kind < KINDS; kind++)
        if (values[2] && !strcmp(values[2], kinds[kind].name)) o.only = kind;
    if ((values[2] && !o.only) || !number(values[3], 1, 1e9, &o.top)) return 0;
    if (!number(values[4], 0, 1000, &o.tolerance) || !o.count) return 0;
    if (!o.budget + !o.accept + !o.json < 2 || (o.count == 1 && !o.budget && !o.accept)) return 0;
    return o.count == 1 || strcmp(o.paths[0], "-") || strcmp(o.paths[1], "-");
}

int main(int argc, char **argv) {
    cJSON_Hooks hooks = {must_alloc, free};
    int status = 0;
    if (!parse(argc, argv)) {
        fputs("usage: diff [--top N] [--by device|tag|scope|site|leak] [--json] base.json now.json\n"
              "       diff [--tolerance 5%] --budget FILE [base.json] now.json\n"
              "       diff [--tolerance 5%] --accept FILE [base.json] now.json\n", stderr);
        return 2;
    }
    cJSON_InitHooks(&hooks);
    if (o.count == 2) load(&base, o.paths[0]);
    load(&now, o.paths[o.count - 1]);
    merge_names();
    if (o.budget) status = budget_read(o.budget);
    if (o.accept) budget_write(o.accept);
    if (o.count == 2) {
        merge_moved();
        doubt();
        show_all();
    }
    free(rows);
    return status;
}
