/* Owns the devs: the numbers of the devices, from 1, in the order in which calls first name the
   devices. A row has the counters of a device. A poller is a thread that samples the capacity of
   devices. A selector is a memlord_device that may name several devices. May use books/names and
   books/counters. Invariants: a dev is never removed or reused. The row count, the index
   (books/names) and the map show a dev to other threads only when all data of its device is set.
   Lock: the cold lock. */
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

/* For each device type: 1 if its bytes are in main memory. All such types share one physical
   device. */
MLI_TABLE(const unsigned char mli_type_host[])

/* Returns 1 if the argument names one device. */
static MLI_HOT int mli_device_valid(memlord_device d) {
    return (unsigned)d.type < (unsigned)MLI_TYPE_COUNT && d.index >= 0;
}
/* Returns 1 if the argument names one device, or all devices of a type. */
static MLI_HOT int mli_type_valid(memlord_device d) {
    return (unsigned)d.type < (unsigned)MLI_TYPE_COUNT && d.index >= MEMLORD_ANY;
}
/* Returns 1 if the argument names one device, all devices of a type, or all devices. */
MLI_PRIVATE MLI_NOINLINE int mli_selector_valid(memlord_device d);
/* Returns 1 if a selector includes a device. */
MLI_PRIVATE MLI_NOINLINE int mli_selects(memlord_device sel, memlord_device d);

/* Returns the key of a device in the index of names. Bit 55 is set in this key and in no address,
   so the key of a device never equals the key of an address. */
MLI_PRIVATE uint64_t mli_device_key(memlord_device d);
/* Returns the dev of a device, or 0 if it has none yet. The acquire load pairs with the release
   store in mli_device_add_locked. */
MLI_PRIVATE MLI_NOINLINE uint32_t mli_dev_known(memlord *lord, memlord_device d);

/* Returns the record of physical device i. Record 0 is the machine's main memory, which cpu, pinned
   and mapped share. Any other record i is the own_phys of the device with dev i. That record is
   unused if the device uses another record. */
MLI_PRIVATE MLI_COLD mli_phys *mli_phys_storage(memlord *lord, uint32_t i);

/* Sets which pollers run, as MLI_POLLING_..., for known devices and for new ones. */
MLI_PRIVATE MLI_COLD void mli_polling_set(memlord *lord, uint32_t polling);
/* Returns 1 if the last call of mli_polling_set had this `polling`. */
MLI_PRIVATE MLI_COLD int mli_polling_is(const memlord *lord, uint32_t polling);

/* Sets the device types on which a strategy (services/bands) can be in force, one bit for each
   type. The bands of a new device of such a type are then checked. */
MLI_PRIVATE MLI_COLD void mli_types_watch(memlord *lord, uint32_t types);
/* Returns those bits of the mask `types` that mli_types_watch has set. */
MLI_PRIVATE uint32_t mli_types_watched(const memlord *lord, uint32_t types);

/* Gets the dev of a device, and adds the device on first use. Returns MEMLORD_E_STATE if the device
   is new and the ledger's own allocator makes the call. */
MLI_PRIVATE MLI_NOINLINE memlord_result mli_dev(memlord *lord, memlord_device d, uint32_t *dev);

/* Gets the dev on which to count the free of an unknown storage: the dev of `d`. If `d` names a
   type but no index, gets the first dev of the type. If the type has no dev yet, gets the dev of
   index 0. */
MLI_PRIVATE memlord_result mli_dev_named(memlord *lord, memlord_device d, uint32_t *dev);

MLI_TABLE(const mli_life mli_devices_life)

#endif
