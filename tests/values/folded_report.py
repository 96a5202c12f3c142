"""FOLDED: collapsed stacks. Compares the file line by line, in its order."""
from notation import shown
from stacks import groups

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


def expected(ledger):
    live, parts = groups(ledger)
    sums = {}
    for group, (_, bytes) in live.items():
        if bytes:
            sums[group, None] = sums.get((group, None), 0) + bytes
    for (group, name), bytes in parts.items():
        sums[group, name] = bytes
    lines = {}
    for (group, part), bytes in sums.items():
        outermost_first = tuple(f[:3] for f in reversed(group.frames + group.scopes))
        order = (group.device.name, group.tag or b"", outermost_first, part or b"")
        words = [group.device.name] + ([word(group.tag)] if group.tag else []) + \
            [frame_words(f) for f in outermost_first] + ([word(part)] if part else [])
        lines[order] = (";".join(words), lines.get(order, ("", 0))[1] + bytes)
    return [f"{words} {bytes}" for _, (words, bytes) in sorted(lines.items())]


def read(data):
    *lines, end = data.decode().split("\n")
    if end:
        raise ValueError("the last line does not end")
    return lines


def compare(ledger, data, check):
    check.same("lines", "line", expected(ledger), read(data))
