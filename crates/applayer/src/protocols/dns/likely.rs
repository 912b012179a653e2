// SPDX-License-Identifier: Apache-2.0
//! Recognises first bytes that a DNS server takes for a query, beyond those that match Suricata's probe. Used
//! at the ports of DNS only.
//!
//! Servers read one question and ignore the number of additionals in the head (dnsmasq). Over TCP they skip
//! messages that are shorter than a head (dnsmasq), or answer malformed ones with an error (BIND), and read
//! the next one.

use super::message::{DnsHeader, Message};
use crate::protocol::{Probe, Transport};
use bartizan_base::{Cursor, Direction};

/// Limit of messages that are inspected. A stream of this many messages in the form of DNS, to its port,
/// counts as DNS.
const MESSAGES_MAX: usize = 64;
/// Limit of undecided bytes, after which the stream is no DNS: more than the longest message.
const WAIT_MAX: usize = 80_000;

/// Inspects a client's first bytes.
pub(super) fn likely(transport: Transport, direction: Direction, data: &[u8]) -> Probe {
    if direction != Direction::ToServer {
        return Probe::No;
    }
    let asks = match transport {
        Transport::Udp => is_query(data, data.len()),
        Transport::Tcp => in_messages(data),
    };
    match asks {
        Some(true) => Probe::Yes(direction),
        None if data.len() <= WAIT_MAX => Probe::More,
        _ => Probe::No,
    }
}

/// Inspects a datagram to the group of multicast DNS, query or response.
pub(super) fn multicast(_transport: Transport, direction: Direction, data: &[u8]) -> Probe {
    let is_message = |message: &Message| {
        let answers = message.section(super::Section::Answers);
        message.header.is_read() && !(message.queries.is_empty() && answers.is_empty())
    };
    match Message::read(data, true) {
        Ok(message) if direction == Direction::ToServer && is_message(&message) => Probe::Yes(direction),
        _ => Probe::No,
    }
}

/// Whether one of the messages of a stream is a query. `None`: more bytes are needed.
fn in_messages(data: &[u8]) -> Option<bool> {
    let mut cursor = Cursor::new(data);
    for _ in 0..MESSAGES_MAX {
        let length = usize::from(cursor.u16()?);
        if is_query(cursor.rest(), length)? {
            return Some(true);
        }
        cursor.take(length)?;
    }
    Some(true)
}

/// Whether a message of `length` bytes, of which `bytes` have come, is a query with one question. `None`:
/// more bytes are needed.
fn is_query(bytes: &[u8], length: usize) -> Option<bool> {
    let whole = bytes.len() >= length;
    let bytes = bytes.get(..length).unwrap_or(bytes);
    let Some(header) = DnsHeader::read(bytes) else { return whole.then_some(false) };
    if header.is_response() || header.counts.first() != Some(&1) {
        return Some(false);
    }
    // A pointer may lead to bytes that have not come yet.
    match Message::read(bytes, true) {
        Ok(_) => Some(true),
        Err(_) => whole.then_some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TS: Direction = Direction::ToServer;
    const QUERY: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x04evil\x04test\0\0\x01\0\x01";

    fn framed(messages: &[&[u8]]) -> Vec<u8> {
        messages.iter().flat_map(|m| [&(m.len() as u16).to_be_bytes()[..], m].concat()).collect()
    }

    fn with(at: usize, count: u16) -> Vec<u8> {
        let mut query = QUERY.to_vec();
        query[at..at + 2].copy_from_slice(&count.to_be_bytes());
        query
    }

    #[test]
    fn wrong_counts_hide_no_question() {
        for at in [6, 8, 10] {
            for count in [1, 20, 255, 256, 300, 0xffff] {
                assert_eq!(likely(Transport::Udp, TS, &with(at, count)), Probe::Yes(TS), "{at} {count}");
                assert_eq!(likely(Transport::Tcp, TS, &framed(&[&with(at, count)])), Probe::Yes(TS));
            }
        }
        for other in
            [with(4, 0), with(4, 2), with(2, 0x8100), QUERY[..26].to_vec(), b"GET / HTTP/1.1\r\n".to_vec()]
        {
            assert_eq!(likely(Transport::Udp, TS, &other), Probe::No);
        }
        assert_eq!(likely(Transport::Udp, Direction::ToClient, QUERY), Probe::No);
    }

    #[test]
    fn messages_that_servers_pass_over_hide_no_query() {
        for first in
            [&b""[..], b"a", b"aaaaa", &[b'a'; 11], &[b'\xff'; 60], &with(4, 0), b"GET / HTTP/1.1\r\n\r\n"]
        {
            let stream = framed(&[first, first, QUERY]);
            assert_eq!(likely(Transport::Tcp, TS, &stream), Probe::Yes(TS));
            for end in 0..stream.len() {
                assert_eq!(likely(Transport::Tcp, TS, &stream[..end]), Probe::More, "{first:?} {end}");
            }
        }
        // With any number of messages.
        assert_eq!(likely(Transport::Tcp, TS, &framed(&[&b"a"[..]; 100])), Probe::Yes(TS));
    }

    #[test]
    fn what_is_no_dns_ends() {
        assert_eq!(likely(Transport::Tcp, TS, &[b'S'; WAIT_MAX]), Probe::More);
        assert_eq!(likely(Transport::Tcp, TS, &[b'S'; WAIT_MAX + 1]), Probe::No);
    }

    #[test]
    fn multicast_messages_with_wrong_counts() {
        assert_eq!(multicast(Transport::Udp, TS, &with(10, 300)), Probe::Yes(TS));
        assert_eq!(multicast(Transport::Udp, TS, &with(4, 0)), Probe::No);
        assert_eq!(multicast(Transport::Udp, TS, b"GET / HTTP/1.1\r\n"), Probe::No);
    }
}
