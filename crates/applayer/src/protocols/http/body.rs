// SPDX-License-Identifier: Apache-2.0
//! A message's body: removes content encodings, applies limits, holds the part that rules inspect, fills
//! files.

use super::bytes::before;
use super::events;
use super::fields::ContentRange;
use super::settings::{BodySettings, HttpSettings};
use crate::content::decompress::{BodyDecoder, CodecStop, Encoding, Pace, split_step, within_bound};
use crate::content::file::FileState;
use crate::content::files::{FRESH_MAX, FileContext, FileList, FreshBytes};
use crate::content::mime::multipart::{Multipart, MultipartFinding, Oddity};
use crate::event::{EventCode, Events};
use crate::memory::{Held as _, slide};

/// Bytes held for inspection if the settings set no limit.
const WINDOW: usize = 1 << 20;
/// The way in which a body becomes files.
#[derive(Default)]
pub(super) enum FileSource {
    /// The body has no files.
    #[default]
    None,
    /// All of it is one file.
    Whole,
    /// A form with files in it.
    Form(Box<Multipart>),
}

/// A file without content so far: the body is encoded, and the decoder has given nothing yet.
pub(super) struct Awaited {
    pub name: Vec<u8>,
    /// The range of a larger file.
    pub range: Option<ContentRange>,
    /// The header with the range is malformed.
    pub wrong_range: bool,
}

/// The event for an anomaly in a form.
const fn event_of(oddity: Oddity) -> EventCode {
    match oddity {
        Oddity::Differs => events::MULTIPART_GENERIC_ERROR,
        Oddity::NoContent => events::MULTIPART_NO_FILEDATA,
        Oddity::NoField => events::MULTIPART_INVALID_HEADER,
    }
}

/// Handles a finding in a form.
fn take(files: &mut FileList, found: MultipartFinding<'_>, context: &mut FileContext, raised: &mut Events) {
    if files.take(found, context) {
        raised.set(events::FILE_NAME_TOO_LONG);
    }
}

/// The settings that bound a body.
#[derive(Clone, Copy)]
pub(super) struct BodyLimits<'s> {
    /// Settings of bodies of this direction.
    pub body: &'s BodySettings,
    /// Settings of the protocol.
    pub http: &'s HttpSettings,
}

/// The body of a message, as far as it has come.
#[derive(Default)]
pub(super) struct HttpBody {
    /// Held bytes; empty while the body is a file. `offset`: position of the first of them.
    data: Vec<u8>,
    offset: u64,
    /// All of the body so far is the content of the first file, which holds the bytes.
    is_file: bool,
    /// Number of bytes within the limit so far.
    pub seen: u64,
    /// Number of bytes of the message on the wire, chunk lines included.
    pub message_length: u64,
    /// Number of bytes after content encodings were removed.
    pub entity_length: u64,
    decoder: Option<BodyDecoder>,
    /// The body is encoded, even if the decoder has been dropped.
    pub encoded: bool,
    pub source: FileSource,
    pub files: FileList,
    /// The file that is opened with the first byte of its content.
    pub awaited: Option<Awaited>,
    /// Whether the body is complete.
    pub complete: bool,
    fresh: FreshBytes,
    /// In prevention: the body stands for more than is decoded.
    is_bomb: bool,
}

/// Limit of a body's held bytes.
fn window(limits: &BodySettings) -> usize {
    if limits.limit == 0 {
        return WINDOW;
    }
    usize::try_from(limits.limit).unwrap_or(WINDOW).min(16 * WINDOW)
}

/// A piece of a body, or a gap in it.
#[derive(Clone, Copy)]
pub(super) enum BodyPiece<'a> {
    Data(&'a [u8]),
    Gap(u64),
}

impl HttpBody {
    /// Sets the encodings to remove, in the order in which the sender applied them.
    pub(super) fn set_encodings(&mut self, encodings: &[Encoding], pace: Pace) {
        self.decoder = BodyDecoder::new(encodings, pace);
        self.encoded = self.decoder.is_some();
    }

    /// Sets that the body has no encodings.
    pub(super) fn clear_encodings(&mut self) {
        (self.decoder, self.encoded) = (None, false);
    }

    /// Bytes of memory held outside of the structure itself.
    pub(super) fn held(&self) -> usize {
        let form = match &self.source {
            FileSource::Form(form) => form.held(),
            FileSource::None | FileSource::Whole => 0,
        };
        let decoder = self.decoder.as_ref().map_or(0, BodyDecoder::held);
        let awaited = self.awaited.as_ref().map_or(0, |file| file.name.held());
        let files = self.files.held().saturating_add(awaited);
        self.data.held().saturating_add(files).saturating_add(form).saturating_add(decoder)
    }

    /// Whether prevention cannot let the body pass: it has more than is inspected, or receivers read it
    /// differently.
    pub(super) fn differs(&self) -> bool {
        let form = matches!(&self.source, FileSource::Form(form) if form.differs());
        form || self.is_bomb || self.files.has_too_many()
    }

    /// The held part: bytes and offset of the first.
    pub(super) fn view(&self) -> (&[u8], u64) {
        match self.files.list.first() {
            Some(file) if self.is_file => file.content(),
            _ => (&self.data, self.offset),
        }
    }

    /// Handles a piece as it came on the wire. `false`: no more of the body can be used (it was encoded and
    /// the decoder has been dropped).
    pub(super) fn receive(
        &mut self,
        data: &[u8],
        limits: BodyLimits<'_>,
        context: &mut FileContext,
        raised: &mut Events,
    ) -> bool {
        if !self.encoded {
            self.message_length = self.message_length.saturating_add(data.len() as u64);
            self.entity_length = self.entity_length.saturating_add(data.len() as u64);
            self.accept(BodyPiece::Data(data), limits.body, context, raised);
            return true;
        }
        let Some(mut decoder) = self.decoder.take() else { return false };
        let mut rest = data;
        while !rest.is_empty() {
            let (piece, tail) = split_step(self.message_length, rest);
            rest = tail;
            let _ = decoder.write(piece, &mut |decoded| self.decoded(decoded, limits, context, raised));
            self.message_length = self.message_length.saturating_add(piece.len() as u64);
        }
        self.decoder = Some(decoder);
        true
    }

    /// Handles decoded bytes, unless the ratio exceeds the limit.
    fn decoded(
        &mut self,
        data: &[u8],
        limits: BodyLimits<'_>,
        context: &mut FileContext,
        raised: &mut Events,
    ) -> Result<(), CodecStop> {
        let taken = within_bound(self.message_length, self.entity_length, limits.http.bomb_limit, data);
        self.entity_length = self.entity_length.saturating_add(taken.len() as u64);
        let fresh = self.fresh.add(taken.len(), context);
        self.files.fresh = fresh;
        self.accept(BodyPiece::Data(taken), limits.body, context, raised);
        let is_wanted = limits.body.limit == 0 || self.seen < limits.body.limit;
        if taken.len() < data.len() || fresh > FRESH_MAX && is_wanted {
            self.is_bomb = context.strict && is_wanted;
            raised.set(events::COMPRESSION_BOMB);
            context.bombs = context.bombs.saturating_add(1);
            if context.bombs == limits.http.bomb_count {
                raised.set(events::COMPRESSION_BOMB_LIMIT_REACHED);
            }
            return Err(CodecStop);
        }
        Ok(())
    }

    /// Handles missing bytes of the body.
    pub(super) fn receive_gap(
        &mut self,
        missing: u64,
        limits: BodyLimits<'_>,
        context: &mut FileContext,
        raised: &mut Events,
    ) {
        if self.encoded {
            // Nothing can be decoded after a gap.
            self.end_decoding(limits, context, raised);
            return;
        }
        self.message_length = self.message_length.saturating_add(missing);
        self.accept(BodyPiece::Gap(missing), limits.body, context, raised);
    }

    /// Ends the encoded data and handles the output that decoders held back.
    pub(super) fn end_decoding(
        &mut self,
        limits: BodyLimits<'_>,
        context: &mut FileContext,
        raised: &mut Events,
    ) {
        if let Some(mut decoder) = self.decoder.take() {
            let _ = decoder.finish(&mut |decoded| self.decoded(decoded, limits, context, raised));
        }
    }

    /// Opens a file.
    pub(super) fn open_file(&mut self, name: &[u8], context: &mut FileContext, raised: &mut Events) {
        if self.files.open(name, context) {
            raised.set(events::FILE_NAME_TOO_LONG);
        }
    }

    /// Opens the awaited file, if there is one.
    pub(super) fn open_awaited(&mut self, context: &mut FileContext, raised: &mut Events) {
        let Some(Awaited { name, range, wrong_range }) = self.awaited.take() else { return };
        self.open_file(&name, context, raised);
        if let Some(range) = range {
            self.files.set_range(range.start, range.end);
        }
        if wrong_range {
            raised.set(events::RANGE_INVALID);
        }
    }

    fn accept(
        &mut self,
        piece: BodyPiece<'_>,
        limits: &BodySettings,
        context: &mut FileContext,
        raised: &mut Events,
    ) {
        let length = match piece {
            BodyPiece::Data(data) => data.len() as u64,
            BodyPiece::Gap(missing) => missing,
        };
        if length == 0 {
            return;
        }
        self.open_awaited(context, raised);
        // A file that is to be stored has a limit of its own.
        let kept = context.settings.store_depth.filter(|_| self.files.is_kept());
        let limit = kept.unwrap_or(limits.limit);
        let room = if limit == 0 { u64::MAX } else { limit.saturating_sub(self.seen) };
        if room == 0 {
            self.cut_files(context, raised);
            return;
        }
        let is_cut = length > room;
        let length = length.min(room);
        match piece {
            BodyPiece::Data(data) => {
                let data = before(data, usize::try_from(length).unwrap_or(usize::MAX));
                if !self.is_kept_in_file(limits) {
                    self.hold(data, limits);
                }
                self.feed_files(data, context, raised);
            }
            // A gap does not count for the limit, and the bytes before it stay in the window.
            BodyPiece::Gap(_) => {
                self.files.gap(length);
                return;
            }
        }
        self.seen = self.seen.saturating_add(length);
        if is_cut {
            self.cut_files(context, raised);
        }
    }

    /// Whether the file that covers the whole body holds the bytes, so that they need not be held twice.
    fn is_kept_in_file(&mut self, limits: &BodySettings) -> bool {
        let whole = matches!(self.source, FileSource::Whole) && self.files.is_open();
        if self.seen == 0
            && whole
            && let [file] = self.files.list.as_mut_slice()
        {
            file.widen(window(limits));
            self.is_file = true;
        }
        if self.is_file && !whole {
            // The file has ended before the body, by its own limit.
            let (data, offset) = self.view();
            (self.data, self.offset, self.is_file) = (data.to_vec(), offset, false);
        }
        self.is_file
    }

    fn hold(&mut self, data: &[u8], limits: &BodySettings) {
        let gone = slide(&mut self.data, data, window(limits).max(self.files.fresh));
        self.offset = self.offset.saturating_add(gone);
    }

    fn feed_files(&mut self, data: &[u8], context: &mut FileContext, raised: &mut Events) {
        match &mut self.source {
            FileSource::None => {}
            FileSource::Whole => self.files.append(data),
            FileSource::Form(form) => {
                let mut found = Events::default();
                form.write(data, &mut |item| match item {
                    MultipartFinding::Odd(oddity) => found.set(event_of(oddity)),
                    item => take(&mut self.files, item, context, raised),
                });
                for code in found.as_slice() {
                    raised.set(*code);
                }
            }
        }
    }

    /// Ends the body and closes its files.
    pub(super) fn finish(&mut self, context: &mut FileContext, raised: &mut Events) {
        self.decoder = None;
        self.complete = true;
        if let FileSource::Form(form) = &mut self.source {
            form.end(&mut |item| take(&mut self.files, item, context, raised));
        }
        // Applies also to a file without a final boundary: the body is complete, and Suricata calls such a
        // file closed.
        self.files.close(FileState::Closed);
    }

    /// Handles the end of the flow within the body.
    pub(super) fn abort(&mut self, context: &mut FileContext, raised: &mut Events) {
        self.complete = true;
        self.decoder = None;
        self.cut_files(context, raised);
    }

    /// Ends the content of files, though more of the body may come: content that a form holds back is the
    /// last.
    fn cut_files(&mut self, context: &mut FileContext, raised: &mut Events) {
        if let FileSource::Form(form) = &mut self.source {
            form.end(&mut |item| take(&mut self.files, item, context, raised));
        }
        self.files.close(FileState::Truncated);
    }
}
