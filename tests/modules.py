#!/usr/bin/env python3
"""modules.py [SRC]: what the compiler does not see of the modules in src/.

C includes leak: a file can use what a header of a header declares. Here every private name that a
module uses must come from a module that it includes itself, and a header counts only its own
includes. A module has at most 1200 lines, but reports/page is generated and may have more.
universal-ctags finds the names. What is wrong is printed, a line each, and the status is 1.
"""
import collections
import os
import re
import subprocess
import sys

SRC = sys.argv[1] if len(sys.argv) > 1 else 'src'
LINES = 1200
COMMENT = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
NAME = re.compile(r'\b(?:mli|MLI)_\w+')
INCLUDE = re.compile(r'^#include "([^"]+)\.h"', re.M)
ENUMERATOR = re.compile(r'^ +(MLI_\w+)(?: = [^,\n]*)?,?\s*$', re.M)
ATTRIBUTES = ('MLI_HOT,MLI_COLD,MLI_NOINLINE,MLI_OWN_FRAME,MLI_PRIVATE,MLI_CUDA_PRIVATE,MLI_API,MEMLORD_API,'
              'MEMLORD_THREAD_LOCAL')


def code(path):
    """The text of a file without comments and strings; the paths of includes stay."""
    text = open(path, encoding='utf-8').read()
    return COMMENT.sub(lambda m: m.group() if m.group().startswith('"') and '.h"' in m.group() else
                       re.sub(r'[^\n]', ' ', m.group()), text)


def declared(path, text):
    """The private names that a file declares or defines."""
    run = subprocess.run(['ctags', '--language-force=C', '--kinds-C=+p-m', '-I', ATTRIBUTES, '-f', '-', path],
                         capture_output=True, text=True, check=True)
    names = {line.split('\t')[0] for line in run.stdout.splitlines()} | set(ENUMERATOR.findall(text))
    names |= {re.findall(r'(\w+)\s*(?:\[[^\]]*\])*$', v)[0] for v in
              re.findall(r'^MLI_(?:CUDA_)?(?:TABLE|VARIABLE)\(([^)]*)\)', text, re.M)}
    return {name for name in names if NAME.fullmatch(name)}


def files():
    for folder, _, names in os.walk(SRC):
        if os.path.basename(folder) not in ('api', 'page', 'tools', 'preload', 'packaging') and folder != SRC:
            for name in sorted(names):
                if name.endswith(('.h', '.c')):
                    yield os.path.relpath(os.path.join(folder, name), SRC)


def main():
    text, names, owners = {}, {}, collections.defaultdict(set)
    for file in files():
        text[file] = code(os.path.join(SRC, file))
        names[file] = declared(os.path.join(SRC, file), text[file])
        if file.endswith('.h'):
            for name in names[file]:
                owners[name].add(file[:-2])
    wrong = []
    for file in text:
        module = file[:-2]
        seen = set(INCLUDE.findall(text[file])) | {module}
        if file.endswith('.c'):
            seen |= set(INCLUDE.findall(text.get(module + '.h', '')))
        for name in sorted(set(NAME.findall(text[file])) - names[file]):
            only_struct = not re.search(r'(?<!struct )\b%s\b' % name, text[file])
            if owners[name] and not owners[name] & seen and not only_struct:
                wrong.append(f'{SRC}/{file} uses {name} and does not include {"or ".join(sorted(owners[name]))}.h')
        size = sum(text[f].count('\n') for f in (file, module + '.c') if f in text)
        if file.endswith('.h') and size > LINES and module != 'reports/page':
            wrong.append(f'{SRC}/{module} has {size} lines, more than {LINES}')
    print('\n'.join(wrong), end='\n' if wrong else '')
    return int(bool(wrong))


if __name__ == '__main__':
    sys.exit(main())
