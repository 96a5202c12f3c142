/* The implementation needs what strict C modes hide. That works if memlord.h is the first
   include. */
#if defined(MEMLORD_IMPLEMENTATION) && !defined(_DEFAULT_SOURCE)
#define _DEFAULT_SOURCE 1
#endif

#include <stddef.h> /* size_t, NULL */
#include <stdint.h> /* uint64_t, int16_t */
#include <string.h> /* memset of out parameters */

/* major: a program must be changed; minor: something was added or, before 1.0, a program may have
   to be changed; patch: neither */
#define MEMLORD_VERSION_MAJOR 0
#define MEMLORD_VERSION_MINOR 5
#define MEMLORD_VERSION_PATCH 0
#define MEMLORD_VERSION "0.5.0"

#if defined(__GNUC__)
#define MLI_INLINE static inline __attribute__((unused))
#else
#define MLI_INLINE static inline
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

/* Here and in macros, which the host's files expand: theirs may have -Wold-style-cast on. */
#ifdef __cplusplus
#define MLI_CAST(type, value) static_cast<type>(value)
#else
#define MLI_CAST(type, value) ((type)(value))
#endif

/* The body that a function has when MemLord is compiled out. It returns what the function returns
   for a NULL ledger. It stands beside each declaration, so that there is one list. */
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

/* With a prefix p every symbol becomes p_memlord_...; the source goes on saying memlord_... The
   list of names stands below the API, under >>prefix: this header includes itself to read the
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
