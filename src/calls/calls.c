#include "calls/calls.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "base/memory.h"
#include "books/threads.h"
#include "books/map.h"
#include "books/probes.h"
#include "books/counters.h"
#include "books/devices.h"
#include "books/anomalies.h"
#include "books/tags.h"
#include "books/picks.h"
#include "books/stacks.h"
#include "books/events.h"
#include "books/fences.h"
#include "books/parts.h"
#include "books/blocks.h"
#include "books/limits.h"
#include "calls/deferred.h"
#include "calls/record.h"
#include "calls/fast.h"

enum { /* values of memlord_realloc_token.state */
    MLI_TOKEN_USED,   /* the token was used, or is all zeros; memlord_realloc_end and
                         memlord_free_end return an error for it */
    MLI_TOKEN_NEW,    /* the call named no old storage, or the old storage was not live */
    MLI_TOKEN_LIVE,   /* the token holds the entry of the block */
    MLI_TOKEN_PASSED, /* the ledger's own allocator made the call, so nothing is recorded */
    MLI_TOKEN_FREED,  /* freed at once, because memlord_block_use had given it fences */
    MLI_TOKEN_OF_FREE = 8 /* added to the state if memlord_free_begin made the token */
};

/* Stores the sampled stack of a block, and the number of its slot, in the block's token. The block
   is detached: it is off the map, but still counted. */
static void mli_token_stack_set(memlord_realloc_token *token, const mli_pick *pick,
                                uint32_t slot) {
    memcpy(&token->word[3], &pick->scale, sizeof pick->scale);
    token->word[4] = (uint64_t)slot << 32 | pick->row;
}
/* Returns the number of the slot that has a token's block, or 0 if no slot has it. */
static uint32_t mli_token_slot(const memlord_realloc_token *token) {
    return (uint32_t)(token->word[4] >> 32);
}
static mli_pick mli_token_stack(const memlord_realloc_token *token) {
    mli_pick pick = mli_pick_none;
    memcpy(&pick.scale, &token->word[3], sizeof pick.scale);
    pick.row = (uint32_t)token->word[4];
    pick.key = token->storage;
    pick.type = (uint32_t)token->device.type;
    return pick;
}

/* Returns the number that a token has of its ledger and of its own place. A copy of the token is in
   another place, and so does not have the number of its own. */
static uint64_t mli_token_seal(const memlord *lord, const memlord_realloc_token *token) {
    return lord->generation + (uintptr_t)token;
}

/* Notes in a token which block it holds. The caller stores the words of the entry. */
static void mli_token_fill(const memlord *lord, memlord_realloc_token *token, memlord_device device,
                           uint64_t storage) {
    token->device = device;
    token->storage = storage;
    token->state = MLI_TOKEN_LIVE;
    token->word[2] = mli_token_seal(lord, token);
}

/* Begins a realloc or a free on the fast way. Returns MEMLORD_OK or MLI_PASS. */
static int mli_token_begin_fast(memlord *lord, memlord_device device, uint64_t storage,
                                memlord_realloc_token *token) {
    uint32_t slot;
    if (!lord || !token || mli_detach_fast(lord, device, storage, token->word, &slot) == MLI_PASS)
        return MLI_PASS;
    mli_token_fill(lord, token, device, storage);
    mli_token_stack_set(token, &mli_pick_none, slot);
    return MEMLORD_OK;
}
/* Ends a realloc on the fast way. Returns MEMLORD_OK or MLI_PASS. */
static int mli_token_end_fast(memlord *lord, memlord_realloc_token *token, uint64_t new_storage,
                              uint64_t bytes, const memlord_site *site) {
    mli_entry e;
    if (!lord || !token || token->state != MLI_TOKEN_LIVE || (uint32_t)token->word[4] ||
        token->word[2] != mli_token_seal(lord, token))
        return MLI_PASS;
    e.key = token->storage;
    e.word1 = token->word[0];
    e.word2 = token->word[1];
    if (mli_attach_fast(lord, token->device, &e, mli_token_slot(token), new_storage, bytes, site) ==
        MLI_PASS)
        return MLI_PASS;
    token->state = MLI_TOKEN_USED;
    return MEMLORD_OK;
}

/* Takes a block off the map, and keeps its entry in the token. word[0] and word[1] are word1 and
   word2 of the entry. word[2] is mli_token_seal. word[3] and word[4] are the sampled stack of the
   block, and the number of its slot. The event of the free has the site `site`. If `call` is NULL,
   records nothing. */
static MLI_COLD memlord_result mli_token_take(memlord *lord, mli_call *call, memlord_device device,
                                              uint64_t storage, memlord_realloc_token *token,
                                              const memlord_site *site) {
    mli_entry e;
    mli_pick pick;
    uint32_t slot;
    memset(token, 0, sizeof *token);
    token->device = device;
    token->storage = storage;
    token->state = call ? MLI_TOKEN_NEW : MLI_TOKEN_PASSED;
    token->word[2] = mli_token_seal(lord, token);
    if (!call || !storage) return MEMLORD_OK;
    if (mli_entry_detach(lord, call->t, (uint32_t)device.type, storage, &e, &pick, &slot))
        return mli_unknown_free(lord, call, device, storage);
    mli_token_fill(lord, token, device, storage);
    token->word[0] = e.word1;
    token->word[1] = e.word2;
    mli_token_stack_set(token, &pick, slot);
    mli_event_record_end(lord, call->t, MEMLORD_EVENT_FREE, storage, e.word1,
                         mli_word2_rows(e.word2), site);
    return MEMLORD_OK;
}
/* Begins a realloc or a free. `verb` begins the line that MEMLORD_DEBUG logs. */
static MLI_COLD memlord_result mli_token_begin(memlord *lord, memlord_device device,
                                               uint64_t storage, memlord_realloc_token *token,
                                               const char *verb, const memlord_site *site) {
    mli_thread *t;
    mli_call own, *call;
    memlord_result r;
    if (!token) return lord ? MEMLORD_E_INVALID : MEMLORD_OK;
    memset(token, 0, sizeof *token);
    r = mli_key_begin(lord, device, storage ? storage : 1, &t);
    if (!lord || r) return r;
    call = t ? mli_call_of(lord, t, &own, site) : NULL;
    r = mli_token_take(lord, call, device, storage, token, site);
    if (!call) return r;
    mli_thread_put(lord, t);
    if (mli_debug_on(lord))
        mli_log_call(lord, call, token->state == MLI_TOKEN_LIVE, verb, device, storage,
                     MLI_BYTES(token->word[0]));
    return r;
}

/* Samples the stack of a realloc. If `storage` is 0, the realloc has failed, and the block keeps
   the stack that it had. Returns the number of the stack's row, or 0 if the block has no stack. A
   row of a stack has the totals of the blocks with that stack. */
static MLI_COLD uint32_t mli_realloc_stack(memlord *lord, mli_call *call, const mli_pick *pick,
                                           const mli_entry *old, const memlord_block *block,
                                           uint64_t storage) {
    const uint64_t had = MLI_BYTES(old->word1);
    mli_pick_off(lord, pick, had, 0);
    if (storage)
        mli_stack_pick(lord, call, block->storage, block->bytes);
    else
        mli_stack_keep(lord, call, pick, block->storage,
                       MLI_SITE_ROW(mli_word2_rows(old->word2)));
    call->pick.again = 1;
    call->pick.had = had;
    return call->pick.row;
}

/* Records the new storage on the device of the old one. A `storage` of 0 means that the real call
   failed. The function then records the old storage again, unchanged. */
static MLI_COLD memlord_result mli_realloc_record(memlord *lord, mli_call *call,
                                                  memlord_realloc_token *token, uint64_t storage,
                                                  uint64_t bytes) {
    const mli_pick pick = mli_token_stack(token);
    mli_entry e;
    memlord_block block;
    uint64_t rows = 0, had = MLI_BYTES(token->word[0]);
    uint32_t stack = 0;
    memlord_result r;
    e.key = token->storage;
    e.word1 = token->word[0];
    e.word2 = token->word[1];
    call->dev = MLI_DEV(e.word1);
    block.device = token->device;
    block.storage = storage ? storage : e.key;
    block.bytes = storage ? bytes : had;
    if (storage && mli_would_overflow(lord, call->dev, bytes)) {
        token->state = MLI_TOKEN_LIVE;
        r = MEMLORD_E_INVALID;
    } else {
        stack = mli_realloc_stack(lord, call, &pick, &e, &block, storage);
        if (block.bytes > had) mli_ticket_draw_begin(lord, call, block.bytes - had);
        r = mli_entry_attach(lord, call, &e, mli_token_slot(token), block.storage, block.bytes,
                             storage ? call->site : NULL, 0, &rows);
        mli_stack_forget(call);
    }
    if (r == MEMLORD_OK) {
        mli_event_record_begin(lord, call->t, MEMLORD_EVENT_ALLOC, call->dev, block.storage,
                               block.bytes, rows, stack);
        if (storage) mli_stat_add(lord, call->dev, MLI_STAT_reallocs, 1);
    }
    call->note.from_device = token->device;
    call->note.from = token->storage;
    return mli_call_finish(lord, call, r, r == MEMLORD_OK, "[alloc realloc] ", &block);
}

/* -- n blocks in one call -- */

/* Checks the arguments of one block. `opens` is 1 to record the block, and 0 to end it. */
static memlord_result mli_block_check(const memlord_block *b, int opens) {
    if (b->storage == UINT64_MAX || (opens && (!b->storage || b->bytes > MLI_BYTES_MAX)))
        return MEMLORD_E_INVALID;
    return (opens ? mli_device_valid(b->device) : mli_type_valid(b->device)) ? MEMLORD_OK
                                                                             : MEMLORD_E_DEVICE;
}
/* Checks the arguments of n blocks. Returns the error of the first block that has one. */
static MLI_COLD memlord_result mli_block_check_n(const memlord_block *blocks, size_t n,
                                                 int opens) {
    memlord_result r = n && !blocks ? MEMLORD_E_INVALID : MEMLORD_OK;
    for (; n-- && r == MEMLORD_OK; blocks++) r = mli_block_check(blocks, opens);
    return r;
}

/* Counts and logs a refused call with n blocks. The message names the first at fault. */
static MLI_COLD memlord_result mli_refuse_n(memlord *lord, int refuser, memlord_result r,
                                            const memlord_block *blocks, size_t n, int opens,
                                            const memlord_site *site) {
    size_t i = 0;
    if (!blocks || (r != MEMLORD_E_INVALID && r != MEMLORD_E_DEVICE))
        return mli_refuse(lord, refuser, r, memlord_device_all(), "n blocks, and none are given",
                          site);
    while (i < n && !mli_block_check(&blocks[i], opens)) i++;
    if (i == n && r == MEMLORD_E_DEVICE) /* the ledger has no room for a new device, so the first
                                            device that it does not know is at fault */
        for (i = 0; i < n && mli_dev_known(lord, blocks[i].device);) i++;
    if (i == n)
        return mli_refuse(lord, refuser, r, blocks->device, "sizes whose sum overflows", site);
    return mli_refuse(lord, refuser, r, blocks[i].device,
                      mli_block_fault(blocks[i].storage, opens ? blocks[i].bytes : 0), site);
}

/* What a call with n blocks prepares for each block before it records any block, so that it cannot
   run out of memory halfway. If `did` is MLI_DID_OPEN, the call has put a placeholder of 0 bytes
   under the block's key. If `did` is MLI_DID_VIEW, the map had a block with this key, and
   memlord_track_n has added a reference to that block. Otherwise the call has prepared nothing,
   because the new block will replace a block with the same key. */
typedef struct mli_hold {
    uint64_t rows; /* the word2 of the block's entry */
    int did;       /* one of MLI_DID_... */
} mli_hold;

/* Takes all the memory that is needed to record n blocks, and makes their devices known. *held gets
   the number of blocks that were prepared. */
static MLI_COLD memlord_result mli_hold_n(memlord *lord, mli_call *call,
                                          const memlord_block *blocks, size_t n, int how,
                                          mli_hold *hold, size_t *held) {
    uint64_t sum = 0;
    size_t i;
    const mli_origin origin = mli_origin_of(call->t, call->site);
    *held = 0;
    for (i = 0; i < n; i++) {
        memlord_result r = mli_dev(lord, blocks[i].device, &call->dev);
        if (r) return r;
        sum += blocks[i].bytes;
        if (mli_would_overflow(lord, call->dev, sum)) return MEMLORD_E_INVALID;
    }
    for (; *held < n; ++*held, hold++, blocks++) {
        memlord_result r;
        (void)mli_dev(lord, blocks->device, &call->dev);
        hold->rows = mli_alloc_word2(lord, call->t, call->dev, &origin);
        r = mli_block_open(lord, call, blocks->storage, 0, hold->rows, 0, how | MLI_PUT_HOLD,
                           &hold->did);
        if (r) return r;
    }
    return MEMLORD_OK;
}

/* Takes back the references and the placeholders of a call with n blocks that has failed, the last
   first. If such a reference has become the last one of its block, the block ends here. The end of
   a block may call fences, which are functions of the host. */
static MLI_COLD void mli_unhold_n(memlord *lord, const memlord_block *blocks,
                                  const mli_hold *hold, size_t n) {
    MLI_REQUIRE(mli_none_held());
    while (n--) {
        const memlord_block *b = &blocks[n];
        if (hold[n].did == MLI_DID_VIEW)
            (void)mli_free_general(lord, b->device, b->storage, MLI_END_RELEASE, NULL, NULL);
        if (hold[n].did == MLI_DID_OPEN) {
            mli_thread *t = mli_thread_get(lord);
            mli_block_unopen(lord, t, mli_dev_known(lord, b->device), b->storage, 0);
            mli_thread_put(lord, t);
        }
    }
}

/* Gives a placeholder (see mli_hold) the bytes of its block. Returns 0 if another thread has ended
   or replaced the placeholder meanwhile. */
static MLI_COLD int mli_fill(memlord *lord, mli_call *call, uint64_t key, uint64_t bytes) {
    const uint32_t dev = call->dev;
    mli_row_delta d;
    mli_probe probe;
    mli_entry *e = mli_probe_live(lord, call->t, mli_type_of(lord, dev), key, &probe);
    int held = e && MLI_DEV(e->word1) == dev && !MLI_BYTES(e->word1);
    if (held) {
        d = mli_delta_open(dev, mli_word2_rows(e->word2), bytes);
        d.allocs = 0; /* the placeholder was counted as an alloc */
        e->word1 |= bytes;
        e->word1 |= mli_pick_put(lord, call, e);
        if (e->word2 & MLI_HAS_SIDE)
            mli_side_charge(lord, call, mli_side_record_of(e->word2),
                            mli_side_record_of(e->word2)->account, bytes);
        mli_probe_unlock(&probe);
        mli_count(lord, call->t, &d, 1);
    }
    mli_probe_leave(call->t, &probe);
    return held;
}

/* Records one of n blocks. mli_hold_n has taken the memory for most, but a block that replaces an
   old one may need some here: for its account, or if another thread has ended the old one since.
   Without it the new block counts as dropped. */
static MLI_COLD void mli_open_one(memlord *lord, mli_call *call, const memlord_block *b, int how,
                                  const mli_hold *hold) {
    uint32_t stack;
    int did;
    memlord_result r = MEMLORD_OK;
    if (hold->did == MLI_DID_VIEW) return;
    call->dev = mli_dev_known(lord, b->device);
    mli_stack_pick(lord, call, b->storage, b->bytes);
    stack = call->pick.row;
    mli_ticket_draw_begin(lord, call, b->bytes);
    if (hold->did == MLI_DID_OPEN)
        did = mli_fill(lord, call, b->storage, b->bytes) ? MLI_DID_OPEN : MLI_DID_NOTHING;
    else
        r = mli_block_open(lord, call, b->storage, b->bytes, hold->rows, 0, how, &did);
    mli_stack_forget(call);
    (void)mli_drop_count(lord, call->site, r, b->device, b->storage, b->bytes);
    if (did == MLI_DID_OPEN) {
        mli_event_record_begin(lord, call->t, MEMLORD_EVENT_ALLOC, call->dev, b->storage, b->bytes,
                               hold->rows, stack);
        call->note.blocks++;
        call->note.bytes += b->bytes;
    }
    if (call->draw.phys) mli_ticket_draw_end(lord, call, did == MLI_DID_OPEN);
}

/* Counts all n blocks as dropped, which means not recorded. For each dropped block the ledger
   expects one free that finds no block. But if the map has a live block under the same key, the
   next free of that key finds this block. In that case the function cancels the expected free. */
static MLI_COLD void mli_drop_n(memlord *lord, const memlord_block *blocks, size_t n, int how,
                                memlord_result r, const memlord_site *site) {
    memlord_block_info live;
    uint32_t dev;
    for (; n--; blocks++) {
        (void)mli_dev(lord, blocks->device, &dev);
        (void)mli_drop_count(lord, site, r, blocks->device, blocks->storage, blocks->bytes);
        if (how == MLI_PUT_ALLOC &&
            memlord_block_find(lord, blocks->device, blocks->storage, &live) == MEMLORD_OK &&
            !live.pending)
            (void)mli_drop_match(lord, blocks->device.type, blocks->storage);
    }
}

/* Records n blocks, and ends the call. Takes the memory first, and then records one block after
   another. If it cannot take the memory, records none of them. */
static MLI_COLD memlord_result mli_open_n(memlord *lord, mli_call *call,
                                          const memlord_block *blocks, size_t n, int how) {
    mli_thread *t = call->t;
    const memlord_site *site = call->site;
    mli_hold *hold;
    size_t i, held = 0;
    memlord_result r = mli_block_check_n(blocks, n, 1);
    if (r || !n) {
        mli_thread_put(lord, t);
        return r;
    }
    hold = (mli_hold *)mli_own_alloc(lord, n * sizeof *hold);
    r = hold ? mli_hold_n(lord, call, blocks, n, how, hold, &held) : MEMLORD_E_NOMEM;
    for (i = 0; i < n && r == MEMLORD_OK; i++)
        mli_open_one(lord, call, &blocks[i], how, &hold[i]);
    mli_thread_put(lord, t);
    if (r) mli_unhold_n(lord, blocks, hold, held);
    if (r && r != MEMLORD_E_INVALID) mli_drop_n(lord, blocks, n, how, r, site);
    mli_own_free(lord, hold, n * sizeof *hold);
    if (mli_debug_on(lord) && r == MEMLORD_OK)
        mli_log_call_n(lord, "[alloc_n] ", blocks, n, &call->note, site);
    for (i = 0; i < n; i++) {
        uint32_t dev = mli_dev_known(lord, blocks[i].device);
        if (dev) mli_call_end(lord, t, dev, 1);
    }
    return r;
}

/* -- moves -- */

/* Records a move of a live block. `used` is 1 if memlord_block_use gave the source fences. The
   source stays pending until these fences, and the fence of the move, are done. If there is any
   fence, *chain gets the fences that the caller has to ask. If a block moves to its own storage on
   a device of the same type, the new block replaces it. */
static MLI_COLD memlord_result mli_move_record(memlord *lord, mli_call *call, memlord_device from,
                                               uint64_t from_storage, const memlord_block *to,
                                               const memlord_fence *fence, int used,
                                               mli_fence_record **chain) {
    const int away = from.type != to->device.type || from_storage != to->storage;
    mli_fence_record *f;
    memlord_result r = mli_dev(lord, to->device, &call->dev);
    if (r) return r;
    if (mli_would_overflow(lord, call->dev, to->bytes)) return MEMLORD_E_INVALID;
    f = fence && away ? mli_fence_new(lord, fence) : NULL;
    if (fence && away && !f) return mli_short_of(lord, call, from, from_storage, 1);
    mli_ticket_draw_begin(lord, call, to->bytes);
    if (f || (used && away))
        r = mli_move_fenced(lord, call, from, from_storage, to->storage, to->bytes, f, chain);
    else
        r = mli_block_move(lord, call, from, from_storage, to->storage, to->bytes);
    if (f && (r || !*chain)) mli_fence_free(lord, f);
    return r;
}

/* -- deferred frees -- */

/* Attaches a fence to a block. `how` is MLI_ATTACH_FREE or MLI_ATTACH_USE. */
static MLI_COLD memlord_result mli_call_fenced(memlord *lord, memlord_device device,
                                               uint64_t storage, const memlord_fence *fence,
                                               int how, const memlord_site *site) {
    mli_thread *t;
    mli_call own, *call;
    mli_fence_record *f, *chain = NULL;
    mli_entry gone;
    memlord_result r = MEMLORD_E_INVALID;
    if (lord && fence->done && !storage && how == MLI_ATTACH_FREE)
        return mli_fence_discard(lord, fence);
    if (!lord || fence->done) r = mli_key_begin(lord, device, storage, &t);
    if (r)
        return mli_refuse(
            lord, how == MLI_ATTACH_FREE ? MLI_REFUSER_free_deferred : MLI_REFUSER_block_use, r,
            device, fence->done ? mli_block_fault(storage, 0) : "a fence without `done`", site);
    if (!t) return mli_fence_discard(NULL, fence);
    call = mli_call_of(lord, t, &own, site);
    f = mli_fence_new(lord, fence);
    gone.key = gone.word1 = 0;
    r = f ? mli_fence_attach(lord, call, device, storage, f, how, &gone, &chain)
          : mli_short_of(lord, call, device, storage, how == MLI_ATTACH_FREE);
    if (gone.key) {
        mli_count_site_free(lord, t, MLI_DEV(gone.word1), site, MLI_BYTES(gone.word1));
        mli_event_record_end(lord, t, MEMLORD_EVENT_PEND, storage, gone.word1, gone.word2, site);
    }
    mli_thread_put(lord, t);
    if (mli_debug_on(lord))
        mli_log_call(lord, call, gone.key != 0, "[free deferred] ", device, storage,
                     MLI_BYTES(gone.word1));
    mli_anomalies_tell(lord);
    if (r || (how == MLI_ATTACH_FREE && !gone.key)) { /* no block has the fence */
        if (f) mli_fence_free(lord, f);
        return r ? r : mli_fence_discard(lord, fence);
    }
    mli_fences_ask_new(lord, chain);
    if (!(lord->flags & MEMLORD_FLAG_DEFER))
        mli_fences_poll_due(lord, (uint32_t)device.type, how == MLI_ATTACH_FREE);
    return MEMLORD_OK;
}

/* -- public -- */

/* Frees or releases n blocks, or none if an argument is bad. After any other error goes on, and
   returns the last one. With MEMLORD_DEBUG logs one line for all blocks. */
static MLI_COLD memlord_result mli_end_n(memlord *lord, const memlord_block *blocks,
                                         size_t n, int how, const memlord_site *site) {
    mli_debug_note note;
    memlord_result r = lord ? mli_block_check_n(blocks, n, 0) : MEMLORD_OK, one;
    const int tells = lord && n && mli_debug_on(lord);
    size_t i;
    if (!lord || r) return r;
    memset(&note, 0, sizeof note);
    for (i = 0; i < n; i++) {
        const memlord_block *b = &blocks[i];
        mli_entry gone;
        gone.key = 0;
        if (tells)
            one = mli_free_general(lord, b->device, b->storage, how, site, &gone);
        else if (how == MLI_END_FREE)
            one = memlord_free(lord, b->device, b->storage, site);
        else
            one = memlord_release(lord, b->device, b->storage, site);
        if (one) r = one;
        if (gone.key) {
            note.blocks++;
            note.bytes += MLI_BYTES(gone.word1);
        } else if (one == MEMLORD_E_UNKNOWN) {
            note.unknown++;
        }
    }
    if (tells) mli_log_call_n(lord, "[free_n] ", blocks, n, &note, site);
    return r;
}

MLI_API memlord_result memlord_alloc_with(memlord *lord, memlord_device device, uint64_t storage,
                                          uint64_t bytes, const memlord_alloc_opts *opts) {
    memlord_alloc_opts settled;
    mli_call own, *call;
    memlord_result r;
    int open;
    if (!lord || mli_self.in_host_alloc ||
        mli_alloc_fast(lord, device, storage, bytes, opts ? opts->site : NULL, opts) == MEMLORD_OK)
        return MEMLORD_OK;
    open = mli_opts_settle(lord, device, opts, &settled);
    call = mli_call_get(lord, &own, settled.site, MLI_CALLED_FROM);
    r = mli_alloc_general(lord, call, device, storage, bytes, &settled, MLI_PUT_ALLOC);
    if (r == MEMLORD_OK && !open)
        mli_opts_refuse(lord, MLI_REFUSER_alloc_with, device, settled.site);
    return mli_refuse(lord, MLI_REFUSER_alloc_with, r, device, mli_block_fault(storage, bytes),
                      settled.site);
}

MEMLORD_API MLI_NOINLINE memlord_result memlord_track(memlord *lord, memlord_device device,
                                                      uint64_t storage, uint64_t bytes,
                                                      const memlord_site *site) {
    mli_call own, *call;
    memlord_result r;
    if (!lord || mli_alloc_fast(lord, device, storage, bytes, site, NULL) == MEMLORD_OK ||
        (bytes <= MLI_BYTES_MAX && mli_refer_fast(lord, device, storage, 1) == MEMLORD_OK))
        return MEMLORD_OK;
    call = mli_call_get(lord, &own, site, MLI_CALLED_FROM);
    if (!call) return MEMLORD_OK;
    r = mli_alloc_general(lord, call, device, storage, bytes, NULL, MLI_PUT_TRACK);
    return mli_refuse(lord, MLI_REFUSER_track, r, device, mli_block_fault(storage, bytes), site);
}
MEMLORD_API memlord_result memlord_retain(memlord *lord, memlord_device device, uint64_t storage,
                                          const memlord_site *site) {
    mli_thread *t;
    memlord_result r;
    if (!lord || mli_refer_fast(lord, device, storage, 1) == MEMLORD_OK) return MEMLORD_OK;
    r = mli_key_begin(lord, device, storage, &t);
    if (!t)
        return mli_refuse(lord, MLI_REFUSER_retain, r, device, mli_block_fault(storage, 0), site);
    r = mli_block_retain(lord, t, (uint32_t)device.type, storage);
    mli_thread_put(lord, t);
    return r;
}

MLI_API memlord_result memlord_alloc_n(memlord *lord, const memlord_block *blocks, size_t n,
                                       const memlord_site *site) {
    mli_call own, *call = mli_call_get(lord, &own, site, MLI_CALLED_FROM);
    const memlord_result r = call ? mli_open_n(lord, call, blocks, n, MLI_PUT_ALLOC) : MEMLORD_OK;
    return mli_refuse_n(lord, MLI_REFUSER_alloc_n, r, blocks, n, 1, site);
}
MLI_API memlord_result memlord_track_n(memlord *lord, const memlord_block *blocks, size_t n,
                                       const memlord_site *site) {
    mli_call own, *call = mli_call_get(lord, &own, site, MLI_CALLED_FROM);
    const memlord_result r = call ? mli_open_n(lord, call, blocks, n, MLI_PUT_TRACK) : MEMLORD_OK;
    return mli_refuse_n(lord, MLI_REFUSER_track_n, r, blocks, n, 1, site);
}
MLI_API memlord_result memlord_free_n(memlord *lord, const memlord_block *blocks, size_t n,
                                      const memlord_site *site) {
    memlord_result r = mli_end_n(lord, blocks, n, MLI_END_FREE, site);
    return mli_refuse_n(lord, MLI_REFUSER_free_n, r, blocks, n, 0, site);
}
MLI_API memlord_result memlord_release_n(memlord *lord, const memlord_block *blocks, size_t n,
                                         const memlord_site *site) {
    memlord_result r = mli_end_n(lord, blocks, n, MLI_END_RELEASE, site);
    return mli_refuse_n(lord, MLI_REFUSER_release_n, r, blocks, n, 0, site);
}

/* Ends a realloc with its token, and the call. If `new_storage` is 0, the old block is back. */
static MLI_COLD memlord_result mli_token_end(memlord *lord, mli_call *call,
                                             memlord_realloc_token *token, uint64_t new_storage,
                                             uint64_t bytes) {
    const uint32_t state = token->state;
    token->state = MLI_TOKEN_USED;
    if (state == MLI_TOKEN_LIVE) return mli_realloc_record(lord, call, token, new_storage, bytes);
    if (state == MLI_TOKEN_NEW && new_storage) {
        if (token->device.index < 0) token->device.index = 0;
        return mli_alloc_general(lord, call, token->device, new_storage, bytes, NULL,
                                 MLI_PUT_ALLOC);
    }
    mli_thread_put(lord, call->t);
    return state == MLI_TOKEN_USED ? MEMLORD_E_STATE : MEMLORD_OK;
}

/* Records a realloc that has already happened, and ends the call. Takes the memory for the new
   entry first, because the old block would be lost without it. The debug line has both storages. */
static MLI_COLD memlord_result mli_realloc_whole(memlord *lord, mli_call *call,
                                                 memlord_device device, uint64_t old_storage,
                                                 uint64_t new_storage, uint64_t bytes) {
    memlord_realloc_token token;
    memlord_result r;
    if (!old_storage)
        return mli_alloc_general(lord, call, device, new_storage, bytes, NULL, MLI_PUT_ALLOC);
    r = mli_call_begin(lord, call, device, new_storage, bytes);
    if (r) return r;
    if (mli_would_overflow(lord, call->dev, bytes))
        r = MEMLORD_E_INVALID;
    else
        r = mli_map_reserve(lord, call->t, call->dev, new_storage);
    if (r) {
        mli_thread_put(lord, call->t);
        return r;
    }
    (void)mli_token_take(lord, call, device, old_storage, &token, NULL);
    return mli_token_end(lord, call, &token, new_storage, bytes);
}
/* Records a realloc on the fast way. Returns MEMLORD_OK or MLI_PASS. The state of the token is then
   MLI_TOKEN_LIVE if the realloc has begun with it, and MLI_TOKEN_USED if nothing has changed. */
static int mli_realloc_fast(memlord *lord, memlord_device device, uint64_t old_storage,
                            uint64_t new_storage, uint64_t bytes, const memlord_site *site,
                            memlord_realloc_token *token) {
    token->state = MLI_TOKEN_USED;
    if (old_storage == new_storage)
        return mli_resize_fast(lord, device, old_storage, bytes, site);
    if (mli_room_fast(lord, device, new_storage, bytes) == MLI_PASS ||
        mli_token_begin_fast(lord, device, old_storage, token) == MLI_PASS)
        return MLI_PASS;
    return mli_token_end_fast(lord, token, new_storage, bytes, site);
}
MEMLORD_API memlord_result memlord_realloc(memlord *lord, memlord_device device,
                                           uint64_t old_storage, uint64_t new_storage,
                                           uint64_t bytes, const memlord_site *site) {
    memlord_realloc_token token;
    mli_call own, *call;
    memlord_result r;
    if (!lord || mli_realloc_fast(lord, device, old_storage, new_storage, bytes, site, &token) ==
                     MEMLORD_OK)
        return MEMLORD_OK;
    if (old_storage == UINT64_MAX)
        return mli_refuse(lord, MLI_REFUSER_realloc, MEMLORD_E_INVALID, device,
                          mli_block_fault(old_storage, 0), site);
    call = mli_call_get(lord, &own, site, MLI_CALLED_FROM);
    if (!call) return MEMLORD_OK;
    if (token.state == MLI_TOKEN_LIVE)
        r = mli_token_end(lord, call, &token, new_storage, bytes);
    else
        r = mli_realloc_whole(lord, call, device, old_storage, new_storage, bytes);
    return mli_refuse(lord, MLI_REFUSER_realloc, r, device,
                      mli_block_fault(new_storage, bytes), site);
}
MEMLORD_API memlord_result memlord_realloc_begin(memlord *lord, memlord_device device,
                                                 uint64_t old_storage,
                                                 memlord_realloc_token *token) {
    memlord_result r;
    if (mli_token_begin_fast(lord, device, old_storage, token) == MEMLORD_OK) return MEMLORD_OK;
    r = mli_token_begin(lord, device, old_storage, token, "[free realloc] ", NULL);
    return mli_refuse(lord, MLI_REFUSER_realloc_begin, r, device,
                      token ? mli_block_fault(old_storage ? old_storage : 1, 0) : "no token", NULL);
}
MEMLORD_API memlord_result memlord_realloc_end(memlord *lord, memlord_realloc_token *token,
                                               uint64_t new_storage, uint64_t bytes,
                                               const memlord_site *site) {
    mli_call own, *call;
    memlord_result r = MEMLORD_OK;
    if (!lord || mli_token_end_fast(lord, token, new_storage, bytes, site) == MEMLORD_OK)
        return MEMLORD_OK;
    if (!token || new_storage == UINT64_MAX || (new_storage && bytes > MLI_BYTES_MAX))
        r = MEMLORD_E_INVALID;
    else if (token->state > MLI_TOKEN_FREED || token->word[2] != mli_token_seal(lord, token))
        r = MEMLORD_E_STATE;
    else if ((call = mli_call_get(lord, &own, site, MLI_CALLED_FROM)) != NULL)
        r = mli_token_end(lord, call, token, new_storage, bytes);
    return mli_refuse(lord, MLI_REFUSER_realloc_end, r,
                      token ? token->device : memlord_device_all(),
                      token ? mli_block_fault(new_storage ? new_storage : 1, bytes) : "no token",
                      site);
}

/* Detaches a block, as memlord_realloc_begin does. If memlord_block_use gave the block fences,
   frees the block at once instead, and these fences keep it pending. */
static MLI_COLD memlord_result mli_free_detach(memlord *lord, memlord_device device,
                                               uint64_t storage, memlord_realloc_token *token,
                                               const memlord_site *site) {
    mli_thread *t;
    mli_entry e;
    int state = MLI_KEY_DEAD;
    memlord_result r = mli_key_begin(lord, device, storage, &t);
    if (t) {
        state = mli_key_state(lord, t, device, storage, &e);
        mli_thread_put(lord, t);
    }
    if (!token || (state != MLI_KEY_PENDING && state != MLI_KEY_USED))
        return mli_token_begin(lord, device, storage, token, "[free] ", site);
    if (state == MLI_KEY_PENDING) return MEMLORD_E_STATE;
    (void)mli_token_begin(lord, device, 0, token, "", NULL); /* the token has no block to end */
    r = mli_free_general(lord, device, storage, MLI_END_FREE, site, NULL);
    if (r) return r;
    token->storage = storage;
    token->state = MLI_TOKEN_FREED;
    token->word[0] = e.word1;
    token->word[1] = e.word2;
    return MEMLORD_OK;
}
MLI_API memlord_result memlord_free_begin(memlord *lord, memlord_device device, uint64_t storage,
                                          memlord_realloc_token *token, const memlord_site *site) {
    memlord_result r = mli_free_detach(lord, device, storage, token, site);
    if (token) token->state = r ? (uint32_t)MLI_TOKEN_USED : token->state | MLI_TOKEN_OF_FREE;
    return mli_refuse(lord, MLI_REFUSER_free_begin, r, device,
                      token ? mli_block_fault(storage ? storage : 1, 0) : "no token", site);
}

/* Ends a free with its token: takes the bytes of the block off the counts. If `failed` is 1, puts
   the block back on the map, unchanged. If memlord_free_begin has freed the block at once, because
   memlord_block_use had given it fences, a failed free records a new block in its place. */
MLI_API memlord_result memlord_free_end(memlord *lord, memlord_realloc_token *token,
                                        int failed, const memlord_site *site) {
    mli_thread *t;
    mli_call own, *call;
    mli_entry e;
    mli_pick pick;
    memlord_block block;
    uint32_t dev;
    int did = MLI_DID_NOTHING;
    memlord_result r = MEMLORD_OK;
    if (lord && !token)
        return mli_refuse(lord, MLI_REFUSER_free_end, MEMLORD_E_INVALID, memlord_device_all(),
                          "no token", site);
    if (!lord) return MEMLORD_OK;
    if (token->word[2] != mli_token_seal(lord, token)) return MEMLORD_E_STATE;
    call = mli_call_get(lord, &own, site, NULL, NULL);
    if (!call) return MEMLORD_OK;
    token->state &= ~(uint32_t)MLI_TOKEN_OF_FREE;
    if (token->state != (failed ? MLI_TOKEN_FREED : MLI_TOKEN_LIVE)) {
        call->site = NULL; /* the block comes back with the site that it had */
        return mli_token_end(lord, call, token, 0, 0);
    }
    token->state = MLI_TOKEN_USED;
    t = call->t;
    e.key = token->storage;
    e.word1 = token->word[0];
    e.word2 = token->word[1];
    dev = call->dev = MLI_DEV(e.word1);
    if (failed) {
        r = mli_block_open(lord, call, e.key, MLI_BYTES(e.word1), e.word2, 0, MLI_PUT_ALLOC, &did);
        (void)mli_drop_count(lord, site, r, mli_device_record_at(lord, dev)->device, e.key,
                             MLI_BYTES(e.word1));
    } else {
        if (mli_refs_of(e.word1, e.word2) > 1) mli_shared_free(lord, call, &e);
        pick = mli_token_stack(token);
        mli_pick_off(lord, &pick, MLI_BYTES(e.word1), 1);
        mli_entry_abandon(lord, t, &e, mli_token_slot(token));
        mli_count_site_free(lord, t, dev, site, MLI_BYTES(e.word1));
    }
    if (did)
        mli_event_record(lord, t, MEMLORD_EVENT_ALLOC, dev, e.key, MLI_BYTES(e.word1), e.word2);
    call->site = NULL; /* memlord_free_begin has logged the free, with its site */
    block.device = token->device;
    block.storage = e.key;
    block.bytes = MLI_BYTES(e.word1);
    return mli_call_finish(lord, call, r, did, "[alloc] ", &block);
}

/* Moves a block to another device or storage. If the source is not live, does not add the
   destination's device. After a success for whose fence no block waits, discards the fence: the
   alloc of the source was dropped, or source and destination are the same storage, where the new
   block replaces the old one at once. */
static MLI_COLD memlord_result mli_move(memlord *lord, memlord_device from, uint64_t from_storage,
                                        memlord_device to, uint64_t to_storage, uint64_t bytes,
                                        const memlord_fence *fence, const memlord_site *site) {
    const memlord_block block = {to, to_storage, bytes};
    mli_thread *t;
    mli_call own, *call;
    mli_entry e;
    mli_fence_record *chain = NULL;
    int state;
    memlord_result r;
    if (!lord) return mli_fence_discard(NULL, fence);
    r = fence && !fence->done ? MEMLORD_E_INVALID : mli_block_check(&block, 1);
    if (r == MEMLORD_OK) r = mli_key_begin(lord, from, from_storage, &t);
    if (r) return r;
    if (!t) return mli_fence_discard(NULL, fence);
    call = mli_call_of(lord, t, &own, site);
    state = mli_key_state(lord, t, from, from_storage, &e);
    if (state < MLI_KEY_LIVE)
        r = mli_unknown_free(lord, call, from, from_storage);
    else
        r = mli_move_record(lord, call, from, from_storage, &block, fence, state == MLI_KEY_USED,
                            &chain);
    call->note.from_device = from;
    call->note.from = from_storage;
    (void)mli_call_finish(lord, call, r, call->dev && !r, "[alloc move] ", &block);
    mli_fences_ask_new(lord, chain);
    return r || chain ? r : mli_fence_discard(lord, fence); /* no block waits for the fence */
}
/* Counts a copy on the device that the copy goes to, and on the route. A route has the counts of
   copies from one device to another. */
static MLI_COLD memlord_result mli_copy(memlord *lord, memlord_device from, memlord_device to,
                                        uint64_t bytes) {
    uint32_t from_dev, to_dev;
    mli_route *route;
    memlord_result r;
    if (!lord || mli_self.in_host_alloc) return MEMLORD_OK;
    if (bytes > MLI_BYTES_MAX) return MEMLORD_E_INVALID;
    if (!mli_device_valid(from) || !mli_device_valid(to)) return MEMLORD_E_DEVICE;
    r = mli_dev(lord, from, &from_dev);
    if (r == MEMLORD_OK) r = mli_dev(lord, to, &to_dev);
    if (r) return r;
    route = mli_route_of(lord, from_dev, to_dev);
    if (!route) return MEMLORD_E_NOMEM;
    (void)mli_u64_add(&route->copies, 1);
    (void)mli_u64_add(&route->copied_bytes, bytes);
    mli_stat_add(lord, to_dev, MLI_STAT_copies, 1);
    mli_stat_add(lord, to_dev, MLI_STAT_copied_bytes, bytes);
    return mli_call_end_uncounted(lord, MEMLORD_OK);
}
MLI_API memlord_result memlord_move(memlord *lord, memlord_device from, uint64_t from_storage,
                                    memlord_device to, uint64_t to_storage, uint64_t bytes,
                                    const memlord_fence *fence, const memlord_site *site) {
    const int source = /* 1: the source is at fault */
        !mli_key_valid(from_storage) || !mli_type_valid(from);
    memlord_result r = mli_move(lord, from, from_storage, to, to_storage, bytes, fence, site);
    return mli_refuse(lord, MLI_REFUSER_move, r, source ? from : to,
                      fence && !fence->done ? "a fence without `done`"
                      : source              ? mli_block_fault(from_storage, 0)
                                            : mli_block_fault(to_storage, bytes),
                      site);
}

MLI_API memlord_result memlord_copy(memlord *lord, memlord_device from, memlord_device to,
                                    uint64_t bytes) {
    return mli_refuse(lord, MLI_REFUSER_copy, mli_copy(lord, from, to, bytes),
                      mli_device_valid(from) ? to : from, mli_block_fault(1, bytes), NULL);
}

MLI_API memlord_result memlord_free_deferred(memlord *lord, memlord_device device, uint64_t storage,
                                             memlord_fence fence, const memlord_site *site) {
    return mli_call_fenced(lord, device, storage, &fence, MLI_ATTACH_FREE, site);
}

MLI_API memlord_result memlord_free_done(memlord *lord, memlord_device device, uint64_t storage) {
    mli_thread *t;
    mli_call own, *call;
    mli_probe probe;
    uint64_t word1, rows;
    memlord_result r = mli_key_begin(lord, device, storage, &t);
    if (!t)
        return mli_refuse(lord, MLI_REFUSER_free_done, r, device, mli_block_fault(storage, 0),
                          NULL);
    if (!mli_probe_side_record(lord, t, (uint32_t)device.type, storage, &probe) ||
        !mli_is_pending(probe.entry->word2)) {
        mli_probe_leave(t, &probe);
        mli_thread_put(lord, t);
        return MEMLORD_E_UNKNOWN;
    }
    call = mli_call_of(lord, t, &own, NULL);
    word1 = probe.entry->word1;
    rows = mli_word2_rows(probe.entry->word2);
    mli_probe_end_block(lord, t, &probe, 0);
    mli_event_record_end(lord, t, MEMLORD_EVENT_FREE, storage, word1, rows, NULL);
    mli_thread_put(lord, t);
    if (mli_debug_on(lord))
        mli_log_call(lord, call, 1, "[free retired] ",
                     mli_device_record_at(lord, MLI_DEV(word1))->device, storage,
                     MLI_BYTES(word1));
    mli_call_end(lord, t, MLI_DEV(word1), 1);
    return MEMLORD_OK;
}

MLI_API memlord_result memlord_block_use(memlord *lord, memlord_device device,
                                         uint64_t storage, memlord_fence fence) {
    return mli_call_fenced(lord, device, storage, &fence, MLI_ATTACH_USE, NULL);
}

MEMLORD_API uint64_t memlord_retire(memlord *lord, memlord_device sel) {
    if (!lord || !mli_selector_valid(sel)) return 0;
    if (MLI_UNLIKELY(mli_alert_on(lord, MLI_ALERT_SAVE)))
        mli_save_serve(lord);
    return mli_fences_retire(lord, sel);
}
