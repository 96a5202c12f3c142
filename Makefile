# MemLord's one entry point. `make` lists what it can do.
#
#   config=release|debug|asan|tsan|modules
#                                    which builds of the suites `make test` runs; without it
#                                    release and asan, the scripts and the examples
#   CC=, CXX=                        gcc and g++; tsan builds always use clang
#   V=1                              shows the commands

CC := $(if $(filter default,$(origin CC)),gcc,$(CC))
CXX := $(if $(filter default,$(origin CXX)),g++,$(CXX))
export CC CXX
PREFIX ?= /usr/local
DESTDIR ?=
MAKEFLAGS += -j$(shell nproc 2>/dev/null || echo 2)

warn := -Wall -Wextra -pedantic -Wconversion -Wshadow -Wundef -Werror
cc.release := $(CC) -O2
checks := -DMEMLORD_CHECK_LOCKS
cc.debug := $(CC) -O0 -g3 $(checks)
cc.asan := $(CC) -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all $(checks)
cc.modules := $(CC) -O2
cc.fast := $(CC) -Ofast
cc.tsan := clang -O1 -g -fsanitize=thread $(checks)
# The linker takes exit.o, which keeps the counts of a process that ends by _exit. No function is
# always inlined: gcov would count its branches once for each place that calls it.
cc.coverage := $(CC) -O0 -g --coverage -fprofile-update=atomic -Dalways_inline=unused \
	-Wl,build/coverage/exit.o
$(foreach c,release debug asan coverage modules,$(eval cxx.$(c) := $(patsubst $(CC),$(CXX),$(cc.$(c)))))
cxx.tsan := $(patsubst clang,clang++,$(cc.tsan))
# The suites themselves, not what they test, are compiled faster than they run; so is what release
# has optimised under the sanitizers, and the library for PyTorch as its tests load it.
quick := -O0
build/fast/test_%: quick := -O0 -ffast-math
%/test_snapshots %/test_snapshots.exe: quick := # its model runs for seconds
# What a suite does for itself may run faster, and one thread's count of it get lost.
build/coverage/test_%: quick := -O1 -fno-inline -fprofile-update=single
build/coverage/test_verify build/coverage/test_samples build/coverage/test_requires build/coverage/test_modules: quick := # which are the implementation, too
configs := $(or $(config),release asan)
ifneq ($(filter-out release debug asan tsan modules,$(configs)),)
$(error config=$(config) is none of release, debug, asan, tsan, modules)
endif

q := $(if $(V),,@)
comma := ,

# Where CUDA is. Without it the suites compile against a header of our own, and run all the same.
ifndef CUDA_HOME # else where nvcc is; tests/gpu.sh looks in more places, and is not told this one
own_home := env -u CUDA_HOME 
CUDA_HOME := $(firstword $(wildcard /usr/local/cuda) \
	$(patsubst %/bin/nvcc,%,$(realpath $(shell command -v nvcc))) /usr/local/cuda)
endif
export CUDA_HOME
cuda_include := $(firstword $(patsubst %/cuda_runtime_api.h,%,\
	$(wildcard $(CUDA_HOME)/include/cuda_runtime_api.h)) tests/fake_cuda/include)
ptsz := CUDA_API_PER_THREAD_DEFAULT_STREAM

suites := $(patsubst tests/%.c,%,$(wildcard tests/test_*.c)) portable_test_map test_cpp test_coroutines test_new \
	ptsz_test_cuda_alloc ptsz_test_cuda_streams
nobarrier := $(addprefix nobarrier_test_,map threads bands retry hosts)
# The builds of the suites, and those of the suites on a system that refuses membarrier(2).
programs = $(foreach c,$(1),$(addprefix build/$(c)/,$(filter-out $(unfit.$(c)),$(suites)))) \
	$(foreach c,$(2),$(addprefix build/$(c)/,$(nobarrier)))
# The suites where MemLord computes with floating point: with traps for its errors, and with -Ofast.
floats := pools counters text reports formats export samples bands capacity retry
floating := $(addprefix build/release/traps_test_,$(floats)) $(addprefix build/fast/test_,$(floats))
unfit.asan := test_cuda_scarce # it replaces dlopen, as the sanitizers do
unfit.tsan := $(unfit.asan)
examples := $(addprefix build/,quickstart llama bands oom server neighbours pool diff symbolize \
	cuda_inference libmemlord_preload.so)
scripts := tests/runner.sh tests/coverage.sh tests/examples.sh tests/diff.sh tests/places.sh \
	tests/unload.sh tests/preload.sh tests/neighbours.sh tests/readme.sh tests/install.sh tests/ci.sh tests/values.sh
# What other programs do with MemLord's files: browsers, profilers, debuggers; and signals at any moment.
outside := tests/page.sh tests/figures.sh tests/consumers.sh tests/symbols.sh tests/names.sh tests/signals.sh
# PyTorch, the CUDA toolkit and programs under the interposer: test-all alone
# runs these, as the gates have 20 minutes.
rest := tests/torch.sh tests/cuda.sh tests/programs.sh
include tests/parts.mk
version = $(shell sed -n 's/^\#define MEMLORD_VERSION "\(.*\)"/\1/p' memlord.h)

needs := $(addprefix deps-,demo fleet json symbols test bench reports programs ports gates embed fuzz)
.PHONY: help demo demo-neighbours demo-fleet report pictures headers page modules test gates test-all test-parts coverage test-embed test-fleet test-mutants test-gpu \
	bench bench-gpu torch-observer vendor \
	install uninstall deps clean \
	try-reports try-gates try-embed try-fleet $(needs)
.DELETE_ON_ERROR:

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 20

demo: $(examples) ## builds and runs the examples; installs what they need
	@echo '== quickstart: tags, views counted once, and the report they give'
	@build/quickstart
	@echo '== llama: an inference loop on a small random model, every buffer accounted for'
	@build/llama -r build/llama.html
	@echo '== bands: a cache that shrinks, and gives back its pages, when a threshold is reached'
	@build/bands
	@echo '== oom: a workload that overruns a device of 64 MiB, and completes'
	@build/oom
	@echo '== server: KV cache per request, admitted under a limit that is never passed'
	@build/server
	@echo '== pool: a caching allocator that MemLord tells when it is fragmented, and that compacts'
	@build/pool
	@echo '== symbolize: functions, files and lines in two profiles, here of bands with a larger cache'
	@for size in 4 8; do LD_PRELOAD=build/libmemlord_preload.so MEMLORD_REPORT=build/bands-$$size.json \
		build/bands $${size}MiB >/dev/null && \
		{ build/symbolize build/bands-$$size.json -o build/bands-$$size.named.json || [ $$? = 1 ]; } || exit 1; done
	@echo '== diff: what grew between them'
	@build/diff --top 3 --by site build/bands-4.named.json build/bands-8.named.json
	@echo '== cuda_inference: weights, KV cache and workspace on a GPU, over two streams'
	@build/cuda_inference || [ $$? = 77 ]
	@echo '== preload: who allocates in a program that knows nothing of MemLord, here sort'
	@seq 200000 -1 1 >build/numbers
	@LD_PRELOAD=build/libmemlord_preload.so MEMLORD_REPORT=- \
		sort -n build/numbers 2>&1 >/dev/null | sed '/^---- in full/,$$d'
	@echo '== open build/llama.html in a browser: the inference loop, phase by phase'

demo-neighbours: build/neighbours ## two processes on one device: one dies of the other's cache, or neither
	@build/neighbours

demo-fleet: build/llama build/worker | deps-fleet ## three processes on a real Prometheus: its numbers beside their reports; one that leaks, and the alert
	@sh examples/fleet/demo.sh

report: ## JSON=profile.json [BASE=]: build/report.html, a saved profile as a page, or two of them
	@test -n '$(JSON)' || { echo 'usage: make report JSON=profile.json [BASE=older.json]' >&2; exit 2; }
	@mkdir -p build && python3 src/reports/page/assemble.py profile '$(JSON)' $(if $(BASE),'$(BASE)') >build/report.html.tmp || \
		{ status=$$?; rm -f build/report.html.tmp; exit $$status; }
	@mv build/report.html.tmp build/report.html && echo 'open build/report.html'

pictures: build/release/memlord.o build/libmemlord_preload.so | deps-reports ## examples/report/pictures/: README's pictures of the report page, and a sample page
	@sh tests/page/pictures.sh

# -- the two headers --

# Merges keep ours of what is made: joining again puts both sides into it.
headers: ## joins src/ into memlord.h and memlord_cuda.h
	@python3 src/join.py
	@! git rev-parse --git-dir >/dev/null 2>&1 || git config merge.ours.driver true

page: ## packs src/reports/page into the header that carries it, and joins; needs esbuild
	@python3 src/reports/page/assemble.py header && python3 src/join.py

modules: ## the modules of src/: lines, lines of the header, what each includes
	@python3 src/join.py modules

# -- tests --

# Without config= it must end within ten minutes on two processors: without membarrier(2) only in the
# first build, and with sanitizers no suite that is the implementation, too. The gates run what starts
# threads with the thread sanitizer. test-all runs every suite in every build: see tests/parts.mk.
once = $(if $(config),,$(floating)) $(filter-out $(if $(config),,$(addprefix build/asan/,$(whole))),$(call programs,$(configs),$(firstword $(configs))))
whole = portable_test_map $(patsubst tests/%.c,%,$(shell grep -l 'define MEMLORD_IMPLEMENTATION' tests/test_*.c))
starts_threads = $(basename $(notdir $(shell grep -lE 'pthread_create|"jobs\.h"' tests/test_*.c*)))
threaded = $(filter-out build/tsan/test_formats $(addprefix build/tsan/,$(whole)),$(addprefix build/tsan/, \
	$(filter $(starts_threads),$(suites)) ptsz_test_cuda_streams))
test: $(once) $(if $(config),,$(examples) try-reports) ## all suites; ends with "N passed, N failed"
	@sh tests/run.sh $(if $(config),,$(scripts)) $(once)

# What make test's own system does not show: see tests/gates/.
gates: try-gates try-reports $(threaded) $(built.scripts) ## src/, what other programs do with its files, Windows, macOS, musl, other processors, each knob, the GPU's runs, known faults; ends with "N passed, N failed"
	@MEMLORD_TEST_LOGS=build/gates/logs sh tests/run.sh $(wildcard tests/gates/*.sh) $(outside) tests/matrix.sh tests/systems.sh tests/mutants.sh \
		$(threaded)

test-all: ## [PART=] [LONG=1]: one part of make test-parts, or all in turn; those over ten minutes with LONG=1
	+@$(if $(PART),$(run_part),sh tests/all.sh $(foreach p,$(parts),$(if $(LONG),$p,$(call short,$p))))

test-parts: ## the parts of test-all, with their minutes on two processors
	@$(foreach p,$(parts),printf '%-14s %3s min  %s%s\n' '$p' '$(minutes.$p)' '$(what.$p)' \
		'$(if $(call short,$p),,; LONG=1)';)

counted := $(call programs,coverage,coverage)
coverage: $(counted) ## the lines and branches of both headers that the suites reach, by section
	@find build/coverage -name '*.gcda' -delete
	@status=0; sh tests/run.sh $(counted) || status=$$?; \
		python3 tests/coverage.py build/coverage memlord.h memlord_cuda.h && exit $$status

$(counted): | build/coverage/exit.o
build/coverage/exit.o: tests/coverage/exit.c | deps-test
	@mkdir -p build/coverage && echo '  $@'
	$(q)$(CC) -std=c99 -O1 $(warn) -c $< -o $@

test-mutants: build/release/memlord.o build/libmemlord_preload.so build/symbolize build/diff | deps-test ## [N=300] [SEED=1] [SECTIONS=]: one-line faults in the product, and which the suites notice; an hour or two
	@mkdir -p build/locale && { [ -e build/locale/de_DE.UTF-8 ] || localedef -i de_DE -f UTF-8 build/locale/de_DE.UTF-8 || :; }
	@python3 tests/mutants.py $(or $(N),300) $(or $(SEED),1) $(SECTIONS)

test-fleet: build/llama build/worker try-fleet ## demo-fleet and the alert rules, on a real Prometheus and node_exporter
	@sh tests/run.sh tests/fleet.sh

# What reads our formats is wanted, but no condition: what cannot be had is skipped, and said so.
try-reports: | deps-test
	@MEMLORD_DEPS_LIMIT=300 sh tests/deps.sh reports || echo 'some readers of reports are missing: make deps-reports'

# The recipes of examples/embed and examples/ggml. GGML=DIR is a checkout of whisper.cpp or llama.cpp.
test-embed: build/release/memlord.o build/symbolize build/libmemlord_preload.so try-embed ## the recipes: LibTorch, ggml [GGML=DIR], pmr, operator new, --wrap, shim
	@GGML='$(GGML)' sh tests/run.sh tests/embed.sh tests/ggml.sh
try-embed: | deps-symbols
	@MEMLORD_DEPS_LIMIT=600 sh tests/deps.sh embed || echo 'LibTorch is missing: make deps-embed'

# Likewise the compilers of the gates, with wine, qemu and zig.
try-gates: | deps-test
	@MEMLORD_DEPS_LIMIT=900 sh tests/deps.sh gates || echo 'something the gates need is missing: make deps-gates'

# Likewise Prometheus and node_exporter.
try-fleet: | deps-demo
	@MEMLORD_DEPS_LIMIT=300 sh tests/deps.sh fleet || echo 'no Prometheus, or no node_exporter: make deps-fleet'

needs.release := deps-demo
define product_rules
build/$(1)/memlord.o: tests/matrix/impl.c memlord.h | $$(or $$(needs.$(1)),deps-test)
	@mkdir -p build/$(1)
	@echo '  $$@'
	$$(q)$$(cc.$(1)) -std=c99 $$(warn) -pthread -I. -c tests/matrix/impl.c -o $$@
endef
$(foreach c,release debug asan tsan coverage fast $(ports),$(eval $(call product_rules,$(c))))

# The modules in place of memlord.h, each an object of its own: the linker finds what is private and
# used from outside.
modules := $(patsubst src/%.c,build/modules/%.o,$(filter-out $(patsubst %,src/%/%,cuda tools profile answers formats command),$(wildcard src/*/*.c)))
build/modules/%.o: src/%.c $(wildcard src/*/*.h) | deps-test
	@mkdir -p $(@D) && echo '  $@'
	$(q)$(cc.modules) -std=c99 $(warn) -D_DEFAULT_SOURCE -DMLI_MODULES -fvisibility=hidden -pthread -Isrc -c $< -o $@
build/modules/memlord.o: $(modules)
	@echo '  $@'
	$(q)ld -r -o $@ $^

define suite_rules
build/$(1)/test_%$(exe.$(1)): tests/test_%.c $$(wildcard tests/*.h) build/$(1)/memlord.o
	@echo '  $$@'
	$$(q)$$(cc.$(1)) $$(quick) -std=c99 $$(warn) -pthread -I. $$< build/$(1)/memlord.o -o $$@ \
		$$(or $$(libs.$(1)),-lcmocka -ldl)
build/$(1)/test_pool$(exe.$(1)): examples/pool.h

endef
$(foreach c,release debug asan tsan coverage modules fast $(ports),$(eval $(call suite_rules,$(c))))

define more_suite_rules
build/$(1)/test_cpp: tests/test_cpp.cpp $$(wildcard tests/*.h) build/$(1)/memlord.o
	@echo '  $$@'
	$$(q)$$(cxx.$(1)) -std=c++17 $$(warn) -pthread $$(filter %.cpp %.o,$$^) -o $$@ -lcmocka -ldl

build/$(1)/test_coroutines: tests/test_coroutines.cpp $$(wildcard tests/*.h) build/$(1)/memlord.o
	@echo '  $$@'
	$$(q)$$(cxx.$(1)) -std=c++20 $$(warn) -pthread $$(filter %.cpp %.o,$$^) -o $$@ -lcmocka -ldl

# As the driver for C++ would link operators new and delete of tsan's own.
build/$(1)/test_new: tests/test_new.cpp examples/new.cpp $$(wildcard tests/*.h) build/$(1)/memlord.o
	@echo '  $$@'
	$$(q)$$(cc.$(1)) -std=c++17 $$(warn) -pthread -I. $$(filter %.cpp,$$^) $$(filter %.o,$$^) -o $$@ \
		-lstdc++ -lcmocka -ldl

build/$(1)/nobarrier_test_%: tests/test_%.c tests/nobarrier.c $$(wildcard tests/*.h) build/$(1)/memlord.o
	@echo '  $$@'
	$$(q)$$(cc.$(1)) $$(quick) -std=c99 $$(warn) -pthread -I. $$(filter %.c %.o,$$^) -o $$@ -lcmocka -ldl -lm

build/$(1)/traps_test_%: tests/test_%.c tests/traps.c $$(wildcard tests/*.h) build/$(1)/memlord.o
	@echo '  $$@'
	$$(q)$$(cc.$(1)) $$(quick) -std=c99 $$(warn) -pthread -I. $$(filter %.c %.o,$$^) -o $$@ -lcmocka -ldl -lm

# The map as processors without vectors have it.
build/$(1)/portable_test_map: tests/test_map.c tests/matrix/impl.c memlord.h $$(wildcard tests/*.h) | deps-test
	@mkdir -p build/$(1)
	@echo '  $$@'
	$$(q)$$(cc.$(1)) $(if $(filter release,$(1)),,$$(quick)) -std=c99 $$(warn) -U__SSE2__ -pthread -I. $$(filter %.c,$$^) -o $$@ -lcmocka -ldl
endef
$(foreach c,release debug asan tsan coverage modules,$(eval $(call more_suite_rules,$(c))))

# The CUDA layer runs on a fake runtime, in place of -lcudart; the fake's driver and NVML are
# libraries beside it. Twice: with the legacy default stream, and with the per-thread one.
define cuda_rules
build/$(1)/$(2)cuda.o: tests/matrix/cuda_impl.c memlord.h memlord_cuda.h | deps-test
	@mkdir -p build/$(1)
	@echo '  $$@'
	$$(q)$$(cc.$(1)) -std=c99 $$(warn) $(3) -pthread -I. -isystem $$(cuda_include) -c $$< -o $$@

build/$(1)/$(2)fake_cuda.o: tests/fake_cuda/fake_cuda.c $$(wildcard tests/fake_cuda/*.[ch]) | deps-test
	@mkdir -p build/$(1)
	@echo '  $$@'
	$$(q)$$(cc.$(1)) -std=c99 $$(warn) $(3) -pthread -isystem $$(cuda_include) -c $$< -o $$@

build/$(1)/$(2)test_cuda_%: tests/test_cuda_%.c $$(wildcard tests/*.h) build/$(1)/memlord.o \
		build/$(1)/$(2)cuda.o build/$(1)/$(2)fake_cuda.o | $$(fakes) $$(torches)
	@echo '  $$@'
	$$(q)$$(cc.$(1)) $$(quick) -std=c99 $$(warn) $(3) -pthread -isystem $$(cuda_include) $$(filter %.c %.o,$$^) \
		-o $$@ -rdynamic '-Wl,--disable-new-dtags,-rpath,$$(CURDIR)/build/fake' -lcmocka -ldl
endef
# Beside the whole driver: one without a function that the layer needs, one of CUDA 11.2, and one
# with no function that the layer can do without.
fakes := $(addprefix build/fake/,libcuda.so.1 libcuda-none.so libcuda-11.2.so libcuda-bare.so libnvml-v1.so libnvml-v2.so)
torches := $(addprefix build/fake/,libmemlord_torch.so libtorch.so libcudart.so)
test-mutants: $(fakes) $(torches)
$(foreach c,release debug asan tsan coverage modules,$(eval $(call cuda_rules,$(c),,)))
$(foreach c,release debug asan tsan coverage modules,$(eval $(call cuda_rules,$(c),ptsz_,-D$(ptsz))))

# The example, on the runtime of the program that loads it; the caller that PyTorch is; and the fake
# as a library, for programs in other languages.
build/fake/libmemlord_torch.so: examples/torch_allocator.cpp examples/torch/script.h memlord.h memlord_cuda.h | deps-test
	@mkdir -p build/fake && echo '  $@'
	$(q)$(CXX) -std=c++11 -O2 $(quick) $(warn) -fPIC -shared -fvisibility=hidden -DMEMLORD_API= -I. \
		-isystem $(cuda_include) $< -o $@ '-Wl,--disable-new-dtags,-rpath,$(CURDIR)/build/fake' -pthread
build/fake/libtorch.so: tests/torch/caller.cpp | deps-test
	@mkdir -p build/fake && echo '  $@'
	$(q)$(CXX) -std=c++11 -O1 $(warn) -fPIC -shared -isystem $(cuda_include) $< -o $@
build/fake/libcudart.so: tests/fake_cuda/fake_cuda.c $(wildcard tests/fake_cuda/*.[ch]) | deps-test
	@mkdir -p build/fake && echo '  $@'
	$(q)$(CC) -std=c99 -O1 $(warn) -isystem $(cuda_include) -fPIC -shared $< -o $@ -pthread
build/fake/libcuda.so.1 build/fake/libcuda-none.so build/fake/libcuda-11.2.so build/fake/libcuda-bare.so: \
		tests/fake_cuda/libcuda.c
lack = $(foreach name,$(1),-D$(name)=none_$(name))
since_11.2 := cuDeviceGetGraphMemAttribute cuDeviceGraphMemTrim cuCtxGetId cuStreamGetId
build/fake/libcuda-none.so: fake_flags := $(call lack,cuEventQuery)
build/fake/libcuda-11.2.so: fake_flags := $(call lack,$(since_11.2))
build/fake/libcuda-bare.so: fake_flags := $(call lack,$(since_11.2) cuDeviceGetPCIBusId cuDeviceGetName \
	cuDeviceGetUuid_v2 cuDeviceGetMemPool cuDeviceGetDefaultMemPool cuMemPoolGetAttribute cuMemPoolTrimTo \
	cuEventSynchronize cuEventElapsedTime cuMemCreate cuMemRelease cuMemMap cuMemUnmap cuMemRetainAllocationHandle)
build/fake/libnvml-v1.so build/fake/libnvml-v2.so: tests/fake_cuda/libnvml.c
build/fake/libnvml-v2.so: fake_flags := -DFAKE_NVML_V2
$(fakes): tests/fake_cuda/fake_cuda.h | deps-test
	@mkdir -p build/fake && echo '  $@'
	$(q)$(CC) -std=c99 -O1 $(warn) $(fake_flags) -isystem $(cuda_include) -fPIC -shared \
		$(filter %.c,$^) -o $@

# -- examples --

build/%: examples/%.c memlord.h | deps-demo
	@mkdir -p build && echo '  $@'
	$(q)$(CC) -std=c99 -O2 -g $(warn) -I. $(filter %.c %.o,$^) -o $@ $(libs) -lm -pthread

build/worker: examples/fleet/worker.c memlord.h | deps-demo
	@mkdir -p build && echo '  $@'
	$(q)$(CC) -std=c99 -O2 $(warn) -I. $(filter %.c %.o,$^) -o $@ $(libs) -pthread

# The examples bring the implementation themselves; here it is compiled once for all.
once_compiled := build/quickstart build/llama build/bands build/oom build/server build/pool build/cuda_inference build/worker
$(once_compiled): build/release/memlord.o
$(once_compiled): private warn += -DMLI_EMITTED

# The tools: products, as the interposer is.
build/diff build/symbolize: build/%: src/tools/%.c src/tools/profile.h memlord.h | deps-demo
	@mkdir -p build && echo '  $@'
	$(q)$(CC) -std=c99 -O2 $(warn) -I. $< -o $@ $(libs) -lm -pthread
build/diff: src/tools/budget.h src/tools/output.h
build/diff: libs := -lcjson
build/diff: | deps-json
build/symbolize: src/tools/perfmap.h
build/symbolize: libs := -lcjson -ldw -lelf -liberty
build/symbolize: | deps-symbols

# With the CUDA toolkit; without it, a program that says so.
cuda_flags := $(if $(wildcard $(CUDA_HOME)/include/cuda_runtime_api.h),-isystem $(CUDA_HOME)/include \
	-L$(CUDA_HOME)/lib64 -Wl$(comma)-rpath$(comma)$(CUDA_HOME)/lib64,-DWITHOUT_CUDA)
cuda_libs := $(if $(filter -DWITHOUT_CUDA,$(cuda_flags)),,-lcudart -ldl)

build/cuda_inference: examples/cuda_inference.c memlord.h memlord_cuda.h | deps-demo
	@mkdir -p build && echo '  $@'
	$(q)$(CC) -std=c99 -O2 $(warn) -I. $(cuda_flags) $(filter %.c %.o,$^) -o $@ $(cuda_libs) -lm -pthread

build/libmemlord_torch.so: examples/torch_allocator.cpp examples/torch/script.h memlord.h memlord_cuda.h | deps-demo
	@$(if $(cuda_libs),,echo '$@: no CUDA toolkit in $(CUDA_HOME): make CUDA_HOME=directory' >&2; exit 2;) \
		mkdir -p build && echo '  $@'
	$(q)$(CXX) -std=c++11 -O2 $(warn) -fPIC -shared -fvisibility=hidden -DMEMLORD_API= -I. \
		$(cuda_flags) $< -o $@ $(cuda_libs) -pthread

# Another library for PyTorch: it listens to PyTorch's own allocator. TORCH is the directory of the
# torch package, or another one with include and lib. In C++20, as PyTorch's headers have it of late.
TORCH ?= $(shell python3 -c 'import os, torch; print(os.path.dirname(torch.__file__))' 2>/dev/null)
OBSERVER ?= build/libmemlord_torch_observer.so
torch_cuda = $(firstword $(patsubst %/cuda_runtime_api.h,%,$(wildcard \
	$(CUDA_HOME)/include/cuda_runtime_api.h $(TORCH)/../nvidia/*/include/cuda_runtime_api.h)))
torch_abi = $(shell nm -D '$(TORCH)/lib/libc10_cuda.so' 2>/dev/null | grep -c -m 1 __cxx11)

torch-observer: | deps-demo ## TORCH= [OBSERVER=]: the observer of PyTorch's allocator, examples/torch/README.md
	@test -e '$(TORCH)/include/c10/cuda/CUDACachingAllocator.h' || { \
		echo 'torch-observer: $(or $(TORCH),python3) has no PyTorch with CUDA:' \
			'make torch-observer TORCH=/path/to/site-packages/torch' >&2; exit 1; }
	@mkdir -p '$(dir $(OBSERVER))' && echo '  $(OBSERVER)'
	$(q)$(CXX) -std=c++20 -O2 $(CXXFLAGS) -fPIC -shared -fvisibility=hidden -DMEMLORD_API= \
		-D_GLIBCXX_USE_CXX11_ABI=$(torch_abi) -I. -isystem '$(TORCH)/include' -isystem '$(torch_cuda)' \
		examples/torch/observer.cpp -o '$(OBSERVER)' -L'$(TORCH)/lib' -lc10_cuda -lc10 -Wl,-z,nodelete -pthread

build/libmemlord_preload.so: src/tools/preload.c $(wildcard src/tools/preload/*.h) memlord.h | deps-demo
	@mkdir -p build && echo '  $@'
	$(q)$(CC) -std=c99 -O2 $(warn) -fPIC -shared -fvisibility=hidden -fexceptions -static-libgcc -I. $< -o $@ \
		-Wl,-z,now -ldl -pthread

# -- the rest --

bench: deps-bench ## measures MemLord beside its peers, and beside that of BASE=revision; takes minutes
	@BASE='$(BASE)' sh bench/run.sh

# A machine with a GPU need have no more than its driver, the toolkit and a compiler: the script
# installs nothing and compiles all that it runs. Its status, as 77 without a GPU, make prints; its
# own is then 2, as for all that fails.
test-gpu: ## what only a GPU shows; ends with a verdict, kept in bench/results; fails where there is no GPU
	@$(own_home)sh tests/gpu.sh test

bench-gpu: ## what the wrapped CUDA calls cost on a GPU; likewise
	@$(own_home)sh tests/gpu.sh bench

# Where the compiler finds stb_ds.h.
find_stb = stb=$$(for name in '<stb/stb_ds.h>' '"stb_ds.h"'; do \
	echo "\#include $$name" | $(CC) -I. -x c -E - 2>/dev/null; done | \
	sed -n 's/^\# 1 "\(.*stb_ds\.h\)".*/\1/p' | head -n 1)

# The header names stb_ds.h in one line, which ONE=1 replaces with the file.
vendor: deps-demo ## DIR= [ONE=1]: memlord.h and stb_ds.h for your own tree, or one file of both
	@test -n '$(DIR)' || { echo 'usage: make vendor DIR=directory [ONE=1]' >&2; exit 2; }
	@mkdir -p '$(DIR)' && $(find_stb) && \
	if [ -n '$(ONE)' ]; then awk -v stb="$$stb" ' \
		/^#define MEMLORD_H$$/ { $$0 = $$0 "\n#define MEMLORD_STB_DS_H /* part of this file */" } \
		/^#include MEMLORD_STB_DS_H$$/ { while ((getline line <stb) > 0) print line; next } \
		{ print }' memlord.h >'$(DIR)/memlord.h'; \
	else install -m 644 memlord.h "$$stb" '$(DIR)'; fi && \
	echo "memlord.h $(version) and stb_ds.h $$(sed -n '1s/.* - v\([0-9.]*\) .*/\1/p' "$$stb")," \
		'each with its licence: $(DIR)'

# All that an install may hold. That of an earlier version has its memlord.pc in lib/pkgconfig.
root = '$(DESTDIR)$(PREFIX)'
cmake_files := $(addprefix src/packaging/memlord-config,.cmake -version.cmake)
installed = $(addprefix $(root)/,include/memlord.h include/memlord_cuda.h include/memlord/stb_ds.h \
	lib/libmemlord_preload.so bin/memlord-symbolize bin/memlord-diff lib/pkgconfig/memlord.pc \
	share/pkgconfig/memlord.pc $(cmake_files:src/packaging/%=share/cmake/memlord/%))
define remove
@case '$(PREFIX)' in /*) ;; *) echo 'PREFIX must begin with a /' >&2; exit 2 ;; esac
@rm -f $(installed) && rmdir $(root)/include/memlord $(root)/share/cmake/memlord 2>/dev/null || :
endef

install: build/libmemlord_preload.so ## PREFIX= DESTDIR=: headers, interposer, the tools that are built, files for pkg-config and CMake
	$(remove)
	@sed 's|@CMAKE_INSTALL_PREFIX@|$(PREFIX)|;s|@PROJECT_VERSION@|$(firstword $(subst -, ,$(version)))|' \
		src/packaging/memlord.pc.in >build/memlord.pc
	install -d $(addprefix $(root)/,include/memlord lib share/pkgconfig share/cmake/memlord)
	install -m 644 memlord.h memlord_cuda.h $(root)/include
	@$(find_stb) && install -m 644 "$$stb" $(root)/include/memlord
	install -m 755 $< $(root)/lib
	@for tool in symbolize diff; do [ ! -x build/$$tool ] || { install -d $(root)/bin && \
		install -m 755 build/$$tool $(root)/bin/memlord-$$tool; } || exit 1; done
	install -m 644 build/memlord.pc $(root)/share/pkgconfig
	install -m 644 $(cmake_files) $(root)/share/cmake/memlord

uninstall: ## PREFIX= DESTDIR=: removes what this version or an earlier one installed
	$(remove)

deps: $(needs) ## installs all that any target needs; beside it only demo, test and bench install anything

# What runs tests, demos and measurements installs what is missing; all else only says so.
look := $(if $(filter demo% test% gates bench% deps%,$(MAKECMDGOALS)),,look)
$(needs): deps-%:
	@sh tests/deps.sh $* $(look)

# What needs less waits for what needs more: one list, once.
most := $(if $(filter test gates,$(MAKECMDGOALS)),deps-test,$(if $(filter demo,$(MAKECMDGOALS)),deps-symbols))
$(filter-out $(most),deps-demo deps-json deps-symbols): | $(most)

clean: ## removes build/
	rm -rf build
