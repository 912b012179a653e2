# SPDX-License-Identifier: Apache-2.0
"""Instructions by stage, from what callgrind writes.

A stage has root functions. All that a root calls belongs to its stage, down to the next root. A function
that several stages call (memcpy, malloc, hs_scan) is divided between them as its calls cost. So each
instruction is in one stage, and the stages add up to the whole. Instructions that no root calls are
`start`: the start, the load of the rules, the program's end.
"""

import re
from collections import defaultdict
from dataclasses import dataclass, field

START = "start"
# Roots, by a piece of the function's path. The first that fits counts.
ROOTS = {
    "end": (
        r"dataplane::passage::ending::",
        r"dataplane::worker::Worker::shutdown",
        r"stages::runner::rest::",
    ),
    "account": (
        r"stages::account::",
        r"stages::runner::transactions::log",
        r"stages::runner::functions::.*::record$",
        r"stages::context::FrameContext::(done|enforced|refused|decided)",
        r"dataplane::eve::",
    ),
    "prefilter": (
        r"detect::engine::(prefilter|payloads|guards|candidates)\b",
        r"bartizan_pattern::.*::scan",
        r"\bhs_scan$|_hs_scan$",
    ),
    "evaluation": (r"detect::engine::", r"bartizan_functions::ids"),
    "stream": (r"bartizan_flow::stream::",),
    "session": (
        r"bartizan_flow::tcp::",
        r"stages::runner::tracking::",
        r"dataplane::passage::packet::.*::(track|track_session|follow)$",
    ),
    "parser": (r"stages::runner::(reader|reading)::", r"applayer::flow::AppLayer::(stream|datagram|parse)$"),
    "chain": (r"stages::runner::(functions|payload|flowless|observation)::", r"bartizan_functions::"),
    "flow": (
        r"dataplane::passage::packet::",
        r"stages::flows::",
        r"bartizan_flow::(table|key)\b",
        r"stages::identity::PacketOrigin::key",
    ),
    "intake": (
        r"dataplane::driver::Driver<.*>::run$",
        r"stages::intake::",
        r"bartizan_packet::(decode|defrag|capture)::",
        r"stages::identity::segment$",
        r"stages::checksums::",
    ),
}
# In the order of a packet's way.
STAGES = (
    *("intake", "flow", "session", "stream", "parser", "chain", "prefilter", "evaluation", "end", "account"),
    START,
)


@dataclass
class Function:
    """A function of a profile: its own instructions, and those of its calls by callee."""

    own: int = 0
    calls: dict = field(default_factory=lambda: defaultdict(int))


def read(path):
    """The functions of a profile, by name; an address alone has the name of its library before it."""
    names, functions = {}, defaultdict(Function)
    function, callee = None, None
    library = callee_library = ""

    def named(kind, text):
        number, _, name = text.partition(" ")
        if name:
            names[kind, number] = name
        return names.get((kind, number), text)

    def function_of(text, library):
        name = named("fn", text)
        return f"{library.rpartition('/')[2]} {name}" if name.startswith("0x") else name

    with open(path, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            key, equals, value = line.rstrip("\n").partition("=")
            if equals and key == "ob":
                library = callee_library = named("ob", value)
            elif equals and key == "cob":
                callee_library = named("ob", value)
            elif equals and key == "fn":
                function, callee = functions[function_of(value, library)], None
            elif equals and key == "cfn":
                callee, callee_library = function_of(value, callee_library), library
            elif line[:1] in "0123456789+-*" and function is not None:
                cost = int(line.split()[1])
                if callee is None:
                    function.own += cost
                else:
                    function.calls[callee] += cost
                    callee = None
    if not functions:
        raise ValueError(f"{path}: no profile of callgrind")
    return dict(functions)


def root_stages(names):
    """The stage of each root among the names, and the patterns that fit none."""
    stages, unused = {}, []
    for stage, patterns in ROOTS.items():
        for pattern in patterns:
            search, found = re.compile(pattern).search, False
            for name in names:
                if search(name):
                    found = True
                    stages.setdefault(name, stage)
            if not found:
                unused.append(f"{stage}: {pattern}")
    return stages, unused


def shares(functions, rounds=40):
    """The part of each function that belongs to each stage: from callers to callees, until nothing moves."""
    roots, _ = root_stages(functions)
    callers = defaultdict(list)
    for name, function in functions.items():
        for callee, cost in function.calls.items():
            if callee != name and cost:
                callers[callee].append((name, cost))
    parts = {name: {roots.get(name, START): 1.0} for name in functions}
    free = [name for name in callers if name not in roots and name in functions]
    for _ in range(rounds):
        moved = 0.0
        for name in free:
            part, total = defaultdict(float), sum(cost for _, cost in callers[name])
            for caller, cost in callers[name]:
                for stage, share in parts[caller].items():
                    part[stage] += share * cost / total
            before = parts[name]
            moved = max(moved, max(abs(part[stage] - before.get(stage, 0.0)) for stage in part))
            parts[name] = {stage: share for stage, share in part.items() if share > 1e-6}
        if moved < 1e-4:
            break
    return parts


def by_stage(functions):
    """Instructions of each stage."""
    found = dict.fromkeys(STAGES, 0.0)
    for name, part in shares(functions).items():
        for stage, share in part.items():
            found[stage] += functions[name].own * share
    return found


def largest(functions, count):
    """For each stage the functions that take most in it themselves: (name, instructions)."""
    found = defaultdict(list)
    for name, part in shares(functions).items():
        for stage, share in part.items():
            found[stage].append((functions[name].own * share, name))
    most = {stage: sorted(of, reverse=True)[:count] for stage, of in found.items()}
    return {stage: [(name, own) for own, name in of] for stage, of in most.items()}


def less(whole, part):
    """The functions of a longer run less those of a shorter one with the same beginning."""
    found = {}
    for name, function in whole.items():
        other = part.get(name, Function())
        calls = {callee: cost - other.calls.get(callee, 0) for callee, cost in function.calls.items()}
        kept = {callee: cost for callee, cost in calls.items() if cost > 0}
        found[name] = Function(max(0, function.own - other.own), defaultdict(int, kept))
    return found
