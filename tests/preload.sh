#!/bin/sh
# tests/preload.sh: what libmemlord_preload.so counts and names, and what it does not touch: operator
# new and delete on the allocators of Debian, jemalloc by its own names, stacks of all kinds, wrappers
# left out. Speaks TAP. An allocator that is not installed is a test skipped (`make deps-reports`).
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
needs build/release/memlord.o build/libmemlord_preload.so
out=$PWD/build/preload
so=$PWD/build/libmemlord_preload.so
rm -rf "$out" && mkdir -p "$out" || exit 1
case $so in
*[\ :]*) # LD_PRELOAD is a list, and has no way to quote
    links=$(mktemp -d) && ln -s "$so" "$links/" && so=$links/${so##*/}
    trap 'rm -rf "$links"' EXIT
    ;;
esac
why=$out/why

# An unwinder that hangs has its signals blocked.
preloaded() { # PROGRAM ARGUMENT...: runs it under the library, and within a minute
    timeout -s KILL 60 env LD_PRELOAD="$so${behind:+:$behind}" MEMLORD_SYMBOLS=0 "$@" \
        >"$out/said" 2>"$out/why"
}

# Says whether the statements of python hold for the report at build/preload/NAME.json: `total`, the
# stacks (`frames` of each total, the outermost first, and `totals`) and the labels are at hand.
holds() { # NAME STATEMENTS
    python3 - "$out/$1.json" "$2" >"$out/why" 2>&1 <<'PY'
import json, sys
report = json.load(open(sys.argv[1]))
total, labels = report["total"], report["metadata"]["labels"] or ""
nodes, totals = report["stacks"]["frames"], report["stacks"]["list"]
def frames(total):
    places = [nodes[n]["site"] for n in reversed(total["frames"])]
    return [p["function"] or p["file"] for p in places]
def site(name):
    return [s for s in report["sites"] if s["site"]["function"] == name]
for line in sys.argv[2].strip().splitlines():
    print(line, total, labels, [frames(t) for t in totals[:3]])
    assert eval(line)
PY
}

library() { # NAME: where it lies
    PATH=$PATH:/sbin:/usr/sbin ldconfig -p | awk -v name="$1" '$1 == name { print $NF; exit }'
}
c() { "${CC:-gcc}" -std=gnu99 -O1 -g -Wall -Wextra -Werror -pthread "$@"; }
cxx() { "${CXX:-g++}" -std=c++17 -O1 -g -Wall -Wextra -Werror -pthread "$@"; }

# -- operator new and delete --

# Every new is counted once, every delete too: what is left is what the C++ library and the threads
# keep, of which a few blocks are the program's own.
count_operators() { # REPORT PROGRAM [bare]
    counted=$1
    shift
    preloaded env MEMLORD_REPORT="$out/$counted.json" "$@" && holds "$counted" '
20000 < total["allocs"] < 20020
total["allocs"] - 7 <= total["frees"] < total["allocs"]
total["unknown_frees"] == total["implicit_frees"] == 0
sum(s["allocs"] for s in site("main") if s["live_bytes"] == 4321) == 1'
}

operators() { # LIBRARY [bare]: linked with the program, and preloaded behind
    path=$(library "$1")
    name="every form of new and delete is counted once on $1"
    if [ -z "$path" ]; then
        skip "$name" "no $1"
        skip "$name, preloaded behind" "no $1"
        return
    fi
    cxx tests/preload/operators.cpp -rdynamic -o "$out/on-$1" -Wl,--no-as-needed "$path" &&
        count_operators "linked-$1" "$out/on-$1" ${2:-}
    verdict $? "$name"
    behind=$path
    count_operators "behind-$1" "$out/operators" ${2:-}
    verdict $? "$name, preloaded behind"
    behind=
}

behind=
cxx tests/preload/operators.cpp -rdynamic -o "$out/operators" && count_operators libstdc++ "$out/operators"
verdict $? 'every form of new and delete is counted once'
operators libjemalloc.so.2
operators libtcmalloc_minimal.so.4
operators libmimalloc.so.2 bare

# -- C++ libraries of a program in C --

echo '{ global: run; local: *; };' >"$out/run.map"
counting=$out/counting.so # the library itself, with a note of each call of libdl after the start
cxx -fPIC -shared tests/preload/late.cpp -o "$out/late.so" -Wl,--version-script="$out/run.map" >"$out/why" 2>&1 &&
    cxx -fPIC -shared tests/preload/own.cpp -o "$out/own.so" -fno-exceptions -nodefaultlibs -lc >>"$out/why" 2>&1 &&
    c -rdynamic tests/preload/late.c -o "$out/late" -ldl >>"$out/why" 2>&1 &&
    c -fPIC -shared -fvisibility=hidden -fexceptions -static-libgcc -I. src/tools/preload.c tests/preload/libdl.c \
        -o "$counting" $(printf -- '-Wl,--wrap=%s ' dlopen dlsym dlclose dladdr dlerror) -Wl,-z,now -ldl >>"$out/why" 2>&1
verdict $? 'libraries in C++ are built'

late() { # ARGUMENTS OUTPUT: what the host says under the library, which calls no function of libdl
    : >"$out/why"
    for with in "$so " "$counting wrapped "; do
        got=$(timeout -s KILL 20 env LD_PRELOAD="${with%% *}" MEMLORD_SYMBOLS=0 MEMLORD_SIGNAL=10 $waits \
            MEMLORD_REPORT="$out/late.%n.json" "$out/late" $1 2>&1 | tr '\n' ' ')
        [ "$got" = "${with#* }$2 ends " ] || echo "$1: $got" >>"$out/why"
    done
    [ ! -s "$out/why" ]
}

waits=
for kind in 0:new 1:new[] 2:nothrow 3:nothrow[] 4:aligned 5:vector 6:delete 7:sized 8:delete[] 9:aligned-delete 10:throws 11:map; do
    late "$out/late.so ${kind%%:*}" 'runs closed'
    verdict $? "${kind#*:} is the first operator: no call of libdl, dlerror is kept, the library is unloaded"
done
late "$out/own.so 0 $out/late.so 0 $out/own.so 0 $out/late.so 6 $out/own.so 0" \
    'runs closed runs closed runs closed runs closed runs closed'
verdict $? 'each library calls its own operators, and none of a library that is closed'
waits=WAITS=1 late "$out/late.so 11" 'runs closed'
verdict $? 'a constructor in dlopen may wait for a thread that allocates, sets handlers, renames and reports'
for skip_or_not in '' MEMLORD_SKIP=nothing; do
    preloaded env $skip_or_not MEMLORD_REPORT_ON= MEMLORD_SIGNAL=10 MEMLORD_REPORT="$out/throws.json" \
        "$out/late" "$out/late.so" 10 && holds throws '
[s["live_bytes"] for s in report["sites"] if s["site"]["function"] == "after"] == [4321]
total["unknown_frees"] == total["implicit_frees"] == 0' || break
    skip_or_not=ok
done
[ "$skip_or_not" = ok ]
verdict $? 'a new that throws leaves no trace, nor do the errors of the loader that the look-ups at the start made'
preloaded env MEMLORD_REPORT="$out/own.json" MEMLORD_SIGNAL=10 "$out/late" "$out/own.so" 0 && holds own '
[s["live_bytes"] for s in report["sites"] if s["site"]["file"].startswith("own.so")] == [0]
total["unknown_frees"] == total["implicit_frees"] == 0'
verdict $? 'what an operator delete of a library frees is off the books'

# The first malloc comes from a call that holds the lock of translations, which dlerror waits for.
cat >"$out/pending.c" <<'END'
#include <dlfcn.h>
#include <errno.h>
#include <libintl.h>
#include <stdlib.h>
void fails(void);
#ifdef LIBRARY
__attribute__((constructor)) void fails(void) {
    (void)bindtextdomain("own", "/");
    (void)dlsym(RTLD_DEFAULT, "no_such_function");
}
#else
int main(void) {
    const int error = errno;
    void *p[200] = {fails};
    (void)bindtextdomain("more", "/");
    for (int i = 0; i < 200; i++) p[i] = malloc(i & 1 ? 24 : 50);
    for (int i = 0; i < 200; i++) free(p[i]);
    return error;
}
#endif
END
c -D_GNU_SOURCE -fPIC -shared -DLIBRARY "$out/pending.c" -o "$out/pending.so" -ldl >"$out/why" 2>&1 &&
    c -O0 "$out/pending.c" "$out/pending.so" -o "$out/pending" >"$out/why" 2>&1 &&
    preloaded timeout 20 env MEMLORD_REPORT="$out/pending.json" "$out/pending" && holds pending '
total["unknown_frees"] == total["implicit_frees"] == 0'
verdict $? 'the start waits for no lock of the C library, leaves errno at 0, and what it frees is off the books'

# -- errors --

c tests/preload/errors.c -o "$out/errors" >"$out/why" 2>&1 &&
    c -fPIC -shared -DBEHIND tests/preload/errors.c -o "$out/behind.so" >"$out/why" 2>&1 &&
    (cd "$out" && behind=$out/behind.so && preloaded ./errors) && [ ! -s "$out/said" ]
verdict $? 'reallocarray refuses a product that overflows; realloc and rename leave the right errno' "$out/said"

# -- jemalloc by its own names --

c tests/preload/jemalloc.c -o "$out/jemalloc" && preloaded "$out/jemalloc" && grep -q '^without' "$out/said"
verdict $? 'a program that tests for mallocx finds none on the C library'

name='mallocx, rallocx, xallocx, dallocx and sdallocx are counted'
jemalloc=$(library libjemalloc.so.2)
if [ -z "$jemalloc" ]; then
    skip "$name" 'no libjemalloc.so.2'
    skip "$name, with all bound at the start" 'no libjemalloc.so.2'
else
    jemalloc_holds='
1001 <= total["allocs"] <= 1010
total["frees"] in (1000, 1001)
total["reallocs"] == 2000
total["unknown_frees"] == total["implicit_frees"] == 0
total["allocated"] - 5000 in (0, 4096, 72704, 72704 + 4096)'
    behind=$jemalloc
    preloaded env MEMLORD_REPORT="$out/jemalloc.json" "$out/jemalloc" && grep -q '^with ' "$out/said" &&
        holds jemalloc "$jemalloc_holds"
    verdict $? "$name"
    behind=
    c tests/preload/jemalloc.c -o "$out/bound" -Wl,-z,now,-z,relro -Wl,--no-as-needed "$jemalloc" &&
        preloaded env MEMLORD_REPORT="$out/bound.json" "$out/bound" && holds bound "$jemalloc_holds"
    verdict $? "$name, with all bound at the start"
fi

# -- stacks --

c -rdynamic tests/preload/stacks.c -o "$out/stacks" && c tests/preload/stacks.c -o "$out/hidden" || exit 1

levels='[("level%02d" % i) for i in range(14, 0, -1)]'
preloaded env MEMLORD_REPORT="$out/every.json" MEMLORD_STACK_BYTES=1 "$out/stacks" chain && holds every "
report['stacks']['bytes'] == 1 and report['stacks']['depth'] == 64
[frames(t)[-16:-2] for t in totals if t['allocs'] == 100000] == [$levels]
frames(totals[0])[-1] == 'my_alloc'
[(t['alloc_bytes'], t['live_bytes'], t['error_bytes']) for t in totals if t['allocs'] == 100000] == [(10**8, 5 * 10**7, 0)]
sum(t['allocs'] for t in totals) == total['allocs']
sum(t['live_bytes'] for t in totals) == total['allocated']"
verdict $? 'with MEMLORD_STACK_BYTES=1 every alloc has its whole stack, and the totals agree'

holds every '
[c["device"] for c in report["capacity"]] == ["cpu"]
total["allocated"] == report["capacity"][0]["self"] < report["capacity"][0]["used"] < report["capacity"][0]["total"]'
verdict $? 'the report says how much memory the machine or the container has, and how much is used'

preloaded env MEMLORD_REPORT="$out/every.folded" MEMLORD_STACK_BYTES=1 "$out/stacks" chain &&
    cp "$out/every.folded" "$out/why" &&
    grep -q 'main [^;]*;[^;]*;\(level[01][0-9] [^;]*;\)\{14\}[^;]*;my_alloc [^;]*$' "$out/every.folded" &&
    ! grep -q libmemlord_preload "$out/every.folded"
verdict $? 'FOLDED has them too, and no frame of the library'

python=$(python3 -c "import sys; print(sys.executable)") # python3 itself may be a shell script
cat >"$out/curve.py" <<'PY'
import os, time
kept = []
for i in range(60):
    kept.append(bytearray(1 << 20))
    time.sleep(0.02)
print(len(os.listdir("/proc/self/task")), flush=True)
os._exit(0)
PY
preloaded env MEMLORD_REPORT="$out/curve.json" "$python" -S "$out/curve.py" && [ "$(cat "$out/said")" = 1 ] && holds curve '
40 < len(report["snapshots"]) <= 256
report["metadata"]["own_bytes"] < 4 << 20
max(s["total_bytes"] for s in report["snapshots"]) > 60 << 20
report["growth"]["fastest"][0]["snapshots"] > 30
"grows by " in [v["parts"][0]["text"] for v in report["verdicts"] if v["kind"] == "growth"][0]'
verdict $? 'a report has what was live over time, without a thread, and says what grows'
preloaded env MEMLORD_REPORT="$out/curve.json" MEMLORD_SNAPSHOTS=0 "$python" -S "$out/curve.py" &&
    holds curve 'report["snapshots"] == []'
verdict $? 'MEMLORD_SNAPSHOTS=0 draws no curve'

preloaded env MEMLORD_REPORT="$out/sample.json" "$out/stacks" chain && holds sample "
report['stacks']['bytes'] == 524288
total['allocs'] == 100000 and total['allocated'] == 5 * 10**7
len(totals) < 5 and 100 < totals[0]['samples'] < 300
abs(totals[0]['live_bytes'] - 5 * 10**7) <= 6 * totals[0]['error_bytes']
abs(totals[0]['alloc_bytes'] - 10**8) <= 6 * 1.5 * totals[0]['error_bytes']
frames(totals[0])[-16:-2] == $levels"
verdict $? 'a sample is the default: its totals are within six standard errors'

preloaded env MEMLORD_REPORT="$out/phases.json" MEMLORD_STACK_BYTES=1 "$out/stacks" phases &&
    holds phases '
[("phase_c" in frames(t), 118 * 10**6 < t["at_peak_bytes"] <= 120 * 10**6) for t in totals if t["at_peak_bytes"] > 10**6] == [(True, True)]
sum(t["at_peak_bytes"] for t in totals) == report["peak_holders"][0]["bytes"]
"phase_c" in frames(totals[0])
sorted(t["peak_bytes"] for t in totals)[-3:] == [10**8, 10**8, 12 * 10**7]'
verdict $? 'of a program that has ended the stacks of its peak come first, with what they held then'

# Returns the lines of the report of the phases, with frames that are a phase in place of the whole
# stack.
phases() { # SUFFIX BYTES
    preloaded env MEMLORD_REPORT="$out/phases.$1" MEMLORD_STACK_BYTES=$2 "$out/stacks" phases &&
        said=$(sed -n 's/;.*[ ;]\(phase_[abc]\) .* \([0-9]*\)$/ \1 \2/p' "$out/phases.$1")
    echo "$said" >"$out/why"
}
phases folded 1 && [ "$(echo "$said" | sed 's/ 1[12].......$//')" = 'cpu (peak) phase_c' ]
verdict $? 'of a program that has ended FOLDED has what was live at the peak'
phases folded '' && [ "$(echo "$said" | sed 's/ 1[12].......$//')" = 'cpu (peak) phase_c' ]
verdict $? 'samples of it add up to the peak, too'
phases live.folded 1 && [ -z "$said" ] && phases allocated.folded 1 && [ "$said" = \
'cpu (allocated) phase_a 100000000
cpu (allocated) phase_b 100000000
cpu (allocated) phase_c 120000000' ] && phases peak.folded 1 && echo "$said" | grep -q '^cpu (peak) phase_c'
verdict $? 'the suffix chooses live, peak or allocated bytes'

preloaded env MEMLORD_REPORT="$out/none.json" MEMLORD_STACK_DEPTH=0 "$out/stacks" chain &&
    holds none "not totals and not nodes" &&
    preloaded env MEMLORD_REPORT="$out/five.json" MEMLORD_STACK_DEPTH=5 MEMLORD_STACK_BYTES=1 \
        "$out/stacks" chain && holds five "
{len(frames(t)) for t in totals if frames(t)[0] == '[cut: deeper]'} == {6}
max([0] + [len(frames(t)) for t in totals if frames(t)[0] != '[cut: deeper]']) <= 5"
verdict $? 'MEMLORD_STACK_DEPTH bounds them, a stack that is cut says so, and 0 turns them off'

# -- libunwind, and unwinders that fail --

# A libunwind without functions.
mkdir -p "$out/empty" && echo | c -fPIC -shared -x c - -o "$out/empty/libunwind.so.8" || exit 1

name='stacks go through code that was made at run time by default'
if [ "$(uname -m)" != x86_64 ]; then
    skip "$name" 'libunwind is used on x86-64'
elif [ -z "$(library libunwind.so.8)" ]; then
    skip "$name" 'no libunwind.so.8'
else
    preloaded env MEMLORD_REPORT="$out/made.json" "$out/stacks" made && holds made "
sum(t['samples'] for t in totals) > 100 and not labels
{('main' in frames(t), frames(t)[-1]) for t in totals} == {(True, 'my_alloc')}"
    verdict $? "$name"
fi

preloaded env MEMLORD_REPORT="$out/lost.json" "$out/stacks" made-without-pointer && holds lost "
sum(t['samples'] for t in totals) > 100 and not labels
{('main' in frames(t) or frames(t)[0] == '[cut: no unwind table]', frames(t)[-1]) for t in totals} == {(True, 'my_alloc')}"
verdict $? 'a stack that ends in code that was made at run time says so'

preloaded env LD_LIBRARY_PATH="$out/empty" MEMLORD_REPORT="$out/made.json" "$out/stacks" made && holds made "
sum(t['samples'] for t in totals) > 100 and not labels
{frames(t)[0][:5] for t in totals} <= {'main', '[cut:', '_start'}
{frames(t)[-1] for t in totals} == {'my_alloc'}"
verdict $? 'without libunwind the unwinder of libgcc takes them, and says where it ends'

name='an unwinder that crashes or hangs takes its stack with it, and not the program'
if [ "$(uname -m)" != x86_64 ]; then
    skip "$name" 'libunwind is used on x86-64'
else
    mkdir -p "$out/fake"
    c -fPIC -shared tests/preload/unwinder.c -o "$out/fake/libunwind.so.8" || exit 1
    for how in crash hang ''; do
        [ -n "$how" ] || break
        preloaded env LD_LIBRARY_PATH="$out/fake" FAKE_UNWINDER=$how MEMLORD_REPORT="$out/$how.json" \
            "$out/stacks" chain && holds $how "
labels == 'stacks are missing: an unwinder crashed or hung'
total['allocs'] == 100000 and total['allocated'] == 5 * 10**7
sum(t['samples'] for t in totals if len(frames(t)) > 16) > 50" || break
    done
    [ -z "$how" ]
    verdict $? "$name"
fi

cat >"$out/limit.c" <<'C'
#include <signal.h>
#include <time.h>
int main(void) {
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGSEGV};
    const struct itimerspec soon = {{0, 0}, {0, 50000000}};
    const struct timespec second = {1, 0};
    timer_t timer;
    return timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &soon, NULL) ||
           !nanosleep(&second, NULL);
}
C
c "$out/limit.c" -o "$out/limit" && preloaded "$out/limit"
verdict $? 'the time limit of an unwinder that has ended meanwhile does nothing'

for way in 'with every stack ' 'with the unwinder of libgcc ' ''; do
    kind= bytes= libraries=
    case $way in
    *every*) bytes=1 ;;
    *libgcc*) libraries=$out/empty ;;
    esac
    for kind in deep thread fibre signal rbp files loader phdrs forks vforks; do
        preloaded env MEMLORD_STACK_BYTES=$bytes LD_LIBRARY_PATH="$libraries" MEMLORD_REPORT="$out/$kind.json" \
            "$out/stacks" $kind &&
            holds $kind "total['frees'] <= total['allocs'] and total['unknown_frees'] == 0" || break
        kind=
    done
    [ -z "$kind" ]
    verdict $? "${way}deep and small stacks, fibres, a signal's, wild frame pointers, \
files, forks, vforks, locks of the loader and in its callbacks come through${kind:+, but for $kind}"
    [ -z "$bytes" ] || cp "$out/deep.json" "$out/recursion.json"
    [ -z "$bytes" ] || cp "$out/signal.json" "$out/frames.json"
done

holds recursion 'total["allocs"] == 1
len(frames(totals[0])) == report["stacks"]["depth"] + 1
frames(totals[0])[0] == "[cut: deeper]"
frames(totals[0])[-1] == "my_alloc"'
verdict $? 'the stack of a recursion 100,000 deep has its innermost frames, and says that it is cut'

holds frames '
len([t for t in totals if "level14" in frames(t)]) == 1
["main" in frames(t) for t in totals if "level14" in frames(t)] == [True]'
verdict $? 'a stack on an alternate stack goes through the frame of the signal to main'

holds vforks 'total["frees"] == 200 and total["allocs"] == 201'
verdict $? 'what a child of vfork allocates is in the books of its parent, and it writes no report'

# The ratio is 6 to 14, and 50 where the threads keep their priority.
cat >"$out/spin.py" <<'PY'
import os, subprocess, sys, time
os.environ["LD_PRELOAD"] = sys.argv[2]
def ns_of_end(threads):
    said = subprocess.run([sys.argv[1], str(threads)], capture_output=True, text=True, timeout=50)
    return time.monotonic_ns() - int(said.stdout)
least = [min(ns_of_end(threads) for i in range(4)) for threads in (0, 64)]
print("%d and %d ns" % tuple(least))
assert least[1] < 25 * least[0]
PY
c tests/preload/spin.c -o "$out/spin" &&
    MEMLORD_SYMBOLS=0 MEMLORD_STACK_BYTES=1 MEMLORD_REPORT="$out/spin.json" \
        python3 "$out/spin.py" "$out/spin" "$so" >"$why" 2>&1 &&
    holds spin 'len(report["sites"]) > 1000'
verdict $? 'sixty-four threads that compute do not hold up the report'

# -- what is left out --

preloaded env MEMLORD_REPORT="$out/skip.json" MEMLORD_STACK_BYTES=1 MEMLORD_SKIP=my_alloc,inner_alloc,nothing \
    "$out/stacks" chain && holds skip "
labels.endswith('MEMLORD_SKIP names an unknown function: nothing')
[s['allocs'] for s in site('level01')] == [100000]
[frames(t)[-14:] for t in totals if t['allocs'] == 100000] == [$levels]"
verdict $? 'MEMLORD_SKIP leaves functions out of sites and stacks, and an unknown one is named'

c -fPIC -shared tests/preload/timers.c -o "$out/timers.so" &&
    TIMERS="$out/timers.txt" MEMLORD_REPORT="$out/timers.json" MEMLORD_SKIP=my_alloc,inner_alloc \
        LD_PRELOAD="$out/timers.so:$so" timeout -s KILL 60 "$out/stacks" chain >/dev/null 2>"$why" &&
    echo "timers: $(cat "$out/timers.txt")" >"$why" && [ "$(cat "$out/timers.txt")" -lt 10 ]
verdict $? 'MEMLORD_SKIP, which unwinds at each alloc, makes no timer for each'

preloaded env MEMLORD_REPORT="$out/static.json" MEMLORD_SKIP=my_alloc,inner_alloc "$out/hidden" chain &&
    holds static "'MEMLORD_SKIP' not in labels" && cp "$out/static.json" "$out/why" &&
    where=$(nm "$out/hidden" | awk '$3 == "level01" { print $1 }') &&
    python3 - "$out/static.json" "$where" <<'PY' 2>"$out/why"
import json, sys
site = max(json.load(open(sys.argv[1]))["sites"], key=lambda s: s["allocs"])
start = int(sys.argv[2], 16)
assert start < site["offset"] < start + 32, (site, start)
PY
verdict $? 'and finds functions that only the symbol table of the file has'

# -- in a sandbox --

c tests/preload/sandbox.c -o "$out/sandbox" || exit 1
rm -f "$out/sandbox.json"
echo 'memlord: no report: a seccomp filter kills the program for the call poll' >"$out/right"
for mode in kill trap strict 'kill thread'; do
    preloaded env MEMLORD_REPORT="$out/sandbox.json" "$out/sandbox" $mode && grep -qx ok "$out/said" &&
        cmp "$out/why" "$out/right" && [ ! -e "$out/sandbox.json" ] || break
    mode=
done
[ -z "$mode" ]
verdict $? "a filter that kills for calls of a report, but not of malloc, changes no program${mode:+, but $mode}"

preloaded env MEMLORD_REPORT="$out/sandbox.json" "$out/sandbox" errno && grep -qx ok "$out/said" &&
    grep -qx "memlord: no report at $out/sandbox.json: .*" "$out/why" &&
    preloaded "$out/sandbox" errno && grep -qx ok "$out/said" &&
    grep -q '^peak, cpu: .*; \|^biggest holder, cpu: ' "$out/why" && grep -q '^cpu .* 101000 ' "$out/why"
verdict $? 'a filter that refuses to open files and to wait leaves the report on stderr, or one line'

preloaded env MEMLORD_REPORT="$out/sandbox.json" "$out/sandbox" allow && grep -qx ok "$out/said" &&
    holds sandbox 'total["allocs"] == 101000'
verdict $? 'a filter that kills for nothing leaves the report'

# -- allocations that find no memory --

cat >"$out/nomem.c" <<'C'
#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>
static volatile size_t huge = (size_t)1 << 41;
static int none(void *ptr) { return !ptr && errno == ENOMEM && !(errno = 0); }
__attribute__((noinline)) int takes_last(void) { return none(malloc(huge + 5)); }
int main(void) {
    const struct rlimit most = {huge / 2, huge / 2};
    void *kept = malloc(100), *out;
    if (!kept || setrlimit(RLIMIT_AS, &most) || posix_memalign(&out, 3, 8) != EINVAL) return 1;
    errno = 0;
    return !(none(malloc(huge)) && none(calloc(huge, huge)) && none(realloc(kept, huge)) &&
             none(reallocarray(NULL, huge, huge)) && posix_memalign(&out, 64, huge) == ENOMEM &&
             none((errno = 0, aligned_alloc(64, huge))) && none(valloc(huge)) && takes_last());
}
C
c -fno-builtin -rdynamic -D_GNU_SOURCE "$out/nomem.c" -o "$out/nomem" &&
    preloaded env MEMLORD_REPORT="$out/nomem.json" "$out/nomem" && holds nomem '
total["oom_failures"] == 8 and total["oom_attempts"] == 8
(total["allocs"], total["allocated"]) == (1, 100)
report["devices"][0]["last_oom"]["bytes"] == 2**41 + 5
report["devices"][0]["last_oom"]["site"]["function"] == "takes_last"' &&
    preloaded env MEMLORD_REPORT="$out/nomem.txt" "$out/nomem" && cp "$out/nomem.txt" "$out/why" &&
    grep -q '^out of memory, cpu: 2 TiB wanted with 100 B live at takes_last ' "$out/nomem.txt"
verdict $? 'an allocation that returns NULL is counted, with its size and place, and sets errno'

# -- what is not seen --

cat >"$out/own.c" <<'C'
#include <stddef.h>
#include <string.h>
static char room[1 << 20] __attribute__((aligned(16)));
static size_t used;
void *malloc(size_t size) {
    const size_t at = used, taken = (size + 15) / 16 * 16;
    if (taken > sizeof room - used) return NULL;
    used += taken;
    return room + at;
}
void free(void *ptr) { (void)ptr; }
void *calloc(size_t n, size_t size) { return malloc(n * size); }
void *realloc(void *old, size_t size) {
    void *ptr = malloc(size);
    return old && ptr ? memcpy(ptr, old, size) : ptr;
}
int main(void) { return malloc(10) == NULL; }
C
c -fno-builtin -rdynamic "$out/own.c" -o "$out/own" && preloaded env MEMLORD_REPORT="$out/own.txt" "$out/own" &&
    cp "$out/own.txt" "$out/why" && grep -q '^labels: not seen: malloc of .*/own$' "$out/own.txt"
verdict $? 'a malloc that the program brings is said to be not seen'

echo 'int main(void) { void *(*take)(size_t) = malloc; return take(10) == NULL; }' |
    c -no-pie -fno-pie -O0 -include stdlib.h -x c - -o "$out/fixed" &&
    preloaded env MEMLORD_REPORT="$out/fixed.txt" "$out/fixed" && cp "$out/fixed.txt" "$out/why" &&
    ! grep -q 'not seen' "$out/fixed.txt"
verdict $? 'a program at a fixed address that takes the address of malloc brings none'

# -- the file of the report, and the variables --

# Two reports at signals and one at exit; a child that is forked writes its own, and so does one
# that closes stderr before its end, as coreutils do.
cat >"$out/count.c" <<'C'
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv) {
    pid_t child;
    free(malloc(100));
    if (argc > 1) return fclose(stderr) || argv[1][0] != 'c';
    if (raise(SIGUSR1) || raise(SIGUSR1)) return 1;
    child = fork();
    if (!child) return 0;
    printf("%d %d\n", (int)getpid(), (int)child);
    return wait(NULL) != child;
}
C
c "$out/count.c" -o "$out/count" && rm -f "$out"/n.* &&
    preloaded env MEMLORD_SIGNAL=10 MEMLORD_REPORT="$out/n.%p.%n.100%%.%x.json" "$out/count" &&
    read -r parent child <"$out/said" &&
    (cd "$out" && ls n.*) >"$out/why" &&
    printf 'n.%s.100%%.%%x.json\n' "$parent.1" "$parent.2" "$parent.3" "$child.1" | sort >"$out/right" &&
    sort "$out/why" | cmp - "$out/right" >>"$out/why" 2>&1
verdict $? 'in the path %p is the process id, %n counts its reports from 1, %% is a percent sign'

# The parent has held 3 MiB, and holds 1 MiB at the fork. Before its own first call the child waits.
cat >"$out/family.c" <<'C'
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static void *volatile kept[4];
int main(void) {
    pid_t child;
    int i;
    for (i = 0; i < 3; i++) {
        kept[i] = malloc(1 << 20);
        (void)usleep(15000);
    }
    free(kept[1]);
    free(kept[2]);
    child = fork();
    if (child) return waitpid(child, NULL, 0) != child;
    (void)usleep(15000);
    kept[3] = malloc(100000);
    _exit(0);
}
C
c "$out/family.c" -o "$out/family" && rm -f "$out"/family.*.json &&
    preloaded env MEMLORD_REPORT="$out/family.%p.json" "$out/family" &&
    python3 - "$out"/family.*.json >"$out/why" 2>&1 <<'PY'
import json, sys
levels = []
for path in sys.argv[1:]:
    report = json.load(open(path))
    levels.append([s["total_bytes"] for s in report["snapshots"]])
    assert report["metadata"]["dropped"]["snapshots"] == 0, path
print(levels)
parent, child = sorted(levels)
assert parent[0] == 0 and parent[-1] == 1 << 20, parent
assert child[0] == 1 << 20 and max(child) <= (1 << 20) + 100000 == child[-1], child
PY
verdict $? 'the curve of a child begins at its fork, with what the child inherits'

# A symbolize that takes two seconds, and a thread of the program that goes on meanwhile.
cat >"$out/ends.c" <<'C'
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
static void *volatile kept;
static void *go_on(void *unused) {
    (void)unused;
    for (;;) {
        void *volatile block = malloc(1000000);
        free(block);
        (void)usleep(1000);
    }
    return NULL;
}
int main(void) {
    pthread_t thread;
    kept = malloc(1 << 20);
    if (pthread_create(&thread, NULL, go_on, NULL)) return 1;
    return usleep(30000);
}
C
mkdir -p "$out/slow" && cp "$so" "$out/slow" && printf '#!/bin/sh\nexec sleep 2\n' >"$out/slow/symbolize" &&
    chmod +x "$out/slow/symbolize" && c "$out/ends.c" -o "$out/ends" &&
    (so=build/preload/slow/${so##*/} && preloaded env MEMLORD_REPORT="$out/ends.json" MEMLORD_EVENTS=10000 \
        MEMLORD_SYMBOLS=1 "$out/ends") && python3 - "$out/ends.json" >"$out/why" 2>&1 <<'PY'
import json, sys
from datetime import datetime as time
report = json.load(open(sys.argv[1]))
meta = report["metadata"]
times = [s["time_ns"] for s in report["snapshots"]]
print(meta, times)
began, written = (time.strptime(meta[key], "%Y-%m-%dT%H:%M:%S.%fZ") for key in ("started_at", "generated_at"))
assert (written - began).total_seconds() >= 2
assert meta["uptime_ns"] < 1.9e9 and times[-1] <= meta["uptime_ns"] and times == sorted(set(times))
assert report["events"]["list"]
PY
verdict $? 'a report says when the program ended, and not when its places have names'

rm -f "$out"/t.* && before=$(date +%s) &&
    preloaded env MEMLORD_REPORT="$out/t.%t.txt" "$out/count" closes && ls "$out"/t.* >"$out/why" &&
    time=$(basename "$out"/t.*.txt .txt) && time=${time#t.} &&
    [ "$before" -le "$time" ] && [ "$time" -le "$(date +%s)" ]
verdict $? 'and %t the seconds since 1970'

preloaded env MEMLORD_REPORT="$out/none/%p.json" sh -c "echo \$\$; exec '$out/count' closes" &&
    [ "$(sort -u "$out/why")" = "memlord: no report can be written at $out/none/$(cat "$out/said").json: No such file or directory" ]
verdict $? 'a path that cannot be written is told at the start, where the program still has stderr'

preloaded env MEMLORD_REPORT=/dev/null "$out/count" closes &&
    [ "$(cat "$out/why")" = 'memlord: no report can be written at /dev/null: there is something that is no regular file' ]
verdict $? 'and so is one that is no regular file'

told() { # LINE: the only one, for a program that writes two reports
    preloaded env MEMLORD_SIGNAL=10 "$@" "$out/count" && [ "$(cat "$out/why")" = "$line" ]
}
report=MEMLORD_REPORT=$out/told.%p.json
line='memlord: MEMLORD_STACK_BYTE=1 has no effect: there is no such variable'
told "$report" MEMLORD_STACK_BYTE=1 &&
    line='memlord: MEMLORD_STACK_BYTES=64k has no effect: it takes a number without a unit' &&
    told "$report" MEMLORD_STACK_BYTES=64k &&
    line='memlord: MEMLORD_SYMBOLS=-1 has no effect: it takes a number from 0 to 1' &&
    told "$report" MEMLORD_SYMBOLS=-1 &&
    line='memlord: MEMLORD_FOLD=2 has no effect: it takes a number from 0 to 1' &&
    told "$report" MEMLORD_FOLD=2 &&
    line='memlord: MEMLORD_EVERY=2147483648 has no effect: it takes a number from 0 to 2147483647' &&
    told "$report" MEMLORD_EVERY=2147483648 &&
    line='memlord: MEMLORD_REPORT_ON takes TERM, INT and HUP, and has others, too' &&
    told "$report" MEMLORD_REPORT_ON=TERM,KILL &&
    line="memlord: $out/told.foo is written as TEXT: it has no format's suffix" &&
    told MEMLORD_REPORT="$out/told.foo" && grep -q '^MemLord' "$out/told.foo"
verdict $? 'a variable, a number, a signal or a suffix that is not known is told once'

preloaded env "$report" MEMLORD_STACK_BYTES= MEMLORD_STACK_DEPTH=5 MEMLORD_SKIP=a MEMLORD_EXACT=1 MEMLORD_FOLD=1 MEMLORD_EVENTS=9 \
    MEMLORD_ARGUMENTS=1 MEMLORD_SNAPSHOTS=50 MEMLORD_SIGNAL=10 MEMLORD_EVERY=60 MEMLORD_REPORT_ON= MEMLORD_DEBUG= MEMLORD_RETRY=0 \
    MEMLORD_POLL_INTERVAL_MS=100 MEMLORD_APP_REPORT=x "$out/count" && [ ! -s "$out/why" ]
verdict $? 'those that are known are not'

# Arguments with a line feed, a quote and a byte that is not UTF-8, then 1 MB of them.
hostile() { # VARIABLE FILE
    preloaded env MEMLORD_ARGUMENTS="$1" MEMLORD_REPORT="$out/$2" true "$(printf 'a\n"b\377')" \
        $(for i in 1 2 3 4 5 6 7 8 9 10; do printf '%100000s' | tr ' ' -; echo; done)
}
hostile 1 told.json && hostile 1 told.txt && hostile 0 untold.json && hostile '' untold.txt &&
    grep -q '^arguments: a' "$out/told.txt" && ! grep -q '^arguments' "$out/untold.txt" &&
    python3 -c 'import json, sys
told, untold = (json.load(open(sys.argv[1] + name))["metadata"] for name in ("/told.json", "/untold.json"))
assert "arguments" not in untold
assert told["arguments"].startswith("a\ufffd0a\"b\ufffdff ----"), told["arguments"][:20]
assert told["arguments"].endswith("---...") and len(told["arguments"]) < 1100' "$out"
verdict $? 'MEMLORD_ARGUMENTS=1 shows the arguments, cut and escaped; without it no report has them'

# The note that Go's linker writes into each program, and notes whose sizes are not those of notes.
cat >"$out/note.c" <<'C'
#include <stdlib.h>
#define NOTE(section, words) __asm__(".pushsection " section ",\"a\",@note\n.balign 4\n" words "\n.popsection")
#ifdef GO
NOTE(".note.go.buildid", ".long 4, 5, 4\n.asciz \"Go\\0\"\n.ascii \"hello\\0\\0\\0\"");
#elif defined OTHER
NOTE(".note.other", ".long 4, 5, 3\n.asciz \"Go\\0\"\n.ascii \"hello\\0\\0\\0\"");
#else
NOTE(".note.bad", ".long " SIZES ", 4\n.asciz \"Go\\0\"");
#endif
int main(void) { return malloc(10) == NULL; }
C
go='not seen: memory and exit of the Go program'
c -DGO "$out/note.c" -o "$out/noted" && preloaded env MEMLORD_REPORT="$out/noted.txt" "$out/noted" &&
    [ ! -s "$out/why" ] && cp "$out/noted.txt" "$out/why" && grep -q "^labels: $go $out/noted\$" "$out/noted.txt" &&
    preloaded "$out/noted" && [ "$(head -n 1 "$out/why")" = "memlord: $go $out/noted" ]
verdict $? 'a program of Go is named: where it starts, and in the report'

for sizes in OTHER 'SIZES="0xfffffffd,0xfffffffd"' 'SIZES="4,0xfffffff0"' 'SIZES="0xfffffff0,4"' 'SIZES="0,0"' \
    'SIZES="5,0"' 'SIZES="4,5000"'; do
    c "-D$sizes" "$out/note.c" -o "$out/noted" && preloaded env MEMLORD_REPORT="$out/noted.txt" "$out/noted" &&
        [ ! -s "$out/why" ] && ! grep -q 'Go program' "$out/noted.txt" || break
    sizes=
done
[ -z "$sizes" ]
verdict $? "one with other notes, or damaged ones, is not${sizes:+: $sizes}"

name='a program as Go built it is named, and its own stderr is as without where a report says it'
for program in promtool esbuild go none; do # as Debian ships them; the last is slow to start
    path=$(command -v $program) && readelf -lW "$(readlink -f "$path")" | grep -q INTERP && break
done
if [ $program = none ]; then
    skip "$name" 'no program of Go that is linked with the C library'
else
    path=$(readlink -f "$path") arguments=--version
    [ $program = go ] && arguments=version
    "$path" $arguments >"$out/bare" 2>&1
    preloaded env MEMLORD_REPORT="$out/go.txt" "$path" $arguments && [ ! -s "$out/why" ] &&
        cmp "$out/bare" "$out/said" >>"$out/why" 2>&1 && grep -q "^labels: $go $path\$" "$out/go.txt" &&
        preloaded "$path" $arguments && cmp "$out/bare" "$out/said" >>"$out/why" 2>&1 &&
        [ "$(cat "$out/why")" = "memlord: $go $path" ]
    verdict $? "$name"
fi

# A program with a ledger of its own, as the recipes have it: at_exit.c names its report.
cat >"$out/app.c" <<'END'
#include "memlord.h"
#include <stdlib.h>
int main(void) {
    void *volatile p = malloc(100000);
    free(p);
    return memlord_alloc(memlord_global(), memlord_device_cuda(0), 16, 12345, NULL);
}
END
c -I. "$out/app.c" examples/embed/at_exit.c "$memlord" -o "$out/app" -lm >"$out/why" 2>&1 &&
    preloaded env MEMLORD_REPORT="$out/both.json" MEMLORD_APP_REPORT="$out/both_app.json" "$out/app" &&
    holds both 'total["total_allocated"] >= 100000 and total["allocated"] < 100000' &&
    python3 - "$out/both.json" "$out/both_app.json" >"$out/why" 2>&1 <<'PY'
import json, sys
books = [{d["device"]: d["stats"]["allocated"] for d in json.load(open(p))["devices"]} for p in sys.argv[1:]]
assert "cuda:0" not in books[0] and books[1] == {"cuda:0": 12345}, books
PY
verdict $? 'a program with a ledger and the interposer each write a report of their own'

preloaded env MEMLORD_REPORT="$out/one.json" MEMLORD_APP_REPORT="$out/one.json" "$out/app" &&
    [ "$(cat "$out/why")" = "memlord: the interposer's report is $out/interposer-one.json: a ledger in the program has written its own to MEMLORD_REPORT" ] &&
    python3 - "$out/interposer-one.json" "$out/one.json" >"$out/why" 2>&1 <<'PY'
import json, sys
books = [{d["device"] for d in json.load(open(p))["devices"]} for p in sys.argv[1:]]
assert books == [{"cpu"}, {"cuda:0"}], books
PY
verdict $? 'and where both are given one path, the interposer writes beside, and says so'

name='a program on musl does not start, and its loader names the library'
if command -v musl-gcc >/dev/null; then
    echo 'int main(void) { return 0; }' >"$out/musl.c" && musl-gcc "$out/musl.c" -o "$out/musl" &&
        ! preloaded "$out/musl" && grep -q "Error relocating $so: " "$out/why"
    verdict $? "$name"
else
    skip "$name" 'no musl-gcc'
fi

plan
