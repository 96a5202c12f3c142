#!/usr/bin/env python3
"""Joins src/ into the headers that hosts copy: memlord.h and memlord_cuda.h.

    python3 src/join.py              writes both
    python3 src/join.py check        status 1 if one of them is not the join of src/
    python3 src/join.py modules      lists the modules: lines, lines of the header, what it includes
    python3 src/join.py where LINE [PRODUCT]
                                     the file and line of src/ behind a line of memlord.h

A skeleton, src/PRODUCT.skeleton.h, says what a product holds. It includes the files of the API,
and one line, `join: FOLDER...`, stands for the modules of these folders; the line `join: prefix` in
api/prefix.h stands for a macro for each public function. A module is x.h, which
others may include, and x.c, if it has one. A module includes modules of its own folder and of the
folders before it. The order of the modules follows from the includes: each comes after those that
it includes. Where the includes leave a choice, folders and then names decide.
"""
import os
import re
import sys

SRC = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(SRC)
PRODUCTS = ('memlord', 'memlord_cuda')
INCLUDE = re.compile(r'#include "([^"]+/[^"]+)"')
FOLDERS = re.compile(r'/\* join: ([\w ]+) \*/')
PUBLIC = re.compile(r'^(?:MEMLORD_API|MLI_API)\b[^;{(]*?\b(memlord_\w+)\s*\(', re.M)


class Wrong(Exception):
    """What is wrong with src/, for the person who wrote it."""


def lines_of(path):
    """The lines of a file of src/, each with its place: (text, path, number)."""
    try:
        with open(os.path.join(SRC, path), encoding='utf-8', newline='') as file:
            text = file.read()
    except FileNotFoundError:
        raise Wrong(f'src/{path}: there is no such file') from None
    if '\r' in text:
        raise Wrong(f'src/{path}: a line ends with CRLF')
    if not text.endswith('\n'):
        raise Wrong(f'src/{path}: the last line has no end')
    return [(line, path, i + 1) for i, line in enumerate(text.split('\n')[:-1])]


def trimmed(lines):
    """Lines without blank ones at both ends, and with at most one between two others."""
    out = []
    for line in lines:
        if line[0] or (out and out[-1][0]):
            out.append(line)
    while out and not out[-1][0]:
        out.pop()
    return out


class Module:
    """One x.h and its x.c."""

    def __init__(self, name):
        self.name, self.files = name, [f'{name}.h']
        if os.path.exists(os.path.join(SRC, f'{name}.c')):
            self.files.append(f'{name}.c')
        self.lines = {file: lines_of(file) for file in self.files}
        self.includes = []  # other modules, in the order of the lines
        for file in self.files:
            for text, _, number in self.lines[file]:
                found = INCLUDE.match(text)
                if not found:
                    continue
                path = found.group(1)
                if not path.endswith('.h'):
                    raise Wrong(f'src/{file}:{number} includes {path}: a module includes headers')
                if 'api' not in path.split('/')[:-1] and path[:-2] not in [name] + self.includes:
                    self.includes.append(path[:-2])

    def body(self, file):
        """A file without its guard and without the includes of other modules."""
        lines = self.lines[file]
        if file.endswith('.h'):
            guard = 'MLI_' + re.sub(r'\W', '_', file).upper()
            texts = [line[0] for line in lines]
            try:
                at = texts.index(f'#ifndef {guard}')
            except ValueError:
                at = -1
            if at < 0 or texts[at + 1] != f'#define {guard}' or texts[-1] != '#endif':
                raise Wrong(f'src/{file}: it has no guard {guard}')
            lines = lines[:at] + lines[at + 2:-1]
        return trimmed([line for line in lines if not INCLUDE.match(line[0])])


def modules(folders):
    """The modules of the folders, each after those that it includes."""
    found = {}
    for folder in folders:
        for file in sorted(os.listdir(os.path.join(SRC, folder))):
            name, kind = os.path.splitext(f'{folder}/{file}')
            if kind == '.c' and not os.path.exists(os.path.join(SRC, f'{name}.h')):
                raise Wrong(f'src/{name}.c has no header src/{name}.h')
            if kind == '.h':
                found[name] = Module(name)
    order, path = [], []

    def visit(module):
        if module in path:
            raise Wrong('a circle: ' + ' -> '.join(m.name for m in path[path.index(module):] + [module]))
        if module in order:
            return
        path.append(module)
        for name in module.includes:
            if name not in found:
                raise Wrong(f'src/{module.name} includes {name}.h: there is no such module')
            if folders.index(name.split('/')[0]) > folders.index(module.name.split('/')[0]):
                raise Wrong(f'src/{module.name} includes {name}.h, which is in a higher folder')
        for name in sorted(module.includes, key=list(found).index):
            visit(found[name])
        order.append(path.pop())

    for module in found.values():
        visit(module)
    return order


def banner(file):
    return [(f'/* {"-" * (86 - len(file))} src/{file} -- */', file, 1), ('', file, 1)]


def prefixes(place):
    """A macro for each public function, in the order of the API."""
    text = ''.join(line[0] + '\n' for line in joined('api/api.h'))
    names = dict.fromkeys(PUBLIC.findall(re.sub(r'/\*.*?\*/', ' ', text, flags=re.S)))
    return [(f'#define {name} MLI_PREFIXED({name})', *place) for name in names]


def joined(path):
    """A file of src/ with what it includes, and the modules, in their places."""
    out = []
    for line in lines_of(path):
        include, folders = INCLUDE.match(line[0]), FOLDERS.match(line[0])
        if include:
            out += joined(include.group(1))
        elif folders and folders.group(1) == 'prefix':
            out += prefixes(line[1:])
        elif folders:
            for module in modules(folders.group(1).split()):
                for file in module.files:
                    body = module.body(file)
                    out += banner(file) + body + [('', file, 1)] if body else []
        else:
            out.append(line)
    return out


def product(name):
    out = trimmed(joined(f'{name}.skeleton.h'))
    return ''.join(line[0] + '\n' for line in out), [line[1:] for line in out]


def listing():
    for name in PRODUCTS:
        for line in lines_of(f'{name}.skeleton.h'):
            folders = FOLDERS.match(line[0])
            for m in modules(folders.group(1).split()) if folders else []:
                size = [len(m.lines[file]) for file in m.files]
                print(f'{m.name:22} {sum(size):5} {size[0]:5}  {" ".join(i.split("/")[1] for i in m.includes)}')


def where(line, name='memlord.h'):
    if name not in [f'{p}.h' for p in PRODUCTS]:
        raise Wrong(f'{name}: no product; the products are {" and ".join(f"{p}.h" for p in PRODUCTS)}')
    places = product(name[:-2])[1]
    if not line.isdigit() or not 1 <= int(line) <= len(places):
        raise Wrong(f'{name} has the lines 1 to {len(places)}, and no line {line}')
    print('src/%s:%d' % places[int(line) - 1])


def main(arguments):
    if arguments == ['modules']:
        return listing()
    if arguments[:1] == ['where'] and len(arguments) in (2, 3):
        return where(*arguments[1:])
    if arguments not in ([], ['check']):
        raise Wrong(f'{" ".join(arguments)}: the calls are in the first lines of src/join.py')
    stale = []
    for name in PRODUCTS:
        path, text = os.path.join(TOP, f'{name}.h'), product(name)[0]
        if arguments == ['check']:
            with open(path, encoding='utf-8', newline='') as file:
                stale += [f'{name}.h'] if file.read() != text else []
        else:
            with open(path, 'w', encoding='utf-8', newline='') as file:
                file.write(text)
    if stale:
        raise Wrong(f'{" and ".join(stale)}: not the join of src/; make headers joins again')


if __name__ == '__main__':
    try:
        main(sys.argv[1:])
    except Wrong as wrong:
        sys.exit(f'join: {wrong}')
