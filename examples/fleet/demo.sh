#!/bin/sh
# examples/fleet/demo.sh: `make demo-fleet`. Three processes export, node_exporter shows their files,
# Prometheus reads them, and its answers are compared with the processes' own reports. All on
# loopback, and under build/fleet.
set -u
cd "$(dirname "$0")/../.." || exit 1
fleet=$PWD/build/fleet
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
python3 examples/fleet/compare.py "$prometheus" "$fleet" 0 1 2
