// SPDX-License-Identifier: Apache-2.0
//! Header fields by name: read, set, and random values for them.

use bartizan_testkit::packet::{Layer, Packet, Segment};
use bartizan_testkit::random::Random;

/// Names of TCP options, with their kinds and the length of a random value.
pub const OPTIONS: &[(&str, u8, usize)] = &[
    ("eol", 0, 0),
    ("nop", 1, 0),
    ("mss", 2, 2),
    ("wscale", 3, 1),
    ("sackok", 4, 0),
    ("sack", 5, 0),
    ("timestamp", 8, 8),
    ("altchksum", 14, 3),
    ("altchksumopt", 15, 0),
    ("md5header", 19, 16),
    ("uto", 28, 2),
];

const LETTERS: &str = "FSRPAUECN";

/// Flags as letters, in the order of their bits.
#[must_use]
pub fn flags_text(flags: u16) -> String {
    LETTERS.chars().enumerate().filter(|(bit, _)| flags >> bit & 1 != 0).map(|(_, letter)| letter).collect()
}

/// Flags from letters.
#[must_use]
pub fn flags_of(text: &str) -> u16 {
    text.chars().filter_map(|letter| LETTERS.find(letter)).fold(0, |flags, bit| flags | 1 << bit)
}

fn option(field: &str) -> Option<(u8, usize)> {
    let name = field.strip_prefix("options-")?;
    OPTIONS.iter().find(|(known, ..)| *known == name).map(|(_, kind, length)| (*kind, *length))
}

/// Whether the field has this value; `false` without a header of the protocol.
#[must_use]
pub fn matches(packet: &Packet, protocol: &str, field: &str, value: &str) -> bool {
    let Some(own) = get(packet, protocol, field) else { return false };
    if let Some(part) = value.strip_suffix('*') {
        return own.contains(part);
    }
    if field == "flags" && protocol == "TCP" {
        return flags_of(&own) == flags_of(value);
    }
    own == value
}

/// The value of a field as text.
#[must_use]
pub fn get(packet: &Packet, protocol: &str, field: &str) -> Option<String> {
    let ip = &packet.ip;
    Some(match (protocol, &packet.layer) {
        ("IP" | "IPv6", _) => match field {
            "version" => if ip.src.is_ipv4() { "4" } else { "6" }.to_owned(),
            "ihl" => ip.fixed.ihl.unwrap_or(5 + ip.options.len().div_ceil(4) as u8).to_string(),
            "tos" => ip.tos.to_string(),
            "len" => (packet.payload().len() + 20).to_string(),
            "id" => ip.id.to_string(),
            "flags" => match (packet.piece, ip.fixed.flags) {
                (None, None) => "DF".to_owned(),
                (Some(piece), None) => if piece.more { "MF" } else { "" }.to_owned(),
                (_, Some(flags)) => flags.to_string(),
            },
            "frag" => packet.piece.map_or(0, |piece| piece.offset / 8).to_string(),
            "ttl" => ip.ttl.to_string(),
            "proto" => ip.protocol.to_string(),
            "src" => ip.src.to_string(),
            "dst" => ip.dst.to_string(),
            _ => return None,
        },
        ("TCP", Layer::Tcp(tcp)) => match field {
            "sport" => tcp.sport.to_string(),
            "dport" => tcp.dport.to_string(),
            "seq" => tcp.seq.to_string(),
            "ack" => tcp.ack.to_string(),
            "dataofs" => tcp.dataofs.unwrap_or(tcp_words(tcp)).to_string(),
            "reserved" => tcp.reserved.to_string(),
            "flags" => flags_text(tcp.flags),
            "window" => tcp.window.to_string(),
            "urgptr" => tcp.urgptr.to_string(),
            "load" => String::from_utf8_lossy(&tcp.load).into_owned(),
            _ => {
                let (kind, _) = option(field)?;
                let value = tcp.options.iter().find(|(own, _)| *own == kind).map(|(_, value)| value);
                value.map_or_else(String::new, |value| number(value).to_string())
            }
        },
        ("UDP", Layer::Udp(udp)) => match field {
            "sport" => udp.sport.to_string(),
            "dport" => udp.dport.to_string(),
            "len" => udp.len.unwrap_or(8 + udp.load.len() as u16).to_string(),
            "load" => String::from_utf8_lossy(&udp.load).into_owned(),
            _ => return None,
        },
        _ => return None,
    })
}

fn tcp_words(tcp: &Segment) -> u8 {
    let length: usize =
        tcp.options.iter().map(|(kind, value)| 1 + usize::from(*kind > 1) + value.len()).sum();
    5 + length.div_ceil(4) as u8
}

fn number(value: &[u8]) -> u64 {
    value.iter().take(4).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Sets a field; an unknown field, or one of an absent protocol, is ignored.
pub fn set(packet: &mut Packet, protocol: &str, field: &str, value: &str) {
    let amount = value.parse::<i64>().unwrap_or(0);
    let ip = &mut packet.ip;
    match (protocol, &mut packet.layer) {
        ("IP" | "IPv6", _) => match field {
            "version" => ip.fixed.version = Some(amount as u8 & 15),
            "ihl" => ip.fixed.ihl = Some(amount as u8 & 15),
            "tos" => ip.tos = amount as u8,
            "len" => ip.fixed.len = Some(amount as u16),
            "id" => ip.id = amount as u32,
            "flags" => ip.fixed.flags = Some(ip_flags(value)),
            "frag" => ip.fixed.frag = Some(amount as u16),
            "ttl" => ip.ttl = amount as u8,
            "proto" => ip.fixed.proto = Some(amount as u8),
            "chksum" => ip.fixed.chksum = Some(amount as u16),
            "src" | "dst" => {
                let own = if field == "src" { &mut ip.src } else { &mut ip.dst };
                match value.parse::<std::net::IpAddr>() {
                    Ok(address) if address.is_ipv4() == own.is_ipv4() => *own = address,
                    _ => {}
                }
            }
            _ => {}
        },
        ("TCP", Layer::Tcp(tcp)) => match field {
            "sport" => tcp.sport = amount as u16,
            "dport" => tcp.dport = amount as u16,
            "seq" => tcp.seq = amount as u32,
            "ack" => tcp.ack = amount as u32,
            "dataofs" => tcp.dataofs = Some(amount as u8 & 15),
            "reserved" => tcp.reserved = amount as u8 & 7,
            "flags" => tcp.flags = flags_of(value),
            "window" => tcp.window = amount as u16,
            "chksum" => tcp.chksum = Some(amount as u16),
            "urgptr" => tcp.urgptr = amount as u16,
            "load" => tcp.load = value.as_bytes().to_vec(),
            _ => {
                if let Some((kind, length)) = option(field) {
                    set_option(tcp, kind, option_value(value, amount, length));
                }
            }
        },
        ("UDP", Layer::Udp(udp)) => match field {
            "sport" => udp.sport = amount as u16,
            "dport" => udp.dport = amount as u16,
            "len" => udp.len = Some(amount as u16),
            "chksum" => udp.chksum = Some(amount as u16),
            "load" => udp.load = value.as_bytes().to_vec(),
            _ => {}
        },
        _ => {}
    }
}

fn ip_flags(text: &str) -> u8 {
    match text.parse::<u8>() {
        Ok(number) => number & 7,
        Err(_) => {
            u8::from(text.contains("MF"))
                | u8::from(text.contains("DF")) << 1
                | u8::from(text.contains("evil")) << 2
        }
    }
}

/// An option's value: hexadecimal digits if it is longer than a number, else a number.
fn option_value(text: &str, amount: i64, length: usize) -> Vec<u8> {
    if length > 8 || text.len() == 2 * length && length > 4 {
        let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
        return digits.chunks(2).map(|pair| pair.iter().fold(0, |n, d| n << 4 | *d as u8)).collect();
    }
    let bytes = (amount as u64).to_be_bytes();
    match length {
        // A timestamp and an echo of zero.
        8 => [&bytes[4..], &[0; 4]].concat(),
        _ => bytes[8 - length.min(8)..].to_vec(),
    }
}

fn set_option(tcp: &mut Segment, kind: u8, value: Vec<u8>) {
    match tcp.options.iter_mut().find(|(own, _)| *own == kind) {
        Some((_, own)) => *own = value,
        None => tcp.options.push((kind, value)),
    }
    // Another option changes the header length.
    (tcp.dataofs, tcp.chksum) = (None, None);
}

/// A random value as text; `None` for a field without random values.
#[must_use]
pub fn random(packet: &Packet, protocol: &str, field: &str, random: &mut Random) -> Option<String> {
    Some(match (protocol, field) {
        ("TCP", "flags") if random.percent(50) => {
            (*random.pick(&["S", "A", "SA", "PA", "FA", "R", "P", "F", "RA", ""])).to_owned()
        }
        ("TCP", "flags") => flags_text(random.below(512) as u16),
        ("TCP", "dataofs") => random.within(1, 15).to_string(),
        ("TCP", "window") => (random.within(1, 19) * 10).to_string(),
        (_, "chksum") => random.within(1, 65_535).to_string(),
        ("TCP" | "UDP", "load") => {
            // Half of the time as long as before.
            let before = get(packet, protocol, "load").map_or(0, |load| load.len());
            let length = if random.percent(50) && before > 0 { before } else { random.within(1, 40) };
            String::from_utf8_lossy(&random.letters(length)).into_owned()
        }
        ("TCP", "seq" | "ack") => (random.draw() as u32).to_string(),
        ("TCP", _) if field.starts_with("options-") => {
            let (_, length) = option(field)?;
            match length {
                0 => String::new(),
                16 => random.bytes(16).iter().map(|byte| format!("{byte:02x}")).collect(),
                _ => (random.draw() as u32).to_string(),
            }
        }
        ("IP" | "IPv6", "flags") => random.below(8).to_string(),
        ("IP" | "IPv6", "src" | "dst") => return None,
        _ => (random.draw() as u16).to_string(),
    })
}
