// SPDX-License-Identifier: Apache-2.0
//! Packets of flows as frames. Payload is always a part of a few texts, whose share of the checksum is
//! computed beforehand: a frame costs a copy, and a sum over its headers.

use crate::flows::{CLASSES, Flow, LONGEST, ends};
use crate::talk::{self, Source, Step, Texts};
use bartizan_testkit::packet::{
    ACK, CLIENT_MAC, Datagram, End, FIN, Ip, SERVER_MAC, SYN, Segment, TCP, UDP, address, sum,
};
use std::net::IpAddr;

/// A flow that is being played.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// The flow's position in the list; numbering continues over rounds of the list.
    pub number: u64,
    /// The flow's description.
    pub flow: Flow,
    /// Number of packets played.
    pub at: u16,
    /// The next sequence numbers: the client's, the server's.
    numbers: (u32, u32),
    client: End,
    server: End,
    shape: usize,
}

/// State that frames of one size, IP version and transport protocol share.
struct Shape {
    flow: Flow,
    room: usize,
    /// Headers of the client and of the server, with zeros in the fields that differ from packet to packet.
    headers: [Vec<u8>; 2],
    texts: Texts,
    /// Checksums of the full parts of the texts.
    answer: Vec<u16>,
    datagrams: Vec<u16>,
    /// Checksums of the request's parts, the last of which may be short.
    request: Vec<u16>,
}

impl Shape {
    fn new(flow: Flow) -> Self {
        let room = usize::from(talk::room(&flow));
        let texts = Texts::new(room as u16, usize::from(LONGEST));
        let sums = |text: &[u8]| text.chunks(room).map(|part| sum(0, part)).collect();
        let request = sums(talk::request(room as u16));
        let (answer, datagrams) = (sums(&texts.answer), sums(&texts.datagrams));
        let header = |macs: (_, _)| {
            let (here, there) = (address(flow.v6, 0), address(flow.v6, 0));
            let ip = Ip {
                from_mac: macs.0,
                mac: macs.1,
                ..Ip::new(here, there, if flow.class().tcp { TCP } else { UDP })
            };
            // Two full segments are in flight before an acknowledgment: the largest window without window
            // scaling.
            let segment = Segment { window: 0xffff, ..Segment::new((0, 0), (0, 0), ACK, &[]) };
            let bytes =
                if flow.class().tcp { segment.unsummed() } else { Datagram::new((0, 0), &[]).unsummed() };
            ip.frame(&bytes, None)
        };
        let headers = [header((CLIENT_MAC, SERVER_MAC)), header((SERVER_MAC, CLIENT_MAC))];
        Shape { flow, room, headers, texts, answer, datagrams, request }
    }

    /// The payload of a packet, and its checksum.
    fn payload(&self, step: &Step) -> (&[u8], u16) {
        let (part, length) = (usize::from(step.part), usize::from(step.length));
        let (text, sums) = match step.source {
            Source::Nothing => return (&[], 0),
            Source::Request => (talk::request(self.room as u16), &self.request),
            Source::Answer => (&self.texts.answer[..], &self.answer),
            Source::Datagrams => (&self.texts.datagrams[..], &self.datagrams),
        };
        (&text[part * self.room..][..length], sums[part])
    }
}

/// Makes frames of the prepared shapes.
pub struct Maker {
    shapes: Vec<Shape>,
}

impl Maker {
    /// Prepares flows of these frame sizes.
    #[must_use]
    pub fn new(sizes: &[u16]) -> Self {
        let kinds = [(0, false), (0, true), (2, false), (2, true)];
        debug_assert!(CLASSES[0].tcp && !CLASSES[2].tcp);
        let of_size = |size: &u16| kinds.map(|(class, v6)| Flow { packets: LONGEST, size: *size, class, v6 });
        Maker { shapes: sizes.iter().flat_map(of_size).map(Shape::new).collect() }
    }

    /// Starts the flow with this number.
    ///
    /// # Panics
    /// If this maker was not built for the flow's frame size.
    #[must_use]
    pub fn begin(&self, number: u64, flow: Flow) -> Conversation {
        let alike = |shape: &Shape| {
            let of = &shape.flow;
            (of.size, of.v6, of.class().tcp) == (flow.size, flow.v6, flow.class().tcp)
        };
        let shape = self.shapes.iter().position(alike).expect("a size of the plan");
        let (client, server) = ends(number, &flow);
        // Arbitrary initial sequence numbers, so that they wrap in some flows.
        let mixed = number.wrapping_mul(0xd6e8_feb8_6659_fd93);
        let numbers = (mixed as u32, (mixed >> 32) as u32);
        Conversation { number, flow, at: 0, numbers, client, server, shape }
    }

    /// Writes the next packet of a flow as a frame and advances the flow. Returns the frame's length; `frame`
    /// has room for the largest one.
    pub fn write(&self, talk: &mut Conversation, step: &Step, frame: &mut [u8]) -> usize {
        let shape = &self.shapes[talk.shape];
        let (tcp, v6) = (talk.flow.class().tcp, talk.flow.v6);
        let header = &shape.headers[usize::from(!step.from_client)];
        let (before, (payload, payload_sum)) = (header.len(), shape.payload(step));
        let length = before + payload.len();
        frame[..before].copy_from_slice(header);
        frame[before..length].copy_from_slice(payload);
        let (from, to) =
            if step.from_client { (talk.client, talk.server) } else { (talk.server, talk.client) };
        let layer4 = if v6 { 54 } else { 34 };
        let addresses = put_ip(frame, length, from.0, to.0);
        put(frame, layer4, from.1);
        put(frame, layer4 + 2, to.1);
        let size = (length - layer4) as u16;
        let place = if tcp {
            let (own, other) = if step.from_client {
                (talk.numbers.0, talk.numbers.1)
            } else {
                (talk.numbers.1, talk.numbers.0)
            };
            let acknowledged = if step.flags & ACK == 0 { 0 } else { other };
            frame[layer4 + 4..layer4 + 8].copy_from_slice(&own.to_be_bytes());
            frame[layer4 + 8..layer4 + 12].copy_from_slice(&acknowledged.to_be_bytes());
            frame[layer4 + 13] = step.flags as u8;
            let uses = u32::from(step.length) + u32::from(step.flags & (SYN | FIN) != 0);
            let next = if step.from_client { &mut talk.numbers.0 } else { &mut talk.numbers.1 };
            *next = next.wrapping_add(uses);
            layer4 + 16
        } else {
            put(frame, layer4 + 4, size);
            layer4 + 6
        };
        // The addresses lie right before the transport header; besides them the pseudo-header has only length
        // and protocol.
        let begin = u32::from(payload_sum) + u32::from(size) + u32::from(if tcp { TCP } else { UDP });
        let right = !sum(begin, &frame[addresses..before]);
        put(frame, place, if right == 0 && !tcp { 0xffff } else { right });
        talk.at += 1;
        length
    }
}

/// Writes addresses, length and, in IPv4, the header checksum. Returns the offset of the addresses.
fn put_ip(frame: &mut [u8], length: usize, from: IpAddr, to: IpAddr) -> usize {
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            put(frame, 16, (length - 14) as u16);
            put(frame, 24, 0);
            frame[26..30].copy_from_slice(&from.octets());
            frame[30..34].copy_from_slice(&to.octets());
            let right = !sum(0, &frame[14..34]);
            put(frame, 24, right);
            26
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            put(frame, 18, (length - 54) as u16);
            frame[22..38].copy_from_slice(&from.octets());
            frame[38..54].copy_from_slice(&to.octets());
            22
        }
        _ => unreachable!("both ends of a flow have one version"),
    }
}

fn put(frame: &mut [u8], at: usize, word: u16) {
    frame[at..at + 2].copy_from_slice(&word.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flows::LARGEST;

    /// Builds the packet field by field, as a reference.
    fn slowly(talk: &Conversation, step: &Step, payload: &[u8]) -> Vec<u8> {
        let (client, server, macs) = (talk.client, talk.server, (CLIENT_MAC, SERVER_MAC));
        let ((from, to), macs, (own, other)) = if step.from_client {
            ((client, server), macs, talk.numbers)
        } else {
            ((server, client), (macs.1, macs.0), (talk.numbers.1, talk.numbers.0))
        };
        let tcp = talk.flow.class().tcp;
        let ip = Ip { from_mac: macs.0, mac: macs.1, ..Ip::new(from.0, to.0, if tcp { TCP } else { UDP }) };
        let bytes = if tcp {
            let ack = if step.flags & ACK == 0 { 0 } else { other };
            let segment = Segment::new((from.1, to.1), (own, ack), step.flags, payload);
            Segment { window: 0xffff, ..segment }.bytes(&ip)
        } else {
            Datagram::new((from.1, to.1), payload).bytes(&ip)
        };
        ip.frame(&bytes, None)
    }

    #[test]
    fn frames_and_their_checksums_are_those_of_the_slow_way() {
        let sizes = [64, 91, 594, 1500, LARGEST];
        let maker = Maker::new(&sizes);
        let mut frame = vec![0xee; usize::from(LARGEST)];
        let mut number = 0;
        for size in sizes {
            for (class, v6) in [(0, false), (1, true), (2, false), (3, true), (1, false), (2, true)] {
                let flow = Flow { packets: 31, size, class, v6 };
                let mut talk = maker.begin(number, flow);
                number += 77_777;
                let mut numbers = (talk.numbers.0, talk.numbers.1);
                for at in 0..flow.packets {
                    let step = talk::step(&flow, at);
                    let before = talk.clone();
                    let length = maker.write(&mut talk, &step, &mut frame);
                    let payload = frame[length - usize::from(step.length)..length].to_vec();
                    assert_eq!(frame[..length], slowly(&before, &step, &payload), "{flow:?} at {at}");
                    let uses = u32::from(step.length) + u32::from(step.flags & (SYN | FIN) != 0);
                    if flow.class().tcp && step.from_client {
                        numbers.0 = numbers.0.wrapping_add(uses);
                    } else if flow.class().tcp {
                        numbers.1 = numbers.1.wrapping_add(uses);
                    }
                    assert_eq!((talk.at, talk.numbers), (at + 1, numbers));
                }
            }
        }
    }

    #[test]
    fn full_frames_have_the_size_and_streams_say_the_texts() {
        let maker = Maker::new(&[64, 594]);
        let mut frame = vec![0; usize::from(LARGEST)];
        for (size, v6, full) in [(64, false, 64), (64, true, 84), (594, false, 594), (594, true, 594)] {
            let flow = Flow { packets: 60, size, class: 0, v6 };
            let mut talk = maker.begin(5, flow);
            let (mut asked, mut answered) = (Vec::new(), Vec::new());
            for at in 0..flow.packets {
                let step = talk::step(&flow, at);
                let length = maker.write(&mut talk, &step, &mut frame);
                let payload = &frame[length - usize::from(step.length)..length];
                if step.from_client {
                    asked.extend_from_slice(payload);
                } else {
                    answered.extend_from_slice(payload);
                    assert!(payload.is_empty() || length == full, "{length} of {full}");
                }
            }
            assert_eq!(asked, talk::request(talk::room(&flow)));
            assert!(asked.ends_with(b"\r\n\r\n") && answered.starts_with(b"HTTP/1.0 200 OK\r\n"));
        }
    }
}
