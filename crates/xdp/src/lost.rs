// SPDX-License-Identifier: Apache-2.0
//! Ports that lose frames redirected to them: the kernel's reports (`ebpf/lost.h`), and the closing and
//! reopening of the port.
//!
//! The program closes a port for redirects at the first error of its device, so that at most one batch is
//! lost for each processor. Here the port is tested as when it was attached, and reopened when it takes
//! frames.
//!
//! Source: Linux `include/trace/events/xdp.h`. Not done: frames that a device has taken and then loses are
//! counted by the device only. For frames that the kernel redirects (generic mode), there is a report where
//! the device is down or the frame is longer than its MTU, and none where its queue is full.

use crate::error::XdpError;
use crate::memory::Words;
use crate::object::{load_with_retry, map, not_loaded};
use crate::sys::{Map, MapUpdateMode};
use aya::Ebpf;
use aya::maps::Map as Loaded;
use aya::programs::RawTracePoint;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// Programs, and the trace points that they read.
const REPORTERS: [(&str, &str); 2] =
    [("bartizan_lost", "xdp_devmap_xmit"), ("bartizan_refused", "xdp_redirect_err")];

/// The running reports.
#[derive(Debug)]
pub(crate) struct Reports {
    devices: Map,
    /// The devices of ports, as the kernel's reports name them.
    named: BTreeMap<u8, u64>,
}

impl Reports {
    /// Starts reports, until the object is dropped. Call this once for an object.
    pub(crate) fn listen(bpf: &mut Ebpf) -> Result<Self, XdpError> {
        let egress = match bpf.map("egress") {
            Some(Loaded::DevMap(data)) => data.info().map(|info| info.id()).unwrap_or_default(),
            _ => 0,
        };
        let failed = |source| XdpError::system(None, "naming the ways out to its reporter", source);
        let own = map(bpf, "own", 4, 8)?;
        own.update(&0_u32.to_ne_bytes(), &u64::from(egress).to_ne_bytes(), MapUpdateMode::Any)
            .map_err(failed)?;
        let devices = map(bpf, "devices", 8, 8)?;
        for (name, report) in REPORTERS {
            let missing =
                || XdpError::Load { program: name, problem: "the object has no such program".into() };
            let reporter: &mut RawTracePoint =
                bpf.program_mut(name).and_then(|program| program.try_into().ok()).ok_or_else(missing)?;
            load_with_retry(|| reporter.load()).map_err(|error| not_loaded(name, &error))?;
            reporter.attach(report).map_err(|error| not_loaded(name, &error))?;
        }
        Ok(Reports { devices, named: BTreeMap::new() })
    }

    /// Maps a device to a port, so that its losses count for that port. (0: the device is unknown.)
    pub(crate) fn name(&mut self, port: u8, device: u64) -> Result<(), XdpError> {
        self.forget(port);
        if device != 0 {
            self.devices
                .update(&device.to_ne_bytes(), &u64::from(port).to_ne_bytes(), MapUpdateMode::Any)
                .map_err(|source| XdpError::system(None, "naming a device to its reporter", source))?;
            self.named.insert(port, device);
        }
        Ok(())
    }

    /// Removes a port that is gone, or has another device.
    pub(crate) fn forget(&mut self, port: u8) {
        if let Some(device) = self.named.remove(&port) {
            // The entry may be gone already.
            let _ = self.devices.delete(&device.to_ne_bytes());
        }
    }

    pub(crate) fn knows(&self, port: u8) -> bool {
        self.named.contains_key(&port)
    }
}

/// Whether the program has closed a port for redirects.
pub(crate) fn is_closed(exits: &Words, port: u8) -> bool {
    exits.get().get(usize::from(port)).is_some_and(|word| word.load(Ordering::Acquire) == 0)
}
