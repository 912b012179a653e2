// SPDX-License-Identifier: Apache-2.0
//! QUIC packets up to the hellos: Initial packets with any frames, protected as their senders protect them
//! (RFC 9001, RFC 9369), and the packets around them.

use ring::aead::quic::{AES_128, HeaderProtectionKey};
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};

/// QUIC version 1.
pub const V1: u32 = 1;
/// QUIC version 2.
pub const V2: u32 = 0x6b33_43cf;

/// The connection id that a client chooses first.
pub const FIRST_ID: &[u8] = b"first-id";
/// The connection id that a client chooses for itself.
pub const CLIENT_ID: &[u8] = b"client";
/// The connection id that a server chooses for itself.
pub const SERVER_ID: &[u8] = b"server";

/// The sender of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// The client.
    Client,
    /// The server.
    Server,
}

/// An Initial packet to be made.
#[derive(Clone, Debug)]
pub struct InitialPacket {
    /// The sender.
    pub sender: Sender,
    /// The version, 1 or 2.
    pub version: u32,
    /// The connection id from which the keys are derived.
    pub key_id: Vec<u8>,
    /// The receiver's connection id.
    pub destination: Vec<u8>,
    /// The packet's number, of which two bytes are sent.
    pub number: u64,
    /// The frames.
    pub frames: Vec<u8>,
}

/// An integer of variable length, in two bytes.
///
/// # Panics
/// The value does not fit.
#[must_use]
pub fn varint(value: usize) -> [u8; 2] {
    let value = u16::try_from(value).ok().filter(|value| *value < 1 << 14).expect("a value of 14 bits");
    (value | 0x4000).to_be_bytes()
}

/// A packet of the client with its first connection id.
#[must_use]
pub fn client(number: u64, frames: &[u8]) -> InitialPacket {
    InitialPacket {
        sender: Sender::Client,
        version: V1,
        key_id: FIRST_ID.into(),
        destination: FIRST_ID.into(),
        number,
        frames: frames.into(),
    }
}

/// A packet of the server.
#[must_use]
pub fn server(number: u64, frames: &[u8]) -> InitialPacket {
    InitialPacket { sender: Sender::Server, destination: CLIENT_ID.into(), ..client(number, frames) }
}

struct Bytes(usize);

impl KeyType for Bytes {
    fn len(&self) -> usize {
        self.0
    }
}

/// HKDF-Expand-Label (RFC 8446 section 7.1) with an empty context.
fn expand(secret: &Prk, label: &str, length: u8) -> Vec<u8> {
    let label = format!("tls13 {label}");
    let info = [&[0, length, label.len() as u8], label.as_bytes(), &[0]];
    let mut out = vec![0; length.into()];
    secret.expand(&info, Bytes(length.into())).and_then(|okm| okm.fill(&mut out)).expect("a short output");
    out
}

impl InitialPacket {
    /// This packet of a connection that began with another id.
    #[must_use]
    pub fn of(self, key_id: &[u8]) -> Self {
        let destination = if self.sender == Sender::Client { key_id.into() } else { self.destination };
        InitialPacket { key_id: key_id.into(), destination, ..self }
    }

    /// This packet of another version.
    #[must_use]
    pub fn version(self, version: u32) -> Self {
        InitialPacket { version, ..self }
    }

    /// Secret of the sender.
    fn secret(&self) -> Prk {
        let salt = match self.version {
            V2 => b"\x0d\xed\xe3\xde\xf7\0\xa6\xdb\x81\x93\x81\xbe\x6e\x26\x9d\xcb\xf9\xbd\x2e\xd9",
            _ => b"\x38\x76\x2c\xf7\xf5\x59\x34\xb3\x4d\x17\x9a\xe6\xa4\xc8\x0c\xad\xcc\xbb\x7f\x0a",
        };
        let initial = Salt::new(HKDF_SHA256, salt).extract(&self.key_id);
        let label = if self.sender == Sender::Client { "client in" } else { "server in" };
        Prk::new_less_safe(HKDF_SHA256, &expand(&initial, label, 32))
    }

    /// The bytes of the packet.
    ///
    /// # Panics
    /// The frames, or a connection id, are too long for a packet.
    #[must_use]
    pub fn seal(&self) -> Vec<u8> {
        let (first, prefix) = if self.version == V2 { (0xd1, "quicv2") } else { (0xc1, "quic") };
        let secret = self.secret();
        let key = |name: &str, length| expand(&secret, &format!("{prefix} {name}"), length);
        let source = if self.sender == Sender::Client { CLIENT_ID } else { SERVER_ID };
        let mut head = vec![first];
        head.extend_from_slice(&self.version.to_be_bytes());
        for id in [&self.destination, source] {
            head.push(u8::try_from(id.len()).expect("a short connection id"));
            head.extend_from_slice(id);
        }
        // No token.
        head.push(0);
        // Header protection needs a sample behind four bytes of packet number.
        let mut payload = self.frames.clone();
        payload.resize(payload.len().max(4), 0);
        head.extend_from_slice(&varint(2 + payload.len() + 16));
        let number_at = head.len();
        head.extend_from_slice(&(self.number as u16).to_be_bytes());
        let mut nonce: [u8; 12] = key("iv", 12).try_into().expect("twelve bytes");
        for (byte, part) in nonce[4..].iter_mut().zip(self.number.to_be_bytes()) {
            *byte ^= part;
        }
        let sealing = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key("key", 16)).expect("a key"));
        sealing
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(&head.clone()),
                &mut payload,
            )
            .expect("a short payload");
        let protection = HeaderProtectionKey::new(&AES_128, &key("hp", 16)).expect("a key");
        let mask = protection.new_mask(&payload[2..18]).expect("a sample");
        head[0] ^= mask[0] & 0x0f;
        for at in 0..2 {
            head[number_at + at] ^= mask[1 + at];
        }
        [head, payload].concat()
    }
}

/// A packet of version 1 with a long header, neither Initial nor Retry: 0-RTT 1, Handshake 2.
#[must_use]
pub fn long(kind: u8, destination: &[u8], payload: &[u8]) -> Vec<u8> {
    let head = [&[0xc0 | kind << 4, 0, 0, 0, 1, destination.len() as u8], destination, &[0]].concat();
    [&head[..], &varint(payload.len()), payload].concat()
}

/// A Retry packet of version 1 that asks a client to use another connection id.
///
/// # Panics
/// Never.
#[must_use]
pub fn retry(source: &[u8]) -> Vec<u8> {
    let packet =
        [&[0xf0, 0, 0, 0, 1, CLIENT_ID.len() as u8], CLIENT_ID, &[source.len() as u8], source, b"token"]
            .concat();
    // Key and nonce of RFC 9001 section 5.8.
    let key = b"\xbe\x0c\x69\x0b\x9f\x66\x57\x5a\x1d\x76\x6b\x54\xe3\x68\xc8\x4e";
    let nonce = *b"\x46\x15\x99\xd3\x5d\x63\x2b\xf2\x23\x98\x25\xbb";
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, key).expect("a key"));
    let pseudo = [&[FIRST_ID.len() as u8], FIRST_ID, &packet].concat();
    let mut tag = Vec::new();
    key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(&pseudo), &mut tag)
        .expect("a tag");
    [packet, tag].concat()
}

/// A CRYPTO frame.
#[must_use]
pub fn crypto(offset: usize, data: &[u8]) -> Vec<u8> {
    [&[6][..], &varint(offset), &varint(data.len()), data].concat()
}

fn extension(kind: u16, body: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &(body.len() as u16).to_be_bytes(), body].concat()
}

fn message(kind: u8, head: &[u8], extensions: &[u8]) -> Vec<u8> {
    let body = [head, &(extensions.len() as u16).to_be_bytes(), extensions].concat();
    [&[kind, 0][..], &(body.len() as u16).to_be_bytes(), &body].concat()
}

/// A client hello that asks for a server, with values of GREASE.
#[must_use]
pub fn client_hello(name: &str) -> Vec<u8> {
    let length = name.len() as u16;
    let names = [&(length + 3).to_be_bytes()[..], &[0], &length.to_be_bytes(), name.as_bytes()].concat();
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
    message(1, &[&[3, 3][..], &[b'r'; 32], &[0, 0, 4, 0x13, 1, 0x13, 2, 1, 0]].concat(), &extensions)
}

/// A server hello with this random.
#[must_use]
pub fn server_hello_with(random: &[u8; 32]) -> Vec<u8> {
    let extensions = [extension(43, &[3, 4]), extension(51, b"\0\x1d\0\x04abcd")].concat();
    message(2, &[&[3, 3][..], random, &[0, 0x13, 1, 0]].concat(), &extensions)
}

/// A server hello.
#[must_use]
pub fn server_hello() -> Vec<u8> {
    server_hello_with(&[b's'; 32])
}
