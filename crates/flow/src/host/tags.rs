// SPDX-License-Identifier: Apache-2.0
//! Active tags of the rule keyword `tag`, in a flow or at a host.
//!
//! As in Suricata: the packet that starts a tag counts and is not recorded (its alert shows it); a further
//! match of the rule restarts the count, and its packet is recorded; a packet that exceeds the count ends the
//! tag and is not recorded.

use super::slots::{MAX_TAGS, RuleKey, SlotRefused};
use bartizan_base::{PacketDuration, Timestamp};

/// Number of matches of one rule after which its tag is not restarted, so that every tag ends.
const RESTARTS_MAX: u8 = 10;

/// Time without a packet after which a host's tag is dropped.
const FORGOTTEN_AFTER: PacketDuration = PacketDuration::from_secs(600);

/// An active tag of the rule keyword `tag`: the next packets are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The rule that set it.
    pub rule: RuleKey,
    /// Packets left; `u32::MAX` for no bound on packets.
    pub packets: u32,
    /// Bytes left; `u64::MAX` for no bound on bytes.
    pub bytes: u64,
    /// Time of its end; the latest possible time for no bound on time.
    pub until: Timestamp,
    /// Time of its last packet.
    pub seen: Timestamp,
    /// The packet that started the tag has not been counted yet.
    pub fresh: bool,
    /// Number of further matches of its rule.
    pub matches: u8,
}

impl Tag {
    /// Counts a packet. Returns whether it is recorded, or `None` when the tag ends before it.
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

    /// Time until which a host is kept for this tag.
    pub(super) fn kept_until(&self) -> Timestamp {
        self.until.min(self.seen + FORGOTTEN_AFTER)
    }
}

/// The tags of a flow or a host, one per rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tags(pub(super) Vec<Tag>);

impl Tags {
    /// Starts a tag, or restarts it if the rule has one here.
    ///
    /// # Errors
    /// [`SlotRefused`] when other rules have [`MAX_TAGS`] active tags.
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

    /// Counts a packet of `bytes` bytes after the rules have run. Returns whether the packet is recorded.
    /// Tags that it exceeds end. A packet that was counted before (`again`) counts only for tags that it has
    /// started since.
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

    /// The active tags.
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

    /// The numbers of those of ten packets of 100 bytes, a second apart, that are recorded; `started`: the
    /// tag that each packet starts.
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
        // The start, nine restarts, one packet left; then the tag ends, and the next match starts another.
        assert_eq!(lasts.take(20).collect::<Vec<_>>(), (1..=10).chain(13..=22).collect::<Vec<_>>());
    }
}
