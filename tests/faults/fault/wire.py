# SPDX-License-Identifier: Apache-2.0
"""A forwarder of our own between an agent and its controller: it delays, is slow, holds one direction or both without a FIN, and refuses.

There is no netem everywhere, and what is wanted is about TCP connections, not packets: bytes may be late or never come, but they do not change their order.
"""
import selectors
import socket
import struct
import threading
import time

# What it holds back of one direction at most: beyond it the sender's window closes, as by a slow link.
HELD = 256 << 10


class Pipe:
    """One direction of a connection."""

    def __init__(self, out, up):
        self.out, self.up = out, up
        self.parts, self.held, self.ended, self.free = [], 0, False, 0.0


class Wire:
    """Listens at `port`, and connects each that comes with `to`. What is set holds for all connections from then on."""

    def __init__(self, port, to):
        self.port, self.to = port, to
        self.delay, self.rate, self.hold_up, self.hold_down = 0.0, 0.0, False, False
        self.accepted = 0
        self.lock, self.over = threading.Lock(), threading.Event()
        self.selector, self.listener, self.pipes = selectors.DefaultSelector(), None, {}
        self.listen()
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def listen(self):
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen(64)
        listener.setblocking(False)
        self.selector.register(listener, selectors.EVENT_READ)
        self.listener = listener

    def refuse(self):
        """From now on connections are refused, and those that are there are reset."""
        with self.lock:
            self.selector.unregister(self.listener)
            self.listener.close()
            self.listener = None
            self.reset()

    def reset(self):
        for socket_ in list(self.pipes):
            # A reset in place of a FIN.
            socket_.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.forget(socket_)
            socket_.close()
        self.pipes.clear()

    def forget(self, socket_):
        # One that has ended is not looked at any more.
        if socket_ in self.selector.get_map():
            self.selector.unregister(socket_)

    def heal(self):
        with self.lock:
            self.delay, self.rate, self.hold_up, self.hold_down = 0.0, 0.0, False, False
            if self.listener is None:
                self.listen()

    def accept(self):
        try:
            agent, _ = self.listener.accept()
            self.accepted += 1
            controller = socket.create_connection(self.to, timeout=1)
        except OSError:
            # The controller is not there: the agent finds its connection closed.
            if "agent" in locals():
                agent.close()
            return
        for end, other, up in ((agent, controller, True), (controller, agent, False)):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.pipes[end] = Pipe(other, up)
            self.selector.register(end, selectors.EVENT_READ)

    def read(self, end):
        pipe = self.pipes.get(end)
        if pipe is None or pipe.held >= HELD or pipe.ended:
            return
        try:
            data = end.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            pipe.parts.append((time.monotonic() + self.delay, data))
            pipe.held += len(data)
        else:
            pipe.ended = True
            self.selector.unregister(end)

    def write(self, end, now):
        """Hands on what is due of one direction."""
        pipe = self.pipes.get(end)
        if pipe is None or (self.hold_up if pipe.up else self.hold_down):
            return
        while pipe.parts and pipe.parts[0][0] <= now and pipe.free <= now:
            due, data = pipe.parts.pop(0)
            part = data[: max(1, int(self.rate * 0.02))] if self.rate else data
            try:
                sent = pipe.out.send(part)
            except BlockingIOError:
                sent = 0
            except OSError:
                return self.close(end)
            if sent < len(data):
                pipe.parts.insert(0, (due, data[sent:]))
            pipe.held -= sent
            if self.rate:
                pipe.free = now + sent / self.rate
            if not sent:
                break
        if pipe.ended and not pipe.parts:
            self.close(end)

    def close(self, end):
        pipe = self.pipes.get(end)
        if pipe is None:
            return
        for socket_ in (end, pipe.out):
            if self.pipes.pop(socket_, None) is not None:
                self.forget(socket_)
            socket_.close()

    def serve(self):
        while not self.over.is_set():
            with self.lock:
                ready = self.selector.select(0) if self.selector.get_map() else []
                for key, _ in ready:
                    if key.fileobj is self.listener:
                        self.accept()
                    else:
                        self.read(key.fileobj)
                now = time.monotonic()
                for end in list(self.pipes):
                    self.write(end, now)
            time.sleep(0.002)

    def stop(self):
        self.over.set()
        self.thread.join()
