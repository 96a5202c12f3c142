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
    ledger.mistakes    Mistake of each kind and site, the first one first
    ledger.total()     the statistics of all devices, and device.stats() those of one

Text is bytes, as the host gave it: notation.shown() says how reports show it.
"""

import inspect

from books import COUNTED, STATS, UNKNOWN, Between, Books, Record
from capacity import Capacity
from descriptions import Descriptions
from fences import Fences
from lists import Lists
from phases import Phases
from reclaim import Reclaim
from script import ALL, OK, SITES, Code, text
from storages import Storages


CALL = b"play+0x"  # the site of a call in the player, without its offset


class Site:
    """A place: two records with one file, function and line are one."""

    def __init__(self, file, function, line, module=None, offset=None, build_id=None):
        self.file, self.function, self.line = file, function, max(line, 0)
        self.module, self.offset, self.build_id = module, offset, build_id  # of a return address
        self.functions, self.library = None, 0  # of each that is inlined there, the innermost first

    def name(self, functions):
        """Gives a return address its functions. The first that is no library's stands for it."""
        self.functions = functions
        of = next((f for f in functions if not f.library), functions[-1])
        self.function, self.file, self.line, self.library = of.function, of.file, of.line, of.library


class Function(Site):
    def __init__(self, function, file, line, library):
        super().__init__(file, function, line)
        self.library = library


class Program:
    """The program that plays: its file, its build id, where its main is in it, and its code: the
    first address, the address behind the last, and the offset in the file."""

    def __init__(self, path, build_id, main, segment):
        self.path, self.build_id, self.main, self.segment = path, build_id, main, segment


class Ledger(Books, Storages, Fences, Descriptions, Phases, Capacity, Reclaim, Lists):
    def __init__(self, script):
        self.script = script
        self.results = []  # of each operation, as play.c prints them
        self.devices, self.tags, self.sites, self.stacks = [], [], [], []
        self.blocks, self.routes = {}, []
        self.site_of = {}     # by the script's number
        self.code_sites, self.modules = {}, []  # by the address
        self.places = {}
        self.threads, self.records, self.frames = {}, [Record(1)], {}  # records: the newest first
        self.lost = dict.fromkeys(COUNTED, 0)  # what no device counts
        self.tokens = {}
        self.mistakes, self.mistakes_more, self.calls = [], 0, {}
        self.epoch = 0
        self.memory, self.dropped = True, set()  # whether the allocator gives any; keys
        self.mark_now = 0
        self.touched, self.held_back = [], []
        self.now, self.process_names, self.stacks_cut = 0, {}, 0
        self.fences_begin()
        self.phases_begin()
        self.capacity_begin()
        self.reclaim_begin()

    def play(self):
        for thread, time, name, arguments in self.script.operations:
            self.operating, self.now = thread, time
            operation = getattr(self, "op_" + name)
            self.given = self.site_given(operation, arguments)
            self.results.append(operation(*arguments))
            self.ended()
        return self

    def misplaced_end(self, call):
        """A mistake at the call: a return address in the player, of which only the module is known."""
        self.given = self.calls.setdefault(call, Site(CALL, b"", 0))
        self.mistake("misplaced_end", ALL)

    def site_given(self, operation, arguments):
        """The site that is an argument of a call; None: it has none."""
        number = inspect.signature(operation).bind(*arguments).arguments.get("site")
        return None if number is None else self.site_of[number]

    def ended(self):
        """What the end of a call does: it notes who holds a device that has grown."""
        touched, self.touched = self.touched, []
        for device in dict.fromkeys(touched):
            self.note_holders(device)
            self.check_bands(device)

    def op_create(self, flags, depth, stack_bytes, events, batch, labels, root):
        self.flags, self.batch, self.stack_depth = flags, batch, depth
        self.stack_bytes = stack_bytes if depth else 0
        self.sites_on, self.events_on = bool(flags & SITES), bool(events)
        self.event_capacity, self.labels, self.started = events, text(labels), self.now
        return OK

    def op_site(self, number, file, function, line):
        found = [s for s in self.site_of.values()
                 if (s.file, s.function, s.line) == (text(file), text(function), max(line, 0))]
        self.site_of[number] = found[0] if found else Site(text(file), text(function), line)
        return OK

    def code_site(self, address):
        """The site of a return address: that of the call, which ends there. The outermost frame of a
        stack that is cut has a text in place of the address."""
        if address in self.code_sites:
            return self.code_sites[address]
        if isinstance(address, Code):
            self.modules = [self.program]
            offset = self.program.main + address - 1
            file = b"%s+0x%x" % (self.program.path.split(b"/")[-1], offset)
            found = Site(file, b"main", 0, self.program.path, offset, self.program.build_id)
        elif isinstance(address, bytes):
            found = Site(b"", address, 0, b"", 0, b"")
        else:
            found = Site(b"0x%x" % (address - 1), b"", 0, b"", address - 1, b"")
        self.code_sites[address] = found
        return found

    def op_site_at(self, number, address):
        self.thread()
        self.site_of[number] = self.code_site(address)
        return OK

    def op_functions(self, address, *words):
        self.thread()
        self.code_site(address).name([Function(text(words[i]) or b"", text(words[i + 1]) or b"", *words[i + 2:i + 4])
                                      for i in range(0, len(words), 4)])
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
            stack.temporaries = 0
        self.epoch += 1
        self.mistakes, self.mistakes_more = [], 0
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
            if self.selects(selector, device):
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
        total["largest_free"] = max(pieces) if pieces else UNKNOWN if self.devices else 0
        physical = dict.fromkeys(d.physical for d in self.devices)
        for name in ("limit", "held"):  # of memory that several devices share, once
            total[name] = sum(getattr(p, name) for p in physical)
        return total
