#!/bin/sh
# tests/gates/reports.sh: every report of tests/matrix/fixed.c has the same bytes on every target of
# tests/targets and on Windows, speaking TAP. Programs of other processors run in qemu, those of
# Windows in wine. A target without its compiler or its emulator is skipped.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/gates.sh

# Blanks in files what a target decides. A pattern that a file does not have is an error: the
# reports have changed, and the filter has to.
blank() { # PATTERN REPLACEMENT FILE...
    pattern=$1 replacement=$2
    shift 2
    for file; do grep -qE "$pattern" "$file" || { echo "$file has no '$pattern'"; return 1; }; done
    sed -i -E "s/$pattern/$replacement/g" "$@"
}

# The reports of the fixed calls, without what a target decides: the memory that the ledger and the
# process take.
reports() { # DIRECTORY COMMAND...
    into=$1
    shift
    rm -rf "$into" && mkdir -p "$into" && timeout 120 "$@" "$into" &&
        blank 'its own memory [0-9.]+ [KMG]?i?B' 'its own memory' "$into"/?.txt &&
        blank '  RSS [0-9.]+ [KMG]?i?B$' '' "$into"/?.txt &&
        blank '"own_bytes":[0-9]+' '"own_bytes":0' "$into"/?.json "$into"/?.html &&
        blank '^(memlord_own_bytes\{.*\}) [0-9]+$' '\1 0' "$into"/?.prom
}

same_reports() { # DIRECTORY COMMAND...
    reports "$@" >"$why" 2>&1 && diff -rq "$out/native" "$1" >>"$why" 2>&1
}

# A target: its implementation, and its reports.
target() { # NAME COMPILER EMULATOR FLAGS...
    name=$1 cc=$2 run="$3 -L /usr/${2%-gcc} -E LD_LIBRARY_PATH=/usr/${2%-gcc}/lib" emulator=$3
    shift 3
    [ "$emulator" != - ] || run= emulator=env
    if ! command -v "$cc" >/dev/null || ! command -v "$emulator" >/dev/null; then
        skip "$name: the same reports" "no $cc or no $emulator"
        return
    fi
    $cc -std=c99 "$@" $warn $here -c tests/matrix/impl.c -o "$out/$name.o" >"$why" 2>&1
    verdict $? "$name: the implementation compiles"
    nm -u "$out/$name.o" >"$why" 2>&1 && ! grep -i atomic "$why"
    verdict $? "$name: it needs no library for atomics"
    $cc -std=c99 -O1 $warn $here tests/matrix/fixed.c "$out/$name.o" -o "$out/$name.exe" >"$why" 2>&1 &&
        same_reports "$out/$name" $run "$out/$name.exe"
    verdict $? "$name: the same reports"
}

windows() {
    if ! command -v $mingw >/dev/null || ! command -v wine >/dev/null; then
        skip 'windows: the same reports' "no $mingw or no wine"
        return
    fi
    export WINEDEBUG=-all WINEPREFIX="$out/wine"
    wine wineboot --init >"$why" 2>&1 # what wine says of itself at the first start
    $mingw -std=c99 -O1 $warn $here tests/matrix/fixed.c tests/matrix/impl.c -o "$out/windows.exe" >"$why" 2>&1 &&
        same_reports "$out/windows" wine "$out/windows.exe"
    verdict $? 'windows: the same reports'
}

gcc -std=c99 -O1 $warn $here tests/matrix/fixed.c tests/matrix/impl.c -o "$out/native.exe" >"$why" 2>&1 &&
    reports "$out/native" "$out/native.exe" >>"$why" 2>&1
verdict $? 'here: the reports that the others are compared with'
if [ -n "${MEMLORD_TEST_ALL:-}" ]; then more='s/^+ //'; else more='/^+/d'; fi
sed "/^#/d; $more" tests/targets >"$out/targets"
while read -r line; do target $line; done <"$out/targets"
windows
plan
