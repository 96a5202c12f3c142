"""The one-line faults that the product could have; tests/mutants.py puts them in."""
import os
import re
import sys

from sections import sections

try:
    from clang import cindex
except ImportError: # Debian's package is for Debian's python3
    if sys.executable != '/usr/bin/python3' and os.path.exists('/usr/bin/python3'):
        os.execv('/usr/bin/python3', ['/usr/bin/python3'] + sys.argv)
    print('mutants: no module clang.cindex: apt-get install python3-clang', file=sys.stderr)
    sys.exit(2)

KINDS = cindex.CursorKind
OPERATORS = {'+': '-', '-': '+', '*': '+', '/': '*', '%': '/', '<': '<=', '<=': '<', '>': '>=', '>=': '>',
             '==': '!=', '!=': '==', '&&': '||', '||': '&&', '&': '|', '|': '&', '^': '|', '<<': '>>',
             '>>': '<<', '+=': '-=', '-=': '+=', '|=': '&=', '&=': '|=', '<<=': '>>=', '>>=': '<<='}
LOCKS = re.compile(r'lock|_take|_drop|enter|leave|fence|barrier|spin|yield', re.I)
UNSEEN = re.compile(r'MLI_REQUIRE|MLI_RANK|mli_rank|_Static_assert|MLI_TEXT_CHUNK')


class Source:
    """A file that faults are put into: its text, and the section of each line."""

    def __init__(self, path):
        self.path, self.text = path, open(path, encoding='latin-1').read() # so that an offset is a byte
        if path.endswith('memlord.h') or path.endswith('memlord_cuda.h'):
            named = sections(self.text)
            start = next(i for i, name in enumerate(named) if name and '/' in name or name == 'implementation')
            self.names = [None] * start + named[start:]
        else:  # a file of src/tools/preload, or preload.c
            name = 'preload/' + os.path.basename(path)[:-2]
            self.names = [name] * (self.text.count('\n') + 1)

    def describe(self, fault):
        """A fault as a table has it, `section | line | line with the fault`; the number of its line; its kind."""
        start, end, new, kind = fault
        begin, stop = self.text.rfind('\n', 0, start) + 1, self.text.find('\n', end)
        line = self.text.count('\n', 0, start)
        return (f'{self.names[line]} | {self.text[begin:stop].strip()} | '
                f'{(self.text[begin:start] + new + self.text[end:stop]).strip()}'), line + 1, kind


class Finder:
    """Finds the faults of a source: (start, end, replacement, kind), by offsets of its text. With
    `pieces` it finds those of the functions and tables that have one of these pieces of text in them."""

    def __init__(self, source, unit, args, pieces=('',)):
        self.source, self.text, self.found = source, source.text, []
        self.visit = {KINDS.BINARY_OPERATOR: self.operator, KINDS.UNARY_OPERATOR: self.no,
                      KINDS.COMPOUND_ASSIGNMENT_OPERATOR: self.operator, KINDS.INTEGER_LITERAL: self.number,
                      KINDS.COMPOUND_STMT: self.statements, KINDS.CALL_EXPR: self.arguments,
                      KINDS.MEMBER_REF_EXPR: self.field, KINDS.STRING_LITERAL: self.string,
                      KINDS.RETURN_STMT: self.result}
        for top in unit_of(unit, args).cursor.get_children():
            if top.location.file and os.path.normpath(top.location.file.name) == source.path and top.is_definition() and \
                    top.kind in (KINDS.FUNCTION_DECL, KINDS.VAR_DECL):
                body = self.at(top)[2]
                if self.source.names[top.location.line - 1] and any(piece in body for piece in pieces):
                    self.walk(top)

    def walk(self, cursor):
        if cursor.kind in self.visit:
            self.visit[cursor.kind](cursor, list(cursor.get_children()))
        for child in cursor.get_children():
            self.walk(child)

    def at(self, cursor):
        """The offsets of a cursor, and its text, which is empty for what a macro makes."""
        start, end = cursor.extent.start.offset, cursor.extent.end.offset
        return start, end, self.text[start:end]

    def add(self, start, end, new, kind):
        line = self.text[self.text.rfind('\n', 0, start) + 1:end]
        if '\n' not in self.text[start:end] and not UNSEEN.search(line):
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

    def string(self, cursor, children):
        """Another first letter, if it is of no escape and of no format."""
        start, end, text = self.at(cursor)
        for word in re.finditer(r'\\x?\w+|%[^a-zA-Z]*[a-zA-Z]+|([a-zA-Z])', text if text.startswith('"') else ''):
            if word.group(1):
                at = start + word.start()
                self.add(at, at + 1, 'q' if word.group(1) != 'q' else 'k', 'string')
                return

    def result(self, cursor, children):
        """A function that returns another result."""
        if not children:
            return
        start, end, text = self.at(children[0])
        kind = children[0].type.get_canonical().kind
        if re.match(r'MEMLORD_(OK|E_\w+)$', text):
            self.add(start, end, 'MEMLORD_E_STATE' if text != 'MEMLORD_E_STATE' else 'MEMLORD_OK', 'result')
        elif text and not re.match(r'(0|NULL)\b', text) and kind in (
                cindex.TypeKind.POINTER, cindex.TypeKind.INT, cindex.TypeKind.UINT, cindex.TypeKind.ULONG,
                cindex.TypeKind.LONG, cindex.TypeKind.ENUM):
            self.add(start, end, '(memlord_result)0' if kind == cindex.TypeKind.ENUM else '0', 'result')

    def statements(self, cursor, children):
        for child in children:
            start, end, text = self.at(child)
            call = child.kind == KINDS.CALL_EXPR
            store = child.kind in (KINDS.BINARY_OPERATOR, KINDS.COMPOUND_ASSIGNMENT_OPERATOR)
            if (call and not LOCKS.search(text.split('(')[0]) or store) and self.text[end:end + 1] == ';':
                self.add(start, end, '(void)0', 'dropped call' if call else 'dropped assignment')
            parts = list(child.get_children()) if child.kind == KINDS.IF_STMT else []
            if len(parts) == 2 and parts[1].kind == KINDS.RETURN_STMT and self.text[end:end + 1] == ';':
                self.add(start, end, '(void)0', 'dropped error path')

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


def unit_of(unit, args, known={}):
    """What clang makes of a C file, once for all the sources that it includes."""
    key = (unit, *args)
    if key not in known:
        known[key] = cindex.Index.create().parse(unit, args=['-std=c99', '-D_GNU_SOURCE', *args])
    return known[key]
