/* One line in several files: USE names the function of this one. Without USE, the program: it is
   linked with two such files, and with two libraries of one such file each. */
#include "memlord.h"

#if defined(USE)
void USE(memlord *lord, uint64_t storage);
void USE(memlord *lord, uint64_t storage) {
    static const memlord_site place = {__FILE__, "line", 1};
    (void)memlord_alloc(lord, memlord_device_cpu(), storage, storage, &place);
}
#else
void in_a(memlord *lord, uint64_t storage);
void in_b(memlord *lord, uint64_t storage);
void in_library_c(memlord *lord, uint64_t storage);
void in_library_d(memlord *lord, uint64_t storage);

int main(void) {
    memlord_site_stat rows[8];
    memlord *lord = NULL;
    size_t n;
    (void)memlord_create(NULL, &lord);
    (void)memlord_sites_enable(lord, 1);
    in_a(lord, 4096);
    in_b(lord, 8192);
    in_library_c(lord, 256);
    in_library_d(lord, 512);
    n = memlord_sites_top(lord, memlord_device_all(), MEMLORD_SITE_ORDER_ALLOC_BYTES, rows, 8);
    return n != 3 || rows[0].allocs != 2 || rows[0].alloc_bytes != 4096 + 8192 ||
           rows[1].alloc_bytes != 512 || rows[2].alloc_bytes != 256;
}
#endif
