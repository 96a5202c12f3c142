#!/bin/sh
# tests/gates/hosts.sh: what a host may make of the headers beside a program: a shared library, a
# module of C++, a part of an extern "C" block, a CUDA file. Speaks TAP.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/gates.sh
export LC_ALL=C

# GNU ld lists the bounds of a section even if they are hidden.
exported="awk '\$6 ~ /DEFAULT|PROTECTED/ && \$7 != \"UND\" { sub(/memlord_.*/, \"memlord_\", \$8); print \$8 }' | sort | uniq -c"
calls=$(($(grep -c '^#define memlord_.* MLI_PREFIXED' memlord.h) - $(grep -c '^MLI_API_INLINE' memlord.h)))
{ grep '^ *#define MEMLORD_API' examples/embedding.md; cat tests/matrix/impl.c; } >"$out/shown.c"
library() { # COMPILER FLAG FILE NAMES
    check "${1%% *} $2: a library of $(basename "$3") exports '$4', and nothing else" \
        "$1 $2 $here -O0 -fPIC -shared $3 -o $out/\$\$.so; test \"\$(echo \$(readelf --dyn-syms -W $out/\$\$.so | $exported))\" = '$4'"
}
for cc in 'gcc -std=c99' 'clang++ -std=c++11 -x c++'; do
    library "$cc" '' tests/matrix/impl.c "$calls memlord_"
    library "$cc" -DMEMLORD_PREFIX=p tests/matrix/impl.c "$calls p_memlord_"
    library "$cc" -DMEMLORD_STATIC tests/matrix/impl.c ''
    library "$cc" -fvisibility=hidden tests/matrix/impl.c ''
    library "$cc" -fvisibility=hidden "$out/shown.c" "$calls memlord_"
done

printf '%s\n' '#define MEMLORD_PMR' 'extern "C" {' '#include "memlord.h"' '#define MEMLORD_CUDA_SHIM' '#include "memlord_cuda.h"' \
    '}' '#include "cpp.cpp"' 'cudaError_t allocate(float **to) { return cudaMalloc(to, 4); }' >"$out/extern_c.cpp"
for cc in 'g++ -std=c++11' 'clang++ -std=c++17'; do
    check "$cc: both headers inside extern C" "$cc -Wall $here -Itests/matrix -DUSE=use -fsyntax-only $out/extern_c.cpp"
done
printf '%s\n' 'module;' '#include "memlord.h"' 'export module memory;' 'export using ::memlord_device_make;' \
    'export using ::memlord_device_cpu;' 'export using ::memlord_device_cuda;' 'export using ::memlord_device_all;' >"$out/memory.cppm"
check 'a module exports the functions that make a device' \
    "clang++ -std=c++20 $here --precompile $out/memory.cppm -o $out/memory.pcm"

# nvcc 13.0 takes `x.time <` at the top level of a for header for a template if time is a function, too.
inner='\((?:[^()]|\([^()]*\))*\)'
check 'no line that nvcc reads otherwise in C++20' \
    "grep -Pzo '\\bfor \\((?:[^()]|$inner)*?(?:\\.|->)\\w+ < ' memlord.h memlord_cuda.h || true;
     grep -nE '^ *(module|import)(->|\\.|\\[| =)' memlord.h memlord_cuda.h || true"
run_checks
plan
