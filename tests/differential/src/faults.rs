// SPDX-License-Identifier: Apache-2.0
//! Planted faults: the program gets rules or packets that make it answer as if it had the fault. The
//! comparison must find each kind.

use crate::pair::{Body, Pair};
use std::collections::BTreeMap;

/// A fault.
pub struct Fault {
    /// Description of the fault.
    pub name: &'static str,
    /// Changes a pair so that the program behaves as with the fault.
    pub plant: fn(&mut Pair),
}

/// One fault of each kind.
pub const FAULTS: &[Fault] = &[
    Fault {
        name: "letter case: `nocase` has no effect",
        plant: |pair| options(pair, |o| if o == "nocase" { String::new() } else { o }),
    },
    Fault {
        name: "places: `depth` and `within` reach one byte too far",
        plant: |pair| options(pair, |o| more(&more(&o, "depth:"), "within:")),
    },
    Fault { name: "reassembly: segments that are out of order are lost", plant: out_of_order },
    Fault {
        name: "counting: thresholds begin one match too late",
        plant: |pair| options(pair, |o| more(&o, "count ")),
    },
    Fault {
        name: "state: a flowbit that is not set counts as set",
        plant: |pair| options(pair, |o| o.replace("flowbits:isnotset", "flowbits:isset")),
    },
    Fault {
        name: "normalisation: the URI is looked at as it was sent",
        plant: |pair| options(pair, |o| if o == "http.uri" { "http.uri.raw".into() } else { o }),
    },
    Fault {
        name: "negation: what must not be there is not looked for within a place",
        plant: |pair| {
            for rule in &mut pair.rules {
                let denies = |option: &String| option.starts_with("content:!");
                let bounds =
                    |option: &String| option.starts_with("distance:") || option.starts_with("within:");
                let mut behind = false;
                rule.options.retain(|option| {
                    let drops = behind && bounds(option);
                    behind = denies(option) || drops;
                    !drops
                });
            }
        },
    },
    Fault {
        name: "absence: a buffer that may be absent has to be there",
        plant: |pair| options(pair, |o| o.replace("absent:or_else; ", "")),
    },
    Fault {
        name: "basis: an address beside a payload binds a rule to packets",
        plant: |pair| {
            for rule in &mut pair.rules {
                let names = |option: &String| option.starts_with("ip.src") || option.starts_with("ip.dst");
                // A packet condition cannot stand next to a transaction.
                let parsed = |option: &String| {
                    ["http", "tls", "dns", "file", "ja3", "ja4"].iter().any(|name| option.starts_with(name))
                };
                if rule.options.iter().any(names) && !rule.options.iter().any(parsed) {
                    rule.options.insert(0, "dsize:<65000".into());
                }
            }
        },
    },
    Fault {
        name: "ports: a packet without ports meets a list of ports",
        plant: |pair| {
            for rule in &mut pair.rules {
                if let [proto @ ("ip" | "udp"), from, _, arrow, to, _] =
                    rule.head.split(' ').collect::<Vec<_>>().as_slice()
                {
                    rule.head = format!("{proto} {from} any {arrow} {to} any");
                }
            }
        },
    },
    Fault {
        name: "state: what toggles a bit sets it",
        plant: |pair| options(pair, |o| o.replace("bits:toggle", "bits:set")),
    },
    Fault {
        name: "protocol: the side that a protocol is asked of is the packet's",
        plant: |pair| {
            options(pair, |o| o.replace(",to_server", "").replace(",to_client", "").replace(",final", ""));
        },
    },
    Fault {
        name: "emptiness: a value without bytes is not there",
        plant: |pair| options(pair, |o| o.replace("bsize:0", "bsize:0; bsize:1")),
    },
    Fault {
        name: "prevention: what is to be dropped passes",
        plant: |pair| pair.rules.iter_mut().filter(|r| r.action == "drop").for_each(|r| r.action = "alert"),
    },
];

fn options(pair: &mut Pair, change: fn(String) -> String) {
    for rule in &mut pair.rules {
        rule.options = rule.options.drain(..).map(change).filter(|option| !option.is_empty()).collect();
    }
}

/// Adds one to the number after `word`.
fn more(option: &str, word: &str) -> String {
    let Some(at) = option.find(word).map(|at| at + word.len()) else { return option.into() };
    let (head, rest) = option.split_at(at);
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    match rest[..digits].parse::<u64>() {
        Ok(number) => format!("{head}{}{}", number + 1, &rest[digits..]),
        Err(_) => option.into(),
    }
}

/// Gives out-of-order segments a wrong checksum.
fn out_of_order(pair: &mut Pair) {
    let mut next: BTreeMap<(u8, u16, bool), u32> = BTreeMap::new();
    for packet in &mut pair.packets {
        let key = (packet.client, packet.flow, packet.to_server);
        let Body::Tcp(segment) = &mut packet.body else { continue };
        let length = segment.load.len() as u32 + u32::from(segment.flags & 2 != 0);
        match next.get(&key) {
            Some(due) if length > 0 && segment.seq.wrapping_sub(*due) as i32 > 0 => segment.chksum_error = 1,
            _ => {
                next.insert(key, segment.seq.wrapping_add(length));
            }
        }
    }
}
