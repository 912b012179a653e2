# SPDX-License-Identifier: Apache-2.0
# `make help` says what there is. Each target is a script in scripts/ that can be run by itself.

.DEFAULT_GOAL := help
.PHONY: help run check test rtl good attack bench profile conservation controller clients readers schemathesis faults fuzz docs package test-package clean

help: ## what the targets do
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /  make \1	/' | expand -t 22

run: ## build the program and watch it work on sample traffic
	@scripts/run.sh

check: ## between two edits: format, rules of the house, lints, unit tests; says what it leaves out
	@scripts/check.sh

test: ## format, lints, tests, and the suites: compatibility, differential, good traffic, receivers (installs what is missing, saying what)
	@scripts/test.sh

rtl: ## the SmartNIC's logic: lint, the model against the host's crates, proofs, mutations, counts; ARGS=quick for the first two
	@scripts/needs.sh build rtl
	@scripts/rtl.sh $(ARGS)

good: ## good traffic of real programs passes unchanged and in time, all chains; ARGS='--cases http' and others for tests/good-traffic/run
	@scripts/good.sh $(ARGS)

bench: ## measure: NAME=x for one bench; results in target/bench/x.json
	@scripts/bench.sh $(NAME)

profile: ## make profiles/release.profdata anew, which guides release builds (root, ten minutes)
	@scripts/profile.sh

conservation: ## take ten thousand flows (REMOVALS=n) away from the XDP level while their packets arrive: every packet is counted once (root, minutes)
	@scripts/needs.sh build
	BARTIZAN_REMOVALS=$(or $(REMOVALS),10000) cargo test --workspace --locked --test bartizan -- --nocapture full_rate::thousands

controller: ## kill the controller a hundred times under writes (KILLS=n): what it answered has to be there
	@scripts/needs.sh build
	BARTIZAN_KILLS=$(or $(KILLS),100) cargo test --workspace --locked --test bartizan -- --nocapture controller::sudden

clients: ## generate clients of the REST API in Go, Java, TypeScript and Python, compile them and have them work (network, once): ONLY=, PROGRAM=file
	@scripts/clients.sh

readers: ## Telegraf's inputs.suricata and a plain reader take all events that a run sends to a socket, and are counted (network, once): PROGRAM=file
	@scripts/readers.sh

schemathesis: ## ask the REST API all that its OpenAPI document allows, and more (network, once): SEED=1, EXAMPLES=40, PROGRAM=file
	@scripts/schemathesis.sh

faults: ## faults over all planes under traffic and changes, revocation below, 200 changes (root, half an hour): SEED=1, ROUNDS=150, KILLS=100, PROGRAM=file
	@scripts/needs.sh build faults
	@scripts/faults.sh

fuzz: ## fuzz every decoder and parser: TIME=600 seconds each, TARGET=x for one, TOTAL=600 to share a time
	@scripts/fuzz.sh

attack: ## dirty traffic through the inline program to real receivers: SEED=1, ONLY=family:number for one case, PROGRAM=file
	@scripts/needs.sh build attack
	@scripts/attack.sh

docs: ## the book and the API documentation, in target/doc and docs/book
	@scripts/docs.sh

package: ## the release: Debian packages, container image, list of crates, licence texts, checksums, in target/package: PROGRAM=file, VERSION=
	@scripts/package.sh

test-package: ## the release in fresh Debian 12 and 13 roots: install, first alert, upgrade, downgrade, purge (root, network): PROGRAM=file, SUITE=
	@scripts/test-package.sh

clean: ## remove everything that was built
	cargo clean
	rm -rf bartizan-out docs/book fuzz/corpus fuzz/artifacts
