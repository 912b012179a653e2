// SPDX-License-Identifier: Apache-2.0
//! The links during a run: ports of their workers, state of their interfaces, and links that go and come
//! back.
//!
//! A *part* is a unit that goes and comes back: the two interfaces of an inline link, and each interface of a
//! tap. With a single part the end of its interfaces ends the run. With several, the workers of a part whose
//! interface is gone release its ports and keep their flows and counters; when interfaces with the same names
//! are back and up, the part is reopened. The run ends when no part is left.

use crate::crew::{OfLink, Stack};
use crate::error::Failure;
use crate::generation::Built;
use crate::guests::{self, GuestView};
use crate::interfaces::{InterfaceWatch, START_AGAIN};
use crate::plan::{self, LinkPlan, Receive, RunPlan};
use bartizan_base::{LinkId, PacketDuration, Spread};
use bartizan_config::host::{self, NamedPort, Snap, SnapAfter, SnapLayer};
use bartizan_dataplane::driver::{Control, LiveOptions};
use bartizan_dataplane::source::{InlineSource, MergedSource, Slot, Source, TapSource};
use bartizan_packet::DecoderConfig;
use bartizan_ports::{
    AfterHeaders, ExitPort, HeaderLayer, InlineOptions, InlinePair, Interface, MERGE_WAIT, MergedTap,
    OpenError, PacketFilter, PairSide, PassiveOptions, PassivePort, Port, PortError, SnapLength, Timestamps,
    stamps_by_device,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Interval of the checks for interfaces that are gone.
const EVERY: Duration = Duration::from_millis(500);

/// State of a part's ports.
enum LinkMemberState {
    Up,
    /// The workers are releasing them.
    Leaving,
    /// The ports are closed: time of the next attempt to reopen, and the last reported obstacle.
    Gone(Instant, Option<String>),
}

struct WatchedLink {
    plan: LinkPlan,
    number: LinkId,
    /// The spread of flows over the link's workers; the default is one worker, until the ports are opened
    /// with the settings.
    spread: Spread,
    /// Packet filters by interface, if the link has any.
    filters: Vec<PacketFilter>,
    parts: Vec<LinkMember>,
    /// Whether the run has other links.
    several: bool,
    /// Source of a tap's timestamps, and a note for the user about it.
    timestamps: (Timestamps, Option<String>),
    /// UDP ports of tunnels, by the settings in force when the ports are opened.
    tunnels: DecoderConfig,
    /// Ports that packets may be redirected to.
    exits: Vec<NamedPort>,
}

/// A unit that goes and comes back.
struct LinkMember {
    interfaces: InterfaceWatch,
    /// Supply the workers with other sources, or ports, for the part.
    slots: Slots,
    state: LinkMemberState,
}

/// Slots for the replacement of a part, one for each worker; empty if the end of the part ends the run.
enum Slots {
    /// The part is the whole of a worker's source.
    Sources(Vec<Arc<Slot<Box<dyn Source>>>>),
    /// The part is one port of a source.
    Ports(Vec<Arc<Slot<Box<dyn Port>>>>),
}

impl Slots {
    fn new(workers: u16, part_is_source: bool) -> Self {
        if part_is_source {
            Slots::Sources((0..workers).map(|_| Arc::default()).collect())
        } else {
            Slots::Ports((0..workers).map(|_| Arc::default()).collect())
        }
    }

    /// Whether all workers have released the part.
    fn are_left(&self) -> bool {
        match self {
            Slots::Sources(slots) => !slots.is_empty() && slots.iter().all(|slot| slot.is_empty()),
            Slots::Ports(slots) => !slots.is_empty() && slots.iter().all(|slot| slot.is_empty()),
        }
    }

    /// The failure because of which a worker has released the part without a request.
    fn take_failure(&self) -> Option<PortError> {
        match self {
            Slots::Sources(slots) => slots.iter().find_map(|slot| slot.take_failure()),
            Slots::Ports(slots) => slots.iter().find_map(|slot| slot.take_failure()),
        }
    }

    /// Requests that all workers release the part.
    fn clear(&self) {
        match self {
            Slots::Sources(slots) => slots.iter().for_each(|slot| slot.clear()),
            Slots::Ports(slots) => slots.iter().for_each(|slot| slot.clear()),
        }
    }
}

/// The links of a run; see the module.
pub struct Links {
    links: Vec<WatchedLink>,
    /// The reason why no link is left.
    end: Option<String>,
    /// The state of guests, once they are opened.
    guests: Option<Arc<GuestView>>,
}

impl Links {
    /// Links with interfaces that work.
    pub fn new(plan: &RunPlan, interfaces: Vec<Vec<Interface>>) -> Result<Self, Failure> {
        let several = plan.links.len() > 1;
        let exits = &plan.exits;
        let watched = |((plan, interfaces), number): ((&LinkPlan, Vec<Interface>), u16)| {
            let parts = if plan.is_inline() {
                vec![interfaces]
            } else {
                interfaces.into_iter().map(|one| vec![one]).collect()
            };
            let is_source = parts.len() == 1;
            let slots = if several || !is_source { plan.workers } else { 0 };
            let part = |interfaces| LinkMember {
                interfaces: InterfaceWatch::new(interfaces),
                slots: Slots::new(slots, is_source),
                state: LinkMemberState::Up,
            };
            Ok(WatchedLink {
                plan: plan.clone(),
                number: LinkId(number),
                spread: Spread::new([0; 2], 1),
                filters: filters(plan)?,
                parts: parts.into_iter().map(part).collect(),
                several,
                timestamps: timestamps(plan)?,
                tunnels: DecoderConfig::default(),
                exits: exits.clone(),
            })
        };
        let links =
            plan.links.iter().zip(interfaces).zip(0..).map(watched).collect::<Result<_, Failure>>()?;
        Ok(Links { links, end: None, guests: None })
    }

    /// Opens the ports of all links, and combines them with the parts of their workers.
    pub fn open(
        &mut self,
        stacks: Vec<Stack>,
        first: &Built,
        warnings: &mut Vec<String>,
    ) -> Result<Vec<OfLink>, Failure> {
        let plans: Vec<LinkPlan> = self.links.iter().map(|link| link.plan.clone()).collect();
        let mut of_guests = None;
        if let Some(opened) = guests::open(&plans, &first.function_names)? {
            self.guests = Some(opened.view);
            of_guests = Some(opened.source);
        }
        let open = |(link, stack): (&mut WatchedLink, Stack)| {
            if link.plan.is_guest() {
                // The first guest's worker serves all of them.
                let sources = of_guests.take().into_iter().collect();
                let (name, slots, devices) = (link.plan.name.clone(), Vec::new(), Vec::new());
                return Ok(OfLink { name, stack, sources, slots, devices });
            }
            link.spread = stack.settings.spread(link.plan.workers).of_link(link.number);
            link.tunnels = stack.settings.decoder;
            warnings.extend(link.timestamps.1.clone());
            let sources = link.open(warnings).map_err(|error| match link.several {
                true => Failure::input(format!("link `{}`: {error}", link.plan.name)),
                false => Failure::input(error),
            })?;
            let slots = match link.parts.first().map(|part| &part.slots) {
                Some(Slots::Sources(slots)) => slots.clone(),
                _ => Vec::new(),
            };
            Ok(OfLink { name: link.plan.name.clone(), stack, sources, slots, devices: Vec::new() })
        };
        self.links.iter_mut().zip(stacks).map(open).collect()
    }

    /// Messages about changes since the last check. Called often; most calls check nothing. Stops the run
    /// when no link is left.
    pub fn check(&mut self, control: &Control) -> Vec<String> {
        let mut said = Vec::new();
        for link in &mut self.links {
            link.check(control, &mut said);
        }
        let mut parts = self.links.iter().flat_map(|link| &link.parts);
        // Guests have no interfaces that could go.
        if self.end.is_none()
            && self.guests.is_none()
            && parts.all(|part| !matches!(part.state, LinkMemberState::Up))
        {
            let first =
                self.links.iter().flat_map(|l| &l.parts).find_map(|part| part.interfaces.gone_reason());
            self.end = Some(first.unwrap_or_else(|| "no link is left to run on".to_owned()));
            control.stop();
        }
        said
    }

    /// The interfaces of an inline link, while its ports are open.
    pub fn inline_interfaces(&self, name: &str) -> Option<&[Interface]> {
        let link = self.links.iter().find(|link| link.plan.name == name && link.plan.is_inline())?;
        let part = link.parts.first().filter(|part| matches!(part.state, LinkMemberState::Up))?;
        Some(part.interfaces.interfaces())
    }

    /// Links that lack interfaces: whether all, and the reason.
    pub fn away(&self) -> BTreeMap<String, (bool, String)> {
        let of = |link: &WatchedLink| {
            let part = link.parts.iter().find(|part| !matches!(part.state, LinkMemberState::Up))?;
            let told = if let LinkMemberState::Gone(_, told) = &part.state { told.clone() } else { None };
            let why = told.or_else(|| part.interfaces.gone_reason());
            let all = link.parts.iter().all(|part| !matches!(part.state, LinkMemberState::Up));
            Some((link.plan.name.clone(), (all, why.unwrap_or_else(|| "an interface is gone".to_owned()))))
        };
        self.links.iter().filter_map(of).collect()
    }

    /// The state of guests, if the run has any and they are opened.
    pub fn guests(&self) -> Option<Arc<GuestView>> {
        self.guests.clone()
    }

    /// The reason why the run cannot continue, if no link is left.
    pub fn end(&self) -> Option<String> {
        self.end.clone()
    }
}

impl WatchedLink {
    fn check(&mut self, control: &Control, messages: &mut Vec<String>) {
        for at in 0..self.parts.len() {
            let which = self.which(at);
            let Some(part) = self.parts.get_mut(at) else { continue };
            match &part.state {
                LinkMemberState::Up => part.check(which.as_deref(), messages),
                LinkMemberState::Leaving => {
                    if part.slots.are_left() {
                        part.state = LinkMemberState::Gone(Instant::now(), None);
                    }
                }
                LinkMemberState::Gone(next, _) if Instant::now() < *next || control.stopping() => {}
                LinkMemberState::Gone(_, told) => {
                    let told = told.clone();
                    self.reopen(at, told, messages);
                }
            }
        }
    }

    /// The name of a part in messages where there are several: a link, or an interface of one.
    fn which(&self, at: usize) -> Option<String> {
        let name = self.plan.ports.interfaces().get(at).filter(|_| self.parts.len() > 1).copied();
        match (self.several, name) {
            (true, Some(name)) => Some(format!("interface `{name}` of link `{}`", self.plan.name)),
            (true, None) => Some(format!("link `{}`", self.plan.name)),
            (false, Some(name)) => Some(format!("interface `{name}`")),
            (false, None) => None,
        }
    }

    /// Reopens a part, if that is possible by now.
    fn reopen(&mut self, at: usize, reported: Option<String>, messages: &mut Vec<String>) {
        let which = self.which(at).unwrap_or_default();
        let taken_up = self.reopen_ports(at);
        let Some(part) = self.parts.get_mut(at) else { return };
        part.state = match taken_up {
            Ok(()) => {
                messages.push(format!("note: {which} is in use again"));
                LinkMemberState::Up
            }
            Err(why) => {
                if let Some(why) = why.clone().filter(|why| Some(why) != reported.as_ref()) {
                    messages.push(format!("warning: {which} is not in use again yet: {why}"));
                }
                LinkMemberState::Gone(Instant::now() + EVERY, why.or(reported))
            }
        };
    }

    /// Opens ports in place of closed ones. The error: the obstacle, `None` if interfaces merely do not
    /// exist.
    fn reopen_ports(&mut self, at: usize) -> Result<(), Option<String>> {
        let look_up = |name: &&str| match Interface::lookup(name) {
            Err(bartizan_ports::OpenError::NoSuchInterface { .. }) => Err(None),
            other => other.map_err(|error| Some(error.to_string())),
        };
        let names = self.plan.ports.interfaces();
        let names =
            if self.plan.is_inline() { names.as_slice() } else { names.get(at..=at).unwrap_or_default() };
        let interfaces = names.iter().map(look_up).collect::<Result<Vec<_>, _>>()?;
        for name in names.iter().filter(|_| self.parts.len() > 1 && self.timestamps.0 == Timestamps::Auto) {
            // The other interfaces have their devices' timestamps, which cannot be mixed with the kernel's.
            stamps_by_device(name).map_err(|error| Some(error.to_string()))?.map_err(|why| {
                Some(format!("the other interfaces have hardware timestamps, and interface `{name}` provides none: {why}"))
            })?;
        }
        // Notes about these interfaces were given at the start of the run.
        let mut known = Vec::new();
        let failed = |error: OpenError| Some(error.to_string());
        let part_is_source = self.parts.get(at).is_none_or(|part| matches!(part.slots, Slots::Sources(_)));
        let (sources, ports) = match part_is_source {
            true => (self.open(&mut known).map_err(failed)?, Vec::new()),
            false => (Vec::new(), self.open_tap(at, &mut known).map_err(failed)?),
        };
        if let Some(part) = self.parts.get_mut(at) {
            part.interfaces = InterfaceWatch::new(interfaces);
            match &part.slots {
                Slots::Sources(slots) => slots.iter().zip(sources).for_each(|(slot, one)| slot.offer(one)),
                Slots::Ports(slots) => slots.iter().zip(ports).for_each(|(slot, one)| slot.offer(one)),
            }
        }
        Ok(())
    }

    /// Adds a worker's own named ports to its pair of ports.
    fn with_exits(&self, mut pair: InlinePair) -> Result<InlinePair, OpenError> {
        let of_link = pair.port(PairSide::A);
        let (name, mtu) = (of_link.name().to_owned(), of_link.mtu());
        let open = |port: &NamedPort| {
            let exit = ExitPort::open(&port.interface, &InlineOptions::default())?;
            if exit.mtu() < mtu {
                let (a, b) = (name.clone(), port.interface.clone());
                return Err(OpenError::MtuMismatch { a, mtu_a: mtu, b, mtu_b: exit.mtu() });
            }
            Ok(Box::new(exit) as Box<dyn Port>)
        };
        let exits = self.exits.iter().map(open).collect::<Result<_, OpenError>>()?;
        Ok(pair.with_exits(exits))
    }

    /// Opens a source for each worker.
    fn open(&self, warnings: &mut Vec<String>) -> Result<Vec<Box<dyn Source>>, OpenError> {
        match &self.plan.ports {
            plan::LinkPorts::Inline { a, b, fix_offloads } => {
                let usual = InlineOptions::default();
                let frames = self.plan.receive.frames.map_or(usual.frames, |frames| frames as usize);
                let for_level = !self.plan.levels.is_empty();
                let options = InlineOptions { fix_offloads: *fix_offloads, for_level, frames, ..usual };
                let (pairs, more) = InlinePair::open_group(a, b, &options, &self.spread, false)?;
                warnings.extend(more.iter().map(ToString::to_string));
                let source = |pair| -> Result<Box<dyn Source>, OpenError> {
                    Ok(Box::new(InlineSource::new(self.with_exits(pair)?)))
                };
                pairs.into_iter().map(source).collect()
            }
            plan::LinkPorts::Guest(_) => Ok(Vec::new()),
            plan::LinkPorts::Tap { interfaces, .. } => {
                let opened = (0..interfaces.len()).map(|at| self.open_tap(at, warnings));
                let mut of_interfaces: Vec<_> =
                    opened.map(|ports| Ok(ports?.into_iter())).collect::<Result<_, OpenError>>()?;
                if let [one] = of_interfaces.as_mut_slice() {
                    let source = |port| -> Box<dyn Source> { Box::new(TapSource::new(port)) };
                    return Ok(one.map(source).collect());
                }
                let receive = &self.plan.receive;
                let of_worker = |worker: usize| -> Box<dyn Source> {
                    let ports = of_interfaces.iter_mut().filter_map(Iterator::next).collect();
                    let wait = receive.merge_wait.map_or(MERGE_WAIT, |ms| Duration::from_millis(ms.into()));
                    let wait = PacketDuration::from_nanos(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX));
                    let tap = MergedTap::new(ports, wait, LiveOptions::default().batch, window(receive));
                    let of_part = |part: &LinkMember| match &part.slots {
                        Slots::Ports(slots) => slots.get(worker).cloned(),
                        Slots::Sources(_) => None,
                    };
                    Box::new(MergedSource::new(tap, self.parts.iter().filter_map(of_part).collect()))
                };
                Ok((0..usize::from(self.plan.workers)).map(of_worker).collect())
            }
        }
    }

    /// Opens ports of one of a tap's interfaces, for each worker.
    fn open_tap(&self, at: usize, warnings: &mut Vec<String>) -> Result<Vec<Box<dyn Port>>, OpenError> {
        let plan::LinkPorts::Tap { interfaces, fix_offloads } = &self.plan.ports else {
            return Ok(Vec::new());
        };
        let Some(interface) = interfaces.get(at) else { return Ok(Vec::new()) };
        let (usual, wanted) = (PassiveOptions::default(), &self.plan.receive);
        let ring =
            wanted.ring.map(|bytes| PassiveOptions::blocks_of(usize::try_from(bytes).unwrap_or(usize::MAX)));
        let (block_size, blocks) = ring.unwrap_or((usual.block_size, usual.blocks));
        let options = PassiveOptions {
            fix_offloads: *fix_offloads,
            filter: self.filters.get(at),
            snap_length: wanted.snap_length.map(|snap| snap_length(snap, self.tunnels)),
            block_size,
            blocks,
            timestamps: self.timestamps.0,
            // The second copy of a pair may arrive at another interface: the merged tap searches for it.
            duplicate_window: window(wanted).filter(|_| interfaces.len() == 1),
            ..usual
        };
        let ports = PassivePort::open_group(interface, &options, &self.spread)?;
        let first = ports.first().into_iter().flat_map(PassivePort::warnings);
        warnings.extend(first.map(ToString::to_string));
        Ok(ports.into_iter().map(|port| Box::new(port) as Box<dyn Port>).collect())
    }
}

impl LinkMember {
    /// Checks the interfaces. `which`: the name of the part, where there are several.
    fn check(&mut self, which: Option<&str>, messages: &mut Vec<String>) {
        let with_link = |text: String| match (text.split_once(": "), which) {
            (Some((kind, rest)), Some(which)) if which.starts_with("link") => {
                format!("{kind}: {which}: {rest}")
            }
            _ => text,
        };
        messages.extend(self.interfaces.check().into_iter().map(with_link));
        let failure = self.slots.take_failure();
        let why = failure.map(failure_message).or_else(|| self.interfaces.gone_reason());
        let Some(why) = why else { return };
        self.state = LinkMemberState::Leaving;
        let Some(which) = which else { return };
        let why = why.strip_suffix(START_AGAIN).unwrap_or(&why);
        messages.push(format!(
            "warning: {which}: {why}; it carries no packets until it exists and is up again; other links continue"
        ));
        self.slots.clear();
    }
}

fn failure_message(error: PortError) -> String {
    match error {
        PortError::Gone { name } => crate::interfaces::gone_message(&name),
        other => other.to_string(),
    }
}

/// The source of a tap's timestamps. Packets of several interfaces are ordered by timestamp, so all have the
/// same source.
fn timestamps(plan: &LinkPlan) -> Result<(Timestamps, Option<String>), Failure> {
    let wanted = match plan.receive.timestamps {
        host::TimestampSource::Software => Timestamps::Software,
        host::TimestampSource::Auto => Timestamps::Auto,
        host::TimestampSource::Hardware => Timestamps::Hardware,
    };
    let interfaces = plan.ports.interfaces();
    if wanted != Timestamps::Auto || interfaces.len() < 2 {
        return Ok((wanted, None));
    }
    for name in interfaces {
        if let Err(why) = stamps_by_device(name).map_err(Failure::input)? {
            let said = format!(
                "link `{}` uses software timestamps on all its interfaces, since interface `{name}` has no hardware timestamps: {why} (`ethtool -T {name}` shows its capabilities)",
                plan.name
            );
            return Ok((Timestamps::Software, Some(said)));
        }
    }
    Ok((wanted, None))
}

/// The time within which second copies of frames are searched for.
fn window(receive: &Receive) -> Option<PacketDuration> {
    receive.duplicate_window.map(|ms| PacketDuration::from_millis(ms.into()))
}

/// A snap length in the form of ports.
fn snap_length(snap: Snap, tunnels: DecoderConfig) -> SnapLength {
    let SnapAfter { after, bytes, max } = match snap {
        Snap::Frame(bytes) => return SnapLength::Frame(bytes),
        Snap::After(after) => after,
    };
    let layer = match after {
        SnapLayer::Layer2 => HeaderLayer::Link,
        SnapLayer::Layer3 => HeaderLayer::Network,
        SnapLayer::Layer4 => HeaderLayer::Transport,
    };
    SnapLength::Headers(AfterHeaders { layer, bytes, max, tunnels })
}

/// A link's packet filter, compiled for each interface.
fn filters(plan: &LinkPlan) -> Result<Vec<PacketFilter>, Failure> {
    let (plan::LinkPorts::Tap { interfaces, .. }, Some(wanted)) = (&plan.ports, &plan.filter) else {
        return Ok(Vec::new());
    };
    let compile = |interface: &String| PacketFilter::compile_for(&wanted.expression, interface);
    let compiled = interfaces.iter().map(compile).collect::<Result<_, _>>();
    compiled.map_err(|error| Failure::input(format!("{}: {error}", wanted.place)))
}
