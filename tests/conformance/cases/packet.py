# SPDX-License-Identifier: Apache-2.0
"""Frames, byte by byte, and the line that a case becomes. Both versions of IP by one call."""

import ipaddress
import struct

FIN, SYN, RST, PSH, ACK, URG = 1, 2, 4, 8, 16, 32
ICMP = {4: 1, 6: 58}
TCP, UDP, SCTP = 6, 17, 132

# Who takes part. Documentation prefixes: RFC 5737, RFC 3849; the inside of IPv4 is of RFC 1918.
HOSTS = {
    "client": ("10.1.0.10", "2001:db8:1::10"),
    "other": ("10.1.0.11", "2001:db8:1::11"),
    "bad": ("10.1.9.9", "2001:db8:1:9::9"),
    "server": ("192.0.2.80", "2001:db8:2::80"),
    "stranger": ("198.51.100.7", "2001:db8:51::7"),
    "router": ("203.0.113.1", "2001:db8:f::1"),
}


def host(v, name):
    return HOSTS[name][v == 6] if name in HOSTS else name


def checksum(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def raw(address):
    return ipaddress.ip_address(address).packed


def ip(v, src, dst, proto, body, *, ttl=64, ident=7, fragment=None, options=b"", total=None, version=None, ihl=None, sum_xor=0, chain=None):
    """An IP packet. `fragment`: (offset in bytes, whether more follow). `options`: of IPv4. `chain`: extension headers of IPv6 as bytes, with
    the number of the first. `total`, `version`, `ihl`, `sum_xor`: what a broken header says instead."""
    src, dst = raw(host(v, src)), raw(host(v, dst))
    if v == 6:
        head, first = b"", proto
        if fragment is not None:
            offset, more = fragment
            head, first = struct.pack("!BBHI", proto, 0, offset | more, ident), 44
        if chain is not None:
            first, head = chain[0], chain[1] + head
        length = len(head) + len(body) if total is None else total
        return struct.pack("!IHBB", (version or 6) << 28, length, first, ttl) + src + dst + head + body
    offset, more = fragment or (0, False)
    words = 5 + len(options) // 4
    length = 4 * words + len(body) if total is None else total
    field = offset // 8 | (0x2000 if more else 0)
    head = struct.pack("!BBHHHBBH", (version or 4) << 4 | (words if ihl is None else ihl), 0, length, ident, field, ttl, proto, 0) + src + dst + options
    head = head[:10] + struct.pack("!H", checksum(head) ^ sum_xor) + head[12:]
    return head + body


def with_sum(v, src, dst, proto, body, at, xor=0):
    """Puts in the transport checksum, with the pseudo header (RFC 9293 section 3.1, RFC 8200 section 8.1)."""
    if v == 6 or proto in (TCP, UDP):
        pseudo = raw(host(v, src)) + raw(host(v, dst)) + (struct.pack("!I3xB", len(body), proto) if v == 6 else struct.pack("!xBH", proto, len(body)))
    else:
        pseudo = b""
    value = checksum(pseudo + body) ^ xor
    if proto == UDP and value == 0:
        value = 0xFFFF
    return body[:at] + struct.pack("!H", value) + body[at + 2 :]


def tcp(v, src, dst, sport, dport, flags, seq, ack=0, data=b"", *, window=8192, options=b"", urgent=0, words=None, xor=0):
    seq, ack = seq & 0xFFFFFFFF, ack & 0xFFFFFFFF
    words = 5 + len(options) // 4 if words is None else words
    body = struct.pack("!HHIIBBHHH", sport, dport, seq, ack, words << 4, flags, window, 0, urgent) + options + data
    return with_sum(v, src, dst, TCP, body, 16, xor)


def udp(v, src, dst, sport, dport, data=b"", *, length=None, xor=0):
    body = struct.pack("!HHHH", sport, dport, 8 + len(data) if length is None else length, 0) + data
    return with_sum(v, src, dst, UDP, body, 6, xor)


def icmp(v, src, dst, kind, code, rest):
    return with_sum(v, src, dst, ICMP[v], struct.pack("!BBH", kind, code, 0) + rest, 2)


def echo(v, src, dst, ident, answer=False, data=b"ping"):
    kind = {4: (8, 0), 6: (128, 129)}[v][answer]
    return icmp(v, src, dst, kind, 0, struct.pack("!HH", ident, 1) + data)


def ethernet(v, packet, vlans=(), kind=None):
    kind = {4: 0x0800, 6: 0x86DD}[v] if kind is None else kind
    tags = b"".join(struct.pack("!HH", 0x8100, vlan) for vlan in vlans)
    return bytes.fromhex("020000000001020000000002") + tags + struct.pack("!H", kind) + packet


def frame(v, src, dst, proto, body, vlans=(), **more):
    return ethernet(v, ip(v, src, dst, proto, body, **more), vlans)


def flow(v, proto, client, cport, server, sport):
    """The flow of a case: the side that opened it first."""
    return {"protocol": proto, "client": host(v, client), "client_port": cport, "server": host(v, server), "server_port": sport}


class Cases:
    """Collects the cases of one file, each for both versions."""

    def __init__(self):
        self.lines = []

    def add(self, v, name, why, *, policy, packet, verdict="forward", reason=None, rule=None, before=(), before_verdicts=None,
            state=("none", "none"), numbers=None, flow=None, wait_ms=None, after=(), link=None, tenant=None, settings=None):
        assert (reason is None) == (verdict in ("forward", "hold")), name
        line = {"id": f"{name}.v{v}", "ip": v, "policy": policy}
        if settings:
            line["settings"] = settings
        line["link"] = link or "one"
        line["tenant"] = tenant or "default"
        if flow:
            line["flow"] = flow
        line["before"] = [f.hex() for f in before]
        if before_verdicts:
            assert len(before_verdicts) == len(before), name
            line["before_verdicts"] = before_verdicts
        line["state_before"] = state[0]
        if numbers:
            line["numbers"] = dict(zip(("client", "server"), (n & 0xFFFFFFFF for n in numbers)))
        if wait_ms:
            line["wait_ms"] = wait_ms
        line["packet"] = packet.hex()
        line["verdict"] = verdict
        if reason:
            line["reason"] = reason
        if rule:
            line["rule"] = rule
        line["state_after"] = state[1]
        if after:
            line["after"] = [{"packet": f.hex(), "verdict": said} for f, said in after]
        line["why"] = why
        self.lines.append(line)
