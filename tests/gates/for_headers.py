#!/usr/bin/env python3
"""for_headers.py FILE...: prints the lines of C that nvcc 13.0 reads otherwise with -std=c++20.

It takes `x.time <` at the top level of a for header for a template if time is a function, too, and
warns of a line that begins with a word of modules. Status 1 if there is such a line, or no for header.
"""
import re
import sys

BLANK = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"' r"|'(?:\\.|[^'\\\n])*'", re.S)
MEMBER = re.compile(r'(?:\.|->)\s*\w+\s*<(?![<=])')


def header(text, at):
    """What stands in the parenthesis that opens at a place, without what is in further ones."""
    depth, out = 0, []
    while not out or depth:
        depth += (text[at] in '([') - (text[at] in ')]')
        out.append(text[at] if depth == 1 else ' ')
        at += 1
    return ''.join(out)


def main(paths):
    bad = 0
    for path in paths:
        with open(path, encoding='utf-8') as file:
            text = BLANK.sub(lambda m: re.sub(r'[^\n]', ' ', m.group()), file.read())
        loops = list(re.finditer(r'\bfor \(', text))
        places = [m.start() for m in loops if MEMBER.search(header(text, m.end() - 1))]
        places += [m.end() for m in re.finditer(r'^ *(?:module|import)\b', text, re.M)]
        for at in sorted(places):
            print(f'{path}:{text.count(chr(10), 0, at) + 1}')
        bad |= bool(places) or not loops
    return bad


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
