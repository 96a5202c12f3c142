#!/bin/sh
# tests/ci.sh: the pipeline of examples/ci/memory.yml passes a program within its budget, and fails
# one that has grown, with a table of that. Speaks TAP. Runs its steps as GitHub's runner does.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
out=$PWD/build/ci
case $out in
*[\ :]*) # LD_PRELOAD is a list, and has no way to quote
    out=$(mktemp -d) && trap 'rm -rf "$out"' EXIT
    ;;
esac
why=$out/why
rm -rf "$out" && mkdir -p "$out/site/third_party" "$out/bin" && ln -s "$PWD" "$out/site/third_party/memlord" || exit 1
unset MAKEFLAGS MAKELEVEL MFLAGS DEBUGINFOD_URLS

cat >"$out/bin/sudo" <<'END_'
#!/bin/sh
# Says what is not there of the packages that would be installed.
case "$1 $2" in
'apt-get update') ;;
'apt-get install')
    shift 3
    ! command -v dpkg >/dev/null || dpkg -s "$@" >/dev/null
    ;;
*) exit 1 ;;
esac
END_
chmod +x "$out/bin/sudo"

# Runs the steps, those after a failure only if they say so, and prints the outcome.
cat >"$out/runner.py" <<'END_'
import os, subprocess, sys, yaml
workflow = yaml.safe_load(open(sys.argv[1]))
replaced = dict(arg.split("=", 1) for arg in sys.argv[2:])  # a step's name = another command
assert workflow["defaults"]["run"]["shell"] == "bash" and workflow[True], workflow
outcome = "success"
for step in workflow["jobs"]["budget"]["steps"]:
    if outcome == "failure" and step.get("if") != "always()":
        continue
    if "uses" in step:
        for kept in step["with"].get("path", "").split():
            assert os.path.exists(kept), kept
        continue
    command = replaced.pop(step["name"], step["run"])
    done = subprocess.run(["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", command])
    if done.returncode:
        print("failed:", step["name"], done.returncode, flush=True)
        outcome = "failure"
assert not replaced, replaced
print("outcome:", outcome)
END_
pipeline() { # STEP=COMMAND...: the outcome, and what was printed, are in $out/why, the page in $out/page
    : >"$out/page"
    (cd "$out/site" && rm -f now.json memory.html && PATH=$out/bin:$PATH GITHUB_STEP_SUMMARY=$out/page GITHUB_WORKSPACE=$out/site \
        python3 "$out/runner.py" third_party/memlord/examples/ci/memory.yml "$@") >"$why" 2>&1
}
accept() { # the commands at the head of the file
    (cd "$out/site" && sed -n 's/^#   //p' third_party/memlord/examples/ci/memory.yml | sh -e) >"$why" 2>&1
}


# -- under the interposer --

cat >"$out/site/app.c" <<'END_'
#include <stdlib.h>
void *volatile cache;
static void load_cache(size_t bytes) { cache = malloc(bytes); }
int main(void) {
    load_cache(1 << 20);
    free(cache);
}
END_
pipeline && says "$why" '^failed: Compare with the budget 2$' '^outcome: failure$'
verdict $? 'CI: without a budget the pipeline fails, and keeps a profile'

accept && pipeline && says "$why" '^0 of [1-9].* over budget' '^outcome: success$' &&
    ! grep '^failed' "$why"
verdict $? 'CI: its commands accept the profile, and the same program passes'

sed -i 's/1 << 20/4 << 20/' "$out/site/app.c"
pipeline && says "$why" '^failed: Compare with the budget 1$' '^outcome: failure$' &&
    python3 -c 'import html, sys; print(html.unescape(sys.stdin.read()))' <"$out/page" >"$out/read" &&
    says "$out/read" '^| devices* <code>cpu</code> | 1.* | 4.* | 3' '^| site ' 'The largest change by .*load_cache .*app.c:3' \
        '^| <code>load_cache .*app.c.* | +3 MiB ' '^\*\*Memory'
verdict $? 'CI: one that has grown fails, and the page shows the place that grew' "$out/read"

says "$why" '^::error file=app.c,line=3,title=Memory::over budget: device cpu: budget 1.*, peak 4' \
    '^::warning file=app.c,line=3,title=Memory::load_cache .*app.c:3 on cpu: peak +3 MiB' &&
    says "$out/site/memory.html" 'id="base"'
verdict $? 'CI: the line that grew has the error, and the page of both profiles is kept'

accept && pipeline && says "$why" '^outcome: success$'
verdict $? 'CI: and passes once that is accepted'

cat >"$out/site/app.c" <<'END_'
#include <pthread.h>
#include <stdlib.h>
static pthread_barrier_t all;
static void *work(void *user) {
    void *volatile kept = malloc(100);
    pthread_barrier_wait(&all);
    free(kept);
    return user;
}
int main(void) {
    pthread_t threads[16];
    int i, bad = pthread_barrier_init(&all, NULL, 17);
    for (i = 0; i < 16; i++) bad |= pthread_create(&threads[i], NULL, work, NULL);
    work(NULL);
    for (i = 0; i < 16; i++) bad |= pthread_join(threads[i], NULL);
    return bad;
}
END_
rm -r "$out/site/memory"
pipeline
accept && pipeline && says "$why" '^outcome: success$' &&
    pipeline "Run it under the interposer=$(sed -n '/LD_PRELOAD/,/now.json .\/app/p' examples/ci/memory.yml |
        sed 's/MEMLORD_EXACT=1 //')" &&
    says "$why" '^diff: device cpu: its peak may be low by [1-9].* record with .*MEMLORD_EXACT=1' \
        '^failed: Compare with the budget 2$'
verdict $? 'CI: small peaks of several threads are exact, or refused'

# -- with a profile of its own --

cat >"$out/site/app.c" <<'END_'
#define MEMLORD_IMPLEMENTATION
#include "memlord.h"
int main(int argc, char **argv) {
    MEMLORD_TAGGED(memlord_global(), "cache");
    MEMLORD_ALLOC(memlord_global(), memlord_device_cpu(), 16, 4 << 20);
    return argc > 1 && memlord_save(memlord_global(), MEMLORD_FORMAT_JSON, argv[1]) != MEMLORD_OK;
}
END_
own='Run it under the interposer=./app now.json'
rm -r "$out/site/memory"
pipeline "$own"
accept && pipeline "$own" && says "$why" '^outcome: success$' &&
    sed -i 's/4 << 20/6 << 20/' "$out/site/app.c" && pipeline "$own" &&
    says "$why" '^outcome: failure$' '^over budget: tag cache on cpu: budget 4 MiB, peak 6 MiB, over by 2 MiB$'
verdict $? 'CI: a program that saves its own profile has a budget for each tag'

pipeline 'Build the program=:' 'Run it under the interposer=echo {} >now.json && exit 3'
says "$why" '^failed: Run it under the interposer 3$' && ! grep 'Compare with' "$why"
verdict $? 'CI: a program that fails is compared with nothing'

# -- the packages --

for package in $(awk '/^look_for_(demo|json|symbols)/ { on = 1 } /^}/ { on = 0 } on && /^ *look lib/ { print $2 }' \
    tests/deps.sh); do
    grep -q "apt-get install.* $package\( \|$\)" examples/ci/memory.yml || echo "$package"
done >"$why"
[ ! -s "$why" ]
verdict $? 'CI: it installs the libraries of its tools'
plan
