#!/bin/sh
# tests/install.sh: what `make install` and CMake put in place serves programs in C and C++, found by
# pkg-config, find_package and FetchContent; `make uninstall` removes it. Speaks TAP. Without cmake
# its tests are skipped (`make deps-reports`).
set -u
cd "$(dirname "$0")/.." || exit 1
out=$PWD/build/install
list=$out/list
. tests/tap.sh
rm -rf "$out" && mkdir -p "$out/app" && : >"$list" || exit 1
unset MAKEFLAGS MAKELEVEL MFLAGS PKG_CONFIG_SYSROOT_DIR DESTDIR PREFIX
build_memlord
needs build/diff
why=$out/why
version=$(sed -n 's/^#define MEMLORD_VERSION "\(.*\)"/\1/p' memlord.h)
number=${version%-dev} # for programs whose versions are numbers
warn='-Wall -Wextra -pedantic -Wconversion -Wshadow -Wundef -Werror'

files() { (cd "$1" && find . ! -type d | sort); } # DIRECTORY
loose() { (cd "$1" && find . ! -perm -444; find . -type d ! -perm -555); } # not for everybody to read

cat >"$out/app/impl.c" <<'END_'
#define MEMLORD_IMPLEMENTATION
#include <memlord.h>
END_
cat >"$out/app/app.c" <<'END_'
#include <memlord.h>
#include <stdio.h>
int main(void) {
    memlord *lord = memlord_global();
    MEMLORD_ALLOC(lord, memlord_device_cpu(), 16, 100);
    return printf("%s %d\n", MEMLORD_VERSION, (int)memlord_allocated(lord, memlord_device_cpu())) < 0;
}
END_
cp "$out/app/app.c" "$out/app/app.cpp"
cat >"$out/app/cuda.c" <<'END_'
#include <memlord.h>
#define MEMLORD_CUDA_IMPLEMENTATION
#include <memlord_cuda.h>
END_

# -- make install, make uninstall --

wanted="$(for file in include/memlord.h include/memlord/stb_ds.h include/memlord_cuda.h lib/libmemlord_preload.so \
    share/cmake/memlord/memlord-config-version.cmake share/cmake/memlord/memlord-config.cmake \
    share/pkgconfig/memlord.pc; do echo "./$file"; done)"
for tool in diff symbolize; do
    [ ! -x build/$tool ] || wanted="./bin/memlord-$tool
$wanted"
done
root=$out/root/opt/memlord
(umask 077 && make install DESTDIR="$out/root" PREFIX=/opt/memlord) >"$why" 2>&1 &&
    files "$root" >"$out/files" && printf '%s\n' "$wanted" | LC_ALL=C sort | diff - "$out/files" >"$why" &&
    loose "$out/root" >"$why" && [ ! -s "$why" ]
verdict $? 'make install puts its files under DESTDIR and PREFIX, for everybody to read'

grep -qx 'prefix=/opt/memlord' "$root/share/pkgconfig/memlord.pc" && ! grep -r "$out" "$root/share" >"$why"
verdict $? 'and they do not name DESTDIR'

# By a path without spaces: LD_PRELOAD is a list.
link=$(mktemp -d) && trap 'rm -rf "$link"' EXIT && ln -s "$root" "$link/root" &&
    MEMLORD_REPORT=- LD_PRELOAD=$link/root/lib/libmemlord_preload.so sort Makefile >/dev/null 2>"$why" &&
    says "$why" '^MemLord '
verdict $? 'the installed interposer runs'

"$root/bin/memlord-diff" >"$why" 2>&1
[ $? = 2 ]
verdict $? 'the installed tools run'

# A system without stb_ds.h: its include directory without that of stb.
mkdir -p "$out/system" && ln -s /usr/include/* "$out/system/" && rm -f "$out/system/stb" &&
    ${CC:-gcc} -nostdinc -isystem "$(${CC:-gcc} -print-file-name=include)" -isystem "$out/system" \
        -isystem "/usr/include/$(uname -m)-linux-gnu" -I"$root/include" -M "$out/app/impl.c" >"$why" 2>&1 &&
    says "$why" 'include/memlord/stb_ds.h'
verdict $? 'an installed tree brings the stb_ds.h that the system lacks'

make install DESTDIR="$out/none/" PREFIX=opt >"$why" 2>&1 || [ $? = 2 ] &&
    says "$why" 'PREFIX must begin with a /' && ! make uninstall PREFIX= >"$why" 2>&1 &&
    says "$why" 'PREFIX must begin' && [ ! -e "$out/none" ] && [ ! -e opt ]
verdict $? 'a PREFIX that is not absolute is refused, and nothing written'

# The layout of 0.4.0, of which a file would be found before ours.
mkdir -p "$root/lib/pkgconfig" && echo old >"$root/include/memlord.h" && rm -f "$root/bin/memlord-diff" &&
    sed 's/^Version: .*/Version: 0.0.1/' "$root/share/pkgconfig/memlord.pc" >"$root/lib/pkgconfig/memlord.pc" &&
    make install DESTDIR="$out/root" PREFIX=/opt/memlord >"$why" 2>&1 && cmp memlord.h "$root/include/memlord.h" >"$why" &&
    files "$root" | diff "$out/files" - >"$why"
verdict $? 'an install over an older one leaves nothing of that'

for file in include/mine.h include/stb_ds.h share/cmake/memlord/mine lib/pkgconfig/mine.pc; do : >"$root/$file"; done
make uninstall DESTDIR="$out/root" PREFIX=/opt/memlord >"$why" 2>&1 && files "$root" >"$why" &&
    [ "$(grep -c . "$why")" = 4 ] && ! grep -vE 'mine|/stb_ds.h' "$why"
verdict $? "make uninstall leaves other people's files"

rm -rf "$out/root" && make install DESTDIR="$out/root" PREFIX=/opt/memlord >"$why" 2>&1 &&
    make uninstall DESTDIR="$out/root" PREFIX=/opt/memlord >"$why" 2>&1 &&
    make uninstall DESTDIR="$out/root" PREFIX=/opt/memlord >>"$why" 2>&1 &&
    (cd "$out/root" && find . ! -type d -o -path '*/memlord/*memlord') >>"$why" && [ ! -s "$why" ]
verdict $? 'and nothing of ours, nor does it fail where nothing is installed'

# By somebody who owns the tree, and nothing else.
mine=$(mktemp -d) && as= &&
    cp -Rp Makefile memlord.h memlord_cuda.h "$mine" && mkdir -p "$mine/tests" "$mine/examples" "$mine/src" "$mine/build" &&
    cp -Rp src/packaging src/tools "$mine/src" &&
    cp -Rp tests/deps.sh tests/parts.mk tests/matrix "$mine/tests" && cp -p examples/quickstart.c "$mine/examples" &&
    cp -p build/libmemlord_preload.so "$mine/build" && touch "$mine/build/libmemlord_preload.so" &&
    if [ "$(id -u)" = 0 ]; then
        chown -R 65534:65534 "$mine" && as='setpriv --reuid 65534 --regid 65534 --clear-groups'
    fi && $as make -C "$mine" install PREFIX="$mine/usr" >"$why" 2>&1 &&
    [ -r "$mine/usr/include/memlord.h" ] && $as make -C "$mine" uninstall PREFIX="$mine/usr" >>"$why" 2>&1
verdict $? 'neither needs root'

# With a compiler that finds no stb_ds.h, and an apt-get that only notes that it was called.
printf '#!/bin/sh\necho "$@" >>"%s/called"\nexit 1\n' "$mine" >"$mine/apt-get"
printf '#!/bin/sh\ncase " $* " in *" -E "*) exit 1 ;; esac\nexec %s "$@"\n' "${CC:-gcc}" >"$mine/cc"
chmod +x "$mine/apt-get" "$mine/cc"
without_stb() { (PATH=$mine:$PATH && export PATH && make -C "$mine" CC="$mine/cc" "$@"); }
for goal in "vendor DIR=$mine/third_party" "install PREFIX=$mine/usr2" build/release/memlord.o build/quickstart; do
    # shellcheck disable=SC2086 # a goal and its variables
    ! without_stb $goal >"$why" 2>&1 && says "$why" 'missing: libstb-dev' 'install with: sudo apt-get' 'make deps-demo' &&
        [ ! -e "$mine/called" ] && [ ! -e "$mine/third_party" ] && [ ! -e "$mine/usr2" ]
    verdict $? "make ${goal%% *} says what is missing, and installs no package"
done
if [ "$(id -u)" = 0 ]; then
    ! without_stb deps-demo >"$why" 2>&1 && says "$mine/called" 'install .*libstb-dev' &&
        make -n demo >"$why" 2>&1 && says "$why" 'deps.sh demo *$'
    verdict $? 'make deps-demo installs it, and make demo likewise'
else
    skip 'make deps-demo installs it, and make demo likewise' 'not root'
fi
rm -rf "$mine"

grep -l "v$version, C99 and C++11" memlord.h memlord_cuda.h >"$why" && [ "$(grep -c . "$why")" = 2 ] &&
    ! grep -rn '[0-9]\.[0-9]*\.[0-9]' src/packaging >>"$why" && ! grep -n "$version" CMakeLists.txt Makefile >>"$why"
verdict $? 'the version is that of memlord.h, which both headers begin with, and no other file has it'

# -- pkg-config --

spaced="$out/a prefix/usr"
by_pkg_config() { # COMPILER...: builds app.c and says what it prints
    eval '"$@"' "$(pkg-config --cflags memlord)" '"$out/app/app.c" -x none "$memlord" -o "$out/app.out"' \
        "$(pkg-config --libs memlord)" && "$out/app.out"
}
export PKG_CONFIG_PATH="$spaced/share/pkgconfig"
make install PREFIX="$spaced" >"$why" 2>&1 && [ "$(pkg-config --modversion memlord)" = "$number" ] &&
    pkg-config --exists "memlord >= 0.4 memlord < $number.1"
verdict $? 'pkg-config finds memlord and its version, under a PREFIX with a space'

by_pkg_config ${CC:-gcc} -std=c99 $warn >"$why" 2>&1 && says "$why" "^$version 100$" &&
    by_pkg_config ${CXX:-g++} -std=c++11 $warn -x c++ >"$why" 2>&1 && says "$why" "^$version 100$"
verdict $? 'its flags build programs in C and in C++'

(PKG_CONFIG_SYSROOT_DIR=/target && export PKG_CONFIG_SYSROOT_DIR && pkg-config --cflags memlord) >"$why" 2>&1 &&
    says "$why" '^-I["]*/target/.*a.* prefix/usr/include'
verdict $? 'and they respect a sysroot'

# -- CMake --

if ! command -v cmake >/dev/null; then
    for name in find_package README cuda add_subdirectory FetchContent 'top level'; do skip "CMake: $name" 'no cmake'; done
    plan
    exit
fi
mkdir -p "$out/found" "$out/cuda" "$out/fetched" "$out/readme" "$out/toolkit/bin" "$out/toolkit/lib64" || exit 1
cat >"$out/found/CMakeLists.txt" <<'END_'
cmake_minimum_required(VERSION 3.14)
project(found C CXX)
set(PACKAGE_VERSION mine)
foreach(wrong 0.3 0.40 1.0 ${version}.1)
  find_package(memlord ${wrong} QUIET CONFIG)
  if(memlord_FOUND OR TARGET memlord::memlord)
    message(FATAL_ERROR "${wrong} is found")
  endif()
endforeach()
find_package(memlord COMPONENTS hip QUIET CONFIG)
if(memlord_FOUND)
  message(FATAL_ERROR "a component that is none is found")
endif()
find_package(memlord ${version} EXACT REQUIRED CONFIG)
find_package(memlord ${minor} REQUIRED CONFIG)
if(NOT memlord_VERSION STREQUAL version OR NOT PACKAGE_VERSION STREQUAL "mine" OR CUDAToolkit_FOUND)
  message(FATAL_ERROR "${memlord_VERSION}, ${PACKAGE_VERSION}, ${CUDAToolkit_FOUND}")
endif()
add_executable(in_c ../app/app.c)
add_executable(in_cpp ../app/app.cpp)
target_link_libraries(in_c PRIVATE memlord::memlord "${implementation}")
target_link_libraries(in_cpp PRIVATE memlord::memlord "${implementation}")
END_
cat >"$out/cuda/CMakeLists.txt" <<'END_'
cmake_minimum_required(VERSION 3.17)
project(cuda C)
if(checkout)
  find_package(CUDAToolkit REQUIRED)
  add_subdirectory("${checkout}" memlord)
else()
  find_package(memlord REQUIRED COMPONENTS cuda CONFIG)
endif()
add_library(app ../app/cuda.c)
target_link_libraries(app PRIVATE memlord::cuda)
END_
cat >"$out/fetched/CMakeLists.txt" <<'END_'
cmake_minimum_required(VERSION 3.14)
project(fetched CXX)
include(CTest)
include(FetchContent)
FetchContent_Declare(memlord SOURCE_DIR "${checkout}")
FetchContent_MakeAvailable(memlord)
if(CMAKE_C_COMPILER OR CMAKE_CUDA_COMPILER OR TARGET quickstart OR CUDAToolkit_FOUND)
  message(FATAL_ERROR "a language, a test or a package that nobody asked for")
endif()
add_executable(app ../app/app.cpp)
target_link_libraries(app PRIVATE memlord::memlord "${implementation}")
install(TARGETS app DESTINATION bin)
END_
{
    echo 'cmake_minimum_required(VERSION 3.14)
project(readme C)
add_executable(app ../app/app.c "${implementation}")'
    awk '/^```cmake$/ { on = 1; next } /^```$/ { on = 0 } on' README.md
} >"$out/readme/CMakeLists.txt"
# As much of a toolkit as CMake looks for.
cat >"$out/toolkit/bin/nvcc" <<END_
#!/bin/sh
case \$1 in
-v) echo '#\$ TOP=$out/toolkit' ;;
*) echo 'Cuda compilation tools, release 13.0, V13.0.88' ;;
esac
END_
chmod +x "$out/toolkit/bin/nvcc" && cp -R tests/fake_cuda/include "$out/toolkit/include" &&
    : >"$out/toolkit/include/cuda_runtime.h" && : >"$out/toolkit/lib64/libcudart.so" || exit 1

# NAME DIRECTORY ARGUMENTS COMMANDS: passes if cmake builds it and the commands say nothing.
project() {
    check "$1" "cd '$2' && mkdir -p '$out/${1%%:*}'; cd '$out/${1%%:*}';
        cmake '$2' -DCMAKE_C_FLAGS='$warn' -DCMAKE_CXX_FLAGS='$warn' $3 >log 2>&1 || { cat log; exit 1; };
        cmake --build . -j 2 >log 2>&1 || { cat log; exit 1; }; $4"
}
prints() { echo "[ \"\$($1)\" = '$version 100' ] || echo 'another output than $version 100';"; } # PROGRAM

project 'find_package: serves programs in C and in C++, each version but its own refused' "$out/found" \
    "'-Dmemlord_ROOT=$spaced' -Dversion=$number -Dminor=${number%.*} '-Dimplementation=$memlord'" "$(prints ./in_c)$(prints ./in_cpp)"
project 'README: its lines build a program' "$out/readme" \
    "'-Dmemlord_ROOT=$spaced' '-Dimplementation=$memlord'" "$(prints ./app)"
project 'find_package with the component cuda: finds the toolkit and builds memlord_cuda.h' "$out/cuda" \
    "'-Dmemlord_ROOT=$spaced' '-DCUDAToolkit_ROOT=$out/toolkit'" ''
project 'add_subdirectory: builds memlord_cuda.h after find_package(CUDAToolkit)' "$out/cuda" \
    "-Dcheckout='$PWD' '-DCUDAToolkit_ROOT=$out/toolkit'" ''
project 'FetchContent: serves a program in C++ alone, and adds no test, file or language' "$out/fetched" \
    "-Dcheckout='$PWD' '-Dimplementation=$memlord' '-DCMAKE_INSTALL_PREFIX=$out/only'" "$(prints ./app)
        ctest -N | grep -q 'Total Tests: 0' || echo tests;
        cmake --install . >log 2>&1; cd '$out/only' && find . -type f | grep -vx ./bin/app || :"
project 'top level: builds and runs a test, and installs what make installs but for the tools' "$PWD" \
    "'-DCMAKE_INSTALL_PREFIX=$spaced 2'" "ctest >log 2>&1 || cat log;
        cmake --install . >log 2>&1 || cat log;
        diff -r -x bin -x lib -x memlord.pc '$spaced' '$spaced 2' || :;
        sed 's/ 2$//' '$spaced 2/share/pkgconfig/memlord.pc' | diff - '$spaced/share/pkgconfig/memlord.pc' || :"
run_checks

make uninstall PREFIX="$spaced" >"$why" 2>&1 && find "$out/a prefix/usr" ! -type d >"$why" && [ ! -s "$why" ]
verdict $? 'make uninstall removes what lies under a PREFIX with a space'
plan
