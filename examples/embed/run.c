/*
    run.c - a llama inference in one file that knows nothing of MemLord

    It gets its memory as llama2.c's run.c does: the weights are a mapped file, the run state is
    calloc's, the tokenizer malloc's. The macros of MEMLORD_SHIM record it all, with the line
    that asked for it. No line of the program changes: the compiler includes the header before the
    first.

        cc -O2 -c -x c -DMEMLORD_IMPLEMENTATION memlord.h -o memlord.o
        cc -O2 -I. -c examples/embed/at_exit.c -o at_exit.o
        cc -O2 -I. -DMEMLORD_SHIM -include memlord.h -c examples/embed/run.c -o run.o
        cc run.o at_exit.o memlord.o -o run -lm -pthread
        MEMLORD_APP_REPORT=report.html ./run model.bin tokenizer.bin "once upon a time"

    Or write two lines after the last #include of the program itself:

        #define MEMLORD_SHIM
        #include "memlord.h"

    The macros see the calls of the files compiled so, and no others. So a block that the C library
    allocates (strdup, getline) and this file frees is an unknown free, and one whose free is called
    through a pointer (`void (*end)(void *) = free`) stays live. With -include the C library's
    headers are read before the program's own #define _GNU_SOURCE: say -D_GNU_SOURCE in its place.
*/
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct {
    int dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, seq_len;
} Config;

typedef struct {
    float *embedding, *rms_att, *wq, *wk, *wv, *wo, *rms_ffn, *w1, *w2, *w3, *rms_final;
} Weights;

typedef struct {
    float *x, *xb, *xb2, *hb, *hb2, *q, *att, *logits, *key_cache, *value_cache;
} RunState;

typedef struct {
    Config config;
    Weights weights;
    RunState state;
    float *data;
    size_t file_size;
} Transformer;

typedef struct {
    char *str;
    int id;
} TokenIndex;

typedef struct {
    char **vocab;
    TokenIndex *sorted_vocab; /* made when it is first needed */
    int vocab_size, max_token_length;
} Tokenizer;

static void fail(const char *what) {
    fprintf(stderr, "run: %s\n", what);
    exit(EXIT_FAILURE);
}

static size_t kv_dim(const Config *p) { return (size_t)(p->dim / p->n_heads * p->n_kv_heads); }

static float *take(float **at, size_t n) {
    float *here = *at;
    *at += n;
    return here;
}

static void memory_map_weights(Weights *w, const Config *p, float *at) {
    size_t dim = (size_t)p->dim, hidden = (size_t)p->hidden_dim, layers = (size_t)p->n_layers;
    w->embedding = take(&at, (size_t)p->vocab_size * dim); /* the classifier, too */
    w->rms_att = take(&at, layers * dim);
    w->wq = take(&at, layers * dim * dim);
    w->wk = take(&at, layers * dim * kv_dim(p));
    w->wv = take(&at, layers * dim * kv_dim(p));
    w->wo = take(&at, layers * dim * dim);
    w->rms_ffn = take(&at, layers * dim);
    w->w1 = take(&at, layers * dim * hidden);
    w->w2 = take(&at, layers * dim * hidden);
    w->w3 = take(&at, layers * dim * hidden);
    w->rms_final = take(&at, dim);
}

static void read_checkpoint(const char *path, Transformer *t) {
    FILE *file = fopen(path, "rb");
    long size;
    int fd;
    if (!file || fread(&t->config, sizeof t->config, 1, file) != 1) fail("no model");
    fseek(file, 0, SEEK_END);
    size = ftell(file);
    fclose(file);
    t->file_size = (size_t)size;
    fd = open(path, O_RDONLY);
    t->data = mmap(NULL, t->file_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (t->data == MAP_FAILED) fail("mmap");
    close(fd);
    memory_map_weights(&t->weights, &t->config, t->data + sizeof t->config / sizeof(float));
}

static void malloc_run_state(RunState *s, const Config *p) {
    size_t dim = (size_t)p->dim, hidden = (size_t)p->hidden_dim;
    size_t cache = (size_t)p->n_layers * (size_t)p->seq_len * kv_dim(p);
    s->x = calloc(dim, sizeof(float));
    s->xb = calloc(dim, sizeof(float));
    s->xb2 = calloc(dim, sizeof(float));
    s->hb = calloc(hidden, sizeof(float));
    s->hb2 = calloc(hidden, sizeof(float));
    s->q = calloc(dim, sizeof(float));
    s->key_cache = calloc(cache, sizeof(float));
    s->value_cache = calloc(cache, sizeof(float));
    s->att = calloc((size_t)(p->n_heads * p->seq_len), sizeof(float));
    s->logits = calloc((size_t)p->vocab_size, sizeof(float));
    if (!s->x || !s->xb || !s->xb2 || !s->hb || !s->hb2 || !s->q || !s->key_cache ||
        !s->value_cache || !s->att || !s->logits)
        fail("malloc");
}

static void free_transformer(Transformer *t) {
    RunState *s = &t->state;
    munmap(t->data, t->file_size);
    free(s->x);
    free(s->xb);
    free(s->xb2);
    free(s->hb);
    free(s->hb2);
    free(s->q);
    free(s->att);
    free(s->logits);
    free(s->key_cache);
    free(s->value_cache);
}

/* -- the network -- */

static void rmsnorm(float *out, const float *x, const float *weight, int n) {
    float sum = 0;
    for (int i = 0; i < n; i++) sum += x[i] * x[i];
    sum = 1 / sqrtf(sum / (float)n + 1e-5f);
    for (int i = 0; i < n; i++) out[i] = weight[i] * (sum * x[i]);
}
static void softmax(float *x, int n) {
    float most = x[0], sum = 0;
    for (int i = 1; i < n; i++) most = x[i] > most ? x[i] : most;
    for (int i = 0; i < n; i++) sum += x[i] = expf(x[i] - most);
    for (int i = 0; i < n; i++) x[i] /= sum;
}
static void matmul(float *out, const float *x, const float *w, size_t n, size_t rows) {
    for (size_t i = 0; i < rows; i++) {
        out[i] = 0;
        for (size_t k = 0; k < n; k++) out[i] += w[i * n + k] * x[k];
    }
}

static void attend(const Config *p, RunState *s, const float *keys, const float *values, int pos) {
    const int head = p->dim / p->n_heads, shared = p->n_heads / p->n_kv_heads;
    const size_t kv = kv_dim(p);
    memset(s->xb, 0, (size_t)p->dim * sizeof(float));
    for (int h = 0; h < p->n_heads; h++) {
        float *att = s->att + h * p->seq_len, *out = s->xb + h * head;
        const float *q = s->q + h * head;
        for (int t = 0; t <= pos; t++) {
            const float *k = keys + (size_t)t * kv + h / shared * head;
            att[t] = 0;
            for (int i = 0; i < head; i++) att[t] += q[i] * k[i] / sqrtf((float)head);
        }
        softmax(att, pos + 1);
        for (int t = 0; t <= pos; t++) {
            const float *v = values + (size_t)t * kv + h / shared * head;
            for (int i = 0; i < head; i++) out[i] += att[t] * v[i];
        }
    }
}

static float *forward(Transformer *t, int token, int pos) {
    const Config *p = &t->config;
    const Weights *w = &t->weights;
    RunState *s = &t->state;
    const size_t dim = (size_t)p->dim, hidden = (size_t)p->hidden_dim, kv = kv_dim(p);
    memcpy(s->x, w->embedding + (size_t)token * dim, dim * sizeof(float));
    for (size_t l = 0; l < (size_t)p->n_layers; l++) {
        float *keys = s->key_cache + l * (size_t)p->seq_len * kv;
        float *values = s->value_cache + l * (size_t)p->seq_len * kv;
        rmsnorm(s->xb, s->x, w->rms_att + l * dim, p->dim);
        matmul(s->q, s->xb, w->wq + l * dim * dim, dim, dim);
        matmul(keys + (size_t)pos * kv, s->xb, w->wk + l * dim * kv, dim, kv);
        matmul(values + (size_t)pos * kv, s->xb, w->wv + l * dim * kv, dim, kv);
        attend(p, s, keys, values, pos);
        matmul(s->xb2, s->xb, w->wo + l * dim * dim, dim, dim);
        for (size_t i = 0; i < dim; i++) s->x[i] += s->xb2[i];
        rmsnorm(s->xb, s->x, w->rms_ffn + l * dim, p->dim);
        matmul(s->hb, s->xb, w->w1 + l * dim * hidden, dim, hidden);
        matmul(s->hb2, s->xb, w->w3 + l * dim * hidden, dim, hidden);
        for (size_t i = 0; i < hidden; i++) s->hb[i] *= s->hb2[i] / (1 + expf(-s->hb[i]));
        matmul(s->xb, s->hb, w->w2 + l * dim * hidden, hidden, dim);
        for (size_t i = 0; i < dim; i++) s->x[i] += s->xb[i];
    }
    rmsnorm(s->x, s->x, w->rms_final, p->dim);
    matmul(s->logits, s->x, w->embedding, dim, (size_t)p->vocab_size);
    return s->logits;
}

/* -- the tokenizer -- */

static void build_tokenizer(Tokenizer *t, const char *path, int vocab_size) {
    FILE *file = fopen(path, "rb");
    int length;
    t->vocab_size = vocab_size;
    t->sorted_vocab = NULL;
    t->vocab = malloc((size_t)vocab_size * sizeof(char *));
    if (!t->vocab || !file || fread(&t->max_token_length, sizeof(int), 1, file) != 1)
        fail("no tokenizer");
    for (int i = 0; i < vocab_size; i++) {
        if (fread(&length, sizeof length, 1, file) != 1) fail("a short tokenizer");
        t->vocab[i] = malloc((size_t)length + 1);
        if (!t->vocab[i] || fread(t->vocab[i], (size_t)length, 1, file) != 1) fail("a bad token");
        t->vocab[i][length] = 0;
    }
    fclose(file);
}

static void free_tokenizer(Tokenizer *t) {
    for (int i = 0; i < t->vocab_size; i++) free(t->vocab[i]);
    free(t->vocab);
    free(t->sorted_vocab);
}

static int compare_tokens(const void *a, const void *b) {
    return strcmp(((const TokenIndex *)a)->str, ((const TokenIndex *)b)->str);
}

/* Takes the longest token each time; what none begins with is left out. Returns how many. */
static int encode(Tokenizer *t, const char *text, int *tokens) {
    const size_t longest = (size_t)t->max_token_length;
    char *str_buffer = malloc(longest + 1);
    int n = 0;
    if (!t->sorted_vocab) {
        t->sorted_vocab = malloc((size_t)t->vocab_size * sizeof(TokenIndex));
        if (!t->sorted_vocab) fail("malloc");
        for (int i = 0; i < t->vocab_size; i++)
            t->sorted_vocab[i].str = t->vocab[i], t->sorted_vocab[i].id = i;
        qsort(t->sorted_vocab, (size_t)t->vocab_size, sizeof(TokenIndex), compare_tokens);
    }
    if (!str_buffer) fail("malloc");
    tokens[n++] = 0; /* the beginning */
    while (*text) {
        TokenIndex key = {str_buffer, 0}, *found = NULL;
        size_t length = strlen(text) < longest ? strlen(text) : longest;
        for (; length && !found; length--) {
            memcpy(str_buffer, text, length);
            str_buffer[length] = 0;
            found = bsearch(&key, t->sorted_vocab, (size_t)t->vocab_size, sizeof key,
                            compare_tokens);
            if (found) tokens[n++] = found->id, text += length;
        }
        if (!found) text++;
    }
    free(str_buffer);
    return n;
}

int main(int argc, char **argv) {
    Transformer transformer;
    Tokenizer tokenizer;
    int *prompt_tokens, n, token;
    if (argc != 4) fail("usage: run MODEL TOKENIZER PROMPT");
    read_checkpoint(argv[1], &transformer);
    malloc_run_state(&transformer.state, &transformer.config);
    build_tokenizer(&tokenizer, argv[2], transformer.config.vocab_size);
    prompt_tokens = malloc((strlen(argv[3]) + 1) * sizeof(int));
    if (!prompt_tokens) fail("malloc");
    n = encode(&tokenizer, argv[3], prompt_tokens);
    token = prompt_tokens[0];
    for (int pos = 0; pos < transformer.config.seq_len; pos++) {
        const float *logits = forward(&transformer, token, pos);
        int next = 0;
        for (int i = 1; i < transformer.config.vocab_size; i++)
            if (logits[i] > logits[next]) next = i;
        token = pos + 1 < n ? prompt_tokens[pos + 1] : next;
        printf("%s", tokenizer.vocab[token]);
    }
    printf("\n");
    free(prompt_tokens);
    free_tokenizer(&tokenizer);
    free_transformer(&transformer);
    return 0;
}
