// SPDX-License-Identifier: Apache-2.0
//! Records of packets and transactions: alerts, anomalies, drops, protocol records, files.

use super::head::{FlowClass, Orientation, VariableNames, app_protocols, flow_tuple, own_tuple};
use super::tap::{AlertKey, AlertTap};
use super::{EveRecorder, RunInfo, flow};
use bartizan_applayer::file::FileState as State;
use bartizan_applayer::frames::{Frames, ProtocolFrame};
use bartizan_applayer::protocol::{ProtocolSpec, RecordSource};
use bartizan_applayer::protocols;
use bartizan_applayer::transaction::{Bodies, LogOptions};
use bartizan_base::{Decision, Direction, FunctionId, Reason, TenantId, Verdict};
use bartizan_events::config::{AlertOptions, EveOutput, EventTypes};
use bartizan_events::record::{
    AlertFlow, AlertInfo, AlertRecord, AlertTransaction, AnomalyKind, AnomalyRecord, DeclaredRecord,
    DropRecord, EventPacketSource, FileInfo, FileRecord, FileRecordState, FrameRecord, InPlace,
    MetadataRecord, NetworkHeader, PacketBytes, PacketRecord, Payload, Reject, TargetSide, TransactionRecord,
    TransportHeader, Tunnel, Tuple, VerdictInfo, VerdictWord, drop_reason, rule_metadata_json,
};
use bartizan_events::xff::XffOptions;
use bartizan_events::{Common, JsonWriter};
use bartizan_function::{Finding, FindingAction, RejectTo, RuleInfo};
use bartizan_packet::{Network, PacketView, TransportLayer};
use bartizan_stages::record::{Anomaly, Entry, EventContext, OuterHeader, PacketVerdict, TxRecord, Unsent};
use std::sync::Arc;

/// Rule fields of an alert, with the texts that it borrows.
pub(super) struct RuleTexts<'r> {
    metadata: Vec<u8>,
    references: Vec<&'r str>,
}

impl<'r> RuleTexts<'r> {
    pub(super) fn of(rule: &'r RuleInfo) -> Self {
        let pairs: Vec<(&str, &str)> = rule.metadata.iter().map(|(k, v)| (&**k, &**v)).collect();
        RuleTexts {
            metadata: rule_metadata_json(&pairs),
            references: rule.references.iter().map(String::as_str).collect(),
        }
    }

    /// The rule's fields. `firewall`: firewall mode is on.
    pub(super) fn info<'a>(&'a self, finding: &'a Finding, firewall: bool) -> AlertInfo<'a> {
        let rule = &finding.rule;
        AlertInfo {
            transaction: finding.tx.map(|id| AlertTransaction { id, guessed: finding.guessed }),
            blocked: finding.action.blocks() || finding.refused_beside,
            engine: firewall.then_some(if rule.firewall.is_some() { "fw" } else { "td" }),
            rule_id: rule.id,
            signature: rule.message.as_bytes(),
            category: &rule.category,
            severity: rule.severity,
            target: rule
                .target_is_source
                .map(|source| if source { TargetSide::Source } else { TargetSide::Destination }),
            references: &self.references,
            metadata: (!self.metadata.is_empty()).then_some(self.metadata.as_slice()),
            context: finding.context.as_deref(),
            rule: Some(rule.text.as_bytes()),
            xff: None,
        }
    }
}

/// The packet fields of a drop record; the caller adds the rule.
/// The files of a transaction that a side sends: an alert on a request does not show the files of the answer.
/// `stores`: files are stored.
fn files_of<'a>(direction: Direction, tx: Option<TxRecord<'a>>, stores: bool) -> Vec<FileInfo<'a>> {
    let files = tx.map(|of| (of.id, of.tx.files_of(direction)));
    files
        .map(|(id, files)| files.iter().map(|file| file_info(file, id, stores)).collect())
        .unwrap_or_default()
}

fn drop_record<'a>(
    occasion: &EventContext<'_>,
    flow: Option<&Entry>,
    verdict: &PacketVerdict,
) -> DropRecord<'a> {
    // Bytes without a packet have no header to be shown.
    let packet = occasion.packet().map(PacketView::decoded);
    DropRecord {
        direction: flow.map(|_| occasion.direction),
        network: match packet.map(|packet| &packet.network) {
            Some(Network::Ipv4(ip)) => {
                Some(NetworkHeader::V4 { len: ip.total_len, tos: ip.tos, ttl: ip.ttl, id: ip.id })
            }
            Some(Network::Ipv6(ip)) => Some(NetworkHeader::V6 {
                len: ip.payload_len,
                class: ip.traffic_class,
                hop_limit: ip.hop_limit,
                flow_label: ip.flow_label,
            }),
            _ => None,
        },
        transport: match packet.map(|packet| &packet.transport) {
            Some(TransportLayer::Tcp(tcp)) => TransportHeader::Tcp {
                seq: tcp.seq,
                ack: tcp.ack,
                window: tcp.window,
                flags: tcp.flags.bits(),
                reserved: tcp.reserved,
                urgent: tcp.urgent,
            },
            Some(TransportLayer::Udp(udp)) => TransportHeader::Udp { len: udp.len },
            // As in Suricata: in network order, read by a little-endian processor.
            Some(TransportLayer::Icmp(icmp)) => TransportHeader::Icmp {
                id: icmp.id.unwrap_or(0).swap_bytes(),
                seq: icmp.seq.unwrap_or(0).swap_bytes(),
            },
            _ => TransportHeader::None,
        },
        reason: verdict.decision.reason.map(drop_reason),
        verdict: Some(verdict_of(occasion, flow, verdict, true)),
        alert: None,
    }
}

/// The verdict fields of an alert: the packet's verdict, and the sides that a rejection is sent to.
fn verdict_of(
    occasion: &EventContext<'_>,
    flow: Option<&Entry>,
    verdict: &PacketVerdict,
    prevention: bool,
) -> VerdictInfo {
    let protocol = match occasion.decoded() {
        Some(packet) => packet.proto(),
        None => flow.map(|flow| flow.key().protocol()),
    };
    let refused = !verdict.decision.verdict.forwards();
    let reject = verdict.reject.map(|to| Reject {
        target: match to {
            RejectTo::Source => "to_client",
            RejectTo::Destination => "to_server",
            RejectTo::Both => "both",
        },
        with: match protocol {
            Some(6) => Some("tcp-reset"),
            Some(1 | 17 | 58) => Some("icmp-prohib"),
            _ => None,
        },
    });
    let word = if reject.is_some() || refused {
        if prevention { VerdictWord::Drop } else { VerdictWord::Alert }
    } else if verdict.decision.verdict == Verdict::Pass {
        VerdictWord::Pass
    } else {
        VerdictWord::Alert
    };
    VerdictInfo { word, reject }
}

/// The bytes of a packet as records show them.
fn packet_bytes<'a>(packet: &PacketView<'a>) -> PacketBytes<'a> {
    PacketBytes { bytes: packet.packet(), linktype: u32::from(packet.decoded().link_type.0) }
}

const fn file_state(state: State) -> FileRecordState {
    match state {
        State::Open => FileRecordState::Unknown,
        State::Truncated => FileRecordState::Truncated,
        State::Closed => FileRecordState::Closed,
        State::Error => FileRecordState::Error,
    }
}

/// The fields of a file. `keeps`: the run stores files. Otherwise no file is shown as stored, whatever rules
/// request.
pub(super) fn file_info<'a>(
    file: &'a bartizan_applayer::file::FileTrack,
    tx_id: u64,
    keeps: bool,
) -> FileInfo<'a> {
    FileInfo {
        filename: (!file.name.is_empty()).then_some(file.name.as_slice()),
        sids: if keeps { &file.sids } else { &[] },
        magic: file.magic_to_tell(),
        gaps: file.gaps,
        state: file_state(file.state),
        md5: file.md5,
        sha1: file.sha1,
        // A partial file has no hash, but has a name where it is stored.
        sha256: if file.stored { file.store_name() } else { file.sha256 },
        file_id: file.stored.then_some(file.store_id),
        storing: keeps && file.store && !file.stored,
        size: file.size,
        range: file.start.zip(file.end),
        tx_id,
    }
}

/// Writes a transaction's record inside another event; such a record always is the extended one.
pub(super) fn write_inside(w: &mut JsonWriter, tx: TxRecord<'_>, bodies: Bodies) {
    let Some(kind) = tx.tx.record_type().or(tx.spec.eve_type) else { return };
    let version = tx.spec.records.version;
    let options = LogOptions { extended: true, version, bodies, ..LogOptions::default() };
    w.object(kind);
    tx.tx.log(w, &options, true);
    w.end_object();
    tx.tx.log_beside(w, &options);
}

/// The options of an alert for the bodies of a transaction's messages.
fn bodies_of(tx: TxRecord<'_>, alert: &AlertOptions) -> Bodies {
    tx.spec.records.bodies.map(|select| select(alert)).unwrap_or_default()
}

/// The client address that a proxy reports in a request's header.
fn forwarded_for<'t>(tx: TxRecord<'t>, options: &XffOptions) -> Option<&'t str> {
    if !options.enabled {
        return None;
    }
    options.address_in(tx.tx.forwarded(&options.header)?)
}

/// The forwarded-for options of an output for records of a type.
fn xff_of<'o>(options: &'o EveOutput, kind: &str) -> Option<&'o XffOptions> {
    let own = options.types.protocols.get(kind).and_then(|of_type| of_type.xff.as_ref());
    own.or(options.xff.as_ref())
}

/// The client address that a proxy reports for an alert: from the alert's transaction; without one, from the
/// first held request that names an address.
fn alert_forwarded_for<'f>(
    flow: Option<&'f Entry>,
    finding: &Finding,
    tx: Option<TxRecord<'f>>,
    options: &XffOptions,
) -> Option<&'f str> {
    if finding.tx.is_some() {
        return forwarded_for(tx?, options);
    }
    let parser = flow?.ext.app.as_deref()?.parser().filter(|_| options.enabled)?;
    let mut named = parser.tx_range().filter_map(|id| parser.tx(id)?.forwarded(&options.header));
    named.find_map(|value| options.address_in(value))
}

/// Replaces the client's address, as seen in a packet of this direction, by the address that a proxy reports.
fn put_in_place<'a>(common: &mut Common<'a>, address: &'a str, direction: Direction) {
    common.in_place = Some(InPlace { address, of_source: direction == Direction::ToServer });
}

/// Adds the address that a proxy reports to a file's record.
pub(super) fn show_forwarded<'a>(
    common: &mut Common<'a>,
    record: &mut FileRecord<'a>,
    occasion: &EventContext<'_>,
    tx: TxRecord<'a>,
    settings: Option<&XffOptions>,
) {
    let Some((settings, address)) = settings.and_then(|s| Some((s, forwarded_for(tx, s)?))) else { return };
    if settings.overwrite {
        put_in_place(common, address, occasion.direction);
    } else {
        record.xff = Some(address);
    }
}

/// Whether alerts show payloads.
fn shows_payload(types: &EventTypes) -> bool {
    types.alert.as_ref().is_some_and(|a| a.payload || a.payload_length || a.payload_printable)
}

/// The progress of a transaction in both directions, in the words of its protocol.
fn progress_of(tx: TxRecord<'_>) -> Option<(&'static str, &'static str)> {
    if !tx.spec.records.progress {
        return None;
    }
    let word = |d: Direction| {
        let states = tx.spec.states[d];
        states.get(usize::from(tx.tx.progress(d))).or(states.last()).copied()
    };
    word(Direction::ToServer).zip(word(Direction::ToClient))
}

/// Most bytes that records show of a protocol frame in a datagram, as in Suricata; for a frame in a stream
/// the output's buffer is the bound.
pub(crate) const DATAGRAM_SHOWN: usize = 256;

/// A record whose stream frame is cut to a buffer of `buffer` bytes; the last byte ends a text.
fn fitting<'a>(frame: FrameRecord<'a>, buffer: u32) -> FrameRecord<'a> {
    let room = (buffer as usize).saturating_sub(1);
    let payload = frame.payload.map(|(bytes, complete)| match frame.stream_offset {
        Some(_) => (bytes.get(..room).unwrap_or(bytes), complete),
        None => (bytes, complete),
    });
    FrameRecord { payload, ..frame }
}

/// A protocol frame, as records and alerts show it; fills `bytes` with the available bytes of the frame.
fn frame_record<'a>(
    occasion: &EventContext<'_>,
    flow: &Entry,
    spec: &'static ProtocolSpec,
    frames: &Frames,
    frame: &ProtocolFrame,
    bytes: &'a mut Vec<u8>,
) -> FrameRecord<'a> {
    let direction = occasion.direction;
    frames.write(direction, frame, bytes);
    let is_stream = flow.key().protocol() == 6;
    if !is_stream {
        bytes.truncate(DATAGRAM_SHOWN);
    }
    FrameRecord {
        app_proto: Some(spec.eve_name),
        kind: spec.frames.get(usize::from(frame.kind)).copied().unwrap_or("?"),
        id: frame.id,
        direction,
        stream_offset: is_stream.then_some(frame.start),
        length: frames.length(direction, frame),
        payload: Some((bytes.as_slice(), frames.is_complete(direction, frame))),
        tx_id: frame.tx,
    }
}

/// The protocol frame that contains a match, if any; fills `bytes` with the available bytes of the frame.
fn found_frame<'a>(
    occasion: &EventContext<'_>,
    flow: &Entry,
    finding: &Finding,
    bytes: &'a mut Vec<u8>,
) -> Option<FrameRecord<'a>> {
    let app = flow.ext.app.as_deref()?;
    let frames = app.frames()?;
    let frame = frames.get(occasion.direction, finding.frame?)?;
    let spec = protocols::spec(app.protocol().protocol().or(app.original())?)?;
    Some(frame_record(occasion, flow, spec, frames, frame, bytes))
}

/// The outer packet, as alerts show it.
fn tunnel_of(around: &OuterHeader, depth: u8) -> Option<Tunnel> {
    let name = around.source.eve_name();
    Some(Tunnel {
        tuple: Tuple {
            src: around.addresses.0,
            dest: around.addresses.1,
            ports: around.ports,
            proto: around.protocol,
        },
        depth,
        pcap_cnt: around.number,
        packet_source: EventPacketSource::ALL.into_iter().find(|s| s.name() == name)?,
    })
}

impl EveRecorder {
    /// Sets a receiver of alerts beside the outputs.
    pub fn tap_alerts(&mut self, tap: Option<AlertTap>) {
        self.tap = tap;
    }

    pub(super) fn tap_alert(
        &mut self,
        occasion: &EventContext<'_>,
        flow: Option<&Entry>,
        finding: &Finding,
        verdict: &PacketVerdict,
    ) {
        let Some(mut tap) = self.tap.take() else { return };
        let tuple = own_tuple(occasion, flow);
        let key = AlertKey {
            tenant: flow.map_or(TenantId(0), Entry::tenant),
            rule: finding.rule.id,
            source: tuple.map(|tuple| tuple.src),
            destination: tuple.map(|tuple| tuple.dest),
        };
        tap.take(key, occasion.now, |header| {
            let texts = RuleTexts::of(&finding.rule);
            let heads = Heads::of(self, flow);
            let refusal = Some(&verdict.decision).filter(|d| !d.verdict.forwards());
            let common = heads.head(occasion, flow, Orientation::Packet, refusal);
            let record = AlertRecord {
                alert: texts.info(finding, self.firewall),
                direction: flow.map(|_| occasion.direction),
                ..AlertRecord::default()
            };
            let mut writer = JsonWriter::new();
            record.write(&mut writer, header, &AlertOptions::NOTHING, &common, |_| {});
            (finding.rule.message.to_string(), writer.bytes().to_vec())
        });
        self.tap = Some(tap);
    }
}

impl EveRecorder {
    /// The largest payload size among the outputs' settings, in bytes.
    fn payload_most(&self) -> usize {
        let sizes = self.outputs.iter().filter_map(|o| o.options.types.alert.as_ref());
        sizes.map(|a| a.payload_buffer_size as usize).max().unwrap_or(0)
    }

    /// The held bytes of the stream that alerts show, if an output shows payloads.
    fn held_bytes(&self, occasion: &EventContext<'_>, flow: Option<&Entry>) -> Vec<u8> {
        let mut held = Vec::new();
        if let Some(pair) = flow.and_then(|f| f.ext.streams.as_deref())
            && self.wants(shows_payload)
        {
            // In detection Suricata shows only bytes that the other side has acknowledged.
            let stream = pair.stream(occasion.direction);
            let end = if self.prevention { u64::MAX } else { stream.acked() };
            stream.write_held(occasion.payload(), end, self.payload_most(), &mut held);
        }
        held
    }

    pub(super) fn write_alert(
        &mut self,
        occasion: &EventContext<'_>,
        flow: Option<&Entry>,
        finding: &Finding,
        verdict: &PacketVerdict,
        tx: Option<TxRecord<'_>>,
    ) {
        if !self.wants(|types| types.alert.is_some()) {
            return;
        }
        let texts = RuleTexts::of(&finding.rule);
        let names = VariableNames::of(self, occasion, flow);
        let lists = names.lists();
        let of_packet: Vec<(&str, &[u8])> =
            finding.variables.iter().map(|(n, v)| (n.as_str(), v.as_slice())).collect();
        let this = Heads::of(self, flow);
        // The refusal of the packet, if it was refused: not necessarily by this rule.
        let refusal = Some(&verdict.decision).filter(|d| !d.verdict.forwards());
        let mut common = this.head(occasion, flow, Orientation::Packet, refusal);
        common.variables = lists.get();
        common.variables.pktvars = &of_packet;
        let files = files_of(occasion.direction, tx, self.store.is_some());
        let payload = occasion.payload();
        let is_tcp = flow.is_some_and(|f| f.key().protocol() == 6);
        let stream = finding.stream && is_tcp;
        let held = if stream { self.held_bytes(occasion, flow) } else { Vec::new() };
        let mut frame_bytes = Vec::new();
        let frame = flow.and_then(|flow| found_frame(occasion, flow, finding, &mut frame_bytes));
        let shown: &[u8] = if held.is_empty() { payload } else { &held };
        let record = AlertRecord {
            alert: texts.info(finding, self.firewall),
            firewall: finding.rule.firewall.as_ref().map(|(hook, policy)| (hook.as_deref(), policy.as_str())),
            files: &files,
            app: app_protocols(flow.and_then(|f| f.ext.app.as_deref())),
            direction: flow.map(|_| occasion.direction),
            flow: flow.map(|f| AlertFlow {
                counters: flow::counters(f, None),
                start: f.start,
                tuple: flow_tuple(f),
            }),
            payload: Some(Payload { bytes: (!shown.is_empty()).then_some(shown), stream }),
            tunnel: occasion
                .around
                .zip(occasion.decoded())
                .and_then(|(a, inner)| tunnel_of(a, inner.recursion)),
            progress: tx.and_then(progress_of),
            packet: occasion.packet().map(packet_bytes),
            verdict: Some(verdict_of(occasion, flow, verdict, self.prevention)),
            frame,
            ..AlertRecord::default()
        };
        self.each(
            |types| types.alert.is_some(),
            |writer, options, _| {
                let Some(alert) = &options.types.alert else { return };
                let settings = options.types.alert_xff.as_ref().or(options.xff.as_ref());
                let (mut common, mut record) = (common, record);
                record.frame = record.frame.map(|frame| fitting(frame, alert.payload_buffer_size));
                if let (Some(payload), false) = (&mut record.payload, held.is_empty()) {
                    // The last byte of the buffer ends a text, as in Suricata.
                    let room = (alert.payload_buffer_size as usize).saturating_sub(1);
                    payload.bytes = Some(held.get(..room).unwrap_or(&held)).filter(|bytes| !bytes.is_empty());
                }
                let found = settings.and_then(|s| Some((s, alert_forwarded_for(flow, finding, tx, s)?)));
                if let Some((settings, address)) = found {
                    record.alert.xff = Some(address);
                    if settings.overwrite {
                        put_in_place(&mut common, address, occasion.direction);
                    }
                }
                record.write(writer, &options.header, alert, &common, |w| {
                    if let Some(tx) = tx {
                        write_inside(w, tx, bodies_of(tx, alert));
                    }
                });
            },
        );
    }

    pub(super) fn write_tagged(&mut self, occasion: &EventContext<'_>, flow: Option<&Entry>) {
        let Some(packet) = occasion.packet() else { return };
        let names = VariableNames::of(self, occasion, flow);
        let lists = names.lists();
        let this = Heads::of(self, flow);
        let mut common = this.head(occasion, flow, Orientation::Packet, None);
        common.variables = lists.get();
        let record = PacketRecord { packet: packet_bytes(packet) };
        self.each(
            |types| types.alert.as_ref().is_some_and(|a| a.tagged_packets),
            |writer, options, _| record.write(writer, &options.header, &common),
        );
    }

    pub(super) fn write_metadata(
        &mut self,
        occasion: &EventContext<'_>,
        flow: Option<&Entry>,
        variables: &Finding,
    ) {
        if !self.wants(|types| types.metadata) {
            return;
        }
        let names = VariableNames::of(self, occasion, flow);
        let lists = names.lists();
        let of_packet: Vec<(&str, &[u8])> =
            variables.variables.iter().map(|(n, v)| (n.as_str(), v.as_slice())).collect();
        let this = Heads::of(self, flow);
        let mut common = this.head(occasion, flow, Orientation::Packet, None);
        common.variables = lists.get();
        common.variables.pktvars = &of_packet;
        self.each(
            |types| types.metadata,
            |writer, options, _| MetadataRecord.write(writer, &options.header, &common),
        );
    }

    pub(super) fn write_frame(
        &mut self,
        occasion: &EventContext<'_>,
        flow: &Entry,
        spec: &'static ProtocolSpec,
        frames: &Frames,
        frame: &ProtocolFrame,
    ) {
        if !self.wants(|types| types.frame) {
            return;
        }
        let names = VariableNames::of(self, occasion, Some(flow));
        let lists = names.lists();
        let this = Heads::of(self, Some(flow));
        let mut common = this.head(occasion, Some(flow), Orientation::Packet, None);
        common.variables = lists.get();
        let mut bytes = Vec::new();
        let record = frame_record(occasion, flow, spec, frames, frame, &mut bytes);
        self.each(
            |types| types.frame,
            |writer, options, _| {
                fitting(record, options.types.frame_payload).write(writer, &options.header, &common);
            },
        );
    }

    pub(super) fn write_declared(
        &mut self,
        occasion: &EventContext<'_>,
        flow: Option<&Entry>,
        record: &dyn DeclaredRecord,
    ) {
        let name = record.spec().name;
        let wanted = |types: &EventTypes| types.declared.contains(&name);
        if !self.wants(wanted) {
            return;
        }
        let this = Heads::of(self, flow);
        let common = this.head(occasion, flow, Orientation::Packet, None);
        self.each(wanted, |writer, options, _| record.write(writer, &options.header, &common));
    }

    pub(super) fn write_anomaly(
        &mut self,
        occasion: &EventContext<'_>,
        flow: Option<&Entry>,
        anomaly: Anomaly<'_>,
    ) {
        if !self.wants(|types| types.anomaly.is_some()) {
            return;
        }
        let this = Heads::of(self, flow);
        let mut common = this.head(occasion, flow, Orientation::Packet, None);
        let shouted;
        let kind = match anomaly {
            // Suricata reports ARP events as stream events.
            Anomaly::Decode(event) if event.eve_name().starts_with("decoder.arp.") => {
                AnomalyKind::Stream { event: event.eve_name() }
            }
            Anomaly::Decode(event) => AnomalyKind::Decode { event: event.eve_name() },
            Anomaly::Stream(event) => AnomalyKind::Stream { event: event.eve_name() },
            Anomaly::App { protocol, event, tx, detection } => {
                common.tx_id = tx;
                // Suricata writes detection events in capitals.
                shouted = if detection { event.to_ascii_uppercase() } else { event.to_owned() };
                AnomalyKind::AppLayer {
                    app_proto: protocol.map(|p| p.eve_name),
                    event: &shouted,
                    layer: if detection { "proto_detect" } else { "proto_parser" },
                }
            }
        };
        let names = VariableNames::of(self, occasion, flow);
        let lists = names.lists();
        common.variables = lists.get();
        let record = AnomalyRecord { kind, packet: occasion.packet().map(packet_bytes) };
        self.each(
            |types| types.anomaly.as_ref().is_some_and(|o| record.wanted(o)),
            |writer, options, _| {
                if let Some(anomaly) = &options.types.anomaly {
                    record.write(writer, &options.header, anomaly, &common);
                }
            },
        );
    }

    pub(super) fn write_drop(
        &mut self,
        occasion: &EventContext<'_>,
        flow: Option<&Entry>,
        verdict: &PacketVerdict,
        findings: &[Finding],
    ) {
        let decision = &verdict.decision;
        // Remaining data of a flow that is processed without a packet was not going to be forwarded.
        if !self.prevention || occasion.arrived().is_none() || !self.wants(|types| types.drop.is_some()) {
            return;
        }
        // The first finding that blocks; among detection rules, one that alerts before a silent one.
        let first = |silent: bool| {
            findings.iter().find(|f| {
                f.action == FindingAction::Blocked
                    || f.action.blocks() && (silent || f.rule.firewall.is_some())
            })
        };
        let blocking = first(false).or_else(|| first(true));
        let texts = blocking.map(|f| RuleTexts::of(&f.rule));
        let this = Heads::of(self, flow);
        let names = VariableNames::of(self, occasion, flow);
        let lists = names.lists();
        let mut common = this.head(occasion, flow, Orientation::Packet, Some(decision));
        common.variables = lists.get();
        let record = DropRecord {
            alert: blocking.zip(texts.as_ref()).map(|(f, t)| t.info(f, self.firewall)),
            ..drop_record(occasion, flow, verdict)
        };
        // As in Suricata, a flow that is dropped as a whole has one drop record per direction, for its first
        // refusal, unless the settings request all.
        let of_flow =
            matches!(decision.reason, Some(Reason::IdsFlow | Reason::FirewallFlow | Reason::ExceptionFlow));
        let first = !of_flow
            || decision.verdict == Verdict::Reject
            || flow.is_none_or(|f| !f.ext.standing.is_told(occasion.direction));
        self.each(
            |types| types.drop.as_ref().is_some_and(|d| d.all_packets || first),
            |writer, options, _| {
                if let Some(drop) = &options.types.drop {
                    record.write(writer, &options.header, drop, &common);
                }
            },
        );
    }

    /// Writes a drop record that stands for frames which a port did not take.
    pub(super) fn write_unsent(&mut self, occasion: &EventContext<'_>, unsent: &Unsent<'_>) {
        if !self.wants(|types| types.drop.is_some()) {
            return;
        }
        let decision = Decision::refuse(Verdict::Drop, unsent.reason, FunctionId(0));
        let fate = PacketVerdict { decision, reject: None };
        let this = Heads::of(self, None);
        let mut common = this.head(occasion, None, Orientation::Packet, Some(&decision));
        // No function decided this.
        common.own.function = None;
        (common.own.verdict, common.own.reason) = (Some(decision.verdict), decision.reason);
        (common.own.port, common.own.cause) = (Some(unsent.port), Some(unsent.cause));
        common.own.frames = Some(unsent.frames);
        let record = drop_record(occasion, None, &fate);
        self.each(
            |types| types.drop.is_some(),
            |writer, options, _| {
                if let Some(drop) = &options.types.drop {
                    record.write(writer, &options.header, drop, &common);
                }
            },
        );
    }

    pub(super) fn write_transaction(&mut self, occasion: &EventContext<'_>, flow: &Entry, tx: TxRecord<'_>) {
        let Some(kind) = tx.tx.record_type().or(tx.spec.eve_type) else { return };
        let listed = tx.spec.records.listed_as.unwrap_or(kind);
        if !self.wants(|types| types.protocols.contains_key(listed)) {
            return;
        }
        let names = VariableNames::of(self, occasion, Some(flow));
        let lists = names.lists();
        let this = Heads::of(self, Some(flow));
        let mut common = this.head(occasion, Some(flow), Orientation::Flow, None);
        let is_datagram = flow.key().protocol() == 17;
        let declared = &tx.spec.records;
        let orientation = match tx.tx.message_direction() {
            Some(direction) if !is_datagram && declared.source == RecordSource::Message => {
                Orientation::Direction(direction)
            }
            _ => Orientation::Packet,
        };
        let mut as_sent = this.head(occasion, Some(flow), orientation, None);
        // A datagram's own packet shows its message's direction; the end of a flow shows none.
        let is_sent = !is_datagram || occasion.packet().is_some();
        let from_sender = |version| match declared.source {
            RecordSource::Client => false,
            RecordSource::Message => is_sent && version >= declared.version,
            RecordSource::Packet => is_sent,
        };
        for common in [&mut common, &mut as_sent] {
            common.tx_id = declared.tx_id.then_some(tx.id);
            common.variables = lists.get();
        }
        let before = flow.ext.switched_from().filter(|_| declared.from_proto);
        let before = before.and_then(protocols::spec).map(|spec| spec.eve_name);
        let record = TransactionRecord { event_type: kind };
        self.each_numbered(
            |types| types.protocols.contains_key(listed),
            |number, writer, options, protocols| {
                let Some(log) = protocols.get(listed) else { return };
                if number >= tx.tx.records(log) {
                    return;
                }
                let mut common = if from_sender(log.version) { as_sent } else { common };
                let settings = if declared.forwarded { xff_of(options, kind) } else { None };
                let found = settings.and_then(|s| Some((s, forwarded_for(tx, s)?)));
                // The record shows the flow, while Suricata takes the direction from the packet: with a
                // packet of the server the address replaces the server's.
                if let Some((_, address)) = found.filter(|(settings, _)| settings.overwrite) {
                    put_in_place(&mut common, address, occasion.direction);
                }
                record.write(writer, &options.header, &common, |w| {
                    w.object(kind);
                    tx.tx.log_record(w, log, number);
                    if let Some(before) = before {
                        w.str("from_proto", before);
                    }
                    w.end_object();
                    tx.tx.log_beside(w, log);
                    if let Some((_, address)) = found.filter(|(settings, _)| !settings.overwrite) {
                        w.str("xff", address);
                    }
                });
            },
        );
    }

    pub(super) fn write_file(
        &mut self,
        occasion: &EventContext<'_>,
        flow: &Entry,
        tx: TxRecord<'_>,
        direction: Direction,
        index: usize,
    ) {
        if !self.wants(|types| types.files.is_some()) {
            return;
        }
        let Some(file) = tx.tx.files_of(direction).get(index) else { return };
        let names = VariableNames::of(self, occasion, Some(flow));
        let lists = names.lists();
        let this = Heads::of(self, Some(flow));
        let mut common = this.head(occasion, Some(flow), Orientation::Direction(direction), None);
        common.variables = lists.get();
        let record = FileRecord {
            app_proto: Some(tx.spec.eve_name),
            file: file_info(file, tx.id, self.store.is_some()),
            xff: None,
        };
        self.files = self.files.wrapping_add(1);
        self.each(
            |types| types.files.is_some(),
            |writer, options, _| {
                let own = options.types.files.as_ref().and_then(|files| files.xff.as_ref());
                let (mut common, mut record) = (common, record);
                show_forwarded(&mut common, &mut record, occasion, tx, own.or(options.xff.as_ref()));
                record.write(writer, &options.header, &common, |w| write_inside(w, tx, Bodies::default()));
            },
        );
    }
}

/// Data that event heads borrow, shared so that the outputs can be written meanwhile.
pub(super) struct Heads {
    run: Arc<RunInfo>,
    capture: Option<Arc<str>>,
    class: FlowClass,
}

impl Heads {
    pub(super) fn of(recorder: &EveRecorder, flow: Option<&Entry>) -> Self {
        Heads {
            run: Arc::clone(&recorder.run),
            capture: recorder.capture.clone(),
            class: FlowClass::of(recorder, flow),
        }
    }

    pub(super) fn head<'a>(
        &'a self,
        occasion: &EventContext<'a>,
        flow: Option<&'a Entry>,
        orientation: Orientation,
        decision: Option<&Decision>,
    ) -> bartizan_events::Common<'a> {
        let mut common = super::head::head(&self.run, self.capture.as_deref(), occasion, flow, orientation);
        common.own = self.class.own(&self.run, occasion.generation, flow, decision);
        common
    }
}
