// SPDX-License-Identifier: Apache-2.0
//! Segments of two honest hosts during a close pass, in any order (RFC 9293 sections 3.6 and 3.10.7): two
//! hosts close over a network that delays and loses, and the session between them observes.

use super::overtaken::goes_on;
use super::*;
use bartizan_testkit::random::Random;
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug)]
struct ClosingSegment {
    seq: u32,
    ack: u32,
    fin: bool,
    len: u32,
    window: u16,
    /// Its old data was trimmed: the number still demands an acknowledgement.
    trimmed: bool,
}

/// A host: sent, acknowledged and received numbers.
pub(super) struct Host {
    pub(super) una: u32,
    pub(super) nxt: u32,
    got: u32,
    /// Segments sent, to be retransmitted until they are acknowledged.
    sent: Vec<(u32, u32, bool)>,
    data_left: u32,
    fin_sent: bool,
    fin_has_data: bool,
    owes_ack: bool,
    again_left: u32,
    updates_left: u32,
    window: u16,
}

impl Host {
    fn segment(&self, seq: u32, len: u32, fin: bool) -> ClosingSegment {
        ClosingSegment { seq, ack: self.got, fin, len, window: self.window, trimmed: false }
    }

    fn send(&mut self, len: u32, fin: bool) -> ClosingSegment {
        let out = self.segment(self.nxt, len, fin);
        self.sent.push((self.nxt, len, fin));
        self.nxt += len + u32::from(fin);
        self.owes_ack = false;
        out
    }

    fn take(&mut self, segment: ClosingSegment) {
        if segment.ack > self.una && segment.ack <= self.nxt {
            self.una = segment.ack;
        }
        self.owes_ack |= segment.trimmed;
        let space = segment.len + u32::from(segment.fin);
        if space > 0 {
            self.owes_ack = true;
            if segment.seq <= self.got && segment.seq + space > self.got {
                self.got = segment.seq + space;
            }
        }
    }

    /// The possible actions of the host, by number.
    fn choices(&self) -> Vec<u8> {
        let mut choices = Vec::new();
        if !self.fin_sent {
            choices.push(if self.data_left > 0 { 0 } else { 1 });
        }
        if self.owes_ack {
            choices.push(2);
        }
        if self.again_left > 0 && self.una < self.nxt {
            choices.push(3);
        }
        if self.updates_left > 0 {
            choices.push(4);
        }
        choices
    }

    fn act(&mut self, choice: u8) -> ClosingSegment {
        match choice {
            0 => {
                self.data_left -= 1;
                self.send(100, false)
            }
            1 => {
                self.fin_sent = true;
                self.send(if self.fin_has_data { 100 } else { 0 }, true)
            }
            2 => {
                self.owes_ack = false;
                self.segment(self.nxt, 0, false)
            }
            3 => {
                self.again_left -= 1;
                self.owes_ack = false;
                let una = self.una;
                let first = self.sent.iter().find(|(seq, len, fin)| seq + len + u32::from(*fin) > una);
                let (seq, len, fin) = *first.unwrap_or(&(self.nxt, 0, false));
                self.segment(seq, len, fin)
            }
            _ => {
                self.updates_left -= 1;
                self.owes_ack = false;
                self.window += 512;
                self.segment(self.nxt, 0, false)
            }
        }
    }
}

/// The bounds of a random walk.
#[derive(Clone, Copy, Debug)]
struct ClosingBounds {
    data: u32,
    fin_has_data: bool,
    again: u32,
    updates: u32,
    losses: u32,
    swaps: bool,
    /// Number of segments that an off-path attacker forges.
    made_up: u32,
    policy: HostPolicy,
}

/// Events about lost, late or retransmitted data are no fault of the state machine.
fn is_about_data(event: StreamEvent) -> bool {
    matches!(
        event,
        StreamEvent::PktRetransmission
            | StreamEvent::PktSpuriousRetransmission
            | StreamEvent::ReassemblySeqGap
            | StreamEvent::EstPktBeforeLastAck
    )
}

/// The possible next events: actions of a side, or deliveries of its segments, before and after the session.
fn choices(
    hosts: &PerDirection<Host>,
    before: &PerDirection<VecDeque<ClosingSegment>>,
    after: &PerDirection<VecDeque<ClosingSegment>>,
    loses: bool,
    swaps: bool,
) -> Vec<(Direction, u8)> {
    let mut choices = Vec::new();
    for side in Direction::BOTH {
        choices.extend(hosts[side].choices().into_iter().map(|choice| (side, choice)));
        let waiting = [(10, !before[side].is_empty()), (11, !after[side].is_empty())];
        let lost = [(13, loses && !before[side].is_empty()), (12, loses && !after[side].is_empty())];
        let swapped = [(14, swaps && before[side].len() > 1)];
        let all = waiting.into_iter().chain(lost).chain(swapped);
        choices.extend(all.filter(|(_, can)| *can).map(|(choice, _)| (side, choice)));
    }
    choices
}

/// A host after its handshake.
fn host(nxt: u32, got: u32, plan: ClosingBounds, dice: &mut Random) -> Host {
    Host {
        una: nxt,
        nxt,
        got,
        sent: Vec::new(),
        data_left: dice.below(plan.data as usize + 1) as u32,
        fin_sent: false,
        fin_has_data: plan.fin_has_data && dice.below(2) == 0,
        owes_ack: false,
        again_left: plan.again,
        updates_left: plan.updates,
        window: 8192,
    }
}

/// Passes a segment through the session. Returns it as it leaves, or the reason why a good segment does not.
/// `taken`: the number that its receiver expects; `is_quiet`: no event may be raised.
fn pass(
    rig: &mut Rig,
    side: Direction,
    sent: ClosingSegment,
    taken: Seq,
    is_quiet: bool,
    trace: &mut String,
) -> Result<ClosingSegment, String> {
    let data = vec![b'x'; sent.len as usize];
    let flags = if sent.fin { FA } else { A };
    let mut seen = segment(flags, sent.seq, sent.ack, &data);
    seen.window = sent.window;
    let out = rig.handle(side, &seen);
    *trace += &format!(
        "{side:?} {flags:?} {}+{} ack {} win {}: {:?}\n",
        sent.seq, sent.len, sent.ack, sent.window, out.state
    );
    let told = is_quiet && out.events.iter().any(|event| !is_about_data(event));
    // In `established` a passive session rejects data that was acknowledged before.
    let refused = out.rejected && out.previous != TcpState::Established;
    if refused || told || !goes_on(out.advice, &seen, taken) {
        let events = out.events.iter().collect::<Vec<_>>();
        return Err(format!("{:?} -> {events:?} {side:?}, {:?}", out.previous, out.advice));
    }
    let Advice::Trim(front) = out.advice else { return Ok(sent) };
    let left = sent.len - front;
    let seq = if left > 0 || sent.fin { sent.seq + front } else { sent.seq };
    Ok(ClosingSegment { seq, len: left, trimmed: true, ..sent })
}

/// Lets two hosts close. Returns the trace of the packets, if one was refused or raised an event.
fn walk(config: StreamConfig, plan: ClosingBounds, dice: &mut Random) -> Option<String> {
    let mut rig = Rig::open(config);
    rig.policy = plan.policy;
    // Strictly, data a few bytes beside the beginning waits for the server's acknowledgement.
    rig.put(ToClient, A, 501, 101, b"");
    let mut hosts = PerDirection::new(host(101, 501, plan, dice), host(501, 101, plan, dice));
    // Before and after the session has seen it.
    let mut before: PerDirection<VecDeque<ClosingSegment>> = PerDirection::default();
    let mut after: PerDirection<VecDeque<ClosingSegment>> = PerDirection::default();
    let (mut losses, mut made_up) = (plan.losses, plan.made_up);
    let mut trace = String::new();
    loop {
        let mut choices = choices(&hosts, &before, &after, losses > 0, plan.swaps);
        let both_have_all = Direction::BOTH
            .iter()
            .all(|side| hosts[*side].fin_sent && hosts[side.flip()].got == hosts[*side].nxt);
        let syn = segment(S, dice.below(usize::MAX) as u32, 0, b"");
        if rig.session.starts_anew(&syn, ToServer, &rig.config) && plan.made_up > 0 && !both_have_all {
            return Some(format!("a SYN ends what is under way in {:?}\n{trace}", rig.session.state()));
        }
        if Direction::BOTH.iter().any(|side| rig.read[*side].contains('e')) {
            return Some(format!("what was made up is read\n{trace}"));
        }
        if choices.is_empty() {
            let over = rig.session.starts_anew(&syn, ToServer, &rig.config);
            let seen = plan.losses == 0 && plan.made_up > 0 && both_have_all;
            return (seen && !over)
                .then(|| format!("a SYN is held up behind {:?}\n{trace}", rig.session.state()));
        }
        if made_up > 0 {
            choices.push((if dice.below(2) == 0 { ToServer } else { ToClient }, 20));
        }
        let (side, choice) = choices[dice.below(choices.len())];
        match choice {
            10 => {
                let Some(sent) = before[side].pop_front() else { continue };
                let taken = Seq(hosts[side.flip()].got);
                match pass(&mut rig, side, sent, taken, plan.made_up == 0, &mut trace) {
                    Ok(left) => after[side].push_back(left),
                    Err(why) => return Some(format!("{why}\n{trace}")),
                }
            }
            11 => {
                if let Some(sent) = after[side].pop_front() {
                    hosts[side.flip()].take(sent);
                }
            }
            12 => {
                losses -= 1;
                after[side].pop_front();
            }
            13 => {
                losses -= 1;
                before[side].pop_front();
            }
            14 => before[side].swap(0, 1),
            20 => {
                made_up -= 1;
                for seen in attacker::made_up(&hosts[side], &hosts[side.flip()], dice) {
                    let out = rig.handle(side, &seen);
                    trace += &format!(
                        "made up {side:?} {:?} {}+{} ack {}: {:?} {:?}\n",
                        seen.flags,
                        seen.seq.0,
                        seen.len(),
                        seen.ack.0,
                        out.state,
                        out.advice
                    );
                }
            }
            _ => {
                let sent = hosts[side].act(choice);
                before[side].push_back(sent);
            }
        }
    }
}

#[test]
fn whatever_honest_hosts_send_while_they_close_passes() {
    let mut dice = Random::new(1);
    for config in modes() {
        for round in 0..10_000u32 {
            let plan = ClosingBounds {
                data: round % 3,
                fin_has_data: round % 2 == 0,
                again: round / 3 % 3,
                updates: round / 9 % 2,
                losses: round / 5 % 3,
                swaps: round / 7 % 2 == 0,
                made_up: 0,
                policy: HostPolicy::Bsd,
            };
            let fault = walk(config, plan, &mut dice);
            assert!(fault.is_none(), "{:?}, round {round}: {}", config.mode, fault.unwrap_or_default());
        }
    }
}

#[test]
fn made_up_segments_neither_end_nor_hold_up_what_is_under_way() {
    let mut dice = Random::new(2);
    let config = StreamConfig { strict: true, ..inline() };
    for round in 0..20_000u32 {
        let plan = ClosingBounds {
            data: round % 3,
            fin_has_data: round % 2 == 0,
            again: round / 3 % 3,
            updates: round / 9 % 2,
            losses: round / 5 % 3,
            swaps: round / 7 % 2 == 0,
            made_up: 1 + round / 11 % 4,
            policy: *dice.pick(&[
                HostPolicy::Bsd,
                HostPolicy::Linux,
                HostPolicy::Hpux11,
                HostPolicy::Solaris,
            ]),
        };
        let fault = walk(config, plan, &mut dice);
        assert!(fault.is_none(), "round {round}: {}", fault.unwrap_or_default());
    }
}

/// An attacker that guesses the number of one stream, but not the other one's, cannot replace later data.
#[test]
fn data_that_acknowledges_what_was_not_sent_is_not_read() {
    let config = StreamConfig { strict: true, ..inline() };
    for far in [1 << 20, 1 << 28, 1 << 30, 1 << 31, 3 << 30, 0xf << 28] {
        for (direction, own, other) in [(ToServer, 101, 501), (ToClient, 501, 101u32)] {
            let mut rig = Rig::open(config);
            rig.put(direction.flip(), A, other, own, b"");
            let ack = other.wrapping_add(far);
            let out = rig.put(direction, A, own + 3, ack, b"forged");
            assert_eq!(out.advice, Advice::Drop(Reason::StreamError), "{far:#x} {direction:?}");
            let out = rig.put(direction, A, own, other, b"as it is sent");
            assert_eq!((out.advice, out.rejected), (Advice::Forward, false), "{far:#x} {direction:?}");
            assert_eq!(rig.read[direction], "as it is sent");
        }
    }
}

fn modes() -> [StreamConfig; 3] {
    [inline(), StreamConfig { strict: true, ..inline() }, StreamConfig::default()]
}

/// Plays a close whose packets all pass without an event.
fn passes(name: &str, packets: &[(Direction, TcpFlags, u32, u32, &[u8])], end: TcpState) {
    for config in modes() {
        let mut rig = Rig::open(config);
        for (n, (direction, flags, seq, ack, payload)) in packets.iter().enumerate() {
            let out = rig.put(*direction, *flags, *seq, *ack, payload);
            assert!(
                out.events.is_empty() && !out.rejected && out.advice == Advice::Forward,
                "{name}, {:?}, packet {n}: {:?} {:?}",
                config.mode,
                out.events,
                out.advice
            );
        }
        assert_eq!(rig.session.state(), end, "{name}");
    }
}

#[test]
fn the_second_fin_counts_once_it_is_acknowledged() {
    let mut rig = run(
        Rig::open(inline()),
        "last_ack",
        &[
            (ToServer, FA, 101, 501, b"", TcpState::CloseWait, None),
            (ToClient, FA, 501, 102, b"", TcpState::LastAck, None),
        ],
    );
    assert_eq!((rig.session.sequence_used(ToServer), rig.session.sequence_used(ToClient)), (2, 1));
    rig.put(ToServer, A, 102, 502, b"");
    assert_eq!((rig.session.sequence_used(ToServer), rig.session.sequence_used(ToClient)), (2, 2));
}

#[test]
fn fins_that_cross_in_every_order() {
    let client_fin = (ToServer, FA, 101, 501, &b""[..]);
    let server_fin = (ToClient, FA, 501, 101, &b""[..]);
    let client_ack = (ToServer, A, 102, 502, &b""[..]);
    let server_ack = (ToClient, A, 502, 102, &b""[..]);
    use TcpState::{Closed, LastAck, TimeWait};
    passes("client, server; client", &[client_fin, server_fin, client_ack, server_ack], Closed);
    passes("client, server; server", &[client_fin, server_fin, server_ack, client_ack], Closed);
    passes("server, client; client", &[server_fin, client_fin, client_ack, server_ack], Closed);
    passes("server, client; server", &[server_fin, client_fin, server_ack, client_ack], Closed);
    passes("the server's ACK overtakes", &[client_fin, server_ack, server_fin, client_ack], Closed);
    passes("the client's ACK overtakes", &[server_fin, client_ack, client_fin, server_ack], Closed);
    // The FIN itself, retransmitted, acknowledges the other one.
    let client_again = (ToServer, FA, 101, 502, &b""[..]);
    let server_again = (ToClient, FA, 501, 102, &b""[..]);
    passes("FIN again", &[client_fin, server_fin, server_again, client_again], LastAck);
    passes("FIN again", &[server_fin, client_fin, client_again, server_again], TimeWait);
    passes("one by one", &[client_fin, server_again, client_ack], Closed);
    passes("one by one", &[server_fin, client_again, server_ack], Closed);
}

#[test]
fn fins_with_data_that_cross() {
    use TcpState::Closed;
    let client_fin = (ToServer, FA, 101, 501, &b"last"[..]);
    let server_fin = (ToClient, FA, 501, 101, &b"words"[..]);
    let client_ack = (ToServer, A, 106, 507, &b""[..]);
    let server_ack = (ToClient, A, 507, 106, &b""[..]);
    passes("client first", &[client_fin, server_fin, client_ack, server_ack], Closed);
    passes("client first", &[client_fin, server_fin, server_ack, client_ack], Closed);
    passes("server first", &[server_fin, client_fin, client_ack, server_ack], Closed);
    passes("server first", &[server_fin, client_fin, server_ack, client_ack], Closed);
}

#[test]
fn a_fin_that_is_sent_again_does_not_close_the_other_direction() {
    // The server continues to read after its FIN; the FIN arrives again with a later acknowledgement.
    for config in modes() {
        let rig = run(
            Rig::open(config),
            "FIN again",
            &[
                (ToClient, FA, 501, 101, b"", TcpState::FinWait1, None),
                (ToServer, A, 101, 501, b"one ", TcpState::FinWait1, None),
                (ToClient, FA, 501, 105, b"", TcpState::FinWait1, None),
                (ToServer, A, 105, 502, b"two ", TcpState::FinWait2, None),
                (ToClient, FA, 501, 109, b"", TcpState::FinWait2, None),
                (ToServer, A, 109, 502, b"three", TcpState::FinWait2, None),
                (ToClient, A, 502, 114, b"", TcpState::FinWait2, None),
                (ToServer, FA, 114, 502, b"", TcpState::TimeWait, None),
                (ToClient, A, 502, 115, b"", TcpState::Closed, None),
            ],
        );
        assert_eq!(rig.read.to_server, "one two three");
    }
}

#[test]
fn a_rst_behind_the_clients_fin_ends_the_session() {
    let rst = (ToServer, R, 102, 0, &b""[..]);
    let fin = (ToServer, FA, 101, 501, &b""[..]);
    passes("before an answer", &[fin, rst], TcpState::Closed);
    passes("after data", &[fin, (ToClient, A, 501, 101, b"data"), rst], TcpState::Closed);
    passes("after the server's FIN", &[fin, (ToClient, FA, 501, 101, b""), rst], TcpState::Closed);
}

#[test]
fn what_no_honest_host_sends_is_still_refused() {
    let last_ack = || {
        run(
            Rig::open(inline()),
            "last_ack",
            &[
                (ToServer, FA, 101, 501, b"", TcpState::CloseWait, None),
                (ToClient, FA, 501, 102, b"", TcpState::LastAck, None),
            ],
        )
    };
    for (seq, ack, event) in [
        (30_000, 502, StreamEvent::LastackAckWrongSeq),
        (102, 30_000, StreamEvent::LastackInvalidAck),
        (400, 30_000, StreamEvent::LastackInvalidAck),
    ] {
        let out = last_ack().put(ToServer, A, seq, ack, b"");
        assert!(out.rejected && out.events.contains(event), "{seq} {ack}: {:?}", out.events);
        assert_eq!(out.advice, Advice::Drop(Reason::StreamError));
    }
    let out = last_ack().put(ToClient, A, 502, 102, b"");
    assert_eq!((out.state, out.advice), (TcpState::LastAck, Advice::Forward));
}

/// A FIN carries its sender's window, as every ACK does: the other side may use all of it.
#[test]
fn a_fin_offers_a_window_that_may_be_used_to_its_end() {
    use TcpState::{FinWait1, FinWait2};
    for config in modes() {
        for at_once in [true, false] {
            for closes in Direction::BOTH {
                let (own, other) = if closes == ToServer { (101, 501) } else { (501, 101) };
                let mut rig = Rig::open(config);
                // The first half of the window; the FIN acknowledges it and offers as much again.
                let data = vec![b'x'; 8192];
                let mut at = other;
                let mut send = |rig: &mut Rig, data: &[u8], ack: u32| {
                    let out = rig.put(closes.flip(), A, at, ack, data);
                    assert!(
                        out.events.is_empty() && !out.rejected && out.advice == Advice::Forward,
                        "{:?} {closes:?} {at_once}, {at}: {:?} {:?}",
                        config.mode,
                        out.events,
                        out.advice
                    );
                    at += data.len() as u32;
                };
                rig.put(closes, A, own, other, b"");
                send(&mut rig, &data[..8000], own);
                let mut fin = segment(FA, own, other + 8000, b"");
                fin.window = 16_384;
                let out = rig.handle(closes, &fin);
                assert!(out.events.is_empty(), "{:?}", out.events);
                let ack = if at_once { own } else { own + 1 };
                send(&mut rig, &data, ack);
                send(&mut rig, &data, ack);
                if closes == ToClient {
                    assert_eq!(rig.session.state(), if at_once { FinWait1 } else { FinWait2 });
                }
                // A retransmitted FIN brings its own news, and so does a window probe.
                let mut again = segment(FA, own, other + 8000 + 8192, b"");
                again.window = 20_000;
                let out = rig.handle(closes, &again);
                assert_eq!(out.advice, Advice::Forward, "{:?}", out.events);
                send(&mut rig, &data, ack);
                send(&mut rig, &data[..20_000 - 16_384], ack);
                assert_eq!(
                    rig.read[closes.flip()].len(),
                    if config.inline() { 8000 + 8192 + 20_000 } else { 16_192 }
                );
            }
        }
    }
}

/// A host that closes a socket while data is in flight sends a FIN, then answers each segment with a RST of
/// the acknowledged number.
#[test]
fn resets_that_answer_data_under_way_leave_and_inspection_goes_on() {
    for strict in [false, true] {
        for closes in Direction::BOTH {
            for policy in [HostPolicy::Bsd, HostPolicy::Linux] {
                let mut rig = Rig::open(StreamConfig { strict, ..inline() });
                rig.policy = policy;
                rig.put(ToClient, A, 501, 101, b"");
                let (own, other) = if closes == ToServer { (101, 501) } else { (501, 101) };
                let leaves = |rig: &mut Rig, direction, flags, seq, ack, data: &[u8]| {
                    let out = rig.put(direction, flags, seq, ack, data);
                    let good = out.advice == Advice::Forward && !out.rejected;
                    assert!(good, "{closes:?} {policy:?} {seq}: {:?} {:?}", out.advice, out.events);
                };
                leaves(&mut rig, closes, A, own, other, b"some data");
                leaves(&mut rig, closes.flip(), A, other, own, b"one ");
                leaves(&mut rig, closes.flip(), A, other + 4, own + 9, b"two ");
                leaves(&mut rig, closes, FA, own + 9, other, b"");
                if policy == HostPolicy::Bsd {
                    leaves(&mut rig, closes, R, own, 0, b"");
                    leaves(&mut rig, closes, R, own + 9, 0, b"");
                    leaves(&mut rig, closes, R, own + 9, 0, b"");
                    // The client's FIN does not count until it is acknowledged: its number is taken for
                    // RCV.NXT.
                    assert_eq!(rig.session.state() == TcpState::Closed, closes == ToServer);
                    leaves(&mut rig, closes.flip(), A, other + 8, own + 10, b"three");
                    assert_eq!(rig.read[closes.flip()], "one two three");
                }
                // A RST that its receiver believes ends the session; one ahead is forwarded without effect;
                // one beyond the window is dropped.
                if rig.session.state() != TcpState::Closed && policy == HostPolicy::Bsd {
                    leaves(&mut rig, closes, R, own + 3000, 0, b"");
                    assert!(rig.session.state() != TcpState::Closed);
                    let out = rig.put(closes, R, own + 70_000, 0, b"");
                    assert!(out.rejected && out.state != TcpState::Closed);
                }
                leaves(&mut rig, closes, R, own + 10, 0, b"");
                assert_eq!(rig.session.state(), TcpState::Closed, "{closes:?} {policy:?}");
            }
        }
    }
}
