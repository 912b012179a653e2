# SPDX-License-Identifier: Apache-2.0
"""The run in which every rule drops: which rules hit good traffic, and whether expected-drops.md explains each.

The file's rows are `| sid | cases | plans | why |`; cases and plans are names with wildcards, separated by spaces. Instead of a `sid` a row may
name a reason of the engine's own refusals, in backticks.
"""

import collections
import fnmatch
import os
import re

from . import Wrong
from .rules import HERE, messages

FILE = os.path.join(HERE, "expected-drops.md")


def explanations():
    """{sid or reason: (patterns of cases, patterns of plans, why)}"""
    rows = {}
    with open(FILE) as file:
        for number, line in enumerate(file, 1):
            match = re.match(r"\|\s*(\d+|`\w+`)\s*\|([^|]+)\|([^|]+)\|(.+)\|\s*$", line)
            if match:
                if not match[4].strip():
                    raise Wrong(f"expected-drops.md:{number}: why is missing")
                what = match[1].strip("`")
                rows[int(what) if what.isdigit() else what] = match[2].split(), match[3].split(), match[4].strip()
    return rows


def explained(rows, sid, result):
    row = rows.get(sid)
    if row is None:
        return False
    cases, plans, _ = row
    return any(fnmatch.fnmatchcase(result.case, name) for name in cases) and any(fnmatch.fnmatchcase(result.plan, name) for name in plans)


def found(result):
    """What refused something of a case: {sid or reason of the engine's own: how often}"""
    reasons = {}
    for what, number in result.refused.items():
        match = re.match(r"decisions function=engine reason=(\w+) ", what)
        if match:
            reasons[match[1]] = number
    return {**result.hits, **reasons}


def report(results, wrong, not_run, options, say):
    """Prints each hit by case and whether it is explained; gives whether all are, and nothing else was refused."""
    rows = explanations()
    hits = collections.defaultdict(collections.Counter)
    good = not wrong
    for text in wrong:
        say(f"FAIL {text}")
    for result in results:
        of_case = found(result)
        for what, number in of_case.items():
            hits[what][result.case, result.plan] += number
        unexplained = [what for what in of_case if not explained(rows, what, result)]
        # Without a hit the rules have no part in what went wrong. Cases of held-back.txt do not count here.
        if (unexplained or (not of_case and not result.ok())) and not result.held:
            good = False
            result.held = ""
        elif not result.ok():
            result.held = result.held or "rules that hit it are explained"
    texts = messages(options.source, {what for what in hits if isinstance(what, int)})
    say(f"\nrules and reasons that hit good traffic: {len(hits)}")
    for what, where in sorted(hits.items(), key=lambda item: str(item[0])):
        unexplained = [r.case for r in results if what in found(r) and not explained(rows, what, r)]
        state = "NOT EXPLAINED" if unexplained else "explained: " + rows[what][2]
        say(f"  {what} {texts.get(what, '')}\n    {state}")
        for (case, plan), number in sorted(where.items()):
            say(f"    {case} {plan}: {number}")
    for what in sorted(set(rows) - set(hits), key=str):
        say(f"  {what} of expected-drops.md hit nothing in this run")
    for name, why in not_run.items():
        say(f"not run: {name}: {why}")
    bad = [result for result in results if not result.ok() and not result.held]
    say(f"good traffic with every rule as drop: {len(results)} cases, {len(hits)} rules and reasons hit, {len(bad) + len(wrong)} failed without an explanation")
    return good
