"""PyTorch through libmemlord_torch.so: its totals are those of PyTorch's own tensors."""
import ctypes
import sys
import torch

path = sys.argv[1]
allocator = torch.cuda.memory.CUDAPluggableAllocator(
    path, "memlord_torch_alloc", "memlord_torch_free")
lib = ctypes.CDLL(path)
for name in "allocated pending peak reserved recoveries".split():
    fn = getattr(lib, "memlord_torch_" + name)
    fn.restype, fn.argtypes = ctypes.c_uint64, [ctypes.c_int]
allocator.allocator().set_record_stream_fn(
    ctypes.cast(lib.memlord_torch_record_stream, ctypes.c_void_p).value)
torch.cuda.memory.change_current_allocator(allocator)


def live():
    return lib.memlord_torch_allocated(0)


def size(tensors):
    return sum(t.untyped_storage().nbytes() for t in tensors)


base = live()
tensors = [torch.empty(n, 1000, device="cuda") for n in (1, 10, 100, 1000)]
assert live() - base == size(tensors), (live() - base, size(tensors))
views = [t[0] for t in tensors] + [t.t() for t in tensors]  # no bytes
assert live() - base == size(tensors)
del views, tensors[3]
assert live() - base == size(tensors), (live() - base, size(tensors))

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
assert lib.memlord_torch_pending(0) >= n, lib.memlord_torch_pending(0)
torch.cuda.synchronize()
assert lib.memlord_torch_pending(0) == 0
tensors.append(y)
assert live() - base == size(tensors), (live() - base, size(tensors))
assert lib.memlord_torch_save(b"build/gpu/torch.json") == 0
print("live", live(), "peak", lib.memlord_torch_peak(0), "reserved", lib.memlord_torch_reserved(0))
