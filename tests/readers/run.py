#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Has readers of events take all that a run over a capture sends them, and counts it: a plain reader at unix_stream and at unix_dgram,
and Telegraf's inputs.suricata in both of its versions.

usage: run.py PROGRAM TELEGRAF FOLDER

Each run writes the same events to a file. What the readers got is held against that file, and its number against what the program says
that it has sent. Exit status: 0 all came, 1 something did not.
"""

import collections
import json
import os
import random
import socket
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../scripts/demo"))
import capture  # noqa: E402

SEED, FLOWS, REQUESTS, PATIENCE = 1, 20_000, 500, 300
# Every seventh flow has an alert.
MARKED = 7
RULES = 'alert udp any any -> any 4000 (msg:"readers: a marked flow"; content:"marked"; sid:1;)\n'
OUTPUTS = """%YAML 1.1
---
stats: {{enabled: yes, interval: 1}}
outputs:
  - eve-log: {{enabled: yes, filename: eve.json, types: [{types}]}}
  - eve-log: {{enabled: yes, filetype: {kind}, filename: {path}, types: [{types}]}}
"""
STATS = "stats: {totals: yes, threads: yes}"
# What Telegraf's version 1 knows, and what all others are given.
SOME = f"alert, {STATS}"
ALL = f"alert, anomaly, http, dns, tls, files, flow, netflow, {STATS}"


def traffic(path):
    """The demonstration's packets between many flows of UDP, some with what the rule looks for."""
    chosen = random.Random(SEED)
    frames = []
    for number in range(FLOWS):
        client = f"192.0.2.{1 + number % 200}"
        payload = b"marked" if number % MARKED == 0 else chosen.randbytes(chosen.randint(1, 40))
        frames.append(capture.udp(client, 1024 + number // 200, "198.51.100.1", 4000, payload))
    for number in range(REQUESTS):
        frames += capture.http(20_000 + number, f"/{number}", "200 OK", "hello\n") + capture.dns(f"host{number}.example")
    with open(path, "wb") as file:
        file.write(capture.struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for number, frame in enumerate(frames):
            seconds, micros = 1_700_000_000 + number // 1000, number % 1000 * 1000
            file.write(capture.struct.pack("<IIII", seconds, micros, len(frame), len(frame)) + frame)


class Plain:
    """A reader as anybody would write one: it takes what comes, and splits it into lines."""

    def __init__(self, kind, path):
        datagrams = kind == "unix_dgram"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM if datagrams else socket.SOCK_STREAM)
        self.socket.bind(path)
        self.lines = []
        self.over = threading.Event()
        if not datagrams:
            self.socket.listen()
        self.socket.settimeout(0.2 if datagrams else PATIENCE)
        self.thread = threading.Thread(target=self.datagrams if datagrams else self.stream)
        self.thread.start()

    def stream(self):
        connection, _ = self.socket.accept()
        rest = b""
        while piece := connection.recv(1 << 16):
            *lines, rest = (rest + piece).split(b"\n")
            self.lines += lines
        if rest:
            self.lines.append(rest)

    def datagrams(self):
        while True:
            over = self.over.is_set()
            try:
                self.lines.append(self.socket.recv(1 << 20).rstrip(b"\n"))
            except TimeoutError:
                # What was sent before the program ended lies in the socket by then.
                if over:
                    return

    def end(self):
        self.over.set()
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive(), "the connection was not closed"
        self.socket.close()
        return self.lines


def inspect(program, folder, kind, types):
    """Runs the program over the capture, with a file and a socket. Gives the file's lines and what it says of itself."""
    with open(f"{folder}/outputs.yaml", "w") as file:
        file.write(OUTPUTS.format(types=types, kind=kind, path=f"{folder}/s.sock"))
    command = [program, "inspect", "--suricata-config", "outputs.yaml", "--rules", "r.rules", "--out", "out", "--json", "a.pcap"]
    ended = subprocess.run(command, cwd=folder, capture_output=True, timeout=PATIENCE)
    if ended.returncode != 0:
        sys.exit(f"the program ends with {ended.returncode}: {ended.stderr.decode()}")
    with open(f"{folder}/out/eve.json", "rb") as file:
        lines = file.read().splitlines()
    os.remove(f"{folder}/out/eve.json")
    with open(f"{folder}/out/stats.json") as file:
        return lines, json.load(file), json.loads(ended.stdout)


failed = False


def check(what, got, wanted):
    """Says whether two are equal."""
    global failed
    if got == wanted:
        print(f"  {what}: {got}")
    else:
        failed = True
        print(f"  {what}: {got}, and {wanted} were sent", file=sys.stderr)


def told(lines, stats, summary):
    """What the program says of itself: held against the file before a reader is held against it."""
    events = [json.loads(line) for line in lines]
    kinds = collections.Counter(event["event_type"] for event in events)
    check("events.lost", stats["events.lost"], 0)
    check("events.written, to both outputs", stats["events.written"], 2 * len(lines))
    check("alerts of the summary", sum(summary["alerts"].values()), kinds["alert"])
    assert kinds["alert"] >= FLOWS // MARKED and kinds["stats"], kinds
    return events, kinds


def plain(program, folder, kind):
    print(f"a plain reader at {kind}")
    reader = Plain(kind, f"{folder}/s.sock")
    lines, stats, summary = inspect(program, folder, kind, ALL)
    got = reader.end()
    os.remove(f"{folder}/s.sock")
    _, kinds = told(lines, stats, summary)
    # One flow of all questions for names.
    check("flows", kinds["flow"], FLOWS + REQUESTS + 1)
    check("requests", (kinds["http"], kinds["fileinfo"]), (REQUESTS, REQUESTS))
    check("events", len(got), len(lines))
    check("lines that differ", len(collections.Counter(lines) - collections.Counter(got)), 0)


def telegraf(program, plugin, folder, version, types):
    print(f"Telegraf's inputs.suricata, version {version}")
    reader = subprocess.Popen([plugin, f"{folder}/s.sock", version], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert reader.stdout.readline() == "ready\n", "it does not listen"
    lines, stats, summary = inspect(program, folder, "unix_stream", types)
    answer, _ = reader.communicate(timeout=PATIENCE)
    if reader.returncode != 0:
        sys.exit(f"the plugin ends with {reader.returncode}")
    got = json.loads(answer)
    events, kinds = told(lines, stats, summary)
    if version == "1":
        threads = [event["stats"].get("threads", {}) for event in events if event["event_type"] == "stats"]
        own = sum(len(each) - ("Global" in each) for each in threads)
        wanted = {"suricata_alert/": kinds["alert"], "suricata/total": kinds["stats"], "suricata/thread": own}
        wanted["suricata/"] = sum("Global" in each for each in threads)
    else:
        wanted = {f"suricata/{kind}": count for kind, count in kinds.items()}
    for name in sorted(set(wanted) | set(got["points"])):
        check(f"points of {name}", got["points"].get(name, 0), wanted.get(name, 0))
    check("errors", got["failed"], 0)
    for error in got["errors"] or []:
        print(f"    {error}", file=sys.stderr)
    last = [event for event in events if event["event_type"] == "stats"][-1]["stats"]
    check("packets that it knows of", got["sums"].get("decoder_pkts"), last["decoder"]["pkts"])
    check("alerts that it knows of", got["sums"].get("detect_alert"), last["detect"]["alert"])
    print(f"  values that it leaves out, by its own account: {got['left_out']}")


def main():
    program, plugin, folder = sys.argv[1:]
    traffic(f"{folder}/a.pcap")
    with open(f"{folder}/r.rules", "w") as file:
        file.write(RULES)
    for kind in ("unix_stream", "unix_dgram"):
        plain(program, folder, kind)
    telegraf(program, plugin, folder, "1", SOME)
    telegraf(program, plugin, folder, "2", ALL)
    sys.exit(failed)


main()
