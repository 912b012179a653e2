# SPDX-License-Identifier: Apache-2.0
"""What a case is, and what it is given: the path that it goes over, clients and sockets at both ends of it."""

import contextlib
import dataclasses
import hashlib
import os
import select
import socket
import struct
import subprocess
import time
from collections.abc import Callable

from . import Wrong
from .net import PLANS

# Nothing that a case does takes longer; what does, hangs. In seconds.
LIMIT = 90
# As browsers have it: rules for curl's own name, of which there are several, would hide what others find.
AGENT = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"


@dataclasses.dataclass(frozen=True)
class Case:
    """One kind of traffic."""

    name: str
    # Does it over a `Way`; raises `Wrong`. May return figures: {name: milliseconds}, compared with the
    # bridge's.
    run: Callable
    servers: tuple = ()
    # (program, Debian package) beyond the servers.
    clients: tuple = ()
    # A transfer: its time is compared with the empty chain's.
    timed: bool = False
    # Run by `make test`.
    short: bool = False
    # A frame's payload on the path's links.
    mtus: tuple = (1500,)
    # More than the bridge's figures by this much is wrong, in milliseconds: {figure: margin}.
    margins: dict = dataclasses.field(default_factory=dict)
    # Answers come by the way itself (an error of ICMP): not in a chain without flows. Documentation only.
    about: str = ""


class Way:
    """A path as a case sees it."""

    def __init__(self, net, servers, path, plan, folder, limit=LIMIT):
        self.limit = limit
        self.net, self.servers, self.path, self.plan, self.folder = net, servers, path, plan, folder
        self.client, self.server = (text.format(path) for text in PLANS[plan])
        six = plan == "6"
        self.version = 6 if six else 4
        self.family = socket.AF_INET6 if six else socket.AF_INET
        self.far, self.narrow = (f"fd{n}:{path}::2" if six else f"10.{n}.{path}.2" for n in (81, 82))
        self.back = f"fd83:{path}::2" if six else f"10.83.{path}.2"

    # Programs.

    def command(self, words, which="c", data=None, status=0):
        """Runs a client program to its end; gives its standard output as bytes. Another exit status is wrong."""
        words = self.net.inside(which, words)
        try:
            done = subprocess.run(words, input=data, capture_output=True, timeout=self.limit, stdin=None if data is not None else subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            raise Wrong(f"`{shown(words)}` did not end within {self.limit} s") from None
        if done.returncode != status:
            words_said = (done.stderr or done.stdout).decode(errors="replace").strip()[-300:]
            raise Wrong(f"`{shown(words)}` ended with status {done.returncode}, not {status}: {words_said}")
        return done.stdout

    def curl(self, *words, own_agent=False, **more):
        agent = [] if own_agent else ["-A", AGENT]
        return self.command(["curl", "--silent", "--show-error", "--noproxy", "*", *agent, *words], **more)

    def url(self, name, scheme="http", port=None):
        return f"{scheme}://{self.host()}{f':{port}' if port else ''}/{name}"

    def host(self):
        return f"[{self.server}]" if self.version == 6 else self.server

    # Sockets.

    def socket(self, which, kind=socket.SOCK_STREAM, protocol=0):
        sock = self.net.socket(which, self.family, kind, protocol)
        sock.settimeout(min(20, self.limit))
        return sock

    @contextlib.contextmanager
    def pair(self, port, server="s", address=None):
        """A TCP connection over the path: (client's socket, server's socket), one after the other in this thread."""
        with contextlib.ExitStack() as stack:
            listener = stack.enter_context(self.listener(port, server))
            yield self.connected(stack, listener, address or (self.far if server == "f" else self.server), port)

    def listener(self, port, server="s"):
        sock = self.socket(server)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("::" if self.version == 6 else "0.0.0.0", port))
        sock.listen(64)
        return sock

    def connected(self, stack, listener, address, port):
        client = stack.enter_context(self.socket("c"))
        client.connect((address, port))
        server, _ = listener.accept()
        stack.enter_context(server)
        server.settimeout(min(20, self.limit))
        for sock in (client, server):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return client, server


def shown(words):
    text = " ".join(words[2:])
    return text if len(text) < 200 else text[:200] + "..."


def need(truth, text):
    if not truth:
        raise Wrong(text)


def equal(seen, expected, what):
    if seen != expected:
        raise Wrong(f"{what}: {short(seen)} instead of {short(expected)}")


def short(value):
    text = repr(value)
    return text if len(text) < 200 else f"{text[:100]}...{text[-60:]}"


def digest(data):
    return hashlib.sha256(data).hexdigest()


def digest_of(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def same_file(path, other, what):
    equal((os.path.getsize(path), digest_of(path)), (os.path.getsize(other), digest_of(other)), what + " (bytes, SHA-256)")


def pump(sends, limit=20):
    """Sends at several sockets at once and receives at their peers: [(from, to, bytes)]; gives what arrived, in their order.

    Each sender ends its direction when all is sent."""
    out = {sender: memoryview(data) for sender, _, data in sends}
    into = {receiver: bytearray() for _, receiver, _ in sends}
    open_ends = set(into)
    end = time.monotonic() + limit
    for sock in {*out, *into}:
        sock.setblocking(False)
    while open_ends or out:
        if time.monotonic() > end:
            raise Wrong(f"the transfer hangs: {sum(map(len, into.values()))} bytes arrived within {limit} s")
        readable, writable, _ = select.select(list(open_ends), list(out), [], 1)
        for sock in writable:
            try:
                out[sock] = out[sock][sock.send(out[sock]) :]
            except BlockingIOError:
                continue
            if not out[sock]:
                del out[sock]
                sock.shutdown(socket.SHUT_WR)
        for sock in readable:
            data = sock.recv(1 << 18)
            if data:
                into[sock] += data
            else:
                open_ends.discard(sock)
    return [bytes(into[receiver]) for _, receiver, _ in sends]


def receive(sock, count):
    """So many bytes, or what came until the end."""
    data = bytearray()
    while len(data) < count:
        more = sock.recv(min(count - len(data), 1 << 18))
        if not more:
            break
        data += more
    return bytes(data)


def reset_at_close(sock):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def percentile(values, percent):
    values = sorted(values)
    return values[min(len(values) - 1, len(values) * percent // 100)]
