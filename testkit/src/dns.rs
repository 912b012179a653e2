// SPDX-License-Identifier: Apache-2.0
//! DNS messages of tests (RFC 1035), names without compression.

/// A record: owner, type, time to live, data.
pub type Record<'r> = (&'r str, u16, u32, Vec<u8>);

/// A name in wire format.
#[must_use]
pub fn name(text: &str) -> Vec<u8> {
    let labels = text.split('.').filter(|label| !label.is_empty());
    let mut bytes: Vec<u8> =
        labels.flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat()).collect();
    bytes.push(0);
    bytes
}

/// A query for one name.
#[must_use]
pub fn query(id: u16, asked: &str, rrtype: u16) -> Vec<u8> {
    message(id, 0x0100, (asked, rrtype), &[])
}

/// An answer without an error.
#[must_use]
pub fn answer(id: u16, question: (&str, u16), records: &[Record<'_>]) -> Vec<u8> {
    message(id, 0x8180, question, records)
}

/// A message with these flags.
#[must_use]
pub fn message(id: u16, flags: u16, (asked, rrtype): (&str, u16), records: &[Record<'_>]) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        [id, flags, 1, records.len() as u16, 0, 0].iter().flat_map(|n| n.to_be_bytes()).collect();
    bytes.extend(name(asked));
    bytes.extend([rrtype, 1].iter().flat_map(|n| n.to_be_bytes()));
    for (owner, rrtype, ttl, data) in records {
        bytes.extend(name(owner));
        bytes.extend([*rrtype, 1].iter().flat_map(|n| n.to_be_bytes()));
        bytes.extend(ttl.to_be_bytes());
        bytes.extend((data.len() as u16).to_be_bytes());
        bytes.extend(data);
    }
    bytes
}
