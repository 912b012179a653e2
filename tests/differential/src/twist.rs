// SPDX-License-Identifier: Apache-2.0
//! Changes to a conversation: segmentation, acknowledgments and end, and the treatment of its packets.

use crate::pair::{Body, Packet};
use crate::talk::{Acks, End, Way};
use bartizan_testkit::packet::{SYN, Segment};
use bartizan_testkit::random::Random;

/// Changes the transport parameters of messages.
pub type Change = fn(&mut Random, &mut Way);

/// Changes of TCP parameters, by name.
pub const WAYS: &[(&str, Change)] = &[
    ("segments-1", |_, way| way.sizes = vec![1]),
    ("segments-small", |r, way| way.sizes = vec![r.within(2, 9)]),
    ("segments-mixed", |r, way| way.sizes = (0..12).map(|_| r.within(1, 40)).collect()),
    ("segments-first", |r, way| way.sizes = vec![r.within(1, 30), 1_460]),
    ("acks-message", |_, way| way.acks = Acks::Message),
    ("acks-data", |_, way| way.acks = Acks::Data),
    ("acks-never", |_, way| way.acks = Acks::Never),
    ("end-open", |_, way| way.end = End::Open),
    ("end-server", |_, way| way.end = End::Server),
    ("end-with-data", |_, way| way.end = End::WithData),
    ("end-reset", |_, way| way.end = End::Reset),
    ("end-server-reset", |_, way| way.end = End::ServerReset),
    ("midstream", |_, way| way.midstream = true),
    ("wrap", |r, way| way.begin = (u32::MAX - r.below(60) as u32, u32::MAX - r.below(60) as u32)),
    ("timestamps", |_, way| way.timestamps = true),
    ("syn-data", |_, way| way.syn_data = true),
    ("one-sided", |r, way| way.one_sided = Some(r.percent(60))),
    ("small-window", |r, way| {
        way.window = *r.pick(&[30, 200]);
        way.sizes = vec![20];
    }),
    ("vlan", |_, way| way.vlan = Some(7)),
    ("low-ttl", |_, way| way.ttl = (3, 16)),
];

/// Changes of UDP parameters, by name.
pub const UDP_WAYS: &[(&str, Change)] = &[
    ("vlan", |_, way| way.vlan = Some(7)),
    ("low-ttl", |_, way| way.ttl = (3, 16)),
    ("one-sided", |r, way| way.one_sided = Some(r.percent(60))),
];

/// Changes packets after they were made.
pub type Twist = fn(&mut Random, &mut Vec<Packet>);

/// Changes of TCP packets, by name.
pub const TWISTS: &[(&str, Twist)] = &[
    ("swap", |r, packets| {
        let data = loads(packets);
        if data.len() > 1 {
            let at = r.below(data.len() - 1);
            let moved = packets.remove(data[at]);
            packets.insert(data[at + 1], moved);
        }
    }),
    ("retransmission", |r, packets| again(r, packets, |_, _| {})),
    ("late-retransmission", |r, packets| {
        let data = loads(packets);
        if let Some(at) = pick(r, &data) {
            let copy = packets[at].clone();
            let to = r.within(at + 1, packets.len());
            packets.insert(to, copy);
        }
    }),
    ("retransmission-differs", |r, packets| {
        again(r, packets, |r, segment| {
            let at = r.below(segment.load.len());
            segment.load[at] ^= 1;
        });
    }),
    ("garbage-first", |r, packets| {
        let data = loads(packets);
        if let Some(at) = pick(r, &data) {
            let mut copy = packets[at].clone();
            if let Body::Tcp(segment) = &mut copy.body {
                segment.load = r.letters(segment.load.len());
            }
            packets.insert(at, copy);
        }
    }),
    ("overlap", |r, packets| {
        let data = loads(packets);
        if let Some(at) = pick(r, &data) {
            let mut copy = packets[at].clone();
            if let Body::Tcp(segment) = &mut copy.body {
                let (from, keep) = (r.below(segment.load.len()), r.within(1, 20));
                segment.load = segment.load.split_off(from);
                segment.load.truncate(keep);
                segment.seq = segment.seq.wrapping_add(from as u32);
            }
            packets.insert(at + usize::from(r.percent(50)), copy);
        }
    }),
    ("overlap-differs", |r, packets| {
        let data = loads(packets);
        if let Some(at) = pick(r, &data) {
            let mut copy = packets[at].clone();
            if let Body::Tcp(segment) = &mut copy.body {
                let from = r.below(segment.load.len());
                let length = (segment.load.len() - from).min(r.within(1, 20));
                segment.load = r.letters(length);
                segment.seq = segment.seq.wrapping_add(from as u32);
            }
            packets.insert(at + usize::from(r.percent(30)), copy);
        }
    }),
    ("lost", |r, packets| {
        let data = loads(packets);
        if let Some(at) = pick(r, &data) {
            packets.remove(at);
        }
    }),
    ("lost-ack", |r, packets| {
        let acks: Vec<usize> =
            (0..packets.len()).filter(|at| load(&packets[*at]).is_none_or(<[u8]>::is_empty)).collect();
        if let Some(at) = pick(r, &acks) {
            packets.remove(at);
        }
    }),
    ("bad-checksum", |r, packets| {
        let data = loads(packets);
        if let Some(at) = pick(r, &data)
            && let Body::Tcp(segment) = &mut packets[at].body
        {
            segment.chksum_error = 1;
        }
    }),
    ("bad-checksum-copy", |r, packets| {
        let data = loads(packets);
        if let Some(at) = pick(r, &data) {
            let mut copy = packets[at].clone();
            if let Body::Tcp(segment) = &mut copy.body {
                segment.load = r.letters(segment.load.len());
                segment.chksum_error = 1;
            }
            packets.insert(at, copy);
        }
    }),
    ("out-of-window", |r, packets| {
        let data = loads(packets);
        if let Some(at) = pick(r, &data) {
            let mut copy = packets[at].clone();
            if let Body::Tcp(segment) = &mut copy.body {
                segment.seq = segment.seq.wrapping_add(*r.pick(&[100_000, 0x8000_0000, u32::MAX - 5_000]));
            }
            packets.insert(at, copy);
        }
    }),
    ("keep-alive", |r, packets| {
        let data = loads(packets);
        if let Some(at) = pick(r, &data) {
            let mut copy = packets[at].clone();
            if let Body::Tcp(segment) = &mut copy.body {
                segment.seq = segment.seq.wrapping_add(segment.load.len() as u32 - 1);
                segment.load = vec![0];
            }
            packets.insert(at + 1, copy);
        }
    }),
    ("syn-twice", |r, packets| {
        let syns: Vec<usize> = (0..packets.len())
            .filter(|at| matches!(&packets[*at].body, Body::Tcp(segment) if segment.flags & SYN != 0))
            .collect();
        if let Some(at) = pick(r, &syns) {
            let mut copy = packets[at].clone();
            if let Body::Tcp(segment) = &mut copy.body
                && r.percent(50)
            {
                segment.seq = segment.seq.wrapping_add(5_000);
            }
            packets.insert(at + usize::from(r.percent(50)), copy);
        }
    }),
    ("fragments", |r, packets| {
        let data = loads(packets);
        if let Some(at) = pick(r, &data) {
            packets[at].fragments = Some(*r.pick(&[8, 24, 64]));
        }
    }),
    ("reset-inside", |r, packets| {
        let data = loads(packets);
        if let Some(at) = pick(r, &data) {
            let mut copy = packets[at].clone();
            if let Body::Tcp(segment) = &mut copy.body {
                segment.flags = *r.pick(&[4, 20]);
                segment.load.clear();
                segment.seq = segment.seq.wrapping_add(*r.pick(&[0, 0, 1, 50_000]));
            }
            packets.insert(at, copy);
        }
    }),
];

/// Changes of UDP packets, by name.
pub const UDP_TWISTS: &[(&str, Twist)] = &[
    ("fragments", |r, packets| {
        let at = r.below(packets.len());
        packets[at].fragments = Some(*r.pick(&[8, 24]));
    }),
    ("twice", |r, packets| {
        let at = r.below(packets.len());
        packets.insert(at, packets[at].clone());
    }),
    ("swap", |r, packets| {
        if packets.len() > 1 {
            let at = r.below(packets.len() - 1);
            packets.swap(at, at + 1);
        }
    }),
    ("lost", |r, packets| {
        if packets.len() > 1 {
            let at = r.below(packets.len());
            packets.remove(at);
        }
    }),
];

fn load(packet: &Packet) -> Option<&[u8]> {
    match &packet.body {
        Body::Tcp(segment) => Some(&segment.load),
        _ => None,
    }
}

/// Indexes of the packets that are segments with data.
fn loads(packets: &[Packet]) -> Vec<usize> {
    (0..packets.len()).filter(|at| load(&packets[*at]).is_some_and(|load| !load.is_empty())).collect()
}

fn pick(random: &mut Random, of: &[usize]) -> Option<usize> {
    if of.is_empty() { None } else { Some(*random.pick(of)) }
}

/// Sends a changed copy of a segment, at once or after the next packet.
fn again(random: &mut Random, packets: &mut Vec<Packet>, change: fn(&mut Random, &mut Segment)) {
    let data = loads(packets);
    if let Some(at) = pick(random, &data) {
        let mut copy = packets[at].clone();
        if let Body::Tcp(segment) = &mut copy.body {
            change(random, segment);
        }
        let to = (at + random.within(1, 2)).min(packets.len());
        packets.insert(to, copy);
    }
}
