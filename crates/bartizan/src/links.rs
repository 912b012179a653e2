// SPDX-License-Identifier: Apache-2.0
//! The links of a run while it goes on: ports for their workers, what becomes of their interfaces, and links that go and come back.
//!
//! With one link the end of an interface is the end of the run. With several the others go on: the workers of a link whose interface is gone let
//! go of its ports and keep their flows and counters; when interfaces of the same names are there again and up, the link is taken up again.
//! The run ends when no link is left.

use crate::crew::{OfLink, Stack};
use crate::error::Failure;
use crate::interfaces::{InterfaceWatch, START_AGAIN};
use crate::plan::{self, LinkPlan, Plan};
use bartizan_base::{PacketDuration, Spread};
use bartizan_dataplane::live::Control;
use bartizan_dataplane::live::together::{Berth, Ports};
use bartizan_ports::{
    InlineOptions, InlinePair, Interface, PacketFilter, PassiveOptions, PassivePort, PortError,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a link that is gone is looked for.
const EVERY: Duration = Duration::from_millis(500);

/// Whether a link has its ports.
enum State {
    Up,
    /// Its workers let go of them.
    Leaving,
    /// It has none; when it is looked for again, and what was said of that last.
    Gone(Instant, Option<String>),
}

struct Watched {
    plan: LinkPlan,
    spread: Spread,
    filter: Option<PacketFilter>,
    interfaces: InterfaceWatch,
    /// None where the end of the link is the end of the run.
    berths: Vec<Arc<Berth>>,
    state: State,
}

/// See the module.
pub struct Links {
    links: Vec<Watched>,
    /// Why no link is left.
    end: Option<String>,
}

impl Links {
    /// Of interfaces that work. `seed` is that of the workers' hash.
    pub fn new(plan: &Plan, interfaces: Vec<Vec<Interface>>, seed: [u64; 2]) -> Result<Self, Failure> {
        let several = plan.links.len() > 1;
        let watched = |(plan, interfaces): (&LinkPlan, Vec<Interface>)| {
            let berths = if several { plan.workers } else { 0 };
            Ok(Watched {
                plan: plan.clone(),
                spread: Spread::new(seed, plan.workers),
                filter: filter(plan)?,
                interfaces: InterfaceWatch::new(interfaces),
                berths: (0..berths).map(|_| Arc::default()).collect(),
                state: State::Up,
            })
        };
        let links = plan.links.iter().zip(interfaces).map(watched).collect::<Result<_, Failure>>()?;
        Ok(Links { links, end: None })
    }

    /// Opens the ports of all links, and puts them together with what makes the workers of each.
    pub fn open(&self, stacks: Vec<Stack>, warnings: &mut Vec<String>) -> Result<Vec<OfLink>, Failure> {
        let several = self.links.len() > 1;
        let open = |(link, stack): (&Watched, Stack)| {
            let ports =
                open(&link.plan, &link.spread, link.filter.as_ref(), warnings).map_err(
                    |error| match several {
                        true => Failure::input(format!("link `{}`: {error}", link.plan.name)),
                        false => Failure::input(error),
                    },
                )?;
            Ok(OfLink { name: link.plan.name.clone(), stack, ports, berths: link.berths.clone() })
        };
        self.links.iter().zip(stacks).map(open).collect()
    }

    /// What has changed since the last look, for people. To be called often; most calls look at nothing. Stops the run when no
    /// link is left.
    pub fn look(&mut self, control: &Control) -> Vec<String> {
        let mut said = Vec::new();
        for link in &mut self.links {
            link.look(control, &mut said);
        }
        if self.end.is_none() && self.links.iter().all(|link| !matches!(link.state, State::Up)) {
            let first = self.links.iter().find_map(|link| link.interfaces.gone());
            self.end = Some(first.unwrap_or_else(|| "no link is left to run on".to_owned()));
            control.stop();
        }
        said
    }

    /// Why the run cannot go on, if no link is left.
    pub fn end(&self) -> Option<String> {
        self.end.clone()
    }
}

impl Watched {
    fn look(&mut self, control: &Control, said: &mut Vec<String>) {
        match &self.state {
            State::Up => {
                said.extend(self.interfaces.look().into_iter().map(|text| self.of_link(text)));
                let failure = self.berths.iter().find_map(|berth| berth.take_failure());
                let why = failure.map(|error| self.gone(error)).or_else(|| self.interfaces.gone());
                let Some(why) = why else { return };
                self.state = State::Leaving;
                if self.berths.is_empty() {
                    return;
                }
                let why = why.strip_suffix(START_AGAIN).unwrap_or(&why);
                said.push(format!(
                    "warning: link `{}`: {why}; nothing passes by this link until it is there and up again, the other links go on",
                    self.plan.name
                ));
                self.berths.iter().for_each(|berth| berth.clear());
            }
            State::Leaving => {
                if !self.berths.is_empty() && self.berths.iter().all(|berth| berth.is_empty()) {
                    self.state = State::Gone(Instant::now(), None);
                }
            }
            State::Gone(next, _) if Instant::now() < *next || control.stopping() => {}
            State::Gone(_, told) => {
                let told = told.clone();
                self.come_back(told, said);
            }
        }
    }

    /// Takes the link up again, if that is possible now.
    fn come_back(&mut self, told: Option<String>, said: &mut Vec<String>) {
        match self.take_up() {
            Ok(()) => {
                said.push(format!("note: link `{}` is taken up again", self.plan.name));
                self.state = State::Up;
            }
            Err(why) => {
                if let Some(why) = why.clone().filter(|why| Some(why) != told.as_ref()) {
                    said.push(format!("warning: link `{}` is not taken up again yet: {why}", self.plan.name));
                }
                self.state = State::Gone(Instant::now() + EVERY, why.or(told));
            }
        }
    }

    /// Text of one of several links.
    fn of_link(&self, text: String) -> String {
        match text.split_once(": ") {
            Some((kind, rest)) if !self.berths.is_empty() => {
                format!("{kind}: link `{}`: {rest}", self.plan.name)
            }
            _ => text,
        }
    }

    fn gone(&self, error: PortError) -> String {
        match error {
            PortError::Gone { name } => crate::interfaces::gone(&name),
            other => other.to_string(),
        }
    }

    /// Opens ports in the place of those that are gone. The error: why not, unless interfaces are just not there.
    fn take_up(&mut self) -> Result<(), Option<String>> {
        let look_up = |name: &&str| match Interface::look_up(name) {
            Err(bartizan_ports::OpenError::NoSuchInterface { .. }) => Err(None),
            other => other.map_err(|error| Some(error.to_string())),
        };
        let interfaces = self.plan.ports.interfaces().iter().map(look_up).collect::<Result<Vec<_>, _>>()?;
        // What is to be known of these interfaces was said when the run began.
        let ports = open(&self.plan, &self.spread, self.filter.as_ref(), &mut Vec::new())
            .map_err(|e| Some(e.to_string()))?;
        self.interfaces = InterfaceWatch::new(interfaces);
        self.berths.iter().zip(ports).for_each(|(berth, ports)| berth.offer(ports));
        Ok(())
    }
}

/// What a link's packet filter is compiled to.
fn filter(plan: &LinkPlan) -> Result<Option<PacketFilter>, Failure> {
    let (plan::Ports::Tap { interface, .. }, Some(wanted)) = (&plan.ports, &plan.filter) else {
        return Ok(None);
    };
    let compiled = PacketFilter::compile_for(&wanted.expression, interface);
    compiled.map(Some).map_err(|error| Failure::input(format!("{}: {error}", wanted.place)))
}

/// Ports for each worker of a link.
fn open(
    link: &LinkPlan,
    spread: &Spread,
    filter: Option<&PacketFilter>,
    warnings: &mut Vec<String>,
) -> Result<Vec<Ports>, bartizan_ports::OpenError> {
    match &link.ports {
        plan::Ports::Inline { a, b, fix_offloads } => {
            let usual = InlineOptions::default();
            let frames = link.receive.frames.map_or(usual.frames, |frames| frames as usize);
            let options = InlineOptions { fix_offloads: *fix_offloads, frames, ..usual };
            let (pairs, more) = InlinePair::open_group(a, b, &options, spread, false)?;
            warnings.extend(more.iter().map(ToString::to_string));
            Ok(pairs.into_iter().map(Ports::Inline).collect())
        }
        plan::Ports::Tap { interface, fix_offloads } => {
            let (usual, wanted) = (PassiveOptions::default(), &link.receive);
            let blocks =
                wanted.ring.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX) / usual.block_size);
            let options = PassiveOptions {
                fix_offloads: *fix_offloads,
                filter,
                blocks: blocks.unwrap_or(usual.blocks),
                duplicate_window: wanted.duplicate_window.map(|ms| PacketDuration::from_millis(ms.into())),
                ..usual
            };
            let ports = PassivePort::open_group(interface, &options, spread)?;
            let first = ports.first().into_iter().flat_map(PassivePort::warnings);
            warnings.extend(first.map(ToString::to_string));
            Ok(ports.into_iter().map(|port| Ports::Passive(Box::new(port))).collect())
        }
    }
}
