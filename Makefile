# The front door.  Every target first installs what is missing (tools/setup), then calls meson or a
# script; nothing is decided here.
.PHONY: help build run test bench agree chaos lint analyze format fuzz soak coverage install clean
.DEFAULT_GOAL := help

help:     ## this list
	@sed -n 's/^\([a-z]*\): .*## /  make \1\t/p' Makefile | expand -t 18

build:    ## compile everything; the program is build/weir
	@tools/setup build test && tools/build build

run: build ## a small API, the gateway before it, and what to try with curl
	@build/weir demo

test:     ## all tests, also under the sanitizers
	@tools/setup build test peers && tools/test

bench: build ## speed and memory beside what is promised; an hour, or PART=grpc
	@tools/setup bench && tools/bench $(PART)

agree: build ## the scripts in Redis against the table, a million requests of each kind; 7 minutes
	@WEIR_TEST_SCALE=50 build/tests/stress_redis_agree
	@WEIR_TEST_SCALE=50 build/tests/stress_redis_leases

chaos: build ## several nodes, a Redis that fails in every way, at length; 20 minutes, or PART=frozen
	@WEIR_CHAOS=long /usr/bin/python3 -m pytest -q --tb=short -p no:cacheprovider tests/chaos $(PART:%=-k %)

lint:     ## warnings as errors with gcc and clang, format, clang-tidy, layers, sizes
	@tools/setup build test lint && tools/lint

analyze:  ## clang's static analyzer, along every path; 5 minutes
	@tools/setup build test lint && CC=clang tools/build build-clang --werror && tools/tidy build-clang

format:   ## let clang-format have its way
	@tools/setup lint && tools/c_files.py | xargs clang-format -i

fuzz:     ## every fuzz target for FUZZ_SECONDS (60)
	@tools/setup build test fuzz && tools/fuzz

soak:     ## mixed load for SOAK_SECONDS (300): memory and descriptors stay as they are, nothing leaks
	@tools/setup build test && tools/soak

coverage: ## line coverage of lib/, at least 90%
	@tools/setup build test lint && tools/coverage

install:  ## into PREFIX (/usr/local), below DESTDIR if that is set
	@tools/setup build test && tools/build build $(PREFIX:%=--prefix=%) && meson install -C build --no-rebuild --quiet

clean:    ## remove all build folders
	@rm -rf build build-*
