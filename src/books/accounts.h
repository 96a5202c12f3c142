/* Owns the accounts, the charges of blocks to accounts, and the handles of accounts and tickets. An
   account counts the bytes that are charged to a user or a request of the host, and may have a
   limit. A ticket reserves bytes for later allocs. It may also hold the same number of bytes of an
   account. Held bytes count against the account's limit like charged bytes. The host knows an
   account or a ticket by an id. The id leads to the record of the account or ticket. A handle is
   the first member of the record, and tells which id the record has now. May use books/names,
   books/devices and books/threads. Invariant: a call reads and changes an account only under the
   account's lock, and only while the account is open. The generation of a record is a part of the
   id. Closing an account changes the generation, so a later call with the old id finds no record.
   Locks: the cold lock (mli_process.cold_lock) guards the list of closed accounts; each account has
   a lock of its own (MLI_RANK_ACCOUNT). */
#ifndef MLI_BOOKS_ACCOUNTS_H
#define MLI_BOOKS_ACCOUNTS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "books/threads.h"

/* The first member of the record of a ticket or an account. The id of the ticket or account has the
   number of the record in the upper 32 bits, and the generation of the record in the lower 32. A
   closed record waits in a list until it is opened again, under the next generation. The records
   of each ledger begin with another generation, so that a ledger does not take the ticket of
   another ledger for its own. */
typedef struct mli_handle {
    mli_u32 generation;      /* an odd number if the ticket or account is open, an even number if
                                it is closed; each opening and each closing adds 1 */
    uint32_t number;         /* the number of the record, from 1 */
    struct mli_handle *next; /* the next handle in the list of closed records */
} mli_handle;

/* The record of an account. The limit applies to the sum of the bytes that are charged and the
   bytes that tickets hold. */
typedef struct mli_account_record {
    mli_handle handle;         /* changes only under the cold lock; closing the account also takes
                                  `lock` */
    mli_lock lock;             /* guards the members below */
    uint64_t held;             /* the bytes that tickets hold */
    memlord_account_stat stat; /* what memlord_account_get returns */
} mli_account_record;

/* Returns the record of an open ticket or account, or NULL if `id` names no open record. The
   acquire load pairs with the release store in mli_handle_open. The place of a record that was not
   added yet reads as zeros, which match no id. */
MLI_PRIVATE void *mli_handle_find(const mli_vector *vector, size_t size, uint64_t id);

/* Adds a closed record to a vector, and puts the record in `list`, which `lock` guards. *count is
   one more than the number of records in the vector. */
MLI_PRIVATE MLI_COLD memlord_result mli_handle_new(memlord *lord, mli_vector *vector,
                                                   mli_u32 *count,
                                                   size_t size, mli_handle **list, mli_lock *lock);

/* Takes the cold lock, which guards a list of closed records, and returns the first record of that
   list. If the list is empty, adds a record to the list. If there is no memory for the record,
   drops the lock, returns NULL and sets *r to the error. */
MLI_PRIVATE MLI_COLD mli_handle *mli_handle_get_lock(memlord *lord, mli_vector *vector,
                                                     mli_u32 *count, size_t size,
                                                     mli_handle **list, memlord_result *r);

/* Removes the first record from a list of closed records, opens the record, and returns the id of
   the record's ticket or account. Requires: the caller holds the lock of the list and has filled in
   the record. */
MLI_PRIVATE uint64_t mli_handle_open(mli_handle **list);

/* Closes a record, and puts it in a list of closed records. Requires: the caller holds the lock of
   the list. */
MLI_PRIVATE void mli_handle_close(mli_handle **list, mli_handle *h);
/* Returns the number of account records. */
MLI_PRIVATE MLI_COLD uint32_t mli_account_count(const memlord *lord);
/* Returns account record `number`; numbers begin at 1. */
MLI_PRIVATE MLI_COLD mli_account_record *mli_account_at(const memlord *lord, uint32_t number);
#if !defined(MEMLORD_NO_VERIFY)
/* Returns the list of closed account records. Requires: the caller holds the cold lock. */
MLI_PRIVATE MLI_COLD const mli_handle *mli_accounts_closed(const memlord *lord);
#endif

/* Returns the account to which a thread charges its blocks on a device, or 0 if there is none. If
   that account was closed, returns 0, and the thread stops using the account. */
MLI_PRIVATE memlord_account mli_account_used(memlord *lord, mli_thread *t, uint32_t dev);
/* Does the same as mli_account_used, for a device that may have no number (dev) yet. */
MLI_PRIVATE memlord_account mli_account_used_on(memlord *lord, mli_thread *t,
                                               memlord_device device);

/* Returns `account` if it is open and has a limit, else 0. */
MLI_PRIVATE memlord_account mli_account_limited(memlord *lord, memlord_account account);
/* Adds `bytes` to the bytes that tickets hold of an account, and returns 1. If the account's limit
   leaves no room for `bytes` more, adds nothing and returns 0. If the account is closed, adds
   nothing and returns 1. */
MLI_PRIVATE MLI_COLD int mli_account_hold(memlord *lord, memlord_account account, uint64_t bytes);
/* Adds `bytes`, which may be negative, to the bytes that tickets hold of an account. The limit of
   the account does not matter. */
MLI_PRIVATE MLI_COLD void mli_account_shift(memlord *lord, memlord_account account,
                                            int64_t bytes);
/* Returns 1 if the limit of an account leaves no room for `bytes` more, and counts this refusal.
   *out gets the statistics of the account; out->bytes includes the bytes that tickets hold.
   Requires: the caller holds no lock. */
MLI_PRIVATE MLI_COLD int mli_account_refuse(memlord *lord, memlord_account account, uint64_t bytes,
                                            memlord_account_stat *out);

/* Returns 1 if an account is open and belongs to `device`. */
MLI_PRIVATE MLI_COLD int mli_account_is_of(memlord *lord, memlord_account account,
                                           memlord_device device);

/* Charges the bytes of a block to an account, and returns 1. Charges them even beyond the account's
   limit, because the block exists already. If the account is closed, or would have more than 2^48
   bytes, charges nothing and returns 0. `held` of the bytes that tickets hold are no longer held
   from the same moment on. */
MLI_PRIVATE int mli_account_charge_block(memlord *lord, memlord_account account, uint64_t bytes,
                                         uint64_t held);

/* Charges the bytes of a block to an account, as mli_account_charge_block does. Returns 0, and has
   changed nothing, if the account is not open on `device` or would have more than 2^48 bytes. May be
   called inside a shard. */
MLI_PRIVATE int mli_account_charge_on(memlord *lord, memlord_account account, memlord_device device,
                                      uint64_t bytes);
/* Takes the bytes of a block off the account that the block was charged to, if the account is open.
   Takes off at most the bytes that the account has, because the host may have taken bytes off with
   memlord_account_charge. */
MLI_PRIVATE void mli_account_credit_block(memlord *lord, memlord_account account, uint64_t bytes);

/* Copies the statistics of an account to *out, and the bytes that tickets hold to *held. Returns 0
   if the account is closed. Requires: the caller holds the cold lock. */
MLI_PRIVATE MLI_COLD int mli_account_read_locked(mli_account_record *b, memlord_account_stat *out,
                                                 uint64_t *held);

MLI_PRIVATE MLI_COLD void mli_accounts_life(mli_life *life);

#endif
