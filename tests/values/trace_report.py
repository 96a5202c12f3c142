"""TRACE: the Trace Event Format. Compares every event, in its order; the ends of the blocks that
are still live come in the order of a table, which is open."""
from json_report import parsed, parts, process
from notation import PID, PROGRAM, Number, fixed, shown
from script import TYPES

SUBJECTS = ("keys", "names", "snapshots", "scopes", "counters", "blocks", "other events", "order",
            "otherData")
SHOWN_TAGS = 32   # of a device; the others are one
SAMPLES = 2048    # of a counter, at even steps of time
NAME_BYTES = 200  # of a name


def name_of(text):
    """A name, cut where a character begins."""
    if text is None or len(text) <= NAME_BYTES:
        return shown(text)
    end = NAME_BYTES
    while end and text[end] & 0xc0 == 0x80:
        end -= 1
    return shown(text[:end])


class Trace:
    """What a ledger's events become."""

    def __init__(self, ledger):
        self.ledger, self.events = ledger, []
        self.now = ledger.now - ledger.started
        self.first = min([e.time for e in ledger.events] + [self.now])
        self.due, self.last = {}, {}

    def add(self, ph, time, thread, name, args, **more):
        self.events.append({"ph": ph, "pid": PID, "tid": thread, "ts": Number(fixed(time, 3)),
                            "name": name, "args": args, **more})

    def names(self):
        self.add("M", 0, 0, "process_name", {"name": name_of(PROGRAM)})
        for record in self.ledger.records:
            self.add("M", 0, record.number, "thread_name", {"name": "thread %d" % record.number})

    def snapshots(self):
        for s in self.ledger.snapshots_shown():
            for u in s.usage:
                self.add("C", s.time, 0, u.device.name + " snapshots",
                         {"live": u.live, "pending": u.pending, "reserved": u.reserved})
            if s.name:
                self.add("i", s.time, 0, name_of(s.name), {"live": s.live}, s="g", cat="checkpoint")

    def runs(self):
        """The invocations that are kept, for a ring without scopes."""
        for scope in self.ledger.scopes:
            for thread, run in scope.kept():
                self.add("X", run.start, thread.number, name_of(scope.name), {
                    "path": name_of(scope.path), "delta_bytes": run.bytes,
                    "delta_blocks": run.blocks, "peak_bytes": run.peak, "shapes": name_of(run.shapes)},
                    dur=Number(fixed(run.ns, 3)), cat="scope")

    # -- counters: the live bytes of a device by tag --

    def levels(self):
        """What was live at the first event: what is live now, less all that the events add."""
        self.level = {row: row.live for row in self.ledger.tags}
        self.level.update({d: d.live - sum(row.live for row in self.ledger.tags if row.device is d)
                           for d in self.ledger.devices})
        for e in self.ledger.events:
            if e.device:
                self.level[e.tag or e.device] -= delta(e)
        for d in self.ledger.devices:
            self.last[d] = self.sum(d)

    def sum(self, device):
        return self.level[device] + sum(self.level[row] for row in self.ledger.tags
                                        if row.device is device)

    def counter(self, device, time):
        rows = [row for row in self.ledger.tags if row.device is device]
        args = {"(untagged)": max(self.level[device], 0)}
        args.update({name_of(row.subject): max(self.level[row], 0) for row in rows[:SHOWN_TAGS]})
        if rows[SHOWN_TAGS:]:
            args["(other tags)"] = sum(max(self.level[row], 0) for row in rows[SHOWN_TAGS:])
        self.add("C", time, 0, device.name + " live", args)
        self.due[device] = time + (self.now - self.first) // SAMPLES
        self.last[device] = self.sum(device)

    def count(self, e):
        change = delta(e)
        if not change:
            return
        self.level[e.tag or e.device] += change
        moved = abs(self.sum(e.device) - self.last[e.device])
        if e.time >= self.due[e.device] or moved > e.device.peak // 64:
            self.counter(e.device, e.time)

    # -- the ring --

    def life(self, ph, begun, thread, time, args):
        site, tag = begun.site and begun.site.subject, begun.tag and begun.tag.subject
        name = tag or (site and site.function) or b"block"
        self.add(ph, time, thread, name_of(name), args, cat="block",
                 id="%s 0x%x" % (TYPES[begun.device.type], begun.storage))

    def block(self, e):
        key = e.device.type, e.storage
        begun = self.open.get(key)
        if begun:
            self.life("n" if e.kind == "pend" else "e", begun, e.thread, e.time, {})
        if e.kind == "pend":
            return
        self.open.pop(key, None)
        if e.kind == "free":
            return
        self.open[key] = e
        site = e.site and e.site.subject
        scope = self.ledger.scopes[e.scope - 1] if e.scope else None
        self.life("b", e, e.thread, e.time, {
            "device": e.device.name, "bytes": e.bytes, "tag": name_of(e.tag and e.tag.subject),
            "scope": name_of(scope and scope.path), "file": name_of(site and site.file),
            "line": site.line if site else 0, "function": name_of(site and site.function)})

    def scope(self, e):
        scope = self.ledger.scopes[e.scope - 1]
        if e.kind == "scope_begin":
            self.add("B", e.time, e.thread, name_of(scope.name), {"path": name_of(scope.path)},
                     cat="scope")
        elif self.depth.get(e.thread):
            self.add("E", e.time, e.thread, name_of(scope.name), {}, cat="scope")
        else:
            return
        self.depth[e.thread] = self.depth.get(e.thread, 0) + (1 if e.kind == "scope_begin" else -1)

    def ring(self):
        self.open, self.depth = {}, {}
        for e in self.ledger.events:
            if e.kind in ("scope_begin", "scope_end"):
                self.scope(e)
            if not e.device:
                continue
            self.count(e)
            if e.kind in ("alloc", "free", "pend", "move"):
                self.block(e)
            elif e.kind in ("gc", "oom"):
                words = " gc" if e.kind == "gc" else " out of memory"
                self.add("i", e.time, e.thread, e.device.name + words, {"bytes": e.bytes},
                         s="p", cat="memory")

    def end(self):
        for thread in sorted(self.depth):
            for _ in range(self.depth[thread]):
                self.add("E", self.now, thread, "", {}, cat="scope")
        for key, begun in self.open.items():
            block = self.ledger.blocks.get(key)
            self.life("e", begun, 0, self.now, {"parts": block and parts(block)})
        for device in self.ledger.devices:
            self.counter(device, self.now)

    def whole(self):
        self.names()
        self.snapshots()
        if not any(e.kind == "scope_begin" for e in self.ledger.events):
            self.runs()
        self.levels()
        if self.ledger.event_capacity:
            for device in self.ledger.devices:
                self.counter(device, self.first)
        self.ring()
        self.end()
        return self.events


def delta(e):
    """What an event adds to the live bytes of its device."""
    signs = {"alloc": 1, "move": 1, "arena_add": 1, "free": -1, "arena_sub": -1}
    return signs.get(e.kind, 0) * e.bytes


def subject_of(e):
    """The test that an event belongs to."""
    if e["ph"] == "M":
        return "names"
    if e["ph"] == "C":
        return "snapshots" if e["name"].endswith(" snapshots") else "counters"
    subjects = {"scope": "scopes", "block": "blocks", "checkpoint": "snapshots"}
    return subjects.get(e.get("cat"), "other events")


def is_last_end(e):
    return e["ph"] == "e" and e["tid"] == 0


def split(events):
    """The events by subject, each in its order; ends of live blocks by their id."""
    found = {}
    for e in events:
        found.setdefault(subject_of(e), []).append(e)
    found["order"] = [(e["ph"], e["tid"], e["ts"]) for e in events]
    blocks = found.get("blocks", [])
    last = sorted((e for e in blocks if is_last_end(e)), key=lambda e: e["id"])
    found["blocks"] = [e for e in blocks if not is_last_end(e)] + last
    return found


def compare(ledger, data, check):
    found = parsed(data)
    check.same("keys", "keys", ["displayTimeUnit", "traceEvents", "otherData"], list(found))
    check.same("keys", "displayTimeUnit", "ms", found["displayTimeUnit"])
    wanted, events = split(Trace(ledger).whole()), split(found["traceEvents"])
    for subject in SUBJECTS[1:-1]:
        check.same(subject, subject, wanted.get(subject, []), events.get(subject, []))
    check.same("otherData", "otherData", {"version": ledger.version, **process(ledger), "anomalies_and_drops": {"all": ledger.anomalies(), **{
        d.name: ledger.anomalies(d) for d in ledger.devices}}}, found["otherData"])
