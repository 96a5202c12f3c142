# fleet=DIRECTORY; . examples/fleet/start.sh: starts node_exporter and Prometheus with the files beside
# this one, each on a free port of loopback, and stops them, and all else in $started, when the shell
# ends. All they write is under the directory; its folder textfiles is for *.prom. `quick` is a sed
# script that shortens the times of the rules, or unset. Sets $prometheus and $exporter, their
# addresses. Ends the shell with 1, and says why, if one does not start.
node_exporter=$(command -v prometheus-node-exporter || command -v node_exporter)
[ -n "$node_exporter" ] && command -v prometheus >/dev/null || {
    echo 'no Prometheus, or no node_exporter: make deps-fleet' >&2
    exit 1
}
rm -rf "$fleet" && mkdir -p "$fleet/textfiles" || exit 1

stop_fleet() {
    # shellcheck disable=SC2086 # a list
    [ -z "$started" ] || { kill $started; wait $started; } 2>/dev/null
    started=
}
started=
trap stop_fleet EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

fetch() { # URL: its text
    python3 -c 'import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=10).read().decode())' "$1"
}
comes_up() { # NAME URL TEXT: until the text is in the answer
    for try in $(seq 150); do
        fetch "$2" 2>/dev/null | grep -q -e "$3" && return
        sleep 0.1
    done
    echo "$1 does not answer at $2:" >&2
    tail -n 5 "$fleet/$1.log" >&2
    exit 1
}
# Two ports that are free now.
# shellcheck disable=SC2046
set -- $(python3 -c 'import socket
for s in [socket.create_server(("127.0.0.1", 0)) for _ in "12"]: print(s.getsockname()[1])')
exporter=http://127.0.0.1:$1 prometheus=http://127.0.0.1:$2

# Often, for the programs here end soon.
sed "s/127.0.0.1:9100/127.0.0.1:$1/; s/_interval: 15s/_interval: 200ms/" \
    examples/fleet/prometheus.yml >"$fleet/prometheus.yml" &&
    sed "${quick:-}" examples/fleet/rules.yml >"$fleet/rules.yml" || exit 1

"$node_exporter" --web.listen-address="127.0.0.1:$1" --collector.disable-defaults --collector.textfile \
    --collector.textfile.directory="$fleet/textfiles" >"$fleet/node_exporter.log" 2>&1 &
started=$!
prometheus --web.listen-address="127.0.0.1:$2" --config.file="$fleet/prometheus.yml" \
    --storage.tsdb.path="$fleet/data" >"$fleet/prometheus.log" 2>&1 &
started="$started $!"
comes_up node_exporter "$exporter/metrics" node_textfile
comes_up prometheus "$prometheus/api/v1/query?query=up" '"1"' # it has scraped: that takes 5 s
