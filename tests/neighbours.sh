#!/bin/sh
# tests/neighbours.sh: processes that share a device meet on a page of shared memory, speaking TAP:
# exact totals whoever is killed, stopped or forks, pages that others made, full or full of anything.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
out=$PWD/build/neighbours-tests
[ "$(uname -s)" = Linux ] || { echo '1..0 # SKIP pages of Linux'; exit 0; }
rm -rf "$out" && mkdir -p "$out" || exit 1
host=$out/host
${CC:-gcc} -std=gnu11 -O1 -g -Wall -Wextra -Werror -pthread tests/neighbours/host.c "$memlord" \
    -Wl,--wrap=mmap,--wrap=poll -o "$host" || { echo 'Bail out! nothing to run'; exit 1; }
seed=${MEMLORD_TEST_SEED:-$(date +%s)}
echo "# seed $seed"
some() { [ -n "${MEMLORD_TEST_ALL:-}" ] && echo "$2" || echo "$1"; } # IN-TEST IN-TEST-ALL

# -- processes that meet --
runs() { # WHAT TEST [NUMBER]: one test of the host's, on a page of its own
    timeout 600 "$host" "$2" "$out/$2.page" "${3:-0}" "$seed" >"$out/said" 2>&1
    verdict $? "$1"
    sed 's/^/# /' "$out/said"
}
runs 'from 2 to 16 processes see the bytes of the others, whatever they allocate' totals \
    "$(some 4 16)"
runs 'ranks that call different GPUs cuda:0 do not meet; those that name one differently do' ids
runs 'a raise makes the others give, is answered once, and ends where nothing is left' raise
runs 'what was asked before a process joined is not asked of it, nor does it ask by joining' stale
[ -z "${MEMLORD_TEST_ALL:-}" ] ||
    runs 'callbacks that raise pressure at each other end nevertheless' nested
runs 'levels are of all processes together' levels
runs 'of 17 devices of two processes 16 meet' devices
runs '64 processes join; one more is refused, works alone, and joins when one left' full
runs 'a stopped process keeps its bytes, holds up no raise for ever, and goes on' stop

# -- processes that end and begin at any moment --
runs "$(some 96 10000) processes are killed at any moment: the totals of survivors are exact" \
    kill "$(some 96 10000)"
runs 'a child of fork has a slot of its own from its first use, and its parent its own' fork \
    "$(some 3 100)"
runs "$(some 50 1000) forks while threads use the page: no child hangs" forks "$(some 50 1000)"
runs 'the slot of a parent that is killed is free, though its child lives' orphan

# -- other pid namespaces, other programs --
coproc() { # NAME COMMAND...: starts it; its input is the descriptor $fd
    rm -f "$out/$1.in" "$out/$1.out" && mkfifo "$out/$1.in"
    name=$1
    shift
    "$@" <"$out/$name.in" >"$out/$name.out" 2>&1 &
}
says_soon() { # FILE LINES: so many
    for _ in $(seq 300); do
        [ "$(wc -l <"$1")" -ge "$2" ] && return
        sleep 0.1
    done
}
if unshare -p -f true 2>/dev/null; then
    coproc outside "$host" stay "$out/ns.page" 1000
    exec 3>"$out/outside.in"
    coproc inside unshare -p -f --kill-child "$host" stay "$out/ns.page" 500
    inside=$!
    exec 4>"$out/inside.in"
    echo 500 >&3 && echo 1000 >&4
    says_soon "$out/outside.out" 2 && says_soon "$out/inside.out" 2
    kill -KILL "$inside"
    echo 0 >&3
    exec 3>&- 4>&-
    says_soon "$out/outside.out" 3
    said=$(cat "$out/outside.out" "$out/inside.out" | tr '\n' ' ')
    [ "$said" = 'joined right right joined right ' ]
    verdict $? 'a process in another pid namespace joins by a path, and is gone when it is killed'
else
    skip 'a process in another pid namespace joins by a path' 'unshare is not allowed here'
fi
said=$("$host" exec "$out/exec.page" 2>&1)
[ "$(printf '%s\n' "$said" | grep -c -e '->')" -gt 2 ] && ! printf '%s\n' "$said" | grep page
verdict $? 'a program that a process becomes has no descriptor of the page'

# -- pages that others made --
export LOG=1
"$host" open "$out/good" >/dev/null 2>&1
refuses() { # WHAT PATTERN [PATH]: a page that is not ours is refused, for a reason, and not changed
    path=${3:-$out/odd}
    before=$(stat -c '%i %s %Y %f' "$path" 2>/dev/null; [ -f "$path" ] && cksum <"$path")
    said=$(timeout 20 $as "$host" open "$path" 2>&1; echo "status $?"
        after=$(stat -c '%i %s %Y %f' "$path" 2>/dev/null; [ -f "$path" ] && cksum <"$path")
        [ "$before" = "$after" ] || echo 'it was changed')
    matches "$1 is refused" '^open: ' '^status 0$' "$2" '!changed' '!^open: ok'
    rm -rf "$out/odd"
}
as=
odd=$out/odd
size=$(stat -c %s "$out/good")
mkdir "$odd" && refuses 'a directory' 'memlord: .*'
mkfifo -m 600 "$odd" && refuses 'a FIFO' 'memlord: .*'
ln -s good "$odd" && refuses 'a symbolic link to a page' 'memlord: .*'
: >"$odd" && chmod 600 "$odd" && refuses 'an empty file' 'memlord: .*'
head -c "$size" /dev/urandom >"$odd" && chmod 600 "$odd" && refuses 'a file of random bytes' 'memlord: .*'
head -c "$size" /dev/zero >"$odd" && chmod 600 "$odd" && refuses 'a file of zeros' 'memlord: .*'
cp "$out/good" "$odd" && chmod 600 "$odd" && truncate -s -1 "$odd" && refuses 'a page that is cut' 'memlord: .*'
cp "$out/good" "$odd" && chmod 600 "$odd" && truncate -s 4096 "$odd" && refuses 'a part of a page' 'memlord: .*'
cp "$out/good" "$odd" && chmod 600 "$odd" && truncate -s +4096 "$odd" && refuses 'a page that is longer' 'memlord: .*'
for mode in 660 606 644 622 400; do
    cp "$out/good" "$odd" && chmod $mode "$odd"
    refuses "a page of mode $mode" 'memlord: .*'
done
refuses 'a directory that is not there' 'memlord: .*' "$out/none/page"
refuses 'a path that is too long' 'memlord: .*' "$out/$(printf '%5000s' '' | tr ' ' x)"


if [ "$(id -u)" -ne 0 ] || ! setpriv --reuid 65534 --clear-groups true 2>/dev/null; then
    skip 'a page of another user is refused' 'root is needed'
    skip 'a page is refused to another user' 'root is needed'
    skip 'a name that another user took is refused' 'root is needed'
else
    chmod 755 "$out"
    cp "$out/good" "$odd" && chmod 600 "$odd" && chown 65534 "$odd"
    refuses 'a page of another user' 'memlord: .*'
    # from a directory that all may enter
    dir=$(mktemp -d) && chmod 755 "$dir" && cp "$host" "$dir/host" && cp "$out/good" "$dir/good"
    chmod 600 "$dir/good"
    host_here=$host host=$dir/host as='setpriv --reuid 65534 --clear-groups'
    refuses 'another user by a page' 'memlord: .*' "$dir/good"
    # The name has the user in it: nobody makes one that root would take.
    word=squat-$$
    said=$($as "$host" open $word 2>&1)
    theirs=$(ls /dev/shm/*$word*)
    ours=$(printf '%s\n' "$theirs" | sed 's/65534/0/')
    [ "$ours" != "$theirs" ] && $as cp "$theirs" "$ours"
    as= host=$host_here
    refuses 'a name that another user took' 'memlord: .*' $word
    rm -rf "$dir" /dev/shm/*$word*
fi

# -- a file system that is full --
if [ "$(id -u)" -eq 0 ] && unshare -m true 2>/dev/null; then
    said=$(unshare -m sh -c 'mkdir "$2" && mount -t tmpfs -o size=48k none "$2" || exit
        "$1" open "$2/page" 2>&1; echo "status $?"; ls -A "$2" | sed "s/^/left /"' sh "$host" "$out/full")
    matches 'on a full file system there is no page, no litter and no crash' \
        '^open: could not read or write there$' 'memlord: .*' '^status 0$' '!^left'
else
    skip 'on a full file system there is no page' 'mount is not allowed here'
fi

# -- a machine that is short of memory --
if [ -w /proc/pressure/memory ]; then
    runs "a stall of the host's memory runs the cpu's callbacks; a trigger that is gone is left alone" stall
else
    skip "a stall of the host's memory runs the cpu's callbacks" 'this kernel has no stall information'
fi

# -- any bytes on the page --
unset LOG
runs 'a process writes its own slot and the head, and frees the slots of the dead' own
runs 'while the page is set to any bytes nothing crashes, and it heals' fuzz "$(some 3 100)"

# -- how fast --
[ -z "${MEMLORD_TEST_ALL:-}" ] ||
    runs 'a raise reaches 63 neighbours in at most twice the time of a bare futex' reach 200

plan
