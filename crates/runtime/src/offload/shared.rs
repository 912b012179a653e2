// SPDX-License-Identifier: Apache-2.0
//! A running level with the links that share it: one set of tables for all of them.

use super::left::{note, take_away_unpaired};
use super::link::LinkLevel;
use super::ports::{LevelPort, LevelPortCounters};
use super::stand::{LevelsStand, NotedLevel};
use crate::crew::OfLink;
use crate::error::Failure;
use crate::links::Links;
use crate::plan::{LinkPlan, RunPlan};
use bartizan_base::{Generation, LinkId, Spread};
use bartizan_classify::early::{EarlyLevel, EarlyReach};
use bartizan_config::host::{
    OFFLOAD_DROP_SAMPLES_USUAL, OFFLOAD_ENTRIES_USUAL, OFFLOAD_STALE_USUAL, OffloadFail, OffloadMode,
    OffloadSection,
};
use bartizan_offload::Device;
use bartizan_offload::level::{
    AttachMode, DeviceSetup, EarlyMode, EarlyOptions, Fail, LevelDriver, LevelError, LevelOptions, OpenLevel,
    PortNews, PortSetup, PortSide, StalePrograms, Watch,
};
use bartizan_packet::slots::PORTS;
use bartizan_ports::Interface;
use bartizan_stages::chain::Chains;
use bartizan_stages::settings::EngineSettings;
use std::collections::BTreeMap;
use std::time::Duration;

/// The parts of a run that its levels are opened with.
#[derive(Clone, Copy)]
pub(super) struct LevelInputs<'r> {
    pub plan: &'r RunPlan,
    /// Interfaces of each link.
    pub interfaces: &'r [Vec<Interface>],
    pub of_links: &'r [OfLink],
    /// Number of each link's first worker among the workers of all links.
    pub first_workers: &'r [u32],
    /// The first generation.
    pub chains: &'r Chains,
}

/// A link that has the level, with its number and its settings for the level.
#[derive(Clone, Copy)]
struct LinkOfLevel<'r> {
    number: LinkId,
    link: &'r LinkPlan,
    section: &'r OffloadSection,
    interfaces: &'r [Interface],
    settings: &'r EngineSettings,
    first_worker: u32,
}

impl<'r> LevelInputs<'r> {
    /// The links that have a level of this name, in order.
    fn links_with(self, name: &'r str) -> impl Iterator<Item = LinkOfLevel<'r>> {
        let links = self.plan.links.iter().zip(self.interfaces).zip(self.of_links).zip(self.first_workers);
        (0..).zip(links).filter_map(move |(number, (((link, interfaces), of_link), first))| {
            let section = link.level(name)?;
            let (number, settings) = (LinkId(number), &of_link.stack.settings);
            Some(LinkOfLevel { number, link, section, interfaces, settings, first_worker: *first })
        })
    }
}

impl LinkOfLevel<'_> {
    /// Entries of each worker, the same number for each.
    fn entries(&self) -> u32 {
        let wanted = self.section.entries.unwrap_or(OFFLOAD_ENTRIES_USUAL);
        wanted.div_ceil(self.workers())
    }

    fn workers(&self) -> u32 {
        u32::from(self.link.workers.max(1))
    }

    fn spread(&self) -> Spread {
        self.settings.spread(self.link.workers).of_link(self.number)
    }

    /// Whether the level is the nearest one to the wire of the link's.
    fn is_nearest(&self) -> bool {
        self.link.levels.first().is_some_and(|first| first.level == self.section.level)
    }
}

/// A link's share of the level.
#[derive(Clone, Copy)]
struct LevelShare {
    number: LinkId,
    /// The first of its slots.
    first_slot: u32,
    /// Slots of each worker.
    each: u32,
    watch: Watch,
    /// The link's first worker among those of all links, and how many it has.
    workers: (u32, u32),
    /// The limit of layers at which the host gives a packet up.
    max_layers: u8,
}

/// See the module.
pub(super) struct SharedLevel {
    pub driver: &'static dyn LevelDriver,
    pub level: Box<dyn OpenLevel>,
    shares: Vec<LevelShare>,
    ports: Vec<LevelPort>,
    links: Vec<LinkLevel>,
    /// Interfaces of named ports, with the numbers that they have in its tables; none where these are used
    /// up.
    exits: Vec<(String, Option<u8>)>,
    /// Links whose packets without a flow are refused by rules, at any time or while they are open, in the
    /// order of their numbers at the level.
    early: Vec<LinkId>,
    /// Whether the early list covers packets in tunnels, too: the host's flows in tunnels have keys of their
    /// own, and the host decodes the same tunnels as the level.
    early_in_tunnels: bool,
    /// State of a killed run that was found on the interfaces.
    pub left: StalePrograms,
    /// Why that could not be taken over, as it was said last.
    reported: Option<String>,
}

/// The attach mode of a level.
const fn attach_mode(offload: &OffloadSection) -> AttachMode {
    match offload.mode {
        OffloadMode::Auto => AttachMode::Auto,
        OffloadMode::Native => AttachMode::Native,
        OffloadMode::Generic => AttachMode::Generic,
    }
}

/// Power of two: one of so many packets dropped below comes up.
fn drop_samples(offload: &OffloadSection) -> Option<u8> {
    let of = offload.drop_samples.unwrap_or(OFFLOAD_DROP_SAMPLES_USUAL);
    of.checked_ilog2().and_then(|power| u8::try_from(power).ok())
}

/// The watch of a link's workers, which are numbered from `first` on, with the policy for frames of a silent
/// worker.
fn watch(offload: &OffloadSection, spread: Spread, first: u32) -> Watch {
    let fail = match offload.fail {
        OffloadFail::Closed => Fail::Closed,
        OffloadFail::Open => Fail::Open,
    };
    let stale = Duration::from_secs(offload.stale.unwrap_or(OFFLOAD_STALE_USUAL).0);
    Watch { fail, stale, spread, first }
}

/// A run that wants a level does not begin without it: who has taken the hook is told.
fn cannot_be_used(link: &str, title: &str, error: LevelError) -> Failure {
    let why = error.explain();
    Failure::input(format!("link `{link}`: its {title} level cannot be used: {why}; or remove `offload`"))
}

/// All links share one program, which is attached in one way.
fn one_mode(driver: &dyn LevelDriver, inputs: LevelInputs<'_>) -> Result<(), Failure> {
    let mut wanted = inputs.links_with(driver.name());
    let Some(first) = wanted.next() else { return Ok(()) };
    match wanted.find(|other| other.section.mode != first.section.mode) {
        None => Ok(()),
        Some(other) => Err(Failure::input(format!(
            "links `{}` and `{}` have different `mode`s of their {} level (`offload`), and all links share one program; give both the same `mode`, or remove it",
            first.link.name,
            other.link.name,
            driver.title()
        ))),
    }
}

impl SharedLevel {
    /// Opens a level and attaches it to the links that configure it; `None`: no link does. Also returns the
    /// number of rules of the first generation that its table of packets without a flow holds. Messages for
    /// the log go to `notes`.
    ///
    /// # Errors
    /// It cannot be used: where, why, and what to do.
    pub fn open(
        driver: &'static dyn LevelDriver,
        inputs: LevelInputs<'_>,
        stand: &LevelsStand,
        notes: &mut Vec<String>,
    ) -> Result<Option<(Self, EarlyReach)>, Failure> {
        one_mode(driver, inputs)?;
        let Some(first) = inputs.links_with(driver.name()).next() else { return Ok(None) };
        let failed = |error: LevelError| cannot_be_used(&first.link.name, driver.title(), error);
        let knows = |of: &LinkOfLevel<'_>| of.link.knows_refusals(of.section);
        let early: Vec<LinkId> = inputs.links_with(driver.name()).filter(knows).map(|of| of.number).collect();
        let early_in_tunnels = inputs.of_links.iter().all(|of_link| {
            let settings = &of_link.stack.settings;
            settings.tunnel_in_key && driver.reads_tunnels(settings.decoder.max_layers)
        });
        let [one, other] = first.settings.seed;
        let options = LevelOptions {
            flows: inputs.links_with(driver.name()).map(|of| of.entries() * of.workers()).sum(),
            mode: attach_mode(first.section),
            tunnels: first.settings.decoder,
            workers: inputs.plan.workers().into(),
            early: early_options(driver.name(), inputs),
            seed: one ^ other.rotate_left(32),
        };
        let level = driver.open(&options).map_err(failed)?;
        let mut opened = SharedLevel {
            driver,
            level,
            shares: Vec::new(),
            ports: Vec::new(),
            links: Vec::new(),
            exits: Vec::new(),
            early,
            early_in_tunnels,
            left: StalePrograms::default(),
            reported: None,
        };
        // Before a link can be left open it is known what is refused.
        let (reach, said) = opened.prepare(inputs.chains);
        notes.extend(said);
        opened.level.enter_generation(inputs.chains.generation);
        take_away_unpaired(driver, &mut *opened.level, inputs.plan, inputs.interfaces, notes)
            .map_err(failed)?;
        opened.check_all(inputs)?;
        for of in inputs.links_with(driver.name()) {
            opened.attach(of, stand, notes)?;
        }
        opened.open_exits(inputs.plan)?;
        Ok(Some((opened, reach)))
    }

    /// All that is wrong with the interfaces of links that are to have the level, so that it is mended at
    /// once.
    fn check_all(&mut self, inputs: LevelInputs<'_>) -> Result<(), Failure> {
        let driver = self.driver;
        let own = || inputs.links_with(driver.name());
        let all: Vec<u32> = own().flat_map(|of| of.interfaces).map(|interface| interface.index).collect();
        let names: Vec<_> = own().map(|of| of.link.name.as_str()).collect();
        self.level.check(&all).map_err(|error| cannot_be_used(&names.join("`, `"), driver.title(), error))
    }

    /// Attaches the level to a link's two interfaces.
    fn attach(
        &mut self,
        of: LinkOfLevel<'_>,
        stand: &LevelsStand,
        notes: &mut Vec<String>,
    ) -> Result<(), Failure> {
        let early = self.early_number(of.number);
        let title = self.driver.title();
        let drops_early = of.link.drops_early(of.section);
        let watch = watch(of.section, of.spread(), of.first_worker);
        let setup = |side, at: u16| {
            let index = u8::try_from(of.number.0 * 2 + at).unwrap_or(u8::MAX);
            PortSetup {
                ifindex: 0,
                link: of.number,
                side: if of.settings.side_in_key { side } else { PortSide::Unknown },
                index,
                pair: index ^ 1,
                vlans_in_key: of.settings.vlan_in_key,
                drop_samples: drop_samples(of.section),
                early: early.map(if drops_early { EarlyMode::Always } else { EarlyMode::WhileOpen }),
                watch: Some(watch),
            }
        };
        let setups = [setup(PortSide::First, 0), setup(PortSide::Second, 1)];
        let mut link = LinkLevel::new(&of.link.name, title, setups);
        let attached = link.attach(&mut *self.level, of.interfaces);
        notes.extend(attached.map_err(|error| cannot_be_used(&of.link.name, title, error))?);
        let workers = u32::from(of.link.workers);
        let noted = NotedLevel {
            level: self.driver.name(),
            view: self.level.view(),
            watch,
            workers,
            early: early.map(|_| (of.number, !drops_early)),
            off: link.off(),
            closed: BTreeMap::new(),
        };
        stand.note_level(&of.link.name, noted);
        self.ports.extend(of.interfaces.iter().zip(&setups).map(|(interface, setup)| LevelPort {
            interface: interface.name.clone(),
            link: of.link.name.clone(),
            level: self.driver.name(),
            is_nearest: of.is_nearest(),
            number: of.number,
            index: setup.index,
        }));
        self.links.push(link);
        let first_slot = self.shares.iter().map(|share| share.each * share.workers.1.max(1)).sum();
        self.shares.push(LevelShare {
            number: of.number,
            first_slot,
            each: of.entries(),
            watch,
            workers: (of.first_worker, workers),
            max_layers: of.settings.decoder.max_layers,
        });
        Ok(())
    }

    /// Makes named ports known to the program, behind the ports of all links.
    fn open_exits(&mut self, plan: &RunPlan) -> Result<(), Failure> {
        for (at, port) in plan.exits.iter().enumerate() {
            let index =
                u8::try_from(plan.links.len() * 2 + at).ok().filter(|index| u32::from(*index) < PORTS);
            if let Some(index) = index {
                let failed = |why: String| {
                    Failure::input(format!(
                        "port `{}`: the {} level cannot send on it: {why}; or remove `offload`",
                        port.name,
                        self.driver.title()
                    ))
                };
                let interface =
                    Interface::lookup(&port.interface).map_err(|error| failed(error.to_string()))?;
                self.level.set_exit(index, interface.index).map_err(|error| failed(error.to_string()))?;
            }
            self.exits.push((port.interface.clone(), index));
        }
        Ok(())
    }

    /// Number of a link among those whose packets without a flow are refused.
    fn early_number(&self, link: LinkId) -> Option<u8> {
        self.early.iter().position(|early| *early == link).and_then(|number| u8::try_from(number).ok())
    }

    /// Whether the level refuses packets without a flow by the list of a generation before this one, since no
    /// worker has begun with it.
    pub fn is_behind(&self, generation: Generation) -> bool {
        self.level.early_outcomes().is_some() && self.level.view().generation() < generation
    }

    /// Builds the table with which the level drops packets without a flow in a generation. Returns the part
    /// of the list that the table holds, and messages for the log.
    pub fn prepare(&mut self, chains: &Chains) -> (EarlyReach, Option<String>) {
        let (Some(early), Some(outcomes)) = (chains.early.as_ref(), self.level.early_outcomes()) else {
            return (EarlyReach::default(), None);
        };
        let title = self.driver.title();
        let level = EarlyLevel { links: &self.early, outcomes, tunnels: self.early_in_tunnels };
        let table = early.rules.table(level);
        let (held, all) = (table.reach.rules, early.rules.len());
        if !self.level.write_early(chains.generation, &table.words) {
            let said = "packets without a flow are not dropped early: their table has no room";
            return (EarlyReach { rules: 0, ..table.reach }, Some(said.to_owned()));
        }
        let mut said = Vec::new();
        if held < all {
            said.push(format!("early-drop: the {title} level has room for the first {held} of {all} rules, each policy's default counted as one; packets that these do not decide are dropped by the host, and pass while an unserved link is open"));
        }
        if !table.reach.tenants {
            said.push(format!("early-drop: the {title} level has no room for the selectors of tenants; packets that a tenant's rule may match are decided by the host, and pass while an unserved link is open"));
        }
        (table.reach, (!said.is_empty()).then(|| said.join("; ")))
    }

    /// Pins the attachments of links that fail open and takes over programs of a killed run, once all
    /// workers of their links serve their frames.
    pub fn take_over(&mut self, messages: &mut Vec<String>) {
        if !self.level.waits() {
            return;
        }
        let view = self.level.view();
        let mut workers =
            self.shares.iter().flat_map(|share| share.workers.0..share.workers.0 + share.workers.1);
        if workers.any(|worker| view.silence(worker).is_none()) {
            return;
        }
        let now = self.level.take_over();
        let why = now.as_ref().err().map(ToString::to_string);
        if let Some(why) = why.as_ref().filter(|why| Some(*why) != self.reported.as_ref()) {
            messages.push(format!("error: {why}; retrying"));
        }
        if why.is_none() {
            self.links.iter_mut().for_each(|link| link.waits = false);
        }
        self.reported = why;
        if let Some(left) = now.ok().filter(|left| left.programs > 0) {
            messages.push(note(self.driver.title(), &left));
            self.left.add(&left);
        }
    }

    /// Follows changed MTUs (frames that are longer than what may leave go up from then on), and links that
    /// are gone or have come back.
    pub fn follow(&mut self, links: &Links, stand: &LevelsStand, messages: &mut Vec<String>) {
        let name = self.driver.name();
        for link in &mut self.links {
            link.follow(&mut *self.level, links.inline_interfaces(&link.name), messages);
            stand.note_off(&link.name, name, link.off());
        }
        for news in self.level.follow_losses() {
            let (interface, why) = match &news {
                PortNews::Closed { name, why, .. } => (name, Some(why.clone())),
                PortNews::Open { name } => (name, None),
            };
            let port = self.ports.iter().find(|port| port.interface == *interface);
            port.into_iter().for_each(|port| stand.note_port(&port.link, name, interface, why.clone()));
            messages.push(describe_port(self.driver.title(), &news));
        }
        for port in &self.ports {
            self.level.refresh_mtu(port.index);
        }
        for (interface, index) in self.exits.iter().filter_map(|(name, index)| Some((name, (*index)?))) {
            let now = Interface::lookup(interface).ok().map(|interface| interface.index);
            // What cannot leave by it goes up, and is refused by the host's own port.
            if now.is_none_or(|now| self.level.set_exit(index, now).is_err()) {
                self.level.clear_exit(index);
            }
        }
    }

    /// The links that have the level.
    pub fn links(&self) -> impl Iterator<Item = LinkId> + '_ {
        self.shares.iter().map(|share| share.number)
    }

    /// Adds the frames of a link that failed open or closed, or were lost: names of statistics with sums.
    pub fn add_failed(&self, link: LinkId, sums: &mut [(&'static str, u64); 5]) {
        let view = self.level.view();
        let own = self.ports.iter().filter(|port| port.number == link);
        for port in own.filter_map(|port| view.port_counters(port.index)) {
            let of_port = [port.open, port.open_bytes, port.closed, port.closed_bytes, port.lost];
            for ((_, sum), part) in sums.iter_mut().zip(of_port) {
                *sum = sum.saturating_add(part);
            }
        }
    }

    /// The level's counters by port.
    pub fn counters(&self) -> LevelPortCounters {
        let exits = self.exits.iter().filter_map(|(port, index)| Some((port.clone(), (*index)?)));
        LevelPortCounters { view: self.level.view(), ports: self.ports.clone(), exits: exits.collect() }
    }

    /// The device of a link's worker, counted among the link's workers; `None`: the link does not have the
    /// level.
    pub fn device(&self, link: LinkId, worker: u32) -> Option<Box<dyn Device>> {
        let share = self.shares.iter().find(|share| share.number == link)?;
        Some(self.level.device(DeviceSetup {
            first_slot: share.first_slot + worker * share.each,
            entries: share.each,
            max_layers: share.max_layers,
            worker: share.workers.0 + worker,
            watch: share.watch,
            exits: self.exits.iter().map(|(_, index)| *index).collect(),
            early: self.early_number(link).map(|number| (number, worker == 0)),
        }))
    }
}

/// Memory for refusing packets without a flow on some links of a level. `None`: not needed.
fn early_options(level: &str, inputs: LevelInputs<'_>) -> Option<EarlyOptions> {
    let knows = |of: &LinkOfLevel<'_>| of.link.knows_refusals(of.section);
    let flows = |of: LinkOfLevel<'_>| u64::from(of.settings.flow_capacity) * u64::from(of.workers());
    let links = inputs.links_with(level).filter(knows).count();
    let links = u32::try_from(links).ok().filter(|links| *links > 0)?;
    Some(EarlyOptions { links, flows: inputs.links_with(level).filter(knows).map(flows).sum() })
}

/// The message that a port takes no frames, or takes them again.
fn describe_port(title: &str, news: &PortNews) -> String {
    match news {
        PortNews::Closed { name, lost, why } => format!(
            "warning: the {title} level cannot send on `{name}`, and {lost} frames were lost: {why}. The host handles the packets of offloaded flows until the interface accepts frames again"
        ),
        PortNews::Open { name } => format!("note: `{name}` accepts frames of the {title} level again"),
    }
}
