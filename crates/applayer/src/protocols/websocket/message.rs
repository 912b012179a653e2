// SPDX-License-Identifier: Apache-2.0
//! Messages in several frames.
//!
//! Passively the last frame of a message shows all of it, up to the limit, as in Suricata. In prevention
//! there is no limit: where a message is longer than what is kept, or its decoded length is not known, each
//! of its frames shows its bytes behind the end of what came before.

use crate::memory::{Held, slide};

/// Bytes of a message that are kept in prevention.
pub(super) const WINDOW: usize = 128 << 10;
/// Bytes of the part before that a frame of a longer message shows.
pub(super) const OVERLAP: usize = 4 << 10;

/// Bytes of a payload, or the latest of them.
#[derive(Debug, Default)]
pub(super) struct PayloadWindow {
    pub(super) bytes: Vec<u8>,
    /// Position of the first byte in the whole payload.
    pub(super) offset: u64,
}

/// A message whose last frame has not ended.
#[derive(Debug, Default)]
pub(super) struct OpenMessage {
    /// The message is compressed.
    pub(super) is_compressed: bool,
    /// The bytes so far, or the latest of them.
    window: PayloadWindow,
    /// A frame has shown all of the message before it.
    is_shown: bool,
}

impl OpenMessage {
    pub(super) fn new(is_compressed: bool) -> Self {
        OpenMessage { is_compressed, ..OpenMessage::default() }
    }

    /// Adds bytes up to a limit of the message's length. `false`: the limit is passed now.
    pub(super) fn add_within(&mut self, data: &[u8], limit: usize) -> bool {
        let room = limit.saturating_sub(self.window.bytes.len());
        let taken = data.get(..room).unwrap_or(data);
        self.window.bytes.extend_from_slice(taken);
        room == 0 || taken.len() == data.len()
    }

    /// Adds bytes, and drops the oldest beyond [`WINDOW`].
    pub(super) fn add(&mut self, data: &[u8]) {
        self.window.push(data);
    }

    /// The bytes that the next frame, of this length, shows before its own: none while all of the message is
    /// certain to be kept for the last frame.
    pub(super) fn before(&mut self, next: u64) -> PayloadWindow {
        let PayloadWindow { bytes, offset } = &self.window;
        let end = offset.saturating_add(bytes.len() as u64).saturating_add(next);
        if end <= WINDOW as u64 && !self.is_compressed {
            return PayloadWindow::default();
        }
        let skipped = if self.is_shown { bytes.len().saturating_sub(OVERLAP) } else { 0 };
        self.is_shown = true;
        PayloadWindow {
            bytes: bytes.get(skipped..).unwrap_or_default().to_vec(),
            offset: offset.saturating_add(skipped as u64),
        }
    }

    /// The whole message, or the latest bytes of it.
    pub(super) fn into_window(self) -> PayloadWindow {
        self.window
    }
}

impl PayloadWindow {
    /// Adds bytes, and drops the oldest beyond [`WINDOW`], never of these.
    pub(super) fn push(&mut self, data: &[u8]) {
        let gone = slide(&mut self.bytes, data, WINDOW.max(data.len()));
        self.offset = self.offset.saturating_add(gone);
    }
}

impl Held for OpenMessage {
    fn held(&self) -> usize {
        self.window.bytes.held()
    }
}
