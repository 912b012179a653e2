#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the policies that the bench runs, and prints the forwarders for inline.py: NAME=COMMAND, a line each.

    benches/inline/chains.py PROGRAM FOLDER [NAME ...]

Every policy lets all of the bench's traffic through, after its functions have looked at it: the packet filter's 1,000 rules never
match (other addresses, a port each), the detection rule never matches (it searches every stream for a text that does not occur).
"""

import ipaddress
import os
import sys

RULE = (
    'alert tcp any any -> any any (msg:"one rule"; flow:established; content:"xq7Zb-bartizan-none"; sid:9000001; rev:1;)'
)
SETTINGS = """outputs:
- eve-log:
    enabled: yes
    filename: eve.json
    types: [alert]
stats: {enabled: no}
"""
CHAINS = {
    # name: functions of the chain
    "empty": [],
    "pfw": ["pfw"],
    "sfw": ["sfw"],
    "ids": ["ids"],
    "pfw+sfw": ["pfw", "sfw"],
    "pfw+ids": ["pfw", "ids"],
    "sfw+ids": ["sfw", "ids"],
    "pfw+sfw+ids": ["pfw", "sfw", "ids"],
    "pfw-1": ["pfw"],
    "pfw-10000": ["pfw"],
}


# The packet filter's rules, where they are not 1,000.
RULES = {"pfw-1": 1, "pfw-10000": 10_000}


def filter_rules(count):
    lines = ["    pfw:", "      default: allow", "      rules:"]
    for n in range(count):
        net = ipaddress.ip_address(0xAC10_0000 + 64 * n)
        lines.append(f'        - {{drop: tcp, from: "{net}/26", to-ports: {20000 + n}}}')
    return lines


def policy(functions, rules):
    lines = ["policies:", "  - name: bench", '    from: ["10.77.0.0/24"]', '    to: ["10.77.0.0/24"]']
    lines.append(f"    chain: [{', '.join(functions)}]")
    if "pfw" in functions:
        lines += filter_rules(rules)
    lines.append("default: {action: allow, chain: []}")
    return "\n".join(lines) + "\n"


def main():
    program, folder, *names = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    for name, text in (("one.rules", RULE + "\n"), ("settings.yaml", SETTINGS)):
        with open(os.path.join(folder, name), "w") as file:
            file.write(text)
    for name in names or CHAINS:
        path = os.path.join(folder, f"{name}.yaml")
        with open(path, "w") as file:
            file.write(policy(CHAINS[name], RULES.get(name, 1000)))
        rules = f" --rules {folder}/one.rules" if "ids" in CHAINS[name] else ""
        print(
            f"{name}={program} run --inline {{a}} {{b}} --policy {path}{rules}"
            f" --suricata-config {folder}/settings.yaml --out {folder}/out-{name}"
        )


if __name__ == "__main__":
    main()
