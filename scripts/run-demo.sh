#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Lets a built program inspect a capture that is made here, and shows what it found.
#
#   scripts/run-demo.sh PROGRAM FOLDER
set -euo pipefail

program=$1 out=$2 demo=$(dirname "$0")/demo
mkdir -p "$out"
if ! command -v python3 >/dev/null 2>&1; then
    echo "python3 is not installed: it writes the sample capture. With a capture of yours: $program inspect --rules $demo/demo.rules FILE" >&2
    exit 1
fi
python3 "$demo/capture.py" "$out/demo.pcap"
"$program" inspect --rules "$demo/demo.rules" --out "$out" "$out/demo.pcap"
python3 - "$out/eve.json" <<'PYTHON'
import collections, json, sys

events = [json.loads(line) for line in open(sys.argv[1])]
print("\nevents:", ", ".join(f"{n} {kind}" for kind, n in collections.Counter(e["event_type"] for e in events).most_common()))
for event in events:
    if event["event_type"] == "alert":
        flow = f'{event["src_ip"]}:{event.get("src_port", "")} -> {event["dest_ip"]}:{event.get("dest_port", "")}'
        print(f'  {event["alert"]["action"]:8} {flow:38} {event["alert"]["signature"]}')
PYTHON
