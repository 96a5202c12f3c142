#!/bin/sh
# tests/coverage.sh: what tests/coverage.py says of a header of two sections that two programs use.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
out=build/coverage-test
rm -rf $out && mkdir -p $out || exit 1

# `first` has 2 lines and 2 branches, `second` 4 and 4, `third` 3 and none but those of what it requires.
cat >$out/tiny.h <<'END'
#define MLI_REQUIRE(expression) do { if (!(expression)) return 7; } while (0)
/* -------- >>first -- */
static int first(int x) {
    return x ? 1 : 2;
}
/* -------- >>second -- */
static int second(int x) {
    if (x > 1) return 3;
    if (x > 5) return 4;
    return 5;
}
/* -------- >>third -- */
static int third(void) {
    MLI_REQUIRE(first(1) == 1 || first(0));
    return 6;
}
END
cat >$out/one.c <<'END'
#include "tiny.h"
int main(void) { return first(1) + second(2) == 4 || third() ? 0 : 1; }
END
cat >$out/two.c <<'END'
#include <unistd.h>
#include "tiny.h"
int main(void) { _exit(first(0) + second(0) == 7 || third() ? 0 : 1); }
END
cat >$out/unused.h <<'END'
/* -------- >>first -- */
END
flags='-std=c99 -O0 --coverage -fprofile-update=atomic'
${CC:-gcc} -std=c99 -c tests/coverage/exit.c -o $out/exit.o || exit 1
for program in one two; do
    ${CC:-gcc} $flags "-Wl,$out/exit.o" $out/$program.c -o $out/$program && $out/$program || exit 1
done
said=$(python3 tests/coverage.py $out $out/tiny.h 2>&1)

prints() { # NAME TEXT: `said` has these lines, one after another
    case $said in
    *"$2"*) verdict 0 "$1" ;;
    *) verdict 1 "$1" ;;
    esac
}

prints 'a line or branch is reached if one of two objects reaches it' \
    'tiny.h                                9   66.67         6   83.33
  first                               2  100.00         2  100.00
  second                              4  100.00         4   75.00
  third                               3    0.00         0       -'
prints 'the least covered section comes first' \
    'the least covered
  third (tiny.h)                      3    0.00         0       -
  second (tiny.h)                     4  100.00         4   75.00
  first (tiny.h)                      2  100.00         2  100.00'
prints 'the branches of an MLI_REQUIRE are left out, and counted' '
left out: 4 branches of MLI_REQUIRE
'
said=$(cat $out/tiny.h.missed)
[ "$said" = 'tiny.h:9: second: 1 of 2 branches not taken: if (x > 5) return 4;
tiny.h:13: third: line not reached: static int third(void) {
tiny.h:14: third: line not reached: MLI_REQUIRE(first(1) == 1 || first(0));
tiny.h:15: third: line not reached: return 6;' ]
verdict $? 'a file lists each line not reached and each branch not taken'
rm $out/one*.gcda
said=$(python3 tests/coverage.py $out $out/tiny.h 2>&1)
prints 'a process that ends by _exit counts' \
    '  second                              4  100.00         4   50.00'
said=$(python3 tests/coverage.py $out $out/unused.h 2>&1)
[ $? -eq 2 ] && [ "$said" = "coverage: $out has no counts of unused.h" ]
verdict $? 'a header without counts is an error'
plan
