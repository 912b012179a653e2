// SPDX-License-Identifier: Apache-2.0
//! The ports in memory, and an inline pair made of them.

use bartizan_base::{PacketDuration, Timestamp};
use bartizan_ports::{
    Batch, Disposition, FrameFlags, FrameInfo, InlinePair, OpenError, PairSide, Port, SendRefusal, TestClock,
    TestPort, Woke,
};
use std::time::Duration;

fn frame(number: u8) -> Vec<u8> {
    vec![number; 60]
}

#[test]
fn an_inline_pair_of_test_ports_forwards_both_ways() {
    let clock = TestClock::starting_at(Timestamp::from_parts(1000, 0));
    let (mut client, a) = TestPort::pair(["client", "a"], 1500, 100, &clock).unwrap();
    let (b, mut server) = TestPort::pair(["b", "server"], 1500, 100, &clock).unwrap();
    let mut pair = InlinePair::new(Box::new(a), Box::new(b), false).unwrap();
    let mut batch = Batch::with_capacity(8);
    assert_eq!(pair.wait(None, Duration::ZERO, Duration::from_millis(1)).unwrap(), Woke::Timeout);
    client.transmit_frame(&frame(1)).unwrap();
    client.flush().unwrap();
    server.transmit_frame(&frame(2)).unwrap();
    clock.advance(PacketDuration::from_secs(1));
    server.flush().unwrap();
    assert_eq!(pair.wait(None, Duration::ZERO, Duration::from_secs(5)).unwrap(), Woke::Packets);
    for (side, at) in [(PairSide::A, 1000), (PairSide::B, 1001)] {
        let (ingress, egress) = pair.direction(side);
        assert_eq!(ingress.receive(&mut batch).unwrap(), 1);
        assert_eq!(batch.info(0).unwrap().timestamp, Timestamp::from_parts(at, 0));
        batch.forward_all();
        assert_eq!(egress.transmit(&mut batch), 1);
        egress.flush().unwrap();
    }
    assert_eq!(server.take(), Some(frame(1)));
    assert_eq!(client.take(), Some(frame(2)));
    assert_eq!(pair.wait(None, Duration::ZERO, Duration::from_millis(1)).unwrap(), Woke::Timeout);
}

#[test]
fn bounds_are_kept_and_counted() {
    let clock = TestClock::default();
    let (mut left, mut right) = TestPort::pair(["left", "right"], 100, 3, &clock).unwrap();
    assert_eq!(left.transmit_frame(&[0; 13]), Err(SendRefusal::TooShort));
    assert_eq!(left.transmit_frame(&[0; 119]), Err(SendRefusal::TooLarge));
    for round in 0..2 {
        for number in 0..3 {
            left.transmit_frame(&frame(round * 3 + number)).unwrap();
        }
        assert_eq!(left.transmit_frame(&frame(9)), Err(SendRefusal::RingFull));
        left.flush().unwrap();
    }
    let stats = left.stats();
    assert_eq!((stats.sent, stats.send_failures.total()), (6, 4));
    let mut batch = Batch::with_capacity(2);
    assert_eq!(right.receive(&mut batch).unwrap(), 2);
    assert_eq!(right.receive(&mut batch).unwrap(), 1);
    assert_eq!(right.receive(&mut batch).unwrap(), 0);
    let stats = right.stats();
    assert_eq!((stats.received, stats.ring_dropped), (3, 3), "sent = received + counted");
    assert!(!right.ended());
    drop(left);
    assert!(right.ended());
}

#[test]
fn a_cut_frame_is_never_sent_unless_it_was_replaced() {
    let clock = TestClock::default();
    let (mut left, mut right) = TestPort::pair(["left", "right"], 1500, 3, &clock).unwrap();
    let mut batch = Batch::with_capacity(2);
    let cut = FrameInfo { wire_length: 9000, flags: FrameFlags::TRUNCATED, ..Default::default() };
    batch.push_copy(&frame(1), cut);
    batch.push_copy(&frame(2), cut);
    batch.replace(1, &frame(3));
    batch.forward_all();
    assert_eq!(left.transmit(&mut batch), 1);
    left.flush().unwrap();
    assert_eq!(batch.disposition(0), Some(Disposition::Refused(SendRefusal::Incomplete)));
    assert_eq!(left.stats().send_failures.get(SendRefusal::Incomplete), 1);
    assert_eq!((right.take(), right.take()), (Some(frame(3)), None));
}

#[test]
fn pairs_with_different_mtus_are_refused_unless_allowed() {
    let clock = TestClock::default();
    let (small, _s) = TestPort::pair(["small", "s"], 1500, 3, &clock).unwrap();
    let (large, _l) = TestPort::pair(["large", "l"], 9000, 3, &clock).unwrap();
    let refused = InlinePair::new(Box::new(small), Box::new(large), false).map(|_| ()).unwrap_err();
    assert!(matches!(refused, OpenError::MtuMismatch { mtu_a: 1500, mtu_b: 9000, .. }));
}
