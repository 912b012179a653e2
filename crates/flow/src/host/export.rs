// SPDX-License-Identifier: Apache-2.0
//! Versioned export and import of host state: for warm restart and migration.
//!
//! One record, little endian: version u8, length u32 of the rest, tenant u16, kind u8 with its fields,
//! connections u32, half-open u32, then three lists (count u8, items): bits, thresholds, tags. A later
//! version may only append. Earlier versions had other lists and are not read.

use super::slots::{Bit, BitScope, HostState, MAX_BITS, MAX_TAGS, MAX_THRESHOLDS, RuleKey, Threshold};
use super::tags::Tag;
use super::{HostKey, HostKind};
use bartizan_base::{Cursor, TenantId, Timestamp};
use core::net::IpAddr;

const VERSION: u8 = 3;
const OLDEST: u8 = 3;

/// The reason why an exported record cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostImportError {
    /// The record is shorter than its length field.
    #[error("host record: truncated; export it again")]
    Short,
    /// The version is older than any that this program can read.
    #[error(
        "host record: version {found} cannot be read; this program reads version 3 and later versions that only append"
    )]
    Version {
        /// The version byte found.
        found: u8,
    },
    /// A field holds a value that no entry can have.
    #[error("host record: field {field} holds an impossible value; the record is damaged")]
    Field {
        /// The field's name.
        field: &'static str,
    },
}

fn put_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => {
            out.push(4);
            out.extend(v4.octets());
        }
        IpAddr::V6(v6) => {
            out.push(6);
            out.extend(v6.octets());
        }
    }
}

fn put_rule(out: &mut Vec<u8>, rule: RuleKey) {
    out.extend(rule.gid.to_le_bytes());
    out.extend(rule.sid.to_le_bytes());
}

fn put_time(out: &mut Vec<u8>, time: Timestamp) {
    out.extend(time.as_nanos().to_le_bytes());
}

/// Appends the key of an entry: tenant u16, kind u8 with its fields.
pub fn export_key(key: &HostKey, body: &mut Vec<u8>) {
    body.extend(key.tenant.0.to_le_bytes());
    match key.kind {
        HostKind::Host(a) => {
            body.push(0);
            put_address(body, a);
        }
        HostKind::Pair(a, b) => {
            body.push(1);
            put_address(body, a);
            put_address(body, b);
        }
        HostKind::Net(a, length) => {
            body.push(2);
            put_address(body, a);
            body.push(length);
        }
        HostKind::Rule(rule) => {
            body.push(3);
            put_rule(body, rule);
        }
    }
}

/// Reads a key that [`export_key`] wrote and returns the number of bytes read.
///
/// # Errors
/// [`HostImportError`] when the bytes are cut off or damaged.
pub fn import_key(bytes: &[u8]) -> Result<(HostKey, usize), HostImportError> {
    let mut reader = HostRecordReader(Cursor::new(bytes));
    Ok((reader.key()?, reader.0.position()))
}

/// Appends one entry in the current version.
pub fn export_host(key: &HostKey, state: &HostState, out: &mut Vec<u8>) {
    let mut body = Vec::new();
    export_key(key, &mut body);
    body.extend(state.connections.to_le_bytes());
    body.extend(state.half_open.to_le_bytes());
    // The bounds of the lists are far below 256.
    body.push(state.bits.len() as u8);
    for bit in &state.bits {
        body.push(bit.scope as u8);
        body.extend(bit.name.to_le_bytes());
        put_time(&mut body, bit.until);
    }
    body.push(state.thresholds.len() as u8);
    for t in &state.thresholds {
        put_rule(&mut body, t.rule);
        body.extend(t.part.to_le_bytes());
        body.extend(t.count.to_le_bytes());
        [t.started, t.mark, t.until].into_iter().for_each(|time| put_time(&mut body, time));
    }
    body.push(state.tags.0.len() as u8);
    for tag in state.tags.iter() {
        put_rule(&mut body, tag.rule);
        body.extend(tag.packets.to_le_bytes());
        body.extend(tag.bytes.to_le_bytes());
        [tag.until, tag.seen].into_iter().for_each(|time| put_time(&mut body, time));
        body.extend([u8::from(tag.fresh), tag.matches]);
    }
    out.push(VERSION);
    out.extend((body.len() as u32).to_le_bytes());
    out.extend(body);
}

/// Reads a record's fields; every read fails with [`HostImportError::Short`].
struct HostRecordReader<'a>(Cursor<'a>);

impl HostRecordReader<'_> {
    fn u8(&mut self) -> Result<u8, HostImportError> {
        self.0.u8().ok_or(HostImportError::Short)
    }

    fn u16(&mut self) -> Result<u16, HostImportError> {
        self.0.u16_le().ok_or(HostImportError::Short)
    }

    fn u32(&mut self) -> Result<u32, HostImportError> {
        self.0.u32_le().ok_or(HostImportError::Short)
    }

    fn u64(&mut self) -> Result<u64, HostImportError> {
        self.0.array().map(u64::from_le_bytes).ok_or(HostImportError::Short)
    }

    fn time(&mut self) -> Result<Timestamp, HostImportError> {
        self.u64().map(Timestamp::from_nanos)
    }

    fn rule(&mut self) -> Result<RuleKey, HostImportError> {
        Ok(RuleKey { gid: self.u32()?, sid: self.u32()? })
    }

    fn address(&mut self) -> Result<IpAddr, HostImportError> {
        match self.u8()? {
            4 => self.0.array::<4>().map(IpAddr::from).ok_or(HostImportError::Short),
            6 => self.0.array::<16>().map(IpAddr::from).ok_or(HostImportError::Short),
            _ => Err(HostImportError::Field { field: "address family" }),
        }
    }

    fn count(&mut self, most: usize, field: &'static str) -> Result<usize, HostImportError> {
        let count = usize::from(self.u8()?);
        if count > most { Err(HostImportError::Field { field }) } else { Ok(count) }
    }

    fn key(&mut self) -> Result<HostKey, HostImportError> {
        let tenant = TenantId(self.u16()?);
        Ok(match self.u8()? {
            0 => HostKey::host(tenant, self.address()?),
            1 => HostKey::pair(tenant, self.address()?, self.address()?),
            2 => HostKey::net(tenant, self.address()?, self.u8()?),
            3 => HostKey::rule(tenant, self.rule()?),
            _ => return Err(HostImportError::Field { field: "kind" }),
        })
    }

    fn state(&mut self) -> Result<HostState, HostImportError> {
        let mut state =
            HostState { connections: self.u32()?, half_open: self.u32()?, ..HostState::default() };
        for _ in 0..self.count(MAX_BITS, "bits")? {
            let scope = match self.u8()? {
                0 => BitScope::HostBit,
                1 => BitScope::XBit,
                _ => return Err(HostImportError::Field { field: "bit scope" }),
            };
            state.bits.push(Bit { scope, name: self.u32()?, until: self.time()? });
        }
        for _ in 0..self.count(MAX_THRESHOLDS, "thresholds")? {
            state.thresholds.push(Threshold {
                rule: self.rule()?,
                part: self.u32()?,
                count: self.u32()?,
                started: self.time()?,
                mark: self.time()?,
                until: self.time()?,
            });
        }
        for _ in 0..self.count(MAX_TAGS, "tags")? {
            state.tags.0.push(Tag {
                rule: self.rule()?,
                packets: self.u32()?,
                bytes: self.u64()?,
                until: self.time()?,
                seen: self.time()?,
                fresh: self.u8()? != 0,
                matches: self.u8()?,
            });
        }
        Ok(state)
    }
}

/// Reads one exported entry and returns the number of bytes read.
///
/// # Errors
/// [`HostImportError`] when the bytes are cut off, of another format, or damaged.
pub fn import_host(bytes: &[u8]) -> Result<(HostKey, HostState, usize), HostImportError> {
    let mut outer = Cursor::new(bytes);
    let version = outer.u8().ok_or(HostImportError::Short)?;
    if version < OLDEST {
        return Err(HostImportError::Version { found: version });
    }
    let length = outer.u32_le().ok_or(HostImportError::Short)?;
    let body = outer.take(length as usize).ok_or(HostImportError::Short)?;
    let mut body = HostRecordReader(Cursor::new(body));
    Ok((body.key()?, body.state()?, outer.position()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, Ipv6Addr};
    use proptest::prelude::*;

    fn full() -> HostState {
        let rule = RuleKey { gid: 1, sid: 2_000_001 };
        let until = Timestamp::from_parts(99, 9);
        let mut state = HostState { connections: 3, half_open: 1, ..HostState::default() };
        state.set(BitScope::XBit, 4, Timestamp::ZERO, until).unwrap();
        state.set(BitScope::HostBit, 4, Timestamp::ZERO, until).unwrap();
        *state.threshold(rule, 1).unwrap() =
            Threshold { rule, part: 1, count: 5, started: Timestamp::from_parts(1, 0), mark: until, until };
        state.tag(Tag { rule, packets: 6, bytes: 700, until, seen: until, fresh: true, matches: 3 }).unwrap();
        state
    }

    #[test]
    fn every_kind_round_trips_and_no_cut_is_taken_for_whole() {
        let (t, rule) = (TenantId(7), RuleKey { gid: 3, sid: 4 });
        let four = |n: u8| IpAddr::V4(Ipv4Addr::new(192, 0, 2, n));
        let six = |n: u8| IpAddr::V6(Ipv6Addr::from(1 << 120 | u128::from(n)));
        for key in [
            HostKey::host(t, four(1)),
            HostKey::host(t, six(1)),
            HostKey::pair(t, four(2), four(1)),
            HostKey::pair(t, six(2), six(1)),
            HostKey::net(t, four(1), 24),
            HostKey::net(t, six(1), 64),
            HostKey::rule(t, rule),
        ] {
            for state in [HostState::default(), full()] {
                let mut bytes = Vec::new();
                export_host(&key, &state, &mut bytes);
                for cut in 0..bytes.len() {
                    assert_eq!(import_host(&bytes[..cut]), Err(HostImportError::Short));
                }
                let length = bytes.len();
                bytes.push(0);
                assert_eq!(import_host(&bytes), Ok((key, state, length)));
            }
        }
    }

    #[test]
    fn older_and_damaged_records_are_refused() {
        let mut bytes = Vec::new();
        export_host(&HostKey::rule(TenantId(0), RuleKey::default()), &full(), &mut bytes);
        let mut old = bytes.clone();
        old[0] = 2;
        assert_eq!(import_host(&old), Err(HostImportError::Version { found: 2 }));
        bytes[7] = 9;
        assert_eq!(import_host(&bytes), Err(HostImportError::Field { field: "kind" }));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(body in prop::collection::vec(any::<u8>(), 0..400)) {
            let mut bytes = vec![VERSION];
            bytes.extend((body.len() as u32).to_le_bytes());
            bytes.extend(body);
            if let Ok((_, _, used)) = import_host(&bytes) {
                prop_assert!(used <= bytes.len());
            }
        }
    }
}
