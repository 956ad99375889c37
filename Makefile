# make build   the stripped static binary at dist/ringfence
# make demo    a session in a closed network world, and its record
# make test    everything that must hold
# make bench   what it costs, beside others of its kind: docs/benchmarks.md
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

.PHONY: build demo test lint unit mutation fuzz demo-quiet bench bench-counts root clean

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
test: root deps-test lint build unit mutation demo-quiet bench-counts fuzz

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

# A build whose probes can be left out, for what a start costs without them. It is nobody's to ship.
UNPROBED  := $(CURDIR)/target/ringfence-unprobed
LINES     := $(CURDIR)/target/bench.jsonl
# The order is that of docs/benchmarks.md. A load that is not optimised measures itself, and the
# ledger's writer is measured in the bench's own process.
BENCHES   := startup calls work canary git
OPTIMISED := proxy ledger
RUN_BENCH := cargo bench --quiet --locked

bench: export RINGFENCE_BENCH_UNPROBED := $(UNPROBED)
bench: export RINGFENCE_BENCH_LINES := $(LINES)
# Peers that are in no distribution.
bench: export PATH := $(CURDIR)/target/peers/bin:$(CURDIR)/target/peers/node_modules/.bin:$(PATH)
bench: root deps-bench build
	rm -f $(LINES)
	cargo build --release --locked --features mutation --bin ringfence
	install -m 0755 target/$(TARGET)/release/ringfence $(UNPROBED)
	$(RUN_BENCH) --no-run $(OPTIMISED:%=--bench %)
	$(RUN_BENCH) --no-run --profile dev $(BENCHES:%=--bench %)
	for bench in $(BENCHES); do $(RUN_BENCH) --profile dev --bench $$bench -- $(CURDIR)/$(BINARY) || exit 1; done
	for bench in $(OPTIMISED); do $(RUN_BENCH) --bench $$bench -- $(CURDIR)/$(BINARY) || exit 1; done
	$(RUN_BENCH) --profile dev --bench page -- $(LINES) docs/benchmarks.md
	cp $(LINES) docs/benchmarks.jsonl

# Every bench once, for what it counts; times are nobody's to check.
bench-counts: export RINGFENCE_BENCH_SHORT := 1
bench-counts: build
	for bench in $(BENCHES) $(OPTIMISED); do $(RUN_BENCH) --profile dev --bench $$bench -- $(CURDIR)/$(BINARY) || exit 1; done

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
