#include "services/joint.h"
#include "base/memory.h"
#include "base/vectors.h"
#include "books/accounts.h"

typedef struct mli_joint_record {
    mli_handle handle;
    mli_joint shared;
} mli_joint_record;
struct mli_joint_state {
    mli_vector all;
    mli_u32 count;             /* one more than the number of records; grows under the cold lock */
    struct mli_handle *closed; /* records that can be opened again; under the cold lock */
};

static mli_joint_record *mli_joint_at(const memlord *lord, uint32_t number) {
    return (mli_joint_record *)mli_vector_at(&lord->joint->all, number, sizeof(mli_joint_record));
}
static void mli_joint_close(memlord *lord, mli_joint *shared) {
    mli_lock_take(&mli_process.cold_lock);
    mli_handle_close(&lord->joint->closed,
                     &mli_joint_at(lord, (uint32_t)(shared->token >> 32))->handle);
    mli_lock_drop(&mli_process.cold_lock);
}

/* Returns the part of a cell's level that is published, or 0 without a cell. */
static uint64_t mli_base_of(const mli_cell *cell) { return cell ? mli_u64_load(&cell->base) : 0; }
/* Returns the level of a cell, or 0 without one. */
static uint64_t mli_level_of(const mli_cell *cell) { return cell ? mli_u64_load(&cell->level) : 0; }

MLI_PRIVATE MLI_COLD memlord_result mli_joint_open(memlord *lord, mli_thread *t) {
    mli_span *f = t->now.span;
    const uint32_t n = mli_row_count(lord, MLI_BOOK_DEVICE);
    memlord_result r;
    uint32_t i;
    mli_joint *x;
    mli_joint_record *record =
        (mli_joint_record *)(void *)mli_handle_get_lock(lord, &lord->joint->all,
                                                        &lord->joint->count, sizeof *record,
                                                        &lord->joint->closed, &r);
    if (!record) return r;
    x = &record->shared;
    mli_lock_rank(&x->lock, MLI_RANK_JOINT);
    mli_lock_take(&x->lock); /* a call with a stale token may have found the record */
    memset(x->at, 0, sizeof x->at);
    x->began = f->stats;
    x->members = 1;
    x->over = x->adopted = 0;
    x->start = f->start;
    x->before = f->before;
    x->bytes = x->blocks = 0;
    x->shapes = NULL;
    for (i = 1; i < n; i++) {
        const mli_cell *cell = mli_cell_own_device(t, i);
        const mli_span_peak *at = mli_span_peak_at(f, i);
        if (cell) mli_span_raise(f, i, mli_u64_load_own(&cell->high));
        x->at[i].level = mli_base_of(cell) - at->from;
        x->at[i].high = at->high - at->from;
    }
    x->token = mli_handle_open(&lord->joint->closed);
    mli_lock_drop(&x->lock);
    mli_lock_drop(&mli_process.cold_lock);
    f->shared = x;
    return MEMLORD_OK;
}

MLI_PRIVATE MLI_COLD mli_joint *mli_joint_find(memlord *lord, uint64_t token) {
    mli_joint_record *record =
        (mli_joint_record *)mli_handle_find(&lord->joint->all, sizeof *record, token);
    return record ? &record->shared : NULL;
}
MLI_PRIVATE MLI_COLD int mli_joint_join(mli_joint *shared, uint64_t token) {
    int open;
    mli_lock_take(&shared->lock);
    open = shared->token == token && shared->members && !shared->over;
    shared->members += (uint32_t)open;
    shared->adopted |= (uint32_t)open;
    mli_lock_drop(&shared->lock);
    return open;
}

MLI_PRIVATE MLI_COLD void mli_joint_settle(memlord *lord, mli_joint *shared, uint32_t dev,
                                           mli_cell *cell, int enter) {
    const uint64_t held = mli_level_of(cell) - mli_base_of(cell);
    mli_row *row;
    if (!cell) return;
    row = mli_row_at(lord, MLI_BOOK_DEVICE, dev);
    mli_lock_take(&row->lock);
    mli_joint_add(shared, dev, enter ? 0 - held : held, enter ? 0 : mli_cell_above(row, cell));
    if (held && !enter) { /* the earlier `high` of another cell no longer counts */
        mli_row_raise_peak(row, cell);
        if (row->latest != cell) row->latest = NULL;
    }
    mli_lock_drop(&row->lock);
}

MLI_PRIVATE MLI_COLD int mli_joint_leave(memlord *lord, const mli_thread *t, mli_span *f,
                                         mli_scope_run *v, mli_u64 *sums) {
    mli_joint *x = f->shared;
    uint32_t i, n = mli_row_count(lord, MLI_BOOK_DEVICE);
    int last;
    for (i = 1; t && i < n; i++) mli_joint_settle(lord, x, i, mli_cell_own_device(t, i), 0);
    mli_lock_take(&x->lock);
    n = mli_row_count(lord, MLI_BOOK_DEVICE); /* a member that left may have used a new device */
    x->bytes += v->bytes;
    x->blocks += v->blocks;
    if (f->shapes) x->shapes = f->shapes;
    for (i = 1; i < n; i++)
        x->at[i].delta += mli_level_of(t ? mli_cell_own_device(t, i) : NULL) -
                          mli_span_peak_at(f, i)->from;
    x->over |= (uint32_t)!f->adopted;
    last = --x->members == 0;
    v->bytes = x->bytes;
    v->blocks = x->blocks;
    v->stamps += v->start - x->start;
    v->start = x->start;
    v->before = x->before;
    v->shapes = (uint64_t)(uintptr_t)x->shapes;
    if (x->adopted) v->peak = 0;
    for (i = 1; i < n && last; i++) {
        if (x->adopted) v->peak += x->at[i].high;
        if (sums) mli_u64_add_own(&sums[i], x->at[i].delta);
    }
    mli_lock_drop(&x->lock);
    if (last) mli_joint_close(lord, x);
    return last;
}

#if !MLI_WINDOWS /* Windows has no fork */
MLI_PRIVATE MLI_COLD int mli_joint_recount(const mli_span *f) {
    if (!f->adopted) f->shared->over = 0;
    return !f->shared->members++;
}
MLI_PRIVATE MLI_COLD void mli_joint_sweep(memlord *lord) {
    uint32_t i, n = mli_u32_load(&lord->joint->count);
    for (i = 1; i < n; i++) {
        mli_joint_record *record = mli_joint_at(lord, i);
        if (!record->shared.members && (mli_u32_load(&record->handle.generation) & 1))
            mli_handle_close(&lord->joint->closed, &record->handle);
    }
}
#endif

/* -- life -- */

static MLI_COLD void mli_joint_init(memlord *lord, const memlord_desc *desc) {
    (void)desc;
    lord->joint->count.v = 1;
}
/* In a forked child: clears the locks of all records, and sets their counts of members to 0.
   mli_joint_recount then counts the members that go on. */
static MLI_COLD void mli_joint_forked(memlord *lord) {
    uint32_t i, n = mli_u32_load(&lord->joint->count);
    for (i = 1; i < n; i++) {
        mli_joint *x = &mli_joint_at(lord, i)->shared;
        mli_u32_store(&x->lock.locked, 0);
        x->members = 0;
        x->over = 1;
    }
}
static MLI_COLD void mli_joint_free(memlord *lord) {
    mli_vector_free(lord, &lord->joint->all, sizeof(mli_joint_record));
}
MLI_PRIVATE const mli_life mli_joint_life = {MLI_LIFE_STATE(joint), mli_joint_init, NULL, NULL,
                                             NULL, mli_joint_forked, mli_joint_free};
