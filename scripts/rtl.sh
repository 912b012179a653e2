#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The SmartNIC's logic: lint, the model against the crates of the host, proofs, mutations, and what it takes
# of an FPGA.
#
#   scripts/rtl.sh quick      lint and differential tests: four minutes of processor time
#   scripts/rtl.sh            these, a million packets, the proofs, the mutations and the counts
set -euo pipefail
cd "$(dirname "$0")/.."

lint() {
    local name width rules stride block ipv6
    while read -r name width rules stride block ipv6; do
        echo "lint: $name (DataW $width, NumRules $rules, Stride $stride, Block $block, Ipv6 $ipv6)"
        (cd hw/rtl && verilator --lint-only -Wall --top-module bartizan_top "-GDataW=$width" "-GNumRules=$rules" \
            "-GStride=$stride" "-GBlock=$block" "-GIpv6=$ipv6" lint.vlt -f files.f)
    done <<'CONFIGURATIONS'
narrow 64 128 4 0 1
middle 128 64 9 1 1
wide 512 128 9 1 0
area 64 128 9 1 0
fast 64 256 4 0 0
large 64 1024 4 0 0
CONFIGURATIONS
}

tests() {
    cargo test -p bartizan-rtl --features verilator --locked -- --nocapture "$@"
}

lint
case ${1:-all} in
    quick) tests ;;
    all)
        BARTIZAN_RTL_PACKETS=1000000 tests
        hw/formal/run
        hw/syn/run
        hw/tb/mutations
        ;;
    *)
        echo "usage: scripts/rtl.sh [quick]" >&2
        exit 2
        ;;
esac
