# SPDX-License-Identifier: Apache-2.0
"""Flows that detection looks at until it knows enough, or refuses: alerts come before a level below may handle what follows, and none behind it.

Which packets alert is not in the lines: a level is compared with the host alone. Verdicts are those of the rules in policies/alerts.rules.
"""

from .headers import PORT, REFUSED, Conversation
from .packet import ACK, PSH, TCP, UDP
from .tunnels import Tunnelled

POLICY = "alerts"
TAGS = {"": (), ".vlan": (10,)}
PROTOCOLS = {"udp": UDP, "tcp": TCP}
# Sid 1, sid 2 (bypass), sid 3 (drop).
LOGIN, ENOUGH, EVIL = b"a login", b"that is enough", b"evil things"
# What is said once the flow is bypassed, by turns.
UNSEEN = (LOGIN, EVIL, b"good", ENOUGH)


def cases(out, v):
    for name, protocol in PROTOCOLS.items():
        for suffix, tags in TAGS.items():
            sinks(out, v, name + suffix, Conversation(v, protocol, PORT, tags))
            refused(out, v, name + suffix, Conversation(v, protocol, REFUSED, tags))
        by_content(out, v, name, Conversation(v, protocol, PORT))
        for inside in (4, 6):
            sinks(out, v, f"{name}.vxlan_{inside}", Tunnelled("vxlan", v, inside, protocol), of_case=False)


def say(talk, back, data):
    return talk.segment(back, ACK | PSH, data) if talk.protocol == TCP else talk.datagram(back, data)


def heard(talk, back, data):
    """What one side says, and with TCP its acknowledgement."""
    said = [say(talk, back, data)]
    return said + [talk.segment(not back, ACK)] if talk.protocol == TCP else said


def sinks(out, v, name, talk, of_case=True):
    """Both sides are alerted about, then a rule bypasses the flow: what would alert or be dropped goes on."""
    before = talk.opening()
    for back, data in ((False, LOGIN), (True, LOGIN), (False, b"good"), (False, LOGIN)):
        before += heard(talk, back, data)
    enough, *answer = heard(talk, False, ENOUGH)
    behind = [*answer, *(made for number in range(24) for made in heard(talk, number % 3 == 1, UNSEEN[number % 4])), *talk.closing()]
    out.add(v, f"alerts.{name}.bypassed", "rule 2 bypasses the flow: nobody looks at its packets any more", policy=POLICY,
            flow=talk.flow if of_case else None, before=before, packet=enough, state=(None, None), after=[(made, "forward") for made in behind])


def refused(out, v, name, talk):
    """A rule that looks at headers only refuses a flow with its first packet; nobody answers a SYN that was dropped."""
    frames = [talk.opening()[0] for _ in range(12)] if talk.protocol == TCP else [say(talk, False, UNSEEN[number % 4]) for number in range(12)]
    out.add(v, f"alerts.{name}.refused", "rule 4 drops what goes to this port, the first packet and all that follow", policy=POLICY, flow=talk.flow,
            packet=frames[0], verdict="drop", reason="ids_rule", state=(None, None), after=[(made, "drop") for made in frames[1:]])


def by_content(out, v, name, talk):
    """A rule refuses what it reads: of UDP that datagram, of TCP the connection from there on, since its receiver waits for these bytes."""
    before = [*talk.opening(), *heard(talk, False, LOGIN)]
    evil = say(talk, False, EVIL)
    behind = [(say(talk, False, data), "drop" if talk.protocol == TCP or data == EVIL else "forward") for data in UNSEEN[:3] * 3]
    out.add(v, f"alerts.{name}.evil", "rule 3 drops what it is found in", policy=POLICY, flow=talk.flow, before=before, packet=evil, verdict="drop",
            reason="ids_rule", state=(None, None), after=behind)
