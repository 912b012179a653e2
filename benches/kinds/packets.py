# SPDX-License-Identifier: Apache-2.0
"""Frames and capture files for the bench of kinds: Ethernet, VLAN tags, IPv4, TCP, UDP, ICMP and tunnels.

All checksums are true. A flow is a generator of frames. `interleave` plays many of them beside each other.
"""

import struct
import zlib
from collections import deque

CLIENT, SERVER = 0, 1
FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
TCP, UDP, ICMP, GRE = 6, 17, 1, 47
MACS = (b"\x02\0\0\0\0\x01", b"\x02\0\0\0\0\x02")
# Microseconds between frames.
STEP = 20
BEGIN = 1_764_000_000


def checksum(data):
    """The Internet checksum: 2**16 is 1 modulo 0xFFFF, so the number's rest is the sum of its words."""
    if len(data) & 1:
        data += b"\0"
    return (0xFFFF - int.from_bytes(data, "big") % 0xFFFF) % 0xFFFF


def ethernet(side, payload, kind=b"\x08\0"):
    """A frame from one side's address to the other's."""
    return MACS[1 - side] + MACS[side] + kind + payload


def ipv4(source, target, protocol, payload, ident=0, fragment=0x4000):
    """A packet; `fragment` is the word with flags and offset."""
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(payload), ident, fragment, 64, protocol, 0)
    head += source + target
    return head[:10] + checksum(head).to_bytes(2, "big") + head[12:] + payload


def transport(source, target, protocol, payload, at):
    """A segment or datagram whose checksum, at an offset, covers the pseudo-header too."""
    found = checksum(source + target + struct.pack("!HH", protocol, len(payload)) + payload)
    if protocol == UDP and found == 0:
        found = 0xFFFF
    return payload[:at] + found.to_bytes(2, "big") + payload[at + 2 :]


def udp(source, target, ports, data):
    """A datagram of UDP, without its IP header."""
    return transport(source, target, UDP, struct.pack("!HHHH", *ports, 8 + len(data), 0) + data, 6)


class Peers:
    """Two hosts with a port each; the first is the client."""

    def __init__(self, client, server, client_port=0, server_port=0):
        self.hosts, self.ports, self.ident = (client, server), (client_port, server_port), 0

    def packet(self, side, protocol, payload):
        self.ident = (self.ident + 1) & 0xFFFF
        return ipv4(self.hosts[side], self.hosts[1 - side], protocol, payload, self.ident)

    def datagram(self, side, data):
        """A frame with a datagram of UDP."""
        source, target = self.hosts[side], self.hosts[1 - side]
        ports = (self.ports[side], self.ports[1 - side])
        return ethernet(side, self.packet(side, UDP, udp(source, target, ports, data)))

    def fragments(self, side, data, size=1480):
        """The frames of a datagram that does not fit into one."""
        source, target = self.hosts[side], self.hosts[1 - side]
        whole = udp(source, target, (self.ports[side], self.ports[1 - side]), data)
        self.ident = (self.ident + 1) & 0xFFFF
        for at in range(0, len(whole), size):
            word = at // 8 | (0x2000 if at + size < len(whole) else 0)
            yield ethernet(side, ipv4(source, target, UDP, whole[at : at + size], self.ident, word))

    def echo(self, side, number, data):
        """A frame with an echo request of the client, or the server's reply."""
        message = struct.pack("!BBHHH", 0 if side else 8, 0, 0, self.ports[0], number & 0xFFFF) + data
        message = message[:2] + checksum(message).to_bytes(2, "big") + message[4:]
        return ethernet(side, self.packet(side, ICMP, message))


class Connection(Peers):
    """A TCP connection with timestamps, as frames."""

    def __init__(self, rnd, client, server, client_port, server_port):
        super().__init__(client, server, client_port, server_port)
        self.sequence = [rnd.getrandbits(31), rnd.getrandbits(31)]
        self.clock = rnd.getrandbits(24)
        self.received = [0, 0]

    def segment(self, side, flags, data=b""):
        source, target = self.hosts[side], self.hosts[1 - side]
        self.clock += 1
        acknowledged = self.sequence[1 - side] if flags & ACK else 0
        numbers = (self.ports[side], self.ports[1 - side], self.sequence[side], acknowledged)
        head = struct.pack("!HHIIBBHHH", *numbers, 0x80, flags, 65000, 0, 0)
        options = b"\1\1\x08\x0a" + struct.pack("!II", self.clock, self.received[side])
        self.received[1 - side] = self.clock
        self.sequence[side] = (self.sequence[side] + len(data) + (flags & (SYN | FIN) != 0)) & 0xFFFFFFFF
        whole = transport(source, target, TCP, head + options + data, 16)
        return ethernet(side, self.packet(side, TCP, whole))

    def open(self):
        yield self.segment(CLIENT, SYN)
        yield self.segment(SERVER, SYN | ACK)
        yield self.segment(CLIENT, ACK)

    def send(self, side, data, size=1400):
        """The data in segments; every second one and the last are acknowledged."""
        count = 0
        for at in range(0, len(data), size):
            yield self.segment(side, PSH | ACK, data[at : at + size])
            count += 1
            if count % 2 == 0:
                yield self.segment(1 - side, ACK)
        if count % 2:
            yield self.segment(1 - side, ACK)

    def talk(self, messages):
        """Messages: (side, data)."""
        for side, data in messages:
            yield from self.send(side, data)

    def close(self):
        yield self.segment(CLIENT, FIN | ACK)
        yield self.segment(SERVER, FIN | ACK)
        yield self.segment(CLIENT, ACK)


def tagged(frames, vlan):
    """Frames with a VLAN tag."""
    for frame in frames:
        yield frame[:12] + b"\x81\0" + struct.pack("!H", vlan) + frame[12:]


def side_of(frame):
    return SERVER if frame[6:12] == MACS[SERVER] else CLIENT


def in_vxlan(frames, ends, network):
    """Frames within UDP between two tunnel ends (RFC 7348)."""
    outer = Peers(*ends)
    for frame in frames:
        side = side_of(frame)
        outer.ports = (49152 + zlib.crc32(frame[26:34]) % 16384, 4789) if side == CLIENT else (4789, 49152)
        yield outer.datagram(side, b"\x08\0\0\0" + struct.pack("!I", network << 8) + frame)


def in_gre(frames, ends):
    """The packets of frames within GRE between two tunnel ends (RFC 2784)."""
    outer = Peers(*ends)
    for frame in frames:
        side = side_of(frame)
        yield ethernet(side, outer.packet(side, GRE, b"\0\0\x08\0" + frame[14:]))


def interleave(flows, beside):
    """Frames of flows of which so many are open at once, a frame of each in turn."""
    flows, active = iter(flows), deque()
    while True:
        while len(active) < beside and (flow := next(flows, None)) is not None:
            active.append(flow)
        if not active:
            return
        flow = active.popleft()
        if (frame := next(flow, None)) is not None:
            active.append(flow)
            yield frame


def write(path, frames, marks=()):
    """Writes a capture; returns its packets, its bytes, and its size after numbers of packets (`marks`)."""
    packets, total, sizes, wanted = 0, 24, {}, set(marks)
    with open(path, "wb", buffering=1 << 20) as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1))
        for frame in frames:
            second, micro = divmod(packets * STEP, 1_000_000)
            out.write(struct.pack("<IIII", BEGIN + second, micro, len(frame), len(frame)) + frame)
            packets += 1
            total += 16 + len(frame)
            if packets in wanted:
                sizes[packets] = total
    return packets, total, sizes
