# SPDX-License-Identifier: Apache-2.0
"""UDP and ICMP as conversations, ICMP errors about what was sent, limits per source, both functions in one chain."""

import struct

from .packet import ACK, ICMP, PSH, RST, SYN, TCP, UDP, echo, flow, frame, host, icmp, ip, tcp, udp
from .pfw import datagram, question
from .tcp import Talk

# Errors: type, code, what it says; seven of each version (RFC 792; RFC 4443 3.1 to 3.4).
ERRORS = {
    4: [(3, 1, "host unreachable"), (3, 3, "port unreachable"), (3, 4, "fragmentation needed, RFC 1191"), (4, 0, "source quench"), (5, 1, "redirect"),
        (11, 0, "time exceeded"), (12, 0, "parameter problem")],
    6: [(1, 0, "no route"), (1, 4, "port unreachable"), (2, 0, "packet too big"), (3, 0, "hop limit exceeded"), (3, 1, "reassembly time exceeded"),
        (4, 0, "erroneous header field"), (4, 1, "unknown next header")],
}


def cases(out, v):
    udp_cases(out, v)
    icmp_cases(out, v)
    errors(out, v)
    limits(out, v)
    chain(out, v)


def udp_cases(out, v):
    of = flow(v, UDP, "client", 40000, "server", 53)
    ask, answer = datagram(v, "client", "server", 40000, 53), datagram(v, "server", "client", 53, 40000)

    def add(name, why, packet, state, **more):
        out.add(v, f"udp.{name}", why, policy="sfw", packet=packet, state=state, flow=more.pop("of", of), **more)

    add("opens", "RFC 768: no connection; the policy lets the inside open a conversation", ask, ("none", "new"))
    add("opens_more", "RFC 768: the opener may send more before an answer", ask, ("new", "new"), before=[ask])
    add("answer", "policy: answers follow who may open", answer, ("new", "established"), before=[ask])
    add("goes_on", "policy: the conversation goes on", ask, ("established", "established"), before=[ask, answer])
    add("more_answers", "RFC 768: datagrams are not counted", answer, ("established", "established"), before=[ask, answer])
    add("unasked", "policy: the server may not open", answer, ("none", "none"), verdict="drop", reason="sfw_initiator",
        of=flow(v, UDP, "server", 53, "client", 40000))
    add("after_unasked", "RFC 6092 REC-14 to 18: what was refused is no part of a conversation, so the inside opens one", ask, (None, "new"), before=[answer],
        before_verdicts=["drop"])
    add("answer_after_unasked", "policy: it answers what the inside has opened", answer, ("new", "established"), before=[answer, ask],
        before_verdicts=["drop", "forward"])
    add("from_other_port", "RFC 768: other ports are another conversation, which the server may not open", datagram(v, "server", "client", 5353, 40000),
        ("none", "none"), before=[ask], verdict="drop", reason="sfw_initiator", of=flow(v, UDP, "server", 5353, "client", 40000))
    add("to_other_port", "RFC 768: other ports are another conversation, which the server may not open", datagram(v, "server", "client", 53, 40001),
        ("none", "none"), before=[ask], verdict="drop", reason="sfw_initiator", of=flow(v, UDP, "server", 53, "client", 40001))
    add("from_other_host", "another host's datagram belongs to no conversation", datagram(v, "stranger", "client", 53, 40000), ("none", "none"), before=[ask],
        verdict="drop", reason="sfw_initiator", of=flow(v, UDP, "stranger", 53, "client", 40000))
    kept = "RFC 6092 REC-14, RFC 4787 REQ-5: between ports that are not well known a conversation is kept for two minutes at least"
    high = flow(v, UDP, "client", 40000, "server", 5060)
    call, back = datagram(v, "client", "server", 40000, 5060), datagram(v, "server", "client", 5060, 40000)
    add("after_a_minute", kept, back, ("established", "established"), before=[call, back], wait_ms=60_000, of=high)
    add("answer_after_a_minute", kept, back, ("new", "established"), before=[call], wait_ms=60_000, of=high)
    add("after_hours", "policy: what was silent for hours is over; the server may not open it anew", answer, ("none", "none"), before=[ask, answer],
        wait_ms=4 * 3_600_000, verdict="drop", reason="sfw_initiator", of=flow(v, UDP, "server", 53, "client", 40000))
    add("empty", "RFC 768: a datagram of length 8 has no data", frame(v, "client", "server", UDP, udp(v, "client", "server", 40000, 53)), ("none", "new"))


def icmp_cases(out, v):
    of = flow(v, ICMP[v], "client", 0, "server", 0)

    def ping(src, dst, answer=False, ident=7):
        return frame(v, src, dst, ICMP[v], echo(v, src, dst, ident, answer))

    def add(name, why, packet, state, **more):
        out.add(v, f"icmp.{name}", why, policy="sfw", packet=packet, state=state, flow=more.pop("of", of), **more)

    ref = "RFC 792" if v == 4 else "RFC 4443 4"
    back = flow(v, ICMP[v], "server", 0, "client", 0)
    add("request", f"{ref}: an echo request opens an exchange", ping("client", "server"), ("none", "new"))
    add("reply", f"{ref}: the reply to a request", ping("server", "client", True), ("new", "established"), before=[ping("client", "server")])
    add("next_request", f"{ref}: requests go on", ping("client", "server", ident=8), ("established", "established"),
        before=[ping("client", "server"), ping("server", "client", True)])
    add("reply_without_request", f"{ref}: a reply answers a request; there was none", ping("server", "client", True), ("none", "none"), verdict="drop",
        reason="sfw_no_connection", of=back)
    add("reply_of_other_host", f"{ref}: a reply comes from who was asked", ping("stranger", "client", True), ("none", "none"), before=[ping("client", "server")],
        verdict="drop", reason="sfw_no_connection", of=flow(v, ICMP[v], "stranger", 0, "client", 0))
    add("reply_to_other_request", f"{ref}: the identifier says which request a reply is for; none had this one", ping("server", "client", True, 99),
        ("new", None), before=[ping("client", "server")], verdict="drop", reason="sfw_no_connection")
    add("request_of_server", "policy: the server may not open", ping("server", "client"), ("none", "none"), verdict="drop", reason="sfw_initiator", of=back)
    add("reply_by_the_inside", f"{ref}: a reply answers a request; there was none", ping("client", "server", True), ("none", "none"), verdict="drop",
        reason="sfw_no_connection")


def errors(out, v):
    t = Talk(v)
    c, s = t.open_numbers()
    sent = tcp(v, "client", "server", t.port, 80, ACK | PSH, c, s, b"lost")
    guessed = tcp(v, "client", "server", t.port, 80, ACK | PSH, c + 0x30000000, s, b"lost")
    answered = tcp(v, "server", "client", 80, t.port, ACK | PSH, s, c + 4, b"lost")
    talk = t.open() + [frame(v, "client", "server", TCP, sent)]
    asked = udp(v, "client", "server", 40000, 53, b"x")
    pinged = echo(v, "client", "server", 7)
    of = {TCP: t.flow, UDP: flow(v, UDP, "client", 40000, "server", 53), ICMP[v]: flow(v, ICMP[v], "client", 0, "server", 0)}

    def error(kind, code, proto, body, ends=("client", "server"), to=None, by="router", cut=None):
        quoted = ip(v, *ends, proto, body)[:cut]
        to = to or ends[0]
        rest = struct.pack("!I", 1280 if (kind, code) in ((2, 0), (3, 4)) else 0)
        return frame(v, by, to, ICMP[v], icmp(v, by, to, kind, code, rest + quoted))

    def add(name, why, packet, proto, before=(), state=("none", "none"), bad=True, **more):
        more.update({"verdict": "drop", "reason": "sfw_unrelated_icmp"} if bad else {})
        out.add(v, f"error.{name}", why, policy="sfw", packet=packet, before=before, state=state, flow=of[proto], **more)

    ref = "RFC 792" if v == 4 else "RFC 4443 3"
    open_ = ("established", "established")
    for number, (kind, code, says) in enumerate(ERRORS[v]):
        about = f"{ref} ({says})"
        add(f"{number}.tcp", f"{about}: it quotes a segment of the connection, sent lately (RFC 5927 4.1)", error(kind, code, TCP, sent), TCP, talk, open_, False)
        add(f"{number}.tcp_guess", f"{about}: RFC 5927 4.1: the quoted number was never sent", error(kind, code, TCP, guessed), TCP, talk, open_,
            after=[(error(kind, code, TCP, sent), "forward")])
        add(f"{number}.tcp_none", f"{about}: it quotes no known connection", error(kind, code, TCP, sent), TCP)
        add(f"{number}.udp", f"{about}: it quotes a datagram of the conversation", error(kind, code, UDP, asked), UDP,
            [frame(v, "client", "server", UDP, asked)], ("new", "new"), False)
        add(f"{number}.udp_none", f"{about}: it quotes no known conversation", error(kind, code, UDP, asked), UDP)
        add(f"{number}.echo", f"{about}: it quotes a request that was sent", error(kind, code, ICMP[v], pinged), ICMP[v],
            [frame(v, "client", "server", ICMP[v], pinged)], ("new", "new"), False)
        add(f"{number}.to_other", f"{about}: it goes to a host that has not sent what it quotes", error(kind, code, UDP, asked, to="other"), UDP,
            [frame(v, "client", "server", UDP, asked)], ("new", "new"))
    kind, code, _ = ERRORS[v][1]
    add("of_server", "an error by the other end itself", error(kind, code, UDP, asked, by="server"), UDP, [frame(v, "client", "server", UDP, asked)],
        ("new", "new"), False)
    add("about_server", "an error about what the server has sent goes to the server", error(kind, code, TCP, answered, ("server", "client")), TCP,
        talk + [frame(v, "server", "client", TCP, answered)], open_, False)
    add("quotes_eight_octets", "RFC 792: eight octets behind the header are quoted at least; they hold ports and number",
        error(kind, code, TCP, sent, cut=(20 if v == 4 else 40) + 8), TCP, talk, open_, False)
    add("quotes_ports_only", "RFC 5927 4.1: without the quoted number nobody can tell", error(kind, code, TCP, sent, cut=(20 if v == 4 else 40) + 4), TCP, talk, open_)
    add("quotes_half_a_header", "RFC 1122 3.2.2, RFC 4443 2.4 (c): the quoted header says whose it is; half of one says nothing",
        error(kind, code, TCP, sent, cut=12), TCP, talk, open_)
    add("other_echo", "the quoted identifier is of no request that was sent", error(kind, code, ICMP[v], echo(v, "client", "server", 99)), ICMP[v],
        [frame(v, "client", "server", ICMP[v], pinged)], ("new", "new"))
    add("connection_survives", "RFC 5927 5.2: a hard error does not end an established connection, nor what the firewall knows of it",
        error(kind, code, TCP, sent), TCP, talk, open_, False, after=[(t.c(ACK | PSH, c, s, b"lost"), "forward")])


def limits(out, v):
    def syn(port, client="client"):
        return frame(v, client, "server", TCP, tcp(v, client, "server", port, 80, SYN, 1000))

    def add(name, why, packet, before, state=("none", "none"), proto=TCP, port=40002, client="client", **more):
        server_port = 80 if proto == TCP else 53
        out.add(v, f"limit.{name}", why, policy="sfw-limits", packet=packet, before=before, state=state,
                flow=flow(v, proto, client, port, "server", server_port), **more)

    two = [syn(40000), syn(40001)]
    first = Talk(v)
    answers = [first.syn_ack(), first.ack()]
    add("second_half_open", "policy: max-half-open: 2", syn(40001), two[:1], ("none", "syn_sent"), port=40001)
    add("third_half_open", "policy: max-half-open: 2; two handshakes of the source are under way", syn(40002), two, verdict="drop", reason="sfw_syn_limit")
    add("other_source", "policy: limits are per source", syn(40002, "other"), two, ("none", "syn_sent"), client="other")
    add("again_is_no_more", "policy: a SYN sent again is the same handshake", syn(40001), two, ("syn_sent", "syn_sent"), port=40001)
    add("complete_makes_room", "policy: a connection that is open is not half-open", syn(40002), two + answers, ("none", "syn_sent"))
    refused = first.s(RST | ACK, 0, first.c1, window=0)
    add("refused_makes_room", "policy: a connection that was refused (RFC 9293 3.10.7.3) is not half-open", syn(40002), two + [refused], ("none", "syn_sent"))
    three = [datagram(v, "client", "server", port, 53) for port in (40000, 40001, 40002)]
    add("third_flow", "policy: max-connections: 3", three[2], three[:2], ("none", "new"), UDP)
    add("fourth_flow", "policy: max-connections: 3; three flows of the source are open", datagram(v, "client", "server", 40003, 53), three, proto=UDP, port=40003,
        verdict="drop", reason="sfw_connection_limit")
    add("known_flow_goes_on", "policy: the limit is about new flows", three[0], three, ("new", "new"), UDP, port=40000)
    add("other_sources_flow", "policy: limits are per source", datagram(v, "other", "server", 40003, 53), three, ("none", "new"), UDP, port=40003, client="other")
    add("all_protocols_together", "policy: max-connections: 3 counts flows of any protocol", syn(40003), three, port=40003, verdict="drop",
        reason="sfw_connection_limit")
    over = two + answers + [datagram(v, "client", "server", 40002, 53), first.c(RST, first.c1, 0)]
    add("reset_makes_room", "policy: a connection that was reset (RFC 9293 3.10.7.4) is open no longer", datagram(v, "client", "server", 40003, 53), over,
        ("none", "new"), UDP, port=40003)


def chain(out, v):
    t = Talk(v)

    def add(name, why, packet, proto, ends, state=("none", "none"), **more):
        out.add(v, f"chain.{name}", why, policy="pfw-sfw", packet=packet, flow=flow(v, proto, *ends[0], *ends[1]), state=state, **more)

    web = (("client", 40000), ("server", 80))
    add("both_allow", "pfw allows port 80, sfw lets the inside open", t.syn(), TCP, web, ("none", "syn_sent"), rule="web.1")
    other = (("client", 40000), ("server", 81))
    add("filter_refuses", "pfw's default drops port 81", frame(v, "client", "server", TCP, tcp(v, "client", "server", 40000, 81, SYN, 1)), TCP, other,
        verdict="drop", reason="pfw_default", rule="web.default")
    add("filter_first", "of two refusals that of the function which runs first counts: pfw before sfw",
        frame(v, "client", "server", TCP, tcp(v, "client", "server", 40000, 81, ACK, 1, 1)), TCP, other, verdict="drop", reason="pfw_default", rule="web.default")
    add("firewall_refuses", "pfw allows the ports, RFC 9293 3.10.7.2: there is no connection", t.c(ACK, 1, 1), TCP, web, verdict="drop", reason="sfw_no_connection")
    add("answer_needs_no_rule", "pfw decides flows: the answer is of the flow that rule 1 has allowed", t.syn_ack(), TCP, web, ("syn_sent", "syn_recv"),
        before=[t.syn()])
    c, s = t.open_numbers()
    add("window_behind_filter", "pfw is done with the flow, sfw is not: RFC 9293 3.4", t.c(ACK | PSH, c + 500_000, s, b"far"), TCP, web,
        ("established", "established"), before=t.open(), verdict="drop", reason="sfw_window")
    add("udp_answer", "pfw allows port 53; the answer follows", datagram(v, "server", "client", 53, 40000), UDP, (("client", 40000), ("server", 53)),
        ("new", "established"), before=[datagram(v, "client", "server", 40000, 53)])
    add("udp_unasked", "no rule of pfw is about what the server opens", datagram(v, "server", "client", 53, 40000), UDP, (("server", 53), ("client", 40000)),
        verdict="drop", reason="pfw_default", rule="web.default")
    ping = question(v, "client", "server", 8 if v == 4 else 128)
    add("echo", "pfw allows echo requests", ping, ICMP[v], (("client", 0), ("server", 0)), ("none", "new"), rule="web.3")
    pong = frame(v, "server", "client", ICMP[v], echo(v, "server", "client", 77, True))
    add("echo_reply", "the answer has the rule of its question", pong, ICMP[v], (("client", 0), ("server", 0)), ("new", "established"), before=[ping])
    kind, code, _ = ERRORS[v][1]
    asked = udp(v, "client", "server", 40000, 53, b"x")
    quoted = ip(v, "client", "server", UDP, asked)
    error = frame(v, "server", "client", ICMP[v], icmp(v, "server", "client", kind, code, bytes(4) + quoted))
    add("error", "an error belongs to the flow that it quotes, which rule 2 has allowed", error, UDP, (("client", 40000), ("server", 53)), ("new", "new"),
        before=[frame(v, "client", "server", UDP, asked)])
