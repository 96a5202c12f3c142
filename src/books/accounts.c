#include "books/accounts.h"
#include "base/text.h"
#include "base/vectors.h"
#include "books/map.h"
#include "books/counters.h"
#include "books/names.h"
#include "books/devices.h"

struct mli_accounts_state {
    mli_vector all;
    mli_u32 count;             /* one more than the records; changes under the cold lock */
    struct mli_handle *closed; /* the list of closed records, which the cold lock guards */
};

MLI_PRIVATE void *mli_handle_find(const mli_vector *vector, size_t size, uint64_t id) {
    mli_handle *h = (mli_handle *)mli_vector_at(vector, (uint32_t)(id >> 32), size);
    return h && (id & 1) && mli_u32_load_acquire(&h->generation) == (uint32_t)id ? h : NULL;
}

MLI_PRIVATE MLI_COLD memlord_result mli_handle_new(memlord *lord, mli_vector *vector,
                                                   mli_u32 *count,
                                                   size_t size, mli_handle **list, mli_lock *lock) {
    mli_handle *h;
    mli_cold cold = {MEMLORD_OK, NULL, 0, 0};
    do {
        uint32_t n;
        mli_cold_enter(&cold);
        n = mli_u32_load(count);
        h = (mli_handle *)mli_vector_add(lord, vector, n, size, mli_cold_alloc);
        if (h) {
            h->number = n;
            mli_u32_store(&h->generation, (uint32_t)lord->generation * 0x9e3779b2u);
            mli_u32_store(count, n + 1);
        }
        cold.r = h ? MEMLORD_OK : MLI_AGAIN;
    } while (mli_cold_leave(lord, &cold));
    if (cold.r) return cold.r;
    mli_lock_take(lock);
    h->next = *list;
    *list = h;
    mli_lock_drop(lock);
    return MEMLORD_OK;
}

MLI_PRIVATE MLI_COLD mli_handle *mli_handle_get_lock(memlord *lord, mli_vector *vector,
                                                     mli_u32 *count, size_t size,
                                                     mli_handle **list, memlord_result *r) {
    for (*r = MEMLORD_OK; *r == MEMLORD_OK;
         *r = mli_handle_new(lord, vector, count, size, list, &mli_process.cold_lock)) {
        mli_lock_take(&mli_process.cold_lock);
        if (*list) return *list;
        mli_lock_drop(&mli_process.cold_lock);
    }
    return NULL;
}

MLI_PRIVATE uint64_t mli_handle_open(mli_handle **list) {
    MLI_REQUIRE(mli_rank_held(MLI_RANK_PHYS) || mli_rank_held(MLI_RANK_COLD));
    MLI_REQUIRE(*list);
    mli_handle *h = *list;
    uint32_t generation = mli_u32_load(&h->generation) + 1;
    *list = h->next;
    mli_u32_store_release(&h->generation, generation); /* pairs with the load in mli_handle_find */
    return (uint64_t)h->number << 32 | generation;
}

MLI_PRIVATE void mli_handle_close(mli_handle **list, mli_handle *h) {
    MLI_REQUIRE(mli_rank_held(MLI_RANK_PHYS) || mli_rank_held(MLI_RANK_COLD));
    mli_u32_store(&h->generation, mli_u32_load(&h->generation) + 1);
    h->next = *list;
    *list = h;
}

/* -- accounts -- */

static mli_account_record *mli_account_find(memlord *lord, memlord_account account) {
    return (mli_account_record *)mli_handle_find(&lord->accounts->all,
                                                 sizeof(mli_account_record), account);
}
MLI_PRIVATE MLI_COLD uint32_t mli_account_count(const memlord *lord) {
    return mli_u32_load(&lord->accounts->count) - 1;
}
MLI_PRIVATE MLI_COLD mli_account_record *mli_account_at(const memlord *lord, uint32_t number) {
    return (mli_account_record *)mli_vector_at(&lord->accounts->all, number,
                                             sizeof(mli_account_record));
}
#if !defined(MEMLORD_NO_VERIFY)
MLI_PRIVATE MLI_COLD const mli_handle *mli_accounts_closed(const memlord *lord) {
    return lord->accounts->closed;
}
#endif

/* Locks an open account, and returns its record. Returns NULL if the account is closed. */
static mli_account_record *mli_account_lock(memlord *lord, memlord_account account) {
    mli_account_record *b = mli_account_find(lord, account);
    if (!b) return NULL;
    mli_lock_take(&b->lock);
    if (mli_u32_load(&b->handle.generation) == (uint32_t)account) return b;
    mli_lock_drop(&b->lock); /* the account was closed meanwhile */
    return NULL;
}
/* Returns the most bytes that an account may have: its limit, but at most MLI_BYTES_MAX. */
static uint64_t mli_account_most(const mli_account_record *b) {
    return b->stat.limit && b->stat.limit < MLI_BYTES_MAX ? b->stat.limit : MLI_BYTES_MAX;
}
/* Returns 1 if an account may get `bytes` more. `now` is the sum of the charged bytes and the
   bytes that tickets hold; `most` is the most bytes that the account may have. */
static int mli_account_fits(uint64_t now, uint64_t bytes, uint64_t most) {
    return !bytes || (now <= most && bytes <= most - now);
}
/* Subtracts `bytes` from *of. If *of is less than `bytes`, sets *of to 0. */
static void mli_account_take(uint64_t *of, uint64_t bytes) { *of -= bytes < *of ? bytes : *of; }

/* Charges `bytes` to an account. If the sum of the charged bytes and the bytes that tickets hold
   would exceed `most`, charges nothing, counts a refusal and returns MEMLORD_E_LIMIT. Also counts a
   refusal if it charges bytes and the charged bytes alone then exceed the account's limit. */
static memlord_result mli_account_add_locked(mli_account_record *b, uint64_t bytes, uint64_t most) {
    MLI_REQUIRE(mli_lock_held(&b->lock));
    const int fits = mli_account_fits(b->stat.bytes + b->held, bytes, most);
    if (fits) b->stat.bytes += bytes;
    if (b->stat.bytes > b->stat.peak) b->stat.peak = b->stat.bytes;
    if (!fits || (bytes && b->stat.bytes > mli_account_most(b))) b->stat.refused++;
    return fits ? MEMLORD_OK : MEMLORD_E_LIMIT;
}

/* -- the bytes that tickets hold -- */

MLI_PRIVATE memlord_account mli_account_limited(memlord *lord, memlord_account account) {
    mli_account_record *b = mli_account_lock(lord, account);
    uint64_t limit;
    if (!b) return 0;
    limit = b->stat.limit;
    mli_lock_drop(&b->lock);
    return limit ? account : 0;
}
MLI_PRIVATE MLI_COLD int mli_account_hold(memlord *lord, memlord_account account, uint64_t bytes) {
    mli_account_record *b = mli_account_lock(lord, account);
    int fits;
    if (!b) return 1;
    fits = mli_account_fits(b->stat.bytes + b->held, bytes, mli_account_most(b));
    if (fits) b->held += bytes;
    mli_lock_drop(&b->lock);
    return fits;
}
MLI_PRIVATE MLI_COLD void mli_account_shift(memlord *lord, memlord_account account,
                                            int64_t bytes) {
    mli_account_record *b = mli_account_lock(lord, account);
    if (!b) return;
    if (bytes < 0)
        mli_account_take(&b->held, (uint64_t)0 - (uint64_t)bytes);
    else
        b->held += (uint64_t)bytes;
    mli_lock_drop(&b->lock);
}
MLI_PRIVATE MLI_COLD int mli_account_refuse(memlord *lord, memlord_account account, uint64_t bytes,
                                            memlord_account_stat *out) {
    mli_account_record *b = mli_account_lock(lord, account);
    int fits;
    if (!b) return 0;
    fits = mli_account_fits(b->stat.bytes + b->held, bytes, mli_account_most(b));
    if (!fits) b->stat.refused++;
    *out = b->stat;
    out->bytes += b->held;
    mli_lock_drop(&b->lock);
    return !fits;
}

/* -- the charges of blocks -- */

MLI_PRIVATE memlord_account mli_account_used_on(memlord *lord, mli_thread *t,
                                               memlord_device device) {
    if (!(mli_u32_load(&t->special) & MLI_SPECIAL_ACCOUNT)) return 0;
    if (!mli_account_find(lord, t->now.account)) {
        mli_special_set(t, MLI_SPECIAL_ACCOUNT, 0);
        return 0;
    }
    return mli_selects(t->now.account_device, device) ? t->now.account : 0;
}
MLI_PRIVATE memlord_account mli_account_used(memlord *lord, mli_thread *t, uint32_t dev) {
    return mli_account_used_on(lord, t, mli_device_record_at(lord, dev)->device);
}

MLI_PRIVATE MLI_COLD int mli_account_is_of(memlord *lord, memlord_account account,
                                           memlord_device device) {
    mli_account_record *b = mli_account_lock(lord, account);
    int is;
    if (!b) return 0;
    is = mli_selects(b->stat.device, device);
    mli_lock_drop(&b->lock);
    return is;
}

MLI_PRIVATE int mli_account_charge_block(memlord *lord, memlord_account account, uint64_t bytes,
                                         uint64_t held) {
    mli_account_record *b = mli_account_lock(lord, account);
    memlord_result r;
    if (!b) return 0;
    mli_account_take(&b->held, held);
    r = mli_account_add_locked(b, bytes, MLI_BYTES_MAX);
    mli_lock_drop(&b->lock);
    return r == MEMLORD_OK;
}

MLI_PRIVATE int mli_account_charge_on(memlord *lord, memlord_account account, memlord_device device,
                                      uint64_t bytes) {
    mli_account_record *b = mli_account_lock(lord, account);
    int fits;
    if (!b) return 0;
    fits = mli_selects(b->stat.device, device) &&
           mli_account_fits(b->stat.bytes + b->held, bytes, MLI_BYTES_MAX);
    if (fits) (void)mli_account_add_locked(b, bytes, MLI_BYTES_MAX);
    mli_lock_drop(&b->lock);
    return fits;
}

MLI_PRIVATE void mli_account_credit_block(memlord *lord, memlord_account account, uint64_t bytes) {
    mli_account_record *b = mli_account_lock(lord, account);
    if (!b) return;
    mli_account_take(&b->stat.bytes, bytes);
    mli_lock_drop(&b->lock);
}

/* -- reading -- */

MLI_PRIVATE MLI_COLD int mli_account_read_locked(mli_account_record *b, memlord_account_stat *out,
                                                 uint64_t *held) {
    MLI_REQUIRE(mli_lock_held(&mli_process.cold_lock));
    if (!(mli_u32_load(&b->handle.generation) & 1)) return 0;
    mli_lock_take(&b->lock);
    *out = b->stat;
    *held = b->held;
    mli_lock_drop(&b->lock);
    return 1;
}

/* -- life -- */

static MLI_COLD void mli_accounts_init(memlord *lord, const memlord_desc *desc) {
    (void)desc;
    lord->accounts->count.v = 1;
}
/* Takes or drops the locks of all accounts, for a fork. mli_map_freeze comes first, so no other
   thread is inside the map, but another thread may be charging an account. */
static MLI_COLD void mli_accounts_lock(memlord *lord, int take) {
    uint32_t i, n = mli_account_count(lord);
    for (i = 1; i <= n; i++) mli_lock_set(&mli_account_at(lord, i)->lock, take);
}
static MLI_COLD void mli_accounts_free(memlord *lord) {
    mli_vector_free(lord, &lord->accounts->all, sizeof(mli_account_record));
}
MLI_PRIVATE const mli_life mli_accounts_life = {MLI_LIFE_STATE(accounts), mli_accounts_init, NULL,
                                                NULL, mli_accounts_lock, NULL, mli_accounts_free};

/* -- public -- */

MLI_API memlord_result memlord_account_open(memlord *lord, memlord_device device, const char *name,
                                            uint64_t limit, memlord_account *out) {
    mli_account_record *b;
    mli_out text;
    memlord_result r;
    if (!out) return lord ? MEMLORD_E_INVALID : MEMLORD_OK;
    *out = 0;
    if (!lord) return MEMLORD_OK;
    if (!mli_device_valid(device)) return MEMLORD_E_DEVICE;
    if (mli_self.in_host_alloc) return MEMLORD_E_STATE;
    b = (mli_account_record *)(void *)mli_handle_get_lock(lord, &lord->accounts->all,
                                                          &lord->accounts->count, sizeof *b,
                                                          &lord->accounts->closed, &r);
    if (!b) return r;
    mli_lock_rank(&b->lock, MLI_RANK_ACCOUNT);
    b->held = 0; /* no other thread uses a closed record */
    memset(&b->stat, 0, sizeof b->stat);
    b->stat.device = device;
    b->stat.limit = limit;
    mli_out_buffer(&text, b->stat.name, sizeof b->stat.name);
    mli_put_str(&text, name ? name : "");
    (void)mli_out_end(&text, sizeof b->stat.name);
    *out = mli_handle_open(&lord->accounts->closed);
    mli_lock_drop(&mli_process.cold_lock);
    return MEMLORD_OK;
}

MLI_API memlord_result memlord_account_charge(memlord *lord, memlord_account account,
                                              int64_t bytes) {
    const uint64_t off = bytes < 0 ? (uint64_t)0 - (uint64_t)bytes : 0;
    mli_account_record *b = lord ? mli_account_lock(lord, account) : NULL;
    memlord_result r = MEMLORD_E_UNKNOWN;
    if (!lord) return MEMLORD_OK;
    if (b && bytes >= 0) {
        r = mli_account_add_locked(b, (uint64_t)bytes, mli_account_most(b));
    } else if (b) {
        r = off > b->stat.bytes ? MEMLORD_E_INVALID : MEMLORD_OK;
        if (r == MEMLORD_OK) b->stat.bytes -= off;
    }
    if (b) mli_lock_drop(&b->lock);
    return mli_call_end_uncounted(lord, r);
}

MLI_API memlord_result memlord_account_get(memlord *lord, memlord_account account,
                                           memlord_account_stat *out) {
    mli_account_record *b;
    if (!out) return lord ? MEMLORD_E_INVALID : MEMLORD_OK;
    memset(out, 0, sizeof *out);
    if (!lord) return MEMLORD_OK;
    b = mli_account_lock(lord, account);
    if (!b) return MEMLORD_E_UNKNOWN;
    *out = b->stat;
    mli_lock_drop(&b->lock);
    return MEMLORD_OK;
}

MLI_API memlord_result memlord_account_use(memlord *lord, memlord_account account) {
    mli_thread *t;
    memlord_account_stat stat;
    memlord_result r = MEMLORD_OK;
    if (!lord) return MEMLORD_OK;
    memset(&stat, 0, sizeof stat);
    if (account) r = memlord_account_get(lord, account, &stat);
    if (r) return r;
    t = mli_thread_get(lord);
    if (!t) return MEMLORD_OK;
    if (mli_is_orphan(lord, t)) { /* several threads share this record, so it charges no account */
        r = account ? MEMLORD_E_NOMEM : MEMLORD_OK;
    } else {
        t->now.account = account;
        t->now.account_device = stat.device;
        mli_special_set(t, MLI_SPECIAL_ACCOUNT, account != 0);
    }
    mli_thread_put(lord, t);
    return r;
}

MLI_API memlord_result memlord_account_close(memlord *lord, memlord_account account) {
    mli_account_record *b;
    if (!lord) return MEMLORD_OK;
    mli_lock_take(&mli_process.cold_lock);
    b = mli_account_lock(lord, account);
    if (b) {
        mli_handle_close(&lord->accounts->closed, &b->handle);
        mli_lock_drop(&b->lock);
    }
    mli_lock_drop(&mli_process.cold_lock);
    return b ? MEMLORD_OK : MEMLORD_E_UNKNOWN;
}
