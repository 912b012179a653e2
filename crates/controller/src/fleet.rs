// SPDX-License-Identifier: Apache-2.0
//! What the controller needs of the way to its devices: it says what a device is to run. What devices say
//! comes in by `Controller::acknowledge`, `alerts` and `statistics`.

use bartizan_api::southbound::FunctionOrder;
use bartizan_channel::authority::Withdrawn;
use serde_json::{Map, Value};
use std::sync::{Mutex, PoisonError};

/// The way to the devices. A call must not wait for a device: it notes what is wanted, and the device is told
/// when it listens. Only the newest generation of a device counts; one that was missed in between is not
/// needed.
pub trait Fleet: Send + Sync {
    /// A device is to run a generation. Called once more after a restart of the controller.
    fn wanted(&self, device: &str, generation: u64);

    /// What is said of a device has changed, or it is gone.
    fn changed(&self, _device: &str) {}

    /// Gives an order to a function of a device. Its answer comes later, by the order's number.
    ///
    /// # Errors
    /// No way leads there.
    fn order(&self, _device: &str, _order: Order) -> Result<(), NoWay> {
        Err(NoWay::None)
    }

    /// A one-time token for a device's first certificate.
    ///
    /// # Errors
    /// None can be made.
    fn invite(&self, _device: &str) -> Result<Invitation, NoWay> {
        Err(NoWay::None)
    }

    /// What happened on the way, by name.
    fn counters(&self) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// Revokes all certificates of a device, and its one-time tokens. How many.
    ///
    /// # Errors
    /// None was given, or it cannot be written down.
    fn revoke(&self, _device: &str) -> Result<Withdrawn, NoWay> {
        Err(NoWay::None)
    }
}

/// An order to a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Its number.
    pub request: u32,
    /// What to do.
    pub order: FunctionOrder,
    /// With which function.
    pub function: String,
    /// Settings, for [`FunctionOrder::Configure`].
    pub settings: Map<String, Value>,
}

/// What a device needs to be enrolled.
#[derive(Clone, PartialEq, Eq)]
pub struct Invitation {
    /// The token.
    pub token: String,
    /// Until when it can be used, seconds since 1970.
    pub expires: u64,
    /// Port of the listener.
    pub port: u16,
}

/// Why something does not come to a device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoWay {
    /// There is no listener for agents.
    #[error("this controller does not listen for agents; start it with `--southbound ADDR`")]
    None,
    /// It was tried.
    #[error("{0}")]
    Failed(String),
}

/// A fleet that only notes what is wanted: for tests, and for devices that ask by REST.
#[derive(Debug, Default)]
pub struct MemoryFleet(Mutex<Vec<(String, u64)>>);

/// Calls that are kept for [`MemoryFleet::take`].
const KEPT_MAX: usize = 4096;

impl MemoryFleet {
    /// What was wanted since the last call, in order.
    pub fn take(&self) -> Vec<(String, u64)> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Fleet for MemoryFleet {
    fn wanted(&self, device: &str, generation: u64) {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if calls.len() < KEPT_MAX {
            calls.push((device.to_owned(), generation));
        }
    }
}
