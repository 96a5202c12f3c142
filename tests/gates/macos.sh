#!/bin/sh
# tests/gates/macos.sh: both headers compile for macOS without a warning, and the quickstart links,
# speaking TAP. zig has the headers of macOS and a linker for it. Nothing of it runs here.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/gates.sh

# A program of macOS begins with this word.
mach_o() { [ "$(od -An -tx4 -N4 "$1" | tr -d ' ')" = feedfacf ]; }

if [ -x "$zig" ]; then
    for cpu in x86_64 aarch64; do # each standard on one of them: they take long
        case $cpu in x86_64) standards='c99 c++11' ;; *) standards='c2x c++20' ;; esac
        headers "macOS $cpu" "$standards" "$zig" cc -target $cpu-macos
        check "macOS $cpu: examples/quickstart.c links" "$zig cc -target $cpu-macos -std=c99 $warn $here \
            examples/quickstart.c -o $out/quickstart_$cpu"
    done
    run_checks
    for cpu in x86_64 aarch64; do
        mach_o "$out/quickstart_$cpu" 2>"$why"
        verdict $? "macOS $cpu: it is a program of macOS"
    done
else
    skip 'macOS: both headers, the quickstart' 'no zig'
fi
plan
