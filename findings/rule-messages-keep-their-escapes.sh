#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# suricataparser 1.0.0, idstools 0.6.5 and suricata-update 1.3.3 give a rule's message with the backslashes
# that stand before ; " : and \.
#
# Guess before the run: the `msg` that a library reads is the text that an alert carries. Seen: of four
# messages with an escaped character none is. Suricata 8.0.8 writes `semi ; colon`, `quote " in it`, `back \
# slash` and `colon : in it` in `alert.signature`; the libraries keep the backslash. None of them says so, or
# has a function that takes it off. For an operator: join alerts with rules by gid and sid, not by the
# message; who shows messages of a rule file takes the backslashes off.
#
# Exit 0 while the libraries do so, 1 when one does otherwise, 2 when they cannot be installed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

python3 -m venv "$folder/venv" >/dev/null &&
    "$folder/venv/bin/pip" -q install suricataparser==1.0.0 idstools==0.6.5 suricata-update==1.3.3 >/dev/null 2>&1 || exit 2

cat >"$folder/site.rules" <<'RULES'
alert udp any any -> any any (msg:"semi \; colon"; sid:1; rev:1;)
alert udp any any -> any any (msg:"quote \" in it"; sid:2; rev:1;)
alert udp any any -> any any (msg:"back \\ slash"; sid:3; rev:1;)
alert udp any any -> any any (msg:"colon \: in it"; sid:4; rev:1;)
RULES

"$folder/venv/bin/python" - "$folder/site.rules" <<'PYTHON'
import sys
import idstools.rule
import suricata.update.rule
import suricataparser

libraries = {
    "suricataparser": lambda line: suricataparser.parse_rule(line).msg,
    "idstools": lambda line: idstools.rule.parse(line)["msg"],
    "suricata-update": lambda line: suricata.update.rule.parse(line)["msg"],
}
expected = [r"semi \; colon", r"quote \" in it", r"back \\ slash", r"colon \: in it"]
lines = open(sys.argv[1]).read().splitlines()
kept = True
for name, message in libraries.items():
    found = [message(line) for line in lines]
    print(f"{name}: {found}")
    kept &= found == expected
sys.exit(0 if kept else 1)
PYTHON
