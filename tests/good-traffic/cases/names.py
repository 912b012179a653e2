# SPDX-License-Identifier: Apache-2.0
"""Names: dig and plain sockets against dnsmasq, over UDP and TCP."""

import os
import socket
import struct

from good.case import Case, equal, need
from good.servers import RECORDS, long_text, record

A, TXT, AAAA = 1, 16, 28


def question(number, name, kind):
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack(">6H", number, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">2H", kind, 1)


def check(answer, number, address):
    """An answer of one record."""
    need(len(answer) > 12, f"an answer of {len(answer)} bytes")
    seen, flags, _, answers, *_ = struct.unpack(">6H", answer[:12])
    equal((seen, flags & 0x800F, answers), (number, 0x8000, 1), "number, answer and code, records")
    need(answer.endswith(address), f"the answer to {number} does not end with the record's address")


def over_udp(way):
    """2,000 questions from as many ports (every other twice, A and AAAA by the same socket, as resolvers do)."""
    for number in range(1000):
        name, four, six = record(number % RECORDS)
        with way.socket("c", socket.SOCK_DGRAM) as sock:
            sock.settimeout(5)
            sock.connect((way.server, 53))
            sock.send(question(number, name, A))
            sock.send(question(number + 10_000, name, AAAA))
            answers = {struct.unpack(">H", answer[:2])[0]: answer for answer in (sock.recv(4096), sock.recv(4096))}
            check(answers[number], number, socket.inet_aton(four))
            check(answers[number + 10_000], number + 10_000, socket.inet_pton(socket.AF_INET6, six))


def over_tcp(way):
    """400 questions in one connection, by tens without waiting; and 100 connections of one."""
    with way.socket("c") as sock:
        sock.connect((way.server, 53))
        reader = sock.makefile("rb")
        for begin in range(0, 80, 10):
            ask(sock, range(begin, begin + 10))
            for number in range(begin, begin + 10):
                check(read(reader), number, socket.inet_aton(record(number % RECORDS)[1]))
    for number in range(100):
        with way.socket("c") as sock:
            sock.connect((way.server, 53))
            ask(sock, [number])
            check(read(sock.makefile("rb")), number, socket.inet_aton(record(number % RECORDS)[1]))


def ask(sock, numbers):
    texts = [question(number, record(number % RECORDS)[0], A) for number in numbers]
    sock.sendall(b"".join(struct.pack(">H", len(text)) + text for text in texts))


def read(reader):
    (length,) = struct.unpack(">H", reader.read(2))
    return reader.read(length)


def by_dig(way):
    """A file of questions; an answer that is cut and asked for again over TCP; one in fragments; a name that is not there."""
    names = [record(number)[0] for number in range(200)]
    path = os.path.join(way.folder, "names")
    with open(path, "w") as file:
        file.write("".join(f"{name} A\n{name} AAAA\n" for name in names))
    base = ["dig", f"@{way.server}", "+tries=1", "+time=5", "+short"]
    expected = [address for number in range(200) for address in record(number)[1:]]
    equal(way.command([*base, "-f", path]).decode().split(), expected, "addresses")
    texts = sorted(f'"{text}"' for text in long_text())
    for options in (["+bufsize=512"], ["+bufsize=4096"], ["+tcp"], ["+noedns"]):
        equal(sorted(way.command([*base, *options, "long.good.example", "TXT"]).decode().split()), texts, f"the long text, {options[0]}")
    said = way.command(["dig", f"@{way.server}", "+tries=1", "+time=5", "nothing.good.example"]).decode()
    need("status: NXDOMAIN" in said, f"instead of NXDOMAIN: {said[-200:]}")


CASES = [
    Case("dns-udp", over_udp, ("dnsmasq",), short=True),
    Case("dns-tcp", over_tcp, ("dnsmasq",), short=True),
    Case("dns-dig", by_dig, ("dnsmasq",), (("dig", "bind9-dnsutils"),), short=True),
]
