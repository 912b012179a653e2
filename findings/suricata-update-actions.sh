#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# suricata-update 1.3.3 leaves out, without a word, rules whose action is rejectsrc, rejectdst, rejectboth or
# config.
#
# Guess before the run: what Suricata 8 loads comes through suricata-update, and what does not is named. Seen:
# of eight rules with actions that Suricata 8.0.8 documents and loads, four are written. The log says "Loaded
# 4 rules", names none of the others, and the exit status is 0. Each action itself decides: the rules are
# otherwise alike. For an operator: rules with these actions go into a file of their own, which
# suricata-update does not touch.
#
# Exit 0 while suricata-update does so, 1 when it does otherwise, 2 when it cannot be installed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

python3 -m venv "$folder/venv" >/dev/null && "$folder/venv/bin/pip" -q install suricata-update==1.3.3 >/dev/null 2>&1 || exit 2

actions=(alert drop reject rejectsrc rejectdst rejectboth pass)
for at in "${!actions[@]}"; do
    echo "${actions[at]} tcp any any -> any any (msg:\"${actions[at]}\"; sid:$((at + 1)); rev:1;)"
done >"$folder/site.rules"
echo 'config dns any any -> any any (msg:"config"; dns.query; content:"x"; config:logging disable, type tx, scope tx; sid:8; rev:1;)' \
    >>"$folder/site.rules"

"$folder/venv/bin/suricata-update" -D "$folder/data" -o "$folder/out" --url "file://$folder/site.rules" \
    --no-test --no-reload --suricata-version 8.0.8 >"$folder/log" 2>&1
written=$(sed -E 's/ .*//' "$folder/out/suricata.rules" | sort | paste -sd' ')
echo "suricata-update $("$folder/venv/bin/pip" show suricata-update | sed -n 's/^Version: //p'): of ${actions[*]} config it writes: $written"
named=$(grep -cE 'rejectsrc|rejectdst|rejectboth|config:' "$folder/log" || true)
echo "lines of its log that name one of the others: $named"
[ "$written" = "alert drop pass reject" ] && [ "$named" = 0 ]
