#!/bin/sh
# tests/ports.sh: MemLord on other targets, speaking TAP: every report has the same bytes there,
# and with MEMLORD_TEST_ALL=1 the suites run, emulated where this processor cannot run them. A
# target without its compiler, its cmocka or its emulator is skipped, suite by suite
# (tests/deps.sh ports installs them).
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
out=build/ports
warn="-Wall -Wextra -pedantic -Wconversion -Wshadow -Wundef -Werror"
here="-I. -pthread -idirafter /usr/include" # stb_ds.h and cmocka.h are the same for all
suites=$(ls tests/test_*.c | grep -v '/test_cuda_' | sed 's|tests/\(.*\)\.c|\1|')

# NAME COMPILER EMULATOR FLAGS OF THE IMPLEMENTATION. i486 has no 64-bit atomics.
targets='clang clang - -O0 -funsigned-char -U__SSE2__'
[ -z "${MEMLORD_TEST_ALL:-}" ] || targets="$targets
i386 i686-linux-gnu-gcc qemu-i386 -O2
i486 i686-linux-gnu-gcc qemu-i386 -O2 -march=i486
aarch64 aarch64-linux-gnu-gcc qemu-aarch64 -O2"

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

# Blanks in a file what a target decides. A pattern that the file does not have is an error: the
# reports have changed, and the filter has to.
blank() { # FILE PATTERN REPLACEMENT
    grep -qE "$2" "$1" || { echo "$1 has no '$2'"; return 1; }
    sed -i -E "s/$2/$3/g" "$1"
}

# The reports of the fixed calls, without what a target decides: the memory that the ledger and the
# process take.
reports() { # DIRECTORY COMMAND...
    into=$1
    shift
    rm -rf "$into" && mkdir -p "$into" && timeout 120 "$@" "$into" &&
        blank "$into"/?.txt 'its own memory [0-9.]+ [KMG]?i?B' 'its own memory' &&
        blank "$into"/?.txt '  RSS [0-9.]+ [KMG]?i?B$' '' &&
        blank "$into"/?.json '"own_bytes":[0-9]+' '"own_bytes":0' &&
        blank "$into"/?.html '"own_bytes":[0-9]+' '"own_bytes":0' &&
        blank "$into"/?.prom '^(memlord_own_bytes\{.*\}) [0-9]+$' '\1 0'
}

# The implementation, the reports, the work of one target before its suites.
prepare() { # NAME COMPILER EMULATOR FLAGS...
    name=$1 compiler=$2 emulator=$3 dir=$out/$1
    shift 3
    rm -rf "$dir" && mkdir -p "$dir"
    runs=$(runner $compiler "$emulator") || runs=
    echo "$runs" >"$dir/runs"
    if [ -z "$runs" ]; then
        skip "$name: the same reports" "no $compiler, its cmocka or $emulator"
        return
    fi
    said=$($compiler -std=c99 "$@" $warn $here -c tests/matrix/impl.c -o "$dir/memlord.o" 2>&1)
    silent "$name: the implementation compiles"
    said=$(nm -u "$dir/memlord.o" 2>&1 | grep -i atomic)
    silent "$name: it needs no library for atomics"
    said=$($compiler -std=c99 -O1 $warn $here tests/matrix/fixed.c "$dir/memlord.o" -o "$dir/fixed" 2>&1
        reports "$dir/reports" "$runs" "$dir/fixed" 2>&1 || echo "status $?"
        diff -rq $out/native/reports "$dir/reports" 2>&1)
    silent "$name: the same reports"
}

# Windows has no cmocka, so the suites do not run there. What wine says of itself is dropped.
windows() {
    dir=$out/windows cc=x86_64-w64-mingw32-gcc
    rm -rf "$dir" && mkdir -p "$dir"
    if ! command -v $cc >/dev/null || ! command -v wine >/dev/null; then
        skip 'windows: the same reports' "no $cc or no wine"
        return
    fi
    cp "$(gcc -M -I. tests/matrix/impl.c | grep -o '[^ ]*stb_ds\.h')" "$dir"
    said=$($cc -std=c99 -O1 $warn -I. -isystem "$dir" tests/matrix/fixed.c tests/matrix/impl.c \
        -o "$dir/fixed.exe" 2>&1
        WINEDEBUG=-all WINEPREFIX=$PWD/$dir/wine reports "$dir/reports" wine "$dir/fixed.exe" 2>/dev/null || echo "status $?"
        diff -rq $out/native/reports "$dir/reports" 2>&1)
    silent 'windows: the same reports'
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
    mkdir -p $out/native
    echo "$targets" >$out/targets
    said=$({ gcc -std=c99 -O1 $warn $here tests/matrix/fixed.c tests/matrix/impl.c -o $out/native/fixed &&
        reports $out/native/reports $out/native/fixed; } 2>&1 || echo "status $?")
    {
        silent 'here: the reports that the others are compared with'
        while read -r name compiler emulator flags; do
            dir=$out/$name
            prepare "$name" "$compiler" "$emulator" $flags
        done <$out/targets
        if [ -n "${MEMLORD_TEST_ALL:-}" ]; then
            windows
            sed 1d $out/targets | while read -r name compiler rest; do
                for suite in $suites; do echo "$name $compiler $suite"; done
            done | xargs -P "$(nproc)" -n 3 sh "$0" suite
            cat $out/*/*.ours
        fi
    } | tee $out/tap
    echo "1..$(grep -cE '^(not )?ok ' $out/tap)"
}

case ${1:-} in
suite) suite "$2" "$3" "$4" ;;
*) main ;;
esac
