#!/usr/bin/env python3
"""Puts one-line faults into memlord.h and counts those that the suites notice.

    python3 tests/mutants.py [N] [SEED] [SECTION...]
                                            N faults (300), drawn with SEED (1), of all sections
    python3 tests/mutants.py show PLACE     the faults of a line, or of a section by its name

A fault changes an operator or a number, drops a call, an assignment or a `!`, swaps two arguments
of one type, or takes another field of the same type. Locks are left alone: a lock that is missing
shows in a race, not in a suite. The sections of the header get equal shares of the N.

A fault runs the suites that reach its line, quickest first, until one fails: for at most 60
seconds. Which suites reach which lines is measured once for each memlord.h. tests/mutants.txt
names the faults that change nothing that can be observed, each with its reason: they are drawn, and
count as equivalent. The status is 1 if less than 95 % of the others are noticed, or if more than
10 % of all are equivalent; it is 2 if the tool cannot run.
"""
import concurrent.futures
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time

try:
    from clang import cindex
except ImportError: # Debian's package is for Debian's python3
    if sys.executable != '/usr/bin/python3' and os.path.exists('/usr/bin/python3'):
        os.execv('/usr/bin/python3', ['/usr/bin/python3'] + sys.argv)
    print('mutants: no module clang.cindex: apt-get install python3-clang', file=sys.stderr)
    sys.exit(2)

HEADER, OUT, LIMIT = 'memlord.h', 'build/mutants', 60
FLAGS = ['-std=c99', '-w', '-pthread']
ENV = dict(os.environ, LOCPATH=os.path.abspath('build/locale'), MEMLORD_TEST_SCALE='1', MEMLORD_TEST_OPS='3000', CMOCKA_MESSAGE_OUTPUT='TAP')
OPERATORS = {'+': '-', '-': '+', '*': '+', '/': '*', '%': '/', '<': '<=', '<=': '<', '>': '>=', '>=': '>',
             '==': '!=', '!=': '==', '&&': '||', '||': '&&', '&': '|', '|': '&', '^': '|', '<<': '>>',
             '>>': '<<', '+=': '-=', '-=': '+=', '|=': '&=', '&=': '|=', '<<=': '>>=', '>>=': '<<='}
LOCKS = re.compile(r'lock|_take|_drop|enter|leave|fence|barrier|spin|yield', re.I)


def sections(text):
    """The name of the section of each line, None before the implementation."""
    names, name = [], None
    for line in text.splitlines():
        banner = re.match(r'/\* -+ >>(\w+) -', line)
        if banner:
            name = banner.group(1)
        names.append(name)
    start = next(i for i, line in enumerate(text.splitlines()) if '>>implementation --' in line)
    return [None if i < start else n for i, n in enumerate(names)]


class Finder:
    """Finds every fault of the header: (start, end, replacement, kind), by offsets of the text."""

    def __init__(self, text):
        self.text, self.found = text, []
        kinds = cindex.CursorKind
        self.visit = {kinds.BINARY_OPERATOR: self.operator, kinds.UNARY_OPERATOR: self.no,
                      kinds.COMPOUND_ASSIGNMENT_OPERATOR: self.operator, kinds.INTEGER_LITERAL: self.number,
                      kinds.COMPOUND_STMT: self.statements, kinds.CALL_EXPR: self.arguments,
                      kinds.MEMBER_REF_EXPR: self.field}
        unit = cindex.Index.create().parse('tests/matrix/impl.c', args=['-std=c99', '-I.', '-D_GNU_SOURCE'])
        for top in unit.cursor.get_children():
            if top.location.file and top.location.file.name.endswith(HEADER) and top.is_definition() and \
                    top.kind == kinds.FUNCTION_DECL:
                self.walk(top)

    def walk(self, cursor):
        if cursor.kind in self.visit:
            self.visit[cursor.kind](cursor, list(cursor.get_children()))
        for child in cursor.get_children():
            self.walk(child)

    def at(self, cursor):
        """The offsets of a cursor, and its text; what a macro makes has none of its own."""
        start, end = cursor.extent.start.offset, cursor.extent.end.offset
        return start, end, self.text[start:end]

    def add(self, start, end, new, kind):
        if '\n' not in self.text[start:end]:
            self.found.append((start, end, new, kind))

    def operator(self, cursor, children):
        if len(children) != 2:
            return
        start, end = children[0].extent.end.offset, children[1].extent.start.offset
        between = self.text[start:end]
        if between.strip() in OPERATORS:
            at = start + between.index(between.strip())
            self.add(at, at + len(between.strip()), OPERATORS[between.strip()], 'operator')

    def no(self, cursor, children):
        start, end, text = self.at(cursor)
        if text.startswith('!') and text[1:2] not in '!=':
            self.add(start, start + 1, '', 'negation')

    def number(self, cursor, children):
        start, end, text = self.at(cursor)
        digits = re.match(r'(0x[0-9a-fA-F]+|[1-9]\d*|0)([uUlL]*)$', text)
        if digits:
            value = int(digits.group(1), 0)
            self.add(start, end, f'{0 if value == 1 else value + 1}{digits.group(2)}', 'number')

    def statements(self, cursor, children):
        for child in children:
            start, end, text = self.at(child)
            call = child.kind == cindex.CursorKind.CALL_EXPR
            store = child.kind in (cindex.CursorKind.BINARY_OPERATOR,
                                   cindex.CursorKind.COMPOUND_ASSIGNMENT_OPERATOR)
            if (call and not LOCKS.search(text.split('(')[0]) or store) and self.text[end:end + 1] == ';':
                self.add(start, end, '(void)0', 'dropped call' if call else 'dropped assignment')

    def arguments(self, cursor, children):
        given = list(cursor.get_arguments())
        for a, b in zip(given, given[1:]):
            (start, middle, one), (_, end, two) = self.at(a), self.at(b)
            if one != two and a.type.get_canonical().spelling == b.type.get_canonical().spelling and \
                    self.text[middle:b.extent.start.offset].strip() == ',':
                self.add(start, end, f'{two}, {one}', 'swapped arguments')

    def field(self, cursor, children):
        start, end, text = self.at(cursor)
        owner = cursor.referenced.semantic_parent if cursor.referenced else None
        if not owner or not text.endswith(cursor.spelling):
            return
        fields = [f.spelling for f in owner.type.get_fields()
                  if f.type.get_canonical().spelling == cursor.type.get_canonical().spelling]
        if len(fields) > 1 and cursor.spelling in fields:
            other = fields[(fields.index(cursor.spelling) + 1) % len(fields)]
            self.add(end - len(cursor.spelling), end, other, 'another field')


def run(command, limit=None, **how):
    """The status of a command, None past the limit; what it wrote is dropped."""
    try:
        return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              stdin=subprocess.DEVNULL, timeout=limit, **how).returncode
    except subprocess.TimeoutExpired:
        return None


def must(command):
    if run(command):
        print(f'mutants: {" ".join(command)} fails', file=sys.stderr)
        os._exit(2)  # from a thread, too


def suites():
    """The suites that take the implementation from an object, and so can have a faulty one."""
    return sorted(name[:-2] for name in os.listdir('tests') if re.fullmatch(r'test_(?!cuda).*\.c', name)
                  and 'define MEMLORD_IMPLEMENTATION' not in open(f'tests/{name}').read())


def link(suite, implementation, program, *flags):
    return ['gcc', *flags, f'{OUT}/{suite}.o', implementation, '-o', program, '-pthread', '-lcmocka', '-ldl']


def build(suite):
    must(['gcc', '-O0', *FLAGS, '-I.', '-c', f'tests/{suite}.c', '-o', f'{OUT}/{suite}.o'])


def reach(suite):
    """Runs a suite once with counters: the lines of the header that it reaches, and its seconds."""
    here = os.path.abspath(f'{OUT}/{suite}.cov')
    shutil.rmtree(here, ignore_errors=True)
    os.makedirs(here)
    must(link(suite, f'{OUT}/counted.o', f'{here}/{suite}', '--coverage'))
    env = dict(ENV, GCOV_PREFIX=here, GCOV_PREFIX_STRIP='99')
    began = time.time()
    status = run([f'{here}/{suite}'], 180, env=env)
    took = time.time() - began
    shutil.copy(f'{OUT}/counted.gcno', here)
    data = subprocess.run(['gcov', '-j', '-t', 'counted.gcda'], cwd=here, capture_output=True).stdout
    lines = [line['line_number'] for file in json.loads(data or '{"files":[]}')['files']
             if file['file'].endswith(HEADER) for line in file['lines'] if line['count']]
    shutil.rmtree(here)
    return suite, {'status': status, 'seconds': took, 'lines': lines}


def coverage(text, pool):
    """What reach() says of every suite; kept for this memlord.h and these suites."""
    key = hashlib.sha256((text + ''.join(open(f'tests/{s}.c').read() for s in suites())).encode()).hexdigest()
    kept = f'{OUT}/reach.json'
    list(pool.map(build, suites()))
    if os.path.exists(kept):
        known = json.load(open(kept))
        if known['key'] == key:
            return known['suites']
    must(['gcc', '-O0', *FLAGS, '-I.', '--coverage', '-fprofile-update=atomic', '-c', 'tests/matrix/impl.c',
          '-o', f'{OUT}/counted.o'])
    found = dict(pool.map(reach, suites()))
    for suite, what in found.items():
        if what['status'] != 0:
            print(f'mutants: {suite} fails without a fault (status {what["status"]}): it is left out')
    found = {s: w for s, w in found.items() if w['status'] == 0}
    json.dump({'key': key, 'suites': found}, open(kept, 'w'))
    return found


def attempt(number, text, fault, reached):
    """Compiles the header with a fault and runs what reaches its line: (verdict, by whom)."""
    start, end, new, _ = fault
    line = text.count('\n', 0, start) + 1
    here = f'{OUT}/{number}'
    shutil.rmtree(here, ignore_errors=True)
    os.makedirs(here)
    try:
        open(f'{here}/{HEADER}', 'w').write(text[:start] + new + text[end:])
        open(f'{here}/impl.c', 'w').write(f'#define MEMLORD_IMPLEMENTATION\n#include "{HEADER}"\n')
        if run(['gcc', '-O0', *FLAGS, f'-I{here}', '-c', f'{here}/impl.c', '-o', f'{here}/impl.o']):
            return 'not compiled', ''
        who = sorted((w['seconds'], s) for s, w in reached.items() if line in w['lines'])
        ends = time.time() + LIMIT
        for seconds, suite in who:
            if time.time() >= ends:
                return 'survived', f'{LIMIT} s'
            must(link(suite, f'{here}/impl.o', f'{here}/{suite}'))
            status = run([f'{here}/{suite}'], min(20 * seconds + 5, LIMIT), env=ENV)
            os.remove(f'{here}/{suite}')
            if status != 0:
                return 'killed', suite
        return 'survived' if who else 'not reached', f'{len(who)} suites'
    finally:
        shutil.rmtree(here, ignore_errors=True)


def describe(text, names, fault):
    start, end, new, kind = fault
    begin, stop, line = text.rfind('\n', 0, start) + 1, text.find('\n', end), text.count('\n', 0, start)
    return (f'{names[line]} | {text[begin:stop].strip()} | '
            f'{(text[begin:start] + new + text[end:stop]).strip()}'), line + 1, kind


def draw(faults, names, text, n, seed, sections):
    """N faults, an equal share from each section, in an order that the seed decides."""
    rng, shares = random.Random(seed), {}
    for fault in faults:
        shares.setdefault(names[text.count('\n', 0, fault[0])], []).append(fault)
    shares.pop(None, None)
    shares = {name: share for name, share in shares.items() if name in sections or not sections}
    for share in shares.values():
        rng.shuffle(share)
    drawn = []
    while len(drawn) < n and any(shares.values()):
        for name in sorted(shares):
            if shares[name] and len(drawn) < n:
                drawn.append(shares[name].pop())
    return drawn


def main():
    os.makedirs(OUT, exist_ok=True)
    text = open(HEADER).read()
    names = sections(text)
    faults = sorted(set(Finder(text).found))
    if sys.argv[1:2] == ['show']:
        for fault in faults:
            what, line, kind = describe(text, names, fault)
            if sys.argv[2] in (str(line), names[line - 1]):
                print(f'{line}: {kind}: {what}')
        return 0
    n, seed = (int(given) for given in (sys.argv[1:3] + ['300', '1'][len(sys.argv[1:3]):]))
    wrong = set(sys.argv[3:]) - set(names)
    if wrong:
        print(f'mutants: no such section: {" ".join(sorted(wrong))}', file=sys.stderr)
        return 2
    same = {}
    if os.path.exists('tests/mutants.txt'):
        for row in open('tests/mutants.txt'):
            if not row.startswith('#') and row.count(' | ') >= 3:
                what, _, why = row.rstrip('\n').rpartition(' | ')
                same[what] = why
    count = dict.fromkeys(['killed', 'survived', 'not reached', 'equivalent', 'not compiled'], 0)
    began = time.time()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        reached = coverage(text, pool)
        print(f'{len(faults)} faults, {len(reached)} suites; {n} drawn with seed {seed}', flush=True)
        jobs = {}
        for number, fault in enumerate(draw(faults, names, text, n, seed, sys.argv[3:])):
            what, line, kind = describe(text, names, fault)
            if what in same:
                count['equivalent'] += 1
                continue
            jobs[pool.submit(attempt, number, text, fault, reached)] = what, line, kind
        for job in concurrent.futures.as_completed(jobs):
            verdict, who = job.result()
            what, line, kind = jobs[job]
            count[verdict] += 1
            print(f'{verdict}: {HEADER}:{line}: {kind}: {what} ({who})', flush=True)
    alive = count['survived'] + count['not reached']
    tried = count['killed'] + alive
    print(', '.join(f'{v} {k}' for k, v in count.items()) + f'; {time.time() - began:.0f} s')
    print(f'{count["killed"]} passed, {alive} failed')
    return int(not tried or count['killed'] < 0.95 * tried or
               count['equivalent'] > 0.10 * (tried + count['equivalent']))


if __name__ == '__main__':
    sys.exit(main())
