// SPDX-License-Identifier: Apache-2.0
//! Collects events and writes them in large pieces to a file or standard output. After an error no incomplete
//! line stays if that can be avoided.

use super::ledger::Ledger;
use super::lines::{BUFFER_BYTES, lines, seconds_of, timestamp_of};
use std::io::{self, ErrorKind};
use std::path::PathBuf;

/// The target of a buffered output.
pub(super) trait Medium {
    /// Writes some of the bytes.
    fn write_some(&mut self, bytes: &[u8]) -> io::Result<usize>;
    /// Flushes bytes that the medium itself holds back.
    fn finish(&mut self) -> io::Result<()>;
    /// Removes the last `bytes` written: a line that could not be completed.
    fn take_back(&mut self, bytes: usize) -> io::Result<()>;
    /// Whether the file must be rotated before `bytes` more are written.
    fn is_full(&mut self, _bytes: usize) -> bool {
        false
    }
    /// Whether the time of a new name has come.
    fn is_renamed(&mut self) -> bool {
        false
    }
    /// Whether the medium depends on the times of events.
    fn is_timed(&self) -> bool {
        false
    }
    /// Whether the file must be rotated for events from this second on.
    fn is_due(&mut self, _second: u64) -> bool {
        false
    }
    /// Begins a new file and keeps the old one under another name.
    fn rotate(&mut self) -> io::Result<()> {
        Ok(())
    }
    /// Opens the output again under its name.
    fn reopen(&mut self) -> io::Result<()> {
        Ok(())
    }
    /// Whether another program has removed the file, so that written data is lost.
    fn is_gone(&self) -> bool {
        false
    }
}

impl Medium for io::Stdout {
    fn write_some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::Write::write(self, bytes)
    }

    fn finish(&mut self) -> io::Result<()> {
        io::Write::flush(self)
    }

    fn take_back(&mut self, _bytes: usize) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }
}

/// An output with a buffer; see the module.
#[derive(Debug)]
pub(super) struct Buffered<M> {
    medium: M,
    buffer: Vec<u8>,
    /// The last line in the medium is incomplete.
    torn: bool,
    ledger: Ledger,
}

impl<M: Medium> Buffered<M> {
    pub(super) fn new(path: PathBuf, medium: M) -> Self {
        Buffered {
            medium,
            buffer: Vec::with_capacity(BUFFER_BYTES),
            torn: false,
            ledger: Ledger::new(path, true),
        }
    }

    pub(super) fn write_event(&mut self, event: &[u8]) {
        self.reopen_if_asked();
        if self.buffer.len() + event.len() >= BUFFER_BYTES {
            self.write_out();
        }
        self.buffer.extend_from_slice(event);
        self.buffer.push(b'\n');
        if self.buffer.len() >= BUFFER_BYTES {
            self.write_out();
        }
    }

    pub(super) fn flush(&mut self) {
        self.write_out();
        if let Err(error) = self.medium.finish() {
            self.ledger.fail(&error);
        }
        self.reopen_if_asked();
    }

    fn reopen_if_asked(&mut self) {
        if self.ledger.watch.reopen_asked() {
            self.reopen();
        }
    }

    /// Reports losses at the end, without an event after them, if the medium takes a line.
    pub(super) fn finish(&mut self) {
        self.report_losses(b"");
    }

    pub(super) fn rotate(&mut self) {
        self.flush();
        self.begin_new();
    }

    pub(super) fn reopen(&mut self) {
        self.flush();
        match self.medium.reopen() {
            Ok(()) => {
                self.torn = false;
                self.ledger.report_rotated();
            }
            Err(error) => self.ledger.fail_to_put_aside(&error),
        }
    }

    pub(super) const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(super) const fn ledger_mut(&mut self) -> &mut Ledger {
        &mut self.ledger
    }

    #[cfg(test)]
    pub(super) fn medium_mut(&mut self) -> &mut M {
        &mut self.medium
    }

    fn begin_new(&mut self) {
        match self.medium.rotate() {
            Ok(()) => {
                self.torn = false;
                self.ledger.counters.rotations += 1;
                self.ledger.report_rotated();
            }
            // The old file is continued: a file above its limit is better than lost events.
            Err(error) => self.ledger.fail_to_put_aside(&error),
        }
    }

    /// Writes the buffer, after the record of earlier losses.
    pub(super) fn write_out(&mut self) {
        if self.buffer.is_empty() {
            return;
        }
        if self.medium.is_gone() {
            match self.medium.reopen() {
                Ok(()) => self.torn = false,
                // The system would take the bytes, and no reader could get them.
                Err(error) => {
                    self.ledger.fail(&error);
                    self.ledger.lose(lines(&self.buffer), &self.buffer);
                    self.buffer.clear();
                    return;
                }
            }
        }
        let first = self.buffer.strip_prefix(&*self.ledger.prefix).unwrap_or(&self.buffer);
        let time = self.medium.is_timed().then(|| seconds_of(timestamp_of(first))).flatten();
        if self.medium.is_renamed()
            || time.is_some_and(|second| self.medium.is_due(second))
            || self.medium.is_full(self.buffer.len())
        {
            self.begin_new();
        }
        let events = core::mem::take(&mut self.buffer);
        self.ledger.note_time(&events);
        if self.report_losses(&events) {
            let (whole, result) = self.write_lines(&events);
            self.ledger.count_written(whole);
            match result {
                Ok(()) => self.ledger.works(),
                Err(error) => {
                    self.ledger.fail(&error);
                    self.ledger.lose(lines(&events).saturating_sub(whole), &events);
                }
            }
        } else {
            self.ledger.lose(lines(&events), &events);
        }
        self.buffer = events;
        self.buffer.clear();
    }

    /// Writes the loss record, if one is due. Returns `false` if the medium still takes nothing.
    fn report_losses(&mut self, next: &[u8]) -> bool {
        let Some(mut line) = self.ledger.loss_line(next) else { return true };
        if self.torn {
            line.insert(0, b'\n');
        }
        match self.write_lines(&line) {
            (_, Ok(())) => {
                self.torn = false;
                self.ledger.unreported = 0;
                true
            }
            (_, Err(error)) => {
                self.ledger.fail(&error);
                false
            }
        }
    }

    /// Writes lines; returns the number of complete lines in the medium. An incomplete last line is removed.
    fn write_lines(&mut self, bytes: &[u8]) -> (u64, io::Result<()>) {
        let mut rest = bytes;
        let mut written = 0usize;
        let result = loop {
            if rest.is_empty() {
                break Ok(());
            }
            match self.medium.write_some(rest) {
                Ok(0) => break Err(ErrorKind::WriteZero.into()),
                Ok(some) => {
                    written += some.min(rest.len());
                    rest = rest.get(some..).unwrap_or_default();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        let mut kept = bytes.get(..written).unwrap_or(bytes);
        if result.is_err() {
            let end = kept.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let part = kept.len() - end;
            if part > 0 && self.medium.take_back(part).is_err() {
                self.torn = true;
            } else {
                kept = kept.get(..end).unwrap_or(kept);
            }
        }
        self.ledger.counters.bytes += kept.len() as u64;
        (lines(kept), result)
    }
}
