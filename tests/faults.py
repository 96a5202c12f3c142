"""The one-line faults that memlord.h could have; tests/mutants.py puts them in."""
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

HEADER = 'memlord.h'
OPERATORS = {'+': '-', '-': '+', '*': '+', '/': '*', '%': '/', '<': '<=', '<=': '<', '>': '>=', '>=': '>',
             '==': '!=', '!=': '==', '&&': '||', '||': '&&', '&': '|', '|': '&', '^': '|', '<<': '>>',
             '>>': '<<', '+=': '-=', '-=': '+=', '|=': '&=', '&=': '|=', '<<=': '>>=', '>>=': '<<='}
LOCKS = re.compile(r'lock|_take|_drop|enter|leave|fence|barrier|spin|yield', re.I)


def implementation(text):
    """The section of each line of the implementation, None before it."""
    names = sections(text)
    start = names.index('implementation')
    return [None] * start + names[start:]


class Finder:
    """Finds every fault of the header: (start, end, replacement, kind), by offsets of the text. With
    `pieces` it finds those of the functions that have one of these pieces of text in them."""

    def __init__(self, text, pieces=('',)):
        self.text, self.found = text, []
        kinds = cindex.CursorKind
        self.visit = {kinds.BINARY_OPERATOR: self.operator, kinds.UNARY_OPERATOR: self.no,
                      kinds.COMPOUND_ASSIGNMENT_OPERATOR: self.operator, kinds.INTEGER_LITERAL: self.number,
                      kinds.COMPOUND_STMT: self.statements, kinds.CALL_EXPR: self.arguments,
                      kinds.MEMBER_REF_EXPR: self.field}
        unit = cindex.Index.create().parse('tests/matrix/impl.c', args=['-std=c99', '-I.', '-D_GNU_SOURCE'])
        for top in unit.cursor.get_children():
            if top.location.file and top.location.file.name.endswith(HEADER) and top.is_definition() and \
                    top.kind == kinds.FUNCTION_DECL:
                body = self.at(top)[2]
                if any(piece in body for piece in pieces):
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
        if '\n' not in self.text[start:end]:
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

    def statements(self, cursor, children):
        for child in children:
            start, end, text = self.at(child)
            call = child.kind == cindex.CursorKind.CALL_EXPR
            store = child.kind in (cindex.CursorKind.BINARY_OPERATOR,
                                   cindex.CursorKind.COMPOUND_ASSIGNMENT_OPERATOR)
            if (call and not LOCKS.search(text.split('(')[0]) or store) and self.text[end:end + 1] == ';':
                self.add(start, end, '(void)0', 'dropped call' if call else 'dropped assignment')

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


def describe(text, names, fault):
    start, end, new, kind = fault
    begin, stop, line = text.rfind('\n', 0, start) + 1, text.find('\n', end), text.count('\n', 0, start)
    return (f'{names[line]} | {text[begin:stop].strip()} | '
            f'{(text[begin:start] + new + text[end:stop]).strip()}'), line + 1, kind
