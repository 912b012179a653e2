// SPDX-License-Identifier: Apache-2.0
//! The XDP hook as a kind of level below the host.

use crate::device::XdpDevice;
use crate::error::XdpError;
use crate::left::{pinned, remove_left};
use crate::pin::PINS;
use crate::port::{Mode, ModeChoice};
use crate::program::{XdpOptions, XdpProgram};
use crate::tables::{Tables, monotonic_time};
use bartizan_base::Generation;
use bartizan_offload::Device;
use bartizan_offload::level::{
    AttachMode, AttachedPort, DeviceSetup, LeftOn, LevelDriver, LevelError, LevelFault, LevelOptions,
    LevelView, OpenLevel, PortCounters, PortNews, PortSetup, StalePrograms,
};
use std::sync::Arc;
use std::time::Duration;

/// The driver of the level `xdp`.
#[derive(Clone, Copy, Debug, Default)]
pub struct XdpDriver;

impl LevelFault for XdpError {
    fn explain(self: Box<Self>) -> String {
        self.with_holders().to_string()
    }
}

impl From<XdpError> for LevelError {
    fn from(error: XdpError) -> Self {
        LevelError::new(error)
    }
}

impl LevelDriver for XdpDriver {
    fn name(&self) -> &'static str {
        "xdp"
    }

    fn title(&self) -> &'static str {
        "XDP"
    }

    fn reads_tunnels(&self, max_layers: u8) -> bool {
        XdpDevice::reads_tunnels(max_layers)
    }

    fn open(&self, options: &LevelOptions) -> Result<Box<dyn OpenLevel>, LevelError> {
        let LevelOptions { flows, mode, tunnels, workers, early, seed } = *options;
        let mode = match mode {
            AttachMode::Auto => ModeChoice::Auto,
            AttachMode::Native => ModeChoice::Only(Mode::Native),
            AttachMode::Generic => ModeChoice::Only(Mode::Generic),
        };
        let program = XdpProgram::load(&XdpOptions { flows, mode, tunnels, workers, early, seed })?;
        Ok(Box::new(program))
    }

    fn left(&self) -> Result<Vec<LeftOn>, LevelError> {
        Ok(pinned()?)
    }

    fn left_place(&self) -> &'static str {
        PINS
    }

    fn remove_left(&self, ifindex: u32) -> Result<bool, LevelError> {
        Ok(remove_left(ifindex)?)
    }
}

impl OpenLevel for XdpProgram {
    fn check(&mut self, interfaces: &[u32]) -> Result<(), LevelError> {
        Ok(XdpProgram::check(self, interfaces)?)
    }

    fn attach(&mut self, port: &PortSetup) -> Result<AttachedPort, LevelError> {
        let attached = XdpProgram::attach(self, port)?;
        let name = self.port_name(port.index).unwrap_or_default();
        let note = (attached.mode == Mode::Generic).then(|| {
            format!(
                "the driver of `{name}` runs no XDP programs, so the kernel does (generic mode), which is slower"
            )
        });
        Ok(AttachedPort { waits: attached.waits, note })
    }

    fn detach(&mut self, index: u8) {
        // The interface may be gone, and with it the attachment.
        let _ = XdpProgram::detach(self, index);
    }

    fn is_attached(&mut self, index: u8) -> bool {
        XdpProgram::is_attached(self, index)
    }

    fn refresh_mtu(&mut self, index: u8) {
        // An interface that is gone takes the program with it.
        let _ = XdpProgram::refresh_mtu(self, index);
    }

    fn set_exit(&mut self, index: u8, ifindex: u32) -> Result<(), LevelError> {
        Ok(XdpProgram::set_exit(self, index, ifindex)?)
    }

    fn clear_exit(&mut self, index: u8) {
        let _ = XdpProgram::clear_exit(self, index);
    }

    fn left_paired(&mut self, left: u32, interfaces: [u32; 2]) -> Result<Option<bool>, LevelError> {
        Ok(XdpProgram::left_paired(self, left, interfaces)?)
    }

    fn remove_left(&mut self, ifindex: u32) -> Result<bool, LevelError> {
        Ok(XdpProgram::remove_left(self, ifindex)?)
    }

    fn waits(&self) -> bool {
        XdpProgram::waits(self)
    }

    fn take_over(&mut self) -> Result<StalePrograms, LevelError> {
        Ok(XdpProgram::take_over(self)?)
    }

    fn follow_losses(&mut self) -> Vec<PortNews> {
        XdpProgram::follow_losses(self)
    }

    fn early_outcomes(&self) -> Option<u32> {
        self.tables().early().map(|early| early.outcomes())
    }

    fn write_early(&mut self, generation: Generation, table: &[u64]) -> bool {
        self.tables().early().is_some_and(|early| early.write(generation.0 as u8, table))
    }

    fn enter_generation(&mut self, generation: Generation) {
        self.tables().enter_generation(generation.0);
    }

    fn device(&self, setup: DeviceSetup) -> Box<dyn Device> {
        let DeviceSetup { first_slot, entries, max_layers, worker, watch, exits, early } = setup;
        let device = XdpDevice::new(self.tables(), first_slot, entries).limited_to(max_layers);
        let device = device.watched(worker, &watch).with_exits(exits);
        match early {
            Some((link, counts)) => Box::new(device.with_early(link, counts)),
            None => Box::new(device),
        }
    }

    fn view(&self) -> Arc<dyn LevelView> {
        self.tables()
    }

    fn end_watch(&mut self) {
        // Otherwise the last frames would fail as the policy says.
        let _ = XdpProgram::end_watch(self);
    }

    fn end(self: Box<Self>) {
        XdpProgram::end(*self);
    }

    fn leave(self: Box<Self>) {
        XdpProgram::leave(*self);
    }
}

impl LevelView for Tables {
    fn port_counters(&self, index: u8) -> Option<PortCounters> {
        Tables::port_counters(self, index)
    }

    fn generation(&self) -> Generation {
        Generation(Tables::generation(self))
    }

    fn silence(&self, worker: u32) -> Option<Duration> {
        let last = self.last_beat(worker)?;
        Some(Duration::from_nanos(monotonic_time().saturating_sub(last)))
    }
}
