// SPDX-License-Identifier: Apache-2.0
//! A mail message, line by line (RFC 5322, RFC 2045 to 2047): header fields, parts, attachments as files,
//! URLs in text, the MD5 of the body.
//!
//! As in Suricata, a part is a file if a header field names it; fields of enclosed messages follow those of
//! the message itself in one list; lines of a folded field are joined without the first blank of each.
//!
//! In prevention a message that readers of mail read in several ways is refused ([`MailMessage::differs`]),
//! and a part that readers offer as a file is one without a name, too.
//!
//! Not supported: encoded words (RFC 2047) are kept as they are; encodings of an enclosed message as a whole.

use super::agreement::{self, Agreement};
use super::parameters::{hex, parameter_value};
use crate::content::base64::{self, Base64Mode};
use crate::content::files::{FileContext, FileList, MAX_FILES_STRICT};
use crate::file::FileState;
use crate::memory::Held as _;
use md5::Digest as _;
use std::sync::Arc;

/// Limit of the bytes of all header fields of a message.
pub(crate) const HEADERS_MAX: usize = 64 << 10;
/// Bytes that a field counts beside its name and value.
const FIELD_COST: usize = 64;
/// Fields that a message has once (RFC 5322 section 3.6).
const ONCE: &[&str] = &["from", "subject", "to", "cc", "date", "message-id"];
/// Limit of the depth of nested parts.
pub(crate) const BOUNDARIES_MAX: usize = 32;
/// Limit of the URLs, and of the names of attachments, that are kept.
pub(crate) const NAMES_MAX: usize = 256;
/// Limit of a line of text, in bytes, in which URLs are searched; longer lines are searched in pieces.
const TEXT_MAX: usize = 8 << 10;
/// Length of a name, of a file or a boundary, above which it is cut or unusual (Suricata's numbers).
const FILE_NAME_MAX: usize = 255;
const BOUNDARY_USUAL: usize = 254;
/// Lengths above which lines and names are unusual (RFC 5322 section 2.1.1, RFC 2045 section 6.7).
const LINE_USUAL: usize = 998;
const ENCODED_LINE_USUAL: usize = 76;
const HEADER_NAME_USUAL: usize = 75;

bitflags::bitflags! {
    /// Properties of a message that are worth an event.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct MessageOddities: u16 {
        const INVALID_BASE64 = 1;
        const INVALID_QP = 1 << 1;
        const LONG_LINE = 1 << 2;
        const LONG_ENCODED_LINE = 1 << 3;
        const LONG_HEADER_NAME = 1 << 4;
        const LONG_HEADER_VALUE = 1 << 5;
        const LONG_BOUNDARY = 1 << 6;
        const LONG_FILE_NAME = 1 << 7;
        /// There are too many header fields or nested parts.
        const TOO_MUCH = 1 << 8;
    }
}

/// Settings of messages.
#[derive(Clone, Debug)]
pub(crate) struct MessageConfig {
    pub(crate) decode_base64: bool,
    pub(crate) decode_quoted_printable: bool,
    /// Length of a value from which on it is unusual.
    pub(crate) header_value_depth: usize,
    /// Beginnings of URLs, in lower case; empty: no URLs are searched.
    pub(crate) url_schemes: Vec<String>,
    /// URLs are kept with their beginnings.
    pub(crate) keep_scheme: bool,
    pub(crate) body_md5: bool,
}

/// A header field.
#[derive(Debug)]
struct MessageField {
    name: Vec<u8>,
    value: Vec<u8>,
}

/// The place in a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum MessageState {
    #[default]
    Headers,
    Body,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum TransferEncoding {
    #[default]
    Plain,
    Base64,
    QuotedPrintable,
}

/// The part that is being read.
#[derive(Debug, Default)]
struct MessagePart {
    encoding: TransferEncoding,
    /// URLs are searched in it.
    is_text: bool,
    is_file: bool,
    /// Symbols of base64 that make no whole group yet, or the beginning of an escape of quoted-printable.
    tail: Vec<u8>,
    /// The end of the last line: it belongs to the part unless a boundary follows.
    line_end: &'static [u8],
    /// Text since the last end of a line.
    text: Vec<u8>,
}

/// A line of a message, or a piece of a long one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageLine<'a> {
    /// The bytes without the end of the line.
    pub(crate) text: &'a [u8],
    /// The end of the line; empty if more of the line follows.
    pub(crate) end: &'static [u8],
    /// The piece is the beginning of the line.
    pub(crate) is_first: bool,
}

/// A message.
pub(crate) struct MailMessage {
    config: Arc<MessageConfig>,
    state: MessageState,
    fields: Vec<MessageField>,
    /// Bytes of the fields.
    field_bytes: usize,
    /// Index of the first field of the part.
    own: usize,
    /// Number of the message's own fields, once its header is complete.
    top: Option<usize>,
    boundaries: Vec<Vec<u8>>,
    part: MessagePart,
    attachments: Vec<Vec<u8>>,
    urls: Vec<Vec<u8>>,
    name_bytes: usize,
    md5: Option<md5::Md5>,
    body_md5: Option<String>,
    oddities: MessageOddities,
    /// Comparison of readers, in prevention.
    agreement: Option<Agreement>,
}

impl MailMessage {
    /// A message; `strict`: in prevention.
    pub(crate) fn new(config: Arc<MessageConfig>, strict: bool) -> Self {
        MailMessage {
            md5: config.body_md5.then(md5::Md5::new),
            config,
            state: MessageState::default(),
            fields: Vec::new(),
            field_bytes: 0,
            own: 0,
            top: None,
            boundaries: Vec::new(),
            part: MessagePart::default(),
            attachments: Vec::new(),
            urls: Vec::new(),
            name_bytes: 0,
            body_md5: None,
            oddities: MessageOddities::default(),
            agreement: strict.then(Agreement::default),
        }
    }

    /// Whether readers of mail read the message so far in several ways, or more of it than is read here.
    /// Always false in passive mode.
    pub(crate) fn differs(&self) -> bool {
        self.agreement.as_ref().is_some_and(|agreement| agreement.differs)
    }

    /// Notes that readers differ.
    fn disagree(&mut self) {
        if let Some(agreement) = self.agreement.as_mut() {
            agreement.differs = true;
        }
    }

    /// Values of the message's own header fields of a name in lower case, in order.
    pub(crate) fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        let top = self.fields.get(..self.top.unwrap_or(self.fields.len())).unwrap_or_default();
        let fields = top.iter().filter(move |f| f.name.eq_ignore_ascii_case(name.as_bytes()));
        fields.map(|field| field.value.as_slice())
    }

    /// Names of attachments.
    pub(crate) fn attachments(&self) -> &[Vec<u8>] {
        &self.attachments
    }

    /// URLs in text.
    pub(crate) fn urls(&self) -> &[Vec<u8>] {
        &self.urls
    }

    /// MD5 of the body in hexadecimal digits, once it is complete.
    pub(crate) fn body_md5(&self) -> Option<&str> {
        self.body_md5.as_deref()
    }

    /// Takes what was found since the last call.
    pub(crate) fn take_oddities(&mut self) -> MessageOddities {
        core::mem::take(&mut self.oddities)
    }

    /// Bytes of memory held outside of the structure itself.
    pub(crate) fn held(&self) -> usize {
        let part = self.part.tail.held().saturating_add(self.part.text.held());
        let lists =
            self.fields.held().saturating_add(self.attachments.held()).saturating_add(self.urls.held());
        let boundaries = self.boundaries.iter().fold(0usize, |sum, text| sum.saturating_add(text.held()));
        let texts = self.field_bytes.saturating_add(self.name_bytes).saturating_add(boundaries);
        let agreement = self.agreement.as_ref().map_or(0, Agreement::held);
        part.saturating_add(lists).saturating_add(texts).saturating_add(agreement)
    }

    /// Reads a line.
    pub(crate) fn line(&mut self, line: MessageLine<'_>, files: &mut FileList, context: &mut FileContext) {
        if line.text.len() > LINE_USUAL {
            self.oddities.insert(MessageOddities::LONG_LINE);
        }
        let is_body = self.state == MessageState::Body;
        let boundary = match self.agreement.as_mut() {
            Some(agreement) => agreement.line(&line, &self.boundaries),
            None if line.is_first => self.boundary_of(line.text),
            None => None,
        };
        if let Some(depth) = boundary {
            if self.agreement.is_some() && self.is_within_headers() {
                self.end_headers(files, context);
            }
            return self.boundary(depth, line.text, files);
        }
        match self.state {
            MessageState::Headers => self.header_line(line, files, context),
            MessageState::Body => self.body_line(line, files),
        }
        if let Some(md5) = self.md5.as_mut().filter(|_| is_body) {
            md5.update(line.text);
            md5.update(line.end);
        }
    }

    /// Ends the message.
    pub(crate) fn finish(&mut self, files: &mut FileList) {
        // A header without an end names a file for some readers.
        let names = |field: &MessageField| {
            field.name.eq_ignore_ascii_case(b"content-disposition")
                || field.name.eq_ignore_ascii_case(b"content-type")
        };
        if self.is_within_headers() && self.fields.iter().skip(self.own).any(names) {
            self.disagree();
        }
        self.end_part(files);
        if let Some(md5) = self.md5.take() {
            self.body_md5 = Some(md5.finalize().iter().map(|byte| format!("{byte:02x}")).collect());
        }
    }

    /// Index of the boundary that a line begins with, of the part's own message or of one around it.
    fn boundary_of(&self, text: &[u8]) -> Option<usize> {
        if !text.starts_with(b"--") {
            return None;
        }
        self.boundaries.iter().rposition(|boundary| text.starts_with(boundary))
    }

    /// Whether fields of a header were read, and not its end.
    fn is_within_headers(&self) -> bool {
        self.state == MessageState::Headers && self.fields.len() > self.own
    }

    /// Ends the part at a line that is a boundary.
    fn boundary(&mut self, depth: usize, text: &[u8], files: &mut FileList) {
        let length = self.boundaries.get(depth).map_or(0, Vec::len);
        self.top.get_or_insert(self.fields.len());
        self.end_part(files);
        self.boundaries.truncate(depth + 1);
        self.own = self.fields.len();
        self.state = MessageState::Headers;
        if text.get(length..).is_some_and(|rest| rest.starts_with(b"--")) {
            let closed = self.boundaries.pop();
            if let (Some(agreement), Some(closed)) = (self.agreement.as_mut(), closed) {
                agreement.close(closed);
            }
            // Text after the last part.
            self.state = MessageState::Body;
        }
    }

    fn header_line(&mut self, line: MessageLine<'_>, files: &mut FileList, context: &mut FileContext) {
        if line.is_first && line.text.is_empty() {
            if let Some(agreement) = self.agreement.as_mut() {
                agreement.header_line(&line, false);
            }
            return self.end_headers(files, context);
        }
        let opens = self.fields.len() <= self.own;
        if let Some(agreement) = self.agreement.as_mut() {
            agreement.header_line(&line, opens);
        }
        let folds = matches!(line.text, [b' ' | b'\t', ..]);
        if folds || !line.is_first {
            let more = if line.is_first { line.text.get(1..).unwrap_or_default() } else { line.text };
            self.extend_value(more);
            return;
        }
        let Some(colon) = memchr::memchr(b':', line.text) else { return };
        let (name, value) = line.text.split_at_checked(colon).unwrap_or_default();
        if name.len() > HEADER_NAME_USUAL {
            self.oddities.insert(MessageOddities::LONG_HEADER_NAME);
        }
        if !self.has_room(name.len().saturating_add(FIELD_COST)) {
            return;
        }
        let value = value.get(1..).unwrap_or_default().trim_ascii_start();
        self.fields.push(MessageField { name: name.trim_ascii_end().to_vec(), value: Vec::new() });
        self.field_bytes = self.field_bytes.saturating_add(name.len().saturating_add(FIELD_COST));
        self.extend_value(value);
    }

    /// Whether header fields may grow by so many bytes.
    fn has_room(&mut self, more: usize) -> bool {
        let fits = self.field_bytes.saturating_add(more) <= HEADERS_MAX;
        if !fits {
            self.oddities.insert(MessageOddities::TOO_MUCH);
            self.disagree();
        }
        fits
    }

    /// Appends to the value of the part's last field.
    fn extend_value(&mut self, more: &[u8]) {
        if self.fields.len() <= self.own || !self.has_room(more.len()) {
            return;
        }
        let Some(field) = self.fields.last_mut() else { return };
        field.value.extend_from_slice(more);
        self.field_bytes = self.field_bytes.saturating_add(more.len());
        if field.value.len() > self.config.header_value_depth {
            self.oddities.insert(MessageOddities::LONG_HEADER_VALUE);
        }
    }

    /// Reads the fields of the part, and begins its body.
    fn end_headers(&mut self, files: &mut FileList, context: &mut FileContext) {
        if self.agreement.is_some() {
            return self.end_headers_strictly(files, context);
        }
        let own = |name: &str| {
            let fields = self.fields.get(self.own..).unwrap_or_default();
            let found = fields.iter().find(|field| field.name.eq_ignore_ascii_case(name.as_bytes()));
            found.map(|field| field.value.as_slice())
        };
        let content_type = own("content-type").unwrap_or_default();
        let kind = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        // The first name counts, as in Suricata.
        let name_of = |field: &MessageField| {
            let is = |name: &str| field.name.eq_ignore_ascii_case(name.as_bytes());
            let found = if is("content-disposition") {
                parameter_value(&field.value, b"filename")
            } else if is("content-type") {
                parameter_value(&field.value, b"name")
            } else {
                None
            };
            found.filter(|name| !name.is_empty())
        };
        let file_name = self.fields.get(self.own..).unwrap_or_default().iter().find_map(name_of);
        let boundary = parameter_value(content_type, b"boundary").filter(|text| !text.is_empty());
        let encoding = match own("content-transfer-encoding").map(<[u8]>::trim_ascii) {
            Some(text) if text.eq_ignore_ascii_case(b"base64") && self.config.decode_base64 => {
                TransferEncoding::Base64
            }
            Some(text)
                if text.eq_ignore_ascii_case(b"quoted-printable") && self.config.decode_quoted_printable =>
            {
                TransferEncoding::QuotedPrintable
            }
            _ => TransferEncoding::Plain,
        };
        let is_text = kind.eq_ignore_ascii_case(b"text/plain")
            || kind.eq_ignore_ascii_case(b"text/html")
            || kind.is_empty();
        let encloses = kind.get(..8).is_some_and(|begin| begin.eq_ignore_ascii_case(b"message/"));
        if let Some(text) = boundary {
            self.add_boundary(text);
        }
        self.top.get_or_insert(self.fields.len());
        if encloses && encoding == TransferEncoding::Plain {
            // The fields of the enclosed message follow.
            self.own = self.fields.len();
            return;
        }
        self.state = MessageState::Body;
        self.part = MessagePart { encoding, is_text, ..MessagePart::default() };
        if let Some(name) = file_name {
            self.open_file(name, files, context);
        }
    }

    /// Reads the fields of the part as different readers do, and begins its body.
    fn end_headers_strictly(&mut self, files: &mut FileList, context: &mut FileContext) {
        let fields = self.fields.get(self.own..).unwrap_or_default();
        let is_whole = self.own == 0;
        let mut differs = false;
        let mut own = |name: &str| {
            let mut found = fields.iter().filter(|field| field.name.eq_ignore_ascii_case(name.as_bytes()));
            let first = found.next().map(|field| field.value.as_slice());
            differs |= found.any(|field| Some(field.value.as_slice()) != first);
            first
        };
        if is_whole {
            for name in ONCE {
                let _ = own(name);
            }
        }
        let content_type = own("content-type").unwrap_or_default();
        let disposition = own("content-disposition").unwrap_or_default();
        let encoding = own("content-transfer-encoding");
        let kind = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        let begins = |word: &str| {
            kind.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word.as_bytes()))
        };
        let (is_text, encloses) = (kind.is_empty() || begins("text/"), begins("message/"));
        let is_searched = kind.is_empty()
            || kind.eq_ignore_ascii_case(b"text/plain")
            || kind.eq_ignore_ascii_case(b"text/html");
        let boundary = agreement::boundary(content_type).map(|found| found.map(<[u8]>::to_vec));
        let encoding = agreement::encoding(encoding);
        let names = agreement::file_names(disposition, content_type);
        let has_parts = matches!(boundary, Ok(Some(_)));
        let is_encoded = encoding != Ok(TransferEncoding::Plain);
        differs |= boundary.is_err()
            || encoding.is_err()
            || names.is_none()
            || is_encoded && (encloses || has_parts)
            || begins("message/partial");
        let attaches = disposition.get(..10).is_some_and(|begin| begin.eq_ignore_ascii_case(b"attachment"));
        let mut names = names.unwrap_or_default().into_iter();
        let is_file = attaches || names.len() > 0 || !is_text && !encloses && !has_parts;
        if differs {
            self.disagree();
        }
        if let Ok(Some(text)) = boundary {
            self.add_boundary(text);
        }
        if let Some(agreement) = self.agreement.as_mut() {
            agreement.begin_body();
        }
        if encloses {
            // The fields of the enclosed message follow.
            self.own = self.fields.len();
            if let Some(name) = names.next() {
                files.aliases.extend(core::iter::once(name).chain(names));
            }
            return;
        }
        self.state = MessageState::Body;
        let encoding = encoding.unwrap_or_default();
        self.part = MessagePart { encoding, is_text: is_searched, ..MessagePart::default() };
        if is_file && !has_parts {
            self.open_file(names.next().unwrap_or_default(), files, context);
        }
        files.aliases.extend(names);
        if files.list.len().saturating_add(files.aliases.len()) > MAX_FILES_STRICT || files.has_too_many() {
            self.disagree();
        }
    }

    fn add_boundary(&mut self, text: Vec<u8>) {
        if text.len() > BOUNDARY_USUAL {
            self.oddities.insert(MessageOddities::LONG_BOUNDARY);
        }
        if self.boundaries.len() >= BOUNDARIES_MAX {
            self.oddities.insert(MessageOddities::TOO_MUCH);
            return self.disagree();
        }
        self.boundaries.push([b"--", text.as_slice()].concat());
    }

    fn open_file(&mut self, mut name: Vec<u8>, files: &mut FileList, context: &mut FileContext) {
        if name.len() > FILE_NAME_MAX {
            self.oddities.insert(MessageOddities::LONG_FILE_NAME);
            // Readers read longer names.
            if self.agreement.is_none() {
                name.truncate(FILE_NAME_MAX);
            }
        }
        // The name was cut before.
        let _ = files.open(&name, context);
        self.part.is_file = true;
        keep(&mut self.attachments, name, &mut self.name_bytes, false);
    }

    fn body_line(&mut self, line: MessageLine<'_>, files: &mut FileList) {
        if self.part.encoding != TransferEncoding::Plain && line.text.len() > ENCODED_LINE_USUAL {
            self.oddities.insert(MessageOddities::LONG_ENCODED_LINE);
        }
        if !self.part.is_file && !self.part.is_text {
            return;
        }
        match self.part.encoding {
            TransferEncoding::Plain => {
                self.write(line.text, files);
                self.part.line_end = line.end;
                if !self.config.url_schemes.is_empty() {
                    self.search(line.text);
                    self.search(line.end);
                }
            }
            TransferEncoding::Base64 => self.base64_line(line.text, files),
            TransferEncoding::QuotedPrintable => self.quoted_line(line, files),
        }
    }

    /// Decodes whole groups of a line, and keeps the rest.
    fn base64_line(&mut self, text: &[u8], files: &mut FileList) {
        // Other bytes are skipped without an event, as in Suricata.
        let is_symbol = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
        let mut symbols = core::mem::take(&mut self.part.tail);
        symbols.extend(text.iter().filter(|byte| is_symbol(byte)));
        let whole = symbols.len() / 4 * 4;
        if let Some(agreement) = self.agreement.as_mut().filter(|_| self.part.is_file) {
            agreement.base64(symbols.get(..whole).unwrap_or_default());
        }
        let mut decoded = Vec::with_capacity(whole / 4 * 3);
        // Each group by itself: a broken one does not hide the next.
        let mut group_bytes = Vec::with_capacity(3);
        for group in symbols.get(..whole).unwrap_or_default().chunks(4) {
            group_bytes.clear();
            if !base64::decode(group, Base64Mode::Rfc2045, &mut group_bytes) {
                self.oddities.insert(MessageOddities::INVALID_BASE64);
            }
            decoded.extend_from_slice(&group_bytes);
        }
        symbols.drain(..whole);
        self.part.tail = symbols;
        self.write(&decoded, files);
    }

    /// Decodes a line of quoted-printable text (RFC 2045 section 6.7).
    fn quoted_line(&mut self, line: MessageLine<'_>, files: &mut FileList) {
        let mut text = core::mem::take(&mut self.part.tail);
        text.extend_from_slice(line.text);
        let mut decoded = Vec::with_capacity(text.len());
        let mut rest = text.as_slice();
        let mut is_soft = false;
        while let Some((first, behind)) = rest.split_first() {
            match (first, behind) {
                (b'=', [high, low, ..]) => {
                    let byte = hex(*high).zip(hex(*low)).map(|(high, low)| high << 4 | low);
                    // Digits in lower case are decoded, with an event (RFC 2045 section 6.7, rule 1).
                    if byte.is_none() || high.is_ascii_lowercase() || low.is_ascii_lowercase() {
                        self.oddities.insert(MessageOddities::INVALID_QP);
                    }
                    decoded.push(byte.unwrap_or(*first));
                    rest = if byte.is_some() { behind.get(2..).unwrap_or_default() } else { behind };
                }
                (b'=', _) if line.end.is_empty() => {
                    self.part.tail = rest.to_vec();
                    break;
                }
                (b'=', behind) if behind.trim_ascii().is_empty() => {
                    if !behind.is_empty() {
                        self.oddities.insert(MessageOddities::INVALID_QP);
                    }
                    is_soft = true;
                    break;
                }
                _ => {
                    if *first == b'=' {
                        self.oddities.insert(MessageOddities::INVALID_QP);
                    }
                    decoded.push(*first);
                    rest = behind;
                }
            }
        }
        if !is_soft {
            // The end of the last line is part of the content, as in Suricata.
            decoded.extend_from_slice(line.end);
        }
        self.write(&decoded, files);
    }

    /// Adds decoded content to the part.
    fn write(&mut self, data: &[u8], files: &mut FileList) {
        let end = core::mem::take(&mut self.part.line_end);
        if self.part.is_file {
            files.append(end);
            files.append(data);
        } else if self.part.encoding != TransferEncoding::Plain && !self.config.url_schemes.is_empty() {
            self.search(data);
        }
    }

    /// Searches whole lines of text for URLs.
    fn search(&mut self, data: &[u8]) {
        self.part.text.extend_from_slice(data);
        while let Some(end) = memchr::memchr(b'\n', &self.part.text) {
            let line: Vec<u8> = self.part.text.drain(..=end).collect();
            self.find_urls(&line);
        }
        while self.part.text.len() > TEXT_MAX {
            let line: Vec<u8> = self.part.text.drain(..TEXT_MAX).collect();
            self.find_urls(&line);
        }
    }

    fn find_urls(&mut self, text: &[u8]) {
        let lower = text.to_ascii_lowercase();
        let config = Arc::clone(&self.config);
        for scheme in &config.url_schemes {
            for at in memchr::memmem::find_iter(&lower, scheme.as_bytes()) {
                let from = if config.keep_scheme { at } else { at.saturating_add(scheme.len()) };
                let rest = text.get(from..).unwrap_or_default();
                // As in Suricata a URL at the end of a line has the line's end.
                let is_end = |byte: &u8| b" \t\"'<>]".contains(byte);
                let end = rest.iter().position(is_end).unwrap_or(rest.len());
                if let Some(url) = rest.get(..end).filter(|url| !url.is_empty()) {
                    keep(&mut self.urls, url.to_vec(), &mut self.name_bytes, true);
                }
            }
        }
    }

    /// Ends the part: the last end of a line is no part of it.
    fn end_part(&mut self, files: &mut FileList) {
        match self.part.encoding {
            TransferEncoding::Base64 if !self.part.tail.is_empty() => {
                self.part.tail.resize(4, b'=');
                let mut rest = Vec::new();
                base64::decode(&self.part.tail, Base64Mode::Rfc2045, &mut rest);
                self.write(&rest, files);
            }
            TransferEncoding::QuotedPrintable if !self.part.tail.is_empty() => {
                self.oddities.insert(MessageOddities::INVALID_QP);
            }
            _ => {}
        }
        let text = core::mem::take(&mut self.part.text);
        self.find_urls(&text);
        if self.part.is_file {
            files.close(FileState::Closed);
        }
        self.part = MessagePart::default();
    }
}

/// Keeps a name, if there is room. `once`: unless it is kept already.
fn keep(list: &mut Vec<Vec<u8>>, name: Vec<u8>, bytes: &mut usize, once: bool) {
    if list.len() < NAMES_MAX && !(once && list.contains(&name)) {
        *bytes = bytes.saturating_add(crate::memory::allocated(name.len()));
        list.push(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Arc<MessageConfig> {
        Arc::new(MessageConfig {
            decode_base64: true,
            decode_quoted_printable: true,
            header_value_depth: 2_000,
            url_schemes: vec!["http://".into()],
            keep_scheme: false,
            body_md5: true,
        })
    }

    /// Reads a message; lines are cut into pieces of this length.
    fn read(text: &str, cut: usize) -> (MailMessage, FileList) {
        read_as(text, cut, false)
    }

    fn read_as(text: &str, cut: usize, strict: bool) -> (MailMessage, FileList) {
        let (mut message, mut files) = (MailMessage::new(config(), strict), FileList::default());
        let mut context = FileContext::default();
        for line in text.split("\r\n") {
            let mut rest = line.as_bytes();
            let mut is_first = true;
            loop {
                let (text, more) = rest.split_at(cut.min(rest.len()));
                let end: &'static [u8] = if more.is_empty() { b"\r\n" } else { b"" };
                message.line(MessageLine { text, end, is_first }, &mut files, &mut context);
                (rest, is_first) = (more, false);
                if rest.is_empty() {
                    break;
                }
            }
        }
        message.finish(&mut files);
        (message, files)
    }

    const MESSAGE: &str = "From: Alice <a@x>\r\nSubject: one\r\n  two\r\nContent-Type: multipart/mixed; boundary=\"b1\"\r\n\r\npreamble http://no.x/\r\n\
        --b1\r\nContent-Type: text/plain\r\n\r\nsee HTTP://a.b/c\" and <http://d.e>\r\n\
        --b1\r\nContent-Type: multipart/alternative; boundary=b2\r\n\r\n--b2\r\nContent-Type: text/html\r\nContent-Transfer-Encoding: base64\r\n\r\naHR0cDov\r\nL2Yu\r\nZw==\r\n--b2--\r\n\
        --b1\r\nContent-Disposition: attachment; filename=a.bin\r\nContent-Transfer-Encoding: base64\r\n\r\nAAEC\r\nAw==\r\n\
        --b1\r\nContent-Type: text/csv; name=q.csv\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\na=3Db=\r\nc\r\nd\r\n\
        --b1\r\nContent-Type: message/rfc822\r\n\r\nFrom: inner\r\nContent-Disposition: attachment; filename=in.txt\r\n\r\nplain\r\n\r\n--b1--\r\nepilogue";

    #[test]
    fn parts_are_read_however_long_lines_are_cut() {
        for cut in [usize::MAX, 30, 41, 100] {
            let (message, files) = read(MESSAGE, cut);
            let found: Vec<_> =
                files.list.iter().map(|f| (f.name.as_slice(), f.content().0, f.state)).collect();
            let closed = FileState::Closed;
            assert_eq!(
                found,
                [
                    (&b"a.bin"[..], &[0, 1, 2, 3][..], closed),
                    (b"q.csv", b"a=bc\r\nd\r\n", closed),
                    (b"in.txt", b"plain\r\n", closed)
                ],
                "{cut}"
            );
            let urls: Vec<_> = message.urls().iter().map(|url| String::from_utf8_lossy(url)).collect();
            assert_eq!(urls, ["a.b/c", "d.e", "f.g"], "{cut}");
            assert_eq!(message.values("subject").collect::<Vec<_>>(), [b"one two"]);
            assert_eq!(message.values("from").collect::<Vec<_>>(), [&b"Alice <a@x>"[..]]);
        }
    }

    #[test]
    fn the_first_name_counts() {
        for (fields, name) in [
            ("Content-Type: a/b; name=n\r\nContent-Disposition: inline; filename=d", "n"),
            ("Content-Disposition: inline; filename=d\r\nContent-Type: a/b; name=n", "d"),
            ("Content-Disposition: inline\r\nContent-Type: a/b; name=n", "n"),
        ] {
            let (message, _) = read(&format!("{fields}\r\n\r\nx"), usize::MAX);
            assert_eq!(message.attachments(), [name.as_bytes()], "{fields}");
        }
    }

    #[test]
    fn a_url_at_the_end_of_a_line_has_the_lines_end() {
        let (message, _) = read("A: b\r\n\r\nhttp://a.b/c\r\nhttp://d.e/ f", usize::MAX);
        assert_eq!(message.urls(), [b"a.b/c\r\n".to_vec(), b"d.e/".to_vec()]);
    }

    #[test]
    fn prevention_reads_plain_messages_alike() {
        for cut in [usize::MAX, 41, 100] {
            let (message, files) = read_as(MESSAGE, cut, true);
            let found: Vec<_> = files.list.iter().map(|f| (f.name.as_slice(), f.content().0)).collect();
            let expected: [(&[u8], &[u8]); 3] =
                [(b"a.bin", &[0, 1, 2, 3]), (b"q.csv", b"a=bc\r\nd\r\n"), (b"in.txt", b"plain\r\n")];
            assert_eq!((found.as_slice(), message.differs()), (&expected[..], false), "{cut}");
        }
        let (message, files) = read_as("Content-Disposition: attachment\r\n\r\nabc", 30, true);
        assert_eq!(files.list.first().map(|file| file.content().0), Some(&b"abc"[..]));
        assert!(!message.differs());
        let names = "Content-Type: a/b; name=\"=?u?B?ZXZpbA==?=\"\r\nContent-Disposition: x; filename*=u''%66\r\n\r\n";
        let (_, files) = read_as(names, usize::MAX, true);
        let all: Vec<_> = files.list.iter().map(|f| &f.name).chain(&files.aliases).collect();
        assert_eq!(all, [b"f".as_slice(), b"=?u?B?ZXZpbA==?=", b"evil"]);
    }

    #[test]
    fn prevention_refuses_messages_that_readers_read_otherwise() {
        let of = |text: &str| read_as(text, usize::MAX, true).0.differs();
        let parts = |part: &str| of(&format!("Content-Type: multipart/mixed; boundary=b1\r\n\r\n{part}"));
        let file = "Content-Disposition: attachment; filename=a\r\n";
        for odd in [
            "no field\r\n\r\n",
            "A : b\r\n\r\n",
            " folded\r\n\r\n",
            "A: b\rC: d\r\n\r\n",
            "A: \0\r\n\r\n",
            "Subject: a\r\nSubject: b\r\n\r\n",
            "Content-Type: a/b\r\nContent-Type: c/d\r\n\r\n",
            "Content-Transfer-Encoding: x-uuencode\r\n\r\n",
            "Content-Type: message/rfc822\r\nContent-Transfer-Encoding: base64\r\n\r\n",
            "Content-Type: message/partial; id=a\r\n\r\n",
            "Content-Type: multipart/mixed\r\n\r\n",
            "Content-Disposition: attachment; filename=a",
        ] {
            assert!(of(odd), "{odd:?}");
        }
        let base64 = format!("{file}Content-Transfer-Encoding: base64\r\n\r\n");
        for odd in ["ZX=ZpbA=", "Z=XZpbA=", "ZXZpbA==ZXZp"] {
            assert!(of(&format!("{base64}{odd}")), "{odd}");
        }
        for odd in ["--b1x\r\n", "--b1 x\r\n", "--b1--\r\n--b1\r\n", "\r\nx\r--b1", "--b1\r\n\r\n--b1-"] {
            assert!(parts(odd), "{odd:?}");
        }
        for plain in ["--b1 \t\r\n\r\n--b1--\r\nepilogue", "-- \r\n--b\r\n", "--b1\r\nA: b\r\n--b1--\r\n"] {
            assert!(!parts(plain), "{plain:?}");
        }
        assert!(!of("From a b\r\nSubject: a\r\nTo: b\r\nTo: b\r\n\r\ntext"));
    }

    #[test]
    fn a_message_without_parts_can_be_a_file() {
        let (message, files) = read("Content-Disposition: attachment; filename=x\r\n\r\nabc\r\ndef", 30);
        assert_eq!(files.list.first().map(|file| file.content().0), Some(&b"abc\r\ndef"[..]));
        assert_eq!(message.attachments(), [b"x"]);
    }

    #[test]
    fn the_body_has_a_hash() {
        // `printf 'body\r\n' | md5sum`
        let (message, _) = read("A: b\r\n\r\nbody", usize::MAX);
        assert_eq!(message.body_md5(), Some("89dd3590116a70b579661a2d8593bb2f"));
    }

    #[test]
    fn oddities_are_told() {
        let body = |encoding: &str, body: &str| {
            format!("Content-Type: text/plain\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n{body}")
        };
        let long = "x".repeat(3_000);
        for (text, oddity) in [
            (body("base64", "AA*A"), MessageOddities::empty()),
            (body("base64", "AAA"), MessageOddities::empty()),
            (body("base64", "AAAA===="), MessageOddities::INVALID_BASE64),
            (body("quoted-printable", "=XY"), MessageOddities::INVALID_QP),
            (body("quoted-printable", "=4"), MessageOddities::INVALID_QP),
            (body("quoted-printable", "=e4"), MessageOddities::INVALID_QP),
            (body("quoted-printable", "a= "), MessageOddities::INVALID_QP),
            (body("quoted-printable", "=E4=\r\na"), MessageOddities::empty()),
            (body("base64", &"AAAA".repeat(20)), MessageOddities::LONG_ENCODED_LINE),
            (body("7bit", &"y".repeat(999)), MessageOddities::LONG_LINE),
            (format!("{}: x\r\n\r\n", "n".repeat(76)), MessageOddities::LONG_HEADER_NAME),
            (format!("a: {}\r\n {}\r\n\r\n", "v".repeat(900), "v".repeat(900)), MessageOddities::empty()),
            (
                format!("Content-Disposition: a; filename={}\r\n\r\n", "f".repeat(256)),
                MessageOddities::LONG_FILE_NAME,
            ),
            (
                format!("Content-Type: a; boundary={}\r\n\r\n", "f".repeat(255)),
                MessageOddities::LONG_BOUNDARY,
            ),
        ] {
            let (mut message, _) = read(&text, usize::MAX);
            assert_eq!(message.take_oddities(), oddity, "{text}");
        }
        let (mut message, _) = read(&format!("a: {long}\r\n\r\n"), usize::MAX);
        assert!(message.take_oddities().contains(MessageOddities::LONG_HEADER_VALUE));
    }

    #[test]
    fn memory_is_bounded() {
        let many = "a: 0123456789\r\n".repeat(20_000);
        let (mut message, _) = read(&many, usize::MAX);
        assert!(
            message.take_oddities().contains(MessageOddities::TOO_MUCH) && message.held() < 4 * HEADERS_MAX
        );
        let nested: String = (0..100)
            .map(|n| format!("Content-Type: multipart/mixed; boundary=b{n}x\r\n\r\n--b{n}x\r\n"))
            .collect();
        let (mut message, _) = read(&nested, usize::MAX);
        assert!(message.take_oddities().contains(MessageOddities::TOO_MUCH));
        let urls: String = (0..1_000).map(|n| format!("http://h{n}/ ")).collect();
        let (message, _) = read(&format!("A: b\r\n\r\n{urls}"), usize::MAX);
        assert_eq!(message.urls().len(), NAMES_MAX);
    }
}
