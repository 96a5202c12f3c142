/* Logs what a ledger that ends still has: the live bytes of each device, and the sites and tags
   that hold most of them. Owns no state. Locks: none of its own. */
#ifndef MLI_EMBED_LEAKS_H
#define MLI_EMBED_LEAKS_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"

/* Logs what is live on each device and, if sites or tags are known, the ten largest groups. */
MLI_PRIVATE MLI_COLD void mli_log_leaks(memlord *lord);

#endif
