// SPDX-License-Identifier: Apache-2.0
//! Keys of Initial packets (RFC 9001 section 5.2, RFC 9369 section 3.3.1), which anybody can derive from the
//! connection id that a client chooses first.
//!
//! Cryptography is that of `ring`, which the control plane's TLS uses as well.

use super::header::{V1, V2};
use bartizan_base::{Direction, PerDirection};
use ring::aead::quic::{AES_128, HeaderProtectionKey};
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};

/// Bytes of the longest packet number.
const NUMBER_MAX: usize = 4;
/// Bytes of the sample for header protection.
const SAMPLE: usize = 16;
const KEY: usize = 16;
const IV: usize = 12;
const SECRET: usize = 32;

/// Salt of version 1 and of the last drafts (RFC 9001).
const SALT_V1: [u8; 20] = [
    0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17, 0x9a, 0xe6, 0xa4, 0xc8, 0x0c, 0xad, 0xcc,
    0xbb, 0x7f, 0x0a,
];
/// Salt of version 2 (RFC 9369).
const SALT_V2: [u8; 20] = [
    0x0d, 0xed, 0xe3, 0xde, 0xf7, 0x00, 0xa6, 0xdb, 0x81, 0x93, 0x81, 0xbe, 0x6e, 0x26, 0x9d, 0xcb, 0xf9,
    0xbd, 0x2e, 0xd9,
];
/// Salt of drafts 29 to 32 (draft-ietf-quic-tls-32).
const SALT_29: [u8; 20] = [
    0xaf, 0xbf, 0xec, 0x28, 0x99, 0x93, 0xd2, 0x4c, 0x9e, 0x97, 0x86, 0xf1, 0x9c, 0x61, 0x11, 0xe0, 0x43,
    0x90, 0xa8, 0x99,
];
/// Salt of drafts 23 to 28 (draft-ietf-quic-tls-23).
const SALT_23: [u8; 20] = [
    0xc3, 0xee, 0xf7, 0x12, 0xc7, 0x2e, 0xbb, 0x5a, 0x11, 0xa7, 0xd2, 0x43, 0x2b, 0xb4, 0x63, 0x65, 0xbe,
    0xf9, 0xf5, 0x02,
];
/// Salt of Google's Q050.
const SALT_Q050: [u8; 20] = [
    0x50, 0x45, 0x74, 0xef, 0xd0, 0x66, 0xfe, 0x2f, 0x9d, 0x94, 0x5c, 0xfc, 0xdb, 0xd3, 0xa7, 0xf0, 0xd3,
    0xb5, 0x6b, 0x45,
];

/// The salt of a version with known keys.
const fn salt(version: u32) -> Option<&'static [u8; 20]> {
    Some(match version {
        V1 | 0xff00_0021..=0xff00_0022 => &SALT_V1,
        V2 => &SALT_V2,
        0xff00_001d..=0xff00_0020 => &SALT_29,
        // The second is Facebook's.
        0xff00_0017..=0xff00_001c | 0xface_b002 => &SALT_23,
        0x5130_3530 => &SALT_Q050,
        _ => return None,
    })
}

/// Whether keys of a version's Initial packets can be derived.
pub(super) const fn has_keys(version: u32) -> bool {
    salt(version).is_some()
}

/// A number of bytes to derive.
struct KeyLength(usize);

impl KeyType for KeyLength {
    fn len(&self) -> usize {
        self.0
    }
}

/// Derives `N` bytes by HKDF-Expand-Label with an empty context (RFC 8446 section 7.1).
fn derive<const N: usize>(secret: &Prk, label: &[u8]) -> Option<[u8; N]> {
    let length = u16::try_from(N).ok()?.to_be_bytes();
    let name = u8::try_from(label.len().checked_add(6)?).ok()?;
    let info = [&length[..], &[name], b"tls13 ", label, &[0]];
    let mut out = [0; N];
    secret.expand(&info, KeyLength(N)).ok()?.fill(&mut out).ok()?;
    Some(out)
}

/// Key and nonce of the tag of Retry packets (RFC 9001 section 5.8, RFC 9369 section 3.3.3).
const RETRY_V1: ([u8; KEY], [u8; IV]) = (
    [0xbe, 0x0c, 0x69, 0x0b, 0x9f, 0x66, 0x57, 0x5a, 0x1d, 0x76, 0x6b, 0x54, 0xe3, 0x68, 0xc8, 0x4e],
    [0x46, 0x15, 0x99, 0xd3, 0x5d, 0x63, 0x2b, 0xf2, 0x23, 0x98, 0x25, 0xbb],
);
const RETRY_V2: ([u8; KEY], [u8; IV]) = (
    [0x8f, 0xb4, 0xb0, 0x1b, 0x56, 0xac, 0x48, 0xe2, 0x60, 0xfb, 0xcb, 0xce, 0xad, 0x7c, 0xcc, 0x92],
    [0xd8, 0x69, 0x69, 0xbc, 0x2d, 0x7c, 0x6d, 0x99, 0x90, 0xef, 0xb0, 0x4a],
);

/// Whether a Retry packet answers the connection that a client began with the id `original`: its tag proves
/// that. Drafts have other keys and are not checked.
pub(super) fn is_retry_of(version: u32, packet: &[u8], original: &[u8]) -> bool {
    let (key, nonce) = match version {
        V1 => RETRY_V1,
        V2 => RETRY_V2,
        _ => return false,
    };
    let Some((signed, tag)) = packet.split_last_chunk::<16>() else { return false };
    let Ok(length) = u8::try_from(original.len()) else { return false };
    let pseudo = [&[length], original, signed].concat();
    let Ok(key) = UnboundKey::new(&AES_128_GCM, &key) else { return false };
    let nonce = Nonce::assume_unique_for_key(nonce);
    LessSafeKey::new(key).open_in_place(nonce, Aad::from(&pseudo), &mut tag.to_owned()).is_ok()
}

/// The keys of one side's Initial packets.
struct PacketKeys {
    header: HeaderProtectionKey,
    payload: LessSafeKey,
    iv: [u8; IV],
}

impl PacketKeys {
    fn new(secret: &Prk, version: u32) -> Option<Self> {
        let [header, key, iv] = match version {
            V2 => [&b"quicv2 hp"[..], b"quicv2 key", b"quicv2 iv"],
            _ => [&b"quic hp"[..], b"quic key", b"quic iv"],
        };
        let protection: [u8; KEY] = derive(secret, header)?;
        let key: [u8; KEY] = derive(secret, key)?;
        Some(PacketKeys {
            header: HeaderProtectionKey::new(&AES_128, &protection).ok()?,
            payload: LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).ok()?),
            iv: derive(secret, iv)?,
        })
    }

    /// The nonce of a packet.
    fn nonce(&self, number: u64) -> Nonce {
        let mut nonce = self.iv;
        for (byte, part) in nonce.iter_mut().rev().zip(number.to_be_bytes().iter().rev()) {
            *byte ^= part;
        }
        Nonce::assume_unique_for_key(nonce)
    }
}

/// The keys of both sides' Initial packets, by the direction of a packet.
pub(super) struct InitialKeys {
    sides: PerDirection<PacketKeys>,
}

/// A decrypted packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Decrypted {
    /// Its number.
    pub(super) number: u64,
    /// Its frames.
    pub(super) frames: Vec<u8>,
}

impl InitialKeys {
    /// Derives the keys of a version from the client's first destination connection id. `None`: the version's
    /// keys are not known.
    pub(super) fn new(version: u32, destination: &[u8]) -> Option<Self> {
        let initial = Salt::new(HKDF_SHA256, salt(version)?).extract(destination);
        let side = |label: &[u8]| {
            let secret: [u8; SECRET] = derive(&initial, label)?;
            PacketKeys::new(&Prk::new_less_safe(HKDF_SHA256, &secret), version)
        };
        Some(InitialKeys { sides: PerDirection::new(side(b"client in")?, side(b"server in")?) })
    }

    /// Removes header protection and decrypts a packet. `packet` ends with its payload, which `header` bytes
    /// precede; `largest` is the largest packet number of the direction so far. `None`: the keys are not
    /// those of the packet, or it is damaged.
    pub(super) fn open(
        &self,
        direction: Direction,
        packet: &[u8],
        header: usize,
        largest: Option<u64>,
    ) -> Option<Decrypted> {
        let keys = &self.sides[direction];
        let (head, protected) = packet.split_at_checked(header)?;
        let sample = protected.get(NUMBER_MAX..NUMBER_MAX + SAMPLE)?;
        let [first_mask, number_mask @ ..] = keys.header.new_mask(sample).ok()?;
        let mut head = head.to_vec();
        let first = head.first_mut()?;
        *first ^= first_mask & 0x0f;
        let length = usize::from(*first & 3).saturating_add(1);
        let (number, payload) = protected.split_at_checked(length)?;
        head.extend(number.iter().zip(number_mask).map(|(byte, mask)| byte ^ mask));
        let truncated = head.get(header..)?.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
        let number = full_number(truncated, length, largest);
        let mut frames = payload.to_vec();
        let opened =
            keys.payload.open_in_place(keys.nonce(number), Aad::from(&head), &mut frames).ok()?.len();
        frames.truncate(opened);
        Some(Decrypted { number, frames })
    }
}

/// The packet number of which `length` bytes were sent (RFC 9000 section A.3).
fn full_number(truncated: u64, length: usize, largest: Option<u64>) -> u64 {
    let expected = largest.map_or(0, |largest| largest.saturating_add(1));
    let window = 1u64 << (length.min(NUMBER_MAX) * 8);
    let half = window / 2;
    let candidate = expected & !(window - 1) | truncated;
    if candidate.saturating_add(half) <= expected && candidate < (1 << 62) - window {
        candidate.saturating_add(window)
    } else if candidate > expected.saturating_add(half) && candidate >= window {
        candidate - window
    } else {
        candidate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits.chunks(2).map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
    }

    #[test]
    fn packet_numbers_of_the_rfc() {
        // RFC 9000 section A.3.
        assert_eq!(full_number(0x9b32, 2, Some(0xa82f_30ea)), 0xa82f_9b32);
        assert_eq!(full_number(0, 1, Some(0xff)), 0x100);
        assert_eq!(full_number(0xff, 1, Some(0x100)), 0xff);
        assert_eq!(full_number(5, 4, None), 5);
    }

    #[test]
    fn retry_packets_of_the_rfcs() {
        let original = bytes("8394c8f03e515708");
        // RFC 9001 section A.4 and RFC 9369 section A.4.
        for (version, packet) in [
            (V1, "ff000000010008f067a5502a4262b5746f6b656e04a265ba2eff4d829058fb3f0f2496ba"),
            (V2, "cf6b3343cf0008f067a5502a4262b5746f6b656ec8646ce8bfe33952d955543665dcc7b6"),
        ] {
            let mut packet = bytes(packet);
            assert!(is_retry_of(version, &packet, &original), "{version:x}");
            assert!(!is_retry_of(version, &packet, b"another"));
            packet[20] ^= 1;
            assert!(!is_retry_of(version, &packet, &original));
            assert!(!is_retry_of(version, &packet[..15], &original));
        }
    }

    #[test]
    fn server_packets_of_the_rfcs() {
        let client_id = bytes("8394c8f03e515708");
        // RFC 9001 section A.3 and RFC 9369 section A.3: ACK, CRYPTO with a server hello.
        for (version, packet) in [
            (
                V1,
                "cf000000010008f067a5502a4262b5004075c0d95a482cd0991cd25b0aac406a5816b6394100f37a1c69797554780bb3\
                 8cc5a99f5ede4cf73c3ec2493a1839b3dbcba3f6ea46c5b7684df3548e7ddeb9c3bf9c73cc3f3bded74b562bfb19fb84\
                 022f8ef4cdd93795d77d06edbb7aaf2f58891850abbdca3d20398c276456cbc42158407dd074ee",
            ),
            (
                V2,
                "dc6b3343cf0008f067a5502a4262b5004075d92faaf16f05d8a4398c47089698baeea26b91eb761d9b89237bbf872630\
                 17915358230035f7fd3945d88965cf17f9af6e16886c61bfc703106fbaf3cb4cfa52382dd16a393e42757507698075b2\
                 c984c707f0a0812d8cd5a6881eaf21ceda98f4bd23f6fe1a3e2c43edd9ce7ca84bed8521e2e140",
            ),
        ] {
            let packet = bytes(packet);
            let keys = InitialKeys::new(version, &client_id).expect("keys");
            let opened = keys.open(Direction::ToClient, &packet, 18, None).expect("decrypted");
            assert_eq!(opened.number, 1);
            assert_eq!(opened.frames[..12], bytes("02000000000600405a020000"), "{version:x}");
            assert_eq!(opened.frames.len(), 99);
            assert_eq!(keys.open(Direction::ToServer, &packet, 18, None), None);
            for at in [0, 3, 17, 20, packet.len() - 1] {
                let mut damaged = packet.clone();
                damaged[at] ^= 1;
                assert_eq!(keys.open(Direction::ToClient, &damaged, 18, None), None, "{at}");
            }
        }
        assert!(InitialKeys::new(0x0a0a_0a0a, &client_id).is_none());
    }
}
