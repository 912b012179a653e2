// SPDX-License-Identifier: Apache-2.0
//! A TCP client of the harness as data: its style, the state of its connection, and the segments of its
//! number space. Its behaviour is in [`crate::tcp`].

use crate::strategy::Strategy;
use bartizan_testkit::packet::{ACK, Ip, PSH, SYN, Segment};
use bartizan_testkit::random::Random;

/// The way in which a client sends its data.
#[derive(Clone, Debug)]
pub enum Style {
    /// In order, cut at these offsets.
    Pieces {
        /// Ends of the pieces.
        ends: Vec<usize>,
        /// Milliseconds between pieces; `None`: each piece waits for the acknowledgment of the one before.
        gap: Option<u64>,
    },
    /// This many steps of [`crate::rough`]; then in order.
    Rough(usize),
    /// The first segment as fragments with decoys, once.
    Fragments,
    /// In order, plus forged packets of the server: see [`crate::forged`].
    Forged,
    /// These steps as soon as the connection is established; then the missing data in order.
    Script(Vec<Step>),
}

/// One packet of a script.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// Milliseconds after the step before.
    pub wait: u64,
    /// Offset of its payload in the data.
    pub offset: i64,
    /// Flags.
    pub flags: u16,
    /// Urgent pointer.
    pub urgptr: u16,
    /// Options that replace those of the connection.
    pub options: Option<Vec<(u8, Vec<u8>)>>,
    /// Age of its timestamp in milliseconds; ignored with `options`.
    pub age: u32,
    /// Payload.
    pub load: Vec<u8>,
    /// An ICMP error sent instead, whose ports and numbers are known only now: see [`crate::icmp`].
    pub icmp: Option<crate::icmp::Error>,
}

/// An additional segment with the SYN.
#[derive(Clone, Debug)]
pub struct Opening {
    /// Distance from the true sequence number.
    pub far: u32,
    /// Flags.
    pub flags: u16,
    /// Payload.
    pub load: Vec<u8>,
    /// Sent before the true SYN.
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
pub(crate) const PATIENCE: u64 = 1500;
/// One connection.
#[derive(Clone, Debug)]
pub struct Client {
    /// Header of its packets.
    pub ip: Ip,
    /// Source and destination port.
    pub ports: (u16, u16),
    /// The data that the receiver is finally sent.
    pub truth: Vec<u8>,
    /// Decoy data of the same length as `truth`.
    pub lie: Vec<u8>,
    /// The way in which the data is sent.
    pub style: Style,
    /// Additional segments with the SYN.
    pub opening: Vec<Opening>,
    /// Strategy that the client's packets go through.
    pub strategy: Option<Strategy>,
    /// TCP timestamps.
    pub timestamps: bool,
    /// Milliseconds after which the connection is given up.
    pub patience: u64,
    /// The connection ends without FIN or RST.
    pub silent: bool,
    /// Data with the first SYN.
    pub syn_load: Vec<u8>,
    /// A second connection that follows over the same ports.
    pub next: Option<Box<Client>>,
    /// Raw bytes after the options of the SYN, and of data segments.
    pub raw_options: [Vec<u8>; 2],
    /// Number of answer bytes received.
    pub heard: usize,
    /// All data and the FIN were acknowledged.
    pub complete: bool,
    /// Description of the fragments.
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

/// Frames to send, each with its time in milliseconds.
pub type Out = Vec<(u64, Vec<u8>)>;

impl Client {
    /// Creates a connection that sends `truth` in one piece.
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

    /// Whether the connection and its successor are over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over && self.next.is_none()
    }

    /// Time of its next action, in milliseconds.
    #[must_use]
    pub fn due(&self) -> u64 {
        if self.phase == Phase::Over {
            return self.now + 2;
        }
        self.due.min(self.begun + self.patience)
    }

    /// A segment of the data's number space with these flags, offset and payload.
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

    /// The current value of its timestamps.
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
