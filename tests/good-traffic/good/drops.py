# SPDX-License-Identifier: Apache-2.0
"""The run in which every rule drops: which rules hit good traffic, and whether expected-drops.md explains each.

The file's rows are `| sid | cases | plans | why |`; cases and plans are names with wildcards, separated by spaces.
"""

import collections
import fnmatch
import os
import re

from . import Wrong
from .rules import HERE, messages

FILE = os.path.join(HERE, "expected-drops.md")


def explanations():
    """{sid: (patterns of cases, patterns of plans, why)}"""
    rows = {}
    with open(FILE) as file:
        for number, line in enumerate(file, 1):
            match = re.match(r"\|\s*(\d+)\s*\|([^|]+)\|([^|]+)\|(.+)\|\s*$", line)
            if match:
                if not match[4].strip():
                    raise Wrong(f"expected-drops.md:{number}: why is missing")
                rows[int(match[1])] = match[2].split(), match[3].split(), match[4].strip()
    return rows


def explained(rows, sid, result):
    row = rows.get(sid)
    if row is None:
        return False
    cases, plans, _ = row
    return any(fnmatch.fnmatchcase(result.case, name) for name in cases) and any(fnmatch.fnmatchcase(result.plan, name) for name in plans)


def report(results, wrong, not_run, options, say):
    """Prints each hit by case and whether it is explained; gives whether all are, and nothing else was refused."""
    rows = explanations()
    hits = collections.defaultdict(collections.Counter)
    good = not wrong
    for text in wrong:
        say(f"FAIL {text}")
    for result in results:
        for sid, number in result.hits.items():
            hits[sid][result.case, result.plan] += number
        unexplained = [sid for sid in result.hits if not explained(rows, sid, result)]
        # Without a hit the rules have no part in what went wrong. Cases of held-back.txt do not count here.
        if (unexplained or (not result.hits and not result.ok())) and not result.held:
            good = False
            result.held = ""
        elif not result.ok():
            result.held = result.held or "rules that hit it are explained"
    texts = messages(options.source, set(hits))
    say(f"\nrules that hit good traffic: {len(hits)}")
    for sid, where in sorted(hits.items()):
        unexplained = [r.case for r in results if sid in r.hits and not explained(rows, sid, r)]
        state = "NOT EXPLAINED" if unexplained else "explained: " + rows[sid][2]
        say(f"  {sid} {texts.get(sid, '')}\n    {state}")
        for (case, plan), number in sorted(where.items()):
            say(f"    {case} {plan}: {number}")
    for sid in sorted(set(rows) - set(hits)):
        say(f"  {sid} of expected-drops.md hit nothing in this run")
    for name, why in not_run.items():
        say(f"not run: {name}: {why}")
    bad = [result for result in results if not result.ok() and not result.held]
    say(f"good traffic with every rule as drop: {len(results)} cases, {len(hits)} rules hit, {len(bad) + len(wrong)} failed without an explanation")
    return good
