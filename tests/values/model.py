"""The books of a ledger, computed from the operations of a script alone.

`Ledger(script).play()` carries out every operation as the contract says and keeps what a report
must then say. It never looks at a report, and calls nothing of memlord.h. A format module gets the
played ledger and the bytes of a file: see `check.py`.

Names that formats use:

    ledger.devices     Row of each device, by number from 1: devices[0] is the first
    ledger.tags        Row of each pair of tag and device, in the order of their first use
    ledger.sites       Row of each pair of site and device, likewise
    ledger.stacks      StackRow of each stack at one site on one device, likewise
    ledger.blocks      Block by (device type, storage)
    ledger.events      Event in the ring, the oldest first
    ledger.scopes      Scope, by id from 1: scopes[0] has id 1
    ledger.snapshots   Snapshot, the oldest first
    ledger.records     Record of each thread, the newest first; the last is that of no thread
    ledger.total()     the statistics of all devices, and device.stats() those of one

Text is bytes, as the host gave it: notation.shown() says how reports show it.
"""

from capacity import Capacity
from lists import Lists
from phases import Phases
from reclaim import Reclaim
from script import (ALL, ANY, E_DEVICE, E_INVALID, E_STATE, E_UNKNOWN, OK, SITES, TYPES, Code, Device)

BYTES_MAX = 1 << 48
UNKNOWN = None  # a number that is not known

# The statistics of a device, in the order of reports.
STATS = ("allocated", "pending", "freed", "peak", "peak_error", "live_blocks", "allocs", "frees",
         "total_allocated", "total_freed", "moves", "moved_bytes", "reserved", "reserved_peak",
         "cached", "largest_free", "cache_hits", "cache_misses", "limit", "gc_runs", "gc_failed",
         "gc_reclaimed", "oom_attempts", "oom_failures", "retries", "recoveries", "implicit_frees",
         "unknown_frees", "freed_while_shared", "underflows", "fence_failures", "dropped_allocs",
         "dropped_bytes", "dropped_sites", "dropped_events", "held", "reallocs", "copies",
         "copied_bytes", "refused", "neighbours")
# Those that calls count one by one; the others are sums of bytes and blocks, or levels.
COUNTED = ("moves", "moved_bytes", "cache_hits", "cache_misses", "gc_runs", "gc_failed",
           "gc_reclaimed", "oom_attempts", "oom_failures", "retries", "recoveries",
           "implicit_frees", "unknown_frees", "freed_while_shared", "underflows",
           "fence_failures", "dropped_allocs", "dropped_bytes", "dropped_sites",
           "dropped_events", "reallocs", "copies", "copied_bytes", "refused")


class Site:
    """A place: two records with one file, function and line are one."""

    def __init__(self, file, function, line, module=None, offset=None, build_id=None):
        self.file, self.function, self.line = file, function, max(line, 0)
        self.module, self.offset, self.build_id = module, offset, build_id  # of a return address


class Program:
    """The program that plays: its file, its build id, and where its main is in it."""

    def __init__(self, path, build_id, main):
        self.path, self.build_id, self.main = path, build_id, main


class Row:
    """What is counted of a device, of a tag on a device, or of a site on a device."""

    def __init__(self, subject, device, number):
        self.subject, self.device, self.number = subject, device, number
        self.live = self.peak = self.blocks = 0
        self.allocated = self.freed = self.allocs = self.frees = 0  # since the last reset
        self.freed_here = self.frees_here = 0  # by frees at this site, of any site's blocks
        self.expected = 0  # of a tag
        self.holders = None

    def add(self, bytes, allocs=0):
        self.live += bytes
        self.allocated += bytes
        self.allocs += allocs
        self.blocks += allocs
        self.peak = max(self.peak, self.live)

    def take(self, bytes, frees=0):
        self.live -= bytes
        self.freed += bytes
        self.frees += frees
        self.blocks -= frees

    def reset(self):
        self.allocated = self.freed = self.allocs = self.frees = 0
        self.freed_here = self.frees_here = 0
        self.peak = self.live


class DeviceRow(Row):
    def __init__(self, device, number, physical):
        super().__init__(device, None, number)
        self.device, self.physical, self.label = self, physical, None
        self.name = str(device)
        self.type, self.index = device
        self.arena = self.pending = self.reserved = self.reserved_peak = 0
        self.largest_free = UNKNOWN
        self.since_gc = 0  # bytes credited since the last collection or reset
        self.count = dict.fromkeys(COUNTED, 0)
        self.next_holders = 0
        self.oom = None
        self.ever = 0          # bytes ever allocated, over resets
        self.sampled_peak = 0  # highest live bytes since the last sample of its capacity

    def add(self, bytes, allocs=0):
        super().add(bytes, allocs)
        self.ever += bytes
        self.sampled_peak = max(self.sampled_peak, self.live)

    def take(self, bytes, frees=0):
        super().take(bytes, frees)
        self.since_gc += bytes

    def reset(self):
        super().reset()
        self.since_gc = 0
        self.reserved_peak = self.reserved
        self.count = dict.fromkeys(COUNTED, 0)

    def stats(self):
        s = dict(self.count)
        s.update(allocated=self.live, pending=self.pending, freed=self.since_gc, peak=self.peak,
                 peak_error=0, live_blocks=self.blocks, allocs=self.allocs, frees=self.frees,
                 total_allocated=self.allocated, total_freed=self.freed, reserved=self.reserved,
                 reserved_peak=self.reserved_peak, cached=max(self.reserved - self.live, 0),
                 largest_free=self.largest_free, limit=self.physical.limit,
                 held=self.physical.held, neighbours=0)
        return {name: s[name] for name in STATS}


class StackRow:
    """A stack at one site on one device. Every alloc is taken."""

    def __init__(self, frames, site, device, number):
        self.frames, self.site, self.device, self.number = frames, site, device, number
        self.live = self.peak = self.blocks = 0
        self.allocated = self.allocs = 0


class Block:
    def __init__(self, device, storage, bytes):
        self.device, self.storage, self.bytes = device, storage, bytes
        self.refs = 1
        self.tag = self.site = self.stack = None  # rows
        self.scope = None
        self.born = self.stream = 0
        self.meta = None
        self.parts = {}  # Part by offset
        self.uses = []   # Fence that a free has to wait for
        self.pending = None  # the fences it waits for
        self.epoch = 0
        self.account, self.charged = None, 0


class Meta:
    def __init__(self, name, dtype, flags, shape):
        self.name, self.dtype, self.flags, self.shape = name, dtype, flags, shape


class Part:
    def __init__(self, offset, bytes, meta, tag):
        self.offset, self.bytes, self.meta, self.tag = offset, bytes, meta, tag


class Fence:
    def __init__(self, number, queue, order):
        self.number, self.queue, self.order = number, queue, order


class Record:
    """What a ledger counts for one thread; number 1 is that of no thread of its own."""

    def __init__(self, number):
        self.number = number
        self.allocated = self.freed = self.allocs = self.frees = 0

    def count(self, change, allocs, frees):
        self.allocs += allocs
        self.frees += frees
        self.allocated += max(change, 0)
        self.freed += max(-change, 0)


class Thread(Record):
    def __init__(self, number):
        super().__init__(number)
        self.cells = set()  # the devices that it has counted on
        self.tags, self.default_tag, self.stream, self.frames = [], None, 0, []
        self.live = {}        # bytes allocated less bytes freed, by device
        self.live_blocks = 0  # likewise of blocks
        self.stack = ()
        self.account, self.tickets = None, []

    def tag(self):
        return self.tags[-1] if self.tags else self.default_tag


class Route:
    def __init__(self, source, target):
        self.source, self.target = source, target
        self.moves = self.moved_bytes = self.copies = self.copied_bytes = 0


def text(value):
    return value.encode() if isinstance(value, str) else value


class Books:
    """Rows and what changes them."""

    def row(self, rows, subject, device):
        for row in rows:
            if row.device is device and row.subject == subject:
                return row
        row = Row(subject, device, len(rows) + 1)
        rows.append(row)
        return row

    def device(self, device):
        """The row of a device, made when it is first named."""
        for row in self.devices:
            if row.subject == device:
                return row
        row = DeviceRow(device, len(self.devices) + 1, self.physical_of(device))
        self.devices.append(row)
        return row

    def known(self, device):
        return next((d for d in self.devices if d.subject == device), None)

    def named(self, device):
        """The row that an unknown free counts on; a selector is its first device."""
        if device.index == ANY:
            for row in self.devices:
                if row.type == device.type:
                    return row
            device = Device(device.type, 0)
        return self.device(device)

    def thread(self):
        if self.operating not in self.threads:
            self.threads[self.operating] = Thread(len(self.threads) + 2)
            self.records.insert(0, self.threads[self.operating])
            self.threads[self.operating].stack = self.frames.get(self.operating, ())
        return self.threads[self.operating]

    def rows_of(self, block):
        return [row for row in (block.device, block.site, block.tag) if row]

    def count(self, device, change, allocs=0, frees=0, makes=True):
        """Counts a change of a device's live bytes on the thread that makes the call. Its first
        free on a device where it has not allocated counts for no thread: `makes` is false."""
        t = self.thread()
        if makes:
            t.cells.add(device)
        (t if device in t.cells else self.records[-1]).count(change, allocs, frees)
        t.live[device] = t.live.get(device, 0) + change
        t.live_blocks += allocs - frees
        for frame in t.frames:
            frame.note(device, t.live[device])

    def opened(self, block):
        for row in self.rows_of(block):
            row.add(block.bytes, 1)
        self.count(block.device, block.bytes, allocs=1)

    def closed(self, block, makes=False):
        for row in self.rows_of(block):
            row.take(block.bytes, 1 if row is not block.site else 0)
        if block.site:
            block.site.blocks -= 1
        self.count(block.device, -block.bytes, frees=1, makes=makes)
        if block.pending is not None:
            block.device.pending -= block.bytes
            if block.epoch != self.epoch:
                block.device.since_gc -= block.bytes
        self.charge(block, None, 0)

    def freed_at(self, site, device, bytes):
        row = self.site_row(site, device)
        if row:
            row.freed_here += bytes
            row.frees_here += 1

    def site_row(self, number, device):
        if number is None or not self.sites_on:
            return None
        return self.row(self.sites, self.site_of[number], device)

    def tag_row(self, tag, device):
        return self.row(self.tags, tag, device) if tag else None

    def refuse(self, result, device=None):
        if result in (E_INVALID, E_DEVICE):
            row = self.known(device) if device else None
            if row:
                row.count["refused"] += 1
            else:
                self.lost["refused"] += 1
        return result

    def unknown_free(self, device):
        self.named(device).count["unknown_frees"] += 1
        return E_UNKNOWN


class Storages:
    """Calls that begin, resize and end blocks."""

    def fault(self, device, storage, bytes=0):
        if storage in (0, (1 << 64) - 1) or bytes > BYTES_MAX:
            return E_INVALID
        if not 0 <= device.type < len(TYPES) or device.index < 0:
            return E_DEVICE
        return OK

    def stack_row(self, t, site, device):
        """The row of the stack of an alloc, if the ledger keeps stacks."""
        if not self.stack_depth:
            return None
        frames = t.stack[:self.stack_depth]
        for frame in frames:
            self.code_site(frame)
        for row in self.stacks:
            if (row.frames, row.site, row.device) == (frames, site, device):
                return row
        row = StackRow(frames, site, device, len(self.stacks) + 1)
        self.stacks.append(row)
        return row

    def stack_begin(self, block, had=None):
        row = block.stack
        if not row:
            return
        row.live += block.bytes
        row.blocks += 1
        row.peak = max(row.peak, row.live)
        if had is None:
            row.allocs += 1
        row.allocated += max(block.bytes - (had or 0), 0)

    def stack_end(self, block):
        if block.stack:
            block.stack.live -= block.bytes
            block.stack.blocks -= 1

    def replace(self, device, storage):
        """Ends the block that has a key already."""
        stale = self.blocks.pop((device.type, storage), None)
        if not stale:
            return
        self.thread().cells.add(self.device(device))
        self.stack_end(stale)
        self.closed(stale)
        self.event("free", stale.device, storage, stale.bytes, None, stale.tag, stale.stream)
        if stale.pending is None:
            stale.device.count["implicit_frees"] += 1
        self.drop_fences(stale)
        self.touched.append(stale.device)

    def open(self, device, storage, bytes, site):
        t = self.thread()
        row = self.device(device)
        block = Block(row, storage, bytes)
        block.site = self.site_row(site, row)
        block.stack = self.stack_row(t, block.site, row)
        block.tag = self.tag_row(t.tag(), row)
        block.scope = t.frames[-1].scope if t.frames else None
        block.born, block.stream = self.mark_now, t.stream
        self.replace(device, storage)
        self.blocks[device.type, storage] = block
        self.opened(block)
        self.stack_begin(block)
        if t.account and t.account.device is row:
            self.charge(block, t.account, bytes)
        self.event("alloc", row, storage, bytes, block.site, block.tag, block.stream, block.stack)
        self.touched.append(row)
        return block

    def op_alloc(self, device, storage, bytes, site):
        fault = self.fault(device, storage, bytes)
        if fault:
            return self.refuse(fault, device)
        self.open(device, storage, bytes, site)
        self.draw(device, bytes)
        return OK

    def op_track(self, device, storage, bytes, site):
        fault = self.fault(device, storage, bytes)
        if fault:
            return self.refuse(fault, device)
        block = self.blocks.get((device.type, storage))
        if block and block.pending is None:
            row = self.device(device)
            self.site_row(site, row)
            self.tag_row(self.thread().tag(), row)
            block.refs += 1
        else:
            self.open(device, storage, bytes, site)
        return OK

    def op_retain(self, device, storage, site):
        block = self.blocks.get((device.type, storage))
        if not block or block.pending is not None:
            return E_UNKNOWN
        block.refs += 1
        return OK

    def end(self, block, site):
        """Ends a live block, or lets it wait for its fences."""
        if block.uses:
            self.pend(block, site)
            self.freed_at(site, block.device, block.bytes)
            return
        del self.blocks[block.device.type, block.storage]
        self.stack_end(block)
        self.closed(block)
        self.thread().cells.add(block.device)
        here = self.site_row(site, block.device)
        self.freed_at(site, block.device, block.bytes)
        self.event("free", block.device, block.storage, block.bytes, here, block.tag, block.stream)
        self.touched.append(block.device)

    def close(self, device, storage, site, last_only):
        if not storage:
            return OK
        block = self.blocks.get((device.type, storage))
        if not block or block.pending is not None:
            return self.unknown_free(device)
        if block.refs > 1 and last_only:
            block.refs -= 1
            return OK
        if block.refs > 1:
            block.device.count["freed_while_shared"] += 1
        self.end(block, site)
        return OK

    def op_free(self, device, storage, site):
        return self.close(device, storage, site, False)

    def op_release(self, device, storage, site):
        return self.close(device, storage, site, True)

    def op_many(self, call, site, *words):
        blocks = [words[i:i + 3] for i in range(0, len(words), 3)]
        result = OK
        for device, storage, bytes in blocks:
            if call == "alloc":
                one = self.op_alloc(device, storage, bytes, site)
            elif call == "track":
                one = self.op_track(device, storage, bytes, site)
            else:
                one = self.close(device, storage, site, call == "release")
            result = one or result
            self.held_back.append(self.touched)
            self.touched = []
        self.touched = [device for devices in self.held_back for device in devices]
        self.held_back = []
        return result

    # -- resizing --

    def detach(self, device, storage, site):
        block = self.blocks.get((device.type, storage))
        if not block or block.pending is not None:
            return None
        del self.blocks[device.type, storage]
        self.event("free", block.device, storage, block.bytes, self.site_row(site, block.device),
                   block.tag, block.stream)
        return block

    def resize(self, block, storage, bytes, site):
        """Puts a detached block back under a new key, with other bytes."""
        had, old = block.bytes, block.site
        device = block.device
        self.stack_end(block)
        if site is not None and self.sites_on:
            block.site = self.site_row(site, device)
        block.stack = self.stack_row(self.thread(), block.site, device)
        self.replace(device.subject, storage)
        rows = [device, block.tag] + ([old] if old is block.site else [])
        for row in filter(None, rows):
            row.add(bytes - had) if bytes > had else row.take(had - bytes)
        self.count(device, bytes - had)
        if old is not block.site:
            if old:
                old.take(had)
            block.site.add(bytes)
            if old:
                old.blocks -= 1
            block.site.blocks += 1
        block.storage, block.bytes = storage, bytes
        block.parts = {k: p for k, p in block.parts.items() if p.offset + p.bytes <= bytes}
        self.charge(block, block.account, bytes)
        self.blocks[device.type, storage] = block
        self.stack_begin(block, had)
        self.event("alloc", device, storage, bytes, block.site, block.tag, block.stream,
                   block.stack)
        device.count["reallocs"] += 1
        self.touched.append(device)

    def restore(self, block):
        """Puts a detached block back as it was: the real call failed."""
        self.stack_end(block)
        self.replace(block.device.subject, block.storage)
        self.blocks[block.device.type, block.storage] = block
        self.stack_begin(block, block.bytes)
        self.event("alloc", block.device, block.storage, block.bytes, block.site, block.tag,
                   block.stream, block.stack)
        self.touched.append(block.device)

    def op_realloc(self, device, old, new, bytes, site):
        if not old:
            return self.op_alloc(device, new, bytes, site)
        fault = self.fault(device, new, bytes)
        if fault:
            return self.refuse(fault, device)
        self.device(device)
        block = self.detach(device, old, None)
        if block:
            self.resize(block, new, bytes, site)
            return OK
        self.unknown_free(device)
        return self.op_alloc(device, new, bytes, site)

    def op_realloc_begin(self, device, old, token):
        block = self.detach(device, old, None) if old else None
        self.tokens[token] = (device, block)
        return OK if block or not old else self.unknown_free(device)

    def op_realloc_end(self, token, new, bytes, site):
        device, block = self.tokens.pop(token, (None, None))
        if device is None:
            return E_STATE
        if block and new:
            self.resize(block, new, bytes, site)
        elif block:
            self.restore(block)
        elif new:
            return self.op_alloc(device, new, bytes, site)
        return OK

    def op_free_begin(self, device, storage, token, site):
        block = self.detach(device, storage, site)
        if not block:
            return self.unknown_free(device)
        self.tokens[token] = (device, block)
        return OK

    def op_free_end(self, token, failed, site):
        device, block = self.tokens.pop(token)
        if failed:
            self.restore(block)
            return OK
        self.stack_end(block)
        self.closed(block, makes=True)
        self.freed_at(site, block.device, block.bytes)
        if block.refs > 1:
            block.device.count["freed_while_shared"] += 1
        self.touched.append(block.device)
        return OK

    # -- moves, copies, arenas --

    def route(self, source, target):
        for route in self.routes:
            if (route.source, route.target) == (source, target):
                return route
        self.routes.insert(0, Route(source, target))
        return self.routes[0]

    def moved_rows(self, block, row, site):
        """The site and the tag that a block has on the device it moves to."""
        where = block.site
        if site is not None and self.sites_on:
            where = self.site_row(site, row)
        elif where and row is not block.device:
            where = self.row(self.sites, where.subject, row)
        tag = self.row(self.tags, block.tag.subject, row) if block.tag else None
        return where, tag

    def op_move(self, source, old, target, new, bytes, site, fence=None, queue=0):
        block = self.blocks.get((source.type, old))
        if not block or block.pending is not None:
            return self.unknown_free(source)
        row = self.device(target)
        onto_itself = (source.type, old) == (target.type, new)
        fenced = (fence is not None or block.uses) and not onto_itself
        moved = Block(row, new, bytes)
        moved.site, moved.tag = self.moved_rows(block, row, site)
        moved.refs, moved.scope, moved.born = block.refs, block.scope, block.born
        moved.stream, moved.meta = block.stream, block.meta
        if block.stack:
            moved.stack = self.stack_of(block.stack.frames, moved.site, row)
        moved.parts = {k: p for k, p in block.parts.items() if p.offset + p.bytes <= bytes}
        here = self.site_row(site, block.device)
        if not fenced:
            self.stack_end(block)
            del self.blocks[source.type, old]
            self.event("free", block.device, old, block.bytes, here, block.tag, block.stream)
            self.replace(target, new)
            account = block.account if row is block.device else self.account_used(row)
            self.closed(block, makes=True)
        else:
            account = block.account if row is block.device else self.account_used(row)
            self.replace(target, new)
        self.opened(moved)
        if account:
            self.charge(moved, account, bytes)
        self.blocks[target.type, new] = moved
        self.stack_begin(moved)
        if fenced:
            block.parts = {}
            self.pend(block, site, fence, queue)
        self.event("move", row, new, bytes, moved.site, moved.tag, moved.stream, moved.stack)
        self.touched += [row, block.device]
        route = self.route(block.device, row)
        row.count["moves"] += 1
        row.count["moved_bytes"] += bytes
        route.moves += 1
        route.moved_bytes += bytes
        self.draw(target, bytes)
        return OK

    def stack_of(self, frames, site, device):
        for row in self.stacks:
            if (row.frames, row.site, row.device) == (frames, site, device):
                return row
        row = StackRow(frames, site, device, len(self.stacks) + 1)
        self.stacks.append(row)
        return row

    def op_copy(self, source, target, bytes):
        source, target = self.device(source), self.device(target)
        route = self.route(source, target)
        route.copies += 1
        route.copied_bytes += bytes
        target.count["copies"] += 1
        target.count["copied_bytes"] += bytes
        return OK

    def op_arena_add(self, device, bytes, site):
        fault = self.fault(device, 1, bytes)
        if fault:
            return self.refuse(fault, device)
        row = self.device(device)
        self.arena(row, bytes, self.site_row(site, row))
        self.event("arena_add", row, 0, bytes)
        self.draw(device, bytes)
        return OK

    def op_arena_sub(self, device, bytes, site):
        fault = self.fault(device, 1, bytes)
        if fault:
            return self.refuse(fault, device)
        row = self.device(device)
        taken = min(bytes, row.arena)
        self.arena(row, -taken, self.site_row(site, row))
        if taken < bytes:
            row.count["underflows"] += 1
        if taken:
            self.event("arena_sub", row, 0, taken)
        return OK

    def arena(self, row, change, site):
        row.arena += change
        row.add(change) if change >= 0 else row.take(-change)
        self.count(row, change)
        if site and change >= 0:
            site.allocated += change
            site.freed += change
        elif site:
            site.freed_here -= change
        self.touched.append(row)

    # -- fences --

    def op_fence_set(self, number, state):
        self.fence_state[number] = state
        return OK

    def fence(self, number, queue):
        self.fence_order += 1
        return Fence(number, queue, self.fence_order)

    def pend(self, block, site, fence=None, queue=0):
        """Lets a block wait: it is dead to all calls, and still counted."""
        block.pending, block.uses = block.uses, []
        if fence is not None:
            block.pending.append(self.fence(fence, queue))
        block.epoch = self.epoch
        block.device.pending += block.bytes
        self.event("pend", block.device, block.storage, block.bytes,
                   self.site_row(site, block.device), block.tag, block.stream)

    def drop_fences(self, block):
        block.pending, block.uses = None, []

    def op_free_deferred(self, device, storage, site, fence, queue):
        if not storage:
            return OK
        block = self.blocks.get((device.type, storage))
        if not block or block.pending is not None:
            return self.unknown_free(device)
        if block.refs > 1:
            block.device.count["freed_while_shared"] += 1
        self.pend(block, site, fence, queue)
        self.freed_at(site, block.device, block.bytes)
        self.retire()
        return OK

    def op_block_use(self, device, storage, fence, queue):
        block = self.blocks.get((device.type, storage))
        if not block or block.pending is not None:
            return E_UNKNOWN
        block.uses = [f for f in block.uses if f.queue != queue] + [self.fence(fence, queue)]
        return OK

    def op_free_done(self, device, storage):
        block = self.blocks.get((device.type, storage))
        if not block or block.pending is None:
            return E_UNKNOWN
        self.credit(block)
        return OK

    def credit(self, block):
        del self.blocks[block.device.type, block.storage]
        self.stack_end(block)
        self.closed(block)
        self.event("free", block.device, block.storage, block.bytes, None, block.tag,
                   block.stream)

    def retire(self):
        """Credits the pending blocks whose fences are done."""
        credited = 0
        for block in [b for b in self.blocks.values() if b.pending is not None]:
            states = [self.fence_state.get(f.number, 0) for f in block.pending]
            if all(states):
                block.device.count["fence_failures"] += sum(s < 0 for s in states)
                credited += block.bytes
                self.credit(block)
        return credited

    def op_retire(self, selector):
        return self.retire()


class Descriptions:
    """Tags, marks, and what the host says of blocks."""

    def op_describe(self, device, storage, name, dtype, tag, flags, *shape):
        block = self.blocks.get((device.type, storage))
        if not block or block.pending is not None:
            return E_UNKNOWN
        block.meta = Meta(text(name), text(dtype), flags, shape)
        if tag:
            self.retag(block, text(tag))
        return OK

    def op_retag(self, device, storage, tag):
        block = self.blocks.get((device.type, storage))
        if not block or block.pending is not None:
            return E_UNKNOWN
        self.retag(block, text(tag))
        return OK

    def retag(self, block, tag):
        row = self.tag_row(tag, block.device)
        if row is block.tag:
            return
        if block.tag:
            block.tag.take(block.bytes, 1)
        if row:
            row.add(block.bytes, 1)
        block.tag = row

    def op_part_add(self, device, storage, offset, bytes, name, dtype, tag, flags, *shape):
        block = self.blocks.get((device.type, storage))
        if not block:
            return E_UNKNOWN
        if not bytes or offset + bytes > block.bytes:
            return E_INVALID
        if any(p.offset < offset + bytes and offset < p.offset + p.bytes
               for p in block.parts.values()):
            return E_STATE
        block.parts[offset] = Part(offset, bytes, Meta(text(name), text(dtype), flags, shape),
                                   text(tag) or None)
        return OK

    def op_part_remove(self, device, storage, offset):
        block = self.blocks.get((device.type, storage))
        return OK if block and block.parts.pop(offset, None) else E_UNKNOWN

    def op_mark(self):
        self.mark_now += 1
        return self.mark_now

    def op_tag_begin(self, tag):
        if not tag:
            return E_INVALID
        self.thread().tags.append(text(tag))
        return OK

    def op_tag_end(self):
        t = self.thread()
        if not t.tags:
            return E_STATE
        t.tags.pop()
        return OK

    def op_tag_default(self, tag):
        self.thread().default_tag = text(tag)
        return OK

    def op_stream(self, stream):
        t = self.thread()
        before, t.stream = t.stream, stream
        return before

    def op_expect(self, device, tag, bytes):
        self.row(self.tags, text(tag), self.device(device)).expected = bytes
        return OK

    def op_label(self, device, label):
        self.device(device).label = text(label)
        return OK

    def op_labels(self, labels):
        self.labels = text(labels)
        return OK


class Ledger(Books, Storages, Descriptions, Phases, Capacity, Reclaim, Lists):
    def __init__(self, script):
        self.script = script
        self.results = []  # of each operation, as play.c prints them
        self.devices, self.tags, self.sites, self.stacks = [], [], [], []
        self.blocks, self.routes, self.events = {}, [], []
        self.site_of = {}     # by the script's number
        self.code_sites, self.modules = {}, []  # by the address
        self.places = {}
        self.threads, self.records, self.frames = {}, [Record(1)], {}  # records: the newest first
        self.lost = dict.fromkeys(COUNTED, 0)  # what no device counts
        self.tokens = {}
        self.fence_state, self.fence_order, self.epoch = {}, 0, 0
        self.mark_now = 0
        self.touched, self.held_back = [], []
        self.now, self.process_names, self.stacks_cut = 0, {}, 0
        self.phases_begin()
        self.capacity_begin()
        self.reclaim_begin()

    def play(self):
        for thread, time, name, arguments in self.script.operations:
            self.operating, self.now = thread, time
            self.results.append(getattr(self, "op_" + name)(*arguments))
            self.ended()
        return self

    def ended(self):
        """What the end of a call does: it notes who holds a device that has grown."""
        touched, self.touched = self.touched, []
        for device in dict.fromkeys(touched):
            self.note_holders(device)
            self.check_bands(device)

    def op_create(self, flags, depth, stack_bytes, events, batch, labels, root):
        self.flags, self.stack_depth, self.stack_bytes = flags, depth, stack_bytes
        self.sites_on, self.events_on = bool(flags & SITES), bool(events)
        self.event_capacity, self.labels, self.started = events, text(labels), self.now
        return OK

    def op_site(self, number, file, function, line):
        found = [s for s in self.site_of.values()
                 if (s.file, s.function, s.line) == (text(file), text(function), max(line, 0))]
        self.site_of[number] = found[0] if found else Site(text(file), text(function), line)
        return OK

    def code_site(self, address):
        """The site of a return address: that of the call, which ends there."""
        if address in self.code_sites:
            return self.code_sites[address]
        if isinstance(address, Code):
            self.modules = [self.program]
            offset = self.program.main + address - 1
            file = b"%s+0x%x" % (self.program.path.split(b"/")[-1], offset)
            found = Site(file, b"main", 0, self.program.path, offset, self.program.build_id)
        else:
            found = Site(b"0x%x" % (address - 1), b"", 0, b"", address - 1, b"")
        self.code_sites[address] = found
        return found

    def op_site_at(self, number, address):
        self.thread()
        self.site_of[number] = self.code_site(address)
        return OK

    def op_stack(self, *frames):
        self.frames[self.operating] = frames
        if self.operating in self.threads:
            self.threads[self.operating].stack = frames
        return OK

    def op_sites_enable(self, on):
        self.sites_on = bool(on)
        return OK

    def op_reset(self):
        self.thread()
        for row in self.devices + self.tags + self.sites:
            row.reset()
        for stack in self.stacks:
            stack.peak, stack.allocated, stack.allocs = stack.live, 0, 0
        self.epoch += 1
        self.lost = dict.fromkeys(COUNTED, 0)
        for route in self.routes:
            route.moves = route.moved_bytes = route.copies = route.copied_bytes = 0
        self.phases_reset()
        for device in self.devices:
            self.restart_holders(device)
            device.oom = None
        return OK

    def op_peak_reset(self, selector):
        self.thread()
        for device in self.devices:
            if selector == ALL or (selector.type == device.type and
                                   selector.index in (ANY, device.index)):
                device.peak = device.live
                self.restart_holders(device)
        return OK

    def op_write(self, format, path):
        for physical in self.physicals():
            if self.on(physical):
                self.refresh(physical, 3)
        return OK

    def total(self):
        """The statistics of all devices together."""
        total = dict.fromkeys(STATS, 0)
        for device in self.devices:
            for name, value in device.stats().items():
                total[name] += value or 0
        for name, value in self.lost.items():
            total[name] += value
        pieces = [d.largest_free for d in self.devices if d.largest_free is not UNKNOWN]
        total["largest_free"] = max(pieces) if pieces else UNKNOWN
        physical = dict.fromkeys(d.physical for d in self.devices)
        for name in ("limit", "held"):  # of memory that several devices share, once
            total[name] = sum(getattr(p, name) for p in physical)
        return total
