# SPDX-License-Identifier: Apache-2.0
"""The rule files that the suite runs with: ET Open where it is there, else a small one of its own; and all rules as `drop`."""

import gzip
import os
import re

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ETOPEN = os.path.join(HERE, "..", "..", "..", "shared", "data", "rules", "etopen.rules.gz")
OWN = os.path.join(HERE, "own.rules")
ALERT = re.compile(r"^alert\b")
NOALERT = re.compile(r"\bnoalert\s*;")


def choose(name):
    """(path, what to say) for `etopen`, `own` or a file's path."""
    if name == "etopen":
        path = os.environ.get("ETOPEN_RULES", os.path.normpath(ETOPEN))
        if os.path.exists(path):
            return path, f"rules: {path}"
        return OWN, f"ET Open is not there ({path}): running with the {count(OWN)} rules of {OWN}"
    return (OWN, f"rules: {OWN}") if name == "own" else (name, f"rules: {name}")


def lines(path):
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8", errors="surrogateescape") as file:
        yield from file


def count(path):
    return sum(1 for line in lines(path) if line.strip() and not line.startswith("#"))


def as_drop(path, target):
    """Writes every alert rule as a drop rule. Those with `noalert` only set marks for others; like suricata-update we leave them."""
    changed = 0
    with open(target, "w", encoding="utf-8", errors="surrogateescape") as file:
        for line in lines(path):
            if ALERT.match(line) and not NOALERT.search(line):
                line = ALERT.sub("drop", line, count=1)
                changed += 1
            file.write(line)
    return changed


def messages(path, sids):
    """{sid: msg} of these rules."""
    found = {}
    for line in lines(path):
        sid = re.search(r"\bsid:\s*(\d+)", line)
        if sid and int(sid[1]) in sids:
            msg = re.search(r'msg:\s*"((?:[^"\\]|\\.)*)"', line)
            found[int(sid[1])] = msg[1] if msg else ""
    return found
