// SPDX-License-Identifier: Apache-2.0
//! A message's body: content encodings undone, limits kept, the part that rules look at held, files fed.

use super::bytes::before;
use super::events;
use super::fields::ContentRange;
use super::settings::{BodySettings, HttpSettings};
use crate::content::decompress::{Decoder, Encoding, Pace, Stop};
use crate::content::file::FileState;
use crate::content::files::{FileContext, FileList};
use crate::content::mime::multipart::{Found, Multipart, Oddity};
use crate::event::{EventCode, Events};
use crate::memory::{Held as _, slide};

/// Bytes held for inspection when the settings set no limit.
const WINDOW: usize = 1 << 20;
/// A decompressed body may be this many times larger than what came in.
const BOMB_RATIO: u64 = 2048;
/// What came in counts in steps of this many bytes of the message: segments make no difference then.
const BOMB_STEP: u64 = 512;
/// How the data of a body becomes files.
#[derive(Default)]
pub(super) enum FileSource {
    /// It does not.
    #[default]
    None,
    /// All of it is one file.
    Whole,
    /// A form with files in it.
    Form(Box<Multipart>),
}

/// A file of which nothing is there yet: what comes is encoded, and has given nothing so far.
pub(super) struct Awaited {
    pub name: Vec<u8>,
    /// What piece of a larger file it is.
    pub range: Option<ContentRange>,
    /// What it says of that is wrong.
    pub wrong_range: bool,
}

/// The event of what is odd in a form.
const fn event_of(oddity: Oddity) -> EventCode {
    match oddity {
        Oddity::Differs => events::MULTIPART_GENERIC_ERROR,
        Oddity::NoContent => events::MULTIPART_NO_FILEDATA,
        Oddity::NoField => events::MULTIPART_INVALID_HEADER,
    }
}

/// Takes what was found in a form.
fn take(files: &mut FileList, found: Found<'_>, context: &mut FileContext, raised: &mut Events) {
    if files.take(found, context) {
        raised.set(events::FILE_NAME_TOO_LONG);
    }
}

/// A body.
#[derive(Default)]
pub(super) struct Body {
    /// Held bytes and the offset of the first of them; nothing while the body is a file.
    data: Vec<u8>,
    offset: u64,
    /// All of it so far is the content of the first file, which holds the bytes.
    is_file: bool,
    /// Bytes within the limit so far.
    pub seen: u64,
    /// Bytes of the message on the wire, chunk lines included.
    pub message_length: u64,
    /// Bytes after content encodings were undone.
    pub entity_length: u64,
    decoder: Option<Decoder>,
    /// The body is encoded, even if the decoder is gone.
    pub encoded: bool,
    pub source: FileSource,
    pub files: FileList,
    /// The file that is opened with the first byte of its content.
    pub awaited: Option<Awaited>,
    /// No more will come.
    pub complete: bool,
}

/// Bytes of a body that are held.
fn window(limits: &BodySettings) -> usize {
    if limits.limit == 0 {
        return WINDOW;
    }
    usize::try_from(limits.limit).unwrap_or(WINDOW).min(16 * WINDOW)
}

/// A piece of a body, or the end of it.
#[derive(Clone, Copy)]
pub(super) enum Piece<'a> {
    Data(&'a [u8]),
    Gap(u64),
}

impl Body {
    /// Sets the encodings to undo, in the order in which they were applied.
    pub(super) fn set_encodings(&mut self, encodings: &[Encoding], pace: Pace) {
        self.decoder = Decoder::new(encodings, pace);
        self.encoded = self.decoder.is_some();
    }

    /// There is nothing to undo.
    pub(super) fn clear_encodings(&mut self) {
        (self.decoder, self.encoded) = (None, false);
    }

    /// Bytes of memory held beside its own place.
    pub(super) fn held(&self) -> usize {
        let form = match &self.source {
            FileSource::Form(form) => form.held(),
            FileSource::None | FileSource::Whole => 0,
        };
        let decoder = self.decoder.as_ref().map_or(0, Decoder::held);
        let awaited = self.awaited.as_ref().map_or(0, |file| file.name.held());
        let files = self.files.held().saturating_add(awaited);
        self.data.held().saturating_add(files).saturating_add(form).saturating_add(decoder)
    }

    /// Whether prevention cannot let it pass: there is more in it than is looked at, or receivers differ over
    /// it.
    pub(super) fn differs(&self) -> bool {
        let form = matches!(&self.source, FileSource::Form(form) if form.differs());
        form || self.files.has_too_many()
    }

    /// The part held: bytes and offset of the first.
    pub(super) fn view(&self) -> (&[u8], u64) {
        match self.files.list.first() {
            Some(file) if self.is_file => file.content(),
            _ => (&self.data, self.offset),
        }
    }

    /// Takes in a piece as it came; returns false if no more of it can be used (the body was encoded and the
    /// decoder is gone).
    pub(super) fn receive(
        &mut self,
        data: &[u8],
        limits: (&BodySettings, &HttpSettings),
        context: &mut FileContext,
        raised: &mut Events,
    ) -> bool {
        if !self.encoded {
            self.message_length = self.message_length.saturating_add(data.len() as u64);
            self.entity_length = self.entity_length.saturating_add(data.len() as u64);
            self.accept(Piece::Data(data), limits.0, context, raised);
            return true;
        }
        let Some(mut decoder) = self.decoder.take() else { return false };
        let mut rest = data;
        while !rest.is_empty() {
            let step = BOMB_STEP - self.message_length % BOMB_STEP;
            let (piece, tail) =
                rest.split_at_checked(usize::try_from(step).unwrap_or(1)).unwrap_or((rest, &[]));
            rest = tail;
            let _ = decoder.write(piece, &mut |decoded| self.decoded(decoded, limits, context, raised));
            self.message_length = self.message_length.saturating_add(piece.len() as u64);
        }
        self.decoder = Some(decoder);
        true
    }

    /// Takes in decoded bytes, unless they are far too many.
    fn decoded(
        &mut self,
        data: &[u8],
        limits: (&BodySettings, &HttpSettings),
        context: &mut FileContext,
        raised: &mut Events,
    ) -> Result<(), Stop> {
        let steps = self.message_length / BOMB_STEP + 1;
        let most = limits.1.bomb_limit.max(steps.saturating_mul(BOMB_STEP).saturating_mul(BOMB_RATIO));
        let room = usize::try_from(most.saturating_sub(self.entity_length)).unwrap_or(usize::MAX);
        let taken = before(data, room);
        self.entity_length = self.entity_length.saturating_add(taken.len() as u64);
        self.accept(Piece::Data(taken), limits.0, context, raised);
        if taken.len() < data.len() {
            raised.set(events::COMPRESSION_BOMB);
            context.bombs = context.bombs.saturating_add(1);
            if context.bombs == limits.1.bomb_count {
                raised.set(events::COMPRESSION_BOMB_LIMIT_REACHED);
            }
            return Err(Stop);
        }
        Ok(())
    }

    /// Bytes of the body are missing.
    pub(super) fn receive_gap(
        &mut self,
        missing: u64,
        limits: (&BodySettings, &HttpSettings),
        context: &mut FileContext,
        raised: &mut Events,
    ) {
        if self.encoded {
            // Nothing can be decoded behind a gap.
            self.end_decoding(limits, context, raised);
            return;
        }
        self.message_length = self.message_length.saturating_add(missing);
        self.accept(Piece::Gap(missing), limits.0, context, raised);
    }

    /// No more encoded data comes: what decoders hold back is taken in.
    pub(super) fn end_decoding(
        &mut self,
        limits: (&BodySettings, &HttpSettings),
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

    /// Opens the file that waits for its content, if one does.
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
        piece: Piece<'_>,
        limits: &BodySettings,
        context: &mut FileContext,
        raised: &mut Events,
    ) {
        let length = match piece {
            Piece::Data(data) => data.len() as u64,
            Piece::Gap(missing) => missing,
        };
        if length == 0 {
            return;
        }
        self.open_awaited(context, raised);
        // A file that is kept has a limit of its own.
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
            Piece::Data(data) => {
                let data = before(data, usize::try_from(length).unwrap_or(usize::MAX));
                if !self.goes_into_a_file(limits) {
                    self.hold(data, limits);
                }
                self.feed_files(data, context, raised);
            }
            // A gap does not count for the limit, and what stood before it stays in view.
            Piece::Gap(_) => {
                self.files.gap(length);
                return;
            }
        }
        self.seen = self.seen.saturating_add(length);
        if is_cut {
            self.cut_files(context, raised);
        }
    }

    /// Whether what comes is held by the file that the whole body is, so that it need not be held twice.
    fn goes_into_a_file(&mut self, limits: &BodySettings) -> bool {
        let whole = matches!(self.source, FileSource::Whole) && self.files.is_open();
        if self.seen == 0
            && whole
            && let [file] = self.files.list.as_mut_slice()
        {
            file.widen(window(limits));
            self.is_file = true;
        }
        if self.is_file && !whole {
            // The file has ended before the body, by a limit of its own.
            let (data, offset) = self.view();
            (self.data, self.offset, self.is_file) = (data.to_vec(), offset, false);
        }
        self.is_file
    }

    fn hold(&mut self, data: &[u8], limits: &BodySettings) {
        let gone = slide(&mut self.data, data, window(limits));
        self.offset = self.offset.saturating_add(gone);
    }

    fn feed_files(&mut self, data: &[u8], context: &mut FileContext, raised: &mut Events) {
        match &mut self.source {
            FileSource::None => {}
            FileSource::Whole => self.files.append(data),
            FileSource::Form(form) => {
                let mut found = Events::default();
                form.write(data, &mut |item| match item {
                    Found::Odd(oddity) => found.set(event_of(oddity)),
                    item => take(&mut self.files, item, context, raised),
                });
                for code in found.as_slice() {
                    raised.set(*code);
                }
            }
        }
    }

    /// The body has ended: files are closed.
    pub(super) fn finish(&mut self, context: &mut FileContext, raised: &mut Events) {
        self.decoder = None;
        self.complete = true;
        if let FileSource::Form(form) = &mut self.source {
            form.end(&mut |item| take(&mut self.files, item, context, raised));
        }
        // Also one that no boundary ends: the body is whole, and Suricata calls such a file closed.
        self.files.close(FileState::Closed);
    }

    /// The flow ended within the body.
    pub(super) fn abort(&mut self, context: &mut FileContext, raised: &mut Events) {
        self.complete = true;
        self.decoder = None;
        self.cut_files(context, raised);
    }

    /// No more content of files comes, though more of the body may: what a form holds back is the last of it.
    fn cut_files(&mut self, context: &mut FileContext, raised: &mut Events) {
        if let FileSource::Form(form) = &mut self.source {
            form.end(&mut |item| take(&mut self.files, item, context, raised));
        }
        self.files.close(FileState::Truncated);
    }
}
