/* Owns the compile-time settings (knobs) of a host, their checks, and the macros of private
   declarations. Locks: none. */
#ifndef MLI_OS_KNOBS_H
#define MLI_OS_KNOBS_H
#include "api/api.h"

/* The defaults of the knobs that a host may define. The manual, api/manual.h, describes the knobs
   under >>knobs. If a knob has an impossible value, the compiler stops here. */
#ifndef MEMLORD_ASSERT
#define MEMLORD_ASSERT(expression) ((void)(expression))
#endif
/* Checks what a function requires of its caller. A comment states the same in words, after
   "Requires:". Only builds with MEMLORD_CHECK_LOCKS run the check. Each check stands on one line.
   tests/test_requires.c breaks each check once. */
#if defined(MEMLORD_CHECK_LOCKS)
#define MLI_REQUIRE(expression) MEMLORD_ASSERT(expression)
#else
#define MLI_REQUIRE(expression) ((void)0)
#endif
#ifndef MEMLORD_MAX_DEVICES
#define MEMLORD_MAX_DEVICES 128
#endif
#ifndef MEMLORD_MAX_SCOPES
#define MEMLORD_MAX_SCOPES 4096
#endif
#ifndef MEMLORD_MAX_SERIES
#define MEMLORD_MAX_SERIES 100
#endif
#ifndef MEMLORD_MAX_STRINGS
#define MEMLORD_MAX_STRINGS (64u << 20)
#endif
#ifndef MEMLORD_MAX_STACK_NODES
#define MEMLORD_MAX_STACK_NODES (1u << 20)
#endif
#if defined(MEMLORD_NO_REPORTS) /* the page and the profiles are reports, too */
#if !defined(MEMLORD_NO_PAGE)
#define MEMLORD_NO_PAGE
#endif
#if !defined(MEMLORD_NO_PROFILES)
#define MEMLORD_NO_PROFILES
#endif
#endif
#if MEMLORD_MAX_DEVICES < 1 || MEMLORD_MAX_DEVICES > 250
#error "MEMLORD_MAX_DEVICES is 1 to 250: a block has 8 bits for its device"
#endif
#if defined(INCLUDE_STB_DS_H)
#error "stb_ds.h came before memlord.h: put MEMLORD_IMPLEMENTATION in a file of its own"
#endif

/* Declares a private function or table that other modules use. In the product, memlord.h, it is
   static. In a build with an object for each module it has hidden visibility. A variable is
   declared in the header of its module and defined in the .c file. */
#if defined(MLI_MODULES)
#define MLI_PRIVATE
#define MLI_TABLE(...) extern __VA_ARGS__;
#define MLI_VARIABLE(...) extern __VA_ARGS__;
#define MLI_VARIABLE_HERE(...) __VA_ARGS__;
#else
#define MLI_PRIVATE static
#define MLI_TABLE(...)
#define MLI_VARIABLE(...) static __VA_ARGS__;
#define MLI_VARIABLE_HERE(...)
#endif

#endif
