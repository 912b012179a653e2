// SPDX-License-Identifier: Apache-2.0
//! Loads the level's program, attaches it to ports, and detaches it.
//!
//! This process holds the attachments: when it ends, in whatever way, the program is gone from all
//! interfaces. Only attachments of ports that fail open are pinned (`pin.rs`), once their workers live, and
//! outlive a kill; the next process replaces the running program by its own in one step
//! ([`XdpProgram::take_over`]). Not done: several programs on one interface.

mod check;
mod failures;

use crate::early::{EarlyTables, Size};
use crate::error::XdpError;
use crate::features;
use crate::index::{PLACES, buckets_of};
use crate::left::{self, LeftTables, program_name};
use crate::link::XdpInterface;
use crate::lost::{self, Reports};
use crate::memory::Words;
use crate::object::{self, load_with_retry, map, not_loaded};
use crate::pin::Pin;
use crate::port::{Mode, ModeChoice, XdpPort};
use crate::prove::{self, RedirectProbe};
use crate::sys::{self, Attachment, Map, MapUpdateMode, Run};
use crate::tables::{HEARTBEAT_WORDS, LOST_WORDS, NOT_BEGUN, PORT_WORDS, SLOT_WORDS, Tables};
use aya::programs::Xdp;
use aya::{Ebpf, EbpfLoader};
use bartizan_offload::level::{EarlyMode, EarlyOptions, Fail, PortNews, PortSetup, StalePrograms, Watch};
use bartizan_packet::DecoderConfig;
use bartizan_packet::slots::{
    EarlyCount, ExitFlags, ExitWord, PORTS, PortFlags, PortWord, UdpPorts, WatchEntry,
};
use bartizan_packet::windows::WINDOW_WORDS;
use failures::not_attached;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/flows.o"));
pub(crate) const NAME: &str = "bartizan_flows";

/// Bytes beyond its MTU that the kernel lets a device send: Ethernet and VLAN header (`xdp_ok_fwd_dev`).
const BEYOND_MTU: u32 = 14 + 4;

/// A run of a replaced program on its last frame ends long before this.
const GRACE: Duration = Duration::from_millis(5);

/// Options of the level.
#[derive(Clone, Copy, Debug)]
pub struct XdpOptions {
    /// Flows that it can hold, each with a slot.
    pub flows: u32,
    /// The modes that are allowed.
    pub mode: ModeChoice,
    /// The datagrams that may carry tunnels; [`Tables::set_tunnel_ports`] changes them.
    pub tunnels: DecoderConfig,
    /// Workers of all links together, which give signs of life.
    pub workers: u32,
    /// Whether packets without a flow are refused early on some links.
    pub early: Option<EarlyOptions>,
    /// The seed of hashes of flows' keys; it must stay secret.
    pub seed: u64,
}

/// A port with the program on it.
#[derive(Debug)]
struct Port {
    setup: PortSetup,
    name: String,
    mtu: u32,
    kind: String,
    mode: Mode,
    attachment: Attachment,
    /// The file for its pin, if it fails open.
    pin: Option<Pin>,
    /// Its attachment is pinned.
    pinned: bool,
    /// An older process's program still runs on it.
    waits: bool,
    /// It was made promiscuous here, and has to be reset.
    promiscuous: bool,
    /// It takes frames that a driver redirects to it.
    proven: bool,
    enabled: bool,
}

impl Port {
    /// Prepares it to go on without this process, once it is pinned.
    fn fail_open(&mut self) -> Result<(), XdpError> {
        let pin = Pin::of(self.setup.ifindex)?;
        pin.prepare()?;
        // A process's sockets take promiscuous mode with them. An older process with a program had it on.
        let switched = sys::set_promiscuous(&self.name, true).map_err(|source| {
            XdpError::system(Some(&self.name), "switching it to take all frames", source)
        })?;
        self.promiscuous = switched || self.waits;
        (self.pin, self.pinned) = (Some(pin), self.waits);
        Ok(())
    }

    /// Pins it, if it is to fail open and is not pinned yet.
    fn put_pin(&mut self) -> Result<(), XdpError> {
        if let Some(pin) = self.pin.as_ref().filter(|_| !self.pinned) {
            pin.put(&self.attachment)?;
            self.pinned = true;
        }
        Ok(())
    }

    /// Lets the program go on when this process ends, as if it were killed.
    fn leave(&mut self) {
        if self.pin.is_some() {
            self.attachment.set_stays(true);
            (self.pin, self.promiscuous) = (None, false);
        }
    }
}

impl Drop for Port {
    /// Detaches, unless an older program was not taken over, or a panic ends the process while it is pinned.
    fn drop(&mut self) {
        if self.waits || std::thread::panicking() {
            self.leave();
        }
        if let Some(pin) = self.pin.as_ref().filter(|_| self.pinned) {
            pin.remove();
        }
        if self.promiscuous {
            // The interface may be gone.
            let _ = sys::set_promiscuous(&self.name, false);
        }
    }
}

/// A port that only sends packets.
#[derive(Clone, Copy, Debug)]
struct Exit {
    ifindex: u32,
    mtu: u32,
}

/// The level's program with its tables. Dropping it detaches all but older programs not taken over yet.
#[derive(Debug)]
pub struct XdpProgram {
    bpf: Ebpf,
    tables: Arc<Tables>,
    ports: BTreeMap<u8, Port>,
    only_exits: BTreeMap<u8, Exit>,
    by_interface: Map,
    egress: Map,
    exits: Words,
    watches: Map,
    probe: Option<RedirectProbe>,
    reports: Option<Reports>,
    /// Ports that take no frames, as already reported.
    closed: BTreeSet<u8>,
    mode: ModeChoice,
    /// Tables of older processes' programs, by the program's number; `None` where they cannot be read.
    left: BTreeMap<u32, Option<LeftTables>>,
}

/// The tables of a loaded program.
fn tables_of(bpf: &Ebpf, options: &XdpOptions, size: Size, processors: u32) -> Result<Tables, XdpError> {
    let XdpOptions { flows, workers, early, seed, .. } = *options;
    let array = |name, count, each| object::array(bpf, name, count, each);
    Ok(Tables {
        early: early.map(|_| early_tables(bpf, size, seed)).transpose()?,
        buckets: array("buckets", buckets_of(flows), PLACES)?,
        seed,
        udp_ports: map(bpf, "udp_ports", 4, UdpPorts::LEN)?,
        slots: array("slots", flows * (1 + processors), SLOT_WORDS)?,
        windows: array("windows", flows, WINDOW_WORDS)?,
        counts: array("counts", PORTS * processors, PORT_WORDS)?,
        state: array("state", 1, 1)?,
        heartbeats: array("heartbeats", workers.max(1), HEARTBEAT_WORDS)?,
        lost: array("lost", PORTS * processors, LOST_WORDS)?,
        tried: [const { AtomicU64::new(0) }; PORTS as usize],
        slot_count: flows,
        processors,
    })
}

impl XdpProgram {
    /// Loads the program and makes its tables. It is attached nowhere yet.
    ///
    /// # Errors
    /// No permission, no such kernel, too many flows, no memory.
    pub fn load(options: &XdpOptions) -> Result<Self, XdpError> {
        let XdpOptions { flows, mode, tunnels, workers, early, seed } = *options;
        let processors = processors()?;
        let most = u32::MAX / (processors + 1) / 2;
        if flows == 0 || flows > most {
            return Err(XdpError::Flows { flows, processors, most });
        }
        let buckets = buckets_of(flows);
        let buckets_mask = buckets - 1;
        let mut loader = EbpfLoader::new();
        loader
            .override_global("processors", &processors, true)
            .map_max_entries("buckets", buckets)
            .override_global("buckets_mask", &buckets_mask, true)
            .override_global("hash_seed", &seed, true)
            .map_max_entries("slots", flows * (1 + processors))
            .map_max_entries("windows", flows)
            .map_max_entries("counts", PORTS * processors)
            .map_max_entries("lost", PORTS * processors)
            .map_max_entries("heartbeats", workers.max(1));
        let size = Size::of(early, processors);
        let mask = size.marks_mask();
        loader
            .override_global("early_links", &size.links, true)
            .override_global("early_outcomes", &size.outcomes, true)
            .override_global("marks_mask", &mask, true)
            .map_max_entries("early", size.words())
            .map_max_entries("early_counts", size.counts())
            .map_max_entries("marks", size.marks / 2)
            .map_max_entries("passed", size.passed());
        let mut bpf = object::load(&mut loader, OBJECT, NAME).map_err(|error| match error {
            // Only the lack of memory makes this step fail so.
            XdpError::System { .. } => XdpError::Memory {
                flows,
                processors,
                mebibytes: (u64::from(buckets) * 128
                    + u64::from(flows) * (64 + 64 + 64 * u64::from(processors)))
                    >> 20,
            },
            other => other,
        })?;
        let tables = tables_of(&bpf, options, size, processors)?;
        tables
            .set_tunnel_ports(&tunnels)
            .map_err(|source| XdpError::system(None, "saying where tunnels are", source))?;
        let exits = object::array(&bpf, "exits", PORTS, 1)?;
        let (by_interface, egress, watches) = (
            map(&bpf, "ports", 4, PortWord::LEN)?,
            map(&bpf, "egress", 4, 8)?,
            map(&bpf, "watches", 4, WatchEntry::LEN)?,
        );
        let flows = program(&mut bpf)?;
        load_with_retry(|| flows.load()).map_err(|error| not_loaded(NAME, &error))?;
        let (tables, ports, left) = (Arc::new(tables), BTreeMap::new(), BTreeMap::new());
        let (only_exits, probe, reports, closed) = (BTreeMap::new(), None, None, BTreeSet::new());
        Ok(XdpProgram {
            bpf,
            tables,
            ports,
            only_exits,
            by_interface,
            egress,
            exits,
            watches,
            probe,
            reports,
            closed,
            mode,
            left,
        })
    }

    /// The tables.
    #[must_use]
    pub fn tables(&self) -> Arc<Tables> {
        Arc::clone(&self.tables)
    }

    /// Attaches the program to a port. Once both ports of a link are attached, they are tested (`prove.rs`)
    /// and handle packets of flows. An older process's program on the interface is removed; on a port that
    /// fails open it runs until [`XdpProgram::take_over`], and fails open or closed meanwhile.
    ///
    /// # Errors
    /// The interface is missing, down, taken, of another MTU, has offloads on, takes no redirected frames, or
    /// cannot be pinned. Then this port gets no new program, and the port across the link stays as it was.
    pub fn attach(&mut self, port: &PortSetup) -> Result<XdpPort, XdpError> {
        let mut link = query_interface(port.ifindex)?;
        self.check_number(port, &link.name)?;
        let found = self.find_left(port, &mut link)?;
        if let Some((id, native)) = link.program.filter(|_| found.is_none()) {
            let program = program_name(id);
            let mode = if native { Mode::Native } else { Mode::Generic };
            let (name, ifindex) = (link.name, port.ifindex);
            return Err(XdpError::HookTaken { name, id, program, mode, ifindex, holders: None });
        }
        prove::port(&link)?;
        if let Some(other) = self.ports.get_mut(&port.pair) {
            // The interface may have changed since it was attached.
            let across = query_interface(other.setup.ifindex)?;
            prove::port(&across)?;
            prove::same_mtu(&link, &across)?;
            other.mtu = across.mtu;
        }
        let failed = |source| XdpError::system(Some(&link.name), "naming the port", source);
        self.write_port(port, None).map_err(failed)?;
        self.write_watch(port.index, port.watch).map_err(failed)?;
        let waits = found.is_some();
        let (attachment, mode) = match (found, link.program) {
            (Some(found), Some((_, native))) => (found, if native { Mode::Native } else { Mode::Generic }),
            _ => self.attach_program(&link, port.ifindex)?,
        };
        let XdpInterface { name, mtu, kind, .. } = link;
        let (pin, pinned, promiscuous, proven, enabled) = (None, false, false, false, false);
        let mut attached = Port {
            setup: *port,
            name,
            mtu,
            kind,
            mode,
            attachment,
            pin,
            pinned,
            waits,
            promiscuous,
            proven,
            enabled,
        };
        if port.watch.is_some_and(|watch| watch.fail == Fail::Open) {
            attached.fail_open()?;
        }
        self.ports.insert(port.index, attached);
        match self.enable(port) {
            Ok(enabled) => Ok(XdpPort { mode, enabled, waits }),
            Err(error) => {
                // The attachment of this port caused the error: it is detached.
                let _ = self.detach(port.index);
                Err(error)
            }
        }
    }

    /// An older program on a port, if this one can replace it; else that is removed, and `link` is freed.
    fn find_left(
        &mut self,
        port: &PortSetup,
        link: &mut XdpInterface,
    ) -> Result<Option<Attachment>, XdpError> {
        let pin = Pin::of(port.ifindex)?;
        let Some(found) = left::find(&pin, port.ifindex, link)? else { return Ok(None) };
        self.note_left(found.program)?;
        let stays_open = port.watch.is_some_and(|watch| watch.fail == Fail::Open);
        let mode_fits = match (self.mode, link.program) {
            (ModeChoice::Only(mode), Some((_, native))) => (mode == Mode::Native) == native,
            _ => true,
        };
        if stays_open && mode_fits {
            return Ok(Some(found.attachment));
        }
        found.detach(&pin, &link.name)?;
        link.program = None;
        Ok(None)
    }

    /// Opens the tables of a program that was left, whose counts [`XdpProgram::take_over`] reports.
    fn note_left(&mut self, id: u32) -> Result<(), XdpError> {
        if !self.left.contains_key(&id) {
            let tag = self.tag()?;
            self.left.insert(id, LeftTables::open(id, tag, self.tables.processors));
        }
        Ok(())
    }

    /// The kernel's tag of the program, which differs between builds.
    fn tag(&mut self) -> Result<u64, XdpError> {
        Ok(program(&mut self.bpf)?.info().map_err(|error| not_loaded(NAME, &error))?.tag())
    }

    /// Whether an older process's program has two interfaces as the two sides of one link. `None`: it is of
    /// another build, whose tables are not read.
    ///
    /// # Errors
    /// The kernel does not report on this program.
    pub fn left_paired(&mut self, left: u32, interfaces: [u32; 2]) -> Result<Option<bool>, XdpError> {
        Ok(left::are_paired(left, self.tag()?, interfaces))
    }

    /// Removes an older process's program from an interface that is not a port or starts again. `false`:
    /// there was none. [`XdpProgram::take_over`] reports its counts.
    ///
    /// # Errors
    /// There is no such interface, the kernel refuses.
    pub fn remove_left(&mut self, ifindex: u32) -> Result<bool, XdpError> {
        let (pin, link) = (Pin::of(ifindex)?, query_interface(ifindex)?);
        let Some(found) = left::find(&pin, ifindex, &link)? else { return Ok(false) };
        self.note_left(found.program)?;
        found.detach(&pin, &link.name)?;
        Ok(true)
    }

    fn check_number(&self, port: &PortSetup, name: &str) -> Result<(), XdpError> {
        let wrong = |problem| Err(XdpError::Port { index: port.index, name: name.to_owned(), problem });
        if u32::from(port.index.max(port.pair)) >= PORTS {
            return wrong("numbers of ports and pairs are 0 to 63");
        }
        if port.index == port.pair {
            return wrong("a port cannot be across the link from itself: give its pair another number");
        }
        if self.ports.contains_key(&port.index) {
            return wrong("the number is taken: detach that port first, or take another number");
        }
        match self.ports.get(&port.pair) {
            Some(other) if other.setup.pair != port.index || other.setup.link != port.link => {
                wrong("the port across its link says to be across from another one, or of another link")
            }
            _ => Ok(()),
        }
    }

    /// Writes a port to the program's tables; a mode enables it.
    fn write_port(&self, port: &PortSetup, enabled: Option<Mode>) -> io::Result<()> {
        let mut flags = PortFlags::empty();
        flags.set(PortFlags::ENABLED, enabled.is_some());
        flags.set(PortFlags::GENERIC, enabled == Some(Mode::Generic));
        flags.set(PortFlags::VLANS, port.vlans_in_key);
        flags.set(PortFlags::EARLY, matches!(port.early, Some(EarlyMode::Always(_))));
        flags.set(PortFlags::OPEN, port.watch.is_some_and(|watch| watch.fail == Fail::Open));
        let word = PortWord {
            link: port.link.0,
            side: port.side as u8,
            index: port.index,
            pair: port.pair,
            flags: flags.bits(),
            sample: port.drop_samples.map_or(0, |power| power.min(31) + 1),
            early: port.early.map_or(0, |early| early.link().saturating_add(1)),
        };
        self.by_interface.update(&port.ifindex.to_ne_bytes(), &native(word.write()), MapUpdateMode::Any)
    }

    /// Writes the workers that serve a port to the program's tables.
    fn write_watch(&self, index: u8, watch: Option<Watch>) -> io::Result<()> {
        let mut entry = WatchEntry::default();
        if let Some(Watch { stale, spread, first, .. }) = watch {
            let factors = spread.factors();
            let [address_0, address_1, address_2, address_3] = factors.address.map(u64::from);
            entry = WatchEntry {
                stale: u64::try_from(stale.as_nanos()).unwrap_or(u64::MAX >> 1),
                first: first.into(),
                workers: spread.workers().into(),
                address_0,
                address_1,
                address_2,
                address_3,
                ports: factors.ports.into(),
                last: factors.last.into(),
                vlans: factors.vlans.into(),
                start: spread.start().into(),
            };
        }
        let value: Vec<u8> = entry.write().as_chunks::<8>().0.iter().flat_map(|word| native(*word)).collect();
        self.watches.update(&u32::from(index).to_ne_bytes(), &value, MapUpdateMode::Any)
    }

    /// Gives workers of a port that have begun their full time from now on. The watch of a worker that has
    /// not begins with its first sign of life: until then its frames wait for it, however long the start
    /// takes.
    fn begin_watch(&self, port: &PortSetup) {
        let Some(Watch { spread, first, .. }) = port.watch else { return };
        let now = sys::monotonic_time();
        for worker in first..first.saturating_add(spread.workers().into()) {
            let seen = if self.tables.last_beat(worker).is_some() { now } else { NOT_BEGUN };
            self.tables.beat(worker, seen);
        }
    }

    /// Writes the limits of frames that may leave by a port to the program's tables.
    fn write_exit(&self, port: &Port) {
        let exit = Exit { ifindex: port.setup.ifindex, mtu: port.mtu };
        self.write_exit_of(port.setup.index, exit, port.proven);
    }

    fn write_exit_of(&self, index: u8, exit: Exit, proven: bool) {
        let mut flags = ExitFlags::empty();
        flags.set(ExitFlags::PROVEN, proven);
        flags.set(ExitFlags::PARTS, features::sends_parts(exit.ifindex));
        let word = ExitWord { longest: exit.mtu.saturating_add(BEYOND_MTU), flags: flags.bits() };
        self.set_exit_word(index, u64::from_le_bytes(word.write()));
    }

    fn set_exit_word(&self, index: u8, word: u64) {
        if let Some(place) = self.exits.get().get(usize::from(index)) {
            place.store(word, Ordering::Release);
        }
    }

    /// Lets packets leave by a port that receives none ([`crate::XdpFlowAction::Redirect`]), under an unused
    /// number; it is tested first where a driver redirects to it. Call this once ports are attached, and
    /// again to follow its interface and MTU: it is tested again only if the interface is another one.
    ///
    /// # Errors
    /// The interface is missing or down, the number is taken, or the interface takes no redirected frames.
    pub fn set_exit(&mut self, index: u8, ifindex: u32) -> Result<(), XdpError> {
        let link = query_interface(ifindex)?;
        if u32::from(index) >= PORTS || self.ports.contains_key(&index) {
            let problem = "the number is taken or above 63: give the named port another one";
            return Err(XdpError::Port { index, name: link.name, problem });
        }
        if !link.is_up() {
            return Err(XdpError::Down { name: link.name });
        }
        let exit = Exit { ifindex, mtu: link.mtu };
        let known = self.only_exits.get(&index).copied();
        if known.is_some_and(|known| known.ifindex == ifindex && known.mtu == link.mtu) {
            return Ok(());
        }
        let by_driver = self.ports.values().any(|port| port.mode == Mode::Native);
        if by_driver && known.is_none_or(|known| known.ifindex != ifindex) {
            self.try_port(index, &link.name, &link.kind, ifindex)?;
        }
        let failed = |source| XdpError::system(Some(&link.name), "letting packets leave by it", source);
        self.write_exit_of(index, exit, by_driver);
        self.closed.remove(&index);
        let (number, device) = (u32::from(index).to_ne_bytes(), prove::device(ifindex));
        self.egress.update(&number, &device, MapUpdateMode::Any).map_err(failed)?;
        self.only_exits.insert(index, exit);
        Ok(())
    }

    /// Ends sending by a port of [`XdpProgram::set_exit`]: packets to it go up.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn clear_exit(&mut self, index: u8) -> Result<(), XdpError> {
        if self.only_exits.remove(&index).is_none() {
            return Ok(());
        }
        self.close_exit(index);
        match self.egress.delete(&u32::from(index).to_ne_bytes()) {
            // The kernel removes the entry of a device that goes.
            Err(error) if error.raw_os_error() != Some(libc::ENOENT) => {
                Err(XdpError::system(None, "taking a named port away", error))
            }
            _ => Ok(()),
        }
    }

    /// Attaches the program: native where the driver supports it and `mode` allows it, else generic.
    fn attach_program(&mut self, link: &XdpInterface, ifindex: u32) -> Result<(Attachment, Mode), XdpError> {
        let modes: &[Mode] = match self.mode {
            ModeChoice::Auto => &[Mode::Native, Mode::Generic],
            ModeChoice::Only(Mode::Native) => &[Mode::Native],
            ModeChoice::Only(Mode::Generic) => &[Mode::Generic],
        };
        let program = program(&mut self.bpf)?.fd().map_err(|error| not_loaded(NAME, &error))?;
        let mut first = None;
        for mode in modes {
            match Attachment::new(program.as_fd(), ifindex, mode.flag()) {
                Ok(attachment) => return Ok((attachment, *mode)),
                Err(error) => {
                    let error = not_attached(link, ifindex, *mode, error);
                    // Another mode is tried only if the driver lacks this one; the first error is the telling
                    // one.
                    let cannot =
                        matches!(error, XdpError::NoNativeMode { .. } | XdpError::MtuTooLarge { .. });
                    first.get_or_insert(error);
                    if !cannot {
                        break;
                    }
                }
            }
        }
        Err(first.unwrap_or(XdpError::NoNativeMode { name: link.name.clone() }))
    }

    /// Enables a link whose two ports are attached, after a test of both.
    fn enable(&mut self, port: &PortSetup) -> Result<bool, XdpError> {
        if !self.ports.contains_key(&port.index) || !self.ports.contains_key(&port.pair) {
            return Ok(false);
        }
        let ways = [(port.pair, port.index), (port.index, port.pair)];
        for (from, to) in ways {
            self.prove(from, to)?;
        }
        for (_, to) in ways {
            let Some(exit) = self.ports.get(&to) else { continue };
            let failed = |source| XdpError::system(Some(&exit.name), "enabling the port", source);
            self.write_exit(exit);
            let (number, device) = (u32::from(to).to_ne_bytes(), prove::device(exit.setup.ifindex));
            self.egress.update(&number, &device, MapUpdateMode::Any).map_err(failed)?;
        }
        self.begin_watch(port);
        for (from, _) in ways {
            let Some(port) = self.ports.get_mut(&from) else { continue };
            port.enabled = true;
            let (setup, mode, name) = (port.setup, port.mode, port.name.clone());
            self.write_port(&setup, Some(mode))
                .map_err(|source| XdpError::system(Some(&name), "enabling the port", source))?;
        }
        Ok(true)
    }

    /// Whether [`XdpProgram::take_over`] has something to do or to report.
    #[must_use]
    pub fn waits(&self) -> bool {
        !self.left.is_empty() || self.ports.values().any(|port| port.pin.is_some() && !port.pinned)
    }

    /// Pins ports that fail open, and replaces older processes' programs: each frame meets the old program or
    /// this one. Call this when workers serve their frames; until then the old program fails open or closed
    /// as configured. Returns the counts of old programs, also of those removed already.
    ///
    /// # Errors
    /// The kernel refuses; the old program goes on on that port, and the call may be repeated.
    pub fn take_over(&mut self) -> Result<StalePrograms, XdpError> {
        self.ports.values_mut().try_for_each(Port::put_pin)?;
        let fd = program(&mut self.bpf)?.fd().map_err(|error| not_loaded(NAME, &error))?;
        for port in self.ports.values_mut().filter(|port| port.waits) {
            port.attachment.update(fd.as_fd()).map_err(|source| {
                XdpError::system(Some(&port.name), "taking the place of the program that was left", source)
            })?;
            port.attachment.set_stays(false);
            port.waits = false;
        }
        let mut sum = StalePrograms::default();
        if !self.left.is_empty() {
            std::thread::sleep(GRACE);
        }
        for tables in std::mem::take(&mut self.left).into_values() {
            sum.programs += 1;
            match tables {
                Some(tables) => tables.add_to(&mut sum),
                None => sum.unread += 1,
            }
        }
        Ok(sum)
    }

    /// Ends the watch before an intended end, which is no failure.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn end_watch(&mut self) -> Result<(), XdpError> {
        for (index, port) in &self.ports {
            self.write_watch(*index, None)
                .map_err(|source| XdpError::system(Some(&port.name), "ending the watch", source))?;
        }
        Ok(())
    }

    /// Ends as intended: all ports are free, also those where an older program still runs.
    pub fn end(mut self) {
        for port in self.ports.values_mut() {
            port.waits = false;
            port.attachment.set_stays(false);
        }
    }

    /// Ends as a kill does: ports that fail open do so until the next program takes over; others are free.
    pub fn leave(mut self) {
        self.ports.values_mut().for_each(Port::leave);
    }

    /// Tests whether frames that arrive by one port leave by another. Frames that the kernel redirects
    /// (generic mode) leave as all that it sends: no test is needed.
    fn prove(&mut self, from: u8, to: u8) -> Result<(), XdpError> {
        // In any mode, the kernel refuses frames beyond the port's MTU, and those to a port that is down.
        self.listen()?;
        if self.ports.get(&from).is_none_or(|from| from.mode == Mode::Generic) {
            return Ok(());
        }
        let Some(target) = self.ports.get(&to) else { return Ok(()) };
        let (name, kind, ifindex) = (target.name.clone(), target.kind.clone(), target.setup.ifindex);
        self.try_port(to, &name, &kind, ifindex)?;
        if let Some(target) = self.ports.get_mut(&to) {
            target.proven = true;
        }
        Ok(())
    }

    /// Starts to receive reports of frames that ports lose.
    fn listen(&mut self) -> Result<(), XdpError> {
        if self.reports.is_none() {
            self.reports = Some(Reports::listen(&mut self.bpf)?);
        }
        Ok(())
    }

    /// Tests whether an interface takes frames redirected by a driver, and starts reports of its losses.
    fn try_port(&mut self, index: u8, name: &str, kind: &str, ifindex: u32) -> Result<(), XdpError> {
        let probe = match self.probe.take() {
            Some(probe) => probe,
            None => RedirectProbe::load()?,
        };
        self.listen()?;
        let probe = self.probe.insert(probe);
        let Some(reports) = &mut self.reports else { return Ok(()) };
        let tried = probe.try_port(name, kind, ifindex);
        // Losses of these test frames are reported as well.
        let lost = probe.take_lost();
        if let Some(place) = self.tables.tried.get(usize::from(index)).filter(|_| reports.knows(index)) {
            place.fetch_add(lost, Ordering::AcqRel);
        }
        reports.name(index, tried?)
    }

    /// Lets no packet leave by a port any more.
    fn close_exit(&mut self, index: u8) {
        self.set_exit_word(index, 0);
        self.closed.remove(&index);
        if let Some(reports) = &mut self.reports {
            reports.forget(index);
        }
    }

    /// Follows ports that lose frames on their way out: the program closes a port whose device gives an
    /// error; this tests such ports again, and returns messages about them. Call it about once a second.
    pub fn follow_losses(&mut self) -> Vec<PortNews> {
        let open = self
            .ports
            .values()
            .filter(|port| port.enabled || self.is_across(port))
            .map(|port| port.setup.index);
        let ways = open.chain(self.only_exits.keys().copied());
        let closed: Vec<u8> = ways.filter(|index| lost::is_closed(&self.exits, *index)).collect();
        let mut news = Vec::new();
        for index in closed {
            let name = match (self.ports.get(&index), self.only_exits.get(&index)) {
                (Some(port), _) => port.name.clone(),
                (None, exit) => {
                    exit.and_then(|exit| query_interface(exit.ifindex).ok()).unwrap_or_default().name
                }
            };
            match self.reopen(index) {
                Ok(()) if self.closed.remove(&index) => news.push(PortNews::Open { name }),
                Ok(()) => {}
                Err(why) => {
                    let lost = self.tables.port_counters(index).unwrap_or_default().lost;
                    if self.closed.insert(index) {
                        news.push(PortNews::Closed { name, lost, why: why.to_string() });
                    }
                }
            }
        }
        news
    }

    /// The interface of a port.
    pub(crate) fn port_name(&self, index: u8) -> Option<&str> {
        self.ports.get(&index).map(|port| port.name.as_str())
    }

    /// Whether packets come to it from the port across its link.
    fn is_across(&self, port: &Port) -> bool {
        self.ports.get(&port.setup.pair).is_some_and(|across| across.enabled)
    }

    /// Lets packets leave by a port again, if it takes them.
    fn reopen(&mut self, index: u8) -> Result<(), XdpError> {
        let (ifindex, by_driver) = match (self.ports.get(&index), self.only_exits.get(&index)) {
            (Some(port), _) => (port.setup.ifindex, port.proven),
            (None, Some(exit)) => (exit.ifindex, self.ports.values().any(|port| port.mode == Mode::Native)),
            (None, None) => return Ok(()),
        };
        let link = query_interface(ifindex)?;
        if !link.is_up() {
            return Err(XdpError::Down { name: link.name });
        }
        if by_driver {
            self.try_port(index, &link.name, &link.kind, ifindex)?;
        }
        self.write_exit_of(index, Exit { ifindex, mtu: link.mtu }, by_driver);
        Ok(())
    }

    /// Whether the program is still on the interface of a port: another user may have removed or replaced it
    /// (`bpftool link detach`, `ip link set dev NAME xdp off`).
    #[must_use]
    pub fn is_attached(&mut self, index: u8) -> bool {
        let own = program(&mut self.bpf).ok().and_then(|program| program.info().ok()).map(|info| info.id());
        let Some(port) = self.ports.get(&index) else { return false };
        // Without an answer of the kernel, nothing has changed.
        let Ok((program, interface)) = port.attachment.numbers() else { return true };
        interface == port.setup.ifindex && (port.waits || own.is_none_or(|own| own == program))
    }

    /// Whether the level handles packets that arrive by a port: both ports of its link are attached and fit.
    #[must_use]
    pub fn is_enabled(&self, index: u8) -> bool {
        self.ports.get(&index).is_some_and(|port| port.enabled)
    }

    /// Detaches the program from a port. The port across the link stays attached, and its frames go up.
    ///
    /// # Errors
    /// There is no such port; the kernel refuses.
    pub fn detach(&mut self, index: u8) -> Result<(), XdpError> {
        let Some(port) = self.ports.remove(&index) else {
            let problem = "it is not attached";
            return Err(XdpError::Port { index, name: String::new(), problem });
        };
        let failed = |source| XdpError::system(Some(&port.name), "detaching", source);
        if let Some(other) = self.ports.get_mut(&port.setup.pair) {
            other.enabled = false;
            let setup = other.setup;
            self.write_port(&setup, None).map_err(failed)?;
        }
        self.close_exit(index);
        let failed = |source| XdpError::system(Some(&port.name), "detaching", source);
        self.by_interface.delete(&port.setup.ifindex.to_ne_bytes()).map_err(failed)?;
        match self.egress.delete(&u32::from(index).to_ne_bytes()) {
            Err(error) if error.raw_os_error() != Some(libc::ENOENT) => return Err(failed(error)),
            _ => {}
        }
        // The older program on it goes on.
        if port.waits { Ok(()) } else { port.attachment.detach().map_err(failed) }
    }

    /// Follows a change of a port's MTU. Frames too long for the port that they would leave by go up.
    ///
    /// # Errors
    /// There is no such port; the kernel refuses.
    pub fn refresh_mtu(&mut self, index: u8) -> Result<(), XdpError> {
        let Some(port) = self.ports.get_mut(&index) else {
            let problem = "it is not attached";
            return Err(XdpError::Port { index, name: String::new(), problem });
        };
        port.mtu = query_interface(port.setup.ifindex)?.mtu;
        // A port that loses frames stays closed until it takes them again.
        if !lost::is_closed(&self.exits, index)
            && let Some(port) = self.ports.get(&index)
        {
            self.write_exit(port);
        }
        Ok(())
    }

    /// Runs the program `repeat` times on a frame that arrives by an interface of this network namespace;
    /// returns its result and time. For tests and measurements: counters count, but no frame is sent.
    ///
    /// # Errors
    /// The kernel refuses: the frame is shorter than an Ethernet header, there is no such interface.
    pub fn run_on(&mut self, frame: &[u8], ifindex: u32, repeat: u32) -> Result<Run, XdpError> {
        self.runner()?.run_on(frame, ifindex, repeat)
    }

    /// A runner for use by several threads at once; each runs the program on its own processor.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn runner(&mut self) -> Result<ProgramRunner, XdpError> {
        let fd = program(&mut self.bpf)?.fd().map_err(|error| not_loaded(NAME, &error))?;
        let fd = fd.as_fd().try_clone_to_owned();
        fd.map(ProgramRunner).map_err(|source| XdpError::system(None, "holding the program", source))
    }
}

/// Runs the program on frames: [`XdpProgram::runner`].
#[derive(Debug)]
pub struct ProgramRunner(OwnedFd);

impl ProgramRunner {
    /// As [`XdpProgram::run_on`].
    ///
    /// # Errors
    /// As there.
    pub fn run_on(&self, frame: &[u8], ifindex: u32, repeat: u32) -> Result<Run, XdpError> {
        sys::test_run(self.0.as_fd(), frame, ifindex, repeat)
            .map_err(|source| XdpError::system(None, "running the program on a frame", source))
    }
}

/// The kernel's description of an interface.
pub(crate) fn query_interface(ifindex: u32) -> Result<XdpInterface, XdpError> {
    XdpInterface::query(ifindex).map_err(|error| match error.raw_os_error() {
        Some(libc::ENODEV) => XdpError::NoSuchInterface { ifindex },
        _ => XdpError::system(None, "asking for an interface", error),
    })
}

/// The early tables, with their counts and the marks.
fn early_tables(bpf: &Ebpf, size: Size, seed: u64) -> Result<EarlyTables, XdpError> {
    let maps =
        [map(bpf, "early", 4, 8)?, map(bpf, "early_counts", 4, EarlyCount::LEN)?, map(bpf, "marks", 4, 8)?];
    EarlyTables::map(&maps, size, seed).map_err(|source| XdpError::system(None, "mapping a table", source))
}

/// A word in the byte order of the program's maps.
fn native(word: [u8; 8]) -> [u8; 8] {
    u64::from_le_bytes(word).to_ne_bytes()
}

/// The number of processors that this machine can have, and of lines that each slot has.
fn processors() -> Result<u32, XdpError> {
    let count = aya::util::nr_cpus();
    let count = count
        .map_err(|(_, source)| XdpError::system(None, "asking how many processors there can be", source))?;
    Ok(u32::try_from(count).unwrap_or(u32::MAX).max(1))
}

fn program(bpf: &mut Ebpf) -> Result<&mut Xdp, XdpError> {
    let missing = || XdpError::Load { program: NAME, problem: "the object has no such program".into() };
    bpf.program_mut(NAME).and_then(|program| program.try_into().ok()).ok_or_else(missing)
}

#[cfg(test)]
mod tests;
