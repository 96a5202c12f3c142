/* Owns the records of sites, and chooses the rows that a call counts on. May use books/names,
   books/counters and books/devices. Invariants: a site's record is not freed before the ledger
   ends; nothing here allocates or takes a lock inside a shard. Lock: cold; memlord_sites_enable
   takes registry alone. */
#ifndef MLI_BOOKS_SITES_H
#define MLI_BOOKS_SITES_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/atomics.h"
#include "base/ledger.h"

/* A site's record is made, and its strings are copied, when the site is first seen. A site has one
   row on each device where it is used. A new struct of the host is compared by its content and its
   module, because it may be a known site. The site of a return address is known by its place, which
   is looked up when the address is first seen. The index has the address only if the module stays
   loaded. For any other address each call asks which module is there now, because dlclose tells
   nobody. */

typedef struct mli_scope_record {
    uint32_t id;
    struct mli_scope_record *parent;
    const char *name, *path;      /* kept */
    struct mli_site_record *site; /* NULL: the scope was begun by name */
    mli_ptr threads;              /* mli_thread_scope *; push only */
    mli_u64 device_ns;
    mli_u64 ended_elsewhere;      /* invocations that ended on another thread than they began */
    mli_u64 birth; /* the last birth in this scope on no stream: mark:26 | number:26; 0: none yet */
} mli_scope_record;

#define MLI_CACHE_MAX 8192 /* the most homes of a cache that has memory of its own */

/* The mark, the scope and the stream that blocks have in common. */
typedef struct mli_birth {
    uint64_t stream; /* 0: none */
    uint32_t mark, scope; /* scope 0: none */
} mli_birth;

/* What a site is made from: a file, function and line, in the module that has them. If several
   files include a header, a line of it is one site; but it is another site in each library. */
typedef struct mli_site_origin {
    const memlord_site *planted;
    const void *module; /* by mli_module_of; NULL: not known */
} mli_site_origin;

/* A module (an executable or a library) that had a return address. The record is kept to the end,
   because sites refer to a module that is unloaded. A place is a module, its build id, and the
   offset of a call in its file. */
typedef struct mli_module {
    uint32_t number;         /* from 1, in the order they are seen */
    struct mli_module *next; /* the module that was seen before this one */
    mli_ptr same;            /* mli_module *: another that was loaded at the same start */
    mli_image image;         /* its strings are kept ones; `id` may be read only as
                                mli_module_has_id does */
    const char *build_id;    /* a kept string, in hexadecimal; "": the module has none */
    unsigned char id[MLI_BUILD_ID_MAX];
} mli_module;

typedef struct mli_site_record {
    memlord_site original;   /* displayed until the site is renamed or resolved */
    mli_ptr display;         /* const memlord_site *; a rename replaces the whole struct */
    const void *address;     /* the first return address; NULL: the site is a struct of the host */
    const void *module;      /* the module of a struct of the host: see mli_site_origin */
    const mli_module *where; /* the module of a return address; NULL: the address was in none */
    uint64_t offset;         /* the offset in the file of the byte before the return address, which
                                lies inside the call */
    mli_u32 resolved;        /* 1: the symbol of `address` was looked up */
    uint32_t frame;          /* the number of the site among the frames of stacks; 0: it is in no
                                stack */
} mli_site_record;

/* Returns the module that was seen last, whose `next` was seen before it; NULL: none was. */
MLI_PRIVATE mli_module *mli_module_newest(const memlord *lord);

MLI_TABLE(const memlord_site mli_no_site)

MLI_PRIVATE MLI_NOINLINE mli_site_record *mli_site_record_of(memlord *lord, const void *identity);

/* Finds or makes the site of a place, and leaves room for one more key in the index. */
MLI_PRIVATE MLI_COLD memlord_result mli_site_content_locked(memlord *lord,
                                                            const mli_site_origin *from,
                                                            mli_site_record **out);
/* Finds or makes the site of a struct of the host. The index has it under each pointer, too. */
MLI_PRIVATE MLI_COLD memlord_result mli_site_find_locked(memlord *lord, const mli_site_origin *from,
                                                         mli_site_record **out);

/* Returns the origin of a struct of the host. Requires: no lock is held but the orphan lock, which
   mli_busy_begin drops. */
MLI_PRIVATE MLI_COLD mli_site_origin mli_site_origin_of(memlord *lord, const memlord_site *planted);

/* Returns the ledger's copy of a site, for data that outlives the call; NULL without memory. */
MLI_PRIVATE MLI_COLD const memlord_site *mli_site_kept(memlord *lord, const memlord_site *planted);
/* Returns the site of a return address that the index does not have; NULL without memory. */
MLI_PRIVATE MLI_COLD mli_site_record *mli_place_of(memlord *lord, const void *address);
/* Returns the site of a return address; NULL without memory. */
static MLI_HOT mli_site_record *mli_place_at(memlord *lord, const void *address) {
    mli_site_record *site = mli_site_record_of(lord, address);
    return MLI_LIKELY(site != NULL) ? site : mli_place_of(lord, address);
}
/* Returns a site as reports display it. A return address gets its symbol when it is first
   displayed: dladdr walks a module's symbols, which is too slow for a recording call. Requires: as
   mli_place_function. */
MLI_PRIVATE const memlord_site *mli_site_display(memlord *lord, mli_site_record *site);

/* Returns the struct by which a listed site is displayed now. Requires: as mli_site_display. */
MLI_PRIVATE const memlord_site *mli_site_display_of(memlord *lord, const memlord_site *site);
/* The same without an allocation: what is looked up goes to *named, and is not kept. */
MLI_PRIVATE const memlord_site *mli_site_named(memlord *lord, const memlord_site *site,
                                               memlord_site *named);

MLI_PRIVATE MLI_COLD memlord_result mli_row_find(memlord *lord, int book, const void *identity,
                                                 uint32_t dev, uint32_t *number);

/* Returns the row of a site or a tag on a device, and adds it on first use. Returns 0 without room
   for it, and counts that in dropped_sites. */
MLI_PRIVATE MLI_COLD uint32_t mli_row_of(memlord *lord, int book, const void *identity,
                                         uint32_t dev);

MLI_PRIVATE MLI_COLD void mli_sites_life(mli_life *life);

#endif
