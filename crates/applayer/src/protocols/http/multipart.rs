// SPDX-License-Identifier: Apache-2.0
//! `multipart/form-data` of requests (RFC 7578): finds the files in it while the body streams by.
//!
//! Only parts with a `filename` matter; others are skipped. A boundary counts wherever it stands, as receivers take it.

use super::bytes::{after, before, find, starts_nocase};
use super::events;
use super::fields::parameter;
use crate::event::Events;
use crate::memory::Held as _;

/// Boundaries longer than this are not followed (RFC 2046 allows 70).
const MAX_BOUNDARY: usize = 200;
/// Part headers longer than this are skipped.
const MAX_HEADER: usize = 16_384;

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
    /// Bytes that could not be decided on.
    buffer: Vec<u8>,
}

impl Multipart {
    /// Follows a form whose `Content-Type` this is; `None`: it has no usable boundary.
    pub(super) fn new(content_type: &[u8]) -> Option<Self> {
        let boundary = parameter(content_type, b"boundary=")?;
        if boundary.is_empty() || boundary.len() > MAX_BOUNDARY {
            return None;
        }
        let boundary = [b"--", boundary].concat();
        Some(Multipart { boundary, at: At::Between, name: Vec::new(), buffer: Vec::new() })
    }

    /// Bytes of memory held, its own place included.
    pub(super) fn held(&self) -> usize {
        size_of::<Self>() + self.boundary.held() + self.name.held() + self.buffer.held()
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
        // Outside files only the last bytes can still become a boundary.
        let rest = after(&buffer, used);
        if self.at == At::Between {
            used += rest.len().saturating_sub(self.boundary.len() + 2);
        }
        buffer.drain(..used.min(buffer.len()));
        self.buffer = buffer;
    }

    /// No more data: what is held belongs to the open file.
    pub(super) fn end(&mut self, sink: &mut dyn FnMut(Found<'_>)) {
        if self.at == At::Opening {
            sink(Found::Open(&self.name));
        }
        if self.in_file() && !self.buffer.is_empty() {
            sink(Found::Data(&self.buffer));
        }
        self.buffer = Vec::new();
        self.at = At::Done;
    }

    fn between(&mut self, rest: &[u8]) -> Option<usize> {
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

    fn header(&mut self, rest: &[u8], events: &mut Events) -> Option<usize> {
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
        if rest.starts_with(&self.boundary) {
            events.set(events::MULTIPART_NO_FILEDATA);
            self.at = At::Between;
        } else if self.boundary.starts_with(rest) {
            return None;
        } else {
            sink(Found::Open(&self.name));
            self.at = At::File;
        }
        Some(0)
    }

    fn file(&mut self, rest: &[u8], sink: &mut dyn FnMut(Found<'_>)) -> Option<usize> {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Name, content, whether it was closed.
    type File = (Vec<u8>, Vec<u8>, bool);

    fn files(form: &[u8], step: usize) -> (Vec<File>, Events) {
        let mut found: Vec<File> = Vec::new();
        let mut events = Events::default();
        let mut multipart = Multipart::new(b"multipart/form-data; boundary=AaB03x").expect("boundary");
        let mut sink = |f: Found<'_>| match f {
            Found::Open(name) => found.push((name.to_vec(), Vec::new(), false)),
            Found::Data(data) => found.last_mut().expect("open").1.extend_from_slice(data),
            Found::Close => found.last_mut().expect("open").2 = true,
        };
        for piece in form.chunks(step) {
            multipart.write(piece, &mut events, &mut sink);
        }
        multipart.end(&mut sink);
        (found, events)
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
        assert!(Multipart::new(b"multipart/form-data").is_none());
    }
}
