// SPDX-License-Identifier: Apache-2.0
//! Fragments: putting them to their datagrams, and what prevention does about them.
//!
//! Fragments are not held back: each goes out as it comes, the one that completes a datagram when the whole of it may go. So
//! that the receiver cannot complete another datagram than the one that was inspected, prevention refuses fragments
//! on which receivers differ (`DefragConfig::strict`), and the rest of a datagram that was refused.

use crate::worker::{Frame, Worker};
use bartizan_base::Reason;
use bartizan_packet::defrag::{DefragResult, Fragment, FragmentKey};
use bartizan_packet::{DecodeEvent, Decoded, Network, PacketView};

/// What became of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fragmented {
    /// Its datagram is not whole yet.
    Waits,
    /// The buffer holds its datagram.
    Whole,
    /// Prevention: it must not go on.
    Refused(Reason),
}

/// Puts a fragment to its datagram.
pub(crate) fn defragment(
    worker: &mut Worker,
    frame: &Frame<'_>,
    bytes: &[u8],
    packet: &mut Decoded,
    datagram: &mut Vec<u8>,
) -> Fragmented {
    let prevention = worker.settings.prevention;
    let refused = |reason| if prevention { Fragmented::Refused(reason) } else { Fragmented::Waits };
    let Some((key, fragment)) = fragment_of(worker, frame, bytes, packet) else {
        return refused(Reason::Defrag);
    };
    datagram.clear();
    let host = worker.settings.hosts.fragments(key.dst);
    let outcome = worker.defrag.insert(&key, &fragment, host, frame.now, datagram);
    for event in outcome.events.iter() {
        if let Some(event) = DecodeEvent::from_rule_name(event.name()) {
            packet.event(event);
            worker.decoder.counters_mut().event(event);
        }
    }
    match outcome.result {
        DefragResult::Complete => {
            // The link header of the last fragment stands before the datagram, as records show it.
            let link = bytes.get(packet.start as usize..packet.l3 as usize).unwrap_or_default();
            datagram.splice(..0, link.iter().copied());
            Fragmented::Whole
        }
        DefragResult::Held => Fragmented::Waits,
        DefragResult::Dropped(reason) => refused(reason.reason()),
    }
}

/// The datagram that a fragment completed was refused: what else comes of it is refused, too.
pub(crate) fn refuse_datagram(worker: &mut Worker, frame: &Frame<'_>, view: &PacketView<'_>) {
    let key = fragment_of(worker, frame, view.frame(), view.decoded()).map(|(key, _)| key);
    if let Some(key) = key {
        let host = worker.settings.hosts.fragments(key.dst);
        worker.defrag.refuse(&key, host, frame.now);
    }
}

/// The datagram was refused only while another worker had it, and may go.
pub(crate) fn permit_datagram(worker: &mut Worker, frame: &Frame<'_>, view: &PacketView<'_>) {
    let key = fragment_of(worker, frame, view.frame(), view.decoded()).map(|(key, _)| key);
    if let Some(key) = key {
        worker.defrag.permit(&key);
    }
}

fn fragment_of<'b>(
    worker: &Worker,
    frame: &Frame<'_>,
    bytes: &'b [u8],
    packet: &'b Decoded,
) -> Option<(FragmentKey, Fragment<'b>)> {
    let view = PacketView::new(bytes, packet);
    let payload = view.fragment_data()?;
    let (fragment, id, protocol) = match &packet.network {
        Network::Ipv4(ip) => {
            let f = Fragment {
                offset: ip.fragment.offset,
                more: ip.fragment.more,
                header: view.ip_header().unwrap_or_default(),
                hop_limit: ip.ttl,
                next_header: 0,
                payload,
            };
            (f, u32::from(ip.id), ip.proto)
        }
        Network::Ipv6(ip) => {
            let part = ip.fragment?;
            let f = Fragment {
                offset: part.offset,
                more: part.more,
                header: view.frame().get(packet.l3 as usize..part.header as usize).unwrap_or_default(),
                hop_limit: ip.hop_limit,
                next_header: part.next_header,
                payload,
            };
            (f, part.id, 0)
        }
        _ => return None,
    };
    let key = FragmentKey {
        tenant: worker.tenant_of(frame, packet),
        link: Some(frame.link),
        vlans: if worker.settings.vlan_in_key { packet.vlan.padded() } else { [0; 3] },
        tunnel: if worker.settings.tunnel_in_key { packet.tunnel.key() } else { 0 },
        src: packet.src()?,
        dst: packet.dst()?,
        id,
        protocol,
        recursion: packet.recursion,
    };
    Some((key, fragment))
}
