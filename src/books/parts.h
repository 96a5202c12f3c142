/* Owns the side records and the parts of blocks. Invariants: only the thread that holds an entry
   uses its side record; such a thread is inside a shard of its own, or has locked the entry's
   bucket. Parts lie inside their block and do not overlap. Locks: those of the map. */
#ifndef MLI_BOOKS_PARTS_H
#define MLI_BOOKS_PARTS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/ledger.h"
#include "books/threads.h"
#include "books/map.h"
#include "books/probes.h"
#include "books/fences.h"

/* A description, more references than fit in the entry, fences, an account, parts. */
typedef struct mli_side_record {
    uint64_t word2;                  /* the word2 that the entry would have without this record */
    uint64_t refs;                   /* the references, if the entry has MLI_REFS_MANY (63) */
    struct mli_fence_record *fences; /* of a live block, its recorded uses (memlord_block_use); of a
                                        pending block, the fences that are not done */
    uint64_t serial;                 /* no other pending block has it; 0: not pending */
    uint64_t epoch;                  /* of a pending block: mli_epoch when it was freed */
    memlord_account account;         /* the account that the block is charged to; 0 means none */
    uint64_t charged;                /* the bytes that are charged to `account` */
    struct mli_parts *parts;         /* the parts of the block; NULL if it has none */
    memlord_meta meta;
} mli_side_record;

/* Returns 1 if a storage may have this key: any key but 0 and UINT64_MAX. */
static MLI_HOT int mli_key_valid(uint64_t key) { return key + 1 > 1; }

/* Begins a public call that names a block: checks the device and the storage, and gets the thread
   record. If *t is NULL, the caller returns the result. The result is MEMLORD_OK if `lord` is NULL,
   or if the ledger's own allocator makes the call. */
MLI_PRIVATE memlord_result mli_key_begin(memlord *lord, memlord_device d, uint64_t key,
                                         mli_thread **t);

/* Returns the side record that a word2 points to, or NULL if it points to none. */
MLI_PRIVATE mli_side_record *mli_side_record_of(uint64_t word2);
/* Returns the word2 that an entry would have without a side record. It has the numbers of the
   block's site, tag and birth (mark, scope and stream). */
MLI_PRIVATE uint64_t mli_word2_rows(uint64_t word2);
/* Returns the number of references of a block, from word1 or from the side record. */
MLI_PRIVATE uint64_t mli_refs_of(uint64_t word1, uint64_t word2);

/* Charges a block of `bytes` to an account instead of the account that it was charged to before. If
   `account` is 0, the block is charged to no account. Requires: a probe of the caller holds the
   entry, or no other thread knows the record. */
MLI_PRIVATE void mli_side_charge(memlord *lord, mli_call *call, mli_side_record *side,
                                 memlord_account account, uint64_t bytes);

/* Charges a new block of the fast way to an account, and returns its word2, which points to a side
   record that the thread has kept. `word2` is what it would be without one. Returns 0, and has
   changed nothing, if the thread has no such record, or if mli_account_charge_on returns 0. */
MLI_PRIVATE MLI_NOINLINE uint64_t mli_side_open(memlord *lord, mli_thread *t,
                                                memlord_account account, memlord_device device,
                                                uint64_t word2, uint64_t bytes);
/* Returns the word2 without a side record, or 1 if the side record has more than an account. */
MLI_PRIVATE MLI_NOINLINE uint64_t mli_side_plain(uint64_t word2);
/* Takes a freed block off its account, and keeps its side record for the thread. Requires:
   mli_side_plain did not return 1; the thread keeps less than MLI_SIDES_MAX; no entry has it. */
MLI_PRIVATE MLI_NOINLINE void mli_side_close(memlord *lord, mli_thread *t, uint64_t word2);

/* Returns 1 if the block was freed and waits for its fences. */
MLI_PRIVATE int mli_is_pending(uint64_t word2);

/* Finds a key and returns its entry. Returns NULL if the map does not have the key, or if its block
   is pending. In every case the caller calls mli_probe_leave. */
static MLI_HOT mli_entry *mli_probe_live(memlord *lord, mli_thread *t, uint32_t type, uint64_t key,
                                         mli_probe *probe) {
    (void)mli_probe_find(lord, t, type, key, 0, probe);
    return probe->entry && !mli_is_pending(probe->entry->word2) ? probe->entry : NULL;
}

/* Finds a key and returns the side record of its block, which may be pending, or NULL if there is
   none. In every case the caller calls mli_probe_leave. */
MLI_PRIVATE MLI_COLD mli_side_record *mli_probe_side_record(memlord *lord, mli_thread *t,
                                                            uint32_t type, uint64_t key,
                                                            mli_probe *probe);

/* Finds the key of a live block, and makes the side record of the block if there is none. With
   `for_ref` makes the record only if one more reference would need the record. If the result is
   E_UNKNOWN or E_NOMEM, the probe has ended. The function allocates the record between two probes,
   because nothing may be allocated inside a shard. */
MLI_PRIVATE MLI_COLD memlord_result mli_probe_add_side_record(memlord *lord, mli_thread *t,
                                                              uint32_t type, uint64_t key,
                                                              int for_ref, mli_probe *probe);

/* Copies a description to *out, with the ledger's own copies of its strings. */
MLI_PRIVATE MLI_COLD memlord_result mli_meta_copy(memlord *lord, const memlord_meta *meta,
                                                  memlord_meta *out);

typedef struct mli_parts {
    uint64_t bytes;           /* the bytes of all parts */
    uint32_t count;           /* the number of parts */
    uint32_t room;            /* the number of parts that the array has room for */
    memlord_part_info *at[1]; /* `room` pointers; `count` are used, in order of offset */
} mli_parts;

/* Frees the parts that do not lie wholly in the first `bytes` of their block, which has shrunk.
   Requires: no other thread can reach the array. */
MLI_PRIVATE MLI_COLD void mli_parts_trim(memlord *lord, mli_parts *parts, uint64_t bytes);

/* Frees all parts of a block. Requires: no other thread can reach the array. */
MLI_PRIVATE MLI_COLD void mli_parts_free(memlord *lord, mli_parts *parts);

/* Moves the parts of the pending block at `from_key` to the block at `key`, to which the host has
   moved the bytes. Frees the parts that do not lie wholly in the `bytes` of the new block. */
MLI_PRIVATE MLI_COLD void mli_parts_move(memlord *lord, mli_thread *t, uint32_t from_type,
                                         uint64_t from_key, uint32_t type, uint64_t key,
                                         uint64_t bytes);

/* Copies up to `cap` parts of a block, from an offset on, and returns how many it copied. *count
   and *bytes get the number and the bytes of all parts of the block. */
MLI_PRIVATE MLI_COLD size_t mli_parts_copy(memlord *lord, uint32_t type, uint64_t key,
                                           uint64_t offset, memlord_part_info *out, size_t cap,
                                           uint64_t *count, uint64_t *bytes);

MLI_TABLE(const mli_life mli_parts_life)

#endif
