#include "books/devices.h"
#include "base/atomics.h"
#include "base/text.h"
#include "base/log.h"
#include "books/map.h"
#include "books/counters.h"
#include "books/names.h"

MLI_PRIVATE const unsigned char mli_type_host[] = {
#define MLI_X(name, text, host) host,
    MLI_DEVICE_TYPES(MLI_X)
#undef MLI_X
};
MLI_PRIVATE MLI_NOINLINE int mli_selector_valid(memlord_device d) {
    return mli_type_valid(d) || (d.type == MEMLORD_ANY && d.index == MEMLORD_ANY);
}
MLI_PRIVATE MLI_NOINLINE int mli_selects(memlord_device sel, memlord_device d) {
    return sel.type == MEMLORD_ANY ||
           (sel.type == d.type && (sel.index == MEMLORD_ANY || sel.index == d.index));
}

MLI_PRIVATE uint64_t mli_device_key(memlord_device d) {
    return (uint64_t)MLI_INDEX_SUBJECT << 56 | (uint64_t)1 << 55 | mli_device_word(d);
}

MLI_PRIVATE MLI_COLD mli_phys *mli_phys_storage(memlord *lord, uint32_t i) {
    return i ? &mli_device_record_at(lord, i)->own_phys : &lord->devices.host_phys;
}

MLI_PRIVATE MLI_COLD void mli_polling_set(memlord *lord, uint32_t polling) {
    (void)mli_u32_exchange(&lord->devices.polling, polling); /* pairs with mli_helper_start */
}
MLI_PRIVATE MLI_COLD int mli_polling_is(const memlord *lord, uint32_t polling) {
    return mli_u32_load(&lord->devices.polling) == polling;
}
MLI_PRIVATE MLI_COLD void mli_types_watch(memlord *lord, uint32_t types) {
    mli_u32_store(&lord->devices.watched_types, types);
}
MLI_PRIVATE uint32_t mli_types_watched(const memlord *lord, uint32_t types) {
    return mli_u32_load(&lord->devices.watched_types) & types;
}

MLI_PRIVATE MLI_NOINLINE uint32_t mli_dev_known(memlord *lord, memlord_device d) {
    uint32_t dev = mli_dev_direct(lord, d);
    if (MLI_LIKELY(dev != 0)) return dev;
    return mli_device_valid(d) ? (uint32_t)mli_index_get(lord, mli_device_key(d)) : 0;
}

/* Gets the dev of a device, and makes its record and row on first use, or uses the record of an
   earlier try. Returns MEMLORD_E_DEVICE if there are already MEMLORD_MAX_DEVICES. */
static MLI_COLD memlord_result mli_device_add_locked(memlord *lord, memlord_device d,
                                                     uint32_t *dev) {
    MLI_REQUIRE(mli_lock_held(&mli_process.cold_lock));
    uint32_t n = mli_row_count(lord, MLI_BOOK_DEVICE);
    mli_device_record *device;
    memlord_result r;
    *dev = mli_dev_known(lord, d);
    if (*dev) return MEMLORD_OK;
    if (n > MEMLORD_MAX_DEVICES) return MEMLORD_E_DEVICE;
    device = mli_device_record_at(lord, n);
    if (!device) {
        device = (mli_device_record *)mli_cold_alloc(lord, sizeof *device);
        if (!device) return MLI_AGAIN;
        mli_ptr_store(&lord->devices.at[n], device);
    }
    device->device = d;
    mli_lock_rank(&device->own_phys.lock, MLI_RANK_PHYS);
    device->own_phys.lord = lord;
    device->own_phys.device = d;
    mli_ptr_store_release(&device->phys,
                          mli_type_host[d.type] ? mli_phys_storage(lord, 0) : &device->own_phys);
    mli_type_set(lord, n, d.type);
    mli_dev_alerts_set(lord, n, d.type);
    r = mli_row_add_locked(lord, MLI_BOOK_DEVICE, n, device, mli_device_key(d), dev);
    if (r == MEMLORD_OK && mli_polling_is(lord, MLI_POLLING_ALL))
        mli_alert_set(lord, MLI_ALERT_POLLER, 1);
    if (r == MEMLORD_OK && mli_types_watched(lord, 1u << d.type))
        mli_check_request(lord, n);
    if (r == MEMLORD_OK) mli_dev_direct_set(lord, d, n);
    return r;
}

MLI_PRIVATE MLI_NOINLINE memlord_result mli_dev(memlord *lord, memlord_device d, uint32_t *dev) {
    mli_cold cold = {MEMLORD_OK, NULL, 0, 0};
    *dev = mli_dev_known(lord, d);
    if (MLI_LIKELY(*dev != 0)) return MEMLORD_OK;
    if (!mli_device_valid(d)) return MEMLORD_E_DEVICE;
    if (mli_self.in_host_alloc) return MEMLORD_E_STATE;
    do {
        mli_cold_enter(&cold);
        cold.r = mli_device_add_locked(lord, d, dev);
    } while (mli_cold_leave(lord, &cold));
    return cold.r;
}

MLI_PRIVATE memlord_result mli_dev_named(memlord *lord, memlord_device d, uint32_t *dev) {
    uint32_t i, n = mli_row_count(lord, MLI_BOOK_DEVICE);
    for (i = 1; i < n && 0 > d.index; i++)
        if (mli_type_of(lord, i) == d.type) d = mli_device_record_at(lord, i)->device;
    if (d.index < 0) d.index = 0;
    return mli_dev(lord, d, dev);
}

/* The names that other programs, such as PyTorch, have for a device type. */
static const struct {
    char name[11];
    signed char type;
} mli_type_aliases[] = {{"cuda_host", MEMLORD_DEVICE_PINNED}, /* before "cuda" */
                        {"cpu_mapped", MEMLORD_DEVICE_MAPPED},
                        {"mps", MEMLORD_DEVICE_METAL},
                        {"xpu", MEMLORD_DEVICE_SYCL},
                        {"rocm", MEMLORD_DEVICE_HIP}};
enum { MLI_TYPE_ALIASES = sizeof mli_type_aliases / sizeof mli_type_aliases[0] };

/* Returns the rest of a text after a word, or NULL if the text does not begin with the word. `word`
   is in lower case; the case of the text does not matter. */
static const char *mli_skip_word(const char *text, const char *word) {
    while (*word && mli_ascii_lower(*text) == *word) text++, word++;
    return *word ? NULL : text;
}
/* Returns the rest of a text after the name of a device type, or NULL if it has none. */
static const char *mli_skip_type(const char *text, int *type) {
    const char *rest;
    int i;
    for (i = 0; i < MLI_TYPE_ALIASES + MLI_TYPE_COUNT; i++) {
        const int own = i - MLI_TYPE_ALIASES;
        *type = own < 0 ? mli_type_aliases[i].type : own;
        rest = mli_skip_word(text, own < 0 ? mli_type_aliases[i].name : mli_type_names[own]);
        if (rest) return rest;
    }
    return NULL;
}

/* -- life -- */

static MLI_COLD void mli_devices_init(memlord *lord, const memlord_desc *desc) {
    mli_phys *host = mli_phys_storage(lord, 0);
    (void)desc;
    mli_lock_rank(&host->lock, MLI_RANK_PHYS);
    host->lord = lord;
    host->device = memlord_device_cpu();
}
MLI_PRIVATE const mli_life mli_devices_life = {0, 0, mli_devices_init, NULL, NULL, NULL, NULL,
                                               NULL};

/* -- public -- */

MLI_API memlord_result memlord_device_parse(const char *text, memlord_device *out) {
    const char *rest;
    uint64_t index;
    int type;
    if (!text || !out) return MEMLORD_E_INVALID;
    rest = mli_skip_word(text, "all");
    if (rest && !*rest) {
        *out = memlord_device_all();
        return MEMLORD_OK;
    }
    rest = mli_skip_type(text, &type);
    if (!rest) return MEMLORD_E_INVALID;
    if (!*rest) {
        *out = memlord_device_make(type, type <= MEMLORD_DEVICE_MAPPED ? 0 : MEMLORD_ANY);
        return MEMLORD_OK;
    }
    if (*rest == ':') rest++;
    if (!*rest) return MEMLORD_E_INVALID;
    rest = mli_read_u64(rest, &index);
    if (!rest || *rest || index > INT16_MAX) return MEMLORD_E_INVALID;
    *out = memlord_device_make(type, (int)index);
    return MEMLORD_OK;
}

MLI_API size_t memlord_device_name(memlord_device device, char *buf, size_t cap) {
    mli_out o;
    mli_out_buffer(&o, buf, cap);
    mli_put_device(&o, device);
    return mli_out_end(&o, cap);
}

MLI_API memlord_result memlord_device_label_set(memlord *lord, memlord_device device,
                                                const char *text) {
    uint32_t dev;
    const char *kept;
    memlord_result r;
    if (!lord) return MEMLORD_OK;
    if (!text || !*text) { /* removing a label does not add the device */
        dev = mli_dev_known(lord, device);
        if (!dev) return mli_device_valid(device) ? MEMLORD_OK : MEMLORD_E_DEVICE;
        text = NULL;
    }
    r = mli_dev(lord, device, &dev);
    if (r) return r;
    r = mli_name(lord, text, &kept);
    if (r) return r;
    mli_ptr_store_release(&mli_device_record_at(lord, dev)->label, (void *)(uintptr_t)kept);
    return MEMLORD_OK;
}

MLI_API size_t memlord_devices(memlord *lord, memlord_device *out, size_t cap) {
    uint32_t i, n;
    if (!lord) return 0;
    n = mli_row_count(lord, MLI_BOOK_DEVICE) - 1;
    for (i = 0; i < n && i < cap && out; i++) out[i] = mli_device_record_at(lord, i + 1)->device;
    return n;
}
