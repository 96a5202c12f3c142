/* Reads JSON (RFC 8259) into a list of values that point into the text. Owns no state. Invariants:
   values nest at most MLR_JSON_DEPTH deep; a text that this module returns is valid UTF-8 without a
   NUL. Locks: none. The text outlives its values. */
#ifndef MLR_PROFILE_JSON_H
#define MLR_PROFILE_JSON_H
#include "profile/profile.h"

#define MLR_JSON_DEPTH 64
#define MLR_JSON_MOST  ((size_t)1 << 30) /* bytes of a text */

typedef enum mlr_json_kind {
    MLR_JSON_NULL,
    MLR_JSON_FALSE,
    MLR_JSON_TRUE,
    MLR_JSON_U64,  /* an integer from 0 to UINT64_MAX */
    MLR_JSON_I64,  /* an integer from INT64_MIN to -1 */
    MLR_JSON_REAL, /* any other number; may be infinite */
    MLR_JSON_TEXT,
    MLR_JSON_ARRAY,
    MLR_JSON_OBJECT
} mlr_json_kind;

/* A value. The items of an array follow it, and so do the members of an object: for each its key,
   which is a text, and its value. */
typedef struct mlr_json {
    unsigned char kind; /* an mlr_json_kind */
    unsigned char raw;  /* of a text: 1 if it is written here as it reads */
    uint32_t size;      /* how many bytes, items or members */
    union {
        uint64_t u;
        int64_t i;
        double real;
        const char *text; /* between its quotes, with its escapes */
        uint64_t values;  /* of an array or object: how many values are in it, at any depth */
    } of;
} mlr_json;

typedef struct mlr_json_error {
    const char *what; /* such as "a string has no end"; NULL: there is no memory */
    size_t line;      /* from 1 */
} mlr_json_error;

/* Returns the value of a text, or NULL and why. The caller frees it with free(). */
MLR_PRIVATE mlr_json *mlr_json_read(const char *text, size_t size, mlr_json_error *error);

/* Returns the value behind `value` and all that is in it. */
MLR_PRIVATE const mlr_json *mlr_json_next(const mlr_json *value);
/* Returns the member of an object: the first one, if several have the key. Returns NULL if there is
   none, or if `object` is NULL or no object. */
MLR_PRIVATE const mlr_json *mlr_json_get(const mlr_json *object, const char *key);
/* Returns the first item of an array or the value of the first member of an object; NULL if there
   is none, or if `list` is NULL or neither of them. */
MLR_PRIVATE const mlr_json *mlr_json_first(const mlr_json *list);
/* Returns the item or member behind `item`, or NULL. The key of a member is at item[-1]. */
MLR_PRIVATE const mlr_json *mlr_json_after(const mlr_json *list, const mlr_json *item);
#define MLR_JSON_EACH(item, list)                                                                  \
    for (item = mlr_json_first(list); item; item = mlr_json_after(list, item))

/* These return 1 if the value is an integer that *out can hold. */
MLR_PRIVATE int mlr_json_u64(const mlr_json *value, uint64_t *out);
MLR_PRIVATE int mlr_json_i64(const mlr_json *value, int64_t *out);

/* Writes a text and a NUL. U+FFFD and two digits replace each byte that is not UTF-8, and each NUL;
   U+FFFD replaces half a surrogate. Returns its length. `to` NULL: returns only the length. */
MLR_PRIVATE size_t mlr_json_text(const mlr_json *text, char *to);

#endif
