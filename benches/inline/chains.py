#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the policies that the bench runs, and prints the forwarders for inline.py: NAME=COMMAND, a line each.

    benches/inline/chains.py [--any] [--etopen RULES --settings SURICATA.YAML] PROGRAM FOLDER [NAME ...]

A name that ends in `+etopen` is the chain before it with Emerging Threats Open's rules instead of the one rule, and with those
settings: what it is compared with is Suricata with the same two files.

One that ends in `@N` is the chain before it with N workers, which tell their counters in the last `stats` event.

Every policy lets all of the bench's traffic through, after its functions have looked at it: the packet filter's 1,000 rules never
match (other addresses, a port each), the detection rule never matches (it searches every stream for a text that does not occur).
"""

import argparse
import ipaddress
import os

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
# Of runs with several workers: each tells its counters at the end.
WORKERS_SETTINGS = """outputs:
- eve-log:
    enabled: yes
    filename: eve.json
    types: [alert, {stats: {totals: yes, threads: yes}}]
stats: {enabled: yes, interval: 1000}
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


def policy(functions, rules, anyone):
    lines = ["policies:", "  - name: bench"]
    if not anyone:
        lines += ['    from: ["10.77.0.0/24"]', '    to: ["10.77.0.0/24"]']
    lines.append(f"    chain: [{', '.join(functions)}]")
    if "pfw" in functions:
        lines += filter_rules(rules)
    lines.append("default: {action: allow, chain: []}")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser()
    for name in ("program", "folder"):
        parser.add_argument(name)
    parser.add_argument("--etopen", metavar="RULES", help="Emerging Threats Open, plain or compressed")
    parser.add_argument("--settings", metavar="SURICATA.YAML", help="settings of the chains that end in +etopen")
    parser.add_argument("--any", action="store_true", help="the chain is for all addresses, not only for the bench's own")
    parser.add_argument("names", nargs="*", default=list(CHAINS))
    options = parser.parse_args()
    program, folder = options.program, options.folder
    os.makedirs(folder, exist_ok=True)
    for name, text in (("one.rules", RULE + "\n"), ("settings.yaml", SETTINGS), ("workers.yaml", WORKERS_SETTINGS)):
        with open(os.path.join(folder, name), "w") as file:
            file.write(text)
    for name in options.names:
        plain, _, workers = name.partition("@")
        chain = plain.removesuffix("+etopen")
        rules, settings = f"{folder}/one.rules", f"{folder}/{'workers' if workers else 'settings'}.yaml"
        if chain != plain:
            if not (options.etopen and options.settings):
                parser.error(f"{name} needs --etopen and --settings")
            rules, settings = options.etopen, options.settings
        path = os.path.join(folder, f"{chain}.yaml")
        with open(path, "w") as file:
            file.write(policy(CHAINS[chain], RULES.get(chain, 1000), options.any))
        rules = f" --rules {rules}" if "ids" in CHAINS[chain] else ""
        workers = f" --workers {workers}" if workers else ""
        print(
            f"{name}={program} run --inline {{a}} {{b}}{workers} --policy {path}{rules}"
            f" --suricata-config {settings} --out {folder}/out-{name}"
        )


if __name__ == "__main__":
    main()
