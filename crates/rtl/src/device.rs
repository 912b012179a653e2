// SPDX-License-Identifier: Apache-2.0
//! The SmartNIC's flow cache as a device of crate offload: each worker has entries of its own in the one
//! cache of the card.
//!
//! A reply to a request is ready at the next poll. Entries are at a place that the hash of their key names;
//! a bucket without room refuses an entry as a full table does.
//!
//! Refused by name: keys that the logic does not make ([`CacheKey::new`]), IPv6 where the logic was made
//! without, packets dropped or redirected inside of a tunnel (the frame's outer packet would need a verdict
//! of its own), redirections (no named port is behind a simulated card), and packets without a flow that a
//! list refuses early.

use crate::card::{Card, CardState};
use crate::driver::{DriverError, RegisterBus};
use crate::flows::{CacheKey, CacheNumbers, EntryAction, EntryControl, EntryReading, SegmentCheck};
use bartizan_base::{Generation, Level, PacketDuration, Timestamp};
use bartizan_flow::level::{LevelReply, SunkId};
use bartizan_flow::tcp::{Seq, TcpProgress, TcpState};
use bartizan_offload::device::{
    Action, Actions, Answered, Capabilities, Counting, Counts, Device, DeviceReply, DeviceRequest, Endpoint,
    Install, Sides, Wish,
};
use bartizan_offload::key::{Fields, KeyField};
use bartizan_offload::stays::OffloadDenied;
use bartizan_packet::TunnelKind;
use bartizan_packet::windows::Windows;

/// Silence after which an entry is reported.
const AGEING: PacketDuration = PacketDuration::from_secs(10);

/// IP protocol of connections.
const TCP: u8 = 6;

/// An entry of a worker.
#[derive(Clone, Copy, Debug)]
struct WorkerEntry {
    sunk: SunkId,
    control: EntryControl,
    generation: Generation,
    /// Its place in the flow cache.
    at: usize,
    /// The numbers with which it was made: scales, and whether timestamps are in use.
    rules: Windows,
    tcp: bool,
    made: Timestamp,
    /// Its silence was reported.
    reported: bool,
}

/// The flow cache of the SmartNIC as a device: each worker has its own entries in it.
#[derive(Debug)]
pub struct SmartNicDevice<B> {
    card: Card<B>,
    capabilities: Capabilities,
    entries: Vec<Option<WorkerEntry>>,
    replies: Vec<(u32, SunkId, DeviceReply)>,
    last_poll: Timestamp,
}

impl<B: RegisterBus + 'static> SmartNicDevice<B> {
    /// A worker's device on a card, for this number of entries. `vlans`: keys have VLAN ids.
    #[must_use]
    pub fn new(card: Card<B>, entries: u32, vlans: bool) -> Self {
        let (ipv6, all) = (card.capabilities().ipv6, card.flow_entries());
        let fields = Fields::ALL.without(KeyField::OneWay).without(KeyField::ThirdVlan);
        let no_vlans = fields.without(KeyField::Vlan).without(KeyField::SecondVlan);
        let capabilities = Capabilities {
            level: Level::Rtl,
            entries: entries.min(u32::try_from(all).unwrap_or(u32::MAX)),
            ipv4: true,
            ipv6,
            fields: if vlans { fields } else { no_vlans },
            protocols: &[6, 17],
            tunnels: &[TunnelKind::Vxlan],
            windows: true,
            actions: Actions::ALL,
            exits: 0,
            counting: Counting::ALL,
            updates: true,
            ageing: Some(AGEING),
            insert_rate: None,
        };
        let (entries, said) = (Vec::new(), Vec::new());
        SmartNicDevice { card, capabilities, entries, replies: said, last_poll: Timestamp::ZERO }
    }

    /// Lets the device look into tunnels, or not: if the host gives up earlier than the logic would.
    #[must_use]
    pub const fn with_tunnels(mut self, reads: bool) -> Self {
        if !reads {
            self.capabilities.tunnels = &[];
        }
        self
    }

    fn entry(&self, place: u32, sunk: SunkId) -> Option<&WorkerEntry> {
        self.entries.get(place as usize)?.as_ref().filter(|entry| entry.sunk == sunk)
    }

    fn install(&mut self, request: &DeviceRequest, install: &Install, now: Timestamp) -> Answered {
        let Some(key) = CacheKey::new(&install.key.0) else {
            return Answered::Refused(OffloadDenied::Key);
        };
        let Some(mut control) = control_of(install) else {
            return Answered::Refused(OffloadDenied::Action);
        };
        let tcp = install.key.0.last().is_some_and(|word| *word as u8 == TCP);
        if !tcp && control.check == SegmentCheck::Note {
            control.check = SegmentCheck::Nothing;
        }
        let rules = install.windows.unwrap_or_default();
        let numbers = CacheNumbers { windows: rules, state: TcpState::Established, noted: [false; 2] };
        let insert = move |state: &mut CardState<B>| {
            let at = state.driver.insert_flow(&key, &control, &numbers)?;
            state.touch(at, now.as_nanos());
            Ok(at)
        };
        let at = match self.card.with(insert) {
            Ok(at) => at,
            Err(DriverError::FlowExists) => return Answered::Refused(OffloadDenied::Taken),
            Err(DriverError::BucketFull) => return Answered::Refused(OffloadDenied::Full),
            Err(DriverError::Family) => return Answered::Refused(OffloadDenied::Family),
            Err(DriverError::Gone | DriverError::Bus(_)) => return Answered::Refused(OffloadDenied::Away),
            Err(_) => return Answered::Refused(OffloadDenied::Refused),
        };
        let place = request.place as usize;
        if self.entries.len() <= place {
            self.entries.resize(place + 1, None);
        }
        if let Some(slot) = self.entries.get_mut(place) {
            let (sunk, generation, made, reported) = (request.sunk, install.generation, now, false);
            *slot = Some(WorkerEntry { sunk, control, generation, at, rules, tcp, made, reported });
        }
        Answered::Done(LevelReply::Installed)
    }

    /// Hands an entry to the present generation. It is marked, so no packet moves its numbers meanwhile.
    fn update(&mut self, place: u32, generation: Generation, windows: Option<Windows>) {
        let Some(entry) = self.entries.get_mut(place as usize).and_then(Option::as_mut) else { return };
        entry.control.generation = generation.0 as u8;
        entry.generation = generation;
        let (at, control) = (entry.at, entry.control);
        let numbers = windows.filter(|_| control.check == SegmentCheck::Compare).map(established);
        // A card that does not answer is reported with the next request that has a reply.
        let _ = self.card.with(move |state| {
            if let Some(numbers) = numbers {
                state.driver.publish_flow(at, &numbers)?;
            }
            state.driver.set_flow(at, &control)
        });
    }

    fn read(&self, at: usize) -> Option<EntryReading> {
        self.card.with(move |state| state.driver.read_flow(at)).ok()
    }

    fn report(&mut self, place: u32, entry: &WorkerEntry, reading: &EntryReading) {
        let counts = reading.counts;
        let windows = windows_of(entry, reading);
        let refuses = matches!(entry.control.action, EntryAction::Drop(_));
        let counts = Counts {
            packets: counts.packets,
            bytes: counts.bytes,
            last_seen: counts.last_seen.map(Timestamp::from_nanos),
            refused_inside: (0, 0),
            // Dropped packets move no connection on.
            sides: if windows.is_some() || refuses { Sides::default() } else { sides_of(entry, reading) },
            windows,
        };
        self.replies.push((place, entry.sunk, DeviceReply::Counts(counts)));
    }

    fn done(&mut self, request: &DeviceRequest, reply: LevelReply) {
        self.replies.push((request.place, request.sunk, DeviceReply::Answer(Answered::Done(reply))));
    }

    fn one(&mut self, request: &DeviceRequest, now: Timestamp) {
        if let Wish::Install(install) = request.wish {
            let answer = self.install(request, &install, now);
            self.replies.push((request.place, request.sunk, DeviceReply::Answer(answer)));
            return;
        }
        let Some(entry) = self.entry(request.place, request.sunk).copied() else {
            return self.done(request, LevelReply::Deleted);
        };
        let at = entry.at;
        match request.wish {
            Wish::Update { generation, windows } => self.update(request.place, generation, windows),
            Wish::Mark => {
                let _ = self.card.with(move |state| state.driver.mark_flow(at));
                self.done(request, LevelReply::Marked);
            }
            Wish::Read | Wish::Last => {
                if let Some(reading) = self.read(at) {
                    self.report(request.place, &entry, &reading);
                }
                if request.wish == Wish::Last {
                    self.done(request, LevelReply::Read);
                }
            }
            Wish::Delete => self.delete(request, &entry),
            Wish::Install(_) => {}
        }
    }

    fn delete(&mut self, request: &DeviceRequest, entry: &WorkerEntry) {
        let at = entry.at;
        if let Ok(reading) = self.card.with(move |state| state.driver.remove_flow(at)) {
            self.report(request.place, entry, &reading);
        }
        if let Some(slot) = self.entries.get_mut(request.place as usize) {
            *slot = None;
        }
        self.done(request, LevelReply::Deleted);
    }

    /// Reports entries that were silent for long enough.
    fn age(&mut self, now: Timestamp) {
        if now.since(self.last_poll) < PacketDuration::from_secs(1) {
            return;
        }
        self.last_poll = now;
        let Ok(touched) = self.card.with(move |state| Ok(state.touched_at(now.as_nanos())?.to_vec())) else {
            return;
        };
        for (place, entry) in (0u32..).zip(&mut self.entries) {
            let Some(entry) = entry else { continue };
            let at = touched.get(entry.at).copied().unwrap_or(0);
            let busy = Timestamp::from_nanos(at).max(entry.made);
            let is_silent = now.since(busy) >= AGEING;
            if is_silent && !entry.reported {
                self.replies.push((place, entry.sunk, DeviceReply::Idle(busy)));
            }
            entry.reported = is_silent;
        }
    }
}

/// The control word of a request. `None`: the card cannot do the action.
fn control_of(install: &Install) -> Option<EntryControl> {
    let (action, only_from) = match install.action {
        Action::Forward => (EntryAction::Forward, None),
        Action::Redirect(_) => return None,
        Action::Drop(reason) => (EntryAction::Drop(reason), None),
        Action::DropFrom(reason, end) => (EntryAction::Drop(reason), Some(end == Endpoint::High)),
    };
    let drops = matches!(action, EntryAction::Drop(_));
    if drops && install.key.is_in_tunnel() {
        return None;
    }
    let check = match install.windows {
        Some(_) if !drops => SegmentCheck::Compare,
        _ if drops => SegmentCheck::Nothing,
        _ => SegmentCheck::Note,
    };
    let generation = install.generation.0 as u8;
    Some(EntryControl { action, only_from, check, ..EntryControl::forward(generation) })
}

fn established(windows: Windows) -> CacheNumbers {
    CacheNumbers { windows, state: TcpState::Established, noted: [false; 2] }
}

/// The numbers of a connection whose segments are compared.
fn windows_of(entry: &WorkerEntry, reading: &EntryReading) -> Option<Windows> {
    let mut windows = reading.numbers.windows;
    windows.timestamps = entry.rules.timestamps;
    for (side, rules) in windows.sides.iter_mut().zip(entry.rules.sides) {
        side.scale = rules.scale;
    }
    (entry.control.check == SegmentCheck::Compare).then_some(windows)
}

/// The noted progress of a connection. A FIN always goes up, so none has been forwarded.
fn sides_of(entry: &WorkerEntry, reading: &EntryReading) -> Sides {
    let CacheNumbers { windows: Windows { sides: [low, high], .. }, noted: [of_low, of_high], .. } =
        reading.numbers;
    let side = |noted: bool, sent: u32, acknowledged: u32| {
        let (sent, acknowledged) = (Seq(sent), Seq(acknowledged));
        (entry.tcp && noted).then_some(TcpProgress { sent, acknowledged, fin: None })
    };
    [side(of_low, low.sent, high.acknowledged), side(of_high, high.sent, low.acknowledged)]
}

impl<B: RegisterBus + 'static> Device for SmartNicDevice<B> {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn submit(&mut self, requests: &[DeviceRequest], now: Timestamp) {
        for request in requests {
            self.one(request, now);
        }
    }

    fn poll(&mut self, now: Timestamp, replies: &mut Vec<(u32, SunkId, DeviceReply)>) {
        self.age(now);
        replies.append(&mut self.replies);
    }

    fn sides(&self, place: u32, sunk: SunkId) -> Option<Sides> {
        let entry = self.entry(place, sunk)?;
        let is_noted = entry.control.check == SegmentCheck::Note;
        Some(sides_of(entry, &self.read(entry.at).filter(|_| is_noted)?))
    }

    fn windows(&self, place: u32, sunk: SunkId) -> Option<Windows> {
        let entry = self.entry(place, sunk)?;
        if entry.control.check != SegmentCheck::Compare {
            return None;
        }
        windows_of(entry, &self.read(entry.at)?)
    }

    fn publish(&mut self, place: u32, sunk: SunkId, windows: &Windows) {
        let Some(entry) = self.entry(place, sunk) else { return };
        if entry.control.check == SegmentCheck::Compare {
            let (at, numbers) = (entry.at, established(*windows));
            let _ = self.card.with(move |state| state.driver.publish_flow(at, &numbers));
        }
    }

    fn has_missed(&mut self) -> bool {
        false
    }

    fn enter_generation(&mut self, generation: Generation) {
        // The device compares 8 bits: what is left of 256 generations ago must not act again.
        let same = |entry: &&WorkerEntry| {
            entry.generation != generation && entry.generation.0 as u8 == generation.0 as u8
        };
        let old: Vec<usize> = self.entries.iter().flatten().filter(same).map(|entry| entry.at).collect();
        let _ = self.card.with(move |state| {
            for at in old {
                state.driver.mark_flow(at)?;
            }
            state.driver.set_generation(generation.0 as u8)
        });
    }

    fn close(&mut self, _now: Timestamp) {
        let entries: Vec<(u32, WorkerEntry)> =
            (0u32..).zip(&self.entries).filter_map(|(place, entry)| Some((place, (*entry)?))).collect();
        for (place, entry) in entries {
            let request = DeviceRequest { place, sunk: entry.sunk, wish: Wish::Delete };
            self.delete(&request, &entry);
        }
    }
}
