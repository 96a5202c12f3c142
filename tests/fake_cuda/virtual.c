/* Physical memory by handle, and where it is mapped. Included by fake_cuda.c. */

enum { PHYSICAL = 256, MAPS = 256, RANGES = 32, GRAIN = 2 << 20 };
#define FIRST_RANGE UINT64_C(0x600000000000)

static struct {
    uint64_t bytes;
    int device, handles, maps; /* device -1: the host's; -2: of another process */
} physical[PHYSICAL];
static struct {
    uint64_t at, bytes;
    int of; /* 1 + its place in physical; 0: none */
} maps[MAPS];
static struct {
    uint64_t at, bytes;
} ranges[RANGES];
static uint64_t next_range;

static void virtual_reset(void) {
    memset(physical, 0, sizeof physical);
    memset(maps, 0, sizeof maps);
    memset(ranges, 0, sizeof ranges);
    next_range = FIRST_RANGE;
}

static uint64_t virtual_live(void) {
    uint64_t n = 0;
    int i;
    for (i = 0; i < PHYSICAL; i++)
        n += (physical[i].handles || physical[i].maps) && physical[i].device != -2;
    return n;
}

/* Handles come again at once; memory that is neither held nor mapped is gone. */
static void physical_drop(int i) {
    if (physical[i].handles || physical[i].maps) return;
    if (physical[i].device >= 0) fake.device[physical[i].device].physical -= physical[i].bytes;
    memset(&physical[i], 0, sizeof physical[i]);
}

static int physical_new(uint64_t bytes, int device, unsigned long long *handle) {
    int i = 0;
    while (i < PHYSICAL && (physical[i].handles || physical[i].maps)) i++;
    if (i == PHYSICAL) return cudaErrorMemoryAllocation;
    physical[i].bytes = bytes;
    physical[i].device = device;
    physical[i].handles = 1;
    if (device >= 0) fake.device[device].physical += bytes;
    *handle = (unsigned long long)i + 1;
    return 0;
}

static int physical_held(unsigned long long handle) {
    return handle && handle <= PHYSICAL && physical[handle - 1].handles > 0;
}

int fake_cuMemCreate(unsigned long long *handle, size_t bytes, const void *prop,
                     unsigned long long flags) {
    int r = begin("cuMemCreate"), of[4] = {0, 0, 0, 0}, device;
    if (prop) memcpy(of, prop, sizeof of); /* type, handle types, the location's type and id */
    device = of[2] == 1 ? of[3] : -1;
    if (!r && (!handle || flags || !bytes || bytes % GRAIN || of[0] != 1 || of[2] < 1 ||
               of[2] > 4 || device >= fake.devices))
        r = cudaErrorInvalidValue;
    if (!r && device >= 0 && used(device) + bytes > fake.device[device].total)
        r = cudaErrorMemoryAllocation;
    return leave(r ? r : physical_new(bytes, device, handle));
}

int fake_cuMemRelease(unsigned long long handle) {
    int r = begin("cuMemRelease");
    if (!r && !physical_held(handle)) r = cudaErrorInvalidValue;
    if (r) return leave(r);
    physical[handle - 1].handles--;
    physical_drop((int)handle - 1);
    return leave(0);
}

int fake_cuMemImportFromShareableHandle(unsigned long long *handle, void *shared, int type) {
    int r = begin("cuMemImportFromShareableHandle");
    (void)shared, (void)type;
    return leave(r ? r : physical_new(GRAIN, -2, handle));
}

static int overlaps(uint64_t at, uint64_t bytes, uint64_t other, uint64_t other_bytes) {
    return other_bytes && at < other + other_bytes && other < at + bytes;
}

int fake_cuMemMap(unsigned long long ptr, size_t bytes, size_t offset, unsigned long long handle,
                  unsigned long long flags) {
    int r = begin("cuMemMap"), i, room = -1, reserved = 0;
    for (i = 0; i < RANGES; i++)
        reserved |= ptr >= ranges[i].at && ptr + bytes <= ranges[i].at + ranges[i].bytes;
    if (!r && (!physical_held(handle) || flags || !bytes || bytes % GRAIN || !reserved ||
               offset + bytes > physical[handle - 1].bytes))
        r = cudaErrorInvalidValue;
    for (i = 0; i < MAPS; i++) {
        if (!maps[i].of) room = i;
        else if (!r && overlaps(ptr, bytes, maps[i].at, maps[i].bytes)) r = cudaErrorInvalidValue;
    }
    if (!r && room < 0) r = cudaErrorMemoryAllocation;
    if (r) return leave(r);
    maps[room].at = ptr;
    maps[room].bytes = bytes;
    maps[room].of = (int)handle;
    physical[handle - 1].maps++;
    return leave(0);
}

/* Whole mappings, one or several side by side. */
int fake_cuMemUnmap(unsigned long long ptr, size_t bytes) {
    int r = begin("cuMemUnmap"), i;
    uint64_t sum = 0;
    for (i = 0; i < MAPS; i++)
        if (maps[i].of && maps[i].at >= ptr && maps[i].at + maps[i].bytes <= ptr + bytes)
            sum += maps[i].bytes;
    if (!r && (!bytes || sum != bytes)) r = cudaErrorInvalidValue;
    for (i = 0; i < MAPS && !r; i++) {
        int of = maps[i].of - 1;
        if (of < 0 || !overlaps(ptr, bytes, maps[i].at, maps[i].bytes)) continue;
        memset(&maps[i], 0, sizeof maps[i]);
        physical[of].maps--;
        physical_drop(of);
    }
    return leave(r);
}

int fake_cuMemRetainAllocationHandle(unsigned long long *handle, void *address) {
    int r = begin("cuMemRetainAllocationHandle"), i;
    if (!r) r = cudaErrorInvalidValue;
    for (i = 0; i < MAPS && r == cudaErrorInvalidValue; i++) {
        if (!maps[i].of || !overlaps((uint64_t)(uintptr_t)address, 1, maps[i].at, maps[i].bytes))
            continue;
        *handle = (unsigned long long)maps[i].of;
        physical[maps[i].of - 1].handles++;
        r = 0;
    }
    return leave(r);
}

int fake_cuMemAddressReserve(unsigned long long *ptr, size_t bytes, size_t alignment,
                             unsigned long long at, unsigned long long flags) {
    int r = begin("cuMemAddressReserve"), i = 0;
    (void)alignment, (void)at;
    while (i < RANGES && ranges[i].bytes) i++;
    if (!r && (!bytes || bytes % GRAIN || flags)) r = cudaErrorInvalidValue;
    if (!r && i == RANGES) r = cudaErrorMemoryAllocation;
    if (r) return leave(r);
    ranges[i].at = *ptr = next_range;
    ranges[i].bytes = bytes;
    next_range += bytes;
    return leave(0);
}

int fake_cuMemAddressFree(unsigned long long ptr, size_t bytes) {
    int r = begin("cuMemAddressFree"), i;
    for (i = 0; i < MAPS && !r; i++)
        if (maps[i].of && overlaps(ptr, bytes, maps[i].at, maps[i].bytes))
            r = cudaErrorInvalidValue;
    for (i = 0; i < RANGES && !r; i++)
        if (ranges[i].at == ptr && ranges[i].bytes == bytes) {
            ranges[i].bytes = 0;
            return leave(0);
        }
    return leave(r ? r : cudaErrorInvalidValue);
}
