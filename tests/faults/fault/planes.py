# SPDX-License-Identifier: Apache-2.0
"""The processes: a controller, and agents whose inline links lie between two ends of ours. Each is killed and started again as a supervisor would."""
import math
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import threading
import time

from . import Wrong, until
from .traffic import Traffic
from .wire import Wire

REST, SOUTHBOUND = 9443, 7443
CLOCK = pathlib.Path(__file__).resolve().parent.parent / "clock.c"
# Room of the disks that are filled.
DISK = "24m"


def run(command):
    done = subprocess.run(command.split(), capture_output=True, text=True)
    if done.returncode != 0:
        raise Wrong(f"`{command}` failed: {(done.stderr or done.stdout).strip()}")


def compiler():
    """Who makes what turns clocks; None: there is nobody."""
    return shutil.which("cc") or shutil.which("clang")


class Disk:
    """A small file system of its own, which can be filled."""

    def __init__(self, folder, size):
        self.folder = folder
        folder.mkdir()
        run(f"mount -t tmpfs -o size={size} none {folder}")

    def fill(self):
        """Takes all room there is; again and again, as what is removed beside it makes some."""
        with open(self.folder / "ballast", "ab", buffering=0) as ballast:
            for size in (1 << 20, 4096):
                try:
                    while ballast.write(bytes(size)):
                        pass
                except OSError:
                    pass

    def free(self):
        (self.folder / "ballast").unlink(missing_ok=True)


class Process:
    """A program that is killed and started again."""

    def __init__(self, site, name, words, ready):
        self.site, self.name, self.words, self.ready = site, name, words, ready
        self.log = site.folder / f"{name}.log"
        self.clock = site.folder / f"{name}.clock"
        self.child, self.starts, self.lock = None, 0, threading.RLock()
        self.turn(0)

    def turn(self, seconds):
        """Its wall clock is so many seconds off from now on. The machine's is not touched, nor the clocks that nobody sets."""
        with open(self.clock, "r+b" if self.clock.exists() else "wb") as file:
            file.write(struct.pack("q", seconds))

    def environment(self):
        if self.site.clocks is None:
            return None
        return os.environ | {"LD_PRELOAD": str(self.site.clocks), "BARTIZAN_FAULT_CLOCK": str(self.clock)}

    def start(self, wait=True):
        with self.lock:
            self.at = self.log.stat().st_size if self.log.exists() else 0
            with open(self.log, "ab") as log:
                self.child = subprocess.Popen(self.words, stdout=log, stderr=log, cwd=self.site.folder, env=self.environment())
            self.starts += 1
        if wait:
            self.await_ready()

    def await_ready(self):
        def there():
            if self.child.poll() is not None:
                raise Wrong(f"{self.name} has ended by itself, status {self.child.returncode}: {self.said()[-1500:]}")
            return self.ready in self.said()

        until(lambda: f"`{self.ready}` of {self.name}: {self.said()[-1500:]}", there, 60)

    def said(self):
        """What the process that runs has said."""
        with open(self.log, "rb") as log:
            log.seek(self.at)
            return log.read().decode(errors="replace")

    def kill(self):
        self.child.kill()
        self.child.wait()

    def signal(self, name):
        self.child.send_signal(getattr(signal, f"SIG{name}"))

    def stop(self):
        if self.child is None or self.child.poll() is not None:
            return None
        self.child.terminate()
        try:
            return self.child.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Wrong(f"{self.name} does not end: {self.said()[-1500:]}") from None

    def memory(self):
        """Resident MiB."""
        status = pathlib.Path(f"/proc/{self.child.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024

    def files(self):
        return len(os.listdir(f"/proc/{self.child.pid}/fd"))

    def seconds(self, threads):
        """Processor time of threads whose names begin so; of a process that is killed now none."""
        total = 0
        try:
            for task in pathlib.Path(f"/proc/{self.child.pid}/task").iterdir():
                name, fields = re.match(r"\d+ \((.*)\) (.*)", (task / "stat").read_text(), re.S).groups()
                if name.startswith(threads):
                    total += sum(map(int, fields.split()[11:13]))
        except (FileNotFoundError, ProcessLookupError):
            return 0.0
        return total / os.sysconf("SC_CLK_TCK")


class Controller(Process):
    def __init__(self, site):
        self.disk = Disk(site.folder / "controller", site.room)
        words = [site.program, "controller", "--listen", f"127.0.0.1:{REST}", "--southbound", f"127.0.0.1:{SOUTHBOUND}", "--state", str(self.disk.folder)]
        super().__init__(site, "controller-log", words, "listens on https://")


class Agent(Process):
    """`bartizan run` on a link: without a level below and closed when it fails, or with XDP and open."""

    def __init__(self, site, name, ends, level):
        self.device, self.ends, self.level = name, ends, level
        self.disk = Disk(site.folder / f"{name}-state", site.room)
        self.port = 8001 + len(site.agents)
        self.wire = Wire(self.port, ("127.0.0.1", SOUTHBOUND))
        network(ends)
        offload = f", offload: {{level: xdp, entries: 4096, fail: {level}, stale: 1s}}" if level else ""
        (site.folder / f"{name}.yaml").write_text(
            f"links: [{{name: wan, inline: {{a: {ends[0]}1, b: {ends[1]}1{offload}}}, workers: 1}}]\n"
            f"cache: none\noutputs: {{eve: {{dir: {name}-out}}}}\ncontrol: {{socket: {name}.socket}}\nsettings: {{capture.checksum-validation: none}}\n"
            f"controller: {{address: '127.0.0.1:{self.port}', identity: {name}-identity, state: {name}-state/store, statistics-every: 1s}}\n"
        )
        super().__init__(site, name, [site.program, "run", "-c", f"{name}.yaml"], "running on")
        # When the link was down, for no fault of the program.
        self.down = []
        # When datagrams came that a link which failed open let go on: the machine kept its worker from a
        # processor for longer than `stale`. By run of the agent.
        self.opened = {}
        self.traffic = None

    def enrol(self, token):
        words = [self.site.program, "ca", "enrol", self.device, "--controller", f"127.0.0.1:{self.port}", "--identity", f"{self.device}-identity"]
        done = subprocess.run(words, input=token, text=True, capture_output=True, cwd=self.site.folder)
        if done.returncode != 0:
            raise Wrong(f"{self.device} is not enrolled: {done.stderr}")

    def begin(self, rate):
        self.start()
        # Until its first policy has come nothing goes on.
        self.down.append([0.0, math.inf])
        self.traffic = Traffic(f"{self.ends[0]}0", f"{self.ends[1]}0", rate)

    def kill(self):
        now = time.monotonic()
        self.down.append([now - 0.2, math.inf])
        super().kill()

    def start(self, wait=True):
        super().start(wait)
        if wait and self.down:
            self.up()

    def up(self):
        """It serves again: behind the first datagram that comes both ways."""
        number = len(self.traffic.sent)
        until(f"traffic through {self.device}", lambda: 3 in self.traffic.came[number:], 30)
        self.down[-1][1] = time.monotonic() + 0.2

    def failed_open(self, leaked):
        """Whether this run has forwarded so many frames more since nobody served them, by its own account."""
        if not self.level:
            return False
        done = subprocess.run([self.site.program, "ctl", "--socket", f"{self.device}.socket", "dump-counters"], text=True, capture_output=True, cwd=self.site.folder)
        told = re.search(r"offload\.open_pkts (\d+)", done.stdout)
        known = self.opened.setdefault(self.starts, set())
        if not told or int(told[1]) < len(known) + len(leaked):
            return False
        known.update(leaked)
        return True

    def may_have_passed(self, at):
        """Whether what passed then did since the link had failed open, as it is to."""
        return self.level and (self.is_down(at) or any(at in times for times in self.opened.values()))

    def is_down(self, at):
        return any(begin <= at <= end for begin, end in self.down)


def network(ends):
    for end in ends:
        run(f"ip link add {end}0 type veth peer name {end}1")
        for device in (f"{end}0", f"{end}1"):
            run(f"ip link set dev {device} arp off up")
        run(f"ethtool -K {end}1 tx off tso off gso off gro off rxvlan off")
        run(f"ethtool -K {end}0 tx off tso off gso off gro on")


class Site:
    """All of it, in the namespaces of this process."""

    def __init__(self, program, folder, clocks, disk=DISK):
        self.program, self.room, self.folder, self.agents, self.clocks = program, disk, folder, [], None
        if clocks:
            self.clocks = folder / "clock.so"
            run(f"{compiler()} -shared -fPIC -O2 -o {self.clocks} {CLOCK}")
        self.controller = Controller(self)
        for name, ends, level in (("one", "ab", ""), ("two", "cd", "open")):
            self.agents.append(Agent(self, name, ends, level))

    def processes(self):
        return [self.controller, *self.agents]

    def stop(self):
        for agent in self.agents:
            if agent.traffic is not None:
                agent.traffic.stop()
            agent.wire.stop()
        return {process.name: process.stop() for process in self.processes()}

    def abandon(self):
        """Ends what runs, whatever has happened."""
        for process in self.processes():
            if process.child is not None and process.child.poll() is None:
                process.child.kill()
                process.child.wait()
