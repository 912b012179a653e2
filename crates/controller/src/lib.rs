// SPDX-License-Identifier: Apache-2.0
//! Layer 6: the controller: tenants, policies, devices, rule libraries, roll-outs, tokens and the audit log,
//! behind a REST API.
//!
//! It knows abstract policies only; what becomes of them on a device is the agent's business. Clock, store
//! and fleet are traits, so that other stores and a simulation of many hosts fit in.
//!
//! The order of the files and folders, each using what stands before:
//!
//! 1. `clock`: the time.
//! 2. `counters`: what is counted.
//! 3. `store`: what is kept.
//! 4. `problem`: why something was not done.
//! 5. `access`: who may do what.
//! 6. `model`: what stands, in memory.
//! 7. `render`: the policy file that a device is given.
//! 8. `numbers`: of tenants and rule files.
//! 9. `parts`: the same file in parts, as they travel.
//! 10. `kept`: what of tenants is older in what a device is to run.
//! 11. `device`: a host, what it is to run and what it runs.
//! 12. `statistics`: what devices count of tenants' traffic.
//! 13. `rollout`: a generation on its way to devices, in steps.
//! 14. `fleet`: the way to the devices.
//! 15. `southbound`: sessions with their agents.
//! 16. `queue`: changes on their way to the disk, several together.
//! 17. `shares`: places of which nobody gets all.
//! 18. `waiting`: who waits for devices.
//! 19. `held`: what a device does not take of some tenants, while it takes the rest.
//! 20. `interfaces`: the links and ports that devices have, and who names them.
//! 21. `history`: how far back is remembered what was said.
//! 22. `sections`: what functions say of their sections.
//! 23. `controller`: changes, one at a time, and what follows of them.
//! 24. `heavy`: changes whose checks take long.
//! 25. `bridge`: joins the sessions and the controller.
//! 26. `rest`: requests without a transport: routes, dispatch, the OpenAPI document.
//! 27. `resources`: the routes of all resources.
//! 28. `state`: the folder of a controller.
//! 29. `server`: HTTP over TLS.
//! 30. `start`: all of it, in this process.
//! 31. `client`: the other end of HTTP.
//! 32. `limits`: bounds of all of them, for the manual.
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
