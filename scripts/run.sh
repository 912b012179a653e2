#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the program and lets one watch it work: as root inline between two hosts made of network namespaces,
# with real programs driven through it; without root (or without what that takes) over a capture that is
# written here. The program is built with profile `demo` (Cargo.toml), since a release takes several times
# as long to build; the last paragraph says how they differ.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
scripts/needs.sh build run
cargo build --profile demo --locked --package bartizan
program=$target/demo/bartizan
out=$target/demo-out

say_what_differs() {
    cat <<TEXT

This program ($program) is a demo build: it behaves as a release, but it is not optimised, so do not judge its
speed. For use, \`cargo build --release\` optimises all crates as one, guided by a profile of real traffic
(docs/design/0015-profile.md), and puts the program at $target/release/bartizan.
TEXT
}

mkdir -p "$out"
if [ "$(id -u)" = 0 ] && command -v ip ethtool curl nginx python3 >/dev/null; then
    python3 scripts/demo/inline.py "$program" "$out"
    printf '\nThe same link with a policy from a controller in the program, which an operator changes (docs/controller.md, docs/ctl.md):\n\n'
    python3 scripts/demo/planes.py "$program" "$out/planes"
    say_what_differs
    exit
fi
echo "the inline demo needs root, ip, ethtool, curl, nginx and python3; inspecting a sample capture instead"
scripts/run-demo.sh "$program" "$out"
say_what_differs
