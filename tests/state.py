#!/usr/bin/env python3
"""state.py [SRC [-v]]: how often a module of src/ touches the state of another.

The state of a module x is the member x of struct memlord. An access is `lord->x.` or `lord->x->` in another
module, and so is a call of a getter: a function of the ledger alone that only returns one member.
Prints how many there are. If they are more than ALLOWED, prints each, as with -v, and the status is 1.

It is 1, too, if mli_self_state, the thread-local state, has other members than those of THREAD. A parameter of a
call belongs in its mli_call, where the functions that use it name it.
"""
import collections
import os
import re
import sys

from modules import SRC, code, files

ALLOWED = 74
THREAD = set('''generation thread used number found_generation found_ended found hooked orphaned in_host_alloc fence_lord
    try_lord exited unwinding unwound is_helper stack_from stack_to logger_call'''.split())
STATE = re.compile(r'struct mli_(\w+)_state \1;')
LISTED = re.compile(r'#define MLI_STATES\(X\)((?:.*\\\n)*.*)')
GETTER = re.compile(r'^(?:MLI_\w+|static) [^;{}()]*?\b(mli_\w+)\((?:const )?memlord \*lord\)\s*'
                    r'\{\s*return\s+(?:\([^()]*\)\s*)?(?:mli_(?!lock)\w+\()?&?lord->(\w+)(?:\.|->)[\w.]+\)?\s*;\s*\}', re.M)


def main():
    text = {file: code(os.path.join(SRC, file)) for file in files()}
    ledger = text['base/ledger.h']
    owners = set(STATE.findall(ledger)) | set(re.findall(r'X\((\w+)\)', LISTED.search(ledger).group(1)))
    getters = {name: state for body in text.values() for name, state in GETTER.findall(body) if state in owners}
    access = re.compile(r'\blord->(%s)(?:\.|->)(\w+)|\b(%s)\(' % ('|'.join(sorted(owners)), '|'.join(sorted(getters)) or '-'))
    found = collections.Counter()
    for file, body in text.items():
        if file == 'base/ledger.h':
            continue
        module = os.path.basename(file)[:-2]
        for number, line in enumerate(body.split('\n'), 1):
            for state, member, getter in access.findall(line):
                if (state or getters[getter]) != module and not re.match(r'MLI_|static ', line):
                    found[f'{SRC}/{file}:{number} touches the state of {state or getters[getter]}: {member or getter}'] += 1
    members = re.search(r'typedef struct mli_self_state \{(.*?)\n\}', ledger, re.S).group(1)
    odd = THREAD ^ set(re.findall(r'(\w+)(?:\[\w+\])?(?=[,;])', members))
    if odd:
        print('mli_self_state has members that THREAD lacks, or the reverse:', *sorted(odd))
    total = sum(found.values())
    more = total > ALLOWED
    if more or '-v' in sys.argv:
        print('\n'.join(found))
    print(f'{total} accesses to the state of another module' + (f', more than {ALLOWED}' if more else ''))
    return int(more or bool(odd))


if __name__ == '__main__':
    sys.exit(main())
