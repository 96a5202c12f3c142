/* Wraps what differs between systems: pages, clocks, threads, files, events to wait for. Locks:
   none. */
#ifndef MLI_OS_SYSTEM_H
#define MLI_OS_SYSTEM_H
#include "api/api.h"
#include "os/knobs.h"
#include "os/compiler.h"

/* Windows and POSIX have the same functions, but for a few that only POSIX needs. A function
   returns 0 for success unless a comment says otherwise. Requires: out pointers and sizes are not
   0. */

/* Returns the ticks of the processor's counter. Reading it takes a third of the time that reading a
   clock takes. Ticks serve as time stamps only if the counter has a constant rate in every power
   state. In that case mli_ticks_steady returns 1. Otherwise time stamps come from the clock. */

MLI_PRIVATE uint64_t mli_ticks(void);
MLI_PRIVATE int mli_ticks_steady(void);

/* -- types -- */

#if MLI_WINDOWS
typedef HANDLE mli_file;
typedef int mli_signals;
typedef DWORD mli_exit_key;
#define MLI_EXIT_CALL WINAPI /* the calling convention of an exit hook */
typedef struct mli_os_event { HANDLE handle; } mli_os_event;
typedef HANDLE mli_os_thread;
#else
typedef int mli_file;
typedef struct mli_signals {
    sigset_t before;  /* the signal mask that mli_signals_restore sets again */
    sigset_t pending; /* the signals that were already pending, which stay pending */
    int cancel;       /* the cancellation state that mli_signals_restore sets again */
} mli_signals;
typedef pthread_key_t mli_exit_key;
#define MLI_EXIT_CALL
typedef struct mli_os_event {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    int set;
} mli_os_event;
typedef pthread_t mli_os_thread;
#endif

/* -- functions --
   A function that can run inside the host's malloc or free keeps errno on POSIX, because hosts rely
   on a free that does not change errno. */

MLI_PRIVATE void *mli_pages_map(size_t size);
MLI_PRIVATE void mli_pages_unmap(void *ptr, size_t size);
/* Returns the time of a clock that never goes back, in ns. */
MLI_PRIVATE uint64_t mli_now(void);
/* Returns the time since 1970-01-01 UTC, in ns. */
MLI_PRIVATE uint64_t mli_wall_now(void);
MLI_PRIVATE void mli_yield(void);
/* Sleeps for `ns`, or less after a signal or if a sandbox refuses. Requires: ns < 10^9. */
MLI_PRIVATE MLI_COLD void mli_nap(uint32_t ns);
MLI_PRIVATE uint64_t mli_pid(void);
/* Returns the number of the calling thread. It is not 0, and unique among living threads. On Linux
   it is the kernel's number of the thread. On other POSIX systems, or if a sandbox refuses to tell
   the kernel's number, it is pthread_self, an address. */
MLI_PRIVATE uint64_t mli_thread_number(void);
/* Reads an environment variable. Returns 1 if it is set and fits, -1 if it does not fit, 0 if it is
   unset or empty, or if the process is set-uid, because that environment is not trusted. */
MLI_PRIVATE int mli_env_read(const char *name, char *buf, size_t cap);
MLI_PRIVATE void mli_stderr_write(const char *text, size_t size);
/* Makes mli_barrier_all ready. Returns 1 if it succeeds, else 0. */
MLI_PRIVATE uint32_t mli_barrier_register(void);
/* Makes every running thread of the process pass a full barrier. Returns 0 if refused. */
MLI_PRIVATE int mli_barrier_all(void);

/* Returns the number of the system's last error on this thread. */
MLI_PRIVATE MLI_COLD uint32_t mli_system_error(void);
/* Returns a text for the number of an error, or NULL if MemLord has no text for it. */
MLI_PRIVATE MLI_COLD const char *mli_system_error_text(uint32_t error);

/* Returns 1 if a path names, or may name, something other than a regular file. */
MLI_PRIVATE int mli_file_is_special(const char *path);
/* Returns 0 if this process may create files in a directory, else the system's error. */
MLI_PRIVATE MLI_COLD uint32_t mli_directory_error(const char *path);
/* Creates a file. Returns 0, or 1 if a file of this name exists, or -1 for another error. */
MLI_PRIVATE int mli_file_create(const char *path, mli_file *out);
MLI_PRIVATE int mli_file_write(mli_file file, const char *data, size_t size);
MLI_PRIVATE mli_file mli_file_stdout(void);
MLI_PRIVATE int mli_file_is_terminal(mli_file file);
MLI_PRIVATE int mli_file_close(mli_file file);
/* Renames a file. Without `replace` it replaces no file, and returns 1 if `to` exists. */
MLI_PRIVATE int mli_file_rename(const char *from, const char *to, int replace);
MLI_PRIVATE void mli_file_remove(const char *path);

/* Surround the writing of a file. A write past the file size limit raises SIGXFSZ, and a write to a
   pipe without a reader raises SIGPIPE, which kill the process by default: they are blocked, and
   those that the write raised are consumed. Cancellation is disabled, too, because it would leave
   the file half written. Windows has none of these. */
MLI_PRIVATE mli_signals mli_signals_block(void);
MLI_PRIVATE void mli_signals_restore(mli_signals *held);

/* Makes a key, under which each thread sets a value of its own. When a thread ends, the system
   passes the thread's value to `hook`. */
MLI_PRIVATE int mli_exit_key_make(mli_exit_key *key, void(MLI_EXIT_CALL *hook)(void *));
MLI_PRIVATE int mli_exit_key_set(mli_exit_key key, void *value);

MLI_PRIVATE MLI_COLD int mli_os_event_open(mli_os_event *event);
MLI_PRIVATE void mli_os_event_close(mli_os_event *event);
MLI_PRIVATE MLI_COLD void mli_os_event_set(mli_os_event *event);
/* Waits until the event is set or `ms` have passed, and resets the event. */
MLI_PRIVATE MLI_COLD void mli_os_event_wait(mli_os_event *event, uint32_t ms);

/* Starts a thread with all signals blocked, because no signal handler of the host may run on it. */
MLI_PRIVATE int mli_os_thread_start(mli_os_thread *out, mli_job *job);
MLI_PRIVATE void mli_os_thread_join(mli_os_thread worker);

#if !MLI_WINDOWS
MLI_PRIVATE void mli_exit_key_delete(mli_exit_key key);
/* Disables cancellation of the calling thread and returns the old state. It would end the thread at
   its next wait, read or write, and leave work half done for which other threads wait. */
MLI_PRIVATE MLI_COLD int mli_cancel_disable(void);
MLI_PRIVATE void mli_cancel_restore(int before);
/* Moves a file to a descriptor above the standard streams, one of which the host may have closed:
   its output would go to the file. Returns -1 if no descriptor is left. */
MLI_PRIVATE int mli_fd_above_std(int fd);
#endif

/* Returns 1 if no thread of the process has this number, or 0 if a thread has it or the system
   cannot tell. Only Linux can tell. On other systems the number of a thread that ended without its
   exit hook counts as in use until another thread gets that number. */
MLI_PRIVATE MLI_COLD int mli_thread_has_ended(uint64_t number);

/* Returns the ms from mli_now to `deadline`, rounded up, or 0 if `deadline` is past. */
MLI_PRIVATE MLI_COLD uint32_t mli_ms_left(uint64_t deadline);

#endif
