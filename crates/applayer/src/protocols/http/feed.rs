// SPDX-License-Identifier: Apache-2.0
//! The input of a direction's state machine: a piece of the stream with a position, or a gap.

use super::bytes::after;

/// A piece of a direction's data, or a gap of some length.
pub(super) struct Feed<'a> {
    data: &'a [u8],
    gap: Option<u64>,
    at: usize,
    /// Offset of the first byte in the stream.
    base: u64,
}

impl<'a> Feed<'a> {
    pub(super) const fn data(data: &'a [u8]) -> Self {
        Feed { data, gap: None, at: 0, base: 0 }
    }

    pub(super) const fn gap(missing: u64) -> Self {
        Feed { data: &[], gap: Some(missing), at: 0, base: 0 }
    }

    /// This feed, beginning at an offset of the stream.
    pub(super) const fn from(self, base: u64) -> Self {
        Feed { base, ..self }
    }

    /// Stream offset of the first byte that is not consumed yet.
    pub(super) const fn position(&self) -> u64 {
        self.base.saturating_add(self.at as u64)
    }

    /// The bytes that are not consumed yet.
    pub(super) fn rest(&self) -> &'a [u8] {
        after(self.data, self.at)
    }

    /// Number of bytes, or length of the gap, not consumed yet.
    pub(super) fn left(&self) -> u64 {
        self.gap.unwrap_or(self.rest().len() as u64)
    }

    pub(super) const fn is_gap(&self) -> bool {
        self.gap.is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.left() == 0
    }

    /// Consumes bytes.
    pub(super) fn take(&mut self, count: usize) {
        self.at = self.at.saturating_add(count).min(self.data.len());
    }

    /// Consumes a part of the gap.
    pub(super) fn take_gap(&mut self, count: u64) {
        if let Some(gap) = &mut self.gap {
            let count = count.min(*gap);
            *gap = gap.saturating_sub(count);
            self.base = self.base.saturating_add(count);
        }
    }

    /// Consumes all bytes and returns them.
    pub(super) fn take_all(&mut self) -> &'a [u8] {
        let rest = self.rest();
        self.at = self.data.len();
        rest
    }

    /// Unconsumes bytes; at most as many as were consumed of this piece.
    pub(super) const fn unconsume(&mut self, count: usize) {
        self.at = self.at.saturating_sub(count);
    }

    /// Runs the state machine on bytes that were held before the present ones. `run`: the state machine of
    /// the direction.
    pub(super) fn replay(
        &mut self,
        held: &[u8],
        run: impl FnOnce(&mut Feed<'_>) -> HttpParseStep,
    ) -> HttpParseStep {
        let base = self.position().saturating_sub(held.len() as u64);
        let joined = [held, self.take_all()].concat();
        let mut again = Feed::data(&joined).from(base);
        let step = run(&mut again);
        // Bytes that are held back for the other side are handed in again.
        self.unconsume(again.rest().len());
        step
    }

    /// Bytes consumed so far.
    pub(super) const fn consumed(&self) -> usize {
        self.at
    }
}

/// The result of a state machine's step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HttpParseStep {
    /// Continue with the next state.
    Again,
    /// More data is needed; all input is consumed.
    More,
    /// The other direction must be parsed first.
    Wait,
    /// The direction cannot be parsed any further.
    Fail,
}

/// State of a direction as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HttpDirectionStatus {
    Open,
    /// No more data will come.
    Closed,
    Failed,
    /// Later data is not HTTP.
    Tunnel,
}
