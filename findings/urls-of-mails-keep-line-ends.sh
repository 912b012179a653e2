#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Suricata 8.0.8: in the record of a mail, a URL that ends its line keeps the line's end, and URLs stand last
# first.
#
# Guess before the run: `email.url` of an `smtp` event lists the URLs of a message as they stand there, each
# without what is around it: `one.example/a`, `two.example/b`, `three.example/c`. Seen:
# `three.example/c\r\n`, `two.example/b\r\n`, `one.example/a`. A blank ends a URL, the end of its line does
# not. For a reader of events: cut white space off before URLs are compared with a list, and do not take the
# first one for the first of the message.
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


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def send(source, flags, payload=b""):
    target = SERVER if source == CLIENT else CLIENT
    ports = (40000, 25) if source == CLIENT else (25, 40000)
    ack = numbers[target] if flags & 0x10 else 0
    head = struct.pack(">HHIIBBHHH", *ports, numbers[source], ack, 0x50, flags, 65535, 0, 0)
    pseudo = source + target + struct.pack(">BBH", 0, 6, len(head) + len(payload))
    head = head[:16] + struct.pack(">H", checksum(pseudo + head + payload)) + head[18:]
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(head) + len(payload), len(packets), 0, 64, 6, 0) + source + target
    ip = ip[:10] + struct.pack(">H", checksum(ip)) + ip[12:]
    packets.append(bytes(12) + b"\x08\x00" + ip + head + payload)
    numbers[source] += len(payload) + (1 if flags & 2 else 0)


MAIL = b"""Subject: links\r
From: <a@site.example>\r
To: <b@site.example>\r
\r
see http://one.example/a for more\r
http://two.example/b\r
and http://three.example/c\r
.\r
"""
send(CLIENT, 0x02)
send(SERVER, 0x12)
send(CLIENT, 0x10)
for source, payload in [
    (SERVER, b"220 mail.site.example ESMTP\r\n"), (CLIENT, b"EHLO client.site.example\r\n"),
    (SERVER, b"250 mail.site.example\r\n"), (CLIENT, b"MAIL FROM:<a@site.example>\r\n"), (SERVER, b"250 ok\r\n"),
    (CLIENT, b"RCPT TO:<b@site.example>\r\n"), (SERVER, b"250 ok\r\n"), (CLIENT, b"DATA\r\n"),
    (SERVER, b"354 go on\r\n"), (CLIENT, MAIL), (SERVER, b"250 queued\r\n"), (CLIENT, b"QUIT\r\n"), (SERVER, b"221 bye\r\n"),
]:
    send(source, 0x18, payload)
    send(SERVER if source == CLIENT else CLIENT, 0x10)
send(CLIENT, 0x11)
send(SERVER, 0x11)
send(CLIENT, 0x10)
with open(sys.argv[1], "wb") as out:
    out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
    for number, packet in enumerate(packets):
        out.write(struct.pack("<IIII", 1700000000 + number, 0, len(packet), len(packet)) + packet)
PYTHON

chroot "$root" suricata -r /tmp/t.pcap -S /dev/null -l /tmp >/dev/null 2>&1
python3 - "$root/tmp/eve.json" <<'PYTHON'
import json
import sys

events = map(json.loads, open(sys.argv[1]))
urls = [event["email"]["url"] for event in events if event["event_type"] == "smtp"]
print(urls)
sys.exit(0 if urls == [["three.example/c\r\n", "two.example/b\r\n", "one.example/a"]] else 1)
PYTHON
