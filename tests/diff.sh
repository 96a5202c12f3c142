#!/bin/sh
# tests/diff.sh: src/tools/diff.c compares saved profiles, keeps budgets, and takes any input. Speaks
# TAP.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
needs build/release/memlord.o build/libmemlord_preload.so build/symbolize build/diff
out=$PWD/build/diff.out
diff=$PWD/build/diff
version=$(sed -n 's/^#define MEMLORD_VERSION "\(.*\)"/\1/p' memlord.h)
rm -rf "$out"
mkdir -p "$out"

ends() { # STATUS ARGUMENT...: diff, in $out; what it says is in $out/said
    want=$1
    shift
    (cd "$out" && exec timeout 60 "$diff" "$@") >"$out/said" 2>&1
    got=$?
    [ $got -eq "$want" ] || { echo "status $got, not $want: diff $*" >>"$out/said"; return 1; }
}

# Each NAME=BYTES of its arguments is an allocation with that tag, in a scope of that name: on a
# GPU behind an @, freed again behind a -, at another line behind a +.
cat >"$out/app.c" <<'C'
#include "memlord.h"
#include <stdlib.h>
static void work(memlord *lord, const char *name, uint64_t at, uint64_t bytes) {
    memlord_device dev = *name == '@' ? memlord_device_cuda(0) : memlord_device_cpu();
    (void)memlord_scope_begin(lord, name);
    MEMLORD_TAG(lord, name) {
        MEMLORD_ALLOC(lord, dev, at, bytes);
    }
    if (*name == '-') MEMLORD_FREE(lord, dev, at);
    (void)memlord_scope_end(lord);
}
int main(int argc, char **argv) {
    const memlord_desc desc = {.labels = getenv("LABELS")};
    memlord *lord = NULL;
    if (memlord_create(&desc, &lord) != MEMLORD_OK) return 1;
    memlord_sites_enable(lord, 1);
    for (int i = 2; i < argc; i++) {
        char *bytes = strchr(argv[i], '=');
        *bytes = 0;
        work(lord, argv[i], (uint64_t)i << 40, strtoull(bytes + 1, NULL, 10));
    }
    return memlord_save(lord, MEMLORD_FORMAT_JSON, argv[1]) != MEMLORD_OK;
}
C
app() { # PROFILE NAME=BYTES...
    profile=$out/$1
    shift
    "$out/app" "$profile" "$@"
}
mkdir -p "$out/edited"
sed '/^static void work/i /* an edit */' "$out/app.c" >"$out/edited/app.c"
for dir in "$out" "$out/edited"; do
    (cd "$dir" && "${CC:-gcc}" -std=gnu99 -O1 -I"$OLDPWD" app.c "$memlord" -o app -pthread -ldl) || break
    dir=
done >"$out/said" 2>&1
[ -z "$dir" ] &&
    app base.json weights=1048576 kv=4096 @w=3072 -tmp=1024 old=12 &&
    app now.json weights=2097152 kv=1024 @w=3072 -tmp=3072 "new$(printf '\033[31m\n')x=2048"
verdict $? 'two profiles are there to compare' "$out/said"

# -- the table --

ends 0 base.json now.json &&
    says "$out/said" "^from base.json: .*, MemLord $version\$" '^  to now.json: .*T.*Z, MemLord' '^device$' '^tag$' '^scope$' '^site$' '^leak$' \
        ' 2 MiB  *+1 MiB  *+100 %  *2 MiB  *+1 MiB  *-  *-  *weights on cpu$' \
        ' 1 KiB  *-3 KiB  *-75.0 %  *1 KiB  *-3 KiB  *-  *-  *kv on cpu$' \
        ' 0 B  *=  *3 KiB  *+2 KiB  *-  *-  *-tmp$' \
        ' 0 B  *-12 B .* gone old on cpu$' '2 KiB  *+2 KiB .* new  new' \
        'work app.c:7 on cpu$' 'work app.c:7$'
verdict $? 'what grew, shrank, came and went is in the table' "$out/said"

awk '/^[a-z]*$/ { kind = $0 } kind == "tag" && /on cpu/ { print $NF == "cpu" ? $(NF - 2) : "" }' \
    "$out/said" >"$out/order" && [ "$(head -n 1 "$out/order")" = weights ] &&
    [ "$(sed -n 2p "$out/order")" = kv ]
verdict $? 'what changed most comes first' "$out/order"

edit_tags() { # PROFILE OF PYTHON: an edit of the tags, by name
    python3 -c "
import json, sys
p = json.load(open(sys.argv[1] + '/$2'))
t = {t['tag']: t for t in p['tags']}
$3
json.dump(p, open(sys.argv[1] + '/$1', 'w'))" "$out"
}
edit_tags high.json base.json 't["kv"]["peak"] = 1 << 30; t["weights"]["allocated"] += 1000; p["total"]["allocated"] += 1000'
ends 0 --by tag base.json high.json && says "$out/said" ' live      change↓  *% ' &&
    [ "$(grep -n 'weights on cpu$' "$out/said" | cut -d: -f1)" -lt "$(grep -n 'kv on cpu$' "$out/said" | cut -d: -f1)" ]
verdict $? 'the rows are in the order of the column with the arrow: the change in live bytes' "$out/said"

edit_tags high.json base.json 't["kv"]["peak"] = 1 << 30; t["weights"]["peak"] += 1000; p["total"]["peak"] += 1'
ends 0 --by tag base.json high.json && says "$out/said" ' peak      change↓  *% *alloc' &&
    [ "$(grep -n 'kv on cpu$' "$out/said" | cut -d: -f1)" -lt "$(grep -n 'weights on cpu$' "$out/said" | cut -d: -f1)" ]
verdict $? 'or in the peak, where live bytes are the same' "$out/said"

edit_tags cut.json base.json 'p["leaks"]["count"] += 7; p["leaks"].pop("more", None)' # as 0.4.0 had it
ends 0 --by leak base.json cut.json && says "$out/said" 'cut.json: leaks of 7 blocks are not listed, and count as new or gone'
verdict $? 'leaks that a profile leaves out are said' "$out/said"

ends 0 --json base.json now.json && python3 - "$out" >"$out/why" 2>&1 <<'PY'
import json, sys
load = lambda name: json.load(open(sys.argv[1] + "/" + name))
base, now = load("base.json"), load("now.json")
rows = [json.loads(line) for line in open(sys.argv[1] + "/said")]
of = {(r["kind"], r["name"]): r for r in rows}
total = of["total", "all devices"]
assert total["live"] == [p["total"]["allocated"] for p in (base, now)], total
assert total["peak"] == [p["total"]["peak"] for p in (base, now)], total
assert total["allocated"] == [p["total"]["total_allocated"] for p in (base, now)], total
change = lambda r, what: r[what][1] - r[what][0]
for kind in ("device", "tag", "scope", "site", "leak"):
    assert sum(change(r, "live") for r in rows if r["kind"] == kind) == change(total, "live"), kind
for kind in ("device", "site"):
    added = sum(change(r, "allocated") for r in rows if r["kind"] == kind)
    assert added == change(total, "allocated"), kind
assert of["tag", "weights on cpu"]["peak"] == [1 << 20, 1 << 21]
assert of["tag", "old on cpu"]["state"] == "gone" and of["scope", "old"]["live"] == [12, 0]
assert of["scope", "-tmp"]["live"] == [0, 0] and of["scope", "-tmp"]["peak"] == [1024, 3072]
assert of["tag", "weights on cpu"]["allocated"] == [None, None]
assert ("tag", "@w on cuda:0") not in of, "unchanged"
PY
verdict $? 'the numbers are those of the profiles, and every list adds up to the total' "$out/why"

ends 0 --top 1 --by tag base.json now.json &&
    says "$out/said" 'weights on cpu' ' 6 KiB .*(5 more)$' ' all devices$' && ! grep -qx 'device\|site' "$out/said"
verdict $? '--top and --by choose rows, and the others are one row' "$out/said"

ends 0 now.json now.json && ! grep -q '[+]' "$out/said"
verdict $? 'a profile does not differ from itself' "$out/said"

app small.json weights=1048576 && "$out/edited/app" "$out/moved.json" weights=1048576 &&
    says "$out/moved.json" '"line":8' && ends 0 --by site small.json moved.json && ! grep -q '^site' "$out/said"
verdict $? 'a site that only moved to another line is the same site' "$out/said"

ends 0 - now.json <"$out/base.json" && says "$out/said" 'weights on cpu'
verdict $? 'a profile is read from standard input' "$out/said"

python3 tests/compare/cases.py "$diff" "$out/compare" >"$out/why" 2>&1
verdict $? 'what only a comparison says is what tests/compare says' "$out/why"

# -- stacks --

# Each argument is an allocation of so many bytes, below a function of that letter.
cat >"$out/calls.c" <<'C'
#include <stdlib.h>
void *volatile kept;
#define ALONE __attribute__((noinline, noclone))
#define CALL(name, next) \
    static ALONE void name(size_t size) { \
        next(size); \
        __asm__(""); \
    }
static ALONE void leaf(size_t size) { kept = malloc(size); } /* leaf */
CALL(a, leaf)
CALL(b, a)
CALL(c, b)
CALL(d, c)
int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        size_t size = strtoul(argv[i] + 1, NULL, 10);
        if (*argv[i] == 'd') d(size); /* main */
        if (*argv[i] == 'a') a(size);
        if (*argv[i] == 'l') leaf(size);
    }
}
C
calls() { # PROFILE ARGUMENT...: as PROFILE.json, with every stack, and named as PROFILE.named.json
    profile=$out/$1
    shift
    LD_PRELOAD=$PWD/build/libmemlord_preload.so MEMLORD_REPORT=$profile.json MEMLORD_SYMBOLS=0 \
        MEMLORD_STACK_BYTES=1 MEMLORD_STACK_DEPTH=${depth:-32} "$out/calls" "$@" &&
        build/symbolize -o "$profile.named.json" "$profile.json"
}
line_of() { sed -n "\\|/\\* $1 \\*/|=" "$out/calls.c"; }

(cd "$out" && "${CC:-gcc}" -std=gnu99 -O1 -g calls.c -o calls) >"$out/said" 2>&1 &&
    calls was d100000 l7000 >>"$out/said" 2>&1 && calls is d100000 d200000 a5000 >>"$out/said" 2>&1
verdict $? 'two profiles with stacks are there to compare' "$out/said"

above='^ \{88\}< '
ends 0 --by stack was.named.json is.named.json &&
    says "$out/said" "292.97 KiB  +195.31 KiB .*  leaf [^ ]*calls.c:$(line_of leaf) on cpu\$" \
        'new  leaf [^ ]*calls.c:[0-9]* on cpu' 'gone leaf [^ ]*calls.c:[0-9]* on cpu' "$above([1-9]* more)\$" &&
    sed -n "s/$above\\(.\\) [^ ]*calls.c:.*/\\1/p" "$out/said" | head -n 4 | tr -d '\n' >"$out/order" &&
    [ "$(cat "$out/order")" = abcd ]
verdict $? 'stacks that grew, came and went show five frames, the innermost first' "$out/said"

ends 0 --by stack --json was.named.json is.named.json &&
    python3 - "$out" "$(line_of main)" >"$out/why" 2>&1 <<'PY'
import json, sys
load = lambda name: json.load(open(sys.argv[1] + "/" + name))["stacks"]["list"]
stacks = [json.loads(line) for line in open(sys.argv[1] + "/said")][1:]
was, now = (sum(s["live_bytes"] for s in load(name)) for name in ("was.json", "is.json"))
assert sum(r["live"][1] - r["live"][0] for r in stacks) == now - was, stacks
grown = stacks[0]
assert grown["live"] == [100000, 300000] and grown["error"] == 0 and not grown["state"], grown
assert [f.split()[0] for f in grown["frames"][:6]] == ["leaf", "a", "b", "c", "d", "main"], grown
assert grown["frames"][5].endswith("calls.c:" + sys.argv[2]) and len(grown["frames"]) > 6, grown
assert [(r["state"], r["live"]) for r in stacks[1:]] == [("gone", [7000, 0]), ("new", [0, 5000])], stacks
PY
verdict $? 'and all frames are in --json, with the numbers of the profiles' "$out/why"

equal() { # PROFILE PROFILE: the table has the total, and nothing else
    ends 0 --json "$1" "$2" && [ "$(wc -l <"$out/said")" -eq 1 ] && ends 0 "$1" "$2" &&
        [ "$(wc -l <"$out/said")" -eq 5 ]
}
equal was.json was.named.json && equal was.named.json was.json
verdict $? 'a named profile and one of the same run without names do not differ' "$out/said"

calls more d300000 l7000 >"$out/said" 2>&1 && ends 0 was.json more.named.json &&
    sed 1,2d "$out/said" >"$out/half" && ends 0 was.named.json more.json && sed 1,2d "$out/said" | cmp - "$out/half" >>"$out/said" 2>&1 &&
    says "$out/said" '+195.31 KiB .*  leaf [^ ]*calls.c:' && ! grep -q 'calls+0x' "$out/said"
verdict $? 'a place without a name has the name in the other profile, also in leaks' "$out/said"

edit_stacks() { # PROFILE PYTHON [OF]: an edit of p, which is was.json, and of its stacks, s
    python3 -c "
import json, sys
p = json.load(open(sys.argv[1] + '/${3:-was}.json'))
s = p['stacks']
$2
json.dump(p, open(sys.argv[1] + '/$1', 'w'))" "$out"
}
edit_stacks anew.json 'for m in s["modules"] + p["sites"]: m["build_id"] = format(int(m["build_id"][:2] or "0", 16) ^ 1, "02x") + m["build_id"][2:]' is
ends 0 was.named.json anew.json &&
    says "$out/said" "diff: $out/calls is of another build: places in it without a name are not compared" \
        'new  (unnamed places of another build of calls: not compared) on cpu$' 'gone leaf [^ ]*calls.c' &&
    ! grep -q '\(new \|<\) calls+0x' "$out/said"
verdict $? 'places of another build are not paired, and that is said' "$out/said"

# Two builds of one program whose functions lie the other way round, without symbols.
cat >"$out/swap.c" <<'C'
#include <stdlib.h>
void *volatile kept;
#define MAKE(name) __attribute__((noinline, noclone)) static void name(size_t size) { kept = malloc(size); __asm__(""); }
#ifdef SWAP
MAKE(second)
MAKE(first)
#else
MAKE(first)
MAKE(second)
#endif
int main(void) {
    first(400000 + GROWN);
    second(1000);
}
C
for dir in here there; do
    mkdir -p "$out/$dir"
    defines='-DGROWN=0'
    [ $dir = here ] || defines='-DGROWN=5000 -DSWAP'
    # shellcheck disable=SC2086
    "${CC:-gcc}" -std=gnu99 -O1 $defines -Wl,--build-id "$out/swap.c" -o "$out/$dir/swap" && strip "$out/$dir/swap" &&
        LD_PRELOAD=$PWD/build/libmemlord_preload.so MEMLORD_REPORT=$out/$dir.json MEMLORD_SYMBOLS=0 MEMLORD_STACK_BYTES=1 \
            "$out/$dir/swap" || break
    dir=
done >"$out/why" 2>&1
[ -z "$dir" ] && ends 0 --json here.json there.json && python3 - "$out" >"$out/why" 2>&1 <<'PY'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1] + "/said") if line[0] == "{"]
unnamed = "(unnamed places of another build of swap: not compared) on cpu"
of = {(r["kind"], r["name"]): r for r in rows}
assert of["site", unnamed]["live"] == of["leak", unnamed[:-len(" on cpu")]]["live"] == [401000, 406000], of
assert of["site", unnamed]["allocated"] == [401000, 406000] and of["site", unnamed]["peak"] == [None, None], of
assert not [r for r in rows if "swap+0x" in r["name"] + str(r.get("frames"))], rows
stacks = [r for r in rows if r["kind"] == "stack" and r["name"] == unnamed]
assert [s["live"] for s in stacks] == [[401000, 406000]], stacks
for kind in ("site", "stack", "leak"):
    assert sum(r["live"][1] - r["live"][0] for r in rows if r["kind"] == kind) == 5000, kind
PY
verdict $? 'places without a name of two builds are one row of each list, and the sums still add up' "$out/why"

ends 0 here.json here.json && ! grep -q 'not compared' "$out/said" && edit_stacks other.json 'p["metadata"]["pid"] += 1' here 2>>"$out/said" &&
    ends 0 here.json other.json && ! grep -q 'not compared' "$out/said"
verdict $? 'those of one build are compared' "$out/said"

for name in was was.named is; do
    edit_stacks "noid.$name.json" 'for m in s["modules"] + p["sites"]: m["build_id"] = ""' "$name"
done
equal noid.was.named.json noid.was.json && ends 0 noid.was.named.json noid.is.json &&
    says "$out/said" 'new  (unnamed places of calls, without a build id: not compared) on cpu$' 'gone leaf [^ ]*calls.c'
verdict $? 'without a build id places are paired in two files of one run alone' "$out/said"

edit_stacks two.json 'leaf = s["frames"][s["list"][0]["frames"][0]]
s["modules"].append(dict(s["modules"][leaf["module"]], build_id="cd" * 20))
s["frames"].append(dict(leaf, module=len(s["modules"]) - 1))
s["list"].append(dict(s["list"][0], frames=[len(s["frames"]) - 1]))'
ends 0 --by stack two.json was.named.json && says "$out/said" '  leaf [^ ]*calls.c' \
    'gone (unnamed places of another build of calls: not compared) on cpu$'
verdict $? 'an address that is in two builds of a module has no name of the other' "$out/said"

edit_stacks library.json 'for f in s["frames"]:
    if f["site"]["function"] in ("leaf", "b"): f["library"] = True' was.named
ends 0 --by stack library.json is.json && says "$out/said" '  a [^ ]*calls.c:[0-9]* on cpu' "${above}c [^ ]*calls.c" &&
    ! grep -q '[< ] \(leaf\|b\) ' "$out/said" &&
    ends 0 --by stack --json library.json is.json && says "$out/said" '"frames":\["leaf '
verdict $? 'the table passes over frames of standard libraries' "$out/said"

for error in 3072 4096; do
    edit_stacks sample$error.json "s['bytes'] = 524288
for r in s['list']: r['error_bytes'] = $error"
done
edit_stacks sample4096.json 's["list"][0]["live_bytes"] += 204800' sample4096
ends 0 --by stack sample3072.json sample4096.json && says "$out/said" '+200 KiB .* on cpu, +- 5 KiB$' \
    'diff: sample4096.json: stacks are samples, one each 512 KiB: their bytes are estimates' &&
    ends 0 --by stack --json sample3072.json sample4096.json && says "$out/said" '"error":5120}'
verdict $? 'the change of a stack that is a sample has its standard error' "$out/said"

edit_stacks more.json 's["list"].pop(0)
s["more"] = {"stacks": 1, "alloc_bytes": 100000, "allocs": 1, "live_bytes": 100000}'
ends 0 --by stack more.json is.json && says "$out/said" ' 0 B  *-97.66 KiB .* gone (not listed)$' \
    'more.json: 1 stacks are not listed, and count as new or gone'
verdict $? 'stacks that a profile leaves out are a row' "$out/said"

# A second stack, which is another one only behind the five frames that are shown: a deeper one, or
# one of the same depth.
for side in was is; do
    edit_stacks deep_$side.json 'f = s["list"][0]["frames"]
s["list"].append(dict(s["list"][0], frames=f[:5] + [f[4]] + f[5:]))' $side.named
    edit_stacks other_$side.json 'f = s["list"][0]["frames"]
s["list"].append(dict(s["list"][0], frames=f[:5] + [f[4]] + f[6:]))' $side.named
done
alike() { # NAME MORE: one row of the table has the sum
    ends 0 --by stack "$1_was.json" "$1_is.json" && says "$out/said" ' +390.6[23] KiB .* -  *- .*  leaf [^ ]*calls.c:[0-9]* on cpu$' "$above($2 more)\$" &&
        [ "$(grep -c "${above}d " "$out/said")" -eq 1 ]
}
alike deep 'at least [1-9]*' && alike other '[1-9]*' &&
    ends 0 --markdown --by stack deep_was.json deep_is.json && says "$out/said" '+390.6[23] KiB .*' &&
    [ "$(grep -c '^| <code>leaf' "$out/said")" -eq 3 ] &&
    ends 0 --by stack --json deep_was.json deep_is.json && [ "$(grep -c '"live":\[100000,300000\]' "$out/said")" -eq 2 ]
verdict $? 'stacks of which the table shows the same are one row, and --json has each' "$out/said"

edit_stacks high.json 's["list"][0]["peak_bytes"] += 1024; s["list"][-1]["peak_bytes"] += 2048; p["total"]["peak"] += 3072' deep_was
ends 0 --by stack deep_was.json high.json && says "$out/said" ' +1 KiB ' ' +2 KiB ' &&
    [ "$(grep -c "${above}d " "$out/said")" -eq 2 ]
verdict $? 'but where the order is that of peaks, which do not add up, each is one' "$out/said"

depth=3 calls flat d100000 l7000 >"$out/why" 2>&1 && ends 0 --by stack flat.named.json was.named.json &&
    says "$out/said" 'stacks have at most 3 frames, now 32'
verdict $? 'another depth of stacks is said' "$out/said"

depth=0 calls bare d100000 l7000 >"$out/why" 2>&1 && ends 0 bare.json was.json &&
    says "$out/said" 'diff: bare.json: no stacks were taken: not compared' && ! grep -q '^stack' "$out/said" &&
    equal bare.json bare.named.json
verdict $? 'a profile without stacks is not shown as if all were new' "$out/said"

# -- budgets --

ends 0 --accept budget.json base.json && python3 - "$out/budget.json" >"$out/why" 2>&1 <<'PY'
import json, sys
budget = json.load(open(sys.argv[1]))
assert budget["schema"] == "memlord-budget/1" and budget["tolerance"] == 10, budget
assert budget["devices"] == {"cpu": 1053696, "cuda:0": 3072}, budget
assert budget["tags"]["weights on cpu"] == 1 << 20 and budget["scopes"]["-tmp"] == 1024, budget
PY
verdict $? '--accept writes the peaks as a budget' "$out/why"

ends 0 --budget budget.json base.json && says "$out/said" '^0 of 14 over budget, tolerance 10 %$'
verdict $? 'a profile is within its own budget' "$out/said"

ends 1 --budget budget.json now.json &&
    says "$out/said" '^over budget: device cpu: budget 1 MiB, peak 2 MiB, over by 1023 KiB$' \
        '^over budget: tag weights on cpu: budget 1 MiB, peak 2 MiB, over by 1 MiB$' \
        '^over budget: scope -tmp: budget 1 KiB, peak 3 KiB, over by 2 KiB$' \
        "tag 'old on cpu' is in the budget alone" && ! grep -q 'over budget: .*kv' "$out/said"
verdict $? 'a peak over its budget is said, and the status is 1' "$out/said"

ends 1 --budget budget.json base.json now.json && says "$out/said" '^over budget' '^leak$'
verdict $? 'and with two profiles there is the table, too' "$out/said"

app near.json weights=1100000 && ends 0 --budget budget.json near.json &&
    ends 1 --budget budget.json --tolerance 4% near.json &&
    ends 0 --budget budget.json --tolerance 5 near.json &&
    ends 0 --accept tight.json --tolerance 2.5% base.json && ends 1 --budget tight.json near.json
verdict $? 'the tolerance is that of the budget, or of the command' "$out/said"

echo '{"schema": "memlord-budget/1", "tolerance": 0, "tags": {"weights on cpu": "1.5 MiB"}}' >"$out/hand.json"
ends 0 --budget hand.json base.json && ends 1 --budget hand.json now.json &&
    says "$out/said" 'budget 1.5 MiB, peak 2 MiB, over by 512 KiB' '^1 of 1 over budget'
verdict $? 'a budget written by hand has units' "$out/said"

# A budget of the rest: what leaks, allocs, blocks that fail, sites, and blocks freed at once.
write() { # NAME LISTS: a budget
    echo "{\"schema\": \"memlord-budget/1\", \"tolerance\": 10, $2}" >"$out/$1"
}
write rest.budget '"leaks": {"bytes": "1 MiB", "blocks": 4}, "counts": {"allocs": 3, "oom_failures": 0}'
ends 0 --budget rest.budget base.json --tolerance 20% >/dev/null
ends 1 --budget rest.budget base.json && says "$out/said" '^over budget: counts allocs: budget 3, found 5, over by 2$' \
    '^1 of 4 over budget, tolerance 10 %$' && ends 1 --budget rest.budget now.json &&
    says "$out/said" '^over budget: leaks bytes: budget 1 MiB, found 2.01 MiB, over by 1' '^2 of 4 over budget'
verdict $? 'leaks, allocs and failures have budgets' "$out/said"

edit_tags failed.json base.json 'p["total"]["oom_failures"] = 2'
ends 1 --budget rest.budget failed.json &&
    says "$out/said" '^over budget: counts oom_failures: budget 0, found 2, over by 2$'
verdict $? 'and a failure where none is allowed is said' "$out/said"

write site.budget '"sites": {"work app.c:700 on cpu": "1.1 MiB"}'
ends 0 --budget site.budget base.json && ends 1 --budget site.budget now.json &&
    says "$out/said" '^over budget: site work app.c:700 on cpu: budget 1.1 MiB, peak 2 MiB, over by 9'
verdict $? 'a site has a budget, also if its line has changed since' "$out/said"

write temporaries.budget '"counts": {"temporaries": 1}'
ends 2 --budget temporaries.budget base.json &&
    says "$out/said" '^diff: temporaries: not known: record with MEMLORD_STACK_BYTES=1' '^0 of 1 over budget' &&
    edit_tags temporaries.json base.json 'p["stacks"].update(bytes=1, depth=4, list=[{"temporaries": 2}, {"temporaries": 3}])' &&
    ends 1 --budget temporaries.budget temporaries.json &&
    says "$out/said" '^over budget: counts temporaries: budget 1, found 5, over by 4$'
verdict $? 'temporary blocks have a budget where every alloc has a stack' "$out/said"

# -- what a person wrote --

cat >"$out/edited.budget" <<'END_'
{"schema": "memlord-budget/1", "tolerance": 3, "note": "ask Ada before you raise this", "program": "app",
 "devices": {"cpu": "8 MiB"}, "tags": {"kv on cpu": null, "weights on cpu": 1048576, "away on cpu": 7},
 "counts": {"allocs": 0}}
END_
ends 0 --accept edited.budget now.json && says "$out/said" '^raised: tag weights on cpu: 1 MiB -> 2 MiB$' \
    '^raised: counts allocs: 0 -> [1-9]' '^added: tag @w on cuda:0: 3 KiB$' '^added: device cuda:0: 3 KiB$' \
    '^edited.budget: 2 raised, 4 added, 3 kept$' && ! grep -q 'added: tag kv\|scope' "$out/said" &&
    python3 - "$out/edited.budget" >"$out/why" 2>&1 <<'PY'
import json, sys
b = json.load(open(sys.argv[1]))
assert b["tolerance"] == 3 and b["note"] == "ask Ada before you raise this", b
assert b["devices"] == {"cpu": "8 MiB", "cuda:0": 3072}, b
assert b["tags"]["kv on cpu"] is None and b["tags"]["away on cpu"] == 7 and b["tags"]["weights on cpu"] == 2 << 20, b
assert sorted(b) == ["counts", "devices", "note", "program", "schema", "tags", "tolerance"], b
PY
verdict $? '--accept raises what was passed, keeps what a person wrote, and says what it changed' "$out/said"

ends 0 --accept edited.budget --tolerance 5 now.json &&
    says "$out/said" '^tolerance: 3 % -> 5 %$' '^edited.budget: 0 raised, 0 added, 9 kept$' &&
    [ ! -e "$out/edited.budget.tmp" ]
verdict $? 'and a second time there is nothing left to raise' "$out/said"

edit_tags other.json base.json 'p["metadata"]["program"] = "other"'
cp "$out/edited.budget" "$out/kept.budget"
ends 2 --budget edited.budget other.json &&
    says "$out/said" "^diff: edited.budget is the budget of app, and other.json is of other: correct 'program' in the budget, or take it out\$" &&
    ends 2 --accept edited.budget other.json && cmp "$out/kept.budget" "$out/edited.budget" >>"$out/said" 2>&1 &&
    write strange.budget '"tags": {"somebody on cpu": 1}' && ends 2 --budget strange.budget base.json &&
    says "$out/said" 'no tag, scope or site in it is in base.json: of another program?$'
verdict $? 'the budget of another program is refused, and stays as it is' "$out/said"

for wrong in '"leaks": {"byte": 0}' '"counts": {"frees": 0}' '"tag": {}' '"sites": 7' '"leaks": {"bytes": true}'; do
    write wrong.budget "\"tags\": {\"kv on cpu\": 1}, $wrong" && cp "$out/wrong.budget" "$out/kept.budget"
    ends 2 --budget wrong.budget base.json && says "$out/said" '^diff: wrong.budget: ' &&
        ends 2 --accept wrong.budget base.json && cmp "$out/kept.budget" "$out/wrong.budget" >>"$out/said" 2>&1 || break
    wrong=
done
[ -z "$wrong" ]
verdict $? "an unknown key of a budget is said, and nothing is written${wrong:+: $wrong}" "$out/said"

# -- for GitHub --

edit_tags hostile.json now.json '
t["weights"]["tag"] = "a|b`c`<script>@you $x$ :smile: [l](u) *b* _i_ \\ www.x.org https://x ~~ &amp; \n| x |\n# h" + "z" * 5000
p["sites"][0]["site"]["file"] = "a%0A::error::b,c:d\r\n::error::e.c"'
ends 0 --markdown base.json hostile.json 2>/dev/null && ends 1 --markdown --budget budget.json base.json hostile.json
python3 - "$out/said" >"$out/why" 2>&1 <<'PY'
import html, re, sys
text = re.sub("^diff: .*\n", "", open(sys.argv[1]).read(), flags=re.M)
assert "<code>cpu</code> | 1 MiB | 2 MiB | 1023 KiB |" in text, text
assert re.search(r"^\*\*Memory\.\*\* Live bytes grew by 1022\.99 KiB\. The largest change by site: ", text, re.M), text
assert "\n- <code>tag &#39;old on cpu&#39; is in the budget alone</code>\n" in text, text
widths = [line.count("|") for line in text.split("\n") if line.startswith("|")]
assert set(widths) == {5, 9} and not re.search(r"[`@$\[\]\\~]|&(?!#\d+;)", text), text
assert not re.search("<(?!/?code>|br>)", text) and max(map(len, text.split("\n"))) < 3000, text
assert "a|b`c`<script>@you $x$ :smile: [l](u) *b* _i_ \\ www.x.org https://x" in html.unescape(text)
PY
verdict $? '--markdown is tables, which no name can break' "$out/why"

ends 1 --github --budget budget.json base.json hostile.json &&
    says "$out/said" '^::error file=a%250A%3A%3Aerror%3A%3Ab%2Cc%3Ad�0d�0a%3A%3Aerror%3A%3Ae.c,line=7,title=Memory::over budget: device cpu: budget 1 MiB' \
        '^::warning file=a%250A.*,line=7,title=Memory::work a%250A::error::b.*: live +2 MiB, now 2 MiB$' \
        '^over budget: device cpu: ' && ! grep '^::' "$out/said" | grep -qv '^::\(error\|warning\) \(file=\(a%250A\|app\.c\)\|title=Memory::over budget: \(tag\|scope\) \)' &&
    (GITHUB_WORKSPACE=$out/src && export GITHUB_WORKSPACE &&
        edit_tags placed.json now.json 'p["sites"][0]["site"]["file"] = sys.argv[1] + "/src/lib/app.c"' &&
        ends 0 --github base.json placed.json && says "$out/said" '^::warning file=lib/app.c,line=7,title=Memory::')
verdict $? '--github says it at the file and line, and no name makes another command' "$out/said"

echo '{"schema": "memlord-budget/1", "tolerance": 10, "devices": {"cpu": 1}, "tags": {"kv on cpu": 1, "weights on cpu": 1},
    "scopes": {"old": 1}, "leaks": {"bytes": 1}, "counts": {"allocs": 1}}' >"$out/tight.budget"
edit_tags held.json base.json '
at = lambda n, **k: dict({"site": {"file": "app.c", "function": "f", "line": n}, "device": "cpu", "tag": None, "scope": None, "count": 1, "bytes": 9}, **k)
p["peak_holders"] = [{"device": "cuda:0", "sites": [at(1)]}, {"device": "cpu", "sites": [at(0), at(2), at(3)]}]
p["leaks"]["by_site"] = [at(4, tag="kv", device="cuda:0"), at(5, tag="kv", scope="old"), at(6, tag="kv", scope="old")]'
ends 1 --github --budget tight.budget held.json &&
    sed -n 's/^::error \(file=app.c,line=[0-9]*,\)*title=Memory::over budget: \([^:]*\):.*/\2 \1/p' "$out/said" >"$out/order" &&
    printf '%s\n' 'device cpu file=app.c,line=2,' 'tag kv on cpu file=app.c,line=5,' 'tag weights on cpu ' 'scope old file=app.c,line=5,' \
        'leaks bytes file=app.c,line=4,' 'counts allocs ' | cmp - "$out/order" >>"$out/said" 2>&1
verdict $? 'without a base the errors are at the site that holds most, where the profile knows the line' "$out/said"

edit_tags within_was.json base.json '
at = lambda n, **k: dict({"site": {"file": "app.c", "function": "f", "line": n}, "device": "cpu", "tag": None, "scope": None, "count": 1, "bytes": 9}, **k)
p["leaks"]["by_site"] = [at(2, tag="kv", bytes=90), at(3, tag="kv"), at(4, tag="weights")]'
edit_tags within_is.json now.json '
at = lambda n, **k: dict({"site": {"file": "app.c", "function": "f", "line": n}, "device": "cpu", "tag": None, "scope": None, "count": 1, "bytes": 9}, **k)
p["leaks"]["by_site"] = [at(2, tag="kv", bytes=95), at(3, tag="kv", bytes=80), at(3, tag="kv", scope="old", bytes=5), at(4, tag="weights"), at(9, bytes=999)]'
ends 1 --github --budget tight.budget within_was.json within_is.json &&
    sed -n 's/^::error \(file=app.c,line=[0-9]*,\)*title=Memory::over budget: \([^:]*\):.*/\2 \1/p' "$out/said" | grep '^tag' >"$out/order" &&
    printf '%s\n' 'tag kv on cpu file=app.c,line=3,' 'tag weights on cpu ' |
    cmp - "$out/order" >>"$out/said" 2>&1
verdict $? 'with a base the error of a tag is at the site that grew most within that tag, or nowhere' "$out/said"

# -- peaks that are not exact --

# Two threads hold 30 KiB each at one moment, with one tag. `exact`: its peaks are.
cat >"$out/two.c" <<'C'
#include "memlord.h"
#include <pthread.h>
static memlord *lord;
static char keys[2];
static void *hold(void *key) {
    MEMLORD_TAG(lord, "work") {
        MEMLORD_ALLOC(lord, memlord_device_cpu(), key, 30 << 10);
    }
    return NULL;
}
int main(int argc, char **argv) {
    const memlord_desc desc = {.flags = argc > 2 ? MEMLORD_FLAG_EXACT : 0};
    pthread_t thread;
    if (memlord_create(&desc, &lord) != MEMLORD_OK || hold(&keys[0])) return 1;
    if (pthread_create(&thread, NULL, hold, &keys[1]) || pthread_join(thread, NULL)) return 1;
    MEMLORD_FREE(lord, memlord_device_cpu(), &keys[0]);
    MEMLORD_FREE(lord, memlord_device_cpu(), &keys[1]);
    return memlord_save(lord, MEMLORD_FORMAT_JSON, argv[1]) != MEMLORD_OK;
}
C
"${CC:-gcc}" -std=gnu99 -O1 -I. "$out/two.c" "$memlord" -o "$out/two" -pthread -ldl >"$out/said" 2>&1 &&
    "$out/two" "$out/loose.json" && "$out/two" "$out/exact.json" exact
verdict $? 'a program of two threads has profiles, with exact peaks and without' "$out/said"

ends 2 --accept loose.budget --tolerance 3% loose.json && [ ! -e "$out/loose.budget" ] &&
    says "$out/said" '^diff: tag work on cpu: its peak may be low by 2 KiB, but the tolerance of 3 % is 1.8 KiB: ' \
        'record with MEMLORD_FLAG_EXACT (the interposer: MEMLORD_EXACT=1), or use --tolerance 4%$'
verdict $? 'no budget is written that is finer than the peaks are known' "$out/said"

ends 0 --accept exact.budget --tolerance 3% exact.json && ends 0 --budget exact.budget exact.json &&
    says "$out/said" '^0 of 4 over budget, tolerance 3 %$' &&
    ends 2 --budget exact.budget loose.json &&
    says "$out/said" '^diff: device cpu: its peak may be low by 2 KiB, but the tolerance of 3 % is 1.8 KiB: .*--tolerance 4%$' \
        '^0 of 4 over budget, tolerance 3 %; 2 not checked: it is finer than the profile$' &&
    ends 0 --budget exact.budget --tolerance 4 loose.json
verdict $? 'a budget that is finer is refused, and the status is 2' "$out/said"

ends 0 --json loose.json exact.json && says "$out/said" '"kind":"total".*"peak_error":\[2048,0\]' &&
    ends 0 loose.json exact.json && says "$out/said" '^diff: loose.json: peaks are low by at most 2 KiB$'
verdict $? 'a comparison says by how much the peaks may be low' "$out/said"

python3 - "$out" <<'PY'
import json, sys
p = json.load(open(sys.argv[1] + "/loose.json"))
for row in p["tags"] + p["sites"] + [d["stats"] for d in p["devices"]]:
    del row["peak_error"]
json.dump(p, open(sys.argv[1] + "/silent.json", "w"))
PY
ends 0 --budget exact.budget silent.json && says "$out/said" "silent.json: 2 peaks without a 'peak_error': taken as exact"
verdict $? 'an older profile without that is checked as it is, and that is said' "$out/said"

# -- bad input --

edit() { # PROFILE PYTHON: an edit of p, which is base.json
    python3 -c "
import json, sys
p = json.load(open(sys.argv[1] + '/base.json'))
$2
json.dump(p, open(sys.argv[1] + '/$1', 'w'))" "$out"
}

refused() { # NAME PATTERN FILE: as a profile, and the status is 2
    ends 2 "$3" now.json && says "$out/said" "^diff: .*$2" && [ "$(wc -l <"$out/said")" -eq 1 ] &&
        ends 2 --budget budget.json "$3"
    verdict $? "$1 is refused" "$out/said"
}

: >"$out/empty.json"
head -c 3000 "$out/base.json" >"$out/cut.json"
echo 'heaptrack' >"$out/text.json"
echo '[1, 2]' >"$out/array.json"
cat "$out/base.json" "$out/base.json" >"$out/two.json"
printf '%0100000d' 0 | tr 0 '[' >"$out/deep.json"
edit newer.json 'p["schema"] = "memlord/3"'
edit older.json 'p["schema"] = "memlord/1"'
edit other.json 'p["schema"] = "heap/1\x1b[31m"'
refused 'a file that is not there' 'none.json: No such file' none.json
refused 'a directory' 'Is a directory' .
refused 'an empty file' 'is empty' empty.json
refused 'a truncated profile' 'not JSON, or cut off, at line [1-9]' cut.json
refused 'a text' 'not JSON' text.json
refused 'an array' "no key 'schema'" array.json
refused 'two profiles in one file' 'not JSON' two.json
refused 'an endless nesting' 'not JSON' deep.json
refused 'a newer schema' 'memlord/3 is newer than memlord/2' newer.json
refused 'an older schema' 'memlord/1 is older than memlord/2' older.json
refused 'another schema' 'heap/1.*1b.31m is not memlord/2' other.json
echo '{"schema": "memlord/2"}' >"$out/alone.json"
refused 'a schema and nothing else' "no list 'devices': no profile" alone.json
refused 'a budget for a profile' 'memlord-budget/1 is not memlord/2' budget.json
! grep -q "$(printf '\033')" "$out/said"
verdict $? 'and no control character is printed' "$out/said"

goes_on() { # NAME FILE PATTERN...: it is said, and the comparison goes on
    what=$1 file=$2
    shift 2
    ends 0 "$file" now.json && says "$out/said" "$@" '^device$' ' all devices$'
    verdict $? "$what" "$out/said"
}

edit old.json 'del p["scopes"]; [s.pop("peak_bytes") for s in p["sites"]]; del p["devices"][0]["stats"]["peak"]'
# As MemLord 0.4.1 wrote it of app.c.
cp tests/compare/0.4.json "$out"
goes_on 'a profile of 0.4 is compared, and what it lacks is said' 0.4.json \
    '0.4.json: written by MemLord 0.4.1: it has no verdicts and no places of mistakes' \
    ' 2 MiB  *+1 MiB  *+100 %  *2 MiB  *+1 MiB  *-  *-  *weights on cpu$' ' 2.01 MiB  *+1 MiB  *+99.8 %  *-  *-  *-  *-  *work app.c:7$'
ends 0 --accept old.budget 0.4.json && ends 0 --budget old.budget 0.4.json && says "$out/said" '^0 of 7 over budget' &&
    ends 1 --budget old.budget now.json && says "$out/said" '^over budget: tag weights on cpu: budget 1 MiB, peak 2 MiB'
verdict $? 'and has a budget, which a later profile is checked against' "$out/said"
goes_on 'an older profile is compared as far as its keys go' old.json "no key 'scopes': not compared" \
    "sites: 3 without a usable 'peak_bytes'" "devices: 1 without a usable 'peak'" '^tag$'
! grep -q '^scope$' "$out/said"
verdict $? 'and what is missing is not shown as new' "$out/said"

ends 2 --budget budget.json old.json && says "$out/said" "no 'scopes' to check"
verdict $? 'but it passes no budget on what it lacks' "$out/said"

edit wrong.json 'for t, v in zip(p["tags"], (-1, 1e300, "many", None)): t["peak"] = v'
goes_on 'numbers that are none are not shown' wrong.json "tags: 3 without a usable 'peak'" '-  *weights on cpu'
ends 2 --budget budget.json wrong.json && says "$out/said" 'has a budget and no peak'
verdict $? 'and pass no budget' "$out/said"

edit names.json 'p["tags"][0]["tag"] = 7; p["tags"][1] = None; p["sites"] += [1, [], {}]'
goes_on 'rows without a name are left out' names.json "tags: 2 without a usable 'name'" "sites: 3 without a usable 'name'"

edit twice.json 'p["tags"] += p["tags"]; p["devices"] += p["devices"]'
goes_on 'a name that stands twice is added up' twice.json "stands twice and is added up: device 'cpu'" \
    'the devices do not add up'

LABELS=host=a app here.json weights=1 && LABELS=host=b app there.json weights=1 &&
    ends 0 here.json there.json && says "$out/said" "the labels differ: 'host=a', now 'host=b'" 'all devices'
verdict $? 'another machine is said' "$out/said"

edit alien.json 'p["tags"][:] = [dict(t, tag="x" + t["tag"]) for t in p["tags"]]; p["scopes"] = []; p["sites"] = []'
goes_on 'another program is said' alien.json 'no tag, scope or site is in both'

edit unstacked.json 'del p["stacks"]'
goes_on 'a profile of before there were stacks is compared' unstacked.json "no key 'stacks': not compared"
for stacks in 7 '[]' '{}' '{"depth": "x", "list": {}}' '{"depth": 9, "list": 7}' 'dict(s, depth=-1)' \
    'dict(s, depth=None)'; do
    edit_stacks bad.json "p['stacks'] = $stacks" && ends 0 bad.json is.json &&
        says "$out/said" ' all devices$' '^site$' && ! grep -q '^stack' "$out/said" || break
    stacks=
done
[ -z "$stacks" ]
verdict $? "stacks that are none are not compared${stacks:+: $stacks}" "$out/said"
for stacks in 's["frames"] = 7' 's["modules"] = 7' 's["frames"] = [7, None, [], {}]' 's["modules"] = [None, {}]' \
    's["list"] += [{}, 7, None, []]' 's["list"][0]["frames"] = 7' 's["list"][0]["frames"] = []' \
    's["list"][0]["frames"] = [-1, 1e9, 1e300, 0.5, None, "0"]' 's["list"][0]["frames"] *= 100' \
    's["list"][0]["live_bytes"] = "much"' 's["list"][0]["error_bytes"] = -1' 's["more"] = 7' \
    's["more"]["live_bytes"] = -1' 's["bytes"] = 1e300' 's["frames"][0]["module"] = 1e99' \
    's["frames"][0]["offset"] = -1' 's["frames"][0]["site"] = None' \
    's["frames"][0]["site"]["function"] = "\x1b[31m\n"'; do
    edit_stacks bad.json "$stacks" && ends 0 --by stack bad.json is.named.json &&
        says "$out/said" ' all devices$' '^stack$' && ! grep -q "$(printf '\033')" "$out/said" || break
    stacks=
done
[ -z "$stacks" ]
verdict $? "and those with nonsense in them as far as they go${stacks:+: $stacks}" "$out/said"

ends 0 now.json base.json && says "$out/said" 'now.json is newer than base.json: the wrong way round'
verdict $? 'profiles the wrong way round are said' "$out/said"

for budget in '[]' '{}' 'x' '{"schema": "memlord-budget/1"}' '{"schema": "memlord-budget/2"}' \
    '{"schema": "memlord-budget/1", "tolerance": 10}' \
    '{"schema": "memlord-budget/1", "tolerance": -1, "tags": {"a": 1}}' \
    '{"schema": "memlord-budget/1", "tolerance": 10, "tag": {"a": 1}}' \
    '{"schema": "memlord-budget/1", "tolerance": 10, "tags": {"a": -1}}' \
    '{"schema": "memlord-budget/1", "tolerance": 10, "tags": {"a": "much"}}' \
    '{"schema": "memlord-budget/1", "tolerance": 10, "tags": {"a": [1]}}' \
    '{"schema": "memlord-budget/1", "tolerance": 10, "tags": [1]}'; do
    echo "$budget" >"$out/bad.json"
    ends 2 --budget bad.json now.json && says "$out/said" '^diff: bad.json: ' || break
    budget=
done
[ -z "$budget" ] && ends 2 --budget . now.json && ends 2 --accept . now.json &&
    ends 2 --accept /dev/full now.json
verdict $? "a bad budget is refused${budget:+: $budget}" "$out/said"

for wrong in '' now.json 'a b c' '- -' '--top now.json' '--top 0 a b' '--top x a b' '--by all a b' '--by total a b' \
    '--tolerance -1 a b' '--tolerance x a b' '--tolerance 2000 a b' '--tolerance 5x a b' '--what a b' \
    'a b --budget' '--budget x --accept y a' '--json a' \
    '--json --budget x a b' '--json --markdown a b' '--github --accept x a'; do
    # shellcheck disable=SC2086 # arguments
    ends 2 $wrong && says "$out/said" '^usage: diff' || break
    wrong=ok
done
[ "$wrong" = ok ]
verdict $? 'wrong arguments are answered with the usage' "$out/said"

edit big.json 'p["events"]["list"] = [[i, 0, 1, 0, "0x7f0000000000", 4096, 1, 2, 3] for i in range(1000000)]'
[ "$(wc -c <"$out/big.json")" -gt 50000000 ] && ends 0 big.json now.json && says "$out/said" 'weights on cpu'
verdict $? 'a profile of 50 MB is compared' "$out/said"
rm -f "$out/big.json"

# -- damaged profiles, under the sanitizers --

"${CC:-gcc}" -std=c99 -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -I. src/tools/diff.c \
    -o "$out/asan" -lcjson -lm -pthread >"$out/why" 2>&1 &&
    ASAN_OPTIONS=detect_leaks=0 python3 - "$out" >"$out/why" 2>&1 <<'PY'
import random, subprocess, sys, time
out, begun, runs = sys.argv[1], time.monotonic(), 0
profiles = [open(out + "/" + name, "rb").read() for name in ("base.json", "was.named.json")]
random.seed(17)
def run(data, wanted):
    for args in (["-", out + "/is.json"], ["--budget", out + "/budget.json", "-"], ["--budget", "-", out + "/now.json"]):
        done = subprocess.run([out + "/asan"] + args, input=data, capture_output=True, timeout=20)
        if done.returncode not in wanted:
            open(out + "/failed.json", "wb").write(data)
            sys.exit("status %d of %s: %s" % (done.returncode, args, done.stderr.decode("utf8", "replace")))
while time.monotonic() - begun < 4 or runs < 6:
    whole = profiles[runs % 2]
    size = random.randrange(len(whole.rstrip()))
    run(whole[:size], [2])
    data = bytearray(whole)
    for _ in range(random.randrange(1, 20)):
        data[random.randrange(len(data))] = random.choice(b'{}[]",:0-9eE\\u\x00\xff\xc2\xe2 ')
    run(bytes(data), [0, 1, 2])
    runs += 1
PY
verdict $? 'no damaged profile harms it' "$out/why"

plan
