#!/bin/sh
# tests/ports.sh: every report has the same bytes on other targets, speaking TAP; with
# MEMLORD_TEST_ALL=1 on all of them, emulated where this processor cannot run them. A target without
# its compiler or its emulator is skipped (tests/deps.sh ports installs them). The suites run on these
# targets as parts of `make test-all` (tests/parts.mk).
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
out=build/ports
warn="-Wall -Wextra -pedantic -Wconversion -Wshadow -Wundef -Werror"
here="-I. -pthread -idirafter /usr/include" # stb_ds.h is the same for all

# NAME COMPILER EMULATOR FLAGS OF THE IMPLEMENTATION. i486 has no 64-bit atomics, s390x has the other
# byte order.
targets='clang clang - -O0 -funsigned-char -U__SSE2__'
[ -z "${MEMLORD_TEST_ALL:-}" ] || targets="$targets
i386 i686-linux-gnu-gcc qemu-i386 -O2
i486 i686-linux-gnu-gcc qemu-i386 -O2 -march=i486
aarch64 aarch64-linux-gnu-gcc qemu-aarch64 -O2
armhf arm-linux-gnueabihf-gcc qemu-arm -O2
riscv64 riscv64-linux-gnu-gcc qemu-riscv64 -O2
ppc64el powerpc64le-linux-gnu-gcc qemu-ppc64le -O2
s390x s390x-linux-gnu-gcc qemu-s390x -O2"

silent() { # NAME: passes when what `said` holds is nothing
    [ -z "$said" ]
    verdict $? "$1"
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

# The implementation and the reports of one target.
target() { # NAME COMPILER EMULATOR FLAGS...
    name=$1 compiler=$2 emulator=$3 dir=$out/$1
    shift 3
    runs="$emulator -L /usr/${compiler%-gcc}"
    [ "$emulator" != - ] || runs= emulator=env
    if ! command -v "$compiler" >/dev/null || ! command -v "$emulator" >/dev/null; then
        skip "$name: the same reports" "no $compiler or no $emulator"
        return
    fi
    rm -rf "$dir" && mkdir -p "$dir"
    said=$($compiler -std=c99 "$@" $warn $here -c tests/matrix/impl.c -o "$dir/memlord.o" 2>&1)
    silent "$name: the implementation compiles"
    said=$({ nm -u "$dir/memlord.o" || echo "status $?"; } 2>&1 | grep -iE 'atomic|status')
    silent "$name: it needs no library for atomics"
    said=$($compiler -std=c99 -O1 $warn $here tests/matrix/fixed.c "$dir/memlord.o" -o "$dir/fixed" 2>&1
        reports "$dir/reports" $runs "$dir/fixed" 2>&1 || echo "status $?"
        diff -rq $out/native/reports "$dir/reports" 2>&1)
    silent "$name: the same reports"
}

# What wine says of itself is dropped.
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

mkdir -p $out/native
said=$({ gcc -std=c99 -O1 $warn $here tests/matrix/fixed.c tests/matrix/impl.c -o $out/native/fixed &&
    reports $out/native/reports $out/native/fixed; } 2>&1 || echo "status $?")
silent 'here: the reports that the others are compared with'
echo "$targets" >$out/targets
while read -r line; do target $line; done <$out/targets
[ -z "${MEMLORD_TEST_ALL:-}" ] || windows
plan
