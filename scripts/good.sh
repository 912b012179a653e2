#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The good-traffic suite, whole: all chains, workers and sizes, then every rule as drop. Needs root. Arguments
# go to tests/good-traffic/run instead (`--list`, `--cases REGEX`, `--drop-all`, ...).
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/needs.sh build good
cargo build --release --locked --package bartizan
program=${CARGO_TARGET_DIR:-target}/release/bartizan
if [ $# -gt 0 ]; then exec tests/good-traffic/run --program "$program" "$@"; fi
tests/good-traffic/run --program "$program"
tests/good-traffic/run --program "$program" --drop-all
