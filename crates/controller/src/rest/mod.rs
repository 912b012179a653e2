// SPDX-License-Identifier: Apache-2.0
//! The REST API: the table of routes and its mapping to HTTP. The transport is in `server`.

pub mod body;
pub mod dispatch;
pub mod http;
pub mod openapi;
pub mod route;
pub mod tags;

pub use dispatch::{Admitted, Api};
pub use http::{Head, Method, Reply};
pub use route::{Call, Route};
