#!/bin/sh
# tests/values.sh [OBJECT]: every figure of the reports is compared with a model that computes it
# from the same operations and calls no reader of memlord.h: tests/values/check.py says how. OBJECT
# is the implementation to test, the release build's if there is none; a mutant's object needs
# nothing else: the script compiles the player, links it with the object and ends in seconds.
# The status is 0 only if every test passes.
set -u
[ "$#" -eq 0 ] || set -- "$(realpath "$1")"
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh

object=${1:-$memlord}
[ "$#" -gt 0 ] || build_memlord
. tests/values/player.sh
python3 tests/values/check.py "$directory/play" "$directory"
