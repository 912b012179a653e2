#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs benches: every benches/*/run, or the ones named. Each prints a table and writes the file that it gets
# as its argument.
set -euo pipefail
cd "$(dirname "$0")/.."

out=${CARGO_TARGET_DIR:-target}/bench
list() { for run in benches/*/run; do [ -x "$run" ] && basename "$(dirname "$run")"; done; }

names=("$@")
[ $# -gt 0 ] || mapfile -t names < <(list)
scripts/needs.sh build bench
mkdir -p "$out"
for name in "${names[@]}"; do
    if [ ! -x "benches/$name/run" ]; then
        echo "no such bench: $name. There are: $(list | paste -sd' ')" >&2
        exit 2
    fi
    echo "== $name"
    "benches/$name/run" "$out/$name.json"
    echo "== $name: $out/$name.json"
done
