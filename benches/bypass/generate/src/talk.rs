// SPDX-License-Identifier: Apache-2.0
//! Content of a flow, packet by packet.
//!
//! TCP: a handshake, a request of HTTP/1.0, an answer up to the end of the connection with an acknowledgment
//! for each second segment, and an orderly close started by the server. UDP: full datagrams in alternating
//! directions. Neither depends on the class, so bypassable flows and others differ only in their port.

use crate::flows::{Flow, SMALLEST};
use bartizan_testkit::packet::{ACK, FIN, PSH, RST, SYN};
use bartizan_testkit::random::Random;

/// The text of [`Texts`] that a packet carries a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// None: a packet without payload.
    Nothing,
    /// The client's request.
    Request,
    /// The server's answer.
    Answer,
    /// Either side's datagrams.
    Datagrams,
}

/// A packet of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Sent by the client if true, else by the server.
    pub from_client: bool,
    /// TCP flags; 0 in UDP.
    pub flags: u16,
    /// The text that the payload is part of.
    pub source: Source,
    /// Index of the full payload within the text, from 0.
    pub part: u16,
    /// Length of the payload in bytes.
    pub length: u16,
}

/// Length of the headers before the payload, in bytes: Ethernet, IP, TCP or UDP.
#[must_use]
pub fn headers(tcp: bool, v6: bool) -> u16 {
    14 + if v6 { 40 } else { 20 } + if tcp { 20 } else { 8 }
}

/// Payload of a full packet, in bytes.
#[must_use]
pub fn room(flow: &Flow) -> u16 {
    let smallest = if flow.v6 { SMALLEST.1 } else { SMALLEST.0 };
    flow.size.max(smallest) - headers(flow.class().tcp, flow.v6)
}

/// The packet of a flow at an index below `flow.packets`.
#[must_use]
pub fn step(flow: &Flow, at: u16) -> Step {
    let room = room(flow);
    let bare = |from_client, flags| Step { from_client, flags, source: Source::Nothing, part: 0, length: 0 };
    if !flow.class().tcp {
        return Step {
            from_client: at.is_multiple_of(2),
            flags: 0,
            source: Source::Datagrams,
            part: at / 2,
            length: room,
        };
    }
    let (request, last) = (request(room).len() as u16, flow.packets - 4);
    match at {
        0 => bare(true, SYN),
        1 => bare(false, SYN | ACK),
        2 => bare(true, ACK),
        // The server closes; the client acknowledges, and closes as well.
        _ if at == last => bare(false, FIN | ACK),
        _ if at == last + 1 => bare(true, ACK),
        _ if at == last + 2 => bare(true, FIN | ACK),
        _ if at > last => bare(false, ACK),
        _ => {
            let (said, segments) = (at - 3, request.div_ceil(room));
            if said < segments {
                let length = room.min(request - said * room);
                return Step {
                    from_client: true,
                    flags: PSH | ACK,
                    source: Source::Request,
                    part: said,
                    length,
                };
            }
            let answered = said - segments;
            if answered % 3 == 2 {
                return bare(true, ACK);
            }
            let part = answered / 3 * 2 + answered % 3;
            Step { from_client: false, flags: PSH | ACK, source: Source::Answer, part, length: room }
        }
    }
}

/// Whether the flow is a TCP connection that is established after `said` packets, and not yet closing.
#[must_use]
pub fn is_open(flow: &Flow, said: u16) -> bool {
    flow.class().tcp && said > 2 && said <= flow.packets - 4
}

/// The packet that ends a TCP flow early: a reset by the client.
#[must_use]
pub fn reset() -> Step {
    Step { from_client: true, flags: RST | ACK, source: Source::Nothing, part: 0, length: 0 }
}

/// Length of all frames of a flow, in bytes.
#[must_use]
pub fn bytes(flow: &Flow) -> u32 {
    let before = u32::from(headers(flow.class().tcp, flow.v6));
    (0..flow.packets).map(|at| before + u32::from(step(flow, at).length)).sum()
}

const SHORT_REQUEST: &[u8] = b"GET /ab HTTP/1.0\r\n\r\n";
const REQUEST: &[u8] = b"GET /generated/text HTTP/1.0\r\nHost: host.example\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\nAccept: */*\r\n\r\n";
const SHORT_ANSWER: &[u8] = b"HTTP/1.0 200 OK\r\n\r\n";
const ANSWER: &[u8] = b"HTTP/1.0 200 OK\r\nServer: generated\r\nContent-Type: text/plain\r\n\r\n";

/// The client's request: complete within a few packets, whatever their size.
#[must_use]
pub fn request(room: u16) -> &'static [u8] {
    if usize::from(room) >= REQUEST.len() { REQUEST } else { SHORT_REQUEST }
}

/// The texts that packets of one size carry parts of: the answer, and datagrams; all parts are full packets.
#[derive(Clone, Debug)]
pub struct Texts {
    /// The server's answer, long enough for the longest flow.
    pub answer: Vec<u8>,
    /// Content of the datagrams.
    pub datagrams: Vec<u8>,
}

impl Texts {
    /// Generates texts for packets with this room. They consist of small letters that form no words: rules
    /// search them and find nothing.
    #[must_use]
    pub fn new(room: u16, parts: usize) -> Self {
        let length = usize::from(room) * parts;
        let head = if usize::from(room) >= REQUEST.len() { ANSWER } else { SHORT_ANSWER };
        let mut answer = head.to_vec();
        answer.extend(Random::new(1).letters(length.saturating_sub(head.len())));
        answer.truncate(length);
        Texts { answer, datagrams: Random::new(2).letters(length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flows::{CLASSES, LONGEST, SHORTEST};

    fn flow(class: u8, packets: u16, size: u16, v6: bool) -> Flow {
        Flow { packets, size, class, v6 }
    }

    #[test]
    fn tcp_goes_from_a_handshake_over_request_and_answer_to_an_end_in_both_directions() {
        for v6 in [false, true] {
            for size in [64, 100, 594, 1500, 9000] {
                for packets in [SHORTEST, 12, 13, 40, LONGEST] {
                    let flow = flow(0, packets, size, v6);
                    let steps: Vec<_> = (0..packets).map(|at| step(&flow, at)).collect();
                    let flags: Vec<_> = steps.iter().map(|s| s.flags).collect();
                    assert_eq!(flags[..3], [SYN, SYN | ACK, ACK]);
                    assert_eq!(flags[flags.len() - 4..], [FIN | ACK, ACK, FIN | ACK, ACK]);
                    assert!(flags[3..flags.len() - 4].iter().all(|f| f & (SYN | FIN | RST) == 0));
                    let said = |source| steps.iter().filter(move |s| s.source == source);
                    let asked: usize = said(Source::Request).map(|s| usize::from(s.length)).sum();
                    assert_eq!(asked, request(room(&flow)).len(), "the request is whole");
                    let answered: Vec<_> = said(Source::Answer).map(|s| s.part).collect();
                    assert!(answered.len() >= 2, "{flow:?}");
                    assert_eq!(answered, (0..answered.len() as u16).collect::<Vec<_>>(), "in order, no hole");
                    assert!(usize::from(answered.len() as u16 * room(&flow).min(200)) >= SHORT_ANSWER.len());
                    assert!(said(Source::Answer).all(|s| !s.from_client && s.length == room(&flow)));
                }
            }
        }
    }

    #[test]
    fn udp_speaks_by_turns_and_frames_are_of_the_size() {
        let flow = flow(2, 21, 594, false);
        for at in 0..21 {
            let step = step(&flow, at);
            assert_eq!((step.from_client, step.length), (at.is_multiple_of(2), 594 - 42));
        }
        assert_eq!(bytes(&flow), 21 * 594);
    }

    #[test]
    fn what_a_flow_says_does_not_depend_on_whether_it_can_be_bypassed() {
        for (kept, gone) in [(0, 1), (2, 3)] {
            assert!(!CLASSES[kept].bypassable && CLASSES[gone].bypassable);
            let [kept, gone] = [kept, gone].map(|class| flow(class as u8, 33, 594, true));
            assert!((0..33).all(|at| step(&kept, at) == step(&gone, at)));
        }
    }
}
