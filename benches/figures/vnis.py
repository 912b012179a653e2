#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Captures of traffic in VXLAN, for two tenants that have the same addresses.

  vnis.py copies MIX OUT VNI...       every frame of a capture in each of these VNIs, at the same time
  vnis.py flows OUT FLOWS (one|two)   HTTP connections of two sets that take turns packet by packet. `two`: each set in a VNI of its own, with the
                                      addresses of the other; `one`: both in one VNI, the second set with other addresses. The frames differ in nothing else

A request of a set asks for `/red/N` or `/blue/N`, with six digits.
"""
import pathlib
import struct
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "requests")]
sys.dont_write_bytecode = True
import capture  # noqa: E402
import peer  # noqa: E402

VNIS = {"red": 101, "blue": 102}
PORT = 4789
# Connections that are open at once, and packets of each.
OPEN, PACKETS = 1000, 8


def wrapped(frame, vni):
    """A frame as one of two tunnel ends sends it to the other."""
    vxlan = struct.pack("!BxxxI", 8, vni << 8)
    udp = struct.pack("!HHHH", 49152, PORT, 8 + len(vxlan) + len(frame), 0)
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp) + len(vxlan) + len(frame), 0, 0, 64, 17, 0, b"\xc0\0\2\1", b"\xc0\0\2\2")
    ip = ip[:10] + struct.pack("!H", capture.checksum(ip)) + ip[12:]
    return b"\2\0\0\0\1\2" + b"\2\0\0\0\1\1" + b"\x08\0" + ip + udp + vxlan + frame


def copies(source, out, vnis):
    mix = peer.Capture(source)
    with open(out, "wb") as file:
        file.write(mix.head)
        for record in mix.records:
            for vni in vnis:
                frame = wrapped(record[16:], vni)
                file.write(record[:8] + struct.pack("<II", len(frame), len(frame)) + frame)


class Tunnel:
    """Writes frames in one VNI."""

    def __init__(self, out, vni):
        self.out, self.vni = out, vni

    def frame(self, frame):
        self.out.frame(wrapped(frame, self.vni))


class Flow(capture.Connection):
    """A connection of a set: its frames one at a time."""

    def __init__(self, tunnel, number, name, shift):
        super().__init__(tunnel, number % 40_000, False)
        self.client.address = bytes([10, 1 + shift, number // 250 // 250, 1 + number // 250 % 250])
        self.client.port, self.server.address = 20_000 + number % 250, bytes([10, 9, 0, 1 + number % 4])
        self.request = b"GET /%s/%06d HTTP/1.1\r\nHost: www.example.com\r\nUser-Agent: bench\r\n\r\n" % (name.encode(), number)

    def frames(self):
        answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 600\r\n\r\n" + b"text " * 120
        for sender, receiver, flags, payload in (
            (self.client, self.server, 0x02, b""),
            (self.server, self.client, 0x12, b""),
            (self.client, self.server, 0x10, b""),
            (self.client, self.server, 0x18, self.request),
            (self.server, self.client, 0x18, answer),
            (self.client, self.server, 0x11, b""),
            (self.server, self.client, 0x11, b""),
            (self.client, self.server, 0x10, b""),
        ):
            self.segment(sender, receiver, flags, payload)
            yield


def flows(out, count, kind):
    file = capture.Capture(out)
    two = kind == "two"
    sets = [("red", Tunnel(file, VNIS["red"]), 0), ("blue", Tunnel(file, VNIS["blue" if two else "red"]), 0 if two else 1)]
    for first in range(0, count, OPEN):
        numbers = range(first, min(first + OPEN, count))
        turns = [Flow(tunnel, number, name, shift).frames() for number in numbers for name, tunnel, shift in sets]
        while turns:
            turns = [turn for turn in turns if next(turn, turn) is not turn]
    file.out.close()


def main():
    match sys.argv[1:]:
        case ["copies", source, out, *vnis] if vnis:
            copies(source, out, [int(vni) for vni in vnis])
        case ["flows", out, count, ("one" | "two") as kind]:
            flows(out, int(count), kind)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
