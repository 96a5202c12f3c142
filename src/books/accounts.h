/* Owns the accounts and the charges of blocks, and the handles of accounts and tickets. May use
   books/names, books/devices and books/threads. Invariant: an account is read and changed only
   under its lock, and only while it is open. A handle has the generation of its record, which the
   close of the account changes, so a later call with the handle finds out. Locks: the cold lock
   guards the lists of records; each account has a lock of its own (MLI_RANK_ACCOUNT). */
#ifndef MLI_BOOKS_ACCOUNTS_H
#define MLI_BOOKS_ACCOUNTS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "books/threads.h"

/* A ticket or an account names a record: number:32 | generation:32. The record begins with its
   handle. A closed record is in a list until it is opened again, under the next generation. Ledgers
   begin with different generations, so that a ticket of another ledger is unknown. */
typedef struct mli_handle {
    mli_u32 generation;      /* odd: the record is open */
    uint32_t number;         /* the number of the record, from 1 */
    struct mli_handle *next; /* the next handle in the list of closed records */
} mli_handle;

/* The record of an account. Bytes that are charged and bytes that tickets hold both count against
   the limit. While a block that comes off a ticket is recorded, its bytes count twice. */
typedef struct mli_account_record {
    mli_handle handle;         /* changes under the cold lock; to close it takes `lock`, too */
    mli_lock lock;             /* guards the members below */
    uint64_t held;             /* the bytes that tickets hold */
    memlord_account_stat stat; /* what memlord_account_get returns */
} mli_account_record;

/* Returns the record of an open ticket or account; NULL: `id` names none, or a closed one. The
   acquire pairs with the release in mli_handle_open. A record that was never added has only
   zeros. */
MLI_PRIVATE void *mli_handle_find(const mli_vector *vector, size_t size, uint64_t id);

/* Adds a closed record to a vector and to a list, under the lock of the list. */
MLI_PRIVATE MLI_COLD memlord_result mli_handle_new(memlord *lord, mli_vector *vector,
                                                   mli_u32 *count,
                                                   size_t size, mli_handle **list, mli_lock *lock);

/* Returns a closed record of a list that the cold lock guards, and takes that lock; NULL: *r is
   E_NOMEM, and the lock is not taken. */
MLI_PRIVATE MLI_COLD mli_handle *mli_handle_get_lock(memlord *lord, mli_vector *vector,
                                                     mli_u32 *count, size_t size,
                                                     mli_handle **list, memlord_result *r);

/* Opens the first record of a list, and returns its ticket or account. Requires: the caller holds
   the lock of the list and has filled the record. */
MLI_PRIVATE uint64_t mli_handle_open(mli_handle **list);

/* Closes a record, and puts it in a list. Requires: the lock of the list. */
MLI_PRIVATE void mli_handle_close(mli_handle **list, mli_handle *h);
/* Returns the number of account records. */
MLI_PRIVATE MLI_COLD uint32_t mli_account_count(const memlord *lord);
/* Returns the account record with a number, from 1. */
MLI_PRIVATE MLI_COLD mli_account_record *mli_account_at(const memlord *lord, uint32_t number);
#if !defined(MEMLORD_NO_VERIFY)
/* Returns the list of closed account records. Requires: the cold lock. */
MLI_PRIVATE MLI_COLD const mli_handle *mli_accounts_closed(const memlord *lord);
#endif

/* Returns the account to which a thread charges its blocks on a device; 0: there is none. If the
   account is closed, the thread stops using it here. */
MLI_PRIVATE memlord_account mli_account_used(memlord *lord, mli_thread *t, uint32_t dev);
/* The same, for a device that may have no dev yet. */
MLI_PRIVATE memlord_account mli_account_used_on(memlord *lord, mli_thread *t,
                                               memlord_device device);

/* Returns the account if it is open and has a limit; else 0. */
MLI_PRIVATE memlord_account mli_account_limited(memlord *lord, memlord_account account);
/* Holds bytes of an account for a ticket. Returns 0 if the limit does not allow that. A closed
   account allows everything. */
MLI_PRIVATE MLI_COLD int mli_account_hold(memlord *lord, memlord_account account, uint64_t bytes);
/* Adds `bytes`, which may be negative, to the bytes that tickets hold of an account. The limit does
   not matter. */
MLI_PRIVATE MLI_COLD void mli_account_shift(memlord *lord, memlord_account account,
                                            int64_t bytes);
/* Returns 1 if an account could hold the bytes once the bytes in flight no longer count twice. */
MLI_PRIVATE MLI_COLD int mli_account_could_hold(memlord *lord, memlord_account account,
                                                uint64_t bytes, uint64_t in_flight);
/* Counts a request that an account cannot hold, and returns 1. *out->bytes has the bytes that
   tickets hold, too. Requires: no lock is held. */
MLI_PRIVATE MLI_COLD int mli_account_refuse(memlord *lord, memlord_account account, uint64_t bytes,
                                            memlord_account_stat *out);

/* Returns 1 if an account is open, and is of a device. */
MLI_PRIVATE MLI_COLD int mli_account_is_of(memlord *lord, memlord_account account,
                                           memlord_device device);

/* Charges the bytes of a block, also above the limit, because the block exists. Returns 0 if it
   charged nothing: the account is closed, or would have more than 2^48 bytes. */
MLI_PRIVATE int mli_account_charge_block(memlord *lord, memlord_account account, uint64_t bytes);

/* Takes the bytes of a block off the account that it was charged to, if the account is open. Takes
   off at most what the account has: the host may have taken bytes off by memlord_account_charge. */
MLI_PRIVATE void mli_account_credit_block(memlord *lord, memlord_account account, uint64_t bytes);

/* Copies the statistics of an account to *out, and the bytes that tickets hold to *held. Returns 0
   if the account is closed. Requires: the cold lock. */
MLI_PRIVATE MLI_COLD int mli_account_read_locked(mli_account_record *b, memlord_account_stat *out,
                                                 uint64_t *held);

MLI_PRIVATE MLI_COLD void mli_accounts_life(mli_life *life);

#endif
