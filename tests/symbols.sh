#!/bin/sh
# tests/symbols.sh: src/tools/symbolize.c names the return addresses of profiles, never wrongly, and
# takes any input; the interposer asks it. Speaks TAP.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
out=$PWD/build/symbols
symbolize=$PWD/build/symbolize
so=$PWD/build/libmemlord_preload.so
cxx=${CXX:-g++}
[ "$(uname -s)" = Linux ] || { echo '1..0 # SKIP modules of Linux'; exit 0; }
rm -rf "$out" && mkdir -p "$out/bin" || exit 1
unset DEBUGINFOD_URLS


id_of() { readelf -n "$1" | sed -n 's/.*Build ID: //p'; }
line_of() { grep -n "$1" "$out/app.cpp" | head -n 1 | cut -d: -f1; }

# PROGRAM ARGUMENT...: its profile is in $out/profile.json, with stacks of so many frames.
depth=0
profile() {
    LD_PRELOAD=$so MEMLORD_SYMBOLS=0 MEMLORD_EVENTS=100 MEMLORD_STACK_DEPTH=$depth \
        MEMLORD_STACK_BYTES=1 MEMLORD_REPORT=$out/profile.json "$@" >/dev/null 2>&1
}

# Each place is a line: module bytes function file:line inlined library.
places='
import json, os, sys
for s in json.load(open(sys.argv[1]))["sites"]:
    f = s["site"]
    print("%s %d [%s] %s:%d <%s> %s" % (
        os.path.basename(s["module"]), s["alloc_bytes"], f["function"], os.path.basename(f["file"]),
        f["line"], "|".join("%s:%d%s" % (i["function"], i["line"], "*" * i.get("library", False))
                            for i in s.get("inlined", [])), s.get("library", "")))
'

# ARGUMENT...: names $out/profile.json; `said` has the status, what is said, and the places.
name() {
    rm -f "$out/named.json"
    said=$(timeout 60 "$symbolize" "$@" -o "$out/named.json" "$out/profile.json" 2>&1
        echo "status $?")
    [ ! -e "$out/named.json" ] || said="$said
$(python3 -c "$places" "$out/named.json")"
}

cat >"$out/app.cpp" <<'END'
#include <stdlib.h>
#include <vector>
#define ALONE __attribute__((noinline, noclone))
#define INTO inline __attribute__((always_inline))
void *volatile kept;
static INTO void fill(std::vector<char> &v) { v.reserve(1001); } // fill
static INTO void deeper(std::vector<char> &v) { fill(v); } // deeper
ALONE void outer(std::vector<char> &v) { deeper(v); } // outer
extern "C" ALONE void exported() { kept = malloc(1002); } // exported
static ALONE void hidden(int size) { kept = malloc((size_t)size); } // hidden
namespace app { ALONE void method(long size) { kept = operator new((size_t)size); } } // method
ALONE void legacy() __asm__("_ZN5crate4work17h0123456789abcdefE");
ALONE void legacy() { kept = malloc(1005); }
ALONE void second() __asm__("_RNvNtCs1234_7mycrate3foo3bar");
ALONE void second() { kept = malloc(1006); }
ALONE void allocator() __asm__("_ZN5alloc5alloc5alloc17h0123456789abcdefE");
ALONE void allocator() { kept = malloc(1007); }
int main() {
    std::vector<char> v;
    outer(v), exported(), hidden(1003), app::method(1004), legacy(), second(), allocator();
}
END
app() { # PATH FLAGS...
    path=$1
    shift
    "$@" -O2 -g -rdynamic -no-pie "$out/app.cpp" -o "$out/bin/$path" >"$out/said" 2>&1
}
app app "$cxx" && app pie "$cxx" -pie -fPIE || { cat "$out/said"; echo 'Bail out! no program'; exit 1; }
cd "$out/bin" || exit 1

# -- names --
for program in app pie; do
    profile ./$program
    name
    matches "$program: functions, files and lines" 'status 0' \
        "^$program 1002 \[exported\(?\)?\] app.cpp:$(line_of '// exported') <> \$" \
        "^$program 1003 \[hidden(\(int\))?\] app.cpp:$(line_of '// hidden') " \
        "^$program 1004 \[app::method\(long\)\] app.cpp:$(line_of '// method') "
    matches "$program: a place in inlined functions is named by the innermost that is no library's" \
        "^$program 1001 \[fill[^ ]*.*\] app.cpp:$(line_of '// fill') <std::.*new.*\*\|.*reserve.*\*\|fill[^|]*:6\|deeper[^|]*:7\|outer[^|]*:8> \$"
    matches "$program: both manglings of Rust are read, without the hash" \
        "^$program 1005 \[crate::work\] " "^$program 1006 \[mycrate::foo::bar\] "
    matches "$program: a function of a standard library is marked" \
        "^$program 1007 \[alloc::alloc::alloc\] .* True\$" 'libstdc.* True$'
done
said=$(python3 - "$out/named.json" 2>&1 <<'END'
import json, sys
d = json.load(open(sys.argv[1]))
print(d["strings"], [b["site"] for b in d["largest_blocks"]["blocks"]])
END
)
matches 'sites without their place are named alike: blocks, and the strings of events' \
    "'hidden[^']* [^']*app.cpp:$(line_of '// hidden')'" "'function': 'exported'" '!app\+0x'
depth=32
profile ./pie
depth=0
name
said=$(python3 - "$out/named.json" <<'END'
import json, sys
stacks = json.load(open(sys.argv[1]))["stacks"]
for s in stacks.get("list", []):
    print(" < ".join(stacks["frames"][f]["site"]["function"] for f in s["frames"]))
END
)
matches 'the frames of stacks are named' '^fill.* < main < ' '^exported < main < ' '^hidden.* < main'
if python3 -c 'import jsonschema' 2>/dev/null; then
    said=$(python3 - "$out/named.json" ../../../tests/profile.schema.json 2>&1 <<'END'
import json, jsonschema, sys
for e in jsonschema.Draft7Validator(json.load(open(sys.argv[2]))).iter_errors(
        json.load(open(sys.argv[1]))):
    print("/".join(map(str, e.absolute_path)), e.message[:200])
END
)
    matches 'a named profile is what tests/profile.schema.json says' '^$'
else
    skip 'a named profile is what tests/profile.schema.json says' 'no python3-jsonschema'
fi
said=$("$symbolize" "$out/profile.json" 2>/dev/null | "$symbolize" - 2>"$out/said" |
    cmp - "$out/named.json" 2>&1; cat "$out/said")
matches 'a named profile can be named again, and from standard input' '!differ' 'places named'
name --fold
matches '--fold leaves the arguments of templates out' '^pie 1001 .*\|outer\(std::vector<>&\):8> '
if command -v clang++ >/dev/null && app clang clang++; then
    profile ./clang
    name
    matches 'debug information without a table of addresses is read' \
        "^clang 1003 \[hidden(\(int\))?\] app.cpp:$(line_of '// hidden') " \
        "^clang 1001 \[fill.*\] .*\|deeper[^|]*\|outer"
else
    skip 'debug information without a table of addresses is read' 'no clang++'
fi
if app libcxx clang++ -stdlib=libc++; then
    profile ./libcxx
    name
    matches 'the library of LLVM is passed over' \
        "^libcxx 1001 \[fill.*\] app.cpp:$(line_of '// fill') <.*\*\|fill" '^libcxx 1002 \[exported'
else
    skip 'the library of LLVM is passed over' 'no libc++'
fi

# -- separate debug files --
cp app whole && id=$(id_of app)
objcopy --only-keep-debug whole split.debug && cp whole split && strip -s split &&
    objcopy --add-gnu-debuglink=split.debug split
profile ./split
name
matches 'a debug file that .gnu_debuglink names is read' "^split 1003 \[hidden.*app.cpp:$(line_of '// hidden') "
tree=$out/tree/.build-id/$(echo "$id" | cut -c1-2)
mkdir -p "$tree" && mv split.debug "$tree/${id#??}.debug"
name
matches 'a stripped program has the names of its dynamic symbols alone' \
    '^split 1002 \[exported\] split\+0x[0-9a-f]*:0 ' '^split 1003 \[\] split\+0x' \
    '^split 1001 \[outer' 'split: 1 of [0-9]* places not named: no symbol'
name --debug-dir "$out/tree"
matches 'a debug file below --debug-dir is found by build id' "^split 1003 \[hidden.*app.cpp:"
(cd "$out" && "$symbolize" --debug-dir tree profile.json >named.json 2>/dev/null)
said=$(python3 -c "$places" "$out/named.json")
matches 'a relative --debug-dir is as good' "^split 1003 \[hidden.*app.cpp:"
mv split moved
name --debug-dir "$out/tree"
matches 'a module that is gone is named by its debug file' 'status 0' "^split 1003 \[hidden.*app.cpp:"
mkdir -p "$out/root$PWD" && mv moved "$out/root$PWD/split"
name --debug-dir "$out/tree" --sysroot "$out/root"
matches 'modules of another machine are read below --sysroot' '^split 1002 \[exported\] ' '^split 1003 \[hidden'
if command -v xz >/dev/null; then
    nm -D whole --format=posix --defined-only | cut -d' ' -f1 | sort >dynamic
    nm whole --format=posix --defined-only | awk '$2 ~ /[Tt]/ { print $1 }' | sort | comm -13 dynamic - >more
    cp whole mini && objcopy --only-keep-debug whole mini.debug &&
        objcopy -S --remove-section .comment --keep-symbols=more mini.debug mini.symbols &&
        xz -f mini.symbols && strip -s mini &&
        objcopy --add-section .gnu_debugdata=mini.symbols.xz mini
    rm -f mini.debug
    profile ./mini
    name
    matches 'the functions of .gnu_debugdata are named' '^mini 1003 \[hidden\(int\)\] mini\+0x'
else
    skip 'the functions of .gnu_debugdata are named' 'no xz'
fi

# -- formats of debug information --
for how in -gdwarf-2 -gdwarf-3 -gdwarf-4 -gdwarf-5 -gz=zlib -gz=zstd -gz=zlib-gnu -gsplit-dwarf; do
    if ! app format "$cxx" $how; then
        skip "debug information of $how is read" "$cxx does not write it"
        continue
    fi
    profile ./format
    name
    matches "debug information of $how is read" "^format 1003 \[hidden(\(int\))?\] app.cpp:$(line_of '// hidden') " \
        "^format 1001 \[fill.*\] app.cpp:$(line_of '// fill') <.*\|deeper[^|]*:7\|outer[^|]*:8> \$" \
        "^format 1004 \[app::method\(long\)\] app.cpp:$(line_of '// method') "
done
mv ./*.dwo "$out/tree" 2>/dev/null # the parts of -gsplit-dwarf
name
matches 'without the files of -gsplit-dwarf functions keep the names of their symbols' '!wrong' \
    '^format 1002 \[exported\(?\)?\] ' '^format 1003 \[hidden(\(int\))?\] '

# -- another file than the one that ran --
cp whole linked && strip -s linked && sed 's/hidden/wrong/g' "$out/app.cpp" >wrong.cpp &&
    "$cxx" -O2 -g -no-pie wrong.cpp -o wrong.debug && objcopy --add-gnu-debuglink=wrong.debug linked
profile ./linked
name
matches 'the debug file of another program, with the right checksum, is not read' '!wrong' \
    '^linked 1002 \[exported\] linked\+0x' '^linked 1003 \[\] linked\+0x'
objcopy --only-keep-debug whole wrong.debug
name
matches 'nor is the right one with a wrong checksum, where a build id does not tell' '!wrong' \
    '^linked 1003 \[(hidden.*)?\] '
cp whole other && profile ./other && "$cxx" -O2 -g -rdynamic -no-pie wrong.cpp -o other
name
matches 'a program replaced since is said, and not guessed' 'status [01]' \
    "other: 7 of 7 places not named: its build id is '$(id_of other)', and that of .*'$id'" \
    '!wrong' '^other 1003 \[\] other\+0x'
app noid "$cxx" -Wl,--build-id=none
touch -d '1 hour ago' noid
sleep 0.02
profile ./noid
name
matches 'a program without a build id is named as long as it is not changed' '^noid 1003 \[hidden'
cp noid copy && mv copy noid
name
matches 'a program without a build id that was changed since is not named' '^noid 1003 \[\]' \
    'noid: 7 of 7 places not named: it has no build id, and changed'
profile ./pie
mv pie gone
name --sysroot "$out/none" 2>&1
matches 'a --sysroot that is not there is bad input' 'status 2' 'none: No such file'
mkdir -p "$out/none"
name --sysroot "$out/none"
matches 'of another machine, with none of its files, nothing is named' 'status 1' \
    'pie: 7 of 7 places not named: No such file or directory' '0 of [0-9]* places named' '^pie 1003 \[\]'

# -- every name is that of a symbol which contains the address --
cat >"$out/truth.py" <<'END'
import json, os, re, subprocess, sys
def symbols(path):
    found = []
    for flags in (["-D"], []):
        text = subprocess.run(["nm", "-S", "--defined-only", *flags, path], capture_output=True,
                              text=True).stdout
        found += [line.split() for line in text.splitlines()]
    names = "\n".join(f[3].split("@")[0] for f in found if len(f) == 4)
    plain = subprocess.run(["c++filt"], input=names, capture_output=True, text=True).stdout
    found = [f for f in found if len(f) == 4]
    return [(int(f[0], 16), int(f[1], 16), f[3].split("@")[0], p)
            for f, p in zip(found, plain.splitlines())]
known, named = {}, 0
for s in json.load(open(sys.argv[1]))["sites"]:
    frame = s.get("inlined", [s["site"]])[-1]
    name, path, ident = frame["function"], s["module"], s["build_id"]
    debug = "/usr/lib/debug/.build-id/%s/%s.debug" % (ident[:2], ident[2:])
    if not name: continue
    if path not in known:
        known[path] = symbols(path) + (symbols(debug) if os.path.exists(debug) else [])
    here = [k for k in known[path] if k[0] <= s["offset"] < k[0] + k[1]]
    named += 1
    # a part of a function, and the hashes of Rust, are left out
    if not any(name in (re.sub(r"\.(part|constprop|isra|cold|lto_priv).*", "", k[2]), *k[2:], k[3].split("(")[0]) or
               name == re.sub(r"::h[0-9a-f]{16}$|\[[0-9a-f]+\]", "", k[3]) for k in here):
        print("wrong: %s at %s+0x%x, not %s" % (name, path, s["offset"], [k[3] for k in here]))
print("right: %d named" % named)
END
cp whole pie
profile ./whole
name
said=$(python3 "$out/truth.py" "$out/named.json" 2>&1)
matches 'every name of a program is right' '!wrong' 'right: [1-9]'
cat >load.sql <<'END'
create table t(a integer, b text);
with recursive c(i) as (select 1 union all select i + 1 from c where i < 2000)
insert into t select i, hex(randomblob(50)) from c;
create index x on t(b);
END
real() { # COMMAND...: as Debian ships it
    if ! command -v "$1" >/dev/null; then skip "$1: every name is right, also those of the dynamic symbols alone" "no $1"; return; fi
    profile "$@"
    name
    said="$said
$(python3 "$out/truth.py" "$out/profile.json" 2>&1)
$(python3 "$out/truth.py" "$out/named.json" 2>&1)"
    matches "$1: every name is right, also those of the dynamic symbols alone" 'status [01]' '!wrong' 'right: '
}
real ls -l /usr/bin
real sqlite3 :memory: '.read load.sql'
real python3 -c 'import json; json.dumps([str(i) for i in range(1000)])'
cat >main.rs <<'END'
#[inline(never)] fn work(n: usize) -> Vec<u8> { Vec::with_capacity(n) }
fn main() { std::mem::forget(work(std::env::args().count() + 1007)); }
END
if rustc --version >/dev/null 2>&1; then
    rustc -g -O main.rs -o rust && profile ./rust
    name
    said="$said
$(python3 "$out/truth.py" "$out/named.json" 2>&1)"
    matches 'the library of Rust is passed over' '!wrong' '^rust 1008 \[main::work\] main.rs:1 .*\*\|main::work:1> $'
else
    skip 'the library of Rust is passed over' 'no rustc'
fi

# -- the interposer --
cat >waits.cpp <<'END'
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
char *volatile kept;
namespace app { __attribute__((noinline)) void method(long size) { kept = new char[(size_t)size]; } }
static void child_ended(int) { _exit(99); }
int main(int argc, char **argv) { /* ms to work, FILE to replace this program with, "fork" */
    if (argc == 1) signal(SIGCHLD, child_ended);
    if (argc > 1 && atoi(argv[1]) < 0) usleep((unsigned)-atoi(argv[1]) * 1000u); /* or to sleep */
    while (argc > 1 && clock() / (CLOCKS_PER_SEC / 1000) < atoi(argv[1])) {}
    if (argc > 2 && *argv[2] && rename(argv[2], argv[0])) return 1;
    if (argc > 3 && fork()) return wait(NULL) < 0 || !(kept = new char[10]);
    app::method(1009);
}
END
"$cxx" -g -O1 -rdynamic waits.cpp -o waits && mkdir -p alone stub usr/lib usr/bin &&
    cp "$so" alone && cp "$so" stub && cp "$so" usr/lib && cp "$symbolize" usr/bin/memlord-symbolize
printf '#!/bin/sh\necho "$@" >>%s/asked\n' "$PWD" >stub/symbolize && chmod +x stub/symbolize
# LIBRARY [NAME=VALUE]... COMMAND...
preloaded() { library=$1; shift; said=$(env LD_PRELOAD="$PWD/$library/libmemlord_preload.so" "$@" 2>&1; echo "status $?"); }
asked() { # COMMAND...: how often symbolize is run
    rm -f asked
    preloaded stub "$@"
    said="asked $(cat asked 2>/dev/null | wc -l)"
}
mkdir -p stuck && cp "$so" stuck && printf '#!/bin/sh\nexec sleep 1000\n' >stuck/symbolize && chmod +x stuck/symbolize
{ preloaded stuck MEMLORD_SYMBOLS=1 ./waits; echo "$said" >stuck/said; } &
preloaded alone MEMLORD_SYMBOLS=1 ./waits
matches 'the interposer alone has the names of dynamic symbols, demangled, and says what is missing' \
    '^memlord: MEMLORD_SYMBOLS has no effect: symbolize is not there \(make build/symbolize\)$' \
    '1009 B .* app::method\(long\) waits\+0x'
preloaded usr/lib MEMLORD_SYMBOLS=1 ./waits
printf '%s\n' "$said" >said && said=$(unbroken said)
matches 'the interposer asks an installed symbolize, of which the program sees nothing' 'status 0' \
    "1009 B .* app::method\(long\) .*waits.cpp:$(grep -n 'void method' waits.cpp | cut -d: -f1)"
asked ./waits
matches 'a short process does not ask symbolize' 'asked 0'
asked ./waits 1100
matches 'a process that took a second of the processor asks it once' 'asked 1'
asked ./waits -1100
matches 'one that slept does not' 'asked 0'
cp waits bare && strip -s bare
asked ./bare 1100
matches 'a stripped one, which it cannot name, does not' 'asked 0'
asked MEMLORD_SYMBOLS=0 ./waits 1100
matches 'MEMLORD_SYMBOLS=0 does not' 'asked 0'
asked MEMLORD_SYMBOLS=1 ./waits
matches 'MEMLORD_SYMBOLS=1 does at once' 'asked 1'
hint='MEMLORD_SYMBOLS=1 names the function and line of each place'
preloaded stub ./waits
said="$(echo "$said" | grep -c "$hint") times: $said"
matches 'the report of a short process says once how to name its places' '^1 times' "^labels: $hint\$"
preloaded alone ./waits
matches 'where there is no symbolize, it says how to build one' '1009 B' "!$hint" \
    '^labels: make build/symbolize, to name the function and line of each place$'
preloaded stub ./bare
matches 'nor where nothing has more names' '1009 B' "!$hint"
preloaded stub MEMLORD_SYMBOLS=0 ./waits
matches 'nor where the user wants none' '1009 B' "!$hint"
preloaded stub MEMLORD_REPORT=hint.json ./waits
said=$(cat hint.json)
matches 'and only TEXT has it' '"labels": ?null' "!$hint"
asked ./waits 1100 '' fork
matches 'a child that was forked a moment ago does not' 'asked 1'
printf '#!/bin/sh\nprintf "x\\0y"\n' >stub/symbolize
preloaded stub MEMLORD_SYMBOLS=1 ./waits
matches 'an answer that is cut off names nothing' '1009 B .* app::method\(long\) waits\+0x'
printf '#!/bin/sh\nkill -9 $$\n' >stub/symbolize
preloaded stub MEMLORD_SYMBOLS=1 ./waits
matches 'a symbolize that dies names nothing' '1009 B .* app::method\(long\) waits\+0x'
sed 's/method/wronged/g' waits.cpp >wrong.cpp && "$cxx" -g -O1 -rdynamic wrong.cpp -o wrong
cp waits self
preloaded usr/lib MEMLORD_SYMBOLS=1 ./self 0 wrong
matches 'a program replaced while it ran has no names of the other' '1009 B .* app::method\(long\) self.*\+0x' '!wrong'
cat >unlinks.cpp <<'END'
#include <stdlib.h>
#include <unistd.h>
void *volatile kept;
__attribute__((noinline)) void method(size_t size) { kept = malloc(size); }
int main(int, char **argv) { method(1009); return unlink(argv[0]); }
END
"$cxx" -g -O1 -rdynamic unlinks.cpp -o unlinks
preloaded usr/lib MEMLORD_SYMBOLS=1 ./unlinks
matches 'a program deleted while it ran has the names of its dynamic symbols' 'status 0' \
    '1009 B .* (_Z6methodm|method\(unsigned long\)) unlinks.*\+0x'
preloaded usr/lib MEMLORD_SYMBOLS=1 MEMLORD_REPORT=asked.json ./whole
said=$(python3 -c "$places" asked.json)
matches 'what a library of the language does is put down to its caller' \
    "^whole 1001 \[fill.*\] app.cpp:$(line_of '// fill') <std::.*\*\|fill[^|]*:6\|deeper[^|]*:7\|outer[^|]*:8> "
wait
said=$(cat stuck/said)
matches 'a symbolize that hangs is ended' 'status 0' '1009 B .* app::method\(long\) waits\+0x'

# -- bad input --
cd "$out" || exit 1
profile bin/whole
cp profile.json good.json
edit() { python3 -c "import json; d = json.load(open('good.json')); $1; json.dump(d, open('profile.json', 'w'))"; }
refused() { # NAME PATTERN
    said=$("$symbolize" profile.json 2>&1 >stdout; echo "status $?"; wc -c <stdout)
    matches "$1" 'status 2' "^symbolize: profile.json: $2" '^0$'
}
head -c 3000 good.json >profile.json && refused 'a profile that is cut off is refused' 'not JSON, or cut off, at line [0-9]'
: >profile.json && refused 'an empty file is refused' 'is empty'
edit 'd["schema"] = "memlord/1"' && refused 'an older profile is refused' 'schema memlord/1 is older than memlord/2'
edit 'd["schema"] = "memlord/9"' && refused 'a newer profile is refused' 'schema memlord/9 is newer than memlord/2'
edit 'd = [d]' && refused 'JSON that is no profile is refused' "no key 'schema'"
rm profile.json && refused 'a profile that is not there is refused' 'No such file'
mkfifo pipe
for module in /dev/zero "$out/pipe" "$out" relative "/evil\\\\n\\\\x1b[31m" "$out/good.json"; do
    edit "[s.update(module='$(printf "$module")') for s in d['sites']]"
    name
    matches "a module that is no program is said: ${module##*/}" 'status 1' 'places not named' \
        "!^symbolize:.*$(printf '\033')" '!^\[31m: '
done
edit "[s.update(offset=o) for s, o in zip(d['sites'], [-1, 2**53, 1e300, 0, 2**40, 0.5, 'x', None])]"
name
matches 'offsets that are in no module name nothing' 'status 1' '^symbolize: 0 of [1-9] places named'
edit "d['sites'] = [1, None, [], {'module': 1, 'offset': 1, 'build_id': ''}, {}]; d['strings'] = 7"
said=$("$symbolize" profile.json 2>&1 >stdout; echo "status $?")
matches 'sites of other types are left as they are' 'status 0' '0 of 0 places named'
edit "
place = dict([s for s in d['sites'] if s['alloc_bytes'] == 1003][0])
site = dict(function='', file='', line=0)
of = {k: place[k] for k in ('module', 'build_id')}
d['sites'] = []
d['new'] = [{k: dict(site, offset=place['offset'], **of)} for k in 'ab']
d['stacks'] = {'modules': [1, of], 'frames': [dict(site=dict(site), module=m, offset=place['offset'])
                                              for m in (1, 0, 2, -1, 1e99, None, '1')]}"
said=$("$symbolize" profile.json 2>&1 >named.json
    python3 -c 'import json, sys; d = json.load(open("named.json"))
print([list(n.values())[0]["line"] for n in d["new"]], [f["site"]["line"] for f in d["stacks"]["frames"]])')
line=$(line_of '// hidden')
matches 'a place is named wherever it stands, its module by its path or its number' \
    "\[$line, $line\] \[$line, 0, 0, 0, 0, 0, 0\]" '3 of 3 places named'
# A program whose debug information is damaged, in 24 ways: never a hang, and the report is whole.
cat >damage.py <<'END'
import random, re, subprocess, sys
source, target, seed = sys.argv[1:]
random.seed(seed)
data = bytearray(open(source, "rb").read())
sections = re.findall(r"\] (\.debug_\w+) +\w+ +[0-9a-f]+ ([0-9a-f]+) ([0-9a-f]+) ",
                      subprocess.run(["readelf", "-SW", source], capture_output=True, text=True).stdout)
assert len(sections) >= 4, sections
for name, offset, size in sections:
    for _ in range(random.choice((0, 1, 20))):
        at = int(offset, 16) + random.randrange(int(size, 16))
        data[at] = random.choice((0, 1, 0x7f, 0x80, 0xff, random.randrange(256)))
open(target, "wb").write(data)
END
said=
for seed in $(seq 24); do
    python3 damage.py bin/waits bin/damaged $seed && chmod +x bin/damaged || said="$said no program"
    one=$(cd bin && env LD_PRELOAD="$PWD/usr/lib/libmemlord_preload.so" MEMLORD_SYMBOLS=1 timeout -s KILL 60 ./damaged 2>&1
        echo "status $?")
    printf '%s\n' "$one" | grep -q '1009 B .*damaged.*+0x\|1009 B .*:7' &&
        printf '%s\n' "$one" | grep -q '^status 0$' || said="$said seed $seed: $one"
done
matches 'damaged debug information harms neither the program nor its report' '^$'

# -- code that was made at run time: the perf map of the process --

# Names places in no module, at these addresses, by the map at root/tmp. `said` has the functions,
# and what is said.
made() { # ADDRESS...; `also`: another edit
    edit "${also:-}
d['sites'] = []
d['stacks'] = {'modules': [], 'frames': [dict(site=dict(function='', file='0x1', line=0), module=None,
    offset=int(o, 16)) for o in '$*'.split()]}"
    said=$("$symbolize" --sysroot "$out/root" -o named.json profile.json 2>&1
        python3 -c 'import json
print([f["site"]["function"] for f in json.load(open("named.json"))["stacks"]["frames"]])')
}
map=root/tmp/perf-$(python3 -c 'import json; print(json.load(open("good.json"))["metadata"]["pid"])').map
mkdir -p root/tmp
made 1000
matches 'without a perf map code that was made at run time has no name, and a line says so' \
    "^\[''\]" "1 of 1 places in code made at run time not named: $out/$map"
printf '%s\n' '1000 100 first a.js:1' '1080 10 inner' '7f0000000000 20 js:*~far away' '1085 2 none' >$map
printf '2000 10 cut off' >>$map
made 1000 10ff 1100 1080 1087 7f000000001f 7f0000000020 2000
matches 'a perf map names it; of two lines with an address the later counts' \
    "^\['first a.js:1', 'first a.js:1', '', 'inner', 'inner', 'js:\*~far away', '', ''\]" '3 of 8 places'
printf '1000 10 a\033[31mb\n' >$map && made 1000
matches 'a name in it has no controls' "^\['a[^1]*1b\[31mb'\]"
printf '1000 10 early\n' >$map && touch -d 2001-01-01 $map && made 1000
matches 'that of an earlier process is refused' "^\[''\]" 'older than the program'
touch -d 2001-01-02 $map && also="d['metadata']['started_at'] = '2001-01-01T00:00:00.000Z'" && made 1000
matches 'that of a program whose places took long to name is not' "^\['early'\]"
also=
printf '1000 10 a\nrubbish\n1000\n1000 10\nx 10 a\n' >$map && made 1000
matches 'one of another form is refused' "^\[''\]" 'not used: 4 of its lines'
head -c 100000 /dev/urandom >$map && made 1000
matches 'so is rubbish' "^\[''\]" 'not used: [0-9]* of its lines'
mv $map elsewhere && ln -s "$out/elsewhere" $map && made 1000
matches 'and a link' "^\[''\]" 'perf-.*map: not used: '
rm $map && mkfifo $map && made 1000
matches 'and a pipe, which is not waited for' "^\[''\]" 'not used: it is no file'
rm $map
python3 -c "print(chr(10).join('%x 10 f%d' % (4096 + 16 * i, i) for i in range(1100000)))" >$map
made 1000 1000fff 1001000
matches 'a large one is read up to 1,048,576 lines' "^\['f0', 'f1048575', ''\]" 'behind line 1048576 is left out'
rm $map

cp good.json profile.json
said=$("$symbolize" profile.json 2>&1 >/dev/full; echo "status $?")
matches 'a full disk is said' 'status 2' 'No space left'
for wrong in '' '-x good.json' 'good.json good.json' '--debug-dir' '-o' '--serve'; do
    # shellcheck disable=SC2086 # words of a command
    said=$("$symbolize" $wrong 2>&1 </dev/null; echo "status $?")
    matches "wrong arguments are answered with the usage: '$wrong'" 'status 2' '^usage: symbolize'
done
plan
