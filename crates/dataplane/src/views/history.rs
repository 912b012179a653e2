// SPDX-License-Identifier: Apache-2.0
//! What is told of the flows of a capture, as `--json` prints it.

use core::net::IpAddr;
use serde::Serialize;
use std::collections::BTreeMap;

/// Both ends of a flow, from the side that opened it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ends {
    /// IP protocol number.
    pub protocol: u8,
    /// Address of the side that opened the flow.
    pub src_ip: IpAddr,
    /// Its port, 0 where the protocol has none.
    pub src_port: u16,
    /// Address of the other side.
    pub dest_ip: IpAddr,
    /// Its port.
    pub dest_port: u16,
}

/// What a function contributed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Part {
    /// The function.
    pub function: &'static str,
    /// Times that its header half was asked.
    pub header_calls: u64,
    /// Times that its payload half was asked.
    pub payload_calls: u64,
    /// Answers by verdict.
    pub verdicts: BTreeMap<&'static str, u64>,
    /// Refusals by reason.
    pub reasons: BTreeMap<&'static str, u64>,
    /// Findings that it reported.
    pub alerts: u64,
    /// Number of the packet with which it was done with the flow and left the path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub done_at: Option<u64>,
}

/// An alert of a flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Alert {
    /// gid:sid:rev.
    pub rule: String,
    /// Message.
    pub message: String,
    /// `allowed` or `blocked`.
    pub action: &'static str,
    /// How often.
    pub count: u64,
    /// Packet of the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packet: Option<u64>,
}

/// Packets of a flow that were refused for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// Who refused: a function, or the engine.
    pub function: String,
    /// Verdict.
    pub verdict: &'static str,
    /// Reason.
    pub reason: &'static str,
    /// What the reason means.
    pub meaning: &'static str,
    /// Rule of the function: number of a packet-filter rule, sid of a detection rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<u32>,
    /// Packets.
    pub count: u64,
    /// The first of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packet: Option<u64>,
}

/// Something that happened to a flow.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Moment {
    /// Number of the packet in the capture.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packet: Option<u64>,
    /// Seconds since the flow's first packet.
    pub seconds: f64,
    /// Direction of the packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direction: Option<&'static str>,
    /// `opened`, `said`, `tcp`, `protocol`, `done`, `alert`, `anomaly`, `transaction`, `file`, `refused`,
    /// `ended`.
    pub what: &'static str,
    /// The function that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<&'static str>,
    /// In words.
    pub text: String,
}

/// A flow's history.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowHistory {
    /// Number in events of a run, unique there.
    pub number: u64,
    /// Both ends.
    pub ends: Ends,
    /// ICMP: type and code of the first packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icmp: Option<(u8, u8)>,
    /// Whose traffic: number of the tenant.
    pub tenant: u16,
    /// Number of the link.
    pub link: u16,
    /// VLAN ids of the first packet.
    pub vlans: Vec<u16>,
    /// Its class.
    pub fid: u32,
    /// Generation of policies and rules.
    pub generation: u64,
    /// Where its packets are handled.
    pub level: &'static str,
    /// State at the end.
    pub state: &'static str,
    /// State of the TCP connection at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp: Option<&'static str>,
    /// Application protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_proto: Option<&'static str>,
    /// Why it ended.
    pub end: &'static str,
    /// First packet, seconds since 1970.
    pub start: f64,
    /// Seconds from first to last packet.
    pub seconds: f64,
    /// Packets to the server.
    pub pkts_toserver: u64,
    /// Packets to the client.
    pub pkts_toclient: u64,
    /// Bytes to the server.
    pub bytes_toserver: u64,
    /// Bytes to the client.
    pub bytes_toclient: u64,
    /// First and last packet of the capture in which it was seen.
    pub frames: (u64, u64),
    /// Functions that are still on its path.
    pub path: Vec<&'static str>,
    /// Who let it go on for good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed: Option<AllowedBy>,
    /// What each function contributed.
    pub functions: Vec<Part>,
    /// Alerts, in the order of the first of each rule.
    pub alerts: Vec<Alert>,
    /// Packets that were refused (in detection: would have been), by reason.
    pub refused: Vec<Refusal>,
    /// What happened, in order.
    pub moments: Vec<Moment>,
    /// Moments that are left out.
    pub omitted: u64,
}

/// The function that was done with a flow last, and let it go on; or the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AllowedBy {
    /// The function. `None`: the default, since none decided and none refused.
    pub function: Option<&'static str>,
    /// Number of its rule; `None`: its default.
    pub rule: Option<u32>,
}

/// The histories of a capture.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Histories {
    /// Refusals acted.
    pub prevention: bool,
    /// Frames that were read.
    pub frames: u64,
    /// The flows that were asked about, in the order of their first packets.
    pub flows: Vec<FlowHistory>,
    /// Flows that were asked about and are left out.
    pub omitted: u64,
}
