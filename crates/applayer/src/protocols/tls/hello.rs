// SPDX-License-Identifier: Apache-2.0
//! Client and server hello (RFC 5246 section 7.4.1, RFC 8446 section 4.1) with the extensions for rules and
//! records.
//!
//! Parsing is as lenient as in Suricata 8: an extension that cannot be read ends the list but not the hello;
//! a list with a broken frame ends the hello before its state is reached. Fields of repeated hellos
//! (HelloRetryRequest) add up.
//!
//! Not supported: key shares, pre-shared keys, encrypted client hello (the outer hello is parsed).

use super::events;
use super::tx::{TlsFlags, TlsTx};
use super::version::{self, is_grease};
use crate::memory::Held as _;
use bartizan_base::{Cursor, Direction};

/// The kind of a hello. A client hello from a server is parsed as a client hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HelloKind {
    Client,
    Server,
}

/// The offers of a hello without GREASE: source of JA4 and of the handshake objects in records.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct HelloFields {
    /// Highest version that the hello names.
    pub(crate) version: Option<u16>,
    /// Cipher suites in order.
    pub(crate) ciphers: Vec<u16>,
    /// Extension types in order.
    pub(crate) extensions: Vec<u16>,
    /// Signature algorithms in order.
    pub(crate) signature_algorithms: Vec<u16>,
    /// Protocol names, each after its length.
    alpn: Vec<u8>,
}

/// Limit of values kept per list. One hello cannot have more, but a client can send several.
const LIST_MAX: usize = 1 << 15;
const ALPN_MAX: usize = 1 << 16;

fn push(list: &mut Vec<u16>, value: u16) {
    if list.len() < LIST_MAX && !is_grease(value) {
        list.push(value);
    }
}

impl HelloFields {
    /// Bytes of memory held outside of the structure itself.
    pub(crate) fn held(&self) -> usize {
        let lists = [&self.ciphers, &self.extensions, &self.signature_algorithms];
        lists.iter().fold(self.alpn.held(), |sum, list| sum.saturating_add(list.held()))
    }

    pub(crate) fn set_version(&mut self, version: u16) {
        if !is_grease(version) && self.version.is_none_or(|v| v < version) {
            self.version = Some(version);
        }
    }

    pub(crate) fn add_cipher(&mut self, cipher: u16) {
        push(&mut self.ciphers, cipher);
    }

    pub(crate) fn add_extension(&mut self, extension: u16) {
        push(&mut self.extensions, extension);
    }

    pub(crate) fn add_signature_algorithm(&mut self, algorithm: u16) {
        push(&mut self.signature_algorithms, algorithm);
    }

    pub(crate) fn add_alpn(&mut self, name: &[u8]) {
        if let Ok(length) = u8::try_from(name.len())
            && length > 0
            && self.alpn.len() < ALPN_MAX
        {
            self.alpn.push(length);
            self.alpn.extend_from_slice(name);
        }
    }

    /// Protocol names in order.
    pub(crate) fn alpns(&self) -> impl Iterator<Item = &[u8]> {
        let mut cursor = Cursor::new(&self.alpn);
        core::iter::from_fn(move || {
            let length = cursor.u8()?;
            cursor.take(usize::from(length))
        })
    }

    /// Whether no hello was read.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The random of a server hello that requests another client hello (RFC 8446 section 4.1.3).
pub(crate) const RETRY_REQUEST: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2,
    0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

const EXT_SERVER_NAME: u16 = 0;
const EXT_GROUPS: u16 = 10;
const EXT_POINT_FORMATS: u16 = 11;
const EXT_SIGNATURE_ALGORITHMS: u16 = 13;
const EXT_ALPN: u16 = 16;
const EXT_SESSION_TICKET: u16 = 35;
const EXT_EARLY_DATA: u16 = 42;
const EXT_SUPPORTED_VERSIONS: u16 = 43;

/// Parses a hello sent in `direction`. Returns whether it was parsed to its end.
pub(super) fn decode(tx: &mut TlsTx, direction: Direction, kind: HelloKind, body: &[u8]) -> bool {
    let mut cursor = Cursor::new(body);
    let ok = read(tx, direction, kind, &mut cursor).is_some();
    if !ok {
        tx.event(events::HANDSHAKE_INVALID_LENGTH);
    }
    ok
}

fn read(tx: &mut TlsTx, direction: Direction, kind: HelloKind, cursor: &mut Cursor<'_>) -> Option<()> {
    read_version(tx, direction, kind, cursor.u16()?);
    let random = cursor.array::<32>()?;
    let owner = match kind {
        HelloKind::Client => Direction::ToServer,
        HelloKind::Server => Direction::ToClient,
    };
    tx.sides[owner].random = Some(random);
    if kind == HelloKind::Server && random == RETRY_REQUEST {
        tx.flags.insert(TlsFlags::RETRY);
    }
    // In drafts of TLS 1.3 before 22, a server's hello had neither session id nor compression.
    let short = kind == HelloKind::Server && tx.flags.contains(TlsFlags::LOG_WITHOUT_CERTIFICATE);
    if !short {
        let length = usize::from(cursor.u8()?);
        session_id(tx, direction, cursor.take(length)?);
    }
    ciphers(tx, direction, kind, cursor)?;
    if !short {
        let skip = match kind {
            HelloKind::Server => {
                cursor.skip(1)?;
                0
            }
            HelloKind::Client => usize::from(cursor.u8()?),
        };
        cursor.skip(skip)?;
    }
    extensions(tx, direction, kind, cursor)?;
    if tx.config.ja3.computed() {
        tx.sides[direction].ja3.finish();
    }
    Some(())
}

fn read_version(tx: &mut TlsTx, direction: Direction, kind: HelloKind, version: u16) {
    let side = &mut tx.sides[direction];
    side.hello.set_version(version);
    if kind == HelloKind::Server && (version == version::TLS13 || version >> 8 == 0x7f) {
        tx.flags.insert(TlsFlags::LOG_WITHOUT_CERTIFICATE);
    }
    // Final TLS 1.3 is named in an extension only: a side that names it here uses an early draft.
    side.version = if (0x7f01..0x7f10).contains(&version) || version == version::TLS13 {
        version::PRE_DRAFT16
    } else {
        version
    };
    if tx.config.ja3.computed() {
        side.ja3.begin(version);
    }
}

fn session_id(tx: &mut TlsTx, direction: Direction, id: &[u8]) {
    let side = &mut tx.sides[direction];
    if id.is_empty() || !side.session_id.is_empty() {
        return;
    }
    side.session_id = id.to_vec();
    // The response may be parsed first, if it is acknowledged first.
    if tx.sides.to_server.session_id == tx.sides.to_client.session_id {
        tx.flags.insert(TlsFlags::SESSION_RESUMED);
    }
}

fn ciphers(tx: &mut TlsTx, direction: Direction, kind: HelloKind, cursor: &mut Cursor<'_>) -> Option<()> {
    let length = match kind {
        HelloKind::Server => 2,
        HelloKind::Client => usize::from(cursor.u16()?),
    };
    let list = cursor.take(length)?;
    if length % 2 != 0 {
        return None;
    }
    let side = &mut tx.sides[direction];
    numbers(list).for_each(|c| side.hello.add_cipher(c));
    if tx.config.ja3.computed() {
        side.ja3.field(numbers(list));
    }
    Some(())
}

/// The 16-bit numbers of a list; a single byte at the end is left out.
pub(crate) fn numbers(list: &[u8]) -> impl Iterator<Item = u16> + '_ {
    list.as_chunks::<2>().0.iter().map(|pair| u16::from_be_bytes(*pair))
}

/// Parts of JA3 that the extensions of one hello add.
#[derive(Default)]
struct Ja3Parts<'a> {
    types: Vec<u16>,
    groups: &'a [u8],
    point_formats: &'a [u8],
}

fn extensions(tx: &mut TlsTx, direction: Direction, kind: HelloKind, cursor: &mut Cursor<'_>) -> Option<()> {
    let mut parts = Ja3Parts::default();
    if cursor.len() >= 2 {
        let length = usize::from(cursor.u16()?);
        let mut block = Cursor::new(cursor.take(length)?);
        while !block.is_empty() {
            let (extension, body) = next_extension(&mut block)?;
            if let Err(event) = one(tx, direction, kind, extension, body, &mut parts) {
                tx.event(event);
                name_behind(tx, direction, &mut block);
                break;
            }
            if tx.config.ja3.computed() {
                parts.types.push(extension);
            }
            tx.sides[direction].hello.add_extension(extension);
        }
    }
    if tx.config.ja3.computed() {
        let ja3 = &mut tx.sides[direction].ja3;
        ja3.field(parts.types.iter().copied());
        if kind == HelloKind::Client {
            ja3.field(numbers(parts.groups));
            ja3.field(parts.point_formats.iter().map(|f| u16::from(*f)));
        }
    }
    Some(())
}

/// Type and body of the next extension.
pub(crate) fn next_extension<'a>(block: &mut Cursor<'a>) -> Option<(u16, &'a [u8])> {
    let extension = block.u16()?;
    let length = usize::from(block.u16()?);
    Some((extension, block.take(length)?))
}

/// Searches the server name after a broken extension. The list has ended for records, but a server that does
/// not know the broken extension continues and finds the name.
fn name_behind(tx: &mut TlsTx, direction: Direction, block: &mut Cursor<'_>) {
    while let Some((extension, body)) = next_extension(block) {
        let side = &mut tx.sides[direction];
        if extension == EXT_SERVER_NAME && side.server_name.is_none() {
            let name = host_name(body).ok().or_else(|| name_behind_other_kinds(body));
            side.server_name = name.map(<[u8]>::to_vec);
        }
    }
}

/// The server's name that a client hello offers.
pub(super) fn offered_name(hello: &[u8]) -> Option<&[u8]> {
    let mut cursor = Cursor::new(hello);
    // Version and random; then session id, ciphers, compression methods.
    cursor.skip(2 + 32)?;
    let length = usize::from(cursor.u8()?);
    cursor.skip(length)?;
    let length = usize::from(cursor.u16()?);
    cursor.skip(length)?;
    let length = usize::from(cursor.u8()?);
    cursor.skip(length)?;
    let length = usize::from(cursor.u16()?);
    let mut block = Cursor::new(cursor.take(length)?);
    while let Some((extension, body)) = next_extension(&mut block) {
        if extension == EXT_SERVER_NAME
            && let Ok(name) = host_name(body)
        {
            return Some(name);
        }
    }
    None
}

/// Parses one extension. An error ends the list.
fn one<'a>(
    tx: &mut TlsTx,
    direction: Direction,
    kind: HelloKind,
    extension: u16,
    body: &'a [u8],
    parts: &mut Ja3Parts<'a>,
) -> Result<(), u8> {
    let broken = events::HANDSHAKE_INVALID_LENGTH;
    let mut cursor = Cursor::new(body);
    match extension {
        _ if body.is_empty() && extension != EXT_EARLY_DATA && extension != EXT_SESSION_TICKET => {}
        EXT_SERVER_NAME => server_name(tx, direction, body)?,
        EXT_GROUPS => {
            let length = cursor.u16().ok_or(broken)?;
            let groups = cursor.take(usize::from(length)).ok_or(broken)?;
            if kind == HelloKind::Client && tx.config.ja3.computed() {
                if groups.len() % 2 != 0 {
                    return Err(broken);
                }
                parts.groups = groups;
            }
        }
        EXT_POINT_FORMATS => {
            let length = cursor.u8().ok_or(broken)?;
            parts.point_formats = cursor.take(usize::from(length)).ok_or(broken)?;
        }
        EXT_SIGNATURE_ALGORITHMS => {
            let length = cursor.u16().ok_or(broken)?;
            let list = cursor.take(usize::from(length)).ok_or(broken)?;
            if length % 2 != 0 {
                return Err(broken);
            }
            if kind == HelloKind::Client {
                let hello = &mut tx.sides[direction].hello;
                numbers(list).for_each(|a| hello.add_signature_algorithm(a));
            }
        }
        EXT_ALPN => alpn(tx, direction, &mut cursor).ok_or(broken)?,
        EXT_EARLY_DATA if kind == HelloKind::Client => tx.flags.insert(TlsFlags::EARLY_DATA),
        EXT_SUPPORTED_VERSIONS => supported_versions(tx, direction, kind, &mut cursor).ok_or(broken)?,
        // The server may refuse a ticket: the session was resumed only if no certificate follows.
        EXT_SESSION_TICKET if kind == HelloKind::Client => tx.flags.insert(TlsFlags::SESSION_RESUMED),
        _ => {}
    }
    Ok(())
}

/// Server name (RFC 6066 section 3): the first name of the first such extension counts, with all of its
/// bytes. Some servers (those written in Go) search for a host name after names of other kinds, so that name
/// counts, too, where Suricata only reports the kind.
fn server_name(tx: &mut TlsTx, direction: Direction, body: &[u8]) -> Result<(), u8> {
    let name = host_name(body).inspect_err(|_| {
        let side = &mut tx.sides[direction];
        if side.server_name.is_none() {
            side.server_name = name_behind_other_kinds(body).map(<[u8]>::to_vec);
        }
    })?;
    let side = &mut tx.sides[direction];
    if side.server_name.is_some() {
        tx.event(events::MULTIPLE_SNI_EXTENSIONS);
    } else {
        side.server_name = Some(name.to_vec());
    }
    Ok(())
}

/// The name in the extension "server name".
fn host_name(body: &[u8]) -> Result<&[u8], u8> {
    let broken = events::HANDSHAKE_INVALID_LENGTH;
    let mut cursor = Cursor::new(body);
    cursor.skip(2).ok_or(broken)?;
    if cursor.u8().ok_or(broken)? != 0 {
        return Err(events::INVALID_SNI_TYPE);
    }
    let length = usize::from(cursor.u16().ok_or(broken)?);
    let name = cursor.take(length).filter(|n| (1..=255).contains(&n.len()));
    name.ok_or(events::INVALID_SNI_LENGTH)
}

/// The first host name of a list that begins with names of other kinds.
fn name_behind_other_kinds(body: &[u8]) -> Option<&[u8]> {
    let mut list = Cursor::new(body);
    list.skip(2)?;
    let mut others = 0;
    loop {
        let (kind, length) = (list.u8()?, usize::from(list.u16()?));
        let name = list.take(length)?;
        if kind == 0 {
            return Some(name).filter(|name| others > 0 && (1..=255).contains(&name.len()));
        }
        others += 1;
    }
}

fn alpn(tx: &mut TlsTx, direction: Direction, cursor: &mut Cursor<'_>) -> Option<()> {
    let length = usize::from(cursor.u16()?);
    let rest = cursor.rest();
    let mut list = Cursor::new(cursor.take(length)?);
    while let Some(length) = list.u8() {
        let length = usize::from(length);
        match list.take(length) {
            Some(name) => tx.sides[direction].hello.add_alpn(name),
            // A name that reaches beyond the list is broken only if it reaches beyond the extension, too.
            None if list.position().saturating_add(length) > rest.len() => return None,
            None => break,
        }
    }
    Some(())
}

fn supported_versions(
    tx: &mut TlsTx,
    direction: Direction,
    kind: HelloKind,
    cursor: &mut Cursor<'_>,
) -> Option<()> {
    match kind {
        HelloKind::Client => {
            let length = usize::from(cursor.u8()?);
            if length < 2 {
                return None;
            }
            let list = cursor.take(length)?;
            // The client prefers the first one.
            if let Some(preferred) = numbers(list).find(|v| version::is_valid(*v)) {
                let side = &mut tx.sides[direction];
                side.version = preferred;
                side.hello.set_version(preferred);
            }
            tx.flags.insert(TlsFlags::VERSIONS_OFFERED);
            // The response may be parsed first.
            if tx.flags.contains(TlsFlags::SERVER_HELLO) && tx.sides.to_client.version > version::TLS12 {
                tx.flags.insert(TlsFlags::LOG_WITHOUT_CERTIFICATE);
            }
        }
        HelloKind::Server => {
            let chosen = cursor.u16()?;
            if tx.flags.contains(TlsFlags::VERSIONS_OFFERED) && chosen > version::TLS12 {
                tx.flags.insert(TlsFlags::LOG_WITHOUT_CERTIFICATE);
            }
            tx.sides[direction].version = chosen;
        }
    }
    Some(())
}
