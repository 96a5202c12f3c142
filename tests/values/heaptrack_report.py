"""HEAPTRACK: reads version 2 of its text format and plays it. A line of a mode that the writer does
not write, a number that stands for nothing and a line with too many words raise ValueError."""
import collections


def number(word):
    if word.startswith("0") and word != "0" or word.lower() != word:
        raise ValueError(f"{word} is not the shortest hexadecimal number")
    return int(word, 16)


def signed(value):
    return value - (value >> 63 << 64)


class Reader:
    """What a file has said up to some line: tables of strings, frames, traces and allocations; the
    bytes that are live; and how often each allocation was made and freed."""

    def __init__(self):
        self.strings, self.frames, self.traces, self.infos = [""], [None], [None], []
        self.live = self.peak = self.calls = self.temporary = 0
        self.last = None
        self.head, self.comments, self.times = [], [], []
        self.count = collections.Counter()

    def v(self, words):
        self.head.append(("v",) + tuple(number(w) for w in words))

    def X(self, words):
        self.head.append(("X", " ".join(words)))

    def c(self, words):
        self.times.append(number(words[0]))

    def s(self, words):
        self.strings.append(" ".join(words))

    def i(self, words):
        address, module, *at = (number(w) for w in words)
        function, file, line = at
        if (address, module) in [f[:2] for f in self.frames[1:]]:
            raise ValueError(f"two frames at {address:x}")
        self.frames.append((address, module, self.strings[function], self.strings[file], line))

    def t(self, words):
        frame, parent = (number(w) for w in words)
        _, module, function, file, line = self.frames[frame]
        self.traces.append(((function, file, line, self.strings[module]), parent))

    def a(self, words):
        size, trace = (number(w) for w in words)
        self.infos.append((signed(size), trace))

    def plus(self, words):
        info = number(words[0])
        self.calls += 1
        self.last = info
        self.count[info, "+"] += 1
        self.live += self.infos[info][0]
        self.peak = max(self.peak, self.live)

    def minus(self, words):
        info = number(words[0])
        self.temporary += self.last == info
        self.last = None
        self.count[info, "-"] += 1
        self.live -= self.infos[info][0]
        if self.live < 0:
            raise ValueError(f"{self.live} bytes live")

    def stack(self, trace):
        """Returns the frames of a trace, the innermost first."""
        frames = ()
        while trace:
            frame, trace = self.traces[trace]
            frames += (frame,)
        return frames


MODES = {"v": (Reader.v, 2), "X": (Reader.X, None), "c": (Reader.c, 1), "s": (Reader.s, None),
         "i": (Reader.i, 5), "t": (Reader.t, 2), "a": (Reader.a, 2), "+": (Reader.plus, 1),
         "-": (Reader.minus, 1)}


def read(data):
    """Returns what a file says. An operation is (frames, the innermost first; bytes; + or -), with how
    often it comes; those of allocation 0, which is of no bytes, are left out."""
    r = Reader()
    text = data.decode()
    if not text.endswith("\n"):
        raise ValueError("the last line does not end")
    for line in text[:-1].split("\n"):
        mode, _, rest = line.partition(" ")
        if mode == "#":
            r.comments.append(rest)
            continue
        take, size = MODES[mode]
        words = rest.split(" ")
        if size and len(words) != size:
            raise ValueError(line)
        take(r, words)
    operations = collections.Counter()
    for (info, sign), n in r.count.items():
        size, trace = r.infos[info]
        if info:
            operations[r.stack(trace), size, sign] += n
    return {"head": r.head, "comments": r.comments, "times": r.times, "calls": r.calls,
            "peak": r.peak, "live": r.live, "temporary": r.temporary, "operations": dict(operations)}
