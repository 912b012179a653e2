# SPDX-License-Identifier: Apache-2.0
"""Fragments and broken headers. What its receiver cannot read, or may read in two ways, does not go on."""

import struct

from .packet import ACK, ICMP, SYN, TCP, UDP, checksum, ethernet, flow, frame, icmp, ip, tcp, udp
from .tcp import Talk


def cases(out, v):
    fragments(out, v)
    broken(out, v)


def pieces(v, body, cuts, proto=UDP, ident=99, ends=("client", "server"), last_more=False):
    """The fragments of a datagram, cut at these offsets."""
    edges = [0, *cuts, len(body)]
    last = len(edges) - 2
    return [
        ethernet(v, ip(v, *ends, proto, body[a:b], ident=ident, fragment=(a, n < last or last_more))) for n, (a, b) in enumerate(zip(edges, edges[1:]))
    ]


def t_flow(v):
    return flow(v, TCP, "client", 40000, "server", 80)


def fragments(out, v):
    ref = "RFC 791 3.2" if v == 4 else "RFC 8200 4.5"
    asked = udp(v, "client", "server", 40000, 53, b"f" * 56)
    of = flow(v, UDP, "client", 40000, "server", 53)
    first, second = pieces(v, asked, [32])

    def add(name, why, packet, state=("none", "none"), policy="pfw-sfw", of=of, **more):
        out.add(v, f"fragment.{name}", why, policy=policy, packet=packet, flow=of, state=state, **more)

    add("first_waits", f"{ref}: a datagram is decided when it is whole", first, verdict="hold")
    add("last_completes", f"{ref}: whole; rule 2 allows port 53", second, ("none", "new"), before=[first])
    add("out_of_order", f"{ref}: fragments come in any order", first, ("none", "new"), before=[second])
    three = pieces(v, asked, [16, 40])
    add("three", f"{ref}: whole", three[1], ("none", "new"), before=[three[0], three[2]])
    add("last_alone_waits", f"{ref}: without the first fragment nobody knows the ports", second, verdict="hold")
    wrong = pieces(v, udp(v, "client", "server", 40000, 54, b"f" * 56), [32])
    add("refused_when_whole", f"{ref}: whole; no rule allows port 54", wrong[1], before=[wrong[0]], of=flow(v, UDP, "client", 40000, "server", 54), verdict="drop",
        reason="pfw_default", rule="web.default")
    syn = tcp(v, "client", "server", 40000, 80, SYN, 1000, data=b"d" * 40)
    s = pieces(v, syn, [24], proto=TCP)
    add("tcp", f"{ref}: a segment in two fragments; whole it opens a connection", s[1], ("none", "syn_sent"), before=[s[0]], of=t_flow(v))
    tiny = pieces(v, tcp(v, "client", "server", 40000, 80, SYN, 1000, data=b"d" * 40), [8], proto=TCP)
    hides = "RFC 1858 3.2" if v == 4 else "RFC 7112 5"
    add("tiny", f"{hides}: a first fragment without the whole TCP header is discarded", tiny[0], of=t_flow(v), verdict="drop", reason="defrag")
    again = ethernet(v, ip(v, "client", "server", UDP, b"!" * 32, ident=99, fragment=(16, True)))
    over = "RFC 1858 4: what lies over another fragment may be read in two ways" if v == 4 else "RFC 5722 3: a datagram with overlapping fragments is discarded"
    add("overlap", over, again, before=[first], verdict="drop", reason="defrag")
    odd = ethernet(v, ip(v, "client", "server", UDP, asked[:33], ident=99, fragment=(0, True)))
    add("not_of_eights", f"{ref}: all fragments but the last are multiples of eight octets long", odd, verdict="drop", reason="defrag")
    huge = ethernet(v, ip(v, "client", "server", UDP, b"h" * 64, ident=99, fragment=(65528, False)))
    add("beyond_the_end", f"{ref}: no datagram is longer than 65,535 octets", huge, verdict="drop", reason="defrag")
    other = pieces(v, asked, [32], ident=100)[1]
    add("other_datagram", f"{ref}: another identification is another datagram", other, before=[first], verdict="hold")
    foreign = pieces(v, asked, [32], ends=("stranger", "server"))[1]
    add("other_sender", f"{ref}: another source is another datagram", foreign, before=[first], verdict="hold")
    add("again_the_same", f"{ref}: the network may double a fragment; the double can be dropped, and the datagram is put together all the same", first,
        before=[first], verdict="drop", reason="defrag", after=[(second, "forward")])
    late = "RFC 1122 3.3.2: reassembly times out" if v == 4 else "RFC 8200 4.5: after 60 seconds the fragments are discarded"
    add("too_late", late, second, before=[first], verdict="hold", wait_ms=120_000)
    far = udp(v, "server", "client", 5353, 40000, b"f" * 56)
    back = pieces(v, far, [32], ends=("server", "client"))
    add("who_may_open", "policy: a fragmented datagram has no more rights than a whole one", back[1], before=[back[0]], policy="sfw",
        of=flow(v, UDP, "server", 5353, "client", 40000), verdict="drop", reason="sfw_initiator")
    if v == 6:
        whole = ethernet(v, ip(v, "client", "server", UDP, asked, ident=99, fragment=(0, False)))
        add("whole_with_its_header", "RFC 6946: an atomic fragment is a whole datagram", whole, ("none", "new"))
    else:
        whole = ethernet(v, ip(v, "client", "server", UDP, asked, ident=0, fragment=(0, False)))
        add("whole_with_its_header", "RFC 6864: a whole datagram, whatever its identification", whole, ("none", "new"))


def broken(out, v):
    t = Talk(v)
    asked = udp(v, "client", "server", 40000, 53, b"x" * 16)
    of = flow(v, UDP, "client", 40000, "server", 53)
    whole = ethernet(v, ip(v, "client", "server", UDP, asked))
    ipref = "RFC 791 3.1" if v == 4 else "RFC 8200 3"

    def add(name, why, packet, of=of, policy="pfw-sfw", verdict="drop", reason="unreadable", state=("none", "none"), **more):
        out.add(v, f"broken.{name}", why, policy=policy, packet=packet, flow=of, verdict=verdict, reason=reason if verdict == "drop" else None, state=state, **more)

    head = 20 if v == 4 else 40
    add("cut_in_ip_header", f"{ipref}: the header is not whole", whole[: 14 + head - 4], of=None)
    add("longer_than_frame", f"{ipref}: the length says more than the frame holds; no receiver takes it", ethernet(v, ip(v, "client", "server", UDP, asked, total=len(asked) + head + 100)))
    add("padding", f"{ipref}: what lies behind the length is padding of the link (IEEE 802.3)", whole + bytes(20), verdict="forward", state=("none", "new"))
    add("wrong_version", f"{ipref}: the version field says another one than the EtherType", ethernet(v, ip(v, "client", "server", UDP, asked, version=10 - v)), of=None)
    # An option that reaches beyond its place, before a protocol of no meaning and before a datagram.
    malformed = {"options": b"\x07\x63\x04\x00"} if v == 4 else {"chain": (60, b"\xfd\x00\x01\x63\0\0\0\0")}
    before_udp = malformed if v == 4 else {"chain": (60, b"\x11\x00\x01\x63\0\0\0\0")}
    good = {"options": b"\x01\x01\x01\x00"} if v == 4 else {"chain": (60, b"\x11\x00\x01\x04\0\0\0\0")}
    ref = "RFC 791 3.1, RFC 1122 3.2.1.8" if v == 4 else "RFC 8200 4.2, RFC 4443 3.4"
    add("options_malformed", f"{ref}: an option reaches beyond its header; the receiver discards the packet",
        ethernet(v, ip(v, "client", "server", 253, asked, **malformed)), policy="pfw-default-allow", of=None)
    add("options_malformed_udp", f"{ref}: an option reaches beyond its header; the receiver discards the packet",
        ethernet(v, ip(v, "client", "server", UDP, asked, **before_udp)))
    add("options", f"{ref}: options that do nothing", ethernet(v, ip(v, "client", "server", UDP, asked, **good)), verdict="forward", state=("none", "new"))
    cut = ip(4, "client", "server", UDP, asked, ihl=4) if v == 4 else ip(6, "client", "server", UDP, b"", chain=(60, b"\x11\x05\x01\x04\0\0\0\0"))
    says = "RFC 791 3.1: the header is five words long at least" if v == 4 else "RFC 8200 4: an extension header is cut off"
    add("header_length", says, ethernet(v, cut), of=None)
    add("udp_cut", "RFC 768: the header is eight octets long", ethernet(v, ip(v, "client", "server", UDP, asked[:6])))
    add("udp_length_short", "RFC 768: the length is eight at least", frame(v, "client", "server", UDP, udp(v, "client", "server", 40000, 53, b"x" * 16, length=4)))
    add("udp_length_long", "RFC 768: the length says more than IP brings", frame(v, "client", "server", UDP, udp(v, "client", "server", 40000, 53, b"x" * 16, length=60)))
    tcp_flow = t.flow
    add("tcp_cut", "RFC 9293 3.1: the header is 20 octets long", frame(v, "client", "server", TCP, tcp(v, "client", "server", 40000, 80, SYN, 1000)[:12]), of=tcp_flow)
    add("tcp_offset_short", "RFC 9293 3.1: the data offset is five at least", t.c(SYN, 1000, words=4), of=tcp_flow)
    add("tcp_offset_long", "RFC 9293 3.1: the data offset says more than IP brings", t.c(SYN, 1000, words=12), of=tcp_flow)
    add("tcp_option_length", "RFC 9293 3.1, MUST-7: a host must be prepared for an illegal option length: it can be read up to there, and so it was",
        t.c(SYN, 1000, options=b"\x02\x00\x05\xb4"), of=tcp_flow, verdict="forward", state=("none", "syn_sent"))
    kind = bytes([8 if v == 4 else 128, 0])
    ref = "RFC 792" if v == 4 else "RFC 4443 2.1"
    none = {"reason": "pfw_default", "rule": "web.default"}
    add("icmp_cut", f"{ref}: type, code and checksum are there at least; what is not whole has no type that a rule could allow",
        frame(v, "client", "server", ICMP[v], kind), of=flow(v, ICMP[v], "client", 0, "server", 0), **none)
    foreign = ICMP[10 - v]
    add("icmp_of_other_version", "RFC 4443 2.1, RFC 792: ICMPv6 is for IPv6, and ICMP is not: no rule allows the other one's messages",
        frame(v, "client", "server", foreign, icmp(v, "client", "server", 8, 0, bytes(8))), of=flow(v, foreign, "client", 0, "server", 0), **none)
