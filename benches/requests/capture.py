#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a capture of keep-alive HTTP/1.1 connections: many requests, one after the other, in each of them.

  capture.py OUT --requests 1000 [--connections 1] [--answer 200] [--pipeline 1] [--ipv6]

The client acknowledges each answer with its next request; a handshake stands before and a close behind. Segments hold at most
1,448 bytes. Checksums are right, so that no reader needs to be told to ignore them.
"""
import argparse
import struct

MSS = 1448


def checksum(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


class Capture:
    def __init__(self, path):
        self.out = open(path, "wb", buffering=1 << 20)
        self.out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1))
        self.micros = 0

    def frame(self, frame):
        self.micros += 20
        seconds, micros = divmod(self.micros, 1_000_000)
        self.out.write(struct.pack("<IIII", 1_700_000_000 + seconds, micros, len(frame), len(frame)))
        self.out.write(frame)


class Side:
    def __init__(self, address, port, seq):
        self.address, self.port, self.seq = address, port, seq


class Connection:
    def __init__(self, capture, number, ipv6):
        self.capture, self.ipv6 = capture, ipv6
        if ipv6:
            client, server = bytes.fromhex("fd00" + "00" * 13 + "01"), bytes.fromhex("fd00" + "00" * 13 + "02")
        else:
            client, server = bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2])
        self.client = Side(client, 20000 + number, 1000)
        self.server = Side(server, 80, 5000)

    def segment(self, sender, receiver, flags, payload=b""):
        ack = receiver.seq if flags & 0x10 else 0
        head = struct.pack("!HHIIBBHHH", sender.port, receiver.port, sender.seq, ack, 5 << 4, flags, 65535, 0, 0)
        length = len(head) + len(payload)
        pseudo = sender.address + receiver.address
        pseudo += struct.pack("!IHBB", length, 0, 0, 6) if self.ipv6 else struct.pack("!BBH", 0, 6, length)
        sum_ = checksum(pseudo + head + payload)
        head = head[:16] + struct.pack("!H", sum_) + head[18:]
        if self.ipv6:
            ip = struct.pack("!IHBB", 6 << 28, length, 6, 64) + sender.address + receiver.address
            kind = 0x86DD
        else:
            ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + length, 0, 0x4000, 64, 6, 0) + sender.address + receiver.address
            ip = ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:]
            kind = 0x0800
        ethernet = b"\2\0\0\0\0\2" + b"\2\0\0\0\0\1" + struct.pack("!H", kind)
        self.capture.frame(ethernet + ip + head + payload)
        sender.seq = (sender.seq + len(payload) + bool(flags & 3)) & 0xFFFFFFFF

    def send(self, sender, receiver, data):
        for at in range(0, len(data), MSS):
            piece = data[at : at + MSS]
            self.segment(sender, receiver, 0x18 if at + MSS >= len(data) else 0x10, piece)
            # The receiver acknowledges every second full segment, as stacks do.
            if len(piece) == MSS and (at // MSS) % 2:
                self.segment(receiver, sender, 0x10)

    def open(self):
        self.segment(self.client, self.server, 0x02)
        self.segment(self.server, self.client, 0x12)
        self.segment(self.client, self.server, 0x10)

    def close(self):
        self.segment(self.client, self.server, 0x11)
        self.segment(self.server, self.client, 0x11)
        self.segment(self.client, self.server, 0x10)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--answer", type=int, default=200, help="bytes of each answer's body")
    parser.add_argument("--pipeline", type=int, default=1, help="requests sent before their answers come")
    parser.add_argument("--ipv6", action="store_true")
    options = parser.parse_args()
    capture = Capture(options.out)
    body = bytes((i * 7 + i // 251) % 251 for i in range(options.answer))
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    connections = [Connection(capture, n, options.ipv6) for n in range(options.connections)]
    for connection in connections:
        connection.open()
    for first in range(0, options.requests, options.pipeline):
        numbers = range(first, min(first + options.pipeline, options.requests))
        for connection in connections:
            for number in numbers:
                request = b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n" % number
                connection.send(connection.client, connection.server, request)
            for _ in numbers:
                connection.send(connection.server, connection.client, answer)
    for connection in connections:
        connection.close()


if __name__ == "__main__":
    main()
