#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts of a netlist that Yosys wrote as JSON, by module.

    hw/syn/count.py NETLIST.json TOP

Prints a JSON object: for each module of the design the LUTs, flip-flops and block RAM tiles of all that it holds, with how
often it is there. LUT memory and shift registers count as the LUTs that they take in a 7-series slice (UG474): RAM32M and
RAM64M four, RAM64X1D and RAM32X1D two, RAM128X1D four, RAM256X1S four, SRL one. A RAMB18 is half a tile.
"""

import json
import sys
from collections import Counter

LUTS = {
    "RAM32M": 4, "RAM64M": 4, "RAM32X1D": 2, "RAM64X1D": 2, "RAM128X1D": 4, "RAM256X1S": 4, "RAM128X1S": 2,
    "RAM64X1S": 1, "RAM32X1S": 1, "SRL16E": 1, "SRLC16E": 1, "SRLC32E": 1,
}
TILES = {"RAMB36E1": 1.0, "RAMB18E1": 0.5}
OTHER = ("CARRY4", "MUXF7", "MUXF8", "BUFG", "IBUF", "OBUF", "GND", "VCC", "$scopeinfo", "$assert", "$print")


def of_cell(kind):
    """LUTs, LUTs of memory, flip-flops and tiles of a primitive; None if it is none that is known."""
    if kind.startswith("LUT") or kind == "INV":
        return (0 if kind == "INV" else 1, 0, 0, 0.0)
    if kind in LUTS:
        return (0, LUTS[kind], 0, 0.0)
    if kind.startswith("FD"):
        return (0, 0, 1, 0.0)
    if kind in TILES:
        return (0, 0, 0, TILES[kind])
    if kind in OTHER:
        return (0, 0, 0, 0.0)
    return None


def name_of(module):
    """The name in the sources of a module that parameters have made."""
    if module.startswith("$paramod$"):
        return module.split("\\", 1)[1]
    if module.startswith("$paramod\\"):
        return module.split("\\")[1]
    return module.split("$", 1)[0] if not module.startswith("$") else module


def main():
    netlist, top = sys.argv[1:]
    with open(netlist, encoding="utf-8") as file:
        modules = json.load(file)["modules"]
    sums, unknown = {}, set()

    def total(name):
        if name not in sums:
            result = [0, 0, 0, 0.0]
            for cell in modules[name]["cells"].values():
                kind = cell["type"]
                # Primitives first: Yosys lists their models as modules, with delays as cells.
                own = of_cell(kind.lstrip("\\"))
                if own is None and kind in modules and modules[kind]["cells"]:
                    own = total(kind)
                if own is None:
                    unknown.add(kind)
                    continue
                result = [a + b for a, b in zip(result, own)]
            sums[name] = result
        return sums[name]

    top = next(name for name in modules if name_of(name) == top)
    total(top)
    if unknown:
        sys.exit(f"{netlist}: cells that this script does not know: {', '.join(sorted(unknown))}; add them to LUTS or OTHER")
    count = Counter()

    def visit(name, times):
        count[name] += times
        for cell in modules[name]["cells"].values():
            if cell["type"] in sums and of_cell(cell["type"]) is None:
                visit(cell["type"], times)

    visit(top, 1)
    result = {}
    for name, (logic, memory, flops, tiles) in sums.items():
        entry = result.setdefault(name_of(name), {"instances": 0, "luts": 0, "memory_luts": 0, "ffs": 0, "tiles": 0.0})
        entry["instances"] += count[name]
        for key, value in (("luts", logic), ("memory_luts", memory), ("ffs", flops), ("tiles", tiles)):
            entry[key] += value * count[name]
    json.dump(result, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
