#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Python's readers of pcapng give wrong times where a file has several interfaces or sections, or an offset:
# dpkt 1.9.8, scapy 2.8.0 and python-pcapng 2.1.1, each in other cases.
#
# Guess before the run: all three read if_tsresol and if_tsoffset of each interface, and begin anew with each
# section header, as the format says (draft-ietf-opsawg-pcapng, sections 4.1 and 4.2: an interface's options
# count for its packets alone, and interface numbers count within their section).
# Seen: dpkt reads all packets by the resolution of the file's first interface, so that a capture of two
# interfaces (or two files joined with `cat`, which the format allows) has times that are wrong by a factor of
# a thousand; it ends at a section of the other byte order, without an error, and leaves Simple Packet Blocks
# out. scapy ignores if_tsoffset, and keeps counting interfaces over sections: interface 0 of a second section
# is read by the first section's. python-pcapng ignores if_tsoffset alone. For an operator: a merged capture
# shows other times in a script than in the sensor; split it by interface and section first.
#
# Exit 0 while they do so, 1 when one does otherwise, 2 when they cannot be installed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

python3 -m venv "$folder/venv" >/dev/null &&
    "$folder/venv/bin/pip" -q install dpkt==1.9.8 scapy==2.8.0 python-pcapng==2.1.1 >/dev/null 2>&1 || exit 2

cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import io
import struct
import sys

import dpkt
import pcapng
from pcapng.blocks import EnhancedPacket, SimplePacket
from scapy.utils import PcapNgReader

FRAME = bytes(60)
NOON = 1_700_000_000
LITTLE, BIG = "<", ">"


def padded(data):
    return data + bytes(-len(data) % 4)


def block(order, kind, body):
    length = len(padded(body)) + 12
    return struct.pack(order + "II", kind, length) + padded(body) + struct.pack(order + "I", length)


def section(order=LITTLE):
    return block(order, 0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1))


def interface(*options, order=LITTLE, snap=0):
    listed = b"".join(struct.pack(order + "HH", code, len(value)) + padded(value) for code, value in options)
    return block(order, 1, struct.pack(order + "HHI", 1, 0, snap) + listed + (bytes(4) if listed else b""))


def packet(number, ticks, order=LITTLE):
    head = struct.pack(order + "5I", number, ticks >> 32, ticks & 0xFFFFFFFF, len(FRAME), len(FRAME))
    return block(order, 6, head + FRAME)


NANO = (9, b"\x09")
first = section() + interface() + packet(0, NOON * 10**6 + 250_000)
first_nano = section() + interface(NANO) + packet(0, NOON * 10**9 + 250_000_000)
files = {
    "resolution of nanoseconds": (first_nano, [0.25]),
    "resolution of 2^-10": (section() + interface((9, b"\x8a")) + packet(0, NOON * 1024 + 256), [0.25]),
    "offset of an hour": (
        section() + interface((14, struct.pack("<q", 3600))) + packet(0, (NOON - 3600) * 10**6 + 250_000),
        [0.25],
    ),
    "two interfaces": (
        section() + interface(NANO) + interface() + packet(1, NOON * 10**6 + 250_000) + packet(0, NOON * 10**9 + 500_000_000),
        [0.25, 0.5],
    ),
    "two sections": (first_nano + section() + interface() + packet(0, NOON * 10**6 + 500_000), [0.25, 0.5]),
    "two sections, two byte orders": (
        first + section(BIG) + interface(NANO, order=BIG) + packet(0, NOON * 10**9 + 500_000_000, BIG),
        [0.25, 0.5],
    ),
    "a simple packet": (section() + interface(snap=40) + block(LITTLE, 3, struct.pack("<I", 60) + FRAME[:40]), [None]),
}


def by_dpkt(data):
    return [float(time) for time, _ in dpkt.pcapng.Reader(io.BytesIO(data))]


def by_scapy(data):
    with open("capture.pcapng", "wb") as file:
        file.write(data)
    return [float(found.time) for found in PcapNgReader("capture.pcapng")]


def by_pcapng(data):
    blocks = pcapng.FileScanner(io.BytesIO(data))
    return [getattr(found, "timestamp", None) for found in blocks if isinstance(found, (EnhancedPacket, SimplePacket))]


# The files that a reader does not read as the format says.
seen = {
    "dpkt": {"two interfaces", "two sections", "two sections, two byte orders", "a simple packet"},
    "scapy": {"offset of an hour", "two sections", "two sections, two byte orders"},
    "python-pcapng": {"offset of an hour"},
}
same = True
for name, reader in (("dpkt", by_dpkt), ("scapy", by_scapy), ("python-pcapng", by_pcapng)):
    wrong = set()
    for what, (data, wanted) in files.items():
        times = reader(data)
        near = zip(times, wanted, strict=False)
        right = len(times) == len(wanted) and all(want is None or abs(time - NOON - want) < 0.001 for time, want in near)
        wrong |= set() if right else {what}
        print(f"{name}: {what}: {times}{'' if right else ', wanted ' + str([NOON + (want or 0) for want in wanted])}")
    same &= wrong == seen[name]
sys.exit(0 if same else 1)
PYTHON
