#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the fuzz targets, on stable Rust. From the environment: TIME seconds for each target (600), or TOTAL
# seconds for all together; TARGET=x for one; JOBS at a time (as many as processors); FEATURES of the fuzz
# crate; COMPAT the folder of the compatibility suite, whose captures and rules are first inputs, too.
#
# Findings are in fuzz/artifacts/TARGET; run one again with target/x86_64-unknown-linux-gnu/fuzz/TARGET FILE.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v c++ >/dev/null 2>&1 || { echo "missing (needed): g++ - libFuzzer is C++: apt-get install g++" >&2; exit 1; }
host=x86_64-unknown-linux-gnu
build=${CARGO_TARGET_DIR:-target}/$host/fuzz corpus=${CORPUS:-fuzz/corpus} artifacts=${ARTIFACTS:-fuzz/artifacts}
shared=${COMPAT:-../shared/compat}
mapfile -t targets < <(find fuzz/src/bin -name '*.rs' ! -name seed.rs -printf '%f\n' | sed 's/\.rs$//' | sort)
if [ -n "${TARGET:-}" ]; then
    if [ ! -f "fuzz/src/bin/$TARGET.rs" ] || [ "$TARGET" = seed ]; then
        echo "no such target: $TARGET. There are: ${targets[*]}" >&2
        exit 2
    fi
    targets=("$TARGET")
fi
jobs=${JOBS:-$(nproc)}
time=${TIME:-600}
[ -z "${TOTAL:-}" ] || time=$((TOTAL * jobs / ${#targets[@]}))
[ "$time" -gt 0 ] || time=1

flags="--cfg fuzzing -Cpasses=sancov-module -Ccodegen-units=1"
for flag in level=4 inline-8bit-counters pc-table trace-compares; do
    flags="$flags -Cllvm-args=-sanitizer-coverage-$flag"
done
bins=(--bin seed)
for target in "${targets[@]}"; do bins+=(--bin "$target"); done
CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS="$flags" \
    cargo build --profile fuzz --locked --package bartizan-fuzz --features "libfuzzer ${FEATURES:-}" --target "$host" "${bins[@]}"

mkdir -p "$corpus"
if [ ! -f "$corpus/.seeded" ]; then
    seeds=(fuzz/seeds/* scripts/demo/demo.rules)
    if command -v python3 >/dev/null 2>&1; then
        python3 scripts/demo/capture.py "$corpus/demo.pcap"
        seeds+=("$corpus/demo.pcap")
    fi
    if [ -d "$shared/cases" ]; then
        mapfile -t found < <(find "$shared/cases" "$shared/pcaps" -size -64k \
            \( -name '*.pcap' -o -name '*.rules' -o -name '*.yaml' \) | sort)
        seeds+=("${found[@]}")
    fi
    "$build/seed" "$corpus" "${seeds[@]}"
    touch "$corpus/.seeded"
fi

run_one() {
    local target=$1 log=$artifacts/$1.log
    mkdir -p "$artifacts/$target" "$corpus/$target"
    if "$build/$target" -max_total_time="$time" -max_len=8192 -len_control=0 -timeout=10 -rss_limit_mb=2048 -verbosity=1 \
        -print_final_stats=1 -artifact_prefix="$artifacts/$target/" "$corpus/$target" >"$log" 2>&1; then
        echo "$target: nothing found in $(awk '/stat::number_of_executed_units/ { print $2 }' "$log") runs, $time s"
    else
        echo "$target: FOUND something: $(grep -m1 -E 'panicked at|ERROR|SUMMARY|timeout|out-of-memory' "$log" || tail -1 "$log")"
        echo "  log $log, input $(grep -oE "Test unit written to .*" "$log" | tail -1)"
        return 1
    fi
}
export -f run_one
export host build corpus artifacts time
echo "${#targets[@]} targets, $time s each, $jobs at a time"
printf '%s\n' "${targets[@]}" | xargs -P "$jobs" -I{} bash -c 'run_one {}'
