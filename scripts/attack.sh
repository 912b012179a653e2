#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Dirty traffic through the live inline program to Linux receivers (UDP, TCP, nginx, OpenSSL): what they read,
# by their own records, holds nothing that a drop rule forbids, and good traffic arrives. As root, in network
# namespaces of its own.
#
#   scripts/attack.sh [OPTION...]     options go to the harness: --short, --kinds list, ... (--help lists
#   them)
#
# From the environment: SEED (1), PROGRAM (built here unless given), CASES of each setup, ONLY=FAMILY:NUMBER
# for one case, STRATEGIES files with published strategies (../shared/attacks/*.json where that is there),
# JSON file for the result. Captures of what was found are in target/attack. Exit status: 0 nothing found, 1
# something found, 2 it could not run.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
program=${PROGRAM:-}
if [ -z "$program" ]; then
    cargo build --release --locked --package bartizan
    program=$target/release/bartizan
fi
[ -x "$program" ] || { echo "attack: $program is not there or no program" >&2; exit 2; }
# With the features that the whole workspace gives its dependencies: those of one package are others, and all
# would be compiled once more.
cargo build --workspace --locked --quiet --bin attack

if [ -z "${STRATEGIES+set}" ]; then
    shopt -s nullglob
    STRATEGIES=$(echo ../shared/attacks/*.json)
fi
arguments=(--program "$program" --seed "${SEED:-1}" --out "$target/attack")
for file in $STRATEGIES; do arguments+=(--strategies "$file"); done
[ -z "${CASES:-}" ] || arguments+=(--cases "$CASES")
[ -z "${ONLY:-}" ] || arguments+=(--only "$ONLY")
[ -z "${JSON:-}" ] || arguments+=(--json "$JSON")
exec "$target/debug/attack" "${arguments[@]}" "$@"
