#!/bin/sh
# tests/embed.sh: the recipes of examples/embed, built by the commands that stand in them, under
# programs that check themselves or that report what they asked for. Speaks TAP. A recipe whose
# library is not installed is tests skipped: `make deps-embed` installs it.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
out=$PWD/build/embed root=$PWD
why=$out/why
warn="-Wall -Wextra -pedantic -Wconversion -Wshadow -Wundef -Werror"
needs build/symbolize
rm -rf "$out" && mkdir -p "$out" && ln -s "$root/memlord.h" "$root/examples" "$out" || exit 1

# RECIPE [ADDED FLAGS]: runs the commands cc and c++ of its first comment, in the output directory.
recipe() {
    {
        printf 'cc() { %s %s %s "$@"; }\n' "${CC:-gcc}" "$warn" "${2:-}"
        printf 'cxx() { %s %s %s "$@"; }\n' "${CXX:-g++}" "$warn" "${2:-}"
        awk '/\*\// { exit }
            /^        c(c|\+\+) / || more { sub(/^ *c\+\+ /, "cxx "); print; more = /\\$/ }' \
            "examples/embed/$1"
    } >"$out/commands" && (cd "$out" && sh -ex ./commands) >"$why" 2>&1
}
# REPORT STATEMENT: of python, with the report at hand as r
holds() {
    python3 -c 'import json, sys; r = json.load(open(sys.argv[1])); print(r["total"])
assert eval("(" + sys.argv[2] + ")")' "$out/$1" "$2" >>"$why" 2>&1
}

# -- the macro shim: run.c --

prompt='hello token7 x'
python3 tests/embed/model.py write "$out" && recipe run.c
verdict $? 'run.c is built with the shim by its commands'

run() { # PROGRAM: with a report beside it
    (cd "$out" && MEMLORD_APP_REPORT="$1.json" timeout 60 "./$1" model.bin tokenizer.bin "$prompt") \
        >"$out/$1.said" 2>"$why"
}
run run && python3 tests/embed/model.py check "$out/run.json" "$prompt" >"$why" 2>&1
verdict $? 'the shim counts each block of run.c to the byte, at its line, and all are freed'

"${CC:-gcc}" $warn -O2 examples/embed/run.c -o "$out/bare" -lm >"$why" 2>&1 &&
    run bare && says "$out/bare.said" '^hello token7 x' &&
    cmp "$out/bare.said" "$out/run.said" >>"$why" 2>&1
verdict $? 'run.c says the same without the shim'

awk '{ print } /^#include <unistd.h>/ { print "#define MEMLORD_SHIM\n#include \"memlord.h\"" }' \
    examples/embed/run.c >"$out/lines.run.c" &&
    (cd "$out" && "${CC:-gcc}" $warn -O2 -I. -c lines.run.c -o lines.o &&
        "${CC:-gcc}" lines.o at_exit.o memlord.o -o lines -lm -pthread) >"$why" 2>&1 && run lines &&
    python3 tests/embed/model.py check "$out/lines.json" "$prompt" >>"$why" 2>&1
verdict $? 'and with the two lines in the program it counts the same'

printf '%s\n' '#include <stdlib.h>' '#include <string.h>' 'int main(void) {' \
    'char *(*copy)(const char *) = strdup; free(copy("not ours"));' \
    'void (*end)(void *) = free; end(malloc(10)); return 0; }' >"$out/foreign.c" &&
    (cd "$out" && cc="${CC:-gcc} -O0 -I." &&
        $cc -DMEMLORD_SHIM -include memlord.h -c foreign.c -o foreign.o &&
        $cc foreign.o at_exit.o memlord.o -o foreign -pthread) >"$why" 2>&1 && run foreign &&
    holds foreign.json 'r["total"]["unknown_frees"] == 1 and r["total"]["allocated"] == 10'
verdict $? 'the free of a foreign block is unknown to the shim, and one through a pointer not seen'

# -- the linker: wrap.c --

ln -s "$root/examples/embed/run.c" "$out/app.c" && recipe wrap.c -fno-inline
verdict $? 'a static program is built with wrap.c by its commands'

run app && cmp "$out/bare.said" "$out/app.said" >>"$why" 2>&1
verdict $? 'it says the same as without'

name='wrap.c counts each block of run.c to the byte, and all are freed'
build/symbolize "$out/app.json" -o "$out/named.json" >"$why" 2>&1 # 1: glibc has no lines
"${CC:-gcc}" -O0 -c examples/embed/run.c -o "$out/plain.o" >>"$why" 2>&1 &&
    python3 tests/embed/model.py check "$out/named.json" "$prompt" "$out/plain.o" >>"$why" 2>&1
verdict $? "$name"

for cc in gcc clang; do
    name="$cc: each wrapped function counts, and a foreign pointer is unknown"
    command -v $cc >/dev/null || { skip "$name" "no $cc"; continue; }
    (cd "$out" && $cc -std=c99 -O2 $warn -fno-builtin -I. "$root/tests/embed/wrapped.c" at_exit.o \
        wrap.o -static -o wrapped -pthread @examples/embed/wrap.ld && timeout 60 ./wrapped) \
        >"$why" 2>&1
    verdict $? "$name"
done

# -- fibres: jobs.c --

name='jobs.c: fibres that move between threads keep their tags and scopes, to the byte'
if echo '#include <features.h>' | "${CC:-gcc}" -E -dM - 2>/dev/null | grep -q __GLIBC__; then
    recipe jobs.c && (cd "$out" && timeout 60 ./jobs) >"$why" 2>&1 &&
        says "$why" '^request 7: 401225 bytes in 50 blocks$' \
            '^8 requests of 50 steps, each on the next of 3 threads: all to the byte$'
    verdict $? "$name"
else
    skip "$name" 'no glibc, and so no makecontext'
fi

# -- C++: containers.cpp, objects.cpp, libtorch.cpp --

recipe containers.cpp && (cd "$out" && timeout 60 ./containers) >"$why" 2>&1
verdict $? 'containers.cpp: containers, arenas and a pool count what the heap was asked for'

recipe objects.cpp && (cd "$out" && MEMLORD_APP_REPORT=objects.json timeout 60 ./objects) >"$why" 2>&1
verdict $? 'objects.cpp: new counts what containers of several threads hold'

says "$why" '^[1-9][0-9]* bytes in' && holds objects.json 'r["total"]["allocated"] == 0 and
    r["total"]["live_blocks"] == 0 and r["total"]["allocs"] == r["total"]["frees"] > 50000 and
    r["total"]["unknown_frees"] + r["total"]["implicit_frees"] == 0'
verdict $? 'and after the last destructor nothing is live'

name='libtorch.cpp: the ledger has the bytes of the storages of all tensors, at each step'
if echo '#include <c10/macros/cmake_macros.h>' | "${CXX:-g++}" -x c++ -E - >/dev/null 2>&1; then
    recipe libtorch.cpp && (cd "$out" && timeout 120 ./libtorch) >"$why" 2>&1 &&
        says "$why" '^all to the byte'
    verdict $? "$name"
else
    skip "$name" 'no libtorch-dev'
fi

plan
