// SPDX-License-Identifier: Apache-2.0
//! A sender that tries to make the engine and the receiver read different bytes: segments cut and ordered at
//! random, sent again with other content, with flags, options, checksums, timestamps and sequence numbers
//! that receivers reject.

use crate::client::Client;
use bartizan_testkit::packet::{ACK, FIN, Ip, PSH, RST, SYN, Segment, URG};
use bartizan_testkit::random::Random;

/// Some segments, right or wrong, each with its own IP header where that differs.
pub fn tricks(client: &mut Client) -> Vec<(Option<Ip>, Segment)> {
    let mut random = client.random.clone();
    let made = (0..random.within(1, 4)).map(|_| trick(client, &mut random)).collect();
    client.random = random;
    made
}

/// Bytes of one of the two versions, or random letters.
fn content(client: &Client, start: usize, length: usize, random: &mut Random) -> Vec<u8> {
    let of = |data: &[u8]| data.get(start..start + length).map(<[u8]>::to_vec);
    let (truth, lie) = (of(&client.truth), of(&client.lie));
    match (truth, lie, random.below(20)) {
        (Some(truth), _, 0..=9) => truth,
        (_, Some(lie), 10..=16) => lie,
        // Other bytes at the end only.
        (Some(mut truth), Some(lie), 17) => {
            let from = random.below(length);
            truth[from..].copy_from_slice(&lie[from..]);
            truth
        }
        _ => random.letters(length),
    }
}

fn range(client: &Client, random: &mut Random) -> (usize, usize) {
    let all = client.truth.len();
    let length = 1 + if random.percent(70) { random.below(60) } else { random.below(1200) };
    let start = match random.below(10) {
        0..=4 => client.acked,
        5..=6 => client.acked + random.below(200),
        7 => client.acked.saturating_sub(random.below(100)),
        _ => random.below(all),
    };
    let start = start.min(all - 1);
    (start, (start + length).min(all))
}

/// Alters a packet so that its receiver does not get it, or discards it.
fn lose(ip: &mut Ip, segment: &mut Segment, random: &mut Random) {
    match random.below(4) {
        0 => ip.mac = [2, 9, 9, 9, 9, 9],
        1 if ip.src.is_ipv4() => ip.options = vec![0x83, 7, 4, 10, 66, 0, 9, 0],
        1 => ip.extensions.push((60, vec![0, 0x81, 4, 0, 0, 0, 0])),
        2 => segment.options.push((19, vec![7; 16])),
        _ => ip.ttl = 3,
    }
}

/// Turns a segment into a reset that its receiver rejects. Returns whether it needs its own IP header.
fn reset(client: &Client, ip: &mut Ip, segment: &mut Segment, random: &mut Random) -> bool {
    let mut other = false;
    segment.flags = if random.percent(50) { RST } else { RST | ACK };
    let place = client.isn.wrapping_add(1).wrapping_add(client.acked as u32);
    let ahead = random.within(1, 3000) as u32;
    segment.seq = match random.below(6) {
        0 => place.wrapping_add(ahead),
        1 => place.wrapping_sub(ahead),
        2 => {
            segment.chksum_error = 77;
            place
        }
        3 => place.wrapping_add(1 << 30),
        // The right number, in a packet that does not arrive.
        _ => {
            other = true;
            lose(ip, segment, random);
            place
        }
    };
    if random.percent(70) {
        segment.load.clear();
    }
    other
}

/// Marks a part of a segment as urgent.
fn urgent(segment: &mut Segment, length: usize, random: &mut Random) {
    segment.flags |= URG;
    segment.urgptr = match random.below(4) {
        0 => length as u16,
        1 => 0,
        2 => random.within(1, length) as u16,
        _ => (length + random.below(300)) as u16,
    };
}

/// A segment that begins before the window and reaches into it.
fn from_before(client: &Client, random: &mut Random) -> Segment {
    let from = client.acked.saturating_sub(random.below(200));
    let length = (client.acked - from + random.within(1, 200)).min(client.truth.len() - from);
    let load = content(client, from, length, random);
    client.segment(ACK, from as i64, &load)
}

/// Adds no-operations, a source route or a recorded route; in IPv6 a destination header.
fn route(ip: &mut Ip, random: &mut Random) {
    let of = [&[1u8, 1, 1, 1][..], &[0x83, 7, 4, 10, 66, 0, 9, 0], &[7, 7, 4, 0, 0, 0, 0, 0]];
    if ip.src.is_ipv4() {
        ip.options = random.pick(&of).to_vec();
    } else {
        ip.extensions.push((60, vec![0, *random.pick(&[1, 0x41, 0x81]), 4, 0, 0, 0, 0]));
    }
}

fn trick(client: &Client, random: &mut Random) -> (Option<Ip>, Segment) {
    let (start, end) = range(client, random);
    let load = content(client, start, end - start, random);
    let mut segment = client.segment(ACK | PSH, start as i64, &load);
    let mut ip = client.ip.clone();
    let mut other = false;
    if random.percent(12) {
        ip.ttl = random.within(1, 14) as u8;
        other = true;
    }
    if random.percent(5) {
        ip.trailer = random.below(40);
        other = true;
    }
    match random.below(28) {
        0 => segment.chksum_error = random.within(1, 1000) as u16,
        1 if client.timestamps => segment.options = client.options(0, 1_000_000),
        // No timestamp although one is required.
        2 if client.timestamps => segment.options.clear(),
        // An MD5 signature that was not negotiated.
        3 => segment.options.push((19, vec![7; 16])),
        4 => urgent(&mut segment, load.len(), random),
        // An urgent pointer without the flag.
        5 => segment.urgptr = random.within(1, load.len()) as u16,
        6 => segment.flags &= !ACK,
        7 => segment.flags |= SYN,
        8 => segment.ack = segment.ack.wrapping_add(1 + random.below(1 << 20) as u32),
        9 => segment.ack = segment.ack.wrapping_sub(1 + random.below(1 << 20) as u32),
        10 => {
            ip.mac = [2, 9, 9, 9, 9, 9];
            other = true;
        }
        // A keep-alive with a byte.
        11 => segment = client.segment(ACK, client.acked as i64 - 1, &random.letters(1)),
        12 => {
            let far =
                *random.pick(&[100_000, 1_000_000, 1 << 30, (1 << 31) - 1, (1 << 31) + 5, u32::MAX - 70_000]);
            segment.seq = segment.seq.wrapping_add(far);
        }
        13 => segment = from_before(client, random),
        14 | 15 => other |= reset(client, &mut ip, &mut segment, random),
        16 if random.percent(20) => segment.flags |= FIN,
        17 => {
            route(&mut ip, random);
            other = true;
        }
        18 => segment.options.push((253, vec![1, 2])),
        19 => segment.flags |= *random.pick(&[0xc0, 0x100, 0x40]),
        20 => {
            segment.flags = 0;
            segment.ack = 0;
        }
        21 => {
            segment.flags = SYN;
            segment.seq = client.isn.wrapping_add(random.below(100_000) as u32);
            segment.load.clear();
        }
        22 => segment.dataofs = Some(random.within(4, 12) as u8),
        23 => segment.reserved = random.within(1, 7) as u8,
        // A FIN, or timestamps far ahead, that do not arrive.
        24 => {
            other = true;
            let load = if random.percent(50) { &load[..] } else { &[] };
            segment = client.segment(ACK | FIN, client.acked as i64, load);
            lose(&mut ip, &mut segment, random);
        }
        25 if client.timestamps => {
            other = true;
            segment.options = client.options(0, (random.below(1 << 30) as u32).wrapping_neg());
            lose(&mut ip, &mut segment, random);
        }
        _ => {}
    }
    (other.then_some(ip), segment)
}
