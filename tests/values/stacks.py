"""What the formats for other tools share: the frames of a block, the live blocks in groups, and the
comments on anomalies. A frame is a function: (function, file, line, module, offset in it), text as bytes. Several may be at
one place."""
import collections

from phases import HOLDERS
from notation import bytes_text, process_text, shown

Group = collections.namedtuple("Group", "device tag frames scopes")  # of live blocks

UNKNOWN, ARENA, GONE, OTHERS = KINDS = tuple(
    (name, b"", 0, b"", 0)
    for name in (b"(unknown)", b"(arena)", b"(no longer live)", b"(others)"))


def site_frames(site):
    """The functions at a place, the innermost first; one without a name goes by its file."""
    if site is None:
        return (UNKNOWN,)
    where = site.module or b"", site.offset or 0
    return tuple((f.function or f.file or UNKNOWN[0], f.file, f.line, *where)
                 for f in site.functions or [site])


def stack_frames(ledger, row):
    """The functions of a stack, the innermost first."""
    return sum(stack_places(ledger, row.frames), ())


def stack_places(ledger, addresses):
    """The functions of each return address."""
    return [site_frames(ledger.code_site(address)) for address in addresses]


def scope_frame(scope):
    return scope.name, b"", 0, b"", 0


def scopes_of(scope):
    """The scope and those around it, the innermost first."""
    found = []
    while scope:
        found.append(scope)
        scope = scope.parent
    return found


def frames_of(ledger, block):
    """The frames of a block without its scopes, the innermost first: its stack, else its site."""
    if block.stack and block.stack.frames:
        return stack_frames(ledger, block.stack)
    return site_frames(block.site and block.site.subject)


def group_of(ledger, block):
    return Group(block.device, block.tag and block.tag.subject, frames_of(ledger, block),
                 tuple(scope_frame(s) for s in scopes_of(block.scope)))


def groups(ledger):
    """The live blocks and the arenas in groups of one device, tag and stack: [blocks, bytes that
    are in no part], and the bytes of parts by their name."""
    found, parts = collections.defaultdict(lambda: [0, 0]), collections.Counter()
    for block in ledger.blocks.values():
        key = group_of(ledger, block)
        found[key][0] += 1
        found[key][1] += block.bytes - sum(p.bytes for p in block.parts.values())
        for part in block.parts.values():
            parts[key, part.meta.name or b"(part)"] += part.bytes
    for device in ledger.devices:
        if ledger.arena_untagged(device):
            found[Group(device, None, (ARENA,), ())] = [0, ledger.arena_untagged(device)]
    for tag in ledger.tags:
        if tag.arena:
            found[Group(tag.device, tag.subject, (ARENA,), ())] = [0, tag.arena]
    return found, parts


def allocs(ledger):
    """[allocs, bytes] since the last reset by (device, frames, whether they are a stack): of each
    stack; of each site those that are in no stack, or all without stacks; and of each device those
    that are in neither. Where every alloc has its stack, a site has none left."""
    found = collections.defaultdict(lambda: [0, 0])

    def move(key, row, rest):
        found[key][0] += row[0]
        found[key][1] += row[1]
        rest[0] -= row[0]
        rest[1] -= row[1]
    rests = {d: [d.stats()["allocs"], d.stats()["total_allocated"]] for d in ledger.devices}
    in_stacks = collections.defaultdict(lambda: [0, 0])
    for row in ledger.stacks:
        move((row.device, stack_frames(ledger, row), True), (row.allocs, row.allocated),
             rests[row.device])
        in_stacks[row.site][0] += row.allocs
        in_stacks[row.site][1] += row.allocated
    for row in ledger.sites if ledger.stack_bytes != 1 else ():
        left = (row.allocs - in_stacks[row][0], row.allocated - in_stacks[row][1])
        move((row.device, site_frames(row.subject), False), left, rests[row.device])
    for device, rest in rests.items():
        move((device, (UNKNOWN,), False), [max(n, 0) for n in rest], rest)
    return {key: value for key, value in found.items() if any(value)}


def at_peak(ledger):
    """Bytes by (device, frames) at the peak of each device. Of the sites only the largest are known;
    every alloc has its stack, so that no stack is an estimate."""
    found = collections.Counter()
    for device in ledger.devices:
        holders = device.holders
        if not holders:
            continue
        parts = {site: bytes for site, bytes in holders.sites}
        rest = holders.bytes - holders.arena - sum(parts.values())
        for row in ledger.stacks:
            if row.device is not device or not row.held:
                continue
            site = row.site and row.site.subject
            found[device, stack_frames(ledger, row) or site_frames(site)] += row.held
            if site in parts:
                parts[site] -= row.held
            else:
                rest -= row.held
        for site, bytes in parts.items():
            found[device, site_frames(site)] += bytes
        found[device, (UNKNOWN if len(parts) < HOLDERS else OTHERS,)] += rest
        found[device, (ARENA,)] += holders.arena
    return {key: bytes for key, bytes in found.items() if bytes}


def comments(ledger):
    """The process; the lines for all, and for each device that has any; then whether numbers are estimates."""
    lines = [process_text(ledger)]
    for device in [None, *ledger.devices]:
        found = ledger.anomalies(device)
        words = ", ".join(f"{name} {bytes_text(n) if name == 'dropped_bytes' else n}"
                          for name, n in found.items())
        if found:
            lines.append(f"anomalies and drops, {device.name if device else 'all'} {words}")
    if ledger.stack_bytes > 1:
        lines.append(f"estimates: a sample each {bytes_text(ledger.stack_bytes)}")
    return lines


def text_frame(frame):
    """(function, file, line) as reports show them."""
    return shown(frame[0]), shown(frame[1]), frame[2]
