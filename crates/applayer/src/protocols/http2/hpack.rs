// SPDX-License-Identifier: Apache-2.0
//! Header compression of HTTP/2 (RFC 7541): a direction's table, and blocks of fields.

use super::huffman;
use crate::memory::Held as _;
use bartizan_base::Cursor;
use std::collections::VecDeque;
use std::sync::Arc;

/// Size that an entry has beside its texts (RFC 7541 section 4.1).
const ENTRY: usize = 32;
/// Size of a table before anything else is agreed on (RFC 9113 section 6.5.2).
pub(super) const TABLE_SIZE: usize = 4_096;
/// Limit of the fields of one message, with the size of their entries, in bytes: blocks can name an entry of
/// the table again and again.
pub(super) const LIST_MAX: usize = 1 << 20;
/// Limit of the bits of an integer: longer ones are an error.
const INTEGER_BITS: u32 = 63;

/// Entries that every table begins with (RFC 7541 appendix A).
const STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// The result of reading a part of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldStatus {
    /// A field.
    Field,
    /// The sender changes the size of its table.
    SizeUpdate(u64),
    /// The index is beyond the table.
    NotIndexed,
    /// A number is too large.
    IntegerOverflow,
}

/// A part of a header block.
#[derive(Clone, Debug)]
pub struct HeaderField {
    /// Name, as it was sent.
    pub name: Arc<[u8]>,
    /// Value.
    pub value: Arc<[u8]>,
    /// Whether it is a field, and what else it is.
    pub status: FieldStatus,
}

impl HeaderField {
    fn of(status: FieldStatus) -> Self {
        HeaderField { name: Arc::from(&b""[..]), value: Arc::from(&b""[..]), status }
    }

    /// Whether it is a field with this name, which is in lower case.
    pub(super) fn is_named(&self, name: &[u8]) -> bool {
        self.status == FieldStatus::Field && self.name.eq_ignore_ascii_case(name)
    }

    fn size(&self) -> usize {
        self.name.len().saturating_add(self.value.len()).saturating_add(ENTRY)
    }
}

/// The reason why a block cannot be read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockFailure {
    /// It ends within a field, or a string is no Huffman code.
    Malformed,
    /// A number is too large.
    IntegerOverflow,
    /// The fields are larger than [`LIST_MAX`].
    TooLong,
}

/// A block that was read.
#[derive(Debug, Default)]
pub(super) struct HeaderBlock {
    pub(super) fields: Vec<HeaderField>,
    pub(super) failure: Option<BlockFailure>,
    /// Size of the fields, as tables count it.
    pub(super) size: usize,
    /// The table was to be larger than the settings allow.
    pub(super) table_overflow: bool,
}

/// The table of a direction.
#[derive(Debug)]
pub(super) struct HeaderTable {
    /// The newest entry is the first.
    entries: VecDeque<HeaderField>,
    size: usize,
    /// Limit of the size that the sender has chosen.
    limit: usize,
    /// Limit by the settings (`max-table-size`).
    most: usize,
}

impl HeaderTable {
    pub(super) fn new(most: usize) -> Self {
        HeaderTable { entries: VecDeque::new(), size: 0, limit: TABLE_SIZE.min(most), most }
    }

    /// Bytes of memory held: texts are counted for each entry, though fields of messages share them.
    pub(super) fn held(&self) -> usize {
        self.entries.held().saturating_add(self.size)
    }

    fn evict(&mut self, room: usize) {
        while self.size.saturating_add(room) > self.limit {
            let Some(entry) = self.entries.pop_back() else { return };
            self.size = self.size.saturating_sub(entry.size());
        }
    }

    fn add(&mut self, field: &HeaderField) {
        self.evict(field.size());
        if field.size() <= self.limit {
            self.size = self.size.saturating_add(field.size());
            self.entries.push_front(field.clone());
        }
    }

    fn get(&self, index: u64) -> Option<HeaderField> {
        let place = usize::try_from(index.checked_sub(1)?).ok()?;
        if let Some((name, value)) = STATIC.get(place) {
            let (name, value) = (Arc::from(name.as_bytes()), Arc::from(value.as_bytes()));
            return Some(HeaderField { name, value, status: FieldStatus::Field });
        }
        self.entries.get(place.checked_sub(STATIC.len())?).cloned()
    }

    /// Reads a block of fields. `used`: size of the message's fields before it.
    pub(super) fn read(&mut self, data: &[u8], used: usize) -> HeaderBlock {
        let mut block = HeaderBlock::default();
        let mut cursor = Cursor::new(data);
        while !cursor.is_empty() {
            match self.field(&mut cursor, &mut block) {
                Ok(field) => {
                    block.size = block.size.saturating_add(field.size());
                    if used.saturating_add(block.size) > LIST_MAX {
                        block.failure = Some(BlockFailure::TooLong);
                        break;
                    }
                    block.fields.push(field);
                }
                Err(failure) => {
                    block.failure = Some(failure);
                    break;
                }
            }
        }
        block
    }

    fn field(
        &mut self,
        cursor: &mut Cursor<'_>,
        block: &mut HeaderBlock,
    ) -> Result<HeaderField, BlockFailure> {
        let first = cursor.u8().ok_or(BlockFailure::Malformed)?;
        if first & 0x80 != 0 {
            let index = integer(first, 0x7f, cursor)?;
            return Ok(self.get(index).unwrap_or_else(|| HeaderField::of(FieldStatus::NotIndexed)));
        }
        if first & 0xe0 == 0x20 {
            let size = integer(first, 0x1f, cursor)?;
            let wanted = usize::try_from(size).unwrap_or(usize::MAX);
            block.table_overflow |= wanted > self.most;
            self.limit = wanted.min(self.most);
            self.evict(0);
            return Ok(HeaderField::of(FieldStatus::SizeUpdate(size)));
        }
        let is_added = first & 0xc0 == 0x40;
        let index = integer(first, if is_added { 0x3f } else { 0x0f }, cursor)?;
        let (name, status) = match index {
            0 => (Arc::from(string(cursor)?), FieldStatus::Field),
            index => match self.get(index) {
                Some(known) => (known.name, FieldStatus::Field),
                None => (Arc::from(&b""[..]), FieldStatus::NotIndexed),
            },
        };
        let field = HeaderField { name, value: Arc::from(string(cursor)?), status };
        if is_added && status == FieldStatus::Field {
            self.add(&field);
        }
        Ok(field)
    }
}

/// Reads an integer that begins in the low bits of a byte (RFC 7541 section 5.1).
fn integer(first: u8, mask: u8, cursor: &mut Cursor<'_>) -> Result<u64, BlockFailure> {
    let mut value = u64::from(first & mask);
    if first & mask != mask {
        return Ok(value);
    }
    for shift in (0..).step_by(7) {
        let byte = cursor.u8().ok_or(BlockFailure::Malformed)?;
        if shift + 7 > INTEGER_BITS {
            return Err(BlockFailure::IntegerOverflow);
        }
        value = value.saturating_add(u64::from(byte & 0x7f) << shift);
        if byte & 0x80 == 0 {
            break;
        }
    }
    Ok(value)
}

/// Reads a string (RFC 7541 section 5.2).
fn string(cursor: &mut Cursor<'_>) -> Result<Vec<u8>, BlockFailure> {
    let first = cursor.u8().ok_or(BlockFailure::Malformed)?;
    let length = usize::try_from(integer(first, 0x7f, cursor)?).map_err(|_| BlockFailure::IntegerOverflow)?;
    let text = cursor.take(length).ok_or(BlockFailure::Malformed)?;
    if first & 0x80 == 0 {
        return Ok(text.to_vec());
    }
    huffman::decode(text, LIST_MAX).ok_or(BlockFailure::Malformed)
}

/// Writes a field as a literal that no table holds, for blocks that this program makes itself.
pub(super) fn write_literal(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.push(0);
    for text in [name, value] {
        let length = text.len();
        if length < 0x7f {
            out.push(length as u8);
        } else {
            out.push(0x7f);
            let mut rest = length - 0x7f;
            while rest >= 0x80 {
                out.push(rest as u8 | 0x80);
                rest >>= 7;
            }
            out.push(rest as u8);
        }
        out.extend_from_slice(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(block: &HeaderBlock) -> Vec<String> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        block.fields.iter().map(|field| format!("{}: {}", text(&field.name), text(&field.value))).collect()
    }

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
        digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).expect("hex"), 16).expect("hex"))
            .collect()
    }

    #[test]
    fn requests_of_the_rfc_are_read() {
        // RFC 7541 appendix C.3 and C.4.
        let plain = [
            "828684410f7777772e6578616d706c652e636f6d",
            "828684be58086e6f2d6361636865",
            "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
        ];
        let coded = [
            "828684418cf1e3c2e5f23a6ba0ab90f4ff",
            "828684be5886a8eb10649cbf",
            "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
        ];
        for blocks in [plain, coded] {
            let mut table = HeaderTable::new(65_536);
            let [first, second, third] = blocks.map(|block| table.read(&hex(block), 0));
            assert_eq!(
                texts(&first),
                [":method: GET", ":scheme: http", ":path: /", ":authority: www.example.com"]
            );
            assert_eq!(second.fields.len(), 5);
            assert_eq!(texts(&second)[4], "cache-control: no-cache");
            assert_eq!(texts(&third)[3..], [":authority: www.example.com", "custom-key: custom-value"]);
            assert_eq!((table.size, table.entries.len()), (164, 3));
        }
    }

    #[test]
    fn the_table_evicts_its_oldest_entries() {
        // RFC 7541 appendix C.5.
        let mut table = HeaderTable::new(256);
        let first = hex(
            "4803333032580770726976617465611d4d6f6e2c203231204f637420323031332032303a31333a323120474d546e1768747470733a2f2f7777772e6578616d706c652e636f6d",
        );
        assert_eq!(texts(&table.read(&first, 0))[0], ":status: 302");
        assert_eq!(table.size, 222);
        let second = table.read(&hex("4803333037c1c0bf"), 0);
        assert_eq!(
            texts(&second),
            [
                ":status: 307",
                "cache-control: private",
                "date: Mon, 21 Oct 2013 20:13:21 GMT",
                "location: https://www.example.com"
            ]
        );
        assert_eq!((table.size, table.entries.len()), (222, 4));
        // An update to 0 empties it (section 4.3).
        let update = table.read(&[0x20], 0);
        assert_eq!((update.fields[0].status, table.size), (FieldStatus::SizeUpdate(0), 0));
    }

    #[test]
    fn what_is_broken_is_named() {
        let read = |data: &[u8]| HeaderTable::new(4_096).read(data, 0);
        assert_eq!(read(&[0xbe]).fields[0].status, FieldStatus::NotIndexed);
        assert_eq!(read(&[0x80]).fields[0].status, FieldStatus::NotIndexed);
        assert_eq!(read(&[0xff; 12]).failure, Some(BlockFailure::IntegerOverflow));
        assert_eq!(read(&[0x82, 0x40, 0x05, b'a']).failure, Some(BlockFailure::Malformed));
        assert_eq!(read(&[0x00, 0x81, 0x00, 0x00]).failure, Some(BlockFailure::Malformed));
        assert!(read(&[0x3f, 0xe2, 0x1f]).table_overflow && !read(&[0x3f, 0xe1, 0x1f]).table_overflow);
    }

    #[test]
    fn a_bomb_of_indexed_fields_is_bounded() {
        let mut table = HeaderTable::new(4_096);
        let mut block = vec![0x40, 0x01, b'a', 0x7f, 0x80, 0x1e];
        block.extend([b'x'; 3967]);
        assert_eq!(table.read(&block, 0).failure, None);
        let bomb = table.read(&[0xbe; 65_536], 0);
        assert_eq!(bomb.failure, Some(BlockFailure::TooLong));
        assert!(bomb.size <= LIST_MAX + 4_096);
    }

    #[test]
    fn written_literals_are_read() {
        for length in [0, 126, 127, 254, 255, 20_000] {
            let mut block = Vec::new();
            write_literal(&mut block, b"name", &vec![b'v'; length]);
            let read = HeaderTable::new(4_096).read(&block, 0);
            assert_eq!((read.failure, read.fields[0].value.len()), (None, length));
        }
    }
}
