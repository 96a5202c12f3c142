"""How reports write names, sizes, times and percentages."""

import datetime

from script import NO_ENV

PID = 4242  # of play.c
PROGRAM = b"a \"b\\ <i>&\n\xff\x1b;=%"  # the name of the executable, as /proc of check.py has it
ARGUMENTS = (b"--name=\"x\"\n", b"", b"<script>\xff&\x1b[31m", "é".encode() * 600)  # as /proc has them, if asked for
HOST = b"node-1\"\\<\x07"               # and that of the machine, as play.c has it

WALL_AT_0 = 1_800_000_000_123_456_700  # of play.c: ns since 1970 when the clock is 0


def average(total, count):
    """Rounded towards 0."""
    return int(abs(total) // count) * (1 if total >= 0 else -1) if count else 0


class Number(str):
    """A number with a fraction, by its digits."""


def is_control(code):
    return (code < 0x20 or 0x7f <= code < 0xa0 or code in (0x61c, 0x200e, 0x200f) or
            0x2028 <= code <= 0x202e or 0x2066 <= code <= 0x2069)


def characters(name):
    """The characters of a name, one string each. A byte that is no character of UTF-8, or is part
    of one that a report may not contain, is U+FFFD and two hexadecimal digits."""
    at, found = 0, []
    while at < len(name):
        for n in (1, 2, 3, 4):
            try:
                one = name[at:at + n].decode()
            except UnicodeDecodeError:
                continue
            if len(one) == 1 and not is_control(ord(one)) and one != "\ufffd":
                found.append(one)
                at += n
                break
        else:
            found.append("\ufffd%02x" % name[at])
            at += 1
    return found


def shown(name, most=0):
    """A name as reports show it, cut after `most` characters; None stays None."""
    if name is None:
        return None
    found = characters(name)
    cut = most and len(found) > most
    return "".join(found[:most] if cut else found) + ("..." if cut else "")


def address(storage):
    width = 16 if storage >> 48 else 12 if storage >> 32 else 8
    return "0x%0*x" % (width, storage)


def fixed(value, digits):
    """value / 10^digits, with all decimals."""
    whole, part = divmod(value, 10 ** digits)
    return "%d.%0*d" % (whole, digits, part)


def moment(ledger, ns):
    """A moment, in ns since the ledger began, as a report dates it."""
    ns += WALL_AT_0 + ledger.started
    date = datetime.datetime.fromtimestamp(ns // 10 ** 9, datetime.timezone.utc)
    return "%s.%03dZ" % (date.strftime("%Y-%m-%dT%H:%M:%S"), ns // 10 ** 6 % 1000)


def process_text(ledger, most=0):
    """Which process a report is of, in words."""
    return "%s, pid %d on %s, since %s for %s s" % (
        shown(PROGRAM, most), PID, shown(HOST, most), moment(ledger, 0),
        fixed((ledger.now - ledger.started) // 100_000_000, 1))


def arguments(ledger, most=0):
    """The arguments of the program, or None: at most 1020 bytes, cut between two characters."""
    if ledger.flags & NO_ENV:
        return None
    text, most_bytes = b" ".join(ARGUMENTS), 1020
    if len(text) > most_bytes:
        while text[most_bytes] & 0xc0 == 0x80:
            most_bytes -= 1
        text = text[:most_bytes] + b"..."
    return shown(text, most)


def trimmed(hundredths):
    """A number of hundredths without zeros at its end."""
    if hundredths % 10:
        return fixed(hundredths, 2)
    return fixed(hundredths // 10, 1) if hundredths % 100 else str(hundredths // 100)


def bytes_text(count):
    """Bytes for people: "1.5 KiB"."""
    scaled, unit = float(count), 0
    while unit < 6 and scaled >= 1023.995:
        scaled, unit = scaled / 1024, unit + 1
    return trimmed(int(scaled * 100 + 0.5)) + (" B", " KiB", " MiB", " GiB", " TiB", " PiB",
                                               " EiB")[unit]


def ns_text(ns):
    tenths, unit = ns * 10, 0
    while tenths >= 10000 and unit < 3:
        tenths, unit = tenths // 1000 + (tenths % 1000 >= 500), unit + 1
    return trimmed(tenths * 10) + (" ns", " us", " ms", " s")[unit]


def percent_text(percent):
    """A percentage for people; None is not known."""
    return "unknown" if percent is None else trimmed(int(percent * 10 + 0.5) * 10) + " %"
