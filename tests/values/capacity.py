"""The model of physical devices: capacities, limits, tickets and accounts."""

from script import (E_INVALID, E_LIMIT, E_UNKNOWN, E_UNSUPPORTED, HOST_TYPES, NONE, OK, TYPES,
                    Device, text)
from storages import Said

POLL_NS = 200_000_000
ACCOUNT_NAME = 47  # bytes of a name that are kept


class Sample:
    def __init__(self, total, used, process, context, others):
        self.total, self.used, self.process, self.context = total, used, process, context
        self.others = others  # (pid, bytes)


class Mark:
    """A device as it was when its physical device was sampled."""

    def __init__(self, live, held, allocated):
        self.live, self.held, self.allocated = live, held, allocated


class Physical:
    """Memory that one device, or several, are in."""

    def __init__(self, device):
        self.device, self.limit, self.fraction = device, 0, 0
        self.tickets = []
        self.sample, self.sampled, self.tried = None, None, None
        self.marks = {}

    @property
    def held(self):
        return sum(ticket.left for ticket in self.tickets)


class Ticket:
    def __init__(self, physical, owner, bytes):
        self.physical, self.owner, self.left, self.open = physical, owner, bytes, True


class Account:
    def __init__(self, name, device, limit):
        self.name, self.device, self.limit = name, device, limit
        self.bytes = self.peak = self.refused = 0
        self.open = True


class Capacity:
    def capacity_begin(self):
        self.host = Physical(Device(0, 0))
        self.own_physical = {}
        self.sources = {}       # by device: what the script says of it
        self.with_source = set()  # types
        self.tickets_of, self.accounts_of = {}, {}
        self.accounts = []

    # -- physical devices --

    def physical_of(self, device):
        if TYPES[device.type] in HOST_TYPES:
            return self.host
        return self.own_physical.setdefault(device, Physical(device))

    def physical(self, device):
        """The physical device of a device, which becomes known; the host's is always known."""
        if TYPES[device.type] in HOST_TYPES:
            return self.host
        return self.device(device).physical

    def on(self, physical):
        """The devices that count on a physical device; mapped files are page cache."""
        return [d for d in self.devices if d.physical is physical and TYPES[d.type] != "mapped"]

    def live_on(self, physical):
        return sum(d.live for d in self.devices if d.physical is physical)

    def physicals(self):
        """All of them, the host's first, then by device."""
        found = [self.host] + [self.own_physical[d.subject] for d in self.devices
                               if d.subject in self.own_physical]
        return [p for p in found if p is self.host or any(d.physical is p for d in self.devices)]

    def held_now(self, device):
        return max(device.live, device.reserved)

    def held_since(self, device, mark):
        """What a device holds for the purpose of capacity: the cpu's frees take nothing off."""
        held = self.held_now(device)
        if TYPES[device.type] != "cpu":
            return held
        if held > device.live:
            return max(held, mark.held)
        grown = mark.held + device.ever - mark.allocated
        return max(min(grown, device.sampled_peak), device.live, mark.held)

    def used(self, physical, by_bands=False):
        """The bytes in use now: those of the sample, and what the ledger recorded since."""
        used, shrunk, held = physical.sample.used if physical.sample else 0, 0, 0
        for device in self.on(physical):
            mark = physical.marks.get(device, Mark(0, 0, 0))
            now = self.held_since(device, mark)
            held += self.held_now(device)
            used += max(now - mark.held, 0)
            shrunk += max(mark.held - now, 0)
        used -= min(shrunk, used)
        return used if by_bands and physical is self.host else max(used, held)

    def op_share(self, device, physical):
        row = self.device(device)
        row.physical = self.physical_of(physical)
        return OK

    def op_capacity(self, device, total, used, process, context, *others):
        self.sources[device] = Sample(total, used, process, context,
                                      list(zip(others[::2], others[1::2])))
        return OK

    def op_source(self, type):
        self.with_source.add(type)
        return OK

    def take_sample(self, physical):
        if physical.device.type not in self.with_source:
            return E_UNSUPPORTED
        sample = self.sources.get(physical.device)
        known = sample and sample.total and sample.used <= sample.total
        physical.tried = self.now
        physical.sample = sample if known else None
        physical.sampled = self.now
        if not known:
            return E_UNKNOWN
        for device in self.devices:
            if device.physical is physical:
                physical.marks[device] = Mark(device.live, self.held_now(device),
                                              device.ever)
                device.sampled_peak = device.live
        self.apply_fraction(physical)
        return OK

    def refresh(self, physical, intervals):
        """Takes a sample if the last one is as old as so many poll intervals; one that failed is
        tried again after one."""
        if physical.device.type not in self.with_source:
            return
        age = POLL_NS * (intervals if physical.sample else 1)
        if physical.tried is None or self.now - physical.tried >= age:
            self.take_sample(physical)

    def op_sample(self, device):
        if device.type not in self.with_source:
            return E_UNSUPPORTED
        return self.take_sample(self.physical(device))

    # -- limits and tickets --

    def op_limit(self, device, bytes):
        physical = self.physical(device)
        physical.limit, physical.fraction = bytes, 0
        return OK

    def op_limit_fraction(self, device, fraction):
        physical = self.physical(device)
        if not physical.sample and self.take_sample(physical):
            return E_UNKNOWN
        physical.fraction = fraction
        self.apply_fraction(physical)
        return OK

    def apply_fraction(self, physical):
        if physical.fraction and physical.sample:
            physical.limit = int(physical.sample.total * physical.fraction)

    def fits(self, physical, bytes):
        return not physical.limit or \
            self.live_on(physical) + physical.held + bytes <= physical.limit

    def op_reserve(self, device, bytes, number):
        physical, t = self.physical(device), self.thread()
        self.tickets_of[number] = None
        if not self.fits(physical, bytes):
            return E_LIMIT
        ticket = Ticket(physical, t, bytes)
        physical.tickets.append(ticket)
        t.tickets.append(ticket)
        self.tickets_of[number] = ticket
        return OK

    def op_commit(self, number):
        ticket = self.tickets_of.get(number)
        if not ticket or not ticket.open:
            return E_UNKNOWN
        ticket.open, ticket.left = False, 0
        ticket.physical.tickets.remove(ticket)
        return OK

    def op_adopt_ticket(self, number):
        ticket, t = self.tickets_of[number], self.thread()
        if not ticket.open:
            return E_UNKNOWN
        if ticket.owner is not t:
            ticket.owner.tickets.remove(ticket)
            t.tickets.append(ticket)
            ticket.owner = t
        return OK

    def draw(self, device, bytes, named=None):
        """Takes the bytes of an alloc off a ticket, or off those of its thread."""
        physical = self.device(device).physical
        for ticket in [named] if named else self.thread().tickets:
            if ticket.open and ticket.physical is physical:
                part = min(ticket.left, bytes)
                ticket.left -= part
                bytes -= part

    def op_alloc_with(self, device, storage, bytes, site, tag, ticket, account, stream):
        """What is None is the thread's; an account or a stream of NONE is none."""
        t, known = self.thread(), self.known(device)
        named, charged = self.tickets_of.get(ticket), self.accounts_of.get(account)
        host = TYPES[device.type] in HOST_TYPES
        physical = self.host if host else known and known.physical
        if named and not (named.open and named.physical is physical):
            named = None
        if charged and not (charged.open and charged.device is known):
            charged = None
        stale = ticket is not None and not named or account not in (None, NONE) and not charged
        tag = t.tag() if tag is None else text(tag) or None
        charged = None if account == NONE else charged or t.account
        stream = t.stream if stream is None else 0 if stream == NONE else stream
        fault = self.fault(device, storage, bytes)
        if fault:
            return self.refuse(fault, device)
        self.open(device, storage, bytes, site, Said(tag, charged, stream))
        self.draw(device, bytes, named)
        if stale:
            self.refuse(E_INVALID, device)
        return OK

    # -- accounts --

    def op_account_open(self, device, name, limit, number):
        account = Account((text(name) or b"")[:ACCOUNT_NAME], self.device(device), limit)
        self.accounts.append(account)
        self.accounts_of[number] = account
        return OK

    def op_account_charge(self, number, bytes):
        account = self.accounts_of[number]
        if not account.open:
            return E_UNKNOWN
        if account.bytes + bytes < 0:
            return E_INVALID
        if bytes > 0 and account.limit and account.bytes + bytes > account.limit:
            account.refused += 1
            return E_LIMIT
        account.bytes += bytes
        account.peak = max(account.peak, account.bytes)
        return OK

    def op_account_use(self, number):
        account = None if number is None else self.accounts_of[number]
        if account and not account.open:
            return E_UNKNOWN
        self.thread().account = account
        return OK

    def op_account_close(self, number):
        account = self.accounts_of[number]
        if not account.open:
            return E_UNKNOWN
        account.open = False
        self.accounts.remove(account)
        return OK

    def account_used(self, device):
        account = self.thread().account
        return account if account and account.open and account.device is device else None

    def charge(self, block, account, bytes):
        """Charges the bytes of a block to an account, whatever its limit; 0 credits them."""
        had = block.charged if block.account is account else 0
        if block.account and block.account is not account:
            block.account.bytes -= block.charged
        if account:
            over = account.limit and account.bytes + bytes - had > account.limit
            account.refused += bool(bytes > had and over)
            account.bytes += bytes - had
            account.peak = max(account.peak, account.bytes)
        block.account, block.charged = account, bytes
