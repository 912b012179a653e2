// SPDX-License-Identifier: Apache-2.0
//! The level below the host: which links have one, and each worker's share of it. It is there before the first packet, and goes when the run has ended.
//!
//! All links share one program in the kernel with one set of tables. Where it cannot be used the run does not begin, and says what to do.
//!
//! Not done: a link that comes back after its interfaces were gone stays without it until the program is started again.

use crate::crew::OfLink;
use crate::error::Failure;
use crate::plan::{LinkPlan, Plan};
use bartizan_base::LinkId;
use bartizan_config::host::{OFFLOAD_ENTRIES_USUAL, OffloadMode};
use bartizan_offload::Device;
use bartizan_offload::devices::xdp::XdpDevice;
use bartizan_ports::Interface;
use bartizan_xdp::{Mode, ModeChoice, Options, PortCounters, PortSetup, Program, Side, Tables};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A port of a link that has a level.
#[derive(Clone, Debug)]
pub struct LevelPort {
    /// Its interface.
    pub interface: String,
    /// The link's name.
    pub link: String,
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
        let links = plan.links.iter().zip(interfaces).zip(&*of_links).zip(0u16..);
        for (((link, interfaces), of_link), number) in links {
            let Some(offload) = &link.offload else { continue };
            let settings = &of_link.stack.settings;
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
                    let options = Options { flows: slots, mode, tunnels: settings.decoder };
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
                    })
                    .map_err(failed)?;
                below.ports.push(LevelPort {
                    interface: interface.name.clone(),
                    link: link.name.clone(),
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
            of_link.devices = below.devices(number, link.workers);
        }
        Ok(below)
    }

    /// Looks for MTUs that were changed: frames that are longer than what may leave go up from then on. To be called often; most calls look at nothing.
    pub fn look(&mut self) {
        let Some(program) = &mut self.program else { return };
        if self.looked.is_some_and(|looked| looked.elapsed() < EVERY) {
            return;
        }
        self.looked = Some(Instant::now());
        for port in &self.ports {
            // An interface that is gone takes the level with it.
            let _ = program.refresh_mtu(port.index);
        }
    }

    /// What it counts by port; `None` without a level.
    pub fn counters(&self) -> Option<LevelCounters> {
        let tables = self.program.as_ref()?.tables();
        Some(LevelCounters { tables, ports: self.ports.clone() })
    }

    /// The devices of a link's workers, by worker; none where the link has no level below.
    fn devices(&self, link: usize, workers: u16) -> Vec<Box<dyn Device>> {
        let share = self.shares.get(link).copied().flatten();
        let (Some(program), Some((first, each))) = (&self.program, share) else { return Vec::new() };
        let device = |worker: u32| {
            Box::new(XdpDevice::new(program.tables(), first + worker * each, each)) as Box<dyn Device>
        };
        (0..u32::from(workers)).map(device).collect()
    }
}
