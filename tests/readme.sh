#!/bin/sh
# tests/readme.sh: README's programs, fragments and commands work as they stand there, and so do those
# of the guides in examples/; the targets of make that they name exist, the links of all lead to a file
# and a heading, and so do the tests that tests/FEATURES.md names. The figures are those of the bench.
# README has at most 14 kB. Speaks TAP.
#
# A ```c block with main is a program. Another is a fragment: what stands before a line of ... is
# outside a function and the rest inside, or all of it if there is no such line; (...) stands for
# arguments. A ```cpp block is inside a function. A ```sh block runs in a copy of this tree, where the files it reads are made first.
#
# The commands of the guide of ways in, examples/README.md, run one after the other in another copy. A block of it that begins with the name
# of a file is that file; a recipe is only compiled. A block without a language is what the commands
# before it say, but for numbers.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
needs build/release/memlord.o build/libmemlord_preload.so build/diff
out=$PWD/build/readme
rm -rf "$out"
mkdir -p "$out"
# -Wno-unused: a fragment need not use all it shows
texts='README.md examples/embedding.md examples/limits.md examples/reports.md examples/cuda.md'
cc="${CC:-gcc} -std=gnu99 -Wall -Wextra -Wno-unused -Wno-missing-field-initializers -Werror -pthread -I$PWD"

awk -v out="$out" '
    /^```(c|cpp|sh)$/ { kind = substr($0, 4); file = sprintf("%s/%02d.%s", out, ++n, kind); line = NR; next }
    /^```$/ && file { close(file); file = ""; next }
    file { print >file }
    /^## / { heading = FILENAME ", " substr($0, 4) }
    file && !(file in named) { named[file] = 1; print file "\t" heading >(out "/list") }
' $texts

fragment() { # FILE: as a whole program
    outside='/^\.\.\.$/ { rest = 1; next } !rest'
    inside='rest; /^\.\.\.$/ { rest = 1 }'
    grep -q '^\.\.\.$' "$1" || outside=0 inside=1
    if ! grep -q '^#include "memlord.h"' "$1"; then
        echo '#include "memlord.h"'
    fi
    echo 'static char cache_of_mine; static void *my_cache = &cache_of_mine;'
    echo 'static uint64_t my_cache_shrink(void *c, uint64_t bytes) { return c == my_cache ? bytes : 0; }'
    echo 'static void attention(void) {}'
    echo 'static uint64_t frees_so_far(void) { return 1; }'
    echo 'static void wait_for_frees_beyond(uint64_t seen) { (void)seen; }'
    awk "$outside" "$1"
    echo 'int main(void) { memlord *lord = memlord_global(); memlord_device dev = memlord_device_cpu();'
    echo 'memlord_meta tensor = {.name = "wq", .shape = {16}, .rank = 1}; uint64_t buffer = 4096, offset = 0, bytes = 64, got = 0;'
    echo 'memlord_ticket ticket = 0; uint64_t seen = 0;'
    if grep -q MEMLORD_CUDA "$1"; then
        echo 'void *kv = NULL, *block = NULL; cudaStream_t stream = NULL;'
    else
        echo 'memlord_alloc(lord, dev, buffer, bytes, NULL); {'
    fi
    awk "$inside" "$1" | sed 's/(\.\.\.)/()/g'
    grep -q MEMLORD_CUDA "$1" || echo '}'
    echo 'return 0; }'
}

program() { # FILE: builds and runs it, in C and, as a program of the reader may be, in C++
    $cc "$1" -o "$1.out" && (cd "$out" && "$1.out") >"$1.said" && cat "$1.said" &&
        ${CXX:-g++} -std=c++11 -x c++ -I"$PWD" "$1" -o "$1.out" -pthread && (cd "$out" && "$1.out")
}

in_cpp() { # FILE: a fragment of C++
    echo '#define MEMLORD_PMR'
    echo '#include "memlord.h"'
    echo '#include <string>'
    echo '#include <vector>'
    echo 'int main() { memlord *lord = memlord_global(); memlord_device dev = memlord_device_cpu();'
    echo 'uint64_t buffer = 4096, bytes = 64;'
    cat "$1"
    echo 'return memlord_allocated(lord, dev) != bytes; }'
}

# A copy in which commands may write; what is built is there already, and make finds nothing to do.
sandbox() {
    mkdir -p "$out/tree/build" &&
        for name in memlord.h memlord_cuda.h Makefile README.md examples src tests bench; do
            ln -sf "$PWD/$name" "$out/tree/$name"
        done && ln -sf "$PWD/build/libmemlord_preload.so" "$PWD/build/diff" "$out/tree/build/" &&
        cp "$out"/01.c.app "$out/tree/app.c" && seq 2000 -1 1 >"$out/tree/big.txt" &&
        echo 'print(sum(range(1000)))' >"$out/tree/script.py" &&
        for name in profile base now; do cp "$out/profile.json" "$out/tree/$name.json"; done
}

commands() { # FILE
    (cd "$out/tree" && HOME=$home && export HOME && MAKEFLAGS='' timeout 120 sh -e "$1" </dev/null)
}

# -- programs and fragments --

while IFS='	' read -r file heading; do
    case $file in *.c) ;; *) continue ;; esac
    if grep -q 'main(void)' "$file"; then
        program "$file" >"$file.why" 2>&1 && grep -q kv_cache "$file.why"
        verdict $? "$heading: the program builds, runs and reports" "$file.why"
        cp "$file" "$out/01.c.app"
    elif grep -q MEMLORD_CUDA "$file"; then
        fragment "$file" >"$file.whole.c"
        $cc -isystem "${CUDA_HOME:-/nonexistent}/include" -isystem tests/fake_cuda/include \
            -c "$file.whole.c" -o "$file.out" >"$file.why" 2>&1
        verdict $? "$heading: the fragment builds" "$file.why"
    else
        fragment "$file" >"$file.whole.c"
        $cc "$file.whole.c" "$memlord" -o "$file.out" >"$file.why" 2>&1 && (cd "$out" && "$file.out") >>"$file.why" 2>&1
        verdict $? "$heading: the fragment builds and runs" "$file.why"
    fi
done <"$out/list"

while IFS='	' read -r file heading; do
    case $file in *.cpp) ;; *) continue ;; esac
    in_cpp "$file" >"$file.whole.cpp"
    ${CXX:-g++} -std=c++17 -Wall -Wextra -Wno-unused -Werror -I"$PWD" "$file.whole.cpp" "$memlord" -o "$file.out" -pthread \
        >"$file.why" 2>&1 && "$file.out" >>"$file.why" 2>&1
    verdict $? "$heading: the fragment of C++ builds and runs" "$file.why"
done <"$out/list"

# -- commands --

MEMLORD_REPORT="$out/profile.json" LD_PRELOAD="$PWD/build/libmemlord_preload.so" sort README.md >/dev/null
home=$(mktemp -d) && trap 'rm -rf "$home"' EXIT # without a space: $(pkg-config) is in no quotes
sandbox >"$out/sandbox.why" 2>&1 || verdict 1 'README: a copy of the tree to run its commands in' "$out/sandbox.why"
while IFS='	' read -r file heading; do
    case $file in *.sh) ;; *) continue ;; esac
    commands "$file" >"$file.why" 2>&1
    verdict $? "$heading: its commands run" "$file.why"
done <"$out/list"
ls "$out"/tree/heap.*.json >"$out/heap" 2>&1 && grep -q '^MemLord ' "$out"/*.sh.why
verdict $? 'README: its commands leave the reports that they ask for' "$out/heap"
cut -f 1 "$out/list" | sed 's/.*\.//' | sort | uniq -c >"$out/kinds"
grep -q '[1-9] c$' "$out/kinds" && grep -q '[1-9] cpp$' "$out/kinds" && grep -q '[1-9] sh$' "$out/kinds"
verdict $? 'README has programs and commands to run' "$out/kinds"

# Those in code, wherever they stand: `make ...`, or a line of a block.
for target in $(cat $texts examples/README.md | grep -oE '(`|^)make [a-z-]+' | sed 's/.*make //' |
    grep -v '^build$' | sort -u); do
    grep -qE "^([a-z-]+ )*$target( [a-z-]+)*:" Makefile 2>"$out/target.why"
    verdict $? "README: make $target is a target" "$out/target.why"
done

python3 bench/figures.py >"$out/figures.why" 2>&1
verdict $? 'the figures of README and the guides are those of the kept run of the bench' "$out/figures.why"
kept=$(ls bench/results/[0-9]*Z.txt | tail -n 1)
sed 's/^\(everything *[0-9]* *\)[0-9.]*/\17/' "$kept" >"$out/other.txt"
! python3 bench/figures.py check "$out/other.txt" >"$out/figures.why" &&
    [ "$(grep -c . "$out/figures.why")" = 1 ] && grep -q '^README.md: code is [0-9]*, and 7 in ' "$out/figures.why"
verdict $? 'a figure that is not that of the run is named' "$out/figures.why"

[ "$(wc -c <README.md)" -le 14000 ]
verdict $? 'README has at most 14 kB'
for text in *.md */*.md */*/*.md; do
    case $text in build/* | */\**) continue ;; esac
    python3 tests/links.py "$text"
done >"$out/links.why" 2>&1
[ ! -s "$out/links.why" ]
verdict $? 'each link of a text leads to a file of this tree, and to a heading of it' "$out/links.why"

# -- the guide --

guide=$out/guide
mkdir -p "$guide/build" "$guide/cuda" &&
    for name in memlord.h memlord_cuda.h Makefile tests examples src; do ln -s "$PWD/$name" "$guide"; done &&
    ln -s "$PWD/build/libmemlord_preload.so" "$guide/build" &&
    ln -s "$PWD/tests/fake_cuda/include" "$guide/cuda" && ln -s "$PWD/build/fake" "$guide/cuda/lib64" || exit 1
awk -v out="$guide" '
    /^## / { heading = substr($0, 4) }
    /^```[a-z]*$/ && !block { block = 1; kind = NF && $0 != "```" ? substr($0, 4) : "says"; next }
    /^```$/ { block = 0; close(file); next }
    block == 1 {
        block = 2
        named = match($0, /^\/\* [a-z]+\.(c|cpp)[: ]/)
        file = named ? out "/" substr($0, 4, RLENGTH - 4) : sprintf("%s/%02d.%s", out, ++n, kind)
        print (/: recipe/ ? "recipe" : kind) "\t" file "\t" heading >(out "/list")
    }
    block { print >file }
' examples/README.md

lacks() { # KIND FILE: what a block needs and is not here
    if [ "$1" = recipe ]; then
        header=$(grep -m 1 -o '<[a-z_/]*\.hp*>' "$2")
        echo "#include $header" | ${CXX:-g++} -isystem "${RECIPES:-/nonexistent}" -fsyntax-only -x c++ - \
            2>/dev/null || echo "there is no $header"
    elif grep -q torch-observer "$2"; then
        python3 -c 'import torch; assert torch.version.cuda' 2>/dev/null ||
            echo 'there is no PyTorch with CUDA; tests/torch.sh has a stand-in'
    elif grep -q CUDA_HOME "$2"; then
        [ -e build/fake/libcudart.so ] || echo 'the fake runtime is not built: make test builds it'
    fi
}

alike() { sed 's/[0-9][0-9]*/N/g; s/  */ /g' "$1"; }

try() { # KIND FILE
    case $1 in
    recipe) ${CXX:-g++} -std=c++17 -Wall -Wextra -Werror -isystem "${RECIPES:-/nonexistent}" -I. -fsyntax-only "$2" ;;
    sh)
        output=$2.why
        (cd "$guide" && CUDA_HOME=$guide/cuda FAKE_CUDA_DEVICES=1 MAKEFLAGS='' timeout 120 sh -e "$2" </dev/null)
        ;;
    says) alike "$2" >"$2.alike" && alike "$output" | diff "$2.alike" - ;;
    esac
}

while IFS='	' read -r kind file heading; do
    case $kind in
    recipe) name="guide: the recipe ${file##*/} compiles" ;;
    sh) name="guide, $heading: its commands run" ;;
    says) name="guide, $heading: they say what it shows" ;;
    *) continue ;;
    esac
    lack=$(lacks "$kind" "$file")
    if [ -n "$lack" ]; then
        skip "$name" "$lack"
    else
        try "$kind" "$file" >"$file.why" 2>&1
        verdict $? "$name" "$file.why"
    fi
done <"$guide/list"

# What each way in sees.
sees() { # HEADING PATTERN...: the commands below the heading said so
    said=$(awk -F '\t' -v h="$1" '$1 == "sh" && $3 == h { print $2 ".why" }' "$guide/list" | xargs cat)
    heading=$1
    shift
    matches "guide, $heading: it sees what it says" "$@"
}
sees '1. The macros' '1 MiB .* kv_cache|kv_cache +1 MiB' 'main macros\.c:11'
sees '2. The functions' '3 MiB .*main functions\+0x' '1 MiB .*main functions\+0x'
sees '3. The shim' '128 KiB .*main plain\.c:6'
sees '4. `ld --wrap`' '128 KiB .*wrapped'
sees '5. The interposer' '^MemLord ' 'libc|sort\+0x'
sees '6. Operator new' '1000 blocks|operator|objects\+0x'
sees '7. pmr, allocators and handles' 'names' 'containers\.cpp:14' 'cuda:0 +3 MiB'
sees 'What allocates after the warm-up' '^100 blocks stay'
matches 'the warm-up names what the steps leave and what they allocate' \
    'stays: 100 bytes of warm\.c:15, born under mark 1' 'allocates: warm\.c:11, 100 times' \
    'allocates: warm\.c:15, 100 times'
sees 'Four tips, and the number that shows each' '^preallocate .* before' '^reuse .* before' '^work .* before' \
    '^empty .* before'

# What only Python with PyTorch runs is read: its module has each name.
awk '/^```python/ { on = 1; next } /^```/ { on = 0 } on' examples/README.md examples/torch/README.md >"$out/script.py"
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=examples/torch python3 -c '
import ast, memlord_torch, sys
names = [n for n in ast.walk(ast.parse(open(sys.argv[1]).read())) if isinstance(n, ast.Attribute)]
names = {n.attr for n in names if getattr(n.value, "id", "") == "memlord_torch"}
assert "tag" in names and all(hasattr(memlord_torch, name) for name in names), names
' "$out/script.py" >"$out/script.why" 2>&1
verdict $? 'the scripts of the guide and of examples/torch call what there is' "$out/script.why"

version=$(sed -n 's/^#define MEMLORD_VERSION "\(.*\)"/\1/p' memlord.h)
said=$(grep -o '"schema":"memlord/2","version":"[^"]*"' examples/report/pictures/sample.html)
[ "$said" = "\"schema\":\"memlord/2\",\"version\":\"$version\"" ]
verdict $? 'the sample page is of this version, as make pictures writes it'

# -- every feature --

grep -E '^\| [A-Z][0-9]+ \|' tests/FEATURES.md >"$out/rows"
for last in M50 P24 G21 N16 X22 Z23; do
    seq -f "${last%"${last#?}"}%g" "${last#?}"
done >"$out/ids"
cut -d ' ' -f 2 "$out/rows" | diff "$out/ids" - >"$out/rows.why" 2>&1
verdict $? 'each feature has one row, in order' "$out/rows.why"
grep -vE '`[a-z_]+:[a-z_0-9]+`|`[a-z]+\.sh "[^"]+"`|\| (not built|not ours|not a test)[:,] [^|]+ \|$' "$out/rows" >"$out/rows.why"
[ ! -s "$out/rows.why" ]
verdict $? 'each has a test, or says why not' "$out/rows.why"
grep -oE '`[a-z_]+:[a-z_0-9]+`|`[a-z]+\.sh "[^"]+"`' "$out/rows" | tr -d '`' | sort -u | while IFS= read -r test; do
    case $test in
    values.sh*) ;; # it looks itself: its tests have no names in a script
    *.sh*) name=${test#*\"} && grep -qF -e "${name%\"}" "tests/${test%% *}" ;;
    *) cat "tests/test_${test%%:*}".c* | grep -qE "[ (]${test#*:}(\(|\))" ;;
    esac || echo "there is no $test"
done >"$out/rows.why" 2>&1
[ ! -s "$out/rows.why" ]
verdict $? 'and each of these tests is there' "$out/rows.why"
plan
