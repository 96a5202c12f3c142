/* ------------------------------------------------------------------------- >>shim --
   Redirects malloc, calloc, realloc, free, mmap and munmap to the memlord_shim_... of >>support.
   These macros come last, so that they redirect nothing above. They stand outside the include
   guard, as another header may have included memlord.h without MEMLORD_SHIM before. The headers
   that declare these functions come first, because the macros would change the declarations. */
#if defined(MEMLORD_SHIM) && !defined(MEMLORD_DISABLE) && !defined(MLI_SHIMMED) && \
    !defined(MLI_READ_PREFIX)
#define MLI_SHIMMED
#include <stdlib.h>
#if !defined(_WIN32)
#include <sys/mman.h>
#endif
#if !defined(MEMLORD_SHIM_LORD)
#define MEMLORD_SHIM_LORD memlord_global()
#endif
#undef malloc
#undef calloc
#undef realloc
#undef free
#define malloc(size) memlord_shim_malloc(MEMLORD_SHIM_LORD, size, MEMLORD_SITE())
#define calloc(n, size) memlord_shim_calloc(MEMLORD_SHIM_LORD, n, size, MEMLORD_SITE())
#define realloc(ptr, size) memlord_shim_realloc(MEMLORD_SHIM_LORD, ptr, size, MEMLORD_SITE())
#define free(ptr) memlord_shim_free(MEMLORD_SHIM_LORD, ptr, MEMLORD_SITE())
#if !defined(_WIN32)
#undef mmap
#undef munmap
#define mmap(at, size, prot, flags, fd, offset)                                               \
    memlord_shim_mmap(MEMLORD_SHIM_LORD, at, size, prot, flags, fd, offset, MEMLORD_SITE())
#define munmap(at, size) memlord_shim_munmap(MEMLORD_SHIM_LORD, at, size, MEMLORD_SITE())
#endif
#endif

/*
Copyright (c) 2026 The MemLord authors

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
associated documentation files (the "Software"), to deal in the Software without restriction,
including without limitation the rights to use, copy, modify, merge, publish, distribute,
sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or
substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT
NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM,
DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
*/
