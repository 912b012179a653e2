# SPDX-License-Identifier: Apache-2.0
"""Every kind of frame that kinds.tsv names, conversations of plain ones that are long enough to leave the host, and what comes between their packets.

The packet filter decides of a flow with its first packet, so a level below may handle those that follow. What becomes of a packet must not depend on that.
"""

import os
import struct

from .kinds import ETHERTYPES, EXTENSIONS, PROTOCOLS, kind
from .packet import ACK, FIN, ICMP, PSH, RST, SYN, TCP, UDP, ethernet, flow, icmp, ip, tcp, udp

POLICY = "headers"
PORT, REFUSED, REJECTED = 443, 666, 667
CLIENT = 40000
# Packets of a plain conversation that are neither its beginning nor its end: so many that two thirds of the
# file are of plain conversations (in mix.pcap it is 96 %, and here each rare kind is as frequent as a common
# one).
ROUNDS = 84

ETHERTYPE = {name: number for number, name in reversed(ETHERTYPES.items())} | {"ipv4-options": 0x0800, "ipv4-odd": 0x0800, "ipv6-odd": 0x86DD, "other": 0x9999}
PROTOCOL = {name: number for number, name in PROTOCOLS.items()} | {"ipv4-options": 4, "ipv4-odd": 4, "ipv6-odd": 41, "gre-1": 47, "other": 253}
EXTENSION = {name: number for number, name in EXTENSIONS.items()}
FRAGMENTS = ("fragment", "first-fragment", "atomic-fragment")
# Who speaks in a packet, and in packets that are in it.
ENDS = [("client", "server"), ("other", "stranger"), ("bad", "router")]
MACS = bytes.fromhex("020000000001020000000002")
LOAD = b"a load of twenty-four B."


def listed():
    """The kinds of kinds.tsv."""
    with open(os.path.join(os.path.dirname(__file__), "../kinds.tsv"), encoding="utf-8") as file:
        return [line.rstrip("\n").split("\t")[1] for line in file]


def twin(names):
    """The same kind with the other version of IP outermost; a kind without IP is its own."""
    at = next((at for at, name in enumerate(names) if name.startswith("ipv")), None)
    if at is None:
        return names
    rest = names[at + 1 :]
    if names[at].startswith("ipv4"):
        head = {"ipv4": ["ipv6"], "ipv4-options": ["ipv6", "destination"], "ipv4-odd": ["ipv6-odd"]}[names[at]]
    else:
        options = rest and rest[0] in EXTENSION
        while rest and rest[0] in EXTENSION:
            rest = rest[1:]
        rest = ["first-fragment", *rest[1:]] if rest and rest[0] == "atomic-fragment" else rest
        head = ["ipv4-options" if options else names[at].replace("6", "4")]
    if rest and rest[0] in ICMP_NAMES:
        rest = [ICMP_NAMES[rest[0]], *rest[1:]]
    return [*names[:at], *head, *rest]


# In a kind with one of these a packet is in another one, or in a frame that is in a packet.
TUNNELLED = {"mpls", "gre", "gre-1", "vxlan", "geneve", "gtp", "gtp-extended", "teredo"}
ICMP_NAMES = {"icmp": "icmpv6", "icmpv6": "icmp"}


def pairs():
    """Kinds with IPv4 outermost and their twins with IPv6, each kind of the list once."""
    seen = set()
    for name in listed():
        words = name.split()
        other = twin(words)
        first = next((word for word in words if word.startswith("ipv")), "ipv4")
        both = (words, other) if first.startswith("ipv4") else (other, words)
        if name not in seen:
            seen |= {" ".join(kind) for kind in both}
            yield name, dict(zip((4, 6), both))


class Maker:
    """Makes the frames of a conversation of a kind: `step` counts its packets, which the two ends send by turns."""

    def __init__(self, step, names):
        self.step, self.names = step, names
        self.back = step % 2 == 1

    def ends(self, depth):
        pair = ENDS[min(depth, len(ENDS) - 1)]
        return pair[::-1] if self.back else pair

    def ports(self, client, server):
        return (server, client) if self.back else (client, server)

    def frame(self):
        return self.ethernet(self.names, 0)

    def ethernet(self, names, depth):
        if names == ["cut"]:
            return MACS[:10]
        ethertype, body = self.link(names, depth)
        return MACS + struct.pack("!H", ethertype) + body

    def link(self, names, depth):
        """What follows an EtherType, and the EtherType."""
        name, rest = names[0], names[1:]
        ethertype = ETHERTYPE.get(name)
        if name.startswith("ipv"):
            return ethertype, self.network(names, depth)
        if name in ("vlan", "svlan"):
            inner, body = self.link(rest, depth)
            return ethertype, struct.pack("!HH", 100 + len(rest), inner) + body
        if name == "mpls":
            label = bytes.fromhex("0006413f")
            return ethertype, label + (bytes(4) + self.ethernet(rest[1:], depth) if rest[0] == "ethernet" else self.link(rest, depth)[1])
        if name == "pppoe":
            inner, body = self.link(rest, depth)
            return ethertype, struct.pack("!BBHHH", 0x11, 0, 1, len(body) + 2, {0x0800: 0x21, 0x86DD: 0x57}[inner]) + body
        if name == "ethernet":
            return ethertype, self.ethernet(rest, depth)
        if name == "erspan":
            return ethertype, bytes.fromhex("1001000a00000000") + self.ethernet(rest, depth)
        if name == "llc":
            return 38, bytes.fromhex("424203") + bytes(35)
        if name == "arp":
            return ethertype, bytes.fromhex("0001080006040001") + MACS[6:] + bytes([10, 1, 0, 10]) + bytes(6) + bytes([192, 0, 2, 80])
        return ethertype, LOAD

    def network(self, names, depth):
        name, rest = names[0], names[1:]
        v, (src, dst) = int(name[3]), self.ends(depth)
        if rest == ["cut"]:
            return ip(v, src, dst, UDP, b"")[:12]
        if name.endswith("-odd"):
            return ip(v, src, dst, UDP, self.upper(["udp"], v, depth)[1], version=5)
        extensions = []
        while rest and rest[0] in EXTENSION:
            extensions.append(rest[0])
            rest = rest[1:]
        more = {"options": b"\x94\x04\0\0"} if name == "ipv4-options" else {}
        more["ident"] = 100 + self.step
        if rest and rest[0] in FRAGMENTS:
            protocol, body = self.upper(rest[1:] or ["udp"], v, depth)
            cut = len(body) // 8 * 8 - 8
            more["fragment"] = {"fragment": (cut, False), "first-fragment": (0, True), "atomic-fragment": (0, False)}[rest[0]]
            body = {"fragment": body[cut:], "first-fragment": body[:cut], "atomic-fragment": body}[rest[0]]
        else:
            protocol, body = self.upper(rest, v, depth)
        if extensions:
            numbers = [EXTENSION[name] for name in extensions] + [44 if "fragment" in more else protocol]
            more["chain"] = (numbers[0], b"".join(self.extension(name, following) for name, following in zip(extensions, numbers[1:])))
        return ip(v, src, dst, protocol, body, **more)

    @staticmethod
    def extension(name, following):
        """Eight bytes that ask for nothing (RFC 8200 4.3, 4.6; 4.4 with no segment left; RFC 6275 6.1.2)."""
        said = {"hop-by-hop": "050200000100", "destination": "010400000000", "routing": "fd0000000000", "mobility": "000000000000"}[name]
        return bytes([following, 0]) + bytes.fromhex(said)

    def upper(self, names, v, depth):
        """What an IP header carries, and its protocol."""
        name, rest = names[0], names[1:]
        protocol, (src, dst) = PROTOCOL[name], self.ends(depth)
        maker = {"tcp": self.tcp, "udp": self.udp, "gre": self.gre}.get(name)
        if rest == ["cut"] and not name.startswith("ipv"):
            return protocol, bytes.fromhex("9c4001bb0010")[: 2 if name in ("gre", "icmp", "icmpv6") else 6]
        if maker:
            return protocol, maker(rest, v, depth)
        if name.startswith("ipv"):
            return protocol, self.network(names, depth + 1)
        if name in ICMP_NAMES:
            request = {"icmp": 8, "icmpv6": 128}[name]
            answer = {"icmp": 0, "icmpv6": 129}[name]
            rest = struct.pack("!HH", 7, self.step // 2) + b"ping"
            # Without a pseudo header where it is the other version's.
            return protocol, icmp(v if ICMP[v] == protocol else 10 - v, src, dst, answer if self.back else request, 0, rest)
        said = {
            # DATA, one chunk (RFC 9260 3.3.1); its checksum is not looked at by who forwards it.
            "sctp": struct.pack("!HHII", *self.ports(CLIENT, 2905), 1, 0) + bytes.fromhex("0003001400000001000100000000000061626364"),
            "esp": struct.pack("!II", 0x1001, self.step + 1) + LOAD,
            # PPP within GRE version 1, as PPTP has it (RFC 2637 4.1): key (length, call), sequence number.
            "gre-1": struct.pack("!HHHHI", 0x3001, 0x880B, 4, 1, self.step) + bytes.fromhex("ff03c021"),
            "nothing": b"",
            "other": LOAD,
        }
        return protocol, said[name]

    def tcp(self, rest, v, depth):
        src, dst = self.ends(depth)
        flags = [SYN, SYN | ACK, ACK, ACK | PSH][min(self.step, 3)]
        seq = 5000 + (self.step > 1) if self.back else 1000 + (self.step > 0)
        ack = 0 if self.step == 0 else (1001 if self.back else 5001)
        return tcp(v, src, dst, *self.ports(CLIENT, PORT), flags, seq, ack, LOAD if self.step > 2 or "first-fragment" in self.names else b"")

    def udp(self, rest, v, depth):
        src, dst = self.ends(depth)
        tunnel, inner = rest[0] if rest else None, rest[1:]
        port, data = 53, LOAD
        if tunnel == "vxlan":
            port, data = 4789, bytes.fromhex("0800000000000500") + self.ethernet(inner[1:], depth + 1)
        elif tunnel == "geneve":
            ethertype, body = self.link(inner, depth + 1)
            port, data = 6081, struct.pack("!BBHI", 0, 0, ethertype, 5 << 8) + body
        elif tunnel == "gtp-other":
            port, data = 2152, bytes.fromhex("3201000400000000") + bytes(4)
        elif tunnel in ("gtp", "gtp-extended"):
            body = LOAD.replace(b"a", b"\xff") if inner == ["other"] else self.link(inner, depth + 1)[1]
            # PDU session container (3GPP TS 38.415).
            more = bytes.fromhex("00000085") + bytes.fromhex("01000900") if tunnel == "gtp-extended" else b""
            port, data = 2152, struct.pack("!BBHI", 0x34 if more else 0x30, 255, len(more) + len(body), 9) + more + body
        elif tunnel == "teredo":
            port, data = 3544, self.network(inner, depth + 1)
        return udp(v, src, dst, *self.ports(CLIENT, port), data)

    def gre(self, rest, v, depth):
        if rest == ["other"]:
            return struct.pack("!HH", 0, 0x9999) + LOAD
        ethertype, body = self.link(rest, depth + 1)
        if rest[0] == "erspan":
            return struct.pack("!HHI", 0x1000, ethertype, self.step) + body
        return struct.pack("!HH", 0, ethertype) + body


def cases(out, v):
    for name, both in pairs():
        of_kind(out, v, name, both[v])
    plain(out, v)
    between(out, v)


def of_kind(out, v, name, names):
    """Three packets of each kind, by turns: with the second a datagram's flow can go down, so the third may meet its entry."""
    frames = [Maker(step, names).frame() for step in range(3)]
    for made in frames:
        assert kind(made) == " ".join(names), (kind(made), names)
    verdict, why = what_becomes(names)
    more = {"reason": {"drop": "unreadable"}.get(verdict)}
    out.add(v, f"kind.{name.replace(' ', '_')}", why, policy=POLICY, packet=frames[0], verdict=verdict, state=(None, None),
            after=[(made, verdict) for made in frames[1:]], **more)


def what_becomes(names):
    """Verdict and why."""
    if {"fragment", "first-fragment"} & set(names):
        return "hold", "RFC 791 3.2, RFC 8200 4.5: a datagram is decided when it is whole"
    if names[-1] == "cut" and not TUNNELLED & set(names) and names[-2:-1] in (["ipv4"], ["ipv6"], ["tcp"], ["udp"]):
        return "drop", "RFC 791 3.1, RFC 8200 3, RFC 9293 3.1, RFC 768: the header is not whole, so nobody knows whose it is"
    if names[-1].endswith("-odd") or names[-1] == "cut":
        return "forward", "policy: no rule refuses it; what is broken in a tunnel its end discards, and what is broken behind a header without ports its receiver"
    return "forward", "policy: what no rule refuses goes on, whatever headers it has"


TIMESTAMPS = lambda now, then: b"\x01\x01\x08\x0a" + struct.pack("!II", now, then)  # noqa: E731
OPENING = b"\x02\x04\x05\xb4\x04\x02\x01\x03\x03\x07"


class Conversation:
    """A conversation of plain packets: `tags` are its VLAN tags (outermost first; the first one of 802.1ad where there are three), `options` its TCP options."""

    def __init__(self, v, protocol, port, tags=(), options="none"):
        self.v, self.protocol, self.port, self.tags, self.options = v, protocol, port, tags, options
        self.flow = flow(v, protocol, "client", CLIENT, "server", port)
        self.said, self.clock = [1000, 5000], 70_000

    def ends(self, back):
        return (("server", "client"), (self.port, CLIENT)) if back else (("client", "server"), (CLIENT, self.port))

    def wrap(self, back, body, **more):
        (src, dst), _ = self.ends(back)
        packet = ip(self.v, src, dst, self.protocol, body, **more)
        made = ethernet(self.v, packet, self.tags)
        return made[:12] + b"\x88\xa8" + made[14:] if len(self.tags) == 3 else made

    def segment(self, back, flags, data=b"", blocks=(), **more):
        (src, dst), ports = self.ends(back)
        self.clock += 1
        options = TIMESTAMPS(self.clock, self.clock - 1) if "timestamps" in self.options else b""
        if flags & SYN:
            options = OPENING + (b"\0\0" if not options else b"\x08\x0a" + options[4:])
        if blocks:
            options += bytes([1, 1, 5, 2 + 8 * len(blocks)]) + b"".join(struct.pack("!II", *block) for block in blocks)
        seq, ack = self.said[back], self.said[not back] if flags & ACK else 0
        self.said[back] += len(data) + bool(flags & (SYN | FIN))
        return self.wrap(back, tcp(self.v, src, dst, *ports, flags, seq, ack, data, options=options), **more)

    def datagram(self, back, data=LOAD, **more):
        (src, dst), ports = self.ends(back)
        return self.wrap(back, udp(self.v, src, dst, *ports, data), **more)

    def data(self, back, size=24, **more):
        """A packet that is neither the first nor the last."""
        load = (LOAD * (size // len(LOAD) + 1))[:size]
        return self.segment(back, ACK | PSH, load, **more) if self.protocol == TCP else self.datagram(back, load, **more)

    def opening(self):
        """What comes before it goes on without end."""
        if self.protocol == UDP:
            return [self.datagram(False), self.datagram(True)]
        return [self.segment(False, SYN), self.segment(True, SYN | ACK), self.segment(False, ACK)]

    def middle(self, rounds=ROUNDS):
        """Both sides speak, one packet in three is an acknowledgement without data where there are such."""
        out = []
        for number in range(rounds):
            back = number % 3 == 1
            if self.protocol == TCP and number % 3 == 2:
                # The server's next segment is missing, the one behind it is there.
                hole = self.said[1] + 100
                out.append(self.segment(False, ACK, blocks=[(hole, hole + 100)] if "blocks" in self.options else ()))
            else:
                out.append(self.data(back, 20 + 7 * (number % 12)))
        return out

    def closing(self):
        if self.protocol == UDP:
            return []
        return [self.segment(True, FIN | ACK), self.segment(False, ACK), self.segment(False, FIN | ACK), self.segment(True, ACK)]


TAGS = {"": (), "vlan": (10,), "two_tags": (20, 10), "three_tags": (30, 20, 10)}


def plain(out, v):
    """Conversations from their first packet to the last."""
    for tags, of in TAGS.items():
        for protocol, options in [(UDP, "none"), (TCP, "none"), (TCP, "timestamps"), (TCP, "blocks"), (TCP, "timestamps and blocks")]:
            if tags and options not in ("none", "timestamps"):
                continue
            name = ".".join(filter(None, ["tcp" if protocol == TCP else "udp", "" if options == "none" else options.replace(" ", "_"), tags]))
            talk = Conversation(v, protocol, PORT, of, options)
            before, middle, closing = talk.opening(), talk.middle(), talk.closing()
            out.add(v, f"plain.{name}", "policy: no rule refuses it, so all of it goes on", policy=POLICY, flow=talk.flow, before=before, packet=middle[0],
                    state=(None, None), after=[(made, "forward") for made in [*middle[1:], *closing]])
            if options != "none":
                continue
            talk = Conversation(v, protocol, REFUSED, of, options)
            # Nobody answers a SYN that was dropped.
            again = [talk.opening()[0] for _ in range(4)] if protocol == TCP else talk.middle(4)
            out.add(v, f"plain.{name}.refused", "rules 1 and 3 drop what goes to this port and what comes from it: neither side opens, so the first packet and all that follow are dropped", policy=POLICY,
                    flow=talk.flow, packet=again[0], verdict="drop", reason="pfw_rule", state=(None, None), after=[(made, "drop") for made in again[1:]])
    for name, settings, verdict in (("dropped", "drop-flow", "drop"), ("passed", "pass-flow", "forward")):
        # Nobody has seen it begin.
        talk = Conversation(v, TCP, PORT)
        talk.opening()
        middle = talk.middle(24)
        out.add(v, f"plain.tcp.midstream.{name}", f"stream.midstream-policy is {settings}: so is all of the flow", policy=POLICY,
                settings={"stream.midstream-policy": settings}, flow=talk.flow, packet=middle[0], verdict=verdict,
                reason="stream_midstream" if verdict == "drop" else None, state=(None, None), after=[(made, verdict) for made in middle[1:]])
    for protocol, name in ((UDP, "udp"), (TCP, "tcp")):
        talk = Conversation(v, protocol, REJECTED)
        first = talk.opening()[:1]
        out.add(v, f"plain.{name}.rejected", "rule 2 rejects what goes to this port, each time: its sender is told", policy=POLICY, flow=talk.flow,
                packet=first[0], verdict="reject", reason="pfw_rule", state=(None, None), after=[(talk.data(False), "reject") for _ in range(3)])


def between(out, v):
    """A packet of a flow that is decided, other than those before and behind it: with headers that not every level reads, broken, or of the connection's end."""
    for refused in (False, True):
        for protocol, of in ((UDP, "udp"), (TCP, "tcp")):
            for name, why, broken, make in oddities(v, protocol):
                talk = Conversation(v, protocol, REFUSED if refused else PORT)
                opening = talk.opening()
                # The packet filter looks at each packet of what it refuses: such flows do not go down.
                before = [opening[0], *talk.middle(1)] if refused else [*opening, *talk.middle(3)]
                fate = "drop" if refused else "forward"
                odd = make(talk)
                said = "drop" if broken else fate
                reason = broken or ("pfw_rule" if refused else None)
                out.add(v, f"between.{of}.{name}{'.refused' if refused else ''}", why, policy=POLICY, flow=talk.flow, before=before,
                        before_verdicts=[fate] * len(before), packet=odd, verdict=said, reason=reason, state=(None, None),
                        after=[(made, fate) for made in talk.middle(1 if refused else 3)])


def oddities(v, protocol):
    """Name, why, the reason if it is refused by itself (else it has the fate of its flow), and what makes the packet."""
    goes = "policy: it belongs to the flow, whose fate it shares"
    unread = "no receiver takes it, whatever becomes of its flow"
    options = {"options": b"\x94\x04\0\0"} if v == 4 else {"chain": (60, bytes([protocol, 0]) + bytes.fromhex("010400000000"))}
    head = 34 if v == 4 else 54
    yield "options", goes, None, lambda talk: talk.data(False, **options)
    yield "padding", goes, None, lambda talk: talk.data(False) + bytes(20)
    yield "long", goes, None, lambda talk: talk.data(True, 1400)
    yield "hops", goes, None, lambda talk: talk.data(True, ttl=1)
    if v == 4:
        # The header's checksum is wrong.
        yield "own_field", "RFC 1122 3.2.1.2: its receiver discards it, whoever passes it on", None, lambda talk: talk.data(False, sum_xor=0x5555)
    else:
        yield "own_field", "RFC 6437 2: a flow label, which packets of one flow need not share", None, lambda talk: labelled(talk.data(False))
    yield "longer_than_frame", unread, "unreadable", lambda talk: talk.data(False)[:-4]
    if protocol == TCP:
        yield "header_cut", unread, "unreadable", lambda talk: talk.segment(False, ACK)[:-6]
        yield "urgent", goes, None, lambda talk: talk.segment(False, ACK | PSH | 32, b"!")
        yield "odd_options", goes, None, lambda talk: with_options(talk, b"\xfd\x04\x0f\x89")
        yield "syn_again", "policy: it has the flow's addresses and ports", None, lambda talk: talk.segment(False, SYN)
        yield "reset", goes, None, lambda talk: talk.segment(True, RST | ACK)
        yield "end_of_one_side", goes, None, lambda talk: talk.segment(True, FIN | ACK)
        unread = "policy: a packet filter reads no streams; the receiver drops the segment (RFC 9293 3.10.7.4)"
        yield "no_ack", unread, None, lambda talk: talk.segment(False, PSH, b"x")
        yield "far_data", unread, None, lambda talk: numbered(talk, 3_000_000, 0, b"far")
        yield "ack_of_unsent", unread, None, lambda talk: numbered(talk, 0, 100_000)
        yield "data_with_ack_of_unsent", unread, None, lambda talk: numbered(talk, 0, 100_000, b"x")
    else:
        yield "empty", goes, None, lambda talk: talk.datagram(False, b"")
        yield "no_sum", "RFC 768: 0 says that there is no checksum" if v == 4 else "RFC 8200 8.1: IPv6 receivers discard it; who forwards it need not", None, no_sum
        yield "length_short", unread, "unreadable", lambda talk: talk.datagram(False)[: head + 4] + b"\0\4" + talk.datagram(False)[head + 6 :]
        yield "length_long", unread, "unreadable", lambda talk: talk.datagram(False)[: head + 4] + b"\0\x7f" + talk.datagram(False)[head + 6 :]
        yield "like_teredo", "policy: of a datagram that carries a packet the outer flow decides", None, lambda talk: talk.datagram(False, teredo())


def labelled(made):
    """Writes a traffic class and a flow label into an IPv6 header."""
    return made[:14] + bytes.fromhex("62812345") + made[18:]


def with_options(talk, options):
    (src, dst), ports = talk.ends(False)
    return talk.wrap(False, tcp(talk.v, src, dst, *ports, ACK, talk.said[0], talk.said[1], options=options))


def numbered(talk, ahead, acknowledges, load=b""):
    """A segment of the client's whose numbers lie so far ahead."""
    (src, dst), ports = talk.ends(False)
    seq, ack = talk.said[0] + ahead, talk.said[1] + acknowledges
    return talk.wrap(False, tcp(talk.v, src, dst, *ports, ACK | PSH if load else ACK, seq, ack, load))


def no_sum(talk):
    made = talk.datagram(False)
    at = (34 if talk.v == 4 else 54) + 6
    return made[:at] + b"\0\0" + made[at + 2 :]


def teredo():
    return ip(6, "other", "stranger", UDP, udp(6, "other", "stranger", 5000, 5001, LOAD))
