# SPDX-License-Identifier: Apache-2.0
"""How connections end: at once after data, in halves, from both sides, by resets. Both ends are sockets of this thread, so that
nothing but the path stands between a step and the next."""

import contextlib
import ctypes
import errno
import select
import socket
import struct
import time

from good.case import Case, equal, need, percentile, pump, receive, reset_at_close

PORT = 7001
ROUNDS = 1000
# Of the shorter cases: as many as it takes that one pause of a busy machine is not the 99th of a hundred.
TURNS = 200
SO_ATTACH_FILTER, SO_DETACH_FILTER = 26, 27
TCP_CLOSE = 7


def send_and_close(way):
    """1,000 connections: the client sends a few bytes and ends its direction at once; how long until the server has read the
    end, and, with an answer that is closed at once, until the client has."""
    there, back = [], []
    with contextlib.ExitStack() as outer:
        listener = outer.enter_context(way.listener(PORT))
        for number in range(ROUNDS):
            with contextlib.ExitStack() as stack:
                client, server = way.connected(stack, listener, way.server, PORT)
                data = b"hello %d" % number
                begin = time.perf_counter()
                client.sendall(data)
                client.shutdown(socket.SHUT_WR)
                equal(receive(server, 100), data, "what the server read until the end")
                middle = time.perf_counter()
                server.sendall(data[::-1])
                server.close()
                equal(receive(client, 100), data[::-1], "what the client read until the end")
                there.append(1e3 * (middle - begin))
                back.append(1e3 * (time.perf_counter() - middle))
    return {"close by client, p99": percentile(there, 99), "close by server, p99": percentile(back, 99)}


def close_at_once(way):
    """`close`, not `shutdown`, right after the data, of one byte and of many."""
    times = []
    with way.listener(PORT) as listener:
        for number in range(300):
            with contextlib.ExitStack() as stack:
                client, server = way.connected(stack, listener, way.server, PORT)
                data = bytes([number % 251]) * (1, 1448, 20_000)[number % 3]
                begin = time.perf_counter()
                client.sendall(data)
                client.close()
                need(receive(server, len(data) + 1) == data, "the server read other bytes than were sent before the close")
                times.append(1e3 * (time.perf_counter() - begin))
    return {"send and close, p99": percentile(times, 99)}


def half_close(way):
    """The client has said all; the server goes on for 5 MB; and the other way round."""
    data = bytes(range(256)) * 20_000
    for turn in (0, 1):
        with way.pair(PORT) as ends:
            first, second = ends[turn], ends[1 - turn]
            first.sendall(b"all that I have to say")
            first.shutdown(socket.SHUT_WR)
            equal(receive(second, 100), b"all that I have to say", "until the half close")
            time.sleep(0.3)
            need(pump([(second, first, data)])[0] == data, "bytes after the half close differ")


def simultaneous_close(way):
    """Both ends end their direction within microseconds, before either has heard of the other's end."""
    times = []
    with way.listener(PORT) as listener:
        for number in range(300):
            with contextlib.ExitStack() as stack:
                client, server = way.connected(stack, listener, way.server, PORT)
                client.sendall(b"ping")
                equal(receive(server, 4), b"ping", "request")
                begin = time.perf_counter()
                # With and without data before both ends.
                if number % 2:
                    client.send(b"last of the client")
                    server.send(b"last of the server")
                client.shutdown(socket.SHUT_WR)
                server.shutdown(socket.SHUT_WR)
                equal(receive(server, 100), b"last of the client" if number % 2 else b"", "the server's last")
                equal(receive(client, 100), b"last of the server" if number % 2 else b"", "the client's last")
                times.append(1e3 * (time.perf_counter() - begin))
    return {"simultaneous close, p99": percentile(times, 99)}


def last_ack_lost(way):
    """The acknowledgement of the last FIN is lost behind the path: the FIN that is sent again must get its acknowledgement."""
    for turn in range(6):
        with way.pair(PORT) as ends:
            first, last = ends[turn % 2], ends[1 - turn % 2]
            first.sendall(b"all")
            first.shutdown(socket.SHUT_WR)
            equal(receive(last, 10), b"all", "until the first end")
            hear_nothing(last, True)
            if turn > 1:
                last.sendall(b"my last words")
            last.shutdown(socket.SHUT_WR)
            equal(receive(first, 100), b"my last words" if turn > 1 else b"", "until the second end")
            time.sleep(0.05)
            hear_nothing(last, False)
            end = time.monotonic() + 5
            while state_of(last) != TCP_CLOSE:
                need(time.monotonic() < end, f"the end that closed last waits for the acknowledgement of its FIN, state {state_of(last)}, after 5 s")
                time.sleep(0.01)


def hear_nothing(sock, deaf):
    """Throws away what arrives at a socket, or no more: a filter of one instruction, `return 0`."""
    if not deaf:
        sock.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
        return
    code = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))
    sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(code)))


def state_of(sock):
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]


def resets(way):
    """A reset by either end, with nothing and with much under way; the other learns of it at once."""
    times = []
    with way.listener(PORT) as listener:
        for number in range(200):
            with contextlib.ExitStack() as stack:
                ends = way.connected(stack, listener, way.server, PORT)
                one, other = ends if number % 2 else ends[::-1]
                one.sendall(b"x" * 100)
                receive(other, 100)
                if number % 4 > 1:
                    # Data that is never read: the reset comes while it is under way.
                    other.setblocking(False)
                    with contextlib.suppress(BlockingIOError):
                        while True:
                            other.send(b"y" * 65_536)
                    other.setblocking(True)
                    other.settimeout(20)
                begin = time.perf_counter()
                reset_at_close(one)
                one.close()
                times.append(1e3 * learns_of_reset(other, begin))
    return {"reset, p99": percentile(times, 99)}


def learns_of_reset(sock, begin):
    """Seconds until the socket has an error; it must be a reset."""
    poller = select.poll()
    poller.register(sock, select.POLLERR)
    need(poller.poll(20_000), "the other end does not learn of the reset within 20 s")
    code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    need(code in (errno.ECONNRESET, errno.EPIPE), f"the other end gets the error {errno.errorcode.get(code, code)}, not ECONNRESET")
    return time.perf_counter() - begin


def nobody_listens(way):
    """Ports without a server: TCP and UDP say so at once. Ten of them, again and again: twice as many are what `portscan` is there for."""
    times = []
    for number in range(TURNS):
        with way.socket("c") as sock:
            begin = time.perf_counter()
            code = sock.connect_ex((way.server, 7100 + number % 10))
            times.append(1e3 * (time.perf_counter() - begin))
            equal(errno.errorcode.get(code, code), "ECONNREFUSED", "answer of a closed TCP port")
    for number in range(TURNS):
        with way.socket("c", socket.SOCK_DGRAM) as sock:
            sock.connect((way.server, 7100 + number % 10))
            begin = time.perf_counter()
            sock.send(b"anybody there?")
            try:
                sock.recv(100)
                need(False, "a closed UDP port answered")
            except ConnectionRefusedError:
                times.append(1e3 * (time.perf_counter() - begin))
            except TimeoutError:
                need(False, "a closed UDP port's ICMP error did not come within 20 s")
    return {"refused by the host, p99": percentile(times, 99)}


def ports_again(way):
    """The same client port again and again: each connection begins where the last one has hardly ended."""
    times = []
    with way.listener(PORT) as listener:
        for number in range(TURNS):
            with contextlib.ExitStack() as stack:
                client = stack.enter_context(way.socket("c"))
                client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                client.bind((way.client, 9999))
                begin = time.perf_counter()
                connect_when_free(client, (way.server, PORT))
                server, _ = listener.accept()
                stack.enter_context(server)
                server.settimeout(20)
                client.sendall(b"turn %d" % number)
                equal(receive(server, len(b"turn %d" % number)), b"turn %d" % number, "data")
                times.append(1e3 * (time.perf_counter() - begin))
                if number % 2:
                    # The server ends first and keeps the address in TIME_WAIT, from which a new SYN may take
                    # it.
                    server.close()
                    equal(receive(client, 10), b"", "end")
                else:
                    reset_at_close(client)
    return {"port used again, p99": percentile(times, 99)}


def connect_when_free(client, address):
    """The last connection of these ports may wait for its last acknowledgement: its address is free a moment later."""
    for _ in range(2000):
        code = client.connect_ex(address)
        if code != errno.EADDRNOTAVAIL:
            break
        time.sleep(0.001)
    equal(errno.errorcode.get(code, code), 0, "connecting")


CASES = [
    Case("send-and-close", send_and_close, short=True, margins={"close by client, p99": 5, "close by server, p99": 5}),
    Case("close-at-once", close_at_once, short=True, margins={"send and close, p99": 5}),
    Case("half-close", half_close, short=True, mtus=(1500, 9000)),
    Case("simultaneous-close", simultaneous_close, short=True, margins={"simultaneous close, p99": 5}),
    Case("last-ack-lost", last_ack_lost, short=True),
    Case("resets", resets, short=True, margins={"reset, p99": 5}),
    Case("nobody-listens", nobody_listens, short=True, margins={"refused by the host, p99": 5}),
    Case("ports-again", ports_again, short=True, margins={"port used again, p99": 5}),
]
