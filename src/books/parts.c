#include "books/parts.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "base/memory.h"
#include "books/names.h"
#include "books/devices.h"
#include "books/anomalies.h"
#include "books/accounts.h"
#include "books/limits.h"

MLI_PRIVATE memlord_result mli_key_begin(memlord *lord, memlord_device d, uint64_t key,
                                         mli_thread **t) {
    *t = NULL;
    if (!lord) return MEMLORD_OK;
    if (!mli_key_valid(key)) return MEMLORD_E_INVALID;
    if (!mli_type_valid(d)) return MEMLORD_E_DEVICE;
    *t = mli_thread_get(lord);
    return MEMLORD_OK;
}

MLI_PRIVATE mli_side_record *mli_side_record_of(uint64_t word2) {
    return word2 & MLI_HAS_SIDE ? (mli_side_record *)(uintptr_t)(word2 & ~MLI_HAS_SIDE) : NULL;
}
MLI_PRIVATE uint64_t mli_word2_rows(uint64_t word2) {
    return word2 & MLI_HAS_SIDE ? mli_side_record_of(word2)->word2 : word2;
}
MLI_PRIVATE uint64_t mli_refs_of(uint64_t word1, uint64_t word2) {
    uint64_t refs = MLI_REFS(word1);
    return refs == MLI_REFS_MANY ? mli_side_record_of(word2)->refs : refs;
}

MLI_PRIVATE void mli_side_charge(memlord *lord, mli_call *call, mli_side_record *side,
                                 memlord_account account, uint64_t bytes) {
    if (side->account != account) {
        mli_account_credit_block(lord, side->account, side->charged);
        side->account = account;
        side->charged = 0;
    }
    if (bytes < side->charged)
        mli_account_credit_block(lord, account, side->charged - bytes);
    else if (!mli_ticket_charge(lord, call, account, bytes - side->charged))
        return;
    side->charged = bytes;
}

MLI_PRIVATE MLI_NOINLINE uint64_t mli_side_open(memlord *lord, mli_thread *t,
                                                memlord_account account, memlord_device device,
                                                uint64_t word2, uint64_t bytes) {
    mli_side_record *side;
    if (!t->side_count || !mli_account_charge_on(lord, account, device, bytes)) return 0;
    side = t->sides[--t->side_count];
    side->word2 = word2;
    side->account = account;
    side->charged = bytes;
    return (uint64_t)(uintptr_t)side | MLI_HAS_SIDE;
}
MLI_PRIVATE MLI_NOINLINE uint64_t mli_side_plain(uint64_t word2) {
    const mli_side_record *side = mli_side_record_of(word2);
    const memlord_meta *meta = &side->meta;
    if (side->fences || side->serial || side->parts || side->refs) return 1;
    if (meta->name || meta->dtype || meta->rank || meta->flags) return 1;
    return side->word2;
}
MLI_PRIVATE MLI_NOINLINE void mli_side_close(memlord *lord, mli_thread *t, uint64_t word2) {
    mli_side_record *side = mli_side_record_of(word2);
    MLI_REQUIRE(t->side_count < MLI_SIDES_MAX);
    mli_account_credit_block(lord, side->account, side->charged);
    memset(side, 0, sizeof *side);
    t->sides[t->side_count++] = side;
}

MLI_PRIVATE int mli_is_pending(uint64_t word2) {
    return (word2 & MLI_HAS_SIDE) && mli_side_record_of(word2)->serial;
}

MLI_PRIVATE MLI_COLD mli_side_record *mli_probe_side_record(memlord *lord, mli_thread *t,
                                                            uint32_t type, uint64_t key,
                                                            mli_probe *probe) {
    (void)mli_probe_find(lord, t, type, key, 0, probe);
    return probe->entry ? mli_side_record_of(probe->entry->word2) : NULL;
}

MLI_PRIVATE MLI_COLD memlord_result mli_probe_add_side_record(memlord *lord, mli_thread *t,
                                                              uint32_t type, uint64_t key,
                                                              int for_ref, mli_probe *probe) {
    mli_side_record *spare = NULL;
    mli_entry *e;
    while ((e = mli_probe_live(lord, t, type, key, probe)) != NULL) {
        const int overflows = MLI_REFS(e->word1) + 1 == MLI_REFS_MANY;
        const int needed = !(e->word2 & MLI_HAS_SIDE) && (!for_ref || overflows);
        if (needed && spare) {
            spare->word2 = e->word2;
            e->word2 = (uint64_t)(uintptr_t)spare | MLI_HAS_SIDE;
        }
        if (needed == (spare != NULL)) return MEMLORD_OK;
        mli_probe_leave(t, probe);
        mli_own_free(lord, spare, sizeof *spare); /* another thread may have made it meanwhile */
        spare = needed ? (mli_side_record *)mli_own_alloc(lord, sizeof *spare) : NULL;
        if (needed && !spare) return MEMLORD_E_NOMEM;
    }
    mli_probe_leave(t, probe);
    mli_own_free(lord, spare, sizeof *spare);
    return MEMLORD_E_UNKNOWN;
}

MLI_PRIVATE MLI_COLD memlord_result mli_meta_copy(memlord *lord, const memlord_meta *meta,
                                                  memlord_meta *out) {
    memlord_result r;
    *out = *meta;
    r = mli_name(lord, meta->name, &out->name);
    if (r == MEMLORD_OK) r = mli_name(lord, meta->dtype, &out->dtype);
    if (r) return r;
    return mli_name(lord, meta->tag && *meta->tag ? meta->tag : NULL, &out->tag);
}

/* -- parts --
   A part is a range of the bytes of a block, with a description. A block with parts has an array of
   pointers to them in order of offset. The side record points to the array, which changes only
   inside the block's shard. No total counts parts. */

static size_t mli_parts_size(uint32_t room) {
    return sizeof(mli_parts) + (size_t)(room - 1) * sizeof(memlord_part_info *);
}

/* Returns the index of the first part at an offset or after it, or `count` if there is none. */
static uint32_t mli_parts_find(const mli_parts *parts, uint64_t offset) {
    uint32_t low = 0, high = parts ? parts->count : 0;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (parts->at[middle]->offset < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Inserts a part in order of offset. If the array is full, a larger *spare becomes the array, else
   the result is MLI_AGAIN. Returns MEMLORD_E_STATE if the part overlaps another. */
static memlord_result mli_part_insert(mli_parts **of, memlord_part_info *part, mli_parts **spare) {
    MLI_REQUIRE(mli_is_inside());
    mli_parts *parts = *of;
    uint32_t i = mli_parts_find(parts, part->offset), n = parts ? parts->count : 0;
    if (i && parts->at[i - 1]->offset + parts->at[i - 1]->bytes > part->offset)
        return MEMLORD_E_STATE;
    if (i < n && part->offset + part->bytes > parts->at[i]->offset) return MEMLORD_E_STATE;
    if (!parts || n == parts->room) {
        parts = *spare;
        if (!parts || parts->room <= n) return MLI_AGAIN;
        if (*of) memcpy(parts->at, (*of)->at, n * sizeof *parts->at);
        parts->bytes = *of ? (*of)->bytes : 0;
        *spare = *of;
        *of = parts;
    }
    memmove(parts->at + i + 1, parts->at + i, (n - i) * sizeof *parts->at);
    parts->at[i] = part;
    parts->count = n + 1;
    parts->bytes += part->bytes;
    return MEMLORD_OK;
}

/* Frees an array of parts, but not the parts. */
static void mli_parts_drop(memlord *lord, mli_parts *parts) {
    if (parts) mli_own_free(lord, parts, mli_parts_size(parts->room));
}

/* Tries once to insert a part: enters the shard and leaves it. If the result is MLI_AGAIN, *room is
   the number of parts that *spare must have room for at the next try. */
static memlord_result mli_part_insert_try(memlord *lord, mli_thread *t, uint32_t type, uint64_t key,
                                          memlord_part_info *part, mli_parts **spare,
                                          uint32_t *room) {
    mli_probe probe;
    mli_side_record *side;
    memlord_result r = mli_probe_add_side_record(lord, t, type, key, 0, &probe);
    if (r) return r;
    side = mli_side_record_of(probe.entry->word2);
    *room = side->parts ? side->parts->room * 2 : 8;
    if (part->offset + part->bytes > MLI_BYTES(probe.entry->word1))
        r = MEMLORD_E_INVALID;
    else
        r = mli_part_insert(&side->parts, part, spare);
    mli_probe_leave(t, &probe);
    return r;
}

/* Adds a copy of a part to a live block. Requires: the caller is not inside a shard, because the
   function allocates between its tries. */
static MLI_COLD memlord_result mli_block_part_add(memlord *lord, mli_thread *t, uint32_t type,
                                                  uint64_t key, const memlord_part_info *part) {
    MLI_REQUIRE(!mli_is_inside());
    memlord_part_info *copy = (memlord_part_info *)mli_own_alloc(lord, sizeof *part);
    mli_parts *spare = NULL;
    uint32_t room = 0;
    memlord_result r;
    if (!copy) return MEMLORD_E_NOMEM;
    *copy = *part;
    while ((r = mli_part_insert_try(lord, t, type, key, copy, &spare, &room)) == MLI_AGAIN) {
        mli_parts_drop(lord, spare);
        spare = (mli_parts *)mli_own_alloc(lord, mli_parts_size(room));
        if (!spare) break;
        spare->room = room;
    }
    mli_parts_drop(lord, spare);
    if (r) mli_own_free(lord, copy, sizeof *copy);
    return r == MLI_AGAIN ? MEMLORD_E_NOMEM : r;
}

/* Removes the part at an offset. If no part is left, also frees the block's array of parts. */
static MLI_COLD memlord_result mli_block_part_remove(memlord *lord, mli_thread *t, uint32_t type,
                                                     uint64_t key, uint64_t offset) {
    mli_probe probe;
    mli_side_record *side = mli_probe_side_record(lord, t, type, key, &probe);
    mli_parts *parts = side && !side->serial ? side->parts : NULL, *empty = NULL;
    memlord_part_info *part = NULL;
    uint32_t i = mli_parts_find(parts, offset);
    if (parts && i < parts->count && parts->at[i]->offset == offset) {
        part = parts->at[i];
        parts->bytes -= part->bytes;
        parts->count--;
        memmove(parts->at + i, parts->at + i + 1, (parts->count - i) * sizeof *parts->at);
        if (!parts->count) {
            empty = parts;
            side->parts = NULL;
        }
    }
    mli_probe_leave(t, &probe);
    mli_parts_drop(lord, empty);
    mli_own_free(lord, part, sizeof *part);
    return part ? MEMLORD_OK : MEMLORD_E_UNKNOWN;
}

MLI_PRIVATE MLI_COLD void mli_parts_trim(memlord *lord, mli_parts *parts, uint64_t bytes) {
    while (parts && parts->count) {
        memlord_part_info *last = parts->at[parts->count - 1];
        if (last->offset + last->bytes <= bytes) return;
        parts->bytes -= last->bytes;
        parts->count--;
        mli_own_free(lord, last, sizeof *last);
    }
}

MLI_PRIVATE MLI_COLD void mli_parts_free(memlord *lord, mli_parts *parts) {
    mli_parts_trim(lord, parts, 0);
    mli_parts_drop(lord, parts);
}

/* Frees the array of parts of a block when the ledger ends. A large array does not lie in the
   regions of the ledger, so freeing the regions does not free the array. */
static int mli_parts_visit(const mli_entry *e, void *lord) {
    if (e->word2 & MLI_HAS_SIDE)
        mli_parts_drop((memlord *)lord, mli_side_record_of(e->word2)->parts);
    return 0;
}

MLI_PRIVATE MLI_COLD void mli_parts_move(memlord *lord, mli_thread *t, uint32_t from_type,
                                         uint64_t from_key, uint32_t type, uint64_t key,
                                         uint64_t bytes) {
    mli_parts *parts = NULL;
    mli_probe probe;
    mli_side_record *side = mli_probe_side_record(lord, t, from_type, from_key, &probe);
    if (side) {
        parts = side->parts;
        side->parts = NULL;
    }
    mli_probe_leave(t, &probe);
    if (!parts) return;
    mli_parts_trim(lord, parts, bytes);
    side = mli_probe_side_record(lord, t, type, key, &probe);
    if (side && !side->parts) {
        side->parts = parts;
        parts = NULL;
    }
    mli_probe_leave(t, &probe);
    mli_parts_free(lord, parts); /* not NULL: the block at `key` has ended, or has other parts */
}

MLI_PRIVATE MLI_COLD size_t mli_parts_copy(memlord *lord, uint32_t type, uint64_t key,
                                           uint64_t offset, memlord_part_info *out, size_t cap,
                                           uint64_t *count, uint64_t *bytes) {
    mli_thread *t = mli_thread_get(lord);
    const mli_parts *parts;
    const mli_side_record *side;
    mli_probe probe;
    uint32_t i;
    size_t n = 0;
    *count = *bytes = 0;
    if (!t) return 0;
    side = mli_probe_side_record(lord, t, type, key, &probe);
    parts = side ? side->parts : NULL;
    if (parts) {
        *count = parts->count;
        *bytes = parts->bytes;
        for (i = mli_parts_find(parts, offset); i < parts->count && n < cap; i++)
            out[n++] = *parts->at[i];
    }
    mli_probe_leave(t, &probe);
    mli_thread_put(lord, t);
    return n;
}

/* -- life -- */

static MLI_COLD void mli_parts_end(memlord *lord) {
    uint32_t i;
    for (i = 0; i < MLI_SHARDS; i++)
        (void)mli_shard_each(mli_shard_at(lord, i), mli_parts_visit, lord);
}
MLI_PRIVATE const mli_life mli_parts_life = {0, 0, NULL, NULL, NULL, NULL, NULL, mli_parts_end};

/* -- public -- */

MLI_API memlord_result memlord_part_add(memlord *lord, memlord_device device, uint64_t storage,
                                        uint64_t offset, uint64_t bytes, const memlord_meta *meta) {
    mli_thread *t;
    memlord_part_info part;
    memlord_result r = mli_key_begin(lord, device, storage, &t);
    if (!t) return r;
    memset(&part, 0, sizeof part);
    part.offset = offset;
    part.bytes = bytes;
    if (!bytes || bytes > MLI_BYTES_MAX || offset > MLI_BYTES_MAX || (meta && meta->rank > 8))
        r = MEMLORD_E_INVALID;
    else if (meta)
        r = mli_meta_copy(lord, meta, &part.meta);
    if (r == MEMLORD_OK)
        r = mli_block_part_add(lord, t, (uint32_t)device.type, storage, &part);
    mli_thread_put(lord, t);
    return mli_call_end_uncounted(lord, r);
}

MLI_API memlord_result memlord_part_remove(memlord *lord, memlord_device device,
                                           uint64_t storage, uint64_t offset) {
    mli_thread *t;
    memlord_result r = mli_key_begin(lord, device, storage, &t);
    if (!t) return r;
    r = mli_block_part_remove(lord, t, (uint32_t)device.type, storage, offset);
    mli_thread_put(lord, t);
    return mli_call_end_uncounted(lord, r);
}

MLI_API size_t memlord_parts_each(memlord *lord, memlord_device device, uint64_t storage,
                                  memlord_part_fn fn, void *user) {
    memlord_part_info some[8];
    uint64_t count, bytes, offset = 0;
    size_t i, n, seen = 0;
    if (!lord || !fn || !mli_key_valid(storage) || !mli_type_valid(device)) return 0;
    do {
        n = mli_parts_copy(lord, (uint32_t)device.type, storage, offset, some, 8, &count, &bytes);
        for (i = 0; i < n; i++) {
            seen++;
            if (fn(user, &some[i])) return seen;
            offset = some[i].offset + 1;
        }
    } while (n == 8);
    return seen;
}
