# make build   the stripped static binary at dist/ringfence
# make test    everything that must hold, as root
# make demo    a session in a closed network world, and its record
# make bench   start-up time against plain exec and bwrap

TARGET   := $(shell uname -m)-unknown-linux-gnu
BINARY   := dist/ringfence
# 12 MiB, in bytes.
MAX_SIZE := 12582912
WORLD    := target/$(TARGET)/debug/world

.PHONY: build test lint unit mutation demo bench deps root clean

build:
	cargo build --release --locked --bin ringfence
	@mkdir -p dist
	@install -m 0755 target/$(TARGET)/release/ringfence $(BINARY)
	@file $(BINARY) | grep -q 'static-pie linked' || { file $(BINARY); echo '$(BINARY) is not a static-pie executable'; exit 1; }
	@file $(BINARY) | grep -q ', stripped' || { echo '$(BINARY) is not stripped'; exit 1; }
	@size=$$(stat -c %s $(BINARY)); \
	 [ $$size -lt $(MAX_SIZE) ] || { echo "$(BINARY) has $$size bytes, allowed are less than $(MAX_SIZE)"; exit 1; }; \
	 echo "$(BINARY): static-pie, stripped, $$size bytes"

test: root deps lint build unit mutation

# The order is that of cost: what is found soonest comes first.
lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --document-private-items --locked
	cargo deny --locked check --hide-inclusion-graph licenses bans sources

# Each test needs a process of its own, as tests unshare namespaces: so nextest, not cargo test.
unit:
	cargo nextest run --workspace --locked
	cargo test --workspace --doc --locked

# With the feature `mutation` single steps of the set-up can be left out; the pre-flight probes must notice each.
mutation:
	cargo clippy --locked --features mutation --bins --test mutation -- -D warnings
	cargo nextest run --locked --features mutation --test mutation

demo: root build $(WORLD)
	$(WORLD) up --put $(BINARY) /usr/local/bin/ringfence --put demo/session.sh /usr/local/lib/demo/session.sh \
	  --put demo/demo.sh /usr/local/lib/demo/demo.sh -- sh /usr/local/lib/demo/demo.sh

bench: root build $(WORLD)
	$(WORLD) up --put $(BINARY) /usr/local/bin/ringfence --put demo/bench.sh /usr/local/lib/demo/bench.sh \
	  -- sh /usr/local/lib/demo/bench.sh

.PHONY: $(WORLD)
$(WORLD):
	cargo build --quiet --locked -p world

deps:
	.ci/deps

root:
	@[ "$$(id -u)" = 0 ] || { echo 'Namespaces, mounts and firewall rules are made: run as root.' >&2; exit 1; }

clean:
	cargo clean
	rm -rf dist
