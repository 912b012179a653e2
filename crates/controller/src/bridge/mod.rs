// SPDX-License-Identifier: Apache-2.0
//! Joins the sessions with devices' agents and the controller.
//!
//! * [`shelf`]: what devices are sent, made once for all of them;
//! * [`own`]: the controller's own certificate and its authority;
//! * [`way`]: from the controller to the sessions ([`crate::fleet::Fleet`]);
//! * `stands`: what devices say of their levels, as it is kept;
//! * [`office`]: from the sessions to the controller ([`crate::southbound::Backend`]).

pub mod office;
pub mod own;
pub mod shelf;
mod stands;
pub mod way;

pub use office::Office;
pub use own::Own;
pub use way::Way;
