// SPDX-License-Identifier: Apache-2.0
//! Prevention and fragments: a receiver never completes a datagram that was not inspected as a whole.

mod common;

use bartizan_base::{Decision, Reason, Timestamp, Verdict};
use bartizan_dataplane::handover::{Handled, connect};
use bartizan_dataplane::worker::Worker;
use common::{Captured, Nothing, bench, ethernet, fragments, ip, tcp, udp};
use std::sync::Arc;

const SYN: u8 = 2;
const ACK: u8 = 16;

/// Decides on a frame: the decision, and whether the frame has to be changed before it leaves.
type Decide = dyn FnMut(&Captured) -> (Decision, bool);

/// Something that decides on frames, one after the other.
struct Engine {
    decide: Box<Decide>,
    millis: u64,
}

impl Engine {
    /// One worker, or a station that owns everything: both have to decide alike.
    fn both() -> [Engine; 2] {
        let bench = bench(true, "no");
        let worker = || {
            let settings = bench.engine_settings.clone();
            Worker::new(settings, Arc::clone(&bench.engine), Arc::clone(&bench.chains)).unwrap()
        };
        let (mut alone, seed) = (worker(), bench.engine_settings.seed);
        let mut station = connect(vec![worker()], seed, 8).pop().unwrap();
        let plain = move |frame: &Captured| {
            let decision = alone.frame(&frame.frame(1), &mut Nothing);
            (decision, alone.take_rewrite().is_some())
        };
        let stationed = move |frame: &Captured| match station.frame(&frame.frame(1), 0, &mut Nothing) {
            Handled::Here(decision) => (decision, false),
            Handled::Away(_) => panic!("there is nobody else"),
        };
        [Engine { decide: Box::new(plain), millis: 0 }, Engine { decide: Box::new(stationed), millis: 0 }]
    }

    fn frame(&mut self, v6: bool, bytes: &[u8]) -> (Decision, bool) {
        self.millis += 1;
        let now = Timestamp::from_nanos(1_000_000_000 + self.millis * 1_000_000);
        (self.decide)(&Captured { now, bytes: ethernet(v6, bytes) })
    }

    fn reason(&mut self, v6: bool, bytes: &[u8]) -> Option<Reason> {
        let (decision, _) = self.frame(v6, bytes);
        assert_eq!(decision.verdict.forwards(), decision.reason.is_none(), "{decision:?}");
        decision.reason
    }
}

const ENDS: (u8, u8) = (1, 2);

#[test]
fn a_refused_datagram_stays_refused() {
    for engine in &mut Engine::both() {
        for v6 in [false, true] {
            let bad = fragments(v6, ENDS, 17, 77, &udp((9, 10), b"please drop this one"), 16);
            let good = fragments(v6, ENDS, 17, 77, &udp((9, 10), b"please keep this one"), 16);
            assert_eq!(engine.reason(v6, &bad[0]), None);
            assert_eq!(engine.reason(v6, &bad[1]), Some(Reason::PfwRule));
            // Neither again, nor with other content: the first fragment waits at the receiver.
            assert_eq!(engine.reason(v6, &bad[1]), Some(Reason::Defrag));
            assert_eq!(engine.reason(v6, &good[1]), Some(Reason::Defrag));
            // Another datagram is another matter.
            let other = fragments(v6, ENDS, 17, 78, &udp((9, 10), b"please keep this one"), 16);
            assert!(other.iter().all(|f| engine.reason(v6, f).is_none()));
        }
    }
}

#[test]
fn fragments_on_which_receivers_differ_are_refused() {
    for engine in &mut Engine::both() {
        for v6 in [false, true] {
            let whole = fragments(v6, ENDS, 17, 5, &udp((9, 10), b"harmless text that is long enough"), 16);
            let other = fragments(v6, ENDS, 17, 5, &udp((9, 10), b"drop ful text that is long enough"), 16);
            assert_eq!(engine.reason(v6, &whole[0]), None);
            assert_eq!(engine.reason(v6, &other[0]), Some(Reason::Defrag), "overlap");
            let mut fewer_hops = whole[1].clone();
            fewer_hops[if v6 { 7 } else { 8 }] = 1;
            if !v6 {
                fewer_hops[10..12].fill(0);
                let sum = bartizan_packet::InternetChecksum::new().with(&fewer_hops[..20]).finish();
                fewer_hops[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            assert_eq!(engine.reason(v6, &fewer_hops), Some(Reason::Defrag), "hop limit");
            assert!(whole[1..].iter().all(|f| engine.reason(v6, f).is_none()));
        }
    }
}

#[test]
fn other_content_in_a_datagram_put_together_refuses_its_last_fragment() {
    for (which, engine) in Engine::both().iter_mut().enumerate() {
        for v6 in [false, true] {
            let port = 4000 + u16::from(v6);
            let client = |seq, flags, data: &[u8]| tcp((port, 80), seq, 500, flags, data);
            let segment = |body: &[u8]| ip(v6, ENDS, 6, body);
            let back = |flags| ip(v6, (2, 1), 6, &tcp((80, port), 499, 100, flags, b""));
            assert_eq!(engine.reason(v6, &segment(&tcp((port, 80), 99, 0, SYN, b""))), None);
            assert_eq!(engine.reason(v6, &back(SYN | ACK)), None);
            assert_eq!(engine.reason(v6, &segment(&client(100, ACK, b""))), None);
            assert_eq!(engine.reason(v6, &segment(&client(100, ACK, b"the text that was inspected"))), None);
            // In one frame, other content is put right.
            let (decision, rewritten) =
                engine.frame(v6, &segment(&client(100, ACK, b"the text THAT was inspected")));
            assert!(decision.verdict.forwards() && (rewritten || which == 1));
            // In fragments it cannot be.
            let parts = fragments(v6, ENDS, 6, 9, &client(100, ACK, b"the text that WAS inspected"), 24);
            assert_eq!(engine.reason(v6, &parts[0]), None);
            let (decision, rewritten) = engine.frame(v6, &parts[1]);
            assert_eq!((decision.verdict, decision.reason), (Verdict::Drop, Some(Reason::StreamOverlap)));
            assert!(!rewritten);
            assert_eq!(engine.reason(v6, &parts[1]), Some(Reason::Defrag));
        }
    }
}
