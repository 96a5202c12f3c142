/* Owns the accounts, the charges of blocks to accounts, and the handles of accounts and tickets.
   Invariants: a call reads and changes an account only under the account's lock, and only while it
   is open; each closing changes the generation in the id, so that an old id finds no record. Locks:
   the cold lock, for the list of closed accounts; MLI_RANK_ACCOUNT, one for each account. */
#ifndef MLI_BOOKS_ACCOUNTS_H
#define MLI_BOOKS_ACCOUNTS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "books/threads.h"

/* The first member of the record of a ticket or an account, whose id has the record's number in the
   upper 32 bits, and its generation in the lower 32. A closed record waits in a list until it is
   opened again. Each ledger begins with another generation, so that an id fits one ledger. */
typedef struct mli_handle {
    mli_u32 generation;      /* odd if open; each opening and each closing adds 1 */
    uint32_t number;         /* the number of the record, from 1 */
    struct mli_handle *next; /* the next handle in the list of closed records */
} mli_handle;

/* An account. Its limit applies to the bytes charged and the bytes that tickets hold together. */
typedef struct mli_account_record {
    mli_handle handle;         /* changes under the cold lock; a closing also takes `lock` */
    mli_lock lock;             /* guards the members below */
    uint64_t held;             /* the bytes that tickets hold */
    memlord_account_stat stat; /* what memlord_account_get returns */
} mli_account_record;

/* Returns the record of an open ticket or account, or NULL. The acquire load pairs with the release
   store in mli_handle_open. A record that was not added yet reads as zeros, which match no id. */
MLI_PRIVATE void *mli_handle_find(const mli_vector *vector, size_t size, uint64_t id);

/* Adds a closed record to a vector, and puts the record in `list`, which `lock` guards. *count is
   one more than the number of records in the vector. */
MLI_PRIVATE MLI_COLD memlord_result mli_handle_new(memlord *lord, mli_vector *vector,
                                                   mli_u32 *count,
                                                   size_t size, mli_handle **list, mli_lock *lock);

/* Takes the cold lock, and returns the first record of a list of closed ones; if it is empty, adds
   a record. If there is no memory for it, drops the lock, returns NULL and sets *r to the error. */
MLI_PRIVATE MLI_COLD mli_handle *mli_handle_get_lock(memlord *lord, mli_vector *vector,
                                                     mli_u32 *count, size_t size,
                                                     mli_handle **list, memlord_result *r);

/* Opens the first record of a list of closed records, and returns its id. Requires: the caller
   holds the lock of the list and has filled in the record. */
MLI_PRIVATE uint64_t mli_handle_open(mli_handle **list);

/* Closes a record, and puts it in a list. Requires: the caller holds the lock of the list. */
MLI_PRIVATE void mli_handle_close(mli_handle **list, mli_handle *h);
MLI_PRIVATE MLI_COLD uint32_t mli_account_count(const memlord *lord);
/* Returns account record `number`; numbers begin at 1. */
MLI_PRIVATE MLI_COLD mli_account_record *mli_account_at(const memlord *lord, uint32_t number);
#if !defined(MEMLORD_NO_VERIFY)
/* Returns the list of closed account records. Requires: the caller holds the cold lock. */
MLI_PRIVATE MLI_COLD const mli_handle *mli_accounts_closed(const memlord *lord);
#endif

/* Returns the account to which a thread charges its blocks on a device, or 0. If that account was
   closed, the thread stops using it. */
MLI_PRIVATE memlord_account mli_account_used(memlord *lord, mli_thread *t, uint32_t dev);
/* Does the same as mli_account_used, for a device that may have no number (dev) yet. */
MLI_PRIVATE memlord_account mli_account_used_on(memlord *lord, mli_thread *t,
                                               memlord_device device);

/* Returns `account` if it is open and has a limit, else 0. */
MLI_PRIVATE memlord_account mli_account_limited(memlord *lord, memlord_account account);
/* Adds `bytes` to the bytes that tickets hold of an account, and returns 1. Adds nothing if the
   account's limit leaves no room (returns 0), or if the account is closed (returns 1). */
MLI_PRIVATE MLI_COLD int mli_account_hold(memlord *lord, memlord_account account, uint64_t bytes);
/* Adds `bytes`, which may be negative, to the held bytes, whatever the limit of the account. */
MLI_PRIVATE MLI_COLD void mli_account_shift(memlord *lord, memlord_account account,
                                            int64_t bytes);
/* Returns 1, and counts a refusal, if the limit of an account leaves no room for `bytes` more. *out
   gets its statistics; out->bytes includes the held bytes. Requires: the caller holds no lock. */
MLI_PRIVATE MLI_COLD int mli_account_refuse(memlord *lord, memlord_account account, uint64_t bytes,
                                            memlord_account_stat *out);

/* Returns 1 if an account is open and belongs to `device`. */
MLI_PRIVATE MLI_COLD int mli_account_is_of(memlord *lord, memlord_account account,
                                           memlord_device device);

/* Charges the bytes of a block to an account, even beyond its limit, because the block exists
   already. Returns 0, without a charge, if the account is closed or would have more than 2^48
   bytes. `held` of the bytes that tickets hold are no longer held from the same moment on. */
MLI_PRIVATE int mli_account_charge_block(memlord *lord, memlord_account account, uint64_t bytes,
                                         uint64_t held);

/* Does the same, but returns 0 also if it is not open on `device`. May be called inside a shard. */
MLI_PRIVATE int mli_account_charge_on(memlord *lord, memlord_account account, memlord_device device,
                                      uint64_t bytes);
/* Takes the bytes of a block off its account, if that is open: at most the bytes that it has,
   because the host may have taken bytes off with memlord_account_charge. */
MLI_PRIVATE void mli_account_credit_block(memlord *lord, memlord_account account, uint64_t bytes);

/* Copies the statistics of an account to *out, and the bytes that tickets hold to *held. Returns 0
   if the account is closed. Requires: the caller holds the cold lock. */
MLI_PRIVATE MLI_COLD int mli_account_read_locked(mli_account_record *b, memlord_account_stat *out,
                                                 uint64_t *held);

MLI_TABLE(const mli_life mli_accounts_life)

#endif
