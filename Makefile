# Outswap. `make demo` shows it, `make test` is what CI runs; both install what is missing on a Debian-like machine.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
CARGO ?= cargo
BIN := target/release
PREFIX ?= /usr/local

.PHONY: all build installed install uninstall deb test-install test-bundled test-systemd setup setup-demo setup-full demo test lint unit examples one-file loom broken miri fuzz e2e e2e-full suites soak soak-e2e bench \
	bench-programs bench-experiments clean

all: build

setup:
	@scripts/setup.sh test
setup-demo:
	@scripts/setup.sh demo
setup-full:
	@scripts/setup.sh full

build: installed
	$(CARGO) build --release --locked -p outswap-bench

# What is installed, which is all that the tests need.
installed:
	$(CARGO) build --release --locked

# What `make build` built goes to $(DESTDIR)$(PREFIX); it is built here only where it is missing, since who installs may be root.
install: $(BIN)/outswap $(BIN)/liboutswap_preload.so $(BIN)/liboutswap_malloc.so
	@scripts/install.sh install '$(BIN)' '$(DESTDIR)' '$(PREFIX)'
uninstall:
	@scripts/install.sh uninstall '$(BIN)' '$(DESTDIR)' '$(PREFIX)'
$(BIN)/outswap $(BIN)/liboutswap_preload.so $(BIN)/liboutswap_malloc.so:
	$(CARGO) build --release --locked

# A package for Debian and its kin, in target/deb.
deb: $(BIN)/outswap $(BIN)/liboutswap_preload.so $(BIN)/liboutswap_malloc.so
	@scripts/deb.sh '$(BIN)'

# Installs into scratch directories, from here and from the package, runs a program there, and uninstalls.
test-install: $(BIN)/outswap $(BIN)/liboutswap_preload.so $(BIN)/liboutswap_malloc.so
	@scripts/test-install.sh '$(BIN)'

# The same for what `cargo install` installs alone. Builds everything anew, in a scratch directory.
test-bundled:
	@scripts/test-install.sh '$(BIN)' bundled

# The recipe for systemd, under a systemd of its own. Needs root and systemd. Not part of CI.
test-systemd: build
	@scripts/test-systemd.sh '$(BIN)'

demo: setup-demo
	@scripts/demo.sh

lint:
	$(CARGO) fmt --all --check
# Modules that a list declares are not seen by the line above.
	rustfmt --edition 2024 --check $$(git ls-files 'crates/*.rs' 'examples/*.rs')
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	scripts/check-symbols.sh

unit:
	$(CARGO) test --workspace --locked --exclude outswap-e2e

# The ways to learn how a store and policies of one's own are made. They check what they show.
examples:
	$(CARGO) run -q --locked -p outswap-sim --example own_store
	$(CARGO) run -q --locked -p outswap-sim --example own_policies

# What is said to be one file and one line is: each is added in a copy of the tree, which is built and tried on a program.
one-file:
	scripts/one-file.sh $(ONE_FILE)

loom:
	RUSTFLAGS="--cfg loom" $(CARGO) test --locked -p outswap-core --test loom --test loom_pins --test loom_occupancy --test loom_slots --profile loom --target-dir target/loom

# Each deliberate breakage must be noticed by the test that is named for it.
broken:
	scripts/broken.sh

# The core's unit tests under an interpreter that knows undefined behaviour. Not part of CI, as is fuzzing: both need the
# nightly compiler, which they install.
miri:
	rustup toolchain install nightly --profile minimal -c miri >/dev/null
	MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-ignore-leaks" \
		$(CARGO) +nightly miri test --locked --target-dir target/miri -p outswap-core --lib

fuzz:
	scripts/fuzz.sh

# The test programs are compiled once for all.
e2e: installed
	programs=$$(mktemp -d); trap 'rm -rf "$$programs"' EXIT; chmod 755 "$$programs"; \
		OUTSWAP_E2E_PROGRAMS="$$programs" OUTSWAP_BIN=$(CURDIR)/$(BIN)/outswap $(CARGO) test --locked -p outswap-e2e

test: setup
	$(MAKE) --no-print-directory installed
	$(MAKE) --no-print-directory lint
	$(MAKE) --no-print-directory unit
	$(MAKE) --no-print-directory examples
	$(MAKE) --no-print-directory loom
	$(MAKE) --no-print-directory broken
	$(MAKE) --no-print-directory test-install
	$(MAKE) --no-print-directory e2e

# Every program as nobody, with each fault source, and behind a container's filter; Redis with 400,000 keys; and larger programs in
# half and in a quarter of their memory, for which it installs much; and each kind of one-file. Not part of CI.
e2e-full: setup setup-full installed
	$(MAKE) --no-print-directory one-file
	OUTSWAP_BIN=$(CURDIR)/$(BIN)/outswap OUTSWAP_E2E_REDIS_KEYS=400000 OUTSWAP_E2E_FULL=1 $(CARGO) test --locked --no-fail-fast -p outswap-e2e

# Test suites that others wrote, plainly and with eviction forced, and a table of every difference. Installs them. Not part of CI.
suites: build
	@scripts/suites.sh $(BIN)/outswap

# Threads, forks, killed children and all that programs do with memory, every byte looked at, over every source and store,
# for OUTSWAP_SOAK_S seconds. Stops at the first failure and says how to repeat it.
soak: setup build
	OUTSWAP_BIN=$(CURDIR)/$(BIN)/outswap OUTSWAP_SOAK_S=$${OUTSWAP_SOAK_S:-3600} $(CARGO) test --locked -p outswap-e2e --test soak

# All end-to-end tests with four times the data, and many seeds of the simulation.
soak-e2e: setup build
	OUTSWAP_BIN=$(CURDIR)/$(BIN)/outswap OUTSWAP_E2E_REDIS_KEYS=400000 OUTSWAP_E2E_SCALE=4 OUTSWAP_E2E_FULL=1 \
		$(CARGO) test --locked -p outswap-e2e
	OUTSWAP_SIM_SEEDS=100000 $(CARGO) test --locked -p outswap-sim --test simulation

# Needs root and the zram module for the kernel's side; measures the rest where they are missing.
bench: build
	$(BIN)/outswap-bench touch --markdown target/touch.md --json target/touch.json
	$(BIN)/outswap-bench no-pressure
	$(BIN)/outswap-bench startup

# Programs that people run, in half of their memory and in 70 %. Installs the programs; takes about half an hour, on a machine
# that does nothing else. Needs root and zram as above.
bench-programs: build
	@scripts/setup.sh bench
	$(BIN)/outswap-bench programs --markdown target/programs.md --json target/programs.json --svg target/programs.svg

# One for each mechanism of swap, and a Redis server; needs root and zram as above.
bench-experiments: build
	for name in reuse swapin-path cache-contention large-folios sources redis; do \
		$(BIN)/outswap-bench $$name --markdown target/$$name.md --json target/$$name.json --svg target/$$name.svg || exit; \
	done

clean:
	$(CARGO) clean
