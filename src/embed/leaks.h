/* Logs what a ledger that ends still has: the live bytes of each device, and the sites and tags
   that hold most of them. Owns no state. May use services/stats and the walks of books/listing.
   Locks: none of its own. */
#ifndef MLI_EMBED_LEAKS_H
#define MLI_EMBED_LEAKS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"

/* Logs the live bytes and blocks of each device and, if sites or tags are known, the ten groups of
   blocks with the most bytes. */
MLI_PRIVATE MLI_COLD void mli_log_leaks(memlord *lord);

#endif
