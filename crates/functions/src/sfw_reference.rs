// SPDX-License-Identifier: Apache-2.0
//! What the stateful firewall makes of TCP tracking: which segments belong to their connection.
//!
//! Sources: RFC 9293 sections 3.4 to 3.10 (states, windows, RST), RFC 7323 section 5 (timestamps). The tracking says
//! what a segment meant ([`Outcome`]); here every segment that the receiver's state would not take is refused. Old
//! data that a sender may have had under way ([`TcpSession::oldest`]) goes on: its sender waits for the ACK that it provokes.

use bartizan_base::{Direction, Reason};
use bartizan_config::policy::sections::{Midstream, SfwSection};
use bartizan_flow::tcp::{Outcome, Seq, StreamEvent, TcpSession, TcpState};
use bartizan_packet::{Tcp, TcpFlags};

/// Before anything is acknowledged a quoted segment may be this far behind what was sent: the largest unscaled window.
const OLD_WINDOW: u32 = 65_535;
/// A quoted segment may be this far behind what is acknowledged.
const QUOTED_BEHIND: u32 = 1 << 20;

/// Whether a segment belongs to its connection. `Err` says why not.
pub(crate) fn check(
    rules: &SfwSection,
    outcome: &Outcome,
    session: &TcpSession,
    segment: &Tcp,
    payload_len: u32,
    direction: Direction,
) -> Result<(), Reason> {
    if !combination_is_valid(segment.flags) {
        return Err(Reason::SfwState);
    }
    if outcome.checksum_invalid {
        // The receiver drops it; nothing was learnt from it.
        return Ok(());
    }
    if !session.exists() || (session.is_midstream() && rules.midstream == Midstream::Drop) {
        return Err(Reason::SfwNoConnection);
    }
    if outcome.rejected && !outcome.events.iter().any(is_old) {
        return refused(rules, outcome, segment);
    }
    if rules.window_check {
        in_window(outcome, session, segment, payload_len, direction)?;
    }
    in_state(outcome, session, segment, payload_len, direction)
}

/// Whether a segment plainly goes on with an established connection: the case of [`check`] that nearly all segments are.
pub(crate) fn goes_on(
    rules: &SfwSection,
    outcome: &Outcome,
    session: &TcpSession,
    segment: &Tcp,
    payload_len: u32,
    direction: Direction,
) -> bool {
    let flags = segment.flags & (TcpFlags::FIN | TcpFlags::SYN | TcpFlags::RST | TcpFlags::ACK);
    flags == TcpFlags::ACK
        && outcome.previous == TcpState::Established
        && outcome.state == TcpState::Established
        && !outcome.rejected
        && !outcome.checksum_invalid
        && outcome.events.is_empty()
        && !session.is_midstream()
        && !session.is_async()
        && (!rules.window_check || in_window(outcome, session, segment, payload_len, direction).is_ok())
}

/// Flags that occur together in no segment of any connection, or none of those that one has to have.
fn combination_is_valid(flags: TcpFlags) -> bool {
    let [fin, syn, rst, ack] =
        [TcpFlags::FIN, TcpFlags::SYN, TcpFlags::RST, TcpFlags::ACK].map(|flag| flags.contains(flag));
    !(syn && (fin || rst)) && !(fin && rst) && (syn || rst || ack)
}

fn is_about_numbers(event: StreamEvent) -> bool {
    let name = event.rule_name();
    event != StreamEvent::PktBadWindowUpdate
        && ["window", "wrong_seq", "diff_seq", "_ack", "timestamp"].iter().any(|part| name.contains(part))
        && !matches!(
            event,
            StreamEvent::EstPktBeforeLastAck
                | StreamEvent::ClosewaitPktBeforeLastAck
                | StreamEvent::EstAckZwpData
                | StreamEvent::PktBrokenAck
                // Tracking lets it go on, or refuses it.
                | StreamEvent::EstSynResendDiffSeq
                | StreamEvent::ThreeWayAckInWrongDir
                | StreamEvent::ThreeWayAckDataInject
        )
}

/// Tracking did not take the segment: was it the numbers or the state?
fn refused(rules: &SfwSection, outcome: &Outcome, segment: &Tcp) -> Result<(), Reason> {
    let numbers = outcome.events.iter().any(is_about_numbers)
        // A RST that the receiver would not take is refused without an event.
        || segment.flags.contains(TcpFlags::RST) && outcome.previous != TcpState::None;
    match numbers {
        true if rules.window_check => Err(Reason::SfwWindow),
        true => Ok(()),
        false => Err(Reason::SfwState),
    }
}

/// Data that was acknowledged before; how far before decides.
const fn is_old(event: StreamEvent) -> bool {
    matches!(event, StreamEvent::EstPktBeforeLastAck | StreamEvent::ClosewaitPktBeforeLastAck)
}

fn in_window(
    outcome: &Outcome,
    session: &TcpSession,
    segment: &Tcp,
    payload_len: u32,
    direction: Direction,
) -> Result<(), Reason> {
    if outcome.events.iter().any(is_about_numbers) {
        return Err(Reason::SfwWindow);
    }
    let known = outcome.previous >= TcpState::Established && !session.is_async();
    let too_old = Seq(segment.seq).plus(payload_len).before(session.oldest(direction));
    if known && too_old { Err(Reason::SfwWindow) } else { Ok(()) }
}

/// Whether the state, which tracking tolerates for the sake of detection, allows the segment.
fn in_state(
    outcome: &Outcome,
    session: &TcpSession,
    segment: &Tcp,
    payload_len: u32,
    direction: Direction,
) -> Result<(), Reason> {
    let seq = segment.seq;
    let has = |flag| segment.flags.contains(flag);
    let opening = has(TcpFlags::SYN) || has(TcpFlags::RST);
    let allowed = match outcome.previous {
        // Before the SYN/ACK only SYNs and refusals, also that of a server that has an older connection of these ports
        // (RFC 5961 section 4); one-sided connections have none to show.
        TcpState::SynSent => {
            let challenge = direction == Direction::ToClient && has(TcpFlags::ACK) && payload_len == 0;
            opening || challenge || session.is_async() || outcome.state != TcpState::SynSent
        }
        TcpState::None => true,
        TcpState::Closed => {
            let rest =
                has(TcpFlags::ACK) && !has(TcpFlags::SYN) && is_rest(session, seq, payload_len, direction);
            rest || has(TcpFlags::RST) || outcome.state != TcpState::Closed
        }
        // RFC 9293 section 3.10.7.4: without ACK a segment is dropped.
        _ => has(TcpFlags::ACK) || opening,
    };
    let evasion = outcome.events.iter().any(|e| e == StreamEvent::ThreeWayAckDataInject);
    if allowed && !evasion { Ok(()) } else { Err(Reason::SfwState) }
}

/// Whether a segment is what an ended connection leaves behind. After both FINs: what was sent before, because the last acknowledgement
/// was lost. After a RST: what was under way when it passed, at most the window that was offered then, which no longer
/// moves; both ends throw it away, and the stream engine shows it to its readers as before, should one of them not.
fn is_rest(session: &TcpSession, seq: u32, payload_len: u32, direction: Direction) -> bool {
    let end = Seq(seq).plus(payload_len);
    if session.closed_by_rst() {
        // Who has sent a RST sends nothing new.
        let has_reset = session.tcp_flags(direction).bits() & TcpFlags::RST.bits() != 0;
        let edge = if has_reset { session.next_seq(direction) } else { session.window_edge(direction) };
        return end.at_most(edge) && end.at_least(session.last_ack(direction).minus(QUOTED_BEHIND));
    }
    payload_len == 0 || end.at_most(session.next_seq(direction))
}

/// Whether a sequence number that an ICMP error quotes is one that the side has sent lately (RFC 5927 section 4.1).
#[expect(dead_code)]
fn was_sent(session: &TcpSession, direction: Direction, seq: u32) -> bool {
    let seq = Seq(seq);
    let (next, acknowledged) = (session.next_seq(direction), session.last_ack(direction));
    // Before the first ACK of the other side there is nothing to compare the lower end with.
    let known = session.state() >= TcpState::Established;
    seq.at_most(next)
        && (if known {
            seq.at_least(acknowledged.minus(QUOTED_BEHIND))
        } else {
            seq.at_least(next.minus(OLD_WINDOW))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bartizan_base::Timestamp;
    use bartizan_flow::stream::MemoryBudget;
    use bartizan_flow::tcp::{
        Arrival, HostPolicy, Segment, StreamConfig, StreamContext, StreamCounters, StreamMode,
    };
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        /// What plainly goes on is what the whole check lets through, whatever segments came before.
        #[test]
        fn what_goes_on_is_let_through(
            segments in prop::collection::vec(
                (any::<bool>(), -40i32..400, -40i32..400, prop_oneof![6 => Just(0x10u8), 2 => 0u8..64], 0u32..60, any::<bool>()),
                1..60,
            ),
            inline in any::<bool>(),
            window_check in any::<bool>(),
        ) {
            let mode = if inline { StreamMode::Inline } else { StreamMode::Passive };
            let config = StreamConfig { mode, ..StreamConfig::default() };
            let rules = SfwSection { window_check, ..SfwSection::default() };
            let (mut counters, mut budget) = (StreamCounters::default(), MemoryBudget::new(0));
            let mut session = TcpSession::default();
            // The handshake and a segment that plainly goes on.
            let begun = [
                (true, -1, 0, 0x02u8, 0, true),
                (false, -1, 0, 0x12, 0, true),
                (true, 0, 0, 0x10, 0, true),
                (true, 0, 0, 0x18, 10, true),
            ];
            let mut went_on = 0;
            for (to_server, seq, ack, flags, len, checksum_ok) in begun.into_iter().chain(segments) {
                let direction = if to_server { Direction::ToServer } else { Direction::ToClient };
                let [seq, ack] = [seq, ack].map(|offset| Seq(1000).plus(offset.cast_unsigned()));
                let payload = vec![b'x'; len as usize];
                let arrival = Arrival { direction, now: Timestamp::from_parts(9, 0), policy: HostPolicy::Linux };
                let mut context =
                    StreamContext { config: &config, counters: &mut counters, budget: &mut budget };
                let segment = Segment {
                    seq,
                    ack,
                    flags: bartizan_flow::tcp::TcpFlags::from_bits_retain(flags),
                    window: 2000,
                    payload: &payload,
                    checksum_ok,
                    ..Segment::default()
                };
                let mut outcome = Outcome::default();
                session.handle(&segment, arrival, None, &mut context, &mut outcome);
                let header =
                    Tcp { seq: seq.0, ack: ack.0, flags: TcpFlags::from_bits_retain(flags), ..Tcp::default() };
                if goes_on(&rules, &outcome, &session, &header, len, direction) {
                    went_on += 1;
                    let whole = check(&rules, &outcome, &session, &header, len, direction);
                    prop_assert_eq!(whole, Ok(()));
                }
            }
            prop_assert!(went_on > 0);
        }
    }
}
