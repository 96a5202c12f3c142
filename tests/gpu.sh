#!/bin/sh
# tests/gpu.sh test|bench       what only a GPU can show; `make test-gpu`, `make bench-gpu`
# tests/gpu.sh fake test|bench  the same programs on the fake runtime, to try the programs
# The table is printed, and kept in bench/results. The CUDA toolkit is CUDA_HOME, /usr/local/cuda,
# or nvcc's. Without a GPU or the toolkit one line says so and the status is 77: not run.
# (make turns the status of any recipe that fails into its own, 2, and prints this one.) Nothing is
# installed and nothing is fetched: stb_ds.h is Debian's or lies beside memlord.h.
set -u
cd "$(dirname "$0")/.." || exit 1
nvcc=$(readlink -f "$(command -v nvcc)" 2>/dev/null)
home=${CUDA_HOME:-/usr/local/cuda}
[ -d "$home" ] || [ -z "$nvcc" ] || home=${nvcc%/bin/nvcc}
out=$PWD/build/gpu
mkdir -p "$out"

none() {
    echo "no GPU, nothing was run: $1"
    exit 77
}

# Where the toolkit keeps its libraries; a runtime without a plain name is one of pip's.
cudart() {
    for dir in "$home/lib64" "$home/lib" "$home/targets/$(uname -m)-linux/lib" \
        "$home/targets/sbsa-linux/lib" "$home/lib/$(uname -m)-linux-gnu"; do
        for file in "$dir"/libcudart.so "$dir"/libcudart.so.*; do
            [ -e "$file" ] || continue
            echo "-L$dir -l:$(basename "$file") -Wl,-rpath,$dir"
            return
        done
    done
    echo -lcudart
}

fake=
[ "${1:-}" = fake ] && { fake=yes FAKE_CUDA_DEVICES=1; export FAKE_CUDA_DEVICES; shift; }
what=${1:-}
case $what in
test | bench) ;;
*) echo "usage: tests/gpu.sh [fake] test|bench" >&2 && exit 2 ;;
esac

include=$home/include
results=bench/results
objects="build/gpu/memlord.o build/gpu/cuda.o" # of the Makefile
if [ -n "$fake" ]; then
    [ -r "$include/cuda_runtime_api.h" ] || include=tests/fake_cuda/include
    link="build/release/fake_cuda.o -rdynamic -Wl,--disable-new-dtags,-rpath,build/fake -ldl"
    objects="build/release/memlord.o build/release/cuda.o"
    out=$out/fake
    results=$out
    mkdir -p "$out"
else
    [ -r "$include/cuda_runtime_api.h" ] || none "no CUDA toolkit in $home"
    link="$(cudart) -ldl"
fi
flags="-O2 -g -I. -pthread"
[ -z "$fake" ] || flags="-I. -pthread" # times mean nothing there
[ "$include" = /usr/include ] || flags="$flags -isystem $include" # C++ loses its way if told twice

# shellcheck disable=SC2086 # lists of flags
${CC:-gcc} -std=c99 $flags tests/gpu/probe.c $link -o "$out/probe" || exit 1
"$out/probe" >"$out/probe.txt" 2>&1
case $? in
0) ;;
77) none "$(head -n 1 "$out/probe.txt")" ;;
*) cat "$out/probe.txt" && exit 1 ;;
esac

row() { printf '%-60s %s\n' "$1" "$2"; }

# PyTorch with each of the two libraries for it, if it is there and finds the GPU.
torch() {
    torch_bad=0
    torch_row "PyTorch: totals are those of its own tensors" torch_totals.py \
        build/libmemlord_torch.so build/libmemlord_torch.so || torch_bad=1
    torch_row "PyTorch observed: the books are its allocator's sums" torch_observer.py \
        torch-observer build/libmemlord_torch_observer.so || torch_bad=1
    return $torch_bad
}
torch_row() { # NAME SCRIPT TARGET LIBRARY
    python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' >/dev/null 2>&1 ||
        { row "$1" "not run: no PyTorch with CUDA"; return; }
    if CUDA_HOME=$home make -s "$3" >"$out/torch.txt" 2>&1 &&
        python3 "tests/gpu/$2" "$4" >>"$out/torch.txt" 2>&1; then
        row "$1" passed
    else
        row "$1" FAILED
        sed 's/^/    /' "$out/torch.txt" | tail -n 20
        return 1
    fi
}

# A command as a row: passed when it succeeds; the end of its output is shown when it does not.
try() { # NAME COMMAND...
    name=$1
    shift
    if timeout 120 "$@" >"$out/row.txt" 2>&1; then
        row "$name" passed
    else
        row "$name" FAILED
        tail -n 20 "$out/row.txt" | sed 's/^/    /'
        return 1
    fi
}

# Builds a program and runs some rows of it.
# shellcheck disable=SC2086 # lists of flags
variant() { # NAME OBJECTS LINK COMPILE... -- RUN...
    name=$1 with=$2 to=$3
    shift 3
    compile=
    while [ "$1" != -- ]; do compile="$compile $1" && shift; done
    shift
    if $compile $with $to -o "$out/variant" >"$out/row.txt" 2>&1; then
        try "$name" "$out/variant" "$@"
    else
        row "$name" 'FAILED to build'
        tail -n 20 "$out/row.txt" | sed 's/^/    /'
        return 1
    fi
}

# The other ways to build and to get at the calls.
variants() {
    cc="${CC:-gcc} -std=c99 $flags"
    bad=0
    lord=${objects%% *}
    variant "the shim counts what plain names allocate" "$objects" "$link" \
        $cc -DUSE_MAIN tests/matrix/cuda_shim.c -- || bad=1
    wraps=$(sed -n 's/^ *X0*(\(cuda[A-Za-z0-9]*\),.*/ -Wl,--wrap=\1/p' memlord_cuda.h | tr -d '\n')
    variant "--wrap counts an object that knows nothing of MemLord" "$lord" "$link" \
        $cc -DMEMLORD_CUDA_WRAP $wraps tests/matrix/cuda_impl.c tests/matrix/cuda_wrap.c -- 0 || bad=1
    variant "the inference example ends with nothing live" "" "$link" \
        $cc examples/cuda_inference.c -lm -- || bad=1
    [ -n "$fake" ] && return $bad
    variant "a thread's own stream is its default stream" "$lord" "$link" \
        $cc -DCUDA_API_PER_THREAD_DEFAULT_STREAM tests/gpu/test_gpu.c tests/matrix/cuda_impl.c \
        -- 'own stream' || bad=1
    static=$(cudart | sed 's/-l:libcudart.so[^ ]*/-lcudart_static/')
    case $static in
    *cudart_static*)
        variant "two streams on the static runtime" "$objects" "$static -ldl -lrt" \
            $cc tests/gpu/test_gpu.c -- 'two streams' || bad=1
        ;;
    *) row "two streams on the static runtime" "not run: not there" ;;
    esac
    return $bad
}

# Errors that calls return are no finding: a row is about those.
sanitizer() {
    name="compute-sanitizer finds nothing, and no leak"
    tool=$(command -v compute-sanitizer || ls "$home/bin/compute-sanitizer" 2>/dev/null)
    [ -n "$tool" ] || { row "$name" "not run: not there"; return; }
    timeout 240 "$tool" --target-processes all --leak-check full --report-api-errors no \
        --error-exitcode 9 "$out/test_gpu" short >"$out/sanitizer.txt" 2>&1 &&
        { row "$name" passed; return; }
    if grep -qi 'device not supported' "$out/sanitizer.txt"; then # in some sandboxes
        row "$name" "not run: the tool does not support the device here"
        return
    fi
    row "$name" FAILED
    tail -n 20 "$out/sanitizer.txt" | sed 's/^/    /'
    return 1
}

machine() {
    echo "MemLord on a GPU: $what, $(date -u '+%Y-%m-%d %H:%M UTC')"
    echo "memlord.h $(sed -n 's/^#define MEMLORD_VERSION "\(.*\)"/\1/p' memlord.h), cksum $(cksum <memlord.h)"
    echo "memlord_cuda.h cksum $(cksum <memlord_cuda.h)"
    if [ -n "$fake" ]; then
        echo "device    none: the fake runtime, whose times mean nothing"
    else
        echo "device    $(cat "$out/probe.txt")"
        nvidia-smi --query-gpu=index,name,driver_version,memory.total,mig.mode.current \
            --format=csv,noheader 2>/dev/null | sed 's/^/smi       /'
    fi
    echo "cpu       $(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1), $(nproc) online"
    echo "kernel    $(uname -sr)"
    echo "compiler  $(${CC:-gcc} --version | head -n 1)"
}

tests() {
    bad=0
    "$out/test_gpu" || bad=1
    variants || bad=1
    if [ -z "$fake" ]; then
        torch || bad=1
        sanitizer || bad=1
    fi
    return $bad
}

# shellcheck disable=SC2046,SC2086
if [ "$what" = test ]; then
    ${CC:-gcc} -std=c99 $flags tests/gpu/test_gpu.c $objects $link -o "$out/test_gpu" || exit 1
else
    peers=$(sh bench/run.sh peers 2>"$out/left_out.txt")
    ${CXX:-g++} -std=c++17 $flags $(echo "$peers" | sed -n 1p) bench/gpu.cpp $objects $link \
        $(echo "$peers" | sed -n 2p) -o "$out/bench_gpu" || exit 1
fi

# A run with failures is kept as well.
file=$results/$(date -u +%Y-%m-%dT%H%MZ)-gpu-$what.txt
{
    machine
    [ "$what" = test ] || cat "$out/left_out.txt"
    echo
    if [ "$what" = test ]; then tests; else "$out/bench_gpu" ${fake:+short}; fi
    echo $? >"$out/status"
} | tee "$file.part"
mv "$file.part" "$file"
[ -n "$fake" ] || echo "kept in $file"
exit "$(cat "$out/status")"
