#!/usr/bin/env python3
"""profiles.py DIR: writes the profiles that the report page is tested with, the same each time.

A small simulation of an inference server keeps books the way the library does, so levels,
events, snapshots and scopes of a profile agree with each other. All but empty, wild
and early are what ../profile.schema.json says: keep them so.
"""
import json
import os
import random
import sys

MS = 1000000
KINDS = ["alloc", "free", "pend", "move", "arena_add", "arena_sub", "gc", "oom", "scope_begin", "scope_end",
         "checkpoint"]
STATS = """allocated pending freed peak peak_error live_blocks allocs frees total_allocated total_freed moves moved_bytes
reserved reserved_peak cached largest_free cache_hits cache_misses limit gc_runs gc_failed gc_reclaimed oom_attempts
oom_failures retries recoveries implicit_frees unknown_frees freed_while_shared underflows fence_failures dropped_allocs
dropped_bytes dropped_sites dropped_events held reallocs copies copied_bytes refused""".split()


def share(part, rest):
    return part / (part + rest) if part + rest else None


def rated(s):
    """Statistics, and the rates of them."""
    return {**s, "hit_rate": share(s["cache_hits"], s["cache_misses"]),
            "recovery_rate": share(s["recoveries"], s["oom_failures"]),
            "success_rate": share(s["allocs"], s["oom_failures"]),
            "mean_bytes": s["total_allocated"] // s["allocs"] if s["allocs"] else None}


def iso(ns):
    ms = ns // MS
    return "2026-11-21T07:%02d:%02d.%03dZ" % (ms // 60000 % 60, ms // 1000 % 60, ms % 1000)


class Run:
    """A run of a program under a ledger; `now` is its clock."""

    def __init__(self, seed, devices, ring):
        self.r = random.Random(seed)
        self.now = 0
        self.names = devices
        self.live = [0] * len(devices)
        self.stats = [dict.fromkeys(STATS, 0) for _ in devices]
        self.blocks, self.tags, self.sites = {}, {}, {}
        self.strings, self.events, self.ring = {"": 0}, [], ring
        self.scopes, self.open, self.snaps = {}, {}, []
        self.holders = [None] * len(devices)
        self.key = 0x7f0000000000

    def string(self, s):
        return self.strings.setdefault(s, len(self.strings))

    def event(self, kind, thread, device=-1, storage=0, size=0, site="", tag="", scope=0):
        if self.ring:
            self.events.append([self.now, KINDS.index(kind), thread, device, storage, size,
                                self.string(" ".join(reversed(site.split(" ")))),
                                tag if kind == "checkpoint" else self.string(tag), scope])

    def change(self, device, size):
        s = self.stats[device]
        self.live[device] += size
        s["allocated"] = self.live[device]
        s["total_allocated" if size > 0 else "total_freed"] += abs(size)
        s["allocs" if size > 0 else "frees"] += 1
        s["live_blocks"] += 1 if size > 0 else -1
        if self.live[device] > s["peak"]:
            s["peak"] = self.live[device]
            held = self.holders[device]
            if not held or s["peak"] > held["bytes"] * 17 / 16:
                self.holders[device] = self.hold(device)
        for stack in self.open.values():
            for f in stack:
                f["peak"] = max(f["peak"], sum(self.live) - f["pre"])

    def hold(self, device):
        def top(books, name):
            rows = [{name: k[0] if name == "tag" else site(k[0]), "bytes": v[0]} for k, v in books.items()
                    if k[1] == device and v[0] > 0]
            return sorted(rows, key=lambda x: -x["bytes"])[:32]
        return {"device": self.names[device], "bytes": self.live[device], "time_ns": self.now,
                "tags": top(self.tags, "tag"), "sites": top(self.sites, "site")}

    def count(self, block, size):
        for books, name in ((self.tags, "tag"), (self.sites, "site")):
            row = books.setdefault((block[name], block["device"]), [0, 0, 0, 0, 0, 0])
            row[0] += size
            row[1] = max(row[1], row[0])
            row[2 if size > 0 else 3] += 1
            row[4 if size > 0 else 5] += abs(size)

    def alloc(self, thread, device, size, tag, where, **more):
        self.key += 0x10000
        stack = self.open.get(thread) or []
        block = dict(more, device=device, bytes=size, tag=tag, site=where, thread=thread,
                     scope=stack[-1]["path"] if stack else None)
        self.blocks[self.key] = block
        self.count(block, size)
        self.change(device, size)
        for f in stack:
            f["delta"] += size
            f["blocks"] += 1
        self.event("alloc", thread, device, hex(self.key), size, where, tag or "")
        return self.key

    def free(self, thread, key):
        block = self.blocks.pop(key)
        self.count(block, -block["bytes"])
        self.change(block["device"], -block["bytes"])
        for f in self.open.get(thread) or []:
            f["delta"] -= block["bytes"]
            f["blocks"] -= 1
        self.event("free", thread, block["device"], hex(key), block["bytes"], block["site"], block["tag"] or "")

    def begin(self, thread, name, shapes=None):
        stack = self.open.setdefault(thread, [])
        path = (stack[-1]["path"] + "/" if stack else "") + name
        if path not in self.scopes:
            self.scopes[path] = {"id": len(self.scopes) + 1, "parent": self.scopes[stack[-1]["path"]]["id"] if stack else 0,
                                 "name": name, "path": path, "calls": [], "peak": 0}
        stack.append({"path": path, "start": self.now, "pre": sum(self.live), "delta": 0, "blocks": 0, "peak": 0,
                      "shapes": shapes})
        self.event("scope_begin", thread, scope=self.scopes[path]["id"])

    def end(self, thread):
        f = self.open[thread].pop()
        self.scopes[f["path"]]["calls"].append([f["start"], self.now - f["start"], thread, f["delta"], f["blocks"], f["pre"],
                                                sum(self.live), f["peak"], f["shapes"]])
        self.event("scope_end", thread, scope=self.scopes[f["path"]]["id"])

    def snapshot(self, name=None):
        self.snaps.append({"timestamp": iso(self.now), "time_ns": self.now, "checkpoint_name": name,
                           "total_mb": mb(sum(self.live)), "total_bytes": sum(self.live), "tensor_count": len(self.blocks),
                           "device_breakdown": {d: {"total_mb": mb(self.live[i]), "total_bytes": self.live[i],
                                                    "pending_bytes": 0, "reserved_bytes": 0, "peak_bytes": self.stats[i]["peak"],
                                                    "count": self.stats[i]["live_blocks"], "tensors": self.tensors(i)}
                                                for i, d in enumerate(self.names)}})
        if name:
            self.event("checkpoint", 1, tag=name)

    def tensors(self, i):
        top = sorted(self.blocks.values(), key=lambda b: -b["bytes"])[:10]
        return [{**both("size", b["bytes"]), "shape": b.get("shape", []), "dtype": b.get("dtype"), "device": self.names[i],
                 "name": b.get("name"), "tag": b["tag"], "operation": b["scope"], "requires_grad": None}
                for b in top if b["device"] == i]

    def profile(self, capacity, keep=None):
        events = self.events[-keep:] if keep else self.events
        total = {k: sum(s[k] for s in self.stats) for k in STATS}
        blocks = sorted(self.blocks.items(), key=lambda b: -b[1]["bytes"])
        named = [s for s in self.snaps if s["checkpoint_name"]]
        return {
            "schema": "memlord/2", "version": "0.3.0",
            "metadata": {"generated_at": iso(self.now), "program": None, "host": None, "pid": 4711,
                         "started_at": iso(0), "uptime_ns": self.now, "own_bytes": 1890432,
                         "mark": 1, "labels": "host=a1,model=llama-8b", "num_snapshots": len(self.snaps),
                         "operation_tracking_enabled": True, "sites_enabled": True, "events_enabled": bool(events),
                         "dropped": {"scopes": 0, "scope_invocations": 0, "snapshots": 0, "events": len(self.events) - len(events)}},
            "summary": {"num_snapshots": len(self.snaps), "checkpoints": [s["checkpoint_name"] for s in named],
                        **both("peak_memory", total["peak"]),
                        "peak_memory_checkpoint": max(named, key=lambda s: s["total_bytes"])["checkpoint_name"],
                        **both("final_memory", total["allocated"])},
            "total": rated(total), "devices": [self.device(i) for i in range(len(self.names))], "capacity": capacity,
            "accounts": {"open": 3, "largest": [
                {"name": "request %d" % i, "device": self.names[0], "bytes": (9 - i) << 24, "peak": (12 - i) << 24,
                 "limit": 1 << 28, "refused": i} for i in range(3)]},
            "tags": [{"tag": t, "device": self.names[d], "allocated": v[0], "peak": v[1], "peak_error": 0, "blocks": v[2] - v[3],
                      "expected": v[0] - 4096 * 977 if t == "kv_cache" else 0,
                      "variance": 4096 * 977 if t == "kv_cache" else 0} for (t, d), v in self.tags.items() if t],
            "sites": [{"site": site(s), "device": self.names[d], "alloc_bytes": v[4], "free_bytes": v[5], "allocs": v[2],
                       "frees": v[3], "live_bytes": v[0], "peak_bytes": v[1], "peak_error": 0} for (s, d), v in self.sites.items()],
            "stacks": {"depth": 0, "bytes": 0, "cut": 0, "modules": [], "frames": [], "list": [],
                       "more": {"stacks": 0, "alloc_bytes": 0, "allocs": 0, "live_bytes": 0, "at_peak_bytes": 0}},
            "peak_holders": [h for h in self.holders if h],
            "verdicts": [], "mistakes": {"more": 0, "list": []},
            "series": {"sites": [], "tags": []}, "growth": {"count": 0, "fastest": []},
            "streams": {"count": 0, "more": 0, "largest": [], "rest": {"bytes": 0, "blocks": 0}},
            "leaks": self.leaks(), "scopes": [self.scope(s) for s in self.scopes.values()], "snapshots": self.snaps,
            "operation_allocations": {path: [
                {**both("memory_delta", c[3]), "tensor_delta": c[4], **both("pre_total", c[5]), **both("post_total", c[6]),
                 "timestamp": iso(c[0])} for c in s["calls"][-64:]] for path, s in self.scopes.items()},
            "operation_summary": {path: self.operation(s["calls"]) for path, s in self.scopes.items()},
            "threads": [{"id": t, "allocs": 1000 * t, "frees": 990 * t, "bytes_allocated": t << 28, "bytes_freed": t << 27}
                        for t in (1, 2, 3)],
            "largest_blocks": {"count": 10, "of": len(blocks), "bytes": sum(self.live),
                               "blocks": [self.block(k, b) for k, b in blocks[:10]]},
            "moves": [{"from": "cpu", "to": self.names[0], "count": 3, "bytes": 1 << 27,
                       "copies": 2, "copied_bytes": 1 << 20}],
            "strings": list(self.strings),
            "events": {"capacity": 1 << 17, "recorded": len(events), "lost": len(self.events) - len(events), "kinds": KINDS[:],
                       "list": events}}

    def device(self, i):
        sizes = {}
        for b in self.blocks.values():
            if b["device"] == i:
                sizes[1 << b["bytes"].bit_length() - 1] = sizes.get(1 << b["bytes"].bit_length() - 1, 0) + 1
        return {"device": self.names[i], "label": "H200 80%" if i == 0 else None, "arena": 0, "arena_untagged": 0, "stats": rated(self.stats[i]), "cached_ratio": 0.0,
                "fragmentation": None, "sizes": [{"from": k, "blocks": v} for k, v in sorted(sizes.items())],
                "lifetimes": {"under_100ms": 6120, "under_1s": 811, "under_10s": 96, "longer": 4}, "last_oom": None}

    def leaks(self):
        rows = {}
        for b in self.blocks.values():
            row = rows.setdefault((b["site"], b["tag"], b["scope"], b["device"]), [0, 0])
            row[0] += 1
            row[1] += b["bytes"]
        by = [{"site": site(s), "tag": t, "scope": o, "device": self.names[d], "count": n, "bytes": b}
              for (s, t, o, d), (n, b) in rows.items()]
        by.sort(key=lambda r: -r["bytes"])
        sites = leak_sites(by)
        rest = {key: sum(r[key] for r in by[100:]) for key in ("count", "bytes")}
        return {"since_mark": 1, "count": len(self.blocks), "bytes": sum(self.live), "by_site": by[:100], "by_stack": [],
                "largest": sites[0] if sites else None, "sites": sites[:100],
                "more": {"groups": len(by[100:]), **rest, "stacks": 0, "stack_bytes": 0, "sites": len(sites[100:]),
                         "site_count": sum(s["count"] for s in sites[100:]), "site_bytes": sum(s["bytes"] for s in sites[100:])}}

    def scope(self, s):
        calls, n = s["calls"], max(len(s["calls"]), 1)
        spread = lambda k: {"total": sum(c[k] for c in calls), "avg": sum(c[k] for c in calls) // n,
                            "min": min([c[k] for c in calls] or [0]), "max": max([c[k] for c in calls] or [0])}
        held = [b["bytes"] for b in self.blocks.values() if b["scope"] == s["path"]]
        return {"id": s["id"], "parent": s["parent"], "name": s["name"], "path": s["path"], "site": site("src/run.c:%d %s" % (s["id"] * 17, s["name"])),
                "count": len(calls), "delta_bytes": spread(3), "delta_blocks": spread(4),
                "peak_bytes": max([c[7] for c in calls] or [0]), "time_ns": spread(1), "device_time_ns": 0, "live_bytes": sum(held),
                "live_blocks": len(held), "running": 0, "devices": {}, "invocations": calls[-64:]}

    def operation(self, calls):
        deltas = [c[3] for c in calls] or [0]
        return {"invocation_count": len(calls), **both("total_memory_delta", sum(deltas)),
                **both("avg_memory_delta", sum(deltas) // len(deltas)), **both("max_memory_delta", max(deltas))}

    def block(self, key, b):
        return {"device": self.names[b["device"]], "storage": hex(key), "bytes": b["bytes"], "refs": 1, "born": 1, "tag": b["tag"],
                "site": site(b["site"]), "scope": b["scope"], "name": b.get("name"), "dtype": b.get("dtype"), "shape": b.get("shape", []),
                "flags": 0, "pending": 0, "parts": b.get("parts")}


def leak_sites(groups):
    """Groups of leaks, by site."""
    found = {}
    for g in groups:
        found.setdefault((g["site"]["file"], g["site"]["function"], g["site"]["line"]), []).append(g)
    only = lambda values: values.pop() if len(values) == 1 else None
    kinds = lambda of, key: {g[key] for g in of}
    return sorted([{"site": of[0]["site"], "count": sum(g["count"] for g in of), "bytes": sum(g["bytes"] for g in of),
                    **{key + "s": len(kinds(of, key) - {None}) for key in ("device", "tag", "scope")},
                    **{key: only(kinds(of, key)) for key in ("device", "tag", "scope")}} for of in found.values()],
                  key=lambda s: -s["bytes"])


def mb(n):
    return round(n / 1048576, 2)


def both(name, n):
    return {name + "_mb": mb(n), name + "_bytes": n}


def site(s):
    place, function = s.split(" ")
    file, line = place.rsplit(":", 1)
    return {"file": file, "function": function, "line": int(line)}


def load_model(run):
    run.begin(1, "load")
    for i in range(12):
        run.now += 40 * MS
        staged = run.alloc(1, 1, 96 << 20, "staging", "src/load.c:88 stage")
        run.now += 60 * MS
        names = [{"offset": k << 24, "bytes": 1 << 24, "name": "blk.%d.ffn_%s.weight" % (i, n), "dtype": "f16", "shape": [4096, 2048],
                  "tag": "weights"} for k, n in enumerate(("gate", "up", "down", "norm"))]
        run.alloc(1, 0, (1 << 30) + i * 4096, "weights", "src/load.c:91 load_layer", name="layers %d" % i, dtype="f16",
                  shape=[4096, 131072], parts={"count": 4, "bytes": 1 << 26, "listed": names})
        run.now += 15 * MS
        run.free(1, staged)
        if i % 3 == 0:
            run.snapshot()
    run.alloc(1, 2, 180 << 20, "tokenizer", "src/tokenizer.c:31 tokenizer_open", name="vocabulary")
    run.end(1)
    run.snapshot("after_model_load")


def serve(run, requests, steps, every, sites):
    """Requests that keep a KV cache for a while; two threads, the second one samples."""
    caches = []
    for request in range(requests):
        run.now += run.r.randrange(2, 40) * MS
        run.begin(1, "request")
        run.begin(1, "prefill", "[1, %d]" % run.r.randrange(16, 4096))
        caches.append(run.alloc(1, 0, run.r.randrange(40, 300) << 20, "kv_cache", "src/kv.c:57 kv_open", name="cache of request %d" % request,
                                dtype="f16", shape=[2, 32, 1024, 128]))
        scratch = run.alloc(1, 0, run.r.randrange(200, 900) << 20, "activations", "src/graph.c:144 graph_plan")
        run.now += run.r.randrange(20, 90) * MS
        run.free(1, scratch)
        run.end(1)
        for _ in range(steps):
            run.begin(1, "decode", "[1, 1]")
            for part in ("attention", "mlp"):
                run.begin(1, part)
                file, line, k = run.r.randrange(sites // 10), run.r.randrange(1, 400), run.r.randrange(sites)
                where = "src/ops_%d.c:%d %s_%d" % (*((file, line) if sites < 1000 else (k % 100, k % 400 + 1)), part, k)
                block = run.alloc(1, 0, run.r.randrange(1, 4096) << 12, "activations", where)
                run.now += run.r.randrange(30, 700) * 1000
                run.free(1, block)
                run.end(1)
            run.end(1)
            run.begin(2, "sample")
            logits = run.alloc(2, 2, 512 << 10, None, "src/sample.c:20 sample")
            run.now += run.r.randrange(10, 200) * 1000
            run.free(2, logits)
            run.end(2)
        run.end(1)
        while len(caches) > 10:
            run.free(1, caches.pop(0))
            if run.r.random() < 0.1:
                run.event("gc", 1, 0, size=run.r.randrange(1, 99) << 20)
                run.stats[0]["gc_runs"] += 1
        if request % every == 0:
            run.snapshot("step_%d" % request if request % (every * 3) == 0 else None)
        if request == requests * 2 // 3:
            run.event("oom", 1, 0, size=1 << 31)
            run.stats[0]["oom_attempts"] += 1
    run.snapshot("end")


DEVICES = ["cuda:0", "pinned", "cpu"]


def place(run, i, total, used, others, **rest):
    """One that has the bytes of device i alone."""
    tagged = sum(v[0] for (tag, device), v in run.tags.items() if tag and device == i)
    return {"device": DEVICES[i], "total": total, "used": used, "free": total - used, "self": run.live[i],
            "untagged": max(run.live[i] - tagged, 0), "unaccounted": used - run.live[i], "devices": [DEVICES[i]],
            "context": None, "others": others, "other_processes": [], "held": 0, **rest}


def capacity(run):
    return [place(run, 0, 25757220864, run.live[0] + 1300000000, 800000000, process=run.live[0] + 500000000, age_ns=150000,
                  limit=24 << 30),
            place(run, 2, 67 << 30, 9 << 30, 7 << 30, process=run.live[2] + (1 << 30), age_ns=2500000000, limit=None)]


def simulated(seed, requests, steps, every, sites, ring=True, keep=None):
    run = Run(seed, DEVICES, ring)
    run.snapshot()
    load_model(run)
    serve(run, requests, steps, every, sites)
    run.now += 30 * MS
    return run.profile(capacity(run), keep)


def small():
    return simulated(1, 40, 6, 5, 20)


class Stacks:
    """The list `stacks` of a profile, from stacks of names, the outermost first."""

    def __init__(self, mean=1, build="93ac61ec"):
        self.numbers, self.frames, self.totals, self.mean, self.build = {}, [], {}, mean, build

    def frame(self, name):
        """The number of a frame: "function file:line", or a module with an offset."""
        if name not in self.numbers:
            place = {"site": site(" ".join(reversed(name.split(" ")))), "module": 0} if " " in name else \
                {"site": {"file": name, "function": "", "line": 0}, "module": 1}
            self.numbers[name] = len(self.frames)
            self.frames.append({**place, "offset": int(name.split("+")[1], 16) if place["module"] else 16 * len(self.frames)})
        return self.numbers[name]

    def add(self, names, device, live, peak, allocated, allocs):
        row = self.totals.setdefault((tuple(self.frame(name) for name in reversed(names)), device), [0, 0, 0, 0])
        for i, value in enumerate((allocated, allocs, live, peak)):
            row[i] += value

    def written(self):
        """As the library does: 2048 stacks at most, and sums of those that are not listed."""
        exact, rows = self.mean == 1, sorted(self.totals.items(), key=lambda row: (-row[1][2], -row[1][0]))
        more = [v for _, v in rows[2048:]]
        return {"depth": 32, "bytes": self.mean, "cut": 0 if exact else 3,
                "modules": [{"module": "/opt/server/bin/server", "build_id": self.build},
                            {"module": "/lib/x86_64-linux-gnu/libc.so.6", "build_id": "0a1b"}],
                "frames": self.frames, "list": [
                    {"frames": list(frames), "device": d, "alloc_bytes": v[0], "allocs": v[1], "live_bytes": v[2], "peak_bytes": v[3],
                     "at_peak_bytes": (v[2] + v[3]) // 2, "samples": v[1] if exact else v[1] // 9 + 1, "error_bytes": 0 if exact else int((v[2] * self.mean) ** 0.5), "temporaries": 0}
                    for (frames, d), v in rows[:2048]],
                "more": {"stacks": len(more), "alloc_bytes": sum(v[0] for v in more), "allocs": sum(v[1] for v in more),
                         "live_bytes": sum(v[2] for v in more), "at_peak_bytes": sum((v[2] + v[3]) // 2 for v in more)}}


MAIN = ["libc.so.6+0x27249", "main src/main.c:40"]
SERVE = MAIN + ["serve src/serve.c:71", "request_run src/serve.c:133"]
STACKS = [  # the outermost frame first, the device, live, peak, allocated in MiB, allocs
    (MAIN + ["load src/load.c:20", "load_layer src/load.c:91", "xmalloc src/xmalloc.c:9"], 0, 12288, 12288, 12288, 12),
    (MAIN + ["load src/load.c:20", "stage src/load.c:88", "xmalloc src/xmalloc.c:9"], 1, 0, 96, 1152, 12),
    (MAIN + ["load src/load.c:22", "tokenizer_open src/tokenizer.c:31", "xmalloc src/xmalloc.c:9"], 2, 180, 180, 180, 1),
    (SERVE + ["prefill src/serve.c:150", "kv_open src/kv.c:57", "xmalloc src/xmalloc.c:9"], 0, 1600, 1900, 6400, 40),
    (SERVE + ["prefill src/serve.c:151", "graph_plan src/graph.c:144", "xmalloc src/xmalloc.c:9"], 0, 0, 870, 20000, 40),
    (SERVE + ["decode src/serve.c:170", "graph_run src/graph.c:201", "attention src/ops.c:12", "libblas.so.3+0x8f210"], 0, 0, 16, 900, 240),
    (SERVE + ["decode src/serve.c:170", "graph_run src/graph.c:201", "mlp src/ops.c:77"], 0, 0, 16, 800, 240),
    (SERVE + ["walk src/tree.c:5", "walk src/tree.c:7", "walk src/tree.c:7", "leaf src/tree.c:9"], 2, 3, 4, 9, 30),
    (SERVE + ["sample src/sample.c:20", "xmalloc src/xmalloc.c:9"], 2, 0, 1, 120, 240)]


def stacked():
    """Every alloc with its stack."""
    p, stacks = small(), Stacks()
    for names, device, live, peak, allocated, allocs in STACKS:
        stacks.add(names, DEVICES[device], live << 20, peak << 20, allocated << 20, allocs)
    p["stacks"] = stacks.written()
    return p


def sampled():
    """Stacks of samples, on one device."""
    p, stacks = small(), Stacks(512 << 10)
    for names, device, live, peak, allocated, allocs in STACKS:
        stacks.add(names, DEVICES[0], live << 20, peak << 20, allocated << 20, allocs)
    p["stacks"] = stacks.written()
    p["devices"] = p["devices"][:1]
    return p


def older():
    """What `stacked` can be compared with: fewer requests, kv_open seven lines further up, a stack that is gone, one
    that is not there yet, and a tag and a scope of its own."""
    p, stacks = simulated(1, 30, 6, 5, 20), Stacks(build="77aa")
    for names, device, live, peak, allocated, allocs in STACKS[:-1]:
        if names[-2].startswith("kv_open"):
            names, live = names[:-2] + ["kv_open src/kv.c:50"] + names[-1:], live - 400
        stacks.add(names, DEVICES[device], live << 20, peak << 20, allocated << 20, allocs)
    stacks.add(MAIN + ["warm_up src/main.c:31"], "cpu", 64 << 20, 64 << 20, 64 << 20, 1)
    p["stacks"] = stacks.written()
    for row in p["sites"] + p["leaks"]["by_site"] + p["leaks"]["sites"]:
        if row["site"]["function"] == "kv_open":
            row["site"] = dict(row["site"], line=50)
    p["tags"].append(dict(p["tags"][0], tag="warm-up", device="cpu", allocated=64 << 20, peak=64 << 20))
    p["scopes"].append(dict(p["scopes"][0], id=99, name="warm-up", path="warm-up", live_bytes=64 << 20, invocations=[]))
    return p


def deep_stacks(seed, count, depth):
    """Stacks of `depth` frames, each of which leaves an earlier one near its end."""
    r, stacks, earlier = random.Random(seed), Stacks(512 << 10), [["main src/main.c:40"]]
    for _ in range(count):
        old = r.choice(earlier)
        names = old[:max(1, min(len(old), depth) - r.choice((1, 2, 3, 4, 6, 12, 20)))]
        while len(names) < depth:
            k = int(r.paretovariate(0.6)) % 2500
            names = names + ["function_%d src/part_%d.c:%d" % (k, k % 60, k % 400 + 1)]
        earlier.append(names)
        live = int(r.paretovariate(0.9) * 4096) % (1 << 30)
        stacks.add(names, DEVICES[r.randrange(2)], live, live * 2, live * 7, r.randrange(1, 999))
    return stacks.written()


def snapshots_only():
    return simulated(2, 40, 6, 2, 20, ring=False)


def large():
    """100,000 events, of scopes for the greater part, 1000 sites, 50 scopes and 5000 stacks."""
    p = simulated(3, 420, 24, 21, 1000, keep=100000)
    assert len(p["events"]["list"]) == 100000
    p["sites"] = p["sites"][:1000]
    run = p["scopes"]
    while len(run) < 50:
        k = len(run) + 1
        calls = [[c[0] + k * 7 * MS, 12 * MS, 3] + c[3:] for c in run[1]["invocations"]]
        run.append(dict(run[1], id=k, name="copy_%d" % k, path="copy_%d" % k, parent=0, invocations=calls[k % 8::8]))
    p["stacks"] = deep_stacks(4, 5000, 30)
    return p


HOSTILE = ["</script><script>window.harm=1</script>", "<img src=x onerror=window.harm=1>", "\u2028\u2029 lines", "\u202egnp.exe\u202c",
           "\u0000\u0001\u001b[31mred\u0007", "\"'`${window.harm=1}", "__proto__", "constructor", "", "%n%s%n", "\ud800 alone", "<!--<script>",
           "e\u0301\u0302" * 40, "javascript:window.harm=1"]


def hostile():
    p = stacked()
    words = HOSTILE + ["x" * 1000]
    pick = lambda i: words[i % len(words)]
    for i, d in enumerate(p["devices"]):
        d["label"] = pick(i)
    p["metadata"]["labels"] = HOSTILE[0]
    p["largest_blocks"]["blocks"][0]["scope"] = "x" * 10000000
    for key, name in (("tags", "tag"), ("scopes", "name"), ("scopes", "path")):
        for i, row in enumerate(p[key]):
            row[name] = pick(i)
    for i, row in enumerate(p["sites"]):
        row["site"] = {"file": pick(i), "function": pick(i + 1), "line": i}
    for i, f in enumerate(p["stacks"]["frames"]):
        f["site"] = {"file": pick(i + 2), "function": pick(i + 3), "line": i}
    for i, b in enumerate(p["largest_blocks"]["blocks"]):
        b["name"], b["dtype"], b["tag"] = pick(i), pick(i + 2), pick(i + 3)
    for h in p["peak_holders"]:
        for i, t in enumerate(h["tags"]):
            t["tag"] = pick(i)
        for i, t in enumerate(h["sites"]):
            t["site"] = {"file": pick(i), "function": pick(i + 1), "line": i}
    for i, s in enumerate(s for s in p["snapshots"] if s["checkpoint_name"]):
        s["checkpoint_name"] = pick(i)
    for s in p["scopes"]:
        for c in s["invocations"]:
            c[8] = HOSTILE[1]
    for key in ("operation_allocations", "operation_summary"):
        p[key] = dict(zip(HOSTILE, p[key].values()))
    p["strings"] = [pick(i) for i in range(len(p["strings"]))]
    return p


def long_names():
    """Names without a place to break them, wherever there is one."""
    p = small()
    name = "phase/" + "x" * 294
    p["summary"]["peak_memory_checkpoint"] = p["summary"]["checkpoints"][0] = name
    for s in p["snapshots"]:
        s["checkpoint_name"] = s["checkpoint_name"] and name
    for key, part in (("tags", "tag"), ("scopes", "name"), ("scopes", "path"), ("devices", "label")):
        for row in p[key]:
            row[part] = name
    p["strings"] = [name for _ in p["strings"]]
    p["metadata"]["labels"] = name
    return p


def delayed():
    """Threads that waited between an event of a scope's end and the end of the invocation."""
    p = small()
    for s in p["scopes"]:
        for c in s["invocations"][::2]:
            c[1] += 5000
    return p


def overwritten():
    """A ring that lost its beginning, and no snapshot that tells of it."""
    p = small()
    for key in ("snapshots", "scopes"):
        p[key] = []
    p["events"]["lost"] = 1000
    del p["events"]["list"][:len(p["events"]["list"]) // 2]
    for key, n in (("unknown_frees", 1), ("implicit_frees", 5)):
        p["total"][key] = p["devices"][0]["stats"][key] = n
    p["devices"][2]["stats"]["implicit_frees"], p["devices"][0]["stats"]["implicit_frees"] = 2, 3
    return p


def day():
    """24 hours, with a snapshot an hour."""
    p = small()
    hour = 3600 * 10 ** 9
    p["metadata"]["uptime_ns"] = 24 * hour
    p["snapshots"] = [dict(p["snapshots"][k % len(p["snapshots"])], time_ns=k * hour) for k in range(25)]
    p["scopes"], p["events"]["list"] = [], []
    return p


def empty():
    """What a ledger writes that was told nothing."""
    p = small()
    return {"schema": "memlord/2", "version": p["version"], "metadata": dict(p["metadata"], events_enabled=False),
            "total": dict.fromkeys(STATS, 0), "devices": []}


def wild():
    """Everything of a wrong type, sign or size that JSON can carry."""
    p = stacked()
    junk = [-1, 1e308, None, "7", [], {}, True, 0, -9007199254740993, 0.5]
    k = 0

    def spoil(x, depth):
        nonlocal k
        for key in (list(x) if isinstance(x, dict) else range(len(x))):
            k += 1
            if isinstance(x[key], (dict, list)) and (depth < 2 or k % 7):
                spoil(x[key], depth + 1)
            elif key != "schema" and k % 3 == 0:
                x[key] = junk[k // 3 % len(junk)]

    spoil(p, 0)
    return p


def early():
    """What 0.2.0 wrote, without a mark: no scopes, snapshots, events."""
    p = small()
    p["leaks"]["since_mark"] = 0
    for key in ("scopes", "snapshots", "events", "strings", "peak_holders", "summary", "threads", "moves"):
        p.pop(key)
    for key in ("labels", "dropped", "events_enabled"):
        p["metadata"].pop(key)
    return p


def shared():
    """The cpu's place is the pinned memory's, too, and has less of the process in it than was recorded; a mapped
    file is in none."""
    p = small()
    cpu, pinned = p["devices"][2], p["devices"][1]
    mapped = dict(cpu, device="mapped", label=None, stats=dict(cpu["stats"], allocated=5 << 30, peak=5 << 30))
    self = (4 << 30) + (1 << 28)
    cpu["stats"]["allocated"], pinned["stats"]["allocated"] = (1 << 30) + (1 << 28), 3 << 30
    p["devices"].append(mapped)
    p["tags"] = [{"tag": t, "device": d, "allocated": n, "peak": n, "peak_error": 0, "blocks": 1, "expected": 0, "variance": 0}
                 for t, d, n in (("heap", "cpu", 1 << 29), ("heap", "pinned", 1 << 29), ("staging", "pinned", 5 << 29),
                                 ("files", "mapped", 5 << 30))]
    p["capacity"] = [{"device": "cpu", "total": 16 << 30, "used": 8 << 30, "free": 8 << 30, "self": self, "untagged": 3 << 28,
                      "unaccounted": (8 << 30) - self, "devices": ["cpu", "pinned"], "process": 1 << 30, "others": None,
                      "context": None, "other_processes": [], "age_ns": 1000, "limit": None, "held": 0}]
    return p


def verdict(kind, head, tone, *parts, more=0, more_bytes=0):
    """A verdict of the library. A part is a device, its words, and the site and the tag that they name."""
    return {"kind": kind, "head": head, "tone": tone, "more": more, "more_bytes": more_bytes,
            "parts": [dict(zip(("device", "text", "site", "tag"), part)) for part in parts]}


def rich():
    """Something to say of every kind: no memory in the end, passed limits, leaks since a mark, anomalies on two
    devices, a pool in pieces, arenas, 200 checkpoints, a report that was written long after the work, and tags,
    sites and scopes in events as the library writes them; and the time of a call, which 0.4.0 wrote."""
    p = small()
    cuda, pinned, cpu = p["devices"]
    p["metadata"]["uptime_ns"] *= 2
    p["metadata"]["pair_ns"] = 61
    cuda["last_oom"] = {"bytes": 9 << 30, "live": cuda["stats"]["allocated"], "used": 15 << 30, "site": site("src/cache.c:7 grow")}
    cuda["stats"].update(oom_failures=2, reserved=16 << 30, cached=2 << 30, largest_free=1 << 29, limit=8 << 30, implicit_frees=3)
    cuda["fragmentation"] = 0.75
    cpu["stats"].update(unknown_frees=1, peak_error=1 << 20)
    cpu["arena"] = cpu["arena_untagged"] = 64 << 20
    for key in ("allocated", "peak"):
        cpu["stats"][key] += 64 << 20
    p["total"].update(oom_failures=2, implicit_frees=3, unknown_frees=1, underflows=4,
                      allocated=p["total"]["allocated"] + (64 << 20))
    p["capacity"][0].update(limit=8 << 30, context=300 << 20, unaccounted=p["capacity"][0]["unaccounted"] - (300 << 20),
                            other_processes=[{"pid": 4711, "bytes": 600 << 20, "name": "<b>python3"},
                                             {"pid": 12, "bytes": 1 << 20, "name": None}])
    for key in ("self", "untagged"):
        p["capacity"][1][key] += 64 << 20
    p["capacity"][1]["unaccounted"] -= 64 << 20
    p["accounts"]["largest"][0].update(limit=1 << 20)
    loads = site("src/load.c:91 load_layer")
    p["verdicts"] = [
        verdict("out_of_memory", "out of memory", "bad", ("cuda:0", "9 GiB wanted with 13.72 GiB live at grow src/cache.c:7, 2 failed",
                                                          site("src/cache.c:7 grow"), None)),
        verdict("over_limit", "over a limit", "bad", ("cuda:0", "13.72 GiB of 8 GiB", None, None), more=2, more_bytes=9 << 20),
        verdict("leaks", "leaks since mark 2", "bad", (None, "45 MiB in 306 blocks, 12 MiB of them cuda:0  load_layer src/load.c:91", loads, None)),
        verdict("holders", "biggest holder", "", ("cuda:0", "tag weights 87.5 %, site load_layer src/load.c:91 87.5 % of 13.72 GiB",
                                                  loads, "weights"))]
    p["mistakes"] = {"more": 3, "list": [
        {"kind": "dropped", "device": "cuda:0", "storage": "0x00001000", "count": 2, "bytes": 8192, "first_ns": 1000, "last_ns": 2000,
         "site": loads, "born": None, "tag": None},
        {"kind": "unknown_free", "device": "cpu", "storage": "0x00002000", "count": 9, "bytes": 0, "first_ns": 1000, "last_ns": 2000,
         "site": loads, "born": None, "tag": "weights"}]}
    p["metadata"]["mark"] = p["leaks"]["since_mark"] = 2
    p["leaks"].update(count=306, bytes=45 << 20)
    for k in range(40):  # slivers of the bar
        p["tags"].append({"tag": "small_%d" % k, "device": "cuda:0", "allocated": 1 << 20, "peak": 1 << 20, "peak_error": 0, "blocks": 1,
                          "expected": None, "variance": None})
    p["sites"] += [dict(s, device="cpu", live_bytes=5 << 20, peak_bytes=6 << 20) for s in p["sites"][:3]]
    first = p["snapshots"][1]
    span = p["snapshots"][-1]["time_ns"] - first["time_ns"]
    p["snapshots"] = sorted(p["snapshots"] + [
        dict(first, time_ns=first["time_ns"] + span * k // 200, checkpoint_name="step_of_training_%d" % k) for k in range(1, 200)],
        key=lambda s: s["time_ns"])
    ids = {s["path"]: s["id"] for s in p["scopes"]}
    open_scopes = {}
    for e in p["events"]["list"]:
        stack = open_scopes.setdefault(e[2], [0])
        if e[1] == KINDS.index("scope_begin"):
            stack.append(e[8])
        elif e[1] == KINDS.index("scope_end"):
            stack.pop()
        elif e[1] == KINDS.index("alloc"):
            e[8] = stack[-1]
    assert max(ids.values()) < 100
    return p


def crowd():
    """250 devices, 3000 scopes of which many overlap, no capacity, one snapshot, no duration."""
    p = small()
    names = ["cuda:%d" % i for i in range(250)]
    p["devices"] = [dict(p["devices"][0], device=n, label=None) for n in names]
    p["capacity"], p["peak_holders"] = [], [dict(p["peak_holders"][0], device=n) for n in names]
    p["snapshots"] = p["snapshots"][:1]
    p["scopes"] = [dict(p["scopes"][0], id=i + 1, parent=i if i % 50 else 0, name="s%d" % i, path="p/s%d" % i, count=1,
                        invocations=[[1000 + i, 5000000 - i % 1000 * 7, 1 + i % 40, i, 1, 0, 0, 0, None]]) for i in range(3000)]
    p["scopes"][1]["parent"] = 2
    p["scopes"][3]["parent"], p["scopes"][4]["parent"] = 5, 4
    return p


def instant():
    """A program that ended as it began: one event, one snapshot, all at 0."""
    p = small()
    p["metadata"]["uptime_ns"] = 0
    p["snapshots"] = [dict(p["snapshots"][0], time_ns=0)]
    p["events"]["list"] = [[0, 0, 1, 0, "0x1", 4096, 0, 0, 0]]
    for s in p["scopes"]:
        s["invocations"] = [[0, 0, 1, 5, 1, 0, 5, 5, None]]
    return p


def main():
    out = sys.argv[1]
    os.makedirs(out, exist_ok=True)
    for make in (small, stacked, sampled, older, snapshots_only, large, hostile, long_names, delayed, overwritten, day, empty, wild, early, shared, rich, crowd,
                 instant):
        with open(os.path.join(out, make.__name__ + ".json"), "w") as f:
            json.dump(make(), f)


if __name__ == "__main__":
    main()
