# SPDX-License-Identifier: Apache-2.0
"""Runs cases over the tested path and compares with the bridge and with the empty chain of the same run."""

import dataclasses
import os
import shutil
import time

from . import Wrong
from .case import Way
from .net import BRIDGE, EMPTY, TESTED
from .program import Program, refusals, remarks

# A transfer may take so many times the time that it takes over the empty chain.
TIMES_EMPTY = 1.7
# A machine of several owners changes its speed from second to second: what is too slow is measured again,
# alternating, and the fastest of each side are compared. What is really slow stays so.
TRIES = 6
# The same for figures of the case's own: seconds before each further measurement, as other people's bursts
# last a while.
PAUSES = (0, 1, 5, 15)


@dataclasses.dataclass
class Result:
    """One case over one configuration."""

    case: str
    chain: str
    workers: int
    plan: str
    mtu: int
    # What is wrong, or empty.
    wrong: str = ""
    refused: dict = dataclasses.field(default_factory=dict)
    remarks: dict = dataclasses.field(default_factory=dict)
    seconds: float = 0.0
    ratio: float = 0.0
    figures: dict = dataclasses.field(default_factory=dict)
    # Sids of rules that dropped, with the number of events: only where rules drop.
    hits: dict = dataclasses.field(default_factory=dict)
    held: str = ""

    def where(self):
        mtu = f" mtu {self.mtu}" if self.mtu != 1500 else ""
        return f"{self.chain} w{self.workers} {self.plan:<3} {self.case}{mtu}"

    def ok(self):
        return not self.wrong and not self.refused


class Matrix:
    """The hosts, servers and reference paths of a run, and the program under test as it is now."""

    def __init__(self, net, servers, options, folder, say):
        self.net, self.servers, self.options, self.folder, self.say = net, servers, options, folder, say
        self.bridge = {}
        self.empty = None
        self.tested = None
        self.count = 0

    def way(self, path, plan):
        folder = os.path.join(self.folder, "work")
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        return Way(self.net, self.servers, path, plan, folder, self.options.limit)

    def program(self, path, chain, workers, settings=()):
        self.count += 1
        folder = os.path.join(self.folder, f"run-{self.count}")
        rules, cache = self.options.rules, self.options.cache
        return Program(self.net, path, self.options.program, folder, chain, workers, rules, settings, cache, self.options.offload).start()

    def set_mtu(self, mtu):
        """All paths get it; programs are started anew, because their rings are made for a size of frame."""
        self.stop_tested()
        if self.net.mtus[EMPTY] == mtu and self.empty:
            return
        if self.empty:
            self.empty.stop()
        self.net.unbridge(BRIDGE)
        for path in (BRIDGE, EMPTY, TESTED):
            self.net.set_mtu(path, mtu)
        self.net.bridge(BRIDGE)
        self.empty = self.program(EMPTY, "empty", 1)

    def start_tested(self, chain, workers, settings=()):
        self.net.end_connections(TESTED)
        self.tested = self.program(TESTED, chain, workers, settings)

    def stop_tested(self):
        """What is wrong with the sums of the program that ran."""
        wrong = self.tested.stop() if self.tested else []
        self.tested = None
        return wrong

    def once(self, case, path, plan):
        """Runs a case over a path: (seconds, figures)."""
        begin = time.monotonic()
        figures = case.run(self.way(path, plan)) or {}
        return time.monotonic() - begin, figures

    def reference(self, case, plan, mtu):
        """The case over the bridge, once a run: (seconds, figures). What fails there is wrong with the case or the machine."""
        key = case.name, plan, mtu
        if key not in self.bridge:
            try:
                self.bridge[key] = self.once(case, BRIDGE, plan)
            except (Wrong, OSError) as problem:
                self.bridge[key] = problem
        return self.bridge[key]

    def run(self, case, plan, mtu):
        result = Result(case.name, self.tested.chain, self.tested.workers, plan, mtu)
        before = self.tested.settled()
        self.tested.new_events("drop", "alert")
        try:
            result.seconds, result.figures = self.once(case, TESTED, plan)
            if self.options.compare:
                self.compare(case, plan, mtu, result)
        except (Wrong, OSError) as problem:
            result.wrong = str(problem) or type(problem).__name__
            reference = self.reference(case, plan, mtu)
            if isinstance(reference, Exception):
                result.wrong = f"also over the bridge, so the fault is the case's or the machine's: {reference}"
        try:
            self.tested.check_alive()
            after = self.tested.settled()
        except (Wrong, OSError) as problem:
            result.wrong += f"; {problem}"
            return result
        result.refused, result.remarks = refusals(before, after), remarks(before, after)
        if result.refused:
            # Events are written by another thread than the one that counts.
            time.sleep(0.2)
        for event in self.tested.new_events("drop", "alert"):
            alert = event.get("alert", {})
            if alert.get("action") == "blocked" and event["event_type"] == "alert":
                sid = alert["signature_id"]
                result.hits[sid] = result.hits.get(sid, 0) + 1
            elif event["event_type"] == "drop" and not result.wrong.count("first refused"):
                self.name_first(event, result)
        return result

    def name_first(self, event, result):
        ends = f"{event['src_ip']}:{event.get('src_port', '')} > {event['dest_ip']}:{event.get('dest_port', '')}"
        flags = "".join(name[0].upper() for name in ("syn", "ack", "psh", "rst", "urg", "fin") if event["drop"].get(f"tcp{name}") or event["drop"].get(name))
        text = f"first refused: {event['proto']} {ends} {flags} {event['drop'].get('reason', '')}"
        result.wrong = f"{result.wrong}; {text}" if result.wrong else text

    def compare(self, case, plan, mtu, result):
        """Times against the empty chain's, figures against the bridge's."""
        if case.timed and self.options.transfers and result.chain != "passive":
            tested, empty = [result.seconds], []
            while True:
                empty.append(self.once(case, EMPTY, plan)[0])
                result.ratio = min(tested) / min(empty)
                if result.ratio <= TIMES_EMPTY or len(empty) >= TRIES:
                    break
                tested.append(self.once(case, TESTED, plan)[0])
            if result.ratio > TIMES_EMPTY:
                result.wrong = f"takes {result.ratio:.2f} times the empty chain's time ({min(tested):.2f} s; at most {TIMES_EMPTY})"
        for name, margin in case.margins.items():
            reference = self.reference(case, plan, mtu)
            if isinstance(reference, Exception):
                raise reference
            best, bridge = result.figures[name], reference[1][name]
            for pause in PAUSES:
                if best <= bridge + margin:
                    break
                time.sleep(pause)
                bridge = max(bridge, self.once(case, BRIDGE, plan)[1][name])
                best = min(best, self.once(case, TESTED, plan)[1][name])
            result.figures[name] = best
            if best > bridge + margin:
                text = f"{name} {best:.1f} ms, over the bridge {bridge:.1f} ms (at most {margin} ms more)"
                result.wrong = f"{result.wrong}; {text}" if result.wrong else text
