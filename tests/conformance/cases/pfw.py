# SPDX-License-Identifier: Apache-2.0
"""The packet filter: what the policy's words mean, at the boundaries of each field. The reference is docs of the policy file: rules in order, the
first that matches decides, a rule speaks of the side that opens the flow."""

import struct

from .packet import ICMP, SCTP, SYN, TCP, UDP, echo, ethernet, flow, frame, host, icmp, tcp, udp


def syn(v, src, dst, sport, dport, vlans=()):
    return frame(v, src, dst, TCP, tcp(v, src, dst, sport, dport, SYN, 1000), vlans)


def datagram(v, src, dst, sport, dport, vlans=(), data=b"x"):
    return frame(v, src, dst, UDP, udp(v, src, dst, sport, dport, data), vlans)


def question(v, src, dst, kind, code=0, vlans=()):
    return frame(v, src, dst, ICMP[v], icmp(v, src, dst, kind, code, struct.pack("!HH", 77, 1) + b"ping"), vlans)


def decided(action):
    return {"allow": ("forward", None), "drop": ("drop", "pfw"), "reject": ("reject", "pfw")}[action]


def cases(out, v):
    def add(name, why, policy, packet, proto, ends, action, rule, state=None, **more):
        """`rule`: number of the rule in the policy, or `default`."""
        verdict, reason = decided(action)
        if reason:
            reason = "pfw_default" if rule == "default" else "pfw_rule"
        (client, cport), (server, sport) = ends
        of = more.pop("of", "web")
        after = "none"
        if verdict == "forward":
            # Of a tunnel it is a matter of what is inside.
            after = None if state is False else "syn_sent" if proto == TCP else "new"
        out.add(v, f"pfw.{name}", why, policy=policy, packet=packet, verdict=verdict, reason=reason, rule=f"{of}.{rule}",
                flow=flow(v, proto, client, cport, server, sport), state=("none", after), **more)

    def tcp_case(name, why, policy, src, dst, sport, dport, action, rule, **more):
        add(name, why, policy, syn(v, src, dst, sport, dport, more.get("vlans", ())), TCP, ((src, sport), (dst, dport)), action, rule,
            **{key: value for key, value in more.items() if key != "vlans"})

    def udp_case(name, why, policy, src, dst, sport, dport, action, rule, **more):
        add(name, why, policy, datagram(v, src, dst, sport, dport, more.get("vlans", ())), UDP, ((src, sport), (dst, dport)), action, rule,
            **{key: value for key, value in more.items() if key != "vlans"})

    def icmp_case(name, why, policy, src, dst, kind, code, action, rule, **more):
        add(name, why, policy, question(v, src, dst, kind[v == 6], code), ICMP[v], ((src, 0), (dst, 0)), action, rule, **more)

    # Order: a drop before an allow, an allow before a drop, what is shadowed.
    order = "pfw-order"
    tcp_case("order.drop_first", "rule 1 (drop bad) stands before rule 2 (allow 80)", order, "bad", "server", 40000, 80, "drop", 1)
    tcp_case("order.allow", "rule 2 allows port 80", order, "client", "server", 40000, 80, "allow", 2)
    tcp_case("order.exception_first", "rule 3 allows one host to port 23 before rule 4 rejects it", order, "other", "server", 40000, 23, "allow", 3)
    tcp_case("order.reject", "rule 4 rejects port 23: the sender is told", order, "client", "server", 40000, 23, "reject", 4)
    tcp_case("order.shadowed", "rule 5 allows what rule 4 has rejected: it is never reached", order, "stranger", "server", 40000, 23, "reject", 4)
    tcp_case("order.default", "no rule matches", order, "client", "server", 40000, 8081, "drop", "default")
    udp_case("order.other_protocol", "rule 2 is about tcp", order, "client", "server", 40000, 80, "drop", "default")
    tcp_case("order.other_direction", "a rule speaks of the side that opens: the server is not `from`", order, "server", "client", 40000, 80, "drop", "default")
    out.add(v, "pfw.order.refused_stays_refused", "a flow is decided once; its later packets share it", policy=order,
            flow=flow(v, TCP, "client", 40000, "server", 8081), before=[syn(v, "client", "server", 40000, 8081)], before_verdicts=["drop"],
            packet=syn(v, "client", "server", 40000, 8081), verdict="drop", reason="pfw_default", rule="web.default")
    out.add(v, "pfw.order.answer_of_allowed", "a flow is decided once, for both directions", policy=order, flow=flow(v, UDP, "client", 40000, "server", 53),
            before=[datagram(v, "client", "server", 40000, 53)], packet=datagram(v, "server", "client", 53, 40000), state=("new", "established"))
    out.add(v, "pfw.order.answer_of_refused", "a flow is decided once, for both directions", policy=order, flow=flow(v, UDP, "client", 40000, "server", 5353),
            before=[datagram(v, "client", "server", 40000, 5353)], before_verdicts=["drop"], packet=datagram(v, "server", "client", 5353, 40000),
            verdict="drop", reason="pfw_default", rule="web.default")

    # Defaults.
    udp_case("default.allow", "the default is allow", "pfw-default-allow", "client", "server", 40000, 1234, "allow", "default")
    udp_case("default.allow_but", "rule 1 drops port 53", "pfw-default-allow", "client", "server", 40000, 53, "drop", 1)
    udp_case("default.reject", "the default is reject: the sender is told", "pfw-default-reject", "client", "server", 40000, 1234, "reject", "default")
    udp_case("default.reject_but", "rule 1 allows port 53", "pfw-default-reject", "client", "server", 40000, 53, "allow", 1)

    # Prefixes: one host, all but the lowest bit, a boundary within an octet or a group, the whole space.
    nets = {
        4: [("host", "10.20.0.1", 1), ("host_neighbour", "10.20.0.2", None), ("pair_low", "10.20.1.4", 2), ("pair_high", "10.20.1.5", 2),
            ("below_pair", "10.20.1.3", None), ("above_pair", "10.20.1.6", None), ("odd_low", "10.32.0.0", 3), ("odd_high", "10.63.255.255", 3),
            ("below_odd", "10.31.255.255", None), ("above_odd", "10.64.0.0", None)],
        6: [("host", "2001:db8:20::1", 1), ("host_neighbour", "2001:db8:20::2", None), ("pair_low", "2001:db8:20:1::4", 2),
            ("pair_high", "2001:db8:20:1::5", 2), ("below_pair", "2001:db8:20:1::3", None), ("above_pair", "2001:db8:20:1::6", None),
            ("odd_low", "2001:db8:4000::", 3), ("odd_high", "2001:db8:5fff:ffff:ffff:ffff:ffff:ffff", 3),
            ("below_odd", "2001:db8:3fff:ffff:ffff:ffff:ffff:ffff", None), ("above_odd", "2001:db8:6000::", None)],
    }
    for name, source, rule in nets[v]:
        why = f"RFC 4632, RFC 4291 2.3: the address {'lies' if rule else 'does not lie'} in a prefix of the rules"
        udp_case(f"prefix.{name}", why, "pfw-prefixes", source, "server", 40000, 53, "allow" if rule else "drop", rule or "default")
    udp_case("prefix.any_of_both", "rule 4: `any` is both versions' whole space", "pfw-prefixes", "stranger", "server", 40000, 7, "allow", 4)
    udp_case("prefix.own_version", "rule 5 has the whole space of IPv4 only, rule 6 that of IPv6", "pfw-prefixes", "stranger", "server", 40000, 9, "allow",
             5 if v == 4 else 6)

    # Ports.
    for dport, rule in [(0, None), (79, None), (80, 1), (81, None), (999, None), (1000, 2), (1500, 2), (2000, 2), (2001, None), (65534, None), (65535, 3)]:
        tcp_case(f"ports.to_{dport}", "RFC 9293 3.1: a port is a number of 16 bits; a range holds both its ends", "pfw-ports", "client", "server", 40000, dport,
                 "allow" if rule else "drop", rule or "default")
    for sport, rule in [(122, None), (123, 4), (124, None)]:
        udp_case(f"ports.from_{sport}", "rule 4 asks for the port of the side that opens", "pfw-ports", "client", "server", sport, 40000,
                 "allow" if rule else "drop", rule or "default")
    udp_case("ports.both", "rule 5 asks for both ports", "pfw-ports", "client", "server", 500, 500, "allow", 5)
    udp_case("ports.one_of_both", "rule 5 asks for both ports", "pfw-ports", "client", "server", 501, 500, "drop", "default")
    udp_case("ports.range_of_both", "rule 6 has a range for either port", "pfw-ports", "client", "server", 3000, 4100, "allow", 6)
    udp_case("ports.outside_of_one", "rule 6 has a range for either port", "pfw-ports", "client", "server", 2999, 4100, "drop", "default")

    # Protocols.
    def other(proto, body):
        return frame(v, "client", "server", proto, body)

    sctp = struct.pack("!HHII", 40000, 36412, 0, 0) + b"\x01\x00\x00\x14" + bytes(16)
    ends = (("client", 0), ("server", 0))
    add("protocol.sctp", "RFC 9260: rule 1 allows SCTP to its port", "pfw-protocols", other(SCTP, sctp), SCTP, (("client", 40000), ("server", 36412)), "allow", 1)
    add("protocol.gre", "rule 2 allows protocol 47", "pfw-protocols", other(47, struct.pack("!HH", 0, 0x88B5) + b"data"), 47, ends, "allow", 2)
    add("protocol.ospf", "rule 3 rejects protocol 89", "pfw-protocols", other(89, bytes(24)), 89, ends, "reject", 3)
    add("protocol.esp", "rule 4 allows protocols 50 and 51", "pfw-protocols", other(50, struct.pack("!II", 0x1234, 1) + bytes(32)), 50, ends, "allow", 4)
    add("protocol.unknown", "no rule is about protocol 253 (RFC 3692)", "pfw-protocols", other(253, b"experiment"), 253, ends, "drop", "default")
    udp_case("protocol.udp", "no rule is about UDP", "pfw-protocols", "client", "server", 40000, 36412, "drop", "default")
    tcp_case("protocol.list", "rule 5 is about tcp and udp to port 25", "pfw-protocols", "client", "server", 40000, 25, "allow", 5)
    udp_case("protocol.list_other", "rule 5 is about tcp and udp to port 25", "pfw-protocols", "client", "server", 40000, 25, "allow", 5)

    # ICMP: types and codes.
    icmp_case("icmp.echo", "RFC 792, RFC 4443 4.1: rule 1 allows echo requests", "pfw-icmp", "client", "server", (8, 128), 0, "allow", 1)
    icmp_case("icmp.echo_other_code", "RFC 792, RFC 4443 4.1: an echo request has code 0", "pfw-icmp", "client", "server", (8, 128), 1, "drop", "default")
    icmp_case("icmp.other_type", "no rule is about this type", "pfw-icmp", "client", "server", (15, 139), 0, "drop", "default")
    icmp_case("icmp.range_low", "rule 2 has a range of types", "pfw-icmp", "client", "server", (40, 200), 0, "allow", 2)
    icmp_case("icmp.range_high", "rule 2 has a range of types", "pfw-icmp", "client", "server", (42, 201), 3, "allow", 2)
    icmp_case("icmp.above_range", "rule 2 has a range of types", "pfw-icmp", "client", "server", (43, 202), 0, "drop", "default")
    out.add(v, "pfw.icmp.answer", "a flow is decided by what its opener asked", policy="pfw-icmp", flow=flow(v, ICMP[v], "client", 0, "server", 0),
            before=[question(v, "client", "server", (8, 128)[v == 6])], packet=frame(v, "server", "client", ICMP[v], echo(v, "server", "client", 77, True)),
            state=("new", "established"))

    # Tenants, by VLAN and by link: equal addresses, other rules.
    tenants = "pfw-tenants"
    tcp_case("tenant.red", "VLAN 10 is red's: its policy allows 80", tenants, "client", "server", 40000, 80, "allow", 1, of="red", tenant="red", vlans=(10,))
    tcp_case("tenant.red_other_port", "red's policy drops the rest", tenants, "client", "server", 40000, 443, "drop", "default", of="red", tenant="red", vlans=(10,))
    tcp_case("tenant.blue", "VLAN 20 is blue's: its policy allows 443", tenants, "client", "server", 40000, 443, "allow", 1, of="blue", tenant="blue", vlans=(20,))
    tcp_case("tenant.blue_other_port", "blue's policy drops the rest", tenants, "client", "server", 40000, 80, "drop", "default", of="blue", tenant="blue", vlans=(20,))
    tcp_case("tenant.inner_tag", "IEEE 802.1Q: VLAN 10 is the inner of two tags; any tag counts", tenants, "client", "server", 40000, 80, "allow", 1,
             of="red", tenant="red", vlans=(300, 10))
    tcp_case("tenant.by_link", "what comes by the second link without a tag of red or blue is green's", tenants, "client", "server", 40000, 22, "allow", 1,
             of="green", tenant="green", link="two")
    tcp_case("tenant.by_link_refused", "green's policy drops the rest", tenants, "client", "server", 40000, 80, "drop", "default", of="green", tenant="green",
             link="two")
    tcp_case("tenant.vlan_before_link", "selectors are tried in order: VLAN 10 is red's on the second link as well", tenants, "client", "server", 40000, 80,
             "allow", 1, of="red", tenant="red", link="two", vlans=(10,))
    tcp_case("tenant.none", "without a tag, on the first link, it is the default tenant's", tenants, "client", "server", 40000, 80, "drop", "default", of="rest")
    tcp_case("tenant.rule", "rule 2 of the shared policy is for blue only", "pfw-tenant-rule", "client", "server", 40000, 443, "allow", 2, of="shared",
             tenant="blue", vlans=(20,))
    tcp_case("tenant.not_of_rule", "rule 2 of the shared policy is for blue only", "pfw-tenant-rule", "client", "server", 40000, 443, "drop", "default",
             of="shared", tenant="red", vlans=(10,))
    red = syn(v, "client", "server", 40000, 80, (10,))
    out.add(v, "pfw.tenant.equal_addresses", "another tenant's flow with equal addresses is another flow", policy=tenants, tenant="blue",
            flow=flow(v, TCP, "client", 40000, "server", 80), before=[red], packet=syn(v, "client", "server", 40000, 80, (20,)), verdict="drop",
            reason="pfw_default", rule="blue.default")

    # What no policy names, and a chain of both functions.
    out.add(v, "pfw.policy.none", "no policy is about these addresses: the default of the file drops", policy="pfw-of-two",
            flow=flow(v, UDP, "stranger", 1, "router", 2), packet=datagram(v, "stranger", "router", 1, 2), verdict="drop", reason="policy_default")
    udp_case("policy.first_that_fits", "the first policy in the file that a flow fits is the flow's", "pfw-of-two", "client", "server", 40000, 53, "allow", 1,
             of="first")
    udp_case("policy.not_the_second", "the second policy allows it, but the flow is the first one's", "pfw-of-two", "client", "server", 40000, 54, "drop",
             "default", of="first")
    udp_case("policy.second", "the first policy is not about this client", "pfw-of-two", "bad", "server", 40000, 54, "allow", 1, of="second")
    udp_case("policy.other_way_round", "a policy is about conversations, whoever opens them; its rules ask for the opener", "pfw-of-two", "server", "client",
             40000, 53, "drop", "default", of="first")
    arp = ethernet(v, bytes.fromhex("0001080006040001020000000002") + bytes.fromhex("0a01000a000000000000c0000250"), kind=0x0806)
    solicit = icmp(6, host(6, "client"), "ff02::1:ff00:80", 135, 0, bytes(4) + bytes.fromhex("20010db8000200000000000000000080"))
    found = arp if v == 4 else frame(6, host(6, "client"), "ff02::1:ff00:80", 58, solicit, ttl=255)
    out.add(v, "pfw.policy.neighbours", "the link does not work without ARP (RFC 826) or neighbour discovery (RFC 4861), which sfw lets be", policy="sfw",
            packet=found, state=("none", None))
