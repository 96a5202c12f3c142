/* Owns the bounds that a host may set, and the macros of private declarations. Uses no other
   module. Locks: none. */
#ifndef MLI_OS_KNOBS_H
#define MLI_OS_KNOBS_H
#include "api/api.h"

/* Words of the implementation. Each has one meaning.
     fast, general     path: for the usual case, for everything; calls/ has both step by step
     key               the address or handle of a storage in the map
     shard             one of 1024 parts of the map; it is owned by a thread, or shared
     owned shard       one that its owner uses without locks; another thread makes it shared
     enter, leave      A thread enters a shard before it uses the table, and leaves it after.
     inside            between the two: no host code, no allocation, and only the innermost locks
     stop              to make all threads leave a shard; pause: to stop it and keep its lock
     probe             to look for a key; a probe also keeps the slot it found
     home              the bucket where a key belongs
     overflow          the count of entries that found a bucket full and went to a later one
     slot              room for one entry in a table
     entry             a block in the map: key, word1 (bytes, dev, references), word2 (rows, birth)
     side record       what an entry has no room for: description, fences, more references
     row               the totals of a device, of a site on a device, or of a tag on a device
     book              all rows of one of these three kinds
     cell              what one thread adds to one row; only that thread counts in it
     level, high, base of a cell: the bytes its thread allocated less those it freed, the highest
                       of that since published, the published part
     publish           to bring a row up to a cell's level; a cell may hold back up to a batch
     delta             what one call adds to the rows of a block
     cache             what a thread looked up by a pointer: rows, kept tags, scopes
     module            an executable or library that has a return address; image: as it is loaded
     place             a module, the offset of a call in its file, and its build id
     dev               the number of a device in this ledger, from 1; 0 is none
     phys              a physical device: one capacity and one limit for the devices at it
     special           a thread's mask: what its calls have to do besides; hooks: the ledger's bits
                       of it, which every thread gets
     alert             a ledger's mask, with a count in its upper bits: what the end of a call has
                       to look after
     stack             the return addresses of an alloc; taken: the block has one
     print             one byte of a key's hash, in the header of its bucket; no tag of the host's
     frame             a scope that a thread is in; holders: tags and sites at a device's peak
     reserved          bytes that a ticket keeps for later allocs
     in flight         reserved bytes that a call is recording at this moment
     draw              the part of an alloc that comes off the tickets of its thread
     cover             the part of a request that comes off them, kept for it while it tries
     pending           freed by the host, but counted until its fences are done
     detach            to separate fences from a block that has ended
     generation        a number that changes when a record is used again: old handles miss
     epoch             the time from one reset to the next
     mark              the number that memlord_mark raises; birth: mark, scope and stream of a
                       block
     band check        to compare a device with its thresholds; near: every call checks
     rearm             after a collection a band waits until its metric has moved
     ring, sub-buffer  the event buffer, and the part of it that one thread writes
     scope run         one invocation of a scope; thread scope: one thread's totals of a scope
     orphan record     the thread record of calls that can have none of their own; locked
     cold call         a call under the process-wide cold lock; it allocates after it */

/* Knobs of this file; impossible values end here. */
#ifndef MEMLORD_ASSERT
#define MEMLORD_ASSERT(expression) ((void)(expression))
#endif
/* Says what a caller must see to, as the words "Requires: ..." do elsewhere. It is on one line, and
   checked only while MemLord is debugged. tests/test_requires.c breaks each of them once. */
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
#ifndef MEMLORD_MAX_STRINGS
#define MEMLORD_MAX_STRINGS (64u << 20)
#endif
#ifndef MEMLORD_MAX_STACK_NODES
#define MEMLORD_MAX_STACK_NODES (1u << 20)
#endif
#if MEMLORD_MAX_DEVICES < 1 || MEMLORD_MAX_DEVICES > 250
#error "MEMLORD_MAX_DEVICES is 1 to 250: a block has 8 bits for its device"
#endif
#if defined(INCLUDE_STB_DS_H)
#error "stb_ds.h came before memlord.h: put MEMLORD_IMPLEMENTATION in a file of its own"
#endif

/* A private function or table that other modules use. In the product it is static; where each
   module is an object of its own, the linker sees it and hosts do not. A variable is declared in
   the header of its module and defined in the body. */
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
