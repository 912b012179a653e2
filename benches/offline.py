# SPDX-License-Identifier: Apache-2.0
"""Runs over captures: the two programs with the same rules and captures, what a run costs, and what the load of rules costs.

A program works in a folder of its own, in which rules, captures and `alerts.yaml` lie.
"""
import os
import shutil
import subprocess
import sys
import time

import peer

CORE = os.environ.get("CORE", "0")


class Cost:
    """Of a process: processor seconds, wall seconds, MiB at most, user instructions or `None`."""

    def __init__(self, command, folder, counts):
        counted = folder / "instructions"
        words = ["taskset", "-c", CORE, *map(str, command)]
        if counts:
            words = ["perf", "stat", "-x,", "-e", "instructions:u", "-o", str(counted), *words]
        begin = time.monotonic()
        with open(folder / "said", "wb") as said:
            child = subprocess.Popen(words, stdout=said, stderr=said)
            _, status, usage = os.wait4(child.pid, 0)
        # Waited for above.
        child.returncode = status
        if status:
            sys.exit(f"{' '.join(words)}\n{(folder / 'said').read_text(errors='replace')}")
        self.wall, self.cpu, self.peak = time.monotonic() - begin, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
        self.instructions = None
        if counts:
            lines = [line for line in counted.read_text().splitlines() if "instructions" in line]
            number = lines[0].split(",")[0] if lines else ""
            self.instructions = int(number) if number.isdigit() else None


def perf_counts():
    try:
        ran = subprocess.run(["perf", "stat", "-x,", "-e", "instructions:u", "true"], capture_output=True, text=True)
    except OSError:
        return False
    return ran.returncode == 0 and "<not" not in ran.stderr


def callgrind(command):
    """The user instructions of a command, as valgrind counts them."""
    words = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *map(str, command)]
    ran = subprocess.run(words, capture_output=True, text=True)
    if ran.returncode != 0:
        sys.exit(f"{' '.join(words)}\n{ran.stderr}")
    line = next(line for line in ran.stderr.splitlines() if "Collected" in line)
    return int(line.split(":")[1])


class Bartizan:
    name = "bartizan"

    def __init__(self, folder):
        self.tool, self.folder = peer.program(), folder
        self.cache, self.eve = folder / "patterns", folder / "out/eve.json"

    def command(self, rules, capture, default=False, more=()):
        """An inspection; `default`: with the program's default events, otherwise alerts alone."""
        shutil.rmtree(self.folder / "out", ignore_errors=True)
        words = [self.tool, "inspect", "--json", "--cache", self.cache, "--out", self.folder / "out", "--rules", self.folder / rules]
        words += [] if default else ["--suricata-config", self.folder / "alerts.yaml"]
        return [*words, "--set", "capture.checksum-validation=none", "--set", "runmode=single", *more, self.folder / capture]

    def forget_patterns(self):
        shutil.rmtree(self.cache, ignore_errors=True)

    def patterns(self):
        """The pattern engine in the program's own words, after a run: both sides should have libhs."""
        said = (self.folder / "said").read_text(errors="replace")
        return next((line.strip().strip(",") for line in said.splitlines() if '"patterns":' in line), "patterns: not said")

    def alerts(self):
        return alerts(self.eve)


class Suricata:
    def __init__(self, suricata):
        self.suricata, self.folder, self.name = suricata, suricata.folder, f"Suricata {suricata.version}"
        self.eve = self.folder / "log/eve.json"

    def command(self, rules, capture, default=False):
        shutil.rmtree(self.folder / "log", ignore_errors=True)
        settings = "/etc/suricata/suricata.yaml" if default else self.folder / "alerts.yaml"
        return self.suricata.command(settings, self.folder / rules, self.folder / capture, self.folder / "log")

    def forget_patterns(self):
        shutil.rmtree(self.folder / "patterns", ignore_errors=True)
        (self.folder / "patterns").mkdir()

    def alerts(self):
        return alerts(self.eve)


def alerts(path):
    with open(path, encoding="utf-8", errors="replace") as events:
        return sum('"event_type":"alert"' in line for line in events)


def engines(folder, suricata):
    """The program, and the peer where there is one; the program is the first."""
    return [Bartizan(folder)] + ([Suricata(suricata)] if suricata else [])


def load(engines, rules, capture, rounds, counts=False):
    """Costs of start and load, by ("cold" or "cached", name of the engine), a round each; `capture` has one packet. Leaves the folders of
    patterns full. And the pattern engine in the program's words."""
    found, patterns = {}, ""
    for _ in range(rounds):
        for engine in engines:
            engine.forget_patterns()
            for kind in ("cold", "cached"):
                found.setdefault((kind, engine.name), []).append(Cost(engine.command(rules, capture), engine.folder, counts))
            patterns = engine.patterns() if engine is engines[0] else patterns
    return found, patterns
