// SPDX-License-Identifier: Apache-2.0
//! A steady stream of numbered datagrams through a link, both ways, and a record of those that arrived.
//!
//! The stream goes on whatever happens to the link. For kinds that it waits for ([`Stream::waits_for`]),
//! few enough frames are under way that no queue between the ends overflows, however busy the machine is.
//! Frames that pass below overtake those that go through a worker, and one worker overtakes another, so the
//! slowest flow counts.

use super::traffic::{FIRST_PORT, flow_of, summed};
use crate::common::{address, until};
use bartizan_ports::{Batch, InlinePort, Port};
use bartizan_testkit::packet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Flows of the stream, of both versions of IP: the first of every two uses the bypassed port, the second the
/// inspected one.
const FLOWS: usize = 16;
pub const BYPASSED: u16 = 4000;
pub const INSPECTED: u16 = 5000;
/// The most frames of one side sent after the last one that has arrived. A virtual Ethernet pair has room for
/// 256.
pub const UNDER_WAY: u32 = 160;
/// The time without a frame after which the stream no longer waits for a flow: its frames are lost, which the
/// test finds.
const LOST: Duration = Duration::from_secs(5);
/// Bytes before the number in a payload, at an even offset.
const NUMBER: usize = 4;

/// The number of frames sent, of each flow and side: those of [`Stream::now`].
pub type Moment = Vec<u32>;

/// The two kinds of flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    Bypassed,
    Inspected,
}

/// The kind of a direction, by its number: two for each flow.
const fn kind(way: usize) -> Of {
    if (way / 2).is_multiple_of(2) { Of::Bypassed } else { Of::Inspected }
}

struct Shared {
    over: AtomicBool,
    /// Whether it waits for frames of a kind to arrive.
    waits: [AtomicBool; 2],
    sent: Vec<AtomicU32>,
    /// One more than the highest number that has arrived.
    seen: Vec<AtomicU32>,
}

/// See the module.
pub struct Stream {
    shared: Arc<Shared>,
    thread: JoinHandle<Vec<Vec<u8>>>,
}

/// A frame of a flow and side, without a number.
fn frame(way: usize) -> Vec<u8> {
    let (flow, side) = (way / 2, way % 2);
    let v6 = flow / 2 % 2 == 1;
    let port = if kind(way) == Of::Bypassed { BYPASSED } else { INSPECTED };
    let ends = [(address(v6, 1), FIRST_PORT + flow as u16), (address(v6, 2), port)];
    packet::udp(ends[side], ends[1 - side], &[0; 64]).frame()
}

/// The offset of the UDP header of such a frame.
fn datagram(frame: &[u8]) -> usize {
    if frame[12..14] == [8, 0] { 34 } else { 54 }
}

/// The sum of a frame's pseudo header (RFC 768, RFC 8200 section 8.1): a checksum left to a device has this
/// value, so the level passes up the one of 65,536 frames that has it by chance.
fn left_open(frame: &[u8]) -> u16 {
    let at = datagram(frame);
    let addresses = if at == 34 { &frame[26..34] } else { &frame[22..54] };
    let words = addresses.chunks(2).chain([&frame[at + 4..at + 6]]);
    let sum: u32 = words.map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum::<u32>() + 17;
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// Writes a number into a frame, and before it a word with which the checksum is neither 0 nor `left_open`.
fn number(frame: &mut [u8], number: u32, sum: u16, left_open: u16) {
    let at = datagram(frame);
    let sums = (0..).map(|beside| (beside, summed(sum, [number, beside])));
    // One of 0 would be none.
    let mut plain = sums.filter(|(_, sum)| *sum != 0 && *sum != left_open);
    let (beside, sum) = plain.next().expect("nearly all are");
    frame[at + 8 + NUMBER - 4..][..4].copy_from_slice(&u32::to_be_bytes(beside));
    frame[at + 8 + NUMBER..][..4].copy_from_slice(&number.to_be_bytes());
    frame[at + 6..at + 8].copy_from_slice(&sum.to_be_bytes());
}

/// One end of the link.
struct End {
    port: InlinePort,
    /// Frames of the side that sends from this end, with their checksums, and the values that these must not
    /// have.
    frames: Vec<(usize, Vec<u8>, [u16; 2])>,
    sent: u64,
    /// The last frame that has arrived of each flow sent from this end, and when.
    arrived: [(u64, Instant); FLOWS],
}

impl End {
    fn new(port: InlinePort, side: usize) -> Self {
        let frames = (0..FLOWS).map(|flow| {
            let frame = frame(2 * flow + side);
            let at = datagram(&frame);
            let sum = u16::from_be_bytes([frame[at + 6], frame[at + 7]]);
            let left_open = left_open(&frame);
            (2 * flow + side, frame, [sum, left_open])
        });
        End { frames: frames.collect(), port, sent: 0, arrived: [(0, Instant::now()); FLOWS] }
    }

    /// Sends the frames that are due, as far as there is room.
    fn send(&mut self, due: u64, shared: &Shared) {
        let waits = shared.waits.each_ref().map(|waits| waits.load(Ordering::Relaxed));
        let flows = self.arrived.iter().enumerate();
        let waited_for =
            flows.filter(|(flow, (_, last))| waits[kind(2 * flow) as usize] && last.elapsed() < LOST);
        let slowest = waited_for.map(|(_, (arrived, _))| *arrived).min();
        let room = slowest.map_or(self.sent + 32, |arrived| arrived + u64::from(UNDER_WAY));
        while self.sent < due.min(room) {
            let at = self.sent as usize % FLOWS;
            let (way, frame, [sum, left_open]) = &mut self.frames[at];
            let own = (self.sent / FLOWS as u64) as u32;
            number(frame, own, *sum, *left_open);
            self.port.transmit_frame(frame).unwrap();
            self.sent += 1;
            shared.sent[*way].store(own + 1, Ordering::Release);
        }
        self.port.flush().unwrap();
        assert_eq!(self.port.pending(), 0, "the kernel takes what is sent");
    }
}

impl Stream {
    /// Begins the stream, with so many frames a second of each side, without waiting for any.
    pub fn begin(ports: [InlinePort; 2], rate: u64) -> Self {
        let counts = || (0..2 * FLOWS).map(|_| AtomicU32::new(0)).collect();
        let (over, waits) = (AtomicBool::new(false), [AtomicBool::new(false), AtomicBool::new(false)]);
        let shared = Arc::new(Shared { over, waits, sent: counts(), seen: counts() });
        let own = Arc::clone(&shared);
        let thread = std::thread::spawn(move || run(ports, rate, &own));
        Stream { shared, thread }
    }

    /// Makes the stream wait for the frames of these kinds, which pass; those of others may all be lost.
    pub fn waits_for(&self, kinds: &[Of]) {
        for kind in [Of::Bypassed, Of::Inspected] {
            self.shared.waits[kind as usize].store(kinds.contains(&kind), Ordering::Relaxed);
        }
    }

    /// The number of frames sent so far.
    pub fn now(&self) -> Moment {
        self.shared.sent.iter().map(|count| count.load(Ordering::Acquire)).collect()
    }

    /// Waits until a frame of each flow has arrived that is sent from now on.
    pub fn arrives(&self, what: &str) -> Moment {
        let now = self.now();
        until(what, || {
            now.iter().zip(&self.shared.seen).all(|(sent, seen)| seen.load(Ordering::Acquire) > *sent)
        });
        self.now()
    }

    /// Ends the stream; returns the frames that arrived.
    pub fn end(self) -> Arrived {
        self.shared.over.store(true, Ordering::Relaxed);
        let sent = Arc::clone(&self.shared);
        let seen = self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Arrived { sent: sent.sent.iter().map(|count| count.load(Ordering::Acquire)).collect(), seen }
    }
}

fn run(ports: [InlinePort; 2], rate: u64, shared: &Shared) -> Vec<Vec<u8>> {
    let mut side = 0;
    let mut ends = ports.map(|port| {
        side += 1;
        End::new(port, side - 1)
    });
    let mut seen = vec![Vec::new(); 2 * FLOWS];
    let mut batch = Batch::with_capacity(256);
    let mut last = Instant::now();
    let mut due = 0.0;
    let mut over = None;
    loop {
        // A time in which the thread did not run is not made up for.
        due += last.elapsed().as_secs_f64().min(0.005) * rate as f64;
        last = Instant::now();
        match over {
            None if shared.over.load(Ordering::Relaxed) => over = Some(last),
            None => ends.iter_mut().for_each(|end| end.send(due as u64, shared)),
            // The frames under way have arrived by now.
            Some(since) if since.elapsed() > Duration::from_millis(500) => return seen,
            Some(_) => {}
        }
        due = due.min(ends.iter().map(|end| end.sent).max().unwrap_or(0) as f64 + 64.0);
        for at in 0..2 {
            take(&mut ends, at, &mut batch, &mut seen, shared);
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Receives the frames that have come to one end.
fn take(ends: &mut [End; 2], at: usize, batch: &mut Batch, seen: &mut [Vec<u8>], shared: &Shared) {
    loop {
        ends[at].port.receive(batch).unwrap();
        for frame in batch.indices().filter_map(|index| batch.bytes(index)) {
            let Some(flow) = flow_of(frame, 1 - at).filter(|flow| *flow < FLOWS) else { continue };
            let way = 2 * flow + 1 - at;
            let from = datagram(frame) + 8 + NUMBER;
            let number = u32::from_be_bytes([frame[from], frame[from + 1], frame[from + 2], frame[from + 3]]);
            let seen = &mut seen[way];
            if seen.len() <= number as usize {
                seen.resize(number as usize + 1, 0);
                shared.seen[way].store(number + 1, Ordering::Release);
            }
            seen[number as usize] = seen[number as usize].saturating_add(1);
            let (arrived, last) = &mut ends[1 - at].arrived[flow];
            *arrived = (*arrived).max(u64::from(number) * FLOWS as u64 + flow as u64 + 1);
            *last = Instant::now();
        }
        if batch.is_empty() {
            return;
        }
    }
}

/// The outcome of a stream: the numbers of frames sent, and those seen.
pub struct Arrived {
    sent: Vec<u32>,
    seen: Vec<Vec<u8>>,
}

impl Arrived {
    /// The number of frames sent.
    pub fn sent(&self) -> u64 {
        self.sent.iter().map(|sent| u64::from(*sent)).sum()
    }

    /// Whether a frame has arrived.
    fn has(&self, way: usize, number: u32) -> bool {
        self.seen[way].get(number as usize).is_some_and(|times| *times > 0)
    }

    /// The kind of each direction, and its frames that have not arrived, as ranges.
    pub fn lost(&self) -> Vec<(Of, Vec<Range<u32>>)> {
        let of = |way: usize| {
            let mut lost: Vec<Range<u32>> = Vec::new();
            for number in (0..self.sent[way]).filter(|number| !self.has(way, *number)) {
                match lost.last_mut().filter(|last| last.end == number) {
                    Some(last) => last.end += 1,
                    None => lost.push(number..number + 1),
                }
            }
            (kind(way), lost)
        };
        (0..self.sent.len()).map(of).collect()
    }

    /// The number of frames that came more than once.
    pub fn twice(&self) -> usize {
        self.seen.iter().flatten().filter(|times| **times > 1).count()
    }
}
