// SPDX-License-Identifier: Apache-2.0
//! `alert`: a rule matched. The record of a drop shares the object `alert`.

use super::common::{Common, PacketBytes, Tuple, write_protocol};
use super::file::FileInfo;
use super::flow::{AppProtocols, FlowCounters};
use super::misc::FrameRecord;
use super::object::object;
use crate::JsonWriter;
use crate::config::{AlertOptions, HeaderOptions};
use crate::record::EventPacketSource;
use bartizan_base::{Direction, RuleId, Timestamp};

/// The attacked side of the packet by the rule's `target:`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetSide {
    /// The packet's source is the target.
    Source,
    /// The packet's destination is the target.
    Destination,
}

/// The transaction of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlertTransaction {
    /// Number of the transaction in its flow, from 0.
    pub id: u64,
    /// The rule matched packets or the stream without a transaction; this transaction was the current one
    /// at that time.
    pub guessed: bool,
}

/// The object `alert`.
#[derive(Clone, Copy, Debug, Default)]
pub struct AlertInfo<'a> {
    /// Transaction; written before the object.
    pub transaction: Option<AlertTransaction>,
    /// Whether the packet was blocked because of this rule.
    pub blocked: bool,
    /// In firewall mode, the engine of the rule: `fw` or `td` (threat detection).
    pub engine: Option<&'static str>,
    /// The rule's identity.
    pub rule_id: RuleId,
    /// The rule's message; empty when it has none.
    pub signature: &'a [u8],
    /// Description of the rule's class; empty without a class.
    pub category: &'a str,
    /// Priority, 1 is the most severe.
    pub severity: u32,
    /// The attacked side, if the rule names it.
    pub target: Option<TargetSide>,
    /// References as addresses, for `reference: yes`.
    pub references: &'a [&'a str],
    /// The rule's metadata as a JSON object, see [`rule_metadata_json`].
    pub metadata: Option<&'a [u8]>,
    /// Context from matching datasets, as a JSON object.
    pub context: Option<&'a [u8]>,
    /// The rule's text, for `raw: yes`.
    pub rule: Option<&'a [u8]>,
    /// Address for which a proxy forwarded.
    pub xff: Option<&'a str>,
}

impl AlertInfo<'_> {
    /// Writes `tx_id`, `tx_guessed` and `alert`; without options only the fields for a drop.
    pub(crate) fn write(&self, w: &mut JsonWriter, common: &Common<'_>, options: Option<&AlertOptions>) {
        if let Some(transaction) = self.transaction {
            w.num("tx_id", transaction.id);
            if transaction.guessed {
                w.bool("tx_guessed", true);
            }
        }
        w.object("alert");
        w.str("action", if self.blocked { "blocked" } else { "allowed" });
        if let Some(engine) = self.engine {
            w.str("engine", engine);
        }
        w.num("gid", self.rule_id.gid);
        w.num("signature_id", self.rule_id.sid);
        w.num("rev", self.rule_id.rev);
        w.text("signature", self.signature);
        w.str("category", self.category);
        w.num("severity", self.severity);
        if let (Some(target), Some(tuple)) = (self.target, &common.tuple) {
            let (attacker, victim) = match target {
                TargetSide::Destination => ("source", "target"),
                TargetSide::Source => ("target", "source"),
            };
            // `source` comes first whichever end of the packet it is.
            let ends = [
                (attacker, true, tuple.ports.map(|ports| ports.0)),
                (victim, false, tuple.ports.map(|ports| ports.1)),
            ];
            for wanted in ["source", "target"] {
                for (key, source, port) in ends.iter().filter(|end| end.0 == wanted) {
                    w.object(key);
                    common.write_end(w, "ip", tuple, *source);
                    if let Some(port) = port {
                        w.num("port", *port);
                    }
                    w.end_object();
                }
            }
        }
        self.write_rule_details(w, options.unwrap_or(&AlertOptions::NOTHING));
        w.end_object();
    }

    fn write_rule_details(&self, w: &mut JsonWriter, options: &AlertOptions) {
        if options.rule_reference && !self.references.is_empty() {
            w.array("references");
            for reference in self.references {
                w.item_str(reference);
            }
            w.end_array();
        }
        if options.rule_metadata
            && let Some(metadata) = self.metadata
        {
            w.raw("metadata", metadata);
        }
        if let Some(context) = self.context {
            w.raw("context", context);
        }
        if options.rule_raw
            && let Some(rule) = self.rule
        {
            w.text("rule", rule);
        }
        if let Some(xff) = self.xff {
            w.str("xff", xff);
        }
    }
}

/// A rule's `metadata` as the JSON object of an alert: values grouped by key, the last pair first, as in
/// Suricata. Made once when the rule is loaded. Empty without pairs: then pass `None`.
#[must_use]
pub fn rule_metadata_json(pairs: &[(&str, &str)]) -> Vec<u8> {
    if pairs.is_empty() {
        return Vec::new();
    }
    let mut w = JsonWriter::new();
    w.begin_object();
    let mut done: Vec<&str> = Vec::new();
    for (key, _) in pairs.iter().rev() {
        if done.contains(key) {
            continue;
        }
        done.push(key);
        w.array(key);
        for (_, value) in pairs.iter().rev().filter(|(other, _)| other == key) {
            w.item_str(value);
        }
        w.end_array();
    }
    w.end_object();
    w.bytes().to_vec()
}

/// The outer packet of the packet that a rule matched.
#[derive(Clone, Copy, Debug)]
pub struct Tunnel {
    /// Outer addresses and protocol; ports are written as 0 when the protocol has none.
    pub tuple: Tuple,
    /// Number of headers around the inner packet; 0 for a reassembled one.
    pub depth: u8,
    /// Number of the outer packet in its capture.
    pub pcap_cnt: Option<u64>,
    /// Source of the outer packet.
    pub packet_source: EventPacketSource,
}

impl Tunnel {
    fn write(&self, w: &mut JsonWriter) {
        let (source, dest) = self.tuple.ports.unwrap_or((0, 0));
        w.object("tunnel");
        w.address("src_ip", self.tuple.src);
        w.num("src_port", source);
        w.address("dest_ip", self.tuple.dest);
        w.num("dest_port", dest);
        write_protocol(w, &self.tuple);
        w.num("depth", self.depth);
        if let Some(pcap_cnt) = self.pcap_cnt {
            w.num("pcap_cnt", pcap_cnt);
        }
        w.str("pkt_src", self.packet_source.name());
        w.end_object();
    }
}

/// The flow so far, in an alert.
#[derive(Clone, Copy, Debug)]
pub struct AlertFlow {
    /// Packets and bytes up to this packet.
    pub counters: FlowCounters,
    /// First packet.
    pub start: Timestamp,
    /// Tuple from client to server.
    pub tuple: Tuple,
}

impl AlertFlow {
    /// `client`: text in place of the client's address.
    fn write(&self, w: &mut JsonWriter, direction: Direction, client: Option<&str>) {
        w.object("flow");
        self.counters.write(w);
        w.time("start", self.start);
        match client {
            Some(address) => w.str("src_ip", address),
            None => w.address("src_ip", self.tuple.src),
        }
        w.address("dest_ip", self.tuple.dest);
        if let Some((source, dest)) = self.tuple.ports {
            // Suricata uses the packet's source port.
            let from = if direction == Direction::ToServer { source } else { dest };
            if from > 0 {
                w.num("src_port", source);
                w.num("dest_port", dest);
            }
        }
        w.end_object();
    }
}

/// Payload bytes in an alert.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    /// The stream's data, or the packet's payload; `None` if there is none.
    pub bytes: Option<&'a [u8]>,
    /// Whether these are bytes of the stream.
    pub stream: bool,
}

impl Payload<'_> {
    fn write(&self, w: &mut JsonWriter, options: &AlertOptions) {
        if !(options.payload || options.payload_length || options.payload_printable) {
            return;
        }
        if self.bytes.is_none() && !self.stream && options.payload_length {
            w.num("payload_length", 0u8);
        }
        if let Some(bytes) = self.bytes {
            if options.payload {
                w.base64("payload", bytes);
            }
            if options.payload_length {
                w.num("payload_length", bytes.len());
            }
            if options.payload_printable {
                w.printable("payload_printable", bytes);
            }
        }
        w.num("stream", u8::from(self.stream));
    }
}

/// The word of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerdictWord {
    /// The packet was not forwarded.
    Drop,
    /// No action except the alert.
    Alert,
    /// A firewall rule accepted the packet.
    Accept,
    /// A pass rule let the packet pass.
    Pass,
}

/// A rejection: the message that was sent, and its receivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reject {
    /// `to_client`, `to_server` or `both`, by the rule's action.
    pub target: &'static str,
    /// `tcp-reset` or `icmp-prohib`; `None` for protocols without a message.
    pub with: Option<&'static str>,
}

/// The object `verdict`: the verdict on the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerdictInfo {
    /// The verdict as a word.
    pub word: VerdictWord,
    /// The rejection, if one was sent.
    pub reject: Option<Reject>,
}

impl VerdictInfo {
    pub(crate) fn write(&self, w: &mut JsonWriter) {
        w.object("verdict");
        let word = match self.word {
            VerdictWord::Drop => "drop",
            VerdictWord::Alert => "alert",
            VerdictWord::Accept => "accept",
            VerdictWord::Pass => "pass",
        };
        w.str("action", word);
        if let Some(reject) = &self.reject {
            w.str("reject-target", reject.target);
            w.array("reject");
            if let Some(with) = reject.with {
                w.item_str(with);
            }
            w.end_array();
        }
        w.end_object();
    }
}

object! {
    /// Place and actions of the firewall rule, in its alerts.
    pub(crate) struct FirewallFields<'a> = "firewall" {
        /// The table, like packet:filter or http:request_line; protocols without states of their own name
        /// none.
        hook: Option<&'a str>,
        /// The actions of the rule or the policy.
        policy: &'a str,
    }
}

/// One alert.
#[derive(Clone, Copy, Debug, Default)]
pub struct AlertRecord<'a> {
    /// The rule and its match.
    pub alert: AlertInfo<'a>,
    /// For a firewall rule: its hook, if that has a name, and its actions.
    pub firewall: Option<(Option<&'a str>, &'a str)>,
    /// The outer packet, for packets from a tunnel.
    pub tunnel: Option<Tunnel>,
    /// Progress of the transaction to server and to client, by the parser's names.
    pub progress: Option<(&'a str, &'a str)>,
    /// Files of the transaction.
    pub files: &'a [FileInfo<'a>],
    /// Application protocol of the flow.
    pub app: AppProtocols<'a>,
    /// Direction in the flow; `None` without a flow.
    pub direction: Option<Direction>,
    /// The flow so far.
    pub flow: Option<AlertFlow>,
    /// Payload bytes; `None` if the packet is not IP.
    pub payload: Option<Payload<'a>>,
    /// The frame that matched.
    pub frame: Option<FrameRecord<'a>>,
    /// The packet.
    pub packet: Option<PacketBytes<'a>>,
    /// The capture file that stores the packet.
    pub capture_file: Option<&'a str>,
    /// The verdict on the packet.
    pub verdict: Option<VerdictInfo>,
}

impl AlertRecord<'_> {
    /// Writes the event; `app_layer` writes the transaction's objects (`http`, `dns`, ...) and is called if
    /// the rule matched in a transaction and the output's options enable it.
    pub fn write(
        &self,
        w: &mut JsonWriter,
        options: &HeaderOptions,
        alert: &AlertOptions,
        common: &Common<'_>,
        app_layer: impl FnOnce(&mut JsonWriter),
    ) {
        common.begin_packet_event(w, options, "alert");
        self.alert.write(w, common, Some(alert));
        if let Some((hook, policy)) = self.firewall {
            FirewallFields { hook, policy }.write_object(w);
        }
        if let Some(tunnel) = &self.tunnel {
            tunnel.write(w);
        }
        if self.alert.transaction.is_some() {
            self.write_transaction(w, alert, app_layer);
        }
        self.app.write(w);
        if let Some(direction) = self.direction {
            w.str("direction", direction.eve_name());
            if alert.flow
                && let Some(flow) = &self.flow
            {
                flow.write(w, direction, common.in_place.map(|other| other.address));
            }
        }
        if let Some(payload) = &self.payload {
            payload.write(w, alert);
        }
        if let Some(frame) = &self.frame {
            frame.write_object(w);
        }
        if alert.packet
            && let Some(packet) = &self.packet
        {
            packet.write(w, usize::MAX);
        }
        if let Some(capture_file) = self.capture_file {
            w.str("capture_file", capture_file);
        }
        if alert.verdict
            && let Some(verdict) = &self.verdict
        {
            verdict.write(w);
        }
        common.finish(w, options);
    }

    fn write_transaction(
        &self,
        w: &mut JsonWriter,
        alert: &AlertOptions,
        app_layer: impl FnOnce(&mut JsonWriter),
    ) {
        if alert.app_layer {
            if let Some((to_server, to_client)) = self.progress {
                w.str("ts_progress", to_server);
                w.str("tc_progress", to_client);
            }
            app_layer(w);
        }
        if alert.rule_metadata && !self.files.is_empty() {
            w.array("files");
            for file in self.files {
                w.begin_object();
                file.fields().write_fields(w);
                w.end_object();
            }
            w.end_array();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_grouped_last_first() {
        let pairs = [("policy", "balanced-ips drop"), ("policy", "security-ips drop"), ("service", "http")];
        assert_eq!(
            rule_metadata_json(&pairs),
            br#"{"service":["http"],"policy":["security-ips drop","balanced-ips drop"]}"#
        );
        assert!(rule_metadata_json(&[]).is_empty());
    }
}
