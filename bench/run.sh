#!/bin/sh
# bench/run.sh: measures MemLord beside its peers and checks what the contract demands.
#   sh bench/run.sh            builds what it needs into build/bench, runs, prints (`make bench`)
#   sh bench/run.sh SECTION... these sections alone, as they are named at the end of this file
#   sh bench/run.sh deps       the Debian packages of the peers, on one line; installs nothing
#   sh bench/run.sh peers      the flags for those that are there, and their libraries, a line each
#   sh bench/run.sh code       bytes of code and constants of the whole, a number
# BASE=REVISION: the memlord.h of that git revision is measured beside the present one; exit 2 where
# there is none. CC and CXX choose the compilers. MEMLORD_BENCH_QUICK=1: a minute instead of six,
# fewer rounds and no row of millions. MEMLORD_BENCH_STRICT=1: exit 1 when a demand is missed or was
# not measured. bench/README.md says how to read it.
set -eu
cd "$(dirname "$0")/.."

if [ "${1:-}" = deps ]; then
    echo libboost1.81-dev libabsl-dev libtbb-dev libstb-dev pkg-config \
        heaptrack lua5.4 valgrind
    exit 0
fi

cc=${CC:-gcc} cxx=${CXX:-g++}
quick=${MEMLORD_BENCH_QUICK:-0}
out=build/bench
mkdir -p $out
musts=$out/musts.tsv
preload=build/libmemlord_preload.so
base=${BASE:-} base_h=$out/base/memlord.h
runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT
trap 'exit 130' INT TERM

# -- what is here --

version_of() {
    sed -n 's/^#define MEMLORD_VERSION "\(.*\)"/\1/p' "$1"
}

head_lines() {
    echo "MemLord bench, $(date -u '+%Y-%m-%d %H:%M UTC')"
    version=$(version_of memlord.h)
    echo "memlord.h $version, cksum $(cksum <memlord.h)"
    [ -z "$base" ] || echo "base      $base_is, cksum $(cksum <$base_h)"
    model=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo 2>/dev/null | head -n 1)
    echo "cpu       ${model:-$(uname -m)}, $(getconf _NPROCESSORS_ONLN) online"
    echo "kernel    $(uname -sr)"
    echo "compiler  $($cc --version | head -n 1); $($cxx --version | head -n 1); -O2"
    echo "libc      $(getconf GNU_LIBC_VERSION 2>/dev/null || echo unknown)"
    echo "load      $(cut -d' ' -f1-3 /proc/loadavg 2>/dev/null || echo unknown) before the run"
}

missing() {
    echo "left out  $1: not found (Debian: $2)"
}

# Tries a program of one line; says whether it compiles and links with the flags given.
builds() {
    line=$1
    shift
    printf '%s\nint main() { return 0; }\n' "$line" |
        $cxx -std=c++17 -x c++ - -x none -o "$runs/try" "$@" 2>/dev/null
}

find_peers() {
    flags="" libs=""
    if builds '#include <boost/unordered/unordered_flat_map.hpp>'; then
        flags="$flags -DPEER_BOOST=1"
    else
        missing 'boost::unordered_flat_map' libboost1.81-dev
    fi
    absl=$(pkg-config --libs absl_flat_hash_map 2>/dev/null || true)
    # shellcheck disable=SC2086 # a list of flags
    if [ -n "$absl" ] && builds '#include <absl/container/flat_hash_map.h>' $absl; then
        flags="$flags -DPEER_ABSL=1" libs="$libs $absl"
    else
        missing 'absl::flat_hash_map' 'libabsl-dev pkg-config'
    fi
    if builds '#include <tbb/concurrent_hash_map.h>' -ltbb; then
        flags="$flags -DPEER_TBB=1" libs="$libs -ltbb"
    else
        missing 'tbb::concurrent_hash_map' libtbb-dev
    fi
    if builds '#include <stb/stb_ds.h>'; then
        flags="$flags -DPEER_STB=1 -DPEER_STB_H=<stb/stb_ds.h>"
    else
        missing 'stb_ds' libstb-dev
    fi
}

# -- demands --

# demand WHAT SIGN LIMIT MEASURED UNIT: notes a demand; MEASURED is - if nothing was measured
demand() {
    awk -v what="$1" -v sign="$2" -v limit="$3" -v is="$4" -v unit="$5" 'BEGIN {
        if (is == "-") verdict = "NOT MEASURED"
        else {
            holds = sign == "<=" ? is + 0 <= limit + 0 : is + 0 >= limit + 0
            verdict = holds ? "holds" : "MISSED"
            is = is unit
        }
        printf "%s\t%s %s%s\t%s\t%s\n", what, sign, limit, unit, is, verdict
    }' >>$musts
}

print_demands() {
    echo
    echo "Demands of the contract"
    awk -F '\t' '{ printf "%-60s %-17s %-17s %s\n", $1, $2, $3, $4 }' $musts
    ! grep -qE '(MISSED|NOT MEASURED)$' $musts
}

# -- the base --

no_base() {
    echo "bench: BASE=$base: $1" >&2
    exit 2
}

# Takes the header of the base out of git.
find_base() {
    git rev-parse --git-dir >/dev/null || no_base 'this is no git checkout'
    commit=$(git rev-parse --verify --quiet "$base^{commit}") || no_base 'no such revision'
    mkdir -p $out/base && git show "$commit:./memlord.h" >$base_h 2>/dev/null || no_base 'that revision has no memlord.h'
    base_is="$(version_of $base_h), BASE=$base, $(git log -1 --format='%h of %cs' "$commit")"
}

# -- the map --

# build_lord SUFFIX FLAG...: builds a library and its rows, of the present header or of the base's
build_lord() {
    suffix=$1
    shift
    $cc -std=c99 -O2 -pthread "$@" -c bench/lord.c -o $out/lord$suffix.o &&
        $cxx -std=c++17 -O2 -DNDEBUG -Wall -Wextra -Werror -pthread "$@" -c bench/books.cpp \
            -o $out/books$suffix.o
}

# A base that knows no MEMLORD_PREFIX would call the present library, and seem to be as fast.
build_base() {
    build_lord _base -I. -DMEMLORD_PREFIX=base -DBENCH_BASE=1 \
        -DBENCH_MEMLORD_H="\"../$base_h\"" &&
        nm $out/lord_base.o | grep -q ' T base_memlord_create$' &&
        ! nm -u $out/books_base.o | grep -q ' memlord_'
}

# Builds once a run what most sections need.
build_lords() {
    [ ! -e "$runs/built" ] || return 0
    build_lord ''
    [ -z "$base" ] || build_base || no_base 'its memlord.h has not what bench/books.cpp needs of it'
    : >"$runs/built"
}

bench_map() {
    build_lords
    find_peers
    lords="$out/lord.o $out/books.o"
    [ -z "$base" ] || {
        flags="$flags -DBENCH_BASE=1"
        lords="$lords $out/lord_base.o $out/books_base.o"
    }
    # shellcheck disable=SC2086 # lists of flags
    $cxx -std=c++17 -O2 -DNDEBUG -Wall -Wextra -Werror -pthread $flags -c bench/map.cpp \
        -o $out/map.o
    # shellcheck disable=SC2086
    $cxx -pthread $out/map.o $lords $libs -o $out/map
    $out/map $musts
}

# build_both NAME: builds bench/NAME.c with the present library, and with the base's
build_both() {
    build_lords
    $cc -std=c99 -O2 -Wall -Wextra -Werror -pthread "bench/$1.c" $out/lord.o -o "$out/$1" -lm
    [ -z "$base" ] || $cc -std=c99 -O2 -pthread -I. -DMEMLORD_PREFIX=base \
        -DBENCH_MEMLORD_H="\"../$base_h\"" "bench/$1.c" $out/lord_base.o -o "$out/$1_base" -lm ||
        no_base "its memlord.h has not what bench/$1.c needs of it"
}

# run_both NAME: likewise, and runs each in five processes, in turn. As each process places the tables
# and the code at other addresses. Writes to $runs/NAME the columns of the one, then those of the other,
# which are - without a base.
run_both() {
    build_both "$1"
    for n in 1 2 3 4 5; do
        "$out/$1" >"$runs/mine"
        if [ -n "$base" ]; then "$out/$1_base"; else sed 's/[^	]*/-/g' "$runs/mine"; fi |
            paste "$runs/mine" - >>"$runs/$1"
    done
    cut -f 1 "$runs/$1" | awk '!seen[$0]++' >"$runs/ways"
}

ratio() { awk -v a="$1" -v b="$2" 'BEGIN { if (a > 0 && b > 0) printf "%.3f", a / b; else print "-" }'; }

median_of() { # FILE COLUMN NAME: prints the median of a column, over the lines that begin with NAME
    awk -F '\t' -v c="$2" -v name="$3" '$1 == name { print $c }' "$1" | sort -n |
        awk '{ v[NR] = $1 } END { print NR ? v[int((NR + 1) / 2)] : "-" }'
}

# -- instructions --

# count_pairs PROGRAM FILE: writes a line for each row of bench/instructions.c: its name, its live
# blocks, the instructions of a pair, or - where the base has no such call
count_pairs() {
    rm -f "$runs"/count.*
    valgrind -q --tool=callgrind --callgrind-out-file="$runs/count" --collect-atstart=no \
        --toggle-collect=counted_pairs --dump-after=counted_pairs "$1" >"$runs/rows"
    n=0
    while IFS='	' read -r row live pairs; do
        each=-
        if [ "$pairs" -gt 0 ]; then
            n=$((n + 1))
            each=$(awk -v pairs="$pairs" '$1 == "totals:" { print $2 / pairs }' "$runs/count.$n")
        fi
        printf '%s\t%s\t%s\n' "$row" "$live" "$each"
    done <"$runs/rows" | awk -F '\t' 'NR == 1 { loop = $3 }
        { printf "%s\t%s\t%s\n", $1, $2, $3 == "-" ? "-" : sprintf("%.1f", NR == 1 ? $3 : $3 - loop) }' >"$2"
}

bench_instructions() {
    if ! command -v valgrind >/dev/null; then
        missing 'valgrind, which counts the instructions' valgrind
        return 0
    fi
    build_both instructions
    count_pairs $out/instructions "$runs/now"
    if [ -n "$base" ]; then
        count_pairs $out/instructions_base "$runs/was"
    else
        sed 's/[^	]*$/-/' "$runs/now" >"$runs/was"
    fi
    printf '\ninstructions a pair, 1 thread, without the loop\n'
    printf '%-36s %8s %8s %8s %8s %8s\n' '' live now 'x plain' base 'x base'
    paste "$runs/now" "$runs/was" | sed 1d | while IFS='	' read -r row live now _ _ was; do
        [ "$row" != plain ] || [ "$live" != 1000 ] || plain=$now
        to_plain=$(ratio "$now" "$plain") to_base=$(ratio "$now" "$was")
        printf '%-36s %8s %8s %8s %8s %8s\n' "$row" "$live" "$now" "$to_plain" "$was" "$to_base"
        demand_instructions
        printf '%s\t%s, %s live\n' "$to_base" "$row" "$live" >>"$runs/to_base"
    done
    [ -z "$base" ] || sort -n "$runs/to_base" | tail -n 1 | while IFS='	' read -r to_base row; do
        demand "instructions, at worst: $row" '<=' 1.03 "$to_base" ' x base'
    done
}

# Notes the demands on a row of bench_instructions: instructions, and times those of a plain pair.
demand_instructions() {
    case "$row, $live" in
    'plain, 1000') most=265 times='' ;;
    'sites and a tag, 1000') most=450 times='' ;;
    'alloc_with, no options, 1000') most=400 times=1.5 ;;
    'alloc_with, tag and account in use, 1000') most='' times=2.0 ;;
    'track that opens + free, 1000') most=420 times=1.6 ;;
    'realloc in place, and back, 1000') most=480 times=1.8 ;;
    *) return 0 ;;
    esac
    [ -z "$most" ] || demand "instructions: $row" '<=' "$most" "$now" ''
    [ -z "$times" ] || demand "instructions: $row" '<=' "$times" "$to_plain" ' x plain'
}

# -- beside the real malloc --

bench_beside() {
    run_both beside
    printf '\nbeside malloc and free, 1 thread, the first byte of each block is written: ns per replaced block\n'
    printf '%-28s %8s %8s %8s %10s %8s %8s\n' '' malloc added 'x malloc' 'sites, tag' 'x malloc' base
    while IFS= read -r way; do
        share=$(median_of "$runs/beside" 4 "$way")
        printf '%-28s %8s %8s %8s %10s %8s %8s\n' "$way" "$(median_of "$runs/beside" 2 "$way")" \
            "$(median_of "$runs/beside" 3 "$way")" "$share" "$(median_of "$runs/beside" 5 "$way")" \
            "$(median_of "$runs/beside" 6 "$way")" "$(median_of "$runs/beside" 10 "$way")"
        case $way in
        '16 B to 4 KiB, 1,000 live') most=0.37 ;;
        '16 B to 4 KiB, 100,000 live') most=0.68 ;;
        '16 to 1,015 B, 1,000 live') most=0.97 ;;
        '16 to 1,015 B, 100,000 live') most=0.82 ;;
        *) continue ;;
        esac
        demand "added to malloc and free, $way" '<=' $most "$share" ' x malloc'
    done <"$runs/ways"
}

# -- the peaks of several threads --

bench_peaks() {
    run_both peaks
    awk -F '\t' -v OFS='\t' '{ $9 = $7 > 0 ? sprintf("%.3f", $3 / $7) : "-"; print }' \
        "$runs/peaks" >"$runs/both"
    printf '\npeaks of several threads: the least reported part of the true one; ns of processor time a pair\n'
    printf '%-36s %8s %8s %8s %9s %8s %8s\n' '' peak ns exact 'peak base' 'ns base' 'x base'
    while IFS= read -r way; do
        printf '%-36s %8s %8s %8s %9s %8s %8s\n' "$way" "$(least_of "$runs/both" 2 "$way")" \
            "$(median_of "$runs/both" 3 "$way")" "$(median_of "$runs/both" 4 "$way")" \
            "$(least_of "$runs/both" 6 "$way")" "$(median_of "$runs/both" 7 "$way")" \
            "$(median_of "$runs/both" 9 "$way")"
    done <"$runs/ways"
    part_of() { least_of "$runs/both" 2 "$1"; }
    demand 'peak of 2 threads, 30 KiB each' '>=' 0.9333 "$(part_of '2 threads, 30 KiB each')" ' of it'
    demand 'peak of 8 threads, 1 MiB each' '>=' 0.96 "$(part_of '8 threads, 1 MiB each')" ' of it'
    demand 'peak of 8 threads, 1 GiB' '>=' 0.9843 "$(part_of '8 threads, 1 GiB together')" ' of it'
    [ -z "$base" ] || demand '  ns a pair of 8 threads, 1 MiB each' '<=' 1.1 \
        "$(median_of "$runs/both" 9 '8 threads, 1 MiB each')" ' x base'
}

least_of() { # FILE COLUMN NAME: likewise the least
    awk -F '\t' -v c="$2" -v name="$3" '$1 == name { print $c }' "$1" | sort -n | head -n 1
}

# -- limits, capacity, deferred frees --

bench_strategy() {
    build_lords
    $cc -std=c99 -O2 -pthread bench/strategy.c $out/lord.o -o $out/strategy
    $out/strategy
}

# -- the allocators of C++ --

# five_runs NAME HEADING COLUMN...: runs a program of C or C++ five times, as each process places the
# tables and the code at other addresses, and prints the medians of the columns of its rows
five_runs() {
    for n in 1 2 3 4 5; do "$out/$1"; done >"$runs/$1"
    printf '\n%s\n%-44s %9s %9s %9s\n' "$2" '' "$3" "$4" "$5"
    cut -f 1 "$runs/$1" | awk '!seen[$0]++' >"$runs/ways"
    while IFS= read -r way; do
        printf '%-44s %9s %9s %9s\n' "$way" "$(median_of "$runs/$1" 2 "$way")" \
            "$(median_of "$runs/$1" 3 "$way")" "$(median_of "$runs/$1" 4 "$way")"
    done <"$runs/ways"
}

bench_cpp() {
    build_lords
    $cxx -std=c++17 -O2 -DNDEBUG -Wall -Wextra -Werror -pthread bench/cpp.cpp $out/lord.o -o $out/cpp
    five_runs cpp 'allocators of C++, 1 thread, 1,000 live blocks: ns per replaced block' median added 'to hand'
    for way in mlord::allocator mlord::resource; do
        demand "$way, added, to by hand" '<=' 3 "$(median_of "$runs/cpp" 4 "  $way")" ' ns'
    done
}

# -- a custom allocator --

bench_pool() {
    build_lords
    $cc -std=c99 -O2 -DNDEBUG -Wall -Wextra -Werror -pthread -I. bench/pool.c $out/lord.o -o $out/pool
    five_runs pool 'examples/pool.h, 1 thread, 1,000 live blocks, all hits: ns' alloc free both
    demand 'the pool serves a hit, with its accounting' '<=' 40 \
        "$(median_of "$runs/pool" 2 'pool_alloc + pool_free, with accounting')" ' ns'
}

# -- scopes, checkpoints, events, reports --

bench_reports() {
    build_lords
    $cc -std=c99 -O2 -pthread bench/reports.c $out/lord.o -o $out/reports
    $out/reports >"$runs/reports"
    cat "$runs/reports"
    for limit in 'nothing open:40' '2 tags and 2 scopes:100'; do
        demand "context swap, ${limit%:*}" '<=' "${limit#*:}" \
            "$(sed -n "s/^context swap, ${limit%:*} *\([0-9.]*\).*/\1/p" "$runs/reports")" ' ns'
    done
}

# -- tools that are preloaded --

build_interposer() {
    [ ! -e "$runs/preload" ] || return 0
    make -s CC="$cc" $preload build/symbolize >/dev/null
    $cc -std=c99 -O2 -pthread bench/churn.c -o $out/churn
    $cc -std=gnu99 -O2 -Wall -Wextra -Werror bench/spawn.c -o $out/spawn
    $cxx -std=c++17 -O2 -pthread bench/objects.cpp -o $out/objects
    : >"$runs/preload"
}

# churn_with TOOL MIX THREADS LIVE: runs churn once, and prints its ns per pair
churn_with() {
    case $1 in
    bare) $out/churn "$2" "$3" "$4" 2000000 ;;
    memlord*)
        depth=64 # the default; 0: one frame, and no stacks of a sample
        [ "$1" = memlord ] || depth=0
        LD_PRELOAD=$PWD/$preload MEMLORD_STACK_DEPTH=$depth MEMLORD_SYMBOLS=0 MEMLORD_REPORT=$runs/report.txt \
            $out/churn "$2" "$3" "$4" 2000000
        ;;
    esac | sed -n 's/.*ns_per_pair \([0-9.]*\).*/\1/p'
}

summary() { # the runs of a tool and of bare, side by side: median, ratio, min, max
    paste "$2" "$1" | awk -v name="$3" '
        function median(v, n,   i, j, t) {
            for (i = 2; i <= n; i++)
                for (j = i; j > 1 && v[j - 1] > v[j]; j--) {
                    t = v[j]; v[j] = v[j - 1]; v[j - 1] = t
                }
            return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
        }
        NF == 2 { bare = $1; n++; tool[n] = $2; ratio[n] = $2 / $1 }
        END {
            if (!n) { printf "%-44s did not run\n", name; exit }
            r = median(ratio, n); m = median(tool, n)
            printf "%-44s %9.1f %9.1f %9.1f %9.2f\n", name, m, tool[1], tool[n], r
        }'
}

# churn_table WHAT MIX THREADS LIVE ROUNDS TOOL LIMIT: runs churn bare and under the interposer in turn, and
# prints a row for each. MIX is -m, -s or -r, as churn takes them; TOOL has the demand.
churn_table() {
    n=0
    rm -f "$runs"/churn.*
    while [ $n -lt "$5" ]; do
        for tool in bare memlord-frame memlord; do
            churn_with "$tool" "$2" "$3" "$4" >>"$runs/churn.$tool"
        done
        n=$((n + 1))
    done
    printf '\n%s under the interposer, %s thread(s), %s live: ns per replaced block\n' "$1" "$3" "$4"
    printf '%-44s %9s %9s %9s %9s\n' '' median min max 'x bare'
    for tool in bare memlord-frame memlord; do
        summary "$runs/churn.$tool" "$runs/churn.bare" "$tool" | tee "$runs/line"
        [ "$tool" != "$6" ] || demand "interposer, $1, $3 thread(s), $4 live" '<=' "$7" \
            "$(awk '$2 + 0 > 0 { r = $NF } END { print r ? r : "-" }' "$runs/line")" ' x bare'
    done
}

bench_churn() {
    build_interposer
    rounds=5
    [ "$quick" = 0 ] || rounds=3
    churn_table malloc -m 1 1000 $rounds memlord-frame 1.8
    churn_table malloc -m 1 100000 $rounds memlord-frame 2.4
    churn_table 'malloc of 16 to 1,015 B' -s 1 1000 $rounds memlord 2.2
    churn_table 'realloc in place' -r 1 1 $rounds memlord 5
    grep -q '[0-9]' "$runs/report.txt" || echo "memlord wrote no report: its row says nothing"
}

# -- whole processes under the interposer --

# Processes are compared by the processor time of all processes that they start, so that other load
# on the machine changes little. Each table has the way of one run after that of another, round by
# round.

under="LD_PRELOAD=$PWD/$preload MEMLORD_REPORT=$runs/report.%p.json"

# spawn ROUNDS WAY... -- COMMAND...: writes what bench/spawn.c prints to $runs/spawn
spawn() {
    $out/spawn "$@" >"$runs/spawn"
    rm -f "$runs"/report.*.json "$runs"/heaptrack.*
}

# column LINE COLUMN: prints a number of the last spawn
column() { awk -F '\t' -v line="$1" -v column="$2" 'NR == line { print $column }' "$runs/spawn"; }

# quotient LINE OTHER COLUMN: prints the ratio of two lines of the last spawn, or - if one is not there
quotient() {
    awk -F '\t' -v a="$1" -v b="$2" -v c="$3" 'NR == a { x = $c } NR == b { y = $c }
        END { if (x && y) printf "%.2f", x / y; else print "-" }' "$runs/spawn"
}

# row NAME LINE: prints a line of the last spawn beside its first one
row() {
    [ -z "$(column "$2" 1)" ] || printf '%-36s %9.1f %9.1f %8s %8s %8s\n' "$1" "$(column "$2" 1)" "$(column "$2" 2)" \
        "$(quotient "$2" 1 1)" "$(quotient "$2" 1 2)" $(($(column "$2" 4) - $(column 1 4)))
}
table() {
    printf '\n%s\n%-36s %9s %9s %8s %8s %8s\n' "$1: ms of processor time, page faults over bare" '' least median \
        'x bare' 'x median' faults
}

# program NAME LIMIT COMMAND...: measures a program as it is, and under the interposer
program() {
    name=$1 limit=$2
    shift 2
    if ! command -v "$1" >/dev/null; then
        missing "$1" "$1"
        return
    fi
    spawn $rounds '' "$under" -- "$@"
    row "$name" 1
    row '  under the interposer' 2
    demand "interposer, processor time: $name" '<=' "$limit" "$(quotient 2 1 1)" ' x bare'
}

# Runs JavaScript that allocates Buffers, and reads the stack of most of them.
bench_buffers() {
    here=$PWD
    (cd "$runs" && LD_PRELOAD=$here/$preload MEMLORD_REPORT=buffers.json MEMLORD_SYMBOLS=0 \
        node --perf-basic-prof "$here/bench/node.js" buffers >/dev/null)
    build/symbolize "$runs/buffers.json" -o "$runs/named.json" 2>/dev/null
    node -e '
        const report = JSON.parse(require("fs").readFileSync(process.argv[1]));
        require("fs").unlinkSync(`/tmp/perf-${report.metadata.pid}.map`);
        const top = report.stacks.list.reduce((a, b) => a.alloc_bytes > b.alloc_bytes ? a : b);
        const made = top.frames.map(n => report.stacks.frames[n].site.function).filter(f => f.startsWith("JS:"));
        console.log(top.frames.length, made.join(" "));' "$runs/named.json" >"$runs/frames"
    printf "\nframes of the stack that allocates JavaScript's Buffers, and those that the perf map names\n"
    cat "$runs/frames"
    demand "interposer, frames of JavaScript's Buffers" '>=' 29 "$(sed -n 's/^\([0-9]*\) .*hot.*/\1/p' "$runs/frames")" ''
}

bench_programs() {
    build_interposer
    rounds=7
    [ "$quick" = 0 ] || rounds=3
    table 'programs'
    python=$(python3 -c 'import sys; print(sys.executable)') # python3 may be a script that finds it
    program 'python3 -c pass' 1.2 "$python" -c pass
    program 'gcc -O2 -c' 1.3 gcc -O2 -c bench/churn.c -o "$runs/churn.o"
    program 'vim -es, 100,000 lines' 1.5 vim -u NONE -i NONE -es \
        -c 'call map(range(1, 100000), "setline(v:val, printf(\"%d %s\", v:val, repeat(\"x\", v:val % 60)))")' \
        -c '%s/x\+/y/' -c 'qa!'
    program 'lua5.4, 200,000 lists' 1.7 lua5.4 -e 'local all = {}
        for i = 1, 200000 do local list = {i}; list[2] = "key " .. i; all[i] = list end'
    unset NODE_EXTRA_CA_CERTS # node reads these certificates at its start, which takes 30 times its own allocs
    program 'node -e 0' 1.3 node -e 0
    program 'node: a worker, zlib and a child' 1.5 node bench/node.js
    spawn 100 '' "$under" -- /bin/true
    row true 1
    row '  under the interposer' 2
    demand 'interposer, true: page faults over bare' '<=' 120 $(($(column 2 4) - $(column 1 4))) ''
    demand 'interposer, true: processor time over bare' '<=' 0.6 \
        "$(awk -F '\t' '{ v[NR] = $1 } END { print v[2] - v[1] }' "$runs/spawn")" ' ms'
    ! command -v node >/dev/null || bench_buffers
}

# stacks NAME COMMAND...: measures a program with one frame, with a sample of stacks, with every stack,
# and under heaptrack, which takes every stack, too. These are lines 2 to 5 of the last spawn.
stacks() {
    name=$1
    shift
    set -- -- "$@"
    ! command -v heaptrack >/dev/null || set -- "heaptrack -o $runs/heaptrack" "$@"
    spawn $rounds '' "$under MEMLORD_STACK_DEPTH=0" "$under" "$under MEMLORD_STACK_BYTES=1" "$@"
    row "$name" 1
    row '  one frame' 2
    row '  a sample of stacks' 3
    row '  every stack' 4
    row '  heaptrack' 5
}

# Measures stacks: MemLord's of a sample and of every alloc, and heaptrack's of every alloc.
bench_stacks() {
    build_interposer
    command -v heaptrack >/dev/null || missing heaptrack heaptrack
    rounds=5
    [ "$quick" = 0 ] || rounds=3
    table 'stacks'
    spawn $rounds '' "$under MEMLORD_STACK_DEPTH=0" "$under" -- $out/churn 1 1000 2000000 11
    row 'churn, stacks 16 deep' 1
    row '  one frame' 2
    row '  a sample of stacks' 3
    demand 'interposer, sampled stacks, to one frame' '<=' 1.1 "$(quotient 3 2 1)" ' x'
    stacks '  a fifth of it' $out/churn 1 1000 400000 11
    demand 'interposer, every stack, to heaptrack: churn' '<=' 0.8 "$(quotient 4 5 1)" ' x'
    stacks 'C++, 400,000 allocs' $out/objects
    demand '  likewise, C++' '<=' 0.8 "$(quotient 4 5 1)" ' x'
    stacks '  likewise, in each of 4 threads' $out/objects 4
    demand '  every stack to one frame, C++, 4 threads' '<=' 2 "$(quotient 4 2 1)" ' x'
}

# -- sizes --

# The size of code and constants. Unwind tables, a fifth more, are left out: whether they are there
# is up to the host's flags (-fno-asynchronous-unwind-tables), and no call touches them.
text_of() {
    size -A "$1" | awk '$1 ~ /^\.(text|rodata)/ { sum += $2 } END { print sum + 0 }'
}
tables_of() {
    size -A "$1" | awk '$1 ~ /^\.eh_frame/ { sum += $2 } END { print sum + 0 }'
}

# parts OBJECT FLAGS...: compiles the implementation with a section for each function
parts() {
    object=$1
    shift
    $cc -std=c99 -O2 -pthread -ffunction-sections -fdata-sections "$@" -c bench/lord.c -o "$object"
}

# Prints the public functions of an object but those that write a report.
core_calls() {
    nm "$1" | awk '$2 == "T" && $3 !~ /^memlord_(write|save|save_at_exit|request_save|export_start)$/ { print $3 }'
}
# Prints the public functions that the program of the twelve calls uses.
twelve_calls() {
    $cc -std=c99 -O2 -pthread -c bench/twelve.c -o $out/twelve.o
    nm $out/twelve.o | awk '$1 == "U" && $2 ~ /^memlord_/ { print $2 }'
}

# kept_text OBJECT KEPT: lets the linker keep what the functions named on standard input reach.
kept_text() {
    # shellcheck disable=SC2046 # a list of flags
    $cc -r -nostdlib -Wl,--gc-sections $(sed 's/^/-Wl,-u,/') "$1" -o "$2"
    text_of "$2"
}

whole_text() {
    $cc -std=c99 -O2 -pthread -c bench/lord.c -o $out/whole.o
    text_of $out/whole.o
}

# demand_size WHAT LIMIT BYTES: prints a size, and notes its demand: LIMIT in KiB, or none
demand_size() {
    printf '%-44s %9s  %6s KiB\n' "$1" "$3" "$(awk "BEGIN { printf \"%.1f\", $3 / 1024 }")"
    [ -z "$2" ] || demand "code: $1" '<=' "$2" "$(awk "BEGIN { printf \"%.1f\", $3 / 1024 }")" ' KiB'
}

bench_size() {
    echo
    echo "Bytes of code (gcc -O2: code and constants)"
    parts $out/parts.o
    parts $out/few.o -DMEMLORD_NO_NEIGHBOURS -DMEMLORD_NO_VERIFY -DMEMLORD_NO_THREADS
    demand_size 'everything' 276 "$(whole_text)"
    demand_size 'all calls but reports' 148 \
        "$(core_calls $out/parts.o | kept_text $out/parts.o $out/core.o)"
    demand_size '  its unwind tables, not in these' '' "$(tables_of $out/core.o)"
    demand_size 'the twelve calls but memlord_save' 112 \
        "$(twelve_calls | kept_text $out/parts.o $out/twelve_kept.o)"
    demand_size '  without neighbours, verify and threads' 96 \
        "$(twelve_calls | kept_text $out/few.o $out/twelve_kept.o)"
    $cc -std=c99 -O2 -DMEMLORD_DISABLE -c bench/lord.c -o $out/lord_off.o
    $cc -std=c99 -O2 -DMEMLORD_DISABLE -c bench/disabled.c -o $out/disabled.o
    $cc -std=c99 -O2 -DBENCH_WITHOUT -c bench/disabled.c -o $out/without.o
    left=$(($(text_of $out/lord_off.o) + $(text_of $out/disabled.o) - $(text_of $out/without.o)))
    printf '%-44s %9s\n' 'with MEMLORD_DISABLE, and a host calling it' "$left"
    demand 'MEMLORD_DISABLE: what is left' '<=' 0 "$left" ' B'
}

# Prints the size of each module of src/, as an object of its own. Their sum is not the size of the
# whole: functions of other modules are not inlined, and strings are not shared.
bench_modules() {
    make -s CC="$cc" build/modules/memlord.o >/dev/null
    printf '\nBytes of code by module, each an object of its own (gcc -O2: code and constants)\n'
    for folder in os base books calls services reports embed; do
        for object in build/modules/$folder/*.o; do
            name=${object#build/modules/}
            printf '%-44s %9s\n' "${name%.o}" "$(text_of "$object")"
        done | sort -k 2nr | awk '{ print; sum += $2 } END { printf "%-44s %9s\n", "  together", sum }'
    done
}

# -- what is asked for --

sections='map instructions beside peaks strategy cpp pool reports churn stacks programs size'
case ${1:-} in
code)
    whole_text
    exit 0
    ;;
peers)
    find_peers >&2
    printf '%s\n%s\n' "$flags" "$libs"
    exit 0
    ;;
esac
for section in "$@"; do
    case " $sections modules " in
    *" $section "*) ;;
    *)
        echo "bench: no section $section among $sections modules" >&2
        exit 2
        ;;
    esac
done
[ -z "$base" ] || find_base
: >$musts
head_lines
[ $# = 0 ] || echo "sections  $*"
status=0
# shellcheck disable=SC2048 # words
for section in ${*:-$sections}; do
    set +e # in a condition the shell would go on after a command that fails
    (
        set -e
        "bench_$section"
    )
    ended=$?
    set -e
    [ $ended != 2 ] || exit 2
    [ $ended = 0 ] || status=1
done
print_demands || [ "${MEMLORD_BENCH_STRICT:-0}" = 0 ] || status=1
exit $status
