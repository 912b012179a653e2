// SPDX-License-Identifier: Apache-2.0
//! A TCP client of the harness on raw frames: it follows the protocol as far as its style allows, through a
//! strategy or as fragments if configured. It has two versions of its data of the same length, `truth` and
//! `lie`.
//!
//! Not supported: congestion control, selective acknowledgments, windows (the data fits into the first one).

use crate::client::{Client, Out, Phase, Step, Style};
use crate::forged;
use crate::kinds::fragments;
use crate::rough;
use bartizan_testkit::packet::{ACK, Answer, FIN, PSH, Packet, RST, SYN, Segment};

/// Milliseconds until a retransmission.
const AGAIN: u64 = 250;

impl Client {
    /// Sends a segment, through the strategy if there is one.
    fn emit(&mut self, segment: Segment, out: &mut Out) {
        let packet = Packet::tcp(&self.ip, segment);
        match &mut self.strategy {
            None => out.push((self.now, packet.frame())),
            Some(strategy) => {
                for (wait, packet) in strategy.out(packet, &mut self.random) {
                    // Published strategies wait for seconds; the awaited events take milliseconds here.
                    out.push((self.now + wait.min(300), packet.frame()));
                }
            }
        }
    }

    /// Handles a packet from the receiver.
    pub fn hear(&mut self, answer: &Answer, now: u64, out: &mut Out) {
        self.now = now;
        if let Some(strategy) = &mut self.strategy {
            let mut ip = self.ip.clone();
            (ip.src, ip.dst, ip.ttl) = (answer.dst, answer.src, answer.ttl);
            let heard = strategy.heard(Packet::tcp(&ip, answer.segment.clone()), &mut self.random);
            for (_, packet) in heard {
                if let bartizan_testkit::packet::Layer::Tcp(segment) = packet.layer {
                    self.take(&segment, out);
                }
            }
        } else {
            self.take(&answer.segment, out);
        }
    }

    fn take(&mut self, segment: &Segment, out: &mut Out) {
        if let Some((_, value)) = segment.options.iter().find(|(kind, value)| *kind == 8 && value.len() == 8)
        {
            self.echo = u32::from_be_bytes([value[0], value[1], value[2], value[3]]);
        }
        let acked = segment.ack.wrapping_sub(self.isn.wrapping_add(1));
        if segment.flags & RST != 0 {
            let ours = if self.phase == Phase::Opening { acked == 0 } else { segment.seq == self.peer };
            if ours {
                self.phase = Phase::Over;
            }
            return;
        }
        if segment.flags & SYN != 0 {
            if self.phase == Phase::Opening && segment.flags & ACK != 0 {
                let with_data = acked as usize <= self.syn_load.len();
                if !with_data && !self.opening.iter().any(|other| other.far == acked) {
                    return;
                }
                // The answer to one of the SYNs establishes the connection. Data of the SYN may be part of
                // it.
                if with_data {
                    (self.acked, self.sent) = (acked as usize, acked as usize);
                } else {
                    self.isn = segment.ack.wrapping_sub(1);
                }
                self.peer = segment.seq.wrapping_add(1);
                self.phase = Phase::Sending;
                (self.tries, self.due) = (0, self.now);
            }
            if segment.flags & ACK != 0 {
                let ack = self.segment(ACK, self.acked as i64, &[]);
                self.emit(ack, out);
            }
            return;
        }
        if self.phase == Phase::Opening || self.phase == Phase::Over {
            return;
        }
        let all = self.truth.len();
        if segment.flags & ACK != 0 && acked as usize > self.acked && acked as usize <= all + 1 {
            self.acked = (acked as usize).min(all);
            self.complete |= acked as usize > all;
            (self.tries, self.due) = (0, self.now);
        }
        let carries = segment.load.len() as u32 + u32::from(segment.flags & FIN != 0);
        if carries > 0 {
            if segment.seq == self.peer {
                self.peer = self.peer.wrapping_add(carries);
                self.heard += segment.load.len();
                self.peer_closed |= segment.flags & FIN != 0;
                self.due = self.now;
            }
            let offset = if self.complete { all as i64 + 1 } else { self.sent.max(self.acked) as i64 };
            let ack = self.segment(ACK, offset, &[]);
            self.emit(ack, out);
        }
    }

    /// Sends what is due.
    pub fn speak(&mut self, now: u64, out: &mut Out) {
        self.now = now;
        if self.begun == 0 {
            self.begun = now.max(1);
        }
        if self.phase == Phase::Over {
            if let Some(next) = self.next.take() {
                let heard = self.heard;
                *self = *next;
                (self.heard, self.now, self.begun) = (heard, now, now.max(1));
                self.due = now + 3;
            }
            return;
        }
        if now < self.due() {
            return;
        }
        if now >= self.begun + self.patience {
            self.give_up(out);
            return;
        }
        match self.phase {
            Phase::Opening => self.open(out),
            Phase::Sending => self.send(out),
            Phase::Closing => self.close(out),
            Phase::Over => {}
        }
    }

    fn open(&mut self, out: &mut Out) {
        self.tries += 1;
        if self.tries > 3 {
            self.give_up(out);
            return;
        }
        self.due = self.now + AGAIN;
        let load = if self.tries == 1 { self.syn_load.clone() } else { Vec::new() };
        let mut segments = vec![self.segment(SYN, -1, &load)];
        if self.tries == 1 {
            for other in &self.opening {
                let mut segment = self.segment(other.flags, -1, &other.load);
                segment.seq = segment.seq.wrapping_add(other.far);
                let at = if other.first { 0 } else { segments.len() };
                segments.insert(at, segment);
            }
        }
        for segment in segments {
            self.emit(segment, out);
        }
    }

    fn send(&mut self, out: &mut Out) {
        let all = self.truth.len();
        if self.acked >= all {
            self.phase = Phase::Closing;
            self.tries = 0;
            // Time for an answer.
            self.due = if self.heard > 0 { self.now } else { self.now + 100 };
            return;
        }
        match self.style.clone() {
            Style::Rough(steps) if self.steps < steps => {
                self.steps += 1;
                for (ip, segment) in rough::tricks(self) {
                    let mut packet = Packet::tcp(&self.ip, segment);
                    if let Some(ip) = ip {
                        packet.ip = ip;
                    }
                    out.push((self.now, packet.frame()));
                }
                self.due = self.now + *self.random.pick(&[0, 0, 1, 2, 5, 15]);
            }
            Style::Fragments if self.steps == 0 => {
                self.steps = 1;
                let (truth, lie) = (self.truth.clone(), self.lie.clone());
                let segments = [truth, lie].map(|load| self.segment(ACK | PSH, 0, &load).bytes(&self.ip));
                let plan = fragments::plan(&self.ip, &segments[0], &segments[1], &mut self.random);
                self.note = plan.note;
                out.extend(plan.frames.into_iter().map(|(wait, frame)| (self.now + wait, frame)));
                self.due = self.now + 400;
            }
            Style::Forged if self.steps == 0 => {
                self.steps = 1;
                out.extend(forged::frames(self).into_iter().map(|(wait, frame)| (self.now + wait, frame)));
                self.due = self.now + 60;
            }
            Style::Script(steps) if self.steps == 0 => {
                self.steps = 1;
                let mut clock = 0;
                for step in &steps {
                    clock += step.wait;
                    let frame = self.step(step);
                    out.push((self.now + clock, frame));
                }
                self.due = self.now + clock + 40;
            }
            Style::Script(_) => self.send_piece(&[all], None, out),
            Style::Forged => self.send_piece(&[all], None, out),
            // A fragmented segment is not sent again whole.
            Style::Fragments => self.give_up(out),
            Style::Pieces { ends, gap } => self.send_piece(&ends, gap, out),
            Style::Rough(_) => self.send_piece(&[all], None, out),
        }
    }

    /// Builds the frame of a script's step.
    fn step(&self, step: &Step) -> Vec<u8> {
        if let Some(error) = &step.icmp {
            let quoted = self.segment(ACK, self.acked as i64, &self.truth[..self.truth.len().min(64)]);
            return error.frame(&self.ip, quoted);
        }
        let mut segment = self.segment(step.flags, step.offset, &step.load);
        segment.urgptr = step.urgptr;
        segment.options = step.options.clone().unwrap_or_else(|| self.options(step.flags, step.age));
        Packet::tcp(&self.ip, segment).frame()
    }

    fn send_piece(&mut self, ends: &[usize], gap: Option<u64>, out: &mut Out) {
        let unsent = self.sent.max(self.acked);
        let waits = gap.is_none() && self.acked < self.sent && self.tries == 0;
        let begin = if waits || unsent >= self.truth.len() { self.acked } else { unsent };
        if begin < self.sent {
            self.tries += 1;
            if self.tries > 3 {
                self.give_up(out);
                return;
            }
        }
        let end = ends.iter().copied().find(|end| *end > begin).unwrap_or(self.truth.len());
        let end = end.min(begin + 1400).min(self.truth.len());
        let load = self.truth[begin..end].to_vec();
        let segment = self.segment(ACK | PSH, begin as i64, &load);
        self.emit(segment, out);
        self.sent = self.sent.max(end);
        self.due = match gap {
            Some(gap) if end < self.truth.len() => self.now + gap,
            _ => self.now + AGAIN,
        };
    }

    fn close(&mut self, out: &mut Out) {
        if self.complete {
            if self.peer_closed || self.tries > 2 {
                self.give_up(out);
            } else {
                self.tries += 1;
                self.due = self.now + 100;
            }
            return;
        }
        self.tries += 1;
        if self.tries > 2 {
            self.give_up(out);
            return;
        }
        let fin = self.segment(FIN | ACK, self.truth.len() as i64, &[]);
        self.emit(fin, out);
        self.due = self.now + AGAIN;
    }

    /// Resets the connection, so that the receiver stops.
    fn give_up(&mut self, out: &mut Out) {
        if !self.silent && self.phase != Phase::Opening && !(self.complete && self.peer_closed) {
            let segment = self.segment(RST | ACK, self.acked as i64, &[]);
            out.push((self.now, Packet::tcp(&self.ip, segment).frame()));
        }
        self.phase = Phase::Over;
    }
}
