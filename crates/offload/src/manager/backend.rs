// SPDX-License-Identifier: Apache-2.0
//! One level of a flow manager: a device, the places of its entries, requests and reports. The manager
//! chooses the flows for it.

use super::counters::LevelFacts;
use super::credit::{CreditLedger, OfferRefusal, credit, new_progress};
use super::{GAIN, IDLE_KEPT, LOOKS, Offer, RAISES_PER_TURN, READ_EVERY, READS_PER_TURN, RENEW_FOR};
use crate::device::{Answered, Counts, Device, DeviceReply, DeviceRequest, Install, Sides, Wish};
use crate::key::{DeviceKey, directions};
use crate::places::{DeviceEntries, DeviceEntry};
use crate::stays::OffloadDenied;
use bartizan_base::{FlowId, Generation, Level, PacketDuration, Path, Timestamp};
use bartizan_flow::level::{LevelReply, SinkError, Step, SunkId};
use bartizan_flow::{FlowKey, FlowTable};
use bartizan_packet::windows::Windows;
use std::collections::VecDeque;

/// One pass over all places, some at a turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sweep {
    next: u32,
    /// Places still to be visited.
    pub(super) owed: u32,
}

impl Sweep {
    /// Starts a pass over all places. A running pass goes on from its present place: if it began anew each
    /// time it would never reach the last ones.
    pub(super) const fn begin(&mut self, known: u32) {
        self.owed = known;
    }

    /// The next place, of so many.
    fn step(&mut self, known: u32) -> Option<u32> {
        self.owed = self.owed.checked_sub(1)?;
        let at = self.next.checked_rem(known)?;
        self.next = at + 1;
        Some(at)
    }
}

/// Whether a stay is the flow's present one, and is not about to end.
fn is_settled<E: Default>(table: &FlowTable<E>, sunk: SunkId) -> bool {
    table.stay(sunk.flow()).is_some_and(|stay| stay.sunk == sunk && !stay.step.in_removal())
}

/// See the module.
pub(super) struct Backend {
    pub(super) device: Box<dyn Device>,
    pub(super) places: DeviceEntries,
    requests: Vec<DeviceRequest>,
    replies: Vec<(u32, SunkId, DeviceReply)>,
    generation: Generation,
    /// The place where the next reads begin, the time that the reads so far cover, and whether a turn left
    /// some undone.
    next_read: u32,
    read_until: Option<Timestamp>,
    reads_owed: bool,
    /// The place where the next look for an entry to evict begins.
    next_look: u32,
    /// Entries that the device has reported as silent, and since when.
    idle: VecDeque<(u32, SunkId, Timestamp)>,
    /// The passes for entries of other generations, and for those of functions that leave.
    outdated: Sweep,
    pub(super) leaving: Sweep,
    /// Whether and until when the pass for other generations waits: packets come first, by which entries may
    /// go on in place.
    held: bool,
    held_until: Option<Timestamp>,
    offered: u64,
    refused: [u64; OffloadDenied::ALL.len()],
}

impl Backend {
    pub(super) fn new(mut device: Box<dyn Device>, generation: Generation) -> Self {
        device.enter_generation(generation);
        Backend {
            places: DeviceEntries::new(device.capabilities().entries),
            device,
            requests: Vec::new(),
            replies: Vec::new(),
            generation,
            next_read: 0,
            read_until: None,
            reads_owed: false,
            next_look: 0,
            idle: VecDeque::new(),
            outdated: Sweep::default(),
            leaving: Sweep::default(),
            held: false,
            held_until: None,
            offered: 0,
            refused: [0; OffloadDenied::ALL.len()],
        }
    }

    pub(super) fn level(&self) -> Level {
        self.device.capabilities().level
    }

    pub(super) fn facts(&self) -> LevelFacts<'_> {
        LevelFacts {
            capabilities: self.device.capabilities(),
            entries: self.places.used() as u64,
            offered: self.offered,
            refused: &self.refused,
        }
    }

    /// The bytes of requests and reports that wait for a turn.
    pub(super) fn waiting(&self) -> usize {
        self.requests.capacity() * size_of::<DeviceRequest>()
            + self.replies.capacity() * size_of::<(u32, SunkId, DeviceReply)>()
            + self.idle.capacity() * size_of::<(u32, SunkId, Timestamp)>()
    }

    pub(super) const fn has_due_work(&self) -> bool {
        self.reads_owed || self.outdated.owed > 0 && !self.held || self.leaving.owed > 0
    }

    // --- down --------------------------------------------------------------------------------

    /// Requests an entry for a flow that is at the host.
    pub(super) fn take<E: Default>(
        &mut self,
        table: &mut FlowTable<E>,
        id: FlowId,
        key: &FlowKey,
        offer: &Offer,
        now: Timestamp,
    ) -> Result<(), OffloadDenied> {
        let result = self.try_take(table, id, key, offer, now);
        match result {
            // A flow is counted once, however often it is offered.
            Err(OffloadDenied::Full) if offer.again => {}
            Err(why) => {
                self.offered += 1;
                self.note_refused(why);
            }
            Ok(()) => self.offered += 1,
        }
        result
    }

    fn note_refused(&mut self, why: OffloadDenied) {
        if let Some(count) = self.refused.get_mut(why as usize) {
            *count += 1;
        }
    }

    fn try_take<E: Default>(
        &mut self,
        table: &mut FlowTable<E>,
        id: FlowId,
        key: &FlowKey,
        offer: &Offer,
        now: Timestamp,
    ) -> Result<(), OffloadDenied> {
        let Offer { action, generation, windows, .. } = *offer;
        if let Some(why) = self.device.capabilities().refuses(key, action) {
            return Err(why);
        }
        if windows.is_some() && !self.device.capabilities().windows {
            return Err(OffloadDenied::Window);
        }
        let at = self.places.reserve().ok_or(OffloadDenied::Full)?;
        let sunk = match table.sink(id, self.level(), generation, now) {
            Ok(sunk) => sunk,
            Err(error) => {
                self.places.release(at);
                return Err(match error {
                    SinkError::Unanswered => OffloadDenied::Unanswered,
                    SinkError::There | SinkError::NoFlow | SinkError::Host => OffloadDenied::Taken,
                });
            }
        };
        let directions = directions(key);
        let (credited, recent) = (Counts::default(), None);
        self.places.take(
            at,
            DeviceEntry { sunk, action, generation, directions, windows, credited, read_at: now, recent },
        );
        let install = Install { key: DeviceKey::of(key), action, generation, windows };
        self.requests.push(DeviceRequest { place: at, sunk, wish: Wish::Install(install) });
        Ok(())
    }

    /// Makes room for a flow with so many expected packets that has found no place: an entry with little
    /// traffic begins to come up. Returns whether one does.
    pub(super) fn make_room<E: Default>(
        &mut self,
        table: &mut FlowTable<E>,
        expected: u32,
        now: Timestamp,
    ) -> bool {
        let known = self.places.known();
        let mut least = self.next_idle(table).filter(|_| expected > 0).map(|sunk| (0, sunk));
        if least.is_some() {
            self.idle.pop_front();
        }
        for _ in 0..if least.is_none() { LOOKS.min(known) } else { 0 } {
            self.next_look = (self.next_look + 1) % known;
            // Nothing is known of an entry that was not read yet.
            let Some(DeviceEntry { sunk, recent: Some(recent), .. }) = self.places.get(self.next_look) else {
                continue;
            };
            if is_settled(table, *sunk) && least.is_none_or(|(fewest, _)| *recent < fewest) {
                least = Some((*recent, *sunk));
            }
        }
        least.is_some_and(|(recent, sunk)| {
            expected > recent.saturating_mul(GAIN) && table.raise(sunk.flow(), now)
        })
    }

    /// The first entry reported as silent that still is, according to its counts.
    fn next_idle<E: Default>(&mut self, table: &FlowTable<E>) -> Option<SunkId> {
        while let Some((at, sunk, since)) = self.idle.front().copied() {
            let place = self.places.get(at).filter(|place| place.sunk == sunk);
            let is_silent =
                place.is_some_and(|place| place.credited.last_seen.iter().all(|seen| *seen <= since));
            if is_silent && is_settled(table, sunk) {
                return Some(sunk);
            }
            self.idle.pop_front();
        }
        None
    }

    // --- while it is there -------------------------------------------------------------------

    /// Whether a flow's entry is of another generation, and can go on in place.
    pub(super) fn is_outdated<E: Default>(&self, table: &FlowTable<E>, sunk: SunkId) -> bool {
        self.device.capabilities().updates
            && self.place_of(sunk).is_some_and(|place| place.generation != self.generation)
            && table.stay(sunk.flow()).is_some_and(|stay| stay.sunk == sunk && stay.step == Step::Active)
    }

    /// Lets such an entry go on, if its action stays the same.
    pub(super) fn renew<E: Default>(
        &mut self,
        table: &mut FlowTable<E>,
        sunk: SunkId,
        offer: &Offer,
    ) -> bool {
        let Offer { action, generation, windows, .. } = *offer;
        let Some(at) = self.places.of(sunk) else { return false };
        let Some(place) = self.places.get_mut(at) else { return false };
        let stamps = |windows: Option<Windows>| windows.map(|windows| windows.timestamps);
        if place.action != action
            || stamps(place.windows) != stamps(windows)
            || !table.renew(sunk, generation)
        {
            return false;
        }
        (place.generation, place.windows) = (generation, windows);
        self.requests.push(DeviceRequest { place: at, sunk, wish: Wish::Update { generation, windows } });
        true
    }

    pub(super) fn place_of(&self, sunk: SunkId) -> Option<&DeviceEntry> {
        self.places.get(self.places.of(sunk)?)
    }

    /// The progress of the sides of a connection, each if it was not reported before.
    pub(super) fn sides(&mut self, sunk: SunkId) -> Option<Sides> {
        let at = self.places.of(sunk)?;
        let sides = self.device.sides(at, sunk)?;
        let told = &mut self.places.get_mut(at)?.credited.sides;
        Some(new_progress(core::mem::replace(told, sides), sides))
    }

    /// The numbers of a connection whose segments are compared, if they were not reported before.
    pub(super) fn windows(&mut self, sunk: SunkId) -> Option<Windows> {
        let at = self.places.of(sunk)?;
        let windows = self.device.windows(at, sunk)?;
        let told = self.places.get_mut(at)?.credited.windows.replace(windows);
        (told != Some(windows)).then_some(windows)
    }

    pub(super) fn publish(&mut self, sunk: SunkId, windows: &Windows) {
        let Some(at) = self.places.of(sunk) else { return };
        if let Some(known) = self.places.get_mut(at).and_then(|place| place.windows.as_mut()) {
            *known = *windows;
            self.device.publish(at, sunk, windows);
        }
    }

    pub(super) fn enter_generation(&mut self, generation: Generation) {
        self.generation = generation;
        self.device.enter_generation(generation);
        // Generations in quick succession do not prolong the wait.
        self.held |= self.outdated.owed == 0 && self.device.capabilities().updates;
        self.outdated.begin(self.places.known());
    }

    /// Whether entries of other generations still wait for packets of their flows.
    fn is_held(&mut self, now: Timestamp) -> bool {
        if self.held && now >= *self.held_until.get_or_insert(now + RENEW_FOR) {
            (self.held, self.held_until) = (false, None);
        }
        self.held
    }

    /// Adds a request for an entry, if it exists.
    pub(super) fn queue_request(&mut self, sunk: SunkId, wish: Wish) {
        if let Some(place) = self.places.of(sunk) {
            self.requests.push(DeviceRequest { place, sunk, wish });
        }
    }

    /// The number of entries to read in this turn, as many as the time since the last reads allows for, and
    /// the number left out. Sets whether reads are owed.
    fn reads_due(&mut self, known: u32, now: Timestamp) -> (u32, u64) {
        let until = *self.read_until.get_or_insert(now);
        let (since, every) = (u128::from(now.since(until).as_nanos()), u128::from(READ_EVERY.as_nanos()));
        self.reads_owed = false;
        if known == 0 || since == 0 {
            self.read_until = Some(now);
            return (0, 0);
        }
        let owed = since * u128::from(known) / every;
        let unread = owed.saturating_sub(known.into());
        let owed = u32::try_from(owed - unread).unwrap_or(known);
        let reads = owed.min(READS_PER_TURN);
        // Only the time of the reads requested now is used up.
        let used = (u128::from(reads) + unread) * every / u128::from(known);
        self.read_until = Some(until + PacketDuration::from_nanos(u64::try_from(used).unwrap_or(u64::MAX)));
        self.reads_owed = reads < owed;
        (reads, u64::try_from(unread).unwrap_or(u64::MAX))
    }

    /// Requests the counts of the entries that are due; returns the number left out. An entry whose flow the
    /// table has given up, because the device did not answer in time, gets requests to be deleted until it
    /// is: otherwise it would handle packets for ever with no one to change its verdict.
    pub(super) fn read_some<E: Default>(&mut self, table: &FlowTable<E>, now: Timestamp) -> u64 {
        let known = self.places.known();
        let (reads, unread) = self.reads_due(known, now);
        for _ in 0..reads {
            let at = self.next_read % known;
            self.next_read = at + 1;
            if let Some(DeviceEntry { sunk, .. }) = self.places.get(at).copied() {
                let is_known = table.stay(sunk.flow()).is_some_and(|stay| stay.sunk == sunk);
                let wish = if is_known { Wish::Read } else { Wish::Delete };
                self.requests.push(DeviceRequest { place: at, sunk, wish });
            }
        }
        unread
    }

    pub(super) fn raise_outdated<E: Default>(&mut self, table: &mut FlowTable<E>, now: Timestamp) -> u64 {
        let mut raised = 0;
        if self.is_held(now) {
            return raised;
        }
        for _ in 0..RAISES_PER_TURN {
            let Some(at) = self.outdated.step(self.places.known()) else { break };
            if let Some(place) = self.places.get(at)
                && place.generation != self.generation
                && is_settled(table, place.sunk)
                && table.raise(place.sunk.flow(), now)
            {
                raised += 1;
            }
        }
        raised
    }

    pub(super) fn raise_left<E: Default>(
        &mut self,
        table: &mut FlowTable<E>,
        left: Path,
        now: Timestamp,
    ) -> u64 {
        let mut raised = 0;
        for _ in 0..RAISES_PER_TURN {
            let Some(at) = self.leaving.step(self.places.known()) else { break };
            if let Some(sunk) = self.places.get(at).map(|place| place.sunk)
                && is_settled(table, sunk)
                && table.get(sunk.flow()).is_some_and(|entry| !entry.path.and(left).is_empty())
                && table.raise(sunk.flow(), now)
            {
                raised += 1;
            }
        }
        raised
    }

    // --- the device --------------------------------------------------------------------------

    pub(super) fn submit(&mut self, now: Timestamp) {
        if self.requests.is_empty() {
            return;
        }
        for DeviceRequest { place, wish, .. } in &mut self.requests {
            // Segments have advanced the numbers since the flow was offered.
            if let Wish::Install(Install { windows, .. }) | Wish::Update { windows, .. } = wish {
                *windows = self.places.get(*place).and_then(|place| place.windows);
            }
        }
        self.device.submit(&self.requests, now);
        self.requests.clear();
    }

    pub(super) fn poll_replies<E: Default>(
        &mut self,
        table: &mut FlowTable<E>,
        now: Timestamp,
        ledger: &mut CreditLedger,
    ) {
        let mut said = core::mem::take(&mut self.replies);
        self.device.poll(now, &mut said);
        for (at, sunk, what) in said.drain(..) {
            let Some(place) = self.places.get_mut(at).filter(|place| place.sunk == sunk) else {
                ledger.counters.strays += 1;
                continue;
            };
            match what {
                DeviceReply::Counts(counts) => credit(table, place, &counts, now, ledger),
                DeviceReply::Idle(since) => self.note_idle(at, sunk, since),
                DeviceReply::Answer(Answered::Done(answer)) => self.note_answer(table, at, sunk, answer, now),
                DeviceReply::Answer(Answered::Refused(why)) => {
                    // No other device may take an entry that is to leave meanwhile.
                    let wanted = is_settled(table, sunk);
                    let place = *place;
                    table.answered(sunk, LevelReply::Refused, now);
                    self.places.clear(at);
                    self.note_refused(why);
                    ledger.refused.push(OfferRefusal { place, why, wanted });
                }
            }
        }
        self.replies = said;
    }

    fn note_answer<E: Default>(
        &mut self,
        table: &mut FlowTable<E>,
        at: u32,
        sunk: SunkId,
        answer: LevelReply,
        now: Timestamp,
    ) {
        table.answered(sunk, answer, now);
        if answer == LevelReply::Installed
            && let Some(windows) = self.places.get(at).and_then(|place| place.windows)
        {
            // The numbers may have advanced since the request.
            self.device.publish(at, sunk, &windows);
        }
        if matches!(answer, LevelReply::Deleted | LevelReply::Refused) {
            self.places.clear(at);
        }
    }

    fn note_idle(&mut self, at: u32, sunk: SunkId, since: Timestamp) {
        if self.idle.len() >= IDLE_KEPT {
            self.idle.pop_front();
        }
        self.idle.push_back((at, sunk, since));
    }
}
