#include "books/accounts.h"
#include "base/text.h"
#include "books/map.h"
#include "books/counters.h"
#include "books/names.h"
#include "books/devices.h"

struct mli_accounts_state {
    mli_vector all;
    mli_u32 count;             /* and 1 more; under the cold lock */
    struct mli_handle *closed; /* under the cold lock */
};

MLI_PRIVATE void *mli_handle_find(const mli_vector *vector, size_t size, uint64_t id) {
    mli_handle *h = (mli_handle *)mli_vector_at(vector, (uint32_t)(id >> 32), size);
    return h && (id & 1) && mli_u32_load_acquire(&h->generation) == (uint32_t)id ? h : NULL;
}

MLI_PRIVATE MLI_COLD memlord_result mli_handle_new(memlord *lord, mli_vector *vector,
                                                   mli_u32 *count,
                                                   size_t size, mli_handle **list, mli_lock *lock) {
    mli_handle *h;
    memlord_result r;
    do {
        uint32_t n;
        mli_cold_enter();
        n = mli_u32_load(count);
        h = (mli_handle *)mli_vector_add(lord, vector, n, size, mli_cold_alloc);
        if (h) {
            h->number = n;
            mli_u32_store(&h->generation, (uint32_t)lord->generation * 0x9e3779b2u);
            mli_u32_store(count, n + 1);
        }
        r = h ? MEMLORD_OK : MLI_AGAIN;
    } while (mli_cold_leave(lord, &r));
    if (r) return r;
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
    mli_u32_store_release(&h->generation, generation); /* pairs with mli_handle_find */
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
MLI_PRIVATE int mli_account_word_is(uint64_t word, memlord_account account) {
    return word >> 49 == (account & 0x7fff);
}

/* Returns the bytes that tickets hold of an account. */
static uint64_t mli_account_held(mli_account_record *b, memlord_account account) {
    const uint64_t held = mli_u64_load(&b->held);
    return mli_account_word_is(held, account) ? MLI_BYTES(held) : 0;
}
/* Adds bytes to a word of an account, or takes off at most what it has. Does nothing if the account
   is closed. */
static void mli_account_word_add(mli_u64 *at, memlord_account account, int64_t bytes) {
    uint64_t word = mli_u64_load(at), now;
    do {
        if (!mli_account_word_is(word, account)) return;
        now = MLI_BYTES(word);
        if (bytes < 0 && (uint64_t)0 - (uint64_t)bytes > now)
            now = 0;
        else
            now += (uint64_t)bytes; /* modulo 2^64 */
    } while (!mli_u64_cas(at, &word, word - MLI_BYTES(word) + now));
}

enum { /* how bytes are added to an account */
    MLI_CHARGE_HOST,  /* by memlord_account_charge: up to the limit */
    MLI_CHARGE_HOLD,  /* for a ticket: up to the limit, and not part of the peak */
    MLI_CHARGE_BLOCK  /* by a block, which exists whatever the limit is */
};
/* Returns MEMLORD_OK if `bytes` may be added to an account, or taken off it. `now` is the bytes on
   the account, with those that tickets hold. */
static memlord_result mli_account_check(uint64_t now, uint64_t held, int64_t bytes,
                                        uint64_t limit) {
    if (bytes < 0) return (uint64_t)0 - (uint64_t)bytes > now - held ? MEMLORD_E_INVALID : MEMLORD_OK;
    if (!bytes) return MEMLORD_OK;
    return now > limit || (uint64_t)bytes > limit - now ? MEMLORD_E_LIMIT : MEMLORD_OK;
}

/* Adds bytes to an account, or takes them off. */
static memlord_result mli_account_add(memlord *lord, memlord_account account, int64_t bytes,
                                      int how) {
    mli_account_record *b = mli_account_find(lord, account);
    uint64_t word, now, limit, held;
    memlord_result r;
    if (!b) return MEMLORD_E_UNKNOWN;
    limit = mli_u64_load(&b->limit);
    if (!limit || limit > MLI_BYTES_MAX) limit = MLI_BYTES_MAX;
    word = mli_u64_load(&b->word);
    do {
        now = MLI_BYTES(word);
        held = mli_account_held(b, account);
        if (held > now) held = now;
        if (!mli_account_word_is(word, account)) return MEMLORD_E_UNKNOWN;
        r = mli_account_check(now, held, bytes, how == MLI_CHARGE_BLOCK ? MLI_BYTES_MAX : limit);
        if (r == MEMLORD_E_LIMIT && how != MLI_CHARGE_HOLD) (void)mli_u64_add(&b->refused, 1);
        if (r) return r;
        now += (uint64_t)bytes; /* modulo 2^64 */
    } while (!mli_u64_cas(&b->word, &word, word - MLI_BYTES(word) + now));
    if (how == MLI_CHARGE_HOLD || !mli_account_word_is(mli_u64_load(&b->word), account))
        return MEMLORD_OK; /* the record belongs to another account by now */
    mli_u64_max(&b->peak, (int64_t)(now - held));
    if (how == MLI_CHARGE_BLOCK && bytes && now - held > limit) (void)mli_u64_add(&b->refused, 1);
    return MEMLORD_OK;
}

/* -- the bytes that tickets hold -- */

MLI_PRIVATE memlord_account mli_account_limited(memlord *lord, memlord_account account) {
    mli_account_record *b = mli_account_find(lord, account);
    return b && mli_u64_load(&b->limit) ? account : 0;
}
MLI_PRIVATE MLI_COLD int mli_account_hold(memlord *lord, memlord_account account, uint64_t bytes) {
    mli_account_record *b = mli_account_find(lord, account);
    if (!b) return 1;
    if (mli_account_add(lord, account, (int64_t)bytes, MLI_CHARGE_HOLD) == MEMLORD_E_LIMIT)
        return 0;
    mli_account_word_add(&b->held, account, (int64_t)bytes);
    return 1;
}
MLI_PRIVATE MLI_COLD void mli_account_shift(memlord *lord, memlord_account account,
                                            int64_t bytes) {
    mli_account_record *b = mli_account_find(lord, account);
    if (!b || !bytes) return;
    mli_account_word_add(&b->held, account, bytes);
    mli_account_word_add(&b->word, account, bytes);
}
MLI_PRIVATE MLI_COLD int mli_account_could_hold(memlord *lord, memlord_account account,
                                                uint64_t bytes, uint64_t in_flight) {
    mli_account_record *b = mli_account_find(lord, account);
    uint64_t now = b ? MLI_BYTES(mli_u64_load(&b->word)) : 0;
    now -= now < in_flight ? now : in_flight;
    return !b || mli_account_check(now, 0, (int64_t)bytes, mli_u64_load(&b->limit)) == MEMLORD_OK;
}
MLI_PRIVATE MLI_COLD int mli_account_refuse(memlord *lord, memlord_account account, uint64_t bytes,
                                            memlord_account_stat *out) {
    mli_account_record *b = mli_account_find(lord, account);
    if (!b || mli_account_could_hold(lord, account, bytes, 0)) return 0;
    (void)mli_u64_add(&b->refused, 1);
    if (memlord_account_get(lord, account, out)) return 0;
    out->bytes += mli_account_held(b, account);
    return 1;
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
    memlord_account_stat stat;
    return memlord_account_get(lord, account, &stat) == MEMLORD_OK &&
           mli_selects(stat.device, device);
}

MLI_PRIVATE int mli_account_charge_block(memlord *lord, memlord_account account, uint64_t bytes) {
    return mli_account_add(lord, account, (int64_t)bytes, MLI_CHARGE_BLOCK) == MEMLORD_OK;
}

MLI_PRIVATE void mli_account_credit_block(memlord *lord, memlord_account account, uint64_t bytes) {
    mli_account_record *b = mli_account_find(lord, account);
    if (b) mli_account_word_add(&b->word, account, (int64_t)((uint64_t)0 - bytes));
}

/* -- reading -- */

MLI_PRIVATE MLI_COLD uint64_t mli_account_bytes(const mli_account_record *b) {
    const uint64_t held = MLI_BYTES(mli_u64_load(&b->held));
    const uint64_t all = MLI_BYTES(mli_u64_load(&b->word));
    return all > held ? all - held : 0;
}
MLI_PRIVATE MLI_COLD int mli_account_read_locked(const mli_account_record *b,
                                                 memlord_account_stat *out) {
    MLI_REQUIRE(mli_lock_held(&mli_process.cold_lock));
    memset(out, 0, sizeof *out);
    if (!b || !(mli_u32_load(&b->handle.generation) & 1)) return 0;
    memcpy(out->name, b->name, strlen(b->name));
    out->device = b->device;
    out->bytes = mli_account_bytes(b);
    out->peak = mli_u64_load(&b->peak);
    out->limit = mli_u64_load(&b->limit);
    out->refused = mli_u64_load(&b->refused);
    return 1;
}

/* -- life -- */

static MLI_COLD void mli_accounts_init(memlord *lord, const memlord_desc *desc) {
    (void)desc;
    lord->accounts->count.v = 1;
}
static MLI_COLD void mli_accounts_free(memlord *lord) {
    mli_vector_free(lord, &lord->accounts->all, sizeof(mli_account_record));
}
MLI_PRIVATE MLI_COLD void mli_accounts_life(mli_life *life) {
    MLI_LIFE_STATE(life, accounts);
    life->init = mli_accounts_init;
    life->free = mli_accounts_free;
}

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
    mli_out_buffer(&text, b->name, sizeof b->name);
    mli_put_str(&text, name ? name : "");
    (void)mli_out_end(&text, sizeof b->name);
    b->device = device;
    mli_u64_store(&b->limit, limit);
    mli_u64_store(&b->peak, 0);
    mli_u64_store(&b->refused, 0);
    mli_u64_store(&b->word, (uint64_t)(mli_u32_load(&b->handle.generation) + 1) << 49);
    mli_u64_store(&b->held, mli_u64_load(&b->word));
    *out = mli_handle_open(&lord->accounts->closed);
    mli_lock_drop(&mli_process.cold_lock);
    return MEMLORD_OK;
}

MLI_API memlord_result memlord_account_charge(memlord *lord, memlord_account account,
                                              int64_t bytes) {
    if (!lord) return MEMLORD_OK;
    return mli_call_end_uncounted(lord, mli_account_add(lord, account, bytes, MLI_CHARGE_HOST));
}

MLI_API memlord_result memlord_account_get(memlord *lord, memlord_account account,
                                           memlord_account_stat *out) {
    int open;
    if (!out) return lord ? MEMLORD_E_INVALID : MEMLORD_OK;
    memset(out, 0, sizeof *out);
    if (!lord) return MEMLORD_OK;
    mli_lock_take(&mli_process.cold_lock);
    open = mli_account_read_locked(mli_account_find(lord, account), out);
    mli_lock_drop(&mli_process.cold_lock);
    return open ? MEMLORD_OK : MEMLORD_E_UNKNOWN;
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
    if (mli_is_orphan(lord, t)) { /* several threads share it, so it uses no account */
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
    b = mli_account_find(lord, account);
    if (b) {
        mli_u64_store(&b->word, (account + 1) << 49); /* charges in progress miss */
        mli_u64_store(&b->held, (account + 1) << 49);
        mli_handle_close(&lord->accounts->closed, &b->handle);
    }
    mli_lock_drop(&mli_process.cold_lock);
    return b ? MEMLORD_OK : MEMLORD_E_UNKNOWN;
}
