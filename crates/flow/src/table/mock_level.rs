// SPDX-License-Identifier: Apache-2.0
//! A mock level for tests: it has entries, handles and counts packets, and carries out orders later, in a
//! random order. Its answers arrive later again. A packet that has found its entry is counted later too, if
//! the entry still exists.

use super::tests::at;
use crate::key::FlowKey;
use crate::level::{Command, LevelReply, SunkId};
use bartizan_base::{Direction, PerDirection};
use bartizan_testkit::random::Random;
use std::collections::{BTreeMap, HashMap};

/// The delays of the level, in milliseconds, and its faults.
#[derive(Clone, Copy)]
pub(super) struct Habits {
    /// Longest delay until an order takes effect, and until its answer arrives.
    pub work: usize,
    /// Longest delay until a packet that has found an entry is counted.
    pub flight: usize,
    /// Installs that are refused, in percent.
    pub refuses: usize,
    /// Orders that are never carried out, in percent.
    pub forgets: usize,
    /// Orders that are carried out much too late, in percent.
    pub lags: usize,
    /// Maximum number of entries.
    pub room: usize,
}

/// A message of the level to the host.
#[derive(Clone, Copy, Debug)]
pub(super) enum MockReply {
    /// Counted since the last message: packets, bytes, time of the latest.
    Counted(SunkId, Direction, u64, u64, u64),
    Answer(SunkId, LevelReply),
}

#[derive(Clone, Copy)]
enum MockTask {
    Install,
    Tell(Command),
    Count(Direction, u64),
    Answer(LevelReply),
}

struct MockEntry {
    sunk: SunkId,
    /// The flow's key when it was offloaded.
    key: FlowKey,
    marked: bool,
    /// Packets, bytes, time of the latest; not reported yet.
    counted: PerDirection<(u64, u64, u64)>,
}

pub(super) struct MockLevel {
    habits: Habits,
    random: Random,
    entries: HashMap<FlowKey, MockEntry>,
    work: BTreeMap<(u64, u64), (SunkId, FlowKey, MockTask)>,
    number: u64,
    /// Packets and bytes that had found an entry which no longer existed when they were to be counted.
    pub lost: (u64, u64),
    /// Packets counted by entries that had the order to pass packets up.
    pub counted_late: u64,
}

impl MockLevel {
    pub(super) fn new(habits: Habits, seed: u64) -> Self {
        Self {
            habits,
            random: Random::new(seed),
            entries: HashMap::new(),
            work: BTreeMap::new(),
            number: 0,
            lost: (0, 0),
            counted_late: 0,
        }
    }

    fn later(&mut self, now: u64, most: usize, sunk: SunkId, key: FlowKey, work: MockTask) {
        self.number += 1;
        let when = now + self.random.within(1, most.max(2)) as u64;
        self.work.insert((when, self.number), (sunk, key, work));
    }

    pub(super) fn install(&mut self, now: u64, sunk: SunkId, key: FlowKey) {
        self.later(now, self.habits.work, sunk, key, MockTask::Install);
    }

    pub(super) fn send_command(&mut self, now: u64, sunk: SunkId, key: FlowKey, command: Command) {
        if !self.random.percent(self.habits.forgets) {
            let late = if self.random.percent(self.habits.lags) { 2_500 } else { 0 };
            self.later(now + late, self.habits.work, sunk, key, MockTask::Tell(command));
        }
    }

    /// Handles a packet. Returns the stay that handles it and its direction there, or none if it is passed
    /// up.
    pub(super) fn packet(&mut self, now: u64, key: &FlowKey, bytes: u64) -> Option<(SunkId, Direction)> {
        let entry = self.entries.get(key).filter(|entry| !entry.marked)?;
        let (sunk, direction) = (entry.sunk, key.direction_in(&entry.key));
        self.later(now, self.habits.flight, sunk, *key, MockTask::Count(direction, bytes));
        Some((sunk, direction))
    }

    /// Does the work that is due, and returns the messages to the host.
    pub(super) fn run(&mut self, now: u64, replies: &mut Vec<MockReply>) {
        while let Some(((when, number), (sunk, key, work))) =
            self.work.first_key_value().map(|(k, v)| (*k, *v))
            && when <= now
        {
            self.work.remove(&(when, number));
            match work {
                MockTask::Install => {
                    let full = self.entries.len() >= self.habits.room || self.entries.contains_key(&key);
                    if full || self.random.percent(self.habits.refuses) {
                        self.later(when, self.habits.work, sunk, key, MockTask::Answer(LevelReply::Refused));
                    } else {
                        let counted = PerDirection::default();
                        self.entries.insert(key, MockEntry { sunk, key, marked: false, counted });
                        self.later(
                            when,
                            self.habits.work,
                            sunk,
                            key,
                            MockTask::Answer(LevelReply::Installed),
                        );
                    }
                }
                MockTask::Count(direction, bytes) => match self.entries.get_mut(&key) {
                    Some(entry) if entry.sunk == sunk => {
                        let (packets, sum, last) = &mut entry.counted[direction];
                        (*packets, *sum, *last) = (*packets + 1, *sum + bytes, when);
                        self.counted_late += u64::from(entry.marked);
                    }
                    _ => self.lost = (self.lost.0 + 1, self.lost.1 + bytes),
                },
                MockTask::Tell(command) => {
                    let answer = self.execute(sunk, &key, command, replies);
                    self.later(when, self.habits.work, sunk, key, MockTask::Answer(answer));
                }
                MockTask::Answer(answer) => replies.push(MockReply::Answer(sunk, answer)),
            }
        }
    }

    fn execute(
        &mut self,
        sunk: SunkId,
        key: &FlowKey,
        command: Command,
        replies: &mut Vec<MockReply>,
    ) -> LevelReply {
        let Some(entry) = self.entries.get_mut(key).filter(|entry| entry.sunk == sunk) else {
            return LevelReply::Deleted;
        };
        match command {
            Command::Mark => {
                entry.marked = true;
                LevelReply::Marked
            }
            Command::Read => {
                entry.read(replies);
                LevelReply::Read
            }
            Command::Delete => {
                entry.read(replies);
                self.entries.remove(key);
                LevelReply::Deleted
            }
        }
    }

    /// Reports the counters of a random share of the entries.
    pub(super) fn report(&mut self, percent: usize, replies: &mut Vec<MockReply>) {
        let mut entries: Vec<&mut MockEntry> = self.entries.values_mut().collect();
        // The order of the map is random; the test must be deterministic.
        entries.sort_unstable_by_key(|entry| (entry.sunk.serial, entry.sunk.turn));
        for entry in entries {
            if self.random.percent(percent) {
                entry.read(replies);
            }
        }
    }

    /// Renames stays whose flows moved to another table. Work for other stays is discarded.
    pub(super) fn rename(&mut self, names: &HashMap<SunkId, SunkId>) {
        let Self { entries, work, lost, .. } = self;
        let mut lose = |packets, bytes| *lost = (lost.0 + packets, lost.1 + bytes);
        entries.retain(|_, entry| {
            let new = names.get(&entry.sunk).copied();
            if new.is_none() {
                Direction::BOTH.iter().for_each(|d| lose(entry.counted[*d].0, entry.counted[*d].1));
            }
            entry.sunk = new.unwrap_or(entry.sunk);
            new.is_some()
        });
        work.retain(|_, (sunk, _, work)| {
            let new = names.get(sunk).copied();
            if let (None, MockTask::Count(_, bytes)) = (new, work) {
                lose(1, *bytes);
            }
            *sunk = new.unwrap_or(*sunk);
            new.is_some()
        });
    }

    /// Stays with a packet under way that has found their entry.
    pub(super) fn in_flight(&self) -> impl Iterator<Item = SunkId> {
        self.work
            .values()
            .filter(|(_, _, work)| matches!(work, MockTask::Count(..)))
            .map(|(sunk, _, _)| *sunk)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

impl MockEntry {
    fn read(&mut self, replies: &mut Vec<MockReply>) {
        for direction in Direction::BOTH {
            let (packets, bytes, last) = core::mem::take(&mut self.counted[direction]);
            if packets > 0 {
                replies.push(MockReply::Counted(self.sunk, direction, packets, bytes, last));
            }
        }
    }
}

impl MockReply {
    /// Passes the message to the table. Returns the amounts that the table did not take.
    pub(super) fn to(self, table: &mut super::FlowTable<u32>, now: u64) -> (u64, u64) {
        match self {
            MockReply::Counted(sunk, direction, packets, bytes, last) => {
                if !table.credit(sunk, direction, packets, bytes, at(last)) {
                    return (packets, bytes);
                }
            }
            MockReply::Answer(sunk, answer) => {
                table.answered(sunk, answer, at(now));
            }
        }
        (0, 0)
    }
}
