#!/bin/sh
# tests/fuzz.sh: random input, speaking TAP: programs of calls, texts and pages of shared memory by
# libFuzzer (tests/fuzz/), saved profiles for the tools that read JSON by AFL++. All with the address
# and undefined sanitizers. Each takes MEMLORD_FUZZ_SECONDS. The seed is printed; MEMLORD_TEST_SEED
# plays it again. An input that breaks something stays in build/fuzz.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
out=build/fuzz
seconds=${MEMLORD_FUZZ_SECONDS:-90}
seed=${MEMLORD_TEST_SEED:-$(date +%s)}
why=$out/why
safe="-g -O1 -fsanitize=address,undefined -fno-sanitize-recover=all"
warn="-Wall -Wextra -pedantic -Wconversion -Wshadow -Wundef -Werror"
rm -rf $out && mkdir -p $out || exit 1
echo "# seed $seed"

# -- libFuzzer --

harness="clang -std=c99 $safe -DMEMLORD_CHECK_LOCKS $warn -I. -isystem tests/cmocka -pthread"
fuzz() { # NAME LONGEST WHAT: runs tests/fuzz/NAME.c on random inputs
    mkdir -p "$out/$1-inputs"
    $harness -fsanitize=fuzzer "tests/fuzz/$1.c" $out/memlord.o -o "$out/$1" >$why 2>&1 &&
        "$out/$1" -max_total_time="$seconds" -seed="$seed" -max_len="$2" -len_control=0 -timeout=60 \
            -print_final_stats=1 -artifact_prefix="$out/$1-" "$out/$1-inputs" >$why 2>&1
    verdict $? "$3"
    sed -n 's/^stat::number_of_executed_units: */# inputs: /p' $why
}
$harness -fsanitize=fuzzer-no-link -c tests/matrix/impl.c -o $out/memlord.o >$why 2>&1
verdict $? 'the implementation is built for libFuzzer'
fuzz calls 600 'whatever is called in whatever order, the ledger agrees with itself'
fuzz text 64 'any text is a device, bytes and a variable, or an error that changes nothing'
fuzz page 512 'whatever is written into a page of shared memory, ledgers on it keep their own figures'

# -- AFL++ --

export AFL_SKIP_CPUFREQ=1 AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES=1 AFL_NO_UI=1 AFL_NO_AFFINITY=1 \
    AFL_HANG_TMOUT=20000
tool() { # NAME LIBRARIES ARGUMENTS WHAT: src/tools/NAME.c reads mutated profiles
    AFL_USE_ASAN=1 AFL_USE_UBSAN=1 afl-clang-fast -std=c99 -g -O1 -fno-sanitize-recover=all -I. "src/tools/$1.c" \
        -o "$out/$1" $2 -lm -pthread >$why 2>&1 &&
        afl-fuzz -i $out/seeds -o "$out/$1-afl" -s "$seed" -V "$seconds" -m none -t 20000 -- \
            "$out/$1" $3 >$why 2>&1
    status=$?
    found=$(ls "$out/$1-afl/default/crashes" "$out/$1-afl/default/hangs" 2>/dev/null | grep -c '^id:')
    [ $status -eq 0 ] && [ "$found" -eq 0 ]
    verdict $? "$4"
    sed -n 's/^execs_done *: */# inputs: /p' "$out/$1-afl/default/fuzzer_stats" 2>/dev/null
}
mkdir -p $out/seeds
for size in 1 4; do
    LD_PRELOAD=$PWD/build/libmemlord_preload.so MEMLORD_REPORT=$out/seeds/$size.json sort -S ${size}M README.md >/dev/null
done
if command -v afl-fuzz >/dev/null && command -v afl-clang-fast >/dev/null; then
    tool diff -lcjson "@@ $out/seeds/1.json" 'diff ends well on any profile'
    tool symbolize '-lcjson -ldw -lelf -liberty' "@@ -o /dev/null" 'symbolize ends well on any profile'
else
    skip 'diff and symbolize end well on any profile' 'no AFL++'
fi
plan
