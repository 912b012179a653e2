// SPDX-License-Identifier: Apache-2.0
//! DNS conversations over UDP and TCP.

use crate::scene::{Scene, Target};
use crate::talk::{Message, Way};
use crate::text::name;
use bartizan_testkit::random::Random;

/// One to three questions and their answers.
#[must_use]
pub fn scene(random: &mut Random) -> Scene {
    let udp = random.percent(60);
    let (mut messages, mut targets) = (Vec::new(), Vec::new());
    let proto =
        |random: &mut Random| *random.pick(if udp { &["dns", "dns", "udp"] } else { &["dns", "dns", "tcp"] });
    for _ in 0..*random.pick(&[1, 1, 2, 3]) {
        let text = format!("{}.{}.com", name(random, 1), name(random, 2));
        let kind = *random.pick(&[1_u16, 28, 16, 5, 15, 255]);
        let id = random.draw() as u16;
        let query = message(id, *random.pick(&[0x0100, 0x0100, 0x0000, 0x1100, 0x2900]), &text, kind, &[]);
        let code = *random.pick(&[0_u16, 0, 0, 3, 2, 5]);
        let address = random.bytes(4);
        let answers: Vec<(u16, Vec<u8>)> = match code {
            0 => vec![
                (1, address),
                (16, [&[3][..], b"abc"].concat()),
                (5, labels(&format!("{}.net", name(random, 1)))),
            ],
            _ => Vec::new(),
        };
        let some = random.below(answers.len() + 1);
        let answer = message(id, 0x8180 | code, &text, kind, &answers[..some]);
        for (to_server, bytes) in [(true, &query), (false, &answer)] {
            let head = proto(random);
            targets.push(Target {
                proto: head,
                buffer: "dns.query",
                data: text.clone().into_bytes(),
                to_server,
            });
            targets.push(Target {
                proto: head,
                buffer: "dns.queries.rrname",
                data: text.clone().into_bytes(),
                to_server,
            });
            targets.push(Target { proto: head, buffer: "", data: bytes.clone(), to_server });
            if !to_server && some > 0 {
                targets.push(Target {
                    proto: head,
                    buffer: "dns.answers.rrname",
                    data: text.clone().into_bytes(),
                    to_server,
                });
            }
        }
        let mut pair = [query, answer];
        if udp && random.percent(10) {
            let cut = random.within(1, pair[0].len());
            pair[0].truncate(cut);
        }
        for (to_server, mut bytes) in [true, false].into_iter().zip(pair) {
            if !udp {
                let mut framed = (bytes.len() as u16).to_be_bytes().to_vec();
                framed.append(&mut bytes);
                bytes = framed;
            }
            messages.push(Message::new(to_server, bytes));
        }
    }
    if random.percent(10) {
        messages.pop();
    }
    Scene { messages, way: Way { udp, port: 53, ..Way::default() }, targets, beside: Vec::new() }
}

/// Additional conditions of DNS rules.
pub const CONDITIONS: &[&str] = &[
    "dns.opcode:0",
    "dns.opcode:!0",
    "dns.opcode:2",
    "dns.rcode:0",
    "dns.rcode:3",
    "dns.rcode:!0",
    "dns.rcode:1-5",
    "dns.rrtype:1",
    "dns.rrtype:A",
    "dns.rrtype:!28",
    "dns.rrtype:>15",
    "app-layer-event:dns.malformed_data",
    "app-layer-event:dns.not_request",
    "app-layer-event:dns.z_flag_set",
    "app-layer-event:dns.invalid_opcode",
];

/// Whether a datagram ends within its first question.
#[must_use]
pub fn is_cut_short(query: &[u8]) -> bool {
    let Some(mut rest) = query.get(12..) else { return true };
    while let [length @ 1..64, after @ ..] = rest {
        let Some(label) = after.get(usize::from(*length)..) else { return true };
        rest = label;
    }
    // The end of the name, then the question's type and class.
    rest.len() < 1 + 2 + 2
}

fn labels(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in name.split('.') {
        bytes.push(label.len() as u8);
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.push(0);
    bytes
}

fn message(id: u16, flags: u16, name: &str, kind: u16, answers: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [id, flags, 1, answers.len() as u16, 0, 0] {
        bytes.extend_from_slice(&word.to_be_bytes());
    }
    bytes.extend(labels(name));
    for word in [kind, 1] {
        bytes.extend_from_slice(&word.to_be_bytes());
    }
    for (kind, data) in answers {
        bytes.extend_from_slice(&[0xc0, 12]);
        for word in [*kind, 1, 0, 60, data.len() as u16] {
            bytes.extend_from_slice(&word.to_be_bytes());
        }
        bytes.extend_from_slice(data);
    }
    bytes
}
