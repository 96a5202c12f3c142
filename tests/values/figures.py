"""The report page: what a page of a report shows, in its words. `report` is the JSON of the ledger
as the model computes it; figures.js reads what the page of the library shows."""
import math
import re

UNITS = "B KiB MiB GiB TiB PiB EiB".split()
DASH, MINUS = "–", "−"


# -- numbers in words --

def js(x):
    """Writes a number as JavaScript does."""
    return str(int(x)) if x == int(x) else repr(float(x))


def half_up(x):
    return math.floor(x + 0.5)


def size(n):
    if n is None:
        return DASH
    if n < 0:
        return MINUS + size(-n)
    unit = 0
    while unit < 6 and n >= 1024 ** (unit + 1):
        unit += 1
    hundredths = half_up(n / 1024 ** unit * 100)
    if hundredths == 102400 and unit < 6:
        hundredths, unit = 100, unit + 1
    return f"{js(hundredths / 100)} {UNITS[unit]}"


def count(n):
    return DASH if n is None else f"{n:,}".replace("-", MINUS)


def exact(n):
    return "" if n is None else count(n) + " bytes"


def many(n, word):
    return f"{count(n)} {word}{'' if n == 1 else 's'}"


def signed(n):
    return ("+" if n is not None and n > 0 else "") + size(n)


def percent(x):
    return DASH if x is None else js(half_up(x * 1000) / 10) + " %"


def duration(ns):
    if ns is None:
        return DASH
    if ns < 0:
        return MINUS + duration(-ns)
    for most, unit, word in ((1e3, 1, "ns"), (999500, 1e3, "µs"), (999.5e6, 1e6, "ms"), (120e9, 1e9, "s")):
        if ns < most:
            x = ns / unit
            return f"{js(float(f'{x:.3g}') if x < 100 else half_up(x))} {word}"
    s = half_up(ns / 1e9)
    if s < 7200:
        return f"{s // 60} min {s % 60} s"
    return f"{count(s // 3600)} h {s % 3600 // 60} min"


def cut(text, most=240):
    """A name as the page has it."""
    return text if len(text) <= most else text[:most] + "…"


def site_text(site, brief=False):
    if not site:
        return ""
    file, function = cut(site["file"]), cut(site["function"], 60 if brief else 240)
    if brief and len(file) > 40:
        slash = re.search(r"[\\/]", file[-40:])
        file = "…" + file[slash.start() - 40:] if slash else file
    return "  ".join(filter(None, [function, file + (f":{site['line']}" if site["line"] else "")]))


def site_key(site):
    return re.sub(r"\s+", " ", site_text(site))


# -- tables --

SHOW = {"text": lambda x: x, "bytes": size, "signed": signed, "count": count, "time": duration,
        "share": percent}
TITLE = {"text": lambda x: x if len(x) > 28 else "", "bytes": exact, "signed": exact,
         "count": lambda x: "", "time": lambda x: count(x) + " ns", "share": lambda x: ""}
BLANK = (None, "")
FIRST = 200  # rows of a table that are shown until more are asked for


class Column:
    def __init__(self, title, kind, get, words=None, full=None, add=False, keep=False):
        self.title, self.kind, self.add, self.keep = title, kind, add, keep
        self.get = get if callable(get) else lambda row: row[get]
        self.words, self.full = words, full

    def cell(self, row):
        value = self.get(row)
        words = self.words(row) if self.words else SHOW[self.kind](value)
        if self.full:
            return [words, self.full(row)]
        return [words, TITLE[self.kind](value) if value is not None else ""]


def in_order(rows, get, up=False):
    known = [r for r in rows if get(r) not in BLANK]
    known.sort(key=get, reverse=not up)
    return known + [r for r in rows if get(r) in BLANK]


def table(columns, rows, sort, up=False, rest=None, ordered=None):
    """Returns a table as the page has it. rest: (name, {title: what the list lacks}). `ordered`:
    rows that are in order already."""
    columns = [c for c in columns if c.keep or any(c.get(r) not in BLANK for r in rows)]
    by = next((c for c in columns if c.title == sort), columns[0])
    rows = ordered or in_order(rows, by.get, up)
    name, lacks = rest or ("", {})
    first = next((i for i, c in enumerate(columns) if c.kind == "text"), -1)

    def line(words, get):
        return [[SHOW[c.kind](get(c)), TITLE[c.kind](get(c))] if c.add else [words if i == first else "", ""]
                for i, c in enumerate(columns)]

    foot = []
    lack = {c.title: max(lacks.get(c.title, 0), 0) for c in columns}
    if any(c.add for c in columns):
        if any(lack.values()):
            foot.append(line(name, lambda c: lack[c.title]))
        foot.append(line("Total", lambda c: sum(c.get(r) or 0 for r in rows) + lack[c.title]))
    return {"heads": [c.title for c in columns], "rows": [[c.cell(r) for c in columns] for r in rows[:FIRST]],
            "foot": foot}


def site_column(title="Site"):
    return Column(title, "text", lambda r: site_text(r["site"]), words=lambda r: site_text(r["site"], True))


def known(value):
    return value or None


def shape_words(r):
    return " × ".join(str(n) for n in r["shape"][:16])


def tree(scopes):
    """Returns the scopes with what they hold with those inside, in the order of that."""
    rows = {s["id"]: dict(s, kids=[], depth=0) for s in scopes}
    for s in rows.values():
        up = rows.get(s["parent"])
        while up:
            s["depth"], up = s["depth"] + 1, rows.get(up["parent"])
        if s["parent"]:
            rows[s["parent"]]["kids"].append(s)
    for s in sorted(rows.values(), key=lambda s: -s["depth"]):
        s["held"] = s["live_bytes"] + sum(k["held"] for k in s["kids"])
    key = (lambda s: s["held"]) if any(s["held"] for s in rows.values()) else \
        (lambda s: s["delta_bytes"]["total"])

    def below(list_):
        return [x for s in in_order(list_, key) for x in [s] + below(s["kids"])]
    return below([s for s in rows.values() if not s["parent"]])


def scopes_table(report):
    rows = tree(report["scopes"])

    def part(title, kind, of, key):
        return Column(title, kind, lambda s: s[of][key])
    return table([
        Column("Scope", "text", lambda s: s["name"] if s["depth"] else s["path"], full=lambda s: s["path"]),
        Column("Held, inclusive", "bytes", "held"), Column("Held, exclusive", "bytes", "live_bytes"),
        part("Delta, inclusive", "signed", "delta_bytes", "total"), Column("Count", "count", "count"),
        part("avg delta", "signed", "delta_bytes", "avg"), part("min", "signed", "delta_bytes", "min"),
        part("max", "signed", "delta_bytes", "max"), Column("Peak inside", "bytes", "peak_bytes"),
        part("Time", "time", "time_ns", "total"), part("avg time", "time", "time_ns", "avg"),
        part("max time", "time", "time_ns", "max"),
        Column("Device time", "time", lambda s: known(s["device_time_ns"])),
        Column("Running", "count", lambda s: known(s["running"])),
        Column("Site", "text", lambda s: site_text(s["site"])),
    ], rows, None, ordered=rows)


def tags_table(report):
    tags, total = report["tags"], report["total"]
    lacks = {"Live": total["allocated"] - sum(t["allocated"] for t in tags),
             "Blocks": total["live_blocks"] - sum(t["blocks"] for t in tags)}
    return table([
        Column("Tag", "text", "tag"), Column("Device", "text", "device"),
        Column("Live", "bytes", "allocated", add=True), Column("Peak", "bytes", "peak"),
        Column("Blocks", "count", "blocks", add=True),
        Column("Planned", "bytes", lambda t: known(t["expected"])),
        Column("Variance", "signed", lambda t: t["variance"] if t["expected"] else None),
    ], tags, "Live", rest=("Without a tag", lacks))


SUMS = ("live_bytes", "peak_bytes", "allocs", "alloc_bytes", "frees", "free_bytes")


def site_groups(report):
    groups = {}
    arenas = [{"site": {"function": "(arena)", "file": "", "line": 0}, "device": d["device"],
               "live_bytes": d["arena"]} for d in report["devices"] if d["arena"]]
    for row in report["sites"] + arenas:
        g = groups.setdefault(site_key(row["site"]), {"site": row["site"], "of": []})
        g["of"].append(row)
    for g in groups.values():
        g["on"] = list(dict.fromkeys(r["device"] for r in g["of"]))
        for key in SUMS:
            values = [r.get(key) for r in g["of"]]
            g[key] = sum(v or 0 for v in values) if any(v is not None for v in values) else None
    groups = list(groups.values())
    total, up = max(report["total"]["allocated"], sum(g["live_bytes"] or 0 for g in groups), 1), 0
    for g in in_order(groups, lambda g: g["live_bytes"]):
        g["part"] = (g["live_bytes"] or 0) / total
        g["up"] = up = up + g["part"]
    return groups


def freed_columns(report, add):
    if report["total"]["frees"] and not any(s["frees"] for s in report["sites"]):
        return []
    return [Column("Frees", "count", lambda g: g.get("frees"), add=add),
            Column("Freed", "bytes", lambda g: g.get("free_bytes"), add=add)]


def place_words(row, brief):
    return site_text(dict(row["site"], function=""), brief)


def called_by(group):
    """Names the three functions that called a site most, with their shares."""
    parts, found = {}, [c for row in group["of"] for c in row.get("callers", [])]
    key = next(k for k in ("live_bytes", "at_peak_bytes", "alloc_bytes")
               if k == "alloc_bytes" or any(c[k] for c in found))
    for c in found:
        name = site_text(c["site"], True)
        parts[name] = parts.get(name, 0) + c[key]
    total, named = max(sum(parts.values()), 1), in_order(list(parts.items()), lambda part: part[1])
    return ", ".join(f"{name} {percent(part / total)}" for name, part in named[:3]) + (", …" if named[3:] else "")


def sites_table(report):
    groups, total = site_groups(report), report["total"]
    lacks = {title: total[all_] - sum(g[key] or 0 for g in groups) for title, all_, key in (
        ("Live", "allocated", "live_bytes"), ("Allocs", "allocs", "allocs"),
        ("Allocated", "total_allocated", "alloc_bytes"), ("Frees", "frees", "frees"),
        ("Freed", "total_freed", "free_bytes"))}
    return table([
        Column("Function", "text", lambda g: g["site"]["function"] or "(not known)"),
        Column("Place", "text", lambda g: place_words(g, False), words=lambda g: place_words(g, True)),
        *([Column("Called by", "text", called_by, keep=True)] if any(s.get("callers") for s in report["sites"]) else []),
        Column("Device", "text", lambda g: f"{len(g['on'])} devices" if len(g["on"]) > 1 else g["on"][0],
               full=lambda g: ", ".join(g["on"])),
        Column("Live", "bytes", "live_bytes", add=True), Column("Share", "share", "part"),
        Column("Cumulative", "share", "up"),
        Column("Peak", "bytes", "peak_bytes",
               words=lambda g: ("≤ " if len(g["of"]) > 1 else "") + size(g["peak_bytes"])),
        Column("Allocs", "count", "allocs", add=True), Column("Allocated", "bytes", "alloc_bytes", add=True),
    ] + freed_columns(report, True), groups, "Live", rest=("Without a site", lacks))


def site_tables(report):
    """Returns the tables inside that of the sites: a site on several devices, by device."""
    inner = []
    for g in in_order(site_groups(report), lambda g: g["live_bytes"]):
        if len(g["of"]) > 1:
            inner.append(table([
                Column("Device", "text", "device"),
                Column("Call", "text", lambda r: f"{re.sub('.*/', '', r['module'])}+0x{r['offset']:x}"
                       if r.get("module") else ""),
                Column("Live", "bytes", lambda r: r.get("live_bytes")),
                Column("Peak", "bytes", lambda r: r.get("peak_bytes")),
                Column("Allocs", "count", lambda r: r.get("allocs")),
                Column("Allocated", "bytes", lambda r: r.get("alloc_bytes")),
            ] + freed_columns(report, False), g["of"], "Live"))
    return inner


def blocks_table(report):
    return table([
        Column("Name", "text", lambda r: r["name"] or r["storage"], keep=True),
        Column("Tag", "text", lambda r: r["tag"] or ""), Column("Bytes", "bytes", "bytes"),
        Column("Device", "text", "device"), Column("Type", "text", lambda r: r["dtype"] or ""),
        Column("Shape", "text", shape_words), Column("References", "count", "refs"),
        Column("Parts", "count", lambda r: r["parts"] and r["parts"]["count"]),
        Column("Scope", "text", lambda r: r["scope"] or ""), site_column(),
        Column("Storage", "text", "storage"), Column("Stream", "text", lambda r: r.get("stream", "")),
        Column("Flags", "count", lambda r: known(r["flags"])),
        Column("Since mark", "count", lambda r: known(r["born"])),
        Column("State", "text", lambda r: "freed, waits for its device" if r["pending"] else ""),
    ], report["largest_blocks"]["blocks"], "Bytes")


def part_tables(report):
    blocks = in_order(report["largest_blocks"]["blocks"], lambda r: r["bytes"])
    return [table([
        Column("Name", "text", lambda r: r["name"] or ""), Column("Offset", "count", "offset"),
        Column("Bytes", "bytes", "bytes"), Column("Type", "text", lambda r: r["dtype"] or ""),
        Column("Shape", "text", shape_words), Column("Tag", "text", lambda r: r["tag"] or ""),
    ], r["parts"]["listed"], "Offset", up=True) for r in blocks if r["parts"]]


def leaks_table(report):
    leaks = report["leaks"]
    lacks = {"Bytes": leaks["more"]["site_bytes"], "Blocks": leaks["more"]["site_count"]}

    def spread(key):
        def words(r):
            n = r[key + "s"]
            return r[key] or (("" if n > 1 else "partly ") + many(n, key) if n else "")
        return Column(key.capitalize(), "text", words)
    return table([
        site_column(), spread("tag"), spread("scope"), spread("device"),
        Column("Bytes", "bytes", "bytes", add=True), Column("Blocks", "count", "count", add=True),
    ], leaks["sites"], "Bytes", rest=("Not listed", lacks))


def leak_tables(report):
    """Returns the tables inside that of the leaks: a site whose leaks differ, by tag, scope and device."""
    def of_line(r):
        return r["site"] or r["tag"]
    inner = []
    for line in report["leaks"]["sites"]:
        groups = [g for g in report["leaks"]["by_site"] if of_line(g) == of_line(line)]
        if len(groups) > 1:
            inner.append(table([
                Column("Tag", "text", lambda r: r["tag"] or ""), Column("Scope", "text", lambda r: r["scope"] or ""),
                Column("Device", "text", "device"), Column("Bytes", "bytes", "bytes"),
                Column("Blocks", "count", "count")], groups, "Bytes"))
    return inner


def leaks_note(report):
    mark = report["leaks"]["since_mark"]
    return f"Blocks that were allocated since mark {mark} and are not freed. What is freed and waits for " \
        "its device is not among them." if mark else "No mark was set, so these are all blocks that are not freed."


def mistakes_table(report):
    def where(key):
        return lambda r: site_text(r[key]) if r[key] else ""

    def brief(key):
        return lambda r: site_text(r[key], True) if r[key] else ""
    rows = report["mistakes"]["list"]
    return table([
        Column("Mistake", "text", "kind"), Column("Count", "count", "count"), Column("Bytes", "bytes", "bytes"),
        Column("Call", "text", where("site"), words=brief("site")),
        Column("Block born at", "text", where("born"), words=brief("born")),
        Column("Tag", "text", lambda r: r["tag"] or ""), Column("Device", "text", "device"),
        Column("Storage", "text", lambda r: r["storage"] or ""), Column("First", "time", "first_ns"),
        Column("Last", "time", "last_ns"),
    ], rows, "Mistake", ordered=rows)


def mistakes_note(report):
    more = report["mistakes"]["more"]
    return f"{count(more)} more were made elsewhere, and are not listed." if more else ""


def streams_table(report):
    rest = report["streams"]["rest"]
    return table([
        Column("Stream", "text", "stream"), Column("Device", "text", "device"),
        Column("Bytes", "bytes", "bytes", add=True), Column("Blocks", "count", "blocks", add=True),
    ], report["streams"]["largest"], "Bytes", rest=("On other streams", {"Bytes": rest["bytes"], "Blocks": rest["blocks"]}))


def accounts_table(report):
    return table([
        Column("Account", "text", "name"), Column("Device", "text", "device"),
        Column("Held", "bytes", "bytes"), Column("Peak", "bytes", "peak"),
        Column("Limit", "bytes", "limit"), Column("Refused", "count", "refused"),
    ], report["accounts"]["largest"], "Held")


def moves_table(report):
    return table([
        Column("From", "text", "from"), Column("To", "text", "to"), Column("Moves", "count", "count"),
        Column("Bytes", "bytes", "bytes"), Column("Copies", "count", "copies"),
        Column("Bytes copied", "bytes", "copied_bytes"),
    ], report["moves"], "Bytes")


def by_peak(report):
    return sorted(report["devices"], key=lambda d: -d["stats"]["peak"])


def snapshots_table(report):
    def held(name):
        return lambda s: s["device_breakdown"].get(name, {}).get("total_bytes")
    first, others = by_peak(report)[:12], by_peak(report)[12:]
    return table([
        Column("At", "time", "time_ns"), Column("Checkpoint", "text", lambda s: s["checkpoint_name"] or ""),
        Column("Live", "bytes", "total_bytes"), Column("Blocks", "count", "tensor_count"),
    ] + [Column(d["device"], "bytes", held(d["device"])) for d in first] + [
        Column("1 other device" if len(others) == 1 else f"{len(others)} other devices", "bytes",
               lambda s: s["total_bytes"] - sum(held(d["device"])(s) or 0 for d in first))][:len(others)] + [
        Column("Time", "text", "timestamp")], report["snapshots"], "At", up=True)


def threads_table(report):
    return table([
        Column("Thread", "count", "id"), Column("Allocs", "count", "allocs"), Column("Frees", "count", "frees"),
        Column("Allocated", "bytes", "bytes_allocated"), Column("Freed", "bytes", "bytes_freed"),
    ], report["threads"], "Allocated")


# -- devices --

class Place:
    """A device, and the memory that its bytes are in."""

    def __init__(self, report, d):
        self.name, self.stats, self.source, self.report = d["device"], d["stats"], d, report
        self.capacity = next((c for c in report["capacity"] if c["device"] == self.name), None)
        self.mates = self.capacity["devices"] if self.capacity else [self.name]
        self.home = next((c for c in report["capacity"]
                          if c["device"] != self.name and self.name in c["devices"]), None)
        self.tags = [t for t in report["tags"] if t["device"] in self.mates]
        self.arena = sum(x["arena_untagged"] for x in report["devices"] if x["device"] in self.mates)
        self.total = self.capacity and self.capacity["total"]
        self.used = self.capacity and self.capacity["used"]
        self.fragmentation = None if d["fragmentation"] is None else float(d["fragmentation"])
        self.limit = (self.capacity and self.capacity["limit"]) or self.stats["limit"]

    def split(self):
        """Returns what the place holds, by name, in the order of the page."""
        c, held, shown = self.capacity or {}, {}, []
        self.own = c["self"] if c else self.stats["allocated"]
        for t in self.tags:
            held[t["tag"]] = held.get(t["tag"], 0) + t["allocated"]
        tags = in_order([(k, v) for k, v in held.items() if v], lambda kv: kv[1])
        shown += tags[:7]
        if tags[7:]:
            shown.append((f"{len(tags) - 7} other tags", sum(v for _, v in tags[7:])))
        rest = c["untagged"] if c else self.own - sum(v for _, v in tags)
        arena = min(self.arena, max(rest, 0))
        shown += [kv for kv in (("in arenas", arena), ("untagged", rest - arena)) if kv[1] > 0]
        if self.total is None or self.used is None:
            self.free = self.unaccounted = None
            return shown
        context, neighbours = c["context"] or 0, c["neighbours"] or 0
        self.free = max(self.total - self.used, 0)
        self.unaccounted = self.total - self.free - self.own - context - neighbours
        shown += [kv for kv in (("driver’s context", context), ("neighbours", neighbours)) if kv[1] > 0]
        return shown + [("unaccounted", self.unaccounted), ("free", self.free)]

    def part(self):
        """The part of the capacity that is used, by which the page sorts the devices."""
        if not self.total or self.used is None:
            return None
        return min(self.used, self.total) / self.total

    def marks(self):
        return [kv for kv in (("pool", self.stats["reserved"]), ("limit", self.limit)) if kv[1]]

    def sum_words(self):
        c = self.capacity
        if self.total is None:
            if self.home:
                return f"Its bytes are in the memory of {self.home['device']}, and are counted there."
            return ("Mapped files are page cache: the system takes it back when it needs memory, so it "
                    "counts for no device." if self.name == "mapped" else "The capacity of this device is not known.")
        parts, mates = [], [m for m in self.mates if m != self.name]
        named = [" ".join(filter(None, ["pid", str(o["pid"]), o["name"], size(o["bytes"])]))
                 for o in c["other_processes"]]
        if mates:
            parts.append("recorded here is also what is on " + ", ".join(mates))
        words = f"{size(self.total)} = {size(self.free)} free + {size(self.own)} recorded here "
        words += f"+ {size(c['context'])} driver’s context " if c["context"] else ""
        words += f"{MINUS if self.unaccounted < 0 else '+'} {size(abs(self.unaccounted))} unaccounted"
        if c["process"] is not None:
            parts.append("the rest of this process " + size(max(c["process"] - self.own, 0)))
        if c["others"] is not None:
            parts.append("others " + size(c["others"]) + (f" ({', '.join(named)})" if named else ""))
        if self.stats["cached"]:
            parts.append(f"the host’s pool holds {size(self.stats['cached'])} unused")
        if c["age_ns"] is not None and c["age_ns"] > 1e9:
            parts.append(f"sampled {duration(c['age_ns'])} ago")
        return words + (": " + ", ".join(parts) if parts else "") + "."

    def facts(self):
        s, found = self.stats, []
        more = f", or up to {size(s['peak_error'])} more" if s["peak_error"] else ""
        found.append(["peak", size(s["peak"]) + more, exact(s["peak"])])

        def add(name, n, words=count, title=lambda n: ""):
            if n:
                found.append([name, words(n), title(n)])
        add("freed, waiting for the device", s["pending"], size, exact)
        add("held for requests", self.capacity and self.capacity["held"], size, exact)
        for name, key in (("blocks", "live_blocks"), ("allocs", "allocs"), ("frees", "frees"),
                          ("resized", "reallocs"), ("arrived by move", "moves"),
                          ("arrived by copy", "copies"), ("collections", "gc_runs")):
            add(name, s[key])
        add("reclaimed", s["gc_reclaimed"], size, exact)
        if self.fragmentation is not None:
            found.append(["fragmentation", percent(self.fragmentation), ""])
        asked = s["cache_hits"] + s["cache_misses"]
        if asked:
            found.append(["pool hits", percent(s["cache_hits"] / asked), ""])
        add("requests saved by a retry", s["recoveries"])
        return found

    def bars(self):
        sizes, lives, found = self.source["sizes"], self.source["lifetimes"] or {}, []
        if sizes:
            found.append("live blocks by size: " + ", ".join(
                f"{size(x['from'])} {x['blocks']}" for x in sorted(sizes, key=lambda x: x["from"])))
        if any(lives.values()):
            names = (("<0.1", "under_100ms"), ("<1", "under_1s"), ("<10", "under_10s"), ("10 s+", "longer"))
            found.append("lifetime when freed: " + ", ".join(f"{n} {lives[k]}" for n, k in names if lives[k]))
        return found

    def card(self):
        shown, oom = self.split(), self.source["last_oom"]
        words = {"pool": "reserved by the host’s pool", "limit": "limit"}
        legend = [[[n, n], [size(v), exact(v)]] for n, v in shown]
        legend += [[[words[n], ""], [size(v), exact(v)]] for n, v in self.marks()]
        live = self.stats["allocated"]
        return {"name": self.name, "label": self.source["label"] or "", "live": [size(live), exact(live)],
                "legend": legend,
                "bar": ", ".join(f"{n} {size(v)}" for n, v in shown + self.marks()) or "no bytes",
                "sum": self.sum_words(), "facts": self.facts(), "bars": self.bars(),
                "oom": [f"The last request without memory wanted {size(oom['bytes'])} with {size(oom['live'])} live"
                        + (", at " + site_text(oom["site"]) if oom["site"] else "") + "."] if oom else []}


# -- the first screen --

def answers(report):
    """What the profile says itself; a head begins with a capital letter."""
    lines = []
    for v in report["verdicts"]:
        head = v["head"][0].upper() + v["head"][1:]
        lines += [head + (f", {p['device']}: " if p["device"] else ": ") + p["text"] for p in v["parts"]]
        if v["more"]:
            lines.append(f"{head}: and {count(v['more'])} more" + (f", {size(v['more_bytes'])}" if v["more_bytes"] else ""))
    return lines


def figures(report):
    if not report["devices"]:
        return []
    t, peaks = report["total"], sum(d["stats"]["peak"] for d in report["devices"])
    several = len(report["devices"]) > 1
    together = max((s["total_bytes"] for s in report["snapshots"]), default=0)
    notes = [several and "each device had its own at another time",
             several and together and f"the snapshot with most has {size(together)}",
             t["peak_error"] and f"peaks are low by at most {size(t['peak_error'])}"]
    return [["Live", size(t["allocated"]), exact(t["allocated"]), many(t["live_blocks"], "block")],
            ["Peaks, added up" if several else "Peak", size(peaks), exact(peaks), "; ".join(filter(None, notes))],
            ["Allocated in all", size(t["total_allocated"]), exact(t["total_allocated"]),
             f"{many(t['allocs'], 'alloc')}, {many(t['frees'], 'free')}"]]


def about(report):
    m, e = report["metadata"], report["events"]
    passed = [f"{count(m['dropped'][k])} {k.replace('_', ' ')}" for k in ("scope_invocations", "snapshots")
              if m["dropped"][k]]
    n, lost = len(e["list"]), e["lost"]
    return [row + [""] * (3 - len(row)) for row in filter(None, [
        m["program"] and ["program", m["program"]], ["written", m["generated_at"]],
        ["MemLord’s own memory", size(m["own_bytes"]), exact(m["own_bytes"])],
        not m["sites_enabled"] and ["sites", "off"],
        not m["operation_tracking_enabled"] and ["scopes", "none used"],
        (not m["events_enabled"] or not n) and ["events", "not recorded"],
        passed and ["older, not kept", ", ".join(passed)],
        n and ["events", count(n) + (f", {count(lost)} older ones overwritten" if lost else "")]])]


TABLES = {"scopes": (scopes_table, lambda r: r["scopes"]), "tags": (tags_table, lambda r: r["tags"]),
          "sites": (sites_table, site_groups), "blocks": (blocks_table, lambda r: r["largest_blocks"]["blocks"]),
          "leaks": (leaks_table, lambda r: r["leaks"]["by_site"]),
          "mistakes": (mistakes_table, lambda r: r["mistakes"]["list"]),
          "streams": (streams_table, lambda r: r["streams"]["largest"]),
          "accounts": (accounts_table, lambda r: r["accounts"]["largest"]),
          "moves": (moves_table, lambda r: r["moves"]), "snapshots": (snapshots_table, lambda r: r["snapshots"]),
          "threads": (threads_table, lambda r: r["threads"])}


def expected(report):
    places = in_order([Place(report, d) for d in by_peak(report)], lambda d: d.part())
    m = report["metadata"]
    return {
        "title": " ".join(" · ".join(filter(None, [  # as browsers do, without double spaces
            "MemLord", m["program"] and cut(m["program"], 60),
            m["labels"] and cut(m["labels"], 60), f"pid {m['pid']}"])).split()),
        "answers": answers(report),
        "figures": figures(report),
        "cards": [d.card() for d in places[:FIRST]],
        "tables": {name: make(report) for name, (make, rows) in TABLES.items() if rows(report)},
        "inner": site_tables(report) + part_tables(report) + leak_tables(report),
        "leaks": leaks_note(report) if report["leaks"]["by_site"] else None,
        "mistakes": mistakes_note(report) if report["mistakes"]["list"] else None,
        "about": about(report),
    }
