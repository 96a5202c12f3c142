"""The model of what a ledger keeps of time: scopes, events, snapshots, and who held a peak."""

import functools

from books import Between
from script import EXACT, E_INVALID, E_NOMEM, E_STATE, E_UNKNOWN, OK, text

SNAPSHOTS = 255    # that are kept
RUNS_KEPT = 64     # invocations that a thread keeps of a scope
SCOPE_NAME = 200   # bytes of a name that are kept
HOLDERS = 16       # tags, and sites, that are kept of a device at its peak
SERIES = 64        # tags, and sites, that a report follows over its snapshots
SNAPSHOT_TOP = 10  # blocks that a snapshot keeps
KINDS = ("alloc", "free", "pend", "move", "arena_add", "arena_sub", "gc", "oom", "scope_begin",
         "scope_end", "checkpoint")


class Event:
    def __init__(self, time, kind, thread, device, storage, bytes, site, tag, scope, stream,
                 stack, name):
        self.time, self.kind, self.thread = time, kind, thread
        self.device, self.storage, self.bytes = device, storage, bytes
        self.site, self.tag, self.stack = site, tag, stack  # rows
        self.scope, self.stream = scope, stream
        self.name = name  # of a checkpoint


class Slot:
    """A part of the ring of events."""

    def __init__(self):
        self.writer, self.number, self.events = None, 0, []


class Run:
    """One invocation of a scope."""

    def __init__(self, start, before, shapes):
        self.start, self.before, self.shapes = start, before, shapes
        self.ns = self.bytes = self.blocks = self.after = self.peak = 0


class ScopeThread:
    """What one thread did in a scope."""

    def __init__(self, thread):
        self.thread, self.running, self.runs, self.deltas = thread, 0, [], {}
        self.token = None


class Scope:
    def __init__(self, id, parent, name, path, site):
        self.id, self.parent, self.name, self.path, self.site = id, parent, name, path, site
        self.threads = []  # ScopeThread, the newest first
        self.device_ns = 0

    def runs(self):
        """All invocations that are over, with those that are no longer kept."""
        return [run for part in self.threads for run in part.runs]

    def running(self):
        return sum(part.running for part in self.threads)

    def kept(self):
        """(thread, invocation) of those that are kept, in the order of reports."""
        return [(part.thread, run) for part in self.threads for run in part.runs[-RUNS_KEPT:]]

    def deltas(self):
        """The sum of the deltas on each device."""
        sums = {}
        for part in self.threads:
            for device, delta in part.deltas.items():
                sums[device] = sums.get(device, 0) + delta
        return sums


class Joint:
    """An invocation that several threads share."""

    def __init__(self, frame, thread):
        self.scope, self.part, self.shapes = frame.scope, frame.part, None
        self.start, self.before = frame.run.start, frame.run.before
        self.members, self.over, self.adopted = {thread}, False, False
        self.inside = 1
        self.deltas = {}  # of the threads that left
        self.blocks = 0
        self.level = {d: n - frame.start.get(d, 0) for d, n in thread.live.items()}
        self.high = {d: n - frame.start.get(d, 0) for d, n in frame.high.items()}

    def count(self, device, change):
        self.level[device] = self.level.get(device, 0) + change
        self.high[device] = max(self.high.get(device, 0), self.level[device])

    def peak(self, error):
        """Each thread may have published so many bytes late, on each device."""
        high = sum(self.high.values())
        error *= len(self.members) * len(self.high)
        return Between(high - error, high) if error else high


def highest(runs):
    """The highest peak of some invocations."""
    peaks = [run.peak for run in runs]
    most = max((p.most if isinstance(p, Between) else p for p in peaks), default=0)
    least = max((p.least if isinstance(p, Between) else p for p in peaks), default=0)
    return most if least == most else Between(least, most)


class Frame:
    """A scope that a thread is in."""

    def __init__(self, scope, part, thread, joint, run):
        self.scope, self.part, self.joint, self.run = scope, part, joint, run
        self.adopted = joint is not None
        self.start = dict(thread.live)
        self.high = dict(thread.live)
        self.blocks = thread.live_blocks

    def note(self, device, level):
        self.high[device] = max(self.high.get(device, 0), level)


class Usage:
    """A device at one moment."""

    def __init__(self, device):
        self.device, self.live, self.pending = device, device.live, device.pending
        self.reserved, self.peak, self.blocks = device.reserved, device.late_peak(), device.blocks


class Kept:
    """A block as a snapshot keeps it."""

    def __init__(self, block):
        self.device, self.storage, self.bytes = block.device, block.storage, block.bytes
        self.meta, self.tag, self.scope = block.meta, block.tag, block.scope


class Snapshot:
    def __init__(self, time, name, devices, blocks, holdings):
        self.time, self.name = time, name
        self.holdings = holdings  # by (device, "tags" or "sites"): the largest, as {row or None: bytes}
        self.usage = [Usage(device) for device in devices]
        self.live = sum(u.live for u in self.usage)
        self.count = sum(u.blocks for u in self.usage)
        self.blocks = [Kept(block) for block in blocks]


def fitted(points):
    """The straight line through points by least squares: its slope, and its R2."""
    n = len(points)
    mean_t, mean_y = sum(t for t, _ in points) / n, sum(y for _, y in points) / n
    tt = sum((t - mean_t) ** 2 for t, _ in points)
    yy = sum((y - mean_y) ** 2 for _, y in points)
    ty = sum((t - mean_t) * (y - mean_y) for t, y in points)
    return (ty / tt if tt else 0, ty * ty / tt / yy if tt and yy else 0)


@functools.lru_cache(maxsize=None)  # each report of one ledger asks for the same lines
def steepest(times, levels, capacity):
    """The line by which something grows: (bytes a minute, first snapshot, snapshots, R2), or None. Of those
    whose R2 is the highest, or 0.02 below it, the longest."""
    if len(times) < 8 or levels[-1] is None:
        return None
    found = []
    for first in range(len(times)):
        points = [(t, y) for t, y in zip(times[first:], levels[first:]) if y is not None]
        if levels[first] is None or len(points) < 8 or times[-1] - times[first] < (times[-1] - times[0]) / 2:
            continue
        if (times[-1] - times[first]) * 60 < 1:  # a second
            continue
        slope, fit = fitted(points)
        rise, middle = slope * (times[-1] - times[first]), (times[first] + times[-1]) / 2
        late = [(t, y) for t, y in points if t >= middle]
        fast = slope >= 1 << 20 or (capacity and rise >= capacity / 100)
        if sum(y for _, y in points) > levels[-1] * len(points):  # it has fallen at the end
            continue
        if fit < 0.8 or slope <= 0 or not fast or fitted(late)[0] < slope / 2:
            continue
        if all(y is None or y <= levels[-1] - rise / 2 for y in levels[:first]):
            found.append((int(slope + 0.5), first, len(points), fit))
    best = max((line[3] for line in found), default=0)
    return next((line for line in found if line[3] >= best - 0.02), None)


class Holders:
    """Who held a device at its peak: tags and sites with their bytes, None for untagged bytes."""

    def __init__(self, time, bytes, arena, tags, sites):
        self.time, self.bytes, self.arena, self.tags, self.sites = time, bytes, arena, tags, sites


class Phases:
    def phases_begin(self):
        self.scopes, self.snapshots = [], []
        self.recording, self.due = 0, 0  # ns between two; when the next one is due
        self.lost_snapshots = self.lost_scopes = self.lost_exports = 0
        self.slots, self.next_slot = [], 0

    def phases_reset(self):
        self.lost_snapshots = self.lost_scopes = 0
        for scope in self.scopes:
            scope.device_ns = 0
            for part in scope.threads:
                part.runs, part.deltas = [], {}

    def live_total(self):
        return sum(device.live for device in self.devices)

    def largest_blocks(self, most, device=None):
        """The largest blocks, pending ones too; of equal ones that of the lower storage first."""
        blocks = [b for b in self.blocks.values() if device in (None, b.device)]
        return sorted(blocks, key=lambda b: (-b.bytes, b.storage))[:most]

    # -- events --

    def event(self, kind, device, storage, bytes, site=None, tag=None, stream=0, stack=None,
              name=None):
        if not self.events_on:
            return
        t = self.thread()
        scope = t.frames[-1].scope.id if t.frames else 0
        slot = self.slot_of(t, device)
        if slot:
            slot.events.append(Event(self.now - self.started, kind, t.number, device, storage,
                                     bytes, site, tag, scope, stream, stack, name))

    def slot_of(self, t, device):
        """The part of the ring that a thread writes: a part has one writer until it is full."""
        most = min(self.event_capacity // 16, 64) or 1
        mine = next((slot for slot in self.slots if slot.writer is t), None)
        if mine and len(mine.events) < most:
            return mine
        if mine:
            mine.writer = None
        self.slots = self.slots or [Slot() for _ in range(self.event_capacity // most)]
        for _ in self.slots:
            slot, self.next_slot = self.slots[self.next_slot % len(self.slots)], self.next_slot + 1
            if slot.writer is None:
                for lost in slot.events:
                    self.count_loss("dropped_events", lost.device)
                slot.writer, slot.number, slot.events = t, self.next_slot, []
                return slot
        self.count_loss("dropped_events", device)
        return None

    def count_loss(self, what, device):
        (device.count if device else self.lost)[what] += 1

    @property
    def events(self):
        """The events in the ring, the oldest first; of one moment, in the order of the parts."""
        written = sorted((slot for slot in self.slots if slot.events), key=lambda s: s.number)
        return sorted((e for slot in written for e in slot.events), key=lambda e: e.time)

    def op_events_start(self, capacity):
        self.event_capacity = capacity or 65536
        self.events_on = True
        return OK

    def op_events_stop(self):
        self.events_on = False
        return OK

    # -- scopes --

    def scope_of(self, parent, name, site):
        """The scope of a path, made when it is first begun."""
        name = text(name)[:SCOPE_NAME]
        path = parent.path + b"/" + name if parent else name
        for scope in self.scopes:
            if scope.path == path:
                return scope
        scope = Scope(len(self.scopes) + 1, parent, name, path, site)
        self.scopes.append(scope)
        return scope

    def frame_open(self, scope, joint=None):
        t = self.thread()
        part = next((p for p in scope.threads if p.thread is t), None)
        if not part:
            part = ScopeThread(t)
            scope.threads.insert(0, part)
        part.running += joint is None
        run = Run(self.now - self.started, self.live_total(), None)
        t.frames.append(Frame(scope, part, t, joint, run))
        self.event("scope_begin", None, 0, 0)

    def frame_close(self):
        t = self.thread()
        self.event("scope_end", None, 0, 0)
        frame = t.frames.pop()
        run, part, joint = frame.run, frame.part, frame.joint
        run.ns = self.now - self.started - run.start
        run.after = self.live_total()
        run.blocks = t.live_blocks - frame.blocks
        for device in self.devices:
            start = frame.start.get(device, 0)
            delta = t.live.get(device, 0) - start
            run.bytes += delta
            run.peak += frame.high.get(device, 0) - start
            sums = joint.deltas if joint else part.deltas
            sums[device] = sums.get(device, 0) + delta
        if joint and not self.joint_left(frame):
            return
        part.runs.append(run)
        (joint or frame).part.running -= 1

    def joint_left(self, frame):
        """Adds what a thread did to the invocation it leaves. True: it was the last, and its run
        becomes that of all."""
        run, joint = frame.run, frame.joint
        joint.blocks += run.blocks
        joint.shapes = run.shapes or joint.shapes
        joint.over |= not frame.adopted
        joint.inside -= 1
        if joint.inside:
            return False
        run.ns += run.start - joint.start
        run.start, run.before, run.shapes = joint.start, joint.before, joint.shapes
        run.bytes, run.blocks = sum(joint.deltas.values()), joint.blocks
        if joint.adopted:
            run.peak = joint.peak(0 if self.flags & EXACT else self.batch)
        for device, delta in joint.deltas.items():
            frame.part.deltas[device] = frame.part.deltas.get(device, 0) + delta
        return True

    def op_place(self, number, name, site):
        self.places[number] = (text(name), self.site_of[site])
        return OK

    def op_scope_begin(self, name):
        if not name:
            return E_INVALID
        t = self.thread()
        self.frame_open(self.scope_of(t.frames[-1].scope if t.frames else None, name, None))
        return OK

    def op_scope_enter(self, place):
        t = self.thread()
        name, site = self.places[place]
        self.frame_open(self.scope_of(t.frames[-1].scope if t.frames else None, name, site))
        return OK

    def op_scope_end(self):
        t = self.thread()
        if not t.frames or t.frames[-1].adopted:
            self.misplaced_end("scope_end")
            return E_STATE
        self.frame_close()
        return OK

    def op_scope_shapes(self, shapes):
        t = self.thread()
        if not t.frames:
            return E_STATE
        t.frames[-1].run.shapes = text(shapes)
        return OK

    def op_scope_export(self, token):
        t = self.thread()
        if not t.frames:
            return E_STATE
        frame = t.frames[-1]
        frame.joint = frame.joint or Joint(frame, t)
        self.tokens["scope", token] = frame.joint
        return OK

    def op_scope_adopt(self, token):
        t = self.thread()
        joint = self.tokens.get(("scope", token))
        if not joint or not joint.inside:
            return E_UNKNOWN
        if any(f.joint is joint for f in t.frames):
            return E_STATE
        if joint.over:
            return E_UNKNOWN
        joint.adopted = True
        joint.inside += 1
        joint.members.add(t)
        self.frame_open(joint.scope, joint)
        return OK

    def op_scope_return(self, token):
        t = self.thread()
        if not t.frames or not t.frames[-1].adopted or \
                t.frames[-1].joint is not self.tokens.get(("scope", token)):
            return E_STATE
        self.frame_close()
        return OK

    def op_device_time(self, scope, ns):
        if not 0 < scope <= len(self.scopes):
            return E_UNKNOWN
        self.scopes[scope - 1].device_ns += ns
        return OK

    # -- snapshots --

    def snapshot(self, name):
        holdings = {(device, kind): self.holdings(rows, device) for device in self.devices
                    for kind, rows in (("tags", self.tags), ("sites", self.sites)) if rows}
        return Snapshot(self.now - self.started, name, self.devices,
                        self.largest_blocks(SNAPSHOT_TOP), holdings)

    def holdings(self, rows, device):
        """What the rows of a device hold, and what none of them does, the largest first."""
        found = [(row, row.live) for row in self.top(rows, device)]
        left = device.live - sum(row.live for row in rows if row.device is device)
        found += [(None, left)] if left > 0 else []
        return dict(sorted(found, key=lambda held: -held[1])[:HOLDERS])

    # -- series: the live bytes of a device, a tag or a site in each snapshot; None is not known --

    def level(self, snapshot, device, kind, row):
        if kind == "devices":
            return sum(u.live for u in snapshot.usage if u.device is device)
        held = snapshot.holdings.get((device, kind), {})
        return held.get(row, 0 if len(held) < HOLDERS else None)

    def series(self, kind):
        """(device, row, bytes in each snapshot) of the tags or sites with the most bytes."""
        snapshots, found = self.snapshots_shown(), {}  # as a set that keeps its order
        for snapshot in snapshots:
            for device in self.devices:
                found.update(((device, row), None) for row in snapshot.holdings.get((device, kind), ()))
        found = [(device, row, [self.level(s, device, kind, row) for s in snapshots]) for device, row in found]
        return sorted(found, key=lambda one: -max(level or 0 for level in one[2]))[:SERIES]

    def growth(self):
        """What grows: (bytes a minute, index of the first snapshot, snapshots, R2, kind, device, row), the
        fastest first."""
        snapshots, found = self.snapshots_shown(), []
        capacity = {device: line.total for line in self.capacity_lines() for device in self.devices
                    if line.physical is device.physical and line.total}
        times, series = tuple(s.time / 6e10 for s in snapshots), {kind: self.series(kind) for kind in ("sites", "tags")}
        for device in self.devices:
            all_of_it = (device, None, [self.level(s, device, "devices", None) for s in snapshots])
            for kind in "devices", "sites", "tags":
                for of, row, levels in [all_of_it] if kind == "devices" else series[kind]:
                    line = of is device and steepest(times, tuple(levels), capacity.get(device))
                    found += [line + (kind, device, row)] if line else []
        return sorted(found, key=lambda one: -one[0])

    def take_snapshot(self, name):
        self.snapshots.append(self.snapshot(name))
        if len(self.snapshots) > SNAPSHOTS:
            self.snapshots.remove(self.dispensable())
            self.lost_snapshots += 1

    def dispensable(self):
        """The snapshot whose neighbours are closest in time, but for the first, the last, and those
        in which a device, or all together, held most; a checkpoint only if there is no other."""
        gaps = [(s.name is not None, self.snapshots[i + 2].time - self.snapshots[i].time, i, s)
                for i, s in enumerate(self.snapshots[1:-1]) if not self.holds_most(s)]
        return min(gaps, key=lambda gap: gap[:3])[3]

    def holds_most(self, snapshot):
        def levels(s):
            return {None: s.live, **{u.device: u.live for u in s.usage}}
        mine = levels(snapshot)
        others = [levels(s) for s in self.snapshots if s is not snapshot]
        return any(all(other.get(device, 0) < level for other in others)
                   for device, level in mine.items())

    def op_checkpoint(self, name):
        if not name:
            return E_INVALID
        if self.no_room():
            self.lost_snapshots += 1
            return E_NOMEM
        self.take_snapshot(text(name))
        if self.events_on:
            self.event("checkpoint", None, 0, 0, name=text(name))
        return OK

    def op_snapshots_start(self, interval):
        self.recording, self.due = interval * 1_000_000, self.now + interval * 1_000_000
        self.take_snapshot(None)
        return OK

    def snapshot_due(self):
        """Takes the snapshot that is due: without threads, a poll does."""
        if self.recording and self.now >= self.due:
            self.due = self.now + self.recording
            self.take_snapshot(None)

    def op_snapshots_stop(self):
        if self.recording:
            self.take_snapshot(None)
        self.recording = 0
        return OK

    def snapshots_shown(self):
        """Those that a report shows: while snapshots are taken it ends with one of its own."""
        return self.snapshots + ([self.snapshot(None)] if self.recording else [])

    # -- who held a device at its peak --

    def note_holders(self, device):
        """Notes the holders of a device that holds a sixteenth more than at the last time or, when
        it has begun to fall from its peak, a 128th."""
        live = device.live
        noted = device.holders.bytes if device.holders else 0
        if live <= noted + noted // (128 if live < device.peak else 16):
            return
        tags = [(row.subject, row.live) for row in self.top(self.tags, device)[:HOLDERS - 1]]
        untagged = live - sum(row.live for row in self.tags if row.device is device)
        if untagged > 0:
            tags.append((None, untagged))
        sites = [(row.subject, row.live) for row in self.top(self.sites, device)[:HOLDERS]]
        device.holders = Holders(self.now - self.started, live, device.arena, tags, sites)
        self.hold_stacks(device)

    def hold_stacks(self, device):
        for stack in self.stacks:
            if stack.device is device:
                stack.held = stack.live

    def top(self, rows, device):
        """The rows of a device that hold bytes, the largest first, equal ones in their order."""
        rows = [row for row in rows if row.device is device and row.live]
        return sorted(rows, key=lambda row: -row.live)

    def restart_holders(self, device):
        device.holders = None
        self.hold_stacks(device)
        self.note_holders(device)
