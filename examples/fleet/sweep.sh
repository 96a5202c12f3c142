#!/bin/sh
# examples/fleet/sweep.sh DIRECTORY: removes from a directory of node_exporter what processes that are
# gone have left there: their exports, and the temporary files .memlord-PID-N.tmp of those that were
# killed while they wrote. Prints the name of each file that it removes. An export stays if its
# memlord_info names another host than this machine, or no pid. Requires: only processes of this
# machine write there, and `ps` sees them, so do not run it in a container for processes outside.
set -u
[ -d "${1:-}" ] || { echo 'usage: sweep.sh DIRECTORY' >&2; exit 2; }
state() { ps -o stat= -p "$1" 2>/dev/null; }
[ -n "$(state $$)" ] || { echo 'sweep.sh: no ps that takes -o stat= and -p' >&2; exit 1; }
host=$(uname -n)
sweep() { # FILE PID
    case $2 in '' | *[!0-9]*) return ;; esac
    case $(state "$2") in '' | Z*) ;; *) return ;; esac
    if rm -f "$1"; then echo "$1"; else status=1; fi
}
status=0
for file in "$1"/*.prom; do
    [ ! -f "$file" ] || sweep "$file" \
        "$(sed -n 's/^memlord_info{.*,host="'"$host"'",pid="\([0-9]*\)".*/\1/p' "$file")"
done
for file in "$1"/.memlord-*-*.tmp; do
    pid=${file##*/.memlord-}
    [ ! -f "$file" ] || sweep "$file" "${pid%%-*}"
done
exit $status
