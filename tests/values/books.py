"""What a ledger counts of devices, tags, sites, stacks and threads."""

from script import ALL, ANY, E_DEVICE, E_INVALID, E_UNKNOWN, EXACT, Device

UNKNOWN = None  # a number that is not known
MOST_MISTAKES = 64

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


class Between:
    """A whole number of which only the range is known: a peak that several threads publish late, by
    how much such a peak may be low, the peak of a scope that threads share, and the live bytes at
    the time when the holders of a peak were noted."""

    def __init__(self, least, most):
        self.least, self.most = least, most

    def __add__(self, other):
        if isinstance(other, Between):
            return Between(self.least + other.least, self.most + other.most)
        return Between(self.least + other, self.most + other)

    __radd__ = __add__

    def __repr__(self):
        return "%d to %d" % (self.least, self.most)


class Row:
    """What is counted of a device, of a tag on a device, or of a site on a device."""

    def __init__(self, subject, device, number):
        self.subject, self.device, self.number = subject, device, number
        self.live = self.peak = self.blocks = 0
        self.allocated = self.freed = self.allocs = self.frees = 0  # since the last reset
        self.freed_here = self.frees_here = 0  # by frees at this site, of any site's blocks
        self.expected = 0  # of a tag
        self.arena = 0     # of a device, or of a tag
        self.holders = None
        self.late = 0          # bytes that its peak may be low by
        self.threads = set()   # that counted on it
        self.slack = 4096      # what they may hold back together, by its highest peak ever

    def late_peak(self):
        """The peak as a report has it."""
        return Between(self.peak - self.late, self.peak) if self.late else self.peak

    def peak_error(self):
        return Between(0, self.late) if self.late else 0

    def add(self, bytes, allocs=0):
        self.live += bytes
        self.allocated += bytes
        self.allocs += allocs
        self.blocks += allocs
        self.peak = max(self.peak, self.live)
        self.slack = max(self.slack, self.peak // 64)

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
        self.pending = self.reserved = self.reserved_peak = 0
        self.largest_free = UNKNOWN
        self.since_gc = 0  # bytes credited since the last collection or reset
        self.count = dict.fromkeys(COUNTED, 0)
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
        s.update(allocated=self.live, pending=self.pending, freed=self.since_gc,
                 peak=self.late_peak(), peak_error=self.peak_error(), live_blocks=self.blocks,
                 allocs=self.allocs, frees=self.frees,
                 total_allocated=self.allocated, total_freed=self.freed, reserved=self.reserved,
                 reserved_peak=self.reserved_peak, cached=max(self.reserved - self.live, 0),
                 largest_free=self.largest_free, limit=self.physical.limit,
                 held=self.physical.held, neighbours=0)
        return {name: s[name] for name in STATS}


class Mistake:
    """Mistakes of one kind at one site; its device, storage, born and tag are those of the first."""

    def __init__(self, kind, site, device, storage, block):
        self.kind, self.site, self.device, self.storage = kind, site, device, storage
        self.count = self.bytes = 0
        self.first = self.last = None
        self.born = block.site.subject if block and block.site else None
        self.tag = block.tag.subject if block and block.tag else None


class StackRow:
    """A stack at one site on one device. Every alloc is taken."""

    def __init__(self, frames, site, device, number):
        self.frames, self.site, self.device, self.number = frames, site, device, number
        self.live = self.peak = self.blocks = 0
        self.held = 0  # live when the holders of the device were noted last
        self.allocated = self.allocs = self.temporaries = 0


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
        self.taken = None  # its last block with a stack, while that lives
        self.account, self.tickets = None, []

    def tag(self):
        return self.tags[-1] if self.tags else self.default_tag


class Books:
    """Rows and what changes them."""

    def row(self, rows, subject, device):
        for row in rows:
            if row.device is device and row.subject == subject:
                return row
        row = Row(subject, device, len(rows) + 1)
        rows.append(row)
        return row

    def arena_untagged(self, device):
        """The part of a device's arena that no tag has."""
        return device.arena - sum(row.arena for row in self.tags if row.device is device)

    def device(self, device):
        """The row of a device, made when it is first named."""
        for row in self.devices:
            if row.subject == device:
                return row
        row = DeviceRow(device, len(self.devices) + 1, self.physical_of(device))
        self.devices.append(row)
        return row

    def selects(self, selector, device):
        return selector.type == ANY or (selector.type == device.type and
                                        selector.index in (ANY, device.index))

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
            if frame.joint:
                frame.joint.count(device, change)

    def counts_late(self, row):
        """Notes that this thread counts on a row. The k-th thread may hold back a k-th of the slack,
        and the first as much as the second; in the row of a site it may hold back a batch."""
        row.threads.add(self.operating)
        if len(row.threads) > 1 and not self.flags & EXACT:
            shares = [min(row.slack // k, self.batch) for k in range(2, len(row.threads) + 1)]
            row.late = sum(shares) + (self.batch if row in self.sites else shares[0])

    def opened(self, block):
        for row in self.rows_of(block):
            self.counts_late(row)
            row.add(block.bytes, 1)
        self.count(block.device, block.bytes, allocs=1)

    def closed(self, block, makes=False):
        for row in self.rows_of(block):
            self.counts_late(row)
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
            self.mistake("refused", device or ALL)
        return result

    def unknown_free(self, device, storage):
        self.named(device).count["unknown_frees"] += 1
        self.mistake("unknown_free", device, storage)
        return E_UNKNOWN

    def mistake(self, kind, device, storage=0, bytes=0, block=None, given=True):
        site = self.given if given else None
        found = next((m for m in self.mistakes if (m.kind, m.site) == (kind, site)), None)
        if not found and len(self.mistakes) == MOST_MISTAKES:
            self.mistakes_more += 1
            return
        if not found:
            found = Mistake(kind, site, device, storage, block)
            found.first = self.now - self.started
            self.mistakes.append(found)
        found.count += 1
        found.bytes += bytes
        found.last = self.now - self.started
