"""JSON: the whole document is built from the model and compared leaf by leaf. A key that only one
of the two has is a difference, and so is a number written with other digits."""

import json
import re

import text_report
from books import Between
from notation import HOST, PID, PROGRAM, Number, address, arguments, average, fixed, moment, shown
from phases import KINDS, highest

SUBJECTS = ("schema", "version", "metadata", "verdicts", "total", "devices", "capacity", "accounts", "streams", "tags",
            "sites", "stacks", "summary", "peak_holders", "leaks", "mistakes", "moves", "threads", "snapshots",
            "series", "growth", "scopes", "operation_allocations", "operation_summary", "strings", "events",
            "largest_blocks", "keys", "late peaks")
MOST_LEAKS, MOST_STACKS, MOST_PARTS, MOST_BLOCKS = 100, 2048, 1024, 100  # in a list
MOST_PLAIN = 10  # blocks of which the host has said nothing


def rate(part, rest):
    return Number(fixed(int(part / (part + rest) * 1e9 + 0.5), 9)) if part + rest else None


def percent(value):
    return None if value is None else Number(fixed(int(value * 1000 + 0.5), 3))


def site(place):
    if place is None:
        return None
    return {"file": shown(place.file), "function": shown(place.function), "line": place.line}


def site_text(place):
    """A site in one string."""
    name = " ".join(filter(None, (shown(place.function), shown(place.file)))) or "(unknown)"
    return "%s:%d" % (name, place.line) if place.line else name


def subject(row):
    return row.subject if row else None


def mb(name, count):
    """A size in MiB, for people, and in bytes."""
    if isinstance(count, Between):
        return {name + "_mb": None, name + "_bytes": count}
    hundredths = (abs(count) >> 20) * 100 + (((abs(count) & 0xfffff) * 100 + 0x80000) >> 20)
    return {name + "_mb": Number(("-" if count < 0 else "") + fixed(hundredths, 2)),
            name + "_bytes": count}


def four(values):
    return {"total": sum(values), "avg": average(sum(values), len(values)),
            "min": min(values, default=0), "max": max(values, default=0)}


# -- the ledger as a whole, and its devices --

def process(ledger):
    return {"program": shown(PROGRAM), "host": shown(HOST), "pid": PID, "started_at": moment(ledger, 0),
            "uptime_ns": ledger.now - ledger.started,
            **({} if arguments(ledger) is None else {"arguments": arguments(ledger)})}


def metadata(ledger):
    total = ledger.total()
    return {
        "generated_at": moment(ledger, ledger.now - ledger.started), **process(ledger),
        "labels": shown(ledger.labels), "own_bytes": ledger.own["JSON"], "mark": ledger.mark_now,
        "num_snapshots": len(ledger.snapshots_shown()),
        "operation_tracking_enabled": bool(ledger.scopes), "sites_enabled": ledger.sites_on,
        "events_enabled": ledger.events_on,
        "dropped": {"scopes": ledger.lost_scopes, "scope_invocations": ledger.runs_lost(),
                    "snapshots": ledger.lost_snapshots, "exports": ledger.lost_exports,
                    "events": total["dropped_events"]}}


def stats(values):
    shown_values = dict(values)
    shown_values["hit_rate"] = rate(values["cache_hits"], values["cache_misses"])
    shown_values["recovery_rate"] = rate(values["recoveries"], values["oom_failures"])
    shown_values["success_rate"] = rate(values["allocs"], values["oom_failures"])
    shown_values["mean_bytes"] = (values["total_allocated"] // values["allocs"]
                                  if values["allocs"] else None)
    return shown_values


def last_oom(device):
    oom = device.oom
    return oom and {"bytes": oom.bytes, "live": oom.live, "used": oom.used, "site": site(oom.site)}


def one_device(ledger, device):
    values = device.stats()
    free = max(device.reserved - device.live, 0)
    fragmentation = None
    if device.largest_free is not None:
        fragmentation = min(max(1 - device.largest_free / free, 0), 1) if free else 0
    classes = ledger.lifetimes(device)
    return {
        "device": device.name, "label": shown(device.label), "arena": device.arena,
        "arena_untagged": ledger.arena_untagged(device),
        "stats": stats(values),
        "cached_ratio": percent(free / device.reserved if device.reserved else 0),
        "fragmentation": percent(fragmentation),
        "sizes": [{"from": start, "blocks": count} for start, count in ledger.sizes(device)],
        "lifetimes": classes and dict(zip(("under_100ms", "under_1s", "under_10s", "longer"),
                                          classes)),
        "last_oom": last_oom(device)}


def capacity(ledger):
    return [{"device": str(line.physical.device), "total": line.total, "used": line.used,
             "free": line.free, "self": line.self, "untagged": line.untagged,
             "context": line.context, "neighbours": None, "unaccounted": line.unaccounted,
             "process": line.process, "others": line.others, "age_ns": line.age,
             "limit": line.physical.limit or None, "held": line.physical.held,
             "devices": [d.name for d in ledger.on(line.physical)],
             "other_processes": [{"pid": pid, "bytes": count, "name": ledger.process_name(pid)}
                                 for pid, count in line.processes]}
            for line in ledger.capacity_lines()]


def accounts(ledger):
    return {"open": len(ledger.accounts),
            "largest": [{"name": shown(a.name), "device": a.device.name, "bytes": a.bytes,
                         "peak": a.peak, "limit": a.limit or None, "refused": a.refused}
                        for a in ledger.largest_accounts()]}


def streams(ledger):
    lines = ledger.stream_lines()
    rest = lines[20:]
    return {"count": len(lines), "more": 0,
            "largest": [{"stream": address(s.stream), "device": s.device.name, "bytes": s.bytes,
                         "blocks": s.blocks} for s in lines[:20]],
            "rest": {"bytes": sum(s.bytes for s in rest), "blocks": sum(s.blocks for s in rest)}}


def tags(ledger):
    return [{"tag": shown(row.subject), "device": row.device.name, "allocated": row.live,
             "peak": row.late_peak(), "peak_error": row.peak_error(), "blocks": row.blocks,
             "expected": row.expected or None,
             "variance": row.live - row.expected if row.expected else None}
            for row in ledger.tags]


def place(site):
    """Where the code of a return address is."""
    if site.module is None:
        return {}
    return {"module": shown(site.module), "offset": site.offset, "build_id": shown(site.build_id)}


def sites(ledger):
    return [{"site": site(row.subject), "device": row.device.name, "alloc_bytes": row.allocated,
             "free_bytes": row.freed_here, "allocs": row.allocs, "frees": row.frees_here,
             "live_bytes": row.live, "peak_bytes": row.late_peak(),
             "peak_error": row.peak_error(),
             **place(row.subject), **functions(row.subject), **callers(ledger, row)}
            for row in ledger.sites_counted()]


def callers(ledger, row):
    found = [{"site": site(own), "alloc_bytes": allocated, "allocs": allocs, "live_bytes": live,
              "at_peak_bytes": held} for own, live, allocated, allocs, held, _ in ledger.callers(row)]
    return {"callers": found} if found else {}


def functions(where):
    """The functions at a return address, if there are several, and whose is the one shown."""
    known = where.functions or []
    found = {"library": True} if known and where.library else {}
    if len(known) > 1:
        found["inlined"] = [
            {"function": shown(f.function), "file": shown(f.file), "line": f.line,
             **({"library": True} if f.library else {})} for f in known]
    return found


# -- stacks --

def frame(where):
    return {"site": site(where), "module": 0 if where.module else None, "offset": where.offset,
            **functions(where)}


def stacks(ledger):
    rows, leaks = ledger.stacks_shown(), ledger.stack_leaks()[:MOST_LEAKS]
    shown_stacks, rest = rows[:MOST_STACKS], rows[MOST_STACKS:]
    used = {frame for row in shown_stacks + [leak.row for leak in leaks] for frame in row.frames}
    numbers = {frame: i for i, frame in enumerate(f for f in ledger.frames_known() if f in used)}
    ledger.frame_numbers = numbers
    return {
        "depth": ledger.stack_depth, "bytes": ledger.stack_bytes, "cut": ledger.stacks_cut,
        "modules": [{"module": shown(m.path), "build_id": shown(m.build_id)}
                    for m in ledger.modules],
        "frames": [frame(ledger.code_site(f)) for f in numbers],
        "list": [{"frames": [numbers[f] for f in row.frames], "device": row.device.name,
                  "alloc_bytes": row.allocated, "allocs": row.allocs, "live_bytes": row.live,
                  "peak_bytes": row.peak, "at_peak_bytes": row.held, "samples": row.allocs, "error_bytes": 0, "temporaries": row.temporaries}
                 for row in shown_stacks],
        "more": {"stacks": len(rest), "alloc_bytes": sum(row.allocated for row in rest),
                 "allocs": sum(row.allocs for row in rest),
                 "live_bytes": sum(row.live for row in rest),
                 "at_peak_bytes": sum(row.held for row in rest)}}


# -- snapshots and peaks --

def summary(ledger):
    named = [s for s in ledger.snapshots_shown() if s.name]
    total = ledger.total()
    most = max(named, key=lambda s: s.live, default=None)
    return {"num_snapshots": len(ledger.snapshots_shown()),
            "checkpoints": [shown(s.name) for s in named], **mb("peak_memory", total["peak"]),
            "peak_memory_checkpoint": most and shown(most.name),
            **mb("final_memory", total["allocated"])}


def peak_holders(ledger):
    return [{"device": d.name, "bytes": d.holders.bytes, "time_ns": d.holders.time,
             "tags": [{"tag": shown(tag), "bytes": count} for tag, count in d.holders.tags],
             "sites": [{"site": site(place), "bytes": count} for place, count in d.holders.sites]}
            for d in ledger.devices if d.holders]


def shape(meta):
    return list(meta.shape) if meta else []


def tensor(kept):
    return {**mb("size", kept.bytes), "shape": shape(kept.meta),
            "dtype": kept.meta and shown(kept.meta.dtype), "device": kept.device.name,
            "name": kept.meta and shown(kept.meta.name), "tag": shown(subject(kept.tag)),
            "operation": shown(kept.scope and kept.scope.path), "requires_grad": None}


def snapshot(ledger, one):
    return {
        "timestamp": moment(ledger, one.time), "time_ns": one.time,
        "checkpoint_name": shown(one.name), **mb("total", one.live), "tensor_count": one.count,
        "device_breakdown": {
            u.device.name: {**mb("total", u.live), "pending_bytes": u.pending,
                            "reserved_bytes": u.reserved, "peak_bytes": u.peak, "count": u.blocks,
                            "tensors": [tensor(kept) for kept in one.blocks
                                        if kept.device is u.device]}
            for u in one.usage}}


def series_of(device, kind, row):
    of = {"tag": shown(subject(row))} if kind == "tags" else {}
    return {"device": device.name, **of, **({"site": site(subject(row))} if kind == "sites" else {})}


def series(ledger):
    return {kind: [{**series_of(device, kind, row), "bytes": levels} for device, row, levels in ledger.series(kind)]
            for kind in ("sites", "tags")}


def growth(ledger):
    lines = ledger.growth()
    return {"count": len(lines), "fastest": [
        {**series_of(device, kind, row), "bytes_per_minute": rate,
         "since_ns": ledger.snapshots_shown()[first].time, "snapshots": points,
         "r2": percent(fit)} for rate, first, points, fit, kind, device, row in lines[:20]]}


# -- leaks, moves, threads --

def leaks(ledger):
    groups, stack_leaks, found = ledger.leak_groups(), ledger.stack_leaks(), ledger.leaks()
    numbers = ledger.frame_numbers
    culprit, sites = ledger.culprit(), ledger.leak_sites()
    return {
        "since_mark": ledger.mark_now, "count": len(found), "bytes": sum(b.bytes for b in found),
        "by_site": [{"site": site(subject(g.site)), "tag": shown(subject(g.tag)),
                     "scope": shown(g.scope and g.scope.path), "device": g.device.name,
                     "count": g.count, "bytes": g.bytes} for g in groups[:MOST_LEAKS]],
        "by_stack": [{"frames": [numbers[f] for f in leak.row.frames],
                      "device": leak.row.device.name, "count": leak.count, "bytes": leak.bytes,
                      "samples": leak.count} for leak in stack_leaks[:MOST_LEAKS]],
        "largest": culprit and leak_site(culprit), "sites": [leak_site(s) for s in sites[:MOST_LEAKS]],
        "more": {"groups": len(groups[MOST_LEAKS:]),
                 "count": sum(g.count for g in groups[MOST_LEAKS:]),
                 "bytes": sum(g.bytes for g in groups[MOST_LEAKS:]),
                 "stacks": len(stack_leaks[MOST_LEAKS:]),
                 "stack_bytes": sum(leak.bytes for leak in stack_leaks[MOST_LEAKS:]),
                 "sites": len(sites[MOST_LEAKS:]), "site_count": sum(s.count for s in sites[MOST_LEAKS:]),
                 "site_bytes": sum(s.bytes for s in sites[MOST_LEAKS:])}}


def leak_site(line):
    return {"site": site(line.site), "count": line.count, "bytes": line.bytes, "devices": len(line.devices),
            "tags": len(line.tags - {None}), "scopes": len(line.scopes - {None}),
            "device": only(line.devices, str), "tag": only(line.tags, shown), "scope": only(line.scopes, shown)}


def verdicts(ledger):
    """What TEXT says, in its words."""
    report = text_report.Report(ledger)
    report.verdicts()
    return [{**{key: v[key] for key in ("kind", "tone", "head")},
             "parts": [{"device": p.device, "text": p.text, "site": site(p.site), "tag": shown(p.tag)}
                       for p in v["parts"]],
             "more": v["more"], "more_bytes": v["more_bytes"]} for v in report.answers]


def mistakes(ledger):
    return {"more": ledger.mistakes_more, "list": [
        {"kind": m.kind, "device": str(m.device),
         "storage": address(m.storage) if m.storage else None, "count": m.count, "bytes": m.bytes,
         "first_ns": m.first, "last_ns": m.last, "site": site(m.site), "born": site(m.born),
         "tag": shown(m.tag)} for m in ledger.mistakes_by_weight()]}


def only(values, text):
    """The one value of a set; None if there are several, or some blocks have none."""
    return text(next(iter(values))) if len(values) == 1 and None not in values else None


def moves(ledger):
    return [{"from": r.source.name, "to": r.target.name, "count": r.moves, "bytes": r.moved_bytes,
             "copies": r.copies, "copied_bytes": r.copied_bytes}
            for r in ledger.routes if r.moves or r.copies]


def threads(ledger):
    return [{"id": r.number, "allocs": r.allocs, "frees": r.frees, "bytes_allocated": r.allocated,
             "bytes_freed": r.freed}
            for r in ledger.records if r.allocs or r.frees or r.allocated or r.freed]


# -- scopes --

def invocation(thread, run):
    return [run.start, run.ns, thread.number, run.bytes, run.blocks, run.before, run.after,
            run.peak, shown(run.shapes)]


def scope(ledger, one):
    runs = one.runs()
    live = [b for b in ledger.blocks.values() if b.scope is one]
    return {
        "id": one.id, "parent": one.parent.id if one.parent else 0, "name": shown(one.name),
        "path": shown(one.path), "site": site(one.site), "count": len(runs),
        "delta_bytes": four([r.bytes for r in runs]),
        "delta_blocks": four([r.blocks for r in runs]),
        "peak_bytes": highest(runs),
        "time_ns": four([r.ns for r in runs]), "device_time_ns": one.device_ns,
        "live_bytes": sum(b.bytes for b in live), "live_blocks": len(live),
        "running": one.running(),
        "devices": {d.name: delta for d in ledger.devices
                    for delta in [one.deltas().get(d, 0)] if delta},
        "invocations": [invocation(thread, run) for thread, run in one.kept()]}


def operations(ledger):
    return {shown(one.path): [
        {**mb("memory_delta", run.bytes), "tensor_delta": run.blocks,
         **mb("pre_total", run.before), **mb("post_total", run.after),
         "timestamp": moment(ledger, run.start)} for _, run in one.kept()]
        for one in ledger.scopes}


def operation_summary(ledger):
    summaries = {}
    for one in ledger.scopes:
        deltas = [run.bytes for run in one.runs()]
        summaries[shown(one.path)] = {
            "invocation_count": len(deltas), **mb("total_memory_delta", sum(deltas)),
            **mb("avg_memory_delta", average(sum(deltas), len(deltas))),
            **mb("max_memory_delta", max(deltas, default=0))}
    return summaries


# -- events and blocks --

def strings(ledger):
    if not ledger.event_capacity:
        return [""]
    return ([""] + [site_text(row.subject) for row in ledger.sites] +
            [shown(row.subject) for row in ledger.tags])


def event(ledger, e):
    tag = len(ledger.sites) + e.tag.number if e.tag else 0
    line = [e.time, KINDS.index(e.kind), e.thread, e.device.number - 1 if e.device else -1,
            address(e.storage) if e.storage else 0, e.bytes, e.site.number if e.site else 0,
            shown(e.name) if e.name else tag, e.scope]
    return line + ([address(e.stream)] if e.stream else [])


def events(ledger):
    return {"capacity": ledger.event_capacity, "lost": ledger.total()["dropped_events"],
            "kinds": list(KINDS), "list": [event(ledger, e) for e in ledger.events],
            "recorded": len(ledger.events)}


def parts(block):
    if not block.parts:
        return None
    listed = [block.parts[offset] for offset in sorted(block.parts)]
    return {"count": len(listed), "bytes": sum(p.bytes for p in listed),
            "listed": [{"offset": p.offset, "bytes": p.bytes, "name": shown(p.meta.name),
                        "dtype": shown(p.meta.dtype), "shape": shape(p.meta),
                        "tag": shown(p.tag)} for p in listed[:MOST_PARTS]]}


def one_block(block):
    meta = block.meta
    line = {
        "device": block.device.name, "storage": address(block.storage), "bytes": block.bytes,
        "refs": block.refs, "born": block.born, "tag": shown(subject(block.tag)),
        "scope": shown(block.scope and block.scope.path), "site": site(subject(block.site)),
        "name": meta and shown(meta.name), "dtype": meta and shown(meta.dtype),
        "shape": shape(meta), "flags": meta.flags if meta else 0,
        "pending": int(block.pending is not None), "parts": parts(block)}
    if block.stream:
        line["stream"] = address(block.stream)
    return line


def largest_blocks(ledger):
    said = ("tag", "scope", "name", "dtype", "shape", "flags")
    lines = [line for i, line in enumerate(map(one_block, ledger.largest_blocks(MOST_BLOCKS)))
             if i < MOST_PLAIN or any(line[key] for key in said)]
    return {"count": len(lines), "of": ledger.total()["live_blocks"],
            "bytes": sum(line["bytes"] for line in lines), "blocks": lines}


def expected(ledger):
    """The whole document."""
    return {
        "schema": "memlord/2", "version": ledger.version, "metadata": metadata(ledger),
        "verdicts": verdicts(ledger), "total": stats(ledger.total()),
        "devices": [one_device(ledger, device) for device in ledger.devices],
        "capacity": capacity(ledger), "accounts": accounts(ledger), "streams": streams(ledger),
        "tags": tags(ledger),
        "sites": sites(ledger), "stacks": stacks(ledger), "summary": summary(ledger),
        "peak_holders": peak_holders(ledger), "leaks": leaks(ledger), "mistakes": mistakes(ledger), "moves": moves(ledger),
        "threads": threads(ledger),
        "snapshots": [snapshot(ledger, one) for one in ledger.snapshots_shown()],
        "series": series(ledger), "growth": growth(ledger),
        "scopes": [scope(ledger, one) for one in ledger.scopes],
        "operation_allocations": operations(ledger),
        "operation_summary": operation_summary(ledger), "strings": strings(ledger),
        "events": events(ledger), "largest_blocks": largest_blocks(ledger)}


def unique(pairs):
    """The pairs of an object; a key that comes twice is an error."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key comes twice in %s" % [key for key, _ in pairs])
    return found


def parsed(data):
    found = json.loads(data.decode(), parse_float=Number, object_pairs_hook=unique)
    for mistake in found.get("mistakes", {"list": []})["list"]:  # where in the player a call is
        if mistake["kind"] == "misplaced_end" and mistake["site"]:
            mistake["site"]["file"] = re.sub("(?<=^play.0x)[0-9a-f]+$", "", mistake["site"]["file"])
    return found


def compare_late(ledger, wanted, found, check):
    """Compares what depends on peaks that threads publish late. Takes it out of both documents."""
    for rows, listed, peak in ((ledger.devices, [d["stats"] for d in found["devices"]], "peak"),
                               (ledger.tags, found["tags"], "peak"),
                               (ledger.sites_counted(), found["sites"], "peak_bytes")):
        for row, line in zip(rows, listed):
            check.same("late peaks", "the highest that %r tells" % line, True,
                       line[peak] + line["peak_error"] >= row.peak)
    for device, holders in zip(ledger.devices, found.pop("peak_holders")):
        check.same("late peaks", "the holders of %s" % device.name,
                   Between(device.peak * 15 // 16 - device.late, device.peak), holders["bytes"])
        check.same("late peaks", "what the stacks of %s held" % device.name, holders["bytes"],
                   sum(row["at_peak_bytes"] for row in found["stacks"]["list"]
                       if row["device"] == device.name))
    for document in (wanted, found):
        for row in document["stacks"]["list"]:
            del row["at_peak_bytes"]
    shown_peak = found["summary"].pop("peak_memory_mb")
    check.same("late peaks", "summary.peak_memory_mb",
               mb("peak_memory", found["summary"]["peak_memory_bytes"])["peak_memory_mb"],
               shown_peak)
    del wanted["peak_holders"], wanted["summary"]["peak_memory_mb"]


def compare(ledger, data, check):
    wanted, found = expected(ledger), parsed(data)
    if ledger.is_late():
        compare_late(ledger, wanted, found, check)
    for key in wanted:
        check.same(key, key, wanted[key], found.get(key))
    check.same("keys", "", list(wanted), list(found))
