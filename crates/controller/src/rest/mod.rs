// SPDX-License-Identifier: Apache-2.0
//! The REST API: routes as a table, and what HTTP makes of them. The transport is another matter (`server`).

pub mod body;
pub mod dispatch;
pub mod http;
pub mod openapi;
pub mod route;
pub mod tags;

pub use dispatch::{Admitted, Api};
pub use http::{Head, Method, Reply};
pub use route::{Call, Route};
