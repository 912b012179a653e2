#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Has readers of events take all that a run over a capture sends to a socket, and counts it (tests/readers):
# Telegraf's inputs.suricata, which is built from its Go module, and a plain reader in Python. Needs the
# network the first time, go, and Python 3.10 or later.
#
#   scripts/readers.sh
#
# From the environment: PROGRAM (built here unless given). Exit status: 0 everything came, 1 something did
# not, 2 it could not run.
set -euo pipefail
cd "$(dirname "$0")/.."

telegraf=1.37.2
root=$PWD
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
work=$target/readers
. scripts/rest-controller.sh readers
rest_program
for tool in go python3; do
    command -v "$tool" >/dev/null || rest_fail "needs $tool, which is not there"
done

plugin=$work/telegraf
if [ "$(cat "$work/version" 2>/dev/null)" != "$telegraf" ] || [ "$root/tests/readers/telegraf.go" -nt "$plugin" ]; then
    echo "builds Telegraf $telegraf's plugin from its Go module in $work"
    rm -rf "$work"
    mkdir -p "$work/build"
    cp "$root/tests/readers/telegraf.go" "$work/build/main.go"
    (
        cd "$work/build"
        go mod init readers 2>/dev/null
        go mod edit -require "github.com/influxdata/telegraf@v$telegraf"
        go build -mod=mod -o "$plugin" .
    ) || rest_fail "Telegraf's plugin cannot be built"
    echo "$telegraf" >"$work/version"
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 "$root/tests/readers/run.py" "$program" "$plugin" "$folder"
