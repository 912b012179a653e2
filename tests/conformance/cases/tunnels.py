# SPDX-License-Identifier: Apache-2.0
"""Conversations in tunnels, of which each packet belongs to two flows: its own, and that of the packet around it. A level below may handle a frame when both are decided."""

import functools
import struct

from .headers import PORT, REFUSED, Conversation, oddities
from .packet import ACK, FIN, PSH, RST, TCP, UDP, ethernet, ip, udp

POLICY, OF_TENANTS, STATEFUL = "headers", "tunnels", "sfw-in-tunnels"
# Packets between the beginning and the end of a conversation.
ROUNDS = 30
GTP = {"decoder.gtp.enabled": "yes"}
RED, BLUE = 5, 6
# Who sends the packets around, each from a port of its own: who computes it from what is inside.
AROUND = ("other", "stranger")
SOURCES = (50000, 50001)


def header(kind, v, number, packet):
    """The UDP port of a kind of tunnel, and its header with what it carries (an IP packet of version `v`)."""
    ethertype = {4: 0x0800, 6: 0x86DD}[v]
    if kind == "vxlan":
        return 4789, struct.pack("!II", 0x08000000, number << 8) + ethernet(v, packet)
    if kind == "geneve":
        return 6081, struct.pack("!BBHI", 0, 0, ethertype, number << 8) + packet
    if kind == "geneve_options":
        return 6081, struct.pack("!BBHI", 3, 0x40, 0x6558, number << 8) + bytes.fromhex("0102030101020304" "01020400") + ethernet(v, packet)
    if kind == "gtp":
        return 2152, struct.pack("!BBHI", 0x30, 255, len(packet), number) + packet
    # With a PDU session container (3GPP TS 38.415).
    more = bytes.fromhex("00000085" "01000900")
    return 2152, struct.pack("!BBHI", 0x34, 255, len(more) + len(packet), number) + more + packet


class Tunnelled(Conversation):
    """A conversation of packets of one version of IP in a tunnel over another one."""

    def __init__(self, kind, v, inside, protocol, port=PORT, number=RED):
        super().__init__(inside, protocol, port)
        self.kind, self.around, self.number = kind, v, number
        self.change = lambda packet: packet

    def labelled(self):
        """A packet with a traffic class and a flow label."""
        self.change = lambda packet: bytes.fromhex("62812345") + packet[4:]
        made = self.data(False)
        self.change = lambda packet: packet
        return made

    def wrap(self, back, body, **more):
        (src, dst), _ = self.ends(back)
        packet = ip(self.v, src, dst, self.protocol, body, **more)
        return self.put(back, self.change(packet))

    def put(self, back, packet):
        src, dst = AROUND[::-1] if back else AROUND
        if self.kind == "ip":
            return ethernet(self.around, ip(self.around, src, dst, {4: 4, 6: 41}[self.v], packet))
        port, load = header(self.kind, self.v, self.number, packet)
        datagram = udp(self.around, src, dst, SOURCES[back], port, load)
        return ethernet(self.around, ip(self.around, src, dst, UDP, datagram))


KINDS = ("ip", "vxlan", "geneve", "geneve_options", "gtp", "gtp_extended")


def settings(kind):
    return GTP if kind.startswith("gtp") else None


def cases(out, v):
    for kind in KINDS:
        for inside in (4, 6):
            for protocol, of in ((TCP, "tcp"), (UDP, "udp")):
                name = f"{kind}.{of}.in_v{inside}" if inside != v else f"{kind}.{of}"
                plain(out, v, name, kind, inside, protocol)
        between(out, v, kind)
        for inside in (4, 6):
            stateful(out, v, kind, inside)
    of_two(out, v)


def plain(out, v, name, kind, inside, protocol):
    """From the first packet to the last; and one that is refused, with the packets around it."""
    talk = Tunnelled(kind, v, inside, protocol)
    before, middle, closing = talk.opening(), talk.middle(ROUNDS), talk.closing()
    out.add(v, f"tunnel.{name}", "policy: no rule refuses what is inside nor what is around", policy=POLICY, settings=settings(kind), before=before,
            packet=middle[0], state=(None, None), after=[(made, "forward") for made in [*middle[1:], *closing]])
    talk = Tunnelled(kind, v, inside, protocol, REFUSED)
    again = [talk.opening()[0] for _ in range(4)] if protocol == TCP else talk.middle(4)
    out.add(v, f"tunnel.{name}.refused", "rules 1 and 3 drop what goes to this port and what comes from it, also inside of a tunnel: what carries it does not go on", policy=POLICY,
            settings=settings(kind), packet=again[0], verdict="drop", reason="pfw_rule", state=(None, None), after=[(made, "drop") for made in again[1:]])


def stateful(out, v, kind, inside):
    """Connections inside whose segments are compared with windows: what goes on with them, and what somebody makes up between."""
    for options in ("none", "timestamps"):
        talk = Tunnelled(kind, v, inside, TCP)
        talk.options = options
        before, middle = [*talk.opening(), *talk.middle(8)], talk.middle(ROUNDS)
        name = f"tunnel.{kind}.sfw.in_v{inside}.{options}"
        add = functools.partial(out.add, v, policy=STATEFUL, settings=settings(kind), state=(None, None))
        add(f"{name}.goes_on", "RFC 9293 3.4: all of it lies in the windows, to the end of the connection", before=before, packet=middle[0],
            after=[(made, "forward") for made in [*middle[1:], *talk.closing()]])
        for of, flags, ahead, data in (("data_beyond", ACK | PSH, 5_000_000, b"far"), ("reset_beyond", RST, 5_000_000, b""), ("end_beyond", FIN | ACK, 5_000_000, b"")):
            talk = Tunnelled(kind, v, inside, TCP)
            talk.options = options
            before, said = [*talk.opening(), *talk.middle(8)], list(talk.said)
            talk.said[0] += ahead
            forged = talk.segment(False, flags, data)
            talk.said = said
            add(f"{name}.{of}", "RFC 9293 3.4, 3.10.7.4: its number lies far beyond the window, and it changes nothing", before=before, packet=forged, verdict="drop",
                reason="sfw_window", after=[(made, "forward") for made in [*talk.middle(6), *talk.closing()]])


def between(out, v, kind):
    """Odd packets inside of a tunnel between those of a flow that is decided."""
    for protocol, of in ((UDP, "udp"), (TCP, "tcp")):
        for name, why, broken, make in oddities(v, protocol):
            # Those that are made by place in a frame without a tunnel.
            if name in ("no_sum", "length_short", "length_long"):
                continue
            talk = Tunnelled(kind, v, v, protocol)
            before = [*talk.opening(), *talk.middle(6)]
            odd = talk.labelled() if name == "own_field" and v == 6 else make(talk)
            if name in ("longer_than_frame", "header_cut"):
                why, broken = "what is around is longer than its frame: no receiver takes it", "unreadable"
            out.add(v, f"tunnel.{kind}.between.{of}.{name}", why, policy=POLICY, settings=settings(kind), before=before,
                    packet=odd, verdict="drop" if broken else "forward", reason=broken, state=(None, None),
                    after=[(made, "forward") for made in talk.middle(3)])


def of_two(out, v):
    """Equal addresses and ports in two tunnels between the same ends: each has the fate of its own tenant."""
    for kind in ("vxlan", "geneve"):
        for protocol, of in ((TCP, "tcp"), (UDP, "udp")):
            red = Tunnelled(kind, v, v, protocol, number=RED)
            blue = Tunnelled(kind, v, v, protocol, number=BLUE)
            before, opened = red.opening(), blue.opening()[0]
            # The same packets, as both tenants send them.
            mixed = [(made, "forward") for made in red.middle(12)]
            blue.said = list(red.said)
            for number, made in enumerate(red.middle(12)):
                mixed += [(made, "forward"), (blue.datagram(False) if protocol == UDP else opened, "drop")][: 1 + (number % 2)]
            out.add(v, f"tunnel.{kind}.{of}.two_tenants", "policy: blue's is refused, and red's goes on, whose addresses and ports are the same", policy=OF_TENANTS,
                    before=before, packet=opened, verdict="drop", reason="pfw_default", state=(None, None), after=mixed)
