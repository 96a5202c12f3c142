/*
    llama.c - a llama inference loop that can say where its memory went

    Runs a llama2.c checkpoint (version 0, float32) on the CPU, or a small random model of its own
    when none is given, and accounts for every buffer with MemLord: the mapped weights and the
    tensors in them, the KV cache against its plan, the activations, the tokenizer; and for every
    phase, from loading to each layer's attention. Build and run:

        cc -std=c99 -O2 -I. examples/llama.c -o llama -lm -pthread && ./llama -r report.html
        ./llama stories15M.bin -z tokenizer.bin -p "Once upon a time" -r report.json

    SIGUSR1 writes a report while it runs, memory_profile_DATE_TIME.json; SIGINT and SIGTERM do, and
    end it after the token it is at.
*/
#define _DEFAULT_SOURCE /* mmap, fileno, clock_gettime, sigaction */
#define MEMLORD_IMPLEMENTATION
#include "memlord.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

enum { TOKEN_UNKNOWN, TOKEN_BOS, TOKEN_EOS, TOKEN_FIRST }; /* sentencepiece's numbering */
enum { MAX_TOKEN = 512 };                                  /* bytes; the longest of Llama 3: 128 */
enum { EXPORT_MS = 100 };                                  /* a run may be over in half a second */

/* The tensors in the order of the file. */
enum {
    EMBEDDING, RMS_ATTENTION, WQ, WK, WV, WO, RMS_FFN, W1, W2, W3, RMS_FINAL,
    ROPE_TABLES, /* present in the file, computed here */
    CLASSIFIER,  /* absent from the file when tied to EMBEDDING */
    TENSORS
};

static const char *const tensor_names[TENSORS] = {
    "embedding", "rms_attention", "wq",        "wk",          "wv", "wo",
    "rms_ffn",   "w1",            "w2",        "w3",          "rms_final",
    "rope",      "classifier"};

static const char *const tags[] = {"weights", "kv_cache", "activations", "tokenizer"};
enum { WEIGHTS, KV_CACHE, ACTIVATIONS, TOKENIZER, TAGS };

typedef struct options {
    const char *model, *tokenizer, *prompt, *report, *exported, *labels;
    double steps, temperature, top_p, seed, collect;
} options;

typedef struct config {
    size_t dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, seq_len;
    size_t head_size, kv_dim;
    int tied;
} config;

typedef struct mapping {
    void *data;
    size_t bytes;
} mapping;

typedef struct token {
    const char *text; /* into the mapped file: not terminated */
    size_t len;
    float score;
} token;

typedef struct candidate {
    float p;
    int id;
} candidate;

typedef struct llama {
    memlord *lord;
    int notes; /* calls of MemLord that did not answer MEMLORD_OK */
    void *buffers[16];
    size_t n_buffers;
    config config;
    mapping model, vocabulary;
    const float *tensor[TENSORS];
    token *tokens;
    const token **pieces; /* of text: the tokens but for bytes and specials, sorted */
    size_t n_pieces;
    char byte_text[256];
    int byte_id[256];     /* TOKEN_UNKNOWN where there is none */
    float *keys, *values; /* the KV cache: [layer][position][kv_dim] */
    float *x, *normed, *mixed, *query, *scores, *gate, *up, *rope, *logits;
    candidate *candidates;
    uint64_t random;
} llama;

/* ------------------------------------------------------------------ memory, accounted -- */

static int fail(const char *what, const char *why) {
    fprintf(stderr, "llama: %s: %s\n", what, why);
    return 0;
}

/* Inference does not stop because the books could not be kept; the exit code tells. */
static void note(llama *l, memlord_result result) {
    if (result == MEMLORD_OK) return;
    fprintf(stderr, "llama: memlord: %s\n", memlord_result_text(result));
    l->notes++;
}

/* The site is that of the caller: "buffer_new" would be the answer to no question. */
#define BUFFER(l, name, dtype, type, a, b, c) \
    (type *)buffer_new(l, MEMLORD_SITE(), name, dtype, sizeof(type), a, b, c)

/* Allocates an array of up to three dimensions; those not in use are 0. No product overflows:
   config_read bounds every factor. */
static void *buffer_new(llama *l, const memlord_site *site, const char *name, const char *dtype,
                        size_t element, size_t a, size_t b, size_t c) {
    memlord_meta meta = {name, dtype, {(int64_t)a, (int64_t)b, (int64_t)c}, 0, 0, NULL};
    uint64_t bytes = (uint64_t)element * a * (b ? b : 1) * (c ? c : 1);
    void *ptr = bytes <= PTRDIFF_MAX && l->n_buffers < 16 ? malloc((size_t)bytes) : NULL;

    if (!ptr) {
        char text[32];
        fprintf(stderr, "llama: no memory for %s: %s\n", name,
                memlord_format_bytes(bytes, text, sizeof text));
        return NULL;
    }
    l->buffers[l->n_buffers++] = ptr;
    meta.rank = c ? 3 : b ? 2 : 1;
    note(l, memlord_alloc(l->lord, memlord_device_cpu(), MEMLORD_KEY(ptr), bytes, site));
    note(l, memlord_block_describe(l->lord, memlord_device_cpu(), MEMLORD_KEY(ptr), &meta));
    return ptr;
}

/* Mapped files are pages of the page cache, not of the heap: a device of their own. */
static memlord_device mapped(void) {
    return memlord_device_make(MEMLORD_DEVICE_MAPPED, 0);
}

/* Maps the file at a path or, without one, the temporary file that `make` answers. */
static int map_file(const char *path, FILE *(*make)(void), mapping *out) {
    const char *name = path ? path : "a temporary file";
    FILE *file = path ? fopen(path, "rb") : make();
    void *data = MAP_FAILED;
    struct stat info;

    if (!file) return fail(name, strerror(errno));
    if (fstat(fileno(file), &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0 &&
        (uint64_t)info.st_size <= PTRDIFF_MAX)
        data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fileno(file), 0);
    fclose(file);
    if (data == MAP_FAILED) return fail(name, "not a file that can be mapped, or empty");
    out->data = data;
    out->bytes = (size_t)info.st_size;
    return 1;
}

/* A collection of the mapped device: the kernel may have the pages of the weights. It reads again
   those that are used again, and does not tell how many it took: reclaimed stays 0. */
static memlord_gc_result drop_pages(void *user, memlord *lord, const memlord_gc_event *event) {
    const llama *l = (const llama *)user;
    memlord_gc_result result = {0, 0, 0};
    (void)lord, (void)event;
    result.ran = madvise(l->model.data, l->model.bytes, MADV_DONTNEED) == 0;
    return result;
}

static void unmap_file(llama *l, mapping *map) {
    if (!map->data) return;
    note(l, MEMLORD_RELEASE(l->lord, mapped(), map->data));
    if (munmap(map->data, map->bytes) != 0) (void)fail("munmap", strerror(errno));
}

/* ------------------------------------------------------------------------- checkpoint -- */

/* Reads the seven numbers of the header. The bounds are far above any model there is, and low
   enough that no size computed from them leaves 64 bits (the KV cache: 2^53). */
static int config_read(config *c, const mapping *map, const char *name) {
    static const char *const names[7] = {"dim",        "hidden_dim", "n_layers", "n_heads",
                                         "n_kv_heads", "vocab_size", "seq_len"};
    static const int32_t most[7] = {1 << 16, 1 << 20, 1 << 10, 1 << 12, 1 << 12, 1 << 24, 1 << 24};
    int32_t v[7];
    int tied;

    if (map->bytes < sizeof v) return fail(name, "shorter than the header of a checkpoint");
    memcpy(v, map->data, sizeof v);
    tied = v[5] > 0;
    if (v[5] < 0 && v[5] != INT32_MIN) v[5] = -v[5];
    for (int i = 0; i < 7; i++) {
        if (v[i] >= 1 && v[i] <= most[i]) continue;
        fprintf(stderr, "llama: %s: %s is %ld, not in 1..%ld: not a llama2.c checkpoint\n", name,
                names[i], (long)v[i], (long)most[i]);
        return 0;
    }
    *c = (config){(size_t)v[0], (size_t)v[1], (size_t)v[2], (size_t)v[3], (size_t)v[4],
                  (size_t)v[5], (size_t)v[6], (size_t)(v[0] / v[3]), 0, tied};
    if (c->dim % c->n_heads || c->head_size % 2)
        return fail(name, "dim is not n_heads heads of an even size");
    if (c->vocab_size < TOKEN_FIRST) return fail(name, "too few tokens for BOS and EOS");
    if (c->n_heads % c->n_kv_heads) return fail(name, "n_heads is no multiple of n_kv_heads");
    c->kv_dim = c->head_size * c->n_kv_heads;
    return 1;
}

/* How many floats each tensor has in the file. */
static void tensor_sizes(const config *c, uint64_t n[TENSORS]) {
    uint64_t layers = c->n_layers, dim = c->dim;

    n[EMBEDDING] = c->vocab_size * dim;
    n[RMS_ATTENTION] = n[RMS_FFN] = layers * dim;
    n[WQ] = n[WO] = layers * dim * dim;
    n[WK] = n[WV] = layers * c->kv_dim * dim;
    n[W1] = n[W2] = n[W3] = layers * c->hidden_dim * dim;
    n[RMS_FINAL] = dim;
    n[ROPE_TABLES] = (uint64_t)c->seq_len * c->head_size;
    n[CLASSIFIER] = c->tied ? 0 : n[EMBEDDING];
}

/* splitmix64: any seed will do, 0 included */
static uint64_t random_next(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static float random_unit(uint64_t *state) { /* in [0, 1) */
    return (float)(random_next(state) >> 40) * 0x1p-24f;
}

static const char consonants[] = "bcdfghjklmnpqrstvwyz", vowels[] = "aeiou";
enum { BYTE_TOKENS = TOKEN_FIRST + 256, RANDOM_VOCABULARY = BYTE_TOKENS + 2 * 20 * 5 };

/* 3 million parameters, grouped KV heads, tied; a file like any other, that has no name. */
static FILE *random_model(void) {
    static const int32_t header[7] = {256, 688, 4, 8, 4, RANDOM_VOCABULARY, 256};
    mapping map = {(void *)(uintptr_t)header, sizeof header};
    FILE *file = tmpfile();
    uint64_t size[TENSORS], state = 1;
    config c;

    if (!file || !config_read(&c, &map, "random model")) return file;
    tensor_sizes(&c, size);
    fwrite(header, sizeof header, 1, file);
    for (int t = 0; t < TENSORS; t++) {
        int flat = t == RMS_ATTENTION || t == RMS_FFN || t == RMS_FINAL;
        float reach = sqrtf(3.0f / (float)(t == W2 ? c.hidden_dim : c.dim)); /* keeps variance */
        for (uint64_t i = 0; i < size[t]; i++) {
            /* a trained model hardly ever answers in bytes; small embeddings see to it here */
            int rare = t == EMBEDDING && i / c.dim < BYTE_TOKENS;
            float scale = rare ? 0.1f * reach : t == EMBEDDING ? 2 * reach : reach;
            float w = flat ? 1.0f : scale * (2.0f * random_unit(&state) - 1.0f);
            fwrite(&w, sizeof w, 1, file);
        }
    }
    if (fflush(file) == 0 && !ferror(file)) return file;
    fclose(file);
    return NULL;
}

/* The classifier of a tied model holds the embedding's storage: one more view, no more bytes. */
static int tie_classifier(llama *l) {
    uint64_t before = memlord_allocated(l->lord, mapped()), after;
    char a[32], b[32];

    l->tensor[CLASSIFIER] = l->tensor[EMBEDDING];
    note(l, MEMLORD_TRACK(l->lord, mapped(), l->model.data, l->model.bytes));
    after = memlord_allocated(l->lord, mapped());
    printf("tied       the classifier is a view of the weights: mapped was %s, is %s\n",
           memlord_format_bytes(before, a, sizeof a), memlord_format_bytes(after, b, sizeof b));
    return before == after || fail("the tied classifier", "was counted twice");
}

static int model_open(llama *l, const char *path) {
    const char *name = path ? path : "random model";
    config *c = &l->config;
    uint64_t size[TENSORS], floats = 0;
    memlord_meta meta = {name, "f32", {0}, 1, 0, NULL};
    int ok = 0;

    MEMLORD_TAG(l->lord, tags[WEIGHTS]) {
        ok = map_file(path, random_model, &l->model);
        if (ok) note(l, MEMLORD_ALLOC(l->lord, mapped(), l->model.data, l->model.bytes));
    }
    if (!ok || !config_read(c, &l->model, name)) return 0;
    tensor_sizes(c, size);
    for (int t = 0; t < TENSORS; t++) floats += size[t];
    if ((l->model.bytes - 7 * sizeof(int32_t)) / sizeof(float) < floats)
        return fail(name, "truncated: shorter than its header promises");

    l->tensor[0] = (const float *)(const void *)((const char *)l->model.data + 7 * sizeof(int32_t));
    for (int t = 1; t < TENSORS; t++) l->tensor[t] = l->tensor[t - 1] + size[t - 1];
    meta.shape[0] = (int64_t)(floats - size[ROPE_TABLES]);
    note(l, memlord_block_describe(l->lord, mapped(), MEMLORD_KEY(l->model.data), &meta));
    for (int t = 0; t < TENSORS; t++) {
        memlord_meta part = {tensor_names[t], "f32", {(int64_t)size[t]}, 1, 0, NULL};
        uint64_t offset = MEMLORD_KEY(l->tensor[t]) - MEMLORD_KEY(l->model.data);
        if (size[t])
            note(l, memlord_part_add(l->lord, mapped(), MEMLORD_KEY(l->model.data), offset,
                                     size[t] * sizeof(float), &part));
    }
    printf("model      %s: %.2f M parameters, %zu layers, %zu heads, %zu KV heads, context %zu\n",
           name, (double)meta.shape[0] / 1e6, c->n_layers, c->n_heads, c->n_kv_heads, c->seq_len);
    return !c->tied || tie_classifier(l);
}

/* -------------------------------------------------------------------------- tokenizer -- */

static int token_compare(const void *a, const void *b) {
    const token *s = *(const token *const *)a, *t = *(const token *const *)b;
    int order = memcmp(s->text, t->text, s->len < t->len ? s->len : t->len);
    return order ? order : (s->len > t->len) - (s->len < t->len);
}

/* Answers the id of a piece of text, or -1. */
static int token_find(const llama *l, const char *text, size_t len) {
    const token key = {text, len, 0}, *wanted = &key;
    const token **found =
        bsearch(&wanted, l->pieces, l->n_pieces, sizeof *l->pieces, token_compare);
    return found ? (int)(*found - l->tokens) : -1;
}

/* Answers the byte a token like "<0x41>" stands for, or -1 for a piece of text. */
static int token_byte(const token *t) {
    char hex[3] = {0};

    if (t->len != 6 || memcmp(t->text, "<0x", 3) != 0 || t->text[5] != '>') return -1;
    memcpy(hex, t->text + 3, 2);
    if (!isxdigit((unsigned char)hex[0]) || !isxdigit((unsigned char)hex[1])) return -1;
    return (int)strtoul(hex, NULL, 16);
}

static int tokens_read(llama *l, const char *name) {
    const char *at = (const char *)l->vocabulary.data, *end = at + l->vocabulary.bytes;

    if (end - at < 4) return fail(name, "shorter than the header of a tokenizer");
    at += 4; /* the longest length: each one is checked below anyway */
    for (size_t i = 0; i < l->config.vocab_size; i++) {
        token *t = &l->tokens[i];
        int32_t len;
        if (end - at < 8) return fail(name, "truncated, or of a model with fewer tokens");
        memcpy(&t->score, at, 4);
        memcpy(&len, at + 4, 4);
        at += 8;
        if (len < 0 || len > MAX_TOKEN) return fail(name, "not a tokenizer: an absurd length");
        if (len > end - at) return fail(name, "truncated");
        t->text = at;
        t->len = (size_t)len;
        at += len;
    }
    return 1;
}

static void put_token(FILE *file, float score, const char *text) {
    int32_t len = (int32_t)strlen(text);
    fwrite(&score, sizeof score, 1, file);
    fwrite(&len, sizeof len, 1, file);
    fwrite(text, 1, (size_t)len, file);
}

/* Every byte, and syllables to merge bytes into, with and without a space before. */
static FILE *random_tokenizer(void) {
    static const int32_t longest = 6;
    FILE *file = tmpfile();
    char text[16];

    if (!file) return NULL;
    fwrite(&longest, sizeof longest, 1, file);
    put_token(file, 0, "<unk>");
    put_token(file, 0, "<s>");
    put_token(file, 0, "</s>");
    for (int i = 0; i < 256; i++) {
        snprintf(text, sizeof text, "<0x%02X>", (unsigned)i & 255);
        put_token(file, 0, text);
    }
    for (int i = 0; i < 200; i++) {
        snprintf(text, sizeof text, "%s%c%c", i < 100 ? "" : " ", consonants[i / 5 % 20],
                 vowels[i % 5]);
        put_token(file, (float)-i, text);
    }
    if (fflush(file) == 0 && !ferror(file)) return file;
    fclose(file);
    return NULL;
}

static int tokenizer_open(llama *l, const char *path) {
    size_t n = l->config.vocab_size;
    int ok = 0;

    MEMLORD_TAG(l->lord, tags[TOKENIZER]) {
        ok = map_file(path, random_tokenizer, &l->vocabulary);
        if (ok) note(l, MEMLORD_ALLOC(l->lord, mapped(), l->vocabulary.data, l->vocabulary.bytes));
        l->tokens = BUFFER(l, "tokens", "struct", token, n, 0, 0);
        l->pieces = BUFFER(l, "pieces", "ptr", const token *, n, 0, 0);
    }
    if (!ok || !l->tokens || !l->pieces || !tokens_read(l, path ? path : "random tokenizer"))
        return 0;
    for (size_t i = TOKEN_FIRST; i < n; i++) {
        token *t = &l->tokens[i];
        int byte = token_byte(t);
        if (byte < 0) {
            l->pieces[l->n_pieces++] = t;
        } else { /* what no piece covers is spelled in bytes */
            l->byte_text[byte] = (char)byte;
            l->byte_id[byte] = (int)i;
            t->text = &l->byte_text[byte];
            t->len = 1;
        }
    }
    qsort(l->pieces, l->n_pieces, sizeof *l->pieces, token_compare);
    return 1;
}

/* Joins the two neighbours whose union is the piece of the best score, until there is none. */
static size_t merge(const llama *l, int *ids, size_t n) {
    for (;;) {
        float best_score = -INFINITY;
        size_t best = 0;
        int best_id = -1;
        for (size_t i = 1; i + 1 < n; i++) { /* never the BOS */
            const token *a = &l->tokens[ids[i]], *b = &l->tokens[ids[i + 1]];
            char both[2 * MAX_TOKEN];
            int id;
            memcpy(both, a->text, a->len);
            memcpy(both + a->len, b->text, b->len);
            id = token_find(l, both, a->len + b->len);
            if (id < 0 || !(l->tokens[id].score > best_score)) continue;
            best_score = l->tokens[id].score;
            best = i;
            best_id = id;
        }
        if (best_id < 0) return n;
        ids[best] = best_id;
        n--;
        memmove(&ids[best + 1], &ids[best + 2], (n - best - 1) * sizeof *ids);
    }
}

/* Turns text into at most strlen(text) + 2 tokens and answers how many. */
static size_t encode(const llama *l, const char *text, int *ids) {
    size_t n = 0, len;
    int id;

    ids[n++] = TOKEN_BOS;
    if (*text && (id = token_find(l, " ", 1)) >= 0) ids[n++] = id; /* as sentencepiece does */
    for (; *text; text += len) {
        len = 1;
        while (len < 4 && ((unsigned char)text[len] & 0xC0) == 0x80) len++; /* one code point */
        id = token_find(l, text, len);
        if (id >= 0) {
            ids[n++] = id;
            continue;
        }
        for (size_t i = 0; i < len; i++) ids[n++] = l->byte_id[(unsigned char)text[i]];
    }
    return merge(l, ids, n);
}

static void print_token(const llama *l, int previous, int id) {
    const token *t = &l->tokens[id];
    size_t skip = previous == TOKEN_BOS && t->len && t->text[0] == ' ';
    unsigned char first = t->len ? (unsigned char)t->text[0] : ' ';

    if (t->len == 1 && (first >= 127 || (first < 32 && !isspace(first)))) {
        printf("\\x%02x", first); /* a terminal is no place for raw bytes */
    } else {
        fwrite(t->text + skip, 1, t->len - skip, stdout);
    }
}

/* ------------------------------------------------------------------------- transformer -- */

static int state_open(llama *l) {
    const config *c = &l->config;
    size_t head = c->head_size, seq = c->seq_len;
    /* keys and values, for every layer, position and KV head, one head's worth of floats */
    uint64_t expected = (uint64_t)2 * c->n_layers * seq * c->n_kv_heads * head * sizeof(float);

    note(l, memlord_expect(l->lord, memlord_device_cpu(), tags[KV_CACHE], expected));
    MEMLORD_TAG(l->lord, tags[KV_CACHE]) {
        l->keys = BUFFER(l, "keys", "f32", float, c->n_layers, seq, c->kv_dim);
        l->values = BUFFER(l, "values", "f32", float, c->n_layers, seq, c->kv_dim);
    }
    MEMLORD_TAG(l->lord, tags[ACTIVATIONS]) {
        l->x = BUFFER(l, "x", "f32", float, c->dim, 0, 0);
        l->normed = BUFFER(l, "normed", "f32", float, c->dim, 0, 0);
        l->mixed = BUFFER(l, "mixed", "f32", float, c->n_heads, head, 0);
        l->query = BUFFER(l, "query", "f32", float, c->n_heads, head, 0);
        l->scores = BUFFER(l, "scores", "f32", float, seq, 0, 0);
        l->gate = BUFFER(l, "gate", "f32", float, c->hidden_dim, 0, 0);
        l->up = BUFFER(l, "up", "f32", float, c->hidden_dim, 0, 0);
        l->rope = BUFFER(l, "rope", "f32", float, head / 2, 2, 0);
        l->logits = BUFFER(l, "logits", "f32", float, c->vocab_size, 0, 0);
        l->candidates = BUFFER(l, "candidates", "struct", candidate, c->vocab_size, 0, 0);
    }
    return l->keys && l->values && l->x && l->normed && l->mixed && l->query && l->scores &&
           l->gate && l->up && l->rope && l->logits && l->candidates;
}

/* Four sums, because a compiler must not reorder one. */
static float dot(const float *a, const float *b, size_t n) {
    float s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    size_t i = 0;

    for (; i + 4 <= n; i += 4) {
        s0 += a[i] * b[i];
        s1 += a[i + 1] * b[i + 1];
        s2 += a[i + 2] * b[i + 2];
        s3 += a[i + 3] * b[i + 3];
    }
    for (; i < n; i++) s0 += a[i] * b[i];
    return (s0 + s1) + (s2 + s3);
}

/* out[rows] = w[rows][columns] x[columns] */
static void matmul(float *out, const float *w, const float *x, size_t rows, size_t columns) {
    for (size_t r = 0; r < rows; r++) out[r] = dot(w + r * columns, x, columns);
}

static void rmsnorm(float *out, const float *x, const float *weight, size_t n) {
    float scale = 1.0f / sqrtf(dot(x, x, n) / (float)n + 1e-5f);
    for (size_t i = 0; i < n; i++) out[i] = weight[i] * (x[i] * scale);
}

static void softmax(float *x, size_t n) {
    float max = x[0], sum = 0;
    for (size_t i = 1; i < n; i++) max = x[i] > max ? x[i] : max;
    for (size_t i = 0; i < n; i++) sum += x[i] = expf(x[i] - max);
    for (size_t i = 0; i < n; i++) x[i] /= sum;
}

/* Turns each pair (2i, 2i + 1) of every head by position / 10000^(2i / head size). */
static void rotate(float *x, size_t n, const float *rope, size_t head) {
    for (size_t i = 0; i < n; i += 2) {
        float cosine = rope[i % head], sine = rope[i % head + 1], a = x[i], b = x[i + 1];
        x[i] = a * cosine - b * sine;
        x[i + 1] = a * sine + b * cosine;
    }
}

static void attention(llama *l, size_t layer, size_t pos) {
    const config *c = &l->config;
    size_t dim = c->dim, kv = c->kv_dim, head = c->head_size, group = c->n_heads / c->n_kv_heads;
    float *keys = l->keys + layer * c->seq_len * kv, *values = l->values + layer * c->seq_len * kv;
    float scale = 1.0f / sqrtf((float)head);

    rmsnorm(l->normed, l->x, l->tensor[RMS_ATTENTION] + layer * dim, dim);
    matmul(l->query, l->tensor[WQ] + layer * dim * dim, l->normed, dim, dim);
    matmul(keys + pos * kv, l->tensor[WK] + layer * kv * dim, l->normed, kv, dim);
    matmul(values + pos * kv, l->tensor[WV] + layer * kv * dim, l->normed, kv, dim);
    rotate(l->query, dim, l->rope, head);
    rotate(keys + pos * kv, kv, l->rope, head);

    for (size_t h = 0; h < c->n_heads; h++) {
        size_t shared = h / group * head; /* a group of heads reads one KV head */
        float *out = l->mixed + h * head;
        for (size_t t = 0; t <= pos; t++)
            l->scores[t] = scale * dot(l->query + h * head, keys + t * kv + shared, head);
        softmax(l->scores, pos + 1);
        memset(out, 0, head * sizeof *out);
        for (size_t t = 0; t <= pos; t++) {
            const float *value = values + t * kv + shared;
            for (size_t i = 0; i < head; i++) out[i] += l->scores[t] * value[i];
        }
    }
    matmul(l->normed, l->tensor[WO] + layer * dim * dim, l->mixed, dim, dim);
    for (size_t i = 0; i < dim; i++) l->x[i] += l->normed[i];
}

static void feed_forward(llama *l, size_t layer) {
    size_t dim = l->config.dim, hidden = l->config.hidden_dim, at = layer * dim * hidden;

    rmsnorm(l->normed, l->x, l->tensor[RMS_FFN] + layer * dim, dim);
    matmul(l->gate, l->tensor[W1] + at, l->normed, hidden, dim);
    matmul(l->up, l->tensor[W3] + at, l->normed, hidden, dim);
    for (size_t i = 0; i < hidden; i++) l->gate[i] *= l->up[i] / (1.0f + expf(-l->gate[i]));
    matmul(l->normed, l->tensor[W2] + at, l->gate, dim, hidden);
    for (size_t i = 0; i < dim; i++) l->x[i] += l->normed[i];
}

/* Feeds the token at a position, whose predecessors are in the KV cache; leaves the logits. */
static void forward(llama *l, int id, size_t pos) {
    const config *c = &l->config;

    memcpy(l->x, l->tensor[EMBEDDING] + (size_t)id * c->dim, c->dim * sizeof *l->x);
    for (size_t i = 0; i < c->head_size; i += 2) {
        float angle = (float)pos * powf(10000.0f, -(float)i / (float)c->head_size);
        l->rope[i] = cosf(angle);
        l->rope[i + 1] = sinf(angle);
    }
    for (size_t layer = 0; layer < c->n_layers; layer++) {
        MEMLORD_SCOPE(l->lord, "attention") attention(l, layer, pos);
        MEMLORD_SCOPE(l->lord, "feed_forward") feed_forward(l, layer);
    }
    MEMLORD_SCOPE(l->lord, "classifier") {
        rmsnorm(l->x, l->x, l->tensor[RMS_FINAL], c->dim);
        matmul(l->logits, l->tensor[CLASSIFIER], l->x, c->vocab_size, c->dim);
    }
}

/* ---------------------------------------------------------------------------- sampling -- */

static void sift_down(candidate *heap, size_t n, size_t at) {
    for (;;) {
        size_t child = 2 * at + 1;
        candidate moved = heap[at];
        if (child >= n) return;
        if (child + 1 < n && heap[child + 1].p > heap[child].p) child++;
        if (!(heap[child].p > moved.p)) return;
        heap[at] = heap[child];
        heap[child] = moved;
        at = child;
    }
}

/* Draws from the likeliest tokens that together reach top_p. A heap yields just those, in
   place; a full sort would do more, and glibc's qsort allocates. */
static int sample_top_p(llama *l, float top_p) {
    candidate *heap = l->candidates;
    size_t n = l->config.vocab_size, left = n;
    float sum = 0, r;

    for (size_t i = 0; i < n; i++) heap[i] = (candidate){l->logits[i], (int)i};
    for (size_t i = n / 2; i-- > 0;) sift_down(heap, n, i);
    do { /* the taken ones gather behind the heap */
        candidate best = heap[0];
        heap[0] = heap[--left];
        heap[left] = best;
        sum += best.p;
        sift_down(heap, left, 0);
    } while (left > 0 && sum < top_p);
    r = random_unit(&l->random) * sum;
    for (size_t i = n; i-- > left;) {
        r -= heap[i].p;
        if (r < 0) return heap[i].id;
    }
    return heap[n - 1].id; /* rounding */
}

/* Answers the next token, or -1 when the logits are no numbers. */
static int sample(llama *l, const options *o) {
    size_t n = l->config.vocab_size;
    float max;
    int best = 0;

    for (size_t i = 0; i < n; i++) {
        if (!isfinite(l->logits[i])) return -1;
        if (l->logits[i] > l->logits[best]) best = (int)i;
    }
    if (o->temperature < 0.01) return best; /* and no division by nothing below */
    max = l->logits[best];
    for (size_t i = 0; i < n; i++) l->logits[i] = (l->logits[i] - max) / (float)o->temperature;
    softmax(l->logits, n);
    return sample_top_p(l, (float)o->top_p);
}

/* -- signals: a report on SIGUSR1, one and then the end on SIGINT and SIGTERM -- */

static memlord *signalled; /* set before the handlers are */
static volatile sig_atomic_t stopped;

static void on_signal(int number) {
    memlord_request_save(signalled);
    if (number != SIGUSR1) stopped = number;
}

static void catch_signals(llama *l) {
    static const int numbers[] = {SIGUSR1, SIGINT, SIGTERM};
    struct sigaction action;

    signalled = l->lord;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (sigaction(numbers[i], &action, NULL) != 0) note(l, MEMLORD_E_UNSUPPORTED);
}

static double seconds(void) {
    struct timespec now;
    if (clock_gettime(CLOCK_MONOTONIC, &now) != 0) return 0;
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Feeds the prompt, then decodes up to position `steps`. Nothing may allocate after the mark. */
static int decode(llama *l, const options *o, const int *ids, size_t n, size_t steps) {
    memlord_stats before, after;
    uint64_t mark;
    size_t pos, leaks;
    int id = ids[n - 1], next = TOKEN_EOS;
    double start;

    putchar('\n');
    for (pos = 0; pos < n; pos++) {
        if (pos > 0) print_token(l, ids[pos - 1], ids[pos]);
        MEMLORD_SCOPE(l->lord, "prompt") forward(l, ids[pos], pos);
    }
    note(l, memlord_checkpoint(l->lord, "after_prompt"));
    note(l, memlord_stats_get(l->lord, memlord_device_all(), &before));
    mark = memlord_mark(l->lord);
    start = seconds();
    while (pos < steps && !stopped) {
        next = sample(l, o);
        if (next < TOKEN_FIRST) break;
        print_token(l, id, next);
        fflush(stdout);
        id = next;
        MEMLORD_SCOPE(l->lord, "decode") forward(l, id, pos++);
        note(l, memlord_gc_poll(l->lord, memlord_device_cpu())); /* serves a signal's wish */
        if (o->collect > 0 && pos % (size_t)o->collect == 0)
            note(l, memlord_gc_run(l->lord, mapped(), MEMLORD_REASON_HOST, 0, NULL));
    }
    start = seconds() - start;
    leaks = memlord_leaks(l->lord, mark, NULL, NULL);
    note(l, memlord_stats_get(l->lord, memlord_device_all(), &after));

    printf("\n\ndecoded    %zu tokens after %zu of the prompt, %.0f tokens/s\n", pos - n, n,
           start > 0 ? (double)(pos - n) / start : 0);
    printf("steady     %llu allocations while decoding, %zu blocks left from it\n",
           (unsigned long long)(after.allocs - before.allocs), leaks);
    if (next < 0) return fail("model", "its output is not a number; the weights are garbage");
    return leaks == 0 && after.allocs == before.allocs;
}

static int generate(llama *l, const options *o) {
    size_t n, steps = (size_t)o->steps < l->config.seq_len ? (size_t)o->steps : l->config.seq_len;
    int *ids = NULL;

    MEMLORD_TAG(l->lord, tags[TOKENIZER]) {
        ids = BUFFER(l, "prompt", "i32", int, strlen(o->prompt) + 2, 0, 0);
    }
    if (!ids) return 0;
    n = encode(l, o->prompt, ids);
    if (n > l->config.seq_len) return fail("-p", "the prompt is longer than the context");
    return decode(l, o, ids, n, steps);
}

/* ------------------------------------------------------------------------- the accounts -- */

static void print_tags(llama *l) {
    memlord_device devices[16];
    size_t n = memlord_devices(l->lord, devices, 16);

    printf("\nself by tag and device\n  %-12s %-8s %12s %12s %7s\n", "tag", "device", "live",
           "peak", "blocks");
    for (int t = 0; t < TAGS; t++) {
        for (size_t d = 0; d < n && d < 16; d++) {
            memlord_tag_stat stat;
            char device[32], live[32], peak[32];
            note(l, memlord_tag_get(l->lord, devices[d], tags[t], &stat));
            if (stat.peak == 0) continue;
            memlord_device_name(devices[d], device, sizeof device);
            printf("  %-12s %-8s %12s %12s %7llu\n", tags[t], device,
                   memlord_format_bytes(stat.allocated, live, sizeof live),
                   memlord_format_bytes(stat.peak, peak, sizeof peak),
                   (unsigned long long)stat.blocks);
        }
    }
}

/* Where the machine's memory is: total = free + self + unaccounted. Mapped files are page cache,
   which counts as free; what is unaccounted is this process's own and everybody else's. */
static void print_machine(llama *l) {
    memlord_capacity c;
    char total[32], unused[32], self[32], rest[32], process[32];
    uint64_t live = memlord_allocated(l->lord, memlord_device_cpu());
    if (memlord_capacity_sample(l->lord, memlord_device_cpu()) != MEMLORD_OK ||
        memlord_capacity_get(l->lord, memlord_device_cpu(), &c) != MEMLORD_OK || !c.known) {
        printf("\nmachine\n  capacity unknown\n");
        return;
    }
    if (live > c.used) live = c.used; /* pages nobody has touched yet */
    printf("\nmachine\n  total %s = free %s + self %s + unaccounted %s (this process %s)\n",
           memlord_format_bytes(c.total, total, sizeof total),
           memlord_format_bytes(c.total - c.used, unused, sizeof unused),
           memlord_format_bytes(live, self, sizeof self),
           memlord_format_bytes(c.used - live, rest, sizeof rest),
           memlord_format_bytes(c.process, process, sizeof process));
}

static int print_plan(llama *l) {
    memlord_tag_stat kv;
    char expected[32], actual[32];

    note(l, memlord_tag_get(l->lord, memlord_device_cpu(), tags[KV_CACHE], &kv));
    printf("\nplan\n  %-12s expected %s (%llu bytes), actual %s (%llu), variance %+lld\n",
           tags[KV_CACHE], memlord_format_bytes(kv.expected, expected, sizeof expected),
           (unsigned long long)kv.expected,
           memlord_format_bytes(kv.allocated, actual, sizeof actual),
           (unsigned long long)kv.allocated, (long long)kv.variance);
    return kv.variance == 0;
}

static void print_hotspots(llama *l) {
    memlord_site_stat top[5];
    size_t n = memlord_sites_top(l->lord, memlord_device_all(), MEMLORD_SITE_ORDER_ALLOC_BYTES,
                                 top, 5);

    printf("\nhotspots\n  %12s %7s  site\n", "bytes", "allocs");
    for (size_t i = 0; i < n; i++) {
        char bytes[32];
        printf("  %12s %7llu  %s (%s:%d)\n",
               memlord_format_bytes(top[i].alloc_bytes, bytes, sizeof bytes),
               (unsigned long long)top[i].allocs, top[i].site->function, top[i].site->file,
               top[i].site->line);
    }
}

static void close_all(llama *l) {
    while (l->n_buffers > 0) {
        void *ptr = l->buffers[--l->n_buffers];
        note(l, MEMLORD_FREE(l->lord, memlord_device_cpu(), ptr));
        free(ptr);
    }
    if (l->config.tied && l->tensor[CLASSIFIER])
        note(l, MEMLORD_RELEASE(l->lord, mapped(), l->model.data)); /* the view */
    unmap_file(l, &l->vocabulary);
    unmap_file(l, &l->model);
}

/* Keeps a file fresh for Prometheus while the model runs: examples/fleet. */
static int export_start(llama *l, const options *o) {
    memlord_result started = MEMLORD_OK;
    note(l, memlord_labels_set(l->lord, o->labels));
    if (o->exported) started = memlord_export_start(l->lord, o->exported, EXPORT_MS);
    return started == MEMLORD_OK || fail(o->exported, memlord_result_text(started));
}

static int run(llama *l, const options *o) {
    uint64_t live;
    char text[32];
    int ok = 0;

    if (!export_start(l, o)) return 0;
    MEMLORD_SCOPE(l->lord, "load") {
        ok = model_open(l, o->model) && tokenizer_open(l, o->tokenizer) && state_open(l);
    }
    note(l, memlord_checkpoint(l->lord, "after_model_load"));
    ok = ok && generate(l, o);
    if (ok) {
        print_tags(l);
        print_machine(l);
        ok = print_plan(l);
        print_hotspots(l);
    }
    note(l, memlord_export_stop(l->lord)); /* its last numbers are the report's */
    if (o->report) {
        memlord_format format = memlord_format_for(o->report);
        memlord_result saved = memlord_save(l->lord, format, o->report);
        if (saved != MEMLORD_OK) ok = fail(o->report, memlord_result_text(saved));
    }
    close_all(l);
    live = memlord_allocated(l->lord, memlord_device_all());
    printf("\nat the end %s live\n", memlord_format_bytes(live, text, sizeof text));
    return ok && live == 0 && l->notes == 0;
}

/* ---------------------------------------------------------------------------- the shell -- */

static const char help[] =
    "usage: llama [model.bin] [options]\n"
    "Runs a llama2.c checkpoint, or a small random model, and accounts for its memory.\n"
    "  -z FILE  tokenizer (tokenizer.bin; a random model brings its own)\n"
    "  -n N     stop after N positions, prompt included (128; at most the context)\n"
    "  -p TEXT  prompt (none)\n"
    "  -t T     temperature (0.9); 0 takes the likeliest\n"
    "  -P P     sample from the likeliest tokens that reach P together (0.9)\n"
    "  -s SEED  of the sampling (1)\n"
    "  -r FILE  save MemLord's report, as what the name says: .html, .json, .txt, ...\n"
    "  -x FILE  keep FILE, a .prom, fresh for Prometheus, as examples/fleet/README.md says\n"
    "  -l TEXT  labels of the report and of that file, like rank=0,model=x\n"
    "  -g N     give the pages of the weights back after every N positions\n"
    "SIGUSR1 saves a report, too, as memory_profile_DATE_TIME.json.\n"
    "\n"
    "What the plan line means, for Llama 3.2 1B (dim 2048, 16 layers, 32 heads, 8 KV heads,\n"
    "so 2048 / 32 = 64 per head) at 131072 tokens of f16:\n"
    "  2 (K and V) x 16 layers x 8 KV heads x 64 x 2 bytes = 32 KiB a token\n"
    "  32 KiB x 131072 tokens                              = 4 GiB expected for kv_cache\n"
    "Allocated for all 32 heads by mistake it is 16 GiB: variance +12884901888. This program\n"
    "keeps f32 and would expect 8 GiB.\n";

static int parse_number(const char *text, double low, double high, double *out) {
    char *end;
    *out = strtod(text, &end);
    if (end != text && *end == 0 && *out >= low && *out <= high) return 1;
    return fail(text, "not a number, or out of range");
}

static int parse_options(int argc, char **argv, options *o) {
    for (int i = 1; i < argc; i++) {
        const char *option = argv[i], *value = argv[i + 1];
        int ok = 1;
        if (option[0] != '-') {
            o->model = option;
            continue;
        }
        if (strlen(option) != 2 || !value) return fail(option, "no such option, or no value");
        i++;
        switch (option[1]) {
        case 'z': o->tokenizer = value; break;
        case 'p': o->prompt = value; break;
        case 'r': o->report = value; break;
        case 'x': o->exported = value; break;
        case 'l': o->labels = value; break;
        case 'g': ok = parse_number(value, 1, 1 << 24, &o->collect); break;
        case 'n': ok = parse_number(value, 1, 1 << 24, &o->steps); break;
        case 't': ok = parse_number(value, 0, 100, &o->temperature); break;
        case 'P': ok = parse_number(value, 0, 1, &o->top_p); break;
        case 's': ok = parse_number(value, 0, 0x1p53, &o->seed); break;
        default: return fail(option, "no such option");
        }
        if (!ok) return 0;
    }
    if (o->model && !o->tokenizer) o->tokenizer = "tokenizer.bin";
    return 1;
}

int main(int argc, char **argv) {
    options o = {NULL, NULL, "", NULL, NULL, NULL, 128, 0.9, 0.9, 1, 0};
    memlord_desc desc = {.logger = {memlord_log_stderr, NULL},
                         .flags = MEMLORD_FLAG_SITES,
                         .event_capacity = 16384};
    llama l = {0};
    memlord_result opened;
    int ok;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") != 0 && strcmp(argv[i], "-h") != 0) continue;
        return fputs(help, stdout) < 0 || fflush(stdout) != 0;
    }
    if (!parse_options(argc, argv, &o)) {
        fputs("llama: --help says how\n", stderr);
        return 2;
    }
    if (getenv("DEBUG")) setenv("MEMLORD_DEBUG", getenv("DEBUG"), 0); /* DEBUG=1: every event */
    opened = memlord_create(&desc, &l.lord);
    if (opened != MEMLORD_OK) {
        (void)fail("memlord", memlord_result_text(opened));
        return 1;
    }
    l.random = (uint64_t)o.seed;
    catch_signals(&l);
    note(&l, memlord_snapshots_start(l.lord, 0));
    note(&l, memlord_gc_callback_add(l.lord, mapped(), 1 << MEMLORD_REASON_HOST, drop_pages, &l));
    ok = run(&l, &o);
    signalled = NULL;
    memlord_destroy(l.lord);
    if (stopped) return 128 + stopped; /* as a shell tells a death by signal */
    return ok && fflush(stdout) == 0 && !ferror(stdout) ? 0 : 1;
}
