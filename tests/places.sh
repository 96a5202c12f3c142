#!/bin/sh
# tests/places.sh [OBJECT]: the module, offset and build id of return addresses, speaking TAP:
# libraries that are closed and replaced, stripped and static programs, code in no module. OBJECT is
# the implementation to test; what the script makes is beside it then.
set -u
[ "$#" -eq 0 ] || set -- "$(realpath "$1")"
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
memlord=${1:-$memlord} out=${1:+${1%/*}/}
out=${out:-$PWD/build/}places
cc=${CC:-gcc}
flags='-std=gnu99 -O0 -g -I. -Wall -Wextra -Werror -pthread'
rm -rf "$out" && mkdir -p "$out" || exit 1
[ "$(uname -s)" = Linux ] || { echo '1..0 # SKIP modules of Linux'; exit 0; }

id_of() { readelf -n "$1" | sed -n 's/.*Build ID: //p'; }
# The line of the source at a place told by the host.
line_at() { # PROGRAM OFFSET
    addr2line -e "$1" "$2" | sed 's|.*/||; s/ (.*//'
}
offset_in() { printf '%s\n' "$said" | sed -n "s/.*offset=\(0x[0-9a-f]*\).*file=$1.*/\1/p" | head -n 1; }
source_line() { echo "host.c:$(grep -n "$1" tests/places/host.c | head -n 1 | cut -d: -f1)"; }

library() { # NAME WORD FLAGS...
    name=$1 word=$2
    shift 2
    $cc $flags -fPIC -shared "-DWORD=\"$word\"" "$@" tests/places/plug.c -o "$out/$name"
}
program() { # NAME FLAGS...
    name=$1
    shift
    $cc $flags "$@" tests/places/host.c "$memlord" -o "$out/$name" -ldl 2>"$out/$name.txt"
}
library plug_a.so a && library plug_b.so b && library plug_c.so c -Wl,--build-id=none &&
    program host -rdynamic || { cat "$out"/host.txt; echo 'Bail out! nothing to run'; exit 1; }
cp "$out/host" "$out/stripped" && strip -s "$out/stripped"

# -- libraries --
a=$out/plug_a.so b=$out/plug_b.so
said=$("$out/host" "$a" "$b")
first=$(printf '%s\n' "$said" | sed -n "s|called $a ||p")
second=$(printf '%s\n' "$said" | sed -n "s|called $b ||p")
if [ "$first" = "$second" ]; then
    matches 'an address that another library has after dlclose is another site' \
        "^site 2 module=$a .*id=$(id_of "$a") .*file=plug_a.so\+0x" \
        "^site 2 module=$b .*id=$(id_of "$b") .*file=plug_b.so\+0x"
else
    skip 'an address that another library has after dlclose is another site' 'no address came again'
fi
if [ "$first" = "$second" ]; then
    "$out/host" stacks "$a" "$b" "save:$out/stacks.folded" >/dev/null
    said=$(cat "$out/stacks.folded")
    matches 'an address that another library has after dlclose is another frame of stacks' \
        ';plug_a.so\+0x[0-9a-f]+ 10$' ';plug_b.so\+0x[0-9a-f]+ 10$'
else
    skip 'an address that another library has after dlclose is another frame of stacks' 'no address came again'
fi
said=$("$out/host" "$a" "$b" "$a" "$b" "$a")
matches 'a library that is opened again has its sites again' \
    "^site 6 module=$a " "^site 4 module=$b " '!^site 2'
said=$("$out/host" "$a")
matches 'a library that is closed keeps its name' "^site 2 module=$a " \
    "$(printf 'file=plug_a.so\\+%s' "$(offset_in plug_a)")"
cp "$a" "$out/live.so" && cp "$b" "$out/next.so"
said=$("$out/host" "$out/live.so" "rename:$out/next.so:$out/live.so" "$out/live.so")
matches 'a file that is replaced and opened again is another module' \
    "^site 2 module=$out/live.so .*id=$(id_of "$a") " "^site 2 module=$out/live.so .*id=$(id_of "$b") "
said=$("$out/host" "$out/plug_c.so")
matches 'a library without a build id has a place' "^site 2 module=$out/plug_c.so .* id= " 'file=plug_c.so\+0x'

# -- programs --
said=$("$out/host" exported hidden)
matches 'a function is named only where its symbol contains the address' \
    'function=exported file=host\+0x' 'function= file=host\+0x' "id=$(id_of "$out/host") "
said=$(line_at "$out/host" "$("$out/host" hidden | sed -n 's/.*offset=\(0x[0-9a-f]*\).*/\1/p')")
matches 'an offset is in the line of the call' "^$(source_line '/\* hidden \*/')\$"
said=$("$out/stripped" exported hidden)
matches 'a stripped program shows module and offset' 'function=exported ' 'function= file=stripped\+0x'
said=$(bash -c "exec -a liar '$out/host' hidden")
matches 'the name of the executable comes from the system' "module=$out/host " '!liar'
for kind in -static -static-pie -no-pie -Wl,--build-id=none; do
    if ! program "host$kind" $(case $kind in -static*) echo -DNO_PLUGINS ;; esac) $kind; then
        verdict 1 "a program of $kind has places" "$out/host$kind.txt"
        continue
    fi
    said=$("$out/host$kind" hidden)
    said="$said
$(line_at "$out/host$kind" "$(offset_in host)")"
    matches "a program of $kind has places" "module=$out/host$kind " " id=$(id_of "$out/host$kind") " \
        "^$(source_line '/\* hidden \*/')\$"
done

cat >"$out/victim.c" <<'END'
#include <stdlib.h>
void *volatile kept[2];
__attribute__((noinline)) void nearest(void) { kept[0] = malloc(1000); }
__attribute__((noinline)) static void unseen(void) { kept[1] = malloc(2000); }
int main(void) { nearest(); unseen(); return 0; }
END
$cc -g -O1 -rdynamic "$out/victim.c" -o "$out/victim" && cp "$out/victim" "$out/bare" && strip -s "$out/bare"
so=build/libmemlord_preload.so
said=$(LD_PRELOAD=$PWD/$so bash -c "exec -a liar '$out/bare'" 2>&1)
matches 'the interposer names no function whose symbol ends before the address' \
    '1000 B .* nearest bare\+0x' '1.95 KiB .*  bare\+0x' '!liar\+'
said=$(MEMLORD_SYMBOLS=1 LD_PRELOAD=$PWD/$so "$out/victim" 2>&1)
matches 'the interposer names a function by its line' 'nearest .*victim.c:3' 'unseen .*victim.c:4'

# -- segments with gaps between them --
cat >"$out/gaps.c" <<'END'
#include "memlord.h"
#include <stdio.h>
int main(void) {
    static const memlord_site planted = {"gaps.c", "main", 9};
    const memlord_device cpu = memlord_device_cpu();
    memlord_site_stat rows[4];
    memlord *lord;
    size_t n;
    if (memlord_create(NULL, &lord) || memlord_sites_enable(lord, 1)) return 1;
    (void)memlord_alloc(lord, cpu, 0x1000, 100, &planted);
    (void)memlord_alloc(lord, cpu, 0x2000, 20, memlord_site_of(lord, "gaps.c", "main", 9));
    n = memlord_sites_top(lord, cpu, MEMLORD_SITE_ORDER_LIVE_BYTES, rows, 4);
    printf("%zu sites, %d bytes\n", n, (int)rows[0].live_bytes);
    memlord_destroy(lord);
    return 0;
}
END
for kind in '' -no-pie; do
    $cc $flags -Wl,-z,max-page-size=0x200000 $kind "$out/gaps.c" "$memlord" -o "$out/gaps$kind" -ldl
    said=$("$out/gaps$kind")
    matches "one place is one site in a program with gaps${kind:+ of $kind}" '^1 sites, 120 bytes$'
done

# -- no file --
said=$("$out/host" jit jit)
if [ "$(uname -m)" = x86_64 ]; then
    matches 'code in no module shows its address' '^site 1 module= offset=0x[0-9a-f]+ id= function= file=0x'
else
    skip 'code in no module shows its address' 'x86-64 only'
fi
said=$("$out/host" vdso)
if [ -n "$said" ]; then matches 'the vdso is a module' 'module=linux-vdso'
else skip 'the vdso is a module' 'there is none'; fi

# -- reports --
for format in txt json folded heaptrack pb csv pickle; do
    "$out/host" "$a" "$b" "save:$out/p.$format" >/dev/null
    said=$(strings -n 4 "$out/p.$format" 2>/dev/null)
    matches "$format shows places of libraries that are closed" 'plug_a.so\+0x' 'plug_b.so\+0x'
done
said=$(cat "$out/p.txt")
matches 'text has the build ids of the modules' "^$(id_of "$a") +$a" "^$(id_of "$b") +$b"
said=$(tr '{' '\n' <"$out/p.json")
matches 'json has module, offset and build id' \
    "\"module\":\"$a\",\"offset\":[0-9]+,\"build_id\":\"$(id_of "$a")\""
if command -v go >/dev/null 2>&1; then
    "$out/host" hidden exported "$a" "$b" "save:$out/symbols.pb" >/dev/null
    said=$(PPROF_TMPDIR=$out go tool pprof -top -sample_index=inuse_space "$out/symbols.pb" 2>&1)
    matches 'pprof names functions by module and offset' ' hidden$' ' exported$' ' plug_run$'
    said=$(PPROF_TMPDIR=$out go tool pprof -raw "$out/symbols.pb" 2>&1)
    matches 'pprof has the build ids' "$a $(id_of "$a")" "$b $(id_of "$b")"
else
    skip 'pprof names functions by module and offset' 'no go'
fi
plan
