#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Cases: making, naming, connecting, accepting, reading and writing."""

import ctypes
import errno
import fcntl
import os
import select
import socket
import struct
import threading
import time

import calls_common as common
from calls_common import *  # noqa: F403: the helpers are the language of the cases




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
        s = socket.socket(common.FAMILY, socket.SOCK_STREAM | flag)
        result.append(fcntl.fcntl(s, fcntl.F_GETFD))
    return result


@case
def flags_of_a_new_socket():
    result = []
    for flag in (0, socket.SOCK_NONBLOCK):
        s = socket.socket(common.FAMILY, socket.SOCK_STREAM | flag)
        result.append(fcntl.fcntl(s, fcntl.F_GETFL) & (os.O_NONBLOCK | os.O_ACCMODE))
    return result


@case
def bind_gives_a_name():
    s = new()
    return [t(s.bind, (common.HOST, 0)), s.getsockname()[0], s.getsockname()[1] > 0]


@case
def bind_twice():
    s = new()
    s.bind((common.HOST, 0))
    return t(s.bind, (common.HOST, 0))


@case
def bind_to_a_taken_port():
    a, b = new(), new()
    a.bind((common.HOST, 0))
    a.listen(1)
    return t(b.bind, a.getsockname())


@case
def bind_to_a_foreign_address():
    s = new()
    return t(s.bind, ("203.0.113.1" if common.FAMILY == socket.AF_INET else "2001:db8::1", 0))


@case
def bind_after_connect():
    a, b = pair()
    return t(a.bind, (common.HOST, 0))


@case
def bind_then_connect_keeps_the_port():
    server = listener()
    s = new()
    s.bind((common.HOST, 0))
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
    s = socket.socket(common.FAMILY, socket.SOCK_STREAM)
    other = socket.AF_INET6 if common.FAMILY == socket.AF_INET else socket.AF_INET
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
    s = new()
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.connect(s.fileno(), struct.pack("H", common.FAMILY), 2)
    return [result, errno.errorcode.get(ctypes.get_errno())]


@case
def connect_with_no_family_ends_the_association():
    a, b = pair()
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.connect(a.fileno(), b"\0" * 16, 16)
    return [result, t(a.getpeername), t(b.recv, 1)]


@case
def connect_again_after_the_association():
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
    return [t(a.sendto, b"x", (common.HOST, 9)), t(b.recv, 1)]


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
    with open(__file__, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        sent = os.sendfile(a.fileno(), file.fileno(), 10, 5000)
        where = os.lseek(file.fileno(), 0, os.SEEK_CUR)
        data = all_of(b, sent)
        file.seek(10)
        return [sent, where, data == file.read(sent), size > 5000]


@case
def sendfile_from_where_the_file_is():
    a, b = pair()
    with open(__file__, "rb") as file:
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
    with open(__file__, "rb") as file:
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
