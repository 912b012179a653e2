# SPDX-License-Identifier: Apache-2.0
"""Bytes without a meaning: iperf3 with many streams, random bytes on ports that are known for something else."""

import json
import random
import socket
import time

from good import Wrong
from good.case import Case, equal, need, pump

# Where servers and inspectors expect certain protocols, by TCP: file transfer, shell, telnet, mail, names,
# web, Windows, databases, ...
WELL_KNOWN = (21, 22, 23, 25, 53, 80, 110, 139, 143, 389, 443, 445, 502, 853, 993, 1433, 1883, 3306, 3389, 5060, 5432, 5900, 6379, 8080, 20000, 44818)
UDP_KNOWN = (53, 67, 69, 123, 137, 161, 443, 500, 514, 1900, 3478, 4500, 4789, 5060, 5353, 6081)
EACH = 1_000_000


# Seconds for which the server, which has one test at a time, may not be ready: it still ends the last one
# (and resets who comes, or listens anew and refuses them), or waits for a client that was ended, as after a
# case that failed; it gives up after 3 s without data. A fault on the way repeats for longer.
BUSY = 15
NOT_READY = ("busy", "control message", "Connection refused", "Connection reset by peer")


def iperf(way, *more):
    end = time.monotonic() + BUSY
    while True:
        said = json.loads(way.command(["iperf3", "-c", way.server, "-J", *more]))
        if not any(words in said.get("error", "") for words in NOT_READY) or time.monotonic() > end:
            break
        time.sleep(0.5)
    need("error" not in said, f"iperf3 says: {said.get('error')}")
    return said["end"]


def streams(way):
    """Sixteen streams, 120 MB in all."""
    end = iperf(way, "-P", "16", "-n", "120M")
    equal(len(end["streams"]), 16, "streams")
    # The client counts what it sent; the server has not told of the last bytes when it asks.
    need(end["sum_sent"]["bytes"] >= 120 << 20, f"{end['sum_sent']['bytes']} bytes were sent")


def streams_back(way):
    """Eight streams from the server, and eight both ways, for 1 s: bytes arrive in each of them."""
    for direction, count in (("--reverse", 8), ("--bidir", 16)):
        end = iperf(way, "-P", "8", "-t", "1", direction)
        equal(len(end["streams"]), count, "streams")
        for stream in end["streams"]:
            need(stream["receiver"]["bytes"] > 10_000, f"{stream['receiver']['bytes']} bytes in a stream, {direction}")


def datagram_stream(way):
    """UDP at 5 Mbit/s: none out of order, and none lost in the best of four."""
    for _ in range(4):
        end = iperf(way, "-u", "-b", "5M", "-l", "1200", "-t", "1")
        equal(sum(stream["udp"].get("out_of_order", 0) for stream in end["streams"]), 0, "datagrams out of order")
        lost, sent = end["sum"]["lost_packets"], end["sum"]["packets"]
        # The receiver's socket on a busy machine loses some by itself.
        if lost == 0:
            return
    need(False, f"{lost} of {sent} datagrams were lost")


def random_bytes(way):
    """1 MB each way on each port, to a host behind the server, whose ports are free."""
    source = random.Random(9)
    for port in WELL_KNOWN:
        there, back = source.randbytes(EACH), source.randbytes(EACH)
        with way.pair(port, "f") as (client, server):
            got = pump([(client, server, there), (server, client, back)])
            need(got == [there, back], f"the bytes on port {port} differ")


def random_first_bytes(way):
    """Short random exchanges, server first, client first: what protocol detection makes of it must harm nobody."""
    source = random.Random(10)
    for port in WELL_KNOWN:
        for turn in range(6):
            one, two = source.randbytes(source.randrange(1, 3000)), source.randbytes(source.randrange(1, 3000))
            with way.pair(port, "f") as (client, server):
                first, second = (client, server) if turn % 2 else (server, client)
                first.sendall(one)
                need(receive_all(second, len(one)) == one, f"the first bytes on port {port} differ")
                second.sendall(two)
                need(receive_all(first, len(two)) == two, f"the answer on port {port} differs")


def receive_all(sock, count):
    data = b""
    while len(data) < count:
        more = sock.recv(count - len(data))
        need(more, "the connection ended early")
        data += more
    return data


def random_datagrams(way):
    source = random.Random(11)
    for port in UDP_KNOWN:
        with way.socket("f", socket.SOCK_DGRAM) as server, way.socket("c", socket.SOCK_DGRAM) as client:
            server.bind((way.far, port))
            client.connect((way.far, port))
            client.settimeout(5)
            server.settimeout(5)
            for number in range(60):
                data, arrived = source.randbytes(source.randrange(1, 1400)), False
                client.send(data)
                try:
                    got, sender = server.recvfrom(2000)
                    need(got == data, f"a datagram to port {port} differs")
                    server.sendto(data[::-1], sender)
                    arrived = True
                    need(client.recv(2000) == data[::-1], f"a datagram from port {port} differs")
                except TimeoutError:
                    which = "the answer to datagram" if arrived else "datagram"
                    raise Wrong(f"{which} {number} to port {port}, {len(data)} bytes beginning with {data[:16].hex()}, did not arrive") from None


CASES = [
    Case("iperf3-streams", streams, ("iperf3",), (("iperf3", "iperf3"),), timed=True, short=True),
    Case("iperf3-back", streams_back, ("iperf3",), (("iperf3", "iperf3"),)),
    Case("iperf3-udp", datagram_stream, ("iperf3",), (("iperf3", "iperf3"),)),
    Case("random-bytes", random_bytes, short=True),
    Case("random-first-bytes", random_first_bytes, short=True),
    Case("random-datagrams", random_datagrams, short=True),
]
