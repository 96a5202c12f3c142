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
import subprocess
import sys
import traceback

import json_report
import operations
import page_report
import text_report
from model import Ledger, Program
from script import FORMATS as NAMES

FORMATS = (("TEXT", text_report), ("JSON", json_report), ("HTML", page_report))
RESIDENT = 123_456 << 10  # what /proc says of the player
NEIGHBOUR = "train.py"    # and of process 777
MOST = 12  # differences of a test that are shown


class Check:
    """The differences that a format found, by subject."""

    def __init__(self, subjects):
        self.found = {subject: [] for subject in subjects}
        self.compared = dict.fromkeys(subjects, 0)

    def differs(self, subject, where, expected, found):
        self.found.setdefault(subject, []).append(
            "%s: expected %r, found %r" % (where, expected, found))

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
        elif type(expected) is not type(found) or expected != found:
            self.differs(subject, where, expected, found)


def play(player, script, directory):
    """Plays a script, with files in place of those in /proc. Returns what the player printed, a
    line an operation."""
    os.makedirs(directory + "/root/proc/self/ns")
    os.makedirs(directory + "/root/proc/777")
    os.symlink("pid:[4026531836]", directory + "/root/proc/self/ns/pid")  # the first namespace
    for path, text in (("self/status", "Name:\tx\nVmRSS:\t   %d kB\n" % (RESIDENT >> 10)),
                       ("777/comm", NEIGHBOUR + "\n")):
        with open("%s/root/proc/%s" % (directory, path), "w") as file:
            file.write(text)
    script.step = 0
    for format, name in enumerate(NAMES):
        script.write(format, name)
    return subprocess.run([player], input=script.text().encode(), capture_output=True, timeout=60,
                          check=True, cwd=directory).stdout.decode().splitlines()


def program(player):
    """What the tools of the compiler say of the player's file."""
    def said(*command):
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout
    main = next(line.split()[0] for line in said("nm", player).splitlines()
                if line.endswith(" T main"))
    build_id = said("readelf", "-n", player).split("Build ID:")[1].split()[0]
    return Program(player.encode(), build_id.encode(), int(main, 16))


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
        check.found[module.SUBJECTS[0]] += traceback.format_exc().splitlines()[-MOST:]


class Tap:
    def __init__(self):
        self.count = self.failed = 0

    def verdict(self, name, differences):
        self.count += 1
        self.failed += bool(differences)
        print("%sok - %s" % ("not " if differences else "", name))
        for line in "\n".join(differences[:MOST]).splitlines():
            print("#   " + line[:300])
        if len(differences) > MOST:
            print("#   and %d more" % (len(differences) - MOST))

    def verdicts(self, script, format, check):
        for subject, differences in check.found.items():
            if not differences and not check.compared.get(subject):
                differences = ["nothing was compared"]
            self.verdict("%s: %s %s" % (script, format, subject), differences)


def check_script(name, make, player, directory, tap):
    script = make()
    try:
        lines = play(player, script, directory)
    except subprocess.SubprocessError as error:
        tap.verdict("%s: the player ends well" % name,
                    [str(error), (getattr(error, "stderr", b"") or b"").decode()])
        return
    ledger = Ledger(script)
    ledger.version, ledger.directory = os.environ["MEMLORD_VERSION"], directory
    ledger.own = {NAMES[i]: int(line.split()[1]) for i, line in enumerate(lines[-len(NAMES):])}
    ledger.program = program(player)
    ledger.resident, ledger.process_names = RESIDENT, {777: NEIGHBOUR}
    ledger.play()
    check = Check(("results",))
    check_results(ledger, lines, check)
    tap.verdicts(name, "calls", check)
    for format, module in FORMATS:
        check = Check(module.SUBJECTS)
        compare(module, ledger, "%s/%s" % (directory, format), check)
        tap.verdicts(name, format, check)


def main(player, directory):
    tap = Tap()
    for name, make in operations.SCRIPTS:
        check_script(name, make, player, "%s/%s" % (directory, name), tap)
    print("1..%d" % tap.count)
    return tap.failed > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
