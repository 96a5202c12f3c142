"""The lists that reports derive from the books: leaks, lifetimes, stacks, capacities, and those
that are cut after the largest."""

import itertools
from collections import namedtuple

from books import Between
from phases import RUNS_KEPT

StreamLine = namedtuple("StreamLine", "stream device bytes blocks")

# What a ledger counts of losses and mistakes, the heaviest first; then lost detail.
LOSSES = ("dropped_allocs", "dropped_bytes")
KINDS_OF_MISTAKES = ("dropped", "unknown_free", "implicit_free", "freed_while_shared", "underflow",
                     "fence_failed", "refused", "misplaced_end")
MISTAKES = ("unknown_frees", "implicit_frees", "freed_while_shared", "underflows",
            "fence_failures", "refused")
ANOMALIES = LOSSES + MISTAKES + ("dropped_sites", "dropped_scopes", "dropped_exports",
                                 "dropped_scope_invocations", "dropped_snapshots",
                                 "dropped_events")


def allocates(function):
    """Whether a function's name says that it allocates for others."""
    return any(word in function.lower() for word in (b"alloc", b"strdup", b"strndup", b"memdup", b"operator new"))


class Group:
    """Leaked blocks of one site, tag, scope and device."""

    def __init__(self, block):
        self.site, self.tag, self.scope, self.device = (block.site, block.tag, block.scope,
                                                        block.device)
        self.count = self.bytes = 0


class LeakSite:
    """The leaked blocks of a site, or of the tag of blocks without a site."""

    def __init__(self, site):
        self.site, self.count, self.bytes, self.groups = site, 0, 0, []
        self.devices, self.tags, self.scopes = set(), set(), set()


class StackLeak:
    def __init__(self, row):
        self.row, self.count, self.bytes = row, 0, 0


class TagLine:
    """A tag in the table of tags, or the bytes of a device that have none."""

    def __init__(self, row, device=None, untagged=0):
        self.device, self.tagged = row.device if row else device, row is not None
        self.name, self.live = (row.subject, row.live) if row else (b"(untagged)", untagged)
        self.peak, self.blocks = (row.peak, row.blocks) if row else (None, None)
        self.expected = row.expected or None if row else None
        self.variance = row.live - row.expected if self.expected else None


class SiteLine:
    """A site in the table of sites, or the balance of an arena."""

    def __init__(self, row, device=None):
        self.arena, self.device = row is None, row.device if row else device
        self.row, self.site = row, row.subject if row else None
        self.live = row.live if row else device.arena
        self.order_by_peak = row.peak if row else device.arena
        self.peak, self.allocs = (row.peak, row.allocs) if row else (None, None)
        self.allocated = row.allocated if row else None


class CapacityLine:
    """What a report says of a physical device; None is not known."""

    def __init__(self, physical):
        self.physical = physical
        self.total = self.used = self.free = self.context = self.unaccounted = None
        self.process = self.others = self.age = self.rest = None
        self.fullness = 0
        self.processes = []


def in_order(items, key):
    """The items, the largest first. The order of equal ones must not matter to a test."""
    items = sorted(items, key=key, reverse=True)
    for one, other in zip(items, items[1:]):
        assert key(one) != key(other), "the script leaves the order of two lines open"
    return items


class Lists:
    def is_late(self):
        """Whether several threads may hold back a part of a peak."""
        return any(row.late for row in self.devices + self.tags + self.sites)

    def leaks(self):
        """The live blocks born since the last mark; those that are pending are freed."""
        return [b for b in self.blocks.values() if b.born >= self.mark_now and b.pending is None]

    def leak_groups(self):
        groups = {}
        for block in self.leaks():
            key = (block.site, block.tag, block.scope, block.device)
            group = groups.setdefault(key, Group(block))
            group.count += 1
            group.bytes += block.bytes
        return in_order(groups.values(), lambda group: group.bytes)

    def leak_sites(self):
        found = {}
        for group in self.leak_groups():
            key = ("site", group.site.subject) if group.site else \
                ("tag", group.tag.subject if group.tag else None)
            line = found.setdefault(key, LeakSite(group.site and group.site.subject))
            line.groups.append(group)
            line.count += group.count
            line.bytes += group.bytes
            line.devices.add(group.device.subject)
            line.tags.add(group.tag.subject if group.tag else None)
            line.scopes.add(group.scope.path if group.scope else None)
        return in_order(found.values(), lambda line: line.bytes)

    def culprit(self):
        """The site with the most leaked bytes; None: no bytes leaked."""
        sites = self.leak_sites()
        return sites[0] if sites and sites[0].bytes else None

    def stack_leaks(self):
        found = {}
        for block in self.leaks():
            if block.stack:
                leak = found.setdefault(block.stack, StackLeak(block.stack))
                leak.count += 1
                leak.bytes += block.bytes
        found = sorted(found.values(), key=lambda leak: leak.row.number)
        return sorted(found, key=lambda leak: -leak.bytes)

    def stacks_shown(self):
        """The stacks with the most live bytes or, by peak, with the most bytes at the peak; then
        those that allocated most."""
        rows = [row for row in self.stacks if row.live or row.allocated or row.allocs or row.held]
        by_peak = self.by_peak(self.total())

        def first(row):
            return row.held if by_peak else row.live
        return sorted(rows, key=lambda r: (0, -first(r)) if first(r) else (1, -r.allocated))

    def frames_known(self):
        """The return addresses of all stacks, in the order in which they were first met."""
        frames = []
        for row in self.stacks:  # from the outermost
            frames += [f for f in reversed(row.frames) if f not in frames]
        return frames

    def sites_counted(self):
        return [row for row in self.sites if row.allocated or row.freed_here or row.allocs or
                row.frees_here or row.live]

    def callers(self, row):
        """What was allocated at a site for each function that called it: (place, live, allocated,
        allocs, at the peak, share), the largest share first."""
        found = {}
        for stack in self.stacks:
            caller = self.caller(row.subject, stack) if stack.site is row else None
            if caller and (stack.live or stack.allocated or stack.allocs):
                sums = found.setdefault((caller.file, caller.function, caller.line), [caller, 0, 0, 0, 0])
                more = stack.live, stack.allocated, stack.allocs, stack.held
                sums[1:] = [a + b for a, b in zip(sums[1:], more)]
        by = next(k for k in ([4] if self.by_peak(self.total()) else []) + [1, 2]
                  if k == 2 or sum(s[k] for s in found.values()))
        return sorted((s + [s[by]] for s in found.values()), key=lambda sums: -sums[5])

    def caller(self, site, stack):
        """The function that called a site in a stack: the first that is in no library, or the next
        one if that is the site's own. Those that allocate by their name are passed over if the site
        does, too."""
        own = [f for p in map(self.code_site, stack.frames) for f in p.functions or [p] if not f.library]
        if not own or not (site.library or own[0].function):
            return None
        known = lambda f: f and f.function and f.file
        others = own if site.library else list(itertools.dropwhile(
            lambda f: f.function in (own[0].function, site.function), own))
        first = caller = others[0] if others else None
        if site.library or allocates(own[0].function):
            caller = next((f for f in others if not allocates(f.function)), None)
        caller = caller if known(caller) else first
        return caller if site.library or known(caller) else None

    def tag_lines(self):
        """All tags, and the untagged bytes of each device, the largest first."""
        lines = [TagLine(row) for row in self.tags]
        for device in self.devices if self.tags else []:
            untagged = device.live - sum(r.live for r in self.tags if r.device is device)
            if untagged > 0:
                lines.append(TagLine(None, device, untagged))
        return sorted(lines, key=lambda line: -line.live)

    def by_peak(self, total):
        """Whether sites and stacks are listed by their peak: less than a quarter of the peak is live."""
        peak = total["peak"]
        return total["allocated"] < (peak.most if isinstance(peak, Between) else peak) // 4

    def site_lines(self, total):
        """The sites and arenas of the table, the largest first."""
        def key(line):
            return line.order_by_peak if self.by_peak(total) else line.live
        lines = [SiteLine(row) for row in self.sites]
        lines += [SiteLine(None, device) for device in self.devices if device.arena]
        return sorted([line for line in lines if key(line)], key=lambda line: -key(line))

    def scope_lines(self):
        """Each scope and the live bytes of its own blocks, the most bytes first."""
        lines = [(scope, sum(b.bytes for b in self.blocks.values() if b.scope is scope))
                 for scope in self.scopes]
        return sorted(lines, key=lambda line: -line[1])

    def sizes(self, device):
        """(start of a size class, live blocks of it) of a device; a class ends at twice its
        start."""
        counts = {}
        for block in self.blocks.values():
            if block.device is device:
                start = 1 << (block.bytes.bit_length() - 1) if block.bytes else 0
                counts[start] = counts.get(start, 0) + 1
        return sorted(counts.items())

    def stream_lines(self):
        """The live blocks of each stream on each device, the most bytes first."""
        sums = {}
        for block in self.blocks.values():
            if block.stream:
                line = sums.setdefault((block.device, block.stream), [0, 0])
                line[0] += block.bytes
                line[1] += 1
        lines = [StreamLine(stream, device, *line) for (device, stream), line in sums.items()]
        return sorted(lines, key=lambda s: (-s.bytes, s.stream))

    def largest_accounts(self):
        return sorted(self.accounts, key=lambda account: -account.bytes)[:20]

    def runs_lost(self):
        """Invocations of scopes that are no longer kept."""
        return sum(max(len(part.runs) - RUNS_KEPT, 0) for scope in self.scopes
                   for part in scope.threads)

    def losses(self):
        """What the ledger itself lost, by name."""
        return {"dropped_scopes": self.lost_scopes, "dropped_exports": self.lost_exports,
                "dropped_scope_invocations": self.runs_lost(),
                "dropped_snapshots": self.lost_snapshots}

    def anomalies(self, device=None):
        """The anomalies and drops of a device that are not 0; or of all, with those of the ledger."""
        counts = device.stats() if device else {**self.total(), **self.losses()}
        return {name: counts[name] for name in ANOMALIES if counts.get(name)}

    def mistakes_by_weight(self):
        """The mistakes, the kinds that lose bytes first; of one kind by bytes, or by number."""
        return sorted(self.mistakes,
                      key=lambda m: (KINDS_OF_MISTAKES.index(m.kind), -(m.bytes or m.count)))

    def lifetimes(self, device):
        """How many blocks of the event ring lived up to 0.1 s, 1 s, 10 s, and longer."""
        if not self.event_capacity:
            return None
        begun, classes = {}, [0, 0, 0, 0]
        for e in self.events:
            if e.kind in ("alloc", "move"):
                begun[e.device.type, e.storage] = e.time
            elif e.kind == "free" and (e.device.type, e.storage) in begun:
                ms = (e.time - begun.pop((e.device.type, e.storage))) // 1_000_000
                if e.device is device:
                    classes[(ms >= 100) + (ms >= 1000) + (ms >= 10000)] += 1
        return classes

    def capacity_lines(self):
        """The physical devices whose capacity or limit is known, the fullest first."""
        lines = [self.capacity_line(p) for p in self.physicals()
                 if p.sample or p.limit]
        return sorted(lines, key=lambda line: -line.fullness)

    def capacity_line(self, physical):
        line, sample = CapacityLine(physical), physical.sample
        line.self = sum(d.live for d in self.on(physical))
        line.untagged = line.self - sum(row.live for row in self.tags
                                        if row.device in self.on(physical))
        if not sample:
            return line
        line.total, line.used = sample.total, self.used(physical)
        line.free = max(line.total - line.used, 0)
        line.age = self.now - physical.sampled
        line.context = sample.context or None
        process = max(sample.process + line.used - sample.used, 0) if sample.process else 0
        mine = max(line.self + sample.context, process)
        if process:
            line.process, line.rest = process, mine - line.self
        line.others = max(line.used - mine, 0)
        line.unaccounted = line.total - line.free - line.self - sample.context
        line.fullness = int(line.used * 100.0 / sample.total * 1e6) + 1
        line.processes = sample.others
        return line

    def process_name(self, pid):
        """The name of another process, which the test puts below the ledger's root."""
        return self.process_names.get(pid)
