"""The operations of a ledger's life: what play.c reads, and what model.py computes from.

A script is a list of (thread, time, name, arguments). Its methods are the operations of play.c:
`script.alloc(CPU, 0x1000, 64, None)` appends one, on the thread `script.thread`, at a time that
`step` ns separate from the one before.
"""

from collections import namedtuple

TYPES = ("cpu", "pinned", "mapped", "cuda", "hip", "sycl", "metal", "vulkan", "npu", "other")
HOST_TYPES = ("cpu", "pinned", "mapped")  # they share the host's memory
ANY = -1
NONE = 2 ** 64 - 1  # as an account: none; as a stream: the default one

# Flags of a ledger
NO_STRATEGY, SITES, EXACT, DEFER, NO_THREADS, NO_ENV = 1, 2, 4, 8, 16, 64

# Results of calls
(OK, E_INVALID, E_NOMEM, E_UNKNOWN, E_LIMIT, E_DEVICE, E_OOM, E_STATE, E_IO,
 E_UNSUPPORTED) = range(10)

FORMATS = ("TEXT", "JSON", "HTML", "TRACE", "PROMETHEUS", "PPROF", "HEAPTRACK", "FOLDED",
           "MEMORY_VIZ", "CSV", "FOLDED_PEAK", "FOLDED_ALLOCATED", "TIMELINE")


class Device(namedtuple("Device", "type index")):
    """A device, or a selector with an index of ANY."""

    def __str__(self):
        if self.type == ANY:
            return "all"
        name = TYPES[self.type]
        plain = self.index < 0 or (self.index == 0 and name in HOST_TYPES)
        return name if plain else "%s:%d" % (name, self.index)


def device(name, index=0):
    return Device(TYPES.index(name), index)


ALL = Device(ANY, ANY)


def text(value):
    """A string as the bytes of it; None stays None."""
    return value.encode() if isinstance(value, str) else value


def encoded(argument):
    """An argument as play.c reads it."""
    if argument is None:
        return "-"
    if isinstance(argument, Code):
        return "@%d" % argument
    if isinstance(argument, Device):
        return "%d.%d" % argument
    if isinstance(argument, str):
        argument = argument.encode()
    if isinstance(argument, bytes):
        return "=" + "".join(chr(b) if chr(b).isalnum() and b < 128 else "%%%02X" % b
                             for b in argument)
    return repr(argument)


class Word(str):
    """An argument that play.c reads as it is: the name of a call, what a try gives."""


class Code(int):
    """An address so many bytes into main of play.c."""


class Script:
    def __init__(self, step=1_000_003):
        self.operations = []
        self.thread, self.time, self.step = 0, 0, step

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)

        def append(*arguments):
            self.time += self.step
            self.operations.append((self.thread, self.time, name, arguments))
        return append

    def wait(self, ns):
        """Lets time pass."""
        self.time += ns

    def text(self):
        """The script as play.c reads it."""
        return "".join(
            "%d %d %s\n" % (thread, time, " ".join(
                [name] + [a if isinstance(a, Word) else encoded(a) for a in arguments]))
            for thread, time, name, arguments in self.operations)
