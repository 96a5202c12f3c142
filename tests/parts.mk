# tests/parts.mk: the parts of `make test-all`, and the builds of the suites for other machines, C
# libraries and systems. The Makefile includes it.

# -- other machines --

# These builds take cmocka from tests/cmocka, because Debian has no cmocka for most of them. What a
# machine runs with, where this processor or this system cannot, is an emulator. i486 has no 64-bit
# atomics. A 32-bit program of this processor needs no emulator, but the loader of its own libc.
i686_libc := -Wl,--dynamic-linker=/usr/i686-linux-gnu/lib/ld-linux.so.2,-rpath,/usr/i686-linux-gnu/lib
linux_headers = -idirafter /usr/include -idirafter /usr/include/$(shell $(CC) -dumpmachine)
own_cmocka := -isystem tests/cmocka -isystem build/stb

cc.i386 := i686-linux-gnu-gcc -O2 $(i686_libc)
cc.i486 := i686-linux-gnu-gcc -O2 -march=i486 $(i686_libc)
cc.aarch64 := aarch64-linux-gnu-gcc -O2
# gcc makes no unwind tables for C on ARM and RISC-V unless it is told to: stacks would end at their
# first frame. qemu's inodes and offsets have 64 bits.
cc.armhf := arm-linux-gnueabihf-gcc -O2 -funwind-tables -D_FILE_OFFSET_BITS=64
cc.riscv64 := riscv64-linux-gnu-gcc -O2 -funwind-tables
cc.ppc64el := powerpc64le-linux-gnu-gcc -O2
cc.s390x := s390x-linux-gnu-gcc -O2
cc.musl = musl-gcc -O2 $(linux_headers)
cc.musl-static = musl-gcc -O2 -static -DTEST_STATIC $(linux_headers)
cc.windows := x86_64-w64-mingw32-gcc -O2 -static -Wno-float-conversion -isystem tests/windows

# The loader of a cross libc would take the libc of this system if it has one for that processor.
qemu = qemu-$(1) -L /usr/$(2) -E LD_LIBRARY_PATH=/usr/$(2)/lib
emulator.aarch64 := $(call qemu,aarch64,aarch64-linux-gnu)
emulator.armhf := $(call qemu,arm,arm-linux-gnueabihf)
emulator.riscv64 := $(call qemu,riscv64,riscv64-linux-gnu)
emulator.ppc64el := $(call qemu,ppc64le,powerpc64le-linux-gnu)
emulator.s390x := $(call qemu,s390x,s390x-linux-gnu)
emulator.windows := wine

ports := i386 i486 aarch64 armhf riscv64 ppc64el s390x musl musl-static windows
exe.windows := .exe

# Suites of what a target does not have.
unfit.i486 := test_neighbours test_slots # pages need 64-bit atomics
unfit.musl := test_barrier test_stacks # musl has neither pthread_attr_setaffinity_np nor makecontext
# Nor does a static program have functions of libc behind its own.
unfit.musl-static := $(unfit.musl) test_modules test_platform test_pollers
# Linux's: /proc, cgroups, membarrier, pages of shared memory. POSIX's: fork, signals, limits of a process,
# mappings, fibres, thread keys, and functions of libc that a suite replaces.
unfit.windows := test_barrier test_cpu test_hosts test_modules test_neighbours test_orphans test_peaks \
	test_platform test_pollers test_reports test_requires test_saving test_shim test_slots test_stacks

define port_rules
cc.$(1) += $(own_cmocka)
libs.$(1) := $(if $(filter windows,$(1)),-lm,-ldl)$(if $(filter i486,$(1)), -latomic)
needs.$(1) := build/stb/stb/stb_ds.h deps-demo
suites.$(1) := $(addprefix build/$(1)/,$(addsuffix $(exe.$(1)),$(filter-out test_cuda_% $(unfit.$(1)), \
	$(patsubst tests/%.c,%,$(wildcard tests/test_*.c)))))
build/$(1)/memlord.o: build/$(1)/runs
build/$(1)/runs: tests/parts.mk
	@mkdir -p build/$(1) && echo '$(emulator.$(1))' >$$@
endef
$(foreach port,$(ports),$(eval $(call port_rules,$(port))))

# Without 64-bit atomics the suites take their own from libatomic. MemLord needs none of it.
$(suites.i486): | build/i486/alone
build/i486/alone: build/i486/memlord.o
	@! nm -u $< | grep __atomic_ && touch $@

# Compilers of other targets do not look into /usr/include.
build/stb/stb/stb_ds.h: | deps-demo
	@mkdir -p build/stb/stb && $(find_stb) && cp "$$stb" $@

# -- the table of the parts --

# $(call part,NAME,MINUTES,GROUP OF TESTS/DEPS.SH,SUITES,WHAT IT IS). A part of more than ten minutes
# runs with LONG=1 only. A suite below build/ is built first, and so is what built.NAME names.
parts :=
define part
parts += $(1)
minutes.$(1) := $(2)
group.$(1) := $(3)
runs.$(1) = $(4)
what.$(1) := $(5)
endef
row = $(eval $(call part,$(1),$(2),$(3),$(4),$(5)))

# What of a list comes to the K-th of N parts, in turn.
slice = $(shell printf '%s\n' $(3) | awk 'NR % $(2) == $(1) % $(2)')
# The suites of a build and, where membarrier(2) is refused, some of them again.
all_of = $(call programs,$(1),$(1))

$(call row,i386,4,ports,$$(suites.i386),processors of 32 bits: the suites)
$(call row,i486,4,ports,$$(suites.i486),a processor without 64-bit atomics)
$(call row,aarch64,7,ports,$$(suites.aarch64),in qemu)
$(call row,armhf,6,ports,$$(suites.armhf),32 bits$(comma) in qemu)
$(call row,riscv64,5,ports,$$(suites.riscv64),in qemu)
$(call row,ppc64el,5,ports,$$(suites.ppc64el),pages of 64 KiB$(comma) in qemu)
$(call row,s390x,7,ports,$$(suites.s390x),the other byte order$(comma) in qemu)
$(call row,musl,2,reports,$$(suites.musl),musl$(comma) dynamic)
$(call row,musl-static,3,reports,$$(suites.musl-static),musl$(comma) static)
$(call row,windows,3,ports,$$(suites.windows),Windows: programs of MinGW under wine)
$(call row,reports,3,ports,tests/gates/reports.sh,every report has the same bytes on every machine)
$(call row,standards,8,ports,tests/matrix.sh tests/systems.sh,every compiler in every standard of C and C++)
$(call row,release,3,test,$$(call all_of,release),the suites with -O2 under more load)
$(call row,debug,5,test,$$(call all_of,debug),likewise with -O0)
$(call row,asan-1,3,test,$$(call slice,1,2,$$(call all_of,asan)),the suites with the address and undefined sanitizers: one half)
$(call row,asan-2,3,test,$$(call slice,2,2,$$(call all_of,asan)),and the other)
$(call row,tsan-1,6,test,$$(call slice,1,2,$$(call all_of,tsan)),the suites with the thread sanitizer: one half)
$(call row,tsan-2,6,test,$$(call slice,2,2,$$(call all_of,tsan)),and the other)
$(call row,modules,4,test,$$(call programs,modules),the suites with the modules of src/ in place of memlord.h)
$(call row,scripts,8,reports,$$(filter-out $$(own_part),$$(scripts) $$(outside) $$(rest)),the scripts of make test and make gates$(comma) PyTorch and CUDA$(comma) under more load)
$(call row,kills,8,test,tests/neighbours.sh tests/signals.sh,10$(comma)000 kills$(comma) 1$(comma)000 forks and signals at any moment)
$(call row,embed,4,embed,tests/embed.sh tests/ggml.sh,the recipes of examples/embed and examples/ggml)
$(call row,fleet,2,fleet,tests/fleet.sh,a real Prometheus)
$(call row,programs,3,programs,tests/programs.sh,databases$(comma) servers and tools under the interposer)
$(call row,fuzz,10,fuzz,tests/fuzz.sh,what parses input$(comma) and random calls: libFuzzer with sanitizers)

# Scripts with a part of their own.
own_part := tests/matrix.sh tests/systems.sh tests/neighbours.sh tests/signals.sh tests/programs.sh
built.standards := build/release/memlord.o
built.scripts = $(addprefix build/release/,memlord.o cuda.o fake_cuda.o) $(fakes) $(examples)
built.kills := build/release/memlord.o
built.embed := build/release/memlord.o build/symbolize build/libmemlord_preload.so
built.fuzz := build/libmemlord_preload.so
built.fleet := build/llama
built.programs = $(built.scripts)

# -- how a part runs --

short = $(shell [ $(minutes.$(1)) -le 10 ] && echo $(1))
# Parts that run elsewhere have the load of `make test`, and the emulators less.
run_part = $(if $(minutes.$(PART)),$(if $(LONG)$(call short,$(PART)),$(part_recipe),$(too_long)),$(no_such_part))
no_such_part = echo 'no part $(PART): make test-parts lists them' >&2; exit 2
too_long = echo '$(PART) takes about $(minutes.$(PART)) minutes: make test-all PART=$(PART) LONG=1' >&2; exit 2
define part_recipe
sh tests/deps.sh $(group.$(PART)) || echo 'some of what $(PART) needs is missing'; \
for tool in $(firstword $(cc.$(PART))) $(firstword $(emulator.$(PART))); do command -v $$tool >/dev/null || { \
	echo "skipped: no $$tool"; echo '0 passed, 0 failed'; exit 1; }; done; \
$(MAKE) -k $(filter build/%,$(runs.$(PART))) $(built.$(PART)); \
$(if $(filter $(PART),$(ports)),,MEMLORD_TEST_ALL=1) MEMLORD_TEST_LIMIT=1800 MEMLORD_TEST_LOGS=build/logs/$(PART) \
	sh tests/run.sh $(runs.$(PART))
endef
