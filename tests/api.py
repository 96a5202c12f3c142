#!/usr/bin/env python3
"""api.py [HEADER]: what the API of memlord.h promises its readers.

Every public function has a comment of its own, right above it, which begins with a verb ("Returns").
There are at most MOST functions. What is wrong is printed, a line each, and the status is 1.
"""
import re
import sys

from sections import sections

MOST = 159
FUNCTION = re.compile(r'^(?:MEMLORD_API|MLI_API_INLINE)\b.*?\b(memlord_\w+)\(')
VERB = re.compile(r'/\* (?:[A-Z]\w*s)\b')


def functions(lines, names):
    """The public functions of the API and those of >>support: (name, section, number of its line)."""
    for number, line in enumerate(lines):
        found = FUNCTION.match(line)
        if found and names[number] in ('api', 'support'):
            yield found.group(1), names[number], number


def comment(lines, number):
    """The first line of the comment that ends right above a line, or ''."""
    while lines[number - 1].startswith('#if'):
        number -= 1
    if not lines[number - 1].endswith('*/'):
        return ''
    while '/*' not in lines[number - 1]:
        number -= 1
    return lines[number - 1]


def main():
    with open(sys.argv[1] if len(sys.argv) > 1 else 'memlord.h', encoding='utf-8') as file:
        text = file.read()
    lines = text.split('\n')
    all_of = list(functions(lines, sections(text)))
    api = [name for name, section, _ in all_of if section == 'api']
    wrong = [f'{name} has no comment of its own that begins with a verb'
             for name, _, number in all_of if not VERB.match(comment(lines, number))]
    if len(api) > MOST:
        wrong.append(f'the API has {len(api)} functions, more than {MOST}')
    if len(api) < 100:
        wrong.append(f'only {len(api)} functions: this check no longer finds them')
    print('\n'.join(wrong) or f'{len(api)} public functions, and {len(all_of) - len(api)} below the line')
    return int(bool(wrong))


if __name__ == '__main__':
    sys.exit(main())
