// SPDX-License-Identifier: Apache-2.0
//! Entries of the tables that levels below the host read: of flows, and of a packet filter's rules and
//! outcomes.
//!
//! Source: UniSec (tables of header halves), PASS (at most two dependent lookups, 128 bytes an entry). Like
//! the [metadata](crate::metadata) they are a contract: Rust, C (`ebpf/`) and SystemVerilog (`hw/rtl/`) are
//! generated from one description: `cargo xtask generate`, `tests/table_headers.rs`.
//! docs/design/0014-header-halves.md lists the readers of each table.
//!
//! No packet needs more than two lookups, the second of which depends on the first:
//!
//! | function | first | second |
//! |---|---|---|
//! | `pfw` | its rules by headers, or the host's classifier: the place of an outcome | [`RuleEntry`] by that place |
//! | `sfw` | [`FlowEntry`] by key: the state | the transition by state and class of the segment |
//!
//! Not done: entries of the other functions; nothing below the host reads them yet.

use crate::layout::{Layout, layout};

/// The longest entry, in bytes: a device reads so much at once.
pub const ENTRY_MAX: usize = 128;

/// Every entry.
pub const ENTRIES: &[Layout] = &[FlowEntry::LAYOUT, MatchEntry::LAYOUT, RuleEntry::LAYOUT];

layout! {
    /// A flow. The first 56 bytes are its key, equal for both directions: the lower endpoint comes first.
    FlowEntry, "flow", 128 {
        low_address_high: u64 ["LOW_ADDRESS_HIGH"] @ 0, "Lower address, upper half; 0 of IPv4.";
        low_address_low: u64 ["LOW_ADDRESS_LOW"] @ 8, "Lower address, lower half.";
        high_address_high: u64 ["HIGH_ADDRESS_HIGH"] @ 16, "Higher address, upper half.";
        high_address_low: u64 ["HIGH_ADDRESS_LOW"] @ 24, "Higher address, lower half.";
        tunnel: u64 ["TUNNEL"] @ 32, "Kind and number of the innermost tunnel; 0 outside of tunnels.";
        low_port: u16 ["LOW_PORT"] @ 40, "Port of the lower endpoint.";
        high_port: u16 ["HIGH_PORT"] @ 42, "Port of the higher endpoint.";
        tenant: u16 ["TENANT"] @ 44, "Whose it is.";
        link: u16 ["LINK"] @ 46, "What its packets enter by.";
        protocol: u8 ["PROTOCOL"] @ 48, "IP protocol.";
        ip_level: u8 ["IP_LEVEL"] @ 49, "IP headers before the one that counts.";
        key_flags: u8 ["KEY_FLAGS"] @ 50, "1: IPv6; 2, 4: of one direction, from the lower or the higher endpoint; 8, 16: the lower one is on the link's first or second side.";
        vlans_low: u8 ["VLANS_LOW"] @ 51, "VLAN ids, 12 bits each, the outermost lowest: their lowest 8 bits.";
        vlans: u32 ["VLANS"] @ 52, "The rest of the VLAN ids.";
        fid: u32 ["FID"] @ 56, "Flow class.";
        path: u32 ["PATH"] @ 60, "Functions that its packets still visit, a bit each.";
        last_seen: u64 ["LAST_SEEN"] @ 64, "When the latest packet came, in nanoseconds of the port's epoch.";
        next_to_server: u32 ["NEXT_TO_SERVER"] @ 72, "TCP: the client's next sequence number.";
        acknowledged_to_server: u32 ["ACKNOWLEDGED_TO_SERVER"] @ 76, "TCP: what of the client's is acknowledged.";
        edge_to_server: u32 ["EDGE_TO_SERVER"] @ 80, "TCP: right edge of the window that the client may send into.";
        next_to_client: u32 ["NEXT_TO_CLIENT"] @ 84, "TCP: the server's next sequence number.";
        acknowledged_to_client: u32 ["ACKNOWLEDGED_TO_CLIENT"] @ 88, "TCP: what of the server's is acknowledged.";
        edge_to_client: u32 ["EDGE_TO_CLIENT"] @ 92, "TCP: right edge of the window that the server may send into.";
        bytes_to_server: u64 ["BYTES_TO_SERVER"] @ 96, "Bytes of frames to the server since the host last read them.";
        bytes_to_client: u64 ["BYTES_TO_CLIENT"] @ 104, "Bytes of frames to the client since the host last read them.";
        packets_to_server: u32 ["PACKETS_TO_SERVER"] @ 112, "Packets to the server since the host last read them, which it does before they can wrap.";
        packets_to_client: u32 ["PACKETS_TO_CLIENT"] @ 116, "Packets to the client since the host last read them.";
        generation: u8 ["GENERATION"] @ 120, "Low 8 bits of the generation that decided; a packet of another one goes up.";
        flags: u8 ["FLAGS"] @ 121, "See the flags of flow entries.";
        state: u8 ["STATE"] @ 122, "TCP: state of the connection, as rows of the transitions are numbered.";
        action: u8 ["ACTION"] @ 123, "What to do with its packets: an action of the metadata.";
        reason: u8 ["REASON"] @ 124, "Why, where they are dropped: number of the reason.";
        timeout: u8 ["TIMEOUT"] @ 125, "Which timeout holds: new, established, closed.";
        scale_to_server: u8 ["SCALE_TO_SERVER"] @ 126, "TCP: shift of the windows that the client offers.";
        scale_to_client: u8 ["SCALE_TO_CLIENT"] @ 127, "TCP: shift of the windows that the server offers.";
    }
}

layout! {
    /// The headers that a rule matches: one of the rule's alternatives. The first entry that matches
    /// decides.
    MatchEntry, "match", 64 {
        source_high: u64 ["SOURCE_HIGH"] @ 0, "Source network, upper half; 0 of IPv4.";
        source_low: u64 ["SOURCE_LOW"] @ 8, "Source network, lower half.";
        destination_high: u64 ["DESTINATION_HIGH"] @ 16, "Destination network, upper half; 0 of IPv4.";
        destination_low: u64 ["DESTINATION_LOW"] @ 24, "Destination network, lower half.";
        source_first: u16 ["SOURCE_FIRST"] @ 32, "First source port; of ICMP the type.";
        source_last: u16 ["SOURCE_LAST"] @ 34, "Last source port.";
        destination_first: u16 ["DESTINATION_FIRST"] @ 36, "First destination port; of ICMP the code.";
        destination_last: u16 ["DESTINATION_LAST"] @ 38, "Last destination port.";
        tenant: u16 ["TENANT"] @ 40, "Whose it is, if that counts.";
        link: u16 ["LINK"] @ 42, "What it enters by, if that counts.";
        source_length: u8 ["SOURCE_LENGTH"] @ 44, "Bits of the source network.";
        destination_length: u8 ["DESTINATION_LENGTH"] @ 45, "Bits of the destination network.";
        protocol: u8 ["PROTOCOL"] @ 46, "IP protocol, if that counts.";
        flags: u8 ["FLAGS"] @ 47, "See the flags of match entries.";
        fid: u32 ["FID"] @ 48, "Class of flows that it holds for.";
        outcome: u32 ["OUTCOME"] @ 52, "Place of its outcome in the table of rules.";
        generation: u8 ["GENERATION"] @ 56, "Low 8 bits of the generation.";
    }
}

layout! {
    /// The outcome of a rule of the packet filter for the packets that it decides.
    RuleEntry, "rule", 16 {
        rule: u32 ["RULE"] @ 0, "Number of the rule within its policy, from 1; 0 is the default.";
        counter: u32 ["COUNTER"] @ 4, "Place of its counter: packets that it decided.";
        verdict: u8 ["VERDICT"] @ 8, "Number of the verdict: continue, drop or reject.";
        reason: u8 ["REASON"] @ 9, "Why, where they are refused: number of the reason.";
        flags: u8 ["FLAGS"] @ 10, "See the flags of rule entries.";
        generation: u8 ["GENERATION"] @ 11, "Low 8 bits of the generation.";
        egress: u8 ["EGRESS"] @ 12, "Number of the named port that packets leave by, if they are redirected.";
    }
}

macro_rules! flags {
    ($(#[doc = $doc:literal])+ $type:ident, $list:ident {
        $($(#[doc = $what:literal])+ $name:ident = $bit:literal,)+
    }) => {
        bitflags::bitflags! {
            $(#[doc = $doc])+
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
            pub struct $type: u8 { $($(#[doc = $what])+ const $name = 1 << $bit;)+ }
        }

        /// Every flag of these entries: bit, name, meaning.
        pub const $list: &[(u8, &str, &str)] =
            &[$(($type::$name.bits(), stringify!($name), concat!($($what),+).trim_ascii()),)+];
    };
}

pub(crate) use flags;

flags! {
    /// Flags of flow entries.
    FlowEntryFlags, FLOW_FLAGS {
        /// The entry holds a flow. Set last, and cleared first.
        VALID = 0,
        /// The client is the higher endpoint.
        CLIENT_IS_HIGH = 1,
        /// The policy checks that numbers are in the window.
        WINDOW_CHECK = 2,
        /// Packets of both directions were seen.
        BOTH_SEEN = 3,
    }
}

flags! {
    /// Flags of match entries.
    MatchEntryFlags, MATCH_FLAGS {
        /// The entry is valid. Set last, and cleared first.
        VALID = 0,
        /// The tenant counts.
        TENANT = 1,
        /// The link counts.
        LINK = 2,
        /// The source network counts.
        SOURCE = 3,
        /// The destination network counts.
        DESTINATION = 4,
        /// The protocol counts.
        PROTOCOL = 5,
        /// The networks are of IPv6.
        IPV6 = 6,
    }
}

flags! {
    /// Flags of rule entries.
    RuleEntryFlags, RULE_FLAGS {
        /// The entry is valid. Set last, and cleared first.
        VALID = 0,
        /// ICMP is decided packet by packet, since rules of its class test codes, which may change within a
        /// flow.
        EACH_ICMP = 1,
        /// Packets that pass leave by the named port `egress`, and not by the one across their link.
        REDIRECT = 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn entries_are_short_and_their_fields_do_not_overlap() {
        for entry in ENTRIES {
            assert!(entry.len <= ENTRY_MAX && entry.len.is_power_of_two(), "{}", entry.name);
            let mut end = 0;
            for field in entry.fields {
                assert_eq!(field.offset, end, "{}.{}", entry.name, field.name);
                assert_eq!(field.offset % field.len, 0, "{}.{}", entry.name, field.name);
                end += field.len;
            }
            assert!(end <= entry.len, "{}", entry.name);
        }
    }

    #[test]
    fn each_field_stands_where_it_is_said_to() {
        let mut bytes = [0; RuleEntry::LEN];
        bytes.iter_mut().zip(1..).for_each(|(byte, value)| *byte = value);
        let entry = RuleEntry {
            rule: 0x0403_0201,
            counter: 0x0807_0605,
            verdict: 9,
            reason: 10,
            flags: 11,
            generation: 12,
            egress: 13,
        };
        assert_eq!(RuleEntry::read(&bytes), entry);
        bytes[13..].fill(0);
        assert_eq!(entry.write(), bytes);
    }

    proptest! {
        #[test]
        fn a_flow_is_read_as_it_was_written(bytes: [[u8; 32]; 4]) {
            let bytes: [u8; FlowEntry::LEN] = bytes.concat().try_into().unwrap();
            prop_assert_eq!(FlowEntry::read(&bytes).write(), bytes);
        }
    }
}
