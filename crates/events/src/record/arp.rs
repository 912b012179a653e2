// SPDX-License-Identifier: Apache-2.0
//! `arp`: one event for each ARP packet.

use super::declared::record;
use std::net::IpAddr;

record! {
    /// An ARP packet for IPv4 over Ethernet.
    pub struct ArpRecord<'a> = "arp" {
        /// Kind of hardware address.
        pub hw_type: &'a str,
        /// Kind of protocol address.
        pub proto_type: &'a str,
        /// The packet's operation.
        pub opcode: &'a str,
        /// Sender's hardware address.
        pub src_mac: [u8; 6],
        /// Sender's protocol address.
        pub src_ip: IpAddr,
        /// Target's hardware address.
        pub dest_mac: [u8; 6],
        /// Target's protocol address.
        pub dest_ip: IpAddr,
    }
}
