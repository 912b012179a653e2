// SPDX-License-Identifier: Apache-2.0
//! A model of a TCP host that accepts and refuses segments as Linux does, from LISTEN and SYN-SENT to
//! ESTABLISHED: tests compare the bytes that its application reads with the inspected ones.
//!
//! Sources: RFC 9293 section 3.10.7, RFC 5961, RFC 7323 section 5, RFC 7413; Linux's differences (requests
//! instead of sockets in SYN-RECEIVED, SYN cookies whose check tolerates a number that is a little off) by
//! its behaviour.

use std::collections::BTreeMap;

pub(super) const WINDOW: u32 = 8192;

/// A segment that owns its data.
#[derive(Clone, Debug, Default)]
pub(super) struct Seg {
    pub(super) flags: u8,
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) data: Vec<u8>,
    pub(super) ts: Option<(u32, u32)>,
    pub(super) fast_open: bool,
    pub(super) wscale: Option<u8>,
    /// Whether it is lost after the observer: too few hops, or bad luck.
    pub(super) dies: bool,
}

pub(super) const FIN: u8 = 1;
pub(super) const SYN: u8 = 2;
pub(super) const RST: u8 = 4;
pub(super) const ACK: u8 = 16;

impl Seg {
    pub(super) fn new(flags: u8, seq: u32, ack: u32, data: &[u8]) -> Self {
        Seg { flags, seq, ack, data: data.to_vec(), ..Seg::default() }
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag == flag
    }

    fn end(&self) -> u32 {
        let own = u32::from(self.has(SYN)) + u32::from(self.has(FIN));
        self.seq.wrapping_add(self.data.len() as u32).wrapping_add(own)
    }
}

fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ModelHostState {
    Listen,
    SynSent,
    SynRecv,
    Established,
    Closed,
}

/// A model host with one connection.
#[derive(Clone, Debug)]
pub(super) struct Host {
    pub(super) at: ModelHostState,
    /// Answers SYNs with cookies and keeps no state, even of a connection that is over.
    pub(super) cookies: bool,
    /// The secret of its cookies.
    secret: u32,
    /// Accepts data of a SYN at once, without a Fast Open cookie; as a client: accepts data of a SYN/ACK.
    pub(super) fast: bool,
    /// Number of bytes of a SYN/ACK's data that such a client accepts.
    pub(super) takes: usize,
    /// Number of data bytes in its SYN/ACK.
    pub(super) eager: usize,
    /// Uses timestamps when the other side does.
    pub(super) stamps: bool,
    /// A client that answers a SYN/ACK with a RST whose echo is not a timestamp of its SYNs.
    pub(super) checks_echo: bool,
    pub(super) iss: u32,
    pub(super) snd_una: u32,
    pub(super) snd_nxt: u32,
    pub(super) irs: u32,
    pub(super) rcv_nxt: u32,
    /// The data to send; its first byte has the number after the SYN.
    pub(super) out: Vec<u8>,
    /// The bytes that its application has read of the current connection.
    pub(super) read: Vec<u8>,
    pub(super) other_closed: bool,
    /// Bytes that its application has read of all connections.
    pub(super) taken: usize,
    waiting: BTreeMap<u32, Vec<u8>>,
    fin_at: Option<u32>,
    recent: Option<u32>,
    clock: u32,
    /// Time of its first SYN.
    opened: Option<u32>,
    due: u32,
}

impl Host {
    pub(super) fn new(at: ModelHostState, iss: u32, out: &[u8]) -> Self {
        Host {
            at,
            cookies: false,
            secret: iss,
            fast: false,
            takes: usize::MAX,
            eager: 0,
            stamps: false,
            checks_echo: false,
            iss,
            snd_una: iss,
            snd_nxt: iss,
            irs: 0,
            rcv_nxt: 0,
            out: out.to_vec(),
            read: Vec::new(),
            other_closed: false,
            taken: 0,
            waiting: BTreeMap::new(),
            fin_at: None,
            recent: None,
            clock: 1000,
            opened: None,
            due: 0,
        }
    }

    /// A client before it opens a connection.
    pub(super) fn client(iss: u32, out: &[u8]) -> Self {
        Host { snd_nxt: iss.wrapping_add(1), ..Host::new(ModelHostState::SynSent, iss, out) }
    }

    fn make(&self, flags: u8, seq: u32, data: &[u8]) -> Seg {
        let ack = if flags & ACK != 0 { self.rcv_nxt } else { 0 };
        let ts = self.stamps.then(|| (self.clock, self.recent.unwrap_or(0)));
        Seg { ts, ..Seg::new(flags, seq, ack, data) }
    }

    fn acknowledge(&self) -> Vec<Seg> {
        vec![self.make(ACK, self.snd_nxt, b"")]
    }

    fn eager(&self) -> usize {
        self.eager.min(self.out.len())
    }

    fn syn_ack(&self) -> Seg {
        Seg { wscale: Some(7), ..self.make(SYN | ACK, self.iss, &self.out[..self.eager()]) }
    }

    fn reset(to: &Seg) -> Vec<Seg> {
        if to.has(ACK) {
            vec![Seg::new(RST, to.ack, 0, b"")]
        } else {
            vec![Seg::new(RST | ACK, 0, to.end(), b"")]
        }
    }

    fn in_window(&self, s: &Seg) -> bool {
        let edge = self.rcv_nxt.wrapping_add(WINDOW);
        s.seq == self.rcv_nxt || before(self.rcv_nxt, s.end()) && before(s.seq, edge)
    }

    fn is_stale(&self, s: &Seg) -> bool {
        let both = self.recent.zip(s.ts).filter(|_| self.stamps);
        both.is_some_and(|(recent, (ts, _))| before(ts, recent))
    }

    /// Handles a segment; returns the answers.
    pub(super) fn take(&mut self, s: &Seg) -> Vec<Seg> {
        match self.at {
            ModelHostState::Closed if s.has(RST) => Vec::new(),
            ModelHostState::Closed => Self::reset(s),
            ModelHostState::Listen => self.listen(s),
            ModelHostState::SynSent => self.syn_sent(s),
            ModelHostState::SynRecv => self.syn_recv(s),
            ModelHostState::Established => self.established(s),
        }
    }

    /// The number of a Linux cookie: it contains the client's number and an index below 4.
    fn cookie(&self, client: u32) -> u32 {
        self.secret.wrapping_add(client).wrapping_add(2)
    }

    fn begin(&mut self, s: &Seg) {
        self.irs = s.seq;
        self.rcv_nxt = s.seq.wrapping_add(1);
        self.read.clear();
        self.waiting.clear();
        (self.fin_at, self.other_closed) = (None, false);
        if let Some((ts, _)) = s.ts.filter(|_| self.stamps) {
            self.recent = Some(ts);
        } else {
            self.stamps = false;
        }
    }

    fn listen(&mut self, s: &Seg) -> Vec<Seg> {
        if s.has(RST) {
            return Vec::new();
        }
        if s.has(ACK) {
            let index =
                s.ack.wrapping_sub(1).wrapping_sub(self.cookie(s.seq.wrapping_sub(1))).wrapping_add(2);
            if self.cookies && !s.has(SYN) && index < 4 {
                self.begin(&Seg { seq: s.seq.wrapping_sub(1), ..s.clone() });
                (self.iss, self.snd_una, self.snd_nxt) = (s.ack.wrapping_sub(1), s.ack, s.ack);
                self.at = ModelHostState::Established;
                return self.established(s);
            }
            return Self::reset(s);
        }
        if !s.has(SYN) || s.has(FIN) {
            return Vec::new();
        }
        if self.cookies {
            let cookie = self.cookie(s.seq);
            return vec![Seg::new(SYN | ACK, cookie, s.seq.wrapping_add(1), b"")];
        }
        self.begin(s);
        self.iss = self.iss.wrapping_add(64_000);
        (self.snd_una, self.snd_nxt) = (self.iss, self.iss.wrapping_add(1 + self.eager() as u32));
        self.at = ModelHostState::SynRecv;
        if self.fast && !s.data.is_empty() {
            self.put(s.seq.wrapping_add(1), &s.data);
        }
        vec![self.syn_ack()]
    }

    fn syn_sent(&mut self, s: &Seg) -> Vec<Seg> {
        if s.has(ACK) && s.ack != self.iss.wrapping_add(1) {
            return if s.has(RST) { Vec::new() } else { Self::reset(s) };
        }
        if s.has(RST) {
            if s.has(ACK) {
                self.at = ModelHostState::Closed;
            }
            return Vec::new();
        }
        if !s.has(SYN) {
            return Vec::new();
        }
        let mine = |echo: u32| self.opened.is_none_or(|at| !before(echo, at) && !before(self.clock, echo));
        let foreign = s.ts.is_some_and(|(_, echo)| echo != 0 && !mine(echo));
        if s.has(ACK) && self.stamps && self.checks_echo && foreign {
            return Self::reset(s);
        }
        self.begin(s);
        if !s.has(ACK) {
            self.at = ModelHostState::SynRecv;
            return vec![self.syn_ack()];
        }
        (self.at, self.snd_una) = (ModelHostState::Established, s.ack);
        if self.fast {
            self.put(s.seq.wrapping_add(1), &s.data[..s.data.len().min(self.takes)]);
        }
        self.acknowledge()
    }

    fn syn_recv(&mut self, s: &Seg) -> Vec<Seg> {
        let syn = s.flags & (SYN | ACK | RST | FIN) == SYN;
        if syn && s.seq == self.irs && !self.is_stale(s) {
            return vec![self.syn_ack()];
        }
        if self.is_stale(s) || !self.in_window(s) && s.seq != self.irs {
            return if s.has(RST) { Vec::new() } else { self.acknowledge() };
        }
        if s.has(RST) || s.has(SYN) && s.seq != self.irs {
            self.at = ModelHostState::Listen;
            return if s.has(RST) { Vec::new() } else { Self::reset(s) };
        }
        if !s.has(ACK) {
            return Vec::new();
        }
        if before(s.ack, self.iss.wrapping_add(1)) || before(self.snd_nxt, s.ack) {
            return Self::reset(s);
        }
        (self.at, self.snd_una) = (ModelHostState::Established, s.ack);
        let rest = Seg {
            flags: s.flags & !SYN,
            seq: if s.has(SYN) { s.seq.wrapping_add(1) } else { s.seq },
            ..s.clone()
        };
        self.established(&rest)
    }

    fn established(&mut self, s: &Seg) -> Vec<Seg> {
        if self.is_stale(s) && !s.has(RST) {
            return self.acknowledge();
        }
        let acceptable = !before(s.end(), self.rcv_nxt) && !before(self.rcv_nxt.wrapping_add(WINDOW), s.seq);
        if !acceptable {
            return if s.has(RST) { Vec::new() } else { self.acknowledge() };
        }
        if s.has(RST) {
            if s.seq == self.rcv_nxt {
                self.at = if self.cookies { ModelHostState::Listen } else { ModelHostState::Closed };
                return Vec::new();
            }
            return self.acknowledge();
        }
        if s.has(SYN) {
            return self.acknowledge();
        }
        if !s.has(ACK) {
            return Vec::new();
        }
        if before(self.snd_nxt, s.ack) || before(s.ack, self.snd_una.wrapping_sub(WINDOW)) {
            return self.acknowledge();
        }
        if before(self.snd_una, s.ack) {
            self.snd_una = s.ack;
            self.due = 0;
        }
        if let Some((ts, _)) = s.ts.filter(|_| self.stamps && !before(self.rcv_nxt, s.seq)) {
            self.recent = Some(ts);
        }
        self.put(s.seq, &s.data);
        if s.has(FIN) {
            self.fin_at = Some(s.end().wrapping_sub(1));
        }
        if self.fin_at == Some(self.rcv_nxt) && !self.other_closed {
            self.other_closed = true;
            self.rcv_nxt = self.rcv_nxt.wrapping_add(1);
        }
        if s.data.is_empty() && !s.has(FIN) { Vec::new() } else { self.acknowledge() }
    }

    /// Puts data in its place and reads the available bytes.
    fn put(&mut self, seq: u32, data: &[u8]) {
        if self.other_closed {
            return;
        }
        for (n, byte) in data.iter().enumerate() {
            let at = seq.wrapping_add(n as u32);
            if !before(at, self.rcv_nxt) && before(at, self.rcv_nxt.wrapping_add(WINDOW)) {
                self.waiting.entry(at).or_insert_with(|| vec![*byte]);
            }
        }
        while let Some(byte) = self.waiting.remove(&self.rcv_nxt) {
            self.read.extend(byte);
            self.taken += 1;
            self.rcv_nxt = self.rcv_nxt.wrapping_add(1);
        }
    }

    /// Sends its FIN and keeps no state of the connection: the other side has acknowledged the FIN, or has
    /// not for too long.
    pub(super) fn close(&mut self) -> Seg {
        let fin = self.make(FIN | ACK, self.snd_nxt, b"");
        self.at = ModelHostState::Listen;
        fin
    }

    /// Whether all its data and its FIN are acknowledged.
    pub(super) fn is_done(&self) -> bool {
        self.at == ModelHostState::Established
            && self.snd_una == self.iss.wrapping_add(2).wrapping_add(self.out.len() as u32)
    }

    /// The segments that the host sends at a tick: its SYN, data and FIN, repeated until they are
    /// acknowledged. `piece`: data bytes per segment.
    pub(super) fn speak(&mut self, piece: usize) -> Vec<Seg> {
        self.clock = self.clock.wrapping_add(10);
        if self.due > 0 {
            self.due -= 1;
            return Vec::new();
        }
        match self.at {
            ModelHostState::SynSent => {
                self.due = 6;
                self.opened.get_or_insert(self.clock);
                vec![Seg { wscale: Some(7), ..self.make(SYN, self.iss, b"") }]
            }
            ModelHostState::SynRecv => {
                self.due = 6;
                vec![self.syn_ack()]
            }
            ModelHostState::Established if !self.is_done() => {
                self.due = 4;
                let first = self.iss.wrapping_add(1);
                let from = (self.snd_una.wrapping_sub(first) as usize).min(self.out.len());
                let mut segments = Vec::new();
                let mut at = from;
                for part in self.out[from..].chunks(piece.max(1)).take(8) {
                    segments.push(self.make(ACK, first.wrapping_add(at as u32), part));
                    at += part.len();
                }
                if at == self.out.len() {
                    match segments.last_mut() {
                        Some(last) if piece.is_multiple_of(2) => last.flags |= FIN,
                        _ => segments.push(self.make(ACK | FIN, first.wrapping_add(at as u32), b"")),
                    }
                    at += 1;
                }
                let end = first.wrapping_add(at as u32);
                if before(self.snd_nxt, end) {
                    self.snd_nxt = end;
                }
                segments
            }
            _ => Vec::new(),
        }
    }
}
