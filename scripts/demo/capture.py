#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a small capture of made-up traffic: two HTTP requests (one an exploit attempt), a DNS lookup, a port scan.

usage: capture.py FILE

The packets are built here byte by byte, so that the demonstration needs no network, no root and no foreign data.
"""

import socket
import struct
import sys

CLIENT, SERVER, RESOLVER = "192.0.2.10", "198.51.100.20", "198.51.100.53"
SYN, ACK, FIN, PSH, RST = 0x02, 0x10, 0x01, 0x08, 0x04


def checksum(data):
    """The Internet checksum, RFC 1071."""
    total = sum(struct.unpack(f"!{(len(data) + 1) // 2}H", data + b"\0" * (len(data) % 2)))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def frame(source, destination, protocol, segment, place):
    """Ethernet and IPv4 around a segment whose checksum goes to `place`."""
    addresses = socket.inet_aton(source) + socket.inet_aton(destination)
    pseudo = addresses + struct.pack("!BBH", 0, protocol, len(segment))
    segment = segment[:place] + struct.pack("!H", checksum(pseudo + segment)) + segment[place + 2 :]
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(segment), 0, 0x4000, 64, protocol, 0) + addresses
    head = head[:10] + struct.pack("!H", checksum(head)) + head[12:]
    return bytes.fromhex("02000000000202000000000108 00".replace(" ", "")) + head + segment


def udp(source, sport, destination, dport, payload):
    segment = struct.pack("!HHHH", sport, dport, 8 + len(payload), 0) + payload
    return frame(source, destination, 17, segment, 6)


class Tcp:
    """One connection; `say` sends bytes of a side and lets the other acknowledge them."""

    def __init__(self, sport, dport, client=CLIENT, server=SERVER):
        self.ends = [(client, sport), (server, dport)]
        self.next = [1000, 9000]
        self.frames = []

    def segment(self, side, flags, payload=b""):
        (source, sport), (destination, dport) = self.ends[side], self.ends[1 - side]
        ack = self.next[1 - side] if flags & ACK else 0
        head = struct.pack("!HHIIBBHHH", sport, dport, self.next[side], ack, 0x50, flags, 64240, 0, 0)
        self.frames.append(frame(source, destination, 6, head + payload, 16))
        self.next[side] += len(payload) + (1 if flags & (SYN | FIN) else 0)

    def open(self):
        self.segment(0, SYN)
        self.segment(1, SYN | ACK)
        self.segment(0, ACK)

    def say(self, side, payload):
        self.segment(side, PSH | ACK, payload)
        self.segment(1 - side, ACK)

    def close(self):
        self.segment(0, FIN | ACK)
        self.segment(1, FIN | ACK)
        self.segment(0, ACK)


def http(sport, target, status, body):
    flow = Tcp(sport, 80)
    flow.open()
    request = f"GET {target} HTTP/1.1\r\nHost: shop.example\r\nUser-Agent: demo\r\n\r\n"
    # In two segments: what rules look for lies across the border.
    flow.say(0, request[:12].encode())
    flow.say(0, request[12:].encode())
    flow.say(1, f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
    flow.close()
    return flow.frames


def dns(name):
    question = b"".join(bytes([len(part)]) + part.encode() for part in name.split(".")) + b"\0" + struct.pack("!HH", 1, 1)
    query = struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 0, 0) + question
    answer = b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 300, 4) + socket.inet_aton(SERVER)
    reply = struct.pack("!HHHHHH", 7, 0x8180, 1, 1, 0, 0) + question + answer
    return [udp(CLIENT, 40000, RESOLVER, 53, query), udp(RESOLVER, 53, CLIENT, 40000, reply)]


def scan(ports):
    frames = []
    for port in ports:
        flow = Tcp(50000 + port, port, client="203.0.113.66")
        flow.segment(0, SYN)
        flow.segment(1, RST | ACK)
        frames += flow.frames
    return frames


def main():
    frames = dns("shop.example") + http(41000, "/index.html", "200 OK", "hello\n")
    frames += http(41001, "/cgi-bin/view?file=../../../../etc/passwd", "404 Not Found", "no\n")
    frames += scan(range(20, 30))
    with open(sys.argv[1], "wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for number, packet in enumerate(frames):
            seconds, micros = divmod(number * 10_000, 1_000_000)
            out.write(struct.pack("<IIII", 1_700_000_000 + seconds, micros, len(packet), len(packet)) + packet)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main()
