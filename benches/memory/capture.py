#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a capture in which many connections make the engine hold as much as they can.

capture.py SHAPE FLOWS FILE: SHAPE is one of post, headers, pipeline, gzip, tls, dns. Packets of all connections take turns, so that
all of them are open at once. A good request with its answer, `GET /good`, comes after each 1,000 packets.
"""
import gzip
import struct
import sys

SEGMENT = 1400
PORTS = {"tls": 443, "dns": 53}


def shape(name):
    """What a connection sends: (to the server, bytes)."""
    if name == "post":
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


class Connection:
    """A connection between two addresses that nobody else has."""

    def __init__(self, number, port):
        self.client = struct.pack(">BBH", 10, number >> 16 & 255, number & 0xFFFF)
        self.server = b"\x0a\xff\x00\x01"
        self.ports = (1024 + number % 60_000, port)
        self.sent = [100, 500]

    def packet(self, to_server, flags, data=b""):
        here, there = (0, 1) if to_server else (1, 0)
        ends = (self.client, self.server) if to_server else (self.server, self.client)
        acknowledged = self.sent[there] if flags & 16 else 0
        segment = struct.pack(">HHIIBBHHH", self.ports[here], self.ports[there], self.sent[here], acknowledged, 0x50, flags, 65535, 0, 0)
        total = 40 + len(data)
        ip = struct.pack(">BBHHHBBH", 0x45, 0, total, 7, 0, 64, 6, 0) + ends[0] + ends[1]
        high = sum(struct.unpack(">10H", ip))
        high = (high & 0xFFFF) + (high >> 16)
        ip = ip[:10] + struct.pack(">H", ~((high & 0xFFFF) + (high >> 16)) & 0xFFFF) + ip[12:]
        self.sent[here] += len(data) + (1 if flags & 3 else 0)
        return b"\x02\0\0\0\0\x01\x02\0\0\0\0\x02\x08\0" + ip + segment + data

    def opening(self):
        yield self.packet(True, 2)
        yield self.packet(False, 18)
        yield self.packet(True, 16)

    def conversation(self, said):
        yield from self.opening()
        for to_server, data in said:
            for at in range(0, len(data), SEGMENT):
                yield self.packet(to_server, 24, data[at : at + SEGMENT])
                yield self.packet(not to_server, 16)


def main():
    name, flows, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    said = shape(name)
    talks = [Connection(n, PORTS.get(name, 80)).conversation(said) for n in range(flows)]
    good = 0
    with open(path, "wb", buffering=1 << 20) as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1))
        count = 0

        def write(frame):
            nonlocal count
            # 100,000 packets a second.
            out.write(struct.pack("<IIII", 1_700_000_000 + count // 100_000, count % 100_000 * 10, len(frame), len(frame)) + frame)
            count += 1

        while talks:
            left = []
            for talk in talks:
                frame = next(talk, None)
                if frame is None:
                    continue
                left.append(talk)
                write(frame)
                if count % 1000 == 0:
                    asks = [(True, b"GET /good HTTP/1.1\r\nHost: h\r\n\r\n"), (False, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")]
                    for frame in Connection((1 << 21) + good, 80).conversation(asks):
                        write(frame)
                    good += 1
            talks = left
    print(good)


main()
