// SPDX-License-Identifier: Apache-2.0
//! Views of the flows of a capture, as `--json` prints them.

use core::net::IpAddr;
use serde::Serialize;
use std::collections::BTreeMap;

/// Both ends of a flow, from the side that opened it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HistoryEndpoints {
    /// IP protocol number.
    pub protocol: u8,
    /// Address of the side that opened the flow.
    pub src_ip: IpAddr,
    /// Port of that side, 0 where the protocol has none.
    pub src_port: u16,
    /// Address of the other side.
    pub dest_ip: IpAddr,
    /// Port of the other side.
    pub dest_port: u16,
}

/// Contribution of a function to a flow's decision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Part {
    /// The function.
    pub function: &'static str,
    /// Calls of the header half.
    pub header_calls: u64,
    /// Calls of the payload half.
    pub payload_calls: u64,
    /// Decisions by verdict.
    pub verdicts: BTreeMap<&'static str, u64>,
    /// Refusals by reason.
    pub reasons: BTreeMap<&'static str, u64>,
    /// Number of the function's findings.
    pub alerts: u64,
    /// Number of the packet with which the function was done with the flow and left the path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub done_at: Option<u64>,
}

/// An alert of a flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HistoryAlert {
    /// gid:sid:rev.
    pub rule: String,
    /// Message.
    pub message: String,
    /// `allowed` or `blocked`.
    pub action: &'static str,
    /// Number of occurrences.
    pub count: u64,
    /// Number of the packet with the first occurrence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packet: Option<u64>,
}

/// Packets of a flow that were refused for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HistoryRefusal {
    /// The refusing function, or the engine.
    pub function: String,
    /// Verdict.
    pub verdict: &'static str,
    /// Reason.
    pub reason: &'static str,
    /// Explanation of the reason.
    pub meaning: &'static str,
    /// Rule of the function: number of a packet-filter rule, sid of a detection rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<u32>,
    /// Packets.
    pub count: u64,
    /// Number of the first of these packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packet: Option<u64>,
}

/// An event in a flow's history.
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
    /// Kind: `opened`, `said`, `tcp`, `protocol`, `done`, `alert`, `anomaly`, `transaction`, `file`,
    /// `refused`, `ended`.
    pub what: &'static str,
    /// The function concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<&'static str>,
    /// Description.
    pub text: String,
}

/// A flow's history.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowHistory {
    /// Number of the flow in the events of a run, unique within the run.
    pub number: u64,
    /// Both ends.
    pub ends: HistoryEndpoints,
    /// ICMP: type and code of the first packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icmp: Option<(u8, u8)>,
    /// Number of the tenant.
    pub tenant: u16,
    /// Number of the link.
    pub link: u16,
    /// VLAN ids of the first packet.
    pub vlans: Vec<u16>,
    /// Class of the flow.
    pub fid: u32,
    /// Generation of policies and rules.
    pub generation: u64,
    /// Level that handles the flow's packets.
    pub level: &'static str,
    /// State at the end.
    pub state: &'static str,
    /// State of the TCP connection at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp: Option<&'static str>,
    /// Application protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_proto: Option<&'static str>,
    /// Reason of the flow's end.
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
    /// Numbers of the flow's first and last packet in the capture.
    pub frames: (u64, u64),
    /// Functions on the flow's path at the end.
    pub path: Vec<&'static str>,
    /// The function that allowed all further packets of the flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed: Option<AllowedBy>,
    /// Contributions of the functions.
    pub functions: Vec<Part>,
    /// Alerts, in the order of the first of each rule.
    pub alerts: Vec<HistoryAlert>,
    /// Packets that were refused (in detection: would have been), by reason.
    pub refused: Vec<HistoryRefusal>,
    /// Events in the order of their occurrence.
    pub moments: Vec<Moment>,
    /// Number of moments that are left out.
    pub omitted: u64,
}

/// The last function that allowed a flow and was done with it; or the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AllowedBy {
    /// The function. `None`: the default, since no function decided.
    pub function: Option<&'static str>,
    /// Number of the function's rule; `None`: the function's default.
    pub rule: Option<u32>,
}

/// The histories of a capture.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Histories {
    /// Whether refusals were enforced.
    pub prevention: bool,
    /// Frames that were read.
    pub frames: u64,
    /// The selected flows, in the order of their first packets.
    pub flows: Vec<FlowHistory>,
    /// Selected flows that are left out.
    pub omitted: u64,
}
