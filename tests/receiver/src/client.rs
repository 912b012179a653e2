// SPDX-License-Identifier: Apache-2.0
//! A TCP client of our own as data: how it sends, where its connection stands, and the segments of its number
//! space. What it does is in [`crate::tcp`].

use crate::strategy::Strategy;
use bartizan_testkit::packet::{ACK, Ip, PSH, SYN, Segment};
use bartizan_testkit::random::Random;

/// How the data is sent.
#[derive(Clone, Debug)]
pub enum Style {
    /// In order, cut at these places.
    Pieces {
        /// Ends of pieces.
        ends: Vec<usize>,
        /// The next is sent when the one before is acknowledged; else after so many milliseconds.
        gap: Option<u64>,
    },
    /// As [`crate::rough`] has it, in so many steps; then in order.
    Rough(usize),
    /// The first segment as fragments with decoys, once.
    Fragments,
    /// Beside what is sent, packets of the server that the client has made itself: see [`crate::forged`].
    Forged,
    /// These, as soon as the connection stands; then in order what is missing.
    Script(Vec<Step>),
}

/// One packet of a script.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// Milliseconds behind the one before.
    pub wait: u64,
    /// Where its payload stands in the data.
    pub offset: i64,
    /// Flags.
    pub flags: u16,
    /// Urgent pointer.
    pub urgptr: u16,
    /// Options in the place of those of the connection.
    pub options: Option<Vec<(u8, Vec<u8>)>>,
    /// Milliseconds that the clock of its timestamp is behind; ignored with `options`.
    pub age: u32,
    /// Payload.
    pub load: Vec<u8>,
    /// A frame in its place, which knows the ports and numbers only now: see [`crate::icmp`].
    pub icmp: Option<crate::icmp::Error>,
}

/// More segments with the SYN.
#[derive(Clone, Debug)]
pub struct Opening {
    /// Distance from the true number.
    pub far: u32,
    /// Flags.
    pub flags: u16,
    /// Payload.
    pub load: Vec<u8>,
    /// Before the true one.
    pub first: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Opening,
    Sending,
    Closing,
    Over,
}

/// Milliseconds after which a connection is given up.
const PATIENCE: u64 = 1500;
/// One connection.
#[derive(Clone, Debug)]
pub struct Client {
    /// Header of its packets.
    pub ip: Ip,
    /// From, to.
    pub ports: (u16, u16),
    /// What is sent in the end.
    pub truth: Vec<u8>,
    /// What is sent beside it.
    pub lie: Vec<u8>,
    /// How.
    pub style: Style,
    /// With the SYN.
    pub opening: Vec<Opening>,
    /// What its packets go through.
    pub strategy: Option<Strategy>,
    /// TCP timestamps.
    pub timestamps: bool,
    /// Milliseconds after which it is given up.
    pub patience: u64,
    /// It ends without a word.
    pub silent: bool,
    /// Data with the first SYN.
    pub syn_load: Vec<u8>,
    /// The connection that follows over the same ports.
    pub next: Option<Box<Client>>,
    /// Bytes behind the options of the SYN, and of data.
    pub raw_options: [Vec<u8>; 2],
    /// Bytes of answers.
    pub heard: usize,
    /// All data and the FIN were acknowledged.
    pub complete: bool,
    /// What the fragments were like.
    pub note: String,
    pub(crate) random: Random,
    pub(crate) isn: u32,
    pub(crate) acked: usize,
    pub(crate) now: u64,
    pub(crate) peer: u32,
    pub(crate) echo: u32,
    pub(crate) phase: Phase,
    pub(crate) begun: u64,
    pub(crate) due: u64,
    pub(crate) tries: u32,
    pub(crate) steps: usize,
    pub(crate) sent: usize,
    pub(crate) peer_closed: bool,
}

/// What leaves: when, and the frame.
pub type Out = Vec<(u64, Vec<u8>)>;

impl Client {
    /// A connection that sends `truth` in one piece.
    #[must_use]
    pub fn new(ip: Ip, ports: (u16, u16), truth: Vec<u8>, lie: Vec<u8>, mut random: Random) -> Self {
        let isn =
            if random.percent(25) { u32::MAX - random.below(3000) as u32 } else { random.draw() as u32 };
        Client {
            ip,
            ports,
            style: Style::Pieces { ends: vec![truth.len()], gap: None },
            truth,
            lie,
            opening: Vec::new(),
            strategy: None,
            timestamps: false,
            patience: PATIENCE,
            silent: false,
            syn_load: Vec::new(),
            next: None,
            raw_options: [Vec::new(), Vec::new()],
            heard: 0,
            complete: false,
            note: String::new(),
            random,
            isn,
            acked: 0,
            now: 0,
            peer: 0,
            echo: 0,
            phase: Phase::Opening,
            begun: 0,
            due: 0,
            tries: 0,
            steps: 0,
            sent: 0,
            peer_closed: false,
        }
    }

    /// Nothing more will come.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over && self.next.is_none()
    }

    /// When it wants to speak again.
    #[must_use]
    pub fn due(&self) -> u64 {
        if self.phase == Phase::Over {
            return self.now + 2;
        }
        self.due.min(self.begun + self.patience)
    }

    /// A segment of the data's number space: its begin, and what it carries.
    pub(crate) fn segment(&self, flags: u16, offset: i64, load: &[u8]) -> Segment {
        Segment {
            sport: self.ports.0,
            dport: self.ports.1,
            seq: self.isn.wrapping_add(1).wrapping_add(offset as u32),
            ack: if flags & ACK != 0 { self.peer } else { 0 },
            flags,
            window: 29_200,
            options: self.options(flags, 0),
            raw_options: match (flags & SYN != 0, flags & PSH != 0) {
                (true, _) => self.raw_options[0].clone(),
                (false, true) => self.raw_options[1].clone(),
                _ => Vec::new(),
            },
            load: load.to_vec(),
            ..Segment::default()
        }
    }

    /// The time of its timestamps.
    pub(crate) fn now_stamp(&self) -> u32 {
        1_000_000u32.wrapping_add(self.now as u32)
    }

    /// TCP options; the timestamp is `age` units old.
    pub(crate) fn options(&self, flags: u16, age: u32) -> Vec<(u8, Vec<u8>)> {
        let mut options = Vec::new();
        if flags & SYN != 0 {
            options.push((2, vec![5, 180]));
        }
        if self.timestamps {
            let value = self.now_stamp().wrapping_sub(age);
            options.extend([(1, vec![]), (1, vec![])]);
            options.push((8, [value.to_be_bytes(), self.echo.to_be_bytes()].concat()));
        }
        options
    }
}
