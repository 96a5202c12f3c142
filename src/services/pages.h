/* Owns the file of the pressure page. Each ledger has a slot on it: the bytes that it holds on each
   physical device, its requests to the other ledgers, and its answers. Invariant: only the ledger
   that locks byte k of the file (fcntl) writes slot k. Lock: neighbours, which services/neighbours
   holds. */
#ifndef MLI_SERVICES_PAGES_H
#define MLI_SERVICES_PAGES_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"
#include "os/system.h"
#include "base/atomics.h"
#include "base/ledger.h"
#include "base/text.h"

#define MLI_PAGE_SLOTS 64 /* slots of a page */

/* The system drops the lock of a slot when the process ends, however it ends. A value that is read
   from the page may be anything, so it is never used as an index. */

#if !defined(MEMLORD_NO_NEIGHBOURS)

#define MLI_PAGE_MAGIC ((uint64_t)0x6d656d6c << 32 | 0x6f726470u) /* the text "memlordp" */
#define MLI_PAGE_VERSION 1
#define MLI_PAGE_ANSWER_MS 2000 /* the most ms that memlord_pressure_raise waits for answers */

/* A slot consists of words of 64 bits, so that programs of 32 and of 64 bits can share a page. */
#define MLI_SLOT_DEVICES 17 /* physical devices in a slot, main memory included */
#define MLI_PAGE_PATH 400   /* the most bytes of a path, with its final 0 */
enum {                      /* values that stand in place of a slot's number */
    MLI_SLOT_FORKED = -2,   /* a forked child has no slot until it first uses the page */
    MLI_SLOT_NONE = -1
};
typedef struct mli_page_device {
    uint64_t id;       /* a hash of the device's identity; 0: there is no device */
    uint64_t held;     /* bytes on the device that are live, or that pools have reserved */
    uint64_t spare;    /* bytes of `held` that are unused in pools, or freed but not yet reusable */
    uint64_t failing;  /* 1: allocations on the device fail */
    uint64_t wanted;   /* bytes that the ledger asked the other ledgers for */
    uint64_t asked;    /* number of the request that asked for `wanted` */
    uint64_t released; /* all bytes that the ledger has given back for requests of others */
} mli_page_device;
typedef struct mli_page_slot {
    uint64_t pid, started; /* process id; when the ledger was made, in ns of the wall clock */
    mli_page_device devices[MLI_SLOT_DEVICES];
    uint64_t answered[MLI_PAGE_SLOTS]; /* by slot: its last request that this ledger has answered */
    uint64_t request; /* the ledger's last request; stored after `devices`, for whoever reads it */
    uint64_t owner;   /* a new number each time a ledger takes the slot; 0: the slot is free */
} mli_page_slot;
enum { MLI_SLOT_WORDS = sizeof(mli_page_slot) / sizeof(uint64_t) };

/* The layout of a page's file. Other ledgers wake the ledger of a slot by the slot's bell. */
typedef struct mli_page {
    mli_u64 magic, version, unused[6];
    struct {
        mli_u32 rings;   /* rises with each request to the ledger and each answer (a futex) */
        mli_u32 resting; /* bit k: the ledger runs no collections for device k of the slot for a
                            while; only the slot's owner writes this word */
        uint32_t unused[14];
    } bells[MLI_PAGE_SLOTS];
    mli_u64 slots[MLI_PAGE_SLOTS][MLI_SLOT_WORDS];
} mli_page;
#define MLI_SLOT_WORD(field) (offsetof(mli_page_slot, field) / sizeof(uint64_t))

#if !MLI_WINDOWS && !defined(MLI_U64_LOCKS) && (defined(__linux__) || defined(F_OFD_SETLK))

/* Locks the byte of a slot for this ledger or, with `unlock`, unlocks it. Returns 0, -1 if another
   ledger holds the lock, or 1 if the system has no such locks for this file. */
MLI_PRIVATE MLI_COLD int mli_slot_lock(int fd, uint32_t slot, int unlock);
MLI_PRIVATE MLI_COLD int mli_slot_is_free(int fd, uint32_t slot);
/* Maps the page at a path, and makes the file if it is missing. *fd gets the descriptor for the
   locks of slots, *why the reason of a failure. Cancellation is off meanwhile, because a cancelled
   thread would keep the neighbours lock. */
MLI_PRIVATE MLI_COLD memlord_result mli_page_map(const char *path, mli_page **page, int *fd,
                                                 const char **why);
MLI_PRIVATE MLI_COLD void mli_page_unmap(mli_page *page);
MLI_PRIVATE void mli_page_fd_close(int fd);
MLI_PRIVATE MLI_COLD int mli_page_is_gone(int fd);

/* Writes the start of the path of a page whose name has no '/'. */
MLI_PRIVATE MLI_COLD void mli_put_page_path(mli_out *o);
#define MLI_HAS_PAGE 1
#else
MLI_PRIVATE int mli_slot_lock(int fd, uint32_t slot, int unlock);
MLI_PRIVATE int mli_slot_is_free(int fd, uint32_t slot);
MLI_PRIVATE memlord_result mli_page_map(const char *path, mli_page **page, int *fd,
                                        const char **why);
MLI_PRIVATE void mli_page_unmap(mli_page *page);
MLI_PRIVATE void mli_page_fd_close(int fd);
MLI_PRIVATE int mli_page_is_gone(int fd);
MLI_PRIVATE void mli_put_page_path(mli_out *o);
#define MLI_HAS_PAGE 0
#endif
/* Reads a word of a slot. The acquire load pairs with the release stores of mli_words_store, and
   with the stores of an owner or of an answer. The owner is the last word. */
MLI_PRIVATE uint64_t mli_slot_read(const mli_page *page, uint32_t slot, size_t word);
MLI_PRIVATE uint64_t mli_slot_device(const mli_page *page, uint32_t slot, size_t device,
                                     size_t field);
#define MLI_DEVICE_WORD(field) (offsetof(mli_page_device, field) / sizeof(uint64_t))
/* Returns 1 if a device of the slot has the identity `id` and rests: see `resting`. */
MLI_PRIVATE MLI_COLD int mli_slot_rests(const mli_page *page, uint32_t slot, uint64_t id);
/* Returns the identity that stands for a text on the page: its hash (FNV-1a), which is not 0. */
MLI_PRIVATE uint64_t mli_text_hash(const char *text);
/* Returns the identity of the memory that the process may use: the cgroup with the lowest limit or,
   without a limit, the boot id of the machine. `root` is as in mli_proc_root. `stall` gets the path
   of the file by which the kernel tells that tasks wait for this memory. */
MLI_PRIVATE MLI_COLD uint64_t mli_host_id(memlord *lord, const char *root, char *stall,
                                          size_t cap);

/* Frees a slot, unmaps its page and closes the descriptor. */
MLI_PRIVATE MLI_COLD void mli_slot_leave(mli_page *page, int slot, int fd);

/* Asks the kernel to notice when tasks wait for the memory (a cgroup's or the machine's) of the
   file at `path`. Returns a descriptor, or -1 if the kernel refuses. */
#if MLI_HAS_PAGE && defined(__linux__)
MLI_PRIVATE MLI_COLD int mli_stall_open(const char *path);
/* Returns 1 if tasks have waited for memory since the last call, or -1 if none watches. */
MLI_PRIVATE MLI_COLD int mli_stall_seen(int fd);
#else
MLI_PRIVATE int mli_stall_open(const char *path);
MLI_PRIVATE int mli_stall_seen(int fd);
#endif
#if MLI_HAS_PAGE && defined(__linux__) && defined(__NR_futex)
MLI_PRIVATE MLI_COLD void mli_bell_wait(mli_helper *listener, mli_u32 *bell, uint32_t seen,
                                        uint32_t ms);
MLI_PRIVATE MLI_COLD void mli_bell_ring(mli_u32 *bell);
#else
MLI_PRIVATE void mli_bell_wait(mli_helper *listener, mli_u32 *bell, uint32_t seen, uint32_t ms);
MLI_PRIVATE void mli_bell_ring(mli_u32 *bell);
#endif

#endif

#endif
