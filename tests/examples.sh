#!/bin/sh
# tests/examples.sh: the examples do what they show, and programs that know nothing of
# libmemlord_preload.so run under it as they run without. Speaks TAP.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
out=$PWD/build/examples
so=$PWD/build/libmemlord_preload.so
rm -rf "$out"
mkdir -p "$out"
case $so in
*[\ :]*) # LD_PRELOAD is a list, and has no way to quote
    links=$(mktemp -d) && ln -s "$so" "$links/" && so=$links/${so##*/}
    trap 'rm -rf "$links"' EXIT
    ;;
esac

# -- make vendor --

vendored() { # FLAGS...: what `make vendor` writes builds a program in C and in C++, and runs
    rm -rf "$out/vendor" && make -s vendor DIR="$out/vendor" "$@" &&
        printf '%s\n' '#define MEMLORD_IMPLEMENTATION' '#include "memlord.h"' 'int main(void) {' \
            'return memlord_alloc(memlord_global(), memlord_device_cpu(), 16, 1, NULL); }' \
            >"$out/vendor/app.c" &&
        (cd "$out/vendor" && gcc -std=c99 app.c -o app -pthread && ./app &&
            g++ -std=c++11 -x c++ app.c -o app -pthread && ./app)
} >"$out/vendor.why" 2>&1

vendored && says "$out/vendor.why" 'memlord.h [^ ]* and stb_ds.h [0-9.]*,' &&
    cmp "$out/vendor/memlord.h" memlord.h >>"$out/vendor.why" && test -s "$out/vendor/stb_ds.h"
verdict $? 'make vendor copies the two headers of a program' "$out/vendor.why"

vendored ONE=1 && test ! -e "$out/vendor/stb_ds.h" && says "$out/vendor/memlord.h" 'Sean Barrett' &&
    gcc -M "$out/vendor/app.c" >>"$out/vendor.why" 2>&1 && ! grep -q '/stb_ds.h' "$out/vendor.why"
verdict $? 'make vendor ONE=1 makes one file of both' "$out/vendor.why"

! make -s vendor >"$out/vendor.why" 2>&1 && says "$out/vendor.why" 'usage: make vendor DIR='
verdict $? 'make vendor says what it wants' "$out/vendor.why"

# -- those that are programs --

for example in quickstart llama bands oom server pool; do # the Makefile links them with what it compiled once
    gcc -std=c99 -Wall -Wextra -pedantic -Werror -I. -fsyntax-only examples/$example.c >"$out/alone" 2>&1 || break
    example=
done
[ -z "$example" ]
verdict $? 'each is a whole program with memlord.h alone' "$out/alone"

build/quickstart >"$out/quickstart" 2>&1 && says "$out/quickstart" MemLord weights cuda:0 kv_cache
verdict $? 'quickstart prints its report' "$out/quickstart"

DEBUG=1 build/quickstart 2>&1 >"$out/quickstart" | cat -v >"$out/quickstart.debug" &&
    says "$out/quickstart.debug" '^^\[\[31m\[alloc\] cuda:0 ' '^^\[\[32m\[free\] cpu ' &&
    ! build/quickstart 2>&1 >"$out/quickstart" | grep . >>"$out/quickstart.debug"
verdict $? 'and with DEBUG=1 every event, in colour' "$out/quickstart.debug"

for example in llama bands oom server pool; do
    DEBUG=1 build/$example 2>&1 >/dev/null | cat -v >"$out/debug" &&
        says "$out/debug" '^^\[\[31m\[alloc' || break
    example=
done
[ -z "$example" ]
verdict $? 'and so do the other examples' "$out/debug"

build/llama -r "$out/llama.json" >"$out/llama" 2>&1 &&
    says "$out/llama" 'decoded  *[1-9][0-9]* tokens' 'steady  *0 allocations' weights kv_cache \
        'total .* = free .* self .* unaccounted' 'variance +0' 'at the end 0 B live'
verdict $? 'llama prints tokens and where its memory is' "$out/llama"

python3 - "$out/llama.json" >"$out/llama.why" 2>&1 <<'PY'
import json, sys
report = json.load(open(sys.argv[1]))
tags = {t["tag"]: t for t in report["tags"]}
assert tags["kv_cache"]["expected"] == tags["kv_cache"]["allocated"] > 0, tags
assert sum(t["allocated"] for t in report["tags"]) <= report["total"]["allocated"]
assert report["total"]["unknown_frees"] == report["total"]["implicit_frees"] == 0
scopes = {s["path"]: s for s in report["scopes"]}
assert scopes["load"]["live_bytes"] > 2**20 and scopes["load"]["count"] == 1, scopes["load"]
assert scopes["decode/attention"]["count"] == 4 * scopes["decode"]["count"] > 0, scopes["decode"]
assert scopes["decode"]["delta_bytes"]["total"] == 0
assert report["summary"]["checkpoints"] == ["after_model_load", "after_prompt"]
parts = [b["parts"] for b in report["largest_blocks"]["blocks"] if b["parts"]]
assert [p["name"] for p in parts[0]["listed"]][:2] == ["embedding", "rms_attention"]
kinds = report["events"]["kinds"]
ends = sum(kinds[e[1]] == "scope_end" for e in report["events"]["list"])
assert ends == sum(s["count"] for s in scopes.values()), ends
PY
verdict $? 'and its report agrees with its plan, phase by phase' "$out/llama.why"

# A signal is served by the loop, and the second one ends it: a report each, none torn. The loop is
# short: where it was over before the second came, once more.
until_true() { # COMMAND...: tries for three seconds
    for try in $(seq 300); do
        "$@" && return
        sleep 0.01
    done
    return 1
}
saved() { ls "$out/signals"/memory_profile_*.json >/dev/null 2>&1; }
signal_llama() {
    rm -rf "$out/signals"
    mkdir -p "$out/signals"
    (cd "$out/signals" && exec ../../llama -n 256 >llama.out 2>&1) &
    llama=$!
    until_true [ -s "$out/signals/llama.out" ] && kill -USR1 $llama && until_true saved &&
        kill -TERM $llama
    wait $llama
}
for attempt in 1 2 3 4 5; do
    signal_llama 2>/dev/null
    ended=$?
    [ $ended -eq 0 ] || break
done
[ $ended -eq 143 ] && python3 - "$out/signals" >"$out/signals.why" 2>&1 <<'PY'
import glob, json, sys
names = sorted(glob.glob(sys.argv[1] + "/memory_profile_*.json"))
assert len(names) == 2, names
for name in names:
    assert json.load(open(name))["summary"]["checkpoints"], name
assert not glob.glob(sys.argv[1] + "/.memlord*")
PY
verdict $? 'a signal makes it write a report, and another ends it with one' "$out/signals.why"

build/bands 8MiB >"$out/bands" 2>&1 &&
    says "$out/bands" 'collection 1 of cpu: band 0, 8 MiB >= 8 MiB' '^[2-9][0-9]* collections' cache
verdict $? 'bands collects when its band says so' "$out/bands"

python3 - "$out/bands" >"$out/bands.why" 2>&1 <<'PY'
import re, sys
units = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
def size(text):
    number, unit = text.split()
    return float(number) * units[unit]
runs = re.findall(r"live (.+) -> (.+), resident (.+) -> (.+)", open(sys.argv[1]).read())
assert len(runs) >= 2, runs
for run in runs:
    live, live_now, resident, resident_now = map(size, run)
    assert live == 2**23 and live_now == 2**22, run
    assert resident > live and resident - resident_now >= 2**21, run # half of it at least
PY
verdict $? 'and its cache shrinks, for the ledger and for the system' "$out/bands.why"

build/oom >"$out/oom" 2>&1 &&
    says "$out/oom" 'dropped 0 to ' 'allocated after [2-7] attempts' 'short' 'weights' \
        '^16 requests answered' 'requests recovered, 1 failed' &&
    ! grep -q 'request .* refused' "$out/oom"
verdict $? 'oom overruns its device and completes; what can never fit is explained' "$out/oom"

build/server 300 192MiB >"$out/server" 2>&1 &&
    says "$out/server" 'request [0-9]* stopped: it has 11 MiB of .* its quota is 10 MiB$' \
        ' [1-9][0-9]* run, ' ' MiB held by tickets' '^300 of 300 came: 0 wait, 0 run' \
        '^  0 B live, 0 B held by tickets, peak .* of 192 MiB$' \
        '^memlord: \[limit\] cuda:0: .* short: limit 192 MiB, .* held .* by tag: kv_cache'
verdict $? 'server stays under its limit and ends with nothing live' "$out/server"

awk '/^300 of 300 came:/ { n = $9 + $11 + $13; fine = n == 300 && $9 && $11 && $13 }
    END { exit !fine }' "$out/server"
verdict $? 'and answers every request' "$out/server"

[ "$(grep -c '^memlord: \[limit\]' "$out/server")" -le 30 ] # one a second: it refuses thousands
verdict $? 'and logs few of its refusals' "$out/server"

scrape() { # LOG: while the server runs GET /metrics answers, and anything else is not found
    python3 - "$(grep -o -m 1 'http://127.0.0.1:[0-9]*/metrics' "$1")" <<'PY'
import sys, urllib.error, urllib.request
with urllib.request.urlopen(sys.argv[1], timeout=10) as answer:
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    text = answer.read().decode()
for line in ("memlord_limit_bytes{device=\"cuda:0\"} ", "memlord_held_bytes{device=\"cuda:0\"} ",
             "memlord_accounts_open "):
    assert "\n" + line in text, line
try:
    urllib.request.urlopen(sys.argv[1] + "x", timeout=10)
    sys.exit("found")
except urllib.error.HTTPError as error:
    assert error.code == 404
PY
}

build/server 100 192MiB 0 >"$out/metrics" 2>&1 &
server=$!
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    grep -q http "$out/metrics" && break
    sleep 0.2
done
scrape "$out/metrics" 2>"$out/scrape"
scraped=$?
kill -INT $server
wait $server && [ $scraped -eq 0 ] && says "$out/metrics" '^100 of 100 came: 0 wait, 0 run'
verdict $? 'server answers GET /metrics until it is interrupted' "$out/scrape"

build/server 8 8MiB >"$out/server.small" 2>&1
[ $? -eq 1 ] && says "$out/server.small" 'does not fit, 8 MiB short'
verdict $? 'server loads no model that does not fit' "$out/server.small"

named=' (neighbours)' # but in a pid namespace of its own
[ "$(readlink /proc/self/ns/pid)" = 'pid:[4026531836]' ] || named=
timeout 60 build/neighbours >"$out/neighbours" 2>"$out/neighbours.log" &&
    says "$out/neighbours" '^  second  dies: the device is out of memory$' \
        '^  first   drops for its neighbour [1-9][0-9]* MiB,' '^  second  read a document' \
        '^1 of 2 died without the page, 0 with it$' &&
    says "$out/neighbours.log" ' 48 MiB short: .* others: pid [0-9]*'"$named holds 192 MiB"
verdict $? "neighbours: one dies of the other's cache, and with a pressure page neither" \
    "$out/neighbours"

build/pool >"$out/pool" 2>&1 &&
    says "$out/pool" 'preallocated 11 sizes' 'merged [1-9][0-9]* blocks, released [1-9]' \
        'at last  live 0 B of' 'hit rate [5-9][0-9]\.[0-9] %' ' [1-9][0-9]* for the band'
verdict $? 'pool reuses its blocks, compacts when it is fragmented and ends with nothing live' \
    "$out/pool"

build/pool 48MiB >"$out/pool.small" 2>&1 &&
    says "$out/pool.small" 'at last  live 0 B of' ' \([4-9]\|[1-9][0-9]\+\) collections'
verdict $? 'and stays within a small cache size' "$out/pool.small"

for wrong in 'bands 1KiB' 'bands x' 'bands 8MiB 8MiB' 'oom 7' 'oom 9x' 'oom 8 8' 'server 0' \
    'server 8 x' 'server 8 0' 'server 8 8MiB x' 'server 8 64MiB 65536' \
    'pool x' 'pool 1MiB' 'pool 64MiB x'; do
    # shellcheck disable=SC2086 # a program and its arguments
    build/$wrong >"$out/wrong" 2>"$out/usage"
    [ $? -eq 2 ] && [ ! -s "$out/wrong" ] && grep -q '^usage: ' "$out/usage" || break
    wrong=
done
[ -z "$wrong" ]
verdict $? "wrong arguments are answered with the usage and status 2${wrong:+: $wrong}" "$out/usage"

# -- the library that is preloaded --

# Every report: valid, of the process it is named after, and plausible. What a program frees
# before the library is up, or gets from a private allocator, is unknown: a few.
check_reports() { # NAME AT-LEAST
    python3 - "$out/$1" "$2" 2>&1 <<'PY'
import glob, json, os, re, sys
paths = glob.glob(sys.argv[1] + "-*.json")
assert len(paths) >= int(sys.argv[2]), "%d reports" % len(paths)
for path in paths:
    report = json.load(open(path))
    total = report["total"]
    pid = int(re.search(r"-(\d+)\.json$", path).group(1))
    assert report["schema"] == "memlord/2"
    assert report["metadata"]["pid"] == pid, (report["metadata"], pid)
    assert total["allocs"] > 0, total
    inherits = os.path.basename(path).startswith("fork") # and may free what it inherited
    assert total["frees"] <= total["allocs"] or inherits, total
    assert total["unknown_frees"] <= 10 + total["allocs"] // 1000, total
    assert total["peak"] >= total["allocated"], total
    assert total["dropped_allocs"] == 0, total
    assert report["sites"], "no sites"
PY
}

unharmed() { # NAME REPORTS COMMAND...: runs it bare and preloaded
    name=$1 reports=$2
    shift 2
    "$@" >"$out/$name.bare" 2>"$out/$name.bare.err"
    bare=$?
    timeout 120 env LD_PRELOAD="$so" MEMLORD_REPORT="$out/$name-%p.json" \
        "$@" >"$out/$name.out" 2>"$out/$name.err"
    status=$?
    [ $status -eq $bare ] && cmp "$out/$name.bare" "$out/$name.out" >"$out/$name.why" 2>&1 &&
        cmp "$out/$name.bare.err" "$out/$name.err" >>"$out/$name.why" 2>&1
    same=$?
    [ $same -eq 0 ] || {
        echo "status $bare bare, $status preloaded" >>"$out/$name.why"
        tail -n 5 "$out/$name.err" >>"$out/$name.why"
    }
    verdict $same "$name runs under the library as without" "$out/$name.why"
    check_reports "$name" "$reports" >"$out/$name.why"
    verdict $? "$name: its reports are whole and plausible" "$out/$name.why"
}

# 64 KiB of a pipe are full, and nobody reads: the program ends nevertheless, after the ten
# seconds that the library waits for a reader, in which others run.
timeout 60 python3 - "$so" >"$out/unread.why" 2>&1 <<'PY' &
import os, subprocess, sys, time
unread, full = os.pipe()
os.set_blocking(full, False)
try:
    while True: os.write(full, b"x" * 4096)
except BlockingIOError:
    os.set_blocking(full, True)
begun = time.monotonic()
ends = subprocess.Popen(["true"], stderr=full, env=dict(os.environ, LD_PRELOAD=sys.argv[1]))
try:
    status = ends.wait(30)
    took = time.monotonic() - begun
    sys.exit(status or (took < 5 and "after %.1f s: was it preloaded?" % took))
finally:
    ends.kill()
PY
unread=$!

awk 'BEGIN { srand(7); for (i = 0; i < 1000000; i++) print int(rand() * 1e9), i }' >"$out/numbers"
unharmed sort 1 sort --parallel=2 -S 32M -T "$out" -n "$out/numbers"

cat >"$out/script.py" <<'PY'
import json, os, subprocess, sys, threading
words = [{"n": i, "text": "word %d" % i, "list": list(range(i % 50))} for i in range(20000)]
assert json.loads(json.dumps(words)) == words
results = []
def work(k):
    results.append((k, len(json.dumps(words[k::8]))))
threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
for t in threads: t.start()
for t in threads: t.join()
print(sorted(results))
print(subprocess.run([sys.executable, "-c", "print(sum(len(str(i)) for i in range(100000)))"],
                     capture_output=True, text=True).stdout, flush=True)
sys.exit(3)
PY
unharmed python 2 python3 "$out/script.py"

cat >"$out/fork.py" <<'PY'
import os, sys
data = [str(i) * 10 for i in range(20000)]
pid = os.fork()
if pid == 0:
    more = [s + "x" for s in data]
    print("child", len(more), flush=True)
    sys.exit(0)
print("parent", os.waitpid(pid, 0)[1], len(data))
PY
unharmed fork 2 python3 "$out/fork.py"

cat >"$out/ends.c" <<'C'
/* Processes that end in every way there is but by exit. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int status_of_both = 9;
static void *end(void *unused) {
    _exit(status_of_both);
    return unused;
}
static void both(void) {
    pthread_t other;
    if (pthread_create(&other, NULL, end, NULL)) _exit(1);
    (void)end(NULL);
}
static void quickly(void) { quick_exit(5); }
static void cancelled(void) {
    (void)pthread_cancel(pthread_self());
    _exit(6);
}
static void at_once(void) { _Exit(3); }
static void child(void (*run)(void)) {
    int status;
    pid_t pid = fork();
    if (!pid) {
        void *volatile block = malloc(1000);
        free(block);
        run();
    }
    if (waitpid(pid, &status, 0) == pid) printf("%d\n", status);
}
int main(void) {
    void *kept = malloc(123456);
    int status;
    pid_t pid;
    child(both);
    child(quickly);
    child(at_once);
    child(cancelled);
    pid = vfork();
    if (!pid) _exit(7);
    if (waitpid(pid, &status, 0) == pid) printf("%d\n", status);
    fflush(stdout);
    _exit(kept ? 4 : 1);
}
C
"${CC:-gcc}" -std=c11 -O1 -pthread "$out/ends.c" -o "$out/ends"
unharmed fork_ends 5 "$out/ends"
set -- "$out"/fork_ends-*.json
[ $# -eq 5 ]
verdict $? "ends: a report of each that ends by _exit, quick_exit or _Exit, of vfork's none: $#"

wait $unread
verdict $? 'a program ends though nobody reads its stderr, which is full' "$out/unread.why"

unharmed cc 2 "${CC:-gcc}" -std=c99 -O0 -pthread -x c -c memlord.h \
    -o "$out/memlord.o"

cat >"$out/load.sql" <<'SQL'
create table numbers(a integer, b integer);
.separator " "
.import build/examples/numbers numbers
create index by_a on numbers(a);
select count(*), sum(b), count(distinct a % 1000) from numbers;
select a, b from numbers order by a desc, b limit 3;
SQL
unharmed sqlite 1 sqlite3 :memory: '.read build/examples/load.sql'

cat >"$out/script.js" <<'JS'
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
function sum(n) {
    let s = 0;
    for (let i = 0; i < n; i++) s += JSON.stringify({ i }).length;
    return s;
}
if (!isMainThread) {
    parentPort.postMessage(sum(workerData));
} else {
    const buffers = Array.from({ length: 200 }, (_, i) => Buffer.alloc(100000, i));
    const results = [];
    for (let k = 1; k <= 3; k++)
        new Worker(__filename, { workerData: k * 20000 }).on('message', m => results.push(m));
    process.on('exit', () => console.log(results.sort((a, b) => a - b), buffers.length));
}
JS
unharmed node 1 node "$out/script.js"

# Everything that records is on, and its reports are of one piece.
(
    export MEMLORD_EVENTS=2000 MEMLORD_SNAPSHOTS=10
    LD_PRELOAD=$so MEMLORD_REPORT="$out/recorded-%p.json" python3 "$out/script.py"
) >"$out/recorded.out" 2>"$out/recorded.err"
[ $? -eq 3 ] && cmp "$out/python.bare" "$out/recorded.out" >"$out/recorded.why" 2>&1 &&
    python3 - "$out" >"$out/recorded.why" 2>&1 <<'PY'
import glob, json, sys
paths = glob.glob(sys.argv[1] + "/recorded-*.json")
reports = [json.load(open(path)) for path in paths]
reports = [r for r in reports if r["events"]["lost"]] # python may be a script that starts it
assert len(reports) >= 1, paths
for report in reports:
    events, cpu = report["events"]["list"], report["devices"][0]
    assert 1000 < len(events) <= 2000, len(events)
    assert all(a[0] <= b[0] for a, b in zip(events, events[1:]))
    assert sum(cpu["lifetimes"].values()) > 100, cpu["lifetimes"]
    assert len(report["snapshots"]) >= 2, report["snapshots"]
    holders = report["peak_holders"][0]
    assert cpu["stats"]["peak"] * 15 / 16 - 300000 < holders["bytes"] <= cpu["stats"]["peak"], holders
    assert holders["sites"], holders
PY
verdict $? 'a program runs as before while all of its allocations are recorded' "$out/recorded.why"

plan
