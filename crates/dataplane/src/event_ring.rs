// SPDX-License-Identifier: Apache-2.0
//! The ring between a worker and the writer of events: the worker puts finished lines in, the writer takes
//! them out.
//!
//! A ring is a fixed number of bytes, reserved once; a line is copied in and published as a whole. On live
//! traffic a full ring never delays a worker ([`RingFullPolicy::Lose`]): the event is counted as lost, and
//! the next event that fits is preceded by a message with the number of lost ones, so that the output reports
//! the loss at its place. Captures have no traffic that could be delayed, and their result must not depend on
//! the speed of a disk: the worker waits ([`RingFullPolicy::Wait`]).
//!
//! Memory ordering is that of the ring (crate `rtrb`): its tail is stored with `Release` after the bytes of a
//! message are written, and loaded with `Acquire` before they are read; one store publishes the whole
//! message, so a reader never sees part of one. No other state is shared. The end of the ring is the drop of
//! the sender, also `Release`, so a receiver that has seen the end sees all earlier messages.
//!
//! Not done: one ring for several workers (each has its own; order holds within a worker only).

use bartizan_events::JsonWriter;
use bartizan_events::record::LossRecord;
use rtrb::{Consumer, Producer, RingBuffer};
use std::time::Duration;

/// Default size of a ring in bytes: some thousands of events.
pub const RING_BYTES: usize = 4 << 20;
/// Bytes of a message's header: kind, output, length.
const HEAD: usize = 8;
/// A message that holds an event.
const EVENT: u16 = 0;
/// A message with the number of events lost before the next one.
const LOSS: u16 = 1;
/// A message that announces the end of the worker's run.
const END: u16 = 2;
/// Sleep of the writer, and of a worker that may wait, when there is nothing to do.
const POLL_INTERVAL: Duration = Duration::from_micros(500);
/// Sleeps without an event after which the sink flushes.
const IDLE_NAPS: u32 = 20;
/// Time text of a loss report that no event precedes or follows.
const NO_TIME: &str = "1970-01-01T00:00:00.000000+0000";

/// Policy for an event that does not fit into the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingFullPolicy {
    /// The event is lost and counted, since live traffic goes on.
    Lose,
    /// The worker waits for the writer: for captures.
    Wait,
}

/// Counters of a ring; `sent + lost` is the number of all events offered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingCounters {
    /// Events that went into the ring.
    pub sent: u64,
    /// Events that were lost because the ring was full.
    pub lost: u64,
    /// Bytes of the events sent.
    pub bytes: u64,
}

impl RingCounters {
    /// The sum of two rings.
    #[must_use]
    pub const fn plus(self, other: RingCounters) -> RingCounters {
        RingCounters {
            sent: self.sent + other.sent,
            lost: self.lost + other.lost,
            bytes: self.bytes + other.bytes,
        }
    }

    /// Each counter by name.
    pub fn for_each(&self, mut each: impl FnMut(&'static str, u64)) {
        each("events.ring.sent", self.sent);
        each("events.ring.lost", self.lost);
    }
}

/// A ring of `bytes` bytes.
#[must_use]
pub fn event_ring(bytes: usize, when_full: RingFullPolicy) -> (EventSender, EventReceiver) {
    let (ring, consumer) = RingBuffer::new(bytes.max(HEAD * 4));
    let sender = EventSender {
        ring,
        when_full,
        unreported: Vec::new(),
        message: Vec::new(),
        counters: RingCounters::default(),
    };
    (sender, EventReceiver { ring: consumer, wrapped: Vec::new() })
}

/// The worker's end.
#[derive(Debug)]
pub struct EventSender {
    ring: Producer<u8>,
    when_full: RingFullPolicy,
    /// Losses not yet reported to the writer, by output.
    unreported: Vec<u64>,
    message: Vec<u8>,
    counters: RingCounters,
}

impl EventSender {
    /// The ring's counters.
    #[must_use]
    pub const fn counters(&self) -> RingCounters {
        self.counters
    }

    /// From now on the worker waits for room, and the writer for readers: the run is ending, so waiting
    /// delays no traffic.
    pub fn ending(&mut self) {
        if self.when_full == RingFullPolicy::Lose {
            self.when_full = RingFullPolicy::Wait;
            self.message.clear();
            append(&mut self.message, END, 0, &[]);
            self.push();
        }
    }

    /// Sends one event without its line end. `false`: the event was lost, and the loss counted.
    pub fn send(&mut self, output: u16, line: &[u8]) -> bool {
        self.message.clear();
        let lost = self.unreported.get(usize::from(output)).copied().unwrap_or(0);
        if lost > 0 {
            append(&mut self.message, LOSS, output, &lost.to_le_bytes());
        }
        append(&mut self.message, EVENT, output, line);
        if self.push() {
            if let Some(count) = self.unreported.get_mut(usize::from(output)) {
                *count = 0;
            }
            self.counters.sent += 1;
            self.counters.bytes += line.len() as u64;
            return true;
        }
        while self.unreported.len() <= usize::from(output) {
            self.unreported.push(0);
        }
        if let Some(count) = self.unreported.get_mut(usize::from(output)) {
            *count += 1;
        }
        self.counters.lost += 1;
        false
    }

    /// Puts the message into the ring; waits for room if the policy allows and the message can ever fit.
    fn push(&mut self) -> bool {
        loop {
            if self.ring.push_entire_slice(&self.message).is_ok() {
                return true;
            }
            let helps = self.message.len() <= self.ring.buffer().capacity() && !self.ring.is_abandoned();
            if self.when_full == RingFullPolicy::Lose || !helps {
                return false;
            }
            std::thread::park_timeout(POLL_INTERVAL);
        }
    }

    /// Ends the ring, after its last losses are reported to the writer; waits until there is room for the
    /// reports.
    pub fn finish(mut self) -> RingCounters {
        self.when_full = RingFullPolicy::Wait;
        for output in 0..self.unreported.len() {
            let lost = self.unreported.get(output).copied().unwrap_or(0);
            if lost > 0 {
                self.message.clear();
                append(&mut self.message, LOSS, output as u16, &lost.to_le_bytes());
                self.push();
            }
        }
        self.counters
    }
}

fn append(message: &mut Vec<u8>, kind: u16, output: u16, body: &[u8]) {
    message.extend_from_slice(&kind.to_le_bytes());
    message.extend_from_slice(&output.to_le_bytes());
    // A line of 4 GiB fits no ring; the length is never cut in a message that is sent.
    message.extend_from_slice(&u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes());
    message.extend_from_slice(body);
}

/// A message of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingItem<'a> {
    /// An event of this output.
    Event(u16, &'a [u8]),
    /// Number of events of this output that were lost at this place.
    Lost(u16, u64),
    /// The run is ending: later messages need not be lost.
    Ending,
}

/// The writer's end.
#[derive(Debug)]
pub struct EventReceiver {
    ring: Consumer<u8>,
    /// Copy of a message that wraps around the ring's end.
    wrapped: Vec<u8>,
}

impl EventReceiver {
    /// Takes all available messages. Returns their number.
    pub fn drain(&mut self, mut each: impl FnMut(RingItem<'_>)) -> usize {
        let bytes = self.ring.slots();
        if bytes == 0 {
            return 0;
        }
        let Ok(chunk) = self.ring.read_chunk(bytes) else { return 0 };
        let (first, second) = chunk.as_slices();
        let mut rest = first;
        if !second.is_empty() {
            self.wrapped.clear();
            self.wrapped.extend_from_slice(first);
            self.wrapped.extend_from_slice(second);
            rest = &self.wrapped;
        }
        let mut messages = 0;
        while let Some((item, after)) = next(rest) {
            each(item);
            messages += 1;
            rest = after;
        }
        chunk.commit_all();
        messages
    }

    /// Whether the sender is gone. Its earlier messages remain available.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ring.is_abandoned()
    }
}

fn next(bytes: &[u8]) -> Option<(RingItem<'_>, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<HEAD>()?;
    let [k0, k1, o0, o1, l0, l1, l2, l3] = *head;
    let (body, rest) = rest.split_at_checked(u32::from_le_bytes([l0, l1, l2, l3]) as usize)?;
    let output = u16::from_le_bytes([o0, o1]);
    let item = match u16::from_le_bytes([k0, k1]) {
        LOSS => RingItem::Lost(output, body.first_chunk().map_or(0, |b| u64::from_le_bytes(*b))),
        END => RingItem::Ending,
        _ => RingItem::Event(output, body),
    };
    Some((item, rest))
}

/// The writer's target for lines.
pub trait LineSink {
    /// Takes one event of an output, without its line end.
    fn line(&mut self, output: u16, line: &[u8]);

    /// Reports that events of an output were lost in a ring. `false`: the loss needs a record among the
    /// output's lines; `true`: the sink informs readers itself.
    fn lost(&mut self, output: u16, events: u64) -> bool {
        let _ = (output, events);
        false
    }

    /// The run is ending: waiting delays no traffic any more.
    fn ending(&mut self) {}

    /// The output's name, for reports of losses.
    fn name(&self, output: u16) -> String;

    /// Called after each round over all rings.
    fn turn(&mut self) {}

    /// No messages are available: the sink can flush.
    fn idle(&mut self) {}
}

/// Writes the messages of the rings until all senders are gone. A ring's lines stay in order. Losses become
/// records of type `bartizan`.
pub fn write_all(mut rings: Vec<EventReceiver>, sink: &mut dyn LineSink) {
    let mut losses = Losses::default();
    let mut naps = 0u32;
    while !rings.is_empty() {
        let mut messages = 0;
        rings.retain_mut(|ring| {
            // The end first, then the content: messages sent before the end are then seen in any case.
            let ended = ring.has_ended();
            messages += ring.drain(|item| losses.write(item, sink));
            !ended
        });
        sink.turn();
        if messages > 0 {
            naps = 0;
            continue;
        }
        naps = naps.wrapping_add(1);
        // Repeated while idle: outputs may be requested to reopen meanwhile.
        if naps.is_multiple_of(IDLE_NAPS) {
            sink.idle();
        }
        std::thread::park_timeout(POLL_INTERVAL);
    }
    losses.finish(sink);
}

/// Losses to be reported before the next event of their output, with that event's time.
#[derive(Default)]
struct Losses {
    pending: Vec<(u16, u64)>,
    last_time: String,
    writer: JsonWriter,
}

impl Losses {
    fn write(&mut self, item: RingItem<'_>, sink: &mut dyn LineSink) {
        match item {
            RingItem::Lost(output, events) => {
                if !sink.lost(output, events) {
                    self.pending.push((output, events));
                }
            }
            RingItem::Ending => sink.ending(),
            RingItem::Event(output, line) => {
                if !self.pending.is_empty() {
                    self.last_time.clear();
                    self.last_time.push_str(time_of(line));
                    self.write_losses(Some(output), sink);
                }
                sink.line(output, line);
            }
        }
    }

    /// Writes the loss records of one output, or of all.
    fn write_losses(&mut self, only: Option<u16>, sink: &mut dyn LineSink) {
        let time = if self.last_time.is_empty() { NO_TIME } else { &self.last_time };
        let writer = &mut self.writer;
        self.pending.retain(|&(output, lost_events)| {
            if only.is_some_and(|only| only != output) {
                return true;
            }
            let name = sink.name(output);
            LossRecord { timestamp: time, output: &name, lost_events }.write(writer);
            sink.line(output, writer.bytes());
            false
        });
    }

    fn finish(&mut self, sink: &mut dyn LineSink) {
        self.write_losses(None, sink);
    }
}

/// The time text of an event; every event begins with it.
fn time_of(line: &[u8]) -> &str {
    let text = line.strip_prefix(br#"{"timestamp":""#).and_then(|rest| {
        let end = rest.iter().position(|byte| *byte == b'"')?;
        core::str::from_utf8(rest.get(..end)?).ok()
    });
    text.unwrap_or(NO_TIME)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Lines(Vec<(u16, String)>);

    impl LineSink for Lines {
        fn line(&mut self, output: u16, line: &[u8]) {
            self.0.push((output, String::from_utf8(line.to_vec()).unwrap()));
        }

        fn name(&self, output: u16) -> String {
            format!("out{output}")
        }
    }

    #[test]
    fn lines_come_out_whole_and_in_order_however_the_ring_wraps() {
        let (mut sender, mut receiver) = event_ring(100, RingFullPolicy::Lose);
        let mut got = Vec::new();
        for number in 0..500u32 {
            let line = format!("{number}:{}", "x".repeat((number % 37) as usize));
            assert!(sender.send((number % 3) as u16, line.as_bytes()));
            if number % 2 == 1 || number % 37 > 15 {
                receiver.drain(|item| {
                    let RingItem::Event(output, line) = item else { panic!("nothing was lost") };
                    got.push((output, line.to_vec()));
                });
            }
        }
        receiver.drain(|item| {
            let RingItem::Event(output, line) = item else { panic!("nothing was lost") };
            got.push((output, line.to_vec()));
        });
        for (number, (output, line)) in (0u32..).zip(&got) {
            assert_eq!(u32::from(*output), number % 3);
            assert!(line.starts_with(format!("{number}:").as_bytes()));
        }
        assert_eq!((got.len(), sender.counters().sent, sender.counters().lost), (500, 500, 0));
    }

    #[test]
    fn a_full_ring_loses_counts_and_tells_where() {
        let (mut sender, mut receiver) = event_ring(64, RingFullPolicy::Lose);
        let line = br#"{"timestamp":"2026-01-02T03:04:05.000006+0000"}"#;
        assert!(sender.send(0, line));
        for _ in 0..7 {
            assert!(!sender.send(0, line));
        }
        assert_eq!(receiver.drain(|_| {}), 1);
        // Together with the loss report the line does not fit: an eighth loss. A shorter line does.
        assert!(!sender.send(0, line));
        assert!(sender.send(0, b"{\"timestamp\":\"t\"}"));
        let mut items = Vec::new();
        receiver.drain(|item| {
            items.push(match item {
                RingItem::Event(..) | RingItem::Ending => 0,
                RingItem::Lost(output, count) => {
                    assert_eq!(output, 0);
                    count
                }
            })
        });
        assert_eq!(items, [8, 0]);
        assert_eq!(sender.counters(), RingCounters { sent: 2, lost: 8, bytes: line.len() as u64 + 17 });
    }

    #[test]
    fn losses_are_written_before_the_next_event_and_at_the_end() {
        let (mut sender, receiver) = event_ring(80, RingFullPolicy::Lose);
        let line = br#"{"timestamp":"T1","event_type":"flow"}"#;
        assert!(sender.send(1, line));
        assert!(!sender.send(1, &[b' '; 60]));
        assert!(!sender.send(0, &[b' '; 60]));
        let writer = std::thread::spawn(move || {
            let mut lines = Lines::default();
            write_all(vec![receiver], &mut lines);
            lines.0
        });
        // `finish` waits for room, then ends the ring.
        let counters = sender.finish();
        let lines = writer.join().unwrap();
        assert_eq!((counters.sent, counters.lost), (1, 2));
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[0], (1, String::from_utf8(line.to_vec()).unwrap()));
        assert!(lines[1].1.contains(r#""lost_events":1,"output":"out0""#), "{}", lines[1].1);
        assert!(lines[2].1.contains(r#""lost_events":1,"output":"out1""#), "{}", lines[2].1);
    }

    #[test]
    fn a_worker_that_may_wait_loses_nothing_but_what_fits_no_ring() {
        let (mut sender, receiver) = event_ring(128, RingFullPolicy::Wait);
        let writer = std::thread::spawn(move || {
            let mut lines = Lines::default();
            write_all(vec![receiver], &mut lines);
            lines.0.len()
        });
        for _ in 0..50 {
            assert!(sender.send(0, &[b'a'; 90]));
        }
        assert!(!sender.send(0, &[b'a'; 200]));
        let counters = sender.finish();
        assert_eq!((counters.sent, counters.lost), (50, 1));
        assert_eq!(writer.join().unwrap(), 51);
    }
}
