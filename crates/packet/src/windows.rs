// SPDX-License-Identifier: Apache-2.0
//! The numbers of a TCP connection where several processors, and the host, compare segments with them and
//! advance them at the same time: one line of words ([`WindowLine`]) for a connection, and the rule for
//! reading and writing it. The XDP program has the same rule in C (`ebpf/windows.h`); a test compares the
//! two.
//!
//! Sources: RFC 9293 section 3.10.7.4 (the segments that a receiver accepts), RFC 7323 section 5
//! (timestamps), RFC 5961 section 5 (acknowledgements). docs/design/0019-windows-below.md has the reasons.
//!
//! **Accepting.** A segment passes if all of this holds; any other goes up to the host, which judges it:
//!
//! | | compared with | of |
//! |---|---|---|
//! | it acknowledges at most what was sent | `sent` | the other side's progress |
//! | without data, it is at most at its sender's progress | `sent` | its sender's progress |
//! | it ends within the window | `edge` | what was offered to its sender |
//! | it ends at most [`FLIGHT_MAX`] before what is acknowledged | `acknowledged` | what was offered to its sender |
//! | it acknowledges no less than before | `acknowledged` | what its sender offers |
//! | where timestamps are in use it has one, which is not 0, not older, and not far ahead | `timestamp` | its sender's progress |
//! | it is not urgent | | |
//!
//! **Moving on.** Each number goes forward only, by serial arithmetic (RFC 1982), a word at a time by
//! compare and exchange: `sent` to the segment's end, `timestamp` to the segment's if it begins at or
//! before the acknowledged number, `acknowledged` to the segment's acknowledgement, `edge` to that plus the
//! segment's window. A segment that ends before the acknowledged number moves nothing. A word that cannot
//! be changed in [`WINDOW_TRIES`] attempts leaves the segment to the host.
//!
//! **Order.** The words are read in the order of the table. The first three comparisons are with upper
//! bounds, which only rise: a comparison that holds when its bound is read holds ever after. The others are
//! with lower bounds: a comparison that holds when its bound is read has held before. So there is one
//! moment at which all of it held, and the segment is one that was acceptable then. A reader with an older
//! upper bound accepts less, not more.

use crate::slots::{
    EndFlags, EndWord, FLIGHT_MAX, NumbersFlags, NumbersWord, OfferWord, ProgressWord, TIMESTAMP_FAR_AHEAD,
    WINDOW_TRIES, WindowLine,
};
use core::sync::atomic::{AtomicU64, Ordering};

/// Words of a line.
pub const WINDOW_WORDS: usize = WindowLine::LEN / 8;

/// Largest shift of a window (RFC 7323 section 2.3).
const SCALE_MAX: u8 = 14;

/// The TCP window state of one endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowSide {
    /// The sequence number after the last byte that the endpoint has sent.
    pub sent: u32,
    /// The timestamp that its later ones are compared with.
    pub timestamp: u32,
    /// The other endpoint's latest acknowledgement.
    pub acknowledged: u32,
    /// Right edge of the window that it may send into.
    pub edge: u32,
    /// Shift of the windows that it offers.
    pub scale: u8,
}

/// The TCP window state of a connection: of the lower endpoint of its key, and of the higher one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Windows {
    /// The lower endpoint's, then the higher one's.
    pub sides: [WindowSide; 2],
    /// Whether both send timestamps.
    pub timestamps: bool,
}

/// The fields of a segment that are compared; it has ACK, and none of SYN, FIN and RST.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowSegment {
    /// The sequence number of the segment's first byte.
    pub sequence: u32,
    /// The sequence number after the segment's last byte.
    pub end: u32,
    /// The segment's acknowledgement number.
    pub acknowledged: u32,
    /// The window that it offers, as in the header.
    pub window: u16,
    /// The segment's timestamp option.
    pub timestamp: Option<u32>,
    /// Whether it has urgent data.
    pub urgent: bool,
}

/// The end of an endpoint's data, as a level has seen it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataEnd {
    /// The sequence number after its FIN.
    pub number: u32,
    /// Whether the other endpoint had ended before.
    pub second: bool,
}

/// A line, as an atomic view of borrowed memory.
#[derive(Clone, Copy, Debug)]
pub struct Line<'m>(&'m [AtomicU64; WINDOW_WORDS]);

fn is_after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}

/// Differs from the other one being after: at a distance of half the circle each is before the other one, and
/// no bound holds.
fn is_before(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() < 0
}

fn later(a: u32, b: u32) -> u32 {
    if is_after(b, a) { b } else { a }
}

fn progress(word: u64) -> ProgressWord {
    ProgressWord::read(&word.to_le_bytes())
}

fn offer(word: u64) -> OfferWord {
    OfferWord::read(&word.to_le_bytes())
}

const fn halves(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

/// Advances both numbers of a word to these. `false`: other processors were faster in all attempts.
fn move_on(word: &AtomicU64, low: u32, high: u32, tries: u32) -> bool {
    for _ in 0..tries {
        let had = word.load(Ordering::Relaxed);
        let next = halves(later(had as u32, low), later((had >> 32) as u32, high));
        if next == had || word.compare_exchange(had, next, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return true;
        }
    }
    false
}

impl<'m> Line<'m> {
    /// Wraps a line's words, in this machine's byte order.
    #[must_use]
    pub const fn new(words: &'m [AtomicU64; WINDOW_WORDS]) -> Self {
        Line(words)
    }

    /// Wraps words of foreign memory. `None`: there are too few.
    #[must_use]
    pub fn of(words: &'m [AtomicU64]) -> Option<Self> {
        words.try_into().ok().map(Line)
    }

    /// Progress and offer of an endpoint (`false`: the lower one).
    const fn side(self, high: bool) -> [&'m AtomicU64; 2] {
        let [_, progress_low, offer_low, progress_high, offer_high, ..] = self.0;
        if high { [progress_high, offer_high] } else { [progress_low, offer_low] }
    }

    const fn numbers(self) -> &'m AtomicU64 {
        let [numbers, ..] = self.0;
        numbers
    }

    fn rules(self) -> NumbersWord {
        NumbersWord::read(&self.numbers().load(Ordering::Relaxed).to_le_bytes())
    }

    const fn ends_words(self) -> [&'m AtomicU64; 2] {
        let [_, _, _, _, _, end_low, end_high, ..] = self.0;
        [end_low, end_high]
    }

    /// The ends of both directions of a connection whose segments are not compared, if known: the lower
    /// endpoint's, and the higher one's.
    #[must_use]
    pub fn ends(self) -> [Option<DataEnd>; 2] {
        self.ends_words().map(|word| {
            let EndWord { number, flags } = EndWord::read(&word.load(Ordering::Acquire).to_le_bytes());
            let has = |flag: EndFlags| flags & flag.bits() != 0;
            has(EndFlags::SEEN).then(|| DataEnd { number, second: has(EndFlags::SECOND) })
        })
    }

    /// Clears both ends, in a line that is not in use yet.
    pub fn clear_ends(self) {
        self.ends_words().iter().for_each(|word| word.store(0, Ordering::Release));
    }

    /// Writes a line that is not in use yet.
    pub fn write(self, windows: &Windows) {
        let Windows { sides: [low, high], timestamps } = windows;
        let flags = if *timestamps { NumbersFlags::TIMESTAMPS.bits() } else { 0 };
        let (scale_low, scale_high) = (low.scale.min(SCALE_MAX), high.scale.min(SCALE_MAX));
        let word = NumbersWord { flags, scale_low, scale_high }.write();
        self.numbers().store(u64::from_le_bytes(word), Ordering::Relaxed);
        for (side, high) in [(low, false), (high, true)] {
            let [progress, offer] = self.side(high);
            progress.store(halves(side.sent, side.timestamp), Ordering::Relaxed);
            offer.store(halves(side.acknowledged, side.edge), Ordering::Release);
        }
    }

    /// The contents of the line. Each word is read atomically, the line as a whole is not.
    #[must_use]
    pub fn read(self) -> Windows {
        let rules = self.rules();
        let side = |high: bool, scale: u8| {
            let [progress_word, offer_word] = self.side(high);
            let offer = offer(offer_word.load(Ordering::Acquire));
            let progress = progress(progress_word.load(Ordering::Acquire));
            WindowSide {
                sent: progress.sent,
                timestamp: progress.timestamp,
                acknowledged: offer.acknowledged,
                edge: offer.edge,
                scale,
            }
        };
        let timestamps = rules.flags & NumbersFlags::TIMESTAMPS.bits() != 0;
        Windows { sides: [side(false, rules.scale_low), side(true, rules.scale_high)], timestamps }
    }

    /// Advances the window state to that of the host's session, after the host has judged a segment; no
    /// number goes back. Other processors may write at the same time, so each word is tried until it is
    /// changed; each of the others has then advanced the connection.
    pub fn publish(self, windows: &Windows) {
        for (side, high) in windows.sides.iter().zip([false, true]) {
            let [progress, offer] = self.side(high);
            move_on(progress, side.sent, side.timestamp, u32::MAX);
            move_on(offer, side.acknowledged, side.edge, u32::MAX);
        }
    }

    /// Judges a segment of an endpoint, and advances the window state. `false`: the segment goes up to the
    /// host.
    #[must_use]
    pub fn advance(self, from_high: bool, segment: &WindowSegment) -> bool {
        let rules = self.rules();
        let [own_progress, own_offer] = self.side(from_high);
        let [other_progress, other_offer] = self.side(!from_high);
        let sent = progress(other_progress.load(Ordering::Acquire)).sent;
        let own_sent = progress(own_progress.load(Ordering::Acquire)).sent;
        let offered = offer(own_offer.load(Ordering::Acquire));
        let acknowledged = offer(other_offer.load(Ordering::Acquire)).acknowledged;
        let last = progress(own_progress.load(Ordering::Acquire)).timestamp;
        let oldest = offered.acknowledged.wrapping_sub(FLIGHT_MAX);
        let is_bare = segment.sequence == segment.end;
        if segment.urgent
            || is_after(segment.acknowledged, sent)
            || is_bare && is_after(segment.end, own_sent)
            || is_after(segment.end, offered.edge)
            || is_before(segment.end, oldest)
            || is_before(segment.acknowledged, acknowledged)
        {
            return false;
        }
        let mut timestamp = last;
        if rules.flags & NumbersFlags::TIMESTAMPS.bits() != 0 {
            let Some(own) = segment.timestamp.filter(|own| *own != 0) else { return false };
            if own.wrapping_sub(last) > TIMESTAMP_FAR_AHEAD {
                return false;
            }
            if !is_after(segment.sequence, offered.acknowledged) {
                timestamp = own;
            }
        }
        if is_before(segment.end, offered.acknowledged) {
            // A needless retransmission: its receiver accepts no byte of it, and it has nothing new.
            return true;
        }
        let scale = if from_high { rules.scale_high } else { rules.scale_low };
        let edge = segment.acknowledged.wrapping_add(u32::from(segment.window) << scale.min(SCALE_MAX));
        move_on(own_progress, segment.end, timestamp, WINDOW_TRIES)
            && move_on(other_offer, segment.acknowledged, edge, WINDOW_TRIES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection whose lower endpoint is at 1,000 and whose higher one is at 5,000: windows of 500 and of
    /// 3 << 8.
    fn windows(scale: u8) -> Windows {
        Windows {
            sides: [
                WindowSide { sent: 1_000, timestamp: 70, acknowledged: 1_000, edge: 1_768, scale: 0 },
                WindowSide { sent: 5_000, timestamp: 90, acknowledged: 5_000, edge: 5_500, scale },
            ],
            timestamps: true,
        }
    }

    fn shifted(by: u32) -> Windows {
        let mut windows = windows(8);
        for side in &mut windows.sides {
            for number in [&mut side.sent, &mut side.timestamp, &mut side.acknowledged, &mut side.edge] {
                *number = number.wrapping_add(by);
            }
        }
        windows
    }

    fn words() -> [AtomicU64; WINDOW_WORDS] {
        std::array::from_fn(|_| AtomicU64::new(u64::MAX))
    }

    /// A plain segment of the lower endpoint.
    fn data(by: u32, length: u32) -> WindowSegment {
        let sequence = 1_000u32.wrapping_add(by);
        WindowSegment {
            sequence,
            end: sequence.wrapping_add(length),
            acknowledged: 5_000u32.wrapping_add(by),
            window: 400,
            timestamp: Some(71u32.wrapping_add(by)),
            urgent: false,
        }
    }

    #[test]
    fn what_plainly_goes_on_moves_the_numbers_whatever_they_are() {
        for by in [0, 0x7fff_f000, 0x8000_0000, u32::MAX - 5_200, u32::MAX - 1_100, u32::MAX - 75] {
            let words = words();
            let line = Line::new(&words);
            line.write(&shifted(by));
            assert_eq!(line.read(), shifted(by));
            assert!(line.advance(false, &data(by, 200)), "{by}");
            let [low, high] = line.read().sides;
            let at = |number: u32| number.wrapping_add(by);
            assert_eq!(
                (low.sent, low.timestamp, low.acknowledged, low.edge),
                (at(1_200), at(71), at(1_000), at(1_768))
            );
            assert_eq!(
                (high.sent, high.acknowledged, high.edge),
                (at(5_000), at(5_000), at(5_500)),
                "the edge stays"
            );
            let answer = WindowSegment {
                sequence: at(5_000),
                end: at(5_000),
                acknowledged: at(1_200),
                window: 3,
                timestamp: Some(at(90)),
                urgent: false,
            };
            assert!(line.advance(true, &answer), "{by}");
            let [low, _] = line.read().sides;
            assert_eq!((low.acknowledged, low.edge), (at(1_200), at(1_200 + 768)));
        }
    }

    #[test]
    fn each_bound_is_kept_to_the_byte() {
        for by in [0, 0x7fff_ff00, u32::MAX - 900] {
            type Change = fn(&mut WindowSegment);
            let cases: [(&str, bool, Change); 18] = [
                ("as it is", true, |_| {}),
                ("to the edge", true, |s| s.end = s.sequence.wrapping_add(768)),
                ("over the edge", false, |s| s.end = s.sequence.wrapping_add(769)),
                ("nothing, behind the edge", false, |s| {
                    s.sequence = s.sequence.wrapping_add(769);
                    s.end = s.sequence;
                }),
                ("nothing, where its sender is", true, |s| s.end = s.sequence),
                ("nothing, further on", false, |s| {
                    s.sequence = s.sequence.wrapping_add(1);
                    s.end = s.sequence;
                }),
                ("what may be under way", true, |s| s.end = s.sequence.wrapping_sub(FLIGHT_MAX)),
                ("older", false, |s| s.end = s.sequence.wrapping_sub(FLIGHT_MAX + 1)),
                ("acknowledges what was not sent", false, |s| {
                    s.acknowledged = s.acknowledged.wrapping_add(1)
                }),
                ("acknowledges less", false, |s| s.acknowledged = s.acknowledged.wrapping_sub(1)),
                ("the same time", true, |s| s.timestamp = s.timestamp.map(|own| own.wrapping_sub(1))),
                ("an older time", false, |s| s.timestamp = s.timestamp.map(|own| own.wrapping_sub(2))),
                ("a time far ahead", false, |s| {
                    s.timestamp = s.timestamp.map(|own| own.wrapping_add(1 << 29))
                }),
                ("no time", false, |s| s.timestamp = None),
                ("time 0", false, |s| s.timestamp = Some(0)),
                ("urgent", false, |s| s.urgent = true),
                ("half the circle", false, |s| s.acknowledged = s.acknowledged.wrapping_add(1 << 31)),
                ("half the circle", false, |s| s.end = s.sequence.wrapping_add(1 << 31)),
            ];
            for (what, goes, change) in cases {
                let words = words();
                let line = Line::new(&words);
                line.write(&shifted(by));
                let mut segment = data(by, 10);
                change(&mut segment);
                assert_eq!(line.advance(false, &segment), goes, "{what} at {by}");
                assert!(goes || line.read() == shifted(by), "{what}: what goes up moves nothing");
            }
        }
    }

    #[test]
    fn windows_are_scaled_and_never_go_back() {
        for scale in 0..=15 {
            let words = words();
            let line = Line::new(&words);
            line.write(&windows(scale));
            let from_high = |window| WindowSegment {
                sequence: 5_000,
                end: 5_000,
                acknowledged: 1_000,
                window,
                timestamp: Some(90),
                urgent: false,
            };
            assert!(line.advance(true, &from_high(u16::MAX)));
            let edge = 1_000 + (u32::from(u16::MAX) << scale.min(14));
            assert_eq!(line.read().sides[0].edge, edge.max(1_768));
            assert!(line.advance(true, &from_high(0)));
            assert_eq!(
                line.read().sides[0].edge,
                edge.max(1_768),
                "an edge that was shown is not taken back"
            );
        }
    }

    #[test]
    fn a_timestamp_counts_only_of_what_begins_before_the_acknowledgement() {
        let words = words();
        let line = Line::new(&words);
        line.write(&windows(0));
        let mut ahead = data(10, 10);
        (ahead.acknowledged, ahead.timestamp) = (5_000, Some(500));
        assert!(line.advance(false, &ahead));
        assert_eq!(line.read().sides[0].timestamp, 70);
        // A segment that it has overtaken is not old.
        assert!(line.advance(false, &data(0, 10)));
        assert_eq!(line.read().sides[0].timestamp, 71);
    }

    #[test]
    fn the_host_moves_numbers_forward_only() {
        let words = words();
        let line = Line::new(&words);
        line.write(&windows(0));
        let mut behind = windows(0);
        behind.sides[0].sent -= 10;
        behind.sides[1].acknowledged -= 10;
        behind.sides[1].edge += 10;
        line.publish(&behind);
        let mut expected = windows(0);
        expected.sides[1].edge += 10;
        assert_eq!(line.read(), expected);
    }

    #[test]
    fn a_word_that_others_change_all_the_time_leaves_the_segment_to_the_host() {
        let word = AtomicU64::new(halves(5, 5));
        assert!(!move_on(&word, 6, 5, 0));
        assert!(move_on(&word, 6, 4, 1));
        assert_eq!(word.load(Ordering::Relaxed), halves(6, 5));
    }

    /// Both directions of a connection at once, on threads of their own: numbers never go back, and no number
    /// is trusted that was not sent.
    #[test]
    fn both_directions_at_once_keep_what_is_promised() {
        const ROUNDS: u32 = 40_000;
        let words = words();
        let line = Line::new(&words);
        let mut begin = windows(0);
        begin.timestamps = false;
        line.write(&begin);
        let run = |high: bool, start: u32| {
            let (mut at, mut taken) = (start, 0u32);
            for round in 0..ROUNDS {
                let before = line.read();
                let [own, other] = if high { [before.sides[1], before.sides[0]] } else { before.sides };
                let end = if round % 3 == 0 { at.wrapping_add(100) } else { at };
                let segment = WindowSegment {
                    sequence: at,
                    end,
                    acknowledged: other.sent,
                    window: 5_000,
                    timestamp: None,
                    urgent: false,
                };
                if !is_after(end, own.edge) && line.advance(high, &segment) {
                    (at, taken) = (end, taken + 1);
                }
                let forged = WindowSegment { end: own.edge.wrapping_add(1 << 20), ..segment };
                assert!(!line.advance(high, &forged), "what no window has room for");
                let forged = WindowSegment { acknowledged: other.sent.wrapping_add(1 << 20), ..segment };
                assert!(!line.advance(high, &forged), "what was not sent");
                let after = line.read();
                for (before, after) in before.sides.iter().zip(&after.sides) {
                    assert!(!is_after(before.sent, after.sent) && !is_after(before.edge, after.edge));
                    assert!(!is_after(before.acknowledged, after.acknowledged));
                }
            }
            taken
        };
        let (one, other) = std::thread::scope(|scope| {
            let other = scope.spawn(|| run(true, 5_000));
            (run(false, 1_000), other.join().unwrap())
        });
        assert!(one > ROUNDS / 4 && other > ROUNDS / 4, "{one} {other}");
        for side in line.read().sides {
            assert!(!is_after(side.acknowledged, side.sent) && !is_after(side.sent, side.edge));
        }
    }
}
