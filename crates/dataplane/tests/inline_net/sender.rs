// SPDX-License-Identifier: Apache-2.0
//! A TCP sender that tries to make the engine and the receiver read different bytes: it cuts and orders
//! segments at random, and repeats them with other content, and with flags, options, checksums, timestamps
//! and sequence numbers that receivers refuse. In the end it sends all data correctly, so that the receiver
//! can read to the end.

use super::receiver::Peer;
use super::wire::{ACK, Answer, FIN, PSH, RST, SYN, Segment, URG, client_address};
use bartizan_testkit::random::Random;

/// Habits of a connection beyond cutting, reordering and repeating.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Habits {
    /// TCP timestamps are agreed on, and old ones are sent.
    pub timestamps: bool,
    /// Urgent pointers.
    pub urgent: bool,
    /// Data in the SYN.
    pub data_in_syn: bool,
    /// Two SYNs with different numbers.
    pub second_syn: bool,
    /// A FIN before all was sent.
    pub early_fin: bool,
    /// RSTs that receivers refuse.
    pub bad_resets: bool,
    /// Ends with a RST.
    pub reset_at_the_end: bool,
    /// Data before the handshake is complete.
    pub early_data: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Opening,
    Playing,
    Completing,
    Closing,
    Over,
}

/// One connection.
#[derive(Clone, Debug)]
pub struct Connection {
    pub seed: u64,
    pub v6: bool,
    pub port: u16,
    pub habits: Habits,
    /// The data that the sender has to send.
    pub data: Vec<u8>,
    /// All data was sent, and the receiver has acknowledged all of it and the FIN.
    pub complete: bool,
    /// The receiver ended the connection.
    pub refused: bool,
    client: u8,
    server_port: u16,
    random: Random,
    phase: Phase,
    isn: u32,
    /// The next sequence number expected from the receiver.
    peer: u32,
    /// Acknowledged bytes of the data.
    acked: usize,
    fin_acked: bool,
    cursor: usize,
    steps: usize,
    tries: u32,
    due: u64,
    now: u64,
    echo: u32,
    last: Option<(usize, usize)>,
}

impl Connection {
    /// A connection that follows from its seed.
    pub fn new(seed: u64, v6: bool, client: u8, ports: (u16, u16), data: Option<Vec<u8>>) -> Self {
        let mut random = Random::new(seed);
        let length = 50 + random.below(5000);
        let mut yes = |percent| random.percent(percent);
        let habits = Habits {
            timestamps: yes(50),
            urgent: yes(30),
            data_in_syn: yes(20),
            second_syn: yes(15),
            early_fin: yes(10),
            bad_resets: yes(30),
            reset_at_the_end: yes(10),
            early_data: yes(20),
        };
        let data = data.unwrap_or_else(|| random.letters(length));
        // Every third begins shortly before the numbers wrap.
        let isn =
            if random.percent(33) { u32::MAX - random.below(3000) as u32 } else { random.draw() as u32 };
        Connection {
            seed,
            v6,
            port: ports.0,
            habits,
            data,
            complete: false,
            refused: false,
            client,
            server_port: ports.1,
            steps: 20 + random.below(40),
            random,
            phase: Phase::Opening,
            isn,
            peer: 0,
            acked: 0,
            fin_acked: false,
            cursor: 0,
            tries: 0,
            due: 0,
            now: 0,
            echo: 0,
            last: None,
        }
    }

    /// Its name at the receiver.
    pub fn peer(&self) -> Peer {
        (client_address(self.v6, self.client), self.port)
    }

    /// Nothing more will come.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// A number of its sequence space as an offset in the data.
    pub fn offset_of(&self, seq: u32) -> i32 {
        seq.wrapping_sub(self.isn.wrapping_add(1)) as i32
    }

    fn segment(&self, flags: u8, offset: i64, payload: &[u8]) -> Segment {
        // The data begins after the SYN.
        let seq = self.isn.wrapping_add(1).wrapping_add(offset as u32);
        Segment {
            v6: self.v6,
            client: self.client,
            ports: (self.port, self.server_port),
            seq,
            ack: if flags & ACK != 0 { self.peer } else { 0 },
            flags,
            window: 8192,
            urgent: 0,
            options: self.options(flags, 0),
            payload: payload.to_vec(),
            ttl: 64,
            checksum_error: 0,
            ip_options: Vec::new(),
            trailer: 0,
            to_server: true,
        }
    }

    /// TCP options: timestamps where they are agreed on, `age` units too old.
    fn options(&self, flags: u8, age: u32) -> Vec<u8> {
        let mut options = Vec::new();
        if flags & SYN != 0 {
            options.extend_from_slice(&[2, 4, 5, 0xb4]);
        }
        if self.habits.timestamps {
            options.extend_from_slice(&[1, 1, 8, 10]);
            let value = 1_000_000u32.wrapping_add(self.now as u32).wrapping_sub(age);
            options.extend_from_slice(&value.to_be_bytes());
            options.extend_from_slice(&self.echo.to_be_bytes());
        }
        options
    }

    /// Takes an answer of the kernel.
    pub fn hear(&mut self, answer: &Answer) {
        if answer.flags & RST != 0 {
            self.refused |= self.phase != Phase::Over;
            self.phase = Phase::Over;
            return;
        }
        if let Some(timestamp) = answer.timestamp {
            self.echo = timestamp;
        }
        let acked = answer.ack.wrapping_sub(self.isn.wrapping_add(1));
        if answer.flags & SYN != 0 {
            if self.phase == Phase::Opening {
                if (acked as usize) > self.data.len() {
                    // It answers the other SYN: that is the connection.
                    self.isn = answer.ack.wrapping_sub(1);
                }
                self.peer = answer.seq.wrapping_add(1);
                self.phase = Phase::Playing;
                self.due = 0;
                self.acked = if (acked as usize) <= self.data.len() { acked as usize } else { 0 };
                self.cursor = self.acked;
            }
            return;
        }
        let end = answer.seq.wrapping_add(answer.payload).wrapping_add(u32::from(answer.flags & FIN));
        if end.wrapping_sub(self.peer) < 1 << 30 {
            self.peer = end;
        }
        if (acked as usize) <= self.data.len() + 1 {
            self.fin_acked |= acked as usize == self.data.len() + 1;
            self.acked = self.acked.max((acked as usize).min(self.data.len()));
        }
    }

    /// The segments to send at `now`, in milliseconds.
    pub fn speak(&mut self, now: u64) -> Vec<Segment> {
        self.now = now;
        if now < self.due {
            return Vec::new();
        }
        match self.phase {
            Phase::Opening => self.open(),
            Phase::Playing => self.play(),
            Phase::Completing => self.finish_data(),
            Phase::Closing => self.close(),
            Phase::Over => Vec::new(),
        }
    }

    fn open(&mut self) -> Vec<Segment> {
        self.due = self.now + 300;
        self.tries += 1;
        if self.tries > 6 {
            self.refused = true;
            self.phase = Phase::Over;
            return Vec::new();
        }
        let first = if self.habits.data_in_syn && self.tries == 1 {
            let length = 1 + self.random.below(self.data.len().min(400));
            self.content(0, length)
        } else {
            Vec::new()
        };
        let mut segment = self.segment(SYN, -1, &first);
        if self.habits.data_in_syn {
            // An empty cookie, as a client of Fast Open sends.
            segment.options.extend_from_slice(&[34, 2, 1, 1]);
        }
        let mut frames = vec![segment.clone()];
        if self.habits.second_syn && self.tries == 1 {
            let mut other = segment;
            other.seq = other.seq.wrapping_add(self.random.draw() as u32);
            frames.insert(self.random.below(2), other);
        }
        if self.habits.early_data && self.tries == 1 {
            let length = 1 + self.random.below(self.data.len().min(300));
            let payload = self.content(0, length);
            frames.push(self.segment(ACK, 0, &payload));
        }
        frames
    }

    /// The right bytes of a range or, about as often, others.
    fn content(&mut self, start: usize, length: usize) -> Vec<u8> {
        let right = self.data.get(start..start + length).map(<[u8]>::to_vec);
        match right {
            Some(right) if self.random.percent(55) => right,
            // Other bytes at the end only.
            Some(mut right) if self.random.percent(30) => {
                let from = self.random.below(length);
                let other = self.random.letters(length - from);
                right[from..].copy_from_slice(&other);
                right
            }
            _ => self.random.letters(length).to_ascii_uppercase(),
        }
    }

    fn play(&mut self) -> Vec<Segment> {
        if self.tries < 100 {
            // The handshake's last segment, now and then with data, or not at all: data follows anyway.
            self.tries = 100;
            if self.random.percent(70) {
                return vec![self.segment(ACK, 0, &[])];
            }
        }
        if self.steps == 0 {
            self.phase = Phase::Completing;
            self.due = self.now + 20;
            return Vec::new();
        }
        self.steps -= 1;
        self.due = self.now + [0, 0, 1, 2, 5, 15][self.random.below(6)];
        let mut frames = Vec::new();
        for _ in 0..1 + self.random.below(4) {
            frames.extend(self.trick());
        }
        frames
    }

    /// A range of the data: the next one, one nearby, or an earlier one.
    fn range(&mut self) -> (usize, usize) {
        let all = self.data.len();
        let length =
            1 + if self.random.percent(60) { self.random.below(60) } else { self.random.below(1200) };
        let start = match self.random.below(10) {
            0..=3 => self.cursor,
            4..=6 => self.acked + self.random.below(1500),
            7 => self.acked.saturating_sub(self.random.below(100)),
            8 => self.last.map_or(self.cursor, |(start, _)| start),
            _ => self.cursor.saturating_sub(self.random.below(300)),
        };
        let start = start.min(all.saturating_sub(1));
        let end = match self.last {
            Some((_, end)) if self.random.percent(15) && end > start => end,
            _ => start + length,
        };
        // Within a segment of the link.
        (start, end.min(all).min(start + 1300).max(start + 1))
    }

    /// One segment, right or wrong.
    fn trick(&mut self) -> Vec<Segment> {
        let (start, end) = self.range();
        let payload = self.content(start, end - start);
        let mut segment = self.segment(ACK | PSH, start as i64, &payload);
        if self.random.percent(10) {
            segment.ttl = 1 + self.random.below(3) as u8;
        }
        if self.random.percent(5) {
            segment.trailer = self.random.below(40);
        }
        // Whether the receiver takes the bytes for what they seem to be.
        let mut plain = false;
        match self.random.below(26) {
            0 => segment.checksum_error = 1 + self.random.below(1000) as u16,
            1 if self.habits.timestamps => segment.options = self.options(0, 1_000_000),
            // No timestamp where one is due.
            2 if self.habits.timestamps => segment.options.clear(),
            // A signature that nobody asked for.
            3 => {
                segment.options.extend_from_slice(&[1, 1, 19, 18]);
                segment.options.resize(segment.options.len() + 16, 7);
            }
            4 if self.habits.urgent => {
                segment.flags |= URG;
                segment.urgent = match self.random.below(4) {
                    0 => payload.len() as u16,
                    1 => 0,
                    2 => 1 + self.random.below(payload.len()) as u16,
                    _ => (payload.len() + self.random.below(300)) as u16,
                };
            }
            // A pointer without the flag.
            5 => segment.urgent = 1 + self.random.below(payload.len()) as u16,
            6 => segment.flags &= !ACK,
            7 => segment.flags |= SYN,
            8 => segment.ack = segment.ack.wrapping_add(1 + self.random.below(1 << 20) as u32),
            9 => segment.ack = segment.ack.wrapping_sub(1 + self.random.below(1 << 20) as u32),
            10 => segment.to_server = false,
            11 => {
                // Keep-alive with a byte.
                let byte = self.random.letters(1);
                let ttl = segment.ttl;
                segment = self.segment(ACK, self.acked as i64 - 1, &byte);
                segment.ttl = ttl;
            }
            12 => {
                // Far outside of the window.
                let far = [100_000, 1_000_000, 1 << 30, (1 << 31) - 1, (1 << 31) + 5, u32::MAX - 70_000];
                segment.seq = segment.seq.wrapping_add(far[self.random.below(far.len())]);
            }
            13 => {
                // From before the window into it.
                let from = self.acked.saturating_sub(self.random.below(200));
                let length = (self.acked - from + 1 + self.random.below(200)).min(self.data.len() - from);
                if length > 0 {
                    let payload = self.content(from, length);
                    segment = self.segment(ACK, from as i64, &payload);
                }
            }
            14 if self.habits.bad_resets => {
                segment.flags = if self.random.percent(50) { RST } else { RST | ACK };
                let ahead = 1 + self.random.below(3000) as u32;
                let place = self.isn.wrapping_add(1).wrapping_add(self.acked as u32);
                segment.seq = match self.random.below(4) {
                    0 => place.wrapping_add(ahead),
                    1 => place.wrapping_sub(ahead),
                    2 => {
                        segment.checksum_error = 77;
                        place
                    }
                    _ => place.wrapping_add(1 << 30),
                };
                if self.random.percent(70) {
                    segment.payload.clear();
                }
            }
            15 if self.habits.early_fin => segment.flags |= FIN,
            // NOPs, or source routing that hosts refuse.
            16 if self.random.percent(50) => segment.ip_options = vec![1, 1, 1, 1],
            16 => segment.ip_options = vec![0x83, 7, 4, 10, 66, 0, 9, 0],
            17 => segment.options.extend_from_slice(&[253, 4, 1, 2]),
            18 => segment.flags |= 0xc0,
            19 => {
                segment.flags = 0;
                segment.ack = 0;
            }
            20 if self.habits.bad_resets => {
                segment.flags = SYN;
                segment.seq = self.isn.wrapping_add(self.random.below(100_000) as u32);
                segment.payload.clear();
            }
            _ => plain = true,
        }
        if plain {
            if start == self.cursor {
                self.cursor = end;
            }
            self.last = Some((start, end));
        }
        vec![segment]
    }

    /// Everything that is not acknowledged yet, as it should be.
    fn finish_data(&mut self) -> Vec<Segment> {
        if self.acked >= self.data.len() {
            self.phase = Phase::Closing;
            self.tries = 0;
            return self.close();
        }
        self.due = self.now + 15;
        let end = self.data.len().min(self.acked + 1200);
        let payload = self.data[self.acked..end].to_vec();
        vec![self.segment(ACK | PSH, self.acked as i64, &payload)]
    }

    fn close(&mut self) -> Vec<Segment> {
        self.due = self.now + 50;
        let all = self.data.len();
        if self.fin_acked {
            self.complete = true;
            self.phase = Phase::Over;
            return vec![self.segment(ACK, all as i64 + 1, &[])];
        }
        if self.habits.reset_at_the_end {
            self.phase = Phase::Over;
            return vec![self.segment(RST | ACK, all as i64, &[])];
        }
        vec![self.segment(FIN | ACK, all as i64, &[])]
    }
}
