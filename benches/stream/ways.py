# SPDX-License-Identifier: Apache-2.0
"""The ways of an exchange: who is between client and server."""

import gzip
import os
import pathlib
import subprocess
import time

import peer
from places import GUEST_SERVER, Program, busy

PORT = "7000"
GUEST_HOST = """\
links:
  - {{name: client, guest: {{addresses: [10.80.0.1], socket: client.socket, streams: 12000, connects: 1000000, memory: 256MiB}}}}
  - {{name: server, guest: {{addresses: [{server}], socket: server.socket, streams: 12000, connects: 1000000, memory: 256MiB}}}}
workers: 1
policy: policy.yaml
{rules}cache: none
settings: {{stream.reassembly.depth: '0'}}
suricata-config: settings.yaml
outputs: {{eve: {{dir: out}}}}
control: {{socket: control.socket}}
"""
# Alerts alone, as in the bench of inline links.
SETTINGS = """outputs:
- eve-log:
    enabled: yes
    filename: eve.json
    types: [alert]
stats: {enabled: no}
"""
# Streams are inspected to their end by all: the shipped depth of 1 MB is less than an attempt sends.
UNLIMITED = ["--set", "stream.reassembly.depth=0"]
ONE_RULE = 'drop tcp any any -> any any (msg:"one rule"; flow:established; content:"xq7Zb-bartizan-none"; sid:9000001; rev:1;)\n'


class Way:
    """Nobody between: the kernel's TCP."""

    def __init__(self, name, target="10.80.0.2", core=0):
        self.name, self.target, self.core = name, target, core
        self.middle = []
        self.serves_guest = False

    def start(self, places, folder, tools):
        pass

    def client(self, words, tools):
        return words

    server = client

    def expect(self, count):
        """Counts bytes that functions have to read."""

    def check(self, places):
        """Whether what is in the middle has read all bytes; ends it."""


class Middleboxes(Way):
    """Middleboxes that end TCP, one behind the other: each a process."""

    def __init__(self, name, count, core=0):
        super().__init__(name, "10.80.1.2", core)
        self.count, self.bytes = count, 0
        self.port = str(self.first_port + 2 * count + core)

    def hops(self):
        if self.count == 1:
            return [("m1", "10.80.1.2", "10.80.2.2")]
        return [("m1", "10.80.1.2", "10.80.3.2"), ("m2", "10.80.3.2", "10.80.4.2")]

    def expect(self, count):
        self.bytes += count


class Proxies(Middleboxes):
    """The bench's own: each reads every byte."""

    first_port = 7100

    def start(self, places, folder, tools):
        for which, listen, to in self.hops():
            to_port = self.port if to == "10.80.3.2" else PORT
            words = [tools["proxy"], listen, self.port, to, to_port]
            self.middle.append(Program(places, which, self.core, words, folder))

    def numbers(self):
        return [program.number for program in self.middle]

    def check(self, places):
        for program in self.middle:
            read = int(places.end(program.process).split()[1])
            if read != self.bytes:
                raise SystemExit(f"{self.name}: a proxy has read {read} of {self.bytes} bytes")


class HaProxies(Middleboxes):
    """HAProxy in TCP mode: it looks at the first bytes and moves the rest unread."""

    first_port = 7200

    @staticmethod
    def find():
        root = os.environ.get("SURICATA_ROOT", "")
        enter = ["chroot", root] if root else []
        try:
            said = subprocess.run([*enter, "haproxy", "-v"], capture_output=True, text=True)
            version = said.stdout.split()[2].split("-")[0] if said.returncode == 0 else None
        except OSError:
            version = None
        return (enter, version) if version else None

    def start(self, places, folder, tools):
        enter, _ = tools["haproxy"]
        for which, listen, to in self.hops():
            to_port = self.port if to == "10.80.3.2" else PORT
            env = {**os.environ, "LISTEN": f"{listen}:{self.port}", "SERVER": f"{to}:{to_port}"}
            log = open(folder / f"haproxy-{self.name}-{self.core}-{which}.log", "w+")
            words = [*enter, "haproxy", "-f", tools["haproxy.cfg"], "-db"]
            self.middle.append(places.start(which, self.core, words, log=log, env=env))

    def numbers(self):
        return [process.pid for process in self.middle]

    def check(self, places):
        for process in self.middle:
            places.end(process)


class Inline(Way):
    """Packets through inspection: one or two hops that forward between their interfaces."""

    # The namespaces in a row, and the server's address behind them.
    ROWS = {"i": "10.80.5.2", "h": "10.80.7.2", "jk": "10.80.6.2"}

    def __init__(self, name, row, program, rules):
        super().__init__(name, self.ROWS[row])
        self.hops = list(row)
        self.program, self.rules = program, rules

    def numbers(self):
        return [process.pid for process in self.middle]

    def start(self, places, folder, tools):
        for which in self.hops:
            if self.program == "suricata":
                words = suricata(tools, self.rules, f"{self.name}-{which}")
            else:
                words = inline(tools, self.rules, folder / f"{self.name}-{which}")
            log = open(folder / f"{self.name}-{which}.log", "w+")
            self.middle.append(places.start(which, self.core, words, log=log))

    def check(self, places):
        for process in self.middle:
            places.end(process)
        self.middle = []


def suricata(tools, rules, name):
    found = tools["suricata"]
    settings, text = found.folder / "inline.yaml", (peer.DATA / "suricata-inline.yaml").read_text()
    settings.write_text(text)
    file = found.folder / f"{rules}.rules"
    file.write_text(rule_text(rules))
    words = found.start(settings, file, found.folder / f"log-{name}", ["-k", "none", "--af-packet", "--runmode", "workers", *UNLIMITED])
    return words


def rule_text(rules):
    if rules == "etopen":
        with gzip.open(peer.RULES, "rt") as file:
            return file.read()
    return ONE_RULE if rules == "one" else ""


def inline(tools, rules, folder):
    folder.mkdir()
    (folder / "policy.yaml").write_text("policies: [{name: all, from: any, to: any, chain: [ids]}]\ndefault: {action: drop}\n")
    settings = peer.ALERTS_ONLY if rules == "etopen" else folder / "settings.yaml"
    if rules != "etopen":
        settings.write_text(SETTINGS)
    words = [tools["bartizan"], "run", "--inline", "btzm0", "btzm1", "--workers", "1", "--spin", "0", "--policy", folder / "policy.yaml"]
    if rules != "none":
        (folder / "all.rules").write_text(rule_text(rules))
        words += ["--rules", folder / "all.rules"]
    return [*words, "--suricata-config", settings, "--out", folder / "out", "--control", "none", *UNLIMITED]


class Guests(Way):
    """The stream path: the client is a guest, the server a plain one, or a guest as well (`local`)."""

    def __init__(self, name, readers=0, local=False, rules=None, core=0):
        super().__init__(name, GUEST_SERVER if local else "10.80.0.2", core)
        self.readers, self.serves_guest, self.rules, self.bytes = readers, local, rules, 0
        self.home = None

    def chain(self):
        return ["ids"] if self.rules else [f"reader{n + 1}" for n in range(self.readers)]

    def start(self, places, folder, tools):
        self.home = folder / f"{self.name}-{self.core}"
        self.home.mkdir()
        chain = ", ".join(self.chain())
        policy = f"policies: [{{name: all, from: any, to: any, chain: [{chain}]}}]\ndefault: {{action: drop}}\n"
        (self.home / "policy.yaml").write_text(policy)
        rules = ""
        if self.rules in ("one", "etopen"):
            (self.home / "all.rules").write_text(rule_text(self.rules))
            rules = "rules: [all.rules]\n"
        text = peer.ALERTS_ONLY.read_text() if self.rules == "etopen" else SETTINGS
        (self.home / "settings.yaml").write_text(text)
        (self.home / "bartizan.yaml").write_text(GUEST_HOST.format(server=GUEST_SERVER, rules=rules))
        log = open(self.home / "log", "w+")
        words = [tools["readers"], "bartizan.yaml"]
        self.middle.append(places.start("c", self.core, words, self.home, log=log))

    def numbers(self):
        return [process.pid for process in self.middle]

    def guest(self, name, words, tools):
        socket = self.home / f"{name}.socket"
        for _ in range(6000):
            if socket.exists() or self.middle[0].poll() is not None:
                break
            time.sleep(0.01)
        if self.middle[0].poll() is not None:
            raise SystemExit(f"{self.name}: the program has ended: {(self.home / 'log').read_text()}")
        return [tools["bartizan"], "guest", "run", "--socket", socket, "--library", tools["library"], "--", *words]

    def client(self, words, tools):
        return self.guest("client", words, tools)

    def server(self, words, tools):
        return self.guest("server", words, tools) if self.serves_guest else words

    def expect(self, count):
        self.bytes += count

    def check(self, places):
        process = self.middle[0]
        places.processes.remove(process)
        process.stdin.close()
        process.wait(60)
        log = (self.home / "log").read_text()
        line = next((line for line in log.splitlines() if line.startswith("read ")), "")
        read = [int(word) for word in line.split()[1:]]
        if process.returncode or len(read) != 4:
            raise SystemExit(f"{self.name}: the program has ended with {process.returncode}: {log}")
        wanted = [self.bytes] * self.readers + [0] * (4 - self.readers)
        if not self.rules and read != wanted:
            raise SystemExit(f"{self.name}: functions have read {read} bytes of {wanted}")


class WakeUps(Way):
    """The wake-ups of an exchange between two guests without any payload."""

    def measure(self, places, tools, count):
        process = places.start("c", 0, [tools["floor"], count])
        out, error = process.communicate(timeout=60)
        places.processes.remove(process)
        if process.returncode:
            raise SystemExit(f"floor: {error}")
        each = int(out.split()[1])
        return each, each, each * count, each


def numbers_of(way):
    return way.numbers() if way.middle else []


def attempt(way, places, tools, mode, size, count, streams=1, http=False):
    """A client and a server by a way. Returns p50, p99 and the whole time in ns, and the processor's in ns for each thing that is counted."""
    if isinstance(way, WakeUps):
        return way.measure(places, tools, count)
    env = {**os.environ, "HTTP": "1"} if http else None
    exchange = tools["exchange"]
    serving = {"client": "server" if streams == 1 else "serve", "connect": "serve", "bulk": "sink"}[mode]
    bind = GUEST_SERVER if way.serves_guest else "0.0.0.0"
    place = "c" if way.serves_guest else "s"
    words = way.server([exchange, serving, bind, PORT, size], tools)
    server = Program(places, place, 0, words, env=env)
    port = getattr(way, "port", PORT)
    words = [exchange, mode, way.target, port, size, count] + ([streams] if mode == "client" else [])
    client = Program(places, "c", 0, way.client(words, tools), env=env)
    client.go()
    client.line()
    processes = [client.number, server.number, *numbers_of(way)]
    before = busy(processes)
    client.go()
    times = [int(word) for word in client.line()[1:]]
    used = busy(processes) - before
    client.go()
    client.finish()
    if serving != "server":
        places.end(server.process)
    else:
        server.finish()
    warm = max(count // 10, streams)
    way.expect((count + warm) * size * (1 if mode == "bulk" else 2))
    return times[0], times[1], times[2], used / count
