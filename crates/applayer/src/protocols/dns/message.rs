// SPDX-License-Identifier: Apache-2.0
//! A DNS message (RFC 1035 section 4; EDNS options RFC 6891, SRV RFC 2782, SSHFP RFC 4255).
//!
//! The bytes are copied once; records hold the offsets of their parts. Sections are checked when the message
//! is read, so that later access can only succeed. Questions and answers must be valid as a whole; a broken
//! section of authorities or additionals is left out and flagged, because the useful part comes before it.
//!
//! Suricata reads messages this way. Receivers are more lenient: dnsmasq answers one question whatever the
//! number of additionals, stub resolvers read the answers that have come. In prevention a message is read as
//! they do: all parts before the first broken one count.

use super::name::{Bad, Name, NameFlags};
use super::record;
use bartizan_base::Cursor;
use smallvec::SmallVec;

/// Length of the header, in bytes.
pub const HEADER: usize = 12;

/// The fixed head of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DnsHeader {
    /// Number that the response repeats.
    pub id: u16,
    /// QR, opcode, AA, TC, RD, RA, Z, AD, CD, rcode.
    pub flags: u16,
    /// Numbers of questions, answers, authorities, additionals.
    pub counts: [u16; 4],
}

impl DnsHeader {
    /// Reads the header.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<DnsHeader> {
        let mut cursor = Cursor::new(bytes);
        Some(DnsHeader {
            id: cursor.u16()?,
            flags: cursor.u16()?,
            counts: [cursor.u16()?, cursor.u16()?, cursor.u16()?, cursor.u16()?],
        })
    }

    /// Whether the response flag is set.
    #[must_use]
    pub const fn is_response(&self) -> bool {
        self.flags & 0x8000 != 0
    }

    /// The kind of query.
    #[must_use]
    pub const fn opcode(&self) -> u8 {
        ((self.flags >> 11) & 0xf) as u8
    }

    /// The response code, without the upper bits that EDNS adds.
    #[must_use]
    pub const fn rcode(&self) -> u8 {
        (self.flags & 0xf) as u8
    }

    /// Whether a message of `length` bytes can have this header: each record takes at least two bytes, a
    /// message without records is only the header, and a query has a question.
    #[must_use]
    pub fn plausible(&self, length: usize) -> bool {
        let records: usize = self.counts.iter().map(|c| usize::from(*c)).sum();
        let [questions, ..] = self.counts;
        records.saturating_mul(2) <= length
            && (records > 0 || length <= HEADER)
            && (self.is_response() || questions > 0)
    }

    /// Whether a lenient receiver continues after this header: a query has a question. The other numbers may
    /// be wrong.
    #[must_use]
    pub const fn is_read(&self) -> bool {
        let [questions, ..] = self.counts;
        self.is_response() || questions > 0
    }
}

/// A question.
#[derive(Clone, Copy, Debug)]
pub struct Query {
    /// The queried name.
    pub name: Name,
    /// The queried record type.
    pub rrtype: u16,
    /// Class; 1 is Internet.
    pub class: u16,
}

/// A resource record.
#[derive(Clone, Copy, Debug)]
pub struct DnsRecord {
    /// Owner.
    pub name: Name,
    /// Type.
    pub rrtype: u16,
    /// Class; 1 is Internet.
    pub class: u16,
    /// Time for which the record may be cached, in seconds.
    pub ttl: u32,
    /// Start and end of the data in the message.
    data: (u16, u16),
}

/// The data of a record.
#[derive(Clone, Copy, Debug)]
pub enum Data<'m> {
    /// A, AAAA: 4 and 16 bytes if valid.
    Address(&'m [u8]),
    /// CNAME, PTR, MX (without its preference), NS.
    Name(Name),
    /// TXT: strings with a length byte each, checked.
    Text(&'m [u8]),
    /// NULL.
    Null(&'m [u8]),
    /// SOA.
    Soa {
        /// Primary name server.
        server: Name,
        /// Mailbox of the responsible person.
        mailbox: Name,
        /// Serial, refresh, retry, expire, minimum.
        numbers: [u32; 5],
    },
    /// SRV.
    Srv {
        /// Priority, weight, port.
        numbers: [u16; 3],
        /// Host.
        target: Name,
    },
    /// SSHFP.
    Sshfp {
        /// Algorithm of the key.
        algorithm: u8,
        /// Kind of fingerprint.
        kind: u8,
        /// The fingerprint.
        fingerprint: &'m [u8],
    },
    /// OPT: options with code and length each, checked.
    Opt(&'m [u8]),
    /// All others.
    Other(&'m [u8]),
}

/// A section of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Answers.
    Answers,
    /// Authorities.
    Authorities,
    /// Additionals.
    Additionals,
}

/// A message.
#[derive(Debug)]
pub struct Message {
    bytes: Box<[u8]>,
    /// The header.
    pub header: DnsHeader,
    /// The questions.
    pub queries: SmallVec<[Query; 1]>,
    answers: Vec<DnsRecord>,
    authorities: Vec<DnsRecord>,
    additionals: Vec<DnsRecord>,
    /// Anomalies of all names.
    pub odd: NameFlags,
    /// A later question or the answers cannot be read to their end; the rest was left out. Only for messages
    /// that were read as a lenient receiver does.
    pub malformed: bool,
    /// The authorities cannot be read; they and the additionals were left out.
    pub invalid_authorities: bool,
    /// The additionals cannot be read; they were left out.
    pub invalid_additionals: bool,
}

impl Message {
    /// Reads a message. Bytes after its last record are ignored. `lenient`: read it as a lenient receiver
    /// does, for which all parts before the first broken one count.
    ///
    /// # Errors
    /// The header, a question or an answer (`lenient`: the first question) cannot be read, or the message is
    /// longer than 65,535 bytes.
    pub fn read(bytes: &[u8], lenient: bool) -> Result<Message, Bad> {
        let header = DnsHeader::read(bytes).ok_or(Bad::Short)?;
        if u16::try_from(bytes.len()).is_err() {
            return Err(Bad::Broken);
        }
        let [questions, answers, authorities, additionals] = header.counts;
        let mut odd = NameFlags::empty();
        let mut queries = SmallVec::new();
        let mut at = HEADER;
        let mut end = Ok(());
        for _ in 0..questions {
            match read_query(bytes, at, &mut odd) {
                Ok((query, next)) => {
                    queries.push(query);
                    at = next;
                }
                Err(bad) => {
                    end = Err(bad);
                    break;
                }
            }
        }
        if let Err(bad) = end
            && (!lenient || queries.is_empty())
        {
            return Err(bad);
        }
        let mut section = |end: Result<usize, Bad>, count| match end {
            Ok(at) => read_section(bytes, at, count, &mut odd),
            Err(bad) => (Vec::new(), Err(bad)),
        };
        let (answers, end) = section(end.map(|()| at), answers);
        if let Err(bad) = end
            && !lenient
        {
            return Err(bad);
        }
        let (mut authorities, behind) = section(end, authorities);
        let (mut additionals, last) = section(behind, additionals);
        let invalid_authorities = end.is_ok() && behind.is_err();
        let invalid_additionals = behind.is_ok() && last.is_err();
        if invalid_authorities && !lenient {
            authorities.clear();
        }
        if invalid_additionals && !lenient {
            additionals.clear();
        }
        Ok(Message {
            bytes: bytes.into(),
            header,
            queries,
            answers,
            authorities,
            additionals,
            odd,
            malformed: end.is_err(),
            invalid_authorities,
            invalid_additionals,
        })
    }

    /// The bytes that names refer to.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Memory held, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        let records = self.answers.len() + self.authorities.len() + self.additionals.len();
        self.bytes.len() + records * size_of::<DnsRecord>() + self.queries.len() * size_of::<Query>()
    }

    /// The records of a section.
    #[must_use]
    pub fn section(&self, section: Section) -> &[DnsRecord] {
        match section {
            Section::Answers => &self.answers,
            Section::Authorities => &self.authorities,
            Section::Additionals => &self.additionals,
        }
    }

    /// The data of a record of this message.
    #[must_use]
    pub fn data(&self, record: &DnsRecord) -> Data<'_> {
        let (from, to) = (usize::from(record.data.0), usize::from(record.data.1));
        // The data was read without error before; the alternative is never taken.
        read_data(&self.bytes, record.rrtype, from, to).unwrap_or(Data::Other(&[]))
    }

    /// The name within a record's data, if `dns.response.rrname` includes it for the record's type.
    #[must_use]
    pub fn data_name(&self, record: &DnsRecord) -> Option<Name> {
        match self.data(record) {
            Data::Name(name) | Data::Soa { server: name, .. } => Some(name),
            _ => None,
        }
    }
}

/// The strings of a TXT record.
pub fn strings(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut cursor = Cursor::new(data);
    core::iter::from_fn(move || {
        let length = cursor.u8()?;
        cursor.take(usize::from(length))
    })
}

/// The options of an OPT record: code and value.
pub fn options(data: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut cursor = Cursor::new(data);
    core::iter::from_fn(move || {
        let (code, length) = (cursor.u16()?, cursor.u16()?);
        Some((code, cursor.take(usize::from(length))?))
    })
}

/// A cursor over `from..to` of a message.
fn field(message: &[u8], from: usize, to: usize) -> Cursor<'_> {
    Cursor::new(message.get(..to).and_then(|m| m.get(from..)).unwrap_or_default())
}

fn read_query(message: &[u8], at: usize, odd: &mut NameFlags) -> Result<(Query, usize), Bad> {
    let (name, next) = Name::read(message, at, message.len())?;
    *odd |= name.flags();
    let mut cursor = field(message, next, message.len());
    let rrtype = cursor.u16().ok_or(Bad::Short)?;
    let class = cursor.u16().ok_or(Bad::Short)?;
    Ok((Query { name, rrtype, class }, next.saturating_add(cursor.position())))
}

/// Reads a section. Returns its records up to the first broken one, and the section's end if none is broken.
fn read_section(
    message: &[u8],
    mut at: usize,
    count: u16,
    odd: &mut NameFlags,
) -> (Vec<DnsRecord>, Result<usize, Bad>) {
    let mut records = Vec::new();
    for _ in 0..count {
        match read_record(message, at, odd) {
            Ok((record, next)) => {
                records.push(record);
                at = next;
            }
            Err(bad) => return (records, Err(bad)),
        }
    }
    (records, Ok(at))
}

fn read_record(message: &[u8], at: usize, odd: &mut NameFlags) -> Result<(DnsRecord, usize), Bad> {
    let (name, next) = Name::read(message, at, message.len())?;
    *odd |= name.flags();
    let mut cursor = field(message, next, message.len());
    let rrtype = cursor.u16().ok_or(Bad::Short)?;
    let class = cursor.u16().ok_or(Bad::Short)?;
    let ttl = cursor.u32().ok_or(Bad::Short)?;
    let length = cursor.u16().ok_or(Bad::Short)?;
    let from = next.saturating_add(cursor.position());
    cursor.take(usize::from(length)).ok_or(Bad::Short)?;
    let to = from.saturating_add(usize::from(length));
    match read_data(message, rrtype, from, to)? {
        Data::Name(name) | Data::Srv { target: name, .. } => *odd |= name.flags(),
        Data::Soa { server, mailbox, .. } => *odd |= server.flags() | mailbox.flags(),
        _ => {}
    }
    let (Ok(first), Ok(last)) = (u16::try_from(from), u16::try_from(to)) else {
        return Err(Bad::Broken);
    };
    Ok((DnsRecord { name, rrtype, class, ttl, data: (first, last) }, to))
}

/// Reads a record's data at `from..to`.
fn read_data(message: &[u8], rrtype: u16, from: usize, to: usize) -> Result<Data<'_>, Bad> {
    let mut cursor = field(message, from, to);
    let raw = cursor.rest();
    Ok(match rrtype {
        record::A | record::AAAA => Data::Address(raw),
        record::CNAME | record::PTR | record::NS => Data::Name(Name::read(message, from, to)?.0),
        record::MX => {
            cursor.u16().ok_or(Bad::Short)?;
            Data::Name(Name::read(message, from.saturating_add(2), to)?.0)
        }
        record::SOA => {
            let (server, next) = Name::read(message, from, to)?;
            let (mailbox, next) = Name::read(message, next, to)?;
            let mut cursor = field(message, next, to);
            let mut numbers = [0u32; 5];
            for number in &mut numbers {
                *number = cursor.u32().ok_or(Bad::Short)?;
            }
            Data::Soa { server, mailbox, numbers }
        }
        record::SRV => {
            let mut numbers = [0u16; 3];
            for number in &mut numbers {
                *number = cursor.u16().ok_or(Bad::Short)?;
            }
            Data::Srv { numbers, target: Name::read(message, from.saturating_add(6), to)?.0 }
        }
        record::TXT => {
            let whole: usize = strings(raw).map(|s| s.len().saturating_add(1)).sum();
            if whole == raw.len() { Data::Text(raw) } else { return Err(Bad::Short) }
        }
        record::NULL => Data::Null(raw),
        record::SSHFP => Data::Sshfp {
            algorithm: cursor.u8().ok_or(Bad::Short)?,
            kind: cursor.u8().ok_or(Bad::Short)?,
            fingerprint: cursor.rest(),
        },
        record::OPT => {
            let whole: usize = options(raw).map(|(_, v)| v.len().saturating_add(4)).sum();
            if whole == raw.len() { Data::Opt(raw) } else { return Err(Bad::Short) }
        }
        _ => Data::Other(raw),
    })
}
