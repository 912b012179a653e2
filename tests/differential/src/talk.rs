// SPDX-License-Identifier: Apache-2.0
//! Conversations: messages, and their packets in the absence of faults.

use crate::pair::{Body, Packet};
use bartizan_testkit::packet::{ACK, FIN, PSH, RST, SYN, Segment};

/// One message of a conversation.
#[derive(Clone, Debug)]
pub struct Message {
    /// Sent by the client.
    pub to_server: bool,
    /// Its bytes; over UDP a datagram.
    pub data: Vec<u8>,
    /// Index of the client that sends or receives it.
    pub client: u8,
    /// Index of the client's flow.
    pub flow: u16,
    /// Pause before it, in milliseconds.
    pub pause: u64,
    /// Port of the server in this flow; `None`: that of all.
    pub port: Option<u16>,
    /// The server opens the connection.
    pub is_active: bool,
    /// The connection is closed after it.
    pub closes: bool,
}

impl Message {
    /// A message of the first flow of the first client.
    #[must_use]
    pub fn new(to_server: bool, data: Vec<u8>) -> Self {
        Message { to_server, data, client: 0, flow: 0, pause: 0, port: None, is_active: false, closes: false }
    }
}

/// The policy of acknowledgments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acks {
    /// Each segment is acknowledged separately.
    Each,
    /// After the end of a message.
    Message,
    /// With the other side's data only.
    Data,
    /// Never.
    Never,
}

/// The end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The connection stays open.
    Open,
    /// Both sides close, the client first.
    Client,
    /// Both sides close, the server first.
    Server,
    /// The client's last segment of data has the FIN.
    WithData,
    /// A reset of the client.
    Reset,
    /// A reset of the server.
    ServerReset,
}

/// Transport parameters of messages.
#[derive(Clone, Debug)]
pub struct Way {
    /// Over UDP.
    pub udp: bool,
    /// The server's port.
    pub port: u16,
    /// Payload bytes of each segment; the last size applies to all further ones.
    pub sizes: Vec<usize>,
    /// Policy of acknowledgments.
    pub acks: Acks,
    /// End of the connections.
    pub end: End,
    /// The handshake is missing.
    pub midstream: bool,
    /// Initial sequence numbers of client and server.
    pub begin: (u32, u32),
    /// With the timestamp option.
    pub timestamps: bool,
    /// The SYN carries bytes of the first message.
    pub syn_data: bool,
    /// Only packets of this direction are seen (`true`: of the client).
    pub one_sided: Option<bool>,
    /// VLAN tag.
    pub vlan: Option<u16>,
    /// Time to live and type of service.
    pub ttl: (u8, u8),
    /// Advertised window.
    pub window: u16,
}

impl Default for Way {
    fn default() -> Self {
        Way {
            udp: false,
            port: 4_000,
            sizes: vec![1_460],
            acks: Acks::Each,
            end: End::Client,
            midstream: false,
            begin: (1_000, 900_000),
            timestamps: false,
            syn_data: false,
            one_sided: None,
            vlan: None,
            ttl: (64, 0),
            window: 8_192,
        }
    }
}

/// Makes the packets of messages.
#[must_use]
pub fn packets(messages: &[Message], way: &Way) -> Vec<Packet> {
    let mut packets: Vec<Packet> = Vec::new();
    let mut flows: Vec<((u8, u16), Connection)> = Vec::new();
    for message in messages {
        let key = (message.client, message.flow);
        let from = packets.len();
        if way.udp {
            let packet = packet(key, way, message.to_server, Body::Udp(message.data.clone()));
            packets.push(packet);
        } else {
            let at = flows.iter().position(|(of, _)| *of == key).unwrap_or_else(|| {
                flows.push((key, Connection::new(key, way, message)));
                flows.len() - 1
            });
            flows[at].1.say(message);
            if message.closes {
                flows[at].1.close();
            }
            packets.append(&mut flows[at].1.packets);
        }
        if let Some(first) = packets.get_mut(from) {
            first.after += message.pause * 1_000;
        }
    }
    for (_, connection) in &mut flows {
        connection.close();
        packets.append(&mut connection.packets);
    }
    packets.retain(|packet| way.one_sided.is_none_or(|side| side == packet.to_server));
    packets
}

/// A packet of a flow (client and port, as indexes) with these transport parameters.
pub(crate) fn packet(key: (u8, u16), way: &Way, to_server: bool, body: Body) -> Packet {
    Packet {
        after: 1_000,
        client: key.0,
        flow: key.1,
        port: way.port,
        to_server,
        ttl: way.ttl.0,
        tos: way.ttl.1,
        fragments: None,
        vlan: way.vlan,
        body,
    }
}

/// A connection whose packets are being made.
struct Connection<'a> {
    key: (u8, u16),
    way: &'a Way,
    port: u16,
    /// Next sequence numbers: of the client, of the server.
    next: [u32; 2],
    /// The number that each side has acknowledged of the other.
    acked: [u32; 2],
    /// Bytes of the client sent with the SYN.
    early: usize,
    clock: u32,
    finished: bool,
    packets: Vec<Packet>,
}

impl<'a> Connection<'a> {
    fn new(key: (u8, u16), way: &'a Way, first: &Message) -> Self {
        let begin = [way.begin.0, way.begin.1];
        let mut connection = Connection {
            key,
            way,
            port: first.port.unwrap_or(way.port),
            next: begin,
            acked: [begin[1], begin[0]],
            early: 0,
            clock: 100,
            finished: false,
            packets: Vec::new(),
        };
        // The side that opens the connection.
        let opener = !first.is_active;
        let [side, other] = [usize::from(!opener), usize::from(opener)];
        let early = if way.syn_data && first.to_server && opener {
            first.data[..first.data.len().min(20)].to_vec()
        } else {
            Vec::new()
        };
        connection.early = early.len();
        connection.send(opener, SYN, early);
        connection.acked[other] = connection.next[side];
        connection.send(!opener, SYN | ACK, Vec::new());
        connection.acked[side] = connection.next[other];
        connection.send(opener, ACK, Vec::new());
        if way.midstream {
            connection.packets.clear();
        }
        connection
    }

    fn send(&mut self, client: bool, flags: u16, load: Vec<u8>) {
        let side = usize::from(!client);
        let mut options = Vec::new();
        if flags & SYN != 0 {
            options.push((2, vec![5, 180]));
        }
        if self.way.timestamps {
            self.clock += 1;
            let mut times = self.clock.to_be_bytes().to_vec();
            let echo = if flags & ACK != 0 { self.clock - 1 } else { 0 };
            times.extend_from_slice(&echo.to_be_bytes());
            options.extend([(1, Vec::new()), (1, Vec::new()), (8, times)]);
        }
        let length = load.len() as u32 + u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
        let segment = Segment {
            seq: self.next[side],
            ack: if flags & ACK != 0 { self.acked[side] } else { 0 },
            flags,
            window: self.way.window,
            options,
            load,
            ..Segment::default()
        };
        self.next[side] = self.next[side].wrapping_add(length);
        let packet = packet(self.key, self.way, client, Body::Tcp(segment));
        self.packets.push(Packet { port: self.port, ..packet });
    }

    fn say(&mut self, message: &Message) {
        let (client, way) = (message.to_server, self.way);
        let (side, other) = (usize::from(!client), usize::from(client));
        let mut rest = message.data.as_slice();
        if client {
            let (_, behind) = rest.split_at(std::mem::take(&mut self.early).min(rest.len()));
            rest = behind;
        }
        if way.acks != Acks::Never {
            self.acked[side] = self.next[other];
        }
        let mut sizes = way.sizes.iter();
        let mut size = 1_460;
        while !rest.is_empty() {
            size = *sizes.next().unwrap_or(&size);
            let (load, behind) = rest.split_at(size.clamp(1, rest.len()));
            rest = behind;
            self.send(client, if rest.is_empty() { PSH | ACK } else { ACK }, load.to_vec());
            if way.acks == Acks::Each || way.acks == Acks::Message && rest.is_empty() {
                self.acked[other] = self.next[side];
                self.send(!client, ACK, Vec::new());
            }
        }
    }

    fn close(&mut self) {
        if std::mem::replace(&mut self.finished, true) {
            return;
        }
        let first = self.way.end != End::Server;
        match self.way.end {
            End::Open => {}
            End::Reset => self.send(true, RST | ACK, Vec::new()),
            End::ServerReset => self.send(false, RST | ACK, Vec::new()),
            End::WithData => {
                let last = self.packets.iter().rposition(|packet| packet.to_server);
                let last = last.filter(
                    |at| matches!(&self.packets[*at].body, Body::Tcp(segment) if !segment.load.is_empty()),
                );
                match last.map(|at| &mut self.packets[at].body) {
                    Some(Body::Tcp(segment)) => {
                        segment.flags |= FIN;
                        self.next[0] = self.next[0].wrapping_add(1);
                    }
                    _ => self.send(true, FIN | ACK, Vec::new()),
                }
                self.acked[1] = self.next[0];
                self.send(false, FIN | ACK, Vec::new());
                self.acked[0] = self.next[1];
                self.send(true, ACK, Vec::new());
            }
            End::Client | End::Server => {
                let (side, other) = (usize::from(!first), usize::from(first));
                self.acked[side] = self.next[other];
                self.send(first, FIN | ACK, Vec::new());
                self.acked[other] = self.next[side];
                self.send(!first, FIN | ACK, Vec::new());
                self.acked[side] = self.next[other];
                self.send(first, ACK, Vec::new());
            }
        }
    }
}
