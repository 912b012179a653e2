// SPDX-License-Identifier: Apache-2.0
//! Header fields: a scanner for blocks of fields that is as tolerant as servers and browsers, and the table
//! of fields.
//!
//! Semantics follow libhtp (Rust port, 8.0): requests end lines with LF or CRLF, responses also with CR or LF
//! CR; folded lines are joined with the white space byte that folded them; a line without a colon becomes a
//! field without name. The scanner never decides on bytes that have not come: if they could change the
//! meaning, it requests more.

use crate::memory::Held as _;

use super::bytes::{after, before, equals_nocase_nonul, is_blank, is_token, span, trim};

/// Limit of lines folded into one field; the rest counts as fields of its own. Without it a sender could make
/// each packet rescan all lines.
const MAX_FOLDS: usize = 128;

bitflags::bitflags! {
    /// Anomalies of a field.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(super) struct Odd: u16 {
        const FOLDED = 1;
        const NAME_EMPTY = 2;
        const NAME_NOT_TOKEN = 4;
        const SPACE_AFTER_NAME = 8;
        const SPACE_BEFORE_NAME = 16;
        const NO_COLON = 32;
        const DEFORMED_EOL = 64;
        /// A CR without LF after it, in the line or as its end, or a NUL that continues the line.
        const BARE_CR = 128;
        /// The name has a byte that no name may have: white space, a control character, a byte beyond ASCII.
        const NAME_UNPRINTABLE = 256;
    }
}

/// A field as the scanner found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RawField {
    pub name: Vec<u8>,
    pub value: Vec<u8>,
    pub odd: Odd,
}

impl RawField {
    /// Whether the field determines where the body ends or how it is coded.
    fn is_about_body(&self) -> bool {
        const ABOUT_BODIES: [&[u8]; 3] = [b"content-length", b"transfer-encoding", b"content-encoding"];
        ABOUT_BODIES.iter().any(|name| equals_nocase_nonul(&self.name, name))
    }

    /// Whether some receivers do not take the line for a field. Python's end the headers there; others skip
    /// the line, or refuse the message.
    pub(super) fn ends_headers(&self) -> bool {
        self.odd.intersects(Odd::NO_COLON | Odd::NAME_UNPRINTABLE)
    }

    /// Whether receivers differ over the field's meaning, and with it over where the body ends or how it is
    /// coded. Gateways need not forward such fields: one with a bare CR, which for some ends the line (RFC
    /// 9112 section 2.2); one about the body that is folded (section 5.2), of which some read the first line
    /// only, that has white space at its name (section 5.1), or that comes after a line that is no field
    /// (`ended`: there was one, [`RawField::ends_headers`]), which some do not read at all.
    pub(super) fn is_ambiguous(&self, ended: bool) -> bool {
        let odd = Odd::FOLDED | Odd::SPACE_BEFORE_NAME | Odd::SPACE_AFTER_NAME;
        self.odd.intersects(Odd::BARE_CR | Odd::DEFORMED_EOL)
            || self.is_about_body() && (ended || self.ends_headers() || self.odd.intersects(odd))
    }
}

/// Length, first and last letter of a field name without NUL bytes and regardless of letter case: different
/// for nearly all names of a message, so that a search compares few of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NameKey(u32);

impl NameKey {
    /// The key of a name without NUL bytes.
    #[inline]
    const fn of_plain(name: &[u8]) -> Self {
        match name {
            [] => NameKey(0),
            [only] => NameKey(Self::pack(1, only.to_ascii_lowercase(), only.to_ascii_lowercase())),
            [first, .., last] => {
                NameKey(Self::pack(name.len(), first.to_ascii_lowercase(), last.to_ascii_lowercase()))
            }
        }
    }

    const fn pack(length: usize, first: u8, last: u8) -> u32 {
        (length as u16 as u32) << 16 | (first as u32) << 8 | last as u32
    }

    fn of(name: &[u8]) -> Self {
        if memchr::memchr(0, name).is_none() {
            return Self::of_plain(name);
        }
        let clean: Vec<u8> = name.iter().copied().filter(|byte| *byte != 0).collect();
        Self::of_plain(&clean)
    }
}

/// A field of a message; repeated ones are joined.
#[derive(Clone, Debug)]
pub(super) struct HttpField {
    pub name: Vec<u8>,
    pub value: Vec<u8>,
    pub repeated: bool,
    key: NameKey,
}

impl HttpField {
    pub(super) fn new(name: Vec<u8>, value: Vec<u8>) -> Self {
        let key = NameKey::of(&name);
        HttpField { name, value, repeated: false, key }
    }
}

/// The fields of a message, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct HttpFields {
    pub list: Vec<HttpField>,
    /// Memory of names and values, in bytes.
    held: usize,
}

impl HttpFields {
    /// Adds a field.
    pub(super) fn push(&mut self, field: HttpField) {
        self.held = self.held.saturating_add(field.name.held()).saturating_add(field.value.held());
        self.list.push(field);
    }

    /// Appends to the value of the field with which a new one of this name is joined.
    pub(super) fn join(&mut self, name: &[u8], more: &[u8]) {
        let Some(same) = self.same_name(name) else { return };
        let before = same.value.held();
        same.value.extend_from_slice(b", ");
        same.value.extend_from_slice(more);
        let after = same.value.held();
        self.held = self.held.saturating_add(after).saturating_sub(before);
    }

    /// Forgets all fields.
    pub(super) fn clear(&mut self) {
        *self = HttpFields::default();
    }

    /// Bytes of memory held outside of the structure itself.
    pub(super) fn held(&self) -> usize {
        self.held.saturating_add(self.list.held())
    }

    /// The first field of this name; NUL bytes in names are ignored, as in browsers.
    #[inline]
    pub(super) fn get(&self, name: &str) -> Option<&HttpField> {
        let key = NameKey::of_plain(name.as_bytes());
        self.list.iter().find(|f| f.key == key && equals_nocase_nonul(&f.name, name.as_bytes()))
    }

    /// The value of the first field of this name.
    #[inline]
    pub(super) fn value(&self, name: &str) -> Option<&[u8]> {
        self.get(name).map(|f| f.value.as_slice())
    }

    /// The field with which a new one of this name would be joined.
    pub(super) fn same_name(&mut self, name: &[u8]) -> Option<&mut HttpField> {
        let key = NameKey::of(name);
        self.list.iter_mut().find(|f| f.key == key && f.name.eq_ignore_ascii_case(name))
    }
}

/// Input that may decide an undecided scan; without it, a scan of more bytes gives the same result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// The end of the last line.
    LineEnd,
    /// Any byte: the last line has ended, and the next byte decides its meaning.
    Byte,
}

/// Result of a scan step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Scan<T> {
    Got(T),
    /// The bytes so far do not decide it.
    Need(Until),
    /// The bytes do not match.
    Bad,
}

/// A block of fields as far as it could be scanned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub fields: Vec<RawField>,
    /// Number of bytes scanned.
    pub used: usize,
    /// Input that the rest needs; `None` if the empty line was found.
    pub waits_for: Option<Until>,
}

/// The end of a line, and whether the next line continues it.
struct LineEnd {
    length: usize,
    odd: Odd,
    fold: Option<u8>,
}

/// Scanner for the fields of one side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scanner {
    /// Scan a response: CR alone ends a line, too.
    pub response: bool,
    /// Whether no more data will arrive.
    pub complete: bool,
}

impl Scanner {
    /// Scans all complete fields. A block that begins with an empty line has none, whatever follows. (libhtp
    /// takes LF there for a field without name if more bytes follow it; servers and browsers do not.)
    pub(super) fn block(self, input: &[u8]) -> Scan<Block> {
        let (mut fields, mut used) = (Vec::new(), 0);
        match input {
            [b'\r', b'\n', ..] => return Scan::Got(Block { fields, used: 2, waits_for: None }),
            [b'\n', ..] => return Scan::Got(Block { fields, used: 1, waits_for: None }),
            _ => {}
        }
        loop {
            let (mut field, length) = match self.field(after(input, used)) {
                Scan::Got(found) => found,
                Scan::Need(until) if fields.is_empty() => return Scan::Need(until),
                Scan::Need(until) => return Scan::Got(Block { fields, used, waits_for: Some(until) }),
                Scan::Bad => return Scan::Bad,
            };
            match self.empty_line(after(input, used + length)) {
                Scan::Got(end) => {
                    let bare = end == 1 && input.get(used + length) == Some(&b'\r');
                    field.odd.set(Odd::BARE_CR, field.odd.contains(Odd::BARE_CR) || bare);
                    fields.push(field);
                    return Scan::Got(Block { fields, used: used + length + end, waits_for: None });
                }
                // In a request any later byte begins another line: the field is complete.
                Scan::Need(until) if !self.response => {
                    fields.push(field);
                    return Scan::Got(Block { fields, used: used + length, waits_for: Some(until) });
                }
                // In a response CR may be the whole empty line: the field is scanned again when that is
                // known.
                Scan::Need(until) if fields.is_empty() => return Scan::Need(until),
                Scan::Need(until) => return Scan::Got(Block { fields, used, waits_for: Some(until) }),
                Scan::Bad => {
                    fields.push(field);
                    used += length;
                }
            }
        }
    }

    /// Length of the empty line after a field. LF is always complete, so that the end of headers needs no
    /// further byte.
    fn empty_line(self, rest: &[u8]) -> Scan<usize> {
        match rest {
            [b'\r', b'\n', ..] => Scan::Got(2),
            [b'\n', ..] => Scan::Got(1),
            [b'\r'] if !self.complete => Scan::Need(Until::Byte),
            [b'\r', ..] if self.response => Scan::Got(1),
            _ => Scan::Bad,
        }
    }

    fn field(self, input: &[u8]) -> Scan<(RawField, usize)> {
        match self.field_with_colon(input) {
            Scan::Got(found) => return Scan::Got(found),
            // An incomplete field may look like one without a colon: the name may span lines.
            Scan::Need(until) if !self.complete => return Scan::Need(until),
            _ => {}
        }
        match self.value(input) {
            Scan::Got((value, odd, used)) => Scan::Got((
                RawField { name: Vec::new(), value, odd: odd | Odd::NO_COLON | Odd::NAME_EMPTY },
                used,
            )),
            Scan::Need(until) => Scan::Need(until),
            Scan::Bad => Scan::Bad,
        }
    }

    fn field_with_colon(self, input: &[u8]) -> Scan<(RawField, usize)> {
        let (name, rest) = input.split_at_checked(self.name_length(input)).unwrap_or((&[], input));
        let mut odd = Odd::empty();
        match (name.first(), name.last()) {
            (Some(first), Some(last)) => {
                odd.set(Odd::SPACE_BEFORE_NAME, is_blank(*first));
                odd.set(Odd::SPACE_AFTER_NAME, is_blank(*last));
                odd.set(Odd::NAME_NOT_TOKEN, !is_padded_token(name));
                let (_, bare) = span(name, is_blank);
                odd.set(Odd::NAME_UNPRINTABLE, !bare.iter().all(u8::is_ascii_graphic));
                odd.set(Odd::BARE_CR, name.contains(&b'\r'));
            }
            _ => odd |= Odd::NAME_EMPTY,
        }
        let [b':', rest @ ..] = rest else { return Scan::Bad };
        let (blanks, rest) = span(rest, is_blank);
        if rest.is_empty() {
            return Scan::Need(Until::LineEnd);
        }
        match self.value(rest) {
            Scan::Got((value, value_odd, used)) => {
                let field = RawField { name: trim(name).to_vec(), value, odd: odd | value_odd };
                Scan::Got((field, name.len() + 1 + blanks.len() + used))
            }
            Scan::Need(until) => Scan::Need(until),
            Scan::Bad => Scan::Bad,
        }
    }

    /// Length of the name: up to the first colon, or to the end of a line that is not continued.
    fn name_length(self, input: &[u8]) -> usize {
        let mut ended_by = 0u8;
        for (index, byte) in input.iter().enumerate() {
            if ended_by == 0 {
                match byte {
                    b':' => return index,
                    b'\n' => ended_by = b'\n',
                    b'\r' if self.response => ended_by = b'\r',
                    _ => {}
                }
            } else if *byte == b' ' {
                ended_by = 0;
            } else if *byte == b'\n' && ended_by == b'\r' {
                ended_by = b'\n';
            } else {
                return index.saturating_sub(1);
            }
        }
        0
    }

    /// Scans a value with its folded lines: value, anomalies, number of bytes.
    fn value(self, input: &[u8]) -> Scan<(Vec<u8>, Odd, usize)> {
        let (first, end) = match self.value_line(input) {
            Scan::Got(found) => found,
            Scan::Need(until) => return Scan::Need(until),
            Scan::Bad => return Scan::Bad,
        };
        let mut value = first.to_vec();
        let mut odd = end.odd;
        let mut at = first.len() + end.length;
        let Some(mut fold) = end.fold else { return Scan::Got((trim(&value).to_vec(), odd, at)) };
        odd |= Odd::FOLDED;
        let mut used = at;
        for _ in 0..MAX_FOLDS {
            if self.response {
                match starts_with_name(after(input, at)) {
                    Scan::Got(()) => {
                        // White space, then a name and a colon: a field of its own.
                        odd.remove(Odd::FOLDED);
                        return Scan::Got((trim(&value).to_vec(), odd, at));
                    }
                    Scan::Need(until) => return Scan::Need(until),
                    Scan::Bad => {}
                }
            }
            let (line, end) = match self.value_line(after(input, at)) {
                Scan::Got(found) => found,
                Scan::Need(until) => return Scan::Need(until),
                Scan::Bad => return Scan::Bad,
            };
            at += line.len() + end.length;
            odd |= end.odd;
            if !value.is_empty() {
                value.push(fold);
            }
            // The end of the line without the byte that folds the next one.
            let eol = end.length - usize::from(end.fold.is_some());
            if !line.is_empty() || eol > 1 {
                used = at;
                value.extend_from_slice(line);
            } else {
                match input.get(at) {
                    // An empty folded line and an empty line: the end of the block.
                    Some(b'\n') => used = at,
                    None if !self.complete => return Scan::Need(Until::Byte),
                    _ => {}
                }
            }
            match end.fold {
                Some(byte) => fold = byte,
                None => break,
            }
        }
        Scan::Got((trim(&value).to_vec(), odd, used))
    }

    /// Scans one line of a value and its end.
    fn value_line(self, input: &[u8]) -> Scan<(&[u8], LineEnd)> {
        let ends = |b: &u8| *b == b'\n' || (self.response && *b == b'\r');
        let Some(mut length) = input.iter().position(ends) else { return Scan::Need(Until::LineEnd) };
        if let Some(before) = length.checked_sub(1)
            && input.get(before) == Some(&b'\r')
        {
            length = before;
        }
        let (line, rest) = input.split_at_checked(length).unwrap_or((input, &[]));
        match self.line_end(rest) {
            Scan::Got(mut end) => {
                // LF CR is the end of a line and the beginning of an empty one, if LF follows.
                let plain = match before(rest, end.length - usize::from(end.fold.is_some())) {
                    b"\n" | b"\r\n" => true,
                    b"\n\r" => rest.get(2) == Some(&b'\n'),
                    _ => false,
                };
                // Only for libhtp does a NUL continue a line.
                let plain = plain && end.fold != Some(0);
                if !plain || line.contains(&b'\r') {
                    end.odd |= Odd::BARE_CR;
                }
                Scan::Got((line, end))
            }
            Scan::Need(until) => Scan::Need(until),
            Scan::Bad => Scan::Bad,
        }
    }

    fn line_end(self, rest: &[u8]) -> Scan<LineEnd> {
        let folding_eol = if self.response {
            self.plain_eol(rest).map_or(Scan::Bad, |n| Scan::Got((n, Odd::empty())))
        } else {
            self.any_eol(rest)
        };
        match folding_eol {
            Scan::Got((length, odd)) => match rest.get(length) {
                Some(byte) if is_fold(*byte) => {
                    return Scan::Got(LineEnd { length: length + 1, odd, fold: Some(*byte) });
                }
                None if !self.complete => return Scan::Need(Until::Byte),
                _ => {}
            },
            Scan::Need(until) if !self.complete => return Scan::Need(until),
            _ => {}
        }
        match self.any_eol(rest) {
            Scan::Got((length, odd)) if self.complete => Scan::Got(LineEnd { length, odd, fold: None }),
            // Nothing continues a line after a deformed end. libhtp stops there, and decides so when the
            // stream ends.
            Scan::Got((length, odd)) => match rest.get(length) {
                None => Scan::Need(Until::Byte),
                Some(_) => Scan::Got(LineEnd { length, odd, fold: None }),
            },
            Scan::Need(until) => Scan::Need(until),
            Scan::Bad => Scan::Bad,
        }
    }

    /// Length of a regular end of line.
    fn plain_eol(self, rest: &[u8]) -> Option<usize> {
        match rest {
            [b'\r', b'\n', ..] => Some(2),
            [b'\n', b'\r', ..] if self.response => Some(2),
            [b'\n', ..] => Some(1),
            [b'\r', ..] if self.response => Some(1),
            _ => None,
        }
    }

    /// Length of a line end, regular or of the deformed kinds that browsers accept.
    fn any_eol(self, rest: &[u8]) -> Scan<(usize, Odd)> {
        let deformed =
            if self.response { self.deformed_in_response(rest) } else { self.deformed_in_request(rest) };
        match deformed {
            Scan::Bad => self.plain_eol(rest).map_or(Scan::Bad, |n| Scan::Got((n, Odd::empty()))),
            decided => decided,
        }
    }

    /// LF CR before an empty line. That line ends the headers, whatever follows. libhtp would rather end them
    /// at another empty line after it, but then the end of a request would depend on data that may not have
    /// come yet.
    fn deformed_in_request(self, rest: &[u8]) -> Scan<(usize, Odd)> {
        match rest {
            [b'\n', b'\r', b'\r', b'\n', ..] => Scan::Got((2, Odd::DEFORMED_EOL)),
            b"\n\r" | b"\n\r\r" if !self.complete => Scan::Need(Until::Byte),
            _ => Scan::Bad,
        }
    }

    /// LF CR CR LF before an empty line, or an empty line of CR and more white space without another empty
    /// line after it.
    fn deformed_in_response(self, rest: &[u8]) -> Scan<(usize, Odd)> {
        if let Some(tail) = rest.strip_prefix(b"\n\r\r\n") {
            return match self.empty_line_follows(tail) {
                Scan::Got(()) => Scan::Got((4, Odd::DEFORMED_EOL)),
                Scan::Need(until) => Scan::Need(until),
                Scan::Bad => Scan::Bad,
            };
        }
        if !rest.starts_with(b"\r\n\r") {
            return Scan::Bad;
        }
        let (filler, tail) = span(after(rest, 3), |b| matches!(b, b'\r' | b' ' | b'\t'));
        match tail {
            [] if !self.complete => Scan::Need(Until::Byte),
            _ if filler.is_empty() => Scan::Bad,
            [b'\n', tail @ ..] => match self.empty_line_follows(tail) {
                Scan::Got(()) => Scan::Bad,
                Scan::Need(until) => Scan::Need(until),
                Scan::Bad => Scan::Got((4 + filler.len(), Odd::DEFORMED_EOL)),
            },
            _ => Scan::Got((3 + filler.len(), Odd::DEFORMED_EOL)),
        }
    }

    fn empty_line_follows(self, tail: &[u8]) -> Scan<()> {
        match tail {
            [b'\n', ..] | [b'\r', b'\n', ..] => Scan::Got(()),
            [] | [b'\r'] if !self.complete => Scan::Need(Until::Byte),
            _ => Scan::Bad,
        }
    }
}

/// Whether a byte continues a line when it begins the next one.
const fn is_fold(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | 0)
}

/// Whether a name is a token, ignoring white space around it.
fn is_padded_token(name: &[u8]) -> bool {
    let (_, rest) = span(name, is_blank);
    let (_, rest) = span(rest, is_token);
    span(rest, is_blank).1.is_empty()
}

/// Whether the input begins with a field name and its colon.
fn starts_with_name(input: &[u8]) -> Scan<()> {
    let (_, rest) = span(input, is_blank);
    let (token, rest) = span(rest, is_token);
    let (_, rest) = span(rest, is_blank);
    match rest {
        [] => Scan::Need(Until::Byte),
        [b':', value @ ..] if span(value, is_blank).1.is_empty() => Scan::Need(Until::Byte),
        [b':', ..] if !token.is_empty() => Scan::Got(()),
        _ => Scan::Bad,
    }
}

/// Whether a line is empty.
pub(super) fn is_empty_line(line: &[u8]) -> bool {
    matches!(line, b"\r" | b"\n" | b"\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(response: bool, input: &[u8]) -> Scan<Block> {
        Scanner { response, complete: false }.block(input)
    }

    #[test]
    fn fields_are_found_by_name_regardless_of_case_and_nul_bytes() {
        let mut fields = HttpFields::default();
        for (name, value) in [
            (&b""[..], &b"0"[..]),
            (b"Hast", b"1"),
            (b"HOST", b"2"),
            (b"host", b"3"),
            (b"\0Acc\0ept", b"4"),
            (b"x", b"5"),
            (b"Accepts", b"6"),
        ] {
            fields.push(HttpField::new(name.to_vec(), value.to_vec()));
        }
        let all = [
            ("host", Some(b'2')),
            ("accept", Some(b'4')),
            ("x", Some(b'5')),
            ("", Some(b'0')),
            ("accep", None),
        ];
        for (name, value) in all {
            assert_eq!(fields.value(name).and_then(|value| value.first().copied()), value, "{name}");
        }
        assert_eq!(fields.same_name(b"hAST").map(|field| field.value.clone()), Some(b"1".to_vec()));
        assert!(fields.same_name(b"accept").is_none(), "receivers join names that are equal byte by byte");
    }

    fn names(block: &Scan<Block>) -> Vec<(String, String)> {
        let Scan::Got(block) = block else { return Vec::new() };
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        block.fields.iter().map(|f| (text(&f.name), text(&f.value))).collect()
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn a_request_s_field_is_whole_when_another_line_begins() {
        let input = b"A: 1\r\nB: 2\r\n\r";
        let Scan::Got(request) = scan(false, input) else { panic!("a block") };
        assert_eq!((request.used, request.waits_for), (12, Some(Until::Byte)));
        assert_eq!(names(&Scan::Got(request)), pairs(&[("A", "1"), ("B", "2")]));
        // The rest, once it is there, or with a byte of another line.
        assert_eq!(scan(false, b"\r\n"), Scan::Got(Block { fields: vec![], used: 2, waits_for: None }));
        assert_eq!(
            names(&scan(false, b"\rC: 3\r\n\r\n")),
            names(&scan(false, b"B: 2\r\n\rC: 3\r\n\r\n"))[1..]
        );
        // In a response CR may be the whole empty line.
        let Scan::Got(answer) = scan(true, input) else { panic!("a block") };
        assert_eq!((answer.fields.len(), answer.used), (1, 6));
    }

    #[test]
    fn plain_blocks_on_both_sides() {
        for response in [false, true] {
            let input = b"Host: a\r\nX:  b c \r\n\r\nBODY";
            let got = scan(response, input);
            assert_eq!(names(&got), pairs(&[("Host", "a"), ("X", "b c")]));
            let Scan::Got(block) = got else { panic!("block") };
            assert_eq!(block.waits_for, None);
            assert_eq!(&input[block.used..], b"BODY");
            assert_eq!(
                scan(response, b"\r\n"),
                Scan::Got(Block { fields: vec![], used: 2, waits_for: None })
            );
            assert_eq!(scan(response, b"Host: a"), Scan::Need(Until::LineEnd));
            assert_eq!(scan(response, b"Host: a\r\n"), Scan::Need(Until::Byte));
        }
    }

    #[test]
    fn folding_joins_lines() {
        for response in [false, true] {
            let got = scan(response, b"K: V\r\n a\r\n l\n u\r\n\te\r\n\r\n");
            assert_eq!(names(&got), pairs(&[("K", "V a l u\te")]));
            let got = scan(response, b"K:\r\n\r\n");
            assert_eq!(names(&got), pairs(&[("K", "")]));
        }
        // In a response a folded line that looks like a field is one.
        let got = scan(true, b"K: V\r\n Content-Length: 3\r\n\r\n");
        assert_eq!(names(&got), pairs(&[("K", "V"), ("Content-Length", "3")]));
    }

    #[test]
    fn missing_colons_and_odd_names() {
        let got = scan(false, b"k1:v1\r\n:v2\r\n v2+\r\nk3: v3\r\nk4 v4\r\nk\r5:v\r5\n\rmore\r\n\r\n");
        let want =
            [("k1", "v1"), ("", "v2 v2+"), ("k3", "v3"), ("", "k4 v4"), ("k\r5", "v\r5"), ("", "more")];
        assert_eq!(names(&got), pairs(&want));
        let got = scan(true, b"k1:v1\r\n:v2\r\n v2+\r\nk3: v3\r\nk4 v4\r\nk\r5:v\r5\n\rmore\r\n\r\n");
        let want = [
            ("k1", "v1"),
            ("", "v2 v2+"),
            ("k3", "v3"),
            ("", "k4 v4"),
            ("", "k"),
            ("5", "v"),
            ("", "5"),
            ("", "more"),
        ];
        assert_eq!(names(&got), pairs(&want));
        let Scan::Got(block) = scan(true, b"A b : c\r\nX\t: d\r\n\r\n") else { panic!("block") };
        let spaced = Odd::NAME_NOT_TOKEN | Odd::SPACE_AFTER_NAME | Odd::NAME_UNPRINTABLE;
        assert_eq!(block.fields[0].odd, spaced);
        assert_eq!(block.fields[1].odd, Odd::SPACE_AFTER_NAME | Odd::NAME_UNPRINTABLE);
    }

    #[test]
    fn deformed_line_ends() {
        let got = scan(true, b"K: V\r\n\r \r\nX: y\r\n\r\n");
        let Scan::Got(block) = got else { panic!("block") };
        assert_eq!(block.fields.len(), 2);
        assert!(block.fields[0].odd.contains(Odd::DEFORMED_EOL));
        let got = scan(true, b"K:deformed folded\n\r V\n\r\r\n\n");
        assert_eq!(names(&got), pairs(&[("K", "deformed folded V")]));
        assert_eq!(scan(true, b"K: V\r\n\r"), Scan::Need(Until::Byte));
    }

    #[test]
    fn where_a_requests_line_ends_does_not_depend_on_what_came_yet() {
        let whole = b"Host: a\nK: V\n\r\r\n\n\r\n";
        let decided = whole.len() - b"\n\r\n".len();
        let want = scan(false, whole);
        let Scan::Got(block) = &want else { panic!("block") };
        assert_eq!((block.used, block.waits_for), (decided, None));
        assert_eq!(names(&want), pairs(&[("Host", "a"), ("K", "V")]));
        assert!(block.fields[1].odd.contains(Odd::DEFORMED_EOL));
        for cut in 0..whole.len() {
            let got = scan(false, &whole[..cut]);
            match &got {
                _ if cut >= decided => assert_eq!(got, want, "{cut}"),
                Scan::Got(part) => {
                    assert_eq!((part.fields.len(), part.waits_for.is_some()), (1, true), "{cut}")
                }
                other => assert!(matches!(other, Scan::Need(_)), "{cut}"),
            }
        }
        // No more data comes: the input is a line that ended, and the beginning of another.
        let got = Scanner { response: false, complete: true }.block(b"K: V\n\r");
        assert_eq!(names(&got), pairs(&[("K", "V")]));
    }

    #[test]
    fn what_is_incomplete_stays() {
        let input = b"k1:v1\r\nk2:v2\r";
        let Scan::Got(block) = scan(true, input) else { panic!("block") };
        assert_eq!(block.waits_for, Some(Until::Byte));
        assert_eq!(&input[block.used..], b"k2:v2\r");
    }
}
