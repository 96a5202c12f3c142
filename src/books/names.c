#include "books/names.h"
#include "base/atomics.h"
#include "base/memory.h"
#include "books/counters.h"

struct mli_names_state {
    mli_ptr index;
    mli_dict strings;            /* the table of kept strings; its items are mli_stb_string */
    uint64_t bytes;
    mli_ptr labels;              /* const char *: a kept string */
};

/* The index: hash tables from addresses to rows and records. Threads read the tables without a
   lock. Entries are added under the cold lock, and never removed or moved. The newest table takes
   entries until it is half full. Then a new table of four times its size, at most MLI_INDEX_MAX,
   becomes the newest. So growth copies nothing, and no call waits long for it. */
#define MLI_INDEX_MIN 64
#define MLI_INDEX_MAX ((uint64_t)1 << 18) /* the most pairs that a table has; they take 4 MiB */
typedef struct MLI_ALIGNED8 mli_index {
    uint64_t mask, count; /* mask + 1 pairs follow this struct; `count` of them are in use */
    struct mli_index *older;
} mli_index;
typedef struct mli_index_pair {
    mli_u64 key, value; /* a key of 0 means vacant; `value` is written before `key` */
} mli_index_pair;

/* -- memory under the cold lock -- */

MLI_PRIVATE MLI_COLD void *mli_cold_alloc(memlord *lord, size_t size) {
    mli_cold *cold = mli_process.cold;
    void *p = cold->size == size ? cold->block : NULL;
    if (p)
        cold->block = NULL;
    else if (size <= (size_t)1 << MLI_PIECE_MAX_BITS)
        p = mli_piece_new(lord, size);
    if (!p) cold->wanted = size;
    return p;
}

MLI_PRIVATE MLI_COLD void mli_cold_enter(mli_cold *cold) {
    mli_lock_take(&mli_process.cold_lock);
    mli_process.cold = cold;
}

MLI_PRIVATE MLI_COLD int mli_cold_leave(memlord *lord, mli_cold *cold) {
    mli_lock_drop(&mli_process.cold_lock);
    mli_own_free(lord, cold->block, cold->size); /* the block is still here if the retry did not
                                                    use it, because another thread did the same
                                                    work */
    cold->block = NULL;
    if (cold->r != MLI_AGAIN) return 0;
    cold->size = cold->wanted;
    cold->block = mli_own_alloc(lord, cold->size);
    if (!cold->block) cold->r = MEMLORD_E_NOMEM;
    return cold->block != NULL;
}

/* -- cold tables -- */

#define MLI_DICT_HEAD 16 /* this many bytes in front of each allocation for stb_ds hold its size */

/* Returns how many bytes of a block an allocation of `size` bytes takes, the head included. */
static size_t mli_dict_takes(size_t size) {
    return (size + MLI_DICT_HEAD + 15) & ~(size_t)15;
}

/* Allocates for stb_ds, from the first block of the table that it is changing
   (mli_process.growing). Cannot fail, because mli_dict_room_locked has reserved the memory. */
static MLI_COLD void *mli_stb_realloc(void *ptr, size_t size) {
    mli_dict *dict = mli_process.growing;
    char *fresh = (char *)dict->blocks + dict->blocks->size - dict->left + MLI_DICT_HEAD;
    dict->left -= mli_dict_takes(size);
    *(size_t *)(void *)(fresh - MLI_DICT_HEAD) = size;
    if (ptr) memcpy(fresh, ptr, *(size_t *)(void *)((char *)ptr - MLI_DICT_HEAD));
    return fresh;
}

/* The functions of stb_ds are static here, because the host may link its own copy. */
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wcast-qual"
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#endif
#ifdef __cplusplus
extern "C" {
#endif
#if defined(__clang__) /* a string block of stb_ds is longer than its member char storage[8] */
#define MLI_STB_PRIVATE static __attribute__((no_sanitize("bounds")))
#else
#define MLI_STB_PRIVATE static
#endif
MLI_STB_PRIVATE void stbds_rand_seed(size_t seed);
MLI_STB_PRIVATE size_t stbds_hash_bytes(void *p, size_t len, size_t seed);
MLI_STB_PRIVATE size_t stbds_hash_string(char *str, size_t seed);
MLI_STB_PRIVATE void *stbds_arrgrowf(void *a, size_t elemsize, size_t addlen, size_t min_cap);
MLI_STB_PRIVATE void stbds_arrfreef(void *a);
MLI_STB_PRIVATE void stbds_hmfree_func(void *p, size_t elemsize);
MLI_STB_PRIVATE void *stbds_hmget_key(void *a, size_t elemsize, void *key, size_t keysize,
                                      int mode);
MLI_STB_PRIVATE void *stbds_hmget_key_ts(void *a, size_t elemsize, void *key, size_t keysize,
                                         ptrdiff_t *temp, int mode);
MLI_STB_PRIVATE void *stbds_hmput_default(void *a, size_t elemsize);
MLI_STB_PRIVATE void *stbds_hmput_key(void *a, size_t elemsize, void *key, size_t keysize,
                                      int mode);
MLI_STB_PRIVATE void *stbds_hmdel_key(void *a, size_t elemsize, void *key, size_t keysize,
                                      size_t keyoffset, int mode);
MLI_STB_PRIVATE void *stbds_shmode_func(size_t elemsize, int mode);
struct stbds_string_arena; /* stb_ds defines the typedef of this struct, and C99 allows only one */
MLI_STB_PRIVATE char *stbds_stralloc(struct stbds_string_arena *a, char *str);
MLI_STB_PRIVATE void stbds_strreset(struct stbds_string_arena *a);
#ifdef __cplusplus
}
#endif

#define STB_DS_IMPLEMENTATION
#define STBDS_NO_SHORT_NAMES
#undef STBDS_REALLOC
#undef STBDS_FREE
#define STBDS_REALLOC(context, ptr, size) mli_stb_realloc(ptr, size)
#define STBDS_FREE(context, ptr) ((void)(ptr)) /* all memory is freed with the table */
#if !defined(MEMLORD_STB_DS_H) && defined(__has_include)
#if __has_include(<stb/stb_ds.h>)
#define MEMLORD_STB_DS_H <stb/stb_ds.h>
#elif __has_include("memlord/stb_ds.h") /* an installed tree */
#define MEMLORD_STB_DS_H "memlord/stb_ds.h"
#elif !__has_include("stb_ds.h")
#error "no stb_ds.h: install libstb-dev, or copy it beside memlord.h, or define MEMLORD_STB_DS_H"
#endif
#endif
#if !defined(MEMLORD_STB_DS_H)
#define MEMLORD_STB_DS_H "stb_ds.h"
#endif
#include MEMLORD_STB_DS_H
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
#undef STB_DS_IMPLEMENTATION

/* Returns the stb_ds header of a table's items. */
static const stbds_array_header *mli_dict_array(const mli_dict *dict) {
    MLI_REQUIRE(dict->items);
    return stbds_header((void *)((char *)dict->items - dict->item));
}

/* Returns the bytes that stb_ds takes for `capacity` items, as stbds_arrgrowf does. */
static size_t mli_dict_array_takes(const mli_dict *dict, size_t capacity) {
    return mli_dict_takes(capacity * dict->item + sizeof(stbds_array_header));
}
/* Returns the bytes that stb_ds takes for a hash index, by the formula of stbds_make_hash_index. */
static size_t mli_dict_index_takes(size_t slots) {
    return mli_dict_takes(slots / STBDS_BUCKET_LENGTH * sizeof(stbds_hash_bucket) +
                          sizeof(stbds_hash_index) + STBDS_CACHE_LINE_SIZE);
}

/* Adds a block to a table with fewer than `need` bytes left. Returns -1 if there is no memory. */
static MLI_COLD int mli_dict_reserve_locked(memlord *lord, mli_dict *dict, size_t need) {
    mli_dict_block *block;
    if (need <= dict->left) return 0;
    need += MLI_DICT_HEAD;
    block = (mli_dict_block *)mli_cold_alloc(lord, need);
    if (!block) return -1;
    block->next = dict->blocks;
    block->size = need;
    dict->blocks = block;
    dict->left = need - MLI_DICT_HEAD;
    return 0;
}

/* Reserves the memory that stb_ds needs to put a key of this length in a table. That may be a
   larger array, a larger index, and a string block; the formula of stbds_stralloc gives the size of
   the string block. Returns -1 if there is no memory for it yet, else 0. */
static MLI_COLD int mli_dict_room_locked(memlord *lord, mli_dict *dict, size_t length) {
    const stbds_array_header *array = mli_dict_array(dict);
    const stbds_hash_index *index = (const stbds_hash_index *)array->hash_table;
    size_t string = (size_t)STBDS_STRING_ARENA_BLOCKSIZE_MIN << (index->string.block >> 1);
    size_t need = 0;
    if (string <= length) string = length + 1;
    if (array->length >= array->capacity) need += mli_dict_array_takes(dict, array->capacity * 2);
    if (index->used_count >= index->used_count_threshold)
        need += mli_dict_index_takes(index->slot_count * 2);
    if (length >= index->string.remaining)
        need += mli_dict_takes(string + sizeof(stbds_string_block));
    return mli_dict_reserve_locked(lord, dict, need);
}

/* Returns the item of a key, or NULL. The pointer is valid until the next put. */
static MLI_COLD void *mli_dict_find_locked(const mli_dict *dict, const char *key) {
    MLI_REQUIRE(mli_lock_held(&mli_process.cold_lock));
    ptrdiff_t at;
    if (!dict->items) return NULL;
    (void)stbds_hmget_key_ts(dict->items, dict->item, (void *)(uintptr_t)key, sizeof key, &at,
                             STBDS_HM_STRING);
    return at < 0 ? NULL : (char *)dict->items + dict->item * (size_t)at;
}

/* Puts a key in a table, and returns the item of the key, which is zero except for the copy of the
   key. Returns NULL if the table needs memory first; the caller then tries again. Requires: the
   table does not have the key, because stb_ds may grow the table before it finds the key. */
static MLI_COLD void *mli_dict_put_locked(memlord *lord, mli_dict *dict, const char *key) {
    MLI_REQUIRE(mli_lock_held(&mli_process.cold_lock));
    MLI_REQUIRE(!mli_dict_find_locked(dict, key));
    mli_process.growing = dict;
    if (!dict->items) {
        if (mli_dict_reserve_locked(lord, dict,
                                    mli_dict_array_takes(dict, 4) +
                                        mli_dict_index_takes(STBDS_BUCKET_LENGTH)))
            return NULL;
        dict->items = stbds_shmode_func(dict->item, STBDS_SH_ARENA);
    }
    if (mli_dict_room_locked(lord, dict, strlen(key))) return NULL;
    dict->items = stbds_hmput_key(dict->items, dict->item, (void *)(uintptr_t)key, sizeof key,
                                  STBDS_HM_STRING);
    return (char *)dict->items + dict->item * (size_t)mli_dict_array(dict)->temp;
}

static MLI_COLD void mli_dict_end(memlord *lord, mli_dict *dict) {
    mli_dict_block *block = dict->blocks, *next;
    for (; block; block = next) {
        next = block->next;
        mli_own_free(lord, block, block->size);
    }
}

/* -- kept strings -- */

MLI_PRIVATE MLI_COLD mli_stb_string *mli_string_locked(memlord *lord, const char *text) {
    MLI_REQUIRE(mli_lock_held(&mli_process.cold_lock));
    return (mli_stb_string *)mli_dict_find_locked(&lord->names->strings, text);
}

MLI_PRIVATE MLI_COLD memlord_result mli_name_locked(memlord *lord, const char *text,
                                                    const char **kept) {
    MLI_REQUIRE(mli_lock_held(&mli_process.cold_lock));
    const mli_stb_string *string;
    size_t length;
    *kept = NULL;
    if (!text) return MEMLORD_OK;
    string = mli_string_locked(lord, text);
    if (!string) {
        length = strlen(text);
        if (length > MEMLORD_MAX_STRINGS || lord->names->bytes + length > MEMLORD_MAX_STRINGS)
            return MEMLORD_E_NOMEM;
        string = (mli_stb_string *)mli_dict_put_locked(lord, &lord->names->strings, text);
        if (!string) return MLI_AGAIN;
        lord->names->bytes += length + 1;
    }
    *kept = string->key;
    return MEMLORD_OK;
}

MLI_PRIVATE MLI_COLD memlord_result mli_name(memlord *lord, const char *text, const char **kept) {
    mli_cold cold = {MEMLORD_OK, NULL, 0, 0};
    if (mli_self.in_host_alloc) return MEMLORD_E_STATE;
    do {
        mli_cold_enter(&cold);
        cold.r = mli_name_locked(lord, text, kept);
    } while (mli_cold_leave(lord, &cold));
    return cold.r;
}

MLI_PRIVATE MLI_COLD memlord_result mli_name_limited(memlord *lord, const char *text,
                                                     const char **kept) {
    uint64_t used;
    mli_lock_take(&mli_process.cold_lock);
    used = lord->names->bytes;
    mli_lock_drop(&mli_process.cold_lock);
    if (text && used + strlen(text) > MEMLORD_MAX_STRINGS / 2) return MEMLORD_E_NOMEM;
    return mli_name(lord, text, kept);
}

/* -- the labels of the ledger -- */

MLI_PRIVATE const char *mli_labels(const memlord *lord) {
    return (const char *)mli_ptr_load_acquire(&lord->names->labels);
}
MLI_API memlord_result memlord_labels_set(memlord *lord, const char *labels) {
    const char *kept;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    r = mli_name(lord, labels, &kept);
    if (r == MEMLORD_OK) /* the store pairs with the load in mli_labels */
        mli_ptr_store_release(&lord->names->labels, (void *)(uintptr_t)kept);
    return r;
}

/* -- the index -- */
static mli_index_pair *mli_index_pair_at(const mli_index *index, uint64_t at) {
    return (mli_index_pair *)(uintptr_t)(index + 1) + (at & index->mask);
}
static uint64_t mli_index_home(uint64_t key) { return (key * 0x9e3779b97f4a7c15u) >> 24; }
MLI_PRIVATE MLI_NOINLINE uint64_t mli_index_get(memlord *lord, uint64_t key) {
    const mli_index *index = (mli_index *)mli_ptr_load_acquire(&lord->names->index);
    uint64_t at, seen;
    for (; index; index = index->older)
        for (at = mli_index_home(key);; at++) {
            const mli_index_pair *pair = mli_index_pair_at(index, at);
            seen = mli_u64_load_acquire(&pair->key);
            if (seen == key) return mli_u64_load(&pair->value);
            if (!seen) break;
        }
    return 0;
}

MLI_PRIVATE MLI_COLD memlord_result mli_index_reserve_locked(memlord *lord, uint64_t more) {
    MLI_REQUIRE(mli_lock_held(&mli_process.cold_lock));
    mli_index *newest = (mli_index *)mli_ptr_load(&lord->names->index), *index;
    uint64_t cap = newest ? (newest->mask + 1) * 4 : MLI_INDEX_MIN;
    if (newest && (newest->count + more) * 2 <= newest->mask + 1) return MEMLORD_OK;
    if (cap > MLI_INDEX_MAX) cap = MLI_INDEX_MAX;
    index = (mli_index *)mli_cold_alloc(lord, sizeof *index + (size_t)cap * sizeof(mli_index_pair));
    if (!index) return MLI_AGAIN;
    index->mask = cap - 1;
    index->older = newest;
    mli_ptr_store_release(&lord->names->index, index);
    return MEMLORD_OK;
}
MLI_PRIVATE void mli_index_add_locked(memlord *lord, uint64_t key, uint64_t value) {
    MLI_REQUIRE(mli_lock_held(&mli_process.cold_lock));
    MLI_REQUIRE(!mli_index_get(lord, key));
    mli_index *index = (mli_index *)mli_ptr_load(&lord->names->index);
    uint64_t at = mli_index_home(key);
    while (mli_u64_load(&mli_index_pair_at(index, at)->key)) at++;
    mli_u64_store(&mli_index_pair_at(index, at)->value, value);
    mli_u64_store_release(&mli_index_pair_at(index, at)->key, key);
    index->count++;
}

/* -- rows -- */

MLI_PRIVATE MLI_COLD memlord_result mli_row_add_locked(memlord *lord, int book, uint32_t dev,
                                                       void *subject, uint64_t key,
                                                       uint32_t *number) {
    MLI_REQUIRE(mli_lock_held(&mli_process.cold_lock));
    const uint32_t n = mli_row_count(lord, book);
    mli_device_record *device = mli_device_record_at(lord, dev);
    mli_row *row;
    memlord_result r = mli_index_reserve_locked(lord, 1);
    if (r) return r;
    row = mli_row_new(lord, book, mli_cold_alloc);
    if (!row) return MLI_AGAIN;
    row->dev = dev;
    row->subject = subject;
    mli_row_publish(lord, book);
    mli_u32_store_release(device->end[book] ? device->end[book] : &device->first[book], n);
    device->end[book] = &row->next;
    mli_index_add_locked(lord, key, n);
    *number = n;
    return MEMLORD_OK;
}
MLI_PRIVATE uint32_t mli_row_next(memlord *lord, int book, uint32_t dev, uint32_t number) {
    if (!dev) return number + 1 < mli_row_count(lord, book) ? number + 1 : 0;
    return mli_u32_load_acquire(number ? &mli_row_at(lord, book, number)->next
                                       : &mli_device_record_at(lord, dev)->first[book]);
}

/* -- life -- */

static MLI_COLD void mli_names_init(memlord *lord, const memlord_desc *desc) {
    (void)desc;
    lord->names->strings.item = sizeof(mli_stb_string);
}
static MLI_COLD memlord_result mli_names_open(memlord *lord, const memlord_desc *desc) {
    return memlord_labels_set(lord, desc->labels);
}
static MLI_COLD void mli_names_free(memlord *lord) {
    mli_index *index = (mli_index *)mli_ptr_load(&lord->names->index), *older;
    for (; index; index = older) {
        older = index->older;
        mli_own_free(lord, index,
                     sizeof *index + (size_t)(index->mask + 1) * sizeof(mli_index_pair));
    }
    mli_dict_end(lord, &lord->names->strings);
}
MLI_PRIVATE const mli_life mli_names_life = {MLI_LIFE_STATE(names), mli_names_init, mli_names_open,
                                             NULL, NULL, NULL, mli_names_free};
