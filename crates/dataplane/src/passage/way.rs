// SPDX-License-Identifier: Apache-2.0
//! Notes of a packet's headers for the record of its flow.

use super::arrival::Arrival;
use bartizan_base::Direction;
use bartizan_packet::PacketSource;
use bartizan_stages::identity::icmp_of;
use bartizan_stages::record::Entry;
use bartizan_stages::settings::EngineSettings;

/// Notes the time to live and the Ethernet addresses of a packet, for flow records; called for each counted
/// packet.
pub(super) fn note_way(settings: &EngineSettings, entry: &mut Entry, arrival: &Arrival<'_>) {
    let direction = arrival.occasion.direction;
    if arrival.decoded().source == PacketSource::Ordered {
        // No header was sent.
        return;
    }
    if let Some(ttl) = arrival.decoded().ttl() {
        entry.ext.note_ttl(direction, ttl);
    }
    if settings.keep_macs
        && let Some((source, destination)) = arrival.packet.mac_addresses()
    {
        entry.ext.note_macs(direction, source, destination);
    }
}

/// Notes the header fields of a packet that flow records show.
pub(super) fn note_headers(
    settings: &EngineSettings,
    entry: &mut Entry,
    arrival: &Arrival<'_>,
    related: Option<bool>,
) {
    note_way(settings, entry, arrival);
    let (packet, direction) = (arrival.decoded(), arrival.occasion.direction);
    if direction == Direction::ToClient && entry.ext.icmp_response.is_none() && related != Some(true) {
        entry.ext.icmp_response = icmp_of(packet);
    }
}
