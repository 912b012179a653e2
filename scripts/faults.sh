#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Faults over all planes under inline traffic and changes by REST, flows below that a change of policy
# revokes, and many changes: docs/faults.md. As root, in namespaces of their own.
#
#   scripts/faults.sh [--short]       --short: each kind once, under a minute
#
# From the environment: SEED (1), ROUNDS (150), PROGRAM (built here unless given). Besides, `kill -9` of the
# controller and of an agent, KILLS times each (100). Exit status: 0 all holds, 1 something does not, 2 it
# could not run.
set -euo pipefail
cd "$(dirname "$0")/.."

program=${PROGRAM:-}
if [ -z "$program" ]; then
    cargo build --release --locked --package bartizan
    program=${CARGO_TARGET_DIR:-target}/release/bartizan
fi
[ -x "$program" ] || { echo "faults: $program is not there or no program" >&2; exit 2; }
export PROGRAM=$program SEED=${SEED:-1}

if [ "${1:-}" = --short ]; then
    tests/faults/run --short
    ROUNDS=3 tests/faults/revoke
    CHANGES=20 tests/faults/change
    exit
fi
ROUNDS=${ROUNDS:-150} tests/faults/run
ROUNDS=${KILLS:-100} tests/faults/run --one --only kill_controller
ROUNDS=${KILLS:-100} tests/faults/run --one --only kill_agent
ROUNDS=6 tests/faults/run --one --only long_partition
ROUNDS=20 tests/faults/revoke
CHANGES=200 tests/faults/change
