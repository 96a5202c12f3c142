#!/usr/bin/env python3
"""Joins src/ into the headers that hosts copy: memlord.h and memlord_cuda.h.

    python3 src/join.py              writes both
    python3 src/join.py check        status 1 if one of them is not the join of src/
    python3 src/join.py modules      lists the modules: lines, lines of the header, what it includes
    python3 src/join.py where LINE [PRODUCT]
                                     the file and line of src/ behind a line of memlord.h

A skeleton, src/PRODUCT.skeleton.h, says what a product holds. It includes the files of the API,
and one line, `join: FOLDER...`, stands for the modules of these folders; the line `join: prefix` in
api/prefix.h stands for a macro for each public function, and `join: index` in api/manual.h for the
functions of the API by their groups, each group under a banner `-- NAME: what it is --`. Where the API repeats a table for each of
its rows (MLI_X), the product has a line a row: a value or member with its comment. A module is x.h, which
others may include, and x.c, if it has one. The product leaves out a prototype of x.h that nothing
needs before the function in x.c, and puts its comment above the function. A module includes modules
of its own folder and of the folders before it. The order of the modules follows from the includes:
each comes after those that it includes. Where the includes leave a choice, folders and then names
decide.
"""
import os
import re
import sys
import textwrap

SRC = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(SRC)
PRODUCTS = ('memlord', 'memlord_cuda')
INCLUDE = re.compile(r'#include "([^"]+/[^"]+)"')
FOLDERS = re.compile(r'/\* join: ([\w ]+) \*/')
TABLE = re.compile(r'#define (MLI_\w+)\(X\)')
EACH_ROW = re.compile(r'#define MLI_X\(([\w, ]+)\) (\S+(?: \S+)*)$')
ROW = re.compile(r' X\(((?:"[^"]*"|[^"()])*)\)(?: *\n? */\* ((?:.|\n)*?) \*/)?')
WIDTH = 100
COMMENT = r'(?:/\*(?:(?!\*/).)*\*/\n)?'
PROTOTYPES = re.compile(rf'^({COMMENT})((?:MLI_PRIVATE\b[^;{{}}#/]*;\n)+)', re.M | re.S)
DEFINED = re.compile(rf'^{COMMENT}(MLI_PRIVATE\b[^;{{}}#/=]*)(?:= )?\{{', re.M | re.S)
PUBLIC = re.compile(r'^(?:MEMLORD_API|MLI_API|MLI_API_INLINE)\b[^;{(]*?\b(memlord_\w+)\s*\(', re.M)
CALLED = re.compile(r'^(?:MEMLORD_API|MLI_API_INLINE)\b.*?\b(memlord_\w+)\(', re.M)
GROUP = re.compile(r'^/\* -- ([\w ]+?)(?:: (.+?))? --', re.M)


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


def conditions(text):
    """The directives #if and #else that hold at the end of a text."""
    held = []
    for line in re.findall(r'^#(?:if|el|endif).*', text, re.M):
        if line.startswith('#if'):
            held.append([])
        held[-1].append(line)
        if line.startswith('#endif'):
            held.pop()
    return held


def without_prototypes(head, body):
    """The lines of a header and of its body. A prototype is left out if nothing names the function
    before its body; so is the declaration of a table. Its comment then stands above the definition."""
    text, below = (''.join(line[0] + '\n' for line in lines) for lines in (head, body))
    text = re.sub(r'^MLI_TABLE\((.*)\)$', r'MLI_PRIVATE \1;', text, flags=re.M)
    definitions = {}
    for found in DEFINED.finditer(below):
        definitions.setdefault(''.join(found.group(1).split()), []).append(found)
    gone, moved = set(), {}
    for group in PROTOTYPES.finditer(text):
        places, at = [], group.start(2)
        for prototype in group.group(2).split(';\n')[:-1]:
            start, at = at, at + len(prototype) + 2
            found = definitions.get(''.join(prototype.split()), [])
            if len(found) == 1 and conditions(text[:at]) == conditions(below[:found[0].start()]):
                between = re.sub(r'/\*.*?\*/', '', text[at:] + below[:found[0].start(1)], flags=re.S)
                name = re.search(r'\b(mli_\w+)[([]|\b(\w+)$', prototype)
                if not re.search(rf'\b{name.group(1) or name.group(2)}\b', between):
                    places.append((start, at, found[0].start()))
                    continue
            places.append(None)
        if group.group(1) and len(places) > 1 and None in places:
            continue
        for start, end, _ in filter(None, places):
            gone.update(range(text.count('\n', 0, start), text.count('\n', 0, end)))
        if group.group(1) and places[0]:
            comment = range(text.count('\n', 0, group.start()), text.count('\n', 0, group.start(2)))
            gone.update(comment)
            moved.setdefault(below.count('\n', 0, places[0][2]), []).extend(head[at] for at in comment)
    return ([line for at, line in enumerate(head) if at not in gone],
            [each for at, line in enumerate(body) for each in moved.get(at, []) + [line]])


def banner(file):
    return [(f'/* {"-" * (86 - len(file))} src/{file} -- */', file, 1), ('', file, 1)]


def prefixes(place):
    """A macro for each public function, in the order of the API."""
    text = ''.join(line[0] + '\n' for line in joined('api/api.h'))
    names = dict.fromkeys(PUBLIC.findall(re.sub(r'/\*.*?\*/', ' ', text, flags=re.S)))
    return [(f'#define {name} MLI_PREFIXED({name})', *place) for name in names]


def shortened(names):
    """Public functions in a row. After memlord_tag_begin, _end stands for memlord_tag_end."""
    out, full = [], []
    for words in (name.split('_') for name in names):
        begin = full[:-1]
        if begin and words[:len(begin)] == begin:
            out.append('_' + '_'.join(words[len(begin):]))
        else:
            out.append('_'.join(words))
            full = words
    return ', '.join(out)


def index(place):
    """The functions of the API by their groups, in its order. What is below >>support is left out."""
    text = ''.join(line[0] + '\n' for line in joined('api/api.h')).split('>>support')[0]
    _, *groups = GROUP.split(text)
    out = []
    for title, note, body in zip(groups[::3], groups[1::3], groups[2::3]):
        entry = ': '.join(filter(None, [note, shortened(CALLED.findall(body))]))
        out += textwrap.wrap(entry, WIDTH - 5, initial_indent=f'        {title:14}', subsequent_indent=' ' * 22,
                             break_on_hyphens=False)
    return [(line, *place) for line in out]


def rows(lines, at):
    """The rows of the table that is defined at a line: (arguments, comment, line). The comment is the
    row's own, else its last argument."""
    end = at
    while lines[end][0].endswith('\\'):
        end += 1
    text = '\n'.join(line[0].rstrip('\\ ') for line in lines[at:end + 1])
    for found in ROW.finditer(text):
        arguments = [a.strip() for a in re.findall(r'(?:"[^"]*"|[^",])+', found.group(1))]
        last = re.sub(r'"\s*"', '', arguments[-1]).strip('"')  # adjacent literals are one
        comment = ' '.join((found.group(2) or last).split())
        yield arguments, comment, lines[at + text.count('\n', 0, found.start() + 1)]


def written_out(lines, tables):
    """Lines of the API with a line for each row of a table in place of the macros that repeat it."""
    out, at = [], 0
    while at < len(lines):
        each = EACH_ROW.match(lines[at][0])
        table = TABLE.match(lines[at][0])
        if table:
            tables[table.group(1)] = list(rows(lines, at))
        if not each:
            out.append(lines[at])
            at += 1
            continue
        names, table = each.group(1).split(', '), lines[at + 1][0].strip().removesuffix('(MLI_X)')
        if table not in tables or lines[at + 2][0] != '#undef MLI_X':
            raise Wrong(f'src/{lines[at][1]}:{lines[at][2]}: no use of a table that is defined before it')
        entries = []
        for number, (arguments, comment, place) in enumerate(tables[table]):
            entry = re.sub('##', '', each.group(2))
            for name, value in zip(names, arguments):
                entry = re.sub(rf'(?<![a-z]){name}\b', value, entry)
            entries.append((re.sub(',$', f' = {number},', entry), comment, place))
        column = 5 + max(len(entry) for entry, _, _ in entries)
        for entry, comment, place in entries:
            text = textwrap.wrap(f'/* {comment}\0*/', WIDTH - column, subsequent_indent='   ')
            for i, piece in enumerate(text):
                piece = piece.replace('\0', ' ')
                out.append(((f'    {entry}' if not i else '').ljust(column) + piece, *place[1:]))
        at += 3
    return out


def joined(path):
    """A file of src/ with what it includes, and the modules, in their places."""
    out = []
    lines = lines_of(path)
    if path.startswith('api/'):
        lines = written_out(lines, {})
    for line in lines:
        include, folders = INCLUDE.match(line[0]), FOLDERS.match(line[0])
        if include:
            out += joined(include.group(1))
        elif folders and folders.group(1) == 'prefix':
            out += prefixes(line[1:])
        elif line[0] == '        join: index':
            out += index(line[1:])
        elif folders:
            for module in modules(folders.group(1).split()):
                bodies = [module.body(file) for file in module.files]
                if len(bodies) > 1:
                    bodies = without_prototypes(*bodies)
                for file, body in zip(module.files, map(trimmed, bodies)):
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
