# SPDX-License-Identifier: Apache-2.0
"""TCP connections whose ends the suite plays itself, segment by segment."""
import struct

from .traffic import CLIENT, SERVER, checksum

SYN, RST, ACK, PUSH = 2, 4, 16, 8


def segment(back, client_port, server_port, sequence, acknowledged, flags, data=b""):
    """A frame with a segment from client to server, or back."""
    ends, ports = ((SERVER, CLIENT), (server_port, client_port)) if back else ((CLIENT, SERVER), (client_port, server_port))
    tcp = struct.pack(">HHIIBBHHH", *ports, sequence & 0xFFFFFFFF, acknowledged & 0xFFFFFFFF, 5 << 4, flags, 65_000, 0, 0) + data
    pseudo = ends[0] + ends[1] + struct.pack(">HH", 6, len(tcp))
    tcp = tcp[:16] + struct.pack(">H", checksum(pseudo + tcp + bytes(len(tcp) % 2))) + tcp[18:]
    head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(tcp), 0, 0x4000, 64, 6, 0, *ends)
    head = head[:10] + struct.pack(">H", checksum(head)) + head[12:]
    return bytes([2, 0, 0, 0, 0, 1 if back else 2, 2, 0, 0, 0, 0, 2 if back else 1, 8, 0]) + head + tcp


class Connection:
    """One of them. Each side's next number is what the other one acknowledges: nothing is lost on the way."""

    def __init__(self, traffic, port, server_port):
        self.traffic, self.port, self.server_port, self.next = traffic, port, server_port, [1_000, 9_000]

    def say(self, back, flags, data=b""):
        ours, theirs = self.next[back], self.next[not back]
        to = self.traffic.server if back else self.traffic.client
        self.traffic.transmit(to, segment(back, self.port, self.server_port, ours, theirs if flags & ACK else 0, flags, data))
        self.next[back] += len(data) + (flags & SYN == SYN)

    def came(self, back, flags=0, since=0.0):
        """Segments of it that came at the client (`back`) or the server, with all of these flags, since then."""
        return sum(1 for at, was_back, port, had in self.traffic.segments if was_back == back and port == self.port and had & flags == flags and at >= since)
