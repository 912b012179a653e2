#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the program and lets one watch it work: as root inline between two hosts made of network namespaces,
# with real programs driven through it; without root (or without what that takes) over a capture that is
# written here.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
scripts/needs.sh build run
cargo build --release --locked --package bartizan
mkdir -p "$target/demo"
if [ "$(id -u)" = 0 ] && command -v ip ethtool curl nginx python3 >/dev/null; then
    python3 scripts/demo/inline.py "$target/release/bartizan" "$target/demo"
    printf '\nThe same with a controller in the program, driven by an operator (docs/controller.md, docs/ctl.md):\n\n'
    exec python3 scripts/demo/planes.py "$target/release/bartizan" "$target/demo/planes"
fi
echo "inline needs root, ip, ethtool, curl, nginx and python3; going on over a capture"
scripts/run-demo.sh "$target/release/bartizan" "$target/demo"
