/* Requirements: each MLI_REQUIRE of the implementation fails where a caller breaks
   it. This suite has the implementation in it, to call what a host cannot reach. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdlib.h>
#ifndef MEMLORD_CHECK_LOCKS
#define MEMLORD_CHECK_LOCKS
#endif
static void failed(const char *function, int line);
#define MEMLORD_ASSERT(expression) ((expression) ? (void)0 : failed(__func__, __LINE__))
#define MEMLORD_STATIC
#define MEMLORD_IMPLEMENTATION
#include "memlord.h"

#include "support.h"
#include "child.h"

#include <dlfcn.h>

/* -- a child that breaks a requirement -- */

typedef struct report { /* what it writes to the pipe */
    char function[64];
    int line;
} report;
static int report_to;

static void failed(const char *function, int line) {
    report r;
    memset(&r, 0, sizeof r);
    snprintf(r.function, sizeof r.function, "%s", function);
    r.line = line;
    _exit(write(report_to, &r, sizeof r) == (ssize_t)sizeof r ? 0 : 1);
}
static void must(memlord_result r) {
    if (r) _exit(2);
}

/* Takes a lock of a rank. */
static void hold(uint32_t rank) {
    static mli_lock locks[MLI_RANKS];
    mli_lock_rank(&locks[rank], rank);
    mli_lock_take(&locks[rank]);
}
static void enter(memlord *lord, mli_thread *t) { (void)mli_shard_enter(t, mli_shard_at(lord, 0)); }
/* Takes the cold lock, and reserves room for two keys in the index. */
static void reserve(memlord *lord) {
    static mli_cold cold;
    do {
        mli_cold_enter(&cold);
        cold.r = mli_index_reserve_locked(lord, 2);
    } while (mli_cold_leave(lord, &cold));
    must(cold.r);
    mli_cold_enter(&cold);
}

/* -- the requirements -- */

/* X(number, function, expression, what breaks it), by the folder of the function. The number is
   that of the requirement in its function. */
#define OS(X) \
    X(1, mli_nap, ns < 1000000000u, mli_nap(1000000000u))

#define BASE(X) \
    X(1, mli_logger_use, mli_rank_held(MLI_RANK_LOG) || !lord->back, mli_logger_use(lord, NULL)) \
    X(1, mli_ledger_delete, !lord->back, mli_ledger_delete(lord)) \
    X(1, mli_rank_take, !mli_ranks_held(rank) && (two || !mli_ranks.held[rank]), \
      hold(MLI_RANK_LOG); mli_lock_take(&mli_process.cold_lock)) \
    X(1, mli_rank_drop, mli_lock_held(lock), mli_rank_drop(&mli_process.cold_lock)) \
    X(1, mli_rank_inside, !inside || !mli_ranks_held(MLI_RANK_INSIDE), hold(MLI_RANK_LOG); \
      mli_rank_inside(1)) \
    X(1, mli_jsonf, *form != ',' || o->used, mli_out o; memset(&o, 0, sizeof o); \
      mli_jsonf(&o, ",[")) \
    X(1, mli_log, mli_none_held(), hold(MLI_RANK_COLD); mli_log(lord, 0, NULL)) \
    X(1, mli_busy_begin, mli_none_held(), hold(MLI_RANK_COLD); (void)mli_busy_begin()) \
    X(1, mli_extent_alloc, e->used == 1 || mli_lock_held(&mli_process.pages_lock), \
      static mli_extent e; size_t n; e.used = 2; (void)mli_extent_alloc(&e, 1, &n)) \
    X(1, mli_region_add, mli_none_held_but_orphan(), hold(MLI_RANK_COLD); \
      (void)mli_region_add(lord)) \
    X(1, mli_piece_find, mli_lock_held(&lord->memory.lock), (void)mli_piece_find(lord, 0)) \
    X(1, mli_own_alloc, mli_none_held_but_orphan(), hold(MLI_RANK_COLD); \
      (void)mli_own_alloc(lord, 0)) \
    X(1, mli_own_free, mli_none_held_but_orphan(), hold(MLI_RANK_COLD); mli_own_free(lord, \
      NULL, 0))

#define BOOKS(X) \
    X(1, mli_fences_forked, mli_rank_held(MLI_RANK_FENCES), mli_fences_forked(lord)) \
    X(1, mli_thread_entry_choose, mli_lock_held(&mli_process.registry_lock), \
      mli_thread_entry_choose(t)) \
    X(1, mli_thread_of, number, (void)mli_thread_of(lord, 0)) \
    X(1, mli_thread_start, mli_lock_held(&mli_process.registry_lock), mli_thread_start(lord, \
      t, 0)) \
    X(1, mli_call_end_uncounted, mli_none_held(), hold(MLI_RANK_COLD); \
      (void)mli_call_end_uncounted(lord, 0)) \
    X(1, mli_stay_loaded, mli_none_held(), hold(MLI_RANK_COLD); mli_stay_loaded()) \
    X(1, mli_home_bucket, mli_is_inside() || mli_lock_held(&s->lock), \
      (void)mli_home_bucket(mli_shard_at(lord, 0), 0)) \
    X(2, mli_home_bucket, mli_table_at(s), enter(lord, t); \
      (void)mli_home_bucket(mli_shard_at(lord, 0), 0)) \
    X(1, mli_lowest_bit, bits, (void)mli_lowest_bit(0)) \
    X(1, mli_shard_wait, !s || mli_u32_load(&s->state) == MLI_SHARD_STOPPED, \
      mli_shard_wait(lord, mli_shard_at(lord, 0))) \
    X(1, mli_shard_stop, mli_lock_held(&s->lock), mli_shard_stop(lord, mli_shard_at(lord, 0))) \
    X(2, mli_shard_stop, !mli_is_inside(), mli_lock_take(&mli_shard_at(lord, 0)->lock); \
      enter(lord, t); mli_shard_stop(lord, mli_shard_at(lord, 0))) \
    X(1, mli_shard_swap_table, mli_lock_held(&s->lock), (void)mli_shard_swap_table(lord, t, \
      mli_shard_at(lord, 0), NULL)) \
    X(1, mli_shard_grow, !mli_is_inside(), enter(lord, t); (void)mli_shard_grow(lord, t, \
      NULL, 0)) \
    X(1, mli_shard_crowded, mli_is_inside(), (void)mli_shard_crowded(lord, NULL)) \
    X(1, mli_shard_make_shared, !mli_is_inside(), enter(lord, t); mli_shard_make_shared(lord, \
      t, NULL)) \
    X(1, mli_probe_begin, mli_is_inside() || mli_lock_held(&s->lock), mli_probe_begin(NULL, \
      mli_shard_at(lord, 0), 0, 0)) \
    X(1, mli_probe_scan, mli_is_inside() || mli_lock_held(&probe->shard->lock), mli_probe probe; \
      probe.shard = mli_shard_at(lord, 0); (void)mli_probe_scan(lord, &probe, 0, 0)) \
    X(1, mli_probe_insert, mli_is_inside(), mli_probe_insert(NULL, 0, 0)) \
    X(2, mli_probe_insert, probe->room, mli_probe probe; memset(&probe, 0, sizeof probe); \
      enter(lord, t); mli_probe_insert(&probe, 0, 0)) \
    X(1, mli_probe_erase, mli_is_inside(), mli_probe_erase(NULL)) \
    X(2, mli_probe_erase, probe->entry, mli_probe probe; memset(&probe, 0, sizeof probe); \
      enter(lord, t); mli_probe_erase(&probe)) \
    X(1, mli_probe_find, !mli_is_inside(), enter(lord, t); (void)mli_probe_find(lord, t, 0, \
      0, 0, NULL)) \
    X(1, mli_cell_make, !mli_is_inside(), enter(lord, t); (void)mli_cell_make(lord, t, 0, 0, \
      NULL)) \
    X(1, mli_row_raise_peak, mli_lock_held(&row->lock), static mli_row row; \
      mli_row_raise_peak(&row, NULL)) \
    X(1, mli_row_join, mli_lock_held(&row->lock), static mli_row row; \
      mli_row_join(lord, 0, 0, &row)) \
    X(1, mli_row_bound, mli_lock_held(&row->lock), static mli_row row; mli_row_bound(0, &row)) \
    X(1, mli_cell_share, mli_lock_held(&row->lock), static mli_row row; \
      (void)mli_cell_share(lord, &row, NULL, 0)) \
    X(1, mli_cells_publish_asked, mli_is_inside(), mli_cells_publish_asked(lord, t)) \
    X(1, mli_cell_publish_due, mli_is_inside() || book == MLI_BOOK_SITE, \
      mli_cell_publish_due(lord, MLI_BOOK_DEVICE, 0, NULL)) \
    X(1, mli_detached_count, mli_is_inside(), mli_detached_count(t, 0, 0)) \
    X(1, mli_count, mli_is_inside() || (n == 1 && !d->dev && d->frees_here), \
      mli_row_delta d = mli_delta_open(1, 0, 8); mli_count(lord, t, &d, 1)) \
    X(1, mli_row_new, mli_lock_held(&mli_process.cold_lock), (void)mli_row_new(lord, 0, NULL)) \
    X(1, mli_row_publish, mli_lock_held(&mli_process.cold_lock), mli_row_publish(lord, 0)) \
    X(1, mli_counters_reset, mli_lock_held(&mli_process.cold_lock), mli_counters_reset(lord, t)) \
    X(1, mli_orphan_cell, number < mli_u32_load(&lord->counters.row_count[book]), \
      (void)mli_orphan_cell(lord, MLI_BOOK_TAG, 1)) \
    X(1, mli_scope_record_new, mli_lock_held(&mli_process.cold_lock), \
      (void)mli_scope_record_new(lord)) \
    X(1, mli_scope_publish, mli_lock_held(&mli_process.cold_lock), mli_scope_publish(lord)) \
    X(1, mli_dict_array, dict->items, mli_dict dict; dict.items = NULL; \
      (void)mli_dict_array(&dict)) \
    X(1, mli_dict_find_locked, mli_lock_held(&mli_process.cold_lock), \
      (void)mli_dict_find_locked(NULL, NULL)) \
    X(1, mli_dict_put_locked, mli_lock_held(&mli_process.cold_lock), \
      (void)mli_dict_put_locked(lord, NULL, NULL)) \
    X(2, mli_dict_put_locked, !mli_dict_find_locked(dict, key), \
      must(memlord_tag_begin(lord, "kept")); mli_lock_take(&mli_process.cold_lock); \
      (void)mli_dict_put_locked(lord, &lord->names->strings, "kept")) \
    X(1, mli_string_locked, mli_lock_held(&mli_process.cold_lock), \
      (void)mli_string_locked(lord, NULL)) \
    X(1, mli_name_locked, mli_lock_held(&mli_process.cold_lock), (void)mli_name_locked(lord, \
      NULL, NULL)) \
    X(1, mli_index_reserve_locked, mli_lock_held(&mli_process.cold_lock), \
      (void)mli_index_reserve_locked(lord, 0)) \
    X(1, mli_index_add_locked, mli_lock_held(&mli_process.cold_lock), \
      mli_index_add_locked(lord, 0, 0)) \
    X(2, mli_index_add_locked, !mli_index_get(lord, key), reserve(lord); \
      mli_index_add_locked(lord, 1, 1); mli_index_add_locked(lord, 1, 1)) \
    X(1, mli_row_add_locked, mli_lock_held(&mli_process.cold_lock), \
      (void)mli_row_add_locked(lord, 0, 0, NULL, 0, NULL)) \
    X(1, mli_device_add_locked, mli_lock_held(&mli_process.cold_lock), \
      (void)mli_device_add_locked(lord, cpu(), NULL)) \
    X(1, mli_refuse, mli_none_held(), hold(MLI_RANK_COLD); (void)mli_refuse(lord, 0, 0, \
      cpu(), NULL, NULL)) \
    X(1, mli_anomaly_find, mli_rank_held(MLI_RANK_ANOMALIES), \
      (void)mli_anomaly_find(lord->anomalies, 0, NULL, NULL)) \
    X(1, mli_anomaly_note, mli_none_held_but_orphan(), hold(MLI_RANK_COLD); \
      (void)mli_anomaly_note(lord, NULL, 0, cpu(), 0, 0, 0)) \
    X(1, mli_anomaly_read, mli_none_held(), memlord_anomaly a; hold(MLI_RANK_COLD); \
      (void)mli_anomaly_read(lord, 0, &a)) \
    X(1, mli_anomalies_tell, mli_none_held(), hold(MLI_RANK_COLD); mli_anomalies_tell(lord)) \
    X(1, mli_handle_open, mli_rank_held(MLI_RANK_PHYS) || mli_rank_held(MLI_RANK_COLD), \
      (void)mli_handle_open(NULL)) \
    X(2, mli_handle_open, *list, mli_handle *none = NULL; \
      mli_lock_take(&mli_process.cold_lock); (void)mli_handle_open(&none)) \
    X(1, mli_handle_close, mli_rank_held(MLI_RANK_PHYS) || mli_rank_held(MLI_RANK_COLD), \
      mli_handle_close(NULL, NULL)) \
    X(1, mli_account_read_locked, mli_lock_held(&mli_process.cold_lock), \
      (void)mli_account_read_locked(NULL, NULL, NULL)) \
    X(1, mli_account_add_locked, mli_lock_held(&b->lock), static mli_account_record b; \
      (void)mli_account_add_locked(&b, 0, 0)) \
    X(1, mli_site_copy_locked, mli_lock_held(&mli_process.cold_lock), \
      (void)mli_site_copy_locked(lord, NULL, NULL)) \
    X(1, mli_site_make_locked, mli_lock_held(&mli_process.cold_lock), \
      (void)mli_site_make_locked(lord, NULL)) \
    X(1, mli_site_content_locked, mli_lock_held(&mli_process.cold_lock), \
      (void)mli_site_content_locked(lord, NULL, NULL)) \
    X(1, mli_site_find_locked, mli_lock_held(&mli_process.cold_lock), \
      (void)mli_site_find_locked(lord, NULL, NULL)) \
    X(1, mli_site_origin_of, mli_none_held_but_orphan(), hold(MLI_RANK_COLD); \
      (void)mli_site_origin_of(lord, NULL)) \
    X(1, mli_module_find_locked, mli_lock_held(&mli_process.cold_lock), \
      (void)mli_module_find_locked(lord, NULL, NULL)) \
    X(1, mli_place_find_locked, mli_lock_held(&mli_process.cold_lock), \
      (void)mli_place_find_locked(lord, NULL, NULL, NULL)) \
    X(1, mli_place_function, mli_none_held(), hold(MLI_RANK_COLD); \
      (void)mli_place_function(lord, NULL)) \
    X(1, mli_site_display_locked, mli_lock_held(&mli_process.cold_lock), \
      (void)mli_site_display_locked(lord, NULL, NULL)) \
    X(1, mli_site_display, mli_none_held(), hold(MLI_RANK_COLD); (void)mli_site_display(lord, \
      NULL)) \
    X(1, mli_site_display_of, mli_none_held(), hold(MLI_RANK_COLD); \
      (void)mli_site_display_of(lord, NULL)) \
    X(1, mli_row_find_locked, mli_lock_held(&mli_process.cold_lock), \
      (void)mli_row_find_locked(lord, NULL, NULL, 0, NULL)) \
    X(1, mli_cache_set, !mli_is_inside(), enter(lord, t); mli_cache_set(lord, t, NULL, 0, \
      NULL, 0)) \
    X(1, mli_cached_row, !mli_is_inside(), enter(lord, t); (void)mli_cached_row(lord, t, 0, \
      NULL, 0)) \
    X(1, mli_birth_find_locked, mli_lock_held(&mli_process.cold_lock), \
      (void)mli_birth_find_locked(lord, NULL, NULL)) \
    X(1, mli_birth_bits_new, !mli_is_inside(), enter(lord, t); (void)mli_birth_bits_new(lord, \
      t, 0, 0)) \
    X(1, mli_alloc_word2, !mli_is_inside(), enter(lord, t); (void)mli_alloc_word2(lord, t, 0, \
      NULL)) \
    X(1, mli_tag_of_host, mli_none_held(), hold(MLI_RANK_COLD); (void)mli_tag_of_host(lord, \
      "")) \
    X(1, mli_tags_cut, depth < t->now.tag_depth, mli_tags_cut(t, t->now.tag_depth)) \
    X(1, mli_interposer_begin, mli_none_held(), hold(MLI_RANK_COLD); \
      mli_interposer_begin(lord, 0, NULL)) \
    X(1, mli_interposer_end, mli_none_held(), hold(MLI_RANK_COLD); mli_interposer_end(lord, \
      0, 0)) \
    X(1, mli_stack_frame_add_locked, mli_lock_held(&mli_process.cold_lock), \
      (void)mli_stack_frame_add_locked(lord, NULL)) \
    X(1, mli_stack_child_find_locked, mli_lock_held(&mli_process.cold_lock), \
      (void)mli_stack_child_find_locked(lord, 0, NULL, 0, NULL)) \
    X(1, mli_stack_row_find_locked, mli_lock_held(&mli_process.cold_lock), \
      (void)mli_stack_row_find_locked(lord, 0, 0, 0, NULL)) \
    X(1, mli_pick_entry, cap, (void)mli_pick_entry(NULL, 0, 0, 0)) \
    X(1, mli_pick_remove, mli_lock_held(&part->lock), static mli_picks part; \
      mli_pick_remove(&part, NULL)) \
    X(1, mli_pick_swap, mli_lock_held(&part->lock), static mli_picks part; \
      mli_pick_swap(&part, NULL, NULL)) \
    X(1, mli_pick_reserve, mli_none_held_but_orphan(), hold(MLI_RANK_COLD); \
      (void)mli_pick_reserve(lord, NULL)) \
    X(1, mli_stack_set, !mli_is_inside(), enter(lord, t); mli_stack_set(lord, &t->call, 0, 0, 0)) \
    X(1, mli_stack_unwind, mli_none_held(), hold(MLI_RANK_COLD); size_t from; \
      int cut; (void)mli_stack_unwind(lord, &t->call, NULL, 0, &from, &cut)) \
    X(1, mli_stacks_ready, mli_none_held_but_orphan(), hold(MLI_RANK_COLD); \
      (void)mli_stacks_ready(lord)) \
    X(1, mli_stack_pick_slow, !mli_is_inside(), enter(lord, t); mli_stack_pick_slow(lord, \
      &t->call, 0, 0)) \
    X(1, mli_stack_frames, mli_none_held(), hold(MLI_RANK_COLD); (void)mli_stack_frames(lord, \
      NULL, 0)) \
    X(1, mli_stacks_init, !lord->back, mli_stacks_init(lord, NULL)) \
    X(1, mli_event_record_other, mli_none_held(), hold(MLI_RANK_COLD); \
      mli_event_record_other(lord, 0, 0, 0, 0)) \
    X(1, mli_event_to_public, mli_none_held(), hold(MLI_RANK_COLD); mli_event_to_public(NULL, \
      NULL, NULL)) \
    X(1, mli_fence_free_locked, mli_lock_held(&state->lock), mli_fence_free_locked(lord, NULL)) \
    X(1, mli_drops_put, mli_lock_held(&state->lock), mli_drops_put(lord, NULL)) \
    X(1, mli_queue_place, mli_rank_held(MLI_RANK_FENCES), (void)mli_queue_place(lord, 0, 0)) \
    X(1, mli_queue_add, mli_lock_held(&state->lock), (void)mli_queue_add(lord, NULL)) \
    X(1, mli_queue_back_off, mli_lock_held(&lord->fences->lock), mli_queue_back_off(lord, \
      NULL, 0, 0)) \
    X(1, mli_queue_insert, mli_lock_held(&lord->fences->lock), mli_queue_insert(lord, NULL)) \
    X(1, mli_queue_remove, mli_lock_held(&state->lock), mli_queue_remove(lord, NULL)) \
    X(1, mli_fence_claim, mli_rank_held(MLI_RANK_FENCES), (void)mli_fence_claim(lord, NULL)) \
    X(1, mli_poll_next, mli_rank_held(MLI_RANK_FENCES), (void)mli_poll_next(lord, 0, 0)) \
    X(1, mli_fence_ask, mli_none_held(), hold(MLI_RANK_COLD); (void)mli_fence_ask(lord, NULL)) \
    X(2, mli_fence_ask, f->asker == &mli_self, mli_fence_record f; f.asker = NULL; \
      (void)mli_fence_ask(lord, &f)) \
    X(1, mli_fence_drop_host, mli_none_held(), hold(MLI_RANK_COLD); mli_fence_drop_host(lord, \
      NULL)) \
    X(1, mli_fence_drop, mli_none_held(), hold(MLI_RANK_COLD); (void)mli_fence_drop(lord, NULL)) \
    X(1, mli_fences_drain, mli_none_held(), hold(MLI_RANK_COLD); mli_fences_drain(lord)) \
    X(1, mli_part_insert, mli_is_inside(), (void)mli_part_insert(NULL, NULL, NULL)) \
    X(1, mli_block_part_add, !mli_is_inside(), enter(lord, t); (void)mli_block_part_add(lord, \
      t, 0, 0, NULL)) \
    X(1, mli_count_close, mli_is_inside(), mli_count_close(lord, t, 0, 0)) \
    X(1, mli_cells_make, !mli_is_inside(), enter(lord, t); mli_cells_make(lord, t, NULL, 0)) \
    X(1, mli_count_site_free, !mli_is_inside(), enter(lord, t); mli_count_site_free(lord, t, \
      0, NULL, 0)) \
    X(1, mli_log_call_end, mli_none_held(), hold(MLI_RANK_COLD); mli_log_call_end(lord, NULL, \
      NULL, NULL)) \
    X(1, mli_log_call_n, n, mli_log_call_n(lord, "", NULL, 0, NULL, NULL)) \
    X(1, mli_ref_down, MLI_REFS(e->word1) > 1, mli_entry e = {0, MLI_REFS_ONE, 0}; \
      mli_ref_down(&e)) \
    X(1, mli_entry_put, !mli_is_inside(), enter(lord, t); (void)mli_entry_put(lord, &t->call, \
      NULL, NULL, 0, 0, NULL)) \
    X(1, mli_block_pend, mli_is_inside(), (void)mli_block_pend(lord, NULL)) \
    X(2, mli_block_pend, e->word2 & MLI_HAS_SIDE, mli_entry e = {0, 0, 0}; enter(lord, t); \
      (void)mli_block_pend(lord, &e)) \
    X(1, mli_word2_moved, !mli_is_inside(), enter(lord, t); (void)mli_word2_moved(lord, t, 0, \
      0, NULL, 0)) \
    X(2, mli_word2_moved, !(word2 & MLI_HAS_SIDE), (void)mli_word2_moved(lord, t, 1, 1, NULL, \
      1)) \
    X(1, mli_route_of, !mli_is_inside(), enter(lord, t); (void)mli_route_of(lord, 0, 0)) \
    X(1, mli_move_count, !mli_is_inside(), enter(lord, t); mli_move_count(lord, 0, 0, 0)) \
    X(1, mli_phys_grown, mli_lock_held(&phys->lock), (void)mli_phys_grown(lord, \
      mli_phys_storage(lord, 0), 0, NULL, NULL)) \
    X(1, mli_phys_available, mli_lock_held(&phys->lock), (void)mli_phys_available(lord, \
      mli_phys_storage(lord, 0), NULL)) \
    X(1, mli_phys_try_reserve, mli_lock_held(&phys->lock), (void)mli_phys_try_reserve(lord, \
      mli_phys_storage(lord, 0), 0, 0)) \
    X(1, mli_cover_plan, mli_lock_held(&phys->lock), mli_cover_plan(lord, t, \
      mli_phys_storage(lord, 0), NULL)) \
    X(1, mli_ticket_move, mli_rank_held(MLI_RANK_PHYS), mli_ticket_move(lord, NULL, NULL, 0)) \
    X(1, mli_cover_take, mli_rank_held(MLI_RANK_PHYS), mli_cover_take(lord, NULL)) \
    X(1, mli_draw_take, mli_rank_held(MLI_RANK_PHYS), (void)mli_draw_take(lord, NULL, 0)) \
    X(1, mli_block_copy_out, mli_is_inside() || mli_rank_held(MLI_RANK_SHARD)  \
      || !(e->word2 & MLI_HAS_SIDE), mli_entry e = {0, 0, 1}; mli_block_copy_out(lord, &e, \
      NULL)) \
    X(1, mli_block_retag, !mli_is_inside(), enter(lord, t); (void)mli_block_retag(lord, t, \
      cpu(), 0, NULL))

#define CALLS(X) \
    X(1, mli_call_end, mli_none_held(), hold(MLI_RANK_COLD); mli_call_end(lord, t, 0, 0)) \
    X(1, mli_queue_due, mli_rank_held(MLI_RANK_FENCES), (void)mli_queue_due(NULL, 0, 0)) \
    X(1, mli_page_exchange, mli_lock_held(&lord->neighbours->lock), mli_page_exchange(lord, \
      NULL)) \
    X(1, mli_arena_balance, mli_is_inside(), mli_arena_balance(lord, NULL)) \
    X(1, mli_unhold_n, mli_none_held(), hold(MLI_RANK_COLD); mli_unhold_n(lord, NULL, NULL, 0)) \
    X(1, mli_rows_publish_due, mli_is_inside(), mli_rows_publish_due(lord, t, 0, 0)) \
    X(1, mli_side_close, t->side_count < MLI_SIDES_MAX, t->side_count = MLI_SIDES_MAX; \
      mli_side_close(lord, t, 1)) \
    X(1, mli_slot_move, key || !number || mli_is_inside(), mli_slot_move(lord, 1, 0)) \
    X(1, mli_slot_take, mli_is_inside(), (void)mli_slot_take(lord, t, 1, 0, 0, NULL)) \
    X(1, mli_alloc_finish, mli_is_inside(), (void)mli_alloc_finish(lord, 0, 0, 0, 0)) \
    X(1, mli_free_finish, mli_is_inside(), (void)mli_free_finish(lord, 0, 0, NULL, 0, 0)) \
    X(1, mli_window_insert, mli_is_inside(), (void)mli_window_insert(lord, t, 0, NULL)) \
    X(1, mli_window_find, mli_is_inside(), (void)mli_window_find(lord, t, 0, 0, NULL)) \
    X(1, mli_resize_end, mli_is_inside(), (void)mli_resize_end(lord, t, 0, NULL)) \
    X(1, mli_alloc_words, mli_is_last_ledger(lord) && !(bytes >> MLI_FAST_SIZE_BITS), \
      (void)mli_alloc_words(lord, cpu(), 64, UINT64_MAX, NULL)) \
    X(1, mli_free_words, mli_is_last_ledger(lord), \
      mli_self.generation = 0; (void)mli_free_words(lord, cpu(), 64, MLI_END_FREE, NULL))

#define SERVICES(X) \
    X(1, mli_band_evaluate, mli_lock_held(&phys->lock), mli_band_evaluate(lord, \
      mli_phys_storage(lord, 0), 0, NULL)) \
    X(1, mli_gc_runs_elsewhere, mli_lock_held(&lord->bands->callbacks_lock), \
      (void)mli_gc_runs_elsewhere(lord, 0)) \
    X(1, mli_gc_run_callbacks, mli_none_held(), hold(MLI_RANK_COLD); \
      mli_gc_run_callbacks(lord, 0, t, NULL, 0, NULL)) \
    X(2, mli_gc_run_callbacks, mli_u32_load(&mli_device_record_at(lord, \
      dev)->watch.gc_running), must(memlord_alloc(lord, cpu(), 64, 1, NULL)); \
      mli_gc_run_callbacks(lord, 1, t, NULL, 0, NULL)) \
    X(1, mli_record_of, !context->home, (void)mli_record_of(&t->own)) \
    X(1, mli_current_clear, !now->span, must(memlord_scope_begin(lord, "open")); \
      mli_current_clear(&t->now)) \
    X(1, mli_thread_release, mli_lock_held(&mli_process.registry_lock), mli_thread_release(t)) \
    X(1, mli_thread_gone, mli_lock_held(&mli_process.registry_lock), mli_thread_gone(t)) \
    X(1, mli_context_elsewhere, mli_lock_held(&record->lock), static mli_context_record record; \
      mli_lock_rank(&record.lock, MLI_RANK_CONTEXT); record.kept.context = &record.own; \
      (void)mli_context_elsewhere(&record, t)) \
    X(1, mli_scope_of_path_locked, mli_lock_held(&mli_process.cold_lock), \
      (void)mli_scope_of_path_locked(lord, NULL)) \
    X(1, mli_scope_new_locked, mli_lock_held(&mli_process.cold_lock), \
      (void)mli_scope_new_locked(lord, NULL, NULL, NULL, NULL, NULL)) \
    X(1, mli_phys_fraction_apply, mli_lock_held(&phys->lock), \
      mli_phys_fraction_apply(mli_phys_storage(lord, 0))) \
    X(1, mli_phys_marks_set, mli_lock_held(&phys->lock), mli_phys_marks_set(lord, \
      mli_phys_storage(lord, 0))) \
    X(1, mli_phys_sample, mli_none_held(), hold(MLI_RANK_COLD); (void)mli_phys_sample(lord, \
      mli_phys_storage(lord, 0))) \
    X(1, mli_snapshots_evict, mli_lock_held(&state->lock), \
      (void)mli_snapshots_evict(lord)) \
    X(2, mli_snapshots_evict, state->count == MLI_SNAPSHOTS, \
      mli_lock_take(&lord->snapshots->lock); (void)mli_snapshots_evict(lord)) \
    X(1, mli_holders_restart, !mli_is_inside(), enter(lord, t); mli_holders_restart(lord, 0)) \
    X(1, mli_snapshots_free, !mli_recorder_is_on(lord, MLI_RECORDER_SNAPSHOTS), \
      must(memlord_snapshots_start(lord, 1000)); mli_snapshots_free(lord)) \
    X(1, mli_phys_sample_refresh, mli_none_held(), hold(MLI_RANK_COLD); \
      mli_phys_sample_refresh(lord, mli_phys_storage(lord, 0))) \
    X(1, mli_verify_all, mli_rank_held(MLI_RANK_FENCES), (void)mli_verify_all(NULL)) \
    X(2, mli_verify_all, mli_rank_held(MLI_RANK_SHARD), hold(MLI_RANK_FENCES); \
      (void)mli_verify_all(NULL)) \
    X(3, mli_verify_all, mli_lock_held(&mli_process.cold_lock), hold(MLI_RANK_SHARD); \
      hold(MLI_RANK_FENCES); (void)mli_verify_all(NULL))

#define REPORTS(X) \
    X(1, mli_last_events_read, !last->size, \
      mli_last_events last; last.size = 1; mli_last_events_read(NULL, &last)) \
    X(1, mli_shares_make, !t->x, \
      mli_shares shares; shares.x = (mli_export *)&shares; mli_shares_make(NULL, &shares)) \
    X(1, mli_format_whole, mli_format_known(format), mli_format_whole(MEMLORD_FORMAT_COUNT)) \
    X(1, mli_format_write, mli_format_known(format), mli_format_write(NULL, MEMLORD_FORMAT_COUNT)) \
    X(1, mli_trace_ring, w->level && w->depth, \
      static mli_trace_writer w; mli_trace_ring(&w)) \
    X(1, mli_viz_body, w->memo, static mli_viz_writer w; mli_viz_body(&w)) \
    X(1, mli_heap_body, w->sum, static mli_heap_writer w; mli_heap_body(&w)) \
    X(1, mli_report_capture, !r->lord, static mli_report r; r.lord = lord; \
      mli_report_capture(lord, &r))

#define EMBED(X) \
    X(1, mli_lives_lock, mli_lock_held(&mli_process.cold_lock), mli_lives_lock(0)) \
    X(1, mli_process_claim, mli_none_held(), hold(MLI_RANK_COLD); (void)mli_process_claim()) \
    X(1, mli_hooked_of, mli_lock_held(&mli_process.registry_lock), (void)mli_hooked_of(NULL)) \
    X(1, mli_hooked_place, mli_lock_held(&mli_process.registry_lock), \
      (void)mli_hooked_place(NULL)) \
    X(1, mli_unhook, mli_lock_held(&mli_process.registry_lock), (void)mli_unhook(NULL))

#define REQUIREMENTS(X) OS(X) BASE(X) BOOKS(X) CALLS(X) SERVICES(X) REPORTS(X) EMBED(X)

#define BREAK(number, function, expression, ...)                   \
    static void function##_##number(memlord *lord, mli_thread *t) { \
        (void)lord, (void)t;                                       \
        __VA_ARGS__;                                               \
    }
REQUIREMENTS(BREAK)

typedef struct requirement {
    const char *function, *expression;
    void (*breaks)(memlord *lord, mli_thread *t);
} requirement;
static requirement requirements[] = {
#define ROW(number, function, expression, ...) \
    {#function, "MLI_REQUIRE(" #expression ");", function##_##number},
    REQUIREMENTS(ROW)};
enum { REQUIREMENTS_COUNT = sizeof requirements / sizeof *requirements };

/* Runs a child that breaks a requirement, in a ledger of its own. Returns the check that failed. */
static report broken(const requirement *q) {
    report r;
    int to[2];
    pid_t pid;
    memset(&r, 0, sizeof r);
    assert_int_equal(pipe(to), 0);
    pid = fork();
    if (pid == 0) {
        memlord_desc desc;
        memlord *lord;
        memset(&desc, 0, sizeof desc);
        desc.flags = MEMLORD_FLAG_NO_THREADS | MEMLORD_FLAG_NO_ENV;
        desc.stack_depth = 4;
        report_to = to[1];
        must(memlord_create(&desc, &lord));
        q->breaks(lord, mli_thread_get(lord));
        _exit(3); /* it broke nothing */
    }
    close(to[1]);
    assert_int_equal(child_status(pid), 0);
    assert_int_equal(read(to[0], &r, sizeof r), sizeof r);
    close(to[0]);
    return r;
}

/* -- the header -- */

enum { LINES_MAX = 1 << 16 };
static char *lines[LINES_MAX]; /* by number: those with a requirement; NULL: the others */
static char found[LINES_MAX];  /* 1: a test found that it fails */

static void read_header(const char *name) {
    char line[512], *at;
    int number = 0;
    FILE *file = fopen(name, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        assert_true(++number < LINES_MAX);
        at = strstr(line, "MLI_REQUIRE(");
        if (!at || line[strspn(line, " ")] != 'M') continue;
        at[strcspn(at, "\n")] = 0;
        lines[number] = strdup(at);
    }
    fclose(file);
}
static int read_headers(void **state) {
    (void)state;
    read_header("memlord.h");
    return 0;
}
static int forget_headers(void **state) {
    int i;
    (void)state;
    for (i = 0; i < LINES_MAX; i++) free(lines[i]);
    return 0;
}

/* -- tests -- */

static void fails_when_it_is_broken(void **state) {
    const requirement *q = (const requirement *)*state;
    report r = broken(q);
    assert_string_equal(r.function, q->function);
    assert_true(r.line > 0 && r.line < LINES_MAX);
    assert_non_null(lines[r.line]);
    assert_string_equal(lines[r.line], q->expression);
    found[r.line] = 1;
}

/* All but those that this list lacks were found above. */
static void every_requirement_is_in_the_list(void **state) {
    int i, lost = 0;
    (void)state;
    for (i = 0; i < LINES_MAX; i++) {
        if (!lines[i] || found[i]) continue;
        print_error("memlord.h:%d: %s is in no row of this suite\n", i, lines[i]);
        lost++;
    }
    assert_int_equal(lost, 0);
}

#if defined(DLFO_STRUCT_HAS_EH_DBASE) && !defined(TEST_STATIC) /* glibc 2.35 or later */
static int finds, finds_locked; /* of _dl_find_object, and those under a lock of MemLord */
int _dl_find_object(void *address, struct dl_find_object *out) {
    static int (*real)(void *, struct dl_find_object *);
    void *symbol = real ? NULL : dlsym(RTLD_NEXT, "_dl_find_object");
    if (symbol) memcpy(&real, &symbol, sizeof real);
    finds++;
    finds_locked += !mli_none_held();
    return real(address, out);
}
/* Past its exit hook a thread records under the orphan lock. It drops that before it asks the
   loader for the module of a site: other loaders than that of glibc may wait for a thread. */
static void the_loader_is_asked_without_a_lock(void **state) {
    static const memlord_site here = {"loader.c", "read_tensors", 12};
    memlord *lord = test_lord(state);
    mli_self.exited = 1;
    finds = finds_locked = 0;
    assert_ok(memlord_alloc(lord, cpu(), 0x10000, 64, &here));
    mli_self.exited = 0;
    assert_true(finds > 0);
    assert_int_equal(finds_locked, 0);
}
/* A library that was loaded with the program stays, so what was found of its addresses is kept. */
static void the_loader_is_asked_once_for_an_address_in_a_library_of_the_start(void **state) {
    memlord *lord = test_lord(state);
    char *address = (char *)dlsym(RTLD_DEFAULT, "qsort");
    const memlord_site *site;
    assert_non_null(address);
    finds = 0;
    site = memlord_site_at(lord, address + 1);
    assert_true(finds > 0);
    finds = 0;
    assert_ptr_equal(memlord_site_at(lord, address + 1), site);
    assert_int_equal(finds, 0);
}
#else
static void the_loader_is_asked_without_a_lock(void **state) {
    (void)state;
    skip();
}
static void the_loader_is_asked_once_for_an_address_in_a_library_of_the_start(void **state) {
    (void)state;
    skip();
}
#endif

#if defined(__linux__)
static void a_build_id_is_found_behind_another_note(void **state) {
    static const uint32_t notes[17] = {4, 16, 1, 0, 0, 3, 2, 0, /* the kernel that it needs */
                                       4, 20, 3, 0, 1, 2, 3, 4, 5};
    char bytes[sizeof notes];
    size_t size = 0;
    (void)state;
    memcpy(bytes, notes, sizeof notes);
    memcpy(bytes + 12, "GNU", 4);
    memcpy(bytes + 44, "GNU", 4);
    assert_ptr_equal(mli_notes_id(bytes, sizeof bytes, 4, &size), bytes + 48);
    assert_int_equal(size, 20);
}
#else
static void a_build_id_is_found_behind_another_note(void **state) {
    (void)state;
    skip();
}
#endif

/* A call takes back what it has opened, unless another thread has ended or replaced it. */
static void only_a_block_of_the_same_size_is_taken_back(void **state) {
    memlord *lord = test_lord(state);
    const uint64_t sizes[] = {64, 0, 100, 100};
    uint64_t live = 100;
    size_t i;
    assert_ok(memlord_alloc(lord, cpu(), 0x10000, live, NULL));
    for (i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        mli_thread *t = mli_thread_get(lord);
        mli_block_unopen(lord, t, mli_dev_known(lord, cpu()), 0x10000, sizes[i]);
        mli_thread_put(lord, t);
        if (sizes[i] == 100) live = 0; /* and the last finds no block */
        assert_int_equal(memlord_allocated(lord, cpu()), live);
    }
    assert_int_equal(memlord_freed(lord, cpu()), 0);
    assert_ok(memlord_verify(lord));
}

enum { OTHER_TESTS = 4 };

int main(void) {
    static struct CMUnitTest tests[REQUIREMENTS_COUNT + OTHER_TESTS + 1] = {
        cmocka_unit_test_setup_teardown(the_loader_is_asked_without_a_lock, test_setup_sites,
                                        test_teardown),
        cmocka_unit_test_setup_teardown(
            the_loader_is_asked_once_for_an_address_in_a_library_of_the_start, test_setup_sites,
            test_teardown),
        cmocka_unit_test(a_build_id_is_found_behind_another_note),
        cmocka_unit_test_setup_teardown(only_a_block_of_the_same_size_is_taken_back, test_setup,
                                        test_teardown)};
    static char names[REQUIREMENTS_COUNT][160];
    int i;
    for (i = 0; i < REQUIREMENTS_COUNT; i++) {
        snprintf(names[i], sizeof names[i], "%s: %s", requirements[i].function,
                 requirements[i].expression);
        tests[i + OTHER_TESTS].name = names[i];
        tests[i + OTHER_TESTS].test_func = fails_when_it_is_broken;
        tests[i + OTHER_TESTS].initial_state = &requirements[i];
    }
    tests[i + OTHER_TESTS].name = "every_requirement_is_in_the_list";
    tests[i + OTHER_TESTS].test_func = every_requirement_is_in_the_list;
    return cmocka_run_group_tests_name("requires", tests, read_headers, forget_headers);
}
