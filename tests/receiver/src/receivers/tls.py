#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A TLS server (OpenSSL) that says which name each client asked for: a line of JSON for each hello that it has answered.

usage: tls.py PORT CERTIFICATE KEY
"""
import json
import selectors
import socket
import ssl
import sys
import time

IDLE = 4


class Connection:
    def __init__(self, sock, peer, context):
        self.sock, self.peer, self.last = sock, peer, time.monotonic()
        self.names, self.told, self.shaken = [], 0, False
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_side=True)
        self.tls.owner = self

    def take(self, data):
        """Whether it goes on."""
        self.last = time.monotonic()
        self.incoming.write(data)
        alive = True
        try:
            if not self.shaken:
                self.tls.do_handshake()
                self.shaken = True
            while True:
                text = self.tls.read(65536)
                if not text:
                    break
                self.tls.write(text)
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLError, OSError):
            alive = False
        out = self.outgoing.read()
        # A handshake record in the answer: the hello was taken. There may be a second one, when the server
        # asks for it.
        if out and out[0] == 22 and len(self.names) > self.told:
            new, self.told = self.names[self.told:], len(self.names)
            print(json.dumps({"address": self.peer[0], "port": self.peer[1], "names": new}), flush=True)
        if out:
            try:
                self.sock.send(out)
            except OSError:
                return False
        return alive


def main():
    port, certificate, key = sys.argv[1:4]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.sni_callback = lambda tls, name, _: tls.owner.names.append(name or "")
    listener = socket.socket(socket.AF_INET6)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    listener.bind(("::", int(port)))
    listener.listen(4096)
    listener.setblocking(False)
    poll = selectors.DefaultSelector()
    poll.register(listener, selectors.EVENT_READ)
    swept = time.monotonic()
    print(json.dumps({"ready": True}), flush=True)
    while True:
        for entry, _ in poll.select(1):
            if entry.fileobj is listener:
                try:
                    sock, peer = listener.accept()
                except OSError:
                    continue
                sock.setblocking(False)
                poll.register(sock, selectors.EVENT_READ, Connection(sock, peer, context))
                continue
            try:
                data = entry.fileobj.recv(65536)
            except BlockingIOError:
                continue
            except OSError:
                data = b""
            if not data or not entry.data.take(data):
                poll.unregister(entry.fileobj)
                entry.fileobj.close()
        if time.monotonic() - swept > 2:
            swept = time.monotonic()
            for entry in list(poll.get_map().values()):
                if entry.data is not None and swept - entry.data.last > IDLE:
                    poll.unregister(entry.fileobj)
                    entry.fileobj.close()


if __name__ == "__main__":
    main()
