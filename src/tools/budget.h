/*
    budget.h - the budget of diff.c: what a program may need, as a file that people edit

    {"schema": "memlord-budget/1", "tolerance": 10, "program": "app",
     "devices": {"cpu": 1048576}, "tags": {"kv on cpu": "1.5 MiB"}, "scopes": {}, "sites": {},
     "leaks": {"bytes": 0, "blocks": 0}, "counts": {"allocs": 1000, "oom_failures": 0},
     "note": "what a person wants to say"}

    The lists devices, tags, scopes and sites hold peaks by name. A site whose line changed is found
    by its function and file, if only one site has both. An entry that the file lacks, or that is
    null, is not checked. The tolerance is in percent, and holds for all entries.

    --accept writes devices, tags, scopes, the bytes of leaks, and oom_failures into a new file. In
    a file that exists it raises each entry that the profile exceeds, adds the names that a list
    lacks, and keeps the rest. So a list that a person deleted stays deleted, and an entry that is
    too high stays. If the file has an empty list "sites", --accept writes the sites, too. If it has
    a 0 for "allocs", "temporaries" or "blocks", --accept writes that number, too.

    With several threads a peak may be too low by its `peak_error`. A budget whose tolerance is
    smaller than that is bad input: two runs of one program could differ by more. Record with
    MEMLORD_FLAG_EXACT (under the interposer MEMLORD_EXACT=1), which makes peaks exact, or use a
    larger --tolerance. Peaks of scopes are taken as exact. They are, unless several threads were in
    one invocation of the scope. Temporaries are blocks that their thread freed before its next
    alloc. Their number is known if every alloc has a stack (MEMLORD_STACK_BYTES=1) and the profile
    lists all stacks.

    Requires: the rows and options of diff.c, which includes this file, and output.h. A row is a
    device, tag, scope, site, stack or leak of a profile, with its bytes.
*/
#ifndef BUDGET_H
#define BUDGET_H

enum { TOLERANCE_MOST = 1000 };

static const char budget_schema[] = "memlord-budget/1";

/* The entries of a budget that are not peaks, and the keys where a profile has their values. */
static const struct fact {
    const char *list, *key, *from, *number;
    int bytes; /* 1: the value is in bytes */
    int asked; /* 1: --accept writes the entry only if the budget has it */
} facts[] = {
    {"leaks", "bytes", "leaks", "bytes", 1, 0},
    {"leaks", "blocks", "leaks", "count", 0, 1},
    {"counts", "oom_failures", "total", "oom_failures", 0, 0},
    {"counts", "allocs", "total", "allocs", 0, 1},
    {"counts", "temporaries", "stacks", NULL, 0, 1},
};
enum { FACTS = sizeof facts / sizeof *facts };

/* An entry of a budget, and the value that the profile has for it. */
typedef struct entry {
    const char *kind, *name;
    double budget, found, tolerance;
    row *r;    /* the profile's row whose peak the entry limits; NULL if the profile has no such
                  row, or if the entry limits no peak */
    int bytes; /* 1: the values are in bytes */
} entry;

/* -- the values of a profile -- */

/* Returns how many blocks were temporary, which means that their thread freed them before its next
   alloc. Returns NaN if that is not known. */
static double temporaries(void) {
    const cJSON *stacks = get(now.root, "stacks"), *item;
    double sum = fabs(now.sample - 1) > 0 ? NAN : 0; /* the sum is whole only if every alloc has a
                                                        stack (one sample a byte) */
    if (isnan(now.sample) || bytes_of(get(get(stacks, "more"), "stacks")) > 0) sum = NAN;
    cJSON_ArrayForEach(item, get(stacks, "list")) sum += bytes_of(get(item, "temporaries"));
    return sum;
}

static double fact_value(const struct fact *f) {
    const cJSON *number = f->number ? get(get(now.root, f->from), f->number) : NULL;
    if (!f->number) return temporaries();
    return cJSON_IsNumber(number) ? bytes_of(number) : NAN;
}

/* Returns the name of a site without its line or offset, as stem_text of diff.c does. */
static const char *without_line(const char *name) {
    const char *on = NULL, *next = name, *offset = strstr(name, "+0x"), *space = strchr(name, ' ');
    while ((next = strstr(next, " on "))) on = next++;
    if (!on) return name;
    if (offset && space < offset) return joined("%.*s%s", (int)(offset - name), name, on);
    for (next = on; next > name && next[-1] >= '0' && next[-1] <= '9';) next--;
    if (next == on || next == name || next[-1] != ':') return name;
    return joined("%.*s%s", (int)(next - 1 - name), name, on);
}

static int by_stem_only(const void *a, const void *b) {
    return by_stem((const row *)a, (const row *)b);
}

/* Returns the row that has a peak and the same function and file as `key`. Returns NULL if there is
   no such row, or more than one. */
static row *row_of_stem(const row *key) {
    row *any = (row *)bsearch(key, rows, row_count, sizeof *rows, by_stem_only), *one = NULL;
    size_t count = 0;
    while (any && any > rows && !by_stem(any - 1, key)) any--;
    for (; any && any < rows + row_count && !by_stem(any, key); any++)
        if (any->bytes[1][PEAK] > 0) one = any, count++;
    return count == 1 ? one : NULL;
}

/* Returns the profile's row with this kind and name. If the kind is SITE and no site has the name,
   returns the row that row_of_stem finds. Returns NULL if there is no row. Requires: the rows are
   in the order of their names. */
static row *row_named(int kind, const char *name) {
    const char *stem = kind == SITE ? without_line(name) : name;
    const row key = {kind, 0, 0, name, stem, NULL, 0, NULL, 0, 0, {{0}}, {0}, 0};
    row *r = row_count ? (row *)bsearch(&key, rows, row_count, sizeof *rows, by_name) : NULL;
    if (!r && row_count && kind == SITE) r = row_of_stem(&key);
    return r && r->sides & 2 ? r : NULL;
}

/* Returns 1, and prints why, if the peak of a row may be too low by more than the tolerance of its
   budget. */
static int budget_finer(const row *r, double budget, double tolerance) {
    const double low = r ? r->low[1] : 0, room = budget * tolerance / 100;
    const double enough = budget > 0 ? ceil(low * 100 / budget) : INFINITY;
    char a[40], b[40], cure[40] = "";
    if (!(low > room)) return 0;
    if (enough <= TOLERANCE_MOST) sprintf(cure, ", or use --tolerance %.0f%%", enough);
    note("%s %s: its peak may be low by %s, but the tolerance of %g %% is %s: record with "
         "MEMLORD_FLAG_EXACT (the interposer: MEMLORD_EXACT=1)%s",
         kinds[r->kind].name, r->name, amount(low, 0, a), tolerance, amount(room, 0, b), cure);
    return 1;
}

/* Prints how many peaks have no peak_error and are taken as exact. In a profile that MemLord 0.4.0
   wrote, tags have no peak_error. */
static void budget_doubt(void) {
    size_t unknown_errors = 0;
    for (size_t i = 0; i < row_count; i++)
        unknown_errors += rows[i].kind >= DEVICE && rows[i].kind <= SCOPE &&
                          !isnan(rows[i].bytes[1][PEAK]) && isnan(rows[i].low[1]);
    if (unknown_errors)
        note("%s: %zu peaks without a 'peak_error': taken as exact", now.path, unknown_errors);
}

/* -- the file -- */

/* Returns the kind of a list of peaks, or KINDS if the list does not hold peaks. */
static int kind_of(const cJSON *list) {
    int kind = DEVICE;
    while (kind <= SITE && strcmp(list->string, kinds[kind].list)) kind++;
    return kind <= SITE ? kind : KINDS;
}

static const struct fact *fact_of(const cJSON *list, const char *key) {
    for (int i = 0; i < FACTS; i++)
        if (!strcmp(list->string, facts[i].list) && (!key || !strcmp(key, facts[i].key)))
            return &facts[i];
    return NULL;
}

static int is_list(const cJSON *item) { return kind_of(item) < KINDS || fact_of(item, NULL); }

static void list_check(const char *name, const cJSON *list) {
    const cJSON *item;
    if (!cJSON_IsObject(list)) DIE("%s: '%s' is no list of budgets", name, list->string);
    if (list->child && kind_of(list) < KINDS && now.absent[kind_of(list)])
        DIE("%s: no '%s' to check", now.path, list->string);
    cJSON_ArrayForEach(item, list) {
        if (kind_of(list) == KINDS && !fact_of(list, item->string))
            DIE("%s: unknown key '%s' in '%s'", name, clean(item->string), list->string);
        if (!cJSON_IsNull(item) && isnan(bytes_of(item)))
            DIE("%s: '%s' has no bytes and no count", name, clean(item->string));
    }
}

/* Reads a budget. Ends the program if a key is unknown or a value is not valid. */
static cJSON *budget_open(const char *path) {
    cJSON *root = read_json(path), *item;
    const char *name = clean(path), *program = text_of(root, "program");
    const cJSON *percentage = get(root, "tolerance");
    expect_schema(root, name, budget_schema);
    if (o.tolerance < 0 && cJSON_IsNumber(percentage)) o.tolerance = percentage->valuedouble;
    if (!(o.tolerance >= 0 && o.tolerance <= TOLERANCE_MOST))
        DIE("%s: no tolerance from 0 to %d", name, TOLERANCE_MOST);
    if (program && now.program && strcmp(program, now.program))
        DIE("%s is the budget of %s, and %s is of %s: correct 'program' in the budget, or take it "
            "out", name, program, now.path, now.program);
    cJSON_ArrayForEach(item, root) {
        static const char *const known[] = {"schema", "tolerance", "program", "note"};
        size_t k = 0;
        while (k < 4 && strcmp(item->string, known[k])) k++;
        if (is_list(item))
            list_check(name, item);
        else if (k == 4)
            DIE("%s: unknown key '%s': it is no list of budgets", name, clean(item->string));
    }
    return root;
}

/* Reads an entry of a list. Returns 0 if the entry is not to be checked. */
static int entry_of(const cJSON *list, const cJSON *item, entry *e) {
    const struct fact *f = fact_of(list, item->string);
    const int kind = kind_of(list);
    if (cJSON_IsNull(item)) return 0;
    *e = (entry){f ? f->list : kinds[kind].name,
                 clean(item->string),
                 bytes_of(item),
                 0,
                 o.tolerance,
                 NULL,
                 f ? f->bytes : 1};
    if (f) e->found = fact_value(f);
    if (!f) e->r = row_named(kind, e->name);
    if (e->r) e->found = e->r->bytes[1][PEAK];
    return 1;
}

static int passed(const entry *e) { return e->found > e->budget * (1 + e->tolerance / 100); }

static const char *entry_amount(const entry *e, double v, char *text) {
    if (e->bytes) return amount(v, 0, text);
    sprintf(text, "%.0f", v);
    return text;
}

/* -- the check -- */

/* Returns the site whose bytes grew most. If the entry is of a device, only sites on that device
   count. Returns NULL if no site grew. */
static const cJSON *grown_most(const entry *e) {
    const int column = e->r ? PEAK : LIVE;
    const char *device = e->r ? joined(" on %s", e->name) : "";
    const size_t n = strlen(device);
    const row *most = NULL;
    for (size_t i = 0; i < row_count; i++) {
        const row *r = &rows[i];
        const size_t length = strlen(r->name);
        if (r->kind == SITE && r->site && growth(r, column) > 0 && length >= n &&
            !strcmp(r->name + length - n, device) &&
            (!most || growth(r, column) > growth(most, column)))
            most = r;
    }
    return most ? most->site : NULL;
}

/* Returns the name of the tag (if `kind` is TAG) or scope (if `kind` is SCOPE) of an item of the
   profile's list of leaks "by_site". For any other kind returns the name of the entry, so that all
   items belong to it. */
static const char *entry_name(const cJSON *blocks, int kind, const entry *e) {
    return kind == TAG ? row_name(blocks, TAG, "")
                       : kind == SCOPE ? text_of(blocks, "scope") : e->name;
}

/* Returns how many live bytes of the entry's tag or scope a site holds in a profile. */
static double held_by(const struct profile *p, int kind, const entry *e, const cJSON *site) {
    const cJSON *item;
    double bytes = 0;
    cJSON_ArrayForEach(item, get(get(p->root, "leaks"), "by_site")) {
        const char *name = entry_name(item, kind, e);
        if (name && !strcmp(name, e->name) && cJSON_Compare(get(item, "site"), site, 1))
            bytes += bytes_of(get(item, "bytes"));
    }
    return bytes;
}

/* Returns the site whose live bytes in the entry's tag or scope grew most, or NULL if none grew.
   Leaves out sites whose line is not known. Compares live bytes, because a profile has no peaks by
   site and tag. */
static const cJSON *grown_within(const entry *e) {
    const cJSON *item, *most = NULL;
    double by, highest = 0;
    cJSON_ArrayForEach(item, get(get(now.root, "leaks"), "by_site")) {
        const cJSON *site = get(item, "site");
        const char *name = entry_name(item, e->r->kind, e);
        if (!name || strcmp(name, e->name) || !(cJSON_GetNumberValue(get(site, "line")) > 0))
            continue;
        by = held_by(&now, e->r->kind, e, site) - held_by(&base, e->r->kind, e, site);
        if (by > highest) highest = by, most = site;
    }
    return most;
}

/* Returns the site that holds the most bytes of an entry that is over its budget. For a device
   these are the bytes at its peak, for a tag or scope its live bytes, and for leaks all live bytes.
   Leaves out sites whose line is not known. Returns NULL if there is no site. */
static const cJSON *holds_most(const entry *e) {
    const int kind = e->r ? e->r->kind : strcmp(e->kind, "leaks") ? TOTAL : LEAK;
    const cJSON *list = kind > DEVICE ? get(get(now.root, "leaks"), "by_site") : NULL, *item;
    cJSON_ArrayForEach(item, get(now.root, "peak_holders")) {
        const char *device = text_of(item, "device");
        if (kind == DEVICE && device && !strcmp(device, e->name)) list = get(item, "sites");
    }
    cJSON_ArrayForEach(item, list) { /* the item with the most bytes comes first in the list */
        const cJSON *site = get(item, "site");
        const char *name = entry_name(item, kind, e);
        if (name && !strcmp(name, e->name) && cJSON_GetNumberValue(get(site, "line")) > 0)
            return site;
    }
    return NULL;
}

static const cJSON *site_over(const entry *e) {
    if (e->r && e->r->site) return e->r->site;
    if (o.count < 2) return holds_most(e);
    return e->r && e->r->kind != DEVICE ? grown_within(e) : grown_most(e);
}

static void passed_print(const entry *e, int first) {
    const char *what = e->r ? "peak" : "found"; /* a budget of a device, tag, scope or site limits a
                                                   peak */
    char a[40], b[40], c[40];
    (void)entry_amount(e, e->budget, a), (void)entry_amount(e, e->found, b);
    (void)entry_amount(e, e->found - e->budget, c);
    if (o.form == MARKDOWN) {
        if (first) puts("\n| over budget | budget | found | over by |\n|---|--:|--:|--:|");
        printf("| %s %s | %s | %s | %s |\n", e->kind, marked(e->name), a, b, c);
        return;
    }
    if (o.form == GITHUB)
        github_line("error", site_over(e),
                    joined("over budget: %s %s: budget %s, %s %s, over by %s", e->kind, e->name, a,
                           what, b, c));
    printf("over budget: %s %s: budget %s, %s %s, over by %s\n", e->kind, e->name, a, what, b, c);
}

/* Checks an entry. Returns 0 if its value is within the budget, 1 if it is over, 2 if it is not
   known, and 3 if its peak may be too low by more than the tolerance. */
static int entry_check(const entry *e, const struct fact *f) {
    if (!f && !e->r) note("%s '%s' is in the budget alone", e->kind, e->name);
    if (f && !f->number && isnan(e->found))
        note("temporaries: not known: record with MEMLORD_STACK_BYTES=1, and fewer stacks than "
             "the profile lists");
    if (isnan(e->found))
        return note("%s '%s' has a budget and no %s", e->kind, e->name, f ? "value" : "peak"), 2;
    if (budget_finer(e->r, e->budget, e->tolerance)) return 3;
    return passed(e);
}

/* Checks all entries of a budget. Returns the exit status. */
static int budget_check(const char *path) {
    cJSON *root = budget_open(path), *list, *item;
    size_t count[4] = {0}, all, named = 0, alone = 0;
    entry e;
    cJSON_ArrayForEach(list, root) {
        if (!is_list(list)) continue;
        cJSON_ArrayForEach(item, list) {
            const struct fact *f = fact_of(list, item->string);
            int result;
            if (!entry_of(list, item, &e)) continue;
            named += !f && kind_of(list) != DEVICE, alone += !f && kind_of(list) != DEVICE && !e.r;
            result = entry_check(&e, f);
            if (result == 1) passed_print(&e, !count[1]);
            count[result]++;
        }
    }
    all = count[0] + count[1] + count[2] + count[3];
    if (!all) DIE("%s: no budget in it", clean(path));
    printf("%s%zu of %zu over budget, tolerance %g %%", o.form == MARKDOWN ? "\n" : "", count[1],
           all, o.tolerance);
    if (count[3]) printf("; %zu not checked: it is finer than the profile", count[3]);
    putchar('\n');
    cJSON_Delete(root);
    if (named && named == alone)
        note("%s: no tag, scope or site in it is in %s: of another program?", clean(path),
             now.path);
    return count[3] || (named && named == alone) ? 2 : count[1] ? 1 : count[2] ? 2 : 0;
}

/* -- what is accepted -- */

/* Returns an empty budget. */
static cJSON *budget_new(void) {
    cJSON *root = cJSON_CreateObject();
    if (o.tolerance < 0) o.tolerance = 10;
    cJSON_AddStringToObject(root, "schema", budget_schema);
    cJSON_AddNumberToObject(root, "tolerance", o.tolerance);
    if (now.program) cJSON_AddStringToObject(root, "program", now.program);
    for (int kind = DEVICE; kind <= SCOPE; kind++) cJSON_AddObjectToObject(root, kinds[kind].list);
    for (int i = 0; i < FACTS; i++) {
        cJSON *list = get(root, facts[i].list);
        if (!list) list = cJSON_AddObjectToObject(root, facts[i].list);
        if (!facts[i].asked && !isnan(fact_value(&facts[i])))
            cJSON_AddNumberToObject(list, facts[i].key, fact_value(&facts[i]));
    }
    return root;
}

/* Raises the entries of a list that the profile exceeds. Returns how many peaks may be too low by
   more than the tolerance. */
static size_t list_raise(cJSON *list, size_t *raised, size_t *kept) {
    cJSON *item, *next;
    size_t finer = 0;
    char a[40], b[40];
    for (item = list->child; item; item = next) {
        entry e;
        const char *key = joined("%s", item->string); /* a copy, because the item that has the text
                                                         is replaced below */
        row *r = kind_of(list) < KINDS ? row_named(kind_of(list), clean(key)) : NULL;
        next = item->next;
        if (r) r->budgeted = 1;
        if (!entry_of(list, item, &e) || !passed(&e)) {
            *kept += 1;
        } else {
            printf("raised: %s %s: %s -> %s\n", e.kind, e.name, entry_amount(&e, e.budget, a),
                   entry_amount(&e, e.found, b));
            *raised += 1;
            e.budget = e.found;
            item = cJSON_CreateNumber(e.found);
            cJSON_ReplaceItemInObjectCaseSensitive(list, key, item);
        }
        if (!cJSON_IsNull(item)) finer += (size_t)budget_finer(e.r, e.budget, o.tolerance);
    }
    return finer;
}

/* Adds an entry for each row of the profile that a list lacks. Prints each of them if `aloud` is 1.
   Returns how many peaks may be too low by more than the tolerance. */
static size_t list_extend(cJSON *list, int aloud, size_t *added) {
    size_t finer = 0;
    char text[40];
    for (size_t i = 0; i < row_count; i++) {
        const row *r = &rows[i];
        const double peak = r->bytes[1][PEAK];
        if (r->kind != kind_of(list) || r->budgeted || !(r->sides & 2) || isnan(peak)) continue;
        finer += (size_t)budget_finer(r, peak, o.tolerance);
        cJSON_AddNumberToObject(list, r->name, peak);
        *added += 1;
        if (aloud)
            printf("added: %s %s: %s\n", kinds[r->kind].name, r->name, amount(peak, 0, text));
    }
    return finer;
}

/* Writes a file beside the budget, and then puts it in the budget's place, so that the old budget
   stays if the disk is full. */
static void budget_save(const char *path, cJSON *root) {
    const char *beside = joined("%s.tmp", path);
    FILE *file = fopen(beside, "w");
    int failed = !file || fprintf(file, "%s\n", cJSON_Print(root)) < 0;
    if (file && fclose(file)) failed = 1;
    if (!failed && rename(beside, path)) { /* on Windows, rename does not replace a file */
        remove(path);
        failed = rename(beside, path);
    }
    if (failed) DIE("%s: %s", clean(beside), strerror(errno));
}

/* Writes a new budget, or raises the entries of a budget that exists. */
static void budget_accept(const char *path) {
    FILE *there = fopen(path, "rb");
    cJSON *root, *list, *percentage;
    size_t raised = 0, kept = 0, added = 0, finer = 0;
    if (!there && errno != ENOENT) DIE("%s: %s", clean(path), strerror(errno));
    root = there ? budget_open(path) : budget_new();
    if (there) fclose(there);
    cJSON_ArrayForEach(list, root) {
        if (!is_list(list)) continue;
        finer += list_raise(list, &raised, &kept);
        if (kind_of(list) < KINDS) finer += list_extend(list, there != NULL, &added);
    }
    if (finer) DIE("%s: not written: a tolerance is finer than its peak", clean(path));
    percentage = get(root, "tolerance");
    if (cJSON_IsNumber(percentage) && fabs(percentage->valuedouble - o.tolerance) > 0) {
        printf("tolerance: %g %% -> %g %%\n", percentage->valuedouble, o.tolerance);
        cJSON_SetNumberValue(percentage, o.tolerance);
    }
    budget_save(path, root);
    if (there)
        printf("%s: %zu raised, %zu added, %zu kept\n", clean(path), raised, added, kept);
    else
        printf("%s: new, with %zu entries\n", clean(path), kept + added);
    cJSON_Delete(root);
}

#endif
