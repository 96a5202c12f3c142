/* What the program is that is recorded: its file, and why nothing could be recorded of it. Owns no
   state. Locks: none. */
#ifndef MLR_COMMAND_LIBRARY_H
#define MLR_COMMAND_LIBRARY_H
#include "command/say.h"

/* Returns the path of the library that records, as LD_PRELOAD takes it; or NULL, once it has said
   why not. `directory` may get a link to it, because LD_PRELOAD takes no path with a space. */
MLR_PRIVATE char *mlr_library_path(const char *directory);

/* Returns the path of a program as execvp finds it, or NULL. */
MLR_PRIVATE char *mlr_program_path(const char *name);

/* Returns 1 if a file is a program in ELF, of any machine, whole or not. */
MLR_PRIVATE int mlr_program_is_binary(const char *path);

/* Returns why the library is not loaded into a program, with the cure; or NULL if it is loaded.
   `library` is the path of the library. */
MLR_PRIVATE char *mlr_program_doubt(const char *path, const char *library);

#endif
