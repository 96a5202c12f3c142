#include "books/picks.h"
#include "base/memory.h"

#define MLI_PICK_MIN_BITS 4 /* log2 of the number of slots in the first table of a part */
MLI_PRIVATE const mli_pick mli_pick_none = {0, 0, 0, 0};

/* A slot of the table. Its members are those of mli_pick; it is vacant while `row` is 0. */
typedef struct mli_pick_slot {
    uint64_t key;
    double scale;
    mli_u32 row;
    uint32_t type;
} mli_pick_slot;

MLI_PRIVATE mli_picks *mli_picks_part(memlord *lord, mli_picks *parts, uint64_t key) {
    const size_t shard = (size_t)(mli_shard_of(lord, key) - mli_shard_at(lord, 0));
    return &parts[shard >> (MLI_SHARD_BITS - MLI_PICK_PART_BITS)];
}
/* Returns the slots of a part, and sets *cap to their number. */
static mli_pick_slot *mli_pick_slots(const mli_picks *part, size_t *cap) {
    const uintptr_t word = (uintptr_t)mli_ptr_load_own(&part->table);
    *cap = word ? (size_t)1 << (word & 127) : 0;
    return (mli_pick_slot *)(word & ~(uintptr_t)127);
}
static size_t mli_pick_home(uint64_t key, size_t cap) {
    return (size_t)((key * 0x9e3779b97f4a7c15u) >> 32) & (cap - 1);
}
/* Returns the slot of a key, else the vacant slot for it. Requires: a slot is vacant. */
static MLI_NOINLINE mli_pick_slot *mli_pick_slot_of(mli_pick_slot *slots, size_t cap, uint32_t type,
                                                    uint64_t key) {
    MLI_REQUIRE(cap);
    size_t at = mli_pick_home(key, cap);
    while (mli_u32_load(&slots[at].row) && (slots[at].key != key || slots[at].type != type))
        at = (at + 1) & (cap - 1);
    return &slots[at];
}
static mli_pick mli_pick_read(const mli_pick_slot *slot) {
    mli_pick pick;
    pick.key = slot->key;
    pick.scale = slot->scale;
    pick.row = mli_u32_load(&slot->row);
    pick.type = slot->type;
    return pick;
}
/* Fills a slot. The release stores of `row` make the slot vacant for a reader of the process's
   memory before it changes, and show the slot after it is filled. */
static void mli_pick_write(mli_pick_slot *slot, const mli_pick *pick) {
    mli_u32_store_release(&slot->row, 0);
    mli_compiler_barrier();
    slot->key = pick->key;
    slot->scale = pick->scale;
    slot->type = pick->type;
    mli_u32_store_release(&slot->row, pick->row);
}
/* Vacates a slot. Moves later blocks back into the hole, so that a search still finds them. */
static void mli_pick_remove(mli_picks *part, mli_pick_slot *gone) {
    MLI_REQUIRE(mli_lock_held(&part->lock));
    size_t cap;
    mli_pick_slot *slots = mli_pick_slots(part, &cap);
    const size_t mask = cap - 1;
    size_t hole = (size_t)(gone - slots), at = hole;
    for (;;) {
        mli_pick moved;
        at = (at + 1) & mask;
        moved = mli_pick_read(&slots[at]);
        if (!moved.row) break;
        if (((at - mli_pick_home(moved.key, cap)) & mask) < ((at - hole) & mask)) continue;
        mli_pick_write(&slots[hole], &moved);
        hole = at;
    }
    mli_u32_store_release(&slots[hole].row, 0);
    part->count--;
}

/* Replaces a part's table by the larger one in *table, of 1 << *bits slots, unless another thread
   has done so. *table and *bits are then of the table that the caller frees. */
static MLI_COLD void mli_pick_swap(mli_picks *part, mli_pick_slot **table, uint32_t *bits) {
    MLI_REQUIRE(mli_lock_held(&part->lock));
    const size_t cap = (size_t)1 << *bits;
    size_t i, old_cap;
    mli_pick_slot *old = mli_pick_slots(part, &old_cap);
    if (old_cap >= cap) return;
    for (i = 0; i < old_cap; i++) {
        const mli_pick pick = mli_pick_read(&old[i]);
        if (pick.row) mli_pick_write(mli_pick_slot_of(*table, cap, pick.type, pick.key), &pick);
    }
    mli_ptr_store_release(&part->table, (char *)*table + *bits); /* for outside readers */
    *table = old;
    *bits = old_cap ? *bits - 1 : 0;
}
MLI_PRIVATE MLI_COLD int mli_pick_reserve(memlord *lord, mli_picks *part) {
    MLI_REQUIRE(mli_none_held_but_orphan());
    mli_pick_slot *table = NULL;
    uint32_t bits = 0;
    size_t cap;
    int fits;
    for (;;) {
        mli_lock_take(&part->lock);
        if (table) mli_pick_swap(part, &table, &bits);
        (void)mli_pick_slots(part, &cap);
        fits = (part->count + part->reserved + 1) * 4 <= cap * 3;
        if (fits) part->reserved++;
        mli_lock_drop(&part->lock);
        mli_own_free(lord, table, sizeof *table << bits);
        if (fits) return 1;
        for (bits = MLI_PICK_MIN_BITS; (size_t)1 << bits <= cap; bits++) {}
        table = (mli_pick_slot *)mli_own_alloc(lord, sizeof *table << bits);
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
    mli_pick_slot *slots;
    size_t cap;
    mli_lock_take(&part->lock);
    slots = mli_pick_slots(part, &cap);
    mli_pick_write(mli_pick_slot_of(slots, cap, pick->type, pick->key), pick);
    part->reserved--;
    part->count++;
    mli_lock_drop(&part->lock);
}
MLI_PRIVATE mli_pick mli_pick_take(mli_picks *part, uint32_t type, uint64_t key, int remove) {
    mli_pick pick = mli_pick_none;
    mli_pick_slot *slots, *at;
    size_t cap;
    mli_lock_take(&part->lock);
    slots = mli_pick_slots(part, &cap);
    if (cap) {
        at = mli_pick_slot_of(slots, cap, type, key);
        if (mli_u32_load(&at->row)) pick = mli_pick_read(at);
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
    for (i = 0; i < MLI_PICK_PARTS; i++) {
        size_t cap;
        mli_pick_slot *slots = mli_pick_slots(&parts[i], &cap);
        mli_own_free(lord, slots, sizeof *slots * cap);
    }
}
#if !defined(MEMLORD_NO_VERIFY)
MLI_PRIVATE MLI_COLD uint64_t mli_picks_sum(const mli_picks *parts) {
    uint64_t sum = 0;
    uint32_t i;
    for (i = 0; i < MLI_PICK_PARTS; i++) sum += parts[i].count;
    return sum;
}
#endif
