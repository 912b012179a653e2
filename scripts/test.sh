#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that must hold: format, lints, tests, the release build, the compatibility suite. All steps are run, also
# after one that fails; the last line sums up. A step counts as one test, and `cargo test` as the tests in it.
# The release build needs one core for long, so it runs beside the first steps. It is made without its profile, which makes another layout of
# the same code and takes some minutes more; BARTIZAN_PROFILE=use tests the program as it is shipped, and .ci/run does.
set -uo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
logs=$target/test
mkdir -p "$logs"
passed=0 failed=0 broken=()

step() { # NAME COMMAND...
    local name=$1 begun=$SECONDS status
    shift
    echo "== $name: $*"
    "$@" 2>&1 | tee "$logs/$name.log"
    status=${PIPESTATUS[0]}
    if [ "$status" = 0 ]; then
        passed=$((passed + 1))
        echo "== $name: ok, $((SECONDS - begun)) s"
    else
        failed=$((failed + 1))
        broken+=("$name")
        echo "== $name: FAILED with exit code $status, $((SECONDS - begun)) s; its output is in $logs/$name.log"
    fi
    return "$status"
}

compatibility() {
    local suite=../shared/compat/compat floor=tests/compat/floor.list
    local floor_there=
    [ ! -f "$floor" ] || floor_there=1
    if [ ! -x "$suite" ]; then
        echo "== compatibility: not run, $suite is not there"
    elif ! /usr/bin/python3 -c 'import yaml' 2>/dev/null; then
        echo "== compatibility: not run, python3-yaml is not installed"
    else
        # A program that agrees in more cases may raise the floor: add --write-floor and commit the list.
        [ -f "$floor" ] || echo "== compatibility: no case has to agree yet, $floor is not there"
        rm -rf "$target/compat-kept"
        step compatibility "$suite" --program "$target/release/bartizan" --jobs 2 ${floor_there:+--floor "$floor"} \
            --keep "$target/compat-kept"
        eve_schema
    fi
}

# Every event of all cases by Suricata's own schema of EVE.
eve_schema() {
    local beside=../shared/compat python found=
    for python in /usr/bin/python3 python3; do
        if "$python" -c 'import jsonschema' 2>/dev/null; then found=$python && break; fi
    done
    if [ ! -f "$beside/suricata-schema.json" ]; then
        echo "== eve-schema: not run, $beside/suricata-schema.json is not there"
    elif [ -z "$found" ]; then
        echo "== eve-schema: not run, python3-jsonschema is not installed"
    else
        step eve-schema "$found" tests/compat/eve-schema "$beside/suricata-schema.json" "$target/compat-kept" \
            --reference "$beside/reference-eve.tar.xz"
    fi
}

# Real programs through the live program; the whole suite is `make good`.
good_traffic() {
    local suite=tests/good-traffic/run
    if ! command -v python3 >/dev/null 2>&1; then
        echo "== good-traffic: not run, python3 is not installed"
    elif [ "$(id -u)" != 0 ] || ! unshare --net true 2>/dev/null; then
        echo "== good-traffic: not run, it needs root and network namespaces"
    else
        step good-traffic "$suite" --program "$target/release/bartizan" --short
    fi
}

# The short run of the receiver harness, without and with a level below; where no namespaces can be made it says so and is not counted.
receivers() {
    local level status
    for level in none xdp; do
        if [ "$level" = none ]; then scripts/attack.sh --short; else scripts/attack.sh --short --offload "$level"; fi
        status=$?
        if [ "$status" = 2 ]; then
            echo "== receivers: not run"
            return 0
        fi
        [ "$status" = 0 ] || return "$status"
    done
}

# Faults over all planes, each once, the revocation of flows below, and changes under traffic; the whole suite is `make faults`.
faults() {
    if ! command -v python3 >/dev/null 2>&1; then
        echo "== faults: not run, python3 is not installed"
    elif [ "$(id -u)" != 0 ] || ! unshare --net --mount true 2>/dev/null; then
        echo "== faults: not run, it needs root and namespaces"
    else
        PROGRAM=$target/release/bartizan step faults scripts/faults.sh --short
    fi
}

step needs scripts/needs.sh build test good faults || { echo "0 passed, 1 failed"; exit 1; }
export BARTIZAN_PROFILE=${BARTIZAN_PROFILE:-off}
build_release() {
    cargo build --release --locked --package bartizan >"$logs/release.log" 2>&1 &
    release_pid=$!
    trap 'kill "$release_pid" 2>/dev/null' EXIT
}
# With its profile it is the machine's main load for minutes: live tests are not to run beside that.
release_pid=
[ "$BARTIZAN_PROFILE" = use ] || build_release

# The end of the release build.
release() {
    local status
    [ -n "$release_pid" ] || build_release
    wait "$release_pid"
    status=$?
    trap - EXIT
    cat "$logs/release.log"
    return "$status"
}

step format cargo fmt --all --check
step lints cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
# The sum of cargo's own lines replaces the one test that a step counts as.
if step tests cargo test --workspace --locked --no-fail-fast; then passed=$((passed - 1)); else failed=$((failed - 1)); fi
read -r ok bad < <(awk '/^test result:/ { ok += $4; bad += $6 } END { print ok + 0, bad + 0 }' "$logs/tests.log")
# Without a single failed test it did not compile.
case " ${broken[*]-} " in *" tests "*) [ "$bad" -gt 0 ] || bad=1 ;; esac
passed=$((passed + ok)) failed=$((failed + bad))
# A link that leads nowhere, or from a public page to a private item, fails; the book is left to `make docs`.
step docs env RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet
echo "== release: cargo build --release, BARTIZAN_PROFILE=$BARTIZAN_PROFILE"
if release; then
    passed=$((passed + 1))
    echo "== release: ok, $SECONDS s after the beginning"
    compatibility
    PROGRAM=$target/release/bartizan step differential scripts/differential.sh
    good_traffic
    faults
    PROGRAM=$target/release/bartizan step receivers receivers
else
    failed=$((failed + 1))
    broken+=(release)
    echo "== release: FAILED"
fi

[ ${#broken[@]} = 0 ] || echo "failed: ${broken[*]} (logs in $logs)"
echo "$passed passed, $failed failed" | tee "$logs/summary"
[ "$failed" = 0 ]
