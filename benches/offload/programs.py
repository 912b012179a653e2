# SPDX-License-Identifier: Apache-2.0
"""Real programs over the XDP level, beside the kernel's bridge: iperf3, and requests of 100 KB over nginx.

The host's chain is a packet filter that allows everything, so a connection is below once it is established. Bridge and level take turns; ratios are of one round. Ends with
generic receive offload and ends without: without it a veth's far end takes what is redirected to it only if it has an XDP program of its own, so both ends have one that passes everything.
The program has to have handled nearly all frames below, by its own counters.
"""

import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys

import engines
from engines import inline, peer

# Of the frames of a measurement, at least: the rest opens and closes connections.
BELOW = 0.95
POLICY = "policies: [{name: all, from: any, to: any, chain: [pfw], pfw: {default: allow}}]\ndefault: {action: drop}\n"
PASS = '__attribute__((section("xdp"), used)) int pass(void *context) { return 2; }\nchar licence[] __attribute__((section("license"), used)) = "Apache-2.0";\n'
# Name, whether the ends have GRO, case of the bench of inline chains, least ratio.
CASES = [("iperf3, ends without GRO", False, "bulk", 0.9), ("iperf3, ends with GRO", True, "bulk", 1.0), ("100 KB requests", True, "large", 0.8)]


def program():
    """The program that PROGRAM names, or a release build."""
    if "PROGRAM" in os.environ:
        return os.environ["PROGRAM"]
    subprocess.run(["cargo", "build", "--release", "--locked", "--quiet", "-p", "bartizan"], cwd=peer.ROOT, check=True)
    return str(pathlib.Path(os.environ.get("CARGO_TARGET_DIR", peer.ROOT / "target")) / "release/bartizan")


@contextlib.contextmanager
def ends(net, gro, folder):
    """Prepares the hosts' interfaces."""
    passing = folder / "pass.o"
    if not gro:
        (folder / "pass.c").write_text(PASS)
        subprocess.run(["clang", "-O2", "-target", "bpf", "-c", folder / "pass.c", "-o", passing], check=True)
    both = (("c", "btzc0"), ("s", "btzs0"))
    for which, device in both:
        inline.run(net.inside(which, 0, f"ethtool -K {device} gro {'on' if gro else 'off'}"))
        if not gro:
            inline.run(f"ip -n {net.name(which)} link set dev {device} xdpdrv obj {passing} sec xdp")
    try:
        yield
    finally:
        for which, device in both if not gro else ():
            inline.run(f"ip -n {net.name(which)} link set dev {device} xdpdrv off")


def frames(net):
    """Frames that came by both of the middle's interfaces."""
    counted = inline.interface_counters(net)
    return counted[net.a][1] + counted[net.b][1]


def over_level(net, binary, case, seconds, folder):
    out = folder / "level"
    policy = folder / "policy.yaml"
    policy.write_text(POLICY)
    before = frames(net)
    with open(folder / "program.log", "w+") as log:
        command = f"{binary} run --inline {net.a} {net.b} --offload xdp --policy {policy} --out {out}"
        child = net.start("m", 1, command, output=log)
        try:
            inline.wait_until_forwarding(net, child)
            figure = inline.measure(net, case, seconds)
        finally:
            net.stop(child)
        log.seek(0)
        said = log.read()
    came = frames(net) - before
    stats = json.loads((out / "stats.json").read_text())
    below = stats.get("offload.forwarded_pkts", 0)
    if below < BELOW * came:
        raise inline.Problem(f"{below} of {came} frames were handled below:\n{said}")
    return figure[0], below / came


def measure(folder, rounds, seconds):
    """By case: ratios and both figures of each round."""
    folder, binary, net = pathlib.Path(folder), program(), inline.Net("default", True)
    found = {name: [] for name, *_ in CASES}
    try:
        net.set_up()
        for device in (net.a, net.b):
            inline.run(net.inside("m", 0, f"ethtool -K {device} rxvlan off"))
        for which, device in (("c", "btzc0"), ("s", "btzs0")):
            inline.run(net.inside(which, 0, f"ethtool -K {device} txvlan off"))
        inline.start_servers(net, str(folder))
        for number in range(rounds):
            for name, gro, case, _ in CASES:
                with ends(net, gro, folder):
                    bridge = inline.bridge_round(net, [case], seconds)[case][0]
                    level, below = over_level(net, binary, case, seconds, folder)
                found[name].append((level, bridge, below))
            print(f"programs: round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    finally:
        net.tear_down()
    return found


def show(found):
    """The table, and the records."""
    print(f"\n{'programs over decided flows':<30}{'level':>12}{'bridge':>12}{'below':>8}  against the bridge of the same round")
    records = []
    for name, _, case, least in CASES:
        rounds = found[name]
        ratios = [level / bridge for level, bridge, _ in rounds]
        level, bridge, below = (statistics.median(one[at] for one in rounds) for at in range(3))
        unit = inline.CASES[case][1]
        digits = 2 if unit == "Gbit/s" else 0
        print(f"{name:<30}{level:>12.{digits}f}{bridge:>12.{digits}f}{100 * below:>7.1f}%  {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}), aim {least}")
        records.append({
            "name": f"level: {name}", "value": level, "unit": unit, "peer": "kernel bridge", "peer_value": bridge, "ratio": statistics.median(ratios),
            "ratio_min": min(ratios), "ratio_max": max(ratios), "rounds": len(rounds), "below": below, "aim": least,
        })
    return records
