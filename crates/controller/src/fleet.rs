// SPDX-License-Identifier: Apache-2.0
//! The interface of the controller to its devices: it announces desired generations and passes orders.
//! Reports of devices enter by `Controller::acknowledge`, `alerts` and `statistics`.

use bartizan_api::southbound::FunctionOrder;
use bartizan_channel::authority::Withdrawn;
use serde_json::{Map, Value};
use std::sync::{Mutex, PoisonError};

/// The way to the devices. A call must not wait for a device: it notes the desired generation, and the device
/// is notified when it is reachable. Only the newest generation of a device counts; earlier ones may be
/// skipped.
pub trait Fleet: Send + Sync {
    /// Notes a device's desired generation. Called once more after a restart of the controller.
    fn wanted(&self, device: &str, generation: u64);

    /// The document of a device has changed, or was removed.
    fn changed(&self, _device: &str) {}

    /// Passes an order to a function of a device. The answer comes later, under the order's number.
    ///
    /// # Errors
    /// The device cannot be reached.
    fn order(&self, _device: &str, _order: Order) -> Result<(), NoWay> {
        Err(NoWay::None)
    }

    /// Makes a one-time token for a device's first certificate.
    ///
    /// # Errors
    /// No token can be made.
    fn invite(&self, _device: &str) -> Result<Invitation, NoWay> {
        Err(NoWay::None)
    }

    /// Counters of the sessions, by name.
    fn counters(&self) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// Revokes all certificates and one-time tokens of a device. Returns how many.
    ///
    /// # Errors
    /// The device has none, or the revocation cannot be written.
    fn revoke(&self, _device: &str) -> Result<Withdrawn, NoWay> {
        Err(NoWay::None)
    }
}

/// An order to a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The order's number.
    pub request: u32,
    /// The kind of order.
    pub order: FunctionOrder,
    /// Name of the function.
    pub function: String,
    /// Settings, for [`FunctionOrder::Configure`].
    pub settings: Map<String, Value>,
}

/// The data for a device's enrolment.
#[derive(Clone, PartialEq, Eq)]
pub struct Invitation {
    /// The one-time token.
    pub token: String,
    /// Expiry of the token, in seconds since 1970.
    pub expires: u64,
    /// Port of the listener.
    pub port: u16,
}

/// Why an order or invitation for a device failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoWay {
    /// There is no listener for agents.
    #[error("this controller does not listen for agents; start it with `--southbound ADDR`")]
    None,
    /// The attempt failed; with the reason.
    #[error("{0}")]
    Failed(String),
}

/// A fleet that only notes desired generations: for tests, and for devices that poll by REST.
#[derive(Debug, Default)]
pub struct MemoryFleet(Mutex<Vec<(String, u64)>>);

/// Most calls that are kept for [`MemoryFleet::take`].
const KEPT_MAX: usize = 4096;

impl MemoryFleet {
    /// The calls of `wanted` since the last `take`, in order.
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
