#!/bin/sh
# tests/gates/sums.sh: nothing has outgrown its ceiling in tests/sums.txt, speaking TAP.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/tap.sh
said=$(python3 tests/sums.py 2>&1)
verdict $? 'the sums are within tests/sums.txt'
low=build/sums.txt
mkdir -p build && sed 's/^[0-9.]* /0.01 /; $a 1 lines of nothing' tests/sums.txt >$low
said=$(python3 tests/sums.py $low 2>&1; echo "status $?")
matches 'a sum above its ceiling is named, and so is one that is not counted' '^status 1$' \
    '^above its ceiling: KiB of code and constants$' '^above its ceiling: functions exported$' \
    '^above its ceiling: lines of bench/$' '^no count of this name: lines of nothing$'
plan
