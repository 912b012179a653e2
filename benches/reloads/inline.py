# SPDX-License-Identifier: Apache-2.0
"""Reloads under inline traffic: each has other rules for detection and another rule of the packet filter, and no packet may be lost.

Datagrams of 64 flows, numbered, go through an inline link at a steady rate; every second one is of a flow that a rule bypasses, so with a level below the host (LEVEL=xdp)
flows go down and come up again with each reload. What arrives is compared with what was sent: each number once.
"""
import array
import ctypes
import json
import os
import pathlib
import re
import signal
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time

# Python does not name it (asm-generic/socket.h).
SO_RCVBUFFORCE = 33
SPACE = f"btzh-{os.getpid()}"
POLICY = """policies:
  - name: all
    chain: [pfw, ids]
    pfw: {{default: allow, rules: [{{drop: udp, to-ports: {port}}}]}}
    ids: {{rules: [local.rules]}}
default: {{action: drop}}
"""
HOST = """links: [{{name: wan, inline: {{a: btzha1, b: btzhb1{level}}}, workers: 2}}]
policy: policy.yaml
cache: none
outputs: {{eve: {{dir: out}}}}
reload: {{max-loss: 100%}}
"""
BYPASS = 'pass udp any any -> any 4000 (msg:"known"; bypass; sid:1;)\n'


def run(command):
    done = subprocess.run(command.split(), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"`{command}` failed: {(done.stderr or done.stdout).strip()}")


def rules(number, count):
    """So many rules, of which none matches; each reload has others."""
    return BYPASS + "".join(f'alert udp any any -> any any (msg:"n"; content:"none {number} of {at}"; sid:{at};)\n' for at in range(100, 100 + count))


def checksum(data):
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def frame(flow):
    """A datagram of a flow, whose last eight bytes are its number; without a checksum (RFC 768)."""
    port = 4000 if flow % 2 else 4001
    payload = 100
    head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 28 + payload, 0, 0x4000, 64, 17, 0, bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2]))
    head = head[:10] + struct.pack(">H", checksum(head)) + head[12:]
    udp = struct.pack(">HHHH", 20_000 + flow, port, 8 + payload, 0)
    return bytes([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]) + head + udp + bytes(payload - 8)


def device(name):
    """A packet socket on a device of the outer namespace, which only the thread that opens it enters."""
    found = []

    def enter():
        with open(f"/run/netns/{SPACE}o") as space:
            if ctypes.CDLL(None, use_errno=True).setns(space.fileno(), 0x40000000) != 0:
                raise OSError(ctypes.get_errno(), "setns")
        # With a protocol it would hear all interfaces until it is bound.
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        opened.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        opened.bind((name, 0x0800))
        opened.settimeout(0.2)
        found.append(opened)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if not found:
        sys.exit(f"no packet socket on {name}")
    return found[0]


class Traffic:
    """Sends at a rate until it is stopped, and notes how often each number arrived."""

    def __init__(self, rate):
        self.rate, self.sent, self.seen, self.over = rate, 0, array.array("B"), threading.Event()
        self.out, self.into = device("btzha0"), device("btzhb0")
        self.threads = [threading.Thread(target=self.send), threading.Thread(target=self.receive)]

    def send(self):
        frames, at = [frame(flow) for flow in range(64)], time.monotonic()
        while not self.over.is_set():
            for _ in range(50):
                self.out.send(frames[self.sent % 64] + struct.pack(">Q", self.sent))
                self.sent += 1
            at = max(at + 50 / self.rate, time.monotonic() - 0.1)
            time.sleep(max(0, at - time.monotonic()))

    def receive(self):
        last = time.monotonic()
        while not self.over.is_set() or time.monotonic() - last < 2:
            try:
                data = self.into.recv(2048)
            except TimeoutError:
                continue
            if data[:6] != bytes([2, 0, 0, 0, 0, 2]):
                continue
            number = struct.unpack(">Q", data[-8:])[0]
            self.seen.extend(bytes(max(0, number + 1 - len(self.seen))))
            self.seen[number] = min(255, self.seen[number] + 1)
            last = time.monotonic()

    def stop(self):
        self.over.set()
        for thread in self.threads:
            thread.join()
        lost = self.sent - sum(1 for count in self.seen if count)
        return self.sent, lost, sum(1 for count in self.seen if count > 1)


def memory(child):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{child.pid}/status").read_text())[1]) / 1024


def until(child, log, text, limit=60):
    end = time.monotonic() + limit
    while text not in (said := log.read_text(errors="replace")):
        if child.poll() is not None or "reload refused" in said or time.monotonic() > end:
            sys.exit(f"`{text}` was not said:\n{said[-2000:]}")
        time.sleep(0.002)


def network():
    for which in "om":
        run(f"ip netns add {SPACE}{which}")
    for far, near in (("btzha0", "btzha1"), ("btzhb0", "btzhb1")):
        run(f"ip link add {far} netns {SPACE}o type veth peer name {near} netns {SPACE}m")
        for which, name in (("o", far), ("m", near)):
            inside = f"nsenter --net=/run/netns/{SPACE}{which}"
            run(f"{inside} sysctl -qw net.ipv6.conf.{name}.disable_ipv6=1")
            run(f"ip -n {SPACE}{which} link set {name} up")
            run(f"{inside} ethtool -K {name} tx off tso off gso off gro {'on' if which == 'o' else 'off'} {'rxvlan off' if which == 'm' else ''}")


def measure(tool, folder, reloads, rate, level, count=100):
    """Reloads so often under traffic. Gives rows, and what is wrong."""
    log, child, traffic = folder / "log", None, None
    (folder / "local.rules").write_text(rules(0, count))
    (folder / "policy.yaml").write_text(POLICY.format(port=5000))
    (folder / "host.yaml").write_text(HOST.format(level=f", offload: {{level: {level}}}" if level != "none" else ""))
    network()
    try:
        with open(log, "wb") as out:
            words = f"nsenter --net=/run/netns/{SPACE}m {tool} run -c host.yaml"
            child = subprocess.Popen(words.split(), cwd=folder, stdout=out, stderr=out)
        until(child, log, "running on ")
        traffic = Traffic(rate)
        for thread in traffic.threads:
            thread.start()
        time.sleep(2)
        before, peak, times = memory(child), 0.0, []
        for number in range(1, reloads + 1):
            (folder / "local.rules").write_text(rules(number, count))
            (folder / "policy.yaml").write_text(POLICY.format(port=5000 + number))
            begin = time.monotonic()
            child.send_signal(signal.SIGUSR2)
            until(child, log, f"generation {number + 1}: ")
            times.append(time.monotonic() - begin)
            peak = max(peak, memory(child))
            # Flows have time to go down again.
            time.sleep(0.1)
            if number == 10:
                # What a reload needs once is there now.
                before = max(before, memory(child))
        time.sleep(1)
        after = memory(child)
        sent, lost, twice = traffic.stop()
        traffic = None
        child.send_signal(signal.SIGTERM)
        child.wait(60)
        child = None
    finally:
        if traffic is not None:
            traffic.stop()
        if child is not None:
            child.kill()
            child.wait()
        for which in "om":
            run(f"ip netns del {SPACE}{which}")
    said = log.read_text(errors="replace")
    below = json.loads((folder / "out/stats.json").read_text()).get("offload.forwarded_pkts", 0)
    if level != "none" and below == 0:
        sys.exit(f"the level handled nothing:\n{said[-2000:]}")
    print(f"level {level}: {reloads} reloads, median {statistics.median(times):.3f} s; {sent} packets, {lost} lost, {twice} twice, {below} below; "
          f"memory {before:.0f} MiB, peak {peak:.0f}, {after:.0f} at the end", flush=True)
    name = f"{reloads} reloads inline, level {level}"
    rows = [
        {"name": f"{name}: packets lost", "value": lost, "unit": f"of {sent}", "aim": 0},
        {"name": f"{name}: memory at the end", "value": round(after / before, 3), "unit": "times that behind the tenth", "aim": 1.1},
        {"name": f"{name}: a reload, median", "value": round(statistics.median(times), 4), "unit": "s"},
    ]
    wrong = [text for bad, text in ((lost or twice, f"{lost} packets lost, {twice} twice"), (after > before * 1.1, "memory grows")) if bad]
    return rows, wrong
