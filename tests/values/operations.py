"""The scripts that the suite plays. SCRIPTS names each one and the function that makes it."""

from script import (ALL, EXACT, NONE, NO_ENV, NO_STRATEGY, NO_THREADS, SITES, TYPES, Code, Script,
                    Word, device)

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
CPU, PINNED, MAPPED = device("cpu"), device("pinned"), device("mapped")
GPU, GPU1, VULKAN, POOL = device("cuda"), device("cuda", 1), device("vulkan", 3), device("other")
FLAGS = NO_ENV | EXACT | NO_THREADS | NO_STRATEGY
WEIGHTS = 0x7f40_0000_0000
UNKNOWN = (1 << 64) - 1

# Sites by number: planted ones, then those of two return addresses.
LOAD, KV, STEP, WORK, ODD, LONG, JIT, CALL = range(8)
PLACES = (("src/load.c", "load_tensors", 10), ("src/kv.cpp", "kv::grow<int>", 4_000_000),
          ("src/step.c", "step", 3), (b"e\xff.c", b"h\x01\"<&>\\", 5),
          ("", "no file", 0),
          ("src/a/very/long/path/that/no/column/of/a/table/will/ever/hold/name.cpp",
           "ns::klass::method(int, char const*, std::vector<float> const&) const", 2_147_483_647))


def begin(flags=FLAGS | SITES, depth=4, events=8192, labels="host=a1,model=x", stack_bytes=1,
          batch=0):
    """A script whose ledger is made after a while, with its sites."""
    s = Script()
    s.wait(3_000_000_000)
    s.create(flags, depth, stack_bytes, events, batch, labels, "root")
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
    s.move(CPU, 0x220000, CPU, 0x220000, 3 * MIB + 2, STEP)
    s.move(CPU, 0x999999, GPU, 0x230000, 5, None)
    s.copy(CPU, GPU, 1_000_001)
    s.copy(GPU, GPU1, 77)
    s.copy(CPU, GPU, 1)
    s.arena_add(GPU1, 1 << 45, WORK)
    s.arena_sub(GPU1, 12345, WORK)
    s.arena_add(VULKAN, 100, STEP)
    s.arena_sub(VULKAN, 101, STEP)
    s.tag_begin("scratch")
    s.arena_add(VULKAN, 4000, STEP)
    s.tag_begin("more")
    s.arena_add(VULKAN, 3000, STEP)
    s.arena_sub(VULKAN, 3500, STEP)
    s.tag_end()
    s.tag_end()
    s.arena_add(VULKAN, 10, None)
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
    s.arena_add(CPU, 5000, STEP)
    s.arena_add(GPU1, 700, None)
    s.arena_sub(CPU, 300, STEP)
    s.tag_end()
    s.scope_end()


def capacities(s):
    """Sources that know much, little, nothing and nonsense; limits; tickets on two threads."""
    s.capacity(GPU, 80 * GIB, 11 * GIB, 7 * GIB, 500 * MIB + 1, 777, 3 * GIB, 778, 1)
    s.capacity(CPU, 64 * GIB, 20 * GIB, 0, 0)
    s.capacity(GPU1, 40 * GIB, 2 * GIB, 3, 0)
    s.capacity(VULKAN, 10, 11, 0, 0)
    s.sample(GPU)
    s.sample(CPU)
    s.sample(VULKAN)
    s.sample(device("npu"))
    s.limit(GPU, 40 * GIB)
    s.limit(VULKAN, GIB)
    s.limit_fraction(GPU1, 0.25)
    s.reserve(GPU, 3 * GIB, 1)
    s.alloc(GPU, 0x500000, GIB + 1, KV)
    s.thread = 1
    s.alloc_with(GPU, 0x500040, 5000, STEP, None, 1, None, None)
    s.alloc_with(CPU, 0x500080, 5000, STEP, "of another device", 1, None, 7)
    s.adopt_ticket(1)
    s.alloc(GPU, 0x5000c0, 777, STEP)
    s.thread = 0
    s.alloc(GPU, 0x500100, 778, STEP)
    s.reserve(GPU, 2 * GIB, 2)
    s.reserve(VULKAN, 2 * GIB, 3)
    s.reserve(CPU, 123456, 4)
    s.commit(4)
    s.commit(4)
    s.alloc(CPU, 0x500140, 50 * MIB, STEP)
    s.free(CPU, 0x500140, STEP)
    s.alloc(MAPPED, 0x500180, GIB, None)


def accounts(s):
    """Accounts that blocks are charged to, that the host charges, and one that is closed."""
    s.account_open(GPU, b"request \xf0\x9f\x98\x80", 8 * GIB, 1)
    s.account_open(CPU, "user <&>\n", 100, 2)
    s.account_open(GPU, "closed", 0, 3)
    s.account_open(GPU, None, 0, 4)
    s.account_open(CPU, "x" * 60, 0, 5)
    s.account_charge(1, 5_000_000_000)
    s.account_charge(1, -1000)
    s.account_charge(1, 4 * GIB)
    s.account_charge(2, 99)
    s.account_charge(2, 2)
    s.account_charge(2, -100)
    s.account_charge(3, 5)
    s.account_charge(4, 1)
    s.account_close(3)
    s.account_charge(3, 5)
    s.account_use(2)
    s.alloc(CPU, 0x510000, 5000, STEP)
    s.alloc(GPU, 0x510000, 6000, STEP)
    s.realloc(CPU, 0x510000, 0x510040, 4000, STEP)
    s.alloc(CPU, 0x510080, 70, STEP)
    s.thread = 2
    s.free(CPU, 0x510080, STEP)
    s.thread = 0
    s.move(GPU, 0x510000, CPU, 0x5100c0, 800, None)
    s.account_use(None)
    s.account_use(5)
    s.alloc(CPU, 0x510100, 12, None)
    s.alloc_with(CPU, 0x510140, 13, None, None, None, 2, None)
    s.alloc_with(CPU, 0x510180, 14, STEP, "", None, NONE, 9)
    s.alloc_with(CPU, 0x5101c0, 15, None, "named", None, 3, NONE)
    s.account_use(None)


def pools(s):
    s.pool_set(POOL, 50 * MIB, 5 * MIB)
    s.alloc(POOL, 0x520000, 20 * MIB + 3, KV)
    s.pool_add(POOL, 10 * MIB)
    s.pool_add(POOL, -15 * MIB)
    s.pool_add(POOL, -GIB)
    s.pool_served(POOL, 30, 11)
    s.pool_set(GPU1, GIB, UNKNOWN)
    s.pool_served(GPU1, 1, 0)


def collections(s):
    """Collections that the host asks for, one of a band, and one that cannot run."""
    s.gc_answer(1, 0, 12345)
    s.gc_run(GPU, 5)
    s.gc_callback(device("cuda", -1), 0)
    s.gc_run(GPU, 5)
    s.gc_answer(0, 0, 99)
    s.gc_run(GPU1, 4)
    s.gc_answer(1, 1, 1000)
    s.alloc(GPU1, 0x530000, 500, None)
    s.free(GPU1, 0x530000, None)
    s.alloc(GPU, 0x530040, 600, None)
    s.free(GPU, 0x530040, None)
    s.gc_run(GPU1, 4)
    s.gc_callback(VULKAN, 0)
    s.gc_answer(1, 0, 5)
    s.strategy(VULKAN, 0, 101, 1, 30_000_000, 0, 0)
    for i in range(5):
        s.alloc(VULKAN, 0x540000, 9_000_000 + i, STEP)
        s.free(VULKAN, 0x540000, STEP)


def shortage(s):
    """Requests that find no memory: one is saved, one gives up, one is over a limit."""
    s.tag_begin("cache")
    s.alloc_retry(GPU, 1_000_000, KV, 5, Word("+"), Word("+"), Word("0x550000"))
    s.wait(200_000_000)  # what the pauses took
    s.alloc_retry(GPU, 2_000_000, KV, 5, Word("0x550040"))
    s.alloc_retry(GPU, 3_000_000, WORK, 1, Word("+"), Word("+"))
    s.wait(200_000_000)
    s.alloc_retry(GPU1, 4_000_000, None, 3, Word("-"))
    s.alloc_retry(VULKAN, GIB, STEP, 3, Word("-"))
    s.alloc_failed(CPU, 99_999, LONG)
    s.tag_end()


def fences(s):
    """Frees that wait for their device: on two queues, by recorded uses, after moves."""
    for number, state in ((1, 0), (2, 0), (3, 1), (4, -1), (5, 0)):
        s.fence_set(number, state)
    s.stream(0xdead_beef_cafe)
    for i in range(8):
        s.alloc(GPU, 0x560000 + 64 * i, 1_000_000 + i * 1000, KV)
    for i in range(23):
        s.stream(0x1000 + i)
        s.alloc(GPU1 if i % 5 == 0 else GPU, 0x7580000 + 64 * i, 5_000 + i * 100, KV)
    s.stream(0)
    s.free_deferred(GPU, 0x560000, STEP, 1, 7)
    s.free_deferred(GPU, 0x560040, STEP, 3, 8)
    s.free_deferred(GPU, 0x560080, None, 4, 9)
    s.free_deferred(GPU, 0x560080, None, 4, 9)
    s.block_use(GPU, 0x5600c0, 2, 10)
    s.free(GPU, 0x5600c0, STEP)
    s.free(GPU, 0x5600c0, STEP)
    s.move(GPU, 0x560100, GPU1, 0x560800, 1_000_001, STEP, 5, 11)
    s.free_deferred(GPU, 0x560140, STEP, 5, 12)
    s.free_done(GPU, 0x560140)
    s.alloc(GPU, 0x560000, 4321, STEP)
    s.free_deferred(GPU, 0x560180, STEP, 2, 10)
    s.fence_set(2, 1)
    s.retire(ALL)
    s.fence_set(1, 1)


def states(s):
    """Scopes of all kinds, snapshots, and what is open when the report is written."""
    s.place(1, "planted", STEP)
    s.scope_enter(1)
    s.scope_begin(b"h\xffstile \"scope\"/<\n>")
    s.alloc(PINNED, 0x570000, 1_234_567, STEP)
    s.scope_shapes(b"k[1,8] \x01")
    s.scope_end()
    s.scope_end()
    s.scope_enter(1)
    s.free(PINNED, 0x570000, None)
    s.scope_end()
    s.device_time(1, 5_000_000_000)
    s.device_time(99, 1)
    s.snapshots_start(5000)
    s.tag_begin(b"\xc3\xa9t\xfe <tag> \"&\" " + b"long" * 20)
    s.alloc(PINNED, 0x570040, 7_654_321, LONG)
    s.tag_end()
    s.describe(PINNED, 0x570040, b"n\x00\x1b[31mred"[:1] + b"\x1b[31mred", "\u202ef32", None, 0, 0)
    s.checkpoint(b"caf\xc3\xa9 \xff")
    s.mark()
    s.scope_begin("still open")
    for i, bytes in enumerate((900_001, 500_003, 300_007, 100, 0)):
        s.stack(0x700000 + i, Code(13 + i % 2), 0x701000, Code(21), 0x702000)
        s.alloc(CPU, 0x580000 + 64 * i, bytes, (LOAD, CALL, None, JIT, ODD)[i])
    s.stack()
    s.alloc(CPU, 0x581000, 4000, JIT)
    s.alloc(CPU, 0x581040, 5000, CALL)
    s.wait(12_000_000_000)
    s.free(CPU, 0x580000 + 64 * 3, STEP)
    s.sites_enable(0)
    s.stack(0x401000)
    s.alloc(CPU, 0x580140, 77_777, LOAD)
    functions(s)
    growth(s)


def growth(s):
    """What changes after a sample that is still young when the report is written."""
    for where in (CPU, GPU, GPU1):
        s.sample(where)
    s.wait(100_000_000)
    s.alloc(CPU, 0x590000, 60 * MIB, None)
    s.free(CPU, 0x590000, None)
    s.alloc(CPU, 0x590040, 2 * MIB + 1, None)
    s.alloc(PINNED, 0x590080, 5 * MIB, None)
    s.alloc(MAPPED, 0x5900c0, 7 * GIB, None)
    s.alloc(GPU, 0x590100, 123_456_789, None)
    s.free(GPU, 0x500100, None)


def functions(s):
    """The functions at return addresses: some are inlined in others, some are of a library."""
    s.functions(0x402000, "std::take", "/usr/include/c++/12/new", 7, 1, "inner", "src/a.cpp", 8, 0,
                "outer<>", "src/a.cpp", 20, 0)
    s.functions(0x501000, b"alone\xff", "src/b.c", 3, 0)
    s.functions(0x403000, "std::first", "x.h", 1, 1, "std::last", "x.h", 2, 1)
    s.functions(0x700000, "std::only", "x.h", 0, 1)
    s.functions(0x701000, "", "jit.js", 5, 0, "compiled;", "jit.js", 0, 0)
    s.functions(0x7000_1234, "std::take", "x.h", 3, 1, "std::only", "x.h", 4, 1)
    s.functions(Code(21), "std::run", None, 0, 1, "", "", 0, 0, "play", "play.c", 9, 0)


def rich():
    s = begin()
    s.label(GPU1, b"H200 \xc3\xa9\xfe")
    s.site_at(JIT, 0x7000_1234)
    s.site_at(CALL, Code(9))
    load_weights(s)
    steps(s)
    moves(s)
    mistakes(s)
    capacities(s)
    accounts(s)
    pools(s)
    collections(s)
    shortage(s)
    fences(s)
    states(s)
    return s


def empty():
    """A ledger in which nothing is recorded."""
    return begin(labels=None)


def plain():
    """The default configuration, one thread: nothing but blocks is recorded."""
    s = begin(NO_ENV | NO_THREADS, depth=0, events=0, labels=None)
    s.alloc(CPU, 0x1000, 3 * KIB // 2, LOAD)
    s.alloc(CPU, 0x2000, 100 * KIB, None)
    s.alloc(CPU, 0x3000, MIB, KV)
    s.retain(CPU, 0x1000, None)
    s.free(CPU, 0x3000, KV)
    s.wait(3_600_000_000_000)
    return s


def epochs():
    """A reset with blocks, scopes and pending frees from before; later a reset of peaks alone."""
    s = begin()
    s.fence_set(1, 0)
    s.label(GPU, "A")
    load_weights(s)
    s.scope_begin("around")
    s.stack(0x401000, 0x402000)
    s.tag_begin("kv")
    s.alloc(GPU, 0x1000, 50 * MIB, KV)
    s.alloc(CPU, 0x1000, 60 * MIB, KV)
    s.alloc(GPU, 0x2000, 7 * MIB, STEP)
    s.free(GPU, 0x2000, STEP)
    s.free_deferred(GPU, 0x1000, STEP, 1, 1)
    s.copy(CPU, GPU, 10)
    s.free(GPU, 0x9999, STEP)
    s.pool_set(GPU1, 9 * GIB, 0)
    s.pool_set(GPU1, 8 * GIB, 0)
    s.alloc_failed(GPU, 5, KV)
    s.checkpoint("before")
    s.reset()
    s.alloc(GPU, 0x2000, 3 * MIB, STEP)
    s.move(GPU, 0x2000, GPU1, 0x2000, 4 * MIB, KV)
    s.free(CPU, 0x1000, KV)
    s.alloc(CPU, 0x3000, 5 * MIB, KV)
    s.fence_set(1, 1)
    s.retire(ALL)
    s.tag_end()
    s.scope_end()
    s.scope_begin("around")
    s.alloc(CPU, 0x4000, 30 * MIB, None)
    s.free(CPU, 0x4000, None)
    s.scope_end()
    s.alloc(CPU, 0x5000, 5242, None)
    s.scope_begin("down")
    s.free(CPU, 0x5000, None)  # a byte more rounds to another hundredth of a MiB
    s.scope_end()
    s.free(MAPPED, 0x7000_0000, LOAD)
    s.peak_reset(CPU)
    s.alloc(CPU, 0x4000, MIB, None)
    s.checkpoint("after")
    return s


def many():
    """More of everything than a report lists: what is cut is counted."""
    s = begin(events=1024, depth=3)
    for i in range(320, 330):
        s.wait(1_000_000 * (i % 3))
        s.label(device("hip", i), "card %d" % i)
    for i in range(70):
        s.site(10 + i, "many.c", "f%d" % i, i + 1)
        s.tag_begin("tag %d" % i)
        s.scope_begin("scope %d" % i)
        s.stack(0x800000 + i, 0x801000, 0x802000, 0x803000)
        s.alloc(device("hip", 320 + i % 10), 0x10000 + 64 * i, 10_000 + 3 * i, 10 + i)
        s.alloc(device("hip", 320 + i % 10), 0x20000 + 64 * i, 20_000 + 7 * i, 10 + i)
        s.scope_end()
        s.tag_end()
    for i in range(75):
        s.scope_begin("again")
        s.alloc(CPU, 0x30000 + 64 * i, i * i, STEP)
        s.scope_end()
    for i in range(25):
        s.account_open(CPU, "account %d" % i, 1000 - i, i + 1)
        s.account_charge(i + 1, 900 - i)
        s.checkpoint("checkpoint %d" % i)
    s.alloc(CPU, 0x40000, MIB, None)
    for i in range(1030):
        s.part_add(CPU, 0x40000, 1000 * i, 999 - i % 7, None, None, None, 0)
    s.mark()
    leak_much(s)
    for i in range(245):
        s.wait(7_000_000 * (i % 5))
        if i == 100:
            s.alloc(CPU, 0x50000, 3 * MIB, None)
        if i == 101:
            s.free(CPU, 0x50000, None)
        if i == 3:
            s.snapshots_start(10)
        s.wait(20_000_000)
        s.gc_poll(ALL)
    s.snapshots_stop()
    return s


def growing():
    """A server over two minutes: what grows, by tag, by site and by the percent of a capacity; a
    sawtooth, a level, and one that grew and stopped."""
    s = begin(labels=None, depth=0)
    s.capacity(GPU, 10 * MIB, 2 * MIB, 0, 0)
    s.sample(GPU)
    s.snapshots_start(3000)
    s.tag_begin("level")
    s.alloc(CPU, 0x10000, 700 * MIB, LOAD)
    s.tag_end()
    for i in range(40):
        s.tag_begin("sessions")
        s.alloc(CPU, 0x20000 + 64 * i, 5 * MIB + 1000 * (i % 7), (KV, KV, STEP)[i % 3])
        s.tag_end()
        s.tag_begin("stopped")
        if i < 12:
            s.alloc(CPU, 0x30000 + 64 * i, 9 * MIB, WORK)
        s.tag_end()
        s.tag_begin("saw")
        if i % 10 == 9:
            for k in range(9):
                s.free(CPU, 0x40000 + 64 * k, None)
        else:
            s.alloc(CPU, 0x40000 + 64 * (i % 10), 30 * MIB, ODD)
        s.tag_end()
        s.alloc(GPU, 0x50000 + 64 * i, 4096, None)  # 1 % of the capacity and more, below 1 MiB a minute
        s.wait(3_000_000_000)
        s.gc_poll(ALL)
    return s


def leak_much(s):
    """More groups of leaks, and more stacks, than a report lists."""
    for i in range(120):
        s.tag_begin("leak %d" % i)
        s.stack(0x900000 + i)
        s.alloc(GPU, 0x60000 + 64 * i, 1000 + 11 * i, KV if i % 2 else None)
        s.tag_end()


def calls():
    """More stacks than a report lists; and more events than the ring holds, of three threads."""
    s = begin(events=256, depth=2, labels=None)
    for i in range(2100):
        s.thread = i % 3
        s.stack(0xa00000 + i, 0x801000)
        s.alloc(CPU, 0x70000 + 64 * (i % 7), 10_000 + i, STEP)
        if i % 7 == 3:
            s.free(CPU, 0x70000 + 64 * 2, None)
        if i % 300 == 7:
            s.arena_add(GPU, 1000 + i, KV)
    return s


def queues():
    """Frees on queues: those of one are done in their order, whatever their fences say."""
    s = begin(labels=None)
    for number in range(1, 8):
        s.fence_set(number, 0)
    s.stack(0x401000)
    for i in range(7):
        s.alloc(GPU, 0x1000 * (i + 1), 1000 << i, STEP)
    for i in range(4):
        s.free_deferred(GPU, 0x1000 * (i + 1), KV, i + 1, 5)
    s.fence_set(2, 1)
    s.fence_set(3, -1)
    s.retire(ALL)
    s.block_use(GPU, 0x5000, 5, 5)
    s.block_use(GPU, 0x5000, 6, 6)
    s.block_use(GPU, 0x5000, 7, 6)
    s.free(GPU, 0x5000, STEP)
    s.fence_set(1, 1)
    s.retire(VULKAN)
    s.retire(GPU)
    s.tag_begin("tag")
    s.alloc(device("npu"), 0x1000, 5000, None)
    s.arena_add(device("npu"), 300, None)
    s.tag_end()
    s.fence_set(4, 1)
    s.fence_set(5, 1)
    s.fence_set(6, 1)
    s.retire(device("cuda", -1))
    return s


def shortages():
    """A ledger whose allocator refuses, and one device too many: what does not fit is dropped."""
    s = begin(labels=None, depth=0)
    s.alloc(GPU, 0x1000, 1000, STEP)
    s.alloc(CPU, 0x1000, 2000, STEP)
    s.memory(0)
    for i in range(1, 130):
        s.alloc(GPU if i % 3 else CPU, i << 36, 10 * i, STEP)
    for i in range(40):
        s.checkpoint("before")
    s.memory(1)
    for i in range(120, 130):
        s.free(GPU if i % 3 else CPU, i << 36, STEP)
    s.free(GPU, 128 << 36, STEP)
    s.alloc(GPU, 0x2000, MIB, STEP)
    s.alloc(CPU, 0x2000, MIB + 1, STEP)
    for i in range(130):
        s.alloc(device("sycl", i), 0x3000 + 64 * i, 100 + i, None)
    return s


def samples():
    """Stacks of a sample: blocks so large that each is taken, and so small that none is."""
    s = begin(labels=None, stack_bytes=KIB)
    s.mark()
    for i in range(8):
        s.stack(0x401000 + i, 0x402000)
        s.alloc(GPU, 0x1000 + 64 * i, MIB + 100_000 * i, STEP)
        s.alloc(CPU, 0x1000 + 64 * i, 0, STEP)
    s.free(GPU, 0x1000, STEP)
    s.free(GPU, 0x1040, STEP)
    s.realloc(GPU, 0x1080, 0x1080, 3 * MIB, KV)
    return s


def threads():
    """Three threads that publish late: a peak is low by at most its error."""
    s = begin(NO_ENV | NO_THREADS | NO_STRATEGY | SITES, labels=None, batch=8 * KIB)
    random = 3
    for i in range(400):
        random = (random * 1103515245 + 12345) % (1 << 32)
        s.thread = (random >> 16) % 3
        s.tag_default("tag %d" % (i % 3))
        s.stack(0x401000 + i % 2)
        key = 0x10000 + (random >> 8) % 50 * 64
        if random >> 30:
            s.alloc(GPU if i % 2 else CPU, key, (random >> 12) % 5000, STEP if i % 5 else KV)
        else:
            s.free(GPU if i % 2 else CPU, key, STEP)
        if i % 100 == 50:
            s.thread = 0
            s.checkpoint("checkpoint")
    s.thread = 2
    s.alloc(PINNED, 0x1000, 77_777, STEP)
    s.free(PINNED, 0x1000, STEP)
    return s


def crowd():
    """More tags, on two devices, and more scopes than PROMETHEUS names; and arguments."""
    s = begin(FLAGS & ~NO_ENV | SITES, labels="rest=2,rank=1", depth=0)
    for i in range(150):
        s.tag_begin("tag %d" % i)
        s.scope_begin("scope %d" % i)
        s.alloc(GPU, 0x10000 + 64 * i, 1000 + i, STEP)
        if i % 10 == 0:
            s.alloc(CPU, 0x10000 + 64 * i, 10 + i, STEP)
            s.expect(GPU, "tag %d" % i, 990 + 2 * i)
        s.wait(i * 1_000_000)
        if i != 120:
            s.scope_end()
        s.tag_end()
    for i in range(100, 150, 2):
        s.free(GPU, 0x10000 + 64 * i, STEP)
    return s


SCRIPTS = (("rich", rich), ("empty", empty), ("plain", plain), ("epochs", epochs), ("many", many),
           ("growing", growing),
           ("calls", calls),
           ("queues", queues), ("shortages", shortages), ("samples", samples),
           ("threads", threads), ("crowd", crowd))
# The formats that are compared, where not all are: a text has no ranges, and how PPROF and HEAPTRACK
# divide bytes that a realloc counted at two sites among their stacks is open.
FORMATS = {"threads": ("JSON",), "samples": ("TEXT", "JSON", "HTML", "TRACE", "PROMETHEUS", "FOLDED", "FOLDED_PEAK",
                                            "MEMORY_VIZ", "CSV")}
