# SPDX-License-Identifier: Apache-2.0
"""Sizes of packets: links of 1280 to 9000 bytes, path MTU discovery in both directions, fragments."""

import contextlib
import random
import re
import socket

from good.case import Case, equal, need, pump

PORT = 7002
IP_MTU, IP_MTU_DISCOVER, PMTU_DO = 14, 10, 2
IPV6_MTU, IPV6_MTU_DISCOVER = 24, 23
UDP_SEGMENT = 103
LARGE_PING = 10_000


def ping(way, size, count, *more, where=None):
    # Small ones: the next when the last is answered. The receive buffer of `ping` holds four answers of
    # 20,000 bytes, for each packet of `-l`; sent as they are answered, more than that wait at once on a busy
    # machine: its kernel had them all, and `ping` did not.
    rhythm = ["-i", "0.02", "-A"] if size < LARGE_PING else ["-i", "0.1", "-l", "3"]
    # `-W` holds until the first answer only: for the last one it waits two round trips, which a busy machine
    # takes longer than. With `-w` it goes on until so many are answered; one that is lost leaves a hole among
    # the numbers.
    said = way.command(["ping", "-n", "-c", str(count), "-w", "5", *rhythm, "-s", str(size), *more, where or way.server]).decode()
    answered = [int(number) for number in re.findall(r" bytes from .* icmp_seq=(\d+)", said)]
    equal(sorted(answered)[:count], list(range(1, count + 1)), f"pings of {size} bytes answered")
    # `ping` compares what comes back, and says where it differs.
    need("wrong data byte" not in said, f"an answer of {size} bytes differs")


def pings(way):
    for size, count in ((0, 5), (56, 20), (1400, 10), (20_000, 10), (65_000, 5)):
        ping(way, size, count)


def datagrams(way):
    """UDP datagrams up to 60,000 bytes, in fragments where the link is smaller, there and back."""
    source = random.Random(3)
    with way.socket("s", socket.SOCK_DGRAM) as server, way.socket("c", socket.SOCK_DGRAM) as client:
        server.bind(("::" if way.version == 6 else "0.0.0.0", PORT))
        client.connect((way.server, PORT))
        for size in (0, 1, 500, 1232, 1452, 1472, 1473, 4000, 9000, 30_000, 60_000) * 4:
            data = source.randbytes(size)
            client.send(data)
            got, sender = server.recvfrom(70_000)
            need(got == data, f"a datagram of {size} bytes arrived as {len(got)} other bytes")
            server.sendto(got[::-1], sender)
            need(client.recv(70_000) == data[::-1], f"the answer of {size} bytes differs")


def bulk(way):
    """8 MB in both directions at once."""
    source = random.Random(4)
    one, two = source.randbytes(8_000_000), source.randbytes(8_000_000)
    with way.pair(PORT) as (client, server):
        got = pump([(client, server, one), (server, client, two)])
        need(got == [one, two], "the bytes differ")
        size = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
    # The largest segments that the link allows were agreed on: nobody changed the option.
    most = way.net.mtus[way.path] - (60 if way.version == 6 else 40)
    need(most - 12 <= size <= most, f"segments of {size} bytes where {most} fit")


def path_mtu(way):
    """The route beyond the server has 1280 bytes: a client that sends larger ones is told so by ICMP and goes on; likewise a
    server whose client stands behind a narrow link."""
    data = random.Random(5).randbytes(3_000_000)
    way.net.forget_path_mtus()
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(way.listener(PORT, "f"))
        client, server = way.connected(stack, listener, way.narrow, PORT)
        need(pump([(client, server, data)])[0] == data, "the bytes up the narrow link differ")
        seen = mtu_of(way, client)
        equal(seen, 1280, "what the client found as MTU of its path")
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(way.listener(PORT, "s"))
        client = stack.enter_context(way.socket("g"))
        client.bind((way.back, 0))
        client.connect((way.server, PORT))
        server, _ = listener.accept()
        stack.enter_context(server)
        need(pump([(server, client, data)])[0] == data, "the bytes down the narrow link differ")
        equal(mtu_of(way, server), 1280, "what the server found as MTU of its path")
    way.net.forget_path_mtus()
    with way.socket("c", socket.SOCK_DGRAM) as client, way.socket("f", socket.SOCK_DGRAM) as server:
        # A datagram that may not be split: the error comes back to the socket, the next size arrives.
        server.bind(("::" if way.version == 6 else "0.0.0.0", PORT))
        level, option = (socket.IPPROTO_IPV6, IPV6_MTU_DISCOVER) if way.version == 6 else (socket.IPPROTO_IP, IP_MTU_DISCOVER)
        client.setsockopt(level, option, PMTU_DO)
        client.connect((way.narrow, PORT))
        client.settimeout(1)
        first = way.net.mtus[way.path] - 48
        told = first <= 1232
        for _ in range(10):
            try:
                client.send(b"a" * first)
                with contextlib.suppress(TimeoutError):
                    client.recv(10)
            except OSError:
                # "Message too long", by the error that came.
                told = True
            if told:
                break
        need(told, "UDP is not told that its datagrams are too large for the path")
        equal(mtu_of(way, client), 1280, "what UDP found as MTU of its path")
        client.send(b"b" * 1200)
        server.settimeout(5)
        # Where the link itself is narrow, the first size arrived, too.
        got = server.recv(9000)
        while got == b"a" * first:
            got = server.recv(9000)
        equal(got, b"b" * 1200, "datagram of the right size")


def mtu_of(way, sock):
    level, option = (socket.IPPROTO_IPV6, IPV6_MTU) if way.version == 6 else (socket.IPPROTO_IP, IP_MTU)
    return sock.getsockopt(level, option)


def time_exceeded(way):
    """What traceroute does: packets that run out of hops behind the path are answered."""
    said = way.command(["ping", "-n", "-c", "1", "-W", "3", "-t", "1", way.far], status=1).decode()
    need("Time to live exceeded" in said or "Time exceeded" in said, f"no `time exceeded` came: {said}")


@contextlib.contextmanager
def overlay(way, number, port, narrow):
    """A tunnel over UDP between client and server, as container networks have them, with all that is left to devices; gives both
    addresses in it. `narrow`: its packets are smaller than those of the path."""
    left = ["tx", "sg", "tso", "gso"]
    inside = {"c": f"10.85.{way.path}.1", "s": f"10.85.{way.path}.2"}
    ends = {"c": (way.client, way.server), "s": (way.server, way.client)}
    made = []
    try:
        for which, (own, other) in ends.items():
            device = f"vx{way.path}"
            below = f"{which}{way.path}"
            vxlan = ["type", "vxlan", "id", str(number), "local", own, "remote", other, "dstport", str(port), "dev", below]
            way.command(["ip", "link", "add", device, *vxlan], which=which)
            made.append((which, device, below))
            way.command(["ethtool", "-K", below, *(word for name in left for word in (name, "on"))], which=which)
            way.command(["ip", "address", "add", f"{inside[which]}/24", "dev", device], which=which)
            mtu = ["mtu", "1400"] if narrow else []
            way.command(["ip", "link", "set", device, *mtu, "up"], which=which)
        yield inside["c"], inside["s"]
    finally:
        for which, device, below in made:
            way.command(["ip", "link", "delete", device], which=which)
            way.command(["ethtool", "-K", below, *(word for name in left for word in (name, "off"))], which=which)


def tunnel(way):
    """Inside of VXLAN, whose checksums and segments the ends leave to devices: transfers in both directions, fragments. On the usual port
    and on another one (flannel's), and with packets that are smaller than the path would carry."""
    for number, port, narrow in ((5, 4789, False), (6, 4789, True), (7, 8472, True)):
        through_overlay(way, number, port, narrow)


def through_overlay(way, number, port, narrow):
    source = random.Random(6)
    one, two, datagram = source.randbytes(8_000_000), source.randbytes(8_000_000), source.randbytes(6_000)
    with overlay(way, number, port, narrow) as (_, server), contextlib.ExitStack() as stack:
        listener = stack.enter_context(way.net.socket("s", socket.AF_INET, socket.SOCK_STREAM))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((server, PORT))
        listener.listen(1)
        client = stack.enter_context(way.net.socket("c", socket.AF_INET, socket.SOCK_STREAM))
        client.settimeout(10)
        client.connect((server, PORT))
        accepted = stack.enter_context(listener.accept()[0])
        need(pump([(client, accepted, one), (accepted, client, two)]) == [one, two], "the bytes differ")
        receiver = stack.enter_context(way.net.socket("s", socket.AF_INET, socket.SOCK_DGRAM))
        receiver.bind((server, PORT))
        receiver.settimeout(5)
        sender = stack.enter_context(way.net.socket("c", socket.AF_INET, socket.SOCK_DGRAM))
        for _ in range(10):
            sender.sendto(datagram, (server, PORT))
            need(receiver.recv(9_000) == datagram, "a datagram in fragments differs")
        ping(way, 3_000, 5, where=server)


@contextlib.contextmanager
def left_to_devices(way):
    """The ends leave checksums and segmentation to their devices, which are none: frames arrive as large as they were sent."""
    words = [word for name in ("tx", "sg", "tx-udp-segmentation", "gso") for word in (name, "on")]
    ends = [(which, f"{which}{way.path}") for which in "cs"]
    try:
        for which, device in ends:
            way.command(["ethtool", "-K", device, *words], which=which)
        yield
    finally:
        for which, device in ends:
            way.command(["ethtool", "-K", device, *("off" if word == "on" else word for word in words)], which=which)


def udp_segment(way):
    """What QUIC stacks do: many datagrams in one call, which the device would take apart (UDP_SEGMENT), there and back. Each arrives as a
    datagram of its own: full ones, a last one that is shorter, small ones that would fit one frame together."""
    source = random.Random(7)
    with left_to_devices(way), way.socket("s", socket.SOCK_DGRAM) as server, way.socket("c", socket.SOCK_DGRAM) as client:
        server.bind(("::" if way.version == 6 else "0.0.0.0", PORT))
        client.connect((way.server, PORT))
        client.send(b"hello")
        server.connect(server.recvfrom(100)[1])
        for sock in (client, server):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_000_000)
        # (bytes of a datagram, bytes of the call); 128 datagrams are the most that Linux takes, 64 before
        # 6.9.
        for size, whole in ((1200, 12_000), (1200, 1_201), (1199, 11_000), (300, 900), (1, 7), (1200, 64_800), (500, 32_000)) * 3:
            data = source.randbytes(whole)
            expected = [data[at : at + size] for at in range(0, whole, size)]
            for name, sender, receiver in (("up", client, server), ("down", server, client)):
                sender.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, size)
                equal(sender.send(data), whole, "bytes taken")
                got = [receiver.recv(70_000) for _ in expected]
                need(got == expected, f"{name}: {len(expected)} datagrams of {size} bytes, {whole} in all, arrived as {[len(one) for one in got]}")


ALL = (1280, 1500, 4000, 9000)
CASES = [
    Case("pings", pings, clients=(("ping", "iputils-ping"),), mtus=ALL, short=True),
    Case("datagrams", datagrams, mtus=ALL, short=True),
    Case("bulk-by-mtu", bulk, mtus=ALL, short=True),
    Case("tunnel", tunnel, clients=(("ip", "iproute2"), ("ping", "iputils-ping")), mtus=(1500, 9000), short=True),
    Case("udp-segment", udp_segment, clients=(("ethtool", "ethtool"),), mtus=(1280, 1500, 9000), short=True),
    Case("path-mtu", path_mtu, mtus=ALL, short=True),
    Case("time-exceeded", time_exceeded, clients=(("ping", "iputils-ping"),), short=True),
]
