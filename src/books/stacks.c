#include "books/stacks.h"
#include "os/system.h"
#include "os/unwind.h"
#include "base/ledger.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "base/text.h"
#include "base/vectors.h"
#include "books/counters.h"
#include "books/names.h"
#include "books/tags.h"

#define MLI_STACK_HEADS 65536u     /* the number of hash chains of nodes */
#define MLI_STACK_ROW_HEADS 16384u /* the number of hash chains of rows */
#define MLI_STACK_OWN 16           /* the most of MemLord's own frames at the start of a stack */
#define MLI_STACK_BYTES ((uint64_t)512 << 10)
typedef char mli_check_stack_node[sizeof(mli_stack_node) <= 24 ? 1 : -1];

typedef struct mli_stack_tables {
    mli_picks picks[MLI_PICK_PARTS];
    mli_u32 nodes[MLI_STACK_HEADS], rows[MLI_STACK_ROW_HEADS]; /* the first of a chain, or 0 */
} mli_stack_tables;

/* The functions that a ledger needs once it takes stacks. They are called only by a pointer in the
   ledger, so that the linker can drop them from a program that takes no stacks. */
typedef struct mli_stack_calls {
    void (*pick)(memlord *lord, mli_call *call, uint64_t key, uint64_t bytes);
    uint64_t (*put)(memlord *lord, mli_call *call, const mli_entry *e);
    mli_pick (*find)(memlord *lord, const mli_entry *e, int remove);
    void (*off)(memlord *lord, const mli_pick *pick, uint64_t bytes, int frees, int undo);
    void (*keep)(memlord *lord, mli_call *call, const mli_pick *pick, uint64_t key, uint32_t site);
} mli_stack_calls;

/* Returns the ledger's mli_stack_calls, or NULL before the first mli_stacks_begin. The acquire load
   pairs with the release store in mli_stacks_begin. */
static const mli_stack_calls *mli_stack_calls_of(const memlord *lord) {
    return (const mli_stack_calls *)mli_ptr_load_acquire(&lord->stacks.calls);
}

/* -- samples -- */

/* Sets a new seed for a ledger's samples: the same in each run if the host has given one, and else
   another in each run, process and ledger. A forked child always gets another seed. No system call
   here waits or fails, because the caller may be inside malloc or in a sandbox. */
static MLI_COLD void mli_stacks_seed(memlord *lord) {
    uint64_t seed = mli_mixed(lord->stacks.seed + 1);
    if (lord->stacks.repeatable) {
        lord->stacks.seed = seed;
        return;
    }
    seed = mli_mixed(seed ^ mli_pid());
    seed = mli_mixed(seed ^ mli_wall_now());
    seed = mli_mixed(seed ^ mli_now());
    seed = mli_mixed(seed ^ (uint64_t)(uintptr_t)lord); /* the address of the ledger is random */
    seed = mli_mixed(seed ^ (uint64_t)(uintptr_t)&seed); /* the stack's address is random, too */
    seed = mli_mixed(seed ^ mli_u64_load(&mli_process.generation)); /* the newest generation */
    lord->stacks.seed = seed;
}
/* Draws the number of bytes until a thread's next sample. The number is exponentially distributed,
   with t->stack_mean as its mean. The random numbers are those of splitmix64. Each thread record of
   each ledger begins at its own place in their sequence. */
static MLI_COLD void mli_stack_draw(const memlord *lord, mli_thread *t) {
    const uint64_t step = 0x9e3779b97f4a7c15u;
    uint64_t r;
    if (!t->stack_random) t->stack_random = mli_mixed(lord->stacks.seed + t->id * step);
    t->stack_random += step;
    r = (mli_mixed(t->stack_random) >> 11) + 1;
    t->stack_left = (int64_t)(-mli_log_of(r) * (double)t->stack_mean) + 1;
}

/* Counts the bytes of an alloc that calls/fast does not serve. If the alloc is picked, returns the
   mean of the bytes between samples, else 0. If the mean has changed since the last draw, draws
   again. This adds no bias, because the rest of an old draw is distributed as a new draw is. */
static MLI_COLD uint64_t mli_stack_due(const memlord *lord, mli_thread *t, uint64_t bytes) {
    const uint64_t mean = mli_u64_load(&lord->stacks.bytes);
    if (t->stack_mean != mean || !t->stack_random) {
        t->stack_mean = mean;
        t->stack_left = 0;
        if (mean > 1) mli_stack_draw(lord, t);
    }
    if (mean == 1) return 1;
    t->stack_left -= (int64_t)bytes;
    if (t->stack_left > 0) return 0;
    mli_stack_draw(lord, t);
    return mean;
}

/* -- the tree and the rows -- */

MLI_PRIVATE MLI_NOINLINE mli_stack_node *mli_stack_node_at(const memlord *lord, uint32_t number) {
    return (mli_stack_node *)mli_vector_at(&lord->stacks.nodes, number, sizeof(mli_stack_node));
}
MLI_PRIVATE MLI_NOINLINE mli_stack_row *mli_stack_row_at(const memlord *lord, uint32_t number) {
    return (mli_stack_row *)mli_vector_at(&lord->stacks.rows, number, sizeof(mli_stack_row));
}
MLI_PRIVATE uint32_t mli_stack_rows(const memlord *lord) {
    return mli_u32_load_acquire(&lord->stacks.row_count);
}
MLI_PRIVATE mli_site_record *mli_stack_frame_at(const memlord *lord, uint32_t number) {
    return (mli_site_record *)mli_ptr_load(
        (mli_ptr *)mli_vector_at(&lord->stacks.frames, number, sizeof(mli_ptr)));
}
MLI_PRIVATE uint32_t mli_stack_frame_count(const memlord *lord) {
    return mli_u32_load_acquire(&lord->stacks.frame_count) - 1;
}
static mli_stack_tables *mli_stack_tables_of(const memlord *lord) {
    return (mli_stack_tables *)mli_ptr_load_acquire(&lord->stacks.tables);
}
static mli_u32 *mli_stack_head(const memlord *lord, uint32_t parent, const void *address) {
    const uint64_t at = (uint64_t)(uintptr_t)address ^ (uint64_t)parent << 40;
    return &mli_stack_tables_of(lord)->nodes[at * 0x9e3779b97f4a7c15u >> 48];
}
static mli_u32 *mli_stack_row_head(const memlord *lord, uint32_t node, uint32_t dev,
                                   uint32_t site) {
    const uint32_t hash = ((node ^ site << 12) * 251 + dev) * 0x9e3779b9u;
    return &mli_stack_tables_of(lord)->rows[hash >> 18];
}

/* Returns the node below `parent` for `site` or, if that is NULL, for `address`, in a module that
   stays loaded; or 0. Needs no lock, because the acquire loads pair with the release stores of the
   functions that add nodes. */
static MLI_HOT uint32_t mli_stack_child(const memlord *lord, uint32_t parent, const void *address,
                                        const mli_site_record *site) {
    uint32_t n = mli_u32_load_acquire(mli_stack_head(lord, parent, address));
    const mli_stack_node *node;
    for (; n; n = node->next) {
        node = mli_stack_node_at(lord, n);
        if (node->parent == parent &&
            (site ? node->site == site : node->stays == (uint64_t)(uintptr_t)address))
            break;
    }
    return n;
}
static uint32_t mli_stack_row_find(const memlord *lord, uint32_t leaf, uint32_t dev,
                                   uint32_t site) {
    uint32_t n = mli_u32_load_acquire(mli_stack_row_head(lord, leaf, dev, site));
    const mli_stack_row *row;
    for (; n; n = row->next) {
        row = mli_stack_row_at(lord, n);
        if (row->node == leaf && row->dev == dev && row->site == site) break;
    }
    return n;
}

/* Gives a site a number among the frames of stacks, if it has none. Returns MLI_AGAIN if the caller
   has to get memory and then call again. */
static MLI_COLD memlord_result mli_stack_frame_add_locked(memlord *lord, mli_site_record *site) {
    MLI_REQUIRE(mli_lock_held(&mli_process.cold_lock));
    const uint32_t n = mli_u32_load(&lord->stacks.frame_count);
    mli_ptr *at;
    if (site->frame) return MEMLORD_OK;
    at = (mli_ptr *)mli_vector_add(lord, &lord->stacks.frames, n, sizeof *at, mli_cold_alloc);
    if (!at) return MLI_AGAIN;
    mli_ptr_store(at, site);
    site->frame = n;
    mli_u32_store_release(&lord->stacks.frame_count, n + 1); /* pairs with mli_stack_frame_count */
    return MEMLORD_OK;
}
/* Finds or adds the node of a site below the node `parent`. Returns E_NOMEM if the tree is full,
   and MLI_AGAIN if it needs memory first. The site's address chooses the hash chain of the node,
   even if another module is at that address now. */
static MLI_COLD memlord_result mli_stack_child_find_locked(memlord *lord, uint32_t parent,
                                                           mli_site_record *site, int stays,
                                                           uint32_t *number) {
    MLI_REQUIRE(mli_lock_held(&mli_process.cold_lock));
    const uint32_t n = mli_u32_load(&lord->stacks.node_count);
    mli_u32 *head = mli_stack_head(lord, parent, site->address);
    mli_stack_node *node;
    *number = mli_stack_child(lord, parent, site->address, site);
    if (*number) return MEMLORD_OK;
    if (n > MEMLORD_MAX_STACK_NODES) return MEMLORD_E_NOMEM;
    node = (mli_stack_node *)mli_vector_add(lord, &lord->stacks.nodes, n, sizeof *node,
                                            mli_cold_alloc);
    if (!node || mli_stack_frame_add_locked(lord, site)) return MLI_AGAIN;
    node->stays = stays ? (uint64_t)(uintptr_t)site->address : 0;
    node->site = site;
    node->parent = parent;
    node->next = mli_u32_load(head);
    mli_u32_store_release(&lord->stacks.node_count, n + 1); /* pairs with mli_stack_node_count */
    mli_u32_store_release(head, n);                         /* pairs with mli_stack_child */
    *number = n;
    return MEMLORD_OK;
}
/* Returns the node of a return address, added on first use, or 0 if there is no room. It is found
   by the site, because another module may be at the address by now. */
static MLI_COLD uint32_t mli_stack_child_of(memlord *lord, uint32_t parent, const void *address) {
    mli_site_record *site = mli_place_at(lord, address);
    uint32_t n = site ? mli_stack_child(lord, parent, site->address, site) : 0;
    mli_cold cold = {MEMLORD_OK, NULL, 0, 0};
    int stays;
    if (n || !site) return n;
    stays = site->address == address && mli_site_record_of(lord, address) == site;
    do {
        mli_cold_enter(&cold);
        cold.r = mli_stack_child_find_locked(lord, parent, site, stays, &n);
    } while (mli_cold_leave(lord, &cold));
    return cold.r == MEMLORD_OK ? n : 0;
}

/* Finds or adds the row of a stack on a device, for the site with the row `site`, or 0. */
static MLI_COLD memlord_result mli_stack_row_find_locked(memlord *lord, uint32_t leaf, uint32_t dev,
                                                         uint32_t site, uint32_t *number) {
    MLI_REQUIRE(mli_lock_held(&mli_process.cold_lock));
    const uint32_t n = mli_u32_load(&lord->stacks.row_count);
    mli_u32 *head = mli_stack_row_head(lord, leaf, dev, site);
    mli_u32 *newest = &mli_device_record_at(lord, dev)->stack;
    mli_stack_row *row;
    *number = mli_stack_row_find(lord, leaf, dev, site);
    if (*number) return MEMLORD_OK;
    if (n > MEMLORD_MAX_STACK_NODES) return MEMLORD_E_NOMEM;
    row = (mli_stack_row *)mli_vector_add(lord, &lord->stacks.rows, n, sizeof *row, mli_cold_alloc);
    if (!row) return MLI_AGAIN;
    row->node = leaf;
    row->dev = dev;
    row->site = site;
    row->next = mli_u32_load(head);
    row->older = mli_u32_load(newest);
    mli_u32_store_release(&lord->stacks.row_count, n + 1); /* pairs with mli_stack_rows */
    mli_u32_store_release(head, n);                        /* pairs with mli_stack_row_find */
    mli_u32_store_release(newest, n);                      /* pairs with mli_stacks_hold */
    *number = n;
    return MEMLORD_OK;
}
/* Returns the row of a stack, and adds it on first use. Returns 0 if there is no room. */
static MLI_COLD uint32_t mli_stack_row_of_node(memlord *lord, uint32_t leaf, uint32_t dev,
                                               uint32_t site) {
    uint32_t row = mli_stack_row_find(lord, leaf, dev, site);
    mli_cold cold = {MEMLORD_OK, NULL, 0, 0};
    if (row) return row;
    do {
        mli_cold_enter(&cold);
        cold.r = mli_stack_row_find_locked(lord, leaf, dev, site, &row);
    } while (mli_cold_leave(lord, &cold));
    return cold.r == MEMLORD_OK ? row : 0;
}
/* Returns the row of the stack that has these return addresses, the innermost first, below the node
   `root`. Returns 0 if there is no room for the row or for a node. */
static MLI_COLD uint32_t mli_stack_row_of(memlord *lord, uint32_t root, void *const *frames,
                                          size_t depth, uint32_t dev, uint32_t site) {
    uint32_t node = root, next;
    for (; depth--; node = next) {
        next = mli_stack_child(lord, node, frames[depth], NULL);
        if (!next) next = mli_stack_child_of(lord, node, frames[depth]);
        if (!next) return 0;
    }
    return mli_stack_row_of_node(lord, node, dev, site);
}

/* Returns the part of the table for a key. Requires: mli_stacks_ready has made it. */
static mli_picks *mli_picks_of(memlord *lord, uint64_t key) {
    return mli_picks_part(lord, mli_stack_tables_of(lord)->picks, key);
}

/* -- the totals of a row: each total changes by one atomic operation, without a lock -- */

/* Adds `by` to the variance of a row's live bytes. If every alloc is picked, `by` is 0. */
static MLI_NOINLINE void mli_stack_vary(mli_stack_row *row, double by) {
    uint64_t seen = mli_u64_load(&row->variance), bits;
    double sum;
    if (!(by < 0) && !(by > 0)) return;
    do {
        memcpy(&sum, &seen, sizeof sum);
        sum += by;
        memcpy(&bits, &sum, sizeof bits);
    } while (!mli_u64_cas(&row->variance, &seen, bits));
}
/* Subtracts a picked block from the totals of its stack; with `undo` as if never allocated. */
static void mli_stack_credit(memlord *lord, const mli_pick *pick, uint64_t bytes, int undo) {
    mli_stack_row *row = mli_stack_row_at(lord, pick->row);
    const uint64_t weight = mli_pick_weight(pick, bytes);
    (void)mli_u64_add(&row->live, 0 - weight);
    (void)mli_u64_add(&row->blocks, (uint64_t)-1);
    mli_stack_vary(row, -mli_pick_variance(pick, bytes));
    if (!undo) return;
    mli_u64_lower(&row->samples, 1);
    mli_u64_lower(&row->allocs, mli_pick_units(pick));
    mli_u64_lower(&row->picked_bytes, bytes);
    mli_u64_lower(&row->alloc_bytes, weight);
}
/* Adds the block that a call opens to the totals of its stack. A reader loads the samples and their
   bytes before the estimates that include them: see mli_stack_totals_of. */
static void mli_stack_debit(memlord *lord, const mli_call *call, const mli_pick *pick,
                            uint64_t bytes) {
    mli_stack_row *row = mli_stack_row_at(lord, pick->row);
    const uint64_t weight = mli_pick_weight(pick, bytes), had = call->pick.had;
    mli_stack_vary(row, mli_pick_variance(pick, bytes));
    (void)mli_u64_add(&row->blocks, 1);
    mli_u64_max(&row->peak, (int64_t)(mli_u64_add(&row->live, weight) + weight));
    if (!call->pick.again) {
        (void)mli_u64_add(&row->allocs, mli_pick_units(pick));
        (void)mli_u64_add(&row->samples, 1);
    }
    if (bytes > had) { /* a resized block adds only its growth, as in all totals */
        (void)mli_u64_add(&row->alloc_bytes, mli_pick_weight(pick, bytes - had));
        (void)mli_u64_add(&row->picked_bytes, bytes - had);
    }
}

/* Stores a block as the last picked block of this thread. */
static void mli_taken_set(memlord *lord, const mli_pick *pick) {
    mli_thread *t = mli_self.thread;
    if (mli_self.generation != lord->generation) return; /* the thread has no record */
    t->taken_key = pick->key;
    t->taken_row = pick->row;
    t->taken_type = pick->type;
}
/* Returns 1 if a block is the last picked block of this thread. */
static int mli_taken_is(const memlord *lord, const mli_pick *pick) {
    const mli_thread *t = mli_self.thread;
    return mli_self.generation == lord->generation && t->taken_row == pick->row &&
           t->taken_key == pick->key && t->taken_type == pick->type;
}
/* Counts a block as a temporary if it ends as the last picked block of this thread. */
static void mli_taken_end(memlord *lord, const mli_pick *pick, int undo) {
    if (!mli_taken_is(lord, pick)) return;
    mli_self.thread->taken_row = 0;
    if (!undo) (void)mli_u64_add(&mli_stack_row_at(lord, pick->row)->temporaries, 1);
}

/* Adds the block that a call opens to the table and to the row of its stack. */
static MLI_COLD uint64_t mli_stack_put(memlord *lord, mli_call *call, const mli_entry *e) {
    mli_pick pick;
    pick.key = e->key;
    pick.type = mli_type_of(lord, MLI_DEV(e->word1));
    pick.row = call->pick.row;
    pick.scale = call->pick.scale;
    call->pick.row = 0;
    if (!call->pick.kept) mli_taken_set(lord, &pick);
    mli_pick_add(call->pick.part, &pick);
    mli_stack_debit(lord, call, &pick, MLI_BYTES(e->word1));
    return MLI_PICKED;
}
/* Returns the entry of a picked block in the table. If `remove` is 1, also removes it. */
static mli_pick mli_stack_find(memlord *lord, const mli_entry *e, int remove) {
    return mli_pick_take(mli_picks_of(lord, e->key), mli_type_of(lord, MLI_DEV(e->word1)), e->key,
                         remove);
}
/* Does what mli_pick_off does; with `undo` as if the block had not been allocated. */
static MLI_COLD void mli_stack_off(memlord *lord, const mli_pick *pick, uint64_t bytes, int frees,
                                   int undo) {
    if (frees) mli_taken_end(lord, pick, undo);
    mli_stack_credit(lord, pick, bytes, undo);
}

MLI_PRIVATE MLI_NOINLINE uint64_t mli_pick_put(memlord *lord, mli_call *call, const mli_entry *e) {
    if (MLI_LIKELY(!call->pick.row)) return 0;
    return mli_stack_calls_of(lord)->put(lord, call, e);
}
static MLI_NOINLINE mli_pick mli_pick_find(memlord *lord, const mli_entry *e, int remove) {
    if (!(e->word1 & MLI_PICKED)) return mli_pick_none;
    return mli_stack_calls_of(lord)->find(lord, e, remove);
}
MLI_PRIVATE MLI_COLD mli_pick mli_pick_of(memlord *lord, const mli_entry *e) {
    return mli_pick_find(lord, e, 0);
}
MLI_PRIVATE MLI_COLD mli_pick mli_pick_out(memlord *lord, const mli_entry *e) {
    return mli_pick_find(lord, e, 1);
}
MLI_PRIVATE MLI_NOINLINE void mli_pick_end(memlord *lord, const mli_entry *e, int undo) {
    mli_pick pick;
    if (MLI_LIKELY(!(e->word1 & MLI_PICKED))) return;
    pick = mli_pick_find(lord, e, 1);
    mli_stack_calls_of(lord)->off(lord, &pick, MLI_BYTES(e->word1), 1, undo);
}
MLI_PRIVATE void mli_pick_off(memlord *lord, const mli_pick *pick, uint64_t bytes, int frees) {
    if (pick->row) mli_stack_calls_of(lord)->off(lord, pick, bytes, frees, 0);
}

/* -- the stack of an alloc -- */

/* Notes the stack of the block that a call opens under `key`, and reserves room in the table of
   picked blocks. If `row` is 0, or the table has no room, counts the stack as dropped. Requires:
   the call ends with mli_stack_forget. */
static MLI_COLD void mli_stack_set(memlord *lord, mli_call *call, uint32_t row, uint64_t key,
                                   double scale) {
    MLI_REQUIRE(!mli_is_inside());
    call->pick.part = row ? mli_picks_of(lord, key) : NULL;
    call->pick.row = row && mli_pick_reserve(lord, call->pick.part) ? row : 0;
    call->pick.scale = scale;
    call->pick.again = call->pick.kept = 0;
    call->pick.had = 0;
    if (!call->pick.row) mli_stat_add(lord, call->dev, MLI_STAT_dropped_sites, 1);
}
MLI_PRIVATE void mli_stack_forget(mli_call *call) {
    if (MLI_LIKELY(!call->pick.row)) return;
    call->pick.row = 0;
    mli_pick_unreserve(call->pick.part);
}
static MLI_COLD void mli_stack_keep_row(memlord *lord, mli_call *call, const mli_pick *pick,
                                        uint64_t key, uint32_t site) {
    const uint32_t node = mli_stack_row_at(lord, pick->row)->node;
    mli_stack_set(lord, call, mli_stack_row_of_node(lord, node, call->dev, site), key,
                  pick->scale);
    call->pick.kept = !mli_taken_is(lord, pick);
}
MLI_PRIVATE MLI_COLD void mli_stack_keep(memlord *lord, mli_call *call, const mli_pick *pick,
                                         uint64_t key, uint32_t site) {
    if (pick->row) mli_stack_calls_of(lord)->keep(lord, call, pick, key, site);
}

/* Returns how many of `n` frames come before the first frame of the host. The search starts at the
   frame `site`. If there is none, it starts at the frame `caller`, or else at the first frame. */
static size_t mli_stack_own(void *const *frames, size_t n, const void *site, const void *caller) {
    const void *wanted = site ? site : caller;
    size_t i = 0;
    while (i < n && frames[i] != wanted) i++;
    if (i == n && wanted != caller) return mli_stack_own(frames, n, NULL, caller);
    if (i == n) i = 0;
    while (i < n && mli_is_own(frames[i])) i++;
    return i;
}

/* Returns 0 if the call may not unwind: after the thread's exit hook, or inside an unwinder. A
   child of vfork unwinds as its parent would, because only a system call can tell that it is one,
   and a sandbox may kill the process for that call. */
static MLI_COLD int mli_stack_may_unwind(const memlord *lord, const mli_thread *t) {
    return !mli_is_orphan(lord, t) && !mli_self.unwinding;
}
/* Returns how many of `n` frames come before the first that is no address of code: garbage (its top
   byte, which the index uses, is not 0), or the end of the stack. */
static size_t mli_stack_sound(void *const *frames, size_t n) {
    size_t i = 0;
    while (i < n && frames[i] && !((uint64_t)(uintptr_t)frames[i] >> 56)) i++;
    return i;
}

/* -- stacks that do not reach the root -- Their outermost frame is a site without an address, whose
   name tells why the stack was cut, so that it does not look like one from another root. */

enum { MLI_CUT_NOT, MLI_CUT_DEEP, MLI_CUT_LOST, MLI_CUT_UNTAKEN };
/* Arrays, as mli_no_text in books/sites. */
static const char mli_cut_deep[] = "[cut: deeper]", mli_cut_lost[] = "[cut: no unwind table]",
                  mli_cut_untaken[] = "[cut: not unwound]", mli_cut_file[] = "";
static const memlord_site mli_cut_sites[] = {
    {mli_cut_file, mli_cut_deep, 0}, {mli_cut_file, mli_cut_lost, 0},
    {mli_cut_file, mli_cut_untaken, 0}};

static MLI_COLD uint32_t mli_stack_cut_make(memlord *lord, const memlord_site *why) {
    const mli_site_origin from = {why, NULL};
    mli_site_record *site;
    uint32_t n = 0;
    mli_cold cold = {MEMLORD_OK, NULL, 0, 0};
    do {
        mli_cold_enter(&cold);
        cold.r = mli_site_find_locked(lord, &from, &site);
        if (cold.r == MEMLORD_OK) cold.r = mli_stack_child_find_locked(lord, 0, site, 0, &n);
    } while (mli_cold_leave(lord, &cold));
    return cold.r == MEMLORD_OK ? n : 0;
}
/* Returns the node at which a stack begins: node 0 or, if the stack is cut, a node that tells why.
   Makes that node on first use. If there is no room for it, returns 0. */
static MLI_COLD uint32_t mli_stack_root(memlord *lord, int cut) {
    const memlord_site *why = cut ? &mli_cut_sites[cut - 1] : NULL;
    const mli_site_record *site = why ? mli_site_record_of(lord, why) : NULL;
    const uint32_t n = site ? mli_stack_child(lord, 0, site->address, site) : 0;
    return n || !why ? n : mli_stack_cut_make(lord, why);
}

/* Writes the stack of a call to `frames`, which has room for `most` frames and for MLI_STACK_OWN
   frames of MemLord. Sets *from to the index of the first frame of the host, and *cut to
   MLI_CUT_... Returns the number of frames from *from on. If the call may not unwind, or the
   unwinder finds nothing, the stack is the call's return address, or empty if it is unknown. */
static MLI_COLD size_t mli_stack_unwind(memlord *lord, mli_call *call, void **frames, size_t most,
                                        size_t *from, int *cut) {
    const mli_site_record *record = call->site ? mli_site_record_of(lord, call->site) : NULL;
    const mli_call outer = *call;
    void *caller = call->caller;
    void *known = record ? (void *)(uintptr_t)record->address : NULL;
    const size_t cap = most + MLI_STACK_OWN;
    size_t n = 0;
    *from = 0;
    *cut = MLI_CUT_NOT;
    if (mli_stack_may_unwind(lord, call->t)) {
        mli_self.unwinding = 1;
        mli_self.unwound = call->frame;
        MLI_REQUIRE(mli_none_held());
        n = lord->stacks.unwinder.fn(lord->stacks.unwinder.user, frames, cap);
        mli_self.unwinding = 0;
        *call = outer; /* the unwinder may have made calls of its own, as by a malloc */
        n = mli_stack_sound(frames, n < cap ? n : cap);
        if (n == cap) *cut = MLI_CUT_DEEP;
        if (n && frames[n - 1] == MEMLORD_FRAME_LOST) n--, *cut = MLI_CUT_LOST;
        *from = mli_stack_own(frames, n, known, caller);
    }
    if (n > *from + most) *cut = MLI_CUT_DEEP;
    if (n > *from) return n - *from < most ? n - *from : most;
    *cut = MLI_CUT_UNTAKEN;
    (void)mli_u64_add(&lord->stacks.cut, 1);
    *from = 0;
    frames[0] = known ? known : mli_is_own(caller) ? NULL : caller;
    return mli_stack_sound(frames, 1);
}

/* Makes the chains of nodes and rows and the table of picked blocks, before the first stack. They
   are not made earlier, because a short process may need none of them, and to clear them takes
   time. Returns 0 if there is no memory. */
static MLI_COLD int mli_stacks_ready(memlord *lord) {
    MLI_REQUIRE(mli_none_held_but_orphan());
    mli_stack_tables *fresh;
    if (mli_stack_tables_of(lord)) return 1;
    fresh = (mli_stack_tables *)mli_own_alloc(lord, sizeof *fresh);
    if (!fresh) return 0;
    mli_picks_init(fresh->picks);
    mli_lock_take(&lord->stacks.lock);
    if (!mli_stack_tables_of(lord)) { /* a release below pairs with it */
        mli_ptr_store_release(&lord->stacks.tables, fresh);
        fresh = NULL;
    }
    mli_lock_drop(&lord->stacks.lock);
    mli_own_free(lord, fresh, sizeof *fresh);
    return 1;
}

static MLI_COLD void mli_stack_pick_sample(memlord *lord, mli_call *call, uint64_t key,
                                           uint64_t bytes) {
    mli_thread *t = call->t;
    void *frames[MLI_STACK_DEPTH_MAX + MLI_STACK_OWN];
    size_t depth, from;
    uint32_t most, row = 0, at = 0;
    double mean;
    int cut;
    if (mli_u32_load(&t->special) & MLI_SPECIAL_REDRAW) mli_special_set(t, MLI_SPECIAL_REDRAW, 0);
    most = mli_stacks_depth(lord); /* a later change of the depth sets MLI_SPECIAL_REDRAW again */
    mean = (double)(most ? mli_stack_due(lord, t, bytes) : 0);
    if (!(mean > 0)) return;
    depth = mli_stack_unwind(lord, call, frames, most, &from, &cut);
    if (call->site && mli_hook_on(lord, MLI_HOOK_SITES))
        at = MLI_SITE_ROW(mli_cached_row(lord, t, MLI_BOOK_SITE, call->site, call->dev));
    if (mli_stacks_ready(lord))
        row = mli_stack_row_of(lord, depth ? mli_stack_root(lord, cut) : 0, frames + from, depth,
                               call->dev, at);
    mli_stack_set(lord, call, row, key, mean > 1 ? mli_sample_scale((double)bytes / mean) : 1);
}

static const mli_stack_calls mli_stack_functions = {
    mli_stack_pick_sample, mli_stack_put, mli_stack_find, mli_stack_off, mli_stack_keep_row};

/* A thread may see MLI_SPECIAL_STACKS before it sees stacks.calls, and then picks nothing. */
MLI_PRIVATE MLI_COLD void mli_stack_pick_slow(memlord *lord, mli_call *call, uint64_t key,
                                              uint64_t bytes) {
    MLI_REQUIRE(!mli_is_inside());
    const mli_stack_calls *calls = mli_stack_calls_of(lord);
    if (calls) calls->pick(lord, call, key, bytes);
}

/* -- reading -- */

MLI_PRIVATE MLI_COLD uint32_t mli_stack_depth(const memlord *lord, const mli_stack_row *row) {
    uint32_t n = row->node, depth = 0;
    for (; n; n = mli_stack_node_at(lord, n)->parent) depth++;
    return depth;
}
static size_t mli_stack_frames_size(uint32_t depth) { return (2 * depth + 1) * sizeof(void *); }
MLI_PRIVATE MLI_COLD void **mli_stack_frames(memlord *lord, mli_stack_row *row, uint32_t depth) {
    MLI_REQUIRE(mli_none_held());
    void **frames = (void **)mli_ptr_load_acquire(&row->frames), **fresh;
    uint32_t i, n = row->node;
    if (frames) return frames;
    fresh = (void **)mli_own_alloc(lord, mli_stack_frames_size(depth));
    if (!fresh) return NULL;
    for (i = 0; i < depth; i++, n = mli_stack_node_at(lord, n)->parent) {
        mli_site_record *site = mli_stack_node_at(lord, n)->site;
        fresh[i] = (void *)(uintptr_t)site->address;
        ((const memlord_site **)(void *)fresh)[depth + i] = mli_site_display(lord, site);
    }
    mli_lock_take(&lord->stacks.lock);
    frames = (void **)mli_ptr_load(&row->frames);
    if (!frames) mli_ptr_store_release(&row->frames, fresh); /* pairs with the acquire load above */
    mli_lock_drop(&lord->stacks.lock);
    if (!frames) return fresh;
    mli_own_free(lord, fresh, mli_stack_frames_size(depth));
    return frames;
}
#if !defined(MEMLORD_NO_VERIFY)
MLI_PRIVATE MLI_COLD uint64_t mli_picks_count(const memlord *lord) {
    const mli_stack_tables *tables = mli_stack_tables_of(lord);
    return tables ? mli_picks_sum(tables->picks) : 0;
}
#endif

MLI_PRIVATE MLI_COLD uint32_t mli_stacks_depth(const memlord *lord) {
    return mli_u32_load_acquire(&lord->stacks.depth); /* pairs with the store in mli_stacks_begin */
}
MLI_PRIVATE MLI_COLD uint64_t mli_stacks_bytes(const memlord *lord) {
    return mli_stacks_depth(lord) ? mli_u64_load(&lord->stacks.bytes) : 0;
}
MLI_PRIVATE MLI_COLD int mli_stacks_on(const memlord *lord) {
    return mli_stacks_depth(lord) || mli_stack_rows(lord) > 1;
}
MLI_PRIVATE MLI_COLD int mli_stacks_sampled(const memlord *lord) {
    return mli_u64_load(&lord->stacks.estimated) != 0;
}
MLI_PRIVATE MLI_COLD void mli_stacks_put_rate(const memlord *lord, mli_out *o) {
    mli_putf(o, "estimates: a sample each %jo", mli_u64_load(&lord->stacks.estimated));
}
MLI_PRIVATE MLI_COLD uint64_t mli_stacks_cut(const memlord *lord) {
    return mli_u64_load(&lord->stacks.cut);
}
#if !defined(MEMLORD_NO_REPORTS)
MLI_PRIVATE MLI_COLD uint32_t mli_stack_node_count(const memlord *lord) {
    return mli_u32_load_acquire(&lord->stacks.node_count) - 1;
}
#endif

/* -- life -- */

MLI_PRIVATE MLI_COLD const char *mli_stacks_check(const memlord_desc *desc) {
    return desc->stack_depth > MLI_STACK_DEPTH_MAX ? "[create] stack_depth is over 128" : NULL;
}
MLI_PRIVATE MLI_COLD void mli_stacks_begin(memlord *lord, uint32_t depth, uint64_t bytes) {
    void *frames[1];
    uint64_t generation;
    if (!bytes) bytes = MLI_STACK_BYTES;
    if (bytes > MLI_BYTES_MAX) bytes = MLI_BYTES_MAX;
    if (!lord->stacks.begun) {
        lord->stacks.begun = 1;
        mli_stacks_seed(lord);
        generation = mli_busy_begin();
        if (lord->stacks.unwinder.fn == mli_unwind) (void)mli_unwind(NULL, frames, 1);
        mli_busy_end(generation);
    }
    mli_ptr_store_release(&lord->stacks.calls, (void *)(uintptr_t)&mli_stack_functions); /* pairs
                                                              with the load in mli_stack_calls_of */
    mli_u64_store(&lord->stacks.bytes, bytes);
    if (bytes > 1) mli_u64_store(&lord->stacks.estimated, bytes);
    mli_u32_store_release(&lord->stacks.depth, depth); /* pairs with the load in mli_stacks_depth */
    mli_hook_set(lord, MLI_HOOK_STACKS, 1);
    mli_special_set_all(lord, MLI_SPECIAL_REDRAW, 1);
}
/* Ends the taking of stacks; blocks keep theirs. Requires: no other thread sets them. */
static MLI_COLD void mli_stacks_end(memlord *lord) {
    mli_u32_store_release(&lord->stacks.depth, 0);
    mli_hook_set(lord, MLI_HOOK_STACKS, 0);
    mli_special_set_all(lord, MLI_SPECIAL_REDRAW, 0);
}
static MLI_COLD void mli_stacks_init(memlord *lord, const memlord_desc *desc) {
    MLI_REQUIRE(!lord->back);
    mli_lock_rank(&lord->stacks.lock, MLI_RANK_STACKS);
    lord->stacks.frame_count.v = lord->stacks.node_count.v = lord->stacks.row_count.v = 1;
    lord->stacks.bytes.v = 1;
    lord->stacks.unwinder = desc->unwinder;
    if (!desc->unwinder.fn) lord->stacks.unwinder.fn = mli_unwind;
    lord->stacks.seed = desc->stack_seed;
    lord->stacks.repeatable = desc->stack_seed != 0;
}
static MLI_COLD void mli_stacks_lock(memlord *lord, int take) {
    mli_stack_tables *tables;
    if (take) mli_lock_take(&lord->stacks.lock); /* no thread makes the tables meanwhile */
    tables = mli_stack_tables_of(lord);
    if (tables) mli_picks_lock(tables->picks, take);
    if (!take) mli_lock_drop(&lord->stacks.lock);
}
/* Makes every thread of a forked child draw again, and not its parent's numbers. */
static MLI_COLD void mli_stacks_forked(memlord *lord) {
    mli_thread *t;
    mli_u32_store(&lord->stacks.setting, 0);
    mli_stacks_seed(lord);
    for (t = mli_thread_first(lord); t; t = mli_thread_next(t)) {
        t->stack_random = 0;
        t->stack_left = 0;
    }
}
static MLI_COLD void mli_stacks_free(memlord *lord) {
    mli_stack_tables *tables = mli_stack_tables_of(lord);
    uint32_t i, rows = mli_stack_rows(lord);
    for (i = 1; i < rows; i++) {
        mli_stack_row *row = mli_stack_row_at(lord, i);
        mli_own_free(lord, mli_ptr_load(&row->frames),
                     mli_stack_frames_size(mli_stack_depth(lord, row)));
    }
    mli_vector_free(lord, &lord->stacks.rows, sizeof(mli_stack_row));
    mli_vector_free(lord, &lord->stacks.nodes, sizeof(mli_stack_node));
    mli_vector_free(lord, &lord->stacks.frames, sizeof(mli_ptr));
    if (tables) mli_picks_free(lord, tables->picks);
    mli_own_free(lord, tables, sizeof *tables);
}
MLI_PRIVATE MLI_COLD void mli_stacks_reset(memlord *lord) {
    uint32_t i, rows = mli_stack_rows(lord);
    for (i = 1; i < rows; i++) {
        mli_stack_row *row = mli_stack_row_at(lord, i);
        mli_u64_store(&row->peak, mli_u64_load(&row->live));
        mli_u64_store(&row->samples, 0);
        mli_u64_store(&row->picked_bytes, 0);
        mli_u64_store(&row->allocs, 0);
        mli_u64_store(&row->alloc_bytes, 0);
        mli_u64_store(&row->temporaries, 0);
    }
    mli_u64_store(&lord->stacks.cut, 0);
}
MLI_PRIVATE const mli_life mli_stacks_life = {0, 0, mli_stacks_init, NULL, NULL, mli_stacks_lock,
                                              mli_stacks_forked, mli_stacks_free};

/* -- public -- */

MLI_API memlord_result memlord_stacks_set(memlord *lord, uint32_t depth, uint64_t bytes) {
    unsigned spins = 0;
    if (!lord) return MEMLORD_OK;
    if (depth > MLI_STACK_DEPTH_MAX) return MEMLORD_E_INVALID;
    if (mli_self.in_host_alloc) return MEMLORD_E_STATE; /* the call could wait for itself */
    while (mli_u32_exchange(&lord->stacks.setting, 1)) mli_spin_wait(&spins);
    if (depth)
        mli_stacks_begin(lord, depth, bytes);
    else
        mli_stacks_end(lord);
    mli_u32_store_release(&lord->stacks.setting, 0); /* pairs with the exchange above */
    return MEMLORD_OK;
}
