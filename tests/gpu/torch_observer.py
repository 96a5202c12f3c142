"""PyTorch as it is, observed: the books are its allocator's own sums, to the byte."""
import json
import sys
import torch

sys.path.insert(0, "examples/torch")
import memlord_torch as m  # noqa: E402


def agree():
    stats = torch.cuda.memory_stats(0)
    assert m.allocated(0) == stats["active_bytes.all.current"], (m.allocated(0), stats)
    assert m.reserved(0) == torch.cuda.memory_reserved(0), (m.reserved(0), stats)
    if not m.pending(0):
        assert m.allocated(0) == torch.cuda.memory_allocated(0), (m.allocated(0), stats)


def saved():
    m.report("build/gpu/torch_observer.json")
    with open("build/gpu/torch_observer.json") as file:
        return json.load(file)


before = [torch.empty(n, 1000, device="cuda") for n in (1, 10, 100, 1000)]
del before[1]
m.attach(sys.argv[1])
agree()
m.frames()
with m.tag("weights"):
    model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(8)]).cuda()
agree()
for step in range(3):
    with m.scope("forward"):
        loss = model(torch.randn(256, 1024, device="cuda")).square().mean()
    agree()
    with m.tag("gradients"):
        loss.backward()
    agree()
before.clear()

side = torch.cuda.Stream()
x = torch.ones(1 << 20, device="cuda")
torch.cuda.synchronize()
with torch.cuda.stream(side):
    torch.cuda._sleep(int(1e9))
    y = x + 1
x.record_stream(side)
del x
assert m.pending(0) == 4 << 20, m.pending(0)
agree()
torch.cuda.synchronize()
z = torch.ones(1, device="cuda")  # here PyTorch looks which frees are complete
assert m.pending(0) == 0
agree()

graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    w = z + 1
agree()
failures = torch.cuda.memory_stats(0)["num_ooms"]
try:
    torch.empty(1 << 45, dtype=torch.uint8, device="cuda")
except torch.cuda.OutOfMemoryError:
    failures -= torch.cuda.memory_stats(0)["num_ooms"]
agree()
torch.cuda.empty_cache()
agree()

report = saved()
stats = next(d["stats"] for d in report["devices"] if d["device"] == "cuda:0")
tags = {t["tag"]: t["allocated"] for t in report["tags"]}
weights = sum(p.numel() * p.element_size() for p in model.parameters())
assert tags["weights"] == weights, (tags, weights)
if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 4):  # its threads have names
    assert tags["gradients"] >= weights, (tags, weights)
assert stats["oom_failures"] == -failures, (stats, failures)
assert stats["unknown_frees"] + stats["implicit_frees"] + stats["refused"] == 0, stats
assert any(s["site"]["file"] == __file__ for s in report["sites"] if s["site"]), report["sites"]
assert m.lost() == 0
print("live", m.allocated(0), "peak", m.peak(0), "reserved", m.reserved(0), "tags", tags)
