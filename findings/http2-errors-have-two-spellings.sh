#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Suricata 8.0.8: an error of HTTP/2 has two spellings in records, by the frame that carries it.
#
# Guess before the run: `http.http2.request.error_code` has the name of the code in one spelling, whichever
# frame has it, that of RFC 9113 or that of the keyword `http2.errorcode`. Seen: code 8 is `CANCEL` where
# GOAWAY has it and `Cancel` where RST_STREAM has it. For a reader of events: compare these names without
# regard to letter case.
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

python3 - "$root/tmp/t.pcap" <<'PYTHON'
import struct, sys

CLIENT, SERVER = bytes([10, 0, 0, 1]), bytes([192, 0, 2, 7])
packets, numbers = [], {CLIENT: 1000, SERVER: 5000}


def send(source, flags, payload=b""):
    target = SERVER if source == CLIENT else CLIENT
    ports = (40000, 80) if source == CLIENT else (80, 40000)
    ack = numbers[target] if flags & 0x10 else 0
    head = struct.pack(">HHIIBBHHH", *ports, numbers[source], ack, 0x50, flags, 65535, 0, 0)
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(head) + len(payload), len(packets), 0, 64, 6, 0) + source + target
    packets.append(bytes(12) + b"\x08\x00" + ip + head + payload)
    numbers[source] += len(payload) + (1 if flags & 3 else 0)


def frame(kind, flags, stream, payload):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def field(name, value):
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


CANCEL = (8).to_bytes(4, "big")
request = field(b":method", b"GET") + field(b":path", b"/a") + field(b":scheme", b"http") + field(b":authority", b"site.example")
send(CLIENT, 0x02)
send(SERVER, 0x12)
send(CLIENT, 0x10)
for source, payload in [
    (CLIENT, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"") + frame(1, 5, 1, request)),
    (SERVER, frame(4, 0, 0, b"") + frame(1, 4, 1, field(b":status", b"200"))),
    (CLIENT, frame(3, 0, 1, CANCEL)),
    (CLIENT, frame(7, 0, 0, bytes(4) + CANCEL)),
]:
    send(source, 0x18, payload)
    send(SERVER if source == CLIENT else CLIENT, 0x10)
send(CLIENT, 0x11)
send(SERVER, 0x11)
send(CLIENT, 0x10)

with open(sys.argv[1], "wb") as file:
    file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
    for number, packet in enumerate(packets):
        file.write(struct.pack("<IIII", 1700000000, number * 1000, len(packet), len(packet)) + packet)
PYTHON

mkdir "$root/tmp/out"
chroot "$root" suricata -V
chroot "$root" suricata -r /tmp/t.pcap -l /tmp/out -k none -S /dev/null >/dev/null 2>&1
python3 - "$root/tmp/out/eve.json" <<'PYTHON'
import json, sys

seen = {}
for line in open(sys.argv[1]):
    event = json.loads(line)
    http2 = event.get("http", {}).get("http2", {})
    code = http2.get("request", {}).get("error_code")
    if event["event_type"] == "http" and code:
        seen["GOAWAY" if http2["stream_id"] == 0 else "RST_STREAM"] = code
print(seen)
sys.exit(0 if seen == {"GOAWAY": "CANCEL", "RST_STREAM": "Cancel"} else 1)
PYTHON
