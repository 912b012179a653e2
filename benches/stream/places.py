# SPDX-License-Identifier: Apache-2.0
"""Network namespaces of the bench of the stream path, and the processes in them.

      c --- s            client and server, 10.80.0.1 and .2; the engine of guests is in c
      c --- m1 --- s     one middlebox that ends TCP, 10.80.1.0/24 and 10.80.2.0/24
      c --- m1 - m2 - s  two of them: 10.80.3.0/24 between both, 10.80.4.0/24 behind the second
      c ===== i ===== s  one inline, 10.80.5.0/24, on interfaces without offloads; another in h, 10.80.7.0/24
      c === j === k === s  two inline, 10.80.6.0/24

All processes have one class (SCHED_RR), so that builds beside the bench take no turn between two of them, and are pinned: to core 0 all of them, or
in the second layout what is in the middle to core 1.
"""

import os
import pathlib
import resource
import signal
import subprocess
import time

PREFIX = "bzst"
OFFLOADS = "rx off tx off sg off tso off gso off gro off".split()
# Addresses of the guests, beside that of the plain client.
GUEST_SERVER = "10.80.0.11"
# A link: namespace, interface, address of each end, and whether offloads are off.
LINKS = [
    ("c", "cs0", "10.80.0.1", "s", "cs1", "10.80.0.2", False),
    ("c", "cm0", "10.80.1.1", "m1", "cm1", "10.80.1.2", False),
    ("m1", "ms0", "10.80.2.1", "s", "ms1", "10.80.2.2", False),
    ("m1", "mm0", "10.80.3.1", "m2", "mm1", "10.80.3.2", False),
    ("m2", "ns0", "10.80.4.1", "s", "ns1", "10.80.4.2", False),
    ("c", "ci0", "10.80.5.1", "i", "btzm0", None, True),
    ("s", "si0", "10.80.5.2", "i", "btzm1", None, True),
    ("c", "ch0", "10.80.7.1", "h", "btzm0", None, True),
    ("s", "sh0", "10.80.7.2", "h", "btzm1", None, True),
    ("c", "cj0", "10.80.6.1", "j", "btzm0", None, True),
    ("j", "btzm1", None, "k", "btzm0", None, True),
    ("s", "sk0", "10.80.6.2", "k", "btzm1", None, True),
]


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"`{' '.join(words)}` failed: {(done.stderr or done.stdout).strip()}")


def busy(processes):
    """Nanoseconds on a processor of all threads of these processes, with the kernel's work on their behalf."""
    total = 0
    for process in processes:
        for task in pathlib.Path(f"/proc/{process}/task").iterdir():
            total += int((task / "schedstat").read_text().split()[0])
    return total


class Places:
    """The namespaces, and every process that was started in them."""

    def __init__(self, realtime):
        self.realtime, self.processes = realtime, []
        self.files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        self.names = sorted({end for link in LINKS for end in (link[0], link[3])})

    def __enter__(self):
        if os.geteuid():
            raise SystemExit("network namespaces need root")
        self.sweep()
        for which in self.names:
            run("ip", "netns", "add", self.name(which))
            run("ip", "-n", self.name(which), "link", "set", "lo", "up")
            # Ports of connections that have just ended, for a connection with each exchange.
            settings = ["net.ipv4.ip_local_port_range=10000 65000", "net.ipv4.tcp_tw_reuse=1"]
            run("nsenter", f"--net=/run/netns/{self.name(which)}", "sysctl", "-qw", *settings)
        for a, port_a, address_a, b, port_b, address_b, plain in LINKS:
            run(*f"ip link add {port_a} netns {self.name(a)} type veth peer name {port_b} netns {self.name(b)}".split())
            for which, port, address in ((a, port_a, address_a), (b, port_b, address_b)):
                if address:
                    run(*f"ip -n {self.name(which)} address add {address}/24 dev {port}".split())
                if plain:
                    run("nsenter", f"--net=/run/netns/{self.name(which)}", "ethtool", "-K", port, *OFFLOADS)
                run(*f"ip -n {self.name(which)} link set {port} up".split())
        run(*f"ip -n {self.name('c')} address add {GUEST_SERVER}/32 dev lo".split())
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            self.end(process)
        for which in self.names:
            subprocess.run(["ip", "netns", "del", self.name(which)], capture_output=True)

    def name(self, which):
        return f"{PREFIX}-{which}-{os.getpid()}"

    def sweep(self):
        """Removes namespaces of a run that was killed."""
        for line in subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout.splitlines():
            parts = line.split()[0].split("-")
            if parts[0] == PREFIX and not os.path.exists(f"/proc/{parts[-1]}"):
                subprocess.run(["ip", "netns", "del", line.split()[0]], capture_output=True)

    def start(self, which, core, words, folder=None, log=None, **more):
        """Starts a process in a namespace, pinned."""
        enter = ["nsenter", f"--net=/run/netns/{self.name(which)}", "prlimit", f"--nofile={self.files}:{self.files}"]
        enter += ["chrt", "--rr", "10"] if self.realtime else []
        enter += ["taskset", "-c", str(core), *map(str, words)]
        out = log or subprocess.PIPE
        process = subprocess.Popen(
            enter, cwd=folder, stdin=subprocess.PIPE, stdout=out, stderr=log or subprocess.PIPE, text=True, **more
        )
        self.processes.append(process)
        return process

    def end(self, process):
        """Ends a process that was started here, by its own number; returns its output."""
        if process in self.processes:
            self.processes.remove(process)
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            return process.communicate(timeout=30)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            return process.communicate()[0]


class Program:
    """A process that speaks the lines of exchange.c."""

    def __init__(self, places, which, core, words, folder=None, env=None):
        self.places = places
        self.process = places.start(which, core, words, folder, env=env)
        self.number = int(self.line()[1])

    def line(self):
        words = self.process.stdout.readline().split()
        if not words:
            self.process.wait(30)
            raise SystemExit(f"{' '.join(self.process.args)}: ended with {self.process.returncode}: {self.process.stderr.read()}")
        return words

    def go(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def finish(self, patience=30):
        """Waits for its end."""
        deadline = time.monotonic() + patience
        while self.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.001)
        self.places.end(self.process)
