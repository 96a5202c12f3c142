#!/bin/sh
# tests/systems.sh: a host whose own malloc records, also in static programs, and a target whose
# 64-bit words have locks, speaking TAP. `make gates` has the same of musl.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
out=build/systems
why=$out/why
warn="-Wall -Wextra -pedantic -Wconversion -Wshadow -Wundef -Werror"
host="-std=c99 -O1 -fno-builtin $warn -I. -pthread tests/systems/malloc.c"
build_memlord
rm -rf $out && mkdir -p $out || exit 1

# PROGRAM CASE [HANDLERS]: passes if the case of tests/systems/malloc.c holds. 77: malloc was not
# called inside, so that nothing was tested, which is a failure here.
holds() { succeeds 20 "$out/$@"; }

# -- a malloc that records, with this system's libc: 48 handlers fill its list --

gcc $host "$memlord" -o $out/host >$why 2>&1
verdict $? 'a host with a malloc of its own is built'
for handlers in 47 48 49; do
    holds host first $handlers
    verdict $? "with $handlers fork handlers, the first call may come from malloc"
done
holds host setup 48
verdict $? 'memlord_global_setup configures the ledger that malloc inside it uses'
holds host lock 48
verdict $? 'a thread that records under a lock of the host waits for no first call that wants it'
holds host tag 48
verdict $? 'another thread waits for the first call, and has its tag'
holds host fork 48
verdict $? 'a child that is born in the first call without fork handlers keeps books'

for kind in -static '-static-pie -fPIE'; do
    name="gcc $kind: malloc records from its first call on, at the places it is called from"
    gcc $host $kind -DFROM_THE_START=1 "$memlord" -o $out/early >$why 2>&1 && holds early began
    verdict $? "$name"
done

# -- 64-bit words with locks, as on i486 --

name='a real-time thread waits so that a lower one inside the lock of a word goes on'
gcc -std=c99 -O0 $warn -U__GCC_HAVE_SYNC_COMPARE_AND_SWAP_8 -I. -pthread -c tests/matrix/impl.c \
    -o $out/locks.o >$why 2>&1 && nm $out/locks.o | grep -q mli_u64_locks &&
    gcc -std=c99 -O0 $warn -I. tests/test_barrier.c $out/locks.o -o $out/barrier -lcmocka -pthread -ldl \
        >$why 2>&1 &&
    CMOCKA_MESSAGE_OUTPUT=TAP timeout 180 $out/barrier >$why 2>&1
status=$?
if grep -q '# SKIP.*real_time' $why; then
    skip "$name" 'no real-time threads allowed here'
else
    verdict $status "$name"
fi

plan
