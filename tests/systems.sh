#!/bin/sh
# tests/systems.sh: other C libraries and systems as far as seconds show them, speaking TAP: a host
# whose own malloc records, with glibc, with musl and in static programs; a target whose 64-bit
# words have locks; what compiles for Windows, with musl and with newer compilers. A part without
# its compiler is skipped.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
out=build/systems
why=$out/why
warn="-Wall -Wextra -pedantic -Wconversion -Wshadow -Wundef -Werror"
host="-std=c99 -O1 -fno-builtin $warn -I. -pthread tests/systems/malloc.c"
build_memlord
rm -rf $out && mkdir -p $out/stb || exit 1
cp "$(gcc -M -I. tests/matrix/impl.c | grep -o '[^ ]*stb_ds\.h')" $out/stb/ || exit 1

# PROGRAM CASE [HANDLERS]: passes if the case of tests/systems/malloc.c holds. 77: malloc was not
# called inside, so that nothing was tested, which is a failure here.
holds() {
    program=$1
    shift
    timeout 20 $out/"$program" "$@" >$why 2>&1
    status=$?
    [ $status = 0 ] || echo "status $status" >>$why
    return $status
}

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

# -- musl: its pthread_atfork always calls malloc --

musl="musl-gcc -idirafter $out/stb"
if command -v musl-gcc >/dev/null; then
    $musl -std=c99 -O0 $warn -I. -c tests/matrix/impl.c -o $out/musl.o >$why 2>&1
    verdict $? 'musl: the implementation compiles'
    for kind in '' ' -static'; do
        $musl $host $kind $out/musl.o -o $out/host >$why 2>&1 && holds host first
        verdict $? "musl$kind: the first call may come from malloc"
        for case in setup lock tag fork; do
            holds host $case
            verdict $? "musl$kind: likewise, $case"
        done
    done
    $musl -std=c99 $warn -I. -fsyntax-only examples/preload.c >$why 2>&1
    verdict $? 'musl: the interposer compiles'
else
    skip 'musl: a malloc that records, the interposer' 'no musl-gcc'
fi

# -- 64-bit words with locks, as on i486 --

name='a real-time thread waits so that a lower one inside the lock of a word goes on'
gcc -std=c99 -O0 $warn -U__GCC_HAVE_SYNC_COMPARE_AND_SWAP_8 -I. -pthread -c tests/matrix/impl.c \
    -o $out/locks.o >$why 2>&1 && nm $out/locks.o | grep -q mli_u64_locks &&
    gcc -std=c99 -O0 $warn -I. tests/test_barrier.c $out/locks.o -o $out/barrier -lcmocka -pthread -ldl \
        >$why 2>&1 &&
    CMOCKA_MESSAGE_OUTPUT=TAP timeout 60 $out/barrier >$why 2>&1
status=$?
if grep -q '# SKIP.*real_time' $why; then
    skip "$name" 'no real-time threads allowed here'
else
    verdict $status "$name"
fi

# -- Windows --

mingw="x86_64-w64-mingw32-gcc -std=c99 -O0 $warn -I. -isystem $out/stb"
if command -v x86_64-w64-mingw32-gcc >/dev/null; then
    $mingw -c tests/matrix/impl.c -o $out/windows.o >$why 2>&1
    verdict $? 'MinGW: the implementation compiles'
    for file in examples/quickstart tests/matrix/fixed; do
        $mingw -DMLI_EMITTED $file.c $out/windows.o -o $out/windows.exe >$why 2>&1
        verdict $? "MinGW: $file.c builds"
    done
else
    skip 'MinGW: the implementation, the quickstart and the fixed calls' 'no gcc-mingw-w64-x86-64'
fi
name='MinGW: the implementation compiles as C++'
if command -v x86_64-w64-mingw32-g++ >/dev/null; then
    x86_64-w64-mingw32-g++ -std=c++11 $warn -I. -isystem $out/stb -fsyntax-only -x c++ \
        tests/matrix/impl.c >$why 2>&1
    verdict $? "$name"
else
    skip "$name" 'no g++-mingw-w64-x86-64'
fi

# -- clang 15 and later, which warn of more in C23 --

newer=$(ls /usr/bin | grep -xE 'clang-(1[5-9]|[2-9][0-9])')
for cc in $newer; do
    $cc -std=c2x $warn -I. -isystem $out/stb -fsyntax-only tests/matrix/impl.c >$why 2>&1
    verdict $? "$cc: the implementation compiles as C2x"
done
[ -n "$newer" ] || skip 'the implementation compiles as C2x with a newer clang' 'no clang of 15 or later'

plan
