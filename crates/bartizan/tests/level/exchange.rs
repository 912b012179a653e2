// SPDX-License-Identifier: Apache-2.0
//! Frames through a running link one after the other, each with the result whether it passed.

use super::network;
use bartizan_ports::{Batch, InlinePort, Port, wait_any};
use bartizan_testkit::layers;
use std::time::{Duration, Instant};

/// The longest wait for a frame that must come: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);
/// An EtherType for experiments, which passes every link.
const EXPERIMENT: u16 = 0x88b6;

/// The two far ends of a link: client and server.
pub struct Exchange {
    ports: [InlinePort; 2],
    sent: u64,
}

impl Exchange {
    /// The two ends of the interfaces that [`network`] makes.
    pub fn new() -> Self {
        Exchange { ports: network(1500), sent: 0 }
    }

    /// Sends a frame from the client's or the server's end, and after it one that is not IP, which the
    /// program handles later: whether the first has come out unchanged by the time the second does.
    pub fn passes(&mut self, by_client: bool, frame: &[u8]) -> bool {
        self.sent += 1;
        let mark = layers::ethernet(EXPERIMENT, &[&self.sent.to_be_bytes()[..], &[0; 40]].concat());
        let [client, server] = &mut self.ports;
        let (from, to) = if by_client { (client, server) } else { (server, client) };
        for bytes in [frame, &mark] {
            from.transmit_frame(bytes).unwrap();
            from.flush().unwrap();
        }
        let (mut batch, begun, mut passed) = (Batch::with_capacity(64), Instant::now(), false);
        while begun.elapsed() < PATIENCE {
            to.receive(&mut batch).unwrap();
            for bytes in batch.indices().filter_map(|at| batch.bytes(at)) {
                passed |= bytes == frame;
                if bytes == mark {
                    return passed;
                }
            }
            if batch.is_empty() {
                wait_any(&mut [&mut *to], None, Duration::ZERO, Duration::from_millis(20)).unwrap();
            }
        }
        panic!("frame {} has not come through the link", self.sent);
    }
}
