#include "base/atomics.h"
#include "os/system.h"

#if defined(MLI_U64_LOCKS)
MLI_VARIABLE_HERE(mli_u32 mli_u64_locks[MLI_U64_LOCKS])
MLI_PRIVATE void mli_u64_lock_take(mli_u32 *lock) {
    unsigned n = 0;
    while (mli_u32_exchange(lock, 1)) mli_spin_wait(&n);
}
static mli_u32 *mli_u64_lock(const mli_u64 *w) {
    mli_u32 *lock = &mli_u64_locks[(uintptr_t)w / 8 % MLI_U64_LOCKS];
    mli_u64_lock_take(lock);
    return lock;
}
/* Clears all bits of a word but `keep`, then adds v. Returns the value that the word had before. */
static uint64_t mli_u64_change(mli_u64 *w, uint64_t keep, uint64_t v) {
    mli_u32 *lock = mli_u64_lock(w);
    uint64_t before = w->v;
    w->v = (before & keep) + v;
    mli_u32_store_release(lock, 0);
    return before;
}
MLI_PRIVATE uint64_t mli_u64_add(mli_u64 *w, uint64_t v) {
    return mli_u64_change(w, UINT64_MAX, v);
}
MLI_PRIVATE uint64_t mli_u64_or(mli_u64 *w, uint64_t v) { return mli_u64_change(w, ~v, v); }
MLI_PRIVATE void mli_u64_store(mli_u64 *w, uint64_t v) { (void)mli_u64_change(w, 0, v); }
MLI_PRIVATE void mli_u64_store_release(mli_u64 *w, uint64_t v) { mli_u64_store(w, v); }
MLI_PRIVATE uint64_t mli_u64_load(const mli_u64 *w) {
    return mli_u64_add((mli_u64 *)(uintptr_t)w, 0);
}
MLI_PRIVATE uint64_t mli_u64_load_acquire(const mli_u64 *w) { return mli_u64_load(w); }
MLI_PRIVATE int mli_u64_cas(mli_u64 *w, uint64_t *expected, uint64_t v) {
    mli_u32 *lock = mli_u64_lock(w);
    uint64_t seen = w->v;
    int same = seen == *expected;
    if (same) w->v = v;
    mli_u32_store_release(lock, 0);
    *expected = seen;
    return same;
}
#endif

MLI_PRIVATE MLI_NOINLINE int mli_u32_bits(mli_u32 *w, uint32_t bits, int on) {
    uint32_t seen = mli_u32_load(w);
    do {
        if ((seen & bits) == (on ? bits : 0)) return 0;
    } while (!mli_u32_cas(w, &seen, on ? seen | bits : seen & ~bits));
    return 1;
}
MLI_PRIVATE MLI_NOINLINE void mli_u64_lower(mli_u64 *w, uint64_t by) {
    uint64_t seen = mli_u64_load(w);
    while (!mli_u64_cas(w, &seen, seen > by ? seen - by : 0)) {}
}
MLI_PRIVATE void mli_u64_max(mli_u64 *w, int64_t v) {
    uint64_t seen = mli_u64_load(w);
    while (v > (int64_t)seen && !mli_u64_cas(w, &seen, (uint64_t)v)) {}
}

#if defined(MEMLORD_CHECK_LOCKS)
typedef struct mli_ranks_state {
    uint32_t held[MLI_RANKS]; /* how many locks of each rank this thread holds */
    const mli_lock *shard;    /* the shard lock that this thread took last */
} mli_ranks_state;
static MEMLORD_THREAD_LOCAL mli_ranks_state mli_ranks;
/* Returns how many locks of the first `ranks` ranks the thread holds. */
static uint32_t mli_ranks_held(uint32_t ranks) {
    uint32_t i, n = 0;
    for (i = 0; i < ranks; i++) n += mli_ranks.held[i];
    return n;
}
MLI_PRIVATE void mli_rank_take(const mli_lock *lock) {
    uint32_t rank = mli_u32_load(&lock->rank);
    int two = mli_ranks.held[MLI_RANK_REGISTRY] ||
              (rank == MLI_RANK_SHARD && lock > mli_ranks.shard) ||
              (rank == MLI_RANK_PHYS && mli_ranks.held[MLI_RANK_COLD]);
    MLI_REQUIRE(!mli_ranks_held(rank) && (two || !mli_ranks.held[rank]));
    mli_ranks.held[rank]++;
    if (rank == MLI_RANK_SHARD) mli_ranks.shard = lock;
}
MLI_PRIVATE void mli_rank_drop(const mli_lock *lock) {
    MLI_REQUIRE(mli_lock_held(lock));
    mli_ranks.held[mli_u32_load(&lock->rank)]--;
}
MLI_PRIVATE void mli_rank_inside(uint32_t inside) {
    MLI_REQUIRE(!inside || !mli_ranks_held(MLI_RANK_INSIDE));
    mli_ranks.held[MLI_RANK_INSIDE] = inside;
}
MLI_PRIVATE int mli_lock_held(const mli_lock *lock) {
    return mli_ranks.held[mli_u32_load(&lock->rank)] && mli_u32_load(&lock->locked);
}
MLI_PRIVATE int mli_rank_held(uint32_t rank) { return mli_ranks.held[rank] != 0; }
MLI_PRIVATE int mli_none_held(void) { return !mli_ranks_held(MLI_RANKS); }
MLI_PRIVATE int mli_none_held_but_orphan(void) {
    return mli_ranks_held(MLI_RANKS) == mli_ranks.held[MLI_RANK_ORPHAN];
}
MLI_PRIVATE int mli_is_inside(void) { return mli_rank_held(MLI_RANK_INSIDE); }
MLI_PRIVATE void mli_lock_rank(mli_lock *lock, uint32_t rank) { mli_u32_store(&lock->rank, rank); }
#endif

MLI_PRIVATE MLI_COLD void mli_spin_wait(unsigned *n) {
    unsigned turn = ++*n / MLI_SPIN_LOOKS;
    mli_cpu_pause();
    if (*n % MLI_SPIN_LOOKS) return;
    if (turn <= MLI_SPIN_TURNS)
        mli_yield();
    else
        mli_nap(turn < MLI_SPIN_TURNS + 20 ? (turn - MLI_SPIN_TURNS) * 50000u : 1000000u);
}
MLI_PRIVATE MLI_NOINLINE void mli_lock_take(mli_lock *lock) {
    unsigned n = 0;
    mli_rank_take(lock);
    while (mli_u32_exchange(&lock->locked, 1))
        while (mli_u32_load(&lock->locked)) mli_spin_wait(&n);
}
MLI_PRIVATE int mli_lock_try(mli_lock *lock) {
    if (mli_u32_load(&lock->locked) || mli_u32_exchange(&lock->locked, 1))
        return 0;
    mli_rank_take(lock);
    return 1;
}
MLI_PRIVATE void mli_lock_drop(mli_lock *lock) {
    mli_rank_drop(lock);
    mli_u32_store_release(&lock->locked, 0);
}
