#!/bin/sh
# tests/run.sh SUITE...: runs programs and scripts that speak TAP, shows what failed and why what
# was skipped was, and ends with one line, "N passed, N failed". No test run is a failure, and so
# is a suite that ended badly or ran fewer tests than it planned.
set -u
cd "$(dirname "$0")/.." || exit 1
log=${MEMLORD_TEST_LOG:-build/test.log}
skip='^(not )?ok .*# SKIP'
total_passed=0 total_failed=0 total_skipped=0
export CMOCKA_MESSAGE_OUTPUT=TAP

mkdir -p build/locale
[ -e build/locale/de_DE.UTF-8 ] || localedef -i de_DE -f UTF-8 build/locale/de_DE.UTF-8
export LOCPATH="$PWD/build/locale"

# The load: SCALE multiplies the stress, OPS are the model's.
load() {
    export MEMLORD_TEST_SCALE="$1" MEMLORD_TEST_OPS="${MEMLORD_TEST_OPS:-$2}"
}

# Sanitizers slow down a program by five to twenty times; the thread sanitizer of some
# compilers also needs addresses that are not random.
run() {
    wrap= limit=180
    case $1 in
    build/asan/*) load 1 10000 ;;
    build/tsan/*)
        load 1 5000
        setarch -R true 2>/dev/null && wrap='setarch -R'
        ;;
    build/*) load 4 50000 ;;
    esac
    if [ -n "${MEMLORD_TEST_ALL:-}" ]; then
        MEMLORD_TEST_SCALE=$((MEMLORD_TEST_SCALE * 4)) limit=1800
    fi
    case $1 in
    *.sh) timeout $((limit * 5)) sh "$1" ;;
    *) timeout $limit $wrap "$1" ;;
    esac
}

suite() {
    started=$(date +%s)
    (run "$1") >"$log" 2>&1
    status=$?
    skipped=$(grep -cE "$skip" $log)
    passed=$(grep -vE "$skip" $log | grep -c '^ok ')
    failed=$(grep -vE "$skip" $log | grep -c '^not ok ')
    planned=$(sed -n 's/^1\.\.\([0-9]*\).*/\1/p' $log | head -n 1)
    if [ "$((passed + skipped + failed))" -ne "${planned:-0}" ] || [ "$((passed + failed))" -eq 0 ] ||
        { [ $status -ne 0 ] && [ "$failed" -eq 0 ]; }; then
        failed=$((failed + 1))
        echo "ended with status $status after $passed of ${planned:-no} planned tests" >>$log
    fi
    total_passed=$((total_passed + passed)) total_failed=$((total_failed + failed))
    total_skipped=$((total_skipped + skipped))
    printf '%-32s %4d passed, %d failed' "$1" "$passed" "$failed"
    [ "$skipped" -eq 0 ] || printf ', %d skipped' "$skipped"
    printf ' (%d s)\n' "$(($(date +%s) - started))"
    sed -nE "s/$skip *//p" $log | sort | uniq -c | sed 's/^ *\([0-9]*\) /  skipped \1: /'
    [ "$failed" -eq 0 ] || grep -vE "^ok |$skip" $log | cut -c1-300 | tail -n 60
}

for name in "$@"; do suite "$name"; done
[ "$total_skipped" -eq 0 ] || echo "$total_skipped skipped"
echo "$total_passed passed, $total_failed failed"
[ "$total_failed" -eq 0 ] && [ "$total_passed" -gt 0 ]
