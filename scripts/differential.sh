#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Generated rules and conversations: the same alerts, drops, records and refusals as Suricata's
# (docs/differential.md).
#
#   scripts/differential.sh           with the answers of seed 1 that are kept, and the planted faults SEED=7
#   scripts/differential.sh    asks Suricata (SURICATA_ROOT: the root of a system that has it) about another
#   seed; with PROTOCOLS=smtp,ftp about pairs of these application protocols
#
# From the environment: PROGRAM (built here unless given), PAIRS (5000, with SEED). Exit status: 0 no new
# difference, 1 some, 2 it could not run.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
program=${PROGRAM:-}
if [ -z "$program" ]; then
    cargo build --workspace --locked --bin bartizan
    program=$target/debug/bartizan
fi
[ -x "$program" ] || { echo "differential: $program is not there or no program" >&2; exit 2; }
# With the features that the whole workspace gives its dependencies: those of one package are others, and all
# would be compiled once more.
cargo build --workspace --locked --quiet --bin differential
differential=$target/debug/differential

if [ -n "${SEED:-}" ]; then
    answers=$target/differential-$SEED.txt
    "$differential" answers --seed "$SEED" --protocols "${PROTOCOLS:-}" --pairs "${PAIRS:-5000}" "$answers"
    exec "$differential" check --program "$program" "$answers"
fi
"$differential" check --program "$program" --open tests/differential/open.txt tests/differential/answers.txt
"$differential" check --program "$program" --open tests/differential/applications-open.txt \
    tests/differential/applications.txt
"$differential" planted --program "$program" tests/differential/answers.txt
