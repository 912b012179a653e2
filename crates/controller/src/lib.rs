// SPDX-License-Identifier: Apache-2.0
//! Layer 6: the controller: tenants, policies, devices, rule libraries, roll-outs, tokens and the audit log,
//! behind a REST API.
//!
//! The controller knows abstract policies only; agents translate them for their devices. Clock, store and
//! fleet are traits, so that other stores and a simulation of many hosts fit in.
//!
//! The files and folders in order, each using only earlier ones:
//!
//! 1. `clock`: the time.
//! 2. `counters`: counters of requests.
//! 3. `store`: documents, status, audit log and alerts on the disk.
//! 4. `problem`: refusals of requests.
//! 5. `access`: tokens and permissions.
//! 6. `model`: all documents and status in memory.
//! 7. `render`: the policy file of a device.
//! 8. `numbers`: numbers of tenants and rule files.
//! 9. `parts`: the same policy in parts, as the southbound protocol carries them.
//! 10. `kept`: tenants' older documents in a device's set.
//! 11. `device`: devices, their desired and running generations.
//! 12. `statistics`: devices' counters of tenants' traffic.
//! 13. `rollout`: bringing a generation to devices in steps.
//! 14. `fleet`: the interface to the devices.
//! 15. `southbound`: sessions with the devices' agents.
//! 16. `queue`: group commit of changes.
//! 17. `shares`: limited places with a share for each tenant.
//! 18. `waiting`: requests that wait for devices.
//! 19. `held`: holding back tenants whose documents a device refuses.
//! 20. `interfaces`: the links and ports of devices, and documents that name them.
//! 21. `history`: bounds of the history.
//! 22. `sections`: the functions' checks of their policy sections.
//! 23. `controller`: changes, one at a time, and their consequences.
//! 24. `heavy`: changes with long checks.
//! 25. `bridge`: joins the sessions and the controller.
//! 26. `rest`: requests without a transport: routes, dispatch, the OpenAPI document.
//! 27. `resources`: the routes of all resources.
//! 28. `state`: the state folder of a controller.
//! 29. `server`: HTTP over TLS.
//! 30. `start`: starts all parts in this process.
//! 31. `client`: the client of the REST API.
//! 32. `limits`: bounds of the crate, for the manual.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod access;
pub mod bridge;
pub mod client;
pub mod clock;
pub mod controller;
pub mod counters;
pub mod device;
pub mod fleet;
mod heavy;
pub mod held;
pub mod history;
pub mod interfaces;
pub mod kept;
pub mod limits;
pub mod model;
pub mod numbers;
pub mod parts;
pub mod problem;
mod queue;
pub mod render;
pub mod resources;
pub mod rest;
pub mod rollout;
pub mod sections;
pub mod server;
mod shares;
pub mod southbound;
pub mod start;
pub mod state;
pub mod statistics;
pub mod store;
pub mod waiting;

pub use controller::{Controller, Settings};
pub use rest::Api;
pub use server::Server;
