// SPDX-License-Identifier: Apache-2.0
//! The stateful firewall's tables against TCP tracking: seeded random sessions, whose segments are near the
//! expected ones.

use crate::sfw_table::{
    self, MOVES, NONE, STATES, SegmentClass, SegmentKind, SegmentPosition, SfwAction, Timeout, timeout_of,
};
use crate::sfw_tcp::{Facts, SegmentInputs, Tracked, Wants, kind, plain};
use bartizan_base::{Direction, Reason, Timestamp};
use bartizan_flow::stream::MemoryBudget;
use bartizan_flow::tcp::{
    Arrival, HostPolicy, Outcome, Segment, Seq, StreamConfig, StreamContext, StreamCounters, StreamMode,
    TcpSession, TcpState,
};
use bartizan_packet::{Tcp, TcpFlags};
use bartizan_testkit::random::Random;
use std::collections::{BTreeMap, BTreeSet};

/// Flags that segments of connections have, the commonest more than once.
const FLAGS: [u8; 14] = [0x02, 0x02, 0x12, 0x12, 0x10, 0x10, 0x18, 0x18, 0x11, 0x11, 0x04, 0x14, 0x00, 0x13];

/// Runs sessions and passes each segment to `each`.
fn sessions(count: u64, mut each: impl FnMut(Tracked<'_>)) {
    for seed in 0..count {
        let mut random = Random::new(seed);
        let config = StreamConfig {
            mode: if random.percent(50) { StreamMode::Inline } else { StreamMode::Passive },
            midstream: random.percent(33),
            async_oneside: random.percent(25),
            strict: random.percent(50),
            ..StreamConfig::default()
        };
        let (mut counters, mut budget) = (StreamCounters::default(), MemoryBudget::new(0));
        let mut session = TcpSession::default();
        let handshake = random.percent(25);
        for step in 0..40 {
            let mut direction = if random.percent(50) { Direction::ToServer } else { Direction::ToClient };
            let mut flags =
                if random.percent(8) { random.below(64) as u8 } else { FLAGS[random.below(FLAGS.len())] };
            if handshake && step < 3 {
                flags = [0x02, 0x12, 0x10][step];
                direction = if step == 1 { Direction::ToClient } else { Direction::ToServer };
            }
            let wide = random.percent(10);
            let mut off = |next: Seq| {
                let by = match random.below(8) {
                    0..=4 => 0,
                    5 => 1,
                    6 => random.below(200) as i32 - 100,
                    _ if wide => random.below(1 << 26) as i32 - (1 << 25),
                    _ => 20,
                };
                next.plus(by.cast_unsigned())
            };
            let seq = off(session.next_seq(direction));
            let ack = if flags & 0x10 == 0 { Seq(0) } else { off(session.next_seq(direction.flip())) };
            let payload_len = if random.percent(50) { 0 } else { random.below(40) as u32 };
            let payload = vec![b'x'; payload_len as usize];
            let arrival = Arrival { direction, now: Timestamp::from_parts(9, 0), policy: HostPolicy::Linux };
            let mut context = StreamContext { config: &config, counters: &mut counters, budget: &mut budget };
            let segment = Segment {
                seq,
                ack,
                flags: bartizan_flow::tcp::TcpFlags::from_bits_retain(flags),
                window: 2000,
                payload: &payload,
                checksum_ok: !random.percent(3),
                ..Segment::default()
            };
            let mut outcome = Outcome::default();
            session.handle(&segment, arrival, None, &mut context, &mut outcome);
            if outcome.reuse {
                session = TcpSession::default();
                continue;
            }
            let segment =
                Tcp { seq: seq.0, ack: ack.0, flags: TcpFlags::from_bits_retain(flags), ..Tcp::default() };
            each(Tracked {
                outcome: &outcome,
                session: &session,
                segment: &segment,
                payload_len,
                direction,
                established: false,
            });
        }
    }
}

fn all_wants() -> impl Iterator<Item = Wants> {
    (0..4).map(|n| Wants { window_check: n & 1 != 0, beginning: n & 2 != 0, one_sided_inspected: false })
}

/// Sessions reach every reason and every action that segments have.
#[test]
fn sessions_are_let_on_and_refused_for_each_reason() {
    let mut said = BTreeMap::new();
    sessions(1000, |seen| {
        for wants in all_wants() {
            let input = SegmentInputs::new(&seen);
            let cell = sfw_table::transition(input.previous, input.class(wants));
            assert_eq!(told(input, wants).err(), cell.reason, "{input:?} {wants:?}");
            *said.entry(cell.reason).or_insert(0) += 1;
        }
    });
    let all = [None, Some(Reason::SfwNoConnection), Some(Reason::SfwState), Some(Reason::SfwWindow)];
    assert!(said.keys().eq(&all) && said.values().all(|count| *count > 100), "{said:?}");
}

/// The shortcut for plain segments gives the class that the properties give.
#[test]
fn what_is_plain_has_the_class_of_its_facts() {
    let mut plain_ones = 0;
    sessions(4000, |seen| {
        for wants in all_wants().filter(|_| seen.is_plain()) {
            plain_ones += 1;
            let input = SegmentInputs::new(&seen);
            assert_eq!((input.previous, input.class(wants)), (TcpState::Established, plain(seen.direction)));
            assert_eq!(seen.cell(wants).action, SfwAction::Admit);
        }
    });
    assert!(plain_ones > 1000, "{plain_ones}");
}

/// If the table names the next state, tracking reaches that state in all sessions; and each line that names
/// one is used.
#[test]
fn what_the_table_says_comes_next_is_what_tracking_makes_of_it() {
    let mut met = BTreeSet::new();
    sessions(20_000, |seen| {
        let input = SegmentInputs::new(&seen);
        let class = input.class(Wants { window_check: true, beginning: false, one_sided_inspected: false });
        let cell = sfw_table::transition(input.previous, class);
        if let Some(next) = cell.next {
            assert_eq!(next, seen.outcome.state, "{input:?} {:?}", seen.outcome);
            assert_eq!(cell.timeout, Some(timeout_of(next)));
        }
        if class.0 >= 8 && input.facts.contains(Facts::MOVES) {
            met.insert((input.previous as u8, input.kind as u8, input.direction));
        }
    });
    for (state, kind, directions, _) in MOVES {
        for direction in *directions {
            assert!(
                met.contains(&(*state as u8, *kind as u8, *direction)),
                "{state:?} {kind:?} {direction:?}"
            );
        }
    }
}

/// The firewall's decision on a segment in another form: by reasons, not by tables.
fn told(input: SegmentInputs, wants: Wants) -> Result<bool, Reason> {
    let SegmentInputs { kind, previous, direction, facts } = input;
    let has = |fact| facts.contains(fact);
    let not_taken = has(Facts::REJECTED) && !has(Facts::OLD);
    let rst = kind == SegmentKind::Rst;
    let wrong_numbers = has(Facts::NUMBERS) || not_taken && rst && previous != TcpState::None;
    let known = previous >= TcpState::Established && !has(Facts::ASYNC);
    let allowed = match previous {
        TcpState::SynSent => {
            let answer = direction == Direction::ToClient && has(Facts::BARE);
            matches!(kind, SegmentKind::Syn | SegmentKind::SynAck | SegmentKind::Rst)
                || answer
                || has(Facts::ASYNC)
                || has(Facts::MOVES)
        }
        TcpState::Closed => {
            matches!(kind, SegmentKind::Ack | SegmentKind::Fin) && has(Facts::REST)
                || rst
                || has(Facts::MOVES)
        }
        _ => true,
    };
    let one_sided = wants.one_sided_inspected && has(Facts::ONE_SIDED);
    match () {
        () if one_sided => Ok(false),
        () if kind == SegmentKind::Broken => Err(Reason::SfwState),
        () if has(Facts::UNREAD) => Ok(true),
        () if !has(Facts::CONNECTION) => Err(Reason::SfwNoConnection),
        () if wants.beginning && has(Facts::MIDSTREAM) => Err(Reason::SfwNoConnection),
        () if not_taken && !wrong_numbers => Err(Reason::SfwState),
        () if wants.window_check && (wrong_numbers || known && has(Facts::TOO_OLD)) => Err(Reason::SfwWindow),
        () if not_taken => Ok(true),
        () if !allowed || has(Facts::INJECTED) => Err(Reason::SfwState),
        () => Ok(true),
    }
}

/// All states, flags, directions, facts and policies.
#[test]
fn the_table_says_what_is_told_of_every_input() {
    let mut said = BTreeMap::new();
    for facts in 0..1 << 13 {
        let facts = Facts::from_bits(facts).expect("as many facts");
        for (previous, kind) in STATES.iter().flat_map(|state| SegmentKind::ALL.map(|kind| (*state, kind))) {
            for direction in Direction::BOTH {
                let input = SegmentInputs { kind, previous, direction, facts };
                for wants in all_wants().flat_map(|wants| {
                    [false, true].map(|inspected| Wants { one_sided_inspected: inspected, ..wants })
                }) {
                    let cell = sfw_table::transition(previous, input.class(wants));
                    let found = match cell.action {
                        SfwAction::Refuse => Err(cell.reason.expect("no refusal without a reason")),
                        action => Ok(action == SfwAction::Admit),
                    };
                    assert_eq!(found, told(input, wants), "{input:?} {wants:?}");
                    *said.entry(format!("{found:?}")).or_insert(0) += 1;
                }
            }
        }
    }
    assert_eq!(said.len(), 5, "{said:?}");
}

#[test]
fn kinds_are_those_of_flags() {
    for bits in 0..=u8::MAX {
        let flags = TcpFlags::from_bits_retain(bits);
        let [fin, syn, rst, ack] =
            [TcpFlags::FIN, TcpFlags::SYN, TcpFlags::RST, TcpFlags::ACK].map(|flag| flags.contains(flag));
        let expected = match (syn, rst, fin, ack) {
            (true, false, false, false) => SegmentKind::Syn,
            (true, false, false, true) => SegmentKind::SynAck,
            (false, true, false, _) => SegmentKind::Rst,
            (false, false, false, true) => SegmentKind::Ack,
            (false, false, true, true) => SegmentKind::Fin,
            _ => SegmentKind::Broken,
        };
        assert_eq!(kind(flags), expected, "{bits:#04x}");
    }
}

#[test]
fn the_cells_are_where_their_numbers_say() {
    for (row, state) in STATES.iter().enumerate() {
        assert_eq!(*state as usize, row);
        // A refused segment keeps the state or leaves it to tracking; a segment that tracking rejects has its
        // reason in each state.
        for (class, _) in SegmentClass::NAMED {
            assert_eq!(sfw_table::transition(*state, class), sfw_table::transition(TcpState::None, class));
        }
    }
    let window = sfw_table::transition(TcpState::Established, SegmentClass::OUT_OF_WINDOW);
    assert_eq!(window.bytes(), [NONE, 2, Reason::SfwWindow as u8, NONE]);
    let data = SegmentClass::taken(SegmentKind::Ack, SegmentPosition::Unchanged, Direction::ToClient);
    let on = sfw_table::transition(TcpState::Established, data);
    assert_eq!(on.bytes(), [TcpState::Established as u8, 0, NONE, Timeout::Established as u8]);
    // Undefined numbers fail closed.
    for class in SegmentClass::COUNT as u8..=u8::MAX {
        assert!(
            STATES.iter().all(|s| sfw_table::transition(*s, SegmentClass(class)).action == SfwAction::Refuse)
        );
    }
    for (class, state) in (0..SegmentClass::COUNT as u8).flat_map(|class| STATES.map(|state| (class, state)))
    {
        let cell = sfw_table::transition(state, SegmentClass(class));
        assert_eq!(cell.action == SfwAction::Refuse, cell.reason.is_some(), "{state:?} {class}");
    }
}
