"""HTML: the JSON that the page carries is built from the model and compared leaf by leaf, and so is
the text that it shows where no script runs. The figures that the page computes from that JSON are
compared in the browser."""

import base64
import hashlib
import zlib

import json_report
import text_report
from books import Between
from notation import process_text
from phases import KINDS

TEXT_SUBJECTS = ("text: header", "text: out of memory", "text: limits", "text: full devices", "text: leaks in a line",
                 "text: growth in a line", "text: peaks in a line",
                 "text: holders",
                 "text: anomalies", "text: mistakes", "text: troubles", "text: pools", "text: devices")
SUBJECTS = TEXT_SUBJECTS + ("policy",) + tuple(s for s in json_report.SUBJECTS
                                 if not s.startswith(("operation_", "late")))
LOW_52 = (1 << 52) - 1


def between(data, start, end):
    """What is between two strings, each of which the page has once."""
    if data.count(start) != 1:
        raise ValueError("%r comes %d times" % (start, data.count(start)))
    rest = data.split(start)[1]
    return rest[:rest.index(end)]


def events(ledger):
    """The events as a page has them: times and storages are differences to the event before, and
    that of a scope has only its kind, thread and scope."""
    found, time, storage = [], 0, 0
    for line, e in zip(json_report.events(ledger)["list"], ledger.events):
        short = [e.time - time] + line[1:9]
        time = e.time
        if e.kind in ("scope_begin", "scope_end"):
            short = short[:3] + [e.scope]
        elif e.storage:
            short[4] = (e.storage & LOW_52) - storage
            storage = e.storage & LOW_52
        found.append(short)
    return {"capacity": ledger.event_capacity, "lost": ledger.total()["dropped_events"],
            "brief": True, "kinds": list(KINDS), "list": found, "recorded": len(found)}


def expected(ledger):
    document = json_report.expected(ledger)
    own = ledger.own["HTML"]  # when the page began: the writer takes memory of its own after that
    document["metadata"]["own_bytes"] = Between(own, own + (1 << 16))
    document["events"] = events(ledger)
    del document["operation_allocations"], document["operation_summary"]
    for stack in document["stacks"]["list"]:
        del stack["temporaries"]
    return document


def compare_text(ledger, text, check):
    report = text_report.Report(ledger, page=True)
    report.put("header", process_text(ledger))
    report.verdicts()
    for subject, sentence in report.sentences:
        report.put(subject, sentence)
    report.devices(len(ledger.devices))
    found = text.split("\n")
    check.same("text: devices", "the last line", "", found.pop())
    report.compare(found, check, "text: ")


def compare_policy(page, check):
    """A browser takes only what the policy has the digests of: the first style, the style and
    the script that come packed, and the script that unpacks them."""
    def element(name):
        return between(page, "<%s>" % name, "</%s>" % name.split()[0])

    def digest(data):
        return "'sha256-%s'" % base64.b64encode(hashlib.sha256(data).digest()).decode()
    policy = between(page, '"Content-Security-Policy" content="', '"')
    packed = zlib.decompress(base64.b64decode(element('script type="text/plain" id="packed"')))
    style, _, script = packed.split(b"\0")
    for what, found in (("style", [element("style").encode(), style]),
                        ("script", [script, element("script").encode()])):
        check.same("policy", what, between(policy, what + "-src ", ";").split(),
                   [digest(data) for data in found])
    check.same("policy", "the ends of the page", ("<!DOCTYPE html>\n<html", "</html>\n"),
               (page[:21], page[-8:]))


def compare(ledger, data, check):
    page = data.decode()
    compare_policy(page, check)
    compare_text(ledger, between(page, "<pre>", "</pre>"), check)
    text = between(page, '<script type="application/json" id="profile">', "</script>")
    wanted, found = expected(ledger), json_report.parsed(text.encode())
    for key in wanted:
        check.same(key, key, wanted[key], found.get(key))
    check.same("keys", "", list(wanted), list(found))
