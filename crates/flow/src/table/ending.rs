// SPDX-License-Identifier: Apache-2.0
//! The end of flows: by timer, for another flow, or by order of the caller. Offloaded flows leave their level
//! first ([`super::removal`]).

use super::{EVICTION_SCAN, FlowTable, Insert, WhenFull, class_of, wheel_of};
use crate::entry::{EndReason, FlowEntry, FlowFlags, FlowState};
use crate::level::Step;
use crate::timeouts::{CLASSES, CLASSES_EACH, HOST_CLASSES, UNOPENED_CLASS, state_class};
use crate::wheel::Tick;
use bartizan_base::{FlowId, PacketDuration, Timestamp};
use core::ops::Range;

/// The groups of protocols with wheels of their own; TCP is the first.
const ALL_PROTOCOLS: Range<usize> = 0..4;
/// Ranks at the host by worth: the least first.
const BY_WORTH: [EvictionRank; 5] = [
    EvictionRank::Unopened,
    EvictionRank::Host(FlowState::Closed),
    EvictionRank::Host(FlowState::New),
    EvictionRank::Host(FlowState::Established),
    EvictionRank::Host(FlowState::LocalBypassed),
];
/// Ranks of offloaded flows by worth: the least first.
const SUNK_BY_WORTH: [EvictionRank; 4] = [
    EvictionRank::Sunk(FlowState::Closed),
    EvictionRank::Sunk(FlowState::New),
    EvictionRank::Sunk(FlowState::Established),
    EvictionRank::Sunk(FlowState::LocalBypassed),
];
/// Most flows that leave their levels at a time to make room. Packets that find a full table meanwhile get no
/// flow.
pub(crate) const ROOM_AT_ONCE: u32 = 256;

/// Flows of similar worth.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EvictionRank {
    /// Unopened flows at the host.
    Unopened,
    /// Flows of a state at the host.
    Host(FlowState),
    /// Offloaded flows of a state.
    Sunk(FlowState),
}

impl EvictionRank {
    const fn class(self, group: usize) -> usize {
        match self {
            EvictionRank::Unopened => group * CLASSES_EACH + UNOPENED_CLASS,
            EvictionRank::Host(state) => group * CLASSES_EACH + state_class(state),
            EvictionRank::Sunk(state) => HOST_CLASSES + group * CLASSES_EACH + state_class(state),
        }
    }
}

impl<E: Default> FlowTable<E> {
    pub(super) fn end(
        &mut self,
        id: FlowId,
        reason: EndReason,
        ended: &mut impl FnMut(FlowId, &mut FlowEntry<E>, EndReason),
    ) {
        if self.emergency
            && let Some(entry) = self.get_mut(id)
        {
            entry.flags.insert(FlowFlags::EMERGENCY);
        }
        if let Some(entry) = self.get_mut(id) {
            ended(id, entry, reason);
        }
        self.remove(id, reason);
    }

    /// Removes a flow and returns the data plane's part of it. `None` if the flow does not exist.
    ///
    /// Later counts of a level for the flow are lost: [`FlowTable::begin_end`] tells whether a level has the
    /// flow.
    pub fn remove(&mut self, id: FlowId, reason: EndReason) -> Option<E> {
        let entry = self.get_mut(id)?;
        entry.serial = 0;
        let (hash, step, state, wheel) = (entry.hash, entry.step, entry.state, wheel_of(entry));
        let ext = core::mem::take(&mut entry.ext);
        if let Some(wheel) = self.wheels.get_mut(wheel) {
            wheel.disarm(&mut self.links, id.0);
        }
        if step == Step::Host || self.forget_levels(id, step) {
            self.index.remove(hash, id.0);
        }
        self.free.push(id.0);
        self.counters.ended(state, reason);
        Some(ext)
    }

    /// The next flow that has timed out at `now`, found by the timers. The caller finishes it and removes it
    /// with [`EndReason::Timeout`]. `None` once there is none or `budget` (number of timers checked) is used
    /// up. An offloaded flow is not returned: it begins to leave its level.
    ///
    /// Its timer is no longer armed: a flow that is neither removed nor changed in state continues until a
    /// packet finds it stale.
    pub fn next_due(&mut self, now: Timestamp, budget: &mut u32) -> Option<FlowId> {
        self.leave_emergency();
        // Most packets arrive within the tick of the previous one.
        let tick = Tick::passed(now);
        if self.looked_at == Some(tick) && !self.emergency {
            return None;
        }
        self.looked_at = None;
        let classes = if self.level_counters.sunk == 0 { HOST_CLASSES } else { CLASSES };
        self.turn = if self.turn < classes { self.turn } else { 0 };
        for _ in 0..classes {
            let ahead = match self.timeouts.get(self.turn) {
                Some((normal, emergency)) if self.emergency => {
                    normal.as_nanos().saturating_sub(emergency.as_nanos())
                }
                _ => 0,
            };
            let until = Tick::passed(now + PacketDuration::from_nanos(ahead));
            while let Some(id) =
                self.wheels.get_mut(self.turn).and_then(|w| w.next(&mut self.links, until, budget))
            {
                self.counters.mgr_checked += 1;
                if !self.entries.get(id as usize).is_some_and(|entry| self.is_due(entry, now)) {
                    self.counters.mgr_notimeout += 1;
                    self.arm(id);
                } else if self.begin_end(FlowId(id), EndReason::Timeout, now) {
                    self.counters.mgr_timeout += 1;
                    return Some(FlowId(id));
                }
            }
            if *budget == 0 {
                return None;
            }
            self.turn = if self.turn + 1 < classes { self.turn + 1 } else { 0 };
        }
        self.looked_at = Some(tick).filter(|_| !self.emergency);
        None
    }

    /// Ends all flows that have timed out at `now`, checking at most `budget` timers. Returns the number of
    /// ended flows.
    pub fn expire(
        &mut self,
        now: Timestamp,
        mut budget: u32,
        mut ended: impl FnMut(FlowId, &mut FlowEntry<E>, EndReason),
    ) -> u32 {
        let mut count = 0;
        while let Some(id) = self.next_due(now, &mut budget) {
            self.end(id, EndReason::Timeout, &mut ended);
            count += 1;
        }
        count
    }

    /// Ends every flow, in the order of creation: at the end of the program or of a capture. Offloaded flows
    /// begin to leave their levels, and follow with [`FlowTable::next_task`]; a caller that cannot wait
    /// removes them with [`FlowTable::remove`].
    pub fn drain(
        &mut self,
        reason: EndReason,
        now: Timestamp,
        mut ended: impl FnMut(FlowId, &mut FlowEntry<E>, EndReason),
    ) {
        for id in self.ids() {
            if self.begin_end(id, reason, now) {
                self.end(id, reason, &mut ended);
            }
        }
    }

    pub(super) fn make_room(&mut self, now: Timestamp) -> Insert {
        if !self.emergency {
            self.emergency = true;
            self.counters.emerg_mode_entered += 1;
        }
        let victim = match self.when_full {
            WhenFull::Refuse => None,
            WhenFull::Evict { quiet } => self.victim(now, quiet, ALL_PROTOCOLS, &BY_WORTH).or_else(|| {
                // No flow at the host qualifies: an offloaded flow makes room for the next newcomer.
                let sunk = self.level_counters.sunk > 0 && self.room_coming < ROOM_AT_ONCE;
                let id = sunk.then(|| self.victim(now, quiet, ALL_PROTOCOLS, &SUNK_BY_WORTH)).flatten()?;
                self.begin_end(id, EndReason::Forced, now).then_some(id)
            }),
        };
        if let Some(id) = victim {
            return Insert::Evict { id };
        }
        if self.when_full != WhenFull::Refuse {
            self.counters.get_used_failed += 1;
        }
        self.counters.memcap += 1;
        Insert::Full
    }

    /// The TCP flow to evict when memory for TCP sessions is exhausted: a closed one or one that is not
    /// established, nearest to its timeout; never a connection. The caller finishes it and removes it with
    /// [`EndReason::Forced`].
    pub fn session_to_end(&mut self, now: Timestamp) -> Option<FlowId> {
        self.victim(
            now,
            PacketDuration::ZERO,
            0..1,
            &[
                EvictionRank::Unopened,
                EvictionRank::Host(FlowState::Closed),
                EvictionRank::Host(FlowState::New),
            ],
        )
    }

    /// A flow at the host to end if room is needed in any case: one near its timeout, or else the oldest. The
    /// caller finishes it and removes it with [`EndReason::Forced`]. The search for the oldest allocates.
    pub fn nearest_to_its_end(&mut self, now: Timestamp) -> Option<FlowId> {
        self.victim(now, PacketDuration::ZERO, ALL_PROTOCOLS, &BY_WORTH)
            .or_else(|| self.ids().first().copied())
    }

    /// The flow that makes room: see the module.
    fn victim(
        &mut self,
        now: Timestamp,
        quiet: PacketDuration,
        protocols: Range<usize>,
        ranks: &[EvictionRank],
    ) -> Option<FlowId> {
        let mut budget = EVICTION_SCAN;
        for rank in ranks.iter().copied() {
            // The flow that was silent longest, among those used since their timers were armed.
            let mut quietest: Option<(Timestamp, u32)> = None;
            while budget > 0 {
                let Some((id, armed)) = self.nearest(protocols.clone(), rank) else { break };
                budget -= 1;
                self.counters.get_used_eval += 1;
                let Some(entry) = self.entries.get(id as usize) else { break };
                if Tick::after(entry.last_seen + self.timeout(entry).0) > armed {
                    // Used since its timer was armed: moves to its real place; the next one is checked.
                    if now.since(entry.last_seen) >= quiet {
                        let this = (entry.last_seen, id);
                        quietest = Some(quietest.map_or(this, |other| other.min(this)));
                    }
                    self.rearm(id);
                } else if now.since(entry.last_seen) < quiet {
                    // The flow nearest to its timeout was silent longest: the others of the rank are busier.
                    self.counters.get_used_eval_reject += 1;
                    break;
                } else {
                    return Some(FlowId(id));
                }
            }
            // An answered flood: each of its flows was used once after its timer was armed. These are the
            // oldest timers, so any of these flows may go before a newcomer is refused, except connections
            // that may be in use.
            if budget == 0
                && matches!(
                    rank,
                    EvictionRank::Unopened | EvictionRank::Host(FlowState::Closed | FlowState::New)
                )
                && let Some((_, id)) = quietest
            {
                return Some(FlowId(id));
            }
        }
        None
    }

    /// The timer nearest to firing in the protocols' wheels of a rank.
    fn nearest(&self, protocols: Range<usize>, rank: EvictionRank) -> Option<(u32, Tick)> {
        protocols
            .filter_map(|group| self.wheels.get(rank.class(group))?.peek(&self.links))
            .filter_map(|id| Some((id, self.links.get(id as usize)?.tick())))
            .min_by_key(|(_, tick)| *tick)
    }

    /// Moves the timer of a flow that was used to its real place, if that is another tick. So the timers of a
    /// wheel are in the order of use, and the first is the flow that was silent longest, even if a flood is
    /// answered late.
    pub(super) fn keep_order(&mut self, id: u32) {
        let at_host = self.entries.get(id as usize).filter(|entry| entry.step.at_host());
        let due = at_host.map(|entry| Tick::after(entry.last_seen + self.timeout(entry).0));
        let armed = self.links.get(id as usize).filter(|link| link.is_armed()).map(|link| link.tick());
        if armed.is_some_and(|armed| due.is_some_and(|due| armed < due)) {
            self.rearm(id);
        }
    }

    fn rearm(&mut self, id: u32) {
        let Some(entry) = self.entries.get(id as usize) else { return };
        if let Some(wheel) = self.wheels.get_mut(class_of(entry)) {
            wheel.disarm(&mut self.links, id);
        }
        self.arm(id);
    }

    fn leave_emergency(&mut self) {
        if self.emergency && self.room() >= u64::from(self.recovery).max(1) {
            self.emergency = false;
            self.counters.emerg_mode_over += 1;
        }
    }
}
