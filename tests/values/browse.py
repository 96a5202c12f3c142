"""browse.py PLAYER DIRECTORY: plays every script with PLAYER (play.c), opens the page of each in
Chromium, and compares the figures that it shows with those of the model. Speaks TAP, one test a
part of the page. The environment is that of figures.js: CHROMIUM and NODE_PATH."""

import json
import os
import re
import subprocess
import sys

import figures
import operations
import page_report
from check import SCRIPTS, Check, Tap, played
from script import FORMATS as NAMES

SUBJECTS = ("title", "answers", "figures", "cards", "tables", "inner", "leaks", "mistakes", "about")


def shown(pages):
    """What the browser shows of each page."""
    script = os.path.join(os.path.dirname(__file__), "figures.js")
    return json.loads(subprocess.run(["node", script, *pages], capture_output=True, check=True,
                                     timeout=300).stdout)


def without_places(found):
    """Takes off where in the player a call is, as json_report.parsed does."""
    for row in found["tables"].get("mistakes", {"rows": []})["rows"]:
        for cell in row if row[0][0] == "misplaced_end" else []:
            cell[:] = [re.sub("^(play.0x)[0-9a-f]+$", r"\1", text) for text in cell]


def own_bytes(found):
    """The bytes of MemLord's own memory that the page shows: only their range is known."""
    row = next(row for row in found["about"] if row[0].endswith("own memory"))
    return int("".join(c for c in row[2] if c.isdigit()))


def main(player, directory):
    ledgers = {name: played(make(), player, "%s/%s" % (directory, name))[0]
               for name, make in SCRIPTS if "HTML" in operations.FORMATS.get(name, NAMES)}
    pages = {name: "%s/%s.html" % (directory, name) for name in ledgers}
    for name, page in pages.items():
        os.rename("%s/%s/HTML" % (directory, name), page)
    check, tap = Check(SUBJECTS), Tap()
    for name, found in zip(ledgers, shown(pages.values())):
        check.script = name
        without_places(found)
        report = page_report.expected(ledgers[name])
        own, memory = report["metadata"]["own_bytes"], own_bytes(found)
        report["metadata"]["own_bytes"] = memory if own.least <= memory <= own.most else own.least
        wanted = figures.expected(report)
        for subject in SUBJECTS:
            check.same(subject, subject, wanted[subject], found[subject])
        check.same(SUBJECTS[0], "parts", sorted(wanted), sorted(found))
    tap.verdicts("page", check)
    print("1..%d" % tap.count)
    return tap.failed > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
