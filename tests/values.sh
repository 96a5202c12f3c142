#!/bin/sh
# tests/values.sh [OBJECT]: every figure of the reports is compared with a model that computes it
# from the same operations and calls no reader of memlord.h: tests/values/check.py says how. OBJECT
# is the implementation to test, the release build's if there is none; a mutant's object needs
# nothing else: the script compiles the player, links it with the object and ends in seconds.
# The status is 0 only if every test passes.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh

object=${1:-$memlord}
[ "$#" -gt 0 ] || build_memlord
directory=$(mktemp -d) || exit 1
trap 'rm -rf "$directory"' EXIT

${CC:-gcc} -std=c99 -O0 -Wall -Wextra -pedantic -Wconversion -Wshadow -Wundef -Werror -I. \
    tests/values/play.c "$object" -o "$directory/play" -pthread -rdynamic -Wl,--build-id || exit 1
MEMLORD_VERSION=$(sed -n 's/^#define MEMLORD_VERSION "\(.*\)"/\1/p' memlord.h) \
    PYTHONDONTWRITEBYTECODE=1 python3 tests/values/check.py "$directory/play" "$directory"
