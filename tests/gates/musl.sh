#!/bin/sh
# tests/gates/musl.sh: with musl the implementation, the interposer and examples/embed/wrap.c compile
# without a warning, and run, speaking TAP. musl's pthread_atfork always calls malloc.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/gates.sh
musl="musl-gcc -idirafter $out/stb"
host="-std=c99 -O1 -fno-builtin $warn -I. -pthread"

first_calls() { # -dynamic|-static: the cases of tests/systems/malloc.c
    $musl $host ${1#-dynamic} tests/systems/malloc.c "$out/musl.o" -o "$out/host" >"$why" 2>&1
    verdict $? "musl $1: a host with a malloc of its own is built"
    while read -r case name; do
        succeeds 20 "$out/host" $case
        verdict $? "musl $1: $name"
    done <<'END'
first the first call may come from malloc
setup memlord_global_setup configures the ledger that malloc inside it uses
lock a thread that records under a lock of the host waits for no first call that wants it
tag another thread waits for the first call, and has its tag
fork a child that is born in the first call without fork handlers keeps books
END
}

# The linker wraps the calls of a static program, and those that libc makes.
wrapped() {
    $musl $host -static tests/embed/wrapped.c examples/embed/at_exit.c "$out/wrap.o" -o "$out/wrapped" \
        @examples/embed/wrap.ld -lm >"$why" 2>&1 && succeeds 60 "$out/wrapped"
    verdict $? 'musl -static: each function that wrap.c wraps counts, and a foreign pointer is unknown'
}

# A program of musl under an interposer of musl. Debian's libgcc needs glibc, so that zig builds it,
# with an unwinder of its own.
interposer() {
    cat >"$out/app.c" <<'END'
#include <stdlib.h>
#include <string.h>
__attribute__((noinline)) static void *keep(void) { return strdup("hello"); }
int main(void) {
    char *volatile p = malloc(1000);
    char *volatile q = keep();
    free(p);
    return !q;
}
END
    check_report='
import json, sys
report = json.load(open(sys.argv[1]))
total, sites = report["total"], report["sites"]
books = {key: total[key] for key in ("allocated", "peak", "allocs", "frees", "total_allocated")}
assert books == {"allocated": 6, "peak": 1006, "allocs": 2, "frees": 1, "total_allocated": 1006}, books
assert sorted(s["alloc_bytes"] for s in sites) == [6, 1000], sites
assert [s["site"]["function"] for s in sites if s["alloc_bytes"] == 6] == ["strdup"], sites'
    $zig cc -target x86_64-linux-musl -std=c99 -O1 $warn $here -fPIC -shared -fvisibility=hidden -fexceptions \
        src/tools/preload.c -o "$out/libmemlord_preload.so" -Wl,-z,now -ldl -lunwind >"$why" 2>&1
    verdict $? 'musl: the interposer is built'
    musl-gcc -O0 -g "$out/app.c" -o "$out/app" >"$why" 2>&1 &&
        succeeds 20 env MEMLORD_REPORT="$out/app.json" MEMLORD_STACK_BYTES=1 \
            LD_PRELOAD="$out/libmemlord_preload.so" "$out/app" &&
        succeeds 20 python3 -c "$check_report" "$out/app.json"
    verdict $? 'musl: the interposer counts each block of a program, at its site'
}

if ! command -v musl-gcc >/dev/null; then
    skip 'musl: the implementation, wrap.c and the interposer' 'no musl-gcc'
    plan
    exit
fi
$musl -std=c99 -O1 $warn -I. -c tests/matrix/impl.c -o "$out/musl.o" >"$why" 2>&1
verdict $? 'musl: the implementation compiles'
$musl -std=c99 -O1 $warn -I. -c src/tools/preload.c -o "$out/preload.o" >"$why" 2>&1
verdict $? 'musl: the interposer compiles'
$musl -std=c99 -O1 $warn -I. -c examples/embed/wrap.c -o "$out/wrap.o" >"$why" 2>&1
verdict $? 'musl: wrap.c compiles'
first_calls -dynamic
first_calls -static
wrapped
if [ -x "$zig" ]; then interposer; else skip 'musl: a program under the interposer' 'no zig'; fi
plan
