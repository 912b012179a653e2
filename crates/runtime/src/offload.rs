// SPDX-License-Identifier: Apache-2.0
//! The levels below the host: which links have which, and each worker's share of them. They are there before
//! the first packet, and go when the run has ended as it should; where one is to fail open it stays when the
//! run has failed (docs/failing.md).
//!
//! A link has one level or several; a flow that the nearest to the wire cannot hold goes to the next. All
//! links with a level share one program with one set of tables. Where it cannot be used the run does not
//! begin, and says what to do. What a killed run has left on a link's interfaces is taken over once all
//! workers serve their frames, or taken away where the link is not to fail open. What it has left on other
//! interfaces of this network namespace is taken away as well, unless the program that is inline there lives:
//! it would go on forwarding what nobody looks at.
//!
//! A link whose interfaces are gone loses its levels with them, and gets them again when it is taken up:
//! entries and devices are those of before. Until that works the link runs without them, which is said once
//! for each cause.

mod left;
mod link;
mod ports;
mod shared;
pub mod stand;

pub use ports::{LevelPort, LevelPortCounters};

use crate::crew::OfLink;
use crate::error::Failure;
use crate::links::Links;
use crate::plan::{LinkPlan, RunPlan};
use bartizan_base::{Generation, LinkId};
use bartizan_config::host::OffloadSection;
use bartizan_dataplane::source::LevelWay;
use bartizan_offload::Device;
use bartizan_offload::level::{LevelDriver, StalePrograms};
use bartizan_ports::Interface;
use bartizan_stages::chain::Chains;
use bartizan_stages::stats::NamedCounters;
use shared::{LevelInputs, SharedLevel};
use stand::LevelsStand;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Interval in which MTUs, and the interfaces of links, are checked.
const EVERY: Duration = Duration::from_secs(1);

/// The levels below the host of a run: the levels of each link, and each worker's devices.
#[derive(Default)]
pub struct Below {
    /// Each detaches when it goes.
    levels: Vec<SharedLevel>,
    last_check: Option<Instant>,
    /// State of the levels, for reports.
    pub stand: LevelsStand,
    /// Pending notes for the user.
    pub notes: Vec<String>,
}

/// For each link the number of its first worker among the workers of all links.
fn first_workers(plan: &RunPlan) -> Vec<u32> {
    let before = plan.links.iter().scan(0, |all, link| {
        let first = *all;
        *all += u32::from(link.workers);
        Some(first)
    });
    before.collect()
}

/// The kinds of level that links have, each once.
fn drivers(plan: &RunPlan) -> Result<Vec<&'static dyn LevelDriver>, Failure> {
    let mut drivers: Vec<&'static dyn LevelDriver> = Vec::new();
    for (link, section) in plan.links.iter().flat_map(|link| link.levels.iter().map(move |of| (link, of))) {
        let driver = plan
            .levels
            .of_name(&section.level)
            .map_err(|why| Failure::input(format!("link `{}`: {why}", link.name)))?;
        if drivers.iter().all(|known| known.name() != driver.name()) {
            drivers.push(driver);
        }
    }
    Ok(drivers)
}

impl Below {
    /// Loads and attaches what links want, and gives each worker its devices. To be called once their ports
    /// are open; `interfaces` by link; `chains`: the first generation, with the names of its functions by
    /// their bit.
    ///
    /// # Errors
    /// A level that is wanted cannot be used: which, why, and what to do.
    pub fn open(
        plan: &RunPlan,
        interfaces: &[Vec<Interface>],
        of_links: &mut [OfLink],
        chains: &Chains,
        names: &[&'static str],
    ) -> Result<Self, Failure> {
        let mut below = Below::default();
        left::take_away_from_links(plan, interfaces, &mut below.notes)?;
        let first_workers = &first_workers(plan);
        for driver in drivers(plan)? {
            let inputs = LevelInputs { plan, interfaces, of_links, first_workers, chains };
            let opened = SharedLevel::open(driver, inputs, &below.stand, &mut below.notes)?;
            if let Some((level, reach)) = opened {
                below.stand.note_rules(driver.name(), chains, names, reach);
                below.levels.push(level);
            }
        }
        for (number, (of_link, link)) in (0..).zip(of_links.iter_mut().zip(&plan.links)) {
            let own = |worker| below.devices(&link.levels, LinkId(number), worker);
            of_link.devices = (0..u32::from(link.workers)).map(own).collect();
            let order: Vec<&str> = link.levels.iter().map(|section| section.level.as_str()).collect();
            below.stand.note_order(&link.name, &order);
            below.show_frames(LinkId(number), link, of_link)?;
        }
        left::take_away_others(&mut below.levels, plan, interfaces, &mut below.notes)?;
        Ok(below)
    }

    /// Has levels of this process see the frames of a link before its workers.
    ///
    /// # Errors
    /// A level on the link's interfaces is listed behind one of this process, and is nearer to the wire.
    fn show_frames(&self, number: LinkId, link: &LinkPlan, of_link: &mut OfLink) -> Result<(), Failure> {
        let first = u8::try_from(2 * number.0).unwrap_or(u8::MAX - 1);
        let mut inner: Option<&SharedLevel> = None;
        for level in link.levels.iter().filter_map(|section| self.level(&section.level)) {
            match (level.level.frame_path(), inner) {
                (None, None) => {}
                (None, Some(inner)) => {
                    let (near, far) = (level.driver.name(), inner.driver.name());
                    return Err(Failure::input(format!(
                        "link `{}`: level `{near}` works on the interfaces, and `{far}` on the packets that it hands up; list `{near}` before `{far}` in `offload`",
                        link.name
                    )));
                }
                (Some(path), _) => {
                    inner = Some(level);
                    for source in &mut of_link.sources {
                        let way = LevelWay { path: Arc::clone(&path), ports: [first, first + 1] };
                        source.pass_through(way);
                    }
                }
            }
        }
        Ok(())
    }

    /// The level of a name.
    fn level(&self, name: &str) -> Option<&SharedLevel> {
        self.levels.iter().find(|level| level.driver.name() == name)
    }

    /// The devices of a link's worker, in the order of the link's levels.
    fn devices(&self, sections: &[OffloadSection], link: LinkId, worker: u32) -> Vec<Box<dyn Device>> {
        let level = |section: &OffloadSection| self.level(&section.level)?.device(link, worker);
        sections.iter().filter_map(level).collect()
    }

    /// Whether a level refuses packets without a flow by the list of a generation before this one, since no
    /// worker has begun with it.
    pub fn is_behind(&self, generation: Generation) -> bool {
        self.levels.iter().any(|level| level.is_behind(generation))
    }

    /// Makes the tables by which levels drop packets without a flow in a generation, before any worker enters
    /// it. Returns messages about rules that the tables do not hold. `names`: the functions by their bit.
    /// `free`: no level reads the older table any more ([`Below::is_behind`]); otherwise the generation has
    /// none.
    pub fn prepare(&mut self, chains: &Chains, names: &[&'static str], free: bool) -> Option<String> {
        if self.levels.is_empty() {
            return None;
        }
        if !free {
            return Some(format!(
                "packets without a flow are not dropped early in generation {}, and pass while a link is open, because no worker has begun the previous generation; reload once more when one has",
                chains.generation.0
            ));
        }
        let mut notes = Vec::new();
        for level in &mut self.levels {
            let (reach, said) = level.prepare(chains);
            self.stand.note_rules(level.driver.name(), chains, names, reach);
            notes.extend(said);
        }
        (!notes.is_empty()).then(|| notes.join("; "))
    }

    /// Pins the attachments of links that fail open, takes over programs of a killed run once workers serve
    /// their frames, and detects changed MTUs and links that were removed or came back. Returns messages for
    /// the log. Call it often; most calls do nothing.
    pub fn check(&mut self, links: &Links) -> Vec<String> {
        let mut said = Vec::new();
        let is_due = self.last_check.is_none_or(|looked| looked.elapsed() >= EVERY);
        if is_due {
            self.last_check = Some(Instant::now());
            self.stand.note_away(links.away());
        }
        for level in &mut self.levels {
            level.take_over(&mut said);
            if is_due {
                level.follow(links, &self.stand, &mut said);
            }
        }
        said
    }

    /// Ends the watch over workers before an intended stop, in which silent workers are not a failure.
    pub fn end_watch(&mut self) {
        self.levels.iter_mut().for_each(|level| level.level.end_watch());
    }

    /// Removes the levels. `failed`: the run ended unintentionally, and links that fail open do so. Gives
    /// the last counters ([`Below::beside`]).
    pub fn close(self, failed: bool) -> Vec<NamedCounters> {
        let counters = self.beside();
        for level in self.levels {
            if failed { level.level.leave() } else { level.level.end() }
        }
        counters
    }

    /// Counters of the levels by link, for statistics. Those of a killed run's state are counted for the
    /// first link with a level.
    #[must_use]
    pub fn beside(&self) -> Vec<NamedCounters> {
        let is_on = |link: LinkId| self.levels.iter().any(|level| level.links().any(|on| on == link));
        let Some(last) = self.levels.iter().flat_map(SharedLevel::links).max() else { return Vec::new() };
        let mut left = Some(self.levels.iter().fold(StalePrograms::default(), |mut sum, level| {
            sum.add(&level.left);
            sum
        }));
        let of_link = |number: u16| {
            if !is_on(LinkId(number)) {
                return NamedCounters::new();
            }
            let mut sums = [
                ("offload.open_pkts", 0u64),
                ("offload.open_bytes", 0),
                ("offload.closed_pkts", 0),
                ("offload.closed_bytes", 0),
                ("offload.lost_pkts", 0),
            ];
            self.levels.iter().for_each(|level| level.add_failed(LinkId(number), &mut sums));
            let mut counters = NamedCounters::from(sums);
            counters.extend(left.take().iter().flat_map(left_counters));
            counters
        };
        (0..=last.0).map(of_link).collect()
    }

    /// Each level's counters by port.
    pub fn counters(&self) -> Vec<LevelPortCounters> {
        self.levels.iter().map(SharedLevel::counters).collect()
    }
}

/// Counters of the state that killed runs left.
const fn left_counters(left: &StalePrograms) -> [(&'static str, u64); 10] {
    [
        ("offload.left.programs", left.programs),
        ("offload.left.entries", left.entries),
        ("offload.left.forwarded_pkts", left.forwarded.frames),
        ("offload.left.forwarded_bytes", left.forwarded.bytes),
        ("offload.left.dropped_pkts", left.dropped.frames),
        ("offload.left.dropped_bytes", left.dropped.bytes),
        ("offload.left.open_pkts", left.open.frames),
        ("offload.left.open_bytes", left.open.bytes),
        ("offload.left.closed_pkts", left.closed.frames),
        ("offload.left.closed_bytes", left.closed.bytes),
    ]
}
