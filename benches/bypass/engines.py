# SPDX-License-Identifier: Apache-2.0
"""The programs that the bench of bypassed flows compares, and the network between them and the generator."""

import collections
import dataclasses
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "inline")]
import inline  # noqa: E402
import peer  # noqa: E402
from inline import Problem, run  # noqa: E402

# The servers' ports of the generator's classes (benches/bypass/generate/src/flows.rs).
CLASSES = {80: "tcp-kept", 8443: "tcp-bypassable", 9000: "udp-kept", 9001: "udp-bypassable"}
KEPT = [name for name in CLASSES.values() if name.endswith("kept")]
# The rule of the text has `<>`, with which it bypasses all TCP whose client's port is not in the list: nearly
# all of it. What the text says of it, "any TCP traffic except to/from the specified set of port numbers", is
# this.
PORTS = "[!80,!20,!21,!23,!25,!53,!67,!68]"
RULE = '{action} tcp any {ports} -> any {ports} (msg:"SURICATA Test rule"; priority:1; classtype:protocol-command-decode; bypass; sid:1000001; rev:2;)'
# "The same type of rule could easily provide a similar type of bypass for UDP traffic": beyond TCP's share of
# the bytes.
UDP_RULE = '{action} udp any [!9000] -> any [!9000] (msg:"SURICATA Test rule, UDP"; priority:1; classtype:protocol-command-decode; bypass; sid:1000002; rev:1;)'
TCP_SHARE = 88
# How the program is told to use the XDP level, if its help says that it has one.
OFFLOAD = os.environ.get("OFFLOAD", "--offload xdp")


class Net(inline.Net):
    """Two hosts, the middle between them; the generator's ends of both links lie in one namespace."""

    def __init__(self):
        # Under SCHED_RR, both: other work on the machine waits. `nice` counts within a session only
        # (sched(7), autogroup).
        super().__init__("default", True)

    def set_up(self):
        inline.sweep()
        outer, middle = self.name("c"), self.name("m")
        for which in "cm":
            run(f"ip netns add {self.name(which)}")
            run(f"ip -n {self.name(which)} link set lo up")
            run(self.inside(which, 0, "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1"))
        for far, near in (("btzc0", self.a), ("btzs0", self.b)):
            run(f"ip link add {far} netns {outer} type veth peer name {near} netns {middle}")
        for which, device in self.devices():
            run(f"ip -n {self.name(which)} link set {device} up")
            run(self.inside(which, 0, f"ethtool -K {device} {inline.OFFLOADS} rxvlan off"))

    def devices(self):
        return (("c", "btzc0"), ("c", "btzs0"), ("m", self.a), ("m", self.b))

    def set_mtu(self, size):
        """Room for frames of this size (their Ethernet header is no part of the MTU)."""
        for which, device in self.devices():
            run(f"ip -n {self.name(which)} link set {device} mtu {1500 if size <= 1514 else 9000}")

    def set_gro(self, on):
        """A veth takes redirected frames only where its peer has NAPI, which `gro on` gives it."""
        for device in ("btzc0", "btzs0"):
            run(self.inside("c", 0, f"ethtool -K {device} gro {'on' if on else 'off'}"))

    def stop(self, child):
        """Ends a process by its own id. It may have hundreds of thousands of flow records to write."""
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
            try:
                child.wait(120)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait(5)
        self.children.remove(child)


@dataclasses.dataclass
class Totals:
    """What a program says of its whole life."""

    records: dict  # class: flows, packets, bytes by flow records
    others: int  # flows of no class
    ring: int  # frames that its rings had no room for
    refused: int  # packets that did not go on
    reasons: dict  # of those, by `drop_reason`
    low: int  # packets of flows that were decided: bypassed, or refused with their flow
    low_bytes: int  # bytes of flows that were bypassed; what is refused at the host is not counted in bytes
    below: int  # packets that a level below the host has handled
    cpu: float  # seconds until it was told to end


def read_totals(path, cpu):
    records = {name: collections.Counter() for name in CLASSES.values()}
    stats, own, others = None, {}, 0
    with open(path, encoding="utf-8") as events:
        for line in events:
            if '"event_type":"flow"' in line:
                event = json.loads(line)
                name = CLASSES.get(event.get("dest_port")) or CLASSES.get(event.get("src_port"))
                if name is None:
                    others += 1
                    continue
                flow = event["flow"]
                records[name]["flows"] += 1
                records[name]["packets"] += flow["pkts_toserver"] + flow["pkts_toclient"]
                records[name]["bytes"] += flow["bytes_toserver"] + flow["bytes_toclient"]
            elif '"event_type":"stats"' in line:
                event = json.loads(line)
                stats, own = event["stats"], event.get("bartizan", {}).get("stats", {})
    if stats is None:
        raise Problem(f"no `stats` event in {path}")
    bypassed, ips = stats["flow_bypassed"], stats["ips"]
    below = bypassed.get("pkts", 0)
    # What is dropped below stands among those that are dropped with their flow, as well.
    forwarded_below = own.get("offload", {}).get("forwarded_pkts", 0)
    # Also what came up of flows that a level has.
    at_host = bypassed["local_pkts"] + bypassed.get("local_capture_pkts", 0)
    low = at_host + forwarded_below + ips["drop_reason"]["flow_drop"]
    low_bytes = bypassed["local_bytes"] + bypassed.get("local_capture_bytes", 0) + bypassed.get("bytes", 0)
    reasons = {reason: count for reason, count in ips["drop_reason"].items() if count}
    return Totals(records, others, stats["capture"]["kernel_drops"], ips["blocked"], reasons, low, low_bytes, below, cpu)


class Engine:
    """A program in the middle, from its start to its end."""

    # What it prints when it forwards.
    READY = None

    def __init__(self, net, folder):
        self.net, self.folder, self.child, self.log = net, folder, None, folder / "engine.log"

    def rules(self, action, share):
        """The file of the rules that bypass, none without an action."""
        path, lines = self.folder / "bypass.rules", []
        if action:
            lines.append(RULE.format(action=action, ports=PORTS))
            if share > TCP_SHARE:
                lines.append(UDP_RULE.format(action=action))
        path.write_text("\n".join(lines) + "\n")
        return path

    def settings(self):
        """Those of the shared data, with flow records and counters, and room for the flows of a run."""
        text = (peer.DATA / "suricata-inline.yaml").read_text()
        for old, new in (
            ("stats:\n  enabled: no", "stats:\n  enabled: yes\n  interval: 1000"),
            ("    types:\n    - alert\n", "    types:\n    - alert\n    - flow\n    - stats\n"),
            ("flow:\n  memcap: 128 MiB", "flow:\n  memcap: 512 MiB"),
        ):
            if old not in text:
                raise Problem(f"{peer.DATA}/suricata-inline.yaml has no `{old}`: this bench does not know its settings")
            text = text.replace(old, new, 1)
        path = self.folder / "settings.yaml"
        path.write_text(text)
        return path

    def start(self, action, share, offload=False):
        shutil.rmtree(self.folder / "out", ignore_errors=True)
        (self.folder / "out").mkdir()
        command = self.command(self.settings(), self.rules(action, share))
        if offload:
            command += f" {OFFLOAD}"
        with open(self.log, "w") as log:
            self.child = self.net.start("m", 1, command, output=log)
        end = time.monotonic() + 120
        while self.READY not in self.log.read_text(errors="replace"):
            if self.child.poll() is not None or time.monotonic() > end:
                raise Problem(f"{self.name} does not start: {self.last_words()}")
            time.sleep(0.05)
        self.begun = inline.cpu_seconds(self.child)

    def cpu(self):
        """Seconds of processor since it was ready."""
        return inline.cpu_seconds(self.child) - self.begun

    def stop(self):
        """Ends it: what it counted."""
        if self.child.poll() is not None:
            raise Problem(f"{self.name} ended by itself with status {self.child.returncode}: {self.last_words()}")
        cpu = self.cpu()
        self.abandon()
        return read_totals(self.folder / "out/eve.json", cpu)

    def abandon(self):
        if self.child is not None:
            child, self.child = self.child, None
            self.net.stop(child)

    def last_words(self):
        return "\n  ".join(self.log.read_text(errors="replace").splitlines()[-6:])


class Bartizan(Engine):
    READY = "running on"
    name = "bartizan"

    def __init__(self, net, folder):
        super().__init__(net, folder)
        self.program = peer.program()
        help_text = subprocess.run([self.program, "run", "--help"], capture_output=True, text=True).stdout
        self.offloads = OFFLOAD.split()[0] in help_text
        peer.unpack(peer.RULES, folder / "etopen.rules")

    def command(self, settings, rules):
        etopen, out = self.folder / "etopen.rules", self.folder / "out"
        extra = f" --rules {rules}" if rules.read_text().strip() else ""
        # Without looking for packets before it sleeps: so its processor time is that of packets.
        return f"{self.program} run --inline {self.net.a} {self.net.b} --spin 0 --rules {etopen}{extra} --suricata-config {settings} --out {out}"


class Suricata(Engine):
    READY = "Engine started"

    def __init__(self, net, found):
        super().__init__(net, found.folder)
        self.found, self.name = found, f"Suricata {found.version}"
        peer.unpack(peer.RULES, self.folder / "etopen.rules")

    def command(self, settings, rules):
        # One file of rules: `-S` stands for all of them.
        both = self.folder / "all.rules"
        both.write_bytes((self.folder / "etopen.rules").read_bytes() + rules.read_bytes())
        inside = self.found.inside
        words = [*self.found.enter, "suricata", "-c", inside(settings), "--af-packet", "--runmode", "workers", "-k", "none"]
        words += ["-S", inside(both), "-l", inside(self.folder / "out"), "--set", "security.limit-noproc=false"]
        patterns = inside(self.folder / "patterns")
        words += ["--set", "detect.sgh-mpm-caching=yes", "--set", f"detect.sgh-mpm-caching-path={patterns}"]
        return shlex.join(words)


def generator():
    """The program that GENERATOR names, or a release build."""
    if "GENERATOR" in os.environ:
        return os.environ["GENERATOR"]
    subprocess.run(["cargo", "build", "--release", "--locked", "--quiet", "-p", "bartizan-generate"], cwd=peer.ROOT, check=True)
    return str(pathlib.Path(os.environ.get("CARGO_TARGET_DIR", peer.ROOT / "target")) / "release/generate")

