#!/bin/sh
# tests/programs.sh: the interposer under programs as Debian ships them, speaking TAP: they behave as
# they do bare, every function that a report names contains its address, and heaptrack counts the
# same. Programs that are not installed are tests skipped: `make deps-programs` installs them.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
out=$PWD/build/programs so=$PWD/build/libmemlord_preload.so
why=$out/said
rm -rf "$out" && mkdir -p "$out" || exit 1

preloaded() { # REPORT COMMAND...
    report=$1
    shift
    env LD_PRELOAD="$so" MEMLORD_REPORT="$report" "$@"
}

# Prints each named site that is not in a symbol of its name, by nm; a report whose books have holes;
# and that there is no report, or no site.
cat >"$out/names.py" <<'END'
import bisect, functools, glob, json, re, subprocess, sys

@functools.lru_cache(None)
def symbols(module):
    found = []
    for flags in ("-DS", "-S"):
        said = subprocess.run(["nm", flags, "--defined-only", module], capture_output=True, text=True)
        for line in said.stdout.splitlines():
            m = re.match(r"([0-9a-f]+) ([0-9a-f]+) \S (\S+)$", line)
            if m:
                found.append((int(m[1], 16), int(m[2], 16), m[3].split("@")[0]))
    return sorted(found)

def symbols_at(module, offset):
    """The symbols that contain an offset."""
    table = symbols(module)
    return [s[2] for s in table[:bisect.bisect_right(table, (offset, 1 << 62, ""))]
            if s[0] <= offset < s[0] + s[1]]

reports = [r for pattern in sys.argv[1:] for r in glob.glob(pattern)]
sites = named = 0
mangled = [] # what is not the name of a symbol as it is
for report in reports:
    profile = json.load(open(report))
    for key in "unknown_frees", "implicit_frees", "underflows", "dropped_allocs":
        if profile["total"][key]:
            print("%s: %d %s" % (report, profile["total"][key], key))
    for site in profile["sites"]:
        sites += 1
        place = site["site"]
        if not place["function"] or not site.get("module") or place["line"]:
            continue
        named += 1
        here = symbols_at(site["module"], site["offset"])
        if place["function"] not in here:
            mangled.append((site, here))
names = "\n".join(name for site, here in mangled for name in here)
plain = iter(subprocess.run("c++filt", input=names, capture_output=True, text=True).stdout.splitlines())
for site, here in mangled:
    if site["site"]["function"] not in [next(plain) for name in here]:
        print("%s+%#x is not in %s" % (site["module"], site["offset"], site["site"]["function"]))
if not reports or not sites:
    print("%d reports, %d sites" % (len(reports), sites))
print("%d reports, %d sites, %d named" % (len(reports), sites, named), file=sys.stderr)
END

# Prints what heaptrack counts otherwise. Its library brings libstdc++, which allocates once at its
# start. Each realloc of a block is a call there.
cat >"$out/same.py" <<'END'
import json, re, sys
said = open(sys.argv[1]).read()
calls = int(re.search(r"calls to allocation functions: (\d+)", said)[1])
total = json.load(open(sys.argv[2]))["total"]
ours = total["allocs"] + total["reallocs"]
if calls - ours not in (0, 1):
    print("heaptrack: %d calls; %d allocs and %d reallocs" % (calls, total["allocs"], total["reallocs"]))
END

# Runs a program bare and under the interposer, in the same place: its output and status are equal,
# names are right, and with heaptrack the counts are.
program() { # NAME COMMAND...
    name=$1
    shift
    if ! command -v "$1" >/dev/null; then
        for what in 'behaves as it does bare' 'is named as nm has it' 'counts as heaptrack does'; do
            skip "$name $what" "no $1"
        done
        return
    fi
    "$@" >"$out/$name.bare" 2>&1
    echo "status $?" >>"$out/$name.bare"
    preloaded "$out/$name.%p.json" "$@" >"$out/$name.out" 2>&1
    echo "status $?" >>"$out/$name.out"
    diff "$out/$name.bare" "$out/$name.out" >"$out/said" 2>&1
    verdict $? "$name behaves as it does bare"
    python3 "$out/names.py" "$out/$name.*.json" >"$out/said" 2>"$out/$name.sums" && [ ! -s "$out/said" ]
    verdict $? "$name is named as nm has it"
    set -- "$name" "$@"
    if [ "$counts" != same ]; then
        :
    elif ! command -v heaptrack >/dev/null; then
        skip "$name counts as heaptrack does" 'no heaptrack'
    else
        shift
        preloaded "$out/$name.one.json" "$@" >"$out/said" 2>&1
        heaptrack -o "$out/$name.heaptrack" "$@" >"$out/said" 2>&1
        heaptrack_print -f "$out/$name".heaptrack.* >"$out/$name.said" 2>>"$out/said" &&
            python3 "$out/same.py" "$out/$name.said" "$out/$name.one.json" >"$out/said" 2>&1 &&
            [ ! -s "$out/said" ]
        verdict $? "$name counts as heaptrack does"
    fi
}

printf 'int square(int n) { return n * n; }\n' >"$out/square.c"
cat >"$out/pool.py" <<'END'
import multiprocessing

def square(n):
    return n * n

if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(3) as pool:
        print(pool.map(square, range(10)))
        pool.close()
        pool.join()
END

counts=same
program ls ls -la /usr/lib
query='with recursive c(n) as (select 1 union all select n + 1 from c where n < 9999)
    select count(*), sum(length(hex(n))) from c'
program sqlite3 sqlite3 :memory: "$query"

# Prints each of heaptrack's twenty stacks with the most calls that the report has with another
# number of allocs. A stack is its innermost twelve functions in any order, because heaptrack turns
# the order of the inlined ones around. Addresses without a name are left out.
cat >"$out/stacks.py" <<'END'
import collections, json, re, sys
def functions(names):
    return tuple(sorted([n for n in names if re.match(r"[A-Za-z_]\w*$", n) and n != "_start"][-12:]))
theirs, ours = collections.Counter(), collections.Counter()
for line in open(sys.argv[1]):
    stack, calls = line.rsplit(" ", 1)
    theirs[functions(re.sub("[(@ ].*", "", f) for f in stack.split(";"))] += int(calls)
report = json.load(open(sys.argv[2]))
for stack in report["stacks"]["list"]:
    places = [report["stacks"]["frames"][n] for n in reversed(stack["frames"])]
    ours[functions(f["function"] for p in places for f in reversed(p.get("inlined") or [p["site"]]))] += stack["allocs"]
top = theirs.most_common(20)
print(len(top), "stacks", sum(calls == ours[stack] for stack, calls in top), "equal")
for stack, calls in top:
    if calls != ours[stack]:
        print(calls, ours[stack], *stack)
END
name='sqlite3 has the twenty stacks that heaptrack has'
if ! command -v heaptrack >/dev/null || ! command -v sqlite3 >/dev/null; then
    skip "$name" 'no heaptrack or sqlite3'
else
    heaptrack_print -f "$out"/sqlite3.heaptrack.* -F "$out/sqlite3.folded" --flamegraph-cost-type allocations \
        >"$out/said" 2>&1 &&
        MEMLORD_STACK_BYTES=1 MEMLORD_SYMBOLS=1 preloaded "$out/sqlite3.stacks.json" sqlite3 :memory: "$query" \
            >"$out/said" 2>&1 &&
        python3 "$out/stacks.py" "$out/sqlite3.folded" "$out/sqlite3.stacks.json" >"$out/said" 2>&1 &&
        grep -qE '^20 stacks (20|19|18) equal' "$out/said"
    verdict $? "$name"
fi
program gcc-version gcc --version
counts=vary # by addresses, time or threads
python=$(python3 -c 'import sys; print(sys.executable)') # python3 may be a script that finds it
program python3 "$python" -c 'import json, re; print(json.dumps({"a": [1, 2]}), re.sub("a", "b", "aaa"))'
program multiprocessing "$python" "$out/pool.py"
program node node -e 'console.log([3, 1, 2].sort().map(n => n * n).join())'
program gcc gcc -O2 -c "$out/square.c" -o "$out/square.o"
program perl perl -e 'print join(",", sort map { $_ * $_ } 1 .. 9), "\n"'
ls "$out"/multiprocessing.*.json 2>/dev/null | wc -l >"$out/said"
[ "$(cat "$out/said")" -ge 4 ]
verdict $? 'the workers of multiprocessing leave reports'

# The Buffers of node are allocated by functions that node compiles as it runs. Their stacks go to the
# root, and the perf map that node writes names the functions.
name='stacks go through the JavaScript of node to main, and the perf map names it'
if ! command -v node >/dev/null || [ "$(uname -m)" != x86_64 ]; then
    skip "$name" 'no node, or libunwind is not used'
else
    cat >"$out/buffers.js" <<'END'
function take(n) { return Buffer.allocUnsafeSlow(n); }
function hot() { const kept = []; for (let i = 0; i < 3000; i++) kept.push(take(20000)); return kept.length; }
let sum = 0;
for (let i = 0; i < 20; i++) sum += hot();
console.log(sum);
END
    # node leaves a log in its directory.
    (cd "$out" && MEMLORD_SYMBOLS=0 preloaded "$out/buffers.json" node --perf-basic-prof buffers.js) >"$out/said" 2>&1 &&
        build/symbolize "$out/buffers.json" -o "$out/named.json" 2>"$out/said" &&
        python3 - "$out/named.json" >"$out/said" 2>&1 <<'END'
import json, os, sys
report = json.load(open(sys.argv[1]))
os.unlink("/tmp/perf-%d.map" % report["metadata"]["pid"])
top = max(report["stacks"]["list"], key=lambda s: s["alloc_bytes"])
names = [report["stacks"]["frames"][n]["site"]["function"] for n in top["frames"]]
print(top["alloc_bytes"], *names, sep="\n")
assert top["alloc_bytes"] > 5e8 and len(names) >= 20
assert names[-1] == "_start" and any("hot " in n for n in names if n.startswith("JS:"))
END
    verdict $? "$name"
fi

# A server: started, asked once, told to end; then it has left a report whose names are right.
server() { # NAME ASK COMMAND...
    name=$1 ask=$2
    shift 2
    if ! command -v "$1" >/dev/null; then
        skip "$name answers, ends and is named as nm has it" "no $1"
        return
    fi
    LD_PRELOAD=$so MEMLORD_REPORT="$out/$name.%p.json" "$@" >"$out/$name.out" 2>&1 &
    pid=$!
    for i in 1 2 3 4 5 6 7 8 9 10; do
        sleep 0.3
        $ask >"$out/$name.answer" 2>&1 && break
    done
    kill "$pid"
    wait "$pid"
    { [ -s "$out/$name.answer" ] || cat "$out/$name.out"; python3 "$out/names.py" "$out/$name.*.json"; } \
        >"$out/said" 2>"$out/$name.sums"
    [ ! -s "$out/said" ]
    verdict $? "$name answers, ends and is named as nm has it"
}

ask_redis() { printf 'PING\r\n' | timeout 2 python3 -c '
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(b"SET key value\r\nGET key\r\n")
print(s.recv(100))' "$out/redis.sock"; }
server redis ask_redis redis-server --port 0 --unixsocket "$out/redis.sock" --save '' --dir "$out"

mkdir -p "$out/nginx/logs"
cat >"$out/nginx/nginx.conf" <<END
daemon off;
user root;
worker_processes 2;
pid $out/nginx/pid;
error_log stderr;
events {}
http { access_log off; server { listen unix:$out/nginx/sock; location / { return 200 "hello"; } } }
END
ask_nginx() { timeout 2 python3 -c '
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(b"GET / HTTP/1.0\r\n\r\n")
print(s.recv(1000))' "$out/nginx/sock"; }
PATH=$PATH:/usr/sbin
server nginx ask_nginx nginx -p "$out/nginx" -c "$out/nginx/nginx.conf"

# postgres refuses root, and another user may have no way to here.
bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -n 1)
ask_postgres() {
    "$bin/psql" -X -At -h "$home" -U test -d postgres \
        -c 'select count(*), sum(length(md5(n::text))) from generate_series(1, 9999) n'
}
if [ ! -x "$bin/initdb" ]; then
    for what in 'initdb ends well and is named as nm has it' 'postgres answers, ends and is named as nm has it' \
        'postgres answers as it does bare, and each of its processes leaves a report'; do
        skip "$what" 'no postgres'
    done
else
    home=$(mktemp -d) && trap 'rm -rf "$home"' EXIT && cp "$so" "$out/names.py" "$home" || exit 1
    so=$home/libmemlord_preload.so out=$home why=$home/said as=env
    if [ "$(id -u)" = 0 ]; then as='setpriv --reuid=nobody --regid=nogroup --clear-groups' && chown nobody "$home"; fi
    # shellcheck disable=SC2086 # words of a command
    preloaded "$home/initdb.%p.json" $as "$bin/initdb" -N -A trust -U test -D "$home/data" >"$why" 2>&1 &&
        python3 "$home/names.py" "$home/initdb.*.json" >"$why" 2>"$home/initdb.sums" && [ ! -s "$why" ]
    verdict $? 'initdb ends well and is named as nm has it'
    # shellcheck disable=SC2086
    server postgres ask_postgres $as "$bin/postgres" -F -D "$home/data" -k "$home" -h ''
    { cat "$home/postgres.answer"; ls "$home"/postgres.*.json; } >"$why" 2>&1
    grep -qx '9999|319968' "$why" && [ "$(grep -c json "$why")" -ge 7 ]
    verdict $? 'postgres answers as it does bare, and each of its processes leaves a report'
fi
plan
