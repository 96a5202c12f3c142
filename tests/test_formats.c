/* The formats other tools read: each as its readers take it, here by readers as small as can be;
   tests/consumers.sh has the real ones. */
#include "support.h"

#include <ctype.h>
#include <locale.h>

#include "json.h"

static const memlord_format formats[] = {
    MEMLORD_FORMAT_TRACE,     MEMLORD_FORMAT_PROMETHEUS, MEMLORD_FORMAT_PPROF,
    MEMLORD_FORMAT_HEAPTRACK, MEMLORD_FORMAT_FOLDED,     MEMLORD_FORMAT_MEMORY_VIZ,
    MEMLORD_FORMAT_CSV};
#define FORMATS (sizeof formats / sizeof formats[0])

/* The caller frees its data, which ends with a 0 that is not counted. */
static test_text written(memlord *lord, memlord_format format) {
    test_text text;
    memset(&text, 0, sizeof text);
    test_text_write(&text, "", 0);
    assert_ok(memlord_write(lord, format, test_text_write, &text));
    return text;
}

/* What a reader finds; NULL instead of `bad` when nothing is wrong. */
typedef struct reading {
    const char *bad;
    uint64_t bytes;     /* live */
    uint64_t peak;      /* HEAPTRACK */
    uint64_t value[5];  /* PPROF */
    uint64_t streams;   /* MEMORY_VIZ: segments and events on one that is not the default one */
    uint64_t rows;      /* CSV, segments of MEMORY_VIZ, events of TRACE, locations of PPROF */
} reading;

#define EXPECT(condition)                                                                     \
    do {                                                                                      \
        if (!(condition)) {                                                                   \
            r->bad = #condition;                                                              \
            return;                                                                           \
        }                                                                                     \
    } while (0)

static const char *line_end(const char *s) {
    const char *end = strchr(s, '\n');
    return end ? end : s + strlen(s);
}

/* -- PROMETHEUS: families in one piece, with help and type; series once; labels closed -- */

static const char *prom_labels(const char *s, reading *r) {
    for (s++; *s && *s != '}'; s += *s == ',') {
        while (isalpha((unsigned char)*s) || *s == '_') s++;
        if (s[0] != '=' || s[1] != '"') break;
        for (s += 2; *s && *s != '"'; s++) {
            if (*s == '\n') break;
            if (*s == '\\' && !strchr("\\\"n", *++s)) break;
        }
        if (*s++ != '"') break;
        if (*s != ',' && *s != '}') break;
    }
    if (*s != '}') r->bad = "a label";
    return s + 1;
}

static void read_prometheus(const test_text *text, reading *r) {
    const char *s = text->data, *end, *name = "";
    size_t length = 0;
    int counter = 0;
    for (; *s; s = end + 1) {
        end = line_end(s);
        EXPECT(*end == '\n');
        if (!strncmp(s, "# HELP ", 7)) {
            name = s + 7;
            length = strcspn(name, " \n");
            EXPECT(name[length] == ' ');
            counter = !strncmp(name + length - 6, "_total", 6);
            EXPECT(!strncmp(end + 1, "# TYPE ", 7) && !strncmp(end + 8, name, length));
            EXPECT(!strncmp(end + 8 + length, counter ? " counter\n" : " gauge\n",
                            counter ? 9 : 7));
            end = line_end(end + 1);
            continue;
        }
        EXPECT(length && !strncmp(s, name, length));
        EXPECT(!strstr(s, "device=\"all\"") || strstr(s, "device=\"all\"") > end);
        if (!strncmp(name, "memlord_live_bytes", length))
            r->bytes += strtoull(strrchr(s, ' ') ? s + strcspn(s, " ") + 1 : s, NULL, 10);
        s += length;
        if (*s == '{') s = prom_labels(s, r);
        EXPECT(!r->bad && *s == ' ');
        s += 1 + (s[1] == '-');
        EXPECT(isdigit((unsigned char)*s));
        s += strspn(s, "0123456789.");
        EXPECT(s == end);
    }
}

/* -- CSV: as many fields in every line; quotes doubled -- */

#define CSV_FIELDS 18

/* The n-th field of a line, unquoted; answers where the next line begins. */
static const char *csv_line(const char *s, char field[CSV_FIELDS][256], size_t *n) {
    size_t size = 0;
    int quoted = 0;
    *n = 0;
    for (;; s++) {
        if (!*s) return NULL;
        if (*s == '"' && quoted && s[1] == '"') {
            s++;
        } else if (*s == '"') {
            quoted = !quoted;
            continue;
        } else if (!quoted && (*s == ',' || *s == '\r')) {
            if (*n < CSV_FIELDS) field[*n][size < 255 ? size : 255] = 0;
            ++*n;
            size = 0;
            if (*s == '\r') return s[1] == '\n' ? s + 2 : NULL;
            continue;
        }
        if (*s == '\n' || *s == '\r') return NULL; /* a line a block */
        if (*n < CSV_FIELDS && size < 255) field[*n][size] = *s;
        size++;
    }
}

static void read_csv(const test_text *text, reading *r) {
    char field[CSV_FIELDS][256];
    const char *s = text->data;
    size_t n, i;
    for (; *s; r->rows++) {
        s = csv_line(s, field, &n);
        EXPECT(s && n == CSV_FIELDS);
        for (i = 0; i < n; i++) EXPECT(!field[i][0] || !strchr("=+-@", field[i][0]));
        if (r->rows) r->bytes += strtoull(field[2], NULL, 10);
    }
}

/* -- FOLDED: frames, a space, a number -- */

static void read_folded(const test_text *text, reading *r) {
    const char *s = text->data, *end, *space;
    for (; *s; s = end + 1, r->rows++) {
        end = line_end(s);
        EXPECT(*end == '\n' && *s != ';' && *s != ' ');
        for (space = end; space > s && space[-1] != ' ';) space--;
        EXPECT(space > s && isdigit((unsigned char)*space));
        EXPECT(memchr(s, ';', (size_t)(space - s)) && space[-2] != ';');
        r->bytes += strtoull(space, NULL, 10);
        EXPECT(space + strspn(space, "0123456789") == end);
    }
}

/* -- PPROF: fields, and what they refer to -- */

typedef struct pb {
    const unsigned char *at, *end;
    int bad;
} pb;
static uint64_t pb_varint(pb *p) {
    uint64_t v = 0;
    unsigned shift = 0;
    for (; p->at < p->end && shift < 64; shift += 7) {
        unsigned char c = *p->at++;
        v |= (uint64_t)(c & 127) << shift;
        if (c < 128) return v;
    }
    p->bad = 1;
    return 0;
}
/* The next field; a number is in *v, the rest is in *inner. */
static unsigned pb_field(pb *p, pb *inner, uint64_t *v) {
    uint64_t key;
    if (p->bad || p->at >= p->end) return 0;
    key = pb_varint(p);
    *v = pb_varint(p);
    inner->at = inner->end = p->at;
    inner->bad = 0;
    if ((key & 7) == 2) {
        if (*v > (uint64_t)(p->end - p->at)) p->bad = 1;
        if (p->bad) return 0;
        inner->end = p->at += *v;
        inner->at = p->at - *v;
    } else if (key & 7) {
        p->bad = 1;
    }
    return p->bad ? 0 : (unsigned)(key >> 3);
}

typedef struct profile {
    uint64_t strings, locations, functions, types;
    uint64_t string_max, location_max, function_max;
} profile;

static void pprof_sample(pb sample, profile *of, reading *r) {
    pb in, pair;
    uint64_t v, n, values = 0, places = 0;
    unsigned field;
    while ((field = pb_field(&sample, &in, &v)) != 0) {
        for (; field == 1 && in.at < in.end; places++)
            if ((n = pb_varint(&in)) > of->location_max) of->location_max = n;
        for (; field == 2 && in.at < in.end && values < 5; values++)
            r->value[values] += pb_varint(&in);
        while (field == 3 && pb_field(&in, &pair, &n))
            if (n > of->string_max) of->string_max = n;
        EXPECT(!in.bad && in.at == in.end);
    }
    EXPECT(!sample.bad && values == 5 && places);
}

static void read_pprof(const test_text *text, reading *r) {
    pb file, in, line;
    profile of;
    uint64_t v, n;
    unsigned field, f;
    memset(&of, 0, sizeof of);
    file.at = (const unsigned char *)text->data;
    file.end = file.at + text->size;
    file.bad = 0;
    while ((field = pb_field(&file, &in, &v)) != 0) {
        if (field == 1) of.types++;
        if (field == 2) pprof_sample(in, &of, r);
        if (r->bad) return;
        if (field == 4) {
            EXPECT(pb_field(&in, &line, &n) == 1 && n == ++of.locations);
            EXPECT(pb_field(&in, &line, &n) == 4);
            EXPECT(pb_field(&line, &in, &n) == 1 && n);
            if (n > of.function_max) of.function_max = n;
        } else if (field == 5) {
            EXPECT(pb_field(&in, &line, &n) == 1 && n == ++of.functions);
            while ((f = pb_field(&in, &line, &n)) != 0)
                if (n > of.string_max) of.string_max = n;
        } else if (field == 6) {
            EXPECT(of.strings++ || !v);
            while (in.at < in.end) {
                EXPECT(json_utf8(in.at));
                in.at += json_utf8(in.at);
            }
            EXPECT(in.at == in.end);
        } else if (field == 13 && v > of.string_max) {
            of.string_max = v;
        }
    }
    EXPECT(!file.bad && of.types == 5 && of.location_max <= of.locations);
    EXPECT(of.function_max <= of.functions && of.string_max < of.strings);
    r->bytes = r->value[3];
    r->rows = of.locations;
}

/* -- HEAPTRACK: numbers that refer to what came before; played through as heaptrack_print does: a
      free right after its alloc is temporary, and only an alloc makes a peak. Bytes without a call
      are frees of minus so many, and those that come and go a pair of these: value[0] has the
      calls, value[1] the temporary ones -- */

typedef struct heap_info {
    uint64_t bytes, live;
} heap_info;

static size_t heap_numbers(const char *s, uint64_t v[5]) {
    size_t n = 0;
    char *end;
    while (*s == ' ' && n < 5) {
        v[n++] = strtoull(s + 1, &end, 16);
        if (end == s + 1) return 0;
        s = end;
    }
    return *s == '\n' ? n : 0;
}

static void read_heaptrack(const test_text *text, reading *r) {
    heap_info *info = (heap_info *)calloc(text->size / 4 + 1, sizeof *info);
    uint64_t strings = 0, places = 0, traces = 0, infos = 0, last = 0, v[5];
    const char *s, *bad = NULL;
    assert_non_null(info);
    for (s = text->data; *s && !bad; s = line_end(s) + 1) {
        size_t n = strchr("sX#", *s) ? 0 : heap_numbers(s + 1, v);
        if (*line_end(s) != '\n' || s[1] != ' ') bad = "a line";
        if (*s == 'v' && (n != 2 || v[1] != 2)) bad = "version";
        if (*s == 'i' && (n != 5 || v[1] > strings || v[2] > strings || v[3] > strings)) bad = "i";
        if (*s == 't' && (n != 2 || !v[0] || v[0] > places || v[1] > traces)) bad = "t";
        if (*s == 'a' && (n != 2 || !v[1] || v[1] > traces)) bad = "a";
        if (*s == 'a') info[infos++].bytes = v[0];
        if ((*s == '+' || *s == '-') && (n != 1 || v[0] >= infos)) bad = "index";
        if (*s == '+' && !bad) {
            info[v[0]].live++;
            r->bytes += info[v[0]].bytes;
            if (r->bytes > r->peak) r->peak = r->bytes;
            r->value[0]++;
            last = v[0];
        } else if (*s == '-' && !bad) {
            const heap_info *of = &info[v[0]];
            if (!of->live && of->bytes && of->bytes <= UINT64_MAX / 2 &&
                (!v[0] || of->bytes + of[-1].bytes))
                bad = "freed twice";
            info[v[0]].live -= of->live != 0;
            r->bytes -= of->bytes;
            r->value[1] += last == v[0];
            last = 0;
        }
        if (!strchr("#vXsitac+-", *s)) bad = "mode";
        strings += *s == 's';
        places += *s == 'i';
        traces += *s == 't';
    }
    free(info);
    r->bad = bad;
}

/* -- MEMORY_VIZ: a pickle machine that keeps what sums are made of -- */

typedef struct pickle {
    const unsigned char *at, *end;
    struct {
        char kind; /* 'i'nteger, 's'tring, other */
        uint64_t number;
        const unsigned char *text;
    } stack[4096];
    size_t depth, mark[64], marks;
    unsigned char known[1 << 16]; /* memo */
} pickle;

static uint64_t pickle_number(pickle *p, size_t n) {
    uint64_t v = 0;
    size_t i;
    for (i = 0; i < n && p->at < p->end; i++, p->at++)
        if (i < 8) v |= (uint64_t)*p->at << (8 * i);
    return v;
}
static void pickle_push(pickle *p, char kind, uint64_t number, const unsigned char *text) {
    if (p->depth == 4096) return;
    p->stack[p->depth].kind = kind;
    p->stack[p->depth].text = text;
    p->stack[p->depth++].number = number;
}
static int pickle_is(const pickle *p, size_t at, const char *word) {
    return p->stack[at].kind == 's' && p->stack[at].number == strlen(word) &&
           !memcmp(p->stack[at].text, word, strlen(word));
}

/* One step; answers NULL, or what is wrong. Words come out of the memo as what they went in. */
static const char *pickle_step(pickle *p, reading *r, int op) {
    static struct {
        const unsigned char *text;
        uint64_t size;
    } memo[256]; /* the words */
    size_t i, base;
    uint64_t n;
    switch (op) {
    case '}': case ']': case 0x89: pickle_push(p, 'o', 0, NULL); break;
    case '(':
        if (p->marks == 64) return "marks";
        p->mark[p->marks++] = p->depth;
        break;
    case 'K': pickle_push(p, 'i', pickle_number(p, 1), NULL); break;
    case 'J':
        n = pickle_number(p, 4);
        if (n > INT32_MAX) return "BININT"; /* it has a sign */
        pickle_push(p, 'i', n, NULL);
        break;
    case 0x8a:
        n = pickle_number(p, 1);
        if (n != 8 && n != 9) return "LONG1";
        pickle_push(p, 'i', pickle_number(p, (size_t)n), NULL);
        break;
    case 'X':
        n = pickle_number(p, 4);
        if (n > (uint64_t)(p->end - p->at)) return "string";
        pickle_push(p, 's', n, p->at);
        for (i = 0; i < n; i += (size_t)json_utf8(p->at + i))
            if (!json_utf8(p->at + i)) return "UTF-8";
        p->at += n;
        break;
    case 'q': case 'r':
        n = pickle_number(p, op == 'q' ? 1 : 4);
        if (!p->depth || n >= sizeof p->known) return "memo";
        p->known[n] = 1;
        if (n < 256) memo[n].text = p->stack[p->depth - 1].text;
        if (n < 256) memo[n].size = p->stack[p->depth - 1].number;
        break;
    case 'h': case 'j':
        n = pickle_number(p, op == 'h' ? 1 : 4);
        if (n >= sizeof p->known || !p->known[n]) return "memo";
        pickle_push(p, op == 'h' ? 's' : 'o', n < 256 ? memo[n].size : 0,
                    n < 256 ? memo[n].text : NULL);
        break;
    case 'a': case 0x86:
        if (p->depth < 2) return "depth";
        p->depth--;
        if (op == 0x86) p->stack[p->depth - 1].kind = 'o';
        break;
    case 's':
        if (p->depth < 3) return "depth";
        p->depth -= 2;
        break;
    case 'e': case 'u':
        if (!p->marks) return "marks";
        base = p->mark[--p->marks];
        if (!base || p->depth - base > (op == 'e' ? 1000u : 64u) || p->depth == base)
            return "batch";
        if (op == 'u' && (p->depth - base) % 2) return "pairs";
        for (i = base; op == 'u' && i < p->depth; i += 2) {
            if (p->stack[i].kind != 's') return "key";
            if (pickle_is(p, i, "total_size")) r->bytes += p->stack[i + 1].number, r->rows++;
            if (pickle_is(p, i, "stream") && p->stack[i + 1].number) r->streams++;
        }
        p->depth = base;
        break;
    default: return "opcode";
    }
    return NULL;
}

static void read_memory_viz(const test_text *text, reading *r) {
    pickle *p = (pickle *)calloc(1, sizeof *p);
    assert_non_null(p);
    p->at = (const unsigned char *)text->data;
    p->end = p->at + text->size;
    if (text->size < 4 || pickle_number(p, 2) != 0x280) r->bad = "PROTO 2";
    while (!r->bad && p->at < p->end && *p->at != '.') {
        int op = *p->at++;
        r->bad = pickle_step(p, r, op);
    }
    if (!r->bad && (p->at + 1 != p->end || p->depth != 1 || p->marks)) r->bad = "STOP";
    free(p);
}

/* -- TRACE -- */

static void read_trace(const test_text *text, reading *r) {
    const char *s;
    int64_t async = 0, slices = 0;
    EXPECT(json_valid(text->data));
    for (s = text->data; (s = strstr(s, "\n{\"ph\":\"")) != NULL; s++) {
        r->rows++;
        async += s[8] == 'b' ? 1 : s[8] == 'e' ? -1 : 0;
        slices += s[8] == 'B' ? 1 : s[8] == 'E' ? -1 : 0;
        EXPECT(async >= 0 && slices >= 0);
    }
    EXPECT(!async && !slices && r->rows);
}

static void read_format(memlord_format format, const test_text *text, reading *r) {
    memset(r, 0, sizeof *r);
    switch (format) {
    case MEMLORD_FORMAT_PROMETHEUS: read_prometheus(text, r); break;
    case MEMLORD_FORMAT_PPROF: read_pprof(text, r); break;
    case MEMLORD_FORMAT_HEAPTRACK: read_heaptrack(text, r); break;
    case MEMLORD_FORMAT_FOLDED:
    case MEMLORD_FORMAT_FOLDED_PEAK:
    case MEMLORD_FORMAT_FOLDED_ALLOCATED: read_folded(text, r); break;
    case MEMLORD_FORMAT_MEMORY_VIZ: read_memory_viz(text, r); break;
    case MEMLORD_FORMAT_CSV: read_csv(text, r); break;
    case MEMLORD_FORMAT_TIMELINE: EXPECT(!strncmp(text->data, "seconds,", 8)); break;
    default: read_trace(text, r); break;
    }
}

static const char *const names[MEMLORD_FORMAT_COUNT] = {
#define NAME(name, suffix, text) #name,
    MLI_FORMATS(NAME)
#undef NAME
};

/* Reads a format of a ledger; fails when its reader would. */
static reading read_of(memlord *lord, memlord_format format) {
    test_text text = written(lord, format);
    reading r;
    read_format(format, &text, &r);
    if (r.bad) {
        FILE *file = fopen("build/bad_format", "wb");
        if (file) (void)!fwrite(text.data, 1, text.size, file), fclose(file);
        fail_msg("%s: %s (see build/bad_format)", names[format], r.bad);
    }
    free(text.data);
    return r;
}
static void read_all(memlord *lord) {
    size_t i;
    for (i = 0; i < FORMATS; i++) (void)read_of(lord, formats[i]);
}

static size_t count_of(const test_text *text, const char *piece) {
    size_t i, n = 0, size = strlen(piece);
    for (i = 0; i + size <= text->size; i++) n += !memcmp(text->data + i, piece, size);
    return n;
}

static int contains(memlord *lord, memlord_format format, const char *piece) {
    test_text text = written(lord, format);
    int found = strstr(text.data, piece) != NULL;
    free(text.data);
    return found;
}
static int has_a_decimal_comma(memlord *lord, memlord_format format) {
    test_text text = written(lord, format);
    const char *at = text.data;
    int found = 0;
    while (!found && (at = strchr(at + 1, ',')) != NULL)
        found = isdigit((unsigned char)at[-1]) && isdigit((unsigned char)at[1]);
    free(text.data);
    return found;
}

/* -- a small ledger -- */

static const memlord_site load_site = {"src/load.c", "load", 10};
static const memlord_site step_site = {"src/step.c", "step", 20};

static int never(void *user) {
    (void)user;
    return 0;
}

/* 1000 + 300 (pending) on cuda:1, 77 without a site and 50 of an arena on the cpu; 4000 gone. */
static void fill(memlord *lord) {
    memlord_fence fence;
    memset(&fence, 0, sizeof fence);
    fence.done = never;
    assert_ok(memlord_events_start(lord, 1024));
    assert_ok(memlord_scope_begin(lord, "forward"));
    assert_ok(memlord_tag_begin(lord, "weights"));
    assert_ok(memlord_alloc(lord, cuda(1), 0x1000, 1000, &load_site));
    assert_ok(memlord_tag_end(lord));
    assert_ok(memlord_alloc(lord, cuda(1), 0x9000, 4000, &step_site));
    assert_ok(memlord_free(lord, cuda(1), 0x9000, &step_site));
    assert_ok(memlord_scope_end(lord));
    assert_ok(memlord_checkpoint(lord, "loaded"));
    assert_ok(memlord_alloc(lord, cuda(1), 0x2000, 300, &step_site));
    assert_ok(memlord_free_deferred(lord, cuda(1), 0x2000, fence, &step_site));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 77, NULL));
    assert_ok(memlord_arena_add(lord, cpu(), 50, NULL));
}

static void live_bytes_are_the_ledgers(void **state) {
    memlord *lord = test_lord(state);
    fill(lord);
    assert_int_equal(memlord_allocated(lord, all()), 1427);
    assert_int_equal(read_of(lord, MEMLORD_FORMAT_PROMETHEUS).bytes, 1427);
    assert_int_equal(read_of(lord, MEMLORD_FORMAT_PPROF).bytes, 1427);
    assert_int_equal(read_of(lord, MEMLORD_FORMAT_HEAPTRACK).bytes, 1427);
    assert_int_equal(read_of(lord, MEMLORD_FORMAT_FOLDED).bytes, 1427);
    assert_int_equal(read_of(lord, MEMLORD_FORMAT_MEMORY_VIZ).bytes, 1427);
    assert_int_equal(read_of(lord, MEMLORD_FORMAT_CSV).bytes, 1427 - 50); /* an arena is no block */
    (void)read_of(lord, MEMLORD_FORMAT_TRACE);
}

static void every_statistic_is_a_metric_of_its_device(void **state) {
    memlord *lord = test_lord(state);
    memlord_stats s;
    char line[128];
    test_text text;
    size_t found = 0, i;
    fill(lord);
    s = stats_of(lord, cuda(1));
    text = written(lord, MEMLORD_FORMAT_PROMETHEUS);
#define METRIC(name, stat)                                                                    \
    snprintf(line, sizeof line, "\nmemlord_" name "{device=\"cuda:1\"} %llu\n",               \
             (unsigned long long)s.stat);                                                     \
    assert_non_null(strstr(text.data, line));
    METRIC("live_bytes", allocated)
    METRIC("pending_bytes", pending)
    METRIC("peak_bytes", peak)
    METRIC("allocs_total", allocs)
    METRIC("frees_total", frees)
    METRIC("allocated_bytes_total", total_allocated)
    METRIC("freed_bytes_total", total_freed)
    METRIC("unknown_frees_total", unknown_frees)
    METRIC("dropped_events_total", dropped_events)
    METRIC("reallocs_total", reallocs)
    METRIC("copies_total", copies)
    METRIC("copied_bytes_total", copied_bytes)
#undef METRIC
    for (i = 0; i + 20 < text.size; i++)
        found += !strncmp(text.data + i, "{device=\"cuda:1\"} ", 18);
    /* all but limit, held and neighbours, which are of the physical device, and the largest free
       piece, which nobody told; and of the rates that of success, and the mean */
#define ONE(name, kind, family, text) +1
    assert_int_equal(found, 0 MLI_STATS(ONE) - 4 + 2);
#undef ONE
    free(text.data);
}

static void a_place_is_free_self_and_unaccounted(void **state) {
    test_case *t = (test_case *)*state;
    test_capacity(t, 10000, 4000);
    assert_ok(memlord_alloc(t->lord, cuda(0), 0x1000, 5000, NULL));
    assert_ok(memlord_limit_set(t->lord, cuda(0), 9000));
    assert_true(contains(t->lord, MEMLORD_FORMAT_PROMETHEUS,
                         "\nmemlord_capacity_bytes{device=\"cuda:0\"} 10000\n"));
    assert_true(contains(t->lord, MEMLORD_FORMAT_PROMETHEUS,
                         "\nmemlord_capacity_used_bytes{device=\"cuda:0\"} 9000\n"));
    assert_true(contains(t->lord, MEMLORD_FORMAT_PROMETHEUS,
                         "\nmemlord_unaccounted_bytes{device=\"cuda:0\"} 4000\n"));
    assert_true(contains(t->lord, MEMLORD_FORMAT_PROMETHEUS,
                         "\nmemlord_limit_bytes{device=\"cuda:0\"} 9000\n"));
    assert_ok(memlord_alloc(t->lord, cuda(0), 0x2000, 7000, NULL)); /* more than there is */
    assert_true(contains(t->lord, MEMLORD_FORMAT_PROMETHEUS,
                         "\nmemlord_unaccounted_bytes{device=\"cuda:0\"} -2000\n"));
    (void)read_of(t->lord, MEMLORD_FORMAT_PROMETHEUS);
}

static void moves_and_copies_are_told_by_pair_of_devices(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_move(lord, cpu(), 0x1000, cuda(1), 0x9000, 128, NULL, NULL));
    assert_ok(memlord_copy(lord, cuda(1), cpu(), 30));
    assert_ok(memlord_copy(lord, cuda(1), cpu(), 12));
    assert_true(contains(lord, MEMLORD_FORMAT_PROMETHEUS,
                         "\nmemlord_pair_moves_total{from=\"cpu\",to=\"cuda:1\"} 1\n"));
    assert_true(contains(lord, MEMLORD_FORMAT_PROMETHEUS,
                         "\nmemlord_pair_moved_bytes_total{from=\"cpu\",to=\"cuda:1\"} 128\n"));
    assert_true(contains(lord, MEMLORD_FORMAT_PROMETHEUS,
                         "\nmemlord_pair_copies_total{from=\"cuda:1\",to=\"cpu\"} 2\n"));
    assert_true(contains(lord, MEMLORD_FORMAT_PROMETHEUS,
                         "\nmemlord_pair_copied_bytes_total{from=\"cuda:1\",to=\"cpu\"} 42\n"));
    assert_true(contains(lord, MEMLORD_FORMAT_JSON,
                         "{\"from\":\"cuda:1\",\"to\":\"cpu\",\"count\":0,\"bytes\":0,"
                         "\"copies\":2,\"copied_bytes\":42}"));
    assert_true(contains(lord, MEMLORD_FORMAT_TEXT,
                         "\n       moves       bytes      copies       bytes  from, to\n"
                         "           0         0 B           2        42 B  cuda:1, cpu\n"
                         "           1       128 B           0         0 B  cpu, cuda:1\n"));
    (void)read_of(lord, MEMLORD_FORMAT_PROMETHEUS);
}

static void without_moves_and_copies_no_pair_is_told(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_copy(lord, cuda(1), cpu(), 30));
    memlord_reset(lord);
    assert_false(contains(lord, MEMLORD_FORMAT_PROMETHEUS, "memlord_pair_"));
    assert_false(contains(lord, MEMLORD_FORMAT_TEXT, "from, to"));
    assert_true(contains(lord, MEMLORD_FORMAT_JSON, "\"moves\":[]"));
}

static void tags_and_what_has_none_add_up_to_a_device(void **state) {
    memlord *lord = test_lord(state);
    fill(lord);
    assert_ok(memlord_expect(lord, cuda(1), "weights", 5000));
    assert_true(contains(lord, MEMLORD_FORMAT_PROMETHEUS,
                         "\nmemlord_tag_bytes{device=\"cuda:1\",tag=\"weights\"} 1000\n"));
    assert_true(contains(lord, MEMLORD_FORMAT_PROMETHEUS,
                         "\nmemlord_tag_bytes{device=\"cuda:1\",tag=\"\"} 300\n"));
    assert_true(contains(lord, MEMLORD_FORMAT_PROMETHEUS,
                         "\nmemlord_tag_expected_bytes{device=\"cuda:1\",tag=\"weights\"} 5000\n"));
    assert_true(contains(lord, MEMLORD_FORMAT_PROMETHEUS,
                         "\nmemlord_tag_variance_bytes{device=\"cuda:1\",tag=\"weights\"} "
                         "-4000\n"));
}

/* A server refuses a sample with a label twice, and a name that is none. */
static void labels_of_the_ledger_are_in_every_sample(void **state) {
    memlord *lord = test_lord(state);
    test_text text;
    char *line;
    fill(lord);
    assert_ok(memlord_copy(lord, cuda(1), cpu(), 30));
    assert_ok(memlord_labels_set(lord, "rank=0, host_a=a \"\\\xff,device=x,rank=1,9a=1,__x=1,=3,a"
                                       ",,model=\xc3\xa9=1,version=2,a-b=1"));
    (void)read_of(lord, MEMLORD_FORMAT_PROMETHEUS);
    text = written(lord, MEMLORD_FORMAT_PROMETHEUS);
    for (line = strtok(text.data, "\n"); line; line = strtok(NULL, "\n"))
        assert_true(*line == '#' || strstr(line, "rank=\"0\",host_a=\"a \\\"\\\\\xef\xbf\xbd"
                                                 "ff\",model=\"\xc3\xa9=1\"} "));
    free(text.data);
    assert_true(contains(lord, MEMLORD_FORMAT_PROMETHEUS, "{from=\"cuda:1\",to=\"cpu\",rank=\"0\","));
    assert_true(contains(lord, MEMLORD_FORMAT_PROMETHEUS, "\nmemlord_own_bytes{rank=\"0\","));
}

static void labels_beyond_a_thousand_bytes_are_left_out(void **state) {
    memlord *lord = test_lord(state);
    char labels[3000];
    memset(labels, 'x', sizeof labels);
    memcpy(labels, "a=1,b=", 6);
    strcpy(labels + sizeof labels - 5, ",c=3");
    assert_ok(memlord_labels_set(lord, labels));
    assert_true(contains(lord, MEMLORD_FORMAT_PROMETHEUS, "\nmemlord_own_bytes{a=\"1\",c=\"3\"} "));
    labels[0] = '=';
    assert_ok(memlord_labels_set(lord, labels + 6));
    assert_true(contains(lord, MEMLORD_FORMAT_PROMETHEUS, "\nmemlord_own_bytes{c=\"3\"} "));
    (void)read_of(lord, MEMLORD_FORMAT_PROMETHEUS);
}

static void scopes_are_metrics(void **state) {
    memlord *lord = test_lord(state);
    fill(lord);
    assert_ok(memlord_scope_begin(lord, "shrink"));
    assert_ok(memlord_free(lord, cuda(1), 0x1000, NULL));
    assert_ok(memlord_scope_end(lord));
    assert_true(contains(lord, MEMLORD_FORMAT_PROMETHEUS,
                         "\nmemlord_scope_invocations_total{scope=\"forward\"} 1\n"));
    assert_true(contains(lord, MEMLORD_FORMAT_PROMETHEUS,
                         "\nmemlord_scope_peak_bytes{scope=\"forward\"} 5000\n"));
    assert_true(contains(lord, MEMLORD_FORMAT_PROMETHEUS,
                         "\nmemlord_scope_delta_bytes{scope=\"shrink\"} -1000\n"));
    (void)read_of(lord, MEMLORD_FORMAT_PROMETHEUS);
}

/* Two samples of one series are an error to who scrapes them, two equal keys to who reads JSON:
   bytes that are not UTF-8, what they are written as, and what that is written as. */
static void names_that_differ_in_bad_bytes_stay_apart(void **state) {
#define BAD "\xef\xbf\xbd"
    static const char *const odd[][2] = {{"a\xff", "a" BAD "ff"},   {"a\xfe", "a" BAD "fe"},
                                         {"a" BAD, "a" BAD "ef" BAD "bf" BAD "bd"},
                                         {"a" BAD "ff", "a" BAD "ef" BAD "bf" BAD "bdff"},
                                         {"a?", "a?"},              {"a\\xff", NULL}};
#undef BAD
    memlord *lord = test_lord(state);
    int i, k;
    for (i = 0; i < 6; i++) {
        assert_ok(memlord_tag_begin(lord, odd[i][0]));
        assert_ok(memlord_scope_begin(lord, odd[i][0]));
        assert_ok(memlord_alloc(lord, cpu(), (uint64_t)0x1000 * (unsigned)(i + 1), 1, NULL));
        assert_ok(memlord_scope_end(lord));
        assert_ok(memlord_tag_end(lord));
    }
    for (i = 0; odd[i][1]; i++)
        for (k = 0; k < MEMLORD_FORMAT_FOLDED_PEAK; k++) { /* the others have no tags */
            test_text text = written(lord, (memlord_format)k);
            if (!count_of(&text, odd[i][1])) fail_msg("%s has no %s", names[k], odd[i][1]);
            free(text.data);
        }
    read_all(lord);
}

static void samples_of_a_profile_are_the_statistics(void **state) {
    memlord *lord = test_lord(state);
    memlord_stats s;
    reading r;
    fill(lord);
    r = read_of(lord, MEMLORD_FORMAT_PPROF);
    s = stats_of(lord, all());
    assert_int_equal(r.value[0], s.allocs);
    assert_int_equal(r.value[1], s.total_allocated);
    assert_int_equal(r.value[2], s.live_blocks);
    assert_int_equal(r.value[3], s.allocated);
}

/* The holders of a peak are noted when it has risen by a sixteenth: here at 120. */
static void a_profile_has_the_bytes_of_the_peak(void **state) {
    memlord *lord = test_lord(state);
    reading r;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 120, NULL));
    assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 7, NULL));
    r = read_of(lord, MEMLORD_FORMAT_PPROF);
    assert_int_equal(r.value[3], 7);
    assert_int_equal(r.value[4], 120);
}

static void heaptrack_ends_with_what_is_live_and_peaks_with_the_peak(void **state) {
    memlord *lord = test_lord(state);
    reading r;
    fill(lord);
    r = read_of(lord, MEMLORD_FORMAT_HEAPTRACK);
    assert_int_equal(r.bytes, memlord_allocated(lord, all()));
    assert_int_equal(r.peak, memlord_peak(lord, all()));
    memlord_peak_reset(lord, all());
    r = read_of(lord, MEMLORD_FORMAT_HEAPTRACK);
    assert_int_equal(r.peak, 1427);
    assert_int_equal(r.bytes, 1427);
}

static void heaptrack_has_the_calls_of_the_ledger_and_none_is_temporary(void **state) {
    memlord *lord = test_lord(state);
    reading r;
    fill(lord);
    r = read_of(lord, MEMLORD_FORMAT_HEAPTRACK);
    assert_int_equal(r.value[0], 4);
    assert_int_equal(r.value[1], 0);
    memlord_reset(lord); /* three blocks are older than the reset, one is not */
    assert_ok(memlord_alloc(lord, cpu(), 0x5000, 3, &load_site));
    r = read_of(lord, MEMLORD_FORMAT_HEAPTRACK);
    assert_int_equal(r.value[0], 1);
    assert_int_equal(r.bytes, 1430);
    assert_int_equal(r.peak, 1430);
}

static void heaptrack_has_bytes_of_an_arena_without_a_call(void **state) {
    memlord *lord = test_lord(state);
    reading r;
    assert_ok(memlord_arena_add(lord, cpu(), 5000, &load_site));
    r = read_of(lord, MEMLORD_FORMAT_HEAPTRACK);
    assert_int_equal(r.value[0], 0);
    assert_int_equal(r.bytes, 5000);
}

/* The sum of the samples of a metric. */
static uint64_t metric(memlord *lord, const char *name) {
    test_text text = written(lord, MEMLORD_FORMAT_PROMETHEUS);
    const char *s = text.data;
    uint64_t sum = 0;
    for (; *s; s = line_end(s) + (*line_end(s) != 0))
        if (!strncmp(s, name, strlen(name)) && s[strlen(name)] == '{')
            sum += strtoull(s + strcspn(s, " "), NULL, 10);
    free(text.data);
    return sum;
}
/* The value of one series, or UINT64_MAX. */
static uint64_t series(memlord *lord, const char *name) {
    test_text text = written(lord, MEMLORD_FORMAT_PROMETHEUS);
    const char *at = strstr(text.data, name);
    uint64_t value = at ? strtoull(at + strlen(name), NULL, 10) : UINT64_MAX;
    free(text.data);
    return value;
}
static void alloc_tagged(memlord *lord, uint64_t i) {
    char name[32];
    snprintf(name, sizeof name, "tag%d", (int)i);
    assert_ok(memlord_tag_begin(lord, name));
    assert_ok(memlord_alloc(lord, cuda(1), 0x10000 + i, 1000 + i, &load_site));
    assert_ok(memlord_tag_end(lord));
}
static void tags_beyond_the_first_hundred_are_one_series(void **state) {
    memlord *lord = test_lord(state);
    test_text text;
    uint64_t i;
    assert_ok(memlord_alloc(lord, cuda(1), 0x1000, 7, NULL));
    for (i = 0; i < 100; i++) alloc_tagged(lord, i);
    assert_false(contains(lord, MEMLORD_FORMAT_PROMETHEUS, "rest="));
    for (; i < 150; i++) alloc_tagged(lord, i);
    text = written(lord, MEMLORD_FORMAT_PROMETHEUS);
    assert_int_equal(count_of(&text, "memlord_tag_bytes{"), 102); /* with the untagged bytes */
    assert_int_equal(count_of(&text, "memlord_tag_peak_bytes{"), 101);
    free(text.data);
    assert_int_equal(series(lord, "\nmemlord_tag_bytes{device=\"cuda:1\",tag=\"tag99\"} "), 1099);
    assert_int_equal(series(lord, "\nmemlord_tag_bytes{device=\"cuda:1\",tag=\"tag100\"} "),
                     UINT64_MAX);
    assert_int_equal(
        series(lord, "\nmemlord_tag_bytes{device=\"cuda:1\",tag=\"\",rest=\"1\"} "),
        50 * 1100 + 49 * 50 / 2);
    assert_int_equal(series(lord, "\nmemlord_tag_bytes{device=\"cuda:1\",tag=\"\"} "), 7);
    assert_int_equal(metric(lord, "memlord_tag_bytes"), stats_of(lord, all()).allocated);
    assert_int_equal(metric(lord, "memlord_tag_blocks"), 150);
    (void)read_of(lord, MEMLORD_FORMAT_PROMETHEUS);
}
static void each_device_has_a_hundred_tags(void **state) {
    memlord *lord = test_lord(state);
    uint64_t i;
    for (i = 0; i < 101; i++) alloc_tagged(lord, i);
    assert_ok(memlord_tag_begin(lord, "tag100"));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 5, NULL));
    assert_ok(memlord_tag_end(lord));
    assert_int_equal(series(lord, "\nmemlord_tag_bytes{device=\"cpu\",tag=\"tag100\"} "), 5);
    assert_int_equal(
        series(lord, "\nmemlord_tag_bytes{device=\"cuda:1\",tag=\"\",rest=\"1\"} "), 1100);
}
static void run_scope(memlord *lord, int i) {
    char name[32];
    snprintf(name, sizeof name, "scope%d", i);
    assert_ok(memlord_scope_begin(lord, name));
    assert_ok(memlord_scope_end(lord));
}
/* A counter that fell would count as started over. */
static void new_scopes_take_no_series_from_older_ones(void **state) {
    static const char first[] = "\nmemlord_scope_invocations_total{scope=\"scope99\"} ",
                      rest[] = "\nmemlord_scope_invocations_total{scope=\"\",rest=\"1\"} ";
    memlord *lord = test_lord(state);
    int i;
    for (i = 0; i < 120; i++) run_scope(lord, i);
    assert_int_equal(series(lord, first), 1);
    assert_int_equal(series(lord, rest), 20);
    for (i = 0; i < 300; i++) run_scope(lord, 200 + i % 30);
    assert_int_equal(series(lord, first), 1);
    assert_int_equal(series(lord, rest), 320);
    assert_int_equal(metric(lord, "memlord_scope_invocations_total"), 420);
}
static void the_number_of_allocs_is_the_same_in_every_format(void **state) {
    memlord *lord = test_lord(state);
    test_text json;
    char path[64];
    uint64_t allocs, sites = 0;
    int i;
    fill(lord);
    for (i = 0; i < 1000; i++) {
        assert_ok(memlord_alloc(lord, cpu(), 0x6000, (uint64_t)i, &step_site));
        assert_ok(memlord_realloc(lord, cpu(), 0x6000, 0x7000, 2 * (uint64_t)i, &load_site));
        if (i % 3) assert_ok(memlord_free(lord, cpu(), 0x7000, &load_site));
        if (i % 7 == 0) assert_ok(memlord_arena_add(lord, cpu(), 10, &step_site));
        if (i % 5 == 0) assert_ok(memlord_arena_sub(lord, cpu(), 5, &step_site));
    }
    assert_ok(memlord_move(lord, cpu(), 0x1000, cuda(0), 0x1000, 77, NULL, &load_site));
    allocs = stats_of(lord, all()).allocs;
    json = written(lord, MEMLORD_FORMAT_JSON);
    assert_int_equal(json_u64(json.data, "total.allocs"), allocs);
    for (i = 0; i < 8; i++) {
        snprintf(path, sizeof path, "sites[%d].allocs", i);
        if (json_u64(json.data, path) != UINT64_MAX) sites += json_u64(json.data, path);
    }
    free(json.data);
    assert_int_equal(sites, allocs - 1); /* one alloc has no site */
    assert_int_equal(metric(lord, "memlord_allocs_total"), allocs);
    assert_int_equal(read_of(lord, MEMLORD_FORMAT_PPROF).value[0], allocs);
    assert_int_equal(read_of(lord, MEMLORD_FORMAT_HEAPTRACK).value[0], allocs);
}

static void more_pieces_than_heaptrack_gets_are_fewer_of_each(void **state) {
    static const memlord_site rare_site = {"src/rare.c", "rare", 30};
    memlord *lord = test_lord(state);
    test_text text;
    uint64_t i;
    for (i = 0; i <= 1300000; i++) { /* one of the last site, which stays one */
        assert_ok(memlord_alloc(lord, cpu(), 0x1000, 64,
                                i == 1300000 ? &rare_site : i % 4 ? &load_site : &step_site));
        assert_ok(memlord_free(lord, cpu(), 0x1000, NULL));
    }
    text = written(lord, MEMLORD_FORMAT_HEAPTRACK);
    assert_true(text.size < (size_t)14 << 20);
    assert_int_equal(count_of(&text, "# calls: 1048575 of 1300001\n"), 1);
    free(text.data);
    assert_int_equal(read_of(lord, MEMLORD_FORMAT_HEAPTRACK).peak, 64);
}

static void stacks_are_device_tag_scope_and_site(void **state) {
    memlord *lord = test_lord(state);
    fill(lord);
    assert_true(contains(lord, MEMLORD_FORMAT_FOLDED,
                         "cuda:1;weights;forward;load src/load.c:10 1000\n"));
    assert_true(contains(lord, MEMLORD_FORMAT_FOLDED, "cuda:1;step src/step.c:20 300\n"));
    assert_true(contains(lord, MEMLORD_FORMAT_FOLDED, "cpu;(unknown) 77\n"));
    assert_true(contains(lord, MEMLORD_FORMAT_FOLDED, "cpu;(arena) 50\n"));
    assert_ok(memlord_tag_begin(lord, "a;b\nc"));
    assert_ok(memlord_scope_begin(lord, "d;e"));
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 7, NULL));
    assert_true(contains(lord, MEMLORD_FORMAT_FOLDED,
                         "cpu;a:b\xef\xbf\xbd" "0ac;d:e;(unknown) 7\n"));
}

static void a_site_without_a_function_is_named_by_its_file(void **state) {
    static const memlord_format named[] = {MEMLORD_FORMAT_PPROF, MEMLORD_FORMAT_HEAPTRACK,
                                           MEMLORD_FORMAT_MEMORY_VIZ};
    static const memlord_site site = {"src/only.c", "", 7};
    memlord *lord = test_lord(state);
    size_t i;
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 1, &site));
    for (i = 0; i < sizeof named / sizeof *named; i++) {
        test_text text = written(lord, named[i]);
        assert_int_equal(count_of(&text, "src/only.c"), 2); /* a name and a file */
        free(text.data);
    }
}

static void sites_of_one_name_are_told_apart_by_file_and_line(void **state) {
    static const memlord_site sites[] = {{"a.c", "same", 2}, {"b.c", "same", 1}, {"a.c", "same", 1}};
    memlord *lord = test_lord(state);
    uint64_t i;
    for (i = 0; i < 3; i++)
        assert_ok(memlord_alloc(lord, cpu(), 64 * (i + 1), i + 1, &sites[i]));
    assert_true(contains(lord, MEMLORD_FORMAT_FOLDED, "cpu;same a.c:1 3\n"));
    assert_true(contains(lord, MEMLORD_FORMAT_FOLDED, "cpu;same a.c:2 1\n"));
    assert_true(contains(lord, MEMLORD_FORMAT_FOLDED, "cpu;same b.c:1 2\n"));
}

static void a_life_is_named_by_its_tag_its_function_or_as_a_block(void **state) {
    static const memlord_site no_function = {"only.c", "", 7};
    memlord *lord = test_lord(state);
    assert_ok(memlord_events_start(lord, 64));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 1, NULL));
    assert_ok(memlord_alloc(lord, cpu(), 0x2000, 1, &no_function));
    assert_ok(memlord_alloc(lord, cpu(), 0x3000, 1, &load_site));
    assert_ok(memlord_tag_begin(lord, "kv"));
    assert_ok(memlord_alloc(lord, cpu(), 0x4000, 1, &load_site));
    assert_ok(memlord_tag_end(lord));
    {
        test_text text = written(lord, MEMLORD_FORMAT_TRACE);
        assert_int_equal(count_of(&text, ",\"name\":\"block\",\"cat\":\"block\""), 4);
        assert_int_equal(count_of(&text, ",\"name\":\"load\",\"cat\":\"block\""), 2);
        assert_int_equal(count_of(&text, ",\"name\":\"kv\",\"cat\":\"block\""), 2);
        free(text.data);
    }
}

/* In a timeline, and in what PyTorch's viewer shows: 600 B are free when 700 B are wanted, and what
   is free of a device without a capacity is not known. */
static void collections_and_memory_that_ran_out_are_events(void **state) {
    test_case *t = (test_case *)*state;
    test_text text;
    t->gc.answer.reclaimed = 33;
    assert_ok(memlord_events_start(t->lord, 64));
    test_capacity(t, 1000, 400);
    assert_ok(memlord_gc_run(t->lord, cuda(0), MEMLORD_REASON_HOST, 0, NULL));
    assert_ok(memlord_alloc_failed(t->lord, cuda(0), 700, NULL));
    assert_ok(memlord_alloc_failed(t->lord, cuda(1), 800, NULL));
    text = written(t->lord, MEMLORD_FORMAT_TRACE);
#define INSTANT(name, bytes) \
    "\"name\":\"" name "\",\"args\":{\"bytes\":" bytes "},\"s\":\"p\",\"cat\":\"memory\"}"
    assert_int_equal(count_of(&text, INSTANT("cuda:0 gc", "33")), 1);
    assert_int_equal(count_of(&text, INSTANT("cuda:0 out of memory", "700")), 1);
    assert_int_equal(count_of(&text, INSTANT("cuda:1 out of memory", "800")), 1);
#undef INSTANT
    free(text.data);
    text = written(t->lord, MEMLORD_FORMAT_MEMORY_VIZ);
    assert_int_equal(count_of(&text, "device_free"), 1); /* the second time by its number */
    free(text.data);
    (void)read_of(t->lord, MEMLORD_FORMAT_TRACE);
    (void)read_of(t->lord, MEMLORD_FORMAT_MEMORY_VIZ);
}

static void a_table_has_a_line_a_block(void **state) {
    memlord *lord = test_lord(state);
    char field[CSV_FIELDS][256];
    test_text text;
    memlord_meta meta;
    const char *s;
    size_t n;
    memset(&meta, 0, sizeof meta);
    meta.name = "=1+\"1\",\n";
    meta.dtype = "f16";
    meta.shape[0] = -1;
    meta.shape[1] = 32;
    meta.rank = 2;
    assert_ok(memlord_alloc(lord, cuda(0), 0xabc, 1000, &load_site));
    assert_ok(memlord_block_describe(lord, cuda(0), 0xabc, &meta));
    text = written(lord, MEMLORD_FORMAT_CSV);
    s = csv_line(text.data, field, &n);
    assert_string_equal(field[8], "name");
    s = csv_line(s, field, &n);
    assert_string_equal(field[0], "cuda:0");
    assert_string_equal(field[1], "0xabc");
    assert_string_equal(field[2], "1000");
    assert_string_equal(field[8], "'=1+\"1\",\xef\xbf\xbd" "0a");
    assert_string_equal(field[10], "[-1,32]");
    assert_string_equal(field[12], "src/load.c");
    assert_string_equal(field[13], "10");
    assert_string_equal(field[14], "load");
    assert_string_equal(field[16], "");
    assert_string_equal(s, "");
    free(text.data);
}

static void anomalies_and_drops_are_in_every_format_that_has_a_place(void **state) {
    static const char line[] = "anomalies and drops, cuda:1 unknown_frees 2\n",
                      all[] = "anomalies and drops, all unknown_frees 2, "
                              "dropped_scope_invocations ";
    memlord *lord = test_lord(state);
    test_text text;
    int i;
    fill(lord);
    assert_false(contains(lord, MEMLORD_FORMAT_HEAPTRACK, "# anomalies"));
    for (i = 0; i < 2; i++)
        assert_int_equal(memlord_free(lord, cuda(1), 0x7777, NULL), MEMLORD_E_UNKNOWN);
    for (i = 0; i < 100; i++) { /* the last 64 are remembered */
        assert_ok(memlord_scope_begin(lord, "forward"));
        assert_ok(memlord_scope_end(lord));
    }
    read_all(lord);
    assert_true(contains(lord, MEMLORD_FORMAT_HEAPTRACK, line));
    assert_true(contains(lord, MEMLORD_FORMAT_HEAPTRACK, all));
    assert_true(contains(lord, MEMLORD_FORMAT_TRACE, "\"cuda:1\":{\"unknown_frees\":2}"));
    assert_true(contains(lord, MEMLORD_FORMAT_TRACE,
                         "\"all\":{\"unknown_frees\":2,\"dropped_scope_invocations\":"));
    assert_true(contains(lord, MEMLORD_FORMAT_PROMETHEUS, "\nmemlord_dropped_scopes_total 0\n"));
    assert_true(contains(lord, MEMLORD_FORMAT_PROMETHEUS, "\nmemlord_dropped_snapshots_total 0\n"));
    assert_true(contains(lord, MEMLORD_FORMAT_PROMETHEUS,
                         "\nmemlord_dropped_scope_invocations_total "));
    text = written(lord, MEMLORD_FORMAT_PPROF);
    assert_int_equal(count_of(&text, all), 1);
    assert_int_equal(count_of(&text, "anomalies and drops, cuda:1 unknown_frees 2"), 1);
    free(text.data);
    text = written(lord, MEMLORD_FORMAT_MEMORY_VIZ);
    assert_int_equal(count_of(&text, "anomalies_and_drops"), 1);
    assert_int_equal(count_of(&text, "unknown_frees"), 2);
    assert_int_equal(count_of(&text, "dropped_scope_invocations"), 1);
    free(text.data);
}

static void who_held_the_peak_is_a_metric(void **state) {
    memlord *lord = test_lord(state);
    fill(lord);
    assert_true(contains(lord, MEMLORD_FORMAT_PROMETHEUS,
                         "\nmemlord_peak_holder_bytes{device=\"cuda:1\",tag=\"weights\"} 1000\n"
                         "memlord_peak_holder_bytes{device=\"cuda:1\",tag=\"\"} 4000\n"));
}

static void memory_viz_and_text_show_the_stream_of_a_block(void **state) {
    memlord *lord = test_lord(state);
    fill(lord);
    assert_int_equal(read_of(lord, MEMLORD_FORMAT_MEMORY_VIZ).streams, 0);
    assert_int_equal(memlord_stream_set(lord, UINT64_MAX), 0);
    assert_ok(memlord_alloc(lord, cuda(1), 0x900000, 10, NULL));
    (void)memlord_stream_set(lord, 0);
    assert_int_equal(read_of(lord, MEMLORD_FORMAT_MEMORY_VIZ).streams, 1 + 2); /* and 2 events */
    assert_true(contains(lord, MEMLORD_FORMAT_TEXT, " on stream 0xffffffffffffffff"));
    assert_true(contains(lord, MEMLORD_FORMAT_JSON, "\"stream\":\"0xffffffffffffffff\""));
}

/* 1000 = 600 with a name + 100 without one + 300 that are in no part. */
static void fill_parts(memlord *lord) {
    memlord_meta meta;
    fill(lord);
    memset(&meta, 0, sizeof meta);
    meta.name = "blk.0.attn_q";
    meta.tag = "q4_0";
    assert_ok(memlord_part_add(lord, cuda(1), 0x1000, 200, 600, &meta));
    assert_ok(memlord_part_add(lord, cuda(1), 0x1000, 0, 100, NULL));
}

static void parts_divide_their_block_and_add_nothing(void **state) {
    memlord *lord = test_lord(state);
    size_t i;
    fill_parts(lord);
    for (i = 0; i < FORMATS; i++) {
        reading r = read_of(lord, formats[i]);
        if (formats[i] == MEMLORD_FORMAT_TRACE) continue;
        assert_int_equal(r.bytes, formats[i] == MEMLORD_FORMAT_CSV ? 1427 - 50 : 1427);
        if (formats[i] == MEMLORD_FORMAT_PPROF) assert_int_equal(r.value[2], 3);
        if (formats[i] == MEMLORD_FORMAT_CSV) assert_int_equal(r.rows, 1 + 3 + 2);
    }
    assert_true(contains(lord, MEMLORD_FORMAT_FOLDED,
                         "cuda:1;weights;forward;load src/load.c:10;blk.0.attn_q 600\n"));
    assert_true(contains(lord, MEMLORD_FORMAT_FOLDED, "src/load.c:10;(part) 100\n"));
    assert_true(contains(lord, MEMLORD_FORMAT_FOLDED, "src/load.c:10 300\n"));
    assert_true(contains(lord, MEMLORD_FORMAT_CSV,
                         "\r\ncuda:1,0x1000,0,0,0,0,\"q4_0\",\"forward\",\"blk.0.attn_q\",,,0,"
                         "\"src/load.c\",10,\"load\",200,600,\r\n"));
    assert_true(contains(lord, MEMLORD_FORMAT_TRACE,
                         "\"parts\":{\"count\":2,\"bytes\":700,\"listed\":["));
}

static void parts_are_in_what_has_no_lines(void **state) {
    memlord *lord = test_lord(state);
    test_text text;
    fill_parts(lord);
    text = written(lord, MEMLORD_FORMAT_PPROF);
    assert_int_equal(count_of(&text, "blk.0.attn_q"), 1);
    assert_int_equal(count_of(&text, "(part)"), 1);
    free(text.data);
    text = written(lord, MEMLORD_FORMAT_MEMORY_VIZ);
    assert_int_equal(count_of(&text, "blk.0.attn_q"), 1);
    free(text.data);
}

/* A frame would hide the owner of the bytes in a flat view. */
static void a_part_is_a_label_of_a_profile_and_no_frame(void **state) {
    memlord *lord = test_lord(state);
    uint64_t locations;
    test_text text;
    fill(lord);
    locations = read_of(lord, MEMLORD_FORMAT_PPROF).rows;
    assert_ok(memlord_part_add(lord, cuda(1), 0x1000, 200, 600, NULL));
    assert_int_equal(read_of(lord, MEMLORD_FORMAT_PPROF).rows, locations);
    text = written(lord, MEMLORD_FORMAT_PPROF);
    assert_int_equal(count_of(&text, "\x32\x04part"), 1); /* a string: the key of the label */
    free(text.data);
}

static void a_timeline_has_lives_scopes_levels_and_checkpoints(void **state) {
    memlord *lord = test_lord(state);
    test_text text;
    fill(lord);
    text = written(lord, MEMLORD_FORMAT_TRACE);
    assert_int_equal(count_of(&text, "{\"ph\":\"b\""), 4);
    assert_int_equal(count_of(&text, "{\"ph\":\"n\""), 1);
    assert_int_equal(count_of(&text, "{\"ph\":\"B\""), 1);
    assert_int_equal(count_of(&text, "\"name\":\"loaded\",\"s\":\"g\""), 1);
    assert_true(count_of(&text, "\"name\":\"cuda:1 live\",\"args\":"
                                "{\"(untagged)\":300,\"weights\":1000}"));
    assert_true(count_of(&text, "\"id\":\"cuda 0x1000\""));
    free(text.data);
}

static void without_events_a_timeline_has_what_scopes_remember(void **state) {
    memlord *lord = test_lord(state);
    test_text text;
    assert_ok(memlord_scope_begin(lord, "forward"));
    assert_ok(memlord_alloc(lord, cpu(), 0x1000, 100, NULL));
    assert_ok(memlord_scope_end(lord));
    text = written(lord, MEMLORD_FORMAT_TRACE);
    assert_int_equal(count_of(&text, "{\"ph\":\"X\""), 1);
    assert_int_equal(count_of(&text, "\"path\":\"forward\",\"delta_bytes\":100"), 1);
    free(text.data);
}

/* Microseconds since the creation. "first" runs from 2 to 7 ms; "open" begins at 8 ms and runs on
   when the report is written, at 10 ms. */
static void a_timeline_tells_when_scopes_begin_and_end(void **state) {
    test_case *t = (test_case *)*state;
    test_text text;
    assert_ok(memlord_events_start(t->lord, 64));
    t->now += 2000000;
    assert_ok(memlord_scope_begin(t->lord, "first"));
    t->now += 5000000;
    assert_ok(memlord_scope_end(t->lord));
    t->now += 1000000;
    assert_ok(memlord_scope_begin(t->lord, "open"));
    t->now += 2000000;
    text = written(t->lord, MEMLORD_FORMAT_TRACE);
    assert_int_equal(count_of(&text, "{\"ph\":\"B\""), 2);
    assert_int_equal(count_of(&text, "{\"ph\":\"E\""), 2);
    assert_int_equal(count_of(&text, "\"ts\":2000.000,\"name\":\"first\""), 1);
    assert_int_equal(count_of(&text, "\"ts\":7000.000,\"name\":"), 1);
    assert_int_equal(count_of(&text, "\"ts\":8000.000,\"name\":\"open\""), 1);
    assert_int_equal(count_of(&text, "\"ts\":10000.000,\"name\":"), 1);
    free(text.data);
    assert_ok(memlord_scope_end(t->lord));
}

static void a_timeline_without_events_tells_how_long_scopes_took(void **state) {
    test_case *t = (test_case *)*state;
    test_text text;
    t->now += 2000000;
    assert_ok(memlord_scope_begin(t->lord, "forward"));
    t->now += 5000000;
    assert_ok(memlord_scope_end(t->lord));
    text = written(t->lord, MEMLORD_FORMAT_TRACE);
    assert_int_equal(
        count_of(&text, "\"ts\":2000.000,\"name\":\"forward\",\"dur\":5000.000,"), 1);
    free(text.data);
}

static void numbers_of_32_bits_have_no_sign(void **state) {
    memlord *lord = test_lord(state);
    assert_ok(memlord_alloc(lord, cuda(0), 0xfffffff0u, (uint64_t)3 << 30, NULL));
    assert_int_equal(read_of(lord, MEMLORD_FORMAT_MEMORY_VIZ).bytes, (uint64_t)3 << 30);
}

/* The ring ends with its free; that it was born again since is not in the traces. */
static int revive(void *user, const void *data, size_t size) {
    memlord *lord = (memlord *)user;
    (void)data;
    (void)size;
    return memlord_alloc(lord, cuda(1), 0x9000, 4000, NULL) != MEMLORD_OK;
}
static memlord *reviving;
static int keep_and_revive(void *user, const void *data, size_t size) {
    return revive(reviving, data, size) || test_text_write(user, data, size);
}
static void segments_are_of_the_moment_that_traces_end(void **state) {
    memlord *lord = test_lord(state);
    uint64_t i;
    reading r;
    test_text text;
    for (i = 0; i < 2000; i++) /* so that some is written before blocks are looked at */
        assert_ok(memlord_alloc(lord, cuda(1), 0x100000 + i * 64, 1, NULL));
    fill(lord);
    reviving = lord;
    memset(&text, 0, sizeof text);
    assert_ok(memlord_write(lord, MEMLORD_FORMAT_MEMORY_VIZ, keep_and_revive, &text));
    read_format(MEMLORD_FORMAT_MEMORY_VIZ, &text, &r);
    free(text.data);
    assert_null(r.bad);
    assert_int_equal(r.bytes, 2000 + 1427);
}

static void csv_has_the_stream_of_a_block_and_of_its_parts(void **state) {
    memlord *lord = test_lord(state);
    (void)memlord_stream_set(lord, 0xabc);
    assert_ok(memlord_alloc(lord, cuda(1), 0x1000, 10, NULL));
    (void)memlord_stream_set(lord, 0);
    assert_ok(memlord_alloc(lord, cuda(1), 0x2000, 10, NULL));
    assert_true(contains(lord, MEMLORD_FORMAT_CSV, ",part_offset,part_bytes,stream\r\n"));
    assert_ok(memlord_part_add(lord, cuda(1), 0x1000, 0, 4, NULL));
    assert_true(contains(lord, MEMLORD_FORMAT_CSV, "cuda:1,0x1000,0,0,0,0,,,,,,0,,0,,0,4,0xabc\r\n"));
    assert_true(contains(lord, MEMLORD_FORMAT_CSV, "cuda:1,0x1000,10,1,0,0,,,,,,0,,0,,,,0xabc\r\n"));
    assert_true(contains(lord, MEMLORD_FORMAT_CSV, "cuda:1,0x2000,10,1,0,0,,,,,,0,,0,,,,\r\n"));
}

static void arena_under(memlord *lord, const char *tag, uint64_t bytes) {
    assert_ok(memlord_tag_begin(lord, tag));
    assert_ok(memlord_arena_add(lord, cuda(1), bytes, NULL));
    assert_ok(memlord_tag_end(lord));
}
/* The first tags fill the buffer of the report, so that the arena of the last one grows after the arena
   of the device was read. */
static int keep_and_grow(void *user, const void *data, size_t size) {
    arena_under(reviving, "tag_99", 5000);
    return test_text_write(user, data, size);
}
static void arenas_have_no_more_than_their_device_had(void **state) {
    memlord *lord = test_lord(state);
    char tag[16];
    reading r;
    test_text text;
    int i;
    for (i = 0; i < 100; i++) {
        snprintf(tag, sizeof tag, "tag_%d", i);
        arena_under(lord, tag, 10);
    }
    reviving = lord;
    memset(&text, 0, sizeof text);
    assert_ok(memlord_write(lord, MEMLORD_FORMAT_MEMORY_VIZ, keep_and_grow, &text));
    read_format(MEMLORD_FORMAT_MEMORY_VIZ, &text, &r);
    free(text.data);
    assert_null(r.bad);
    assert_int_equal(r.bytes, 1000);
}

static void a_pending_block_is_one_a_viewer_shows_as_such(void **state) {
    memlord *lord = test_lord(state);
    test_text text;
    fill(lord);
    text = written(lord, MEMLORD_FORMAT_MEMORY_VIZ);
    assert_int_equal(count_of(&text, "active_pending_free"), 1);
    assert_int_equal(count_of(&text, "free_completed"), 1); /* words come once */
    assert_int_equal(read_of(lord, MEMLORD_FORMAT_MEMORY_VIZ).rows, 4);
    free(text.data);
}

/* -- what is odd -- */

static void an_empty_ledger_is_read(void **state) {
    memlord *lord = test_lord(state);
    size_t i;
    for (i = 0; i < FORMATS; i++) assert_int_equal(read_of(lord, formats[i]).bytes, 0);
}

static int refuse(void *user, const void *data, size_t size) {
    (void)user;
    (void)data;
    (void)size;
    return 1;
}

static void no_ledger_writes_nothing(void **state) {
    size_t i;
    (void)state;
    for (i = 0; i < FORMATS; i++) assert_ok(memlord_write(NULL, formats[i], refuse, NULL));
}

typedef struct limited {
    size_t left; /* calls that succeed */
    size_t after;
    size_t calls;
} limited;
static int fail_later(void *user, const void *data, size_t size) {
    limited *l = (limited *)user;
    (void)data;
    (void)size;
    if (l->calls++ < l->left) return 0;
    l->after++;
    return -1;
}

/* Pieces go out when 2 KiB are full: names of every length up to that move the cuts to any byte. */
static void a_write_that_fails_anywhere_is_an_error_and_the_last(void **state) {
    memlord *lord = test_lord(state);
    char name[256];
    size_t i, n;
    uint64_t k;
    fill(lord);
    for (k = 0; k < 60; k++) {
        memset(name, 'x', sizeof name);
        name[(k * 37) % 200] = 0;
        assert_ok(memlord_tag_begin(lord, name[0] ? name : "x"));
        assert_ok(memlord_alloc(lord, cuda((int)(k % 3)), 0x100000 + k * 4096, k, &load_site));
        assert_ok(memlord_tag_end(lord));
    }
    for (i = 0; i < FORMATS; i++)
        for (n = 0;; n++) {
            limited l = {0, 0, 0};
            l.left = n;
            if (memlord_write(lord, formats[i], fail_later, &l) == MEMLORD_OK) {
                assert_true(n > 0 && l.after == 0);
                break;
            }
            assert_int_equal(memlord_write(lord, formats[i], fail_later, &l), MEMLORD_E_IO);
            assert_int_equal(l.after, 2); /* once a write */
        }
}

static void without_memory_a_format_is_an_error_and_nothing_is_kept(void **state) {
    test_case *t = (test_case *)*state;
    reading whole[FORMATS];
    /* shards of more than a region holds; fewer where a sanitizer takes minutes */
    const uint64_t blocks = test_env("MEMLORD_TEST_SCALE", 4) > 1 ? 200000 : 20000;
    size_t i;
    uint64_t n;
    for (n = 0; n < blocks; n++)
        assert_ok(memlord_alloc(t->lord, cuda(0), 0x1000000 + n * 64, n % 100, &load_site));
    fill(t->lord);
    for (i = 0; i < FORMATS; i++) whole[i] = read_of(t->lord, formats[i]);
    for (i = 0; i < FORMATS; i++)
        for (n = 1;; n++) {
            test_text text;
            memlord_result r;
            uint64_t failed = t->heap.failed;
            memset(&text, 0, sizeof text);
            t->heap.fail_at = t->heap.calls + n;
            t->heap.fail_from = 1;
            r = memlord_write(t->lord, formats[i], test_text_write, &text);
            t->heap.fail_at = 0;
            assert_true(r == MEMLORD_OK || r == MEMLORD_E_NOMEM);
            if (r == MEMLORD_OK) { /* then nothing is left out */
                reading found;
                read_format(formats[i], &text, &found);
                assert_null(found.bad);
                assert_int_equal(found.bytes, whole[i].bytes);
            }
            free(text.data);
            if (t->heap.failed == failed) break;
        }
    read_all(t->lord);
}

static const char *const hostile[] = {
    "quotes \" and ' and \\ and \\\"", "controls \x01\x02\x1b[31m\x7f\t\r\n\b\f",
    "bad utf-8 \xff\xfe \xc0\x80 \xed\xa0\x80 \xf5\x80\x80\x80 cut \xe2\x82",
    "line separators \xe2\x80\xa8 and \xe2\x80\xa9", "%n%s%n%s%x%99999999d",
    "</script><img src=x onerror=alert(1)>", ";;;", " ", "=cmd|' /C calc'!A0", "+1", "-1", "@x",
    "# HELP x\n# TYPE x counter\nx{a=\"b\"} 1\n", "a,b\r\nc,d", "s 1\nt 1 1\n", "1 2 3", "\n", "'"};
#define HOSTILE (sizeof hostile / sizeof hostile[0])

/* One name in every field there is. */
static void name_all(memlord *lord, memlord_site *site, uint64_t key, const char *name) {
    memlord_device device = cuda((int)(key % 7));
    memlord_meta meta;
    memset(&meta, 0, sizeof meta);
    meta.name = meta.dtype = name;
    site->file = site->function = name;
    site->line = (int)key;
    (void)memlord_scope_begin(lord, name);
    (void)memlord_tag_begin(lord, name);
    assert_ok(memlord_alloc(lord, device, 0x1000 + key * 64, 100 + key, site));
    assert_ok(memlord_tag_end(lord));
    (void)memlord_scope_shapes_set(lord, name);
    (void)memlord_scope_end(lord);
    assert_ok(memlord_block_describe(lord, device, 0x1000 + key * 64, &meta));
    assert_ok(memlord_device_label_set(lord, device, name));
    (void)memlord_checkpoint(lord, name);
}

static void hostile_names_are_only_names(void **state) {
    memlord *lord = test_lord(state);
    memlord_site sites[HOSTILE];
    size_t i;
    assert_ok(memlord_events_start(lord, 1024));
    for (i = 0; i < HOSTILE; i++) name_all(lord, &sites[i], i, hostile[i]);
    read_all(lord);
    assert_int_equal(read_of(lord, MEMLORD_FORMAT_CSV).rows, HOSTILE + 1);
    assert_int_equal(read_of(lord, MEMLORD_FORMAT_FOLDED).bytes, memlord_allocated(lord, all()));
    assert_int_equal(read_of(lord, MEMLORD_FORMAT_PPROF).bytes, memlord_allocated(lord, all()));
}

static void a_name_of_10_megabytes_is_survived(void **state) {
    memlord *lord = test_lord(state);
    memlord_site site;
    size_t n = (size_t)(TEST_SANITIZED ? 1 : 10) << 20;
    char *name = (char *)malloc(n + 1);
    assert_non_null(name);
    memset(name, '"', n);
    name[n] = 0;
    assert_ok(memlord_events_start(lord, 64));
    name_all(lord, &site, 1, name);
    read_all(lord);
    free(name);
}

static void random_names_are_only_names(void **state) {
    memlord *lord = test_lord(state);
    static memlord_site sites[300];
    const char *given = getenv("MEMLORD_TEST_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL), x;
    size_t i, k;
    print_message("seed %llu\n", (unsigned long long)seed);
    x = seed * 2 + 1;
    assert_ok(memlord_events_start(lord, 2048));
    for (i = 0; i < 300; i++) {
        char name[64];
        size_t size = 1 + i % 40;
        for (k = 0; k < size; k++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            name[k] = (char)(x >> 33 & 255);
            if (!name[k]) name[k] = '"';
        }
        name[size] = 0;
        name_all(lord, &sites[i], i, name);
        if (i % 50 == 49) read_all(lord);
    }
    /* more than a writer has groups for: some come more than once */
    assert_int_equal(read_of(lord, MEMLORD_FORMAT_FOLDED).bytes, memlord_allocated(lord, all()));
    assert_int_equal(read_of(lord, MEMLORD_FORMAT_PPROF).bytes, memlord_allocated(lord, all()));
}

static void a_locale_with_a_comma_changes_nothing(void **state) {
    memlord *lord = test_lord(state);
    size_t i;
    fill(lord);
    TEST_COMMA();
    read_all(lord);
    for (i = 0; i < FORMATS; i++)
        if (formats[i] != MEMLORD_FORMAT_TRACE && formats[i] != MEMLORD_FORMAT_CSV &&
            formats[i] != MEMLORD_FORMAT_PPROF && formats[i] != MEMLORD_FORMAT_MEMORY_VIZ &&
            formats[i] != MEMLORD_FORMAT_PROMETHEUS)
            assert_false(has_a_decimal_comma(lord, formats[i]));
    setlocale(LC_ALL, "C");
}

static void the_largest_of_everything_is_read(void **state) {
    memlord *lord = test_lord(state);
    int i;
    assert_ok(memlord_events_start(lord, 4096));
    for (i = 0; i < 128; i++) {
        assert_ok(memlord_alloc(lord, cuda(250 * i), UINT64_MAX - 1 - (uint64_t)i, TEST_MAX_BYTES,
                                i % 2 ? &load_site : NULL));
        assert_ok(memlord_alloc(lord, cuda(250 * i), 5 + (uint64_t)i, 0, NULL));
    }
    assert_int_equal(memlord_alloc(lord, cpu(), 1, 1, NULL), MEMLORD_E_DEVICE);
    read_all(lord);
    assert_int_equal(read_of(lord, MEMLORD_FORMAT_PPROF).bytes, 128 * TEST_MAX_BYTES);
    assert_int_equal(read_of(lord, MEMLORD_FORMAT_MEMORY_VIZ).bytes, 128 * TEST_MAX_BYTES);
    assert_int_equal(read_of(lord, MEMLORD_FORMAT_HEAPTRACK).bytes, 128 * TEST_MAX_BYTES);
    assert_int_equal(read_of(lord, MEMLORD_FORMAT_MEMORY_VIZ).rows, 128);
}

/* Counts the begins of lives in a timeline; an event is in one piece or in two. */
typedef struct lives {
    uint64_t begins;
    size_t matched; /* bytes of `begin` that the last piece ended in */
} lives;
static int count_lives(void *user, const void *data, size_t size) {
    static const char begin[] = "{\"ph\":\"b\"";
    lives *l = (lives *)user;
    const char *at = (const char *)data;
    size_t i;
    for (i = 0; i < size; i++) {
        l->matched = at[i] == begin[l->matched] ? l->matched + 1 : at[i] == begin[0];
        if (begin[l->matched]) continue;
        l->begins++;
        l->matched = 0;
    }
    return 0;
}
static void a_timeline_has_room_for_so_many_storages_and_leaves_out_the_rest(void **state) {
    const uint64_t room = (uint64_t)7 << 17; /* 7/8 of 2^20 slots */
    memlord *lord = test_lord(state);
    lives found = {0, 0};
    uint64_t i;
    if (TEST_SANITIZED) skip();
    assert_ok(memlord_events_start(lord, (size_t)1 << 20));
    for (i = 1; i <= room + 1000; i++) assert_ok(memlord_alloc(lord, cuda(0), i * 64, 1, NULL));
    assert_ok(memlord_write(lord, MEMLORD_FORMAT_TRACE, count_lives, &found));
    assert_int_equal(found.begins, room);
}

/* -- while others work -- */

typedef struct worker {
    memlord *lord;
    uint64_t base;
    int *stop;
} worker;
static void *work(void *user) {
    worker *w = (worker *)user;
    static const char *const tags[] = {"a", "b", "c", "d", "e"};
    uint64_t i = 0;
    while (!__atomic_load_n(w->stop, __ATOMIC_RELAXED)) {
        uint64_t key = w->base + i % 64 * 4096;
        (void)memlord_scope_begin(w->lord, tags[i / 3 % 5]);
        (void)memlord_tag_begin(w->lord, tags[i % 5]);
        (void)memlord_alloc(w->lord, cuda((int)(i % 3)), key, 1 + i % 5000,
                            i % 2 ? &load_site : &step_site);
        (void)memlord_tag_end(w->lord);
        if (i % 3) (void)memlord_free(w->lord, cuda(0), key, &step_site);
        (void)memlord_scope_end(w->lord);
        i++;
    }
    return NULL;
}

static void what_is_written_while_threads_work_is_in_itself_right(void **state) {
    memlord *lord = test_lord(state);
    pthread_t threads[8];
    worker workers[8];
    int stop = 0, round;
    size_t i;
    const char *scale = getenv("MEMLORD_TEST_SCALE");
    int rounds = 2 * (scale ? atoi(scale) : 1);
    assert_ok(memlord_events_start(lord, 2048));
    for (i = 0; i < 8; i++) {
        workers[i].lord = lord;
        workers[i].base = (uint64_t)(i + 1) << 32;
        workers[i].stop = &stop;
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (round = 0; round < rounds; round++) read_all(lord);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (i = 0; i < 8; i++) pthread_join(threads[i], NULL);
    assert_int_equal(read_of(lord, MEMLORD_FORMAT_FOLDED).bytes, memlord_allocated(lord, all()));
    assert_int_equal(read_of(lord, MEMLORD_FORMAT_MEMORY_VIZ).bytes,
                     memlord_allocated(lord, all()));
}

/* A heap that has another thread allocate, under a tag on a new device, whenever the ledger takes
   memory for a report. */
typedef struct late_heap {
    test_heap heap;
    memlord *lord;
    pthread_t writer;
    int writes, late; /* writes: 1 while a report is written; late: how many new devices there are */
} late_heap;
enum { EARLY = 32, LATE_MAX = 64 };
static void *allocate_late(void *user) {
    late_heap *h = (late_heap *)user;
    const int i = EARLY + h->late++;
    (void)memlord_tag_begin(h->lord, "late");
    (void)memlord_alloc(h->lord, cuda(i), 0x40000000 + (uint64_t)i * 64, 100, NULL);
    (void)memlord_tag_end(h->lord);
    return NULL;
}
static void *late_heap_alloc(void *user, size_t size) {
    late_heap *h = (late_heap *)user;
    pthread_t other;
    if (h->writes && h->late < LATE_MAX && pthread_equal(pthread_self(), h->writer) &&
        pthread_create(&other, NULL, allocate_late, h) == 0)
        pthread_join(other, NULL);
    return test_heap_alloc(&h->heap, size);
}
static void late_heap_free(void *user, void *ptr, size_t size) {
    test_heap_free(&((late_heap *)user)->heap, ptr, size);
}
/* A report keeps sums of its devices in arrays, by the number of the device. A tag of a newer device
   would be counted behind the end of such an array. */
static void a_report_has_the_device_of_each_of_its_tags(void **state) {
    late_heap h;
    memlord_desc desc = test_desc(&h.heap, 0);
    int i;
    (void)state;
    memset(&h, 0, sizeof h);
    desc.allocator.alloc = late_heap_alloc;
    desc.allocator.free = late_heap_free;
    desc.allocator.user = &h;
    assert_ok(memlord_create(&desc, &h.lord));
    for (i = 0; i < EARLY; i++) /* so many that their statistics are no small piece of memory */
        assert_ok(memlord_alloc(h.lord, cuda(i), 0x1000 + (uint64_t)i * 64, 100, NULL));
    h.writer = pthread_self();
    h.writes = 1;
    for (i = 0; h.late < LATE_MAX && i < 100; i++) {
        test_text text = written(h.lord, MEMLORD_FORMAT_PROMETHEUS);
        int k;
        for (k = EARLY; k < EARLY + LATE_MAX; k++) {
            char tag[64], device[64];
            (void)snprintf(tag, sizeof tag, "{device=\"cuda:%d\",tag=\"late\"}", k);
            (void)snprintf(device, sizeof device, "memlord_live_bytes{device=\"cuda:%d\"}",
                           k);
            assert_true(!strstr(text.data, tag) || strstr(text.data, device));
        }
        free(text.data);
    }
    assert_true(h.late);
    h.writes = 0;
    memlord_destroy(h.lord);
    assert_int_equal(h.heap.blocks, 0);
}

static int allocate_meanwhile(void *user, const void *data, size_t size) {
    memlord *lord = (memlord *)user;
    static uint64_t key = 0x10000000;
    (void)data;
    (void)size;
    key += 64;
    return memlord_alloc(lord, cuda((int)(key / 64 % 5)), key, 1, &step_site) != MEMLORD_OK;
}

static void a_writer_may_call_the_ledger(void **state) {
    memlord *lord = test_lord(state);
    uint64_t i;
    size_t k;
    fill(lord);
    for (i = 0; i < 3000; i++)
        assert_ok(memlord_alloc(lord, cpu(), 0x200000 + i * 64, i, &load_site));
    for (k = 0; k < FORMATS; k++)
        assert_ok(memlord_write(lord, formats[k], allocate_meanwhile, lord));
    read_all(lord);
}

typedef struct watched {
    test_heap *heap;
    uint64_t highest;
    size_t largest;
} watched;
static int watch(void *user, const void *data, size_t size) {
    watched *w = (watched *)user;
    (void)data;
    if (w->heap->bytes > w->highest) w->highest = w->heap->bytes;
    if (size > w->largest) w->largest = size;
    return 0;
}

/* Every format, in small pieces, with at most so much more of the ledger's memory. */
static void write_all_within(test_case *t, uint64_t most) {
    uint64_t before = t->heap.bytes;
    size_t k;
    for (k = 0; k < FORMATS; k++) {
        watched w;
        memset(&w, 0, sizeof w);
        w.heap = &t->heap;
        assert_ok(memlord_write(t->lord, formats[k], watch, &w));
        assert_true(w.highest - before <= most);
        assert_true(w.largest <= 8192);
    }
}

static void a_hundred_thousand_blocks_take_no_more_memory(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t i;
    for (i = 0; i < 100000; i++) /* as close as malloc puts them: 65,536 in one shard */
        assert_ok(memlord_alloc(t->lord, cuda((int)(i % 4)), 0x7f0000000000 + i * 32, i,
                                &load_site));
    (void)read_of(t->lord, MEMLORD_FORMAT_CSV); /* the first time makes room */
    write_all_within(t, (uint64_t)4 << 20);
}

static void a_hundred_thousand_parts_take_no_more_memory(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t i;
    size_t k;
    assert_ok(memlord_alloc(t->lord, cuda(0), 0x1000, 1000000, &load_site));
    for (i = 0; i < 100000; i++)
        assert_ok(memlord_part_add(t->lord, cuda(0), 0x1000, i * 10, 9, NULL));
    write_all_within(t, (uint64_t)1 << 20);
    for (k = 0; k < FORMATS; k++)
        if (formats[k] != MEMLORD_FORMAT_TRACE && formats[k] != MEMLORD_FORMAT_PROMETHEUS)
            assert_int_equal(read_of(t->lord, formats[k]).bytes, 1000000);
}

static void writing_again_takes_no_more_memory(void **state) {
    test_case *t = (test_case *)*state;
    uint64_t before;
    int round;
    fill(t->lord);
    read_all(t->lord);
    before = t->heap.bytes;
    for (round = 0; round < 300; round++) read_all(t->lord);
    assert_int_equal(t->heap.bytes, before);
}

/* -- TIMELINE -- */

static void a_timeline_without_snapshots_has_its_names_alone(void **state) {
    test_text text = written(test_lord(state), MEMLORD_FORMAT_TIMELINE);
    assert_string_equal(text.data, "seconds,device,tag,live,peak\r\n");
    free(text.data);
}
static void a_timeline_has_a_line_for_each_tag_and_for_the_rest(void **state) {
    test_case *t = (test_case *)*state;
    test_text text;
    assert_ok(memlord_tag_begin(t->lord, "=cmd \"x\"\n,"));
    assert_ok(memlord_alloc(t->lord, cuda(0), 0x1000, 100, NULL));
    assert_ok(memlord_tag_end(t->lord));
    assert_ok(memlord_alloc(t->lord, cuda(0), 0x2000, 7, NULL));
    assert_ok(memlord_checkpoint(t->lord, "a"));
    t->now -= 1; /* a clock that goes back */
    assert_ok(memlord_free(t->lord, cuda(0), 0x2000, NULL));
    assert_ok(memlord_checkpoint(t->lord, "b"));
    text = written(t->lord, MEMLORD_FORMAT_TIMELINE);
    assert_true(count_of(&text, ",cuda:0,\"'=cmd \"\"x\"\"\xef\xbf\xbd" "0a,\",100,107\r\n"));
    assert_true(count_of(&text, ",cuda:0,,7,107\r\n"));
    assert_true(count_of(&text, ",cuda:0,,0,107\r\n"));
    free(text.data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_timeline_without_snapshots_has_its_names_alone),
        TEST_FAKES(a_timeline_has_a_line_for_each_tag_and_for_the_rest),
        TEST_SITES(live_bytes_are_the_ledgers),
        TEST_SITES(every_statistic_is_a_metric_of_its_device),
        TEST_FAKES(a_place_is_free_self_and_unaccounted),
        TEST(moves_and_copies_are_told_by_pair_of_devices),
        TEST(without_moves_and_copies_no_pair_is_told),
        TEST_SITES(tags_and_what_has_none_add_up_to_a_device),
        TEST_SITES(labels_of_the_ledger_are_in_every_sample),
        TEST_SITES(labels_beyond_a_thousand_bytes_are_left_out),
        TEST_SITES(scopes_are_metrics),
        TEST_SITES(names_that_differ_in_bad_bytes_stay_apart),
        TEST_SITES(samples_of_a_profile_are_the_statistics),
        TEST(a_profile_has_the_bytes_of_the_peak),
        TEST_SITES(heaptrack_ends_with_what_is_live_and_peaks_with_the_peak),
        TEST_SITES(heaptrack_has_the_calls_of_the_ledger_and_none_is_temporary),
        TEST_SITES(heaptrack_has_bytes_of_an_arena_without_a_call),
        TEST(tags_beyond_the_first_hundred_are_one_series),
        TEST(each_device_has_a_hundred_tags),
        TEST(new_scopes_take_no_series_from_older_ones),
        TEST_SITES(the_number_of_allocs_is_the_same_in_every_format),
        TEST_SITES(more_pieces_than_heaptrack_gets_are_fewer_of_each),
        TEST_SITES(stacks_are_device_tag_scope_and_site),
        TEST_SITES(a_site_without_a_function_is_named_by_its_file),
        TEST_SITES(sites_of_one_name_are_told_apart_by_file_and_line),
        TEST_SITES(a_life_is_named_by_its_tag_its_function_or_as_a_block),
        TEST_FAKES(collections_and_memory_that_ran_out_are_events),
        TEST_SITES(a_table_has_a_line_a_block),
        TEST_SITES(anomalies_and_drops_are_in_every_format_that_has_a_place),
        TEST_SITES(who_held_the_peak_is_a_metric),
        TEST_SITES(memory_viz_and_text_show_the_stream_of_a_block),
        TEST_SITES(parts_divide_their_block_and_add_nothing),
        TEST_SITES(parts_are_in_what_has_no_lines),
        TEST_SITES(a_part_is_a_label_of_a_profile_and_no_frame),
        TEST_SITES(a_timeline_has_lives_scopes_levels_and_checkpoints),
        TEST_SITES(without_events_a_timeline_has_what_scopes_remember),
        TEST_FAKES(a_timeline_tells_when_scopes_begin_and_end),
        TEST_FAKES(a_timeline_without_events_tells_how_long_scopes_took),
        TEST_SITES(a_pending_block_is_one_a_viewer_shows_as_such),
        TEST_SITES(numbers_of_32_bits_have_no_sign),
        TEST_SITES(segments_are_of_the_moment_that_traces_end),
        TEST(arenas_have_no_more_than_their_device_had),
        TEST(csv_has_the_stream_of_a_block_and_of_its_parts),
        TEST(an_empty_ledger_is_read),
        TEST(no_ledger_writes_nothing),
        TEST_SITES(a_write_that_fails_anywhere_is_an_error_and_the_last),
        TEST_SITES(without_memory_a_format_is_an_error_and_nothing_is_kept),
        TEST_SITES(hostile_names_are_only_names),
        TEST_SITES(a_name_of_10_megabytes_is_survived),
        TEST_SITES(random_names_are_only_names),
        TEST_SITES(a_locale_with_a_comma_changes_nothing),
        TEST_SITES(the_largest_of_everything_is_read),
        TEST(a_timeline_has_room_for_so_many_storages_and_leaves_out_the_rest),
        TEST_SITES(what_is_written_while_threads_work_is_in_itself_right),
        cmocka_unit_test(a_report_has_the_device_of_each_of_its_tags),
        TEST_SITES(a_writer_may_call_the_ledger),
        TEST_SITES(a_hundred_thousand_blocks_take_no_more_memory),
        TEST_SITES(a_hundred_thousand_parts_take_no_more_memory),
        TEST_SITES(writing_again_takes_no_more_memory),
    };
    return cmocka_run_group_tests_name("formats", tests, NULL, NULL);
}
