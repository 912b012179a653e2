#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests the release in fresh Debian 12 and 13 roots: packages twice, and runs tests/package/run. Needs root
# and the network.
#
#   PROGRAM=FILE   as for scripts/package.sh
#   ROOTS=DIR      Debian roots, made once; default: target/roots
#   SUITE=NAME     bookworm or trixie alone
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/needs.sh package test-package
target=${CARGO_TARGET_DIR:-target}
OUT=$target/package scripts/package.sh
PROGRAM=${PROGRAM:-$target/release/bartizan} OUT=$target/package-again scripts/package.sh
roots=${ROOTS:-$target/roots}
mkdir -p "$roots"
tests/package/run --package "$target/package" --again "$target/package-again" --roots "$roots" ${SUITE:+--suite "$SUITE"}
