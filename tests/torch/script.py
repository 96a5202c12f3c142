"""script.py TEST: examples/torch/memlord_torch.py on the observer and the stand-in for PyTorch's
allocator. The module torch is one of the test's own. Run in the folder of tests/torch.sh."""
import ctypes
import json
import os
import re
import sys
import threading
import types

HERE = "build/torch/214/"
OBSERVER = HERE + "observer.so"
sys.path.insert(0, "examples/torch")
ctypes.CDLL(HERE + "torch/lib/libc10.so")  # import torch loads both
stand_in = ctypes.CDLL(HERE + "torch/lib/libc10_cuda.so", mode=ctypes.RTLD_GLOBAL)
holding = ctypes.PyDLL(HERE + "torch/lib/libc10_cuda.so")  # calls it with the interpreter held
for library in stand_in, holding:
    library.stand_in_alloc.restype = ctypes.c_uint64
    library.stand_in_alloc.argtypes = [
        ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int]
    library.stand_in_free.argtypes = [ctypes.c_int, ctypes.c_uint64]
    library.stand_in_bytes.restype = ctypes.c_int64

torch = types.ModuleType("torch")
torch.__file__ = os.path.abspath("tests/torch/torch/__init__.py")
torch.__version__ = "2.14.1+cu126"  # the headers' is 2.14.0
torch.cuda = types.SimpleNamespace(init=lambda: stand_in.stand_in_init(1, 0))
sys.modules["torch"] = torch

import memlord_torch as m  # noqa: E402


def alloc(size, library=stand_in):
    at = library.stand_in_alloc(0, size, 0, 0)
    assert at
    return at


def saved():
    path = "build/torch/script.json"
    m.report(path)
    with open(path) as file:
        return json.load(file)


def blocks():
    return {b["bytes"]: b for b in saved()["largest_blocks"]["blocks"]}


def refused(call, *arguments):
    try:
        call(*arguments)
    except m.Error as e:
        return str(e)
    raise AssertionError(f"{call.__name__}{arguments} was not refused")


def the_numbers_are_those_of_the_allocator():
    alloc(700)
    m.attach(OBSERVER)
    a = alloc(1000)
    assert m.allocated(0) == stand_in.stand_in_bytes(0, b"active") == 1024 + 1024
    assert m.reserved(0) == 2 << 20 and m.pending() == 0 and m.lost() == 0
    stand_in.stand_in_free(0, a)
    assert m.allocated() == 1024 and m.peak(0) >= 1700 and m.recoveries() == 0
    m.attach(OBSERVER)  # once more: nothing happens
    m.empty_cache()
    assert m.reserved(0) == 2 << 20 and m.allocated() == 1024


def an_observer_built_for_another_version_is_refused():
    alloc(700)
    for version in "2.2.0", "2.1.4", "3.14.0":
        torch.__version__ = version
        said = refused(m.attach, OBSERVER)
        assert said == (f"attach: {OBSERVER} was built for PyTorch 2.14.0, and this is {version}: "
                        f"make torch-observer TORCH={os.path.abspath('tests/torch/torch')}"), said
    assert "load()" in refused(m.allocated)  # nothing is attached, nor loaded
    torch.__version__ = "2.14.0"
    m.attach(OBSERVER)
    torch.__version__ = "2.2.0"
    other = OBSERVER.replace("214", "22")
    assert "built for PyTorch 2.14.0, and this is 2.2.0" in refused(m.attach, OBSERVER)
    torch.__version__ = "2.14.0"
    assert "built for PyTorch 2.2.0, and this is 2.14.0" in refused(m.attach, other)
    assert m.allocated(0) == stand_in.stand_in_bytes(0, b"active") == 1024  # of the first, still


def one_that_does_not_load_here_is_refused_with_the_same_cure():
    cure = f"for PyTorch 2.14.1+cu126: make torch-observer TORCH={os.path.dirname(torch.__file__)}"
    other = HERE + "torch/lib/libc10.so"  # a library that lacks a function, as 0.4.0's does
    for path in other, HERE + "not_there.so":
        try:
            m.attach(path)
        except OSError as e:
            assert str(e).startswith(path) and str(e).endswith("; " + cure), e
        else:
            raise AssertionError(f"{path} was not refused")


def a_tag_brings_the_line_of_its_with():
    m.attach(OBSERVER)
    with m.tag("weights"):
        alloc(1000)
    alloc(500)
    seen = blocks()
    assert seen[1000]["tag"] == "weights" and seen[500]["tag"] is None
    assert seen[1000]["site"]["function"] == "a_tag_brings_the_line_of_its_with"
    assert seen[500]["site"] is None


def layer(library):  # of a file of torch's
    return alloc(3000, library)


def frames_show_the_line_outside_of_torch():
    m.attach(OBSERVER)
    m.frames()
    scope = {"alloc": alloc}
    exec(compile("def linear(library): return alloc(2000, library)\n",
                 os.path.abspath("tests/torch/torch/nn.py"), "exec"), scope)
    torch.__file__, own = os.path.abspath("tests/torch/torch/x"), alloc.__code__
    for library, size in (stand_in, 2000), (holding, 2000):
        at = scope["linear"](library)
        site = blocks()[size]["site"]
        assert site["function"] == own.co_name and site["file"] == own.co_filename, site
        stand_in.stand_in_free(0, at)
    m.frames(False)
    alloc(4000)
    assert blocks()[4000]["site"] is None


def frames_of_torch_are_passed_over():
    torch.__file__ = os.path.abspath(__file__)  # all of this folder is torch's
    m.attach(OBSERVER)
    m.frames()
    scope = {"library": stand_in}
    text = "def outside(alloc):\n    return alloc(2000)\n"
    exec(compile(text, "/home/me/train.py", "exec"), scope)
    scope["outside"](alloc)
    site = blocks()[2000]["site"]
    assert site == {**site, "file": "/home/me/train.py", "function": "outside", "line": 2}, site
    alloc(2500)  # nothing is outside: the innermost
    assert blocks()[2500]["site"]["function"] == "alloc"


def frames_leave_the_history_to_others():
    assert "load()" in refused(m.frames)
    m.attach(OBSERVER)
    stand_in.stand_in_history(1)
    assert "state" in refused(m.frames)
    stand_in.stand_in_history(0)
    m.frames()
    m.frames()


def threads_that_hold_the_interpreter_and_threads_that_do_not():
    m.attach(OBSERVER)
    m.frames()

    def work(library):
        for _ in range(2000):
            stand_in.stand_in_free(0, alloc(1000, library))

    threads = [threading.Thread(target=work, args=(lib,)) for lib in (stand_in, holding) * 2]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert m.allocated() == 0 == stand_in.stand_in_bytes(0, b"active") and m.lost() == 0


class Model:
    """What the lines of README move to the GPU."""

    def cuda(self):
        alloc(1 << 20)
        return self


def the_lines_of_the_readme_run():
    with open("examples/torch/README.md") as file:
        text = file.read()
    block = next(b for b in re.findall(r"```python\n(.*?)```", text, re.S) if ".attach(" in b)
    path = "build/torch/memory.html"
    block = block.replace('"build/libmemlord_torch_observer.so"', repr(OBSERVER))
    exec(block.replace('"memory.html"', repr(path)), {"Model": Model})
    with open(path) as file:
        assert "weights" in file.read()


if len(sys.argv) < 2:
    for name, test in list(globals().items()):
        if isinstance(test, types.FunctionType) and "_" in name:
            print(name)
else:
    globals()[sys.argv[1]]()
