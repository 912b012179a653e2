// SPDX-License-Identifier: Apache-2.0
//! Models of receivers that reassemble fragments: the fragments that Linux discards, accepts and orders, and
//! the differences of others.
//!
//! Sources: RFC 791, 815, 2460, 3168, 5722, 6946, 7112, 8200; Linux's behaviour is known from its
//! documentation and from experiments (fragments to sockets in a network namespace). The results are compared
//! with the inspected datagrams; `crates/dataplane/tests` uses this as well.
//!
//! A model is one host with one Ethernet address, without tunnels.

use std::collections::HashMap;

/// The differences between receivers.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// The treatment of bytes that it has already.
    pub overlap: Overlap,
    /// Accepts options and extension headers for which Linux discards packets.
    pub tolerant: bool,
    /// Ignores the checksum of IPv4's header.
    pub ignores_checksum: bool,
    /// Discards packets with any option or extension header before the fragment header.
    pub no_options: bool,
    /// Accepts frames to other hardware addresses.
    pub promiscuous: bool,
    /// Accepts frames with tags, also those of VLANs.
    pub through_tags: bool,
    /// IPv4: the protocol is no part of a datagram's identity.
    pub ignores_protocol: bool,
    /// The least hop limit with which a packet reaches it.
    pub hops: u8,
    /// The reassembly timeout in seconds.
    pub timeout: u64,
    /// The largest frame that reaches it.
    pub mtu: usize,
}

/// See [`Habits::overlap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    /// Linux: a fragment within bytes that are present is discarded, any other overlap ends the datagram.
    Linux,
    First,
    Last,
}

pub const LINUX: Habits = Habits {
    overlap: Overlap::Linux,
    tolerant: false,
    ignores_checksum: false,
    no_options: false,
    promiscuous: false,
    through_tags: false,
    ignores_protocol: false,
    hops: 1,
    timeout: 30,
    mtu: 65_535,
};

/// The receivers that a sequence of frames is tested on.
pub const ALL: &[(&str, Habits)] = &[
    ("linux", LINUX),
    ("first wins", Habits { overlap: Overlap::First, timeout: 60, ..LINUX }),
    ("last wins", Habits { overlap: Overlap::Last, timeout: 60, ..LINUX }),
    (
        "tolerant",
        Habits { overlap: Overlap::First, tolerant: true, ignores_checksum: true, timeout: 60, ..LINUX },
    ),
    ("without options", Habits { no_options: true, ..LINUX }),
    ("behind hops", Habits { hops: 10, ..LINUX }),
    ("promiscuous", Habits { promiscuous: true, through_tags: true, overlap: Overlap::Last, ..LINUX }),
    ("without protocol", Habits { ignores_protocol: true, ..LINUX }),
    ("behind a smaller link", Habits { mtu: 60, ..LINUX }),
    ("patient", Habits { timeout: 120, tolerant: true, overlap: Overlap::Last, ..LINUX }),
];

/// The datagram that a receiver delivers to its transport layer: addresses, protocol, bytes after all IP
/// headers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Datagram {
    pub v6: bool,
    pub addresses: Vec<u8>,
    pub protocol: u8,
    pub bytes: Vec<u8>,
}

/// An incomplete datagram.
#[derive(Default)]
struct Queue {
    begun: u64,
    /// The bytes, each once received.
    bytes: Vec<Option<u8>>,
    /// Its end, once the last fragment came.
    end: Option<usize>,
    protocol: u8,
    /// The ECN marks seen, a bit each.
    ecn: u8,
}

/// One receiver.
pub struct Receiver {
    habits: Habits,
    mac: [u8; 6],
    queues: HashMap<(Vec<u8>, u32, u8), Queue>,
    /// For experiments: frames lost on the way, as bits used up from the lowest.
    pub losses: u64,
}

/// A packet or fragment, by its IP header.
struct Piece<'a> {
    v6: bool,
    addresses: &'a [u8],
    protocol: u8,
    ecn: u8,
    id: u32,
    offset: usize,
    more: bool,
    data: &'a [u8],
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

impl Receiver {
    #[must_use]
    pub fn new(habits: Habits, mac: [u8; 6]) -> Self {
        Receiver { habits, mac, queues: HashMap::new(), losses: 0 }
    }

    /// Handles a frame at a time in seconds; returns the datagram that it completes.
    pub fn take(&mut self, frame: &[u8], now: u64) -> Option<Datagram> {
        let lost = self.losses & 1 == 1;
        self.losses >>= 1;
        if lost || frame.len() > self.habits.mtu.saturating_add(14) || frame.len() < 14 {
            return None;
        }
        if frame[..6] != self.mac && frame[0] & 1 == 0 && !self.habits.promiscuous {
            return None;
        }
        let mut at = 12;
        while frame.len() >= at + 6 && word(frame, at) == 0x8100 {
            // Linux treats a priority tag as none.
            if word(frame, at + 2) & 0xfff != 0 && !self.habits.through_tags {
                return None;
            }
            at += 4;
        }
        let packet = &frame[at + 2..];
        let piece = match word(frame, at) {
            0x0800 => self.ipv4(packet)?,
            0x86dd => self.ipv6(packet)?,
            _ => return None,
        };
        if piece.offset == 0 && !piece.more {
            return Some(Datagram {
                v6: piece.v6,
                addresses: piece.addresses.to_vec(),
                protocol: piece.protocol,
                bytes: piece.data.to_vec(),
            });
        }
        self.fragment(&piece, now)
    }

    fn ipv4<'p>(&self, p: &'p [u8]) -> Option<Piece<'p>> {
        if p.len() < 20 || p[0] >> 4 != 4 {
            return None;
        }
        let (header, total) = (usize::from(p[0] & 15) * 4, usize::from(word(p, 2)));
        if header < 20 || total < header || total > p.len() || p[8] < self.habits.hops {
            return None;
        }
        let sum = p[..header].chunks(2).map(|w| u32::from(word(w, 0))).sum::<u32>();
        let folded = (sum & 0xffff) + (sum >> 16);
        if (folded & 0xffff) + (folded >> 16) != 0xffff && !self.habits.ignores_checksum {
            return None;
        }
        let options = &p[20..header];
        if !options.is_empty() && self.habits.no_options
            || !self.habits.tolerant && !options_are_good(options)
        {
            return None;
        }
        let field = word(p, 6);
        Some(Piece {
            v6: false,
            addresses: &p[12..20],
            protocol: p[9],
            ecn: p[1] & 3,
            id: u32::from(word(p, 4)),
            offset: usize::from(field & 0x1fff) * 8,
            more: field & 0x2000 != 0,
            data: &p[header..total],
        })
    }

    fn ipv6<'p>(&self, p: &'p [u8]) -> Option<Piece<'p>> {
        if p.len() < 40 || p[0] >> 4 != 6 || p[7] < self.habits.hops {
            return None;
        }
        let mut rest = p[40..].get(..usize::from(word(p, 4)))?;
        let mut next = p[6];
        let mut piece = Piece {
            v6: true,
            addresses: &p[8..40],
            protocol: 0,
            ecn: p[1] >> 4 & 3,
            id: 0,
            offset: 0,
            more: false,
            data: &[],
        };
        let mut fragmented = false;
        let mut first = true;
        loop {
            match next {
                0 | 43 | 60 => {
                    if self.habits.no_options {
                        return None;
                    }
                    let length = (usize::from(*rest.get(1)?) + 1) * 8;
                    let header = rest.get(..length)?;
                    if !self.habits.tolerant {
                        let good = match next {
                            0 => first && options6_are_good(&header[2..]),
                            43 => header[3] == 0,
                            _ => options6_are_good(&header[2..]),
                        };
                        if !good {
                            return None;
                        }
                    }
                    (next, rest) = (header[0], &rest[length..]);
                }
                44 => {
                    let header = rest.get(..8)?;
                    // Linux accepts one fragment header.
                    if fragmented && !self.habits.tolerant {
                        return None;
                    }
                    fragmented = true;
                    let field = word(header, 2);
                    piece.id = u32::from(word(header, 4)) << 16 | u32::from(word(header, 6));
                    (piece.offset, piece.more) = (usize::from(field & 0xfff8), field & 1 == 1);
                    (next, rest) = (header[0], &rest[8..]);
                    if piece.offset != 0 || piece.more {
                        let holds = rest.len() >= if matches!(next, 17 | 50 | 58) { 8 } else { 1 };
                        if piece.offset == 0 && !holds && !self.habits.tolerant {
                            return None;
                        }
                        break;
                    }
                }
                _ => break,
            }
            first = false;
        }
        piece.protocol = next;
        piece.data = rest;
        Some(piece)
    }

    fn fragment(&mut self, piece: &Piece<'_>, now: u64) -> Option<Datagram> {
        let by_protocol = !piece.v6 && !self.habits.ignores_protocol;
        let key = (piece.addresses.to_vec(), piece.id, if by_protocol { piece.protocol } else { 0 });
        let linux = self.habits.overlap == Overlap::Linux;
        let mut data = piece.data;
        if piece.more && !data.len().is_multiple_of(8) {
            // Linux trims IPv4 fragments, and discards IPv6 ones.
            if piece.v6 {
                return None;
            }
            data = &data[..data.len() / 8 * 8];
        }
        let (start, end) = (piece.offset, piece.offset + data.len());
        if end > 65_535 {
            return None;
        }
        let timeout = self.habits.timeout;
        if self.queues.get(&key).is_some_and(|queue| queue.begun + timeout <= now) {
            self.queues.remove(&key);
        }
        let queue =
            self.queues.entry(key.clone()).or_insert_with(|| Queue { begun: now, ..Queue::default() });
        let held = queue.bytes.len();
        let contradicts = if piece.more {
            queue.end.is_some_and(|known| end > known)
        } else {
            end < held || queue.end.is_some_and(|known| end != known)
        };
        if contradicts || data.is_empty() {
            if linux {
                self.queues.remove(&key);
            }
            return None;
        }
        let span = start..end.min(held);
        let present = span.clone().filter(|at| queue.bytes[*at].is_some()).count();
        if linux && present > 0 {
            if present != data.len() {
                self.queues.remove(&key);
            }
            return None;
        }
        queue.bytes.resize(held.max(end), None);
        for (place, byte) in queue.bytes[start..end].iter_mut().zip(data) {
            if place.is_none() || self.habits.overlap == Overlap::Last {
                *place = Some(*byte);
            }
        }
        queue.ecn |= 1 << piece.ecn;
        if !piece.more {
            queue.end = Some(end);
        }
        if start == 0 {
            queue.protocol = piece.protocol;
        }
        if queue.end != Some(queue.bytes.len()) || queue.bytes.iter().any(Option::is_none) {
            return None;
        }
        let queue = self.queues.remove(&key)?;
        // RFC 3168: not ECN-capable mixed with another mark.
        if queue.ecn & 1 == 1 && queue.ecn != 1 {
            return None;
        }
        let bytes: Vec<u8> = queue.bytes.into_iter().flatten().collect();
        let (protocol, bytes) =
            if piece.v6 { self.behind_extensions(queue.protocol, bytes)? } else { (queue.protocol, bytes) };
        Some(Datagram { v6: piece.v6, addresses: piece.addresses.to_vec(), protocol, bytes })
    }

    /// Skips extension headers in the reassembled part; returns the protocol and its bytes.
    fn behind_extensions(&self, mut next: u8, bytes: Vec<u8>) -> Option<(u8, Vec<u8>)> {
        let mut rest = bytes.as_slice();
        while next == 60 {
            let length = (usize::from(*rest.get(1)?) + 1) * 8;
            let header = rest.get(..length)?;
            if !self.habits.tolerant && !options6_are_good(&header[2..]) {
                return None;
            }
            (next, rest) = (header[0], &rest[length..]);
        }
        // Any other header, which is no transport protocol here, is ignored.
        (!matches!(next, 0 | 43 | 44)).then(|| (next, rest.to_vec()))
    }
}

/// Whether Linux accepts a packet with these options of IPv4: well-formed, no source route.
fn options_are_good(options: &[u8]) -> bool {
    let mut rest = options;
    while let Some((kind, tail)) = rest.split_first() {
        match kind {
            0 => return true,
            1 => rest = tail,
            _ => {
                let Some(length) =
                    tail.first().map(|n| usize::from(*n)).filter(|n| *n >= 2 && *n <= rest.len())
                else {
                    return false;
                };
                let good = match kind {
                    0x83 | 0x89 => false,
                    7 => length >= 3 && rest[2] >= 4,
                    0x44 => length >= 4 && rest[2] >= 5,
                    0x94 => length >= 4,
                    _ => true,
                };
                if !good {
                    return false;
                }
                rest = &rest[length..];
            }
        }
    }
    true
}

/// Whether no unknown option of IPv6 makes a receiver discard the packet.
fn options6_are_good(options: &[u8]) -> bool {
    let mut rest = options;
    while let Some((kind, tail)) = rest.split_first() {
        if *kind == 0 {
            rest = tail;
            continue;
        }
        let Some(length) = tail.first().map(|n| usize::from(*n)) else { return false };
        if *kind & 0xc0 != 0 || length + 2 > rest.len() {
            return false;
        }
        rest = &rest[length + 2..];
    }
    true
}
