"""The scripts that the suite plays. SCRIPTS names each one and the function that makes it."""

from script import (ALL, EXACT, NO_ENV, NO_STRATEGY, NO_THREADS, SITES, TYPES, Script, Word,
                    device)

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
CPU, PINNED, MAPPED = device("cpu"), device("pinned"), device("mapped")
GPU, GPU1, VULKAN, POOL = device("cuda"), device("cuda", 1), device("vulkan", 3), device("other")
FLAGS = NO_ENV | EXACT | NO_THREADS | NO_STRATEGY
WEIGHTS = 0x7f40_0000_0000
UNKNOWN = (1 << 64) - 1

# Sites by number; the last three have names that no report may show as they are.
LOAD, KV, STEP, WORK, ODD, LONG = range(6)
PLACES = (("src/load.c", "load_tensors", 10), ("src/kv.cpp", "kv::grow<int>", 4_000_000),
          ("src/step.c", "step", 3), (b"e\xff.c", b"h\x01\"<&>\\", 5),
          ("", "no file", 0),
          ("src/a/very/long/path/that/no/column/of/a/table/will/ever/hold/name.cpp",
           "ns::klass::method(int, char const*, std::vector<float> const&) const", 2_147_483_647))


def begin(flags=FLAGS | SITES, depth=4, events=8192, labels="host=a1,model=x"):
    """A script whose ledger is made after a while, with its sites."""
    s = Script()
    s.wait(3_000_000_000)
    s.create(flags, depth, 1, events, 0, labels, None)
    for type in range(len(TYPES)):
        s.source(type)
    for number, place in enumerate(PLACES):
        s.site(number, *place)
    return s


def load_weights(s):
    s.scope_begin("load")
    s.scope_shapes("q[1,32,128]")
    s.tag_begin("weights")
    s.stack(0x401000, 0x402000, 0x403000)
    s.alloc(GPU, WEIGHTS, 5_000_000_001, LOAD)
    s.stack(0x401100, 0x402000, 0x403000)
    s.alloc(GPU1, 0xffff_ffff_ffff_fff0, 4 * GIB, LOAD)
    s.alloc(MAPPED, 0x7000_0000, 3 * GIB + 17, KV)
    s.tag_end()
    s.describe(GPU, WEIGHTS, b"blk.0.attn_q\xed\xa0\x80", "f16", None, 0x80000001, 1 << 40, -1, 128)
    for i in range(5):
        s.part_add(GPU, WEIGHTS, 100_000_000 * i, 90_000_000 + i, "part%d" % i, "q4_0",
                   "norm" if i == 3 else None, i, *range(1, i + 1))
    s.part_add(GPU, WEIGHTS, 10, 20, "overlaps", None, None, 0)
    s.part_remove(GPU, WEIGHTS, 200_000_000)
    s.part_remove(GPU, WEIGHTS, 7)
    s.expect(GPU, "weights", 6_000_000_000)
    s.expect(GPU, "never", 77)
    s.expect(GPU1, "weights", 4 * GIB - 5)
    s.scope_end()


def steps(s):
    """A thread and two workers decode: storages come and go on several devices."""
    random = 7
    for i in range(240):
        random = (random * 1103515245 + 12345) % (1 << 32)
        s.thread = 0
        if i % 40 == 0:
            s.scope_begin("decode")
            s.scope_export(1)
            for worker in (1, 2):
                s.thread = worker
                s.scope_adopt(1)
                s.tag_default("worker%d" % worker)
        s.thread = i % 3
        s.stack(0x500000 + 16 * (random % 5), 0x501000, 0x502000 + 32 * (i % 2))
        step(s, i, random)
        if i % 40 == 20:
            s.thread = 0
            s.checkpoint("step %d" % i)
        if i % 40 == 39:
            for worker in (1, 2):
                s.thread = worker
                s.scope_return(1)
            s.thread = 0
            s.scope_end()
            s.mark()


def step(s, i, random):
    where = (CPU, GPU, VULKAN, PINNED)[(random >> 20) % 4]
    key = 0x10000 + (random >> 8) % 60 * 64
    bytes = (random >> 9) + i
    site = (LOAD, KV, STEP, WORK, None)[(random >> 4) % 5]
    s.tag_begin("t%d" % ((random >> 12) % 5))
    if i % 7 == 3:
        s.scope_begin("attention")
        s.wait(random % 50_000_000)
    kind = (random >> 24) % 10
    if kind == 4:
        s.free(where, key, site)
    elif kind == 5:
        s.retain(where, key, None)
    elif kind == 6:
        s.realloc(where, key, key + 32, random >> 7, STEP)
    elif kind == 7:
        s.release(where, key, site)
    elif kind == 8:
        s.track(where, key, bytes, site)
    else:
        s.alloc(where, key, bytes, site)
    if i % 7 == 3:
        s.scope_end()
    s.tag_end()


def moves(s):
    s.stack(0x600000)
    s.alloc(CPU, 0x200000, 10 * MIB, STEP)
    s.retain(CPU, 0x200000, None)
    s.describe(CPU, 0x200000, "moved", None, "activations", 2)
    s.move(CPU, 0x200000, GPU, 0x200000, 11 * MIB, KV)
    s.alloc(CPU, 0x210000, 3 * MIB + 1, STEP)
    s.move(CPU, 0x210000, CPU, 0x220000, 3 * MIB + 1, None)
    s.move(CPU, 0x999999, GPU, 0x230000, 5, None)
    s.copy(CPU, GPU, 1_000_001)
    s.copy(GPU, GPU1, 77)
    s.copy(CPU, GPU, 1)
    s.arena_add(GPU1, 1 << 45, WORK)
    s.arena_sub(GPU1, 12345, WORK)
    s.arena_add(VULKAN, 100, STEP)
    s.arena_sub(VULKAN, 101, STEP)
    s.many(Word("alloc"), STEP, CPU, 0x300000, 1000, GPU, 0x300000, 2000, CPU, 0x300040, 0)
    s.many(Word("track"), KV, CPU, 0x300000, 1, CPU, 0x300080, 300)
    s.many(Word("free"), STEP, CPU, 0x300000, 0, CPU, 0x3000c0, 0)
    s.many(Word("release"), None, CPU, 0x300080, 0, GPU, 0x300000, 0)
    s.realloc_begin(CPU, 0x300040, 1)
    s.realloc_end(1, 0x300100, 555, KV)
    s.realloc_begin(CPU, 0x300100, 2)
    s.realloc_end(2, 0, 0, None)
    s.free_begin(CPU, 0x300100, 3, STEP)
    s.free_end(3, 1, None)
    s.free_begin(CPU, 0x300100, 4, STEP)
    s.free_end(4, 0, STEP)
    s.retag(CPU, 0x220000, "activations")


def mistakes(s):
    """One anomaly of each kind."""
    s.free(CPU, 0xabcdef, STEP)
    s.free(CPU, 0, None)
    s.alloc(CPU, 0x400000, 100, STEP)
    s.alloc(CPU, 0x400000, 200, STEP)
    s.retain(CPU, 0x400000, None)
    s.free(CPU, 0x400000, STEP)
    s.alloc(CPU, 0, 1, None)
    s.alloc(CPU, 0x400040, (1 << 48) + 1, None)
    s.arena_sub(CPU, 9, None)
    s.tag_end()
    s.scope_end()


def rich():
    s = begin()
    s.label(GPU1, b"H200 \xc3\xa9\xfe")
    load_weights(s)
    steps(s)
    moves(s)
    mistakes(s)
    return s


SCRIPTS = (("rich", rich),)
