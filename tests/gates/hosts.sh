#!/bin/sh
# tests/gates/hosts.sh: what a host may make of the headers beside a program: a shared library, a
# module of C++, a part of an extern "C" block, a CUDA file. Speaks TAP.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/gates.sh

# What a library exports. GNU ld lists the bounds of a section even if they are hidden.
exported() { readelf --dyn-syms -W "$1" | awk '$6 ~ /DEFAULT|PROTECTED/ && $7 != "UND" { print $8 }' | sort; } # LIBRARY
library() { # NAME COMMAND...: builds $out/NAME.so, and lists its names without memlord_
    so=$out/$1
    shift
    # shellcheck disable=SC2086 # flags
    "$@" $here -O0 -fPIC -shared -o "$so.so" >"$why" 2>&1 && exported "$so.so" | sed 's/memlord_.*/memlord_/' | uniq -c |
        tr -d ' \n' >"$so.names"
}
calls=$(($(grep -c '^#define memlord_.* MLI_PREFIXED' memlord.h) - $(grep -c '^MLI_API_INLINE' memlord.h)))
{ grep '^ *#define MEMLORD_API' examples/embedding.md; cat tests/matrix/impl.c; } >"$out/shown.c"
cp tests/matrix/impl.c "$out/impl.c"
for cc in 'gcc -std=c99' 'clang++ -std=c++11 -x c++'; do
    while read -r file wanted flag; do
        # shellcheck disable=SC2086 # a command and its flags
        library lib $cc $flag "$out/$file.c" && said=$(cat "$out/lib.names") && [ "${said:-none}" = "$wanted" ]
        verdict $? "${cc%% *} $flag: the library of $file.c exports $wanted, and nothing else" "$out/lib.names"
    done <<END_
impl ${calls}memlord_
impl ${calls}p_memlord_ -DMEMLORD_PREFIX=p
impl none -DMEMLORD_STATIC
impl none -fvisibility=hidden
shown ${calls}memlord_ -fvisibility=hidden
END_
    # shellcheck disable=SC2086 # flags
    gcc -std=c99 $here -fvisibility=hidden -DUSE=use '-DUSES=X(use)' tests/matrix/use.c tests/matrix/uses.c "$out/lib.so" \
        -o "$out/host" >"$why" 2>&1 && "$out/host" >"$why" 2>&1
    verdict $? "${cc%% *}: a program with hidden symbols runs with the last of them"
done

cat >"$out/extern_c.cpp" <<'END_'
#define MEMLORD_PMR
extern "C" {
#include "memlord.h"
}
#include "cpp.cpp"
extern "C" {
#define MEMLORD_CUDA_SHIM
#include "memlord_cuda.h"
}
cudaError_t allocate(float **to) { return cudaMalloc(to, 4); }
END_
for cc in g++ clang++; do
    for std in c++11 c++17; do
        check "$cc $std: both headers inside extern \"C\"" \
            "$cc -std=$std -Wall -Wextra -Werror $here -Itests/matrix -DUSE=use -fsyntax-only $out/extern_c.cpp"
    done
done

{ printf 'module;\n#include "memlord.h"\nexport module memory;\n' &&
    printf 'export using ::memlord_device_%s;\n' make cpu cuda all; } >"$out/memory.cppm"
check 'clang c++20: a module exports the functions that make a device' \
    "clang++ -std=c++20 $here --precompile $out/memory.cppm -o $out/memory.pcm"

check 'no line that nvcc reads otherwise in C++20' 'python3 tests/gates/for_headers.py memlord.h memlord_cuda.h'
run_checks
plan
