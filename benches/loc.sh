#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Lines of code of the functions, beside what each would need without the platform.
#
# A line of code is one that is neither empty nor a comment; tests at the end of a file do not count. "Alone"
# is the function plus the platform's parts that it would have to bring along: those named in the table below.
# The UniSec paper (table 2) reports 65 % less on average.
#
# Behind them the agent and the controller beside those of the PASS paper (section 5): 800 lines of C, 2,000
# lines of Java.
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

# A path that is not there any more must not pass for one without code.
files() {
    for path in "$@"; do
        [ -e "$path" ] || { echo "loc: $path is not there: correct benches/loc.sh" >&2; kill $$; }
    done
    find "$@" -name '*.rs' ! -name 'tests.rs' ! -path '*/tests/*' | sort
}

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
portscan="$f/portscan.rs"
tutorial="examples/function-ttlguard/src/lib.rs"
patterns="crates/functions/examples/wordguard.rs"

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
row portscan "$portscan" "$decode $classify $policy $flow $tcp $hosts"
row ttlguard "$tutorial" "$decode $policy"
row wordguard "$patterns" "$decode $classify $policy $flow $tcp $stream $(files crates/pattern/src)"

planes=""
plane() { # name, its files, the paper's lines
    # shellcheck disable=SC2086 # File lists are meant to be split.
    planes="$planes$1 $(count $2) $3
"
}
a=crates/agent/src
c=crates/controller/src
device="crates/runtime/src/southbound"
plane agent "$(files $a $device)" 800
# What the paper's agent does: it speaks with the controller, keeps what it said, and starts and stops
# functions.
plane agent-southbound "$(files $a/session $a/joined.rs $device)" 800
plane controller "$(files $c)" 2000
# What the paper's controller does: REST, southbound.
plane controller-rest-southbound "$(files $c/rest $c/resources $c/southbound $c/bridge $c/server)" 2000
# What functions are written against: the callbacks with their context, host tables, pattern sets, counters,
# sections of policies. The paper has no figure.
plane function-library "$(files crates/function/src $f/classes.rs $f/registry.rs)" 0
# Messages and TLS, which both sides share.
plane shared-messages-tls "$(files crates/api/src/southbound crates/channel/src)" 0

if [ "$json" = --json ]; then
    printf '%s' "$rows" | awk 'BEGIN { printf "[" } { printf "%s{\"name\": \"loc_%s\", \"value\": %d, \"unit\": \"lines\", \"peer\": \"alone\", \"peer_value\": %d, \"ratio\": %.2f}", (NR > 1 ? ", " : ""), $1, $2, $3, $3 / $2 }'
    printf '%s' "$planes" | awk '{ printf ", {\"name\": \"loc_%s\", \"value\": %d, \"unit\": \"lines\"", $1, $2 } $3 > 0 { printf ", \"peer\": \"PASS\", \"peer_value\": %d, \"ratio\": %.2f", $3, $3 / $2 } { printf "}" } END { print "]" }'
else
    printf '%-12s %8s %8s %8s\n' function lines alone less
    printf '%s' "$rows" | awk '{ printf "%-12s %8d %8d %7.1f%%\n", $1, $2, $3, $4 / 10 }'
    printf '\n%-28s %8s %8s\n' plane lines PASS
    printf '%s' "$planes" | awk '{ printf "%-28s %8d %8s\n", $1, $2, ($3 > 0 ? $3 : "-") }'
fi
