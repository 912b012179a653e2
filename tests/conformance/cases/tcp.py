# SPDX-License-Identifier: Apache-2.0
"""TCP and the stateful firewall: what the other end's state would take, by RFC 9293 and what updates it."""

import struct

from .packet import ACK, FIN, PSH, RST, SYN, TCP, URG, flow, frame, tcp

ANY = "sfw"


class Talk:
    """A connection between client and server, from both sides."""

    def __init__(self, v, isn=(1000, 5000), port=40000, window=8192, syn_options=b"", client="client", server="server"):
        self.v, self.port, self.window, self.options = v, port, window, syn_options
        self.client, self.server = client, server
        self.c0, self.s0 = isn
        self.c1, self.s1 = isn[0] + 1, isn[1] + 1
        self.flow = flow(v, TCP, client, port, server, 80)

    def c(self, flags, seq, ack=0, data=b"", **more):
        more.setdefault("window", self.window)
        return frame(self.v, self.client, self.server, TCP, tcp(self.v, self.client, self.server, self.port, 80, flags, seq, ack, data, **more))

    def s(self, flags, seq, ack=0, data=b"", **more):
        more.setdefault("window", self.window)
        return frame(self.v, self.server, self.client, TCP, tcp(self.v, self.server, self.client, 80, self.port, flags, seq, ack, data, **more))

    def syn(self, **more):
        return self.c(SYN, self.c0, options=self.options, **more)

    def syn_ack(self, **more):
        return self.s(SYN | ACK, self.s0, self.c1, options=self.options, **more)

    def ack(self, **more):
        return self.c(ACK, self.c1, self.s1, **more)

    def open(self):
        """The handshake, and one piece of data each way, acknowledged: nobody's next number is in doubt."""
        c, s = self.c1, self.s1
        return [
            self.syn(), self.syn_ack(), self.ack(),
            self.c(ACK | PSH, c, s, b"0123456789"), self.s(ACK | PSH, s, c + 10, b"abcdefghij"), self.c(ACK, c + 10, s + 10),
        ]

    def open_numbers(self):
        return (self.c1 + 10, self.s1 + 10)


def cases(out, v):
    handshake(out, v)
    nothing_there(out, v)
    who_opens(out, v)
    established(out, v)
    resets(out, v)
    options(out, v)
    closing(out, v)
    over(out, v)


def handshake(out, v):
    t = Talk(v)

    def add(name, why, packet, verdict="forward", reason=None, **more):
        out.add(v, f"tcp.handshake.{name}", why, policy=ANY, flow=t.flow, packet=packet, verdict=verdict, reason=reason, **more)

    sent, received = [t.syn()], [t.syn(), t.syn_ack()]
    add("syn", "RFC 9293 3.5: a SYN opens a connection", t.syn(), state=("none", "syn_sent"))
    add("syn_again", "RFC 9293 3.8.1: an unanswered SYN is sent again", t.syn(), before=sent, state=("syn_sent", "syn_sent"))
    add("syn_with_data", "RFC 9293 3.4: a SYN may carry data; the receiver queues it (3.10.7.2)", t.syn(data=b"early"), state=("none", "syn_sent"))
    add("syn_ack", "RFC 9293 3.10.7.3: it acknowledges the SYN", t.syn_ack(), before=sent, state=("syn_sent", "syn_recv"))
    add("syn_ack_again", "RFC 9293 3.8.1: a SYN/ACK whose ACK got lost is sent again", t.syn_ack(), before=received, state=("syn_recv", "syn_recv"))
    add("syn_ack_of_nothing", "RFC 9293 3.10.7.3: SEG.ACK > SND.NXT is not acceptable", t.s(SYN | ACK, t.s0, t.c1 + 1), "drop", "sfw_window",
        before=sent, state=("syn_sent", "syn_sent"), after=[(t.syn_ack(), "forward"), (t.ack(), "forward")])
    add("syn_ack_too_low", "RFC 9293 3.10.7.3: SEG.ACK =< ISS is not acceptable", t.s(SYN | ACK, t.s0, t.c0), "drop", "sfw_window",
        before=sent, state=("syn_sent", "syn_sent"), after=[(t.syn_ack(), "forward")])
    add("ack", "RFC 9293 3.5: the third segment completes the handshake", t.ack(), before=received, state=("syn_recv", "established"))
    add("ack_with_data", "RFC 9293 3.5: the third segment may bring data", t.c(ACK | PSH, t.c1, t.s1, b"GET"), before=received, state=("syn_recv", "established"))
    add("ack_of_nothing", "RFC 9293 3.10.7.4, SYN-RECEIVED: SEG.ACK > SND.NXT is answered by a RST, the segment is not taken",
        t.c(ACK, t.c1, t.s1 + 100), "drop", "sfw_window", before=received, state=("syn_recv", "syn_recv"), after=[(t.ack(), "forward")])
    add("ack_too_low", "RFC 9293 3.10.7.4, SYN-RECEIVED: SND.UNA < SEG.ACK does not hold", t.c(ACK, t.c1, t.s0), "drop", "sfw_window",
        before=received, state=("syn_recv", "syn_recv"), after=[(t.ack(), "forward")])
    add("data_before_answer", "RFC 9293 3.10.7.4, SYN-RECEIVED: the client cannot acknowledge what it has not got", t.c(ACK | PSH, t.c1, 1, b"early"),
        "drop", "sfw_state", before=sent, state=("syn_sent", "syn_sent"), after=[(t.syn_ack(), "forward")])
    add("server_data_before_answer", "RFC 9293 3.10.7.3: a segment with neither SYN nor RST is dropped in SYN-SENT", t.s(ACK | PSH, 1, t.c1, b"early"),
        "drop", "sfw_state", before=sent, state=("syn_sent", "syn_sent"), after=[(t.syn_ack(), "forward")])
    add("server_data_before_ack", "RFC 9293 3.10.7.4: the server has no connection before the client's ACK, so it sends no data on this one",
        t.s(ACK | PSH, t.s1, t.c1, b"early"), "drop", "sfw_state", before=received, state=("syn_recv", "syn_recv"), after=[(t.ack(), "forward")])
    add("syn_other_number", "RFC 9293 3.10.7.4, SYN-RECEIVED: outside the window, so it is not of this connection", t.c(SYN, t.c0 + 500_000), "drop", "sfw_window",
        before=received, state=("syn_recv", "syn_recv"), after=[(t.ack(), "forward")])
    add("no_ack_in_syn_recv", "RFC 9293 3.10.7.4: if the ACK bit is off, drop the segment", t.c(PSH, t.c1, 0, b"x"), "drop", "sfw_state",
        before=received, state=("syn_recv", "syn_recv"), after=[(t.ack(), "forward")])
    add("refused", "RFC 9293 3.10.7.1: a closed port answers a SYN by RST, ACK", t.s(RST | ACK, 0, t.c1, window=0), before=sent, state=("syn_sent", "closed"))
    add("refused_by_a_guess", "RFC 9293 3.10.7.3: a RST whose ACK is not acceptable is dropped", t.s(RST | ACK, 0, t.c1 + 77, window=0), "drop", "sfw_window",
        before=sent, state=("syn_sent", "syn_sent"), after=[(t.syn_ack(), "forward")])
    odd = "RFC 9293 3.10.7: no connection has a segment with these flags; one that is refused answers nothing and ends nothing"
    for name, flags in {"syn_ack_fin": SYN | ACK | FIN, "syn_ack_rst": SYN | ACK | RST, "fin_rst": FIN | RST | ACK}.items():
        add(f"{name}_of_server", odd, t.s(flags, t.s0, t.c1), "drop", "sfw_state", before=sent, state=("syn_sent", "syn_sent"),
            after=[(t.syn_ack(), "forward"), (t.ack(), "forward")])
    add("fin_rst_of_client", odd, t.c(FIN | RST | ACK, t.c1, t.s1), "drop", "sfw_state", before=received, state=("syn_recv", "syn_recv"), after=[(t.ack(), "forward")])
    for name, reset in {"rst_ack": t.s(RST | ACK, 0, t.c1, window=0), "bare_rst": t.s(RST, 0, 0, window=0)}.items():
        add(f"syn_again_behind_{name}", "RFC 9293 3.10.1: a client that was refused may open again at once, from the same number as well", t.syn(),
            before=[*sent, reset], state=("closed", "syn_sent"), after=[(t.syn_ack(), "forward"), (t.ack(), "forward"), (t.s(ACK, t.s1, t.c1), "forward")])
    add("client_gives_up", "RFC 9293 3.10.5: who aborts in SYN-RECEIVED sends a RST with its next number", t.c(RST, t.c1, 0), before=received,
        state=("syn_recv", "closed"))
    add("reset_by_a_guess", "RFC 9293 3.10.7.4: a RST outside the window is dropped", t.c(RST, t.c1 + 100_000, 0), "drop", "sfw_window",
        before=received, state=("syn_recv", "syn_recv"), after=[(t.ack(), "forward")])
    add("answer_after_90_seconds", "RFC 6092 REC-35: a connection that is being opened is kept for four minutes at least", t.syn_ack(), before=sent,
        state=("syn_sent", "syn_recv"), wait_ms=90_000)
    greeting = t.s(SYN | ACK, t.s0, t.c1, b"220 ready")
    add("syn_ack_with_data", "RFC 9293 3.10.7.3: a SYN/ACK may carry text; the client takes all of it", greeting, before=sent, state=("syn_sent", "syn_recv"),
        after=[(t.c(ACK, t.c1, t.s1 + 9), "forward"), (t.c(ACK | PSH, t.c1, t.s1 + 9, b"QUIT"), "forward"), (t.s(ACK | PSH, t.s1 + 9, t.c1 + 4, b"221"), "forward")])
    add("syn_ack_with_data_in_part", "RFC 9293 3.10.7.3: a client may take a part of the text", t.c(ACK, t.c1, t.s1 + 4), before=[*sent, greeting],
        state=("syn_recv", "established"), after=[(t.s(ACK | PSH, t.s1 + 4, t.c1, b"ready"), "forward"), (t.c(ACK, t.c1, t.s1 + 9), "forward")])
    add("syn_ack_with_data_in_vain", "RFC 9293 3.10.7.3: a client may take none of the text", t.c(ACK, t.c1, t.s1), before=[*sent, greeting],
        state=("syn_recv", "established"), after=[(t.s(ACK | PSH, t.s1, t.c1, b"220 ready"), "forward"), (t.c(ACK, t.c1, t.s1 + 9), "forward")])
    add("syn_ack_with_less_data", "RFC 9293 3.10.7.4: SEG.ACK > SND.NXT", t.c(ACK, t.c1, t.s1 + 10), "drop", "sfw_window", before=[*sent, greeting],
        state=("syn_recv", "syn_recv"), after=[(t.c(ACK, t.c1, t.s1 + 9), "forward")])
    syns = [t.syn(), t.s(SYN, t.s0, 0)]
    answers = [t.c(SYN | ACK, t.c0, t.s1), t.s(SYN | ACK, t.s0, t.c1)]
    for name, both in (("client", answers), ("server", answers[::-1])):
        add(f"at_once_{name}_answers_first", "RFC 9293 3.5 figure 7: both answers are taken, in any order", both[1], before=[*syns, both[0]],
            state=("syn_recv", "syn_recv"), after=[(t.s(ACK, t.s1, t.c1), "forward"), (t.c(ACK | PSH, t.c1, t.s1, b"client"), "forward"),
                                                    (t.s(ACK | PSH, t.s1, t.c1 + 6, b"server"), "forward"), (t.c(ACK, t.c1 + 6, t.s1 + 6), "forward")])
    add("at_once", "RFC 9293 3.5 figure 7: both sides may send a SYN at once", t.s(SYN, t.s0, 0), before=sent, state=("syn_sent", "syn_sent"),
        after=[(t.c(SYN | ACK, t.c0, t.s1), "forward"), (t.s(SYN | ACK, t.s0, t.c1), "forward")])


def nothing_there(out, v):
    t = Talk(v)

    def add(name, why, packet, reason, **more):
        out.add(v, f"tcp.none.{name}", why, policy=ANY, flow=t.flow, packet=packet, verdict="drop", reason=reason, state=("none", "none"), **more)

    no = "RFC 9293 3.10.7.2: only a SYN opens a connection; there is none that this belongs to"
    add("ack", no, t.c(ACK, t.c1, t.s1), "sfw_no_connection")
    add("data", no, t.c(ACK | PSH, t.c1, t.s1, b"data"), "sfw_no_connection", after=[(t.syn(), "forward")])
    add("server_data", no, t.s(ACK | PSH, t.s1, t.c1, b"data"), "sfw_no_connection")
    add("fin", no, t.c(FIN | ACK, t.c1, t.s1), "sfw_no_connection")
    add("rst", no, t.c(RST, t.c1), "sfw_no_connection")
    add("rst_ack", no, t.s(RST | ACK, t.s1, t.c1), "sfw_no_connection")
    add("syn_ack", no, t.s(SYN | ACK, t.s0, t.c1), "sfw_no_connection")
    bad = "RFC 9293 3.10.7: no segment of any connection has these flags; the receiver drops it or answers by RST"
    for name, flags in {"null": 0, "fin_alone": FIN, "push_alone": PSH, "syn_fin": SYN | FIN, "syn_rst": SYN | RST, "fin_rst": FIN | RST | ACK,
                        "christmas": FIN | PSH | URG, "syn_fin_ack": SYN | FIN | ACK}.items():
        add(f"flags_{name}", bad, t.c(flags, t.c0, t.s1 if flags & ACK else 0), "sfw_state")
    ok = "the policy says what becomes of connections whose beginning was not seen: sfw.midstream"
    out.add(v, "tcp.none.midstream_allowed", ok, policy="sfw-midstream", settings={"stream.midstream": "yes"}, flow=t.flow,
            packet=t.c(ACK | PSH, t.c1, t.s1, b"data"), state=("none", "established"), after=[(t.s(ACK, t.s1, t.c1 + 4), "forward")])
    out.add(v, "tcp.none.midstream_refused", "sfw.midstream is `drop` unless the policy says otherwise", policy=ANY, settings={"stream.midstream": "yes"},
            flow=t.flow, packet=t.c(ACK | PSH, t.c1, t.s1, b"data"), verdict="drop", reason="sfw_no_connection")


def who_opens(out, v):
    back = Talk(v, client="server", server="client")
    out.add(v, "tcp.opens.wrong_side", "policy: `initiate: from` lets the inside open, not the server", policy=ANY, flow=back.flow, packet=back.syn(),
            verdict="drop", reason="sfw_initiator")
    out.add(v, "tcp.opens.answer_to_wrong_side", "a refused SYN opens nothing: its answer belongs to no connection that may be", policy=ANY, flow=back.flow,
            before=[back.syn()], before_verdicts=["drop"], packet=back.syn_ack(), verdict="drop", reason="sfw_no_connection")
    out.add(v, "tcp.opens.after_wrong_side", "RFC 5382 REQ-4: an unasked SYN that was refused keeps nobody from opening", policy=ANY, flow=Talk(v).flow,
            before=[Talk(v).s(SYN, 5_000, 0)], before_verdicts=["drop"], packet=Talk(v).syn(), state=(None, "syn_sent"))
    out.add(v, "tcp.opens.to", "policy: `initiate: to` lets the server's side open", policy="sfw-to", flow=back.flow, packet=back.syn(), state=("none", "syn_sent"))
    out.add(v, "tcp.opens.to_not_from", "policy: `initiate: to` does not let the inside open", policy="sfw-to", flow=Talk(v).flow, packet=Talk(v).syn(),
            verdict="drop", reason="sfw_initiator")
    for name, t in {"both_from": Talk(v), "both_to": back}.items():
        out.add(v, f"tcp.opens.{name}", "policy: `initiate: both`", policy="sfw-both", flow=t.flow, packet=t.syn(), state=("none", "syn_sent"))


def established(out, v):
    t = Talk(v)
    c, s = t.open_numbers()
    goes_on = [(t.c(ACK | PSH, c, s, b"goes on"), "forward")]

    def add(name, why, packet, verdict="forward", reason=None, state=("established", "established"), policy=ANY, **more):
        more.setdefault("after", goes_on if verdict == "drop" else ())
        out.add(v, f"tcp.established.{name}", why, policy=policy, flow=t.flow, before=t.open() + list(more.pop("then", ())), numbers=more.pop("numbers", (c, s)),
                packet=packet, verdict=verdict, reason=reason, state=state, **more)

    add("data", "RFC 9293 3.4: SEG.SEQ is RCV.NXT", t.c(ACK | PSH, c, s, b"hello"))
    add("server_data", "RFC 9293 3.4: SEG.SEQ is RCV.NXT", t.s(ACK | PSH, s, c, b"hello"))
    add("pure_ack", "RFC 9293 3.4: an ACK without data at RCV.NXT", t.c(ACK, c, s))
    add("full_segment", "RFC 9293 3.7.1: a segment of the largest size that fits the link", t.c(ACK, c, s, b"m" * 1400))
    add("urgent", "RFC 9293 3.8.5: urgent data is part of the stream", t.c(ACK | PSH | URG, c, s, b"!x", urgent=1))
    add("keep_alive", "RFC 9293 3.8.4: a keep-alive has SEG.SEQ = SND.NXT-1 and may be empty", t.c(ACK, c - 1, s))
    add("keep_alive_with_byte", "RFC 9293 3.8.4: a keep-alive may carry one octet that was acknowledged before", t.c(ACK, c - 1, s, b"9"))
    add("again", "RFC 9293 3.8.1: data whose acknowledgement got lost is sent again", t.c(ACK | PSH, c - 10, s, b"0123456789"))
    add("server_again", "RFC 9293 3.8.1: data whose acknowledgement got lost is sent again", t.s(ACK | PSH, s - 10, c, b"abcdefghij"))
    add("ahead", "RFC 9293 3.4: it begins in the window; what lies before it was lost or overtaken", t.c(ACK, c + 1000, s, b"ahead"))
    add("last_in_window", "RFC 9293 3.4: its last octet is RCV.NXT+RCV.WND-1", t.c(ACK, c + 8192 - 100, s, b"e" * 100))
    add("first_behind_window", "RFC 9293 3.4: SEG.SEQ = RCV.NXT+RCV.WND is outside the window", t.c(ACK, c + 8192, s, b"e" * 100), "drop", "sfw_window")
    add("server_behind_window", "RFC 9293 3.4: outside the window", t.s(ACK, s + 8192, c, b"e" * 100), "drop", "sfw_window")
    add("far", "RFC 9293 3.4: outside the window", t.c(ACK | PSH, c + 500_000, s, b"far"), "drop", "sfw_window")
    add("half_a_space_off", "RFC 9293 3.4: outside the window, seen from either side", t.c(ACK | PSH, c + 0x80000000, s, b"far"), "drop", "sfw_window")
    add("old", "RFC 9293 3.4: outside the window, and older than a whole flight (no window is larger than 2^30, RFC 7323 2.3)",
        t.c(ACK | PSH, c - 0x50000000, s, b"old"), "drop", "sfw_window")
    add("ack_of_the_future", "RFC 9293 3.10.7.4: SEG.ACK > SND.NXT: send an ACK, drop the segment", t.c(ACK, c, s + 100_000), "drop", "sfw_window")
    add("server_ack_of_the_future", "RFC 9293 3.10.7.4: SEG.ACK > SND.NXT: send an ACK, drop the segment", t.s(ACK, s, c + 100_000), "drop", "sfw_window")
    add("data_with_ack_of_the_future", "RFC 9293 3.10.7.4: SEG.ACK > SND.NXT: drop the segment; its text is nobody's", t.c(ACK | PSH, c, s + 100_000, b"forged"), "drop",
        "sfw_window", after=[(t.c(ACK | PSH, c, s, b"as it is sent"), "forward")])
    add("data_with_ack_of_long_ago", "RFC 5961 5: SEG.ACK < SND.UNA - MAX.SND.WND: drop the segment; its text is nobody's", t.c(ACK | PSH, c, s - 0x40000000, b"forged"),
        "drop", "sfw_window", after=[(t.c(ACK | PSH, c, s, b"as it is sent"), "forward")])
    add("ack_again", "RFC 9293 3.10.7.4: a duplicate ACK can be ignored; the sender counts it (RFC 5681)", t.s(ACK, s, c))
    add("old_ack", "RFC 9293 3.10.7.4: SEG.ACK =< SND.UNA can be ignored", t.c(ACK, c, s - 10))
    add("without_ack", "RFC 9293 3.10.7.4: if the ACK bit is off, drop the segment", t.c(PSH, c, 0, b"x"), "drop", "sfw_state")
    add("null", "RFC 9293 3.10.7.4: if the ACK bit is off, drop the segment", t.c(0, c, 0, b"x"), "drop", "sfw_state")
    add("fin_without_ack", "RFC 9293 3.10.7.4: if the ACK bit is off, drop the segment", t.c(FIN, c, 0), "drop", "sfw_state")
    add("christmas", "RFC 9293 3.10.7.4: if the ACK bit is off, drop the segment", t.c(FIN | PSH | URG, c, 0), "drop", "sfw_state")
    add("syn_fin", "RFC 9293 3.10.7: no connection has a segment with SYN and FIN", t.c(SYN | FIN, c, 0), "drop", "sfw_state")
    add("syn_rst", "RFC 9293 3.10.7: no connection has a segment with SYN and RST", t.c(SYN | RST, c, 0), "drop", "sfw_state")
    for name, flags in {"fin_rst": FIN | RST | ACK, "fin_rst_alone": FIN | RST, "syn_rst_ack": SYN | RST | ACK, "syn_fin_ack": SYN | FIN | ACK}.items():
        why = "RFC 9293 3.10.7: no connection has a segment with these flags; one that is refused ends nothing"
        add(name, why, t.c(flags, c, s if flags & ACK else 0), "drop", "sfw_state")
        back = [(t.s(ACK | PSH, s, c, b"goes on"), "forward")]
        add(f"server_{name}", why, t.s(flags, s, c if flags & ACK else 0), "drop", "sfw_state", after=back)
    add("client_syn", "RFC 9293 3.10.7.4 (RFC 5961 4): a SYN in a synchronised state is answered by a challenge ACK, so a rebooted client must get it through",
        t.c(SYN, c + 77_777, 0), after=goes_on)
    anew = [t.c(SYN, c + 77_777, 0)]
    forgotten = "RFC 9293 3.5.1: both have forgotten the connection; the server answers the SYN as a new one"
    both = [(t.c(ACK, c + 77_778, s + 99_001), "forward"), (t.c(ACK | PSH, c + 77_778, s + 99_001, b"hello"), "forward"),
            (t.s(ACK | PSH, s + 99_001, c + 77_783, b"hello"), "forward")]
    add("forgotten_by_both", forgotten, t.s(SYN | ACK, s + 99_000, c + 77_778), state=("established", "syn_recv"), then=anew, after=both)
    add("forgotten_by_neither", "RFC 9293 3.10.7.4: a SYN/ACK that answers no SYN is of no connection", t.s(SYN | ACK, s + 99_000, c + 77_779), "drop", "sfw_window", then=anew)
    add("syn_ack_behind_a_challenge", "RFC 5961 4: the server has answered the SYN by an ACK: it has the connection", t.s(SYN | ACK, s + 99_000, c + 77_778), "drop",
        "sfw_window", then=[*anew, t.s(ACK, s, c)])
    add("server_syn", "policy: the server may not open; RFC 9293 3.10.7.4: no SYN belongs here", t.s(SYN, s + 77_777, 0), "drop", "sfw_state")
    add("client_syn_ack", "RFC 9293 3.10.7.4: no SYN belongs here; the client opened by a SYN", t.c(SYN | ACK, c, s), "drop", "sfw_state")
    add("shrunk_window", "RFC 9293 3.8.6: a sender has to expect that a window shrinks: what the earlier one allowed may be under way",
        t.c(ACK, c, s, b"much more than that"), then=[t.s(ACK, s, c, window=0)])
    add("window_opens", "RFC 9293 3.8.6: a window update is an ACK with another window", t.s(ACK, s, c), then=[t.s(ACK, s, c, window=0)])
    add("window_check_off", "policy: `window-check: no` lets numbers be", t.c(ACK | PSH, c + 20_000, s, b"far"), policy="sfw-window-off")
    add("window_check_off_far", "policy: `window-check: no` lets numbers be, however far", t.c(ACK | PSH, c + 500_000, s, b"far"), policy="sfw-window-off")
    add("over_the_edge", "RFC 9293 3.4: acceptable when the first octet lies in the window; the receiver trims the rest", t.c(ACK, c + 8192 - 50, s, b"e" * 100))
    add("ack_just_ahead", "RFC 9293 3.10.7.4: SEG.ACK > SND.NXT: send an ACK, drop the segment", t.c(ACK, c, s + 100), "drop", "sfw_window")
    add("idle_two_hours", "RFC 5382 REQ-5, RFC 6092 REC-35: an established connection is kept for two hours and four minutes at least", t.c(ACK, c - 1, s),
        wait_ms=2 * 3_600_000, after=[(t.s(ACK, s, c), "forward")])
    full = [t.syn(), t.syn_ack(window=10), t.ack(), t.c(ACK | PSH, t.c1, t.s1, b"0123456789"), t.s(ACK, t.s1, c, window=0)]
    for name, why, data, verdict, reason in [
        ("probe", "RFC 9293 3.8.6.1: a probe of a zero window carries an octet beyond it", b"p", "forward", None),
        ("zero_window", "RFC 9293 3.4: with a window of zero no data is acceptable", b"much more than that", "drop", "sfw_window"),
    ]:
        out.add(v, f"tcp.established.{name}", why, policy=ANY, flow=t.flow, before=full, numbers=(c, t.s1), packet=t.c(ACK, c, t.s1, data), verdict=verdict,
                reason=reason, state=("established", "established"), after=[(t.s(ACK, t.s1, c), "forward"), (t.c(ACK | PSH, c, t.s1, data), "forward")])
    add("wrong_checksum", "RFC 9293 3.1: the receiver drops it; nothing is learnt from it, so the connection stays open", t.c(RST, c, 0, xor=0x5555), after=goes_on)
    w = Talk(v, isn=(0xFFFFFFF0, 0xFFFFFF00))
    wc, ws = w.open_numbers()
    out.add(v, "tcp.established.around_zero", "RFC 9293 3.4: numbers are compared modulo 2^32", policy=ANY, flow=w.flow, before=w.open(), numbers=(wc, ws),
            packet=w.c(ACK | PSH, wc, ws, b"z" * 600), state=("established", "established"), after=[(w.s(ACK, ws, wc + 600), "forward")])
    out.add(v, "tcp.established.behind_around_zero", "RFC 9293 3.4: numbers are compared modulo 2^32", policy=ANY, flow=w.flow, before=w.open(), numbers=(wc, ws),
            packet=w.c(ACK | PSH, wc + 20_000, ws, b"z"), verdict="drop", reason="sfw_window", state=("established", "established"))


def resets(out, v):
    t = Talk(v)
    c, s = t.open_numbers()

    def add(name, why, packet, verdict="forward", reason=None, state=("established", "closed"), after=()):
        out.add(v, f"tcp.reset.{name}", why, policy=ANY, flow=t.flow, before=t.open(), numbers=(c, s), packet=packet, verdict=verdict, reason=reason,
                state=state, after=after)

    keeps = ("established", "established")
    add("client", "RFC 9293 3.10.7.4: SEG.SEQ is RCV.NXT: the connection is reset", t.c(RST, c, 0), after=[(t.c(ACK | PSH, c + 50_000, s, b"x"), "drop")])
    add("server", "RFC 9293 3.10.7.4: SEG.SEQ is RCV.NXT: the connection is reset", t.s(RST, s, 0), after=[(t.s(ACK | PSH, s + 50_000, c, b"x"), "drop")])
    add("with_ack", "RFC 9293 3.10.7.4: a RST may acknowledge", t.c(RST | ACK, c, s))
    goes_on = [(t.c(ACK | PSH, c, s, b"goes on"), "forward"), (t.s(ACK | PSH, s, c + 7, b"so it does"), "forward")]
    within = "RFC 9293 3.10.7.4 (RFC 5961 3.2): in the window and not RCV.NXT: it does not reset, its receiver answers with an ACK"
    exact = [*goes_on, (t.s(RST, s + 10, 0), "forward"), (t.s(ACK | PSH, s + 50_000, c + 7, b"x"), "drop")]
    add("in_window", within, t.c(RST, c + 500, 0), state=keeps, after=exact)
    add("server_in_window", within, t.s(RST, s + 500, 0), state=keeps, after=exact)
    add("in_window_with_ack", within, t.s(RST | ACK, s + 1, c), state=keeps, after=exact)
    add("window_used_up", within, t.s(RST, s + 8192, 0), state=keeps, after=exact)
    add("behind_window", "RFC 9293 3.10.7.4: a RST outside the window is dropped silently", t.s(RST, s + 8193, 0), "drop", "sfw_window", keeps, goes_on)
    outside = "RFC 9293 3.10.7.4: a RST outside the window is dropped silently"
    add("out_of_window", outside, t.c(RST, c + 90_000, 0), "drop", "sfw_window", keeps, goes_on)
    add("server_out_of_window", outside, t.s(RST, s + 90_000, 0), "drop", "sfw_window", keeps, goes_on)
    add("zero", outside, t.c(RST, 0x70000000, 0), "drop", "sfw_window", keeps, goes_on)
    add("ack_of_the_future", "RFC 9293 3.10.7.4: what it acknowledges was never sent", t.c(RST | ACK, c, s + 100_000), "drop", "sfw_window", keeps, goes_on)


def options(out, v):
    scale = b"\x01\x03\x03\x07"
    t = Talk(v, syn_options=scale, window=1000)
    c, s = t.open_numbers()
    for name, offset, verdict, reason in [("in", 100_000, "forward", None), ("out", 128_000, "drop", "sfw_window")]:
        out.add(v, f"tcp.options.scaled_window_{name}", "RFC 7323 2.2: both offered a scale of 7, so the window is 1000 * 128 octets", policy=ANY, flow=t.flow,
                before=t.open(), numbers=(c, s), packet=t.c(ACK, c + offset, s, b"scaled"), verdict=verdict, reason=reason, state=("established", "established"))
    over = b"\x01\x03\x03\x0f"
    t = Talk(v, syn_options=over, window=1000)
    for name, offset, verdict, reason in [("in", 16_000_000, "forward", None), ("out", 16_384_000, "drop", "sfw_window")]:
        out.add(v, f"tcp.options.scaled_too_far_{name}", "RFC 7323 2.3: a scale above 14 counts as 14, so the window is 1000 * 16,384 octets", policy=ANY,
                flow=t.flow, before=t.open(), numbers=(c, s), packet=t.c(ACK, c + offset, s, b"scaled"), verdict=verdict, reason=reason,
                state=("established", "established"))
    t = Talk(v, window=1000)
    t.syn_ack = lambda: t.s(SYN | ACK, t.s0, t.c1, options=scale)
    out.add(v, "tcp.options.scale_not_asked_for", "RFC 7323 2.2: a scale counts only if both SYNs have it: the window is 1000 octets", policy=ANY, flow=t.flow,
            before=t.open(), numbers=(c, s), packet=t.c(ACK, c + 2000, s, b"scaled"), verdict="drop", reason="sfw_window", state=("established", "established"))

    def stamp(value, echo):
        return b"\x01\x01\x08\x0a" + struct.pack("!II", value, echo)

    t = Talk(v)
    before = [
        t.c(SYN, t.c0, options=stamp(1000, 0)), t.s(SYN | ACK, t.s0, t.c1, options=stamp(9000, 1000)), t.c(ACK, t.c1, t.s1, options=stamp(1001, 9000)),
        t.c(ACK | PSH, t.c1, t.s1, b"0123456789", options=stamp(2000, 9000)), t.s(ACK | PSH, t.s1, c, b"abcdefghij", options=stamp(9100, 2000)),
        t.c(ACK, c, s, options=stamp(2100, 9100)),
    ]
    echo = stamp(9000, 4711)
    out.add(v, "tcp.options.foreign_echo", "RFC 7323 3.2: the echo of a SYN/ACK is the SYN's; a client that goes on all the same has taken it", policy=ANY, flow=t.flow,
            before=[before[0], t.s(SYN | ACK, t.s0, t.c1, options=echo)], packet=t.c(ACK | PSH, t.c1, t.s1, b"GET", options=stamp(1001, 9000)),
            state=("syn_sent", "established"), after=[(t.s(ACK | PSH, t.s1, t.c1 + 3, b"200", options=stamp(9001, 1001)), "forward")])
    for name, value, verdict, reason, why in [
        ("later", 2200, "forward", None, "RFC 7323 5.3 R4: a later timestamp"),
        ("same", 2100, "forward", None, "RFC 7323 5.3 R1: SEG.TSval < TS.Recent does not hold"),
        ("old", 500, "drop", "sfw_window", "RFC 7323 5.3 R1 (PAWS): SEG.TSval < TS.Recent: an ACK is sent, the segment is dropped"),
    ]:
        out.add(v, f"tcp.options.timestamp_{name}", why, policy=ANY, flow=t.flow, before=before, numbers=(c, s),
                packet=t.c(ACK | PSH, c, s, b"stamped", options=stamp(value, 9100)), verdict=verdict, reason=reason, state=("established", "established"))


def closing(out, v):
    t = Talk(v)
    c, s = t.open_numbers()
    by_client, by_server = t.c(FIN | ACK, c, s), t.s(FIN | ACK, s, c)
    ack_of_client, ack_of_server = t.s(ACK, s, c + 1), t.c(ACK, c, s + 1)

    def add(name, why, then, packet, state, verdict="forward", reason=None, **more):
        out.add(v, f"tcp.closing.{name}", why, policy=ANY, flow=t.flow, before=t.open() + then, packet=packet, verdict=verdict, reason=reason, state=state, **more)

    add("client_fin", "RFC 9293 3.6: the client has no more to say", [], by_client, ("established", "close_wait"))
    add("server_fin", "RFC 9293 3.6: the server has no more to say", [], by_server, ("established", "fin_wait1"))
    add("fin_with_data", "RFC 9293 3.6: a FIN may stand behind data", [], t.c(FIN | ACK | PSH, c, s, b"last"), ("established", "close_wait"))
    add("fin_out_of_window", "RFC 9293 3.4: outside the window", [], t.c(FIN | ACK, c + 90_000, s), ("established", "established"), "drop", "sfw_window",
        after=[(t.c(ACK | PSH, c, s, b"goes on"), "forward")])
    add("fin_acknowledged", "RFC 9293 3.6: the server acknowledges the FIN", [by_client], ack_of_client, ("close_wait", "close_wait"))
    add("server_fin_acknowledged", "RFC 9293 3.6: the client acknowledges the FIN", [by_server], ack_of_server, ("fin_wait1", "fin_wait2"))
    add("fin_again", "RFC 9293 3.8.1: a FIN whose acknowledgement got lost is sent again", [by_client], by_client, ("close_wait", "close_wait"))
    add("half_closed_data", "RFC 9293 3.6 case 2: the other side may go on sending", [by_client, ack_of_client], t.s(ACK | PSH, s, c + 1, b"still here"),
        ("close_wait", "close_wait"))
    add("half_closed_data_by_client", "RFC 9293 3.6 case 2: the other side may go on sending", [by_server, ack_of_server],
        t.c(ACK | PSH, c, s + 1, b"still here"), ("fin_wait2", "fin_wait2"))
    add("half_closed_ack", "RFC 9293 3.10.7.4, FIN-WAIT-2: who has closed acknowledges what it still gets",
        [by_client, ack_of_client, t.s(ACK | PSH, s, c + 1, b"still here")], t.c(ACK, c + 1, s + 10), ("close_wait", "close_wait"))
    add("second_fin", "RFC 9293 3.6: the server closes, too", [by_client, ack_of_client], t.s(FIN | ACK, s, c + 1), ("close_wait", "last_ack"))
    add("fin_and_ack_in_one", "RFC 9293 3.6: one segment may acknowledge a FIN and bring the other", [by_client], t.s(FIN | ACK, s, c + 1),
        ("close_wait", "last_ack"))
    add("second_fin_by_client", "RFC 9293 3.6: the client closes, too", [by_server, ack_of_server], t.c(FIN | ACK, c, s + 1), ("fin_wait2", "time_wait"))
    add("last_ack", "RFC 9293 3.6: the last ACK ends the connection", [by_client, ack_of_client, t.s(FIN | ACK, s, c + 1)], t.c(ACK, c + 1, s + 1),
        ("last_ack", "closed"))
    add("last_ack_by_server", "RFC 9293 3.6: the last ACK ends the connection", [by_server, ack_of_server, t.c(FIN | ACK, c, s + 1)],
        t.s(ACK, s + 1, c + 1), ("time_wait", "closed"))
    add("second_fin_again", "RFC 9293 3.6: the last ACK got lost; the FIN comes again", [by_client, ack_of_client, t.s(FIN | ACK, s, c + 1)],
        t.s(FIN | ACK, s, c + 1), ("last_ack", "last_ack"))
    add("crossing_fins", "RFC 9293 3.6 figure 13: both close at once", [by_client], by_server, ("close_wait", "last_ack"),
        after=[(t.c(ACK, c + 1, s + 1), "forward"), (t.s(ACK, s + 1, c + 1), "forward")])
    add("reset_while_closing", "RFC 9293 3.10.7.4: a RST at RCV.NXT resets in every synchronised state", [by_client, ack_of_client], t.s(RST | ACK, s, c + 1),
        ("close_wait", "closed"))
    add("reset_by_a_guess", "RFC 9293 3.10.7.4: a RST outside the window is dropped", [by_client, ack_of_client], t.s(RST, s + 90_000, 0),
        ("close_wait", "close_wait"), "drop", "sfw_window", after=[(t.s(ACK | PSH, s, c + 1, b"still here"), "forward")])
    add("fin_rst", "RFC 9293 3.10.7: no connection has a segment with FIN and RST; one that is refused ends nothing", [by_client, ack_of_client],
        t.s(FIN | RST | ACK, s, c + 1), ("close_wait", "close_wait"), "drop", "sfw_state", after=[(t.s(ACK | PSH, s, c + 1, b"still here"), "forward")])
    add("far_data", "RFC 9293 3.4: outside the window", [by_client, ack_of_client], t.s(ACK | PSH, s + 90_000, c + 1, b"far"), ("close_wait", "close_wait"),
        "drop", "sfw_window", after=[(t.s(ACK | PSH, s, c + 1, b"still here"), "forward")])
    add("syn_of_server", "RFC 9293 3.10.7.4 (RFC 5961 4): the connection is not ended by a SYN; the server may not open another", [by_client, ack_of_client],
        t.s(SYN, s + 4444, 0), ("close_wait", None), "drop", "sfw_state", after=[(t.s(ACK | PSH, s, c + 1, b"still here"), "forward")])
    add("syn_of_client", "RFC 9293 3.10.7.4 (RFC 5961 4): a SYN in a synchronised state gets a challenge ACK; the connection is not ended by it",
        [by_client, ack_of_client], t.c(SYN, c + 77_777, 0), ("close_wait", None), after=[(t.s(ACK | PSH, s, c + 1, b"still here"), "forward")])
    add("fin_by_a_guess", "RFC 9293 3.4: outside the window; a FIN that was refused closes nothing, and a SYN behind it opens nothing",
        [by_client, ack_of_client], t.s(FIN | ACK, s + 90_000, c + 1), ("close_wait", "close_wait"), "drop", "sfw_window",
        after=[(t.c(SYN, c + 77_777, 0), "forward"), (t.s(ACK | PSH, s, c + 1, b"still here"), "forward")])
    add("data_behind_own_fin", "RFC 9293 3.10.7.4, CLOSE-WAIT: behind a FIN there is no text", [by_client, ack_of_client], t.c(ACK | PSH, c + 1, s, b"more"),
        ("close_wait", "close_wait"), "drop", "sfw_state", after=[(t.s(ACK | PSH, s, c + 1, b"still here"), "forward")])
    add("fin_ahead", "RFC 9293 3.4: a FIN in the window waits for what lies before it", [], t.c(FIN | ACK, c + 5, s), ("established", None),
        after=[(t.c(ACK | PSH, c, s, b"first"), "forward"), (t.s(ACK, s, c + 6), "forward")])
    add("second_fin_ahead", "RFC 9293 3.10.7.4: a FIN in the window waits for what lies before it; until it is acknowledged a SYN ends nothing", [by_server, ack_of_server],
        t.c(FIN | ACK, c + 2000, s + 1), ("fin_wait2", "fin_wait2"),
        after=[(t.c(SYN, c + 77_777, 0), "forward"), (t.c(ACK | PSH, c, s + 1, b"more"), "forward"), (t.s(ACK, s + 1, c + 4), "forward")])
    add("syn_behind_both_fins", "RFC 9293 3.8.1, RFC 5961 4: the second FIN is not acknowledged: it may be lost and come again, and a SYN gets a challenge ACK",
        [by_server, ack_of_server, t.c(FIN | ACK, c, s + 1)], t.c(SYN, c + 77_777, 0), ("time_wait", "time_wait"),
        after=[(t.c(FIN | ACK, c, s + 1), "forward"), (t.s(ACK, s + 1, c + 1), "forward")])
    add("syn_behind_the_servers_fin", "RFC 9293 3.8.1, RFC 5961 4: the second FIN is not acknowledged: it may be lost and come again, and a SYN gets a challenge ACK",
        [by_client, ack_of_client, t.s(FIN | ACK, s, c + 1)], t.c(SYN, c + 77_777, 0), ("last_ack", "last_ack"),
        after=[(t.s(FIN | ACK, s, c + 1), "forward"), (t.c(ACK, c + 1, s + 1), "forward")])
    add("forgotten_by_both", "RFC 9293 3.5.1: both have forgotten the connection; the server answers the SYN as a new one", [by_client, ack_of_client, t.c(SYN, c + 77_777, 0)],
        t.s(SYN | ACK, s + 99_000, c + 77_778), ("close_wait", "syn_recv"), after=[(t.c(ACK | PSH, c + 77_778, s + 99_001, b"hello"), "forward")])
    add("old_syn_of_client", "RFC 9293 3.10.7.4 (RFC 5961 4), RFC 6528: who opens anew begins anywhere", [by_client, ack_of_client], t.c(SYN, c - 0x40000000, 0),
        ("close_wait", None), after=[(t.s(ACK | PSH, s, c + 1, b"still here"), "forward")])
    add("without_ack", "RFC 9293 3.10.7.4: if the ACK bit is off, drop the segment", [by_client, ack_of_client], t.s(PSH, s, 0, b"x"),
        ("close_wait", "close_wait"), "drop", "sfw_state")


def over(out, v):
    t = Talk(v)
    c, s = t.open_numbers()
    ended = t.open() + [t.c(FIN | ACK, c, s), t.s(FIN | ACK, s, c + 1), t.c(ACK, c + 1, s + 1)]
    reset = t.open() + [t.c(RST, c, 0)]

    def add(name, why, before, packet, verdict="forward", reason=None, state=("closed", "closed"), **more):
        out.add(v, f"tcp.over.{name}", why, policy=ANY, flow=t.flow, before=before, packet=packet, verdict=verdict, reason=reason, state=state, **more)

    new = "RFC 9293 3.10.7.1: there is no connection any more; nothing new is sent on it"
    add("new_data", new, ended, t.c(ACK | PSH, c + 1, s + 1, b"more"), "drop", "sfw_state")
    add("new_server_data", new, ended, t.s(ACK | PSH, s + 1, c + 1, b"more"), "drop", "sfw_state")
    add("fin_again", "RFC 9293 3.10.7.4, TIME-WAIT: the FIN comes again when the last ACK was lost", ended, t.s(FIN | ACK, s, c + 1),
        after=[(t.c(ACK, c + 1, s + 1), "forward")])
    add("syn", "RFC 9293 3.6.1: the ports may be used again by a SYN with a higher number", ended, t.c(SYN, c + 100_000, 0), state=("closed", "syn_sent"),
        after=[(t.s(SYN | ACK, 900_000, c + 100_001), "forward"), (t.c(ACK, c + 100_001, 900_001), "forward")])
    add("syn_after_reset", "RFC 9293 3.10.7.2: after a RST the ports are free", reset, t.c(SYN, c + 100_000, 0), state=("closed", "syn_sent"),
        after=[(t.s(SYN | ACK, 900_000, c + 100_001), "forward"), (t.c(ACK, c + 100_001, 900_001), "forward")])
    add("syn_of_server", "policy: the server may not open, on whatever ports", ended, t.s(SYN, s + 100_000, 0), "drop", "sfw_initiator",
        state=("closed", None))
    add("syn_fin", "RFC 9293 3.10.7: no connection has a segment with SYN and FIN", ended, t.c(SYN | FIN, c + 100_000, 0), "drop", "sfw_state")
    add("data_after_reset", "RFC 9293 3.10.7.1: who has reset a connection sends no more data on it", reset, t.c(ACK | PSH, c, s, b"more"), "drop", "sfw_state")
