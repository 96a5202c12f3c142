#!/bin/sh
# tests/gpu.sh test|bench [TEXT]       what only a GPU can show; `make test-gpu`, `make bench-gpu`
# tests/gpu.sh fake test|bench [TEXT]  the same programs on the fake runtime, to try the programs
#     TEXT: only the rows, or the parts of the bench, whose names have it
#
# A machine with a GPU needs its driver, a CUDA toolkit (tests/gpu/toolkit.sh says where) and a C
# compiler; the bench needs one for C++. Nothing is installed and nothing is fetched. Everything is
# compiled anew. The run ends within ten minutes with a line that begins with "verdict" and says:
#     0   passed
#     1   failed, and the rows that did
#     3   aims missed, and which: the figures stand, and what was hoped for does not
#     77  not run, and why: no GPU, no toolkit, no compiler
# make prints the status and ends with 2 unless it is 0. What a row needs and is not there makes it
# "not run", with the reason. The table is printed, and kept in bench/results.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/gpu/toolkit.sh
start=$(date +%s)
limit=560 # seconds, of the ten minutes

fake=
[ "${1:-}" = fake ] && { fake=yes FAKE_CUDA_DEVICES=1; export FAKE_CUDA_DEVICES; shift; }
what=${1:-} only=${2:-}
case $what in
test | bench) ;;
*) echo "usage: tests/gpu.sh [fake] test|bench [TEXT]" >&2 && exit 2 ;;
esac
out=$PWD/build/gpu/$what results=bench/results
[ -z "$fake" ] || out=$PWD/build/gpu/fake-$what results=build/gpu/fake
rm -rf "$out" && mkdir -p "$out" "$results" || exit 1

none() {
    echo "verdict: not run: $1"
    exit 77
}

wanted() { case $1 in *"$only"*) ;; *) return 1 ;; esac; } # NAME
row() { wanted "$1" && printf '%-60s %s\n' "$1" "$2"; }

# The first of these that is there.
first_of() {
    for tool; do
        # shellcheck disable=SC2086 # a compiler may have flags
        command -v ${tool%% *} >/dev/null && echo "$tool" && return
    done
    return 1
}

# -- what is there --

cc=$(first_of ${CC:+"$CC"} gcc cc clang) || none "no C compiler"
cxx=$(first_of ${CXX:+"$CXX"} g++ c++ clang++) || cxx=
[ -n "$cxx" ] || [ "$what" = test ] || none "no C++ compiler"
if [ -n "$fake" ]; then
    include=${CUDA_HOME:-/usr/local/cuda}/include
    [ -r "$include/cuda_runtime_api.h" ] || include=tests/fake_cuda/include
    runtime="build/release/fake_cuda.o -rdynamic -Wl,--disable-new-dtags,-rpath,build/fake -ldl"
    speed=-O0 # times mean nothing there
else
    toolkit_find || none "$why"
    runtime="-L$lib -l:${cudart##*/} -Wl,-rpath,$lib -ldl"
    speed=${CFLAGS:--O2 -g}
fi
flags="$speed -I. -Itests/gpu -pthread"
[ "$include" = /usr/include ] || flags="$flags -isystem $include" # C++ loses its way if told twice
c="$cc -std=gnu99 $flags"
lord=$out/memlord.o objects="$out/memlord.o $out/cuda.o"
[ -z "$fake" ] || lord=build/release/memlord.o objects="build/release/memlord.o build/release/cuda.o"

$c tests/gpu/probe.c $runtime -o "$out/probe" >"$out/probe.txt" 2>&1 || {
    cat "$out/probe.txt"
    echo "verdict: failed: a program does not compile and link with $include and ${cudart:-the fake}"
    exit 1
}
timeout -k 5 120 "$out/probe" >"$out/probe.txt" 2>&1
case $? in
0) ;;
77) none "no GPU: $(head -n 1 "$out/probe.txt")" ;;
*) cat "$out/probe.txt" && echo "verdict: failed: the GPU cannot be used" && exit 1 ;;
esac

# -- rows --

# A command as a row: the last lines of its output are shown when it fails. One that ends with 77
# says in its first line what it lacks. A row of test_gpu that is no more has failed.
try() { # NAME COMMAND...
    name=$1 left=$((limit - $(date +%s) + start))
    shift
    [ $left -gt 5 ] || { row "$name" "not run: no time left"; return; }
    timeout -k 5 $((left < 120 ? left : 120)) "$@" >"$out/row.txt" 2>&1
    case $? in
    0)
        part=$(sed -n 's/.* \(passed, in part: .*\)/\1/p' "$out/row.txt" | head -n 1)
        row "$name" "${part:-passed}"
        ;;
    77)
        lacks=$(head -n 1 "$out/row.txt")
        case $lacks in
        'no row has '*) row "$name" "FAILED: $lacks" ;;
        *) row "$name" "not run: $lacks" ;;
        esac
        ;;
    124 | 137) row "$name" 'FAILED: took too long' ;;
    *)
        row "$name" FAILED
        tail -n 20 "$out/row.txt" | sed 's/^/    /'
        ;;
    esac
}

# Compiles, and says nothing unless that fails. NAME is the row's, if it is one that is wanted.
build() { wanted "$1" && compile "$@"; }
compile() { # NAME COMMAND...
    name=$1
    shift
    timeout -k 5 240 "$@" >"$out/row.txt" 2>&1 && return
    printf '%-60s %s\n' "$name" 'FAILED to build'
    tail -n 20 "$out/row.txt" | sed 's/^/    /'
    return 1
}

# shellcheck disable=SC2086 # lists of flags, here and below
implementation() {
    [ -z "$fake" ] || return 0
    compile "the implementation" $c -c tests/matrix/impl.c -o "$out/memlord.o" &&
        compile "the implementation of the CUDA layer" $c -c tests/matrix/cuda_impl.c -o "$out/cuda.o"
}

# The other ways to build and to get at the calls.
variants() {
    name="the shim counts what plain names allocate"
    build "$name" $c -DUSE_MAIN tests/matrix/cuda_shim.c $objects $runtime -o "$out/shim" && try "$name" "$out/shim"
    name="--wrap counts an object that knows nothing of MemLord"
    wraps=$(sed -n 's/^ *X0*(\(cuda[A-Za-z0-9]*\),.*/ -Wl,--wrap=\1/p' memlord_cuda.h | tr -d '\n')
    build "$name" $c -DMEMLORD_CUDA_WRAP $wraps tests/matrix/cuda_impl.c tests/matrix/cuda_wrap.c \
        $lord $runtime -o "$out/wrap" && try "$name" "$out/wrap" 0
    name="the inference example ends with nothing live"
    build "$name" $c examples/cuda_inference.c $runtime -lm -o "$out/inference" && try "$name" "$out/inference"
    [ -z "$fake" ] || return
    name="a thread's own stream is its default stream"
    build "$name" $c -DCUDA_API_PER_THREAD_DEFAULT_STREAM tests/gpu/test_gpu.c tests/matrix/cuda_impl.c \
        $lord $runtime -o "$out/per_thread" && try "$name" "$out/per_thread" 'own stream'
    static_runtime
}

# Those that need the static runtime.
static_runtime() {
    streams="two streams on the static runtime"
    library="a library with a runtime of its own"
    if [ ! -e "$lib/libcudart_static.a" ]; then
        row "$streams" "not run: no libcudart_static.a in $lib"
        row "$library" "not run: no libcudart_static.a in $lib"
        return
    fi
    static="-L$lib -l:libcudart_static.a -ldl -lrt"
    build "$streams" $c tests/gpu/test_gpu.c $objects $static -o "$out/static" &&
        try "$streams" "$out/static" 'two streams'
    build "$library" $c -fPIC -shared -Wl,--exclude-libs,ALL tests/gpu/plugin.c $static -o "$out/own_runtime.so" &&
        build "$library" $c tests/gpu/plugins.c $objects $runtime -o "$out/plugins" &&
        try "$library" "$out/plugins" runtime "$out/own_runtime.so"
}

# A plug-in that carries the whole of MemLord, opened and closed.
plugins() {
    name="a plug-in with the CUDA layer is closed"
    build "$name" $c -fPIC -shared -DCARRIES_MEMLORD tests/gpu/plugin.c $runtime -o "$out/carries.so" &&
        build "$name" $c tests/gpu/plugins.c $objects $runtime -o "$out/plugins" &&
        try "$name" "$out/plugins" memlord "$out/carries.so"
}

# PyTorch with each of the two libraries for it, if it is there and finds the GPU.
torch() {
    allocator="PyTorch: totals are those of its own tensors"
    observer="PyTorch observed: the books are its allocator's sums"
    if ! timeout 60 python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' >/dev/null 2>&1; then
        row "$allocator" "not run: no PyTorch with CUDA"
        row "$observer" "not run: no PyTorch with CUDA"
        return
    fi
    build "$allocator" $cxx -std=c++11 $flags -fPIC -shared -fvisibility=hidden -DMEMLORD_API= \
        examples/torch_allocator.cpp $runtime -o "$out/libmemlord_torch.so" &&
        try "$allocator" python3 tests/gpu/torch_totals.py "$out/libmemlord_torch.so"
    build "$observer" env CUDA_HOME="$home" make -s -o deps-demo torch-observer CXX="$cxx" CXXFLAGS=-Itests/gpu \
        OBSERVER="$out/libmemlord_torch_observer.so" &&
        try "$observer" python3 tests/gpu/torch_observer.py "$out/libmemlord_torch_observer.so"
}

# Errors that calls return are no finding: a row is about those. In some sandboxes the tool does not
# support the device.
sanitizer() {
    name="compute-sanitizer finds nothing, and no leak"
    wanted "$name" || return
    tool=$(first_of compute-sanitizer "$home/bin/compute-sanitizer") ||
        { row "$name" "not run: no compute-sanitizer on PATH nor in $home/bin"; return; }
    try "$name" sh -c '"$@" || { grep -qi "device not supported" "$0" || exit 1
        echo "the tool does not support the device here" >"$0"; exit 77; }
        grep -q "ERROR SUMMARY: 0 errors" "$0" && ! grep -q "ERROR SUMMARY: [1-9]" "$0"' "$out/row.txt" \
        "$tool" --target-processes all --leak-check full --report-api-errors no --error-exitcode 9 \
        "$out/test_gpu" short
}

machine() {
    echo "MemLord on a GPU: $what, $(date -u '+%Y-%m-%d %H:%M UTC')"
    echo "memlord.h $(sed -n 's/^#define MEMLORD_VERSION "\(.*\)"/\1/p' memlord.h), cksum $(cksum <memlord.h)"
    echo "memlord_cuda.h cksum $(cksum <memlord_cuda.h)"
    if [ -n "$fake" ]; then
        echo "device    none: the fake runtime, whose times mean nothing"
    else
        echo "device    $(cat "$out/probe.txt")"
        echo "toolkit   $include, $cudart"
        nvidia-smi --query-gpu=index,name,driver_version,memory.total,mig.mode.current \
            --format=csv,noheader 2>/dev/null | sed 's/^/smi       /'
    fi
    echo "cpu       $(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1), $(nproc) online"
    echo "kernel    $(uname -sr)"
    echo "compiler  $($cc --version | head -n 1)"
}

tests() {
    implementation || return
    rows="the rows of test_gpu"
    if compile "$rows" $c tests/gpu/test_gpu.c $objects $runtime -o "$out/test_gpu"; then
        timeout -k 5 400 "$out/test_gpu" "$only"
        case $? in
        0 | 1 | 77) ;; # its rows say what passed; 77: no row is wanted
        *) printf '%-60s %s\n' "$rows" 'FAILED: they did not come to an end' ;;
        esac
    fi
    variants
    [ -n "$fake" ] || plugins
    [ -n "$fake" ] || torch
    [ -n "$fake" ] || sanitizer
}

bench() {
    implementation || return
    peers=$(sh bench/run.sh peers 2>"$out/left_out.txt")
    cat "$out/left_out.txt"
    compile "bench/gpu.cpp" $cxx -std=c++17 $flags $(echo "$peers" | sed -n 1p) bench/gpu.cpp $objects $runtime \
        $(echo "$peers" | sed -n 2p) -o "$out/bench_gpu" || return
    "$out/bench_gpu" ${fake:+short} "$only"
}

# The end of the table, and the status. A run that said nothing of what it did has failed.
verdict() { # TABLE
    failed=$(sed -n '/^ /d; s/  *FAILED.*//p' "$1")
    missed=$(sed -n 's/  .*: missed$//p' "$1")
    left=$(grep -c ' not run: ' "$1")
    if [ -z "$failed" ] && ! grep -qE ' passed|^[0-9]+ parts, ' "$1"; then
        why=$(grep '^no row has ' "$1")
        [ "$left" = 0 ] || why="none of $left rows could be run"
        [ -z "$why" ] || { echo "verdict: not run: $why"; return 77; }
        failed="nothing came to an end"
    fi
    if [ -n "$failed" ]; then
        echo "verdict: failed: $(echo "$failed" | sed '$!s/$/;/' | tr '\n' ' ')"
        return 1
    fi
    if [ -n "$missed" ]; then
        echo "verdict: aims missed: $(echo "$missed" | sed '$!s/$/;/' | tr '\n' ' ')"
        return 3
    fi
    echo "verdict: passed${fake:+ on the fake}, $left rows not run"
}

# A run with failures is kept as well.
file=$results/$(date -u +%Y-%m-%dT%H%MZ)-gpu-$what.txt
{
    machine
    echo
    case $what in test) tests ;; bench) bench ;; esac
} 2>&1 | tee "$file.part"
verdict "$file.part" >"$out/verdict.txt"
status=$?
echo | cat - "$out/verdict.txt" | tee -a "$file.part"
mv "$file.part" "$file"
[ -n "$fake" ] || echo "kept in $file, after $(($(date +%s) - start)) s"
exit $status
