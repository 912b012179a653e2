// SPDX-License-Identifier: Apache-2.0
//! A flow's class: looked up with its first packet, and again where what the lookup rests on has changed.

use crate::chain::{Chains, Class};
use crate::record::Entry;
use bartizan_base::Direction;
use bartizan_function::header::{header_of_flow, icmp_numbers};
use bartizan_packet::Decoded;

/// Looks a flow up: gives its class and keeps what functions' rules on headers say of it.
pub fn look_up(chains: &Chains, entry: &mut Entry) -> Class {
    let header = header_of_flow(entry.key(), entry.ext.matched_icmp);
    chains.classifier.classify(&header, entry.last_seen, &mut entry.ext.matches)
}

/// What functions' rules on headers say is that of a flow's first packet, except for ICMP, where it is that
/// of the packet in hand.
pub fn renew_matches(chains: &Chains, entry: &mut Entry, packet: &Decoded, direction: Direction) {
    if !entry.key().is_icmp() {
        return;
    }
    let numbers = icmp_numbers(packet, direction);
    if entry.ext.matched_icmp != numbers {
        entry.ext.matched_icmp = numbers;
        look_up(chains, entry);
    }
}

/// Turns a flow that was picked up the wrong way round.
pub fn reverse(chains: &Chains, entry: &mut Entry) {
    entry.flip();
    entry.ext.turn();
    // Policies hold for both directions, rules for the side that opens a flow; names stand by sides, and are
    // asked for anew.
    entry.ext.matches.clear();
    look_up(chains, entry);
}
