#!/bin/sh
# tests/runner.sh: what tests/run.sh says of suites that pass, fail, skip and end badly, speaking
# TAP. The suites are scripts that print what is given here.
set -u
cd "$(dirname "$0")/.." || exit 1
out=build/runner
n=0
rm -rf $out && mkdir -p $out || exit 1

# NAME STATUS TEXT: a suite that prints the text and ends with the status.
suite() { printf "cat <<'END'\n%s\nEND\nexit %s\n" "$3" "$2" >"$out/$1.sh"; }

# NAME STATUS LAST SUITE...: the runner ends with this status and these last lines.
check() {
    n=$((n + 1)) name=$1 status=$2 last=$3
    shift 3
    said=$(MEMLORD_TEST_LOGS=$out/logs sh tests/run.sh "$@")
    got=$?
    if [ $got -eq "$status" ] && [ "$(echo "$said" | tail -n "$(echo "$last" | wc -l)")" = "$last" ]; then
        echo "ok $n - $name"
    else
        printf 'not ok %s - %s\n' "$n" "$name"
        printf 'status %s\n%s\n' "$got" "$said" | sed 's/^/#   /'
    fi
}

suite good 0 '1..2
ok 1 - a
ok 2 - b'
suite bad 1 '1..2
ok 1 - a
not ok 2 - b'
suite skips 0 '1..3
ok 1 - a
ok 2 - b # SKIP no package
not ok 3 # SKIP c'
suite short 0 '1..3
ok 1 - a'
suite crash 139 '1..1
ok 1 - a'
suite none 0 '1..1
ok 1 - a # SKIP no package'

check 'what passes is counted' 0 '2 passed, 0 failed' $out/good.sh
check 'what fails is counted, and the status says so' 1 '3 passed, 1 failed' $out/good.sh $out/bad.sh
check 'a skip is neither passed nor failed, in either way to print one' 0 '2 skipped
1 passed, 0 failed' $out/skips.sh
check 'fewer tests than planned are a failure' 1 '1 passed, 1 failed' $out/short.sh
check 'a suite that ends badly is a failure' 1 '1 passed, 1 failed' $out/crash.sh
check 'a suite that skips every test is a failure' 1 '1 skipped
0 passed, 1 failed' $out/none.sh
echo "1..$n"
