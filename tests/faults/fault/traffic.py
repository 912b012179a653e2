# SPDX-License-Identifier: Apache-2.0
"""Steady two-way traffic through an agent's inline link, and probes: numbered datagrams of allowed flows, which the server sends back; datagrams of flows that the
policy forbids, from both sides; and single ones that ask what runs now."""
import array
import select
import socket
import struct
import threading
import time

SO_RCVBUFFORCE = 33
ALLOWED, FORBIDDEN, MIXED, FLOWS = 4000, 666, 7000, 8
CLIENT, SERVER = bytes([192, 0, 2, 1]), bytes([192, 0, 2, 2])
# The first bytes of a payload: what it is.
STEADY, ANSWER, NEVER, PROBE = 1, 2, 3, 4


def checksum(data):
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def datagram(back, source, destination, kind, number, text=b""):
    """A frame with a datagram from client to server, or back; without a checksum (RFC 768)."""
    ends = (SERVER, CLIENT) if back else (CLIENT, SERVER)
    payload = struct.pack(">BQ", kind, number) + text.ljust(55, b"-")
    head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 28 + len(payload), 0, 0x4000, 64, 17, 0, *ends)
    head = head[:10] + struct.pack(">H", checksum(head)) + head[12:]
    ethernet = bytes([2, 0, 0, 0, 0, 1 if back else 2, 2, 0, 0, 0, 0, 2 if back else 1, 8, 0])
    return ethernet + head + struct.pack(">HHHH", source, destination, 8 + len(payload), 0) + payload


def port(name):
    # Until it is bound it must hear nothing: with a protocol it would hear all interfaces, another link's
    # traffic too.
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    opened.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
    opened.bind((name, 0x0800))
    opened.setblocking(False)
    return opened


class Traffic:
    """Through one link, so many datagrams a second, until it is stopped."""

    def __init__(self, client, server, rate):
        self.rate, self.ports = rate, {port(client): False, port(server): True}
        self.client, self.server = self.ports
        # By number: when it was sent, and which of both ways it came.
        self.sent, self.came = array.array("d"), bytearray()
        # When something came that never may, and of which of its ports.
        self.leaked, self.leaked_of, self.probes, self.next_probe = [], set(), set(), 1
        # Segments of TCP: when, whether at the client, the client's port, flags.
        self.segments = []
        self.lock, self.over = threading.Lock(), threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def transmit(self, to, frame):
        try:
            to.send(frame)
        except OSError:
            # The pair's queue is full, or nobody is at its other end: it is lost, and counts as such.
            pass

    def run(self):
        at = time.monotonic()
        while not self.over.is_set():
            while at <= time.monotonic():
                at += 1 / self.rate
                self.send_one()
            at = max(at, time.monotonic() - 0.1)
            for ready in select.select(list(self.ports), [], [], max(0, min(0.01, at - time.monotonic())))[0]:
                self.take(ready)

    def send_one(self):
        number = len(self.sent)
        with self.lock:
            self.sent.append(time.monotonic())
            self.came.append(0)
        self.transmit(self.client, datagram(False, 40_000 + number % FLOWS, ALLOWED, STEADY, number))
        if number % 4 == 0:
            self.transmit(self.client, datagram(False, 41_000 + number // 4 % FLOWS, FORBIDDEN, NEVER, number))
            self.transmit(self.server, datagram(True, 42_000 + number // 4 % FLOWS, FORBIDDEN, NEVER, number))
            # Flows that stay and flows that are new: each generation refuses them, one by the packet filter
            # and the next by detection; two that are mixed would not.
            for source in (44_000 + number // 4 % FLOWS, 45_000 + number // 4 % 15_000):
                self.transmit(self.client, datagram(False, source, MIXED, NEVER, number, b"seven"))

    def take(self, ready):
        while True:
            try:
                data, address = ready.recvfrom(2048)
            except BlockingIOError:
                return
            if address[2] == socket.PACKET_OUTGOING or len(data) < 51 or data[:5] != bytes([2, 0, 0, 0, 0]):
                continue
            if data[23] == 6:
                back = ready is self.client
                self.segments.append((time.monotonic(), back, struct.unpack(">HH", data[34:38])[back], data[47]))
                continue
            kind, number = struct.unpack(">BQ", data[42:51])
            if kind == STEADY and ready is self.server:
                self.came[number] |= 1
                source = struct.unpack(">H", data[34:36])[0]
                self.transmit(self.server, datagram(True, ALLOWED, source, ANSWER, number))
            elif kind == ANSWER and ready is self.client:
                self.came[number] |= 2
            elif kind == NEVER:
                self.leaked.append(time.monotonic())
                self.leaked_of.add(struct.unpack(">HH", data[34:38]))
            elif kind == PROBE and ready is self.server:
                self.probes.add(number)

    def probe(self, source, destination):
        """Sends one datagram from the client; its number."""
        number, self.next_probe = self.next_probe, self.next_probe + 1
        self.transmit(self.client, datagram(False, source, destination, PROBE, number))
        return number

    def passes(self, source, destination, limit=3.0):
        """Whether a datagram comes; one that must not is known from a later one of an allowed flow, which came."""
        number = self.probe(source, destination)
        behind = self.probe(40_000 + number % FLOWS, ALLOWED)
        end = time.monotonic() + limit
        while time.monotonic() < end:
            if number in self.probes:
                return True
            if behind in self.probes:
                # Both are of one worker, which keeps their order; a level below might not.
                time.sleep(0.02)
                return number in self.probes
            time.sleep(0.002)
        return None

    def lost(self, down, until):
        """Times of datagrams that did not come both ways though they were sent outside of the windows in which the link was down, before `until`."""
        with self.lock:
            times = [(at, came) for at, came in zip(self.sent, self.came) if at < until]
        inside = lambda at: any(begin <= at <= end for begin, end in down)  # noqa: E731
        return [at for at, came in times if came != 3 and not inside(at)]

    def stop(self):
        self.over.set()
        self.thread.join()
