// SPDX-License-Identifier: Apache-2.0
//! Records of declared events that a packet gives.

use bartizan_events::record::ArpRecord;
use bartizan_packet::Arp;

/// The record of an ARP packet. The decoder knows Ethernet and IPv4 only, and no other operations.
pub(super) fn arp_record(arp: &Arp) -> ArpRecord<'static> {
    ArpRecord {
        hw_type: "ethernet",
        proto_type: "ipv4",
        opcode: match arp.operation {
            1 => "request",
            2 => "reply",
            3 => "request_reverse",
            _ => "reply_reverse",
        },
        src_mac: arp.sender_mac,
        src_ip: arp.sender.into(),
        dest_mac: arp.target_mac,
        dest_ip: arp.target.into(),
    }
}
