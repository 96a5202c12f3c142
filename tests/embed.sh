#!/bin/sh
# tests/embed.sh: the recipes of examples/embed build as they say and count what the programs have.
# Speaks TAP. LibTorch's is skipped where the package cannot be installed.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
out=$PWD/build/embed
rm -rf "$out" && mkdir -p "$out" || exit 1
cc="${CC:-gcc} -O2 -Wall -Wextra -I."
cxx="${CXX:-g++} -O2 -Wall -Wextra -I."
value() { # FILE PATH: of a JSON report, as a.0.b
    python3 - "$@" <<'END_'
import json, sys
v = json.load(open(sys.argv[1]))
for key in sys.argv[2].split("."):
    v = v[int(key)] if isinstance(v, list) else v[key]
print(v)
END_
}

# -- what they share --
$cc -c examples/embed/at_exit.c -o "$out/at_exit.o" >"$out/why" 2>&1
verdict $? 'at_exit.c compiles' "$out/why"

# -- std::pmr --
$cxx -std=c++17 -rdynamic examples/embed/containers.cpp "$memlord" -o "$out/containers" -pthread \
    >"$out/why" 2>&1 && "$out/containers" >"$out/why"
verdict $? 'pmr: the ledger has the bytes, blocks and phases of the containers' "$out/why"
grep -q 'rows .*\|index ' "$out/why" && grep -q 'containers' "$out/why"
verdict $? 'pmr: the report has the phases and the code that allocates' "$out/why"

# -- operator new --
$cxx -rdynamic examples/embed/objects.cpp examples/new.cpp "$out/at_exit.o" "$memlord" \
    -o "$out/objects" -pthread >"$out/why" 2>&1 && MEMLORD_REPORT=$out/objects.json "$out/objects"
verdict $? 'operator new: the program works as without it' "$out/why"
[ "$(value "$out/objects.json" total.allocated)" = 1024 ] && [ "$(value "$out/objects.json" total.live_blocks)" = 2 ] &&
    [ "$(value "$out/objects.json" total.unknown_frees)" = 0 ]
verdict $? 'operator new: at the end two blocks of 24 and 1000 bytes live, as the program keeps' "$out/objects.json"

# -- ld --wrap, static --
$cc -static -pthread tests/embed/wrapped.c examples/embed/wrap.c -o "$out/wrapped" @examples/embed/wrap.ld \
    >"$out/why" 2>&1 && "$out/wrapped" >>"$out/why"
verdict $? 'ld --wrap: each function of a static program counts what it was asked for' "$out/why"
$cc -static -pthread -g tests/embed/wrapped.c examples/embed/wrap.c "$out/at_exit.o" -o "$out/wrapped" \
    @examples/embed/wrap.ld >"$out/why" 2>&1 && MEMLORD_REPORT=$out/wrapped.json "$out/wrapped" >>"$out/why" &&
    build/symbolize "$out/wrapped.json" -o "$out/named.json" >>"$out/why" 2>&1 || [ $? = 1 ]
grep -q 'wrapped.c' "$out/named.json"
verdict $? 'ld --wrap: symbolize names the lines that allocate' "$out/why"

# -- the macro shim, on a program in the manner of llama2.c --
python3 - "$out" <<'END_'
import random, struct, sys
dim, hidden, layers, heads, kv_heads, vocab, seq = 32, 64, 2, 4, 2, 60, 24
kv = dim // heads * kv_heads
n = vocab * dim + layers * dim + 2 * layers * dim * dim + 2 * layers * dim * kv + layers * dim + 3 * layers * dim * hidden + dim
random.seed(1)
with open(sys.argv[1] + "/model.bin", "wb") as f:
    f.write(struct.pack("7i", dim, hidden, layers, heads, kv_heads, vocab, seq))
    f.write(struct.pack("%df" % n, *[random.uniform(-0.1, 0.1) for _ in range(n)]))
words = ["<s>"] + [chr(97 + i) for i in range(26)] + [" "] + ["w%d" % i for i in range(vocab - 28)]
with open(sys.argv[1] + "/tokenizer.bin", "wb") as f:
    f.write(struct.pack("i", max(map(len, words))))
    for w in words:
        f.write(struct.pack("i", len(w)) + w.encode())
state = 4 * (4 * dim + 2 * hidden + 2 * layers * seq * kv + heads * seq + vocab)
tokenizer = 8 * vocab + sum(len(w) + 1 for w in words) + 16 * vocab + max(map(len, words)) + 1
prompt = 4 * (len("abc cab") + 1)
print("%d %d %d" % (28 + 4 * n, state + tokenizer + prompt, 10 + 1 + vocab + 1 + 1 + 1),
      file=open(sys.argv[1] + "/expected", "w"))
END_
shim() { # NAME FLAGS...: the program is not edited; what it takes is what its model says
    name=$1
    shift
    $cc -DMEMLORD_SHIM -include memlord.h "$@" -c examples/embed/run.c -o "$out/run.o" >"$out/why" 2>&1 &&
        ${CC:-gcc} "$out/run.o" "$out/at_exit.o" "$memlord" -o "$out/run" -lm -pthread >>"$out/why" 2>&1 &&
        MEMLORD_REPORT=$out/run.json "$out/run" "$out/model.bin" "$out/tokenizer.bin" 'abc cab' >"$out/said"
    verdict $? "the shim: $name" "$out/why"
    python3 - "$out/run.json" $(cat "$out/expected") >"$out/why" 2>&1 <<'END_'
import json, sys
report, mapped, heap, blocks = json.load(open(sys.argv[1])), *map(int, sys.argv[2:])
device = {d["device"]: d["stats"] for d in report["devices"]}
print({k: {f: device[k][f] for f in ("total_allocated", "allocs", "allocated", "unknown_frees")} for k in device})
assert device["mapped"]["total_allocated"] == mapped, mapped
assert device["cpu"]["total_allocated"] == heap, heap
assert device["cpu"]["allocs"] == blocks, blocks
assert all(not d["allocated"] and not d["unknown_frees"] for d in device.values())
assert "run.c" in open(sys.argv[1]).read()
END_
    verdict $? "the shim: $name: bytes and blocks are those of the model, and none is left" "$out/why"
}
shim 'compiled with -include'
$cc -c examples/embed/run.c -o "$out/plain.o" >"$out/why" 2>&1 &&
    ${CC:-gcc} "$out/plain.o" -o "$out/plain" -lm &&
    "$out/plain" "$out/model.bin" "$out/tokenizer.bin" 'abc cab' | cmp - "$out/said" >>"$out/why" 2>&1
verdict $? 'the shim: the program says what it says without it' "$out/why"

# -- LibTorch --
torch=/usr/include/torch/csrc/api/include
if [ ! -e $torch/torch/torch.h ]; then
    skip 'LibTorch: the ledger is the sum of the storages' 'there is no libtorch-dev'
else
    ${CXX:-g++} -std=c++17 -O1 -I. -isystem $torch examples/embed/libtorch.cpp "$memlord" -o "$out/libtorch" \
        -ltorch -ltorch_cpu -lc10 -pthread >"$out/why" 2>&1 && "$out/libtorch" >"$out/why" 2>&1
    verdict $? 'LibTorch: the ledger is the sum of the storages, to the byte' "$out/why"
    grep -q 'tied weights  *644352 bytes' "$out/why" && grep -q '^weights  *0 B  *629.25 KiB' "$out/why"
    verdict $? 'LibTorch: tied weights are counted once, under their tag' "$out/why"
fi
plan
