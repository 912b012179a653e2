// SPDX-License-Identifier: Apache-2.0
//! `anomaly`: traffic that a decoder, the stream engine or an application parser could not interpret.

use super::common::{Common, PacketBytes};
use super::object::object;
use crate::JsonWriter;
use crate::config::{AnomalyOptions, HeaderOptions};

/// Limit of a packet's bytes in an anomaly (`packethdr`).
const PACKET_HEADER_BYTES: usize = 32;

/// The kind of anomaly, with the event's full name.
#[derive(Clone, Copy, Debug)]
pub enum AnomalyKind<'a> {
    /// A header that cannot be decoded: `decoder.ipv4.opt_invalid_len`.
    Decode {
        /// Event name.
        event: &'a str,
    },
    /// A segment that the stream engine considers invalid: `stream.3whs_synack_with_wrong_ack`.
    Stream {
        /// Event name.
        event: &'a str,
    },
    /// An application parser's event: `UNABLE_TO_MATCH_RESPONSE_TO_REQUEST`.
    AppLayer {
        /// The parser's protocol; `None` while the flow has none.
        app_proto: Option<&'a str>,
        /// Event name.
        event: &'a str,
        /// The layer that raised the event: `proto_parser`, `proto_detect` or `parser`.
        layer: &'a str,
    },
}

object! {
    /// Traffic that makes no sense.
    pub(crate) struct AnomalyFields<'a> = "anomaly" {
        /// Protocol of the parser that noticed.
        app_proto: Option<&'a str>,
        /// decode, stream or applayer.
        kind: &'a str as "type",
        /// Name of the event, as rules name it.
        event: &'a str,
        /// The layer that found it: proto_parser, proto_detect or parser.
        layer: Option<&'a str>,
    }
}

impl<'a> AnomalyKind<'a> {
    /// The object of the event.
    const fn fields(self) -> AnomalyFields<'a> {
        match self {
            AnomalyKind::Decode { event } => {
                AnomalyFields { app_proto: None, kind: "decode", event, layer: None }
            }
            AnomalyKind::Stream { event } => {
                AnomalyFields { app_proto: None, kind: "stream", event, layer: None }
            }
            AnomalyKind::AppLayer { app_proto, event, layer } => {
                AnomalyFields { app_proto, kind: "applayer", event, layer: Some(layer) }
            }
        }
    }
}

/// One anomaly.
#[derive(Clone, Copy, Debug)]
pub struct AnomalyRecord<'a> {
    /// Kind of the anomaly.
    pub kind: AnomalyKind<'a>,
    /// The packet, for `packethdr: yes`.
    pub packet: Option<PacketBytes<'a>>,
}

impl AnomalyRecord<'_> {
    /// Whether the output's options enable this kind.
    #[must_use]
    pub fn wanted(&self, options: &AnomalyOptions) -> bool {
        match self.kind {
            AnomalyKind::Decode { .. } => options.decode,
            AnomalyKind::Stream { .. } => options.stream,
            AnomalyKind::AppLayer { .. } => options.applayer,
        }
    }

    /// Writes the event.
    pub fn write(
        &self,
        w: &mut JsonWriter,
        options: &HeaderOptions,
        anomaly: &AnomalyOptions,
        common: &Common<'_>,
    ) {
        common.begin_packet_event(w, options, "anomaly");
        self.kind.fields().write_object(w);
        let packet_level = !matches!(self.kind, AnomalyKind::AppLayer { .. });
        if anomaly.packethdr
            && packet_level
            && let Some(packet) = &self.packet
        {
            packet.write(w, PACKET_HEADER_BYTES);
        }
        common.finish(w, options);
    }
}
