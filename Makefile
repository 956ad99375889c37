# make build   the stripped static binary at dist/ringfence
# make demo    a session in a closed network world, and its record
# make test    everything that must hold
# make bench   start-up time beside plain exec, setpriv and bwrap
#
# All but build run as root. Each installs what it needs and the machine lacks (.ci/deps).

# .cargo/config.toml names one target, for static linking belongs to a named one; here it is this machine's.
TARGET   := $(shell uname -m)-unknown-linux-gnu
BINARY   := dist/ringfence
# 12 MiB, in bytes.
MAX_SIZE := 12582912
WORLD    := target/$(TARGET)/debug/world
export CARGO_BUILD_TARGET := $(TARGET)
export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)

.PHONY: build demo test lint unit mutation fuzz demo-quiet bench root clean

build: deps-build
	cargo build --release --locked --bin ringfence
	@mkdir -p dist
	@install -m 0755 target/$(TARGET)/release/ringfence $(BINARY)
	@file $(BINARY) | grep -q 'static-pie linked' || { file $(BINARY); echo '$(BINARY) is not a static-pie executable'; exit 1; }
	@file $(BINARY) | grep -q ', stripped' || { echo '$(BINARY) is not stripped'; exit 1; }
	@size=$$(stat -c %s $(BINARY)); \
	 [ $$size -lt $(MAX_SIZE) ] || { echo "$(BINARY) has $$size bytes, allowed are less than $(MAX_SIZE)"; exit 1; }; \
	 echo "$(BINARY): static-pie, stripped, $$size bytes"

demo: root deps-demo build $(WORLD)
	@$(WORLD) up --put $(BINARY) /usr/local/bin/ringfence --put demo/session.sh /usr/local/lib/demo/session.sh \
	  --put demo/demo.sh /usr/local/lib/demo/demo.sh -- sh /usr/local/lib/demo/demo.sh

# The order is that of cost: what is found soonest comes first.
test: root deps-test lint build unit mutation demo-quiet fuzz

lint:
	cargo fmt --all --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo clippy --features mutation --all-targets --locked -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --document-private-items --locked
	cargo deny --locked check --hide-inclusion-graph licenses bans sources

# Each test needs a process of its own, as tests unshare namespaces: so nextest, not cargo test.
unit: build
	RINGFENCE_TESTED=$(CURDIR)/$(BINARY) cargo nextest run --workspace --locked
	cargo test --workspace --doc --locked

# With the feature `mutation` single steps of the set-up can be left out; the pre-flight probes must notice each.
mutation:
	cargo nextest run --locked --features mutation --test mutation --test mutation_rungs

# Its output counts probes, which are no tests of this run.
demo-quiet: build $(WORLD)
	@mkdir -p target
	@$(MAKE) --no-print-directory demo >target/demo.log 2>&1 || { cat target/demo.log; exit 1; }
	@echo 'make demo: as it should be'

fuzz:
	.ci/fuzz 5

# The order is that of docs/benchmarks.md.
BENCHES := startup canary git bulk
# These measure code of the library's in their own process, and so must be built as the binary is.
OPTIMISED_BENCHES := ledger
RUN_BENCH := cargo bench --quiet --profile dev --locked --bench
RUN_OPTIMISED_BENCH := cargo bench --quiet --locked --bench

bench: root deps-bench build
	rm -f target/bench.jsonl
	for bench in $(BENCHES); do \
	  RINGFENCE_BENCH_LINES=$(CURDIR)/target/bench.jsonl $(RUN_BENCH) $$bench -- $(CURDIR)/$(BINARY) || exit 1; done
	for bench in $(OPTIMISED_BENCHES); do \
	  RINGFENCE_BENCH_LINES=$(CURDIR)/target/bench.jsonl $(RUN_OPTIMISED_BENCH) $$bench -- $(CURDIR)/$(BINARY) || exit 1; done
	$(RUN_BENCH) page -- target/bench.jsonl docs/benchmarks.md
	cp target/bench.jsonl docs/benchmarks.jsonl

.PHONY: $(WORLD)
$(WORLD):
	cargo build --quiet --locked -p world

deps-%:
	@.ci/deps $*

root:
	@[ "$$(id -u)" = 0 ] || { echo 'Namespaces, mounts and firewall rules are made: run as root.' >&2; exit 1; }

clean:
	cargo clean
	rm -rf dist fuzz/target fuzz/corpus fuzz/artifacts
