# SPDX-License-Identifier: Apache-2.0
"""The program under test on a path: started, asked for its counters, stopped; what it refused, by reason."""

import collections
import json
import os
import re
import socket
import time

from . import Wrong

POLICY = """policies:
  - {{name: good, chain: [{chain}]{sections}}}
default: {{action: allow, chain: []}}
"""
# A good client that is taken for a scanner is refused, which is seen.
SECTIONS = {"portscan": "portscan: {action: drop}", "pfw": "pfw: {default: allow}", "sfw": "sfw: {}", "ids": "ids: {}"}
# Chains by the names that the suite's options use. Passive is `ids` beside the bridge.
CHAINS = {
    "empty": [],
    "ids": ["ids"],
    "sfw": ["sfw"],
    "portscan+pfw+sfw+ids": ["portscan", "pfw", "sfw", "ids"],
    "passive": ["ids"],
}
METRIC = re.compile(r'^(\w+)(?:\{(.*)\})? (\S+)$')
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
# Where a packet that does not pass can be counted. The verdict that lets a packet pass is `pass`.
PIECES = re.compile(r"(\d+) normaliser\.pieces")
DATAGRAMS = re.compile(r"(\d+) normaliser\.datagrams")
SUMMARY = re.compile(r"(\d+) frames, (\d+) forwarded, (\d+) refused")
NOT_SENT = re.compile(r"(\d+) not sent: (\w+)")
# No room in a queue on the way out: as in any bridge, a busy machine does that, and the ends send again.
QUEUE_FULL = {"ring_full", "device_refused", "no_memory"}
PORT = re.compile(r"^(\w+): (\d+) received, (\d+) dropped in the ring, (\d+) sent", re.MULTILINE)


class Program:
    """`bartizan run` between the two middle interfaces of a path, or beside the bridge of that path."""

    def __init__(self, net, path, program, folder, chain, workers=1, rules=(), settings=(), cache="none", offload=None):
        self.net, self.path, self.chain, self.workers = net, path, chain, workers
        self.passive = chain == "passive"
        self.folder = folder
        os.makedirs(folder)
        policy = os.path.join(folder, "policy.yaml")
        functions = CHAINS[chain]
        sections = "".join(", " + SECTIONS[name] for name in functions)
        with open(policy, "w") as file:
            file.write(POLICY.format(chain=", ".join(functions), sections=sections))
        self.port = 9100 + path
        link = ["--tap", f"ma{path}"] if self.passive else ["--inline", f"ma{path}", f"mb{path}"]
        self.words = [program, "run", *link, "--policy", policy, "--workers", str(workers), "--out", os.path.join(folder, "out")]
        if offload and not self.passive:
            self.words += ["--offload", offload]
        self.words += ["--cache", cache, "--metrics", f"127.0.0.1:{self.port}"]
        if "ids" in functions:
            for file in rules:
                self.words += ["--rules", file]
        for setting in settings:
            self.words += ["--set", setting]
        self.log_path = os.path.join(folder, "log")
        self.child = None
        self.eve_at = 0

    def start(self):
        if self.passive:
            self.net.bridge(self.path)
        with open(self.log_path, "w") as log:
            self.child = self.net.start("m", self.words, log)
        end = time.monotonic() + 60
        while "running on" not in self.log():
            if self.child.poll() is not None:
                raise Wrong(f"the program ended by itself with status {self.child.returncode}: {self.log()[-600:]}")
            if time.monotonic() > end:
                raise Wrong(f"the program does not run after 60 s: {self.log()[-600:]}")
            time.sleep(0.02)
        return self

    def log(self):
        with open(self.log_path) as file:
            return file.read()

    def check_alive(self):
        if self.child.poll() is not None:
            raise Wrong(f"the program ended by itself with status {self.child.returncode}: {self.log()[-600:]}")

    def stop(self):
        """Ends it; gives what is wrong with its own sums, as a list of texts."""
        ended_before = self.child.poll() is not None
        status = self.net.stop(self.child)
        if self.passive:
            self.net.unbridge(self.path)
        log = self.log()
        wrong = []
        if ended_before or status != 0:
            wrong.append(f"the program ended {'by itself ' if ended_before else ''}with status {status}: {log[-600:]}")
        elif not self.passive:
            summary = SUMMARY.search(log)
            ports = PORT.findall(log)
            if not summary or not ports:
                return [f"the program's summary is not understood: {log[-600:]}"]
            frames, forwarded, refused = map(int, summary.groups())
            received, sent = (sum(int(port[at]) for port in ports) for at in (1, 3))
            # A frame larger than the link leaves as several.
            pieces = PIECES.search(log)
            pieces = int(pieces[1]) if pieces else 0
            # Datagrams that came as one are taken apart before they are counted.
            datagrams = DATAGRAMS.search(log)
            received += int(datagrams[1]) if datagrams else 0
            not_sent = [(int(count), why) for count, why in NOT_SENT.findall(log)]
            lost = sum(count for count, _ in not_sent)
            if not_sent:
                told = ", ".join(f"{count} {why}" for count, why in not_sent)
                print(f"     {frames} frames, not sent: {told}", flush=True)
                wrong += [f"frames could not be sent: {told}"] if {why for _, why in not_sent} - QUEUE_FULL else []
            if frames != forwarded + refused or frames != received or sent + lost != forwarded + pieces:
                wrong.append(f"the program's sums do not meet: {summary[0]}; " + "; ".join(" ".join(port) for port in ports))
        return wrong

    def metrics(self):
        """Its counters: {(name, labels without the worker): value}, workers added up."""
        with self.net.socket("m", socket.AF_INET, socket.SOCK_STREAM) as sock:
            sock.settimeout(10)
            sock.connect(("127.0.0.1", self.port))
            sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            text = b"".join(iter(lambda: sock.recv(1 << 16), b"")).decode()
        values = collections.Counter()
        for line in text.splitlines():
            found = METRIC.match(line)
            if found:
                labels = tuple(f"{key}={value}" for key, value in LABEL.findall(found[2] or "") if key != "worker")
                values[found[1], labels] += float(found[3])
        return values

    def settled(self):
        """Its counters once nothing more comes: two answers that agree on the frames."""
        before = self.metrics()
        for _ in range(20):
            time.sleep(0.05)
            after = self.metrics()
            if all(after[key] == before[key] for key in after if key[0] == "bartizan_port_packets_total"):
                break
            before = after
        return after

    def new_events(self, *kinds):
        """The events of these kinds that its eve.json got since the last call."""
        path = os.path.join(self.folder, "out", "eve.json")
        if not os.path.exists(path):
            return []
        with open(path, "rb") as file:
            file.seek(self.eve_at)
            data = file.read()
        whole = data.rfind(b"\n") + 1
        self.eve_at += whole
        wanted = [f'"event_type":"{kind}"'.encode() for kind in kinds]
        return [json.loads(line) for line in data[:whole].splitlines() if any(want in line for want in wanted)]


def refusals(before, after):
    """What did not pass between two sets of counters: {what: packets}."""
    refused = {}
    for key, value in (after - before).items():
        name, labels = key
        verdicts = [label for label in labels if label.startswith("verdict=")]
        if name in ("bartizan_packets_total", "bartizan_decisions_total") and verdicts and verdicts[0] != "verdict=pass":
            kept = [label for label in labels if not label.startswith("policy=")]
            refused[" ".join([name.removeprefix("bartizan_").removesuffix("_total"), *kept])] = int(value)
    return refused


def remarks(before, after):
    """What passed with a remark, or was lost for want of room: {what: packets}; not wrong by itself."""
    wanted = ("bartizan_port_dropped_total", "bartizan_normalised_total", "bartizan_inspection_skipped_total", "bartizan_ring_full_total")
    wanted += ("bartizan_decode_events_total",)
    return {
        " ".join([key[0].removeprefix("bartizan_").removesuffix("_total"), *key[1]]): int(value)
        for key, value in (after - before).items()
        if key[0] in wanted
    }
