// SPDX-License-Identifier: Apache-2.0
//! The level below the host: which links have one, and each worker's share of it. It is there before the
//! first packet, and goes when the run has ended as it should; where it is to fail open it stays when the run
//! has failed (docs/failing.md).
//!
//! All links share one program in the kernel with one set of tables. Where it cannot be used the run does not
//! begin, and says what to do. What a killed run has left on a link's interfaces is taken over once all
//! workers serve their frames, or taken away where the link is not to fail open. What it has left on other
//! interfaces of this network namespace is taken away as well, unless the program that is inline there lives:
//! it would go on forwarding what nobody looks at.
//!
//! A link whose interfaces are gone loses its level with them, and gets it again when it is taken up: entries
//! and devices are those of before. Until that works the link runs without it, which is said once for each
//! cause.

mod ports;
pub mod stand;

pub use ports::{LevelPort, LevelPortCounters};

use crate::crew::OfLink;
use crate::error::Failure;
use crate::levels::Levels;
use crate::links::Links;
use crate::lock;
use crate::plan::{LinkPlan, RunPlan};
use bartizan_base::{Generation, LinkId, Spread};
use bartizan_classify::early::{EarlyLevel, EarlyReach};
use bartizan_config::host::{
    OFFLOAD_DROP_SAMPLES_USUAL, OFFLOAD_ENTRIES_USUAL, OFFLOAD_STALE_USUAL, OffloadFail, OffloadMode,
    OffloadSection,
};
use bartizan_dataplane::source::LevelWay;
use bartizan_offload::Device;
use bartizan_offload::level::{
    AttachMode, DeviceSetup, EarlyMode, EarlyOptions, Fail, LeftOn, LevelDriver, LevelError, LevelOptions,
    LevelView, OpenLevel, PortNews, PortSetup, PortSide, StalePrograms, Watch,
};
use bartizan_packet::slots::PORTS;
use bartizan_ports::Interface;
use bartizan_stages::chain::Chains;
use bartizan_stages::settings::EngineSettings;
use bartizan_stages::stats::NamedCounters;
use stand::LevelsStand;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Interval in which MTUs, and the interfaces of links, are checked.
const EVERY: Duration = Duration::from_secs(1);

/// A link that has a level, or is to have it again.
struct LinkLevel {
    name: String,
    /// Name of the kind of level, for messages.
    title: &'static str,
    /// Attach settings of the two ports, with their present interfaces.
    setups: [PortSetup; 2],
    /// The program is on its ports.
    attached: bool,
    /// Whether the state of a killed run is on some of the ports, until it is taken over.
    waits: bool,
    /// Why it could not be attached again, as it was said last.
    told: Option<String>,
}

impl LinkLevel {
    /// One that is on no port yet.
    fn new(link: &str, title: &'static str, setups: [PortSetup; 2]) -> Self {
        LinkLevel { name: link.to_owned(), title, setups, attached: false, waits: false, told: None }
    }

    /// Attaches the program to both interfaces, or to none. What is to be said of it.
    fn attach(
        &mut self,
        level: &mut dyn OpenLevel,
        interfaces: &[Interface],
    ) -> Result<Vec<String>, LevelError> {
        let mut notes = Vec::new();
        self.waits = false;
        for (at, (setup, interface)) in self.setups.iter_mut().zip(interfaces).enumerate() {
            setup.ifindex = interface.index;
            match level.attach(setup) {
                Ok(attached) => {
                    self.waits |= attached.waits;
                    notes.extend(attached.note.map(|note| format!("link `{}`: {note}", self.name)));
                }
                Err(error) => {
                    self.setups.iter().take(at).for_each(|before| level.detach(before.index));
                    return Err(error);
                }
            }
        }
        self.attached = true;
        Ok(notes)
    }

    /// Its interfaces are others now, or gone: what was attached to those before goes. They may be in another
    /// network namespace.
    fn detach(&mut self, level: &mut dyn OpenLevel) {
        self.setups.iter().for_each(|port| level.detach(port.index));
        self.attached = false;
    }

    /// Why it handles no packets, if it does not.
    fn off(&self) -> Option<String> {
        match (self.attached, self.waits) {
            (true, false) => None,
            (true, true) => Some(
                "what a killed run has left is on its interfaces until all workers serve their frames"
                    .to_owned(),
            ),
            (false, _) => {
                Some(self.told.clone().unwrap_or_else(|| "the link has lost its interfaces".to_owned()))
            }
        }
    }

    fn is_on(&self, interfaces: &[Interface]) -> bool {
        self.attached
            && self.setups.iter().map(|port| port.ifindex).eq(interfaces.iter().map(|own| own.index))
    }

    /// The link's interfaces whose program was detached or replaced by another process.
    fn taken_from<'i>(&self, level: &mut dyn OpenLevel, interfaces: &'i [Interface]) -> Vec<&'i str> {
        let ports = self.setups.iter().zip(interfaces);
        let gone = ports.filter(|(port, _)| !level.is_attached(port.index));
        gone.map(|(_, interface)| interface.name.as_str()).collect()
    }

    /// Follows what became of its interfaces; none while they are gone.
    fn follow(
        &mut self,
        level: &mut dyn OpenLevel,
        interfaces: Option<&[Interface]>,
        said: &mut Vec<String>,
    ) {
        if let Some(interfaces) = interfaces.filter(|interfaces| self.is_on(interfaces)) {
            let taken = self.taken_from(level, interfaces);
            if taken.is_empty() {
                return;
            }
            said.push(format!(
                "warning: link `{}`: somebody has taken the {} program away from `{}`; it is attached again (`bpftool net` shows what is there)",
                self.name,
                self.title,
                taken.join("`, `")
            ));
        }
        if self.attached {
            self.detach(level);
        }
        let Some(interfaces) = interfaces else { return };
        match self.attach(level, interfaces) {
            Ok(notes) => {
                said.push(format!("note: link `{}` has its {} level again", self.name, self.title));
                said.extend(notes.into_iter().map(|note| format!("warning: {note}")));
                self.told = None;
            }
            Err(error) => {
                // Said once, whoever opens and closes the program meanwhile.
                let why = error.to_string();
                if self.told.as_ref() != Some(&why) {
                    said.push(format!(
                        "warning: link `{}` runs without its {} level until that can be used again: {}",
                        self.name,
                        self.title,
                        error.explain()
                    ));
                    self.told = Some(why);
                }
            }
        }
    }
}

/// The level that runs, and its kind.
struct RunningLevel {
    driver: &'static dyn LevelDriver,
    level: Box<dyn OpenLevel>,
}

/// See the module.
#[derive(Default)]
pub struct Below {
    /// Detaches when it goes.
    level: Option<RunningLevel>,
    /// For each link: its first slot, and the number of slots of each worker.
    shares: Vec<Option<(u32, u32)>>,
    ports: Vec<LevelPort>,
    links: Vec<LinkLevel>,
    /// Interfaces of named ports, with the numbers that they have in its tables; none where these are used
    /// up.
    exits: Vec<(String, Option<u8>)>,
    /// Numbers of the workers of links that have a level, among those of all links.
    workers: Vec<u32>,
    /// Links whose packets without a flow are refused by rules, at any time or while they are open, in the
    /// order of their numbers at the level.
    early: Vec<LinkId>,
    /// Whether the early list covers packets in tunnels, too: the host's flows in tunnels have keys of their
    /// own, and the host decodes the same tunnels as the level.
    early_in_tunnels: bool,
    /// State of a killed run that was found on the interfaces.
    left: StalePrograms,
    /// Why that could not be taken over, as it was said last.
    told: Option<String>,
    looked: Option<Instant>,
    /// State of the levels, for reports.
    pub stand: LevelsStand,
    /// Pending notes for the user.
    pub notes: Vec<String>,
}

/// Entries of a link, the same number for each worker.
fn entries(link: &LinkPlan) -> Option<(u32, u32)> {
    let wanted = link.offload.as_ref()?.entries.unwrap_or(OFFLOAD_ENTRIES_USUAL);
    let each = wanted.div_ceil(u32::from(link.workers.max(1)));
    Some((each, each * u32::from(link.workers.max(1))))
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

/// All links share one level, which is attached in one way.
fn one_kind(plan: &RunPlan) -> Result<(), Failure> {
    let mut wanted = plan.links.iter().filter_map(|link| Some((&link.name, link.offload.as_ref()?)));
    let Some((first, offload)) = wanted.next() else { return Ok(()) };
    for (name, other) in wanted {
        if other.level != offload.level {
            return Err(Failure::input(format!(
                "links `{first}` and `{name}` want different levels (`level` of `offload`), and all links share one; give both the same `level`"
            )));
        }
        if other.mode != offload.mode {
            return Err(Failure::input(format!(
                "links `{first}` and `{name}` want their {} level in different ways (`mode` of `offload`), and all links share one program; give both the same `mode`, or leave it out",
                plan.levels.of_name(&offload.level).map_or("", |driver| driver.title())
            )));
        }
    }
    Ok(())
}

/// The first link that has a level: the level is opened with its options.
struct FirstLink<'p> {
    link: &'p LinkPlan,
    offload: &'p OffloadSection,
    settings: &'p EngineSettings,
}

/// The kind of a link's level.
fn driver_of(
    plan: &RunPlan,
    link: &LinkPlan,
    offload: &OffloadSection,
) -> Result<&'static dyn LevelDriver, Failure> {
    plan.levels.of_name(&offload.level).map_err(|why| Failure::input(format!("link `{}`: {why}", link.name)))
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

/// Links whose level knows what rules refuse.
fn early_links(plan: &RunPlan) -> Vec<LinkId> {
    (0..).zip(&plan.links).filter(|(_, link)| link.knows_refusals()).map(|(n, _)| LinkId(n)).collect()
}

/// A link has a level now: for who tells how levels stand.
fn note_level(
    stand: &LevelsStand,
    level: &LinkLevel,
    link: &LinkPlan,
    number: LinkId,
    watch: Watch,
    view: Arc<dyn LevelView>,
) {
    let asks = link.knows_refusals().then(|| (number, !link.drops_early()));
    stand.note_level(&link.name, view, watch, u32::from(link.workers), asks);
    stand.note_off(&link.name, level.off());
}

/// Memory for refusing packets without a flow on some links. `None`: not needed.
fn early_options(early: &[LinkId], plan: &RunPlan, of_links: &[OfLink]) -> Option<EarlyOptions> {
    let of = |link: &LinkId| {
        let number = usize::from(link.0);
        let workers = plan.links.get(number).map_or(1, |link| u64::from(link.workers.max(1)));
        of_links.get(number).map_or(0, |link| u64::from(link.stack.settings.flow_capacity) * workers)
    };
    let links = u32::try_from(early.len()).ok().filter(|links| *links > 0)?;
    Some(EarlyOptions { links, flows: early.iter().map(of).sum() })
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
    Failure::input(format!("link `{link}`: its {title} level cannot be used: {why}; or leave `offload` out"))
}

/// Removes the state of a killed run from the interfaces of an inline link that has no level now: it would
/// take frames away from this run.
fn take_away_left(
    levels: &Levels,
    link: &LinkPlan,
    interfaces: &[Interface],
    notes: &mut Vec<String>,
) -> Result<(), Failure> {
    let all = interfaces.iter().flat_map(|interface| levels.iter().map(move |driver| (interface, driver)));
    for (interface, driver) in all {
        let taken = driver
            .remove_left(interface.index)
            .map_err(|error| Failure::input(format!("link `{}`: {error}", link.name)))?;
        if taken {
            notes.push(format!(
                "link `{}`: the {} program that a killed run had left on `{}` is taken away, since the link has no `offload` now",
                link.name,
                driver.title(),
                interface.name
            ));
        }
    }
    Ok(())
}

/// Takes away what was left on the two interfaces of links that are to have a level, unless it was the same
/// link before: else it would forward what comes by one of them to an interface that is none of the link's.
/// Before anything is attached: it may be across from what is another link now.
fn take_away_unpaired(
    RunningLevel { driver, level }: &mut RunningLevel,
    plan: &RunPlan,
    interfaces: &[Vec<Interface>],
    notes: &mut Vec<String>,
) -> Result<(), LevelError> {
    let left = driver.left()?;
    let on = |own: &Interface| left.iter().find(|left| left.ifindex == own.index).map(|left| left.program);
    for (link, interfaces) in plan.links.iter().zip(interfaces).filter(|(link, _)| link.offload.is_some()) {
        let [first, second] = interfaces.as_slice() else { continue };
        let goes_on = match (on(first), on(second)) {
            (None, None) => true,
            (Some(old), Some(other)) if old == other => {
                // The tables of another build are not read: who updates the program has its links open
                // meanwhile.
                level.left_paired(old, [first.index, second.index])?.unwrap_or(true)
            }
            _ => false,
        };
        for own in interfaces.iter().filter(|_| !goes_on) {
            if level.remove_left(own.index)? {
                notes.push(format!(
                    "link `{}`: the {} program that a killed run had left on `{}` is taken away, since it was not that of this link, with `{}` and `{}` across from each other",
                    link.name,
                    driver.title(),
                    own.name,
                    first.name,
                    second.name
                ));
            }
        }
    }
    Ok(())
}

/// All that is wrong with the interfaces of links that are to have a level, so that it is mended at once.
fn check_all(
    RunningLevel { driver, level }: &mut RunningLevel,
    plan: &RunPlan,
    interfaces: &[Vec<Interface>],
) -> Result<(), Failure> {
    let with_level = || plan.links.iter().zip(interfaces).filter(|(link, _)| link.offload.is_some());
    let all: Vec<u32> = with_level().flat_map(|(_, own)| own.iter().map(|own| own.index)).collect();
    let names: Vec<_> = with_level().map(|(link, _)| link.name.as_str()).collect();
    level.check(&all).map_err(|error| cannot_be_used(&names.join("`, `"), driver.title(), error))
}

impl Below {
    /// Removes the state of killed runs from interfaces that are in no inline link of this run, unless
    /// another live process is inline there.
    fn take_away_others(&mut self, plan: &RunPlan, interfaces: &[Vec<Interface>]) -> Result<(), Failure> {
        let inline = plan.links.iter().zip(interfaces).filter(|(link, _)| link.is_inline());
        let own: Vec<u32> =
            inline.flat_map(|(_, interfaces)| interfaces).map(|interface| interface.index).collect();
        for driver in plan.levels.iter() {
            self.take_away_of(driver, &own)?;
        }
        Ok(())
    }

    /// Removes such state of one kind of level. `own`: interfaces of inline links of this run.
    fn take_away_of(&mut self, driver: &dyn LevelDriver, own: &[u32]) -> Result<(), Failure> {
        let failed = |error: LevelError| {
            Failure::input(format!("what a killed run may have left cannot be taken away: {error}"))
        };
        for LeftOn { ifindex, name, .. } in driver.left().map_err(failed)? {
            if own.contains(&ifindex) {
                continue;
            }
            let _lock = match lock::interface(&name) {
                Ok(Some(lock)) => lock,
                // It lives.
                Err(_) => continue,
                Ok(None) => {
                    self.notes.push(format!(
                        "an {} program of this program is pinned on `{name}`, which is no inline link here, and whether the run that it is of lives cannot be told: {} cannot be used; if none does, remove its file in {}",
                        driver.title(),
                        lock::ROOTS_FOLDER,
                        driver.left_place()
                    ));
                    continue;
                }
            };
            let taken = match &mut self.level {
                Some(opened) if opened.driver.name() == driver.name() => opened.level.remove_left(ifindex),
                _ => driver.remove_left(ifindex),
            };
            if taken.map_err(failed)? {
                self.notes.push(format!(
                    "the {} program that a killed run had left on `{name}` is taken away, since `{name}` is no inline link now: what comes by it is not forwarded any more",
                    driver.title()
                ));
            }
        }
        Ok(())
    }

    /// Loads and attaches what links want, and gives each worker its device. To be called once their ports
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
        one_kind(plan)?;
        let firsts = first_workers(plan);
        let mut below = Below::default();
        below.plan_entries(plan, &firsts);
        let mut reach = EarlyReach::default();
        let links = plan.links.iter().zip(interfaces).zip(&*of_links).zip(0u16..);
        for (((link, own), of_link), number) in links {
            let Some(offload) = &link.offload else {
                if link.is_inline() {
                    take_away_left(&plan.levels, link, own, &mut below.notes)?;
                }
                continue;
            };
            if below.level.is_none() {
                let first = FirstLink { link, offload, settings: &of_link.stack.settings };
                reach = below.open_level(plan, interfaces, first, of_links, chains)?;
            }
            let first = firsts.get(usize::from(number)).copied().unwrap_or_default();
            below.attach_link(link, own, &of_link.stack.settings, LinkId(number), first)?;
        }
        below.stand.note_rules(chains, names, reach);
        below.open_exits(plan)?;
        for (number, (of_link, link)) in of_links.iter_mut().zip(&plan.links).enumerate() {
            let first = firsts.get(number).copied().unwrap_or_default();
            let link_id = LinkId(u16::try_from(number).unwrap_or(u16::MAX));
            let spread = of_link.stack.settings.spread(link.workers).of_link(link_id);
            let max_layers = of_link.stack.settings.decoder.max_layers;
            of_link.devices = below.devices(number, link, spread, first, max_layers);
            below.show_frames(number, link, of_link);
        }
        below.take_away_others(plan, interfaces)?;
        Ok(below)
    }

    /// Has a level of this process see the frames of a link before its workers.
    fn show_frames(&self, number: usize, link: &LinkPlan, of_link: &mut OfLink) {
        let path = self.level.as_ref().filter(|_| link.offload.is_some());
        let Some(path) = path.and_then(|opened| opened.level.frame_path()) else { return };
        let first = u8::try_from(2 * number).unwrap_or(u8::MAX - 1);
        for source in &mut of_link.sources {
            source.pass_through(LevelWay { path: Arc::clone(&path), ports: [first, first + 1] });
        }
    }

    /// Shares out entries and numbers of workers. `firsts`: of each link the number of its first worker.
    fn plan_entries(&mut self, plan: &RunPlan, firsts: &[u32]) {
        let mut slots = 0;
        for (link, first) in plan.links.iter().zip(firsts) {
            self.shares.push(entries(link).map(|(each, all)| {
                let first = slots;
                slots += all;
                (first, each)
            }));
            let own = *first..first + u32::from(link.workers);
            self.workers.extend(own.filter(|_| link.offload.is_some()));
        }
    }

    /// Opens the level that all links share, with the table of the first generation. Returns how many of its
    /// rules the table holds.
    fn open_level(
        &mut self,
        plan: &RunPlan,
        interfaces: &[Vec<Interface>],
        FirstLink { link, offload, settings }: FirstLink<'_>,
        of_links: &[OfLink],
        chains: &Chains,
    ) -> Result<EarlyReach, Failure> {
        let driver = driver_of(plan, link, offload)?;
        let failed = |error: LevelError| cannot_be_used(&link.name, driver.title(), error);
        let [one, other] = settings.seed;
        let options = LevelOptions {
            flows: plan.links.iter().filter_map(entries).map(|(_, all)| all).sum(),
            mode: attach_mode(offload),
            tunnels: settings.decoder,
            workers: plan.workers().into(),
            early: self.plan_early(plan, driver, of_links),
            seed: one ^ other.rotate_left(32),
        };
        let level = driver.open(&options).map_err(failed)?;
        let opened = self.level.insert(RunningLevel { driver, level });
        let reach = begin(opened, &self.early, self.early_in_tunnels, chains, &mut self.notes);
        take_away_unpaired(opened, plan, interfaces, &mut self.notes).map_err(failed)?;
        check_all(opened, plan, interfaces)?;
        Ok(reach)
    }

    /// Attaches the level to a link's two interfaces. `first`: number of the link's first worker.
    fn attach_link(
        &mut self,
        link: &LinkPlan,
        interfaces: &[Interface],
        settings: &EngineSettings,
        number: LinkId,
        first: u32,
    ) -> Result<(), Failure> {
        let early = self.early_number(number);
        let (Some(opened), Some(offload)) = (&mut self.level, &link.offload) else { return Ok(()) };
        let title = opened.driver.title();
        let watch = watch(offload, settings.spread(link.workers).of_link(number), first);
        let setup = |side, at: u16| {
            let index = u8::try_from(number.0 * 2 + at).unwrap_or(u8::MAX);
            PortSetup {
                ifindex: 0,
                link: number,
                side: if settings.side_in_key { side } else { PortSide::Unknown },
                index,
                pair: index ^ 1,
                vlans_in_key: settings.vlan_in_key,
                drop_samples: drop_samples(offload),
                early: early.map(if link.drops_early() { EarlyMode::Always } else { EarlyMode::WhileOpen }),
                watch: Some(watch),
            }
        };
        let setups = [setup(PortSide::First, 0), setup(PortSide::Second, 1)];
        let mut level = LinkLevel::new(&link.name, title, setups);
        let attached = level.attach(&mut *opened.level, interfaces);
        self.notes.extend(attached.map_err(|error| cannot_be_used(&link.name, title, error))?);
        note_level(&self.stand, &level, link, number, watch, opened.level.view());
        self.ports.extend(interfaces.iter().zip(&setups).map(|(interface, setup)| LevelPort {
            interface: interface.name.clone(),
            link: link.name.clone(),
            number: number.0.into(),
            index: setup.index,
        }));
        self.links.push(level);
        Ok(())
    }

    /// Notes which links have early tables and whether these judge packets in tunnels; the program's options
    /// for them.
    fn plan_early(
        &mut self,
        plan: &RunPlan,
        driver: &dyn LevelDriver,
        of_links: &[OfLink],
    ) -> Option<EarlyOptions> {
        self.early = early_links(plan);
        self.early_in_tunnels = of_links.iter().all(|of_link| {
            let settings = &of_link.stack.settings;
            settings.tunnel_in_key && driver.reads_tunnels(settings.decoder.max_layers)
        });
        early_options(&self.early, plan, of_links)
    }

    /// Makes named ports known to the program, behind the ports of all links.
    fn open_exits(&mut self, plan: &RunPlan) -> Result<(), Failure> {
        let Some(RunningLevel { driver, level }) = &mut self.level else { return Ok(()) };
        for (at, port) in plan.exits.iter().enumerate() {
            let index =
                u8::try_from(plan.links.len() * 2 + at).ok().filter(|index| u32::from(*index) < PORTS);
            if let Some(index) = index {
                let failed = |why: String| {
                    Failure::input(format!(
                        "port `{}`: the {} level cannot send by it: {why}; or leave `offload` out",
                        port.name,
                        driver.title()
                    ))
                };
                let interface =
                    Interface::look_up(&port.interface).map_err(|error| failed(error.to_string()))?;
                level.set_exit(index, interface.index).map_err(|error| failed(error.to_string()))?;
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
        self.level.as_ref().is_some_and(|RunningLevel { level, .. }| {
            level.early_outcomes().is_some() && level.view().generation() < generation
        })
    }

    /// Makes the table of a generation by which packets without a flow are refused, before any worker enters
    /// it. What is to be said: how much of the rules it holds, if not all. `names`: of its functions by their
    /// bit. `free`: the level does not read the place of the table ([`Below::is_behind`] the generation
    /// before). Else this generation has none.
    pub fn prepare(&mut self, chains: &Chains, names: &[&'static str], free: bool) -> Option<String> {
        let opened = self.level.as_mut()?;
        if !free {
            return Some(format!(
                "packets without a flow are not refused early in generation {}, and pass while a link is open: no worker has begun with the one before; reload once more when one has",
                chains.generation.0
            ));
        }
        let (reach, said) = prepare(opened, &self.early, self.early_in_tunnels, chains);
        self.stand.note_rules(chains, names, reach);
        said
    }

    /// Pins what is to fail open and takes over what a killed run has left, once workers serve their frames;
    /// and looks for MTUs that were changed: frames that are longer than what may leave go up from then on;
    /// and for links that are gone or have come back. To be called often; most calls look at nothing. What is
    /// to be said.
    pub fn look(&mut self, links: &Links) -> Vec<String> {
        let mut said = Vec::new();
        let is_due = self.looked.is_none_or(|looked| looked.elapsed() >= EVERY);
        if is_due {
            self.looked = Some(Instant::now());
            self.stand.note_away(links.away());
        }
        let Some(RunningLevel { driver, level }) = &mut self.level else { return said };
        if level.waits() {
            let view = level.view();
            if self.workers.iter().all(|worker| view.silence(*worker).is_some()) {
                let now = level.take_over();
                let why = now.as_ref().err().map(ToString::to_string);
                if let Some(why) = why.as_ref().filter(|why| Some(*why) != self.told.as_ref()) {
                    said.push(format!("error: {why}; it is tried again"));
                }
                if why.is_none() {
                    self.links.iter_mut().for_each(|level| level.waits = false);
                }
                self.told = why;
                if let Some(left) = now.ok().filter(|left| left.programs > 0) {
                    said.push(note(driver.title(), &left));
                    self.left.add(&left);
                }
            }
        }
        if !is_due {
            return said;
        }
        for link in &mut self.links {
            link.follow(&mut **level, links.inline_interfaces(&link.name), &mut said);
            self.stand.note_off(&link.name, link.off());
        }
        for news in level.follow_losses() {
            let (name, why) = match &news {
                PortNews::Closed { name, why, .. } => (name, Some(why.clone())),
                PortNews::Open { name } => (name, None),
            };
            let port = self.ports.iter().find(|port| port.interface == *name);
            port.into_iter().for_each(|port| self.stand.note_port(&port.link, name, why.clone()));
            said.push(told(driver.title(), &news));
        }
        for port in &self.ports {
            level.refresh_mtu(port.index);
        }
        for (interface, index) in self.exits.iter().filter_map(|(name, index)| Some((name, (*index)?))) {
            let now = Interface::look_up(interface).ok().map(|interface| interface.index);
            // What cannot leave by it goes up, and is refused by the host's own port.
            if now.is_none_or(|now| level.set_exit(index, now).is_err()) {
                level.clear_exit(index);
            }
        }
        said
    }

    /// The run is about to end since somebody wants it: that its workers fall silent is no failure.
    pub fn end_watch(&mut self) {
        if let Some(opened) = &mut self.level {
            opened.level.end_watch();
        }
    }

    /// Takes the level away. `failed`: the run has ended though nobody wanted it, and a link that is to fail
    /// open does. Gives the last counters ([`Below::beside`]).
    pub fn close(self, failed: bool) -> Vec<NamedCounters> {
        let counters = self.beside();
        match self.level {
            Some(opened) if failed => opened.level.leave(),
            Some(opened) => opened.level.end(),
            None => {}
        }
        counters
    }

    /// Counters of the level by link, for statistics. Those of a killed run's state are counted for the first
    /// link with a level.
    #[must_use]
    pub fn beside(&self) -> Vec<NamedCounters> {
        let Some(opened) = &self.level else { return Vec::new() };
        let view = opened.level.view();
        let mut first = Some(&self.left);
        let of_link = |(number, share): (usize, &Option<(u32, u32)>)| {
            if share.is_none() {
                return NamedCounters::new();
            }
            let own = self.ports.iter().filter(|port| port.number == number);
            let mut counters = vec![
                ("offload.open_pkts", 0u64),
                ("offload.open_bytes", 0),
                ("offload.closed_pkts", 0),
                ("offload.closed_bytes", 0),
                ("offload.lost_pkts", 0),
            ];
            for port in own.filter_map(|port| view.port_counters(port.index)) {
                let of_port = [port.open, port.open_bytes, port.closed, port.closed_bytes, port.lost];
                for ((_, sum), part) in counters.iter_mut().zip(of_port) {
                    *sum = sum.saturating_add(part);
                }
            }
            if let Some(left) = first.take() {
                counters.extend([
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
                ]);
            }
            counters
        };
        self.shares.iter().enumerate().map(of_link).collect()
    }

    /// The level's counters by port; `None` without a level.
    pub fn counters(&self) -> Option<LevelPortCounters> {
        let view = self.level.as_ref()?.level.view();
        let exits = self.exits.iter().filter_map(|(port, index)| Some((port.clone(), (*index)?)));
        Some(LevelPortCounters { view, ports: self.ports.clone(), exits: exits.collect() })
    }

    /// The devices of a link's workers, by worker; none where the link has no level below.
    fn devices(
        &self,
        number: usize,
        link: &LinkPlan,
        spread: Spread,
        first_worker: u32,
        max_layers: u8,
    ) -> Vec<Box<dyn Device>> {
        let share = self.shares.get(number).copied().flatten();
        let (Some(opened), Some((first, each)), Some(offload)) = (&self.level, share, &link.offload) else {
            return Vec::new();
        };
        let watch = watch(offload, spread, first_worker);
        let early = u16::try_from(number).ok().and_then(|number| self.early_number(LinkId(number)));
        let device = |worker: u32| {
            opened.level.device(DeviceSetup {
                first_slot: first + worker * each,
                entries: each,
                max_layers,
                worker: first_worker + worker,
                watch,
                exits: self.exits.iter().map(|(_, index)| *index).collect(),
                early: early.map(|link| (link, worker == 0)),
            })
        };
        (0..u32::from(link.workers)).map(device).collect()
    }
}

/// The message that a port takes no frames, or takes them again.
fn told(title: &str, news: &PortNews) -> String {
    match news {
        PortNews::Closed { name, lost, why } => format!(
            "warning: nothing leaves by `{name}` at the {title} level any more, {lost} frames were lost there: {why}. Packets of flows that were handled below come up until it takes frames again"
        ),
        PortNews::Open { name } => format!("note: `{name}` takes frames of the {title} level again"),
    }
}

/// Before a link can be left open it is known what is refused: the first generation, with its table. How many
/// of its rules the table holds.
fn begin(
    opened: &mut RunningLevel,
    judged: &[LinkId],
    tunnels: bool,
    chains: &Chains,
    notes: &mut Vec<String>,
) -> EarlyReach {
    let (reach, said) = prepare(opened, judged, tunnels, chains);
    notes.extend(said);
    opened.level.enter_generation(chains.generation);
    reach
}

/// Makes the table of a generation ([`Below::prepare`]). `links`: those whose packets are judged;
/// `tunnels`: those in tunnels are as well. How much of the list it has, and what is to be said.
fn prepare(
    RunningLevel { driver, level }: &mut RunningLevel,
    links: &[LinkId],
    tunnels: bool,
    chains: &Chains,
) -> (EarlyReach, Option<String>) {
    let (Some(early), Some(outcomes)) = (chains.early.as_ref(), level.early_outcomes()) else {
        return (EarlyReach::default(), None);
    };
    let title = driver.title();
    let table = early.rules.table(EarlyLevel { links, outcomes, tunnels });
    let (held, all) = (table.reach.rules, early.rules.len());
    if !level.write_early(chains.generation, &table.words) {
        let said = "packets without a flow are not refused early: their table has no room";
        return (EarlyReach { rules: 0, ..table.reach }, Some(said.to_owned()));
    }
    let mut said = Vec::new();
    if held < all {
        said.push(format!("early-drop: the {title} level has room for the first {held} of {all} rules, each policy's default counted as one; what none of these decides comes up and is dropped here, and passes while a link is open that nobody serves"));
    }
    if !table.reach.tenants {
        said.push(format!("early-drop: the {title} level has no room for what tells tenants apart; what a rule for a tenant may match comes up and is decided here, and passes while a link is open that nobody serves"));
    }
    (table.reach, (!said.is_empty()).then(|| said.join("; ")))
}

/// The note about a killed run's state that was taken over.
fn note(title: &str, left: &StalePrograms) -> String {
    let StalePrograms { programs, unread, entries, forwarded, dropped, open, closed } = left;
    if programs == unread {
        return format!(
            "note: the {title} program that a killed run had left is replaced; it is of another build, so what it had counted is not read"
        );
    }
    format!(
        "note: the {title} program that a killed run had left is replaced, and its {entries} flows are judged anew; no flow record has what they had handled since they went below ({} packets with {} bytes forwarded, {} with {} dropped); {} packets passed uninspected since nobody served them, and {} were dropped for it",
        forwarded.frames, forwarded.bytes, dropped.frames, dropped.bytes, open.frames, closed.frames
    )
}
