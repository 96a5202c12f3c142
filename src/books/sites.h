/* Owns the records of sites, and finds the rows whose counters a call changes. Invariants: the
   record of a site lives until the ledger ends; no function here allocates or takes a lock inside a
   shard. Locks: the cold lock; memlord_sites_enable takes only the registry lock. */
#ifndef MLI_BOOKS_SITES_H
#define MLI_BOOKS_SITES_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/atomics.h"
#include "base/ledger.h"

/* When a site is first seen, the ledger makes its record and copies its strings. A site has one row
   for each device on which it is used. The ledger looks up a new struct of the host (memlord_site)
   by its content and its module, because it may know the same site by another struct. The site of a
   return address is known by its place, which is looked up when the address is first seen. The
   index has a return address only if its module is never unloaded. For any other return address
   each call asks which module is there now, because dlclose tells nobody. */

/* A scope: a path of names. services/scopes has the totals. */
typedef struct mli_scope_record {
    uint32_t id;                     /* the number of the scope, from 1 */
    struct mli_scope_record *parent; /* the enclosing scope; NULL if there is none */
    const char *name, *path;         /* kept strings */
    struct mli_site_record *site; /* where the scope was begun; NULL if it was begun by name */
    mli_ptr threads;              /* mli_thread_scope *: the threads' totals in this scope */
    mli_u64 device_ns;            /* the nanoseconds that memlord_scope_device_time has added */
    mli_u64 ended_elsewhere;      /* how many invocations ended on another thread */
    mli_u64 birth; /* a cache of the latest birth that has this scope and no stream. The low 26 bits
                      are the number of the birth, and those above them its mark; 0: none yet */
} mli_scope_record;

#define MLI_CACHE_MAX 8192 /* the most homes of a thread's cache (see mli_cache_entry); a home
                              is an entry at which a look-up may begin */

/* A birth: the mark, the scope and the stream under which blocks were allocated. */
typedef struct mli_birth {
    uint64_t stream;      /* 0 means no stream */
    uint32_t mark, scope; /* the numbers of the mark and of the scope; a scope of 0 means none */
} mli_birth;

/* What a site is made from: a file, a function and a line, and the module whose code they name. A
   line of a header is one site of a module, however many files of the module include the header. In
   another module the line is another site. */
typedef struct mli_site_origin {
    const memlord_site *planted; /* the struct of the host */
    const void *module; /* its module, as mli_module_of returns it; NULL: not known */
} mli_site_origin;

/* A module: an executable or a library in which a return address was seen. The record lives until
   the ledger ends, because sites refer to modules that are unloaded. A place is a module, its build
   id, and the offset of a call in the file of the module. */
typedef struct mli_module {
    uint32_t number;         /* from 1, in the order in which modules are seen */
    struct mli_module *next; /* the module that was seen before this one */
    mli_ptr same;            /* mli_module *: another one that was loaded at this address */
    mli_image image;         /* with kept strings; only mli_module_has_id may read its `id` */
    const char *build_id;    /* a kept string, in hexadecimal; "" if the module has none */
    unsigned char id[MLI_BUILD_ID_MAX];
} mli_module;

#define MLI_FUNCTIONS_MAX 256 /* the most functions at one return address */

/* The functions at a return address, the innermost first. Each is inlined in the next one. */
typedef struct mli_functions {
    uint32_t count, shown; /* how many functions there are, at least 1; the index of the one that
                              stands for the site: see memlord_site_functions_set */
    memlord_function *at;  /* the functions, which follow this struct in memory */
} mli_functions;

typedef struct mli_site_record {
    memlord_site original;   /* what reports display until it is renamed or named by a symbol */
    mli_ptr display;         /* const memlord_site *: what reports display now */
    mli_ptr functions;       /* const mli_functions *: the functions at the return address; NULL if
                                only the displayed function is known */
    const void *address;     /* where it was first seen; NULL: the site is a struct of the host */
    const void *module;      /* the module of a struct of the host (see mli_site_origin) */
    const mli_module *where; /* the module that has the return address; NULL if none has it */
    uint64_t offset;         /* the offset of the byte before the return address, in the file of the
                                module; this byte lies inside the call */
    mli_u32 resolved;        /* 1: the symbol of `address` was looked up */
    struct mli_site_record *before; /* the next older site of a return address, or NULL */
    uint32_t frame;          /* its number among the frames of stacks; 0: it is in none */
} mli_site_record;

/* Returns the module that was seen last, or NULL; its `next` is the one before it. */
MLI_PRIVATE mli_module *mli_module_newest(const memlord *lord);

/* Two empty strings and line 0. */
MLI_TABLE(const memlord_site mli_no_site)

/* Returns the site that the index has for `identity`, a struct of the host or a return address.
   Returns NULL if the index has none. */
MLI_PRIVATE MLI_NOINLINE mli_site_record *mli_site_record_of(memlord *lord, const void *identity);

/* Finds or makes the site of `from`, and leaves room for one more key in the index. */
MLI_PRIVATE MLI_COLD memlord_result mli_site_content_locked(memlord *lord,
                                                            const mli_site_origin *from,
                                                            mli_site_record **out);
/* Finds or makes the site of a struct of the host, and adds the struct to the index. */
MLI_PRIVATE MLI_COLD memlord_result mli_site_find_locked(memlord *lord, const mli_site_origin *from,
                                                         mli_site_record **out);

/* Returns the origin of a memlord_site that the host declared. Requires: the caller holds no lock,
   except perhaps the orphan lock, which guards the record for threads without a record of their
   own. While the function searches for the module, mli_busy_begin drops this lock. */
MLI_PRIVATE MLI_COLD mli_site_origin mli_site_origin_of(memlord *lord, const memlord_site *planted);

/* Returns the ledger's copy of a site, which lives as long as the ledger, or NULL. */
MLI_PRIVATE MLI_COLD const memlord_site *mli_site_kept(memlord *lord, const memlord_site *planted);
/* Returns the site of a return address that is not in the index, or NULL. */
MLI_PRIVATE MLI_COLD mli_site_record *mli_place_of(memlord *lord, const void *address);
/* Returns the site of a return address, or NULL if there is no memory. */
static MLI_HOT mli_site_record *mli_place_at(memlord *lord, const void *address) {
    mli_site_record *site = mli_site_record_of(lord, address);
    return MLI_LIKELY(site != NULL) ? site : mli_place_of(lord, address);
}
/* Looks up the symbol of each return address that was not looked up before. Reads the symbols of
   each module once. A caller that displays many sites calls this function first. Requires: the
   caller holds no lock of the ledger (see mli_place_function). */
MLI_PRIVATE MLI_COLD void mli_places_name(memlord *lord);
/* Returns a site as reports display it. Looks up the symbol of a return address, which would be too
   slow for a recording call, because it reads all symbols of the module. Requires: the caller holds
   no lock of the ledger (see mli_place_function). */
MLI_PRIVATE const memlord_site *mli_site_display(memlord *lord, mli_site_record *site);

/* Returns what reports display now for a site. The result changes once the symbol of the site's
   return address is found. Requires: the caller holds no lock of the ledger. */
MLI_PRIVATE const memlord_site *mli_site_display_of(memlord *lord, const memlord_site *site);
/* Does the same without an allocation. A symbol that it looks up goes to *named only. */
MLI_PRIVATE const memlord_site *mli_site_named(memlord *lord, const memlord_site *site,
                                               memlord_site *named);

/* Returns the functions at a return address; NULL: only the displayed one is known. */
MLI_PRIVATE const mli_functions *mli_site_functions(memlord *lord, const memlord_site *site);

/* Gets the row of a site or a tag on a device, and adds it on first use. */
MLI_PRIVATE MLI_COLD memlord_result mli_row_find(memlord *lord, int book, const void *identity,
                                                 uint32_t dev, uint32_t *number);

/* Returns the row of a site or a tag on a device, and adds it on first use. If there is no room for
   the row, returns 0 and adds 1 to dropped_sites. */
MLI_PRIVATE MLI_COLD uint32_t mli_row_of(memlord *lord, int book, const void *identity,
                                         uint32_t dev);

MLI_TABLE(const mli_life mli_sites_life)

#endif
