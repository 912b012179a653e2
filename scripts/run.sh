#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the program and lets it inspect a capture that is written here, packet by packet.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
scripts/needs.sh build run
cargo build --release --locked --package bartizan
scripts/run-demo.sh "$target/release/bartizan" "$target/demo"
