/*
    output.h - what diff.c prints: the rows that changed, as a table, as JSON, as Markdown for the
    summary of a GitHub job, or as lines that GitHub shows at a file and line.

    Requires: the rows and options of diff.c, which includes this file. A row is a device, tag,
    scope, site, stack or leak, with its bytes in the two profiles, `base` and `now`.
*/
#ifndef OUTPUT_H
#define OUTPUT_H

/* -- the table, for people and for machines -- */

enum { NAME_COLUMN = 88, FRAMES_SHOWN = 5, NAME_MOST = 300, CHANGE_MOST = 9999 };

static const char *const states[] = {"", "gone", "new", ""};

/* Returns a text such as "1.5 GiB", with a sign if it is a change. Returns "-" if the value is not
   known, and "=" if nothing changed. */
static const char *amount(double v, int sign, char *text) {
    char bytes[32];
    if (isnan(v)) return "-";
    if (sign && !(fabs(v) > 0)) return "=";
    (void)memlord_format_bytes(fabs(v) < 1.8e19 ? (uint64_t)fabs(v) : UINT64_MAX, bytes, 32);
    sprintf(text, "%s%s", v < 0 ? "-" : sign ? "+" : "", bytes);
    return text;
}

/* Returns a change as a percentage of the value in `base`, or "" if that value is 0 or not
   known. */
static const char *percent(const row *r, char *text) {
    const double was = r->bytes[0][measure], part = growth(r, measure) / was * 100;
    if (!(was > 0) || !(fabs(part) > 0)) return "";
    if (part > CHANGE_MOST) return ">+9999 %";
    sprintf(text, "%+.*f %%", fabs(part) < 100, part);
    return text;
}

/* Returns Markdown that shows a text unchanged. Every character that Markdown or GitHub may give a
   meaning becomes an entity such as &#42;. A long text is cut. */
static const char *marked(const char *name) {
    size_t room = strlen(name), most = room < NAME_MOST ? room : NAME_MOST;
    char *out = (char *)must_alloc(6 * most + 32), *to = out + sprintf(out, "<code>");
    while (most < room && (name[most] & 0xc0) == 0x80) most--; /* a character is not cut in two */
    for (size_t i = 0; i < most; i++) {
        const unsigned char c = (unsigned char)name[i];
        if (c >= 0x80 || strchr(" ,-/()", c) || (c >= '0' && c <= '9') ||
            ((c | 0x20) >= 'a' && (c | 0x20) <= 'z'))
            *to++ = (char)c;
        else
            to += sprintf(to, "&#%d;", c);
    }
    sprintf(to, "%s</code>", most < room ? "..." : "");
    return out;
}

static const char *shown(const char *name) { return o.form == MARKDOWN ? marked(name) : name; }

/* Prints a text inside a command for GitHub, and escapes the characters that have a meaning there.
   In a property of the command (`property` is 1) a colon and a comma have a meaning, too. */
static void github_put(const char *text, int property) {
    for (size_t left = 4 * NAME_MOST; *text && left; text++, left--) {
        if (strchr(property ? "%\r\n:," : "%\r\n", *text))
            printf("%%%02X", (unsigned)*text);
        else
            putchar(*text);
    }
}

/* Prints a message that GitHub shows at the file and line of a site. Without a site GitHub shows
   the message on the page of the run. Prints the path of the file relative to the root of the
   repository. */
static void github_line(const char *command, const cJSON *site, const char *message) {
    const char *root = getenv("GITHUB_WORKSPACE"), *file = text_of(site, "file");
    const double line = cJSON_GetNumberValue(get(site, "line"));
    const size_t skip = root ? strlen(root) : 0;
    printf("::%s ", command);
    if (file && line > 0) {
        if (skip && !strncmp(file, root, skip) && file[skip] == '/') file += skip + 1;
        fputs("file=", stdout);
        github_put(strncmp(file, "./", 2) ? file : file + 2, 1);
        printf(",line=%.0f,", line);
    }
    fputs("title=Memory::", stdout);
    github_put(message, 0);
    putchar('\n');
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
    cJSON_AddItemToObject(out, "peak_error", cJSON_CreateDoubleArray(r->low, 2));
    if (r->frames) {
        cJSON *frames = cJSON_AddArrayToObject(out, "frames");
        for (size_t i = 0; i < r->depth; i++)
            cJSON_AddItemToArray(frames, cJSON_CreateString(r->frames[i]->name));
        cJSON_AddNumberToObject(out, "error", sqrt(r->variance));
    }
    puts(cJSON_PrintUnformatted(out));
    cJSON_Delete(out);
}

/* Returns how many functions of a stack are in no standard library. */
static size_t shown_count(const row *r) {
    size_t i = shown_from(r->frames, 0, r->depth), count = 0;
    for (; i < r->depth; i = shown_from(r->frames, i + 1, r->depth)) count++;
    return count;
}

/* Prints the functions of a stack that are in no standard library, except the first one, which is
   in the name of the row. Prints the text `before` in front of each function, and `after` behind
   it. Prints at most FRAMES_SHOWN - 1 functions, and how many more there are. */
static void frames_print(const row *r, const char *before, const char *after) {
    const size_t all = shown_count(r);
    size_t i = shown_from(r->frames, 0, r->depth), count = 1;
    for (; count < all && count < FRAMES_SHOWN; count++) {
        i = shown_from(r->frames, i + 1, r->depth);
        printf("%s%s%s", before, shown(r->frames[i]->name), after);
    }
    if (count < all)
        printf("%s(%s%zu more)%s", before, r->varied ? "at least " : "", all - count, after);
}

static void row_print(const row *r) {
    char text[40], before[NAME_COLUMN + 3];
    for (int c = 0; c < COLUMNS; c++) {
        printf("%11s", amount(r->bytes[1][c], 0, text));
        printf("%13s", amount(r->bytes[1][c] - r->bytes[0][c], 1, text));
        if (c == measure) printf("%9s", percent(r, text));
    }
    printf("  %-4s %s", states[r->sides], r->name);
    if (r->variance > 0) printf(", +- %s", amount(sqrt(r->variance), 0, text));
    putchar('\n');
    sprintf(before, "%*s< ", NAME_COLUMN, "");
    frames_print(r, before, "\n");
}

static void row_markdown(const row *r) {
    char text[40];
    printf("| %s %s", r->kind == TOTAL ? r->name : shown(r->name), states[r->sides]);
    if (r->variance > 0) printf(" ± %s", amount(sqrt(r->variance), 0, text));
    frames_print(r, "<br>← ", "");
    for (int c = 0; c < COLUMNS; c++) {
        printf(" | %s", amount(r->bytes[1][c], 0, text));
        printf(" | %s", amount(r->bytes[1][c] - r->bytes[0][c], 1, text));
        if (c == measure) printf(" | %s", percent(r, text));
    }
    puts(" |");
}

/* Prints a warning for a site that grew. */
static void row_github(const row *r) {
    char by[40], is[40], part[40];
    if (r->kind != SITE || growth(r, measure) <= 0 || r->strange) return;
    github_line("warning", r->site,
                joined("%s: %s %s, now %s%s%s", r->name, columns[measure],
                       amount(growth(r, measure), 1, by), amount(r->bytes[1][measure], 0, is),
                       *percent(r, part) ? ", " : "", percent(r, part)));
}

static void (*const row_show[])(const row *) = {row_print, row_json, row_markdown, row_github};

/* Prints the heading of the rows of a kind. */
static void show_head(int kind) {
    if (o.form == TABLE && kind != TOTAL) printf("%s\n", kinds[kind].name);
    if (o.form != MARKDOWN || (o.only && kind == TOTAL)) return;
    printf("\n| %s ", kind == TOTAL ? "" : kinds[kind].name);
    for (int c = 0; c < COLUMNS; c++)
        printf("| %s | change%s ", columns[c], c == measure ? "\xe2\x86\x93 | % " : "");
    puts("|\n|---|--:|--:|--:|--:|--:|--:|--:|");
}

/* Prints the rows of one kind that changed most. A table has one more row, for the sum of those
   rows of this kind that are not printed. Requires: the rows are in the order of their changes. */
static void show(int kind) {
    row rest = {kind, 3, 0, "", "", NULL, 0, NULL, 0, 0, {{0}}, {0}, 0};
    size_t first = 0, end, count = 0;
    while (first < row_count && rows[first].kind < kind) first++;
    for (end = first; end < row_count && rows[end].kind == kind; end++)
        if ((double)count < o.top && (kind == TOTAL || changed(&rows[end]))) count++;
    if (!count || base.absent[kind] || now.absent[kind]) return;
    show_head(kind);
    for (size_t i = first; i < first + count; i++) row_show[o.form](&rows[i]);
    for (size_t i = first + count; i < end; i++) row_join(&rest, &rows[i]);
    if (o.form == JSON || o.form == GITHUB || first + count == end) return;
    rest.name = joined("(%zu more)", end - first - count);
    rest.bytes[1][PEAK] = NAN; /* peaks of different times do not add up */
    row_show[o.form](&rest);
}

/* Returns, as a text for people, the file, program, process, host and time of a profile. */
static const char *origin(const struct profile *p) {
    const cJSON *meta = get(p->root, "metadata");
    const char *host = text_of(meta, "host"), *version = text_of(p->root, "version");
    const double pid = cJSON_GetNumberValue(get(meta, "pid"));
    char *text = joined("%s", p->path);
    const char *before = ": ";
    if (p->program) text = joined("%s%s%s", text, before, p->program), before = ", ";
    if (pid > 0) text = joined("%s%spid %.0f", text, before, pid), before = ", ";
    if (host) text = joined("%s%son %s", text, before, host), before = ", ";
    if (p->when) text = joined("%s%s%s", text, before, p->when), before = ", ";
    return version ? joined("%s%sMemLord %s", text, before, version) : text;
}

/* Returns 1 if a row is of the kind `kind`, and its name means the same in both profiles. */
static int is_compared(const row *r, int kind) {
    return r->kind == kind && !base.absent[kind] && !now.absent[kind] && !r->strange &&
           !(kinds[kind].rest && !strcmp(r->name, kinds[kind].rest));
}

/* Returns the row of a kind that changed most, or NULL if none changed. Requires: the rows are in
   the order of their changes. */
static const row *largest_of(int kind) {
    for (size_t i = 0; i < row_count; i++)
        if (is_compared(&rows[i], kind) && change(&rows[i], measure) > 0) return &rows[i];
    return NULL;
}

static int is_estimate(const row *r) {
    return r->kind == STACK && (base.sample > 1 || now.sample > 1);
}

static int sites_are_compared(void) {
    for (size_t i = 0; i < row_count; i++)
        if (is_compared(&rows[i], SITE)) return 1;
    return 0;
}

/* Finds the first kind in `order` that has a changed row, and returns its row that changed most.
   Returns NULL if nothing changed. Stacks are first in `order`, because they say most precisely
   where memory went. But the change of a stack may be an estimate. Stacks are then left out if the
   sites can be compared, because the changes of sites are exact. Requires: the rows are in the
   order of their changes. */
static const row *largest_change(void) {
    static const int order[] = {STACK, SITE, TAG, SCOPE, DEVICE};
    for (size_t k = 0; k < sizeof order / sizeof *order; k++) {
        const row *r = largest_of(order[k]);
        if (r && !(is_estimate(r) && sites_are_compared())) return r;
    }
    return NULL;
}

/* Returns how many seconds of one run lie between the profiles. Returns 0 if they are not of one
   run, or if `base` is the later one. */
static double seconds_between(void) {
    const cJSON *was = get(base.root, "metadata"), *is = get(now.root, "metadata");
    const double by = (cJSON_GetNumberValue(get(is, "uptime_ns")) -
                       cJSON_GetNumberValue(get(was, "uptime_ns"))) / 1e9;
    const char *began = text_of(is, "started_at"), *before = text_of(was, "started_at");
    const int same = began && before && !strcmp(began, before) &&
                     cJSON_Compare(get(was, "pid"), get(is, "pid"), 1);
    return same && by > 0 ? by : 0;
}

/* Prints by how much the total changed, and which row changed most. The report page uses the same
   words. */
static void show_answer(void) {
    static const char *const names[] = {"Live bytes", "The peak", "Allocated bytes"};
    const row *all = row_count && rows->kind == TOTAL ? rows : NULL, *most = largest_change();
    const double by = all ? all->bytes[1][measure] - all->bytes[0][measure] : NAN;
    const double seconds = seconds_between();
    char text[40];
    if (measure && !isnan(by)) printf("Live bytes are the same. ");
    if (isnan(by))
        printf("How live bytes changed is not known.");
    else if (!(fabs(by) > 0))
        printf("Live bytes are the same.");
    else
        printf("%s %s by %s%s.", names[measure], by > 0 ? "grew" : "shrank",
               amount(fabs(by), 0, text), seconds > 0 ? joined(" in %.1f s", seconds) : "");
    if (most)
        printf(" The largest change by %s: %s, %s%s.", kinds[most->kind].name, shown(most->name),
               amount(growth(most, measure), 1, text), is_estimate(most) ? ", an estimate" : "");
    putchar('\n');
}

/* Compares two rows by what a table shows of them: their kinds, names and functions. If two stacks
   show the same functions, and only one of them has more than are shown, they differ. */
static int by_shown(const void *a, const void *b) {
    const row *x = (const row *)a, *y = (const row *)b;
    size_t i = shown_from(x->frames, 0, x->depth), k = shown_from(y->frames, 0, y->depth);
    int order = x->kind == y->kind ? strcmp(x->name, y->name) : x->kind - y->kind;
    for (int n = 1; !order; n++) {
        i = shown_from(x->frames, i + 1, x->depth), k = shown_from(y->frames, k + 1, y->depth);
        order = (i < x->depth) - (k < y->depth);
        if (i >= x->depth || k >= y->depth || n == FRAMES_SHOWN) break;
        order = strcmp(x->frames[i]->name, y->frames[k]->name);
    }
    return order;
}

/* Adds up the stacks that a table would show as the same. Their peaks are not added up, because
   they are of different times. */
static void merge_shown(void) {
    size_t n = 0;
    if (row_count) qsort(rows, row_count, sizeof *rows, by_shown);
    for (size_t i = 0; i < row_count; i++) {
        row *last = n ? &rows[n - 1] : NULL;
        const row *r = &rows[i];
        size_t was, is;
        if (!last || r->kind != STACK || by_shown(last, r)) {
            rows[n++] = *r;
            continue;
        }
        was = shown_count(last), is = shown_count(r);
        if (is < was) last->frames = r->frames, last->depth = r->depth;
        last->varied |= is != was;
        row_join(last, r);
        last->bytes[0][PEAK] = last->bytes[1][PEAK] = NAN;
    }
    row_count = n;
}

static void show_all(void) {
    if ((o.form == TABLE || o.form == MARKDOWN) && measure != PEAK) merge_shown();
    if (row_count) qsort(rows, row_count, sizeof *rows, by_change);
    if (o.form == TABLE) {
        printf("from %s\n  to %s\n", origin(&base), origin(&now));
        show_answer();
        for (int c = 0; c < COLUMNS; c++)
            printf("%11s%s%s", columns[c],
                   c == measure ? "      change\xe2\x86\x93        %" : "       change",
                   c + 1 < COLUMNS ? "" : "\n");
    } else if (o.form == MARKDOWN) {
        fputs("\n**Memory.** ", stdout);
        show_answer();
        printf("\n- from %s\n", shown(origin(&base)));
        printf("- to %s\n", shown(origin(&now)));
    }
    for (int kind = 0; kind < KINDS; kind++)
        if (kind == TOTAL || !o.only || o.only == kind) show(kind);
}

/* -- the messages, in Markdown -- */

static char *messages; /* a list of all messages, or NULL */

static void messages_add(const char *form, va_list args) {
    note_also = NULL; /* set to NULL, because a message about a failure in this function would call
                         the function again */
    messages = joined("%s- %s\n", messages ? messages : "", marked(joined_of(form, args)));
    note_also = messages_add;
}

static void messages_print(void) {
    if (messages) printf("\n%s", messages);
}

#endif
