// SPDX-License-Identifier: Apache-2.0
//! Makes QUIC packets for tests: Initial packets with any frames, protected as their senders protect them.

use super::header::V2;
use super::keys::InitialKeys;
use bartizan_base::Direction;
use ring::aead::Aad;

/// The connection id that the client of tests chooses first.
pub(super) const FIRST_ID: &[u8] = b"first-id";
/// The connection ids that client and server of tests choose for themselves.
pub(super) const CLIENT_ID: &[u8] = b"client";
pub(super) const SERVER_ID: &[u8] = b"server";

/// An Initial packet to be made.
#[derive(Clone, Debug)]
pub(super) struct InitialPacket {
    pub(super) direction: Direction,
    pub(super) version: u32,
    /// The connection id from which the keys are derived.
    pub(super) key_id: Vec<u8>,
    /// The receiver's connection id.
    pub(super) destination: Vec<u8>,
    pub(super) number: u64,
    pub(super) frames: Vec<u8>,
}

/// An integer of variable length, in two bytes.
pub(super) fn varint(value: usize) -> [u8; 2] {
    assert!(value < 1 << 14, "{value}");
    (value as u16 | 0x4000).to_be_bytes()
}

/// A packet of the client with its first connection id.
pub(super) fn client(number: u64, frames: &[u8]) -> InitialPacket {
    InitialPacket {
        direction: Direction::ToServer,
        version: 1,
        key_id: FIRST_ID.into(),
        destination: FIRST_ID.into(),
        number,
        frames: frames.into(),
    }
}

/// A packet of the server.
pub(super) fn server(number: u64, frames: &[u8]) -> InitialPacket {
    let direction = Direction::ToClient;
    InitialPacket { direction, destination: CLIENT_ID.into(), ..client(number, frames) }
}

impl InitialPacket {
    /// This packet of a connection that began with another id.
    pub(super) fn of(self, key_id: &[u8]) -> Self {
        let to_server = self.direction == Direction::ToServer;
        let destination = if to_server { key_id.into() } else { self.destination };
        InitialPacket { key_id: key_id.into(), destination, ..self }
    }

    /// This packet of another version.
    pub(super) fn version(self, version: u32) -> Self {
        InitialPacket { version, ..self }
    }

    /// The bytes of the packet.
    pub(super) fn seal(&self) -> Vec<u8> {
        let keys = InitialKeys::new(self.version, &self.key_id).expect("a version with keys");
        let keys = &keys.sides[self.direction];
        let source = if self.direction == Direction::ToServer { CLIENT_ID } else { SERVER_ID };
        let mut head = vec![if self.version == V2 { 0xd1 } else { 0xc1 }];
        head.extend_from_slice(&self.version.to_be_bytes());
        head.push(self.destination.len() as u8);
        head.extend_from_slice(&self.destination);
        head.push(source.len() as u8);
        head.extend_from_slice(source);
        head.push(0);
        // Two bytes of number; header protection needs a sample.
        let mut payload = self.frames.clone();
        payload.resize(payload.len().max(4), 0);
        head.extend_from_slice(&varint(2 + payload.len() + 16));
        let number_at = head.len();
        head.extend_from_slice(&(self.number as u16).to_be_bytes());
        keys.payload
            .seal_in_place_append_tag(keys.nonce(self.number), Aad::from(&head), &mut payload)
            .expect("sealed");
        let sample = &[&head[number_at..], &payload].concat()[4..20];
        let mask = keys.header.new_mask(sample).expect("a mask");
        head[0] ^= mask[0] & 0x0f;
        for at in 0..2 {
            head[number_at + at] ^= mask[1 + at];
        }
        [head, payload].concat()
    }

    /// Direction and bytes of a datagram with this packet.
    pub(super) fn datagram(&self) -> (Direction, Vec<u8>) {
        (self.direction, self.seal())
    }
}

/// A packet with a long header that is no Initial packet of version 1: 0-RTT 1, Handshake 2, Retry 3.
pub(super) fn long(kind: u8, destination: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xc0 | kind << 4, 0, 0, 0, 1, destination.len() as u8];
    bytes.extend_from_slice(destination);
    bytes.push(0);
    if kind < 3 {
        bytes.extend_from_slice(&varint(payload.len()));
    }
    bytes.extend_from_slice(payload);
    bytes
}

/// A Retry packet that asks the client to use another connection id.
pub(super) fn retry(source: &[u8]) -> Vec<u8> {
    let mut packet = vec![0xf0, 0, 0, 0, 1, CLIENT_ID.len() as u8];
    packet.extend_from_slice(CLIENT_ID);
    packet.push(source.len() as u8);
    packet.extend_from_slice(source);
    packet.extend_from_slice(b"token");
    let tag = super::keys::retry_tag(&packet, FIRST_ID);
    [packet, tag].concat()
}

/// A CRYPTO frame.
pub(super) fn crypto(offset: usize, data: &[u8]) -> Vec<u8> {
    [&[6][..], &varint(offset), &varint(data.len()), data].concat()
}

fn extension(kind: u16, body: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &(body.len() as u16).to_be_bytes(), body].concat()
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind, 0][..], &(body.len() as u16).to_be_bytes(), body].concat()
}

/// A client hello that asks for a server.
pub(super) fn client_hello(name: &str) -> Vec<u8> {
    let length = (name.len() as u16).to_be_bytes();
    let names = [&(name.len() as u16 + 3).to_be_bytes()[..], &[0], &length, name.as_bytes()].concat();
    let extensions = [
        extension(0x1a1a, b""),
        extension(0, &names),
        extension(16, b"\0\x03\x02h3"),
        extension(43, b"\x02\x03\x04"),
        extension(10, b"\0\x04\x0a\x0a\0\x1d"),
        extension(13, b"\0\x02\x04\x03"),
        extension(57, b""),
    ]
    .concat();
    let head = [&[3, 3][..], &[b'r'; 32], &[0, 0, 4, 0x13, 1, 0x13, 2, 1, 0]].concat();
    message(1, &[&head[..], &(extensions.len() as u16).to_be_bytes(), &extensions].concat())
}

/// A server hello with this random.
pub(super) fn server_hello_with(random: &[u8; 32]) -> Vec<u8> {
    let extensions = [extension(43, &[3, 4]), extension(51, b"\0\x1d\0\x04abcd")].concat();
    let head = [&[3, 3][..], random, &[0, 0x13, 1, 0]].concat();
    message(2, &[&head[..], &(extensions.len() as u16).to_be_bytes(), &extensions].concat())
}

/// A server hello.
pub(super) fn server_hello() -> Vec<u8> {
    server_hello_with(&[b's'; 32])
}
