#!/usr/bin/env python3
"""consumers.py WHAT DIRECTORY: reads a file that tests/consumers.c wrote, as the tools that it is for
do, and prints nothing if the file is right. WHAT is pickle, json, csv, folded or heaptrack."""
import collections
import csv
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "values"))
import heaptrack_report
import memory_viz_report

directory = sys.argv[2]


def path(suffix):
    return f"{directory}/ledger.{suffix}"


stats = {k: int(v) for k, v in (line.strip().split("=") for line in open(f"{directory}/stats"))}


def same(what, found, wanted):
    assert found == wanted, f"{what}: {found} instead of {wanted}"


PARTS = 2 * sum(1 + 50 * i for i in range(48))  # of 4096 bytes: tests/consumers.c


def check_json():
    report = json.load(open(path("json")))
    same("allocated", report["total"]["allocated"], stats["allocated"])


def check_csv():
    rows = list(csv.DictReader(open(path("csv"), newline=""), strict=True))
    parts = [r for r in rows if r["part_bytes"]]
    same("blocks", len(rows) - len(parts), stats["live_blocks"])
    same("parts", len(parts), PARTS)
    same("bytes of parts", sum(int(r["part_bytes"]) for r in parts), PARTS * 4096)
    assert parts[0]["storage"] == rows[rows.index(parts[0]) - 1]["storage"], parts[0]
    arenas = sum(d["arena"] for d in json.load(open(path("json")))["devices"])
    same("bytes", sum(int(r["bytes"]) for r in rows) + arenas, stats["allocated"])
    same("pending", sum(int(r["bytes"]) for r in rows if r["pending"] == "1"), stats["pending"])
    assert open(path("csv"), newline="").read().count("\r\n") == len(rows) + 1
    for row in rows:
        assert None not in row and None not in row.values(), row
        assert not row["tag"].startswith(("=", "+", "-", "@")), row
        if row["shape"]:
            same("rank", len(json.loads(row["shape"])), 2)
        assert row["storage"].startswith("0x"), row


def check_folded():
    total, frames, parts, stacks = 0, set(), 0, []
    for line in open(path("folded"), newline="\n"):
        stack, size = line.rstrip("\n").rsplit(" ", 1)
        assert all(stack.split(";")), line
        frames.update(stack.split(";"))
        parts += int(size) if ";head: " in stack else 0
        stacks.append(stack)
        total += int(size)
    same("bytes", total, stats["allocated"])
    same("bytes of parts", parts, PARTS * 4096)
    same("lines of a stack", len(set(stacks)), len(stacks))
    for frame in "cuda:0", "cuda:1", "cpu", "weights", "decode", "(arena)", "(unknown)":
        assert frame in frames, frame


# heaptrack_print -F has written what is allocated and what leaks, by stack. Some versions add stacks
# up in 32 bits; the summary of heaptrack_print has three digits.
def check_heaptrack():
    units = {"B": 1, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
    seen = {}
    for line in open(f"{directory}/heaptrack.out"):
        for key in "calls to allocation functions", "peak heap memory consumption", \
                "total memory leaked":
            if line.startswith(key + ":"):
                word = line.split(":")[1].split()[0]
                seen[key] = float(word[:-1]) * units[word[-1]] if word[-1] in units else float(word)
    near = lambda a, b: abs(a - b) <= 0.006 * b
    assert near(seen["total memory leaked"], stats["allocated"]), seen
    assert near(seen["peak heap memory consumption"], stats["peak"]), seen
    calls = seen["calls to allocation functions"]
    same("calls", calls, stats["allocs"])
    # compared to the byte: the sums of the file itself
    played = heaptrack_report.read(open(path("heaptrack"), "rb").read())
    same("live", played["live"], stats["allocated"])
    same("peak", played["peak"], stats["peak"])


def snapshot_blocks(snapshot):
    """What is live at the end, by device: address -> (size, pending); checks the segments."""
    devices = collections.defaultdict(dict)
    for s in snapshot["segments"]:
        same("segment", sum(b["size"] for b in s["blocks"]), s["total_size"])
        at = s["address"]
        for b in s["blocks"]:
            same("address", b["address"], at)
            at += b["size"]
            assert b["state"] in ("active_allocated", "active_pending_free"), b
            assert b["address"] not in devices[s["device"]], b
            assert sum(p["size"] for p in b.get("parts", [])) <= b["size"], b
            devices[s["device"]][b["address"]] = (b["size"], b["state"] == "active_pending_free")
        active = sum(b["size"] for b in s["blocks"])
        same("active", s["active_size"], active)
        pending = s["blocks"][0]["state"] == "active_pending_free"
        same("allocated", s["allocated_size"], 0 if pending else active)
        for key in "stream", "segment_type", "segment_pool_id", "is_expandable", "frames":
            assert key in s, key
    return devices


def walk_back(trace, blocks):
    """As the viewer does: from the end to the beginning, every block in a segment."""
    segments = {a: size for a, (size, _) in blocks.items()}
    live = {a: pending for a, (_, pending) in blocks.items()}
    for e in reversed(trace):
        a, size, action = e["addr"], e["size"], e["action"]
        if action == "alloc":
            assert a in live and segments[a] == size, e
            assert not live.pop(a), e
        elif action == "segment_alloc":
            assert a not in live, e
            same("segment", segments.pop(a), size)
        elif action == "segment_free":
            assert a not in segments, e
            segments[a] = size
        elif action == "free_completed":
            assert a not in live and segments[a] == size, e
            live[a] = True
        elif action == "free_requested":
            assert live[a], e
            live[a] = False
    assert set(live) == set(segments)


def check_pickle():
    data = open(path("pickle"), "rb").read()
    snapshot = memory_viz_report.read(data)
    blocks = snapshot_blocks(snapshot)
    same("live", sum(s for d in blocks.values() for s, _ in d.values()), stats["allocated"])
    same("pending", sum(s for d in blocks.values() for s, p in d.values() if p), stats["pending"])
    same("parts", sum(len(s["blocks"][0].get("parts", [])) for s in snapshot["segments"]), PARTS)
    odd = snapshot["memlord"]["anomalies_and_drops"]
    same("unknown frees", [odd[d].get("unknown_frees", 0) for d in ("all", "cuda:0", "cpu")],
         [stats["unknown_frees"]] + [1, 0])
    numbers = snapshot["memlord"]["devices"]
    same("cuda:1", numbers["cuda:1"], 1)
    assert numbers["cpu"] > 1, numbers
    categories = set()
    for number, trace in enumerate(snapshot["device_traces"]):
        same("last action", trace[-1]["action"], "snapshot")
        same("its category", trace[-1]["category"], "unknown")
        times = [e["time_us"] for e in trace]
        same("order", times, sorted(times))
        for e in trace:
            categories.add(e.get("category"))
            for frame in e["frames"]:
                assert set(frame) == {"name", "filename", "line"}, frame
        walk_back(trace, blocks[number])
    if int(directory.rsplit("/", 1)[1]) >= 4096:
        assert {"weights", "kv_cache", "unknown"} <= categories, categories


try:
    globals()["check_" + sys.argv[1]]()
except AssertionError as e:
    sys.exit(f"{sys.argv[1]}: {e or 'does not hold'} (line {e.__traceback__.tb_next.tb_lineno})")
