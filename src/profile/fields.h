/* Fills structures of a profile from JSON, by tables of their members. Owns mlr_reader, what one
   reading has: the first failure, the texts read so far, and maps from names to rows. Invariants:
   after a failure nothing more is read; a number of a row is within its list. Locks: none. */
#ifndef MLR_PROFILE_FIELDS_H
#define MLR_PROFILE_FIELDS_H
#include "profile/json.h"
#include "profile/read.h"

/* A map from up to five numbers, or addresses of texts that the reader keeps, to a number of a row.
   The first word names what the others are. */
enum {
    MLR_MAP_MODULE,
    MLR_MAP_FRAME,
    MLR_MAP_NODE,
    MLR_MAP_SITE,
    MLR_MAP_TAG,
    MLR_MAP_SCOPE,
    MLR_MAP_EVENT
};
typedef struct mlr_key {
    uint64_t word[6];
} mlr_key;
typedef struct mlr_map_entry {
    mlr_key key;
    uint32_t row; /* 0: the entry is free */
} mlr_map_entry;
typedef struct mlr_text_entry {
    const char *text; /* NULL: the entry is free */
    size_t size;
    uint64_t hash;
} mlr_text_entry;

typedef struct mlr_reader {
    mlr_profile *profile;
    const mlr_json *root;
    const char *path;
    mlr_result result;
    char *message;
    size_t room; /* of the message */
    mlr_text_entry *text;
    size_t text_used, text_cap; /* cap: 0, or a power of 2 */
    mlr_map_entry *map;
    size_t map_used, map_cap;
    char *scratch; /* for a text that is not in the arena yet */
    size_t scratch_size;
    uint32_t frame_room, module_room, device_room; /* of the lists that grow */
    const char **string; /* the list "strings" of an older profile, when an event needs it */
    uint32_t strings;
} mlr_reader;

/* Notes the first failure. The message gets the name of the file in front. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
MLR_PRIVATE void
mlr_reader_fail(mlr_reader *r, mlr_result result, const char *form, ...);
MLR_PRIVATE void mlr_reader_close(mlr_reader *r);

/* Returns memory of the profile, zeroed. Returns NULL, and the reader has failed, if there is
   none. */
MLR_PRIVATE void *mlr_reader_alloc(mlr_reader *r, size_t count, size_t size);
/* Returns a list with room for one more row: `list` or, if it is full, a copy. */
MLR_PRIVATE void *mlr_reader_grow(mlr_reader *r, void *list, uint32_t count, uint32_t *room,
                                  size_t size);

/* Returns the only copy of a text; "" if it is not a text. Never NULL. */
MLR_PRIVATE const char *mlr_reader_text(mlr_reader *r, const mlr_json *text);
MLR_PRIVATE const char *mlr_reader_text_of(mlr_reader *r, const char *text, size_t size);

/* Returns the row of a key, or 0. */
MLR_PRIVATE uint32_t mlr_reader_find(const mlr_reader *r, const mlr_key *key);
/* Gives a key its row, if it has none. */
MLR_PRIVATE void mlr_reader_name(mlr_reader *r, const mlr_key *key, uint32_t row);
MLR_PRIVATE mlr_key mlr_key_of(int kind, uint64_t a, uint64_t b, uint64_t c);
MLR_PRIVATE uint64_t mlr_key_text(const char *text); /* of a text of the reader */

/* Returns the number of a device, which is added if its name is new. Fails for what names none. */
MLR_PRIVATE uint32_t mlr_reader_device(mlr_reader *r, const mlr_json *value);

/* -- tables of members -- */

typedef enum mlr_field_kind {
    MLR_FIELD_U64,
    MLR_FIELD_U32,
    MLR_FIELD_I64,
    MLR_FIELD_KNOWN,  /* a uint64_t: MLR_UNKNOWN where it is null or missing */
    MLR_FIELD_CHANGE, /* an int64_t: INT64_MIN where it is null or missing */
    MLR_FIELD_FLAG,   /* an int: 1 for true and for numbers above 0 */
    MLR_FIELD_TEXT,
    MLR_FIELD_SHAPE,  /* a text of the numbers of an array: "[4096,128]" */
    MLR_FIELD_HEX,    /* a uint64_t from "0x1f" */
    MLR_FIELD_DEVICE, /* the number of a device, given as a number or a name */
    MLR_FIELD_MODULE, /* these are numbers of rows */
    MLR_FIELD_FRAME,
    MLR_FIELD_TAG,
    MLR_FIELD_SITE,
    MLR_FIELD_NODE,
    MLR_FIELD_STACK,
    MLR_FIELD_SCOPE
} mlr_field_kind;

typedef struct mlr_field {
    const char *key;
    unsigned short at; /* the member's offset */
    unsigned char kind;
} mlr_field;
#define MLR_FIELD(type, kind, member, key)                                                         \
    { key, offsetof(type, member), MLR_FIELD_##kind }

/* Fills a row from an object. */
MLR_PRIVATE void mlr_fields_read(mlr_reader *r, const mlr_json *object, const mlr_field *fields,
                                 size_t count, void *row);
/* Fills a member from a value; NULL: it is missing. */
MLR_PRIVATE void mlr_field_read(mlr_reader *r, const mlr_json *value, const mlr_field *field,
                                void *row);

typedef struct mlr_rows {
    void *list;
    uint32_t count;
} mlr_rows;
/* Returns the rows of an array of objects; none if `list` is NULL. */
MLR_PRIVATE mlr_rows mlr_rows_read(mlr_reader *r, const char *name, const mlr_json *list,
                                   const mlr_field *fields, size_t count, size_t size);
/* Returns the rows of {"columns":[...],"rows":[[...],...]}; none if `table` is NULL. */
MLR_PRIVATE mlr_rows mlr_columns_read(mlr_reader *r, const char *name, const mlr_json *table,
                                      const mlr_field *fields, size_t count, size_t size);
#define MLR_COUNT(list) (sizeof(list) / sizeof *(list))

/* Returns the integer of an item of a row that is an array; 0 for NULL and null. */
MLR_PRIVATE uint64_t mlr_reader_u64(mlr_reader *r, const mlr_json *value);
MLR_PRIVATE int64_t mlr_reader_i64(mlr_reader *r, const mlr_json *value);
/* Returns a number of a row of a list that has `count` rows. */
MLR_PRIVATE uint32_t mlr_reader_row(mlr_reader *r, const mlr_json *value, uint32_t count,
                                    const char *what);
/* Fills size classes from [[from,blocks],...] or [{"from":n,"blocks":n},...]. */
MLR_PRIVATE void mlr_reader_sizes(mlr_reader *r, const mlr_json *list, mlr_sizes *sizes);
/* Fills pairs of a row of `most` and its bytes from [[row,bytes],...]. Returns how many. */
MLR_PRIVATE uint32_t mlr_reader_held(mlr_reader *r, const mlr_json *list, uint32_t most,
                                     const char *what, mlr_held **out);

#endif
