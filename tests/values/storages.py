"""The model of blocks: the calls that begin, resize, move and end them, and arenas."""

from collections import namedtuple

from books import StackRow
from script import E_DEVICE, E_INVALID, E_NOMEM, E_STATE, E_UNKNOWN, OK, TYPES

BYTES_MAX = 1 << 48
MOST_DEVICES = 128  # MEMLORD_MAX_DEVICES


Taken = namedtuple("Taken", "site tag")  # what arena bytes without a block have
Said = namedtuple("Said", "tag account stream")  # what an alloc is recorded with


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


class Route:
    def __init__(self, source, target):
        self.source, self.target = source, target
        self.moves = self.moved_bytes = self.copies = self.copied_bytes = 0


class Storages:
    """Calls that begin, resize and end blocks."""

    def fault(self, device, storage, bytes=0):
        if storage in (0, (1 << 64) - 1) or bytes > BYTES_MAX:
            return E_INVALID
        if not 0 <= device.type < len(TYPES) or device.index < 0:
            return E_DEVICE
        return OK

    def stack_row(self, t, site, device, bytes):
        """The row of the stack of an alloc, if the ledger keeps stacks."""
        if not self.stack_depth or (self.stack_bytes > 1 and not bytes):
            return None  # a sample has no block without bytes, and each that is large
        frames = t.stack[:self.stack_depth]
        if not frames:  # then the stack is the address of the site, which must have one
            self.stacks_cut += 1
            frames = (next(a for a, s in self.code_sites.items() if s is site.subject),
                      b"[cut: not unwound]")
        elif len(t.stack) > self.stack_depth:
            frames += (b"[cut: deeper]",)
        for frame in frames:
            self.code_site(frame)
        return self.stack_of(frames, site, device)

    def stack_of(self, frames, site, device):
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
        self.thread().taken = block
        row.live += block.bytes
        row.blocks += 1
        row.peak = max(row.peak, row.live)
        if had is None:
            row.allocs += 1
        row.allocated += max(block.bytes - (had or 0), 0)

    def stack_end(self, block, freed=False):
        if freed and block.stack and self.thread().taken is block:
            self.thread().taken = None
            block.stack.temporaries += 1
        if block.stack:
            block.stack.live -= block.bytes
            block.stack.blocks -= 1

    def replace(self, device, storage):
        """Ends the block that has a key already."""
        stale = self.blocks.pop((device.type, storage), None)
        if not stale:
            return
        self.thread().cells.add(self.device(device))
        self.stack_end(stale, True)
        self.closed(stale)
        self.event("free", stale.device, storage, stale.bytes, None, stale.tag, stale.stream)
        if stale.pending is None:
            stale.device.count["implicit_frees"] += 1
            self.mistake("implicit_free", stale.device.subject, storage, stale.bytes, stale)
        self.drop_fences(stale)
        self.touched.append(stale.device)

    def open(self, device, storage, bytes, site, said=None):
        t = self.thread()
        said = said or Said(t.tag(), t.account, t.stream)
        row = self.device(device)
        block = Block(row, storage, bytes)
        block.site = self.site_row(site, row)
        block.stack = self.stack_row(t, block.site, row, bytes)
        block.tag = self.tag_row(said.tag, row)
        block.scope = t.frames[-1].scope if t.frames else None
        block.born, block.stream = self.mark_now, said.stream
        self.replace(device, storage)
        self.blocks[device.type, storage] = block
        self.opened(block)
        self.stack_begin(block)
        if said.account and said.account.device is row:
            self.charge(block, said.account, bytes)
        self.event("alloc", row, storage, bytes, block.site, block.tag, block.stream, block.stack)
        self.touched.append(row)
        return block

    def op_alloc(self, device, storage, bytes, site):
        fault = self.fault(device, storage, bytes)
        if fault:
            return self.refuse(fault, device)
        if self.no_room():
            return self.drop(self.device(device).count, device, storage, bytes, E_NOMEM)
        if not self.known(device) and len(self.devices) == MOST_DEVICES:
            self.lost["refused"] += 1
            self.mistake("refused", device)
            return self.drop(self.lost, device, storage, bytes, E_DEVICE)
        self.open(device, storage, bytes, site)
        self.draw(device, bytes)
        return OK

    def drop(self, count, device, storage, bytes, result):
        count["dropped_allocs"] += 1
        count["dropped_bytes"] += bytes
        self.dropped.add((device.type, storage))
        self.mistake("dropped", device, storage, bytes)
        return result

    def op_memory(self, on):
        self.memory = bool(on)
        return OK

    def no_room(self):
        """Whether the call had no memory. When a ledger that gets no more uses up what it has is
        not for a model to know: the call itself says so."""
        return not self.memory and self.said[len(self.results)] == E_NOMEM

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
        self.stack_end(block, True)
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
        if (device.type, storage) in self.dropped:
            self.dropped.remove((device.type, storage))
            return OK
        if not block or block.pending is not None:
            return self.unknown_free(device, storage)
        if block.refs > 1 and last_only:
            block.refs -= 1
            return OK
        if block.refs > 1:
            self.shared_free(block)
        self.end(block, site)
        return OK

    def shared_free(self, block):
        block.device.count["freed_while_shared"] += 1
        self.mistake("freed_while_shared", block.device.subject, block.storage, block.bytes, block)

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
        block.stack = self.stack_row(self.thread(), block.site, device, bytes)
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
        self.unknown_free(device, old)
        return self.op_alloc(device, new, bytes, site)

    def op_realloc_begin(self, device, old, token):
        block = self.detach(device, old, None) if old else None
        self.tokens[token] = (device, block)
        return OK if block or not old else self.unknown_free(device, old)

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
            return self.unknown_free(device, storage)
        self.tokens[token] = (device, block)
        return OK

    def op_free_end(self, token, failed, site):
        device, block = self.tokens.pop(token)
        if failed:
            self.restore(block)
            return OK
        self.stack_end(block, True)
        self.closed(block, makes=True)
        self.freed_at(site, block.device, block.bytes)
        if block.refs > 1:
            self.shared_free(block)
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

    def moved(self, block, row, storage, bytes, site):
        """The block that a block becomes on the device it moves to."""
        moved = Block(row, storage, bytes)
        moved.site, moved.tag = self.moved_rows(block, row, site)
        moved.refs, moved.scope, moved.born = block.refs, block.scope, block.born
        moved.stream, moved.meta = block.stream, block.meta
        if block.stack:
            moved.stack = self.stack_of(block.stack.frames, moved.site, row)
        moved.parts = {k: p for k, p in block.parts.items() if p.offset + p.bytes <= bytes}
        return moved

    def op_move(self, source, old, target, new, bytes, site, fence=None, queue=0):
        block = self.blocks.get((source.type, old))
        if not block or block.pending is not None:
            return self.unknown_free(source, old)
        row = self.device(target)
        onto_itself = (source.type, old) == (target.type, new)
        waits = (fence is not None or block.uses) and not onto_itself
        moved = self.moved(block, row, new, bytes, site)
        here = self.site_row(site, block.device)
        account = block.account if row is block.device else self.account_used(row)
        if not waits:
            self.stack_end(block)
            del self.blocks[source.type, old]
            self.event("free", block.device, old, block.bytes, here, block.tag, block.stream)
        self.replace(target, new)
        if not waits:
            self.closed(block, makes=True)
        self.opened(moved)
        if account:
            self.charge(moved, account, bytes)
        self.blocks[target.type, new] = moved
        self.stack_begin(moved)
        if waits:
            block.parts = {}
            self.pend(block, site, fence, queue)
        self.event("move", row, new, bytes, moved.site, moved.tag, moved.stream, moved.stack)
        self.count_move(block.device, row, bytes)
        self.draw(target, bytes)
        return OK

    def count_move(self, source, target, bytes):
        self.touched += [target, source]
        route = self.route(source, target)
        for counts in (target.count, vars(route)):
            counts["moves"] += 1
            counts["moved_bytes"] += bytes

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
        tag = self.tag_row(self.thread().tag(), row)
        self.arena(row, bytes, self.site_row(site, row), tag)
        self.event("arena_add", row, 0, bytes, tag=tag)
        self.draw(device, bytes)
        return OK

    def op_arena_sub(self, device, bytes, site):
        fault = self.fault(device, 1, bytes)
        if fault:
            return self.refuse(fault, device)
        row = self.device(device)
        taken = min(bytes, row.arena)
        tag = self.tag_row(self.thread().tag(), row)
        self.arena(row, -taken, self.site_row(site, row), tag)
        if taken < bytes:
            row.count["underflows"] += 1
            self.mistake("underflow", device, 0, bytes - taken)
        if taken:
            self.event("arena_sub", row, 0, taken, tag=tag)
        return OK

    def arena(self, row, change, site, tag):
        row.arena += change
        row.add(change) if change >= 0 else row.take(-change)
        self.count(row, change)
        if tag and change >= 0:
            tag.arena += change
            tag.add(change)
        elif tag:
            part = min(tag.arena, -change)
            tag.arena -= part
            tag.take(part)
        while self.arena_untagged(row) < 0:
            largest = max((r for r in self.tags if r.device is row), key=lambda r: r.arena)
            excess = min(largest.arena, -self.arena_untagged(row))
            largest.arena -= excess
            largest.take(excess)
            row.count["underflows"] += 1
            self.mistake("underflow", row.subject, 0, excess, Taken(None, largest))
        if site and change >= 0:
            site.allocated += change
            site.freed += change
        elif site:
            site.freed_here -= change
        self.touched.append(row)
