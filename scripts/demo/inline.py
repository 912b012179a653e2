#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts a built program inline between two hosts, drives real programs through it, and checks what passed.

usage: inline.py PROGRAM FOLDER

Three network namespaces are made: a client, a middle host with the program between its two interfaces, and a server
with nginx and a small DNS server. What is allowed has to succeed and what is blocked has to fail, else the exit
status is 1. A table shows each flow with verdict, function and reason as the program reports it; a summary is
computed from eve.json. Everything is taken down at the end, whatever happens. Needs root.
"""
import collections
import contextlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
CLIENT, SERVER = "10.77.0.1", "10.77.0.2"
CLIENT6, SERVER6 = "fd77::1", "fd77::2"


def sh(*command, check=True, **options):
    return subprocess.run(command, check=check, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)


class Network:
    """The namespaces, their links and every process started in them."""

    def __init__(self):
        self.names = {role: "btz-%s-%d" % (role, os.getpid()) for role in ("client", "middle", "server")}
        self.processes = []

    def __enter__(self):
        try:
            for name in self.names.values():
                sh("ip", "netns", "add", name)
                sh("ip", "-n", name, "link", "set", "lo", "up")
            self.link("client", "c0", "m0", (CLIENT + "/24", CLIENT6 + "/64"))
            self.link("server", "s0", "m1", (SERVER + "/24", SERVER6 + "/64"))
        except BaseException:
            self.__exit__()
            raise
        return self

    def link(self, role, outer, inner, addresses):
        host, middle = self.names[role], self.names["middle"]
        sh("ip", "link", "add", outer, "netns", host, "type", "veth", "peer", "name", inner, "netns", middle)
        for name, device in ((host, outer), (middle, inner)):
            self.run_in(name, "ethtool", "-K", device, "rx", "off", "tx", "off", "sg", "off", "tso", "off", "gso", "off", "gro", "off")
            self.run_in(name, "sysctl", "-qw", "net.ipv6.conf.%s.accept_dad=0" % device)
        self.run_in(middle, "sysctl", "-qw", "net.ipv6.conf.%s.disable_ipv6=1" % inner)
        for address in addresses:
            sh("ip", "-n", host, "address", "add", address, "dev", outer)
        sh("ip", "-n", host, "link", "set", outer, "up")
        sh("ip", "-n", middle, "link", "set", inner, "up")

    def run_in(self, name, *command, **options):
        return sh("ip", "netns", "exec", name, *command, check=False, **options)

    def run(self, role, *command, **options):
        return self.run_in(self.names[role], *command, **options)

    def start(self, role, *command, **options):
        process = subprocess.Popen(("ip", "netns", "exec", self.names[role]) + command, **options)
        self.processes.append(process)
        return process

    def __exit__(self, *_):
        for process in reversed(self.processes):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(5)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        for name in self.names.values():
            subprocess.run(("ip", "netns", "del", name), stderr=subprocess.DEVNULL)
        for name in self.names.values():
            shutil.rmtree("/etc/netns/" + name, ignore_errors=True)


def nginx(network, folder):
    root = os.path.join(folder, "www")
    os.makedirs(root, exist_ok=True)
    for name, body in (("index.html", "hello through bartizan\n"), ("search", "found nothing\n")):
        with open(os.path.join(root, name), "w") as page:
            page.write(body)
    with open(os.path.join(folder, "nginx.conf"), "w") as conf:
        conf.write(
            "daemon off; worker_processes 1; user root; pid %s/nginx.pid; error_log %s/nginx.log;\n"
            "events { worker_connections 64; }\n"
            "http { access_log off; client_body_temp_path %s/body; proxy_temp_path %s/proxy; fastcgi_temp_path %s/fcgi;\n"
            "  uwsgi_temp_path %s/uwsgi; scgi_temp_path %s/scgi;\n"
            "  server { listen 80; listen [::]:80; listen 8080; root %s; } }\n" % ((folder,) * 7 + (root,)))
    return network.start("server", "nginx", "-c", os.path.join(folder, "nginx.conf"), "-p", folder,
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


DNS_SERVER = r"""
import socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("0.0.0.0", 53))
while True:
    query, peer = s.recvfrom(2048)
    end = query.index(b"\0", 12) + 5
    kind = query[end - 4:end - 2]
    answer = b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\x0a\x4d\0\x02" if kind == b"\0\x01" else b""
    head = query[:2] + b"\x81\x80\0\x01" + struct.pack(">H", 1 if answer else 0) + b"\0\0\0\0"
    s.sendto(head + query[12:end] + answer, peer)
"""

SCAN = r"""
import errno, socket, sys
selectors = {}
import selectors as sel
poll = sel.DefaultSelector()
for port in list(range(20, 30)) + [80, 443, 3306, 8080]:
    s = socket.socket(); s.setblocking(False)
    s.connect_ex((sys.argv[1], port))
    poll.register(s, sel.EVENT_WRITE, port)
open_ports = []
for _ in range(20):
    for key, _ in poll.select(0.1):
        if key.fileobj.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
            open_ports.append(key.data)
        poll.unregister(key.fileobj)
print(*sorted(open_ports))
"""

STRAY = r"""
import socket, struct, sys
src, dst = sys.argv[1:3]
def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(">%dH" % (len(data) // 2), data))
    while total >> 16: total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff
for port in (40001, 40002, 40003):
    tcp = struct.pack(">HHIIBBHHH", port, 80, 1000, 2000, 5 << 4, 0x10, 1024, 0, 0)
    pseudo = socket.inet_aton(src) + socket.inet_aton(dst) + struct.pack(">BBH", 0, 6, len(tcp))
    tcp = tcp[:16] + struct.pack(">H", checksum(pseudo + tcp)) + tcp[18:]
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP).sendto(tcp, (dst, 0))
"""


class Events(threading.Thread):
    """Reads eve.json while it grows and shows each flow's verdict as it is reported."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path, self.done, self.seen = path, threading.Event(), set()

    def run(self):
        while not os.path.exists(self.path) and not self.done.wait(0.05):
            pass
        with contextlib.suppress(FileNotFoundError), open(self.path) as lines:
            print("%-9s %-5s %-44s %-8s %s" % ("verdict", "proto", "flow", "function", "reason"), flush=True)
            while True:
                line = lines.readline()
                if line.endswith("\n"):
                    self.show(json.loads(line))
                elif self.done.wait(0.05):
                    return

    def show(self, event):
        kind, own = event["event_type"], event.get("bartizan", {})
        if kind not in ("drop", "alert", "flow"):
            return
        flow = "%s:%s -> %s:%s" % (short(event.get("src_ip", "")), event.get("src_port", ""), short(event.get("dest_ip", "")), event.get("dest_port", ""))
        if kind == "drop":
            reason = event.get("alert", {}).get("signature") or own.get("reason") or event["drop"].get("reason", "")
            row = ("drop", own.get("function", "ids"), reason)
        elif kind == "alert":
            row = (event["alert"]["action"], "ids", event["alert"]["signature"])
        else:
            row = (own.get("verdict", "pass"), own.get("function", "-"), own.get("reason") or event["flow"]["state"])
        key = (kind, flow, row)
        if key not in self.seen:
            self.seen.add(key)
            print("%-9s %-5s %-44s %-8s %s" % (row[0], event.get("proto", ""), flow, row[1], row[2]), flush=True)


def short(address):
    with contextlib.suppress(OSError):
        return socket.inet_ntop(socket.AF_INET6, socket.inet_pton(socket.AF_INET6, address))
    return address


def wait_for(what, seconds=10):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.05)
    return False


def checks(network):
    """(what, did it go as it should) for each program driven through."""
    curl = ("curl", "-sS", "-m", "3", "-o", "/dev/null")
    ok = lambda result: result.returncode == 0
    yield "curl gets a page (IPv4)", ok(network.run("client", *curl, "http://%s/" % SERVER))
    yield "curl gets a page (IPv6)", ok(network.run("client", *curl, "http://[%s]/" % SERVER6))
    yield "a DNS lookup is answered", ok(network.run("client", "getent", "ahostsv4", "www.example.test"))
    yield "a path traversal in a URI is blocked", not ok(network.run("client", *curl, "http://%s/search?f=../../../../etc/passwd" % SERVER))
    yield "a DNS lookup of a listed name is blocked", not ok(network.run("client", "getent", "ahostsv4", "c2.evil.test"))
    found = network.run("client", sys.executable, "-c", SCAN, SERVER).stdout.split()
    yield "a port scan finds port 80 only (found: %s)" % (" ".join(found) or "none"), found == ["80"]
    yield "segments without a connection are sent", ok(network.run("client", sys.executable, "-c", STRAY, CLIENT, SERVER))
    yield "curl still gets a page", ok(network.run("client", *curl, "http://%s/" % SERVER))


def drive(program, folder):
    eve = os.path.join(folder, "eve.json")
    for stale in ("eve.json", "stats.json"):
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(folder, stale))
    with Network() as network:
        resolv = "/etc/netns/" + network.names["client"]
        os.makedirs(resolv, exist_ok=True)
        with open(os.path.join(resolv, "resolv.conf"), "w") as conf:
            conf.write("nameserver %s\noptions timeout:1 attempts:1\n" % SERVER)
        nginx(network, folder)
        network.start("server", sys.executable, "-c", DNS_SERVER)
        command = [program, "run", "--inline", "m0", "m1", "--out", folder]
        for option, name in (("--policy", "policy.yaml"), ("--rules", "inline.rules")):
            if os.path.exists(os.path.join(HERE, name)):
                command += [option, os.path.join(HERE, name)]
        print("$", " ".join(command), flush=True)
        engine = network.start("middle", *command)
        if not wait_for(lambda: network.run("client", "curl", "-s", "-m", "1", "-o", "/dev/null", "http://%s/" % SERVER).returncode == 0 or engine.poll() is not None, 15):
            print("the program forwarded no page within 15 seconds; its log is above", file=sys.stderr)
            return 1
        table = Events(eve)
        table.start()
        results = list(checks(network))
        engine.send_signal(signal.SIGTERM)
        engine.wait(10)
        table.done.set()
        table.join(2)
    print()
    for what, right in results:
        print("%-6s %s" % ("ok" if right else "FAILED", what))
    right = engine.returncode == 0 and all(r for _, r in results)
    right &= summary(eve)
    return 0 if right else 1


def summary(path):
    events = [json.loads(line) for line in open(path)]
    kinds = collections.Counter(e["event_type"] for e in events)
    reasons = collections.Counter(
        e.get("bartizan", {}).get("reason") or e["drop"].get("reason", "?") for e in events if e["event_type"] == "drop")
    alerts = collections.Counter(e["alert"]["signature"] for e in events if e["event_type"] == "alert")
    print("\nevents:", ", ".join("%d %s" % (n, k) for k, n in kinds.most_common()))
    print("drops by reason:", ", ".join("%d %s" % (n, r) for r, n in reasons.most_common()) or "none")
    print("alerts:", ", ".join("%d %s" % (n, s) for s, n in alerts.most_common()) or "none")
    print("all events:", path)
    # A flow that a rule blocked has an event for the packet that matched; its later packets are counted only.
    with open(os.path.join(os.path.dirname(path), "stats.json")) as file:
        stats = json.load(file)
    refused, later = stats["ips.blocked"], stats.get("ips.drop_reason.flow_drop", 0)
    print("packets dropped: %d: %d with an event, %d later packets of flows that a rule had blocked" % (refused, kinds["drop"], later))
    exact = refused == kinds["drop"] + later
    if not exact:
        print("FAILED the sum of these does not equal the number of dropped packets")
    return exact and kinds["flow"] > 0 and bool(reasons) and bool(alerts)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
    sys.exit(drive(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])))
