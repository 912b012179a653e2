// SPDX-License-Identifier: Apache-2.0
//! A flow's class: looked up with its first packet, and again when the inputs of the lookup change.

use crate::chain::{Chains, Class};
use crate::flow_ext::FlowExt;
use crate::record::Entry;
use bartizan_base::Direction;
use bartizan_function::header::{header_of_flow, icmp_numbers};
use bartizan_packet::Decoded;

/// Looks up a flow: returns its class and stores the results of functions' header rules in the entry.
pub fn classify_flow(chains: &Chains, entry: &mut Entry) -> Class {
    let header = header_of_flow(entry.key(), entry.ext.matched_icmp);
    chains.classifier.classify(&header, entry.last_seen, &mut entry.ext.matches)
}

/// Repeats the lookup of functions' header rules for an ICMP flow whose current packet has another type or
/// code. All other flows keep the result of their first packet.
pub fn renew_matches(chains: &Chains, entry: &mut Entry, packet: &Decoded, direction: Direction) {
    if !entry.key().is_icmp() {
        return;
    }
    let numbers = icmp_numbers(packet, direction);
    if entry.ext.matched_icmp != numbers {
        entry.ext.matched_icmp = numbers;
        classify_flow(chains, entry);
    }
}

/// Swaps client and server of a flow whose content shows that it was picked up in the wrong direction.
pub fn turn(chains: &Chains, entry: &mut Entry) {
    let FlowExt { session, streams, app, .. } = &mut entry.ext;
    session.reverse();
    if let Some(pair) = streams.as_deref_mut() {
        pair.reverse();
    }
    if let Some(app) = app.as_deref_mut() {
        app.turn();
    }
    reverse(chains, entry);
}

/// Swaps client and server of a flow that was picked up in the wrong direction, where its session has turned
/// itself, or has no data yet.
pub fn reverse(chains: &Chains, entry: &mut Entry) {
    entry.flip();
    entry.ext.turn();
    // Policies hold for both directions, rules for the side that opens a flow; names are kept by side and
    // looked up again.
    entry.ext.matches.clear();
    classify_flow(chains, entry);
}
