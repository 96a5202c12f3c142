#!/bin/sh
# tests/runner.sh: what tests/run.sh says of suites that pass, fail, skip and end badly, speaking
# TAP. The suites are scripts that print what is given here.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
out=build/runner
rm -rf $out && mkdir -p $out || exit 1

# NAME STATUS TEXT: a suite that prints the text and ends with the status.
suite() { printf "cat <<'END'\n%s\nEND\nexit %s\n" "$3" "$2" >"$out/$1.sh"; }

# NAME STATUS LAST SUITE...: the runner ends with this status and these last lines.
reports() {
    name=$1 status=$2 last=$3
    shift 3
    said=$(MEMLORD_TEST_LOGS=$out/logs sh tests/run.sh "$@")
    got=$?
    end=$(printf '%s\n' "$said" | tail -n "$(printf '%s\n' "$last" | wc -l)")
    said="$said
status $got"
    [ $got -eq "$status" ] && [ "$end" = "$last" ]
    verdict $? "$name"
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

cat >$out/bare.sh <<'END'
[ "$(env | grep -cE '^(LANG|PYTHON[A-Z]*|LD_[A-Z_]*|MAKEFLAGS)=')" = 0 ] && [ "$CC $MEMLORD_TEST_SEED" = 'a  "$b 7' ] && echo "ok a"
echo 1..1
END

# A verdict of each kind, and the two ways to say why.
cat >$out/shared.sh <<'END'
. tests/tap.sh
list=build/runner/list
: >$list
said='one two'
verdict 0 'a'
verdict 1 'b'
skip 'c' 'no package'
matches 'd' '^one' '!three'
matches 'e' 'one' '!two$'
check 'f' 'true; true'
check 'g' 'false; true'
check 'h' 'echo said'
run_checks
plan
END

reports 'what passes is counted' 0 '2 passed, 0 failed' $out/good.sh
reports 'what fails is counted, and the status says so' 1 '3 passed, 1 failed' $out/good.sh $out/bad.sh
reports 'a skip is neither passed nor failed, in either way to print one' 0 '2 skipped
1 passed, 0 failed' $out/skips.sh
reports 'fewer tests than planned are a failure' 1 '1 passed, 1 failed' $out/short.sh
reports 'a suite that ends badly is a failure' 1 '1 passed, 1 failed' $out/crash.sh
reports 'a suite that skips every test is a failure' 1 '1 skipped
0 passed, 1 failed' $out/none.sh
(
    unset MEMLORD_TEST_BARE
    export LANG=de_DE PYTHONUNBUFFERED=1 LD_LIBRARY_PATH=/nowhere CC='a  "$b' MEMLORD_TEST_SEED=7
    reports 'a suite has none of the environment but what is meant for it' 0 '1 passed, 0 failed' $out/bare.sh
)
n=$((n + 1))
reports 'what tests/tap.sh prints is counted' 1 '1 skipped
3 passed, 4 failed' $out/shared.sh
[ "$(printf '%s\n' "$said" | grep -cE '^not ok - [begh]$|^#   (one two|failed: \[!two\$\]|said)$')" -eq 8 ]
verdict $? 'and what a test said that failed is shown'

# A tree where nothing is built.
mkdir -p $out/bare && cp -r tests $out/bare
for script in diff readme preload; do
    said=$(timeout 60 sh $out/bare/tests/$script.sh 2>&1; echo "status $?")
    printf '%s\n' "$said" | tr '\n' ' ' | grep -qxE 'Bail out! not built yet: make( build/[a-z_./]+)+ status 1 '
    verdict $? "$script.sh alone says in one line what to build for it"
done
plan
