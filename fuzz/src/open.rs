// SPDX-License-Identifier: Apache-2.0
//! Flows whose protocol is not detected yet: a conversation is sent in whole pieces and cut into segments;
//! the protocol and all results of its parser are the same, and no byte waits for ever.
//!
//! Left out are port 53, where a few more bytes may look like another protocol, cuts with a meaning of their
//! own (`split`), and one event of HTTP that depends on the order of the sides (`ORDER`).

use crate::planted::planted;
use crate::protocol::{look, pieces};
use crate::split::cuts::{self, Player};
use crate::take::Take;
use bartizan_applayer::file::FileSettings;
use bartizan_applayer::flow::{AppLayer, DetectedProtocol, Engine, FlowInfo};
use bartizan_applayer::protocol::{Input, ParseContext, Parser, Progress, ProtocolSpec, Transport};
use bartizan_applayer::protocols;
use bartizan_applayer::transaction::{Transaction, TxId};
use bartizan_applayer::worklist::Worklist;
use bartizan_base::{Direction, PerDirection, SettingsMap, Timestamp};
use feeder::Feeder;

#[path = "../../crates/applayer/src/suite/feeder.rs"]
mod feeder;

/// The event of an answer before the request's line is whole. The answer waits until the protocol is
/// detected, and is parsed after the client's bytes of that time: depending on the cut the whole line or its
/// beginning.
const ORDER: &str = "REQUEST_LINE_INCOMPLETE";

/// The transactions as text ([`look`]), without that event.
fn without_order(spec: &ProtocolSpec, mut seen: Vec<String>) -> Vec<String> {
    let code = spec.events.iter().position(|name| *name == ORDER);
    for text in &mut seen {
        let Some(codes) = text.strip_prefix('[').and_then(|codes| codes.strip_suffix(']')) else { continue };
        let others = codes.split(", ").filter(|event| code.is_none() || event.parse().ok() != code);
        *text = format!("[{}]", others.collect::<Vec<_>>().join(", "));
    }
    seen
}

/// Sends the conversation twice, and compares the results.
pub fn run(data: &[u8]) {
    let engine = Engine::new(&SettingsMap::new(), FileSettings::default()).expect("the built-in settings");
    let mut take = Take(data);
    let kind = take.byte();
    let port = if kind & 1 == 0 { 80 } else { 443 };
    let lengths: Vec<usize> = take.bytes(4).iter().map(|cut| usize::from(*cut) % 40 + 1).collect();
    let pieces: Vec<_> =
        pieces(&mut take).into_iter().map(|(direction, bytes, _)| (direction, bytes)).collect();
    if lengths.is_empty() {
        return;
    }
    let mut lengths = lengths.iter().copied().cycle();
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
    let make = || if kind & 2 == 0 { Feeder::new(&engine, port) } else { Feeder::passive(&engine, port) };
    // Only protocols with such an entry in the table have cuts with a meaning: HTTP.
    let (_, http) = protocols::all().find(|(_, spec)| spec.has_trailing_bytes).expect("HTTP is in the table");
    let [whole, cut] = [none, offsets].map(|offsets| {
        let mut flow = cuts::play(http, make, &pieces, &offsets);
        flow.finish();
        let known = flow.app.protocol();
        if matches!(known, DetectedProtocol::Protocol(_))
            && !flow.app.finished()
            && flow.app.original().is_none()
        {
            let waits = Direction::BOTH.map(|direction| flow.app.waits(direction));
            assert_eq!(waits, [false, false], "bytes wait for ever");
        }
        let spec = known.protocol().and_then(protocols::spec);
        (known, spec.map(|spec| without_order(spec, look(spec, flow.parser()))))
    });
    assert_eq!(whole, cut, "cut at {lengths:?}");
    let is_odd = pieces.first().is_some_and(|(_, bytes)| bytes.starts_with(b"\n"));
    planted(is_odd && whole.0.protocol().is_some());
}
