#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Lines of code of the functions, beside what each would need without the platform.
#
# A line of code is one that is neither empty nor a comment; tests at the end of a file do not count. "Alone" is the
# function plus the platform's parts that it would have to bring along: those named in the table below.
# The UniSec paper (table 2) reports 65 % less on average.
set -eu
cd "$(dirname "$0")/.."

count() {
    total=0
    for file in "$@"; do
        lines=$(awk '/^#\[cfg\(test\)\]/ { exit } /^[[:space:]]*$/ { next } /^[[:space:]]*\/\// { next } { n++ } END { print n + 0 }' "$file")
        total=$((total + lines))
    done
    echo "$total"
}

files() { find "$@" -name '*.rs' ! -name 'tests.rs' ! -path '*/tests/*' | sort; }

decode=$(files crates/packet/src | grep -v -e /capture/)
classify=$(files crates/classify/src)
policy=$(files crates/config/src/policy crates/config/src/yaml.rs)
flow=$(files crates/flow/src | grep -v -e /stream/ -e /tcp/ -e /host/)
tcp=$(files crates/flow/src/tcp)
hosts=$(files crates/flow/src/host)
stream=$(files crates/flow/src/stream)
engine=$(files crates/detect/src)
payload=$(files crates/applayer/src crates/pattern/src crates/rules/src)

f=crates/functions/src
pfw="$f/pfw.rs"
sfw="$f/sfw.rs $f/sfw_tcp.rs"
ids="$f/ids.rs"
tutorial="crates/functions/examples/ttlguard.rs"

json=${1:-}
rows=""
row() { # name, the function's files, the platform's files
    # shellcheck disable=SC2086 # File lists are meant to be split.
    own=$(count $2)
    # shellcheck disable=SC2086
    alone=$((own + $(count $3)))
    less=$(((alone - own) * 1000 / alone))
    rows="$rows$1 $own $alone $less
"
}
row pfw "$pfw" "$decode $classify $policy"
row sfw "$sfw" "$decode $classify $policy $flow $tcp $hosts"
row ids "$ids" "$decode $classify $policy $flow $tcp $hosts $stream $payload $engine"
# The same with the detection engine taken for the function's own, as the paper does.
row ids+engine "$ids $engine" "$decode $classify $policy $flow $tcp $hosts $stream $payload"
row ttlguard "$tutorial" "$decode $policy"

if [ "$json" = --json ]; then
    printf '%s' "$rows" | awk 'BEGIN { printf "[" } { printf "%s{\"name\": \"loc_%s\", \"value\": %d, \"unit\": \"lines\", \"peer\": \"alone\", \"peer_value\": %d, \"ratio\": %.2f}", (NR > 1 ? ", " : ""), $1, $2, $3, $3 / $2 } END { print "]" }'
else
    printf '%-12s %8s %8s %8s\n' function lines alone less
    printf '%s' "$rows" | awk '{ printf "%-12s %8d %8d %7.1f%%\n", $1, $2, $3, $4 / 10 }'
fi
