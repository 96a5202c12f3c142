#!/bin/sh
# tests/matrix.sh: every way to compile the header, speaking TAP. With MEMLORD_TEST_ALL=1 each
# compiler in every standard; without it the oldest of C, the oldest and a recent one of C++, half of
# these with gcc and half with clang, and the other compiler only reads them.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
out=build/matrix
list=$out/list
m=tests/matrix

cc_list="gcc clang"
standards='gcc:c99 clang:c++11 gcc:c++20' read_only='clang:c99 gcc:c++11 clang:c++20' optimized=-O0
if [ -n "${MEMLORD_TEST_ALL:-}" ]; then
    optimized=-O1 # some warnings need it; the suites are compiled so, too
    standards= read_only=
    for std in c99 c11 c17 c2x c++11 c++14 c++17 c++20 c++2b; do standards="$standards gcc:$std clang:$std"; done
fi
both="-I. $optimized -pthread -Wall -Wextra -pedantic -Wconversion -Wshadow -Wundef -Werror"
only_c="-Wsign-conversion -Wcast-qual -Wstrict-prototypes"

compiler() { # COMPILER STANDARD: the command that compiles for it
    case $2 in
    c++*) echo "$(echo "$1" | sed 's/gcc/g++/;s/clang/clang++/') -std=$2 $both -x c++" ;;
    *) echo "$1 -std=$2 $both $only_c -x c" ;;
    esac
}

word() { echo "$1" | sed 's/+/x/g'; } # c++11 as part of a name

every_mode() { # COMPILER STANDARD
    cmd=$(compiler "$1" "$2")
    w=$1_$(word "$2")
    o=$out/$w
    case $2 in c++*) api="$cmd -Wold-style-cast" ;; *) api="$cmd -Wc++-compat" ;; esac
    check "$1 $2: the API alone" "$api -DUSE=use_$w -c $m/use.c -o ${o}_use.o"
    check "$1 $2: the implementation" "$cmd -c $m/impl.c -o ${o}_impl.o"
    check "$1 $2: the header as a file of its own, nothing in it unused" \
        "$cmd -DMEMLORD_IMPLEMENTATION -fsyntax-only memlord.h"
    check "$1 $2: compiled out" "$api -DMEMLORD_DISABLE -DUSE=off_$w -c $m/use.c -o ${o}_off.o"
    check "$1 $2: private to a file" \
        "$cmd -DMEMLORD_STATIC -DMEMLORD_IMPLEMENTATION -DUSE=static_$w -c $m/use.c \
             -o ${o}_static.o"
    check "$1 $2: with a prefix" \
        "$cmd -DMEMLORD_PREFIX=p_$w -DMEMLORD_IMPLEMENTATION -DUSE=prefix_$w -c $m/use.c \
             -o ${o}_prefix.o"
    check "$1 $2: without the reports for other tools" \
        "$cmd -O0 -DMEMLORD_NO_REPORTS -c $m/impl.c -o ${o}_few.o"
    check "$1 $2: the shim" "$cmd -DUSE=shim_$w -c $m/shim.c -o ${o}_shim.o"
    for mode in use off static prefix shim; do uses="$uses X(${mode}_$w)"; done
    objects="$objects ${o}_use.o ${o}_off.o ${o}_static.o ${o}_prefix.o ${o}_shim.o"
    case $2 in c++*) cpp_modes "$1" "$2" ;; esac
}

cpp_modes() { # COMPILER STANDARD: the C++ section in each mode, with variables of every_mode
    host="$api -fno-exceptions -fno-rtti $m/cpp.cpp -c"
    imp="-DMEMLORD_IMPLEMENTATION -Wno-old-style-cast"
    check "$1 $2: the C++ section" "$host -DUSE=cpp_$w -o ${o}_cpp.o"
    check "$1 $2: the C++ section, compiled out" \
        "$host -DMEMLORD_DISABLE -DUSE=cppoff_$w -o ${o}_cppoff.o"
    check "$1 $2: the C++ section, private to a file" \
        "$host -DMEMLORD_STATIC $imp -DUSE=cppstatic_$w -o ${o}_cppstatic.o"
    check "$1 $2: the C++ section, with a prefix" \
        "$host -DMEMLORD_PREFIX=q_$w $imp -DUSE=cppprefix_$w -o ${o}_cppprefix.o"
    check "$1 $2: operator new with books" "$api examples/new.cpp -fsyntax-only"
    check "$1 $2: operator new with books and without exceptions" \
        "$api -fno-exceptions -fno-rtti examples/new.cpp -fsyntax-only"
    for mode in cpp cppoff cppstatic cppprefix; do
        uses="$uses X(${mode}_$w)" objects="$objects ${o}_$mode.o"
    done
}

for_each_standard() { # FUNCTION
    for pair in $standards; do $1 ${pair%:*} ${pair#*:}; done
}

read_alone() { # COMPILER STANDARD
    check "$1 $2: the implementation is read" "$(compiler "$1" "$2") -fsyntax-only $m/impl.c"
    uses_alone "$1" "$2"
}

# All of them, and a host with its own stb_ds, around each compiler's implementation.
link_and_run() { # COMPILER STANDARD
    w=$1_$(word "$2")
    check "$1 $2: its implementation serves every standard in one program" \
        "g++ -pthread $objects $out/host_stb.o $out/uses.o $out/${w}_impl.o -o $out/${w}_all;
         $out/${w}_all"
}

# What an object defines for others, without the functions of the test itself and the weak
# ones that every C++ object brings.
names() {
    echo "nm -g --defined-only -f posix $1 | awk '\$2 !~ /[vVwW]/ { print \$1 }' |
          grep -vE '^(use|off|static|prefix|shim)_'"
}

symbols() { # COMPILER STANDARD
    w=$1_$(word "$2")
    check "$1 $2: only memlord_ names are defined" \
        "$(names $out/${w}_impl.o) | grep -v '^memlord_' || true"
    check "$1 $2: and they are defined" "test \$($(names $out/${w}_impl.o) | wc -l) -ge 50"
    check "$1 $2: private, none" "$(names $out/${w}_static.o) || true"
    check "$1 $2: compiled out, none" "$(names $out/${w}_off.o) || true"
    check "$1 $2: with a prefix, only prefixed ones" \
        "$(names $out/${w}_prefix.o) | grep -v '^p_${w}_memlord_' || true;
         test \$($(names $out/${w}_prefix.o) | wc -l) -ge 50"
    check "$1 $2: with a prefix, no other is wanted" \
        "nm -u $out/${w}_prefix.o | grep 'U memlord_' || true"
}

# Two functions are the same when their instructions are, addresses aside.
code="objdump -d --no-show-raw-insn"
nothing_left() { # COMPILER STANDARD
    cmd=$(compiler "$1" "$2")
    o=$out/$1_$(word "$2")_none
    body="sed -n '/^ /{s/^[^\\t]*\\t//;p}'"
    check "$1 $2: compiled out, no instruction is left" \
        "$cmd -O2 -fno-asynchronous-unwind-tables -ffunction-sections -c $m/disabled.c -o $o.o;
         $code -j .text.with $o.o | $body >$o.with;
         $code -j .text.without $o.o | $body >$o.without;
         test -s $o.without; cmp $o.with $o.without"
    check "$1 $2: compiled out, no data is left" \
        "size -A $o.o | awk '/^\\.(ro)?data|^\\.bss/ && \$2 > 0'"
}

# What is left without the reports for other tools reads and writes no other's format.
few() { # COMPILER STANDARD
    o=$out/$1_$(word "$2")
    check "$1 $2: without those reports, their code is gone" \
        "strings ${o}_few.o | grep -E 'traceEvents|segment_alloc|alloc_objects|# TYPE' || true;
         strings ${o}_impl.o | grep -q traceEvents"
}

# A module that a knob leaves out: its calls say so, the others work, and nothing of it is compiled.
# Without a knob the same program shows that its functions have the names that are looked for.
left_out() { # COMPILER NAME THERE FLAGS: the modules that are there
    o=$out/$1_without_$2
    check "$1: with $2 left out, its calls say so, the others work, and no code of it is left" \
        "$(compiler "$1" c99) -O0 $4 $m/left_out.c -o $o; rm -f $o.page $o.report;
         MEMLORD_DEBUG=2 $o \$PWD/$o.page $o.report >$o.txt 2>&1 || cat $o.txt;
         test \"\$(echo \$(nm $o | sed -nE '
             s/.* mli_(listener|raise)_.*/neighbours/p; s/.* mli_verify_.*/verify/p;
             s/.* mli_html(_head)?$/page/p; s/.* mli_(pprof|heap|folded|portion|peak_part)_.*/profiles/p;
             s/.* mli_(trace|prom|viz|csv)_.*/reports/p' | sort -u))\" = '$3'"
}

# A copy that is no system header has its warnings shown.
own_stb() { # COMPILER STANDARD
    check "$1 $2: with a copy of stb_ds.h of the host's own" \
        "$(compiler "$1" "$2") -DMEMLORD_STB_DS_H='\"$out/stb_ds.h\"' -fsyntax-only $m/impl.c"
}

# The command that compiles for 32 bits: with the compiler's own flag, or a cross compiler.
with_32_bits() { # COMPILER STANDARD
    case $2 in c++*) header=new ;; *) header=errno.h ;; esac
    for command in "$(compiler "$1" "$2") -m32" "$(compiler "i686-linux-gnu-$1" "$2")"; do
        echo "#include <$header>" | $command -E - >/dev/null 2>&1 && echo "$command -isystem $out" && return
    done
}

# Words are aligned otherwise there, and an address is shorter than a handle.
narrow() { # COMPILER STANDARD
    command=$(with_32_bits "$1" "$2")
    if [ -z "$command" ]; then
        skip "$1 $2: the implementation with 32 bits" 'no 32-bit headers (g++-i686-linux-gnu)'
        return
    fi
    check "$1 $2: the implementation with 32 bits" "$command -c $m/impl.c -o $out/narrow_$1_$(word "$2").o"
    check "$1 $2: a handle keeps its 64 bits where an address has 32" "$command -fsyntax-only $m/keys.c"
}

# The API as a host uses it; in C++ the section for it, too, without exceptions and RTTI.
uses_alone() { # COMPILER STANDARD
    cmd="$(compiler "$1" "$2") -fsyntax-only"
    case $2 in c++*) cpp="$cmd -fno-exceptions -fno-rtti $m/cpp.cpp -DUSE=cpp" ;; *) cpp=true ;; esac
    check "$1 $2: what a host uses, also compiled out" \
        "$cmd $m/use.c -DUSE=use; $cpp; $cpp -DMEMLORD_DISABLE"
}

# Every other version of clang, which warns of what this one does not.
other_clangs() {
    for cc in $(ls /usr/bin | grep -xE 'clang-[0-9]+'); do
        for std in c99 c2x c++11 c++20; do
            check "$cc $std: the implementation" \
                "$(compiler "$cc" "$std") -c $m/impl.c -o $out/${cc}_$(word "$std").o"
            uses_alone "$cc" $std
        done
    done
}

# A line is one site in a program, whichever of its files have it, and another in each library.
one_line() {
    cmd="$(compiler gcc c99) $m/one_line.c"
    lib="-fPIC -shared -o $out/lib"
    check "one line of a header in two files is one site, in two libraries two" \
        "$cmd -c -DUSE=in_a -o $out/line_a.o; $cmd -c -DUSE=in_b -o $out/line_b.o;
         $cmd -DUSE=in_library_c ${lib}_c.so; $cmd -DUSE=in_library_d ${lib}_d.so;
         $cmd -c -o $out/line.o;
         gcc -pthread $out/line.o $out/line_a.o $out/line_b.o $out/lib_c.so $out/lib_d.so \
             $out/gcc_c99_impl.o -o $out/line -Wl,-rpath,\$PWD/$out; $out/line"
}

stb_first() {
    check "$1: stb_ds.h included first is an error with its cure" \
        "if $(compiler "$1" c99) -c $m/stb_first.c -o $out/never.o 2>$out/$1_stb.txt; then
             echo it compiled; fi; grep -q 'error.*stb_ds' $out/$1_stb.txt"
}

# Mistakes that a compiler can see. Without -pedantic gcc takes a label before a declaration.
traps() { # COMPILER STANDARD
    cmd="$(compiler "$1" "$2") -fsyntax-only $m/traps.c"
    check "$1 $2: guards where they belong compile" "$cmd -Wvla -DTRAP=0"
    cmd=$(echo "$cmd" | sed 's/-pedantic//')
    trap_n=0
    for trap in 'a loop scope with a name that is no literal' \
        'a scope with a name that is no literal' 'a tag after a bare if' 'a scope after a bare if' \
        'a case label past a tag' 'a goto past a scope' 'a tag as the body of a loop'; do
        trap_n=$((trap_n + 1))
        check "$1 $2: $trap does not compile" \
            "if $cmd -w -DTRAP=$trap_n 2>$out/$1_$(word "$2")_trap.txt; then echo it compiled; fi"
    done
}

main() {
    uses="" objects=""
    mkdir -p $out
    : >$list
    cp "$(gcc -M -I. -DMEMLORD_IMPLEMENTATION memlord.h | grep -o '[^ ]*stb_ds\.h')" $out/
    for_each_standard every_mode
    for pair in $read_only; do read_alone ${pair%:*} ${pair#*:}; done
    for cc in $cc_list; do
        stb_first $cc
        for std in c99 c++11; do own_stb $cc $std && narrow $cc $std && traps $cc $std; done
    done
    for cc in ${MEMLORD_TEST_ALL:+gcc} clang; do
        left_out $cc nothing 'neighbours page profiles reports verify' ''
        left_out $cc neighbours 'page profiles reports verify' -DMEMLORD_NO_NEIGHBOURS
        left_out $cc verify 'neighbours page profiles reports' -DMEMLORD_NO_VERIFY
        left_out $cc page 'neighbours profiles reports verify' -DMEMLORD_NO_PAGE
        left_out $cc profiles 'neighbours page reports verify' -DMEMLORD_NO_PROFILES
        left_out $cc reports 'neighbours verify' -DMEMLORD_NO_REPORTS
        left_out $cc everything '' "-DMEMLORD_NO_NEIGHBOURS -DMEMLORD_NO_VERIFY -DMEMLORD_NO_PAGE \
            -DMEMLORD_NO_PROFILES -DMEMLORD_NO_REPORTS -DMEMLORD_NO_THREADS"
    done
    check "C without GNU extensions has the loop forms alone" \
        "gcc -std=c99 -U__GNUC__ -I. -fsyntax-only -DTRAP=8 $m/traps.c"
    other_clangs
    for cc in $cc_list; do
        for std in c++14 c++17 c++2b; do uses_alone $cc $std; done
    done
    check "a host's own stb_ds" "gcc -std=c99 -w -DUSE=host_stb -c $m/host_stb.c -o $out/host_stb.o"
    check "the program around them" \
        "gcc -std=c99 -Wall -Wextra -Werror '-DUSES=$uses X(host_stb)' -c $m/uses.c -o $out/uses.o"
    run_checks
    for_each_standard link_and_run
    one_line
    for_each_standard symbols
    for_each_standard few
    run_checks
    for_each_standard nothing_left
    run_checks 1 # in turn: the second of each reads what the first made
    plan
}

main
