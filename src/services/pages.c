#include "services/pages.h"
#include "os/machine.h"
#include "base/memory.h"

#if !defined(MEMLORD_NO_NEIGHBOURS)

#define MLI_PAGE_BYTES (128u << 10) /* a multiple of every memory page size up to 64 KiB */
typedef char mli_page_fits[sizeof(mli_page) <= MLI_PAGE_BYTES ? 1 : -1];

/* -- the system -- */

#if !MLI_WINDOWS && !defined(MLI_U64_LOCKS) && (defined(__linux__) || defined(F_OFD_SETLK))
#if !defined(F_OFD_SETLK) /* Linux has these locks since 3.15, but hides them without _GNU_SOURCE */
#define MLI_OFD_GETLK 36
#define MLI_OFD_SETLK 37
#else
#define MLI_OFD_GETLK F_OFD_GETLK
#define MLI_OFD_SETLK F_OFD_SETLK
#endif

MLI_PRIVATE MLI_COLD int mli_slot_lock(int fd, uint32_t slot, int unlock) {
    struct flock lock;
    memset(&lock, 0, sizeof lock);
    lock.l_type = (short)(unlock ? F_UNLCK : F_WRLCK);
    lock.l_start = (off_t)slot;
    lock.l_len = 1;
    if (!fcntl(fd, MLI_OFD_SETLK, &lock)) return 0;
    return errno == EAGAIN || errno == EACCES ? -1 : 1;
}
MLI_PRIVATE MLI_COLD int mli_slot_is_free(int fd, uint32_t slot) {
    struct flock lock;
    memset(&lock, 0, sizeof lock);
    lock.l_type = (short)F_WRLCK;
    lock.l_start = (off_t)slot;
    lock.l_len = 1;
    return !fcntl(fd, MLI_OFD_GETLK, &lock) && lock.l_type == F_UNLCK;
}

/* Makes the file of a page under a temporary name, and then renames the file to `path`. The file is
   written in full, so that no later store finds the disk full. If `path` already names a file, that
   file stays. Returns 0, or -1 if a call of the system failed. */
static MLI_COLD int mli_page_make(const char *path) {
    const char nothing[512] = {0};
    const uint64_t head[2] = {MLI_PAGE_MAGIC, MLI_PAGE_VERSION};
    char own[MLI_PAGE_PATH + 48];
    mli_signals held;
    mli_file file;
    mli_out o;
    uint32_t i;
    int bad;
    mli_out_buffer(&o, own, sizeof own);
    mli_putf(&o, "%s.%ju-%ju", path, mli_pid(), mli_now());
    (void)mli_out_end(&o, sizeof own);
    if (mli_file_create(own, &file)) return -1;
    held = mli_signals_block(); /* a write past the limit of file sizes raises SIGXFSZ */
    bad = fchmod(file, 0600) || mli_file_write(file, (const char *)head, sizeof head) ||
          mli_file_write(file, nothing, sizeof nothing - sizeof head);
    for (i = 1; i < MLI_PAGE_BYTES / sizeof nothing && !bad; i++)
        bad = mli_file_write(file, nothing, sizeof nothing);
    if (mli_file_close(file)) bad = 1;
    if (!bad) bad = mli_file_rename(own, path, 0) < 0;
    mli_file_remove(own);
    mli_signals_restore(&held);
    return bad ? -1 : 0;
}

/* Return why a file is refused as a page, or NULL if it is not refused. The first function judges
   the kind of the file, the second its content. */
static MLI_COLD const char *mli_page_refusal(const struct stat *st) {
    if (!S_ISREG(st->st_mode)) return "it is no regular file";
    if (st->st_uid != geteuid()) return "it belongs to another user";
    if ((st->st_mode & 0777) != 0600) return "its mode is not 0600";
    if (st->st_size != (off_t)MLI_PAGE_BYTES) return "its size is not that of a page";
    return NULL;
}
static MLI_COLD const char *mli_page_refuse_head(const mli_page *page) {
    const uint64_t version = mli_u64_load(&page->version);
    if (mli_u64_load(&page->magic) != MLI_PAGE_MAGIC) return "its content is no page of MemLord";
    if (version < MLI_PAGE_VERSION) return "it is of an older version of MemLord";
    return version > MLI_PAGE_VERSION ? "it is of a newer version of MemLord" : NULL;
}

/* Opens the file of a page, and makes it if it is missing. Returns a descriptor above those of the
   standard streams. If that fails, returns -1, and *why gets the reason and *r the result. */
static MLI_COLD int mli_page_file(const char *path, struct stat *st, const char **why,
                                  memlord_result *r) {
    int fd, tries = 2;
    do fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    while (fd < 0 && errno == ENOENT && tries-- && !mli_page_make(path));
    *r = errno == ELOOP || errno == EACCES ? MEMLORD_E_STATE : MEMLORD_E_IO;
    *why = errno == ELOOP    ? "it is a symbolic link"
           : errno == EACCES ? "this process may not open it"
                             : "it cannot be opened or made";
    if (fd >= 0) fd = mli_fd_above_std(fd);
    if (fd < 0) return -1;
    *r = MEMLORD_E_STATE;
    *why = fstat(fd, st) ? "its state cannot be read" : mli_page_refusal(st);
    if (!*why) return fd;
    (void)close(fd);
    return -1;
}

/* Maps a page. The file is opened twice, for the mapping and for the lock, because a forked child
   inherits the mapping, and would keep the parent's lock with the same descriptor. */
static MLI_COLD memlord_result mli_page_open(const char *path, mli_page **page, int *fd,
                                             const char **why) {
    struct stat first, second;
    memlord_result r;
    void *at = MAP_FAILED;
    int map = mli_page_file(path, &first, why, &r);
    *page = NULL;
    if (map < 0) return r;
    *fd = mli_page_file(path, &second, why, &r);
    if (*fd >= 0 && (first.st_dev != second.st_dev || first.st_ino != second.st_ino))
        *why = "it was replaced meanwhile";
    else if (*fd >= 0)
        at = mmap(NULL, MLI_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, map, 0);
    (void)close(map);
    if (*fd < 0) return r;
    *page = at == MAP_FAILED ? NULL : (mli_page *)at;
    if (*page)
        *why = mli_page_refuse_head(*page);
    else if (!*why)
        *why = "it cannot be mapped";
    if (!*why) return MEMLORD_OK;
    if (*page) (void)munmap(at, MLI_PAGE_BYTES);
    (void)close(*fd);
    return *page ? MEMLORD_E_STATE : MEMLORD_E_IO;
}
MLI_PRIVATE MLI_COLD memlord_result mli_page_map(const char *path, mli_page **page, int *fd,
                                                 const char **why) {
    const int saved = errno, cancel = mli_cancel_disable();
    const memlord_result r = mli_page_open(path, page, fd, why);
    mli_cancel_restore(cancel);
    errno = saved;
    return r;
}
MLI_PRIVATE MLI_COLD void mli_page_unmap(mli_page *page) {
    (void)munmap((void *)page, MLI_PAGE_BYTES);
}
MLI_PRIVATE void mli_page_fd_close(int fd) {
    const int cancel = mli_cancel_disable();
    (void)close(fd);
    mli_cancel_restore(cancel);
}

MLI_PRIVATE MLI_COLD int mli_page_is_gone(int fd) {
    struct stat st;
    return fstat(fd, &st) == 0 && st.st_nlink == 0;
}

MLI_PRIVATE MLI_COLD void mli_put_page_path(mli_out *o) {
#if defined(__linux__)
    mli_putf(o, "/dev/shm/memlord-%ju-", (uint64_t)geteuid());
#else
    mli_putf(o, "/tmp/memlord-%ju-", (uint64_t)geteuid());
#endif
}
#else
MLI_PRIVATE int mli_slot_lock(int fd, uint32_t slot, int unlock) {
    (void)fd, (void)slot, (void)unlock;
    return -1;
}
MLI_PRIVATE int mli_slot_is_free(int fd, uint32_t slot) {
    (void)fd, (void)slot;
    return 0;
}
MLI_PRIVATE memlord_result mli_page_map(const char *path, mli_page **page, int *fd,
                                        const char **why) {
    (void)path, (void)page, (void)fd;
    *why = "this system has no locks that end with their process, or no atomic words of 64 bits";
    return MEMLORD_E_UNSUPPORTED;
}
MLI_PRIVATE void mli_page_unmap(mli_page *page) { (void)page; }
MLI_PRIVATE void mli_page_fd_close(int fd) { (void)fd; }
MLI_PRIVATE int mli_page_is_gone(int fd) {
    (void)fd;
    return 0;
}
MLI_PRIVATE void mli_put_page_path(mli_out *o) { mli_put_str(o, "memlord-"); }
#endif

MLI_PRIVATE uint64_t mli_slot_read(const mli_page *page, uint32_t slot, size_t word) {
    return mli_u64_load_acquire(&page->slots[slot][word]);
}
MLI_PRIVATE uint64_t mli_slot_device(const mli_page *page, uint32_t slot, size_t device,
                                     size_t field) {
    return mli_slot_read(page, slot, MLI_SLOT_WORD(devices) +
                                         device * (sizeof(mli_page_device) / 8) + field);
}
MLI_PRIVATE MLI_COLD int mli_slot_rests(const mli_page *page, uint32_t slot, uint64_t id) {
    const uint32_t bits = mli_u32_load(&page->bells[slot].resting);
    size_t i;
    for (i = 0; i < MLI_SLOT_DEVICES; i++)
        if ((bits >> i & 1) && mli_slot_device(page, slot, i, MLI_DEVICE_WORD(id)) == id) return 1;
    return 0;
}
MLI_PRIVATE uint64_t mli_text_hash(const char *text) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return hash | (hash == 0);
}
MLI_PRIVATE MLI_COLD uint64_t mli_host_id(memlord *lord, const char *root, char *stall,
                                          size_t cap) {
    char path[300], boot[64];
    uint64_t total, used, process, id = 0;
    mli_out o;
    /* Does not use the mli_cpu of services/room, because another thread may be using it now. */
    mli_cpu *cpu = (mli_cpu *)mli_own_alloc(lord, sizeof *cpu);
    if (cpu) {
        cpu->root = root;
        if (!mli_cpu_sample(cpu, &total, &used, &process)) id = mli_cpu_home(cpu);
        mli_out_buffer(&o, stall, cap);
        if (id)
            mli_putf(&o, "%s/memory.pressure", mli_cpu_home_path(cpu));
        else
            mli_putf(&o, "%s/proc/pressure/memory", root);
        (void)mli_out_end(&o, cap);
        mli_own_free(lord, cpu, sizeof *cpu);
    }
    if (id) return id;
    mli_out_buffer(&o, path, sizeof path);
    mli_put_str(&o, root);
    mli_put_str(&o, "/proc/sys/kernel/random/boot_id");
    boot[0] = 0;
    if (mli_out_end(&o, sizeof path) < sizeof path) mli_line_read(path, boot, sizeof boot);
    return mli_text_hash(boot);
}
MLI_PRIVATE MLI_COLD void mli_slot_leave(mli_page *page, int slot, int fd) {
    /* Pairs with mli_slot_read. */
    mli_u64_store_release(&page->slots[slot][MLI_SLOT_WORD(owner)], 0);
    mli_page_unmap(page);
    mli_page_fd_close(fd);
}

/* Asks for an event when tasks have waited for memory for 150 ms within 2 s. Without privilege the
   kernel accepts only multiples of 2 s: Documentation/accounting/psi.rst. */
#if MLI_HAS_PAGE && defined(__linux__)
MLI_PRIVATE MLI_COLD int mli_stall_open(const char *path) {
    static const char trigger[] = "some 150000 2000000";
    int saved = errno, fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0) fd = mli_fd_above_std(fd);
    if (fd >= 0 && write(fd, trigger, sizeof trigger) != (ssize_t)sizeof trigger) {
        (void)close(fd);
        fd = -1;
    }
    errno = saved;
    return fd;
}
MLI_PRIVATE MLI_COLD int mli_stall_seen(int fd) {
    struct pollfd look;
    int saved = errno, cancel = mli_cancel_disable(), n;
    look.fd = fd;
    look.events = POLLPRI;
    n = poll(&look, 1, 0);
    mli_cancel_restore(cancel);
    errno = saved;
    return n <= 0 ? 0 : look.revents & POLLERR ? -1 : (look.revents & POLLPRI) != 0;
}
#else
MLI_PRIVATE int mli_stall_open(const char *path) {
    (void)path;
    return -1;
}
MLI_PRIVATE int mli_stall_seen(int fd) {
    (void)fd;
    return -1;
}
#endif

/* Waits until a bell no longer has the value `seen`, but at most `ms` ms. Without futexes, or where
   a sandbox refuses them, it waits for the listener's own event instead. The listener then sees a
   request only after the wait, which is at most the interval mli_poll_ms. */
#if MLI_HAS_PAGE && defined(__linux__) && defined(__NR_futex)
MLI_PRIVATE MLI_COLD void mli_bell_wait(mli_helper *listener, mli_u32 *bell, uint32_t seen,
                                        uint32_t ms) {
    struct { /* as the kernel expects; a 32-bit timespec may have 64-bit times */
        long sec, nsec;
    } time;
    int saved = errno, refused;
    time.sec = (long)(ms / 1000);
    time.nsec = (long)(ms % 1000) * 1000000;
    refused = syscall(__NR_futex, bell, 0 /* FUTEX_WAIT */, seen, &time, NULL, 0) &&
              errno != EAGAIN && errno != EINTR && errno != ETIMEDOUT;
    errno = saved;
    if (refused) mli_os_event_wait(&listener->wake, ms);
}
MLI_PRIVATE MLI_COLD void mli_bell_ring(mli_u32 *bell) {
    int saved = errno;
    (void)mli_u32_add(bell, 1); /* pairs with the load before mli_bell_wait */
    (void)syscall(__NR_futex, bell, 1 /* FUTEX_WAKE */, 1, NULL, NULL, 0);
    errno = saved;
}
#else
MLI_PRIVATE void mli_bell_wait(mli_helper *listener, mli_u32 *bell, uint32_t seen, uint32_t ms) {
    (void)bell, (void)seen;
    mli_os_event_wait(&listener->wake, ms);
}
MLI_PRIVATE void mli_bell_ring(mli_u32 *bell) { (void)mli_u32_add(bell, 1); }
#endif
#endif
