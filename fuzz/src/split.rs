// SPDX-License-Identifier: Apache-2.0
//! A stream parser parses the same conversation whole and cut into pieces: all visible results are equal.
//!
//! This includes malformed messages; the one cut with a meaning is left out (`suite/cuts.rs` of the
//! application layer).

use crate::planted::planted;
use crate::protocol::{Driver, choices, pieces};
use crate::take::Take;
use bartizan_applayer::protocol::{Parser, ProtocolSpec, Transport};
use bartizan_base::Direction;

#[path = "../../crates/applayer/src/suite/cuts.rs"]
pub(crate) mod cuts;

impl cuts::Player for Driver {
    fn send(&mut self, direction: Direction, data: &[u8]) {
        Driver::send(self, direction, data);
    }

    fn parser(&mut self) -> &mut dyn Parser {
        Driver::parser(self)
    }
}

/// Sends the conversation twice, and compares the results.
pub fn run(data: &[u8]) {
    let choices: Vec<_> =
        choices().into_iter().filter(|(_, transport)| *transport == Transport::Tcp).collect();
    let mut take = Take(data);
    let (spec, transport) = choices[usize::from(take.byte()) % choices.len()];
    let cuts: Vec<usize> = take.bytes(4).iter().map(|cut| usize::from(*cut) % 40 + 1).collect();
    let pieces: Vec<_> =
        pieces(&mut take).into_iter().map(|(direction, bytes, _)| (direction, bytes)).collect();
    if cuts.is_empty() {
        return;
    }
    let mut lengths = cuts.iter().copied().cycle();
    let offsets = |(_, bytes): &(Direction, &[u8])| {
        let mut at = 0;
        let next = || {
            at += lengths.next().unwrap_or(1);
            (at < bytes.len()).then_some(at)
        };
        core::iter::from_fn(next).collect()
    };
    let offsets: Vec<Vec<usize>> = pieces.iter().map(offsets).collect();
    let none = vec![Vec::new(); pieces.len()];
    let [whole, cut] = [none, offsets].map(|offsets| {
        let mut driver = cuts::play(spec, || Driver::new(spec, transport), &pieces, &offsets);
        driver.finish();
        driver.outcome()
    });
    assert_eq!(whole, cut, "{} cut at {cuts:?}", spec.name);
    let record = |line: &String| line.contains("\"http_method\":\"G") && !line.contains("GET");
    planted(spec.name == "http" && whole.iter().any(record));
}
