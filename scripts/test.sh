#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that must hold: format, lints, tests, links of the documentation, and the suites (compatibility,
# differential, good traffic, receivers). All steps are run, also after one that fails; the last line sums up.
# A step counts as one test, and `cargo test` as the tests in it. The suites run the program of the tests:
# nothing more is built, and its debug assertions have to hold under their traffic. With BARTIZAN_PROFILE=use
# the program is built as it is shipped, and they run that one; .ci/run does so.
set -uo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
logs=$target/test
mkdir -p "$logs"
passed=0 failed=0 broken=()

report() { # NAME STATUS WHEN
    if [ "$2" = 0 ]; then
        passed=$((passed + 1))
        echo "== $1: ok, $3"
    else
        failed=$((failed + 1))
        broken+=("$1")
        echo "== $1: FAILED with exit code $2, $3; its output is in $logs/$1.log"
    fi
    return "$2"
}

step() { # NAME COMMAND...
    local name=$1 begun=$SECONDS
    shift
    echo "== $name: $*"
    "$@" 2>&1 | tee "$logs/$name.log"
    report "$name" "${PIPESTATUS[0]}" "$((SECONDS - begun)) s"
}

# Begins a step that goes on beside the ones that follow.
declare -A pids starts
beside() { # NAME COMMAND...
    local name=$1
    shift
    echo "== $name, beside what follows: $*"
    starts[$name]=$SECONDS
    "$@" >"$logs/$name.log" 2>&1 &
    pids[$name]=$!
}
trap 'kill "${pids[@]}" 2>/dev/null' EXIT

# Its end.
ended() { # NAME
    local status
    wait "${pids[$1]}"
    status=$?
    unset "pids[$1]"
    cat "$logs/$1.log"
    report "$1" "$status" "$((SECONDS - starts[$1])) s after its beginning"
}

# For what computes beside tests that wait: what wakes up has its processor at once.
idle() { chrt --idle 0 "$@"; }

# Not before the first test runs, since cargo locks the folder while it builds, nor where the tests are not
# built.
behind_the_build() { # COMMAND...
    until grep -q '^     Running' "$logs/tests.log" 2>/dev/null || [ -e "$logs/tests.over" ]; do sleep 0.2; done
    exec chrt --idle 0 "$@"
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
        step compatibility idle "$suite" --program "$program" --jobs 2 ${floor_there:+--floor "$floor"} \
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
        step eve-schema idle "$found" tests/compat/eve-schema "$beside/suricata-schema.json" "$target/compat-kept" \
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
        rm -rf "$target/good-kept"
        beside good-traffic "$suite" --program "$program" --short --keep-failed "$target/good-kept"
    fi
}

# The short run of the receiver harness, without and with a level below; where no namespaces can be made it
# says so and is not counted.
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

# Inputs that trials of other people found, each with what is expected.
strangers() {
    local folder=../shared/strangers
    if [ ! -d "$folder" ]; then
        echo "== strangers: not run, $folder is not there"
    else
        step strangers tests/strangers/run --program "$program" --open tests/strangers/open.txt "$folder"
    fi
}

# Staged policies and empty chains over a capture of many protocols.
staged() {
    local capture=../shared/data/captures/mix.pcap.gz
    if [ ! -f "$capture" ]; then
        echo "== staged: not run, $capture is not there"
    elif ! command -v python3 >/dev/null 2>&1; then
        echo "== staged: not run, python3 is not installed"
    else
        step staged idle tests/staged/run --program "$program" --capture "$capture"
    fi
}

# Faults over all planes, each once, the revocation of flows below, and changes under traffic; the whole suite
# is `make faults`.
faults() {
    if ! command -v python3 >/dev/null 2>&1; then
        echo "== faults: not run, python3 is not installed"
    elif [ "$(id -u)" != 0 ] || ! unshare --net --mount true 2>/dev/null; then
        echo "== faults: not run, it needs root and namespaces"
    else
        beside faults scripts/faults.sh --short
    fi
}

# The SmartNIC's logic against the crates of the host. `.ci/run` installs what it needs, and fails without.
smartnic() {
    if ! command -v verilator >/dev/null 2>&1 && [ -z "${BARTIZAN_RTL_NEEDED:-}" ]; then
        echo "== smartnic: not run, verilator is not installed (scripts/needs.sh rtl)"
    else
        step smartnic idle scripts/rtl.sh quick
    fi
}

# Live suites wait for most of their time: they go on beside each other, and beside what computes. That of
# faults, whose bounds are the narrowest, begins when the others have got going.
suites() {
    export PROGRAM=$program
    good_traffic
    beside receivers receivers
    compatibility
    strangers
    staged
    faults
    step differential idle scripts/differential.sh
    smartnic
}

step needs scripts/needs.sh build test good faults ${BARTIZAN_RTL_NEEDED:+rtl} || { echo "0 passed, 1 failed"; exit 1; }
program=$target/debug/bartizan
[ -z "${BARTIZAN_PROFILE:-}" ] || program=$target/release/bartizan
# What an older tree left is not tested in its place.
rm -f "$program"
step format cargo fmt --all --check
# With the harnesses of the suites, so that none of them is built between live tests.
build() {
    cargo test --workspace --locked --no-run && cargo build --workspace --locked --bin bartizan --bin differential --bin attack
}
step build build
rm -f "$logs/tests.log" "$logs/tests.over"
beside lints behind_the_build cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
# A link that leads nowhere, or from a public page to a private item, fails; the book is left to `make docs`.
beside docs behind_the_build env RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet
[ -z "${BARTIZAN_PROFILE:-}" ] || beside release behind_the_build cargo build --release --locked --package bartizan
# Most tests of live programs wait: with one for each processor these would do nothing most of the time.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-6}
# The sum of cargo's own lines replaces the one test that a step counts as.
# A test that hangs ends the others, and is named at the end.
if step tests timeout --kill-after=30 2700 cargo test --workspace --locked --no-fail-fast; then passed=$((passed - 1)); else failed=$((failed - 1)); fi
touch "$logs/tests.over"
# Skeletons of all kinds of extension in a copy.
step scaffold cargo xtask new --check
# A function in a crate outside of the workspace.
step example env CARGO_PROFILE_DEV_DEBUG=false cargo test --manifest-path examples/function-ttlguard/Cargo.toml --target-dir "$target/example" --locked --offline
read -r ok bad < <(awk '/^test result:/ { ok += $4; bad += $6 } END { print ok + 0, bad + 0 }' "$logs/tests.log")
# Without a single failed test it did not compile.
case " ${broken[*]-} " in *" tests "*) [ "$bad" -gt 0 ] || bad=1 ;; esac
passed=$((passed + ok)) failed=$((failed + bad))
[ -z "${BARTIZAN_PROFILE:-}" ] || ended release
if [ -x "$program" ]; then
    suites
else
    echo "== suites: not run, the program was not built"
fi
for name in "${!pids[@]}"; do ended "$name"; done

# The end of a long log is what is read: each test that failed, with what it said, and each that never ended.
if [ "$bad" -gt 0 ] && [ -f "$logs/tests.log" ]; then
    awk '/has been running for over 60 seconds/ { slow[$2] } / \.\.\. / { ended[$2] }
        END { for (name in slow) if (!(name in ended)) print "test " name " did not end" }' "$logs/tests.log"
    grep -E '^test .* \.\.\. FAILED' "$logs/tests.log" | sort -u | head -n 20
    # What a doc test that does not compile said.
    grep -A 4 -E '^error(\[|: aborting)' "$logs/tests.log" | cut -c 1-600 | tail -n 30
    grep -A 6 -E "^thread '.*panicked at" "$logs/tests.log" | cut -c 1-600 | tail -n 60
fi
[ ${#broken[@]} = 0 ] || echo "failed: ${broken[*]} (logs in $logs)"
echo "$passed passed, $failed failed" | tee "$logs/summary"
[ "$failed" = 0 ]
