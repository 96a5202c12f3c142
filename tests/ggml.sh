#!/bin/sh
# tests/ggml.sh: the lines of examples/ggml count what ggml's functions do. Speaks TAP. The stand-in is
# always built; with GGML=DIR, a checkout of whisper.cpp, the patches are applied to a copy of the
# commit that they name, it is built, run, and its log compared with the books.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
out=$PWD/build/ggml
rm -rf "$out" && mkdir -p "$out" || exit 1
commit=$(grep -o '`[0-9a-f]\{40\}`' examples/ggml/README.md | tr -d '`')

for build in '-O2' '-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all'; do
    # shellcheck disable=SC2086 # flags
    ${CXX:-g++} -std=c++17 $build -Wall -Wextra -I. examples/ggml/standin.cpp -o "$out/standin" -pthread \
        >"$out/why" 2>&1 && "$out/standin" >"$out/why" 2>&1 && says "$out/why" 'the books are right'
    verdict $? "ggml: the stand-in's books are right ($build)" "$out/why"
done
for patch in ggml whisper llama; do
    [ "$(grep -c '^[+-][^+-]' examples/ggml/$patch.patch)" -lt 100 ] &&
        [ "$(wc -l <examples/ggml/$patch.patch)" -lt 100 ]
    verdict $? "ggml: $patch.patch has under 100 lines"
done

name='ggml: whisper.cpp with the patches'
if [ -z "${GGML:-}" ]; then
    skip "$name is built, and its books are those of its log" 'no GGML=DIR, a checkout of whisper.cpp'
    skip 'ggml: llama.patch applies' 'no GGML=DIR'
    plan
    exit
fi
tree=$out/whisper.cpp
here=$PWD
(
    set -e
    git clone -q --no-checkout "$GGML" "$tree"
    cd "$tree"
    git cat-file -e "$commit" 2>/dev/null || git fetch -q "$GGML" "$commit"
    git checkout -q "$commit"
    git apply "$here/examples/ggml/ggml.patch" "$here/examples/ggml/whisper.patch"
    cp "$here"/examples/ggml/ggml-memlord.* ggml/src/
    make -s -C "$here" vendor DIR="$tree/ggml/src"
    cp ggml/src/memlord.h src/
) >"$out/why" 2>&1
verdict $? "$name: they apply to the commit they name" "$out/why"
git -C "$tree" apply --check -p2 --directory=examples/talk-llama "$PWD/examples/ggml/llama.patch" >"$out/why" 2>&1
verdict $? 'ggml: llama.patch applies' "$out/why"
cmake -S "$tree" -B "$tree/build" -DGGML_NATIVE=OFF -DWHISPER_BUILD_TESTS=OFF >"$out/why" 2>&1 &&
    cmake --build "$tree/build" -j "$(nproc)" --target whisper-cli >"$out/why" 2>&1
verdict $? "$name builds" "$out/why"
(cd "$tree" && MEMLORD_REPORT=$out/whisper.json timeout 300 build/bin/whisper-cli -t 2 \
    -m models/for-tests-ggml-tiny.bin samples/jfk.wav) >"$out/log" 2>&1
verdict $? "$name runs" "$out/log"
# The log counts in MB of a million bytes, and its compute buffers with the tensors' metadata.
python3 - "$out/whisper.json" "$out/log" >"$out/why" 2>&1 <<'END_'
import json, re, sys
tags = {t["tag"]: t for t in json.load(open(sys.argv[1]))["tags"] if t["device"] == "cpu"}
log = open(sys.argv[2]).read()
said = lambda pattern: float(re.search(pattern + r" *= *([0-9.]+) MB", log).group(1))
near = lambda tag, mb: abs(tags[tag]["allocated"] / 1e6 - mb) < 0.006
print({tag: t["allocated"] for tag, t in tags.items()})
assert near("weights", said("CPU total size"))
assert near("kv_cross", said("kv cross size")) and near("kv_pad", said("kv pad  size"))
assert tags["kv_self"]["peak"] / 1e6 > said("kv self size")  # it grew: the log does not say so
for part in "conv", "encode", "cross", "decode":
    rest = said(r"compute buffer \(%s\)" % part) - tags["compute_" + part]["allocated"] / 1e6
    assert 0 <= rest < 4, (part, rest)
assert tags["compute_work"]["allocated"] > 0
END_
verdict $? "$name: the books are those of its log" "$out/why"
plan
