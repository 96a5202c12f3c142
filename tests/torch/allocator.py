"""examples/torch/memlord_torch.py, without PyTorch and on the fake runtime."""
import ctypes
import json
import os
import sys
import tempfile
import types
import weakref

sys.path.insert(0, "examples/torch")
os.environ["FAKE_CUDA_DEVICES"] = "2"
ctypes.CDLL("build/fake/libcudart.so", mode=ctypes.RTLD_GLOBAL)

import memlord_torch as m  # noqa: E402

LIBRARY = "build/fake/libmemlord_torch.so"
library = ctypes.CDLL(LIBRARY)
library.memlord_torch_alloc.restype = ctypes.c_void_p
library.memlord_torch_alloc.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
library.memlord_torch_free.argtypes = [
    ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
folder = tempfile.mkdtemp(dir="build")


def alloc(size, device=0):
    return library.memlord_torch_alloc(size, device, None)


def refused(call, *arguments, error=m.Error):
    try:
        call(*arguments)
    except error as e:
        return str(e)
    raise AssertionError(f"{call.__name__}{arguments} was not refused")


def saved():
    path = os.path.join(folder, "x.json")
    m.report(path)
    with open(path) as file:
        return json.load(file), open(path).read()


def before_it_is_loaded():
    assert "load()" in refused(m.checkpoint, "x") and "load()" in refused(m.allocated)
    refused(m.load, "build/fake/no.so", error=OSError)
    assert "memlord_torch_" in refused(m.load, "build/fake/libcudart.so", error=OSError)
    m.load(LIBRARY)


def totals():
    a, b = alloc(1000), alloc(24, 1)
    assert (m.allocated(), m.allocated(0), m.allocated(1)) == (1024, 1000, 24)
    library.memlord_torch_free(b, 24, 1, None)
    assert (m.allocated(), m.pending(), m.peak(1), m.recoveries()) == (1000, 0, 24, 0)
    m.reset_peak(1)
    assert m.peak(1) == 0 and m.reserved(1) == 24
    m.empty_cache()
    assert m.reserved(1) == 0
    library.memlord_torch_free(a, 1000, 0, None)


def step():
    with m.scope("step"):
        with m.tag("kv"):
            return alloc(4096)


def tags_scopes_and_lines():
    line = step.__code__.co_firstlineno
    mark = m.mark()
    ptr = step()
    m.checkpoint("after the step")
    assert m.live_since(mark) == 4096 and m.live_since(0) == 4096
    _, text = saved()
    for word in ("kv", "step", "after the step", "allocator.py"):
        assert json.dumps(word)[1:-1] in text, word
    assert f'"line": {line + 2}' in text or f'"line":{line + 2}' in text, text[:2000]
    library.memlord_torch_free(ptr, 4096, 0, None)
    assert m.live_since(mark) == 0


def a_site_ends_with_its_block():
    use = library.memlord_torch_site_use
    use.restype = ctypes.c_void_p
    with m.site():
        outer = use(None)
        use(ctypes.c_void_p(outer))
        with m.tag("inner"):
            inner = use(None)
            use(ctypes.c_void_p(inner))
            assert inner and inner != outer
        assert use(ctypes.c_void_p(outer)) == outer
    assert use(None) is None


def an_exception_ends_a_tag():
    try:
        with m.tag("x"):
            raise KeyError
    except KeyError:
        pass
    assert library.memlord_torch_tag_end() != 0  # none is open


def bad_input():
    assert "tag_begin" in refused(m.tag("").__enter__)
    assert "scope_begin" in refused(m.scope("").__enter__)
    refused(m.checkpoint, "")
    refused(m.report, os.path.join(folder, "none", "x.json"))
    refused(m.set_memory_fraction, 0)
    refused(m.set_memory_fraction, float("nan"))
    refused(m.set_memory_fraction, 0.5, -1)
    refused(m.set_memory_fraction, 0.5, 7)


def a_fraction_is_a_limit():
    m.set_memory_fraction(0.5)
    assert "cuda:0" in m.explain(0, 1 << 40)
    m.set_memory_fraction(1.0)


class Allocator:
    """What PyTorch makes of a library; the functions it is given are kept by their names."""

    def __init__(self, path, alloc, free):
        assert os.path.isabs(path)
        self.functions = {name: address(name) for name in (alloc, free)}
        self.set = {}

    def allocator(self):
        return self

    def __getattr__(self, name):
        if not name.startswith("set_"):
            raise AttributeError(name)
        return lambda value: self.set.update({name: value})


def address(name):
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value


def torch_takes_it():
    current = []
    torch = types.ModuleType("torch")
    memory = types.SimpleNamespace(
        CUDAPluggableAllocator=Allocator, change_current_allocator=current.append)
    torch.cuda = types.SimpleNamespace(memory=memory, MemPool=weakref.ref)
    sys.modules["torch"] = torch
    m.install(LIBRARY)
    assert list(current[0].functions) == ["memlord_torch_alloc", "memlord_torch_free"]
    assert current[0].set == {
        "set_record_stream_fn": address("memlord_torch_record_stream"),
        "set_reset_fn": address("memlord_torch_empty_cache"),
        "set_memory_fraction_fn": address("memlord_torch_set_memory_fraction")}
    pool = m.mem_pool(LIBRARY)
    assert list(pool().functions) == ["memlord_torch_segment_alloc", "memlord_torch_free"]
    refused(m.install, "build/fake/no.so", error=OSError)
    assert len(current) == 1


before_it_is_loaded()
torch_takes_it()
totals()
tags_scopes_and_lines()
a_site_ends_with_its_block()
an_exception_ends_a_tag()
bad_input()
a_fraction_is_a_limit()
for name in os.listdir(folder):
    os.remove(os.path.join(folder, name))
os.rmdir(folder)
