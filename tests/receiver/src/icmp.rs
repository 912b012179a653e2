// SPDX-License-Identifier: Apache-2.0
//! ICMP errors about a connection, forged by its client: a stack that believes them may close the connection
//! or send smaller packets (RFC 792, 1191, 4443, 5927).

use bartizan_testkit::packet::{CLIENT_MAC, Ip, Packet, SERVER_MAC, Segment};
use bartizan_testkit::random::Random;

/// A forged ICMP error.
#[derive(Clone, Debug)]
pub struct Error {
    /// Type and code, for IPv4.
    pub v4: (u8, u8),
    /// Type and code, for IPv6.
    pub v6: (u8, u8),
    /// The word after the checksum: a path MTU.
    pub word: u32,
    /// The error quotes a packet of the server, and looks as if it came from the client; else it quotes a
    /// packet of the client.
    pub of_server: bool,
    /// Number of bytes of the quoted packet.
    pub quoted: usize,
}

impl Error {
    /// A random error among those that stacks know.
    pub fn any(random: &mut Random) -> Self {
        let kinds = [
            ((3, 3), (1, 4)),
            ((3, 1), (1, 0)),
            ((3, 2), (4, 1)),
            ((3, 13), (1, 1)),
            ((3, 4), (2, 0)),
            ((11, 0), (3, 0)),
            ((12, 0), (4, 0)),
            ((4, 0), (1, 3)),
            ((5, 1), (1, 5)),
        ];
        let (v4, v6) = *random.pick(&kinds);
        let word = *random.pick(&[0, 68, 576, 1280, 1400, 0x0a42_0009]);
        Error { v4, v6, word, of_server: random.percent(50), quoted: *random.pick(&[28, 48, 60, 200]) }
    }

    /// Builds the frame, about a segment of the client with this header.
    #[must_use]
    pub fn frame(&self, client: &Ip, mut quoted: Segment) -> Vec<u8> {
        let mut inner = client.clone();
        if self.of_server {
            core::mem::swap(&mut inner.src, &mut inner.dst);
            (quoted.seq, quoted.ack) = (quoted.ack, quoted.seq);
            (quoted.sport, quoted.dport) = (quoted.dport, quoted.sport);
        }
        let mut packet = Packet::tcp(&inner, quoted).frame().split_off(14);
        packet.truncate(self.quoted.max(if inner.src.is_ipv4() { 28 } else { 48 }));
        // The error goes to the sender of the quoted packet.
        let v4 = inner.src.is_ipv4();
        let mut outer = Ip::new(inner.dst, inner.src, if v4 { 1 } else { 58 });
        outer.mac = if self.of_server { SERVER_MAC } else { CLIENT_MAC };
        let (kind, code) = if v4 { self.v4 } else { self.v6 };
        let mut bytes = vec![kind, code, 0, 0];
        bytes.extend_from_slice(&self.word.to_be_bytes());
        bytes.extend_from_slice(&packet);
        outer.frame(&outer.summed(&bytes), None)
    }
}
