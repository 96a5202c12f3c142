#!/bin/sh
# tests/fleet.sh: what memlord_export_start writes, read by a real node_exporter and a real Prometheus:
# the numbers are those of the processes, each query of the dashboard has series, the alerts see a
# process that is gone. Speaks TAP. `make test-fleet` and `make test-all`. What is missing is named,
# and its tests are skipped (`make deps-fleet`).
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
make build/llama build/worker >&2 || exit 1
rules=examples/fleet/rules.yml
missing=
for program in prometheus promtool python3; do
    command -v $program >/dev/null || missing="$missing $program"
done
command -v prometheus-node-exporter >/dev/null || command -v node_exporter >/dev/null ||
    missing="$missing node_exporter"

# -- without them --

mkdir -p build/fleet-tests
file=build/fleet-tests/alone
build/llama -n 16 -g 4 -l rank=7 -x $file.prom -r $file.json >$file.out 2>&1
runs=$(sed -n 's/^memlord_gc_runs_total{device="mapped",rank="7"} //p' $file.prom)
said="runs $runs
$(grep -o "\"device\":\"mapped\".*\"gc_runs\":$runs," $file.json | head -n 1 | cut -c1-20)"
matches 'fleet: the last file that llama exports has the numbers of its report' '^runs [1-9]' mapped

swept=build/fleet-tests/swept
rm -rf $swept && mkdir -p $swept
build/worker rank=dead $swept/dead.prom &
dead=$!
build/worker rank=alive $swept/alive.prom &
alive=$!
for try in $(seq 300); do
    grep -qs memlord_info $swept/dead.prom && grep -qs memlord_info $swept/alive.prom && break
    sleep 0.01
done
kill -KILL $dead
{ wait $dead; } 2>/dev/null
sed 's/host="[^"]*"/host="elsewhere"/' $swept/dead.prom >$swept/elsewhere.prom
sed '/^memlord_info/d' $swept/dead.prom >$swept/unknown.prom
for file in .memlord-$dead-3.tmp .memlord-$dead.tmp .memlord-x-1.tmp .memlord-$$-3.tmp other.tmp; do : >"$swept/$file"; done
said=$(sh examples/fleet/sweep.sh $swept)
said="status $?
$said"
kill $alive
{ wait $alive; } 2>/dev/null
rm -f $swept/.memlord-$alive-*.tmp # the test itself may have interrupted it while it wrote
said=$( (echo "$said"; ls -A $swept) | sed "s/$dead/DEAD/g; s/-$$-/-SHELL-/" | LC_ALL=C sort | tr '\n' ' ')
matches 'fleet: what a killed process has left is swept, and nothing of a process that runs, or of others' \
    "^\.memlord-DEAD\.tmp \.memlord-SHELL-3\.tmp \.memlord-x-1\.tmp alive\.prom \
$swept/\.memlord-DEAD-3\.tmp $swept/dead\.prom elsewhere\.prom other\.tmp status 0 unknown\.prom \$"
if [ -n "$missing" ]; then
    for name in 'rules' 'tests of rules' 'configuration' 'numbers' 'alerts' 'end' 'metrics' 'same labels' 'other labels' \
        'dashboard' 'another number' 'a killed process' 'what is left'; do skip "fleet: $name" "no$missing"; done
    plan
    exit
fi

# -- the rules --

said=$(promtool check rules $rules 2>&1)
verdict $? 'fleet: promtool accepts the rules'
said=$(promtool test rules examples/fleet/rules_test.yml 2>&1)
verdict $? 'fleet: each alert fires where it should, and only there'
said=$(promtool check config examples/fleet/prometheus.yml 2>&1)
verdict $? 'fleet: promtool accepts the configuration'

# -- the demo --

said=$(sh examples/fleet/demo.sh 2>&1)
matches 'fleet: the numbers of Prometheus are those of the reports of three processes' \
    '^All numbers are those of the reports' 'mapped +[1-9]' 'rank 2 +[1-9]' '!differ'
matches 'fleet: the demo shows a worker that grows, the alert on it, that on its death, and the removal of its file' \
    '^ +[0-2] s .* leak +[0-9.]+ MiB #' 'ALERT MemlordGrowthWithoutEnd: live bytes on cpu .*rank leak' \
    'ALERT MemlordExportStale: .*rank leak' 'with the dead process; .* (1\.9|2\.0) MiB, without it' \
    '^removed build/fleet/textfiles/leak.prom$'

rm -rf build/fleet
setsid sh examples/fleet/demo.sh >build/fleet-tests/ended.out 2>&1 &
demo=$!
for try in $(seq 300); do grep -qs mapped build/fleet/textfiles/?.prom && break; sleep 0.05; done
kids=$(ps -o pid= --ppid $demo)
kill -TERM $demo
{ wait $demo; } 2>/dev/null
said="status $? of $(echo "$kids" | wc -w)$(for process in $kids; do
    ! ps -o stat= "$process" | grep -v Z >/dev/null || echo " $process runs"; done)
$(git status --porcelain 2>/dev/null | grep memory_profile)"
matches 'fleet: a demo that is ended stops what it started, and leaves nothing but under build/' \
    '^status 143 of [3-9]$' '!memory_profile'

# -- one node_exporter, one Prometheus --

fleet=$PWD/build/fleet-tests
. examples/fleet/start.sh
export_as() { # NAME LABELS [OPTION...]: exports until it ends
    name=$1 labels=$2
    shift 2
    build/llama -l "$labels" -x "$fleet/textfiles/$name.prom" "$@" >"$fleet/$name.out" 2>&1
}
scrape() { # ERRORS: node_exporter's page is in $said; so many errors does it log
    before=$(grep -c 'was collected before' "$fleet/node_exporter.log")
    said=$(fetch "$exporter/metrics")
    said="$said
$(($(grep -c 'was collected before' "$fleet/node_exporter.log") > before)) new error"
}
written() { sed -n 's/^memlord_written_timestamp_seconds{.*} //p' "$fleet/textfiles/$1.prom"; }

export_as a 'rank=0,model=a"b\c' -n 16 -g 4
said=$(promtool check metrics <"$fleet/textfiles/a.prom" 2>&1) && [ -z "$said" ]
verdict $? 'fleet: promtool finds nothing wrong with an exported file, whatever the labels'

export_as a rank=0 -n 16
export_as b rank=0 -n 16
scrape
matches 'fleet: two files with the same labels are an error of node_exporter, and one of them is shown' \
    '^1 new error' 'memlord_live_bytes{device="cpu",rank="0"}'
rm "$fleet/textfiles/a.prom"
export_as b rank=1 -n 16
export_as a rank=0 -n 16
sleep 1 # Prometheus may have asked between the two
scrape
matches 'fleet: files with other ranks are none' '^0 new error' 'node_textfile_scrape_error 0' \
    'memlord_live_bytes{device="cpu",rank="0"}' 'memlord_live_bytes{device="cpu",rank="1"}'

rm "$fleet"/textfiles/*.prom
began=$(date +%s)
export_as a rank=0 -n 128 -g 4
sleep 1 # until the rules have its last numbers
said=$(python3 tests/dashboard.py "$prometheus" "$began" "$(date +%s)" 2>&1)
matches 'fleet: each query and each variable of the dashboard finds what a process exports' \
    '^ variable device: cpu mapped' '^Each query has series' '!^fault'

rm "$fleet"/textfiles/*.prom
export_as one rank=one -n 16 -r "$fleet/one.json"
said=$(python3 examples/fleet/compare.py "$prometheus" "$fleet" one; echo "status $?"
    sed -i 's/"gc_runs":/&7/' "$fleet/one.json"
    python3 examples/fleet/compare.py "$prometheus" "$fleet" one; echo "status $?")
matches 'fleet: the comparison fails where a report has another number' '^All numbers' '^status 0' \
    '^  mapped rank one +0 +70  differs' '^status 1'

# -- a process that is gone --

# PromQL at a time: the ranks it finds.
ranks_at() { # TIME EXPRESSION
    python3 -c 'import json, sys, urllib.parse as p, urllib.request as u
print(*sorted(s["metric"]["rank"] for s in json.load(u.urlopen(sys.argv[1] + "/api/v1/query?" + p.urlencode(
    {"time": sys.argv[2], "query": sys.argv[3]})))["data"]["result"]))' "$prometheus" "$@"
}
rm "$fleet"/textfiles/*.prom
build/llama -n 256 -g 1 -l rank=dead -x "$fleet/textfiles/dead.prom" >"$fleet/dead.out" 2>&1 &
killed=$!
for try in $(seq 300); do
    grep -q mapped "$fleet/textfiles/dead.prom" 2>/dev/null && break
    sleep 0.01
done
kill -KILL $killed
{ wait $killed; } 2>/dev/null
died=$?
last=$(written dead)
sleep 2
export_as alive rank=alive -n 16
for try in $(seq 50); do
    [ "$(ranks_at "$(date +%s)" 'memlord_written_timestamp_seconds')" = 'alive dead' ] && break
    sleep 0.1
done
stale=$(sed -n '/MemlordExportStale/,/expr:/s/.*expr: //p' $rules)
minute=$(python3 -c "print($last + 61)") # the file is too old then, and the other's is not
said="status $died: now [$(ranks_at "$(date +%s)" "$stale")] then [$(ranks_at "$minute" "$stale")]
in sum $(ranks_at "$minute" "sum by (rank) (memlord_live_bytes{device='mapped'} and ignoring (device)
    time() - memlord_written_timestamp_seconds < 60)")"
matches 'fleet: the file of a killed process stays, and is stale a minute later; a fresh one is not' \
    '^status 137: now \[\] then \[dead\]' '^in sum alive$'

# -- the end --

of_fleet=$started
stop_fleet
said=$(for process in $of_fleet; do ! kill -0 "$process" 2>/dev/null || echo "$process runs"; done
    fetch "$exporter/metrics" >/dev/null 2>&1 && echo 'node_exporter answers'
    git status --porcelain --untracked-files=all examples tests 2>/dev/null | grep -E '\.(prom|json)$')
[ -z "$said" ]
verdict $? 'fleet: nothing runs on, and nothing is left but under build/'
plan
