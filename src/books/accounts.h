/* Owns the accounts and the charges of blocks, and the handles of accounts and tickets. May use
   books/names, books/devices and books/threads. Invariant: an account is read and changed only
   under its lock, and only while it is open: a call that comes too late finds another generation.
   Locks: cold, for the lists of records; account (MLI_RANK_ACCOUNT), one for each. */
#ifndef MLI_BOOKS_ACCOUNTS_H
#define MLI_BOOKS_ACCOUNTS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "books/threads.h"

/* Tickets and accounts are numbers of records: number:32 | generation:32. A record begins with its
   handle. A closed one is in a list, and is opened again under the next generation. The first
   generation differs between ledgers: a ticket of another ledger is unknown. */
typedef struct mli_handle {
    mli_u32 generation; /* odd: open */
    uint32_t number;
    struct mli_handle *next; /* the next one in the list of closed records */
} mli_handle;

/* An account's record. The bytes charged and those that tickets hold both count against the limit.
   While a block that comes off a ticket is recorded, its bytes count twice. */
typedef struct mli_account_record {
    mli_handle handle; /* changes under the cold lock; ends under both locks */
    mli_lock lock;     /* all below */
    uint64_t held;     /* the bytes that tickets hold */
    memlord_account_stat stat;
} mli_account_record;

/* Returns the record of an open ticket or account; NULL: it is closed, or never was. The acquire
   pairs with the release in mli_handle_open. Records that were never added are zero. */
MLI_PRIVATE void *mli_handle_find(const mli_vector *vector, size_t size, uint64_t id);

/* Adds a closed record to a vector, and to a list under its lock. */
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
/* The first returns the number of account records. The second returns one of them; record 1 is the
   first. */
MLI_PRIVATE MLI_COLD uint32_t mli_account_count(const memlord *lord);
MLI_PRIVATE MLI_COLD mli_account_record *mli_account_at(const memlord *lord, uint32_t number);
#if !defined(MEMLORD_NO_VERIFY)
/* Returns the list of closed account records. Requires: the cold lock. */
MLI_PRIVATE MLI_COLD const mli_handle *mli_accounts_closed(const memlord *lord);
#endif

/* Returns the account that a thread charges its blocks on a device to; 0: none. A thread stops
   using a closed account here. */
MLI_PRIVATE memlord_account mli_account_used(memlord *lord, mli_thread *t, uint32_t dev);
MLI_PRIVATE memlord_account mli_account_used_on(memlord *lord, mli_thread *t,
                                               memlord_device device);

/* Returns the account if it is open and has a limit; else 0. */
MLI_PRIVATE memlord_account mli_account_limited(memlord *lord, memlord_account account);
/* Holds bytes of an account for a ticket. 0: the limit does not allow that. A closed account allows
   all. */
MLI_PRIVATE MLI_COLD int mli_account_hold(memlord *lord, memlord_account account, uint64_t bytes);
/* Adds to the bytes that tickets hold of an account, whatever its limit is, or takes off them. */
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

/* Charges the bytes of a block, which exists whatever the limit is. 0: it charged nothing, because
   the account is closed or has 2^48 bytes. */
MLI_PRIVATE int mli_account_charge_block(memlord *lord, memlord_account account, uint64_t bytes);

/* Takes the bytes of a block off the account it was charged to, unless that is closed. The host may
   have taken some off by memlord_account_charge: then at most what is left. */
MLI_PRIVATE void mli_account_credit_block(memlord *lord, memlord_account account, uint64_t bytes);

/* Copies the statistics of an account, and to *held the bytes that tickets hold. Returns 0 if it is
   closed. Requires: the cold lock. */
MLI_PRIVATE MLI_COLD int mli_account_read_locked(mli_account_record *b, memlord_account_stat *out,
                                                 uint64_t *held);

MLI_PRIVATE MLI_COLD void mli_accounts_life(mli_life *life);

#endif
