#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Cases: ends, waiting, descriptors, options, threads."""

import ctypes
import errno
import fcntl
import os
import select
import signal
import socket
import struct
import sys
import threading
import time

import calls_common as common
from calls_common import *  # noqa: F403: the helpers are the language of the cases




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
    libc = ctypes.CDLL(None, use_errno=True)
    return [flag, libc.recv(a.fileno(), ctypes.create_string_buffer(1), 1, 0), errno.errorcode.get(ctypes.get_errno())]


@case
def nonblocking_by_fcntl_is_shared_by_dup():
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
    with a.makefile("r") as reader, a.makefile("w") as writer:
        b.send(b"one\ntwo\n")
        first = reader.readline()
        writer.write("three\n")
        writer.flush()
        return [first, reader.readline(), t(all_of, b, 6)]


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
    a.bind((common.HOST, 0))
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
