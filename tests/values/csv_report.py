"""CSV: the live blocks, a line each, and their parts. Compares the lines as they stand there; the
order of the blocks is that of a map, and open."""
from notation import shown

NAMES = ("device storage bytes refs born pending tag scope name dtype shape flags file line "
         "function part_offset part_bytes stream").split()


def quoted(text):
    """A text as a field; one that a spreadsheet would take for a formula gets an apostrophe."""
    if not text:
        return ""
    words = shown(text).replace('"', '""')
    return f'"{chr(39) if words[0] in "=+-@" + chr(39) else ""}{words}"'


def line(block, bytes, refs, tag, meta, offset, part_bytes):
    site = block.site and block.site.subject
    shape = "[%s]" % ",".join(str(n) for n in meta.shape) if meta and meta.shape else ""
    fields = [block.device.name, f"0x{block.storage:x}", bytes, refs, block.born,
              int(block.pending is not None), quoted(tag),
              quoted(block.scope and block.scope.path), quoted(meta and meta.name),
              quoted(meta and meta.dtype), f'"{shape}"' if shape else "", meta.flags if meta else 0,
              quoted(site and site.file), site.line if site else 0, quoted(site and site.function),
              offset, part_bytes, f"0x{block.stream:x}" if block.stream else ""]
    return ",".join(str(f) for f in fields)


SUBJECTS = ("names", "blocks")


def expected(ledger):
    blocks = {}
    for block in ledger.blocks.values():
        blocks[block.device.name, f"0x{block.storage:x}"] = [
            line(block, block.bytes, block.refs, block.tag and block.tag.subject, block.meta, "", "")] + [
            line(block, 0, 0, part.tag, part.meta, part.offset, part.bytes)
            for _, part in sorted(block.parts.items())]
    return {"names": NAMES, "blocks": blocks}


def read(data):
    """Returns the names, and the lines of each block with its parts by device and storage."""
    *lines, end = data.decode().split("\r\n")
    if end:
        raise ValueError("the last line does not end")
    blocks, last = {}, None
    for words in lines[1:]:
        key = tuple(words.split(",", 2)[:2])
        if key != last and key in blocks:
            raise ValueError(f"{key} comes in two places")
        blocks.setdefault(key, []).append(words)
        last = key
    return {"names": lines[0].split(","), "blocks": blocks}


def compare(ledger, data, check):
    wanted, found = expected(ledger), read(data)
    for subject in SUBJECTS:
        check.same(subject, subject, wanted[subject], found[subject])
