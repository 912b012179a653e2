#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Memory of a device over changes of ET Open by REST: a controller and an agent with an inline link and steady traffic (tests/faults), and each change has a hundred
other rules.

  joined.py PROGRAM RULES RELOADS    prints {"rest": MiB, "peak": times, "after": times, "seconds": median}; RULES: a plain rule file
"""
import hashlib
import json
import pathlib
import re
import statistics
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "tests/faults"))
from fault.changes import Changes  # noqa: E402
from fault.planes import Site  # noqa: E402
from fault.space import enter  # noqa: E402
from fault.traffic import ALLOWED  # noqa: E402

CHANGED = 100
POLICY = {"order": 10, "policy": {"chain": ["pfw", "ids"], "ids": {"level": "open"}, "pfw": {"default": "drop", "rules": [{"allow": "udp", "to-ports": [ALLOWED]}]}}}


def changed(text, number):
    """The rules with a hundred of them in another revision."""
    lines = text.split("\n")
    rules = [at for at, line in enumerate(lines) if line.startswith("alert")]
    for at in rules[:: max(1, len(rules) // CHANGED)][:CHANGED]:
        lines[at] = re.sub(r"rev:(\d+);", lambda m: f"rev:{int(m[1]) + number};", lines[at])
    return "\n".join(lines)


class Watch:
    """The most memory from when it begins until it is asked."""

    def __init__(self, process):
        self.process, self.most, self.over = process, process.memory(), threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.over.wait(0.005):
            self.most = max(self.most, self.process.memory())

    def stop(self):
        self.over.set()
        self.thread.join()
        return self.most


def bring(changes, text):
    """Puts a rule file and has the library choose from it; seconds until the device has acknowledged it."""
    digest, begun = hashlib.sha256(text.encode()).hexdigest(), time.monotonic()
    status, answer = changes.rest.ask("PUT", f"/rule-files/{digest}", text)
    if status >= 300:
        sys.exit(f"the rule file: {status} {answer}")
    changes.rest.good("PUT", "/libraries/open?wait=60", {"files": [digest]})
    changes.converged(300)
    return time.monotonic() - begun


def measure(program, rules, reloads, folder):
    site = Site(program, folder, False, disk="2g")
    agent, changes = site.agents[0], Changes(site)
    site.agents = [agent]
    try:
        site.controller.start()
        changes.begin()
        agent.begin(100)
        changes.rest.limit = 300
        changes.rest.close()
        bring(changes, rules)
        changes.rest.good("PUT", "/tenants/acme/policies/all", POLICY)
        changes.converged(300)
        changes.ready()
        # The first change makes what all others need as well.
        bring(changes, changed(rules, 1))
        time.sleep(3)
        rest, watch = agent.memory(), Watch(agent)
        times = [bring(changes, changed(rules, number)) for number in range(2, 2 + reloads)]
        time.sleep(1.5)
        peak, after = watch.stop(), agent.memory()
        lost = agent.traffic.lost(agent.down, time.monotonic() - 2)
        if lost:
            sys.exit(f"{len(lost)} datagrams were lost")
        site.stop()
    finally:
        site.abandon()
    return {"rest": round(rest, 1), "peak": round(peak / rest, 3), "after": round(after / rest, 3), "seconds": round(statistics.median(times), 3)}


def main():
    enter("reloads by REST")
    program, rules, reloads = sys.argv[1], pathlib.Path(sys.argv[2]).read_text(errors="replace"), int(sys.argv[3])
    with tempfile.TemporaryDirectory(prefix="bartizan-joined-", ignore_cleanup_errors=True) as name:
        print(json.dumps(measure(program, rules, reloads, pathlib.Path(name))))


if __name__ == "__main__":
    main()
