"""PROMETHEUS: the text exposition format 0.0.4. Compares every family, in its order, with its HELP
and TYPE, and every sample of it with its labels; numbers as they are written."""
import re

from json_report import rate, site_text
from notation import HOST, PID, PROGRAM, WALL_AT_0, fixed, shown
from phases import highest

SUBJECTS = ("families", "devices", "rates", "out of memory", "capacity", "tags", "peak holders",
            "routes", "scopes", "ledger")
NAME = "[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? (\S+)")


def unescaped(text):
    return re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], text)


def read(data):
    """Returns {family: {"help", "type", "samples": {labels: number as it is written}}}. A family in
    two pieces, a series that comes twice and a sample outside its family raise ValueError."""
    families, family = {}, None
    text = data.decode()
    if not text.endswith("\n"):
        raise ValueError("the last line does not end")
    lines = iter(text[:-1].split("\n"))
    for line in lines:
        if line.startswith("# HELP "):
            _, _, family, help_text = line.split(" ", 3)
            mark, word, name, kind = next(lines).split(" ")
            if (mark, word, name) != ("#", "TYPE", family) or family in families:
                raise ValueError(line)
            families[family] = {"help": help_text, "type": kind, "samples": {}}
            continue
        sample = SAMPLE.fullmatch(line)
        if not sample or sample[1] != family:
            raise ValueError(line)
        labels = tuple((k, unescaped(v)) for k, v in re.findall(LABEL, sample[2] or ""))
        samples = families[family]["samples"]
        if labels in samples:
            raise ValueError(f"{line}: a series that comes twice")
        samples[labels] = sample[sample.lastindex]
    return families


# -- what a ledger says: families by subject, name and help; samples are (labels, number) --

DEVICES = (
    ("allocated", "live_bytes", "bytes live, pending included"),
    ("pending", "pending_bytes", "bytes live that wait for their device"),
    ("freed", "freed_since_gc_bytes", "bytes credited since the last collection or reset"),
    ("peak", "peak_bytes", "highest allocated; never high, low by at most peak_error"),
    ("peak_error", "peak_error_bytes", "bytes the peak may be low by"),
    ("live_blocks", "live_blocks", "storages live"),
    ("allocs", "allocs_total", "storages opened"),
    ("frees", "frees_total", "storages closed"),
    ("total_allocated", "allocated_bytes_total", "bytes ever added, growth included"),
    ("total_freed", "freed_bytes_total", "bytes ever credited, shrinkage included"),
    ("moves", "moves_total", "storages that arrived by memlord_move"),
    ("moved_bytes", "moved_bytes_total", "bytes that arrived by memlord_move"),
    ("reserved", "reserved_bytes", "bytes the host's pool holds"),
    ("reserved_peak", "reserved_peak_bytes", "highest reserved"),
    ("cached", "cached_bytes", "reserved and not allocated"),
    ("largest_free", "largest_free_bytes", "largest free piece of the host's pool"),
    ("cache_hits", "cache_hits_total", "requests the host's pool served"),
    ("cache_misses", "cache_misses_total", "requests it passed on"),
    ("gc_runs", "gc_runs_total", "collections that ran"),
    ("gc_failed", "gc_failures_total", "collections that did not"),
    ("gc_reclaimed", "gc_reclaimed_bytes_total", "bytes they gave back"),
    ("oom_attempts", "oom_attempts_total", "attempts that found no memory"),
    ("oom_failures", "oom_failures_total", "requests that found none in the end"),
    ("retries", "retries_total", "attempts after the first"),
    ("recoveries", "recoveries_total", "requests saved by a retry"),
    ("implicit_frees", "implicit_frees_total", "allocs over a live storage"),
    ("unknown_frees", "unknown_frees_total", "frees of a storage not live"),
    ("freed_while_shared", "freed_while_shared_total", "frees of a storage with views"),
    ("underflows", "underflows_total", "arena_sub below the balance"),
    ("fence_failures", "fence_failures_total", "fences that failed"),
    ("dropped_allocs", "dropped_allocs_total", "allocs there was no room for, in the map or among devices"),
    ("dropped_bytes", "dropped_bytes_total", "their bytes"),
    ("dropped_sites", "dropped_sites_total", "sites, tags or stacks without room"),
    ("dropped_events", "dropped_events_total", "events the ring had no room for"),
    ("reallocs", "reallocs_total", "storages resized"),
    ("copies", "copies_total", "memlord_copy to this device"),
    ("copied_bytes", "copied_bytes_total", "bytes they copied"),
    ("refused", "refused_total", "calls with a bad argument, ticket or account"))
PLACES = (
    ("capacity_bytes", "bytes of a physical device", lambda l: l.total),
    ("capacity_used_bytes", "bytes of it in use, whoever uses them", lambda l: l.used),
    ("self_bytes", "bytes of it the ledger knows; files mapped are not in it", lambda l: l.self),
    ("process_rest_bytes", "bytes of it this process uses and the ledger does not know", lambda l: l.rest),
    ("context_bytes", "bytes of it the driver holds for this process", lambda l: l.context),
    ("others_bytes", "bytes of it others use", lambda l: l.others),
    ("unaccounted_bytes", "capacity_used_bytes - self_bytes - context_bytes - neighbour_bytes; may be below 0",
     lambda l: l.unaccounted),
    ("limit_bytes", "bytes allowed of it; no sample: no limit", lambda l: l.physical.limit or None),
    ("held_bytes", "bytes of it that tickets keep", lambda l: l.physical.held),
    ("capacity_age_seconds", "age of these samples", lambda l: seconds(l.age)))
TAGS = (
    ("tag_bytes", "bytes live by what they are for; an empty tag: those without one", lambda r: r.live),
    ("tag_peak_bytes", "highest tag_bytes; of the rest: the sum of these", lambda r: r.peak),
    ("tag_blocks", "storages live by what they are for", lambda r: r.blocks),
    ("tag_expected_bytes", "bytes planned for a tag", lambda r: r.expected or None),
    ("tag_variance_bytes", "tag_bytes - tag_expected_bytes; may be below 0",
     lambda r: r.live - r.expected if r.expected else None))
SCOPES = (
    ("scope_invocations_total", "invocations of a scope that are over", lambda s: len(s.runs())),
    ("scope_running", "invocations of a scope that are not", lambda s: s.running()),
    ("scope_seconds_total", "time of the host in a scope", lambda s: seconds(sum(r.ns for r in s.runs()))),
    ("scope_delta_bytes", "bytes a scope allocated less those it freed; may be below 0",
     lambda s: sum(r.bytes for r in s.runs())),
    ("scope_peak_bytes", "highest in one invocation, above where that began",
     lambda s: highest(s.runs())))
ROUTES = (
    ("pair_moves_total", "storages moved between two devices", lambda r: r.moves),
    ("pair_moved_bytes_total", "bytes moved between two devices", lambda r: r.moved_bytes),
    ("pair_copies_total", "copies between two devices", lambda r: r.copies),
    ("pair_copied_bytes_total", "bytes copied between two devices", lambda r: r.copied_bytes))
OOMS = (
    ("last_oom_bytes", "bytes the last request that found no memory wanted", lambda o: o.bytes),
    ("last_oom_live_bytes", "bytes live then", lambda o: o.live),
    ("last_oom_used_bytes", "bytes of its physical device in use then", lambda o: o.used))
LOSSES = (("dropped_scopes", "scopes there was no room for"),
          ("dropped_scope_invocations", "invocations of scopes no longer kept"),
          ("dropped_snapshots", "snapshots no longer kept"),
          ("dropped_exports", "exports that failed"))
BUFFER = 2048  # bytes that the library collects before it calls the host's function
NAMED = 100  # tags of a device, and scopes, that have series of their own
OWN = ("device", "tag", "scope", "rest", "site", "from", "to", "version")  # labels of samples


def seconds(ns):
    return None if ns is None else fixed(ns, 9)


class OtherScopes:
    """The scopes without series of their own."""

    def __init__(self, scopes):
        self.scopes = scopes

    def runs(self):
        return [run for s in self.scopes for run in s.runs()]

    def running(self):
        return sum(s.running() for s in self.scopes)


def rest(key):
    return [(key, ""), ("rest", "1")]


def own_labels(ledger):
    """The labels of the ledger that a sample may have, each once."""
    found = {}
    for one in (ledger.labels or b"").split(b","):
        name, equals, value = one.lstrip(b" ").partition(b"=")
        good = re.fullmatch(rb"(?!__)[a-zA-Z_][a-zA-Z0-9_]*", name)
        if equals and good and name.decode() not in OWN:
            found.setdefault(name.decode(), shown(value))
    return tuple(found.items())


class Metrics:
    def __init__(self, ledger):
        self.ledger, self.labels = ledger, own_labels(ledger)
        self.subjects = {subject: {} for subject in SUBJECTS}

    def family(self, subject, name, help, samples):
        """Adds a family of (labels, number); a number that is not known has no sample."""
        known = {tuple(labels) + self.labels: str(n) for labels, n in samples if n is not None}
        if known:
            self.subjects[subject]["memlord_" + name] = {
                "help": help, "type": "counter" if name.endswith("_total") else "gauge", "samples": known}

    def devices(self):
        devices, total = self.ledger.devices, self.ledger.total()
        stats = {d: d.stats() for d in devices}
        for key, name, help in DEVICES:
            samples = [([("device", d.name)], stats[d][key]) for d in devices]
            if key in self.ledger.lost:
                rest = total[key] - sum(stats[d][key] for d in devices)
                samples.append(([], rest or None))
            if devices:
                self.family("devices", name, help, samples)
                self.subjects["devices"].setdefault("memlord_" + name, {
                    "help": help, "type": "gauge", "samples": {}})
        for name, help, part, rest in (
                ("hit_ratio", "requests that the pool served, of all", "cache_hits", "cache_misses"),
                ("recovery_ratio", "requests saved by a retry, of those that found no memory at first",
                 "recoveries", "oom_failures"),
                ("success_ratio", "allocations that found memory, of all", "allocs", "oom_failures")):
            self.family("rates", name, help, [([("device", d.name)], rate(stats[d][part], stats[d][rest]))
                                              for d in devices])
        self.family("rates", "mean_bytes", "bytes of an alloc in the mean", [
            ([("device", d.name)], s["total_allocated"] // s["allocs"] if s["allocs"] else None)
            for d, s in stats.items()])

    def ooms(self):
        for name, help, of in OOMS:
            self.family("out of memory", name, help, [
                ([("device", d.name)] + ([("site", site_text(d.oom.site))] if d.oom.site else []), of(d.oom))
                for d in self.ledger.devices if d.oom])

    def tags(self):
        ledger = self.ledger
        for name, help, of in TAGS:
            samples = []
            for d in ledger.devices:
                rows = [row for row in ledger.tags if row.device is d]
                samples += [([("device", d.name), ("tag", shown(row.subject))], of(row)) for row in rows[:NAMED]]
                others = [of(row) for row in rows[NAMED:] if of(row) is not None]
                samples.append(([("device", d.name)] + rest("tag"), sum(others) if others else None))
            if name == "tag_bytes":
                samples += [([("device", d.name), ("tag", "")], d.live - sum(
                    row.live for row in ledger.tags if row.device is d)) for d in ledger.devices]
            self.family("tags", name, help, samples)

    def holders(self):
        samples = []
        for d in self.ledger.devices:
            if d.holders:
                own = [row.subject for row in self.ledger.tags if row.device is d][:NAMED]
                tagged = [(tag, bytes) for tag, bytes in d.holders.tags if tag in own]
                samples += [([("device", d.name), ("tag", shown(tag))], bytes) for tag, bytes in tagged]
                samples.append(([("device", d.name), ("tag", "")],
                                d.holders.bytes - sum(bytes for _, bytes in tagged)))
        self.family("peak holders", "peak_holder_bytes", "bytes live by tag when the peak was last looked at", samples)

    def whole_ledger(self):
        ledger, lost = self.ledger, self.ledger.losses()
        for name, help in LOSSES:
            self.family("ledger", name + "_total", help, [([], lost[name])])
        self.family("ledger", "accounts_open", "accounts open now", [([], len(ledger.accounts))])
        self.family("ledger", "own_bytes", "bytes the ledger itself takes", [([], ledger.own["PROMETHEUS"])])
        self.family("ledger", "uptime_seconds", "age of the ledger", [([], seconds(ledger.now - ledger.started))])
        self.family("ledger", "written_timestamp_seconds", "Unix time of these samples",
                    [([], seconds(WALL_AT_0 + ledger.now))])
        self.family("ledger", "start_time_seconds", "Unix time when the ledger was made",
                    [([], seconds(WALL_AT_0 + ledger.started))])
        own = [("program", shown(PROGRAM)), ("host", shown(HOST)), ("pid", str(PID))]
        self.family("ledger", "info", "1, with the process that these samples are of",
                    [([("version", ledger.version)] + [label for label in own if label[0] not in dict(self.labels)], 1)])

    def whole(self):
        ledger = self.ledger
        self.devices()
        self.ooms()
        for name, help, of in PLACES:
            self.family("capacity", name, help, [
                ([("device", str(line.physical.device))], of(line)) for line in ledger.capacity_lines()])
        self.tags()
        self.holders()
        for name, help, of in ROUTES:
            self.family("routes", name, help, [
                ([("from", r.source.name), ("to", r.target.name)], of(r))
                for r in ledger.routes if r.moves or r.copies])
        for name, help, of in SCOPES:
            samples = [([("scope", shown(s.path))], of(s)) for s in ledger.scopes[:NAMED]]
            if len(ledger.scopes) > NAMED:
                samples.append((rest("scope"), of(OtherScopes(ledger.scopes[NAMED:]))))
            self.family("scopes", name, help, samples)
        self.whole_ledger()
        return self.subjects


def compare(ledger, data, check):
    wanted, found = Metrics(ledger).whole(), read(data)
    own = wanted["ledger"]["memlord_own_bytes"]["samples"]
    if len(data) < BUFFER:  # the player looked at the ledger's memory when the writer had ended
        for labels, value in found["memlord_own_bytes"]["samples"].items():
            check.same("ledger", "the writer's memory", True, 0 <= int(value) - int(own[labels]) < 1 << 16)
            own[labels] = value
    check.same("families", "families", [name for families in wanted.values() for name in families], list(found))
    for subject in SUBJECTS[1:]:
        check.same(subject, subject, wanted[subject], {
            name: found[name] for name in wanted[subject] if name in found})
