/* Has the words that threads share (mli_u32, mli_u64 and mli_ptr), the locks and the lock order.
   Invariants: a word is a struct, so that an access without one of the functions below does not
   compile; read-modify-writes (exchange, add, or, bits, cas) are sequentially consistent. Locks:
   the list MLI_RANK_... has all locks of MemLord in their order; the rank of a lock is its place in
   that list. */
#ifndef MLI_BASE_ATOMICS_H
#define MLI_BASE_ATOMICS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"

/* The name of a load or store ends in its memory order. A load or store without a suffix is
   relaxed: a thread that reads the value may conclude nothing about other words. The words have the
   same layout and the same code in C and C++. i386 aligns a uint64_t to 4 bytes. If a uint64_t lies
   across two cache lines, i386 reads it in two halves. So mli_u64 is aligned to 8 bytes. */

#if defined(__GNUC__)
#define MLI_ALIGNED8 __attribute__((aligned(8)))
#else
#define MLI_ALIGNED8
#endif
typedef struct mli_u32 { uint32_t v; } mli_u32;
typedef struct MLI_ALIGNED8 mli_u64 { uint64_t v; } mli_u64;
typedef struct mli_ptr { void *v; } mli_ptr;

#if defined(__GNUC__) /* the bodies of all loads and stores below */
#define MLI_LOAD(type, order) { return __atomic_load_n(&w->v, __ATOMIC_##order); }
#define MLI_STORE(type, order) { __atomic_store_n(&w->v, v, __ATOMIC_##order); }
#else
/* For MSVC, where a volatile access of an aligned word is one access. Acquire and release need
   __dmb on ARM64. On x86 the processor itself keeps the order that acquire and release ask for, so
   a barrier for the compiler is enough. Each seq_cst load comes after an exchange by the same
   thread. With MSVC that exchange is a full barrier, so the load needs no barrier of its own. */
#if defined(_M_ARM64)
#define MLI_FENCE __dmb(_ARM64_BARRIER_ISH)
#else
#define MLI_FENCE _ReadWriteBarrier()
#endif
#define MLI_LOAD(type, order) { type v = *(type const volatile *)&w->v; MLI_FENCE; return v; }
#define MLI_STORE(type, order) { MLI_FENCE; *(type volatile *)&w->v = v; }
#endif
#define MLI_ATOMIC(kind, type)                                                                   \
    static MLI_HOT type mli_##kind##_load(const mli_##kind *w) MLI_LOAD(type, RELAXED)           \
    static MLI_HOT type mli_##kind##_load_acquire(const mli_##kind *w) MLI_LOAD(type, ACQUIRE)   \
    static MLI_HOT void mli_##kind##_store(mli_##kind *w, type v) MLI_STORE(type, RELAXED)       \
    static MLI_HOT void mli_##kind##_store_release(mli_##kind *w, type v) MLI_STORE(type, RELEASE)
MLI_ATOMIC(u32, uint32_t)
MLI_ATOMIC(ptr, void *)
static MLI_HOT uint32_t mli_u32_load_seqcst(const mli_u32 *w) MLI_LOAD(uint32_t, SEQ_CST)
static MLI_HOT void *mli_ptr_load_seqcst(const mli_ptr *w) MLI_LOAD(void *, SEQ_CST)
#if defined(_MSC_VER) || defined(__GCC_HAVE_SYNC_COMPARE_AND_SWAP_8)
MLI_ATOMIC(u64, uint64_t)
#else
#define MLI_U64_LOCKS 16 /* in place of 64-bit atomics; mli_u64_lock chooses one by the address */
#endif

#if defined(__GNUC__)
static MLI_HOT void *mli_ptr_exchange(mli_ptr *w, void *v) {
    return __atomic_exchange_n(&w->v, v, __ATOMIC_SEQ_CST);
}
static MLI_HOT uint32_t mli_u32_exchange(mli_u32 *w, uint32_t v) {
    return __atomic_exchange_n(&w->v, v, __ATOMIC_SEQ_CST);
}
static MLI_HOT uint32_t mli_u32_add(mli_u32 *w, uint32_t v) {
    return __atomic_fetch_add(&w->v, v, __ATOMIC_SEQ_CST);
}
static MLI_HOT int mli_u32_cas(mli_u32 *w, uint32_t *expected, uint32_t v) {
    return __atomic_compare_exchange_n(&w->v, expected, v, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}
#if !defined(MLI_U64_LOCKS)
static MLI_HOT uint64_t mli_u64_or(mli_u64 *w, uint64_t v) {
    return __atomic_fetch_or(&w->v, v, __ATOMIC_SEQ_CST);
}
static MLI_HOT uint64_t mli_u64_add(mli_u64 *w, uint64_t v) {
    return __atomic_fetch_add(&w->v, v, __ATOMIC_SEQ_CST);
}
static MLI_HOT int mli_u64_cas(mli_u64 *w, uint64_t *expected, uint64_t v) {
    return __atomic_compare_exchange_n(&w->v, expected, v, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}
#else
/* Locks for processors without 64-bit atomics (32-bit PowerPC and MIPS, i486). The address of a
   word chooses the lock that guards the word. The locks of libatomic cannot be used: if another
   thread holds one of them at a fork, that lock stays locked for good in the child. The exchange
   that takes a lock pairs with the release store that drops it. */
MLI_VARIABLE(mli_u32 mli_u64_locks[MLI_U64_LOCKS])
MLI_PRIVATE MLI_COLD void mli_spin_wait(unsigned *n);
MLI_PRIVATE void mli_u64_lock_take(mli_u32 *lock);
MLI_PRIVATE uint64_t mli_u64_add(mli_u64 *w, uint64_t v);
MLI_PRIVATE uint64_t mli_u64_or(mli_u64 *w, uint64_t v);
MLI_PRIVATE void mli_u64_store(mli_u64 *w, uint64_t v);
MLI_PRIVATE void mli_u64_store_release(mli_u64 *w, uint64_t v);
MLI_PRIVATE uint64_t mli_u64_load(const mli_u64 *w);
MLI_PRIVATE uint64_t mli_u64_load_acquire(const mli_u64 *w);
MLI_PRIVATE int mli_u64_cas(mli_u64 *w, uint64_t *expected, uint64_t v);
#endif
static MLI_HOT void mli_compiler_barrier(void) {
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}
static MLI_HOT void mli_cpu_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}
#else
static MLI_HOT void *mli_ptr_exchange(mli_ptr *w, void *v) {
    return InterlockedExchangePointer(&w->v, v);
}
static MLI_HOT uint32_t mli_u32_exchange(mli_u32 *w, uint32_t v) {
    return (uint32_t)InterlockedExchange((long volatile *)&w->v, (long)v);
}
static MLI_HOT uint64_t mli_u64_or(mli_u64 *w, uint64_t v) {
    return (uint64_t)InterlockedOr64((__int64 volatile *)&w->v, (__int64)v);
}
static MLI_HOT uint64_t mli_u64_add(mli_u64 *w, uint64_t v) {
    return (uint64_t)InterlockedExchangeAdd64((__int64 volatile *)&w->v, (__int64)v);
}
static MLI_HOT uint32_t mli_u32_add(mli_u32 *w, uint32_t v) {
    return (uint32_t)InterlockedExchangeAdd((long volatile *)&w->v, (long)v);
}
static MLI_HOT int mli_u32_cas(mli_u32 *w, uint32_t *expected, uint32_t v) {
    const uint32_t wanted = *expected;
    *expected = (uint32_t)InterlockedCompareExchange((long volatile *)&w->v, (long)v, (long)wanted);
    return *expected == wanted;
}
static MLI_HOT int mli_u64_cas(mli_u64 *w, uint64_t *expected, uint64_t v) {
    const uint64_t wanted = *expected;
    *expected = (uint64_t)InterlockedCompareExchange64((__int64 volatile *)&w->v, (__int64)v,
                                                       (__int64)wanted);
    return *expected == wanted;
}
static MLI_HOT void mli_compiler_barrier(void) { _ReadWriteBarrier(); }
static MLI_HOT void mli_cpu_pause(void) { YieldProcessor(); }
#endif

/* Loads a word that only the calling thread writes. The load is plain, because compilers fold a
   plain load into an operand of another instruction, but not an atomic load. */
static MLI_HOT uint64_t mli_u64_load_own(const mli_u64 *w) { return w->v; }
static MLI_HOT void *mli_ptr_load_own(const mli_ptr *w) { return w->v; }

/* Adds to a word with a load and a store. Requires: the caller is the only writer of the word,
   because it owns the word or holds its lock. Other threads may read the word. */
static MLI_HOT void mli_u64_add_own(mli_u64 *w, uint64_t v) {
    mli_u64_store(w, mli_u64_load(w) + v);
}
static MLI_HOT void mli_u32_add_own(mli_u32 *w, uint32_t v) {
    mli_u32_store(w, mli_u32_load(w) + v);
}
/* Copies n words of an object to words that other threads read, each by a release store, so that a
   reader of a new word also sees what the caller stored before. Pairs with mli_words_load. */
static MLI_HOT void mli_words_store(mli_u64 *to, const void *from, size_t n) {
    uint64_t word;
    size_t i;
    for (i = 0; i < n; i++) {
        memcpy(&word, (const char *)from + i * sizeof word, sizeof word);
        mli_u64_store_release(&to[i], word);
    }
}
/* Copies n words to an object, each by an acquire load. Pairs with mli_words_store. */
static MLI_HOT void mli_words_load(void *to, const mli_u64 *from, size_t n) {
    uint64_t word;
    size_t i;
    for (i = 0; i < n; i++) {
        word = mli_u64_load_acquire(&from[i]);
        memcpy((char *)to + i * sizeof word, &word, sizeof word);
    }
}
/* Sets or clears bits of a word. Returns 1 if that changes the word. */
MLI_PRIVATE MLI_NOINLINE int mli_u32_bits(mli_u32 *w, uint32_t bits, int on);
/* Raises a shared word to at least v. Both are compared as signed numbers. */
MLI_PRIVATE void mli_u64_max(mli_u64 *w, int64_t v);
/* Subtracts `by` from a shared word, and stops at 0. */
MLI_PRIVATE MLI_NOINLINE void mli_u64_lower(mli_u64 *w, uint64_t by);

/* The lock order, the innermost lock first. When a thread takes a lock, all locks that it holds
   come later in this list. This is so in every call, in a fork, and in a thread that is ending.
   While a thread holds one of these locks, it runs no function of the host but the clock. */
enum {
    MLI_RANK_PAGES,     /* one for the process; guards the memory that the os allocator maps */
    MLI_RANK_JOINT,     /* one for each shared scope invocation; guards its totals */
    MLI_RANK_ROW,       /* one for each row; guards members of the row: see mli_row */
    MLI_RANK_COUNT,     /* guards the counters of the orphan record */
    MLI_RANK_MEMORY,    /* guards the regions and free pieces of the ledger's own memory */
    MLI_RANK_STACKS,    /* one for each part of the table of sampled blocks; guards that part */
    MLI_RANK_LOG,       /* guards the logger, and the number of its calls in progress */
    MLI_RANK_ANOMALIES, /* guards the list of the host's mistakes */
    MLI_RANK_SNAPSHOTS, /* guards the list of snapshots, and the holders of each device */
    MLI_RANK_ACCOUNT,   /* one for each account; guards its bytes, and whether it is open */
    MLI_RANK_PHYS,      /* one for each phys; guards its sample, limit, tickets and bands */
    MLI_RANK_CALLBACKS, /* guards collection callbacks, who runs them, and capacity sources */
    MLI_RANK_NEIGHBOURS, /* guards the ledger's use of the pressure page */
    MLI_RANK_CONTEXT,   /* one for each context of a fibre; guards which thread is in the context */
    MLI_RANK_FENCES,    /* guards fences, their queues, and the list of fences to drop */
    MLI_RANK_INSIDE,    /* not a lock: the thread is inside a shard, and others wait until it
                           leaves. Locks of buckets have no rank: they are taken inside */
    MLI_RANK_SHARD,     /* one for each shard; guards its state and table. A thread that takes
                           several takes the one at the lowest address first */
    MLI_RANK_COLD,      /* one for the process; guards the names, devices, sites, tags, stb_ds
                           tables and indexes of all ledgers */
    MLI_RANK_ORPHAN,    /* held by a thread that uses the orphan record */
    MLI_RANK_REGISTRY,  /* guards the list of ledgers and the owners of thread records; a thread
                           that forks holds this lock while it takes the locks of all ledgers */
    MLI_RANKS
};

/* A spin lock for short work: an exchange takes it, and pairs with the release store behind. */
typedef struct mli_lock {
    mli_u32 locked;
#if defined(MEMLORD_CHECK_LOCKS)
    mli_u32 rank; /* MLI_RANK_...; atomic, because each new ledger sets the process's again */
#endif
} mli_lock;

#if defined(MEMLORD_CHECK_LOCKS)
/* Checks the lock order before the thread waits for a lock, and notes that it holds the lock. A
   thread may hold two locks of one rank in three cases: those of shards, if it takes the one at the
   lowest address first; those of physical devices, while it holds the cold lock; and any, while it
   holds the registry lock, as in a fork. */
MLI_PRIVATE void mli_rank_take(const mli_lock *lock);
MLI_PRIVATE void mli_rank_drop(const mli_lock *lock);
/* Notes that the thread enters (1) or leaves (0) a shard of the map. Requires, to enter: the thread
   holds no lock of an inner rank. The thread may be inside already. */
MLI_PRIVATE void mli_rank_inside(uint32_t inside);
/* Returns 1 if the thread holds the lock. The function may also return 1 if another thread holds
   the lock while this thread holds another lock of the same rank. Assertions in other functions
   call this function and the next four. */
MLI_PRIVATE int mli_lock_held(const mli_lock *lock);
/* Returns 1 if the thread holds a lock of the rank. */
MLI_PRIVATE int mli_rank_held(uint32_t rank);
/* Returns 1 if the thread holds no lock and is not inside a shard of the map. */
MLI_PRIVATE int mli_none_held(void);
/* Returns 1 if the thread holds no lock, but perhaps the orphan lock, and is not inside a shard. */
MLI_PRIVATE int mli_none_held_but_orphan(void);
/* Returns 1 if the thread is inside a shard of the map. */
MLI_PRIVATE int mli_is_inside(void);
/* Sets the rank of a new lock. A lock of zeros has the innermost rank. */
MLI_PRIVATE void mli_lock_rank(mli_lock *lock, uint32_t rank);
#else
static MLI_HOT void mli_rank_take(const mli_lock *lock) { (void)lock; }
static MLI_HOT void mli_rank_drop(const mli_lock *lock) { (void)lock; }
static MLI_HOT void mli_rank_inside(uint32_t inside) { (void)inside; }
static MLI_HOT void mli_lock_rank(mli_lock *lock, uint32_t rank) { (void)lock, (void)rank; }
#endif

#define MLI_SPIN_LOOKS 200 /* spins before each yield or sleep */
#define MLI_SPIN_TURNS 16  /* yields before the first sleep */
/* Waits a moment. A thread that waits for another one calls this function in a loop, and *n counts
   the calls. Most calls spin. One in MLI_SPIN_LOOKS does not: the first MLI_SPIN_TURNS of these
   yield, and the later ones sleep for 50 us to 1 ms, because a real-time thread that yields lets no
   thread of lower priority run, which may hold the lock. */
MLI_PRIVATE MLI_COLD void mli_spin_wait(unsigned *n);
/* Takes a lock. Requires: the thread holds only locks of later ranks, as mli_rank_take checks. */
MLI_PRIVATE MLI_NOINLINE void mli_lock_take(mli_lock *lock);
/* Takes a lock if it is free. Returns 1 if the thread has the lock now, else 0. */
MLI_PRIVATE int mli_lock_try(mli_lock *lock);
MLI_PRIVATE void mli_lock_drop(mli_lock *lock);

#endif
