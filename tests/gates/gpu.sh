#!/bin/sh
# tests/gates/gpu.sh: make test-gpu and bench-gpu reach their verdict wherever a CUDA toolkit may lie,
# without a network, speaking TAP. The fake is the toolkit and the driver, in the layout of each: in
# /usr/local/cuda, conda's, that of a Python package, Debian's, that of an image for runs, and where
# only nvcc is on PATH. The commands begin with an empty environment.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/gates.sh

cc=${CC:-gcc} driver=$out/driver
headers=tests/fake_cuda/include
mkdir -p "$driver"
library() { # FILE SOURCE... FLAGS
    file=$1
    shift
    $cc -std=c99 -O1 -w -isystem $headers -fPIC -shared "$@" -Wl,-soname,"${file##*/}" -o "$file" -pthread
}
library "$driver/libcudart.so.12" tests/fake_cuda/fake_cuda.c tests/fake_cuda/ptsz.c &&
    library "$driver/libcuda.so.1" tests/fake_cuda/libcuda.c &&
    library "$driver/libnvidia-ml.so.1" -DFAKE_NVML_V2 tests/fake_cuda/libnvml.c || exit 1

# A namespace without a network; else a proxy that refuses.
if unshare -n true 2>/dev/null; then
    alone='unshare -n' how='in a namespace without a network'
elif unshare -rn true 2>/dev/null; then
    alone='unshare -rn' how='in a namespace without a network'
else
    alone='env http_proxy=http://127.0.0.1:9 https_proxy=http://127.0.0.1:9' how='behind a proxy that refuses'
fi
echo "# $how"

put() { # HOME INCLUDE LIB: headers and the shared runtime
    mkdir -p "$1/$2" "$1/$3"
    cp $headers/cuda_runtime_api.h "$1/$2"
    cp "$driver/libcudart.so.12" "$1/$3"
}
plain() { ln -s libcudart.so.12 "$1/libcudart.so"; } # the name that only a toolkit for builds has

put "$out/local/usr/local/cuda" include lib64
plain "$out/local/usr/local/cuda/lib64"
# The linker takes a text for a library: this one stands for the static runtime.
echo "INPUT($driver/libcudart.so.12)" >"$out/local/usr/local/cuda/lib64/libcudart_static.a"
put "$out/conda/opt/conda" "targets/$(uname -m)-linux/include" "targets/$(uname -m)-linux/lib"
plain "$out/conda/opt/conda/targets/$(uname -m)-linux/lib"
put "$out/python/site/nvidia/cuda_runtime" include lib
put "$out/debian/usr" include "lib/$(uname -m)-linux-gnu"
plain "$out/debian/usr/lib/$(uname -m)-linux-gnu"
mkdir -p "$out/runs/usr/local/cuda/lib64"
cp "$driver/libcudart.so.12" "$out/runs/usr/local/cuda/lib64"
put "$out/nvcc/somewhere" include lib64
plain "$out/nvcc/somewhere/lib64"
mkdir -p "$out/nvcc/somewhere/bin" "$out/nvcc/bin" "$out/nvcc/usr/local/cuda/lib64" # without headers
cp "$driver/libcudart.so.12" "$out/nvcc/usr/local/cuda/lib64"
printf '#!/bin/sh\nexit 1\n' >"$out/nvcc/somewhere/bin/nvcc"
chmod +x "$out/nvcc/somewhere/bin/nvcc"
ln -s ../somewhere/bin/nvcc "$out/nvcc/bin/nvcc"

put "$out/ends/usr/local/cuda" include lib64
plain "$out/ends/usr/local/cuda/lib64"
mkdir -p "$out/ends/bin"
# The rows of test_gpu end by a signal.
cat >"$out/ends/bin/timeout" <<'SH'
#!/bin/sh
case $* in *"/test_gpu two streams"*) exit 139 ;; esac
exec /usr/bin/timeout "$@"
SH
# A tool that ends with 0 whatever it finds.
cat >"$out/ends/bin/compute-sanitizer" <<'SH'
#!/bin/sh
for found in $(echo $FOUND | tr , " "); do echo "========= ERROR SUMMARY: $found errors"; done
SH
chmod +x "$out/ends/bin/"*

# Each run has a copy of the tree, for its own build/ and bench/results.
tree() { # LAYOUT NUMBER
    at=$out/$1/tree$2
    mkdir -p "$at/bench/results" "$at/tests" "$at/build"
    cp -r memlord.h memlord_cuda.h examples "$at"
    cp bench/*.* "$at/bench"
    cp -r tests/gpu.sh tests/gpu tests/matrix "$at/tests"
}
# STATUS VERDICT LAYOUT WHAT [TEXT [VARIABLE]]
runs=0
ends() {
    runs=$((runs + 1))
    tree "$3" $runs
    said=$out/$runs-$3-$4.txt
    check "$3: $4${5:+ $5}${6:+, $6} ends with $1, and says so" "cd $out/$3/tree$runs; rc=0;
        $alone env -i HOME=$out PATH=$out/$3/bin:/usr/bin:/bin GPU_ROOT=$out/$3 CFLAGS=-O0 CC='$cc' \
            FAKE_CUDA_DEVICES=1 FAKE_CUDA_UNKIND=1 LD_LIBRARY_PATH=$driver ${6:-} timeout -k 5 300 sh tests/gpu.sh $4 ${5:+'$5'} \
            >$said 2>&1 || rc=\$?;
        [ \$rc = $1 ] || { tail -n 20 $said; exit 1; };
        grep -q -e '^verdict: $2' $said || { grep verdict $said; exit 1; }"
}
site=PYTHONPATH=$out/python/site
ends 0 'passed, [0-9]* rows not run$' local test
ends 0 'passed, 0' local bench attaching
ends 0 'passed, 0' conda test 'two streams: pending'
ends 0 'passed, 0' python test 'two streams: pending' "$site"
ends 0 'passed, 1' debian test 'two streams'
ends 0 'passed, 0' nvcc test 'two streams: pending'
ends 3 'aims missed: cudaMallocAsync' python bench 'memory of a stream' "$site"
none="not run: $out/runs/usr/local/cuda/lib64/libcudart.so.12 is there, and .* has no cuda_runtime_api.h"
ends 77 "$none" runs test
ends 77 "$none" runs bench
ends 77 'not run: no CUDA toolkit in /usr/local/cuda, nor' empty test
ends 77 'not run: no CUDA toolkit in /nowhere' local test '' CUDA_HOME=/nowhere
ends 77 'not run: no GPU: the driver is one for CUDA 11.2, the toolkit is 12.3' local test '' FAKE_CUDA_OLD_DRIVER=1
ends 77 'not run: none of 2 rows could be run' debian test PyTorch
ends 1 'failed: the rows of test_gpu' ends test 'two streams: pending'
ends 0 'passed, 0' ends test compute-sanitizer FOUND=0,0
ends 1 'failed: compute-sanitizer' ends test compute-sanitizer FOUND=0,2
ends 1 'failed: compute-sanitizer' ends test compute-sanitizer FOUND=
ends 1 'failed: two streams' debian test 'two streams: pending' LD_LIBRARY_PATH=$out/driverless
mkdir "$out/driverless" && cp "$driver/libcudart.so.12" "$out/driverless"
run_checks
says "$out/1-local-test.txt" 'two streams on the static runtime *passed' \
    'a library with a runtime of its own *not run: the plug-in has the program.s runtime' \
    'own stream is its default stream *passed' 'PyTorch: .*not run: no PyTorch' 'compute-sanitizer .*not run' >"$why"
verdict $? 'local: rows say that they passed, or why they were not run'
plan
