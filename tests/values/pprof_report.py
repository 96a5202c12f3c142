"""PPROF: reads profile.proto, message by message. A field that the writer has no reason to write, a
wire type that is not the field's and a field that comes twice raise ValueError."""
import collections

from notation import WALL_AT_0, shown
from stacks import (KINDS, allocs, at_peak, comments, groups, scope_frame, site_frames, stack_places,
                    text_frame)

SUBJECTS = ("sample types", "period", "default sample type", "comments", "frames", "modules",
            "time_nanos", "samples")
PROFILE = {  # number: name, kind; a list has one kind for each of its entries
    1: ("sample_type", [{1: ("type", "int"), 2: ("unit", "int")}]),
    2: ("sample", [{
        1: ("location_id", "packed"),
        2: ("value", "packed"),
        3: ("label", [{1: ("key", "int"), 2: ("str", "int")}])}]),
    3: ("mapping", [{
        1: ("id", "int"), 2: ("memory_start", "int"), 3: ("memory_limit", "int"),
        4: ("file_offset", "int"), 5: ("filename", "int"), 6: ("build_id", "int")}]),
    4: ("location", [{
        1: ("id", "int"), 2: ("mapping_id", "int"), 3: ("address", "int"),
        4: ("line", [{1: ("function_id", "int"), 2: ("line", "int")}])}]),
    5: ("function", [{
        1: ("id", "int"), 2: ("name", "int"), 4: ("filename", "int")}]),
    6: ("string_table", ["string"]),
    9: ("time_nanos", "int"),
    11: ("period_type", {1: ("type", "int"), 2: ("unit", "int")}),
    12: ("period", "int"),
    13: ("comment", ["int"]),
    14: ("default_sample_type", "int"),
}
WIRE = {"int": 0, "packed": 2, "string": 2}


def varint(data, at):
    """Returns a number and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            if value >> 64:
                raise ValueError(f"a number of more than 64 bits before byte {at}")
            return value, at


def numbers(data):
    found, at = [], 0
    while at < len(data):
        value, at = varint(data, at)
        found.append(value)
    return found


def value_of(kind, value):
    if kind == "packed":
        return numbers(value)
    if kind == "string":
        return value.decode()
    return value if kind == "int" else message(kind, value)


def message(schema, data):
    """Returns the fields of a message by name; one that is not there is 0, or an empty list."""
    fields, at, seen = {}, 0, set()
    for name, kind in schema.values():
        fields[name] = [] if isinstance(kind, list) or kind == "packed" else 0
    while at < len(data):
        key, at = varint(data, at)
        if key >> 3 not in schema:
            raise ValueError(f"field {key >> 3} of {sorted(fields)}")
        name, kind = schema[key >> 3]
        one = kind[0] if isinstance(kind, list) else kind
        if key & 7 != (2 if isinstance(one, dict) else WIRE[one]):
            raise ValueError(f"{name} has wire type {key & 7}")
        value, at = varint(data, at)
        if key & 7 == 2:
            if at + value > len(data):
                raise ValueError(f"{name} ends behind the file")
            value, at = data[at:at + value], at + value
        if isinstance(kind, list):
            fields[name].append(value_of(one, value))
        elif name in seen:
            raise ValueError(f"{name} comes twice")
        else:
            fields[name] = value_of(kind, value)
        seen.add(name)
    return fields


def by_id(entries, what):
    """Returns entries by their ids, which are the numbers from 1 on, each once."""
    table = {e["id"]: e for e in entries}
    if sorted(table) != list(range(1, len(entries) + 1)):
        raise ValueError(f"ids of {what}: {[e['id'] for e in entries]}")
    return table


def read(data):
    """Returns what a profile says, its strings and ids replaced by what they stand for. A frame is
    (function, file, line, module, address); a sample's key is (frames, the innermost first,
    labels), and equal samples are added up."""
    raw = message(PROFILE, data)
    text = raw["string_table"]
    if text[0] != "":
        raise ValueError("string 0 is not empty")
    locations = by_id(raw["location"], "locations")
    functions = by_id(raw["function"], "functions")
    mappings = by_id(raw["mapping"], "mappings")

    def type_of(pair):
        return text[pair["type"]], text[pair["unit"]]

    def functions_at(number):
        place = locations[number]
        if not place["line"]:
            raise ValueError(f"location {number} has no line")
        lines = [(functions[line["function_id"]], line["line"]) for line in place["line"]]
        module = mappings[place["mapping_id"]] if place["mapping_id"] else None
        return tuple((text[function["name"]], text[function["filename"]], line,
                      text[module["filename"]] if module else "", place["address"])
                     for function, line in lines)

    samples = collections.defaultdict(lambda: [0] * 5)
    for s in raw["sample"]:
        labels = tuple((text[l["key"]], text[l["str"]]) for l in s["label"])
        key = sum((functions_at(n) for n in s["location_id"]), ()), labels
        if len(s["value"]) != 5:
            raise ValueError(f"a sample of {len(s['value'])} values")
        samples[key] = [a + b for a, b in zip(samples[key], s["value"])]
    return {
        "sample types": [type_of(t) for t in raw["sample_type"]],
        "period": (raw["period"],) + type_of(raw["period_type"]),
        "default sample type": text[raw["default_sample_type"]],
        "comments": [text[c] for c in raw["comment"]],
        "frames": sorted(functions_at(n) for n in locations),
        "modules": sorted((text[m["filename"]], text[m["build_id"]], m["memory_start"],
                           m["memory_limit"], m["file_offset"]) for m in raw["mapping"]),
        "time_nanos": raw["time_nanos"],
        "samples": dict(samples),
    }


# -- what a ledger says --

def expected(ledger):
    live, parts = groups(ledger)
    samples = {}

    def add(device, tag, part, frames, values):
        labels = (("device", device.name),) + ((("tag", shown(tag)),) if tag else ()) + \
            ((("part", shown(part)),) if part else ())
        key = tuple(full_frame(f) for f in frames), labels
        samples[key] = [a + b for a, b in zip(samples.get(key, [0] * 5), values)]
    for (device, frames, _), (n, bytes) in allocs(ledger).items():
        add(device, None, None, frames, (n, bytes, 0, 0, 0))
    for group, (n, bytes) in live.items():
        add(group.device, group.tag, None, group.frames + group.scopes, (0, 0, n, bytes, 0))
    for (group, part), bytes in parts.items():
        add(group.device, group.tag, part, group.frames + group.scopes, (0, 0, 0, bytes, 0))
    for (device, frames), bytes in at_peak(ledger).items():
        add(device, None, None, frames, (0, 0, 0, 0, bytes))
    return {
        "sample types": [("alloc_objects", "count"), ("alloc_space", "bytes"),
                         ("inuse_objects", "count"), ("inuse_space", "bytes"),
                         ("peak_space", "bytes")],
        "period": (1, "space", "bytes"),
        "default sample type":
            "peak_space" if ledger.by_peak(ledger.total()) else "inuse_space",
        "comments": comments(ledger),
        "frames": sorted(tuple(full_frame(f) for f in place) for place in all_places(ledger)),
        "modules": [(m.path.decode(), m.build_id.decode(), *m.segment) for m in ledger.modules],
        "time_nanos": WALL_AT_0 + ledger.now,
        "samples": samples,
    }


def full_frame(frame):
    """A frame with its module and its place there; those of no module have their address."""
    return text_frame(frame) + (frame[3].decode(), frame[4])


def all_places(ledger):
    """The functions at all sites, at what is no site on each device, of scopes and at the return
    addresses of stacks."""
    return [site_frames(row.subject) for row in ledger.sites] + \
        [(kind,) for kind in KINDS] * len(ledger.devices) + \
        [(scope_frame(s),) for s in ledger.scopes] + stack_places(ledger, ledger.frames_known())


def compare(ledger, data, check):
    wanted, found = expected(ledger), read(data)
    for subject in SUBJECTS:
        check.same(subject, subject, wanted[subject], found[subject])
