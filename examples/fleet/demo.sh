#!/bin/sh
# examples/fleet/demo.sh: `make demo-fleet`. Processes export, node_exporter shows their files, and
# Prometheus reads them. First three runs of llama, whose own reports are compared with Prometheus's
# answers. Then three workers: one leaks, and an alert fires; it is killed, another alert fires, and
# its file is removed. All on loopback, and under build/fleet.
set -u
cd "$(dirname "$0")/../.." || exit 1
fleet=$PWD/build/fleet
quick='s/30m/2s/g; s/1h/4s/g; s/2h/8s/g; s/5m/1s/; s/\([<>]\) 60/\1 3/' # hours are seconds here
. examples/fleet/start.sh
echo "node_exporter $exporter   Prometheus $prometheus"
servers=$started
for rank in 0 1 2; do
    (cd "$fleet" && exec ../llama -n $((256 - 64 * rank)) -g $((rank + 1)) -s $rank -l rank=$rank \
        -r $rank.json -x textfiles/$rank.prom >$rank.out 2>&1) & # there: SIGTERM makes it save a report
    ranks="${ranks:-} $!" started="$started $!"
done
for process in $ranks; do
    wait "$process" || { tail -n 3 "$fleet"/?.out >&2; exit 1; }
done
started=$servers
python3 examples/fleet/compare.py "$prometheus" "$fleet" 0 1 2 || exit 1

printf '\n== three workers, one of which leaks; an hour of the rules takes 4 s here\n'
sh examples/fleet/sweep.sh "$fleet/textfiles" >/dev/null
for rank in 0 1 leak; do
    # shellcheck disable=SC2046 # no word, or one
    build/worker rank=$rank "$fleet/textfiles/$rank.prom" $([ $rank != leak ] || echo leak) &
    started="$started $!"
done
python3 examples/fleet/watch.py "$prometheus" "$!" || exit 1
echo '-- what it left is removed before it starts again: examples/fleet/sweep.sh'
sh examples/fleet/sweep.sh "$fleet/textfiles" | sed "s|$PWD/|removed |"
