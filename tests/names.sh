#!/bin/sh
# tests/names.sh: the functions at return addresses, inlined ones included, are those that addr2line
# names, whether they are named at exit or later; and every format has them. Speaks TAP.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
out=$PWD/build/names
symbolize=$PWD/build/symbolize
so=$PWD/build/libmemlord_preload.so
[ "$(uname -s)" = Linux ] || { echo '1..0 # SKIP modules of Linux'; exit 0; }
rm -rf "$out" && mkdir -p "$out" || exit 1
unset DEBUGINFOD_URLS

# SYMBOLS REPORT PROGRAM: runs it with every stack.
report() {
    LD_PRELOAD=$so MEMLORD_STACK_BYTES=1 MEMLORD_SYMBOLS=$1 MEMLORD_REPORT=$out/$2 "$out/$3" >/dev/null 2>&1
}

names() { # PROGRAM WHAT: it is built
    report 0 "$1.json" "$1" && "$symbolize" "$out/$1.json" -o "$out/$1.later.json" 2>/dev/null
    said=$(python3 tests/names/check.py "$out/$1.later.json" "$out/$1" 2>&1)
    matches "$2: every function at every return address is that of addr2line" '^[1-9][0-9]* compared' '! and not ' \
        '!Error'
    report 1 "$1.exit.json" "$1"
    said=$(python3 tests/names/check.py "$out/$1.exit.json" "$out/$1" 2>&1)
    matches "$2: those that are named at exit, too" '^[1-9][0-9]* compared' '! and not ' '!Error'
    callers "$out/$1.exit.json" >"$out/exit" && callers "$out/$1.later.json" >"$out/later"
    said=$(diff "$out/exit" "$out/later" 2>&1)
    matches "$2: sites in libraries have the same callers, named at exit or later" '^$'
}
callers() { # REPORT: a line for each caller of a site in a library
    python3 - "$1" <<'END' | sort
import json, sys
for s in json.load(open(sys.argv[1]))["sites"]:
    for c in s.get("callers", []):
        f = c["site"]
        print(s["offset"], f["function"], f["line"], c["alloc_bytes"], c["allocs"])
END
}
cc=${CC:-gcc}
$cc -std=gnu99 -O2 -g -Wall -Wextra -Werror tests/names/tree.c -o "$out/tree" || exit 1
names tree 'C'
"${CXX:-g++}" -std=c++17 -O2 -g -fomit-frame-pointer tests/names/engine.cpp -o "$out/engine" || exit 1
names engine 'C++ without frame pointers'
if rustc --version >/dev/null 2>&1; then
    rustc -O -g -o "$out/map" tests/names/map.rs || exit 1
    names map 'Rust'
else
    skip 'Rust: every function at every return address is that of addr2line' 'no rustc'
    skip 'Rust: those that are named at exit, too' 'no rustc'
    skip 'Rust: sites in libraries have the same callers, named at exit or later' 'no rustc'
fi

# -- formats --
line_of() { grep -n "$1" tests/names/tree.c | head -n 1 | cut -d: -f1; }
keep="keep [^;<]*tree.c:$(line_of 'INTO void \*keep')"
two="keep_two [^;<]*tree.c:$(line_of '    keep(size);')"
few="few [^;<]*tree.c:$(line_of 'keep_two(32)')"
for format in folded heaptrack pb pickle html; do report 1 "tree.$format" tree; done
said=$(cat "$out/tree.folded")
matches 'FOLDED has the inlined functions, the outermost first' ";$few;$two;$keep 32\$"
cat >"$out/few.c" <<'END'
#include <stdlib.h>
void *volatile kept;
static inline __attribute__((always_inline)) void keep(size_t size) { kept = malloc(size); }
__attribute__((noinline)) void few(void) { keep(1 << 20); __asm__ volatile(""); }
int main(void) { few(); return 0; }
END
$cc -O2 -g "$out/few.c" -o "$out/few" && report 1 few.txt few
said=$(unbroken "$out/few.txt")
matches 'TEXT has them, the innermost first; and a sentence that all bytes are from one function' \
    '^biggest holder, cpu: site keep [^ ]*few.c:3 100 % of 1 MiB still live at the end, from few [^ ]*few.c:4$' \
    '1 MiB .*  keep [^ ]*few.c:3 < few [^ ]*few.c:4 < main [^ ]*few.c:5'
cat >"$out/copy.c" <<'END'
#include <stdlib.h>
#include <string.h>
#define APART __attribute__((noinline)) static
static char text[4096], *volatile kept;
APART void *xmalloc(size_t n) { void *p = malloc(n); if (!p) abort(); return p; }
APART char *xmemdup(size_t n) { return (char *)memcpy(xmalloc(n), text, n); }
APART char *copy(size_t n) { return (char *)memcpy(malloc(n), text, n); }
APART void load(int n) { while (n--) kept = copy(4096); }
APART void serve(int n) { while (n--) free(copy(1000)); }
APART void put(int n) { while (n--) kept = xmemdup(4096); }
APART void look_up(int n) { while (n--) kept = xmemdup(4096); }
int main(void) {
    load(2000);
    serve(100);
    put(2900);
    look_up(100);
    kept = strdup(text);
    return 0;
}
END
$cc -O1 -g "$out/copy.c" -o "$out/copy" && report 1 copy.txt copy && report 0 copy.json copy
said=$(unbroken "$out/copy.txt")
matches 'a sentence passes over functions that allocate by their name' \
    '^biggest holder, cpu: site xmalloc [^ ]*copy.c:5 60 % of 19.53 MiB still live at the end, mostly from put [^ ]*copy.c:10$'
matches 'the list of sites has the functions that called a wrapper' \
    ' 2100 .*  copy [^ ]*copy.c:7 < load [^ ]*copy.c:8 100 %$' '  xmalloc [^ ]*copy.c:5 < put [^ ]*copy.c:10 96.7 %, look_up [^ ]*copy.c:11 3.3 %$' ' < main [^ ]*copy.c:17 100 %$'
matches 'of a program that has ended, what is still live is listed with its blocks' \
    ' still live, and no mark was set: 19.53 MiB in 5001 blocks$' '^ *7.81 MiB +2000  cpu +copy '
matches 'TEXT has no function of the C library in a stack of the program' '< main [^ ]*copy.c:13$' \
    '!__libc_start'
said=$("$symbolize" "$out/copy.json" 2>/dev/null | python3 -c '
import json, sys
for s in json.load(sys.stdin)["sites"]:
    print(s["site"]["function"], *(c["site"]["function"] for c in s["callers"]))')
matches 'symbolize gives a site the functions that called it' '^copy load serve$' '^xmalloc put look_up$'
resize=$(grep -n 'resize((size_t)n)' tests/names/engine.cpp | cut -d: -f1)
grow=$(grep -n 'resize(60000)' tests/names/engine.cpp | cut -d: -f1)
report 1 engine.txt engine
said=$(cat "$out/engine.txt")
matches 'TEXT has the functions that called a library at a site, with their shares' \
    "vector<float.* < make_layer [^ ]*engine.cpp:$resize [0-9.]+ %, grow\(\) [^ ]*engine.cpp:$grow [0-9.]+ %"
for format in heaptrack pb pickle html; do
    said=$(strings "$out/tree.$format")
    matches "$format has them, too" keep_two few by_pointer
done
said=$(build/diff --json --by stack "$out/tree.json" "$out/tree.exit.json" 2>&1)
matches 'diff gives the stacks of a profile without names those of the other' '"kind":"total"' \
    '!"state":"(new|gone)"'
plan
