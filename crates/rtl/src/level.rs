// SPDX-License-Identifier: Apache-2.0
//! The SmartNIC as a kind of level below the host: its logic as a model in this process, which the frames of
//! a link pass before its workers see them.
//!
//! The model's classifier is empty, so frames without an entry in the flow cache go up, as they do at the XDP
//! level. All links of a process share one card; a frame of one is in it at a time.
//!
//! Refused by name: links that fail open (the card ends with the process, and nothing forwards then), links
//! whose keys differ in what they have, decoders that look for tunnels on more ports than the logic compares.
//! Not done: rules without a flow, samples of dropped packets, named ports, state that outlives a process.

use crate::card::{Card, CardState};
use crate::device::SmartNicDevice;
use crate::driver::DriverError;
use crate::model::Configuration;
use crate::registers::FrameDisposition;
use crate::simulation::{FrameOut, Simulation};
use bartizan_base::{Generation, Timestamp};
use bartizan_offload::Device;
use bartizan_offload::level::{
    AttachedPort, DeviceSetup, Fail, FramePassage, FramePath, LeftOn, LevelDriver, LevelError, LevelFault,
    LevelOptions, LevelView, OpenLevel, PortCounters, PortSetup, PortSide,
};
use bartizan_packet::sizes::size_class;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Layers that the logic reads, as the host's decoder counts them: Ethernet, two tags, IP, VXLAN, Ethernet,
/// IP.
const LAYERS: u8 = 7;

/// The driver of the level `rtl`.
#[derive(Clone, Copy, Debug, Default)]
pub struct SmartNicDriver;

/// The reason why the SmartNIC cannot serve as a level.
#[derive(Debug, thiserror::Error)]
pub enum SmartNicError {
    /// See [`DriverError`].
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// A link that fails open.
    #[error(
        "the model of the SmartNIC ends with this program, so its links cannot fail open: set `fail: closed` in `offload`"
    )]
    FailsOpen,
    /// Links with different keys.
    #[error(
        "the SmartNIC has one kind of keys for all links, and these differ in VLAN ids or sides: give all links the same `vlan.use-for-tracking`"
    )]
    Keys,
    /// A link beyond the key's field.
    #[error(
        "link {0} is beyond the 64 links of the SmartNIC's ports: give it no `offload`, or run it elsewhere"
    )]
    Link(u16),
}

impl LevelFault for SmartNicError {
    fn explain(self: Box<Self>) -> String {
        self.to_string()
    }
}

impl From<SmartNicError> for LevelError {
    fn from(error: SmartNicError) -> Self {
        LevelError::new(error)
    }
}

impl LevelDriver for SmartNicDriver {
    fn name(&self) -> &'static str {
        "rtl"
    }

    fn title(&self) -> &'static str {
        "SmartNIC"
    }

    fn reads_tunnels(&self, max_layers: u8) -> bool {
        max_layers > LAYERS
    }

    fn open(&self, options: &LevelOptions) -> Result<Box<dyn OpenLevel>, LevelError> {
        let LevelOptions { tunnels, seed, .. } = *options;
        let make = move || Simulation::new(Configuration::Middle, seed as u32);
        let card = Card::start(make, seed).map_err(SmartNicError::from)?;
        card.with(move |state| {
            state.driver.set_tunnels(&tunnels)?;
            state.driver.enable(true)
        })
        .map_err(SmartNicError::from)?;
        let state = Arc::new(SmartNicState { card, ports: Mutex::default(), generation: AtomicU64::new(0) });
        Ok(Box::new(SmartNic { state, keys: None }))
    }

    fn left(&self) -> Result<Vec<LeftOn>, LevelError> {
        Ok(Vec::new())
    }

    fn left_place(&self) -> &'static str {
        "nowhere: the model ends with its process"
    }

    fn remove_left(&self, _: u32) -> Result<bool, LevelError> {
        Ok(false)
    }
}

/// A port, with its counters.
#[derive(Clone, Copy, Debug)]
struct SmartNicPort {
    pair: u8,
    attached: bool,
    counters: PortCounters,
}

/// The part that threads share.
struct SmartNicState {
    card: Card<Simulation>,
    ports: Mutex<BTreeMap<u8, SmartNicPort>>,
    generation: AtomicU64,
}

impl fmt::Debug for SmartNicState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SmartNicState").field("ports", &self.ports()).finish_non_exhaustive()
    }
}

impl SmartNicState {
    fn ports(&self) -> MutexGuard<'_, BTreeMap<u8, SmartNicPort>> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether both ports of a link are attached.
    fn serves(&self, index: u8) -> bool {
        let ports = self.ports();
        let is_there = |index: u8| ports.get(&index).filter(|port| port.attached);
        is_there(index).is_some_and(|port| is_there(port.pair).is_some())
    }

    fn count(&self, index: u8, frame: &[u8], passage: FramePassage) {
        let bytes = frame.len() as u64;
        let mut ports = self.ports();
        let Some(SmartNicPort { counters, .. }) = ports.get_mut(&index) else { return };
        let (frames, of_bytes) = match passage {
            FramePassage::Up => (&mut counters.up, &mut counters.up_bytes),
            FramePassage::Leaves(_) => (&mut counters.forwarded, &mut counters.forwarded_bytes),
            FramePassage::Dropped => (&mut counters.dropped, &mut counters.dropped_bytes),
        };
        (*frames, *of_bytes) = (*frames + 1, *of_bytes + bytes);
        counters.frames += 1;
        if let Some(size) = counters.sizes.get_mut(size_class(frame.len())) {
            *size += 1;
        }
        match frame {
            [255, 255, 255, 255, 255, 255, ..] => counters.broadcast += 1,
            [first, ..] if first & 1 != 0 => counters.multicast += 1,
            _ => {}
        }
        if let FramePassage::Leaves(out) = passage
            && let Some(SmartNicPort { counters, .. }) = ports.get_mut(&out)
        {
            counters.out += 1;
            counters.out_bytes += bytes;
        }
    }
}

impl FramePath for SmartNicState {
    /// A card that does not answer lets everything up.
    fn pass(&self, index: u8, frame: &[u8], now: Timestamp) -> FramePassage {
        if !self.serves(index) {
            return FramePassage::Up;
        }
        let bytes = frame.to_vec();
        let passed = self.card.with(move |state| {
            let simulation = state.driver.bus();
            simulation.set_clock(now.as_nanos());
            Ok(simulation.pass(index, &bytes)?)
        });
        let passage = match passed {
            Ok(Some(FrameOut::ToPort { egress, .. })) => FramePassage::Leaves(egress),
            Ok(None) => FramePassage::Dropped,
            Ok(Some(FrameOut::ToCpu { .. })) | Err(_) => FramePassage::Up,
        };
        self.count(index, frame, passage);
        passage
    }
}

impl LevelView for SmartNicState {
    fn port_counters(&self, index: u8) -> Option<PortCounters> {
        self.ports().get(&index).map(|port| port.counters)
    }

    fn generation(&self) -> Generation {
        Generation(self.generation.load(Ordering::Relaxed))
    }

    fn silence(&self, _: u32) -> Option<Duration> {
        Some(Duration::ZERO)
    }

    fn more(&self) -> Vec<(&'static str, u64)> {
        let ends = |state: &mut CardState<Simulation>| {
            let mut counts = vec![("cycles", state.driver.bus().cycle())];
            for end in FrameDisposition::ALL {
                counts.push((end.name(), state.driver.disposition(*end)?));
            }
            Ok(counts)
        };
        self.card.with(ends).unwrap_or_default()
    }
}

/// An open card.
struct SmartNic {
    state: Arc<SmartNicState>,
    /// Whether keys have sides and VLAN ids, once a port is attached.
    keys: Option<[bool; 2]>,
}

impl OpenLevel for SmartNic {
    fn check(&mut self, _: &[u32]) -> Result<(), LevelError> {
        Ok(())
    }

    fn attach(&mut self, port: &PortSetup) -> Result<AttachedPort, LevelError> {
        if port.watch.is_some_and(|watch| watch.fail == Fail::Open) {
            return Err(SmartNicError::FailsOpen.into());
        }
        if port.link.0 > 63 || u16::from(port.index) / 2 != port.link.0 {
            return Err(SmartNicError::Link(port.link.0).into());
        }
        let keys = [port.side != PortSide::Unknown, port.vlans_in_key];
        if *self.keys.get_or_insert(keys) != keys {
            return Err(SmartNicError::Keys.into());
        }
        let set = move |state: &mut CardState<Simulation>| state.driver.set_flow_keys(keys[0], keys[1]);
        self.state.card.with(set).map_err(SmartNicError::from)?;
        let mut ports = self.state.ports();
        let counters = ports.get(&port.index).map(|port| port.counters).unwrap_or_default();
        ports.insert(port.index, SmartNicPort { pair: port.pair, attached: true, counters });
        let note = "the SmartNIC is a model of its logic in this program: frames pass it one at a time, at some thousands a second";
        Ok(AttachedPort { waits: false, note: (port.index == 0).then(|| note.to_owned()) })
    }

    fn detach(&mut self, index: u8) {
        if let Some(port) = self.state.ports().get_mut(&index) {
            port.attached = false;
        }
    }

    fn is_attached(&mut self, index: u8) -> bool {
        self.state.ports().get(&index).is_some_and(|port| port.attached)
    }

    fn refresh_mtu(&mut self, _: u8) {}

    fn set_exit(&mut self, _: u8, _: u32) -> Result<(), LevelError> {
        // No flow is redirected below: the device says that it leads to no named port.
        Ok(())
    }

    fn clear_exit(&mut self, _: u8) {}

    fn enter_generation(&mut self, generation: Generation) {
        self.state.generation.store(generation.0, Ordering::Relaxed);
        let low = generation.0 as u8;
        // A card that does not answer handles nothing.
        let _ = self.state.card.with(move |state| state.driver.set_generation(low));
    }

    fn device(&self, setup: DeviceSetup) -> Box<dyn Device> {
        let vlans = self.keys.is_some_and(|[_, vlans]| vlans);
        let device = SmartNicDevice::new(self.state.card.clone(), setup.entries, vlans);
        Box::new(device.with_tunnels(SmartNicDriver.reads_tunnels(setup.max_layers)))
    }

    fn frame_path(&self) -> Option<Arc<dyn FramePath>> {
        Some(Arc::clone(&self.state) as Arc<dyn FramePath>)
    }

    fn view(&self) -> Arc<dyn LevelView> {
        Arc::clone(&self.state) as Arc<dyn LevelView>
    }

    fn end_watch(&mut self) {}

    fn end(self: Box<Self>) {}

    fn leave(self: Box<Self>) {}
}
