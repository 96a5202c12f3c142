#!/usr/bin/env python3
"""Prints which lines and branches of headers the suites reach, by section.

    python3 tests/coverage.py DIR HEADER...

DIR holds the objects that gcc --coverage made and the counts of their runs. A header may be in
several objects: a line is reached if it is reached in one of them, and so is a branch. Where two
objects have different branches on a line, the larger number of them counts.
Branches that only an exception takes are left out, and so are those of a line that is only an
MLI_REQUIRE: a suite cannot break what it checks and run on. The last line but one counts these.

DIR/HEADER.missed lists every line that is not reached and every branch that is not taken, each
with its section and its text. The status is 2 if there are no counts.
"""
import collections
import json
import os
import re
import subprocess
import sys

from sections import sections

LEAST = 15  # sections that are printed
REQUIREMENT = re.compile(r'\s*MLI_REQUIRE\(.*\);$')


def gcov(counts):
    """What gcov says of an object: its source files, each with its lines."""
    run = subprocess.run(['gcov', '-j', '-b', '-t', os.path.abspath(counts)], cwd=os.path.dirname(counts),
                         capture_output=True)
    if run.returncode or not run.stdout:
        sys.exit(f'coverage: gcov fails for {counts}: {run.stderr.decode()}')
    return [file for one in run.stdout.splitlines() for file in json.loads(one)['files']]


class Header:
    """Adds up what the objects say of a header."""

    def __init__(self, path):
        self.path, self.name = os.path.realpath(path), os.path.basename(path)
        self.text = open(path).read().splitlines()
        self.sections = sections(open(path).read())
        self.lines = collections.Counter()
        self.branches = {}  # of a line: how often each is taken
        self.required = {}  # of a line that is only an MLI_REQUIRE: its branches

    def add(self, file):
        """Takes the lines of one object."""
        here = collections.defaultdict(list)  # a line has an entry for each function it is in
        for line in file['lines']:
            self.lines[line['line_number']] += line['count']
            here[line['line_number']] += [b['count'] for b in line['branches'] if not b['throw']]
        for number, taken in here.items():
            if REQUIREMENT.match(self.text[number - 1]):
                self.required[number] = max(self.required.get(number, 0), len(taken))
                taken = []
            known = self.branches.get(number, [])
            if len(known) == len(taken):
                taken = [a + b for a, b in zip(known, taken)]
            if len(known) <= len(taken):
                self.branches[number] = taken

    def section(self, number):
        return self.sections[number - 1] or 'no section'

    def figures(self):
        """Of each section: [lines, lines reached, branches, branches taken]."""
        found = {}
        for number, count in sorted(self.lines.items()):
            taken = self.branches[number]
            row = found.setdefault(self.section(number), [0, 0, 0, 0])
            for i, n in enumerate([1, count > 0, len(taken), sum(map(bool, taken))]):
                row[i] += n
        return found

    def missed(self):
        """The lines that are not reached and the branches that are not taken, as text."""
        for number in sorted(self.lines):
            taken = self.branches[number]
            if not self.lines[number]:
                what = 'line not reached'
            elif not all(taken):
                what = f'{taken.count(0)} of {len(taken)} branches not taken'
            else:
                continue
            yield f'{self.name}:{number}: {self.section(number)}: {what}: {self.text[number - 1].strip()}\n'


def percent(part, whole):
    return f'{100 * part / whole:.2f}' if whole else '-'


def say(name, row):
    lines, reached, branches, taken = row
    print(f'{name:32} {lines:6} {percent(reached, lines):>7} {branches:9} {percent(taken, branches):>7}')


def main(directory, *paths):
    headers = [Header(path) for path in paths]
    counts = sorted(os.path.join(at, name) for at, _, names in os.walk(directory) for name in names
                    if name.endswith('.gcda'))
    for one in counts:
        for file in gcov(one):
            for header in headers:
                if os.path.realpath(file['file']) == header.path:
                    header.add(file)
    if not all(sum(header.lines.values()) for header in headers):
        print(f'coverage: {directory} has no counts of {" and ".join(h.name for h in headers)}', file=sys.stderr)
        return 2
    print(f'{"":32} {"lines":>6} {"%":>7} {"branches":>9} {"%":>7}')
    rows = []
    for header in headers:
        found = header.figures()
        say(header.name, [sum(column) for column in zip(*found.values())])
        for name, row in found.items():
            say('  ' + name, row)
            rows.append((f'{name} ({header.name})', row))
        with open(f'{directory}/{header.name}.missed', 'w') as out:
            out.writelines(header.missed())
    print('\nthe least covered')
    rows.sort(key=lambda row: (row[1][1] / row[1][0], row[1][3] / (row[1][2] or 1)))
    for name, row in rows[:LEAST]:
        say('  ' + name, row)
    print(f'\nleft out: {sum(sum(h.required.values()) for h in headers)} branches of MLI_REQUIRE')
    print('lines not reached and branches not taken: ' +
          ', '.join(f'{directory}/{header.name}.missed' for header in headers))
    return 0


if __name__ == '__main__':
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
