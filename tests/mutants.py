#!/usr/bin/env python3
"""Puts one-line faults into the product and counts those that the suites notice.

    python3 tests/mutants.py [N] [SEED] [PART...]
                                            N faults (300), drawn with SEED (1), of all folders, or of
                                            these folders and sections
    python3 tests/mutants.py known [TABLE]  the faults of a table, tests/mutants_known.txt
    python3 tests/mutants.py show PLACE     the faults of a line of memlord.h, or of a section by its name

The folders are those of memlord.h but `reports`, cuda, and preload, which is src/tools/preload. They get
equal shares of the N, and so do the sections of a folder. A fault changes an operator, a number or a
text, also in a table; it drops a call, an assignment, a `!` or an error path; it returns another
result, swaps two arguments of one type, or takes another field of the same type. Locks are left alone: a
lock that is missing shows in a race, not in a suite.

A fault in the body of a module is compiled as that module, and linked with the objects of the others.
It runs the suites that reach its line, that of the module's name first, then the quickest, until one
fails: for at most 60 seconds. Which suites reach which lines is measured once for each state of the
headers. The faults of preload run scripts, in a copy of the tree, for at most 300 seconds. A suite that
fails runs a second time: only if it fails again the fault is killed. One that hangs has noticed it;
such faults are counted apart. tests/mutants.txt names the faults that no program can see, each with its
reason: they are drawn, and count as equivalent. The status is 1 if less than 85 % of the others are
noticed, or if more than 10 % of all are equivalent; it is 2 if the tool cannot run.

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

from faults import Finder, Source

sys.path.insert(1, 'src')
import join

OUT, LIMIT, HEADER = 'build/mutants', 60, 'memlord.h'
SCRIPTS = ['places', 'values']  # suites that take an object: sh tests/NAME.sh OBJECT
HOSTS = ['preload', 'signals', 'symbols', 'unload']  # scripts that run programs under the interposer
FLAGS = ['-std=c99', '-w', '-pthread', '-isystem', 'tests/fake_cuda/include']
MODULE = ['gcc', '-O0', *FLAGS, '-D_DEFAULT_SOURCE', '-DMLI_MODULES', '-fvisibility=hidden', '-Isrc', '-c']
FOLDERS = join.FOLDERS.search(open('src/memlord.skeleton.h').read())[1].split()
OBJECTS = {file: f'{OUT}/src/{file[:-2]}.o' for module in join.modules(FOLDERS) for file in module.files[1:]}
PLACES = join.product('memlord')[1]  # of each line of the header: its file and line in src/
ENV = dict(os.environ, LOCPATH=os.path.abspath('build/locale'), MEMLORD_TEST_SCALE='1', MEMLORD_TEST_OPS='3000',
           CMOCKA_MESSAGE_OUTPUT='TAP')
CUDA = ['-O0', *FLAGS, '-c', 'tests/matrix/cuda_impl.c']


def run(command, seconds=600, **how):
    """The status of a command, 124 past its seconds; what it wrote is dropped."""
    return subprocess.run(['timeout', '-k', '5', str(seconds), *command], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, **how).returncode


def must(command):
    if run(command):
        print(f'mutants: {" ".join(command)} fails', file=sys.stderr)
        os._exit(2)  # from a thread, too


def source(suite):
    return f'tests/{suite}' + ('.sh' if suite in SCRIPTS else '.c')


def suites():
    """The suites that can be run against a header with a fault."""
    return SCRIPTS + sorted(name[:-2] for name in os.listdir('tests') if re.fullmatch(r'test_(?!cuda_torch).*\.c', name))  # which loads libraries that carry MemLord


def of_cuda(suite):
    return suite.startswith('test_cuda')


def includes_it(suite):
    """Whether a suite has the implementation in it."""
    return 'define MEMLORD_IMPLEMENTATION' in open(source(suite)).read()


def build(suite):
    if suite not in SCRIPTS and not includes_it(suite):
        must(['gcc', '-O0', *FLAGS, '-I.', '-c', source(suite), '-o', f'{OUT}/{suite}.o'])


def compile_sound(pool):
    """Compiles every module as it is, the layer for CUDA, and its fake."""
    def one(file):
        os.makedirs(os.path.dirname(OBJECTS[file]), exist_ok=True)
        must([*MODULE, f'src/{file}', '-o', OBJECTS[file]])
    list(pool.map(one, OBJECTS))
    must(['ld', '-r', '-o', f'{OUT}/impl.o', *OBJECTS.values()])
    must(['gcc', *CUDA, '-I.', '-o', f'{OUT}/cuda.o'])
    must(['gcc', '-O0', *FLAGS, '-c', 'tests/fake_cuda/fake_cuda.c', '-o', f'{OUT}/fake.o'])


def compile_fault(here, of, fault):
    """Makes the header with a fault, and its object, in a directory; returns whether they compile."""
    start, end, new, _ = fault
    text = of.text[:start] + new + of.text[end:]
    if of.path.startswith('src/tools/'):
        return compile_preload(here, of, text)
    with open(f'{here}/{of.path}', 'w', encoding='latin-1') as file:
        file.write(text)
    if of.path != HEADER:
        return not run(['gcc', f'-I{here}', '-I.', *CUDA, '-o', f'{here}/cuda.o'])
    file, number = PLACES[of.text.count('\n', 0, start)]
    parts = dict(OBJECTS)
    if end > start and file not in OBJECTS:  # a module's header: all modules may have what is in it
        open(f'{here}/impl.c', 'w').write(f'#define MEMLORD_IMPLEMENTATION\n#include "{HEADER}"\n')
        return not run(['gcc', '-O0', *FLAGS, f'-I{here}', '-c', f'{here}/impl.c', '-o', f'{here}/impl.o'])
    if end > start:  # a negation is replaced by nothing
        body = open(f'src/{file}').read()
        at = len(''.join(body.splitlines(True)[:number - 1])) + start - of.text.rfind('\n', 0, start) - 1
        open(f'{here}/module.c', 'w').write(body[:at] + new + body[at + end - start:])
        parts[file] = f'{here}/module.o'
        if run([*MODULE, f'{here}/module.c', '-o', parts[file]]):
            return False
    return not run(['ld', '-r', '-o', f'{here}/impl.o', *parts.values()])


def compile_preload(here, of, text):
    """Makes a tree beside this one whose interposer has the fault, and nothing else of its own."""
    def link(folder, leave):
        os.makedirs(f'{here}/{folder}', exist_ok=True)
        for name in os.listdir(folder or '.'):
            if name not in leave:
                os.symlink(os.path.abspath(f'{folder}/{name}' if folder else name), f'{here}/{folder}/{name}')
    link('', ['build', 'src', '.git'])
    link('src', ['tools'])
    shutil.copytree('src/tools', f'{here}/src/tools')
    with open(f'{here}/{of.path}', 'w', encoding='latin-1') as file:
        file.write(text)
    os.makedirs(f'{here}/build')
    for made in ('release', 'symbolize', 'diff', 'locale'):
        os.symlink(os.path.abspath(f'build/{made}'), f'{here}/build/{made}')
    return not run(['gcc', '-std=c99', '-O2', '-w', '-fPIC', '-shared', '-fvisibility=hidden', '-fexceptions',
                    '-static-libgcc', '-I.', 'src/tools/preload.c', '-o', 'build/libmemlord_preload.so',
                    '-Wl,-z,now', '-ldl', '-pthread'], cwd=here)


def ready(suite, here, *flags):
    """Builds a suite with the header and the objects of a directory; returns the command that runs it."""
    if suite in SCRIPTS:
        return ['sh', source(suite), f'{here}/impl.o']
    made = {name: f'{here if os.path.exists(f"{here}/{name}") else OUT}/{name}' for name in ('impl.o', 'cuda.o')}
    parts = [f'-I{here}', '-I.', source(suite)] if includes_it(suite) else [f'{OUT}/{suite}.o', made['impl.o']]
    if of_cuda(suite):
        parts += [made['cuda.o'], f'{OUT}/fake.o', '-rdynamic',
                  '-Wl,--disable-new-dtags,-rpath,' + os.path.abspath('build/fake')]
    must(['gcc', '-O0', *FLAGS, *flags, *parts, '-o', f'{here}/{suite}', '-lcmocka', '-ldl'])
    return [f'{here}/{suite}']


def trial(suite, here, seconds):
    """The status of a suite with the fault of a directory."""
    if suite in HOSTS:
        return run(['sh', f'tests/{suite}.sh'], seconds, cwd=here, env=ENV)
    return run(ready(suite, here), seconds, env=ENV)


def reach(suite):
    """Runs a suite once with counters: of each header the lines that have code, and those that it reaches; and
    its seconds."""
    here = os.path.abspath(f'{OUT}/{suite}.cov')
    shutil.rmtree(here, ignore_errors=True)
    shutil.copytree(f'{OUT}/counted', here)
    env = dict(ENV, GCOV_PREFIX=here, GCOV_PREFIX_STRIP='99', CC='gcc --coverage')
    began = time.time()
    status = run(ready(suite, here, '--coverage', f'-Wl,{OUT}/exit.o'), 180, env=env)
    took = time.time() - began
    lines, code = collections.defaultdict(set), collections.defaultdict(set)
    for counts in glob.glob(f'{here}/*.gcda'):
        data = subprocess.run(['gcov', '-j', '-t', counts], cwd=here, capture_output=True).stdout
        for file in json.loads(data or '{"files":[]}')['files']:
            name = os.path.basename(file['file'])
            if name in (HEADER, 'memlord_cuda.h'):
                code[name] |= {line['line_number'] for line in file['lines']}
                lines[name] |= {line['line_number'] for line in file['lines'] if line['count']}
    shutil.rmtree(here)
    return suite, {'status': status, 'seconds': took, 'lines': {n: sorted(l) for n, l in lines.items()},
                   'code': {n: sorted(c) for n, c in code.items()}}


def coverage(pool, sources):
    """What reach() says of every suite; kept for these headers, these suites and this tool."""
    text = ''.join(of.text for of in sources) + ''.join(open(s).read() for s in [source(s) for s in suites()] + [__file__])
    key = hashlib.sha256(text.encode()).hexdigest()
    kept = f'{OUT}/reach.json'
    list(pool.map(build, suites()))
    if os.path.exists(kept):
        known = json.load(open(kept))
        if known['key'] == key:
            return known['suites']
    os.makedirs(f'{OUT}/counted', exist_ok=True)
    counted = ['gcc', '--coverage', '-fprofile-update=atomic', '-I.']
    must([*counted, '-O0', *FLAGS, '-c', 'tests/matrix/impl.c', '-o', f'{OUT}/counted/impl.o'])
    must([*counted, *CUDA, '-o', f'{OUT}/counted/cuda.o'])
    must(['gcc', '-c', 'tests/coverage/exit.c', '-o', f'{OUT}/exit.o'])
    found = dict(pool.map(reach, suites()))
    for suite, what in found.items():
        if what['status'] != 0:
            print(f'mutants: {suite} fails without a fault (status {what["status"]}): it is left out')
    found = {s: w for s, w in found.items() if w['status'] == 0}
    json.dump({'key': key, 'suites': found}, open(kept, 'w'))
    return found


def hosts(sources):
    """The scripts for the interposer that pass without a fault, each with its seconds."""
    here, found = f'{OUT}/sound', []
    shutil.rmtree(here, ignore_errors=True)
    compile_preload(here, sources[-1], sources[-1].text)
    for script in HOSTS:
        began = time.time()
        if trial(script, here, 180) == 0:
            found.append((time.time() - began, script))
        else:
            print(f'mutants: {script}.sh fails without a fault: it is left out')
    shutil.rmtree(here)
    return sorted(found)


def attempt(number, of, fault, who, limit=LIMIT):
    """Compiles the product with a fault and runs suites, each with its seconds: (verdict, by whom)."""
    here = f'{OUT}/{number}'
    shutil.rmtree(here, ignore_errors=True)
    os.makedirs(here)
    try:
        if not compile_fault(here, of, fault):
            return 'not compiled', ''
        ends = time.time() + (limit if of.path in (HEADER, 'memlord_cuda.h') else 5 * LIMIT)
        for seconds, suite in who:
            if time.time() >= ends:
                return 'survived', f'{limit} s'
            most = min(20 * seconds + 5, max(limit, 3 * seconds))
            status = trial(suite, here, most)
            if status == 124:
                return 'timed out', suite
            if status and trial(suite, here, most):
                return 'killed', suite
        return 'survived' if who else 'not reached', ' '.join(suite for _, suite in who)
    finally:
        shutil.rmtree(here, ignore_errors=True)


def draw(faults, n, seed, wanted):
    """N faults, an equal share from each folder and from each section of it, in an order that the seed decides."""
    rng, shares = random.Random(seed), collections.defaultdict(lambda: collections.defaultdict(list))
    for of, fault in faults:
        name = of.names[of.text.count('\n', 0, fault[0])]
        folder = name.split('/')[0]
        if wanted & {folder, name} if wanted else folder not in ('reports', 'implementation'):
            shares[folder][name].append((of, fault))
    folders = []
    for folder in sorted(shares):
        for share in shares[folder].values():
            rng.shuffle(share)
        turns = sorted((at / len(share), name, at) for name, share in shares[folder].items() for at in range(len(share)))
        rounds = sorted((at, rng.random(), name) for _, name, at in turns)
        folders.append([shares[folder][name][at] for at, _, name in rounds])
    drawn = []
    while len(drawn) < n and any(folders):
        drawn += [share.pop(0) for share in folders if share][:n - len(drawn)]
    return drawn


def rows(table):
    """The rows of a table: what describe() says of a fault, and the field after it."""
    if not os.path.exists(table):
        return []
    kept = [line.rstrip('\n').rpartition(' | ') for line in open(table) if not line.startswith('#')]
    return [(what, last) for what, _, last in kept if what.count(' | ') >= 2]


def try_all(pool, tries, limit=LIMIT):
    """Tries faults, each with its suites, and says what comes of them: how many of each verdict, by folder."""
    count = collections.defaultdict(collections.Counter)
    jobs = {pool.submit(attempt, number, of, fault, who, limit): (of, fault)
            for number, (of, fault, who) in enumerate(tries)}
    for job in concurrent.futures.as_completed(jobs):
        verdict, who = job.result()
        of, fault = jobs[job]
        what, line, kind = of.describe(fault)
        count[what.split('/')[0]][verdict] += 1
        print(f'{verdict}: {of.path}:{line}: {kind}: {what} ({who})', flush=True)
    return count


def known(pool, of, faults, table):
    """Tries the faults of a table: 0 if every one is noticed, 2 if one cannot be tried."""
    found, wrong, given = collections.defaultdict(list), False, rows(table)
    for fault in faults:
        found[of.describe(fault)[0]].append(fault)
    for what, suite in given:
        why = 'no such suite' if suite not in suites() else 'no such line in that section' if not found[what] \
            else 'several such lines in that section' if len(found[what]) > 1 else None
        if why:
            print(f'mutants: {table}: {why}: {what} | {suite}', file=sys.stderr)
            wrong = True
    if wrong or not given:
        return 2
    compile_sound(pool)
    named = sorted({suite for _, suite in given})
    list(pool.map(build, named))
    long = 5 * LIMIT  # as much else may run beside
    sound = pool.map(lambda s: attempt(s, of, (0, 0, '', ''), [(LIMIT, s)], long), named)
    for suite, (verdict, _) in zip(named, sound):
        if verdict != 'survived':
            print(f'mutants: {suite} fails without a fault', file=sys.stderr)
            return 2
    tries = [(of, found[what][0], [(LIMIT, suite)]) for what, suite in given]
    killed = sum(folder['killed'] for folder in try_all(pool, tries, long).values())
    print(f'{killed} passed, {len(given) - killed} failed')
    return int(killed < len(given))


def suites_of(reached, of, line):
    """The suites that reach a line, each with its seconds, in the order in which they run. A declaration has no
    code: the next line has, or the last one."""
    named = 'test_' + of.names[line - 1].replace('cuda/', 'cuda_').rpartition('/')[2]
    code = sorted(set().union(*(w['code'].get(of.path, []) for w in reached.values())))
    place = code[min(bisect.bisect_left(code, line), len(code) - 1)]
    return sorted(((w['seconds'], s) for s, w in reached.items() if place in w['lines'].get(of.path, [])),
                  key=lambda who: (who[1] != named, who))


def drawn(pool, sources, faults, given):
    """Tries faults that are drawn: 0 if enough of them are noticed."""
    n, seed, wanted = int((given + ['300'])[0]), int((given[1:] + ['1'])[0]), set(given[2:])
    names = {name for of in sources for name in of.names if name}
    wrong = wanted - names - {name.split('/')[0] for name in names}
    if wrong:
        print(f'mutants: no such folder or section: {" ".join(sorted(wrong))}', file=sys.stderr)
        return 2
    began, picked = time.time(), draw(faults, n, seed, wanted)
    compile_sound(pool)
    reached = coverage(pool, sources[:2])
    programs = hosts(sources) if any(of.path.startswith('src/') for of, _ in picked) else []
    print(f'{len(faults)} faults, {len(reached) + len(programs)} suites; {len(picked)} drawn with seed {seed}', flush=True)
    same, tries, equivalent = dict(rows('tests/mutants.txt')), [], 0
    for of, fault in picked:
        what, line, _ = of.describe(fault)
        if what in same:
            equivalent += 1
        else:
            tries.append((of, fault, programs if of.path.startswith('src/') else suites_of(reached, of, line)))
    count = try_all(pool, tries)
    return verdict(count, equivalent, time.time() - began)


def verdict(count, equivalent, seconds):
    """Prints what came of the faults, by folder and in all; 0 if enough of them are noticed."""
    all = collections.Counter()
    for folder in sorted(count):
        all.update(count[folder])
        print(f'{folder}: ' + ', '.join(f'{n} {what}' for what, n in sorted(count[folder].items())))
    killed, alive = all['killed'] + all['timed out'], all['survived'] + all['not reached']
    print(', '.join(f'{n} {what}' for what, n in sorted(all.items())) + f', {equivalent} equivalent; {seconds:.0f} s')
    print(f'{killed} passed, {alive} failed')
    tried = killed + alive
    return int(not tried or killed < 0.85 * tried or equivalent > 0.10 * (tried + equivalent))


def main():
    os.makedirs(OUT, exist_ok=True)
    given = sys.argv[1:]
    header = Source(HEADER)
    table = (given + ['tests/mutants_known.txt'])[1] if given[:1] == ['known'] else None
    pieces = [what.split(' | ')[1] for what, _ in rows(table)] if table else ['']
    faults = sorted(set(Finder(header, 'tests/matrix/impl.c', ['-I.'], pieces).found))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        if table:
            return known(pool, header, faults, table)
        if given[:1] == ['show']:
            for fault in faults:
                what, line, kind = header.describe(fault)
                if given[1] in (str(line), header.names[line - 1]):
                    print(f'{line}: {kind}: {what}')
            return 0
        cuda = Source('memlord_cuda.h')
        sources = [header, cuda] + [Source(path) for path in ['src/tools/preload.c'] + sorted(glob.glob('src/tools/preload/*.h'))]
        for of in sources[1:]:
            unit = 'tests/matrix/cuda_impl.c' if of is cuda else 'src/tools/preload.c'
            faults_of = Finder(of, unit, ['-I.', '-isystem', 'tests/fake_cuda/include'][:3 if of is cuda else 1]).found
            faults += [(of, fault) for fault in sorted(set(faults_of))]
        faults = [fault if isinstance(fault[0], Source) else (header, fault) for fault in faults]
        return drawn(pool, sources, faults, given)


if __name__ == '__main__':
    sys.exit(main())
