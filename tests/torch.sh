#!/bin/sh
# tests/torch.sh: the observer of PyTorch's allocator (examples/torch), on a stand-in for that
# allocator with the shapes of three versions. Speaks TAP. It needs no PyTorch and no GPU.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
out=build/torch
export PYTHONDONTWRITEBYTECODE=1
rm -rf "$out" && mkdir -p "$out" || exit 1
why=$out/why
warn="-Wall -Wextra -pedantic -Wconversion -Wshadow -Wundef -Werror"
stand_in_flags="-std=c++17 -Itests/torch -isystem tests/fake_cuda/include -pthread"

# As pip lays out the torch package and, beside it, NVIDIA's.
package() { # VERSION COMPILER...
    version=$1 torch=$out/$1/torch
    shift
    mkdir -p "$torch/lib" "$torch/include/c10" "$out/$version/nvidia/cuda_runtime" &&
        ln -s "$PWD/tests/torch/include/c10/cuda" "$torch/include/c10/cuda" &&
        ln -s "$PWD/tests/torch/include/torch" "$torch/include/torch" &&
        ln -s "$PWD/tests/fake_cuda/include" "$out/$version/nvidia/cuda_runtime/include" &&
        "$@" $stand_in_flags $warn -DSTAND_IN=$version -I"$torch/include" -fPIC -shared \
            tests/torch/stand_in.cpp -o "$torch/lib/libc10_cuda.so" -Wl,-soname,libc10_cuda.so &&
        echo | "$@" -x c++ -shared - -o "$torch/lib/libc10.so" -Wl,-soname,libc10.so &&
        : >"$torch/__init__.py" &&
        "$@" $stand_in_flags $warn -DSTAND_IN=$version -I"$torch/include" tests/torch/life.cpp \
            -o "$out/$version/life" -L"$torch/lib" -lc10_cuda -ldl \
            "-Wl,--disable-new-dtags,-rpath,$PWD/$torch/lib"
}
observer() { # VERSION COMPILER
    env -u MAKEFLAGS -u MAKELEVEL make -s CUDA_HOME=/nowhere CXX="$2" \
        CXXFLAGS="-O0 $warn -DSTAND_IN=$1" TORCH="$out/$1/torch" OBSERVER="$out/$1/observer.so" \
        torch-observer
}
life() { # VERSION TEST
    timeout -s KILL 120 "$out/$1/life" "$out/$1/observer.so" "$2"
}
holds() { # REPORT STATEMENTS: of python, with the report at hand as r, and numbers of cuda:0
    python3 - "$out/$1.json" "$2" <<'PY'
import json, sys
r = json.load(open(sys.argv[1]))
stats = next(d["stats"] for d in r["devices"] if d["device"] == "cuda:0")
capacity = next((c for c in r["capacity"] if c["device"] == "cuda:0"), None)
tags = {t["tag"]: t["allocated"] for t in r["tags"]}
blocks = {b["bytes"]: b for b in r["largest_blocks"]["blocks"]}
for line in sys.argv[2].strip().splitlines():
    print(line.strip(), stats, capacity, tags, blocks)
    assert eval(line.strip())
PY
}

for version in 22 214; do
    (package $version "${CXX:-g++}" && observer $version "${CXX:-g++}") >"$out/why" 2>&1
    verdict $? "the observer is built with the shapes of PyTorch 2.${version#2}"
done
for version in 26 28; do
    "${CXX:-g++}" $stand_in_flags $warn -DSTAND_IN=$version -fsyntax-only -I. \
        -isystem "$out/214/torch/include" examples/torch/observer.cpp >"$out/why" 2>&1
    verdict $? "it compiles with the shapes of PyTorch 2.${version#2}"
done
for test in $("$out/214/life"); do
    report=
    [ "$test" = a_forked_child_leaves_the_report_to_its_parent ] && report=$PWD/$out/exit.json
    MEMLORD_TORCH_REPORT=$report life 214 "$test" >"$out/why" 2>&1
    verdict $? "$(echo "$test" | tr _ ' ')"
done
for test in the_books_are_the_allocators_sums what_was_there_before_is_read_from_the_snapshot; do
    life 22 $test >"$out/why" 2>&1
    verdict $? "with the shapes of PyTorch 2.2, too: $(echo "$test" | tr _ ' ')"
done

for test in $(python3 tests/torch/script.py); do
    timeout -s KILL 120 python3 tests/torch/script.py "$test" >"$out/why" 2>&1
    verdict $? "python: $(echo "$test" | tr _ ' ')"
done

# The blocks of README that are commands: those of the observer, quicker and with outputs here.
grep -q 'make torch-observer ' examples/torch/README.md && (
    awk '/^```sh/ { on = 1; next } /^```/ { on = 0 } on' examples/torch/README.md |
        grep -v 'make build/' | sed "s,-O2,-O0,; s,-o lib,-o $out/lib," >"$out/commands" &&
        unset MAKEFLAGS MAKELEVEL && PYTHONPATH=$out/214 CUDA=tests/fake_cuda/include \
        CUDA_HOME=/nowhere OBSERVER=$out/by_make.so CXXFLAGS=-O0 sh -e "$out/commands" &&
        cp "$out/libmemlord_torch_observer.so" "$out/by_hand.so"
) >"$out/why" 2>&1
verdict $? "the commands of its README build it"
for built in by_make by_hand; do
    timeout 60 "$out/214/life" "$out/$built.so" a_block_that_a_stream_still_uses_is_pending \
        >"$out/why" 2>&1
    verdict $? "what they built works: $built"
done

if env -u MAKEFLAGS -u MAKELEVEL make -s TORCH=/nowhere torch-observer >"$out/why" 2>&1; then
    false
else
    grep -q '^torch-observer: /nowhere has no PyTorch with CUDA' "$out/why"
fi
verdict $? "without PyTorch make says so"

# -- what the reports of these tests say --

for report in before threads; do
    holds $report 'stats["unknown_frees"] + stats["implicit_frees"] + stats["refused"] == 0
        stats["dropped_allocs"] == 0
        stats["allocs"] == stats["frees"] > 100' >"$out/why" 2>&1
    verdict $? "attaching among allocations is no mistake: $report"
done
holds oom 'stats["oom_failures"] == 1' >"$out/why" 2>&1
verdict $? "an allocation that failed is in the report"
holds unknown 'stats["unknown_frees"] == 1' >"$out/why" 2>&1
verdict $? "a free of an unknown block is in the report, once"
holds tags 'tags == {"weights": 1000, "rounding of sizes": 36}
    blocks[500]["scope"] == "step" and blocks[1000]["scope"] is None
    blocks[500]["stream"] == "0x00002000"
    stats["cache_hits"] == 0 and stats["cache_misses"] == 2' >"$out/why" 2>&1
verdict $? "tags, scopes and streams are in the report"
holds backward 'tags == {"gradients": 1000, "rounding of sizes": 236}' >"$out/why" 2>&1
verdict $? "the tag of a script is that of its backward pass, and of no other thread"
holds capacity 'capacity["total"] == 1 << 30
    capacity["used"] == (100 << 20) + stats["reserved"]
    stats["cache_hits"] > stats["cache_misses"] > 0' >"$out/why" 2>&1
verdict $? "the capacity of the device and the hits of the cache are in the report"
holds exit 'stats["allocated"] == 1024' >"$out/why" 2>&1
verdict $? "the report at exit is the parent's"

plan
