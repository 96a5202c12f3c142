/* Has memlord_alloc, memlord_free and memlord_release, which serve most calls here, and send the
   others to the general path, calls/record. Owns no state. Invariants: a call changes nothing
   before it is sure to succeed, and counts its block before it leaves the shard; only the count at
   the site that calls free may come later. Locks: none is held when a call returns. */
#ifndef MLI_CALLS_FAST_H
#define MLI_CALLS_FAST_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/ledger.h"
#include "books/map.h"

enum { MLI_PASS = -1 }; /* the fast way does not serve the call, and has changed nothing */

/* Records an alloc with options on the fast way. `opts` may be NULL. Returns MEMLORD_OK or
   MLI_PASS. */
MLI_PRIVATE MLI_NOINLINE int mli_alloc_fast(memlord *lord, memlord_device device, uint64_t storage,
                                            uint64_t bytes, const memlord_site *site,
                                            const memlord_alloc_opts *opts);

/* Adds a reference to a block (by = 1), or takes off one that is not the last (by = -1). Returns
   MEMLORD_OK or MLI_PASS. */
MLI_PRIVATE MLI_NOINLINE int mli_refer_fast(memlord *lord, memlord_device device, uint64_t storage,
                                            int by);

/* Records a realloc that left the block where it was. Returns MEMLORD_OK or MLI_PASS. */
MLI_PRIVATE MLI_NOINLINE int mli_resize_fast(memlord *lord, memlord_device device, uint64_t storage,
                                             uint64_t bytes, const memlord_site *site);
/* Takes a block off the map, as mli_entry_detach does. word[0] and word[1] get its word1 and word2,
   and *slot the number of its slot. Returns MEMLORD_OK or MLI_PASS. */
MLI_PRIVATE MLI_NOINLINE int mli_detach_fast(memlord *lord, memlord_device device, uint64_t storage,
                                             uint64_t *word, uint32_t *slot);
/* Returns MEMLORD_OK if mli_attach_fast will most likely find room for a key in its home, and
   serves this size and device. Else returns MLI_PASS. */
MLI_PRIVATE MLI_NOINLINE int mli_room_fast(memlord *lord, memlord_device device, uint64_t storage,
                                           uint64_t bytes);
/* Puts a detached block on the map with a new key and size, as a realloc does. Returns MEMLORD_OK
   or MLI_PASS. */
MLI_PRIVATE MLI_NOINLINE int mli_attach_fast(memlord *lord, memlord_device device,
                                             const mli_entry *from, uint32_t slot,
                                             uint64_t storage, uint64_t bytes,
                                             const memlord_site *site);

#endif
