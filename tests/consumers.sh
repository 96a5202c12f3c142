#!/bin/sh
# tests/consumers.sh: the programs that read our formats read them, and find in them what the
# ledger says; speaks TAP. A consumer that is not installed is a test skipped: `make deps-reports`
# installs them.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
needs build/llama
out=build/consumers
rings="0 ${MEMLORD_TEST_ALL:+256} 4096"
why=$out/said

has() { command -v "$1" >/dev/null 2>&1; }

silent() { # NAME COMMAND...: passes when it succeeds and says nothing
    name=$1
    shift
    "$@" >$out/said 2>&1 && [ ! -s $out/said ]
    verdict $? "$name"
}

with() { # PROGRAM NAME COMMAND...
    program=$1
    shift
    if has "$program"; then silent "$@"; else skip "$1" "no $program"; fi
}

value() { sed -n "s/^$1=//p" $d/stats; }

build() {
    ${CC:-gcc} -std=c99 -O1 -g -Wall -Wextra -pedantic -Wconversion -Wshadow -Wundef -Werror -I. \
        tests/consumers.c "$memlord" -o $out/consumers -pthread -ldl &&
        for events in $rings; do
            mkdir -p $out/$events && rm -f $out/$events/*
            $out/consumers $out/$events $events >$out/$events/stats || return 1
            # a report raises peaks to what its snapshots show: those of all formats are JSON's
            peak=$(sed -n 's/^"total":.*"peak":\([0-9]*\),.*/\1/p' $out/$events/ledger.json)
            sed -i "s/^peak=.*/peak=$peak/" $out/$events/stats
        done
}

promtool_reads() { promtool check metrics <$d/ledger.prom; }

# A server refuses a scrape that has a series twice; promtool does not look.
no_series_twice() {
    grep -v '^#' $d/ledger.prom | sed 's/ [^ ]*$//' | sort | uniq -d >$d/twice
    cat $d/twice
    [ -s $d/ledger.prom ] && [ ! -s $d/twice ]
}

# sum() of a metric is what the statistics of all devices say.
prometheus_adds_up() {
    for pair in live_bytes:allocated tag_bytes:allocated peak_bytes:peak allocs_total:allocs \
        pending_bytes:pending allocated_bytes_total:total_allocated live_blocks:live_blocks; do
        python3 - $d/ledger.prom "memlord_${pair%:*}{" "$(value "${pair#*:}")" <<'END'
import sys
sum = 0
for line in open(sys.argv[1], newline="\n"):
    if line.startswith(sys.argv[2]):
        sum += int(line.rsplit(" ", 1)[1])
if sum != int(sys.argv[3]):
    print(sys.argv[2], sum, "instead of", sys.argv[3])
END
    done
}

# Exact bytes of a sample type: -raw lists every sample's values, in the order of the types.
pprof_sums() { # TYPE'S PLACE STATISTIC
    sum=$(awk -v n="$1" '/^Samples:/ { on = 1; next } /^Locations/ { on = 0 }
            on && /^ *[0-9]+ +[0-9]+ +[0-9]+ +[0-9]+ +[0-9]+:/ {
                gsub(":", ""); sum += $n } END { printf "%.0f", sum }' $out/pprof.raw)
    [ "$sum" = "$(value "$2")" ] || echo "$2: $sum instead of $(value "$2")"
}
pprof_adds_up() {
    HOME=$PWD/$out go tool pprof -raw $d/ledger.pb >$out/pprof.raw 2>/dev/null
    pprof_sums 1 allocs
    pprof_sums 2 total_allocated
    pprof_sums 3 live_blocks
    pprof_sums 4 allocated
}
pprof_finds() { # WORD ARGUMENTS...
    word=$1
    shift
    HOME=$PWD/$out go tool pprof "$@" $d/ledger.pb >$out/pprof.out 2>$out/pprof.err ||
        cat $out/pprof.err
    grep -q "$word" $out/pprof.out || {
        echo "no $word"
        cat $out/pprof.out
    }
}
# Focused on one device or tag, its bytes and no others.
pprof_focuses() {
    pprof_finds 'Showing nodes accounting for 1725761008B' -top -unit=B -nodefraction=0 \
        -tagfocus=device=cuda:0
    pprof_finds 'Showing nodes accounting for 3239706624B' -top -unit=B -nodefraction=0 \
        -tagfocus=tag=weights
    pprof_finds ' load$' -top -nodefraction=0 -tagfocus=tag=weights
    pprof_finds 'Showing nodes accounting for 393216B' -top -unit=B -nodefraction=0 \
        '-tagfocus=part=^head; 0$'
}

heaptrack_reads() {
    heaptrack_print $d/ledger.heaptrack >$d/heaptrack.out 2>$out/heaptrack.err ||
        echo "status $?"
    cat $out/heaptrack.err # it ends well whatever it could not parse
    python3 tests/consumers.py heaptrack $d
    grep -q 'load' $d/heaptrack.out && grep -q 'in cuda:0' $d/heaptrack.out || cat $d/heaptrack.out
}

flamegraph=/usr/share/perl5/Devel/NYTProf/flamegraph.pl
flamegraph_reads() {
    perl $flamegraph --countname=bytes $d/ledger.folded >$d/ledger.svg || echo "status $?"
    grep -q '<title>cuda:0;kv_cache;decode (100,664,816 bytes' $d/ledger.svg ||
        grep -q '<title>decode (100,664,816 bytes' $d/ledger.svg || echo 'no such frame'
}

# Order, balance and numbers of a timeline.
trace_holds() {
    jq -e . $d/ledger.trace.json >/dev/null || return
    jq -r '
        def wrong(f; what): if f then empty else what end;
        .traceEvents as $all
        | ($all | map(select(.ph != "M" and .ph != "X"))
            | group_by([(.ph | if IN("B", "E") then "s" elif IN("b", "e", "n") then "a" else . end),
                        .tid, if .ph == "C" then .name else .id end])[]
            | map(.ts) | wrong(. == sort; "not in order")),
          ($all[] | select(.ph == "C") | .args | wrong(length > 0 and all(type == "number");
            "a counter that is not a number")),
          ($all[] | wrong((.pid | type) == "number" and (.tid | type) == "number" and
            (.ts | type) == "number" and (.name | type) == "string"; "a field is missing")),
          ($all | map(select(.ph == "B" or .ph == "E")) | group_by(.tid)[]
            | reduce .[] as $e ({depth: 0, low: 0}; .depth += (if $e.ph == "B" then 1 else -1 end)
                | .low = ([.low, .depth] | min))
            | wrong(.depth == 0 and .low == 0; "scopes not balanced")),
          ($all | map(select(.ph == "b" or .ph == "e" or .ph == "n")) | group_by([.cat, .id])[]
            | reduce .[] as $e ({open: 0, bad: false};
                if $e.ph == "b" then .bad = (.bad or .open != 0) | .open = 1
                elif $e.ph == "e" then .bad = (.bad or .open != 1) | .open = 0
                else .bad = (.bad or .open != 1) end)
            | wrong(.open == 0 and (.bad | not); "lives not balanced")),
          ($all | map(select(.ph == "X")) | group_by(.tid)[] | sort_by([.ts, -.dur])
            | . as $x | range(1; length) | select(
                $x[.].ts < $x[. - 1].ts + $x[. - 1].dur - 0.0015 and
                $x[.].ts + $x[.].dur > $x[. - 1].ts + $x[. - 1].dur + 0.0015)
            | "slices overlap")
    ' $d/ledger.trace.json | sort | uniq -c
    live=$(jq '[.traceEvents[] | select(.ph == "C" and (.name | endswith(" live")))]
        | group_by(.name) | map(last.args | add) | add' $d/ledger.trace.json)
    [ "$live" = "$(value allocated)" ] || echo "ends with $live live"
    jq -r '[.traceEvents[] | select(.ph == "i") | .name] | join(",")' $d/ledger.trace.json |
        grep -q 'first card loaded' || echo 'no checkpoint'
    jq -e '.otherData.anomalies_and_drops | .["cuda:0"].unknown_frees == 1' $d/ledger.trace.json \
        >/dev/null || echo 'no anomalies'
    scopes=$(jq '[.traceEvents[] | select(.cat == "scope")] | length' $d/ledger.trace.json)
    [ "$scopes" -gt 100 ] || echo 'no scopes'
}

schema=$PWD/tests/profile.schema.json
# 250 to 500 events from all over the ring stand for all, 25 to 50 parts for those of a block.
follows() { # PROFILE...
    python3 - "$schema" "$@" <<'END'
import itertools, json, jsonschema, sys
schema = json.load(open(sys.argv.pop(1)))
jsonschema.Draft7Validator.check_schema(schema)
rules = jsonschema.Draft7Validator(schema)
def thin(many, keep):
    if isinstance(many, list):
        many[:] = many[::max(1, len(many) // keep)]
for path in sys.argv[1:]:
    profile = json.load(open(path))
    thin(profile.get("events", {}).get("list"), 250)
    for block in profile.get("largest_blocks", {}).get("blocks", []):
        if isinstance(block, dict) and block.get("parts"):
            thin(block["parts"].get("listed"), 25)
    for e in itertools.islice(rules.iter_errors(profile), 5):
        print(path, "/".join(map(str, e.absolute_path)), e.message[:200])
END
}
llama_follows() {
    build/llama -r $out/llama.json >$out/llama.txt 2>&1 || cat $out/llama.txt
    follows $out/llama.json
}
samples_follow() { # and what is no profile, or not of this version, does not
    python3 tests/page/profiles.py $out/samples || return
    (cd $out/samples && follows small.json stacked.json sampled.json older.json snapshots_only.json \
        large.json hostile.json crowd.json instant.json)
    for sample in empty wild early; do
        [ -n "$(follows $out/samples/$sample.json)" ] || echo "$sample is taken for a profile"
    done
}

schema() { # NAME COMMAND...
    if python3 -c 'import jsonschema' 2>/dev/null; then
        silent "$@"
    else
        skip "$1" "no python3-jsonschema"
    fi
}

consumers() { # of one directory
    with promtool "$1: promtool reads PROMETHEUS" promtool_reads
    silent "$1: PROMETHEUS has no series twice" no_series_twice
    silent "$1: PROMETHEUS adds up to the statistics" prometheus_adds_up
    with go "$1: pprof adds up to the statistics" pprof_adds_up
    with go "$1: pprof focuses on a device, a tag and a part" pprof_focuses
    with go "$1: pprof shows scopes as callers" pprof_finds decode -top -cum -nodefraction=0
    with go "$1: pprof has anomalies and drops as comments" \
        pprof_finds 'drops, cuda:0 unknown_frees 1' -comments
    with heaptrack_print "$1: heaptrack reads HEAPTRACK, to the byte" heaptrack_reads
    silent "$1: FOLDED adds up to the statistics" python3 tests/consumers.py folded $d
    if [ -e $flamegraph ]; then
        silent "$1: flamegraph.pl reads FOLDED" flamegraph_reads
    else
        skip "$1: flamegraph.pl reads FOLDED" "no libdevel-nytprof-perl"
    fi
    silent "$1: pickle reads MEMORY_VIZ, and a viewer can walk it" \
        python3 tests/consumers.py pickle $d
    with jq "$1: jq finds TRACE in order, balanced and numeric" trace_holds
    silent "$1: Python reads JSON" python3 tests/consumers.py json $d
    schema "$1: a profile is what tests/profile.schema.json says" follows $d/ledger.json
    silent "$1: Python reads CSV" python3 tests/consumers.py csv $d
}

mkdir -p $out
build >$out/said 2>&1
verdict $? 'a ledger is saved in every format'
for events in $rings; do
    d=$out/$events
    consumers "ring of $events"
done
schema 'llama: a profile is what tests/profile.schema.json says' llama_follows
schema 'the samples of tests/page are what tests/profile.schema.json says' samples_follow
plan
