// SPDX-License-Identifier: Apache-2.0
//! The head of every event of a packet or flow, in Suricata's order.

use super::object::object;
use super::own::BartizanFields;
use crate::community_id::community_id;
use crate::config::HeaderOptions;
use crate::names::{linktype_name, protocol_name};
use crate::{JsonWriter, SURICATA_VERSION};
use bartizan_base::Timestamp;
use std::net::IpAddr;

/// Addresses, ports and protocol in the direction of the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuple {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dest: IpAddr,
    /// Source and destination port; `None` when the protocol has no ports.
    pub ports: Option<(u16, u16)>,
    /// IP protocol number.
    pub proto: u8,
}

/// An address from the traffic that replaces one of the tuple's (`xff` with `mode: overwrite`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InPlace<'a> {
    /// The address as the traffic has it.
    pub address: &'a str,
    /// The address replaces the source; else the destination.
    pub of_source: bool,
}

/// The origin of an event's packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventPacketSource {
    /// A port or a capture file.
    #[default]
    Wire,
    /// Decapsulated from GRE.
    Gre,
    /// An inner packet of IPv4 or IPv6 in IPv4.
    Ipv4,
    /// An inner packet of IPv4 or IPv6 in IPv6.
    Ipv6,
    /// Decapsulated from Teredo.
    Teredo,
    /// Decapsulated from GENEVE.
    Geneve,
    /// Decapsulated from VXLAN.
    Vxlan,
    /// Reassembled from fragments.
    Defrag,
    /// No packet: the stream engine finished a direction for inspection.
    StreamFlush,
    /// No packet: the flow ended with data still to be inspected.
    FlowTimeout,
}

impl EventPacketSource {
    /// Every source.
    pub const ALL: [EventPacketSource; 10] = [
        EventPacketSource::Wire,
        EventPacketSource::Gre,
        EventPacketSource::Ipv4,
        EventPacketSource::Ipv6,
        EventPacketSource::Teredo,
        EventPacketSource::Geneve,
        EventPacketSource::Vxlan,
        EventPacketSource::Defrag,
        EventPacketSource::StreamFlush,
        EventPacketSource::FlowTimeout,
    ];

    /// EVE's spelling (`pkt_src`).
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            EventPacketSource::Wire => "wire/pcap",
            EventPacketSource::Gre => "gre tunnel",
            EventPacketSource::Ipv4 => "ipv4 tunnel",
            EventPacketSource::Ipv6 => "ipv6 tunnel",
            EventPacketSource::Teredo => "teredo tunnel",
            EventPacketSource::Geneve => "geneve encapsulation",
            EventPacketSource::Vxlan => "vxlan encapsulation",
            EventPacketSource::Defrag => "defrag",
            EventPacketSource::StreamFlush => "stream (detect/log)",
            EventPacketSource::FlowTimeout => "stream (flow timeout)",
        }
    }
}

/// Ethernet addresses of an event; written if the output enables them (`ethernet: yes`).
#[derive(Clone, Copy, Debug, Default)]
pub enum Ether<'a> {
    /// No Ethernet addresses.
    #[default]
    None,
    /// Addresses of a packet.
    Packet {
        /// Type field of the frame; `None` for events without a packet, which show the flow's addresses.
        ether_type: Option<u16>,
        /// Source address.
        src: [u8; 6],
        /// Destination address.
        dest: [u8; 6],
    },
    /// Addresses of a flow: every address that was seen, in the order of appearance.
    Flow {
        /// Addresses on the source's side.
        src: &'a [[u8; 6]],
        /// Addresses on the destination's side.
        dest: &'a [[u8; 6]],
    },
}

/// Variables that rules have set; written unless the output has `metadata: no`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Variables<'a> {
    /// Names of the flow's set bits. Names that begin with `traffic/id/` and `traffic/label/` form the object
    /// `traffic`.
    pub flowbits: &'a [&'a str],
    /// Flow integers.
    pub flowints: &'a [(&'a str, u64)],
    /// Entropy values, by the name of their buffer.
    pub entropy: &'a [(&'a str, f64)],
    /// Flow variables.
    pub flowvars: &'a [(&'a str, &'a [u8])],
    /// Variables of the packet.
    pub pktvars: &'a [(&'a str, &'a [u8])],
    /// The flow has a variable outside of these lists: the count of a threshold `track by_flow`. Suricata
    /// keeps these counts among the flow's variables, so such events have a `metadata` that may be empty.
    pub unnamed: bool,
}

impl Variables<'_> {
    /// Whether there are no variables.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.flowbits.is_empty()
            && self.flowints.is_empty()
            && self.entropy.is_empty()
            && self.flowvars.is_empty()
            && self.pktvars.is_empty()
            && !self.unnamed
    }

    /// Writes `traffic` (when a bit names one) and `metadata`.
    pub(crate) fn write(&self, w: &mut JsonWriter) {
        if self.is_empty() {
            return;
        }
        let before = w.mark();
        w.object("traffic");
        let empty = w.mark();
        for (key, prefix) in [("id", "traffic/id/"), ("label", "traffic/label/")] {
            string_array(w, key, self.flowbits.iter().filter_map(|bit| bit.strip_prefix(prefix)));
        }
        if w.mark() == empty {
            w.rewind(before);
        } else {
            w.end_object();
        }
        w.object("metadata");
        let plain = |bit: &&str| !bit.starts_with("traffic/id/") && !bit.starts_with("traffic/label/");
        string_array(w, "flowbits", self.flowbits.iter().copied().filter(plain));
        if !self.flowints.is_empty() {
            w.object("flowints");
            for (name, value) in self.flowints {
                w.num(name, *value);
            }
            w.end_object();
        }
        if !self.entropy.is_empty() {
            w.object("entropy");
            for (name, value) in self.entropy {
                w.float(name, *value);
            }
            w.end_object();
        }
        for (key, variables) in [("flowvars", self.flowvars), ("pktvars", self.pktvars)] {
            if variables.is_empty() {
                continue;
            }
            w.array(key);
            for (name, value) in variables {
                w.begin_object();
                w.printable(name, value);
                w.end_object();
            }
            w.end_array();
        }
        w.end_object();
    }
}

/// Writes an array of strings; an empty one is left out.
pub(crate) fn string_array<'s>(w: &mut JsonWriter, key: &str, items: impl Iterator<Item = &'s str>) {
    let before = w.mark();
    w.array(key);
    let empty = w.mark();
    for item in items {
        w.item_str(item);
    }
    if w.mark() == empty {
        w.rewind(before);
    } else {
        w.end_array();
    }
}

object! {
    /// How to read the packet.
    pub(crate) struct PacketInfo<'a> = "packet_info" {
        /// Link type as in capture files.
        linktype: u32,
        /// Name of the link type.
        linktype_name: &'a str,
    }
}

/// Bytes of a packet with their link type.
#[derive(Clone, Copy, Debug)]
pub struct PacketBytes<'a> {
    /// The packet from its first header on.
    pub bytes: &'a [u8],
    /// Link type as in capture files.
    pub linktype: u32,
}

impl PacketBytes<'_> {
    /// Writes `packet` (at most `limit` bytes, in base64) and `packet_info`.
    pub(crate) fn write(&self, w: &mut JsonWriter, limit: usize) {
        let shown = self.bytes.get(..limit).unwrap_or(self.bytes);
        w.base64("packet", shown);
        let (linktype, linktype_name) = (self.linktype, linktype_name(self.linktype));
        PacketInfo { linktype, linktype_name }.write_object(w);
    }
}

/// The head of an event. Times come from the packet clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Common<'a> {
    /// Time of the event.
    pub timestamp: Timestamp,
    /// The flow's id, the same in all its events.
    pub flow_id: Option<u64>,
    /// The flow that this one was expected from (FTP data, DNS over HTTP/2).
    pub parent_id: Option<u64>,
    /// Interface, on a live port.
    pub in_iface: Option<&'a str>,
    /// Number of the packet in its capture, from 1.
    pub pcap_cnt: Option<u64>,
    /// VLAN ids, outermost first.
    pub vlan: &'a [u16],
    /// Addresses, ports, protocol; `None` if the packet is not IP.
    pub tuple: Option<Tuple>,
    /// Replacement of one of the tuple's addresses.
    pub in_place: Option<InPlace<'a>>,
    /// ICMP type and code: of the packet or, in flow events, of the flow's first packet.
    pub icmp: Option<(u8, u8)>,
    /// Origin of the packet; flow events have none.
    pub packet_source: Option<EventPacketSource>,
    /// Variables that rules have set.
    pub variables: Variables<'a>,
    /// Ethernet addresses.
    pub ether: Ether<'a>,
    /// The flow's tuple from client to server with its first ICMP type and code, for `community_id`.
    pub community: Option<(Tuple, Option<(u8, u8)>)>,
    /// Transaction of the event; alerts and drops have it in their own record.
    pub tx_id: Option<u64>,
    /// The capture file's name; written if the output enables it (`pcap-file: yes`).
    pub pcap_filename: Option<&'a str>,
    /// Bartizan's own fields.
    pub own: BartizanFields<'a>,
}

impl Common<'_> {
    /// Clears the writer and opens an event of a packet, up to and including `tx_id`.
    pub(crate) fn begin_packet_event(&self, w: &mut JsonWriter, options: &HeaderOptions, event_type: &str) {
        self.begin(w, options, event_type, self.pcap_cnt);
        if let Some(tuple) = &self.tuple {
            self.write_endpoints(w, tuple);
            write_protocol(w, tuple);
            write_ip_version(w, tuple);
        }
        self.write_icmp(w);
        if let Some(source) = self.packet_source {
            w.str("pkt_src", source.name());
        }
        self.write_options(w, options);
        if let Some(tx_id) = self.tx_id {
            w.num("tx_id", tx_id);
        }
    }

    /// Clears the writer and opens an event of a flow, up to and including the ICMP type and code. `flow` and
    /// `netflow` differ in whether the IP version is written.
    pub(crate) fn begin_flow_event(
        &self,
        w: &mut JsonWriter,
        options: &HeaderOptions,
        event_type: &str,
        with_ip_version: bool,
    ) {
        self.begin(w, options, event_type, None);
        if let Some(tuple) = &self.tuple {
            self.write_endpoints(w, tuple);
            if with_ip_version {
                write_ip_version(w, tuple);
            }
            write_protocol(w, tuple);
        }
        self.write_icmp(w);
    }

    fn begin(&self, w: &mut JsonWriter, options: &HeaderOptions, event_type: &str, pcap_cnt: Option<u64>) {
        w.clear();
        w.begin_object();
        w.time("timestamp", self.timestamp);
        if let Some(flow_id) = self.flow_id {
            w.num("flow_id", flow_id);
        }
        if let Some(parent_id) = self.parent_id {
            w.num("parent_id", parent_id);
        }
        if let Some(sensor_id) = options.sensor_id {
            w.num("sensor_id", sensor_id);
        }
        if let Some(in_iface) = self.in_iface {
            w.str("in_iface", in_iface);
        }
        if let Some(pcap_cnt) = pcap_cnt {
            w.num("pcap_cnt", pcap_cnt);
        }
        w.str("event_type", event_type);
        if !self.vlan.is_empty() {
            w.array("vlan");
            for id in self.vlan {
                w.item_num(*id);
            }
            w.end_array();
        }
    }

    fn write_endpoints(&self, w: &mut JsonWriter, tuple: &Tuple) {
        self.write_end(w, "src_ip", tuple, true);
        if let Some((source, _)) = tuple.ports {
            w.num("src_port", source);
        }
        self.write_end(w, "dest_ip", tuple, false);
        if let Some((_, dest)) = tuple.ports {
            w.num("dest_port", dest);
        }
    }

    /// Writes the address of an end, or its replacement.
    pub(crate) fn write_end(&self, w: &mut JsonWriter, key: &str, tuple: &Tuple, source: bool) {
        match self.in_place {
            Some(other) if other.of_source == source => w.str(key, other.address),
            _ => w.address(key, if source { tuple.src } else { tuple.dest }),
        }
    }

    fn write_icmp(&self, w: &mut JsonWriter) {
        if let Some((kind, code)) = self.icmp {
            w.num("icmp_type", kind);
            w.num("icmp_code", code);
        }
    }

    /// Writes the fields that the output's own settings add to every event.
    pub(crate) fn write_options(&self, w: &mut JsonWriter, options: &HeaderOptions) {
        if options.suricata_version {
            w.str("suricata_version", SURICATA_VERSION);
        }
        if options.metadata {
            self.variables.write(w);
        }
        if options.ethernet {
            self.write_ether(w);
        }
        if let (Some(seed), Some((tuple, icmp))) = (options.community_id, &self.community) {
            w.str("community_id", &community_id(seed, tuple, *icmp));
        }
    }

    fn write_ether(&self, w: &mut JsonWriter) {
        match self.ether {
            Ether::None => {}
            Ether::Packet { ether_type, src, dest } => {
                w.object("ether");
                if let Some(ether_type) = ether_type {
                    w.num("ether_type", ether_type);
                }
                w.mac("src_mac", src);
                w.mac("dest_mac", dest);
                w.end_object();
            }
            Ether::Flow { src, dest } => {
                w.object("ether");
                for (key, addresses) in [("dest_macs", dest), ("src_macs", src)] {
                    w.array(key);
                    for address in addresses {
                        w.item_mac(*address);
                    }
                    w.end_array();
                }
                w.end_object();
            }
        }
    }

    /// Writes an event that belongs to no packet; `body` writes its objects.
    pub fn write_by_itself(
        &self,
        w: &mut JsonWriter,
        options: &HeaderOptions,
        event_type: &str,
        body: impl FnOnce(&mut JsonWriter),
    ) {
        self.begin_packet_event(w, options, event_type);
        body(w);
        self.finish(w, options);
    }

    /// Closes an event: sensor, capture file, own fields.
    pub(crate) fn finish(&self, w: &mut JsonWriter, options: &HeaderOptions) {
        self.finish_and(w, options, |_| ());
    }

    /// Closes an event as [`Common::finish`] does; `own` adds to the object `bartizan`.
    pub(crate) fn finish_and(
        &self,
        w: &mut JsonWriter,
        options: &HeaderOptions,
        own: impl FnOnce(&mut JsonWriter),
    ) {
        if let Some(sensor) = &options.sensor_name {
            w.str("host", sensor);
        }
        if options.pcap_file
            && let Some(name) = self.pcap_filename
        {
            w.str("pcap_filename", name);
        }
        self.own.write(w, own);
        w.end_object();
    }
}

pub(crate) fn write_protocol(w: &mut JsonWriter, tuple: &Tuple) {
    match protocol_name(tuple.proto) {
        Some(name) => w.str("proto", name),
        None => {
            w.plain("proto", |out| out.extend_from_slice(itoa::Buffer::new().format(tuple.proto).as_bytes()));
        }
    }
}

fn write_ip_version(w: &mut JsonWriter, tuple: &Tuple) {
    w.num("ip_v", if tuple.src.is_ipv4() { 4u8 } else { 6 });
}
