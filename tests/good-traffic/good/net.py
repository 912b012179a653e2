# SPDX-License-Identifier: Apache-2.0
"""Hosts as network namespaces, and three paths between them that differ only in who forwards.

    g == c ---- path 1 (kernel bridge) ---- s == f        c: client, m: middle, s: servers
           ---- path 2 (empty chain)  ----               f: a host behind s, g: one behind c (both by routing)
           ---- path 3 (under test)   ----               == two links, a wide one and one whose near end has MTU 1280

Every path has its own addresses, so that servers which listen on all of them serve all paths, and the same case can be run
over any of them at any time. `PLANS` are addresses of a path: inside to outside and outside to inside, as `HOME_NET` has it.
"""

import ctypes
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import threading

from . import Missing, Wrong

PREFIX = "gdt"
BRIDGE, EMPTY, TESTED = 1, 2, 3
PATHS = {BRIDGE: "bridge", EMPTY: "empty chain", TESTED: "tested"}
OFFLOADS = "rx off tx off sg off tso off gso off gro off"
# HOME_NET of Suricata's shipped settings holds 10/8, and not 198.18/15 (the addresses for benchmarks) nor any
# IPv6. plan: (client, server)
PLANS = {
    "in": ("198.18.{}.1", "10.80.{}.2"),
    "out": ("10.80.{}.1", "198.18.{}.2"),
    "6": ("fd80:{}::1", "fd80:{}::2"),
}
CLONE_NEWNET = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)


def run(command, check=True, timeout=60):
    """Runs a command to its end and returns its standard output."""
    done = subprocess.run(shlex.split(command), capture_output=True, text=True, timeout=timeout)
    if check and done.returncode != 0:
        raise Wrong(f"`{command}` failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def check_machine():
    """Raises `Missing` where network namespaces cannot be made."""
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    if os.geteuid() != 0:
        raise Missing("root, for network namespaces and packet sockets")
    lacking = [package for tool, package in (("ip", "iproute2"), ("ethtool", "ethtool"), ("nsenter", "util-linux")) if not shutil.which(tool)]
    if lacking:
        raise Missing("programs: apt-get install --no-install-recommends " + " ".join(lacking))
    if subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode != 0:
        raise Missing("network namespaces: this system makes none")


def sweep():
    """Removes namespaces that a killed run of this suite has left."""
    for line in run("ip netns list", check=False).splitlines():
        match = re.match(rf"({PREFIX}-[a-z]\d-(\d+))\b", line)
        if match and not os.path.exists(f"/proc/{match[2]}"):
            run(f"ip netns del {match[1]}", check=False)


class Net:
    """The namespaces, and every process that was started in them."""

    def __init__(self, offload=None, number=0):
        """`offload`: interfaces are made fit for that level. `number` tells several of one run apart."""
        self.pid, self.number, self.offload = os.getpid(), number, offload
        self.children = []
        self.lock = threading.Lock()
        self.mtus = {}

    def name(self, which):
        return f"{PREFIX}-{which}{self.number}-{self.pid}"

    def inside(self, which, command):
        """The words of a command line that runs `command` (text or words) in a namespace."""
        words = shlex.split(command) if isinstance(command, str) else list(command)
        # Not `ip netns exec`: it mounts another /sys.
        return ["nsenter", f"--net=/run/netns/{self.name(which)}", *words]

    def socket(self, which, family, kind, protocol=0):
        """A socket that belongs to a namespace, whatever thread uses it."""
        with self.lock, open("/proc/thread-self/ns/net") as here, open(f"/run/netns/{self.name(which)}") as there:
            try:
                enter(there)
                return socket.socket(family, kind, protocol)
            finally:
                enter(here)

    # Making and removing.

    def set_up(self):
        sweep()
        for which in "cmsfg":
            run(f"ip netns add {self.name(which)}")
            run(f"ip -n {self.name(which)} link set lo up")
            settings = "net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0 net.ipv6.conf.default.router_solicitations=0"
            settings += " net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0 net.ipv4.ip_unprivileged_port_start=0"
            if which == "m":
                settings += " net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1"
            else:
                settings += " net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv4.tcp_tw_reuse=1"
                settings += " net.ipv4.ip_local_port_range='10000 60999' net.ipv4.icmp_ratelimit=0 net.ipv6.icmp.ratelimit=0"
                settings += " net.ipv4.ipfrag_high_thresh=16777216"
            run(shlex.join(self.inside(which, "sysctl -qw " + settings)))
            # A host answers a thousand closed ports a second and no more; older kernels have that for all
            # namespaces together.
            run(shlex.join(self.inside(which, "sysctl -qw net.ipv4.icmp_msgs_per_sec=1000000 net.ipv4.icmp_msgs_burst=1000000")), check=False)
        for path in PATHS:
            self.make_path(path)
        self.make_behind("s", "f", 81, 82)
        self.make_behind("c", "g", 84, 83)
        self.bridge(BRIDGE)

    def make_path(self, path):
        c, m, s = (self.name(which) for which in "cms")
        run(f"ip link add c{path} netns {c} type veth peer name ma{path} netns {m}")
        run(f"ip link add s{path} netns {s} type veth peer name mb{path} netns {m}")
        for which, device in self.devices(path):
            run(shlex.join(self.inside(which, f"ethtool -K {device} {OFFLOADS}")))
            if self.offload:
                # What is redirected to a device arrives where its other end polls.
                more = "rxvlan off" if which == "m" else "gro on"
                run(shlex.join(self.inside(which, f"ethtool -K {device} {more}")))
        self.set_mtu(path, 1500)
        for plan, addresses in PLANS.items():
            ours, theirs = (text.format(path) for text in addresses)
            bits = 128 if plan == "6" else 32
            nodad = " nodad" if plan == "6" else ""
            for which, device, own, other in (("c", f"c{path}", ours, theirs), ("s", f"s{path}", theirs, ours)):
                run(f"ip -n {self.name(which)} addr add {own}/{bits} dev {device}{nodad}")
                run(f"ip -n {self.name(which)} route add {other}/{bits} dev {device} src {own}")

    def make_behind(self, near, far, wide, narrow):
        """A host behind `near`: its addresses on the narrow link are reached over an MTU of 1280, its answers take the wide one."""
        n, f = self.name(near), self.name(far)
        other = "c" if near == "s" else "s"
        for device, mtu in (("wide", 9000), ("narrow", 1280)):
            run(f"ip link add {device} netns {n} type veth peer name {device} netns {f}")
            run(f"ip -n {n} link set {device} mtu {mtu} up")
            run(f"ip -n {f} link set {device} mtu 9000 up")
            for which in (near, far):
                run(shlex.join(self.inside(which, f"ethtool -K {device} {OFFLOADS}")))
        for path in PATHS:
            for device, number in (("wide", wide), ("narrow", narrow)):
                run(f"ip -n {n} addr add 10.{number}.{path}.1/24 dev {device}")
                run(f"ip -n {f} addr add 10.{number}.{path}.2/24 dev {device}")
                run(f"ip -n {n} addr add fd{number}:{path}::1/64 dev {device} nodad")
                run(f"ip -n {f} addr add fd{number}:{path}::2/64 dev {device} nodad")
                for plan, network in (("in", f"10.{number}.{path}.0/24"), ("6", f"fd{number}:{path}::/64")):
                    side = 0 if near == "c" else 1
                    via, own = PLANS[plan][side].format(path), PLANS[plan][1 - side].format(path)
                    run(f"ip -n {self.name(other)} route add {network} via {via} dev {other}{path} src {own} onlink")
        run(f"ip -n {f} route add default via 10.{wide}.1.1 dev wide")
        run(f"ip -n {f} route add default via fd{wide}:1::1 dev wide")

    def devices(self, path):
        return (("c", f"c{path}"), ("m", f"ma{path}"), ("m", f"mb{path}"), ("s", f"s{path}"))

    def set_mtu(self, path, mtu):
        """Nothing may forward on the path meanwhile."""
        if self.mtus.get(path) == mtu:
            return
        self.mtus[path] = mtu
        for which, device in self.devices(path):
            run(f"ip -n {self.name(which)} link set {device} mtu {mtu} up")

    def forget_path_mtus(self):
        for which in "cs":
            for version in "46":
                run(f"ip -n {self.name(which)} -{version} route flush cache")

    def end_connections(self, path):
        """Ends the TCP connections that are left on a path, so that none goes on through a program that never saw it begin."""
        texts = [text for addresses in PLANS.values() for text in addresses]
        texts += [text for number in (81, 82, 83) for text in (f"10.{number}.{{}}.2", f"fd{number}:{{}}::2")]
        hosts = [f"src [{text}]" if ":" in text else f"src {text}" for text in (text.format(path) for text in texts)]
        for which in "csgf":
            # Where the kernel cannot do that, connections end by themselves, and may leave refusals in the
            # next run.
            subprocess.run(self.inside(which, ["ss", "-K", "-t", "-a", " or ".join(hosts)]), capture_output=True, timeout=20)

    def bridge(self, path):
        m = self.name("m")
        run(f"ip -n {m} link add br{path} type bridge mcast_snooping 0")
        for device in (f"ma{path}", f"mb{path}"):
            run(f"ip -n {m} link set {device} master br{path}")
        run(f"ip -n {m} link set br{path} mtu {self.mtus[path]} up")

    def unbridge(self, path):
        run(f"ip -n {self.name('m')} link del br{path}", check=False)

    # Processes.

    def start(self, which, command, output, **more):
        child = subprocess.Popen(
            self.inside(which, command), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True, **more
        )
        self.children.append(child)
        return child

    def stop(self, child, limit=10):
        """Ends a process that was started here, by its own id; gives its exit status."""
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
            try:
                child.wait(limit)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait(5)
        if child in self.children:
            self.children.remove(child)
        return child.returncode

    def tear_down(self):
        for child in list(reversed(self.children)):
            try:
                self.stop(child)
            except (subprocess.TimeoutExpired, OSError) as error:
                print(f"could not end process {child.pid}: {error}")
        for which in "cmsfg":
            run(f"ip netns del {self.name(which)}", check=False)

    def frames(self):
        """Frames that each end of the paths has sent and received: {device: (sent, received)}."""
        counters = {}
        for which in "cms":
            for link in json.loads(run(f"ip -n {self.name(which)} -s -j link show")):
                stats = link["stats64"]
                counters[link["ifname"]] = (stats["tx"]["packets"], stats["rx"]["packets"])
        return counters


def enter(namespace):
    if LIBC.setns(namespace.fileno(), CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
