#!/bin/sh
# tests/gpu.sh test|bench       what only a GPU can show; `make test-gpu`, `make bench-gpu`
# tests/gpu.sh fake test|bench  the same programs on the fake runtime, to try the programs
# Without a GPU, or the CUDA toolkit (CUDA_HOME), one line says so and the status is 77: not run.
set -u
cd "$(dirname "$0")/.." || exit 1
home=${CUDA_HOME:-/usr/local/cuda}
out=$PWD/build/gpu
mkdir -p "$out"

none() {
    echo "no GPU, nothing was run: $1"
    exit 77
}

fake=
[ "$1" = fake ] && { fake=yes FAKE_CUDA_DEVICES=1; export FAKE_CUDA_DEVICES; shift; }
what=$1

if [ -n "$fake" ]; then
    include=tests/fake_cuda/include
    [ -r "$home/include/cuda_runtime_api.h" ] && include=$home/include
    link="build/release/fake_cuda.o -rdynamic -Wl,--disable-new-dtags,-rpath,$PWD/build/fake -ldl"
    out=$out/fake
    mkdir -p "$out"
else
    [ -r "$home/include/cuda_runtime_api.h" ] || none "no CUDA toolkit in $home"
    include=$home/include
    link="-L$home/lib64 -lcudart -Wl,-rpath,$home/lib64 -ldl"
fi
flags="-O2 -g -I. -isystem $include -pthread"

objects="build/release/memlord.o build/release/cuda.o" # of the Makefile

# shellcheck disable=SC2086 # lists of flags
${CC:-gcc} -std=c99 $flags tests/gpu/test_gpu.c $objects $link -o "$out/test_gpu" || exit 1

row() { printf '%-60s %s\n' "$1" "$2"; }

# PyTorch through the pluggable allocator, if it is there and finds the GPU.
torch() {
    python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' >/dev/null 2>&1 ||
        { row "PyTorch: totals are those of its own tensors" "not run: no PyTorch with CUDA"; return; }
    if python3 tests/gpu/torch_totals.py build/libmemlord_torch.so >"$out/torch.txt" 2>&1; then
        row "PyTorch: totals are those of its own tensors" passed
    else
        row "PyTorch: totals are those of its own tensors" FAILED
        sed 's/^/    /' "$out/torch.txt" | tail -n 20
        return 1
    fi
}

sanitizer() {
    tool=$(command -v compute-sanitizer || ls "$home/bin/compute-sanitizer" 2>/dev/null)
    [ -n "$tool" ] && [ -z "$fake" ] || { row "compute-sanitizer finds nothing" "not run: not there"; return; }
    if "$tool" --leak-check full --error-exitcode 9 "$out/test_gpu" short >"$out/sanitizer.txt" 2>&1; then
        row "compute-sanitizer finds nothing" passed
    else
        row "compute-sanitizer finds nothing" FAILED
        tail -n 20 "$out/sanitizer.txt" | sed 's/^/    /'
        return 1
    fi
}

machine() {
    echo "MemLord on a GPU, $(date -u '+%Y-%m-%d %H:%M UTC')"
    echo "memlord.h $(sed -n 's/^#define MEMLORD_VERSION "\(.*\)"/\1/p' memlord.h), cksum $(cksum <memlord.h)"
    echo "memlord_cuda.h cksum $(cksum <memlord_cuda.h)"
    if [ -n "$fake" ]; then
        echo "device    none: the fake runtime, whose times mean nothing"
    else
        nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null |
            sed 's/^/device    /'
        echo "toolkit   $(sed -n 's/^#define CUDART_VERSION *//p' "$include/cuda_runtime_api.h")"
    fi
    echo "kernel    $(uname -sr)"
}

"$out/test_gpu" probe >"$out/probe.txt" 2>&1
case $? in
0) ;;
77) none "$(head -n 1 "$out/probe.txt")" ;;
*) cat "$out/probe.txt" && exit 1 ;;
esac

case $what in
test)
    status=0
    machine
    echo
    "$out/test_gpu" || status=1
    if [ -z "$fake" ]; then
        torch || status=1
        sanitizer || status=1
    fi
    exit $status
    ;;
bench)
    file=bench/results/$(date -u +%Y-%m-%dT%H%MZ)-gpu.txt
    [ -n "$fake" ] && file=$out/bench.txt
    # shellcheck disable=SC2086
    ${CXX:-g++} -std=c++17 $flags bench/gpu.cpp $objects $link -o "$out/bench_gpu" || exit 1
    { machine; echo; "$out/bench_gpu"; } >"$file.part" && mv "$file.part" "$file" && cat "$file" || exit 1
    [ -n "$fake" ] || echo "kept in $file"
    ;;
*) echo "usage: tests/gpu.sh [fake] test|bench" >&2 && exit 2 ;;
esac
