// SPDX-License-Identifier: Apache-2.0
//! Hellos in CRYPTO frames (RFC 8446 section 4.1), as records of QUIC show them: extensions in order with
//! some values, and fingerprints.
//!
//! An extension that cannot be read ends the list, as in Suricata; a server name after it is still found,
//! because a server may not know the broken one.

use crate::memory::allocated;
use crate::protocols::tls::hello::{HelloFields, RETRY_REQUEST, next_extension, numbers};
use crate::protocols::tls::ja3::Ja3;
use crate::protocols::tls::ja4;
use crate::protocols::tls::version::is_grease;
use bartizan_base::Cursor;

/// Whether the body of a server hello requests another hello of the client.
pub(super) fn is_retry_request(body: &[u8]) -> bool {
    body.get(2..).is_some_and(|body| body.starts_with(&RETRY_REQUEST))
}

/// Types of handshake messages.
pub(super) const CLIENT_HELLO: u8 = 1;
pub(super) const SERVER_HELLO: u8 = 2;

const SERVER_NAME: u16 = 0;
const MAX_FRAGMENT_LENGTH: u16 = 1;
const GROUPS: u16 = 10;
const POINT_FORMATS: u16 = 11;
const SIGNATURE_ALGORITHMS: u16 = 13;
const ALPN: u16 = 16;
const HEARTBEAT: u16 = 15;
const ENCRYPT_THEN_MAC: u16 = 22;
const EXTENDED_MASTER_SECRET: u16 = 23;
const RECORD_SIZE_LIMIT: u16 = 28;
const EARLY_DATA: u16 = 42;
const SUPPORTED_VERSIONS: u16 = 43;
const PSK_MODES: u16 = 45;
const OID_FILTERS: u16 = 48;
const POST_HANDSHAKE_AUTH: u16 = 49;
const NEXT_PROTOCOL: u16 = 13_172;
const RENEGOTIATION_INFO: u16 = 0xff01;

/// The type with which records and JA3 show every extension of GREASE, as in Suricata.
const GREASE: u16 = 0xfafa;

/// The content of an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExtensionValues<'a> {
    /// Nothing that is used.
    Nothing,
    /// Host names, each with its kind and its length.
    Names(&'a [u8]),
    /// Protocol names, each after its length.
    Protocols(&'a [u8]),
    /// Versions.
    Versions(&'a [u8]),
    /// Signature algorithms.
    Algorithms(&'a [u8]),
    Groups(&'a [u8]),
    PointFormats(&'a [u8]),
}

/// A list after its length of one or two bytes.
fn list<'a>(body: &mut Cursor<'a>, prefix: usize) -> Option<&'a [u8]> {
    let length = if prefix == 1 { usize::from(body.u8()?) } else { usize::from(body.u16()?) };
    body.take(length)
}

/// A list of 16-bit numbers.
fn even(list: &[u8]) -> Option<&[u8]> {
    list.len().is_multiple_of(2).then_some(list)
}

/// A list of protocol names of which none reaches beyond the end.
fn whole(list: &[u8]) -> Option<&[u8]> {
    let read =
        protocol_names(list).fold(0, |sum: usize, name| sum.saturating_add(name.len()).saturating_add(1));
    (read == list.len()).then_some(list)
}

/// Reads the content of an extension. `None`: it is broken.
pub(super) fn values(extension: u16, bytes: &[u8]) -> Option<ExtensionValues<'_>> {
    use ExtensionValues::{Algorithms, Groups, Names, Nothing, PointFormats, Protocols, Versions};
    let mut body = Cursor::new(bytes);
    Some(match extension {
        SERVER_NAME if bytes.is_empty() => Names(bytes),
        SERVER_NAME => Names(list(&mut body, 2)?),
        ALPN => Protocols(whole(list(&mut body, 2)?)?),
        GROUPS => Groups(even(list(&mut body, 2)?)?),
        POINT_FORMATS => PointFormats(list(&mut body, 1)?),
        SIGNATURE_ALGORITHMS => Algorithms(even(list(&mut body, 2)?)?),
        SUPPORTED_VERSIONS if bytes.len() == 2 => Versions(bytes),
        // The length before the list is not read, as in Suricata.
        SUPPORTED_VERSIONS => Versions(even(bytes.get(1..)?)?),
        PSK_MODES | RENEGOTIATION_INFO => list(&mut body, 1).map(|_| Nothing)?,
        OID_FILTERS => list(&mut body, 2).map(|_| Nothing)?,
        MAX_FRAGMENT_LENGTH | HEARTBEAT => body.u8().map(|_| Nothing)?,
        RECORD_SIZE_LIMIT => body.u16().map(|_| Nothing)?,
        EARLY_DATA if !bytes.is_empty() => body.u32().map(|_| Nothing)?,
        ENCRYPT_THEN_MAC | EXTENDED_MASTER_SECRET | POST_HANDSHAKE_AUTH | NEXT_PROTOCOL
            if !bytes.is_empty() =>
        {
            return None;
        }
        _ => Nothing,
    })
}

/// The names of a list of host names.
pub(super) fn host_names(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut cursor = Cursor::new(list);
    core::iter::from_fn(move || {
        cursor.skip(1)?;
        let length = usize::from(cursor.u16()?);
        cursor.take(length)
    })
}

/// The names of a list of protocols.
pub(super) fn protocol_names(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut cursor = Cursor::new(list);
    core::iter::from_fn(move || {
        let length = usize::from(cursor.u8()?);
        cursor.take(length)
    })
}

/// The extensions of a block, until its end or a broken one.
pub(super) fn extensions(block: &[u8]) -> impl Iterator<Item = (u16, ExtensionValues<'_>)> {
    let mut cursor = Cursor::new(block);
    core::iter::from_fn(move || {
        let (extension, body) = next_extension(&mut cursor)?;
        let shown = if is_grease(extension) { GREASE } else { extension };
        Some((shown, values(extension, body)?))
    })
}

/// A hello.
#[derive(Debug)]
pub(super) struct QuicHello {
    /// The block of extensions.
    pub(super) extensions: Box<[u8]>,
    /// The first host name.
    pub(super) server_name: Option<Box<[u8]>>,
    pub(super) ja3: Option<Ja3>,
    pub(super) ja4: Option<Box<str>>,
}

/// The fingerprints to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fingerprints {
    pub(super) ja3: bool,
    pub(super) ja4: bool,
}

impl QuicHello {
    /// Reads a handshake message. `None`: it is no hello, or broken.
    pub(super) fn read(kind: u8, body: &[u8], fingerprints: Fingerprints) -> Option<QuicHello> {
        let mut cursor = Cursor::new(body);
        let version = cursor.u16()?;
        cursor.skip(32)?;
        let session = usize::from(cursor.u8().filter(|length| *length <= 32)?);
        cursor.skip(session)?;
        let ciphers = match kind {
            CLIENT_HELLO => {
                let ciphers = list(&mut cursor, 2).and_then(even)?;
                list(&mut cursor, 1)?;
                ciphers
            }
            SERVER_HELLO => {
                let cipher = cursor.take(2)?;
                cursor.skip(1)?;
                cipher
            }
            _ => return None,
        };
        let block = list(&mut cursor, 2);
        let client = kind == CLIENT_HELLO;
        Some(QuicHello {
            extensions: block.unwrap_or_default().into(),
            server_name: server_name(block.unwrap_or_default()).map(Box::from),
            ja3: fingerprints.ja3.then(|| ja3(version, ciphers, block, client)),
            ja4: (fingerprints.ja4 && client).then(|| ja4(ciphers, block.unwrap_or_default())),
        })
    }

    /// Bytes of memory held outside of the structure itself.
    pub(super) fn held(&self) -> usize {
        let name = self.server_name.as_deref().map_or(0, |name| allocated(name.len()));
        let ja4 = self.ja4.as_deref().map_or(0, |ja4| allocated(ja4.len()));
        let ja3 = self.ja3.as_ref().map_or(0, Ja3::held);
        allocated(self.extensions.len()).saturating_add(name).saturating_add(ja3).saturating_add(ja4)
    }
}

/// The first host name of the last extension with one, as in Suricata; extensions that cannot be read are
/// skipped.
fn server_name(block: &[u8]) -> Option<&[u8]> {
    let mut cursor = Cursor::new(block);
    let mut found = None;
    while let Some((extension, body)) = next_extension(&mut cursor) {
        if extension == SERVER_NAME
            && let Some(ExtensionValues::Names(names)) = values(extension, body)
        {
            found = host_names(names).next().or(found);
        }
    }
    found
}

fn ja3(version: u16, ciphers: &[u8], block: Option<&[u8]>, client: bool) -> Ja3 {
    let mut ja3 = Ja3::with_grease();
    ja3.begin(version);
    ja3.field(numbers(ciphers));
    let Some(block) = block else {
        ja3.field(core::iter::empty());
        ja3.finish();
        return ja3;
    };
    ja3.field(extensions(block).map(|(extension, _)| extension));
    if client {
        let groups = extensions(block).filter_map(|(_, values)| match values {
            ExtensionValues::Groups(groups) => Some(numbers(groups)),
            _ => None,
        });
        ja3.field(groups.flatten());
        let formats = extensions(block).filter_map(|(_, values)| match values {
            ExtensionValues::PointFormats(formats) => Some(formats.iter().map(|format| u16::from(*format))),
            _ => None,
        });
        ja3.field(formats.flatten());
    }
    ja3.finish();
    ja3
}

fn ja4(ciphers: &[u8], block: &[u8]) -> Box<str> {
    let mut fields = HelloFields::default();
    numbers(ciphers).for_each(|cipher| fields.add_cipher(cipher));
    for (extension, values) in extensions(block) {
        fields.add_extension(extension);
        match values {
            ExtensionValues::Versions(versions) => {
                numbers(versions).for_each(|version| fields.set_version(version));
            }
            ExtensionValues::Algorithms(list) => {
                numbers(list).for_each(|algorithm| fields.add_signature_algorithm(algorithm));
            }
            ExtensionValues::Protocols(list) => protocol_names(list).for_each(|name| fields.add_alpn(name)),
            _ => {}
        }
    }
    let mut text = Vec::new();
    ja4::write(&fields, true, &mut text);
    String::from_utf8_lossy(&text).into()
}
