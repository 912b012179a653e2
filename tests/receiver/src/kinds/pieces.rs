// SPDX-License-Identifier: Apache-2.0
//! Several datagrams in fragments: reused identifications, interleaved datagrams, late parts, empty parts,
//! parts of one byte more or less, and datagrams that are one fragment.
//!
//! Checksums hold with either content (see [`super::fragments`]).

use super::case::Play;
use super::made::Made;
use super::{fragments, payload};
use crate::client::Out;
use crate::receivers::Service;
use bartizan_testkit::packet::{Datagram, Ip, Piece, UDP};
use bartizan_testkit::random::Random;

/// A datagram and its parts.
struct Whole {
    ip: Ip,
    bytes: Vec<u8>,
    lie: Vec<u8>,
    /// Parts: offset and end; the last one extends to the end.
    parts: Vec<(usize, usize)>,
}

impl Whole {
    fn frame(&self, part: usize, lie: bool) -> Vec<u8> {
        let Some(&(from, to)) = self.parts.get(part) else { return Vec::new() };
        let bytes = if lie { &self.lie } else { &self.bytes };
        self.ip.frame(&bytes[from..to], Some(Piece { offset: from, more: to < bytes.len() }))
    }
}

fn whole(made: &mut Made<'_>, evil: bool) -> Whole {
    let (bad, good) = payload::pair(made.service, made.random);
    let (truth, lie) = if evil { (&bad, &good) } else { (&good, &bad) };
    let ports = (made.sport, made.service.port());
    let bytes = Datagram::new(ports, truth).bytes(&made.ip);
    let mut other = Datagram::new(ports, lie).bytes(&made.ip);
    // Both have the same header and the same checksum.
    other[..8].copy_from_slice(&bytes[..8]);
    let length = bytes.len();
    fragments::balance(&mut other[8..], &bytes[8..]);
    let units = length.div_ceil(8);
    let mut ends: Vec<usize> =
        (0..made.random.within(1, 4)).map(|_| made.random.within(1, units - 1) * 8).collect();
    if made.random.percent(20) {
        // The smallest first fragment: only a header.
        ends.push(8);
    }
    ends.extend((1..=length / 1392).map(|n| n * 1392));
    ends.push(length);
    ends.sort_unstable();
    ends.dedup();
    let mut begin = 0;
    let parts = ends.into_iter().map(|end| (std::mem::replace(&mut begin, end), end)).collect();
    Whole { ip: made.ip.clone(), bytes, lie: other, parts }
}

fn order(parts: usize, random: &mut Random) -> Vec<usize> {
    let mut order: Vec<usize> = (0..parts).collect();
    match random.below(3) {
        0 => order.reverse(),
        1 => random.shuffle(&mut order),
        _ => {}
    }
    order
}

/// Adds a frame that may lead a receiver astray to a part of a datagram that was just sent, or none.
fn add_decoy(made: &mut Made<'_>, whole: &Whole, part: usize, frames: &mut Vec<Vec<u8>>) {
    match made.random.below(10) {
        // The part again with other content, after or before it.
        0 => frames.push(whole.frame(part, true)),
        1 => frames.insert(frames.len() - 1, whole.frame(part, true)),
        2 => {
            // An empty part, here or at the end.
            let offset = if made.random.percent(50) {
                whole.parts[part].0
            } else {
                whole.bytes.len().next_multiple_of(8)
            };
            frames.push(whole.ip.frame(&[], Some(Piece { offset, more: made.random.percent(50) })));
        }
        3 => {
            // A last part that ends earlier or later.
            let offset = made.random.below(whole.bytes.len()) / 8 * 8;
            let load = made.random.letters(1);
            frames.push(whole.ip.frame(&load, Some(Piece { offset, more: false })));
        }
        4 => {
            // The whole datagram as one fragment.
            let bytes = if made.random.percent(50) { &whole.lie } else { &whole.bytes };
            if bytes.len() < 1400 {
                let piece = Piece { offset: 0, more: false };
                frames.push(whole.ip.frame(bytes, Some(piece)));
            }
        }
        _ => {}
    }
}

/// Several datagrams of one host.
pub(super) fn runs(made: &mut Made<'_>) -> Play {
    made.service = if made.random.percent(70) { Service::Udp } else { Service::Dns };
    made.ip.protocol = UDP;
    let count = made.random.within(2, 4);
    made.fragmented = count as u64;
    let ids: Vec<u32> = {
        let first = made.random.draw() as u32;
        let same = made.random.percent(50);
        // In IPv4 the upper half is not sent.
        (0..count as u32)
            .map(|at| if same { first } else { first.wrapping_add(at << *made.random.pick(&[0, 0, 16])) })
            .collect()
    };
    let wholes: Vec<Whole> = (0..count)
        .map(|at| {
            let evil = made.random.percent(60);
            let mut whole = whole(made, evil);
            whole.ip.id = ids[at];
            match made.random.below(12) {
                0 => whole.ip.fixed.proto = Some(*made.random.pick(&[6, 1, 58, 59, 253])),
                1 => whole.ip.tos = *made.random.pick(&[1, 2, 3, 0xb8]),
                2 => whole.ip.ttl = *made.random.pick(&[5, 11, 200]),
                _ => {}
            }
            whole
        })
        .collect();
    let mut frames: Vec<Vec<u8>> = Vec::new();
    let mut queues: Vec<Vec<usize>> =
        wholes.iter().map(|whole| order(whole.parts.len(), made.random)).collect();
    let between = made.random.percent(50);
    while queues.iter().any(|queue| !queue.is_empty()) {
        let open: Vec<usize> = (0..count).filter(|at| !queues[*at].is_empty()).collect();
        let at = if between { *made.random.pick(&open) } else { open[0] };
        let part = queues[at].remove(0);
        frames.push(wholes[at].frame(part, false));
        add_decoy(made, &wholes[at], part, &mut frames);
    }
    made.note = format!(
        "{count} datagrams, numbers {ids:x?}, parts {:?}",
        wholes.iter().map(|whole| &whole.parts).collect::<Vec<_>>()
    );
    let late = made.random.percent(12);
    let mut clock = 0;
    let last = frames.len() - 1;
    let mut out = Out::new();
    for (at, frame) in frames.into_iter().enumerate() {
        if late && (at == last || made.random.percent(20)) {
            clock += *made.random.pick(&[30, 200, 700]);
        }
        out.push((clock, frame));
    }
    Play::Frames(out)
}

/// Queries in fragments with decoys.
pub(super) fn queries(made: &mut Made<'_>) -> Play {
    made.service = Service::Dns;
    made.ip.protocol = UDP;
    made.fragmented = 1;
    let (mut evil, mut good) = payload::pair(Service::Dns, made.random);
    // Both have the same id, and an option as padding.
    good[..2].copy_from_slice(&evil[..2]);
    let length = made.random.within(8, 300);
    let filling = made.random.letters(length);
    for query in [&mut evil, &mut good] {
        query[11] = 1;
        let size = (filling.len() as u16).to_be_bytes();
        let all = (filling.len() as u16 + 4).to_be_bytes();
        query.extend([0, 0, 41, 4, 208, 0, 0, 0, 0, all[0], all[1], 0, 12, size[0], size[1]]);
        query.extend_from_slice(&filling);
    }
    let ports = (made.sport, Service::Dns.port());
    let [whole, other] = [&evil, &good].map(|load| Datagram::new(ports, load).bytes(&made.ip));
    let plan = fragments::plan(&made.ip, &whole, &other, made.random);
    made.note = plan.note;
    Play::Frames(plan.frames)
}
