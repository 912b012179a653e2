#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks the fuzz targets themselves: each has to find its planted fault within a minute. TARGET=x for one.
set -euo pipefail
cd "$(dirname "$0")/.."

export ARTIFACTS=fuzz/artifacts/planted CORPUS=fuzz/corpus/planted
rm -rf "$ARTIFACTS"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
FEATURES=planted TIME=60 scripts/fuzz.sh >"$log" 2>&1 || true
if [ ! -d "$ARTIFACTS" ]; then
    cat "$log"
    exit 1
fi
missed=0
mapfile -t targets < <(find fuzz/src/bin -name '*.rs' ! -name seed.rs -printf '%f\n' | sed 's/\.rs$//' | sort)
for target in ${TARGET:-"${targets[@]}"}; do
    if grep -qs 'the planted fault was found' "$ARTIFACTS/$target.log"; then
        echo "$target: found the planted fault"
    else
        echo "$target: did NOT find it; see $ARTIFACTS/$target.log"
        missed=$((missed + 1))
    fi
done
[ "$missed" = 0 ]
