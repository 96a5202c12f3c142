#!/bin/sh
# tests/signals.sh: reports of programs that are killed, that ask for one while they run, and of
# pools of processes, speaking TAP. A program behaves under the interposer as it does without.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
out=$PWD/build/signals
so=$PWD/build/libmemlord_preload.so
[ "$(uname -s)" = Linux ] || { echo '1..0 # SKIP signals of Linux'; exit 0; }
needs build/libmemlord_preload.so
rm -rf "$out" && mkdir -p "$out" || exit 1
case $so in
*[\ :]*) # LD_PRELOAD is a list, and has no way to quote
    links=$(mktemp -d) && ln -s "$so" "$links/" && so=$links/${so##*/}
    trap 'rm -rf "$links"' EXIT
    ;;
esac
host=$out/host
${CC:-gcc} -std=gnu11 -O1 -g -Wall -Wextra -Werror -pthread tests/signals/host.c -o "$host" ||
    { echo 'Bail out! nothing to run'; exit 1; }
py=$(python3 -c 'import sys; print(sys.executable)') # python3 may be a script that starts it
export MEMLORD_SYMBOLS=0

reports() { # NAME: how many there are
    set -- "$out/$1"-*.txt
    [ -e "$1" ] && echo $# || echo 0
}
preloaded() { # NAME COMMAND...; `by`: what starts it
    name=$1
    shift
    ${by:-} env --default-signal=INT LD_PRELOAD="$so" MEMLORD_REPORT="$out/$name-%p.txt" "$@"
}
# The same output and the same end as without, and so many reports.
same() { # REPORTS WHAT NAME COMMAND...
    wanted=$1 what=$2 name=$3
    shift 3
    timeout 60 "$@" >"$out/$name.bare" 2>&1
    bare=$?
    (by='timeout 60' && preloaded "$name" "$@") >"$out/$name.out" 2>&1
    status=$?
    made=$(reports "$name")
    said="status $status, without $bare; $made reports
$(diff "$out/$name.bare" "$out/$name.out")"
    [ $status -eq $bare ] && cmp -s "$out/$name.bare" "$out/$name.out" && [ "$made" -eq "$wanted" ]
    verdict $? "$what"
}
# Starts a program, waits until it is ready, and kills it: how it ends.
killed() { # NAME SIGNAL COMMAND...
    name=$1 signal=$2
    shift 2
    rm -f "$out/$name.fifo" && mkfifo "$out/$name.fifo"
    (by=exec && preloaded "$name" "$@") >"$out/$name.fifo" 2>"$out/$name.err" &
    pid=$!
    read -r _ <"$out/$name.fifo"
    sleep 0.05
    kill -s "$signal" $pid
    wait $pid 2>/dev/null
    said="status $?, $(reports "$name") reports
$(cat "$out/$name.err")"
}
has() { printf '%s\n' "$said" | grep -qE -e "$1"; }

# -- what the program sees --
same 1 'a handler of its own is called, and its end leaves a report' own "$host" own
same 1 'a program that sets the default again is killed, and leaves a report' again "$host" again
same 1 'TERM is ignored, the default, and ignored again, as the program says' ignored \
    sh -c "trap '' TERM; exec '$host' ignored"
same 1 'signal and its kin show the default, and set it' names "$host" names
same 1 'a blocked TERM can be waited for, and kills when it is unblocked' blocked "$host" blocked
same 2 'children of fork and vfork die of TERM, and leave their parent alone' children \
    "$host" children
same 1 'a program that kills itself beside busy threads dies of it' busy "$host" busy
same 1 'an executed child has the default' executed \
    sh -c "LD_PRELOAD= '$host' query; trap '' TERM; LD_PRELOAD= '$host' query"
same 2 'sh and its traps behave as without' traps sh -c "
    trap 'echo got it' TERM; kill -TERM \$\$; echo \$?
    trap '' TERM; kill -TERM \$\$; echo \$?; sh -c 'kill -TERM \$\$; echo ignored'
    trap - TERM; kill -TERM \$\$; echo not reached"
same 2 'bash and its traps behave as without' bash_traps bash -c "
    trap 'echo got it' TERM; kill -TERM \$\$; echo \$?; trap
    trap '' TERM; kill -TERM \$\$; echo \$?; bash -c 'trap; kill -TERM \$\$; echo ignored'
    trap - TERM; kill -TERM \$\$; echo not reached"

sh -c '"$0" idle 3>&1 >"$1" & until [ -s "$1" ]; do sleep 0.01; done' "$host" "$out/orphan" | timeout 20 cat
verdict $? 'what a suite that failed has started ends with it'

# -- reports of what is killed --
killed idle TERM "$host" idle
has '^status 143, 1 reports$' && grep -q '12.06 KiB' "$out"/idle-*.txt
verdict $? 'a program that waits leaves a report when TERM kills it'
killed thread TERM "$host" thread
has '^status 143, 1 reports$'
verdict $? 'whichever thread gets the signal writes the report, in 16 KiB of stack'
killed jumps TERM "$host" jumps
has '^status 143, 0 reports$' && has 'no report: a signal came in malloc'
verdict $? 'a thread that left malloc by longjmp is killed, and says that it has no report'
said=$(preloaded twice timeout 0.2 "$host" idle 2>&1; echo "status $?, $(reports twice) reports")
has '^status 124, 2 reports$'
verdict $? 'TERM that comes twice, as from timeout, leaves a report'
killed int INT "$host" idle
has '^status 130, 0 reports$'
verdict $? 'INT leaves no report'
MEMLORD_REPORT_ON=TERM,INT,HUP
export MEMLORD_REPORT_ON
for end in INT:130 HUP:129 TERM:143; do
    killed "on_${end%:*}" "${end%:*}" "$host" idle
    has "^status ${end#*:}, 1 reports\$"
    verdict $? "MEMLORD_REPORT_ON: ${end%:*} leaves a report"
done
MEMLORD_REPORT_ON=
killed none TERM "$host" idle
has '^status 143, 0 reports$'
verdict $? 'MEMLORD_REPORT_ON: an empty one leaves no report'
unset MEMLORD_REPORT_ON
if unshare -p -f true 2>/dev/null; then
    said=$(preloaded first unshare -p -f sh -c 'kill -TERM $$; echo alive')
    has '^alive$'
    verdict $? 'the first process of a container is not killed by TERM'
else
    skip 'the first process of a container is not killed by TERM' 'unshare is not allowed here'
fi

# Each is killed at a moment of its own, of the first 3 ms of its storm.
cat >"$out/storm.py" <<'PY'
import os, random, signal, subprocess, sys, time
out, so, host, way, times = sys.argv[1:5] + [int(sys.argv[5])]
random.seed(5)
env = dict(os.environ, LD_PRELOAD=so, MEMLORD_REPORT=out + "/" + way + "-%p.txt")
missing = 0
for i in range(times):
    p = subprocess.Popen([host, way], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    assert p.stdout.readline() == b"ready\n"
    time.sleep(random.random() * 0.003)
    p.terminate()
    said = p.communicate(timeout=25)[1]
    assert p.returncode == -signal.SIGTERM, (i, p.returncode)
    path = "%s/%s-%d.txt" % (out, way, p.pid)
    if os.path.exists(path):
        assert "\ncpu " in open(path).read(), path
        os.remove(path)
    else:
        assert b"memlord: no report: " in said, (i, said)
        missing += 1
print(missing, "without a report")
assert missing <= times / 50
PY
for way in storm forks; do
    said=$(timeout 120 "$py" "$out/storm.py" "$out" "$so" "$host" $way 100 2>&1)
    verdict $? "100 programs are killed at any moment of a $way: none hangs, all leave a report"
done

# -- reports of what goes on --
cat >"$out/asks.py" <<'PY'
import glob, json, os, signal, subprocess, sys, time
out, so, host, way = sys.argv[1:5]
directory = "%s/%s.asks" % (out, way)
os.mkdir(directory)
path = directory + "/r.json"
p = subprocess.Popen([host, way], stdout=subprocess.PIPE, env=dict(os.environ, LD_PRELOAD=so,
                     MEMLORD_REPORT=path, MEMLORD_SIGNAL=str(int(signal.SIGUSR1))))
assert p.stdout.readline() == b"ready\n"
for i in range(40):
    p.send_signal(signal.SIGUSR1)
    until = time.monotonic() + 10
    while not os.path.exists(path):
        assert time.monotonic() < until and p.poll() is None, (i, p.poll())
        time.sleep(0.001)
    report = json.load(open(path)) # whole, whenever it is read
    assert report["metadata"]["pid"] == p.pid
    os.remove(path)
p.terminate()
p.communicate(timeout=25)
assert p.returncode == -signal.SIGTERM, p.returncode
assert os.listdir(directory) == ["r.json"], os.listdir(directory)
PY
for way in idle thread storm; do
    said=$("$py" "$out/asks.py" "$out" "$so" "$host" $way 2>&1)
    verdict $? "MEMLORD_SIGNAL: 40 reports of a program that goes on: $way"
done
LD_PRELOAD=$so MEMLORD_SIGNAL=10 "$host" idle >"$out/asked.out" 2>"$out/asked.err" &
pid=$!
until [ -s "$out/asked.out" ]; do sleep 0.01; done
for count in 1 2; do
    kill -USR1 $pid
    i=0
    until [ "$(grep -cE '^cpu +12\.' "$out/asked.err")" -eq $count ] ||
            [ $((i += 1)) -gt 500 ]; do
        sleep 0.02
    done
done
kill -KILL $pid
wait $pid 2>/dev/null
said=$(cat "$out/asked.err")
[ "$(printf '%s\n' "$said" | grep -cE '^cpu +12\.')" -eq 2 ]
verdict $? 'MEMLORD_SIGNAL: without a path the report goes to stderr'
cat >"$out/every.py" <<'PY'
import json, os, subprocess, sys, time
out, so, host = sys.argv[1:4]
directory = out + "/every"
os.mkdir(directory)
path = directory + "/r.json"
p = subprocess.Popen([host, "works"], stdout=subprocess.DEVNULL, env=dict(os.environ,
                     LD_PRELOAD=so, MEMLORD_REPORT=path, MEMLORD_EVERY="1"))
began, inodes, allocs = time.monotonic(), [], []
while p.poll() is None:
    if os.path.exists(path):
        with open(path) as f:
            inode, report = os.fstat(f.fileno()).st_ino, json.load(f)
        if inode not in inodes[-1:]:
            inodes.append(inode)
            allocs.append(report["total"]["allocs"])
    time.sleep(0.01)
assert p.returncode == 0
assert 3 <= len(allocs) <= time.monotonic() - began + 2, allocs
assert allocs == sorted(allocs), allocs
assert json.load(open(path))["total"]["allocs"] >= 3000
assert os.listdir(directory) == ["r.json"], os.listdir(directory)
PY
said=$("$py" "$out/every.py" "$out" "$so" "$host" 2>&1)
verdict $? 'MEMLORD_EVERY: the report is written again each second, in one step, and at the end'
for bad in 0 -1 x 99999999999; do
    said=$(MEMLORD_EVERY=$bad preloaded "every$bad" "$host" query 2>/dev/null
        echo "status $?, $(reports "every$bad")")
    [ "$said" = "default
status 0, 1" ]
    verdict $? "MEMLORD_EVERY=$bad changes nothing"
done

# -- pools of processes --
cat >"$out/pool.py" <<'PY'
import concurrent.futures, multiprocessing, sys
def work(n): return len([0] * 1000 * n)
if __name__ == "__main__":
    if sys.argv[1] == "executor":
        with concurrent.futures.ProcessPoolExecutor(3) as pool:
            print(sum(pool.map(work, range(50))))
    else:
        context = multiprocessing.get_context(sys.argv[1])
        ready = context.SimpleQueue() # a worker may be terminated before it runs a line of its own
        pool = context.Pool(3, ready.put, (1,))
        for _ in range(3): ready.get()
        print(sum(pool.map(work, range(50))))
        pool.close() if sys.argv[2] == "close" else pool.terminate()
        pool.join()
PY
# A helper of multiprocessing may outlive the program by a moment; the workers do not.
pool() { # WORKERS ARGUMENT...
    workers=$1 name=$(IFS=_; shift; echo "$*")
    shift
    said=$(by='timeout -s KILL 60' && preloaded "$name" "$py" "$out/pool.py" "$@" 2>&1)
    status=$?
    made=$(reports "$name")
    said="status $status, $made reports
$said"
    [ $status -eq 0 ] && has '^1225000$' && [ "$made" -ge $((workers + 1)) ]
    verdict $? "every worker leaves a report: $*"
}
pool 3 fork terminate
pool 3 fork close
pool 3 spawn terminate
pool 3 forkserver terminate
pool 3 executor

# -- tags and scopes of a program with books of its own --
cat >"$out/books.py" <<'PY'
import json, sys
report = json.load(open(sys.argv[1]))
total = report["total"]
for name in ("implicit_frees", "unknown_frees", "freed_while_shared", "underflows",
             "dropped_allocs", "dropped_sites", "refused"):
    assert total[name] == 0, (name, total)
assert total["allocs"] >= 20000 and total["allocated"] >= 4 * 70000 + 180000, total
tags = {t["tag"]: t["allocated"] for t in report["tags"]}
assert tags == {"worker": 280000, "outer": 60000, "kept": 40000, "around": 10000, "fibre": 27000,
                "outside": 3000}, tags
scopes = {s["path"]: (s["count"], s["running"]) for s in report["scopes"]}
assert scopes == {"step": (1, 0), "round": (200, 0), "left open": (4, 0), "guarded": (1, 0),
                  "guarded/left by longjmp": (1, 0), "around": (2, 0), "fibre": (2, 0),
                  "fibre/inner": (1, 0)}, scopes
PY
books() { # NAME COMPILER FLAG...
    name=$1
    shift
    said=$("$@" -I. -Wall -Wextra -Werror -pthread tests/signals/books.c \
        -o "$out/books-$name" 2>&1) && bare=$("$out/books-$name") &&
        said=$(LD_PRELOAD=$so MEMLORD_REPORT="$out/books-$name.json" "$out/books-$name" 2>&1)
    if [ "$said" != "$bare" ]; then
        verdict 1 "books of its own: $name"
        return
    fi
    said=$("$py" "$out/books.py" "$out/books-$name.json" 2>&1)
    verdict $? "tags and scopes of a program with books of its own reach the interposer's: $name"
}
cc=${CC:-gcc}
books c99 "$cc" -std=c99
books prefixed "$cc" -std=c99 -DMEMLORD_PREFIX=own -DMEMLORD_NO_REPORTS
books private "$cc" -std=c11 -DMEMLORD_STATIC -DMEMLORD_NO_THREADS
books no-pie "$cc" -std=c99 -fno-pie -no-pie
books cpp "${CXX:-g++}" -std=c++11 -x c++
said=$($cc -std=c99 -static -I. -pthread tests/signals/books.c -o "$out/static" 2>&1) &&
    said=$(LD_PRELOAD=$so "$out/static" 2>&1) && [ "$said" = "$("$out/static")" ]
verdict $? 'a static program with books of its own runs as without'
cat >"$out/newer.c" <<'C'
#include "memlord.h"
static void unknown(const char *name) { __builtin_trap(); (void)name; }
static void unknown_end(void) { __builtin_trap(); }
memlord_interposer table __asm__("memlord_interposer") = {
    SIZE, VERSION, 0, unknown, unknown_end, unknown, unknown_end};
#ifdef WITHOUT
__attribute__((constructor)) static void leave_out(void) { table.WITHOUT = 0; }
#endif
C
left_alone() { # TEXT FLAG...
    text=$1
    shift
    "$cc" -I. -shared -fPIC "$@" "$out/newer.c" -o "$out/newer.so" &&
        said=$(LD_PRELOAD=$out/newer.so "$out/books-c99" 2>&1) &&
        [ "$said" = "$("$out/books-c99")" ]
    verdict $? "an interposer $text is left alone"
}
for table in 'sizeof table - 1' 'sizeof table + 8'; do
    version=$(case $table in *+*) echo 2 ;; *) echo 1 ;; esac)
    left_alone "of version $version and size $table" "-DSIZE=$table" -DVERSION=$version
done
for name in tag_begin tag_end scope_begin scope_end; do
    left_alone "without $name" '-DSIZE=sizeof table' -DVERSION=1 -DWITHOUT="$name"
done

plan
