# tests/tap.sh: what the suites written in shell have in common, for `. tests/tap.sh`: the verdict of
# a test, and how many there were, in TAP.
n=0    # tests that have ended
verdicts=0 # the status of the script: 1 if a test has failed
said=  # what a test said, shown if it failed
why=   # a file shown in its place
memlord=$PWD/build/release/memlord.o # the implementation, which the Makefile builds once

# STATUS NAME [FILE]: a test passed if the status is 0. Else the end of the file says why.
verdict() {
    n=$((n + 1))
    if [ "$1" -eq 0 ]; then echo "ok - $2"; return; fi
    verdicts=1
    printf 'not ok - %s\n%s\n' "$2" "$(
        case ${3:-$why} in
        '') printf '%s\n' "$said" ;;
        *) cat "${3:-$why}" ;;
        esac | tail -n 15 | cut -c1-300 | sed 's/^/#   /'
    )" # at once, for others may print, too
}
skip() { n=$((n + 1)); echo "ok - $1 # SKIP $2"; } # NAME WHY
plan() { echo "1..$n"; return $verdicts; }

# Builds the implementation for a script that is run alone. `make test` has built it before, and then
# it is newer than what it is made of.
build_memlord() {
    [ -n "$(find "$memlord" -newer memlord.h -newer tests/matrix/impl.c 2>/dev/null)" ] ||
        make build/release/memlord.o >&2 || exit 1
}

# TARGET...: what the Makefile builds for a script. Ends a script that is run alone if some of it is not
# there, and says what to type.
needs() {
    lacking=
    for target; do [ -e "$target" ] || lacking="$lacking $target"; done
    [ -z "$lacking" ] || { echo "Bail out! not built yet: make$lacking"; exit 1; }
}

# DIRECTORY: a copy of stb_ds.h alone, for compilers whose include path does not have it.
stb_copy() { mkdir -p "$1" && cp "$(gcc -M -I. tests/matrix/impl.c | grep -o '[^ ]*stb_ds\.h')" "$1"; }

# SECONDS COMMAND...: succeeds in that time. What it says, and how it failed, is in the file `why`.
succeeds() {
    timeout "$@" >"$why" 2>&1
    status=$?
    [ $status = 0 ] || echo "status $status" >>"$why"
    return $status
}

says() { # FILE PATTERN...: every pattern stands in the file
    file=$1
    shift
    for pattern; do
        grep -q -e "$pattern" "$file" || { echo "no '$pattern' in it" >>"$file"; return 1; }
    done
}

# NAME PATTERN...: what `said` holds must match every pattern, and none after a `!`.
matches() {
    name=$1 bad=
    shift
    for pattern; do
        case $pattern in
        '!'*) printf '%s\n' "$said" | grep -qE -e "${pattern#!}" && bad="$bad [$pattern]" ;;
        *) printf '%s\n' "$said" | grep -qE -e "$pattern" || bad="$bad [$pattern]" ;;
        esac
    done
    [ -z "$bad" ] || said="$said
failed:$bad"
    [ -z "$bad" ]
    verdict $? "$name"
}

# -- commands that run side by side --

# NAME COMMAND: a test of `list`, a file; it passes if it succeeds and says nothing.
check() { printf '%s\t%s\n' "$1" "$(printf %s "$2" | tr '\n' ' ')" >>"$list"; }

run_checks() { # [AT A TIME]
    xargs -d '\n' -P "${1:-$(nproc)}" -n 1 sh "$0" one <"$list"
    n=$((n + $(wc -l <"$list")))
    : >"$list"
}

if [ "${1:-}" = one ]; then
    said=$(sh -c "set -e; ${2#*	}" 2>&1) && [ -z "$said" ]
    verdict $? "${2%%	*}"
    exit
fi

# FILE: a TEXT report with each line whole that was broken at 100 columns.
unbroken() { sed -e ':a' -e '$!{N;ba' -e '}' -e 's/\n        \([^ ]\)/ \1/g' "$1"; }
