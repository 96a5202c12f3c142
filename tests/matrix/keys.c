/* Handles wider than an address keep all their bits: checked by the compiler alone. */
#include "memlord.h"

#define HANDLE 0x123456789abcdef0u

#if defined(__cplusplus)
static_assert(sizeof(void *) == 4, "for targets of 32 bits");
static_assert(MEMLORD_KEY(HANDLE) == HANDLE, "all bits of a handle");
static_assert(MEMLORD_KEY(-1) == 0xffffffffu, "as C has it");
#else
typedef char of_32_bits[sizeof(void *) == 4 ? 1 : -1];
typedef char all_bits[MEMLORD_KEY(HANDLE) == HANDLE ? 1 : -1];
typedef char as_an_address[MEMLORD_KEY(-1) == 0xffffffffu ? 1 : -1];
#endif

uint64_t keys(void *address, const char *text, uint64_t handle);
uint64_t keys(void *address, const char *text, uint64_t handle) {
    char array[8];
    return MEMLORD_KEY(address) ^ MEMLORD_KEY(text) ^ MEMLORD_KEY(handle) ^ MEMLORD_KEY(array) ^
           MEMLORD_KEY(&keys) ^ MEMLORD_KEY(NULL);
}
