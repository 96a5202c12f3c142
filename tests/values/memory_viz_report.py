"""MEMORY_VIZ: reads a pickle of plain data. A pickle that names a class, or has an opcode that the
writer does not write, raises ValueError."""
import io
import pickle
import pickletools

from notation import WALL_AT_0, shown
from stacks import scope_frame, scopes_of, site_frames, stack_frames, text_frame

SUBJECTS = ("memlord", "segments", "device_traces", "allocator_settings")
OPCODES = set("PROTO MARK STOP BININT BININT1 LONG1 BINUNICODE EMPTY_DICT EMPTY_LIST APPEND "
              "APPENDS SETITEM SETITEMS TUPLE2 BINGET LONG_BINGET BINPUT LONG_BINPUT NEWFALSE".split())


class Plain(pickle.Unpickler):
    def find_class(self, module, name):
        raise ValueError(f"a pickle that names {module}.{name}")

    def persistent_load(self, pid):
        raise ValueError(f"a pickle that names {pid}")


def check_opcodes(data):
    """Numbers are in the shortest of the forms that the viewer reads."""
    for op, argument, at in pickletools.genops(data):
        if op.name not in OPCODES:
            raise ValueError(f"{op.name} at {at}")
        if op.name == "PROTO" and argument != 2:
            raise ValueError(f"protocol {argument}")
        if op.name == "BININT" and not 256 <= argument <= 0x7fffffff:
            raise ValueError(f"{argument} in four bytes")
        if op.name == "LONG1" and argument <= 0x7fffffff:
            raise ValueError(f"{argument} in a long number")
        if op.name == "STOP" and at + 1 != len(data):
            raise ValueError("more follows the snapshot")


def read(data):
    check_opcodes(data)
    return Plain(io.BytesIO(data)).load()


# -- what a ledger says --

def numbers(ledger):
    """CUDA devices keep their index; the others follow."""
    cuda = {d: d.index for d in ledger.devices if d.name.startswith("cuda:")}
    after = max(cuda.values(), default=-1) + 1
    others = [d for d in ledger.devices if d not in cuda]
    return {d: cuda[d] if d in cuda else after + others.index(d) for d in ledger.devices}


def words(frame, filename=None):
    name, file, line = text_frame(frame)
    return {"name": name, "filename": file if filename is None else filename, "line": line}


def frames(ledger, site, stack, scope):
    """A stack, else a site, if it is known; then the scopes."""
    if stack and stack.frames:
        found = [words(f) for f in stack_frames(ledger, stack)]
    else:
        found = [words(f) for f in site_frames(site.subject)] if site else []
    return found + [words(scope_frame(s), "scope") for s in scopes_of(scope)]


def segment(number, device, address, bytes, pending, stream, found, parts):
    """A block, and the segment of its own that it is in."""
    block = {"address": address, "size": bytes, "requested_size": bytes, "frames": found,
             "state": "active_pending_free" if pending else "active_allocated"}
    if parts:
        block["parts"] = [{"name": shown(p.meta.name) or "", "offset": offset, "size": p.bytes}
                          for offset, p in sorted(parts.items())]
    return {"device": number[device], "address": address, "total_size": bytes,
            "allocated_size": 0 if pending else bytes, "active_size": bytes,
            "requested_size": bytes, "stream": stream, "segment_pool_id": (0, 0), "is_expandable": False,
            "segment_type": "large" if bytes >= 1 << 20 else "small", "frames": found,
            "blocks": [block]}


def segments(ledger, number):
    found = [segment(number, b.device, b.storage, b.bytes, b.pending is not None, b.stream,
                     frames(ledger, b.site, b.stack, b.scope), b.parts)
             for b in ledger.blocks.values() if b.bytes]
    for device in ledger.devices:
        address = (1 << 62) + (device.number << 50)
        rows = [ledger.arena_untagged(device)]
        for bytes in rows + [tag.arena for tag in ledger.tags if tag.device is device]:
            if bytes:
                found.append(segment(number, device, address, bytes, False, 0, [], {}))
            address += bytes
    return found


def event(ledger, action, time, address=0, bytes=0, stream=0, found=(), **more):
    return {"addr": address, "size": bytes, "stream": stream,
            "time_us": (WALL_AT_0 + ledger.started + time) // 1000, "action": action,
            "frames": list(found), **more}


def free_of(ledger, device):
    """The free bytes of the memory that a device is in; 0 is not known."""
    return next((line.free or 0 for line in ledger.capacity_lines()
                 if line.physical is device.physical), 0)


def of_event(ledger, e, requested):
    """The events of the viewer that one of the ring stands for."""
    key = e.device.type, e.storage
    if e.kind == "oom":
        free = free_of(ledger, e.device)
        actions, address, more = ["oom"], free, {"device_free": free}
    elif not e.bytes:
        return []
    elif e.kind == "pend":
        requested.add(key)
        actions, address, more = ["free_requested"], e.storage, {}
    elif e.kind == "free":
        actions = ["free_requested"] * (key not in requested) + ["free_completed", "segment_free"]
        address, more = e.storage, {}
        requested.discard(key)
    elif e.kind in ("alloc", "move"):
        actions, address, more = ["segment_alloc", "alloc"], e.storage, {}
        requested.discard(key)
    else:
        return []
    if e.tag:
        more = {**more, "category": shown(e.tag.subject)}
    scope = ledger.scopes[e.scope - 1] if e.scope else None
    found = frames(ledger, e.site, e.stack, scope)
    return [event(ledger, action, e.time, address, e.bytes, e.stream, found, **more)
            for action in actions]


def device_traces(ledger, number):
    traces = [[] for _ in range(max(number.values(), default=-1) + 1)]
    for device in ledger.devices:
        requested = set()
        trace = traces[number[device]]
        for e in ledger.events:
            if e.device is device:
                trace += of_event(ledger, e, requested)
        trace.append(event(ledger, "snapshot", ledger.now - ledger.started, category="unknown"))
    return traces


def expected(ledger):
    number = numbers(ledger)
    return {"memlord": {"version": ledger.version,
                        "devices": {d.name: n for d, n in number.items()},
                        "anomalies_and_drops": {"all": ledger.anomalies(), **{
                            d.name: ledger.anomalies(d) for d in ledger.devices}}},
            "segments": segments(ledger, number), "device_traces": device_traces(ledger, number),
            "allocator_settings": {}}


def by_address(found):
    """Segments come in the order of a map, which is open. Two at one address are an error."""
    places = {(s["device"], s["address"]): s for s in found}
    if len(places) != len(found):
        raise ValueError("two segments at one address")
    return places


def compare(ledger, data, check):
    wanted, found = expected(ledger), read(data)
    for snapshot in wanted, found:
        snapshot["segments"] = by_address(snapshot["segments"])
    check.same("memlord", "keys", sorted(wanted), sorted(found))
    for subject in SUBJECTS:
        check.same(subject, subject, wanted[subject], found[subject])
