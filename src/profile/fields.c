#include "profile/fields.h"
#include "profile/arena.h"
#include "profile/text.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES_MOST = 4096, TEXTS_FIRST = 4096 };

/* -- failures and memory -- */

MLR_PRIVATE void mlr_reader_fail(mlr_reader *r, mlr_result result, const char *form, ...) {
    va_list args;
    int n;
    if (r->result != MLR_OK) return;
    r->result = result;
    if (!r->room) return;
    n = snprintf(r->message, r->room, "%s: ", r->path);
    if (n < 0 || (size_t)n >= r->room) return;
    va_start(args, form);
    (void)vsnprintf(r->message + n, r->room - (size_t)n, form, args);
    va_end(args);
}
static void *checked(mlr_reader *r, void *memory) {
    if (!memory) mlr_reader_fail(r, MLR_E_NOMEM, "out of memory");
    return memory;
}
MLR_PRIVATE void mlr_reader_close(mlr_reader *r) {
    free(r->text);
    free(r->map);
    free(r->scratch);
}

MLR_PRIVATE void *mlr_reader_alloc(mlr_reader *r, size_t count, size_t size) {
    return checked(r, mlr_arena_alloc(r->profile->arena, count ? count : 1, size));
}
MLR_PRIVATE void *mlr_reader_grow(mlr_reader *r, void *list, uint32_t count, uint32_t *room,
                                  size_t size) {
    void *more;
    if (count < *room) return list;
    more = mlr_reader_alloc(r, *room ? (size_t)*room * 2 : 64, size);
    if (!more) return NULL;
    *room = *room ? *room * 2 : 64;
    if (count) memcpy(more, list, count * size);
    return more;
}

/* -- texts: each is kept once -- */

static uint64_t hash_of(const char *text, size_t size) {
    uint64_t hash = size;
    size_t i;
    for (i = 0; i < size; i++) hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3u;
    return (hash ^ hash >> 31) * 0x9e3779b97f4a7c15u;
}
static mlr_text_entry *text_entry(mlr_text_entry *table, size_t cap, const char *text, size_t size,
                                  uint64_t hash) {
    size_t at = (size_t)(hash >> 20) & (cap - 1);
    for (; table[at].text; at = (at + 1) & (cap - 1))
        if (table[at].hash == hash && table[at].size == size && !memcmp(table[at].text, text, size))
            break;
    return &table[at];
}
static int texts_grow(mlr_reader *r) {
    const size_t cap = r->text_cap ? r->text_cap * 2 : TEXTS_FIRST;
    mlr_text_entry *table;
    size_t i;
    if (r->text_used * 2 < r->text_cap) return 1;
    table = (mlr_text_entry *)checked(r, calloc(cap, sizeof *table));
    if (!table) return 0;
    for (i = 0; i < r->text_cap; i++) {
        const mlr_text_entry *e = &r->text[i];
        if (e->text) *text_entry(table, cap, e->text, e->size, e->hash) = *e;
    }
    free(r->text);
    r->text = table;
    r->text_cap = cap;
    return 1;
}
MLR_PRIVATE const char *mlr_reader_text_of(mlr_reader *r, const char *text, size_t size) {
    const uint64_t hash = hash_of(text, size);
    mlr_text_entry *e;
    if (!size || !texts_grow(r)) return "";
    e = text_entry(r->text, r->text_cap, text, size, hash);
    if (e->text) return e->text;
    text = (const char *)checked(r, (void *)(uintptr_t)mlr_profile_text(r->profile, text, size));
    if (!text) return "";
    r->text_used++;
    e->text = text;
    e->size = size;
    e->hash = hash;
    return text;
}
MLR_PRIVATE const char *mlr_reader_text(mlr_reader *r, const mlr_json *text) {
    size_t size;
    if (!text || text->kind != MLR_JSON_TEXT) return "";
    if (text->raw) return mlr_reader_text_of(r, text->of.text, text->size);
    size = mlr_json_text(text, NULL) + 1;
    if (size > r->scratch_size) {
        free(r->scratch);
        r->scratch_size = 0;
        r->scratch = (char *)checked(r, malloc(size));
        if (!r->scratch) return "";
        r->scratch_size = size;
    }
    return mlr_reader_text_of(r, r->scratch, mlr_json_text(text, r->scratch));
}

/* -- maps -- */

MLR_PRIVATE uint64_t mlr_key_text(const char *text) {
    return *text ? (uint64_t)(uintptr_t)text : 0;
}
MLR_PRIVATE mlr_key mlr_key_of(int kind, uint64_t a, uint64_t b, uint64_t c) {
    mlr_key key;
    memset(&key, 0, sizeof key);
    key.word[0] = (uint64_t)kind;
    key.word[1] = a;
    key.word[2] = b;
    key.word[3] = c;
    return key;
}
static mlr_map_entry *map_entry(mlr_map_entry *table, size_t cap, const mlr_key *key) {
    uint64_t hash = 0;
    size_t i, at;
    for (i = 0; i < 6; i++) hash = (hash ^ key->word[i]) * 0x9e3779b97f4a7c15u ^ hash >> 29;
    for (at = (size_t)(hash >> 20) & (cap - 1); table[at].row; at = (at + 1) & (cap - 1))
        if (!memcmp(&table[at].key, key, sizeof *key)) break;
    return &table[at];
}
MLR_PRIVATE uint32_t mlr_reader_find(const mlr_reader *r, const mlr_key *key) {
    return r->map_cap ? map_entry(r->map, r->map_cap, key)->row : 0;
}
static int map_grow(mlr_reader *r) {
    const size_t cap = r->map_cap ? r->map_cap * 2 : TEXTS_FIRST;
    mlr_map_entry *table;
    size_t i;
    if (r->map_used * 2 < r->map_cap) return 1;
    table = (mlr_map_entry *)checked(r, calloc(cap, sizeof *table));
    if (!table) return 0;
    for (i = 0; i < r->map_cap; i++)
        if (r->map[i].row) *map_entry(table, cap, &r->map[i].key) = r->map[i];
    free(r->map);
    r->map = table;
    r->map_cap = cap;
    return 1;
}
MLR_PRIVATE void mlr_reader_name(mlr_reader *r, const mlr_key *key, uint32_t row) {
    mlr_map_entry *e;
    if (!map_grow(r)) return;
    e = map_entry(r->map, r->map_cap, key);
    if (e->row) return;
    e->key = *key;
    e->row = row;
    r->map_used++;
}

/* -- numbers -- */

static const mlr_json *number_of(const mlr_json *value) {
    return value && value->kind != MLR_JSON_NULL ? value : NULL;
}
MLR_PRIVATE uint64_t mlr_reader_u64(mlr_reader *r, const mlr_json *value) {
    uint64_t v = 0;
    if (number_of(value) && !mlr_json_u64(value, &v))
        mlr_reader_fail(r, MLR_E_INVALID, "has a value that is no count or number of bytes");
    return v;
}
MLR_PRIVATE int64_t mlr_reader_i64(mlr_reader *r, const mlr_json *value) {
    int64_t v = 0;
    if (number_of(value) && (!mlr_json_i64(value, &v) || v == INT64_MIN))
        mlr_reader_fail(r, MLR_E_INVALID, "has a value that is no change of bytes");
    return v;
}
MLR_PRIVATE uint32_t mlr_reader_row(mlr_reader *r, const mlr_json *value, uint32_t count,
                                    const char *what) {
    const uint64_t row = mlr_reader_u64(r, value);
    if (row <= count) return (uint32_t)row;
    mlr_reader_fail(r, MLR_E_INVALID, "names %s %llu of %lu", what, (unsigned long long)row,
                    (unsigned long)count);
    return 0;
}

/* Returns the device of a name, which is added if it is new. */
static uint32_t device_named(mlr_reader *r, const char *name) {
    mlr_profile *p = r->profile;
    mlr_device *list;
    uint32_t i;
    for (i = 0; i < p->device_count; i++)
        if (p->device[i].name == name) return i + 1;
    if (p->device_count == DEVICES_MOST)
        mlr_reader_fail(r, MLR_E_INVALID, "has more than %d devices", DEVICES_MOST);
    list = r->result != MLR_OK ? NULL
                               : (mlr_device *)mlr_reader_grow(r, p->device, p->device_count,
                                                               &r->device_room, sizeof *list);
    if (!list) return 1;
    p->device = list;
    list[p->device_count].name = name;
    list[p->device_count].label = "";
    list[p->device_count].stats.largest_free = MLR_UNKNOWN;
    return ++p->device_count;
}
MLR_PRIVATE uint32_t mlr_reader_device(mlr_reader *r, const mlr_json *value) {
    uint32_t row = 0;
    if (value && value->kind == MLR_JSON_TEXT && value->size)
        return device_named(r, mlr_reader_text(r, value));
    if (value) row = mlr_reader_row(r, value, r->profile->device_count, "device");
    if (!row) mlr_reader_fail(r, MLR_E_INVALID, "has a row that is of no device");
    return row ? row : 1;
}

/* -- members -- */

/* Returns the text of a shape, "[4096,128]"; "" for one without numbers. */
static const char *shape_read(mlr_reader *r, const mlr_json *value) {
    char text[512];
    size_t used = 0;
    const mlr_json *item;
    MLR_JSON_EACH(item, value) {
        if (used + 24 > sizeof text) break; /* no tensor has so many dimensions */
        used += (size_t)snprintf(text + used, sizeof text - used, "%c%lld", used ? ',' : '[',
                                 (long long)mlr_reader_i64(r, item));
    }
    if (used) text[used++] = ']';
    return mlr_reader_text_of(r, text, used);
}
static uint64_t hex_read(mlr_reader *r, const mlr_json *value) {
    const char *text = mlr_reader_text(r, value);
    char *end;
    unsigned long long v;
    if (!*text) return mlr_reader_u64(r, value);
    v = strtoull(text, &end, 16);
    if (*end) mlr_reader_fail(r, MLR_E_INVALID, "has an address that is no hexadecimal number");
    return v;
}
static int flag_read(const mlr_json *value) {
    if (!value) return 0;
    return value->kind == MLR_JSON_TRUE || (value->kind == MLR_JSON_U64 && value->of.u);
}
static uint32_t u32_read(mlr_reader *r, const mlr_json *value) {
    const uint64_t v = mlr_reader_u64(r, value);
    return v < UINT32_MAX ? (uint32_t)v : UINT32_MAX;
}
static uint32_t row_read(mlr_reader *r, const mlr_json *value, unsigned kind) {
    const mlr_profile *p = r->profile;
    switch (kind) {
    case MLR_FIELD_MODULE: return mlr_reader_row(r, value, p->module_count, "module");
    case MLR_FIELD_FRAME: return mlr_reader_row(r, value, p->frame_count, "frame");
    case MLR_FIELD_TAG: return mlr_reader_row(r, value, p->tag_count, "tag");
    case MLR_FIELD_SITE: return mlr_reader_row(r, value, p->site_count, "site");
    case MLR_FIELD_NODE: return mlr_reader_row(r, value, p->node_count, "node");
    case MLR_FIELD_STACK: return mlr_reader_row(r, value, p->stack_count, "stack");
    default: return mlr_reader_row(r, value, p->scope_count, "scope");
    }
}
MLR_PRIVATE void mlr_field_read(mlr_reader *r, const mlr_json *value, const mlr_field *field,
                                void *row) {
    void *at = (char *)row + field->at;
    switch (field->kind) {
    case MLR_FIELD_U64: *(uint64_t *)at = mlr_reader_u64(r, value); break;
    case MLR_FIELD_U32: *(uint32_t *)at = u32_read(r, value); break;
    case MLR_FIELD_I64: *(int64_t *)at = mlr_reader_i64(r, value); break;
    case MLR_FIELD_KNOWN:
        *(uint64_t *)at = number_of(value) ? mlr_reader_u64(r, value) : MLR_UNKNOWN;
        break;
    case MLR_FIELD_CHANGE:
        *(int64_t *)at = number_of(value) ? mlr_reader_i64(r, value) : INT64_MIN;
        break;
    case MLR_FIELD_FLAG: *(int *)at = flag_read(value); break;
    case MLR_FIELD_TEXT: *(const char **)at = mlr_reader_text(r, value); break;
    case MLR_FIELD_SHAPE: *(const char **)at = shape_read(r, value); break;
    case MLR_FIELD_HEX: *(uint64_t *)at = hex_read(r, value); break;
    case MLR_FIELD_DEVICE: *(uint32_t *)at = mlr_reader_device(r, value); break;
    default: *(uint32_t *)at = row_read(r, value, field->kind);
    }
}
MLR_PRIVATE void mlr_fields_read(mlr_reader *r, const mlr_json *object, const mlr_field *fields,
                                 size_t count, void *row) {
    size_t i;
    for (i = 0; i < count && r->result == MLR_OK; i++)
        mlr_field_read(r, mlr_json_get(object, fields[i].key), &fields[i], row);
}

/* -- lists -- */

/* Returns room for the rows of a list; none, and the reader fails, if it is no array. */
static mlr_rows rows_make(mlr_reader *r, const char *name, const mlr_json *list, size_t size) {
    mlr_rows rows = {NULL, 0};
    if (!number_of(list) || r->result != MLR_OK) return rows;
    if (list->kind != MLR_JSON_ARRAY) {
        mlr_reader_fail(r, MLR_E_INVALID, "\"%s\" is no list", name);
        return rows;
    }
    rows.list = mlr_reader_alloc(r, list->size, size);
    rows.count = rows.list ? list->size : 0;
    return rows;
}
MLR_PRIVATE mlr_rows mlr_rows_read(mlr_reader *r, const char *name, const mlr_json *list,
                                   const mlr_field *fields, size_t count, size_t size) {
    const mlr_rows rows = rows_make(r, name, list, size);
    const mlr_json *item = rows.count ? mlr_json_first(list) : NULL;
    char *row = (char *)rows.list;
    for (; item && r->result == MLR_OK; item = mlr_json_after(list, item), row += size) {
        if (item->kind != MLR_JSON_OBJECT)
            mlr_reader_fail(r, MLR_E_INVALID, "\"%s\" has a row that is no object", name);
        mlr_fields_read(r, item, fields, count, row);
    }
    return rows;
}

enum { COLUMNS_MOST = 64 };

/* Finds the member of each column; NULL: no reader knows it. Returns how many columns there are. */
static uint32_t columns_of(mlr_reader *r, const mlr_json *names, const mlr_field *fields,
                           size_t count, const mlr_field **column) {
    const mlr_json *name;
    uint32_t n = 0;
    size_t i;
    MLR_JSON_EACH(name, names) {
        const char *key = mlr_reader_text(r, name);
        if (n == COLUMNS_MOST) break;
        column[n] = NULL;
        for (i = 0; i < count; i++)
            if (!strcmp(fields[i].key, key)) column[n] = &fields[i];
        n++;
    }
    return n;
}
/* Fills a row from an array. What its end lacks, and the columns that are not there, are missing.
 */
static void columns_row(mlr_reader *r, const mlr_json *item, const mlr_field *const *column,
                        uint32_t columns, void *row) {
    const mlr_json *value = mlr_json_first(item);
    uint32_t i;
    for (i = 0; i < columns; i++) {
        if (column[i]) mlr_field_read(r, value, column[i], row);
        value = value ? mlr_json_after(item, value) : NULL;
    }
}
/* Fills the members that no column has. */
static void columns_missing(mlr_reader *r, const mlr_field *fields, size_t count,
                            const mlr_field *const *column, uint32_t columns, void *row) {
    size_t i;
    uint32_t c;
    for (i = 0; i < count; i++) {
        if (fields[i].kind != MLR_FIELD_KNOWN && fields[i].kind != MLR_FIELD_DEVICE) continue;
        for (c = 0; c < columns && column[c] != &fields[i];) c++;
        if (c == columns) mlr_field_read(r, NULL, &fields[i], row);
    }
}
MLR_PRIVATE mlr_rows mlr_columns_read(mlr_reader *r, const char *name, const mlr_json *table,
                                      const mlr_field *fields, size_t count, size_t size) {
    const mlr_json *list = mlr_json_get(table, "rows");
    const mlr_rows rows = rows_make(r, name, list, size);
    const mlr_json *item = rows.count ? mlr_json_first(list) : NULL;
    const mlr_field *column[COLUMNS_MOST];
    const uint32_t columns = columns_of(r, mlr_json_get(table, "columns"), fields, count, column);
    char *row = (char *)rows.list;
    for (; item && r->result == MLR_OK; item = mlr_json_after(list, item), row += size) {
        if (item->kind != MLR_JSON_ARRAY)
            mlr_reader_fail(r, MLR_E_INVALID, "\"%s\" has a row that is no list", name);
        columns_missing(r, fields, count, column, columns, row);
        columns_row(r, item, column, columns, row);
    }
    return rows;
}

MLR_PRIVATE void mlr_reader_sizes(mlr_reader *r, const mlr_json *list, mlr_sizes *sizes) {
    const mlr_json *item;
    MLR_JSON_EACH(item, list) {
        const int pair = item->kind == MLR_JSON_ARRAY;
        const mlr_json *first = pair ? mlr_json_first(item) : mlr_json_get(item, "from");
        const mlr_json *blocks = !pair   ? mlr_json_get(item, "blocks")
                                 : first ? mlr_json_after(item, first)
                                         : NULL;
        uint64_t from = mlr_reader_u64(r, first);
        size_t k = 0;
        for (; from; from >>= 1) k++;
        sizes->blocks[k < MLR_SIZES ? k : MLR_SIZES - 1] += mlr_reader_u64(r, blocks);
    }
}
MLR_PRIVATE uint32_t mlr_reader_held(mlr_reader *r, const mlr_json *list, uint32_t most,
                                     const char *what, mlr_held **out) {
    const mlr_rows rows = rows_make(r, what, list, sizeof(mlr_held));
    const mlr_json *item = rows.count ? mlr_json_first(list) : NULL;
    mlr_held *held = *out = (mlr_held *)rows.list;
    for (; item; item = mlr_json_after(list, item), held++) {
        const mlr_json *first = mlr_json_first(item);
        held->row = mlr_reader_row(r, first, most, what);
        held->bytes = mlr_reader_u64(r, first ? mlr_json_after(item, first) : NULL);
    }
    return rows.count;
}
