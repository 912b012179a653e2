// SPDX-License-Identifier: Apache-2.0
//! One direction of a stream in the engine: bytes in private memory, the stages that inspect them, and the
//! bytes that may leave.
//!
//! A stream between two guests has two stages in one pipe: the sender's, then the receiver's, which sees
//! only what the first passed.

use crate::inspect::{PayloadDirection, PayloadInspector, PayloadVerdict, PayloadWindow, StreamInfo};
use crate::reason::StreamRefusal;
use std::time::Duration;

/// Stages of a pipe at most.
const STAGES: usize = 2;

/// Limits of holding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HoldLimits {
    /// Bytes of one direction that may be held.
    pub(crate) bytes: usize,
    /// Bytes held for too long, or too many, leave uninspected; else the stream is blocked.
    pub(crate) fails_open: bool,
}

/// A stage: the stream as which its inspector knows these bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PipeStage<'s> {
    pub(crate) info: &'s StreamInfo,
    pub(crate) direction: PayloadDirection,
}

/// The refusal of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StageRefusal {
    /// The stage is the second: the receiver's stream is blocked.
    pub(crate) is_receivers: bool,
    /// The reason.
    pub(crate) reason: StreamRefusal,
}

#[derive(Debug, Default)]
struct StageState {
    /// Bytes of the buffer that passed.
    passed: usize,
    /// Bytes of the buffer that the inspector has seen.
    seen: usize,
    /// Position of the first byte that did not pass, in the bytes that this stage gets.
    position: u64,
    /// The rest passes without a call.
    bypassed: bool,
    /// The inspector was told of the end.
    end_seen: bool,
    /// The inspector is asked again, also without new bytes.
    is_due: bool,
}

/// One direction of a stream.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    bytes: Vec<u8>,
    stages: [StageState; STAGES],
    /// No bytes come any more.
    pub(crate) ended: bool,
    /// Time after which the inspector wants to be asked again about the bytes that it holds.
    pub(crate) retry_after: Option<Duration>,
    /// Bytes that left.
    pub(crate) total: u64,
}

impl Pipe {
    /// Bytes in the engine's memory.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The end of the buffer, where the source appends.
    pub(crate) fn tail(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Lends a buffer with room to an empty pipe, so that it need not allocate.
    pub(crate) fn borrow(&mut self, spare: &mut Vec<u8>) {
        if self.bytes.capacity() == 0 {
            std::mem::swap(&mut self.bytes, spare);
        }
    }

    /// Takes the buffer back from an empty pipe.
    pub(crate) fn reclaim_buffer(&mut self, spare: &mut Vec<u8>) {
        if self.bytes.is_empty() && spare.capacity() == 0 {
            std::mem::swap(&mut self.bytes, spare);
        } else if self.bytes.is_empty() && self.bytes.capacity() > 0 {
            self.bytes = Vec::new();
        }
    }

    /// The bytes that may leave after these many stages.
    pub(crate) fn released(&self, stages: usize) -> &[u8] {
        let passed = self.stages.get(stages.wrapping_sub(1)).map_or(0, |stage| stage.passed);
        self.bytes.get(..passed).unwrap_or_default()
    }

    /// The first bytes left.
    pub(crate) fn consume(&mut self, count: usize) {
        let count = count.min(self.bytes.len());
        self.bytes.drain(..count);
        for stage in &mut self.stages {
            stage.passed = stage.passed.saturating_sub(count);
            stage.seen = stage.seen.saturating_sub(count);
        }
        self.total += count as u64;
    }

    /// All bytes left, and none come any more.
    pub(crate) fn is_done(&self) -> bool {
        self.ended && self.bytes.is_empty()
    }

    /// Bytes that some stage holds.
    pub(crate) fn held(&self, stages: usize) -> usize {
        self.bytes.len() - self.released(stages).len()
    }

    /// Forgets all bytes: the stream is blocked or reset.
    pub(crate) fn clear(&mut self) {
        self.bytes = Vec::new();
        self.stages = <[StageState; STAGES]>::default();
        self.retry_after = None;
    }

    /// Whether the inspector is to be asked again.
    pub(crate) fn is_due(&self) -> bool {
        self.stages.iter().any(|stage| stage.is_due)
    }

    /// Has the inspector asked again about bytes that it holds.
    pub(crate) fn retry(&mut self) {
        if self.retry_after.take().is_some() {
            self.stages.iter_mut().for_each(|stage| stage.is_due = true);
        }
    }

    /// Lets held bytes leave uninspected, after the time-out of holding.
    pub(crate) fn release_held(&mut self, stages: usize) {
        let end = self.bytes.len();
        for stage in self.stages.iter_mut().take(stages) {
            stage.position += (end - stage.passed.min(end)) as u64;
            stage.passed = end;
            stage.seen = end;
        }
        self.retry_after = None;
    }

    /// Runs all stages over what they have not seen.
    ///
    /// # Errors
    /// The stage whose stream is blocked, and the reason.
    pub(crate) fn inspect(
        &mut self,
        inspector: &mut dyn PayloadInspector,
        stages: &[PipeStage<'_>],
        limits: HoldLimits,
    ) -> Result<(), StageRefusal> {
        for (index, stage) in stages.iter().enumerate() {
            self.run_stage(inspector, index, stage, limits)
                .map_err(|reason| StageRefusal { is_receivers: index > 0, reason })?;
        }
        Ok(())
    }

    fn run_stage(
        &mut self,
        inspector: &mut dyn PayloadInspector,
        index: usize,
        stage: &PipeStage<'_>,
        limits: HoldLimits,
    ) -> Result<(), StreamRefusal> {
        loop {
            let before = index.checked_sub(1).and_then(|before| self.stages.get(before));
            let limit = before.map_or(self.bytes.len(), |before| before.passed);
            let end = self.ended && limit == self.bytes.len();
            let Some(own) = self.stages.get_mut(index) else { return Ok(()) };
            if own.bypassed {
                own.position += (limit - own.passed.min(limit)) as u64;
                own.passed = limit;
                return Ok(());
            }
            let window = self.bytes.get(own.passed..limit).unwrap_or_default();
            let fresh = own.seen.saturating_sub(own.passed).min(window.len());
            // Bytes that passed meanwhile need no second answer.
            let is_due = std::mem::take(&mut own.is_due) && !window.is_empty();
            if fresh == window.len() && (!end || own.end_seen) && !is_due {
                return Ok(());
            }
            let (direction, position) = (stage.direction, own.position);
            let payload = PayloadWindow { direction, position, bytes: window, fresh, end };
            let length = window.len();
            let verdict = inspector.inspect(stage.info, payload);
            own.seen = limit;
            own.end_seen = end;
            let mut waits = None;
            let passed = match verdict {
                PayloadVerdict::Pass(count) => count.min(length),
                PayloadVerdict::Hold { retry_after } => {
                    waits = retry_after.filter(|_| length > 0);
                    0
                }
                PayloadVerdict::Drop => return Err(StreamRefusal::Function),
                PayloadVerdict::Bypass => {
                    own.bypassed = true;
                    continue;
                }
                PayloadVerdict::Replace { range, with } => {
                    // Each replacement covers a byte, so that the loop ends.
                    if range.start > range.end || range.end > length || range.end == 0 {
                        return Err(StreamRefusal::Function);
                    }
                    self.replace(index, range, &with);
                    continue;
                }
            };
            own.passed += passed;
            own.position += passed as u64;
            if let Some(time) = waits {
                self.retry_after = Some(self.retry_after.map_or(time, |other| other.min(time)));
            }
            return self.bound_held(index, limit, end && waits.is_none(), limits);
        }
    }

    /// Replaces bytes of a stage's window and passes up to the end of the replacement.
    fn replace(&mut self, index: usize, range: std::ops::Range<usize>, with: &[u8]) {
        let Some(own) = self.stages.get_mut(index) else { return };
        let start = own.passed;
        own.passed += range.start + with.len();
        own.seen = own.passed;
        // The position counts the bytes that the stage got.
        own.position += range.end as u64;
        let removed = range.len();
        for before in self.stages.iter_mut().take(index) {
            before.passed = before.passed + with.len() - removed;
            before.seen = before.seen + with.len() - removed;
        }
        let _ = self.bytes.splice(start + range.start..start + range.end, with.iter().copied());
    }

    /// Compares what a stage holds with the limit. An end is not held: nothing more can come.
    fn bound_held(
        &mut self,
        index: usize,
        limit: usize,
        end: bool,
        limits: HoldLimits,
    ) -> Result<(), StreamRefusal> {
        let Some(own) = self.stages.get_mut(index) else { return Ok(()) };
        let held = limit - own.passed.min(limit);
        if held == 0 || (held <= limits.bytes && !end) {
            return Ok(());
        }
        if !limits.fails_open {
            return Err(if end { StreamRefusal::HeldTime } else { StreamRefusal::HeldBytes });
        }
        own.passed = limit;
        own.position += held as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::StreamId;
    use bartizan_base::TenantId;
    use std::net::{Ipv4Addr, SocketAddr};

    const LIMITS: HoldLimits = HoldLimits { bytes: 8, fails_open: false };
    const HOLD: PayloadVerdict = PayloadVerdict::Hold { retry_after: None };

    /// Answers with prepared verdicts and records what it saw.
    #[derive(Default)]
    struct Script {
        verdicts: Vec<PayloadVerdict>,
        seen: Vec<(u64, Vec<u8>, usize, bool)>,
    }

    impl PayloadInspector for Script {
        fn inspect(&mut self, _: &StreamInfo, window: PayloadWindow<'_>) -> PayloadVerdict {
            self.seen.push((window.position, window.bytes.to_vec(), window.fresh, window.end));
            if self.verdicts.is_empty() { PayloadVerdict::Pass(usize::MAX) } else { self.verdicts.remove(0) }
        }
    }

    fn info() -> StreamInfo {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        StreamInfo {
            id: StreamId(1),
            tenant: TenantId(1),
            guest: 0,
            process: 1,
            joined: None,
            local: address,
            peer: address,
            accepted: false,
            is_datagram: false,
            partner: None,
        }
    }

    fn run(pipe: &mut Pipe, script: &mut Script, limits: HoldLimits) -> Result<(), StreamRefusal> {
        let info = info();
        let stage = PipeStage { info: &info, direction: PayloadDirection::Outgoing };
        pipe.inspect(script, &[stage], limits).map_err(|refusal| refusal.reason)
    }

    #[test]
    fn held_bytes_are_shown_again_with_the_new_ones() {
        let mut script = Script { verdicts: vec![HOLD], ..Script::default() };
        let mut pipe = Pipe::default();
        pipe.tail().extend_from_slice(b"abc");
        run(&mut pipe, &mut script, LIMITS).unwrap();
        assert_eq!(pipe.released(1), b"");
        pipe.tail().extend_from_slice(b"de");
        run(&mut pipe, &mut script, LIMITS).unwrap();
        assert_eq!(pipe.released(1), b"abcde");
        pipe.consume(5);
        pipe.ended = true;
        run(&mut pipe, &mut script, LIMITS).unwrap();
        run(&mut pipe, &mut script, LIMITS).unwrap();
        let expected =
            [(0, b"abc".to_vec(), 0, false), (0, b"abcde".to_vec(), 3, false), (5, b"".to_vec(), 0, true)];
        assert_eq!(script.seen, expected);
        assert!(pipe.is_done());
    }

    #[test]
    fn a_replacement_leaves_in_place_of_the_bytes() {
        let replace = PayloadVerdict::Replace { range: 2..4, with: b"LONGER".to_vec() };
        let mut script = Script { verdicts: vec![replace, PayloadVerdict::Pass(1)], ..Script::default() };
        let mut pipe = Pipe::default();
        pipe.tail().extend_from_slice(b"abcdef");
        run(&mut pipe, &mut script, LIMITS).unwrap();
        assert_eq!(pipe.released(1), b"abLONGERe");
        assert_eq!(script.seen[1], (4, b"ef".to_vec(), 0, false));
        pipe.tail().extend_from_slice(b"g");
        run(&mut pipe, &mut script, LIMITS).unwrap();
        assert_eq!(pipe.released(1), b"abLONGERefg");
        assert_eq!(script.seen[2], (5, b"fg".to_vec(), 1, false));
    }

    #[test]
    fn the_second_stage_sees_what_the_first_passed() {
        let replace = PayloadVerdict::Replace { range: 0..1, with: Vec::new() };
        let verdicts = vec![replace, PayloadVerdict::Pass(2), PayloadVerdict::Pass(9)];
        let mut script = Script { verdicts, ..Script::default() };
        let info = info();
        let stages = [
            PipeStage { info: &info, direction: PayloadDirection::Outgoing },
            PipeStage { info: &info, direction: PayloadDirection::Incoming },
        ];
        let mut pipe = Pipe::default();
        pipe.tail().extend_from_slice(b"xabc");
        pipe.inspect(&mut script, &stages, LIMITS).unwrap();
        assert_eq!(script.seen[2].1, b"ab");
        assert_eq!((pipe.released(2), pipe.held(2)), (&b"ab"[..], 1));
    }

    #[test]
    fn a_bypass_ends_the_calls_of_its_direction() {
        let mut script = Script { verdicts: vec![PayloadVerdict::Bypass], ..Script::default() };
        let mut pipe = Pipe::default();
        for _ in 0..3 {
            pipe.tail().extend_from_slice(b"abc");
            run(&mut pipe, &mut script, LIMITS).unwrap();
            assert_eq!(pipe.released(1), b"abc");
            pipe.consume(3);
        }
        assert_eq!(script.seen.len(), 1);
    }

    #[test]
    fn holding_is_bounded_and_an_end_is_not_held() {
        for (count, end, fails_open, expected) in [
            (9, false, false, Err(StreamRefusal::HeldBytes)),
            (8, false, false, Ok(0)),
            (9, false, true, Ok(9)),
            (3, true, false, Err(StreamRefusal::HeldTime)),
            (3, true, true, Ok(3)),
        ] {
            let mut script = Script { verdicts: vec![HOLD], ..Script::default() };
            let mut pipe = Pipe { ended: end, ..Pipe::default() };
            pipe.tail().extend(std::iter::repeat_n(b'x', count));
            let result = run(&mut pipe, &mut script, HoldLimits { bytes: 8, fails_open });
            assert_eq!(result.map(|()| pipe.released(1).len()), expected, "{count} {end} {fails_open}");
        }
    }

    #[test]
    fn an_inspector_is_asked_again_about_what_it_holds_also_at_the_end() {
        let time = Duration::from_millis(5);
        let hold = PayloadVerdict::Hold { retry_after: Some(time) };
        let mut script = Script { verdicts: vec![hold.clone(), hold.clone(), hold], ..Script::default() };
        let mut pipe = Pipe::default();
        pipe.tail().extend_from_slice(b"abc");
        run(&mut pipe, &mut script, LIMITS).unwrap();
        assert_eq!(pipe.retry_after, Some(time));
        // Nothing new, and it is not asked before its time.
        run(&mut pipe, &mut script, LIMITS).unwrap();
        assert_eq!(script.seen.len(), 1);
        pipe.ended = true;
        run(&mut pipe, &mut script, LIMITS).unwrap();
        pipe.retry();
        run(&mut pipe, &mut script, LIMITS).unwrap();
        assert_eq!((script.seen.len(), pipe.released(1)), (3, &b""[..]));
        pipe.retry();
        run(&mut pipe, &mut script, LIMITS).unwrap();
        assert_eq!((script.seen.len(), pipe.released(1), pipe.retry_after), (4, &b"abc"[..], None));
        let last = (0, b"abc".to_vec(), 3, true);
        assert_eq!(script.seen.last(), Some(&last));
    }

    #[test]
    fn a_replacement_outside_of_the_window_blocks() {
        for range in [0..5, 4..4, 5..5] {
            let replace = PayloadVerdict::Replace { range: range.clone(), with: Vec::new() };
            let mut script = Script { verdicts: vec![replace], ..Script::default() };
            let mut pipe = Pipe::default();
            pipe.tail().extend_from_slice(b"abcd");
            let result = run(&mut pipe, &mut script, LIMITS);
            assert_eq!(result.is_err(), range.end > 4, "{range:?}");
        }
    }

    #[test]
    fn a_dropped_stream_says_so() {
        let mut script = Script { verdicts: vec![PayloadVerdict::Drop], ..Script::default() };
        let mut pipe = Pipe::default();
        pipe.tail().extend_from_slice(b"abcd");
        assert_eq!(run(&mut pipe, &mut script, LIMITS), Err(StreamRefusal::Function));
        assert_eq!(pipe.released(1), b"");
    }
}
