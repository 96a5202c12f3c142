#!/bin/sh
# tests/gates/mutants.sh: the suites notice each of the known faults (tests/mutants_known.txt), speaking
# TAP. Without python3-clang it is skipped.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/tap.sh
name='the suites notice each known fault'
if python3 -c 'import clang.cindex' 2>/dev/null || /usr/bin/python3 -c 'import clang.cindex' 2>/dev/null; then
    said=$(python3 tests/mutants.py known 2>&1)
    matches "$name" '^[1-9][0-9]* passed, 0 failed$'
else
    skip "$name" 'no python3-clang'
fi
plan
