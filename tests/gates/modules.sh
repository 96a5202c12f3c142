#!/bin/sh
# tests/gates/modules.sh: src/ as tests/gates/ demands it, speaking TAP: the products are the join of
# the modules, each file compiles alone, the linker finds every private name, and a module uses what
# it includes. Each check is shown to fail.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/gates.sh
flags="$warn -D_DEFAULT_SOURCE -DMLI_MODULES -Isrc -I. -pthread -isystem $out/stb"
cuda="-include memlord.h -isystem tests/fake_cuda/include"

python3 src/join.py check >"$why" 2>&1
verdict $? 'memlord.h and memlord_cuda.h are the join of src/'

flags_of() { case $1 in src/cuda/*) echo "$flags $cuda" ;; *) echo "$flags" ;; esac; }

# NAME COMPILER SUFFIX: every file compiles by itself.
alone() {
    : >"$why"
    for file in src/[bcelors]*/*."$3"; do
        case $file in src/api/* | src/tools/* | src/packaging/*) continue ;; esac
        $2 $(flags_of "$file") "$file" -o "$out/$(echo "$file" | tr / _).o" >>"$why" 2>&1 ||
            echo "$file does not compile" >>"$why"
    done
    [ ! -s "$why" ]
    verdict $? "$1"
}
alone 'every header compiles alone as C99' 'gcc -std=c99 -fsyntax-only -x c' h
alone 'every header compiles alone as C++11' 'g++ -std=c++11 -fsyntax-only -x c++' h
alone 'every body compiles to an object' 'gcc -std=c99 -O0 -fvisibility=hidden -c' c

: >"$why"
ld -r -o "$out/memlord.o" $(ls "$out"/src_*.c.o | grep -v src_cuda_) >>"$why" 2>&1 &&
    ld -r -o "$out/memlord_cuda.o" "$out"/src_cuda_*.o >>"$why" 2>&1 &&
    ! nm -u "$out/memlord.o" | grep -E 'U (mli|memlord)_' >>"$why" && ! nm -u "$out/memlord_cuda.o" | grep 'U mli_' >>"$why"
verdict $? 'the linker finds every private name of the modules'

# The values of all public enumerators and the offsets of all statistics, as a compiler has them.
names=$(ctags -x --c-kinds=e memlord.h | awk '$1 ~ /^MEMLORD_/ { print $1 }')
members=$(sed -n '/^typedef struct memlord_stats {/,/^}/s/^    uint[0-9]*_t \([a-z_]*\);.*/\1/p' memlord.h)
values() { # HEADER FOLDER
    {
        printf '#include "%s"\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n' "$1"
        for name in $names; do printf '    printf("%%s %%d\\n", "%s", (int)%s);\n' "$name" "$name"; done
        for name in $members; do
            printf '    printf("%%s %%d\\n", "%s", (int)offsetof(memlord_stats, %s));\n' "$name" "$name"
        done
        echo 'return 0; }'
    } | gcc -std=c99 -I"$2" -x c - -o "$out/values" && "$out/values"
}
values memlord.h . >"$out/written.txt" 2>"$why" && values api/api.h src >"$out/repeated.txt" 2>>"$why" &&
    diff "$out/written.txt" "$out/repeated.txt" >>"$why" && [ "$(wc -l <"$out/written.txt")" -ge 100 ]
verdict $? 'names that join.py writes out have the values that src/ gives them'

sed '/stop here if you only want the API/q' memlord.h >"$out/api.h" && ! grep -n '" "' "$out/api.h" >"$why"
verdict $? 'comments that join.py writes out have no quotation marks between two literals'

python3 tests/modules.py >"$why" 2>&1
verdict $? 'each module includes what it uses, and has at most 1200 lines'

python3 tests/state.py >"$why" 2>&1
verdict $? 'modules touch the state of others no more often than allowed'

python3 tests/api.py >"$why" 2>&1
verdict $? 'every public function has a comment of its own, and there are at most 159'

# -- each check fails where it should --

# NAME EXPECTED COMMAND [TOOL]: after the command in a copy of src/, a tool (or the index) says what is
# expected.
tree=$out/tree
planted() {
    rm -rf "$tree" && mkdir -p "$tree" && cp -R src memlord.h memlord_cuda.h "$tree"
    (cd "$tree" && eval "$3") || echo 'the fault was not planted'
    case ${4:-join} in
    join) (cd "$tree" && python3 src/join.py check) ;;
    index) sed -n '/All groups/,/>>example/p' "$tree/memlord.h" && false ;;
    *) top=$PWD && (cd "$tree" && python3 src/join.py check && python3 "$top/tests/$4.py") ;;
    esac >"$why" 2>&1
    status=$?
    [ $status = 1 ] && grep -qF "$2" "$why"
    verdict $? "$1"
}
planted 'a product that was edited by hand is found' 'make headers joins again' 'echo >>memlord.h'
planted 'a circle of modules is named' 'a circle: books/counters -> books/map -> books/counters' \
    "sed -i 's|^#include \"os/knobs.h\"|&\n#include \"books/counters.h\"|' src/books/map.h"
planted 'an include of a higher folder is named' 'src/base/text includes books/map.h, which is in a higher folder' \
    "sed -i 's|^#include \"os/knobs.h\"|&\n#include \"books/map.h\"|' src/base/text.h"
planted 'CRLF is named with its file' 'src/books/map.h: a line ends with CRLF' "sed -i 's/\$/\r/' src/books/map.h"
planted 'a missing file is named' 'src/base/log includes base/text.h: there is no such module' 'rm src/base/text.*'
planted 'a use of a table that is not there is named' 'src/api/ledger.h:24: no use of a table' \
    "sed -i 's/ MLI_RESULTS(MLI_X)/ MLI_RESULT(MLI_X)/' src/api/ledger.h"
planted 'a body without a header is named' 'src/base/text.c has no header src/base/text.h' 'rm src/base/text.h'
planted 'a header without its guard is named' 'it has no guard MLI_BASE_TEXT_H' \
    "sed -i 's/MLI_BASE_TEXT_H/TEXT_H/' src/base/text.h"
planted 'the include of a body is named' 'a module includes headers' \
    "sed -i 's|^#include \"os/knobs.h\"|&\n#include \"base/text.c\"|' src/books/map.h"
planted 'a name of a module that is not included is named' \
    'src/services/bands.c uses mli_thread and does not include books/threads.h' \
    "sed -i '/books\/threads.h/d' src/services/bands.[ch] && python3 src/join.py" modules
planted 'accesses to the state of another module are named' 'src/books/limits.c:' \
    "printf 'int mli_peek(memlord *lord);\nint mli_peek(memlord *lord) {\n    return %s lord->threads.orphan != NULL;\n}\n' \
        '!lord->counters.batch + !lord->counters.epoch.v + !lord->tags.births.v +' >>src/books/limits.c && python3 src/join.py" state
planted 'a parameter of a call in the thread-local state is named' 'or the reverse: site' \
    "sed -i 's/^    uint32_t exited;/    void *site;\n&/' src/base/ledger.h && python3 src/join.py" state
planted 'a module of more than 1200 lines is named' 'src/books/map has ' \
    "yes '/* a line of a long module */' | head -n 1200 >>src/books/map.c && python3 src/join.py" modules

planted 'a function without a comment of its own is named' 'memlord_allocated has no comment of its own' \
    "sed -i 's|^MEMLORD_API uint64_t memlord_allocated|\n&|' src/api/books.h && python3 src/join.py" api
planted 'a new function of the API stands in the index by itself' \
    'blocks        what lives, and what leaks: memlord_blocks_counted, _each, _top,' \
    "sed -i 's|^/\* -- blocks.*|&\n/* Counts. */\nMEMLORD_API int memlord_blocks_counted(void);|' src/api/books.h && python3 src/join.py" index

for call in 'where 0:has the lines 1 to' 'where x:has the lines 1 to' 'where 1 stb_ds.h:no product' 'frobnicate:first lines'; do
    python3 src/join.py ${call%%:*} >"$why" 2>&1
    [ $? = 1 ] && grep -qF "${call#*:}" "$why"
    verdict $? "join.py ${call%%:*} says what is wrong"
done
line=$(grep -n '^static MLI_COLD memlord_result mli_ledger_make' memlord.h | cut -d: -f1)
[ "$(sed -n "$(python3 src/join.py where "$line" | cut -d: -f2)p" src/embed/lifecycle.c)" = "$(sed -n "${line}p" memlord.h)" ]
verdict $? 'join.py where tells the line of src/ behind a line of memlord.h'

plan
