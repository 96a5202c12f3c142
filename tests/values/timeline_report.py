"""TIMELINE: a line for each device and each of its largest tags in each snapshot."""
import csv
import io

from csv_report import quoted
from notation import fixed

NAMES = "seconds device tag live peak".split()
SUBJECTS = ("names", "lines", "as csv reads it")


def lines_of(snapshot):
    found = []
    for usage in snapshot.usage:
        rest = usage.live
        for row, bytes in snapshot.holdings.get((usage.device, "tags"), {}).items():
            if row:
                found.append((row.subject, usage, bytes))
                rest -= bytes
        found.append((None, usage, rest))
    return [",".join([fixed(snapshot.time, 9), usage.device.name, quoted(tag), str(bytes), str(usage.peak)])
            for tag, usage, bytes in found]


def compare(ledger, data, check):
    names, *lines, end = data.decode().split("\r\n")
    check.same("names", "names", [NAMES, ""], [names.split(","), end])
    snapshots = ledger.snapshots_shown()
    check.same("lines", "lines", [line for s in snapshots for line in lines_of(s)], lines)
    live = {}
    for row in csv.DictReader(io.StringIO(data.decode(), newline=""), strict=True):
        key = row["seconds"], row["device"]
        live[key] = live.get(key, 0) + int(row["live"])
    wanted = {}
    for s in snapshots:
        for u in s.usage:
            key = fixed(s.time, 9), u.device.name
            wanted[key] = wanted.get(key, 0) + u.live
    check.same("as csv reads it", "live bytes", wanted, live)
