/* Owns the devs, the numbers of the devices from 1, in the order in which calls first name them.
   Invariants: a dev is never removed or reused; the row count, the index and the map show a dev to
   other threads only when all data of its device is set. Lock: the cold lock. */
#ifndef MLI_BOOKS_DEVICES_H
#define MLI_BOOKS_DEVICES_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "base/ledger.h"
#include "books/threads.h"

enum {                /* mli_polling_set: which pollers run */
    MLI_POLLING_AUTO, /* pollers run for the devices whose bands can request a collection */
    MLI_POLLING_ALL,  /* pollers run for all devices: memlord_poller_start */
    MLI_POLLING_OFF   /* no pollers run: memlord_poller_stop */
};

/* For each device type: 1 if its bytes are in main memory, which is one phys. */
MLI_TABLE(const unsigned char mli_type_host[])

static MLI_HOT int mli_device_valid(memlord_device d) {
    return (unsigned)d.type < (unsigned)MLI_TYPE_COUNT && d.index >= 0;
}
/* Returns 1 if the argument names one device, or all devices of a type. */
static MLI_HOT int mli_type_valid(memlord_device d) {
    return (unsigned)d.type < (unsigned)MLI_TYPE_COUNT && d.index >= MEMLORD_ANY;
}
/* Returns 1 if the argument names one device, all devices of a type, or all devices. */
MLI_PRIVATE MLI_NOINLINE int mli_selector_valid(memlord_device d);
MLI_PRIVATE MLI_NOINLINE int mli_selects(memlord_device sel, memlord_device d);

/* Returns the key of a device in the index. Bit 55 is set in this key and in no address. */
MLI_PRIVATE uint64_t mli_device_key(memlord_device d);
/* Returns the dev of a device, or 0. The acquire load pairs with mli_device_add_locked. */
MLI_PRIVATE MLI_NOINLINE uint32_t mli_dev_known(memlord *lord, memlord_device d);

/* Returns phys i: main memory, which cpu, pinned and mapped share, if i is 0; else the own_phys of
   dev i, which is unused if the device uses another one. */
MLI_PRIVATE MLI_COLD mli_phys *mli_phys_storage(memlord *lord, uint32_t i);

/* Sets which pollers run, as MLI_POLLING_..., for known devices and for new ones. */
MLI_PRIVATE MLI_COLD void mli_polling_set(memlord *lord, uint32_t polling);
/* Returns 1 if the last call of mli_polling_set had this `polling`. */
MLI_PRIVATE MLI_COLD int mli_polling_is(const memlord *lord, uint32_t polling);

/* Sets the device types, a bit each, on which a strategy can be in force, also for new devices. */
MLI_PRIVATE MLI_COLD void mli_types_watch(memlord *lord, uint32_t types);
/* Returns those bits of the mask `types` that mli_types_watch has set. */
MLI_PRIVATE uint32_t mli_types_watched(const memlord *lord, uint32_t types);

/* Gets the dev of a device, and adds the device on first use. Returns MEMLORD_E_STATE if the device
   is new and the ledger's own allocator makes the call. */
MLI_PRIVATE MLI_NOINLINE memlord_result mli_dev(memlord *lord, memlord_device d, uint32_t *dev);

/* Gets the dev on which to count the free of an unknown storage: that of `d` or, if `d` names only
   a type, the first of the type or, if it has none, that of index 0. */
MLI_PRIVATE memlord_result mli_dev_named(memlord *lord, memlord_device d, uint32_t *dev);

MLI_TABLE(const mli_life mli_devices_life)

#endif
