// SPDX-License-Identifier: Apache-2.0
//! A TCP server of the harness on raw frames, whose packets go through a strategy. The client is a socket of
//! the receivers' kernel, or a program on one: see [`crate::receivers::Callers`]. Both can hold the forbidden
//! bytes: the request, which this server reads, and the answer, which the client records.
//!
//! Not supported: congestion control, selective acknowledgments, the client's window (an answer fits into the
//! first one).

use crate::client::Out;
use crate::strategy::Strategy;
use bartizan_testkit::packet::{ACK, Answer, FIN, Ip, Layer, PSH, Packet, RST, SYN, Segment};
use bartizan_testkit::random::Random;
use std::net::SocketAddr;

/// A call that a client makes.
#[derive(Clone, Debug)]
pub struct Call {
    /// The server's address.
    pub to: SocketAddr,
    /// Bytes that the client sends at once.
    pub request: Vec<u8>,
    /// A program requests a page, instead of a socket that sends the request.
    pub browser: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Waiting,
    Opening,
    Open,
    Closing,
    Over,
}

/// Milliseconds after which a connection is given up.
const PATIENCE: u64 = 1500;
/// Milliseconds until a retransmission.
const AGAIN: u64 = 250;
/// Payload of a segment, in bytes.
const SEGMENT: usize = 1360;

/// One connection.
#[derive(Clone, Debug)]
pub struct Server {
    /// Header of its packets; `dst` is the client.
    pub ip: Ip,
    /// Bytes that the server answers.
    pub answer: Vec<u8>,
    /// Ends of the answer's segments, besides the necessary ones.
    pub ends: Vec<usize>,
    /// Length of the request in bytes; 0 for a request that ends with an empty line.
    pub wanted: usize,
    /// Strategy that the server's packets go through.
    pub strategy: Option<Strategy>,
    /// Bytes that the server has read.
    pub heard: Vec<u8>,
    ports: (u16, u16),
    random: Random,
    isn: u32,
    peer: u32,
    acked: usize,
    sent: usize,
    now: u64,
    begun: u64,
    due: u64,
    tries: u32,
    peer_closed: bool,
    phase: Phase,
}

impl Server {
    /// Creates a server that listens at this port.
    #[must_use]
    pub fn new(ip: Ip, port: u16, answer: Vec<u8>, mut random: Random) -> Self {
        let isn =
            if random.percent(25) { u32::MAX - random.below(3000) as u32 } else { random.draw() as u32 };
        Server {
            ip,
            answer,
            ends: Vec::new(),
            wanted: 0,
            strategy: None,
            heard: Vec::new(),
            ports: (port, 0),
            random,
            isn,
            peer: 0,
            acked: 0,
            sent: 0,
            now: 0,
            begun: 0,
            due: 0,
            tries: 0,
            peer_closed: false,
            phase: Phase::Waiting,
        }
    }

    /// Whether the connection is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Time of its next action, in milliseconds.
    #[must_use]
    pub fn due(&self) -> u64 {
        self.due.min(self.begun + PATIENCE)
    }

    /// Sends a segment at this offset of the answer; the SYN is at -1.
    fn emit(&mut self, flags: u16, offset: i64, load: &[u8], out: &mut Out) {
        let segment = Segment {
            sport: self.ports.0,
            dport: self.ports.1,
            seq: self.isn.wrapping_add(1).wrapping_add(offset as u32),
            ack: if flags & ACK != 0 { self.peer } else { 0 },
            flags,
            window: 29_200,
            options: if flags & SYN != 0 { vec![(2, vec![5, 180])] } else { Vec::new() },
            load: load.to_vec(),
            ..Segment::default()
        };
        let packet = Packet::tcp(&self.ip, segment);
        match &mut self.strategy {
            None => out.push((self.now, packet.frame())),
            Some(strategy) => {
                for (wait, packet) in strategy.out(packet, &mut self.random) {
                    out.push((self.now + wait.min(300), packet.frame()));
                }
            }
        }
    }

    /// Handles a packet of the client.
    pub fn hear(&mut self, answer: &Answer, now: u64, out: &mut Out) {
        self.now = now;
        if answer.udp {
            return;
        }
        let Some(strategy) = &mut self.strategy else {
            self.take(&answer.segment, out);
            return;
        };
        let mut ip = self.ip.clone();
        (ip.src, ip.dst, ip.ttl) = (answer.src, answer.dst, answer.ttl);
        for (_, packet) in strategy.heard(Packet::tcp(&ip, answer.segment.clone()), &mut self.random) {
            if let Layer::Tcp(segment) = packet.layer {
                self.take(&segment, out);
            }
        }
    }

    fn take(&mut self, segment: &Segment, out: &mut Out) {
        if self.phase == Phase::Over {
            return;
        }
        let acked = segment.ack.wrapping_sub(self.isn.wrapping_add(1));
        if segment.flags & RST != 0 {
            // As receivers do: accepts only a reset with the number of the next expected byte.
            if self.phase != Phase::Waiting && segment.seq == self.peer {
                self.phase = Phase::Over;
            }
            return;
        }
        if segment.flags & SYN != 0 {
            if self.phase == Phase::Waiting {
                self.ports.1 = segment.sport;
                self.peer = segment.seq.wrapping_add(1);
                (self.phase, self.tries, self.due) = (Phase::Opening, 0, self.now);
            } else if segment.flags & ACK != 0 {
                // A simultaneous open: the client sends its SYN again and acknowledges the server's.
                if self.phase == Phase::Opening && acked == 0 {
                    (self.phase, self.tries) = (Phase::Open, 0);
                }
                self.emit(ACK, 0, &[], out);
            }
            return;
        }
        if self.phase == Phase::Waiting || segment.flags & ACK == 0 {
            return;
        }
        let all = self.answer.len();
        if self.phase == Phase::Opening {
            if acked != 0 {
                return;
            }
            (self.phase, self.tries) = (Phase::Open, 0);
        }
        if acked as usize > self.acked && acked as usize <= all + 1 {
            (self.acked, self.tries, self.due) = ((acked as usize).min(all), 0, self.now);
            if acked as usize > all && self.peer_closed {
                self.phase = Phase::Over;
                return;
            }
        }
        let carries = segment.load.len() as u32 + u32::from(segment.flags & FIN != 0);
        if carries > 0 {
            if segment.seq == self.peer {
                self.peer = self.peer.wrapping_add(carries);
                self.heard.extend_from_slice(&segment.load);
                self.peer_closed |= segment.flags & FIN != 0;
                self.due = self.now;
            }
            let at = self.sent.max(self.acked) as i64;
            self.emit(ACK, at + i64::from(self.phase == Phase::Closing), &[], out);
        }
    }

    /// Whether the server has read a whole request.
    #[must_use]
    pub fn asked(&self) -> bool {
        match self.wanted {
            0 => self.heard.windows(4).any(|four| four == b"\r\n\r\n"),
            wanted => self.heard.len() >= wanted,
        }
    }

    /// Sends what is due.
    pub fn speak(&mut self, now: u64, out: &mut Out) {
        self.now = now;
        if self.begun == 0 {
            (self.begun, self.due) = (now.max(1), now + PATIENCE);
        }
        if self.phase == Phase::Over || now < self.due() {
            return;
        }
        if now >= self.begun + PATIENCE || self.tries > 4 {
            self.give_up(out);
            return;
        }
        self.due = now + AGAIN;
        match self.phase {
            Phase::Opening => {
                self.tries += 1;
                self.emit(SYN | ACK, -1, &[], out);
            }
            Phase::Open if self.asked() => self.send(out),
            Phase::Closing => {
                self.tries += 1;
                self.emit(FIN | ACK, self.answer.len() as i64, &[], out);
            }
            _ => {}
        }
    }

    /// Sends the unacknowledged rest of the answer, and the FIN after it.
    fn send(&mut self, out: &mut Out) {
        let all = self.answer.len();
        self.tries += 1;
        if self.acked >= all {
            (self.phase, self.tries, self.due) = (Phase::Closing, 0, self.now);
            return;
        }
        // Some segments at once; all of them again only after a while.
        let mut begin = if self.tries == 1 { self.sent.max(self.acked) } else { self.acked };
        if begin >= all {
            return;
        }
        for _ in 0..8 {
            let end = self.ends.iter().copied().find(|end| *end > begin).unwrap_or(all);
            let end = end.min(begin + SEGMENT).min(all);
            let load = self.answer[begin..end].to_vec();
            self.emit(PSH | ACK, begin as i64, &load, out);
            self.sent = self.sent.max(end);
            begin = end;
            if begin >= all {
                break;
            }
        }
    }

    fn give_up(&mut self, out: &mut Out) {
        if !matches!(self.phase, Phase::Waiting | Phase::Opening) {
            let mut packet = Packet::tcp(&self.ip, Segment::default());
            if let Layer::Tcp(segment) = &mut packet.layer {
                (segment.sport, segment.dport) = self.ports;
                segment.seq = self.isn.wrapping_add(1).wrapping_add(self.acked as u32);
                (segment.ack, segment.flags) = (self.peer, RST | ACK);
            }
            out.push((self.now, packet.frame()));
        }
        self.phase = Phase::Over;
    }
}
