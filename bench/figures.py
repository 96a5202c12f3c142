#!/usr/bin/env python3
"""figures.py [check|write] [RESULT]: whether the figures of README and the guides are those of a kept run.

RESULT is a whole output of run.sh: the newest of results/ otherwise. figures.txt tells which row of it
each figure is. The status is 1 if a sentence is not there or has another figure, and if the result has
no such row. `write` puts the figures of the result into the sentences.
"""
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
os.chdir(os.path.dirname(HERE))


def newest():
    names = sorted(name for name in os.listdir('bench/results') if re.fullmatch(r'[0-9TZ-]+\.txt', name))
    return f'bench/results/{names[-1]}'


def figure(lines, path, which):
    """The text of a figure: `path` leads from the heading of a table to a row of it, and `which` has the
    column after the row's name, a factor, and the number of decimals."""
    column, factor, decimals = which.split()
    steps, row = path.split(' > '), None
    for line in lines:
        if steps and line.strip().startswith(steps[0] if row is None else f'{steps[0]} '):
            row = line.strip()[len(steps.pop(0)):]
        elif row is not None and not line:
            break
    cells = row.split() if row is not None and not steps else []
    try:
        return f'{float(cells[int(column)]) * float(factor):.{decimals}f}'
    except (IndexError, ValueError):
        return None


def pattern(sentence):
    """A sentence as a pattern, in which each {name} is a group, and each space may be the end of a line."""
    parts = re.split(r'\{(\w+)\}', sentence)
    words = [r'\s+'.join(map(re.escape, part.split(' '))) for part in parts[::2]]
    return parts[1::2], re.compile(r'([\d.]+)'.join(words))


def main():
    write = sys.argv[1:2] == ['write']
    result = sys.argv[2] if len(sys.argv) > 2 else newest()
    with open(result, encoding='utf-8') as file:
        lines = file.read().split('\n')
    with open('bench/figures.txt', encoding='utf-8') as file:
        rows = [line.rstrip('\n').split(' | ') for line in file if ' | ' in line and line[0] != '#']
    figures, wrong = {}, []
    for name, *where in rows:
        if not name.endswith('.md'):
            figures[name] = figure(lines, *where)
            if figures[name] is None:
                wrong.append(f'{name}: {result} has no such figure')
            continue
        with open(name, encoding='utf-8') as file:
            text = file.read()
        names, sentence = pattern(' | '.join(where))
        found = sentence.search(text)
        if not found:
            wrong.append(f'{name}: no such sentence: {where[0]}')
            continue
        for number in range(len(names), 0, -1):
            figure_is, figure_was = figures[names[number - 1]] or '?', found[number]
            if figure_is == figure_was:
                continue
            if write and figure_is != '?':
                text = text[:found.start(number)] + figure_is + text[found.end(number):]
            else:
                wrong.append(f'{name}: {names[number - 1]} is {figure_was}, and {figure_is} in {result}')
        if write:
            with open(name, 'w', encoding='utf-8') as file:
                file.write(text)
    print('\n'.join(wrong), end='\n' if wrong else '')
    return int(bool(wrong))


if __name__ == '__main__':
    sys.exit(main())
