#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes profiles/release.profdata anew, by which release builds are guided: how often each branch of the
# program is taken in traffic of many protocols, read from captures (passive and in prevention, without rules,
# with one and with ET Open) and forwarded live (three chains between two hosts). Needs root, some ten
# minutes, and ../shared/data.
#
# When: after changes of hot paths; what has changed since is built without its counts, and what is new counts
# for nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

shared=$(realpath ../shared/data)
scripts/needs.sh build bench
rustup component add llvm-tools
merge=$(rustc --print sysroot)/lib/rustlib/$(rustc -vV | sed -n 's/^host: //p')/bin/llvm-profdata
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
target=${CARGO_TARGET_DIR:-target}/profile
BARTIZAN_PROFILE=$folder/raw cargo build --release --locked --package bartizan --target-dir "$target"
program=$target/release/bartizan

zcat "$shared/captures/mix.pcap.gz" >"$folder/mix.pcap"
zcat "$shared/rules/etopen.rules.gz" >"$folder/etopen.rules"
: >"$folder/none.rules"
# What no packet holds: the common case of a rule.
echo 'alert tcp any any -> any any (msg:"one"; flow:established; content:"profile-of-no-packet"; sid:1;)' >"$folder/one.rules"

captures() { # OPTIONS...
    LLVM_PROFILE_FILE=$folder/captures/%p.profraw "$program" inspect --json --cache "$folder/cache" --out "$folder/out" \
        --set capture.checksum-validation=none "$@" "$folder/mix.pcap" >/dev/null
}
for rules in none one etopen; do
    captures --rules "$folder/$rules.rules" --suricata-config "$shared/alert-only.yaml"
done
captures --rules "$folder/etopen.rules"
captures --rules "$folder/etopen.rules" --ips
captures --rules "$folder/etopen.rules" --threads 2

export LLVM_PROFILE_FILE=$folder/live/%p.profraw
mkdir "$folder/chains"
benches/inline/chains.py --etopen "$shared/rules/etopen.rules.gz" --settings "$shared/alert-only.yaml" "$program" "$folder/chains" \
    empty pfw+sfw pfw+sfw+ids pfw+sfw+ids+etopen |
    benches/inline/inline.py --forwarders - --base empty --cases bulk,small,large,cps,udp256 --rounds 1 --seconds 2 --json "$folder/inline.json"

# Live runs see a million packets, the captures 54,000 each.
"$merge" merge -sparse -o profiles/release.profdata -weighted-input=10,"$folder/captures" "$folder/live"
ls -l profiles/release.profdata
echo "LLVM that wrote it (scripts/rustc.sh, llvm=): $(rustc -vV | sed -n 's/^LLVM version: //p')"
