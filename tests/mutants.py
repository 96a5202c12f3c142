#!/usr/bin/env python3
"""Puts one-line faults into memlord.h and counts those that the suites notice.

    python3 tests/mutants.py [N] [SEED] [SECTION...]
                                            N faults (300), drawn with SEED (1), of all sections
    python3 tests/mutants.py known [TABLE]  the faults of a table, tests/mutants_known.txt
    python3 tests/mutants.py show PLACE     the faults of a line, or of a section by its name

A fault changes an operator or a number, drops a call, an assignment or a `!`, swaps two arguments
of one type, or takes another field of the same type. Locks are left alone: a lock that is missing
shows in a race, not in a suite. The sections of the header get equal shares of the N.

A fault in the body of a module is compiled as that module, and linked with the objects of the others.
A fault runs the suites that reach its line, quickest first, until one fails: for at most 60
seconds. Which suites reach which lines is measured once for each memlord.h. tests/mutants.txt
names the faults that change nothing that can be observed, each with its reason: they are drawn, and
count as equivalent. A suite that hangs with a fault has noticed it; such faults are counted apart.
The status is 1 if less than 95 % of the others are noticed, or if more than 10 % of all are
equivalent; it is 2 if the tool cannot run.

A table of known faults names one suite a row: section | line | line with the fault | suite. The
status is 1 if a suite does not fail with its fault, 2 if the header has no such line.
"""
import bisect
import collections
import concurrent.futures
import glob
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time

from faults import HEADER, Finder, describe, implementation

sys.path.insert(1, 'src')
import join

OUT, LIMIT = 'build/mutants', 60
SCRIPTS = ['values']  # suites that take an object: sh tests/NAME.sh OBJECT
FLAGS = ['-std=c99', '-w', '-pthread']
MODULE = ['gcc', '-O0', *FLAGS, '-D_DEFAULT_SOURCE', '-DMLI_MODULES', '-fvisibility=hidden', '-Isrc', '-c']
FOLDERS = join.FOLDERS.search(open('src/memlord.skeleton.h').read())[1].split()
OBJECTS = {file: f'{OUT}/src/{file[:-2]}.o' for module in join.modules(FOLDERS) for file in module.files[1:]}
PLACES = join.product('memlord')[1]  # of each line of the header: its file and line in src/
ENV = dict(os.environ, LOCPATH=os.path.abspath('build/locale'), MEMLORD_TEST_SCALE='1', MEMLORD_TEST_OPS='3000',
           CMOCKA_MESSAGE_OUTPUT='TAP')


def run(command, seconds=600, **how):
    """The status of a command, 124 past its seconds; what it wrote is dropped."""
    return subprocess.run(['timeout', str(seconds), *command], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, **how).returncode


def must(command):
    if run(command):
        print(f'mutants: {" ".join(command)} fails', file=sys.stderr)
        os._exit(2)  # from a thread, too


def source(suite):
    return f'tests/{suite}' + ('.sh' if suite in SCRIPTS else '.c')


def suites():
    """The suites that can be run against a header with a fault."""
    return SCRIPTS + sorted(name[:-2] for name in os.listdir('tests') if re.fullmatch(r'test_(?!cuda).*\.c', name))


def includes_it(suite):
    """Whether a suite has the implementation in it."""
    return 'define MEMLORD_IMPLEMENTATION' in open(source(suite)).read()


def build(suite):
    if suite not in SCRIPTS and not includes_it(suite):
        must(['gcc', '-O0', *FLAGS, '-I.', '-c', source(suite), '-o', f'{OUT}/{suite}.o'])


def compile_modules(pool):
    """Compiles every module as it is."""
    def one(file):
        os.makedirs(os.path.dirname(OBJECTS[file]), exist_ok=True)
        must([*MODULE, f'src/{file}', '-o', OBJECTS[file]])
    list(pool.map(one, OBJECTS))


def compile_fault(here, text, fault):
    """Makes impl.o and the header with a fault in a directory; returns whether they compile."""
    start, end, new, _ = fault
    open(f'{here}/{HEADER}', 'w').write(text[:start] + new + text[end:])
    file, number = PLACES[text.count('\n', 0, start)]
    parts = dict(OBJECTS)
    if end > start and file not in OBJECTS:  # a module's header: all modules may have what is in it
        open(f'{here}/impl.c', 'w').write(f'#define MEMLORD_IMPLEMENTATION\n#include "{HEADER}"\n')
        return not run(['gcc', '-O0', *FLAGS, f'-I{here}', '-c', f'{here}/impl.c', '-o', f'{here}/impl.o'])
    if end > start:  # a negation is replaced by nothing
        body = open(f'src/{file}').read()
        at = len(''.join(body.splitlines(True)[:number - 1])) + start - text.rfind('\n', 0, start) - 1
        open(f'{here}/module.c', 'w').write(body[:at] + new + body[at + end - start:])
        parts[file] = f'{here}/module.o'
        if run([*MODULE, f'{here}/module.c', '-o', parts[file]]):
            return False
    return not run(['ld', '-r', '-o', f'{here}/impl.o', *parts.values()])


def ready(suite, here, *flags):
    """Builds a suite with the header and the object of a directory; returns the command that runs it."""
    if suite in SCRIPTS:
        return ['sh', source(suite), f'{here}/impl.o']
    parts = [f'-I{here}', '-I.', source(suite)] if includes_it(suite) else [f'{OUT}/{suite}.o', f'{here}/impl.o']
    must(['gcc', '-O0', *FLAGS, *flags, *parts, '-o', f'{here}/{suite}', '-lcmocka', '-ldl'])
    return [f'{here}/{suite}']


def reach(suite):
    """Runs a suite once with counters: the lines of the header that have code, those that it reaches, and its
    seconds."""
    here = os.path.abspath(f'{OUT}/{suite}.cov')
    shutil.rmtree(here, ignore_errors=True)
    shutil.copytree(f'{OUT}/counted', here)
    env = dict(ENV, GCOV_PREFIX=here, GCOV_PREFIX_STRIP='99', CC='gcc --coverage')
    began = time.time()
    status = run(ready(suite, here, '--coverage', f'-Wl,{OUT}/exit.o'), 180, env=env)
    took = time.time() - began
    lines, code = set(), set()
    for counts in glob.glob(f'{here}/*.gcda'):
        data = subprocess.run(['gcov', '-j', '-t', counts], cwd=here, capture_output=True).stdout
        for file in json.loads(data or '{"files":[]}')['files']:
            if os.path.basename(file['file']) == HEADER:
                code |= {line['line_number'] for line in file['lines']}
                lines |= {line['line_number'] for line in file['lines'] if line['count']}
    shutil.rmtree(here)
    return suite, {'status': status, 'seconds': took, 'lines': sorted(lines), 'code': sorted(code)}


def coverage(text, pool):
    """What reach() says of every suite; kept for this memlord.h, these suites and this tool."""
    sources = [source(s) for s in suites()] + [__file__]
    key = hashlib.sha256((text + ''.join(open(name).read() for name in sources)).encode()).hexdigest()
    kept = f'{OUT}/reach.json'
    list(pool.map(build, suites()))
    if os.path.exists(kept):
        known = json.load(open(kept))
        if known['key'] == key:
            return known['suites']
    os.makedirs(f'{OUT}/counted', exist_ok=True)
    must(['gcc', '-O0', *FLAGS, '-I.', '--coverage', '-fprofile-update=atomic', '-c', 'tests/matrix/impl.c',
          '-o', f'{OUT}/counted/impl.o'])
    must(['gcc', '-c', 'tests/coverage/exit.c', '-o', f'{OUT}/exit.o'])
    found = dict(pool.map(reach, suites()))
    for suite, what in found.items():
        if what['status'] != 0:
            print(f'mutants: {suite} fails without a fault (status {what["status"]}): it is left out')
    found = {s: w for s, w in found.items() if w['status'] == 0}
    json.dump({'key': key, 'suites': found}, open(kept, 'w'))
    return found


def attempt(number, text, fault, who, limit=LIMIT):
    """Compiles the header with a fault and runs suites, each with its seconds: (verdict, by whom)."""
    here = f'{OUT}/{number}'
    shutil.rmtree(here, ignore_errors=True)
    os.makedirs(here)
    try:
        if not compile_fault(here, text, fault):
            return 'not compiled', ''
        ends = time.time() + limit
        for seconds, suite in who:
            if time.time() >= ends:
                return 'survived', f'{limit} s'
            status = run(ready(suite, here), min(20 * seconds + 5, limit), env=ENV)
            if status != 0:
                return 'timed out' if status == 124 else 'killed', suite
        return 'survived' if who else 'not reached', ' '.join(suite for _, suite in who)
    finally:
        shutil.rmtree(here, ignore_errors=True)


def draw(faults, names, text, n, seed, wanted):
    """N faults, an equal share from each section, in an order that the seed decides."""
    rng, shares = random.Random(seed), {}
    for fault in faults:
        shares.setdefault(names[text.count('\n', 0, fault[0])], []).append(fault)
    shares.pop(None, None)
    shares = {name: share for name, share in shares.items() if name in wanted or not wanted}
    for share in shares.values():
        rng.shuffle(share)
    drawn = []
    while len(drawn) < n and any(shares.values()):
        for name in sorted(shares):
            if shares[name] and len(drawn) < n:
                drawn.append(shares[name].pop())
    return drawn


def rows(table):
    """The rows of a table: what describe() says of a fault, and the field after it."""
    if not os.path.exists(table):
        return []
    kept = [line.rstrip('\n').rpartition(' | ') for line in open(table) if not line.startswith('#')]
    return [(what, last) for what, _, last in kept if what.count(' | ') >= 2]


def try_all(pool, text, names, tries, limit=LIMIT):
    """Tries faults, each with its suites, and says what comes of them: how many of each verdict."""
    count = collections.Counter()
    jobs = {pool.submit(attempt, number, text, fault, who, limit): describe(text, names, fault)
            for number, (fault, who) in enumerate(tries)}
    for job in concurrent.futures.as_completed(jobs):
        verdict, who = job.result()
        what, line, kind = jobs[job]
        count[verdict] += 1
        print(f'{verdict}: {HEADER}:{line}: {kind}: {what} ({who})', flush=True)
    return count


def known(pool, text, names, faults, table):
    """Tries the faults of a table: 0 if every one is noticed, 2 if one cannot be tried."""
    found, wrong, given = collections.defaultdict(list), False, rows(table)
    for fault in faults:
        found[describe(text, names, fault)[0]].append(fault)
    for what, suite in given:
        why = 'no such suite' if suite not in suites() else 'no such line in that section' if not found[what] \
            else 'several such lines in that section' if len(found[what]) > 1 else None
        if why:
            print(f'mutants: {table}: {why}: {what} | {suite}', file=sys.stderr)
            wrong = True
    if wrong or not given:
        return 2
    compile_modules(pool)
    named = sorted({suite for _, suite in given})
    list(pool.map(build, named))
    long = 5 * LIMIT  # as much else may run beside
    sound = pool.map(lambda s: attempt(s, text, (0, 0, '', ''), [(LIMIT, s)], long), named)
    for suite, (verdict, _) in zip(named, sound):
        if verdict != 'survived':
            print(f'mutants: {suite} fails without a fault', file=sys.stderr)
            return 2
    tries = [(found[what][0], [(LIMIT, suite)]) for what, suite in given]
    killed = try_all(pool, text, names, tries, long)['killed']
    print(f'{killed} passed, {len(given) - killed} failed')
    return int(killed < len(given))


def drawn(pool, text, names, faults, given):
    """Tries faults that are drawn: 0 if enough of them are noticed."""
    n, seed, wanted = int((given + ['300'])[0]), int((given[1:] + ['1'])[0]), given[2:]
    wrong = set(wanted) - set(names)
    if wrong:
        print(f'mutants: no such section: {" ".join(sorted(wrong))}', file=sys.stderr)
        return 2
    began = time.time()
    compile_modules(pool)
    reached = coverage(text, pool)
    print(f'{len(faults)} faults, {len(reached)} suites; {n} drawn with seed {seed}', flush=True)
    code = sorted(set().union(*(w['code'] for w in reached.values())))
    same, tries, equivalent = dict(rows('tests/mutants.txt')), [], 0
    for fault in draw(faults, names, text, n, seed, wanted):
        what, line, _ = describe(text, names, fault)
        if what in same:
            equivalent += 1
        else:
            # A declaration has no code: the next line has, or the last one.
            place = code[min(bisect.bisect_left(code, line), len(code) - 1)]
            tries.append((fault, sorted((w['seconds'], s) for s, w in reached.items() if place in w['lines'])))
    count = try_all(pool, text, names, tries)
    killed, alive = count['killed'] + count['timed out'], count['survived'] + count['not reached']
    print(', '.join(f'{n} {verdict}' for verdict, n in count.items()) +
          f', {equivalent} equivalent; {time.time() - began:.0f} s')
    print(f'{killed} passed, {alive} failed')
    tried = killed + alive
    return int(not tried or killed < 0.95 * tried or equivalent > 0.10 * (tried + equivalent))


def main():
    os.makedirs(OUT, exist_ok=True)
    text, given = open(HEADER).read(), sys.argv[1:]
    names = implementation(text)
    table = (given + ['tests/mutants_known.txt'])[1] if given[:1] == ['known'] else None
    pieces = [what.split(' | ')[1] for what, _ in rows(table)] if table else ['']
    faults = sorted(set(Finder(text, pieces).found))
    if given[:1] != ['show']:
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            if table:
                return known(pool, text, names, faults, table)
            return drawn(pool, text, names, faults, given)
    for fault in faults:
        what, line, kind = describe(text, names, fault)
        if given[1] in (str(line), names[line - 1]):
            print(f'{line}: {kind}: {what}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
