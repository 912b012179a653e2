// SPDX-License-Identifier: Apache-2.0
//! The records at a flow's end: `flow`, and two `netflow` events with one direction each.

use super::amounts::write_counts;
use super::common::Common;
use super::object::object;
use crate::JsonWriter;
use crate::config::HeaderOptions;
use crate::text::push_hex;
use bartizan_base::{PerDirection, Timestamp};

/// Application protocol of a flow, by EVE's names (`http`, `dns`, `failed`, ...); `None` while unknown.
#[derive(Clone, Copy, Debug, Default)]
pub struct AppProtocols<'a> {
    /// The flow's protocol.
    pub flow: Option<&'a str>,
    /// Protocol detected towards the server; written if it differs from the flow's.
    pub to_server: Option<&'a str>,
    /// Protocol detected towards the client; written if it differs from the flow's.
    pub to_client: Option<&'a str>,
    /// Protocol before a switch; written if it differs from the flow's.
    pub original: Option<&'a str>,
    /// Protocol that a switch announced; written if it differs from the flow's.
    pub expected: Option<&'a str>,
}

impl AppProtocols<'_> {
    pub(crate) fn write(&self, w: &mut JsonWriter) {
        if let Some(name) = self.flow {
            w.str("app_proto", name);
        }
        let others = [
            ("app_proto_ts", self.to_server),
            ("app_proto_tc", self.to_client),
            ("app_proto_orig", self.original),
            ("app_proto_expected", self.expected),
        ];
        for (key, name) in others {
            if let Some(name) = name
                && self.flow != Some(name)
            {
                w.str(key, name);
            }
        }
    }
}

/// Packets and bytes of a flow by direction. The totals include bypassed ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounters {
    /// Packets.
    pub packets: PerDirection<u64>,
    /// Bytes from the link layer on.
    pub bytes: PerDirection<u64>,
    /// Packets and bytes after the flow was bypassed; `None` if it never was.
    pub bypassed: Option<(PerDirection<u64>, PerDirection<u64>)>,
}

impl FlowCounters {
    pub(crate) fn write(&self, w: &mut JsonWriter) {
        write_counts(w, self.packets, self.bytes);
        if let Some((packets, bytes)) = self.bypassed {
            w.object("bypassed");
            write_counts(w, packets, bytes);
            w.end_object();
        }
    }
}

/// The state in which a flow ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EveFlowState {
    /// Seen in one direction only, or no handshake.
    #[default]
    New,
    /// Seen in both directions.
    Established,
    /// Ended by its protocol.
    Closed,
    /// Bypassed in this program.
    LocalBypassed,
    /// Offloaded to a lower level.
    CaptureBypassed,
}

/// The reason why a flow's record was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlowRecordReason {
    /// The flow was idle for its timeout.
    Timeout,
    /// The flow was removed to make room.
    Forced,
    /// The program stops.
    Shutdown,
    /// A new TCP connection took over the tuple.
    TcpReuse,
    /// None of these.
    #[default]
    Unknown,
}

impl FlowRecordReason {
    /// EVE's spelling.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            FlowRecordReason::Timeout => "timeout",
            FlowRecordReason::Forced => "forced",
            FlowRecordReason::Shutdown => "shutdown",
            FlowRecordReason::TcpReuse => "tcp_reuse",
            FlowRecordReason::Unknown => "unknown",
        }
    }
}

/// A decision for a whole flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowAction {
    /// All further packets are dropped.
    Drop,
    /// All further packets are accepted by a firewall rule.
    Accept,
    /// A pass rule ended inspection.
    Pass,
}

impl FlowAction {
    /// EVE's spelling.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            FlowAction::Drop => "drop",
            FlowAction::Accept => "accept",
            FlowAction::Pass => "pass",
        }
    }
}

/// TCP part of a flow record.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpRecord<'a> {
    /// Flags of all packets, combined.
    pub flags: u8,
    /// Flags of the client's packets.
    pub flags_to_server: u8,
    /// Flags of the server's packets.
    pub flags_to_client: u8,
    /// The tracked connection; `None` without a session (mid-stream without pick-up).
    pub session: Option<TcpSessionInfo<'a>>,
}

/// State of a connection in the stream engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpSessionInfo<'a> {
    /// State by EVE's name (`established`, `fin_wait1`, ...); `None` before the first.
    pub state: Option<&'a str>,
    /// Whether data was missing, per direction.
    pub gap: PerDirection<bool>,
    /// Largest number of separate pieces in which the stream was held, per direction.
    pub max_regions: PerDirection<u32>,
    /// Bytes of urgent data removed from the stream, per direction.
    pub urgent_oob_data: PerDirection<u32>,
}

impl TcpRecord<'_> {
    fn write(&self, w: &mut JsonWriter) {
        w.object("tcp");
        hex_flags(w, "tcp_flags", self.flags);
        hex_flags(w, "tcp_flags_ts", self.flags_to_server);
        hex_flags(w, "tcp_flags_tc", self.flags_to_client);
        flag_booleans(w, self.flags);
        if let Some(session) = &self.session {
            if let Some(state) = session.state {
                w.str("state", state);
            }
            for (key, gap) in [("tc_gap", session.gap.to_client), ("ts_gap", session.gap.to_server)] {
                if gap {
                    w.bool(key, true);
                }
            }
            w.num("ts_max_regions", session.max_regions.to_server);
            w.num("tc_max_regions", session.max_regions.to_client);
            let urgent = session.urgent_oob_data;
            for (key, bytes) in
                [("ts_urgent_oob_data", urgent.to_server), ("tc_urgent_oob_data", urgent.to_client)]
            {
                if bytes > 0 {
                    w.num(key, bytes);
                }
            }
        }
        w.end_object();
    }
}

fn hex_flags(w: &mut JsonWriter, key: &str, flags: u8) {
    w.plain(key, |out| push_hex(out, flags));
}

/// The flags that are set, each as `true`.
fn flag_booleans(w: &mut JsonWriter, flags: u8) {
    let names = [
        ("syn", 0x02),
        ("fin", 0x01),
        ("rst", 0x04),
        ("psh", 0x08),
        ("ack", 0x10),
        ("urg", 0x20),
        ("ecn", 0x40),
        ("cwr", 0x80),
    ];
    for (name, bit) in names {
        if flags & bit != 0 {
            w.bool(name, true);
        }
    }
}

/// `flow`: the state of a flow at its end. [`Common::tuple`] is from client to server, [`Common::icmp`] that
/// of the first packet.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlowRecord<'a> {
    /// ICMP type and code of the response.
    pub response_icmp: Option<(u8, u8)>,
    /// Security parameter index of an ESP flow.
    pub spi: Option<u32>,
    /// Application protocol.
    pub app: AppProtocols<'a>,
    /// Packets and bytes.
    pub counters: FlowCounters,
    /// First packet.
    pub start: Timestamp,
    /// Last packet.
    pub end: Timestamp,
    /// The flow ended early because the flow table was nearly full.
    pub emergency: bool,
    /// State at the end.
    pub state: EveFlowState,
    /// Reason for the end.
    pub reason: FlowRecordReason,
    /// Whether a rule alerted on the flow.
    pub alerted: bool,
    /// The flow is one of the largest.
    pub elephant: bool,
    /// Decision for the whole flow.
    pub action: Option<FlowAction>,
    /// Exception policies that were applied: target and policy.
    pub exception_policy: &'a [(&'a str, &'a str)],
    /// Number of transactions; 0 is not written.
    pub tx_cnt: u64,
    /// TCP part, for TCP.
    pub tcp: Option<TcpRecord<'a>>,
}

impl FlowRecord<'_> {
    /// Writes the event.
    pub fn write(&self, w: &mut JsonWriter, options: &HeaderOptions, common: &Common<'_>) {
        common.begin_flow_event(w, options, "flow", true);
        if let Some((kind, code)) = self.response_icmp {
            w.num("response_icmp_type", kind);
            w.num("response_icmp_code", code);
        }
        if let Some(spi) = self.spi {
            w.num("spi", spi);
        }
        self.app.write(w);
        self.write_flow(w);
        common.write_options(w, options);
        if let Some(tcp) = &self.tcp {
            tcp.write(w);
        }
        common.finish(w, options);
    }

    fn write_flow(&self, w: &mut JsonWriter) {
        w.object("flow");
        self.counters.write(w);
        write_span(w, self.start, self.end);
        if self.emergency {
            w.bool("emergency", true);
        }
        let (state, bypass) = match self.state {
            EveFlowState::New => ("new", None),
            EveFlowState::Established => ("established", None),
            EveFlowState::Closed => ("closed", None),
            EveFlowState::LocalBypassed => ("bypassed", Some("local")),
            EveFlowState::CaptureBypassed => ("bypassed", Some("capture")),
        };
        w.str("state", state);
        if let Some(bypass) = bypass {
            w.str("bypass", bypass);
        }
        w.str("reason", self.reason.name());
        w.bool("alerted", self.alerted);
        if self.elephant {
            w.bool("elephant", true);
        }
        if let Some(action) = self.action {
            w.str("action", action.name());
        }
        if !self.exception_policy.is_empty() {
            w.array("exception_policy");
            for (target, policy) in self.exception_policy {
                w.begin_object();
                w.str("target", target);
                w.str("policy", policy);
                w.end_object();
            }
            w.end_array();
        }
        if self.tx_cnt > 0 {
            w.num("tx_cnt", self.tx_cnt);
        }
        w.end_object();
    }
}

/// Writes `start`, `end` and `age`.
fn write_span(w: &mut JsonWriter, start: Timestamp, end: Timestamp) {
    w.time("start", start);
    w.time("end", end);
    w.num("age", whole_seconds(start, end));
}

/// The time between two packets as a difference of whole seconds, as in Suricata.
const fn whole_seconds(start: Timestamp, end: Timestamp) -> u64 {
    end.as_secs().saturating_sub(start.as_secs())
}

object! {
    /// One direction of a flow.
    pub(crate) struct NetflowFields = "netflow" {
        /// Packets.
        pkts: u64,
        /// Bytes, from the link layer on; of packets in a tunnel from their IP header on.
        bytes: u64,
        /// First packet of the flow.
        start: Timestamp,
        /// Last packet of the flow.
        end: Timestamp,
        /// Seconds between both.
        age: u64,
        /// Smallest time to live or hop limit of the packets that the host saw; of those that a level below
        /// handled none is known.
        min_ttl: Option<u8>,
        /// Largest time to live or hop limit, of the same packets.
        max_ttl: Option<u8>,
        /// Number of transactions of the flow.
        tx_cnt: Option<u64>,
    }
}

/// `netflow`: one direction of a flow. [`Common::tuple`], [`Common::icmp`] and [`Common::ether`] are in
/// that direction; the record of a direction without packets is not written at all.
#[derive(Clone, Copy, Debug, Default)]
pub struct NetflowRecord<'a> {
    /// Security parameter index of an ESP flow.
    pub spi: Option<u32>,
    /// Application protocol of the direction; `unknown` when there is none.
    pub app_proto: Option<&'a str>,
    /// Packets.
    pub packets: u64,
    /// Bytes from the link layer on.
    pub bytes: u64,
    /// First packet of the flow.
    pub start: Timestamp,
    /// Last packet of the flow.
    pub end: Timestamp,
    /// Smallest and largest time to live or hop limit.
    pub ttl: Option<(u8, u8)>,
    /// Number of transactions; 0 is not written.
    pub tx_cnt: u64,
    /// Flags of the direction, for TCP.
    pub tcp_flags: Option<u8>,
}

impl NetflowRecord<'_> {
    /// Writes the event.
    pub fn write(&self, w: &mut JsonWriter, options: &HeaderOptions, common: &Common<'_>) {
        common.begin_flow_event(w, options, "netflow", false);
        if let Some(spi) = self.spi {
            w.num("spi", spi);
        }
        w.str("app_proto", self.app_proto.unwrap_or("unknown"));
        let fields = NetflowFields {
            pkts: self.packets,
            bytes: self.bytes,
            start: self.start,
            end: self.end,
            age: whole_seconds(self.start, self.end),
            min_ttl: self.ttl.map(|(least, _)| least),
            max_ttl: self.ttl.map(|(_, most)| most),
            tx_cnt: (self.tx_cnt > 0).then_some(self.tx_cnt),
        };
        fields.write_object(w);
        if let Some(flags) = self.tcp_flags {
            w.object("tcp");
            hex_flags(w, "tcp_flags", flags);
            flag_booleans(w, flags);
            w.end_object();
        }
        common.write_options(w, options);
        common.finish(w, options);
    }
}
