#!/bin/sh
# tests/unload.sh: plug-ins that carry MemLord: the host closes them while a thread that used them goes
# on, or they stay loaded. Speaks TAP.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
out=$PWD/build/unload
flags='-std=gnu99 -O0 -g -I. -Wall -Wextra -Werror -pthread'
rm -rf "$out" && mkdir -p "$out" || exit 1
[ "$(uname -s)" = Linux ] || { echo '1..0 # SKIP modules of Linux'; exit 0; }

objects() {
    for kind in prefix static; do
        define=
        [ $kind = static ] || define=-DPREFIXED
        ${CC:-gcc} $flags $define -Wno-unused-function -fPIC -c tests/unload/plug.c -o "$out/$kind.o" &
    done
    wait
    for kind in prefix static; do
        ${CC:-gcc} -shared "$out/$kind.o" -o "$out/$kind.so" -pthread &&
            ${CC:-gcc} -shared -Wl,-z,nodelete "$out/$kind.o" -o "$out/$kind-nodelete.so" -pthread ||
            return 1
    done
    ${CC:-gcc} $flags tests/unload/host.c -o "$out/host" -ldl
}
objects >"$out/objects.txt" 2>&1 || { cat "$out/objects.txt"; echo 'Bail out! nothing to run'; exit 1; }

# What a plug-in says, and the status of its host.
runs() { # PLUG FUNCTION...
    plug=$out/$1.so
    shift
    said=$(timeout -s KILL 20 "$out/host" "$plug" "$@" 2>&1; echo "status $?")
    said=$(printf '%s\n' "$said" | tr '\n' ' ')
}
gone='^gone gone gone status 0 $' stays='^stays stays stays status 0 $'
for kind in prefix static; do
    runs $kind plug_ledger plug_end
    matches "$kind: a plug-in is closed, and a thread that used it ends" "$gone"
    runs $kind plug_snapshots plug_end
    matches "$kind: a plug-in that had a thread of its own stays loaded" "$stays"
    runs $kind plug_snapshots
    matches "$kind: a plug-in stays loaded while a thread of its own runs" "$stays"
    runs $kind plug_global
    matches "$kind: a plug-in that has the global ledger stays loaded" "$stays"
    runs $kind-nodelete plug_ledger plug_end
    matches "$kind: one linked with -z nodelete stays loaded" "$stays"
    runs $kind exit
    matches "$kind: calls after the destructors of a plug-in are recorded" '^late status 0 $'
done
CONSTRUCTOR=global runs static plug_ledger plug_end
matches 'a constructor may make the global ledger' "$stays"
CONSTRUCTOR=ledger runs static plug_ledger plug_end
matches 'a constructor may start and end a thread of the ledger' "$stays"
CONSTRUCTOR=thread runs static-nodelete plug_ledger plug_end
matches 'with -z nodelete a constructor may wait for a thread that makes the global ledger' "$stays"
DESTRUCTOR=1 runs static plug_ledger
matches 'a destructor may use and end the ledger while the plug-in is closed' "$gone"
runs static malloc "$out/prefix.so"
matches "the host's malloc may make the global ledger while a library is loaded" '^many status 0 $'
plan
