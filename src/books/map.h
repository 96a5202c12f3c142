/* Owns the map of 1024 shards from a key to an entry of 24 bytes (bench/README.md tells why it has
   this shape), and two numbers that an alloc stores in an entry: the dev, and the number of the
   current mark. A bucket has five slots, and in its header a print of each: a byte of the key's
   hash. Invariant: a thread is inside a shard while it uses the shard's table, and counts its
   changes before it leaves. Locks: the lock of a shard, then that of a bucket. */
#ifndef MLI_BOOKS_MAP_H
#define MLI_BOOKS_MAP_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "books/threads.h"

/* -- entries -- */

/* A block in the map. Its key is the storage that the host gave. A storage below 1 <<
   MLI_HANDLE_BITS is a handle; any other is an address. A side record (books/parts) has what does
   not fit here. The fields of the words, from the lowest bit on:
     word1   bytes:49 | dev:8 | references:6 (63: the side record has the count) | picked:1
     word2   0:1 | site row:20 | tag row:16 | birth:27; or the address of a side record, plus 1
     birth   mark:26 | 0:1; if born in a scope or on a stream: number of the birth:26 | 1:1 */
typedef struct mli_entry {
    uint64_t key, word1, word2;
} mli_entry;

#define MLI_BYTES_BITS 49
#define MLI_BYTES(word1) ((word1) & (((uint64_t)1 << MLI_BYTES_BITS) - 1))
#define MLI_DEV(word1) ((uint32_t)((word1) >> MLI_BYTES_BITS) & 255u)
#define MLI_REFS(word1) ((uint32_t)((word1) >> 57) & 63u)
#define MLI_REFS_ONE ((uint64_t)1 << 57)
#define MLI_REFS_MANY 63u
#define MLI_PICKED ((uint64_t)1 << 63) /* the block is picked: books/stacks has its stack */
/* The bits of word1 above the bytes: dev, references, picked (not set by MLI_UPPER_OF). */
#define MLI_UPPER_OF(dev, refs) ((dev) + ((uint32_t)(refs) << 8))
static MLI_HOT uint64_t mli_word1_of(uint64_t bytes, uint32_t dev, uint32_t refs) {
    return bytes | (uint64_t)MLI_UPPER_OF(dev, refs) << MLI_BYTES_BITS;
}

#define MLI_HAS_SIDE ((uint64_t)1) /* 1: word2 is the address of a side record, plus 1 */
#define MLI_SITE_ROWS_MAX 0xfffffu
#define MLI_TAG_ROWS_MAX 0xffffu
#define MLI_SITE_BITS ((uint64_t)MLI_SITE_ROWS_MAX << 1)
#define MLI_TAG_BITS ((uint64_t)MLI_TAG_ROWS_MAX << 21)
#define MLI_ROWS_MASK (MLI_TAG_BITS | MLI_SITE_BITS | MLI_HAS_SIDE)
#define MLI_SITE_ROW(word2) ((uint32_t)((word2) >> 1) & MLI_SITE_ROWS_MAX)
#define MLI_TAG_ROW(word2) ((uint32_t)((word2) >> 21) & MLI_TAG_ROWS_MAX)
#define MLI_BIRTH(word2) ((word2) >> 37)
#define MLI_BIRTH_BITS 27
#define MLI_MARK_MAX (((uint64_t)1 << (MLI_BIRTH_BITS - 1)) - 1)
#define MLI_BIRTH_NUMBERED (MLI_MARK_MAX + 1) /* the bits below it are the number of a birth */
#define MLI_BIRTHS_MAX (1u << 20)
/* Returns the word2 of a block without a side record. A row of 0 means no row. */
static MLI_HOT uint64_t mli_word2_of(uint32_t site_row, uint32_t tag_row, uint64_t birth) {
    return birth << 37 | (uint64_t)tag_row << 21 | (uint64_t)site_row << 1;
}

/* Returns the current mark, shifted into its place in word2. */
static MLI_HOT uint64_t mli_mark_bits(const memlord *lord) {
    return mli_u64_load(&lord->map.mark);
}
/* Makes the next mark current, up to MLI_MARK_MAX, and returns its number. */
MLI_PRIVATE MLI_COLD uint64_t mli_mark_next(memlord *lord);

/* -- the numbers of devices -- */

/* Returns a device as one word. Code that extracts its two halves would take more instructions. */
static MLI_HOT uint32_t mli_device_word(memlord_device d) {
    uint32_t word;
    memcpy(&word, &d, sizeof word);
    return word;
}
/* Returns the index of a device in mli_map_state.dev_of: 4 bits of its type and 7 bits of its
   index. If it has more bits, returns the index of the last element, which is always 0. */
static MLI_HOT uint32_t mli_device_direct_index(memlord_device d) {
    uint32_t word = mli_device_word(d);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = word << 16 | word >> 16;
#endif
    if (MLI_UNLIKELY(word & 0xff80fff0u)) return MLI_DIRECT_DEVICES;
    return (word >> 12 | word) & (MLI_DIRECT_DEVICES - 1);
}
/* Returns the dev of a device, or 0 if it has no dev yet, or no index in dev_of. The acquire load
   pairs with the release store in mli_dev_direct_set. */
static MLI_HOT uint32_t mli_dev_direct(const memlord *lord, memlord_device d) {
    return mli_u32_load_acquire(&lord->map.dev_of[mli_device_direct_index(d)]);
}

/* Sets the dev of a device, if the device has an index in dev_of. Requires: all data of the device
   is set, because other threads may read it from now on. */
MLI_PRIVATE MLI_COLD void mli_dev_direct_set(memlord *lord, memlord_device d, uint32_t dev);
/* Returns the type of a device. The map finds a block by its storage and the type of its device. */
static MLI_HOT uint16_t mli_type_of(const memlord *lord, uint32_t dev) {
    return lord->map.type_of[dev];
}
/* Sets the type of a device. Requires: no other thread knows the dev yet. */
MLI_PRIVATE MLI_COLD void mli_type_set(memlord *lord, uint32_t dev, int type);

/* -- buckets --

   A table is an array of buckets. A bucket is two adjacent cache lines: a header with five prints,
   and five entries. All prints are compared at once, because the processor could mispredict the
   branch of a loop. Almost every call touches one bucket, the home of its key. The address of the
   home depends on the key alone, so the cache misses of successive calls overlap.

   An entry that finds its home full goes to a later bucket. In every bucket that it passes it
   increments one of the four overflow counts; bits of the hash choose which. A probe ends at a
   bucket whose overflow count for its hash is 0. So an erased entry leaves no tombstone, and a
   vacant slot does not end a probe. */

#define MLI_BUCKET_SLOTS 5
#define MLI_BUCKET_BYTES 128
#define MLI_PROBE_MAX 16 /* how many buckets a key may be in: its home and the 15 buckets after
                            its home. These buckets are the window of the key */

/* Bytes 0 to 4 of the header are the prints of the slots; a print of 0 means that the slot is
   vacant. Bits 40 to 55 are four overflow counts of 4 bits. Bit 63 is the lock. A print is a byte
   of the key's hash with its lowest bit set. */
typedef struct mli_bucket {
    mli_u64 header;
    mli_entry slots[MLI_BUCKET_SLOTS];
} mli_bucket;

#define MLI_PRINT_LOW_BITS 0x0101010101u
#define MLI_BUCKET_LOCK ((uint64_t)1 << 63)
#define MLI_HASH_PRINT(h) ((uint64_t)((uint32_t)(h) >> 24 | 1))
/* The bit where the overflow count for a hash begins in a header: 40, 44, 48 or 52. */
#define MLI_HASH_OVERFLOW(h) (40 + ((unsigned)(h) >> 18 & 12))
#define MLI_OVERFLOW_MAX 15

/* Returns the hash of a key. Blocks of one size lie at equal distances, which a product preserves;
   without the shift one distance in ten would put many keys into few buckets. The constant comes
   from the finalizer of MurmurHash3. The upper 32 bits, and those just below them, are well mixed:
   the former choose the home, the latter the print and the overflow count. Equal handles of two
   types share a home, because they are rare. */
static MLI_HOT uint64_t mli_hash(uint64_t key) {
    return (key ^ key >> 5) * 0xc4ceb9fe1a85ec53u;
}
/* Returns the table of a shard, or NULL if the shard has none. The word has the code of the table's
   size in its lowest 7 bits, which are 0 in the address, because own memory is aligned to a bucket
   (base/memory). So an address and a size that do not belong together are never seen. */
static MLI_HOT mli_bucket *mli_table_at(const mli_shard *s) {
    const uintptr_t word = (uintptr_t)mli_ptr_load_own(&s->table);
    return (mli_bucket *)(word & ~(uintptr_t)(MLI_BUCKET_BYTES - 1));
}
static MLI_HOT mli_bucket *mli_home_bucket(const mli_shard *s, uint64_t hash) {
    MLI_REQUIRE(mli_is_inside() || mli_lock_held(&s->lock));
    MLI_REQUIRE(mli_table_at(s));
    return mli_table_at(s) + (((hash >> 32) * s->size) >> 32);
}
static MLI_HOT unsigned mli_overflow_count(uint64_t header, uint64_t hash) {
    return (unsigned)(header >> MLI_HASH_OVERFLOW(hash)) & MLI_OVERFLOW_MAX;
}

static MLI_HOT unsigned mli_lowest_bit(uint64_t bits) {
    MLI_REQUIRE(bits);
#if defined(__GNUC__)
    return (unsigned)__builtin_ctzll(bits);
#else
    unsigned i = 0;
    while (!(bits >> i & 1)) i++;
    return i;
#endif
}
/* Return a mask of the slots whose print is `print`; where the print of the lowest such slot begins
   in the header; and 1 if no slot has that print and a slot is vacant, whose print then begins at
   *bit. The version with vectors takes as many instructions as the other, but half the registers,
   which limit how far ahead a processor executes. */
#if MLI_SSE2
static MLI_HOT uint64_t mli_print_match(uint64_t header, uint64_t print) {
    __m128i prints = _mm_cvtsi32_si128((int)print);
    prints = _mm_shufflelo_epi16(_mm_unpacklo_epi8(prints, prints), 0);
    prints = _mm_cmpeq_epi8(prints, _mm_cvtsi64_si128((long long)header));
    return (unsigned)_mm_movemask_epi8(prints) & ((1u << MLI_BUCKET_SLOTS) - 1);
}
static MLI_HOT unsigned mli_print_match_bit(uint64_t match) {
    return mli_lowest_bit(match) * 8;
}
/* One comparison of 16 bytes: the lower 8 compare prints, the upper 8 find prints of 0. */
static MLI_HOT int mli_print_room(uint64_t header, uint64_t print, unsigned *bit) {
    const __m128i prints = _mm_cvtsi32_si128((int)print);
    const __m128i both = _mm_cvtsi64_si128((long long)header);
    const int same = _mm_movemask_epi8(
        _mm_cmpeq_epi8(_mm_shufflelo_epi16(_mm_unpacklo_epi8(prints, prints), 0),
                       _mm_unpacklo_epi64(both, both)));
    const int vacant = same & ((1 << MLI_BUCKET_SLOTS) - 1) << 8;
    if (MLI_UNLIKELY(same & ((1 << MLI_BUCKET_SLOTS) - 1)) || MLI_UNLIKELY(!vacant)) return 0;
    *bit = mli_lowest_bit((uint64_t)vacant) * 8 - 64;
    return 1;
}
#else
static MLI_HOT uint64_t mli_print_match(uint64_t header, uint64_t print) {
    const uint64_t low = MLI_PRINT_LOW_BITS * 127;
    uint64_t x = header ^ (print * MLI_PRINT_LOW_BITS);
    return ~(((x & low) + low) | x | low) & (MLI_PRINT_LOW_BITS << 7);
}
static MLI_HOT unsigned mli_print_match_bit(uint64_t match) {
    return mli_lowest_bit(match) - 7;
}
static MLI_HOT int mli_print_room(uint64_t header, uint64_t print, unsigned *bit) {
    const uint64_t vacant = ~header & MLI_PRINT_LOW_BITS;
    if (MLI_UNLIKELY(mli_print_match(header, print) != 0) || MLI_UNLIKELY(!vacant)) return 0;
    *bit = mli_lowest_bit(vacant);
    return 1;
}
#endif
/* Returns a mask with the lowest bit of the print of each vacant slot of a header. */
static MLI_HOT uint64_t mli_vacant_slots(uint64_t header) {
    return ~header & MLI_PRINT_LOW_BITS;
}
/* Returns the entry of the slot whose print begins at bit `bit` of the header. A print has 8 bits,
   so each bit of the header stands for an eighth of an entry. */
static MLI_HOT mli_entry *mli_slot_entry(mli_bucket *b, unsigned bit) {
    return (mli_entry *)(void *)((char *)b->slots + sizeof *b->slots / 8 * (size_t)bit);
}
/* Tries to take a bucket's lock. Returns 1 if it took the lock. Uses only the lock bit of the old
   header, so that one locked instruction of x86 is enough. The acquire that takes the lock pairs
   with the release store that drops the lock. */
static MLI_HOT int mli_bucket_try(mli_bucket *b) {
    return !(mli_u64_or(&b->header, MLI_BUCKET_LOCK) & MLI_BUCKET_LOCK);
}

/* -- shards --

   A shard is a part of the map that one thread can use alone. A thread enters a shard before it
   uses the shard's table, and leaves the shard afterwards. A thread that is inside runs no host
   code, allocates nothing and takes only the innermost locks, because a thread that stops the shard
   waits for it.

   The upper bits of an address choose its shard, so that 2 MiB of addresses are in one shard. The
   blocks of one thread are therefore mostly in shards, and in cache lines, that no other thread
   uses.

   The first thread that uses a shard owns it. The owner uses the table with plain loads and stores;
   atomic read-modify-writes would double the cost of a call. The first call of another thread makes
   the shard shared for good. In a shared shard a thread locks each bucket that it uses.

   A thread stores in `inside` which shard it enters, and then loads the shard's state. A thread
   that has to stop a shard stores STOPPED, makes all threads pass a barrier (mli_barrier_threads),
   and waits until no thread is inside. So either the thread that stops the shard sees `inside`, or
   the thread that enters it sees STOPPED. */

#define MLI_SHARDS (1u << MLI_SHARD_BITS)
#define MLI_SHARD_ADDRESS_BITS 21
/* Keys below 1 << MLI_HANDLE_BITS are handles. Each 1024 successive handles are in one shard.
   With 64-bit addresses the handles end below 4 MiB, because a program that is not position
   independent begins at 4 MiB, and its heap follows. */
#if UINTPTR_MAX > 0xffffffffu
#define MLI_HANDLE_BITS 22
#else
#define MLI_HANDLE_BITS 20
#endif
#define MLI_SHARD_HANDLE_BITS 10

enum { /* mli_shard.state */
    MLI_SHARD_NEW, /* the shard has no table yet */
    MLI_SHARD_SHARED,
    MLI_SHARD_STOPPED,
    MLI_SHARD_OWNED = MLI_THREAD_ID_FIRST /* this and any larger value is the id of the owner */
};

/* Returns 1 if a key is a handle, and otherwise 0. */
static MLI_HOT int mli_key_is_handle(uint64_t key) { return !(key >> MLI_HANDLE_BITS); }
/* Returns the shard of a key that is an address. mli_shard_of also finds the shard of a handle. */
static MLI_HOT mli_shard *mli_shard_of_address(memlord *lord, uint64_t key) {
    const uint64_t hash = (key >> MLI_SHARD_ADDRESS_BITS) * 0x9e3779b97f4a7c15u;
    return &lord->map.shards[hash >> (64 - MLI_SHARD_BITS)];
}
static MLI_HOT mli_shard *mli_shard_of(memlord *lord, uint64_t key) {
    if (MLI_UNLIKELY(mli_key_is_handle(key)))
        key <<= MLI_SHARD_ADDRESS_BITS - MLI_SHARD_HANDLE_BITS;
    return mli_shard_of_address(lord, key);
}
/* Returns a shard by its number, 0 to MLI_SHARDS - 1. */
static MLI_HOT mli_shard *mli_shard_at(memlord *lord, uint32_t number) {
    return &lord->map.shards[number];
}

/* Enters a shard: stores it in `inside`, then returns the shard's state. The caller may use the
   table if the state is its thread's id, or if it is SHARED and the caller locks the buckets.
   Otherwise the caller leaves at once. Requires: the caller has just seen that
   MLI_SPECIAL_NO_BARRIER is not set in `special`.

   Memory order: a thread S may stop the shard. The store to `inside` is a release, so S sees the
   earlier work of this thread. The acquire load of the state pairs with the release store of the
   state by S. The barrier in mli_barrier_threads keeps the store to `inside` before that load. */
static MLI_HOT uint32_t mli_shard_enter_by_store(mli_thread *t, mli_shard *s) {
    mli_rank_inside(1);
    mli_ptr_store_release(&t->inside, s);
    mli_compiler_barrier();
    return mli_u32_load_acquire(&s->state);
}
/* Returns the shard that the calling thread is inside, or NULL if it is in none. */
static MLI_HOT mli_shard *mli_shard_entered(const mli_thread *t) {
    return (mli_shard *)mli_ptr_load_own(&t->inside);
}
/* Leaves the shard. The release store pairs with the load in mli_shard_wait: the thread that
   stopped the shard sees all that this thread did inside. */
static MLI_HOT void mli_shard_leave(mli_thread *t) {
    mli_rank_inside(0);
    mli_ptr_store_release(&t->inside, NULL);
}

/* -- the home bucket, as calls/fast uses it -- */

typedef struct mli_home {
    mli_bucket *bucket;
    uint64_t hash, header; /* the hash of the key, and the bucket's header without the lock bit */
    uint64_t next;         /* the header that mli_home_store will store */
} mli_home;

/* Finds the home of a key, and returns its header. Prefetches the home's second cache line. */
static MLI_HOT const mli_u64 *mli_home_begin(const mli_shard *s, uint64_t key, mli_home *home) {
    home->hash = mli_hash(key);
    home->bucket = mli_home_bucket(s, home->hash);
    mli_prefetch((char *)home->bucket + 64);
    return &home->bucket->header;
}
/* Finds a slot for a new key in its home, and sets `next` to the header with the print of the key.
   Returns NULL if no slot is vacant. Also returns NULL if the map may already have the key,
   because a print matches or an entry overflowed to a later bucket. */
static MLI_HOT mli_entry *mli_home_room(mli_home *home) {
    const uint64_t print = MLI_HASH_PRINT(home->hash);
    unsigned bit;
    home->next = home->header;
    if (MLI_UNLIKELY(mli_overflow_count(home->header, home->hash)) ||
        MLI_UNLIKELY(!mli_print_room(home->header, print, &bit)))
        return NULL;
    home->next = home->header | print << bit;
    return mli_slot_entry(home->bucket, bit);
}
/* Returns the first entry in the key's home that has the key's print. Returns NULL if no entry has
   that print, or if the first such entry has another key. Sets `next` to the header without the
   entry. Does not compare the device type. */
static MLI_HOT mli_entry *mli_home_find(mli_home *home, uint64_t key) {
    const uint64_t print = MLI_HASH_PRINT(home->hash);
    const uint64_t match = mli_print_match(home->header, print);
    mli_entry *e;
    unsigned bit;
    if (MLI_UNLIKELY(!match)) return NULL;
    bit = mli_print_match_bit(match);
    e = mli_slot_entry(home->bucket, bit);
    home->next = home->header ^ print << bit;
    return MLI_LIKELY(e->key == key) ? e : NULL;
}
/* Stores `next` as the header. This inserts or erases the entry, because it sets or clears the
   print of the entry. The release order publishes the words of the entry, which were written
   before. The store also unlocks a shared bucket, because `next` lacks the lock bit. */
static MLI_HOT void mli_home_store(const mli_home *home) {
    mli_u64_store_release(&home->bucket->header, home->next);
}

/* Enters the shard of a key, finds the home of the key, and loads its header. In a shared shard,
   locks the home. Returns 0, outside of the shard, if another thread owns the shard or holds the
   bucket, or if the shard is stopped or has no table. With `plain` serves only shards that the
   thread owns, and keys that are addresses. */
static MLI_HOT int mli_home_enter(mli_thread *t, memlord *lord, uint64_t key, int plain,
                                  mli_home *home) {
    mli_shard *s = plain ? mli_shard_of_address(lord, key) : mli_shard_of(lord, key);
    const uint32_t state = mli_shard_enter_by_store(t, s);
    if (MLI_LIKELY(state == t->id)) {
        home->header = mli_u64_load(mli_home_begin(s, key, home));
        return 1;
    }
    if (!plain && state == MLI_SHARD_SHARED) {
        (void)mli_home_begin(s, key, home);
        if (mli_bucket_try(home->bucket)) {
            home->header = mli_u64_load(&home->bucket->header) & ~MLI_BUCKET_LOCK;
            return 1;
        }
    }
    mli_shard_leave(t);
    return 0;
}
/* Unlocks a home whose header stays as it was. */
static MLI_HOT void mli_home_unlock(mli_home *home) {
    home->next = home->header;
    mli_home_store(home);
}

/* -- entering a shard: the ways that all other calls use -- */

/* Enters a shard as mli_shard_enter_by_store does, but with an exchange, which is a full barrier.
   Sets mli_thread.by_exchange, because the thread enters by an exchange from now on: the thread has
   seen the bit MLI_SPECIAL_NO_BARRIER, the bit is never cleared, and a later load never returns an
   older value. The release store of by_exchange pairs with the load in mli_barrier_threads. A
   thread that loads 1 there sees all that this thread did inside shards before this thread saw the
   bit. The loads here, in mli_barrier_threads and in mli_shard_wait are seq_cst, because an acquire
   load may come before the store of an exchange (ARM's ldapr). */
MLI_PRIVATE MLI_NOINLINE uint32_t mli_shard_enter_by_exchange(mli_thread *t, mli_shard *s);
/* Enters a shard by an exchange if this thread has to, else by a store. */
static MLI_HOT uint32_t mli_shard_enter(mli_thread *t, mli_shard *s) {
    if (mli_u32_load(&t->special) & MLI_SPECIAL_NO_BARRIER)
        return mli_shard_enter_by_exchange(t, s);
    return mli_shard_enter_by_store(t, s);
}

/* Orders the caller and every thread T of the ledger. Each of them stores first, and loads later.
   T's load sees what the caller stored before this call, or the caller's load after this call sees
   what T stored before T's load. Two uses need this. In one the caller stores a shard's state, and
   T stores `inside`. In the other the caller stores the alert or a threshold, and T stores counts.

   The system's barrier for all threads provides this order. Without that barrier T executes one of
   its own: the exchange when T enters a shard, and the addition when T ends a call
   (mli_call_end_slow). That addition pairs with the addition in mli_alert_barrier.

   The system may refuse its barrier after threads have run without barriers of their own. T may
   then have read `special` without MLI_SPECIAL_NO_BARRIER, and may be preempted for any time before
   its store. So until T is seen to enter by an exchange, each caller waits for stores to drain. If
   T loaded before the caller stored, T's earlier stores are visible after the wait. If T loads
   later, it sees the caller's store. The wait has a bound, so a thread that sleeps delays no call
   for longer than that.

   Some callers may still get the barrier while others are refused it. Each caller is ordered
   by the barrier or by the wait that it used. A thread that registers meanwhile, or takes over a
   free record, is seen here or reads `has_barrier` as 0, because the exchanges and loads of
   `has_barrier`, `threads.all` and `by_exchange` are seq_cst. */
MLI_PRIVATE MLI_COLD void mli_barrier_threads(memlord *lord);

/* Stops a shard, so that the caller can read all of it, and keeps the shard's lock. If the shard
   has no table, returns 0, and neither stops the shard nor keeps its lock. */
MLI_PRIVATE int mli_shard_pause(memlord *lord, mli_shard *s);
/* Ends a pause: restores the shard's state and drops its lock. The release store pairs with the
   acquire load in mli_shard_enter_by_store. */
MLI_PRIVATE void mli_shard_resume(mli_shard *s);

/* Stops all shards with one barrier, and takes all shard locks, which mli_map_thaw drops. */
MLI_PRIVATE void mli_map_freeze(memlord *lord);
MLI_PRIVATE void mli_map_thaw(memlord *lord);

/* Calls fn for each entry of a shard until fn returns a value other than 0, and returns the last
   value, or 0. Requires: the caller holds the shard's lock, or no other thread knows the ledger. */
typedef int (*mli_entry_fn)(const mli_entry *entry, void *user);
MLI_PRIVATE int mli_shard_each(const mli_shard *s, mli_entry_fn fn, void *user);

/* Gives a shard its first table, or a larger one than that of `size`; returns 0 also if another
   thread has replaced that. A table of 3 buckets or more grows by a fifth to a third, or further if
   the entries do not fit. It is allocated before the shard is stopped, and only threads that use
   this shard wait. Returns -1 if there is no memory, or if no table has room. Requires: the caller
   is not inside a shard. */
MLI_PRIVATE MLI_COLD int mli_shard_grow(memlord *lord, mli_thread *t, mli_shard *s, uint32_t size);

/* Makes a shard shared for good, if another thread owns it. Waits until that thread is outside.
   Requires: the caller is not inside a shard. */
MLI_PRIVATE MLI_COLD void mli_shard_make_shared(memlord *lord, mli_thread *t, mli_shard *s);

/* Returns 1 if the shard should have a larger table, because the number of entries outside their
   home has reached a limit. The limit is 14, 22, 30 or 38 such entries for each 64 buckets. The
   number of the shard chooses the limit, so that shards of equal blocks do not all grow at once.
   One shard can then use the memory that another has returned. In a small ledger, which can spare
   the memory, the limit is 2 such entries for each 64 buckets, so that almost every entry is in its
   home. Requires: the caller is inside the shard. */
MLI_PRIVATE int mli_shard_crowded(memlord *lord, const mli_shard *s);

MLI_TABLE(const mli_life mli_map_life)

#endif
