#!/bin/sh
# tests/gates/windows.sh: both headers compile for Windows without a warning, and programs link,
# speaking TAP: with MinGW, with each clang that is installed, and for ARM with zig. tests/gates/reports.sh
# runs the fixed calls under wine.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/gates.sh

programs() { # STANDARD
    check "MinGW $1: examples/quickstart.c builds" "$mingw $(language "$1") $warn $here \
        examples/quickstart.c -o $out/quickstart_$1.exe -lstdc++"
    check "MinGW $1: tests/matrix/fixed.c builds" "$mingw $(language "$1") $warn $here -DMEMLORD_IMPLEMENTATION \
        tests/matrix/fixed.c -o $out/fixed_$1.exe -lstdc++"
}

if command -v $mingw >/dev/null && command -v x86_64-w64-mingw32-g++ >/dev/null; then
    headers MinGW 'c99 c2x c++11 c++20' $mingw -O1 # some warnings need -O1
    programs c99
    programs c++11
    for cc in $(ls /usr/bin | grep -xE 'clang(-[0-9]+)?'); do
        headers "$cc for Windows" 'c99 c2x' "$cc" --target=x86_64-w64-windows-gnu
    done
else
    skip 'MinGW: both headers, the quickstart and the fixed calls' 'no gcc or g++ of MinGW'
    skip 'clang for Windows: both headers' 'no headers of MinGW'
fi
if [ -x "$zig" ]; then
    headers 'Windows on ARM' 'c99 c++11' "$zig" cc -target aarch64-windows-gnu
else
    skip 'Windows on ARM: both headers' 'no zig'
fi
run_checks
plan
