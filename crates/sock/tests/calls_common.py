#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Helpers of the cases of calls.py."""

import errno
import fcntl
import select
import socket
import struct
import termios
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
