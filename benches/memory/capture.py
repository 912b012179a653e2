#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a capture in which many connections make the engine hold as much as they can.

capture.py SHAPE FLOWS: SHAPE is one of post, headers, pipeline, gzip, tls, dns; the capture goes to standard output, the number of good
requests to standard error. The connections take turns packet by packet, so that all of them are open at once, and none of them ends.
Beside them goes good traffic: with each 1,000 packets of theirs a client connects, whose request and answer come in several segments with 1,000
packets between one and the next (SHAPE `good`: the good traffic alone, as much as there is beside so many `post` connections).
100,000 packets a second.
"""
import gzip
import struct
import sys
from collections import deque

SEGMENT = 1400
APART = 1000
PORTS = {"tls": 443, "dns": 53}
GOOD = [
    (True, b"GET /good HTTP/1.1\r\nHost: "),
    (True, b"h\r\nUser-Agent: someone\r\n\r\n"),
    (False, b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2000\r\n\r\n" + b"a" * 1000),
    (False, b"b" * 1000),
]


def shape(name):
    """What a connection sends: (to the server, bytes)."""
    if name in ("post", "good"):
        head = b"POST /upload HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n"
        return [(True, head + b"b" * (100_000 - len(head)))]
    if name == "headers":
        fields = b"".join(b"X-%d: %016d\r\n" % (n, n) for n in range(800))
        return [(True, b"GET /headers HTTP/1.1\r\nHost: h\r\n" + fields)]
    if name == "pipeline":
        return [(True, b"GET /pipelined HTTP/1.1\r\nHost: h\r\nUser-Agent: someone\r\n\r\n" * 200)]
    if name == "gzip":
        body = gzip.compress(b"0" * (1 << 20), 9)[:-20]
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: gzip\r\nContent-Length: 100000\r\n\r\n"
        return [(True, b"GET /zip HTTP/1.1\r\nHost: h\r\n\r\n"), (False, head + body)]
    if name == "tls":
        hello = (b"\x01\x03\xff\xff\x03\x03" + b"\x07" * 100_000)[:100_000]
        pieces = [hello[at : at + 10_000] for at in range(0, len(hello), 10_000)]
        return [(True, b"".join(b"\x16\x03\x01" + struct.pack(">H", len(p)) + p for p in pieces))]
    if name == "dns":
        query = b"\0\x1d\0\x01\x01\0\0\x01\0\0\0\0\0\0\x07example\x03com\0\0\x01\0\x01"
        return [(True, query * 40 + b"\xff\xff\0\x02\x01\0\0\x01\0\0\0\0\0\0" + b"d" * 39_000)]
    sys.exit(f"there is no shape {name}; {__doc__}")


SERVER = b"\x0a\xff\x00\x01"


def client(number):
    """What differs between connections: the client's address, and an IP id that makes the header's checksum the same for all."""
    high, low = 0x0A00 | number >> 16 & 255, number & 0xFFFF
    return struct.pack(">HH", high, low), struct.pack(">H", -(high + low) % 0xFFFF)


def total(words):
    """Sum of 16-bit words in one's complement."""
    value = sum(struct.unpack(f">{len(words) // 2}H", words))
    while value >> 16:
        value = (value & 0xFFFF) + (value >> 16)
    return value


class Step:
    """A packet of every connection: three pieces, between which stand the IP id and the client's address."""

    def __init__(self, to_server, sequence, acknowledged, flags, data, port):
        ports = (40_000, port) if to_server else (port, 40_000)
        tcp = struct.pack(">HHIIBBHHH", *ports, sequence, acknowledged, 0x50, flags, 65535, 0, 0) + data
        start, fields = struct.pack(">BBH", 0x45, 0, 20 + len(tcp)), struct.pack(">HBB", 0, 64, 6)
        checksum = struct.pack(">H", 0xFFFF - total(start + fields + SERVER))
        self.length = 34 + len(tcp)
        self.head = b"\x02\0\0\0\0\x01\x02\0\0\0\0\x02\x08\0" + start
        self.middle = fields + checksum + (b"" if to_server else SERVER)
        self.tail = (SERVER if to_server else b"") + tcp


def steps(said, port):
    """The packets of a connection; each segment is acknowledged by the next one of the other side, or by an empty one."""
    sent = {True: 100, False: 500}
    yield Step(True, 100, 0, 2, b"", port)
    yield Step(False, 500, 101, 18, b"", port)
    sent = {True: 101, False: 501}
    yield Step(True, 101, 501, 16, b"", port)
    for to_server, data in said:
        for at in range(0, len(data), SEGMENT):
            piece = data[at : at + SEGMENT]
            yield Step(to_server, sent[to_server], sent[not to_server], 24, piece, port)
            sent[to_server] += len(piece)
            yield Step(not to_server, sent[not to_server], sent[to_server], 16, b"", port)


class Capture:
    """Writes packets with the time of their number."""

    def __init__(self, out):
        self.out, self.count = out, 0
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1))

    def write(self, step, clients):
        count, length, pack = self.count, step.length, struct.Struct("<IIII").pack
        head, middle, tail = step.head, step.middle, step.tail
        pieces = []
        for address, number in clients:
            time = pack(1_700_000_000 + count // 100_000, count % 100_000 * 10, length, length)
            pieces += (time, head, number, middle, address, tail)
            count += 1
        self.out.write(b"".join(pieces))
        self.count = count


def main():
    name, flows = sys.argv[1], int(sys.argv[2])
    capture = Capture(sys.stdout.buffer)
    load = name != "good"
    clients = [client(n) for n in range(flows)]
    talk, under_way, good = list(steps(GOOD, 80)), deque(), 0
    for step in steps(shape(name), PORTS.get(name, 80)):
        for at in range(0, flows, APART):
            group = clients[at : at + APART]
            if load:
                capture.write(step, group)
            else:
                capture.count += len(group)
            under_way.append((client(1 << 21 | good), iter(talk)))
            good += 1
            for who, rest in list(under_way):
                following = next(rest, None)
                if following is None:
                    under_way.popleft()
                else:
                    capture.write(following, [who])
    for who, rest in under_way:
        for following in rest:
            capture.write(following, [who])
    print(good, file=sys.stderr)


main()
