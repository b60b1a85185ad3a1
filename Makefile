# The one door for a newcomer: `make` says what there is. Nothing has to be done before `make demo`
# or `make test`; both set up what they lack and are quick the second time.

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYO3_PYTHON := $(CURDIR)/.venv/bin/python
# Bytecode is kept whatever the environment says: the tests start Python some thousand times.
export PYTHONDONTWRITEBYTECODE :=

STEP := @scripts/step
PYTEST := .venv/bin/python -m pytest
TOOL := build/tracer/octavo-amd64-linux

help:  ## say what there is
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

# --- setting up ----------------------------------------------------------------------------------

EXTENSION := .venv/octavo-built
RUST := $(wildcard Cargo.toml Cargo.lock crates/*/Cargo.toml python/octavo/presets/*/*.toml) $(shell find crates -name '*.rs')
PAGE_SCRIPT := build/vega.js
WORKLOADS := $(patsubst workloads/%.c,build/workloads/%,$(wildcard workloads/*.c)) build/workloads/bfs_static \
	$(patsubst workloads/%.c,build/workloads/%,$(wildcard workloads/period/*.c))

setup: $(EXTENSION) tracer preload $(PAGE_SCRIPT)  ## all that .venv/bin/octavo needs

# Asked every time, since it is quick and a machine may change under a clone.
system:
	$(STEP) system scripts/setup-system

$(EXTENSION): pyproject.toml scripts/setup-venv $(RUST) | system
	$(STEP) package scripts/setup-venv
	@touch $@

# The libraries that draw the figures of report pages; of the version that pyproject.toml asks for.
$(PAGE_SCRIPT): pyproject.toml python/octavo/report/bundle.py | $(EXTENSION)
	@mkdir -p $(@D)
	$(STEP) page .venv/bin/python -m octavo.report.bundle $@

tracer: | system
	$(STEP) tracer $(MAKE) --no-print-directory -f tracer/build.mk

preload: | system
	$(STEP) preload $(MAKE) --no-print-directory -f preload/build.mk

workloads: $(WORKLOADS)

CFLAGS := -O2 -g -Wall -Wextra
build/workloads/%: workloads/%.c $(wildcard workloads/*.h) tracer/octavo.h Makefile | system
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -Itracer -o $@ $< -pthread $(LDLIBS)
# Only where it is needed: another library would change the layout of the others.
build/workloads/ycsb: LDLIBS := -lm
# No C library and no startup code: the same instructions on every machine and in every run.
FREESTANDING := $(patsubst %,build/workloads/%,static_count dependences long_store)
$(FREESTANDING): CFLAGS += -static -nostdlib -fno-pie -no-pie -fno-stack-protector

# For simulators by others, which see the same addresses in a program without shared libraries.
build/workloads/bfs_static: workloads/bfs.c $(wildcard workloads/*.h) tracer/octavo.h Makefile | system
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -static -fno-pie -no-pie -Itracer -o $@ $< -pthread

# Programs like those of two papers of 1992 and 1997: scalar, static, at fixed addresses, as these were.
build/workloads/period/%: workloads/period/%.c Makefile | system
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -fno-tree-vectorize -static -fno-pie -no-pie -o $@ $< -lm

# --- using ---------------------------------------------------------------------------------------

demo: setup  ## set up, then trace a real program: which page size suits it?
	@scripts/demo

reproduce: setup  ## the table of the paper's comparison, from programs of this machine
	.venv/bin/octavo reproduce base-page-size

# --- judging -------------------------------------------------------------------------------------

# The extension has no tests of its own in Rust: the Python tests are its tests.
TESTED := --workspace --exclude octavo-py --locked --profile bench

test: test-programs  ## every test but the long ones
	cargo test $(TESTED) --tests
	$(PYTEST) tests -m "not long" $(PARALLEL)

# As many processes as processors; a process that has nothing left takes tests from another.
PARALLEL := -n auto --dist worksteal

# What the tests run besides Octavo.
test-programs: setup workloads
	cargo build $(TESTED) --example curves_dump

# Property tests try forty times as many cases, other ones each time. CASES=… tries more. A failure stops nothing.
CASES := 40
test-long: test-programs  ## the long tests, and the property tests with more cases
	@failed=; export OCTAVO_CASES=$(CASES); \
	cargo test $(TESTED) --tests --no-fail-fast -- --include-ignored || failed=1; \
	$(PYTEST) tests $(PARALLEL) || failed=1; \
	test -z "$$failed"

test-aarch64:  ## the tests of the portable crates, compiled for 64-bit Arm and emulated
	scripts/test-aarch64

fuzz:  ## a minute of fuzzing for each thing that reads bytes from outside
	scripts/fuzz all

lint: setup  ## format, clippy, links of the reference, ruff, types, wording, C warnings
	find crates fuzz -name '*.rs' -not -path '*/target/*' -exec rustfmt --check {} +
	cargo clippy --workspace --all-targets --locked --profile bench -- -D warnings
	$(RUST_REFERENCE)
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy --strict python/octavo
	.venv/bin/python scripts/check-language
	$(MAKE) --no-print-directory -s -f tracer/build.mk OUT=build/tracer-lint WERROR=1
	$(MAKE) --no-print-directory -s -f preload/build.mk OUT=build/preload-lint WERROR=1
	$(CC) -Wall -Wextra -Werror -fsyntax-only -Itracer workloads/*.c workloads/period/*.c

# Private items too: the reference is for those who work on the code.
RUST_REFERENCE := RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" cargo doc --workspace --no-deps \
	--document-private-items --locked --profile bench
SITE := build/docs/site
docs: setup  ## the documentation site in build/docs/site, with the reference of all crates and of the Python package, and man pages
	$(RUST_REFERENCE)
	.venv/bin/python scripts/build-site $(SITE)
	cp -r target/doc $(SITE)/reference/rust
	.venv/bin/python -W error scripts/python-reference $(SITE)/reference/python
	.venv/bin/python scripts/man-pages build/docs/man

wheel: setup  ## the package for machines that have Python alone, in build/wheel
	.venv/bin/python scripts/make-wheel build/wheel

# PEER=… names a Python that has libcachesim.
bench: setup workloads  ## speed beside cachegrind, Lackey, libCacheSim and a textbook, and memory over a long run
	.venv/bin/python benches/run.py
	.venv/bin/python benches/curves.py $(if $(PEER),--peer $(PEER))
	.venv/bin/python benches/machine.py
	.venv/bin/python benches/memory.py

clean:  ## remove everything that was built
	rm -rf build target .venv python/octavo/*.so

.PHONY: help setup system tracer preload workloads demo reproduce test test-programs test-long test-aarch64 fuzz lint docs wheel bench clean
.DELETE_ON_ERROR:
