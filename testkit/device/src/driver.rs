// SPDX-License-Identifier: Apache-2.0
//! A kind of level whose devices are mocks: it records requests, and handles no packets by itself.

use crate::{Habits, MockDevice, MockWire};
use bartizan_base::{Generation, Level};
use bartizan_offload::Device;
use bartizan_offload::level::{
    AttachedPort, DeviceSetup, LeftOn, LevelDriver, LevelError, LevelOptions, LevelView, OpenLevel,
    PortCounters, PortSetup,
};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The requests that a level got.
#[derive(Debug, Default)]
pub struct MockLevelState {
    /// The options that it was opened with.
    pub options: Option<LevelOptions>,
    /// Ports that are attached.
    pub ports: BTreeMap<u8, PortSetup>,
    /// Ports that were attached at any time.
    pub attached: Vec<PortSetup>,
    /// Interfaces that redirected packets may leave by.
    pub exits: BTreeMap<u8, u32>,
    /// The devices that it made.
    pub devices: Vec<DeviceSetup>,
    /// The generation whose entries act.
    pub generation: u64,
    /// The watch was ended.
    pub watch_ended: bool,
    /// The way it ended: `Some(true)`: attachments that fail open would have stayed.
    pub ended: Option<bool>,
}

/// The driver of levels of one name, `mock` by default. All of its levels share one state.
#[derive(Clone)]
pub struct MockDriver {
    name: &'static str,
    level: Level,
    state: Arc<Mutex<MockLevelState>>,
    wires: Arc<Mutex<Vec<MockWire>>>,
}

impl Default for MockDriver {
    fn default() -> Self {
        Self::named("mock", Level::Rtl)
    }
}

impl fmt::Debug for MockDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state().fmt(f)
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MockDriver {
    /// A driver whose levels have this name, and whose devices are of this level.
    #[must_use]
    pub fn named(name: &'static str, level: Level) -> Self {
        MockDriver { name, level, state: Arc::default(), wires: Arc::default() }
    }

    /// The requests so far.
    pub fn state(&self) -> MutexGuard<'_, MockLevelState> {
        lock(&self.state)
    }

    /// The number of entries of all devices.
    #[must_use]
    pub fn entries(&self) -> usize {
        lock(&self.wires).iter().map(MockWire::entries).sum()
    }
}

impl LevelDriver for MockDriver {
    fn name(&self) -> &'static str {
        self.name
    }

    fn title(&self) -> &'static str {
        self.name
    }

    fn reads_tunnels(&self, _: u8) -> bool {
        true
    }

    fn open(&self, options: &LevelOptions) -> Result<Box<dyn OpenLevel>, LevelError> {
        self.state().options = Some(*options);
        Ok(Box::new(MockLevel(self.clone())))
    }

    fn left(&self) -> Result<Vec<LeftOn>, LevelError> {
        Ok(Vec::new())
    }

    fn left_place(&self) -> &'static str {
        "nowhere"
    }

    fn remove_left(&self, _: u32) -> Result<bool, LevelError> {
        Ok(false)
    }
}

struct MockLevel(MockDriver);

impl OpenLevel for MockLevel {
    fn check(&mut self, _: &[u32]) -> Result<(), LevelError> {
        Ok(())
    }

    fn attach(&mut self, port: &PortSetup) -> Result<AttachedPort, LevelError> {
        let mut state = self.0.state();
        state.ports.insert(port.index, *port);
        state.attached.push(*port);
        Ok(AttachedPort { waits: false, note: None })
    }

    fn detach(&mut self, index: u8) {
        self.0.state().ports.remove(&index);
    }

    fn is_attached(&mut self, index: u8) -> bool {
        self.0.state().ports.contains_key(&index)
    }

    fn refresh_mtu(&mut self, _: u8) {}

    fn set_exit(&mut self, index: u8, ifindex: u32) -> Result<(), LevelError> {
        self.0.state().exits.insert(index, ifindex);
        Ok(())
    }

    fn clear_exit(&mut self, index: u8) {
        self.0.state().exits.remove(&index);
    }

    fn enter_generation(&mut self, generation: Generation) {
        self.0.state().generation = generation.0;
    }

    fn device(&self, setup: DeviceSetup) -> Box<dyn Device> {
        let (entries, level) = (setup.entries, self.0.level);
        let (device, wire) = MockDevice::new(Habits { entries, level, ..Habits::default() });
        lock(&self.0.wires).push(wire);
        self.0.state().devices.push(setup);
        Box::new(device)
    }

    fn view(&self) -> Arc<dyn LevelView> {
        Arc::new(self.0.clone())
    }

    fn end_watch(&mut self) {
        self.0.state().watch_ended = true;
    }

    fn end(self: Box<Self>) {
        self.0.state().ended = Some(false);
    }

    fn leave(self: Box<Self>) {
        self.0.state().ended = Some(true);
    }
}

impl LevelView for MockDriver {
    fn port_counters(&self, index: u8) -> Option<PortCounters> {
        self.state().ports.contains_key(&index).then(PortCounters::default)
    }

    fn generation(&self) -> Generation {
        Generation(self.state().generation)
    }

    fn silence(&self, _: u32) -> Option<Duration> {
        Some(Duration::ZERO)
    }
}
