// SPDX-License-Identifier: Apache-2.0
//! The level below the host: which links have one, and each worker's share of it. It is there before the first packet, and goes when the run has ended as it should; where it
//! is to fail open it stays when the run has failed (docs/failing.md).
//!
//! All links share one program in the kernel with one set of tables. Where it cannot be used the run does not begin, and says what to do.
//! What a killed run has left on a link's interfaces is taken over once all workers serve their frames, or taken away where the link is not to fail open.
//!
//! Not done: a link that comes back after its interfaces were gone stays without it until the program is started again.

use crate::crew::OfLink;
use crate::error::Failure;
use crate::plan::{LinkPlan, Plan};
use bartizan_base::{LinkId, Spread};
use bartizan_config::host::{OFFLOAD_ENTRIES_USUAL, OFFLOAD_STALE_USUAL, Offload, OffloadFail, OffloadMode};
use bartizan_dataplane::stats::Counters;
use bartizan_offload::Device;
use bartizan_offload::devices::xdp::XdpDevice;
use bartizan_ports::Interface;
use bartizan_xdp::{
    Fail, Left, Mode, ModeChoice, Options, PortCounters, PortSetup, Program, Side, Tables, Watch, boot_time,
    remove_left,
};
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
}

impl LevelCounters {
    /// Each port, and what came by it.
    pub fn ports(&self) -> impl Iterator<Item = (&LevelPort, PortCounters)> {
        self.ports.iter().filter_map(|port| Some((port, self.tables.port_counters(port.index)?)))
    }
}

/// How often MTUs are looked at.
const EVERY: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Default)]
pub struct Below {
    /// Detaches when it goes.
    program: Option<Program>,
    /// Of each link: the first of its slots, and how many each worker has.
    shares: Vec<Option<(u32, u32)>>,
    ports: Vec<LevelPort>,
    /// Numbers of the workers of links that have a level, among those of all links.
    workers: Vec<u32>,
    /// When it was opened, by the clock of signs of life: a worker that was heard of since works.
    opened: u64,
    /// What a killed run had left on its interfaces.
    left: Left,
    looked: Option<Instant>,
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

/// Who serves a link's frames, the first of them of this number, and what becomes of those that nobody serves.
fn watch(offload: &Offload, spread: Spread, first: u32) -> Watch {
    let fail = match offload.fail {
        OffloadFail::Closed => Fail::Closed,
        OffloadFail::Open => Fail::Open,
    };
    let stale = Duration::from_secs(offload.stale.unwrap_or(OFFLOAD_STALE_USUAL).0);
    Watch { fail, stale, spread, first }
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

impl Below {
    /// Loads and attaches what links want, and gives each worker its device. To be called once their ports are open; `interfaces` by link.
    ///
    /// # Errors
    /// A level that is wanted cannot be used: which, why, and what to do.
    pub fn open(
        plan: &Plan,
        interfaces: &[Vec<Interface>],
        of_links: &mut [OfLink],
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
        let mut firsts = Vec::new();
        let mut all_workers = 0;
        for link in &plan.links {
            firsts.push(all_workers);
            let own = all_workers..all_workers + u32::from(link.workers);
            all_workers = own.end;
            below.workers.extend(own.filter(|_| link.offload.is_some()));
        }
        let links = plan.links.iter().zip(interfaces).zip(&*of_links).zip(0u16..);
        for (((link, interfaces), of_link), number) in links {
            let Some(offload) = &link.offload else {
                if link.is_inline() {
                    take_away_left(link, interfaces, &mut below.notes)?;
                }
                continue;
            };
            let settings = &of_link.stack.settings;
            let first = firsts.get(usize::from(number)).copied().unwrap_or_default();
            let watch = watch(offload, Spread::new(settings.seed, link.workers), first);
            let mode = match offload.mode {
                OffloadMode::Auto => ModeChoice::Auto,
                OffloadMode::Native => ModeChoice::Only(Mode::Native),
                OffloadMode::Generic => ModeChoice::Only(Mode::Generic),
            };
            let failed = |error: bartizan_xdp::XdpError| {
                Failure::input(format!(
                    "link `{}`: its XDP level cannot be used: {error}; or leave `offload` out",
                    link.name
                ))
            };
            let program = match &mut below.program {
                Some(program) => program,
                none => {
                    let (flows, tunnels, workers) = (slots, settings.decoder, all_workers);
                    let options = Options { flows, mode, tunnels, workers };
                    none.insert(Program::load(&options).map_err(failed)?)
                }
            };
            let sides = [Side::First, Side::Second];
            for (side, (interface, at)) in sides.into_iter().zip(interfaces.iter().zip(0u16..)) {
                let index = u8::try_from(number * 2 + at).unwrap_or(u8::MAX);
                let attached = program
                    .attach(&PortSetup {
                        ifindex: interface.index,
                        link: LinkId(number),
                        side: if settings.side_in_key { side } else { Side::Unknown },
                        index,
                        pair: index ^ 1,
                        vlans_in_key: settings.vlan_in_key,
                        watch: Some(watch),
                    })
                    .map_err(failed)?;
                below.ports.push(LevelPort {
                    interface: interface.name.clone(),
                    link: link.name.clone(),
                    number: number.into(),
                    index,
                });
                if attached.mode == Mode::Generic {
                    below.notes.push(format!(
                        "link `{}`: the driver of `{}` runs no XDP programs, so the kernel does (generic mode), which is slower",
                        link.name, interface.name
                    ));
                }
            }
        }
        for (number, (of_link, link)) in of_links.iter_mut().zip(&plan.links).enumerate() {
            let first = firsts.get(number).copied().unwrap_or_default();
            let spread = Spread::new(of_link.stack.settings.seed, link.workers);
            of_link.devices = below.devices(number, link, (spread, first));
        }
        below.opened = boot_time();
        Ok(below)
    }

    /// Takes over what a killed run has left, once workers serve their frames; and looks for MTUs that were changed: frames that are longer than what may leave go up from then
    /// on. To be called often; most calls look at nothing. What is to be said.
    pub fn look(&mut self) -> Vec<String> {
        let mut said = Vec::new();
        let Some(program) = &mut self.program else { return said };
        if program.waits() {
            let tables = program.tables();
            let works = |worker: &u32| tables.last_beat(*worker).is_some_and(|seen| seen > self.opened);
            if self.workers.iter().all(works) {
                match program.take_over() {
                    Ok(left) => {
                        said.push(note(&left));
                        self.left = left;
                    }
                    Err(error) => said.push(format!("error: {error}; it is tried again")),
                }
            }
        }
        if self.looked.is_some_and(|looked| looked.elapsed() < EVERY) {
            return said;
        }
        self.looked = Some(Instant::now());
        for port in &self.ports {
            // An interface that is gone takes the level with it.
            let _ = program.refresh_mtu(port.index);
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
            let (open, closed) = own.filter_map(|port| tables.port_counters(port.index)).fold(
                (0, 0),
                |(open, closed): (u64, u64), port| {
                    (open.saturating_add(port.open), closed.saturating_add(port.closed))
                },
            );
            let mut counters = vec![("offload.open_pkts", open), ("offload.closed_pkts", closed)];
            if let Some(left) = first.take() {
                counters.extend([
                    ("offload.left.programs", left.programs),
                    ("offload.left.entries", left.entries),
                    ("offload.left.forwarded_pkts", left.forwarded.frames),
                    ("offload.left.forwarded_bytes", left.forwarded.bytes),
                    ("offload.left.dropped_pkts", left.dropped.frames),
                    ("offload.left.dropped_bytes", left.dropped.bytes),
                    ("offload.left.open_pkts", left.open),
                    ("offload.left.closed_pkts", left.closed),
                ]);
            }
            counters
        };
        self.shares.iter().enumerate().map(of_link).collect()
    }

    /// What it counts by port; `None` without a level.
    pub fn counters(&self) -> Option<LevelCounters> {
        let tables = self.program.as_ref()?.tables();
        Some(LevelCounters { tables, ports: self.ports.clone() })
    }

    /// The devices of a link's workers, by worker; none where the link has no level below.
    fn devices(
        &self,
        number: usize,
        link: &LinkPlan,
        (spread, first_worker): (Spread, u32),
    ) -> Vec<Box<dyn Device>> {
        let share = self.shares.get(number).copied().flatten();
        let (Some(program), Some((first, each)), Some(offload)) = (&self.program, share, &link.offload)
        else {
            return Vec::new();
        };
        let watch = watch(offload, spread, first_worker);
        let device = |worker: u32| {
            let device = XdpDevice::new(program.tables(), first + worker * each, each);
            Box::new(device.watched(first_worker + worker, &watch)) as Box<dyn Device>
        };
        (0..u32::from(link.workers)).map(device).collect()
    }
}

/// What is said of what a killed run had left.
fn note(left: &Left) -> String {
    let Left { programs, unread, entries, forwarded, dropped, open, closed } = left;
    if programs == unread {
        return "note: the XDP program that a killed run had left is replaced; it is of another build, so what it had counted is not read".to_owned();
    }
    format!(
        "note: the XDP program that a killed run had left is replaced, and its {entries} flows are judged anew; no flow record has what they had handled since they went below ({} packets with {} bytes forwarded, {} with {} dropped); {open} packets passed uninspected since nobody served them, and {closed} were dropped for it",
        forwarded.frames, forwarded.bytes, dropped.frames, dropped.bytes
    )
}
