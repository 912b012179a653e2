// SPDX-License-Identifier: Apache-2.0
//! Smaller records: transactions, frames, tagged packets, variables, and lost events.

use super::common::{Common, PacketBytes};
use crate::JsonWriter;
use crate::config::HeaderOptions;
use bartizan_base::Direction;

/// An event of an application protocol: `http`, `dns`, `tls`, ... Its parser writes the objects.
#[derive(Clone, Copy, Debug)]
pub struct TransactionRecord<'a> {
    /// The event's type.
    pub event_type: &'a str,
}

impl TransactionRecord<'_> {
    /// Writes the event; `body` writes the objects (`http`; `smtp` and `email`; `rpc` and `nfs`; ...).
    pub fn write(
        &self,
        w: &mut JsonWriter,
        options: &HeaderOptions,
        common: &Common<'_>,
        body: impl FnOnce(&mut JsonWriter),
    ) {
        common.begin_packet_event(w, options, self.event_type);
        body(w);
        common.finish(w, options);
    }
}

/// A protocol frame, a named piece of a protocol's bytes: the event `frame`, and the object in alerts.
#[derive(Clone, Copy, Debug)]
pub struct FrameRecord<'a> {
    /// Protocol; written in the event only.
    pub app_proto: Option<&'a str>,
    /// Name of the kind of frame.
    pub kind: &'a str,
    /// Number of the frame in its flow.
    pub id: u64,
    /// Direction.
    pub direction: Direction,
    /// Offset of the first byte in the stream; `None` for UDP.
    pub stream_offset: Option<u64>,
    /// The frame's length; `None` while unknown.
    pub length: Option<u64>,
    /// The bytes that are held, and whether these are all.
    pub payload: Option<(&'a [u8], bool)>,
    /// Transaction of the frame.
    pub tx_id: Option<u64>,
}

impl FrameRecord<'_> {
    /// Writes the event.
    pub fn write(&self, w: &mut JsonWriter, options: &HeaderOptions, common: &Common<'_>) {
        common.begin_packet_event(w, options, "frame");
        if let Some(name) = self.app_proto {
            w.str("app_proto", name);
        }
        self.write_object(w);
        common.finish(w, options);
    }

    /// Writes the object `frame`.
    pub(crate) fn write_object(&self, w: &mut JsonWriter) {
        w.object("frame");
        w.str("type", self.kind);
        w.num("id", self.id);
        w.str("direction", if self.direction == Direction::ToServer { "toserver" } else { "toclient" });
        if let Some(offset) = self.stream_offset {
            w.num("stream_offset", offset);
        }
        if let Some(length) = self.length {
            w.num("length", length);
        }
        if let Some((bytes, complete)) = self.payload {
            // Suricata writes it first for datagrams and last for streams.
            if self.stream_offset.is_none() {
                w.bool("complete", complete);
            }
            w.base64("payload", bytes);
            w.printable("payload_printable", bytes);
            if self.stream_offset.is_some() {
                w.bool("complete", complete);
            }
        }
        if let Some(tx_id) = self.tx_id {
            w.num("tx_id", tx_id);
        }
        w.end_object();
    }
}

/// `packet`: a packet that a rule tagged.
#[derive(Clone, Copy, Debug)]
pub struct PacketRecord<'a> {
    /// The packet.
    pub packet: PacketBytes<'a>,
}

impl PacketRecord<'_> {
    /// Writes the event.
    pub fn write(&self, w: &mut JsonWriter, options: &HeaderOptions, common: &Common<'_>) {
        common.begin_packet_event(w, options, "packet");
        self.packet.write(w, usize::MAX);
        common.finish(w, options);
    }
}

/// `metadata`: variables that a rule set in a packet or its flow ([`Common::variables`]).
#[derive(Clone, Copy, Debug, Default)]
pub struct MetadataRecord;

impl MetadataRecord {
    /// Writes the event. The variables are its purpose: they are also written with `metadata: no`.
    pub fn write(&self, w: &mut JsonWriter, options: &HeaderOptions, common: &Common<'_>) {
        common.begin_packet_event(w, options, "metadata");
        if !options.metadata {
            common.variables.write(w);
        }
        common.finish(w, options);
    }
}

/// Bartizan's own event about events that an output could not take.
#[derive(Clone, Copy, Debug)]
pub struct LossRecord<'a> {
    /// Time of the first event after the loss, as EVE's text: a sink has no clock.
    pub timestamp: &'a str,
    /// Path of the output.
    pub output: &'a str,
    /// Number of events that are missing before this line.
    pub lost_events: u64,
}

impl LossRecord<'_> {
    /// Writes the event.
    pub fn write(&self, w: &mut JsonWriter) {
        w.clear();
        w.begin_object();
        w.str("timestamp", self.timestamp);
        w.str("event_type", "bartizan");
        w.object("bartizan");
        w.num("version", super::own::OWN_VERSION);
        w.num("lost_events", self.lost_events);
        w.str("output", self.output);
        w.end_object();
        w.end_object();
    }
}
