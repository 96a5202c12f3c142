"""Scripts for what the formats for other tools have of their own: reports without stacks and
without events, a device that runs full, and stacks that are samples."""

from operations import (CPU, GIB, GPU, GPU1, JIT, KIB, KV, LOAD, MIB, ODD, STEP, WORK, begin,
                        load_weights, moves, steps)
from script import ALL, Device, Word


def sites():
    """No stacks and no events: sites stand for stacks, scopes for callers, and TRACE has the
    invocations. A reset leaves blocks that no later call has made."""
    s = begin(depth=0, events=0, labels="rank=3, __x=1,9=2,tag=t,rank=4,name=a\\\"b\n,bad")
    load_weights(s)
    s.reset()
    steps(s)
    moves(s)
    s.scope_begin("left open")
    s.tag_begin("=1+1;\"quoted\"")
    s.alloc(CPU, 0x7000, 123, ODD)
    s.describe(CPU, 0x7000, "@name", "'f16", None, 7, 3, 4)
    s.part_add(CPU, 0x7000, 0, 23, "a;b", None, "-tag", 0)
    s.part_add(CPU, 0x7000, 23, 100, None, None, None, 0, 25)
    s.tag_end()
    for i in range(40):
        s.tag_begin("many%d" % i)
        s.alloc(GPU1, 0x800000 + i, 1000 + 7 * i, WORK)
        s.tag_end()
    s.alloc(CPU, 0x7800, 0, LOAD)
    s.site_at(JIT, 0x7000_1234)
    s.scope_begin("inlined")
    s.alloc(CPU, 0x7900, 2 * MIB, JIT)
    s.functions(0x7000_1234, "std::take", "x.h", 7, 1, "inner", "src/a.cpp", 8, 0, "outer", "src/a.cpp", 20, 0)
    return s



def full():
    """A device that runs full, a pool, frees that wait for streams, and calls that are refused."""
    s = begin(depth=3, events=4096, labels=None)
    s.stack(0x900000, 0x901000)
    s.capacity(GPU, 24 * GIB, 20 * GIB, 3 * GIB, 300 * MIB, 4_000_000_001, 9 * GIB)
    s.capacity(GPU1, 24 * GIB, 5, 0, 0)
    s.label(GPU, "the \"first\"; card")
    s.checkpoint("begin")
    s.scope_begin("serve; \\")
    s.tag_begin("kv;cache")
    s.alloc(GPU, 0xa0000, 2 * GIB, KV)
    s.alloc(GPU1, 0xa0000, 3 * GIB, KV)
    s.sample(GPU)
    s.sample(GPU1)
    s.limit(GPU, 8 * GIB)
    s.wait(2_500_000_000)
    waiting(s)
    s.gc_callback(GPU, 0)
    s.gc_answer(1, 1, 7 * MIB)
    s.gc_run(GPU, 5)
    s.gc_answer(0, 0, 0)
    s.gc_run(GPU, 5)
    s.gc_answer(1, 0, MIB)
    s.alloc_retry(GPU, 40 * MIB, STEP, 3, Word("+"), Word("+"), Word("0xb0000"))
    s.wait(200_000_000)  # what the pauses took
    s.alloc_retry(GPU, 50 * MIB, ODD, 1, Word("+"), Word("+"))
    s.wait(200_000_000)
    s.alloc_retry(GPU1, 60 * MIB, None, 1, Word("-"))
    s.pool_set(GPU, 6 * GIB, GIB)
    s.pool_set(GPU1, 5 * GIB, (1 << 64) - 1)
    s.pool_served(GPU, 100, 29)
    s.reserve(GPU, 3 * MIB, 1)
    s.account_open(GPU, "user;1", 0, 1)
    s.account_charge(1, 4096)
    s.alloc(Device(0, -1), 0xa1000, 5, None)
    s.alloc(GPU1, 0, 5, None)
    s.scope_begin("inner")
    s.checkpoint("end \xff")
    s.wait(1_000_000_000)
    return s


def waiting(s):
    """Blocks that are freed and wait, and one that two streams use."""
    s.stream(0x1_0007)
    for i in range(6):
        s.alloc(GPU, 0xc0000 + 0x1000 * i, (i + 1) * MIB + 1, STEP)
    s.stream(0)
    s.part_add(GPU, 0xc0000, 0, MIB, "half", None, None, 0)
    s.part_add(GPU, 0xc1000, 8, 9, "gone", None, None, 0)
    s.free_deferred(GPU, 0xc0000, WORK, 1, 7)
    s.free_deferred(GPU, 0xc1000, None, 2, 8)
    s.block_use(GPU, 0xc2000, 3, 9)
    s.block_use(GPU, 0xc2000, 4, 10)
    s.free(GPU, 0xc2000, LOAD)
    s.move(GPU, 0xc3000, GPU1, 0xc3000, 4 * MIB + 1, KV, 5, 7)
    s.fence_set(2, 1)
    s.fence_set(3, -1)
    s.retire(ALL)
    s.alloc(GPU, 0xc4000, 77 * KIB, LOAD)
    s.arena_add(GPU1, 5 * KIB, WORK)



def taken():
    """Stacks of a sample: blocks so large that each is taken, beside those of no bytes, of which
    none is. These stay with their sites."""
    s = begin(labels=None, stack_bytes=KIB)
    s.scope_begin("outer")
    s.tag_begin("kv")
    for i in range(9):
        s.stack(0x401000 + i // 3, 0x402000)
        s.alloc(GPU, 0x1000 + 64 * i, MIB + 100_000 * i, (STEP, KV)[i % 2])
        s.alloc(CPU, 0x1000 + 64 * i, 0, STEP)
        s.alloc(GPU, 0x2000 + 64 * i, 0, KV)
    s.arena_add(GPU, 4096, None)
    s.free(GPU, 0x1000, STEP)
    s.free(GPU, 0x1040, STEP)
    s.free(GPU, 0x2000, STEP)
    return s


SCRIPTS = (("sites", sites), ("full", full), ("taken", taken))
