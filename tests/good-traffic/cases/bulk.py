# SPDX-License-Identifier: Apache-2.0
"""Bytes without a meaning: iperf3 with many streams, random bytes on ports that are known for something else."""

import json
import random
import socket

from good.case import Case, equal, need, pump

# Where servers and inspectors expect certain protocols, by TCP: file transfer, shell, telnet, mail, names, web, Windows, databases, ...
WELL_KNOWN = (21, 22, 23, 25, 53, 80, 110, 139, 143, 389, 443, 445, 502, 853, 993, 1433, 1883, 3306, 3389, 5060, 5432, 5900, 6379, 8080, 20000, 44818)
UDP_KNOWN = (53, 67, 69, 123, 137, 161, 443, 500, 514, 1900, 3478, 4500, 4789, 5060, 5353, 6081)
EACH = 1_000_000


def streams(way):
    """Eight streams each way, 60 MB in all; every byte that was sent must have been received."""
    for more in ([], ["-R"]):
        said = json.loads(way.command(["iperf3", "-c", way.server, "-P", "8", "-n", "30M", "-J", *more]))
        need("error" not in said, f"iperf3 says: {said.get('error')}")
        end = said["end"]
        equal(len(end["streams"]), 8, "streams")
        need(end["sum_received"]["bytes"] >= 30 * (1 << 20) * 0.9, f"{end['sum_received']['bytes']} bytes arrived")


def datagram_stream(way):
    """UDP at 20 Mbit/s: none lost, none out of order."""
    said = json.loads(way.command(["iperf3", "-u", "-c", way.server, "-b", "20M", "-l", "1200", "-t", "2", "-J"]))
    streams = said["end"]["streams"]
    equal(sum(stream["udp"].get("out_of_order", 0) for stream in streams), 0, "datagrams out of order")
    lost, sent = said["end"]["sum"]["lost_packets"], said["end"]["sum"]["packets"]
    # Sockets on a busy machine lose some by themselves; a flow that is refused loses all.
    need(lost * 20 <= sent, f"{lost} of {sent} datagrams were lost")


def random_bytes(way):
    """1 MB each way on each port, to a host behind the server, whose ports are free."""
    source = random.Random(9)
    for port in WELL_KNOWN:
        there, back = source.randbytes(EACH), source.randbytes(EACH)
        with way.pair(port, "f") as (client, server):
            got = pump([(client, server, there), (server, client, back)], limit=20)
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
            server.bind(("::" if way.version == 6 else "0.0.0.0", port))
            client.connect((way.far, port))
            for number in range(60):
                data = source.randbytes(source.randrange(1, 1400))
                client.send(data)
                try:
                    got, sender = server.recvfrom(2000)
                    need(got == data, f"a datagram to port {port} differs")
                    server.sendto(data[::-1], sender)
                    need(client.recv(2000) == data[::-1], f"a datagram from port {port} differs")
                except TimeoutError:
                    need(False, f"datagram {number} to or from port {port} of {len(data)} bytes, beginning {data[:16].hex()}, did not arrive")


CASES = [
    Case("iperf3-streams", streams, ("iperf3",), (("iperf3", "iperf3"),), timed=True, short=True),
    Case("iperf3-udp", datagram_stream, ("iperf3",), (("iperf3", "iperf3"),)),
    Case("random-bytes", random_bytes, short=True),
    Case("random-first-bytes", random_first_bytes, short=True),
    Case("random-datagrams", random_datagrams, short=True),
]
