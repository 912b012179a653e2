#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a contributor runs between two edits: format, the rules of the house, lints, the unit tests of
# libraries and of the program. All steps are run, also after one that fails. What it leaves out is said at
# the end: `make test` is what has to hold.
set -uo pipefail
cd "$(dirname "$0")/.."

begun=$SECONDS broken=() took=()

step() { # NAME COMMAND...
    local name=$1 from=$SECONDS said=ok
    shift
    echo "== $name: $*"
    "$@" || { said=FAILED; broken+=("$name"); }
    took+=("$name $((SECONDS - from)) s")
    echo "== $name: $said, $((SECONDS - from)) s"
}

step format cargo fmt --all --check
step tidy cargo xtask tidy
step lints cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
# The whole workspace: a part of it has other features of what it depends on, and all of that would be
# compiled once more.
step units cargo test --workspace --lib --bin bartizan --locked --quiet --no-fail-fast

printf -v times '%s, ' "${took[@]}"
echo "times: ${times%, }; $((SECONDS - begun)) s together"
echo "left out, as \`make test\` runs them: tests in tests/ of crates (with those on live ports and namespaces, and those that compare" \
    "generated files), tests in documentation, fuzz regressions, links of the documentation, the compatibility," \
    "differential, good-traffic and receiver suites"
if [ ${#broken[@]} = 0 ]; then echo "check: ok"; else echo "check: failed: ${broken[*]}"; fi
[ ${#broken[@]} = 0 ]
