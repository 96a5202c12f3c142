#!/bin/sh
# tests/cuda.sh: every way to compile memlord_cuda.h, to get at the calls, and to run without a
# driver. Speaks TAP. What needs the CUDA toolkit is skipped, by name, where there is none
# (CUDA_HOME, /usr/local/cuda).
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
home=${CUDA_HOME:-/usr/local/cuda}
out=build/cuda fake=build/fake # relative: the commands below are not quoted
lib=$home/lib64
warn="-Wall -Wextra -pedantic -Wconversion -Wshadow -Wundef -Werror"
list=$out/list

toolkit=
[ -r "$home/include/cuda_runtime_api.h" ] && toolkit=yes
include=tests/fake_cuda/include
[ -n "$toolkit" ] && include=$home/include
flags="-I. -isystem $include -pthread"

with_toolkit() { # NAME COMMAND
    [ -n "$toolkit" ] && { check "$1" "$2"; return; }
    skip "$1" 'no CUDA toolkit'
}

rm -rf "$out"
mkdir -p "$out"

compiler() { # COMPILER STANDARD
    case $2 in
    c++*) echo "$(echo "$1" | sed 's/gcc/g++/;s/clang/clang++/') -std=$2 $warn -x c++" ;;
    *) echo "$1 -std=$2 $warn -Wsign-conversion -Wcast-qual -Wstrict-prototypes -x c" ;;
    esac
}

# -- what is compiled --

both="-DMEMLORD_IMPLEMENTATION -DMEMLORD_CUDA_IMPLEMENTATION -include memlord.h"
modes() { # COMPILER STANDARD
    cmd="$(compiler "$1" "$2") $flags"
    o=$out/$1_$(echo "$2" | sed 's/+/x/g')
    check "$1 $2: the API, then the implementation" \
        "$cmd -include memlord.h -c memlord_cuda.h -o $o.api.o;
         $cmd -DMEMLORD_CUDA_IMPLEMENTATION -include memlord.h -c memlord_cuda.h -o $o.o;
         nm -g --defined-only -f posix $o.o | awk '\$2 !~ /[vVwW]/' | grep -v '^memlord_cuda_' || true"
    check "$1 $2: compiled out, the wrappers are the runtime's functions" \
        "$cmd -DMEMLORD_DISABLE -c tests/matrix/cuda_use.c -o $o.off.o;
         nm -u $o.off.o | grep -q ' cudaMalloc'; nm $o.off.o | grep memlord_alloc || true"
    check "$1 $2: with the per-thread default stream" \
        "$cmd -DCUDA_API_PER_THREAD_DEFAULT_STREAM -DMEMLORD_CUDA_IMPLEMENTATION \
             -include memlord.h -c memlord_cuda.h -o $o.ptsz.o;
         nm -u $o.ptsz.o | grep -q 'cudaMallocAsync_ptsz'"
    case $2 in c++*) cast=-Wold-style-cast ;; *) cast= ;; esac
    check "$1 $2: the shim" "$cmd $cast -c tests/matrix/cuda_shim.c -o $o.shim.o;
         nm -u $o.shim.o | grep -E 'U cuda(Malloc|Free|Host)' || true"
    case "$1 $2" in "gcc c99" | "clang c++11") ;; *) return ;; esac # they hold all of memlord.h
    check "$1 $2: private to a file, and with a prefix" \
        "$cmd -DMEMLORD_STATIC $both -c tests/matrix/cuda_use.c -o $o.static.o;
         nm -g --defined-only -f posix $o.static.o | awk '\$2 !~ /[vVwW]/' | grep memlord || true;
         $cmd -DMEMLORD_PREFIX=p $both -c tests/matrix/cuda_use.c -o $o.prefix.o;
         nm $o.prefix.o | grep ' [TU] memlord_' || true"
}
for cc in gcc clang; do
    for std in c99 c++11 c++20; do modes $cc $std; done
done

check "the headers of CUDA 11.2" \
    "gcc -std=c99 $warn -DCUDART_VERSION=11020 -I. -isystem tests/fake_cuda/include \
         -DMEMLORD_CUDA_IMPLEMENTATION -DMEMLORD_CUDA_SHIM -include memlord.h -x c -c memlord_cuda.h \
         -o $out/old.o"

check "alone it is an error with its cure" \
    "! gcc -std=c99 $flags -fsyntax-only -x c memlord_cuda.h 2>$out/alone;
     grep -q 'include memlord.h before' $out/alone"

# -- what is run, on the fake --

objects="build/release/memlord.o build/release/fake_cuda.o"
link="$objects -rdynamic -Wl,--disable-new-dtags,-rpath,$fake -ldl -pthread"

check "the shim counts what plain names allocate, from C and from C++" \
    "for cc in 'gcc -std=c99 -x c' 'g++ -std=c++11 -x c++'; do
         \$cc $flags -DUSE_MAIN tests/matrix/cuda_shim.c -x none build/release/cuda.o $link -o $out/shim;
         FAKE_CUDA_DEVICES=2 $out/shim;
     done"

names=$(sed -n 's/^ *X0*(\(cuda[A-Za-z0-9]*\),.*/\1/p' memlord_cuda.h)
wraps=$(for name in $names; do printf ' -Wl,--wrap=%s' "$name"; done)
wrapped="gcc -std=c99 $flags -DMEMLORD_CUDA_WRAP tests/matrix/cuda_impl.c tests/matrix/cuda_wrap.c"
check "the recipe in the header names every wrapped function" \
    "for name in $(echo $names); do grep -q -e \"--wrap=\$name\\b\" memlord_cuda.h || echo \$name; done"
check "--wrap counts what an object calls that knows nothing of MemLord" \
    "$wrapped $link $wraps -o $out/wrap; FAKE_CUDA_DEVICES=1 $out/wrap 0"
check "a name left out of it does not link" \
    "! $wrapped $link $(echo "$wraps" | sed 's/-Wl,--wrap=cudaFreeAsync//') -o $out/never 2>$out/never.txt;
     grep -q '__real_cudaFreeAsync' $out/never.txt"
check "without it the check names what is missing" \
    "gcc -std=c99 $flags tests/matrix/cuda_impl.c tests/matrix/cuda_wrap.c $link -o $out/plain;
     FAKE_CUDA_DEVICES=1 $out/plain $(echo $names | wc -w)"

echo '#define CUDA_VERSION 12000
typedef int CUresult;
typedef struct { int words[8]; } CUmemAllocationProp;' >$out/cuda.h
check "the implementation compiles after cuda.h, a stand-in or a toolkit's, in C and in C++" \
    "for cc in 'gcc -std=c99 -x c' 'g++ -std=c++11 -x c++' 'clang++ -std=c++11 -x c++'; do
         for include in '$out -isystem tests/fake_cuda/include' ${toolkit:+$include}; do
             \$cc $warn -I. -isystem \$include -include cuda.h -include memlord.h -DMEMLORD_CUDA_IMPLEMENTATION \
                 -fsyntax-only memlord_cuda.h;
         done;
     done"
driver="tests/matrix/cuda_driver.c build/release/cuda.o $link -l:libcuda.so.1 -L$fake"
with_toolkit "with cuda.h the driver's virtual memory is counted, from C and from C++, and compiled out" \
    "for cc in 'gcc -std=c99 -x c' 'g++ -std=c++11 -x c++' 'gcc -std=c99 -DMEMLORD_DISABLE -x c'; do
         \$cc $warn $flags \$(echo $driver | sed 's/cuda_driver.c /&-x none /') -o $out/driver;
         FAKE_CUDA_DEVICES=1 $out/driver;
     done"
with_toolkit "and by --wrap" \
    "gcc -std=c99 $flags -DWRAPPED -DMEMLORD_CUDA_WRAP tests/matrix/cuda_impl.c \
         $(echo "$driver" | sed 's,build/release/cuda.o,,') \
         $wraps $(for name in Create Release Map Unmap RetainAllocationHandle; do
                      printf ' -Wl,--wrap=cuMem%s' $name; done) -o $out/driver_wrap;
     FAKE_CUDA_DEVICES=1 $out/driver_wrap"

check "the inference example trims, ends with nothing live, and says so where there is no driver" \
    "gcc -std=c99 $warn $flags examples/cuda_inference.c build/release/fake_cuda.o -rdynamic \
         -Wl,--disable-new-dtags,-rpath,$fake -ldl -pthread -o $out/inference;
     FAKE_CUDA_DEVICES=1 $out/inference >$out/inference.txt;
     grep -qE '^64 tokens; .* 0 B now; [1-9][0-9]* collections gave back [1-9]' $out/inference.txt;
     grep -q kv_cache $out/inference.txt;
     $out/inference >$out/none.txt 2>&1 && exit 1 || [ \$? = 77 ];
     grep -q 'no NVIDIA driver' $out/none.txt; [ \$(wc -l <$out/none.txt) = 1 ]"
inference="gcc -std=c99 -DMLI_EMITTED $flags examples/cuda_inference.c $link"
partly() { # FUNCTIONS: a driver without them
    echo "gcc -std=c99 $flags -fPIC -shared $(for name in $1; do printf ' -D%s=none_%s' "$name" "$name"; done) \
        tests/fake_cuda/libcuda.c"
}
check "without a driver it names the library, and with a part of one what is missing" \
    "$inference -DMEMLORD_CUDA_DRIVER='\"none.so\"' -o $out/inference_none;
     $out/inference_none 2>$out/none.txt && exit 1 || [ \$? = 77 ]; grep -q 'none.so was not found' $out/none.txt;
     $(partly cuEventQuery) -o $out/part.so;
     $inference -DMEMLORD_CUDA_DRIVER='\"$out/part.so\"' -o $out/inference_part;
     $out/inference_part 2>$out/part.txt && exit 1 || [ \$? = 77 ]; grep -q 'part.so has no cuEventQuery' $out/part.txt"
check "a driver need not have what only an option asks for" \
    "$(partly 'cuEventElapsedTime cuEventSynchronize cuDeviceGetPCIBusId') -o $out/old.so;
     $inference -DMEMLORD_CUDA_DRIVER='\"$out/old.so\"' -o $out/inference_old;
     FAKE_CUDA_DEVICES=2 $out/inference_old >$out/old.txt; grep -q '^64 tokens' $out/old.txt"
check "and where there was no toolkit when it was built" \
    "gcc -std=c99 -DWITHOUT_CUDA examples/cuda_inference.c -o $out/without;
     $out/without 2>$out/without.txt && exit 1 || [ \$? = 77 ]; grep -q toolkit $out/without.txt"

# -- the GPU's tests and bench, as far as they go without one --

check "make test-gpu and bench-gpu say in one line that they were not run, and why, status 77" \
    "for what in test bench; do
         CUDA_VISIBLE_DEVICES= sh tests/gpu.sh \$what >$out/gpu.txt 2>&1 && exit 1 || [ \$? = 77 ];
         [ \$(wc -l <$out/gpu.txt) = 1 ]; grep -q '^verdict: not run: no ' $out/gpu.txt;
     done"
check "nor is there one under a driver that is too old" \
    "FAKE_CUDA_OLD_DRIVER=1 sh tests/gpu.sh fake test >$out/gpu_old.txt && exit 1 || [ \$? = 77 ];
     [ \$(wc -l <$out/gpu_old.txt) = 1 ];
     grep -q 'the driver is one for CUDA 11.2, the toolkit is 1' $out/gpu_old.txt"
check "they install nothing" \
    "make -n -B test-gpu bench-gpu >$out/gpu_make.txt 2>&1; grep -q 'gpu.sh bench' $out/gpu_make.txt;
     grep 'deps.sh' $out/gpu_make.txt || true"
check "the GPU's tests pass on the fake, and its bench runs there" \
    "sh tests/gpu.sh fake test >$out/gpu_test.txt; ! grep FAILED $out/gpu_test.txt;
     [ \$(grep -c ' passed' $out/gpu_test.txt) -ge 12 ];
     cmp $out/gpu_test.txt \$(ls -t build/gpu/fake/*-gpu-test.txt | head -n 1);
     sh tests/gpu.sh fake bench >$out/gpu_bench.txt || [ \$? = 3 ]; grep -q 'cudaMallocAsync' $out/gpu_bench.txt;
     grep -q 'memlord .*[0-9]' $out/gpu_bench.txt; ! grep -i 'nan' $out/gpu_bench.txt"

check "the allocator for PyTorch is not built where there is no toolkit" \
    "! env -u MAKEFLAGS -u MAKELEVEL make -s -W examples/torch_allocator.cpp CUDA_HOME=/nowhere \
         build/libmemlord_torch.so 2>$out/torch.txt; grep -q 'no CUDA toolkit in /nowhere' $out/torch.txt"

# -- the real runtime, without a driver --

program="gcc -std=c99 $warn $flags tests/matrix/cuda_real.c build/release/memlord.o"
once_of_20() { # PROGRAM: other work on the machine makes most runs slow, not all
    echo "for run in \$(seq 20); do said=\$($1) && exit; done; echo \"\$said\""
}
with_toolkit "the shared runtime without a driver: its answers, a clean last error, under 1 ms of processor time" \
    "$program -L$lib -lcudart -Wl,-rpath,$lib -ldl -o $out/shared; $(once_of_20 $out/shared)"
with_toolkit "the static runtime likewise" \
    "$program -L$lib -lcudart_static -lrt -ldl -o $out/static; $(once_of_20 $out/static)"
with_toolkit "--wrap on the static runtime" \
    "$wrapped build/release/memlord.o -DREAL $wraps -L$lib -lcudart_static -lrt -ldl -o $out/wrap_static;
     $out/wrap_static 0"
with_toolkit "--wrap on the shared runtime" \
    "$wrapped build/release/memlord.o -DREAL $wraps -L$lib -lcudart -Wl,-rpath,$lib -ldl -o $out/wrap_shared;
     $out/wrap_shared 0"
with_toolkit "the runtime knows every function of the fake's header" \
    "for inc in $home/include tests/fake_cuda/include; do
         gcc -std=c99 $warn -isystem \$inc -fsyntax-only tests/fake_cuda/fake_cuda.c;
     done"
with_toolkit "the driver has every symbol that is looked for" \
    "nm -D --defined-only $lib/stubs/libcuda.so | awk '{ print \$3 }' >$out/driver;
     for name in $(sed -n 's/^ *X(.*"\(cu[A-Z][A-Za-z0-9_]*\)".*/\1/p; s/^ *X(\(cuMem[A-Za-z]*\),.*/\1/p' \
                  memlord_cuda.h | tr '\n' ' '); do
         grep -qx \$name $out/driver || echo \$name; done"
nvcc=$home/bin/nvcc
if [ -n "$toolkit" ] && [ -x "$nvcc" ]; then
    check "nvcc compiles and links a .cu with both headers, without a warning in C++20" \
        "for std in 17 20; do
             $nvcc -std=c++\$std -Werror all-warnings -I. -x cu tests/matrix/cuda_use.c $both -o $out/nvcc -DUSE_MAIN; $out/nvcc;
         done"
    check "nvcc with the per-thread default stream, and the shim" \
        "$nvcc -std=c++17 -I. --default-stream per-thread -x cu -c tests/matrix/cuda_shim.c -o $out/nvcc_shim.o;
         nm -u $out/nvcc_shim.o | grep -E 'U cuda(Malloc|Free)' || true"
    check "nvcc compiles a kernel that allocates, beside a host with the shim" \
        "$nvcc -std=c++17 -I. -rdc=true -x cu -c tests/matrix/cuda_device.c -o $out/nvcc_device.o;
         nm -u $out/nvcc_device.o | grep -q 'U memlord_cuda_malloc'"
else
    toolkit=
    with_toolkit "nvcc compiles and links a .cu with both headers" true
    with_toolkit "nvcc compiles a kernel that allocates, beside a host with the shim" true
    with_toolkit "nvcc with the per-thread default stream, and the shim" true
fi
with_toolkit "NVTX compiles in C and in C++" \
    "for cc in 'gcc -std=c99 -x c' 'g++ -std=c++11 -x c++' 'clang -std=c99 -x c'; do
         \$cc $warn $flags -DMEMLORD_CUDA_NVTX -DMEMLORD_CUDA_IMPLEMENTATION -include memlord.h \
             -c memlord_cuda.h -o $out/nvtx.o;
     done"

with_toolkit "a profiler sees scopes, checkpoints and collections" \
    "gcc -std=c99 $flags -fPIC -shared tests/matrix/cuda_nvtx.c -o $out/nvtx.so;
     gcc -std=c99 $flags -DMEMLORD_CUDA_NVTX -DPROGRAM tests/matrix/cuda_nvtx.c tests/matrix/cuda_impl.c \
         $link -o $out/nvtx;
     FAKE_CUDA_DEVICES=1 NVTX_INJECTION64_PATH=$out/nvtx.so $out/nvtx >$out/nvtx.txt;
     printf '%s\n' 'push forward' 'push memlord collection cuda:0' 'mark memlord reclaimed 1048576' pop \
         'mark loaded 64' pop | cmp - $out/nvtx.txt"

run_checks
plan
