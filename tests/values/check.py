"""check.py PLAYER DIRECTORY: plays every script of operations.py with PLAYER (play.c), which writes
the reports into DIRECTORY, and compares the reports with the model. Speaks TAP, one test a subject.

A format is a module in FORMATS. It has

    SUBJECTS                       the names of its tests: every one must compare something
    compare(ledger, data, check)   `ledger` is the played model (model.py), `data` the bytes of the
                                   file; for each figure it calls
                                   check.same(subject, where, expected, found), which compares
                                   lists and dictionaries leaf by leaf, types included

or check.differs(subject, where, expected, found) for a difference that it has found itself. What a
report has and the module does not compare is its fault: it looks at every key, column, metric and
table that the file has.
"""

import os
import re
import subprocess
import sys
import traceback

import csv_report
import folded_report
import heaptrack_report
import json_report
import memory_viz_report
import operations
import operations_formats
import page_report
import pprof_report
import prometheus_report
import text_report
import timeline_report
import trace_report
from model import Between, Ledger, Program
from notation import ARGUMENTS, PROGRAM
from script import FORMATS as NAMES

FORMATS = (("TEXT", text_report), ("JSON", json_report), ("HTML", page_report),
           ("TRACE", trace_report), ("PROMETHEUS", prometheus_report), ("PPROF", pprof_report),
           ("HEAPTRACK", heaptrack_report), ("FOLDED", folded_report.LIVE),
           ("MEMORY_VIZ", memory_viz_report), ("CSV", csv_report),
           ("FOLDED_PEAK", folded_report.PEAK), ("FOLDED_ALLOCATED", folded_report.ALLOCATED),
           ("TIMELINE", timeline_report))
RESIDENT = 123_456 << 10  # what /proc says of the player
NEIGHBOUR = "train.py"    # and of process 777
SCRIPTS = operations.SCRIPTS + operations_formats.SCRIPTS
MOST = 12  # differences of a test that are shown


class Check:
    """The differences that a format found in all scripts, by subject."""

    def __init__(self, subjects):
        self.script = ""
        self.found = {subject: [] for subject in subjects}
        self.compared = dict.fromkeys(subjects, 0)

    def differs(self, subject, where, expected, found):
        self.found.setdefault(subject, []).append(
            "%s: %s: expected %r, found %r" % (self.script, where, expected, found))

    def same(self, subject, where, expected, found):
        self.compared[subject] = self.compared.get(subject, 0) + 1
        if isinstance(expected, dict) and isinstance(found, dict):
            for key in list(expected) + [key for key in found if key not in expected]:
                if key not in expected:
                    self.differs(subject, "%s.%s" % (where, key), "no such key", found[key])
                elif key not in found:
                    self.differs(subject, "%s.%s" % (where, key), expected[key], "no such key")
                else:
                    self.same(subject, "%s.%s" % (where, key), expected[key], found[key])
        elif isinstance(expected, list) and isinstance(found, list):
            for i, (one, other) in enumerate(zip(expected, found)):
                self.same(subject, "%s[%d]" % (where, i), one, other)
            if len(expected) != len(found):
                i = min(len(expected), len(found))
                self.differs(subject, "%s has %d entries, expected %d; the first that only one has"
                             % (where, len(found), len(expected)), expected[i:i + 1],
                             found[i:i + 1])
        elif isinstance(expected, Between):
            if type(found) is not int or not expected.least <= found <= expected.most:
                self.differs(subject, where, expected, found)
        elif type(expected) is not type(found) or expected != found:
            self.differs(subject, where, expected, found)


def play(player, script, directory):
    """Plays a script, with files in place of those in /proc. Returns what the player printed, a
    line an operation."""
    os.makedirs(directory + "/root/proc/self/ns")
    os.makedirs(directory + "/root/proc/777")
    os.symlink(b"/opt/" + PROGRAM, directory + "/root/proc/self/exe")
    os.symlink("pid:[4026531836]", directory + "/root/proc/self/ns/pid")  # the first namespace
    for path, text in (("self/status", "Name:\tx\nVmRSS:\t   %d kB\n" % (RESIDENT >> 10)),
                       ("777/comm", NEIGHBOUR + "\n")):
        with open("%s/root/proc/%s" % (directory, path), "w") as file:
            file.write(text)
    with open(directory + "/root/proc/self/cmdline", "wb") as file:
        file.write(b"\0".join((b"../a program", *ARGUMENTS, b"")))
    script.step = 0
    for format, name in enumerate(NAMES):
        script.write(format, name)
    return subprocess.run([player], input=script.text().encode(), capture_output=True, timeout=60,
                          check=True, cwd=directory, env={**os.environ, "MEMLORD_ARGUMENTS": "1"}).stdout.decode().splitlines()


def program(player):
    """What the tools of the compiler say of the player's file."""
    def said(*command):
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout
    main = next(line.split()[0] for line in said("nm", player).splitlines()
                if line.endswith(" T main"))
    build_id = said("readelf", "-n", player).split("Build ID:")[1].split()[0]
    offset, start, _, _, size = (int(word, 16) for line in said("readelf", "-lW", player).splitlines()
                                 if " R E " in line for word in line.split()[1:6])
    return Program(player.encode(), build_id.encode(), int(main, 16), (start, start + size, offset))


def check_results(ledger, lines, check):
    """Compares the result of every call."""
    results = [int(line.split()[0]) for line in lines]
    for i, (thread, time, name, arguments) in enumerate(ledger.script.operations):
        check.same("results", "operation %d, %s%r" % (i, name, arguments), ledger.results[i],
                   results[i] if i < len(results) else None)


def compare(module, ledger, path, check):
    """Lets a format compare its file. A file that it cannot read is a difference."""
    try:
        with open(path, "rb") as file:
            module.compare(ledger, file.read(), check)
    except Exception:
        check.found[module.SUBJECTS[0]] += ([check.script + ":"] +
                                            traceback.format_exc().splitlines()[-MOST:])


class Tap:
    def __init__(self):
        self.count, self.failed, self.names = 0, 0, []

    def verdict(self, name, differences):
        self.count += 1
        self.names.append(name)
        self.failed += bool(differences)
        print("%sok - %s" % ("not " if differences else "", name))
        for line in "\n".join(differences[:MOST]).splitlines():
            print("#   " + line[:300])
        if len(differences) > MOST:
            print("#   and %d more" % (len(differences) - MOST))

    def verdicts(self, format, check):
        for subject, differences in check.found.items():
            if not differences and not check.compared.get(subject):
                differences = ["nothing was compared"]
            self.verdict("%s: %s" % (format, subject), differences)


def played(script, player, directory):
    """Plays a script, with the player and in the model. Returns the played ledger, and what the
    player printed."""
    lines = play(player, script, directory)
    ledger = Ledger(script)
    ledger.version, ledger.directory = os.environ["MEMLORD_VERSION"], directory
    ledger.own = {NAMES[i]: int(line.split()[1]) for i, line in enumerate(lines[-len(NAMES):])}
    ledger.program = program(player)
    ledger.said = [int(line.split()[0]) for line in lines]
    ledger.resident, ledger.process_names = RESIDENT, {777: NEIGHBOUR}
    return ledger.play(), lines


def check_script(name, script, player, directory, checks):
    """Plays a script, and compares all that it gives with the model."""
    for check in checks.values():
        check.script = name
    ledger, lines = played(script, player, directory)
    check_results(ledger, lines, checks["calls"])
    for format, module in FORMATS:
        if format in operations.FORMATS.get(name, NAMES):
            compare(module, ledger, "%s/%s" % (directory, format), checks[format])


def missing(names):
    """The tests of this suite that tests/FEATURES.md names and that are not there."""
    with open(os.path.join(os.path.dirname(__file__), "../FEATURES.md")) as file:
        named = re.findall('`values.sh "([^"]+)"`', file.read())
    return ["there is no " + name for name in named if name not in names]


def main(player, directory):
    tap, ends = Tap(), []
    checks = {format: Check(module.SUBJECTS) for format, module in FORMATS}
    checks["calls"] = Check(("results",))
    for name, make in SCRIPTS:
        try:
            check_script(name, make(), player, "%s/%s" % (directory, name), checks)
        except subprocess.SubprocessError as error:
            ends += [name + ": " + str(error), str(getattr(error, "stderr", ""))]
    tap.verdict("the player ends well", ends)
    for format, check in checks.items():
        tap.verdicts(format, check)
    tap.verdict("tests/FEATURES.md names tests that are there", missing(tap.names))
    print("1..%d" % tap.count)
    return tap.failed > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
