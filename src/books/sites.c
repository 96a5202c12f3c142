#include "books/sites.h"
#include "os/modules.h"
#include "base/ledger.h"
#include "base/text.h"
#include "base/memory.h"
#include "books/threads.h"
#include "books/map.h"
#include "books/names.h"
#include "books/counters.h"

struct mli_sites_state {
    mli_ptr modules; /* mli_module *: the newest module; changes under the cold lock */
    mli_ptr places;  /* mli_site_record *: the newest of a return address; under the cold lock */
    mli_ptr named;   /* mli_site_record *: the newest site when mli_places_name last looked up
                        symbols; NULL if it has not done so */
};

/* Arrays, not literals, which a linker drops all together or not at all: one here would bring the
   texts of the reports into a program without reports. */
static const char mli_no_text[] = "";
MLI_PRIVATE const memlord_site mli_no_site = {mli_no_text, mli_no_text, 0};

MLI_PRIVATE mli_module *mli_module_newest(const memlord *lord) {
    return (mli_module *)mli_ptr_load_acquire(&lord->sites->modules);
}

/* Copies a site to *out, with the ledger's own copies of its strings. Returns MLI_AGAIN if the
   caller has to get memory and then call again. */
static MLI_COLD memlord_result mli_site_copy_locked(memlord *lord, const memlord_site *from,
                                                    memlord_site *out) {
    MLI_REQUIRE(mli_lock_held(&mli_process.cold_lock));
    memlord_result r = mli_name_locked(lord, from->file ? from->file : "", &out->file);
    if (r == MEMLORD_OK)
        r = mli_name_locked(lord, from->function ? from->function : "", &out->function);
    out->line = from->line;
    return r;
}

MLI_PRIVATE MLI_NOINLINE mli_site_record *mli_site_record_of(memlord *lord, const void *identity) {
    return (mli_site_record *)(uintptr_t)mli_index_get(
        lord, mli_index_key(identity, MLI_INDEX_SUBJECT));
}

/* Finds the site that has the kept strings and the line of `kept`, in `module`, or returns NULL and
   sets *key to a free key for it. */
static MLI_COLD mli_site_record *mli_site_same(memlord *lord, const memlord_site *kept,
                                               const void *module, uint64_t *key) {
    uint64_t hash = (uint64_t)(uintptr_t)kept->file * 0x9e3779b97f4a7c15u;
    hash = ((hash ^ hash >> 32) + (uint64_t)(uintptr_t)kept->function) * 0x9e3779b97f4a7c15u;
    hash = ((hash ^ hash >> 32) + (uint64_t)(uintptr_t)module) * 0x9e3779b97f4a7c15u;
    hash = ((hash ^ hash >> 32) + (uint32_t)kept->line) * 0x9e3779b97f4a7c15u;
    for (;; hash += 256) {
        mli_site_record *site;
        *key = hash >> 8 ^ (uint64_t)MLI_INDEX_CONTENT << 56;
        site = (mli_site_record *)(uintptr_t)mli_index_get(lord, *key);
        if (!site || (site->original.file == kept->file &&
                      site->original.function == kept->function &&
                      site->original.line == kept->line && site->module == module))
            return site;
    }
}

/* Makes the record of a site that is displayed as `kept`, or returns NULL. */
static MLI_COLD mli_site_record *mli_site_make_locked(memlord *lord, const memlord_site *kept) {
    MLI_REQUIRE(mli_lock_held(&mli_process.cold_lock));
    mli_site_record *site = (mli_site_record *)mli_cold_alloc(lord, sizeof *site);
    if (!site) return NULL;
    site->original = *kept;
    mli_ptr_store(&site->display, &site->original);
    return site;
}
/* Adds a site to the index under `content` and under its struct `original`, which the host may pass
   back once reports have shown it. Requires: room for two keys is reserved. */
static MLI_COLD void mli_site_add_locked(memlord *lord, mli_site_record *site, uint64_t content) {
    mli_index_add_locked(lord, mli_index_key(&site->original, MLI_INDEX_SUBJECT),
                         (uint64_t)(uintptr_t)site);
    mli_index_add_locked(lord, content, (uint64_t)(uintptr_t)site);
}

MLI_PRIVATE MLI_COLD memlord_result mli_site_content_locked(memlord *lord,
                                                            const mli_site_origin *from,
                                                            mli_site_record **out) {
    MLI_REQUIRE(mli_lock_held(&mli_process.cold_lock));
    uint64_t content = 0;
    memlord_site kept;
    memlord_result r = mli_index_reserve_locked(lord, 3);
    if (r == MEMLORD_OK) r = mli_site_copy_locked(lord, from->planted, &kept);
    if (r) return r;
    *out = mli_site_same(lord, &kept, from->module, &content);
    if (!*out) {
        *out = mli_site_make_locked(lord, &kept);
        if (!*out) return MLI_AGAIN;
        (*out)->module = from->module;
        mli_site_add_locked(lord, *out, content);
    }
    return MEMLORD_OK;
}
MLI_PRIVATE MLI_COLD memlord_result mli_site_find_locked(memlord *lord, const mli_site_origin *from,
                                                         mli_site_record **out) {
    MLI_REQUIRE(mli_lock_held(&mli_process.cold_lock));
    memlord_result r;
    *out = mli_site_record_of(lord, from->planted);
    if (*out) return MEMLORD_OK;
    r = mli_site_content_locked(lord, from, out);
    if (r) return r;
    mli_index_add_locked(lord, mli_index_key(from->planted, MLI_INDEX_SUBJECT),
                         (uint64_t)(uintptr_t)*out);
    return MEMLORD_OK;
}

MLI_PRIVATE MLI_COLD mli_site_origin mli_site_origin_of(memlord *lord,
                                                        const memlord_site *planted) {
    MLI_REQUIRE(mli_none_held_but_orphan());
    mli_site_origin from = {planted, NULL};
    if (planted && !mli_site_record_of(lord, planted)) {
        const uint64_t generation = mli_busy_begin(); /* the search may take the loader's lock */
        from.module = mli_module_of(planted);
        mli_busy_end(generation);
    }
    return from;
}

MLI_PRIVATE MLI_COLD const memlord_site *mli_site_kept(memlord *lord, const memlord_site *planted) {
    mli_site_origin from;
    mli_site_record *site;
    mli_cold cold = {MEMLORD_OK, NULL, 0, 0};
    if (mli_self.in_host_alloc) return NULL;
    from = mli_site_origin_of(lord, planted);
    do {
        mli_cold_enter(&cold);
        cold.r = mli_site_find_locked(lord, &from, &site);
    } while (mli_cold_leave(lord, &cold));
    if (cold.r) return NULL;
    return (const memlord_site *)mli_ptr_load_acquire(&site->display);
}

/* -- return addresses: modules and the places in them -- */

/* Compares the build id of `module` with the bytes that are now at the address of the id. Returns 0
   if they differ, and 1 if they are equal or cannot be read. They can be read only if they lie in
   the first page of the module, because any module that is there now has that page. */
static int mli_module_has_id(const mli_module *module) {
    const mli_image *image = &module->image;
    uintptr_t at = (uintptr_t)image->id - (uintptr_t)image->start;
    if (!image->id_size || at > 4096 - image->id_size) return 1; /* no id can be read; the names are
                                                                    the same */
    return !memcmp(image->id, module->id, image->id_size);
}
/* Finds the module that is at an address now, or NULL in *out if there is none, and returns 1.
   Returns 0 if the ledger does not know it, or if the system cannot tell without a lock. */
static MLI_COLD int mli_module_now(memlord *lord, const void *address, const mli_module **out) {
    mli_loaded now;
    int in = mli_loaded_at(address, &now);
    *out = NULL;
    if (in <= 0) return !in;
    *out = (mli_module *)(uintptr_t)mli_index_get(lord,
                                                  mli_index_key(now.start, MLI_INDEX_MODULE));
    while (*out && (strcmp((*out)->image.loaded, now.name) || !mli_module_has_id(*out)))
        *out = (mli_module *)mli_ptr_load_acquire(&(*out)->same);
    return *out != NULL;
}

/* Finds or makes the record of a module. */
static MLI_COLD memlord_result mli_module_find_locked(memlord *lord, const mli_image *image,
                                                      mli_module **out) {
    MLI_REQUIRE(mli_lock_held(&mli_process.cold_lock));
    const uint64_t key = mli_index_key(image->start, MLI_INDEX_MODULE);
    mli_module *first = (mli_module *)(uintptr_t)mli_index_get(lord, key), *found;
    char hex[2 * MLI_BUILD_ID_MAX + 1];
    const char *path, *loaded, *build_id;
    memlord_result r;
    mli_out o;
    size_t i;
    mli_out_buffer(&o, hex, sizeof hex);
    for (i = 0; i < image->id_size; i++)
        mli_put_digits(&o, ((const unsigned char *)image->id)[i], 16, 2);
    (void)mli_out_end(&o, sizeof hex);
    r = mli_name_locked(lord, hex, &build_id);
    if (r == MEMLORD_OK) r = mli_name_locked(lord, image->path, &path);
    if (r == MEMLORD_OK) r = mli_name_locked(lord, image->loaded, &loaded);
    if (r) return r;
    for (found = first; found; found = (mli_module *)mli_ptr_load(&found->same))
        if (found->image.path == path && found->build_id == build_id) break;
    *out = found;
    if (found) return MEMLORD_OK;
    *out = found = (mli_module *)mli_cold_alloc(lord, sizeof *found);
    if (!found) return MLI_AGAIN;
    found->image = *image;
    found->image.path = path;
    found->image.loaded = loaded;
    found->build_id = build_id;
    if (image->id_size) memcpy(found->id, image->id, image->id_size);
    found->next = (mli_module *)mli_ptr_load(&lord->sites->modules);
    found->number = found->next ? found->next->number + 1 : 1;
    mli_ptr_store_release(&lord->sites->modules, found); /* pairs with mli_module_newest */
    if (!first) {
        mli_index_add_locked(lord, key, (uint64_t)(uintptr_t)found);
    } else { /* the release pairs with the acquire in mli_module_now */
        mli_ptr_store(&found->same, mli_ptr_load(&first->same));
        mli_ptr_store_release(&first->same, found);
    }
    return MEMLORD_OK;
}

static uint64_t mli_place_offset(const mli_image *image, const void *address) {
    return (uintptr_t)address - 1 - (image ? (uintptr_t)image->bias : 0);
}
/* Finds the site of a place, or returns NULL and sets *key to a free key for it. A module that is
   loaded again at another address has the same sites. */
static MLI_COLD mli_site_record *mli_place_find(memlord *lord, const mli_module *module,
                                                uint64_t offset, uint64_t *key) {
    uint64_t hash = offset * 0x9e3779b97f4a7c15u;
    if (module) {
        hash = (hash ^ hash >> 32) + (uint64_t)(uintptr_t)module->image.path;
        hash = hash * 0x9e3779b97f4a7c15u + (uint64_t)(uintptr_t)module->build_id;
        hash *= 0x9e3779b97f4a7c15u;
    }
    for (;; hash += 256) {
        const mli_module *where;
        mli_site_record *site;
        *key = hash >> 8 ^ (uint64_t)MLI_INDEX_CONTENT << 56;
        site = (mli_site_record *)(uintptr_t)mli_index_get(lord, *key);
        if (!site) return NULL;
        where = site->where;
        if (site->address && site->offset == offset &&
            (where == module || (where && module && where->image.path == module->image.path &&
                                 where->build_id == module->build_id)))
            return site;
    }
}

/* Makes the name of a place, such as "libfoo.so+0x1f0", from its module and offset. If `module` is
   NULL, the offset is an address, and the name is only this address. */
static MLI_COLD memlord_result mli_place_name_locked(memlord *lord, const mli_module *module,
                                                     uint64_t offset, memlord_site *out) {
    char text[300]; /* the name of the module's file, and the offset */
    mli_out o;
    memlord_result r;
    mli_out_buffer(&o, text, sizeof text);
    if (module) mli_put_file_name(&o, module->image.path);
    mli_put_str(&o, module ? "+0x" : "0x");
    mli_put_hex_short(&o, offset);
    (void)mli_out_end(&o, sizeof text);
    r = mli_name_locked(lord, text, &out->file);
    return r ? r : mli_name_locked(lord, "", &out->function);
}

/* Finds or makes the site of a return address, also in the index if its module stays loaded. */
static MLI_COLD memlord_result mli_place_find_locked(memlord *lord, const void *address,
                                                     const mli_image *image,
                                                     mli_site_record **out) {
    MLI_REQUIRE(mli_lock_held(&mli_process.cold_lock));
    const uint64_t key = mli_index_key(address, MLI_INDEX_SUBJECT);
    uint64_t offset = mli_place_offset(image->path ? image : NULL, address), content;
    memlord_site kept = mli_no_site;
    mli_module *module = NULL;
    memlord_result r = mli_index_reserve_locked(lord, 4);
    if (r == MEMLORD_OK && image->path) r = mli_module_find_locked(lord, image, &module);
    if (r) return r;
    *out = mli_place_find(lord, module, offset, &content);
    if (!*out) {
        r = mli_place_name_locked(lord, module, offset, &kept);
        if (r) return r;
        *out = mli_site_make_locked(lord, &kept);
        if (!*out) return MLI_AGAIN;
        (*out)->address = address;
        (*out)->where = module;
        (*out)->offset = offset;
        mli_site_add_locked(lord, *out, content);
        (*out)->before = (mli_site_record *)mli_ptr_load(&lord->sites->places);
        mli_ptr_store_release(&lord->sites->places, *out); /* pairs with mli_places_name */
    }
    if (image->stays && !mli_index_get(lord, key))
        mli_index_add_locked(lord, key, (uint64_t)(uintptr_t)*out);
    return MEMLORD_OK;
}

/* Makes the site of a return address. `module` is the module at the address. If it is NULL, the
   function asks the system for the module. */
static MLI_COLD mli_site_record *mli_place_make(memlord *lord, const void *address,
                                                const mli_module *module) {
    char executable[MLI_PATH_MAX];
    mli_site_record *site = NULL;
    mli_image image;
    mli_cold cold = {MEMLORD_OK, NULL, 0, 0};
    if (mli_self.in_host_alloc) return NULL;
    if (module)
        image = module->image;
    else
        mli_image_at(address, &image, executable);
    do {
        mli_cold_enter(&cold);
        cold.r = mli_place_find_locked(lord, address, &image, &site);
    } while (mli_cold_leave(lord, &cold));
    return cold.r == MEMLORD_OK ? site : NULL;
}
MLI_PRIVATE MLI_COLD mli_site_record *mli_place_of(memlord *lord, const void *address) {
    mli_site_record *site = NULL;
    const mli_module *module;
    uint64_t key;
    if (mli_module_now(lord, address, &module))
        site = mli_place_find(
            lord, module, mli_place_offset(module ? &module->image : NULL, address), &key);
    return site ? site : mli_place_make(lord, address, module);
}
/* Returns 1 if the return address of a site is now in the same module as when it was first seen. */
static int mli_place_is_there(memlord *lord, const mli_site_record *site) {
    const mli_module *now = site->where;
    return now && (now->image.stays ||
                   (mli_module_now(lord, site->address, &now) && now == site->where));
}
/* Returns the name of the function in which a site's return address lies. Returns NULL if the
   symbol is not known, or if the module is not there now. Requires: the caller holds no lock of the
   ledger. The search takes a lock of the loader, so the call could otherwise wait for ever. */
static MLI_COLD const char *mli_place_function(memlord *lord, const mli_site_record *site) {
    MLI_REQUIRE(mli_none_held());
    mli_symbol_query q = {(const char *)site->address - 1, NULL, 0, NULL};
    if (mli_place_is_there(lord, site)) mli_symbols_at(&q, 1);
    return q.name;
}
/* Makes reports display a copy of `from` for a site, which is in the index, because the host may
   pass it back. Returns MLI_AGAIN if the caller has to get memory first. */
static MLI_COLD memlord_result mli_site_display_locked(memlord *lord, mli_site_record *site,
                                                       const memlord_site *from) {
    MLI_REQUIRE(mli_lock_held(&mli_process.cold_lock));
    memlord_site fresh, *shown;
    memlord_result r = mli_index_reserve_locked(lord, 1);
    if (r == MEMLORD_OK) r = mli_site_copy_locked(lord, from, &fresh);
    if (r) return r;
    shown = (memlord_site *)mli_cold_alloc(lord, sizeof *shown);
    if (!shown) return MLI_AGAIN;
    *shown = fresh;
    mli_index_add_locked(lord, mli_index_key(shown, MLI_INDEX_SUBJECT), (uint64_t)(uintptr_t)site);
    mli_ptr_store_release(&site->display, shown); /* pairs with the loads in mli_site_display */
    return MEMLORD_OK;
}
static MLI_COLD memlord_result mli_site_set_display(memlord *lord, mli_site_record *site,
                                                    const memlord_site *from) {
    mli_cold cold = {MEMLORD_OK, NULL, 0, 0};
    do {
        mli_cold_enter(&cold);
        cold.r = mli_site_display_locked(lord, site, from);
    } while (mli_cold_leave(lord, &cold));
    return cold.r;
}

static MLI_COLD void mli_symbols_sort(mli_symbol_query *q, size_t n) {
    size_t gap, i, k;
    for (gap = n / 2; gap; gap /= 2) {
        for (i = gap; i < n; i++) {
            const mli_symbol_query moving = q[i];
            for (k = i; k >= gap && q[k - gap].address > moving.address; k -= gap)
                q[k] = q[k - gap];
            q[k] = moving;
        }
    }
}
/* Goes through the list of sites from `site` until `end`. Writes to `q` up to n sites whose symbols
   were not looked up, marks them as looked up, and returns how many it has written. Marks a site
   whose module is gone, too, but does not write it. */
static MLI_COLD size_t mli_places_take(memlord *lord, mli_site_record *site,
                                       const mli_site_record *end, mli_symbol_query *q, size_t n) {
    size_t taken = 0;
    for (; site != end && taken < n; site = site->before) {
        if (mli_u32_exchange(&site->resolved, 1) || !mli_place_is_there(lord, site)) continue;
        q[taken].address = (const char *)site->address - 1;
        q[taken++].user = site;
    }
    return taken;
}
MLI_PRIVATE MLI_COLD void mli_places_name(memlord *lord) {
    mli_site_record *first = (mli_site_record *)mli_ptr_load_acquire(&lord->sites->places), *site;
    const mli_site_record *end = (mli_site_record *)mli_ptr_load_acquire(&lord->sites->named);
    size_t i, n = 0, taken;
    mli_symbol_query *q;
    for (site = first; site != end && site; site = site->before) n++;
    if (!n) return;
    q = (mli_symbol_query *)mli_own_alloc(lord, n * sizeof *q);
    if (!q) return; /* each site then gets its name when it is displayed */
    taken = mli_places_take(lord, first, end, q, n);
    mli_symbols_sort(q, taken);
    mli_symbols_at(q, taken);
    for (i = 0; i < taken; i++) {
        memlord_site named;
        site = (mli_site_record *)q[i].user;
        named = *(const memlord_site *)mli_ptr_load_acquire(&site->display);
        if (!q[i].name || named.function[0]) continue;
        named.function = q[i].name;
        (void)mli_site_set_display(lord, site, &named);
    }
    mli_ptr_store_release(&lord->sites->named, first); /* pairs with the load of `end` */
    mli_own_free(lord, q, n * sizeof *q);
}

MLI_PRIVATE const memlord_site *mli_site_display(memlord *lord, mli_site_record *site) {
    MLI_REQUIRE(mli_none_held());
    const memlord_site *shown = (const memlord_site *)mli_ptr_load_acquire(&site->display);
    memlord_site named = *shown;
    if (!site->address || shown->function[0]) return shown;
    if (mli_u32_exchange(&site->resolved, 1)) return shown;
    named.function = mli_place_function(lord, site);
    if (!named.function) return shown;
    (void)mli_site_set_display(lord, site, &named);
    return (const memlord_site *)mli_ptr_load_acquire(&site->display);
}

MLI_PRIVATE const memlord_site *mli_site_display_of(memlord *lord, const memlord_site *site) {
    MLI_REQUIRE(mli_none_held());
    mli_site_record *record = site ? mli_site_record_of(lord, site) : NULL;
    return record ? mli_site_display(lord, record) : site;
}
MLI_PRIVATE const memlord_site *mli_site_named(memlord *lord, const memlord_site *site,
                                               memlord_site *named) {
    const mli_site_record *record = site ? mli_site_record_of(lord, site) : NULL;
    if (!record || !record->address || site->function[0]) return site;
    *named = *site;
    named->function = mli_place_function(lord, record);
    return named->function ? named : site;
}

MLI_PRIVATE const mli_functions *mli_site_functions(memlord *lord, const memlord_site *site) {
    const mli_site_record *record = site ? mli_site_record_of(lord, site) : NULL;
    return record ? (const mli_functions *)mli_ptr_load_acquire(&record->functions) : NULL;
}

/* Finds or adds the row of a site or a tag on a device. `from` is the origin of the site, or NULL
   if the row is that of a tag. The host may know a site by several addresses, but the site has one
   row on each device. The index has that row under the record of the site. */
static MLI_COLD memlord_result mli_row_find_locked(memlord *lord, const mli_site_origin *from,
                                                   const char *tag, uint32_t dev,
                                                   uint32_t *number) {
    MLI_REQUIRE(mli_lock_held(&mli_process.cold_lock));
    const int book = from ? MLI_BOOK_SITE : MLI_BOOK_TAG;
    uint32_t most = from ? MLI_SITE_ROWS_MAX : MLI_TAG_ROWS_MAX;
    void *subject = (void *)(uintptr_t)tag;
    mli_site_record *site;
    memlord_result r;
    if (from) {
        r = mli_site_find_locked(lord, from, &site);
        if (r) return r;
        subject = site;
    }
    *number = (uint32_t)mli_index_get(lord, mli_index_key(subject, dev));
    if (*number) return MEMLORD_OK;
    if (mli_row_count(lord, book) > most) return MEMLORD_E_NOMEM;
    return mli_row_add_locked(lord, book, dev, subject, mli_index_key(subject, dev), number);
}

MLI_PRIVATE MLI_COLD memlord_result mli_row_find(memlord *lord, int book, const void *identity,
                                                 uint32_t dev, uint32_t *number) {
    mli_site_origin from = {NULL, NULL};
    mli_cold cold = {MEMLORD_OK, NULL, 0, 0};
    if (book == MLI_BOOK_SITE) from = mli_site_origin_of(lord, (const memlord_site *)identity);
    do {
        mli_cold_enter(&cold);
        cold.r = mli_row_find_locked(lord, from.planted ? &from : NULL, (const char *)identity,
                                     dev, number);
    } while (mli_cold_leave(lord, &cold));
    return cold.r;
}

MLI_PRIVATE MLI_COLD uint32_t mli_row_of(memlord *lord, int book, const void *identity,
                                         uint32_t dev) {
    const void *subject = book == MLI_BOOK_SITE ? mli_site_record_of(lord, identity) : identity;
    uint32_t row = subject ? (uint32_t)mli_index_get(lord, mli_index_key(subject, dev)) : 0;
    if (row || mli_row_find(lord, book, identity, dev, &row) == MEMLORD_OK) return row;
    mli_stat_add(lord, dev, MLI_STAT_dropped_sites, 1);
    return 0;
}

/* -- life -- */

MLI_PRIVATE const mli_life mli_sites_life = {MLI_LIFE_STATE(sites), NULL, NULL, NULL, NULL, NULL,
                                             NULL};

/* -- public -- */

MLI_API memlord_result memlord_sites_enable(memlord *lord, int on) {
    if (lord) mli_hook_set(lord, MLI_HOOK_SITES, on);
    return MEMLORD_OK;
}

MEMLORD_API const memlord_site *memlord_site_at(memlord *lord, void *return_address) {
    const mli_site_record *site;
    if (!lord || !return_address) return &mli_no_site;
    site = mli_place_at(lord, return_address);
    return site ? (const memlord_site *)mli_ptr_load_acquire(&site->display) : &mli_no_site;
}

MLI_API memlord_result memlord_site_place(memlord *lord, const memlord_site *site,
                                          memlord_place *out) {
    const mli_site_record *record;
    if (!lord) return MEMLORD_E_UNKNOWN;
    if (!site || !out) return MEMLORD_E_INVALID;
    record = mli_site_record_of(lord, site);
    if (!record || !record->address) return MEMLORD_E_UNKNOWN;
    out->module = record->where ? record->where->image.path : "";
    out->build_id = record->where ? record->where->build_id : "";
    out->offset = record->offset;
    return MEMLORD_OK;
}

MLI_API void *memlord_site_address(memlord *lord, const memlord_site *site) {
    mli_site_record *record = lord && site ? mli_site_record_of(lord, site) : NULL;
    return record ? (void *)(uintptr_t)record->address : NULL;
}

MLI_API memlord_result memlord_site_rename(memlord *lord, const memlord_site *site,
                                           const char *file, const char *function, int line) {
    mli_site_record *record;
    memlord_site shown;
    memlord_result result;
    if (!lord) return MEMLORD_OK;
    if (!site) return MEMLORD_E_INVALID;
    record = mli_site_record_of(lord, site);
    if (!record) return MEMLORD_E_UNKNOWN;
    shown = *mli_site_display(lord, record);
    if (file) shown.file = file;
    if (function) shown.function = function;
    if (line) shown.line = line;
    result = mli_site_set_display(lord, record, &shown);
    if (result == MEMLORD_OK) mli_ptr_store(&record->functions, NULL);
    return result;
}

/* Copies the functions at a return address to `all`, and stores `all` in the site. Returns
   MLI_AGAIN if the caller has to get memory and then call again. */
static MLI_COLD memlord_result mli_site_functions_locked(memlord *lord, mli_site_record *site,
                                                         const memlord_function *from,
                                                         mli_functions *all) {
    memlord_result r = MEMLORD_OK;
    uint32_t i;
    for (i = 0; i < all->count && r == MEMLORD_OK; i++) {
        r = mli_site_copy_locked(lord, &from[i].at, &all->at[i].at);
        all->at[i].library = from[i].library != 0;
    }
    if (r) return r;
    for (i = 0; i + 1 < all->count && all->at[i].library;) i++;
    all->shown = i;
    mli_u32_store(&site->resolved, 1); /* from now on no symbol is looked up, even without a name */
    r = mli_site_display_locked(lord, site, &all->at[i].at);
    if (r) return r;
    mli_ptr_store_release(&site->functions, all); /* pairs with mli_site_functions */
    return MEMLORD_OK;
}
MLI_API memlord_result memlord_site_functions_set(memlord *lord, const memlord_site *site,
                                                  const memlord_function *functions,
                                                  size_t count) {
    const size_t size = sizeof(mli_functions) + count * sizeof *functions;
    mli_site_record *record;
    mli_functions *all;
    mli_cold cold = {MEMLORD_OK, NULL, 0, 0};
    if (!lord) return MEMLORD_OK;
    if (!site || !functions || !count || count > MLI_FUNCTIONS_MAX) return MEMLORD_E_INVALID;
    record = mli_site_record_of(lord, site);
    if (!record || !record->address) return MEMLORD_E_UNKNOWN;
    all = (mli_functions *)mli_own_alloc(lord, size);
    if (!all) return MEMLORD_E_NOMEM;
    all->count = (uint32_t)count;
    all->at = (memlord_function *)(void *)(all + 1);
    do {
        mli_cold_enter(&cold);
        cold.r = mli_site_functions_locked(lord, record, functions, all);
    } while (mli_cold_leave(lord, &cold));
    if (cold.r) mli_own_free(lord, all, size);
    return cold.r;
}
