// SPDX-License-Identifier: Apache-2.0
//! A datagram in fragments, with decoys between them: fragments of other content, most of which a receiver
//! discards for one of many reasons.
//!
//! A decoy in place of a true fragment has the same checksum, so that the checksum of the datagram holds with
//! either of them.

use bartizan_testkit::packet::{Ip, Piece, sum};
use bartizan_testkit::random::Random;

/// The frames of a case.
pub struct Plan {
    /// Frames, each with its delay in milliseconds.
    pub frames: Vec<(u64, Vec<u8>)>,
    /// Only the true fragments, each once.
    pub clean: bool,
    /// Description for people.
    pub note: String,
}

/// A part of a datagram.
struct Part {
    offset: usize,
    end: usize,
    more: bool,
}

/// Fragments of `truth` with decoys of `lie`, which has the same length.
pub fn plan(ip: &Ip, truth: &[u8], lie: &[u8], random: &mut Random) -> Plan {
    let mut ip = ip.clone();
    ip.id = random.draw() as u32;
    let parts = cut(truth.len(), random);
    let mut order: Vec<usize> = (0..parts.len()).collect();
    match random.below(10) {
        0..=3 => order.reverse(),
        4..=6 => random.shuffle(&mut order),
        _ => {}
    }
    let decoys = *random.pick(&[0, 0, 0, 1, 1, 1, 1, 1, 2, 3]);
    let mut note = format!("{} fragments in the order {order:?}", parts.len());
    let frame = |ip: &Ip, part: &Part, bytes: &[u8]| {
        ip.frame(bytes, Some(Piece { offset: part.offset, more: part.more }))
    };
    // Each frame with the index of its part; decoys have none.
    let mut frames: Vec<(Option<usize>, Vec<u8>)> = order
        .iter()
        .map(|&at| (Some(at), frame(&ip, &parts[at], &truth[parts[at].offset..parts[at].end])))
        .collect();
    for _ in 0..decoys {
        let differing: Vec<usize> = (0..parts.len())
            .filter(|&at| truth[parts[at].offset..parts[at].end] != lie[parts[at].offset..parts[at].end])
            .collect();
        let at = match differing.is_empty() || random.percent(15) {
            true => random.below(parts.len()),
            false => *random.pick(&differing),
        };
        let part = &parts[at];
        let mut bytes = match random.below(10) {
            0..=7 => lie[part.offset..part.end].to_vec(),
            _ => random.letters(part.end - part.offset),
        };
        if part.offset == 0 {
            // The same header, hence the same ports and the same checksum.
            let header = 8.min(bytes.len());
            bytes[..header].copy_from_slice(&truth[..header]);
            if ip.protocol == bartizan_testkit::packet::TCP {
                let header = 20.min(bytes.len());
                bytes[..header].copy_from_slice(&truth[..header]);
            }
        }
        balance(&mut bytes, &truth[part.offset..part.end]);
        let mut decoy = ip.clone();
        let mut place = Part { offset: part.offset, end: part.end, more: part.more };
        let fault = spoil(&mut decoy, &mut place, &mut bytes, random);
        let mut made = frame(&decoy, &place, &bytes);
        if fault == "short frame" {
            made.truncate(made.len() - 1 - random.below(bytes.len().min(7)));
        }
        let own = frames.iter().position(|(of, _)| *of == Some(at)).unwrap_or(0);
        let mut to = random.below(frames.len() + 1);
        if random.percent(60) {
            // After all other fragments, before the true one.
            let last = frames.remove(own);
            frames.push(last);
            to = frames.len() - 1;
        }
        frames.insert(to, (None, made));
        note.push_str(&format!("; decoy of {at} as frame {to}: {fault}"));
    }
    let mut clean = decoys == 0;
    if random.percent(5) {
        let again = random.pick(&frames).clone();
        frames.insert(random.below(frames.len() + 1), again);
        clean = false;
        note.push_str("; one twice");
    }
    let slow = random.percent(10);
    let mut clock = 0;
    let frames = frames.into_iter().map(|(_, frame)| {
        clock += if slow { random.below(20) as u64 } else { 0 };
        (clock, frame)
    });
    Plan { frames: frames.collect(), clean, note }
}

fn cut(length: usize, random: &mut Random) -> Vec<Part> {
    let units = length.div_ceil(8);
    let most = (units - 1).min(6);
    let mut ends: Vec<usize> =
        (0..random.within(most.min(1), most)).map(|_| random.within(1, units - 1) * 8).collect();
    // Cuts payload that does not fit into a frame.
    ends.extend((1..=length / 1392).map(|n| n * 1392));
    ends.push(length);
    ends.sort_unstable();
    ends.dedup();
    let mut begin = 0;
    let part = |end: usize| {
        let part = Part { offset: begin, end, more: end < length };
        begin = end;
        part
    };
    ends.into_iter().map(part).collect()
}

/// Changes the last word of `bytes` so that its checksum equals that of `like`.
pub(super) fn balance(bytes: &mut [u8], like: &[u8]) {
    let at = (bytes.len() / 2) * 2;
    if at < 10 || bytes.len() != like.len() {
        return;
    }
    let word = at - 2..at;
    bytes[word.clone()].fill(0);
    let (own, wanted) = (sum(0, bytes), sum(0, like));
    let difference = sum(0, &[wanted.to_be_bytes(), (!own).to_be_bytes()].concat());
    bytes[word].copy_from_slice(&difference.to_be_bytes());
}

/// Alters a packet so that receivers read it differently, or not at all. Returns a description.
fn spoil(ip: &mut Ip, part: &mut Part, bytes: &mut Vec<u8>, random: &mut Random) -> &'static str {
    let v4 = ip.src.is_ipv4();
    match random.below(16) {
        // Unchanged: an overlap.
        0 => "overlap",
        1 if part.offset > 0 => {
            let back = random.within(1, part.offset / 8).min(4) * 8;
            part.offset -= back;
            "overlap from before"
        }
        2 if bytes.len() > 16 => {
            bytes.truncate(random.within(1, bytes.len() / 8 - 1) * 8);
            part.more = true;
            "part of it"
        }
        3 => {
            bytes.truncate(bytes.len().saturating_sub(random.within(1, 7)).max(1));
            part.more = true;
            "no multiple of 8"
        }
        _ => header(ip, v4, random),
    }
}

/// Alters the IP header. Returns a description.
pub fn header(ip: &mut Ip, v4: bool, random: &mut Random) -> &'static str {
    match random.below(6) {
        0 => {
            ip.mac =
                *random.pick(&[[2, 9, 9, 9, 9, 9], [1, 0, 0x5e, 0, 0, 5], [0xff; 6], [2, 0, 0, 0, 0, 1]]);
            "foreign MAC address"
        }
        1 => {
            ip.ttl = *random.pick(&[0, 1, 2, 5, 11]);
            "low hop limit"
        }
        2 => {
            let foreign = if v4 {
                *random.pick(&["10.66.0.9", "10.66.0.255", "127.0.0.1", "224.0.0.1", "0.0.0.0"])
            } else {
                *random.pick(&["fd66::9", "ff02::1", "::1", "::", "fe80::2"])
            };
            ip.dst = foreign.parse().unwrap_or(ip.dst);
            "foreign destination"
        }
        _ if v4 => header_v4(ip, random),
        _ => header_v6(ip, random),
    }
}

fn header_v4(ip: &mut Ip, random: &mut Random) -> &'static str {
    match random.below(12) {
        0 | 1 => {
            ip.fixed.chksum = Some(random.draw() as u16);
            "header checksum"
        }
        2 => {
            ip.options = random.pick(&[[7, 7, 3, 0], [7, 7, 9, 0], [7, 3, 4, 0], [7, 7, 0, 0]]).to_vec();
            ip.options.resize(8, 0);
            "record route, bad"
        }
        3 => {
            ip.options = vec![7, 7, 4, 0, 0, 0, 0, 0];
            "record route"
        }
        4 => {
            let kind = *random.pick(&[0x83, 0x89]);
            let pointer = *random.pick(&[4, 8, 3]);
            ip.options = vec![kind, 7, pointer, 10, 66, 0, 9, 0];
            "source route"
        }
        5 => {
            ip.options = random.pick(&[[0x44, 12, 5, 0], [0x44, 12, 4, 1], [0x44, 4, 5, 3]]).to_vec();
            ip.options.resize(12, 0);
            "timestamp option"
        }
        6 => {
            ip.options = random
                .pick(&[[0x82, 0, 0, 0], [0x82, 1, 0, 0], [0x82, 44, 0, 0], [0x94, 4, 0, 0], [0x94, 3, 0, 0]])
                .to_vec();
            "option with a length that lies"
        }
        7 => {
            ip.options = vec![0x86, 8, 0, 0, 0, 1, 1, 2];
            "security option"
        }
        8 => {
            ip.options = vec![*random.pick(&[0x1e, 0x5e, 0x9e, 0xde]), 4, 1, 2];
            "unknown option"
        }
        9 => {
            ip.fixed.version = Some(*random.pick(&[0, 5, 6, 15]));
            "version"
        }
        10 => {
            ip.fixed.ihl = Some(*random.pick(&[0, 4, 6, 15]));
            "header length"
        }
        _ => {
            ip.fixed.flags = Some(*random.pick(&[4, 5, 3, 7, 6]));
            "flags"
        }
    }
}

fn header_v6(ip: &mut Ip, random: &mut Random) -> &'static str {
    let options = |first: u8| vec![0, first, 4, 0, 0, 0, 0];
    let action = *random.pick(&[0x41, 0x81, 0xc1]);
    match random.below(13) {
        0 | 1 => {
            ip.extensions.push((0, options(action)));
            "hop-by-hop option with an action"
        }
        2 | 3 => {
            ip.extensions.push((60, options(action)));
            "destination option with an action"
        }
        4 => {
            let kind = *random.pick(&[0, 60]);
            ip.extensions.push((kind, options(*random.pick(&[1, 0x1e]))));
            "options without an action"
        }
        5 => {
            let kind = *random.pick(&[0, 60]);
            ip.extensions.push((kind, vec![0, 1, 4, 1, 2, 3, 4]));
            "padding that is not empty"
        }
        6 => {
            let (kind, left) = (*random.pick(&[0u8, 2, 3, 4, 253]), *random.pick(&[0u8, 1, 2]));
            let mut bytes = vec![2, kind, left, 0, 0, 0, 0];
            bytes.extend([0xfd, 0x66, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
            ip.extensions.push((43, bytes));
            "routing header"
        }
        7 => {
            ip.extensions.push((60, options(1)));
            ip.extensions.push((0, options(1)));
            "hop-by-hop out of place"
        }
        8 => {
            ip.extensions.push((44, vec![0, 0, 0, 1, 2, 3, 4]));
            "two fragment headers"
        }
        9 => {
            ip.extensions.push((0, vec![0, 0xc2, 4, 0, 1, 0, 0]));
            "jumbo payload option"
        }
        10 => {
            ip.extensions.push((*random.pick(&[0, 60, 43]), vec![200, 1, 4, 0, 0, 0, 0]));
            "extension header with a length that lies"
        }
        11 => {
            ip.extensions.push((*random.pick(&[135, 139, 51, 59, 253]), vec![0, 1, 4, 0, 0, 0, 0]));
            "another extension header"
        }
        _ => {
            ip.fixed.version = Some(*random.pick(&[0, 4, 5, 15]));
            "version"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bartizan_testkit::packet::{Datagram, UDP};

    #[test]
    fn true_fragments_cover_the_datagram_and_decoys_keep_its_sum() {
        for seed in 0..2000 {
            let mut random = Random::new(seed);
            let length = random.within(20, 3000);
            let parts = cut(length, &mut random);
            assert_eq!(parts.iter().map(|part| part.end - part.offset).sum::<usize>(), length);
            assert!(parts.iter().all(|part| part.offset.is_multiple_of(8) && part.end - part.offset <= 1392));
            assert!(parts.iter().rev().skip(1).all(|part| part.more) && !parts[parts.len() - 1].more);
            let (mut a, b) = (random.letters(length), random.letters(length));
            balance(&mut a, &b);
            assert_eq!(sum(0, &a), sum(0, &b));
        }
    }

    #[test]
    fn a_plan_without_decoys_is_clean() {
        let ip = Ip::new("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap(), UDP);
        let bytes = Datagram::new((1, 2), &[b'x'; 200]).bytes(&ip);
        let plans: Vec<_> = (0..200).map(|seed| plan(&ip, &bytes, &bytes, &mut Random::new(seed))).collect();
        assert!(plans.iter().any(|plan| plan.clean) && plans.iter().any(|plan| !plan.clean));
        assert!(plans.iter().all(|plan| plan.clean != plan.note.contains(';')));
    }
}
