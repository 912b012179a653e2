// SPDX-License-Identifier: Apache-2.0
//! Whole packets that receivers read differently from their appearance, or not at all: wrong lengths, option
//! lists and header chains that are broken or only look broken, and datagrams with a fault for which a
//! receiver discards them.

use super::fragments;
use crate::receivers::Service;
use bartizan_testkit::packet::{Datagram, Ip};
use bartizan_testkit::random::Random;

/// Makes a header odd and returns a description. Receivers may still read the packet.
pub fn header(ip: &mut Ip, random: &mut Random) -> &'static str {
    if random.percent(8) {
        // Tags of VLAN 0 carry only a priority.
        ip.tags = vec![random.below(8) as u16 * 0x2000; random.within(1, 6)];
        return "VLAN tags without a VLAN";
    }
    if ip.src.is_ipv4() { header_v4(ip, random) } else { header_v6(ip, random) }
}

fn header_v4(ip: &mut Ip, random: &mut Random) -> &'static str {
    match random.below(8) {
        0 => {
            let length = random.within(1, 10) * 4;
            ip.options = random.bytes(length);
            "options of random bytes"
        }
        1 => {
            let pointer = *random.pick(&[5, 6, 7, 9, 12, 13, 200]);
            ip.options = vec![7, 11, pointer, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            "record route with an odd pointer"
        }
        2 => {
            let (pointer, flag) = (*random.pick(&[5, 6, 9, 11, 13]), *random.pick(&[0, 1, 2, 3, 0x10, 0xf0]));
            ip.options = vec![0x44, 12, pointer, flag, 0, 0, 0, 0, 0, 0, 0, 0];
            "timestamps with an odd pointer or flag"
        }
        3 => {
            let length = random.within(2, 12) as u8;
            ip.options = vec![*random.pick(&[0x82, 0x85, 0x88, 0x94, 0x19, 0x1e, 0x9e]), length];
            ip.options.resize(usize::from(length), 0);
            "option with an odd length"
        }
        4 => {
            // Receivers ignore bytes after the end of the list.
            ip.options = vec![*random.pick(&[0, 1]), 0, 7, 200, 130, 1, 0, 44];
            "a list that ends before its last bytes"
        }
        5 => {
            ip.options = vec![1, 1, 1, *random.pick(&[7, 0x44, 0x94, 0x1e, 0x83])];
            "an option without a length"
        }
        6 => {
            ip.fixed.len = Some(*random.pick(&[0, 19, 20, 27, 28, 40, 2000, 65_535]));
            "total length"
        }
        _ => fragments::header(ip, true, random),
    }
}

fn header_v6(ip: &mut Ip, random: &mut Random) -> &'static str {
    let padded = |kind: u8, length: usize| {
        let mut bytes = vec![0, kind, length as u8];
        bytes.resize((3 + length - 1).div_ceil(8).max(1) * 8 - 1, 0);
        bytes[0] = ((bytes.len() + 1) / 8 - 1) as u8;
        bytes
    };
    match random.below(9) {
        0 | 1 => {
            ip.extensions.push((0, padded(1, *random.pick(&[4, 12]))));
            ip.fixed.len = Some(0);
            "no length, as of a jumbogram, without its option"
        }
        2 => {
            let kind = *random.pick(&[0, 60]);
            ip.extensions.push((kind, padded(*random.pick(&[5, 4, 0x26, 0x3e]), random.below(5))));
            "an option that may be ignored, with an odd length"
        }
        3 => {
            let length = random.within(1, 3) * 8 - 1;
            let mut bytes = random.bytes(length);
            bytes[0] = (length / 8) as u8;
            ip.extensions.push((*random.pick(&[0, 60, 43, 135, 139, 140, 51]), bytes));
            "an extension header of random bytes"
        }
        4 => {
            let kinds: Vec<u8> = (0..random.within(2, 5)).map(|_| *random.pick(&[0, 60, 60, 43])).collect();
            for kind in kinds {
                let body = if kind == 43 { vec![0, 3, 0, 0, 0, 0, 0] } else { padded(1, 4) };
                ip.extensions.push((kind, body));
            }
            "several extension headers"
        }
        5 => {
            ip.extensions.push((51, vec![*random.pick(&[0, 1, 2, 4]), 0, 0, 0, 0, 0, 1, 0, 0, 0, 1]));
            "authentication header"
        }
        6 => {
            ip.fixed.len = Some(*random.pick(&[0, 1, 7, 8, 20, 2000, 65_535]));
            "payload length"
        }
        7 => {
            ip.extensions.push((44, vec![*random.pick(&[0, 1]), 0, *random.pick(&[0, 2, 6]), 1, 2, 3, 4]));
            "a datagram in one fragment"
        }
        _ => fragments::header(ip, false, random),
    }
}

/// A datagram whose length field is odd and whose checksum is right for a receiver that accepts the length.
pub fn odd_length(ip: &Ip, ports: (u16, u16), load: &[u8], random: &mut Random) -> (Vec<u8>, &'static str) {
    let all = load.len() + 8;
    let (length, covered) = match random.below(5) {
        0 | 1 => (0, all),
        2 => (random.within(1, 7), all),
        // A truncated query is no query.
        3 if ports.1 != Service::Dns.port() => {
            let length = random.within(8, all);
            (length, length)
        }
        _ => (all + random.within(1, 100), all),
    };
    let mut bytes =
        Datagram { chksum: Some(0), len: Some(length as u16), ..Datagram::new(ports, load) }.unsummed();
    let sum = match ip.transport_sum(bartizan_testkit::packet::UDP, &bytes[..covered]) {
        0 => 0xffff,
        sum => sum,
    };
    bytes[6..8].copy_from_slice(&sum.to_be_bytes());
    (bytes, "length of UDP")
}

/// A datagram that its receiver discards, and the reason.
pub fn decoy(ip: &Ip, ports: (u16, u16), load: &[u8], random: &mut Random) -> (Vec<u8>, &'static str) {
    let mut own = ip.clone();
    let (bytes, fault) = match random.below(7) {
        0 | 1 => {
            let mut bytes = Datagram::new(ports, load).bytes(ip);
            bytes[7] ^= 1 + random.below(255) as u8;
            (bytes, "checksum of UDP")
        }
        // Over IPv4 the receiver accepts a datagram without checksum.
        2 if !ip.src.is_ipv4() => (Datagram::new(ports, load).unsummed(), "no checksum of UDP"),
        3 => odd_length(ip, ports, load, random),
        4 => (Datagram::new(ports, load).bytes(ip), header(&mut own, random)),
        _ => (Datagram::new(ports, load).bytes(ip), fragments::header(&mut own, ip.src.is_ipv4(), random)),
    };
    (own.frame(&bytes, None), fault)
}
