#!/bin/sh
# tests/run.sh SUITE...: runs programs and scripts that speak TAP, shows what failed and why what
# was skipped was, and ends with one line, "N passed, N failed". No test run is a failure, and so
# is a suite that ended badly or ran fewer tests than it planned. MEMLORD_TEST_JOBS suites run at
# a time; if it is not set, one more than there are processors: some wait. A suite may take
# MEMLORD_TEST_LIMIT seconds, a script five times that. Suites have none of the caller's environment but
# what is named here.
set -u
cd "$(dirname "$0")/.." || exit 1
if [ -z "${MEMLORD_TEST_BARE:-}" ]; then
    set -- sh tests/run.sh "$@"
    for name in PATH HOME TERM CC CXX CUDA_HOME CUDA_HEADERS GGML $(env | sed -n 's/^\(MEMLORD_TEST_[A-Z]*\)=.*/\1/p'); do
        eval "[ -z \"\${$name+set}\" ] || set -- \"$name=\$$name\" \"\$@\""
    done
    exec env -i MEMLORD_TEST_BARE=1 "$@"
fi
logs=${MEMLORD_TEST_LOGS:-build/logs}
jobs=${MEMLORD_TEST_JOBS:-$(($(nproc 2>/dev/null || echo 1) + 1))}
skip='^(not )?ok .*# SKIP'
export CMOCKA_MESSAGE_OUTPUT=TAP
export WINEPREFIX="$PWD/build/wine" WINEDEBUG=-all # for programs of Windows

# The python3 of pyenv is a script that searches for the real one, which takes longer than most of our
# scripts run. So they get the real one.
python=$(python3 -c 'import os, sys; print(os.path.dirname(sys.executable))' 2>/dev/null)
case :$PATH: in *":$python:"*) ;; *) [ -z "$python" ] || export PATH="$python:$PATH" ;; esac

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
    wrap= limit=${MEMLORD_TEST_LIMIT:-180}
    case $1 in
    build/asan/*) load 1 10000 ;;
    build/tsan/*)
        load 1 5000
        setarch -R true 2>/dev/null && wrap='setarch -R'
        ;;
    build/coverage/*) load 1 10000 && limit=600 ;;
    build/*)
        wrap=$(emulator "$1")
        if [ -n "$wrap" ]; then load 1 5000; else load 1 50000; fi
        ;;
    esac
    if [ -n "${MEMLORD_TEST_ALL:-}" ]; then
        case $1 in build/release/* | build/debug/*) MEMLORD_TEST_SCALE=16 ;; *) MEMLORD_TEST_SCALE=4 ;; esac
    fi
    case $1 in
    *.sh) timeout $((limit * 5)) sh "$1" ;;
    *) timeout $limit $wrap "$1" ;;
    esac
}

# What runs the programs of another machine: the Makefile writes it beside them.
emulator() { cat "${1%/*}/runs" 2>/dev/null; }

# Why a suite is not run: its emulator, by name and version, breaks it (tests/emulators).
broken() { # SUITE
    wrap=$(emulator "$1")
    [ -n "$wrap" ] || return
    name=${wrap%%[ -]*}
    version=$(${wrap%% *} --version 2>&1 | sed -nE "s/.*[ -]([0-9]+\.[0-9]+).*/\1/p" | head -n 1)
    suite=$(basename "$1" .exe)
    sed -n "s/^$name $version $suite /$name $version /p" tests/emulators
}

# Runs a suite; writes its three numbers and what to print of it.
suite() {
    started=$(date +%s)
    log=$logs/$(echo "$1" | tr / _)
    reason=$(broken "$1")
    if [ -n "$reason" ]; then
        echo '0 0 1' >"$log.count"
        printf '%-32s skipped: %s\n' "$1" "$reason"
        return
    fi
    (run "$1") >"$log" 2>&1
    status=$?
    skipped=$(grep -cE "$skip" "$log")
    passed=$(grep -vE "$skip" "$log" | grep -c '^ok ')
    failed=$(grep -vE "$skip" "$log" | grep -c '^not ok ')
    planned=$(sed -n 's/^1\.\.\([0-9]*\).*/\1/p' "$log" | head -n 1)
    if [ "$((passed + skipped + failed))" -ne "${planned:-0}" ] || [ "$((passed + failed))" -eq 0 ] ||
        { [ $status -ne 0 ] && [ "$failed" -eq 0 ]; }; then
        failed=$((failed + 1))
        echo "ended with status $status after $passed of ${planned:-no} planned tests" >>"$log"
    fi
    echo "$passed $failed $skipped" >"$log.count"
    {
        printf '%-32s %4d passed, %d failed' "$1" "$passed" "$failed"
        [ "$skipped" -eq 0 ] || printf ', %d skipped' "$skipped"
        printf ' (%d s)\n' "$(($(date +%s) - started))"
        sed -nE "s/$skip *//p" "$log" | sort | uniq -c | sed 's/^ *\([0-9]*\) /  skipped \1: /'
        [ "$failed" -eq 0 ] || grep -vE "^ok |$skip" "$log" | cut -c1-300 | tail -n 60
    } >"$log.said"
    cat "$log.said"
}

if [ "$1" = --one ]; then
    suite "$2"
    exit 0
fi
rm -rf "$logs" && mkdir -p "$logs" || exit 1
printf '%s\n' "$@" | xargs -P "$jobs" -I '{}' sh tests/run.sh --one '{}'
case " $* " in *' build/windows/'*) wineserver -k ;; esac # make would wait for it
cat "$logs"/*.count | awk -v suites=$# '
    { passed += $1; failed += $2; skipped += $3 }
    END {
        failed += suites - NR
        if (skipped) print skipped " skipped"
        print passed + 0 " passed, " failed + 0 " failed"
        exit failed || !passed
    }'
