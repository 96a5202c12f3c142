#!/bin/sh
# tests/ports.sh: the suites on other targets, those of tests/targets, speaking TAP; emulated where
# this processor cannot run them. A target without its compiler, its cmocka or its emulator is
# skipped, suite by suite (tests/deps.sh ports installs them). `make gates` compares the reports.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
out=build/ports
warn="-Wall -Wextra -pedantic -Wconversion -Wshadow -Wundef -Werror"
here="-I. -pthread -idirafter /usr/include" # stb_ds.h and cmocka.h are the same for all
suites=$(ls tests/test_*.c | grep -v '/test_cuda_' | sed 's|tests/\(.*\)\.c|\1|')

silent() { # NAME: passes when what `said` holds is nothing
    [ -z "$said" ]
    verdict $? "$1"
}

# A program with cmocka decides: it runs as it is, or emulated, or not at all.
runner() { # COMPILER EMULATOR
    echo '#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
int main(void) { print_message("%s", ""); return 0; }' >"$dir/probe.c"
    $1 $here "$dir/probe.c" -o "$dir/probe" -lcmocka >"$dir/probe.txt" 2>&1 || return 1
    "$dir/probe" >/dev/null 2>&1 && { echo env; return; }
    "$2" "$dir/probe" >/dev/null 2>&1 && echo "$2"
}

# The implementation of one target.
prepare() { # NAME COMPILER EMULATOR FLAGS...
    name=$1 compiler=$2 emulator=$3 dir=$out/$1
    shift 3
    rm -rf "$dir" && mkdir -p "$dir"
    runs=$(runner $compiler "$emulator") || runs=
    echo "$runs" >"$dir/runs"
    if [ -z "$runs" ]; then
        skip "$name: the implementation" "no $compiler, its cmocka or $emulator"
        return
    fi
    said=$($compiler -std=c99 "$@" $warn $here -c tests/matrix/impl.c -o "$dir/memlord.o" 2>&1)
    silent "$name: the implementation compiles"
}

# Says why a suite cannot run on a target; nothing if it can.
unfit() { # NAME SUITE RUNNER
    case "$1 $2 $3" in
    'i486 test_neighbours '* | 'i486 test_slots '*) echo 'pressure pages need 64-bit atomics' ;;
    'aarch64 test_neighbours qemu-'*) echo 'qemu 7.2 asserts where a process with threads forks' ;;
    esac
}

# Runs a suite; its tests become ours.
suite() { # NAME COMPILER SUITE
    dir=$out/$1 tap=$out/$1/$3.tap
    runs=$(cat "$dir/runs")
    reason=$(unfit "$1" "$3" "$runs")
    [ -n "$runs" ] || reason="no $2, its cmocka or its emulator"
    if [ -n "$reason" ]; then
        skip "$1 $3" "$reason" >"$tap.ours"
        return
    fi
    case $runs in
    env) scale=4 operations=50000 ;;
    *) scale=1 operations=5000 ;;
    esac
    $2 -std=c99 -O2 $warn $here "tests/$3.c" "$dir/memlord.o" -o "$dir/$3" -lcmocka -ldl >"$tap" 2>&1 &&
        MEMLORD_TEST_SCALE=$scale MEMLORD_TEST_OPS=$operations CMOCKA_MESSAGE_OUTPUT=TAP \
            timeout 600 "$runs" "$dir/$3" >"$tap" 2>&1
    status=$?
    ended=$(grep -cE '^(not )?ok ' "$tap")
    planned=$(sed -n 's/^1\.\.\([0-9]*\).*/\1/p' "$tap" | head -n 1)
    {
        sed -nE "s/^ok [0-9]+ - /ok - $1 $3: /p; s/^(not )?ok [0-9]+ # SKIP /ok - $1 $3 # SKIP /p" "$tap"
        sed -nE "/# SKIP|^# (not )?ok - /d; s/^not ok [0-9]+ - /not ok - $1 $3: /p; t; s/^# /#   /p" "$tap"
        if [ "$ended" -ne "${planned:-0}" ] || [ "$ended" -eq 0 ]; then
            echo "not ok - $1 $3: ended with status $status after $ended of ${planned:-no} tests"
            tail -n 5 "$tap" | cut -c1-200 | sed 's/^/#   /'
        fi
    } >"$tap.ours"
}

main() {
    rm -rf $out && mkdir -p $out
    grep -vE '^#| - ' tests/targets >$out/targets # what runs here as it is is no port
    {
        while read -r name compiler emulator flags; do
            prepare "$name" "$compiler" "$emulator" $flags
        done <$out/targets
        while read -r name compiler rest; do
            for suite in $suites; do echo "$name $compiler $suite"; done
        done <$out/targets | xargs -P "$(nproc)" -n 3 sh "$0" suite
        cat $out/*/*.ours
    } | tee $out/tap
    echo "1..$(grep -cE '^(not )?ok ' $out/tap)"
}

case ${1:-} in
suite) suite "$2" "$3" "$4" ;;
*) main ;;
esac
