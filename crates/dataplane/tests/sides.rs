// SPDX-License-Identifier: Apache-2.0
//! Live prevention: packets with the forged source address of the other host are not accepted, since they
//! arrive from the wrong side.

use crate::common;

use bartizan_base::{Decision, Timestamp};
use bartizan_dataplane::worker::Worker;
use common::{Captured, Nothing, bench, ethernet, ip, tcp, udp, unreachable};
use std::sync::Arc;

const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;
const CLIENTS: u32 = 0;
const SERVERS: u32 = 1;

struct Link {
    worker: Worker,
    millis: u64,
}

impl Link {
    fn new() -> Self {
        let bench = bench(true, "no");
        let settings = bench.engine_settings.clone().for_real_receivers(true).between_two_sides();
        let worker = Worker::new(settings, Arc::clone(&bench.engine), Arc::clone(&bench.chains)).unwrap();
        Link { worker, millis: 0 }
    }

    fn frame(&mut self, side: u32, bytes: Vec<u8>) -> Decision {
        self.millis += 1;
        let now = Timestamp::from_nanos(1_000_000_000 + self.millis * 1_000_000);
        self.worker.arrives_by(side);
        let frame = Captured { now, bytes };
        self.worker.frame(&frame.frame(self.millis), &mut Nothing).expect("no fragment is sent")
    }

    fn client(&mut self, v6: bool, seq: u32, flags: u8, payload: &[u8]) -> Decision {
        let ack = if flags & ACK > 0 { 501 } else { 0 };
        let bytes = ethernet(v6, &ip(v6, (1, 2), 6, &tcp((1000, 80), seq, ack, flags, payload)));
        self.frame(CLIENTS, bytes)
    }

    fn server(&mut self, side: u32, v6: bool, seq: u32, ack: u32, flags: u8) -> Decision {
        let bytes = ethernet(v6, &ip(v6, (2, 1), 6, &tcp((80, 1000), seq, ack, flags, b"")));
        self.frame(side, bytes)
    }

    fn connect(&mut self, v6: bool) {
        assert!(self.client(v6, 100, SYN, b"").verdict.forwards());
        assert!(self.server(SERVERS, v6, 500, 101, SYN | ACK).verdict.forwards());
        assert!(self.client(v6, 101, ACK, b"").verdict.forwards());
    }
}

#[test]
fn the_servers_own_word_counts() {
    for v6 in [false, true] {
        for flags in [ACK, RST | ACK] {
            let mut link = Link::new();
            link.connect(v6);
            assert!(link.client(v6, 101, ACK, b"please keep this one").verdict.forwards());
            link.server(CLIENTS, v6, 501, 121, flags);
            assert!(link.server(SERVERS, v6, 501, 121, ACK).verdict.forwards());
            assert!(link.client(v6, 121, ACK, b"please keep this, too").verdict.forwards());
        }
    }
}

#[test]
fn answers_come_across_the_link() {
    for v6 in [false, true] {
        let mut link = Link::new();
        link.connect(v6);
        assert!(link.client(v6, 101, ACK, b"please keep this one").verdict.forwards());
        assert!(link.server(SERVERS, v6, 501, 121, ACK).verdict.forwards());
        let datagram = |there: bool| {
            let (ends, ports) = if there { ((1, 2), (53, 54)) } else { ((2, 1), (54, 53)) };
            ip(v6, ends, 17, &udp(ports, b"please"))
        };
        assert!(link.frame(CLIENTS, ethernet(v6, &datagram(true))).verdict.forwards());
        assert!(link.frame(SERVERS, ethernet(v6, &datagram(false))).verdict.forwards());
        assert_eq!(link.worker.flows().len(), 2, "each with its answers");
        // An error about what the client sent comes from beyond the link as well.
        if !v6 {
            let error = ip(false, (2, 1), 1, &unreachable(&datagram(true)));
            assert!(link.frame(SERVERS, ethernet(false, &error)).verdict.forwards());
            assert_eq!(link.worker.flows().len(), 2, "it belongs to the flow that it is about");
        }
        // The same from the client's own side is about something else.
        link.frame(CLIENTS, ethernet(v6, &datagram(false)));
        assert_eq!(link.worker.flows().len(), 3);
    }
}
