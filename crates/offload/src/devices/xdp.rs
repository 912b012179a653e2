// SPDX-License-Identifier: Apache-2.0
//! The kernel's XDP hook as a device: each worker of a link has places of its own in the tables that all of them share.
//!
//! What is asked is done at once, by stores into memory that the program reads, and by a system call for each entry that comes or goes. So answers are there with the next
//! poll.

use crate::device::{Action, Answered, Capabilities, Counts, Device, Install, Request, Said, Sides, Wish};
use crate::stays::Stays;
use bartizan_base::{Generation, Level, Timestamp};
use bartizan_flow::level::{Answer, SunkId};
use bartizan_flow::tcp::{Progress, Seq};
use bartizan_xdp::{Control, InsertError, Key, Tables, boot_time, boot_to_real};
use std::sync::Arc;
use std::time::Duration;

/// A program that has found an entry is done with its packet long before.
const GRACE: Duration = Duration::from_millis(10);

/// See the module.
pub struct XdpDevice {
    tables: Arc<Tables>,
    /// The slot of place 0.
    first: u32,
    capabilities: Capabilities,
    /// By place.
    entries: Vec<Option<(SunkId, Key)>>,
    said: Vec<(u32, SunkId, Said)>,
    /// The program's clock, and from it to that of packets, in nanoseconds; read once for all requests of a call.
    now: u64,
    to_packets: i64,
}

fn sides(counts: &bartizan_xdp::Counts) -> Sides {
    counts.progress.map(|side| {
        let bartizan_xdp::Progress { sent, acknowledged } = side?;
        Some(Progress { sent: Seq(sent), acknowledged: Seq(acknowledged) })
    })
}

impl XdpDevice {
    /// The share of one worker: as many slots, from `first` on.
    #[must_use]
    pub fn new(tables: Arc<Tables>, first: u32, entries: u32) -> Self {
        let capabilities = Capabilities {
            level: Level::Xdp,
            entries,
            ipv4: true,
            ipv6: true,
            protocols: &[6, 17],
            tunnels: false,
        };
        let (now, to_packets) = (boot_time(), boot_to_real());
        XdpDevice { tables, first, capabilities, entries: Vec::new(), said: Vec::new(), now, to_packets }
    }

    fn read_clocks(&mut self) {
        (self.now, self.to_packets) = (boot_time(), boot_to_real());
    }

    const fn slot(&self, place: u32) -> u32 {
        self.first + place
    }

    fn entry(&self, request: &Request) -> Option<&Key> {
        let (sunk, key) = self.entries.get(request.place as usize)?.as_ref()?;
        (*sunk == request.sunk).then_some(key)
    }

    fn install(&mut self, request: &Request, install: &Install) -> Answered {
        let slot = self.slot(request.place);
        let action = match install.action {
            Action::Forward => bartizan_xdp::Action::Forward,
            Action::Drop(reason) => bartizan_xdp::Action::Drop(reason),
        };
        // Who finds the key finds what to do.
        self.tables.clear(slot);
        self.tables.set_control(slot, Control { action, generation: install.generation.0 as u8 });
        match self.tables.insert(&install.key.0, slot) {
            Ok(()) => {}
            Err(InsertError::Exists) => return Answered::Refused(Stays::Taken),
            Err(InsertError::Full) => return Answered::Refused(Stays::Full),
            Err(_) => return Answered::Refused(Stays::Refused),
        }
        let at = request.place as usize;
        if self.entries.len() <= at {
            self.entries.resize(at + 1, None);
        }
        if let Some(entry) = self.entries.get_mut(at) {
            *entry = Some((request.sunk, install.key.0));
        }
        Answered::Done(Answer::Installed)
    }

    fn say_counts(&mut self, place: u32, sunk: SunkId) {
        let Some(counts) = self.tables.counts(self.slot(place), self.now) else { return };
        let time = |boot: u64| match boot {
            0 => Timestamp::ZERO,
            boot => Timestamp::from_nanos(boot.saturating_add_signed(self.to_packets)),
        };
        let counts = Counts {
            packets: counts.packets,
            bytes: counts.bytes,
            last_seen: counts.last_seen.map(time),
            sides: sides(&counts),
        };
        self.said.push((place, sunk, Said::Counts(counts)));
    }

    fn say(&mut self, request: &Request, answer: Answer) {
        self.said.push((request.place, request.sunk, Said::Answer(Answered::Done(answer))));
    }

    /// An entry that the kernel does not take away stays, without control, and nothing is answered: its slot must not become another flow's while the key leads
    /// to it. Who asked asks again. `last`: the program goes right after.
    fn delete(&mut self, request: &Request, last: bool) {
        if let Some(key) = self.entry(request).copied() {
            self.tables.mark(self.slot(request.place));
            if self.tables.remove(&key).is_err() && !last {
                return;
            }
            self.say_counts(request.place, request.sunk);
            if let Some(entry) = self.entries.get_mut(request.place as usize) {
                *entry = None;
            }
        }
        self.say(request, Answer::Deleted);
    }
}

impl Device for XdpDevice {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn submit(&mut self, requests: &[Request], _now: Timestamp) {
        self.read_clocks();
        for request in requests {
            match request.wish {
                Wish::Install(install) => {
                    let answer = self.install(request, &install);
                    self.said.push((request.place, request.sunk, Said::Answer(answer)));
                }
                _ if self.entry(request).is_none() => self.say(request, Answer::Deleted),
                Wish::Mark => {
                    self.tables.mark(self.slot(request.place));
                    self.say(request, Answer::Marked);
                }
                Wish::Read => self.say_counts(request.place, request.sunk),
                Wish::Last => {
                    self.say_counts(request.place, request.sunk);
                    self.say(request, Answer::Read);
                }
                Wish::Delete => self.delete(request, false),
            }
        }
    }

    fn poll(&mut self, _now: Timestamp, said: &mut Vec<(u32, SunkId, Said)>) {
        said.append(&mut self.said);
    }

    fn sides(&self, place: u32, sunk: SunkId) -> Option<Sides> {
        let (owner, _) = self.entries.get(place as usize)?.as_ref()?;
        let counts = self.tables.counts(self.slot(place), boot_time())?;
        (*owner == sunk).then(|| sides(&counts))
    }

    fn enter_generation(&mut self, generation: Generation) {
        // One for all workers: what others have decided in an earlier one goes up until they are here as well.
        self.tables.set_generation(generation.0 as u8);
    }

    fn close(&mut self, _now: Timestamp) {
        let entries: Vec<Request> = (0u32..)
            .zip(&self.entries)
            .filter_map(|(place, entry)| Some(Request { place, sunk: entry.as_ref()?.0, wish: Wish::Delete }))
            .collect();
        if entries.is_empty() {
            return;
        }
        for request in &entries {
            self.tables.mark(self.slot(request.place));
        }
        std::thread::sleep(GRACE);
        self.read_clocks();
        entries.iter().for_each(|request| self.delete(request, true));
    }
}
