// SPDX-License-Identifier: Apache-2.0
//! A hierarchical timer wheel whose timers are threaded through a table by index.
//!
//! Source: Varghese and Lauck, "Hashed and Hierarchical Timing Wheels", 1987, scheme 6 to 7. Seven
//! levels of 64 slots cover every point of the packet clock, so no timer is clamped; the level of a
//! timer is the highest base-64 digit in which it differs from the wheel's own time, and a bitmap
//! per level finds the next slot at once: a clock that jumps by years costs as much as one that
//! jumps by a second. Arming, disarming and firing are O(1); a timer moves down at most six times.
//!
//! Timers have the resolution of a tick: a timer never fires early, and at most one tick late.

use bartizan_base::Timestamp;

/// A tick is 2^27 ns, about 134 ms.
const TICK_SHIFT: u32 = 27;
const LEVELS: usize = 7;
const DIGIT_BITS: u32 = 6;
const NONE: u32 = u32::MAX;
/// Number of timers that [`TimerWheel::peek`] compares.
const PEEK_SCAN: u32 = 8;

/// A point on the packet clock in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tick(u64);

impl Tick {
    /// The last tick that has begun at `time`.
    #[must_use]
    pub const fn passed(time: Timestamp) -> Self {
        Self(time.as_nanos() >> TICK_SHIFT)
    }

    /// The first tick that begins at or after `time`: a timer on it never fires early.
    #[must_use]
    pub const fn after(time: Timestamp) -> Self {
        Self(time.as_nanos().div_ceil(1 << TICK_SHIFT))
    }
}

/// The timer of one table entry. The table keeps one for each entry, at the entry's index.
#[derive(Clone, Copy, Debug)]
pub struct TimerLink {
    next: u32,
    prev: u32,
    /// Tick << 10 | place + 1; place 0 stands for "not armed".
    at: u64,
}

impl Default for TimerLink {
    fn default() -> Self {
        Self { next: NONE, prev: NONE, at: 0 }
    }
}

impl TimerLink {
    const fn place(self) -> Option<(usize, u32)> {
        let place = self.at & 0x3ff;
        if place == 0 { None } else { Some(((place - 1) as usize >> DIGIT_BITS, (place - 1) as u32 & 63)) }
    }

    /// Time at which the timer fires; meaningful while it is armed.
    #[must_use]
    pub const fn tick(self) -> Tick {
        Tick(self.at >> 10)
    }

    /// Whether the timer is armed.
    #[must_use]
    pub const fn is_armed(self) -> bool {
        self.place().is_some()
    }
}

const fn digit(tick: u64, level: usize) -> u32 {
    (tick >> (DIGIT_BITS * level as u32)) as u32 & 63
}

/// The wheel: only heads of lists; the table holds the timers.
pub struct TimerWheel {
    /// Current time: all timers of earlier ticks have fired, except those in slots of the current digits.
    current: u64,
    heads: [[u32; 64]; LEVELS],
    used: [u64; LEVELS],
    armed: u32,
}

impl core::fmt::Debug for TimerWheel {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("TimerWheel").field("current", &self.current).field("armed", &self.armed).finish()
    }
}

impl Default for TimerWheel {
    fn default() -> Self {
        Self { current: 0, heads: [[NONE; 64]; LEVELS], used: [0; LEVELS], armed: 0 }
    }
}

impl TimerWheel {
    /// Number of armed timers.
    #[must_use]
    pub const fn armed(&self) -> u32 {
        self.armed
    }

    fn head(&mut self, level: usize, slot: u32) -> Option<&mut u32> {
        self.heads.get_mut(level)?.get_mut(slot as usize)
    }

    /// Arms the timer of entry `id`, which must not be armed, in this wheel. A timer of a past tick fires at
    /// the next [`TimerWheel::next`]. An empty wheel takes `now` as its own time, so it begins near its
    /// timers and also follows a clock that was set back between captures.
    pub fn arm(&mut self, links: &mut [TimerLink], id: u32, tick: Tick, now: Tick) {
        if self.armed == 0 {
            self.current = now.0;
        }
        self.insert(links, id, tick);
    }

    fn insert(&mut self, links: &mut [TimerLink], id: u32, tick: Tick) {
        // A late timer counts as due now; its place is relative to the wheel's time.
        let place_tick = tick.0.max(self.current);
        let differs = place_tick ^ self.current;
        let level = if differs == 0 { 0 } else { (63 - differs.leading_zeros()) / DIGIT_BITS } as usize;
        let slot = digit(place_tick, level);
        let Some(head) = self.head(level, slot) else { return };
        let first = *head;
        if first == NONE {
            *head = id;
        }
        // A slot is a ring, so the newest is before the head: first armed, first out.
        let (next, prev) = match links.get_mut(first as usize) {
            Some(link) => (first, core::mem::replace(&mut link.prev, id)),
            None => (id, id),
        };
        if let Some(link) = links.get_mut(prev as usize) {
            link.next = id;
        }
        if let Some(link) = links.get_mut(id as usize) {
            let place = (level as u64) << DIGIT_BITS | u64::from(slot);
            *link = TimerLink { next, prev, at: tick.0 << 10 | (place + 1) };
        }
        if let Some(used) = self.used.get_mut(level) {
            *used |= 1 << slot;
        }
        self.armed = self.armed.saturating_add(1);
    }

    /// Removes the timer of entry `id` from this wheel; no effect if it is not armed.
    pub fn disarm(&mut self, links: &mut [TimerLink], id: u32) {
        let Some(link) = links.get_mut(id as usize) else { return };
        let Some((level, slot)) = link.place() else { return };
        let TimerLink { next, prev, .. } = core::mem::take(link);
        if let Some(before) = links.get_mut(prev as usize).filter(|_| prev != id) {
            before.next = next;
        }
        if let Some(after) = links.get_mut(next as usize).filter(|_| next != id) {
            after.prev = prev;
        }
        let Some(head) = self.head(level, slot).filter(|head| **head == id) else {
            self.armed = self.armed.saturating_sub(1);
            return;
        };
        *head = if next == id { NONE } else { next };
        if next == id
            && let Some(used) = self.used.get_mut(level)
        {
            *used &= !(1 << slot);
        }
        self.armed = self.armed.saturating_sub(1);
    }

    /// The earliest used slot: level, slot, and its first possible tick.
    fn earliest(&self) -> Option<(usize, u32, u64)> {
        // A slot of a current digit above level 0 is being moved down: it comes first.
        let moving = (1..LEVELS).find_map(|level| {
            let slot = digit(self.current, level);
            (self.used.get(level)? & 1 << slot != 0).then_some((level, slot, self.current))
        });
        moving.or_else(|| {
            self.used.iter().enumerate().find(|(_, used)| **used != 0).map(|(level, used)| {
                let slot = used.trailing_zeros();
                let shift = DIGIT_BITS * level as u32;
                let above = self.current >> shift >> DIGIT_BITS << DIGIT_BITS << shift;
                (level, slot, above | u64::from(slot) << shift)
            })
        })
    }

    /// The timer that fires first among the first eight of the earliest slot. A slot of a higher level spans
    /// many ticks, so among many timers the result is one of the earliest, not always the first; timers of a
    /// slot are in the order in which they were armed.
    #[must_use]
    pub fn peek(&self, links: &[TimerLink]) -> Option<u32> {
        if self.armed == 0 {
            return None;
        }
        let (level, slot, _) = self.earliest()?;
        let head = self.heads.get(level)?.get(slot as usize).copied()?;
        let mut best = (links.get(head as usize)?.tick(), head);
        let mut id = head;
        for _ in 1..PEEK_SCAN {
            id = links.get(id as usize)?.next;
            if level == 0 || id == head {
                break;
            }
            best = best.min((links.get(id as usize)?.tick(), id));
        }
        Some(best.1)
    }

    /// Disarms and returns the next timer that has fired by `until`. `None` once there is none left or
    /// `budget` is used up: each timer checked costs one.
    pub fn next(&mut self, links: &mut [TimerLink], until: Tick, budget: &mut u32) -> Option<u32> {
        if self.armed == 0 {
            // Most wheels of a table are empty, and emergency mode checks all for each packet.
            self.current = self.current.max(until.0);
            return None;
        }
        loop {
            let Some((level, slot, begins)) = self.earliest().filter(|(_, _, begins)| *begins <= until.0)
            else {
                self.current = self.current.max(until.0);
                return None;
            };
            self.current = self.current.max(begins);
            *budget = budget.checked_sub(1)?;
            let id = self.heads.get(level)?.get(slot as usize).copied()?;
            let tick = links.get(id as usize)?.tick();
            self.disarm(links, id);
            if level == 0 {
                return Some(id);
            }
            self.insert(links, id, tick);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn ticks_never_fire_early() {
        for nanos in [0, 1, (1 << TICK_SHIFT) - 1, 1 << TICK_SHIFT, u64::MAX] {
            let time = Timestamp::from_nanos(nanos);
            assert!(Tick::after(time) >= Tick::passed(time));
            assert!(Tick::after(time).0 - Tick::passed(time).0 <= 1);
        }
    }

    #[test]
    fn a_jump_over_centuries_is_cheap_and_exact() {
        let mut links = [TimerLink::default(); 3];
        let mut wheel = TimerWheel::default();
        let end = Tick::after(Timestamp::from_nanos(u64::MAX));
        wheel.arm(&mut links, 0, Tick(5), Tick(0));
        wheel.arm(&mut links, 1, end, Tick(0));
        wheel.arm(&mut links, 2, Tick(1 << 30), Tick(0));
        let mut budget = 40;
        assert_eq!(wheel.next(&mut links, Tick(4), &mut budget), None);
        assert_eq!(wheel.next(&mut links, Tick(1 << 31), &mut budget), Some(0));
        assert_eq!(wheel.next(&mut links, Tick(1 << 31), &mut budget), Some(2));
        assert_eq!(wheel.next(&mut links, Tick(end.0 - 1), &mut budget), None);
        assert_eq!(wheel.next(&mut links, end, &mut budget), Some(1));
        assert_eq!(wheel.armed(), 0);
        assert!(budget > 10, "{budget}");
    }

    #[derive(Clone, Debug)]
    enum Step {
        Arm(u32, u64),
        Disarm(u32),
        Advance(u64, u32),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let span = prop_oneof![0_u64..4, 0_u64..200, 0_u64..9_000, 0_u64..1 << 37];
        let step = prop_oneof![
            4 => (0_u32..32, span.clone()).prop_map(|(id, ahead)| Step::Arm(id, ahead)),
            1 => (0_u32..32).prop_map(Step::Disarm),
            3 => (span, 0_u32..40).prop_map(|(ahead, budget)| Step::Advance(ahead, budget)),
        ];
        prop::collection::vec(step, 1..200)
    }

    proptest! {
        #[test]
        fn fires_what_a_sorted_list_fires(steps in steps()) {
            let mut links = [TimerLink::default(); 32];
            let mut wheel = TimerWheel::default();
            let mut model: BTreeSet<(u64, u32)> = BTreeSet::new();
            let mut now = 0_u64;
            for step in steps {
                match step {
                    Step::Arm(id, ahead) => {
                        wheel.disarm(&mut links, id);
                        model.retain(|(_, other)| *other != id);
                        // Past times, too.
                        let tick = (now + ahead).saturating_sub(3);
                        wheel.arm(&mut links, id, Tick(tick), Tick(now));
                        model.insert((tick, id));
                    }
                    Step::Disarm(id) => {
                        wheel.disarm(&mut links, id);
                        model.retain(|(_, other)| *other != id);
                    }
                    Step::Advance(ahead, budget) => {
                        now += ahead;
                        let mut left = budget;
                        while let Some(id) = wheel.next(&mut links, Tick(now), &mut left) {
                            let due: Vec<_> = model.iter().copied().filter(|(tick, _)| *tick <= now).collect();
                            prop_assert!(due.iter().any(|(_, other)| *other == id), "{id} is not due");
                            model.retain(|(_, other)| *other != id);
                        }
                        if left > 0 {
                            prop_assert!(model.iter().all(|(tick, _)| *tick > now), "missed one");
                        }
                    }
                }
                prop_assert_eq!(wheel.armed() as usize, model.len());
                prop_assert_eq!(wheel.peek(&links).is_some(), !model.is_empty());
            }
            let mut fired = Vec::new();
            let mut budget = u32::MAX;
            while let Some(id) = wheel.next(&mut links, Tick(u64::MAX >> 10), &mut budget) {
                fired.push(id);
            }
            prop_assert_eq!(fired.len(), model.len());
        }

        #[test]
        fn distinct_ticks_fire_in_order(ticks in prop::collection::btree_set(1_u64..1 << 20, 1..60)) {
            let mut links = [TimerLink::default(); 64];
            let mut wheel = TimerWheel::default();
            for (id, tick) in ticks.iter().rev().enumerate() {
                wheel.arm(&mut links, id as u32, Tick(*tick), Tick(0));
            }
            let mut fired = Vec::new();
            let mut budget = u32::MAX;
            while let Some(id) = wheel.next(&mut links, Tick(1 << 20), &mut budget) {
                fired.push(id);
            }
            prop_assert!(fired.iter().rev().copied().eq(0..ticks.len() as u32));
        }
    }
}
