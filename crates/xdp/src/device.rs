// SPDX-License-Identifier: Apache-2.0
//! The kernel's XDP hook as a device: each worker of a link has slots of its own in the tables that all
//! workers share.
//!
//! Requests are done at once, by stores into memory that the program reads, and by a system call for each
//! entry that is added or removed. So replies are ready at the next poll. Each poll is a sign of life of
//! the worker: where it gives none for too long, the program does without it (docs/failing.md).

use crate::counters;
use crate::early::EarlyCounted;
use crate::error::FlowInsertError;
use crate::tables::{self, FlowSlotControl, Key, Tables, boot_time, boot_to_real, monotonic_time};
use bartizan_base::{Generation, Level, Timestamp};
use bartizan_flow::level::{LevelReply, SunkId};
use bartizan_flow::tcp::{Fin, Seq, TcpProgress};
use bartizan_offload::device::{
    Action, Actions, Answered, Capabilities, Counting, Counts, Device, DeviceReply, DeviceRequest, Endpoint,
    Install, Sides, Wish,
};
use bartizan_offload::key::{DeviceKey, Fields, KeyField};
use bartizan_offload::level::{Fail, Watch};
use bartizan_offload::marks::Mark;
use bartizan_offload::stays::OffloadDenied;
use bartizan_packet::TunnelKind;
use bartizan_packet::windows::Windows;
use std::sync::Arc;
use std::time::Duration;

/// A run of the program that has found an entry ends long before this.
const GRACE: Duration = Duration::from_millis(10);

/// Tunnels that the program decodes (`ebpf/tunnels.h`).
const TUNNELS: [TunnelKind; 4] = [TunnelKind::Ip, TunnelKind::Vxlan, TunnelKind::Geneve, TunnelKind::Gtp];
/// The most layers that it reads, as the host's decoder counts them: Ethernet, three tags, IP, GENEVE, one
/// for the tunnel, and in it Ethernet and IP.
const LAYERS: u8 = 9;

/// A worker's signs of life.
#[derive(Clone, Copy, Debug)]
struct Heart {
    /// Its number among the workers of all links.
    worker: u32,
    /// The interval between two signs in nanoseconds, and the time of the last one.
    every: u64,
    last: u64,
    /// The time in nanoseconds after which it has failed.
    stale: u64,
    /// Whether its frames are forwarded then.
    fails_open: bool,
    /// Whether that has happened.
    missed: bool,
}

/// The divisor of the time after which a worker has failed; the quotient is the interval between its signs
/// of life.
const BEATS: u64 = 8;

/// The entry in a place.
#[derive(Clone, Copy, Debug)]
struct XdpEntry {
    sunk: SunkId,
    key: Key,
    /// The handling of its packets.
    action: tables::XdpFlowAction,
    /// Whether the flow is refused.
    refuses: bool,
    /// Whether its segments are compared with numbers.
    compares: bool,
}

/// The XDP level as a device: a worker's slots in the tables that the program in the kernel reads.
pub struct XdpDevice {
    tables: Arc<Tables>,
    /// The slot of place 0.
    first: u32,
    capabilities: Capabilities,
    /// The numbers of named ports in the tables, by their own; `None` where the program cannot send by them.
    exits: Vec<Option<u8>>,
    /// Entries by place.
    entries: Vec<Option<XdpEntry>>,
    replies: Vec<(u32, SunkId, DeviceReply)>,
    heart: Option<Heart>,
    early: Option<XdpEarlyCounts>,
    /// The program's clock, and the difference from it to that of packets, in nanoseconds; read once for all
    /// requests of a call.
    now: u64,
    to_packets: i64,
    /// The number of insertions, and the time that the kernel took for them, in nanoseconds.
    inserts: (u64, u64),
}

/// The device's part in counting packets without a flow that are refused early.
#[derive(Clone, Debug)]
struct XdpEarlyCounts {
    link: u8,
    counts: bool,
    /// The counts already reported for each outcome, by tables of even and odd generations.
    given: [Vec<EarlyCounted>; 2],
}

/// IP protocol of connections, which carry no other packets.
const TCP: u8 = 6;

/// Protocols whose packets are judged early without a flow.
const EARLY_PROTOCOLS: [u8; 4] = [TCP, 17, 1, 58];

fn sides(counts: &counters::XdpFlowCounts) -> Sides {
    let mut ends = counts.ends.iter();
    counts.progress.map(|side| {
        let end = ends.next().copied().flatten();
        let counters::XdpProgress { sent, acknowledged } = side?;
        let fin = end.map(|end| Fin { number: Seq(end.number), second: end.second });
        Some(TcpProgress { sent: Seq(sent), acknowledged: Seq(acknowledged), fin })
    })
}

const fn control(action: tables::XdpFlowAction, generation: Generation) -> FlowSlotControl {
    FlowSlotControl { action, generation: generation.0 as u32 }
}

impl XdpDevice {
    /// One worker's device: `entries` slots, from `first` on.
    #[must_use]
    pub fn new(tables: Arc<Tables>, first: u32, entries: u32) -> Self {
        let capabilities = Capabilities {
            level: Level::Xdp,
            entries,
            ipv4: true,
            ipv6: true,
            protocols: &[6, 17],
            tunnels: &TUNNELS,
            // The program does not know keys of one direction (ESP).
            fields: Fields::ALL.without(KeyField::OneWay),
            windows: true,
            actions: Actions::ALL,
            exits: 0,
            counting: Counting::ALL,
            updates: true,
            // None: the host reads its counts.
            ageing: None,
            insert_rate: None,
        };
        let exits = Vec::new();
        let (now, to_packets) = (boot_time(), boot_to_real());
        let (entries, said, heart, early) = (Vec::new(), Vec::new(), None, None);
        let inserts = (0, 0);
        XdpDevice {
            tables,
            first,
            capabilities,
            exits,
            entries,
            replies: said,
            heart,
            early,
            now,
            to_packets,
            inserts,
        }
    }

    /// Limits the device to the layers that the host decodes (`decoder.max-layers`): if the program would
    /// read more, it holds no flows in tunnels.
    #[must_use]
    pub const fn limited_to(mut self, max_layers: u8) -> Self {
        if !Self::reads_tunnels(max_layers) {
            self.capabilities.tunnels = &[];
        }
        self
    }

    /// Whether the program decodes tunnels at most as deep as a host with this limit of layers does.
    #[must_use]
    pub const fn reads_tunnels(max_layers: u8) -> bool {
        max_layers > LAYERS
    }

    /// Sets the named ports that redirected packets can leave by: the number of each in the tables, by its
    /// own.
    #[must_use]
    pub fn with_exits(mut self, exits: Vec<Option<u8>>) -> Self {
        let bits = exits.iter().zip(0u32..).filter(|(exit, _)| exit.is_some());
        self.capabilities.exits = bits.fold(0, |all, (_, bit)| all | 1u64.checked_shl(bit).unwrap_or(0));
        self.exits = exits;
        self
    }

    /// Refuses packets without a flow early on its link, by the link's number among such links. `counts`:
    /// this worker of the link reports the counts.
    #[must_use]
    pub fn with_early(mut self, link: u8, counts: bool) -> Self {
        let given = [false, true].map(|odd| {
            let early = self.tables.early();
            early.map_or_else(Vec::new, |early| {
                (0..early.outcomes()).map(|outcome| early.counted(odd, link, outcome)).collect()
            })
        });
        self.early = Some(XdpEarlyCounts { link, counts, given });
        self
    }

    fn read_clocks(&mut self) {
        (self.now, self.to_packets) = (boot_time(), boot_to_real());
    }

    /// Puts the worker under the watchdog, by its number among those of all links.
    #[must_use]
    pub fn watched(mut self, worker: u32, watch: &Watch) -> Self {
        let stale = u64::try_from(watch.stale.as_nanos()).unwrap_or(u64::MAX);
        let every = stale / BEATS;
        let fails_open = watch.fail == Fail::Open;
        self.heart = Some(Heart { worker, every, last: 0, stale, fails_open, missed: false });
        self
    }

    fn beat(&mut self) {
        let Some(heart) = &mut self.heart else { return };
        let now = monotonic_time();
        // The program's processors read the line, so it is not written with each batch.
        let silent = now.saturating_sub(heart.last);
        if silent >= heart.every {
            // The program has compared the same times. Before the first sign no watch had begun.
            heart.missed |= heart.fails_open && heart.last > 0 && silent > heart.stale;
            heart.last = now;
            self.tables.beat(heart.worker, now);
        }
    }

    const fn slot(&self, place: u32) -> u32 {
        self.first + place
    }

    fn entry(&self, request: &DeviceRequest) -> Option<&Key> {
        let entry = self.entries.get(request.place as usize)?.as_ref()?;
        (entry.sunk == request.sunk).then_some(&entry.key)
    }

    /// Makes an entry, and measures the rate.
    fn insert(&mut self, key: &Key, slot: u32) -> Result<(), FlowInsertError> {
        let begun = monotonic_time();
        let result = self.tables.insert(key, slot);
        let (inserts, nanos) = &mut self.inserts;
        (*inserts, *nanos) = (*inserts + 1, *nanos + monotonic_time().saturating_sub(begun).max(1));
        let rate = u128::from(*inserts) * 1_000_000_000 / u128::from(*nanos);
        self.capabilities.insert_rate = u64::try_from(rate).ok();
        result
    }

    fn install(&mut self, request: &DeviceRequest, install: &Install) -> Answered {
        let slot = self.slot(request.place);
        let action = match (install.action, &install.windows) {
            (Action::Forward, None) => tables::XdpFlowAction::Forward,
            (Action::Forward, Some(_)) => tables::XdpFlowAction::Compare,
            (Action::Redirect(port), _) => match self.exits.get(usize::from(port.0)).copied().flatten() {
                Some(exit) => tables::XdpFlowAction::Redirect(exit),
                None => return Answered::Refused(OffloadDenied::Egress),
            },
            (Action::Drop(reason), _) => tables::XdpFlowAction::Drop(reason),
            (Action::DropFrom(reason, endpoint), _) => {
                tables::XdpFlowAction::DropFrom(reason, endpoint == Endpoint::High)
            }
        };
        // The control is written before the key, since a processor that finds the key reads the control.
        self.tables.clear(slot);
        if let Some(windows) = &install.windows {
            self.tables.set_windows(slot, windows);
        }
        self.tables.set_control(slot, control(action, install.generation));
        match self.insert(&install.key.0, slot) {
            Ok(()) => {}
            Err(FlowInsertError::Exists) => return Answered::Refused(OffloadDenied::Taken),
            Err(FlowInsertError::Full) => return Answered::Refused(OffloadDenied::Full),
            Err(_) => return Answered::Refused(OffloadDenied::Refused),
        }
        let at = request.place as usize;
        if self.entries.len() <= at {
            self.entries.resize(at + 1, None);
        }
        if let Some(entry) = self.entries.get_mut(at) {
            let refuses = install.action.drops().is_some();
            let compares = action == tables::XdpFlowAction::Compare;
            *entry = Some(XdpEntry { sunk: request.sunk, key: install.key.0, action, refuses, compares });
        }
        Answered::Done(LevelReply::Installed)
    }

    /// Updates the numbers and the control word. The entry passes packets up, so no processor moves its
    /// numbers meanwhile; a processor that sees the new word sees the numbers as the host has them.
    fn update(&mut self, request: &DeviceRequest, generation: Generation, windows: Option<Windows>) {
        let Some(XdpEntry { action, .. }) = self.entries.get(request.place as usize).copied().flatten()
        else {
            return;
        };
        if let Some(windows) = &windows {
            self.publish(request.place, request.sunk, windows);
        }
        self.tables.set_control(self.slot(request.place), control(action, generation));
    }

    fn reply_counts(&mut self, place: u32, sunk: SunkId) {
        let Some(counts) = self.tables.counts(self.slot(place), self.now) else { return };
        let time = |boot: u64| match boot {
            0 => Timestamp::ZERO,
            boot => Timestamp::from_nanos(boot.saturating_add_signed(self.to_packets)),
        };
        let windows = self.windows(place, sunk);
        let entry = self.entries.get(place as usize).and_then(Option::as_ref);
        // Dropped packets move no connection on.
        let refuses = entry.is_some_and(|entry| entry.refuses);
        let carries = entry.is_some_and(|entry| entry.key.last().is_some_and(|word| *word as u8 != TCP));
        let counts = Counts {
            packets: counts.packets,
            bytes: counts.bytes,
            last_seen: counts.last_seen.map(time),
            refused_inside: if carries { counts.refused_inside } else { (0, 0) },
            sides: if windows.is_some() || refuses { Sides::default() } else { sides(&counts) },
            windows,
        };
        self.replies.push((place, sunk, DeviceReply::Counts(counts)));
    }

    fn reply(&mut self, request: &DeviceRequest, answer: LevelReply) {
        self.replies.push((request.place, request.sunk, DeviceReply::Answer(Answered::Done(answer))));
    }

    /// Removes an entry, and reports its counts.
    fn delete(&mut self, request: &DeviceRequest) {
        if let Some(key) = self.entry(request).copied() {
            self.tables.mark(self.slot(request.place));
            self.tables.remove(&key);
            self.reply_counts(request.place, request.sunk);
            if let Some(entry) = self.entries.get_mut(request.place as usize) {
                *entry = None;
            }
        }
        self.reply(request, LevelReply::Deleted);
    }
}

impl Device for XdpDevice {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn submit(&mut self, requests: &[DeviceRequest], _now: Timestamp) {
        self.read_clocks();
        for request in requests {
            match request.wish {
                Wish::Install(install) => {
                    let answer = self.install(request, &install);
                    self.replies.push((request.place, request.sunk, DeviceReply::Answer(answer)));
                }
                _ if self.entry(request).is_none() => self.reply(request, LevelReply::Deleted),
                Wish::Update { generation, windows } => self.update(request, generation, windows),
                Wish::Mark => {
                    self.tables.mark(self.slot(request.place));
                    self.reply(request, LevelReply::Marked);
                }
                Wish::Read => self.reply_counts(request.place, request.sunk),
                Wish::Last => {
                    self.reply_counts(request.place, request.sunk);
                    self.reply(request, LevelReply::Read);
                }
                Wish::Delete => self.delete(request),
            }
        }
    }

    fn poll(&mut self, _now: Timestamp, replies: &mut Vec<(u32, SunkId, DeviceReply)>) {
        self.beat();
        replies.append(&mut self.replies);
    }

    fn sides(&self, place: u32, sunk: SunkId) -> Option<Sides> {
        let entry = self.entries.get(place as usize)?.as_ref()?;
        if entry.sunk != sunk || entry.compares || entry.refuses {
            return None;
        }
        self.tables.counts(self.slot(place), boot_time()).map(|counts| sides(&counts))
    }

    fn windows(&self, place: u32, sunk: SunkId) -> Option<Windows> {
        let entry = self.entries.get(place as usize)?.as_ref()?;
        let compared = entry.sunk == sunk && entry.compares;
        if compared { self.tables.windows(self.slot(place)) } else { None }
    }

    fn publish(&mut self, place: u32, sunk: SunkId, windows: &Windows) {
        let entry = self.entries.get(place as usize).and_then(Option::as_ref);
        if entry.is_some_and(|entry| entry.sunk == sunk && entry.compares) {
            self.tables.publish_windows(self.slot(place), windows);
        }
    }

    fn has_missed(&mut self) -> bool {
        self.heart.as_mut().is_some_and(|heart| core::mem::take(&mut heart.missed))
    }

    fn is_early(&self) -> bool {
        self.early.is_some()
    }

    fn mark(&self, key: &DeviceKey) -> Option<Mark> {
        let known = self.capabilities.tunnels.iter().any(|kind| key.is_in(*kind));
        let judged = self.early.is_some()
            && (known || !key.is_in_tunnel())
            && EARLY_PROTOCOLS.contains(&(key.0.last().copied().unwrap_or(0) as u8));
        let early = self.tables.early().filter(|_| judged)?;
        Mark::new(early.marks(), &key.0)
    }

    fn early(&mut self, generation: Generation, outcomes: u32, each: &mut dyn FnMut(u32, u64, u64)) {
        let (Some(XdpEarlyCounts { link, counts: true, given }), Some(tables)) =
            (&mut self.early, self.tables.early())
        else {
            return;
        };
        let odd = generation.0 & 1 == 1;
        let Some(given) = given.get_mut(usize::from(odd)) else { return };
        for (outcome, given) in (0..outcomes).zip(given) {
            let now = tables.counted(odd, *link, outcome);
            let packets = now.packets.wrapping_sub(given.packets);
            if packets > 0 {
                each(outcome, packets, now.bytes.wrapping_sub(given.bytes));
                *given = now;
            }
        }
    }

    fn enter_generation(&mut self, generation: Generation) {
        // One generation for all workers: entries that others have decided in an earlier one, or still decide
        // in it, go up until their workers enter this one as well.
        self.tables.enter_generation(generation.0);
    }

    /// Entries that refuse a flow stay in the program's table, which mostly goes right after. If it does
    /// not, since the run has failed and the link fails open, the flow stays refused.
    fn close(&mut self, _now: Timestamp) {
        let places = (0u32..).zip(&self.entries);
        let entries: Vec<(u32, XdpEntry)> =
            places.filter_map(|(place, entry)| Some((place, (*entry)?))).collect();
        if entries.is_empty() {
            return;
        }
        for (place, _) in entries.iter().filter(|(_, entry)| !entry.refuses) {
            self.tables.mark(self.slot(*place));
        }
        std::thread::sleep(GRACE);
        self.read_clocks();
        for (place, XdpEntry { sunk, refuses, .. }) in entries {
            let request = DeviceRequest { place, sunk, wish: Wish::Delete };
            if refuses {
                self.reply_counts(place, sunk);
                self.reply(&request, LevelReply::Deleted);
            } else {
                self.delete(&request);
            }
        }
        self.entries.clear();
    }
}
