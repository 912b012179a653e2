#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Suricata 8.0.8: behind the handshake of TLS a rule with a regular expression alone sees bytes that a rule
# with the same bytes as `content` does not see.
#
# Guess before the run: with the shipped `encryption-handling: track-only` payload is not inspected once a
# session is encrypted, so `content:"|17 03 03|"` and `pcre:"/\x17\x03\x03/"`, the head of the first record
# of data, match both or neither. Seen: `content` matches nowhere. `pcre` matches once, with the next packet
# of the side whose record showed the encryption; `content:!"zzz"` matches there as well. What was left of the
# stream is shown to rules that are evaluated with every packet, and not searched for literals. `dsize:31`
# matches for that first record and for none of the five after it, `dsize:<32` for all of them. For a writer
# of rules: such rules say nothing about encrypted sessions, whatever their counts are; test with
# `encryption-handling: full`.
#
# Exit 0 while the program does so, 1 when it does otherwise, 2 when it cannot be installed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf --one-file-system "$folder"' EXIT
root=$folder/root

debootstrap --variant=minbase --include=ca-certificates trixie "$root" >/dev/null 2>&1 || exit 2
# As this host reaches its mirrors.
cp -a /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/" 2>/dev/null || true
cp -a /etc/ssl/certs/. "$root/etc/ssl/certs/" 2>/dev/null || true
sed 's/ trixie / trixie-backports /' "$root/etc/apt/sources.list" >"$root/etc/apt/sources.list.d/backports.list"
chroot "$root" sh -c 'apt-get -q update && apt-get -qy install --no-install-recommends -t trixie-backports suricata=1:8.0.8-*' \
    >/dev/null 2>&1 || exit 2

cat >"$root/tmp/t.rules" <<'RULES'
alert tcp any any -> any any (msg:"content"; content:"|17 03 03|"; sid:1; rev:1;)
alert tcp any any -> any any (msg:"pcre"; pcre:"/\x17\x03\x03/"; sid:2; rev:1;)
alert tcp any any -> any any (msg:"absent"; content:!"zzz"; flow:to_server; sid:3; rev:1;)
alert tcp any any -> any any (msg:"length"; dsize:31; sid:4; rev:1;)
alert tcp any any -> any any (msg:"shorter"; dsize:<32; flags:PA; sid:5; rev:1;)
RULES

# A session of TLS 1.2, then data by turns, each segment acknowledged at once.
python3 - "$root/tmp/t.pcap" <<'PYTHON'
import struct, sys

CLIENT, SERVER = bytes([10, 0, 0, 1]), bytes([192, 0, 2, 7])
packets, numbers = [], {CLIENT: 1000, SERVER: 5000}


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def send(source, flags, payload=b""):
    target = SERVER if source == CLIENT else CLIENT
    ports = (40000, 443) if source == CLIENT else (443, 40000)
    ack = numbers[target] if flags & 0x10 else 0
    head = struct.pack(">HHIIBBHHH", *ports, numbers[source], ack, 0x50, flags, 65535, 0, 0)
    pseudo = source + target + struct.pack(">BBH", 0, 6, len(head) + len(payload))
    head = head[:16] + struct.pack(">H", checksum(pseudo + head + payload)) + head[18:]
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(head) + len(payload), len(packets), 0, 64, 6, 0) + source + target
    ip = ip[:10] + struct.pack(">H", checksum(ip)) + ip[12:]
    packets.append(bytes(12) + b"\x08\x00" + ip + head + payload)
    numbers[source] += len(payload) + (1 if flags & 2 else 0)


def record(kind, body):
    return bytes([kind, 3, 3]) + struct.pack(">H", len(body)) + body


def message(kind, body):
    return bytes([kind]) + struct.pack(">I", len(body))[1:] + body


send(CLIENT, 0x02)
send(SERVER, 0x12)
send(CLIENT, 0x10)
hello = record(22, message(1, b"\3\3" + b"\7" * 32 + b"\0\0\2\0\x2f\1\0"))
answer = record(22, message(2, b"\3\3" + b"\x09" * 32 + b"\0\0\x2f\0") + message(14, b""))
finished = record(20, b"\1") + record(22, b"\5" * 40)
data = record(23, b"bytes that nobody can read")
for source, payload in [(CLIENT, hello), (SERVER, answer), (CLIENT, finished), (SERVER, finished)] + 3 * [(CLIENT, data), (SERVER, data)]:
    send(source, 0x18, payload)
    send(SERVER if source == CLIENT else CLIENT, 0x10)
with open(sys.argv[1], "wb") as out:
    out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
    for number, packet in enumerate(packets):
        out.write(struct.pack("<IIII", 1700000000 + number, 0, len(packet), len(packet)) + packet)
PYTHON

chroot "$root" suricata -r /tmp/t.pcap -S /tmp/t.rules -l /tmp >/dev/null 2>&1
python3 - "$root/tmp/eve.json" <<'PYTHON'
import json
import sys

seen = {sid: [] for sid in range(1, 6)}
for line in open(sys.argv[1]):
    event = json.loads(line)
    if event["event_type"] == "alert":
        seen[event["alert"]["signature_id"]].append(event["pcap_cnt"])
print(seen)
expected = {1: [], 2: [15], 3: [7, 11, 15], 4: [12], 5: [12, 14, 16, 18, 20, 22]}
sys.exit(0 if seen == expected else 1)
PYTHON
