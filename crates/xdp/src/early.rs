// SPDX-License-Identifier: Apache-2.0
//! Early refusal of packets without a flow: the two early tables, the counts of their outcomes, and the
//! marks of flows that the host knows.
//!
//! A table is written whole while no processor reads it, and is read from the moment at which the level
//! enters its generation ([`crate::Tables::enter_generation`]): generations of even numbers have one table,
//! those of odd numbers the other. Crate `classify` (`early`), which makes the words, describes their
//! meaning.

use crate::memory::Words;
use crate::sys::Map;
use bartizan_offload::level::EarlyOptions;
use bartizan_offload::marks::{FlowMarks, MarkMemory};
use bartizan_packet::slots::{EARLY_OUTCOMES, EARLY_WORDS, EarlyCount};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A run of the program that reads a table about to be overwritten ends long before this.
const GRACE: std::time::Duration = std::time::Duration::from_millis(5);

/// The most flows remembered as having passed while their link was open, of those whose answers the rules
/// refuse in that state; beyond these the one that has been silent for the longest time is forgotten, and its
/// answers are refused.
const PASSED: u32 = 1 << 16;
/// 64-bit numbers of an outcome's line.
const COUNT_WORDS: usize = EarlyCount::LEN / 8;

/// The sizes of the tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    wanted: bool,
    pub(crate) links: u32,
    pub(crate) outcomes: u32,
    pub(crate) marks: u32,
    processors: u32,
}

impl Size {
    pub(crate) fn of(options: Option<EarlyOptions>, processors: u32) -> Self {
        let Some(EarlyOptions { links, flows }) = options else {
            return Size { wanted: false, links: 1, outcomes: 1, marks: 2, processors: 1 };
        };
        let links = links.max(1);
        let marks = FlowMarks::needed(flows);
        Size { wanted: true, links, outcomes: (EARLY_OUTCOMES / links).max(1), marks, processors }
    }

    pub(crate) const fn words(&self) -> u32 {
        if self.wanted { 2 * EARLY_WORDS } else { 1 }
    }

    pub(crate) const fn counts(&self) -> u32 {
        2 * self.links * self.outcomes * self.processors
    }

    pub(crate) const fn passed(&self) -> u32 {
        if self.wanted { PASSED } else { 1 }
    }

    pub(crate) const fn marks_mask(&self) -> u32 {
        self.marks - 1
    }
}

/// The drops of an outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EarlyCounted {
    /// Packets.
    pub packets: u64,
    /// Bytes of their frames.
    pub bytes: u64,
}

/// The two early tables, the counts of their outcomes, and the marks of known flows. Several threads may call
/// all methods at once, but only one [`EarlyTables::write`].
#[derive(Debug)]
pub struct EarlyTables {
    words: Words,
    counts: Words,
    marks: Arc<FlowMarks>,
    size: Size,
}

impl EarlyTables {
    /// Maps the tables. `seed` is that of the hash by which flows have marks.
    pub(crate) fn map([words, counts, marks]: &[Map; 3], size: Size, seed: u64) -> io::Result<Self> {
        let marks: Box<dyn MarkMemory> = Box::new(Words::map(marks.fd(), size.marks as usize / 2)?);
        Ok(EarlyTables {
            words: Words::map(words.fd(), size.words() as usize)?,
            counts: Words::map(counts.fd(), size.counts() as usize * COUNT_WORDS)?,
            marks: FlowMarks::in_memory(marks, seed),
            size,
        })
    }

    /// The most outcomes that a table may have; more would not be counted.
    #[must_use]
    pub const fn outcomes(&self) -> u32 {
        self.size.outcomes
    }

    /// Writes the table of a generation that the level does not run and is not about to run. The table is
    /// used once the level enters that generation. The first word, which names the generation, is written
    /// last. Waits some milliseconds, until no processor reads the old table. `false`: there is no room for
    /// so many words.
    pub fn write(&self, generation: u8, table: &[u64]) -> bool {
        let whole = EARLY_WORDS as usize;
        let Some(place) = self.words.get().chunks_exact(whole).nth(usize::from(generation & 1)) else {
            return false;
        };
        let Some(first) = place.first() else { return false };
        // Also if there is no room: the table of an older generation must not act when its number comes
        // round.
        first.store(0, Ordering::Release);
        if table.len() > whole {
            return false;
        }
        std::thread::sleep(GRACE);
        for (word, value) in place.iter().zip(table).skip(1) {
            word.store(*value, Ordering::Relaxed);
        }
        let named = table.first().map_or(0, |flags| flags | u64::from(generation) | 256);
        first.store(named, Ordering::Release);
        true
    }

    /// The count of an outcome of a link by tables of even (`false`) or odd generations, since the program
    /// was loaded. Zeros: there is no such outcome.
    #[must_use]
    pub fn counted(&self, odd: bool, link: u8, outcome: u32) -> EarlyCounted {
        let Size { links, outcomes, processors, .. } = self.size;
        let mut sum = EarlyCounted::default();
        if u32::from(link) >= links || outcome >= outcomes {
            return sum;
        }
        for processor in 0..processors {
            let line = ((processor * 2 + u32::from(odd)) * links + u32::from(link)) * outcomes + outcome;
            let line = self.counts.get().chunks_exact(COUNT_WORDS).nth(line as usize);
            if let Some([packets, bytes]) = line {
                sum.packets = sum.packets.wrapping_add(packets.load(Ordering::Relaxed));
                sum.bytes = sum.bytes.wrapping_add(bytes.load(Ordering::Relaxed));
            }
        }
        sum
    }

    /// The marks of flows.
    #[must_use]
    pub const fn marks(&self) -> &Arc<FlowMarks> {
        &self.marks
    }
}
