// SPDX-License-Identifier: Apache-2.0
//! `multipart/form-data` (RFC 7578): finds the files in a form while its body streams by.
//!
//! Only parts with a `filename` matter; other parts are skipped. In passive mode a boundary counts at any
//! place.
//!
//! In prevention forms are read as servers do (PHP, Python, Go, Node, Java): folded lines are joined, lines
//! may end in LF if all do, white space may follow a boundary, and the text after the last boundary is
//! inspected. A form that servers read in several ways is refused ([`Multipart::differs`]): for some of them
//! a boundary counts at any place, for others only if it fills a line.

use super::form_names::{self, Boundary, Tail};
use super::parameter;
use crate::content::bytes::{after, before, find, starts_nocase};
use crate::memory::Held as _;

/// Limit of a boundary in detection, in bytes (RFC 2046 allows 70); forms with longer ones are not parsed.
pub(crate) const MAX_BOUNDARY: usize = 200;
/// Limit of a part's header, in bytes. Longer headers are skipped; in prevention the form is refused.
pub(crate) const MAX_HEADER: usize = 16_384;

/// State of the parser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MultipartState {
    /// Before a boundary, outside of files.
    Between,
    /// In the header of a part.
    Header,
    /// After the header of a file; a boundary at this place means that there is no file.
    Opening,
    /// In a file.
    File,
    /// After the closing boundary.
    Done,
}

/// An anomaly in a form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Oddity {
    /// Receivers read the form in several ways ([`Multipart::differs`]).
    Differs,
    /// A part with the name of a file has no content.
    NoContent,
    /// A line of a part's header is no field.
    NoField,
}

/// A finding of the parser. Its receiver opens, fills and closes files, and raises events for anomalies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MultipartFinding<'a> {
    Odd(Oddity),
    /// The file's name, and names that some receivers read instead.
    Open(&'a [u8], &'a [Vec<u8>]),
    Data(&'a [u8]),
    Close,
}

/// The state of a form whose body streams by.
pub(crate) struct Multipart {
    /// `--` and the boundary.
    boundary: Vec<u8>,
    at: MultipartState,
    /// Name of the next file; empty if the user chose none: without content such a part is no file.
    name: Vec<u8>,
    /// Names that some receivers read for that file instead.
    others: Vec<Vec<u8>>,
    /// The file was opened.
    is_open: bool,
    /// Bytes whose meaning is undecided.
    buffer: Vec<u8>,
    /// Prevention is on.
    strict: bool,
    /// Lines end in CR LF (`true`) or in LF, as the line of the first boundary does.
    crlf: Option<bool>,
    /// The next byte begins a line.
    fresh: bool,
    /// See [`Multipart::differs`].
    differs: bool,
}

/// Whether a content type has a boundary.
pub(crate) fn has_boundary(content_type: &[u8], strict: bool) -> bool {
    parameter(content_type, b"boundary=").is_some()
        || strict && form_names::boundary(content_type) != Boundary::None
}

impl Multipart {
    /// Makes a parser for a form with this `Content-Type`; `None`: it has no usable boundary.
    pub(crate) fn new(content_type: &[u8], strict: bool) -> Option<Self> {
        let mut differs = false;
        let boundary = if strict {
            match form_names::boundary(content_type) {
                Boundary::None => return None,
                Boundary::Plain(boundary) => boundary,
                Boundary::Odd => {
                    differs = true;
                    &[]
                }
            }
        } else {
            parameter(content_type, b"boundary=").filter(|b| !b.is_empty() && b.len() <= MAX_BOUNDARY)?
        };
        let boundary = [b"--", boundary].concat();
        let (name, others, buffer) = (Vec::new(), Vec::new(), Vec::new());
        Some(Multipart {
            boundary,
            at: MultipartState::Between,
            name,
            others,
            is_open: false,
            buffer,
            strict,
            crlf: None,
            fresh: true,
            differs,
        })
    }

    /// Whether receivers read the form in several ways, or read more of it than is inspected: a boundary that
    /// is not plain ([`form_names::boundary`]) or not on a line of its own; a part's header that is not plain
    /// ([`form_names::is_plain_header`]), exceeds 16 KiB or has more than 16 names.
    pub(crate) const fn differs(&self) -> bool {
        self.differs
    }

    /// Bytes of memory held, the structure itself included.
    pub(crate) fn held(&self) -> usize {
        size_of::<Self>()
            + self.boundary.held()
            + self.name.held()
            + self.others.held()
            + self.buffer.held()
            + self.others.iter().map(|name| name.held()).sum::<usize>()
    }

    /// Parses a piece of the body.
    pub(crate) fn write(&mut self, data: &[u8], sink: &mut dyn FnMut(MultipartFinding<'_>)) {
        let mut buffer = core::mem::take(&mut self.buffer);
        buffer.extend_from_slice(data);
        let mut used = 0;
        // Without an agreed boundary nothing is searched.
        while !self.differs {
            let rest = after(&buffer, used);
            let step = match self.at {
                MultipartState::Between => self.between(rest),
                MultipartState::Header => self.header(rest, sink),
                MultipartState::Opening => self.opening(rest, sink),
                MultipartState::File => self.file(rest, sink),
                MultipartState::Done => Some(rest.len()).filter(|n| *n > 0),
            };
            match step {
                Some(step) => used += step,
                None => break,
            }
        }
        // Outside of files only the last bytes can still become a boundary, or a boundary with an incomplete
        // line.
        let rest = after(&buffer, used);
        if self.at == MultipartState::Between && find(rest, &self.boundary).is_none() {
            let sure = rest.len().saturating_sub(self.boundary.len() + 2);
            self.fresh &= sure == 0;
            used += sure;
        }
        if self.differs {
            used = buffer.len();
            sink(MultipartFinding::Odd(Oddity::Differs));
        }
        buffer.drain(..used.min(buffer.len()));
        self.buffer = buffer;
    }

    /// Ends the data: buffered bytes belong to the open file, except the beginning of a boundary.
    pub(crate) fn end(&mut self, sink: &mut dyn FnMut(MultipartFinding<'_>)) {
        if self.at == MultipartState::Opening {
            self.begin(sink);
        }
        let last = if self.strict { self.last_boundary() } else { None };
        let cut_off = || if self.strict { None } else { self.begun_boundary() };
        let data_end = last.or_else(cut_off).unwrap_or(self.buffer.len());
        let buffer = core::mem::take(&mut self.buffer);
        if self.at == MultipartState::File {
            self.content(before(&buffer, data_end), sink);
            if last.is_some() {
                self.close(sink);
            }
        }
        self.at = MultipartState::Done;
    }

    /// Opens the file of a part. A file without a name is opened with its first byte.
    fn begin(&mut self, sink: &mut dyn FnMut(MultipartFinding<'_>)) {
        (self.at, self.is_open) = (MultipartState::File, false);
        if !self.name.is_empty() {
            self.open(sink);
        }
    }

    fn open(&mut self, sink: &mut dyn FnMut(MultipartFinding<'_>)) {
        sink(MultipartFinding::Open(&self.name, &self.others));
        self.is_open = true;
    }

    /// Passes on content of the file.
    fn content(&mut self, data: &[u8], sink: &mut dyn FnMut(MultipartFinding<'_>)) {
        if data.is_empty() {
            return;
        }
        if !self.is_open {
            self.open(sink);
        }
        sink(MultipartFinding::Data(data));
    }

    /// Closes the file as complete.
    fn close(&mut self, sink: &mut dyn FnMut(MultipartFinding<'_>)) {
        if core::mem::take(&mut self.is_open) {
            sink(MultipartFinding::Close);
        }
    }

    /// End of the data before an incomplete boundary of which at least the preceding line end has come.
    fn begun_boundary(&self) -> Option<usize> {
        let from = self.buffer.len().saturating_sub(self.boundary.len() + 2);
        (from..self.buffer.len()).find(|at| {
            after(&self.buffer, *at)
                .strip_prefix(b"\r\n")
                .is_some_and(|begun| self.boundary.starts_with(begun))
        })
    }

    /// End of the data before a last boundary with an incomplete line.
    fn last_boundary(&self) -> Option<usize> {
        let at = find(&self.buffer, &self.boundary)?;
        let last = matches!(self.line(&self.buffer, at), Tail::Last(_) | Tail::Need(true));
        last.then(|| line_end(before(&self.buffer, at)))
    }

    /// Classifies the line of a boundary at this place: [`Tail::Other`] if it is none for some receiver.
    fn line(&self, text: &[u8], at: usize) -> Tail {
        let begins = match before(text, at) {
            [] if self.fresh => None,
            [.., b'\r', b'\n'] => Some(true),
            [.., b'\n'] => Some(false),
            _ => return Tail::Other,
        };
        let tail = form_names::tail(after(text, at + self.boundary.len()));
        let ends = if let Tail::Line(_, crlf) = tail { Some(crlf) } else { None };
        let mut known = [self.crlf, begins, ends].into_iter().flatten();
        let first = known.next();
        if known.all(|crlf| Some(crlf) == first) { tail } else { Tail::Other }
    }

    /// Does as [`Multipart::between`], with boundaries as receivers read them.
    fn between_lines(&mut self, rest: &[u8]) -> Option<usize> {
        let at = find(rest, &self.boundary)?;
        let behind = at + self.boundary.len();
        let line = self.line(rest, at);
        // The line end before a boundary stays in the buffer until the boundary's own is known.
        let known = line_end(before(rest, at));
        self.fresh = matches!(line, Tail::Last(_)) || self.fresh && known == 0;
        match line {
            Tail::Line(length, crlf) => {
                (self.at, self.crlf) = (MultipartState::Header, Some(crlf));
                Some(behind + length)
            }
            Tail::Last(length) => Some(behind + length),
            Tail::Need(_) => Some(known).filter(|known| *known > 0),
            Tail::Other => {
                self.differs = true;
                None
            }
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
                self.at = MultipartState::Done;
                Some(rest.len() - tail.len() + 2)
            }
            [_, _, ..] => {
                self.at = MultipartState::Header;
                let eol = if tail.starts_with(b"\r\n") { 2 } else { 0 };
                Some(rest.len() - tail.len() + eol)
            }
            _ => None,
        }
    }

    /// Does as [`Multipart::header`], with the header of a part as receivers read it.
    fn header_lines(&mut self, rest: &[u8], sink: &mut dyn FnMut(MultipartFinding<'_>)) -> Option<usize> {
        let crlf = self.crlf != Some(false);
        let first = match rest {
            [b'\r', b'\n', ..] if crlf => Some(2),
            [b'\n', ..] if !crlf => Some(1),
            [] => return None,
            [b'\r'] if crlf => return None,
            _ => None,
        };
        if first.is_some() {
            (self.at, self.fresh) = (MultipartState::Between, true);
            return first;
        }
        let within = before(rest, MAX_HEADER);
        let empty_line: &[u8] = if crlf { b"\r\n\r\n" } else { b"\n\n" };
        let (end, behind) = (find(within, empty_line), empty_line.len());
        // Some receivers end the header at a line that others take for a field, or for a part of one.
        let header = before(within, end.unwrap_or(within.len()));
        self.differs |= !form_names::is_plain_header(header, crlf, end.is_some());
        self.differs |= end.is_none() && rest.len() > MAX_HEADER;
        if self.differs {
            return None;
        }
        let end = end?;
        let header = form_names::unfold(before(rest, end));
        let announced = disposition(&header, sink);
        let Some(mut names) = form_names::names(&header) else {
            self.differs = true;
            return None;
        };
        (self.at, self.fresh) = (MultipartState::Between, true);
        let name = announced.filter(|name| !name.is_empty() || names.is_empty());
        if let Some(name) = name.or_else(|| names.last().cloned()) {
            names.retain(|other| *other != name);
            (self.name, self.others, self.at) = (name, names, MultipartState::Opening);
        }
        Some(end + behind)
    }

    fn header(&mut self, rest: &[u8], sink: &mut dyn FnMut(MultipartFinding<'_>)) -> Option<usize> {
        if self.strict {
            return self.header_lines(rest, sink);
        }
        if rest.starts_with(b"\r\n") {
            self.at = MultipartState::Between;
            return Some(2);
        }
        let found = find(before(rest, MAX_HEADER), b"\r\n\r\n");
        if found.is_none() && rest.len() > MAX_HEADER {
            self.at = MultipartState::Between;
            return Some(0);
        }
        let end = found?;
        self.at = MultipartState::Between;
        if let Some(name) = disposition(before(rest, end), sink) {
            (self.name, self.at) = (name, MultipartState::Opening);
        }
        Some(end + 4)
    }

    fn opening(&mut self, rest: &[u8], sink: &mut dyn FnMut(MultipartFinding<'_>)) -> Option<usize> {
        let stands = rest.starts_with(&self.boundary);
        let tail = if self.strict && stands { Some(self.line(rest, 0)) } else { None };
        if matches!(tail, Some(Tail::Need(_))) {
            return None;
        }
        if stands && tail != Some(Tail::Other) {
            sink(MultipartFinding::Odd(Oddity::NoContent));
            self.at = MultipartState::Between;
        } else if self.boundary.starts_with(rest) {
            return None;
        } else {
            self.begin(sink);
        }
        Some(0)
    }

    /// Does as [`Multipart::file`]: a boundary fills a line, or the form is refused.
    fn file_lines(&mut self, rest: &[u8], sink: &mut dyn FnMut(MultipartFinding<'_>)) -> Option<usize> {
        let found = find(rest, &self.boundary).map(|at| (at, self.line(rest, at)));
        let sure = match found {
            Some((_, Tail::Other)) => {
                self.differs = true;
                return None;
            }
            // The line end before the boundary is no data.
            Some((at, _)) => line_end(before(rest, at)),
            None => rest.len().saturating_sub(self.boundary.len() + 2),
        };
        self.content(before(rest, sure), sink);
        self.fresh &= sure == 0;
        if matches!(found, Some((_, Tail::Line(..) | Tail::Last(_)))) {
            self.close(sink);
            self.at = MultipartState::Between;
            return Some(sure);
        }
        (sure > 0).then_some(sure)
    }

    fn file(&mut self, rest: &[u8], sink: &mut dyn FnMut(MultipartFinding<'_>)) -> Option<usize> {
        if self.strict {
            return self.file_lines(rest, sink);
        }
        if let Some(at) = find(rest, &self.boundary) {
            // The line end before the boundary belongs to it.
            self.content(before(rest, at.saturating_sub(2)), sink);
            self.close(sink);
            self.at = MultipartState::Between;
            return Some(at);
        }
        let sure = rest.len().saturating_sub(self.boundary.len() + 2);
        self.content(before(rest, sure), sink);
        (sure > 0).then_some(sure)
    }
}

/// Length of a text without its last line end.
fn line_end(text: &[u8]) -> usize {
    let line = text.strip_suffix(b"\n").unwrap_or(text);
    let line = if line.len() < text.len() { line.strip_suffix(b"\r").unwrap_or(line) } else { line };
    line.len()
}

/// The name of a file in the header of a part, if the part is one: the last disposition with a name counts.
fn disposition(header: &[u8], sink: &mut dyn FnMut(MultipartFinding<'_>)) -> Option<Vec<u8>> {
    let mut name = None;
    for line in header.split(|b| *b == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match memchr::memchr(b':', line) {
            Some(colon) if colon + 1 < line.len() => {
                if starts_nocase(line, b"content-disposition:") {
                    name = form_names::name(after(line, colon + 1)).or(name);
                }
            }
            _ => sink(MultipartFinding::Odd(Oddity::NoField)),
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name, content, and whether the file was closed.
    type File = (Vec<u8>, Vec<u8>, bool);

    fn files(form: &[u8], step: usize) -> (Vec<File>, Vec<Oddity>) {
        let (files, odd, differs) = read(form, step, false);
        assert!(!differs);
        (files, odd)
    }

    fn read(form: &[u8], step: usize, strict: bool) -> (Vec<File>, Vec<Oddity>, bool) {
        let mut found: Vec<File> = Vec::new();
        let mut odd = Vec::new();
        let mut multipart =
            Multipart::new(b"multipart/form-data; boundary=AaB03x", strict).expect("boundary");
        let mut sink = |f: MultipartFinding<'_>| match f {
            MultipartFinding::Odd(oddity) => odd.push(oddity),
            MultipartFinding::Open(name, others) => {
                let names = [&[name.to_vec()], others].concat().join(&b'|');
                found.push((names, Vec::new(), false));
            }
            MultipartFinding::Data(data) => found.last_mut().expect("open").1.extend_from_slice(data),
            MultipartFinding::Close => found.last_mut().expect("open").2 = true,
        };
        for piece in form.chunks(step) {
            multipart.write(piece, &mut sink);
        }
        multipart.end(&mut sink);
        (found, odd, multipart.differs())
    }

    #[test]
    fn files_are_found_however_the_body_is_cut() {
        let form = b"--AaB03x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\ntext\r\n--AaB03x\r\n\
            Content-Disposition: form-data; name=\"f\"; filename=\"one.txt\"\r\nContent-Type: text/plain\r\n\r\n\
            first\r\n-- file\r\n--AaB03x\r\nContent-Disposition: form-data; filename=two\r\n\r\nsecond\r\n--AaB03x--\r\n";
        for step in 1..form.len() {
            let (found, odd) = files(form, step);
            assert_eq!(
                found,
                [
                    (b"one.txt".to_vec(), b"first\r\n-- file".to_vec(), true),
                    (b"two".to_vec(), b"second".to_vec(), true)
                ],
                "by {step}"
            );
            assert!(odd.is_empty());
        }
    }

    #[test]
    fn broken_forms() {
        let (found, odd) =
            files(b"--AaB03x\r\nnocolon\r\nContent-Disposition: form-data; filename=x\r\n\r\nopen end", 9);
        assert_eq!(found, [(b"x".to_vec(), b"open end".to_vec(), false)]);
        assert!(odd.contains(&Oddity::NoField));
        let (_, odd) =
            files(b"--AaB03x\r\nContent-Disposition: form-data; filename=x\r\n\r\n--AaB03x--", 500);
        assert!(odd.contains(&Oddity::NoContent));
        assert!(Multipart::new(b"multipart/form-data", false).is_none());
        // As in Suricata: the line end before a boundary is no data, a CR alone is.
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

    #[test]
    fn a_part_without_a_name_is_a_file_if_it_has_content() {
        let form = b"--AaB03x\r\nContent-Disposition: form-data; name=a; filename=\"\"\r\n\r\n\r\n\
            --AaB03x\r\nContent-Disposition: form-data; name=b; filename*=UTF-8''\r\n\r\n\r\n\
            --AaB03x\r\nContent-Disposition: form-data; name=c; filename=\"\"\r\n\r\nx\r\n\
            --AaB03x\r\nContent-Disposition: form-data; name=d; filename=e\r\n\r\n\r\n--AaB03x--\r\n";
        for strict in [false, true] {
            for step in [1, 7, form.len()] {
                let (found, _, differs) = read(form, step, strict);
                let want = [(Vec::new(), b"x".to_vec(), true), (b"e".to_vec(), Vec::new(), true)];
                assert_eq!((found, differs), (want.to_vec(), false), "strict {strict}, by {step}");
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
                    "--AaB03x \n{disposition} filename=a\n\none\n--AaB03x\t\n{disposition} filename=b\n\ntwo\n--AaB03x--"
                ),
                vec![file("a", "one"), file("b", "two")],
            ),
            (
                format!(
                    "\r\n--AaB03x \r\n{disposition} filename=a\r\n\r\no\rn\n--e\r\n--AaB03\r\n--AaB03x\t \r\n{disposition}\r\n\r\n--AaB03x--"
                ),
                vec![file("a", "o\rn\n--e\r\n--AaB03")],
            ),
            // Parts after the last boundary.
            (
                format!("--AaB03x--\r\n--AaB03x\r\n{disposition} filename=a\r\n\r\n\r\n--AaB03x--\r\n"),
                vec![file("a", "")],
            ),
            // Each name that some server reads.
            (
                format!(
                    "--AaB03x\r\n{disposition} filename=good; filename*=utf-8''%65vil\r\n\r\nx\r\n--AaB03x--\r\n"
                ),
                vec![file("good|evil", "x")],
            ),
            (
                format!("--AaB03x\r\n{disposition} filename*=utf-8''%65vil\r\n\r\nx\r\n--AaB03x--\r\n"),
                vec![file("evil", "x")],
            ),
        ] {
            assert_eq!(strictly(&form), Some(want), "{form}");
        }
        for mark in
            ["\n--AaB03x\r\n", "\r\n--AaB03x\n", "\r--AaB03x\r\n", "x--AaB03x\r\n", "\r\n --AaB03x\r\n"]
        {
            let form =
                format!("--AaB03x\r\n{disposition} filename=a\r\n\r\nx{mark}X: y\r\n\r\nz\r\n--AaB03x--\r\n");
            assert_eq!(strictly(&form), None, "{form:?}");
        }
        for mark in ["x", "-", "-x", "--x", "\x0b", "\x0c", "\rx", ";", "\0", " x"] {
            for end in ["\r\n", "", "\n"] {
                let form = format!(
                    "--AaB03x\r\n{disposition} filename=a\r\n\r\nx\r\n--AaB03x{mark}{end}X: y\r\n\r\nz\r\n--AaB03x--\r\n"
                );
                assert_eq!(strictly(&form), None, "{form:?}");
            }
        }
        for form in [
            format!("--AaB03x\r\n{disposition}\n filename=a\r\n\r\nx\r\n--AaB03x--\r\n"),
            format!("--AaB03x\r\n{disposition} filename=a\n\nx\r\n--AaB03x--\r\n"),
            format!("--AaB03x\r\n{disposition}\rX: y; filename=a\r\n\r\nx\r\n--AaB03x--\r\n"),
            format!(
                "--AaB03x\r\n{disposition}{} filename=a\r\n\r\nx\r\n--AaB03x--\r\n",
                "filename=b;".repeat(17)
            ),
            format!("--AaB03x\r\n{disposition} filename=a\r\n \r\nx\r\n--AaB03x--\r\n"),
            format!("--AaB03x\r\nnocolon\r\n{disposition} filename=a\r\n\r\nx\r\n--AaB03x--\r\n"),
            format!("--AaB03x\r\n{disposition} filename=a\r\r\n\r\nx\r\n--AaB03x--\r\n"),
            // For some servers a boundary counts at any place and whatever follows it, or after any line end.
            format!("x--AaB03x\r\n{disposition} filename=a\r\n\r\nx\r\n--AaB03x--\r\n"),
            format!("--AaB03x\r{disposition} filename=a\r\rx\r--AaB03x--\r"),
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
