/* Builds answers: their memory, texts, sentences and tables. Owns mlr_build, the answers in the
   making with what their rules share. Invariant: once memory lacked, `failed` is 1, and texts,
   sentences and rows may still be written. Locks: none. */
#ifndef MLR_ANSWERS_BUILD_H
#define MLR_ANSWERS_BUILD_H
#include "answers/answers.h"

#define MLR_COLUMNS 24 /* the most columns of a table */

/* A place that allocates on a device: the function that answers name. Several sites may be one
   place, and a site in a wrapper is the places that call it. */
typedef struct mlr_place {
    uint32_t device, frame;
    uint32_t sites; /* how many sites are here, whole or in part */
    uint32_t site;  /* one of them */
    int whole;      /* 1: it is exactly one site, so its peak is known */
    int in;         /* 1: it is asked for */
    uint64_t live, blocks, peak, peak_error, at_peak; /* peak: MLR_UNKNOWN if not whole */
    uint64_t allocs, alloc_bytes, frees, temporaries; /* frees: of blocks */
} mlr_place;

typedef struct mlr_build {
    mlr_profile *profile;
    mlr_answers *answers;
    mlr_options options;
    int failed;
    uint32_t top;   /* the most rows of a table */
    uint64_t bytes; /* all bytes: of each device the peak or what is live */
    uint32_t sentence_room;
    uint64_t *device_live, *device_blocks; /* by number of the device: as far as asked for */
    mlr_place *place;                      /* answers/places.h */
    uint32_t places;
    uint32_t *site_place;               /* by number of the site: its place, from 1 */
    uint32_t *place_stack, *stack_next; /* by place, by stack: the next stack there, or 0 */
    uint32_t *stack_place;              /* by number of the stack */
    unsigned char *device_in, *tag_in;  /* by number: 1: it is asked for. tag_in[0]: no tag */
    int narrow;                         /* 1: not all tags, places or modules are asked for */
    int by_tag;                         /* 1: not all tags are asked for */
    uint64_t *tag_live;  /* by number: live bytes as far as asked for; tag_live[0]: not used
                            unless something is left out */
    uint64_t *bare_live; /* by number of the device: those of them without a tag */
    uint64_t *place_live, *place_blocks; /* by number of the place */
    unsigned char *place_grows;          /* by number: 1: the place grows now; NULL: no snapshots */
    mlr_cell scratch[MLR_COLUMNS];       /* a row for which there is no memory */
    mlr_sentence no_sentence;            /* a sentence for which there is none */
} mlr_build;

/* Returns zeroed memory that lives as long as the profile, or NULL. */
MLR_PRIVATE void *mlr_build_alloc(mlr_build *b, size_t count, size_t size);

/* -- texts -- */

#define MLR_NAME_MOST 48 /* a longer name is cut in texts */

typedef struct mlr_words { /* a text in the making */
    mlr_build *b;
    char *at;
    size_t used, room;
} mlr_words;
/* Adds by a format of its own, whose conversions are: %s a constant text; %n a name, which is cut
   if it is long; %u a uint64_t with commas; %b a uint64_t as bytes; %d as a duration; %t as the
   time of day of nanoseconds since the start; %x in hexadecimal; %g two uint64_t, as the share that
   the first has of the second; %p a uint32_t, the number of a frame, as its place; %v a uint32_t,
   the number of a device; %% a percent sign. */
MLR_PRIVATE void mlr_words_add(mlr_words *w, const char *form, ...);
/* Returns the text in memory of the profile, and empties the words. */
MLR_PRIVATE const char *mlr_words_end(mlr_words *w);
/* The same for a text that is made at once. */
MLR_PRIVATE const char *mlr_text_make(mlr_build *b, const char *form, ...);

/* Returns "function file.c:12", "file.c:12" or "module+0x1f". */
MLR_PRIVATE const char *mlr_place_name(mlr_build *b, uint32_t frame);
/* Returns the name of a device, or "all" for 0. */
MLR_PRIVATE const char *mlr_device_name(const mlr_profile *p, uint32_t device);
/* Returns the name of a tag, or "(untagged)" for 0. */
MLR_PRIVATE const char *mlr_tag_name(const mlr_profile *p, uint32_t tag);

/* -- sentences -- */

/* Adds a sentence whose text is what `w` has. */
MLR_PRIVATE mlr_sentence *mlr_say(mlr_build *b, mlr_says kind, uint32_t device, uint64_t bytes,
                                  mlr_words *w);
MLR_PRIVATE const char *mlr_says_head(mlr_says kind);
/* Adds a line to a sentence. */
MLR_PRIVATE void mlr_say_more(mlr_build *b, mlr_sentence *s, const char *line);

/* -- tables -- */

/* Begins a table. Its columns live as long as the program. */
MLR_PRIVATE mlr_table *mlr_table_begin(mlr_build *b, mlr_table_id id, const mlr_column *column,
                                       uint32_t columns);
/* Adds a row with unknown numbers and empty texts, and returns its first cell, which moves when the
   next row is added. */
MLR_PRIVATE mlr_cell *mlr_row_add(mlr_build *b, mlr_table *t, uint32_t frame);

/* A list to be ordered: the largest key first, then the lowest number. */
typedef struct mlr_ranked {
    uint64_t key;
    uint32_t number;
} mlr_ranked;
MLR_PRIVATE void mlr_rank(mlr_ranked *list, uint32_t n);

/* Arithmetic that saturates. */
MLR_PRIVATE uint64_t mlr_less(uint64_t a, uint64_t b); /* a - b, or 0 */
MLR_PRIVATE uint64_t mlr_more(uint64_t a, uint64_t b); /* a + b, at most UINT64_MAX - 1 */
/* Tenths of a percent; MLR_UNKNOWN if whole is 0. */
MLR_PRIVATE uint64_t mlr_share(uint64_t part, uint64_t whole);

#endif
