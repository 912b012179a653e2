# SPDX-License-Identifier: Apache-2.0
"""The highest rate at which no packet is lost, and the sums that have to agree before it counts."""

import collections
import dataclasses
import json
import shlex
import subprocess

from engines import CLASSES, KEPT
from inline import Problem

# The search ends when the lowest rate that lost is so near to the highest one that did not.
NEAR = 1.08
PROBES = 10
# A proof that fails is tried again at so much less, so often.
LESS, PROOFS = 0.93, 6
FIRST_RATE, HIGHEST_RATE = 40_000, 4_000_000


@dataclasses.dataclass
class Load:
    """What is offered."""

    bypassable: float  # percent of the bytes
    sizes: str  # as the generator's option
    ipv6: float = 25.0
    # Of a flow's packets, in seconds: short enough for several generations of flows in a run, longer than
    # what a ring holds. As many flows are open at once as the rate needs.
    spacing: float = 0.05
    fewest: int = 256


class Offer:
    """Offers load to what is in the middle: each run plays flows that none before has played."""

    def __init__(self, net, program, load):
        self.net, self.program, self.load, self.next = net, program, load, 0
        self.sent = {name: collections.Counter() for name in CLASSES.values()}
        self.arrived = self.refused = 0
        self.runs = []

    def forget(self):
        """A new program in the middle has seen nothing yet."""
        for counts in self.sent.values():
            counts.clear()
        self.arrived, self.refused, self.runs = 0, 0, []

    def run(self, rate, seconds):
        load = self.load
        command = (
            f"{self.program} btzc0 btzs0 --rate {round(rate)} --seconds {seconds} --bypassable {load.bypassable} --sizes {load.sizes}"
            f" --concurrent {max(load.fewest, round(rate * load.spacing))} --ipv6 {load.ipv6} --first {self.next}"
        )
        done = subprocess.run(shlex.split(self.net.inside("c", 0, command)), capture_output=True, text=True, timeout=seconds + 120)
        if done.returncode != 0:
            raise Problem(f"the generator failed: {done.stderr.strip()}")
        said = json.loads(done.stdout)
        # Nothing else is on these links; what is would blur the sums.
        if said["others_arrived"]:
            raise Problem(f"{said['others_arrived']} frames arrived that nobody of this bench sent")
        said["rate"] = said["paced"] / said["seconds"]
        self.next = said["next"]
        for name, counts in said["classes"].items():
            self.sent[name].update({"flows": counts["begun"], "packets": counts["packets"], "bytes": counts["bytes"]})
            self.arrived += counts["arrived"]
        self.refused += said["refused"]
        self.runs.append(said)
        return said


def lost(said, drops):
    """Packets that did not arrive, of those that had to: with a rule that drops only the others are known here; the sums at the end tell of all."""
    classes = said["classes"].items()
    return said["refused"] + sum(c["packets"] - c["arrived"] for name, c in classes if not drops or name in KEPT)


def search(offer, drops, seconds, proof, guess):
    """A rate that lost nothing in one short run, near the lowest that did, nor in one as long as those of the proof, before which the program
    has to be started anew. Also whether the generator was the limit.
    """
    good, bad, rate, limited = 0.0, None, guess, False
    for _ in range(PROBES):
        said = offer.run(rate, seconds)
        if lost(said, drops):
            bad = min(rate, bad or rate)
        else:
            good = max(good, said["rate"])
            if said["rate"] < 0.9 * rate:
                limited = True
                break
        if bad and good and bad / good < NEAR:
            break
        if bad is None:
            rate = min(rate * 1.6, HIGHEST_RATE)
        else:
            rate = (good * bad) ** 0.5 if good else rate / 2
    for _ in range(PROOFS):
        if not good or not lost(offer.run(good, proof), drops):
            break
        good *= LESS
    return good, limited


def check_sums(offer, totals, drops):
    """What does not add up, empty if all does: at the generator, in the flow records, at the far ends."""
    wrong = []
    for name, sent in offer.sent.items():
        for what in ("flows", "packets", "bytes"):
            if sent[what] != totals.records[name][what]:
                wrong.append(f"{name}: {sent[what]} {what} were sent, flow records say {totals.records[name][what]}")
    sent = sum(counts["packets"] for counts in offer.sent.values())
    if totals.others:
        wrong.append(f"{totals.others} flow records of flows that nobody played")
    if totals.ring:
        wrong.append(f"{totals.ring} packets were lost in rings")
    if sent != offer.arrived + totals.refused:
        wrong.append(f"{sent} packets were sent, {offer.arrived} arrived and {totals.refused} were refused")
    if totals.refused and not drops:
        wrong.append(f"{totals.refused} packets were refused though no rule drops: {totals.reasons}")
    return wrong


def prove(engine, start, offer, drops, rate, runs, seconds):
    """So many runs without loss, in a life of the program of its own, whose sums agree. A dictionary of figures, or what was wrong last."""
    wrong = ["no rate without loss was found"]
    for _ in range(PROOFS if rate else 0):
        offer.forget()
        start()
        try:
            for _ in range(runs):
                if lost(offer.run(rate, seconds), drops):
                    break
            clean = len(offer.runs) == runs and not any(lost(said, drops) for said in offer.runs)
            totals = engine.stop()
        finally:
            engine.abandon()
        wrong = check_sums(offer, totals, drops)
        # A loss is no surprise: the rate was too high. Sums that do not agree without one are.
        if clean and not wrong:
            return figures(offer, totals), []
        if clean and not totals.ring:
            return None, wrong
        wrong = wrong or ["packets were lost"]
        rate *= LESS
    return None, wrong


def figures(offer, totals):
    packets = sum(counts["packets"] for counts in offer.sent.values())
    size = sum(counts["bytes"] for counts in offer.sent.values())
    rate = min(said["rate"] for said in offer.runs)
    by_bytes = {name: counts["bytes"] / size for name, counts in offer.sent.items()}
    return {
        "rate": rate,
        "gbits": rate * 8 * size / packets / 1e9,
        "packets": packets,
        "flows": sum(counts["flows"] for counts in offer.sent.values()),
        "mean_size": size / packets,
        "bypassable": by_bytes["tcp-bypassable"] + by_bytes["udp-bypassable"],
        "tcp": by_bytes["tcp-kept"] + by_bytes["tcp-bypassable"],
        "low": totals.low / packets,
        "low_bytes": totals.low_bytes / size,
        "below": totals.below / packets,
        "refused": totals.refused / packets,
        "cost": 1e9 * totals.cpu / packets,
        "sender_cost": 1e9 * sum(said["processor"] for said in offer.runs) / packets,
    }
