#!/bin/sh
# tests/ggml.sh: the lines of MemLord in ggml, examples/ggml. Speaks TAP. Builds the stand-in and
# runs it. With GGML=DIR, a git repository of whisper.cpp or llama.cpp, it applies the patches to a
# copy of the commit they name, builds that for the CPU, and runs whisper.cpp on its test model.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
out=$PWD/build/ggml
recipe=examples/ggml
why=$out/why
mkdir -p "$out"
warn='-Wall -Wextra -pedantic -Wconversion -Wshadow -Wundef -Werror'

compile() { # FLAGS...
    "${CXX:-g++}" -std=c++11 $warn -I. "$@"
}
run() { # PROGRAM: the stand-in runs, and all its numbers are right
    timeout 60 "$1" >"$why" 2>&1 && says "$why" '^[1-9][0-9]* checks, 0 wrong$'
}

# -- the stand-in --

printf '#define MEMLORD_IMPLEMENTATION\n#include "memlord.h"\n' >"$out/memlord.cpp"
for build in '' '-g -fsanitize=address,undefined -fno-sanitize-recover=all'; do
    name="ggml stand-in: every device has what its driver has${build:+, with sanitizers}"
    program=$out/standin${build:+_asan}
    compile -O1 $build -c "$out/memlord.cpp" -o "$program.o" >"$why" 2>&1 &&
        compile -O1 $build $recipe/standin.cpp "$program.o" -o "$program" -pthread >"$why" 2>&1 &&
        run "$program"
    verdict $? "$name"
done

# NAME FILE EDIT: its checks notice a copy of the lines that is wrong.
notices() {
    rm -rf "$out/wrong" && mkdir "$out/wrong" && cp $recipe/*.h $recipe/standin.cpp "$out/wrong" &&
        sed "$3" "$recipe/$2" >"$out/wrong/$2" && ! cmp -s "$recipe/$2" "$out/wrong/$2" &&
        compile -w -O0 "$out/wrong/standin.cpp" "$out/standin.o" -o "$out/wrong/standin" -pthread \
            >"$why" 2>&1 && ! run "$out/wrong/standin" && says "$why" ' is [0-9]*, not [0-9]*$'
    verdict $? "ggml stand-in: $1"
}
notices 'notices a meta buffer that counts beside its children' ggml-memlord.h \
    's/ || ggml_backend_buffer_is_meta(buffer)//'
notices 'notices a buffer that two buffer types record' ggml-memlord.h \
    '/if (ggml_memlord_live(buffer, &block)) return;/d'
notices 'notices the free of a multi-buffer that is not live' ggml-memlord.h \
    's/if (ggml_memlord_live(buffer, &block)) MEMLORD_FREE/block.device = memlord_device_cpu(); MEMLORD_FREE/'
notices 'notices a hook that is not called' standin.cpp '/^    if (ggml_backend_hooks.usage)/d'
notices 'notices pinned memory that is taken for its GPU' ggml-memlord.h \
    's/gpu && ggml_backend_buft_is_host(buft)/false/'

# Each line of the patches that calls a hook or MemLord, but for what follows the call, is a line of
# the stand-in, and each declaration of the table, but for its spaces and comments.
plain() { sed 's/^+* *//; s|//.*||; s/ //g' "$@"; }
plain $recipe/standin.cpp >"$out/standin.lines"
grep -h '^+ ' $recipe/hooks.patch | plain | grep -v '^$\|^return\|^GGML_API' >"$out/patch.lines"
grep -h '^+ .*emlord.*[^p]$' $recipe/ggml.patch | plain >>"$out/patch.lines"
grep -vxF -f "$out/standin.lines" "$out/patch.lines" >"$why"
[ ! -s "$why" ] && [ "$(wc -l <"$out/patch.lines")" -ge 16 ]
verdict $? 'ggml stand-in: has the lines of hooks.patch and ggml.patch'

# What its maintainers are asked to take: a table of hooks that knows nothing of MemLord.
grep '^+[^+]' $recipe/hooks.patch >"$why"
[ "$(wc -l <"$why")" -le 15 ] && ! grep -i memlord "$why"
verdict $? 'ggml: the hooks are at most 15 lines, none of which names MemLord'

# What the interposer reads is MEMLORD_REPORT: with it the engine's report would be overwritten.
rm -f "$out/engine.json" "$out/malloc.json"
MEMLORD_APP_REPORT="$out/engine.json" MEMLORD_REPORT="$out/malloc.json" MEMLORD_SYMBOLS=0 \
    LD_PRELOAD="$PWD/build/libmemlord_preload.so" timeout 60 "$out/standin" >"$why" 2>&1 &&
    python3 - "$out/engine.json" "$out/malloc.json" >"$why" 2>&1 <<'END_'
import json, sys
engine, malloc = (json.load(open(path)) for path in sys.argv[1:])
live = lambda tag: sum(t["allocated"] for t in engine["tags"] if t["tag"] == tag)
print(engine["tags"], engine["total"], malloc["devices"])
assert live("weights") == 4544 << 10 and live("kv") == 1024 << 10
assert engine["total"]["allocs"] == 20 and engine["total"]["allocated"] == 6348800
assert {d["device"] for d in malloc["devices"]} == {"cpu"} and malloc["total"]["allocs"] > 20
END_
verdict $? 'ggml stand-in: its report and that of the interposer are two files'
for file in examples/ggml/llama.patch examples/ggml/whisper.patch examples/ggml/standin.cpp; do
    grep -o 'getenv("MEMLORD_[A-Z_]*")' $file || echo "$file names no report"
done >"$why"
[ "$(sort -u "$why")" = 'getenv("MEMLORD_APP_REPORT")' ]
verdict $? 'ggml: each engine has one variable for its report, and not that of the interposer'

for patch in hooks ggml whisper llama; do
    [ "$(wc -l <$recipe/$patch.patch)" -lt 100 ] || echo "$patch.patch has 100 lines"
done >"$why"
[ ! -s "$why" ]
verdict $? 'ggml: each patch is shorter than 100 lines'

# -- the engines --

[ -n "${GGML:-}" ] || { skip 'ggml: an engine' 'no GGML=directory of whisper.cpp or llama.cpp'; plan; exit; }
for host in whisper llama none; do
    commit=$(sed -n 's/^commit //p' $recipe/$host.patch 2>/dev/null)
    git -C "$GGML" cat-file -e "$commit^{commit}" 2>/dev/null && break
done
if [ $host = none ]; then
    said="$GGML has no commit that a patch names: $(sed -n 's/^commit //p' $recipe/*.patch | xargs)"
    false
    verdict $? 'ggml: an engine'
    plan
    exit
fi

# Times of files are those of the commit: a second run compiles little.
source=$out/$host.cpp
rm -rf "$source" && mkdir -p "$source" &&
    git -C "$GGML" archive "$commit" | tar x -C "$source" &&
    make -s vendor DIR="$source/ggml/include" >"$why" 2>&1 &&
    cp -p $recipe/ggml-memlord.* "$source/ggml/src" &&
    cat $recipe/hooks.patch $recipe/ggml.patch $recipe/$host.patch | patch -p1 -s -F 0 -d "$source" >"$why" 2>&1 &&
    [ ! -s "$why" ]
verdict $? "$host.cpp: the patches apply to commit $commit"

target=$([ $host = whisper ] && echo whisper-cli || echo llama-simple)
{
    cmake -S "$source" -B "$out/$host" -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=OFF \
        -DGGML_OPENMP=OFF -DLLAMA_CURL=OFF -DWHISPER_BUILD_TESTS=OFF -DWHISPER_BUILD_SERVER=OFF &&
        nice cmake --build "$out/$host" -j 2 --target "$target"
} >"$why" 2>&1 && ! grep -iE 'memlord.*warning' "$why"
verdict $? "$host.cpp: the patched tree compiles without a warning of MemLord's"
[ $host = whisper ] || { skip 'llama.cpp: a run' 'no model'; plan; exit; }

whisper() { # NAME MODEL: writes NAME.json and NAME.log
    MEMLORD_DEBUG=1 MEMLORD_APP_REPORT="$out/$1.json" timeout 300 "$out/whisper/bin/whisper-cli" \
        -m "$2" -f "$source/samples/jfk.wav" -t 2 >"$out/$1.log" 2>&1
}

cat >"$out/agree.py" <<'END_'
"""agree.py NAME: the report NAME.json agrees with the log of whisper.cpp, NAME.log."""
import json, re, sys
report, log = json.load(open(sys.argv[1] + ".json")), open(sys.argv[1] + ".log").read()
tag = {t["tag"]: t["allocated"] for t in report["tags"]}
blocks, stats = report["largest_blocks"], report["devices"][0]["stats"]

def logged(label):  # megabytes, as text
    return re.findall(re.escape(label) + r" *= *([0-9.]+) MB", log)
assert f"{tag['weights'] / 1e6:.2f}" in logged("CPU total size"), (tag, logged("CPU total size"))
for name in "cross", "pad":
    assert [f"{tag['kv_' + name] / 1e6:.2f}"] == logged(f"kv {name} size") or \
        [f"{tag['kv_' + name] / 1e6:.2f}"] == logged(f"kv {name}  size"), (name, tag)
# The cache was made for one decoder, and again for five of them with two to spare.
assert tag["kv_self"] == 7 * stats["total_freed"], (tag, stats["total_freed"])
assert [f"{stats['total_freed'] / 1e6:.2f}"] == logged("kv self size"), stats["total_freed"]
# The log adds the same graph to each compute buffer.
graph = {round(float(mb) - tag["compute_" + name] / 1e6, 1)
         for name in ("conv", "encode", "cross", "decode")
         for mb in re.findall(rf"compute buffer \({name}\) *= *([0-9.]+) MB", log)}
assert len(graph) == 1 and 1 < graph.pop() < 2, graph
assert tag["compute_work"] > 0 and None not in tag, tag
assert sum(tag.values()) == stats["allocated"] == blocks["bytes"], (tag, stats)
anomalies = "implicit_frees unknown_frees freed_while_shared dropped_allocs dropped_sites refused"
assert not any(stats[name] for name in anomalies.split()), stats
weights = next(b for b in blocks["blocks"] if b["tag"] == "weights")["parts"]
assert weights["count"] == len(weights["listed"]) == 167, weights["count"]
assert weights["bytes"] == tag["weights"], weights["bytes"]
scopes = {s["path"]: s["count"] for s in report["scopes"]}
assert scopes["load"] == 2 and scopes["encode"] >= 1 and scopes["prompt"] >= 1, scopes
assert log.count("[alloc] ") == log.count("[free] ") >= 10, "live at the end"
if len(sys.argv) > 2:
    assert scopes["decode"] >= 1, scopes
END_

whisper empty "$source/models/for-tests-ggml-tiny.bin" >"$why" 2>&1 &&
    python3 "$out/agree.py" "$out/empty" >"$why" 2>&1
verdict $? 'whisper.cpp: the report agrees with the log, and all is freed at the end'

# A model with weights: the header of the test model, and a tensor of noise for each part.
python3 - "$source/models/for-tests-ggml-tiny.bin" "$out/empty.json" "$out/noise.bin" >"$why" 2>&1 <<'END_'
import json, random, struct, sys
random.seed(1)
blocks = json.load(open(sys.argv[2]))["largest_blocks"]["blocks"]
noise = {"f32": struct.pack("<1024f", *(random.uniform(-.1, .1) for _ in range(1024))),
         "f16": struct.pack("<1024e", *(random.uniform(-.1, .1) for _ in range(1024)))}
with open(sys.argv[3], "wb") as out:
    out.write(open(sys.argv[1], "rb").read())
    for part in next(b for b in blocks if b["tag"] == "weights")["parts"]["listed"]:
        name = part["name"].encode()
        out.write(struct.pack(f"<3i{len(part['shape'])}i", len(part["shape"]), len(name),
                              part["dtype"] == "f16", *part["shape"]))
        out.write(name + (noise[part["dtype"]] * (part["bytes"] // 2048 + 1))[:part["bytes"]])
END_
[ $? -eq 0 ] && whisper noise "$out/noise.bin" && python3 "$out/agree.py" "$out/noise" decode >"$why" 2>&1
verdict $? 'whisper.cpp: it loads a model made of the recorded parts, and decodes with it'
plan
