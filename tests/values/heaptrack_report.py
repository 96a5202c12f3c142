"""HEAPTRACK: reads version 2 of its text format and plays it. A line of a mode that the writer does
not write, a number that stands for nothing and a line with too many words raise ValueError.

Which allocation a file makes when is open, as the ledger has sums alone. So what is compared is how
often each number of bytes comes to each stack and goes, and what that adds up to."""
import collections

from stacks import (ARENA, GONE, KINDS, allocs, comments, frames_of, scope_frame, scopes_of,
                    site_frames, stack_places, text_frame)

SUBJECTS = ("head", "comments", "times", "frames", "calls", "peak", "live", "temporary", "changes")


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
        self.last, self.addresses = None, set()
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
        if address in self.addresses or not at or len(at) % 3:
            raise ValueError(f"{len(at)} words of the frame at {address:x}, or another frame there")
        self.addresses.add(address)
        self.frames.append((address, module, tuple(
            (self.strings[at[k]], self.strings[at[k + 1]], at[k + 2]) for k in range(0, len(at), 3))))

    def t(self, words):
        frame, parent = (number(w) for w in words)
        _, module, functions = self.frames[frame]
        self.traces.append((tuple(f + (self.strings[module],) for f in functions), parent))

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

    def named(self):
        """(address, module, functions) of each frame."""
        return [(at, self.strings[module], functions) for at, module, functions in self.frames[1:]]

    def stack(self, trace):
        """Returns the functions of a trace, the innermost first."""
        frames = ()
        while trace:
            functions, trace = self.traces[trace]
            frames += functions
        return frames


MODES = {"v": (Reader.v, 2), "X": (Reader.X, None), "c": (Reader.c, 1), "s": (Reader.s, None),
         "i": (Reader.i, None), "t": (Reader.t, 2), "a": (Reader.a, 2), "+": (Reader.plus, 1),
         "-": (Reader.minus, 1)}


def counted(frames):
    """What calls are counted by: a stack, or a site without the scopes, which have neither a file
    nor a module, but for the frame of a stack that is cut. Which of the blocks of a site no call has made is open."""
    return tuple(f for f in frames if f[1] or f[3] or f[0].startswith("[cut"))


def read(data):
    """Returns what a file says. A change is (frames, the innermost first; bytes; comes or goes),
    with how often there is such a one."""
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
    changes, calls = collections.Counter(), collections.Counter()
    for (info, sign), n in r.count.items():
        size, trace = r.infos[info]
        frames = r.stack(trace)
        if info:  # number 0 is of no bytes
            changes[frames, abs(size), "comes" if sign == "+" or size < 0 else "goes"] += n
            calls[counted(frames)] += n if sign == "+" else 0
    return {"head": r.head, "comments": r.comments, "times": r.times,
            "frames": sorted(f[1:] for f in r.named()), "calls": +calls, "peak": r.peak,
            "live": r.live, "temporary": r.temporary, "changes": dict(changes)}


# -- what a ledger says --

def placed(frame, device=None):
    """A frame with its module: a site's is its device."""
    return text_frame(frame) + (device.name if device else frame[3].decode(),)


def trace_of(ledger, block):
    """The frames that a block's allocations are counted by: its stack, or its site."""
    frames = frames_of(ledger, block)
    return tuple(placed(f, None if block.stack else block.device) for f in frames)


def callers(block):
    """Without a stack the scopes are the callers of the site."""
    return () if block.stack else tuple(placed(scope_frame(s)) for s in scopes_of(block.scope))


class Sum:
    """What was allocated by a trace, and what of it lives."""

    def __init__(self):
        self.allocs = self.bytes = 0
        self.blocks = []

    def older(self):
        """Blocks that no call since the last reset has made."""
        return max(len(self.blocks) - self.allocs, 0)

    def freed(self):
        return max(self.allocs - len(self.blocks), 0), \
            max(self.bytes - sum(b.bytes for b in self.blocks), 0)


def sums(ledger):
    found = collections.defaultdict(Sum)
    for (device, frames, is_stack), (n, bytes) in allocs(ledger).items():
        trace = found[tuple(placed(f, None if is_stack else device) for f in frames)]
        trace.allocs += n
        trace.bytes += bytes
    for block in ledger.blocks.values():
        found[trace_of(ledger, block)].blocks.append(block)
    return found


def divided(bytes, n):
    """A number of bytes as n blocks of one size, the last with what remains."""
    return [bytes // n] * (n - 1) + [bytes - bytes // n * (n - 1)] if n else []


def live(ledger, trace, blocks):
    """The live blocks of a trace, with their callers. Of samples those with the same site, tag and
    scopes are a share, which has no blocks of its own."""
    if ledger.stack_bytes <= 1:
        return [(trace + callers(block), [block.bytes]) for block in blocks]
    shares = collections.defaultdict(list)
    for block in blocks:
        shares[block.device, block.site, block.tag, block.scope].append(block)
    return [(trace + callers(of[0]), divided(sum(b.bytes for b in of), len(of)))
            for of in shares.values()]


def changes(ledger, peak, traces):
    """How often each number of bytes comes to each stack and goes; and the calls of each stack."""
    found, calls = collections.Counter(), collections.Counter()
    for trace, of in traces.items():
        n, bytes = of.freed()
        for size in divided(bytes, n):
            found[trace, min(size, peak), "comes"] += 1
            found[trace, min(size, peak), "goes"] += 1
        for frames, sizes in live(ledger, trace, of.blocks):
            for size in sizes:
                found[frames, size, "comes"] += 1
        calls[trace] += n + len(of.blocks) - of.older()
    for device in ledger.devices:
        if device.arena:
            found[(placed(ARENA, device),), device.arena, "comes"] += 1
    return found, calls


def gone(ledger, peak, found):
    """The bytes from the live ones up to the peak: which allocations they were is not known."""
    left = peak - ledger.live_total()
    for device in ledger.devices:
        bytes = min(device.peak - device.live, left)
        if device is ledger.devices[-1]:
            bytes = left
        if bytes:
            found[(placed(GONE, device),), bytes, "comes"] += 1
            found[(placed(GONE, device),), bytes, "goes"] += 1
        left -= bytes


def all_frames(ledger):
    def functions(frames):
        return tuple(text_frame(f) for f in frames)
    return [(row.device.name, functions(site_frames(row.subject))) for row in ledger.sites] + \
        [(d.name, functions([kind])) for d in ledger.devices for kind in KINDS] + \
        [("", functions([scope_frame(s)])) for s in ledger.scopes] + \
        [(place[0][3].decode(), functions(place))
         for place in stack_places(ledger, ledger.frames_known())]


def expected(ledger):
    peak = ledger.total()["peak"]
    found, calls = changes(ledger, peak, sums(ledger))
    gone(ledger, peak, found)
    return {"head": [("v", 0x10400, 2), ("X", "memlord " + ledger.version)],
            "comments": comments(ledger), "times": [0, (ledger.now - ledger.started) // 10 ** 6],
            "frames": sorted(all_frames(ledger)), "calls": +calls, "peak": peak,
            "live": ledger.live_total(), "temporary": 0, "changes": dict(found)}


def compare(ledger, data, check):
    wanted, found = expected(ledger), read(data)
    for subject in SUBJECTS:
        check.same(subject, subject, wanted[subject], found[subject])
