#!/bin/sh
# tests/all.sh PART...: runs parts of `make test-all` in turn, whatever fails, and ends with the sum of
# them, "N passed, N failed". A part that could not run at all is a failure.
set -u
cd "$(dirname "$0")/.." || exit 1
lost=0
for part; do
    echo "== $part"
    rm -rf "build/logs/$part"
    make --no-print-directory test-all PART="$part" LONG=1
    ls "build/logs/$part"/*.count >/dev/null 2>&1 || lost=$((lost + 1))
done
for part; do cat "build/logs/$part"/*.count 2>/dev/null; done | awk -v lost=$lost '
    { passed += $1; failed += $2; skipped += $3 }
    END {
        if (skipped) print skipped " skipped"
        print passed + 0 " passed, " failed + lost " failed"
        exit failed + lost > 0 || !passed
    }'
