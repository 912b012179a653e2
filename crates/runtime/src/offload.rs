// SPDX-License-Identifier: Apache-2.0
//! The level below the host: which links have one, and each worker's share of it. It is there before the first packet, and goes when the run has ended as it should; where it
//! is to fail open it stays when the run has failed (docs/failing.md).
//!
//! All links share one program in the kernel with one set of tables. Where it cannot be used the run does not begin, and says what to do.
//! What a killed run has left on a link's interfaces is taken over once all workers serve their frames, or taken away where the link is not to fail open. What it has left on other
//! interfaces of this network namespace is taken away as well, unless the program that is inline there lives: it would go on forwarding what nobody looks at.
//!
//! A link whose interfaces are gone loses its level with them, and gets it again when it is taken up: entries and devices are those of before. Until that works the link runs without
//! it, which is said once for each cause.

pub mod stand;

use crate::crew::OfLink;
use crate::error::Failure;
use crate::links::Links;
use crate::lock;
use crate::plan::{LinkPlan, Plan};
use bartizan_base::{Generation, LinkId, Spread};
use bartizan_classify::early::{EarlyLevel, EarlyReach};
use bartizan_config::host::{
    OFFLOAD_DROP_SAMPLES_USUAL, OFFLOAD_ENTRIES_USUAL, OFFLOAD_STALE_USUAL, Offload, OffloadFail, OffloadMode,
};
use bartizan_offload::Device;
use bartizan_offload::devices::xdp::XdpDevice;
use bartizan_packet::slots::PORTS;
use bartizan_ports::Interface;
use bartizan_stages::chain::Chains;
use bartizan_stages::stats::Counters;
use bartizan_xdp::{
    Early, EarlyOptions, Fail, Left, Mode, ModeChoice, Options, PINS, Pinned, PortCounters, PortNews,
    PortSetup, Program, Side, Tables, Watch, XdpError, pinned, remove_left,
};
use stand::LevelsStand;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A port of a link that has a level.
#[derive(Clone, Debug)]
pub struct LevelPort {
    /// Its interface.
    pub interface: String,
    /// The link's name.
    pub link: String,
    /// The link's number.
    number: usize,
    /// Its number in the level's tables.
    pub index: u8,
}

/// What the level counts by port, for who shows it.
pub struct LevelCounters {
    tables: Arc<Tables>,
    ports: Vec<LevelPort>,
    /// Interfaces of named ports.
    exits: Vec<(String, u8)>,
}

impl LevelCounters {
    /// Each named port that it sends by, and what left by it.
    pub fn exits(&self) -> impl Iterator<Item = (&str, PortCounters)> {
        self.exits
            .iter()
            .filter_map(|(port, index)| Some((port.as_str(), self.tables.port_counters(*index)?)))
    }

    /// Each port, and what came by it.
    pub fn ports(&self) -> impl Iterator<Item = (&LevelPort, PortCounters)> {
        self.ports.iter().filter_map(|port| Some((port, self.tables.port_counters(port.index)?)))
    }
}

/// How often MTUs are looked at, and the interfaces of links.
const EVERY: Duration = Duration::from_secs(1);

/// A link that has a level, or is to have it again.
struct LinkLevel {
    name: String,
    /// What its two ports are attached with; their interfaces are those of now.
    setups: [PortSetup; 2],
    /// The program is on its ports.
    attached: bool,
    /// What a killed run has left is on some of them until it is taken over.
    waits: bool,
    /// Why it could not be attached again, as it was said last.
    told: Option<String>,
}

impl LinkLevel {
    /// One that is on no port yet.
    fn new(link: &str, setups: [PortSetup; 2]) -> Self {
        LinkLevel { name: link.to_owned(), setups, attached: false, waits: false, told: None }
    }

    /// Attaches the program to both interfaces, or to none. What is to be said of it.
    fn attach(&mut self, program: &mut Program, interfaces: &[Interface]) -> Result<Vec<String>, XdpError> {
        let mut notes = Vec::new();
        self.waits = false;
        for (at, (setup, interface)) in self.setups.iter_mut().zip(interfaces).enumerate() {
            setup.ifindex = interface.index;
            match program.attach(setup) {
                Ok(attached) => {
                    self.waits |= attached.waits;
                    if attached.mode == Mode::Generic {
                        notes.push(format!(
                            "link `{}`: the driver of `{}` runs no XDP programs, so the kernel does (generic mode), which is slower",
                            self.name, interface.name
                        ));
                    }
                }
                Err(error) => {
                    self.setups.iter().take(at).for_each(|before| drop(program.detach(before.index)));
                    return Err(error);
                }
            }
        }
        self.attached = true;
        Ok(notes)
    }

    /// Its interfaces are others now, or gone: what was attached to those before goes. They may be in another network namespace.
    fn detach(&mut self, program: &mut Program) {
        self.setups.iter().for_each(|port| drop(program.detach(port.index)));
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

    /// Of its interfaces those whose program somebody else has taken away or replaced.
    fn taken_from<'i>(&self, program: &mut Program, interfaces: &'i [Interface]) -> Vec<&'i str> {
        let ports = self.setups.iter().zip(interfaces);
        let gone = ports.filter(|(port, _)| !program.is_attached(port.index));
        gone.map(|(_, interface)| interface.name.as_str()).collect()
    }

    /// Follows what became of its interfaces; none while they are gone.
    fn follow(&mut self, program: &mut Program, interfaces: Option<&[Interface]>, said: &mut Vec<String>) {
        if let Some(interfaces) = interfaces.filter(|interfaces| self.is_on(interfaces)) {
            let taken = self.taken_from(program, interfaces);
            if taken.is_empty() {
                return;
            }
            said.push(format!(
                "warning: link `{}`: somebody has taken the XDP program away from `{}`; it is attached again (`bpftool net` shows what is there)",
                self.name,
                taken.join("`, `")
            ));
        }
        if self.attached {
            self.detach(program);
        }
        let Some(interfaces) = interfaces else { return };
        match self.attach(program, interfaces) {
            Ok(notes) => {
                said.push(format!("note: link `{}` has its XDP level again", self.name));
                said.extend(notes.into_iter().map(|note| format!("warning: {note}")));
                self.told = None;
            }
            Err(error) => {
                // Said once, whoever opens and closes the program meanwhile.
                let why = error.to_string();
                if self.told.as_ref() != Some(&why) {
                    said.push(format!(
                        "warning: link `{}` runs without its XDP level until that can be used again: {}",
                        self.name,
                        error.with_holders()
                    ));
                    self.told = Some(why);
                }
            }
        }
    }
}

/// See the module.
#[derive(Default)]
pub struct Below {
    /// Detaches when it goes.
    program: Option<Program>,
    /// Of each link: the first of its slots, and how many each worker has.
    shares: Vec<Option<(u32, u32)>>,
    ports: Vec<LevelPort>,
    links: Vec<LinkLevel>,
    /// Interfaces of named ports, with the numbers that they have in its tables; none where these are used up.
    exits: Vec<(String, Option<u8>)>,
    /// Numbers of the workers of links that have a level, among those of all links.
    workers: Vec<u32>,
    /// Links whose packets without a flow are refused by rules, at any time or while they are open, in the order of their numbers at the level.
    early: Vec<LinkId>,
    /// Of packets in tunnels, too: the host's flows in tunnels have keys of their own, and it reads as much
    /// as the level.
    early_in_tunnels: bool,
    /// What a killed run had left on its interfaces.
    left: Left,
    /// Why that could not be taken over, as it was said last.
    told: Option<String>,
    looked: Option<Instant>,
    /// How levels stand, for who tells it.
    pub stand: LevelsStand,
    /// What is to be said of it.
    pub notes: Vec<String>,
}

/// Entries of a link, the same number for each worker.
fn entries(link: &LinkPlan) -> Option<(u32, u32)> {
    let wanted = link.offload.as_ref()?.entries.unwrap_or(OFFLOAD_ENTRIES_USUAL);
    let each = wanted.div_ceil(u32::from(link.workers.max(1)));
    Some((each, each * u32::from(link.workers.max(1))))
}

/// All links share one program, which is attached in one way.
fn one_mode(plan: &Plan) -> Result<(), Failure> {
    let mut wanted = plan.links.iter().filter_map(|link| Some((&link.name, link.offload.as_ref()?.mode)));
    let Some((first, mode)) = wanted.next() else { return Ok(()) };
    match wanted.find(|(_, other)| *other != mode) {
        None => Ok(()),
        Some((name, _)) => Err(Failure::input(format!(
            "links `{first}` and `{name}` want their XDP level in different ways (`mode` of `offload`), and all links share one program; give both the same `mode`, or leave it out"
        ))),
    }
}

/// Of which power of two of packets dropped below one comes up.
fn drop_samples(offload: &Offload) -> Option<u8> {
    let of = offload.drop_samples.unwrap_or(OFFLOAD_DROP_SAMPLES_USUAL);
    of.checked_ilog2().and_then(|power| u8::try_from(power).ok())
}

/// Links whose level knows what rules refuse.
fn early_links(plan: &Plan) -> Vec<LinkId> {
    (0..).zip(&plan.links).filter(|(_, link)| link.knows_refusals()).map(|(n, _)| LinkId(n)).collect()
}

/// A link has a level now: for who tells how levels stand.
fn note_level(
    stand: &LevelsStand,
    level: &LinkLevel,
    (link, number, watch): (&LinkPlan, LinkId, Watch),
    tables: Arc<Tables>,
) {
    let asks = link.knows_refusals().then(|| (number, !link.drops_early()));
    stand.note_level(&link.name, tables, (watch, u32::from(link.workers)), asks);
    stand.note_off(&link.name, level.off());
}

/// How much room is needed for refusing packets without a flow on some links.
fn early_options(early: &[LinkId], plan: &Plan, of_links: &[OfLink]) -> Option<EarlyOptions> {
    let of = |link: &LinkId| {
        let number = usize::from(link.0);
        let workers = plan.links.get(number).map_or(1, |link| u64::from(link.workers.max(1)));
        of_links.get(number).map_or(0, |link| u64::from(link.stack.settings.flow_capacity) * workers)
    };
    let links = u32::try_from(early.len()).ok().filter(|links| *links > 0)?;
    Some(EarlyOptions { links, flows: early.iter().map(of).sum() })
}

/// Who serves a link's frames, the first of them of this number, and what becomes of those that nobody serves.
fn watch(offload: &Offload, spread: Spread, first: u32) -> Watch {
    let fail = match offload.fail {
        OffloadFail::Closed => Fail::Closed,
        OffloadFail::Open => Fail::Open,
    };
    let stale = Duration::from_secs(offload.stale.unwrap_or(OFFLOAD_STALE_USUAL).0);
    Watch { fail, stale, spread, first }
}

/// A run that wants a level does not begin without it: who has taken the hook is told.
fn cannot_be_used(link: &str, error: XdpError) -> Failure {
    let why = error.with_holders();
    Failure::input(format!("link `{link}`: its XDP level cannot be used: {why}; or leave `offload` out"))
}

/// What was left on the interfaces of an inline link that has no level now goes: it would take frames away from this run.
fn take_away_left(link: &LinkPlan, interfaces: &[Interface], notes: &mut Vec<String>) -> Result<(), Failure> {
    for interface in interfaces {
        let taken = remove_left(interface.index)
            .map_err(|error| Failure::input(format!("link `{}`: {error}", link.name)))?;
        if taken {
            notes.push(format!(
                "link `{}`: the XDP program that a killed run had left on `{}` is taken away, since the link has no `offload` now",
                link.name, interface.name
            ));
        }
    }
    Ok(())
}

/// Takes away what was left on the two interfaces of links that are to have a level, unless it was the same link before: else it would forward what comes by one of them to an interface
/// that is none of the link's. Before anything is attached: it may be across from what is another link now.
fn take_away_unpaired(
    program: &mut Program,
    plan: &Plan,
    interfaces: &[Vec<Interface>],
    notes: &mut Vec<String>,
) -> Result<(), XdpError> {
    let left = pinned()?;
    let on = |own: &Interface| left.iter().find(|pinned| pinned.ifindex == own.index).map(|p| p.program);
    for (link, interfaces) in plan.links.iter().zip(interfaces).filter(|(link, _)| link.offload.is_some()) {
        let [first, second] = interfaces.as_slice() else { continue };
        let goes_on = match (on(first), on(second)) {
            (None, None) => true,
            (Some(old), Some(other)) if old == other => {
                // The tables of another build are not read: who updates the program has its links open meanwhile.
                program.left_paired(old, [first.index, second.index])?.unwrap_or(true)
            }
            _ => false,
        };
        for own in interfaces.iter().filter(|_| !goes_on) {
            if program.remove_left(own.index)? {
                notes.push(format!(
                    "link `{}`: the XDP program that a killed run had left on `{}` is taken away, since it was not that of this link, with `{}` and `{}` across from each other",
                    link.name, own.name, first.name, second.name
                ));
            }
        }
    }
    Ok(())
}

/// All that is wrong with the interfaces of links that are to have a level, so that it is mended at once.
fn check_all(program: &mut Program, plan: &Plan, interfaces: &[Vec<Interface>]) -> Result<(), Failure> {
    let with_level = || plan.links.iter().zip(interfaces).filter(|(link, _)| link.offload.is_some());
    let all: Vec<u32> = with_level().flat_map(|(_, own)| own.iter().map(|own| own.index)).collect();
    let names: Vec<_> = with_level().map(|(link, _)| link.name.as_str()).collect();
    program.check(&all).map_err(|error| cannot_be_used(&names.join("`, `"), error))
}

impl Below {
    /// What was left on interfaces that are no inline link of this run goes, unless whoever is inline there lives.
    fn take_away_others(&mut self, plan: &Plan, interfaces: &[Vec<Interface>]) -> Result<(), Failure> {
        let failed = |error: XdpError| {
            Failure::input(format!("what a killed run may have left cannot be taken away: {error}"))
        };
        let inline = plan.links.iter().zip(interfaces).filter(|(link, _)| link.is_inline());
        let own: Vec<u32> =
            inline.flat_map(|(_, interfaces)| interfaces).map(|interface| interface.index).collect();
        for Pinned { ifindex, name, .. } in pinned().map_err(failed)? {
            if own.contains(&ifindex) {
                continue;
            }
            let _lock = match lock::interface(&name) {
                Ok(Some(lock)) => lock,
                // It lives.
                Err(_) => continue,
                Ok(None) => {
                    self.notes.push(format!(
                        "an XDP program of this program is pinned on `{name}`, which is no inline link here, and whether the run that it is of lives cannot be told: {} cannot be used; if none does, remove its file in {PINS}",
                        lock::ROOTS_FOLDER
                    ));
                    continue;
                }
            };
            let taken = match &mut self.program {
                Some(program) => program.remove_left(ifindex),
                None => remove_left(ifindex),
            };
            if taken.map_err(failed)? {
                self.notes.push(format!(
                    "the XDP program that a killed run had left on `{name}` is taken away, since `{name}` is no inline link now: what comes by it is not forwarded any more"
                ));
            }
        }
        Ok(())
    }

    /// Loads and attaches what links want, and gives each worker its device. To be called once their ports are open; `interfaces` by link; `chains`: the first generation, with the names of its functions by their bit.
    ///
    /// # Errors
    /// A level that is wanted cannot be used: which, why, and what to do.
    pub fn open(
        plan: &Plan,
        interfaces: &[Vec<Interface>],
        of_links: &mut [OfLink],
        (chains, names): (&Chains, &[&'static str]),
    ) -> Result<Self, Failure> {
        let mut below = Below::default();
        let mut slots = 0;
        for link in &plan.links {
            let share = entries(link).map(|(each, all)| {
                let first = slots;
                slots += all;
                (first, each)
            });
            below.shares.push(share);
        }
        one_mode(plan)?;
        let early = below.plan_early(plan, of_links);
        let (early_links, in_tunnels) = (below.early.clone(), below.early_in_tunnels);
        let mut firsts = Vec::new();
        let mut all_workers = 0;
        for link in &plan.links {
            firsts.push(all_workers);
            let own = all_workers..all_workers + u32::from(link.workers);
            all_workers = own.end;
            below.workers.extend(own.filter(|_| link.offload.is_some()));
        }
        let mut reach = EarlyReach::default();
        let all = interfaces;
        let links = plan.links.iter().zip(all).zip(&*of_links).zip(0u16..);
        for (((link, interfaces), of_link), number) in links {
            let Some(offload) = &link.offload else {
                if link.is_inline() {
                    take_away_left(link, interfaces, &mut below.notes)?;
                }
                continue;
            };
            let settings = &of_link.stack.settings;
            let first = firsts.get(usize::from(number)).copied().unwrap_or_default();
            let watch = watch(offload, settings.spread(link.workers).of_link(LinkId(number)), first);
            let mode = match offload.mode {
                OffloadMode::Auto => ModeChoice::Auto,
                OffloadMode::Native => ModeChoice::Only(Mode::Native),
                OffloadMode::Generic => ModeChoice::Only(Mode::Generic),
            };
            let failed = |error: XdpError| cannot_be_used(&link.name, error);
            let own_number = below.early_number(LinkId(number));
            let program = match &mut below.program {
                Some(program) => program,
                none => {
                    let (flows, tunnels, workers) = (slots, settings.decoder, all_workers);
                    let [one, other] = settings.seed;
                    let seed = one ^ other.rotate_left(32);
                    let options = Options { flows, mode, tunnels, workers, early, seed };
                    let program = none.insert(Program::load(&options).map_err(failed)?);
                    reach = begin(program, (&early_links, in_tunnels), chains, &mut below.notes);
                    take_away_unpaired(program, plan, all, &mut below.notes).map_err(failed)?;
                    check_all(program, plan, all)?;
                    program
                }
            };
            let setup = |side, at: u16| {
                let index = u8::try_from(number * 2 + at).unwrap_or(u8::MAX);
                PortSetup {
                    ifindex: 0,
                    link: LinkId(number),
                    side: if settings.side_in_key { side } else { Side::Unknown },
                    index,
                    pair: index ^ 1,
                    vlans_in_key: settings.vlan_in_key,
                    drop_samples: drop_samples(offload),
                    early: own_number.map(if link.drops_early() { Early::Always } else { Early::WhileOpen }),
                    watch: Some(watch),
                }
            };
            let setups = [setup(Side::First, 0), setup(Side::Second, 1)];
            let mut level = LinkLevel::new(&link.name, setups);
            below.notes.extend(level.attach(program, interfaces).map_err(failed)?);
            note_level(&below.stand, &level, (link, LinkId(number), watch), program.tables());
            below.ports.extend(interfaces.iter().zip(&setups).map(|(interface, setup)| LevelPort {
                interface: interface.name.clone(),
                link: link.name.clone(),
                number: number.into(),
                index: setup.index,
            }));
            below.links.push(level);
        }
        below.stand.note_rules(chains, names, reach);
        below.open_exits(plan)?;
        for (number, (of_link, link)) in of_links.iter_mut().zip(&plan.links).enumerate() {
            let first = firsts.get(number).copied().unwrap_or_default();
            let link_id = LinkId(u16::try_from(number).unwrap_or(u16::MAX));
            let spread = of_link.stack.settings.spread(link.workers).of_link(link_id);
            let max_layers = of_link.stack.settings.decoder.max_layers;
            of_link.devices = below.devices(number, link, (spread, first), max_layers);
        }
        below.take_away_others(plan, interfaces)?;
        Ok(below)
    }

    /// Notes which links have early tables and whether these judge packets in tunnels; the program's options
    /// for them.
    fn plan_early(&mut self, plan: &Plan, of_links: &[OfLink]) -> Option<EarlyOptions> {
        self.early = early_links(plan);
        self.early_in_tunnels = of_links.iter().all(|of_link| {
            let settings = &of_link.stack.settings;
            settings.tunnel_in_key && XdpDevice::reads_tunnels(settings.decoder.max_layers)
        });
        early_options(&self.early, plan, of_links)
    }

    /// Makes named ports known to the program, behind the ports of all links.
    fn open_exits(&mut self, plan: &Plan) -> Result<(), Failure> {
        let Some(program) = &mut self.program else { return Ok(()) };
        for (at, port) in plan.exits.iter().enumerate() {
            let index =
                u8::try_from(plan.links.len() * 2 + at).ok().filter(|index| u32::from(*index) < PORTS);
            if let Some(index) = index {
                let failed = |why: String| {
                    Failure::input(format!(
                        "port `{}`: the XDP level cannot send by it: {why}; or leave `offload` out",
                        port.name
                    ))
                };
                let interface =
                    Interface::look_up(&port.interface).map_err(|error| failed(error.to_string()))?;
                program.set_exit(index, interface.index).map_err(|error| failed(error.to_string()))?;
            }
            self.exits.push((port.interface.clone(), index));
        }
        Ok(())
    }

    /// Number of a link among those whose packets without a flow are refused.
    fn early_number(&self, link: LinkId) -> Option<u8> {
        self.early.iter().position(|early| *early == link).and_then(|number| u8::try_from(number).ok())
    }

    /// Whether the level refuses packets without a flow by the list of a generation before this one, since no worker has begun with it.
    pub fn is_behind(&self, generation: Generation) -> bool {
        let tables = self.program.as_ref().map(Program::tables);
        tables.is_some_and(|tables| tables.early().is_some() && tables.generation() < generation.0)
    }

    /// Makes the table of a generation by which packets without a flow are refused, before any worker enters it. What is to be said: how much of the rules it holds, if not all.
    /// `names`: of its functions by their bit. `free`: the level does not read the place of the table ([`Below::is_behind`] the generation before). Else this generation has none.
    pub fn prepare(&self, chains: &Chains, names: &[&'static str], free: bool) -> Option<String> {
        let program = self.program.as_ref()?;
        if !free {
            return Some(format!(
                "packets without a flow are not refused early in generation {}, and pass while a link is open: no worker has begun with the one before; reload once more when one has",
                chains.generation.0
            ));
        }
        let (reach, said) = prepare(program, (&self.early, self.early_in_tunnels), chains);
        self.stand.note_rules(chains, names, reach);
        said
    }

    /// Pins what is to fail open and takes over what a killed run has left, once workers serve their frames; and looks for MTUs that were changed: frames that are longer than what may leave go up from then
    /// on; and for links that are gone or have come back. To be called often; most calls look at nothing. What is to be said.
    pub fn look(&mut self, links: &Links) -> Vec<String> {
        let mut said = Vec::new();
        let is_due = self.looked.is_none_or(|looked| looked.elapsed() >= EVERY);
        if is_due {
            self.looked = Some(Instant::now());
            self.stand.note_away(links.away());
        }
        let Some(program) = &mut self.program else { return said };
        if program.waits() {
            let tables = program.tables();
            if self.workers.iter().all(|worker| tables.last_beat(*worker).is_some()) {
                let now = program.take_over();
                let why = now.as_ref().err().map(ToString::to_string);
                if let Some(why) = why.as_ref().filter(|why| Some(*why) != self.told.as_ref()) {
                    said.push(format!("error: {why}; it is tried again"));
                }
                if why.is_none() {
                    self.links.iter_mut().for_each(|level| level.waits = false);
                }
                self.told = why;
                if let Some(left) = now.ok().filter(|left| left.programs > 0) {
                    said.push(note(&left));
                    self.left.add(&left);
                }
            }
        }
        if !is_due {
            return said;
        }
        for level in &mut self.links {
            level.follow(program, links.inline_interfaces(&level.name), &mut said);
            self.stand.note_off(&level.name, level.off());
        }
        for news in program.follow_losses() {
            let (name, why) = match &news {
                PortNews::Closed { name, why, .. } => (name, Some(why.to_string())),
                PortNews::Open { name } => (name, None),
            };
            let port = self.ports.iter().find(|port| port.interface == *name);
            port.into_iter().for_each(|port| self.stand.note_port(&port.link, name, why.clone()));
            said.push(told(&news));
        }
        for port in &self.ports {
            // An interface that is gone takes the level with it.
            let _ = program.refresh_mtu(port.index);
        }
        for (interface, index) in self.exits.iter().filter_map(|(name, index)| Some((name, (*index)?))) {
            let now = Interface::look_up(interface).ok().map(|interface| interface.index);
            // What cannot leave by it goes up, and is refused by the host's own port.
            if now.is_none_or(|now| program.set_exit(index, now).is_err()) {
                let _ = program.clear_exit(index);
            }
        }
        said
    }

    /// The run is about to end since somebody wants it: that its workers fall silent is no failure.
    pub fn end_watch(&mut self) {
        if let Some(program) = &mut self.program {
            // Else its last frames fail as the policy says.
            let _ = program.end_watch();
        }
    }

    /// Takes the level away. `failed`: the run has ended though nobody wanted it, and a link that is to fail open does. Gives the last counters ([`Below::beside`]).
    pub fn close(self, failed: bool) -> Vec<Counters> {
        let counters = self.beside();
        match self.program {
            Some(program) if failed => program.leave(),
            Some(program) => program.end(),
            None => {}
        }
        counters
    }

    /// What it counts beside the workers, of each link, for statistics. Of what was left the first link with a level has all.
    #[must_use]
    pub fn beside(&self) -> Vec<Counters> {
        let Some(program) = &self.program else { return Vec::new() };
        let tables = program.tables();
        let mut first = Some(&self.left);
        let of_link = |(number, share): (usize, &Option<(u32, u32)>)| {
            if share.is_none() {
                return Counters::new();
            }
            let own = self.ports.iter().filter(|port| port.number == number);
            let mut counters = vec![
                ("offload.open_pkts", 0u64),
                ("offload.open_bytes", 0),
                ("offload.closed_pkts", 0),
                ("offload.closed_bytes", 0),
                ("offload.lost_pkts", 0),
            ];
            for port in own.filter_map(|port| tables.port_counters(port.index)) {
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

    /// What it counts by port; `None` without a level.
    pub fn counters(&self) -> Option<LevelCounters> {
        let tables = self.program.as_ref()?.tables();
        let exits = self.exits.iter().filter_map(|(port, index)| Some((port.clone(), (*index)?)));
        Some(LevelCounters { tables, ports: self.ports.clone(), exits: exits.collect() })
    }

    /// The devices of a link's workers, by worker; none where the link has no level below.
    fn devices(
        &self,
        number: usize,
        link: &LinkPlan,
        (spread, first_worker): (Spread, u32),
        max_layers: u8,
    ) -> Vec<Box<dyn Device>> {
        let share = self.shares.get(number).copied().flatten();
        let (Some(program), Some((first, each)), Some(offload)) = (&self.program, share, &link.offload)
        else {
            return Vec::new();
        };
        let watch = watch(offload, spread, first_worker);
        let device = |worker: u32| {
            let device = XdpDevice::new(program.tables(), first + worker * each, each).limited_to(max_layers);
            let exits = self.exits.iter().map(|(_, index)| *index).collect();
            let device = device.watched(first_worker + worker, &watch).with_exits(exits);
            match u16::try_from(number).ok().and_then(|number| self.early_number(LinkId(number))) {
                Some(link) => Box::new(device.with_early(link, worker == 0)) as Box<dyn Device>,
                None => Box::new(device),
            }
        };
        (0..u32::from(link.workers)).map(device).collect()
    }
}

/// What is said of a port that takes nothing, or takes frames again.
fn told(news: &PortNews) -> String {
    match news {
        PortNews::Closed { name, lost, why } => format!(
            "warning: nothing leaves by `{name}` at the XDP level any more, {lost} frames were lost there: {why}. Packets of flows that were handled below come up until it takes frames again"
        ),
        PortNews::Open { name } => format!("note: `{name}` takes frames of the XDP level again"),
    }
}

/// Before a link can be left open it is known what is refused: the first generation, with its table. How many of its rules the table holds.
fn begin(
    program: &Program,
    judged: (&[LinkId], bool),
    chains: &Chains,
    notes: &mut Vec<String>,
) -> EarlyReach {
    let (reach, said) = prepare(program, judged, chains);
    notes.extend(said);
    program.tables().enter_generation(chains.generation.0);
    reach
}

/// Makes the table of a generation ([`Below::prepare`]). `judged`: the links whose packets are, and whether
/// those in tunnels are as well. How much of the list it has, and what is to be said.
fn prepare(
    program: &Program,
    (links, tunnels): (&[LinkId], bool),
    chains: &Chains,
) -> (EarlyReach, Option<String>) {
    let tables = program.tables();
    let (Some(early), Some(tables)) = (chains.early.as_ref(), tables.early()) else {
        return (EarlyReach::default(), None);
    };
    let table = early.rules.table(EarlyLevel { links, outcomes: tables.outcomes(), tunnels });
    let (held, all) = (table.reach.rules, early.rules.len());
    if !tables.write(chains.generation.0 as u8, &table.words) {
        let said = "packets without a flow are not refused early: their table has no room";
        return (EarlyReach { rules: 0, ..table.reach }, Some(said.to_owned()));
    }
    let mut said = Vec::new();
    if held < all {
        said.push(format!("early-drop: the XDP level has room for the first {held} of {all} rules, each policy's default counted as one; what none of these decides comes up and is dropped here, and passes while a link is open that nobody serves"));
    }
    if !table.reach.tenants {
        said.push("early-drop: the XDP level has no room for what tells tenants apart; what a rule for a tenant may match comes up and is decided here, and passes while a link is open that nobody serves".to_owned());
    }
    (table.reach, (!said.is_empty()).then(|| said.join("; ")))
}

/// What is said of what a killed run had left.
fn note(left: &Left) -> String {
    let Left { programs, unread, entries, forwarded, dropped, open, closed } = left;
    if programs == unread {
        return "note: the XDP program that a killed run had left is replaced; it is of another build, so what it had counted is not read".to_owned();
    }
    format!(
        "note: the XDP program that a killed run had left is replaced, and its {entries} flows are judged anew; no flow record has what they had handled since they went below ({} packets with {} bytes forwarded, {} with {} dropped); {} packets passed uninspected since nobody served them, and {} were dropped for it",
        forwarded.frames, forwarded.bytes, dropped.frames, dropped.bytes, open.frames, closed.frames
    )
}
