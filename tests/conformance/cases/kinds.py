# SPDX-License-Identifier: Apache-2.0
"""The kind of a frame: its headers by name, from the outside to the inside. `arp`, `vlan ipv4 tcp`, `ipv4 udp vxlan ethernet ipv4 icmp`.

Not told apart are types of ICMP and what is beyond a transport header. A header that is not whole ends the kind with `cut`, one of another version with
`odd`. Labels of MPLS, and pseudowires within pseudowires, count once.
"""

ETHERTYPES = {0x0800: "ipv4", 0x86DD: "ipv6", 0x0806: "arp", 0x8100: "vlan", 0x88A8: "svlan", 0x8847: "mpls", 0x8848: "mpls", 0x8864: "pppoe", 0x6558: "ethernet", 0x88BE: "erspan"}
PROTOCOLS = {1: "icmp", 4: "ipv4", 6: "tcp", 17: "udp", 41: "ipv6", 47: "gre", 50: "esp", 58: "icmpv6", 59: "nothing", 132: "sctp"}
EXTENSIONS = {0: "hop-by-hop", 43: "routing", 60: "destination", 135: "mobility"}
TUNNELS = {4789: "vxlan", 6081: "geneve", 2152: "gtp", 3544: "teredo"}


class Cut(Exception):
    """A header is not whole."""


def need(data, length):
    if len(data) < length:
        raise Cut
    return data


def number(data, at):
    need(data, at + 2)
    return data[at] << 8 | data[at + 1]


def kind(frame):
    """The kind of an Ethernet frame."""
    names = []
    try:
        ethernet(frame, names)
    except Cut:
        names.append("cut")
    return " ".join(names)


def ethernet(data, names):
    after(number(need(data, 14), 12), data[14:], names)


def after(ethertype, data, names):
    """What an EtherType names."""
    if ethertype < 0x600:
        names.append("llc")
        return
    name = ETHERTYPES.get(ethertype, "other")
    if name != "mpls" or "mpls" not in names:
        names.append(name)
    reader = {"ipv4": ipv4, "ipv6": ipv6, "vlan": vlan, "svlan": vlan, "mpls": mpls, "pppoe": pppoe, "ethernet": ethernet, "erspan": erspan}.get(name)
    if reader:
        reader(data, names)


def vlan(data, names):
    after(number(data, 2), data[4:], names)


def mpls(data, names):
    while not need(data, 4)[2] & 1:
        data = data[4:]
    data = need(data[4:], 1)
    if data[0] >> 4 in (4, 6):
        after({4: 0x0800, 6: 0x86DD}[data[0] >> 4], data, names)
    else:
        # A control word (RFC 4385), and the frame of a pseudowire.
        if names[-1] != "ethernet":
            names.append("ethernet")
        ethernet(data[4:] if data[0] >> 4 == 0 else data, names)


def pppoe(data, names):
    after({0x21: 0x0800, 0x57: 0x86DD}.get(number(data, 6), 0xFFFF), data[8:], names)


def erspan(data, names):
    ethernet(data[8:], names)


def ipv4(data, names):
    words = need(data, 20)[0] & 15
    if data[0] >> 4 != 4 or words < 5:
        names[-1] += "-odd"
        return
    if words > 5:
        names[-1] += "-options"
    field = number(data, 6)
    if field & 0x1FFF:
        names.append("fragment")
        return
    if field & 0x2000:
        names.append("first-fragment")
    transport(data[9], data[4 * words : max(number(data, 2), 4 * words)], names)


def ipv6(data, names):
    if need(data, 40)[0] >> 4 != 6:
        names[-1] += "-odd"
        return
    following, data = data[6], data[40:]
    while following in EXTENSIONS or following == 44:
        need(data, 8)
        if following == 44:
            field = number(data, 2)
            if field & 0xFFF8:
                names.append("fragment")
                return
            names.append("first-fragment" if field & 1 else "atomic-fragment")
            length = 8
        else:
            names.append(EXTENSIONS[following])
            length = 8 * data[1] + 8
        following, data = data[0], data[length:]
    transport(following, data, names)


def transport(protocol, data, names):
    name = PROTOCOLS.get(protocol, "other")
    names.append(name)
    lengths = {"tcp": 20, "udp": 8, "icmp": 4, "icmpv6": 4, "sctp": 12, "esp": 8}
    need(data, lengths.get(name, 0))
    reader = {"udp": udp, "gre": gre, "ipv4": ipv4, "ipv6": ipv6}.get(name)
    if reader:
        reader(data, names)


def udp(data, names):
    ports = (number(data, 0), number(data, 2))
    tunnel = next((name for port, name in TUNNELS.items() if port in ports), None)
    inner = data[8:]
    if tunnel == "vxlan" and len(inner) >= 8:
        names += [tunnel, "ethernet"]
        ethernet(inner[8:], names)
    elif tunnel == "geneve" and len(inner) >= 8:
        names.append(tunnel)
        after(number(inner, 2), inner[8 + 4 * (inner[0] & 63) :], names)
    elif tunnel == "gtp" and len(inner) >= 8:
        gtp(inner, names)
    elif tunnel == "teredo":
        inner = inner[8:] if inner[:2] == b"\0\0" else inner
        if len(inner) >= 40 and inner[0] >> 4 == 6:
            names += [tunnel, "ipv6"]
            ipv6(inner, names)


def gtp(data, names):
    """GTP-U, version 1 (3GPP TS 29.281): user data is a packet."""
    if data[0] >> 5 != 1 or data[1] != 255:
        names.append("gtp-other")
        return
    names.append("gtp")
    flags, data = data[0], data[8:]
    if flags & 7:
        following, data = need(data, 4)[3], data[4:]
        while flags & 4 and following:
            length = 4 * need(data, 1)[0]
            names[-1] = "gtp-extended"
            following, data = need(data, max(4, length))[length - 1], data[length:]
    if data:
        after({4: 0x0800, 6: 0x86DD}.get(data[0] >> 4, 0xFFFF), data, names)


def gre(data, names):
    flags, ethertype = number(data, 0), number(data, 2)
    if flags & 7:
        names[-1] = "gre-1"
        return
    need(data, 4)
    length = 4 + sum(4 for bits in (0xC000, 0x2000, 0x1000) if flags & bits)
    after(ethertype, data[length:], names)
