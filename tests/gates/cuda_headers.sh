#!/bin/sh
# tests/gates/cuda_headers.sh: memlord_cuda.h compiles with the declarations of CUDA 11.2 to 13.0,
# speaking TAP. They are the tests' own header as each version; tests/matrix/cuda_versions.c has what
# differs, and where it is from. It and the headers are held against NVIDIA's, too: of the toolkit, and
# of each directory in CUDA_HEADERS.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/gates.sh
real=
for include in "${CUDA_HOME:-/usr/local/cuda}/include" ${CUDA_HEADERS:-}; do
    [ ! -r "$include/cuda_runtime_api.h" ] || real="$real $include"
done

compiles() { # NAME FLAGS
    check "$1: what differs is declared so" \
        "gcc -std=c99 $warn -Wno-pedantic $2 -fsyntax-only tests/matrix/cuda_versions.c"
    for cc in 'gcc -std=c99 -x c' 'g++ -std=c++11 -x c++'; do
        check "$1: the CUDA layer, ${cc%% *}" "$cc $warn -I. -pthread $2 -fsyntax-only tests/matrix/cuda_impl.c"
    done
    check "$1: the shim, the fake, the rows for a GPU" \
        "gcc -std=gnu99 -w -I. $2 -fsyntax-only tests/matrix/cuda_shim.c;
         gcc -std=gnu99 -w -I. $2 -fsyntax-only tests/fake_cuda/fake_cuda.c;
         gcc -std=gnu99 -w -I. $2 -fsyntax-only tests/gpu/test_gpu.c"
}
for version in 11020 11030 11040 11050 11060 11070 11080 12000 12010 12020 12030 12040 12050 12060 12080 12090 13000; do
    compiles "CUDA $((version / 1000)).$((version % 1000 / 10))" \
        "-DCUDART_VERSION=$version -isystem tests/fake_cuda/include"
done
for include in $real; do
    compiles "NVIDIA's $(sed -n 's/^#define CUDART_VERSION  *//p' "$include/cuda_runtime_api.h")" "-isystem $include"
done
[ -n "$real" ] || skip "NVIDIA's headers" 'no CUDA toolkit, and no CUDA_HEADERS'
run_checks
plan
