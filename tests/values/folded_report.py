"""FOLDED: collapsed stacks, of live bytes, of those at the peak and of those allocated. Compares the
file line by line, in its order."""
import collections

from notation import shown
from stacks import allocs, at_peak, groups

SUBJECTS = ("lines",)


def word(text):
    return shown(text).replace(";", ":")


def frame_words(frame):
    """A place as `function file:line`; a scope, and what is no place, as its name."""
    name, file, line = frame[:3]
    if not file:
        return word(name)
    function = "" if name == file else word(name) + " "
    return f"{function}{word(file)}{':%d' % line if line else ''}"


def text_lines(sums, measure=""):
    """The lines of bytes by (device, tag, frames from the innermost, part), in their order."""
    lines = {}
    for (device, tag, frames, part), bytes in sums.items():
        outermost_first = tuple(f[:3] for f in reversed(frames))
        order = (device.name, tag or b"", outermost_first, part or b"")
        words = [device.name + measure] + ([word(tag)] if tag else []) + \
            [frame_words(f) for f in outermost_first] + ([word(part)] if part else [])
        lines[order] = (";".join(words), lines.get(order, ("", 0))[1] + bytes)
    return [f"{words} {bytes}" for _, (words, bytes) in sorted(lines.items()) if bytes]


def live(ledger):
    groups_live, parts = groups(ledger)
    sums = {(group, None): bytes for group, (_, bytes) in groups_live.items()}
    sums.update(parts)
    return text_lines({(group.device, group.tag, group.frames + group.scopes, part): bytes
                       for (group, part), bytes in sums.items()})


def peak(ledger):
    return text_lines({(device, None, frames, None): bytes
                       for (device, frames), bytes in at_peak(ledger).items()}, " (peak)")


def allocated(ledger):
    sums = collections.Counter()
    for (device, frames, _), (_, bytes) in allocs(ledger).items():
        sums[device, None, frames, None] += bytes
    return text_lines(sums, " (allocated)")


def read(data):
    *lines, end = data.decode().split("\n")
    if end:
        raise ValueError("the last line does not end")
    return lines


class Folded:
    """A format: the bytes of one measure."""

    def __init__(self, expected):
        self.SUBJECTS, self.expected = SUBJECTS, expected

    def compare(self, ledger, data, check):
        check.same("lines", "line", self.expected(ledger), read(data))


LIVE, PEAK, ALLOCATED = Folded(live), Folded(peak), Folded(allocated)
