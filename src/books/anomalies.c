#include "books/anomalies.h"
#include "base/atomics.h"
#include "base/text.h"
#include "base/log.h"
#include "books/map.h"
#include "books/counters.h"
#include "books/threads.h"
#include "books/devices.h"
#include "books/sites.h"

/* A mistake, as the ledger keeps it. */
typedef struct mli_anomaly {
    memlord_anomaly is;        /* for the host; mli_anomaly_read fills in `site` and `born` */
    const memlord_site *given; /* the host's pointer to it, compared but never followed */
    const memlord_site *site, *born; /* the ledger's copies of two sites: the site of the mistake,
                                        and the alloc site of the block that the mistake
                                        concerns; NULL if there is no such site, or no memory
                                        for the copy */
    int told;                  /* 1: the mistake was logged */
} mli_anomaly;
struct mli_anomalies_state {
    mli_lock lock; /* guards all members below except `refused` */
    uint32_t count;
    mli_anomaly at[MLI_ANOMALIES];
    uint64_t left_out; /* how often a mistake found no room in `at` */
    mli_u32 untold;    /* 1: perhaps not all of `at` is logged; the lock is held to set it to 1 */
    mli_u32 refused[MLI_REFUSER_COUNT][2]; /* 1: a refusal was logged; the first index is the
                                              public function (MLI_REFUSER_...), the second is 0
                                              for E_INVALID and 1 for E_DEVICE */
};

MLI_PRIVATE MLI_COLD const char *mli_anomaly_name(int kind) {
    static const char names[] =
#define MLI_X(name, key, text) key "\0"
        MLI_ANOMALY_KINDS(MLI_X);
#undef MLI_X
    return mli_text_at(names, (unsigned)kind);
}
static MLI_COLD const char *mli_anomaly_text(int kind) {
    static const char texts[] =
#define MLI_X(name, key, text) text "\0"
        MLI_ANOMALY_KINDS(MLI_X);
#undef MLI_X
    return mli_text_at(texts, (unsigned)kind);
}

/* -- the list -- */

/* Returns the mistake of a kind at a site, or NULL if the list has none. `given` is the host's
   pointer to the site; `kept` is the ledger's copy of the site, or NULL. */
static MLI_COLD mli_anomaly *mli_anomaly_find(struct mli_anomalies_state *s, int kind,
                                              const memlord_site *given, const memlord_site *kept) {
    MLI_REQUIRE(mli_rank_held(MLI_RANK_ANOMALIES));
    uint32_t i;
    for (i = 0; i < s->count; i++) {
        mli_anomaly *a = &s->at[i];
        if (a->is.kind == kind && (a->given == given || (kept && a->site == kept))) return a;
    }
    return NULL;
}
/* Counts a mistake that the list already has. */
static MLI_COLD void mli_anomaly_again(mli_anomaly *a, uint64_t bytes, uint64_t now) {
    a->is.count++;
    a->is.bytes = mli_add_saturated(a->is.bytes, bytes);
    a->is.last_ns = now;
}
/* Returns the alloc site of a block, or NULL if the block has none. `word2` is the word2 of the
   block's mli_entry; 0: there is no block. Sets *tag to the tag of the block, or to NULL. */
static MLI_COLD const memlord_site *mli_anomaly_born(memlord *lord, uint64_t word2,
                                                     const char **tag) {
    const uint32_t site = MLI_SITE_ROW(word2), row = MLI_TAG_ROW(word2);
    *tag = row ? (const char *)mli_row_at(lord, MLI_BOOK_TAG, row)->subject : NULL;
    if (!site) return NULL;
    return (const memlord_site *)mli_ptr_load_acquire(
        &((mli_site_record *)mli_row_at(lord, MLI_BOOK_SITE, site)->subject)->display);
}

MLI_PRIVATE MLI_COLD int mli_anomaly_note(memlord *lord, const memlord_site *site, int kind,
                                          memlord_device device, uint64_t storage, uint64_t bytes,
                                          uint64_t word2) {
    MLI_REQUIRE(mli_none_held_but_orphan());
    struct mli_anomalies_state *s = lord->anomalies;
    const uint64_t now = mli_ledger_age(lord);
    const memlord_site *kept = site ? mli_site_kept(lord, site) : NULL;
    mli_anomaly *a;
    int is_new;
    mli_lock_take(&s->lock);
    a = mli_anomaly_find(s, kind, site, kept);
    is_new = !a && s->count < MLI_ANOMALIES;
    if (is_new) {
        a = &s->at[s->count++];
        memset(a, 0, sizeof *a);
        a->is.kind = kind;
        a->is.device = device;
        a->is.storage = storage;
        a->is.first_ns = now;
        a->given = site;
        a->site = kept;
        a->born = mli_anomaly_born(lord, word2, &a->is.tag);
        mli_u32_store(&s->untold, 1);
    }
    if (a)
        mli_anomaly_again(a, bytes, now);
    else
        s->left_out++;
    mli_lock_drop(&s->lock);
    return is_new;
}

/* Copies mistake `number`. Returns 0 if there is no such mistake. */
static MLI_COLD int mli_anomaly_copy(memlord *lord, uint32_t number, mli_anomaly *out) {
    struct mli_anomalies_state *s = lord->anomalies;
    int found;
    mli_lock_take(&s->lock);
    found = number < s->count;
    if (found) *out = s->at[number];
    mli_lock_drop(&s->lock);
    return found;
}
MLI_PRIVATE MLI_COLD int mli_anomaly_read(memlord *lord, uint32_t number, memlord_anomaly *out) {
    MLI_REQUIRE(mli_none_held());
    mli_anomaly a;
    if (!mli_anomaly_copy(lord, number, &a)) return 0;
    *out = a.is;
    out->site = a.site ? *mli_site_display_of(lord, a.site) : mli_no_site;
    out->born = a.born ? *mli_site_display_of(lord, a.born) : mli_no_site;
    return 1;
}
MLI_PRIVATE MLI_COLD uint64_t mli_anomalies_left_out(memlord *lord) {
    uint64_t n;
    mli_lock_take(&lord->anomalies->lock);
    n = lord->anomalies->left_out;
    mli_lock_drop(&lord->anomalies->lock);
    return n;
}

/* -- the log -- */

/* Copies to *out the first mistake to log, and marks it as logged. Returns 0 if there is none. */
static MLI_COLD int mli_anomaly_untold(memlord *lord, mli_anomaly *out) {
    struct mli_anomalies_state *s = lord->anomalies;
    uint32_t i;
    mli_lock_take(&s->lock);
    for (i = 0; i < s->count && s->at[i].told; i++) {
    }
    if (i < s->count) {
        s->at[i].told = 1;
        *out = s->at[i];
    }
    i = i < s->count;
    mli_lock_drop(&s->lock);
    return (int)i;
}
/* Logs a line such as "[unknown_free] cpu 0x1000 64 B: a free of a storage that is not live, at
   main x.c:12; born at load y.c:3 [weights]". mli_refusal_log writes the line of a refusal. */
static MLI_NOINLINE MLI_COLD void mli_anomaly_log(memlord *lord, const mli_anomaly *a) {
    char line[512];
    memlord_site named;
    mli_out o;
    mli_out_buffer(&o, line, sizeof line);
    mli_putf(&o, "[%s] %i", mli_anomaly_name(a->is.kind), mli_device_code(a->is.device));
    if (a->is.storage) mli_putf(&o, " %jx", a->is.storage);
    if (a->is.bytes) mli_putf(&o, " %jo", a->is.bytes);
    mli_putf(&o, ": %s", mli_anomaly_text(a->is.kind));
    if (a->site) mli_putf(&o, ", at %p", (const void *)mli_site_named(lord, a->site, &named));
    if (a->born)
        mli_putf(&o, "; born at %p", (const void *)mli_site_named(lord, a->born, &named));
    if (a->is.tag) mli_putf(&o, " [%s]", a->is.tag);
    mli_log_end(lord, MEMLORD_LOG_WARNING, &o);
}
/* The load is relaxed, as a thread sees at least its own store. The store of 0 comes before the
   lock is taken, so it does not undo the 1 of a mistake that this thread has not seen. */
MLI_PRIVATE void mli_anomalies_tell(memlord *lord) {
    MLI_REQUIRE(mli_none_held());
    mli_anomaly a;
    if (MLI_LIKELY(!mli_u32_load(&lord->anomalies->untold))) return;
    if (mli_self.in_host_alloc || mli_log_runs(lord)) return;
    mli_u32_store(&lord->anomalies->untold, 0);
    if (!mli_log_hears(lord, MEMLORD_LOG_WARNING)) return;
    while (mli_anomaly_untold(lord, &a))
        if (a.is.kind != MEMLORD_ANOMALY_REFUSED) mli_anomaly_log(lord, &a);
}

MLI_PRIVATE MLI_COLD void mli_end_misplaced(memlord *lord, const void *caller) {
    mli_site_record *place = caller ? mli_place_at(lord, caller) : NULL;
    const memlord_site *site =
        place ? (const memlord_site *)mli_ptr_load_acquire(&place->display) : NULL;
    (void)mli_anomaly_note(lord, site, MEMLORD_ANOMALY_MISPLACED_END, memlord_device_all(), 0, 0,
                           0);
    mli_anomalies_tell(lord);
}

/* -- refusals -- */

MLI_PRIVATE MLI_COLD const char *mli_block_fault(uint64_t storage, uint64_t bytes) {
    if (!storage) return "a storage cannot be 0";
    if (storage == UINT64_MAX) return "a storage cannot be UINT64_MAX";
    return bytes > MLI_BYTES_MAX ? "a size over 2^48" : NULL;
}
/* Returns why a call refuses a device, in words that end a sentence such as "cuda:0 is ...". */
static MLI_COLD const char *mli_device_fault(memlord_device d) {
    return mli_device_valid(d) ? "one device too many: raise MEMLORD_MAX_DEVICES"
                               : "a selector: a device is needed";
}
/* Logs a line such as "memlord_free: a storage cannot be UINT64_MAX, at main x.c:12". */
static MLI_COLD void mli_refusal_log(memlord *lord, int refuser, memlord_result r,
                                     memlord_device d, const char *fault,
                                     const memlord_site *site) {
    static const char names[] =
#define MLI_X(name) #name "\0"
        MLI_REFUSERS(MLI_X);
#undef MLI_X
    char line[256];
    memlord_site named;
    mli_out o;
    mli_out_buffer(&o, line, sizeof line);
    mli_putf(&o, "memlord_%s: ", mli_text_at(names, (unsigned)refuser));
    if (r == MEMLORD_E_DEVICE && mli_selector_valid(d))
        mli_putf(&o, "%i is %s", mli_device_code(d), mli_device_fault(d));
    else
        mli_put_str(&o, r == MEMLORD_E_DEVICE ? "that is no device"
                        : fault               ? fault
                                              : memlord_result_text(r));
    if (site) mli_putf(&o, ", at %p", (const void *)mli_site_named(lord, site, &named));
    mli_log_end(lord, MEMLORD_LOG_WARNING, &o);
}
MLI_PRIVATE MLI_COLD memlord_result mli_refuse(memlord *lord, int refuser, memlord_result r,
                                               memlord_device d, const char *fault,
                                               const memlord_site *site) {
    MLI_REQUIRE(mli_none_held());
    int is_new, logs;
    if (!lord || mli_self.in_host_alloc) return r;
    if (r == MEMLORD_E_INVALID || r == MEMLORD_E_DEVICE) {
        mli_stat_add(lord, mli_dev_known(lord, d), MLI_STAT_refused, 1);
        is_new = mli_anomaly_note(lord, site, MEMLORD_ANOMALY_REFUSED, d, 0, 0, 0);
        logs = !mli_log_runs(lord);
        if (logs &&
            (!mli_u32_exchange(&lord->anomalies->refused[refuser][r == MEMLORD_E_DEVICE], 1) ||
             is_new))
            mli_refusal_log(lord, refuser, r, d, fault, site);
    }
    mli_anomalies_tell(lord);
    return r;
}

/* -- life -- */

static MLI_COLD void mli_anomalies_init(memlord *lord, const memlord_desc *desc) {
    (void)desc;
    mli_lock_rank(&lord->anomalies->lock, MLI_RANK_ANOMALIES);
}
static MLI_COLD void mli_anomalies_lock(memlord *lord, int take) {
    mli_lock_set(&lord->anomalies->lock, take);
}
MLI_PRIVATE MLI_COLD void mli_anomalies_reset(memlord *lord) {
    mli_lock_take(&lord->anomalies->lock);
    lord->anomalies->count = 0;
    lord->anomalies->left_out = 0;
    mli_lock_drop(&lord->anomalies->lock);
}
MLI_PRIVATE const mli_life mli_anomalies_life = {MLI_LIFE_STATE(anomalies), mli_anomalies_init,
                                                 NULL, NULL, mli_anomalies_lock, NULL, NULL};

/* -- public -- */

MLI_API size_t memlord_anomalies_each(memlord *lord, memlord_anomaly_fn fn, void *user) {
    memlord_anomaly a;
    uint32_t n = 0;
    if (!lord) return 0;
    for (; mli_anomaly_read(lord, n, &a); n++)
        if (fn && fn(user, &a)) return n + 1;
    return n;
}
