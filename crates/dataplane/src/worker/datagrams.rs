// SPDX-License-Identifier: Apache-2.0
//! Datagrams that arrive without their headers: from a source that ends UDP itself.
//!
//! Each gets the headers that a kernel would give it (a hop limit of 64, no options, true checksums), and
//! is a packet like any other from then on.

use super::{Frame, Worker};
use bartizan_base::{Decision, FunctionId, LinkId, Reason, Timestamp, Verdict};
use bartizan_packet::{InternetChecksum, LinkType, pseudo_header};
use bartizan_stages::flow_ext::StreamOrigin;
use bartizan_stages::record::Recorder;
use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// IP protocol of UDP.
const UDP: u8 = 17;
/// Bytes of a UDP header.
const UDP_HEAD: usize = 8;
/// Bytes of an IPv6 header.
const IPV6_HEAD: u16 = 40;
/// Time to live, and hop limit, of the headers.
const HOPS: u8 = 64;

/// A datagram.
#[derive(Clone, Debug)]
pub struct DatagramArrival<'b> {
    /// Time of the arrival.
    pub now: Timestamp,
    /// The link that it enters by.
    pub link: LinkId,
    /// The datagram's sender.
    pub from: SocketAddr,
    /// The datagram's destination, of the same family.
    pub to: SocketAddr,
    /// The datagram's payload.
    pub bytes: &'b [u8],
    /// The program that sent or receives it, on the stream path.
    pub origin: &'b Arc<StreamOrigin>,
}

/// Writes a datagram with its headers; `None`: its ends are of two families, or it is too long for one
/// packet.
fn write(arrival: &DatagramArrival<'_>, into: &mut Vec<u8>) -> Option<()> {
    let DatagramArrival { from, to, bytes, .. } = arrival;
    let length = u16::try_from(bytes.len().checked_add(UDP_HEAD)?).ok()?;
    into.clear();
    match (from.ip(), to.ip()) {
        (IpAddr::V4(source), IpAddr::V4(target)) => {
            let total = length.checked_add(20)?.to_be_bytes();
            let head = [&[0x45, 0], &total[..], &[0, 0, 0x40, 0, HOPS, UDP, 0, 0]].concat();
            let sum = InternetChecksum::new().with(&head).with(&source.octets()).with(&target.octets());
            into.extend_from_slice(head.get(..10)?);
            into.extend_from_slice(&sum.finish().to_be_bytes());
            into.extend_from_slice(&source.octets());
            into.extend_from_slice(&target.octets());
        }
        (IpAddr::V6(source), IpAddr::V6(target)) => {
            // The decoder reads packets of up to 65,535 bytes, with their header.
            length.checked_add(IPV6_HEAD)?;
            into.extend_from_slice(&[0x60, 0, 0, 0]);
            into.extend_from_slice(&length.to_be_bytes());
            into.extend_from_slice(&[UDP, HOPS]);
            into.extend_from_slice(&source.octets());
            into.extend_from_slice(&target.octets());
        }
        _ => return None,
    }
    let ports = [from.port().to_be_bytes(), to.port().to_be_bytes(), length.to_be_bytes()].concat();
    let sum = pseudo_header(from.ip(), to.ip(), UDP, length.into())?.with(&ports).with(bytes);
    // A sum of zero would say that there is none.
    let sum = match sum.finish() {
        0 => u16::MAX,
        sum => sum,
    };
    into.extend_from_slice(&ports);
    into.extend_from_slice(&sum.to_be_bytes());
    into.extend_from_slice(bytes);
    Some(())
}

impl Worker {
    /// Handles a datagram. The decision tells whether it may continue; [`Worker::take_replaced`] has the
    /// bytes that replace it.
    pub fn datagram(&mut self, arrival: &DatagramArrival<'_>, recorder: &mut dyn Recorder) -> Decision {
        let refused = Decision::refuse(Verdict::Drop, Reason::Unreadable, FunctionId::ENGINE);
        let mut packet = core::mem::take(&mut self.datagram);
        self.leaving.change = None;
        let decision = match write(arrival, &mut packet) {
            Some(()) => {
                let wire_len = u32::try_from(packet.len()).unwrap_or(u32::MAX);
                let (now, link) = (arrival.now, arrival.link);
                let frame =
                    Frame { now, bytes: &packet, wire_len, link_type: LinkType::RAW, link, number: None };
                self.position.origin = Some(Arc::clone(arrival.origin));
                let decision = self.frame(&frame, recorder);
                self.position.origin = None;
                // Whole datagrams do not wait.
                decision.unwrap_or(refused)
            }
            None => refused,
        };
        self.datagram = packet;
        decision
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bartizan_packet::{DecodeOutput, Decoder, DecoderConfig, PacketView};

    #[test]
    fn headers_are_those_of_a_packet_with_true_checksums() {
        let origin = Arc::new(StreamOrigin {
            guest: "g".into(),
            peer_guest: None,
            process: 1,
            executable: None,
            cgroup: None,
        });
        for (from, to, most) in
            [("192.0.2.1:5000", "192.0.2.2:53", 65_507), ("[2001:db8::1]:5000", "[2001:db8::2]:53", 65_487)]
        {
            for length in [0, 1, 512, most] {
                let bytes = vec![0xA5; length];
                let (now, link) = (Timestamp::ZERO, LinkId(0));
                let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
                let arrival = DatagramArrival { now, link, from, to, bytes: &bytes, origin: &origin };
                let mut packet = Vec::new();
                write(&arrival, &mut packet).unwrap();
                let mut out = DecodeOutput::default();
                let wire = u32::try_from(packet.len()).unwrap();
                Decoder::new(DecoderConfig::built_in()).decode(LinkType::RAW, &packet, wire, &mut out);
                let decoded = out.outer().unwrap();
                assert!(decoded.events.as_slice().is_empty(), "{:?}", decoded.events.as_slice());
                let view = PacketView::new(&packet, decoded);
                assert_eq!((view.payload(), view.l4_checksum_ok()), (&bytes[..], Some(true)));
                assert_eq!((decoded.src(), decoded.dst()), (Some(from.ip()), Some(to.ip())));
                assert_eq!(decoded.ports(), Some((5000, 53)));
            }
        }
    }

    #[test]
    fn what_is_no_packet_is_refused() {
        let origin = Arc::new(StreamOrigin {
            guest: "g".into(),
            peer_guest: None,
            process: 1,
            executable: None,
            cgroup: None,
        });
        let (now, link) = (Timestamp::ZERO, LinkId(0));
        for (from, to, length) in [
            ("192.0.2.1:1", "[2001:db8::2]:1", 1),
            ("192.0.2.1:1", "192.0.2.2:1", 65_508),
            ("[2001:db8::1]:1", "[2001:db8::2]:1", 65_488),
        ] {
            let bytes = vec![0; length];
            let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
            let arrival = DatagramArrival { now, link, from, to, bytes: &bytes, origin: &origin };
            assert_eq!(write(&arrival, &mut Vec::new()), None);
        }
    }
}
