# SPDX-License-Identifier: Apache-2.0
"""The kinds of traffic: for each the frames of its flows, and captures of them. All follow from a seed."""

import itertools
import os
import random
import zlib
from dataclasses import dataclass
from typing import Callable

import contents
import packets
import quic
import tls
from packets import ACK, CLIENT, PSH, RST, SERVER, SYN, Connection, Peers

PACKETS = 200_000
CONNECTIONS, TENANTS, DATAGRAMS = 10_000, 1_000, 200


def inner(rnd):
    """An address of the networks that HOME_NET has."""
    return bytes([10, rnd.randrange(1, 9), rnd.randrange(256), rnd.randrange(1, 255)])


def outer(rnd):
    """An address outside."""
    return (b"\xcb\0\x71" if rnd.random() < 0.5 else b"\xc6\x33\x64") + bytes([rnd.randrange(1, 255)])


def high(rnd):
    return rnd.randrange(32768, 61000)


def to(rnd, port, inwards=False):
    """A connection of a client within to a server outside, or the other way round."""
    ends = (outer(rnd), inner(rnd)) if inwards else (inner(rnd), outer(rnd))
    return Connection(rnd, *ends, high(rnd), port)


def connection(messages, port, inwards=False):
    """A kind whose connections open, say these messages, and close unless they are held."""

    def play(rnd, number, held):
        flow = to(rnd, port, inwards)
        yield from flow.open()
        yield from flow.talk(messages(rnd))
        if not held:
            yield from flow.close()

    return play


def web(rnd):
    yield CLIENT, contents.request(rnd)
    yield SERVER, contents.answer(rnd, rnd.randrange(200, 4000), packed=rnd.random() < 0.25)


def web_kept(rnd):
    for _ in range(200):
        yield CLIENT, contents.request(rnd)
        yield SERVER, contents.answer(rnd, rnd.randrange(100, 1300))


def web_bodies(rnd):
    kind = rnd.choice(("application/octet-stream", "text/html"))
    yield CLIENT, contents.request(rnd)
    yield SERVER, contents.answer(rnd, 150_000, kind)


def web_post(rnd):
    yield CLIENT, contents.request(rnd, "POST", contents.text(rnd, rnd.randrange(500, 12000)))
    yield SERVER, contents.answer(rnd, 200)


def encrypted(rnd):
    yield from tls.handshake(rnd, contents.host(rnd).encode())
    for _ in range(3):
        yield CLIENT, tls.data(rnd, 400)
        yield SERVER, tls.data(rnd, 6000)


def unknown(rnd):
    for turn in range(12):
        yield turn % 2, rnd.randbytes(rnd.randrange(50, 3000))


def tcp_unknown(rnd, number, held):
    yield from connection(unknown, rnd.randrange(20000, 60000))(rnd, number, held)


def dns(rnd, number, held):
    flow = Peers(inner(rnd), b"\x0a\0\0\x35", high(rnd), 53)
    for side, message in enumerate(contents.dns(rnd, outer(rnd))):
        yield flow.datagram(side, message)


def udp_unknown(rnd, number, held):
    """A call: datagrams of 172 bytes, of which the first two look like RTP's."""
    flow = Peers(inner(rnd), outer(rnd), high(rnd), high(rnd))
    for turn in range(DATAGRAMS):
        yield flow.datagram(turn % 2, b"\x80\0" + rnd.randbytes(170))


def syn_scan(rnd, number, held):
    flow = Connection(rnd, outer(rnd), inner(rnd), high(rnd), rnd.randrange(1, 10000))
    yield flow.segment(CLIENT, SYN)
    if rnd.random() < 0.5:
        flow.sequence[SERVER] = 0
        yield flow.segment(SERVER, RST | ACK)


def ping(rnd, number, held):
    flow = Peers(inner(rnd), outer(rnd), rnd.getrandbits(16))
    data = bytes(range(48))
    yield flow.echo(CLIENT, number, data)
    yield flow.echo(SERVER, number, data)


def quic_session(rnd, number, held):
    messages, client, server = HANDSHAKES[number % len(HANDSHAKES)]
    flow = Peers(inner(rnd), outer(rnd), high(rnd), 443)
    for side, message in messages:
        yield flow.datagram(side, message)
    for _ in range(rnd.randrange(5, 30)):
        yield flow.datagram(CLIENT, quic.short(rnd, server, rnd.randrange(30, 90)))
        yield flow.datagram(SERVER, quic.short(rnd, client, rnd.randrange(900, 1200)))
        yield flow.datagram(SERVER, quic.short(rnd, client, rnd.randrange(900, 1200)))


def fragments(rnd, number, held):
    """Datagrams in three fragments; of one in four the last two come in the wrong order."""
    flow = Peers(inner(rnd), outer(rnd), high(rnd), high(rnd))
    for turn in range(20):
        first, *rest = flow.fragments(turn % 2, b"\x80\0" + rnd.randbytes(rnd.randrange(3000, 4400)))
        yield first
        yield from reversed(rest) if rnd.random() < 0.25 else rest


def vxlan(rnd, number, held):
    ends = (bytes([172, 16, 0, rnd.randrange(1, 5)]), bytes([172, 16, 1, rnd.randrange(1, 5)]))
    yield from packets.in_vxlan(connection(web, 80)(rnd, number, held), ends, rnd.randrange(100, 110))


def gre(rnd, number, held):
    ends = (bytes([172, 16, 0, rnd.randrange(1, 5)]), bytes([172, 16, 1, rnd.randrange(1, 5)]))
    yield from packets.in_gre(connection(web, 80)(rnd, number, held), ends)


def elephant(rnd, number, held):
    """A transfer of 60 MB that no parser knows."""
    flow = to(rnd, 49999)
    yield from flow.open()
    for _ in range(600):
        yield from flow.send(SERVER, rnd.randbytes(100_800))
    if not held:
        yield from flow.close()


def idle(rnd, number, held):
    """A connection that says little, for ever."""
    flow = to(rnd, rnd.randrange(20000, 60000))
    yield from flow.open()
    while not held:
        yield flow.segment(CLIENT, PSH | ACK, rnd.randbytes(24))
        yield flow.segment(SERVER, PSH | ACK, rnd.randbytes(24))


def tenant(rnd, number, held):
    """A tenant's question and visit, in a VLAN of its own; tenants use the same addresses."""
    vlan = 1 + number % TENANTS
    yield from packets.tagged(dns(rnd, number, held), vlan)
    yield from packets.tagged(connection(web, 80)(rnd, number, held), vlan)


@dataclass(frozen=True)
class Kind:
    """A kind of traffic."""

    name: str
    what: str
    play: Callable
    # Flows open at once.
    beside: int = 1
    # Packets until the traffic is what the kind's name says.
    setup: int = 0
    # Whether its flows can be held open, to see how much memory one takes.
    holds: bool = True


KINDS = {
    kind.name: kind
    for kind in (
        Kind("http-short", "HTTP, one request a connection, clients within", connection(web, 80)),
        Kind("http-short-in", "HTTP, one request a connection, servers within", connection(web, 80, True)),
        Kind("http-keepalive", "HTTP, 200 requests a connection", connection(web_kept, 80)),
        Kind("http-bodies", "HTTP, answers of 150 KB", connection(web_bodies, 80)),
        Kind("http-post", "HTTP, POST of 0.5 to 12 KB, servers within", connection(web_post, 80, True)),
        Kind("tls", "TLS 1.2 and 1.3, 19 KB of application data", connection(encrypted, 443)),
        Kind("dns", "DNS, a question and its answer", dns),
        Kind("udp-unknown", "UDP that no parser knows, 172 bytes", udp_unknown),
        Kind("tcp-unknown", "TCP that no parser knows", tcp_unknown),
        Kind("smtp", "SMTP, a message a connection", connection(contents.mail, 25, True)),
        Kind("syn-scan", "SYN scan, half of it answered by RST", syn_scan),
        Kind("ping", "echo requests and replies", ping),
        Kind("smb", "SMB 2.1, files read and written", connection(contents.smb, 445)),
        Kind("ssh", "SSH, shells", connection(contents.ssh, 22, True)),
        Kind("quic", "QUIC version 1", quic_session),
        Kind("fragments", "UDP in three fragments", fragments),
        Kind("vxlan", "HTTP as http-short, in VXLAN", vxlan),
        Kind("gre", "HTTP as http-short, in GRE", gre),
        Kind("elephants", "four transfers at once, no parser", elephant, 4, 100, False),
        Kind("idle", f"{CONNECTIONS:,} open connections of few bytes", idle, CONNECTIONS, 4 * CONNECTIONS),
        Kind("tenants", f"{TENANTS:,} tenants by VLAN, DNS and HTTP", tenant, TENANTS, 10 * TENANTS),
    )
}
HANDSHAKES = []


def begin(kind, seed):
    """The random numbers of a kind."""
    if kind.play is quic_session and not HANDSHAKES:
        made = random.Random(seed)
        HANDSHAKES.extend(quic.handshake(made, contents.host(made).encode()) for _ in range(32))
    return random.Random(zlib.crc32(kind.name.encode()) ^ seed)


def frames(kind, seed):
    """Frames of a kind without end."""
    rnd, beside = begin(kind, seed), int(os.environ.get("OPEN", 0)) or kind.beside
    flows = (kind.play(rnd, number, False) for number in itertools.count())
    return packets.interleave(flows, beside)


def capture(path, kind, seed, count):
    """Writes so many packets of a kind; returns the sizes of the file after its first half and after all."""
    half = count // 2
    found, total, sizes = packets.write(path, itertools.islice(frames(kind, seed), count), (half,))
    if found != count:
        raise RuntimeError(f"{kind.name}: {found} packets instead of {count}")
    return sizes[half], total


def held(path, kind, seed, flows, most=12):
    """Writes the first packets, up to `most`, of so many flows; none of the flows ends."""
    rnd = begin(kind, seed)
    begun = (itertools.islice(kind.play(rnd, number, True), most) for number in range(flows))
    return packets.write(path, itertools.chain.from_iterable(begun))
