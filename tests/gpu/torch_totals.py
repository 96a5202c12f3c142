"""torch_totals.py LIBRARY: PyTorch on the allocator of libmemlord_torch.so. Its totals are those of
PyTorch's own tensors; streams, graphs, the lack of memory and threads work as without it."""
import subprocess
import sys
import threading
import time

import torch

sys.path.insert(0, "examples/torch")
import memlord_torch as m  # noqa: E402


def live():
    return m.allocated(0)


def size(tensors):
    return sum(t.untyped_storage().nbytes() for t in tensors)


def totals():
    base = live()
    tensors = [torch.empty(n, 1000, device="cuda") for n in (1, 10, 100, 1000)]
    assert live() - base == size(tensors), (live() - base, size(tensors))
    views = [t[0] for t in tensors] + [t.t() for t in tensors]  # no bytes
    assert live() - base == size(tensors)
    del views, tensors[3]
    assert live() - base == size(tensors), (live() - base, size(tensors))


def streams():
    side = torch.cuda.Stream()
    x = torch.ones(1 << 20, device="cuda")
    n = x.untyped_storage().nbytes()
    y = x + 1  # to load a kernel for the first time may wait for the device
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(int(1e9))
        y = x + 1
    x.record_stream(side)
    del x
    z = torch.ones(4, device="cuda")  # on the allocation's stream, which waits for nothing
    torch.cuda.current_stream().synchronize()
    assert not side.query() and m.pending(0) >= n, (side.query(), m.pending(0))
    torch.cuda.synchronize()
    assert m.pending(0) == 0 and z.numel() == 4 and y.numel() == 1 << 20


def the_pool_keeps_its_memory():
    x = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
    del x
    torch.cuda.synchronize()
    assert m.reserved(0) - live() >= 64 << 20, (m.reserved(0), live())
    torch.cuda.empty_cache()
    assert m.reserved(0) - live() < 64 << 20, (m.reserved(0), live())


def graphs():
    x = torch.arange(1 << 16, device="cuda", dtype=torch.float32)
    old = torch.ones(1 << 16, device="cuda")
    for _ in range(3):
        y = (x * 2 + 1).sqrt()
    base = live()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = (x * 2 + 1).sqrt()
        del old  # of before the capture
    for value in (4, 9):
        x.fill_(value)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.allclose(y, (x * 2 + 1).sqrt()), value
    del graph, y
    torch.cuda.synchronize()
    m.pending(0)
    assert live() <= base, (live(), base)


def lack_of_memory():
    before, torch_free = live(), torch.cuda.mem_get_info()[0]
    start = time.time()
    try:
        torch.empty(torch_free * 2, dtype=torch.uint8, device="cuda")
        raise AssertionError("there is memory that is not there")
    except (RuntimeError, MemoryError) as e:
        assert "CUDA out of memory" in str(e), e
        print("out of memory:", type(e).__name__, f"{time.time() - start:.2f} s:", str(e)[:200])
    assert live() == before and float(torch.ones(4, device="cuda").sum()) == 4
    torch.cuda.set_per_process_memory_fraction(0.01)
    try:
        torch.empty(torch_free // 10, dtype=torch.uint8, device="cuda")
        raise AssertionError("the fraction is no limit")
    except (RuntimeError, MemoryError):
        torch.cuda.set_per_process_memory_fraction(1.0)


def threads():
    base = live()

    def work(seed):
        with m.tag(f"thread {seed}"):
            for i in range(2000):
                torch.empty(1 + (i * seed) % 100000, device="cuda")

    many = [threading.Thread(target=work, args=(seed,)) for seed in (7, 13, 17, 19)]
    for t in many:
        t.start()
    for t in many:
        t.join()
    torch.cuda.synchronize()
    assert m.pending(0) == 0 and live() == base, (live(), base)


def speed():
    def pairs(n=20000):
        for _ in range(n):
            torch.empty(1 << 20, dtype=torch.uint8, device="cuda")

    pairs(1000)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        pairs()
        times.append((time.perf_counter() - start) / 20000 * 1e6)
    return sorted(times)


def mem_pool():
    """In a process of its own: PyTorch's allocator cuts up segments that are on the books."""
    pool = m.mem_pool(path)
    with torch.cuda.use_mem_pool(pool):
        x = torch.ones(1 << 20, device="cuda")
    assert live() >= x.untyped_storage().nbytes(), live()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool.id):
        y = x + 1
    graph.replay()
    torch.cuda.synchronize()
    assert float(y[0]) == 2
    before = live()
    del x, y, graph, pool
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    assert live() < before, (live(), before)


path, row = sys.argv[1], (sys.argv[2:] or ["all"])[0]
if row == "mem_pool":
    mem_pool()
elif row == "native":
    print("native, us a pair:", *(f"{t:.2f}" for t in speed()))
else:
    m.install(path)
    for test in (totals, streams, the_pool_keeps_its_memory, graphs, lack_of_memory, threads):
        test()
        print("ok", test.__name__)
    m.report("build/gpu/torch.json")
    print("live", live(), "peak", m.peak(0), "reserved", m.reserved(0))
    print("memlord, us a pair:", *(f"{t:.2f}" for t in speed()))
    sys.stdout.flush()
    for row in "native", "mem_pool":
        if row == "mem_pool" and not hasattr(torch.cuda, "use_mem_pool"):
            print("not run: mem_pool, which this PyTorch has not")
            continue
        subprocess.run([sys.executable, __file__, path, row], check=True)
        print("ok", row)
