#include "answers/wrappers.h"
#include <string.h>

/* A star stands for any characters. */
static const char *const wrappers[] = {
    /* C */
    "malloc", "calloc", "realloc", "reallocarray", "memalign", "aligned_alloc", "posix_memalign",
    "valloc", "pvalloc", "strdup", "strndup", "wcsdup", "asprintf", "vasprintf", "__libc_malloc",
    "__libc_calloc", "__libc_realloc", "__libc_memalign", "__strdup", "__strndup", "__vasprintf*",
    "_IO_file_doallocate", "__GI_*",
    /* C++ and Rust; what is in namespaces is found by the namespace */
    "operator new*", "_Znw*", "_Zna*", "__rust_alloc*", "__rust_realloc", "__rdl_*", "__rg_*",
    "_ZNSt*", "_ZNKSt*", "_ZSt*", "_ZN9__gnu_cxx*", "_ZNK9__gnu_cxx*", "__cxa_*",
    /* GLib */
    "g_malloc*", "g_try_malloc*", "g_realloc*", "g_try_realloc*", "g_strdup*", "g_strndup",
    "g_memdup*", "g_slice_alloc*", "g_slice_copy", "g_aligned_alloc*", "g_strconcat",
    /* GNU's and others' allocation that ends the program when it fails */
    "xmalloc*", "xcalloc*", "xrealloc*", "xzalloc*", "xnmalloc*", "xnrealloc*", "x2realloc*",
    "x2nrealloc*", "xstrdup*", "xstrndup*", "xmemdup*", "xcharalloc*", "ximalloc", "xizalloc",
    "xicalloc", "xirealloc", "xireallocarray", "xreallocarray", "xpalloc", "xasprintf",
    "safe_malloc*", "safe_calloc*", "safe_realloc*", "ecalloc", "emalloc", "erealloc",
    /* R, SQLite, PHP */
    "Rf_alloc*", "Rf_cons", "R_alloc*", "R_chk_*", "GetNewPage", "CustomAlloc*", "sqlite3Malloc*",
    "sqlite3MemMalloc*", "sqlite3MemRealloc*", "sqlite3DbMalloc*", "sqlite3DbRealloc*",
    "sqlite3DbStrDup*", "sqlite3DbStrNDup*", "sqlite3Realloc*", "sqlite3_malloc*",
    "sqlite3_realloc*", "sqlite3_mprintf", "sqlite3_vmprintf", "mallocWithAlarm",
    "dbMallocRawFinish", "dbReallocFinish", "pcache1Alloc", "__zend_malloc*", "__zend_calloc*",
    "__zend_realloc*", "__zend_strdup*", "_emalloc*", "_ecalloc*", "_erealloc*", "_estrdup*",
    "_estrndup*", "_safe_emalloc*", "_safe_malloc*", "_safe_erealloc*", "_safe_realloc*",
    "zend_mm_alloc*", "zend_strndup",
    /* others */
    "PyMem_Malloc", "PyMem_Calloc", "PyMem_Realloc", "PyMem_Raw*", "PyObject_Malloc",
    "PyObject_Calloc", "PyObject_Realloc", "_PyMem_*", "_PyObject_Malloc*", "_PyObject_Realloc*",
    "_PyObject_Calloc*", "CRYPTO_malloc*", "CRYPTO_zalloc*", "CRYPTO_calloc*", "CRYPTO_realloc*",
    "CRYPTO_strdup*", "CRYPTO_memdup*", "av_malloc*", "av_calloc*", "av_realloc*",
    "av_fast_malloc*", "apr_palloc*", "apr_pcalloc*", "zmalloc*", "zcalloc*", "zrealloc*",
    "ztrymalloc*", "ztryrealloc*", "zstrdup", "luaM_malloc_", "luaM_realloc_", "luaM_saferealloc_",
    "luaM_growaux_", "l_alloc", "je_*alloc*", "mi_*alloc*", "tc_malloc*", "tc_calloc*",
    "tc_realloc*", "tc_new*", "SDL_malloc*", "SDL_calloc*", "SDL_realloc*", "png_malloc*",
    "xmlMalloc*", "xmlRealloc*", "palloc", "palloc0", "repalloc", "MemoryContextAlloc*",
    "AllocSetAlloc*", "ngx_alloc", "ngx_calloc", "ngx_palloc*", "ngx_pnalloc", "ngx_pcalloc",
    "git__malloc", "git__calloc", "git__realloc", "_talloc*", "talloc_*", "my_malloc", "my_realloc",
    "_mm_malloc", "ggml_aligned_malloc"};

/* Returns 1 if a name fits a pattern, in which a star stands for any characters. */
static int fits(const char *pattern, const char *name) {
    for (; *pattern && *pattern != '*'; pattern++, name++)
        if (*pattern != *name) return 0;
    if (!*pattern) return !*name;
    if (!*++pattern) return 1;
    for (; *name; name++)
        if (fits(pattern, name)) return 1;
    return 0;
}

/* Finds the name of a function in a text that may have its return type and its parameters, as in
   "void std::sort<int*>(int*)". */
static const char *name_begin(const char *function) {
    const char *begin = function, *at;
    int depth = 0;
    if (!strncmp(function, "operator ", 9)) return function;
    for (at = function; *at; at++) {
        if (*at == '<' || *at == '[' || *at == '{') depth++;
        if (*at == '>' || *at == ']' || *at == '}') depth--;
        if (!strncmp(at, "(anonymous namespace)", 21)) {
            at += 20;
            continue;
        }
        if (depth <= 0 && (*at == '(' || !strncmp(at, "::operator", 10))) break;
        if (depth <= 0 && *at == ' ') begin = at + 1;
    }
    return begin;
}
/* Returns 1 if a function is in a namespace of the standard library of C++ or of Rust. */
static int in_standard_namespace(const char *name) {
    static const char *const spaces[] = {"std::",
                                         "__gnu_cxx::",
                                         "__cxxabiv1::",
                                         "alloc::vec::",
                                         "alloc::raw_vec::",
                                         "alloc::string::",
                                         "alloc::alloc::",
                                         "alloc::boxed::",
                                         "core::iter::",
                                         "core::ops::function::"};
    size_t i;
    if (*name == '<') name++; /* Rust: "<alloc::vec::Vec<T> as ...>::from_iter" */
    for (i = 0; i < sizeof spaces / sizeof *spaces; i++)
        if (!strncmp(name, spaces[i], strlen(spaces[i]))) return 1;
    return 0;
}
/* Returns the length of a name without what compilers and the linker add to it: "@plt", ".part.0".
 */
static size_t plain_length(const char *name) {
    const size_t n = strcspn(name, "@.(");
    return n ? n : strlen(name);
}
MLR_PRIVATE int mlr_is_wrapper(const char *function) {
    char name[128];
    size_t i, n;
    if (!*function) return 0;
    if (in_standard_namespace(name_begin(function))) return 1;
    n = plain_length(function);
    if (n >= sizeof name) n = sizeof name - 1;
    memcpy(name, function, n);
    name[n] = 0;
    for (i = 0; i < sizeof wrappers / sizeof *wrappers; i++)
        if (fits(wrappers[i], name)) return 1;
    return 0;
}

/* Returns 1 if a file of code is a standard library, whose functions may have no names. */
static int is_standard_module(const char *path) {
    static const char *const files[] = {"libc.so*",   "libc-2*",       "libstdc++.so*",
                                        "libc++.so*", "libc++abi.so*", "ld-linux*",
                                        "ld-musl*",   "libgcc_s.so*"};
    const char *name = path, *at;
    size_t i;
    for (at = path; *at; at++)
        if (*at == '/') name = at + 1;
    for (i = 0; i < sizeof files / sizeof *files; i++)
        if (fits(files[i], name)) return 1;
    return 0;
}
MLR_PRIVATE void mlr_wrappers_mark(mlr_profile *p) {
    uint32_t i, k;
    for (i = 0; i < p->frame_count; i++) {
        mlr_frame *frame = &p->frame[i];
        const int standard = frame->module && is_standard_module(p->module[frame->module - 1].path);
        for (k = 0; k < frame->functions; k++)
            if (standard || mlr_is_wrapper(frame->function[k].name)) frame->function[k].library = 1;
        for (k = 0; k + 1 < frame->functions && frame->function[k].library;) k++;
        frame->shown = k;
    }
}
