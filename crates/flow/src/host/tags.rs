// SPDX-License-Identifier: Apache-2.0
//! The rule keyword `tag`, while it is under way in a flow or at a host.
//!
//! As in Suricata: the packet that starts a tag counts and is not recorded (its alert shows it); of a rule
//! that matches again the counting starts anew, and that packet is recorded; a packet that goes beyond the
//! count ends the tag and is not recorded.

use super::slots::{MAX_TAGS, RuleKey, SlotRefused};
use bartizan_base::{PacketDuration, Timestamp};

/// Matches of one rule after which its tag is not started anew: it ends some time, whatever matches.
const RESTARTS_MAX: u8 = 10;

/// A host's tag that no packet came for is forgotten after this time.
const FORGOTTEN_AFTER: PacketDuration = PacketDuration::from_secs(600);

/// A rule keyword `tag` that is under way: the next packets are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The rule that set it.
    pub rule: RuleKey,
    /// Packets left; `u32::MAX` when it does not end by them.
    pub packets: u32,
    /// Bytes left; `u64::MAX` when it does not end by them.
    pub bytes: u64,
    /// It ends at this time; the latest there is when it does not end by time.
    pub until: Timestamp,
    /// Its last packet.
    pub seen: Timestamp,
    /// The packet that started it was not counted yet.
    pub fresh: bool,
    /// How often its rule matched again.
    pub matches: u8,
}

impl Tag {
    /// Counts a packet: whether it is recorded, or `None` when the tag ends before it.
    fn count(&mut self, bytes: u64, now: Timestamp) -> Option<bool> {
        let beyond = self.packets == 0 || self.bytes < bytes || now >= self.until;
        let first = core::mem::take(&mut self.fresh);
        if beyond && !first {
            return None;
        }
        self.seen = now;
        if self.packets != u32::MAX {
            self.packets = self.packets.saturating_sub(1);
        }
        if self.bytes != u64::MAX {
            self.bytes = self.bytes.saturating_sub(bytes);
        }
        Some(!first)
    }

    /// Until when a host is remembered for its sake.
    pub(super) fn kept_until(&self) -> Timestamp {
        self.until.min(self.seen + FORGOTTEN_AFTER)
    }
}

/// The tags of a flow or a host, one a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tags(pub(super) Vec<Tag>);

impl Tags {
    /// Starts a tag, or starts it anew if the rule has one here.
    ///
    /// # Errors
    /// [`SlotRefused`] when [`MAX_TAGS`] of other rules are under way.
    pub fn start(&mut self, tag: Tag) -> Result<(), SlotRefused> {
        if let Some(old) = self.0.iter_mut().find(|old| old.rule == tag.rule) {
            old.matches = old.matches.saturating_add(1);
            if old.matches < RESTARTS_MAX {
                *old = Tag { fresh: old.fresh, matches: old.matches, ..tag };
            }
            return Ok(());
        }
        if self.0.len() >= MAX_TAGS {
            return Err(SlotRefused);
        }
        self.0.push(tag);
        Ok(())
    }

    /// Counts a packet of so many bytes, after rules looked at it; says whether it is recorded. Tags that it
    /// goes beyond end. One that was counted already (`again`) counts for those only that it has started
    /// since.
    pub fn count(&mut self, bytes: u64, now: Timestamp, again: bool) -> bool {
        let mut recorded = false;
        self.0.retain_mut(|tag| {
            if again && !tag.fresh {
                return true;
            }
            let counted = tag.count(bytes, now);
            recorded |= counted == Some(true);
            counted.is_some()
        });
        recorded
    }

    /// Those under way.
    pub fn iter(&self) -> core::slice::Iter<'_, Tag> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_parts(seconds, 500_000_000)
    }

    fn tag(sid: u32) -> Tag {
        Tag {
            rule: RuleKey { gid: 1, sid },
            packets: u32::MAX,
            bytes: u64::MAX,
            until: Timestamp::from_nanos(u64::MAX),
            seen: at(0),
            fresh: true,
            matches: 0,
        }
    }

    /// Which of ten packets of 100 bytes, a second apart, are recorded; `started` says what each starts.
    fn recorded(started: impl Fn(u64) -> Option<Tag>) -> Vec<u64> {
        let mut tags = Tags::default();
        let of_packet = |n: &u64| {
            if let Some(tag) = started(*n) {
                tags.start(tag).unwrap();
            }
            let recorded = tags.count(100, at(*n), false);
            assert!(!tags.count(100, at(*n), true), "a packet counts once");
            recorded
        };
        (0..10).filter(of_packet).collect()
    }

    #[test]
    fn the_packet_that_starts_a_tag_counts() {
        let first = |tag: Tag| move |n| (n == 0).then_some(tag);
        assert_eq!(recorded(first(Tag { packets: 2, ..tag(1) })), [1]);
        assert_eq!(recorded(first(Tag { packets: 1, ..tag(1) })), []);
        assert_eq!(recorded(first(Tag { packets: 0, ..tag(1) })), []);
        assert_eq!(recorded(first(Tag { bytes: 399, ..tag(1) })), [1, 2]);
        assert_eq!(recorded(first(Tag { bytes: 50, ..tag(1) })), []);
        assert_eq!(recorded(first(Tag { until: Timestamp::from_parts(3, 0), ..tag(1) })), [1, 2]);
    }

    #[test]
    fn each_rule_has_its_own_and_starts_it_anew() {
        let two = |n| match n {
            0 => Some(Tag { packets: 6, ..tag(1) }),
            2 => Some(Tag { packets: 2, ..tag(2) }),
            _ => None,
        };
        assert_eq!(recorded(two), [1, 2, 3, 4, 5]);
        assert_eq!(recorded(|n| (n < 2).then_some(Tag { packets: 3, ..tag(1) })), [1, 2, 3]);
        assert_eq!(recorded(|_| Some(Tag { packets: 2, ..tag(1) })), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn a_rule_that_always_matches_ends_some_time() {
        let mut tags = Tags::default();
        let lasts = (0..40).filter(|n| {
            tags.start(Tag { packets: 2, ..tag(1) }).unwrap();
            tags.count(1, at(*n), false)
        });
        // The start, nine times anew, one packet left; then it ends, and the next match starts another.
        assert_eq!(lasts.take(20).collect::<Vec<_>>(), (1..=10).chain(13..=22).collect::<Vec<_>>());
    }
}
