# SPDX-License-Identifier: Apache-2.0
"""Suricata in socket mode: one process that has loaded its rules and reads a capture when asked to.

Its processor time is read before and after a capture. It is never run in a real-time class: its threads
wait by spinning, and there each spin lasts a whole time slice.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time

START_SECONDS, CAPTURE_SECONDS, POLL = 900, 900, 0.1


class Resident:
    """A process with one rule set."""

    def __init__(self, suricata, rules, core):
        self.suricata, self.folder = suricata, suricata.folder
        self.path, self.buffer, self.socket = self.folder / "socket", b"", None
        self.path.unlink(missing_ok=True)
        source = ["--runmode", "single", f"--unix-socket={suricata.inside(self.path)}"]
        settings, log = self.folder / "alerts.yaml", self.folder / "resident"
        command = suricata.start(settings, self.folder / rules, log, source)
        self.said = open(self.folder / "resident.said", "w+b")
        words = ["taskset", "-c", core, *map(str, command)]
        self.process = subprocess.Popen(words, stdout=self.said, stderr=self.said)
        try:
            self.connect()
        except BaseException:
            self.close()
            raise

    def connect(self):
        end = time.monotonic() + START_SECONDS
        while True:
            if self.process.poll() is not None or time.monotonic() > end:
                self.said.seek(0)
                text = self.said.read()[-2000:].decode(errors="replace")
                sys.exit(f"the peer does not answer in socket mode:\n{text}")
            try:
                self.socket = socket.socket(socket.AF_UNIX)
                self.socket.settimeout(60)
                self.socket.connect(str(self.path))
                break
            except OSError:
                self.socket.close()
                time.sleep(POLL)
        self.ask({"version": "0.2"})

    def ask(self, message):
        self.socket.sendall(json.dumps(message).encode() + b"\n")
        while b"\n" not in self.buffer:
            data = self.socket.recv(65536)
            if not data:
                sys.exit(f"the peer closed its socket after {message}")
            self.buffer += data
        line, self.buffer = self.buffer.split(b"\n", 1)
        answer = json.loads(line)
        if answer["return"] != "OK":
            sys.exit(f"the peer refused {message}: {answer}")
        return answer.get("message")

    def seconds(self):
        """Processor seconds of all its threads so far: the process' CPU-time clock, to the nanosecond."""
        return time.clock_gettime(~self.process.pid << 3 | 2)

    def inspect(self, capture):
        """Processor seconds for a capture."""
        out = self.folder / "resident.out"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        names = {"filename": self.suricata.inside(capture), "output-dir": self.suricata.inside(out)}
        before, end = self.seconds(), time.monotonic() + CAPTURE_SECONDS
        self.ask({"command": "pcap-file", "arguments": names})
        while True:
            time.sleep(POLL)
            waiting, current = (self.ask({"command": name}) for name in ("pcap-file-number", "pcap-current"))
            if waiting == 0 and current == "None":
                return self.seconds() - before
            if time.monotonic() > end:
                sys.exit(f"the peer did not finish {capture.name} in {CAPTURE_SECONDS} s")

    def close(self):
        if self.socket:
            self.socket.close()
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.said.close()
        os.remove(self.folder / "resident.said")
