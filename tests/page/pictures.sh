#!/bin/sh
# tests/page/pictures.sh: takes the pictures of README from real pages, and writes the sample page,
# into examples/report/pictures/. The profiles are of tests/page/serve.c, which has four devices, and of
# Debian's python3 under the interposer, whose times differ from run to run, its bytes hardly. `make
# pictures` runs it. tests/page.sh fails where the page is another one than that of the pictures.
set -eu
cd "$(dirname "$0")/../.."
out=build/pictures to=examples/report/pictures
mkdir -p "$out" "$to"

program='import json, sys
rows = json.loads("[" + ",".join(json.dumps({"key": i, "values": list(range(20))}) for i in range(int(sys.argv[1]))) + "]")
print(len({row["key"]: row for row in rows}))'
profile() { # ROWS FILE: every alloc with its stack
    PYTHONHASHSEED=0 PYTHONMALLOC=malloc MEMLORD_STACK_BYTES=1 MEMLORD_REPORT="$PWD/$2" \
        LD_PRELOAD=$PWD/build/libmemlord_preload.so /usr/bin/python3 -S -c "$program" "$1" >/dev/null
    [ -s "$2" ]
}
"${CC:-gcc}" -std=c99 -O1 -I. tests/page/serve.c build/release/memlord.o -DMLI_EMITTED -o "$out/serve" -lm -pthread
"$out/serve" "$to/sample.html"
profile 1500 "$out/base.json"
profile 2500 "$out/now.json"
python3 src/reports/page/assemble.py profile "$out/now.json" "$out/base.json" >"$out/python.html"

CHROMIUM=$(command -v chromium || command -v chromium-browser || command -v google-chrome) ||
    { echo 'no browser: make deps-reports' >&2; exit 1; }
export CHROMIUM
NODE_PATH=build/reports/node_modules node tests/page/pictures.js "$to/sample.html" "$out/python.html" "$to"

find "$to" -name '*.png' -size +200k -print | sed 's/$/: larger than 200 KiB/' >"$out/large"
find "$to" -name sample.html -size +300k -print | sed 's/$/: larger than 300 KiB/' >>"$out/large"
cat "$out/large" >&2
[ ! -s "$out/large" ]
