#!/bin/sh
# tests/page.sh: the report page in headless Chromium, without a network. Speaks TAP; what needs
# a browser is skipped where there is none (`make deps-reports` installs it).
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
out=$PWD/build/page
assemble=src/reports/page/assemble.py
mkdir -p "$out"

# -- the assembler --

small=yes
python3 $assemble check >"$out/why" 2>&1
status=$?
case $status in
77)
    small=
    skip 'src/reports/page.h is the page of src/reports/page' "$(cat "$out/why"): make deps-reports"
    ;;
*) verdict $status 'src/reports/page.h is the page of src/reports/page' "$out/why" ;;
esac

# The literals as a strict C99 compiler reads them, with the data between them.
{
    echo '#include <stdio.h>'
    cat src/reports/page.h
    cat <<'C'
static unsigned byte_at(size_t i) {
    return i < MLI_HTML_PACKED ? (unsigned)(mli_html_packed[i / 8] >> (56 - i % 8 * 8)) & 255 : 0;
}
int main(void) {
    const char *digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t i, j;
    for (i = 0; i < sizeof mli_html_head / sizeof *mli_html_head; i++)
        fputs(mli_html_head[i], stdout);
    fputs("@TEXT@", stdout);
    for (i = 0; i < sizeof mli_html_middle / sizeof *mli_html_middle; i++)
        fputs(mli_html_middle[i], stdout);
    fputs("@DATA@", stdout);
    for (i = 0; i < sizeof mli_html_between / sizeof *mli_html_between; i++)
        fputs(mli_html_between[i], stdout);
    for (i = 0; i < MLI_HTML_PACKED; i += 3)
        for (j = 0; j < 4; j++) {
            unsigned word = byte_at(i) << 16 | byte_at(i + 1) << 8 | byte_at(i + 2);
            putchar(i + j > MLI_HTML_PACKED ? '=' : digits[word >> (18 - 6 * j) & 63]);
        }
    for (i = 0; i < sizeof mli_html_tail / sizeof *mli_html_tail; i++)
        fputs(mli_html_tail[i], stdout);
    return 0;
}
C
} >"$out/literals.c"
"${CC:-gcc}" -std=c99 -Wall -Wextra -pedantic -Wtrigraphs -Werror -Isrc "$out/literals.c" -o "$out/literals" \
    >"$out/why" 2>&1 && "$out/literals" >"$out/literals.html" && [ "$(wc -c <"$out/literals.html")" -le 65536 ] &&
    ! LC_ALL=C grep -q '[^ -~]' "$out/literals.html"
verdict $? 'the page is small and plain ASCII, its literals C99' "$out/why"

python3 $assemble page >"$out/page.html" 2>"$out/why"
verdict $? 'the page is assembled' "$out/why"
if [ -n "$small" ]; then
    cmp "$out/literals.html" "$out/page.html" >"$out/why" 2>&1
    verdict $? 'and the literals say the same' "$out/why"
fi

# The pictures: the sample page was written together with them.
packed() { grep -o 'id="packed">[^<]*' "$1"; } # FILE: the script and the styles of a page
if [ -n "$small" ]; then
    packed "$out/page.html" >"$out/packed" && packed examples/report/pictures/sample.html | cmp - "$out/packed" >"$out/why" 2>&1 ||
        { echo 'make pictures' >>"$out/why" && false; }
    verdict $? 'the pictures in README are of this page' "$out/why"
fi

python3 tests/page/profiles.py "$out" >"$out/why" 2>&1 && cp tests/compare/0.4.json "$out/of_0_4.json" &&
    for profile in "$out"/*.json; do
        case $profile in */package*.json) continue ;; esac
        python3 $assemble profile "$profile" >"${profile%.json}.html" 2>>"$out/why" || break
        profile=
    done && [ -z "$profile" ] && for profile in small stacked large overwritten rich; do # for tests that look inside
        python3 $assemble plain "$out/$profile.json" >"$out/plain_$profile.html" 2>>"$out/why" || break
        profile=
    done && [ -z "$profile" ] &&
    python3 $assemble profile "$out/stacked.json" "$out/older.json" >"$out/versus.html" 2>>"$out/why" &&
    python3 $assemble plain "$out/stacked.json" "$out/older.json" >"$out/plain_versus.html" 2>>"$out/why"
verdict $? 'a saved profile becomes a page, and two become one' "$out/why"

[ "$(wc -c <"$out/large.html")" -lt 4194304 ]
verdict $? 'that of 100,000 events is under 4 MiB'

# A page as the library itself writes it.
cat >"$out/written.c" <<'C'
#include "memlord.h"
int main(void) {
    memlord *lord;
    memlord_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.event_capacity = 1000;
    if (memlord_create(&desc, &lord) || memlord_sites_enable(lord, 1)) return 1;
    memlord_device_label_set(lord, memlord_device_cpu(), "</noscript><script>window.harm=1</script>");
    memlord_scope_begin(lord, "outer");
    memlord_scope_begin(lord, "inner");
    MEMLORD_TAG(lord, "tag<&>") { MEMLORD_ALLOC(lord, memlord_device_cpu(), (uint64_t)4096, 3 << 20); }
    MEMLORD_ALLOC(lord, memlord_device_cpu(), (uint64_t)8192, 1 << 20);
    memlord_scope_end(lord);
    memlord_scope_end(lord);
    MEMLORD_FREE(lord, memlord_device_cpu(), (uint64_t)8192);
    MEMLORD_ALLOC(lord, memlord_device_cpu(), UINT64_MAX - 4095, 1 << 20);
    memlord_checkpoint(lord, "end");
    return memlord_save(lord, MEMLORD_FORMAT_HTML, "written.html") ||
           memlord_save(lord, MEMLORD_FORMAT_JSON, "saved.json");
}
C
rm -f "$out/written.html"
"${CC:-gcc}" -std=c99 -pthread -I. "$out/written.c" "$memlord" -o "$out/written" >"$out/why" 2>&1 &&
    (cd "$out" && ./written) >>"$out/why" 2>&1 && [ "$(grep -c '</noscript>' "$out/written.html")" -eq 1 ] &&
    grep -q 'tag tag&lt;&amp;> 75 %' "$out/written.html" && ! grep -q operation_allocations "$out/written.html"
verdict $? 'the library writes a page with its figures for readers without scripts' "$out/why"

events() { # FILE: the events of a page, in its brief form, without the times: the clock's scale is refined meanwhile
    grep -o '"list":\[\[.*"end",0\]\]' "$1" | sed 's/\[[0-9]*,/[/g'
}
python3 $assemble profile "$out/saved.json" >"$out/saved.html" 2>"$out/why" && mv "$out/saved.json" "$out/saved" &&
    events "$out/written.html" >"$out/written.events" && events "$out/saved.html" >"$out/saved.events" &&
    [ -s "$out/written.events" ] && cmp "$out/written.events" "$out/saved.events" >"$out/why" 2>&1
verdict $? 'and the assembler writes the same events' "$out/why"

# Where nothing but Python is found.
python=$(python3 -c 'import sys; print(sys.executable)')
PATH=/nonexistent "$python" $assemble profile "$out/small.json" >"$out/bare.html" 2>"$out/why" &&
    cmp "$out/bare.html" "$out/plain_small.html" >"$out/why" 2>&1 && {
    PATH=/nonexistent "$python" $assemble check >"$out/why" 2>&1
    [ $? -eq 77 ] && grep -q 'esbuild' "$out/why"
}
verdict $? 'also without a minifier, and then the header is left unchecked' "$out/why"

echo '{"schema": "memlord/2", "total": NaN}' >"$out/nan"
echo '{"schema": "memlord/2"' >"$out/torn"
echo '[1, 2]' >"$out/other"
echo '{"schema": "memlord/2"}' >"$out/alone"
echo '{"schema": "memlord/3", "devices": []}' >"$out/newer"
echo '{"schema": "memlord/20", "devices": []}' >"$out/longer"
for wrong in nan torn other alone newer longer missing; do
    python3 $assemble profile "$out/$wrong" >"$out/wrong" 2>"$out/why"
    [ $? -eq 2 ] && [ ! -s "$out/wrong" ] && grep -q "$wrong: " "$out/why" || break
    python3 $assemble profile "$out/small.json" "$out/$wrong" >"$out/wrong" 2>"$out/why" # as the base
    [ $? -eq 2 ] && [ ! -s "$out/wrong" ] && grep -q "$wrong: " "$out/why" || break
    wrong=
done
[ -z "$wrong" ]
verdict $? "what is not a profile is refused${wrong:+: $wrong}" "$out/why"

(
    unset MAKEFLAGS MAKELEVEL MFLAGS
    make -s report JSON="$out/small.json" >"$out/why" 2>&1 && [ -s build/report.html ] &&
        cmp build/report.html "$out/small.html" &&
        make -s report JSON="$out/stacked.json" BASE="$out/older.json" >"$out/why" 2>&1 &&
        cmp build/report.html "$out/versus.html" && ! make -s report >"$out/why" 2>&1 && grep -q 'usage: make report' "$out/why" && {
        make -s report JSON="$out/newer" >"$out/why" 2>&1
        [ $? -eq 2 ] && grep -q "newer: not a profile that this page can read: its schema is 'memlord/3', not memlord/2" "$out/why"
    }
)
verdict $? 'make report writes the page, and says how it is used' "$out/why"

# -- the browser --

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
if [ -n "$browser" ] && command -v node >/dev/null && [ -d build/reports/node_modules/playwright-core ]; then
    CHROMIUM=$browser NODE_PATH=$PWD/build/reports/node_modules node tests/page/browse.js "$out" >"$out/tap" 2>"$out/why"
    verdict $? 'the browser ran to its end' "$out/why"
    cat "$out/tap"
    n=$((n + $(grep -cE '^(not )?ok ' "$out/tap")))
else
    skip 'the page in a browser' 'no chromium, node or playwright-core: make deps-reports'
fi

plan
