/* The functions at an address of a module's file, by elfutils: from its debug information, its
   symbols, or a separate debug file. Owns mlr_elf, which has a module open. Invariants: a file of
   another build than the one that ran names nothing; names live as long as the module is open.
   Locks: none. */
#ifndef MLR_COMMAND_ELF_H
#define MLR_COMMAND_ELF_H
#include "command/say.h"

#define MLR_INLINED 256 /* the most functions of one address */

typedef struct mlr_elf_options {
    const char *symfs;     /* the directory that has the files of another machine, or NULL */
    const char *debug_dir; /* one more directory of debug files, or NULL */
    char *path;            /* the directories of debug files, as libdwfl wants them */
} mlr_elf_options;

typedef struct mlr_elf_function {
    const char *name, *file; /* as they are in the file; NULL if not known */
    uint32_t line;           /* 0 if not known */
} mlr_elf_function;

typedef struct mlr_elf mlr_elf;

/* Makes the directories of the options absolute, and sets options->path. */
MLR_PRIVATE void mlr_elf_options_set(mlr_elf_options *options);

/* Opens the file of a module; `began_ns` is when the program began, since 1970. */
MLR_PRIVATE mlr_elf *mlr_elf_open(const mlr_module *module, const mlr_elf_options *options,
                                  uint64_t began_ns);
MLR_PRIVATE void mlr_elf_close(mlr_elf *elf);
/* Returns why the file cannot name places, or NULL if it can. */
MLR_PRIVATE const char *mlr_elf_doubt(const mlr_elf *elf);

/* Writes the functions at an address, the innermost first, and returns how many there are. */
MLR_PRIVATE size_t mlr_elf_functions(mlr_elf *elf, uint64_t address,
                                     mlr_elf_function out[MLR_INLINED]);

#endif
