"""TEXT: the whole report is built from the model, line by line, and compared with the file. Each
line belongs to a subject; a line that only one of the two has is a difference of the subject there.
"""

import difflib
import re

from lists import LOSSES, MISTAKES
from notation import WALL_AT_0, address, arguments, average, bytes_text, fixed, ns_text, percent_text, process_text, shown
from phases import highest
from script import ANY, TYPES, Device

SUBJECTS = ("header", "out of memory", "limits", "full devices", "leaks in a line", "growth in a line", "peaks in a line", "holders",
            "anomalies",
            "labels", "devices", "bar", "capacity", "tags", "sites", "stacks", "blocks",
            "balance", "peaks", "troubles", "pools", "rates", "ages", "mistakes", "snapshots", "growth", "scopes",
            "leaks", "routes", "accounts", "streams", "modules")
VERDICTS = {  # head, tone, subject
    "out_of_memory": ("out of memory", "bad", "out of memory"),
    "over_limit": ("over a limit", "bad", "limits"),
    "full": ("nearly full", "bad", "full devices"),
    "leaks": ("leaks since mark", "bad", "leaks in a line"),
    "growth": ("growth", "odd", "growth in a line"),
    "peak": ("peak", "", "peaks in a line"),
    "holders": ("biggest holder", "", "holders"),
    "anomalies": ("anomalies and drops", "odd", "anomalies"),
    "mistakes": ("mistakes", "odd", "mistakes"),
    "collections": ("collections that did not run", "odd", "troubles"),
    "fragments": ("fragmented pool", "odd", "pools")}
NAME = 60  # characters of a name that are shown
ARGUMENTS = 85
FIRST_DEVICES, FIRST_PHYSICAL, FIRST_TAGS, FIRST_SITES = 4, 2, 3, 3  # lines on the first screen
FIRST_STACKS, FIRST_BLOCKS = 5, 2
CALLERS = 3  # of a site
TOP_TAGS, TOP_SITES, LEAKS, LEAK_GROUPS, FRAMES, BAR = 64, 50, 20, 3, 5, 48
FIRST_SENTENCES, ANOMALIES = 4, 6  # on the first screen; in a sentence
COLUMNS, INDENT = 100, 8  # of the first screen; of a line that goes on


def name(text):
    return shown(text, NAME)


def broken(line):
    """A line of the first screen: where it is too long it goes on in the next."""
    lines, at = [], ""
    for blanks, word in re.findall("( *)([^ ]+)", line):
        while word:
            piece, word = word[:COLUMNS - INDENT], word[COLUMNS - INDENT:]
            if at and len(at) + len(blanks) + len(piece) > COLUMNS:
                lines.append(at)
                at, blanks = "", " " * INDENT
            at += blanks + piece
            blanks = ""
    return lines + [at]


def on_page(text):
    """Text as a page has it."""
    return text.replace("&", "&amp;").replace("<", "&lt;")


def site_name(place):
    """A site in a line. Of a long path the end is shown."""
    if place is None or not (place.function or place.file):
        return "(unknown)"
    file = place.file
    if len(file) > NAME:
        file = file[-NAME:]
        while file and file[0] & 0xc0 == 0x80:
            file = file[1:]
    shown_file = ("..." if len(place.file) > NAME else "") + name(file)
    text = name(place.function) + (" " if place.function and place.file else "") + shown_file
    return "%s:%d" % (text, place.line) if place.line else text


def padded(text, width):
    """Text in a column: a character of two bytes takes one place, a longer one two."""
    taken = sum(1 if len(c.encode()) < 3 else 2 for c in text)
    return text + " " * max(width - taken, 0)


def size(value, width=0):
    """Bytes in a column; None is not known."""
    return ("-" if value is None else bytes_text(value)).rjust(width)


def number(value, width=0):
    return ("-" if value is None else str(value)).rjust(width)


def difference(value, width=0):
    if value is None:
        return "-".rjust(width)
    return (("-" if value < 0 else "+") + bytes_text(abs(value))).rjust(width)


def amount(count, blocks):
    return "%s in %d block%s" % (bytes_text(count), blocks, "" if blocks == 1 else "s")


def more_of(count, one):
    """How many things a list leaves out: "1 more tag", "2 more tags"."""
    return "%d more %s%s" % (count, one, "" if count == 1 else "s")


def share(part, whole):
    return percent_text(part * 100 / whole if part < whole else 100)


def subject(row):
    return row.subject if row else None


class Arena:
    """The site that stands for the balance of an arena."""
    file, function, line = b"", b"(arena)", 0


class Part:
    """What a verdict says of a device: of `bytes` if it is left out, with a site and a tag in it."""

    def __init__(self, device, text, bytes=0, site=None, tag=None):
        self.device, self.text, self.bytes, self.site, self.tag = device, text, bytes, site, tag


class Report:
    """The lines of a report, with the subject of each."""

    def __init__(self, ledger, page=False):
        self.ledger, self.lines, self.page, self.answers = ledger, [], page, []
        self.first = False  # on the first screen
        self.sentences = []  # those of the verdicts, each with its subject
        self.capacities = ledger.capacity_lines()
        self.by_peak = sorted(ledger.devices, key=lambda d: -d.peak)
        self.tag_lines = ledger.tag_lines()
        self.total = ledger.total()
        self.sampled = ledger.stack_bytes > 1
        self.lost = bool(ledger.anomalies().get("dropped_allocs"))  # the totals are too low

    def put(self, subject, *lines):
        for line in lines:
            self.lines += [(subject, on_page(part) if self.page else part)
                           for part in (broken(line) if self.first else [line])]

    def more(self, subject, have, shown_lines, what, left=None):
        if shown_lines < have:
            self.put(subject, "... and %s%s" % (
                more_of(have - shown_lines, what), "" if left is None else ", " + bytes_text(left)))

    # -- the verdicts --

    def verdict(self, kind, parts):
        """A sentence for each of up to four devices, "head, cpu: this", and one for the others."""
        if not parts:
            return
        head, tone, subject = VERDICTS[kind]
        if kind == "leaks":
            head += " %d" % self.ledger.mark_now
        if kind == "anomalies" and self.lost:
            tone = "bad"
        left = sum(part.bytes for part in parts[FIRST_DEVICES:])
        self.answers.append({
            "kind": kind, "tone": tone, "head": head, "more": len(parts[FIRST_DEVICES:]), "more_bytes": left,
            "parts": parts[:FIRST_DEVICES]})
        for part in parts[:FIRST_DEVICES]:
            self.sentences.append((subject, head + (", %s: " % part.device if part.device else ": ") + part.text))
        if len(parts) > FIRST_DEVICES:
            self.sentences.append((subject, "%s: and %d more%s" % (
                head, len(parts) - FIRST_DEVICES, ", " + bytes_text(left) if left else "")))

    def out_of_memory(self):
        parts = []
        for device in self.by_peak:
            oom = device.oom
            if not oom or not device.count["oom_failures"]:
                continue
            at = " at " + site_name(oom.site) if oom.site else ""
            total = next((line.total for line in self.capacities if line.physical is device.physical), None)
            if total is not None and oom.used is not None and oom.used + oom.bytes > total:
                at += ", %s short" % bytes_text(oom.used + oom.bytes - total)
            parts.append(Part(device.name, "%s wanted with %s live%s, %d failed" % (
                bytes_text(oom.bytes), bytes_text(oom.live), at, device.count["oom_failures"]),
                site=oom.site))
        self.verdict("out_of_memory", parts)

    def over_limits(self):
        parts = []
        for line in self.capacities:
            live = self.ledger.live_on(line.physical)
            if line.physical.limit and live > line.physical.limit:
                parts.append(Part(str(line.physical.device), "%s of %s" % (
                    bytes_text(live), bytes_text(line.physical.limit)), live))
        for account in self.ledger.largest_accounts():
            if account.limit and account.bytes > account.limit:
                # its bytes are among those of its device
                parts.append(Part(account.device.name, "account %s %s of %s" % (
                    name(account.name), bytes_text(account.bytes), bytes_text(account.limit))))
        self.verdict("over_limit", parts)

    def full_devices(self):
        parts = []
        for line in self.capacities:
            if line.total is None or line.free > line.total // 20:
                continue
            part = Part(str(line.physical.device), "%s of %s free" % (bytes_text(line.free), bytes_text(line.total)))
            if line.others is not None and line.others > line.self:
                if line.processes:
                    pid, count = line.processes[0]
                    part.text += "; process %d %s holds %s" % (pid, self.ledger.process_name(pid) or "", bytes_text(count))
                else:
                    part.text += "; other processes hold " + bytes_text(line.others)
            held = [h for d in self.ledger.devices if d.physical is line.physical for h in self.tag_holders(d)]
            if any(h[0].startswith("tag ") for h in held):
                words, count, part.tag = max(held, key=lambda h: h[1])
                part.text += "; %s holds %s" % (words, bytes_text(count))
            parts.append(part)
        self.verdict("full", parts)

    def ended(self, device):
        """Less than a quarter of the peak is left."""
        return device.live < device.peak // 4

    def growth_lines(self):
        parts, lines = [], self.ledger.growth()[:20]
        for each in lines:
            fastest, device = {}, each[5]
            for line in lines:
                if line[5] is device:
                    fastest.setdefault(line[4], line)
            site = fastest.get("sites")
            site = site if site and site[6] else None
            most = fastest.get("tags") or site or fastest.get("devices")
            if most is not each or self.ended(device):
                continue
            rate, first, _, _, kind, _, row = most
            part = Part(device.name, "it grows", rate)
            if kind == "tags":
                part.text, part.tag = (("tag %s grows" % name(row.subject), row.subject) if row
                                       else ("untagged grows", None))
            elif kind == "sites":
                part.text, part.site = "site %s grows" % site_name(row.subject), row.subject
            ns = WALL_AT_0 + self.ledger.started + self.ledger.snapshots_shown()[first].time
            seconds = ns // 10 ** 9 % 86400
            part.text += " by %s a minute since %02d:%02d:%02d UTC" % (
                bytes_text(rate), seconds // 3600, seconds // 60 % 60, seconds % 60)
            if kind == "tags" and site:
                part.site = site[6].subject
                part.text += ", %s of it at %s" % (share(site[0], rate), site_name(part.site))
            if site:
                part.text += self.called(site[6], 1)
            parts.append(part)
        self.verdict("growth", parts)

    def called(self, row, column):
        """The function that a site got most of its bytes for, of those in a column of its callers."""
        found = self.ledger.callers(row) if row else []
        total, most = sum(c[column] for c in found), max(found, key=lambda c: c[column], default=None)
        if not most or most[column] <= total // 2:
            return ""
        return ", %s %s" % ("mostly from" if most[column] < total else "from", site_name(most[0]))

    def row_of(self, site, device):
        return next((r for r in self.ledger.sites if r.device is device and r.subject is site), None)

    def leak_line(self):
        found = self.ledger.leaks()
        if not self.ledger.mark_now or not found:
            return
        culprit = self.ledger.culprit()
        line = amount(sum(b.bytes for b in found), len(found))
        line += ", %s of them %s" % (bytes_text(culprit.bytes), self.leak_site(culprit)) if culprit else ""
        self.verdict("leaks", [Part(None, line, site=culprit and culprit.site)])

    def leak_site(self, leak):
        """What the leaks of a site have in common, and the site."""
        devices, tags, scopes = leak.devices, leak.tags - {None}, leak.scopes - {None}
        line = str(next(iter(devices))) if len(devices) == 1 else "%d devices" % len(devices)
        partly = " partly" if None in leak.tags else ""
        if len(tags) == 1:
            line += "%s [%s]" % (partly, name(next(iter(tags))))
        elif tags:
            line += " with %d tags" % len(tags)
        partly = " partly" if None in leak.scopes else ""
        if len(scopes) == 1:
            line += "%s in %s" % (partly, name(next(iter(scopes))))
        elif scopes:
            line += " in %d scopes" % len(scopes)
        return line + "  " + site_name(leak.site)

    def held_the_peak(self):
        parts = []
        for device in self.by_peak:
            held = device.holders
            if not self.ended(device):
                continue
            part = Part(device.name, bytes_text(device.peak))
            tags = held.tags if held and [tag for tag, _ in held.tags] != [None] else []
            tags = tags if max([count for _, count in tags], default=0) >= (held.bytes // 100 if held else 0) else []
            sites = held.sites if held and held.sites and held.sites[0][1] >= held.bytes // 100 else []
            if tags:
                part.tag, count = max(tags, key=lambda t: t[1])
                part.text += ", %s %s" % ("untagged" if part.tag is None else "tag " + name(part.tag),
                                          share(count, held.bytes))
            if sites:
                part.site, count = sites[0]
                part.text += ", site %s %s" % (site_name(part.site), share(count, held.bytes))
                part.text += self.called(self.row_of(part.site, device), 4)
            if (tags or sites) and held.bytes < device.peak - device.peak // 64:
                part.text += " of " + bytes_text(held.bytes)
            part.text += "; %s left" % bytes_text(device.live)
            parts.append(part)
        self.verdict("peak", parts)

    def holders(self):
        parts = []
        for device in self.by_peak:
            part = self.holders_of(device)
            if part.text:
                part.text += " of " + bytes_text(device.live)
                part.text += self.called(self.row_of(part.site, device), 1)
                parts.append(part)
        self.verdict("holders", parts)

    def tag_holders(self, device):
        """Who holds a device by tag, the largest first: (words, bytes, tag)."""
        ledger, live = self.ledger, device.live
        by_tag = [("tag " + name(r.subject), r.live, r.subject)
                  for r in ledger.tags if r.device is device]
        arena = ledger.arena_untagged(device)
        by_tag.append(("untagged", live - arena - sum(h[1] for h in by_tag), None))
        return sorted([h for h in by_tag + [("arenas", arena, None)] if h[1] > 0],
                      key=lambda holder: -holder[1])

    def holders_of(self, device):
        ledger, live, by_tag = self.ledger, device.live, self.tag_holders(device)
        site = (ledger.top(ledger.sites, device) or [None])[0]
        largest, held = (site.subject, site.live) if site else (None, 0)
        where = site_name(largest)
        if device.arena > held:
            where, held, largest = "(arena)", device.arena, Arena
        part, parts = Part(device.name, "", live), []
        tells = by_tag and by_tag[0][1] >= live // 100
        arena = tells and by_tag[0][0] == "arenas"
        if tells and (len(by_tag) > 1 or arena or ledger.tags):
            parts.append("%s %s" % (by_tag[0][0], share(by_tag[0][1], live)))
            part.tag = by_tag[0][2]
        if held and held >= live // 100 and not (arena and where == "(arena)"):
            parts.append("site %s %s" % (where, share(held, live)))
            part.site = largest
        part.text = ", ".join(parts) if live and not self.ended(device) else ""
        return part

    def counts(self, device):
        """The anomalies and drops of a device; None: of all, with those of the ledger."""
        return list(self.ledger.anomalies(device).items())

    def listed(self, counts):
        return ", ".join("%s %s" % (key, bytes_text(v) if key == "dropped_bytes" else v)
                         for key, v in counts)

    def anomaly_line(self):
        """The four devices with the heaviest anomalies; under "all" what no device counted."""
        own = []
        for key, value in self.counts(None):
            if key in ("dropped_scope_invocations", "dropped_snapshots"):  # these lists are bounded
                continue
            value -= sum(d.count.get(key, 0) for d in self.ledger.devices)
            own += [(key, value)] if value > 0 else []
        found = [(d.name, self.counts(d)) for d in self.by_peak] + [("all", own)]
        found = [(where, counts) for where, counts in found if counts]
        found = sorted(found, key=lambda part: self.weight(part[1]), reverse=True)
        self.verdict("anomalies", [Part(where, self.listed(counts[:ANOMALIES]) + (
            ", %d others" % len(counts[ANOMALIES:]) if counts[ANOMALIES:] else "")) for where, counts in found])

    def mistake_line(self):
        parts = []
        for m in self.ledger.mistakes_by_weight():
            text = m.kind + (" " + bytes_text(m.bytes) if m.bytes else "")
            text += " at " + site_name(m.site) if m.site else ""
            text += ", %d times" % m.count if m.count > 1 else ""
            parts.append(Part(str(m.device), text, m.bytes, m.site))
        self.verdict("mistakes", parts)

    def failed_collections(self):
        self.verdict("collections", [
            Part(d.name, "%d of %d" % (d.count["gc_failed"], d.count["gc_failed"] + d.count["gc_runs"]))
            for d in self.by_peak if d.count["gc_failed"]])

    def fragments(self):
        parts = []
        for device in self.by_peak:
            s, free = device.stats(), device.reserved - device.live
            piece = device.largest_free
            if piece is None or free <= 0 or piece > free or (1 - piece / free) < 0.5:
                continue
            if s["cached"] < s["reserved"] // 16:
                continue
            parts.append(Part(device.name, "%s of %s cached, the largest piece is %s" % (
                percent_text(100 * (1 - piece / free)), bytes_text(s["cached"]), bytes_text(piece)),
                s["cached"]))
        self.verdict("fragments", parts)

    def weight(self, counts):
        """The heaviest kind of anomaly, then how many there are of it."""
        def kind(key):
            return 3 if key in LOSSES else 2 if key in MISTAKES else 1
        heaviest = max(kind(key) for key, _ in counts)
        return heaviest, sum(v for key, v in counts
                             if kind(key) == heaviest and key != "dropped_allocs")

    def verdicts(self):
        self.out_of_memory()
        self.over_limits()
        self.full_devices()
        self.leak_line()
        if self.lost:
            self.anomaly_line()
        self.growth_lines()
        self.held_the_peak()
        self.holders()
        if not self.lost:
            self.anomaly_line()
        self.mistake_line()
        self.failed_collections()
        self.fragments()

    # -- tables of the first screen --

    def device_line(self, where, stats):
        return (padded(str(where), 12) + size(stats["allocated"], 12) + size(stats["peak"], 12) +
                number(stats["live_blocks"], 10) + number(stats["allocs"], 11) +
                number(stats["frees"], 11) + size(stats["total_allocated"], 12))

    def devices(self, most):
        ledger = self.ledger
        self.put("devices", "", "device              live        peak    blocks     allocs      frees"
                 "   allocated")
        for device in self.by_peak[:most]:
            line = self.device_line(device.name, device.stats())
            line += "  " + name(device.label) if device.label else ""
            resident = TYPES[device.type] == "cpu" and not self.page and ledger.resident
            self.put("devices", line + ("  RSS " + bytes_text(resident) if resident else ""))
        self.more("devices", len(ledger.devices), most, "device")
        if len(ledger.devices) == 1:
            return
        for type in range(len(TYPES)):
            of_type = [d.stats() for d in ledger.devices if d.type == type]
            if len(of_type) > 1:
                sums = {key: sum(s[key] or 0 for s in of_type) for key in of_type[0]}
                self.put("devices", self.device_line(Device(type, ANY), sums))
        self.put("devices", self.device_line("all", self.total) +
                 "  (peaks added up)")

    def bar(self):
        """A line of blocks: the live bytes of the snapshots, over the time between the first and
        the last."""
        snapshots = self.ledger.snapshots_shown()
        if not snapshots:
            return
        first, last = snapshots[0].time, snapshots[-1].time
        span, most = last - first + 1, max(s.live for s in snapshots)
        steps, level, left = "", 0, list(snapshots)
        for column in range(BAR):
            end = first + span // BAR * (column + 1) + span % BAR * (column + 1) // BAR
            here = []
            while left and left[0].time < end:
                here.append(left.pop(0).live)
            level = max(here) if here else level
            steps += chr(0x2581 + (int(level * 7 / most + 0.5) if most else 0))
            level = here[-1] if here else level  # the last one counts for empty columns
        self.put("bar", "", "live %s at most %s, from %s to %s" % (
            steps, bytes_text(most), ns_text(first), ns_text(last)))

    def capacity(self, most):
        if not self.capacities:
            return
        self.put("capacity", "", "capacity           total        free        self  unrecorded"
                 "      others       limit        held")
        for line in self.capacities[:most]:
            text = padded(str(line.physical.device), 12)
            text += "".join(size(v, 12) for v in (line.total, line.free, line.self, line.rest, line.others))
            self.put("capacity", text + size(line.physical.limit or None, 12) + size(line.physical.held, 12))
        self.more("capacity", len(self.capacities), most, "physical device")

    def tags(self, most):
        if not self.tag_lines:
            return
        self.put("tags", "", "        live        peak      blocks    expected    variance  tag")
        for tag in self.tag_lines[:most]:
            on = " on " + tag.device.name if len(self.ledger.devices) > 1 else ""
            self.put("tags", size(tag.live, 12) + size(tag.peak, 12) + number(tag.blocks, 12) +
                     size(tag.expected, 12) + difference(tag.variance, 12) + "  " + name(tag.name) + on)
        self.more("tags", len(self.tag_lines), most, "tag",
                  sum(tag.live for tag in self.tag_lines[most:]))

    def sites(self, most):
        shown_sites = self.ledger.site_lines(self.total)[:TOP_SITES]
        if not shown_sites:
            return
        shown_sites = shown_sites[:most]
        self.put("sites", "", "        live        peak      allocs   allocated  hotspots by %s: "
                 "%d of %d sites, %s live" % (
                     "peak" if self.ledger.by_peak(self.total) else "live", len(shown_sites),
                     len(self.ledger.sites) + sum(bool(d.arena) for d in self.ledger.devices),
                     bytes_text(sum(s.live for s in shown_sites))))
        for s in shown_sites:
            line = size(s.live, 12) + size(s.peak, 12) + number(s.allocs, 12) + \
                size(s.allocated, 12) + "  " + ("(arena)" if s.arena else site_name(s.site) +
                                                 self.callers(s.row))
            many = len(self.ledger.devices) > 1
            self.put("sites", line + (" on " + s.device.name if many else ""))

    def callers(self, row):
        found = self.ledger.callers(row)
        total = sum(c[5] for c in found)
        found = [c for c in found if c[5]] or found[:1]
        words = ["%s %s" % (site_name(c[0]), percent_text(100 * c[5] / (total or 1)))
                 for c in found[:CALLERS]]
        return (" < " if words else "") + ", ".join(words + ["..."] * (len(found) > CALLERS)) + \
            (" of samples" if words and self.sampled else "")

    def frames(self, row):
        sites = [self.ledger.code_site(f) for f in row.frames]
        found = [f for s in sites for f in s.functions or [s] if not f.library]
        places = [site_name(f) for f in (found or sites[:1])[:FRAMES]]
        return " < ".join(places + (["..."] if len(found) > FRAMES else [])) or "(unknown)"

    def estimates(self):
        """How the numbers of stacks are known, if that is by samples."""
        if not self.sampled:
            return ""
        return ", estimates: a sample each " + bytes_text(self.ledger.stack_bytes)

    def stacks(self):
        rows = self.ledger.stacks_shown()
        if not rows:
            return
        self.put("stacks", "", "hottest stacks%s: %d of %d%s%s" % (
            " at the peak" if self.ledger.by_peak(self.total) else "", min(len(rows), FIRST_STACKS), len(rows),
            self.estimates(),
            "; error: the standard error of live, -: no sample lives" if self.sampled else ""))
        self.put("stacks", "        live%s        peak     at peak      allocs   allocated" % (
            "       error" if self.sampled else ""))
        for row in rows[:FIRST_STACKS]:
            error = size(0 if row.live else None, 12) if self.sampled else ""
            self.put("stacks", size(row.live, 12) + error + size(row.peak, 12) +
                     size(row.held, 12) + number(row.allocs, 12) + size(row.allocated, 12) + "  " + self.frames(row))
        by_peak = self.ledger.by_peak(self.total)
        self.more("stacks", len(rows), FIRST_STACKS, "stack",
                  sum(row.held if by_peak else row.live for row in rows[FIRST_STACKS:]))
        if self.ledger.stacks_cut:
            self.put("stacks", "%d stacks could not be taken: they are one return address, or none"
                     % self.ledger.stacks_cut)

    def meta(self, meta):
        text = " " + name(meta.name) if meta and meta.name is not None else ""
        if meta and (meta.dtype is not None or meta.shape):
            text += " " + (name(meta.dtype) if meta.dtype is not None else "")
            text += "[%s]" % "x".join(map(str, meta.shape)) if meta.shape else ""
        return text

    def blocks(self, most, parts):
        shown_blocks = self.ledger.largest_blocks(100)[:most]
        if not shown_blocks:
            return
        self.put("blocks", "", "       bytes        refs  largest blocks: %d of %d, %s" % (
            len(shown_blocks), self.total["live_blocks"],
            bytes_text(sum(b.bytes for b in shown_blocks))))
        for block in shown_blocks:
            self.put("blocks", self.block(block))
            if parts:
                self.parts(block)

    def block(self, block):
        line = "%s%s  %s %s" % (size(block.bytes, 12), number(block.refs, 12), block.device.name,
                                address(block.storage))
        line += " [%s]" % name(block.tag.subject) if block.tag else ""
        line += self.meta(block.meta)
        line += " in " + name(block.scope.path) if block.scope else ""
        line += " on stream " + address(block.stream) if block.stream else ""
        line += "  " + site_name(block.site.subject) if block.site else ""
        return line + (" (pending)" if block.pending is not None else "")

    def parts(self, block):
        listed = [block.parts[offset] for offset in sorted(block.parts)]
        for part in listed[:8]:
            tag = " [%s]" % name(part.tag) if part.tag else ""
            self.put("blocks", "%s at %d%s%s" % (size(part.bytes, 26), part.offset, tag,
                                                 self.meta(part.meta)))
        if len(listed) > 8:
            self.put("blocks", "          ... and %s, %s in all" % (
                more_of(len(listed) - 8, "part"), bytes_text(sum(p.bytes for p in listed))))

    # -- in full --

    def balance(self, line):
        if line.total is None:
            return
        text = "%s: total %s = free %s + self %s%s" % (
            line.physical.device, bytes_text(line.total), bytes_text(line.free),
            bytes_text(line.self), self.balance_tags(line))
        text += " + context " + bytes_text(line.context) if line.context is not None else ""
        if line.unaccounted < 0:
            text += " - unaccounted %s (less is in use than these hold)" % bytes_text(
                -line.unaccounted)
        else:
            text += " + unaccounted " + bytes_text(line.unaccounted)
            if line.unaccounted and line.processes:
                text += " (others hold %s)" % bytes_text(line.others)
        if line.age is not None and line.age > 10 ** 9:
            text += ", sampled %s ago" % ns_text(line.age)
        self.put("balance", text)
        if line.processes:
            held = []
            for pid, count in line.processes:
                process = self.ledger.process_name(pid)
                held.append("pid %d%s holds %s" % (pid, " (%s)" % process if process else "",
                                                   bytes_text(count)))
            self.put("balance", "%s: others: %s" % (line.physical.device, ", ".join(held)))

    def balance_tags(self, line):
        left = line.self - line.untagged
        if not left:
            return ""
        on = self.ledger.on(line.physical)
        rows = [t for t in self.tag_lines[:TOP_TAGS]
                if t.tagged and t.device in on and t.live][:6]
        parts = ["%s %s" % (name(t.name), bytes_text(t.live)) for t in rows]
        left -= sum(t.live for t in rows)
        parts += ["other tags " + bytes_text(left)] if left else []
        parts += ["untagged " + bytes_text(line.untagged)] if line.untagged else []
        return " (%s)" % ", ".join(parts)

    def peak(self, device):
        held = device.holders
        if not held:
            return
        tags = [] if [tag for tag, _ in held.tags] == [None] else held.tags
        if not tags and not held.sites:
            return
        text = "at the peak of %s, " % device.name
        text += "with " + bytes_text(held.bytes) if held.bytes >= device.peak else \
            "noted at %s of %s" % (bytes_text(held.bytes), bytes_text(device.peak))
        if tags:
            text += "; by tag: " + ", ".join(
                "%s %s" % ("(untagged)" if tag is None else name(tag), bytes_text(count))
                for tag, count in tags[:6])
        if held.sites:
            text += "; by site: " + ", ".join("%s %s" % (site_name(place), bytes_text(count))
                                              for place, count in held.sites[:4])
        self.put("peaks", text)

    def troubles(self, device):
        stats, oom = device.stats(), device.oom
        if stats["pending"]:
            self.put("troubles", "pending, %s: %s of what is live are freed, and wait for the "
                     "device" % (device.name, bytes_text(stats["pending"])))
        if stats["gc_runs"] or stats["gc_failed"]:
            self.put("troubles", "collections, %s: %d ran, %d could not, reclaimed %s" % (
                device.name, stats["gc_runs"], stats["gc_failed"],
                bytes_text(stats["gc_reclaimed"])))
        if not stats["oom_attempts"]:
            return
        text = "out of memory, %s: %d attempts found none, %d requests saved, %d failed" % (
            device.name, stats["oom_attempts"], stats["recoveries"], stats["oom_failures"])
        if oom:
            text += "; the last of %s with live %s" % (bytes_text(oom.bytes), bytes_text(oom.live))
            text += ", used " + bytes_text(oom.used) if oom.used is not None else ""
            text += " at " + site_name(oom.site) if oom.site else ""
        self.put("troubles", text)

    def pool(self, device):
        stats = device.stats()
        served = stats["cache_hits"] + stats["cache_misses"]
        if not stats["reserved_peak"] and not served:
            return
        parts = []
        if stats["reserved_peak"]:
            free = stats["cached"]
            ratio = free / stats["reserved"] if stats["reserved"] else 0
            pieces = None
            if stats["largest_free"] is not None:
                pieces = min(max(1 - stats["largest_free"] / free, 0), 1) * 100 if free else 0
            parts.append("reserved %s (peak %s), cached %s or %s, fragmentation %s" % (
                bytes_text(stats["reserved"]), bytes_text(stats["reserved_peak"]),
                bytes_text(free), percent_text(ratio * 100), percent_text(pieces)))
        if served:
            parts.append("hit_rate %s: hits %d, misses %d" % (
                percent_text(stats["cache_hits"] / served * 100), stats["cache_hits"],
                stats["cache_misses"]))
        if stats["refused"]:
            parts.append("calls refused %d" % stats["refused"])
        self.put("pools", "pool, %s: %s" % (device.name, ", ".join(parts)))

    def rates(self, device):
        s, parts = device.stats(), []
        for rate, part, rest in (("recovery_rate", s["recoveries"], s["oom_failures"]),
                                 ("success_rate", s["allocs"], s["oom_failures"])):
            if part + rest:
                parts.append("%s %s" % (rate, percent_text(part / (part + rest) * 100)))
        if s["allocs"]:
            parts.append("%s an alloc" % bytes_text(s["total_allocated"] // s["allocs"]))
        if parts:
            self.put("rates", "rates, %s: %s" % (device.name, ", ".join(parts)))

    def ages(self, device):
        sizes, lifetimes = self.ledger.sizes(device), self.ledger.lifetimes(device)
        if sizes:
            self.put("ages", "sizes of live blocks, %s: %s" % (device.name, ", ".join(
                "%d from %s" % (count, bytes_text(start)) for start, count in sizes)))
        if lifetimes is not None:
            self.put("ages", "lifetimes, %s: %d under 0.1 s, %d under 1 s, %d under 10 s, "
                     "%d longer" % (device.name, *lifetimes))

    def anomalies(self, where, counts):
        if counts:
            self.put("anomalies", "anomalies and drops, %s %s" % (where, self.listed(counts)))

    def mistakes(self):
        mistakes = self.ledger.mistakes_by_weight()
        if not mistakes:
            return
        self.put("mistakes", "", "       count       bytes       first        last  mistakes, the "
                 "heaviest first")
        for m in mistakes:
            line = number(m.count, 12) + size(m.bytes, 12) + ns_text(m.first).rjust(12)
            line += ns_text(m.last).rjust(12) + "  %s, %s" % (m.kind, m.device)
            line += " " + address(m.storage) if m.storage else ""
            line += ", at " + site_name(m.site) if m.site else ""
            line += ", born at " + site_name(m.born) if m.born else ""
            self.put("mistakes", line + (" [%s]" % name(m.tag) if m.tag else ""))
        if self.ledger.mistakes_more:
            self.put("mistakes", "... and %d more at other sites" % self.ledger.mistakes_more)

    def snapshots(self):
        snapshots = self.ledger.snapshots_shown()
        named = [s for s in snapshots if s.name]
        if not snapshots:
            return
        line = "snapshots: %d, checkpoints %d" % (len(snapshots), len(named))
        if named:
            line += ", most at " + name(max(named, key=lambda s: s.live).name)
        self.put("snapshots", "", line)
        for s in named if len(named) <= 20 else []:
            self.put("snapshots", "%s%s%s blocks  %s" % (
                ns_text(s.time).rjust(12), size(s.live, 12), number(s.count, 11), name(s.name)))

    def scopes(self):
        lines = self.ledger.scope_lines()
        if not lines:
            return
        self.put("scopes", "", "   count  delta in all   delta avg  peak inside        live"
                 "   time in all    time avg  scope; live is exclusive: without inner scopes")
        for scope, live in lines[:TOP_SITES]:
            self.put("scopes", self.scope(scope, live))
        self.more("scopes", len(lines), TOP_SITES, "scope",
                  sum(live for _, live in lines[TOP_SITES:]))

    def scope(self, scope, live):
        runs = scope.runs()
        delta, time, n = sum(r.bytes for r in runs), sum(r.ns for r in runs), len(runs)

        def signed(value, width):
            text = ("-" if value < 0 else "+" if value else "") + bytes_text(abs(value))
            return text.rjust(width)
        text = number(n, 8) + signed(delta, 14) + signed(average(delta, n), 12)
        text += size(highest(runs), 13) + size(live, 12)
        text += ns_text(time).rjust(14) + ns_text(average(time, n)).rjust(12)
        text += "  " + name(scope.path)
        text += ", on its device " + ns_text(scope.device_ns) if scope.device_ns else ""
        return text + (" (running)" if scope.running() else "")

    def leaks(self):
        ledger, found = self.ledger, self.ledger.leaks()
        if not (ledger.mark_now or ledger.by_peak(ledger.total())) or not found:
            return
        self.put("leaks", "", "       bytes      blocks  %s: %s" % (
            "leaks since mark %d" % ledger.mark_now if ledger.mark_now else "still live, and no mark was set", amount(sum(b.bytes for b in found), len(found))))
        sites = ledger.leak_sites()
        for leak in sites[:LEAKS]:
            self.put("leaks", size(leak.bytes, 12) + number(leak.count, 12) + "  " + self.leak_site(leak))
            differ = len(leak.devices) > 1 or len(leak.tags) > 1 or len(leak.scopes) > 1
            for group in leak.groups[:LEAK_GROUPS] if differ else []:
                line = size(group.bytes, 12) + number(group.count, 12) + "      " + group.device.name
                line += " [%s]" % name(group.tag.subject) if group.tag else ""
                self.put("leaks", line + (" in " + name(group.scope.path) if group.scope else ""))
        if len(sites) > LEAKS:
            self.put("leaks", "... and %s, %s" % (
                more_of(len(sites) - LEAKS, "site"), amount(sum(s.bytes for s in sites[LEAKS:]), sum(s.count for s in sites[LEAKS:]))))
        stacks = ledger.stack_leaks()
        if not stacks:
            return
        self.put("leaks", "", "       bytes      blocks  %s by stack" % ("leaks" if ledger.mark_now else "still live,") + self.estimates())
        for leak in stacks[:FIRST_STACKS]:
            self.put("leaks", size(leak.bytes, 12) + number(leak.count, 12) + "  " +
                     self.frames(leak.row))
        self.more("leaks", len(stacks), FIRST_STACKS, "stack",
                  sum(leak.bytes for leak in stacks[FIRST_STACKS:]))

    def routes(self):
        used = [r for r in self.ledger.routes if r.moves or r.copies]
        if used:
            self.put("routes", "",
                     "       moves       bytes      copies       bytes  from, to")
        for r in used:
            self.put("routes", number(r.moves, 12) + size(r.moved_bytes, 12) +
                     number(r.copies, 12) + size(r.copied_bytes, 12) +
                     "  %s, %s" % (r.source.name, r.target.name))

    def accounts(self):
        ledger, lines = self.ledger, self.ledger.largest_accounts()
        if not lines:
            return
        self.put("accounts", "", "       bytes        peak       limit     refused  accounts: "
                 "%d of %d" % (len(lines), len(ledger.accounts)))
        for a in lines:
            self.put("accounts", size(a.bytes, 12) + size(a.peak, 12) + size(a.limit or None, 12) +
                     number(a.refused, 12) + "  %s on %s" % (name(a.name), a.device.name))

    def streams(self):
        lines = self.ledger.stream_lines()
        if not lines:
            return
        self.put("streams", "", "       bytes      blocks  streams: %d of %d" % (
            min(len(lines), 20), len(lines)))
        for s in lines[:20]:
            self.put("streams", size(s.bytes, 12) + number(s.blocks, 12) + "  %s on %s" % (
                address(s.stream), s.device.name))
        rest = lines[20:]
        if rest:
            self.put("streams", size(sum(s.bytes for s in rest), 12) +
                     number(sum(s.blocks for s in rest), 12) + "  on others")

    def growth(self):
        lines = self.ledger.growth()
        if lines:
            self.put("growth", "", "growth: by 1 MiB a minute or 1 % of the capacity, by a line through at least 8 "
                     "snapshots and 1 s with R2 >= 0.8", "    a minute   snapshots       since       R2")
        for rate, first, points, fit, kind, device, row in lines[:20]:
            what = {"tags": "  tag " + (name(row.subject) if row else "(untagged)") if kind == "tags" else "",
                    "sites": "  site " + site_name(row and row.subject) if kind == "sites" else ""}.get(kind, "")
            self.put("growth", size(rate, 12) + number(points, 12) +
                     ns_text(self.ledger.snapshots_shown()[first].time).rjust(12) + "    " +
                     fixed(int(fit * 1000 + 0.5), 3) + what + "  " + device.name)
        self.more("growth", len(lines), 20, "line")

    # -- the whole --

    def first_screen(self):
        ledger, self.first = self.ledger, True
        self.put("header", "MemLord %s  %s" % (ledger.version, process_text(ledger, NAME)))
        if arguments(ledger):
            self.put("header", "arguments: " + arguments(ledger, ARGUMENTS))
        self.verdicts()
        for subject, sentence in self.sentences[:FIRST_SENTENCES]:
            self.put(subject, sentence)
        if len(self.sentences) > FIRST_SENTENCES:
            self.put("header", "... and %s below" % more_of(len(self.sentences) - FIRST_SENTENCES, "sentence"))
        if ledger.labels:
            self.put("labels", "labels: " + shown(ledger.labels))
        own = "its own memory %s" % bytes_text(ledger.own["TEXT"])
        if not ledger.devices:
            self.put("header", "nothing recorded")
            self.put("header", own)
            return
        self.devices(FIRST_DEVICES)
        self.put("header", own)
        self.bar()
        self.capacity(FIRST_PHYSICAL)
        self.tags(FIRST_TAGS)
        self.sites(FIRST_SITES)
        self.stacks()
        self.blocks(FIRST_BLOCKS, False)
        self.in_full()

    def in_full(self):
        ledger, self.first = self.ledger, False
        self.put("header", "", "---- in full ----")
        for subject, sentence in self.sentences[FIRST_SENTENCES:]:
            self.put(subject, sentence)
        if len(ledger.devices) > FIRST_DEVICES:
            self.devices(len(ledger.devices))
        if len(self.capacities) > FIRST_PHYSICAL:
            self.capacity(len(self.capacities))
        self.put("balance", "")
        for line in self.capacities:
            self.balance(line)
        for device in ledger.devices:
            self.peak(device)
            self.troubles(device)
            self.pool(device)
            self.rates(device)
            self.ages(device)
            if len(ledger.devices) > 1:
                self.anomalies(device.name, self.counts(device))
        self.anomalies("all", self.counts(None))
        self.mistakes()
        self.snapshots()
        self.growth()
        self.scopes()
        self.leaks()
        self.routes()
        self.accounts()
        self.streams()
        if len(self.tag_lines) > FIRST_TAGS:
            self.tags(TOP_TAGS)
        if len(self.ledger.site_lines(self.total)) > FIRST_SITES:
            self.sites(TOP_SITES)
        blocks = ledger.largest_blocks(100)
        if len(blocks) > FIRST_BLOCKS or any(b.parts for b in ledger.blocks.values()):
            self.blocks(20, True)
        if ledger.modules:
            self.put("modules", "", padded("build id", 40) + "  module of return addresses")
        for module in ledger.modules:
            self.put("modules", "%-40s  %s" % (shown(module.build_id), name(module.path)))

    def compare(self, found, check, head=""):
        """Compares with the lines of a file."""
        for subject, _ in self.lines:
            check.compared[head + subject] += 1
        wanted = [line for _, line in self.lines]
        matcher = difflib.SequenceMatcher(None, wanted, found, autojunk=False)
        for kind, i, j, k, m in matcher.get_opcodes():
            for n in range(max(j - i, m - k) if kind != "equal" else 0):
                owner = self.lines[min(i + n, len(wanted) - 1)][0]
                check.differs(head + owner, "line %d" % (k + n + 1),
                              wanted[i + n] if i + n < j else "no such line",
                              found[k + n] if k + n < m else "no such line")


def compare(ledger, data, check):
    report = Report(ledger)
    report.first_screen()
    found = re.sub("(misplaced_end, all, at play.0x)[0-9a-f]+", r"\1", data.decode()).split("\n")
    check.same("header", "the last line", "", found.pop())
    report.compare(found, check)
