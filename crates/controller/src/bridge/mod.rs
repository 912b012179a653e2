// SPDX-License-Identifier: Apache-2.0
//! Joins the controller with the southbound sessions of devices' agents.
//!
//! * [`shelf`]: cache of the parts sent to devices, each made once for all devices;
//! * [`own`]: the controller's own certificate and its authority;
//! * [`way`]: from the controller to the sessions ([`crate::fleet::Fleet`]);
//! * `stands`: device reports on levels and rules, converted to their stored form;
//! * [`office`]: from the sessions to the controller ([`crate::southbound::Backend`]).

pub mod office;
pub mod own;
pub mod shelf;
mod stands;
pub mod way;

pub use office::DeviceBackend;
pub use own::Own;
pub use way::FleetNotifier;
