# Entry point. `make demo` and `make test` set up everything on a bare Debian 12; `make help` lists the rest.
#
#   TESSERA_WHEELS=FOLDER   take the wheels from FOLDER instead of PyPI, without network
#   TESSERA_TORCH=FOLDER    use the LibTorch (2.11 to 2.15) in FOLDER, with include/ and lib/
#   TESSERA_GOLDENS=FOLDER  goldens for `make parity`
#   TESSERA_DATA=FOLDER     camvid, bccd-coco, emoji and cifar10 for `make export-trained`
#   TESSERA_BENCH_TILES=FOLDER  JPEGs, TESSERA_BENCH_CIFAR10=FOLDER  shards of CIFAR-10, both for `make bench`
#   BUILD=FOLDER            build tree (build)          JOBS=N  parallel compilers (by cores and memory)
#   PREFIX=FOLDER           for `make install` (/usr/local)
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := build
MAKEFLAGS += --no-print-directory

BUILD ?= build
JOBS ?= $(shell tools/setup jobs)
PREFIX ?= /usr/local
CLANG_FORMAT ?= clang-format-14
CLANG_TIDY ?= clang-tidy-14
BASE ?= main
CRASHES ?= 500
STOPS ?= 50
FUZZ_SECONDS ?= 60
CLIENTS ?= $(BUILD)/clients
EXPORTS ?= $(BUILD)/exports

# LibTorch: the given folder, or the wheel in the build tree.
TORCH_WHEEL := $(BUILD)/deps/torch-2.11
TORCH := $(abspath $(or $(TESSERA_TORCH),$(TORCH_WHEEL)/torch))
CONFIGURE := cmake --preset release -B $(BUILD) -DTESSERA_TORCH=$(TORCH)
COMPILE := ninja -C $(BUILD) -j $(JOBS)
SOURCES = git ls-files -- '*.h' '*.cpp' '*.cu' '*.cuh'

# ninja runs in parallel; the targets here install packages, one at a time.
.NOTPARALLEL:
.PHONY: build build-time prose demo test parity bench gpu cuda-check clients export-check export-trained export-published soak sanitize fuzz format format-check lint install deps packages packages-lint packages-mpi packages-qemu torch configure clean help

build: configure  ## the program, at build/tessera
	$(COMPILE) tessera

demo: build  ## train on the built-in pictures, print the accuracy, classify one, write a report
	tools/demo $(abspath $(BUILD))/tessera

# mpirun and qemu must be installed before CMake runs. They enable tests of a run over several processes, and
# of the kernels on older processors.
test: packages-mpi packages-qemu configure  ## build everything and run every test
	@cmake $(BUILD) >/dev/null
	$(COMPILE) all
	ctest --test-dir $(BUILD) --output-on-failure --parallel $(JOBS)

parity: configure  ## compare with a folder of goldens (TESSERA_GOLDENS=FOLDER)
	$(COMPILE) tessera_parity
	$(BUILD)/tests/parity/tessera_parity $(or $(TESSERA_GOLDENS),tests/data/goldens)

bench: packages-mpi configure  ## speed against the peers, reading images with TESSERA_BENCH_TILES; into docs/performance.md
	@cmake $(BUILD) >/dev/null
	$(COMPILE) tessera loader_bench mlstm_bench optimiser_bench roi_align_bench nms_bench coco_bench
	bench/tables infer docs/performance.md bench/infer.sh $(abspath $(BUILD))
	bench/tables convnets docs/performance.md bench/convnets.sh $(abspath $(BUILD))
	bench/tables vil docs/performance.md bench/vil.sh $(abspath $(BUILD))
	bench/tables pretrain docs/performance.md bench/pretrain.sh $(abspath $(BUILD))
	bench/tables generate docs/performance.md bench/generate.sh $(abspath $(BUILD))
	bench/tables forms docs/performance.md bench/forms.sh $(abspath $(BUILD)) docs/images/vil-by-size.svg
	bench/tables mlstm docs/performance.md bench/mlstm.sh $(abspath $(BUILD))
	bench/tables optimiser docs/performance.md bench/optimiser.sh $(abspath $(BUILD))
	bench/tables dense docs/performance.md bench/dense.sh $(abspath $(BUILD))
	bench/tables vision_language docs/performance.md bench/vision_language.sh $(abspath $(BUILD))
	bench/tables serve docs/performance.md bench/serve.sh $(abspath $(BUILD))
	bench/tables processes docs/performance.md bench/processes.sh $(abspath $(BUILD)) $(TESSERA_BENCH_CIFAR10)
	bench/tables zero docs/performance.md bench/zero.sh $(abspath $(BUILD))
ifdef TESSERA_BENCH_TILES
	bench/tables data docs/performance.md bench/data.sh $(abspath $(BUILD)) $(TESSERA_BENCH_TILES)
	bench/tables predict docs/performance.md bench/predict.sh $(abspath $(BUILD)) $(TESSERA_BENCH_TILES)
	$(if $(TESSERA_BENCH_CIFAR10),bench/tables waiting docs/performance.md bench/waiting.sh $(abspath $(BUILD)) $(TESSERA_BENCH_CIFAR10) $(TESSERA_BENCH_TILES))
endif

gpu: configure  ## every task on this machine's GPU and CPU, compared, into GPU_RUNS=FOLDER (default: a new one)
	$(COMPILE) tessera
	tests/gpu/compare.py --program $(abspath $(BUILD))/tessera --output $(or $(GPU_RUNS),$(shell mktemp -d))

cuda-check: configure  ## compile the GPU kernels (needs nvcc) and compare registers and memory with src/kernels/gpu/resources.txt
	$(COMPILE) tessera_gpu
	tests/gpu/resources.py $(BUILD)

clients: build  ## clients of other programs (tritonclient, Prometheus, OpenAPI) against `tessera serve`, in CLIENTS=FOLDER
	tests/clients/run $(abspath $(BUILD))/tessera $(CLIENTS)

export-check: build  ## exported files of all families and tasks in onnxruntime and OpenVINO, in EXPORTS=FOLDER
	tests/export/run check $(abspath $(BUILD))/tessera $(EXPORTS)

export-trained: build  ## trained weights (TESSERA_DATA=FOLDER) in onnxruntime, against the commands of the program
	tests/export/run trained $(abspath $(BUILD))/tessera $(EXPORTS) $(abspath recipes) $(abspath $(TESSERA_DATA))

export-published: build  ## models of timm, OpenCLIP and Vision-LSTM in onnxruntime, against their own code
	tests/export/run published $(abspath $(BUILD))/tessera $(EXPORTS)

soak: configure  ## kill training CRASHES=500 times and resume it, and 100 times one of its processes; end `tessera serve` under load STOPS=50 times
	$(COMPILE) crash_test parallel_test tessera
	TESSERA_CRASHES=$(CRASHES) $(BUILD)/tests/fault/crash_test
	TESSERA_CRASHES=100 $(BUILD)/tests/parallel/parallel_test --gtest_filter='*LosesProcesses*'
	tests/fault/serve_soak $(BUILD)/tessera $(STOPS)

SANITIZED := core_test io_files_test io_images_test io_onnx_test io_weights_test kernels_test serve_hostile_test
sanitize: packages  ## kernels and file readers, also on hostile files, under the address and undefined-behaviour sanitizers
	cmake --preset asan-ubsan >/dev/null
	ninja -C build/asan -j $(JOBS) $(SANITIZED) fuzz/all
	ctest --test-dir build/asan --output-on-failure --parallel $(JOBS) \
	  -R "^($$(echo $(SANITIZED) | tr ' ' '|')|fuzz_corpus_.*)$$"

fuzz: packages  ## fuzz the file readers for FUZZ_SECONDS=60: FUZZ="safetensors torch_archive" (default: all)
	@tools/setup packages fuzz
	fuzz/run $(FUZZ_SECONDS) $(FUZZ)

format: packages-lint  ## format every source file
	$(SOURCES) | xargs $(CLANG_FORMAT) -i

format-check: packages-lint  ## fail if `make format` would change a file
	$(SOURCES) | xargs $(CLANG_FORMAT) --dry-run --Werror

lint: configure packages-lint  ## clang-tidy on files that differ from BASE=main (all with BASE=)
	CLANG_TIDY=$(CLANG_TIDY) tools/lint $(BUILD) $(BASE)

prose: packages  ## check sizes of the sources and the English of comments, messages and docs
	tools/lint --house
	tools/lint --prose

# A tree of its own, without the compiler cache: what a first build costs.
build-time: deps  ## compiler seconds of the program, built from nothing
	cmake --preset release -B $(BUILD)/timed -DTESSERA_TORCH=$(TORCH) -DTESSERA_TESTS=OFF >/dev/null
	ninja -C $(BUILD)/timed -t clean >/dev/null
	rm -f $(BUILD)/timed/.ninja_log
	CCACHE_DISABLE=1 ninja -C $(BUILD)/timed -j $(JOBS) --quiet tessera
	tools/lint --build-time $(BUILD)/timed/.ninja_log

install: configure  ## install program, libraries, headers and CMake package into PREFIX
	$(COMPILE) installable
	cmake --install $(BUILD) --prefix $(PREFIX)

deps: packages $(if $(TESSERA_TORCH),,torch)  ## install everything for a build; afterwards it needs no network

packages:
	@tools/setup packages build

packages-lint:
	@tools/setup packages lint

packages-mpi:
	@tools/setup packages mpi

packages-qemu:
	@tools/setup packages qemu

torch: packages
	@tools/setup torch $(TORCH_WHEEL)

# CMake reruns by itself if its files change; here it runs for the first time or for another LibTorch.
configure: deps
	@if [ ! -f $(BUILD)/build.ninja ] || ! grep -qxF 'TESSERA_TORCH:PATH=$(TORCH)' $(BUILD)/CMakeCache.txt; then \
	  $(CONFIGURE); fi

clean:  ## remove all build output, keep the downloads
	[ ! -d $(BUILD) ] || find $(BUILD) -mindepth 1 -maxdepth 1 ! -name deps -exec rm -rf {} +

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | sort | awk -F '\t' '{printf "  make %-13s %s\n", $$1, $$2}'
	@sed -n '3,8s/^#//p' $(MAKEFILE_LIST)
