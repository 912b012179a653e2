// SPDX-License-Identifier: Apache-2.0
//! Header fields: scanning a block of them as tolerantly as servers and browsers do, and the table they end
//! in.
//!
//! Semantics follow libhtp (Rust port, 8.0): requests end lines with LF or CRLF, responses also with CR or LF
//! CR; folded lines are joined with the white space byte that folded them; a line without a colon becomes a
//! field without name. The scanner never decides on bytes it has not seen: when what follows could change the
//! meaning it asks for more.

use crate::memory::Held as _;

use super::bytes::{after, before, equals_nocase_nonul, is_blank, is_token, span, trim};

/// Lines folded into one field at most; the rest is taken as fields of its own. Keeps a sender from making
/// each packet rescan all.
const MAX_FOLDS: usize = 128;

bitflags::bitflags! {
    /// Oddities of a field.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(super) struct Odd: u16 {
        const FOLDED = 1;
        const NAME_EMPTY = 2;
        const NAME_NOT_TOKEN = 4;
        const SPACE_AFTER_NAME = 8;
        const SPACE_BEFORE_NAME = 16;
        const NO_COLON = 32;
        const DEFORMED_EOL = 64;
        /// A CR that is not before LF, in the line or as its end, or a NUL that continues it.
        const BARE_CR = 128;
        /// The name holds a byte that no name has: white space, a control, one beyond ASCII.
        const NAME_UNPRINTABLE = 256;
    }
}

/// A field as scanned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RawField {
    pub name: Vec<u8>,
    pub value: Vec<u8>,
    pub odd: Odd,
}

impl RawField {
    /// Whether it says where the body ends or how it is coded.
    fn is_about_body(&self) -> bool {
        const ABOUT_BODIES: [&[u8]; 3] = [b"content-length", b"transfer-encoding", b"content-encoding"];
        ABOUT_BODIES.iter().any(|name| equals_nocase_nonul(&self.name, name))
    }

    /// Whether some receivers take its line for no field at all. Python's end the headers there; others pass
    /// over it, or refuse the message.
    pub(super) fn ends_headers(&self) -> bool {
        self.odd.intersects(Odd::NO_COLON | Odd::NAME_UNPRINTABLE)
    }

    /// Whether receivers differ over what it says, and with it over where the body ends or how it is coded.
    /// Gateways need not pass these on: a bare CR, which for some ends the line (RFC 9112 section 2.2); a
    /// field about the body that is folded (section 5.2), of which some read the first line only, that has
    /// white space at its name (section 5.1), or that stands behind a line that is no field (`ended`: one was
    /// seen, [`RawField::ends_headers`]), which some do not read at all.
    pub(super) fn is_ambiguous(&self, ended: bool) -> bool {
        let odd = Odd::FOLDED | Odd::SPACE_BEFORE_NAME | Odd::SPACE_AFTER_NAME;
        self.odd.intersects(Odd::BARE_CR | Odd::DEFORMED_EOL)
            || self.is_about_body() && (ended || self.ends_headers() || self.odd.intersects(odd))
    }
}

/// A field of a message; repeated ones are joined.
#[derive(Clone, Debug)]
pub(super) struct Field {
    pub name: Vec<u8>,
    pub value: Vec<u8>,
    pub repeated: bool,
}

/// The fields of a message, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields {
    pub list: Vec<Field>,
    /// Memory of names and values, in bytes.
    held: usize,
}

impl Fields {
    /// Adds a field.
    pub(super) fn push(&mut self, field: Field) {
        self.held = self.held.saturating_add(field.name.held()).saturating_add(field.value.held());
        self.list.push(field);
    }

    /// Adds to the value of the field that a new one of this name is joined with.
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
        *self = Fields::default();
    }

    /// Bytes of memory held beside its own place.
    pub(super) fn held(&self) -> usize {
        self.held.saturating_add(self.list.held())
    }

    /// The first field of this name; NUL bytes in names are ignored, as browsers do.
    pub(super) fn get(&self, name: &str) -> Option<&Field> {
        self.list.iter().find(|f| equals_nocase_nonul(&f.name, name.as_bytes()))
    }

    /// Its value.
    pub(super) fn value(&self, name: &str) -> Option<&[u8]> {
        self.get(name).map(|f| f.value.as_slice())
    }

    /// The field that a new one of this name would be joined with.
    pub(super) fn same_name(&mut self, name: &[u8]) -> Option<&mut Field> {
        self.list.iter_mut().find(|f| f.name.eq_ignore_ascii_case(name))
    }
}

/// What may decide an undecided scan; without it a scan of more gives the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// The end of the last line.
    LineEnd,
    /// Any byte: the last line has ended, and what comes behind it shows what it is.
    Byte,
}

/// Answer of a scan step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Scan<T> {
    Got(T),
    /// What is there does not decide it.
    Need(Until),
    /// Not this.
    Bad,
}

/// A block of fields as far as it could be scanned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub fields: Vec<RawField>,
    /// Bytes scanned.
    pub used: usize,
    /// What the rest waits for; nothing if the empty line was seen.
    pub waits_for: Option<Until>,
}

/// How the line ended and whether the next one continues it.
struct LineEnd {
    length: usize,
    odd: Odd,
    fold: Option<u8>,
}

/// Scans fields of one side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scanner {
    /// Responses: CR alone ends a line too.
    pub response: bool,
    /// No more data will come.
    pub complete: bool,
}

impl Scanner {
    /// Scans as many fields as are complete. A block that begins with an empty line has none, whatever
    /// follows. (libhtp takes LF there for a field without name if it sees more behind it; servers and
    /// browsers do not.)
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
                // Of a request whatever follows begins another line: the field is whole.
                Scan::Need(until) if !self.response => {
                    fields.push(field);
                    return Scan::Got(Block { fields, used: used + length, waits_for: Some(until) });
                }
                // Of an answer CR may be all of the empty line: the field is scanned again when that is
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

    /// Length of the empty line behind a field. LF is all of one, whatever follows: the end of headers waits
    /// for nothing then.
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
            // What is there of it may look like a field without a colon: the name may span lines.
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

    /// Where the name ends: at the first colon, or before the end of a line that is not continued.
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

    /// A value with its folded lines: value, oddities, bytes used.
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

    /// One line of a value and how it ends.
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
                // A NUL that continues a line does so for libhtp only.
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
            // Nothing continues a line behind a deformed end. libhtp stops there, and takes it so when the
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

    /// Length of an end of line, regular or of the deformed kinds that browsers take for one.
    fn any_eol(self, rest: &[u8]) -> Scan<(usize, Odd)> {
        let deformed =
            if self.response { self.deformed_in_response(rest) } else { self.deformed_in_request(rest) };
        match deformed {
            Scan::Bad => self.plain_eol(rest).map_or(Scan::Bad, |n| Scan::Got((n, Odd::empty()))),
            decided => decided,
        }
    }

    /// LF CR before an empty line. That line ends the headers, whatever follows: libhtp would rather end them
    /// with another empty line behind it, but then a request would be over or not depending on data that need
    /// not be there yet.
    fn deformed_in_request(self, rest: &[u8]) -> Scan<(usize, Odd)> {
        match rest {
            [b'\n', b'\r', b'\r', b'\n', ..] => Scan::Got((2, Odd::DEFORMED_EOL)),
            b"\n\r" | b"\n\r\r" if !self.complete => Scan::Need(Until::Byte),
            _ => Scan::Bad,
        }
    }

    /// LF CR CR LF before an empty line, or an empty line of CR and more white space that is not before
    /// another one.
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

/// Bytes that continue a line when they begin the next one.
const fn is_fold(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | 0)
}

/// Whether a name is a token, white space around it apart.
fn is_padded_token(name: &[u8]) -> bool {
    let (_, rest) = span(name, is_blank);
    let (_, rest) = span(rest, is_token);
    span(rest, is_blank).1.is_empty()
}

/// Whether a field name with its colon stands here.
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

/// Whether a line holds nothing.
pub(super) fn is_empty_line(line: &[u8]) -> bool {
    matches!(line, b"\r" | b"\n" | b"\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(response: bool, input: &[u8]) -> Scan<Block> {
        Scanner { response, complete: false }.block(input)
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
        // Of an answer CR may be all of the empty line.
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
        // On the response side a folded line that looks like a field is one.
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
        // No more comes: what is there is a line that ended, and the beginning of another.
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
