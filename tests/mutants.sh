#!/bin/sh
# tests/mutants.sh: what tests/mutants.py makes of a table of known faults.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
table=build/known.txt
mkdir -p build || exit 1

fault=$(grep '^books/accounts | ' tests/mutants_known.txt | head -n 1)
fault=${fault% | *} # without its suite

known() { # ROW...
    printf '%s\n' "$@" >$table
    said=$(python3 tests/mutants.py known $table 2>&1)
    said="$said
status $?"
}

known "$fault | test_accounts" "$fault | test_bytes" # which has no account
matches 'a fault that its suite does not notice fails' '^1 passed, 1 failed$' '^status 1$' \
    '^killed: memlord.h:.*\(test_accounts\)$' '^survived: memlord.h:.*\(test_bytes\)$'
known "books/names | ${fault#books/accounts | } | test_bytes" 'books/accounts | gone(1); | (void)0; | test_bytes' \
    "$fault | test_nothing"
matches 'a row with another section is an error' '^status 2$' 'no such line in that section: books/names \| '
matches 'a row whose line is gone is an error' '^status 2$' 'no such line in that section: books/accounts \| gone'
matches 'a row whose suite is gone is an error' '^status 2$' 'no such suite: .* test_nothing$'
plan
