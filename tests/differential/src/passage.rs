// SPDX-License-Identifier: Apache-2.0
//! The frames of a pair, as the causes of differences need them: the owner of each frame, and the new bytes
//! it carries.

use crate::finding::FlowKey;
use crate::pair::{Body, Packet, Pair};
use bartizan_testkit::packet::{ACK, FIN, RST, SYN, Segment};

/// The frames of a pair, and its packets.
pub struct Passage<'p> {
    packets: &'p [Packet],
    /// Packet index of each frame.
    frames: Vec<usize>,
}

/// Limit of the bytes of a direction that [`Passage::first`] returns.
const FIRST_MAX: u32 = 1 << 20;

impl<'p> Passage<'p> {
    /// The frames and packets of a pair.
    #[must_use]
    pub fn of(pair: &'p Pair) -> Self {
        let counts = pair.frame_counts();
        let frames = counts.into_iter().enumerate().flat_map(|(at, count)| std::iter::repeat_n(at, count));
        Passage { packets: &pair.packets, frames: frames.collect() }
    }

    /// The packet that a frame belongs to, with its index.
    #[must_use]
    pub fn packet(&self, frame: u32) -> Option<(usize, &'p Packet)> {
        let at = *self.frames.get(usize::try_from(frame).ok()?.checked_sub(1)?)?;
        Some((at, self.packets.get(at)?))
    }

    /// The segment that a frame carries, with its packet.
    #[must_use]
    pub fn segment(&self, frame: u32) -> Option<(usize, &'p Packet, &'p Segment)> {
        let (at, packet) = self.packet(frame)?;
        segment(packet).map(|segment| (at, packet, segment))
    }

    /// The packets of a flow, with their indexes.
    pub fn of_flow(&self, flow: FlowKey) -> impl Iterator<Item = (usize, &'p Packet)> + '_ {
        self.packets.iter().enumerate().filter(move |(_, packet)| key(packet) == flow)
    }

    /// The segments of one direction of a flow before a packet index.
    pub fn before(
        &self,
        flow: FlowKey,
        to_server: bool,
        at: usize,
    ) -> impl Iterator<Item = &'p Segment> + '_ {
        self.of_flow(flow)
            .take_while(move |(place, _)| *place < at)
            .filter(move |(_, packet)| packet.to_server == to_server)
            .filter_map(|(_, packet)| segment(packet))
            .filter(|segment| segment.chksum_error == 0)
    }

    /// The flows of the pair.
    pub fn flows(&self) -> impl Iterator<Item = FlowKey> + '_ {
        let mut seen = Vec::new();
        self.packets.iter().map(key).filter(move |flow| {
            let new = !seen.contains(flow);
            seen.push(*flow);
            new
        })
    }

    /// The end of a direction's contiguous data before a packet index, as a sequence number.
    #[must_use]
    pub fn contiguous(&self, flow: FlowKey, to_server: bool, at: usize) -> Option<u32> {
        let first = self.before(flow, to_server, at).find(|segment| segment.flags & SYN != 0)?;
        let mut edge = first.seq.wrapping_add(1);
        let data: Vec<&Segment> = self.before(flow, to_server, at).collect();
        // Each segment may move the edge to where another one begins. Most arrive in order, so one or two
        // passes suffice.
        let mut before = None;
        while before.replace(edge) != Some(edge) {
            for one in &data {
                let end = one.seq.wrapping_add(one.load.len() as u32);
                if ahead(one.seq, edge) <= 0 && ahead(end, edge) > 0 {
                    edge = end;
                }
            }
        }
        Some(edge)
    }

    /// Whether a direction has a hole before later bytes at the end of the flow.
    #[must_use]
    pub fn has_hole(&self, flow: FlowKey, to_server: bool) -> bool {
        let all = usize::MAX;
        self.contiguous(flow, to_server, all).is_some_and(|edge| {
            self.before(flow, to_server, all)
                .any(|one| (!one.load.is_empty() || one.flags & FIN != 0) && ahead(one.seq, edge) > 0)
        })
    }

    /// All payload of a direction, in order of arrival.
    #[must_use]
    pub fn said(&self, flow: FlowKey, to_server: bool) -> Vec<u8> {
        self.said_before(flow, to_server, usize::MAX)
    }

    /// Payload of a direction before a packet index, in order of arrival.
    #[must_use]
    pub fn said_before(&self, flow: FlowKey, to_server: bool, at: usize) -> Vec<u8> {
        self.before(flow, to_server, at).flat_map(|one| one.load.iter().copied()).collect()
    }

    /// The first `count` bytes of a direction as prevention reads them: the first copy of each byte. Fewer if
    /// some are missing.
    #[must_use]
    pub fn first(&self, flow: FlowKey, to_server: bool, count: u32) -> Vec<u8> {
        self.first_before(flow, to_server, count, usize::MAX)
    }

    /// The first `count` bytes of a direction, from the packets before index `at`.
    fn first_before(&self, flow: FlowKey, to_server: bool, count: u32, at: usize) -> Vec<u8> {
        let Some(syn) = self.before(flow, to_server, at).find(|segment| segment.flags & SYN != 0) else {
            return Vec::new();
        };
        let begin = syn.seq.wrapping_add(1);
        let mut bytes: Vec<Option<u8>> = Vec::new();
        let count = count.min(FIRST_MAX);
        for one in self.before(flow, to_server, at).filter(|one| one.flags & SYN == 0) {
            let place = ahead(one.seq, begin);
            for (of, byte) in (place..).zip(&one.load).filter(|(of, _)| (0..count.cast_signed()).contains(of))
            {
                let of = of as usize;
                if bytes.len() <= of {
                    bytes.resize(of + 1, None);
                }
                bytes[of].get_or_insert(*byte);
            }
        }
        bytes.into_iter().map_while(|byte| byte).collect()
    }

    /// Whether a client of that port has sent only a part of a message that begins with its length, and no
    /// FIN of it was acknowledged.
    #[must_use]
    pub fn awaits_more(&self, flow: FlowKey, port: u16) -> bool {
        let all = usize::MAX;
        let Some(edge) = self.contiguous(flow, true, all) else { return false };
        let said = self.said(flow, true);
        let mut rest = said.as_slice();
        while let [high, low, body @ ..] = rest {
            let Some(next) = body.get(usize::from(u16::from_be_bytes([*high, *low]))..) else { break };
            rest = next;
        }
        let of_port = self.of_flow(flow).any(|(_, packet)| packet.port == port);
        // A lost FIN does not count: the acknowledged bytes may have been more of the message.
        let ended = self.before(flow, true, all).any(|one| one.flags & FIN != 0);
        let reaches = |one: &Segment| one.flags & ACK != 0 && ahead(one.ack, edge) > 0;
        of_port && !rest.is_empty() && !(ended && self.before(flow, false, all).any(reaches))
    }

    /// Whether a client's data before a packet index may begin a request that no pattern recognises: a word,
    /// white space, and no line end yet.
    #[must_use]
    pub fn may_become_a_request(&self, flow: FlowKey, at: usize) -> bool {
        const METHOD: usize = 32;
        let said = self.first_before(flow, true, 4 * METHOD as u32, at);
        let method = said.iter().take_while(|byte| byte.is_ascii_graphic()).count();
        let white = |byte: &u8| matches!(byte, b' ' | b'\t' | 0x0b | 0x0c);
        (1..=METHOD).contains(&method) && said.get(method).is_none_or(white) && !said.contains(&b'\n')
    }

    /// Whether a flow has a SYN with data.
    #[must_use]
    pub fn has_data_with_syn(&self, flow: FlowKey) -> bool {
        self.of_flow(flow).any(|(_, packet)| {
            segment(packet).is_some_and(|one| one.flags & SYN != 0 && !one.load.is_empty())
        })
    }

    /// Whether only one side of a connection is seen to send a SYN.
    #[must_use]
    pub fn is_one_sided(&self, flow: FlowKey) -> bool {
        let opens =
            |to_server: bool| self.before(flow, to_server, usize::MAX).any(|one| one.flags & SYN != 0);
        opens(true) != opens(false)
    }

    /// The packet index of a flow's first reset.
    #[must_use]
    pub fn reset(&self, flow: FlowKey) -> Option<usize> {
        self.of_flow(flow)
            .find(|(_, packet)| segment(packet).is_some_and(|one| one.flags & RST != 0))
            .map(|(at, _)| at)
    }
}

/// Signed distance from sequence number `of` to `seq`.
#[must_use]
pub const fn ahead(seq: u32, of: u32) -> i32 {
    seq.wrapping_sub(of).cast_signed()
}

/// A packet's flow.
#[must_use]
pub const fn key(packet: &Packet) -> FlowKey {
    (if packet.client == 0 { 1 } else { packet.client + 2 }, packet.flow)
}

/// A packet's segment.
#[must_use]
pub const fn segment(packet: &Packet) -> Option<&Segment> {
    match &packet.body {
        Body::Tcp(segment) => Some(segment),
        _ => None,
    }
}
