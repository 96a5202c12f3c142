#include "books/picks.h"
#include "base/memory.h"

#define MLI_PICK_MIN 16 /* the number of entries in the first table of a part */
MLI_PRIVATE const mli_pick mli_pick_none = {0, 0, 0, 0};

MLI_PRIVATE mli_picks *mli_picks_part(memlord *lord, mli_picks *parts, uint64_t key) {
    const size_t shard = (size_t)(mli_shard_of(lord, key) - mli_shard_at(lord, 0));
    return &parts[shard >> (MLI_SHARD_BITS - MLI_PICK_PART_BITS)];
}
static size_t mli_pick_home(uint64_t key, size_t cap) {
    return (size_t)((key * 0x9e3779b97f4a7c15u) >> 32) & (cap - 1);
}
/* Returns the entry of a key or, if the part does not have the key, the vacant entry for it.
   Requires: the part has a vacant entry. */
static MLI_NOINLINE mli_pick *mli_pick_entry(const mli_picks *part, uint32_t type,
                                             uint64_t key) {
    MLI_REQUIRE(part->count < part->cap);
    size_t at = mli_pick_home(key, part->cap);
    while (part->at[at].row && (part->at[at].key != key || part->at[at].type != type))
        at = (at + 1) & (part->cap - 1);
    return &part->at[at];
}
/* Removes an entry. Moves later entries back into the hole, so that a search still finds them. */
static void mli_pick_remove(mli_picks *part, mli_pick *gone) {
    MLI_REQUIRE(mli_lock_held(&part->lock));
    mli_pick *table = part->at;
    const size_t mask = part->cap - 1;
    size_t hole = (size_t)(gone - table), at = hole;
    for (;;) {
        at = (at + 1) & mask;
        if (!table[at].row) break;
        if (((at - mli_pick_home(table[at].key, mask + 1)) & mask) < ((at - hole) & mask))
            continue;
        table[hole] = table[at];
        hole = at;
    }
    table[hole].row = 0;
    part->count--;
}

/* Replaces a part's table by the larger one in *table, unless another thread has done so.
   Afterwards *table is the table that the caller frees, and *cap is its number of entries. */
static MLI_COLD void mli_pick_swap(mli_picks *part, mli_pick **table, size_t *cap) {
    MLI_REQUIRE(mli_lock_held(&part->lock));
    const mli_picks old = *part;
    size_t i;
    if (old.cap >= *cap) return;
    part->at = *table;
    part->cap = *cap;
    for (i = 0; i < old.cap; i++)
        if (old.at[i].row) *mli_pick_entry(part, old.at[i].type, old.at[i].key) = old.at[i];
    *table = old.at;
    *cap = old.cap;
}
MLI_PRIVATE MLI_COLD int mli_pick_reserve(memlord *lord, mli_picks *part) {
    MLI_REQUIRE(mli_none_held_but_orphan());
    mli_pick *table = NULL;
    size_t cap = 0, more;
    int fits;
    for (;;) {
        mli_lock_take(&part->lock);
        if (table) mli_pick_swap(part, &table, &cap);
        fits = (part->count + part->reserved + 1) * 4 <= part->cap * 3;
        if (fits) part->reserved++;
        more = part->cap ? part->cap * 2 : MLI_PICK_MIN;
        mli_lock_drop(&part->lock);
        mli_own_free(lord, table, cap * sizeof *table);
        if (fits) return 1;
        cap = more;
        table = (mli_pick *)mli_own_alloc(lord, cap * sizeof *table);
        if (!table) return 0;
    }
}

MLI_PRIVATE MLI_NOINLINE uint64_t mli_pick_weight(const mli_pick *pick, uint64_t bytes) {
    return (uint64_t)((double)bytes * pick->scale + 0.5);
}
MLI_PRIVATE double mli_pick_variance(const mli_pick *pick, uint64_t bytes) {
    return (double)bytes * (double)bytes * pick->scale * (pick->scale - 1);
}
MLI_PRIVATE uint64_t mli_pick_units(const mli_pick *pick) {
    return (uint64_t)(pick->scale * MLI_STACK_UNITS + 0.5);
}
MLI_PRIVATE void mli_pick_unreserve(mli_picks *part) {
    mli_lock_take(&part->lock);
    part->reserved--;
    mli_lock_drop(&part->lock);
}
MLI_PRIVATE void mli_pick_add(mli_picks *part, const mli_pick *pick) {
    mli_lock_take(&part->lock);
    *mli_pick_entry(part, pick->type, pick->key) = *pick;
    part->reserved--;
    part->count++;
    mli_lock_drop(&part->lock);
}
MLI_PRIVATE mli_pick mli_pick_take(mli_picks *part, uint32_t type, uint64_t key, int remove) {
    mli_pick pick = mli_pick_none, *at;
    mli_lock_take(&part->lock);
    if (part->cap) {
        at = mli_pick_entry(part, type, key);
        pick = *at;
        if (remove && pick.row) mli_pick_remove(part, at);
    }
    mli_lock_drop(&part->lock);
    return pick;
}

MLI_PRIVATE MLI_COLD void mli_picks_init(mli_picks *parts) {
    uint32_t i;
    for (i = 0; i < MLI_PICK_PARTS; i++) mli_lock_rank(&parts[i].lock, MLI_RANK_STACKS);
}
MLI_PRIVATE MLI_COLD void mli_picks_lock(mli_picks *parts, int take) {
    uint32_t i;
    for (i = 0; i < MLI_PICK_PARTS; i++) mli_lock_set(&parts[i].lock, take);
}
MLI_PRIVATE MLI_COLD void mli_picks_free(memlord *lord, mli_picks *parts) {
    uint32_t i;
    for (i = 0; i < MLI_PICK_PARTS; i++)
        mli_own_free(lord, parts[i].at, parts[i].cap * sizeof *parts[i].at);
}
#if !defined(MEMLORD_NO_VERIFY)
MLI_PRIVATE MLI_COLD uint64_t mli_picks_sum(const mli_picks *parts) {
    uint64_t sum = 0;
    uint32_t i;
    for (i = 0; i < MLI_PICK_PARTS; i++) sum += parts[i].count;
    return sum;
}
#endif
