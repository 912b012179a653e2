// SPDX-License-Identifier: Apache-2.0
//! The API over its transport: every refusal arrives and has the form of all, HTTP's own rules hold, and
//! nobody shuts others out.

mod arrival;
mod http;
mod sharing;
