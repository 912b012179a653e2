#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The module table of hw/README.md, from the counts of both configurations.

    hw/syn/table.py IPV4.json BOTH.json [--check]
"""

import json
import pathlib
import sys

README = pathlib.Path(__file__).resolve().parent.parent / "README.md"
BEGIN, END = "<!-- counts -->\n", "<!-- end of counts -->"
# The groups of PASS, table 6: what is of the functions, and what stands around.
FUNCTIONS = ["header_parser", "classifier", "path_selector", "pfw", "sfw"]
# The level of decided flows.
FLOWS = ["flow_cache", "flow_counters"]
PLATFORM = ["axis_register", "intake", "header_collector", "credit_fifo", "tenant_table", "verdict_join",
            "egress", "counter_bank", "regs"]
# Of the classifier.
PARTS = ["stride_bv", "priority_tree", "delay_line"]


def row(name, counts):
    cells = []
    for count in counts:
        entry = count.get(name)
        if entry is None:
            sys.exit(f"no module `{name}` in the counts: it was renamed or made part of another one; change hw/syn/table.py")
        cells += [f"{entry['luts'] + entry['memory_luts']:,}", f"{entry['ffs']:,}", f"{entry['tiles']:g}"]
    return f"| `{name}` | {counts[0][name]['instances']} | " + " | ".join(cells) + " |"


def total(title, names, counts):
    cells = []
    for count in counts:
        cells += [f"{sum(count[n]['luts'] + count[n]['memory_luts'] for n in names):,}",
                  f"{sum(count[n]['ffs'] for n in names):,}", f"{sum(count[n]['tiles'] for n in names):g}"]
    return f"| **{title}** | | " + " | ".join(f"**{cell}**" for cell in cells) + " |"


def main():
    counts = [json.loads(pathlib.Path(path).read_text(encoding="utf-8")) for path in sys.argv[1:3]]
    lines = ["| module | of it | LUTs, IPv4 | FFs | tiles | LUTs, both | FFs | tiles |", "|---|---|---|---|---|---|---|---|"]
    lines += [row(name, counts) for name in FUNCTIONS]
    lines += [total("function", FUNCTIONS, counts)]
    lines += [row(name, counts) for name in FLOWS + PLATFORM]
    lines += [row("bartizan_top", counts)]
    lines += [row(name, counts).replace("| `", "| of `classifier`: `", 1) for name in PARTS]
    table = "\n".join(lines) + "\n"
    print(table, end="")
    text = README.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    new = head + BEGIN + table + END + rest.split(END)[1]
    if "--check" in sys.argv and new != text:
        sys.exit("hw/README.md differs from the counts; run hw/syn/run")
    if "--check" not in sys.argv:
        README.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
