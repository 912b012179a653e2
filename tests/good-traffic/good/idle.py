# SPDX-License-Identifier: Apache-2.0
"""Connections that are silent for 90 s while the program forgets flows after 10 to 30 s, and then go on as if nothing had been.

All chains wait at the same time: each stands on a path of its own.
"""

import contextlib
import os
import socket
import time

from . import Wrong
from .case import Way, receive
from .net import PATHS, Net
from .program import Program, refusals

SECONDS = 90
# Of the packet clock; Suricata's own settings. Shorter than the silence for all states that a connection at
# rest can be in.
SETTINGS = [
    "flow-timeouts.default.established=10",
    "flow-timeouts.tcp.established=30",
    "flow-timeouts.tcp.closed=5",
    "flow-timeouts.udp.established=10",
    "flow-timeouts.icmp.established=10",
]
PORT = 7010
CHAIN_ORDER = ("empty", "ids", "sfw", "portscan+pfw+sfw+ids", "passive")


class Silent:
    """Connections of one way."""

    def __init__(self, way, stack):
        self.way = way
        self.listener = stack.enter_context(way.listener(PORT + way.path * 10 + (way.version == 6)))
        self.port = self.listener.getsockname()[1]
        # One whose client speaks first after the silence, one whose server does, one that has never carried
        # data.
        self.pairs = {name: way.connected(stack, self.listener, way.server, self.port) for name in ("client first", "server first", "never used")}
        for name in ("client first", "server first"):
            self.talk(name, "before", 0)
        self.udp = stack.enter_context(way.socket("c", socket.SOCK_DGRAM)), stack.enter_context(way.socket("s", socket.SOCK_DGRAM))
        self.udp[1].bind((way.server, self.port))
        self.udp[0].connect((way.server, self.port))
        self.udp_talk("before")

    def talk(self, name, word, turn):
        ends = self.pairs[name]
        one, other = ends[turn], ends[1 - turn]
        for sock in ends:
            sock.settimeout(5)
        for end, peer, text in ((one, other, f"{name} {word}".encode()), (other, one, f"answer {word}".encode())):
            end.sendall(text)
            try:
                got = receive(peer, len(text))
            except TimeoutError:
                raise Wrong(f"{name}, {word}: nothing arrives within 5 s") from None
            if got != text:
                raise Wrong(f"{name}, {word}: {got!r} instead of {text!r}")

    def udp_talk(self, word):
        client, server = self.udp
        client.settimeout(5)
        server.settimeout(5)
        try:
            client.send(word.encode())
            data, sender = server.recvfrom(100)
            server.sendto(data[::-1], sender)
            if client.recv(100) != word.encode()[::-1]:
                raise Wrong("the answer of a datagram differs")
        except TimeoutError:
            raise Wrong(f"UDP {word}: nothing arrives within 5 s") from None

    def go_on(self):
        """What does not go on, as texts."""
        wrong = []
        for name, turn in (("client first", 0), ("server first", 1), ("never used", 0)):
            with self.collect(wrong):
                self.talk(name, f"after {SECONDS} s", turn)
        with self.collect(wrong):
            self.udp_talk(f"after {SECONDS} s")
        return wrong

    @contextlib.contextmanager
    def collect(self, wrong):
        try:
            yield
        except (Wrong, OSError) as problem:
            wrong.append(str(problem))


def run(options, folder, held, say):
    """Whether all went on where it is not held back; prints a line for each chain."""
    chains = [chain for chain in CHAIN_ORDER if chain in options.chains]
    groups = [chains[at : at + len(PATHS)] for at in range(0, len(chains), len(PATHS))]
    with contextlib.ExitStack() as stack:
        waiting = []
        for number, group in enumerate(groups):
            net = Net(options.offload, number + 1)
            stack.callback(net.tear_down)
            net.set_up()
            net.unbridge(1)
            for path, chain in zip(PATHS, group):
                where = os.path.join(folder, f"idle-{number}-{path}")
                net.set_mtu(path, 1500)
                program = Program(net, path, options.program, where, chain, 1, options.rules, SETTINGS, options.cache, options.offload).start()
                silents = [Silent(Way(net, None, path, plan, where, 20), stack) for plan in options.plans]
                waiting.append((chain, program, program.settled(), silents))
        say(f"silent for {SECONDS} s: {', '.join(chains)}")
        time.sleep(SECONDS)
        good = True
        for chain, program, before, silents in waiting:
            wrong = [f"{silent.way.plan}: {text}" for silent in silents for text in silent.go_on()]
            refused = refusals(before, program.settled())
            wrong += [f"refused: {what} {number}" for what, number in refused.items()]
            wrong += program.stop()
            why = held.get(chain, "")
            state = "ok  " if not wrong else "HELD" if why else "FAIL"
            lines = [f"{state} {chain} idle-{SECONDS}-s", *wrong, *([f"held back: {why}"] if why else [])]
            say("\n       ".join(lines))
            good = good and (not wrong or bool(why))
    return good
