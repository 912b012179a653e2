// SPDX-License-Identifier: Apache-2.0
//! The typed slots of a host, a pair, a network or a rule.
//!
//! Their meaning belongs to their users (detection's thresholds, the firewall's limits); here they are plain
//! data with an expiry on the packet clock and a bound on their number. Their keys outlive generations:
//! interned names and gid:sid.

use super::tags::{Tag, Tags};
use super::value::HostValue;
use bartizan_base::Timestamp;
use smallvec::SmallVec;

/// Maximum number of bits in one entry.
pub const MAX_BITS: usize = 64;
/// Maximum number of thresholds in one entry.
pub const MAX_THRESHOLDS: usize = 64;
/// Maximum number of tags in one entry.
pub const MAX_TAGS: usize = 16;

/// A detection rule in all its revisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleKey {
    /// Generator id.
    pub gid: u32,
    /// Signature id.
    pub sid: u32,
}

/// The family of a bit's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum BitScope {
    /// Rule keyword `hostbits`.
    HostBit = 0,
    /// Rule keyword `xbits`.
    XBit = 1,
}

/// A bit that is set, by its interned name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bit {
    /// Family of the name.
    pub scope: BitScope,
    /// Interned name.
    pub name: u32,
    /// Time at which the bit expires.
    pub until: Timestamp,
}

/// The state of a threshold, a detection filter or a rate filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Threshold {
    /// The rule.
    pub rule: RuleKey,
    /// Number of the threshold, if the rule has several.
    pub part: u32,
    /// Matches counted.
    pub count: u32,
    /// Start of the count.
    pub started: Timestamp,
    /// A second point in time, whose meaning is up to the user (for example the end of a rate filter's
    /// action).
    pub mark: Timestamp,
    /// Time at which the threshold expires. Zero in a new one: the user sets it.
    pub until: Timestamp,
}

/// The error for an entry without room for another bit, threshold or tag; counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("host entry: no free slot of this kind; shorten its timeout, or share a name among rules")]
pub struct SlotRefused;

/// All slots of one entry. An empty one needs no heap memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostState {
    pub(super) bits: SmallVec<[Bit; 1]>,
    pub(super) thresholds: SmallVec<[Threshold; 1]>,
    pub(super) tags: Tags,
    /// Open connections. The entry is kept while there are any.
    pub connections: u32,
    /// Half-open connections. The entry is kept while there are any.
    pub half_open: u32,
    pub(super) refused: u32,
}

impl HostState {
    fn bit(&mut self, scope: BitScope, name: u32) -> Option<&mut Bit> {
        self.bits.iter_mut().find(|bit| bit.scope == scope && bit.name == name)
    }

    /// Whether a bit is set at `now`.
    #[must_use]
    pub fn is_set(&self, scope: BitScope, name: u32, now: Timestamp) -> bool {
        self.bits.iter().any(|bit| bit.scope == scope && bit.name == name && bit.until > now)
    }

    /// Sets a bit until a time. A bit that is set at `now` keeps its time, as in Suricata.
    ///
    /// # Errors
    /// [`SlotRefused`] when [`MAX_BITS`] others are set.
    pub fn set(
        &mut self,
        scope: BitScope,
        name: u32,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<(), SlotRefused> {
        if let Some(bit) = self.bit(scope, name) {
            if bit.until <= now {
                bit.until = until;
            }
            return Ok(());
        }
        if self.bits.len() >= MAX_BITS {
            self.refused += 1;
            return Err(SlotRefused);
        }
        self.bits.push(Bit { scope, name, until });
        Ok(())
    }

    /// Clears a bit and returns whether it existed.
    pub fn unset(&mut self, scope: BitScope, name: u32) -> bool {
        let before = self.bits.len();
        self.bits.retain(|bit| !(bit.scope == scope && bit.name == name));
        self.bits.len() != before
    }

    /// Clears a bit that is set at `now`, and sets one that is not. Returns whether the bit is set then.
    ///
    /// # Errors
    /// [`SlotRefused`] when the bit was to be set and [`MAX_BITS`] others are.
    pub fn toggle(
        &mut self,
        scope: BitScope,
        name: u32,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<bool, SlotRefused> {
        if self.is_set(scope, name, now) {
            self.unset(scope, name);
            return Ok(false);
        }
        self.set(scope, name, now, until).map(|()| true)
    }

    /// The threshold of a rule, made if it does not exist. Its `until` sets its expiry.
    ///
    /// # Errors
    /// [`SlotRefused`] when other rules have [`MAX_THRESHOLDS`].
    pub fn threshold(&mut self, rule: RuleKey, part: u32) -> Result<&mut Threshold, SlotRefused> {
        let place = self.thresholds.iter().position(|t| t.rule == rule && t.part == part);
        if place.is_none() {
            if self.thresholds.len() >= MAX_THRESHOLDS {
                self.refused += 1;
                return Err(SlotRefused);
            }
            self.thresholds.push(Threshold { rule, part, ..Threshold::default() });
        }
        let place = place.unwrap_or(self.thresholds.len().saturating_sub(1));
        self.thresholds.get_mut(place).ok_or(SlotRefused)
    }

    /// Starts a tag, or restarts it if the rule has one here.
    ///
    /// # Errors
    /// [`SlotRefused`] when other rules have [`MAX_TAGS`] active tags.
    pub fn tag(&mut self, tag: Tag) -> Result<(), SlotRefused> {
        let started = self.tags.start(tag);
        self.refused += u32::from(started.is_err());
        started
    }

    /// The active tags, for counting.
    pub const fn tags_mut(&mut self) -> &mut Tags {
        &mut self.tags
    }
}

impl HostValue for HostState {
    fn keep_until(&mut self, now: Timestamp) -> Timestamp {
        self.bits.retain(|bit| bit.until > now);
        self.thresholds.retain(|threshold| threshold.until > now);
        self.tags.0.retain(|tag| tag.kept_until() > now);
        if self.connections > 0 || self.half_open > 0 {
            return Timestamp::from_nanos(u64::MAX);
        }
        let ends = self.bits.iter().map(|bit| bit.until);
        let ends = ends.chain(self.thresholds.iter().map(|threshold| threshold.until));
        let ends = ends.chain(self.tags.iter().map(Tag::kept_until));
        ends.max().unwrap_or(Timestamp::ZERO)
    }

    fn take_refused(&mut self) -> u64 {
        u64::from(core::mem::take(&mut self.refused))
    }
}
