"""MemLord for PyTorch, from Python: what README.md beside this file describes.

    import memlord_torch
    memlord_torch.attach("build/libmemlord_torch_observer.so")  # at any time
    with memlord_torch.tag("weights"):
        model = Model().cuda()
    memlord_torch.report("memory.html")

attach() keeps the books of PyTorch's own allocator. install("build/libmemlord_torch.so") puts
another in its place, before anything is on the GPU. load() alone takes a library without PyTorch.
Tags, scopes and sites are those of the thread that begins them; what autograd allocates on threads
of its own has the tag that was begun last.
"""
import contextlib
import ctypes
import os
import sys

_lib = None
_kept = []  # PyTorch has no more than a pointer to some of them

_int, _u64, _text, _ptr = ctypes.c_int, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_void_p
_FUNCTIONS = {  # name: result, parameters
    "allocated": (_u64, _int),
    "pending": (_u64, _int),
    "peak": (_u64, _int),
    "reserved": (_u64, _int),
    "recoveries": (_u64, _int),
    "peak_reset": (None, _int),
    "empty_cache": (None,),
    "limit_fraction": (_int, _int, ctypes.c_double),
    "tag_begin": (_int, _text),
    "tag_end": (_int,),
    "scope_begin": (_int, _text),
    "scope_end": (_int,),
    "checkpoint": (_int, _text),
    "mark": (_u64,),
    "live_since": (_u64, _u64),
    "site": (_ptr, _text, _text, _int),
    "site_use": (_ptr, _ptr),
    "explain": (ctypes.c_size_t, _int, _u64, _text, ctypes.c_size_t),
    "error": (_text, _int),
    "save": (_int, _text),
}


_OBSERVER = {  # of the library that attach() takes
    "attach": (_int,),
    "built_for": (_text,),
    "frames": (_int, _int, _text),
    "lost": (_u64,),
}


class Error(RuntimeError):
    """What MemLord refused, and why."""


def _open(path, more={}):
    library = ctypes.CDLL(path)
    for name, (result, *parameters) in {**_FUNCTIONS, **more}.items():
        try:
            function = getattr(library, "memlord_torch_" + name)
        except AttributeError as missing:
            raise OSError(f"{path}: {missing}") from None
        function.restype, function.argtypes = result, parameters
    return library


def load(path):
    """Loads the library; OSError if it is not there or not MemLord's."""
    global _lib
    _lib = _open(path)


def _function(name):
    if _lib is None:
        raise Error("memlord_torch.attach(), install() or load() comes first")
    return getattr(_lib, "memlord_torch_" + name)


def _call(name, *arguments):
    result = _function(name)(*arguments)
    if result:
        said = _function("error")(result).decode()
        raise Error(f"{name}({', '.join(map(repr, arguments))}): {said}")


def _torch_allocator(path, alloc):
    import torch

    load(path)
    plugin = torch.cuda.memory.CUDAPluggableAllocator(
        os.path.abspath(path), "memlord_torch_" + alloc, "memlord_torch_free")
    return plugin, plugin.allocator()


def _address(name):
    return ctypes.cast(getattr(_lib, "memlord_torch_" + name), ctypes.c_void_p).value


def install(path):
    """Makes it the allocator of this process: before anything is on the GPU."""
    import torch

    plugin, allocator = _torch_allocator(path, "alloc")
    allocator.set_record_stream_fn(_address("record_stream"))
    allocator.set_reset_fn(_address("empty_cache"))
    allocator.set_memory_fraction_fn(_address("set_memory_fraction"))
    torch.cuda.memory.change_current_allocator(plugin)


def attach(path):
    """Keeps the books of PyTorch's own allocator from now on, and of what it holds already."""
    global _lib
    import torch

    here = str(torch.__version__)
    cure = f"make torch-observer TORCH={os.path.dirname(torch.__file__)}"
    try:  # another PyTorch may lack functions that it calls
        library = _open(path, _OBSERVER)
    except OSError as why:
        raise OSError(f"{why}; for PyTorch {here}: {cure}") from None
    # The third number does not count: PyTorch changes its C++ classes only with the second.
    built = library.memlord_torch_built_for().decode()
    if built.split(".")[:2] != here.split(".")[:2]:
        raise Error(f"attach: {path} was built for PyTorch {built}, and this is {here}: {cure}")
    _lib = library
    torch.cuda.init()
    _call("attach")


def frames(on=True):
    """After attach(): each block is shown at the line that allocated it, outside of torch."""
    import torch

    _call("frames", on, os.fsencode(os.path.dirname(torch.__file__) + os.sep))


def lost():
    """After attach(): entries of PyTorch's trace that were of no use; 0 is right."""
    return _function("lost")()


def mem_pool(path):
    """A torch.cuda.MemPool whose segments are on the books; PyTorch's own allocator cuts them."""
    import torch

    plugin, allocator = _torch_allocator(path, "segment_alloc")
    _kept.append((plugin, allocator))
    return torch.cuda.MemPool(allocator)


def _caller(depth):
    frame = sys._getframe(depth)
    while frame.f_back and frame.f_code.co_filename in (__file__, contextlib.__file__):
        frame = frame.f_back
    code = frame.f_code
    name = getattr(code, "co_qualname", code.co_name)
    return _function("site")(code.co_filename.encode(), name.encode(), frame.f_lineno)


@contextlib.contextmanager
def site():
    """What this thread allocates meanwhile is shown at the line of the `with`."""
    before = _function("site_use")(_caller(2))
    try:
        yield
    finally:
        _function("site_use")(before)


@contextlib.contextmanager
def tag(name):
    """What this thread allocates meanwhile has the tag, and the line of the `with`."""
    _call("tag_begin", name.encode())
    try:
        with site():
            yield
    finally:
        _call("tag_end")


@contextlib.contextmanager
def scope(name):
    """A phase of the program: what it allocates and frees, how long it takes, its peak."""
    _call("scope_begin", name.encode())
    try:
        with site():
            yield
    finally:
        _call("scope_end")


def checkpoint(name):
    """Keeps the totals of this moment under a name."""
    _call("checkpoint", name.encode())


def mark():
    """Begins a mark: live_since(mark) is what was allocated since."""
    return _function("mark")()


def live_since(mark):
    """Bytes allocated since the mark and not freed; 0: since the beginning."""
    return _function("live_since")(mark)


def report(path):
    """Writes a report in the format of the suffix: .html, .json, .txt, .pickle (memory_viz) ..."""
    _call("save", os.fsencode(path))


def set_memory_fraction(fraction, device=0):
    """Refuses what would pass this part of the device."""
    _call("limit_fraction", device, fraction)


def explain(device=0, wanted=0):
    """One line: why `wanted` bytes do not fit, and what holds the device."""
    text = ctypes.create_string_buffer(1024)
    _function("explain")(device, wanted, text, len(text))
    return text.value.decode(errors="replace")


def allocated(device=-1):
    """Live bytes; of all devices by default."""
    return _function("allocated")(device)


def pending(device=-1):
    """Bytes freed, whose streams are not done with them; part of allocated()."""
    return _function("pending")(device)


def peak(device=-1):
    """The most that allocated() was."""
    return _function("peak")(device)


def reset_peak(device=-1):
    """Starts the peak over."""
    _function("peak_reset")(device)


def reserved(device=-1):
    """Bytes that pools hold of the device."""
    return _function("reserved")(device)


def recoveries(device=-1):
    """Allocations that found no memory at first and got it by a retry."""
    return _function("recoveries")(device)


def empty_cache():
    """Trims the pools; nothing while a stream is captured."""
    _function("empty_cache")()
