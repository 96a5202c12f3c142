#!/usr/bin/env python3
"""sums.py [FILE]: what the whole comes to, beside the ceilings in tests/sums.txt or FILE.

Prints a line for each sum: its count, its ceiling, its name. The status is 1 if a count is above its
ceiling, or if the file has not exactly these sums. A ceiling is set by hand, and raised only by a change
that says so. The rows "skips of ..." are .ci/run's.
"""
import os
import re
import subprocess
import sys

from api import functions
from sections import sections

os.chdir(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDERS = 'src', 'tests', 'bench', 'examples'
PIECE = re.compile(r'''(?P<comment>/\*.*?\*/|//[^\n]*) | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' | \w+ |
                       \.\.\. | <<= | >>= | -> | \+\+ | -- | << | >> | && | \|\| | \#\# | [-+*/%&|^=!<>]= | \S''',
                   re.S | re.X)


def lines_of(path):
    """The lines of a file, or of all files of a folder but those that Python makes."""
    if os.path.isdir(path):
        return sum(lines_of(os.path.join(path, name)) for name in os.listdir(path) if name != '__pycache__')
    with open(path, 'rb') as file:
        return file.read().count(b'\n')


def words_a_token(text):
    """The words in the comments of a source for each token of its code."""
    words = tokens = 0
    for piece in PIECE.finditer(text):
        if piece['comment']:
            words += len(re.findall(r'\w+', piece[0]))
        else:
            tokens += 1
    return words / tokens


def kib_of_code():
    """README's figure: code and constants of the implementation, by gcc -O2, without unwind tables."""
    code = subprocess.run(['sh', 'bench/run.sh', 'code'], env={**os.environ, 'CC': 'gcc'}, check=True,
                          capture_output=True, text=True).stdout
    return int(code) / 1024


def main():
    with open('memlord.h', encoding='utf-8') as file:
        text = file.read()
    code = text.split('\n')
    counts = {
        'lines of memlord.h': lines_of('memlord.h'),
        'KiB of code and constants': round(kib_of_code(), 1),
        'words of comment a token of code': round(words_a_token(text), 3),
        'functions exported': sum(code[number].startswith('MEMLORD_API')
                                  for _, _, number in functions(code, sections(text))),
        **{f'lines of {folder}/': lines_of(folder) for folder in FOLDERS},
        'lines of CHANGELOG.md': lines_of('CHANGELOG.md')}
    with open(sys.argv[1] if len(sys.argv) > 1 else 'tests/sums.txt', encoding='utf-8') as file:
        rows = [line.split(None, 1) for line in file if not line.startswith('#')]
    ceilings = {name.strip(): float(most) for most, name in rows if not name.startswith('skips of ')}
    wrong = [f'no count of this name: {name}' for name in ceilings if name not in counts]
    for name, count in counts.items():
        print(f'{count:>9} of {ceilings.get(name, 0):>9g}  {name}')
        if count > ceilings.get(name, 0):
            wrong.append(f'above its ceiling: {name}')
    print('\n'.join(wrong), end='\n' if wrong else '')
    return int(bool(wrong))


if __name__ == '__main__':
    sys.exit(main())
