#!/bin/sh
# tests/figures.sh [OBJECT]: the figures that the report page shows in a browser are those of the
# model of tests/values/: the first screen, the devices and every table. Speaks TAP; all of it is
# skipped where there is no browser (`make deps-reports` installs it). tests/values.sh is the faster
# part, and says what OBJECT is.
set -u
[ "$#" -eq 0 ] || set -- "$(realpath "$1")"
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
if [ -z "$browser" ] || ! command -v node >/dev/null || [ ! -d build/reports/node_modules/playwright-core ]; then
    skip 'the figures of the page in a browser' 'no chromium, node or playwright-core: make deps-reports'
    plan
    exit
fi
object=${1:-$memlord}
[ "$#" -gt 0 ] || build_memlord
. tests/values/player.sh
CHROMIUM=$browser NODE_PATH=$PWD/build/reports/node_modules python3 tests/values/browse.py "$directory/play" "$directory"
