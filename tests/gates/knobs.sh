#!/bin/sh
# tests/gates/knobs.sh: each knob of both manuals alone, and all together, compiles without a warning
# with gcc, clang and MinGW, in C and in C++, speaking TAP. A knob of the manual that has no value
# here fails; so does a macro that a header asks for and the manual does not name.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/gates.sh

# The directory of NVIDIA's header, which the CUDA toolkit has; empty without it.
nvtx=${CUDA_HOME:-/usr/local/cuda}/include
[ -e "$nvtx/nvtx3/nvToolsExt.h" ] || nvtx=

# The macros that a manual names under >>knobs.
knobs() { # HEADER
    awk '/^    -.*-- *>>/ { on = />>knobs/ } /^    Environment/ { on = 0 } on' "$1" |
        grep -oE '^        MEMLORD_[A-Z_]+' | tr -d ' '
}

value() { # KNOB: what to define it as; fails for one that is not known
    case $1 in
    MEMLORD_DISABLE | MEMLORD_STATIC | MEMLORD_SHIM | MEMLORD_PMR | MEMLORD_NO_THREADS | \
        MEMLORD_NO_REPORTS | MEMLORD_NO_PAGE | MEMLORD_NO_PROFILES | MEMLORD_NO_NEIGHBOURS | MEMLORD_NO_VERIFY | \
        MEMLORD_CHECK_LOCKS | MEMLORD_CUDA_SHIM | MEMLORD_CUDA_WRAP) echo "-D$1" ;;
    MEMLORD_CUDA_NVTX) echo "-D$1 -idirafter $nvtx" ;;
    MEMLORD_PREFIX) echo "-D$1=p" ;;
    MEMLORD_API) echo "-D$1=" ;;
    MEMLORD_STB_DS_H) echo "'-D$1=\"$out/stb/stb_ds.h\"'" ;;
    MEMLORD_MAX_DEVICES | MEMLORD_CUDA_MAX_DEVICES | MEMLORD_MAX_SERIES) echo "-D$1=3" ;;
    MEMLORD_CUDA_MAX_LEDGERS) echo "-D$1=1" ;;
    MEMLORD_CUDA_MAX_EVENTS) echo "-D$1=0" ;;
    MEMLORD_MAX_SCOPES) echo "-D$1=100" ;;
    MEMLORD_MAX_STRINGS | MEMLORD_MAX_STACK_NODES) echo "-D$1=10000" ;;
    MEMLORD_THREAD_LOCAL) echo "'-D$1=__thread __attribute__((tls_model(\"initial-exec\")))'" ;;
    MEMLORD_ASSERT) echo "'-D$1(expression)=((expression) ? (void)0 : abort())'" ;;
    MEMLORD_CUDA_SHIM_LORD) echo "'-D$1=memlord_find(1)'" ;;
    MEMLORD_CUDA_DRIVER) echo "'-D$1=\"libother.so.1\"'" ;;
    *) return 1 ;;
    esac
}

# clang warns of unused functions while it reads C; gcc does only when it writes an object, which
# MinGW's does. So a knob alone takes three compilers: g++, clang for C, and MinGW's gcc for C.
compiles() { # NAME FLAGS [STANDARDS]
    for cc in gcc clang $mingw; do
        case $cc in gcc) alone=c++11 ;; *) alone=c99 ;; esac
        for std in ${3:-$alone}; do
            case $cc$std in $mingw*c++* | gcc* | clang*) to=-fsyntax-only ;; *) to='-c -o /dev/null' ;; esac
            if command -v $cc >/dev/null; then
                check "$cc $std: $1" "$cc -O0 $(language $std) $warn $here $2 $to tests/gates/knobs.c"
            else
                skip "$cc $std: $1" "no $cc"
            fi
        done
    done
}

# What a header asks for and does not define itself. What begins with MEMLORD_H or ends in
# IMPLEMENTATION is how a header is included.
asked() { # HEADER
    grep -oE '^ *#.*(defined\(|if(n)?def )MEMLORD_[A-Z_]+' "$1" | grep -oE 'MEMLORD_[A-Z_]+' |
        sort -u | grep -vE '^MEMLORD_(CUDA_)?(H|IMPLEMENTATION)$'
}

all=$(knobs memlord.h; knobs memlord_cuda.h)
[ "$(echo "$all" | wc -l)" -ge 20 ]
verdict $? 'the manuals have lists of knobs'
together= standards='c99 c++11'
for knob in $all; do
    if [ "$knob$nvtx" = MEMLORD_CUDA_NVTX ]; then
        skip "$knob" 'no nvtx3/nvToolsExt.h: it comes with the CUDA toolkit'
    elif flags=$(value "$knob"); then
        case $knob in # only memlord_cuda.h asks for MEMLORD_CUDA_*, as is tested below
        MEMLORD_CUDA_*) compiles "$knob" "$flags -DONLY_CUDA" ;;
        *) compiles "$knob" "$flags" ;;
        esac
        [ "$knob" = MEMLORD_DISABLE ] || together="$together $flags"
    else
        said="tests/gates/knobs.sh has no value for $knob"
        verdict 1 "$knob has a value here"
    fi
done
compiles 'MEMLORD_PMR' "$(value MEMLORD_PMR)" c++17
compiles 'all knobs but MEMLORD_DISABLE' "$together" 'c99 c2x c++11 c++20'
compiles 'all knobs' "$together $(value MEMLORD_DISABLE)" 'c99 c++11'
run_checks
for header in memlord.h memlord_cuda.h; do
    said=$(for name in $(asked $header); do
        sed -n "/>>knobs ---/,/>>threading ---/p" memlord.h memlord_cuda.h | grep -qw "$name" || echo "$name"
    done)
    [ -z "$said" ]
    verdict $? "$header: the manual names each macro that it asks for"
done
said=$(asked memlord.h | grep MEMLORD_CUDA_)
[ -z "$said" ]
verdict $? 'memlord.h asks for no knob of memlord_cuda.h'
plan
