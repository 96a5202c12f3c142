/* Makes the system's headers declare what the implementation needs, even in a strict C mode. This
   works only if memlord.h is the first include. */
#if defined(MEMLORD_IMPLEMENTATION) && !defined(_DEFAULT_SOURCE)
#define _DEFAULT_SOURCE 1
#endif

#include <stddef.h> /* size_t, NULL */
#include <stdint.h> /* uint64_t, int16_t */
#include <string.h> /* memset of out parameters */

/* The version. The major number grows when a program must be changed. The minor number grows when
   something was added or, before 1.0, when a program may have to be changed. The patch number grows
   otherwise. */
#define MEMLORD_VERSION_MAJOR 0
#define MEMLORD_VERSION_MINOR 6
#define MEMLORD_VERSION_PATCH 0
#define MEMLORD_VERSION "0.6.0-dev"

#if defined(__GNUC__)
#define MLI_INLINE static inline __attribute__((unused))
#else
#define MLI_INLINE static inline
#endif

/* An inline function of the API. In C++ a module can export it; a library never does. */
#if !defined(__cplusplus) || defined(MEMLORD_DISABLE) || defined(MEMLORD_STATIC)
#define MLI_API_INLINE MLI_INLINE
#elif defined(__ELF__)
#define MLI_API_INLINE inline __attribute__((visibility("hidden")))
#else
#define MLI_API_INLINE inline
#endif

#ifndef MEMLORD_THREAD_LOCAL
#if defined(__GNUC__)
#define MEMLORD_THREAD_LOCAL __thread
#else
#define MEMLORD_THREAD_LOCAL __declspec(thread)
#endif
#endif

#define MLI_JOIN2(a, b) a##b
#define MLI_JOIN(a, b) MLI_JOIN2(a, b)

/* A cast in the style of C or of C++. Macros expand in the host's files, which may be compiled with
   -Wold-style-cast. */
#ifdef __cplusplus
#define MLI_CAST(type, value) static_cast<type>(value)
#else
#define MLI_CAST(type, value) ((type)(value))
#endif

/* The body that a function has when MemLord is compiled out (MEMLORD_DISABLE). It returns what the
   function returns for a NULL ledger. Each declaration has its body beside it, so that no second
   list of functions is needed. */
#if defined(MEMLORD_DISABLE)
#undef MEMLORD_API
#define MEMLORD_API static inline
#define MLI_OFF(value) { return value; }
#define MLI_OFF_SET(set, value) { set; return value; }
#define MLI_OFF_VOID {}
#define MLI_NO_SITE static const memlord_site none = {"", "", 0}
#else
#define MLI_OFF(value) ;
#define MLI_OFF_SET(set, value) ;
#define MLI_OFF_VOID ;
#if defined(MEMLORD_STATIC)
#undef MEMLORD_API
#if defined(__GNUC__)
#define MEMLORD_API static __attribute__((unused))
#else
#define MEMLORD_API static
#endif
#elif !defined(MEMLORD_API)
#define MEMLORD_API extern
#endif
#endif

/* Renames every symbol to p_memlord_... if the prefix is p. The source still says memlord_.... The
   list of names stands below the API, under >>prefix. This header includes itself to read the
   list. */
#if defined(MEMLORD_PREFIX)
#define MLI_READ_PREFIX
#include "memlord.h"
#undef MLI_READ_PREFIX
#endif

#if defined(MEMLORD_DISABLE) && defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#elif defined(MEMLORD_DISABLE) && defined(_MSC_VER)
#pragma warning(push)
#pragma warning(disable : 4100)
#endif

#ifdef __cplusplus
extern "C" {
#endif
