# SPDX-License-Identifier: Apache-2.0
"""Random policies of the packet filter and random packets around their boundaries. The answer comes from a walk through the rules, written from the
policy file's description; it shares nothing with the program's classifier."""

import ipaddress

from .packet import TCP, UDP, flow
from .pfw import datagram, syn

RULES = 12
PACKETS = 24


def prefix(rnd, v):
    bits = 32 if v == 4 else 128
    length = rnd.choice([8, 12, 16, 20, 24, 27, 30, 31, 32] if v == 4 else [32, 36, 48, 61, 64, 65, 96, 127, 128])
    base = int(ipaddress.ip_address("10.0.0.0" if v == 4 else "2001:db8::"))
    kept = 8 if v == 4 else 32
    number = base | rnd.getrandbits(bits - kept) & ((1 << bits - kept) - 1)
    return ipaddress.ip_network((number >> bits - length << bits - length, length))


def ports(rnd):
    if rnd.random() < 0.3:
        return None
    first = rnd.choice([0, 1, 53, 80, 1023, 1024, 8000, 40000, 65535])
    return (first, min(65535, first + rnd.choice([0, 0, 1, 10, 1000])))


def policy(rnd):
    """Rules for both versions: as dictionaries, and as the text of a policy file."""
    rules = []
    for _ in range(RULES):
        action = rnd.choice(["allow", "allow", "drop", "reject"])
        protocols = rnd.choice([[TCP], [UDP], [TCP, UDP]])
        pair = lambda: [prefix(rnd, 4), prefix(rnd, 6)] if rnd.random() < 0.7 else None
        rules.append({"action": action, "protocols": protocols, "from": pair(), "to": pair(), "from_ports": ports(rnd), "to_ports": ports(rnd)})
    names = {TCP: "tcp", UDP: "udp"}
    lines = ["# Made by ../generate from its seed.", "policies:", "  - name: web", "    chain: [pfw]", "    pfw:", "      default: drop", "      rules:"]
    for rule in rules:
        parts = [f"{rule['action']}: [{', '.join(names[p] for p in rule['protocols'])}]"]
        for key in ("from", "to"):
            if rule[key]:
                parts.append(f"{key}: [{', '.join(repr(str(net)) for net in rule[key])}]")
        for key in ("from_ports", "to_ports"):
            if rule[key]:
                parts.append(f"{key.replace('_', '-')}: '{rule[key][0]}-{rule[key][1]}'")
        lines.append(f"        - {{{', '.join(parts)}}}")
    return rules, "\n".join(lines) + "\ndefault: {action: drop}\n"


def near(rnd, v, net):
    """An address in the prefix, or just beside it."""
    span = net.num_addresses
    number = int(net.network_address) + rnd.choice([0, span - 1, -1, span, rnd.randrange(span)])
    return ipaddress.ip_address(max(1, number) if v == 6 else max(1, number) & 0xFFFFFFFF)


def port_near(rnd, span):
    if span is None:
        return rnd.randrange(65536)
    return min(65535, max(0, rnd.choice([span[0], span[1], span[0] - 1, span[1] + 1])))


def first_match(rules, v, proto, src, dst, sport, dport):
    for number, rule in enumerate(rules, 1):
        nets = [(rule[key], address) for key, address in (("from", src), ("to", dst))]
        spans = [(rule[key], port) for key, port in (("from_ports", sport), ("to_ports", dport))]
        if proto in rule["protocols"] and all(net is None or address in net[v == 6] for net, address in nets) and all(
            span is None or span[0] <= port <= span[1] for span, port in spans
        ):
            return number, rule["action"]
    return "default", "drop"


def cases(out, rnd, name):
    rules, text = policy(rnd)
    for index in range(PACKETS):
        # One draw of the rule for both versions, so that they are alike.
        aim = rnd.choice(rules)
        for v in (4, 6):
            anywhere = lambda: prefix(rnd, v)
            src = near(rnd, v, aim["from"][v == 6] if aim["from"] else anywhere())
            dst = near(rnd, v, aim["to"][v == 6] if aim["to"] else anywhere())
            if src == dst:
                dst += 1
            proto = rnd.choice(aim["protocols"])
            sport, dport = port_near(rnd, aim["from_ports"]), port_near(rnd, aim["to_ports"])
            number, action = first_match(rules, v, proto, src, dst, sport, dport)
            make = syn if proto == TCP else datagram
            verdict = {"allow": "forward"}.get(action, action)
            reason = None if verdict == "forward" else "pfw_default" if number == "default" else "pfw_rule"
            after = ("syn_sent" if proto == TCP else "new") if verdict == "forward" else "none"
            out.add(v, f"pfw.{name}.{index:02}", "the first rule that matches decides; found by a walk through the rules", policy=name,
                    flow=flow(v, proto, str(src), sport, str(dst), dport), packet=make(v, str(src), str(dst), sport, dport), verdict=verdict,
                    reason=reason, rule=f"web.{number}", state=("none", after))
    return text
