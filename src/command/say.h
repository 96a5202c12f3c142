/* What the command says on stderr: messages, and progress. Owns the line of progress on the
   terminal. Invariants: a message is one line and begins with "memlord: "; it ends the line of
   progress first; memory that lacks ends the command. Locks: none. */
#ifndef MLR_COMMAND_SAY_H
#define MLR_COMMAND_SAY_H
#include "profile/profile.h"

/* The status of the command. */
enum { MLR_DONE, MLR_FOUND, MLR_COULD_NOT };

#if defined(__GNUC__)
#define MLR_FORMAT(n) __attribute__((format(printf, n, n + 1)))
#define MLR_NORETURN  __attribute__((noreturn))
#else
#define MLR_FORMAT(n)
#define MLR_NORETURN
#endif

MLR_FORMAT(1) MLR_PRIVATE void mlr_tell(const char *form, ...);
/* Says a line, and ends the command with a status. */
MLR_FORMAT(2) MLR_NORETURN MLR_PRIVATE void mlr_stop(int status, const char *form, ...);
/* Says how to see which arguments a verb takes. Returns MLR_COULD_NOT. */
MLR_PRIVATE int mlr_say_usage(const char *verb);

MLR_PRIVATE void *mlr_need(void *memory);
/* Returns a text that the caller frees. */
MLR_FORMAT(1) MLR_PRIVATE char *mlr_joined(const char *form, ...);
/* Returns a name of the program's or the user's that no terminal takes for a command. It stays
   valid for the next seven calls. */
MLR_PRIVATE const char *mlr_clean(const char *name);

/* Returns 1 if colours are wanted on a descriptor: it is a terminal, and NO_COLOR is not set. */
MLR_PRIVATE int mlr_has_colours(int fd);

/* Shows on a terminal what takes more than a second. Call it often; it looks at the clock. `whole`
   0: not known. */
MLR_PRIVATE void mlr_progress(const char *what, uint64_t done, uint64_t whole);
MLR_PRIVATE void mlr_progress_end(void);

/* Reads "1.5G", "200 MB", "64KiB" or "4096". Returns 0 if the text is something else. */
MLR_PRIVATE int mlr_read_bytes(const char *text, uint64_t *out);

#endif
