#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Calls and orders of calls on TCP sockets, each with what it returned: return values, errno, bytes.

Run twice, with plain sockets and as a guest; the outputs have to be equal (calls.rs). A line for each case:
name, a tab, what happened. Addresses and ports are left out of the results, except where they are compared
within a case.
"""

import array
import errno
import fcntl
import os
import select
import signal
import socket
import struct
import sys
import termios
import threading
import time

CASES = []
FAMILY = socket.AF_INET
HOST = "127.0.0.1"
POLL = {1: "IN", 4: "OUT", 8: "ERR", 16: "HUP", 0x2000: "RDHUP", 2: "PRI"}
ALL = select.POLLIN | select.POLLOUT | select.POLLPRI | 0x2000


def case(function):
    """Registers a case by its name."""
    CASES.append(function)
    return function


def t(function, *arguments):
    """The value of a call, or the name of its errno."""
    try:
        value = function(*arguments)
        return value.decode("latin1") if isinstance(value, bytes) else value
    except socket.timeout:
        return "timeout"
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))


def new():
    return socket.socket(FAMILY, socket.SOCK_STREAM)


def listener(backlog=8):
    s = new()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((HOST, 0))
    s.listen(backlog)
    return s


def pair():
    """A connected pair: client and accepted connection."""
    server = listener()
    client = new()
    client.connect(server.getsockname())
    connection, _ = server.accept()
    server.close()
    return client, connection


def closed_port():
    s = new()
    s.bind((HOST, 0))
    address = s.getsockname()
    s.close()
    return address


def events(s, wait=0, mask=ALL):
    """What poll says."""
    p = select.poll()
    p.register(s, mask)
    got = p.poll(wait)
    bits = got[0][1] if got else 0
    return "|".join(name for bit, name in POLL.items() if bits & bit) or "-"


def until(function, wanted, seconds=5.0):
    """The value once it is as wanted: payload takes its time."""
    end = time.monotonic() + seconds
    while True:
        value = function()
        if value == wanted or time.monotonic() > end:
            return value
        time.sleep(0.002)


def readable(s):
    return until(lambda: "IN" in events(s), True)


def unread(s):
    return struct.unpack("i", fcntl.ioctl(s, termios.FIONREAD, b"\0\0\0\0"))[0]


def all_of(s, count):
    data = b""
    while len(data) < count:
        part = s.recv(count - len(data))
        if not part:
            break
        data += part
    return data


def reset(s):
    """Closes with a RST."""
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


# --- making, naming -----------------------------------------------------------------------------------


@case
def a_new_socket_has_its_type():
    s = new()
    names = (socket.SO_TYPE, socket.SO_DOMAIN, socket.SO_PROTOCOL, socket.SO_ERROR, socket.SO_ACCEPTCONN)
    return [s.getsockopt(socket.SOL_SOCKET, name) for name in names]


@case
def a_new_socket_has_no_names():
    s = new()
    return [s.getsockname()[1], t(s.getpeername)]


@case
def a_new_socket_takes_the_lowest_number():
    a = os.open("/dev/null", os.O_RDONLY)
    os.close(a)
    s = new()
    return s.fileno() == a


@case
def a_new_socket_is_closed_on_exec_or_not():
    result = []
    for flag in (0, socket.SOCK_CLOEXEC):
        s = socket.socket(FAMILY, socket.SOCK_STREAM | flag)
        result.append(fcntl.fcntl(s, fcntl.F_GETFD))
    return result


@case
def flags_of_a_new_socket():
    result = []
    for flag in (0, socket.SOCK_NONBLOCK):
        s = socket.socket(FAMILY, socket.SOCK_STREAM | flag)
        result.append(fcntl.fcntl(s, fcntl.F_GETFL) & (os.O_NONBLOCK | os.O_ACCMODE))
    return result


@case
def bind_gives_a_name():
    s = new()
    return [t(s.bind, (HOST, 0)), s.getsockname()[0], s.getsockname()[1] > 0]


@case
def bind_twice():
    s = new()
    s.bind((HOST, 0))
    return t(s.bind, (HOST, 0))


@case
def bind_to_a_taken_port():
    a, b = new(), new()
    a.bind((HOST, 0))
    a.listen(1)
    return t(b.bind, a.getsockname())


@case
def bind_to_a_foreign_address():
    s = new()
    return t(s.bind, ("203.0.113.1" if FAMILY == socket.AF_INET else "2001:db8::1", 0))


@case
def bind_after_connect():
    a, b = pair()
    return t(a.bind, (HOST, 0))


@case
def bind_then_connect_keeps_the_port():
    server = listener()
    s = new()
    s.bind((HOST, 0))
    port = s.getsockname()[1]
    s.connect(server.getsockname())
    return [s.getsockname()[1] == port, server.accept()[1][1] == port]


@case
def names_of_a_pair_match():
    a, b = pair()
    return [a.getsockname() == b.getpeername(), a.getpeername() == b.getsockname()]


# --- connect ------------------------------------------------------------------------------------------


@case
def connect_to_a_closed_port():
    s = new()
    return t(s.connect, closed_port())


@case
def connect_to_a_closed_port_and_again():
    s = new()
    first = t(s.connect, closed_port())
    server = listener()
    return [first, t(s.connect, server.getsockname())]


@case
def connect_twice():
    server = listener()
    s = new()
    return [t(s.connect, server.getsockname()), t(s.connect, server.getsockname())]


@case
def connect_a_listener():
    server = listener()
    return t(server.connect, server.getsockname())


@case
def connect_to_the_other_family():
    s = socket.socket(FAMILY, socket.SOCK_STREAM)
    other = socket.AF_INET6 if FAMILY == socket.AF_INET else socket.AF_INET
    plain = socket.socket(other, socket.SOCK_STREAM, fileno=os.dup(s.fileno()))
    return t(plain.connect, ("::1" if other == socket.AF_INET6 else "127.0.0.1", 1))


@case
def connect_in_the_background():
    server = listener()
    s = new()
    s.setblocking(False)
    first = s.connect_ex(server.getsockname())
    return [
        first in (0, errno.EINPROGRESS),
        until(lambda: "OUT" in events(s), True),
        s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR),
        s.connect_ex(server.getsockname()) in (0, errno.EISCONN),
        errno.errorcode.get(s.connect_ex(server.getsockname())),
    ]


@case
def connect_in_the_background_to_a_closed_port():
    s = new()
    s.setblocking(False)
    first = s.connect_ex(closed_port())
    if first == errno.ECONNREFUSED:
        return ["refused", 0]
    until(lambda: "OUT" in events(s), True)
    return ["refused" if s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED else "?",
            s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)]


@case
def a_refused_connect_is_writable():
    s = new()
    s.setblocking(False)
    s.connect_ex(closed_port())
    return until(lambda: "OUT" in events(s) and "IN" in events(s), True)


@case
def connect_in_the_background_and_epoll():
    server = listener()
    s = new()
    s.setblocking(False)
    e = select.epoll()
    s.connect_ex(server.getsockname())
    e.register(s, select.EPOLLOUT | select.EPOLLET)
    got = e.poll(5)
    return [len(got), got and got[0][1] & select.EPOLLOUT, s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)]


@case
def connect_with_a_short_address():
    import ctypes
    s = new()
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.connect(s.fileno(), struct.pack("H", FAMILY), 2)
    return [result, errno.errorcode.get(ctypes.get_errno())]


@case
def connect_with_no_family_ends_the_association():
    import ctypes
    a, b = pair()
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.connect(a.fileno(), b"\0" * 16, 16)
    return [result, t(a.getpeername), t(b.recv, 1)]


@case
def connect_again_after_the_association():
    import ctypes
    a, b = pair()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.connect(a.fileno(), b"\0" * 16, 16)
    server = listener()
    result = t(a.connect, server.getsockname())
    connection, _ = server.accept()
    a.send(b"again")
    return [result, t(connection.recv, 10)]


# --- listen, accept -----------------------------------------------------------------------------------


@case
def accept_without_listen():
    s = new()
    return t(s.accept)


@case
def accept_of_a_connection():
    a, b = pair()
    return t(a.accept)


@case
def accept_without_a_connection():
    s = listener()
    s.setblocking(False)
    return t(s.accept)


@case
def accept_with_a_time():
    s = listener()
    s.setblocking(True)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("qq", 0, 50_000))
    return t(s.accept)


@case
def accept_waits():
    s = listener()
    client = new()
    timer = threading.Timer(0.05, lambda: client.connect(s.getsockname()))
    timer.start()
    connection, address = s.accept()
    timer.join()
    return address == client.getsockname()


@case
def accept_in_order():
    s = listener()
    clients = []
    for index in range(4):
        client = new()
        client.connect(s.getsockname())
        client.send(bytes([65 + index]))
        clients.append(client)
    return [t(s.accept()[0].recv, 1) for _ in range(4)]


@case
def accept_flags():
    s = listener()
    clients = [new(), new()]
    for client in clients:
        client.connect(s.getsockname())
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    result = []
    for flags in (0, socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC):
        fd = libc.accept4(s.fileno(), None, None, flags)
        result.append([fcntl.fcntl(fd, fcntl.F_GETFD), fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK])
        os.close(fd)
    return result


@case
def accept_does_not_inherit_nonblocking():
    s = listener()
    client = new()
    client.connect(s.getsockname())
    readable(s)
    s.setblocking(False)
    fd, _ = s._accept()
    flags = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK
    os.close(fd)
    return flags


@case
def listen_is_readable_with_a_connection():
    s = listener()
    before = events(s, mask=select.POLLIN)
    client = new()
    client.connect(s.getsockname())
    ready = readable(s)
    s.accept()
    return [before, ready, until(lambda: events(s, mask=select.POLLIN), "-")]


@case
def listen_twice():
    s = listener()
    return [t(s.listen, 5), s.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)]


@case
def listen_without_bind():
    s = new()
    return [t(s.listen, 5), s.getsockname()[1] > 0]


@case
def listen_on_a_connection():
    a, b = pair()
    return t(a.listen, 5)


@case
def a_listener_closed_refuses():
    s = listener()
    address = s.getsockname()
    s.close()
    return until(lambda: t(new().connect, address), "ECONNREFUSED")


@case
def a_listener_shut_for_reading():
    s = listener()
    result = t(s.shutdown, socket.SHUT_RD)
    return [result, t(s.accept)]


@case
def recv_on_a_listener():
    return t(listener().recv, 1)


@case
def send_on_a_listener():
    return t(listener().send, b"x")


@case
def connections_waiting_at_a_closed_listener_are_reset():
    s = listener()
    client = new()
    client.connect(s.getsockname())
    readable(s)
    s.close()
    return t(client.recv, 1)


# --- reading and writing ------------------------------------------------------------------------------


@case
def send_and_recv():
    a, b = pair()
    return [a.send(b"hello"), t(b.recv, 100)]


@case
def recv_in_pieces():
    a, b = pair()
    a.send(b"hello")
    return [t(b.recv, 2), t(b.recv, 2), t(b.recv, 2)]


@case
def recv_without_bytes():
    a, b = pair()
    a.setblocking(False)
    return t(a.recv, 1)


@case
def recv_dontwait():
    a, b = pair()
    return t(a.recv, 1, socket.MSG_DONTWAIT)


@case
def recv_with_a_time():
    a, b = pair()
    a.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("qq", 0, 30_000))
    return t(a.recv, 1)


@case
def recv_peek():
    a, b = pair()
    a.send(b"hello")
    readable(b)
    return [t(b.recv, 3, socket.MSG_PEEK), unread(b), t(b.recv, 10)]


@case
def recv_waitall():
    a, b = pair()
    threading.Thread(target=lambda: [(a.send(b"abc"), time.sleep(0.02)) for _ in range(3)]).start()
    return t(b.recv, 9, socket.MSG_WAITALL)


@case
def recv_waitall_at_the_end():
    a, b = pair()
    a.send(b"abc")
    a.close()
    return t(b.recv, 9, socket.MSG_WAITALL)


@case
def recv_discards():
    a, b = pair()
    a.send(b"abcdef")
    readable(b)
    return [b.recv_into(bytearray(3), 3, socket.MSG_TRUNC), t(b.recv, 10)]


@case
def recv_of_nothing():
    a, b = pair()
    a.send(b"x")
    readable(b)
    return [t(b.recv, 0), t(b.recv, 1)]


@case
def recvfrom_has_no_address():
    a, b = pair()
    a.send(b"x")
    data, address = b.recvfrom(5)
    return [data.decode(), address is None or address == ("", 0) or str(address)]


@case
def recvmsg_in_parts():
    a, b = pair()
    a.send(b"hello world")
    readable(b)
    parts = [bytearray(5), bytearray(1), bytearray(20)]
    count, control, flags, _ = b.recvmsg_into(parts)
    return [count, bytes(parts[0]).decode(), bytes(parts[2][:5]).decode(), control, flags]


@case
def sendmsg_in_parts():
    a, b = pair()
    return [a.sendmsg([b"he", b"", b"llo"]), t(all_of, b, 5)]


@case
def sendto_ignores_the_address():
    a, b = pair()
    return [t(a.sendto, b"x", (HOST, 9)), t(b.recv, 1)]


@case
def read_and_write():
    a, b = pair()
    return [os.write(a.fileno(), b"abc"), t(os.read, b.fileno(), 10)]


@case
def readv_and_writev():
    a, b = pair()
    parts = [bytearray(2), bytearray(9)]
    written = os.writev(a.fileno(), [b"ab", b"cde"])
    readable(b)
    return [written, os.readv(b.fileno(), parts), bytes(parts[0]).decode(), bytes(parts[1][:3]).decode()]


@case
def pread_is_refused():
    a, b = pair()
    return [t(os.pread, a.fileno(), 1, 0), t(os.pwrite, a.fileno(), b"x", 0), t(os.lseek, a.fileno(), 0, 0)]


@case
def send_of_nothing():
    a, b = pair()
    return a.send(b"")


@case
def send_urgent_is_read_or_refused():
    a, b = pair()
    return t(b.recv, 1, socket.MSG_OOB)


@case
def a_megabyte_both_ways():
    a, b = pair()
    data = bytes(range(256)) * 4096
    sender = threading.Thread(target=lambda: (a.sendall(data), a.shutdown(socket.SHUT_WR)))
    sender.start()
    got = all_of(b, len(data) + 1)
    sender.join()
    b.sendall(got[:1000])
    return [got == data, all_of(a, 1000) == data[:1000]]


@case
def a_full_buffer_says_again():
    a, b = pair()
    a.setblocking(False)
    total, again = 0, 0
    while again < 4:
        count = t(a.send, b"x" * 60000)
        if isinstance(count, int):
            total += count
            again = 0
        else:
            again += 1
            time.sleep(0.02)
    unwritable = until(lambda: "OUT" in events(a), False)
    got = all_of(b, total)
    return [count, unwritable, len(got) == total, until(lambda: "OUT" in events(a), True)]


@case
def a_full_buffer_and_epoll():
    a, b = pair()
    a.setblocking(False)
    e = select.epoll()
    e.register(a, select.EPOLLOUT | select.EPOLLET)
    first = len(e.poll(1))
    total = 0
    while True:
        count = t(a.send, b"x" * 60000)
        if not isinstance(count, int):
            break
        total += count
    all_of(b, total)
    return [first, len(e.poll(5)), t(a.send, b"y")]


@case
def a_blocked_send_goes_on():
    a, b = pair()
    data = b"z" * 6_000_000
    thread = threading.Thread(target=lambda: a.sendall(data))
    thread.start()
    time.sleep(0.05)
    got = len(all_of(b, len(data)))
    thread.join()
    return got


@case
def send_with_a_time_to_nobody_who_reads():
    a, b = pair()
    a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("qq", 0, 50_000))
    result = 1
    while isinstance(result, int):
        result = t(a.send, b"x" * 100_000)
    return result


@case
def sendfile_sends_a_file():
    a, b = pair()
    with open(sys.argv[0], "rb") as file:
        size = os.fstat(file.fileno()).st_size
        sent = os.sendfile(a.fileno(), file.fileno(), 10, 5000)
        where = os.lseek(file.fileno(), 0, os.SEEK_CUR)
        data = all_of(b, sent)
        file.seek(10)
        return [sent, where, data == file.read(sent), size > 5000]


@case
def sendfile_from_where_the_file_is():
    a, b = pair()
    with open(sys.argv[0], "rb") as file:
        os.lseek(file.fileno(), 7, os.SEEK_SET)
        sent = os.sendfile(a.fileno(), file.fileno(), None, 100)
        return [sent, os.lseek(file.fileno(), 0, os.SEEK_CUR), len(all_of(b, 100))]


@case
def sendfile_of_a_stream_is_refused():
    a, b = pair()
    c, d = pair()
    return t(os.sendfile, a.fileno(), c.fileno(), None, 10)


@case
def sendfile_past_the_end():
    a, b = pair()
    with open(sys.argv[0], "rb") as file:
        return os.sendfile(a.fileno(), file.fileno(), 1 << 30, 100)


@case
def splice_through_a_pipe():
    if not hasattr(os, "splice"):
        return "no splice"
    a, b = pair()
    c, d = pair()
    r, w = os.pipe()
    a.send(b"through a pipe")
    readable(b)
    first = os.splice(b.fileno(), w, 100)
    second = os.splice(r, c.fileno(), 100)
    return [first, second, t(all_of, d, 14)]


# --- ends ---------------------------------------------------------------------------------------------


@case
def end_of_bytes_at_close():
    a, b = pair()
    a.send(b"last")
    a.close()
    return [t(all_of, b, 4), t(b.recv, 1), t(b.recv, 1)]


@case
def half_close_and_answer():
    a, b = pair()
    a.send(b"question")
    a.shutdown(socket.SHUT_WR)
    question = b""
    while part := b.recv(100):
        question += part
    b.send(b"answer")
    b.close()
    return [question.decode(), t(all_of, a, 10)]


@case
def send_after_shutdown():
    a, b = pair()
    a.shutdown(socket.SHUT_WR)
    return [t(a.send, b"x"), t(a.send, b"x")]


@case
def recv_after_shutdown_for_reading():
    a, b = pair()
    a.shutdown(socket.SHUT_RD)
    return [t(a.recv, 1), t(a.send, b"x"), t(b.recv, 1)]


@case
def bytes_after_shutdown_for_reading():
    a, b = pair()
    b.send(b"before")
    readable(a)
    a.shutdown(socket.SHUT_RD)
    return [t(a.recv, 10), t(a.recv, 10)]


@case
def shutdown_both():
    a, b = pair()
    a.shutdown(socket.SHUT_RDWR)
    return [t(a.recv, 1), t(a.send, b"x"), t(b.recv, 1)]


@case
def shutdown_twice():
    a, b = pair()
    return [t(a.shutdown, socket.SHUT_WR), t(a.shutdown, socket.SHUT_WR)]


@case
def shutdown_without_connection():
    return t(new().shutdown, socket.SHUT_WR)


@case
def shutdown_of_a_nonsense_kind():
    a, b = pair()
    return t(a.shutdown, 7)


@case
def shutdown_wakes_a_reader():
    a, b = pair()
    threading.Timer(0.05, lambda: a.shutdown(socket.SHUT_RDWR)).start()
    return t(a.recv, 1)


@case
def a_reset_is_read():
    a, b = pair()
    reset(b)
    return [t(a.recv, 1), t(a.recv, 1), t(a.send, b"x")]


@case
def a_reset_is_met_by_send():
    a, b = pair()
    reset(b)
    until(lambda: "IN" in events(a), True)
    return [t(a.send, b"x"), t(a.send, b"x")]


@case
def a_reset_is_the_sockets_error():
    a, b = pair()
    reset(b)
    until(lambda: "IN" in events(a), True)
    return [errno.errorcode.get(a.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)), t(a.recv, 1)]


@case
def a_reset_has_no_peer():
    a, b = pair()
    reset(b)
    t(a.recv, 1)
    return t(a.getpeername)


@case
def bytes_before_a_reset_are_read():
    a, b = pair()
    b.send(b"first")
    readable(a)
    reset(b)
    time.sleep(0.05)
    return [t(a.recv, 10), t(a.recv, 10)]


@case
def unread_bytes_reset_the_peer():
    a, b = pair()
    a.send(b"never read")
    readable(b)
    b.close()
    return [t(a.recv, 1)]


@case
def send_to_a_closed_peer():
    a, b = pair()
    b.close()
    readable(a)
    first = t(a.send, b"x")
    return [first, until(lambda: t(a.send, b"x"), "EPIPE")]


@case
def the_signal_of_a_broken_pipe():
    a, b = pair()
    seen = []
    before = signal.signal(signal.SIGPIPE, lambda *_: seen.append(1))
    a.shutdown(socket.SHUT_WR)
    result = [t(a.send, b"x"), t(os.write, a.fileno(), b"x"), t(a.send, b"x", socket.MSG_NOSIGNAL)]
    signal.signal(signal.SIGPIPE, before)
    return [result, len(seen)]


@case
def recv_without_connection():
    return [t(new().recv, 1), t(new().recv, 1, socket.MSG_DONTWAIT)]


@case
def send_without_connection():
    return t(new().send, b"x")


@case
def a_signal_interrupts_recv():
    import ctypes
    a, b = pair()
    libc = ctypes.CDLL(None, use_errno=True)
    signal.signal(signal.SIGUSR1, lambda *_: None)
    signal.siginterrupt(signal.SIGUSR1, True)
    me = threading.main_thread().ident
    threading.Timer(0.1, lambda: signal.pthread_kill(me, signal.SIGUSR1)).start()
    result = libc.recv(a.fileno(), ctypes.create_string_buffer(4), 4, 0)
    return [result, errno.errorcode.get(ctypes.get_errno())]


@case
def a_restarting_signal_does_not():
    import ctypes
    a, b = pair()
    libc = ctypes.CDLL(None, use_errno=True)
    signal.signal(signal.SIGUSR2, lambda *_: None)
    signal.siginterrupt(signal.SIGUSR2, False)
    me = threading.main_thread().ident
    threading.Timer(0.1, lambda: signal.pthread_kill(me, signal.SIGUSR2)).start()
    threading.Timer(0.2, lambda: b.send(b"abcd")).start()
    return libc.recv(a.fileno(), ctypes.create_string_buffer(4), 4, 0)


# --- waiting ------------------------------------------------------------------------------------------


@case
def poll_of_a_fresh_pair():
    a, b = pair()
    return events(a)


@case
def poll_with_bytes():
    a, b = pair()
    a.send(b"x")
    readable(b)
    before = events(b)
    b.recv(1)
    return [before, events(b)]


@case
def poll_stays_readable_with_a_rest():
    a, b = pair()
    a.send(b"xyz")
    readable(b)
    b.recv(1)
    return events(b)


@case
def poll_at_the_end():
    a, b = pair()
    a.shutdown(socket.SHUT_WR)
    readable(b)
    return until(lambda: events(b), "IN|OUT|RDHUP")


@case
def poll_waits():
    a, b = pair()
    threading.Timer(0.05, lambda: a.send(b"x")).start()
    return events(b, 5000, select.POLLIN)


@case
def poll_has_a_time():
    a, b = pair()
    return events(b, 20, select.POLLIN)


@case
def poll_of_a_closed_number():
    a, b = pair()
    p = select.poll()
    p.register(a.fileno(), select.POLLIN)
    a.close()
    return p.poll(0)[0][1] == 32


@case
def select_of_a_pair():
    a, b = pair()
    a.send(b"x")
    readable(b)
    r, w, x = select.select([a, b], [a, b], [a, b], 0)
    return [r == [b], w == [a, b], x]


@case
def select_waits():
    a, b = pair()
    threading.Timer(0.05, lambda: a.send(b"x")).start()
    return [s is b for s in select.select([b], [], [], 5)[0]]


@case
def epoll_level():
    a, b = pair()
    e = select.epoll()
    e.register(b, select.EPOLLIN)
    none = len(e.poll(0))
    a.send(b"xy")
    result = [none, len(e.poll(5)), len(e.poll(5))]
    b.recv(1)
    result.append(len(e.poll(1)))
    b.recv(1)
    return result + [len(e.poll(0))]


@case
def epoll_edge():
    a, b = pair()
    e = select.epoll()
    e.register(b, select.EPOLLIN | select.EPOLLET)
    a.send(b"x")
    result = [len(e.poll(5)), len(e.poll(0))]
    a.send(b"y")
    result.append(len(e.poll(5)))
    return result + [t(all_of, b, 2), len(e.poll(0))]


@case
def epoll_edge_with_a_rest():
    a, b = pair()
    e = select.epoll()
    e.register(b, select.EPOLLIN | select.EPOLLET)
    result = []
    for _ in range(12):
        a.send(b"xx")
        result.append(len(e.poll(5)))
        b.recv(1)
    return result


@case
def epoll_oneshot():
    a, b = pair()
    e = select.epoll()
    e.register(b, select.EPOLLIN | select.EPOLLONESHOT)
    a.send(b"x")
    result = [len(e.poll(5)), len(e.poll(0))]
    e.modify(b, select.EPOLLIN | select.EPOLLONESHOT)
    return result + [len(e.poll(1))]


@case
def epoll_of_a_connection_with_bytes():
    a, b = pair()
    a.send(b"x")
    until(lambda: unread(b), 1)
    e = select.epoll()
    e.register(b, select.EPOLLIN)
    return len(e.poll(0))


@case
def epoll_at_the_end():
    a, b = pair()
    e = select.epoll()
    e.register(b, select.EPOLLIN | select.EPOLLRDHUP)
    a.close()
    return until(lambda: e.poll(5)[0][1], select.EPOLLIN | select.EPOLLRDHUP)


@case
def epoll_of_a_listener():
    s = listener()
    e = select.epoll()
    e.register(s, select.EPOLLIN | select.EPOLLET)
    clients = []
    result = []
    for _ in range(3):
        client = new()
        client.connect(s.getsockname())
        clients.append(client)
        result.append(len(e.poll(5)))
        s.accept()
    return result + [len(e.poll(0))]


@case
def epoll_of_many():
    e = select.epoll()
    pairs = [pair() for _ in range(20)]
    for _, b in pairs:
        e.register(b, select.EPOLLIN)
    for a, _ in pairs[::2]:
        a.send(b"x")
    return until(lambda: len(e.poll(1, 100)), 10)


@case
def epoll_forgets_a_closed_number():
    a, b = pair()
    e = select.epoll()
    e.register(b, select.EPOLLIN)
    b.close()
    return [len(e.poll(0)), t(e.modify, b.fileno() if b.fileno() >= 0 else 999, 0)]


# --- descriptors --------------------------------------------------------------------------------------


@case
def fionread_is_true():
    a, b = pair()
    before = unread(b)
    a.send(b"12345")
    return [before, until(lambda: unread(b), 5)]


@case
def fionread_of_a_listener():
    return t(unread, listener())


@case
def fionread_without_connection():
    return t(unread, new())


@case
def fionbio():
    a, b = pair()
    fcntl.ioctl(a, 0x5421, struct.pack("i", 1))
    flag = fcntl.fcntl(a, fcntl.F_GETFL) & os.O_NONBLOCK
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    return [flag, libc.recv(a.fileno(), ctypes.create_string_buffer(1), 1, 0), errno.errorcode.get(ctypes.get_errno())]


@case
def nonblocking_by_fcntl_is_shared_by_dup():
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    a, b = pair()
    other = os.dup(a.fileno())
    fcntl.fcntl(other, fcntl.F_SETFL, os.O_NONBLOCK)
    result = libc.recv(a.fileno(), ctypes.create_string_buffer(1), 1, 0)
    os.close(other)
    return [result, errno.errorcode.get(ctypes.get_errno())]


@case
def dup_reads_the_same_stream():
    a, b = pair()
    other = os.dup(b.fileno())
    a.send(b"abcdef")
    readable(b)
    result = [t(os.read, other, 2), t(b.recv, 2)]
    b.close()
    result.append(t(os.read, other, 10))
    os.close(other)
    return result


@case
def dup2_over_a_stream_closes_it():
    a, b = pair()
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, b.fileno())
    result = [t(a.recv, 1), os.write(b.fileno(), b"x")]
    os.close(null)
    return result


@case
def dup2_of_a_stream():
    a, b = pair()
    target = os.open("/dev/null", os.O_RDWR)
    os.dup2(b.fileno(), target)
    b.close()
    a.send(b"moved")
    result = t(os.read, target, 10)
    os.close(target)
    return [result, t(a.recv, 1)]


@case
def dup_by_fcntl():
    a, b = pair()
    other = fcntl.fcntl(b, fcntl.F_DUPFD_CLOEXEC, 100)
    a.send(b"x")
    result = [other >= 100, t(os.read, other, 1)]
    os.close(other)
    return result


@case
def close_while_a_copy_lives():
    a, b = pair()
    other = os.dup(b.fileno())
    b.close()
    a.setblocking(False)
    first = t(a.recv, 1)
    os.close(other)
    readable(a)
    return [first, t(a.recv, 1)]


@case
def close_twice():
    a, b = pair()
    number = a.detach()
    os.close(number)
    return t(os.close, number)


@case
def a_number_used_again_is_a_file():
    a, b = pair()
    number = b.fileno()
    b.close()
    file = os.open("/dev/null", os.O_WRONLY)
    result = [file == number, os.write(file, b"xyz"), t(a.recv, 1)]
    os.close(file)
    return result


@case
def fork_shares_the_stream():
    a, b = pair()
    pid = os.fork()
    if pid == 0:
        a.send(b"child")
        os._exit(0)
    os.waitpid(pid, 0)
    a.send(b"parent")
    return t(all_of, b, 11)


@case
def fork_and_the_last_close_ends():
    a, b = pair()
    pid = os.fork()
    if pid == 0:
        time.sleep(0.1)
        os._exit(0)
    a.close()
    b.setblocking(False)
    first = t(b.recv, 1)
    os.waitpid(pid, 0)
    readable(b)
    return [first, t(b.recv, 1)]


@case
def fork_and_accept_in_the_child():
    s = listener()
    pid = os.fork()
    if pid == 0:
        connection, _ = s.accept()
        connection.send(b"from the child")
        os._exit(0)
    client = new()
    client.connect(s.getsockname())
    result = t(all_of, client, 14)
    os.waitpid(pid, 0)
    return [result, t(client.recv, 1)]


@case
def exec_inherits_a_stream():
    a, b = pair()
    os.set_inheritable(b.fileno(), True)
    code = f"import os; os.write({b.fileno()}, os.read({b.fileno()}, 10)[::-1])"
    a.send(b"abc")
    status = os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", code])
    return [status, t(all_of, a, 3)]


@case
def exec_closes_what_is_not_inherited():
    a, b = pair()
    pid = os.spawnv(os.P_NOWAIT, "/bin/sleep", ["sleep", "0.2"])
    b.close()
    result = t(a.recv, 1)
    os.waitpid(pid, 0)
    return result


@case
def a_subprocess_with_a_stream_as_its_input():
    import subprocess
    a, b = pair()
    process = subprocess.Popen([sys.executable, "-c", "import os; os.write(1, os.read(0, 9).upper())"], stdin=b, stdout=b)
    a.send(b"lower")
    result = t(all_of, a, 5)
    return [process.wait(), result]


@case
def a_stream_is_sent_over_a_unix_socket():
    a, b = pair()
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    socket.send_fds(left, [b"x"], [b.fileno()])
    b.close()
    _, numbers, _, _ = socket.recv_fds(right, 10, 1)
    a.send(b"sent on")
    result = t(os.read, numbers[0], 10)
    os.close(numbers[0])
    return [result, t(a.recv, 1)]


@case
def a_stream_is_sent_to_a_child():
    a, b = pair()
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    pid = os.fork()
    if pid == 0:
        a.close()
        b.close()
        _, numbers, _, _ = socket.recv_fds(right, 10, 1)
        os.write(numbers[0], b"by the child")
        os._exit(0)
    socket.send_fds(left, [b"x"], [b.fileno()])
    b.close()
    os.waitpid(pid, 0)
    left.close()
    right.close()
    return t(all_of, a, 12)


@case
def fdopen_reads_and_writes():
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fdopen.restype = ctypes.c_void_p
    for name in ("fputs", "fflush", "fclose", "fgets"):
        getattr(libc, name).argtypes = {"fputs": [ctypes.c_char_p, ctypes.c_void_p], "fflush": [ctypes.c_void_p],
                                        "fclose": [ctypes.c_void_p],
                                        "fgets": [ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p]}[name]
    a, b = pair()
    file = libc.fdopen(b.detach(), b"r+")
    libc.fputs(b"by stdio\n", file)
    libc.fflush(file)
    first = t(all_of, a, 9)
    a.send(b"to stdio\n")
    line = ctypes.create_string_buffer(100)
    libc.fgets(line, 100, file)
    closed = libc.fclose(file)
    return [first, line.value.decode(), closed, t(a.recv, 1)]


@case
def makefile_lines():
    a, b = pair()
    with a.makefile("rw") as file:
        b.send(b"one\ntwo\n")
        first = file.readline()
        file.write("three\n")
        file.flush()
        return [first, file.readline(), t(all_of, b, 6)]


@case
def fstat_is_of_a_socket():
    import stat
    a, b = pair()
    return stat.S_ISSOCK(os.fstat(a.fileno()).st_mode)


@case
def isatty_is_false():
    a, b = pair()
    return os.isatty(a.fileno())


# --- options ------------------------------------------------------------------------------------------


@case
def options_are_kept():
    s = new()
    result = []
    for level, name, value in (
        (socket.SOL_SOCKET, socket.SO_REUSEADDR, 1),
        (socket.SOL_SOCKET, socket.SO_REUSEPORT, 1),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 33),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 11),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
        (socket.IPPROTO_TCP, socket.TCP_CORK, 1),
        (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 5000),
    ):
        s.setsockopt(level, name, value)
        result.append(s.getsockopt(level, name))
    return result


@case
def options_have_their_defaults():
    s = new()
    return [s.getsockopt(socket.SOL_SOCKET, name) for name in (socket.SO_REUSEADDR, socket.SO_KEEPALIVE, socket.SO_RCVLOWAT, socket.SO_BROADCAST)]


@case
def buffer_sizes_are_doubled():
    s = new()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 20000)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 30000)
    return [s.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF), s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)]


@case
def linger_is_kept():
    s = new()
    before = s.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 5))
    return [list(before), list(s.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8))]


@case
def times_are_kept():
    s = new()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("qq", 2, 500_000))
    return [list(struct.unpack("qq", s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, 16))),
            list(struct.unpack("qq", s.getsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, 16)))]


@case
def a_time_of_too_many_microseconds():
    s = new()
    return t(s.setsockopt, socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("qq", 0, 2_000_000))


@case
def a_short_option():
    s = new()
    return t(s.setsockopt, socket.SOL_SOCKET, socket.SO_KEEPALIVE, b"\1")


@case
def an_unknown_option():
    s = new()
    return [t(s.getsockopt, socket.SOL_SOCKET, 9999), t(s.setsockopt, socket.SOL_SOCKET, 9999, 1)]


@case
def an_option_that_is_only_read():
    s = new()
    return t(s.setsockopt, socket.SOL_SOCKET, socket.SO_TYPE, 1)


@case
def a_value_is_cut_to_its_room():
    s = new()
    return [len(s.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE, 2)), len(s.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE, 64))]


@case
def tcp_info_has_a_state():
    a, b = pair()
    return [len(a.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)), len(new().getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8))]


@case
def the_error_is_read_once():
    s = new()
    s.setblocking(False)
    s.connect_ex(closed_port())
    until(lambda: "OUT" in events(s), True)
    first = s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    return [first in (0, errno.ECONNREFUSED), s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)]


@case
def reuseport_lets_two_listen():
    a, b = new(), new()
    for s in (a, b):
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    a.bind((HOST, 0))
    a.listen(1)
    return [t(b.bind, a.getsockname()), t(b.listen, 1)]


# --- threads ------------------------------------------------------------------------------------------


@case
def two_threads_write_whole_records():
    a, b = pair()
    threads = [threading.Thread(target=lambda c=c: [a.sendall(c * 100) for _ in range(50)]) for c in (b"a", b"b")]
    for thread in threads:
        thread.start()
    got = all_of(b, 10_000)
    for thread in threads:
        thread.join()
    return [got.count(b"a"), got.count(b"b")]


@case
def one_thread_reads_while_another_writes():
    a, b = pair()
    echo = threading.Thread(target=lambda: [b.sendall(b.recv(100)) for _ in range(100)])
    echo.start()
    got = []
    for index in range(100):
        a.sendall(bytes([index]))
        got.append(a.recv(1)[0])
    echo.join()
    return got == list(range(100))


def main():
    global FAMILY, HOST
    chosen = sys.argv[1:]
    for FAMILY, HOST, label in ((socket.AF_INET, "127.0.0.1", "4"), (socket.AF_INET6, "::1", "6")):
        for function in CASES:
            if chosen and function.__name__ not in chosen:
                continue

            def late(*_):
                raise RuntimeError("it hangs")

            signal.signal(signal.SIGALRM, late)
            signal.alarm(20)
            try:
                result = function()
            except Exception as error:  # what a case throws is its result
                result = f"{type(error).__name__}: {error}"
            signal.alarm(0)
            print(f"{function.__name__}/{label}\t{result}", flush=True)


main()
