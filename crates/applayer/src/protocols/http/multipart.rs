// SPDX-License-Identifier: Apache-2.0
//! `multipart/form-data` of requests (RFC 7578): finds the files in it while the body streams by.
//!
//! Only parts with a `filename` matter; others are skipped. Passively a boundary counts wherever it stands.
//!
//! In prevention forms are read as servers do (PHP, Python, Go, Node, Java): within a file a boundary is one at the beginning of a line that ends
//! behind it, folded lines are one, lines may end in LF, and what follows the last boundary is looked at. A form that they
//! would read in several ways is refused ([`Multipart::differs`]).

use super::bytes::{after, before, find, starts_nocase};
use super::events;
use super::fields::parameter;
use super::form_names::{self, Tail};
use crate::event::Events;
use crate::memory::Held as _;

/// Boundaries longer than this are not followed in detection (RFC 2046 allows 70).
pub(super) const MAX_BOUNDARY: usize = 200;
/// Part headers longer than this are skipped; in prevention the form is refused.
pub(super) const MAX_HEADER: usize = 16_384;

/// Where the parser stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Before a boundary, outside a file.
    Between,
    /// In the header of a part.
    Header,
    /// Behind the header of a file: opened with its first bytes, or left out if a boundary stands there.
    Opening,
    /// In a file.
    File,
    /// After the closing boundary.
    Done,
}

/// What was found; the receiver opens, fills and closes files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found<'a> {
    Open(&'a [u8]),
    Data(&'a [u8]),
    Close,
}

/// A form as it streams by.
pub(super) struct Multipart {
    /// `--` and the boundary.
    boundary: Vec<u8>,
    at: At,
    /// Name of the file that is to be opened.
    name: Vec<u8>,
    /// Names that some receiver gives that file instead.
    others: Vec<Vec<u8>>,
    /// Bytes that could not be decided on.
    buffer: Vec<u8>,
    /// Receivers are real.
    strict: bool,
    /// The last boundary's line ended in CR LF.
    crlf: bool,
    /// See [`Multipart::differs`].
    differs: bool,
}

/// Whether a content type has a boundary.
pub(super) fn has_boundary(content_type: &[u8], strict: bool) -> bool {
    parameter(content_type, b"boundary=").is_some() || strict && form_names::boundary(content_type).is_some()
}

impl Multipart {
    /// Follows a form whose `Content-Type` this is; `None`: it has no usable boundary.
    pub(super) fn new(content_type: &[u8], strict: bool) -> Option<Self> {
        let mut differs = false;
        let boundary = if strict {
            let boundary = form_names::boundary(content_type)?;
            differs = form_names::boundaries(content_type) > 1 || boundary.len() > form_names::MAX_BOUNDARY;
            boundary
        } else {
            parameter(content_type, b"boundary=").filter(|b| !b.is_empty() && b.len() <= MAX_BOUNDARY)?
        };
        let boundary = [b"--", boundary].concat();
        let (name, others, buffer) = (Vec::new(), Vec::new(), Vec::new());
        Some(Multipart { boundary, at: At::Between, name, others, buffer, strict, crlf: true, differs })
    }

    /// Whether receivers read the form in several ways, or more of it than is looked at: several boundaries or one beyond
    /// [`form_names::MAX_BOUNDARY`], a part's header beyond 16 KiB or with more than 16 names, lines of it that end in LF where others end in CR LF.
    pub(super) const fn differs(&self) -> bool {
        self.differs
    }

    /// Bytes of memory held, its own place included.
    pub(super) fn held(&self) -> usize {
        size_of::<Self>()
            + self.boundary.held()
            + self.name.held()
            + self.others.held()
            + self.buffer.held()
            + self.others.iter().map(|name| name.held()).sum::<usize>()
    }

    /// Whether a file is being read.
    pub(super) fn in_file(&self) -> bool {
        matches!(self.at, At::Opening | At::File)
    }

    /// Takes in a piece of the body.
    pub(super) fn write(&mut self, data: &[u8], events: &mut Events, sink: &mut dyn FnMut(Found<'_>)) {
        let mut buffer = core::mem::take(&mut self.buffer);
        buffer.extend_from_slice(data);
        let mut used = 0;
        loop {
            let rest = after(&buffer, used);
            let step = match self.at {
                At::Between => self.between(rest),
                At::Header => self.header(rest, events),
                At::Opening => self.opening(rest, events, sink),
                At::File => self.file(rest, sink),
                At::Done => Some(rest.len()).filter(|n| *n > 0),
            };
            match step {
                Some(step) => used += step,
                None => break,
            }
        }
        // Outside files only the last bytes can still become a boundary, or one whose line is open.
        let rest = after(&buffer, used);
        if self.at == At::Between && find(rest, &self.boundary).is_none() {
            used += rest.len().saturating_sub(self.boundary.len() + 2);
        }
        if self.differs {
            used = buffer.len();
            events.set(events::MULTIPART_GENERIC_ERROR);
        }
        buffer.drain(..used.min(buffer.len()));
        self.buffer = buffer;
    }

    /// No more data: what is held belongs to the open file, but for the beginning of a boundary.
    pub(super) fn end(&mut self, sink: &mut dyn FnMut(Found<'_>)) {
        if self.at == At::Opening {
            self.open(sink);
        }
        let last = if self.strict { self.last_boundary() } else { None };
        let cut_off = || if self.strict { None } else { self.begun_boundary() };
        let data = before(&self.buffer, last.or_else(cut_off).unwrap_or(self.buffer.len()));
        if self.in_file() && !data.is_empty() {
            sink(Found::Data(data));
        }
        if self.at == At::File && last.is_some() {
            sink(Found::Close);
        }
        self.buffer = Vec::new();
        self.at = At::Done;
    }

    /// Opens the file that a part is, by each of its names; the last one is that of its data.
    fn open(&mut self, sink: &mut dyn FnMut(Found<'_>)) {
        for other in core::mem::take(&mut self.others) {
            sink(Found::Open(&other));
            sink(Found::Close);
        }
        sink(Found::Open(&self.name));
    }

    /// Where the data ends before a boundary's line of which at least the line end before it is there.
    fn begun_boundary(&self) -> Option<usize> {
        let from = self.buffer.len().saturating_sub(self.boundary.len() + 2);
        (from..self.buffer.len()).find(|at| {
            after(&self.buffer, *at)
                .strip_prefix(b"\r\n")
                .is_some_and(|begun| self.boundary.starts_with(begun))
        })
    }

    /// Where the data ends before a last boundary whose line is still open.
    fn last_boundary(&self) -> Option<usize> {
        let mut from = 0;
        while let Some(at) = find(after(&self.buffer, from), &self.boundary).map(|at| from + at) {
            let behind = after(&self.buffer, at + self.boundary.len());
            if let Some(end) = line_start(before(&self.buffer, at))
                && matches!(form_names::tail(behind), Tail::Last(_) | Tail::Need(true))
            {
                return Some(end);
            }
            from = at + 1;
        }
        None
    }

    /// As [`Multipart::between`], with boundaries as receivers take them.
    fn between_lines(&mut self, rest: &[u8]) -> Option<usize> {
        let at = find(rest, &self.boundary)?;
        let behind = at + self.boundary.len();
        match form_names::tail(after(rest, behind)) {
            Tail::Line(length, crlf) => {
                (self.at, self.crlf) = (At::Header, crlf);
                Some(behind + length)
            }
            Tail::Last(length) => Some(behind + length),
            Tail::Other => Some(at + 1),
            Tail::Need(_) if at > 0 => Some(at),
            Tail::Need(_) => None,
        }
    }

    fn between(&mut self, rest: &[u8]) -> Option<usize> {
        if self.strict {
            return self.between_lines(rest);
        }
        let at = find(rest, &self.boundary)?;
        let tail = after(rest, at + self.boundary.len());
        match tail {
            [b'-', b'-', ..] => {
                self.at = At::Done;
                Some(rest.len() - tail.len() + 2)
            }
            [_, _, ..] => {
                self.at = At::Header;
                let eol = if tail.starts_with(b"\r\n") { 2 } else { 0 };
                Some(rest.len() - tail.len() + eol)
            }
            _ => None,
        }
    }

    /// As [`Multipart::header`]: the header of a part as receivers take it.
    fn header_lines(&mut self, rest: &[u8], events: &mut Events) -> Option<usize> {
        let first = match rest {
            [b'\r', b'\n', ..] => Some(2),
            [b'\n', ..] if !self.crlf => Some(1),
            [b'\r'] | [] => return None,
            _ => None,
        };
        if first.is_some() {
            self.at = At::Between;
            return first;
        }
        let within = before(rest, MAX_HEADER);
        let (end, behind) = if self.crlf {
            let end = find(within, b"\r\n\r\n");
            // Some end the header at such a line, and some a field: the rest is another field, or a part of its value.
            let header = before(within, end.unwrap_or(within.len()));
            self.differs |= has_odd_line_end(header);
            (end, 4)
        } else {
            let plain = find(within, b"\n\n").map(|at| (at, 2));
            let mixed = find(within, b"\n\r\n").map(|at| (at, 3));
            let found = plain.into_iter().chain(mixed).min();
            (found.map(|found| found.0), found.map_or(0, |found| found.1))
        };
        self.differs |= end.is_none() && rest.len() > MAX_HEADER;
        if self.differs {
            return None;
        }
        let end = end?;
        let header = before(rest, end);
        let mut announced = None;
        for line in header.split(|b| *b == b'\n') {
            let colon = memchr::memchr(b':', line);
            if !line.starts_with(b" ")
                && !line.starts_with(b"\t")
                && colon.is_none_or(|at| at + 1 >= line.len())
            {
                events.set(events::MULTIPART_INVALID_HEADER);
            }
            if starts_nocase(line, b"content-disposition:") {
                let line = line.strip_suffix(b"\r").unwrap_or(line);
                announced = parameter(after(line, 20), b"filename=").or(announced);
            }
        }
        let Some(mut names) = form_names::names(header) else {
            self.differs = true;
            return None;
        };
        self.at = At::Between;
        let name = announced.map(<[u8]>::to_vec).or_else(|| names.last().cloned());
        if let Some(name) = name {
            names.retain(|other| *other != name);
            (self.name, self.others, self.at) = (name, names, At::Opening);
        }
        Some(end + behind)
    }

    fn header(&mut self, rest: &[u8], events: &mut Events) -> Option<usize> {
        if self.strict {
            return self.header_lines(rest, events);
        }
        if rest.starts_with(b"\r\n") {
            self.at = At::Between;
            return Some(2);
        }
        let found = find(before(rest, MAX_HEADER), b"\r\n\r\n");
        if found.is_none() && rest.len() > MAX_HEADER {
            self.at = At::Between;
            return Some(0);
        }
        let end = found?;
        let mut filename = None;
        for line in before(rest, end).split(|b| *b == b'\n') {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            match memchr::memchr(b':', line) {
                Some(colon) if colon + 1 < line.len() => {
                    if starts_nocase(line, b"content-disposition:") {
                        filename = parameter(after(line, colon + 1), b"filename=").or(filename);
                    }
                }
                _ => events.set(events::MULTIPART_INVALID_HEADER),
            }
        }
        self.at = At::Between;
        if let Some(name) = filename {
            self.name = name.to_vec();
            self.at = At::Opening;
        }
        Some(end + 4)
    }

    fn opening(
        &mut self,
        rest: &[u8],
        events: &mut Events,
        sink: &mut dyn FnMut(Found<'_>),
    ) -> Option<usize> {
        let tail = rest.strip_prefix(self.boundary.as_slice()).map(form_names::tail);
        if self.strict && matches!(tail, Some(Tail::Need(_))) {
            return None;
        }
        if tail.is_some_and(|tail| !self.strict || tail != Tail::Other) {
            events.set(events::MULTIPART_NO_FILEDATA);
            self.at = At::Between;
        } else if self.boundary.starts_with(rest) {
            return None;
        } else {
            self.open(sink);
            self.at = At::File;
        }
        Some(0)
    }

    /// As [`Multipart::file`]: a boundary begins a line and ends it.
    fn file_lines(&mut self, rest: &[u8], sink: &mut dyn FnMut(Found<'_>)) -> Option<usize> {
        let mut from = 0;
        while let Some(at) = find(after(rest, from), &self.boundary).map(|at| from + at) {
            from = at + 1;
            let Some(end) = line_start(before(rest, at)) else { continue };
            let tail = form_names::tail(after(rest, at + self.boundary.len()));
            if tail == Tail::Other {
                continue;
            }
            if end > 0 {
                sink(Found::Data(before(rest, end)));
            }
            if matches!(tail, Tail::Need(_)) {
                // The end of the line before it waits with it.
                return (end > 0).then_some(end);
            }
            sink(Found::Close);
            self.at = At::Between;
            return Some(at);
        }
        let sure = rest.len().saturating_sub(self.boundary.len() + 2);
        if sure > 0 {
            sink(Found::Data(before(rest, sure)));
        }
        (sure > 0).then_some(sure)
    }

    fn file(&mut self, rest: &[u8], sink: &mut dyn FnMut(Found<'_>)) -> Option<usize> {
        if self.strict {
            return self.file_lines(rest, sink);
        }
        if let Some(at) = find(rest, &self.boundary) {
            // The line end before the boundary belongs to it.
            let data = before(rest, at.saturating_sub(2));
            if !data.is_empty() {
                sink(Found::Data(data));
            }
            sink(Found::Close);
            self.at = At::Between;
            return Some(at);
        }
        let sure = rest.len().saturating_sub(self.boundary.len() + 2);
        if sure > 0 {
            sink(Found::Data(before(rest, sure)));
        }
        (sure > 0).then_some(sure)
    }
}

/// Where a line ends so that the next one begins behind this text.
fn line_start(text: &[u8]) -> Option<usize> {
    let line = text.strip_suffix(b"\n")?;
    Some(line.strip_suffix(b"\r").unwrap_or(line).len())
}

/// Whether a CR or an LF stands alone. What comes behind a CR at the end is not known.
fn has_odd_line_end(text: &[u8]) -> bool {
    memchr::memchr2_iter(b'\r', b'\n', text).any(|at| match text.get(at) {
        Some(b'\r') => text.get(at + 1).is_some_and(|next| *next != b'\n'),
        _ => at.checked_sub(1).and_then(|before| text.get(before)) != Some(&b'\r'),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name, content, whether it was closed.
    type File = (Vec<u8>, Vec<u8>, bool);

    fn files(form: &[u8], step: usize) -> (Vec<File>, Events) {
        let (files, events, differs) = read(form, step, false);
        assert!(!differs);
        (files, events)
    }

    fn read(form: &[u8], step: usize, strict: bool) -> (Vec<File>, Events, bool) {
        let mut found: Vec<File> = Vec::new();
        let mut events = Events::default();
        let mut multipart =
            Multipart::new(b"multipart/form-data; boundary=AaB03x", strict).expect("boundary");
        let mut sink = |f: Found<'_>| match f {
            Found::Open(name) => found.push((name.to_vec(), Vec::new(), false)),
            Found::Data(data) => found.last_mut().expect("open").1.extend_from_slice(data),
            Found::Close => found.last_mut().expect("open").2 = true,
        };
        for piece in form.chunks(step) {
            multipart.write(piece, &mut events, &mut sink);
        }
        multipart.end(&mut sink);
        (found, events, multipart.differs())
    }

    #[test]
    fn files_are_found_however_the_body_is_cut() {
        let form = b"--AaB03x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\ntext\r\n--AaB03x\r\n\
            Content-Disposition: form-data; name=\"f\"; filename=\"one.txt\"\r\nContent-Type: text/plain\r\n\r\n\
            first\r\n-- file\r\n--AaB03x\r\nContent-Disposition: form-data; filename=two\r\n\r\nsecond\r\n--AaB03x--\r\n";
        for step in 1..form.len() {
            let (found, events) = files(form, step);
            assert_eq!(
                found,
                [
                    (b"one.txt".to_vec(), b"first\r\n-- file".to_vec(), true),
                    (b"two".to_vec(), b"second".to_vec(), true)
                ],
                "by {step}"
            );
            assert!(events.as_slice().is_empty());
        }
    }

    #[test]
    fn broken_forms() {
        let (found, events) =
            files(b"--AaB03x\r\nnocolon\r\nContent-Disposition: form-data; filename=x\r\n\r\nopen end", 9);
        assert_eq!(found, [(b"x".to_vec(), b"open end".to_vec(), false)]);
        assert!(events.has(events::MULTIPART_INVALID_HEADER));
        let (_, events) =
            files(b"--AaB03x\r\nContent-Disposition: form-data; filename=x\r\n\r\n--AaB03x--", 500);
        assert!(events.has(events::MULTIPART_NO_FILEDATA));
        assert!(Multipart::new(b"multipart/form-data", false).is_none());
        // As Suricata has it: the line end before a boundary is no data, a CR alone is.
        for (end, data) in [
            ("", "open end"),
            ("\r\n", "open end"),
            ("\r\n-", "open end"),
            ("\r\n--AaB03", "open end"),
            ("\r", "open end\r"),
            ("\r\n-x", "open end\r\n-x"),
        ] {
            let form = format!("--AaB03x\r\nContent-Disposition: form-data; filename=x\r\n\r\nopen end{end}");
            for step in [1, 7, 500] {
                assert_eq!(
                    files(form.as_bytes(), step).0,
                    [(b"x".to_vec(), data.as_bytes().to_vec(), false)],
                    "{end:?}"
                );
            }
        }
    }

    /// Files as servers find them; `None` if they differ over the form.
    fn strictly(form: &str) -> Option<Vec<(String, String, bool)>> {
        let one = |step| {
            let (files, _, differs) = read(form.as_bytes(), step, true);
            let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
            (!differs).then(|| files.into_iter().map(|f| (text(f.0), text(f.1), f.2)).collect())
        };
        let whole: Option<Vec<_>> = one(form.len());
        for step in 1..form.len() {
            assert_eq!(one(step), whole, "{form:?} by {step}");
        }
        whole
    }

    fn file(name: &str, data: &str) -> (String, String, bool) {
        (name.to_owned(), data.to_owned(), true)
    }

    #[test]
    fn in_prevention_forms_are_read_as_servers_read_them() {
        let disposition = "Content-Disposition: form-data; name=f;";
        for (form, want) in [
            // A folded header.
            (
                format!(
                    "pre\r\n--AaB03x\r\n{disposition}\r\n filename=\"evil.exe\"\r\n\r\nx\r\n--AaB03x--\r\n"
                ),
                vec![file("evil.exe", "x")],
            ),
            // Padding, lines that end in LF, no end of the last line.
            (
                format!(
                    "--AaB03x \n{disposition} filename=a\n\none\n--AaB03x\t\r\n{disposition} filename=b\r\n\r\ntwo\r\n--AaB03x--"
                ),
                vec![file("a", "one"), file("b", "two")],
            ),
            // Within a file a line has to end behind a boundary, and to begin with it.
            (
                format!(
                    "--AaB03x\r\n{disposition} filename=a\r\n\r\none\r\n--AaB03xx\r\nx--AaB03x\r\n--AaB03x--x\r\ntwo\r\n--AaB03x--\r\n"
                ),
                vec![file("a", "one\r\n--AaB03xx\r\nx--AaB03x\r\n--AaB03x--x\r\ntwo")],
            ),
            // Parts behind the last one.
            (
                format!("--AaB03x--\r\n--AaB03x\r\n{disposition} filename=a\r\n\r\n\r\n--AaB03x--\r\n"),
                vec![file("a", "")],
            ),
            // Each name that one of them takes.
            (
                format!(
                    "--AaB03x\r\n{disposition} filename=good; filename*=utf-8''%65vil\r\n\r\nx\r\n--AaB03x--\r\n"
                ),
                vec![file("evil", ""), file("good", "x")],
            ),
            (
                format!("--AaB03x\r\n{disposition} filename*=utf-8''%65vil\r\n\r\nx\r\n--AaB03x--\r\n"),
                vec![file("evil", "x")],
            ),
        ] {
            assert_eq!(strictly(&form), Some(want), "{form}");
        }
        for form in [
            format!("--AaB03x\r\n{disposition}\n filename=a\r\n\r\nx\r\n--AaB03x--\r\n"),
            format!("--AaB03x\r\n{disposition} filename=a\n\nx\r\n--AaB03x--\r\n"),
            format!("--AaB03x\r\n{disposition}\rX: y; filename=a\r\n\r\nx\r\n--AaB03x--\r\n"),
            format!(
                "--AaB03x\r\n{disposition}{} filename=a\r\n\r\nx\r\n--AaB03x--\r\n",
                "filename=b;".repeat(17)
            ),
        ] {
            assert_eq!(strictly(&form), None, "{form}");
        }
        let long = format!("--AaB03x\r\nX: {}\r\n{disposition} filename=a\r\n\r\n", "x".repeat(MAX_HEADER));
        for step in [1400, long.len()] {
            assert!(read(long.as_bytes(), step, true).2, "{step}");
        }
    }

    #[test]
    fn boundaries_in_prevention() {
        let new =
            |boundary: &str| Multipart::new(format!("multipart/form-data; {boundary}").as_bytes(), true);
        for boundary in ["boundary = B", &format!("boundary={}", "B".repeat(300))] {
            assert!(!new(boundary).expect("boundary").differs(), "{boundary}");
        }
        for boundary in ["x-boundary=A; boundary=B", &format!("boundary={}", "B".repeat(8193))] {
            assert!(new(boundary).expect("boundary").differs(), "{boundary}");
        }
        assert!(new("boundary=").is_none());
    }
}
