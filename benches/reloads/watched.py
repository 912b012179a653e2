# SPDX-License-Identifier: Apache-2.0
"""A program that watches a link on which a capture goes round and round: its resident memory, and what reloads of its rules take.

Needs root (a network namespace with a veth pair of its own) and iproute2.
"""
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import peer  # noqa: E402

SPACE = f"btzg-{os.getpid()}"
ENTER = ["nsenter", f"--net=/run/netns/{SPACE}"]
# Sends the frames of a capture in a circle, so many a second.
SENDER = """
import itertools, socket, sys, time
sys.path.insert(0, sys.argv[1])
import peer
frames = [f[16:] for f in peer.Capture(sys.argv[2]).records if 30 <= len(f) <= 9016]
sock, rate, at = socket.socket(socket.AF_PACKET, socket.SOCK_RAW), int(sys.argv[3]), time.monotonic()
sock.bind(("btzg0", 0))
for number, frame in enumerate(itertools.cycle(frames), 1):
    try:
        sock.send(frame)
    except OSError:
        pass
    if number % 100 == 0:
        at = max(at + 100 / rate, time.monotonic() - 0.1)
        time.sleep(max(0, at - time.monotonic()))
"""


def run(command):
    done = subprocess.run(command.split(), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"`{command}` failed: {(done.stderr or done.stdout).strip()}")


@contextlib.contextmanager
def link():
    """The link that programs watch, `btzg1`, in its namespace."""
    run(f"ip netns add {SPACE}")
    try:
        run(f"ip -n {SPACE} link add btzg0 type veth peer name btzg1")
        for device in ("btzg0", "btzg1"):
            run(f"{' '.join(ENTER)} sysctl -qw net.ipv6.conf.{device}.disable_ipv6=1")
            run(f"ip -n {SPACE} link set {device} mtu 9000 up")
        yield
    finally:
        run(f"ip netns del {SPACE}")


@contextlib.contextmanager
def traffic(capture, rate):
    """The capture on the link; it begins when all of it, and a little more, has come by."""
    sender = subprocess.Popen([*ENTER, sys.executable, "-c", SENDER, str(HERE.parent), str(capture), str(rate)])
    try:
        time.sleep(54_000 / rate + 3)
        yield
    finally:
        sender.kill()
        sender.wait()


def changed(text, share):
    """The rules with such a share of them in another revision."""
    lines, each = text.split(b"\n"), max(1, round(1 / share)) if share else 0
    other, rules = [], 0
    for line in lines:
        if line.startswith(b"alert") and each:
            rules += 1
            if rules % each == 0:
                line = re.sub(rb"rev:(\d+);", lambda m: b"rev:%d;" % (int(m[1]) + 1), line)
        other.append(line)
    return b"\n".join(other)


class Program:
    """A running program. It has started when it says `started`, and does not do what was asked when it says `refused`."""

    started, refused = "running on ", "reload refused"

    def __init__(self, command, folder):
        self.log, self.rules = folder / "said", folder / "etopen.rules"
        with open(self.log, "wb") as log:
            self.child = subprocess.Popen([*ENTER, *map(str, command)], stdout=log, stderr=log)
        try:
            self.await_said(lambda said: self.started in said, self.started)
        except BaseException:
            self.end()
            raise

    @classmethod
    def start(cls, tool, folder, *more):
        """Bartizan on the link, with ET Open."""
        return cls([tool, "run", "--tap", "btzg1", "--rules", folder / "etopen.rules", "--out", folder / "out", *more], folder)

    def has_reloaded(self, said, number):
        """Whether it says that so many reloads are done."""
        return f"generation {number + 1}: " in said

    def memory(self):
        """Resident MiB."""
        status = pathlib.Path(f"/proc/{self.child.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024

    def await_said(self, found, what, limit=120):
        """Waits until `found` is true of what it says; gives the most memory meanwhile."""
        most, end = 0.0, time.monotonic() + limit
        while not found(said := self.log.read_text(errors="replace")):
            if self.child.poll() is not None or self.refused in said or time.monotonic() > end:
                sys.exit(f"`{what}` was not said:\n{said[-2000:]}")
            most = max(most, self.memory())
            time.sleep(0.005)
        return most

    def watch(self, seconds):
        """The most memory in so many seconds."""
        most, end = 0.0, time.monotonic() + seconds
        while time.monotonic() < end:
            most = max(most, self.memory())
            time.sleep(0.005)
        return most

    def reload(self, number, rules):
        """Puts rules in place whole, as updaters do, and has them loaded as reload `number`: the most memory meanwhile, and seconds."""
        new = self.rules.with_name("new")
        new.write_bytes(rules)
        new.rename(self.rules)
        begin = time.monotonic()
        self.child.send_signal(signal.SIGUSR2)
        most = self.await_said(lambda said: self.has_reloaded(said, number), f"reload {number}")
        return most, time.monotonic() - begin

    def stop(self):
        """Ends it in order; what it has said."""
        self.child.send_signal(signal.SIGTERM)
        self.child.wait(60)
        return self.log.read_text(errors="replace")

    def end(self):
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()


class Suricata(Program):
    """The peer on the same link."""

    started, refused = "Engine started", "reload failed"

    @classmethod
    def start(cls, suricata):
        folder = suricata.folder
        return cls(suricata.live(folder / "alerts.yaml", folder / "etopen.rules", "btzg1", folder / "log"), folder)

    def has_reloaded(self, said, number):
        return said.count("rule reload complete") >= number


def reload_often(program, reloads, share, told=lambda *row: None):
    """Has the rules reloaded, odd times with such a share of them changed, even times as they came: memory before, at most, and a second
    after the last (MiB), and the seconds of each. `told` gets number, memory, peak and seconds of each."""
    plain = program.rules.read_bytes()
    other = changed(plain, share)
    before, peak, times = program.memory(), 0.0, []
    for number in range(1, reloads + 1):
        most, took = program.reload(number, other if number % 2 else plain)
        times.append(took)
        peak = max(peak, most, program.watch(0.2))
        told(number, program.memory(), peak, took)
    time.sleep(1)
    return before, peak, program.memory(), times
